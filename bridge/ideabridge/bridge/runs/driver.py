"""Driver: the lease under which this process drives a run, and its journal; and whether other drivers are at work.

A run is driven by one process at a time. That process holds the run's lease, renews it with each heartbeat, and gives
it back when the run waits for somebody or has ended. Each acquisition begins a new epoch. Every append to the journal
carries its epoch, and the store refuses an old one in the transaction that writes: a process that was suspended cannot
write into a run that another has taken over.

    free -> held (acquire) -> free (release)
                           -> lapsed -> held by another process, with a new epoch

`Watch` decides whether a lease has lapsed, without comparing the clocks of two machines.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeVar

from ideabridge.bridge.errors import InterruptedRunError
from ideabridge.bridge.loop.event import CallFinished, Event, RunEnded, event_from_json
from ideabridge.bridge.runs.executor import is_large
from ideabridge.bridge.store.errors import StaleDriverError, StoreError
from ideabridge.bridge.store.idea import LEASE_SECONDS, Lease, RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.encoding import JSONObject

T = TypeVar("T")

_LOOKS: Final = 10_000
"""How many runs of other drivers are watched; with more, all are watched anew."""


def _stat(pid: int) -> tuple[str, str] | None:
    """(state, start time) of a process, as the system reports them; None where it reports none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (fields[0], fields[19]) if len(fields) > 19 else None


def _place() -> tuple[str, str]:
    """(boot, space) in which this process has its id: containers count processes of their own, each from 1, and may
    share a host's name and a store. Empty where the system does not report it.
    """
    return _place_of(os.getpid())


@cache
def _place_of(_pid: int) -> tuple[str, str]:
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


_retired: set[str] = set()
"""Drivers of this process that have ended before it."""


def retire(name: str) -> None:
    """A driver of this process has ended: what it could not give back may be taken from it."""
    _retired.add(name)


def _process_of(driver: str) -> Literal["alive", "stopped", "gone", "unknown"]:
    """How the process of a driver stands. `stopped`: by SIGSTOP or a debugger. `unknown`: on another system."""
    parts = driver.rsplit("|", 5)
    if len(parts) != 6 or "" in parts[1:5] or (parts[1], parts[2]) != _place() or not parts[3].isdecimal():
        return "unknown"
    stat = _stat(int(parts[3]))
    if stat is not None:
        # Ended and not yet collected by its parent, or another process that has its id now.
        if stat[0] in "ZX" or stat[1] != parts[4] or driver in _retired:
            return "gone"
        return "stopped" if stat[0] in "Tt" else "alive"
    try:
        os.kill(int(parts[3]), 0)
    except ProcessLookupError:
        return "gone"
    except OSError:
        return "unknown"
    return "unknown"


def is_stopped(driver: str) -> bool:
    """Whether a driver is a process of this system that is stopped: it goes on only when somebody continues it."""
    return _process_of(driver) == "stopped"


LEFT: Final = "the process that was at work on it has ended"
"""Why a run of which `is_left` is true stands still."""


def is_left(record: RunRecord) -> bool:
    """Whether a run is noted as running, but no process is at work on it any more: whoever takes it up goes on.

    For lists. Of a driver on another machine this compares that machine's clock with this one's; nobody takes a run up
    because of that, see `Watch`.
    """
    if record.status != "running":
        return False
    process = "gone" if record.driver is None else _process_of(record.driver)
    return process == "gone" or (process != "alive" and record.lease_until <= time.time())


@dataclass(slots=True)
class _Look:
    lease: Lease
    at: float
    still: float = 0.0


class Watch:
    """Watches the leases of other drivers, by the clock of this process alone.

    The clocks of two machines may be an hour apart, and may be set while runs are at work. So a time that another
    process wrote is never compared with a time of this process. A driver changes the row of its run with every
    heartbeat; its lease has lapsed when this process has seen the same row for as long as the lease holds. The lease of
    a process of this system never lapses while it is alive and not stopped, however late its heartbeat is: it may be
    busy. A process that is stopped does no work, and nobody knows until when: its lease lapses, and its epoch with it.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: dict[str, _Look] = {}

    def left(self, lease: Lease) -> float:
        """Seconds until a lease lapses, as far as this process has seen; 0.0: nobody holds it, or it has lapsed;
        infinity: a live process of this system holds it.
        """
        process = "gone" if lease.driver is None else _process_of(lease.driver)
        if process in ("alive", "gone"):
            self._looks.pop(lease.run, None)
            return 0.0 if process == "gone" else math.inf
        now = self._clock()
        look = self._looks.get(lease.run)
        if look is None or look.lease != lease:
            if len(self._looks) >= _LOOKS:
                self._looks.clear()
            look = self._looks[lease.run] = _Look(lease, now)
        # Where this process slept since its last look, so may the driver: it gets the time for another heartbeat.
        look.still += min(now - look.at, lease.seconds / 2)
        look.at = now
        return max(lease.seconds - look.still, 0.0)


class Driver:
    """Holds the lease of one run, and appends to its journal under the lease's epoch.

    A run that waits for somebody has no driver: any process may take it up.

    Args:
        store: holds the run.
        run_id: its id.
        name: of this process, see `own_name`.
        seconds: how long the lease holds without a heartbeat.
        writer: writes into the store for an event loop; None: this waits for the store itself.
        watch: has watched the leases of other drivers; None: nobody has, and none of theirs has lapsed yet.

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
        watch: Watch | None = None,
    ) -> None:
        self.epoch: int | None = None
        self.unwritten = 0
        self._owed: int | None = None
        self._creates: Callable[[], None] | None = None
        self._seconds = seconds
        self._store = store
        self._writer = writer
        self._run = run_id
        self._name = name
        self._watch = watch or Watch()
        self._seen = 0

    @property
    def seen(self) -> int:
        """The number of the last event of the run that this process has read or written."""
        return self._seen

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
        epoch = self._store.runs.acquire(self._run, self._name, self._seconds, time.time())
        if epoch is None:
            epoch = self._take_over()
        if epoch is None:
            raise InterruptedRunError(f"run {self._run} is driven by another process right now")
        self.epoch = epoch
        record = self._store.runs.get(self._run)
        return record is not None and self.is_current(record.last_event)

    def _take_over(self) -> int | None:
        """The lease of a driver that is gone, or has lapsed; None where it may be alive."""
        record = self._store.runs.get(self._run)
        if record is None:
            return None
        # This process has left the run, and the store does not hold that yet: it finds the epoch over then.
        is_leaving = record.driver == self._name and self.unwritten > 0
        if not is_leaving and self._watch.left(record.lease) > 0:
            return None
        # Refused where the driver had a heartbeat since, or another process was faster.
        return self._store.runs.acquire(self._run, self._name, self._seconds, time.time(), record.lease)

    @contextlib.contextmanager
    def whole(self) -> Generator[None]:
        """`with driver.whole():` the lease is taken together with what else is written, or not at all: a lease that is
        held by a process which does not go on with the run would keep all others from it.
        """
        held = self.epoch
        try:
            with self._store.transaction():
                yield
        except BaseException:
            self.epoch = held
            raise

    def release(self) -> None:
        """Give the lease back: the run waits for somebody, or has ended."""
        if self.epoch is not None:
            self._store.runs.release(self._run, self.epoch)
            self.epoch = None

    def renew(self) -> bool:
        """Prolong the lease; False where it was lost."""
        return self.epoch is None or self._store.runs.renew(self._run, self.epoch, self._seconds, time.time())

    def create(self, creates: Callable[[], None]) -> None:
        """Let the first events be journaled in one transaction with what creates the run, and takes its lease."""
        self._creates = creates

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call what writes, again where the store cannot be written; see `Writer.patiently`."""
        return call() if self._writer is None else await self._writer.patiently(call)

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
        """Append events to the run's journal, in one transaction with the ideas of steps.

        Args:
            events: the events.
            ideas: each saves the idea of a step.
            later: called once a queued write is done, with the error if it failed.

        Returns:
            True: all is stored. False: it is queued.

        Raises:
            StaleDriverError: this process does not hold the lease any more; nothing was written.
        """
        creates, held = self._creates, self.epoch
        # Whoever reads the end of a run in its journal finds it in the table of runs too.
        ended = next((event.status for event in events if isinstance(event, RunEnded)), None)

        def append() -> tuple[int, int]:
            epoch = held
            if creates is not None:
                creates()
                epoch = self._store.runs.acquire(self._run, self._name, self._seconds, time.time())
            if epoch is None:
                raise StaleDriverError(f"run {self._run} is not driven by this process")
            last = self._store.runs.append(self._run, epoch, [event.to_json() for event in events])
            for save in ideas:
                save()
            if ended is not None:
                self._store.runs.set_status(self._run, epoch, ended, None)
            return epoch, last

        def together() -> tuple[int, int]:
            with self._store.transaction():
                return append()

        def done(written: tuple[int, int]) -> None:
            self._creates = None
            self.epoch, self._seen = written

        large = any(isinstance(event, CallFinished) and is_large(event.value) for event in events)
        several = bool(ideas) or creates is not None or ended is not None
        return self._write(together if several else append, done, later, is_large=large)

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
            StaleDriverError: this process does not hold the lease any more.
        """
        epoch = self.epoch
        if epoch is None:
            return
        self.epoch = None

        def leave() -> None:
            with self._store.transaction():
                if status is not None:
                    self._store.runs.set_status(self._run, epoch, status, summary)
                self._store.runs.release(self._run, epoch)

        def ended(error: Exception | None) -> None:
            # Nobody takes it from a process that is alive: it is given back when the store works again. Whoever takes
            # the run up notes how it stands.
            lost = isinstance(error, StaleDriverError)
            self._owed = epoch if isinstance(error, StoreError) and not lost else None
            later()

        self._write(leave, lambda _: None, ended)

    def give_back(self) -> None:
        """Give the lease back that `leave` could not."""
        if self._owed is not None and self.epoch is None and not self.unwritten:
            with contextlib.suppress(StoreError):
                # Tried again at the next heartbeat.
                self._store.runs.release(self._run, self._owed)
                self._owed = None

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """(sequence number, event) of the run's journal after a sequence number, in order."""
        for number, event in self._store.runs.events(self._run, after):
            yield number, event_from_json(event)

    def set_status(self, status: str, summary: JSONObject | None = None) -> None:
        """Note how the run stands in the table of runs."""
        if self.epoch is not None:
            self._store.runs.set_status(self._run, self.epoch, status, summary)
