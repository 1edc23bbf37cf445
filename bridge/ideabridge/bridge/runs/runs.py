"""Runs: holds the runs of this process, including runs resumed from their journals.

`Runs` creates runs, keeps them in memory, and finds them by id. Several processes can share one
store, so each look-up compares the run in memory with the store:

- This process drives the run: the run in memory is current.
- Another process drives it: its new events are read from the journal (`read_on`) and reported
  to the watchers.
- No process drives it: the run is read from its journal, and `decide_next` says what happens to it
  (`decision.py`). `_hand_off` performs the outcome.

Four tasks run while the bridge is open. `heartbeat` renews the leases. `control.listen` receives
what other processes request for runs that this process drives: a cancellation or a decision.
`following.run` reads the journals of runs that another process drives and that someone in this
process waits for. `shared_calls.run` keeps the limits that several processes share.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NotRequired, TypedDict
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.driving.driver import (
    LEFT_REASON,
    Driver,
    Watch,
    own_driver_name,
    retire,
)
from ideabridge.bridge.driving.shared_calls import SharedCalls
from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    CallFinished,
    ConfigurationChanged,
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
from ideabridge.bridge.modules.client_session import client_session
from ideabridge.bridge.reading import are_small
from ideabridge.bridge.runs.binding import Binding, bound_to, sentence
from ideabridge.bridge.runs.control import LISTENS_SECONDS, Control
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
from ideabridge.bridge.runs.executor import CALLER_MEMORY, MEMORY_STEP, KeptBytes
from ideabridge.bridge.runs.following import Following
from ideabridge.bridge.runs.observed import Observed
from ideabridge.bridge.runs.plan_starts import PlanStarts
from ideabridge.bridge.runs.replay import Ways
from ideabridge.bridge.runs.rooms import Rooms
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.runner import Folded, fold
from ideabridge.bridge.runs.services import Services
from ideabridge.bridge.runs.starts import Start
from ideabridge.bridge.store.errors import StoreError, UnknownRunError
from ideabridge.bridge.store.journal import RunSource
from ideabridge.bridge.store.leases import LEASE_SECONDS, Lease
from ideabridge.bridge.store.queue import QUEUED
from ideabridge.bridge.store.run_record import CLIENT, ENDED, RunRecord, StoredSummary
from ideabridge.bridge.store.users import SEES_ALL, Viewer, owner_of, user_of
from ideabridge.tools.encoding import encode, memory_of
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.names import counted
from ideabridge.tools.threads import compute_in_thread

logger: Final = logging.getLogger(__name__)

_MANY_TOOLS: Final = 500
"""The number of tools above which the schema of a Request is composed in a thread, because each
tool takes 0.3 ms.
"""


_AT_HAND = 256
"""The number of runs in memory above which runs that have ended or are waiting are dropped."""


_LARGE_CONTEXT = 256 * 1024
"""If the context of a new run takes more memory than this, in bytes, the memory of the caller's
other runs is checked before the new run begins.
"""

_FIRST_EVENTS: Final = 2
"""Maximum number of events that a run can begin with: its start and, for a plan, its Solution."""


def memory_of_start(events: Sequence[Event]) -> int:
    """Estimate, from the first events of a run, the number of bytes of memory that its context and
    calls take.
    """
    memory = 0
    for event in events[:_FIRST_EVENTS]:
        if isinstance(event, RunStarted):
            memory += memory_of(encode(event.context))
        elif isinstance(event, SolutionProposed):
            memory += memory_of(encode(event.calls))

    return memory


class ListedRun(TypedDict):
    """One line of a list of runs.

    Attributes:
        run: the id.
        status: see `RunStatus`.
        title: a human-readable line.
        kind: `plan`, `solve`, or `session` (calls that were made earlier, either elsewhere or one
            by one).
        created: the time at which the run began, as ISO 8601 in UTC.
        reason: why the run is interrupted.
        refused: why a program that a mind wrote was refused.
    """

    run: str
    status: str
    title: str
    kind: str
    created: str
    reason: NotRequired[str]
    refused: NotRequired[str]


REFUSED_PROGRAM: Final = "program_refused."
"""The prefix of the keys under which the store records why a run's program was refused. When a run
is deleted, its key is deleted, too.
"""


@dataclass(frozen=True, slots=True)
class _ReadJournal:
    """The events in a journal, and the number of the last event. `folded` is set if the events have
    already been folded into a machine.
    """

    events: Sequence[Event]
    last: int
    folded: Folded | None = None


def _stay_aside(run: Run, reason: str) -> None:
    """Stop a run that is set aside, together with its rooms, some of which may already have resumed
    when they were opened.
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


class Runs:
    """Creates runs, holds them in memory, and resumes them from their journals.

    Args:
        services: what all runs of this process use.
        run_bytes: the maximum number of bytes of results and calls that one run keeps.
        lease_seconds: the number of seconds that a lease lasts without a heartbeat, or None for
            `LEASE_SECONDS`.

    Attributes:
        services: what all runs of this process use.
        has_own_handlers: True if the user has defined message handlers, whose code only this
            process has.
        control: cancels and decides on runs, no matter which process drives them.
    """

    def __init__(
        self, services: Services, *, run_bytes: int, lease_seconds: float | None = None
    ) -> None:
        self.services = services
        self._store = services.store
        self._in_force = services.in_force
        self.has_own_handlers = not services.handlers.are_built_in
        # Journals that a thread has read, for runs that are about to be resumed.
        self._read: dict[str, _ReadJournal] = {}
        # Locks for reading journals in threads, keyed by the id of the outermost run.
        self._reading: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._run_bytes = run_bytes
        self._name = own_driver_name()
        self._watch = Watch()
        self._lease = LEASE_SECONDS if lease_seconds is None else lease_seconds
        # These are weak references, so that a run that was dropped from `_kept`, but is still used
        # somewhere, can be found here.
        self._runs: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._kept: dict[str, Run] = {}
        self.observed = Observed(self._store)
        self.ways = Ways(self._store, services.offer, services.writer.patiently)
        self.plan_starts = PlanStarts(services.offer, self.ways, services.sandbox)
        self.rooms = Rooms(self)
        self._drivers: WeakValueDictionary[str, Driver] = WeakValueDictionary()
        self.following = Following(self)
        self.shared_calls = SharedCalls(self._store, services.writer, services.notices, self._name)
        self.control = Control(self)

    async def create(
        self, start: Start, caller: str, title: str, room: tuple[str, Run] | None = None
    ) -> Run:
        """Create a run and drive it in this process. When this method returns, the store contains
        the run with its first events.

        Args:
            start: the machine and the first events.
            caller: the owner.
            title: a human-readable line.
            room: for a room, its id and the run whose call it answers.

        Raises:
            LimitExceededError: a named user has reached the limit on active runs, or the caller's
                runs take too much memory.
            StoreError: the run could not be stored, so it has not begun.
        """
        if room is None:
            self._expect_place(caller)

        if start.machine.mode == "solve" and len(start.machine.offer.initial.tools) > _MANY_TOOLS:
            await compute_in_thread(self.services.composer().prepare, start.machine)
            if room is None:
                # In the meantime, other runs might have begun.
                self._expect_place(caller)

        memory = memory_of_start(start.events)
        self._expect_memory(caller, memory)
        run_id, parent = room or (f"run_{secrets.token_hex(8)}", None)
        first, *others = start.events
        if isinstance(first, RunStarted):
            traceparent = None if room is not None else self.services.executor.traceparent()
            bound = bound_to(
                start.machine.catalogue,
                self._in_force.definitions,
                None if parent is None else parent.bound,
            )
            first = replace(first, traceparent=traceparent, bound=bound)
            start.machine.traceparent = traceparent

        above = None if parent is None else parent.id
        client = CLIENT.get()
        title = self.services.screen.mask(title)[:200]

        def creates() -> None:
            self._store.runs.create(
                run_id,
                kind=start.machine.mode,
                caller=caller,
                title=title,
                fingerprint=self._in_force.fingerprint,
                parent=above,
                source=RunSource(client=client),
            )

        run = self._attach(run_id, caller, start.machine, first, parent, memory)
        run.runner.session = client_session() if parent is None else parent.runner.session
        run.made_under = self._in_force.fingerprint
        if parent is not None:
            # Add the room to its parent first, so that its usage counts and it ends when the parent
            # ends.
            parent.rooms[run.key] = run

        try:
            run.driver.create_with_first_events(creates)
            run.runner.begin(first, *others)
            await run.runner.wait_written()
            if run.runner.failure is not None and not run.driver.is_created:
                raise run.runner.failure
        except Exception:
            self._runs.pop(run_id, None)
            self._kept.pop(run_id, None)
            self._drivers.pop(run_id, None)
            run.runner.mark_lost("it could not be stored")
            if parent is not None and parent.rooms.get(run.key) is run:
                del parent.rooms[run.key]

            # Release the lease: if the run was stored and only a later step failed, any process can
            # resume it.
            run.driver.leave(None, None, lambda: None)
            raise

        return run

    def _expect_place(self, caller: str) -> None:
        """Raise `LimitExceededError` if the caller has reached the limit on active runs."""
        if self.services.queue.role == "front":
            # Workers enforce a user's limit themselves by letting further runs wait in the queue.
            self.services.queue.expect_place(caller)
        elif user_of(caller) is not None:
            owner = owner_of(caller)
            busy = sum(
                1
                for run in self._kept.values()
                if owner_of(run.caller) == owner and run.status == "running"
            )
            if busy >= self._in_force.users.runs:
                raise LimitExceededError(
                    f"you have {busy} active runs, the limit for one user: wait until one ends "
                    "(check_run), or cancel one"
                )

    def _expect_memory(self, caller: str, memory: int) -> None:
        """Raise `LimitExceededError` if a new run's context and the caller's other runs would
        together take too much memory.
        """
        if memory < _LARGE_CONTEXT:
            return
        total = memory + self._beside(caller, None)
        if total > CALLER_MEMORY:
            raise LimitExceededError(
                f"the context and the calls of this run take about {memory >> 20:,} MB of memory, "
                f"and with these your runs would take {total >> 20:,} MB; the limit for one caller "
                f"is {CALLER_MEMORY >> 20:,} MB. Wait until runs end, or cancel some"
            )

    def hand_over_all(self) -> None:
        """Hand over every run as soon as its running calls have ended, because this process is
        shutting down.
        """
        self.services.queue.role = "front"
        for run in list(self._runs.values()):
            if run.driver.epoch is not None:
                run.runner.leave_work()

    async def look_up(self, run_id: str, caller: str) -> Run:
        """Return a run as `get` does, but read a large journal in a thread. A worker process would
        not help, because the run continues in this process.
        """
        self._store.runs.find(run_id, caller=caller)
        async with self.reading_ahead(run_id):
            return await self.services.writer.patiently(lambda: self.get(run_id, caller))

    @asynccontextmanager
    async def reading_ahead(self, run_id: str) -> AsyncGenerator[None]:
        """Read the journals of a run, its open rooms and its parent runs, in a thread if they are
        large. Code inside the block can then load the run without reading the journals again.
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
            read.events, read.last, fold(Machine(), self.services.composer(), read.events)
        )

    def get(self, run_id: str, caller: str, purpose: Purpose = GO_ON) -> Run:
        """Return a run of this caller. Raise `UnknownRunError` if the caller has no such run."""
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
        """Load a run and continue it in this process. A process that leaves runs to workers queues
        it instead. A run that is waiting for someone or for a worker is returned unchanged.
        `caller` is the owner of the run, or `SEES_ALL`.

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
        """Return whether a run, or the run that a room belongs to, waits for a worker."""
        root = self._store.runs.get(run.root.id)
        return root is not None and root.status == QUEUED

    async def resume_when_left(self, run_id: str, caller: Viewer) -> Run:
        """Resume a run for a person, even one that was set aside; see `resume`. If only a heartbeat
        can show whether the run's driver is alive, wait for a heartbeat, but no longer than the
        lease lasts.
        """
        first = self._store.runs.find(run_id, caller=caller)
        while True:
            try:
                async with self.reading_ahead(run_id):
                    return await self.services.writer.patiently(
                        lambda: self.resume(run_id, caller, ToTryAgain())
                    )
            except InterruptedRunError:
                now = self._store.runs.get(run_id)
                if now is None or now.status != "running" or now.lease != first.lease:
                    raise
                seconds = self.seconds_until_lapse(now.lease)
                if not 0 < seconds < math.inf:
                    raise
                await anyio.sleep(min(seconds, LISTENS_SECONDS))

    def _is_at_hand(self, run: Run, last_event: int) -> bool:
        """Return whether the run in memory has all events that the store has, and this process does
        not need to continue the run.
        """
        driver = run.driver
        if run.runner.is_behind or driver.unwritten:
            # The number of the last event says nothing now, because the store might already contain
            # events whose write has not been confirmed to this process.
            return True

        if run.runner.lost is not None or driver.seen != last_event:
            return False
        # Another process might have continued one of the run's rooms, and the run's own journal
        # would not show that.
        self.rooms.reopen(run)
        if driver.epoch is not None or run.machine.ended:
            return True
        # Either another process drives the run or none does, and only the lease shows which. For a
        # run that can rest, this makes no difference.
        return run.may_rest

    def reach(self, record: RunRecord, parent: Run | None = None, purpose: Purpose = GO_ON) -> Run:
        """Return the current run, from memory or from its journal, after performing the outcome
        that `decide_next` chooses. For a room, `parent` is the run whose call it answers, and
        `purpose` is what someone wants to happen to that run.

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
            # Abandon the old `Run` object, because its calls would otherwise notice only at their
            # end that another process has continued the run.
            run.runner.abandon("another process has continued it")
            return self._load(record, parent, purpose)
        if not self.read_on(run):
            return self._load(record, parent, purpose)

        record = self._store.runs.get(run.id) or record
        return self._hand_off(run, record, purpose)

    def seconds_until_lapse(self, lease: Lease) -> float:
        """Return how many seconds remain until a lease lapses; see `Watch.seconds_until_lapse`. A
        lease that belongs to this process, but that none of the process's drivers holds, counts as
        lapsed, because releasing it failed.
        """
        if lease.driver != self._name:
            return self._watch.seconds_until_lapse(lease)
        driver = self._drivers.get(lease.run)
        is_held = driver is not None and (driver.epoch == lease.epoch or bool(driver.unwritten))
        return math.inf if is_held else 0.0

    def latest(self, caller: str, limit: int) -> list[ListedRun]:
        """Return the caller's latest runs, newest first, without sessions of direct calls and
        imported calls.
        """
        listed: list[ListedRun] = []
        for record in self._store.runs.newest(
            caller=caller, limit=limit, rooms=False, sessions=False
        ):
            live = self._runs.get(record.id)
            is_left = record.status == "running" and self.seconds_until_lapse(record.lease) == 0
            status = "interrupted" if is_left else record.status
            if (
                live is not None
                and not is_left
                and (status == "running" or live.unwritten is not None)
            ):
                status = live.status

            line: ListedRun = {
                "run": record.id,
                "status": status,
                "title": record.title,
                "kind": record.kind,
                "created": record.created,
            }
            reason = LEFT_REASON if is_left else record.summary.reason
            if status == "interrupted" and reason is not None:
                line["reason"] = reason

            refused = self._store.settings.get(REFUSED_PROGRAM + record.id)
            if refused is not None:
                line["refused"] = refused.decode()

            listed.append(line)

        return listed

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
                self.rooms.reopen(run)
                for room in list(run.rooms.values()):
                    if room.is_elsewhere:
                        self.read_on(room)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - an unreadable run must not end anything else
            run.runner.fail(error)
            return False
        return True

    def release(self) -> None:
        """Release every lease, because this process is shutting down. Other processes can then
        continue the runs.
        """
        for run in list(self._runs.values()):
            run.runner.close()
        for run_id, driver in list(self._drivers.items()):
            run = self._runs.get(run_id)
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
        """Let any process, including this one, take the leases that could not be released. Nothing
        must be written after this call.
        """
        retire(self._name)

    async def heartbeat(self) -> None:
        """Renew the leases, end runs whose wall time is up, and index saved ideas, until this task
        is cancelled.
        """
        beat = self._lease / 5
        while True:
            await anyio.sleep(beat)
            for run_id, driver in list(self._drivers.items()):
                run = self._runs.get(run_id)
                if run is not None and driver.epoch is not None:
                    try:
                        run.beat(beat)
                        self.rooms.look(run)
                    except Exception as error:  # noqa: BLE001 - an error must end only this run
                        run.runner.fail(error)
                else:
                    driver.give_back()
            # This keeps the views and search tables at most one heartbeat behind. If the store
            # fails, the next heartbeat tries again.
            with contextlib.suppress(StoreError):
                while self._store.ideas.index() and not self.is_at_work:
                    await anyio.lowlevel.checkpoint()

    def at_work(self, caller: Viewer) -> int:
        """Count the active runs in this process, for one caller or for all callers. Rooms do not
        count.
        """
        return sum(
            run.parent is None and caller in (SEES_ALL, run.caller) for run in self._driven()
        )

    def need(self, module: str) -> bool:
        """Return whether a run that is active in this process, or waits for a person's decision,
        has called a module. Such a module might keep state that the run's next call relies on.
        """
        open_runs = [
            run
            for run in self._kept.values()
            if run.driver.epoch is not None or run.status == "needs_approval"
        ]
        return any(
            progress.tool.module == module and any(item.started for item in progress.items)
            for run in open_runs
            for progress in run.calls()
            if progress.tool is not None
        )

    def driven(self, run_id: str) -> Run | None:
        """Return a run if this process holds its lease. Otherwise, return None."""
        run = self._runs.get(run_id)
        return None if run is None or run.driver.epoch is None else run

    @property
    def is_at_work(self) -> bool:
        """True if this process drives a run."""
        return any(True for _ in self._driven())

    def _driven(self) -> Iterator[Run]:
        """Return the runs whose leases this process holds. They are read from `_kept`, because
        `_runs` and `_drivers` also contain ended runs until the garbage collector breaks their
        reference cycles.
        """
        return (run for run in self._kept.values() if run.driver.epoch is not None)

    # -- taking up ---------------------------------------------------------------------------------

    def _attach(
        self,
        run_id: str,
        caller: str,
        machine: Machine,
        first: Event | None,
        parent: Run | None,
        memory: int,
    ) -> Run:
        """Create a `Run` and keep it in memory. `memory` is the size of the run's first events in
        bytes, and `first` is the event that names the run's mind.
        """
        if isinstance(first, RunStarted) and first.mode == "solve":
            named = first.mind
        else:
            named = None

        if self.services.mind is not None and self.services.mind.name == named:
            mind = self.services.mind
        else:
            mind = None

        driver = Driver(
            self._store, run_id, self._name, self._lease, self.services.writer, self._watch
        )
        if parent is None:
            kept_bytes = KeptBytes(self._run_bytes, lambda: self._beside(caller, kept_bytes))
        else:
            kept_bytes = parent.runner.kept_bytes

        kept_bytes.memory += memory
        run = Run(
            caller,
            machine,
            driver,
            self,
            kept_bytes=kept_bytes,
            mind=mind,
            parent=parent,
        )
        run.bound = first.bound if isinstance(first, RunStarted) else None
        self._forget_idle()
        self._runs[run_id] = self._kept[run_id] = run
        self._drivers[run_id] = driver
        return run

    def _beside(self, caller: str, own: KeptBytes | None) -> int:
        """Estimate the number of bytes of memory that the caller's other runs take. If they take a
        lot of memory, first drop runs that have ended or are waiting. These runs are read from
        their journals again when they are needed.
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
        """Drop runs that have ended or are waiting, except the latest of these runs. Dropped runs
        are read from their journals again when they are needed.
        """
        if len(self._kept) < _AT_HAND:
            return
        idle = [run_id for run_id, run in self._kept.items() if run.driver.epoch is None]
        for run_id in idle[: max(0, len(idle) - _AT_HAND // 2)]:
            del self._kept[run_id]

    def _load(self, record: RunRecord, parent: Run | None, purpose: Purpose) -> Run:
        """Read a run from its journal, and perform the outcome that `decide_next` chooses.

        Raises:
            JournalError: the run's journal cannot be folded.
        """
        try:
            return self._hand_off(self._read_whole(record, parent), record, purpose)
        except JournalError as error:
            # Remove the run from memory, because it is only partly folded.
            for registry in (self._runs, self._kept, self._drivers):
                registry.pop(record.id, None)
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
        run = self._attach(
            record.id, record.caller, machine, first, parent, memory_of_start(events)
        )
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

    # -- what becomes of a run ---------------------------------------------------------------------

    def _hand_off(self, run: Run, record: RunRecord, purpose: Purpose) -> Run:
        """Let `decide_next` choose the outcome for a run that was read from its journal and that
        this process does not drive, and perform this outcome. Return the run, which is read again
        if its journal has grown.
        """
        facts = self._facts_of(run, record, purpose)
        step = decide_next(facts)
        if isinstance(step, OpenRooms):
            self.rooms.reopen(run, purpose)
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
        self.rooms.reopen(run)
        if run.runner.binding is None:
            self._bind(run)

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
        if self.services.approver is not None:
            waiting.remove("needs_approval")

        return Standing(
            status=run.status,
            # A room might be waiting for an answer although one of the run's own calls was cut off.
            # The run must then continue.
            waits=run.waits_in_journal and run.status in waiting,
            fault=self._bind(run).why_not_resumable(),
            events=None if record.parent is not None else self._events_of(record),
        )

    def _bind(self, run: Run) -> Binding:
        """Record which tools a run that was read from its journal can call in this process."""
        is_same = run.made_under == self._in_force.fingerprint
        binding = Binding(
            run.machine,
            self.services.executor,
            run.bound,
            self._in_force.definitions,
            is_same=is_same,
        )
        run.runner.binding = binding
        return binding

    def _perform_under_lease(
        self, step: WrittenStep, run: Run, record: RunRecord, purpose: Purpose
    ) -> Run:
        """In one transaction, take the lease and write the outcome for a run. Then do the remaining
        work.
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
        """Write the outcome for a run under its lease. Return the function that does the remaining
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
        """Release the lease of a waiting run, and write its missing status to its row."""
        run.rest()
        run.people.expire()

    @staticmethod
    def _block(run: Run, fault: str, cut_off: Sequence[Event]) -> None:
        if cut_off:
            run.runner.follow(cut_off)
        run.block(fault)

    def _end_found(self, run: Run, reason: str) -> None:
        """End a run and its rooms under the run's lease."""
        self.control.end(run, reason)
        for room in self._store.runs.rooms(run.id):
            self.reach(room, run)

    def _note_cut_off(self, run: Run) -> list[Event]:
        """Journal the unknown outcomes of a run that cannot continue in this process, so that a
        person can settle them; see `resume_events`. Return the events. The caller must hold the
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

    async def follow_configuration(self, configuration: Configuration) -> None:
        """Switch to another configuration. Runs that this process drives follow the new rules
        immediately, and other runs follow them before the next decision. Calls to servers that now
        start differently, and to Python tools whose definition has changed, fail with the reason.
        """
        self._in_force.follow(configuration)
        for run in list(self._runs.values()):
            if run.machine.ended or run.runner.lost is not None:
                continue

            self._bind(run)
            if run.parent is None and run.driver.epoch is not None:
                try:
                    await self.services.writer.patiently(run.follow_configuration)
                except (InterruptedRunError, StoreError) as error:
                    # Another process drives the run, or the store fails. The new rules still apply
                    # to the run before the next decision about it.
                    logger.warning(
                        "run %s: the new configuration cannot be applied yet: %s", run.id, error
                    )

    def adopt(self, record: RunRecord) -> None:
        """Let workers of this configuration claim a queued run of another configuration, if the run
        can continue under this configuration.
        """
        run = self.reach(record)
        changed = self._in_force.change_since(run.made_under, run.machine.settings)
        binding = run.runner.binding
        if changed is None or binding is None or binding.why_not_resumable() is not None:
            return

        with run.driver.whole():
            if not run.driver.take():
                # The run has continued since it was read, so do not adopt it.
                run.driver.release()
                return
            run.driver.append([changed])
            run.driver.queue(record.summary.handover)

        run.runner.follow([changed])

    def journal_alone(self, run: Run, event: Event) -> None:
        """Journal a decision on a run that cannot continue in this process, without performing any
        effect. If the decision denies the call that was the only obstacle, the run continues
        afterwards.

        Raises:
            InterruptedRunError: another process drives the run, or has changed it in the meantime.
            SecretGivenError: the reason contains a secret.
        """
        [event] = self.services.screen.admit([event])
        with run.driver.whole():
            if not run.driver.take():
                raise InterruptedRunError(
                    f"run {run.id}: another process has continued it; check_run shows its "
                    "current state"
                )
            run.driver.append([event])
            run.driver.release()

        run.unblock()
        run.runner.follow([event])
        run.people.take_up(())
        self._hand_off(run, self._store.runs.find(run.id, caller=SEES_ALL), GO_ON)
        run.poke()

    # -- ends --------------------------------------------------------------------------------------

    async def open_room(self, run: Run, effect: Execute) -> None:
        """Open the room of a call that has started, or reopen it."""
        await self.rooms.open(run, effect)

    def note_waiting(self, run: Run) -> None:
        """Record that someone is now waiting for a run to change."""
        self.following.note_waiting(run)

    def watch(self, run: Run, event: Event) -> None:
        """Do the work outside the run that an event of the run requires.

        When the run has ended, write its row in the store, with `Run.summary`, and give up its
        lease. Note the shape of each call's result. Pass every event on to the rooms. While another
        process drives the run, that process writes the row.
        """
        if isinstance(event, ConfigurationChanged):
            run.made_under = event.fingerprint
            if run.runner.binding is not None:
                run.runner.binding.is_same = event.fingerprint == self._in_force.fingerprint

        if run.runner.is_following:
            pass
        elif isinstance(event, RunEnded):
            run.driver.leave(run.machine.status or "failed", run.summary(), run.poke)
            if run.machine.output_memory > MEMORY_STEP:
                # The output stays in memory beside the outputs of earlier runs, so check how much
                # memory they take together.
                self._beside(run.caller, run.runner.kept_bytes)
        elif isinstance(event, CallFinished) and event.error is None:
            tool = run.machine.history[event.call].tool
            if tool is not None and tool.key not in run.machine.catalogue.latent:
                self.observed.note(run.caller, tool, event.value)

        self.rooms.watch(run, event)
