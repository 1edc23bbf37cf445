"""Activities that return a `DataMessage`: its data joins the context, and plans branch on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio import Event as Signal
from anyio import fail_after
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge, Configuration, MessageAdded, Run
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import (
    JSON,
    Activity,
    ActivityContext,
    ArgumentError,
    DataMessage,
    JSONObject,
    Tool,
    Toolbox,
    ToolDefinitionError,
    tool,
    tool_from,
)
from ideabridge.tools.tool import Annotations
from tests.bridge.test_seeds import Model

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Room:
    number: int


@dataclasses.dataclass
class Problem:
    reason: str


@tool(read_only=True)
def book(room: int) -> DataMessage[Room] | DataMessage[Problem]:
    """Book a room. It handles its own error: what came of it is a message."""
    if room < 100:
        return DataMessage("ok", Room(room))
    return DataMessage("failed", Problem(f"{room} is taken"), "why no room was booked")


@tool(read_only=True)
def say(text: str) -> str:
    """Say a text."""
    return text


@tool(read_only=True)
def show(value: JSON) -> JSON:
    """Give a value back."""
    return value


def branches(room: JSON) -> JSONObject:
    """The branch for success, the one for failure, and a call that takes whichever there is."""
    return {
        "calls": [
            {"_tool": "book", "room": room, "_outputPath": "booking"},
            {"_tool": "show", "value": "†data.ok.number", "_outputPath": "number"},
            {"_tool": "say", "text": "†data.failed.reason", "_outputPath": "reason"},
            {"_tool": "show", "value": "†data.ok || †data.failed", "_outputPath": "either"},
        ],
        "output": "†state",
    }


OK: JSONObject = {"booking": {"number": 7}, "number": 7, "either": {"number": 7}}
FAILED: JSONObject = {
    "booking": {"reason": "700 is taken"},
    "reason": "700 is taken",
    "either": {"reason": "700 is taken"},
}
ANY: JSONObject = {"type": "object"}
BOX = Toolbox(book, say, show)


def statuses(run: Run) -> list[str]:
    return [one.status.value for one in run.calls()]


@pytest.mark.parametrize(("room", "expected"), [(7, OK), (700, FAILED)])
async def test_the_branch_is_the_same_whole_streamed_in_a_plan_and_read_from_the_journal(
    room: int, expected: JSONObject, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    if room == 7:
        taken = ["done", "done", "skipped", "done"]
    else:
        taken = ["done", "skipped", "done", "done"]

    async with Bridge(toolbox=BOX, store=store, mind=Model(branches(room))) as bridge:
        plan = await bridge.run_plan(branches(room))
        whole = await bridge.solve("Book.", output_schema=ANY, mind="turns")
        whole.submit(0, branches(room))
        streamed = await bridge.solve("Book.", output_schema=ANY)
        runs = [plan, whole, streamed]
        for run in runs:
            assert await run.result() == expected
            assert statuses(run) == taken

        await bridge.publish(plan.id, "booking", answer="plan")
        replay = await bridge.start_idea("booking", {})
        assert replay.run is not None
        assert await replay.run.result() == expected

    async with Bridge(toolbox=BOX, store=store) as bridge:
        for run in runs:
            again = await bridge.run(run.id)
            names = [event.name async for event in again]
            # Both events are in a single write, because after a crash between two writes, the
            # message of a call that runs again would already be there.
            assert names[names.index("message_added") + 1] == "call_finished"
            assert (await again.result(), statuses(again)) == (expected, taken)
            forked = await bridge.fork(run.id, at=len([event async for event in again]) - 1)
            assert await forked.result() == expected


async def test_all_following_requests_show_the_data_and_ideas_store_it(tmp_path: Path) -> None:
    booked: JSON = {"_tool": "book", "room": 700}
    model = Model(
        {"calls": [booked], "output": None},
        {"calls": [{"_tool": "say", "text": "a"}], "output": None},
        {"calls": [{"_tool": "say", "text": "†data.failed.reason"}], "output": "†results.2"},
    )
    store = tmp_path / "ideas.sqlite"
    async with Bridge(toolbox=BOX, store=store, mind=model) as bridge:
        run = await bridge.solve("Book.")
        assert await run.result() == "700 is taken"
        steps = bridge.store.ideas.of_run(run.id)
        held = [bridge.store.ideas.get(one.id, caller=SEES_ALL).idea.context for one in steps]

    message = {
        "type": "data",
        "kind": "failed",
        "data": {"reason": "700 is taken"},
        "description": "why no room was booked",
    }
    assert [message in cast("list[Any]", context) for context in held] == [False, True, True]
    assert "Data, read as †data.failed (why no room was booked)" in model.read(2)


async def test_a_reader_waits_for_each_call_that_may_return_a_message_and_data_of_one_kind_merges() -> (
    None
):
    told = Signal()

    @tool(read_only=True)
    async def slow() -> DataMessage[JSONObject]:
        """Find something, after the other."""
        await told.wait()
        return DataMessage("found", {"slow": 1})

    @tool(read_only=True)
    async def quick() -> DataMessage[JSONObject]:
        """Find something else."""
        told.set()
        return DataMessage("found", {"quick": 2})

    calls: list[JSON] = [
        {"_tool": "slow", "_outputPath": "slow"},
        {"_tool": "quick", "_outputPath": "quick"},
        {"_tool": "show", "value": "†data.found", "_outputPath": "all"},
    ]
    with fail_after(20):
        async with Bridge(toolbox=Toolbox(slow, quick, show)) as bridge:
            run = await bridge.run_plan({"calls": calls})
            assert await run.result() == {
                "slow": {"slow": 1},
                "quick": {"quick": 2},
                "all": {"quick": 2, "slow": 1},
            }


async def test_items_and_instances_keep_their_own_data() -> None:
    async with Bridge(toolbox=BOX) as bridge:
        each = await bridge.run_plan(
            {
                "calls": [
                    {"_tool": "book", "room": "†item", "_each": [1, 700, 2], "_outputPath": "all"}
                ]
            }
        )
        assert await each.result() == {
            "all": [{"number": 1}, {"reason": "700 is taken"}, {"number": 2}]
        }
        plan: JSONObject = {
            "instances": {"①": {"room": 7}, "②": {"room": 700}},
            "calls": branches("†state.room")["calls"],
        }
        run = await bridge.run_plan(plan)
        assert await run.result() == {"①": {"room": 7, **OK}, "②": {"room": 700, **FAILED}}


async def test_in_a_program_the_awaited_call_gives_the_data_and_the_next_request_has_the_message() -> (
    None
):
    program = "import tools\nroom = await tools.book(room=7)\nprint(room)\nNone"
    model = Model({"program": program}, {"output": "†data.ok.number"})
    async with Bridge(toolbox=BOX, mind=model) as bridge:
        run = await bridge.solve("Book.", output_schema={"type": "integer"})
        assert await run.result() == 7
    assert "Data, read as †data.ok" in model.read(1)


async def test_an_activity_without_the_decorator_returns_messages_and_a_group_keeps_those_of_its_winner() -> (
    None
):
    async def run_note(parameters: JSONObject, context: ActivityContext) -> DataMessage[JSON]:
        return DataMessage("note", {"text": parameters["text"]})

    note = Tool(
        "note",
        "Note.",
        {"type": "object", "properties": {"text": {"type": "string"}}},
        annotations=READ_ONLY,
    )
    async with (
        Bridge(toolbox=Toolbox(note, Activity("note", run_note), show)) as bridge,
        bridge.session() as session,
    ):
        assert await session.run({"_tool": "note", "text": "a"}) == {"text": "a"}
        assert await session.run_any([{"_tool": "note", "text": "b"}]) == {"text": "b"}
        assert await session.run({"_tool": "show", "value": "†data.note"}) == {"text": "b"}


READ_ONLY = Annotations(read_only=True)


async def test_what_the_message_holds_is_bounded_checked_and_journaled_with_the_result(
    tmp_path: Path,
) -> None:
    @tool(read_only=True)
    def large() -> DataMessage[str]:
        """Return much."""
        return DataMessage("much", "x" * 3_000)

    @tool(read_only=True)
    def wrong() -> DataMessage[Room]:
        """Return what the annotation does not declare."""
        return DataMessage("ok", cast("Any", "a room"))

    @tool(read_only=True)
    def nested() -> Any:
        """Hide a message in a result, where it is none."""
        return {"message": DataMessage("ok", 1)}

    limits = {"limits": {"result_bytes": 2_000}}
    async with Bridge(
        Configuration.model_validate(limits), toolbox=Toolbox(large, wrong, nested, book)
    ) as bridge:
        run = await bridge.run_plan(
            {"calls": [{"_tool": name} for name in ("large", "wrong", "nested")]}
        )
        await run.wait()
        told = [str(one["error"]) for one in run.errors()]
        assert "the limit is 2,000" in told[0]
        assert "does not match the return annotation" in told[1]
        assert "it returned a value that is not JSON" in told[2]
        assert not [event async for event in run if isinstance(event, MessageAdded)]
        clean = await bridge.run_plan(
            {"calls": [{"_tool": "book", "room": 1, "_module": "anonymous"}]}
        )
        await clean.wait()
        assert "a clean room cannot add to the context" in str(clean.errors())


def test_a_message_says_what_it_is_made_of() -> None:
    declared: Any = BOX.tool("book").output
    assert declared["anyOf"] == [{"$ref": "#/$defs/Room"}, {"$ref": "#/$defs/Problem"}]
    assert repr(DataMessage("ok", 1)) == "DataMessage('ok', 1)"
    for kind, told in (
        ("error", "built-in type"),
        ("", "1 to 200 characters"),
        ("x" * 201, "found 201"),
    ):
        with pytest.raises(ArgumentError, match=told):
            DataMessage(kind, 1)

    with pytest.raises(ArgumentError, match="kind: expected text"):
        DataMessage(cast("Any", 3), 1)

    def no_schema() -> DataMessage[Signal]:
        """Return what no schema describes."""
        raise NotImplementedError

    with pytest.raises(ToolDefinitionError, match="return annotation"):
        tool_from(no_schema)


CALLS = st.sampled_from(
    [
        {"_tool": "book", "room": 7},
        {"_tool": "book", "room": 700},
        {"_tool": "show", "value": "†data.ok"},
        {"_tool": "show", "value": "†data.failed.reason"},
        {"_tool": "show", "value": "†data.ok.number || †data.failed"},
        {"_tool": "show", "value": "†data.ok && †data.failed"},
    ]
)


@settings(max_examples=15)
@given(st.lists(CALLS, min_size=1, max_size=6))
def test_whatever_is_listed_routes_the_same_whole_and_streamed(listed: list[JSONObject]) -> None:
    async def outcomes() -> list[list[tuple[str, JSON]]]:
        solution: JSONObject = {"calls": list[JSON](listed), "output": "ended"}
        async with Bridge(toolbox=BOX, mind=Model(solution)) as bridge:
            whole = await bridge.solve("x", mind="turns")
            whole.submit(0, solution)
            runs = [whole, await bridge.solve("x")]
            for run in runs:
                assert await run.wait(30) == "done"
            return [[(one.status.value, one.value) for one in run.calls()] for run in runs]

    whole, streamed = anyio.run(outcomes)
    assert whole == streamed
    for place, (call, (status, _)) in enumerate(zip(listed, whole, strict=True)):
        before = {str(one["room"]) for one in listed[:place] if one["_tool"] == "book"}
        value = str(call.get("value"))
        needs = {
            kind
            for kind, room in (("ok", "7"), ("failed", "700"))
            if kind in value and room not in before
        }
        if call["_tool"] == "book" or not needs or ("||" in value and len(needs) < 2):
            assert status == "done"
        elif place > 0 and "failed" not in [earlier for earlier, _ in whole[:place]]:
            # This branch was not taken.
            assert status == "skipped"
        else:
            # The code that adds the data is not listed earlier, or code that might have added it
            # has failed.
            assert status == "failed"
