"""Rooms over the real server, by turns: latent calls and clean rooms that the host answers."""

import re
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types

from .serving import ERAS, TOOLS, call, configured, in_memory, over_stdio, structured, text

pytestmark = pytest.mark.anyio

ROOM: dict[str, Any] = {
    "_tool": "solve",
    "_module": "anonymous",
    "task": "Describe the number.",
    "tools": ["add"],
    "_outputPath": "described",
}


def plan(*calls: dict[str, Any], output: Any) -> dict[str, Any]:
    added = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}
    return {"calls": [added, *calls], "output": output}


async def test_a_host_that_shows_only_text_is_told_which_run_and_turn_each_request_is_of(
    client: Client,
) -> None:
    rooms = [
        {**ROOM, "input": {"n": 4}, "_outputPath": "one"},
        {**ROOM, "input": {"n": 5}, "_outputPath": "two"},
    ]
    result = await client.call_tool("run_plan", plan(*rooms, output=["†state.one", "†state.two"]))
    told = structured(result)
    assert told["status"] == "needs_solution"
    assert "turn: None" not in text(result)
    found = re.findall(r"^request of run: (\S+)\nturn: (\d+)$", text(result), re.MULTILINE)
    assert found == [(one["run"], str(one["turn"])) for one in told["requests"]]
    assert [run for run, _ in found] == [f"{told['run']}.1", f"{told['run']}.2"]
    for run, turn in found:
        told = await call(
            client,
            "submit_solution",
            run=run,
            turn=int(turn),
            solution={"calls": [], "output": f"by {run[-1]}"},
        )

    # The answer is about the run that was asked for.
    assert told["run"] == found[0][0].rpartition(".")[0]
    assert told["status"] == "done"
    assert told["output"] == ["by 1", "by 2"]
    assert (await call(client, "check_run", run=found[0][0]))["output"] == "by 1"
    assert found[0][0] not in [one["run"] for one in (await call(client, "check_run"))["runs"]]


async def test_a_turn_of_one_room_leaves_the_request_of_another_whole(client: Client) -> None:
    rooms = [{**ROOM, "_outputPath": "one"}, {**ROOM, "_outputPath": "two"}]
    told = await call(client, "run_plan", **plan(*rooms, output=["†state.one", "†state.two"]))
    first, second = told["requests"]
    solution: dict[str, Any] = {"calls": [], "output": "x"}
    told = await call(client, "submit_solution", run=first["run"], turn=0, solution=solution)
    [left] = told["requests"]
    assert left["run"] == second["run"]
    assert left["schema"] == second["schema"]
    assert left["instructions"] == second["instructions"]


LATENT = """
from ideabridge.tools import Tool

text = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
said = {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}
spell = Tool("spell", "The number in words.", text, said)
"""


@pytest.mark.parametrize("mode", ERAS)
async def test_a_latent_call_of_a_plan_by_turns_is_answered_in_its_room(
    tmp_path: Path, mode: str
) -> None:
    (tmp_path / "latent.py").write_text(LATENT)
    async with in_memory(configured(tmp_path, tools=[str(TOOLS), "latent.py"]), mode) as client:
        latent = {"_tool": "spell", "number": "†state.sum", "_outputPath": "said"}
        told = await call(client, "run_plan", **plan(latent, output="†state.said.words"))
        [request] = told["requests"]
        assert (request["run"], request["turn"]) == (f"{told['run']}.1", 0)
        assert "Write the result of the call below" in str(request["context"])
        written: dict[str, Any] = {"calls": [], "output": {"words": "three"}}
        told = await call(client, "submit_solution", run=request["run"], turn=0, solution=written)
        assert (told["status"], told["output"]) == ("done", "three")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_decides_on_calls_of_rooms_through_the_run(
    mode: str, tmp_path: Path
) -> None:
    # Both rooms are open at the same time, although they may change something.
    async with in_memory(configured(tmp_path, order="none"), mode) as client:
        await decided_in_rooms(client, tmp_path)


async def decided_in_rooms(client: Client, tmp_path: Path) -> None:
    rooms = [{**ROOM, "tools": ["write_note"], "_outputPath": name} for name in ("one", "two")]
    told = await call(client, "run_plan", **plan(*rooms, output=["†state.one", "†state.two"]))
    path = tmp_path / "note"
    for request in told["requests"]:
        # The calls in both rooms are equal, and only the room distinguishes them.
        written: dict[str, Any] = {
            "_tool": "write_note",
            "path": str(path),
            "text": "note",
            "_outputPath": "n",
        }
        solution: dict[str, Any] = {"calls": [written], "output": None}
        told = await call(client, "submit_solution", run=request["run"], turn=0, solution=solution)

    assert told["status"] == "needs_approval"
    names = [one["approval"] for one in told["approvals"]]
    assert [name.partition("/")[0] for name in names] == ["1", "2"]
    decisions = [
        {"approval": names[0], "decision": "deny", "reason": "not today"},
        {"approval": names[1], "decision": "approve"},
    ]
    told = await call(client, "decide_approval", run=told["run"], decisions=decisions)
    contexts: dict[str, str] = {}
    for _ in range(5):
        if told["status"] != "needs_solution":
            break

        request = told["requests"][0]
        room = request["run"]
        turn = request["turn"]
        contexts[room] = str(request["context"])
        answered: dict[str, Any] = {"calls": [], "output": room[-1]}
        told = await call(client, "submit_solution", run=room, turn=turn, solution=answered)

    assert path.read_text() == "note"
    assert "not today" in contexts[f"{told['run']}.1"]
    assert "not today" not in contexts[f"{told['run']}.2"]
    assert told["output"] == ["1", "2"]


@pytest.mark.parametrize("mode", ERAS)
async def test_two_servers_take_turns_on_a_room(tmp_path: Path, mode: str) -> None:
    configuration = configured(tmp_path)
    async with over_stdio(configuration, mode) as one, over_stdio(configuration, mode) as two:
        told = await call(one, "run_plan", **plan(ROOM, output="†state.described"))
        run, room = told["run"], f"{told['run']}.1"
        for turn, client in enumerate((two, one, two)):
            solution: dict[str, Any] = {
                "calls": [{"_tool": "add", "a": turn, "b": 1, "_outputPath": f"n{turn}"}],
                "output": None,
            }
            told = await call(client, "submit_solution", run=room, turn=turn, solution=solution)
            assert (told["run"], told["status"]) == (run, "needs_solution")
            for either in (one, two):
                [request] = (await call(either, "check_run", run=run))["requests"]
                assert (request["run"], request["turn"]) == (room, turn + 1)
        last: dict[str, Any] = {"calls": [], "output": "at last"}
        await call(one, "submit_solution", run=room, turn=3, solution=last)
        told = await call(two, "check_run", run=run)
        assert (told["status"], told["output"]) == ("done", "at last")


NOTING: dict[str, Any] = {
    "calls": [
        {"_tool": "write_note", "path": "†input.path", "text": "†input.text", "_outputPath": "n"}
    ],
    "output": {"length": "†state.n"},
}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_form_asks_about_a_call_in_a_room(tmp_path: Path, mode: str) -> None:
    forms: list[str] = []

    async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(params.message)
        return types.ElicitResult(
            action="accept", content={"decision": "deny" if "unwanted" in forms[-1] else "approve"}
        )

    async with over_stdio(configured(tmp_path), mode, elicitation_callback=answer) as client:
        first = {"path": str(tmp_path / "first"), "text": "one"}
        taught = await call(client, "run_plan", **NOTING, input=first)
        await call(client, "publish_idea", idea=taught["run"], name="noting")
        calls = [
            {
                "_tool": "noting",
                "_module": "idea:noting",
                "path": str(tmp_path / name),
                "text": text,
                "_outputPath": name,
            }
            for name, text in (("wanted", "written"), ("other", "unwanted"))
        ]
        told = await call(client, "run_plan", calls=calls, output="†state.wanted.length")
        assert (told["status"], told["output"]) == ("done", 7)

    assert len(forms) == 3
    assert f"{told['run']}.0" in "".join(forms)
    assert (tmp_path / "wanted").read_text() == "written"
    assert not (tmp_path / "other").exists()
    assert "denied" in str(told["errors"])


async def test_progress_tells_of_calls_in_rooms(client: Client) -> None:
    adding = {
        "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.a", "_outputPath": "n"}],
        "output": "†state.n",
    }
    taught = await call(client, "run_plan", **adding, input={"a": 1})
    await call(client, "publish_idea", idea=taught["run"], name="twice", answer="plan")
    notes: list[tuple[float, float | None, str]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        notes.append((progress, total, message or ""))

    calls = [
        {
            "_tool": "twice",
            "_module": "idea:twice",
            "a": "†item",
            "_each": [1, 2],
            "_outputPath": "t",
        }
    ]
    result = await client.call_tool("run_plan", {"calls": calls}, progress_callback=on_progress)
    assert structured(result)["state"] == {"t": [2, 4]}
    told = [message for _, _, message in notes]
    assert told.count("idea:twice.twice: add started") == 2
    assert told.count("idea:twice.twice: add done (1 of 1)") == 2
    assert told[-1] == "idea:twice.twice done (1 of 1)"
    assert [progress for progress, _, _ in notes] == sorted({progress for progress, _, _ in notes})
    assert notes[-1][:2] == (3.0, 3.0)
