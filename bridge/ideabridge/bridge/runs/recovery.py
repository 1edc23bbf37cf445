"""Recovery: takes up again the runs that a process left behind.

A sweep is one indexed query for runs that are noted as running. Where the driver of such a run is gone (its process has
ended, or its lease has lapsed), the run is taken up here, at most `AT_ONCE` side by side. A run that cannot be taken up
is tried again after a delay that doubles, and reported once. A run that comes no further is set aside by `Runs`; then
only a person takes it up. `docs/survival.md` describes what users see of this.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.runner import cause
from ideabridge.bridge.runs.runs import Runs, is_set_aside
from ideabridge.bridge.store.errors import PASSING, StaleDriverError, StoreError
from ideabridge.bridge.store.idea import Lease, RunRecord
from ideabridge.bridge.store.store import Store

AT_ONCE: Final = 8
"""How many runs are taken up side by side; the next when one of them has ended or waits for somebody."""

MOST: Final = 1000
"""How many runs are looked at, the latest first."""

SWEEP_SECONDS: Final = 1.0
"""How often a server looks for runs whose driver is gone, on average: several do not look at the same moment."""

_HELD_SECONDS: Final = 1.0
"""How long a run that was taken up keeps others waiting: one that ends its process does so at once."""

_MOST_DELAY: Final = 60.0
"""Seconds until a run that could not be kept at work here is tried again; it begins with 1 s, and doubles."""

_MOST_DELAY_BY_STORE: Final = 4.0
"""The same where only the store kept it from that, or another process had it: that passes, and is not reported."""

Tell = Callable[[RunRecord, str], None]
"""Called with each run that could not be taken up, and why."""


class Recovery:
    """Takes up the runs that were at work when their process died, or gave them up, and nobody else is at work on.

    Runs that wait for a solution or an approval are left alone: somebody will come. Runs that were interrupted because
    the configuration had changed go on where it has become theirs again. A run that was taken up twice and came no
    further is set aside: it may be what ended the processes that took it up.

    Args:
        store: holds the runs.
        runs: takes them up.
        fingerprint: of the configuration.
        tell: see `Tell`.
        mask: takes secrets out of text.
        taken_up: called with each run that goes on here.
    """

    def __init__(
        self,
        store: Store,
        runs: Runs,
        fingerprint: str,
        tell: Tell,
        mask: Callable[[str], str],
        taken_up: Callable[[Run], None] | None = None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._fingerprint = fingerprint
        self._tell = tell
        self._mask = mask
        self._taken_up = taken_up
        self._places = anyio.Semaphore(AT_ONCE)
        self._busy: set[str] = set()
        # The epoch a run stood at when it could not go on here: it is tried again when somebody else has had it.
        self._hopeless: dict[str, int] = {}
        # Seconds until a run is tried again, and when that is.
        self._delays: dict[str, tuple[float, float]] = {}
        # Runs of which the last report was that the store could not be written.
        self._kept_by_store: set[str] = set()

    async def run(self) -> None:
        """Take all of them up; returns when each has ended, waits for somebody, or was given up. The leases of drivers
        that do not show whether they are alive are waited out.
        """
        deadline: float | None = None
        async with anyio.create_task_group() as group:
            while True:
                undecided = self._sweep(group, None)
                if deadline is None:
                    # A driver that is alive has a heartbeat meanwhile: nobody waits for it any longer.
                    deadline = anyio.current_time() + max(undecided, default=0.0) + SWEEP_SECONDS
                if not undecided or anyio.current_time() > deadline:
                    return
                await anyio.sleep(min(*undecided, SWEEP_SECONDS / 4) + 0.01)

    async def keep(self) -> None:
        """Take up what there is, and from then on what other processes leave behind. Runs until it is cancelled."""
        fingerprint: str | None = None
        async with anyio.create_task_group() as group:
            while True:
                with contextlib.suppress(StoreError):
                    # Whoever needs the store gets its error; runs are looked for again when the store works.
                    self._sweep(group, fingerprint)
                    # Runs of other configurations are named once.
                    fingerprint = self._fingerprint
                await anyio.sleep(SWEEP_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - it spreads the servers

    def _sweep(self, group: TaskGroup, fingerprint: str | None) -> list[float]:
        """Begin to take up every run that was left behind; `fingerprint`: of those at work, only under this one.

        Returns:
            For each run of which it is not known whether its driver is alive: the seconds until its lease lapses.
        """
        undecided: list[float] = []
        # The oldest first: it has waited longest.
        for lease in reversed(list(self._leases(fingerprint))):
            if lease.run in self._busy:
                continue
            left = self._runs.left(lease)
            if left > 0:
                if left < math.inf:
                    undecided.append(left)
            elif self._is_due(lease):
                self._busy.add(lease.run)
                group.start_soon(self._recover, lease)
        self._report_ended()
        return undecided

    def _report_ended(self) -> None:
        """Pass on the runs that ended although the store failed while they were taken up: the write that failed was
        done later, so no sweep finds them again.
        """
        for run_id in self._kept_by_store - self._busy:
            record = self._store.runs.get(run_id)
            if record is not None and record.status in ("running", "interrupted"):
                continue
            run = None if record is None else self._runs.get(run_id, record.caller)
            self._kept_by_store.discard(run_id)
            self._delays.pop(run_id, None)
            if run is not None and self._taken_up is not None:
                self._taken_up(run)

    def _leases(self, fingerprint: str | None) -> Iterator[Lease]:
        running = self._store.runs.leases("running", fingerprint, MOST)
        yield from running
        if len(running) < MOST:
            yield from self._store.runs.leases("interrupted", self._fingerprint, MOST - len(running))

    def _is_due(self, lease: Lease) -> bool:
        if self._hopeless.get(lease.run) == lease.epoch:
            return False
        return self._delays.get(lease.run, (0.0, 0.0))[1] <= anyio.current_time()

    async def _recover(self, lease: Lease) -> None:
        try:
            run = await self._take_up(lease)
            if run is not None:
                await run.wait()
                self._note(run)
        finally:
            self._busy.discard(lease.run)

    async def _take_up(self, lease: Lease) -> Run | None:
        """Go on with a run; None where it does not go on here."""
        async with self._places:
            record: RunRecord | None = None
            try:
                record = self._store.runs.get(lease.run)
                if record is None or record.lease != lease or self._is_set_aside(record):
                    # Another process was faster, or it waits for a person with the run it is a room of.
                    return None
                try:
                    run = self._runs.resume(record.id)
                except FinishedRunError:
                    # Its driver died after the last event, before it noted how the run ended. That is noted now, and
                    # whoever waits for the end of the run hears of it.
                    run = self._runs.get(record.id, record.caller)
                if self._taken_up is not None:
                    self._taken_up(run)
            except Exception as error:  # noqa: BLE001 - one run that cannot be read must not hold up the others
                if record is not None:
                    self._give_up(record, error)
                if isinstance(error, PASSING):
                    # The others would fail as well: not all of them at once, again and again.
                    await anyio.sleep(_HELD_SECONDS)
                return None
            with anyio.move_on_after(_HELD_SECONDS):
                await run.wait()
            return run

    def _give_up(self, record: RunRecord, error: Exception) -> None:
        """A run could not be taken up: report it once, and again where the first report was only about the store."""
        passes = isinstance(error, PASSING)
        known = record.id in self._delays and (passes or record.id not in self._kept_by_store)
        with contextlib.suppress(StoreError):
            now = self._store.runs.get(record.id)
            if now is None or now.status not in ("running", "interrupted") or self._runs.left(now.lease) > 0:
                # Another process was faster.
                return
            if not isinstance(error, StoreError):
                self._hopeless[record.id] = now.epoch
        self._delay(record.id, error)
        if passes:
            self._kept_by_store.add(record.id)
        else:
            self._kept_by_store.discard(record.id)
        if not known:
            why = str(error) if isinstance(error, InterruptedRunError) else cause(error, self._mask)
            self._tell(record, why)

    def _note(self, run: Run) -> None:
        """A run has come to rest here, or was given up: then it is tried again, here or elsewhere."""
        if run.runner.lost is None:
            self._delays.pop(run.id, None)
            self._kept_by_store.discard(run.id)
        else:
            self._delay(run.id, run.runner.failure)

    def _delay(self, run_id: str, error: Exception | None) -> None:
        """Leave a run alone for a time, because of an error, or because another process has it."""
        before = self._delays.get(run_id, (SWEEP_SECONDS / 2, 0.0))[0]
        passes = error is None or isinstance(error, (*PASSING, StaleDriverError))
        delay = min(before * 2, _MOST_DELAY_BY_STORE if passes else _MOST_DELAY)
        self._delays[run_id] = (delay, anyio.current_time() + delay)

    def _is_set_aside(self, record: RunRecord) -> bool:
        """Whether a run, or the one that it is a room of, waits for a person."""
        root = record if record.parent is None else self._store.runs.get(record.id.partition(".")[0])
        return root is not None and is_set_aside(root)
