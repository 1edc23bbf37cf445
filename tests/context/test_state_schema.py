"""What may be written to a state with a schema, and when it is judged."""

from __future__ import annotations

import pytest

from ideabridge.bridge.context.errors import ClosedStateError
from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.context.state import StateSchema
from ideabridge.bridge.loop.initial_documents import initial_documents
from ideabridge.tools.encoding import JSON, JSONObject

AB: JSONObject = {"a": {"type": "integer"}, "b": {"type": "integer"}}


RIGHT: list[tuple[JSONObject, JSON]] = [
        ({"properties": AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}),
        ({"properties": AB, "not": {"required": ["a", "b"]}}, {"a": 1}),
        ({"properties": AB, "if": {"required": ["a"]}, "then": {"properties": {"b": {"const": 5}}}}, {"b": 1}),
        ({"properties": AB, "anyOf": [{"minProperties": 2}, {"required": ["b"]}]}, {"a": 1}),
        ({"properties": AB, "dependentRequired": {"a": ["b"]}}, {"a": 1}),
        ({"properties": AB, "minProperties": 2}, {"a": 1}),
        ({"properties": {"log": {"type": "array", "minItems": 2, "contains": {"const": 5}}}}, {"log": [1]}),
        ({"properties": {"o": {"const": {"a": 1, "b": 2}}}}, {"o": {"a": 1}}),
        ({"properties": {"o": {"$ref": "#/$defs/required"}}, "$defs": {"required": {"required": ["x"]}}}, {"o": {}}),
        ({"properties": {"o": {"$ref": "#/properties/p/anyOf/0"}, "p": {"anyOf": [{"type": "null"}]}}}, {"p": None}),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, {"a": 1, "b": 2}),
        ({"properties": {"a": {"properties": {"x": {}}}, "b": {"$ref": "#/properties/a", "properties": {"y": {}}}}},
         {"b": {"x": 1, "y": 2}}),
        ({"properties": AB, "additionalProperties": {"type": "string"}}, {"c": "text"}),
        ({"properties": AB, "patternProperties": {"^x": {}}}, {"x1": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "state"), RIGHT)
def test_what_may_still_become_right_is_not_refused(schema: JSONObject, state: JSON) -> None:
    StateSchema(schema).check_write(state)


WRONG: list[tuple[JSONObject, JSON]] = [
        ({"properties": AB}, {"a": "text"}),
        ({"properties": AB, "oneOf": [{"required": ["a"]}]}, {"a": "text"}),
        ({"properties": {"o": {"$ref": "#/definitions/required"}}, "definitions": {"required": {"type": "null"}}},
         {"o": 5}),
        ({"properties": {"required": {"type": "integer"}}}, {"required": "text"}),
        ({"properties": AB}, {"a": 1, "extra": 2}),
        ({"properties": {"o": {"properties": AB}}}, {"o": {"a": 1, "extra": 2}}),
        ({"properties": {"l": {"items": {"properties": AB}}}}, {"l": [{"extra": 2}]}),
        ({"properties": AB, "patternProperties": {"^x": {}}}, {"y": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "state"), WRONG)
def test_what_cannot_become_right_is_refused_at_once(schema: JSONObject, state: JSON) -> None:
    with pytest.raises(ClosedStateError):
        StateSchema(schema).check_write(state)


def test_members_the_run_began_with_stay() -> None:
    state: JSONObject = {"a": 1, "extra": 2, "o": {"more": 1}, "l": [{"old": 1}]}
    part: JSONObject = {"properties": AB}
    message: JSON = {
        "type": "state",
        "state": state,
        "schema": {"properties": {**AB, "o": part, "l": {"items": part}}},
    }
    schema = initial_documents(read_context([message])).schemas[""]
    schema.check_write({**state, "b": 5})
    with pytest.raises(ClosedStateError):
        schema.check_write({**state, "other": 5})

    with pytest.raises(ClosedStateError):
        schema.check_write({**state, "o": {"other": 1}})


def test_conditions_are_judged_at_the_end() -> None:
    schema = StateSchema({"properties": AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})
    schema.check_end({"a": 1})
    for state in ({}, {"a": 1, "b": 2}):
        with pytest.raises(ClosedStateError):
            schema.check_end(dict(state))
