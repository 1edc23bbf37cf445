"""A Solution means the same whether it is handed in whole or streams in."""

from __future__ import annotations

import json

import pytest

from ideabridge.bridge import Bridge, PlanError, RejectedSolutionError
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON
from tests.bridge.test_seeds import Model

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def shout(text: str) -> str:
    """Make text loud."""
    return text.upper()


MIXED: list[JSON] = [
    {"_tool": "shout", "text": "one", "_outputPath": "one"},
    {"_tool": "shuot", "text": "two", "_outputPath": "two"},
    {"_tool": "shout", "text": "†state.two", "_outputPath": "three"},
    {"_tool": "shout", "text": "†state.two || †state.one", "_outputPath": "four || failed"},
    {"_tool": "shout", "text": "†state.six", "_outputPath": "five"},
    {"_tool": "shout", "text": "†state.five", "_outputPath": "six"},
    {"_tool": "shout", "text": "†state.six", "_outputPath": "seven"},
]
KINDS = {1: "structural", 2: "dependency", 4: "structural", 5: "structural", 6: "dependency"}


def failures(run: Run) -> dict[object, object]:
    found: dict[object, object] = {}
    for one in run.errors():
        error = one["error"]
        assert isinstance(error, dict)
        found[one.get("place")] = error["kind"]
    return found


def context(run: Run) -> str:
    return json.dumps(run.answer()["requests"], ensure_ascii=False)


async def test_what_is_well_formed_runs_beside_what_is_not_whole_and_streamed() -> None:
    async with Bridge(toolbox=Toolbox(shout)) as bridge:
        whole = await bridge.solve("x")
        whole.submit(0, {"calls": MIXED, "output": "†state.nowhere"})
        assert await whole.wait(30) == "needs_solution"
        assert (whole.turn, whole.machine.state) == (1, {"one": "ONE", "four": "ONE"})
        assert failures(whole) == {**KINDS, None: "output"}
        told = whole.errors()
        assert "call 4 (shout) -> call 5 (shout)" in str(told)

    model = Model(
        {"calls": MIXED, "output": "†state.nowhere"}, {"calls": [], "output": "†state.four"}
    )
    async with Bridge(toolbox=Toolbox(shout), mind=model) as bridge:
        streamed = await bridge.solve("x")
        assert await streamed.result() == "ONE"
        assert streamed.machine.state == {"one": "ONE", "four": "ONE"}
        assert [
            message.value for message in model.shown[1].context if message.type == "error"
        ] == told


async def test_a_plan_and_a_step_of_a_session_run_nothing_unless_all_of_it_is_well_formed() -> None:
    async with Bridge(toolbox=Toolbox(shout)) as bridge:
        with pytest.raises(PlanError, match="Did you mean 'shout'"):
            await bridge.run_plan(read_plan({"calls": MIXED}))
        assert bridge.runs() == []
        async with bridge.session() as session:
            with pytest.raises(RejectedSolutionError, match="Did you mean 'shout'"):
                await session.run({"_tool": "shuot", "text": "a"})
            for group in (session.run_all, session.run_any, session.run_race):
                with pytest.raises(RejectedSolutionError, match="Did you mean 'shout'"):
                    await group(
                        [
                            {"_tool": "shout", "text": "a", "_outputPath": "a"},
                            {"_tool": "shuot", "text": "b"},
                        ]
                    )
            assert session.state == {}


async def test_what_cannot_be_read_runs_nothing_and_can_be_sent_again() -> None:
    async with Bridge(toolbox=Toolbox(shout)) as bridge:
        run = await bridge.solve("x", limits={"calls": 3})
        with pytest.raises(
            RejectedSolutionError, match="7 more calls; a run may list at most 3 in total"
        ):
            run.submit(0, {"calls": MIXED})
        assert (run.status, run.turn, run.calls()) == ("needs_solution", 0, [])
        run.submit(0, {"calls": MIXED[:1], "output": "†state.one"})
        assert await run.result() == "ONE"


async def test_an_error_holds_the_whole_call_and_what_is_shown_of_it_refers_to_the_rest() -> None:
    text = "long " * 2000
    async with Bridge(toolbox=Toolbox(shout)) as bridge:
        run = await bridge.solve("x", input={"n": 1})
        run.submit(0, {"calls": [{"_tool": "shuot", "text": text, "_outputPath": "loud"}]})
        assert await run.wait(30) == "needs_solution"
        request = run.runner.request
        assert request is not None
        [kept] = [message.value for message in request.context if message.type == "error"]
        assert kept == run.errors()[0]
        assert text in str(kept)
        shown = context(run)
        assert text not in shown
        assert "†data.error.0.call.text" in shown
        # A mind need not write long text again.
        run.submit(
            1,
            {
                "calls": [{"_tool": "shout", "text": "†data.error.0.call.text"}],
                "output": "†results.1",
            },
        )
        assert await run.result() == text.upper()
        # A plan that is made from the run contains the text itself, because the failed call is not
        # part of it.
        published = await bridge.publish(run.id, "loudly", answer="plan")
        assert published.plan is not None
        assert text in str(published.input_schema)
        replay = await bridge.start_idea("loudly", {"n": 1})
        assert replay.run is not None
        assert await replay.run.result() == text.upper()


@pytest.mark.parametrize("calls", [25, 60])
async def test_every_error_of_a_step_reaches_the_mind(calls: int) -> None:
    async with Bridge(toolbox=Toolbox(shout)) as bridge:
        run = await bridge.solve("x")
        run.submit(
            0, {"calls": [{"_tool": "shuot", "text": f"text {number}"} for number in range(calls)]}
        )
        assert await run.wait(30) == "needs_solution"
        shown = context(run)
        assert all(f"text {number}" in shown for number in range(calls))
        assert "more calls failed" not in shown


async def test_errors_beyond_a_bound_in_sum_are_counted_and_can_be_read() -> None:
    async with Bridge(toolbox=Toolbox(shout)) as bridge:
        run = await bridge.solve("x")
        calls: list[JSON] = [
            {"_tool": "shuot", "text": f"text {number} {'x' * 900}"} for number in range(100)
        ]
        run.submit(0, {"calls": calls, "output": "†state.nowhere"})
        assert await run.wait(30) == "needs_solution"
        shown = context(run)
        assert len(shown) < 60_000
        assert "text 20" in shown
        assert "more calls failed; there are 101 errors in total." in shown
        # The error of the output belongs to no call, so it cannot be read as the error of one.
        assert "†state.nowhere" in shown
        run.submit(
            1,
            {
                "calls": [{"_tool": "shout", "text": "†data.error.99.call.text"}],
                "output": "†results.100",
            },
        )
        assert (await run.result()).startswith("TEXT 99")


async def test_a_refused_plan_names_the_errors_of_all_its_calls() -> None:
    async with Bridge(toolbox=Toolbox(shout)) as bridge:
        with pytest.raises(PlanError) as refused:
            await bridge.run_plan(
                read_plan({"calls": [{"_tool": "shuot", "text": "a"} for _ in range(25)]})
            )
        assert "calls[24] (shuot)" in str(refused.value)
        assert len(refused.value.errors) == 25
        with pytest.raises(PlanError, match=r"\.\.\. and [\d,]+ more$") as refused:
            await bridge.run_plan(
                read_plan({"calls": [{"_tool": "shuot", "text": "a"} for _ in range(2000)]})
            )
        assert len(str(refused.value)) < 20_000
