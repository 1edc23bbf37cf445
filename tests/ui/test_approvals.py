"""What a card says about a call that asks: what has changed since the last approved call of its
tool, SQL and patches as they are written; keys and notifications.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from ideabridge.bridge.configuration import reason_of_setting
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.ui.access import FormFields
from ideabridge.server.ui.approvals import claim_of, reason_in_words
from ideabridge.server.ui.call_values import EarlierCall, compared_values
from ideabridge.server.ui.coloured import LONGEST_COLOURED, coloured, language_of
from ideabridge.server.ui.edited_call import call_of_fields, edit_fields
from ideabridge.tools import Tool
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import ArgumentError
from tests.ui.serving import ask, client, seal, send, served, stranger, without_breaks
from tests.ui.test_servers import SERVERS, configured
from tests.ui.test_shown import card_of, decide, key_of, refund
from tests.waiting import wait_until


def approve(http: httpx.Client, run_id: str) -> None:
    key = key_of(http, run_id)
    answer = send(
        http,
        "/ui/approvals/decide",
        "/ui/approvals",
        which=key,
        decision="approve",
        seal=seal(http, key),
    )
    assert "1 call approved" in answer.text


def ask_program(http: httpx.Client, program: str) -> str:
    """Run a program through the playground; returns the id of the run."""
    fields = {"kind": "program", "text": program, "input": "", "title": "", "action": "run"}
    answer = send(http, "/ui/playground", **fields)
    assert "/runs/run_" in answer.url.path, answer.text[-2000:]
    return answer.url.path.rpartition("/")[2]


def text_of(html: str) -> str:
    """The words of a part of a page."""
    return " ".join(unescape(re.sub("<[^>]+>", " ", without_breaks(html))).split())


def test_a_card_shows_what_changed_since_the_last_approved_call(http: httpx.Client) -> None:
    first = ask(http, refund(1, note="dear\ncustomer\nbye"))
    assert "Compared with" not in card_of(http, first)
    approve(http, first)

    card = card_of(http, ask(http, {"_tool": "refund", "order": 1, "amount": 7.5}))
    words = text_of(card)
    assert f'href="/ui/runs/{first}/calls/0"' in card
    # The title says what is decided, and the table with which values and what was approved last.
    title = words.partition(" asked by ")[0]
    assert title.endswith("Refund")
    assert re.search("asked by you (just now|.* ago) run Refund refund Parameter Value ", words)
    # A value is before the one that it takes the place of, and both have equal decimals.
    assert "order 1 same as last time amount 7.50 last approved: 5.00 note no note" in words
    assert "no note last approved: dear customer bye Approve" in words
    assert "About the call Pay money back. Compared with the last approved call Deny" in words

    second = ask(http, refund(1, note="dear\nreader\nbye"))
    words = text_of(card_of(http, second))
    # The text is shown as it is, and the difference can be unfolded.
    difference = "Compare with last time: 1 line changed dear - customer + reader bye"
    assert f"note dear reader bye {difference} Also waiting for order 1: amount 7.50 " in words

    approve(http, second)
    third = ask(http, refund(1, note="dear\nreader\nbye"))
    assert "The same values as the" in card_of(http, third)
    assert "The same values as the" in http.get(f"/ui/runs/{third}").text
    whole = http.get(f"/ui/approvals/whole?which={key_of(http, third)}").text
    assert "The same values as the" in whole


def test_past_decisions_have_the_call_with_its_values(http: httpx.Client) -> None:
    run_id = ask(http, refund(1, note="dear\ncustomer"))
    approve(http, run_id)
    table = http.get("/ui/approvals/past").text.partition("Past decisions</h1>")[2]
    assert '<span class="status s-done">approved</span>' in table
    assert f'<a href="/ui/runs/{run_id}/calls/0">Refund</a>' in table
    assert "order 1, amount 5, note dear customer" in text_of(table)
    # No decision has a reason, so there is no column for reasons.
    assert "Reason</th>" not in table

    other = ask(http, refund(2))
    send(
        http,
        "/ui/approvals/decide",
        "/ui/approvals",
        which=key_of(http, other),
        decision="deny",
        reason="too late",
    )
    table = http.get("/ui/approvals/past").text.partition("Past decisions</h1>")[2]
    assert '<span class="status s-denied">denied</span>' in table
    assert "Reason</th>" in table
    assert "too late" in table

    approved = http.get("/ui/approvals/past?show=approved").text
    assert "s-done" in approved
    assert "too late" not in approved
    denied = http.get("/ui/approvals/past?show=denied").text
    assert "too late" in denied
    assert "s-done" not in denied
    assert 'href="/ui/approvals/past?show=denied" aria-current="page">Denied</a>' in denied


def test_past_decisions_have_the_values_that_references_resolved_to(http: httpx.Client) -> None:
    orders = {"_tool": "list_orders", "customer": "c1", "_outputPath": "orders"}
    run_id = ask(http, orders, {**refund(7), "order": "†state.orders.0.id"})
    decide(http, key_of(http, run_id), "deny")
    table = text_of(http.get("/ui/approvals/past").text)
    assert re.search(r"denied Refund order \d+, amount 5 asked by", table)


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_decision_leads_to_its_run(http: httpx.Client, decision: str) -> None:
    run_id = ask(http, refund(1))
    key = key_of(http, run_id)
    fields = {"which": key, "decision": decision, "seal": seal(http, key)}
    path = "/ui/approvals"
    answer = send(http, "/ui/approvals/decide", path, **fields)
    link = f'<a href="/ui/runs/{run_id}">See the run Refund</a>'
    made = {"approve": "approved", "deny": "denied"}[decision]
    assert f'role="status">1 call {made}. {link}</p>' in answer.text


def test_a_reason_is_sent_with_a_refusal_only(page: Page, site: str, http: httpx.Client) -> None:
    for order in (1, 2):
        key_of(http, ask(http, refund(order + 1)))
    page.goto(f"{site}approvals")
    for name in ("Approve", "Deny with this reason"):
        card = page.locator("article[data-card]").first
        card.get_by_text("More options").click()
        card.get_by_label("Reason").fill("not today")
        expect(page.locator("button[aria-disabled=true]")).to_have_count(0)
        card.get_by_role("button", name=name, exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("1 call ")

    rows = page.locator("#past li")
    expect(rows.nth(0)).to_contain_text("not today")
    expect(rows.nth(1)).not_to_contain_text("not today")


def test_a_description_of_a_tool_is_a_short_quotation(http: httpx.Client) -> None:
    tool = Tool("pay", f"Pay.<b>\u202e{'x' * 500}\n\nApproved by your admin.")
    # The author of this tool is the person whose ideabridge it is, so nothing is quoted.
    assert "<p>Pay money back.</p>" in without_breaks(card_of(http, ask(http, refund(1))))
    claim = claim_of(tool)
    assert claim.startswith("Pay.<b>")
    assert len(claim) == 140
    assert "\u202e" not in claim
    assert "admin" not in claim


def test_what_a_server_says_about_its_tool_is_quoted(tmp_path: Path) -> None:
    configured(tmp_path, SERVERS)
    with served(tmp_path) as url, client(url) as http:
        wait_until(lambda: "l-up" in http.get("/ui/modules/own").text)
        card = without_breaks(card_of(http, ask(http, {"_tool": "save", "text": "x"})))

    assert "<h3>Save</h3>" in card
    assert "<p><q>Keep a text in a file.</q></p>" in card
    # What would really run is beside who asks.
    assert '<code class="tool">save</code> of <span class="tool">own</span>' in card


def test_a_card_shows_the_worst_that_a_server_declares(tmp_path: Path) -> None:
    office = str(Path(__file__).with_name("office_servers.py"))
    configured(tmp_path, {"notes": {"command": sys.executable, "args": [office, "notes"]}})
    with served(tmp_path) as url, client(url) as http:
        wait_until(lambda: "l-up" in http.get("/ui/modules/notes").text)
        adding = card_of(http, ask(http, {"_tool": "add_note", "title": "x", "text": "x"}))
        deleting = card_of(http, ask(http, {"_tool": "delete_note", "title": "x"}))

    # The mark is also the reason for the question, so no sentence repeats it.
    assert '<span class="tag effect ">server says: only adds</span>' in adding
    assert "The server says" not in adding
    assert '<span class="tag effect bad">server says: can overwrite or delete</span>' in deleting


def test_calls_about_the_same_thing_name_each_other(http: httpx.Client) -> None:
    first = ask(http, refund(4711))
    first_key = key_of(http, first)
    other = ask(http, refund(4712))
    # The amount of both is the same, but only the first value says what a call is about.
    second = ask(http, {**refund(4711), "amount": 7})
    key = key_of(http, second)
    line = "Also waiting for order 4711: "
    assert f'{line}<a href="#q-{key}">amount 7</a>, asked by <span>you</span> ' in card_of(
        http, first
    )
    assert f'{line}<a href="#q-{first_key}">amount 5</a>' in card_of(http, second)
    assert "Also waiting" not in card_of(http, other)
    page = http.get("/ui/approvals").text
    # The list from which several are chosen has a mark instead.
    assert page.count('<span class="tag ask">same order: 4711</span>') == 2

    # The other call is in another run, so the page of a run leads to it.
    run = http.get(f"/ui/runs/{first}").text
    assert f'{line}<a href="/ui/approvals/whole?which={quote(key)}">amount 7</a>' in run
    alone = http.get(f"/ui/approvals/whole?which={quote(key)}").text
    assert f'{line}<a href="/ui/approvals/whole?which={quote(first_key)}">amount 5</a>' in alone
    third = key_of(http, ask(http, {**refund(4711), "amount": 8}))
    assert ", and 1 more call</p>" in card_of(http, first)

    for settled in (key, third):
        send(http, "/ui/approvals/decide", "/ui/approvals", which=settled, decision="deny")
    assert "Also waiting" not in card_of(http, first)


def test_nobody_hears_of_calls_of_others_about_the_same_thing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "member")
        token = store.users.add_token("ada")[1]

    with served(tmp_path) as url, client(url) as owner, stranger(url) as ada:
        ada.post("/ui/sign-in", data={"token": token})
        own = ask(owner, refund(4711))
        key_of(owner, own)
        hers = ask(ada, refund(4711))
        key_of(ada, hers)
        for page in ("/ui/approvals", f"/ui/runs/{hers}"):
            assert "4711" in ada.get(page).text
            assert "Also waiting" not in ada.get(page).text


def test_a_long_line_of_a_difference_goes_on_beside_its_sign(
    page: Page, http: httpx.Client
) -> None:
    note = "dear customer, your order was late, and we pay the price of it back to you"
    approve(http, ask(http, refund(1, note=f"hello\n{note}\nbye")))
    key = key_of(http, ask(http, refund(1, note=f"hello\n{note} today\nbye")))
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{http.base_url}/ui/approvals/whole?which={key}")
    page.get_by_text("Compare with last time").click()

    # Each line of a text has a box of its own.
    boxes = page.locator(".diff .plus").evaluate(
        """(line) => {
            const range = document.createRange();
            range.selectNodeContents(line);
            const text = [...range.getClientRects()];
            const sign = line.querySelector("i").getBoundingClientRect();
            return {right: sign.right, starts: text.map((box) => box.left), sign: sign.left};
        }"""
    )
    below = [start for start in boxes["starts"] if start != boxes["sign"]]
    assert len(below) > 1
    assert min(below) >= boxes["right"] - 1
    widths = "() => document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(widths) <= 0
    inner = page.locator(".scroll.values").first
    assert inner.evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0


@pytest.mark.parametrize("width", [390, 1280])
def test_a_value_is_before_the_one_that_it_takes_the_place_of(
    page: Page, http: httpx.Client, width: int
) -> None:
    note = "dear customer, your order was late, and we pay the price back"
    approve(http, ask(http, refund(1, note=note)))
    asking = ask(http, {"_tool": "refund", "order": 2, "amount": 5})
    removing = key_of(http, asking)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{http.base_url}/ui/approvals/whole?which={removing}")

    old = page.locator(".is-changed .last-time")
    new = page.locator(".is-changed pre.value")
    size = "(one) => getComputedStyle(one).fontSize"
    assert (new.evaluate(size), old.evaluate(size)) == ("15px", "13px")
    expect(page.locator(".is-changed .beside")).to_have_text(re.compile(r"2\s*last approved: 1"))
    before = new.bounding_box()
    after = old.bounding_box()
    assert before is not None
    assert after is not None
    assert before["x"] + before["width"] < after["x"]
    assert abs(after["y"] - before["y"]) < 6

    # What is missing is in the same line as its earlier value, however long this is.
    removed = page.locator(".removed").bounding_box()
    gone = page.locator(".is-gone .last-time").bounding_box()
    assert removed is not None
    assert gone is not None
    assert removed["x"] + removed["width"] < gone["x"]
    assert abs(removed["y"] - gone["y"]) < 6


def test_past_decisions_have_the_values_that_a_tool_was_called_with(http: httpx.Client) -> None:
    calls = [{"_tool": "refund", "order": "†input.order", "amount": 1.5}]
    answer = send(
        http,
        "/ui/playground",
        kind="plan",
        text=json.dumps({"calls": calls}),
        input='{"order": 4711}',
        title="",
        action="run",
    )
    run = answer.url.path.rpartition("/")[2]
    key = key_of(http, run)
    send(http, "/ui/approvals/decide", "/ui/approvals", which=key, decision="deny", reason="no")
    assert "order 4711, amount 1.5" in http.get("/ui/approvals/past").text


def test_the_latest_past_decisions_are_beside_the_open_ones(http: httpx.Client) -> None:
    orders = range(1, 8)
    for order in orders:
        approve(http, ask(http, refund(order)))
    page = http.get("/ui/approvals").text.partition('id="past"')[2]
    assert [order for order in orders if f"order {order}," in page] == [3, 4, 5, 6, 7]
    assert 'href="/ui/approvals/past"' in page
    past = http.get("/ui/approvals/past").text
    assert [order for order in orders if f"order {order}," in past] == list(orders)


def test_past_decisions_name_the_call_and_not_the_run(http: httpx.Client) -> None:
    orders = {"_tool": "list_orders", "customer": "c1", "_outputPath": "orders"}
    plan = ask(http, orders, refund(1))
    calls = "await list_orders()\nawait refund(order=2, amount=3)"
    program = ask_program(http, f"from tools import list_orders, refund\n{calls}")
    for run_id, values in ((plan, "order 1, amount 5"), (program, "order 2, amount 3")):
        approve(http, run_id)
        table = http.get("/ui/approvals/past").text.partition("Past decisions</h1>")[2]
        row = table.partition(f'<a href="/ui/runs/{run_id}/calls/1">')[2].partition("</tr>")[0]
        assert text_of(f"<a>{row}").startswith(f"Refund {values} asked by you in run ")
        # The run, and below it who asked, are also beside the open decisions.
        run = f'asked by <span>you</span> in run <a href="/ui/runs/{run_id}">'
        assert run in row
        assert run in http.get("/ui/approvals").text.partition('id="past"')[2]


def test_on_a_phone_a_past_decision_says_by_whom_it_was_made(
    page: Page, http: httpx.Client, site: str
) -> None:
    approve(http, ask(http, refund(1)))
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{site}approvals/past")
    decider = page.locator("td.decider")
    expect(decider).to_have_text("you")
    assert decider.evaluate("(cell) => getComputedStyle(cell, '::before').content") == '"by "'
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_call_is_edited_in_a_field_for_each_of_its_values(
    page: Page, site: str, http: httpx.Client
) -> None:
    note = "\ndear customer,\n\u202elate\u202c bye"
    run_id = ask(http, {**refund(3), "amount": 30.0, "note": note}, output="†results.0")
    page.goto(f"{site}approvals")
    card = page.locator("article.asking")
    card.get_by_text("More options").click()
    # The person meets neither JSON nor where the plan puts the result.
    expect(card.get_by_label("What runs instead, as JSON")).not_to_be_visible()
    option = card.locator(".edit-call")
    expect(option).not_to_contain_text("_outputPath")
    expect(option.get_by_label("order", exact=True)).to_have_value("3")
    option.get_by_label("amount", exact=True).fill("fifteen")
    option.get_by_role("button", name="Run with these values").click()
    expect(card.get_by_role("alert")).to_have_text(
        "amount: expected a value such as '30.0', found 'fifteen'"
    )

    # What was typed is still there, and the field to mend has the focus.
    amount = option.get_by_label("amount", exact=True)
    expect(amount).to_have_value("fifteen")
    expect(amount).to_be_focused()
    expect(amount).to_have_accessible_description(re.compile("expected a value such as"))
    amount.fill("15")
    option.get_by_role("button", name="Run with these values").click()
    wait_until(lambda: "refunded 15 for order 3" in http.get(f"/ui/runs/{run_id}").text)
    # A value that was not edited is exactly as before.
    call = http.get(f"/ui/runs/{run_id}/calls/0").text
    assert "dear customer" in call


def test_no_button_ignores_what_a_person_has_changed(http: httpx.Client) -> None:
    key = key_of(http, ask(http, refund(3)))
    sealed = seal(http, key)
    same = json.dumps(refund(3))
    other = json.dumps(refund(4))
    unchanged = {"v.0": "3", "v.1": "5"}
    for decision in ("approve", "grant", "always", "edit"):
        answer = decide(http, key, decision, seal=sealed, value=same, **{**unchanged, "v.1": "1"})
        assert "values were changed that this would not run" in answer, decision
    for decision in ("approve", "grant", "always", "fields"):
        for text in (other, "{"):
            answer = decide(http, key, decision, seal=sealed, value=text, **unchanged)
            assert "JSON was changed that this would not run" in answer, decision

    assert key_of(http, key.partition(":")[0]) == key
    # What was not changed does not matter, and neither does anything in a call that is denied.
    assert "1 call approved" in decide(http, key, "approve", seal=sealed, value=same, **unchanged)
    key = key_of(http, ask(http, refund(3)))
    assert "1 call denied" in decide(http, key, "deny", value=other, **{**unchanged, "v.1": "1"})


def test_what_was_typed_is_kept_when_a_decision_is_refused(
    page: Page, site: str, http: httpx.Client
) -> None:
    other = json.dumps({**refund(4), "amount": 7})
    key = key_of(http, ask(http, refund(3)))
    typed = {"v.0": "3", "v.1": "12", "value": other, "reason": "too much", "max": "many"}
    answer = decide(http, key, "grant", seal=seal(http, key), **typed)
    assert "at most: expected a number of calls, found 'many'" in unescape(answer)
    for name in ("v.1", "reason", "max"):
        assert re.search(rf'<input name="{re.escape(name)}"[^>]* value="{typed[name]}"', answer)
    assert other in unescape(answer)
    # A button can be pressed again at once, with the seal of this page.
    assert f'name="seal" value="{seal(http, key)}"' in answer

    # An open page follows the decision.
    page.goto(f"{site}approvals/whole?which={quote(key)}")
    card = page.locator("article.asking")
    card.get_by_text("More options").click()
    card.get_by_label("order", exact=True).fill("4")
    card.get_by_role("button", name="Approve a").click()
    expect(card.get_by_role("alert")).to_contain_text("values were changed that this would not run")
    expect(card.get_by_label("order", exact=True)).to_have_value("4")
    decide(http, key, "deny")
    expect(card).to_contain_text("no longer pending")


def test_a_field_changes_only_what_a_person_changes_in_it() -> None:
    values: JSONObject = {
        "text": "a †b\n",
        "odd": "a\r\nb",
        "hidden": "a\u202eb",
        "number": 1.0,
        "listed": [1, "x"],
        "nothing": None,
        "customer_id": "7",
    }
    shown: JSONObject = {"_tool": "t", "_id": "c0", "_outputPath": "x", **values}
    question = Question("call", "a", "d", shown, "")
    fields = edit_fields(question)
    assert [field.label for field in fields][-1] == "customer id"
    assert [field.is_text for field in fields] == [True, False, False, False, False, False, True]
    form = FormFields((field.name, field.text) for field in fields)
    unchanged = call_of_fields(question, form)
    assert unchanged == {"_tool": "t", "_outputPath": "x", **values}
    assert isinstance(unchanged["number"], float)

    changed = FormFields([("v.0", "1"), ("v.3", "2"), ("v.4", "[]"), ("v.99", "x")])
    expected = {**unchanged, "text": "1", "number": 2, "listed": []}
    assert call_of_fields(question, changed) == expected
    with pytest.raises(ArgumentError, match=r"number: expected a value such as '1\.0', found ''"):
        call_of_fields(question, FormFields([("v.3", "")]))
    many: JSONObject = {"_tool": "t", **{f"p{number}": number for number in range(31)}}
    assert edit_fields(Question("call", "a", "d", many, "")) == []


def test_calls_that_a_rule_or_a_grant_approved_are_one_past_decision(http: httpx.Client) -> None:
    key = key_of(http, ask(http, refund(1), refund(2)))
    assert "1 call approved" in decide(http, key, "grant", seal=seal(http, key))
    past = "/ui/approvals/past"
    wait_until(lambda: "allowed for its run" in http.get(past).text)
    table = text_of(http.get(past).text.partition("Past decisions</h1>")[2])
    assert re.search(
        r"allowed for its run Refund order 2, amount 5 asked by you in run Refund you 1 call, "
        r"(just now|.* ago)",
        table,
    )

    key = key_of(http, ask(http, refund(3)))
    assert "is always allowed" in decide(http, key, "always", seal=seal(http, key))
    run = ""
    for order in (4, 5, 6):
        run = ask(http, {"_tool": "list_orders"}, refund(order), name=f"Refund of {order}")
    page = http.get("/ui/approvals").text.partition('id="past"')[2]
    assert f'<a href="/ui/runs/{run}/calls/1">Refund</a>' in page
    beside = text_of(page)
    today = datetime.now(UTC)
    day = f"{today.day} {today:%b}"
    assert beside.count("always allowed Refund") == 1
    assert re.search(
        rf"always allowed Refund by you on {day}; 3 calls, last (just now|.* ago)", beside
    )
    # They take one place of the list, so the decision before them is still in it.
    assert "approved Refund order 3, amount 5" in beside

    # The head of a run says so, too.
    head = text_of(http.get(f"/ui/runs/{run}").text)
    assert f"1 call ran without asking: Refund, always allowed by you on {day}." in head
    assert "ran without asking" not in http.get(f"/ui/runs/{key.partition(':')[0]}").text


def test_what_is_always_allowed_has_a_place_before_anything_is(http: httpx.Client) -> None:
    card = card_of(http, ask(http, refund(1)))
    link = '<a href="/ui/approvals#always">Approvals › Always allowed</a>'
    assert f"until the tool changes or you withdraw it under {link}." in card
    page = http.get("/ui/approvals").text
    assert '<h2 id="always">Always allowed</h2>' in page
    assert "Every change asks you first." in page


def test_the_page_says_whether_an_assistant_may_pass_on_a_decision(
    http: httpx.Client, tmp_path: Path
) -> None:
    assert "You can answer in a chat, too." in http.get("/ui/approvals").text
    own = tmp_path / "config" / "ideabridge" / "ideabridge.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"approval": {"by": "person"}}', encoding="utf-8")
    with served(tmp_path) as url, client(url) as alone:
        assert "Only people decide" in alone.get("/ui/approvals").text


def test_a_card_names_only_calls_that_failed_meanwhile(http: httpx.Client) -> None:
    fine = {"_tool": "list_orders", "customer": "c1", "_outputPath": "orders"}
    wrong = {"_tool": "find_customer", "id": "c9", "_outputPath": "nobody"}
    first = ask(http, fine, refund(1))
    second = ask(http, wrong, refund(1))
    for run_id, status in ((first, "s-done"), (second, "s-failed")):
        while f'class="status {status}"' not in http.get(f"/ui/runs/{run_id}/calls/0").text:
            pass

    assert "While this question waited" not in card_of(http, first)
    failed = "While this question waited, 1 other call of the run has failed (find_customer)."
    assert failed in card_of(http, second)


def test_a_text_without_a_common_line_is_completely_different(http: httpx.Client) -> None:
    approve(http, ask(http, refund(1, note="dear\ncustomer\nbye\n")))
    card = card_of(http, ask(http, refund(1, note="hello\nreader\n")))
    assert "Unusual: note is completely different from last time" in text_of(card)
    assert text_of(card).count("completely different") == 1
    assert "Compare with last time hello" not in text_of(card)
    assert "Compare with last time - dear" in text_of(card)

    approve(http, ask(http, refund(1, note="hello\nreader\n")))
    card = card_of(http, ask(http, refund(1, note="hello\nreader\nbye\n")))
    assert "Compare with last time: 1 line added" in text_of(card)


def test_the_broadest_permission_is_farthest_from_approve(http: httpx.Client) -> None:
    card = card_of(http, ask(http, refund(1)))
    options = re.findall(r"<h4>([^<]*)</h4>", card)
    assert options == [
        "About the call",
        "Deny with a reason",
        "Edit",
        "Allow in this run",
        "Always allow",
    ]


def test_the_title_of_a_decision_on_its_own_page_is_its_question(http: httpx.Client) -> None:
    key = key_of(http, ask(http, refund(1)))
    page = http.get(f"/ui/approvals/whole?which={key}").text
    assert "<h1>Approve Refund?</h1>" in page
    assert "Approve Refund? · ideabridge</title>" in page


def test_a_difference_that_is_cut_has_the_whole_text_unfolded(http: httpx.Client) -> None:
    rows = ",\n".join(["(1)"] * 150)
    approve(http, ask(http, refund(1, note=f"INSERT INTO old VALUES\n{rows}")))
    other = f"INSERT INTO new VALUES\n{rows.replace('1', '2')}"
    card = card_of(http, ask(http, refund(1, note=other)))
    assert "note changed since last time" in text_of(card)
    assert "<details open><summary>Full text</summary>" in card


@pytest.mark.parametrize(
    ("parameter", "value"), [("path", "notes.txt"), ("file_name", "a b"), ("where", "./src/x.py")]
)
def test_what_changes_in_a_file_is_shown_at_once(parameter: str, value: str) -> None:
    call: JSONObject = {"_tool": "write", parameter: value, "text": "a\nb"}
    old: JSONObject = {parameter: value, "text": "a\nc"}
    assert compared_values(call, EarlierCall("run", 0, old)).rows[1].shows_lines
    letter = compared_values({"_tool": "t", "text": "a\nb"}, EarlierCall("run", 0, old))
    assert not letter.rows[0].shows_lines


def test_a_line_break_at_the_end_of_a_text_is_mentioned(http: httpx.Client) -> None:
    assert "note hi bye ends with a line break" in text_of(
        card_of(http, ask(http, refund(1, note="hi\nbye\n")))
    )
    [row] = compared_values({"_tool": "t", "text": "hi \n"}, None).rows
    # Nobody would see the space before the line break.
    assert not row.is_plain


def test_numbers_are_readable_and_exact() -> None:
    call: JSONObject = {"_tool": "t", "whole": 45.0, "part": 7.5, "same": 1, "flag": True}
    old: JSONObject = {"whole": 20.0, "part": 20, "same": 1.0, "flag": False}
    rows = compared_values(call, EarlierCall("run", 0, old)).rows
    assert [(row.text, row.before) for row in rows] == [
        ("45", "20"),
        ("7.50", "20.00"),
        # Nothing else tells them apart.
        ("1", "1.0"),
        ("true", "false"),
    ]


def test_an_earlier_call_that_was_denied_or_deleted_is_no_comparison(
    http: httpx.Client, tmp_path: Path
) -> None:
    denied = key_of(http, ask(http, refund(1)))
    send(http, "/ui/approvals/decide", "/ui/approvals", which=denied, decision="deny")
    run_id = ask(http, refund(2))
    assert "Compared with" not in card_of(http, run_id)
    approve(http, run_id)

    asking = ask(http, refund(3))
    assert "Compared with" in card_of(http, asking)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        while store.runs.find(run_id, caller=SEES_ALL).status != "done":
            pass
    with sqlite3.connect(tmp_path / "ideas.sqlite") as connection:
        connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))
    assert "Compared with" not in card_of(http, asking)


def test_calls_of_other_people_are_no_comparison(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        tokens = {
            name: store.users.add_token(store.users.add(name, "member").name)[1]
            for name in ("ann", "bob")
        }
    with served(tmp_path) as url, stranger(url) as ann, stranger(url) as bob:
        ann.post("/ui/sign-in", data={"token": tokens["ann"]})
        bob.post("/ui/sign-in", data={"token": tokens["bob"]})
        approve(ann, ask(ann, refund(1, note="for ann alone")))
        card = card_of(bob, ask(bob, refund(2)))
        assert "Compared with" not in card
        assert "for ann alone" not in card
        assert "Compared with" in card_of(ann, ask(ann, refund(2)))


def test_sql_and_patches_are_shown_as_they_are_written(http: httpx.Client) -> None:
    sql = "SELECT name\nFROM people\nWHERE name = '<b>' -- all"
    card = card_of(http, ask(http, refund(1, note=sql)))
    assert unescape(re.sub("<[^>]+>", "", card.partition("<form")[0])).count(sql) == 1
    assert '<span class="h-k">SELECT</span>' in card

    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<i>\n+b\n"
    card = card_of(http, ask(http, refund(2, note=patch)))
    assert '<span class="h-gd">-&lt;i&gt;</span>\n<span class="h-gi">+b</span>' in card

    # Invisible characters are written out, so SQL with them is shown as JSON.
    card = card_of(http, ask(http, refund(3, note=f"{sql}\u202e")))
    assert "h-k" not in card
    assert "\\u202e" in card


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("select 1 from t", "sql"),
        ("-- why\nDELETE FROM t", "sql"),
        ("Update t set a = 1", "sql"),
        ("with a as (select 1) select * from a", "sql"),
        ("create or replace view v as select 1", "sql"),
        ("select the best one", None),
        ("Create a table in the garden", None),
        ("update the price", None),
        ("diff --git a/x b/x\n", "diff"),
        ("*** Begin Patch\n*** End Patch", "diff"),
        ("--- \nno patch", None),
        ({"sql": "select 1 from t"}, None),
    ],
)
def test_only_sql_and_patches_are_taken_for_such(text: Any, language: str | None) -> None:
    assert language_of(text) == language


def test_the_place_of_a_result_is_no_changed_value() -> None:
    call: JSONObject = {"_tool": "t", "p": 1, "_outputPath": "here"}
    without_place: JSONObject = {"p": 1}
    for before in (without_place, {**without_place, "_outputPath": "there"}):
        assert compared_values(call, EarlierCall("run", 0, before)).changes == 0
    earlier = EarlierCall("run", 0, {"p": 2, "_outputPath": "there"})
    assert compared_values({"_tool": "t", "p": 1}, earlier).changes == 1


def test_no_value_that_says_what_a_call_is_about_is_folded() -> None:
    names = ["first", "second", "third", "fourth", "fifth", "sixth"]
    values: JSONObject = dict.fromkeys(names, "x\ny")
    call: JSONObject = {"_tool": "t", **values, "sixth": 2, "_outputPath": "here"}
    compared = compared_values(call, EarlierCall("run", 0, values))
    assert [row.name for row in compared.leading] == names[:4]
    assert [row.name for row in compared.listed] == [*names[:4], "sixth"]
    assert [row.name for row in compared.folded] == ["fifth"]
    assert [row.name for row in compared.places] == ["_outputPath"]

    alone = compared_values(call, None)
    assert [row.name for row in alone.listed] == names
    assert [row.name for row in alone.places] == ["_outputPath"]
    assert alone.folded == ()


def test_the_reason_for_a_question_is_a_sentence_for_a_person() -> None:
    tool = Tool("read_note", "", {"type": "object"}, module="notes")
    chosen = reason_of_setting("notes", "read_note", read_only=False)
    assert chosen.endswith("(mcpServers.notes.tools.read_note.read_only)")
    assert reason_in_words(chosen, tool) == "You chose to be asked"
    written_by_an_older_version = "mcpServers.notes.tools.read_note.read_only says that it reads"
    assert reason_in_words(written_by_an_older_version, tool) == written_by_an_older_version
    destroys = "tool 'read_note' of server 'notes' declares that it is destructive"
    expected = "The server says that it can overwrite or delete. A second reason"
    assert reason_in_words(f"{destroys}\na second reason.", tool) == expected


@pytest.mark.timeout(30)
@pytest.mark.parametrize("unit", ["'", "-", "\n", "`", "@", "b[", "/*", "(", "a\n", "+\n-\n"])
def test_hostile_texts_take_little_time(unit: str) -> None:
    text = (unit * LONGEST_COLOURED)[:LONGEST_COLOURED]
    begun = time.process_time()
    for language in ("sql", "diff", "python", "json"):
        coloured(text, language)
    other = text.replace("a", "b", 500) + "x"
    compared = compared_values({"_tool": "t", "p": text}, EarlierCall("run", 0, {"p": other}))
    assert compared.changes == 1
    assert time.process_time() - begun < 5


def test_a_diff_says_where_lines_changed_only_if_there_are_several_places() -> None:
    lines = [f"line {number}" for number in range(30)]
    old = "\n".join([*lines, ""])
    near = old.replace("line 29", "last line")
    far = near.replace("line 2\n", "third line\n")
    earlier = EarlierCall("run_1", 0, {"note": old, "amount": 1})
    for new, places in ((near, 0), (far, 2)):
        row, _ = compared_values({"_tool": "refund", "note": new, "amount": 2}, earlier).rows
        assert sum(line.startswith("@@") for line in row.lines) == places
        assert row.lines[-1] == "+last line"


# -- in a browser ----------------------------------------------------------------------------------


def test_keys_choose_and_decide_after_a_second(page: Page, site: str, http: httpx.Client) -> None:
    first = ask(http, refund(1))
    second = ask(http, refund(2))
    key_of(http, first)
    key_of(http, second)
    page.goto(f"{site}approvals")
    cards = page.locator("article[data-card]")
    expect(cards).to_have_count(2)
    places = page.locator(".card-place")
    expect(places).to_have_text(["1 of 2 · next ↓", "2 of 2"])
    expect(places.first).not_to_be_visible()
    expect(page.locator("button[aria-disabled=true]")).to_have_count(0)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(cards.nth(1)).to_be_focused()
    # A key that is pressed immediately afterwards decides nothing, because the card has only just
    # been chosen.
    page.keyboard.press("a")
    page.keyboard.press("k")
    expect(cards.nth(0)).to_be_focused()
    expect(cards).to_have_count(2)
    expect(page.locator("article.chosen.steady")).to_have_count(1)
    # In a field, a key is a letter.
    cards.nth(0).get_by_text("More options").click()
    cards.nth(0).get_by_label("Reason").press("d")
    expect(cards.nth(0).get_by_label("Reason")).to_have_value("d")
    cards.nth(0).focus()
    page.keyboard.press("a")
    expect(page.get_by_text("1 call approved.")).to_be_visible()
    expect(page.locator("article[data-card]")).to_have_count(1)
    expect(page.locator("article[data-card]")).to_contain_text("order")
    assert key_of(http, second)


def test_a_key_decides_nothing_about_a_card_out_of_view(
    page: Page, site: str, http: httpx.Client
) -> None:
    for order in range(6):
        ask(http, refund(order + 1))

    page.set_viewport_size({"width": 1280, "height": 500})
    page.goto(f"{site}approvals")
    cards = page.locator("article[data-card]")
    expect(cards).to_have_count(6)
    # The first card is chosen from the start, and its reader scrolls past it.
    expect(page.locator("article.chosen.steady")).to_have_count(1)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(cards.nth(0)).not_to_be_in_viewport()
    page.keyboard.press("a")
    expect(cards.nth(0)).to_be_focused()
    expect(cards.nth(0).get_by_role("button", name="Approve")).to_be_in_viewport()
    expect(cards).to_have_count(6)
    expect(page.locator("article.chosen.steady")).to_have_count(1)
    page.keyboard.press("a")
    expect(page.get_by_text("1 call approved.")).to_be_visible()


_SENT = """(button) => {
  const sent = [];
  // This one hears of a form last. It counts what a browser would send, and keeps it here.
  addEventListener("submit", (event) => {
    if (!event.defaultPrevented) sent.push(button.hasAttribute("data-busy"));
    event.preventDefault();
  });
  button.click();
  button.click();
  const once = [...sent];
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  const released = button.hasAttribute("data-busy");
  button.click();
  return [once, released, sent];
}"""


def test_a_form_that_was_sent_says_so_and_is_not_sent_twice(
    page: Page, site: str, http: httpx.Client
) -> None:
    key_of(http, ask(http, refund(1)))
    page.goto(f"{site}approvals")
    expect(page.locator("#cards article")).to_have_count(1)
    expect(page.locator("button[aria-disabled=true]")).to_have_count(0)
    button = page.locator("#cards").get_by_role("button", name="Approve", exact=True)
    # Somebody who stops the browser with Escape can send the form again.
    assert button.evaluate(_SENT) == [[True], False, [True, True]]


_RECORDER = """
window.notifications = [];
let granted = "default";
window.Notification = class {
  static get permission() { return granted; }
  static async requestPermission() { window.asked = true; granted = "granted"; return granted; }
  constructor(title, options) { window.notifications.push(`${title}: ${options.body}`); }
};
Object.defineProperty(document, "hidden", { get: () => Boolean(window.isHidden) });
"""


def test_the_browser_notifies_only_whom_it_asked(page: Page, site: str, http: httpx.Client) -> None:
    page.add_init_script(_RECORDER)
    page.goto(f"{site}approvals")
    expect(page.locator("#live")).to_contain_text("live")
    assert page.evaluate("window.asked") is None
    page.get_by_role("button", name="Notify me in this browser").click()
    expect(page.get_by_role("button", name="Stop notifying me")).to_be_visible()
    key_of(http, ask(http, refund(1, note="secret words")))
    expect(page.locator("article[data-card]")).to_have_count(1)
    # Nobody is notified about a page that they are looking at.
    assert page.evaluate("window.notifications") == []
    page.evaluate("window.isHidden = true; document.dispatchEvent(new Event('visibilitychange'))")
    key_of(http, ask(http, refund(2, note="secret words")))
    while not page.evaluate("window.notifications"):
        pass
    assert page.evaluate("window.notifications") == ["ideabridge: 2 decisions are pending."]


def test_without_a_session_a_card_has_no_keys_that_decide(http: httpx.Client, site: str) -> None:
    run_id = ask(http, refund(1))
    key = key_of(http, run_id)
    with stranger(site) as reader:
        page = reader.get("/ui/approvals").text
        assert "reads-only" in page
        refused = reader.post("/ui/approvals/decide", data={"which": key, "decision": "approve"})
        assert refused.status_code == 403

    with client(site) as other:
        assert key_of(other, run_id) == key
