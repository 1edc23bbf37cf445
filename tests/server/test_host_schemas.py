"""Schemas as hosts take them: objects, no references, nothing combined at the top. Calls are held
to the exact one.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from ideabridge.server.answers import object_input, object_output
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.schema import Validator

from .serving import ERAS, all_tools, call, refused
from .test_catalogue import fronted, publish

pytestmark = pytest.mark.anyio

TEXT: JSONObject = {"type": "string"}
NUMBER: JSONObject = {"type": "integer"}
NODE: JSONObject = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "name": TEXT,
                "next": {"$ref": "#/$defs/Node"},
                "size": {"$ref": "#size"},
            },
            "required": ["name"],
        },
        "Size": {"$anchor": "size", "type": "integer"},
    },
}
REFUSED = {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "$ref", "$defs"}


def one_of(keyword: str) -> JSONObject:
    return {
        "type": "object",
        "description": "What to open.",
        "properties": {"tab": NUMBER},
        "required": ["tab"],
        "unevaluatedProperties": False,
        keyword: [
            {"properties": {"url": TEXT}, "required": ["url", "tab"]},
            {"properties": {"file": TEXT, "line": NUMBER}, "required": ["file", "line"]},
        ],
    }


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_alternatives_stand_side_by_side_and_are_told_in_words(keyword: str) -> None:
    assert object_input(one_of(keyword)) == {
        "type": "object",
        "description": "What to open. Give url or file with line.",
        "properties": {"tab": NUMBER, "url": TEXT, "file": TEXT, "line": NUMBER},
        "required": ["tab"],
    }


def test_what_all_alternatives_need_is_required() -> None:
    told = object_input(
        {"anyOf": [{"required": ["a", "b"]}, {"required": ["b", "c"]}], "type": "object"}
    )
    assert told["required"] == ["b"]
    assert told["description"] == "Give a or c."


def test_parts_that_all_hold_and_conditions_are_put_together() -> None:
    schema: JSONObject = {
        "allOf": [
            {"properties": {"a": TEXT}, "required": ["a"]},
            {"properties": {"a": NUMBER, "b": TEXT}},
        ],
        "if": {"properties": {"a": {"const": "x"}}},
        "then": {"properties": {"c": TEXT}, "required": ["c"]},
        "not": {"required": ["d"]},
    }
    assert object_input(schema) == {
        "type": "object",
        "properties": {"a": {"anyOf": [TEXT, NUMBER]}, "b": TEXT, "c": TEXT},
        "required": ["a"],
    }


def test_a_recursive_schema_is_cut_and_its_output_wrapped() -> None:
    told = object_input(NODE)
    assert "$" not in str(told)
    properties: Any = told["properties"]
    assert properties["size"] == NUMBER
    assert properties["next"]["description"] == "as above (recursive)"
    output, wrapped = object_output({"type": "array", "items": NODE["$ref"] and {"$ref": "#"}})
    assert wrapped
    assert "$" not in str(output)


def test_forms_that_hosts_refuse_are_written_otherwise() -> None:
    schema: JSONObject = {
        "type": "object",
        "properties": {
            "any": True,
            "none": False,
            "free": {"type": "object"},
            "list": {"type": "array", "description": "Any items."},
            "deep": {"type": "array", "items": {"type": "object", "properties": {"x": True}}},
            "either": {
                "type": ["array", "string", "null"],
                "items": TEXT,
                "minLength": 2,
                "description": "Some.",
            },
        },
        "additionalProperties": False,
    }
    expected: JSONObject = {
        "type": "object",
        "properties": {
            "any": {},
            "none": {"not": {}},
            "free": {"type": "object", "additionalProperties": True},
            "list": {"type": "array", "description": "Any items.", "items": {}},
            "deep": {"type": "array", "items": {"type": "object", "properties": {"x": {}}}},
            "either": {
                "description": "Some.",
                "anyOf": [
                    {"type": "array", "items": TEXT},
                    {"type": ["string", "null"], "minLength": 2},
                ],
            },
        },
        "additionalProperties": False,
    }
    assert object_input(schema) == expected
    assert object_output(schema) == (expected, False)
    assert object_input({"type": "object"}) == {"type": "object"}


@given(
    st.lists(
        st.sampled_from(["array", "object", "string", "integer", "null"]), min_size=1, unique=True
    )
)
def test_a_list_of_types_admits_what_it_did(types: list[str]) -> None:
    keywords: JSONObject = {
        "items": NUMBER,
        "minItems": 1,
        "minLength": 2,
        "minimum": 5,
        "required": ["a"],
    }
    schema: JSONObject = {"type": list[JSON](types), **keywords}
    told = object_input({"properties": {"x": schema}})
    exact = Validator({"properties": {"x": schema}}, what="W")
    plain = Validator(told, what="W")
    values: list[JSON] = [[], [1], ["1"], {}, {"a": 1}, "a", "ab", 4, 5, None, True]
    for value in values:
        assert exact.is_valid({"x": value}) == plain.is_valid({"x": value})


LETTERS = st.sampled_from("abc")


def part_of(properties: dict[str, JSONObject], required: list[str]) -> JSONObject:
    return {"properties": dict[str, JSON](properties), "required": list[JSON](required)}


PARTS = st.builds(
    part_of,
    st.dictionaries(LETTERS, st.sampled_from([TEXT, NUMBER, {}]), max_size=2),
    st.lists(LETTERS, max_size=2, unique=True),
)


def combined(part: JSONObject, keyword: str, parts: list[JSONObject]) -> JSONObject:
    return {**part, keyword: list[JSON](parts)}


KEYWORDS = st.sampled_from(["anyOf", "oneOf", "allOf"])
SCHEMAS: st.SearchStrategy[JSONObject] = st.recursive(
    PARTS,
    lambda inner: st.builds(combined, PARTS, KEYWORDS, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=5,
)


@given(SCHEMAS)
def test_what_is_told_is_an_object_that_asks_for_nothing_the_exact_schema_does_not(
    schema: JSONObject,
) -> None:
    told = object_input(schema)
    assert told["type"] == "object"
    assert not told.keys() & REFUSED
    required = told.get("required", [])
    assert isinstance(required, list)
    exact = Validator(schema, what="W")
    for name in required:
        rest: JSONObject = {key: None for key in "abc" if key != name}
        values: list[JSON] = [
            rest,
            {**rest, **dict.fromkeys(rest, 1)},
            {**rest, **dict.fromkeys(rest, "x")},
        ]
        assert not any(exact.is_valid(value) for value in values)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_published_idea_is_told_plainly_and_held_to_its_exact_schemas(mode: str) -> None:
    async with fronted() as front:
        publish(front, "open_it", parameters=one_of("oneOf"), given={"tab": 1, "url": "x"})
        publish(front, "walk", parameters=NODE, output=NODE, given={"name": "x"})
        async with Client(front.server, mode=mode) as client:
            tools = await all_tools(client)
            for name in ("open_it", "walk"):
                assert not tools[name].input_schema.keys() & REFUSED
                assert "$" not in str(tools[name].input_schema)
            assert "$" not in str(tools["walk"].output_schema)
            assert await call(client, "open_it", tab=1, url="x") == {"result": 1}
            assert "expected" in await refused(client, "open_it", tab=1)
            # The recorded answer is not a node, so the check against the schema refuses it before
            # it is sent.
            assert "output of walk" in await refused(client, "walk", name="x")


PATTERNS = [
    *(
        ("^[a-z]+$", True),
        (r"^(?!\.)[\w.\-]+@(?:[\w-]+\.)+[A-Za-z]{2,}$", True),
        (r"^(?<year>\d{4})$", True),
    ),
    *(
        ("(?i)abc", False),
        ("(?P<a>x)", False),
        ("a++", False),
        ("(?>a)", False),
        (r"\@", False),
        (r"x\Z", False),
    ),
]


@pytest.mark.parametrize(("pattern", "is_shown"), PATTERNS)
def test_patterns_that_javascript_does_not_have_are_not_shown(pattern: str, is_shown: bool) -> None:
    one: JSONObject = {"type": "string", "pattern": pattern}
    many: JSONObject = {
        "type": "object",
        "patternProperties": {pattern: TEXT},
        "additionalProperties": False,
    }
    told: Any = object_input({"type": "object", "properties": {"a": one, "b": many}})["properties"]
    assert ("pattern" in told["a"]) == is_shown
    assert told["b"].get("additionalProperties", True) == (not is_shown)
    assert (pattern in told["b"]["patternProperties"]) == is_shown


def test_no_name_of_a_schema_is_shown_and_no_value_twice() -> None:
    """Two tools with one `$id`, and a draft that nobody knows, cost hosts on JavaScript
    their whole list.
    """
    schema: JSONObject = {
        "$schema": "https://example.com/own-draft",
        "$id": "https://example.com/input",
        "type": "object",
        "properties": {"$id": TEXT, "a": {"$anchor": "a", "enum": [1, 2, 1]}},
    }
    expected: JSONObject = {"type": "object", "properties": {"$id": TEXT, "a": {"enum": [1, 2]}}}
    assert object_input(schema) == expected
    assert object_output(schema) == (expected, False)
