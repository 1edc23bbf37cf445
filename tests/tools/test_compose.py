"""The composed schema: valid, closed, admits references exactly where they may stand."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.tools.compose import admit_references, call_schema, solution_schema, wrap_output
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import LimitExceededError, SchemaError, ToolDefinitionError
from ideabridge.tools.json_parts import part_at
from ideabridge.tools.rename import ParameterNames, rename_meta_parameters
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool
from tests.tools.schemas import check_meta, parameters, places, replaced

LOG = Tool(
    "git_log",
    "Commits of a repository.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "count": {"type": "integer", "minimum": 1, "description": "how many"},
            "since": {"type": "string", "format": "date"},
            "tree": {"$ref": "#/$defs/Tree"},
        },
        "required": ["path"],
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
                "additionalProperties": False,
            }
        },
    },
    output={
        "type": "object",
        "properties": {"commits": {"type": "array", "items": {"type": "string"}}},
    },
)
WRITE = Tool(
    "write", "Write a text.", {"type": "object", "properties": {}}, output={"type": "string"}
)
FETCH = Tool(
    "fetch", "", {"type": "object", "properties": {"url": {"type": "string"}}}, module="web"
)


def meta_valid(schema: JSONObject) -> Validator:
    check_meta(schema)
    validator = Validator(schema, what="W")
    validator.compile()
    return validator


def member(schema: JSONObject, *place: str | int) -> JSON:
    return part_at(schema, list(place))


@settings(max_examples=200)
@given(parameters, st.data())
def test_any_part_of_valid_parameters_may_be_a_reference(
    pair: tuple[JSONObject, JSONObject], data: st.DataObject
) -> None:
    schema, value = pair
    assert Validator(schema, what="exact").is_valid(value)
    admitted = meta_valid(admit_references(schema))
    assert admitted.is_valid(value)
    changed: JSON = value
    for _ in range(3):
        found = places(changed)
        if not found:
            break
        changed = replaced(changed, data.draw(st.sampled_from(found)), "†state.x")
        assert admitted.problems(changed) == []

    call = meta_valid(call_schema(Tool("do", "", schema), latent=False, instances=["①"]))
    assert isinstance(changed, dict)
    meta: JSONObject = {
        "_tool": "do",
        "_instance": "①",
        "_outputPath": "x",
        "_each": "†state.l",
        "_after": ["a"],
    }
    assert call.problems({**meta, **changed}) == []


@settings(max_examples=60)
@given(st.lists(parameters, max_size=4), parameters)
def test_solutions_of_any_tools_are_valid_schemas(
    pairs: list[tuple[JSONObject, JSONObject]], output: tuple[JSONObject, JSONObject]
) -> None:
    tools = [Tool(f"t{number}", "", schema) for number, (schema, _) in enumerate(pairs)]
    solution = meta_valid(solution_schema(tools, output[0]))
    calls: list[JSON] = [
        {"_tool": f"t{number}", **value} for number, (_, value) in enumerate(pairs)
    ]
    assert solution.problems({"calls": calls, "output": output[1]}) == []
    assert solution.is_valid({"calls": calls, "output": None})
    assert solution.is_valid({"calls": calls, "output": "†state.x"})
    assert not solution.is_valid({"calls": [{"_tool": "none"}], "output": None})
    assert not solution.is_valid({"calls": calls})
    assert not solution.is_valid({"output": None, "calls": [], "more": 1})


def test_what_is_wrong_outside_references_is_refused() -> None:
    admitted = Validator(admit_references(LOG.parameters), what="W")
    assert admitted.is_valid(
        {"path": "†state.p", "count": "†state.n", "tree": {"kids": ["†state.t", {}]}}
    )
    assert not admitted.is_valid({"path": 1})
    assert not admitted.is_valid({"path": "a", "count": 0})
    assert not admitted.is_valid({"path": "a", "count": "state.n"})
    assert not admitted.is_valid({"path": "a", "tree": {"kids": [{"x": 1}]}})
    assert not admitted.is_valid({"count": 1})
    assert not admitted.is_valid("†state.x")
    assert Validator(admit_references(LOG.parameters, top=True), what="W").is_valid("†state.x")


def test_the_reference_alternative_is_kept_once() -> None:
    text = encode_text(solution_schema([LOG, FETCH], {"type": "integer"}))
    assert text.count("^†") == 1


def test_plain_text_needs_no_alternative() -> None:
    assert member(call_schema(LOG, latent=False), "properties", "path") == {"type": "string"}


def test_descriptions_stand_outside_the_alternatives() -> None:
    assert member(call_schema(LOG, latent=False), "properties", "count") == {
        "description": "how many",
        "anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/reference"}],
    }


def test_constant_containers_may_hold_references() -> None:
    admitted = Validator(
        admit_references({"properties": {"a": {"enum": [[1, {"k": 2}], "x"]}}}), what="W"
    )
    assert admitted.is_valid({"a": [1, {"k": "†item"}]})
    assert admitted.is_valid({"a": "x"})
    assert not admitted.is_valid({"a": [2, {"k": 2}]})
    assert not admitted.is_valid({"a": [1]})


def test_of_large_constant_containers_only_the_type_is_kept() -> None:
    constants: list[JSON] = [{"a": [*([0] * 50), number]} for number in range(100)]
    schema: JSONObject = {
        "properties": {"a": {"enum": [*constants, "x", None]}, "b": {"const": {"k": 1}}}
    }
    widened = admit_references(schema)
    assert len(encode_text(widened)) < len(encode_text(schema))
    admitted = Validator(widened, what="W")
    right: list[JSON] = [constants[0], constants[-1], {"a": "†state.x"}, "†state.x", "x", None]
    assert all(admitted.is_valid({"a": value}) for value in right)
    wrong: list[JSON] = [[], "y", 1]
    assert not any(admitted.is_valid({"a": value}) for value in wrong)
    assert admitted.is_valid({"b": {"k": "†input.k"}})
    assert not admitted.is_valid({"b": {"k": 2}})


def test_older_drafts_are_written_as_2020_12() -> None:
    schema: JSONObject = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"n": {"type": "integer"}},
        "properties": {
            "pair": {
                "items": [{"$ref": "#/definitions/n", "minimum": 10}],
                "additionalItems": False,
            },
            "dep": {"type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
        },
    }
    admitted = meta_valid(admit_references(schema))
    assert admitted.is_valid({"pair": [1]})
    assert admitted.is_valid({"pair": ["†state.x"]})
    assert not admitted.is_valid({"pair": ["x"]})
    assert not admitted.is_valid({"pair": [1, 2]})
    assert not admitted.is_valid({"dep": {"a": 1}})
    assert not admitted.is_valid({"dep": {"c": 1}})
    bounds: JSONObject = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"n": {"type": "number", "minimum": 1, "exclusiveMinimum": True}},
    }
    admitted = meta_valid(admit_references(bounds))
    assert not admitted.is_valid({"n": 1})
    assert admitted.is_valid({"n": 2})


def test_anchors_and_embedded_documents_are_followed() -> None:
    schema: JSONObject = {
        "$id": "https://example.com/root",
        "properties": {"a": {"$ref": "#here"}, "b": {"$ref": "https://example.com/other"}},
        "$defs": {
            "x": {"$anchor": "here", "type": "integer"},
            "y": {
                "$id": "https://example.com/other",
                "$ref": "#/$defs/z",
                "$defs": {"z": {"type": "boolean"}},
            },
        },
    }
    admitted = meta_valid(admit_references(schema))
    assert admitted.is_valid({"a": 1, "b": True})
    assert admitted.is_valid({"a": "†state.x", "b": "†state.x"})
    assert not admitted.is_valid({"a": True})
    assert not admitted.is_valid({"b": 1})


def test_a_call_is_closed_and_ordered() -> None:
    schema = call_schema(LOG, latent=False, instances=["①", "②"])
    names = list(cast("JSONObject", schema["properties"]))
    assert names == [
        *("_tool", "_activity", "_instance", "path", "count", "since", "tree"),
        *("_outputPath", "_outputMethod", "_each", "_after", "_id"),
    ]
    assert schema["required"] == ["_tool", "_instance", "path"]
    assert schema["additionalProperties"] is False
    call = meta_valid(schema)
    assert call.is_valid(
        {"_tool": "git_log", "_instance": "②", "path": "a", "_outputMethod": "push"}
    )
    assert not call.is_valid({"_tool": "git_log", "_instance": "③", "path": "a"})
    assert not call.is_valid({"_tool": "git_log", "_instance": "①", "path": "a", "_module": "x"})
    assert not call.is_valid({"_tool": "git_log", "_instance": "①", "path": "a", "_output": 1})
    assert not call.is_valid(
        {"_tool": "git_log", "_instance": "①", "path": "a", "_outputMethod": "append"}
    )
    assert not call.is_valid({"_tool": "git_log", "_instance": "①", "path": "a", "_each": 5})


def test_the_description_tells_the_shape_of_the_result() -> None:
    assert call_schema(LOG, latent=False)["description"] == (
        "Commits of a repository.\nResult: {commits: array of text}"
    )


def test_a_latent_call_has_its_output_after_the_parameters() -> None:
    tool = Tool(
        "write", "", {"type": "object", "properties": {"topic": {}}}, output={"type": "integer"}
    )
    schema = call_schema(tool, latent=True)
    names = list(cast("JSONObject", schema["properties"]))
    assert [name for name in names if name not in ("_module", "_imports")][:3] == [
        "_tool",
        "topic",
        "_output",
    ]
    assert "_activity" not in names
    call = meta_valid(schema)
    assert call.is_valid({"_tool": "write", "_output": 1})
    assert call.is_valid({"_tool": "write", "_output": "†state.x"})
    assert not call.is_valid({"_tool": "write", "_output": "text"})
    # The member may be left out: a Request in a room writes it once the values of the parameters'
    # references are known.
    assert call.is_valid({"_tool": "write", "topic": "†state.topic"})
    assert call.is_valid({"_tool": "write", "_module": "anonymous", "_imports": ["input"]})
    assert not call.is_valid({"_tool": "write", "_module": "git"})


def test_a_module_is_named_and_imports_are_for_clean_rooms() -> None:
    schema = call_schema(FETCH, latent=False)
    assert schema["required"] == ["_tool", "_module"]
    assert member(schema, "properties", "_module") == {"const": "web"}
    assert "_imports" not in cast("JSONObject", schema["properties"])
    for module in ("anonymous", "idea:report"):
        room = call_schema(Tool("go", module=module), latent=False)
        assert "_imports" in cast("JSONObject", room["properties"])


def test_many_instances_are_a_text_with_a_note() -> None:
    ids = [f"i{number}" for number in range(51)]
    schema = call_schema(WRITE, latent=False, instances=ids)
    listed = cast("JSONObject", member(schema, "$defs", "_instance"))
    assert listed["type"] == "string"
    assert "51" in str(listed["description"])
    assert meta_valid(schema).is_valid({"_tool": "write", "_instance": "i50"})


def test_parameters_that_are_a_union_make_room_for_the_meta_properties() -> None:
    schema: JSONObject = {
        "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {
            "a": {
                "type": "object",
                "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}},
                "required": ["kind"],
                "additionalProperties": False,
            },
            "b": {
                "type": "object",
                "properties": {"kind": {"const": "b"}},
                "patternProperties": {"^_|t": {"type": "integer"}},
                "unevaluatedProperties": False,
                "propertyNames": {"maxLength": 5},
                "maxProperties": 1,
            },
        },
    }
    call = meta_valid(call_schema(Tool("u", "", schema), latent=False))
    assert call.is_valid({"_tool": "u", "kind": "a", "n": "†state.n", "_outputPath": "x"})
    assert call.is_valid({"_tool": "u", "kind": "b", "_id": "x", "_outputPath": "x"})
    assert not call.is_valid({"_tool": "u", "kind": "a", "n": "x"})
    assert not call.is_valid({"_tool": "u", "kind": "c"})


def test_declared_open_parameters_stay_open() -> None:
    tool = Tool(
        "set", "", {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}
    )
    call = meta_valid(call_schema(tool, latent=False))
    assert call.is_valid({"_tool": "set", "any": 1, "other": "†state.x"})
    assert not call.is_valid({"_tool": "set", "any": "x"})


def test_a_parameter_with_a_meta_name_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="_each"):
        call_schema(Tool("x", "", {"type": "object", "properties": {"_each": {}}}), latent=False)


def test_without_tools_calls_are_an_empty_array() -> None:
    solution = meta_valid(solution_schema([], None))
    assert solution.is_valid({"calls": [], "output": "text"})
    assert not solution.is_valid({"calls": [{"_tool": "x"}], "output": None})
    assert not solution.is_valid({"calls": [], "output": 5})


def test_extra_properties_come_before_the_calls() -> None:
    extra: dict[str, JSONObject] = {
        "thought_process": {
            "$defs": {"t": {"type": "string"}},
            "type": "array",
            "items": {"$ref": "#/$defs/t"},
        }
    }
    schema = solution_schema([LOG], None, extra=extra)
    assert list(cast("JSONObject", schema["properties"])) == ["thought_process", "calls", "output"]
    assert schema["required"] == ["calls", "output"]
    solution = meta_valid(schema)
    assert solution.is_valid({"thought_process": ["a"], "calls": [], "output": None})
    assert not solution.is_valid({"thought_process": [1], "calls": [], "output": None})


def test_an_output_that_allows_null_is_wrapped() -> None:
    schema: JSONObject = {
        "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}],
        "$defs": {"n": {"type": "integer"}},
    }
    wrapped, was = wrap_output(schema)
    assert was
    exact = meta_valid(wrapped)
    assert exact.is_valid({"value": None})
    assert exact.is_valid({"value": 3})
    assert not exact.is_valid({"value": "x"})
    assert wrap_output(wrapped) == (wrapped, False)
    solution = meta_valid(solution_schema([], schema))
    assert solution.is_valid({"calls": [], "output": {"value": None}})
    assert solution.is_valid({"calls": [], "output": {"value": "†state.x"}})
    assert not solution.is_valid({"calls": [], "output": {"value": "x"}})
    assert wrap_output(None) == ({"type": "string"}, False)
    assert wrap_output({"type": "integer"}) == ({"type": "integer"}, False)
    with pytest.raises(SchemaError):
        wrap_output({"type": "nothing"})


def test_definitions_of_different_tools_do_not_meet() -> None:
    def made(name: str, kind: str) -> Tool:
        definition: JSONObject = {"type": kind}
        return Tool(
            name, "", {"properties": {"v": {"$ref": "#/$defs/V"}}, "$defs": {"V": definition}}
        )

    reference = Tool(
        "reference",
        "",
        {"properties": {"v": {"$ref": "#/$defs/V"}}, "$defs": {"V": {"type": "null"}}},
    )
    solution = meta_valid(
        solution_schema([made("a", "integer"), made("b", "boolean"), reference], None)
    )
    assert solution.is_valid(
        {"calls": [{"_tool": "a", "v": 1}, {"_tool": "b", "v": True}], "output": None}
    )
    assert not solution.is_valid({"calls": [{"_tool": "a", "v": True}], "output": None})
    assert not solution.is_valid({"calls": [{"_tool": "reference", "v": True}], "output": None})


def test_hostile_schemas_are_bounded() -> None:
    definitions: JSONObject = {"a0": {"type": "object"}}
    for level in range(1, 60):
        part: JSONObject = {"$ref": f"#/$defs/a{level - 1}"}
        definitions[f"a{level}"] = {"anyOf": [part, part]}

    schema: JSONObject = {"$defs": definitions, "$ref": "#/$defs/a59"}
    assert len(encode_text(call_schema(Tool("x", "", schema), latent=False))) < 1_000_000
    meta_valid(
        call_schema(Tool("x", "", {"$ref": "#", "properties": {"a": {"$ref": "#"}}}), latent=False)
    )
    deep: JSONObject = {}
    for _ in range(300):
        deep = {"items": deep}

    with pytest.raises(LimitExceededError):
        admit_references(deep)


def test_long_chains_of_references_compose() -> None:
    definitions: JSONObject = {
        f"a{n}": {"items": {"$ref": f"#/$defs/a{n + 1}"}} for n in range(100)
    }
    definitions["a100"] = {"type": "integer"}
    schema: JSONObject = {"$defs": definitions, "properties": {"a": {"$ref": "#/$defs/a0"}}}
    admitted = Validator(admit_references(schema), what="W")
    assert admitted.is_valid({"a": [["†state.x"]]})
    top: JSONObject = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(2000)}
    top["a2000"] = {"properties": {"_id": {}}}
    with pytest.raises(LimitExceededError):
        rename_meta_parameters({"$defs": top, "$ref": "#/$defs/a0"})


def test_a_thousand_tools_compose_in_time_and_are_told_apart() -> None:
    tools = [Tool(f"tool_{number}", "Does.", LOG.parameters) for number in range(1000)]
    solution = Validator(solution_schema(tools, None), what="W")
    assert solution.is_valid({"calls": [{"_tool": "tool_999", "path": "x"}], "output": None})


def test_meta_named_parameters_are_renamed_everywhere_at_the_top() -> None:
    schema: JSONObject = {
        "type": "object",
        "properties": {
            "_output": {"type": "string"},
            "output_": {},
            "inner": {"properties": {"_id": {}}},
        },
        "required": ["_output"],
        "allOf": [{"$ref": "#/$defs/more"}],
        "dependentRequired": {"_id": ["_output"]},
        "$defs": {"more": {"properties": {"_id": {"type": "integer"}}, "required": ["_id"]}},
    }
    renamed, names = rename_meta_parameters(schema)
    assert names == {"output_2": "_output", "id_": "_id"}
    exact = meta_valid(renamed)
    assert exact.is_valid({"output_2": "x", "id_": 3, "inner": {"_id": 1}})
    assert not exact.is_valid({"output_2": "x", "id_": "x"})
    assert not exact.is_valid({"output_2": "x"})
    assert member(renamed, "properties", "inner") == {"properties": {"_id": {}}}
    call_schema(Tool("x", "", renamed), latent=False)
    assert rename_meta_parameters(LOG.parameters) == (LOG.parameters, {})


# -- names that are neither parameters nor meta-properties -----------------------------------------

A: JSONObject = {"type": "object", "properties": {"alpha": {}}}


SCHEMAS: list[tuple[JSONObject, bool]] = [
    (A, True),
    ({**A, "additionalProperties": False}, True),
    ({**A, "additionalProperties": {"type": "string"}}, False),
    ({**A, "additionalProperties": True}, False),
    ({**A, "unevaluatedProperties": {}}, False),
    ({**A, "patternProperties": {"^x": {}}}, False),
    ({"$ref": "#/$defs/A", "$defs": {"A": A}}, True),
    ({"$ref": "#/definitions/A", "definitions": {"A": {**A, "allOf": [{"$ref": "#"}]}}}, True),
    ({"allOf": [A, {"required": ["alpha"]}]}, True),
    ({"anyOf": [{"properties": {"beta": {}}}, A]}, True),
    ({"oneOf": [A, {"type": "object"}]}, False),
    ({"anyOf": [A, True]}, False),
    ({"allOf": [A, {"patternProperties": {"^x": {}}}]}, False),
    ({**A, "$ref": "https://example.org/elsewhere"}, False),
    ({**A, "$ref": "#anchor"}, False),
    ({**A, "if": {"properties": {"beta": {}}}, "then": {"properties": {"gamma": {}}}}, True),
    ({"type": "object"}, False),
    ({"type": "object", "properties": {}}, False),
    ({}, False),
]


@pytest.mark.parametrize(("schema", "known"), SCHEMAS)
def test_names_are_known_where_the_schema_lists_them(schema: JSONObject, known: bool) -> None:
    names = ParameterNames("t", schema)
    assert names.known is known
    assert names.faults({"alpha": 1, "_outputPath": "x", "_id": "y"}) == {}
    faults = names.faults({"alhpa": 1})
    assert list(faults) == (["alhpa"] if known else [])
    assert not known or "Did you mean 'alpha'?" in faults["alhpa"]


def test_a_parameter_with_a_name_near_a_meta_property_is_a_parameter() -> None:
    names = ParameterNames(
        "t", {"properties": {"outputPath": {}, "args": {}, "_output_path": {}, "id": {}}}
    )
    assert names.faults({"outputPath": 1, "args": {"a": 1}, "_output_path": 2, "id": 3}) == {}
    assert "Did you mean '_outputPath'?" in names.faults({"_outputpath": 1})["_outputpath"]


def test_a_schema_that_lists_no_properties_is_shown_open() -> None:
    assert "additionalProperties" not in call_schema(
        Tool("t", parameters={"type": "object"}), latent=False
    )
    assert call_schema(Tool("t"), latent=False)["additionalProperties"] is False
