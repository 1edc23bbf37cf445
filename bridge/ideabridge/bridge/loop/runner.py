"""Runner: performs the machine's effects with anyio, each after the event that says so was journaled (DESIGN 3, 7)."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

import anyio
import anyio.from_thread
from anyio.abc import TaskGroup

from ideabridge.bridge.context.message import read_message
from ideabridge.bridge.ideas.errors import StaleDriverError
from ideabridge.bridge.loop.answer import Answer, CallPiece, EndPiece, OutputPiece, Piece
from ideabridge.bridge.loop.effect import AskApproval, AskMind, Effect, Execute, Finish
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    CallFinished,
    CallProposed,
    CallStarted,
    Event,
    JournalError,
    MessageAdded,
    OutputProposed,
    RequestMade,
    RunEnded,
    SolutionClosed,
    UsageNoted,
)
from ideabridge.bridge.loop.executor import CallContext, Executor
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import in_flight
from ideabridge.bridge.loop.request import Composer, Request
from ideabridge.bridge.minds.mind import Mind
from ideabridge.bridge.minds.usage import Usage
from ideabridge.tools.encoding import JSON, JSONObject, normalise

Journal: TypeAlias = Callable[[Sequence[Event]], None]
"""Stores events durably before it returns; raises `StaleDriverError` where another process drives the run."""

Watcher: TypeAlias = Callable[[Event], None]
"""Told of every event after it was journaled and taken."""

ReportedProgress: TypeAlias = Callable[[int, float, float | None, str | None], None]
"""(call, progress, total, message): what an activity or a module reports while it runs."""


class Runner:
    """Drives one machine.

    Args:
        machine: a machine, new or folded from a journal.
        journal: see `Journal`.
        executor: runs the calls.
        composer: composes the Requests.
        group: task group the calls run in; it outlives the run.
        close_step: called when a Solution has run, before the step that follows is journaled: with the machine, the
            Request, and how it ended (`open` where another Request follows).
        rest: called whenever nothing more is due: the run is at work, waits for somebody, or has ended.
        mind: answers the Requests; None: somebody hands the solutions in, by turns.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        journal: Journal,
        executor: Executor,
        composer: Composer,
        group: TaskGroup,
        close_step: Callable[[Machine, Request, str], None],
        rest: Callable[[], None],
        mind: Mind | None = None,
    ) -> None:
        self.machine = machine
        self.mind = mind
        self.request: Request | None = None
        self.watchers: list[Watcher] = []
        self.progress_watchers: list[ReportedProgress] = []
        self.lost: str | None = None
        self._journal = journal
        self._executor = executor
        self._composer = composer
        self._group = group
        self._close_step = close_step
        self._rest = rest
        self._scopes: set[anyio.CancelScope] = set()
        self._changed = anyio.Event()
        self._thread = threading.get_ident()
        machine.has_mind = mind is not None

    # -- events in ---------------------------------------------------------------------------------------------

    def post(self, *events: Event) -> None:
        """Journal events, take them, and perform what follows.

        Raises:
            StaleDriverError: another process drives the run now; nothing was done, and nothing more will be.
            StoreError: the journal could not be written; the run is given up here, and can be taken up again.
            JournalError: an event does not fit what the run is doing; it was not taken.
        """
        try:
            self._take(events)
            self.perform()
        except JournalError:
            raise
        except Exception as error:
            # The machine has taken what the journal has not: only the journal counts, and is read again.
            self.abandon(str(error))
            raise

    def _take(self, events: Sequence[Event]) -> None:
        # The machine first: what it refuses must not stand in the journal. Nothing is done before both have it.
        for event in events:
            self.machine.receive(event)
        self._journal(events)
        self._notify(events)

    def _notify(self, events: Sequence[Event]) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        for event in events:
            for watcher in list(self.watchers):
                watcher(event)

    async def wait_changed(self) -> None:
        """Wait for the next event."""
        await self._changed.wait()

    def begin(self, *events: Event) -> None:
        """Journal the first events of a run whose machine has taken the first already, and perform what follows."""
        for event in events[1:]:
            self.machine.receive(event)
        self._journal(events)
        self._notify(events)
        self.perform()

    # -- effects out -------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Perform every effect that is due. All calls that are unblocked start in one go."""
        while True:
            due = self.machine.due()
            if not due:
                self._rest()
                return
            starts = [effect for effect in due if isinstance(effect, Execute)]
            self._take([self._acknowledge(effect) for effect in due])
            for effect in starts:
                self._group.start_soon(self._run, effect)
            if self.mind is not None and self.request is not None and any(isinstance(one, AskMind) for one in due):
                self._group.start_soon(self._ask, self.mind, self.request)

    def _acknowledge(self, effect: Effect) -> Event:
        match effect:
            case Execute():
                return CallStarted(effect.call.index, effect.item)
            case AskApproval():
                return ApprovalAsked(effect.call.index, effect.approval, effect.digest, time.time())
            case AskMind():
                self._finish_step("open")
                self.request = self._composer.compose(self.machine)
                return RequestMade(effect.step, self.request.id)
            case Finish():
                self._finish_step(effect.status)
                return RunEnded(effect.status, effect.reason)

    def _finish_step(self, outcome: str) -> None:
        if self.request is None and self.machine.mode == "plan":
            # A plan's author was never asked: its Request is what a mind would have been.
            self.request = self._composer.compose(self.machine)
        if self.request is not None:
            self._close_step(self.machine, self.request, outcome)

    async def _ask(self, mind: Mind, request: Request) -> None:
        """Let the mind answer, and take up each call the moment it closes."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                await self._listen(mind, request)
            except Exception as error:  # noqa: BLE001 - a run that cannot be journaled ends alone, not the bridge
                self.abandon(f"the run's journal could not be written: {error}")
            finally:
                self._scopes.discard(scope)

    async def _listen(self, mind: Mind, request: Request) -> None:
        answer = Answer()
        parts = mind.answer(request)
        try:
            async for part in parts:
                if isinstance(part, Usage):
                    self._note_usage(part)
                elif not self._take_pieces(answer.feed(part)):
                    return
            self._take_pieces(answer.close())
        except (StaleDriverError, JournalError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a mind raises breaks its answer off (DESIGN 4.4.6)
            self._take_pieces([EndPiece(str(self._executor.explain(error)["message"]), {})])
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()

    def _note_usage(self, usage: Usage) -> None:
        if self.lost is None and self.machine.phase != "ended":
            self.post(UsageNoted(usage.to_json()))

    def _take_pieces(self, pieces: Sequence[Piece]) -> bool:
        """Post what the pieces say; False once the answer has ended, or nobody wants more of it."""
        for piece in pieces:
            if self.lost is not None or self.machine.phase == "ended":
                return False
            match piece:
                case CallPiece(call) if self.machine.room:
                    self.post(CallProposed(call))
                case CallPiece():
                    most = self.machine.settings.calls
                    self.post(SolutionClosed(f"a run may list at most {most:,} calls"))
                    return False
                case OutputPiece(output):
                    self.post(OutputProposed(output))
                case EndPiece(broken, extra):
                    self.post(SolutionClosed(broken, extra or None))
                    return False
        return True

    async def _run(self, effect: Execute) -> None:
        if self.lost is not None:
            # Given up between being due and its turn: what no journal holds must not run.
            return
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                finished = await self._outcome(effect)
                if self.lost is None and self.machine.phase != "ended":
                    self.post(finished)
            except Exception as error:  # noqa: BLE001 - a run that cannot be journaled ends alone, not the bridge
                self.abandon(f"the run's journal could not be written: {error}")
            finally:
                self._scopes.discard(scope)

    async def _outcome(self, effect: Execute) -> CallFinished:
        index = effect.call.index

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            for watcher in list(self.progress_watchers):
                watcher(index, progress, total, message)

        def on_message(message: JSONObject) -> None:
            copied = normalise(message, what="the message")
            # Read here, so that a message that is none fails its call and never reaches the journal.
            read_message(copied)
            added = MessageAdded(index, copied if isinstance(copied, dict) else {"role": "user", "content": copied})
            if threading.get_ident() == self._thread:
                self.post(added)
            else:
                # A sync activity runs in a worker thread; the machine belongs to the event loop.
                anyio.from_thread.run_sync(self.post, added)

        context = CallContext(effect, on_progress, on_message)
        try:
            value: JSON = await self._executor.execute(effect, context, on_progress)
        except Exception as error:  # noqa: BLE001 - whatever an activity raises fails its call alone (DESIGN 4.5)
            return CallFinished(index, effect.item, error=self._executor.explain(error))
        return CallFinished(index, effect.item, value=value, chosen=context.chosen)

    # -- ends --------------------------------------------------------------------------------------------------

    def cancel(self, reason: str | None = None) -> None:
        """End the run and cancel its calls, remote ones too."""
        if self.machine.phase == "ended":
            return
        if self.machine.phase != "ending":
            self._finish_partly("cancelled")
        self.post(RunEnded("cancelled", reason))
        self._stop()

    def end_at_limit(self, reason: str) -> None:
        """End the run at a limit the machine cannot see (wall time), with everything done so far."""
        if self.machine.phase not in ("ended", "ending"):
            self._finish_partly("limit")
            self.post(RunEnded("limit", reason))
            self._stop()

    def _finish_partly(self, outcome: str) -> None:
        if self.machine.phase == "solving":
            self._finish_step(outcome)

    def abandon(self, why: str) -> None:
        """Stop driving without a word in the journal: another process has the run, or it cannot be written."""
        self.lost = why
        self._stop()
        self._rest()
        self._notify(())

    def _stop(self) -> None:
        for scope in list(self._scopes):
            scope.cancel()

    # -- resuming ----------------------------------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        """Take a journal's events again, without journaling or performing anything.

        Raises:
            JournalError: an event does not fit.
        """
        asked = [number for number, event in enumerate(events) if isinstance(event, RequestMade)]
        for number, event in enumerate(events):
            if asked and number == asked[-1]:
                # Composed where it was made: what it told stands in the machine only until it is answered.
                self.request = self._composer.compose(self.machine)
            self.machine.receive(event)

    def resume(self) -> None:
        """Go on after `fold`: calls in flight run again where the tool says that is safe, else their outcome is
        unknown (DESIGN 7).
        """
        unknown: list[Event] = []
        again: list[Execute] = []
        for progress, number in in_flight(self.machine.history):
            call = progress.call
            if call.tool is None:
                continue
            if call.has_latent or call.room is not None or call.tool.annotations.repeatable:
                again.append(Execute.of(progress, number))
            else:
                message = (
                    "outcome unknown: the process died while it ran, and the tool does not say that it may run twice"
                )
                unknown.append(CallFinished(call.index, number, error={"kind": "unknown", "message": message}))
        for effect in again:
            self._group.start_soon(self._run, effect)
        if self.machine.streams:
            # What had streamed in is the Solution; the mind is never asked again for it (DESIGN 4.4.6).
            unknown.append(SolutionClosed("the process ended while the answer streamed in"))
        elif self.mind is not None and self.request is not None and self.machine.awaits_mind:
            self._group.start_soon(self._ask, self.mind, self.request)
        self.post(*unknown)
