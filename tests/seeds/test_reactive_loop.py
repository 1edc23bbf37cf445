"""Agent/Loop, the second of the two documents: the inner loop, what is asked about, and
errors as messages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.people import ApprovalRequest, Decision
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.cli.conftest import Run
from tests.seeds.minds import Prepared
from tests.server.serving import call, configured, over_stdio, refused

pytestmark = pytest.mark.anyio


async def test_of_two_calls_that_write_one_path_the_last_to_finish_wins() -> None:
    listed_second_is_done = anyio.Event()

    @tool(read_only=True)
    async def slow() -> str:
        """End after the other."""
        await listed_second_is_done.wait()
        return "slow"

    @tool(read_only=True)
    async def quick() -> str:
        """End at once."""
        return "quick"

    calls: list[JSON] = [
        {"_tool": "slow", "_outputPath": "x"},
        {"_tool": "quick", "_outputPath": "x"},
    ]
    async with Bridge(toolbox=Toolbox(slow, quick)) as bridge:
        run = await bridge.run_plan(read_plan({"calls": calls}))
        async for event in run:
            if type(event).__name__ == "CallFinished":
                listed_second_is_done.set()
        assert run.state == {"x": "slow"}


async def test_only_calls_that_are_ready_are_put_before_a_person_and_those_that_never_run_are_not() -> (
    None
):
    asked: list[str] = []

    @tool(read_only=False)
    def send(text: str) -> str:
        """Send a text."""
        return f"sent {text}"

    @tool(read_only=True)
    def fail() -> str:
        """Fail."""
        raise ValueError("out of luck")

    async def person(request: ApprovalRequest) -> Decision:
        asked.append(str(request.call["text"]))
        return Decision("approve")

    calls: list[JSON] = [
        {"_tool": "send", "text": "first", "_outputPath": "receipt"},
        {"_tool": "send", "text": "†state.receipt", "_outputPath": "again"},
        {"_tool": "fail", "_outputPath": "nothing"},
        {"_tool": "send", "text": "†state.nothing"},
    ]
    async with Bridge(toolbox=Toolbox(send, fail), approver=person) as bridge:
        run = await bridge.run_plan(read_plan({"calls": calls}))
        assert await run.wait(30) == "done"
        assert run.state == {"receipt": "sent first", "again": "sent sent first"}

    # The second call asked when its value was there, and the fourth, which cannot run, never did.
    assert asked == ["first", "sent first"]


async def test_calls_and_an_output_in_one_step_end_the_loop_after_the_calls() -> None:
    done: list[int] = []

    @tool(read_only=True)
    def work(n: int) -> int:
        """Work."""
        done.append(n)
        return n

    mind = Prepared(
        {"calls": [{"_tool": "work", "n": 7, "_outputPath": "n"}], "output": "finished"}
    )
    async with Bridge(toolbox=Toolbox(work), mind=mind) as bridge:
        assert await (await bridge.solve("Work.")).result() == "finished"

    assert done == [7]
    assert len(mind.requests) == 1


async def test_a_chain_that_fails_is_rewritten_by_a_mind_that_sees_call_and_cause() -> None:
    @tool(read_only=True)
    def read_file(name: str) -> str:
        """Read a file."""
        if name != "a.txt":
            raise FileNotFoundError(name)
        return "text of a"

    failing: JSONObject = {"_tool": "read_file", "name": "b.txt", "_outputPath": "text"}
    malformed: JSONObject = {"_tool": "read_file", "title": "a.txt"}
    repaired: JSONObject = {**failing, "name": "a.txt"}
    mind = Prepared({"calls": [failing, malformed]}, {"calls": [repaired], "output": "†state.text"})
    async with Bridge(toolbox=Toolbox(read_file), mind=mind) as bridge:
        run = await bridge.solve("Read the file.", tools=["read_file"])
        assert await run.result() == "text of a"

    errors = [message["error"] for message in mind.context(1) if message.get("type") == "error"]
    # Each error of the tick is a message of its own with the whole call and the cause, in the order
    # of the calls.
    assert [error["call"] for error in errors] == [failing, malformed]
    assert "FileNotFoundError: b.txt" in str(errors[0])
    assert "title" in str(errors[1])


WRONG: dict[str, dict[str, Any]] = {
    "a tool that does not exist": {"_tool": "wirte_note"},
    "a parameter of another type": {"_tool": "add", "a": "one", "b": 2},
    "a missing parameter": {"_tool": "add", "a": 1},
    "a reference that nothing supplies": {"_tool": "add", "a": "†state.nowhere", "b": 2},
    "a reference to an input that is not there": {"_tool": "add", "a": "†input.nowhere", "b": 2},
    "an input of another type": {"_tool": "add", "a": "†input.word", "b": 2},
    "code that does not exist": {"_tool": "add", "_activity": "sub", "a": 1, "b": 2},
    "a circle": {"_tool": "count_words", "text": "†state.words", "_outputPath": "words"},
}


async def test_over_mcp_structural_errors_are_found_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "note"
    note = {"_tool": "write_note", "path": str(path), "text": "written"}
    async with over_stdio(configured(tmp_path, approval="allow_all"), "auto") as client:
        for kind, wrong in WRONG.items():
            told = await refused(client, "run_plan", calls=[note, wrong], input={"word": "one"})
            assert "calls[1]" in told, kind
            assert not path.exists(), kind
        # A correct call runs.
        done = await call(client, "run_plan", calls=[note])
        assert (done["status"], path.read_text()) == ("done", "written")


async def test_over_mcp_a_branch_that_was_planned_for_failure_is_taken_without_an_error(
    tmp_path: Path,
) -> None:
    calls = [
        {"_tool": "fail", "message": "out of luck", "_outputPath": "good || bad"},
        {"_tool": "count_words", "text": "†state.good", "_outputPath": "words"},
        {"_tool": "count_words", "text": "†state.bad.message", "_outputPath": "sorry"},
    ]
    async with over_stdio(configured(tmp_path), "legacy") as client:
        done = await call(
            client, "run_plan", calls=calls, output="†state.words.words || †state.sorry.words"
        )
    assert (done["status"], done["output"], done.get("errors", [])) == ("done", 4, [])


def test_on_the_command_line_a_malformed_plan_runs_nothing(ideabridge: Run, project: Path) -> None:
    plan: JSONObject = {
        "calls": [
            {"_tool": "count", "items": [1], "_outputPath": "n"},
            {"_tool": "cuont", "items": "†state.n"},
        ]
    }
    (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    done = ideabridge("run", "plan.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown tool 'cuont'. Did you mean 'count'?" in done.stderr
