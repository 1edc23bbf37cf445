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

from ideabridge.tools.encoding import JSONObject
from tests.seeds.examples import INSTANCES, MESSAGES
from tests.ui.serving import client, send, served
from tests.ui.test_servers import OWN, configured


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
    tools = page.get_by_role("list", name="Tools")
    page.get_by_label("Search tools").fill("refund")
    expect(tools.get_by_role("listitem")).to_have_count(1)
    tools.get_by_role("button", name="refund").click()
    expect(editor).to_have_value('{"_tool": "refund", "order": , "amount": }')
    page.get_by_label("Search tools").fill("no such tool")
    expect(page.get_by_text("No tool has these words.")).to_be_visible()


def test_a_tool_leads_to_the_form_that_calls_it(page: Page, site: str, http: httpx.Client) -> None:
    page.goto(f"{site}playground?kind=plan")
    page.get_by_label("Search tools").fill("refund")
    page.get_by_role("link", name="Try refund").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("refund")
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
    row = page.get_by_role("list", name="Tools").get_by_role("listitem")
    expect(row).to_contain_text("Count a and <b>.")
    expect(row.locator("code")).to_have_text(["a", "<b>"])
    expect(row.get_by_role("link")).to_have_count(0)


def test_a_tool_is_chosen_filled_in_and_run(page: Page, site: str) -> None:
    page.goto(f"{site}playground")
    expect(page.get_by_role("link", name="One tool")).to_have_attribute("aria-current", "page")
    page.locator("select[name=tool]").select_option("find_customer")
    page.get_by_role("button", name="Fill in its fields").click()
    form = page.locator("#call-form")
    form.get_by_label(re.compile("^id")).fill("c1")
    form.get_by_role("button", name="Run").click()
    expect(page.locator("#head .status")).to_have_text("done")
    expect(page.locator("#result")).to_contain_text("Customer c1")


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
    assert "expected a task, or a context" in playground(http, "[]", "run").text
    assert "/runs/run_" in str(playground(http, "[]", "run", title="Name a river.").url)
