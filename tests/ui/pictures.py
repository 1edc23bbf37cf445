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
from typing import Any, Final, Literal

import httpx
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from ideabridge.server.ui.access import PAGE_CLIENT
from tests.ui.serving import CHROMIUM, ask, client, link_to, seal, send, served
from tests.ui.support_desk import CUSTOMERS
from tests.ui.test_servers import configured
from tests.ui.test_shown import key_of
from tests.ui.test_tools import write_idea
from tests.waiting import wait_until

WIDTHS: Final = {"desktop": 1280, "phone": 390, "wide": 1920}
"""The widths of windows, in pixels."""

HEIGHT: Final = 800
"""The least height of a window, in pixels."""

WIDE: Final = ("home", "servers", "runs", "run", "run-failed", "run-asking", "approvals", "publish")
"""The pages that are photographed in a wide window, too."""

SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")

REFUND: Final = {
    "_tool": "refund_order",
    "order": "†state.largest.id",
    "amount": "†state.largest.total",
}
REPORT: Final = """# Orders of Ada Brandt

- **3 orders**, the largest one an *office chair* of `320.00`
- one of them is **late**

| order | item | total |
|---|---|---|
| 4702 | Desk lamp | 49.00 |
| 4725 | Office chair | 320.00 |
| 4752 | Bookend | 18.50 |
"""
PROGRAM: Final = (
    Path(__file__).parents[2] / "examples" / "ideas" / "longest_words.yaml"
).read_text(encoding="utf-8")
WITH_TAX: Final = """\
name: with_tax
description: Add the value added tax to a price
context:
  - type: input
    input: {net: 100}
solution:
  calls:
    - {_tool: compute, code: net * 1.19, net: †input.net, _outputPath: gross}
  output: †state.gross
"""
STEPS: Final = """\
name: refund_largest
description: Refund the largest order of a customer
context:
  - type: input
    input: {customer: C-117}
solution:
  calls:
    - {_tool: list_orders, customer: †input.customer, _outputPath: orders}
    - _tool: compute
      code: "max(orders, key=lambda order: order['total'])"
      orders: †state.orders
      _outputPath: largest
    - {_tool: refund_order, order: †state.largest.id, amount: 10, note: We are sorry.}
  output: †results.2
"""
"""A tool with a value from everywhere: entered, asked for, and from an earlier step."""

NOTE: Final = "Dear Jonas,\nyour shelf was late.\nWe pay a part of the price back.\n"
REFUNDED: Final = {"_tool": "refund_order", "order": 4711, "amount": 20.0, "note": NOTE}
CHANGED: Final = {
    "_tool": "refund_order",
    "order": 4711,
    "amount": 45.0,
    "note": NOTE.replace("was late", "was damaged"),
}
MAIL: Final = {
    "_tool": "send_mail",
    "_module": "mail",
    "to": "mira.olsen@example.org",
    "subject": "Your wool rug",
    "text": "Hello Mira,\n\nthe rug that you sent back has arrived. We refund it today.",
}
SQL: Final = {
    "_tool": "add_note",
    "_module": "notes",
    "title": "Orders to correct",
    "text": "UPDATE orders\nSET paid = false -- by mistake\nWHERE id = 4733",
}

LARGEST: Final = {
    "_tool": "compute",
    "code": "max(orders, key=lambda order: order['total'])",
    "orders": "†state.orders",
    "_outputPath": "largest",
}


OFFICE: Final = ("calendar", "mail", "notes")
"""The servers that work."""

SERVERS_OF_IT: Final = {
    "servers": "modules",
    "server": "modules/notes",
    "server-off": "modules/filesystem",
    "server-failing": "modules/github",
    "server-tool": "modules/notes/tools/add_note",
    "server-tool-allow": "modules/notes/tools/add_note?allow",
    "server-log": "modules/notes/log",
    "tools-of-servers": "ideas?show=servers",
    "tools-found": "ideas?q=e",
    "server-choice": "servers/add",
    "server-add": "servers/add?start=other",
    "server-folder": "servers/add?start=filesystem",
    "server-edit": "servers/edit?name=notes",
    "server-import": "servers/import?host=cursor",
    "assistants": "assistants",
    "user": "admin/users/ann",
}
"""The pages about servers and assistants of a machine that is `equipped`."""


def equip(folder: Path) -> None:
    """Give the person of a page a configuration with servers, and Cursor with others."""
    office = str(Path(__file__).with_name("office_servers.py"))
    servers: dict[str, Any] = {
        name: {"command": sys.executable, "args": [office, name], "start": "eager"}
        for name in OFFICE
    }
    env = {"API_TOKEN": "ghp_ofapicture1234567DDDD"}
    github = {"command": "github-mcp-server", "args": ["stdio"], "env": env}
    files = ["-y", "@modelcontextprotocol/server-filesystem", "/home/ada/documents"]
    filesystem = {"command": "npx", "args": files, "disabled": True}
    configured(folder, {**servers, "filesystem": filesystem, "github": github})
    cursor = folder / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    entries = {"linear": {"url": "https://mcp.linear.app/mcp"}, "notes": {"command": "other"}}
    cursor.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")


EARLIER: Final = (
    "Who is customer C-104?",
    "Orders for the letter to Jonas Weber",
    "Address of Mira Olsen for the parcel",
    "Orders that Ada Brandt asked about",
    "Who wrote the review of the wool rug?",
    "Check the invoices of Mira Olsen",
    "Customer of order 4711",
    "Orders for the report of November",
    "Is Mira Olsen a new customer?",
    "Orders of Ada Brandt before the call",
    "Customer behind the complaint",
    "Open orders of Mira Olsen",
)
"""Titles of runs that nobody looks at closely."""

CLIENTS: Final = ("cursor-vscode 1.2.0", "claude-code 2.1.0", "claude-code 2.1.0", PAGE_CLIENT)
"""Names of the clients of runs, as they are stored."""


def spread_over_a_week(store: Path) -> None:
    """Change the runs of a store as if several clients had asked for them within a week.

    A server keeps journals in memory, so it must not be open.
    """
    with closing(sqlite3.connect(store, timeout=30)) as database, database:
        runs = database.execute("SELECT number FROM runs ORDER BY number DESC").fetchall()
        minutes_ago = 0.0
        for place, (number,) in enumerate(runs):
            # The newest runs, which wait, are minutes old, and the oldest are almost a week old.
            minutes_ago += 4 if place < 8 else 100 * (1 + place % 7)
            _set_back(database, number, minutes_ago * 60, CLIENTS[place % len(CLIENTS)])

        # A tool is made soon after the run that it comes from. Those without one are older.
        tools = database.execute(
            "SELECT publications.number, publications.time, runs.updated FROM publications "
            "LEFT JOIN ideas ON ideas.number = publications.idea "
            "LEFT JOIN runs ON runs.id = ideas.run"
        ).fetchall()
        for number, published, origin in tools:
            moment = _earlier(published, timedelta(days=5 * number + 2).total_seconds())
            if origin is not None:
                moment = _earlier(origin, -timedelta(minutes=10).total_seconds())
            database.execute("UPDATE publications SET time = ? WHERE number = ?", (moment, number))


def _set_back(database: sqlite3.Connection, number: int, seconds: float, client: str) -> None:
    """Let a run, with its events and saved steps, be that many seconds older, and of a client."""
    run_id, created, updated = database.execute(
        "SELECT id, created, updated FROM runs WHERE number = ?", (number,)
    ).fetchone()
    database.execute(
        "UPDATE runs SET created = ?, updated = ?, client = ? WHERE number = ?",
        (_earlier(created, seconds), _earlier(updated or created, seconds), client, number),
    )
    database.execute("UPDATE events SET at = at - ? WHERE id >> 32 = ?", (seconds, number))
    # Some events also say themselves when they happened.
    database.execute(
        "UPDATE events SET body = json_set(body, '$.at', json_extract(body, '$.at') - ?) "
        "WHERE id >> 32 = ? AND json_extract(body, '$.at') IS NOT NULL",
        (seconds, number),
    )
    steps = database.execute("SELECT number, time FROM ideas WHERE run = ?", (run_id,)).fetchall()
    for step, saved in steps:
        database.execute(
            "UPDATE ideas SET meta = json_set(meta, '$.time', ?) WHERE number = ?",
            (_earlier(saved, seconds), step),
        )


def _earlier(moment: str, seconds: float) -> str:
    """Return the time that is some seconds before a time, both as the store writes them."""
    return (datetime.fromisoformat(moment) - timedelta(seconds=seconds)).isoformat()


def _find_largest(customer: str) -> list[dict[str, str]]:
    """The calls that look a customer up, and find the largest of the customer's orders."""
    orders = {"_tool": "list_orders", "customer": customer, "_outputPath": "orders"}
    person = {"_tool": "find_customer", "number": customer, "_outputPath": "who"}
    return [orders, person, LARGEST]


def _prepare_the_day() -> list[dict[str, str]]:
    """The calls that collect what a person reads in the morning."""
    return [
        {"_tool": "list_events", "_module": "calendar", "_outputPath": "events"},
        {"_tool": "search_mail", "_module": "mail", "words": "order", "_outputPath": "mail"},
        {"_tool": "list_notes", "_module": "notes", "_outputPath": "notes"},
    ]


MORNING: Final = {
    "events": "†state.events",
    "mail": "†state.mail",
    "notes": "†state.notes",
}


def _publish(http: httpx.Client, run_id: str, name: str, description: str) -> None:
    send(
        http,
        "/ui/ideas/publish",
        page=f"/ui/ideas/publish?ref={run_id}",
        ref=run_id,
        name=name,
        description=description,
        as_proposed="yes",
        answer="auto",
    )


def use(http: httpx.Client) -> dict[str, str]:
    """Run plans, of which some wait for a decision, and publish some. Return the paths of pages.

    The runs with the titles `EARLIER` come before the others.
    """
    for number, title in enumerate(EARLIER):
        customer = CUSTOMERS[number % 3].id
        person = {"_tool": "find_customer", "number": customer}
        orders = {"_tool": "list_orders", "customer": customer}
        ask(http, *(person, orders)[: 1 + number % 2], name=title)

    for person in CUSTOMERS:
        name = f"Largest order of {person.name}"
        ask(http, *_find_largest(person.id), output="†state.largest", name=name)

    morning = ask(http, *_prepare_the_day(), output=MORNING, name="What is on today?")
    free = {"_tool": "find_free_time", "_module": "calendar", "day": "tomorrow", "minutes": 45}
    free_time = ask(http, free, output="†results.0", name="When am I free tomorrow?")
    # Assistants give most plans a title. The other plans are named after their tools.
    done = ask(
        http,
        *_find_largest("C-104"),
        output="†state.largest",
        name="Largest order of Ada Brandt",
    )
    failed = ask(http, {"_tool": "find_customer", "number": "C-900"})
    unknown = {"_tool": "find_customer", "number": "C-900"}
    mixed = ask(http, {"_tool": "list_orders"}, unknown, unknown, unknown)
    table = ask(http, *_find_largest("C-131"), output="†state.orders", name="Orders of Mira Olsen")
    written = ask(http, *_find_largest("C-104"), output=REPORT, name="Report on Ada Brandt")
    tree = ask(
        http,
        *_find_largest("C-117"),
        output={"largest": "†state.largest", "customer": "†state.who"},
        name="Jonas Weber and his largest order",
    )
    approved = ask(http, REFUNDED, name="Refund a part of order 4711")
    key = key_of(http, approved)
    send(
        http,
        "/ui/approvals/decide",
        "/ui/approvals",
        which=key,
        decision="approve",
        seal=seal(http, key),
    )
    denied = ask(
        http, *_find_largest("C-131"), REFUND, name="Refund the largest order of Mira Olsen"
    )
    send(
        http,
        "/ui/approvals/decide",
        "/ui/approvals",
        which=key_of(http, denied),
        decision="deny",
        reason="She has not sent the rug back yet.",
    )
    picture = ask(http, {"_tool": "photograph_order", "order": 4740}, name="Photo of order 4740")
    _publish(http, done, "largest_order", "Find the largest order of a customer.")
    _publish(http, morning, "prepare_my_day", "Collect the events, mail and notes of today.")
    _publish(http, free_time, "free_time", "Find free time in the calendar.")
    _publish(http, written, "customer_report", "Write a report on the orders of a customer.")
    write_idea(http, WITH_TAX, "with_tax")
    write_idea(http, PROGRAM, "longest_words")
    write_idea(http, STEPS, "refund_largest")
    for customer in ("C-131", "C-104", "C-117"):
        tried = send(
            http,
            "/ui/ideas/largest_order/call",
            "/ui/playground?tool=ideas%2Flargest_order",
            **{"from": "playground", "p.customer": customer},
        )
    for net in ("100", "250"):
        send(http, "/ui/ideas/with_tax/call", "/ui/ideas/with_tax", **{"p.net": net})
    send(http, "/ui/ideas/prepare_my_day/call", "/ui/ideas/prepare_my_day")
    ask(http, CHANGED, name="Refund more of order 4711")
    ask(http, SQL)
    ask(http, MAIL, name="Tell Mira Olsen that her rug arrived")
    asking = ask(
        http,
        *_find_largest("C-117"),
        REFUND,
        output="†results.3",
        name="Refund the largest order of Jonas Weber",
    )
    whole = key_of(http, asking)
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
        "approvals-past": "approvals/past",
        "ideas": "ideas",
        "suggestions": "ideas?show=suggested",
        "written": "ideas?show=written",
        "tool-program": "ideas/longest_words",
        "whole": f"approvals/whole?which={whole}",
        "runs-filtered": "runs?status=done&tool=refund_order",
        "saved": "ideas?show=saved",
        "tool": "ideas/largest_order",
        "publish": f"ideas/publish?ref={table}",
        "write": "write",
        "write-text": "write?example=program",
        "write-example": "write?example=calls",
        "write-steps": "write?tool=refund_largest",
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


def _wait_for_servers(http: httpx.Client) -> None:
    """Wait until the servers that work are connected."""
    for server in OFFICE:
        wait_until(lambda page=f"/ui/modules/{server}": "l-up" in http.get(page).text)


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
        tools = Path(__file__).with_name("support_desk.py")
        with served(home, "--project", str(project), tools=tools) as url:
            photograph(browser, url, only(EMPTY), folder)
            equip(home)
            with client(url) as http:
                # A call is compared only with earlier ones under the same configuration.
                _wait_for_servers(http)
                pages = use(http)
                send(http, "/ui/admin/users", page="/ui/admin", name="ann", action="add")
                for name in ("ben", "carla"):
                    send(http, "/ui/admin/users", page="/ui/admin", name=name, action="add")

        spread_over_a_week(home / "ideas.sqlite")
        with served(home, "--project", str(project), tools=tools) as url:
            with client(url) as http:
                _wait_for_servers(http)
            photograph(browser, url, only(pages), folder)
        browser.close()

    print(f"{len(list(folder.glob('*.png')))} pictures are in {folder}")


if __name__ == "__main__":
    main()
