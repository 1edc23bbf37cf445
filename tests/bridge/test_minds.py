"""Minds that answer by themselves, in pieces: calls start before the answer has ended."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, Limits
from ideabridge.bridge.context.mind import Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject

pytestmark = pytest.mark.anyio


class Scripted:
    """A mind that gives prepared answers; an answer is pieces, and waits or faults between them."""

    name = "scripted"

    def __init__(self, *answers: list[str | Callable[[], Awaitable[None]]]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> AsyncIterator[str | bytes]:
        self.requests.append(request)
        for piece in self.answers.pop(0):
            if isinstance(piece, str):
                yield piece
            else:
                await piece()


def solution(calls: list[JSON], output: JSON = None) -> list[str | Callable[[], Awaitable[None]]]:
    return [json.dumps({"calls": calls, "output": output}, ensure_ascii=False)]


@tool(read_only=True)
def shout(text: str) -> str:
    """Make text loud."""
    return text.upper()


TEXT: dict[str, JSON] = {"type": "string"}


async def test_a_call_runs_while_the_answer_still_streams() -> None:
    ran = anyio.Event()

    @tool(read_only=True)
    def first(text: str) -> str:
        """Say that it ran."""
        return text

    @tool(read_only=True)
    async def signal(text: str) -> str:
        """Say that it ran."""
        ran.set()
        return text

    mind = Scripted(
        [
            '{"calls": [{"_tool": "signal", "text": "a", "_outputPath": "a"},',
            ran.wait,  # the answer goes on only once its first call has run
            ' {"_tool": "first", "text": "†state.a", "_outputPath": "b"}], "output": "†st',
            'ate.b"}',
        ]
    )
    with anyio.fail_after(20):
        async with Bridge(toolbox=Toolbox(first, signal), mind=mind) as bridge:
            run = await bridge.solve("x", output_schema=TEXT)
            assert await run.wait() == "done"
            assert run.answer()["output"] == "a"
            assert bridge.store.ideas.get(run.id, caller=SEES_ALL).meta.mind == "scripted"


async def test_errors_are_fed_back_until_it_is_right() -> None:
    mind = Scripted(
        solution(
            [{"_tool": "shuot", "text": "a"}, {"_tool": "shout", "text": "b", "_outputPath": "b"}]
        ),
        solution([{"_tool": "shout", "text": "†state.nope"}]),
        solution([], "†state.b"),
    )
    async with Bridge(toolbox=Toolbox(shout), mind=mind) as bridge:
        run = await bridge.solve("x", output_schema=TEXT)
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "B"

    told = [json.dumps(request.texts, ensure_ascii=False) for request in mind.requests]
    assert "unknown tool 'shuot'" in told[1]
    assert "nothing supplies †state.nope" in told[2]
    assert "unknown tool" not in told[2], "errors are those of the last Request"


async def test_an_answer_that_breaks_off_keeps_what_started() -> None:
    async def lost() -> None:
        raise OSError("connection lost")

    mind = Scripted(
        ['{"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}, {"_tool"', lost],
        solution([], "†state.a"),
    )
    async with Bridge(toolbox=Toolbox(shout), mind=mind) as bridge:
        run = await bridge.solve("x", output_schema=TEXT)
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "A"
        assert len(run.calls()) == 1

    assert "was cut off: OSError: connection lost" in json.dumps(mind.requests[1].texts)


async def test_a_mind_that_never_says_anything_stalls() -> None:
    mind = Scripted(["nothing"], ["to say"], ["at all"])
    async with Bridge(toolbox=Toolbox(shout), mind=mind) as bridge:
        run = await bridge.solve("x")
        assert await run.wait(30) == "stalled"
        assert len(mind.requests) == 2


async def test_a_solution_may_list_only_so_many_calls() -> None:
    calls: list[JSON] = [{"_tool": "shout", "text": str(number)} for number in range(9)]
    mind = Scripted(solution(calls), solution([], "enough"))
    async with Bridge(
        Configuration(limits=Limits(calls=5)), toolbox=Toolbox(shout), mind=mind
    ) as bridge:
        run = await bridge.solve("x", output_schema=TEXT)
        assert await run.wait(30) == "done"
        assert len(run.calls()) == 5

    assert "at most 5 calls" in json.dumps(mind.requests[1].texts)


async def test_cancelling_stops_the_mind() -> None:
    asked = anyio.Event()

    async def think() -> None:
        asked.set()
        await anyio.sleep_forever()

    mind = Scripted([think])
    async with Bridge(toolbox=Toolbox(shout), mind=mind) as bridge:
        run = await bridge.solve("x")
        await asked.wait()
        assert run.status == "running"
        run.cancel("enough")
        assert run.status == "cancelled"


@pytest.mark.parametrize("started", [False, True])
async def test_after_a_restart_the_mind_is_asked_again_only_where_nothing_had_come(
    tmp_path: Path, started: bool
) -> None:
    asked = anyio.Event()

    async def think() -> None:
        asked.set()
        await anyio.sleep_forever()

    begun = '{"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}, '
    mind = Scripted([begun, think] if started else [think])
    store = tmp_path / "ideas.sqlite"
    async with Bridge(toolbox=Toolbox(shout), mind=mind, store=store) as bridge:
        run = await bridge.solve("x", output_schema=TEXT)
        await asked.wait()

    again = Scripted(
        solution([{"_tool": "shout", "text": "b", "_outputPath": "a"}]), solution([], "†state.a")
    )
    if started:
        again.answers.pop(0)

    async with Bridge(toolbox=Toolbox(shout), mind=again, store=store) as bridge:
        run = await bridge.run(run.id)
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == ("A" if started else "B")

    told = json.dumps(again.requests[0].texts)
    assert ("the process ended while the answer was still arriving" in told) == started


async def test_turns_stay_possible_beside_a_mind() -> None:
    async with Bridge(toolbox=Toolbox(shout), mind=Scripted()) as bridge:
        run = await bridge.solve("x", output_schema=TEXT, mind="turns")
        assert run.status == "needs_solution"
        run.submit(0, {"calls": [], "output": "mine"})
        assert await run.wait(30) == "done"


class Metered:
    """Answers as told, and says what each answer took."""

    name = "metered"

    def __init__(self, answers: list[str], usage: Usage) -> None:
        self.answers = answers
        self.usage = usage

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        yield self.answers.pop(0)
        yield self.usage


async def test_what_an_answer_took_stands_in_the_run_and_in_its_idea() -> None:
    mind = Metered(['{"calls": [], "output": "done"}'], Usage(1200, 34, 0.0021, "tiny-1"))
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("say done")
        assert await run.result() == "done"
        assert run.answer()["usage"] == {"requests": 1, "tokens": 1234, "cost": 0.0021}
        meta = bridge.store.ideas.of_run(run.id)[0].meta
        assert (meta.model, meta.usage) == (
            "tiny-1",
            {"input_tokens": 1200, "output_tokens": 34, "cost": 0.0021},
        )


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"tokens": 2000}, "2,468 tokens were used; the limit for a run is 2,000"),
        ({"cost": 0.003}, "0.0042 dollars were spent; the limit for a run is 0.003"),
    ],
)
async def test_a_run_ends_when_its_minds_have_used_what_they_may(
    limits: JSONObject, reason: str
) -> None:
    call = '{"calls": [{"_tool": "join", "items": ["a"], "_outputPath": "a"}], "output": null}'
    mind = Metered([call] * 9, Usage(1200, 34, 0.0021))
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("go on for ever", limits=limits)
        assert await run.wait() == "limit"
        assert run.answer()["reason"] == reason
        # Everything that was done so far stays.
        assert run.machine.state == {"a": "a"}
        assert len(mind.answers) == 7
