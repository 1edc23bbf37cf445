"""A lazy plan through the server: decide_approval, and forms in both eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import types

from .serving import ERAS, call, configured, in_memory, over_stdio, refused, text

pytestmark = pytest.mark.anyio

CALLS: list[dict[str, Any]] = [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_a_host_decides_on_a_plan_as_a_whole(era: str, tmp_path: Path) -> None:
    path = configured(tmp_path)
    async with in_memory(path, era) as client:
        assert "planning" in await refused(client, "solve", task="Add.", planning="later")
        told = await call(client, "solve", task="Add.", planning="lazy", tools=["add"])
        run = told["run"]
        shown = await client.call_tool(
            "submit_solution", {"run": run, "turn": 0, "solution": {"calls": CALLS, "output": None}}
        )
        told: Any = shown.structured_content
        assert told["status"] == "needs_approval"
        [entry] = told["approvals"]
        assert entry["plan"]["calls"] == CALLS
        assert "0 add" in text(shown)
        deny = {"approval": entry["approval"], "decision": "deny", "reason": "other numbers"}
        told = await call(client, "decide_approval", run=run, decisions=[deny])
        assert (told["status"], told["turn"]) == ("needs_solution", 1)
        assert "other numbers" in str(told["requests"])

    # Another server on the same store takes the next turn.
    async with in_memory(path, era) as client:
        told = await call(client, "submit_solution", run=run, turn=1, solution={"calls": CALLS})
        [entry] = told["approvals"]
        wrong = {
            "approval": entry["approval"],
            "decision": "edit",
            "plan": {"calls": [{"_tool": "add", "a": 1}]},
        }
        assert "the edited plan cannot run" in await refused(
            client, "decide_approval", run=run, decisions=[wrong]
        )
        calls = [*CALLS, {"_tool": "add", "a": "†state.sum", "b": 4, "_outputPath": "more"}]
        right = {**wrong, "plan": {"calls": calls, "output": "†state.more"}}
        done = await call(client, "decide_approval", run=run, decisions=[right])
        # Without an output schema, a task's output is text, so the sum comes back as an error with
        # the correction.
        assert (done["status"], done["turn"]) == ("needs_solution", 2)
        assert "†state.more" in str(done["requests"])
        done = await call(
            client, "submit_solution", run=run, turn=2, solution={"calls": [], "output": "seven"}
        )
        assert (done["status"], done["output"]) == ("done", "seven")


async def test_a_person_decides_on_a_plan_by_a_form(era: str, tmp_path: Path) -> None:
    messages: list[str] = []
    decision = ""

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        messages.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": decision})

    async with over_stdio(configured(tmp_path), era, elicitation_callback=answer) as client:
        for decision, status, output in (("approve", "done", 3), ("deny", "needs_solution", None)):
            messages.clear()
            told = await call(
                client, "solve", task="Add.", planning="lazy", output_schema={"type": "integer"}
            )
            solution = {"calls": CALLS, "output": "†state.sum"}
            done = await call(client, "submit_solution", run=told["run"], turn=0, solution=solution)
            assert (done["status"], done.get("output")) == (status, output), decision
            [message] = messages
            assert message.startswith("Run this plan?")
            assert "0 add" in message
