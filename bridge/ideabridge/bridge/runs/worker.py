"""Drive the runs that other processes have queued; see `driving/queue.py`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import anyio

from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.runs.runs import Runs
from ideabridge.bridge.store.errors import StoreError, UnknownRunError
from ideabridge.bridge.store.queue import QueuedRun
from ideabridge.bridge.store.users import SEES_ALL, user_of

POLL_SECONDS: Final = 0.25
"""The interval, in seconds, at which the queue is checked if the store cannot notify."""


class Worker:
    """Drives queued runs of this configuration.

    Args:
        runs: the runs of this process.
        most: the maximum number of runs to drive at the same time.
        modules: the servers that are available in this process, or None for all.
    """

    def __init__(self, runs: Runs, *, most: int, modules: Collection[str] | None = None) -> None:
        self._runs = runs
        self._services = runs.services
        self._store = runs.services.store
        self._in_force = runs.services.in_force
        self._most = most
        self._modules = modules
        self._ended = anyio.Event()

    async def run(self) -> None:
        """Take runs from the queue until cancelled or, after `drain`, until the last run has been
        handed over.
        """
        async with anyio.create_task_group() as group:
            while not self._ended.is_set():
                try:
                    claimed = await self._claim()
                except StoreError:
                    # The tasks that use the store report its error, so the worker only waits until
                    # the store works again.
                    claimed = []

                for run_id in claimed:
                    self._services.queue.claimed.add(run_id)
                    group.start_soon(self._drive, run_id)

                if not claimed:
                    await self._services.notices.wait("queue", POLL_SECONDS)

    def drain(self) -> None:
        """Stop taking runs and starting calls. Hand over each run as soon as its running calls have
        ended.
        """
        self._ended.set()
        self._runs.hand_over_all()
        self._services.notices.tell("queue")

    async def _claim(self) -> list[str]:
        free = self._most - len(self._services.queue.claimed)
        queue = self._store.queue
        fingerprint = self._in_force.fingerprint
        if free <= 0 or not queue.count(fingerprint):
            return []

        return await self._services.writer.perform(
            lambda: queue.claim(fingerprint, free, self._takes, self._is_last)
        )

    def _takes(self, run: QueuedRun, busy: int) -> bool:
        if busy >= self._in_force.users.runs and user_of(run.caller) is not None:
            # The user of this run has as many runs as one may have at a time.
            return False
        if self._modules is None:
            return True
        return set(run.needs) <= set(self._modules)

    def _is_last(self, caller: str) -> bool:
        return user_of(caller) in self._in_force.users.background

    async def _drive(self, run_id: str) -> None:
        """Continue a run, and wait until this process no longer drives it."""
        try:
            async with self._runs.registry.reading_ahead(run_id):
                run = await self._services.writer.patiently(
                    lambda: self._runs.registry.resume(run_id, SEES_ALL)
                )

            while run.runner.lost is None:
                is_driven = run.driver.epoch is not None or run.is_being_left
                if not is_driven:
                    break
                await run.runner.wait_changed()
        except (FinishedRunError, InterruptedRunError, UnknownRunError, StoreError):
            # The run was cancelled, another process was faster, or the run cannot continue here;
            # the run's row in the store shows which. If the store failed, the run stays as it is,
            # and is later resumed as if its process had died.
            return
        finally:
            self._services.queue.claimed.discard(run_id)
            self._services.notices.tell("queue")
