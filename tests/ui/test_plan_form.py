"""A tool with fixed steps is put together in a form."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from ideabridge.server.ui.form_tools import FormTools, result_parts
from ideabridge.server.ui.plan_form import PlanForm
from ideabridge.tools import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ArgumentError
from tests.ui.serving import ask, client, send, served
from tests.ui.test_outputs import ended

TOOLS = FormTools(builtin_toolbox())
WITH_TAX: JSONObject = {
    "name": "with_tax",
    "description": "The price with value added tax",
    "context": [{"type": "input", "input": {"net": 100, "percent": 19}}],
    "solution": {
        "calls": [
            {"_tool": "compute", "code": "net * 2", "net": "†input.net", "_outputPath": "tax"},
            {"_tool": "compute", "code": "str(it)", "it": "†state.tax", "_after": ["x"]},
            {"_tool": "sleep", "seconds": 0},
        ],
        "output": {"tax": "†state.tax.sum[0]", "text": "†results.1", "literal": "19"},
    },
}
ODD: JSONObject = {
    "name": "odd",
    "description": 'Two lines,\nand "<b>quotes</b>" &amp; more\n',
    "tags": ["a"],
    "context": [
        {
            "type": "input",
            "input": {},
            "schema": {"type": "object", "properties": {"unused": {"default": 1}}},
        },
        {"role": "user", "content": "x"},
    ],
    "solution": {
        "calls": [
            {"_tool": "elsewhere", "_module": "gone", "a b": {"c": "†results.0"}, "_each": [1]},
            {"_tool": "join", "items": ["\n†x", 1.0], "separator": "\n"},
            {"_tool": "template", "text": {"not": "text"}, "values": "\r"},
            {"_tool": "compute", "code": "a\tb\n", "true": "true", "one": 1.0, "none": None},
        ],
        "output": {"": 1},
    },
}


class Fields(HTMLParser):
    """The fields of the form with the steps, as a browser would send them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self._form = False
        self._name = ""
        self._text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = "plan-form" in has.get("class", "")
        if not self._form:
            return

        name = has.get("name", "")
        if tag == "input":
            self.sent[name] = has.get("value", "")
        elif tag in ("textarea", "select"):
            self._name = name
            self._text = ""
        elif tag == "option" and (self._name not in self.sent or "selected" in has):
            self.sent[self._name] = has.get("value", "")

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._form:
            # A browser leaves out a line break at the beginning, and sends two characters for one.
            self.sent[self._name] = self._text.removeprefix("\n").replace("\n", "\r\n")


@pytest.fixture
def http(site: str) -> Generator[httpx.Client]:
    with client(site) as opened:
        yield opened


def press(http: httpx.Client, fields: dict[str, str], action: str) -> httpx.Response:
    return send(http, "/ui/write", "/ui/write", **{**fields, "view": "form", "action": action})


def shown(http: httpx.Client, document: JSONObject) -> httpx.Response:
    return send(http, "/ui/write", "/ui/write", text=json.dumps(document), action="form")


def text_of(answer: httpx.Response) -> Any:
    parser = Editor()
    parser.feed(answer.text)
    return json.loads(parser.text)


class Editor(HTMLParser):
    """The text in the editor of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._is_inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_inside = tag == "textarea" and ("name", "text") in attrs

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = False


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
TEXT_MEMBERS = st.sampled_from(["name", "description", "answer"])
NAMES = st.sampled_from(["net", "code", "items", "by", "path", "a b", "x"])
REFERENCES = st.sampled_from(
    [
        "†input.net",
        "†input.net.x",
        "†state.a",
        "†state.a.b[0]",
        "†results.0",
        "††x",
        "†state.a || 1",
    ]
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | REFERENCES,
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(TEXTS, parts, max_size=2),
    max_leaves=4,
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "_outputPath": st.sampled_from(["a", "†state.a", "b || c"]) | TEXTS,
        "_module": st.sampled_from(["own", "idea:x"]),
        "_each": VALUES,
    },
)


@st.composite
def documents(draw: st.DrawFn) -> JSONObject:
    calls: list[JSON] = []
    for _ in range(draw(st.integers(0, 4))):
        tool = draw(st.sampled_from(["compute", "count", "sleep", "join", "elsewhere"]))
        values = draw(st.dictionaries(NAMES, VALUES, max_size=4))
        calls.append({**values, **draw(MORE), "_tool": tool})

    solution: JSONObject = {"calls": calls}
    if draw(st.booleans()):
        solution["output"] = draw(VALUES)
    examples = draw(st.dictionaries(NAMES, VALUES, max_size=3))
    members: JSONObject = {name: draw(TEXTS) for name in draw(st.sets(TEXT_MEMBERS))}
    return {"context": [{"type": "input", "input": examples}], "solution": solution, **members}


@settings(max_examples=150, deadline=None)
@given(documents())
def test_what_the_form_shows_is_the_same_tool(document: JSONObject) -> None:
    try:
        form = PlanForm.of(document, TOOLS)
    except ArgumentError:
        return
    assert same(form.document(TOOLS), document)


def same(first: Any, second: Any) -> bool:
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


@pytest.mark.parametrize("document", [WITH_TAX, ODD], ids=["usual", "odd"])
def test_fixed_steps_come_back_unchanged_from_the_browser(
    http: httpx.Client, document: JSONObject
) -> None:
    fields = Fields(shown(http, document).text).sent
    assert "s0.tool" in fields
    again = Fields(press(http, fields, "show").text).sent
    assert same(text_of(press(http, again, "text")), document)


def test_values_show_where_they_come_from(http: httpx.Client) -> None:
    fields = Fields(shown(http, WITH_TAX).text).sent
    assert fields["s0.v1.source"] == "ask"
    assert fields["s1.v1.source"] == "step0"
    assert fields["r0.part"] == "sum[0]"


def test_a_tool_is_put_together_tried_and_saved(http: httpx.Client) -> None:
    fields = Fields(http.get("/ui/write").text).sent
    fields |= {"name": "Twice as much", "description": "Doubles a number"}
    fields = Fields(press(http, fields | {"tool": '[null,"compute"]'}, "add").text).sent
    fields |= {"s0.v0.text": "n * 2"}
    fields = Fields(press(http, fields, "value.0").text).sent
    fields |= {"s0.v1.name": "n", "s0.v1.source": "ask"}

    asking = press(http, fields, "try").text
    assert "n: enter an example to try the tool with." in asking
    fields = Fields(asking).sent | {"p0.example": "21", "p0.description": "Any number"}
    tried = press(http, fields, "try").text
    assert re.search(r'id="trial".*42', tried, re.S)
    saved = press(http, Fields(tried).sent, "save")
    assert saved.url.path == "/ui/ideas/twice_as_much", saved.text

    again = Fields(http.get("/ui/write?tool=twice_as_much").text).sent
    assert again["p0.description"] == "Any number"
    assert again["r0.source"] == "step0"


def test_steps_move_with_the_values_that_come_from_them(http: httpx.Client) -> None:
    fields = Fields(shown(http, WITH_TAX).text).sent
    moved = Fields(press(http, fields, "down.1").text).sent
    assert (moved["s1.tool"], moved["s2.v1.source"]) == ('[null,"sleep"]', "step0")
    assert moved["r1.source"] == "step2"

    without = Fields(press(http, moved, "remove.0").text)
    assert without.sent["s1.v1.source"] == "value"
    refused = press(http, without.sent, "save").text
    assert "Step 2, it: enter a value." in refused


COMMENTED = """\
name: commented  # how it is called
context: []
solution:
  calls: [{_tool: compute, code: 1 + 1}]
"""


def test_comments_that_the_form_loses_are_told_before_it_saves(http: httpx.Client) -> None:
    lost = "Comments in the text are lost in the form."
    form = send(http, "/ui/write", "/ui/write", text=COMMENTED, action="form").text
    assert lost in form
    # The text with its comments is still there after a change in the form.
    changed = press(http, Fields(form).sent, "show").text
    assert lost in changed
    again = press(http, Fields(changed).sent, "commented").text
    assert "# how it is called" in again

    plain = COMMENTED.replace("  # how it is called", "").replace("1 + 1", "len('#')")
    assert lost not in send(http, "/ui/write", "/ui/write", text=plain, action="form").text


def test_comments_in_a_file_of_a_tool_are_told_before_the_form_saves(
    http: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "commented.yaml").write_text(COMMENTED, encoding="utf-8")
    fields = Fields(send(http, "/ui/write", "/ui/write", text=COMMENTED, action="form").text).sent
    assert press(http, fields, "save").url.path == "/ui/ideas/commented"
    form = http.get("/ui/write?tool=commented").text
    assert "are lost in the form." in form
    link = re.search('href="(/ui/write[?]view=text&amp;file=commented.yaml)"', form)
    assert link is not None
    assert "# how it is called" in http.get(link[1].replace("&amp;", "&")).text


def test_what_has_no_form_stays_text(http: httpx.Client) -> None:
    answer = shown(http, {"context": ["Say a number"]}).text
    assert "Only a tool with fixed steps has a form." in answer
    assert "Say a number" in answer


@pytest.mark.parametrize(
    ("fields", "action", "why"),
    [
        ({"tool": '[null,"nothing"]'}, "add", "There is no tool"),
        ({"tool": "<b>"}, "add", "is not a tool. Choose one from the list."),
        ({"s0.tool": "[1,2]"}, "show", "is not a tool. Choose one from the list."),
        ({}, "remove.7", "There is no step 8."),
        (
            {"s0.tool": '[null,"sleep"]', "s0.v0.name": "seconds", "s0.v0.source": "value"}
            | {"s0.v0.text": "<soon>"},
            "save",
            "Step 1, seconds: expected a number",
        ),
        (
            {"s0.tool": '[null,"sleep"]', "s0.v0.name": "seconds", "s0.v0.source": "step5"},
            "save",
            "Step 1, seconds: choose a step that runs before it.",
        ),
        ({"rest": "[1]"}, "save", "What the form does not show: expected an object"),
        (
            {f"s{place}.tool": '[null,"sleep"]' for place in range(60)},
            "show",
            "A form has at most 20 steps.",
        ),
        (
            {f"r{place}.source": "value" for place in range(900)},
            "show",
            "A form has at most 48 values.",
        ),
    ],
)
def test_hostile_forms_are_refused_in_a_sentence(
    http: httpx.Client, fields: dict[str, str], action: str, why: str
) -> None:
    answer = press(http, {"name": "hostile"} | fields, action)
    assert answer.status_code == 200
    assert why in answer.text
    assert 'role="alert"' in answer.text
    assert "<soon>" not in answer.text
    assert http.get("/ui/ideas/hostile").status_code == 404


def test_a_form_of_another_page_saves_nothing(http: httpx.Client) -> None:
    fields = {"view": "form", "action": "save", "name": "foreign", "secret": "x"}
    assert http.post("/ui/write", data=fields).status_code == 403
    assert http.get("/ui/ideas/foreign").status_code == 404


def options_of(http: httpx.Client, document: JSONObject, field: str) -> dict[str, str]:
    """The options of a list of choices, by value."""
    page = shown(http, document).text
    listed = page.partition(f'name="{field}"')[2].partition("</select>")[0]
    return dict(re.findall('<option value="([^"]*)"[^>]*>([^<]*)<', listed))


def test_results_are_named_after_their_steps(http: httpx.Client) -> None:
    calls: list[JSON] = [
        {"_tool": "list_orders"},
        {"_tool": "compute", "code": "1"},
        {"_tool": "compute", "code": "o", "o": "†results.0"},
    ]
    document: JSONObject = {"context": [], "solution": {"calls": calls, "output": "†results.2"}}
    options = options_of(http, document, "r0.source")
    assert options["step0"] == "Result of List orders"
    assert options["step1"] == "Result of Compute (step 2)"
    assert options["step2"] == "Result of Compute (step 3)"


ORDERS = """
from ideabridge.tools import tool

@tool(title="Orders of a shop", read_only=True)
def orders():
    return [{"id": 1, "customer": "c1"}]
"""


def test_a_part_of_a_result_is_chosen_from_those_that_the_latest_call_had(tmp_path: Path) -> None:
    tools = tmp_path / "shop.py"
    tools.write_text(ORDERS, encoding="utf-8")
    calls: list[JSON] = [
        {"_tool": "orders", "_outputPath": "orders"},
        {"_tool": "count", "items": "†state.orders[0].customer"},
    ]
    output: JSONObject = {"first": "†state.orders[0].id", "all": "†state.orders"}
    document: JSONObject = {"context": [], "solution": {"calls": calls, "output": output}}
    with served(tmp_path, tools=tools) as url, client(url) as http:
        fields = Fields(shown(http, document).text).sent
        assert fields["r0.source"] == "step0"
        assert fields["r0.part"] == "[0].id"

        ended(http, ask(http, {"_tool": "orders"}))
        options = options_of(http, document, "s1.v0.source")
        assert options["step0:[0].customer"] == "customer of the first item of Orders of a shop"
        fields = Fields(shown(http, document).text).sent
        assert fields["s1.v0.source"] == "step0:[0].customer"
        assert fields["r0.source"] == "step0:[0].id"
        assert fields["r1.source"] == "step0"
        # What was chosen from a list is not entered again, so another choice takes its place.
        assert fields["r0.part"] == ""
        assert same(text_of(press(http, fields, "text")), document)
        chosen = text_of(press(http, fields | {"r0.source": "step0"}, "text"))
        assert chosen["solution"]["output"]["first"] == "†state.orders"


def test_a_schema_that_refers_to_another_names_parts() -> None:
    order: JSONObject = {"type": "object", "properties": {"id": {}, "two words": {}}}
    schema: JSONObject = {
        "type": "array",
        "items": {"$ref": "#/$defs/Order"},
        "$defs": {"Order": order},
    }
    assert [part.path for part in result_parts(schema)] == ["[0]", "[0].id"]
    assert [part.words for part in result_parts(order)] == ["id"]
    assert result_parts({"$ref": "#"}) == []


def test_a_value_shows_what_its_source_needs(page: Page, site: str) -> None:
    page.goto(f"{site}write?example=calls")
    asked = page.get_by_label("Parameter for net")
    expect(asked).to_be_visible()
    page.get_by_label("Where net comes from").select_option("Always this")
    expect(asked).to_be_hidden()
    expect(page.get_by_label("net", exact=True)).to_be_visible()
    page.get_by_label("Next step").select_option("Count")
    page.get_by_role("button", name="Add step").click()
    expect(page.get_by_role("heading", name="Count")).to_be_in_viewport()
    expect(page.get_by_text("Formula", exact=True)).to_be_visible()
    source = page.get_by_label("Where tax comes from")
    expect(source).to_have_value("step0")
    expect(page.get_by_label("Part of the result for tax")).to_be_visible()
    expect(page.get_by_label("tax", exact=True)).to_be_hidden()
    source.select_option("Always this")
    expect(page.get_by_label("tax", exact=True)).to_be_visible()


def test_a_tool_without_steps_cannot_be_saved(page: Page, site: str) -> None:
    page.goto(f"{site}write")
    save = page.get_by_role("button", name="Save as a tool")
    expect(save).to_be_disabled()
    expect(save).to_have_accessible_description("Add a first step.")
