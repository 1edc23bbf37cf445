"""Read the journals of runs that another process drives while someone in this process is waiting
for them.

The events are reported as if this process drove the runs. A store that can notify reports when a
journal has grown; with an SQLite file, the journals are read four times a second.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

import anyio

from ideabridge.bridge.runs.registry import Registry
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.services import Services
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.queue import QUEUED

FOLLOWS_SECONDS: Final = 0.25
"""The interval, in seconds, at which the journals are read if the store cannot notify."""

ALONE_SECONDS: Final = 3.0
"""How long, in seconds, to wait for a server to take up a run whose driver is gone. After that, the
process that is waiting for the run takes it up.
"""


@dataclass(slots=True)
class _Followed:
    run: Run
    alone: float | None = None
    """The time at which the run was first seen without a driver."""


class Following:
    """The runs that someone in this process is waiting for, but that another process drives or is
    about to drive.
    """

    def __init__(self, services: Services, registry: Registry) -> None:
        self._services = services
        self._store = services.store
        self._registry = registry
        self._followed: dict[str, _Followed] = {}
        self._awaited = anyio.Event()

    async def run(self) -> None:
        """Read the journals and report each event, until cancelled."""
        while True:
            self._awaited = anyio.Event()
            if not self._followed:
                await self._awaited.wait()
            changed = await self._services.notices.wait("run", FOLLOWS_SECONDS)
            for run_id, followed in list(self._followed.items()):
                if changed is not None and run_id not in changed:
                    continue
                if not followed.run.runner.waiting or not followed.run.is_elsewhere:
                    del self._followed[run_id]
                    continue
                # If the store fails now, the journal is read in the next round.
                with contextlib.suppress(StoreError):
                    self._look(followed)

    def note_waiting(self, run: Run) -> None:
        """Record that someone is now waiting for a run to change."""
        if run.parent is None and run.id not in self._followed and run.is_elsewhere:
            self._followed[run.id] = _Followed(run)
            self._awaited.set()
            # The notices of earlier events have already been sent, so wake the task that follows
            # the runs.
            self._services.notices.tell("run", run.id)

    def _look(self, followed: _Followed) -> None:
        run = followed.run
        if not self._registry.read_on(run):
            return

        record = self._store.runs.get(run.id)
        driven = (
            record is None
            or record.status == QUEUED
            or self._registry.seconds_until_lapse(record.lease) > 0
        )
        if driven or run.may_rest:
            followed.alone = None
        elif followed.alone is None:
            followed.alone = anyio.current_time()
        elif anyio.current_time() - followed.alone > ALONE_SECONDS:
            # No server has resumed the run, either because none is running or because the run
            # cannot continue anywhere.
            followed.alone = None
            self._registry.get(run.id, run.caller)
