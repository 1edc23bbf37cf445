"""Driver: the lease under which this process drives a run, and its journal (DESIGN 7)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ideabridge.bridge.errors import InterruptedRunError
from ideabridge.bridge.ideas.errors import StaleDriverError
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.event import Event
from ideabridge.tools.encoding import JSONObject

LEASE_SECONDS: Final = 15.0
"""How long a lease holds without a heartbeat."""


def _started(pid: int) -> str | None:
    """When a process started, as its system tells it; None where there is no such process, or no telling."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19] if len(fields) > 19 else None


def own_name() -> str:
    """The name of this process as a driver: host, process id, and when it started."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid) or ''}"


def is_gone(driver: str) -> bool:
    """Whether a driver surely is a process of this host that is no more: its lease need not be waited out."""
    host, _, rest = driver.rpartition(":")[0].rpartition(":")
    started = driver.rpartition(":")[2]
    if host != socket.gethostname() or not rest.isdecimal() or not started or not Path("/proc/self/stat").exists():
        return False
    return _started(int(rest)) != started


class Driver:
    """Holds the lease of one run, and appends to its journal under the lease's epoch.

    A run that waits for somebody has no driver: any process may take it up.
    """

    def __init__(self, store: Store, run_id: str, name: str) -> None:
        self.epoch: int | None = None
        self._store = store
        self._run = run_id
        self._name = name
        self._last = 0

    def is_current(self, epoch: int) -> bool:
        """Whether `epoch`, the store's, is the last this driver had a hand in."""
        return epoch == (self._last if self.epoch is None else self.epoch)

    def note(self, epoch: int) -> None:
        """What the store holds was read at `epoch`."""
        self._last = epoch

    def take(self) -> bool:
        """Take the lease, if it is not held.

        Returns:
            Whether nobody else drove the run since this driver last held it.

        Raises:
            InterruptedRunError: another process drives the run.
        """
        if self.epoch is not None:
            return True
        now = time.time()
        epoch = self._store.acquire(self._run, self._name, LEASE_SECONDS, now)
        if epoch is None:
            record = self._store.run(self._run)
            if record is None or record.driver is None or not is_gone(record.driver):
                raise InterruptedRunError(f"run {self._run} is driven by another process right now")
            epoch = self._store.acquire(self._run, self._name, LEASE_SECONDS, now + 10 * LEASE_SECONDS)
            if epoch is None:
                raise InterruptedRunError(f"run {self._run} is driven by another process right now")
        untouched = self._last == epoch - 1
        self.epoch = epoch
        return untouched

    def release(self) -> None:
        """Give the lease back: the run waits for somebody, or has ended."""
        if self.epoch is not None:
            self._store.release(self._run, self.epoch)
            self._last, self.epoch = self.epoch, None

    def renew(self) -> bool:
        """Prolong the lease; False where it was lost."""
        return self.epoch is None or self._store.renew(self._run, self.epoch, LEASE_SECONDS, time.time())

    def journal(self, events: Sequence[Event]) -> None:
        """Append events to the run's journal.

        Raises:
            StaleDriverError: the lease is not ours any more; nothing was written.
        """
        if self.epoch is None:
            raise StaleDriverError(f"run {self._run} is not driven by this process")
        self._store.append(self._run, self.epoch, [event.to_json() for event in events])

    def set_status(self, status: str, summary: JSONObject | None = None) -> None:
        """Note how the run stands in the table of runs."""
        if self.epoch is not None:
            self._store.set_status(self._run, self.epoch, status, summary)
