"""Recovery: runs that a process left behind are taken up again (DESIGN 7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import anyio

from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.defect import cause
from ideabridge.bridge.run import Run
from ideabridge.bridge.runs import Runs, is_set_aside

AT_ONCE: Final = 8
"""How many runs are taken up side by side; the next when one of them has ended or waits for somebody."""

MOST: Final = 1000
"""How many runs are looked at, the latest first."""

_PAGE: Final = 100
_AFTER: Final = 0.05

Tell = Callable[[RunRecord, str], None]
"""Told of each run that could not be taken up, and why."""


class Recovery:
    """Takes up the runs that were at work when their process died, and nobody else is at work on.

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

    async def run(self) -> None:
        """Take all of them up; returns when each has ended, waits for somebody, or was given up."""
        async with anyio.create_task_group() as group:
            # The oldest first: it has waited longest.
            for record in reversed(list(self._left_behind())):
                group.start_soon(self._recover, record)

    def _left_behind(self) -> Iterator[RunRecord]:
        room = MOST
        for status in ("running", "interrupted"):
            after: str | None = None
            while room > 0:
                page = self._store.runs(status=status, limit=min(_PAGE, room), after=after)
                room -= len(page)
                yield from (
                    one
                    for one in page
                    if (status == "running" or one.fingerprint == self._fingerprint) and not self._is_set_aside(one)
                )
                if len(page) < _PAGE:
                    break
                after = page[-1].id

    def _is_set_aside(self, record: RunRecord) -> bool:
        """Whether a run, or the one that it is a room of, waits for a person."""
        root = record if record.parent is None else self._store.run(record.id.partition(".")[0])
        return root is not None and is_set_aside(root)

    async def _recover(self, record: RunRecord) -> None:
        # A lease that is held tells nothing of whether its driver lives, until it was to be prolonged.
        for _ in range(2):
            left = None
            async with self._places:
                try:
                    left = await self._take_up(record)
                except Exception as error:  # noqa: BLE001 - one run that cannot be read must not hold up the others
                    self._tell(record, cause(error, self._mask))
            if left is None:
                return
            await anyio.sleep(left)

    async def _take_up(self, record: RunRecord) -> float | None:
        """Go on with a run for as long as it is at work.

        Returns:
            Seconds until its lease lapses, where another process may be at work on it; else None.
        """
        try:
            run = self._runs.resume(record.id)
        except FinishedRunError:
            # It died after its last event, before the note of how it ended.
            return None
        except InterruptedRunError as error:
            now = self._store.run(record.id)
            if now is not None and now.driver is not None:
                return max(now.lease_until - time.time(), 0.0) + _AFTER
            self._tell(record, str(error))
            return None
        if self._taken_up is not None:
            self._taken_up(run)
        await run.wait()
        return None
