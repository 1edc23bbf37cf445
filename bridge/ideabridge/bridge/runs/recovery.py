"""Take up runs that a process left behind.

A sweep is two indexed queries: for runs whose status is `running`, and for `interrupted` runs of
the current configuration. If nobody drives such a run (its lease was released or has lapsed, or its
process has ended), this process takes the run up: with the role `alone` it continues the run, with
the role `front` or `worker` it returns the run to the queue. `TAKEN_UP_AT_ONCE` limits how many
runs it takes up at the same time.

The first sweep, and the first sweep after a change to the configuration, cover the `running` runs
of all configurations. The next sweeps also cover these runs, until each run either has a driver
that is known to be alive or was tried while the store worked. Otherwise, if the store were busy
during the first sweep, a run whose configuration is no longer used by any process would be left
behind.

A run that cannot be taken up is reported once. If the store or this process failed, the run is
tried again after a delay that doubles. If the run cannot continue under this configuration, it is
tried again when another process has driven it or the configuration changes. `Registry` sets aside a
run that makes no progress; from then on, it is taken up only when a person asks for it.
`docs/survival.md` describes what users see of this.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.runs.decision import is_set_aside
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.runner import cause
from ideabridge.bridge.runs.runs import Runs
from ideabridge.bridge.store.errors import PASSING, StaleDriverError, StoreError
from ideabridge.bridge.store.leases import Lease
from ideabridge.bridge.store.queue import QUEUED
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL

TAKEN_UP_AT_ONCE: Final = 8
"""The maximum number of runs that are taken up at the same time. The next run follows when one of
these runs has ended or waits for someone, or after `_HELD_SECONDS`.
"""

MOST_IN_SWEEP: Final = 1000
"""The maximum number of runs in a sweep. The latest runs go first."""

SWEEP_SECONDS: Final = 1.0
"""The average time, in seconds, between two sweeps of a server. The interval is random, so that
servers do not all sweep at the same moment.
"""

_HELD_SECONDS: Final = 1.0
"""The time, in seconds, to wait after taking up a run before taking up others: a run that crashes
its process usually does so immediately.
"""

_MOST_DELAY: Final = 60.0
"""The maximum delay, in seconds, before a run that could not be taken up is tried again. The delay
starts at 1 s and doubles.
"""

_MOST_DELAY_BY_STORE: Final = 4.0
"""The maximum delay, in seconds, if only the store failed or another process had the run. Such
causes are temporary and are not reported.
"""

Tell = Callable[[RunRecord, str], None]
"""A function that is called with each run that could not be taken up, and the reason."""


@dataclass(slots=True)
class _Failed:
    """A run that could not be taken up.

    Attributes:
        delay: the number of seconds between the last failure and the next attempt.
        due: when the next attempt is due.
        hopeless: the epoch in which the run cannot continue under this configuration. The run is
            tried again once another process has driven it, or once the configuration has changed.
        by_store: True if the last report said that the store could not be written to.
    """

    delay: float = SWEEP_SECONDS / 2
    due: float = 0.0
    hopeless: int | None = None
    by_store: bool = False


class Recovery:
    """Takes up the runs that were active when their process died or abandoned them, unless another
    process drives them.

    Runs that are waiting for a solution or an approval continue when someone answers. Runs that
    were interrupted by a change of the configuration continue under their own configuration. A run
    that was taken up twice without progress is set aside, because it might have crashed the
    processes that took it up.

    Args:
        tell: see `Tell`.
        mask: removes secrets from text.
        taken_up: called with each run that this process continues.
    """

    def __init__(
        self,
        store: Store,
        runs: Runs,
        tell: Tell,
        mask: Callable[[str], str],
        taken_up: Callable[[Run], None] | None = None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._tell = tell
        self._mask = mask
        self._taken_up = taken_up
        self._places = anyio.Semaphore(TAKEN_UP_AT_ONCE)
        self._busy: set[str] = set()
        self._failed: dict[str, _Failed] = {}

    async def run(self) -> None:
        """Take up all runs, and return when each of them has ended, is waiting for someone, or was
        abandoned.

        If it is unclear whether a driver is alive, wait until its lease has lapsed.
        """
        deadline: float | None = None
        async with anyio.create_task_group() as group:
            while True:
                undecided = self._sweep(group, None)
                if deadline is None:
                    # By this time, a live driver has renewed its lease, so there is no reason to
                    # wait any longer.
                    deadline = anyio.current_time() + max(undecided, default=0.0) + SWEEP_SECONDS
                if not undecided or anyio.current_time() > deadline:
                    return
                await anyio.sleep(min(*undecided, SWEEP_SECONDS / 4) + 0.01)

    async def keep(self) -> None:
        """Take up all runs, including those that other processes leave behind later, until
        cancelled.
        """
        swept_under: str | None = None
        undecided_until = 0.0
        async with anyio.create_task_group() as group:
            while True:
                with contextlib.suppress(StoreError):
                    # The tasks that use the store report its error. The sweeps continue as soon as
                    # the store works again.
                    fingerprint = self._runs.services.in_force.fingerprint
                    if fingerprint != swept_under:
                        undecided = self._sweep_all(group)
                        swept_under = fingerprint
                        if undecided:
                            # By this time, each live driver has renewed its lease, and there has
                            # been a sweep after the leases of all others expired.
                            undecided_until = (
                                anyio.current_time() + max(undecided) + 2 * SWEEP_SECONDS
                            )
                    elif anyio.current_time() < undecided_until or self._has_failed_by_store():
                        self._sweep(group, None)
                    else:
                        self._sweep(group, fingerprint)
                await anyio.sleep(SWEEP_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - it spreads the servers

    def _sweep_all(self, group: TaskGroup) -> list[float]:
        """Sweep the runs of all configurations, because runs that could not continue under another
        configuration might be able to continue under this one. Return the result of `_sweep`.
        """
        for failed in self._failed.values():
            failed.hopeless = None

        undecided = self._sweep(group, None)
        if self._runs.services.queue.role == "worker":
            self._adopt_queued()
        return undecided

    def _has_failed_by_store(self) -> bool:
        """Return whether a run has not been taken up yet because the store could not be written
        to.
        """
        return any(failed.by_store for failed in self._failed.values())

    def _adopt_queued(self) -> None:
        """Adopt queued runs of other configurations that can continue under this one, because there
        might be no worker left with their configuration.
        """
        for lease in self._store.leases.of_runs(QUEUED, None, MOST_IN_SWEEP):
            record = self._store.runs.get(lease.run)
            if record is None or record.status != QUEUED:
                continue
            if record.fingerprint == self._runs.services.in_force.fingerprint:
                continue
            try:
                self._runs.adopt(record)
            except PASSING:
                # The next sweep goes through all configurations again.
                raise
            except Exception as error:  # noqa: BLE001 - an unreadable run must not delay the others
                self._give_up(record, error)

    def _sweep(self, group: TaskGroup, fingerprint: str | None) -> list[float]:
        """Start taking up every run that was left behind. Active runs are included only if they
        have the given `fingerprint`.

        Returns:
            For each run whose driver might be alive, the number of seconds until its lease lapses.
        """
        undecided: list[float] = []
        running = self._store.leases.of_runs("running", fingerprint, MOST_IN_SWEEP)
        interrupted = self._store.leases.of_runs(
            "interrupted", self._runs.services.in_force.fingerprint, MOST_IN_SWEEP - len(running)
        )
        # Begin with the oldest run, because it has been waiting longest.
        for lease in reversed([*running, *interrupted]):
            if lease.run in self._busy:
                continue
            seconds = self._runs.registry.seconds_until_lapse(lease)
            failed = self._failed.get(lease.run)
            if 0 < seconds < math.inf:
                undecided.append(seconds)
            elif seconds == 0 and (
                failed is None
                or (failed.hopeless != lease.epoch and failed.due <= anyio.current_time())
            ):
                self._busy.add(lease.run)
                group.start_soon(self._recover, lease)

        self._report_ended()
        return undecided

    def _report_ended(self) -> None:
        """Report runs that ended even though the store failed while they were being taken up.

        The write succeeded later, so no sweep finds these runs again.
        """
        for run_id in [
            failed_id
            for failed_id, failed in self._failed.items()
            if failed.by_store and failed_id not in self._busy
        ]:
            record = self._store.runs.get(run_id)
            if record is not None and record.status in ("running", "interrupted"):
                continue
            run = None if record is None else self._runs.registry.get(run_id, record.caller)
            del self._failed[run_id]
            if run is not None and self._taken_up is not None:
                self._taken_up(run)

    async def _recover(self, lease: Lease) -> None:
        try:
            run = await self._take_up(lease)
            if run is None:
                return
            await run.wait()
            if run.runner.lost is None:
                self._failed.pop(run.id, None)
            else:
                # This process has abandoned the run, which will be tried again here or elsewhere.
                self._delay(run.id, run.runner.failure)
        finally:
            self._busy.discard(lease.run)

    async def _take_up(self, lease: Lease) -> Run | None:
        """Continue a run. Return None if it does not continue in this process."""
        async with self._places:
            record: RunRecord | None = None
            try:
                async with self._runs.registry.reading_ahead(lease.run):
                    record = self._store.runs.get(lease.run)
                    run = None if record is None else self._resume(record, lease)
                if run is None:
                    return None
                if self._taken_up is not None:
                    self._taken_up(run)
            except Exception as error:  # noqa: BLE001 - an unreadable run must not delay the others
                if record is not None:
                    self._give_up(record, error)
                if isinstance(error, PASSING):
                    # The store is failing, so the other runs would fail as well. Delay them.
                    await anyio.sleep(_HELD_SECONDS)
                return None
            with anyio.move_on_after(_HELD_SECONDS):
                await run.wait()
            return run

    def _resume(self, record: RunRecord, lease: Lease) -> Run | None:
        """Continue a run that had the given lease. Return None if it does not continue in this
        process. Raises the errors of `Registry.resume`.
        """
        root = self._store.runs.get(lease.run.partition(".")[0])
        if record.lease != lease or (root is not None and is_set_aside(root)):
            # Another process has resumed the run, or the run (or its parent) is waiting for a
            # person. `decide_next` would leave it as it is, but only after its journal was read.
            return None

        if root is not None and root.id != record.id and self._goes_on_with(root):
            return None
        try:
            run = self._runs.registry.resume(record.id, SEES_ALL)
        except FinishedRunError:
            # The driver died after writing the last event, but before writing the status. Looking
            # up the run writes the status and wakes the tasks that are waiting for its end.
            return self._runs.registry.get(record.id, record.caller)

        if run.status == "running" and run.driver.epoch is None:
            # The run was queued, so a worker continues it.
            return None
        return run

    def _goes_on_with(self, root: RunRecord) -> bool:
        """Return whether a room continues together with its parent because a worker takes up both.

        `decide_next` would say the same, but only after reading the journal of the room.
        """
        return self._runs.services.queue.role != "alone" and root.status in ("running", QUEUED)

    def _give_up(self, record: RunRecord, error: Exception) -> None:
        """Report once that a run could not be taken up.

        If the first report was about the store, a later, different reason is reported as well.
        """
        passes = isinstance(error, PASSING)
        failed = self._failed.get(record.id)
        is_known = failed is not None and (passes or not failed.by_store)
        with contextlib.suppress(StoreError):
            now = self._store.runs.get(record.id)
            if (
                now is None
                or now.status not in ("running", "interrupted")
                or self._runs.registry.seconds_until_lapse(now.lease) > 0
            ):
                # Another process has resumed the run.
                return

            if not isinstance(error, StoreError):
                self._failed.setdefault(record.id, _Failed()).hopeless = now.epoch

        self._delay(record.id, error).by_store = passes
        if not is_known:
            if isinstance(error, InterruptedRunError):
                reason = str(error)
            else:
                reason = cause(error, self._mask)
            self._tell(record, reason)

    def _delay(self, run_id: str, error: Exception | None) -> _Failed:
        """Delay the next attempt to take up a run, because of `error` or, if that is None, because
        another process has the run.
        """
        failed = self._failed.setdefault(run_id, _Failed())
        passes = error is None or isinstance(error, (*PASSING, StaleDriverError))
        failed.delay = min(failed.delay * 2, _MOST_DELAY_BY_STORE if passes else _MOST_DELAY)
        failed.due = anyio.current_time() + failed.delay
        return failed
