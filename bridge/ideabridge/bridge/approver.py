"""Approver: who answers the questions of a run, and what happens when nobody does (DESIGN 4.6, 7)."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.answering import Asked, Decided, key_of, question_of
from ideabridge.bridge.context.document import MISSING
from ideabridge.bridge.errors import DecisionError, InterruptedRunError, SecretGivenError
from ideabridge.bridge.ideas.errors import PASSING
from ideabridge.bridge.loop.decider import APPROVER, TIME_OUT, Decider
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    CallDecided,
    CallFinished,
    Event,
    OutcomeAsked,
    OutcomeDecided,
    PlanAsked,
    PlanDecided,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
)
from ideabridge.bridge.loop.policy import approval_timeout
from ideabridge.bridge.loop.question import CHOICES, Choice, Key, Kind, Question, form_of
from ideabridge.tools.encoding import JSONObject, ObjectLike
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    from ideabridge.bridge.run import Run

DecisionName: TypeAlias = Choice
"""What may be decided on a question; see `Decision.decision`."""

_NAP: Final = 60.0
"""Seconds until the clock is looked at again: while a machine sleeps its clock goes on, and no timer does."""

_AGAIN: Final = 1.0
"""Seconds until a decision is handed in again that the store did not take."""

_REASON_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One thing somebody is asked about: a call that would run, (`kind` is `outcome`) what came of one that was in
    flight when its process died, (`plan`) a lazy run's plan as a whole, or (`question`) what the module of a call asks
    while it runs.

    Attributes:
        run: id of its run; `caller`: who started the run.
        approval: id of the approval.
        tool: the tool, with its module and annotations; None for a plan.
        call: the call with its references resolved: what would run, or did; empty for a plan.
        why: why it asks.
        deadline: when it is denied (an outcome, a question: skipped) if nobody has decided, in seconds since 1970;
            None: never.
        choices: the decisions it takes.
        plan: `{"calls", "output", "dry_run", "drawing"}`, see `WaitingPlan.to_json`.
        question: `{"module", "message", "schema"}` of a form; the words are the module's, and to be trusted as little.
    """

    run: str
    caller: str
    approval: str
    tool: Tool | None
    call: JSONObject
    why: str
    deadline: float | None = None
    kind: Kind = "call"
    choices: tuple[Choice, ...] = CHOICES["call"]
    plan: JSONObject | None = None
    question: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody decided on one question.

    Attributes:
        decision: `approve`; `deny`; `edit`: `call` runs in its place, its values literal. Of an unknown outcome:
            `retry`: it runs again; `skip`: it fails as unknown; `value`: `value` is its result. Of a plan as a whole:
            `approve`, `deny`, or `edit`: `plan` runs in its place, its references live. Of a module's question:
            `value`: `value` goes into its form; `deny`: the module is told no (decline); `skip`: nothing (cancel).
        call: for `edit`, the resolved call as it shall run.
        reason: told to the mind.
        by: who decided; a text is the name of an approver. A program that has asked a person says so with a `Decider`.
        value: for `value`, the result of the call, or an object that fits the form.
        plan: for `edit` of a plan, `{"calls", "output"?}`.
    """

    decision: DecisionName
    call: ObjectLike | None = None
    reason: str | None = None
    by: str | Decider = APPROVER
    value: object = MISSING
    plan: ObjectLike | None = None

    def hand_in(self, run: Run, approval: str) -> None:
        """Decide on a pending approval of a run.

        Raises:
            DecisionError, FinishedRunError, InterruptedRunError: see `Run.decide`.
        """
        run.decide(approval, self.decision, by=self.by, reason=self.reason, **self._given())

    def checked(self, run: Run, approval: str) -> tuple[Run, Decided]:
        """The event of this decision, and the run or room that is to take it; see `Run.decision`."""
        return run.decision(approval, self.decision, by=self.by, reason=self.reason, **self._given())

    def _given(self) -> dict[str, Any]:
        return {"call": self.call, "value": self.value, "plan": self.plan}


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Decides on one question. Several may be asked about at once. What it raises denies the call (an outcome: skips it),
with its text as reason."""


class People:
    """Sees to it that the approvals of one run are decided: by an approver where there is one, else in time.

    Args:
        run: the run.
        group: task group that outlives the run.
        approver: see `Approver`; None: people decide elsewhere, by `Run.decide`.
        mask: takes secrets out of texts.
        now: the clock, in seconds since 1970; None: the system's.

    Attributes:
        deciding: approvals the approver has been asked about and has not answered.
    """

    def __init__(
        self,
        run: Run,
        group: TaskGroup,
        approver: Approver | None,
        mask: Callable[[str], str],
        now: Callable[[], float] | None = None,
    ) -> None:
        self.deciding: set[str] = set()
        self._run = run
        self._group = group
        self._approver = approver
        self._mask = mask
        self._now = now or time.time
        self._open: dict[str, Question] = {}
        self._asked: dict[str, float] = {}
        self._scopes: dict[str, list[anyio.CancelScope]] = {}

    # -- what happens in the run -------------------------------------------------------------------------------

    def watch(self, event: Event) -> None:
        """A watcher of the run: what asks is seen to, and what is decided is let go."""
        match event:
            case ApprovalAsked() | OutcomeAsked() | PlanAsked() | QuestionAsked():
                self._note(event)
                question = question_of(self._run.machine, event)
                if question is not None:
                    self._open[question.approval] = question
                    self._arm(question)
                    if not self._run.runner.follows:
                        # Else the process that drives the run asks its approver.
                        self._start(question)
            case CallFinished() if not self._open:
                return
            case CallDecided() | OutcomeDecided() | PlanDecided() | QuestionAnswered() | CallFinished():
                # Decided, or called off: its group is decided without it. What its module asked ends with it too.
                ended: tuple[Key, ...] = (
                    (("call", event.call, None), ("question", event.call, event.item))
                    if isinstance(event, CallFinished)
                    else (key_of(event),)
                )
                for approval in [approval for approval, one in self._open.items() if one.key in ended]:
                    del self._open[approval]
                    self._let_go(approval)
            case RunEnded():
                for approval in list(self._scopes):
                    self._let_go(approval)
            case _:
                return

    def take_up(self, events: Iterable[Event]) -> None:
        """The run was read from its journal: note what waits, and since when."""
        for event in events:
            if isinstance(event, ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked):
                self._note(event)
        self._open.update({one.approval: one for one in self._run.questions()})
        for question in self._pending().values():
            self._arm(question)

    def ask(self) -> None:
        """Ask the approver about everything that is pending: the run was taken up and is driven here."""
        for question in self._pending().values():
            self._start(question)

    def expire(self) -> None:
        """Refuse everything nobody decided on in time."""
        for question in list(self._pending().values()):
            deadline = self.deadline(question.approval)
            if deadline is not None and deadline <= self._now():
                # Where the store cannot be written, its own timer refuses it, or who asks for the run the next time.
                with contextlib.suppress(*PASSING):
                    self._hand_in(question, self._refusal(question))

    # -- what is pending ---------------------------------------------------------------------------------------

    def requests(self) -> list[ApprovalRequest]:
        """What waits for a decision."""
        return [self._request(one) for one in self._pending().values()]

    def deadline(self, approval: str) -> float | None:
        """When a pending approval is denied, in seconds since 1970; None: never."""
        seconds = approval_timeout(self._run.machine.settings.approval)
        return None if seconds is None else self._asked.setdefault(approval, self._now()) + seconds

    def _pending(self) -> dict[str, Question]:
        run = self._run
        # Not by looking through all calls: this is asked at every event.
        return {} if run.machine.phase == "ended" or run.runner.lost is not None else self._open

    def _request(self, one: Question) -> ApprovalRequest:
        run, deadline = self._run, self.deadline(one.approval)
        plan = run.plan if one.kind == "plan" else None
        told = None if plan is None else plan.to_json()
        shown = {} if one.kind == "plan" else one.shown
        place = (run.id, run.caller, one.approval, one.tool)
        asked = None if one.asked is None else form_of(one.asked)
        return ApprovalRequest(*place, shown, one.why, deadline, one.kind, one.choices, told, asked)

    def _note(self, event: Asked) -> None:
        # A journal without the time counts from now.
        self._asked[event.approval] = self._now() if event.at is None else event.at

    @property
    def parks(self) -> bool:
        """Whether a call waits here for an answer to what its module asks: it lives in this process alone."""
        return any(one.kind == "question" for one in self._pending().values())

    # -- time-outs ---------------------------------------------------------------------------------------------

    def _arm(self, question: Question) -> None:
        deadline = self.deadline(question.approval)
        if deadline is not None:
            self._group.start_soon(self._time_out, question, deadline)

    async def _time_out(self, question: Question, deadline: float) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.setdefault(question.approval, []).append(scope)
            while question.approval in self._pending():
                left = deadline - self._now()
                if left <= 0:
                    await self._decide(question, self._refusal(question))
                    return
                await anyio.sleep(min(left, _NAP))

    def _refusal(self, question: Question) -> Decision:
        seconds = approval_timeout(self._run.machine.settings.approval) or 0.0
        why = f"nobody decided within {seconds:g} s"
        return Decision(question.refusal, reason=why, by=TIME_OUT)

    # -- the approver ------------------------------------------------------------------------------------------

    def _start(self, question: Question) -> None:
        if self._approver is not None and question.approval not in self.deciding:
            self.deciding.add(question.approval)
            self._group.start_soon(self._consult, self._approver, question)

    async def _consult(self, approver: Approver, question: Question) -> None:
        decision: object = None
        with anyio.CancelScope() as scope:
            self._scopes.setdefault(question.approval, []).append(scope)
            try:
                if question.approval in self._pending():
                    given: object = approver(self._request(question))
                    if not inspect.isawaitable(given):
                        raise ArgumentError.of("approver", "a coroutine function (async def)", approver)
                    decision = await given
            except Exception as error:  # noqa: BLE001 - whatever it raises refuses this one, and nothing else
                text = self._mask(f"{type(error).__name__}: {error}")[:_REASON_CHARACTERS]
                decision = Decision(question.refusal, reason=f"the approver failed: {text}")
        self.deciding.discard(question.approval)
        if scope.cancelled_caught:
            return
        if not isinstance(decision, Decision):
            found = type(decision).__name__
            decision = Decision(question.refusal, reason=f"the approver gave a {found}; expected a Decision")
        await self._decide(question, decision)

    async def _decide(self, question: Question, decision: Decision) -> None:
        """Hand a decision in; it is not lost where the store cannot be written for a while."""
        while True:
            try:
                await self._run.patiently(lambda: self._hand_in(question, decision))
            except PASSING:
                await anyio.sleep(_AGAIN)
            else:
                return

    def _hand_in(self, question: Question, decision: Decision) -> None:
        approval, by, run = question.approval, decision.by, self._run
        # Watchers are told of a decision when it is journaled; the machine knows it from the beginning.
        if approval not in self._pending() or all(one.approval != approval for one in run.questions()):
            # Settled meanwhile, or the run has ended: a decision comes too late, and changes nothing.
            return
        try:
            try:
                decision.hand_in(run, approval)
            except (DecisionError, SecretGivenError) as error:
                run.decide(approval, question.refusal, by=by, reason=f"its decision does not hold: {error}")
        except InterruptedRunError:
            # Another process drives the run, and decides.
            return
        except PASSING:
            raise
        except IdeabridgeError as error:
            # Mostly the run is not driven here any more: its status says why, and the journal holds no decision.
            # Where it is, nobody else would decide.
            if run.runner.lost is None and approval in self._pending():
                run.runner.fail(error)
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            run.runner.fail(error)

    def _let_go(self, approval: str) -> None:
        for scope in self._scopes.pop(approval, []):
            scope.cancel()
