"""Decide who gets the next free place when many callers wait for a few places, such as worker
processes.

A free place goes to the caller who holds the fewest places or, if several hold equally few, to the
one whose last turn was longest ago. So even if a caller submits a hundred jobs at the same time,
the first job of another caller is delayed by at most one job per place.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Final, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

asked_by: Final[ContextVar[str]] = ContextVar("asked_by", default="")
"""The caller on whose behalf the current task runs, or "" outside the task of a caller."""


class HeldProcess:
    """The worker process that a thread is waiting for, so that another thread can kill it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._is_killed = False

    @contextmanager
    def holding(self, pid: int | None) -> Generator[None]:
        """Let `kill` kill this process while the block is waiting for it. If the work has already
        been abandoned, kill the process immediately.
        """
        with self._lock:
            self._pid = pid
            if self._is_killed:
                self._kill()
        try:
            yield
        finally:
            # Forget the process, because it might soon be given other work.
            with self._lock:
                self._pid = None

    def kill(self) -> None:
        """Abandon the work, and kill the process."""
        with self._lock:
            self._is_killed = True
            self._kill()

    def _kill(self) -> None:
        if self._pid is not None:
            with suppress(OSError):
                os.kill(self._pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)


class FairPlaces:
    """A number of places shared by the callers on one event loop.

    Args:
        places: the number of places.
        each: the maximum number of places that one caller can hold at the same time.
    """

    def __init__(self, places: int, each: int | None = None) -> None:
        self._free = places
        self._each = places if each is None else each
        # The waiting tasks of each caller. A caller without waiting tasks has no entry.
        self._lines: dict[str, deque[anyio.Event]] = {}
        self._at_work: Counter[str] = Counter()
        self._last_turn: dict[str, int] = {}
        self._turn = 0

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for a free place, and hold it for the duration of the block on behalf of the caller
        in `asked_by`.
        """
        caller = asked_by.get()
        await self._take(caller)
        try:
            yield
        finally:
            self._give_back(caller)

    async def run(self, work: Callable[[HeldProcess], T]) -> T:
        """Run a function that waits for a worker process, and return its result.

        The function runs in a thread and holds a place. A thread cannot be stopped, so if the task
        is cancelled, the process that the thread is waiting for is killed.
        """
        process = HeldProcess()
        async with self.place():
            try:
                # Use a separate limiter. With the default one, which all threads share, the threads
                # waiting here would delay all other work.
                limiter = anyio.CapacityLimiter(1)
                return await anyio.to_thread.run_sync(
                    work, process, abandon_on_cancel=True, limiter=limiter
                )
            except anyio.get_cancelled_exc_class():
                process.kill()
                raise

    async def _take(self, caller: str) -> None:
        if self._free and self._at_work[caller] < self._each:
            self._free -= 1
            self._begin(caller)
            return

        waiter = anyio.Event()
        self._lines.setdefault(caller, deque()).append(waiter)
        try:
            await waiter.wait()
        except BaseException:
            if waiter.is_set():
                self._give_back(caller)
            else:
                self._lines[caller].remove(waiter)
                self._forget_empty(caller)

            raise

    def _begin(self, caller: str) -> None:
        self._turn += 1
        self._last_turn[caller] = self._turn
        self._at_work[caller] += 1

    def _give_back(self, caller: str) -> None:
        self._at_work[caller] -= 1
        ready = [waiting for waiting in self._lines if self._at_work[waiting] < self._each]
        following = min(ready, key=self._order, default=None)
        if following is None:
            self._free += 1
        else:
            self._begin(following)
            self._lines[following].popleft().set()
            self._forget_empty(following)

        self._forget_empty(caller)

    def _order(self, caller: str) -> tuple[int, int]:
        return self._at_work[caller], self._last_turn.get(caller, 0)

    def _forget_empty(self, caller: str) -> None:
        """Remove the queue of a caller that has no waiting tasks. If the caller does not hold a
        place either, forget the caller.
        """
        if not self._lines.get(caller):
            self._lines.pop(caller, None)
            if not self._at_work[caller]:
                del self._at_work[caller]
                self._last_turn.pop(caller, None)
