"""Find the runs of this process, in memory or in their journals.

Several processes can share one store, so each look-up compares the run in memory with the store:

- This process drives the run: the run in memory is current.
- Another process drives it: its new events are read from the journal (`read_on`) and reported
  to the watchers.
- No process drives it: the run is read from its journal, and `decide_next` says what happens to it
  (`decision.py`). `hand_off` performs the outcome.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import anyio

from ideabridge.bridge.driving.driver import Driver, Watch, own_driver_name, retire
from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.loop.effect import room_name
from ideabridge.bridge.loop.event import (
    Event,
    JournalError,
    RequestMade,
    RunEnded,
    RunStarted,
    SolutionProposed,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine, resume_events
from ideabridge.bridge.loop.progress import in_flight
from ideabridge.bridge.reading import are_small
from ideabridge.bridge.runs.binding import Binding, sentence
from ideabridge.bridge.runs.decision import (
    GO_ON,
    Block,
    EndRun,
    Enqueue,
    Facts,
    Follow,
    Interrupt,
    KeepWaiting,
    NextStep,
    NoteStatus,
    OpenRooms,
    Purpose,
    Serve,
    SetAside,
    Standing,
    StayAside,
    TakeUp,
    ToEnd,
    ToTryAgain,
    WrittenStep,
    decide_next,
)
from ideabridge.bridge.runs.executor import CALLER_MEMORY, KeptBytes
from ideabridge.bridge.runs.run import Run, RunHost
from ideabridge.bridge.runs.runner import Folded, fold
from ideabridge.bridge.runs.services import Services
from ideabridge.bridge.store.errors import StoreError, UnknownRunError
from ideabridge.bridge.store.leases import Lease
from ideabridge.bridge.store.queue import QUEUED
from ideabridge.bridge.store.run_record import ENDED, RunRecord, StoredSummary
from ideabridge.bridge.store.users import SEES_ALL, Viewer, owner_of
from ideabridge.tools.encoding import encode, memory_of
from ideabridge.tools.names import counted
from ideabridge.tools.threads import compute_in_thread

_AT_HAND = 256
"""The number of runs in memory above which runs that have ended or are waiting are dropped."""

_FIRST_EVENTS: Final = 2
"""The maximum number of events that a run can begin with: its start and, for a plan, its
Solution.
"""


def memory_of_start(events: Sequence[Event]) -> int:
    """Estimate the memory that a run's context and calls take, in bytes, from the run's first
    events.
    """
    memory = 0
    for event in events[:_FIRST_EVENTS]:
        if isinstance(event, RunStarted):
            memory += memory_of(encode(event.context))
        elif isinstance(event, SolutionProposed):
            memory += memory_of(encode(event.calls))

    return memory


@dataclass(frozen=True, slots=True)
class _ReadJournal:
    """The events in a journal, and the number of the last event. `folded` is set if the events have
    already been folded into a machine.
    """

    events: Sequence[Event]
    last: int
    folded: Folded | None = None


def _stay_aside(run: Run, reason: str) -> None:
    """Stop a run that is set aside, with its rooms, some of which may have resumed when they were
    opened.
    """
    run.runner.mark_lost(reason)
    for room in run.rooms.values():
        if room.driver.epoch is not None:
            room.runner.abandon(reason)
        _stay_aside(room, reason)


def _why_set_aside(run: Run, times: int) -> str:
    calls = [progress.call.label for progress, _ in in_flight(run.machine.history)]
    at_work = ", ".join(dict.fromkeys(calls[:5])) or "the answer of its mind"
    return (
        f"it is set aside: it was resumed {counted(times, 'time')} without progress, while "
        f"{at_work} was running. `ideabridge resume {run.id}` tries again, "
        f"`ideabridge runs cancel {run.id}` ends it"
    )


def _nothing() -> None:
    """Do nothing, for outcomes that need no work after the write."""


class Registry:
    """The runs of this process. Keeps them in memory, reads them from their journals, and performs
    what `decide_next` chooses for runs that no process drives.

    Args:
        services: what all runs of this process use.
        host: the host of each run.
        run_bytes: the maximum number of bytes of results and calls that one run keeps.
        lease_seconds: the number of seconds that a lease lasts without a heartbeat.

    Attributes:
        driver_name: the name of this process in its leases.
    """

    def __init__(
        self, services: Services, host: RunHost, *, run_bytes: int, lease_seconds: float
    ) -> None:
        self.driver_name = own_driver_name()
        self._services = services
        self._store = services.store
        self._in_force = services.in_force
        self._host = host
        self._run_bytes = run_bytes
        self._lease = lease_seconds
        self._watch = Watch()
        # These are weak references, so that a run that was dropped from `_kept`, but is still used
        # somewhere, can be found here.
        self._runs: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._kept: dict[str, Run] = {}
        self._drivers: WeakValueDictionary[str, Driver] = WeakValueDictionary()
        # Journals of runs that are about to be resumed. A thread has read them.
        self._read: dict[str, _ReadJournal] = {}
        # Locks for reading journals in threads, keyed by the id of the outermost run.
        self._reading: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    # -- finding runs ------------------------------------------------------------------------------

    def get(self, run_id: str, caller: str, purpose: Purpose = GO_ON) -> Run:
        """Return a run of the given caller.

        Raises:
            UnknownRunError: the caller has no such run.
        """
        record = self._store.runs.find(run_id, caller=caller)
        parent = None
        if record.parent is not None:
            parent = self.get(record.parent, caller)
            if isinstance(purpose, ToTryAgain):
                # A room that was set aside together with its parent continues only together with
                # it.
                purpose = GO_ON

        run = self.reach(record, parent, purpose)
        run.people.expire()
        return run

    def resume(self, run_id: str, caller: Viewer, purpose: Purpose = GO_ON) -> Run:
        """Load a run and continue it in this process.

        If this process leaves runs to workers, the run is queued instead. A run that is waiting for
        someone or for a worker is returned unchanged. `caller` is the owner of the run, or
        `SEES_ALL`.

        Raises:
            UnknownRunError: this caller has no run with that id.
            FinishedRunError: the run has ended.
            InterruptedRunError: another process drives the run, the run cannot continue under this
                configuration, or it was set aside.
        """
        record = self._store.runs.find(run_id, caller=caller)
        # Read the last event first, because loading the run might end the run.
        last = next(self._store.runs.events(run_id, max(record.last_event - 1, 0)), None)
        run = self.get(run_id, record.caller, purpose)
        if last is not None and last[1].get("event") == RunEnded.name:
            raise FinishedRunError(
                f"run {run_id} has ended ({run.status}); there is nothing to resume"
            )

        if run.runner.lost is not None:
            raise InterruptedRunError(f"run {run_id} cannot continue: {run.runner.lost}")
        if run.status == "running" and run.driver.epoch is None and not self._is_queued(run):
            raise InterruptedRunError(f"run {run_id} is currently driven by another process")
        return run

    def _is_queued(self, run: Run) -> bool:
        """Return whether a run, or the run that a room belongs to, is waiting for a worker."""
        root = self._store.runs.get(run.root.id)
        return root is not None and root.status == QUEUED

    def reach(self, record: RunRecord, parent: Run | None = None, purpose: Purpose = GO_ON) -> Run:
        """Return the current run, from memory or from its journal, after performing the outcome
        that `decide_next` chooses.

        For a room, `parent` is the run whose call it answers, and `purpose` is what someone wants
        to happen to that run.

        Raises:
            UnknownRunError: the run is a room of another run.
        """
        if parent is not None and record.parent != parent.id:
            raise UnknownRunError(f"run {record.id} is not a room of {parent.id}")

        run = self._runs.get(record.id)
        if run is None or run.runner.lost is not None:
            return self._load(record, parent, purpose)

        run.parent = parent
        if self._is_at_hand(run, record.last_event):
            return run
        if run.driver.epoch is not None:
            # Abandon the old `Run` object. Otherwise, its calls would notice only when they end
            # that another process has continued the run.
            run.runner.abandon("another process has continued it")
            return self._load(record, parent, purpose)
        if not self.read_on(run):
            return self._load(record, parent, purpose)

        record = self._store.runs.get(run.id) or record
        return self.hand_off(run, record, purpose)

    @asynccontextmanager
    async def reading_ahead(self, run_id: str) -> AsyncGenerator[None]:
        """Read the journals of a run, its open rooms and its parent runs, in a thread if they are
        large.

        Code inside the block can then load the run without reading the journals again.
        """
        root = run_id.partition(".")[0]
        lock = self._reading.get(root)
        if lock is None:
            lock = self._reading[root] = anyio.Lock()

        # A second task that wants the same run waits here, and then finds the run in memory.
        async with lock:
            absent: list[str] = []
            try:
                # Ignore a journal that cannot be read or folded, because the code that loads the
                # run reports it.
                with contextlib.suppress(StoreError, JournalError):
                    absent += self._absent(run_id)
                    for absent_id in absent:
                        if not are_small(self._store, [absent_id]):
                            self._read[absent_id] = await compute_in_thread(
                                self._read_and_fold, absent_id
                            )

                yield
            finally:
                for absent_id in absent:
                    self._read.pop(absent_id, None)

    def _absent(self, run_id: str) -> list[str]:
        """Return the ids of the runs whose journals must be read to load a run: the run itself, its
        parent runs, and its open rooms.
        """
        absent: list[str] = []
        record = self._store.runs.get(run_id)
        waiting = [] if record is None else [record]
        while record is not None and record.parent is not None:
            record = self._store.runs.get(record.parent)
            if record is not None and not self._is_current(record):
                absent.append(record.id)

        while waiting:
            record = waiting.pop()
            if not self._is_current(record):
                absent.append(record.id)
                waiting += [
                    room for room in self._store.runs.rooms(record.id) if room.status not in ENDED
                ]

        return absent

    def _is_current(self, record: RunRecord) -> bool:
        run = self._runs.get(record.id)
        return run is not None and self._is_at_hand(run, record.last_event)

    def _read_events(self, run_id: str) -> _ReadJournal:
        numbered = [
            (number, event_from_json(event)) for number, event in self._store.runs.events(run_id)
        ]
        return _ReadJournal([event for _, event in numbered], numbered[-1][0] if numbered else 0)

    def _read_and_fold(self, run_id: str) -> _ReadJournal:
        read = self._read_events(run_id)
        return _ReadJournal(
            read.events, read.last, fold(Machine(), self._services.composer(), read.events)
        )

    def _is_at_hand(self, run: Run, last_event: int) -> bool:
        """Return whether the run in memory is up to date, and need not be continued by this
        process.
        """
        driver = run.driver
        if run.runner.is_behind or driver.unwritten:
            # The number of the last event is not reliable now, because the store might already
            # contain events whose write has not been confirmed to this process.
            return True

        if run.runner.lost is not None or driver.seen != last_event:
            return False
        # Another process might have continued one of the run's rooms, and the run's own journal
        # would not show that.
        self.reopen(run)
        if driver.epoch is not None or run.machine.ended:
            return True
        # Either another process drives the run or none does, and only the lease shows which. For a
        # run that can rest, this makes no difference.
        return run.may_rest

    def read_on(self, run: Run) -> bool:
        """Apply the new events that another process has journaled for a run and its rooms. Return
        False if the events do not fit the run.
        """
        try:
            numbered = list(run.driver.events(run.driver.seen))
            if numbered:
                run.driver.seen = numbered[-1][0]
                if any(isinstance(event, RequestMade | RunEnded) for _, event in numbered):
                    steps = self._store.ideas.of_run(run.id)
                    run.idea = steps[-1].id if steps else None
                run.runner.follow([event for _, event in numbered])
            if not run.machine.ended:
                self.reopen(run)
                for room in list(run.rooms.values()):
                    if room.is_elsewhere:
                        self.read_on(room)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - an unreadable run must not end anything else
            run.runner.fail(error)
            return False
        return True

    def reopen(self, run: Run, purpose: Purpose = GO_ON) -> None:
        """Reopen the open rooms of a run that was read from its journal. `purpose` is what someone
        wants to happen to the run.
        """
        for key in list(run.machine.open_rooms):
            record = self._store.runs.get(room_name(run.id, key))
            if record is not None:
                run.rooms[key] = self.reach(record, run, purpose)

    def seconds_until_lapse(self, lease: Lease) -> float:
        """Return the number of seconds until a lease lapses; see `Watch.seconds_until_lapse`.

        A lease that belongs to this process but to none of its drivers counts as lapsed, because it
        could not be released.
        """
        if lease.driver != self.driver_name:
            return self._watch.seconds_until_lapse(lease)
        driver = self._drivers.get(lease.run)
        is_held = driver is not None and (driver.epoch == lease.epoch or bool(driver.unwritten))
        return math.inf if is_held else 0.0

    # -- runs in memory ----------------------------------------------------------------------------

    def in_memory(self, run_id: str) -> Run | None:
        """Return a run if it is in memory, even if its state is out of date."""
        return self._runs.get(run_id)

    def all_in_memory(self) -> list[Run]:
        """Return every run in memory, including rooms and runs that have ended."""
        return list(self._runs.values())

    def drivers(self) -> Iterator[tuple[Driver, Run | None]]:
        """Yield the drivers of this process, each with its run if the run is in memory."""
        for run_id, driver in list(self._drivers.items()):
            yield driver, self._runs.get(run_id)

    def count_running(self, owner: str) -> int:
        """Count the `running` runs of an owner, including rooms."""
        return sum(
            owner_of(run.caller) == owner and run.status == "running" for run in self._kept.values()
        )

    def driven(self, run_id: str) -> Run | None:
        """Return a run if this process holds its lease, otherwise None."""
        run = self._runs.get(run_id)
        return None if run is None or run.driver.epoch is None else run

    @property
    def is_at_work(self) -> bool:
        """Whether this process drives a run."""
        return any(True for _ in self._driven())

    def _driven(self) -> Iterator[Run]:
        """Return the runs whose leases this process holds.

        They are read from `_kept`, because `_runs` and `_drivers` also contain ended runs until the
        garbage collector breaks their reference cycles.
        """
        return (run for run in self._kept.values() if run.driver.epoch is not None)

    def at_work(self, caller: Viewer) -> int:
        """Count the active runs in this process, without rooms, for one caller or for all
        callers.
        """
        return sum(
            run.parent is None and caller in (SEES_ALL, run.caller) for run in self._driven()
        )

    def need(self, module: str) -> bool:
        """Return whether a run that is active in this process, or is waiting for a person's
        decision, has called the given server, which might keep state that the run's next call
        relies on.
        """
        open_runs = [
            run
            for run in self._kept.values()
            if run.driver.epoch is not None or run.status == "needs_approval"
        ]
        for run in open_runs:
            for progress in run.calls():
                is_of_server = progress.tool is not None and progress.tool.module == module
                if is_of_server and any(item.started for item in progress.items):
                    return True

        return False

    def attach(
        self,
        run_id: str,
        caller: str,
        machine: Machine,
        first: Event | None,
        parent: Run | None,
        memory: int,
    ) -> Run:
        """Create a `Run` and keep it in memory.

        `first` is the event that names the run's mind, and `memory` the size of the run's first
        events in bytes.
        """
        if isinstance(first, RunStarted) and first.mode == "solve":
            named = first.mind
        else:
            named = None

        if self._services.mind is not None and self._services.mind.name == named:
            mind = self._services.mind
        else:
            mind = None

        driver = Driver(
            self._store, run_id, self.driver_name, self._lease, self._services.writer, self._watch
        )
        if parent is None:
            kept_bytes = KeptBytes(self._run_bytes, lambda: self.memory_beside(caller, kept_bytes))
        else:
            kept_bytes = parent.runner.kept_bytes

        kept_bytes.memory += memory
        run = Run(
            caller,
            machine,
            driver,
            self._host,
            kept_bytes=kept_bytes,
            mind=mind,
            parent=parent,
        )
        run.bound = first.bound if isinstance(first, RunStarted) else None
        self._forget_idle()
        self._runs[run_id] = self._kept[run_id] = run
        self._drivers[run_id] = driver
        return run

    def drop(self, run_id: str) -> None:
        """Remove a run that must not stay in memory."""
        self._runs.pop(run_id, None)
        self._kept.pop(run_id, None)
        self._drivers.pop(run_id, None)

    def memory_beside(self, caller: str, own: KeptBytes | None) -> int:
        """Estimate the memory, in bytes, that the caller's other runs take.

        If it is large, first drop runs that have ended or are waiting. They are read from their
        journals again when they are needed.
        """
        total = self._memory(caller, own)
        if total > CALLER_MEMORY // 2:
            for run_id, run in list(self._kept.items()):
                if (
                    owner_of(run.caller) == owner_of(caller)
                    and run.runner.kept_bytes is not own
                    and run.driver.epoch is None
                ):
                    del self._kept[run_id]
            total = self._memory(caller, own)

        return total

    def _memory(self, caller: str, own: KeptBytes | None) -> int:
        runs = [
            run
            for run in self._kept.values()
            if owner_of(run.caller) == owner_of(caller) and run.runner.kept_bytes is not own
        ]
        results = {id(run.runner.kept_bytes): run.runner.kept_bytes.memory for run in runs}
        return sum(results.values()) + sum(run.machine.output_memory for run in runs)

    def _forget_idle(self) -> None:
        """Drop all but the latest of the runs that have ended or are waiting.

        Dropped runs are read from their journals again when they are needed.
        """
        if len(self._kept) < _AT_HAND:
            return
        idle = [run_id for run_id, run in self._kept.items() if run.driver.epoch is None]
        for run_id in idle[: max(0, len(idle) - _AT_HAND // 2)]:
            del self._kept[run_id]

    def release(self) -> None:
        """Release every lease when this process shuts down, so that other processes can continue
        the runs.
        """
        for run in list(self._runs.values()):
            run.runner.close()
        for driver, run in self.drivers():
            status = None
            if run is not None and run.parent is None and not run.machine.ended:
                # The handover counts how often the run was taken up without progress. Writing the
                # status removes the handover, because this shutdown is not the run's fault.
                status = "running"

            with contextlib.suppress(StoreError):
                # This writes the queued events first. If it cannot release a lease, other processes
                # can take that lease once this process has ended.
                driver.leave(status, None, lambda: None)

    def retire(self) -> None:
        """Let any process, including this one, take over the leases that could not be released.

        Nothing must be written after this call.
        """
        retire(self.driver_name)

    # -- reading from the journal ------------------------------------------------------------------

    def _load(self, record: RunRecord, parent: Run | None, purpose: Purpose) -> Run:
        """Read a run from its journal, and perform the outcome that `decide_next` chooses.

        Raises:
            JournalError: the run's journal cannot be folded.
        """
        try:
            return self.hand_off(self._read_whole(record, parent), record, purpose)
        except JournalError as error:
            # Remove the run from memory, because it is only partly folded.
            self.drop(record.id)
            raise JournalError(
                f"the journal of run {record.id} does not fit this version of ideabridge "
                f"({error}). The run cannot continue here; no part of it is lost, and `ideabridge "
                f"runs show {record.id}` lists its events"
            ) from None

    def _read_whole(self, record: RunRecord, parent: Run | None) -> Run:
        """Read a run from its journal."""
        read = self._read.pop(record.id, None)
        if read is None or read.last != record.last_event:
            read = self._read_events(record.id)

        events = read.events
        folded = read.folded
        first = events[0] if events else None
        machine = Machine() if folded is None else folded.machine
        run = self.attach(record.id, record.caller, machine, first, parent, memory_of_start(events))
        run.made_under = record.fingerprint
        if parent is not None and run.key in parent.machine.open_rooms:
            parent.rooms[run.key] = run

        if folded is None:
            run.runner.fold(events)
        else:
            run.runner.take_folded(folded)

        for event in events:
            run.turns.take(event)

        run.people.take_up(events)
        run.driver.seen = read.last
        steps = self._store.ideas.of_run(record.id)
        run.idea = steps[-1].id if steps else None
        if events and not run.machine.ended:
            run.runner.kept_bytes.note(self._store.runs.journal_bytes(record.id))

        return run

    # -- the next step of a run --------------------------------------------------------------------

    def hand_off(self, run: Run, record: RunRecord, purpose: Purpose) -> Run:
        """Perform the outcome that `decide_next` chooses for a run that was read from its journal
        and that this process does not drive. Return the run.

        If the journal has grown, the run is read again.
        """
        facts = self._facts_of(run, record, purpose)
        step = decide_next(facts)
        if isinstance(step, OpenRooms):
            self.reopen(run, purpose)
            step = decide_next(replace(facts, standing=self._standing_of(run, record)))

        if isinstance(step, Follow):
            self._follow(run)
            return run

        reached = self._perform(step, run, record, purpose)
        # Wake the tasks that are already waiting for this run.
        run.runner.poke()
        return reached

    def _follow(self, run: Run) -> None:
        """Open the rooms of a run that another process drives."""
        self.reopen(run)
        if run.runner.binding is None:
            self.bind(run)

    def _perform(self, step: NextStep, run: Run, record: RunRecord, purpose: Purpose) -> Run:
        match step:
            case StayAside(reason):
                run.runner.mark_lost(reason)
            case Block(fault):
                run.block(fault)
            case KeepWaiting():
                run.people.expire()
            case Serve() | OpenRooms() | Follow():
                pass
            case _:
                return self._perform_under_lease(step, run, record, purpose)

        return run

    def _facts_of(self, run: Run, record: RunRecord, purpose: Purpose) -> Facts:
        machine = run.machine
        ended = None
        if machine.ended:
            ended = machine.status or "failed"

        root = None
        if run.parent is not None:
            root = self._store.runs.get(run.root.id)
        elif not machine.ended:
            asked = self._store.requests.cancels().get(record.id)
            if asked is not None and not isinstance(purpose, ToEnd):
                purpose = ToEnd(asked)

        return Facts(
            record=record,
            root=root or record,
            purpose=purpose,
            has_events=run.driver.seen > 0,
            is_lost=run.runner.lost is not None,
            ended=ended,
            is_orphan=run.is_orphan,
            is_held=self.seconds_until_lapse(record.lease) > 0,
            drives=run.runner.drives,
        )

    def _standing_of(self, run: Run, record: RunRecord) -> Standing:
        """Return the state of a run whose rooms are open."""
        waiting = {"needs_solution", "needs_approval"}
        if self._services.approver is not None:
            waiting.remove("needs_approval")

        return Standing(
            status=run.status,
            # A room might be waiting for an answer although one of the run's own calls was cut off.
            # The run must then continue.
            waits=run.waits_in_journal and run.status in waiting,
            fault=self.bind(run).why_not_resumable(),
            events=None if record.parent is not None else self._events_of(record),
        )

    def bind(self, run: Run) -> Binding:
        """Record which tools a run from a journal can call in this process."""
        is_same = run.made_under == self._in_force.fingerprint
        binding = Binding(
            run.machine,
            self._services.executor,
            run.bound,
            self._in_force.definitions,
            is_same=is_same,
        )
        run.runner.binding = binding
        return binding

    def _perform_under_lease(
        self, step: WrittenStep, run: Run, record: RunRecord, purpose: Purpose
    ) -> Run:
        """Acquire the lease of a run and write the outcome in one transaction. Then do the
        remaining work.
        """
        try:
            with run.driver.whole():
                is_current = run.driver.take()
                if is_current:
                    proceed = self._write(step, run, record)
                else:
                    # Another process has added events since this one read the journal.
                    run.driver.release()
                    proceed = None
        except InterruptedRunError:
            # Another process drives the run.
            return run

        if proceed is not None:
            proceed()
            return run
        return self.reach(self._store.runs.get(record.id) or record, run.parent, purpose)

    def _write(self, step: WrittenStep, run: Run, record: RunRecord) -> Callable[[], None]:
        """Write the outcome for a run under its lease. Return a function that does the remaining
        work.
        """
        driver = run.driver
        match step:
            case EndRun(reason):
                return partial(self._end_found, run, reason)
            case NoteStatus():
                if not run.machine.ended:
                    return partial(self._let_wait, run)
                driver.set_status(run.machine.status or "failed", run.summary())
                driver.release()
                return _nothing
            case Interrupt(fault):
                cut_off = self._note_cut_off(run)
                reason = f"{sentence(fault)} {run.works_still}"
                driver.set_status("interrupted", StoredSummary(reason=reason))
                driver.release()
                return partial(self._block, run, fault, cut_off)
            case Enqueue(handover):
                driver.queue(replace(handover, needs=run.needs))
                return _nothing
            case SetAside(handover, times):
                reason = _why_set_aside(run, times)
                driver.set_status("interrupted", StoredSummary(reason=reason, handover=handover))
                driver.release()
                return partial(_stay_aside, run, reason)
            case TakeUp(handover):
                if handover is not None:
                    driver.set_status("running", StoredSummary(handover=handover))
                elif record.status != "running":
                    driver.set_status("running")

                return partial(self._continue, run)

    def _continue(self, run: Run) -> None:
        """Continue a run under its lease."""
        run.people.ask()
        run.runner.resume(self._in_force.change_since(run.made_under, run.machine.settings))
        # Resume the run before letting questions expire. Otherwise, calls that start because of a
        # denial would look as if they had been in flight when the process died.
        run.people.expire()

    @staticmethod
    def _let_wait(run: Run) -> None:
        """Release the lease of a waiting run, and write the status that is missing from its row."""
        run.rest()
        run.people.expire()

    @staticmethod
    def _block(run: Run, fault: str, cut_off: Sequence[Event]) -> None:
        if cut_off:
            run.runner.follow(cut_off)
        run.block(fault)

    def _end_found(self, run: Run, reason: str) -> None:
        """End a run and its rooms under the run's lease."""
        self.end(run, reason)
        for room in self._store.runs.rooms(run.id):
            self.reach(room, run)

    def end(self, run: Run, reason: str) -> None:
        """Cancel a run that this process drives, and forget the request to cancel it. If the run
        cannot be ended, this process stops driving it.
        """
        try:
            run.cancel(reason)
        except (InterruptedRunError, FinishedRunError):
            return
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            run.runner.fail(error)
        self._store.requests.forget_cancel(run.id)

    def _note_cut_off(self, run: Run) -> list[Event]:
        """Journal the unknown outcomes of a run that cannot continue in this process, so that a
        person can settle them, and return the events; see `resume_events`. The caller must hold the
        lease.
        """
        _, events = resume_events(run.machine, time.time())
        if events:
            run.driver.append(events)
        return events

    def _events_of(self, record: RunRecord) -> int:
        """Return the number of events in the journals of a run and its rooms."""
        rooms = self._store.runs.rooms(record.id)
        return record.last_event + sum(self._events_of(room) for room in rooms)
