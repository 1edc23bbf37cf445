"""Turns: whoever waits with a hundred pieces of work does not make others wait for all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from anyio import wait_all_tasks_blocked
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from anyio.to_thread import current_default_thread_limiter

from ideabridge.tools.threads import MOST_TOOLS, run_tool_in_thread
from ideabridge.tools.turns import FairPlaces, HeldProcess, asked_by

pytestmark = pytest.mark.anyio


class Work:
    """Pieces of work that end when they are told to."""

    def __init__(self, places: int, group: TaskGroup, each: int | None = None) -> None:
        self.turns = FairPlaces(places, each)
        self.begun: list[str] = []
        self._group = group
        self._ends: dict[str, anyio.Event] = {}
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def ask(self, caller: str, *names: str) -> None:
        """Let a caller ask for pieces of work, one after another."""
        for name in names:
            self._group.start_soon(self._piece, caller, name)
            await checkpoint()
            await checkpoint()

    async def end(self, name: str) -> None:
        """End a piece of work, and let the next one begin."""
        self._ends[name].set()
        for _ in range(5):
            await checkpoint()

    async def _piece(self, caller: str, name: str) -> None:
        asked_by.set(caller)
        self._ends[name] = anyio.Event()
        with anyio.CancelScope() as self.scopes[name]:
            async with self.turns.place():
                self.begun.append(name)
                await self._ends[name].wait()


async def test_a_caller_with_few_places_comes_before_one_with_many() -> None:
    async with anyio.create_task_group() as group:
        work = Work(2, group)
        await work.ask("alice", "a1", "a2", "a3", "a4", "a5")
        await work.ask("bob", "b1", "b2")
        assert work.begun == ["a1", "a2"]

        await work.end("a1")
        assert work.begun[2:] == ["b1"]
        await work.end("a2")
        assert work.begun[3:] == ["b2"] or work.begun[3:] == ["a3"]
        for name in ("b1", "b2", "a3", "a4", "a5"):
            await work.end(name)
        assert sorted(work.begun) == ["a1", "a2", "a3", "a4", "a5", "b1", "b2"]
        assert work.begun.index("b2") < work.begun.index("a4")


async def test_callers_take_turns_at_one_place() -> None:
    async with anyio.create_task_group() as group:
        work = Work(1, group)
        await work.ask("alice", "a1", "a2", "a3")
        await work.ask("bob", "b1", "b2")
        await work.ask("carol", "c1")
        for number in range(6):
            await work.end(work.begun[number])
        assert work.begun == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_caller_leaves_the_places_free_that_others_may_have() -> None:
    async with anyio.create_task_group() as group:
        work = Work(2, group, each=1)
        await work.ask("alice", "a1", "a2", "a3")
        assert work.begun == ["a1"]

        await work.ask("bob", "b1")
        assert work.begun == ["a1", "b1"]

        # Bob's place stays free.
        await work.end("b1")
        assert work.begun == ["a1", "b1"]
        await work.end("a1")
        assert work.begun == ["a1", "b1", "a2"]
        await work.ask("carol", "c1")
        assert work.begun == ["a1", "b1", "a2", "c1"]
        await work.end("a2")
        await work.end("a3")
        await work.end("c1")


async def test_who_gives_up_leaves_the_line_and_the_place() -> None:
    async with anyio.create_task_group() as group:
        work = Work(1, group)
        await work.ask("alice", "a1", "a2", "a3")
        await work.ask("bob", "b1")
        work.scopes["b1"].cancel()
        work.scopes["a2"].cancel()
        await checkpoint()
        work.scopes["a1"].cancel()
        for _ in range(10):
            await checkpoint()
        assert work.begun == ["a1", "a3"]
        await work.end("a3")
        await work.ask("bob", "b2")
        assert work.begun[2:] == ["b2"]
        await work.end("b2")


def started() -> subprocess.Popen[bytes]:
    """A process that waits for input."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


async def test_a_cancelled_caller_kills_the_process_for_which_a_thread_waits() -> None:
    process = await anyio.to_thread.run_sync(started)
    waits = anyio.Event()
    turns = FairPlaces(1)

    def work(held: HeldProcess) -> int:
        with held.holding(process.pid):
            anyio.from_thread.run_sync(waits.set)
            return process.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(turns.run, work)
        await waits.wait()
        group.cancel_scope.cancel()

    assert await anyio.to_thread.run_sync(process.wait) in (-signal.SIGKILL, 1, 15)
    assert process.stdin is not None
    process.stdin.close()


async def test_work_that_waits_holds_no_thread_of_others() -> None:
    turns = FairPlaces(1)
    end = os.pipe()

    def work(_: HeldProcess) -> bytes:
        return os.read(end[0], 1)

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(turns.run, work)

        for _ in range(10):
            await checkpoint()

        assert current_default_thread_limiter().borrowed_tokens == 0
        os.write(end[1], b"x" * 100)

    for descriptor in end:
        os.close(descriptor)


async def test_waiting_tools_of_one_caller_take_no_thread_from_others() -> None:
    ends = threading.Event()

    async def ask(caller: str, work: Callable[[], bool]) -> bool:
        asked_by.set(caller)
        return await run_tool_in_thread(work)

    async with anyio.create_task_group() as group:
        for _ in range(2 * MOST_TOOLS):
            group.start_soon(ask, "bob", partial(ends.wait, 30))

        await wait_all_tasks_blocked()
        assert await ask("alice", lambda: True)
        # Files and the keyring use other threads.
        assert await anyio.to_thread.run_sync(lambda: True)
        ends.set()
