"""Plans as guidance over several Requests, and one plan over many instances."""

from __future__ import annotations

from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration, Limits, read_plan
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.asking import ASKS

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def look(at: JSON) -> JSON:
    """Give what it is given; a text that is `bad` fails."""
    if at == "bad":
        raise ValueError("it is bad")
    return at


@tool(destructive=False)
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


TOOLS = Toolbox(look, send)
CALLS: list[JSON] = [
    {"_tool": "look", "at": "Ada", "_outputPath": "name"},
    {"_tool": "look", "at": "†state.name", "_outputPath": "seen || missed"},
    {"_tool": "look", "at": "again"},
]
PLAN: JSONObject = {"calls": CALLS}


def plan_text(run: Run) -> str:
    request = run.runner.request
    assert request is not None
    [found] = [
        str(one["content"]) for one in request.texts if "Plan to follow" in str(one["content"])
    ]
    return found


def standing(run: Run) -> list[str]:
    _, _, told = plan_text(run).partition(
        "Where it stands (a call whose output path is written is done):\n"
    )
    return told.splitlines()


async def test_every_later_request_tells_which_calls_of_a_plan_are_done() -> None:
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        run = await bridge.solve("x", context=[{"type": "plan", "plan": PLAN}])
        assert standing(run) == []
        assert "†state.name" in plan_text(run)
        run.submit(0, {"calls": [{"_tool": "look", "at": "Eve", "_outputPath": "name"}]})
        await run.wait(30)
        assert standing(run) == [
            "0 look -> name: done",
            "1 look -> seen || missed: not done",
            "2 look: not done",
        ]
        made: list[JSON] = [
            {"_tool": "look", "at": "bad", "_outputPath": "seen || missed"},
            *CALLS[2:],
        ]
        run.submit(1, {"calls": made})
        await run.wait(30)
        assert standing(run) == [
            "0 look -> name: done",
            "1 look -> seen || missed: done",
            "2 look: done",
        ]
        # The plan itself stays as it was given.
        assert plan_text(run).startswith("Plan to follow where it fits:")
        assert "standing" not in plan_text(run)


async def test_an_initial_state_shows_what_a_plan_has_done_already() -> None:
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        context: list[JSON] = [
            {"type": "plan", "plan": CALLS},
            {"type": "state", "state": {"name": "Ada"}},
        ]
        run = await bridge.solve("x", context=context)
        assert standing(run) == [
            "0 look -> name: done",
            "1 look -> seen || missed: not done",
            "2 look: not done",
        ]


async def test_with_instances_each_is_told_by_counts_and_a_few_names() -> None:
    names = [f"i{number}" for number in range(1000)]
    context: list[JSON] = [
        {"type": "plan", "plan": PLAN},
        {"type": "plan", "plan": PLAN, "_instance": "i7"},
        *({"type": "state", "state": {"name": name}, "_instance": name} for name in names[:600]),
        *({"type": "state", "state": {}, "_instance": name} for name in names[600:]),
    ]
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        run = await bridge.solve("x", context=context)
        assert run.runner.request is not None
        whole, own = (
            str(one["content"]).splitlines()[-3:]
            for one in run.runner.request.texts
            if "Plan to follow" in str(one["content"])
        )
        assert whole == [
            (
                "0 look -> name: done in 600 of 1,000 instances, not in i600, i601, i602, "
                "i603, i604 and 395 others"
            ),
            "1 look -> seen || missed: not done in all 1,000 instances",
            "2 look: not done in all 1,000 instances",
        ]
        assert own[0] == "0 look -> name: done in i7"
        call: JSONObject = {"_tool": "look", "at": "x", "_outputPath": "name"}
        calls: list[JSON] = [{**call, "_instance": name} for name in names[600:999]]
        run.submit(0, {"calls": calls})
        assert await run.wait(30) == "needs_solution"
        text = str(run.runner.request.texts[0]["content"])
        assert "0 look -> name: done in 999 of 1,000 instances, not in i999\n" in text


async def test_one_plan_over_a_thousand_instances_fails_and_asks_in_each_by_itself() -> None:
    # `i1` has no output, `i2` fails and `i3` is denied, but no other instance is affected.
    states: JSONObject = {
        f"i{number}": {"name": str(number), "extra": number} for number in range(1000)
    }
    states["i1"] = {"name": "1"}
    states["i2"] = {"name": "bad", "extra": 2}
    plan: JSON = {
        "instances": states,
        "calls": [
            {"_tool": "look", "at": "†state.name", "_outputPath": "seen"},
            {"_tool": "send", "text": "†state.seen", "_outputPath": "sent"},
        ],
        "output": {"sent": "†state.sent", "extra": "†state.extra"},
    }
    async with Bridge(
        ASKS.model_copy(update={"limits": Limits(calls=2000)}), toolbox=TOOLS
    ) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        assert await run.wait(60) == "needs_approval"
        entries: list[Any] = run.approvals()
        assert len(entries) == 999
        for entry in entries:
            decision = "deny" if entry["call"]["_instance"] == "i3" else "approve"
            run.decide(entry["approval"], decision, by="Ann")

        assert await run.wait(60) == "done"
        output: Any = run.answer(whole=True)["output"]
        assert set(states) - set(output) == {"i1", "i2", "i3"}
        assert output["i999"] == {"sent": "sent 999", "extra": 999}
        state: Any = run.machine.state
        assert state["i1"]["sent"] == "sent 1"
        errors: list[Any] = run.errors()
        assert sorted(str(one["error"]["kind"]) for one in errors) == [
            "denied",
            "dependency",
            *["output"] * 3,
            "runtime",
        ]
        assert any(
            "output of i1: nothing supplies †state.extra" in str(one["error"]["message"])
            for one in errors
        )


async def test_an_output_no_instance_can_give_is_refused_before_anything_runs() -> None:
    plan: JSON = {
        "instances": {"①": {"name": "a"}, "②": {"name": "b"}},
        "calls": [{"_tool": "look", "at": "†state.name", "_outputPath": "seen"}],
        "output": "†state.sen",
    }
    async with Bridge(Configuration(approval="allow_all"), toolbox=TOOLS) as bridge:
        with pytest.raises(PlanError, match=r"output of ①: nothing supplies †state\.sen"):
            await bridge.run_plan(read_plan(plan))
