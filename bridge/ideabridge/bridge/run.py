"""Run: one pass of the loop, as its callers see it (DESIGN 2, 5, 6)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

import anyio

from ideabridge.bridge.answering import Decided, answered, questions
from ideabridge.bridge.arguments import check_text, check_type
from ideabridge.bridge.context.document import MISSING
from ideabridge.bridge.driver import Driver
from ideabridge.bridge.errors import (
    FinishedRunError,
    InterruptedRunError,
    RejectedSolutionError,
    SettledTurnError,
    UnwrittenRunError,
)
from ideabridge.bridge.ideas.errors import StaleDriverError, StoreError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.decider import Decider, decider_of
from ideabridge.bridge.loop.effect import ExecutionKey
from ideabridge.bridge.loop.event import EndStatus, Event, Pattern, SolutionRejected
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.output import error_message
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.loop.runner import Runner
from ideabridge.bridge.outputs import typed
from ideabridge.bridge.room_view import approvals_in_rooms, key_of, requests_of, room_of_approval
from ideabridge.bridge.run_events import follow
from ideabridge.bridge.run_status import RunStatus, failure_of, is_behind, may_rest, status_of
from ideabridge.bridge.run_values import given_by, rejection, value_at
from ideabridge.bridge.run_view import answer_of, approvals_of
from ideabridge.bridge.turn_log import TurnLog, digest_of_solution, read_submission, solution_of
from ideabridge.bridge.waiting_plan import WaitingPlan, waiting_plan
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, normalise

if TYPE_CHECKING:
    from ideabridge.bridge.approver import ApprovalRequest, DecisionName, People

T = TypeVar("T")


class Run:
    """One run.

    Args:
        run_id: its id.
        caller: who started it; others do not see it.
        runner: drives its machine.
        driver: the lease under which it is driven here.
        offered: the tools there are now: what people may replace a plan's calls by.
        parent: the run whose call it answers, where it is a room.

    Attributes:
        rooms: the runs that answer calls of it now, by call and item.
        ending: those that end because their calls have ended without them.
        room_watchers: told of every event of its rooms, at any depth, with the room.
        people: sees to its approvals: an approver, and time-outs.
        idea: id of the last idea saved.
        active_seconds: how long it has been at work in this process.
        turns: who answers, and what the journal tells of its turns.
    """

    def __init__(
        self,
        run_id: str,
        caller: str,
        runner: Runner,
        driver: Driver,
        offered: Callable[[], Catalogue],
        parent: Run | None = None,
    ) -> None:
        self.id = run_id
        self.parent = parent
        self.rooms: dict[ExecutionKey, Run] = {}
        self.ending: list[Run] = []
        self.room_watchers: list[Callable[[Run, Event], None]] = []
        self.caller = caller
        self.runner = runner
        self.people: People | None = None
        self.idea: str | None = None
        self.active_seconds = 0.0
        self.turns = TurnLog()
        self._driver = driver
        self._offered = offered
        runner.watchers.append(self.turns.take)

    @property
    def machine(self) -> Machine:
        """The machine the runner drives."""
        return self.runner.machine

    @property
    def status(self) -> RunStatus:
        """Where the run stands, its rooms with it."""
        return status_of(self)

    @property
    def root(self) -> Run:
        """The run it belongs to with all the rooms between: itself, where it is no room."""
        return self if self.parent is None else self.parent.root

    @property
    def key(self) -> ExecutionKey:
        """The call, and item, of its parent that it answers, where it is a room."""
        return key_of(self.id)

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call a method of the run, again where the store cannot be written; see `Bridge.patiently`."""
        return await self._driver.patiently(call)

    async def wait(self, seconds: float | None = None) -> RunStatus:
        """Wait until somebody is needed or the run has ended, at most `seconds` seconds."""
        with anyio.move_on_after(seconds):
            while self.status == "running" or self.is_being_left:
                await self.runner.wait_changed()
        return self.status

    @property
    def is_being_left(self) -> bool:
        """Whether the store does not hold yet how the run, or a room of it, stands, and that nobody drives it."""
        rooms = (*self.rooms.values(), *self.ending)
        return bool(self._driver.unwritten) or any(room.is_being_left for room in rooms)

    def poke(self) -> None:
        """Wake whoever waits for the run, or for the run that it is a room of."""
        self.runner.poke()
        if self.parent is not None:
            self.parent.poke()

    # -- what applications wait for ----------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        """Every event of the run, from its first on; see `events`."""
        return self.events()

    def events(self, *, from_now: bool = False) -> AsyncIterator[Event]:
        """The events of the run as its journal has them, until it has ended or is not driven here any more.

        While the run waits for somebody, the iteration waits too: whoever iterates may decide, or hand a solution in.

        Args:
            from_now: leave out what has happened already; else every iteration begins with the first event.
        """
        return follow(self, self._driver, from_now=from_now)

    @overload
    async def result(self) -> Any: ...
    @overload
    async def result(self, model: type[T]) -> T: ...
    async def result(self, model: type[Any] | None = None) -> Any:
        """What the run gives, once it has ended: its output; where none was asked for its state, or else the results.

        Args:
            model: a pydantic model, or any type pydantic knows, to read it as; None: JSON.

        Raises:
            RunFailedError: it gave no output, calls failed where none was asked for, or it waits for somebody.
            OutputTypeError: the output does not fit the model.
            ArgumentError: the model is no type.
        """
        check_type("model", model)
        status = await self.wait()
        if not self.machine.has_output and (status != "done" or self.errors()):
            raise failure_of(self)
        return self.given() if model is None else typed(self.given(), model)

    # -- turns -------------------------------------------------------------------------------------------------

    @property
    def turn(self) -> int:
        """The number of the Request at hand, from 0."""
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
        """Hand in the solution of a turn.

        Its calls run as if they streamed in: a malformed call fails, those that depend on it fail with it, and the
        others run; the next Request has the errors.

        Args:
            turn: the turn it answers.
            raw: the solution, leniently read (DESIGN 4.2).
            mind: who wrote it; None: the caller, by turns.
            model: the model that did, as far as is known.
            pattern: what its calls are to each other (DESIGN 4.7); such a group is always `strict`.
            strict: run nothing unless all of it is well formed.

        Returns:
            What was read leniently, in words. The same solution for a settled turn changes nothing.

        Raises:
            ValueMismatchError: it is not a solution at all.
            RejectedSolutionError: its calls are no array, are more than the run may list, or hold a secret; with
                `strict` also where it is malformed. Nothing ran, and the turn stays open.
            SettledTurnError: another solution settled the turn, or the turn is not the run's.
            FinishedRunError: the run has ended.
        """
        proposed, notes = read_submission(normalise(raw, what="the solution"), mind, model, pattern)
        settled = self.turns.settled.get(turn)
        if settled is not None:
            if settled == digest_of_solution(proposed):
                return notes
            raise SettledTurnError(f"turn {turn} is settled by another solution; the turn now is {self._turn_now()}")
        self._expect_open(turn)
        errors, intake = self.runner.faults(proposed), self.machine.intake
        if not errors and (strict or pattern is not None):
            errors = intake.check(proposed.calls, proposed.output, pattern=pattern)
        errors = errors or intake.over(len(proposed.calls))
        if errors:
            self.drive(SolutionRejected(solution_of(proposed), list(errors)))
            raise RejectedSolutionError(rejection(errors), [dict(error) for error in errors])
        # Before it is driven: the step may end, and be saved, at once.
        self.turns.authors[turn] = (mind or "turns", model or "")
        self.drive(proposed)
        return notes

    def reject(self, turn: int, answer: JSON, message: str) -> None:
        """Note an answer to a turn in which no solution could be read: nothing ran, and the turn stays open.

        Raises:
            SettledTurnError, FinishedRunError: the turn is not open.
        """
        self._expect_open(turn)
        self.drive(SolutionRejected(answer, [error_message("structural", message)]))

    def drive(self, event: Event) -> None:
        """Post an event under the lease; given back again where the run then waits for somebody."""
        self._take("running")
        self.runner.post(event)

    def hold(self) -> None:
        """Take the lease where nobody has it: a room of the run is at work here."""
        with contextlib.suppress(InterruptedRunError):
            if self.machine.phase != "ended" and self.runner.lost is None and self._driver.epoch is None:
                self._take("running")

    def _take(self, status: str | None = None) -> None:
        """Take the lease, where this process does not hold it, and note how the run stands; both or neither."""
        if self.parent is not None:
            self.parent.hold()
        if self._driver.epoch is not None and status is None:
            return
        with self._driver.whole():
            if not self._driver.take():
                raise InterruptedRunError(f"run {self.id}: another process has gone on with it; check_run tells how")
            if status is not None:
                self._driver.set_status(status)

    def rest(self) -> None:
        """Give the lease back while the run waits for somebody: any process may take it up then."""
        if self.runner.lost is not None:
            with contextlib.suppress(StoreError):
                # It runs out by itself where the store cannot be written.
                self._driver.leave(None, None, self.poke)
        elif may_rest(self):
            try:
                self._driver.leave(self.status, None, self.poke)
            except StaleDriverError:
                # Found out late: a room of it was given up because another process has gone on with both.
                self.runner.abandon("its lease was lost to another process")
        if self.parent is not None:
            self.parent.moved()

    def moved(self) -> None:
        """A room of it has opened, moved, or come to rest."""
        self.rest()
        self.runner.poke()

    def _turn_now(self) -> str:
        return str(self.machine.step) if self.status == "needs_solution" else f"none (the run is {self.status})"

    def _expect_open(self, turn: int) -> None:
        self._expect_alive()
        machine = self.machine
        if not machine.awaits_mind or turn != machine.step:
            raise SettledTurnError(f"turn {turn} is not open; the turn now is {self._turn_now()}")

    def _expect_alive(self) -> None:
        if self.runner.lost is not None:
            raise InterruptedRunError(f"run {self.id} cannot go on here: {self.runner.lost}")
        if self.machine.phase == "ended":
            raise FinishedRunError(f"run {self.id} has ended ({self.status}); nothing more can be handed in")

    @property
    def requests(self) -> int:
        """How many Requests minds have answered."""
        if self.machine.mode == "plan":
            return 0
        return max(len(self.turns.settled), self.machine.step + (1 if self.machine.phase == "ended" else 0))

    # -- people ------------------------------------------------------------------------------------------------

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
    ) -> None:
        """Settle a pending approval (DESIGN 4.6). The decision holds for exactly what was asked about.

        Args:
            approval: its id.
            decision: one of its choices: `approve`, `deny`, `edit`; of an unknown outcome `retry`, `skip`, `value`.
            by: who decides; a text is the name of an approver, the code of the program that calls this.
            call: for `edit`: the resolved call as it shall run, by its own tool or another.
            value: for `value`: the result of the call, or an object that fits a module's form.
            plan: for `edit` of a lazy run's plan: `{"calls", "output"?}` as it shall run, its references live.
            reason: why; told to the mind.

        Raises:
            DecisionError: no such approval is pending, it has no such choice, or what was given with it cannot hold.
            FinishedRunError: the run has ended.
        """
        run, event = self.decision(approval, decision, by=by, call=call, value=value, plan=plan, reason=reason)
        run.drive(event)

    def decision(
        self,
        approval: str,
        decision: DecisionName,
        *,
        by: str | Decider,
        call: ObjectLike | JSON = None,
        value: object = MISSING,
        plan: ObjectLike | JSON = None,
        reason: str | None = None,
    ) -> tuple[Run, Decided]:
        """The event of a decision, checked and not taken yet, and the run or room that is to take it; see `decide`."""
        self._expect_alive()
        check_text("approval", approval)
        if "/" in approval:
            room, own = room_of_approval(self, approval)
            return room.decision(own, decision, by=by, call=call, value=value, plan=plan, reason=reason)
        given: dict[str, Any] = {"call": call, "value": value, "plan": plan, "offered": self._offered()}
        return self, answered(self.machine, approval, decision, decider_of(by), reason, **given)

    def end_at_limit(self, reason: str) -> None:
        """End the run at a limit that its machine does not see, with everything done so far."""
        self._take()
        self.runner.end_at_limit(reason)

    def cancel(self, reason: str | None = None) -> None:
        """End the run as `cancelled`; see `end`."""
        self.end("cancelled", reason)

    def end(self, status: EndStatus, reason: str | None = None) -> None:
        """End the run and its calls; what was done stays. Raises `InterruptedRunError`: another process drives it."""
        if self.machine.phase == "ended":
            return
        self._expect_alive()
        self._take()
        self.runner.end(status, None if reason is None else str(normalise(reason, what="the reason")))

    # -- what callers see --------------------------------------------------------------------------------------

    def answer(self, *, whole: bool = False) -> dict[str, Any]:
        """The answer of DESIGN 6; `whole`: with every value whole, however large. See `run_view.answer_of`."""
        return answer_of(self, whole=whole)

    @property
    def state(self) -> JSONObject:
        """The state as it stands; where there are instances, a map by instance.

        Raises:
            UnwrittenRunError: see `value`.
        """
        self._expect_written()
        return self.machine.state

    def errors(self) -> list[dict[str, Any]]:
        """The errors of the last Solution: `{"call", "place", "error"}`."""
        return self.machine.errors

    def pending(self) -> list[ApprovalRequest]:
        """What the run and its rooms wait for a person to decide; `decide` takes each by its `approval`.

        What an approver is deciding on right now is not in it.
        """
        return requests_of(self)

    def approvals(self) -> list[JSON]:
        """Every pending approval in the form that assistants receive, including those of rooms; see `approvals_of`."""
        return [*approvals_of(self), *approvals_in_rooms(self)]

    @property
    def plan(self) -> WaitingPlan | None:
        """A lazy run's plan that waits to be accepted; None where none does."""
        return waiting_plan(self.machine)

    def questions(self) -> list[Question]:
        """What the run itself waits for people to answer."""
        return questions(self.machine)

    def given(self) -> JSON:
        """What the run gives as a function: its output; where none was asked for its state, or else the results."""
        self._expect_written()
        return given_by(self.machine)

    def value(self, text: str) -> Any:
        """The value at a reference as it stands: `†state.log`, `†results.3`, `†①.state.x`, `†output`.

        Raises:
            ReferenceSyntaxError: it is none.
            UnknownPathError: nothing is there.
            ArgumentError: it is not text.
            UnwrittenRunError: the journal does not hold the last values yet; `await run.wait()` waits for that.
        """
        check_text("reference", text)
        self._expect_written()
        return value_at(self.machine, text)

    @property
    def unwritten(self) -> str | None:
        """Why the last events of the run, or of a room of it, are not in its journal yet; None: they are.

        Until then nothing follows from them, the run is `running`, and no value of it is shown.
        """
        if not is_behind(self):
            return None
        trouble = self._driver.trouble
        if trouble is None:
            return "the last events of the run are being written into the store"
        return (
            f"the store cannot be written right now ({trouble}). What came of the calls is kept in memory, and written"
            " as soon as that is possible; the run goes on then"
        )

    def _expect_written(self) -> None:
        why = self.unwritten
        if why is not None:
            raise UnwrittenRunError(f"run {self.id}: {why}")

    def calls(self) -> list[Progress]:
        """Every call of the run, in listing order."""
        return self.machine.history
