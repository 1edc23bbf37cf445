"""Photographs every page, empty and in use, on a desktop and a phone, light and dark:

python -m tests.ui.pictures FOLDER [PAGE ...]

With names of pages, such as `runs` or `home-empty`, only those are photographed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import httpx
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from ideabridge.server.ui.access import PAGE_CLIENT
from tests.ui.serving import CHROMIUM, ask, client, link_to, seal, send, served
from tests.ui.test_servers import SERVERS, configured
from tests.ui.test_shown import key_of
from tests.ui.test_tools import WRITTEN, write_idea
from tests.waiting import wait_until

WIDTHS: Final = {"desktop": 1280, "phone": 390, "wide": 1920}
"""The widths of windows, in pixels."""

HEIGHT: Final = 800
"""The least height of a window, in pixels."""

WIDE: Final = ("home", "servers", "runs", "run", "run-failed", "run-asking", "approvals", "publish")
"""The pages that are photographed in a wide window, too."""

SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")

REFUND: Final = {"_tool": "refund", "order": "†state.largest.id", "amount": "†state.largest.total"}
REPORT: Final = """# Orders of c2

- **2 orders**, the larger one of `50.0`
- nothing is *open*

| order | total |
|---|---|
| 2 | 20.0 |
| 5 | 50.0 |
"""
PROGRAM: Final = (
    Path(__file__).parents[2] / "examples" / "ideas" / "longest_words.yaml"
).read_text(encoding="utf-8")
NOTE: Final = "Dear customer,\nyour order was late.\nWe pay the price back.\n"
REFUNDED: Final = {"_tool": "refund", "order": 1, "amount": 10.0, "note": NOTE}
CHANGED: Final = {
    "_tool": "refund",
    "order": 1,
    "amount": 25.0,
    "note": NOTE.replace("was late", "was lost"),
}
SQL: Final = {
    "_tool": "refund",
    "order": 2,
    "amount": 1.0,
    "note": "UPDATE orders\nSET paid = false -- by mistake\nWHERE id = 2",
}
SAVE: Final = {"_tool": "save", "text": "The customer of order 1 has waited for two weeks."}
"""A call of a tool that nobody has approved before."""

LARGEST: Final = {
    "_tool": "compute",
    "code": "max(orders, key=lambda order: order['total'])",
    "orders": "†state.orders",
    "_outputPath": "largest",
}


SERVERS_OF_IT: Final = {
    "servers": "modules",
    "server": "modules/own",
    "server-off": "modules/later",
    "server-failing": "modules/broken",
    "server-tool": "modules/own/tools/save",
    "server-log": "modules/own/log",
    "tools-of-servers": "ideas?show=servers",
    "tools-found": "ideas?q=e",
    "server-choice": "servers/add",
    "server-add": "servers/add?start=other",
    "server-folder": "servers/add?start=filesystem",
    "server-edit": "servers/edit?name=own",
    "server-import": "servers/import?host=cursor",
    "assistants": "assistants",
    "user": "admin/users/ann",
}
"""The pages about servers and assistants of a machine that is `equipped`."""


def equip(folder: Path) -> None:
    """Give the person of a page a configuration with servers, and Cursor with others."""
    configured(folder, SERVERS)
    cursor = folder / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    env = {"API_TOKEN": "ghp_ofapicture1234567DDDD"}
    github = {"command": "npx", "args": ["-y", "github-server"], "env": env}
    entries = {"github": github, "own": {"command": "other"}}
    cursor.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")


EARLIER: Final = (
    "Who is customer c0?",
    "Orders for the letter to c1",
    "Address of c2 for the parcel",
    "Orders that c0 asked about",
    "Who wrote the review of order 2?",
    "Check of the invoices of c2",
    "Customer of the ticket 4711",
    "Orders for the report of November",
    "Is c2 a new customer?",
    "Orders of c0 before the call",
    "Customer behind the complaint",
    "Open orders of c2",
)
"""Titles of runs that nobody looks at closely."""

CLIENTS: Final = ("cursor-vscode 1.2.0", "claude-code 2.1.0", "claude-code 2.1.0", PAGE_CLIENT)
"""Names of the clients of runs, as they are stored."""


def spread_over_a_week(store: Path) -> None:
    """Change the runs of a store as if several clients had asked for them within a week."""
    with closing(sqlite3.connect(store, timeout=30)) as database, database:
        runs = database.execute("SELECT number, status FROM runs ORDER BY number DESC").fetchall()
        minutes_ago = 0.0
        for place, (number, status) in enumerate(runs):
            # The newest runs are minutes old, and the oldest are almost a week old. A run that
            # waits is never so old that it would be suspicious.
            minutes_ago += 4 if place < 8 or status == "running" else 100 * (1 + place % 7)
            _set_back(database, number, minutes_ago * 60, CLIENTS[place % len(CLIENTS)])


def _set_back(database: sqlite3.Connection, number: int, seconds: float, client: str) -> None:
    """Let a run have begun that many seconds earlier, for a client."""
    created, updated = database.execute(
        "SELECT created, updated FROM runs WHERE number = ?", (number,)
    ).fetchone()
    earlier = [
        (datetime.fromisoformat(moment) - timedelta(seconds=seconds)).isoformat()
        for moment in (created, updated or created)
    ]
    database.execute(
        "UPDATE runs SET created = ?, updated = ?, client = ? WHERE number = ?",
        (*earlier, client, number),
    )


def _find_largest(customer: str) -> list[dict[str, str]]:
    """The calls that look a customer up, and find the largest of the customer's orders."""
    orders = {"_tool": "list_orders", "customer": customer, "_outputPath": "orders"}
    person = {"_tool": "find_customer", "id": customer, "_outputPath": "who"}
    return [orders, person, LARGEST]


def use(http: httpx.Client) -> dict[str, str]:
    """Run plans, of which one waits for a decision, and publish one. Return the paths of pages.

    The runs with the titles `EARLIER` come before the others.
    """
    for number, title in enumerate(EARLIER):
        customer = f"c{number % 3}"
        person = {"_tool": "find_customer", "id": customer}
        orders = {"_tool": "list_orders", "customer": customer}
        ask(http, *(person, orders)[: 1 + number % 2], name=title)

    for number in range(3):
        customer = f"c{number}"
        name = f"Largest order of customer {customer}"
        ask(http, *_find_largest(customer), output="†state.largest", name=name)

    # Assistants give most plans a title. The other plans are named after their tools.
    done = ask(
        http,
        *_find_largest("c0"),
        output="†state.largest",
        name="Largest order of customer c0",
    )
    failed = ask(http, {"_tool": "find_customer", "id": "c9"})
    mixed = ask(http, {"_tool": "list_orders"}, *({"_tool": "find_customer", "id": "c9"},) * 3)
    table = ask(http, *_find_largest("c2"), output="†state.orders", name="Orders of customer c2")
    written = ask(http, *_find_largest("c2"), output=REPORT, name="Report on customer c2")
    tree = ask(http, *_find_largest("c1"), output={"largest": "†state.largest", "of": "†state.who"})
    approved = ask(http, REFUNDED)
    key = key_of(http, approved)
    send(
        http,
        "/ui/approvals/decide",
        "/ui/approvals",
        which=key,
        decision="approve",
        seal=seal(http, key),
    )
    denied = ask(http, *_find_largest("c2"), REFUND, name="Refund the largest order of customer c2")
    send(
        http,
        "/ui/approvals/decide",
        "/ui/approvals",
        which=key_of(http, denied),
        decision="deny",
        reason="The customer has not sent the goods back.",
    )
    ask(http, CHANGED)
    ask(http, SQL)
    ask(http, SAVE)
    asking = ask(
        http,
        *_find_largest("c1"),
        REFUND,
        output="†results.3",
        name="Refund the largest order of customer c1",
    )
    picture = ask(http, {"_tool": "photograph", "order": 7})
    send(
        http,
        "/ui/ideas/publish",
        page=f"/ui/ideas/publish?ref={done}",
        ref=done,
        name="largest_order",
        description="Find the largest order of a customer.",
        as_proposed="yes",
        answer="auto",
    )
    write_idea(http, WRITTEN, "with_tax")
    write_idea(http, PROGRAM, "longest_words")
    whole = key_of(http, asking)
    tried = send(
        http,
        "/ui/ideas/largest_order/call",
        "/ui/playground?tool=ideas%2Flargest_order",
        **{"from": "playground", "p.customer": "c1"},
    )
    result = tried.url.query.decode()
    return {
        "home": "home",
        "runs": "runs",
        "run": f"runs/{done}",
        "run-failed": f"runs/{failed}",
        "run-errors": f"runs/{mixed}",
        "run-asking": f"runs/{asking}",
        "run-denied": f"runs/{denied}",
        "run-table": f"runs/{table}",
        "run-markdown": f"runs/{written}",
        "run-tree": f"runs/{tree}",
        "compare": f"runs/{table}/compare?with={done}",
        "call": f"runs/{done}/calls/0",
        "call-image": f"runs/{picture}/calls/0",
        "direct": "runs/direct",
        "approvals": "approvals",
        "ideas": "ideas",
        "suggestions": "ideas?show=suggested",
        "written": "ideas?show=written",
        "tool-program": "ideas/longest_words",
        "whole": f"approvals/whole?which={whole}",
        "runs-filtered": "runs?status=done&tool=refund",
        "saved": "ideas?show=saved",
        "tool": "ideas/largest_order",
        "publish": f"ideas/publish?ref={done}",
        "write": "write",
        **SERVERS_OF_IT,
        "playground": "playground",
        "playground-result": f"playground?{result}",
        "playground-plan": "playground?kind=plan",
        "playground-program": "playground?kind=program",
        "tool-made": "ideas/largest_order?made",
        "admin": "admin",
        "admin-users": "admin?show=users",
        "admin-limits": "admin?show=limits",
        "doctor": "admin/doctor",
        "missing": "nothing",
    }


EMPTY: Final = {
    f"{name}-empty": name
    for name in ("home", "runs", "approvals", "ideas", "modules", "playground")
}


def photograph(browser: Browser, url: str, pages: dict[str, str], folder: Path) -> None:
    """Photograph pages in every width and scheme, as FOLDER/NAME-WIDTH-SCHEME.png."""
    for width_name, width in WIDTHS.items():
        for scheme in SCHEMES:
            viewport: ViewportSize = {"width": width, "height": HEIGHT}
            with browser.new_context(viewport=viewport, color_scheme=scheme) as context:
                page = context.new_page()
                page.goto(link_to(url))
                for name, path in pages.items():
                    if width_name == "wide" and name not in WIDE:
                        continue
                    _photograph(page, f"{url}{path}", folder / f"{name}-{width_name}-{scheme}.png")


def _photograph(page: Page, url: str, file: Path) -> None:
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": size["width"], "height": HEIGHT})
    page.goto(url)
    page.wait_for_load_state("load")
    expect(page.locator("[data-later], [data-tools]")).to_have_count(0)
    # A window as high as the page, so that the bar at its bottom is drawn below the content.
    height = page.evaluate("() => document.documentElement.scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": max(height, HEIGHT)})
    # Whatever arrives late moves buttons, which then wait again from the next frame on.
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
    expect(page.locator("button[aria-disabled=true]")).to_have_count(0)
    page.screenshot(path=file)


def main() -> None:
    folder = Path(sys.argv[1])
    chosen = sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)

    def only(pages: dict[str, str]) -> dict[str, str]:
        return {name: path for name, path in pages.items() if not chosen or name in chosen}

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        home = Path(temporary) / "home"
        project = home / "shop"
        project.mkdir(parents=True)
        with served(home, "--project", str(project)) as url:
            photograph(browser, url, only(EMPTY), folder)
            equip(home)
            with client(url) as http:
                # A call is compared only with earlier ones under the same configuration.
                wait_until(lambda: "modules/own" in http.get("/ui/modules").text)
                pages = use(http)
                send(http, "/ui/admin/users", page="/ui/admin", name="ann", action="add")
                wait_until(lambda: "l-up" in http.get("/ui/modules/own").text)
            spread_over_a_week(home / "ideas.sqlite")
            photograph(browser, url, only(pages), folder)
        browser.close()

    print(f"{len(list(folder.glob('*.png')))} pictures are in {folder}")


if __name__ == "__main__":
    main()
