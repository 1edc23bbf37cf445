"""What an application developer holds in hand: dry runs, drawings, events, typed results, the
façade for scripts.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from ideabridge.bridge import (
    ApprovalRequest,
    Bridge,
    Decision,
    GroupFailedError,
    OutputTypeError,
    PlanError,
    Run,
    RunFailedError,
    read_plan,
    sync,
)
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.loop.event import ApprovalAsked
from ideabridge.bridge.plan import Plan
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.asking import ASKS

pytestmark = pytest.mark.anyio


@tool(destructive=False)
def send(to: str) -> str:
    """Send a message."""
    return f"sent to {to}"


# -- dry runs and drawings -------------------------------------------------------------------------


def plan_without_input() -> Plan:
    return read_plan(
        {
            "calls": [
                {
                    "_tool": "count",
                    "items": "†input.names",
                    "_outputPath": "n",
                    "_imports": ["input.extra"],
                },
                {
                    "_tool": "send",
                    "to": "†state.n || †input.to",
                    "_each": "†input.rows",
                    "_outputPath": 'a["<b>|#"]',
                },
            ],
            "output": ["†input.names.0", "†input"],
        }
    )


async def test_a_dry_run_tells_the_inputs_that_are_missing() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        told = await bridge.dry_run(plan_without_input())
        # †input.to has another operand, and a bare †input exists but is empty.
        assert told["missing_inputs"] == [
            "†input.names",
            "†input.rows",
            "†input.extra",
            "†input.names.0",
        ]
        with pytest.raises(PlanError, match=r"nothing supplies †input.names"):
            await bridge.run_plan(plan_without_input())


async def test_a_dry_run_refuses_what_was_given_and_does_not_fit() -> None:
    async with Bridge() as bridge:
        plans: list[tuple[JSON, str]] = [
            ({"input": {"a": 1}, "calls": [{"_tool": "count", "items": "†input.b"}]}, "†input.b"),
            ({"calls": [{"_tool": "cuont", "items": "†input.b"}]}, "Did you mean 'count'"),
            ({"calls": [{"_tool": "count", "items": "†state.b", "_each": "†input.x"}]}, "†state.b"),
        ]
        for raw, fault in plans:
            with pytest.raises(PlanError, match=fault):
                await bridge.dry_run(read_plan(raw))


async def test_drawings_mark_what_changes_things_and_what_is_missing() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        text = await bridge.draw(plan_without_input(), "text")
        assert "1 send for each" in text
        assert text.count("! not read-only") == 1
        assert "missing inputs: †input.names, †input.rows" in text
        mermaid = await bridge.draw(plan_without_input())
        assert mermaid.startswith("flowchart TD\n")
        assert "  class c1 changing\n" in mermaid
        assert '  c0 -->|"†state.n"| c1\n' in mermaid
        # No label contains anything that Mermaid or HTML would read as its own syntax.
        assert "#60;b#62;#124;#35;" in mermaid
        with pytest.raises(PlanError, match="expected 'mermaid' or 'text', found 'svg'"):
            await bridge.draw(plan_without_input(), cast("Any", "svg"))


async def test_calls_that_wait_for_each_other_by_later_alternatives_are_drawn_last() -> None:
    plan = read_plan(
        {
            "input": {"a": []},
            "calls": [
                {
                    "_tool": "count",
                    "items": "†state.none || †state.y || †input.a",
                    "_outputPath": "x",
                },
                {
                    "_tool": "count",
                    "items": "†state.none || †state.x || †input.a",
                    "_outputPath": "y || none",
                },
            ],
        }
    )
    async with Bridge() as bridge:
        told = await bridge.dry_run(plan)
        assert told["layers"] == [[0, 1]]


async def test_a_drawing_holds_every_instance() -> None:
    plan = read_plan(
        {
            "instances": {"①": {"n": []}, "②": {"n": []}},
            "calls": [{"_tool": "count", "items": "†state.n"}],
        }
    )
    async with Bridge() as bridge:
        text = await bridge.draw(plan, "text")
        assert "0 (①) count" in text
        assert "0 (②) count" in text


# -- events ----------------------------------------------------------------------------------------


def waiting(to: JSON = "Ada") -> Plan:
    return read_plan(
        {"calls": [{"_tool": "send", "to": to, "_outputPath": "sent"}], "output": "†state.sent"}
    )


async def names(run: Run) -> list[str]:
    return [event.name async for event in run]


async def test_whoever_iterates_sees_every_event_and_may_decide() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        run = await bridge.run_plan(waiting())
        seen: list[str] = []
        async for event in run:
            seen.append(event.name)
            if isinstance(event, ApprovalAsked):
                run.decide(event.approval, "approve", by="the test")
        assert seen == [
            *("run_started", "solution_proposed", "approval_asked", "call_decided"),
            *("call_started", "call_finished", "run_ended"),
        ]
        # A reader that comes late, or again, gets all events.
        assert await names(run) == seen
        assert await run.result() == "sent to Ada"


async def test_events_from_now_leave_out_what_has_happened() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        run = await bridge.run_plan(waiting())
        assert await run.wait() == "needs_approval"
        seen: list[str] = []

        async def watch(started: anyio.Event) -> None:
            started.set()
            seen.extend([event.name async for event in run.events(from_now=True)])

        async with anyio.create_task_group() as group:
            started = anyio.Event()
            group.start_soon(watch, started)
            await started.wait()
            await anyio.lowlevel.checkpoint()
            run.decide(waits_for(run), "deny", by="the test")
        assert seen == ["call_decided", "run_ended"]


async def test_the_events_of_a_cancelled_run_end() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        run = await bridge.run_plan(waiting())
        run.cancel("enough")
        assert (await names(run))[-1] == "run_ended"


async def test_events_outlast_the_process(tmp_path: Path) -> None:
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await bridge.run_plan(
            read_plan({"calls": [{"_tool": "count", "items": list[int]()}]})
        )
        seen = await names(run)
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        assert await names(await bridge.run(run.id)) == seen


# -- results ---------------------------------------------------------------------------------------


class Line(BaseModel):
    item: str
    on: date


class Report(BaseModel):
    title: str
    lines: list[Line]


REPORT: JSON = {"title": "tea", "lines": [{"item": "leaf", "on": "2026-11-21"}]}


async def test_a_result_is_read_as_a_model() -> None:
    async with Bridge() as bridge:
        run = await bridge.solve("Report.", output=Report)
        run.submit(0, {"calls": [], "output": {"title": 3, "lines": []}})
        assert await run.wait() == "needs_solution"
        assert "title" in str(run.errors())
        run.submit(1, {"calls": [], "output": REPORT})
        report = await run.result(Report)
        assert report == Report(title="tea", lines=[Line(item="leaf", on=date(2026, 11, 21))])
        assert await run.result() == REPORT
        assert await run.result(dict[str, object]) == REPORT
        with pytest.raises(
            OutputTypeError, match=r"the output is not a valid Line: item: Field required"
        ):
            await run.result(Line)


async def test_a_type_without_a_schema_is_refused() -> None:
    class Odd:
        pass

    async with Bridge() as bridge:
        with pytest.raises(OutputTypeError, match="Odd"):
            await bridge.solve("Report.", output=Odd)
        assert bridge.runs() == []


async def test_a_plan_without_an_output_gives_its_state_or_its_results() -> None:
    async with Bridge() as bridge:
        run = await bridge.run_plan(
            read_plan({"calls": [{"_tool": "count", "items": [1], "_outputPath": "n"}]})
        )
        assert await run.result(dict[str, int]) == {"n": 1}


async def test_a_run_without_a_result_raises_with_its_errors() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        run = await bridge.run_plan(waiting())
        with pytest.raises(RunFailedError, match="is waiting for approvals") as waits:
            await run.result()
        assert (waits.value.run, waits.value.status) == (run.id, "needs_approval")
        run.decide(waits_for(run), "deny", by="the test", reason="no")
        with pytest.raises(RunFailedError, match="denied by the test: no") as failed:
            await run.result()
        assert failed.value.status == "failed"
        assert failed.value.errors
        turns = await bridge.solve("Anything.")
        with pytest.raises(RunFailedError, match="give the bridge a mind"):
            await turns.result()


def waits_for(run: Run) -> str:
    (pending,) = run.approvals()
    assert isinstance(pending, dict)
    return str(pending["approval"])


# -- the façade for scripts ------------------------------------------------------------------------


def test_a_script_runs_plans_without_async(tmp_path: Path) -> None:
    with sync.Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        plan: JSON = {
            "input": {"names": ["Ada"]},
            "calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "n"}],
            "output": {"n": "†state.n"},
        }
        assert bridge.run_plan(plan) == {"n": 1}
        assert bridge.run_plan(plan, input={"names": [1, 2]}, output=dict[str, int]) == {"n": 2}
        assert bridge.dry_run(plan)["layers"] == [[0]]
        assert "0 count" in bridge.draw(plan, "text")
        assert "count" in [tool.name for tool in bridge.tools()]
        ref = str(bridge.runs(limit=1)[0]["run"])
        assert bridge.publish(ref, "how_many", answer="plan").version == 1
        assert bridge.call_idea("how_many", {"names": [1, 2, 3]}) == {"n": 3}
        with pytest.raises(PlanError, match="Did you mean 'count'"):
            bridge.run_plan({"calls": [{"_tool": "cuont"}]})
    with pytest.raises(RuntimeError, match="not open"):
        bridge.runs()


def test_a_script_decides_by_a_function() -> None:
    asked: list[JSON] = []

    def decide(request: ApprovalRequest) -> Decision:
        asked.append(request.call["to"])
        return Decision("approve" if request.call["to"] == "Ada" else "deny", reason="only Ada")

    with sync.Bridge(toolbox=Toolbox(send), approver=decide) as bridge:
        assert bridge.run_plan(waiting()) == "sent to Ada"
        with pytest.raises(RunFailedError, match="only Ada"):
            bridge.run_plan(waiting("Eve"))

    assert asked == ["Ada", "Eve"]


def test_a_script_answers_a_run_step_by_step(tmp_path: Path) -> None:
    counting: list[JSONObject] = [
        {"_tool": "count", "items": ["Ada"], "_outputPath": "one"},
        {"_tool": "count", "items": ["Ada", "Eve"], "_outputPath": "two"},
    ]
    failing: JSONObject = {"_tool": "count", "items": "†state.one"}
    with sync.Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        with bridge.session(state={"n": 1}, input={"names": [1, 2, 3]}) as session:
            assert session.run({"_tool": "count", "items": "†input.names", "_outputPath": "n"}) == 3
            assert session.run_all(counting) == [1, 2]
            assert (
                session.run_any(
                    [{"_tool": "count", "items": [1]}, {"_tool": "count", "items": [2]}]
                )
                == 1
            )
            assert session.run_race([{"_tool": "count", "items": [1]}]) == 1
            assert session.state == {"n": 3, "one": 1, "two": 2}
            assert session.value("†state.two") == 2
            with pytest.raises(GroupFailedError):
                session.run_all([counting[0], failing])

            run = session.id

        assert [one["status"] for one in bridge.runs() if one["run"] == run] == ["done"]
        with pytest.raises(ZeroDivisionError):
            fail_in_a_session(bridge)

        assert bridge.runs(limit=1)[0]["status"] == "failed"

    with pytest.raises(RuntimeError, match="not open"):
        bridge.session()


def fail_in_a_session(bridge: sync.Bridge) -> None:
    with bridge.session():
        raise ZeroDivisionError


class Counting:
    """A mind that counts, and then reports what it counted."""

    name = "counting"

    async def answer(self, request: Request) -> AsyncIterator[str]:
        if len(request.texts) < 3:
            yield '{"calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "n"}]}'
        else:
            yield '{"calls": [], "output": {"title": "names", "lines": []}}'


def test_a_script_lets_a_mind_solve_a_task() -> None:
    with sync.Bridge(mind=Counting()) as bridge:
        found = bridge.solve("Count the names.", input={"names": ["Ada"]}, output=Report)
        assert found == Report(title="names", lines=[])


def fail_in_a_script() -> None:
    with sync.Bridge(ASKS, toolbox=Toolbox(send)) as bridge:
        with pytest.raises(RunFailedError, match="is waiting for approvals"):
            bridge.run_plan(waiting())
        raise ZeroDivisionError


def test_an_exception_in_a_script_closes_the_bridge_and_comes_out_as_it_is() -> None:
    before = {*threading.enumerate()}
    with pytest.raises(ZeroDivisionError):
        fail_in_a_script()
    # A thread of the event loop that was told to end may not have done so yet.
    for thread in {*threading.enumerate()} - before:
        thread.join(10)
        assert not thread.is_alive(), thread
