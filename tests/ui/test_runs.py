"""The list of runs on the page: its filter, its pages, and the errors of a run."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import httpx
import pytest
from playwright.sync_api import Browser, FloatRect, Page, expect

from ideabridge.bridge.store.journal import CallMark
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.ui.call_dots import call_dots
from ideabridge.server.ui.runs import PAGE
from tests.ui.serving import ask, client, link_to, seal, send, without_breaks
from tests.ui.test_approvals import text_of
from tests.ui.test_apps import McpClient
from tests.ui.test_shown import decide, key_of, refund
from tests.waiting import wait_until

ORDERS: Final[dict[str, Any]] = {"_tool": "list_orders"}
FAILING: Final[dict[str, Any]] = {"_tool": "compute", "code": "1 / 0"}


def listed(http: httpx.Client, path: str) -> list[str]:
    """The ids of the runs that a page of the list links to, in their order."""
    return re.findall(r'<a href="/ui/runs/(run_[0-9a-f]+)"', http.get(path).text)


def ended(http: httpx.Client, run_id: str) -> str:
    """The page of a run, once it has ended."""
    while 'class="status s-running"' in (page := http.get(f"/ui/runs/{run_id}").text):
        pass
    return page


def facts_of(page: str) -> str:
    """Return the line of facts below the title of a run."""
    return page.partition('<p class="facts">')[2].partition("</p>")[0]


def test_the_list_shows_runs_with_a_status(http: httpx.Client) -> None:
    done = ask(http, ORDERS)
    waiting = ask(http, {"_tool": "refund", "order": 1, "amount": 5})
    ended(http, done)
    ended(http, waiting)

    assert listed(http, "/ui/runs") == [waiting, done]
    assert listed(http, "/ui/runs?status=done") == [done]
    assert listed(http, "/ui/runs?status=needs_approval") == [waiting]
    assert listed(http, "/ui/runs?status=interrupted") == []
    # A status that does not exist does not filter anything.
    assert listed(http, "/ui/runs?status=asleep") == [waiting, done]
    assert listed(http, "/ui/runs?status=done&tool=refund") == []


def test_the_list_has_pages(http: httpx.Client) -> None:
    runs = [ask(http, ORDERS) for _ in range(PAGE + 2)]
    for run_id in runs:
        ended(http, run_id)
    runs.reverse()

    for path in ("/ui/runs?since=1d", "/ui/runs?status=done"):
        assert listed(http, path) == runs[:PAGE]
        assert listed(http, f"{path}&after={runs[PAGE - 1]}") == runs[PAGE:]

    older = re.search(r'href="(\?[^"]*after=[^"]*)"', http.get("/ui/runs?status=done").text)
    assert older is not None
    query = older[1].replace("&amp;", "&")
    assert listed(http, f"/ui/runs{query}") == runs[PAGE:]


def test_the_list_counts_the_errors_of_a_run(http: httpx.Client) -> None:
    run_id = ask(http, FAILING)
    ended(http, run_id)

    page = http.get("/ui/runs").text
    row = page.partition(f'<tr id="row-{run_id}">')[2].partition("</tr>")[0]
    assert '<span class="status s-failed">failed</span>' in row
    assert '<i class="failed">' in row
    assert '<path class="done" ' not in row
    head = http.get(f"/ui/runs/{run_id}").text.partition('id="actions"')
    assert '<span class="status s-failed">failed</span>' in head[0]
    assert ">Compute: " in head[0]
    assert "Open the failed call" in head[0]
    # Nobody is invited to make a tool from something that failed.
    assert "Make it a tool" not in head[2]
    # The stored status is `done`, but the row says that the run failed.
    assert listed(http, "/ui/runs?status=done") == [run_id]
    assert listed(http, "/ui/runs?status=failed") == [run_id]


def test_the_tile_of_who_asked_is_level_with_the_name(
    page: Page, site: str, http: httpx.Client, tmp_path: Path
) -> None:
    for run_id in (ask(http, ORDERS), ask(http, ORDERS)):
        ended(http, run_id)
    with closing(sqlite3.connect(tmp_path / "ideas.sqlite")) as database, database:
        database.execute("UPDATE runs SET client = ? WHERE number = 1", ("cursor-vscode 1.2.0",))
    page.goto(f"{site}runs")
    cells = page.locator("td.asker")
    expect(cells).to_have_count(2)
    for cell in cells.all():
        tile = cell.locator(".tile").bounding_box()
        name = cell.locator(":scope > span:last-child").bounding_box()
        assert tile is not None
        assert name is not None
        middle = name["y"] + name["height"] / 2
        assert tile["y"] + tile["height"] / 2 == pytest.approx(middle, abs=1)


def test_the_list_says_who_asked(http: httpx.Client, site: str, tmp_path: Path) -> None:
    own = ask(http, ORDERS)
    assistant = McpClient(site, {})
    other = assistant.call("run_plan", calls=[ORDERS])["run"]
    assistant.close()
    ended(http, other)
    page = http.get("/ui/runs").text
    # The version of a program is only on the page of a run.
    for run_id, asker in ((own, "you"), (other, "<b>test host</b>")):
        row = page.partition(f'<tr id="row-{run_id}">')[2].partition("</tr>")[0]
        assert f"<span>{asker}</span>" in row, row
    with Store.open(tmp_path / "ideas.sqlite") as store:
        assert store.runs.find(other, caller=SEES_ALL).client == "test host 1"


def test_the_assistant_that_asks_is_named_by_the_name_people_know(
    page: Page, site: str, http: httpx.Client
) -> None:
    cursor = McpClient(site, {}, "cursor-vscode")
    asking = {"_tool": "refund", "order": 1, "amount": 5}
    run_id = cursor.call("run_plan", calls=[asking])["run"]
    cursor.close()
    own = ask(http, ORDERS)

    page.goto(f"{site}home")
    expect(page.locator("#waits")).to_contain_text("Cursor")
    page.goto(f"{site}approvals")
    card = page.locator(f"article[id^='q-{run_id}']")
    expect(card.locator("h3")).to_have_text("Refund")
    expect(card).to_contain_text(re.compile(r"asked by Cursor\s+(just now|.* ago)\s+run Refund"))
    # The store has no users, so there is no need to tell people apart.
    expect(card).not_to_contain_text("local")
    page.goto(f"{site}runs/{run_id}")
    expect(page.locator("#head .facts")).to_contain_text("Cursor 1")
    expect(page.locator("#head .facts")).not_to_contain_text("local")

    page.goto(f"{site}assistants")
    expect(page.locator("#assistants")).to_contain_text("1 run")
    page.locator("#assistants").get_by_role("link", name="Cursor").click()
    expect(page.locator(f"#row-{run_id} .asker")).to_have_text("Cursor")
    expect(page.locator(f"#row-{own}")).to_have_count(0)
    # Somebody who filters sees the filter, and can choose another one.
    expect(page.get_by_label("Assistant")).to_have_value("Cursor")
    page.get_by_label("Assistant").select_option("this page")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(f"#row-{own}")).to_be_visible()
    expect(page.locator(f"#row-{run_id}")).to_have_count(0)


def name_of(http: httpx.Client, run_id: str) -> str:
    """What the list calls a run."""
    page = without_breaks(http.get("/ui/runs").text)
    named = re.search(rf'<a href="/ui/runs/{run_id}"[^>]*>([^<]*)</a>', page)
    assert named is not None
    return named[1]


def test_a_run_of_many_tools_is_named_after_the_first_ones(http: httpx.Client) -> None:
    calls: list[dict[str, Any]] = [
        ORDERS,
        {"_tool": "find_customer", "id": "c1"},
        {"_tool": "photograph", "order": 1},
        {"_tool": "compute", "code": "1"},
    ]
    few = ask(http, *calls)
    many = ask(http, *calls, {"_tool": "read_review", "order": 1})
    whole = "list_orders + find_customer + photograph + compute"
    assert name_of(http, few) == "List orders, find customer, photograph, compute"
    name = "List orders, find customer, photograph and 2 more"
    assert name_of(http, many) == name
    assert f'title="{whole} + read_review"' in http.get("/ui/runs").text
    page = without_breaks(http.get(f"/ui/runs/{many}").text)
    # The run has the same name everywhere, and the technical details name all its tools.
    assert f"<h1>{name}</h1>" in page
    assert f"<title>{name} · ideabridge</title>" in page
    assert f"<p>Tools <code>{whole} + read_review</code></p>" in page


def test_a_program_is_named_after_its_tools(http: httpx.Client) -> None:
    program = "from tools import list_orders\nlen(await list_orders())"
    form = {"kind": "program", "text": program, "input": "", "title": "", "action": "run"}
    run_id = send(http, "/ui/playground", **form).url.path.rpartition("/")[2]
    assert name_of(http, run_id) == "program: list_orders"


def test_a_run_without_a_title_is_not_named_by_its_id(http: httpx.Client, tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        for kind in ("solve", "plan"):
            run_id = f"run_{kind}"
            store.runs.create(run_id, kind=kind, caller="local", title="", fingerprint="")
    assert name_of(http, "run_solve") == "Untitled task"
    assert name_of(http, "run_plan") == "Untitled plan"


def test_a_call_of_a_tool_leads_to_the_tool(http: httpx.Client) -> None:
    made = ask(http, ORDERS, output="†results.0")
    ended(http, made)
    path = f"/ui/ideas/publish?ref={made}"
    while "with the recorded answers, the tool gives the same result" not in http.get(path).text:
        pass
    send(http, "/ui/ideas/publish", path, ref=made, name="orders", answer="plan")
    send(http, "/ui/ideas/orders/call", "/ui/ideas/orders")
    listed = re.search(r'<a href="/ui/runs/(\w+)"[^>]*>Orders</a>', http.get("/ui/runs").text)
    assert listed is not None
    called = http.get(f"/ui/runs/{listed[1]}").text
    assert 'ran by the tool <a href="/ui/ideas/orders">Orders</a>' in called
    # The run of which it was made leads to it, too. Another tool can still be made of the run.
    page = http.get(f"/ui/runs/{made}").text
    assert 'made into the tool <a href="/ui/ideas/orders">Orders</a>' in page
    assert "Make it a tool" not in page
    assert re.search(r'<div class="rare"><a [^>]*>Make another tool</a>', page)


def test_the_card_of_a_run_says_what_waits_since_when(http: httpx.Client) -> None:
    run_id = ask(http, ORDERS, {"_tool": "refund", "order": 1, "amount": 5})
    # The approval is listed a moment before the status of the run changes.
    page = ended(http, run_id)
    head = text_of(facts_of(page))
    assert re.fullmatch(r"needs approval you .* so far 2 calls", head)
    card = text_of(page.partition("<article ")[2].partition("</header>")[0])
    assert re.search(r"Refund asked (just now|\d+ s ago) refund$", card)


def test_a_filtered_list_says_how_many_runs_match(http: httpx.Client) -> None:
    for run_id in [ask(http, ORDERS) for _ in range(3)]:
        ended(http, run_id)
    page = http.get("/ui/runs?tool=list_orders&status=done").text
    matches = page.partition('<p class="matches">')[2].partition("</p>")[0]
    assert text_of(matches) == (
        "3 runs Status: done , remove this filter Tool: list_orders , remove this filter Clear all"
    )
    # Each of the filters is a link to the list without it.
    assert 'href="/ui/runs?tool=list_orders">Status: done<' in matches
    assert '<p class="matches">' not in http.get("/ui/runs").text


def row_of(http: httpx.Client, run_id: str) -> str:
    """The row of a run in the list."""
    page = http.get("/ui/runs").text
    return page.partition(f'<tr id="row-{run_id}">')[2].partition("</tr>")[0]


def test_on_a_phone_a_row_has_its_status_at_the_right_edge(
    page: Page, site: str, http: httpx.Client
) -> None:
    for run_id in (ask(http, FAILING), ask(http, ORDERS, FAILING), ask(http, ORDERS)):
        ended(http, run_id)

    page.set_viewport_size({"width": 390, "height": 800})
    for path in ("runs", "ideas?show=saved"):
        page.goto(f"{site}{path}")
        rows = page.locator(".list tbody tr")
        expect(rows).to_have_count(3)
        # One step measures all, so that no row is replaced meanwhile.
        boxes: list[list[dict[str, float]]] = rows.evaluate_all(
            """(rows) => rows.map((row) => [".status", ".name a", "time"].map(
              (part) => row.querySelector(part).getBoundingClientRect().toJSON()
            ))"""
        )
        for status, name, age in boxes:
            assert status["right"] == boxes[0][0]["right"]
            middle = (status["top"] + status["bottom"]) / 2
            assert middle == pytest.approx((name["top"] + name["bottom"]) / 2, abs=2)
            assert age["top"] >= name["bottom"] - 1


def test_runs_with_the_same_title_are_told_apart(http: httpx.Client) -> None:
    by_customer = [ask(http, {**ORDERS, "customer": customer}) for customer in ("c1", "c2", "c2")]
    for run_id, customer in zip(by_customer, ("c1", "c2", "c2"), strict=True):
        assert f"customer <b>{customer}</b>" in row_of(http, run_id)

    # The input counts, too, and a reference has no value yet.
    call = {"_tool": "find_customer", "id": "†input.who"}
    by_input = [ask(http, call, input={"why": "late", "who": who}) for who in ("c1", "<b>")]
    assert "who <b>c1</b>" in row_of(http, by_input[0])
    assert "who <b>&lt;b&gt;</b>" in row_of(http, by_input[1])

    # Runs that do not differ, or that have titles of their own, show no difference.
    for run_id in [ask(http, {"_tool": "photograph", "order": 7}) for _ in range(2)]:
        assert "distinction" not in row_of(http, run_id)
    assert "distinction" not in row_of(http, ask(http, {"_tool": "read_review", "order": 1}))


def test_a_saved_idea_has_the_badge_and_the_title_of_its_run(http: httpx.Client) -> None:
    failed = ask(http, FAILING)
    mixed = ask(http, ORDERS, FAILING)
    for run_id in (failed, mixed):
        ended(http, run_id)

    for path in ("/ui/ideas?show=saved", "/ui/ideas?q=compute"):
        shown = without_breaks(http.get(path).text)
        # A search also finds tools, which have badges of their own.
        saved = shown.rpartition('<caption class="hidden">Saved runs</caption>')[2]
        assert '<span class="status s-failed">failed</span>' in saved
        assert '<span class="status s-errors">1 of 2 failed</span>' in saved
        assert "s-done" not in saved
        assert ">List orders, compute</a>" in saved

    idea = re.search(r'href="(/ui/ideas/id/[0-9a-f]+)">Compute<', saved)
    assert idea is not None
    assert '<span class="status s-failed">failed</span>' in http.get(idea[1]).text


def test_a_failed_call_is_retried(http: httpx.Client, tmp_path: Path) -> None:
    first = {**ORDERS, "_id": "first"}
    run_id = ask(http, first, {**FAILING, "_after": ["first"]}, FAILING)
    page = ended(http, run_id)
    # One call succeeded, so the run has not failed as a whole. Both errors are the same, so the top
    # of the page says this once, and the rows of the calls do not repeat it.
    badge = '<span class="status s-errors">2 of 3 failed</span>'
    assert badge in page
    assert badge in row_of(http, run_id)
    assert page.count('<div class="note failure bad">') == 1
    assert "2 calls of Compute failed: " in page
    assert "more error" not in page
    rows = page.partition('<table class="timeline">')[2].partition("</table>")[0]
    assert "division" in page
    assert "division" not in rows
    # The same values would fail again, so the button for them does not stand out.
    retry = re.search(
        r'name="at" value="(\d+)"><button title[^>]*>Continue from the failed call<', page
    )
    # One way to go on is beside the title. The others are in the menu.
    menu = page.partition('<div class="rare">')[2].partition("</details>")[0]
    assert text_of(menu) == (
        "Continue from the failed call Make it a tool Continue from an earlier step Compare"
    )
    # A run of an unknown program is the visitor's own.
    assert "2 of 3 failed you" in text_of(facts_of(page))
    assert retry is not None

    again = send(http, f"/ui/runs/{run_id}/fork", f"/ui/runs/{run_id}", at=retry[1])
    assert f'forked from <a href="/ui/runs/{run_id}">' in again.text
    with Store.open(tmp_path / "ideas.sqlite") as store:
        events = [event for _, event in store.runs.events(run_id)]
    following = events[int(retry[1])]
    assert following["event"] == "call_started"
    assert following["call"] in (1, 2)


def test_a_run_says_what_it_was_given(http: httpx.Client) -> None:
    of_customer = {**ORDERS, "customer": "c1"}
    counted = {"_tool": "compute", "code": "len(all)", "all": "†results.0"}
    page = ended(http, ask(http, of_customer))
    # A single value is in the title.
    assert "customer <b>c1</b>" in page.partition("<h1>")[2].partition("</h1>")[0]
    assert 'id="asked"' not in page
    assert "done you" in text_of(facts_of(page))
    # The values of several calls belong to these calls, and nobody gave them to the run.
    page = ended(http, ask(http, of_customer, counted))
    assert 'id="asked"' not in page
    # Nothing failed, and without an input, there is no value that could be changed.
    assert 'id="again"' not in page
    by_input = {**ORDERS, "customer": "†input.who"}
    page = ended(http, ask(http, by_input, counted, input={"who": "c2", "why": "late"}))
    asked = page.partition('id="asked">')[2].partition("</p>")[0]
    assert text_of(asked) == "who c2 , why late"


def test_a_run_says_what_its_calls_did(http: httpx.Client) -> None:
    person = {"_tool": "find_customer", "id": "c1", "_outputPath": "who"}
    counted = {"_tool": "compute", "code": "len(all)", "all": "†results.0"}
    page = ended(http, ask(http, ORDERS, person, counted))
    assert "Called List orders and Find customer at the same time, then Compute." in page
    page = ended(http, ask(http, *(ORDERS,) * 7))
    assert "7 calls of List orders, up to 7 at the same time." in page

    read = {"_tool": "compute", "code": "len(text)", "text": "†results.0"}
    run_id = ask(http, {"_tool": "refund", "order": 1, "amount": 5}, read)
    key = key_of(http, run_id)
    send(http, "/ui/approvals/decide", "/ui/approvals", which=key, decision="deny", reason="No")
    page = ended(http, run_id)
    # The reason is said once, in the decider's own words.
    assert text_of(page).count("Refund was denied by you: No") == 1
    assert "Refund was denied by you: <q>No</q>" in page
    assert "Refund was denied, so Compute did not run." in page
    # The calls can be changed as after a failure.
    assert 'id="again"' in page
    failed = ended(http, ask(http, {**person, "id": "c9"}, ORDERS))
    assert "Find customer failed." in failed
    assert "Called Find customer, which failed." in ended(http, ask(http, {**person, "id": "c9"}))


def test_the_reason_for_a_wait_says_only_of_changes_that_they_change(http: httpx.Client) -> None:
    orders = {"_tool": "list_orders"}
    run_id = ask(http, orders, refund(1), orders)
    key = key_of(http, run_id)
    decide(http, key, "approve", seal=seal(http, key))
    wait_until(lambda: "needs approval" not in http.get(f"/ui/runs/{run_id}").text)
    page = text_of(ended(http, run_id))
    assert re.search(r"waited \S+ m?s for List orders 1 of 2, which may read what this call", page)
    assert re.search(r"waited \S+ m?s for Refund, which may change what this call reads", page)
    assert "may change the same things" not in page


def test_a_plan_that_failed_runs_again_with_other_values(page: Page, site: str) -> None:
    with client(site) as http:
        failed = ask(http, {"_tool": "find_customer", "id": "c9"}, output="†results.0")
        ended(http, failed)

    page.goto(f"{site}runs/{failed}")
    expect(page.locator("#again")).to_be_hidden()
    change = page.locator("#actions").get_by_role("link", name="Change and run again")
    expect(change).to_have_class(re.compile("good"))
    change.click()
    plan = json.loads(page.locator("#again textarea").input_value())
    plan["calls"][0]["id"] = "c1"
    page.locator("#again textarea").fill(json.dumps(plan))
    page.get_by_role("button", name="Run again").click()
    expect(page.locator("#head")).to_contain_text(f"forked from {failed}")
    expect(page.locator("#result")).to_contain_text("Customer c1")


def test_one_action_of_a_failed_run_stands_out(page: Page, site: str, http: httpx.Client) -> None:
    failed = ask(http, {"_tool": "find_customer", "id": "c9"}, output="†results.0")
    ended(http, failed)
    page.goto(f"{site}runs/{failed}")
    buttons = page.locator("#main :is(button, .button):visible")
    expect(buttons).to_have_text(["More", "Change and run again"])
    expect(page.locator("#main .good:visible")).to_have_text(["Change and run again"])
    more = page.locator("#actions summary")
    more.click()
    retry = page.locator("#actions").get_by_role("button", name="Continue from the failed call")
    expect(retry).to_be_visible()
    more.click()
    page.locator("#head").get_by_role("link", name="Open the failed call").click()
    expect(page.locator("h1")).to_have_text("Find customer")


def test_a_failed_run_begins_again_with_another_input(page: Page, site: str) -> None:
    call = {"_tool": "find_customer", "id": "†input.who"}
    with client(site) as http:
        failed = ask(http, call, input={"who": "c9"}, output="†results.0")

    page.goto(f"{site}runs/{failed}")
    first = page.locator("#head .note").first
    expect(first).to_contain_text("there is no customer c9")
    expect(first).to_contain_text("Called with id c9")
    page.get_by_role("link", name="Change and run again").click()
    page.locator("#again textarea").fill('{"who": "c1"}')
    page.get_by_role("button", name="Run again").click()
    expect(page.locator("#head")).to_contain_text(f"forked from {failed}")
    expect(page.locator("#result")).to_contain_text("Customer c1")
    expect(page.locator("h1 .distinction")).to_have_text("who c1")


def test_a_finished_run_runs_again(page: Page, site: str, http: httpx.Client) -> None:
    call = {"_tool": "find_customer", "id": "†input.who"}
    with_input = ask(http, call, input={"who": "c1"}, output="†results.0")
    ended(http, with_input)
    page.goto(f"{site}runs/{with_input}")
    page.locator("#actions").get_by_role("link", name="Run again").click()
    page.locator("#again textarea").fill('{"who": "c2"}')
    page.locator("#again").get_by_role("button", name="Run again").click()
    expect(page.locator("#head")).to_contain_text(f"forked from {with_input}")
    expect(page.locator("#result")).to_contain_text("Customer c2")

    without_input = ask(http, ORDERS, output="†results.0")
    ended(http, without_input)
    page.goto(f"{site}runs/{without_input}")
    page.locator("#actions").get_by_role("button", name="Run again").click()
    expect(page.locator("#head")).to_contain_text(f"forked from {without_input}")
    expect(page.locator("#head .status")).to_have_text("done")


def test_the_output_of_a_run_comes_first(page: Page, site: str, http: httpx.Client) -> None:
    compute = {"_tool": "compute", "code": "len(orders)", "orders": "†results.0"}
    run_id = ask(http, ORDERS, compute, compute, compute, output="†results.0")
    ended(http, run_id)

    def box(selector: str) -> FloatRect:
        found = page.locator(selector).bounding_box()
        assert found is not None
        return found

    for width in (1280, 1100, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{site}runs/{run_id}")
        places = [box(one) for one in ("h1", "#result", ".times", "#state")]
        assert [place["y"] for place in places] == sorted(place["y"] for place in places)
        # Nothing is beside the output and the steps.
        assert len({(place["x"], place["width"]) for place in places[1:]}) == 1
        # The graph is the lower part of the box of the steps.
        graph = box("#run-graph")
        table = box(".timeline")
        assert graph["y"] == pytest.approx(table["y"] + table["height"], abs=1)
        assert graph["width"] == table["width"]
        # The bars are wide enough to compare them.
        assert box("thead .axis")["width"] >= 320

    page.set_viewport_size({"width": 1280, "height": 800})
    # The actions of the output end where it ends.
    table = box("#result .scroll")
    actions = box("#result summary")
    assert 0 <= table["x"] + table["width"] - actions["x"] - actions["width"] < 24


def test_the_id_of_a_run_is_a_technical_detail(http: httpx.Client) -> None:
    run_id = ask(http, ORDERS)
    page = ended(http, run_id)
    assert run_id not in text_of(facts_of(page))
    details = text_of(page.partition('id="state"')[2])
    assert f"Id {run_id}" in details
    assert "Saved copy" in details


def test_times_are_those_of_the_reader(browser: Browser, site: str, http: httpx.Client) -> None:
    run_id = ask(http, ORDERS)
    page = ended(http, run_id)
    shown = re.search(r'<time data-local datetime="([^"]+)">([^<]+)</time>', page)
    assert shown is not None
    began = datetime.fromisoformat(shown[1])
    # Without scripts, the zone of the time is known.
    assert shown[2] == f"{began.day} {began:%b %Y, %H:%M} UTC"
    with browser.new_context(timezone_id="Asia/Tokyo") as elsewhere:
        there = elsewhere.new_page()
        there.goto(link_to(site))
        there.goto(f"{site}runs/{run_id}")
        local = began.astimezone(ZoneInfo("Asia/Tokyo"))
        text = f"{local.day} {local:%b %Y, %H:%M}"
        expect(there.locator("#head time")).to_have_text(text)


def test_the_graph_of_a_few_calls_is_shown_and_the_slider_is_behind_a_button(
    page: Page, site: str, http: httpx.Client
) -> None:
    compute = {"_tool": "compute", "code": "len(orders)", "orders": "†results.0"}
    run_id = ask(http, ORDERS, compute, output="†results.0")
    ended(http, run_id)
    page.goto(f"{site}runs/{run_id}")
    slider = page.get_by_role("slider")
    expect(slider).to_be_hidden()
    expect(page.locator("#graph")).to_be_visible()
    page.locator(".section-head").get_by_text("Replay", exact=True).click()
    expect(slider).to_be_visible()
    # An earlier event stays in sight.
    page.goto(f"{site}runs/{run_id}?at=3")
    expect(slider).to_be_visible()


def test_a_run_shows_what_its_calls_returned(http: httpx.Client) -> None:
    person = {"_tool": "find_customer", "id": "c1"}
    half = {"_tool": "compute", "code": "{'half': 1 / 2, 'rows': [1, 2]}"}
    page = ended(http, ask(http, ORDERS, person, half, {**person, "id": "c9"}))
    rows = page.partition('<table class="timeline">')[2].partition("</table>")[0]
    cells = [cell.partition("</td>")[0] for cell in rows.split('<td class="call-result">')[1:]]
    orders, customer, computed, failed = (text_of(cell) for cell in cells)
    assert failed == "failed"
    assert re.match(r"done \d+ items, the first: id \d+, ", orders)
    # The first items are folded below the line.
    assert "<summary>" in rows
    assert "<li>id " in rows
    assert "Customer c1" in customer
    assert computed == "done half 0.50, rows a list of 2 items"
    # A list in a list is counted, however deep it is.
    nested = {"_tool": "compute", "code": "[[[[1]]]]"}
    page = ended(http, ask(http, nested, ORDERS))
    assert "1 item, the first: a list of 1 item" in text_of(page)
    # The output of a single call is its result.
    alone = ended(http, ask(http, person, output="†results.0"))
    cell = alone.partition('<td class="call-result">')[2].partition("</td>")[0]
    assert text_of(cell) == "done"


def test_a_run_is_titled_by_its_first_value(http: httpx.Client) -> None:
    page = ended(http, ask(http, {**ORDERS, "customer": "c1"}))
    assert text_of(page.partition("<h1>")[2].partition("</h1>")[0]) == "List orders customer c1"
    # The values of several calls belong to these calls.
    page = ended(http, ask(http, {**ORDERS, "customer": "c1"}, ORDERS))
    assert "customer" not in text_of(page.partition("<h1>")[2].partition("</h1>")[0])


def test_a_run_and_its_call_show_a_number_alike(http: httpx.Client) -> None:
    run_id = ask(http, {"_tool": "compute", "code": "[{'total': 49.0}, {'total': 18.5}]"}, ORDERS)
    assert "the first: total 49.00" in ended(http, run_id)
    assert "49.00" in http.get(f"/ui/runs/{run_id}/calls/0").text


def test_a_call_leads_to_those_before_and_after_it(http: httpx.Client) -> None:
    run_id = ask(http, ORDERS, {"_tool": "compute", "code": "len(all)", "all": "†results.0"})
    ended(http, run_id)
    first = http.get(f"/ui/runs/{run_id}/calls/0").text
    assert "step 1 of 2" in first
    assert f'<a href="/ui/runs/{run_id}/calls/1" rel="next"' in first
    assert 'rel="prev"' not in first
    assert 'rel="prev"' in http.get(f"/ui/runs/{run_id}/calls/1").text


def test_a_run_that_waits_says_what_it_asks_about(http: httpx.Client) -> None:
    run_id = ask(http, ORDERS, {"_tool": "refund", "order": 1, "amount": 5})
    key_of(http, run_id)
    page = http.get(f"/ui/runs/{run_id}").text
    assert "Called List orders, then asks before Refund." in page
    # How long it has waited is at the right of its bar.
    steps = page.partition('<table class="timeline')[2].partition("</table>")[0]
    assert re.search(r'<td class="number dim">waiting \d', steps)


def test_a_call_starts_at_once_or_later(http: httpx.Client) -> None:
    counted = {"_tool": "compute", "code": "len(all)", "all": "†results.0"}
    run_id = ask(http, ORDERS, counted)
    ended(http, run_id)
    assert "after 0 ms" not in http.get(f"/ui/runs/{run_id}/calls/0").text
    assert re.search(r"started after \d", text_of(http.get(f"/ui/runs/{run_id}/calls/1").text))


def test_a_run_of_one_call_needs_no_graph_and_no_replay(http: httpx.Client) -> None:
    by_input = {**ORDERS, "customer": "†input.who"}
    page = ended(http, ask(http, by_input, input={"who": "c1"}, output="†results.0"))
    assert 'id="graph"' not in page
    assert ">Replay<" not in page
    assert "Called List orders." in page
    assert page.count('<tr class="s-done">') == 1


def test_every_run_that_has_ended_can_run_again(http: httpx.Client) -> None:
    denied = ask(http, {"_tool": "refund", "order": 1, "amount": 5})
    key = key_of(http, denied)
    send(http, "/ui/approvals/decide", "/ui/approvals", which=key, decision="deny")
    cancelled = ask(http, {"_tool": "refund", "order": 2, "amount": 5})
    send(http, f"/ui/runs/{cancelled}/cancel", f"/ui/runs/{cancelled}")
    for run_id in (ask(http, ORDERS), ask(http, FAILING), denied, cancelled):
        actions = ended(http, run_id).partition('id="actions"')[2].partition("</details>\n")[0]
        for action in ("Run again", "Continue from an earlier step", "Compare"):
            assert f">{action}<" in actions, (run_id, action)


def test_a_call_names_the_call_that_it_waited_for(http: httpx.Client) -> None:
    compute = {"_tool": "compute", "code": "len(orders)", "orders": "†results.0"}
    alone = ask(http, ORDERS, compute)
    ended(http, alone)
    assert re.search(r"waited \d+ ms for List orders<", http.get(f"/ui/runs/{alone}").text)
    # If there are several calls to a tool, the place among them says which one it was.
    several = ask(http, ORDERS, compute, ORDERS)
    ended(http, several)
    page = http.get(f"/ui/runs/{several}").text
    assert re.search(r"waited \d+ ms for List orders 1 of 2<", page)


def test_a_row_has_the_first_calls_as_dots(http: httpx.Client) -> None:
    run_id = ask(http, ORDERS, ORDERS, {"_tool": "refund", "order": 1, "amount": 5})
    label = 'aria-label="3 calls: 2 done, 1 waiting for approval"'
    while label not in (page := http.get("/ui/runs").text).partition(run_id)[2]:
        pass
    row = page.partition(f'<tr id="row-{run_id}">')[2].partition("</tr>")[0]
    assert row.count('<i class="done">') == 2
    assert row.count('<i class="asking">') == 1


def test_dots_are_in_the_order_in_which_calls_began() -> None:
    marks = [
        CallMark("approval_asked", 2, 9.0),
        CallMark("call_started", 0, 10.0),
        CallMark("call_started", 1, 10.0),
        CallMark("call_finished", 1, 15.0, failure="failed"),
        CallMark("call_finished", 0, 20.0),
    ]
    dots = call_dots(marks)
    assert dots is not None
    assert dots.outcomes == ("asking", "done", "failed")
    assert dots.label == "3 calls: 1 done, 1 failed, 1 waiting for approval"
    # A call that was decided is running.
    marks += [CallMark("call_decided", 2, 21.0), CallMark("call_started", 2, 21.0)]
    dots = call_dots(marks)
    assert dots is not None
    assert dots.outcomes == ("running", "done", "failed")
    # After the end of the run, no call is running or asking.
    ended = call_dots(marks, has_ended=True)
    assert ended is not None
    assert ended.label == "3 calls: 1 done, 1 failed, 1 not finished"
    assert call_dots([]) is None


def test_a_call_that_was_denied_has_not_failed(http: httpx.Client) -> None:
    denied = ask(http, {"_tool": "refund", "order": 1, "amount": 5, "_outputPath": "paid"})
    mixed = ask(http, ORDERS, {"_tool": "refund", "order": 2, "amount": 5})
    paid = {"_tool": "refund", "order": 3, "amount": 5, "_outputPath": "paid"}
    reader = {"_tool": "find_customer", "id": "†state.paid"}
    with_reader = ask(http, ORDERS, paid, reader)
    for run_id in (denied, mixed, with_reader):
        key = key_of(http, run_id)
        send(http, "/ui/approvals/decide", "/ui/approvals", which=key, decision="deny")
        ended(http, run_id)

    page = http.get("/ui/runs").text
    for run_id, badge, label in (
        (denied, "denied", "1 call: 1 denied"),
        (mixed, "1 of 2 denied", "2 calls: 1 done, 1 denied"),
        (with_reader, "1 of 3 denied", "3 calls: 1 done, 1 denied, 1 not run"),
    ):
        row = page.partition(f'<tr id="row-{run_id}">')[2].partition("</tr>")[0]
        assert f'<span class="status s-denied">{badge}</span>' in row
        assert f'aria-label="{label}"' in row
        about = http.get(f"/ui/runs/{run_id}").text
        assert f'<span class="status s-denied">{badge}</span>' in about.partition("</h1>")[2]
        assert f"<span>{label.partition(':')[0]}</span>" in facts_of(about)
        assert "s-failed" not in about
        assert "note bad" not in about

    decided = http.get("/ui/approvals/past").text.partition("Past decisions</h1>")[2]
    for run_id, order in ((denied, 1), (mixed, 2), (with_reader, 3)):
        row = decided.partition(f"/ui/runs/{run_id}")[2].partition("</tr>")[0]
        assert f"order {order}, amount 5" in row, row

    assert listed(http, "/ui/runs?status=any_failure") == []
    assert listed(http, "/ui/runs?status=failed") == []
    assert listed(http, "/ui/runs?status=denied") == [with_reader, mixed, denied]
    assert "failed" not in http.get("/ui/home").text.partition('id="week"')[2].partition("<svg")[0]


def test_a_run_without_an_output_because_of_a_denial_is_denied(http: httpx.Client) -> None:
    paid = {"_tool": "refund", "order": 1, "amount": 5, "_outputPath": "paid"}
    output = {"paid": "†state.paid"}
    denied = ask(http, ORDERS, paid, output=output)
    failed = ask(http, FAILING, {**paid, "order": 2}, output=output)
    for run_id in (denied, failed):
        key = key_of(http, run_id)
        send(http, "/ui/approvals/decide", "/ui/approvals", which=key, decision="deny")
        ended(http, run_id)

    badge = '<span class="status s-denied">1 of 2 denied</span>'
    assert badge in row_of(http, denied)
    assert "could not be produced" not in row_of(http, denied)
    about = http.get(f"/ui/runs/{denied}").text
    assert badge in about.partition("</h1>")[2]
    assert "note bad" not in about
    assert badge in http.get("/ui/ideas?show=saved").text

    # A call that failed by itself is a failure, whatever else was denied.
    assert "s-failed" in row_of(http, failed)
    assert listed(http, "/ui/runs?status=any_failure") == [failed]
    assert listed(http, "/ui/runs?status=failed") == [failed]
    assert listed(http, "/ui/runs?status=denied") == [denied]


def test_a_call_over_items_is_one_dot_until_all_have_ended() -> None:
    marks = [
        CallMark("call_started", 0, 10.0),
        CallMark("call_started", 0, 10.0),
        CallMark("call_finished", 0, 11.0),
    ]
    dots = call_dots(marks)
    assert dots is not None
    assert dots.outcomes == ("running",)
    dots = call_dots([*marks, CallMark("call_finished", 0, 12.0)])
    assert dots is not None
    assert dots.outcomes == ("done",)


def test_a_run_of_many_calls_has_few_dots() -> None:
    dots = call_dots([CallMark("call_started", n, 10.0) for n in range(100)])
    assert dots is not None
    assert len(dots.outcomes) == 12
    assert dots.more == 88
    assert dots.label == "100 calls: 100 running"
    # The end of a call may come after what was read, so the dot does not say that it is missing.
    cut = call_dots(
        [CallMark("call_started", 0, 10.0), CallMark("call_started", 1, 10.0)],
        has_ended=True,
        is_cut=True,
    )
    assert cut is not None
    assert cut.label == "the first 2 calls: 2 begun"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_row_opens_where_it_is_pressed(page: Page, site: str, width: int) -> None:
    with client(site) as http:
        run = ask(http, ORDERS)
        ended(http, run)

    page.set_viewport_size({"width": width, "height": 800})
    rows = {
        "runs": ("#runs tbody tr", f"/ui/runs/{run}"),
        "home": ("#running li", f"/ui/runs/{run}"),
        "ideas?show=saved": ("#ideas tbody tr", "/ui/ideas/id/"),
        "ideas?show=built-in": ("#ideas tbody tr", "/ui/modules/"),
        "modules": ("#modules tbody tr", "/ui/modules/"),
    }
    for at, (row, target) in rows.items():
        # Nothing is written at either end of a row.
        for side in (0, 1):
            page.goto(f"{site}{at}")
            box = page.locator(row).first.evaluate("(row) => row.getBoundingClientRect().toJSON()")
            page.mouse.click(box["right"] - 5 if side else box["left"] + 5, box["top"] + 20)
            expect(page).to_have_url(re.compile(re.escape(target)))


def test_no_row_moves_under_the_pointer(page: Page, site: str, http: httpx.Client) -> None:
    waiting = ask(http, {"_tool": "refund", "order": 1, "amount": 5})
    page.goto(f"{site}runs")
    expect(page.locator("#live")).to_contain_text("live")
    row = page.locator(f"#row-{waiting}")
    expect(row).to_contain_text("needs approval")
    row.hover()
    before = row.bounding_box()
    ended(http, ask(http, ORDERS))
    expect(page.locator("#new-rows")).to_contain_text("1 new: ")
    assert row.bounding_box() == before
    # The row under the pointer is still updated.
    send(http, f"/ui/runs/{waiting}/cancel", f"/ui/runs/{waiting}")
    expect(row).to_contain_text("cancelled")
    expect(row.locator("td.took")).to_have_class("number took")
    assert row.bounding_box() == before
    page.mouse.move(0, 0)
    expect(page.locator("tr[id^=row-]")).to_have_count(2)
    expect(page.locator("#new-rows")).to_be_hidden()


def test_filters_are_folded_unless_one_is_set(page: Page, site: str) -> None:
    page.goto(f"{site}runs")
    expect(page.get_by_role("search")).to_be_hidden()
    page.get_by_text("Filters", exact=True).click()
    expect(page.get_by_role("search")).to_be_visible()
    page.get_by_label("Tool").fill("refund")
    page.get_by_role("button", name="Filter").click()
    # Somebody who filters sees the filter.
    expect(page.get_by_label("Tool")).to_have_value("refund")
    page.get_by_role("link", name="Clear all").click()
    expect(page.get_by_role("search")).to_be_hidden()


def test_a_list_is_filtered_by_a_time_in_words(page: Page, site: str, http: httpx.Client) -> None:
    run_id = ask(http, ORDERS)
    ended(http, run_id)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for time in ("when=1h", "when=today", "when=30d&since=2001-01-01", "since=3d", "when=3d"):
        assert listed(http, f"/ui/runs?{time}") == [run_id], time
    assert listed(http, f"/ui/runs?when=custom&until={today}") == []

    page.goto(f"{site}runs?tool=list_orders")
    expect(page.get_by_label("Since")).to_be_hidden()
    page.get_by_label("When").select_option("Custom")
    page.get_by_label("Before").fill(today)
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(f"#row-{run_id}")).to_have_count(0)
    expect(page.get_by_label("When")).to_have_value("custom")
    page.locator(".matches").get_by_role("link", name=f"Before: {today}").click()
    expect(page.locator(f"#row-{run_id}")).to_be_visible()
    # One person has run everything, so no column says who.
    expect(page.locator("td.asker")).to_have_count(0)


def test_an_empty_list_says_what_there_is_none_of(page: Page, site: str) -> None:
    page.goto(f"{site}runs")
    links = page.get_by_role("navigation", name="Quick links")
    for label, said in (
        ("All", "No runs yet."),
        ("Today", "No run has begun today."),
        ("Last 7 days", "No run has begun in the last 7 days."),
        ("Running", "Nothing is running."),
        ("Needs approval", "Nothing needs approval."),
        ("Failed", "Nothing failed."),
    ):
        link = links.get_by_role("link", name=label)
        # A link that leads to nothing has no number: "Running 0" would look like a state.
        expect(link).to_have_text(label)
        link.click()
        expect(page.locator("#runs .empty")).to_contain_text(said)


def test_quick_links_count_the_runs_that_they_lead_to(page: Page, site: str) -> None:
    with client(site) as http:
        ended(http, ask(http, ORDERS))
        wrong = ask(http, FAILING)
        ended(http, wrong)
        waiting = ask(http, {"_tool": "refund", "order": 1, "amount": 5})

    page.goto(f"{site}runs")
    links = page.get_by_role("navigation", name="Quick links")
    links.get_by_role("link", name="Running").click()
    expect(page.locator("#runs")).to_contain_text("Nothing is running.")
    page.goto(f"{site}runs?tool=nothing")
    expect(page.locator("#runs")).to_contain_text("No runs match these filters.")
    expect(links).to_contain_text("All 3")
    expect(links).to_contain_text("Today 3")
    expect(links).to_contain_text("Last 7 days 3")
    # The filter and the link are about the same days.
    page.goto(f"{site}runs?when=7d")
    expect(links.locator("[aria-current]")).to_have_text("Last 7 days 3")
    expect(page.get_by_label("When")).to_have_value("7d")
    links.get_by_role("link", name="Failed 1").click()
    expect(page.locator("tr[id^=row-]")).to_have_count(1)
    # The run is stored as done, but all of its calls failed.
    expect(page.locator(f"#row-{wrong}")).to_be_visible()
    expect(links.locator("[aria-current]")).to_contain_text("Failed")
    # The link says how the list is filtered, so the filters stay folded.
    expect(page.get_by_role("search")).to_be_hidden()

    links.get_by_role("link", name="Needs approval 1").click()
    expect(page.locator("tr[id^=row-]")).to_have_count(1)
    expect(page.locator(f"#row-{waiting} .took")).to_have_text("–")
    # The numbers follow the store.
    with client(site) as http:
        send(http, f"/ui/runs/{waiting}/cancel", f"/ui/runs/{waiting}")
    expect(links.get_by_role("link", name="Needs approval", exact=True)).to_be_visible()
