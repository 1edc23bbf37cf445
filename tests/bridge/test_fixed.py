"""What a tool's definition fixes of its calls: `_module`, `_activity`, `_output`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration, PlanError
from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.plan import read_plan
from ideabridge.tools import ActivityContext, Tool, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ToolDefinitionError
from ideabridge.tools.tool import Annotations
from tests.bridge.test_seeds import Model

pytestmark = pytest.mark.anyio

TEXT: JSONObject = {"text": {"type": "string"}}
READ_ONLY = Annotations(read_only=True)


@tool(read_only=True)
def loud(text: str, context: ActivityContext) -> JSONObject:
    """Make a text loud, and tell what is known of the run."""
    return {
        "text": text.upper(),
        "call": context.call,
        "paths": [*context.output_paths],
        "instance": context.instance,
    }


@tool(read_only=True)
def telling(text: str, context: ActivityContext) -> str:
    """Add a message."""
    context.add_message({"role": "user", "content": text})
    return text


def shout(**fixed: JSON) -> Tool:
    parameters: JSONObject = {
        "type": "object",
        "properties": {**fixed, **TEXT},
        "required": [*fixed, "text"],
    }
    return Tool("shout", "Shout.", parameters, annotations=READ_ONLY)


def offered(model: Model, name: str) -> set[str]:
    """What a call of the tool may hold, as the model was told."""
    schema: Any = model.shown[0].schema
    calls = schema["properties"]["calls"]["items"]["anyOf"]
    [found] = [one["properties"] for one in calls if one["properties"]["_tool"]["const"] == name]
    return {*found}


CALLS: list[JSON] = [
    {"_tool": "shout", "text": "†input.text", "_imports": ["†state.doc"], "_outputPath": "said"}
]
CONTEXT: list[JSON] = [{"type": "state", "state": {"doc": "a document", "secret": "not seen"}}]


@pytest.mark.parametrize("as_message", [False, True])
async def test_fixed_code_runs_in_a_clean_room_and_is_not_offered_again(as_message: bool) -> None:
    defined = shout(_activity={"const": "loud"}, _module={"const": "anonymous"})
    message: JSON = {"type": "tool", "tool": {"name": "shout", "parameters": defined.parameters}}
    model = Model({"calls": CALLS, "output": "done"})
    box = Toolbox(loud) if as_message else Toolbox(loud, defined)
    async with Bridge(Configuration(approval="allow_all"), toolbox=box, mind=model) as bridge:
        run = await bridge.solve(
            "x", input={"text": "a"}, context=[*CONTEXT, *([message] if as_message else [])]
        )
        assert await run.result() == "done"
        called = {"_tool": "shout", "text": "a", "_imports": {"†state.doc": "a document"}}
        assert run.value("†state.said") == {
            "text": "A",
            "call": called,
            "paths": [],
            "instance": None,
        }

    assert not {"_activity", "_module", "_output"} & offered(model, "shout")
    assert {"text", "_imports"} <= offered(model, "shout")


async def test_a_call_may_open_the_clean_room_for_code_itself() -> None:
    calls: list[JSON] = [
        {"_tool": "loud", "text": "a", "_module": "anonymous", "_outputPath": "one"},
        {"_tool": "loud", "text": "a", "_outputPath": "two"},
        {"_tool": "telling", "text": "a", "_module": "anonymous"},
    ]
    async with Bridge(toolbox=Toolbox(loud, telling)) as bridge:
        run = await bridge.run_plan(read_plan({"calls": calls}))
        assert await run.wait(30) == "done"
        assert run.value("†state.one.paths") == []
        assert run.value("†state.two.paths") == ["two"]
        assert "a clean room cannot add" in str(run.errors())


async def test_a_fixed_result_asks_nobody_and_a_fixed_room_asks_a_mind_there() -> None:
    kind = Tool(
        "kind", "Say a kind.", {"type": "object", "properties": {"_output": {"const": "†invoice"}}}
    )
    sum_up: JSONObject = {
        "name": "sum_up",
        "description": "Sum up.",
        "parameters": {"properties": TEXT},
    }
    sum_up |= {"_module": "anonymous", "_output": {"type": "string", "maxLength": 9}}
    calls: list[JSON] = [
        {"_tool": "kind", "_outputPath": "kind"},
        {"_tool": "sum_up", "text": "†state.secret", "_outputPath": "sum"},
    ]
    model = Model({"calls": calls, "output": "done"}, {"calls": [], "output": "short"})
    async with Bridge(
        Configuration(approval="allow_all"), toolbox=Toolbox(kind), mind=model
    ) as bridge:
        run = await bridge.solve("x", context=[*CONTEXT, {"type": "tool", "tool": sum_up}])
        assert await run.result() == "done"
        assert run.value("†state.kind") == "†invoice"
        assert run.value("†state.sum") == "short"

    assert "a document" not in model.read(1)
    assert '"maxLength": 9' in json.dumps(model.shown[1].schema)
    for name in ("kind", "sum_up"):
        assert not {"_activity", "_module", "_output"} & offered(model, name)


async def test_what_is_fixed_cannot_be_called_otherwise_nor_defined_twice() -> None:
    box = Toolbox(loud, telling, shout(_activity={"const": "loud"}))
    async with Bridge(toolbox=box) as bridge:
        with pytest.raises(PlanError, match="_activity: tool 'shout' fixes it to 'loud'"):
            await bridge.run_plan(
                read_plan({"calls": [{"_tool": "shout", "text": "a", "_activity": "telling"}]})
            )
        wrong: list[tuple[JSONObject, str]] = [
            ({"_activity": {"type": "string"}}, "_activity must be a constant"),
            (
                {"_module": {"const": "idea:x"}, "_activity": {"const": "loud"}},
                "'idea:x' already determines how the tool runs",
            ),
            (
                {"_module": {"const": "git"}, "_output": {"const": 1}},
                "_output is a constant, and _module",
            ),
            ({"_output": 3}, "_output must be a JSON Schema"),
        ]
        for properties, told in wrong:
            with pytest.raises(ToolDefinitionError, match=told):
                Toolbox(shout(**properties))
            definition: JSONObject = {
                "name": "x",
                "parameters": {"type": "object", "properties": properties},
            }
            with pytest.raises(MessageError, match=told):
                await bridge.solve("x", context=[{"type": "tool", "tool": definition}])
        twice: JSONObject = {"name": "x", "output": {}, "_output": {}}
        with pytest.raises(MessageError, match="_output and output mean the same"):
            await bridge.solve("x", context=[{"type": "tool", "tool": twice}])
