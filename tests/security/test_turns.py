"""One caller with much work for worker processes does not hold up the first piece of
another caller's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from ideabridge.bridge import Bridge, checking
from ideabridge.bridge.checking import SMALL_CALLS
from ideabridge.bridge.programs.sandbox import SESSIONS
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import worker
from ideabridge.tools.computing import WORKERS
from ideabridge.tools.encoding import JSON
from ideabridge.tools.turns import asked_by
from tests.waiting import until

pytestmark = pytest.mark.anyio

ALICE: Final = "user:alice"
BOB: Final = "user:bob"


def settled(run: Run) -> int:
    """How many calls of a run have ended."""
    return sum(one.settled for one in run.calls())


async def test_many_expressions_of_one_caller_come_after_the_first_of_another() -> None:
    busy: JSON = {"_tool": "compute", "code": "sum([n for n in range(200_000)])"}
    async with Bridge(store=":memory:") as bridge:
        many = await bridge.run_plan({"calls": [busy] * 60}, caller=ALICE)
        while settled(many) < 2:
            await many.runner.wait_changed()
        before = settled(many)
        run = await bridge.run_plan({"calls": [busy]}, caller=BOB)
        assert await run.wait() == "done"
        # Before bob's call ends, the calls of alice that are already running may end, and as many
        # more may begin and end.
        assert settled(many) - before <= 2 * WORKERS + 2
        many.cancel()


async def test_large_work_of_one_caller_comes_after_the_first_of_another() -> None:
    rows: JSON = [{"name": f"row {number}", "v": [number % 7]} for number in range(8_000)]
    busy: JSON = {"_tool": "count", "items": "†input.rows", "by": "v[0]"}
    async with Bridge(store=":memory:") as bridge:
        many = await bridge.run_plan({"calls": [busy] * 30}, input={"rows": rows}, caller=ALICE)
        while settled(many) < 2:
            await many.runner.wait_changed()

        before = settled(many)
        run = await bridge.run_plan({"calls": [busy]}, input={"rows": rows}, caller=BOB)
        assert await run.wait() == "done"
        assert settled(many) - before <= 2 * worker.MOST_WORKERS + 2
        many.cancel()


async def test_many_programs_of_one_caller_come_after_the_first_of_another() -> None:
    program = "len([n for n in range(200_000) if n % 7])"
    async with Bridge(store=":memory:") as bridge:
        many = [await bridge.run_plan({"program": program}, caller=ALICE) for _ in range(45)]
        with anyio.fail_after(60):
            await many[0].wait()
        before = sum(one.status == "done" for one in many)
        run = await bridge.run_plan({"program": program}, caller=BOB)
        assert await run.wait() == "done"
        assert sum(one.status == "done" for one in many) - before <= 2 * SESSIONS + 2
        for one in many:
            one.cancel()


Check = Callable[[Bridge, JSON], Awaitable[object]]


async def rehearsed(bridge: Bridge, calls: JSON) -> object:
    return await bridge.dry_run({"calls": calls})


async def begun(bridge: Bridge, calls: JSON) -> object:
    return await bridge.run_plan({"calls": calls}, caller=asked_by.get())


def many_calls() -> JSON:
    """More calls than the event loop checks."""
    return [{"_tool": "pick", "data": number, "path": "@"} for number in range(SMALL_CALLS + 10)]


def many_references() -> JSON:
    """Few calls, with many references to those that came before."""
    return [
        {
            "_tool": "pick",
            "data": [f"†results.{number % last}" for number in range(100) if last],
            "path": "@",
        }
        for last in range(10)
    ]


@pytest.mark.parametrize("check", [rehearsed, begun])
@pytest.mark.parametrize("calls", [many_calls(), many_references()], ids=["calls", "references"])
async def test_many_plan_checks_of_one_caller_come_after_the_first_of_another(
    check: Check, calls: JSON
) -> None:
    checked: list[str] = []

    async def ask(caller: str) -> None:
        asked_by.set(caller)
        await check(bridge, calls)
        checked.append(caller)

    async with Bridge(store=":memory:") as bridge:
        await bridge.dry_run({"calls": calls})
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ask, ALICE)
            # Let all of alice's checks begin before bob's.
            await anyio.lowlevel.checkpoint()
            group.start_soon(ask, BOB)

    assert len(checked) == 21
    assert checked.index(BOB) <= 2 * worker.MOST_WORKERS + 2


async def test_a_cancelled_dry_run_ends_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: JSON = [{"_tool": "pick", "data": number, "path": "@"} for number in range(5_000)]
    # Use workers of their own, so that no other test has any among these.
    workers = worker.Workers()
    monkeypatch.setattr(checking, "workers", workers)
    async with Bridge(store=":memory:") as bridge:
        async with anyio.create_task_group() as group:
            group.start_soon(bridge.dry_run, {"calls": calls})
            await until(lambda: workers.at_work)
            group.cancel_scope.cancel()

        # The thread that waited for the process notices that it has ended.
        await until(lambda: not workers.at_work)
