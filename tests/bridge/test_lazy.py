"""Lazy plans: nothing runs before a person has accepted the plan as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from ideabridge.bridge import (
    ApprovalRequest,
    Bridge,
    Decision,
    PlanError,
    RunFailedError,
    read_plan,
)
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import DecisionError, SettledTurnError
from ideabridge.bridge.loop.event import (
    JournalError,
    PlanAsked,
    PlanDecided,
    RequestMade,
    decider_of,
)
from ideabridge.bridge.runs import people
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.asking import ASKS

from .test_minds import Scripted, solution

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool(read_only=True)
def look(at: JSON) -> JSON:
    """Give what it is given."""
    RAN.append(f"look {at}")
    return at


@tool(destructive=False)
def send(text: str) -> str:
    """Send a text."""
    RAN.append(f"send {text}")
    return f"sent {text}"


TOOLS = Toolbox(look, send)
CALLS: list[JSON] = [
    {"_tool": "look", "at": "Ada", "_outputPath": "name"},
    {"_tool": "send", "text": "†state.name", "_outputPath": "sent"},
]
PLAN: JSONObject = {"calls": CALLS, "output": "†state.sent"}


def only(run: Run) -> Any:
    [entry] = run.approvals()
    return entry


def context(run: Run) -> str:
    request = run.runner.request
    assert request is not None
    return "\n".join(str(text["content"]) for text in request.texts)


async def test_a_plan_waits_and_its_calls_still_ask_once_it_is_accepted() -> None:
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        run = await bridge.run_plan(read_plan(PLAN), planning="lazy")
        assert await run.wait(30) == "needs_approval"
        entry = only(run)
        plan = entry["plan"]
        assert (plan["calls"], plan["output"]) == (CALLS, "†state.sent")
        assert plan["dry_run"] == await bridge.dry_run(read_plan(PLAN))
        assert plan["drawing"] == await bridge.draw(read_plan(PLAN), "text")
        assert "accepted" in entry["why"]
        assert run.plan is not None
        assert run.plan.draw("mermaid") == await bridge.draw(read_plan(PLAN))
        assert (run.calls(), RAN) == ([], [])
        run.decide(entry["approval"], "approve", by="Ann")
        assert await run.wait(30) == "needs_approval"
        # Accepting a plan does not approve every call in it: one that changes something asks when
        # its references are resolved.
        asked = only(run)
        assert asked["call"] == {"_tool": "send", "_outputPath": "sent", "text": "Ada"}
        assert RAN == ["look Ada"]
        assert run.plan is None
        run.decide(asked["approval"], "approve", by="Ann")
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "sent Ada"
        assert (await bridge.publish(run.id, "lazily")).plan is not None


async def test_a_denied_plan_without_a_mind_ends_the_run() -> None:
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        run = await bridge.run_plan(read_plan(PLAN), planning="lazy")
        run.decide(only(run)["approval"], "deny", by="Ann", reason="too early")
        assert await run.wait(30) == "cancelled"
        assert run.answer()["reason"] == "the plan was denied by Ann: too early"
        assert RAN == []
        with pytest.raises(RunFailedError, match="too early"):
            await run.result()


async def test_an_edited_plan_is_live_checked_and_what_is_published() -> None:
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        run = await bridge.run_plan(read_plan(PLAN), planning="lazy")
        approval = only(run)["approval"]
        wrong: list[tuple[JSON, str]] = [
            (None, "editing a plan requires `plan`"),
            ({"calls": CALLS, "input": {}}, "editing a plan requires `plan`"),
            ({"calls": "none"}, "calls"),
            ({"calls": [{"_tool": "lok", "at": 1}]}, "Did you mean 'look'?"),
            ({"calls": [CALLS[0]]}, "nothing supplies †state.sent"),
        ]
        for plan, message in wrong:
            with pytest.raises(DecisionError) as refused:
                run.decide(approval, "edit", by="Ann", plan=plan)
            assert message in str(refused.value)
        with pytest.raises(DecisionError, match="expected 'approve', 'deny' or 'edit'"):
            run.decide(approval, "skip", by="Ann")
        edited: list[JSON] = [
            {"_tool": "look", "at": ["Bob"], "_outputPath": "name"},
            {"_tool": "look", "at": "†state.name.0", "_outputPath": "sent"},
        ]
        # If the edited plan has no output, the original one stays.
        run.decide(approval, "edit", by="Ann", plan={"calls": edited})
        assert await run.wait(30) == "done"
        assert (run.answer()["output"], RAN) == ("Bob", ["look ['Bob']", "look Bob"])
        [idea] = bridge.store.ideas.of_run(run.id)
        assert bridge.store.ideas.get(idea.id, caller=SEES_ALL).idea.solution == {
            "calls": edited,
            "output": "†state.sent",
        }
        await bridge.publish(run.id, "edited", answer="plan")
        replay = await bridge.start_idea("edited", {})
        assert replay.run is not None
        assert await replay.run.wait(30) == "done"
        assert replay.run.answer()["output"] == "Bob"


async def test_by_turns_a_denied_plan_comes_back_with_the_reason() -> None:
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        run = await bridge.solve("Tell Ada.", planning="lazy")
        assert "accepted the whole plan" in context(run)
        # Nobody is asked about a malformed plan, and none of it runs. The next Request says what is
        # wrong.
        run.submit(0, {"calls": [{"_tool": "look", "at": "Bob"}, {"_tool": "sned"}]})
        assert (await run.wait(30), run.turn, RAN) == ("needs_solution", 1, [])
        assert "unknown tool 'sned'" in context(run)
        run.submit(1, PLAN)
        assert await run.wait(30) == "needs_approval"
        with pytest.raises(SettledTurnError):
            run.submit(1, {"calls": [CALLS[0]]})
        assert run.submit(1, PLAN) == []
        run.decide(only(run)["approval"], "deny", by="Ann", reason="look first")
        assert (await run.wait(30), run.turn, RAN) == ("needs_solution", 2, [])
        told = context(run)
        assert "look first" in told
        assert '"ran": null' in told
        run.submit(2, {"calls": [CALLS[0]]})
        await run.wait(30)
        first = only(run)["approval"]
        run.decide(
            first,
            "edit",
            by="Ann",
            plan={"calls": [{"_tool": "look", "at": "Eve", "_outputPath": "name"}]},
        )
        assert await run.wait(30) == "needs_solution"
        told = context(run)
        assert '"at": "Eve"' in told
        assert '"at": "Ada"' in told
        # An output alone has no calls, so there is nothing to accept.
        run.submit(3, {"calls": [], "output": "†state.name"})
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "Eve"
        assert [one.meta.outcome for one in bridge.store.ideas.of_run(run.id)] == [
            "open",
            "open",
            "open",
            "done",
        ]


async def test_a_mind_that_streams_is_held_and_told_what_is_wrong() -> None:
    text = json.dumps(PLAN, ensure_ascii=False)
    mind = Scripted(
        [*(text[place : place + 7] for place in range(0, len(text), 7))],
        solution([{"_tool": "look", "at": "†state.nothing"}, CALLS[0]]),
        ['{"calls": [{"_tool": "look", "at": "half"}, {"_to'],
        solution(CALLS[:1], "†state.name"),
    )
    async with Bridge(ASKS, toolbox=TOOLS, mind=mind) as bridge:
        run = await bridge.solve("Tell Ada.", planning="lazy")
        assert await run.wait(30) == "needs_approval"
        assert run.calls() == []
        first = only(run)["approval"]
        run.decide(first, "deny", by="Ann", reason="no letters")
        assert await run.wait(30) == "needs_approval"
        # The second plan was malformed and the third was cut off. Neither ran, and nobody was asked
        # about them.
        assert len(mind.requests) == 4
        said = [
            "\n".join(str(one["content"]) for one in request.texts) for request in mind.requests
        ]
        assert "no letters" in said[1]
        assert "nothing supplies †state.nothing" in said[2]
        assert "the answer was cut off" in said[3]
        assert RAN == []
        run.decide(only(run)["approval"], "approve", by="Ann")
        assert await run.wait(30) == "done"
        assert (run.answer()["output"], RAN) == ("Ada", ["look Ada"])


async def test_a_plan_that_waits_survives_restarts_and_a_decision_holds_for_it_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    async with Bridge(ASKS, toolbox=TOOLS, store=path) as bridge:
        run = await bridge.solve("Tell Ada.", planning="lazy")
        run.submit(0, PLAN)
        first = only(run)
        run.decide(first["approval"], "deny", by="Ann")
        assert await run.wait(30) == "needs_solution"
        run.submit(1, PLAN)
        assert await run.wait(30) == "needs_approval"
        # Proposing the same plan again is a new question.
        assert only(run)["approval"] != first["approval"]
        run_id, second = run.id, only(run)

    async with Bridge(ASKS, toolbox=TOOLS, store=path) as bridge:
        run = await bridge.run(run_id)
        assert (run.status, only(run)) == ("needs_approval", second)
        with pytest.raises(DecisionError, match="is pending"):
            run.decide(first["approval"], "approve", by="Ann")

        with pytest.raises(JournalError, match="about a different plan"):
            run.runner.post(PlanDecided("0" * 64, "approve", decider_of("somebody")))

    async with Bridge(ASKS, toolbox=TOOLS, store=path) as bridge:
        run = await bridge.run(run_id)
        run.decide(second["approval"], "approve", by="Ann")
        assert await run.wait(30) == "needs_approval"
        assert RAN == ["look Ada"]
        run.cancel()
        names = [type(event) async for event in run]
        assert [names.count(kind) for kind in (PlanAsked, PlanDecided, RequestMade)] == [2, 2, 2]


@pytest.mark.usefixtures("writes")
async def test_the_approver_and_the_time_out_decide_on_plans_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        if request.kind == "plan":
            return Decision("edit", plan={"calls": [CALLS[0]], "output": "†state.name"})
        raise AssertionError

    async with Bridge(toolbox=TOOLS, approver=approver) as bridge:
        run = await bridge.run_plan(read_plan(PLAN), planning="lazy")
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "Ada"
        [request] = asked
        assert request.plan is not None
        assert (request.tool, request.call, request.plan["calls"]) == (None, {}, CALLS)

    configuration = parse_configuration({"approval": {"timeout_seconds": 3600}}, project=tmp_path)
    path = tmp_path / "store.sqlite"
    async with Bridge(configuration, toolbox=TOOLS, store=path) as bridge:
        run = await bridge.run_plan(read_plan(PLAN), planning="lazy")

    now = people.time.time()
    monkeypatch.setattr(people.time, "time", lambda: now + 3601)
    async with Bridge(configuration, toolbox=TOOLS, store=path) as bridge:
        run = await bridge.run(run.id)
        assert await run.wait(30) == "cancelled"
        assert "denied by the timeout" in str(run.answer()["reason"])


async def test_what_is_no_planning_is_refused() -> None:
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        with pytest.raises(PlanError, match="planning: expected 'eager' or 'lazy', found 'later'"):
            await bridge.solve("x", planning=cast("Any", "later"))


async def test_a_stream_cut_off_by_a_crash_is_no_plan(tmp_path: Path) -> None:
    begun = anyio.Event()

    async def hang() -> None:
        begun.set()
        await anyio.sleep_forever()

    path = tmp_path / "store.sqlite"
    half = ['{"calls": [' + json.dumps(CALLS[0]) + ', {"_tool"', hang]
    async with Bridge(ASKS, toolbox=TOOLS, store=path, mind=Scripted([*half])) as bridge:
        run = await bridge.solve("Tell Ada.", planning="lazy")
        with anyio.fail_after(20):
            await begun.wait()

    mind = Scripted(solution([], "nothing"))
    async with Bridge(ASKS, toolbox=TOOLS, store=path, mind=mind) as bridge:
        run = await bridge.run(run.id)
        assert await run.wait(30) == "done"
        assert "was cut off" in str(mind.requests[0].texts)
        assert (run.answer()["output"], RAN) == ("nothing", [])


async def test_a_plan_over_a_thousand_instances_is_shown_once() -> None:
    plan: JSON = {
        "instances": {f"i{number}": {"name": str(number)} for number in range(1000)},
        "calls": [{"_tool": "look", "at": "†state.name", "_outputPath": "seen"}],
        "output": "†state.seen",
    }
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        run = await bridge.run_plan(read_plan(plan), planning="lazy")
        entry = only(run)
        assert len(json.dumps(entry)) < 2000
        assert entry["plan"]["instances"] == 1000
        assert entry["plan"]["calls"] == [
            {"_tool": "look", "at": "†state.name", "_outputPath": "seen"}
        ]
        assert entry["plan"]["dry_run"]["layers"] == [[0]]
        edited: list[JSON] = [{"_tool": "look", "at": ["†state.name"], "_outputPath": "seen"}]
        run.decide(entry["approval"], "edit", by="Ann", plan={"calls": edited})
        assert await run.wait(60) == "done"
        output: Any = run.answer(whole=True)["output"]
        assert (len(output), output["i7"]) == (1000, ["7"])
