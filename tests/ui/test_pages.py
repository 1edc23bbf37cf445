"""Every page, as people see it: in light and dark, from 320 pixels on, with a keyboard, and for
a screen reader.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal

import anyio
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.runs.people import Decision
from ideabridge.tools import Toolbox, tool
from tests import npm
from tests.asking import ASKS
from tests.ui import shop
from tests.ui.serving import ask, client, link_to, served
from tests.ui.test_servers import OWN, configured
from tests.waiting import until

AXE: Final = npm.FOLDER / "axe-core" / "axe.min.js"


@tool(read_only=True)
async def ponder() -> None:
    """Never end. The server of the page does not have this tool."""
    await anyio.sleep_forever()


async def _fill(path: Path) -> str:
    """Make runs of every kind; returns the id of one with several calls."""
    tools = Toolbox(
        shop.list_orders, shop.find_customer, shop.refund, shop.photograph, shop.read_review
    )
    async with Bridge(ASKS, toolbox=tools, store=path) as bridge:
        for customer in ("c1", "c2"):
            run = await bridge.run_plan(
                calls=[
                    {
                        "_tool": "list_orders",
                        "customer": "†input.customer",
                        "_outputPath": "orders",
                    },
                    {
                        "_tool": "find_customer",
                        "_each": "†state.orders",
                        "id": "†item.customer",
                        "_outputPath": "who",
                    },
                    {"_tool": "find_customer", "id": "c9", "_outputPath": "other || missing"},
                    {"_tool": "refund", "order": "†state.orders.0.id", "amount": 5.0, "_id": "pay"},
                    {"_tool": "list_orders", "_after": ["pay"]},
                ],
                input={"customer": customer},
                output={"who": "†state.who"},
                title=f"Refund for {customer}",
            )
            await run.wait()
            [asked] = run.pending()
            if customer == "c1":
                await bridge.decide(run, asked.approval, Decision("approve", reason="as agreed"))
                await run.wait()
                await bridge.publish(run.id, "refund_first")
                await bridge.publish(
                    run.id, "refund_first", description="Refund the first order of a customer."
                )

        failed = await bridge.run_plan(
            calls=[{"_tool": "find_customer", "id": "c9"}], output="†results.0"
        )
        await failed.wait()
        program = await bridge.run_program(
            "from tools import list_orders, read_review\n"
            "orders = await list_orders()\nprint('orders:', "
            "len(orders))\nawait read_review(order=orders[0]['id'])"
        )
        await program.wait()
        await bridge.solve("Which customer has the most orders?")

    async with Bridge(
        Configuration(), toolbox=Toolbox(shop.list_orders), store=path, role="front"
    ) as bridge:
        await (
            await bridge.run_plan(calls=[{"_tool": "list_orders"}], title="Left to a worker")
        ).wait(0)

    async with Bridge(
        Configuration(), toolbox=Toolbox(shop.list_orders, ponder), store=path
    ) as bridge:
        calls = [{"_tool": "list_orders"}, {"_tool": "ponder"}]
        left = await bridge.run_plan(calls=calls, title="Left by its process")
        await left.wait(0)
        await until(
            lambda: any(
                bar.get("event") == "call_started" for _, bar in bridge.store.runs.events(left.id)
            )
        )

    return run.id


@pytest.fixture(scope="module")
def shop_site(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> Generator[tuple[str, str]]:
    """(the URL of a page over runs of every kind, the id of one that waits)."""
    folder = tmp_path_factory.mktemp("shop")
    with ThreadPoolExecutor(1) as thread:
        # Use another thread, because Playwright's event loop occupies this one.
        run_id = thread.submit(anyio.run, _fill, folder / "ideas.sqlite").result()
    configured(folder, {"own": OWN, "later": {**OWN, "disabled": True}})
    with served(folder) as url:
        yield url, run_id


def pages(run_id: str) -> list[str]:
    """The pages that the navigation and the lists lead to."""
    return [
        "runs",
        "runs?status=done&tool=refund",
        "runs/direct",
        f"runs/{run_id}",
        f"runs/{run_id}?at=4",
        f"runs/{run_id}/calls/1",
        f"runs/{run_id}/calls/3",
        "approvals",
        "approvals/past",
        "ideas",
        "ideas?show=saved",
        "ideas?show=suggested",
        "ideas?show=built-in",
        "ideas?show=files",
        "ideas?q=refund",
        "ideas/refund_first",
        "ideas/refund_first/diff?old=1&new=2",
        f"ideas/publish?ref={run_id}&name=refund_first",
        "modules",
        "modules/tools",
        "modules/tools/tools/find_customer",
        "modules/own",
        "modules/own/log",
        "modules/own/tools/save",
        "modules/later",
        "servers/add",
        "servers/add?start=filesystem",
        "servers/add?start=other",
        "servers/import",
        "assistants",
        "home",
        "playground",
        "playground?kind=plan",
        "playground?tool=modules/tools/tools/compute",
        "playground?kind=program",
        "playground?kind=context",
        "write",
        "write?example=calls",
        "admin",
        "admin/doctor",
        "runs/run_0000",
    ]


EMPTY: Final = (
    "home",
    "runs",
    "runs?tool=nothing",
    "runs/direct",
    "approvals",
    "ideas",
    "ideas?show=saved",
    "ideas?show=suggested",
    "ideas?show=written",
    "ideas?q=nothing",
    "modules",
    "modules/tools?q=nothing",
    "modules/tools/tools/sleep",
    "servers/import",
    "assistants",
    "admin",
)
"""Pages that look different as long as there is nothing to show."""


SCHEMES: Final[dict[Literal["light", "dark"], str]] = {
    "light": "resultTypes: ['violations']",
    "dark": "resultTypes: ['violations'], runOnly: ['color-contrast']",
}
"""The options with which axe checks each scheme. The two differ in their colours alone."""


def faults_of(page: Page, paths: list[str], url: str) -> list[str]:
    """What axe finds on pages in either scheme, with everything unfolded."""
    source = AXE.read_text(encoding="utf-8")
    faults: list[str] = []
    for path in paths:
        page.goto(url + path)
        expect(page.locator("[data-later], [data-tools]")).to_have_count(0)
        page.evaluate(source)
        for scheme, options in SCHEMES.items():
            page.emulate_media(color_scheme=scheme)
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            # Axe does not check buttons that cannot be clicked yet.
            expect(page.locator("button[aria-disabled=true]")).to_have_count(0)
            # Leave what passes in the browser, because it is a thousand times as long as what
            # fails.
            script = f"axe.run({{{options}}}).then((results) => results.violations)"
            for violation in page.evaluate(script):
                for node in violation["nodes"][:3]:
                    html = node["html"][:120]
                    faults.append(f"{path} ({scheme}): {violation['id']}: {html}")

    return faults


@npm.needs("axe-core")
def test_axe_finds_nothing(browser: Browser, shop_site: tuple[str, str]) -> None:
    url, run_id = shop_site
    # Bypass the policy of the page, which forbids foreign scripts, so that Axe can be injected.
    with browser.new_context(bypass_csp=True, viewport={"width": 1100, "height": 900}) as context:
        page = context.new_page()
        page.goto(link_to(url))
        assert faults_of(page, pages(run_id), url) == []


@npm.needs("axe-core")
def test_axe_finds_nothing_where_there_is_nothing(browser: Browser, site: str) -> None:
    with browser.new_context(bypass_csp=True) as context:
        page = context.new_page()
        assert faults_of(page, ["sign-in"], site) == []
        page.goto(link_to(site))
        assert faults_of(page, list(EMPTY), site) == []


FAILING: Final = (
    "home",
    "modules",
    "modules/broken",
    "modules/broken/log",
    "admin",
    "admin/doctor",
)
"""Pages that look different if a server fails."""


@npm.needs("axe-core")
def test_axe_finds_nothing_where_a_server_fails(browser: Browser, tmp_path: Path) -> None:
    # The command contains no place where a line can be broken, so it must be broken anywhere.
    configured(tmp_path, {"own": OWN, "broken": {"command": f"/nowhere/{'x' * 200}"}})
    with (
        served(tmp_path) as url,
        browser.new_context(bypass_csp=True, viewport={"width": 320, "height": 700}) as context,
    ):
        page = context.new_page()
        page.goto(link_to(url))
        with client(url) as http:
            # Before the first run, Home says how to begin.
            ask(http, {"_tool": "list_orders"})
        page.goto(f"{url}modules")
        expect(page.locator(".l-failing")).to_be_visible()
        assert faults_of(page, list(FAILING), url) == []
        widths: dict[str, int] = {}
        for path in FAILING:
            page.goto(url + path)
            widths[path] = page.evaluate("document.documentElement.scrollWidth")
        assert {path: width for path, width in widths.items() if width > 320} == {}


@pytest.mark.parametrize(
    ("path", "way"),
    [
        ("nothing", "home"),
        ("runs/run_0000", "runs"),
        ("runs/run_0000/calls/1", "runs"),
        ("ideas/nothing", "ideas"),
        ("modules/nothing", "modules"),
    ],
)
def test_what_does_not_exist_leads_to_what_does(
    page: Page, shop_site: tuple[str, str], path: str, way: str
) -> None:
    url, _ = shop_site
    answer = page.goto(url + path)
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", level=1)).to_contain_text("ot found")
    # The page names what was requested.
    expect(page.locator("#main .why")).to_contain_text(path.split("/")[1 if "/" in path else 0])
    expect(page.get_by_role("searchbox", name="Search titles of runs")).to_be_visible()
    ways = page.locator("#main").get_by_role("link")
    expect(ways.last).to_have_text("Home")
    ways.first.click()
    expect(page).to_have_url(re.compile(rf"/ui/{way}\b"))


def test_no_page_is_wider_than_a_small_phone(browser: Browser, shop_site: tuple[str, str]) -> None:
    url, run_id = shop_site
    with browser.new_context(viewport={"width": 320, "height": 700}) as context:
        page = context.new_page()
        page.goto(link_to(url))
        widths: dict[str, int] = {}
        for path in pages(run_id):
            page.goto(url + path)
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            widths[path] = page.evaluate("document.documentElement.scrollWidth")
            # A status is a word or two on a single line.
            heights = page.evaluate(
                "[...document.querySelectorAll('.status')].map((one) => one.offsetHeight)"
            )
            assert max(heights, default=0) < 30, path
        assert {path: width for path, width in widths.items() if width > 320} == {}


def test_the_head_leads_up_and_folds_its_actions_on_a_phone(
    page: Page, shop_site: tuple[str, str]
) -> None:
    url, _ = shop_site
    page.goto(f"{url}modules/own")
    above = page.get_by_role("navigation", name="Page above")
    expect(above.get_by_role("link")).to_have_text(["Servers"])
    log = page.get_by_role("link", name="Log", exact=True)
    expect(log).to_be_visible()
    expect(page.get_by_role("button", name="Remove")).to_be_hidden()
    more = page.get_by_role("main").get_by_text("More", exact=True)
    edit = page.get_by_role("link", name="Edit", exact=True)
    # The main action comes after the others, and the menu after it.
    places = [_left(one) for one in (log, edit, more)]
    assert places == sorted(places)

    page.set_viewport_size({"width": 390, "height": 800})
    expect(log).to_be_hidden()
    assert _left(edit) < _left(more)
    more.click()
    expect(log).to_be_visible()
    expect(page.get_by_role("button", name="Remove")).to_be_visible()


def _left(one: Locator) -> float:
    box = one.bounding_box()
    assert box is not None
    return box["x"]


def test_rooms_are_beside_the_content_and_the_rare_ones_in_a_menu_of_a_bar(
    page: Page, shop_site: tuple[str, str]
) -> None:
    url, _ = shop_site
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{url}home")
    menu = page.get_by_role("navigation", name="Pages")
    rooms = ["Home", "Approvals", "Runs", "Tools", "Servers"]
    further = ["Assistants", "Playground", "Admin", "Documentation"]
    expect(menu.get_by_role("link")).to_have_text(
        [re.compile(f"^{room}") for room in [*rooms, *further]]
    )
    beside = menu.bounding_box()
    content = page.locator("#main").bounding_box()
    assert beside is not None
    assert content is not None
    assert beside["x"] + beside["width"] <= content["x"]
    expect(menu.get_by_role("button", name="Sign out")).to_be_in_viewport()

    page.set_viewport_size({"width": 1000, "height": 800})
    expect(menu.get_by_role("link")).to_have_text([re.compile(f"^{room}") for room in rooms])
    menu.get_by_text("More", exact=True).click()
    expect(menu.locator("details").get_by_role("link")).to_have_text(further)
    menu.get_by_role("link", name="Playground").click()
    current = menu.locator("[aria-current]")
    expect(current).to_have_text("Playground")
    expect(current).to_be_hidden()


@pytest.mark.parametrize("has_scripts", [True, False])
def test_titles_are_searched_together_with_the_other_filters(
    browser: Browser, shop_site: tuple[str, str], *, has_scripts: bool
) -> None:
    url, _ = shop_site
    with browser.new_context(java_script_enabled=has_scripts) as context:
        page = context.new_page()
        page.goto(link_to(url))
        page.goto(f"{url}runs")
        search = page.get_by_role("searchbox", name="Search titles")
        search.fill("refund for")
        search.press("Enter")
        expect(page.locator("#runs tbody tr")).to_have_count(2)
        expect(search).to_have_value("refund for")
        # The other filters stay folded until one of them is set.
        expect(page.get_by_label("Status")).not_to_be_visible()
        page.get_by_text("Filters", exact=True).click()
        page.get_by_label("Status").select_option("done")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("#runs tbody tr")).to_have_count(1)
        expect(page.get_by_label("Status")).to_be_visible()


def test_a_run_that_waits_for_a_worker_says_so(page: Page, shop_site: tuple[str, str]) -> None:
    url, _ = shop_site
    page.goto(f"{url}runs")
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("Status").select_option("queued")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Left to a worker").click()
    expect(page.locator("#head .status")).to_have_text("queued")
    expect(page.locator("#head")).to_contain_text("Waiting for a worker")
    expect(page.get_by_role("button", name="Cancel run")).to_be_visible()


def test_a_run_whose_process_has_gone_can_be_resumed(
    page: Page, shop_site: tuple[str, str]
) -> None:
    url, _ = shop_site
    page.goto(f"{url}runs?status=interrupted")
    page.get_by_role("link", name="Left by its process").click()
    expect(page.locator("#head .status")).to_have_text("interrupted")
    # Nothing is running in it any more, so its bars end with its journal.
    expect(page.locator("#timeline .status").last).to_have_text("interrupted")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "its tool 'list_orders' belongs to a different project"
    )


def test_the_doctor_checks_the_running_server(page: Page, shop_site: tuple[str, str]) -> None:
    url, _ = shop_site
    page.goto(f"{url}admin")
    page.get_by_role("link", name="Run the checks").click()
    expect(page.get_by_role("heading", name="Nothing is wrong")).to_be_visible()
    page.get_by_text("other checks are fine").click()
    for topic, text in (
        ("Own tools", "list_orders"),
        ("Data", "1 queued"),
    ):
        expect(
            page.get_by_role("row").filter(
                has=page.get_by_role("rowheader", name=topic, exact=True)
            )
        ).to_contain_text(text)

    page.get_by_text(re.compile(r"^\d+ other assistants$")).click()
    others = page.get_by_role("listitem").filter(has_text="other assistants")
    expect(others.get_by_text("Cursor")).to_be_visible()


def test_a_keyboard_reaches_the_content_first_and_decides(
    page: Page, shop_site: tuple[str, str]
) -> None:
    url, run_id = shop_site
    page.goto(f"{url}runs/{run_id}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    focused: list[str] = []
    for _ in range(12):
        page.keyboard.press("Tab")
        focused.append(page.evaluate("document.activeElement.textContent.trim()"))

    assert "Approve" in focused
    assert "Deny" in focused


def test_every_page_works_without_scripts(browser: Browser, shop_site: tuple[str, str]) -> None:
    url, run_id = shop_site
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(link_to(url))
        for path in pages(run_id)[:-1]:
            answer = page.goto(url + path)
            assert answer is not None
            assert answer.status == 200, path
        page.goto(f"{url}runs/{run_id}?at=3")
        expect(page.locator("#head .status")).to_have_text("replayed")
        page.goto(f"{url}playground?kind=plan")
        page.get_by_label("The plan or program").fill(
            '{"calls": [{"_tool": "list_orders"}], "output": "†results.0"}'
        )
        page.get_by_role("button", name="Run", exact=True).click()
        assert re.search(r"/runs/run_[0-9a-f]+$", page.url)


def test_the_tool_page_tells_versions_and_verifies(page: Page, shop_site: tuple[str, str]) -> None:
    url, _ = shop_site
    page.goto(f"{url}ideas/refund_first")
    expect(page.locator(".facts")).to_contain_text("version 2")
    page.get_by_role("link", name="1 difference").click()
    expect(page.get_by_label("Differences")).to_contain_text("description")
    page.go_back()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="1", exact=True))
    row.get_by_role("button", name="Pin").click()
    expect(page.get_by_text("refund_first means version 1, pinned.")).to_be_visible()
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_text("refund_first means version 2.")).to_be_visible()
    page.get_by_role("main").get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("status")).to_contain_text("holds")


def test_a_test_call_of_a_tool_is_a_run(page: Page, shop_site: tuple[str, str]) -> None:
    url, _ = shop_site
    page.goto(f"{url}modules/tools")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="Find customer"))
    expect(row).to_contain_text("only reads")
    page.get_by_role("link", name="Find customer").click()
    page.locator("input[name='p.id']").fill("c4")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_label("The output of the run")).to_contain_text("Customer c4")
