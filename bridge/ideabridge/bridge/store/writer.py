"""Let the event loop write to the store without waiting for a disk, a lock or another process.

A small job runs immediately on the event loop, because its commit takes tens of microseconds, and
switching threads would take longer. A job is queued if the store is locked, fails or was slow, if
other jobs are queued, if the job is large, or if the durability is `full`. A thread commits queued
jobs together. If an error is temporary, it retries after a pause.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.errors import PASSING, StoreBusyError, StoreError

T = TypeVar("T")

KEEPS_TRYING_SECONDS: Final = 60.0
"""How long, in seconds, a job is retried while the store cannot be written."""

LOOP_PATIENCE: Final = 0.05
"""The maximum time, in seconds, that a write outside the writer can block the event loop while
another process writes.
"""

_SLOW: Final = 0.02
_SLOW_FOR: Final = 5.0
"""If commits on the event loop take `_SLOW` seconds or more, the thread makes all commits for the
next `_SLOW_FOR` seconds.
"""

_IN_A_ROW: Final = 3
"""The number of consecutive slow commits after which the thread takes over. A single commit can be
slow because another process uses the processor.
"""

_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_TOGETHER: Final = 64
_LAST_SECONDS: Final = 5.0
"""How long, in seconds, queued jobs are retried when the bridge closes."""

logger: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Queued:
    job: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    key: str
    is_large: bool
    within: float
    since: float = 0.0
    """The time of the job's first failure, or 0 if it has not failed."""


class Writer:
    """Runs jobs that write: `async with writer:`. Call its methods in the event loop's thread. The
    jobs themselves may run in another thread.

    A job is repeated until it succeeds. Each attempt runs in a transaction, which is rolled back if
    the attempt fails.

    Attributes:
        trouble: why the last write failed, or None if it succeeded.
    """

    def __init__(self, database: Database) -> None:
        self.trouble: StoreError | None = None
        self._database = database
        # Do not commit on the event loop if commits are durable, because these wait for the disk.
        self._may_at_once = database.durability == "normal"
        self._queue: deque[_Queued] = deque()
        self._wanted = anyio.Event()
        self._busy = False
        self._slow = 0
        self._slow_until = 0.0
        self._limiter = CapacityLimiter(1)

    def write(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
        *,
        key: str,
        is_large: bool = False,
    ) -> bool:
        """Run a job immediately if it is likely to be fast, otherwise queue it.

        Args:
            job: writes to the store.
            done: called with the job's result after the commit, which may be before or after
                `write` returns.
            failed: called with the error of a queued job that is no longer retried.
            key: jobs with the same key run in order.
            is_large: True if the job might take a long time.

        Returns:
            True if the job is committed.

        Raises:
            Exception: the error of a job that ran immediately. After a temporary error, the job is
                queued instead.
        """
        if self._may_at_once and not is_large and not self._queue and not self._busy:
            began = time.perf_counter()
            if began >= self._slow_until:
                try:
                    result = self._database.at_once(job)
                except PASSING:
                    pass
                else:
                    ended = time.perf_counter()
                    self._slow = self._slow + 1 if ended - began > _SLOW else 0
                    if self._slow == _IN_A_ROW:
                        self._slow, self._slow_until = 0, ended + _SLOW_FOR

                    done(result)
                    return True

        self._put(_Queued(job, done, failed, key, is_large, KEEPS_TRYING_SECONDS))
        return False

    @property
    def obstacle(self) -> StoreError | None:
        """Why writes are currently waiting, or None if no error is holding them up."""
        return self.trouble if self._queue or self._busy else None

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call a function that writes, on the event loop, repeatedly while the store cannot be
        written to.

        Args:
            call: reads and writes the store. If it raises a `StoreError`, it must not have changed
                anything.

        Raises:
            StoreError: the store could not be written to within its timeout for locks.
            Exception: the error of the call.
        """
        deadline = time.monotonic() + self._database.busy_timeout_s
        pause = _PAUSE_SECONDS
        while True:
            try:
                return call()
            except PASSING as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                await self._wait_free(deadline)
                if not isinstance(error, StoreBusyError):
                    # The lock is free, but the disk might still be refusing writes.
                    await anyio.sleep(min(pause, left))
                    pause = min(2 * pause, _LONGEST_PAUSE)

    async def _wait_free(self, deadline: float) -> None:
        await self.perform(lambda: None, within=max(deadline - time.monotonic(), 0.0))

    async def perform(self, job: Callable[[], T], *, within: float | None = None) -> T:
        """Run a job in the writer's thread, and wait for it.

        Args:
            job: writes to the store.
            within: for how many seconds to retry the job while the store cannot be written to, or
                None for the store's timeout for locks.

        Raises:
            StoreError: the store could not be written to. The job changed nothing.
            Exception: the error of the job.
        """
        ended = anyio.Event()
        results: list[T] = []
        errors: list[Exception] = []

        def done(result: T) -> None:
            results.append(result)
            ended.set()

        def failed(error: Exception) -> None:
            errors.append(error)
            ended.set()

        within = self._database.busy_timeout_s if within is None else within
        self._put(_Queued(job, done, failed, "", is_large=False, within=within))
        await ended.wait()
        if errors:
            raise errors[0]
        return results[0]

    def _put(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self._wanted.set()

    async def __aenter__(self) -> Self:
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._run)
        self._database.patience = LOOP_PATIENCE
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)
        # These results are already known, so it is worth waiting a few seconds in order to save
        # them.
        with anyio.move_on_after(_LAST_SECONDS, shield=True):
            while self._queue:
                if not await self._commit():
                    await anyio.sleep(_PAUSE_SECONDS)

        if self._queue:
            logger.error("%d writes to the store were lost: %s", len(self._queue), self.trouble)
            self._queue.clear()

        self._database.patience = None
        return False

    async def _run(self) -> None:
        """Commit queued jobs until cancelled."""
        pause = _PAUSE_SECONDS
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            while self._queue:
                if await self._commit():
                    pause = _PAUSE_SECONDS
                else:
                    await anyio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _next(self) -> list[_Queued]:
        """Remove the jobs to commit together from the queue. A large job is committed alone."""
        batch: list[_Queued] = []
        while self._queue and len(batch) < _TOGETHER and not (batch and self._queue[0].is_large):
            batch.append(self._queue.popleft())
            if batch[-1].is_large:
                break

        return batch

    async def _commit(self) -> bool:
        """Commit some queued jobs. Return False if some of them must be retried."""
        batch = self._next()
        self._busy = True
        jobs = [(queued.key, queued.job) for queued in batch]
        outcomes = list[Any]()
        try:
            with anyio.CancelScope(shield=True):
                outcomes = await to_thread.run_sync(
                    self._database.commit, jobs, limiter=self._limiter
                )
        finally:
            self._busy = False

        now = time.monotonic()
        retried: list[_Queued] = []
        ended: list[tuple[_Queued, Any]] = []
        trouble: StoreError | None = None
        for queued, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, PASSING):
                trouble = outcome
                queued.since = queued.since or now
                if now - queued.since < queued.within:
                    retried.append(queued)
                    continue

            ended.append((queued, outcome))

        self._queue.extendleft(reversed(retried))
        self.trouble = trouble
        # While the store cannot be written to, let writes on the event loop fail immediately.
        self._database.patience = LOOP_PATIENCE if trouble is None else 0.0
        for queued, outcome in ended:
            if isinstance(outcome, Exception):
                queued.failed(outcome)
            else:
                queued.done(outcome)

        return not retried
