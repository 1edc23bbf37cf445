"""The work for the answer about a plan grows with its calls, and not with their square."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any, Final

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.plan import read_plan
from ideabridge.server.brief import shorten_answer

pytestmark = pytest.mark.anyio

CALLS: Final = 2_000


async def ended(plan: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The short answer about a plan that ran, and the number of function calls that
    shortening it took.
    """
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call"

    async with Bridge() as bridge:
        run = await bridge.run_plan(read_plan(plan))
        await run.wait()
        result: dict[str, Any] = {**run.answer()}
        sys.setprofile(count)
        try:
            shorten_answer(run, result)
        finally:
            sys.setprofile(None)

    return result, made


async def test_a_plan_of_many_calls_is_answered_soon() -> None:
    """It was quadratic: ten thousand calls, of which none reads another, blocked everybody
    for seven seconds.
    """
    calls = [{"_tool": "count", "items": [1]} for _ in range(CALLS)]
    result, made = await ended({"calls": calls})
    assert len(result["results"]) == CALLS
    assert made < 30 * CALLS


async def test_a_plan_of_many_calls_that_read_each_other_is_answered_soon() -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "count", "items": [1], "_outputPath": f"a.n{n}"} for n in range(CALLS)
    ]
    calls += [{"_tool": "pick", "data": f"†state.a.n{n}", "path": "@"} for n in range(CALLS)]
    result, made = await ended({"calls": calls})
    assert len(result["results"]) == CALLS
    assert made < 60 * CALLS


async def test_what_is_kept_is_what_no_call_reads() -> None:
    choice = random.Random(3)
    for _ in range(20):
        paths = [f"k{choice.randrange(4)}.m{choice.randrange(4)}.n{number}" for number in range(40)]
        read = [
            path.rpartition(".")[0] if choice.random() < 0.3 else path
            for path in paths
            if choice.random() < 0.4
        ]
        calls: list[dict[str, Any]] = [
            {"_tool": "pick", "data": "x" * 40, "path": "@", "_outputPath": p} for p in paths
        ]
        calls.append(
            {"_tool": "count", "items": [f"†state.{path}" for path in read], "_outputPath": "end"}
        )
        result, _ = await ended({"calls": calls})
        shown = {
            f"{key}.{member}.{name}"
            for key, members in result["state"].items()
            if key != "end"
            for member, names in members.items()
            for name in names
        }
        assert shown == {
            path for path in paths if not any(f"{path}.".startswith(f"{one}.") for one in read)
        }
