"""An idea is written or pasted into the page, shown, and saved as a tool."""

from __future__ import annotations

import html
import re
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from ideabridge.bridge.publishing.written import read_idea
from ideabridge.bridge.store.store import Store
from ideabridge.server.ui.playground import Example
from ideabridge.server.ui.writing import EXAMPLES
from tests.ui.serving import client, send

IDEA = """
name: page_double
description: Doubles <b>a</b> number
context:
  - type: input
    input: {n: 3}
solution:
  calls: [{_tool: compute, code: n + n, n: †input.n, _outputPath: double}]
  output: †state.double
"""


@pytest.fixture
def http(site: str) -> Generator[httpx.Client]:
    with client(site) as found:
        yield found


def write(http: httpx.Client, text: str, **fields: str) -> httpx.Response:
    return send(http, "/ui/write", "/ui/write", text=text, **fields)


def test_an_idea_is_saved_after_it_was_shown(http: httpx.Client) -> None:
    shown = write(http, IDEA, action="save")
    # What nobody has looked at is not saved.
    assert shown.url.path == "/ui/write"
    assert "which runs the calls below. Nothing ran." in shown.text
    assert "n + n" in shown.text
    assert "Doubles &lt;b&gt;a&lt;/b&gt; number" in shown.text
    assert http.get("/ui/ideas/page_double").status_code == 404
    seen = re.search(r'name="seen" value="([0-9a-f]{64})"', shown.text)
    assert seen is not None
    changed = write(http, IDEA.replace("n + n", "n * 2"), action="save", seen=seen[1])
    assert changed.url.path == "/ui/write"
    saved = write(http, IDEA, action="save", seen=seen[1])
    assert saved.url.path == "/ui/ideas/page_double", saved.text
    assert "page_double is now a tool" in saved.text
    # As for a tool that is made from a run, the page says who can call it, and how.
    assert "Assistants can call it now" in saved.text
    assert "It is for all your assistants." in saved.text
    assert "mcp__ideabridge__page_double" in saved.text
    again = write(http, IDEA, action="save", seen=seen[1])
    assert "already has exactly this" in again.text
    assert "Assistants can call it now" not in again.text


def test_an_idea_that_changed_is_checked_before_it_is_saved(page: Page, site: str) -> None:
    page.goto(f"{site}write?view=text")
    idea = page.get_by_label("The tool, as YAML or JSON")
    idea.fill(IDEA)
    check = page.get_by_role("button", name="Preview the tool", exact=True)
    check.click()
    save = page.get_by_role("button", name="Save as a tool")
    expect(save).to_contain_class("good")
    expect(check).not_to_contain_class("good")

    idea.press("End")
    page.keyboard.type(" ")
    expect(save).not_to_contain_class("good")
    expect(check).to_contain_class("good")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_example_is_a_tool(http: httpx.Client, example: Example) -> None:
    text = html.unescape(
        re.findall(
            r"<textarea name=.text.[^>]*>(.*?)</textarea>",
            http.get(f"/ui/write?view=text&example={example.name}").text,
            re.S,
        )[0]
    )
    assert text.strip() == example.text.strip()
    assert "Nothing ran." in write(http, text, action="check").text


def test_an_example_fills_the_editor(page: Page, site: str) -> None:
    page.goto(f"{site}write?view=text")
    editor = page.get_by_label("The tool, as YAML or JSON")
    page.get_by_role("link", name="Code").click()
    expect(editor).to_have_value(re.compile("program: |"))
    expect(editor).to_have_value(re.compile("longest_words"))
    editor.press("Control+z")
    expect(editor).to_have_value(re.compile("with_tax"))


def test_an_idea_that_no_run_made_is_published_by_what_it_holds(
    http: httpx.Client, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        written = read_idea({"context": ["Say a number"], "schema": {"type": "integer"}})
        idea = store.ideas.save(written.idea, written.meta)

    page = f"/ui/ideas/publish?ref={idea}"
    assert "The tool repeats it as it is" in http.get(page).text
    answer = send(
        http,
        "/ui/ideas/publish",
        page,
        ref=idea,
        name="say_number",
        decided="[{}, {}]",
        answer="auto",
    )
    assert answer.url.path == "/ui/ideas/say_number", answer.text
    assert "is now a tool" in answer.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("context: [", "line"),
        ("5", "expected an object"),
        ("context: []", "has no content"),
        ("context: !!python/name:os.system x", "a tag"),
        ("context: [x]\ntitel: <script>", "&#39;titel&#39;|&#34;titel&#34;|titel"),
    ],
)
def test_what_is_malformed_is_told_and_kept(http: httpx.Client, text: str, why: str) -> None:
    answer = write(http, text, action="check")
    assert answer.status_code == 200
    assert re.search(why, answer.text)
    assert 'role="alert"' in answer.text
    assert "<script>" not in answer.text.partition("<main")[2]


def test_a_fault_shows_the_line_that_it_is_about(http: httpx.Client) -> None:
    answer = write(http, "name: x\ncontext: [\n", action="check").text
    assert 'data-language="yaml" data-faults="3"' in answer
    assert 'aria-label="Line 3"' in answer
