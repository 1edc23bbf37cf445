"""Driver: the lease under which this process drives a run, and its journal (DESIGN 7)."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from ideabridge.bridge.errors import InterruptedRunError
from ideabridge.bridge.ideas.errors import StaleDriverError, StoreError
from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.ideas.writer import Writer
from ideabridge.bridge.loop.calls import is_large
from ideabridge.bridge.loop.event import CallFinished, Event, event_from_json
from ideabridge.tools.encoding import JSONObject

T = TypeVar("T")

LEASE_SECONDS: Final = 15.0
"""How long a lease holds without a heartbeat."""


def _stat(pid: int) -> tuple[str, str] | None:
    """(state, start time) of a process, as its system tells them; None where there is none to see, or no telling."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (fields[0], fields[19]) if len(fields) > 19 else None


def _place() -> tuple[str, str]:
    """(boot, space) in which this process has its id: containers count processes of their own, each from 1, and may
    share a host's name and a store. Empty where the system does not tell.
    """
    try:
        if int(Path("/proc/self").readlink().name) != os.getpid():
            return "", ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return boot, Path("/proc/self/ns/pid").readlink().name
    except (OSError, ValueError):
        return "", ""


def own_name() -> str:
    """A new driver's name: host, boot, space of process ids, process id, when it started, and a part of its own."""
    pid = os.getpid()
    stat = _stat(pid)
    return "|".join((socket.gethostname(), *_place(), str(pid), stat[1] if stat else "", secrets.token_hex(4)))


def is_gone(driver: str) -> bool:
    """Whether a driver surely is a process of this system that is no more: its lease need not be waited out."""
    parts = driver.rsplit("|", 5)
    if len(parts) != 6 or "" in parts[1:5] or (parts[1], parts[2]) != _place() or not parts[3].isdecimal():
        return False
    stat = _stat(int(parts[3]))
    if stat is not None:
        # Ended and not yet collected by its parent, or another process that has its id now.
        return stat[0] in "ZX" or stat[1] != parts[4]
    try:
        os.kill(int(parts[3]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


LEFT: Final = "the process that was at work on it has ended"
"""Why a run of which `is_left` is true stands still."""


def is_left(record: RunRecord) -> bool:
    """Whether a run is noted as running, but no process is at work on it any more: whoever takes it up goes on."""
    if record.status != "running":
        return False
    return record.driver is None or record.lease_until <= time.time() or is_gone(record.driver)


class Driver:
    """Holds the lease of one run, and appends to its journal under the lease's epoch.

    A run that waits for somebody has no driver: any process may take it up.

    Args:
        store: holds the run.
        run_id: its id.
        name: of this process, see `own_name`.
        seconds: how long the lease holds without a heartbeat.
        writer: writes into the store for an event loop; None: this waits for the store itself.

    Attributes:
        epoch: of the lease; None: this process does not hold it.
        unwritten: how many writes of the run are queued.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        name: str,
        seconds: float = LEASE_SECONDS,
        writer: Writer | None = None,
    ) -> None:
        self.epoch: int | None = None
        self.unwritten = 0
        self._creates: Callable[[], None] | None = None
        self._seconds = seconds
        self._store = store
        self._writer = writer
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
        epoch = self._store.acquire(self._run, self._name, self._seconds, now)
        if epoch is None:
            epoch = self._take_from_the_dead(now)
        if epoch is None:
            raise InterruptedRunError(f"run {self._run} is driven by another process right now")
        self.epoch = epoch
        record = self._store.run(self._run)
        return record is not None and self.is_current(record.last_event)

    def _take_from_the_dead(self, now: float) -> int | None:
        """The lease of a driver that is surely gone, before it has lapsed; None where it may be alive."""
        with self._store.transaction():
            # In one transaction: between a look and a grasp, another process may have taken the run up.
            record = self._store.run(self._run)
            if record is None or (record.driver is not None and not is_gone(record.driver)):
                return None
            epoch = self._store.acquire(self._run, self._name, self._seconds, max(now, record.lease_until))
            if epoch is not None:
                self._store.renew(self._run, epoch, self._seconds, now)
            return epoch

    def release(self) -> None:
        """Give the lease back: the run waits for somebody, or has ended."""
        if self.epoch is not None:
            self._store.release(self._run, self.epoch)
            self.epoch = None

    def renew(self) -> bool:
        """Prolong the lease; False where it was lost."""
        return self.epoch is None or self._store.renew(self._run, self.epoch, self._seconds, time.time())

    def create(self, creates: Callable[[], None]) -> None:
        """Let the first events be journaled in one transaction with what creates the run, and takes its lease."""
        self._creates = creates

    @property
    def trouble(self) -> StoreError | None:
        """Why the store cannot be written right now; None: it can, as far as is known."""
        return None if self._writer is None else self._writer.trouble

    @property
    def is_created(self) -> bool:
        """Whether the store holds the run."""
        return self._creates is None

    def journal(
        self,
        events: Sequence[Event],
        ideas: Sequence[Callable[[], None]] = (),
        later: Callable[[Exception | None], None] = lambda _: None,
    ) -> bool:
        """Append events to the run's journal, in one transaction with the ideas of steps; see `runner.Journal`.

        Raises:
            StaleDriverError: the lease is not ours any more; nothing was written.
        """
        creates, held = self._creates, self.epoch

        def append() -> tuple[int, int]:
            epoch = held
            if creates is not None:
                creates()
                epoch = self._store.acquire(self._run, self._name, self._seconds, time.time())
            if epoch is None:
                raise StaleDriverError(f"run {self._run} is not driven by this process")
            last = self._store.append(self._run, epoch, [event.to_json() for event in events])
            for save in ideas:
                save()
            return epoch, last

        def together() -> tuple[int, int]:
            with self._store.transaction():
                return append()

        def done(written: tuple[int, int]) -> None:
            self._creates = None
            self.epoch, self._seen = written

        large = any(isinstance(event, CallFinished) and is_large(event.value) for event in events)
        return self._write(together if ideas or creates is not None else append, done, later, is_large=large)

    def _write(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        later: Callable[[Exception | None], None],
        *,
        is_large: bool = False,
    ) -> bool:
        """Write in the order of the run. What `done` notes is noted at once, or before `later` is called."""
        if self._writer is None:
            done(job())
            return True
        self.unwritten += 1
        queued = False

        def written(result: T) -> None:
            self.unwritten -= 1
            done(result)
            if queued:
                later(None)

        def failed(error: Exception) -> None:
            self.unwritten -= 1
            later(error)

        try:
            at_once = self._writer.write(job, written, failed, key=self._run, is_large=is_large)
        except BaseException:
            self.unwritten -= 1
            raise
        queued = not at_once
        return at_once

    def leave(self, status: str | None, summary: JSONObject | None, later: Callable[[], None]) -> None:
        """Give the lease back, and note how the run stands: it waits for somebody, or has ended.

        Args:
            status: how it stands; None: nothing is noted.
            summary: of a run that has ended.
            later: called when that is written, where it is not at once.

        Raises:
            StaleDriverError: the lease is not ours any more.
        """
        epoch = self.epoch
        if epoch is None:
            return
        self.epoch = None

        def leave() -> None:
            with self._store.transaction():
                if status is not None:
                    self._store.set_status(self._run, epoch, status, summary)
                self._store.release(self._run, epoch)

        # Where it cannot be written the lease runs out by itself, and whoever takes the run up notes how it stands.
        self._write(leave, lambda _: None, lambda _: later())

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """(sequence number, event) of the run's journal after a sequence number, in order."""
        for number, event in self._store.events(self._run, after):
            yield number, event_from_json(event)

    def set_status(self, status: str, summary: JSONObject | None = None) -> None:
        """Note how the run stands in the table of runs."""
        if self.epoch is not None:
            self._store.set_status(self._run, self.epoch, status, summary)
