"""Draws the pictures of the documentation as the page draws them: a run of the demo's plan with
real servers, graphs, and pages.

python -m tests.ui.picture

A picture of a page or a run is written only if its words differ from the stored one. Delete a
picture to have it written again, such as after a change of styles.

The picture of a page is its document with its styles inside an SVG: it is sharp at every size,
small, made of text, and light or dark as its reader wants.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

from playwright.sync_api import Browser, Page, expect, sync_playwright

from ideabridge.server.ui import drawing
from tests.ui.serving import CHROMIUM, client, link_to, send, served

ROOT = Path(__file__).parent.parent.parent
PICTURE = ROOT / "docs" / "images" / "run.svg"
PLAN = ROOT / "examples" / "git_history.json"


def drawn(folder: Path) -> str:
    """Run the demo's plan over the repository of this project; returns the picture of the run."""
    folder = folder.resolve()
    modules = {
        name: {"command": sys.executable, "args": ["-m", f"mcp_server_{name}"]}
        for name in ("git", "time")
    }
    configuration = folder / "ideabridge.json"
    configuration.write_text(json.dumps({"mcpServers": modules}), encoding="utf-8")
    given = {"repo": str(ROOT), "count": 20, "timezone": "Europe/Berlin"}
    words = ["--config", str(configuration), "--tools", str(ROOT / "examples" / "git_history.py")]
    path = ""
    with served(folder, *words) as url, client(url) as http:
        for _ in range(2):
            # The first run starts the servers, and the second shows what users see from then on.
            answer = send(
                http,
                "/ui/playground",
                kind="plan",
                text=PLAN.read_text(encoding="utf-8"),
                input=json.dumps(given),
                title="What happened in this repository?",
                action="run",
            )
            path = answer.url.path
            assert "/runs/run_" in path, answer.text
            with http.stream("GET", "/ui/live") as changes:
                for _ in changes.iter_lines():
                    if re.search(
                        r'class="status s-done"', http.get(path).text.partition("</section>")[0]
                    ):
                        break

        return http.get(f"{path}/picture.svg").text


_STYLE = """
  .box { fill: #eef1f6; stroke: #aab2c0; stroke-width: 1.5; } .edge { fill: none; stroke: #5b6475; stroke-width: 1.4; }
  .order { stroke-dasharray: 3 4; } .tip { fill: #5b6475; } .own { fill: #e2edfb; stroke: #4b8be0; }
  text { fill: #1b2130; font: 600 12px system-ui, "Noto Sans", sans-serif; }
  .note { fill: #5b6475; font-weight: 400; font-size: 11px; }
  @media (prefers-color-scheme: dark) {
    .box { fill: #272e38; stroke: #586274; } .edge { stroke: #9fa9ba; } .tip { fill: #9fa9ba; } text { fill: #e6e9ef; }
    .own { fill: #1a2c45; stroke: #4f8fe0; } .note { fill: #9fa9ba; }
  }"""


_TIP = """<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


def graph(boxes: list[tuple[str, str, str]], arrows: list[str]) -> str:
    """A graph as a picture that stands alone: boxes are (key, title, note), arrows `FROM>TO`; *
    marks our own box.
    """
    found = drawing.place_boxes(
        [drawing.Box(key, title, note) for key, title, note in boxes],
        [
            drawing.Arrow(source, target, "data")
            for source, _, target in (arrow.partition(">") for arrow in arrows)
        ],
    )
    width, height = found.box
    size = (
        f'width="{found.width}" height="{found.height}" viewBox="0 0 {found.width} {found.height}"'
    )
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{_STYLE}\n</style>", _TIP]
    lines += [f'<path class="edge" d="{path}" marker-end="url(#tip)"/>' for _, path in found.edges]
    for one in found.nodes:
        title = escape(one.node.title.strip("*"))
        note = escape(one.node.note)
        kind = "box own" if one.node.title.endswith("*") else "box"
        lines.append(
            f'<rect class="{kind}" x="{one.x}" y="{one.y}" width="{width}" '
            f'height="{height}" rx="6"/>'
        )
        lines.append(f'<text x="{one.x + 10}" y="{one.y + (17 if note else 25)}">{title}</text>')
        lines += (
            [f'<text class="note" x="{one.x + 10}" y="{one.y + 32}">{note}</text>'] if note else []
        )

    return "\n".join([*lines, "</svg>"]) + "\n"


GRAPHS: dict[str, tuple[list[tuple[str, str, str]], list[str]]] = {
    "around": (
        [
            ("claude", "Claude Code", ""),
            ("cursor", "Cursor, VS Code", ""),
            ("agent", "your own agent", ""),
            ("server", "ideabridge*", "one MCP server"),
            ("git", "MCP servers", "stdio, HTTP"),
            ("tools", "Python tools", "your functions"),
            ("model", "a model", "where one is needed"),
            ("ideas", "ideas", "every run, every tool"),
        ],
        [
            *(f"{one}>server" for one in ("claude", "cursor", "agent")),
            *(f"server>{one}" for one in ("git", "tools", "model", "ideas")),
        ],
    ),
    "flow": (
        [
            ("input", "†input.repo", ""),
            ("log", "git_log", "state.log"),
            ("status", "git_status", "state.status"),
            ("authors", "authors", "state.authors"),
            ("output", "output", ""),
        ],
        ["input>log", "input>status", "log>authors", "authors>output", "status>output"],
    ),
    "life": (
        [
            ("task", "a task", "plan, program, solve"),
            ("run", "a run", "journaled call by call"),
            ("idea", "an idea", "context, schema, solution"),
            ("lift", "lifted", "copied values explained"),
            ("tool", "a tool*", "any assistant calls it"),
            ("call", "a call", "a run of its own"),
            ("evidence", "evidence", "removes assumptions"),
        ],
        ["task>run", "run>idea", "idea>lift", "lift>tool", "tool>call", "call>evidence"],
    ),
    "layers": (
        [
            ("serve", "server", "stdio, HTTP"),
            ("cli", "cli", "commands"),
            ("ui", "ui", "the page"),
            ("bridge", "Bridge*", ""),
            ("publishing", "publishing", "publish, verify"),
            ("lifting", "lifting", ""),
            ("runs", "runs", "runner, people, rooms"),
            ("programs", "programs", "sandbox, stubs"),
            ("modules", "modules", "clients of servers"),
            ("minds", "minds", ""),
            ("loop", "loop", "machine, graph, tick"),
            ("store", "store", ""),
            ("context", "context", "messages, state"),
            ("tools", "tools", "Tool, Toolbox, @tool"),
        ],
        [
            *(f"{one}>bridge" for one in ("serve", "cli", "ui")),
            "bridge>publishing",
            "publishing>lifting",
            "lifting>runs",
            *(f"runs>{one}" for one in ("programs", "modules", "minds")),
            "programs>loop",
            "minds>store",
            *(f"{one}>context" for one in ("loop", "modules", "store")),
            "context>tools",
        ],
    ),
}


def badges() -> str:
    """What the project promises, as the small plates that readers look for at the
    top of a README.
    """
    meta = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [
        one.rpartition(" ")[2] for one in meta["classifiers"] if re.search(r"Python :: \d\.", one)
    ]
    plates = [
        ("Python", f"{versions[0]} to {versions[-1]}"),
        ("MCP", "2025-11-25 and 2026-07-28"),
        ("license", meta["license"]),
        ("types", "strict"),
    ]
    parts: list[str] = []
    x = 0
    for label, value in plates:
        # On average, a letter that is 11 pixels high is six pixels wide.
        left = len(label) * 7 + 12
        right = len(value) * 6 + 14
        parts += [
            f'<rect class="label" x="{x}" width="{left}" height="20"/>',
            f'<rect class="value" x="{x + left}" width="{right}" height="20"/>',
            f'<text x="{x + left / 2:g}" y="14">{label}</text>',
            f'<text x="{x + left + right / 2:g}" y="14">{value}</text>',
        ]
        x += left + right + 6

    title = ", ".join(f"{label} {value}" for label, value in plates)
    style = ".label { fill: #444b57; } .value { fill: #2947b5; }"
    style += " text { fill: #fff; font: 11px sans-serif; text-anchor: middle; }"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x - 6}" height="20" '
        f'role="img" aria-label="{title}">'
    )
    return (
        "\n".join([head, f"<title>{title}</title>", f"<style>{style}</style>", *parts, "</svg>"])
        + "\n"
    )


_STILL = """() => {
  const css = [];
  for (const rule of [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])) {
    if (!(rule instanceof CSSMediaRule)) css.push(rule.cssText);
    else if (rule.conditionText.includes("color-scheme")) css.push(rule.cssText);
    // The width of a picture is not that of the page.
    else if (rule.conditionText.includes("width") && matchMedia(rule.conditionText).matches)
      css.push(...[...rule.cssRules].map((one) => one.cssText));
  }
  for (const one of document.querySelectorAll("input[type=range]")) one.setAttribute("value", one.value);
  const body = document.body.cloneNode(true);
  for (const one of body.querySelectorAll("script, noscript, input[type=hidden], .skip, .hidden")) one.remove();
  // The menu of a page shows its buttons beside the main action, even if it is closed.
  for (const one of body.querySelectorAll("details:not([open], .page-head .menu, .top .more) > :not(summary), .menu:not([open]) .rare")) one.remove();
  for (const one of body.querySelectorAll("[href]")) one.removeAttribute("href");
  for (const one of [body, ...body.querySelectorAll("*")])
    for (const name of one.getAttributeNames())
      // The letter of a tile is shown.
      if (/^(data-(?!initial).*|action|method|autofocus)$/.test(name)) one.removeAttribute(name);
  const html = document.createElement("html");
  html.append(body);
  return [css.join("\\n"), new XMLSerializer().serializeToString(html), document.documentElement.scrollHeight];
}"""


def still(page: Page, width: int) -> str:
    """The page as a picture of that many pixels width."""
    # The viewport is as high as the content, or as the rooms beside it.
    least_height = 520 if width >= 1100 else 300
    page.set_viewport_size({"width": width, "height": least_height})
    # A button is pale for a second after it has appeared or moved.
    expect(page.locator("button[aria-disabled=true]")).to_have_count(0)
    css, document, height = page.evaluate(_STILL)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    own = ".picture { background: var(--back); color-scheme: light dark; }"
    if width >= 1100:
        # In a picture, `100vh` is the height at which a document shows it.
        own += f" .picture .top {{ height: {least_height}px; overflow: hidden; }}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" {size}>',
        f"<style>{escape(f'{own}{chr(10)}{css}', quote=False)}</style>",
        f'<foreignObject width="{width}" height="{height}">',
        document,
        "</foreignObject></svg>",
    ]
    return re.sub(r"[ \t]*\n\s*\n", "\n", "\n".join(lines)) + "\n"


_SHOP = {
    "calls": [
        {"_tool": "list_orders", "customer": "†input.customer", "_outputPath": "orders"},
        {"_tool": "find_customer", "id": "†input.customer", "_outputPath": "who"},
        {
            "_tool": "compute",
            "code": "max(orders, key=lambda one: one['total'])",
            "orders": "†state.orders",
            "_outputPath": "largest",
        },
        {"_tool": "refund", "order": "†state.largest.id", "amount": "†state.largest.total"},
    ],
    "output": {"mail": "†state.who.mail", "done": "†results.3"},
}


def _begin(page: Page, site: str, customer: str) -> None:
    page.goto(f"{site}playground?kind=plan")
    page.get_by_label("The plan or program").fill(json.dumps(_SHOP))
    page.get_by_label("Input, as JSON").fill(json.dumps({"customer": customer}))
    page.get_by_label("Title").fill(f"Refund the largest order of customer {customer}")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#head .status")).to_have_text("needs approval")
    expect(page.locator("#live")).to_have_text("● live")


def stills(browser: Browser, folder: Path) -> dict[str, str]:
    """The pictures of the pages, by their names: a run asks, somebody decides, and the run
    becomes a tool.
    """
    found: dict[str, str] = {}
    context = browser.new_context()
    with served(folder) as site, context:
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.goto(link_to(site))
        for customer in ("c1", "c2"):
            _begin(page, site, customer)

        found["page-run"] = still(page, 1600)
        found["page-phone"] = still(page, 400)
        page.goto(f"{site}approvals")
        expect(page.locator("#live")).to_have_text("● live")
        found["page-approvals"] = still(page, 1000)
        page.locator("article").first.get_by_role("button", name="Approve", exact=True).click()
        page.goto(f"{site}runs")
        page.get_by_role("link", name="customer c1").click()
        expect(page.locator("#head .status")).to_have_text("done")
        page.get_by_role("link", name="Make it a tool").click()
        page.locator("input[name=name]").fill("refund_largest")
        page.get_by_role("button", name="Make the tool").click()
        expect(page.get_by_role("heading", name="Refund largest", exact=True)).to_be_visible()
        page.reload()
        expect(page.locator("#live")).to_have_text("● live")
        found["page-tool"] = still(page, 1000)
        page.goto(f"{site}runs")
        expect(page.locator("#live")).to_have_text("● live")
        found["page-runs"] = still(page, 1000)
        page.goto(f"{site}home")
        expect(page.locator("#live")).to_have_text("● live")
        expect(page.locator("[data-later]")).to_have_count(0)
        found["page-home"] = still(page, 1200)

    return found


def words(text: str) -> str:
    """What a picture of a page says, without what differs each time: ids, times, and which
    call ended last.
    """
    root = ET.fromstring(text)
    for above in list(root.iter()):
        if "chart" in above.get("class", "").split():
            # The days in a chart are those of this week.
            for part in above.iter():
                part.text = ""
        for one in list(above):
            kinds = one.get("class", "").split()
            # How many times stand on the scale of a timeline depends on how long the run took.
            if (
                one.tag.endswith(("}style", "}title"))
                or "ticks" in kinds
                or ("dim" in kinds and one.tag.endswith("}span"))
            ):
                one.text = ""
                one[:] = []

    said = " ".join(" ".join(root.itertext()).split())
    # Which calls have ended when the picture is taken depends on how fast they are.
    said = re.sub(r"Since it was asked, [^.]*\.", "Since it was asked, #.", said)
    said = said.replace("just now", "0 s ago")
    return re.sub(r"run_[0-9a-f]+|\d[\d.,]*( ms| s| min)?", "#", said)


def keep(path: Path, text: str) -> None:
    """Write a picture, unless the stored one says the same: ids and times differ each time."""
    if not path.exists() or words(path.read_text(encoding="utf-8")) != words(text):
        path.write_text(text, encoding="utf-8")
        print(f"{path.name} is written")


def main() -> None:
    """Draw all pictures, and write those that say something else than the stored ones."""
    PICTURE.parent.mkdir(exist_ok=True)
    (PICTURE.parent / "badges.svg").write_text(badges(), encoding="utf-8")
    for name, parts in GRAPHS.items():
        (PICTURE.parent / f"{name}.svg").write_text(graph(*parts), encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        keep(PICTURE, drawn(Path(folder)))

    if CHROMIUM is None:
        sys.exit("the pictures of pages need Chromium: install the package chromium")

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        # Containers have no user namespaces for the sandbox, and the browser opens only our own
        # pages.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, text in stills(browser, Path(folder)).items():
            keep(PICTURE.parent / f"{name}.svg", text)
        browser.close()


if __name__ == "__main__":
    main()
