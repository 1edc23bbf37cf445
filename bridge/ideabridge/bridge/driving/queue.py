"""Queue: decides who drives a run when servers and workers share a store.

Theory of operation. The queue is the table of runs: a run with the status `queued` has no driver
and is waiting for a worker. A server with the role `front` journals the events that set a run in
motion (its plan, a solution, a decision). At the point where calls would start, the server hands
the run over instead. `RunQueue.claim` takes a run out of the queue, and a `worker` continues the
run from its journal, as any process would. From then on, the lease of the run says who drives it. A
worker that is shutting down does not start any more calls. It hands over each of its runs when the
running calls of the run have ended.

A worker that dies leaves runs behind, and their leases lapse. `Recovery` in a `front` server or a
worker returns these runs to the queue. In a server with the role `alone`, it continues them there.
The queue has no state of its own. It only decides the order in which runs get their turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, Protocol, TypeAlias

import anyio

from ideabridge.bridge.configuration import UsersSettings
from ideabridge.bridge.driving.driver import Driver
from ideabridge.bridge.driving.notices import Notices
from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.store.errors import StaleDriverError, StoreError, UnknownRunError
from ideabridge.bridge.store.queue import QUEUED, QueuedRun
from ideabridge.bridge.store.run_record import Handover, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL, Viewer, user_of
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.errors import LimitExceededError

MOST_QUEUED: Final = 1000
"""Maximum number of runs that wait for workers. Further runs are refused."""

MOST_OF_ONE_CALLER: Final = 500
"""Maximum number of one caller's waiting runs. The remaining places are for other callers."""

Role: TypeAlias = Literal["alone", "front", "worker"]
"""The role of a process. `alone`: the process drives the runs that it creates, and the runs that
other processes leave behind. `front`: the process leaves all runs to workers. `worker`: the process
drives the runs that it takes from the queue.
"""


class _Program(Protocol):
    def stop(self) -> None: ...


class _Runner(Protocol):
    """The members of `Runner` that this file uses; `Runner` documents them."""

    lost: str | None

    @property
    def program(self) -> _Program: ...
    @property
    def is_busy(self) -> bool: ...
    def abandon(self, why: str) -> None: ...
    async def wait_changed(self) -> None: ...


class DrivenRun(Protocol):
    """The members of `Run` that the queue uses; `Run` documents them."""

    id: str
    driver: Driver

    @property
    def runner(self) -> _Runner:
        """The runner that moves the run on."""
        ...

    @property
    def machine(self) -> Machine:
        """The state of the run."""
        ...

    @property
    def root(self) -> DrivenRun:
        """The outermost run that a room belongs to, or the run itself if it is not a room."""
        ...

    @property
    def is_being_left(self) -> bool:
        """True while some of the run's writes are queued."""
        ...

    def with_rooms(self, *, ending: bool = False) -> Iterator[DrivenRun]:
        """Return the run and its rooms, at any depth."""
        ...

    def poke(self) -> None:
        """Wake the tasks that are waiting for the run."""


class Queue:
    """Decides for each run whether this process performs the run's effects. If not, hands the run
    over.

    Args:
        store: the store that holds the queue.
        role: see `Role`.

    Attributes:
        role: see `Role`. It becomes `front` while a worker is shutting down.
        claimed: the runs that this worker has taken from the queue.
    """

    def __init__(self, store: Store, role: Role) -> None:
        self.role: Role = role
        self.claimed: set[str] = set()
        self._store = store

    def drives(self, run: DrivenRun) -> bool:
        """Return whether this process performs the effects of a run or, for a room, of the
        outermost run that the room belongs to.
        """
        return self.role == "alone" or (self.role == "worker" and run.root.id in self.claimed)

    def hand_over(self, run: DrivenRun) -> None:
        """Queue a run and its rooms for a worker as soon as no part of the run is active in this
        process.
        """
        root = run.root
        if any(member.runner.is_busy for member in root.with_rooms(ending=True)):
            return
        try:
            for member in root.with_rooms():
                member.runner.program.stop()
                if member is not root:
                    member.driver.leave(None, None, member.poke)
            handover = Handover(needs=modules_reached_by(root))
            root.driver.leave(QUEUED, StoredSummary(handover=handover), root.poke)
        except StaleDriverError:
            run.runner.abandon("its lease was lost to another process")

    def return_left(self, run: DrivenRun, handover: Handover) -> None:
        """Put a run that another process left behind back into the queue. This process must hold
        the run's lease. The handover, with the modules that the run needs, is stored in the run's
        row.
        """
        run.driver.queue(dataclasses.replace(handover, needs=modules_reached_by(run)))

    def expect_place(self, caller: str) -> None:
        """Raise `LimitExceededError` if the queue is too full for another run."""
        if self._store.queue.count(most=MOST_OF_ONE_CALLER, caller=caller) >= MOST_OF_ONE_CALLER:
            raise LimitExceededError(
                f"{MOST_OF_ONE_CALLER:,} of your runs are waiting for a worker, which is the limit "
                "for one user. Try again when some of them have started, or cancel some"
            )
        if self._store.queue.count(most=MOST_QUEUED) >= MOST_QUEUED:
            raise LimitExceededError(
                f"{MOST_QUEUED:,} runs wait for a worker, which is the limit: try again in a "
                "minute, or start more workers (`ideabridge worker`)"
            )


def modules_reached_by(run: DrivenRun) -> tuple[str, ...]:
    """Return the names of the modules that a run can call, including `*` if the run can call any
    module.
    """
    tools = run.machine.catalogue.tools
    return tuple(sorted({module for tool in tools for module in tool.reached if module}))


class _Runs(Protocol):
    """The members of `Runs` that this file uses; `Runs` documents them."""

    queue: Queue
    notices: Notices
    fingerprint: str
    users: UsersSettings

    def reading_ahead(self, run_id: str) -> AbstractAsyncContextManager[None]: ...
    def resume(self, run_id: str, caller: Viewer) -> DrivenRun: ...
    def hand_over_all(self) -> None: ...


POLL_SECONDS: Final = 0.25
"""Interval, in seconds, at which the queue is checked if the store cannot notify."""


class Worker:
    """Drives queued runs of this configuration.

    Args:
        store: the store that holds the queue.
        runs: the runs of this process.
        writer: the thread that claims runs.
        most: the maximum number of runs to drive at the same time.
        modules: the modules that are available in this process, or None for all.
    """

    def __init__(
        self,
        store: Store,
        runs: _Runs,
        writer: Writer,
        *,
        most: int,
        modules: Collection[str] | None = None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._writer = writer
        self._most = most
        self._modules = modules
        self._ended = anyio.Event()

    async def run(self) -> None:
        """Take runs from the queue until this task is cancelled or, after `drain`, until the last
        run has been handed over.
        """
        async with anyio.create_task_group() as group:
            while not self._ended.is_set():
                try:
                    claimed = await self._claim()
                except StoreError:
                    # The tasks that use the store report its error, so all that the worker does is
                    # wait until the store works again.
                    claimed = []
                for run_id in claimed:
                    self._runs.queue.claimed.add(run_id)
                    group.start_soon(self._drive, run_id)
                if not claimed:
                    await self._runs.notices.wait("queue", POLL_SECONDS)

    def drain(self) -> None:
        """Do not take any more runs or start any more calls. Hand over each run as soon as its
        running calls have ended.
        """
        self._ended.set()
        self._runs.hand_over_all()
        self._runs.notices.tell("queue")

    async def _claim(self) -> list[str]:
        free = self._most - len(self._runs.queue.claimed)
        if free <= 0 or not self._store.queue.count(self._runs.fingerprint):
            return []
        queue = self._store.queue
        fingerprint = self._runs.fingerprint
        return await self._writer.perform(
            lambda: queue.claim(fingerprint, free, self._takes, self._is_last)
        )

    def _takes(self, run: QueuedRun, busy: int) -> bool:
        if busy >= self._runs.users.runs and user_of(run.caller) is not None:
            return False
        return self._modules is None or set(run.needs) <= set(self._modules)

    def _is_last(self, caller: str) -> bool:
        return user_of(caller) in self._runs.users.background

    async def _drive(self, run_id: str) -> None:
        """Continue a run, and wait until this process no longer drives it."""
        try:
            async with self._runs.reading_ahead(run_id):
                run = await self._writer.patiently(lambda: self._runs.resume(run_id, SEES_ALL))
            while (run.driver.epoch is not None or run.is_being_left) and run.runner.lost is None:
                await run.runner.wait_changed()
        except (FinishedRunError, InterruptedRunError, UnknownRunError, StoreError):
            # The run was cancelled, another process was faster, or the run cannot continue here;
            # the run's row in the store shows which. If the store failed, the run stays as it is,
            # and is later resumed as if its process had died.
            return
        finally:
            self._runs.queue.claimed.discard(run_id)
            self._runs.notices.tell("queue")
