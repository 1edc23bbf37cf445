"""Runner: performs the effects of one machine with anyio.

`post` takes events. The machine receives them first, since what it refuses must not reach the journal. Then `perform`
repeats three steps until no effect is due:

1. Acknowledge every effect that is due with its event (`Execute` with `CallStarted`, `AskMind` with `RequestMade`).
2. Journal all events that the machine has taken, in one transaction with the ideas of the steps that ended.
3. Call the watchers, start the calls, and let the mind answer.

So nothing happens before the journal says so. If a write is queued, the runner waits: no effect is performed before the
write is done. An error in the journal, or a defect, gives the run up in this process (`fail`); another process can read
the journal and go on.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, runtime_checkable

import anyio
from anyio import TaskHandle
from anyio.abc import TaskGroup

from ideabridge.bridge.context.answer import AnswerReader, CallPiece, EndPiece, OutputPiece, Piece
from ideabridge.bridge.context.mind import Counting, Mind, MindError, Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.loop.effect import (
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
    ApprovalAsked,
    CallFinished,
    CallProposed,
    CallStarted,
    EndStatus,
    Event,
    GroupCommitted,
    JournalError,
    OutputProposed,
    PlanAsked,
    RequestMade,
    RunEnded,
    SolutionClosed,
    UsageNoted,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.request import Composer
from ideabridge.bridge.loop.resuming import resume_events
from ideabridge.bridge.runs.calls import Calls, ReportedProgress
from ideabridge.bridge.runs.driver import Driver
from ideabridge.bridge.runs.executor import Executor, Kept
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.store.errors import StaleDriverError, StoreError
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError

_CHARACTERS: Final = 500
"""Characters of a defect's message that a run reports."""

logger = logging.getLogger(__name__)

SaveIdea: TypeAlias = Callable[[], None]
"""Saves the idea of a step; called inside the transaction that journals what follows the step."""

Watcher: TypeAlias = Callable[[Event], None]
"""Called with every event after it was journaled and taken."""


class DrivenRun(Protocol):
    """The run that a runner drives: `Run`."""

    @property
    def is_orphan(self) -> bool:
        """Whether the run is a room whose call has ended without it: it is about to be ended too."""
        ...

    def save_step(self, request: Request, outcome: str) -> SaveIdea:
        """The idea of a Solution that has run, to be saved together with the step that follows.

        Args:
            request: the Request it answers.
            outcome: how the step ended; `open` if another Request follows.
        """
        ...

    def rest(self) -> None:
        """Nothing more is due: the run is at work, waits for somebody, or has ended."""
        ...

    async def open_room(self, effect: Execute) -> None:
        """Open the run that answers a call, and post its result."""
        ...

    def used_in_rooms(self, key: ExecutionKey | None) -> JSONObject | None:
        """What the open room of a call has used so far; without a call, all open rooms; None: nothing."""
        ...

    def note_waiting(self) -> None:
        """Somebody begins to wait for a change of the run."""
        ...


class Runner:
    """Drives one machine.

    Args:
        machine: a machine, new or folded from a journal.
        run: the run whose machine it is.
        driver: writes its journal.
        executor: runs the calls.
        composer: composes the Requests.
        screen: looks through events for secrets before they are taken.
        group: task group the calls run in; it outlives the run.
        kept: bounds the bytes of its results; a room shares that of the run it belongs to.
        mind: answers the Requests; None: somebody submits the solutions, by turns.

    Attributes:
        follows: whether the watchers receive events of another process right now.
        waiting: how many wait for a change.
        unreported: the answer under way, if it can report its usage so far and has not reported it yet.
    """

    def __init__(
        self,
        machine: Machine,
        run: DrivenRun,
        driver: Driver,
        *,
        executor: Executor,
        composer: Composer,
        screen: Screen,
        group: TaskGroup,
        kept: Kept,
        mind: Mind | None = None,
    ) -> None:
        self._run = run
        self._driver = driver
        self.machine = machine
        self.mind = mind
        self.request: Request | None = None
        self.kept = kept
        self.progress_watchers: list[ReportedProgress] = []
        self._calls = Calls(self, executor, group)
        self.watchers: list[Watcher] = [self._calls.questions.watch]
        self._lost: str | None = None
        self.follows = False
        self.waiting = 0
        self.unreported: Counting | None = None
        self._executor = executor
        self._composer = composer
        self._screen = screen
        self._group = group
        self._answering: TaskHandle[None] | None = None
        self._failed: Exception | None = None
        self._taken: list[Event] = []
        self._ideas: list[SaveIdea] = []
        # What is being written, and what is done once it is.
        self._batch: list[Event] | None = None
        self._saved: list[SaveIdea] = []
        self._follows: Sequence[Effect] = ()
        self._ending: tuple[EndStatus, str | None] | None = None
        self._stops = False
        self._closed = False
        self._changed = anyio.Event()
        machine.has_mind = mind is not None

    @property
    def wanted(self) -> bool:
        """Whether anything more may come of the run here."""
        return self.lost is None and self.machine.phase != "ended" and not self._run.is_orphan

    @property
    def lost(self) -> str | None:
        """Why the run cannot go on in this process; None: it can, or it has ended."""
        return self._lost

    def interrupt(self, why: str) -> None:
        """Do not go on with a run of which nothing is at work here; see `abandon` for others."""
        self._lost = why

    @property
    def failure(self) -> Exception | None:
        """The error for which the run was given up."""
        return self._failed

    @property
    def is_behind(self) -> bool:
        """Whether the machine has taken events that the journal does not hold yet: nothing follows from them before."""
        return self._batch is not None and self.lost is None

    # -- events in ---------------------------------------------------------------------------------------------

    def post(self, *events: Event) -> None:
        """Take events, journal them, and perform what follows.

        Raises:
            StaleDriverError: another process drives the run now; nothing was done, and nothing more will be.
            StoreError: the journal could not be written; the run is given up here, and can be taken up again.
            JournalError: an event does not fit what the run is doing; it was not taken, nor those after it.
            Exception: a defect, of ideabridge or of a handler it was given; as with `StoreError`.
            SecretGivenError: something in them is secret; none was taken.
        """
        admitted = self._screen.admit(events)
        try:
            try:
                self._take(admitted)
            except JournalError:
                # What was taken before it is so, and goes on.
                self.perform()
                raise
            self.perform()
        except JournalError:
            raise
        except Exception as error:
            # The machine has taken what the journal has not: only the journal counts, and is read again.
            self.fail(error)
            raise

    def _take(self, events: Sequence[Event]) -> None:
        """Let the machine take events. The machine first: what it refuses must not stand in the journal."""
        for event in events:
            self.machine.receive(event)
            self._taken.append(event)

    def _write(self, follows: Sequence[Effect] = ()) -> bool:
        """Journal, all or none, what the machine has taken, and perform what follows from it: not before.

        Returns:
            Whether that is done; else it is done when the journal could be written.
        """
        events, self._taken = self._taken, []
        ideas, self._ideas = self._ideas, []
        self._batch, self._saved, self._follows = events, ideas, follows
        try:
            if not self._driver.journal(events, ideas, self._written):
                return False
        except BaseException:
            self._batch = None
            raise
        self._act()
        return True

    def _written(self, error: Exception | None) -> None:
        """What was kept is journaled now, or cannot be."""
        if self._closed:
            self._batch = None
            return
        given_up = self.lost is not None
        if error is not None:
            self._batch = None
            if given_up:
                # The first reason stays. Whoever waits for the last write is told that it is not queued any more.
                self._notify(())
            else:
                self.fail(error)
            return
        try:
            self._act()
            if not given_up:
                self.perform()
        except Exception as failure:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            self.fail(failure)

    def _act(self) -> None:
        """Report what was journaled, and perform what follows from it."""
        events, self._batch = self._batch or (), None
        follows, self._follows = self._follows, ()
        self._notify(events)
        if self._stops:
            self._stop()
        if self.lost is not None or self._ending is not None:
            return
        for effect in follows:
            if isinstance(effect, Cancel):
                self._calls.cancel(effect.key)
        for effect in follows:
            if isinstance(effect, Execute):
                self._start(effect)
        if any(isinstance(one, AskMind) for one in follows):
            self._let_answer()

    def _notify(self, events: Sequence[Event]) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        watchers = list(self.watchers)
        for event in events:
            for watcher in watchers:
                watcher(event)

    def faults(self, event: Event) -> list[JSONObject]:
        """The secrets that stand in an event; see `Screen.faults`."""
        return self._screen.faults(event)

    def poke(self) -> None:
        """Wake whoever waits for a change: something that belongs to the run has changed."""
        self._notify(())

    def explain(self, error: Exception) -> JSONObject:
        """An error as a mind sees it; see `Executor.explain`."""
        return self._executor.explain(error)

    def explain_own(self, error: Exception) -> JSONObject:
        """What hindered our own work on a call, as a mind sees it: a defect is named as one, and logged."""
        if isinstance(error, IdeabridgeError):
            return self.explain(error)
        return {"kind": "runtime", "message": cause(error, self._screen.mask)}

    async def wait_changed(self) -> None:
        """Wait for the next event, of this process or of the one that drives the run."""
        changed = self._changed
        self.waiting += 1
        try:
            self._run.note_waiting()
            await changed.wait()
        finally:
            self.waiting -= 1

    async def wait_written(self) -> None:
        """Wait until the journal holds everything that the machine has taken, or the run is given up."""
        while self.is_behind:
            await self.wait_changed()

    def begin(self, *events: Event) -> None:
        """Journal the first events of a run whose machine has taken the first already, and perform what follows.

        Raises:
            SecretGivenError: something in them is secret; nothing was journaled.
        """
        first, *rest = self._screen.admit(events)
        self._taken.append(first)
        self._take(rest)
        self.perform()

    # -- effects out -------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Journal what was taken, and perform every effect that is due. All calls that are unblocked start in one go,
        and what unblocked them is journaled together with their start. While something is being written this waits, and
        goes on by itself.
        """
        while self._batch is None:
            if self._ending is not None and not self._taken:
                self._take_end(*self._ending)
            # A room that is about to be ended makes no more use of anything: what it has used is counted already.
            due = [] if self._ending is not None or self._run.is_orphan else self.machine.due()
            # An idea is kept of what the journal holds already.
            answered = self.request is not None or self.machine.mode == "plan"
            closes = answered and any(isinstance(one, AskMind | Finish) for one in due)
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

    def _take_end(self, status: EndStatus, reason: str | None) -> None:
        self._ending = None
        if self.machine.phase == "ended":
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
                return ApprovalAsked(effect.call.index, effect.approval, effect.digest, time.time())
            case AskPlan():
                return PlanAsked(effect.approval, effect.digest, time.time())
            case Cancel():
                return CallFinished(*effect.key, error=effect.error, spent=self._run.used_in_rooms(effect.key))
            case Commit():
                return GroupCommitted(list(effect.calls))
            case AskMind():
                self._finish_step("open")
                self.request = self._composer.compose(self.machine)
                return RequestMade(effect.step, self.request.id, self.request.offered)
            case Finish():
                self._finish_step(effect.status)
                return RunEnded(effect.status, effect.reason, self._run.used_in_rooms(None))

    def _finish_step(self, outcome: str) -> None:
        if self.request is None and self.machine.mode == "plan":
            # A plan's author was never asked: its Request is what a mind would have been.
            self.request = self._composer.compose(self.machine)
        if self.request is not None:
            self._ideas.append(self._run.save_step(self.request, outcome))

    def _let_answer(self) -> None:
        """Let the mind, where there is one, answer the Request at hand."""
        if self.mind is not None and self.request is not None:
            self._answering = self._group.start_soon(self._ask, self.mind, self.request)

    # -- the answer of a mind ----------------------------------------------------------------------------------

    async def _ask(self, mind: Mind, request: Request) -> None:
        if not self.wanted:
            # Ended between being due and its turn, for example by its budget.
            return
        try:
            await self._read_answer(mind, request)
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            self.fail(error)

    async def _read_answer(self, mind: Mind, request: Request) -> None:
        """Let a mind answer a Request; take each call and the output as soon as it is complete.

        Raises:
            StaleDriverError, StoreError, JournalError: the run could not be journaled. Whatever else a mind raises
                breaks its answer off, or ends the run (`MindError`).
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
                self.end("failed", str(self.explain(error)["message"]))
        except Exception as error:  # noqa: BLE001 - whatever a mind raises breaks its answer off
            self._take_pieces([EndPiece(str(self.explain(error)["message"]), {})])
        finally:
            self.unreported = None
            if isinstance(parts, _Closing):
                try:
                    await parts.aclose()
                except Exception as error:  # noqa: BLE001 - the part of the answer that was taken is valid
                    _log(error, self._screen.mask)

    def _take_pieces(self, pieces: Sequence[Piece]) -> bool:
        """Post what the pieces contain; False once the answer has ended, or nobody wants more of it."""
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
                    events += [*self._usage_so_far(), SolutionClosed(f"a run may list at most {most:,} calls")]
                    break
                case OutputPiece(output):
                    events.append(OutputProposed(output))
                case EndPiece(broken, extra):
                    events += [*self._usage_so_far(), SolutionClosed(broken, extra or None)]
                    break
        if events:
            self.post(*events)
        return not events or not isinstance(events[-1], SolutionClosed)

    def _usage_so_far(self) -> list[Event]:
        """The usage of an answer that is interrupted before it has reported its usage. It is asked once."""
        answer, self.unreported = self.unreported, None
        usage = None if answer is None else answer.so_far()
        return [] if usage is None else [UsageNoted(usage.to_json())]

    # -- ends --------------------------------------------------------------------------------------------------

    def end_at_limit(self, reason: str) -> None:
        """End the run at a limit the machine cannot see (wall time), with everything done so far."""
        if self.machine.phase != "ending":
            self.end("limit", reason)

    def end(self, status: EndStatus, reason: str | None = None) -> None:
        """End the run before its time, with everything done so far, and cancel its calls, remote ones too."""
        if self.machine.phase == "ended" or self._ending is not None:
            return
        # The answer under way is interrupted; its usage must be journaled before the run ends.
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
        """Stop driving because of an error, which is told once however often it is met on its way; see `cause`."""
        if error is not self._failed:
            self._failed = error
            self.abandon(cause(error, self._screen.mask))

    def abandon(self, why: str) -> None:
        """Stop driving without a word in the journal: another process has the run, or it cannot be written."""
        self._lost = why
        self._stop()
        self._run.rest()
        self._notify(())

    def close(self) -> None:
        """Let nothing follow any more from what is still to be journaled: the process ends. Only what has happened is
        journaled then, and not that calls have started.
        """
        self._closed = True
        if self._batch is not None:
            del self._batch[len(self._batch) - len(self._follows) :]
            self._saved.clear()
            self._lost = "the bridge was closed"

    def _stop(self) -> None:
        self._calls.stop()
        if self._answering is not None:
            self._answering.cancel()

    # -- resuming ----------------------------------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        """Take a journal's events again, without journaling or performing anything.

        Raises:
            JournalError: an event does not fit.
        """
        asked = [number for number, event in enumerate(events) if isinstance(event, RequestMade)]
        for number, event in enumerate(events):
            if asked and number == asked[-1] and isinstance(event, RequestMade):
                # Composed where it was made: what it told stands in the machine only until it is answered.
                self.request = self._composer.compose(self.machine, event)
            self.machine.receive(event)

    def follow(self, events: Sequence[Event]) -> None:
        """Take what another process has journaled since, and tell the watchers. Nothing is journaled or performed.

        Raises:
            JournalError: an event does not fit.
        """
        for event in events:
            if isinstance(event, RequestMade):
                self.request = self._composer.compose(self.machine, event)
            self.machine.receive(event)
        self.follows = True
        try:
            self._notify(events)
        finally:
            self.follows = False

    def resume(self) -> None:
        """Go on after `fold`; see `resume_events`."""
        again, events = resume_events(self.machine, time.time())
        for effect in again:
            self._start(effect)
        if self.machine.awaits_mind:
            self._let_answer()
        self.post(*events)


@runtime_checkable
class _Closing(Protocol):
    async def aclose(self) -> None: ...


def cause(error: Exception, mask: Callable[[str], str]) -> str:
    """Why a run cannot go on in this process, in words.

    An `IdeabridgeError` says so itself. Anything else, and an event that the machine refused, is a defect of ideabridge
    or of code it was given: the message says so, and the traceback is logged.

    Args:
        error: the error.
        mask: takes secrets out of text.
    """
    if isinstance(error, StoreError) and not isinstance(error, StaleDriverError):
        return f"the run's journal could not be written: {error}"
    if isinstance(error, IdeabridgeError) and not isinstance(error, JournalError):
        return str(error)
    message = mask(f"internal error: {type(error).__name__}: {error}")
    _log(error, mask)
    return message if len(message) <= _CHARACTERS else f"{message[:_CHARACTERS]}... ({len(message):,} characters)"


def _log(error: Exception, mask: Callable[[str], str]) -> None:
    logger.error("%s", mask("".join(traceback.format_exception(error))).rstrip())
