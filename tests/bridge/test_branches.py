"""Branches on what a call found, and data that a call adds for the calls listed after it."""

from __future__ import annotations

import pytest
from anyio import Event as Signal
from anyio import fail_after

from ideabridge.bridge import Bridge, PlanError
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import ActivityContext, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.bridge.test_seeds import Model

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def book(room: str, context: ActivityContext) -> JSONObject:
    """Book a room: it says what came of it by a message, and by the path it writes."""
    kind = "booked" if room == "free" else "refused"
    context.add_message({"type": kind, kind: {"room": room}})
    if len(context.output_paths) > 1:
        context.choose(context.output_paths[0 if kind == "booked" else 1])
    return {"room": room}


@tool(read_only=True)
def say(text: str) -> str:
    """Say a text."""
    return text


@tool(read_only=True)
def fail() -> str:
    """Fail."""
    raise ValueError("no")


def listed(room: str) -> list[JSON]:
    return [
        {"_tool": "book", "room": room, "_outputPath": "yes || no"},
        {"_tool": "say", "text": "†state.yes.room", "_outputPath": "a", "_id": "first"},
        {"_tool": "say", "text": "†state.a", "_outputPath": "b"},
        {"_tool": "say", "text": "†state.no.room", "_outputPath": "c"},
        {"_tool": "say", "text": "†state.b || †state.c", "_outputPath": "either"},
        {"_tool": "say", "text": "†state.b && †state.c", "_outputPath": "both"},
        {"_tool": "say", "text": "after", "_after": ["first"], "_outputPath": "after"},
        {"_tool": "say", "text": "†data.booked.room", "_outputPath": "d"},
        {"_tool": "say", "text": "†data.refused.room", "_outputPath": "e"},
        {"_tool": "say", "text": "†state.e", "_outputPath": "f"},
    ]


TAKEN = {"free": {"a", "b", "d"}, "full": {"c", "e", "f"}}


def check(run: Run, room: str) -> None:
    assert run.errors() == []
    assert set(run.state) == {"yes" if room == "free" else "no", "either", "after", *TAKEN[room]}
    skipped = [one.call.place for one in run.calls() if one.status.value == "skipped"]
    assert skipped == ([3, 5, 8, 9] if room == "free" else [1, 2, 5, 7])


@pytest.mark.parametrize("room", ["free", "full"])
async def test_the_branch_not_taken_is_skipped_without_an_error_however_the_solution_comes(
    room: str,
) -> None:
    boxed = Toolbox(book, say)
    either: JSON = {"either": "†state.either", "data": "†data.booked.room || †data.refused.room"}
    output: JSONObject = {"type": "object"}
    async with Bridge(toolbox=boxed) as bridge:
        plan = await bridge.run_plan(read_plan({"calls": listed(room), "output": either}))
        assert await plan.result() == {"either": room, "data": room}
        check(plan, room)
        whole = await bridge.solve("x", output_schema=output)
        whole.submit(0, {"calls": listed(room), "output": either})
        assert await whole.result() == {"either": room, "data": room}
        check(whole, room)
        # A branch that was not taken has no output.
        bad = await bridge.run_plan(
            read_plan({"calls": listed(room), "output": ["†state.yes", "†state.no"]})
        )
        assert await bad.wait(30) == "failed"
        assert "took another branch" in str(bad.errors())

    async with Bridge(
        toolbox=boxed, mind=Model({"calls": listed(room), "output": either})
    ) as bridge:
        streamed = await bridge.solve("x", output_schema=output)
        assert await streamed.result() == {"either": room, "data": room}
        check(streamed, room)


async def test_a_read_of_data_waits_for_the_calls_listed_before_it_and_nothing_else_does() -> None:
    told, others = Signal(), Signal()

    @tool(read_only=True)
    async def find(context: ActivityContext) -> str:
        """Add what it finds, once the others have run."""
        await others.wait()
        context.add_message({"type": "found", "found": {"new": 2}})
        told.set()
        return "found"

    @tool(read_only=True)
    async def other() -> str:
        """Run beside."""
        others.set()
        return "other"

    @tool(read_only=True)
    async def late(context: ActivityContext) -> str:
        """Add more, which only calls after it see."""
        context.add_message({"type": "found", "found": {"late": 3}})
        return "late"

    @tool(read_only=True)
    async def show(value: JSON) -> JSON:
        """Give it back."""
        return value

    calls: list[JSON] = [
        {"_tool": "show", "value": "†data.found"},
        {"_tool": "find"},
        {"_tool": "show", "value": "†data.found"},
        {"_tool": "other"},
        {"_tool": "late"},
        {"_tool": "show", "value": "†data.found"},
    ]
    context: list[JSON] = [{"type": "found", "found": {"old": 1}}]
    with fail_after(20):
        async with Bridge(toolbox=Toolbox(find, other, late, show)) as bridge:
            run = await bridge.solve("x", context=context, output_schema={"type": "array"})
            run.submit(0, {"calls": calls, "output": ["†results.0", "†results.2", "†results.5"]})
            assert await run.result() == [
                {"old": 1},
                {"old": 1, "new": 2},
                {"old": 1, "new": 2, "late": 3},
            ]
            assert told.is_set()
            again = await bridge.solve("x", context=context)
            again.submit(0, {"calls": calls[:3], "output": None})
            assert await again.wait(30) == "needs_solution"
            assert "†data.found" in str(again.answer()["requests"])
            again.submit(1, {"calls": [calls[0]], "output": None})
            assert await again.wait(30) == "needs_solution"
            assert again.value("†results.3") == {"old": 1, "new": 2}


async def test_a_read_of_data_of_the_context_does_not_wait_for_calls_that_wait_for_it() -> None:
    calls: list[JSON] = [
        {"_tool": "say", "text": "†state.room", "_outputPath": "said"},
        {"_tool": "book", "room": "free", "_after": ["read"]},
        {"_tool": "say", "text": "†data.booked.room", "_outputPath": "room", "_id": "read"},
    ]
    solution: JSONObject = {"calls": calls, "output": "†state.said"}
    context: list[JSON] = [{"type": "booked", "booked": {"room": "full"}}]
    async with Bridge(toolbox=Toolbox(book, say)) as bridge:
        whole = await bridge.solve("x", context=context)
        whole.submit(0, solution)
        assert await whole.result() == "full"
        assert whole.errors() == []

    async with Bridge(toolbox=Toolbox(book, say), mind=Model(solution)) as bridge:
        streamed = await bridge.solve("x", context=context)
        assert await streamed.result() == "full"


async def test_data_that_nobody_can_add_is_a_fault_and_a_failure_on_the_way_is_told() -> None:
    read: JSON = {"_tool": "say", "text": "†data.booked.room"}
    async with Bridge(toolbox=Toolbox(book, say, fail)) as bridge:
        booked: JSON = {"_tool": "book", "room": "free"}
        plans: list[list[JSON]] = [[read], [read, booked]]
        for calls in plans:
            with pytest.raises(PlanError, match=r"nothing supplies †data\.booked\.room"):
                await bridge.run_plan(read_plan({"calls": calls}))
        run = await bridge.run_plan(read_plan({"calls": [{"_tool": "fail"}, read]}))
        assert await run.wait(30) == "done"
        assert [one["place"] for one in run.errors()] == [0, 1]
        assert "no call added it, and call 0 (fail) failed" in str(run.errors()[1])
        wrong: JSON = {"_tool": "say", "text": "†data.booked.rom"}
        run = await bridge.run_plan(read_plan({"calls": [booked, wrong]}))
        assert await run.wait(30) == "done"
        assert "†data.booked has no 'rom'; it has room" in str(run.errors())
        dry = await bridge.dry_run(read_plan({"calls": [booked, {"_tool": "fail"}, read]}))
        assert dry["layers"] == [[0, 1], [2]]


async def test_an_instance_adds_data_to_itself() -> None:
    raw: JSON = {
        "instances": {"①": {"room": "free"}, "②": {"room": "full"}},
        "calls": [
            {"_tool": "book", "room": "†state.room"},
            {"_tool": "say", "text": "†data.booked.room", "_outputPath": "booked"},
        ],
    }
    async with Bridge(toolbox=Toolbox(book, say)) as bridge:
        run = await bridge.run_plan(read_plan(raw))
        assert await run.result() == {
            "①": {"room": "free", "booked": "free"},
            "②": {"room": "full"},
        }


async def test_a_tool_made_of_such_a_run_reads_what_its_own_calls_add() -> None:
    async with Bridge(toolbox=Toolbox(book, say)) as bridge:
        run = await bridge.solve("x", input={"room": "free"})
        run.submit(0, {"calls": [{"_tool": "book", "room": "†input.room"}], "output": None})
        assert await run.wait(30) == "needs_solution"
        run.submit(
            1, {"calls": [{"_tool": "say", "text": "†data.booked.room"}], "output": "†results.1"}
        )
        assert await run.result() == "free"
        await bridge.publish(run.id, "booking", answer="plan")
        replay = await bridge.start_idea("booking", {"room": "free"})
        assert replay.run is not None
        assert await replay.run.result() == "free"


async def test_a_skipped_call_stands_in_the_answer_with_its_reason() -> None:
    calls = [
        *listed("free"),
        {"_tool": "say", "text": "†data.boked.room", "_outputPath": "misspelled"},
    ]
    async with Bridge(toolbox=Toolbox(book, say, fail)) as bridge:
        run = await bridge.run_plan({"calls": calls})
        assert await run.wait() == "done"
        assert run.errors() == []
        assert [entry["place"] for entry in run.skipped] == [3, 5, 8, 9, 10]
        assert run.skipped[-1] == {
            "place": 10,
            "tool": "say",
            "why": "†data.boked.room: no earlier call added it. Did you mean 'booked'?",
        }
        assert run.answer()["skipped"] == run.skipped
        many = await bridge.run_plan(
            {
                "calls": [
                    {"_tool": "say", "text": "x", "_outputPath": "yes || no"},
                    *({"_tool": "say", "text": "†state.no.x"} for _ in range(30)),
                ]
            }
        )
        await many.wait()
        assert (len(many.answer()["skipped"]), many.answer()["more_skipped"]) == (20, 10)
        assert len(many.answer(whole=True)["skipped"]) == 30
        none = await bridge.run_plan({"calls": listed("free")[:1]})
        await none.wait()
        assert "skipped" not in none.answer()


async def test_a_mind_sees_why_a_call_was_skipped() -> None:
    misspelled: JSON = {
        "calls": [*listed("free")[:1], {"_tool": "say", "text": "†data.boked.room"}]
    }
    model = Model(misspelled, {"calls": [], "output": "fine"})
    async with Bridge(toolbox=Toolbox(book, say, fail), mind=model) as bridge:
        run = await bridge.solve("x")
        assert await run.result() == "fine"
        said = "\n".join(str(text["content"]) for text in model.shown[1].texts)
        assert (
            "1 say: skipped (†data.boked.room: no earlier call added it. Did you mean 'booked'?)"
        ) in said
        # Like errors, only the skipped calls of the last Solution are listed.
        assert run.skipped == []
