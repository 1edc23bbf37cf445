"""The two registries."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ideabridge.tools import Activity, ActivityContext, Tool, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ToolDefinitionError, UnknownToolError


async def run(_arguments: JSONObject, _context: ActivityContext) -> JSON:
    return None


@tool
def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


def test_a_decorated_function_brings_both() -> None:
    toolbox = Toolbox(greet)
    assert toolbox.tool("greet").description == "Greet."
    assert toolbox.activity_for(toolbox.tool("greet")) is toolbox.activities["greet"]
    assert list(toolbox) == [toolbox.tool("greet")]
    assert "greet" in toolbox
    assert len(toolbox) == 1


def test_plain_typed_functions_are_taken() -> None:
    def shout(name: str) -> str:
        return name.upper()

    assert Toolbox(shout).tool("shout").name == "shout"


def test_the_last_definition_wins_in_the_place_of_the_first() -> None:
    toolbox = Toolbox(Tool("a", "old"), Tool("b"), Tool("a", "new"))
    assert [(item.name, item.description) for item in toolbox] == [("a", "new"), ("b", "")]


def test_toolboxes_merge() -> None:
    toolbox = Toolbox(Tool("a", "old"), greet)
    toolbox.update(Toolbox(Tool("a", "new"), Activity("b", run)))
    assert toolbox.tool("a").description == "new"
    assert list(toolbox.activities) == ["greet", "b"]


def test_unknown_names_are_answered_with_the_nearest() -> None:
    toolbox = Toolbox(greet)
    with pytest.raises(UnknownToolError, match=r"unknown tool 'great'\. Did you mean 'greet'\?"):
        toolbox.tool("great")
    with pytest.raises(UnknownToolError, match=r"unknown activity 'gret'\. Did you mean 'greet'\?"):
        toolbox.activity_for(toolbox.tool("greet"), "gret")


def test_the_activity_is_named_by_the_call_the_tool_or_the_name() -> None:
    one = Activity("one", run)
    two = Activity("two", run)
    named = Tool("x", activity="one")
    same = Tool("two")
    latent = Tool("y")
    toolbox = Toolbox(one, two, named, same, latent)
    assert toolbox.activity_for(named) is one
    assert toolbox.activity_for(named, "two") is two
    assert toolbox.activity_for(same) is two
    assert toolbox.activity_for(latent) is None
    assert toolbox.activity_for(Tool("two", module="m")) is None
    with pytest.raises(UnknownToolError):
        toolbox.activity_for(Tool("z", activity="three"))


def test_other_things_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="found int"):
        Toolbox(cast("Any", 5))
    with pytest.raises(ToolDefinitionError, match="belongs to server 'm'"):
        Toolbox(Tool("a", module="m"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"name": 3}, "tool 3, name: expected text, found 3"),
        ({"description": ["x"]}, "description: expected text, found list"),
        (
            {"parameters": [1]},
            "parameters: expected an object .a dict.; a schema is an object such as .*, found list",
        ),
        ({"output": True}, "tool 'x', output: expected an object .a dict.; .*, found True"),
    ],
)
def test_a_definition_with_a_part_of_another_kind_is_refused(
    parts: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"name": "x", **parts}
    with pytest.raises(ToolDefinitionError, match=message):
        Toolbox(Tool(**given))
