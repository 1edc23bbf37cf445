"""People: what a run asks, and what becomes of it.

A run asks about calls (may this run?), about outcomes (a call was at work when its process died: what came of it?),
about plans (a lazy run's, as a whole), and passes on the questions of modules. Each is a `Question` of its machine and
is bound to the digest of what is shown. `read_decision` checks a `Decision` about one and makes the event of it.
`People` sees to it that each question of a run is settled: it asks the approver, where there is one, and refuses what
nobody settled in time. Several answers may race: the first that the machine takes counts, later ones change nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.errors import DecisionError, InterruptedRunError, SecretGivenError
from ideabridge.bridge.loop.call import spread
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import (
    APPROVER,
    TIME_OUT,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    Decider,
    Event,
    OutcomeAsked,
    OutcomeDecided,
    PlanAsked,
    PlanDecided,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    decider_of,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.output import Refusal
from ideabridge.bridge.loop.policy import approval_timeout, only_persons, policy_named
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.question import (
    CHOICES,
    Choice,
    Key,
    Kind,
    Question,
    call_question,
    inquiry_question,
    outcome_question,
    question_form,
    read_edit,
    unknown,
)
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.plan import waiting_plan
from ideabridge.bridge.store.errors import PASSING
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, ObjectLike, encode, normalise
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.reading import read_solution
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    from ideabridge.bridge.runs.runner import Runner

T = TypeVar("T")

DecisionName: TypeAlias = Choice
"""What may be decided on a question; see `Decision.decision`."""

AskedEvent: TypeAlias = ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked
"""The events that put a question."""

DecidedEvent: TypeAlias = CallDecided | OutcomeDecided | PlanDecided | QuestionAnswered
"""The events that settle one."""

_NAMED: Final = 5
"""How many pending approvals an error names."""

_ANSWER_BYTES: Final = 100_000
"""How many bytes of JSON an answer to a module's form may have."""

_NAP: Final = 60.0
"""Seconds until the clock is looked at again: while a computer sleeps its clock goes on, and no timer does."""

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
        reason: the mind sees it.
        by: who decided; a text is the name of an approver. A program that has asked a person says so with a `Decider`.
        value: for `value`, the result of the call, or an object that fits the form.
        plan: for `edit` of a plan, `{"calls", "output"?}`.
    """

    decision: DecisionName
    call: ObjectLike | JSON = None
    reason: str | None = None
    by: str | Decider = APPROVER
    value: object = MISSING
    plan: ObjectLike | JSON = None


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Decides on one question; it may be asked about several at once. An exception it raises denies the call (an outcome:
skips it), with the exception's text as reason.
"""


def questions(machine: Machine) -> list[Question]:
    """Every question that waits for a person, in the order of the calls."""
    found: list[Question | None] = [machine.plan_question]
    for progress in machine.history:
        if progress.status is CallStatus.ASKING:
            found.append(call_question(progress))
        elif progress.status is CallStatus.RUNNING:
            found.extend(
                outcome_question(progress, number if progress.call.has_each else None)
                for number, item in enumerate(progress.items)
                if item.doubt is not None
            )
            found.extend(inquiry_question(progress, item.question) for item in progress.items if item.question)
    return [one for one in found if one is not None]


def question_of(machine: Machine, event: AskedEvent) -> Question | None:
    """The question an event has just put; None where it is settled already."""
    if isinstance(event, PlanAsked):
        return machine.plan_question
    progress = machine.history[event.call]
    if isinstance(event, QuestionAsked):
        # Not the event itself: what came after it may have settled it.
        asked = progress.items[event.item or 0].question
        return None if asked is None or asked.digest != event.digest else inquiry_question(progress, asked)
    return call_question(progress) if isinstance(event, ApprovalAsked) else outcome_question(progress, event.item)


def _decided_key(event: DecidedEvent) -> Key:
    """What a decision is about."""
    match event:
        case CallDecided():
            return "call", event.call, None
        case OutcomeDecided():
            return "outcome", event.call, event.item
        case QuestionAnswered():
            return "question", event.call, event.item
        case PlanDecided():
            return "plan", None, None


def read_decision(machine: Machine, approval: str, decision: Decision, offered: Catalogue) -> DecidedEvent:
    """The event of a decision, checked.

    Args:
        machine: the run's machine.
        approval: the id of one of its questions.
        decision: what was decided. A `value` is a literal, whatever it looks like; the references of a `plan` are live,
            and without `output` the output of the plan stays.
        offered: the tools there are now: what a call of a plan may be replaced by.

    Raises:
        DecisionError: there is no such question, it has no such choice, or what was given with it cannot hold.
    """
    by = decider_of(decision.by)
    if by.user is not None:
        by = replace(by, user=str(normalise(by.user, what="by")))
    reason = None if decision.reason is None else str(normalise(decision.reason, what="the reason"))
    if by.kind == "assistant" and only_persons(machine.settings.approval):
        raise DecisionError("only a person decides here (approval.by in the configuration), not the assistant")
    pending = {one.approval: one for one in questions(machine)}
    question = pending.get(approval)
    if question is None:
        more = f" and {len(pending) - _NAMED} more" if len(pending) > _NAMED else ""
        names = ", ".join(list(pending)[:_NAMED]) or "none"
        raise DecisionError(f"no approval {quoted(approval)} is pending; pending are {names}{more}")
    if decision.decision not in question.choices:
        *most, last = (repr(one) for one in question.choices)
        raise DecisionError(f"decision: expected {', '.join(most)} or {last}, found {decision.decision!r}")
    decision = replace(decision, by=by, reason=reason)
    if question.call is None:
        return _decided_plan(machine, question, decision, by)
    if question.kind == "outcome":
        cut_off = machine.history[question.call].items[question.item or 0].cut_off
        return _decided_outcome(question, question.call, decision, by, cut_off)
    if question.asked is not None:
        return _answered_form(question.asked, decision, by)
    if decision.decision == "edit":
        return _edited_call(machine, question, question.call, decision, by, offered)
    verdict = "approve" if decision.decision == "approve" else "deny"
    return CallDecided(question.call, question.digest, verdict, by, reason)


def _decided_plan(machine: Machine, question: Question, decision: Decision, by: Decider) -> PlanDecided:
    if decision.decision != "edit":
        verdict = "approve" if decision.decision == "approve" else "deny"
        return PlanDecided(question.digest, verdict, by, decision.reason)
    plan = normalise(decision.plan, what="the edited plan")
    if isinstance(plan, list):
        plan = {"calls": plan}
    if not isinstance(plan, dict) or "calls" not in plan or not {*plan} <= {"calls", "output"}:
        raise DecisionError('an edit of a plan needs `plan`: {"calls": [...], "output"?}, as it shall run')
    try:
        solution, _ = read_solution({"calls": plan["calls"], "output": plan.get("output", question.shown["output"])})
    except IdeabridgeError as error:
        raise DecisionError(f"the edited plan cannot run: {error}") from None
    listed, output, places = solution["calls"], solution["output"], None
    calls = listed if isinstance(listed, list) else []
    if machine.mode == "plan":
        calls, places = spread(calls, machine.instances)
    errors = machine.check(calls, output, places)
    if errors:
        raise DecisionError(f"the edited plan cannot run: {rejection(errors)}")
    return PlanDecided(question.digest, "edit", by, decision.reason, calls, output, places)


def _edited_call(
    machine: Machine, question: Question, index: int, decision: Decision, by: Decider, offered: Catalogue
) -> CallDecided:
    call = normalise(decision.call, what="the edited call")
    if not isinstance(call, dict):
        raise DecisionError("an edit needs `call`: the resolved call as it shall run")
    catalogue = machine.catalogue
    if machine.mode == "plan":
        # Of a plan the journal holds the tools it names; a mind's run has what its caller gave it, and no more.
        catalogue = Catalogue([*offered.tools, *catalogue.tools], offered.latent | catalogue.latent)
    edit = read_edit(machine.history[index], call, catalogue, policy_named(machine.settings.approval))
    if isinstance(edit, Refusal):
        raise DecisionError(f"the edited call cannot run: {edit.message}")
    tool = None if edit.tool is None else edit.tool.to_json()
    return CallDecided(index, question.digest, "edit", by, decision.reason, edit.call, tool)


def _decided_outcome(
    question: Question, index: int, decision: Decision, by: Decider, cut_off: str | None
) -> OutcomeDecided:
    place, reason, value = (index, question.digest), decision.reason, decision.value
    if decision.decision == "retry":
        return OutcomeDecided(*place, "retry", by, question.item, reason)
    if decision.decision == "skip":
        error: JSONObject = {
            "kind": "unknown",
            "message": f"{unknown(cut_off, question.tool)}; skipped by {by}{f': {reason}' if reason else ''}",
        }
        return OutcomeDecided(*place, "skip", by, question.item, reason, error=error)
    if isinstance(value, Missing):
        raise DecisionError("'value' needs `value`: the result of the call, null where it has none")
    return OutcomeDecided(*place, "value", by, question.item, reason, _checked_result(question, value))


def _answered_form(asked: QuestionAsked, decision: Decision, by: Decider) -> QuestionAnswered:
    reason, value = decision.reason, decision.value
    if decision.decision != "value":
        action = "decline" if decision.decision == "deny" else "cancel"
        return QuestionAnswered(asked.call, asked.digest, action, by, asked.item, reason=reason)
    what = f"the answer to module {asked.module}"
    try:
        content = normalise(None if isinstance(value, Missing) else value, what=what)
        if not isinstance(content, dict):
            raise DecisionError("'value' needs `value`: an object that fits the form of the question")
        size = len(encode(content))
        if size > _ANSWER_BYTES:
            raise DecisionError(f"{what} has {size:,} bytes of JSON; at most {_ANSWER_BYTES:,} are sent")
        strange = [name for name in content if name not in _fields(asked.schema)]
        if strange:
            raise DecisionError(
                f"{what}: {strange[0][:60]!r} is no field of its form; it has {_field_names(asked.schema)}"
            )
        Validator(asked.schema, what=what).check(content)
    except DecisionError:
        raise
    except IdeabridgeError as error:
        raise DecisionError(f"the value does not fit the form: {error}") from None
    return QuestionAnswered(asked.call, asked.digest, "accept", by, asked.item, content, reason)


def _fields(schema: JSONObject) -> JSONObject:
    fields = schema.get("properties")
    return fields if isinstance(fields, dict) else {}


def _field_names(schema: JSONObject) -> str:
    return ", ".join(_fields(schema)) or "none"


def _checked_result(question: Question, given: object) -> JSON:
    tool = question.tool
    named = tool.name if tool is not None else "the call"
    try:
        value = normalise(given, what=f"the result of {named}")
        size = len(encode(value))
        if size > MAX_BYTES:
            raise DecisionError(f"the result of {named} has {size:,} bytes of JSON; at most {MAX_BYTES:,} are taken")
        if tool is not None and tool.output is not None:
            Validator(tool.output, what=f"the result of {named}").check(value)
    except DecisionError:
        raise
    except IdeabridgeError as error:
        raise DecisionError(f"the value cannot stand for the call's result: {error}") from None
    return value


class AskingRun(Protocol):
    """What `People` need of a run."""

    id: str
    caller: str
    runner: Runner

    def settle(self, approval: str, decision: Decision) -> None:
        """Settle a pending approval."""
        ...

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call what writes, again where the store cannot be written."""
        ...


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
        run: AskingRun,
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
                question = question_of(self._run.runner.machine, event)
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
                    else (_decided_key(event),)
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
        self._open.update({one.approval: one for one in questions(self._run.runner.machine)})
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
        seconds = approval_timeout(self._run.runner.machine.settings.approval)
        return None if seconds is None else self._asked.setdefault(approval, self._now()) + seconds

    def _pending(self) -> dict[str, Question]:
        run = self._run
        # Not by looking through all calls: this is asked at every event.
        return {} if run.runner.machine.phase == "ended" or run.runner.lost is not None else self._open

    def _request(self, one: Question) -> ApprovalRequest:
        run, deadline = self._run, self.deadline(one.approval)
        plan = waiting_plan(run.runner.machine) if one.kind == "plan" else None
        return ApprovalRequest(
            run=run.id,
            caller=run.caller,
            approval=one.approval,
            tool=one.tool,
            call={} if one.kind == "plan" else one.shown,
            why=one.why,
            deadline=deadline,
            kind=one.kind,
            choices=one.choices,
            plan=None if plan is None else plan.to_json(),
            question=None if one.asked is None else question_form(one.asked),
        )

    def _note(self, event: AskedEvent) -> None:
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
        seconds = approval_timeout(self._run.runner.machine.settings.approval) or 0.0
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
        # Watchers hear of a decision when it is journaled; the machine knows it from the beginning.
        if approval not in self._pending() or all(one.approval != approval for one in questions(run.runner.machine)):
            # Settled meanwhile, or the run has ended: a decision comes too late, and changes nothing.
            return
        try:
            try:
                run.settle(approval, decision)
            except (DecisionError, SecretGivenError) as error:
                reason = f"its decision does not hold: {error}"
                run.settle(approval, Decision(question.refusal, by=by, reason=reason))
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
