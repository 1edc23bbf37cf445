"""Drive one machine, perform its effects with anyio, and run its calls.

`Runner.post` receives events. The machine applies them first, because an event that the machine
refuses must not reach the journal. Then `perform` repeats three steps until no effect is due:

1. Post the event that acknowledges each effect that is due (`Execute` with `CallStarted`, `AskMind`
   with `RequestMade`).
2. Journal all events that the machine has applied, in one transaction with the ideas of the steps
   that ended.
3. Call the watchers, start the calls, and let the mind answer.

So no effect is performed before its event is in the journal. If a write is queued, the runner waits
for the write. If the journal cannot be written, or the code has a defect, this process abandons the
run (`fail`), and another process can continue it from the journal.

`RunningCalls` runs each call in its own task, and posts the results. Results that arrive in the
same pass of the event loop are posted together, but large results are posted one at a time.
`CallAsker` journals what a running call's server asks, and waits for the answer.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio import TaskHandle
from anyio.abc import TaskGroup
from anyio.lowlevel import RunVar

from ideabridge.bridge.context.answer import AnswerReader, CallPiece, EndPiece, OutputPiece, Piece
from ideabridge.bridge.context.errors import HandlerError
from ideabridge.bridge.context.inquiry import FormAnswer, Inquiry
from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.context.mind import Closing, Counting, Mind, MindError, Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.driving.driver import Driver, SaveIdea, is_large_value
from ideabridge.bridge.driving.queue import Queue
from ideabridge.bridge.errors import SecretGivenError
from ideabridge.bridge.loop.effect import (
    Allow,
    AskApproval,
    AskMind,
    AskPlan,
    Cancel,
    Commit,
    Effect,
    Execute,
    ExecutionKey,
    Finish,
)
from ideabridge.bridge.loop.event import (
    MODULE,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    ConfigurationChanged,
    EndStatus,
    Event,
    GroupCommitted,
    JournalError,
    MessageAdded,
    OutputProposed,
    PlanAsked,
    ProgramProposed,
    QuestionAnswered,
    QuestionRefused,
    RequestMade,
    RunEnded,
    SolutionClosed,
    UsageNoted,
)
from ideabridge.bridge.loop.machine import Machine, finish_events, resume_events
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.question import asked
from ideabridge.bridge.loop.request import Composer
from ideabridge.bridge.minds.choice import TURNS
from ideabridge.bridge.modules.client_session import ClientSession, set_client_session
from ideabridge.bridge.programs.runner import DivergedError, ProgramRunner
from ideabridge.bridge.programs.sandbox import Sandbox, Step
from ideabridge.bridge.runs.binding import Binding
from ideabridge.bridge.runs.executor import (
    CallContext,
    CallingRun,
    Executor,
    KeptBytes,
    RunObserver,
)
from ideabridge.bridge.runs.starts import program_of_mind
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.standing_rules import StandingRule
from ideabridge.bridge.store.errors import StaleDriverError, StoreError
from ideabridge.tools.encoding import JSON, JSONObject, normalise
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.turns import asked_by

_CHARACTERS: Final = 500
"""The maximum length, in characters, of a defect's message in a run's report."""

_MOST_PAUSE: Final = 2.0
"""The maximum pause, in seconds, between posting two large results."""

logger = logging.getLogger(__name__)

Watcher: TypeAlias = Callable[[Event], None]
"""A function that is called with every event after it was applied and journaled."""

ReportedProgress: TypeAlias = Callable[[int, float, float | None, str | None], None]
"""A function that is called with (call, progress, total, message) when an activity or a server
reports progress.
"""


class _Run(Protocol):
    """The part of a run that its runner uses, such as the rooms and the budget; see `Run`. The run
    creates its runner.
    """

    id: str
    caller: str

    @property
    def is_orphan(self) -> bool: ...
    @property
    def parent(self) -> object | None: ...
    def save_step(self, request: Request, stored: JSONObject, outcome: str) -> SaveIdea: ...
    def too_dear(self, request: Request) -> str | None: ...
    def rule_covering(self, call: int) -> StandingRule | None: ...
    def end_budget(self, reason: str) -> None: ...
    def rest(self) -> None: ...
    def hand_over(self) -> None: ...
    async def open_room(self, effect: Execute) -> None: ...
    def used_in_rooms(self, key: ExecutionKey | None) -> JSONObject | None: ...
    def note_waiting(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Folded:
    """A machine folded from a journal, and everything else that the journal determines.

    Attributes:
        machine: the machine.
        composer: the composer of the last Request.
        request: the last Request, or None before the first one.
        failed: the error that prevented the composition of the Request, or None.
    """

    machine: Machine
    composer: Composer
    request: Request | None
    failed: HandlerError | None


def fold(machine: Machine, composer: Composer, events: Sequence[Event]) -> Folded:
    """Apply the events in a journal to a machine.

    Raises:
        JournalError: an event does not fit.
    """
    asked = [number for number, event in enumerate(events) if isinstance(event, RequestMade)]
    request: Request | None = None
    failed: HandlerError | None = None
    for number, event in enumerate(events):
        if asked and number == asked[-1] and isinstance(event, RequestMade):
            # Compose the Request at its own event, because the machine holds its content only until
            # it is answered.
            try:
                request = composer.compose(machine, event)
            except HandlerError as error:
                failed = error

        machine.receive(event)

    return Folded(machine, composer, request, failed)


class Runner:
    """Drives one machine.

    Args:
        machine: a new machine, or one that was folded from a journal.
        driver: writes the journal.
        screen: searches events for secrets before the machine applies them.
        group: the task group of the calls, which outlives the run.
        kept_bytes: limits the size of the results. A room shares it with its parent.
        sandbox: runs programs.
        queue: decides whether this process performs the effects.
        mind: answers the Requests, or None if someone submits the Solutions turn by turn.

    Attributes:
        request: the Request that is waiting for an answer or was answered last.
        lost: why the run cannot continue in this process. None while the run can continue, and
            after it has ended. Only the runner sets this.
        binding: decides which tools a run that was read from its journal can call in this process.
            None if the run can call all of them.
        failure: the error that made this process abandon the run.
        is_following: True while the watchers receive events that a different process has journaled.
        waiting: the number of tasks that are waiting for a change.
        unreported: the answer in progress, if it can report its usage so far but has not yet done
            so.
        observers: watch the run while this process drives it.
        session: the session of the client that began the run in this process; see
            `client_session`.
    """

    def __init__(
        self,
        machine: Machine,
        run: _Run,
        driver: Driver,
        *,
        executor: Executor,
        composer: Composer,
        screen: Screen,
        group: TaskGroup,
        kept_bytes: KeptBytes,
        sandbox: Sandbox,
        queue: Queue,
        mind: Mind | None = None,
    ) -> None:
        self._run = run
        self.caller = run.caller
        self.session: ClientSession | None = None
        self._driver = driver
        self._queue = queue
        self.machine = machine
        self.mind = mind
        self.request: Request | None = None
        self.kept_bytes = kept_bytes
        self.progress_watchers: list[ReportedProgress] = []
        self._calls = RunningCalls(self, executor, group)
        self.program = ProgramRunner(
            machine,
            sandbox,
            group,
            run.caller,
            count_call=kept_bytes.list_call,
            take=self._take_steps,
        )
        self.watchers: list[Watcher] = [self._calls.watch]
        self.lost: str | None = None
        self.binding: Binding | None = None
        self.failure: Exception | None = None
        self.is_following = False
        self.waiting = 0
        self.unreported: Counting | None = None
        self._executor = executor
        self._composer = composer
        self._screen = screen
        self._group = group
        self._answering: TaskHandle[None] | None = None
        self._taken: list[Event] = []
        self._ideas: list[SaveIdea] = []
        # The events and ideas that are being written, and the effects to perform afterwards.
        self._batch: list[Event] | None = None
        self._saved: list[SaveIdea] = []
        self._effects_after_write: Sequence[Effect] = ()
        self._ending: tuple[EndStatus, str | None] | None = None
        self._stops = False
        self._leaves_program = False
        self._answers = False
        self._closed = False
        self._changed = anyio.Event()
        self.observers: Sequence[RunObserver] = ()
        machine.has_mind = mind is not None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def wanted(self) -> bool:
        """Whether the run can still receive events in this process."""
        return self.lost is None and not self.machine.ended and not self._run.is_orphan

    def mark_lost(self, why: str) -> None:
        """Prevent the run from continuing in this process. If work for the run is in progress, use
        `abandon` instead.
        """
        self.lost = why

    @property
    def is_behind(self) -> bool:
        """Whether events that the machine has applied are not in the journal yet. Such events have
        no effects until they are written.
        """
        return self._batch is not None and self.lost is None

    # -- receiving events --------------------------------------------------------------------------

    def post(self, *events: Event) -> None:
        """Apply events, journal them, and perform the effects that follow.

        Raises:
            StaleDriverError: another process drives the run now. Nothing was done, and this process
                abandons the run.
            StoreError: the journal could not be written. This process abandons the run, which can
                be resumed later.
            JournalError: an event does not fit the state of the run. Neither this event nor any
                later one was applied.
            Exception: ideabridge or a handler has a defect. This process abandons the run.
            SecretGivenError: the events contain a secret. None of them was applied.
        """
        admitted = self._screen.admit(events)
        try:
            try:
                self._take(admitted)
            except JournalError:
                # The events before the rejected one have been applied, so perform their effects.
                self.perform()
                raise
            self.perform()
        except JournalError:
            raise
        except Exception as error:
            # The machine has applied events that are not in the journal. The journal is what
            # counts, so the run must be read from it again.
            self.fail(error)
            raise

    def _take(self, events: Sequence[Event]) -> None:
        """Let the machine apply events before they are journaled, because events that it refuses
        must not reach the journal.
        """
        for event in events:
            self.machine.receive(event)
            self._taken.append(event)

    def _write(self, effects: Sequence[Effect] = ()) -> bool:
        """Journal all events that the machine has applied, or none of them, and then perform
        `effects`.

        Returns:
            False if the write is queued, in which case the effects are performed after the write.
        """
        events = self._taken
        self._taken = []
        ideas = self._ideas
        self._ideas = []
        self._batch = events
        self._saved = ideas
        self._effects_after_write = effects
        try:
            if not self._driver.journal(events, ideas, self._written):
                return False
        except BaseException:
            self._batch = None
            raise

        self._act()
        return True

    def _written(self, error: Exception | None) -> None:
        """Continue after a queued write has succeeded or failed."""
        if self._closed:
            self._batch = None
            return

        given_up = self.lost is not None
        if error is not None:
            self._batch = None
            if given_up:
                # Keep the first reason for the failure. The last write is no longer queued, so wake
                # the tasks that are waiting for it.
                self.poke()
            else:
                self.fail(error)

            return

        try:
            self._act()
            if not given_up:
                self.perform()
        except Exception as failure:  # noqa: BLE001 - an error must end only this run
            self.fail(failure)

    def _act(self) -> None:
        """Report the events that were journaled, and perform the effects that follow from them."""
        events = self._batch or ()
        self._batch = None
        effects = self._effects_after_write
        self._effects_after_write = ()
        self._notify(events)
        if self._stops:
            self._stop()

        if self.lost is not None or self._ending is not None:
            return

        for effect in effects:
            if isinstance(effect, Cancel):
                self._calls.cancel(effect.key)

        for effect in effects:
            if isinstance(effect, Execute):
                self._start(effect)

        if any(isinstance(effect, AskMind) for effect in effects):
            self._let_answer()

        if self.drives:
            self._drive_program()

    def _notify(self, events: Sequence[Event]) -> None:
        changed = self._changed
        self._changed = anyio.Event()
        changed.set()
        watchers = list(self.watchers)
        for event in events:
            for watcher in watchers:
                watcher(event)

        if self.observers and not self.is_following:
            for observer in self.observers:
                observer.see(events)

    def poke(self) -> None:
        """Wake all tasks that are waiting for the run to change."""
        self._notify(())

    def explain_own(self, error: Exception) -> JSONObject:
        """Return the error that a mind sees if a call fails in ideabridge's own code.

        Defects are logged, and reported as such.
        """
        if isinstance(error, IdeabridgeError) and not isinstance(error, HandlerError):
            return self._executor.explain(error)
        return {"kind": "runtime", "message": cause(error, self._screen.mask)}

    async def wait_changed(self) -> None:
        """Wait for the next event, whether from this process or from the process that drives the
        run.
        """
        changed = self._changed
        self.waiting += 1
        try:
            self._run.note_waiting()
            await changed.wait()
        finally:
            self.waiting -= 1

    async def wait_written(self) -> None:
        """Wait until everything that the machine has applied is in the journal, or this process
        abandons the run.
        """
        while self.is_behind:
            await self.wait_changed()

    def begin(self, *events: Event) -> None:
        """Journal the first events of a run, the very first of which the machine has already
        applied, and perform the effects that follow.

        In the agent loop, this makes the first Request, which the remaining events answer.

        Raises:
            SecretGivenError: the events contain a secret. Nothing was journaled.
        """
        first, *rest = self._screen.admit(events)
        self._taken.append(first)
        if rest and self.machine.mode == "solve":
            try:
                self._take([self._acknowledge(AskMind(self.machine.step))])
            except HandlerError as error:
                self._keep(error)
                return

        self._take(rest)
        self.perform()

    # -- performing effects ------------------------------------------------------------------------

    def perform(self) -> None:
        """Journal the events that were applied, and perform every effect that is due.

        All unblocked calls start together, and the events that unblocked them are journaled with
        their start. While a write is queued, this method does nothing, and `_written` calls it
        again after the write. If a message handler fails, the events so far are journaled, and this
        process abandons the run.
        """
        try:
            self._perform()
        except HandlerError as error:
            self._keep(error)

    def _keep(self, error: HandlerError) -> None:
        """Journal the events that were applied before a message handler failed, and abandon the run
        in this process.

        Raises:
            HandlerError: the run is a room that has not begun, so its call fails.
        """
        if self._run.parent is not None and not self._driver.is_created:
            raise error
        # Forget the idea of the last step, which is saved when the next Request is made.
        self._ideas = []
        if self._taken:
            self._write()
        self.fail(error)

    def _perform(self) -> None:
        while self._batch is None:
            if self._ending is not None and not self._taken:
                self._take_end(*self._ending)
            # A room that is about to be ended must not use any more of the budget, because its
            # usage has already been counted.
            if self._ending is not None or self._run.is_orphan:
                due = []
            else:
                due = self.machine.due()
            if not self.drives:
                due, is_left = self._without_work(due)
                if is_left and not due and not self._taken:
                    self._run.hand_over()
                    return
            # An idea may be saved only once its events are in the journal.
            answered = self.request is not None or self.machine.mode == "plan"
            closes = answered and any(
                isinstance(due_effect, AskMind | Finish) for due_effect in due
            )
            if self._taken and (closes or not due):
                if not self._write():
                    return
                continue
            if not due:
                self._run.rest()
                return
            self._take([self._acknowledge(effect) for effect in due])
            for effect in due:
                if isinstance(effect, Cancel):
                    self._calls.ignore(effect.key)
            if not self._write(due):
                return

    def _without_work(self, due: list[Effect]) -> tuple[list[Effect], bool]:
        """Return the effects that this process performs, and whether the rest is left to another
        process.
        """
        if self.machine.program is not None and self._taken:
            # The other process continues the program with these events.
            self._leaves_program = True
        own_effects: list[Effect] = [
            effect
            for effect in due
            if not (isinstance(effect, Execute) or (isinstance(effect, AskMind) and self.mind))
        ]
        return own_effects, len(own_effects) < len(due) or (
            self._leaves_program and not self.machine.ended
        )

    @property
    def drives(self) -> bool:
        """Whether this process performs the effects of the run. Otherwise, it hands the run
        over.
        """
        return self._queue.drives(self._run.id)

    @property
    def is_busy(self) -> bool:
        """Whether this process is doing work for the run that cannot be interrupted without
        loss.
        """
        return self.is_behind or self._calls.are_running or self._answers or self.program.computes

    def leave_work(self) -> None:
        """Hand the run over if a different process should continue it. Called whenever work for the
        run has ended in this process.
        """
        if not self.drives and self.wanted and not self.is_behind:
            self.perform()

    def _take_end(self, status: EndStatus, reason: str | None) -> None:
        self._ending = None
        if self.machine.ended:
            return

        if self.machine.phase == "solving":
            self._finish_step(status)

        self._take(self._screen.admit([RunEnded(status, reason, self._run.used_in_rooms(None))]))
        self._stops = True

    def _start(self, effect: Execute) -> None:
        if effect.call.room is not None:
            self._group.start_soon(self._run.open_room, effect)
        else:
            self._calls.start(effect)

    def _acknowledge(self, effect: Effect) -> Event:
        match effect:
            case Execute():
                return CallStarted(effect.call.index, effect.item)
            case AskApproval():
                return self._answer_question(effect)
            case Allow():
                return CallDecided(
                    effect.call.index, effect.digest, "approve", effect.by, granted=effect.granted
                )
            case AskPlan():
                return PlanAsked(effect.approval, effect.digest, time.time())
            case Cancel():
                return CallFinished(
                    *effect.key, error=effect.error, spent=self._run.used_in_rooms(effect.key)
                )
            case Commit():
                return GroupCommitted(list(effect.calls))
            case AskMind():
                self._finish_step("open")
                self.request = self._composer.compose(self.machine)
                self._expect_choice(self.request)
                return RequestMade.of(effect.step, self.request)
            case Finish():
                self._finish_step(effect.status)
                return RunEnded(effect.status, effect.reason, self._run.used_in_rooms(None))

    def _answer_question(self, effect: AskApproval) -> ApprovalAsked | CallDecided:
        """Return the event that asks a person about a call, or approves the call because a standing
        rule covers it.
        """
        call = effect.call.index
        rule = self._run.rule_covering(call)
        if rule is None:
            return ApprovalAsked(call, effect.approval, effect.digest, time.time())
        return CallDecided(call, effect.digest, "approve", rule.by, rule=rule.cited)

    def _expect_choice(self, request: Request) -> None:
        """Raise an error if a message handler asks for a model in a run that cannot choose its
        model.
        """
        wanted = request.model.get("model")
        if wanted is not None and self.machine.mind_name in (None, TURNS):
            raise HandlerError(
                f"a message handler asks for the model {wanted!r}, but clients answer this run "
                "turn by turn with their own models: configure a model, or leave out "
                "draft.model['model']"
            )

    def _finish_step(self, outcome: str) -> None:
        if self.request is None and self.machine.mode == "plan":
            # A plan has no Request, because no mind was asked for it, so make the Request that a
            # mind would have received.
            self.request = self._composer.compose(self.machine)
        if self.request is not None:
            stored = self._composer.stored(self.machine, self.request)
            self._ideas.append(self._run.save_step(self.request, stored, outcome))

    def _let_answer(self) -> None:
        """Let the run's mind, if any, answer the current Request."""
        if self.mind is not None and self.request is not None:
            self._answering = self._group.start_soon(self._ask, self.mind, self.request)

    # -- the answer of a mind ----------------------------------------------------------------------

    async def _ask(self, mind: Mind, request: Request) -> None:
        if not self.wanted:
            # The run ended before this task began, for example because its budget was used up.
            return

        reason = self._run.too_dear(request)
        if reason is not None:
            self._run.end_budget(reason)
            return

        self._answers = True
        try:
            await self._read_answer(mind, request)
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            self.fail(error)
        finally:
            self._answers = False

        self.leave_work()

    async def _read_answer(self, mind: Mind, request: Request) -> None:
        """Let a mind answer a Request, and post each call and the output as soon as it is complete.

        Errors from the mind are not raised: a `MindError` ends the run, and other errors cut off
        the answer.

        Raises:
            StaleDriverError, StoreError, JournalError: the run could not be journaled.
        """
        answer = AnswerReader()
        parts = mind.answer(request)
        self.unreported = parts if isinstance(parts, Counting) else None
        try:
            async for part in parts:
                if isinstance(part, Usage):
                    self.unreported = None
                    if self.wanted:
                        self.post(UsageNoted(part.to_json()))
                elif not self._take_pieces(answer.feed(part)):
                    return

            self._take_pieces(answer.close())
        except (StaleDriverError, JournalError):
            raise
        except MindError as error:
            if self.wanted:
                self.end("failed", str(self._executor.explain(error)["message"]))
        except Exception as error:  # noqa: BLE001 - an error of a mind ends only its answer
            self._take_pieces([EndPiece(str(self._executor.explain(error)["message"]), {})])
        finally:
            self.unreported = None
            if isinstance(parts, Closing):
                try:
                    await parts.aclose()
                except Exception as error:  # noqa: BLE001 - the part of the answer so far is valid
                    _log(error, self._screen.mask)

    def _take_pieces(self, pieces: Sequence[Piece]) -> bool:
        """Post the events for pieces of an answer. Return False once the answer or the run has
        ended.
        """
        if not self.wanted:
            return False

        events: list[Event] = []
        room = self.machine.calls_left
        for piece in pieces:
            match piece:
                case CallPiece(call) if room > 0:
                    room -= 1
                    events.append(CallProposed(call))
                case CallPiece():
                    most = self.machine.settings.calls
                    events += [
                        *self._usage_so_far(),
                        SolutionClosed(f"a run may list at most {most:,} calls"),
                    ]
                    break
                case OutputPiece(output):
                    events.append(OutputProposed(output))
                case EndPiece():
                    events += [*self._usage_so_far(), self._end_of_answer(piece)]
                    break

        if events:
            self.post(*events)

        return not events or not isinstance(events[-1], SolutionClosed | ProgramProposed)

    def _end_of_answer(self, piece: EndPiece) -> Event:
        """Return the event for the end of an answer. If the answer is a program, this event starts
        the program.
        """
        broken = piece.broken
        extra = piece.extra
        if piece.program is not None:
            mind = None if self.mind is None else self.mind.name
            try:
                return program_of_mind(self.machine, piece.program, self._run.id, extra, mind)
            except IdeabridgeError as error:
                broken = str(error)
                extra = {**extra, "program": piece.program}

        return SolutionClosed(broken, extra or None)

    def _usage_so_far(self) -> list[Event]:
        """Return the usage of an answer that was interrupted before reporting its usage. A second
        call returns nothing.
        """
        answer = self.unreported
        self.unreported = None
        usage = None if answer is None else answer.so_far()
        return [] if usage is None else [UsageNoted(usage.to_json())]

    # -- the program of the run --------------------------------------------------------------------

    def _drive_program(self) -> None:
        """Start the program of the run, or pass it its next result."""
        if not self.wanted:
            self.program.stop()
            return
        try:
            self.program.drive()
        except DivergedError as error:
            self._end_diverged(error)

    def _take_steps(self, steps: Sequence[Step]) -> None:
        """Post the events for what the program has done.

        If the program is now waiting for a result, pass it the next one, or let the run rest until
        there is one.
        """
        if not self.wanted:
            self.program.stop()
            return
        try:
            events = self.program.events(steps)
            if events:
                self.post(*events)
            if self.program.waits and not self.is_behind:
                self.program.feed()
            if self.program.waits:
                self._run.rest()
                self.leave_work()
                self.poke()
        except DivergedError as error:
            self._end_diverged(error)
        except SecretGivenError as error:
            self.post(*self.program.refused(str(error)))
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            self.program.stop()
            self.fail(error)

    def _end_diverged(self, error: DivergedError) -> None:
        self.program.stop()
        self.end("failed", str(error))

    # -- ending the run ----------------------------------------------------------------------------

    def end_at_limit(self, reason: str) -> None:
        """End the run at a limit that the machine does not track, such as wall time, keeping
        everything done so far.
        """
        if self.machine.phase != "ending":
            self.end("limit", reason)

    def end(self, status: EndStatus, reason: str | None = None) -> None:
        """End the run early, keeping everything done so far, and cancel its calls, including remote
        ones.
        """
        if self.machine.ended or self._ending is not None:
            return
        # Ending the run interrupts the answer in progress, so journal the usage of that answer
        # first.
        self._take(self._usage_so_far())
        self._ending = status, reason
        try:
            self.perform()
        except JournalError:
            raise
        except Exception as error:
            self.fail(error)
            raise

    def fail(self, error: Exception) -> None:
        """Stop driving because of an error, and set `lost` to the reason; see `cause`. Each error
        is reported only once.
        """
        if error is not self.failure:
            self.failure = error
            self.abandon(cause(error, self._screen.mask))

    def abandon(self, why: str) -> None:
        """Stop driving without journaling anything, because another process has the run or the
        journal cannot be written.
        """
        self.lost = why
        self._stop()
        self._run.rest()
        self.poke()

    def close(self) -> None:
        """Stop performing effects, because the process is shutting down.

        Queued writes still journal the events that have happened, except the starts of calls.
        """
        self._closed = True
        self.program.stop()
        if self._batch is not None:
            del self._batch[len(self._batch) - len(self._effects_after_write) :]
            self._saved.clear()
            self.lost = "the bridge was closed"

    def _stop(self) -> None:
        self.program.stop()
        self._calls.stop()
        if self._answering is not None:
            self._answering.cancel()

    # -- resuming ----------------------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        """Apply the events in a journal, without journaling events or performing effects.

        Raises:
            JournalError: an event does not fit.
        """
        self.take_folded(fold(self.machine, self._composer, events))

    def take_folded(self, folded: Folded) -> None:
        """Adopt the result of `fold` for this runner's machine."""
        self._composer = folded.composer
        if folded.request is not None:
            self.request = folded.request
        if folded.failed is not None and not self.machine.ended:
            self.mark_lost(cause(folded.failed, self._screen.mask))

    def follow(self, events: Sequence[Event]) -> None:
        """Apply events that another process has journaled, and call the watchers, without
        journaling or performing anything.

        Raises:
            JournalError: an event does not fit.
        """
        self.fold(events)
        self.is_following = True
        try:
            self._notify(events)
        finally:
            self.is_following = False

    def resume(self, changed: ConfigurationChanged | None = None) -> None:
        """Continue after `fold`; see `resume_events`.

        `changed` is the event to journal if the configuration has changed since the run was last
        driven.
        """
        if changed is not None:
            self._take(self._screen.admit([changed]))

        again, events = resume_events(self.machine, time.time())
        for effect in again:
            self._start(effect)

        if self.machine.awaits_mind:
            self._let_answer()

        self.post(*events)
        self._drive_program()


def cause(error: Exception, mask: Callable[[str], str]) -> str:
    """Return a sentence that says why a run cannot continue in this process.

    The message of an `IdeabridgeError` is used unchanged. Any other error, and an event that the
    machine refused, is a defect of ideabridge or of the user's code. In that case, the message says
    so, and the traceback is logged, as when a message handler fails. `mask` removes secrets.
    """
    if isinstance(error, StoreError) and not isinstance(error, StaleDriverError):
        return f"the run's journal could not be written: {error}"

    is_known = isinstance(error, IdeabridgeError) and not isinstance(error, JournalError)
    if is_known and not isinstance(error, HandlerError):
        return str(error)

    message = mask(str(error) if is_known else f"internal error: {type(error).__name__}: {error}")
    _log(error, mask)
    if len(message) <= _CHARACTERS:
        return message
    return f"{message[:_CHARACTERS]}... ({len(message):,} characters)"


def _log(error: Exception, mask: Callable[[str], str]) -> None:
    logger.error("%s", mask("".join(traceback.format_exception(error))).rstrip())


# -- calls -----------------------------------------------------------------------------------------


class RunningCalls:
    """The running calls of one run, each in a task of `group`, which outlives the run."""

    def __init__(self, runner: Runner, executor: Executor, group: TaskGroup) -> None:
        self._runner = runner
        self._executor = executor
        self._group = group
        self._handles: dict[ExecutionKey, TaskHandle[None]] = {}
        self._ended: list[_Ended] = []
        # The digest of the question is part of the key, because a server might ask again before the
        # answer to its last question is in the journal.
        self._waiting: dict[tuple[ExecutionKey, str], _Waiting] = {}
        self._cancelled: set[ExecutionKey] = set()
        self._thread = threading.get_ident()

    @property
    def are_running(self) -> bool:
        """Whether a call is running."""
        return bool(self._handles)

    def start(self, effect: Execute) -> None:
        """Start a call whose start has been journaled."""
        self._handles[effect.key] = self._group.create_task(self._execute(effect))

    def watch(self, event: Event) -> None:
        """Pass an answer to the call that is waiting for it, and release the waiting questions of a
        call that has ended.
        """
        if isinstance(event, QuestionAnswered):
            waiting = self._waiting.pop(((event.call, event.item), event.digest), None)
            if waiting is not None:
                waiting.reply = FormAnswer(event.action, event.content)
                waiting.ended.set()
        elif isinstance(event, CallFinished):
            execution = (event.call, event.item)
            for key, digest in list(self._waiting):
                if key == execution:
                    self._waiting.pop((key, digest)).ended.set()

    def stop(self) -> None:
        """Cancel every call."""
        for handle in list(self._handles.values()):
            handle.cancel()

    def ignore(self, key: ExecutionKey) -> None:
        """Ignore the result of a call, because the machine knows that it was cancelled."""
        self._cancelled.add(key)

    def cancel(self, key: ExecutionKey) -> None:
        """Cancel the task of a call whose cancellation was journaled."""
        handle = self._handles.get(key)
        if handle is not None:
            handle.cancel()

    async def _execute(self, effect: Execute) -> None:
        asked_by.set(self._runner.caller)
        set_client_session(self._runner.session)
        try:
            # The run might have been abandoned before this task began, and a call that is not in
            # the journal must not run.
            if self._runner.wanted and effect.key not in self._cancelled:
                ended = await self._outcome(effect)
                if is_large_value(ended.finished.value):
                    await self._post_in_turn(ended)
                else:
                    await self._post(ended)
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            self._runner.fail(error)
        finally:
            self._handles.pop(effect.key, None)

        self._runner.leave_work()

    async def _post_in_turn(self, ended: _Ended) -> None:
        """Post a large result while no other large result is being posted. Then leave the event
        loop to other tasks for as long as the posting took.
        """
        lock = _lock_of_loop()
        try:
            await lock.acquire()
        except anyio.get_cancelled_exc_class():
            # The call has run, so journal its result even though its task has been cancelled.
            await self._post(ended)
            raise

        try:
            begun = time.monotonic()
            await self._post(ended)
            await anyio.sleep(min(_MOST_PAUSE, time.monotonic() - begun))
        finally:
            lock.release()

    async def _post(self, ended_call: _Ended) -> None:
        """Post the event that ends a call.

        If several calls end in the same pass of the event loop, the task of the first one posts the
        events of all of them.
        """
        self._ended.append(ended_call)
        if len(self._ended) > 1:
            return
        try:
            if len(self._handles) > 1:
                await anyio.lowlevel.cancel_shielded_checkpoint()
        finally:
            ended_calls = [call for call in self._ended if call.key not in self._cancelled]
            self._ended = []
            if ended_calls and self._runner.wanted:
                now = time.time()
                events: list[Event] = []
                for call in ended_calls:
                    events.extend(call.events(self._runner.machine, now))
                self._runner.post(*events)

    async def _outcome(self, effect: Execute) -> _Ended:
        index = effect.call.index
        context = self._context_of(effect)
        try:
            binding = self._runner.binding
            if binding is None or effect.is_latent:
                fault = None
            else:
                fault = binding.fault_of(effect.tool)

            if fault is not None:
                raise ActivityError(f"not run: {fault}")
            with ExitStack() as stack:
                report_results = [
                    stack.enter_context(observer.around(effect))
                    for observer in self._runner.observers
                ]
                value: JSON = await self._executor.execute(effect, context)
                for report_result in report_results:
                    report_result(value)
        except Exception as error:  # noqa: BLE001 - an error fails only the call itself
            # A failure during a cancellation is caused by the cancellation, for example because the
            # server was closed, so it is not the outcome of the call. The call stays in flight in
            # the journal, and the process that resumes the run decides what to do about it.
            await anyio.lowlevel.checkpoint_if_cancelled()
            return _Ended(
                CallFinished(index, effect.item, error=self._executor.explain(error, effect.hints))
            )

        if context.returned is None:
            returned = None
        else:
            returned = MessageAdded(index, context.returned)

        finished = CallFinished(
            index, effect.item, value=value, chosen=context.chosen, content=context.content
        )
        return _Ended(finished, returned)

    def _context_of(self, effect: Execute) -> CallContext:
        """Return the context of a call, which the call uses to report progress and ask
        questions.
        """
        index = effect.call.index

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            for watcher in list(self._runner.progress_watchers):
                watcher(index, progress, total, message)

        def on_message(message: JSONObject) -> None:
            copied = normalise(message, what="the message")
            # Read the message now, so that an invalid one makes its call fail before it reaches the
            # journal.
            read_message(copied)
            added = MessageAdded(
                index, copied if isinstance(copied, dict) else {"role": "user", "content": copied}
            )
            if threading.get_ident() == self._thread:
                add(added)
            else:
                # Post from the event loop, because only its thread uses the machine and a sync
                # activity runs in a worker thread.
                anyio.from_thread.run_sync(add, added)

        def add(added: MessageAdded) -> None:
            if effect.key in self._cancelled:
                return
            if not self._runner.wanted or not self._runner.machine.is_current(index):
                # The activity used its context after it had returned, or left a thread running.
                raise ActivityError(
                    "add_message: the message comes too late, because the solution with this call "
                    "has ended"
                )
            self._runner.post(added)

        module = effect.tool.module
        most_shown = self._runner.machine.shown.largest
        if module is None:
            asker = None
        else:
            asker = CallAsker(self._runner, self._waiting, effect.key, module)

        return CallContext(
            effect,
            on_progress,
            on_message,
            CallingRun(self._runner.run_id, self._runner.caller, self._runner.kept_bytes),
            asker,
            most_shown,
        )


@dataclass(frozen=True, slots=True)
class _Ended:
    """A call that has ended, and the message that it returned, which are journaled together."""

    finished: CallFinished
    returned: MessageAdded | None = None

    @property
    def key(self) -> ExecutionKey:
        return self.finished.call, self.finished.item

    def events(self, machine: Machine, now: float) -> list[Event]:
        """Return the events for the journal. The message comes first, because calls that read its
        data start when this call ends.
        """
        returned: list[Event] = [] if self.returned is None else [self.returned]
        return [*returned, *finish_events(machine, self.finished, now)]


@dataclass(slots=True)
class _Waiting:
    """A call that is waiting for an answer. If the call ends without one, `reply` stays
    `cancel`.
    """

    ended: anyio.Event = field(default_factory=anyio.Event)
    reply: FormAnswer = field(default_factory=lambda: FormAnswer("cancel"))


class CallAsker:
    """The `Asker` of one call: journals the questions of the call's server, and waits for the
    answers.

    Args:
        waiting: the calls in the run that are waiting for an answer, keyed by execution and digest
            of the question.
        key: the execution of the call.
        module: the server that runs the call.
    """

    def __init__(
        self,
        runner: Runner,
        waiting: dict[tuple[ExecutionKey, str], _Waiting],
        key: ExecutionKey,
        module: str,
    ) -> None:
        self._runner = runner
        self._waiting = waiting
        self._key = key
        self._module = module
        self._progress = runner.machine.history[key[0]]

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        """Journal a question, and wait for the answer."""
        if self._runs:
            question = asked(self._progress, self._key[1], inquiry, time.time())
        else:
            question = None

        if question is None or not self._post(question):
            return FormAnswer("cancel")

        waiting = self._waiting[self._key, question.digest] = _Waiting()
        await waiting.ended.wait()
        return waiting.reply

    def refuse(self, message: str, why: str) -> None:
        """Journal a question that is refused without asking anybody. The mind sees that a question
        was asked, but not the server's words.
        """
        if self._runs:
            content = (
                f"server {self._module!r} asked something while it ran "
                f"{self._progress.call.label}: {why}"
            )
            note = MessageAdded(
                self._key[0], {"role": "user", "content": f"{content}. Nobody was asked"}
            )
            self._post(
                QuestionRefused(self._key[0], self._module, message, why, self._key[1]), note
            )

    def withdraw(self) -> None:
        """Journal that the server withdraws its question."""
        # Ask the machine which question is open, because the watchers are not called until an
        # answer has been journaled.
        question = self._progress.items[self._key[1] or 0].inquiry
        if question is not None and (self._key, question.digest) in self._waiting:
            self._post(
                QuestionAnswered(
                    question.call,
                    question.digest,
                    "cancel",
                    MODULE,
                    question.item,
                    reason="the server withdrew its question",
                )
            )

    @property
    def _runs(self) -> bool:
        """Whether the machine considers the call to be running. It learns of a cancellation before
        the journal does.
        """
        progress = self._progress
        item = progress.items[self._key[1] or 0]
        return self._runner.wanted and progress.status is CallStatus.RUNNING and not item.finished

    def _post(self, *events: Event) -> bool:
        """Post events. Return False if the run has ended or was abandoned."""
        if not self._runner.wanted:
            return False

        try:
            self._runner.post(*events)
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            self._runner.fail(error)
            return False

        return True


_lock: Final[RunVar[anyio.Lock]] = RunVar("_lock")


def _lock_of_loop() -> anyio.Lock:
    """Return the lock with which the tasks of an event loop post large results one at a time.

    Posting 8 MB takes up to 1.5 s, so posting 200 such results at once would block the event loop.
    """
    try:
        return _lock.get()
    except LookupError:
        lock = anyio.Lock()
        _lock.set(lock)
        return lock
