"""The first minutes of a new user, in a real browser."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.ui.serving import link_to

PLAN: dict[str, Any] = {
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

HOLD_THE_TOOLS = """
const ask = window.fetch;
window.fetch = async (address) => {
  if (address.endsWith("/playground/tools")) {
    await new Promise((arrive) => { window.letToolsArrive = arrive; });
  }
  return ask(address);
};
"""
"""A script that keeps the list of tools from the playground until a test calls letToolsArrive."""


def run(
    page: Page, site: str, plan: dict[str, object], given: dict[str, object] | None = None
) -> None:
    """Write a plan into the playground, and run it."""
    page.goto(f"{site}playground?kind=plan")
    page.get_by_label("The plan or program").fill(json.dumps(plan))
    page.get_by_label("Input, as JSON").fill(json.dumps(given or {}))
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()


def test_from_nothing_to_a_tool(page: Page, site: str) -> None:
    page.goto(site)
    expect(page.get_by_role("heading", name="Add your servers")).to_be_visible()

    # The run is followed live until the call that asks.
    run(page, site, PLAN, {"customer": "c1"})
    expect(page.locator("#head .status")).to_have_text("needs approval")
    expect(page.get_by_role("navigation").get_by_role("link", name="Approvals")).to_contain_text(
        "1"
    )
    question = page.locator("article.asking")
    expect(question).to_contain_text('"amount": 40.0')
    calls = page.locator("#timeline tbody tr")
    expect(calls).to_have_count(4)
    expect(calls.nth(2)).to_contain_text("waited")

    # The page is not reloaded, because it follows the store.
    page.evaluate("window.stays = true")
    question.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#head .status")).to_have_text("done")
    expect(page.get_by_label("The output of the run")).to_contain_text("refunded 40 for order 4")
    expect(calls.nth(3)).to_contain_text(re.compile(r"waited \S+ m?s for a decision by you"))
    # The slider follows the journal, whose last event is the end of the run.
    page.get_by_text("Replay", exact=True).click()
    slider = page.get_by_role("slider")
    last = slider.get_attribute("max") or ""
    expect(slider).to_have_value(last)
    expect(page.locator("#state")).to_contain_text(f"Full record ({last} entries)")

    page.get_by_role("link", name="Refund", exact=True).first.click()
    expect(page.get_by_text("4 from id of the result of Compute")).to_be_visible()
    page.get_by_text("As JSON").first.click()
    expect(page.get_by_label("The parameters with which it ran")).to_contain_text('"order": 4')
    expect(page.get_by_text("approve by you")).to_be_visible()
    page.go_back()

    page.get_by_role("link", name="Make it a tool").click()
    page.locator("input[name=name]").fill("refund_largest")
    expect(
        page.get_by_text("with the recorded answers, the tool gives the same result")
    ).to_be_visible()
    page.get_by_role("button", name="Make the tool").click()
    expect(page.locator(".facts")).to_contain_text("version 1")

    # Give its parameter another name and a description, which the next version keeps.
    page.get_by_role("link", name="Edit", exact=True).click()
    page.locator("input[name='a.customer.rename']").fill("who")
    page.locator("input[name='a.customer.description']").fill("The customer's id")
    page.get_by_role("button", name="Save as the next version").click()
    expect(page.locator(".facts")).to_contain_text("version 2")
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.locator("input[name='a.customer.description']")).to_have_value("The customer's id")
    page.get_by_label("What it does").fill("Refund a customer's largest order.")
    page.get_by_role("button", name="Save as the next version").click()
    expect(page.locator(".facts")).to_contain_text("version 3")
    expect(page.locator("#call-form")).to_contain_text("The customer's id")

    # Call it for another customer, with the form that was made from the schema.
    page.locator("#call-form input[name='p.who']").fill("c2")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#head .status")).to_have_text("needs approval")
    expect(page.locator("article.asking")).to_contain_text('"order": 5')
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_label("The output of the run")).to_contain_text("c2@example.org")


def test_a_run_of_somebody_else_appears_while_the_list_is_open(page: Page, site: str) -> None:
    page.goto(f"{site}runs")
    expect(page.locator("#live")).to_have_text("● live")
    other = page.context.new_page()
    run(other, site, {"calls": [{"_tool": "list_orders"}], "output": "†results.0"})
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    expect(page.locator("#runs .status")).to_have_text("done")


def test_the_slider_shows_what_was_before(page: Page, site: str) -> None:
    run(page, site, {"calls": PLAN["calls"][:3], "output": "†state.largest.id"}, {"customer": "c1"})
    expect(page.locator("#head .status")).to_have_text("done")
    page.get_by_text("Replay").click()
    slider = page.get_by_role("slider")
    last = int(slider.get_attribute("max") or 0)
    slider.focus()
    for _ in range(last - 2):
        page.keyboard.press("ArrowLeft")

    expect(page.locator("#head .status")).to_have_text("replayed")
    expect(page.locator("#timeline .status").first).to_have_text("waiting")
    expect(page).to_have_url(re.compile(r"\?at=2$"))
    page.keyboard.press("End")
    expect(page.locator("#head .status")).to_have_text("done")


def test_a_program_with_its_calls_marked_and_a_fork(page: Page, site: str) -> None:
    program = (
        "import asyncio\nfrom tools import list_orders, "
        "find_customer\norders = await list_orders()\n"
        "people = await asyncio.gather(*[find_customer(id=one['customer']) for one in orders])\n"
        "print(len(people))\n[one['name'] for one in people]"
    )
    page.goto(f"{site}playground?kind=program")
    page.get_by_label("The plan or program").fill(program)
    page.get_by_role("button", name="Check without running").click()
    expect(page.locator("#checked")).to_contain_text("may call 2 tools")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#head .status")).to_have_text("done")
    expect(page.locator("#program li").nth(3)).to_contain_text("find_customer ×6")
    expect(page.get_by_label("What the program printed")).to_have_text("6")

    page.locator("summary", has_text="Continue from an earlier step").click()
    page.get_by_label("After moment").last.fill("3")
    page.get_by_role("button", name="Continue in a new run").click()
    expect(page.locator("#head")).to_contain_text("forked from")
    expect(page.locator("#head .status")).to_have_text("done")


def test_several_are_decided_at_once(page: Page, site: str) -> None:
    calls = [{"_tool": "refund", "order": n, "amount": n * 1.0} for n in (1, 2)]
    for call in calls:
        run(page, site, {"calls": [call], "output": "†results.0"})
        expect(page.locator("#head .status")).to_have_text("needs approval")

    page.get_by_role("navigation").get_by_role("link", name="Approvals").click()
    page.get_by_text("Approve or deny several").click()
    page.get_by_label("Select all").check()
    page.locator("#several").get_by_label("Reason").fill("not before Monday")
    page.locator("#several").get_by_role("button", name="Deny").click()
    expect(page.get_by_text("2 calls denied.")).to_be_visible()
    expect(page.get_by_text("Nothing needs approval")).to_be_visible()
    expect(page.locator("#past li").filter(has_text="not before Monday")).to_have_count(2)


@pytest.mark.parametrize("scripts", [True, False])
def test_several_are_edited_at_once(browser: Browser, page: Page, site: str, scripts: bool) -> None:
    for order in (1, 2, 3):
        run(
            page,
            site,
            {
                "calls": [{"_tool": "refund", "order": order, "amount": 10.0}],
                "output": "†results.0",
            },
        )
        expect(page.locator("#head .status")).to_have_text("needs approval")

    with browser.new_context(java_script_enabled=scripts) as context:
        inbox = context.new_page()
        inbox.goto(link_to(site))
        inbox.goto(f"{site}approvals")
        inbox.get_by_text("Approve or deny several").click()
        form = inbox.locator("#several")

        def field(order: int) -> Locator:
            return (
                form.locator("tbody tr").filter(has_text=f'"order": {order}').get_by_role("textbox")
            )

        def write(order: int, amount: object) -> None:
            row = form.locator("tbody tr").filter(has_text=f'"order": {order}')
            if not field(order).is_visible():
                row.get_by_text("Edit", exact=True).click()
            field(order).fill(json.dumps({"_tool": "refund", "order": order, "amount": amount}))
            # With scripts, changing a call also chooses it.
            assert row.get_by_role("checkbox").is_checked() is scripts
            row.get_by_role("checkbox").check()

        write(1, "much")
        write(2, 2.5)
        form.locator("tbody tr").filter(has_text='"order": 3').get_by_role("checkbox").check()
        form.get_by_label("Reason").fill("half of it")
        form.get_by_role("button", name="Approve").click()

        # The fault is shown in its place, nothing is decided, and what was written is still there.
        expect(inbox.get_by_text("Nothing was decided.")).to_be_visible()
        expect(form.locator("tbody tr").filter(has=inbox.get_by_role("alert"))).to_have_count(1)
        expect(
            form.locator("tbody tr").filter(has_text='"order": 1').get_by_role("alert")
        ).to_contain_text("amount")
        expect(field(1)).to_have_value(re.compile("much"))
        expect(field(2)).to_have_value(re.compile("2.5"))
        expect(form.get_by_label("Reason")).to_have_value("half of it")
        for box in form.locator("tbody").get_by_role("checkbox").all():
            expect(box).to_be_checked()

        expect(inbox.get_by_role("link", name="Approvals")).to_contain_text("3")

        # A changed call that is not selected must not be lost silently either.
        form.locator("tbody tr").filter(has_text='"order": 2').get_by_role("checkbox").uncheck()
        field(1).fill(json.dumps({"_tool": "refund", "order": 1, "amount": 1.5}))
        form.get_by_role("button", name="Approve").click()
        expect(form.get_by_role("alert")).to_have_text(re.compile("changed but not selected"))
        form.locator("tbody tr").filter(has_text='"order": 2').get_by_role("checkbox").check()
        form.get_by_role("button", name="Approve").click()
        expect(inbox.get_by_text("2 calls edited, 1 call approved.")).to_be_visible()
        expect(inbox.get_by_text("Nothing needs approval")).to_be_visible()
        inbox.get_by_role("link", name="All past decisions").click()
        expect(inbox.get_by_role("cell", name="half of it")).to_have_count(3)
        expect(inbox.get_by_role("cell", name="edited", exact=True)).to_have_count(2)

    page.goto(f"{site}runs")
    expect(page.locator("#runs .status").filter(has_text="done")).to_have_count(3)
    page.locator("#runs tbody tr").last.get_by_role("link").first.click()
    expect(page.get_by_label("The output of the run")).to_have_text("refunded 1.5 for order 1")


def test_an_edited_call_runs_in_place_of_the_one_that_asked(page: Page, site: str) -> None:
    run(
        page,
        site,
        {"calls": [{"_tool": "refund", "order": 3, "amount": 30.0}], "output": "†results.0"},
    )
    page.locator("article.asking").get_by_text("More options").click()
    page.locator("article.asking").get_by_text("As JSON", exact=True).click()
    editor = page.get_by_label("What runs instead, as JSON")
    editor.fill('{"_tool": "refund", "order": 3, "amount": 15.0}')
    # Enter in a line of text decides nothing, and Ctrl+Enter sends the text that is being written.
    page.locator("article.asking").get_by_label("Reason").press("Enter")
    editor.press("Control+Enter")
    expect(page.get_by_label("The output of the run")).to_have_text("refunded 15 for order 3")


def test_the_playground_completes_names(page: Page, site: str) -> None:
    page.goto(f"{site}playground?kind=plan")
    editor = page.get_by_label("The plan or program")
    with page.expect_response(re.compile("/playground/tools")):
        page.reload()

    editor.fill('{"calls": [{"_tool": "')
    editor.press("End")
    editor.press_sequentially("find_c")
    expect(page.get_by_role("option").first).to_contain_text("find_customer")
    editor.press("Enter")
    editor.press_sequentially('", "')
    expect(page.get_by_role("option").first).to_contain_text("id")
    editor.press("Enter")
    assert editor.input_value() == '{"calls": [{"_tool": "find_customer", "id'
    # The error names the call, and nothing runs.
    editor.fill('{"calls": [{"_tool": "find_custmer", "id": "c1"}]}')
    page.get_by_role("button", name="Check without running").click()
    expect(page.get_by_role("alert")).to_contain_text("find_customer")


def test_the_playground_completes_what_was_written_before_the_tools_arrived(
    page: Page, site: str
) -> None:
    page.add_init_script(HOLD_THE_TOOLS)
    page.goto(f"{site}playground?kind=plan")
    editor = page.get_by_label("The plan or program")

    editor.fill('{"calls": [{"_tool": "find_c')
    expect(page.get_by_role("option")).to_have_count(0)
    page.evaluate("letToolsArrive()")
    expect(page.get_by_role("option").first).to_contain_text("find_customer")


def test_words_of_strangers_stay_words(page: Page, site: str) -> None:
    run(
        page,
        site,
        {
            "calls": [{"_tool": "read_review", "order": 7}, {"_tool": "photograph", "order": 7}],
            "output": "†results.0",
        },
    )
    expect(page.get_by_label("The output of the run")).to_contain_text("<script>")
    expect(page.get_by_label("The output of the run")).to_contain_text("\\u202e")
    page.get_by_role("link", name="Photograph", exact=True).first.click()
    picture = page.get_by_role("img", name="Image 1")
    expect(picture).to_be_visible()
    expect(picture).to_have_js_property("naturalWidth", 10)
    assert "owned" not in page.title()
