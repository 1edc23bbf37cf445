"""Driver: the lease under which this process drives a run, and its journal (DESIGN 7)."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ideabridge.bridge.errors import InterruptedRunError
from ideabridge.bridge.ideas.errors import StaleDriverError
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.event import Event, event_from_json
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
    """A new driver's name: host, process id, when the process started, and a part of its own."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid) or ''}:{secrets.token_hex(4)}"


def is_gone(driver: str) -> bool:
    """Whether a driver surely is a process of this host that is no more: its lease need not be waited out."""
    parts = driver.rsplit(":", 3)
    if len(parts) != 4 or parts[0] != socket.gethostname() or not Path("/proc/self/stat").exists():
        return False
    _, pid, started, _ = parts
    return pid.isdecimal() and started != "" and _started(int(pid)) != started


class Driver:
    """Holds the lease of one run, and appends to its journal under the lease's epoch.

    A run that waits for somebody has no driver: any process may take it up.
    """

    def __init__(self, store: Store, run_id: str, name: str) -> None:
        self.epoch: int | None = None
        self._store = store
        self._run = run_id
        self._name = name
        self._seen = 0

    def is_current(self, last_event: int) -> bool:
        """Whether this process has seen every event the store holds, `last_event` being the last."""
        return last_event == self._seen

    def note(self, last_event: int) -> None:
        """The journal was read up to `last_event`."""
        self._seen = last_event

    def take(self) -> bool:
        """Take the lease, if it is not held.

        Returns:
            Whether nobody else has added events since this process last looked.

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
        self.epoch = epoch
        record = self._store.run(self._run)
        return record is not None and self.is_current(record.last_event)

    def release(self) -> None:
        """Give the lease back: the run waits for somebody, or has ended."""
        if self.epoch is not None:
            self._store.release(self._run, self.epoch)
            self.epoch = None

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
        self._seen = self._store.append(self._run, self.epoch, [event.to_json() for event in events])

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """(sequence number, event) of the run's journal after a sequence number, in order."""
        for number, event in self._store.events(self._run, after):
            yield number, event_from_json(event)

    def set_status(self, status: str, summary: JSONObject | None = None) -> None:
        """Note how the run stands in the table of runs."""
        if self.epoch is not None:
            self._store.set_status(self._run, self.epoch, status, summary)
