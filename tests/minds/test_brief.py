"""The Schema of a Solution in few words, and as llama.cpp's grammars take it (DESIGN 4.2, 5)."""

from __future__ import annotations

import json
import re

import pytest

from ideabridge.bridge.minds.adapt import adapt
from ideabridge.bridge.minds.brief import brief
from ideabridge.bridge.minds.grammar import grammar_schema
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.schema import Validator

NODE: JSONObject = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "below": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
    "additionalProperties": False,
}


@tool(read_only=True)
def find(word: str, kinds: list[str], most: int = 3, data: JSON = None) -> list[str]:
    """Find things.

    Args:
        word: What to look for.
    """
    return [word, *kinds][:most]


def composed(output: JSONObject | None = None, instances: tuple[str, ...] = ()) -> JSONObject:
    return adapt(solution_schema(list(Toolbox(find)), output, instances=instances))


def test_tools_are_told_as_signatures() -> None:
    told = brief(composed())
    assert "- find(word: string /* What to look for. */, kinds: string[], most?: integer" in told
    assert "Find things." in told
    assert "_each: any[] // An array: the call runs once for each item" in told
    assert told.endswith('The type of "output": string')


def test_types_that_hold_themselves_are_named_and_told_once() -> None:
    told = brief(composed(NODE))
    kind = re.search(r'The type of "output": (\w+)', told)
    assert kind is not None or '"below"?: ' in told
    assert told.count('"below"?') <= 2
    assert "minLength 1" in told


def test_instances_stand_in_the_signature() -> None:
    assert re.search(r"- find\(_instance: ", brief(composed(instances=("a", "b"))))


def test_without_tools_that_is_said() -> None:
    assert 'There are no tools: "calls" is [].' in brief(adapt(solution_schema([], {"enum": [1, "x"]})))


def test_it_is_much_shorter_than_the_schema() -> None:
    schema = composed()
    assert len(brief(schema)) * 3 < len(json.dumps(schema))


def call(**parameters: JSON) -> JSONObject:
    return {"_tool": "find", "word": "a", "kinds": [], **parameters}


@pytest.mark.parametrize(
    "solution",
    [
        {"calls": [], "output": ""},
        {"calls": [call()], "output": "†results.0"},
        {"calls": [call(data={"any": [1, None, "x"]}, most="†input.n")], "output": None},
        {"calls": [call(data=1), call(data=None), call(data=True)], "output": "†state.a[0] || †input.x"},
        {"calls": [call(word="a ††dagger", _outputPath="a || b", _each="†state.list")], "output": "†results.0[1].x"},
        {"calls": [call(word='"käse" 🧀 \\ \n')], "output": "†state"},
    ],
)
def test_the_grammar_admits_what_the_schema_does(solution: JSON) -> None:
    schema = composed()
    assert Validator(schema, what="it").is_valid(solution)
    # A pattern speaks of the text as it stands in JSON, where quotes and backslashes are escaped.
    escaped = json.loads(
        json.dumps(solution, ensure_ascii=False).replace("\\", "\\\\\\\\").replace('\\\\\\\\"', '\\\\\\"')
    )
    assert Validator(grammar_schema(schema), what="it").is_valid(escaped)


@pytest.mark.parametrize("output", ["‡state.x", "†results.0: a number", "†*1", "†result.0", "††x", "\u200bx", "“x"])
def test_the_grammar_keeps_prose_out_of_references(output: str) -> None:
    schema = grammar_schema(composed())
    assert not Validator(schema, what="it").is_valid({"calls": [], "output": output})


def test_what_the_grammar_keeps_from_the_beginning_of_a_text_can_be_written_escaped() -> None:
    schema = grammar_schema(composed())
    for output in (r"\u2020\u2020 a dagger", r"\u201cquoted\u201d", '\\"quoted\\"'):
        # As it stands in JSON: that is what the pattern speaks of.
        assert Validator(schema, what="it").is_valid({"calls": [], "output": output})


def test_the_grammar_holds_nothing_that_the_converter_drops_or_narrows() -> None:
    def parts(schema: JSON) -> list[JSONObject]:
        found: list[JSONObject] = []
        if isinstance(schema, dict):
            found.append(schema)
            for word in ("properties", "$defs"):
                inner = schema.get(word)
                found.extend(part for one in inner.values() for part in parts(one)) if isinstance(inner, dict) else None
            for word in ("items", "additionalProperties"):
                found.extend(parts(schema.get(word)))
            branches = schema.get("anyOf")
            found.extend(part for one in branches for part in parts(one)) if isinstance(branches, list) else None
        return found

    open_object: JSONObject = {"type": "object", "properties": {"a": {}}, "required": ["a", "b"]}
    for part in parts(grammar_schema(composed(open_object))):
        assert part.keys() & {"$ref", "type", "anyOf", "const", "enum"}, part
        if part.get("type") == "object":
            assert part["additionalProperties"] is not True
            required, properties = part["required"], part["properties"]
            assert isinstance(required, list)
            assert isinstance(properties, dict)
            assert set(map(str, required)) <= set(properties)
