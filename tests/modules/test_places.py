"""Runs share the places of a module in turn, however many calls each has."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ideabridge.bridge.modules.fair_limiter import FairLimiter
from ideabridge.tools.turns import asked_by

pytestmark = pytest.mark.anyio


async def order_of(
    limiter: FairLimiter, *calls: str, callers: Mapping[str, str] | None = None
) -> list[str]:
    """The order in which calls get a place, each named by its run and a digit; each ends as soon as
    it is at work. `callers` has the caller of each run; without it all runs have one caller.
    """
    begun: list[str] = []

    async def call(name: str) -> None:
        asked_by.set("" if callers is None else callers[name[0]])
        await limiter.acquire(name[0])
        begun.append(name)
        await checkpoint()
        limiter.release()

    async with anyio.create_task_group() as group:
        for name in calls:
            group.start_soon(call, name)
    return begun


async def test_a_run_with_many_calls_does_not_hold_another_up() -> None:
    assert await order_of(FairLimiter(1), "a1", "a2", "a3", "a4", "b1", "b2", "c1") == [
        "a1",
        "a2",
        "b1",
        "c1",
        "a3",
        "b2",
        "a4",
    ]


async def test_a_caller_with_many_runs_does_not_hold_another_up() -> None:
    callers = {"a": "bob", "b": "bob", "c": "bob", "d": "alice"}
    calls = ("a1", "a2", "b1", "b2", "c1", "d1", "d2")
    assert await order_of(FairLimiter(1), *calls, callers=callers) == [
        "a1",
        "a2",
        "d1",
        "b1",
        "d2",
        "c1",
        "b2",
    ]


async def test_a_place_of_a_call_that_is_cancelled_while_it_waits_is_not_lost() -> None:
    limiter = FairLimiter(1)
    await limiter.acquire("a")
    async with anyio.create_task_group() as group:
        group.start_soon(limiter.acquire, "b")
        await checkpoint()
        group.cancel_scope.cancel()

    limiter.release()
    assert await order_of(limiter, "a1", "b1") == ["a1", "b1"]


async def call(limiter: FairLimiter) -> None:
    await limiter.acquire("b")
    limiter.release()


async def test_a_place_given_to_a_call_that_is_just_cancelled_is_handed_on() -> None:
    limiter = FairLimiter(1)
    await limiter.acquire("a")
    async with anyio.create_task_group() as group:
        group.start_soon(call, limiter)
        await checkpoint()
        limiter.release()
        group.cancel_scope.cancel()

    assert await order_of(limiter, "c1", "c2") == ["c1", "c2"]
