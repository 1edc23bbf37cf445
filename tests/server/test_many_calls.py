"""What answers and progress about a run cost grows with its calls, and not with their square."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client

from ideabridge.bridge import Bridge
from ideabridge.bridge.store.store import Store
from ideabridge.server.brief import shorten_answer
from ideabridge.tools.encoding import JSON
from tests.instructions import instructions_of

from .serving import call

pytestmark = pytest.mark.anyio


def _listed(calls: int) -> list[JSON]:
    """Half of the calls write what nobody reads, and each other one is read by the next."""
    listed: list[JSON] = []
    for number in range(calls // 2):
        listed.append({"_tool": "count", "items": [number], "_outputPath": f"counts.n{number}.own"})
        listed.append(
            {
                "_tool": "count",
                "items": [f"†state.counts.n{number}.own"],
                "_outputPath": f"last.n{number}",
            }
        )
    return listed


async def _steps_of_an_answer(calls: int) -> int:
    """Return how many instructions of Python it takes to shorten the answer about a run
    with so many calls.
    """
    async with Bridge(store=Store.open(":memory:")) as bridge:
        run = await bridge.run_plan({"calls": _listed(calls)})
        assert await run.wait() == "done"
        result = run.answer()
        steps = instructions_of(lambda: shorten_answer(run, result))

    assert "counts" not in result["state"]
    assert len(result["state"]["last"]) == calls // 2
    return steps


async def test_an_answer_about_twice_as_many_calls_takes_about_twice_the_work() -> None:
    few = await _steps_of_an_answer(60)
    many = await _steps_of_an_answer(240)

    # With four times the calls, linear work takes 4 times as long, and quadratic work up to 16
    # times.
    assert many < 5 * few, (few, many)


async def test_an_answer_keeps_what_no_call_reads_in_whole_or_in_part(client: Client) -> None:
    text = "word " * 100
    calls: list[dict[str, Any]] = [
        {"_tool": "template", "text": text, "values": {}, "_outputPath": "read.whole"},
        {"_tool": "template", "text": text, "values": {}, "_outputPath": "unread"},
        {"_tool": "count", "items": ["†state.read"], "_outputPath": "counts.one"},
        {"_tool": "count", "items": ["†state.counts.one"], "_outputPath": "total"},
    ]
    told = await call(client, "run_plan", calls=calls)
    assert told["state"] == {"unread": text, "total": 1}
    assert "†state.read.whole, †state.counts.one" in " ".join(told["notes"])


async def test_skipped_calls_are_counted_in_the_progress_of_a_large_run(client: Client) -> None:
    notes: list[tuple[float, float | None, str]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        notes.append((progress, total, message or ""))

    calls: list[dict[str, Any]] = [
        {"_tool": "fail", "message": "no luck", "_id": "first", "_outputPath": "first"}
    ]
    calls += [{"_tool": "count", "items": ["†state.first"]}] * 150
    calls += [{"_tool": "count", "items": [1]}] * 150
    await client.call_tool("run_plan", {"calls": calls}, progress_callback=on_progress)
    counted = [progress for progress, _, _ in notes]
    assert counted == sorted(set(counted))

    # 151 calls start and 301 settle. The start and the end of a call each count half.
    assert 225 <= counted[-1] <= 226
