"""One caller with much work for worker processes does not hold up the first piece of another caller's."""

from __future__ import annotations

from typing import Final

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.programs.sandbox import SESSIONS
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import worker
from ideabridge.tools.computing import WORKERS
from ideabridge.tools.encoding import JSON

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
        # Those at work end, and as many may begin and end beside the one of the other caller.
        assert settled(many) - before <= 2 * WORKERS + 2
        many.cancel()


async def test_large_work_of_one_caller_comes_after_the_first_of_another() -> None:
    rows: JSON = [{"name": f"row {number}", "v": [number % 7]} for number in range(30_000)]
    busy: JSON = {"_tool": "count", "items": "†input.rows", "by": "v[0]"}
    async with Bridge(store=":memory:") as bridge:
        many = await bridge.run_plan({"calls": [busy] * 30}, input={"rows": rows}, caller=ALICE)
        while settled(many) < 2:
            await many.runner.wait_changed()
        before = settled(many)
        run = await bridge.run_plan({"calls": [busy]}, input={"rows": rows}, caller=BOB)
        assert await run.wait() == "done"
        assert settled(many) - before <= 2 * worker.MOST + 2
        many.cancel()


async def test_many_programs_of_one_caller_come_after_the_first_of_another() -> None:
    program = "len([n for n in range(1_000_000) if n % 7])"
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
