"""The Schema of a Solution in few words."""

from __future__ import annotations

import json
import re

from ideabridge.bridge.minds.adapt import adapted_schema
from ideabridge.bridge.minds.instructions import brief
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.encoding import JSON, JSONObject

NODE: JSONObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "below": {"type": "array", "items": {"$ref": "#"}},
    },
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
    return adapted_schema(solution_schema(list(Toolbox(find)), output, instances=instances))


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
    assert 'There are no tools: "calls" is [].' in brief(
        adapted_schema(solution_schema([], {"enum": [1, "x"]}))
    )


def test_it_is_much_shorter_than_the_schema() -> None:
    schema = composed()
    assert len(brief(schema)) * 3 < len(json.dumps(schema))
