"""The schema that endpoints are shown: wider than the exact one, and without what they refuse."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from hypothesis import given, settings

from ideabridge.bridge.minds.adapt import MAX_DEPTH, adapted_schema, is_closed
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import children, resolve
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool
from tests.tools.schemas import check_meta, parameters

TAKEN = {
    *("type", "enum", "const", "required", "description", "default", "$ref", "$defs"),
    *("properties", "items", "additionalProperties", "anyOf"),
}


def parts(schema: JSON) -> Iterator[JSONObject]:
    assert isinstance(schema, dict), "no boolean schemas"
    yield schema
    for place, child in children(schema):
        if place != ("additionalProperties",) or child is not False:
            yield from parts(child)


@settings(max_examples=80)
@given(parameters, parameters)
def test_whatever_a_solution_may_be_the_adapted_schema_admits(
    pair: tuple[JSONObject, JSONObject], output: tuple[JSONObject, JSONObject]
) -> None:
    exact = solution_schema([Tool("do", "", pair[0])], output[0])
    before = copy.deepcopy(exact)
    adapted = adapted_schema(exact)
    assert exact == before, "the exact schema is the idea's"
    check_meta(adapted)
    for value in (output[1], None, "†state.x"):
        solution: JSONObject = {"calls": [{"_tool": "do", **pair[1]}], "output": value}
        assert Validator(adapted, what="adapted").problems(solution) == []

    for part in parts(adapted):
        assert set(part) <= TAKEN
        if "$ref" in part:
            assert resolve(adapted, str(part["$ref"])) is not None


def test_what_is_taken_out_is_told_in_words() -> None:
    schema: JSONObject = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": r"^\d{4}$", "description": "The number"},
            "n": {"type": "integer", "minimum": 1, "maximum": 5},
        },
        "additionalProperties": False,
    }
    properties = adapted_schema(schema)["properties"]
    assert properties == {
        "id": {"type": "string", "description": 'The number (pattern "^\\\\d{4}$")'},
        "n": {"type": "integer", "description": "minimum 1, maximum 5"},
    }


def test_unions_are_any_of_and_parts_of_all_are_joined() -> None:
    schema: JSONObject = {
        "properties": {"a": {"oneOf": [{"const": "x"}, {"type": "null"}]}},
        "allOf": [
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            {"if": {"required": ["a"]}, "then": {"required": ["c"]}},
        ],
        "required": ["a"],
    }
    assert adapted_schema(schema) == {
        "properties": {
            "a": {"anyOf": [{"const": "x", "type": "string"}, {"type": "null"}]},
            "b": {"type": "string"},
        },
        "required": ["a", "b"],
    }


def test_what_is_too_deep_admits_anything() -> None:
    schema: JSONObject = {"type": "string"}
    for _ in range(MAX_DEPTH + 5):
        schema = {"type": "array", "items": schema}

    found: JSON = adapted_schema(schema)
    depth = 0
    while isinstance(found, dict) and "items" in found:
        found = found["items"]
        depth = depth + 1

    assert found == {}
    assert depth == MAX_DEPTH + 1


def test_only_what_is_closed_all_through_fits_a_strict_mode() -> None:
    closed: JSONObject = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": False,
    }
    assert is_closed(closed)
    assert is_closed({"type": "array", "items": {"anyOf": [closed, {"const": 1}]}})
    assert not is_closed({**closed, "properties": {"a": {}}})
    assert not is_closed({"type": "object", "properties": {"a": closed}})
    assert not is_closed({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}})
