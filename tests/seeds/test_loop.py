"""Agent/Loop, the first of the two documents: rounds, and a person between a proposal
and its execution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSONObject
from tests.asking import ASKS
from tests.cli.conftest import Run
from tests.seeds.minds import Prepared
from tests.server.serving import call, configured, over_stdio

pytestmark = pytest.mark.anyio

REPORT: JSONObject = {
    "type": "object",
    "properties": {
        "total": {"type": "integer"},
        "steps": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["total", "steps"],
    "additionalProperties": False,
}


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_several_rounds_end_in_an_output_of_the_users_schema_made_of_what_was_collected() -> (
    None
):
    mind = Prepared(
        {"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "first"}], "output": None},
        {
            "calls": [{"_tool": "add", "a": "†state.first", "b": 10, "_outputPath": "second"}],
            "output": None,
        },
        {
            "calls": [],
            "output": {"total": "†state.second", "steps": ["†state.first", "†state.second"]},
        },
    )
    async with Bridge(ASKS, toolbox=Toolbox(add), mind=mind) as bridge:
        run = await bridge.solve(
            "Add, then add ten, and report.", output_schema=REPORT, tools=["add"]
        )
        assert await run.result() == {"total": 13, "steps": [3, 13]}

    # All rounds have the same schema, which is composed once from the tools and the output schema.
    assert len({str(request.schema) for request in mind.requests}) == 1
    properties: Any = mind.requests[0].schema["properties"]
    assert properties["calls"]["items"]["anyOf"][0]["properties"]["_tool"] == {"const": "add"}
    assert set(REPORT) <= set(properties["output"]["anyOf"][0])
    # The goal stays, and each result is available in the next round.
    assert all("Add, then add ten" in mind.read(number) for number in range(3))
    assert '"first": 3' in mind.read(1)
    assert '"second": 13' in mind.read(2)


async def test_over_mcp_a_call_is_a_proposal_until_a_person_agrees_and_a_correction_goes_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "note"
    elsewhere = tmp_path / "elsewhere"
    proposed = {"_tool": "write_note", "path": str(path), "text": "hello", "_outputPath": "written"}
    async with over_stdio(configured(tmp_path), "auto") as client:
        asked = await call(client, "solve", task="Write hello.", tools=["write_note"])
        told = await call(client, "solve", run=asked["run"], turn=0, solution={"calls": [proposed]})
        assert told["status"] == "needs_approval"
        assert not path.exists()
        [approval] = told["approvals"]
        corrected = {**approval["call"], "path": str(elsewhere)}
        decision = {
            "approval": approval["approval"],
            "decision": "edit",
            "call": corrected,
            "reason": "not there",
        }
        told = await call(client, "decide_approval", run=asked["run"], decisions=[decision])
        assert told["status"] == "needs_solution"
        assert (path.exists(), elsewhere.read_text()) == (False, "hello")
        # The next round knows what was proposed, what ran instead, and why.
        known = str(told["requests"][0]["context"])
        assert str(path) in known
        assert str(elsewhere) in known
        assert "not there" in known
        done = await call(
            client, "solve", run=asked["run"], turn=1, solution={"calls": [], "output": "written"}
        )
        assert (done["status"], done["output"]) == ("done", "written")


def test_on_the_command_line_the_loop_goes_on_until_there_is_an_output(ideabridge: Run) -> None:
    rounds = (
        '{"calls": [{"_tool": "count", "items": [1, 2], "_outputPath": "a"}], "output": null}\n'
        '{"calls": [{"_tool": "join", "items": ["n", "†state.a"], "_outputPath": "b"}], '
        '"output": null}\n'
        '{"calls": [], "output": "†state.b"}\n'
    )
    done = ideabridge("solve", "Count, then join.", "-t", "count", "-t", "join", typed=rounds)
    assert (done.returncode, done.stdout) == (0, "n2\n"), done.stderr
    assert "turn 2" in done.stderr
