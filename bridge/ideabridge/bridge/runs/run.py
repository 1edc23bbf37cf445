"""One plan, program or task that is being carried out, from its callers' point of view.

A run consists of a machine (what has happened), a runner (what happens next) and a driver (the
lease under which this process is allowed to write its journal). A run that is waiting for someone
releases its lease, and any process can take the next step. A call in a run can be answered by
another run, the call's room. A room has its own journal, is listed in `Run.rooms` of the run that
it belongs to, and counts as part of that run: the status, approvals, requests and usage of the run
include its rooms.

    running -> needs_solution, needs_approval -> running -> done, stalled, limit, cancelled, failed
    interrupted: the run cannot continue in this process; its journal can only record which calls
        have an unknown outcome
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast, overload

import anyio

from ideabridge.bridge.arguments import check_text, check_type
from ideabridge.bridge.context.failure import caused_by_denials, not_run
from ideabridge.bridge.context.messages import Message
from ideabridge.bridge.context.mind import Mind
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.context.written_call import title_of_tools, tool_names
from ideabridge.bridge.driving.driver import LARGE_VALUE, Driver, SaveIdea
from ideabridge.bridge.errors import (
    DecisionError,
    FinishedRunError,
    InterruptedRunError,
    ProgramError,
    RejectedSolutionError,
    RunFailedError,
    SettledTurnError,
    UnwrittenRunError,
)
from ideabridge.bridge.loop.call import UNCERTAIN
from ideabridge.bridge.loop.effect import Execute, ExecutionKey, call_of_room
from ideabridge.bridge.loop.event import (
    CallDecided,
    CallFinished,
    CallStarted,
    DecidedEvent,
    Decider,
    EndStatus,
    Event,
    OfCall,
    Pattern,
    ProgramProposed,
    RunEnded,
    SolutionProposed,
    SolutionRejected,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.output import error_message
from ideabridge.bridge.loop.progress import CallStatus, Progress, parked
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.loop.settings import Spending
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.loop.standing import standing_tool
from ideabridge.bridge.minds.instructions import turns_instructions
from ideabridge.bridge.modules.blocks import Blocks
from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.plan import WaitingPlan, waiting_plan
from ideabridge.bridge.runs import values
from ideabridge.bridge.runs.binding import sentence
from ideabridge.bridge.runs.executor import KeptBytes
from ideabridge.bridge.runs.people import (
    ApprovalRequest,
    Decision,
    DecisionName,
    People,
    questions,
    read_decision,
)
from ideabridge.bridge.runs.runner import Runner
from ideabridge.bridge.runs.services import Services
from ideabridge.bridge.runs.starts import program_of_mind
from ideabridge.bridge.runs.turn_log import TurnLog
from ideabridge.bridge.standing_rules import (
    LOCK_SECONDS,
    RulesLockedError,
    StandingRule,
    StandingRuleError,
)
from ideabridge.bridge.store.errors import StaleDriverError, StoreError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.queue import QUEUED
from ideabridge.bridge.store.run_record import Handover, StoredSummary
from ideabridge.bridge.store.tool_memory import ApprovedCall
from ideabridge.bridge.store.users import person_of
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, encode, normalise
from ideabridge.tools.tool import Tool

T = TypeVar("T")

RunStatus: TypeAlias = Literal[
    "running",
    "needs_solution",
    "needs_approval",
    "done",
    "stalled",
    "limit",
    "cancelled",
    "failed",
    "interrupted",
]

RoomWatcher: TypeAlias = "Callable[[Run, Event], None]"
"""A function that is called with a room and an event, for every event of the room."""

WITHOUT_RESULT: Final[dict[str, str]] = {
    "done": "it has ended without an output, with errors",
    "needs_approval": (
        "it is waiting for approvals or answers; decide on them, or give the bridge an approver"
    ),
    "needs_solution": "it is waiting for a solution; submit one, or give the bridge a mind",
}
"""Maps the status of a run to the reason why the run has no result."""

_RUN_NOTHING: Final = ("deny", "skip", "value")
"""Decisions that settle a question without running a call. They are accepted even if the run cannot
continue in this process.
"""

logger: Final = logging.getLogger(__name__)

_NOTES: Final = 20
"""The maximum number of entries of each kind in an answer. The kinds are decisions, assumptions,
skipped calls and notes.
"""

_WRITTEN: Final = 64 * 1024
"""The maximum size, in bytes, of a Solution whose original text is stored next to the form that
satisfies its schema.
"""

_ROOM: Final = (
    "This request is part of the run but independent of everything else: answer it only from its "
    "own context, whatever else you have seen, and submit the solution with solve, run {run}, "
    "turn {turn}."
)


class RunHost(Protocol):
    """The methods that a run calls on its host. The host of this process's runs is `Runs`, which
    creates them.
    """

    services: Services

    def watch(self, run: Run, event: Event) -> None:
        """Do the work outside the run that an event of the run requires."""
        ...

    def note_waiting(self, run: Run) -> None:
        """Record that someone is now waiting for the run to change."""
        ...

    def journal_alone(self, run: Run, event: Event) -> None:
        """Journal a decision on a run that cannot continue in this process."""
        ...

    async def open_room(self, run: Run, effect: Execute) -> None:
        """Open the room of a call that has started, or reopen it."""
        ...


class Run:
    """A run.

    Args:
        caller: the caller who started the run. Other callers do not see it.
        mind: answers the run's Requests, or None if the caller answers them turn by turn.
        parent: for a room, the run whose call it answers.

    Attributes:
        rooms: the runs that currently answer calls of this run, keyed by call and item.
        ending: rooms that are being closed because their calls have ended.
        room_watchers: functions that are called with every event of the run's rooms, at any depth;
            see `watching`.
        people: ensures that the run's questions are settled.
        bound: the start definitions of the run's servers; see `RunStarted`.
        made_under: the fingerprint of the configuration under which the run was last driven.
        idea: the id of the idea that was saved last.
        active_seconds: how long the run has been active in this process, in seconds.
        turns: the turns recorded in the run's journal.
    """

    def __init__(
        self,
        caller: str,
        machine: Machine,
        driver: Driver,
        host: RunHost,
        *,
        kept_bytes: KeptBytes,
        mind: Mind | None = None,
        parent: Run | None = None,
    ) -> None:
        self.id = driver.run_id
        self.parent = parent
        self.rooms: dict[ExecutionKey, Run] = {}
        self.ending: list[Run] = []
        self.room_watchers: list[RoomWatcher] = []
        self.caller = caller
        self.idea: str | None = None
        self.bound: JSONObject | None = None
        self.made_under = ""
        self._is_blocked = False
        self.active_seconds = 0.0
        self.turns = TurnLog()
        self.driver = driver
        self._host = host
        services = self._services = host.services
        self.runner = Runner(
            machine,
            self,
            driver,
            executor=services.executor,
            composer=services.composer(),
            screen=services.screen,
            group=services.group,
            kept_bytes=kept_bytes,
            sandbox=services.sandbox,
            queue=services.queue,
            mind=mind,
        )
        self.runner.observers = [observe(self) for observe in services.executor.observers]
        self.people = People(
            self.runner,
            driver,
            services.group,
            services.approver,
            mask=services.screen.mask,
            settle=self.settle,
            may_allow_always=self.may_allow_always,
        )
        # The order matters: at `RunEnded`, `host.watch` writes the row of the run from `summary`,
        # so everything that a summary reads must receive the event before it.
        self.runner.watchers += [self.turns.take, partial(host.watch, self), self.people.watch]

    @property
    def machine(self) -> Machine:
        """The machine that the runner drives."""
        return self.runner.machine

    @property
    def status(self) -> RunStatus:
        """The status of the run, including its rooms. A Request of a room counts as a Request of
        the run.
        """
        machine = self.machine
        if self.runner.lost is not None:
            return "interrupted"
        if self.is_behind:
            return "running"
        if machine.ended:
            return cast("RunStatus", machine.status or "failed")

        # Wait until all rooms are open, so that the run reports the Requests of all of them at the
        # same time.
        opened = len(self.rooms) >= len(machine.open_rooms)
        if machine.awaits_solution or (opened and any(True for _ in self.open_requests())):
            return "needs_solution"
        if (machine.waits_for_people or self.rooms) and self._is_still:
            # While an approver is deciding, the run counts as active.
            if any(run.people.deciding for run in self.with_rooms()):
                return "running"
            return "needs_approval"

        return "running"

    @property
    def is_behind(self) -> bool:
        """Whether the run or one of its rooms has events that are not in the journal yet.

        Nobody sees these events until they are written.
        """
        return any(run.runner.is_behind for run in self.with_rooms(ending=True))

    @property
    def may_rest(self) -> bool:
        """Whether the run is waiting for someone and any process can continue it.

        While the server of a running call is waiting for an answer, the run stays in the process
        that runs the call.
        """
        return (
            self._is_still
            and self.status != "running"
            and not any(run.people.parks for run in self.with_rooms())
        )

    @property
    def is_elsewhere(self) -> bool:
        """Whether the run is not driven by this process."""
        drives = self.driver.epoch is not None or self.driver.unwritten or self.runner.is_behind
        return not drives and self.runner.lost is None and not self.machine.ended

    @property
    def waits_in_journal(self) -> bool:
        """Whether a run that was read from its journal is only waiting.

        False if a server has asked a question, because the call ran in another process and might
        have ended together with that process.
        """
        return self._is_still and not parked(self.machine.history)

    @property
    def _is_still(self) -> bool:
        """Whether neither the run nor any of its rooms is active in this process."""
        machine = self.machine
        if self.runner.is_behind or self.runner.program.computes:
            return False
        if machine.ended or self.runner.lost is not None:
            # A room that has ended must still hand its result to its parent. A room that cannot
            # continue in this process is active elsewhere.
            return self.runner.lost is not None

        if machine.awaits_solution or machine.waits_for_people:
            return all(room._is_still for room in self.rooms.values())
        if not machine.at_rest or len(self.rooms) < len(machine.open_rooms):
            return False
        return bool(self.rooms) and all(room._is_still for room in self.rooms.values())

    def with_rooms(self, *, ending: bool = False) -> Iterator[Run]:
        """Yield the run and its rooms at any depth, including rooms that are being closed if
        `ending` is set.
        """
        yield self
        rooms = list(self.rooms.values())
        if ending:
            rooms += self.ending
        for room in rooms:
            yield from room.with_rooms(ending=ending)

    @property
    def root(self) -> Run:
        """The outermost run that a room belongs to, or the run itself if it is not a room."""
        return self if self.parent is None else self.parent.root

    @property
    def key(self) -> ExecutionKey:
        """The parent's call, and the item in it, that this room answers."""
        return call_of_room(self.id)

    @property
    def is_orphan(self) -> bool:
        """Whether this is a room whose call has ended before it, in a run that this process
        drives.
        """
        parent = self.parent
        if parent is None or parent.runner.lost is not None:
            return False
        return parent.machine.ended or self.key not in parent.machine.open_rooms or parent.is_orphan

    async def open_room(self, effect: Execute) -> None:
        """Open the room of a call that has started, and post its result."""
        await self._host.open_room(self, effect)

    def note_waiting(self) -> None:
        """Record that someone is now waiting for the run to change."""
        self._host.note_waiting(self)

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call a method of the run, repeatedly while the store cannot be written to. See
        `Bridge.patiently`.
        """
        return await self.driver.patiently(call)

    async def wait(self, seconds: float | None = None) -> RunStatus:
        """Wait until the run is waiting for someone or has ended, but no longer than `seconds`
        seconds.
        """
        with anyio.move_on_after(seconds):
            while self.status == "running" or self.is_being_left:
                await self.runner.wait_changed()
        return self.status

    @property
    def is_being_left(self) -> bool:
        """Whether a status, or the release of a lease, has yet to be written for the run or one of
        its rooms.
        """
        return any(run.driver.unwritten for run in self.with_rooms(ending=True))

    def poke(self) -> None:
        """Wake the tasks that are waiting for the run or its parents."""
        self.runner.poke()
        if self.parent is not None:
            self.parent.poke()

    def beat(self, seconds: float) -> None:
        """Renew the lease, and end the run if its time is up. `seconds` is the time since the last
        heartbeat.
        """
        try:
            is_held = self.driver.renew()
        except StoreError:
            # Keep the run in this process, because another process takes it over only after several
            # missed heartbeats.
            return
        if not is_held:
            self.driver.epoch = None
            self.runner.abandon("its lease was lost to another process")
        elif self.status == "running":
            self.active_seconds += seconds
            most = self.machine.settings.wall_seconds
            if self.active_seconds > most:
                self.runner.end_at_limit(
                    f"{most:g} seconds have passed, which is the limit for a run"
                )

    @contextlib.contextmanager
    def watching(
        self, watcher: Callable[[Event], None], room_watcher: RoomWatcher | None = None
    ) -> Generator[None]:
        """Within the context, call `watcher` with every event of the run itself, and `room_watcher`
        with every event of its rooms, at any depth, after the event is journaled.
        """
        self.runner.watchers.append(watcher)
        if room_watcher is not None:
            self.room_watchers.append(room_watcher)

        try:
            yield
        finally:
            self.runner.watchers.remove(watcher)
            if room_watcher is not None:
                self.room_watchers.remove(room_watcher)

    # -- waiting for events and results ------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over all events of the run, from the first one; see `events`."""
        return self.events()

    async def events(self, *, from_now: bool = False) -> AsyncIterator[Event]:
        """Yield the events in the run's journal until the run has ended or cannot continue in this
        process.

        While the run is waiting for someone, the iteration waits too. The body of the loop may
        settle an approval or submit a solution.

        Args:
            from_now: skip the events so far. By default, each iteration begins with the run's first
                event.
        """
        if from_now:
            last = max((number for number, _ in self.driver.events()), default=0)
        else:
            last = 0
        while True:
            for number, event in self.driver.events(last):
                last = number
                yield self._with_tool_name(event)
                if isinstance(event, RunEnded):
                    return
            if (self.machine.ended and not self.runner.is_behind) or self.runner.lost is not None:
                return
            await self.runner.wait_changed()

    def _with_tool_name(self, event: Event) -> Event:
        """Return the event with the name of its tool: the tool that the call names or, if a person
        replaced it, the replacement.
        """
        if not isinstance(event, OfCall):
            return event

        progress = self.machine.history[event.call]
        if isinstance(event, CallStarted | CallFinished):
            replaced = progress.replaced
        else:
            replaced = None

        return dataclasses.replace(
            event, tool_name=progress.call.name if replaced is None else replaced.name
        )

    @overload
    async def result(self) -> Any: ...
    @overload
    async def result(self, model: type[T]) -> T: ...
    async def result(self, model: type[Any] | None = None) -> Any:
        """Wait for the run to end, and return its output.

        If the run has no output schema, the output is the run's state or, if there is no state, its
        results.

        Args:
            model: the type to return, which is a pydantic model or any type that pydantic supports,
                or None for JSON.

        Raises:
            RunFailedError: the run has no output, it needs no output but calls failed, or it is
                waiting for someone.
            OutputTypeError: the output does not fit the model.
            ArgumentError: the model is not a type.
        """
        check_type("model", model)
        status = await self.wait()
        if not self.machine.has_output and (status != "done" or self.errors()):
            errors = self.errors()
            reason = self.runner.lost or self.machine.reason
            text = f"run {self.id}: {WITHOUT_RESULT.get(status, status)}"
            if reason:
                text = f"{text}: {reason}"
            if errors:
                text = f"{text}\n{rejection(errors)}"
            raise RunFailedError(text, self.id, status, [dict(error) for error in errors])

        return self.given() if model is None else values.typed(self.given(), model)

    # -- turns -------------------------------------------------------------------------------------

    @property
    def turn(self) -> int:
        """The number of the current Request, from 0."""
        return self.machine.step

    def submit(
        self,
        turn: int,
        raw: ObjectLike | JSON,
        *,
        mind: str | None = None,
        model: str | None = None,
        pattern: Pattern | None = None,
        strict: bool = False,
    ) -> list[str]:
        """Submit the solution of a turn.

        Its calls are handled as if they arrived one by one in a stream: a malformed call fails
        together with the calls that depend on it, and the others run. The next Request shows the
        errors.

        Args:
            turn: the turn that the solution answers.
            raw: the solution. It is read leniently.
            mind: the mind that wrote the solution, or None for the caller who answers turn by turn.
            model: the model that wrote the solution, if it is known.
            pattern: the pattern that makes the solution's calls one group. A solution with a
                pattern is handled as if `strict` were set.
            strict: whether to run nothing unless the whole solution is well formed.

        Returns:
            One sentence for each part that was malformed but could be read. Submitting the same
            solution again, after it has settled the turn, changes nothing.

        Raises:
            ValueMismatchError: `raw` is not a solution.
            RejectedSolutionError: the calls are not an array, exceed the run's limit, or contain a
                secret; the solution is a program that cannot run here, or combines a program with
                calls or an output; or any part is malformed and `strict` is set. Nothing ran, and
                the turn stays open.
            SettledTurnError: another solution settled the turn, or the run has no such turn.
            FinishedRunError: the run has ended.
        """
        read, notes = values.read_submission(
            normalise(raw, what="the solution"), mind, model, pattern
        )
        proposed, errors = self._read_program(read)
        settled = self.turns.settled.get(turn)
        if settled is not None:
            if settled == values.digest_of_solution(proposed):
                return notes
            raise SettledTurnError(
                f"turn {turn} was already answered with another solution; {self._turn_now()}"
            )

        self._expect_open(turn)
        errors = errors or self._services.screen.faults(proposed)
        if not errors and (strict or pattern is not None):
            checked = proposed if isinstance(proposed, SolutionProposed) else read
            errors = self.machine.check(checked).errors

        errors = errors or self.machine.check_count(len(read.calls))
        if errors:
            solution: JSONObject = {
                **(read.extra or {}),
                "calls": read.calls,
                "output": read.output,
            }
            self.drive(SolutionRejected(solution, list(errors)))
            raise RejectedSolutionError(rejection(errors), [dict(error) for error in errors])

        # Record the author first, because posting the event might end the step, and the step's idea
        # is saved with its author.
        self.turns.authors[turn] = (mind or "turns", model or "")
        self.drive(proposed)
        return notes

    def _read_program(
        self, read: SolutionProposed
    ) -> tuple[SolutionProposed | ProgramProposed, list[JSONObject]]:
        """Return the event for a submitted solution and, if the solution is a program, the
        program's errors.
        """
        extra: JSONObject = {
            key: value for key, value in (read.extra or {}).items() if key != "program"
        }
        try:
            program = values.program_in(read)
            if program is None:
                return dataclasses.replace(read, extra=extra or None), []
            return program_of_mind(self.machine, program, self.id, extra, read.mind, read.model), []
        except (RejectedSolutionError, ProgramError) as error:
            return read, [error_message("structural", str(error))]

    def reject(self, turn: int, answer: JSON, message: str) -> None:
        """Journal an answer to a turn that could not be read as a solution. Nothing runs, and the
        turn stays open.

        Raises:
            SettledTurnError, FinishedRunError: the turn is not open.
        """
        self._expect_open(turn)
        self.drive(SolutionRejected(answer, [error_message("structural", message)]))

    def drive(self, event: Event) -> None:
        """Post an event under the lease. If the run is then waiting for someone, release the
        lease.
        """
        if self._is_blocked:
            self._host.journal_alone(self, event)
            return

        if self.driver.epoch is None:
            self.root.follow_configuration()

        self._take("running")
        self.runner.post(event)
        if isinstance(event, CallDecided) and event.by.kind == "person":
            self._note_approved(event)

    def _note_approved(self, event: CallDecided) -> None:
        """Store that a person has approved a call, so that the next question about the call's tool
        can show what has changed since.
        """
        tool = self.machine.history[event.call].tool
        if event.tool is not None:
            tool = Tool.from_json(event.tool)
        if event.decision == "deny" or tool is None:
            return
        server = (self.bound or {}).get(tool.module or "")
        if not isinstance(server, str):
            return
        approved = ApprovedCall(self.id, event.call)
        try:
            self._services.store.tool_memory.keep_approved(
                self.caller, server, tool.name_in_module, approved
            )
        except StoreError as error:
            # The call can proceed anyway, because the decision itself is in the journal.
            logger.warning("run %s: the approved call is not remembered: %s", self.id, error)

    def follow_configuration(self) -> None:
        """Apply the rules of this configuration to the run and its rooms from now on, if they were
        last driven under another one.

        Raises:
            InterruptedRunError: another process drives the run.
        """
        in_force = self._services.in_force
        for run in list(self.with_rooms()):
            changed = in_force.change_since(run.made_under, run.machine.settings)
            if changed is not None and run.runner.lost is None and not run.machine.ended:
                run._take("running")
                run.runner.post(changed)

    @property
    def works_still(self) -> str:
        """A sentence that lists the decisions that are still possible when the run cannot continue
        here.
        """
        end = f"ideabridge runs cancel {self.root.id}"
        if self.questions():
            return f"You can still deny (or skip) what it asks, or end it: {end}"
        return f"You can still end it: {end}"

    def block(self, why: str) -> None:
        """Record that the run cannot continue in this process, so that only decisions in
        `_RUN_NOTHING` are still possible.
        """
        self._is_blocked = True
        self.runner.mark_lost(f"{sentence(why)} {self.works_still}")

    def unblock(self) -> None:
        """Undo `block`."""
        self._is_blocked = False
        self.runner.lost = None

    def hold(self) -> None:
        """Acquire the lease if it is free, because a room of the run is active in this process."""
        with contextlib.suppress(InterruptedRunError):
            if not self.machine.ended and self.runner.lost is None and self.driver.epoch is None:
                self._take("running")

    def _take(self, status: str | None = None) -> None:
        """Write the status and, unless this process already holds the lease, acquire it in the same
        transaction.
        """
        if self.parent is not None:
            self.parent.hold()

        if self.driver.epoch is not None and status is None:
            return
        with self.driver.whole():
            if not self.driver.take():
                raise InterruptedRunError(
                    f"run {self.id}: another process has continued it; check_run shows its current "
                    "state"
                )
            if status is not None:
                self.driver.set_status(status)

    def rest(self) -> None:
        """Release the lease if the run is waiting for someone. The runner calls this method when no
        effect is due.
        """
        if self.runner.lost is not None:
            with contextlib.suppress(StoreError):
                # If the store cannot be written to, the lease will simply expire later.
                self.driver.leave(None, None, self.poke)
        elif self.may_rest:
            try:
                self.driver.leave(self.status, None, self.poke)
                # Another process can now continue the run and will start its program again.
                self.runner.program.stop()
            except StaleDriverError:
                # Another process drives the run and its rooms. Until now, only one of the rooms had
                # noticed this.
                self.runner.abandon("its lease was lost to another process")
        if self.parent is not None:
            self.parent.moved()

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the servers that the run can call, including `*` if it can call any
        server.
        """
        tools = self.machine.catalogue.tools
        return tuple(sorted({module for tool in tools for module in tool.reached if module}))

    def hand_over(self) -> None:
        """Queue the outermost run and its rooms for a worker, as soon as no part of the run is
        active in this process.
        """
        root = self.root
        if any(member.runner.is_busy for member in root.with_rooms(ending=True)):
            return
        try:
            for member in root.with_rooms():
                member.runner.program.stop()
                if member is not root:
                    member.driver.leave(None, None, member.poke)
            handover = Handover(needs=root.needs)
            root.driver.leave(QUEUED, StoredSummary(handover=handover), root.poke)
        except StaleDriverError:
            self.runner.abandon("its lease was lost to another process")

    def moved(self) -> None:
        """Called when one of the run's rooms has opened, changed or come to rest."""
        self.rest()
        self.runner.poke()

    def _turn_now(self) -> str:
        if self.status == "needs_solution":
            return f"the current turn is {self.machine.step}"
        return f"no turn awaits a solution (the run is {self.status})"

    def _expect_open(self, turn: int) -> None:
        self._expect_alive()
        machine = self.machine
        if not machine.awaits_mind or turn != machine.step:
            raise SettledTurnError(f"turn {turn} is not open; {self._turn_now()}")

    def _expect_alive(self) -> None:
        if self.runner.lost is not None:
            raise InterruptedRunError(f"run {self.id} cannot continue here: {self.runner.lost}")
        if self.machine.ended:
            raise FinishedRunError(
                f"run {self.id} has ended ({self.status}); it accepts no more solutions"
            )

    @property
    def requests(self) -> int:
        """The number of Requests that minds have answered."""
        if self.machine.mode == "plan":
            return 0
        steps = self.machine.step
        if self.machine.ended:
            steps += 1
        answered = max(len(self.turns.settled), steps)
        return answered - self.turns.by_plan

    @property
    def way(self) -> Literal["plan", "program", "solve"]:
        """How the run is answered: by a plan or a program alone, or by a mind, possibly after one
        of them.
        """
        is_alone = self.machine.mode == "plan" or (self.turns.by_plan and self.machine.step == 0)
        if not is_alone:
            return "solve"
        return "plan" if self.machine.solution.program is None else "program"

    # -- people ------------------------------------------------------------------------------------

    def decide(
        self,
        approval: str,
        decision: DecisionName,
        *,
        by: str | Decider,
        call: ObjectLike | JSON = None,
        value: object = MISSING,
        plan: ObjectLike | JSON = None,
        reason: str | None = None,
        grant: ObjectLike | JSON = None,
    ) -> None:
        """Settle a pending approval. The decision applies to exactly what was shown. For the other
        arguments, see `Decision`.

        Raises:
            DecisionError: no such approval is pending, it does not offer this decision, or the
                other arguments are invalid.
            FinishedRunError: the run has ended.
        """
        self.settle(approval, Decision(decision, call, reason, by, value, plan, grant))

    def settle(self, approval: str, decision: Decision) -> None:
        """Settle a pending approval. For details and errors, see `decide`."""
        self.root.follow_configuration()
        run, event = self.event_of(approval, decision)
        rule = run.rule_given_by(event)
        run.drive(event)
        if rule is not None:
            run.give(rule)
            run.root.settle_by(rule)

    def check(self, approval: str, decision: Decision) -> None:
        """Check a decision without applying it. Raises the errors of `decide`, and
        `SecretGivenError` if the decision contains a secret.
        """
        _, event = self.event_of(approval, decision)
        self._services.screen.admit([event])

    def event_of(self, approval: str, decision: Decision) -> tuple[Run, DecidedEvent]:
        """Check a decision. Return the run or room to which the decision applies, and the event of
        the decision. Raises the errors of `decide`.
        """
        if not (self._is_blocked and decision.decision in _RUN_NOTHING):
            self._expect_alive()

        check_text("approval", approval)
        name, nested, rest = approval.partition("/")
        if not nested:
            offer = self._services.offer.to(self.caller)
            event = read_decision(self.machine, approval, decision, offer.catalogue)
            if isinstance(event, CallDecided) and event.decision == "edit":
                self._expect_in_profile(event, offer)

            if decision.always and isinstance(event, CallDecided):
                rule = self._new_rule(event)
                event = dataclasses.replace(event, always=rule.id)
            return self, event

        for room in self.rooms.values():
            if room.call_name == name:
                return room.event_of(rest, decision)

        raise DecisionError(
            f"no approval {approval[:100]!r} is pending: the room of this approval has ended, "
            "or never existed"
        )

    def _expect_in_profile(self, edit: CallDecided, offer: Offer) -> None:
        """Raise `DecisionError` if an edited call uses a tool that the run's profile lacks.

        The plan of an idea can call such a tool, but only in the calls that were published.
        """
        tool = self.machine.history[edit.call].tool
        if edit.tool is not None:
            tool = Tool.from_json(edit.tool)
        if offer.profile is not None and tool is not None and not offer.has_tool(tool):
            refusal = offer.profile.refusal("tool", tool.label)
            raise DecisionError(f"the edited call cannot run: {refusal}")

    # -- standing rules ----------------------------------------------------------------------------

    def rule_covering(self, call: int) -> StandingRule | None:
        """Return the standing rule that lets a call run without a question, or None if no rule
        covers the call.
        """
        rules = self._services.standing_rules
        tool = standing_tool(self.machine.history[call])
        if rules is None or tool is None:
            return None
        return rules.covering(self.caller, tool)

    def may_allow_always(self, question: Question) -> bool:
        """Return whether the owner of the run may answer a question with *always*."""
        rules = self._services.standing_rules
        tool = question.standing
        return rules is not None and tool is not None and rules.is_bound(tool, self.bound)

    def rule_given_by(self, event: DecidedEvent) -> StandingRule | None:
        """Return the standing rule that a decision gives, which is not stored yet, or None if it
        gives none.
        """
        if isinstance(event, CallDecided) and event.always is not None:
            return self._new_rule(event)
        return None

    def _new_rule(self, event: CallDecided) -> StandingRule:
        """Return the standing rule that a person gives by approving a call.

        Raises:
            DecisionError: the person may not give this rule, or it cannot be stored.
        """
        rules = self._services.standing_rules
        tool = standing_tool(self.machine.history[event.call])
        if rules is None or tool is None:
            raise DecisionError("a standing rule is not possible here; approve only this call")
        if not rules.is_bound(tool, self.bound):
            raise DecisionError(
                f"a standing rule for {tool.label} is not possible here: its server starts "
                "differently here than in the run that asks; approve only this call"
            )

        owner = person_of(self.caller)
        if event.by.user != owner:
            raise DecisionError(
                f"only {owner}, who owns the run, can choose to always allow a tool for it; "
                "approve only this call"
            )

        try:
            return rules.rule_for(self.caller, tool, event.by)
        except (StandingRuleError, StoreError) as error:
            raise DecisionError(
                f"a standing rule for this tool is not possible: {error}. Approve only this call"
            ) from None

    def give(self, rule: StandingRule, seconds: float = LOCK_SECONDS) -> None:
        """Store a standing rule that a person gave with a decision on this run.

        `seconds` is the maximum time to wait for another process that is changing the rules.

        Raises:
            RulesLockedError: another process is still changing the rules.
            StandingRuleError: the rule cannot be stored. The call runs anyway.
        """
        rules = self._services.standing_rules
        assert rules is not None
        try:
            rules.give(rule, seconds)
        except RulesLockedError:
            raise
        except (StandingRuleError, StoreError) as error:
            raise StandingRuleError(
                f"this call was approved, but no standing rule for {rule.tool.label} was stored: "
                f"{error}"
            ) from None

    def settle_by(self, rule: StandingRule) -> None:
        """Approve the calls in the run and its rooms that are waiting for a person, if the standing
        rule that was just given covers them. A rule given elsewhere in the meantime does not answer
        them.

        If another process drives the run, or the store cannot be written to, the calls keep
        waiting.
        """
        for run in list(self.with_rooms()):
            for question in run.questions():
                if question.call is not None and question.kind == "call":
                    run._settle_by_rule(question, question.call, rule)

    def _settle_by_rule(self, question: Question, call: int, new_rule: StandingRule) -> None:
        rule = self.rule_covering(call)
        if rule is None or rule.covered != new_rule.covered:
            return
        still_asks = any(asked.approval == question.approval for asked in self.questions())
        if not still_asks or self.machine.ended or self.runner.lost is not None:
            return

        event = CallDecided(call, question.digest, "approve", rule.by, rule=rule.cited)
        with contextlib.suppress(InterruptedRunError, StoreError):
            self.drive(event)

    def end_at_limit(self, reason: str) -> None:
        """End the run at a limit that its machine does not track, keeping everything done so
        far.
        """
        self._take()
        self.runner.end_at_limit(reason)

    def end_budget(self, reason: str) -> None:
        """End the outermost run and its rooms, because the budget is used up."""
        try:
            self.root.end_at_limit(reason)
        except (InterruptedRunError, StoreError):
            # The process that continues the outermost run will count the budget again.
            self.end_at_limit(reason)

    def cancel(self, reason: str | None = None) -> None:
        """End the run as `cancelled`; see `end`."""
        self.end("cancelled", reason)

    def end(self, status: EndStatus, reason: str | None = None) -> None:
        """End the run and its calls, keeping everything done so far.

        Raises:
            InterruptedRunError: another process drives the run.
        """
        if self.machine.ended:
            return
        self._expect_alive()
        self._take()
        self.runner.end(
            status, None if reason is None else str(normalise(reason, what="the reason"))
        )

    # -- answers to callers ------------------------------------------------------------------------

    def answer(self, *, whole: bool = False, blocks: Blocks | None = None) -> dict[str, Any]:
        """Return the answer of `run_plan`, `solve`, `submit_solution` and `check_run`.

        Args:
            whole: whether to show all values in full.
            blocks: collects the content blocks from the values before these are shortened.
        """
        status = self.status
        result: dict[str, Any] = {"run": self.id, "status": status}
        unwritten = self.unwritten
        if unwritten is not None:
            # Do not show events that are not in the journal yet, because they could still be lost.
            return {**result, "errors": [], "notes": [unwritten]}

        result.update(self._mind_and_reason())
        result.update(self._values(status, blocks, whole=whole))
        result.update(self._faults(blocks, whole=whole))
        if self.idea is not None:
            result["idea"] = self.idea

        result.update(self._open_questions(status))
        result.update(self._remarks(whole=whole))
        result["usage"] = self._usage()
        return result

    def _mind_and_reason(self) -> dict[str, Any]:
        """Return the part of the answer that names the mind, and says why the run has ended or
        cannot continue.
        """
        part: dict[str, Any] = {}
        # In the run of a plan, only rooms ask minds.
        minded = self if self.machine.mode == "solve" else next(self.open_requests(), None)
        if minded is not None:
            part["mind"] = {"name": minded.turns.mind or "turns"}
            if minded.turns.why:
                part["mind"]["why"] = minded.turns.why

        reason = self.runner.lost or self.machine.reason
        if reason:
            part["reason"] = reason

        return part

    def _values(self, status: RunStatus, blocks: Blocks | None, *, whole: bool) -> dict[str, Any]:
        """Return the part of the answer with the output, the state and the results."""
        machine = self.machine
        part: dict[str, Any] = {}
        if machine.has_output:
            if whole:
                part["output"] = machine.output
            else:
                part["output"] = values.short_output(machine.output, blocks)
            if machine.mode == "solve" and machine.has_state:
                part["state"] = machine.state if whole else values.short_state(machine, blocks)
        elif status != "needs_solution":
            part["state"] = machine.state if whole else values.short_state(machine, blocks)
            results = values.results_of(machine, whole=whole, blocks=blocks)
            if results:
                part["results"] = results

        # While the run is waiting for a solution, its Request shows what was printed, so leave it
        # out.
        printed = "" if machine.awaits_solution else "".join(machine.solution.printed)
        if printed:
            part["printed"] = printed if whole else values.short_printed(printed)

        return part

    def _faults(self, blocks: Blocks | None, *, whole: bool) -> dict[str, Any]:
        """Return the part of the answer with the errors and the skipped calls."""
        skipped = self.skipped
        if whole:
            part: dict[str, Any] = {"errors": self.errors()}
            shown = skipped
        else:
            part = {"errors": values.short_errors(self.machine, blocks)}
            shown = skipped[:_NOTES]

        if skipped:
            part["skipped"] = shown
        if len(skipped) > len(shown):
            part["more_skipped"] = len(skipped) - len(shown)

        return part

    def _open_questions(self, status: RunStatus) -> dict[str, Any]:
        """Return the part of the answer with the open Requests and approvals."""
        part: dict[str, Any] = {}
        if status == "needs_solution":
            if self.machine.awaits_solution:
                part["turn"] = self.turn
            asking = [(run, run.runner.request) for run in self.open_requests()]
            part["requests"] = [
                self._request(run, request) for run, request in asking if request is not None
            ]

        if status in ("needs_approval", "running", "needs_solution") or self._is_blocked:
            approvals = self.approvals()
            if approvals or status == "needs_approval":
                part["approvals"] = approvals

        return part

    def _remarks(self, *, whole: bool) -> dict[str, Any]:
        """Return the part of the answer with decisions, grants, doubts, content blocks and
        notes.
        """
        machine = self.machine
        part: dict[str, Any] = {}
        if machine.decisions:
            part["decided"] = [
                f"{subject}: {how} by {by}" for subject, how, by in machine.decisions[-_NOTES:]
            ]

        if machine.grants.given:
            part["grants"] = [grant.to_json() for grant in machine.grants.given[-_NOTES:]]

        part.update(values.doubts_of(machine, None if whole else _NOTES))
        contents = values.contents_of(machine)
        if contents and whole:
            part["content"] = contents

        notes: list[JSON] = [text for progress in machine.history for text in progress.unasked]
        notes += [
            f"calls[{place}] sent more than its value; read it at {values.CONTENT}{place}"
            for place in contents
        ]
        if notes:
            part["notes"] = notes[:_NOTES]

        return part

    def _usage(self) -> dict[str, Any]:
        """Return the part of the answer that says what the run has used, such as tokens and
        seconds.
        """
        part: dict[str, Any] = {}
        asking = next((run for run in self.with_rooms() if run.machine.awaits_mind), None)
        if asking is not None and asking.runner.request is not None:
            part["request"] = _cost_of(asking.runner.request)

        # Requests that are answered turn by turn are not counted in `spent`, because the client's
        # model answers them and its tokens are unknown.
        spent = self.spent()
        in_rooms = self.machine.usage.requests + sum(
            room.spent().requests for room in self.rooms.values()
        )
        part["requests"] = self.requests + in_rooms
        part["tokens"] = spent.tokens
        if spent.cost:
            part["cost"] = spent.cost
        if spent.partial:
            part["partial"] = spent.partial
        if spent.estimated:
            part["estimated_tokens"] = spent.estimated

        return part

    def _request(self, asking: Run, request: Request) -> JSONObject:
        result: JSONObject = {"id": request.id}
        instructions = turns_instructions(request.schema)
        if asking is not self:
            # Turn by turn, a single model answers the Requests of the run and of its rooms, so say
            # which one is meant.
            result.update({"run": asking.id, "turn": asking.turn})
            instructions = f"{_ROOM.format(run=asking.id, turn=asking.turn)} {instructions}"
        return {
            **result,
            "instructions": instructions,
            "context": list[JSON](request.texts),
            "schema": request.schema,
        }

    def summary(self) -> StoredSummary:
        """Return the summary of an ended run for its row in the store. This runs in the event loop,
        so it must not encode the values of the run.

        A process that did not run the calls can call this after reading the run from its journal,
        so the summary must use only what `Registry._read_whole` restores: the machine, the turns,
        the questions and `idea`. The times of events are not restored. A member that needs them
        must be computed from the journal where the row is written: in `Journal.set_status`, which
        `Driver.leave` calls.
        """
        machine = self.machine
        return StoredSummary(
            idea=self.idea,
            errors=len(machine.errors),
            denied=caused_by_denials(machine.errors),
            not_run=not_run(machine.errors),
            reason=machine.reason,
        )

    @property
    def state(self) -> JSONObject:
        """The current state, or a mapping of instance to state if the run has instances. Raises
        `UnwrittenRunError` in the same cases as `value`.
        """
        self._expect_written()
        return self.machine.state

    @property
    def assumed(self) -> list[JSONObject]:
        """The assumptions that nobody has confirmed, each as `{"at", "taken"?, "from"?, "instead"?,
        "why"}`.
        """
        return self.machine.doubts.assumed

    @property
    def approved(self) -> list[JSONObject]:
        """The assumptions that a person or approver has confirmed, in the form of `assumed`, with
        the member `approved`, which says who confirmed the assumption.
        """
        return self.machine.doubts.approved

    @property
    def noted(self) -> list[JSONObject]:
        """Notes on what is uncertain about the run but hardly ever wrong, such as a value of a kind
        that no earlier run had read.

        Each note is `{"at": reference or place, "what", "mild"?: true}`. If a note is not mild, a
        call that changes something asks for approval first.
        """
        return self.machine.doubts.notes

    def errors(self) -> list[dict[str, Any]]:
        """Return the errors of the last Solution, each as `{"call", "place", "error"}`, where
        `error` is `{"kind", "message", "sent"?}`.
        """
        return self.machine.errors

    @property
    def skipped(self) -> list[JSONObject]:
        """The calls in the last Solution that were skipped because they read a path that was not
        chosen, each as `{"place", "tool", "instance"?, "why"}`. Skipped calls are not errors.
        """
        return values.skipped_calls(self.machine)

    def pending(self) -> list[ApprovalRequest]:
        """Return the questions of the run and its rooms that are waiting for a person. To settle a
        question, pass its `approval` to `decide`.

        Questions that an approver is deciding on are left out.
        """
        requests = self.people.requests()
        for room in self.rooms.values():
            requests.extend(
                dataclasses.replace(request, approval=f"{room.call_name}/{request.approval}")
                for request in room.pending()
            )
        return requests

    def approvals(self) -> list[JSON]:
        """Return every pending approval as JSON for assistants; see `Question.to_json`.

        `plan` contains the plan of a lazy run, in the form of `WaitingPlan.to_json`. Approval ids
        of a room have the form `CALL/approval`.
        """
        entries: list[JSON] = []
        for question in self.questions():
            entry = question.to_json()
            if question.kind == "plan" and self.plan is not None:
                entry["plan"] = self.plan.to_json()
            entries.append(entry)

        for room in self.rooms.values():
            entries.extend(
                {**asked, "approval": f"{room.call_name}/{asked['approval']}"}
                for asked in room.approvals()
                if isinstance(asked, dict)
            )

        return entries

    @property
    def plan(self) -> WaitingPlan | None:
        """The plan of a lazy run while it is waiting to be accepted, otherwise None."""
        return waiting_plan(self.machine)

    def questions(self) -> list[Question]:
        """Return the questions of the run that are waiting for a person, without those of its
        rooms.
        """
        return questions(self.machine)

    def given(self) -> JSON:
        """Return the result of the run as a function; see `values.given_by`."""
        self._expect_written()
        return values.given_by(self.machine)

    def value(self, text: str) -> Any:
        """Return the current value at a reference: `†state.log`, `†results.3`, `†①.state.x`,
        `†output`.

        Raises:
            ReferenceSyntaxError: the string is not a reference.
            UnknownPathError: the reference has no value.
            ArgumentError: the reference is not a string.
            UnwrittenRunError: the latest values are not in the journal yet. `await run.wait()`
                waits for them.
        """
        check_text("reference", text)
        self._expect_written()
        return values.value_at(self.machine, text)

    @property
    def unwritten(self) -> str | None:
        """Why the latest events of the run, or of a room, are not in the journal yet, or None if
        they are.

        Until they are written, these events have no effect, the run is `running`, and its values
        are not shown.
        """
        if not self.is_behind:
            return None
        trouble = self.driver.trouble
        if trouble is None:
            return "the run's last events are being written to the store"
        return (
            f"the store cannot be written right now ({trouble}). This process keeps everything "
            "that the calls returned in memory, and writes it as soon as possible; then the run "
            "continues"
        )

    def _expect_written(self) -> None:
        reason = self.unwritten
        if reason is not None:
            raise UnwrittenRunError(f"run {self.id}: {reason}")

    def calls(self) -> list[Progress]:
        """Return every call of the run, in the order of listing."""
        return self.machine.history

    # -- the run with its rooms --------------------------------------------------------------------

    @property
    def call_name(self) -> str:
        """The last part of a room's id, which is the name of the call that the room answers."""
        return self.id.rpartition(".")[2]

    def open_requests(self) -> Iterator[Run]:
        """Return the run and its rooms, at any depth, that are waiting for a solution."""
        return (
            run
            for run in self.with_rooms()
            if run.machine.awaits_solution and run.runner.lost is None
        )

    def spent(self, *, under_way: bool = False) -> Spending:
        """Return the usage of the run and all its rooms, open or ended.

        If `under_way` is set, include the usage so far of answers that are about to be interrupted.
        """
        machine = self.machine
        own = self.machine.usage
        answered = machine.requests if machine.mode == "solve" else 0
        total = Spending(
            own.input_tokens,
            own.output_tokens,
            own.cost,
            None,
            own.requests + answered,
            own.calls + len(machine.history),
            own.partial,
            own.estimated,
        )
        answer = self.runner.unreported if under_way else None
        usage = None if answer is None else answer.so_far()
        if usage is not None:
            total.add(usage.to_json())

        for room in self.rooms.values():
            total.add_room(room.spent(under_way=under_way).to_json())

        return total

    def used_in_rooms(self, key: ExecutionKey | None) -> JSONObject | None:
        """Return the usage of the open rooms that are about to end, or None if they have used
        nothing. If `key` is None, the rooms of all calls count.
        """
        total = Spending()
        for room_key, room in self.rooms.items():
            if key is None or room_key == key:
                total.add_room(room.spent(under_way=True).to_json())
        return total.to_json() or None

    def over_budget(self) -> str | None:
        """Return why the run and its rooms must end, or None if they are within the budget."""
        settings = self.machine.settings
        spent = self.spent()
        if spent.requests > settings.requests:
            return (
                f"{settings.requests:,} requests were made, which is the limit for a run and its "
                "rooms"
            )

        if spent.calls > settings.calls:
            return (
                f"{settings.calls:,} calls were listed, which is the limit for a run and its rooms"
            )
        return spent.over(settings)

    def too_dear(self, request: Request) -> str | None:
        """Return why a Request must not be sent, or None if it may be sent.

        It must not be sent if even its minimum cost exceeds the run's remaining budget.
        """
        most = self.machine.settings.tokens
        if most is None:
            return None

        spent = self.root.spent()
        left = most - spent.tokens - spent.estimated
        if request.least_tokens <= left:
            return None
        return (
            f"the next request has at least {request.least_tokens:,} tokens (an estimate from "
            f"{request.text_size:,} bytes of text), but only {max(left, 0):,} of {most:,} are "
            f"left; {request.largest()}"
        )

    def as_call(self) -> CallFinished:
        """Return the event that hands the result of an ended room to its call."""
        machine = self.machine
        index, item = self.key
        spent = self.spent().to_json()
        if machine.has_output or (
            machine.mode == "plan" and machine.status == "done" and not machine.errors
        ):
            return CallFinished(
                index,
                item,
                value=values.given_by(machine),
                spent=spent,
                doubts=machine.doubts.to_json(),
            )

        reason = f": {machine.reason}" if machine.reason else ""
        errors = f"\n{rejection(machine.errors)}" if machine.errors else ""
        message = f"its room {self.id} ended without a result, {machine.status}{reason}{errors}"[
            :4000
        ]
        # If the outcome of a call in the room is unknown, so is the outcome of the call that opened
        # it.
        kinds = {
            str((progress.error or {}).get("kind"))
            for progress in machine.history
            if progress.status is CallStatus.FAILED
        }
        kind = next((kind for kind in UNCERTAIN if kind in kinds), "runtime")
        return CallFinished(
            index,
            item,
            error={"kind": kind, "message": message},
            spent=spent,
            doubts=machine.doubts.to_json(),
        )

    # -- ideas -------------------------------------------------------------------------------------

    def save_step(self, request: Request, stored: JSONObject, outcome: str) -> SaveIdea:
        """Return a function that saves the idea of a Solution that has run.

        The function is called in the transaction that writes the events of the next step. The
        idea's parent is the idea of the previous step, or the idea from which the run began.

        Args:
            request: the Request of the step.
            stored: the Solution of the step, in the form that satisfies the schema.
            outcome: how the step ended, or `open` if another Request follows.
        """
        machine = self.machine
        solution = machine.solution
        idea = Idea.of(request, stored)
        written = solution.to_json()
        is_kept = written != stored and len(encode(written)) <= _WRITTEN
        # Once the next Request is due, the machine already counts the next step.
        place = machine.step if machine.phase == "asking" else machine.step + 1
        tools = tuple(tool_names(solution.calls))
        mind = ""
        model = ""
        if machine.mode == "solve":
            own = self.runner.mind
            mind, model = self.turns.authors.get(
                place - 1, ("turns" if own is None else own.name, "")
            )

        usage = dict(machine.usage.last or {})
        model = str(usage.pop("model", model))
        meta = IdeaMeta(
            run=self.id,
            step=place,
            parent=self.idea or self.turns.idea,
            mind=mind,
            model=model,
            usage=usage,
            fingerprint=self._services.in_force.fingerprint,
            title=_first_line(machine.messages) or title_of_tools(tools),
            tools=tools,
            outcome=outcome,
            written=written if is_kept else None,
        )

        def save() -> None:
            # If the transaction is rolled back, the next attempt computes the same id, because the
            # id depends only on the content.
            self.idea = self._services.store.ideas.save(idea, meta)

        return SaveIdea(save, is_large=request.stored_size > LARGE_VALUE)


def _first_line(messages: Iterable[Message]) -> str:
    """Return the first line of the first text among some messages, or "" without a text."""
    for message in messages:
        if message.type == "text" and isinstance(message.value, str):
            line, _, _ = message.value.strip().partition("\n")
            return line[:200]

    return ""


def _cost_of(request: Request) -> JSONObject:
    """Return the cost of a Request that a mind is answering, in bytes and estimated tokens."""
    return {"bytes": request.size, "about_tokens": request.about_tokens}
