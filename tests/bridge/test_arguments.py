"""Arguments of the wrong kind: the error says which one, what was expected, and what was found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ideabridge.bridge import ApprovalRequest, Bridge, Decision, Handlers, PlanError, sync
from ideabridge.tools import ArgumentError, IdeabridgeError, Toolbox, ToolDefinitionError, tool

pytestmark = pytest.mark.anyio


@tool(destructive=False)
def send(to: str) -> str:
    """Send a message."""
    return f"sent to {to}"


def plain(to: str) -> str:
    return to


WRONG: Any = {
    "toolbox: expected a Toolbox, found list; write Toolbox(f, g)": {"toolbox": [send]},
    "toolbox: expected a Toolbox, found function": {"toolbox": send},
    "configuration: expected a Configuration, found dict; read an object with parse_configuration": {
        "configuration": {}
    },
    "store: expected a path or an open Store, found 5": {"store": 5},
    "handlers: expected Handlers, found dict": {"handlers": {"mood": print}},
    (
        "mind: expected a function that takes a Request, or an object with a name and "
        "a method `answer`, found"
    ): {"mind": "openai:tiny"},
    "approver: expected a function that takes an ApprovalRequest, found True": {"approver": True},
}


@pytest.mark.parametrize("message", WRONG)
@pytest.mark.parametrize("kind", [Bridge, sync.Bridge])
def test_a_bridge_is_made_of_what_it_takes(kind: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        kind(**WRONG[message])
    assert str(error.value).startswith(message)
    assert isinstance(error.value, TypeError)
    assert isinstance(error.value, IdeabridgeError)


TOLD: dict[str, Callable[[Any], Awaitable[object]]] = {
    "task: expected text, found 5": lambda bridge: bridge.solve(5),
    "input: expected an object (a dict), found 'x'; json.loads": lambda bridge: bridge.solve(
        "t", input="x"
    ),
    "output_schema: expected an object (a dict), found True; a schema is": lambda bridge: (
        bridge.solve("t", output_schema=True)
    ),
    (
        "output_schema: expected a JSON Schema (a dict), found the class int; pass a type "
        "as output: output=int"
    ): (lambda bridge: bridge.solve("t", output_schema=int)),
    "output: expected a type, such as int or a pydantic model, found dict; pass a JSON Schema": lambda bridge: (
        bridge.solve("t", output={"type": "string"})
    ),
    "output and output_schema: pass a type as output or a JSON Schema as output_schema, but not both": lambda bridge: (
        bridge.solve("t", output=int, output_schema={"type": "integer"})
    ),
    "tools: expected a list of names or patterns, found 'git'; write ['git']": lambda bridge: (
        bridge.solve("t", tools="git")
    ),
    "tools[0]: expected text, found function; give the name of the tool": lambda bridge: (
        bridge.solve("t", tools=[plain])
    ),
    "context: expected a list of messages, found dict; a message is": lambda bridge: bridge.solve(
        "t", context={}
    ),
    "limits: expected an object (a dict), found 5": lambda bridge: bridge.solve("t", limits=5),
    "plan: expected a Plan, or {\"calls\": [...]}, found '{}'; json.loads reads": lambda bridge: (
        bridge.run_plan("{}")
    ),
    "plan: expected either a plan or its calls, found neither": lambda bridge: bridge.run_plan(),
    "plan: expected either a plan or its parts (calls, instances and output), found both": lambda bridge: (
        bridge.run_plan({"calls": []}, calls=[])
    ),
    "calls: expected a list of objects, found dict; put it into a list": lambda bridge: (
        bridge.run_plan(calls={"_tool": "count"})
    ),
    "calls[0]: expected an object (a dict), found 'count'": lambda bridge: bridge.run_plan(
        calls=["count"]
    ),
    "arguments: expected an object (a dict), found list": lambda bridge: bridge.start_idea(
        "x", ["y"]
    ),
    "run_id: expected text, found None": lambda bridge: bridge.run(None),
}


@pytest.mark.parametrize("message", TOLD)
async def test_a_method_says_what_it_takes(message: str) -> None:
    async with Bridge() as bridge:
        with pytest.raises(ArgumentError) as error:
            await TOLD[message](bridge)
    assert str(error.value).startswith(message)


async def test_what_is_no_json_is_named_with_its_place() -> None:
    async with Bridge() as bridge:
        with pytest.raises(IdeabridgeError, match=r"input at names\.1 is a set, which is not JSON"):
            await bridge.solve("t", input={"names": ["Ada", {"Grace"}]})


async def test_sessions_and_runs_say_what_they_take() -> None:
    async with Bridge() as bridge:
        with pytest.raises(ArgumentError, match="state: expected an object"):
            bridge.session(state=cast("Any", ["x"]))
        async with bridge.session() as session:
            given: Any = session
            with pytest.raises(ArgumentError, match="call: expected an object"):
                await given.run("count")
            with pytest.raises(
                ArgumentError, match="calls: expected a list of objects, found dict; put it into a"
            ):
                await given.run_all({"_tool": "count", "items": []})
        run = await bridge.run_plan(calls=[{"_tool": "count", "items": [1]}], output="†results.0")
        with pytest.raises(
            ArgumentError,
            match="model: expected a type, such as int or a pydantic model, found 'int'",
        ):
            await run.result(cast("Any", "int"))
        with pytest.raises(ArgumentError, match="reference: expected text, found 0"):
            run.value(cast("Any", 0))
        with pytest.raises(ArgumentError, match="choices: expected an object"):
            await bridge.publish(run.id, "n", choices=cast("Any", True))


def test_scripts_are_told_too() -> None:
    with sync.Bridge() as bridge:
        given: Any = bridge
        with pytest.raises(ArgumentError, match="output: expected a type"):
            given.run_plan({"calls": []}, output="†state.x")
        with pytest.raises(ArgumentError, match="tools: expected a list"):
            given.solve("t", tools="count")


async def test_an_approver_that_is_no_coroutine_function_denies_and_says_so() -> None:
    def decide(request: ApprovalRequest) -> Decision:
        return Decision("approve", reason=request.why)

    async with Bridge(toolbox=Toolbox(send), approver=cast("Any", decide)) as bridge:
        run = await bridge.run_plan(calls=[{"_tool": "send", "to": "Ada", "_outputPath": "a || b"}])
        await run.wait()
        assert "approver: expected a coroutine function (async def), found function" in run.value(
            "†state.b.message"
        )


def test_tools_say_what_they_are_made_of() -> None:
    wrong: Any = [send]
    with pytest.raises(ToolDefinitionError, match=r"found list; write Toolbox\(f, g\)"):
        Toolbox(wrong)

    with pytest.raises(ToolDefinitionError, match=r"expected a function; write @tool above it"):
        tool(cast("Any", "send"))

    for options, message in (
        ({"name": 3}, "name: expected text, found 3"),
        ({"read_only": "yes"}, "read_only: expected True, False or None, found 'yes'"),
        (
            {"output_schema": True},
            r"output_schema: expected a JSON Schema \(an object\), found True",
        ),
    ):
        with pytest.raises(ArgumentError, match=message):
            tool(**cast("Any", options))(plain)

    with pytest.raises(
        ArgumentError, match="handler: expected a plain function that takes a Message and a Draft"
    ):
        Handlers().register("mood", cast("Any", "x"))


async def test_a_plan_in_parts_runs_as_the_whole() -> None:
    calls = ({"_tool": "count", "items": "†input.names", "_outputPath": "n"},)
    async with Bridge() as bridge:
        parts = await bridge.run_plan(
            calls=calls, input={"names": ("a", "b")}, output={"n": "†state.n"}
        )
        whole = await bridge.run_plan(
            {"calls": calls, "input": {"names": ["x"]}, "output": {"n": "†state.n"}}
        )
        other = await bridge.run_plan(calls, input={"names": []})
        many = await bridge.run_plan(
            calls=calls, input={"names": [1]}, instances={"a": {}, "b": {"n": 5}}
        )
        assert [await parts.result(), await whole.result()] == [{"n": 2}, {"n": 1}]
        assert await other.result() == {"n": 0}
        assert await many.result() == {"a": {"n": 1}, "b": {"n": 1}}
        with pytest.raises(PlanError, match="unknown tool"):
            await bridge.run_plan(calls=[{"_tool": "cuont", "items": []}])


async def test_an_output_that_may_be_null_says_that_it_is_wrapped() -> None:
    async with Bridge() as bridge:
        run = await bridge.solve("t", output_schema={"type": ["string", "null"]})
        await run.wait()
        run.submit(0, {"calls": [], "output": "hello"})
        await run.wait()
        (error,) = run.errors()
        assert '"output": {"value": ...}' in error["error"]["message"]
        run.submit(1, {"calls": [], "output": {"value": None}})
        assert await run.result() is None
