"""Home: how to begin, then what waits, what ran, and the last week."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from ideabridge.bridge.store.daily_use import DayOfUse
from ideabridge.server.ui.home import charts_of
from tests.ui.serving import ask, client, send, served
from tests.ui.test_apps import McpClient
from tests.ui.test_outputs import ended
from tests.ui.test_shown import key_of
from tests.ui.test_tools import WRITTEN, write_idea
from tests.waiting import wait_until

ORDERS = {"_tool": "list_orders", "customer": "c1", "_outputPath": "orders"}
REFUND = {"_tool": "refund", "order": 1, "amount": 2.5}


def test_an_empty_home_says_how_to_begin(http: httpx.Client) -> None:
    home = http.get("/ui/").text
    assert "Welcome: three steps to begin" in home
    assert "ideabridge setup" in home
    assert "Claude Code" in home
    assert "Choose an assistant" in home
    assert "/ui/playground" in home
    # No assistant on this machine has servers to import.
    assert main_buttons(home) == ["Add a server"]


def test_the_first_step_imports_what_an_assistant_has(tmp_path: Path) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text('{"mcpServers": {"notes": {"command": "notes"}}}', encoding="utf-8")
    project = tmp_path / "project"
    project.mkdir()
    with served(tmp_path, "--project", str(project)) as url, client(url) as http:
        home = http.get("/ui/home").text
        assert main_buttons(home) == ["Import from an assistant"]
        assert "Connect Cursor" in home

        send(http, "/ui/assistants/write", "/ui/home", host="cursor")
        assert home_steps(http.get("/ui/home").text) == [False, True, False]


def main_buttons(home: str) -> list[str]:
    """The words of the filled buttons among the steps to begin."""
    steps = home.partition('<ol class="steps">')[2].partition("</ol>")[0]
    filled = re.findall(r'<(?:a|button)[^>]* class="[^"]*good"[^>]*>(.*?)</(?:a|button)>', steps)
    return [re.sub("<[^>]+>", "", button) for button in filled]


def home_steps(home: str) -> list[bool]:
    """Whether each of the steps to begin is done."""
    return ["done" in kind for kind in re.findall('<span class="(ordinal[^"]*)"', home)]


def test_home_shows_what_waits_and_what_ran(page: Page, site: str) -> None:
    with client(site) as http:
        done = ask(http, ORDERS)
        asking = ask(http, ORDERS, REFUND)

    page.goto(f"{site}home")
    waiting = page.locator("#waits").get_by_role("link")
    expect(waiting.first).to_have_accessible_name("Review refund order 1, amount 2.50")
    # Three lines: the tool, the values, and who asked when.
    expect(page.locator("#waits .act")).to_have_text("refund")
    expect(page.locator("#waits .ask-values")).to_have_text("order 1, amount 2.50")
    expect(page.locator("#waits .sub")).to_have_text(re.compile("^you asked "))
    expect(waiting.first).to_have_attribute("href", re.compile(f"/ui/approvals#q-{asking}"))
    # The runs that wait are among the latest ones.
    latest = page.locator("#running").get_by_role("link")
    expect(latest).to_have_count(3)
    expect(latest.first).to_have_attribute("href", f"/ui/runs/{asking}")
    expect(latest.nth(1)).to_have_attribute("href", f"/ui/runs/{done}")
    expect(latest.nth(2)).to_have_text("All runs")
    expect(page.locator("#running .status").first).to_have_text("needs approval")
    expect(page.locator("#running .asking-tile").first).to_have_attribute("title", "you")

    # All decisions are equal, so no button is filled.
    expect(page.locator("#waits .button.good")).to_have_count(0)
    expect(page.locator("#waits")).to_have_class("card asking")
    expect(page.locator("#running")).to_have_class("home-part")

    # The whole row leads to the decision.
    page.locator("#waits li").first.click()
    expect(page.locator(f"article[id^='q-{asking}']")).to_be_in_viewport()
    page.goto(f"{site}home")

    # The title and the icon of the tab show that something is waiting.
    expect(page).to_have_title(re.compile(r"^\(1\) Home"))
    icon = page.locator("link[rel=icon]")
    expect(icon).to_have_attribute("href", "/ui/static/icon-waiting.svg")

    expect(page.locator("#week figure").first).to_contain_text("2 runs")
    used = page.locator("#most-used li").filter(has_text="List orders")
    expect(used).to_contain_text("use")


def test_calls_of_one_tool_are_told_apart_by_the_values_in_which_they_differ(
    http: httpx.Client,
) -> None:
    note = "same"
    for amount in (2.5, 3.5):
        key_of(http, ask(http, {**REFUND, "amount": amount, "note": note}))

    waits = http.get("/ui/home").text.partition('id="waits"')[2].partition("</section>")[0]
    lines = re.findall(r'<span class="act" id="call-\d">(.*?)</li>', waits, re.DOTALL)
    names = [re.findall(r'class="leading">(\w+)', line) for line in lines]
    assert names == [["amount", "order", "note"]] * 2


def test_home_lists_few_of_the_latest_runs(http: httpx.Client) -> None:
    for number in range(9):
        ask(http, ORDERS, name=f"Orders, part {number}")

    wait_until(lambda: "Latest runs" in http.get("/ui/home").text)
    runs = http.get("/ui/home").text.partition('id="running"')[2].partition("</section>")[0]
    assert re.findall(r"Orders, part (\d)", runs) == list("87654321")


def test_home_names_the_assistants_that_called(page: Page, site: str) -> None:
    cursor = McpClient(site, {}, "cursor-vscode")
    cursor.call("run_plan", calls=[ORDERS])
    cursor.close()
    page.goto(f"{site}home")
    card = page.locator("#callers")
    expect(card.get_by_role("listitem")).to_have_text(
        re.compile(r"^\s*Cursor\s+called (just now|[^·]* ago)\s*$")
    )
    expect(card.get_by_role("link", name="Connect an assistant")).to_be_visible()
    card.get_by_role("link", name="Cursor").click()
    expect(page.locator("#runs tbody tr")).to_have_count(1)


def test_an_open_first_page_becomes_home_with_what_waits_first(page: Page, site: str) -> None:
    page.goto(f"{site}home")
    expect(page.locator(".steps")).to_be_visible()
    with client(site) as http:
        ask(http, REFUND)

    expect(page.locator("#waits")).to_contain_text("refund")
    expect(page.locator(".steps")).to_have_count(0)
    first = page.locator("#main section").first
    expect(first).to_have_id("waits")
    # It is in the columns of Home, as if the page had just been opened.
    expect(page.locator(".home #waits")).to_be_visible()
    expect(page.locator("#running .status")).to_have_text("needs approval")
    expect(page.locator("#week figcaption").first).to_have_text("1 run ")
    expect(page.locator("#suggested")).not_to_have_attribute("data-later", re.compile("."))


def test_ages_grow_while_a_page_is_open(page: Page, site: str) -> None:
    with client(site) as http:
        ask(http, ORDERS, REFUND)

    page.clock.install()
    for path, shown in (
        ("home", "#waits time"),
        ("approvals", ".card .asked"),
        ("runs", "#runs td.began"),
    ):
        page.goto(f"{site}{path}")
        expect(page.locator(shown)).to_contain_text(re.compile("just now|s ago"))
        page.clock.fast_forward("05:00")
        expect(page.locator(shown)).to_contain_text("5 min ago")
        page.clock.fast_forward("48:00:00")
        expect(page.locator(shown)).to_contain_text("2 days ago")


def test_runs_with_one_title_differ_by_a_value_on_home(page: Page, site: str) -> None:
    with client(site) as http:
        for number in range(2):
            ask(http, {**ORDERS, "customer": f"c{number}"})

    page.goto(f"{site}home")
    latest = page.locator("#running").get_by_role("listitem")
    expect(latest.nth(0)).to_contain_text("customer c1")
    expect(latest.nth(1)).to_contain_text("customer c0")
    # Nobody called a tool directly, and no work was repeated often enough for suggesting a tool.
    expect(page.locator("#week figure")).to_have_count(1)
    expect(page.locator("#suggested")).to_be_hidden()


def test_on_a_phone_no_title_covers_its_time(page: Page, site: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    with client(site) as http:
        ask(http, ORDERS, name="All the orders of the customers of this shop")

    page.goto(f"{site}home")
    row = page.locator("#running li").first
    expect(row.locator("time")).to_be_visible()
    # The page replaces the row while the run goes on, so one script measures both.
    title_ends, time_begins = page.evaluate(
        """() => {
          const row = document.querySelector("#running li");
          const title = row.querySelector("a").getBoundingClientRect();
          return [title.bottom, row.querySelector("time").getBoundingClientRect().top];
        }"""
    )
    assert title_ends <= time_begins + 1


@pytest.mark.parametrize("width", [320, 390])
def test_the_rooms_are_at_the_bottom_of_a_phone(page: Page, site: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{site}runs")
    rooms = page.get_by_role("navigation", name="Pages")
    home = rooms.get_by_role("link", name="Home")
    first = home.bounding_box()
    last = rooms.locator("summary").bounding_box()
    assert first is not None
    assert last is not None
    assert first["y"] == last["y"] > 700
    assert abs(first["width"] - last["width"]) < 1
    # The bar covers nothing at the end of the page.
    end = page.locator("#main > :last-child").evaluate(
        "(one) => { scrollTo(0, 1e6); return one.getBoundingClientRect().bottom; }"
    )
    assert end <= first["y"]
    home.click()
    expect(page).to_have_url(f"{site}home")
    expect(home).to_have_attribute("aria-current", "page")


def test_counts_of_the_bar_of_a_phone_cover_no_icon(page: Page, site: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{site}runs")
    rooms = page.get_by_role("navigation", name="Pages")
    for entry, count in (
        (rooms.get_by_role("link", name="Approvals"), "#waiting"),
        (rooms.locator("summary"), "#failing-behind-menu"),
    ):
        label = (
            "(one) => { const range = document.createRange(); range.selectNode([...one.childNodes]"
        )
        label += ".find((node) => node.nodeType === 3 && node.data.trim()));"
        label += " return range.getBoundingClientRect().top; }"
        before = entry.evaluate(label)
        page.locator(count).evaluate("(one) => { one.innerHTML = '<span class=count>4</span>'; }")
        assert entry.evaluate(label) == before
        badge = page.locator(f"{count} .count").bounding_box()
        # What is drawn of an icon is narrower than its box.
        icon = entry.locator("path").bounding_box()
        assert badge is not None
        assert icon is not None
        assert badge["x"] >= icon["x"] + icon["width"]


def test_the_menu_of_a_phone_leads_to_the_servers_and_closes(page: Page, site: str) -> None:
    page.set_viewport_size({"width": 320, "height": 800})
    page.goto(f"{site}runs")
    more = page.get_by_role("navigation", name="Pages").locator("summary")
    servers = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Servers")
    expect(servers).to_be_hidden()
    more.click()
    expect(servers).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    servers.focus()
    page.keyboard.press("Escape")
    expect(servers).to_be_hidden()
    expect(more).to_be_focused()

    more.click()
    page.locator("#main").click(position={"x": 5, "y": 300})
    expect(servers).to_be_hidden()

    more.click()
    servers.click()
    expect(page).to_have_url(f"{site}modules")


def test_the_week_counts_failed_runs(page: Page, site: str) -> None:
    with client(site) as http:
        ask(http, ORDERS)
        ask(http, {"_tool": "compute", "code": "1 / 0"})

    page.goto(f"{site}home")
    week = page.locator("#week figure").first
    expect(week.locator("figcaption")).to_have_text("2 runs 1 failed")
    expect(week.locator("svg g")).to_have_count(7)
    expect(week.locator(".today b")).to_have_text("2")
    expect(page.locator("#running .status")).to_have_text(["failed", "done"])


def test_a_run_that_was_denied_is_not_a_failed_one_in_the_chart(
    page: Page, site: str, http: httpx.Client
) -> None:
    denied = ask(http, {"_tool": "refund", "order": 1, "amount": 5})
    key = key_of(http, denied)
    send(http, "/ui/approvals/decide", "/ui/approvals", which=key, decision="deny")
    page.goto(f"{site}home")
    week = page.locator("#week figure").first
    expect(week.locator("figcaption")).to_have_text("1 run")
    expect(week.locator("svg rect.failed")).to_have_count(0)

    ask(http, {"_tool": "compute", "code": "1 / 0"})
    page.goto(f"{site}home")
    expect(week.locator("figcaption")).to_have_text("2 runs 1 failed")


def test_a_day_in_the_chart_has_its_failed_runs_below_the_others() -> None:
    monday = DayOfUse(date(2026, 6, 1), runs=2, failed_runs=1)
    tuesday = DayOfUse(date(2026, 6, 2), runs=1)
    [chart] = charts_of([monday, tuesday, DayOfUse(date(2026, 6, 3))])
    assert (chart.counted, chart.failed) == ("3 runs", 1)
    assert [(bar.good, bar.failed) for bar in chart.bars] == [(36, 36), (36, 0), (0, 0)]
    assert chart.bars[0].title == "Monday, 1 June: 2 runs, 1 failed"
    assert [(bar.day, bar.count) for bar in chart.bars] == [
        ("Mon", "2"),
        ("Tue", "1"),
        ("Wed", "0"),
    ]


def test_large_numbers_fit_above_their_bars() -> None:
    monday = date(2026, 6, 1)
    numbers = (9_999, 12_345, 2_500_000)
    days = [DayOfUse(monday + timedelta(days=n), runs=count) for n, count in enumerate(numbers)]
    assert [bar.count for bar in charts_of(days)[0].bars] == ["9,999", "12k", "2.5M"]


def test_readers_without_a_session_do_not_see_files_of_this_machine(tmp_path: Path) -> None:
    with served(tmp_path) as url, httpx.Client(base_url=url, follow_redirects=True) as reader:
        home = reader.get("home").text
        assert "three steps to begin" in home
        assert "mcpServers" not in home
        assert "mcpServers" not in reader.get("assistants").text
        with client(url) as owner:
            assert "mcpServers" in owner.get("/ui/assistants").text


def test_suggestions_arrive_after_the_page(page: Page, site: str) -> None:
    with client(site) as http:
        for number in range(3):
            ask(http, {**ORDERS, "customer": f"c{number}"}, {"_tool": "find_customer", "id": "c1"})

    page.goto(f"{site}runs?status=done")
    expect(page.locator("#runs tbody tr")).to_have_count(3)
    page.goto(f"{site}home")
    suggested = page.locator("#suggested")
    expect(suggested).to_contain_text("List orders, then find customer ran 3 times")
    suggested.get_by_role("link", name="Review suggestions").click()
    expect(page.get_by_role("link", name="Review and make a tool").first).to_be_visible()


def test_a_tool_that_was_made_here_is_among_those_used_most(page: Page, site: str) -> None:
    with client(site) as http:
        write_idea(http, WRITTEN, "with_tax")
        for _ in range(2):
            called = send(http, "/ui/ideas/with_tax/call", "/ui/ideas/with_tax", **{"p.net": "1"})
            ended(http, called.url.params["run"])

    page.goto(f"{site}home")
    used = page.locator("#most-used")
    expect(used.get_by_role("listitem").filter(has_text="With tax")).to_contain_text("2 uses")
    expect(used.get_by_role("listitem").filter(has_text="Compute")).to_contain_text("2 uses")
    used.get_by_role("link", name="With tax").click()
    expect(page.locator("#runs tbody tr")).to_have_count(2)


def test_home_follows_the_store(page: Page, site: str) -> None:
    with client(site) as http:
        ask(http, ORDERS)
        page.goto(f"{site}home")
        expect(page.locator("#waits")).to_contain_text("Nothing needs approval")
        # What matters most has a card of its own.
        expect(page.locator("#running")).to_have_class("card")
        ask(http, ORDERS, REFUND)

    expect(page.locator("#waits")).to_contain_text("Review")
    expect(page).to_have_title(re.compile(r"^\(1\) Home"))
    icon = page.locator("link[rel=icon]")
    expect(icon).to_have_attribute("href", re.compile("icon-waiting"))
