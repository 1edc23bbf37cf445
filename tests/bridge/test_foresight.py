"""What is wrong with what exists already is found before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge, Configuration, PlanError, RunFailedError
from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import RunStarted, SolutionProposed
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools import Tool, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.bridge.test_seeds import Model

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool(read_only=False)
def delete(name: str) -> str:
    """Delete something."""
    RAN.append(name)
    return name


@tool(read_only=True)
def count(items: list[str], by: str = "") -> int:
    """Count."""
    return len(items)


TOOLS = Toolbox(delete, count)
ALLOWED = Configuration(approval="allow_all")
DELETE: JSON = {"_tool": "delete", "name": "a"}
INPUT: JSONObject = {"text": "x", "list": ["a"], "numbers": [1], "none": []}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            {"_tool": "count", "items": "†input.text"},
            'items: found "x", expected an array.*†input.text',
        ),
        ({"_tool": "count", "items": ["a", "†input.list"]}, "items.1: found .*expected text"),
        ({"_tool": "count", "items": "†input.numbers"}, "items.0: found 1, expected text"),
        ({"_tool": "count", "items": "†input.text", "by": "†results.0"}, 'items: found "x"'),
        ({"_tool": "count", "items": "†input.text || †results.0"}, 'items: found "x"'),
        (
            {"_tool": "count", "items": ["†item"], "_each": "†input.text"},
            '_each: expected an array, found "x"',
        ),
        (
            {"_tool": "count", "items": "†input.text", "by": "†item", "_each": "†input.list"},
            'items: found "x"',
        ),
        (
            {"_tool": "count", "items": [], "_activity": "cuont"},
            "_activity: unknown activity 'cuont'. Did you mean 'count'",
        ),
    ],
)
async def test_a_plan_that_cannot_work_with_its_input_runs_nothing(
    call: JSON, message: str
) -> None:
    async with Bridge(ALLOWED, toolbox=TOOLS) as bridge:
        plan: JSONObject = {"calls": [DELETE, call], "input": INPUT}
        with pytest.raises(PlanError, match=message):
            await bridge.run_plan(plan)
        with pytest.raises(PlanError, match=message):
            await bridge.dry_run(plan)
        assert RAN == []
        assert bridge.runs() == []


@pytest.mark.parametrize(
    "call",
    [
        {"_tool": "count", "items": "†input.list"},
        # Either an earlier call writes it, or there are no items.
        {"_tool": "count", "items": "†state.x || †input.text"},
        {"_tool": "count", "items": "†input.text", "by": "†item", "_each": "†input.none"},
        {"_tool": "count", "items": "†input.list", "by": "††input.text"},
    ],
)
async def test_what_may_work_runs(call: JSON) -> None:
    async with Bridge(ALLOWED, toolbox=TOOLS) as bridge:
        made: JSON = {
            "_tool": "filter",
            "items": "†input.list",
            "where": "@ == 'a'",
            "_outputPath": "x",
        }
        run = await bridge.run_plan({"calls": [made, call], "input": INPUT})
        await run.wait()
        assert run.errors() == []


async def test_an_input_that_a_plan_lacks_is_of_no_type() -> None:
    async with Bridge(ALLOWED, toolbox=TOOLS) as bridge:
        told = await bridge.dry_run({"calls": [{"_tool": "count", "items": "†input.list"}]})
        assert "†input.list" in str(told)


@pytest.mark.parametrize("output", ["text", "†input.text", {"n": 1}])
async def test_an_output_that_cannot_be_is_found_before_anything_runs(output: JSON) -> None:
    async with Bridge(ALLOWED, toolbox=TOOLS) as bridge:
        plan: JSONObject = {
            "calls": [DELETE],
            "input": INPUT,
            "output": output,
            "output_schema": {"type": "integer"},
        }
        with pytest.raises(PlanError, match=r"the output: .*found .*, expected an integer"):
            await bridge.run_plan(plan)
        assert RAN == []


STATE: JSONObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "m": {}},
    "required": ["n", "m"],
}


async def test_an_initial_state_that_violates_its_schema_runs_nothing() -> None:
    async with Bridge(ALLOWED, toolbox=TOOLS) as bridge:
        instance: JSON = {"type": "state", "state": {"n": "one"}, "schema": STATE}
        for call in (bridge.run_plan, bridge.dry_run):
            with pytest.raises(
                PlanError, match='instance ②: the state: n: found "one", expected an integer'
            ):
                await call({"calls": [DELETE], "instances": {"①": {"n": 1}, "②": instance}})
        with pytest.raises(MessageError, match='the state: n: found "one"'):
            await bridge.solve(
                "x", context=[{"type": "state", "state": {"n": "one"}, "schema": STATE}]
            )
        with pytest.raises(MessageError, match='the input: n: found "one"'):
            await bridge.solve(
                "x", context=[{"type": "input", "input": {"n": "one", "m": 1}, "schema": STATE}]
            )
        assert RAN == []
        # A required member may be written later. What is written is checked immediately, and the
        # state again at the end.
        good: JSON = {"type": "state", "state": {"n": 1}, "schema": STATE}
        write: JSON = {"_tool": "delete", "name": "a", "_outputPath": "m"}
        run = await bridge.run_plan(
            {"calls": [write], "instances": {"①": good, "②": {"n": "free"}}}
        )
        assert await run.result() == {"①": {"n": 1, "m": "a"}, "②": {"n": "free", "m": "a"}}
        wrong: JSON = {"_tool": "delete", "name": "a", "_outputPath": "n"}
        run = await bridge.run_plan({"calls": [wrong], "instances": {"①": good}})
        with pytest.raises(RunFailedError, match='n: found "a", expected an integer'):
            await run.result()


async def test_a_mind_is_told_before_the_call_runs_or_asks() -> None:
    call: JSON = {"_tool": "delete", "name": "†input.list"}
    unknown: JSON = {"_tool": "delete", "name": "a", "_activity": "remove"}
    model = Model({"calls": [call, unknown]}, {"calls": [], "output": "no"})
    async with Bridge(toolbox=TOOLS, mind=model) as bridge:
        run = await bridge.solve("x", input=INPUT)
        assert await run.result() == "no"
        kinds: list[Any] = [
            message.get("error")
            for message in model.shown[1].context_json
            if isinstance(message, dict)
        ]
        assert [one["error"]["kind"] for one in kinds if one] == ["structural", "structural"]
        assert RAN == []


VALUES: st.SearchStrategy[JSON] = st.sampled_from(
    ["a", 1, None, True, ["a"], [1], {"a": "b"}, "†state.a", "††x"]
)


@settings(max_examples=200)
@given(
    VALUES,
    VALUES,
    st.booleans(),
    st.sampled_from([{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {}]),
)
def test_it_refuses_what_would_fail_and_nothing_else(
    one: JSON, other: JSON, known: bool, schema: JSONObject
) -> None:
    """Of calls that would run alone, exactly those are refused whose parameters do not fit once
    they are resolved.
    """
    made = Tool(
        "made",
        "",
        {"type": "object", "properties": {"x": schema, "y": {}}, "additionalProperties": False},
    )
    catalogue = Catalogue([made])
    machine = Machine(catalogue)
    chosen = Settings(approval="allow_all", foresight=True)
    context: list[JSON] = [{"type": "input", "input": {"one": one, "other": other}}]
    machine.receive(RunStarted("plan", context, *catalogue.to_json(), chosen.to_json()))
    calls: list[JSON] = [
        {"_tool": "made", "y": 1, "_outputPath": "w"},
        {"_tool": "made", "x": "†input.one", "y": "†input.other" if known else "†state.w"},
    ]
    refused = bool(machine.check(SolutionProposed(calls)).errors)
    would_fail = not catalogue.exact(made).is_valid({"x": one, "y": other})
    if not known and isinstance(one, str) and one.startswith("†"):
        # Next to a reference, text that begins with a dagger looks like one, so its type is checked
        # only when it is resolved.
        assert not refused or would_fail
    else:
        assert refused is would_fail
