"""Hold the lease under which this process drives a run, write the run's journal, and watch other
drivers' leases.

A run is driven by one process at a time. That process holds the run's lease, renews it with each
heartbeat, and releases it when the run is waiting for someone or has ended. Each acquisition begins
a new epoch. Every append to the journal includes the epoch of its lease, and the store refuses an
outdated epoch in the same transaction. A process that was suspended can therefore not write into a
run that another process has taken over.

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
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    CallFinished,
    ConfigurationChanged,
    Event,
    PlanAsked,
    QuestionAsked,
    RequestMade,
    RunEnded,
    event_from_json,
)
from ideabridge.bridge.store.errors import StaleDriverError, StoreError
from ideabridge.bridge.store.leases import LEASE_SECONDS, Lease
from ideabridge.bridge.store.queue import QUEUED
from ideabridge.bridge.store.run_record import Handover, RunRecord, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.encoding import JSON

T = TypeVar("T")

LARGE_VALUE: Final = 256 * 1024
"""A value counts as large, and therefore as slow to write, if its strings have this many
characters, or its JSON has this many bytes.
"""

_LARGE_NODES: Final = 10_000

_NOTICE_SECONDS: Final = 0.25
"""Minimum time, in seconds, between two notices about the progress of a run. More frequent notices
would slow down writes, because commits that send notices wait for each other.
"""

_QUESTIONS: Final = (ApprovalAsked, PlanAsked, QuestionAsked, RequestMade)

_LOOKS: Final = 10_000
"""Maximum number of watched leases. If there are more, the watch forgets all leases and starts from
scratch.
"""


def _stat(pid: int) -> tuple[str, str] | None:
    """Return (state, start time) of a process as the system reports them, or None if the system
    reports neither.
    """
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None

    # Split after the parentheses around the program's name, because the name can contain spaces.
    fields = line.rpartition(")")[2].split()
    if len(fields) <= 19:
        return None
    return fields[0], fields[19]


def _place() -> tuple[str, str]:
    """Return (boot, PID namespace) of this process, both empty if the system does not report them.

    Process ids are not sufficient, because containers number their processes from 1 and can share a
    host name and a store.
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


def own_driver_name() -> str:
    """Return a name for a new driver: host, boot, PID namespace, process id, start time of the
    process, and a random part.
    """
    pid = os.getpid()
    stat = _stat(pid)
    start = "" if stat is None else stat[1]
    return "|".join((socket.gethostname(), *_place(), str(pid), start, secrets.token_hex(4)))


_retired: set[str] = set()
"""This process's drivers that have ended although the process continues."""


def retire(name: str) -> None:
    """Record that a driver of this process has ended. Other processes can then take over the leases
    that the driver could not release.
    """
    _retired.add(name)


def _process_of(driver: str) -> Literal["alive", "stopped", "gone", "unknown"]:
    """Return the state of a driver's process. `stopped`: SIGSTOP or a debugger has stopped it.
    `unknown`: the process is on another system.
    """
    parts = driver.rsplit("|", 5)
    if len(parts) != 6 or "" in parts[1:5]:
        return "unknown"

    _host, boot, namespace, pid, start, _random = parts
    if (boot, namespace) != _place() or not pid.isdecimal():
        return "unknown"

    stat = _stat(int(pid))
    if stat is not None:
        state, present_start = stat
        # Either the process has ended and is waiting for its parent to collect it, or its id now
        # belongs to another process.
        if state in "ZX" or present_start != start or driver in _retired:
            return "gone"
        return "stopped" if state in "Tt" else "alive"

    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return "gone"
    except OSError:
        return "unknown"

    return "unknown"


def is_stopped(driver: str) -> bool:
    """Return whether a driver is a stopped process on this system. Such a process continues only
    when someone resumes it.
    """
    return _process_of(driver) == "stopped"


def is_gone(driver: str) -> bool:
    """Return whether a driver's process ran on this system and has ended."""
    return _process_of(driver) == "gone"


LEFT_REASON: Final = "the process that was working on it has ended"
"""The reason shown for a run that is stuck because its process has left it; see `is_left`."""


def is_left(record: RunRecord) -> bool:
    """Return whether a run is `running` in the store although no process works on it any more.

    Any process can then take it up.

    Use this function only for lists, because it compares the clocks of two machines if the driver
    is on another machine. `Watch` never does so.
    """
    if record.status != "running":
        return False
    if record.driver is None:
        return True
    process = _process_of(record.driver)
    return process == "gone" or (process != "alive" and record.lease_until <= time.time())


@dataclass(slots=True)
class _Look:
    lease: Lease
    at: float
    still: float = 0.0


@dataclass(frozen=True, slots=True)
class SaveIdea:
    """Saves the idea of a step.

    Attributes:
        save: saves the idea. This function is called inside the transaction that journals the
            events after the step.
        is_large: whether saving the idea is too slow for the event loop.
    """

    save: Callable[[], None]
    is_large: bool


class Watch:
    """Watches other drivers' leases, using only this process's clock.

    The clocks of two machines can be an hour apart, and a clock can be set while runs are active.
    This class therefore never compares a time that another process wrote with a time in this
    process. A driver changes the row of its run with every heartbeat. The lease has lapsed once the
    row has not changed, as far as this process has seen, for the duration of the lease. The lease
    of a live process on this system does not lapse, even if its heartbeat is very late, because the
    process might be busy. The lease of a stopped process does lapse, because nobody knows when the
    process will continue.

    Args:
        clock: a monotonic clock, in seconds.
        alive_seconds: the number of seconds without a change after which even the lease of a live
            process on this system lapses.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, alive_seconds: float = math.inf
    ) -> None:
        self._clock = clock
        self._alive_seconds = alive_seconds
        self._looks: dict[str, _Look] = {}

    def seconds_until_lapse(self, lease: Lease) -> float:
        """Return the number of seconds until a lease lapses, as far as this process knows. The
        result is 0.0 if nobody holds the lease or the lease has lapsed. It is infinity if a live
        process on this system holds the lease.
        """
        process = None if lease.driver is None else _process_of(lease.driver)
        if process is None or process == "gone":
            seconds = 0.0
        elif process == "alive":
            seconds = self._alive_seconds
        else:
            seconds = lease.seconds

        if seconds in (0.0, math.inf):
            self._looks.pop(lease.run, None)
            return seconds

        now = self._clock()
        look = self._looks.get(lease.run)
        if look is None or look.lease != lease:
            if len(self._looks) >= _LOOKS:
                self._looks.clear()
            look = _Look(lease, now)
            self._looks[lease.run] = look

        # If this process has been asleep since its last look, the driver might have been asleep,
        # too. Count at most half of the lease's time per look, so that the driver can still send a
        # heartbeat.
        look.still += min(now - look.at, lease.seconds / 2)
        look.at = now
        return max(seconds - look.still, 0.0)


class Driver:
    """Holds the lease of one run, and appends to its journal under the lease's epoch.

    A run that is waiting for someone has no driver, so any process can take it up.

    Args:
        name: the name of this process, from `own_driver_name`.
        seconds: the number of seconds for which the lease lasts without a heartbeat.
        writer: writes to the store on behalf of an event loop, or None for blocking writes.
        watch: the watch over other drivers' leases, or None for a new watch, which has not yet seen
            any lease lapse.

    Attributes:
        run_id: the id of the run.
        epoch: the epoch of the lease, or None if this process does not hold the lease.
        unwritten: the number of the run's writes that are queued.
        seen: the number of the last event of the run that this process has read or written.
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
        self._create_run: Callable[[], None] | None = None
        self._seconds = seconds
        self._store = store
        self._writer = writer
        self.run_id = run_id
        self._name = name
        self._watch = watch or Watch()
        self._last_notice = time.monotonic()
        self.seen = 0

    def take(self) -> bool:
        """Take the lease unless this process already holds it.

        Returns:
            False if another process has added events since this process last read the journal.

        Raises:
            InterruptedRunError: another process drives the run.
        """
        if self.epoch is not None:
            return True

        epoch = self._store.leases.acquire(self.run_id, self._name, self._seconds, time.time())
        if epoch is None:
            epoch = self._take_over()

        if epoch is None:
            raise InterruptedRunError(f"run {self.run_id} is currently driven by another process")

        self.epoch = epoch
        record = self._store.runs.get(self.run_id)
        return record is not None and record.last_event == self.seen

    def _take_over(self) -> int | None:
        """Take over the lease of a driver that is gone or whose lease has lapsed. Return None if
        the driver might be alive.
        """
        record = self._store.runs.get(self.run_id)
        if record is None:
            return None

        # This process may already have left the run, with the write that records this still in the
        # queue. When that write is performed, its epoch will be outdated, so the lease can be taken
        # now.
        is_leaving = record.driver == self._name and self.unwritten > 0
        if not is_leaving and self._watch.seconds_until_lapse(record.lease) > 0:
            return None
        # The store declines if the driver has since sent a heartbeat, or if another process was
        # faster.
        return self._store.leases.acquire(
            self.run_id, self._name, self._seconds, time.time(), record.lease
        )

    @contextlib.contextmanager
    def whole(self) -> Generator[None]:
        """Let the block take the lease in the same transaction in which it writes. Otherwise, a
        process that takes the lease but fails to continue the run would lock out all other
        processes.
        """
        epoch = self.epoch
        try:
            with self._store.transaction():
                yield
        except BaseException:
            self.epoch = epoch
            raise

    def release(self) -> None:
        """Release the lease, because the run is waiting for someone or has ended."""
        if self.epoch is not None:
            self._store.leases.release(self.run_id, self.epoch)
            self.epoch = None

    def renew(self) -> bool:
        """Renew the lease, and return False if it was lost."""
        return self.epoch is None or self._store.leases.renew(
            self.run_id, self.epoch, self._seconds, time.time()
        )

    def create_with_first_events(self, create_run: Callable[[], None]) -> None:
        """Make the first write to the journal create the run.

        In one transaction, this write calls `create_run`, takes the lease and appends the first
        events.
        """
        self._create_run = create_run

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call a function that writes, and repeat the call while the store cannot be written; see
        `Writer.patiently`.
        """
        if self._writer is None:
            return call()
        return await self._writer.patiently(call)

    @property
    def trouble(self) -> StoreError | None:
        """Why the store cannot be written to now, or None if no write has failed."""
        return None if self._writer is None else self._writer.trouble

    @property
    def is_created(self) -> bool:
        """True if the store contains the run."""
        return self._create_run is None

    def journal(
        self,
        events: Sequence[Event],
        ideas: Sequence[SaveIdea] = (),
        later: Callable[[Exception | None], None] = lambda _: None,
    ) -> bool:
        """Append events to the run's journal, in one transaction with `ideas`, which save the ideas
        of steps.

        `later` is called when a queued write is done, with the error if the write failed.

        Returns:
            True if everything is stored, False if the write is queued.

        Raises:
            StaleDriverError: this process has lost the lease; nothing was written.
        """
        create_run = self._create_run
        own_epoch = self.epoch
        # If the run ends, set its status in the same write, because a reader who finds the end of a
        # run in its journal must also find it in the `runs` table.
        ended = next((event.status for event in events if isinstance(event, RunEnded)), None)
        sends_notice = self._sends_notice(events)

        def append() -> tuple[int, int]:
            epoch = own_epoch
            if create_run is not None:
                create_run()
                epoch = self._store.leases.acquire(
                    self.run_id, self._name, self._seconds, time.time()
                )

            if epoch is None:
                raise StaleDriverError(f"run {self.run_id} is not driven by this process")

            last = self._append(epoch, events)
            for idea in ideas:
                idea.save()

            if ended is not None:
                self._store.runs.set_status(self.run_id, epoch, ended, None)

            if sends_notice:
                self._store.runs.notify(self.run_id)

            return epoch, last

        def together() -> tuple[int, int]:
            with self._store.transaction():
                return append()

        def done(written: tuple[int, int]) -> None:
            self._create_run = None
            epoch, last = written
            self.epoch = epoch
            self.seen = last

        is_large = any(idea.is_large for idea in ideas) or any(
            isinstance(event, CallFinished) and is_large_value(event.value) for event in events
        )
        changes = any(isinstance(event, ConfigurationChanged) for event in events)
        job = append
        if ideas or create_run is not None or ended is not None or sends_notice or changes:
            job = together
        return self._write(job, done, later, is_large=is_large)

    def append(self, events: Sequence[Event]) -> None:
        """Append events to the journal inside the caller's transaction, which holds the lease; see
        `whole`.

        Raises:
            StaleDriverError: this process does not hold the lease.
        """
        if self.epoch is None:
            raise StaleDriverError(f"run {self.run_id} is not driven by this process")
        self.seen = self._append(self.epoch, events)

    def _append(self, epoch: int, events: Sequence[Event]) -> int:
        """Append events, and record a change of configuration in the `runs` table. Return the
        number of the last event.
        """
        last = self._store.runs.append(self.run_id, epoch, [event.to_json() for event in events])
        for event in events:
            if isinstance(event, ConfigurationChanged):
                self._store.runs.set_fingerprint(self.run_id, epoch, event.fingerprint)
        return last

    def _sends_notice(self, events: Sequence[Event]) -> bool:
        """Return whether to notify the processes that follow the run about these events.

        Notices about questions are sent immediately. Notices about other events are sent only from
        time to time. When the run rests or has ended, `leave` sends a notice.
        """
        if not self._store.notifier.can_notify:
            return False

        now = time.monotonic()
        due = now - self._last_notice >= _NOTICE_SECONDS or any(
            isinstance(event, _QUESTIONS) for event in events
        )
        if due:
            self._last_notice = now

        return due

    def _write(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        later: Callable[[Exception | None], None],
        *,
        is_large: bool = False,
    ) -> bool:
        """Write after all earlier writes of the run. `done` is called immediately or, if the write
        is queued, just before `later`.
        """
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
            at_once = self._writer.write(job, written, failed, key=self.run_id, is_large=is_large)
        except BaseException:
            self.unwritten -= 1
            raise

        queued = not at_once
        return at_once

    def leave(
        self, status: str | None, summary: StoredSummary | None, later: Callable[[], None]
    ) -> None:
        """Release the lease, and write the run's status and, if the run has ended, its summary.

        If the status is None, it stays unchanged. If the status is `queued`, a worker continues the
        run.

        `later` is called when a queued write is done.

        Raises:
            StaleDriverError: this process has lost the lease.
        """
        epoch = self.epoch
        if epoch is None:
            return

        self.epoch = None

        def leave() -> None:
            with self._store.transaction(concurrent=True):
                if status == QUEUED:
                    handover = Handover() if summary is None else summary.handover
                    self._store.queue.put(self.run_id, epoch, handover)
                    return
                if status is not None:
                    self._store.runs.set_status(self.run_id, epoch, status, summary)
                self._store.leases.release(self.run_id, epoch)
                self._store.runs.notify(self.run_id)

        def ended(error: Exception | None) -> None:
            # This process is alive, so no other process takes the lease over. Release the lease
            # when the store works again; the process that resumes the run then writes the status.
            lost = isinstance(error, StaleDriverError)
            self._owed = None
            if isinstance(error, StoreError) and not lost:
                self._owed = epoch
            later()

        self._write(leave, lambda _: None, ended)

    def give_back(self) -> None:
        """Release the lease that `leave` could not release."""
        if self._owed is not None and self.epoch is None and not self.unwritten:
            with contextlib.suppress(StoreError):
                # Ignore an error, because the next heartbeat tries again.
                self._store.leases.release(self.run_id, self._owed)
                self._owed = None

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield the events in the run's journal after a sequence number, in order, as (number,
        event).
        """
        for number, event in self._store.runs.events(self.run_id, after):
            yield number, event_from_json(event)

    def queue(self, handover: Handover) -> None:
        """Release the lease, and let the run wait for a worker; see `RunQueue.put`."""
        if self.epoch is not None:
            self._store.queue.put(self.run_id, self.epoch, handover)
            self.epoch = None

    def set_status(self, status: str, summary: StoredSummary | None = None) -> None:
        """Write the status of the run to the `runs` table."""
        if self.epoch is not None:
            self._store.runs.set_status(self.run_id, self.epoch, status, summary)


def is_large_value(value: JSON) -> bool:
    """Return whether a value has many parts or long strings. The search stops as soon as the answer
    is known.
    """
    stack: list[JSON] = [value]
    parts = 0
    characters = 0
    while stack:
        item = stack.pop()
        parts += 1
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, list | dict):
            if parts + len(stack) + len(item) > _LARGE_NODES:
                return True
            stack.extend(item.values() if isinstance(item, dict) else item)

        if characters > LARGE_VALUE:
            return True

    return False
