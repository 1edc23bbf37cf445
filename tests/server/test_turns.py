"""The agent loop by turns: three turns, an unreadable solution, failing calls, and a crash
between any two.
"""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from .serving import ERAS, call, configured, over_stdio, refused, structured, text

pytestmark = pytest.mark.anyio

TASK: dict[str, Any] = {
    "task": "Add the numbers, then add ten.",
    "input": {"a": 1, "b": 2},
    "output_schema": {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
    },
    "tools": ["add", "fail"],
}
FIRST: dict[str, Any] = {
    "calls": [
        {"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"},
        {"_tool": "fail", "message": "out of luck", "_outputPath": "bad"},
    ],
    "output": None,
}
SECOND: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†state.sum", "b": 10, "_outputPath": "more"}],
    "output": None,
}
THIRD: dict[str, Any] = {"calls": [], "output": {"total": "†state.more"}}
UNREADABLE: dict[str, Any] = {"calls": "[{", "output": None}


async def test_three_turns_without_any_callback(client: Client) -> None:
    result = await client.call_tool("solve", TASK)
    told = structured(result)
    assert told["status"] == "needs_solution"
    assert told["turn"] == 0
    request = told["requests"][0]
    assert request["schema"]["oneOf"] == [
        {"required": ["calls", "output"]},
        {"required": ["program"]},
    ]
    # The text alone is enough for writing a solution.
    for part in ("with solve", '"_tool"', told["run"], "turn: 0"):
        assert part in text(result)

    # The answer does not repeat what the host has just sent.
    assert "Add the numbers" not in text(result)
    assert "What you passed in your call is left out" in text(result)
    run = told["run"]
    assert "Add the numbers" in str(
        (await call(client, "check_run", run=run))["requests"][0]["context"]
    )

    assert "calls" in await refused(client, "submit_solution", run=run, turn=0, solution=UNREADABLE)

    first = {**FIRST, "calls": [*FIRST["calls"], {"_tool": "ad", "a": 1, "b": 2}]}
    result = await client.call_tool("submit_solution", {"run": run, "turn": 0, "solution": first})
    told = structured(result)
    assert told["status"] == "needs_solution"
    assert told["turn"] == 1
    assert "out of luck" in text(result)
    assert "unknown tool 'ad'. Did you mean 'add'?" in text(result)
    assert '"sum": 3' in text(result)
    # The schema has not changed, so it is not shown again, but can be requested.
    assert "schema" not in told["requests"][0]
    # Nor does the answer repeat what the host has already read: the task and its input.
    assert "Add the numbers" not in str(told["requests"][0]["context"])
    assert (
        "2 messages of the context are the same as in the previous turn"
        in told["requests"][0]["instructions"]
    )
    again = await call(client, "check_run", run=run)
    assert again["requests"][0]["schema"] == request["schema"]
    assert "Add the numbers" in str(again["requests"][0]["context"])

    # Submitting the same solution again gets the same response. A different one for a settled turn
    # is refused.
    same = await call(client, "submit_solution", run=run, turn=0, solution=first)
    assert same["turn"] == 1
    assert "already answered" in await refused(
        client, "submit_solution", run=run, turn=0, solution=SECOND
    )
    assert "turn" in await refused(client, "submit_solution", run=run, turn=5, solution=SECOND)

    told = await call(client, "submit_solution", run=run, turn=1, solution=SECOND)
    assert told["turn"] == 2
    told = await call(client, "submit_solution", run=run, turn=2, solution=THIRD)
    assert told["status"] == "done"
    assert told["output"] == {"total": 13}
    assert "ended" in await refused(client, "submit_solution", run=run, turn=3, solution=THIRD)


async def test_a_turn_tells_what_is_new_and_not_what_was_sent_or_shown_before(
    client: Client,
) -> None:
    letter = "word " * 60_000
    told = await call(
        client, "solve", task="Add up.", input={"letter": letter}, tools=["add", "join"]
    )
    assert len(str(told)) < 20_000
    run = told["run"]

    def joined(text: str, times: int, path: str) -> dict[str, Any]:
        return {"_tool": "join", "items": [text] * times, "_outputPath": path}

    # The first result is shown in full, and the second is too large for a host, so there is a tool
    # that reads it.
    first = {
        "calls": [
            joined("first", 700, "a"),
            joined("second", 700, "b"),
            {"_tool": "add", "a": 1, "b": 2},
        ]
    }
    told = await call(client, "submit_solution", run=run, turn=0, solution=first)
    request = told["requests"][0]
    assert "first" * 700 in str(request["context"])
    assert "second" * 700 not in str(request["context"])
    assert "1 value is shortened here to a preview: †state.b; call read" in str(request["context"])
    assert "tools.read" in request["instructions"] or "read(" in request["instructions"]
    assert "word word" not in str(told)
    assert "schema" not in request

    second = {
        "calls": [
            {"_tool": "read", "reference": "state.b", "from": 0, "length": 12},
            joined("x", 3, "c"),
        ]
    }
    told = await call(client, "submit_solution", run=run, turn=1, solution=second)
    shown = str(told["requests"][0]["context"])
    assert "secondsecond" in shown
    assert '"c": "xxx"' in shown
    assert "what is new since the previous turn" in shown
    assert "firstfirst" not in shown, "the host has it from the turn before"
    assert len(shown) < 1500
    again = await call(client, "check_run", run=run)
    assert "first" * 700 in str(again["requests"][0]["context"])
    assert letter in str(again["requests"][0]["context"])


async def test_a_request_too_large_for_one_answer_is_refused_with_its_largest_message(
    client: Client,
) -> None:
    task = {
        "task": "Add up.",
        "input": {"letter": "line\n" * 80_000, "title": "t"},
        "tools": ["add"],
    }
    run = (await call(client, "solve", **task))["run"]
    told = await refused(client, "check_run", run=run)
    assert "the limit is 350,000" in told
    assert "most of it is †input.letter" in told
    assert (await call(client, "check_run", run=run, paths=["†input.title"]))["values"] == {
        "†input.title": "t"
    }
    made = {"calls": [{"_tool": "add", "a": 1, "b": 2}], "output": None}
    assert (await call(client, "submit_solution", run=run, turn=0, solution=made))["turn"] == 1


async def test_a_host_may_ask_to_see_more_of_results(client: Client) -> None:
    told = await call(client, "solve", task="Join.", tools=["join"], shown={"value": 20_000})
    made = {"calls": [{"_tool": "join", "items": ["long"] * 3000}]}
    told = await call(client, "submit_solution", run=told["run"], turn=0, solution=made)
    assert "long" * 3000 in str(told["requests"][0]["context"])
    assert "shown.value" in await refused(client, "solve", task="Join.", shown={"value": -1})


@asynccontextmanager
async def killed(configuration: Path, mode: str) -> AsyncGenerator[Client]:
    """A server that is killed at the end, its client with it."""
    async with over_stdio(configuration, mode) as client:
        yield client
        plan = {"calls": [{"_tool": "process"}], "output": "†results.0"}
        os.kill((await call(client, "run_plan", **plan))["output"], signal.SIGKILL)


@pytest.mark.parametrize("mode", ERAS)
async def test_nothing_is_lost_between_turns_when_all_are_killed(tmp_path: Path, mode: str) -> None:
    configuration = configured(tmp_path)
    async with killed(configuration, mode) as client:
        run = (await call(client, "solve", **TASK))["run"]
        await refused(client, "submit_solution", run=run, turn=0, solution=UNREADABLE)

    async with killed(configuration, mode) as client:
        # A host that has lost its context can find the run again.
        latest = await call(client, "check_run")
        found = next(one for one in latest["runs"] if one["kind"] == "solve")
        assert found["run"] == run
        assert found["title"].startswith("Add the numbers")
        told = await call(client, "check_run", run=run)
        assert told["turn"] == 0
        told = await call(client, "submit_solution", run=run, turn=0, solution=FIRST)
        assert told["turn"] == 1

    async with over_stdio(configuration, mode) as client:
        same = await call(client, "submit_solution", run=run, turn=0, solution=FIRST)
        assert same["turn"] == 1
        assert "already answered" in await refused(
            client, "submit_solution", run=run, turn=0, solution=SECOND
        )
        assert (await call(client, "submit_solution", run=run, turn=1, solution=SECOND))[
            "turn"
        ] == 2
        told = await call(client, "submit_solution", run=run, turn=2, solution=THIRD)
        assert told["output"] == {"total": 13}


async def test_a_stored_idea_guides_a_new_run(client: Client) -> None:
    run = (await call(client, "solve", **TASK))["run"]
    await call(
        client, "submit_solution", run=run, turn=0, solution={**FIRST, "calls": FIRST["calls"][:1]}
    )
    done = await call(
        client,
        "submit_solution",
        run=run,
        turn=1,
        solution={"calls": [], "output": {"total": "†state.sum"}},
    )
    assert done["status"] == "done"
    result = await client.call_tool(
        "solve", {"task": "Again.", "idea": run, "tools": ["add"], "mind": "turns"}
    )
    assert "Add the numbers" in text(result)
    assert '"†state.sum"' in text(result)


SKIPPED: dict[str, Any] = {
    "calls": [
        {"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum || failed"},
        {"_tool": "count_words", "text": "†state.failed.message"},
    ]
}


async def test_a_skipped_call_is_told_with_its_reason(client: Client) -> None:
    result = await client.call_tool("run_plan", SKIPPED)
    assert structured(result)["status"] == "done"
    [skipped] = structured(result)["skipped"]
    assert (skipped["place"], skipped["tool"]) == (1, "count_words")
    assert f"skipped:\n- calls[1] count_words: {skipped['why']}" in text(result)
    assert "took another branch" in skipped["why"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        (
            {"calls": [{"_tool": "count_words", "text": "†input.n"}], "input": {"n": 5}},
            "text: found 5, expected text",
        ),
        (
            {"calls": [{"_tool": "count_words", "text": "a", "_activity": "cuont"}]},
            "unknown activity 'cuont'",
        ),
        (
            {
                "calls": [],
                "instances": {
                    "a": {
                        "type": "state",
                        "state": {"n": "x"},
                        "schema": {"properties": {"n": {"type": "null"}}},
                    }
                },
            },
            'instance a: the state: n: found "x", expected null',
        ),
    ],
)
async def test_what_is_wrong_with_what_exists_is_refused_before_anything_runs(
    client: Client, tmp_path: Path, members: dict[str, Any], says: str
) -> None:
    note = tmp_path / "note.txt"
    writes = {"_tool": "write_note", "path": str(note), "text": "x"}
    assert says in await refused(
        client, "run_plan", **{**members, "calls": [writes, *members["calls"]]}
    )
    assert not note.exists()
