"""The playground has examples that run. It takes contexts: it checks them, and solves them with or
without a task.
"""

from __future__ import annotations

import html
import re
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from ideabridge.server.ui.playground import ToolChoices
from ideabridge.server.ui.tool_titles import NO_TITLES
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import Tool
from tests.seeds.examples import INSTANCES, MESSAGES
from tests.ui.serving import client, send, served
from tests.ui.test_servers import OWN, configured
from tests.ui.test_tools import WRITTEN, words_of, write_idea


@pytest.fixture
def http(site: str) -> Generator[httpx.Client]:
    with client(site) as found:
        yield found


def playground(http: httpx.Client, text: str, action: str, **more: str) -> httpx.Response:
    return send(http, "/ui/playground", kind="context", text=text, action=action, **more)


@pytest.mark.parametrize("kind", ["plan", "program"])
def test_each_example_runs(page: Page, site: str, kind: str) -> None:
    page.goto(f"{site}playground?kind={kind}")
    examples = page.locator("#examples").get_by_role("link")
    expect(examples).to_have_count(2)
    for number in range(2):
        page.goto(f"{site}playground?kind={kind}")
        examples.nth(number).click()
        expect(examples.nth(number)).to_have_attribute("aria-current", "true")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.locator("#head .status")).to_have_text("done")


def test_an_example_fills_the_editor_and_can_be_taken_back(page: Page, site: str) -> None:
    page.goto(f"{site}playground?kind=plan")
    editor = page.get_by_label("The plan or program")
    editor.fill('{"calls": []}')
    page.get_by_role("link", name="A call for each item").click()
    expect(editor).to_have_value(re.compile("_each"))
    editor.press("Control+z")
    expect(editor).to_have_value('{"calls": []}')


def test_a_tool_is_found_and_written_into_the_editor(page: Page, site: str) -> None:
    page.goto(f"{site}playground?kind=plan")
    editor = page.get_by_label("The plan or program")
    editor.fill("")
    tools = page.get_by_role("group", name="Tools", exact=True)
    # The tools of a person are open, and those that are always there are folded.
    groups = tools.locator("details")
    expect(groups.locator("summary")).to_have_text(["From files 5", "Built in 7"])
    expect(groups.first).to_have_attribute("open", "")
    expect(groups.last).not_to_have_attribute("open", "")
    page.get_by_label("Search tools").fill("refund")
    expect(tools.get_by_role("button")).to_have_count(1)
    expect(groups.locator("summary")).to_have_text("From files 1")
    expect(page.get_by_role("heading", name=re.compile(r"1 of \d+ tools"))).to_be_visible()
    tools.get_by_role("button", name="refund").click()
    expect(editor).to_have_value('{"_tool": "refund", "order": , "amount": }')
    page.get_by_label("Search tools").fill("no such tool")
    expect(page.get_by_text("No tool has these words.")).to_be_visible()


def test_a_tool_leads_to_the_form_that_calls_it(page: Page, site: str, http: httpx.Client) -> None:
    page.goto(f"{site}playground?kind=plan")
    page.get_by_label("Search tools").fill("refund")
    page.get_by_role("link", name="Try refund").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Refund")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    # Every tool that the list offers has such a page, and no description ends in the middle of a
    # word.
    for tool in http.get("/ui/playground/tools").json():
        assert http.get(f"/ui/{tool['page']}").status_code == 200, tool
        assert not re.search(r"\S…$", tool["description"]), tool


def test_code_in_the_description_of_a_tool_is_code(page: Page, site: str) -> None:
    described = "Count `a` and `<b>`."
    offered: JSONObject = {"name": "counting", "program": "", "page": "", "parameters": []}
    page.route(
        "**/playground/tools",
        lambda route: route.fulfill(json=[offered | {"description": described}]),
    )
    page.goto(f"{site}playground?kind=plan")
    row = page.get_by_role("group", name="Tools", exact=True).get_by_role("listitem")
    expect(row).to_contain_text("Count a and <b>.")
    expect(row.locator("code")).to_have_text(["a", "<b>"])
    expect(row.get_by_role("link")).to_have_count(0)


def test_a_built_in_tool_is_described_in_plain_words(page: Page, site: str) -> None:
    page.goto(f"{site}playground")
    tools = page.get_by_role("navigation", name="Tools", exact=True)
    tools.get_by_text("Built in").click()
    tools.get_by_role("link", name="compute Calculate a value").click()
    # Once it is chosen, the page shows the whole description.
    chosen = page.locator("#chosen")
    expect(chosen).to_contain_text("Evaluate one Python expression.")
    expect(tools.locator("[aria-current]")).to_be_visible()
    # On a phone, the other tools are folded then.
    page.set_viewport_size({"width": 390, "height": 800})
    expect(tools).to_be_hidden()
    page.get_by_text("Choose another tool").click()
    expect(tools).to_be_visible()


def test_a_tool_is_chosen_filled_in_and_run(page: Page, site: str) -> None:
    page.goto(f"{site}playground")
    expect(page.get_by_role("link", name="One tool")).to_have_attribute("aria-current", "page")
    tools = page.get_by_role("navigation", name="Tools", exact=True)
    tools.get_by_role("link", name="Find customer").click()
    form = page.locator("#call-form")
    form.get_by_label(re.compile("^id")).fill("c1")
    form.get_by_role("button", name="Run").click()

    # What was entered stays, and the result is below it.
    trial = page.locator("#trial")
    expect(trial.locator(".status")).to_have_text("done")
    expect(trial.locator(".tree")).to_contain_text("Customer c1")
    expect(form.get_by_label(re.compile("^id"))).to_have_value("c1")
    trial.get_by_role("link", name="The run, step by step").click()
    expect(page.locator("#head .status")).to_have_text("done")


def test_a_tool_that_was_made_here_is_tried(http: httpx.Client) -> None:
    write_idea(http, WRITTEN, "with_tax")
    path = "/ui/playground?tool=ideas%2Fwith_tax"
    assert "Made here 1 With tax" in words_of(http.get(path).text)
    fields = {"from": "playground", "p.net": "7"}
    tried = send(http, "/ui/ideas/with_tax/call", path, **fields)
    assert tried.url.path == "/ui/playground"
    assert 'name="p.net" type="number" value="7"' in tried.text
    assert "14" in words_of(tried.text.partition('id="trial"')[2])
    # The editor of a plan offers the same tools.
    offered = http.get("/ui/playground/tools").json()
    assert f"{len(offered)} tools" in words_of(http.get(path).text)
    [made] = [tool for tool in offered if tool["name"] == "with_tax"]
    assert made["group"] == "Made here"
    plan = '{"calls": [{"_tool": "with_tax", "net": 8}], "output": "†results.0"}'
    checked = send(http, "/ui/playground", kind="plan", text=plan, action="check").text
    assert "which only reads. Nothing ran." in checked


def test_a_trial_says_what_it_waits_for_and_what_went_wrong(http: httpx.Client) -> None:
    path = "/ui/playground?tool=modules%2Ftools%2Ftools%2Frefund"
    fields = {"from": "playground", "tool": "refund", "p.order": "1", "p.amount": "2.5"}
    asking = send(http, "/ui/modules/tools/call", path, **fields).text
    assert "It needs approval." in words_of(asking.partition('id="trial"')[2])
    assert 'type="number" value="2.5"' in asking

    path = "/ui/playground?tool=modules%2Ftools%2Ftools%2Ffind_customer"
    fields = {"from": "playground", "tool": "find_customer", "p.id": "c9"}
    failed = send(http, "/ui/modules/tools/call", path, **fields).text
    assert "there is no customer c9" in words_of(failed.partition('id="trial"')[2])
    assert http.get("/ui/playground?run=run_of_nobody").status_code == 404


def test_the_tools_to_choose_from_are_grouped_counted_and_searched(http: httpx.Client) -> None:
    shown = words_of(http.get("/ui/playground").text)
    count = re.search(r"(\d+) tools? ", shown)
    assert count is not None
    counted = re.findall(r"(?:From files|Built in) (\d+)", shown)
    assert sum(map(int, counted)) == int(count[1])
    found = words_of(http.get("/ui/playground?q=REFUND").text)
    assert f"1 of {count[1]} tools has these words." in found
    assert "find_customer" not in found
    nothing = words_of(http.get("/ui/playground?q=no+such+tool").text)
    assert f"0 of {count[1]} tools have these words." in nothing


def test_more_tools_than_fit_are_counted() -> None:
    tools = [Tool(f"tool_{number:03}", "A tool.", {}, module="many") for number in range(300)]
    choices = ToolChoices.of([(tool, tool.name) for tool in tools], NO_TITLES, "")
    [group] = choices.groups
    assert (choices.total, choices.found, group.count) == (300, 300, 300)
    assert len(group.tools) + choices.left_out == 300
    assert choices.left_out > 0
    assert ToolChoices.of([(tool, tool.name) for tool in tools], NO_TITLES, "tool_29").left_out == 0


def test_the_editor_has_numbered_and_coloured_lines(page: Page, site: str) -> None:
    page.goto(f"{site}playground?kind=plan")
    editor = page.get_by_label("The plan or program")
    editor.fill('{"calls": [],\n "output": [1, true]}')
    expect(page.locator(".lines span")).to_have_text(["1", "2"])
    paint = page.locator(".paint")
    assert paint.text_content() == '{"calls": [],\n "output": [1, true]}\n'
    expect(paint.locator(".h-nt")).to_have_text(['"calls"', '"output"'])
    expect(paint.locator(".h-mi")).to_have_text(["1"])
    expect(paint.locator(".h-k")).to_have_text(["true"])
    editor.fill("\n".join(f'{{"_tool": "tool_{number}"}},' for number in range(100)))
    editor.evaluate("area => area.scrollTo(0, 300)")
    page.wait_for_function("document.querySelector('.paint').scrollTop === 300")
    page.wait_for_function("document.querySelector('.lines').scrollTop === 300")


def test_a_fault_names_its_line(page: Page, site: str) -> None:
    page.goto(f"{site}playground?kind=plan")
    page.get_by_label("The plan or program").fill('{"calls": [\n {"_tool": }\n]}')
    page.get_by_role("button", name="Check without running").click()
    expect(page.get_by_role("alert")).to_contain_text("line 2")
    expect(page.get_by_label("Line 2")).to_contain_text('{"_tool": }')
    expect(page.locator(".lines .fault")).to_have_text("2")

    # The line of a call is found, although the fault names only the call.
    plan = '{"calls": [\n {"_tool": "list_orders"},\n {"_tool": "lst_orders"}\n]}'
    page.get_by_label("The plan or program").fill(plan)
    page.get_by_role("button", name="Check without running").click()
    expect(page.get_by_label("Line 3")).to_contain_text("lst_orders")


def test_run_is_the_first_button_and_checking_the_second(page: Page, site: str) -> None:
    page.goto(f"{site}playground?kind=plan")
    buttons = page.locator("form.playground button[name=action]:visible")
    expect(buttons).to_have_text(["Run", "Check without running"])
    run = buttons.first
    check = buttons.last
    expect(run).to_contain_class("good")
    expect(check).not_to_contain_class("good")

    check.click()
    expect(page.get_by_role("status")).to_have_text(
        "Checked: it would make 2 calls in 2 steps, which only read. Nothing ran."
    )
    # Pressing Enter in a field of one line also only checks.
    page.get_by_label("Title").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Nothing ran.")
    page.get_by_label("The plan or program").press("End")
    page.keyboard.type(" ")
    expect(run).to_contain_class("good")
    expect(check).not_to_contain_class("good")

    page.keyboard.press("Control+Enter")
    expect(page.locator("#head .status")).to_have_text("done")


def test_an_example_asks_a_server_that_is_there(tmp_path: Path) -> None:
    configured(tmp_path, {"own": OWN})
    with served(tmp_path) as url, client(url) as http:
        while "Ask own" not in http.get("/ui/playground?kind=plan").text:
            pass
        shown = http.get("/ui/playground?kind=plan&example=server").text
        text = html.unescape(
            re.findall(r"<textarea name=.text.[^>]*>(.*?)</textarea>", shown, re.S)[0]
        )
        assert '"_module": "own"' in text
        run = send(http, "/ui/playground", kind="plan", text=text, action="run").url.path
        while "s-done" not in (ended := http.get(run).text):
            assert "s-failed" not in ended
        assert str(len(str(tmp_path))) in ended


def test_a_context_is_checked_with_its_types_and_instances(http: httpx.Client) -> None:
    shown = playground(http, INSTANCES, "check").text
    assert "2 messages" in shown
    assert shown.count("<code>state</code> from user, instance") == 2
    assert "without one, an assistant does, by turns" in shown
    assert (
        "1 message"
        in playground(http, "# by hand\n- role: system\n  content: Be brief.\n", "check").text
    )
    wrong = (
        ('[{"type": "state"}]', "requires the member"),
        ('{"messages": []}', "found no context"),
        ("[1", "the context"),
        ('[{"type": "state", "state": {}, "_instance": "a b"}]', "without white space"),
    )
    for text, told in wrong:
        for action in ("check", "run"):
            shown = playground(http, text, action).text
            assert 'role="alert"' in shown
            assert told in shown


@pytest.mark.parametrize(
    ("text", "task"), [(INSTANCES, ""), (MESSAGES, ""), (MESSAGES, "Name its river.")]
)
def test_a_context_is_solved(http: httpx.Client, text: str, task: str) -> None:
    answer = playground(http, text, "run", title=task, input='{"n": 1}', thought_process="yes")
    assert re.fullmatch(r".*/runs/run_[0-9a-f]+", str(answer.url)), answer.text
    assert answer.status_code == 200
    assert task in answer.text


def test_an_empty_context_needs_a_task(http: httpx.Client) -> None:
    assert "pass a task, or a context that says what to do" in playground(http, "[]", "run").text
    assert "/runs/run_" in str(playground(http, "[]", "run", title="Name a river.").url)
