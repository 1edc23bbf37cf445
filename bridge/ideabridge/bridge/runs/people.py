"""Handle a run's questions to people, and the decisions on them.

A run asks about calls (may this call run?), about outcomes (a call was in flight when its process
died: how did it end?) and about plans (may the whole plan of this lazy run be carried out?), and it
passes on the questions that servers ask. Each is a `Question` of the run's machine, bound to the
digest of what is shown. `read_decision` checks a `Decision` and creates its event. `People` makes
sure that each of a run's questions is settled: it asks the approver, if there is one, and refuses a
question that nobody settles in time. If several answers arrive, the first one that the machine
accepts counts, and later ones change nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.context.assumption import (
    Assumption,
    Candidate,
    read_assumption,
    with_choices,
)
from ideabridge.bridge.context.inquiry import AnswerError, Inquiry, read_answer
from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.driving.driver import Driver
from ideabridge.bridge.errors import DecisionError, InterruptedRunError, SecretGivenError
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.call import spread
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import (
    APPROVER,
    TIME_OUT,
    AskedEvent,
    DecidedEvent,
    Decider,
    Event,
    decider_of,
)
from ideabridge.bridge.loop.grant import read_grant
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.output import Refusal
from ideabridge.bridge.loop.policy import approval_timeout, only_persons, policy_named
from ideabridge.bridge.loop.progress import CallStatus, Progress
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
from ideabridge.bridge.runs.runner import Runner
from ideabridge.bridge.store.errors import PASSING
from ideabridge.tools.encoding import (
    JSON,
    MAX_BYTES,
    JSONObject,
    ObjectLike,
    encode,
    normalise,
)
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.names import joined
from ideabridge.tools.reading import Solution, read_solution
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool
from ideabridge.tools.typed import read_as, read_whole

DecisionName: TypeAlias = Choice
"""A possible decision on a question; see `Decision.decision`."""

_MOST_NAMED: Final = 5
"""The maximum number of pending approvals that an error names."""

_NAP: Final = 60.0
"""The interval, in seconds, at which the clock is checked. This is necessary because a computer's
timers stop while it sleeps, but its clock does not.
"""

_AGAIN: Final = 1.0
"""The time, in seconds, to wait before resubmitting a decision that the store did not accept."""

_REASON_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to a person.

    It asks one of four things: whether a call may run; how a call that was in flight when its
    process died has ended (`kind` is `outcome`); whether a lazy run's plan is accepted (`plan`); or
    what a server asks during a call (`question`).

    Attributes:
        caller: the owner of the run.
        approval: the id of the approval.
        tool: the tool of the call, or None for a plan.
        call: the call with its references resolved. Empty for a plan.
        why: the reason for the question.
        deadline: when the call or plan is denied, or the outcome or question skipped, in seconds
            since 1970. None means no deadline.
        choices: the allowed decisions.
        plan: `{"calls", "output", "dry_run", "drawing"}`; see `WaitingPlan.to_json`.
        question: `{"module", "message", "schema"}` of a form. Do not trust the message and the
            schema, which the server wrote.
        assumed: the uncertain values of the call, with their alternatives. `why` also names them.
        always: whether the run's owner may allow the tool *always*; see `Decision.always`.
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
    assumed: tuple[Assumption, ...] = ()
    always: bool = False

    @property
    def inquiry(self) -> Inquiry | None:
        """The question that a server asks, or None if no server asks."""
        return read_whole(Inquiry, self.question)

    def with_choices(self, chosen: Mapping[str, Candidate]) -> JSONObject:
        """Return the call to submit with the decision `edit`.

        `chosen` maps the `at` of an assumption to the value to use instead of the assumed one.

        Raises:
            ExplanationError: the call has no such literal.
        """
        return with_choices(
            self.call,
            {
                at: candidate.value
                for at, candidate in chosen.items()
                if not isinstance(candidate.value, Missing)
            },
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision on one question.

    Attributes:
        decision: for a call: `approve`, `deny`, or `edit` to replace it with `call`, in literal
            values. For an unknown outcome: `retry` to run the call again, `skip` to let it fail as
            unknown, or `value` to make `value` its result. For a whole plan: `approve`, `deny`, or
            `edit` to replace it with `plan`, with live references. For a server's question: `value`
            to fill in its form with `value`, `deny` to answer `decline`, or `skip` to answer
            `cancel`.
        call: for `edit`, the call to run instead, with its references resolved.
        reason: the reason for the decision, which the mind sees.
        by: who decided. A string is the name of an approver. A program that has asked a person
            passes a `Decider`.
        value: for `value`, the result of the call, or an object that fits the form.
        plan: for `edit` of a plan, `{"calls", "output"?}`.
        grant: with `approve` for a call: `{"for": "run", "max"?, "parameters"?}`, if the person
            also allows later calls to the same tool to run without a question for the rest of the
            run. `max` limits the number of these later calls. `parameters` is a JSON Schema that
            their parameters must match. Only a person can grant, so `by` must name a person.
        always: with `approve` for a call: whether the person allows the tool from now on in this
            workspace, even in other runs. Only a person who answers in a form, on the page or at a
            terminal can do so, and only if `ApprovalRequest.always` is set.
    """

    decision: DecisionName
    call: ObjectLike | JSON = None
    reason: str | None = None
    by: str | Decider = APPROVER
    value: object = MISSING
    plan: ObjectLike | JSON = None
    grant: ObjectLike | JSON = None
    always: bool = False


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""A function that decides on one question. It can be called for several questions at the same time.
If it raises an exception, the call is denied (or the outcome is skipped), with the text of the
exception as the reason.
"""


def questions(machine: Machine) -> list[Question]:
    """Return every question that is waiting for a person, in call order."""
    asked = [] if machine.plan_question is None else [machine.plan_question]
    for progress in machine.history:
        asked.extend(_questions_of(progress))
    return asked


def _pending_as(machine: Machine, approval: str) -> Question | None:
    """Return the question with the given approval id, or None. The id contains the number of a
    call, so that call is checked first.
    """
    number = _CALL.match(approval)
    place = int(number[1]) if number is not None else len(machine.history)
    if place < len(machine.history):
        listed = _questions_of(machine.history[place])
        pending = next((question for question in listed if question.approval == approval), None)
        if pending is not None:
            return pending

    return next(
        (question for question in questions(machine) if question.approval == approval), None
    )


def _denied(machine: Machine, approval: str) -> str:
    """Return the part of an error message that says who denied the call of an approval, or "" if
    nobody did.
    """
    number = _CALL.match(approval)
    place = int(number[1]) if number is not None else len(machine.history)
    if place >= len(machine.history):
        return ""

    progress = machine.history[place]
    if progress.error is None or progress.error.get("kind") != "denied":
        return ""
    return f" ({progress.call.label}: {progress.error['message']})"


def _pending_names(machine: Machine) -> str:
    """Return the part of an error message that names a run's first pending approvals."""
    pending = [question.approval for question in questions(machine)]
    if not pending:
        return "the run has no pending approvals"

    return f"the pending ones are {joined(pending, _MOST_NAMED)}"


_CALL: Final = re.compile(r"[a-z]+([0-9]{1,9})(?![0-9])", re.ASCII)
"""Matches the number of the call in an approval id, such as `a12-91728a54d476` or `o12.3-...`."""


def _questions_of(progress: Progress) -> Iterator[Question]:
    listed: list[Question | None] = []
    if progress.status is CallStatus.ASKING:
        listed = [call_question(progress)]
    elif progress.status is CallStatus.RUNNING:
        listed = [
            outcome_question(progress, number if progress.call.has_each else None)
            for number, item in enumerate(progress.items)
            if item.in_doubt is not None
        ]
        listed += [
            inquiry_question(progress, item.inquiry) for item in progress.items if item.inquiry
        ]

    return (question for question in listed if question is not None)


def _asked_by(machine: Machine, event: AskedEvent) -> Question | None:
    """Return the question that an event has just asked, or None if it has already been settled."""
    if isinstance(event, events.PlanAsked):
        return machine.plan_question
    listed = _questions_of(machine.history[event.call])
    return next((question for question in listed if question.approval == event.approval), None)


def _settled_by(event: Event) -> tuple[Key, ...]:
    """Return the questions that an event settles.

    The end of a call settles the questions about the call, and those that its server has asked.
    """
    match event:
        case events.CallDecided():
            return (("call", event.call, None),)
        case events.OutcomeDecided():
            return (("outcome", event.call, event.item),)
        case events.QuestionAnswered():
            return (("question", event.call, event.item),)
        case events.PlanDecided():
            return (("plan", None, None),)
        case events.CallFinished():
            return ("call", event.call, None), ("question", event.call, event.item)
        case _:
            return ()


def read_decision(
    machine: Machine, approval: str, decision: Decision, offered: Catalogue
) -> DecidedEvent:
    """Check a decision, and return its event. A person can replace a plan's call with a call to any
    `offered` tool.

    A `value` is always a literal, even if it looks like a reference. The references of an edited
    `plan` are live. If it has no `output`, the plan keeps its output.

    Raises:
        DecisionError: the question does not exist or does not allow this decision, or the
            decision's arguments are invalid.
    """
    by = decider_of(decision.by)
    if by.user is not None:
        by = replace(by, user=str(normalise(by.user, what="by")))

    if decision.reason is None:
        reason = None
    else:
        reason = str(normalise(decision.reason, what="the reason"))

    if by.kind == "assistant" and only_persons(machine.settings.approval):
        raise DecisionError(
            "only a person can decide here (approval.by in the configuration), not the assistant"
        )

    question = _pending_as(machine, approval)
    if question is None:
        problem = f"no approval {quoted(approval)} is pending{_denied(machine, approval)}"
        raise DecisionError(f"{problem}; {_pending_names(machine)}")

    if decision.decision not in question.choices:
        *most, last = (repr(choice) for choice in question.choices)
        raise DecisionError(
            f"decision: expected {', '.join(most)} or {last}, found {decision.decision!r}"
        )

    decision = replace(decision, by=by, reason=reason)
    grant = _granted(machine, question, decision, by)
    if decision.always:
        _expect_always(question, decision, by)
    if question.call is None:
        return _decided_plan(machine, question, decision, by)
    if question.kind == "outcome":
        doubt = machine.history[question.call].items[question.item or 0].in_doubt
        cut_off = None if doubt is None else doubt.why
        return _decided_outcome(question, question.call, decision, by, cut_off)
    if question.asked is not None:
        return _answered_form(question.asked, decision, by)
    if decision.decision == "edit":
        return _edited_call(machine, question, question.call, decision, by, offered)

    verdict = "approve" if decision.decision == "approve" else "deny"
    return events.CallDecided(question.call, question.digest, verdict, by, reason, grant=grant)


def _granted(
    machine: Machine, question: Question, decision: Decision, by: Decider
) -> JSONObject | None:
    if decision.grant is None:
        return None
    if question.call is None or question.kind != "call" or decision.decision != "approve":
        raise DecisionError(
            "a grant requires `approve` for a call: the grant allows the tool of that call for the "
            "rest of the run"
        )

    if by.kind != "person":
        how = (
            "in a form, or at a terminal: ideabridge approvals decide approve "
            f"{question.approval} --for-run"
        )
        raise DecisionError(
            f"only a person can allow a tool for the rest of a run, not {by}; {how}"
        )

    grant = read_grant(machine.history[question.call], normalise(decision.grant, what="the grant"))
    if isinstance(grant, Refusal):
        raise DecisionError(grant.message)
    return grant


_SHOWN_TO_PERSONS: Final = ("form", "page", "terminal")
"""The ways of answering that prove that a person was shown the question; see `Via`."""


def _expect_always(question: Question, decision: Decision, by: Decider) -> None:
    """Raise `DecisionError` unless this person may allow the call's tool *always*."""
    if question.kind != "call" or decision.decision != "approve" or decision.grant is not None:
        raise DecisionError("always requires `approve` for a call, without a grant")
    if by.kind != "person" or by.via not in _SHOWN_TO_PERSONS:
        raise DecisionError(
            f"only a person can choose to always allow a tool, not {by}; in a form, on the page, "
            f"or at a terminal: ideabridge approvals decide approve {question.approval} --always"
        )
    if question.standing is None:
        raise DecisionError(
            "a standing rule is not possible for this call: a person decides each time on a call "
            "that depends on assumptions, that was edited, or that runs code of another tool"
        )


def _decided_plan(
    machine: Machine, question: Question, decision: Decision, by: Decider
) -> events.PlanDecided:
    if decision.decision != "edit":
        verdict = "approve" if decision.decision == "approve" else "deny"
        return events.PlanDecided(question.digest, verdict, by, decision.reason)

    plan = normalise(decision.plan, what="the edited plan")
    if isinstance(plan, list):
        plan = {"calls": plan}

    if not isinstance(plan, dict) or "calls" not in plan or not {*plan} <= {"calls", "output"}:
        raise DecisionError(
            'editing a plan requires `plan`: {"calls": [...], "output"?}, the plan to run instead'
        )

    try:
        members, _ = read_solution(
            {"calls": plan["calls"], "output": plan.get("output", question.shown["output"])}
        )
    except IdeabridgeError as error:
        raise DecisionError(f"the edited plan cannot run: {error}") from None

    solution = read_as(Solution, members)
    calls = solution.calls
    places = None
    if machine.mode == "plan":
        calls, places = spread(calls, machine.instances)

    errors = machine.check(events.SolutionProposed(calls, solution.output, None, places)).errors
    if errors:
        raise DecisionError(f"the edited plan cannot run: {rejection(errors)}")
    return events.PlanDecided(
        question.digest, "edit", by, decision.reason, calls, solution.output, places
    )


def _edited_call(
    machine: Machine,
    question: Question,
    index: int,
    decision: Decision,
    by: Decider,
    offered: Catalogue,
) -> events.CallDecided:
    call = normalise(decision.call, what="the edited call")
    if not isinstance(call, dict):
        raise DecisionError("editing a call requires `call`: the resolved call to run instead")

    catalogue = machine.catalogue
    if machine.mode == "plan":
        # The journal of a plan contains only the tools that the plan names, so add the offered
        # tools. A run of a mind is limited to its own tools.
        catalogue = Catalogue([*offered.tools, *catalogue.tools], offered.latent | catalogue.latent)

    edit = read_edit(
        machine.history[index], call, catalogue, policy_named(machine.settings.approval)
    )
    if isinstance(edit, Refusal):
        raise DecisionError(f"the edited call cannot run: {edit.message}")

    tool = None if edit.tool is None else edit.tool.to_json()
    return events.CallDecided(index, question.digest, "edit", by, decision.reason, edit.call, tool)


def _decided_outcome(
    question: Question, index: int, decision: Decision, by: Decider, cut_off: str | None
) -> events.OutcomeDecided:
    place = (index, question.digest)
    reason = decision.reason
    value = decision.value
    if decision.decision == "retry":
        return events.OutcomeDecided(*place, "retry", by, question.item, reason)
    if decision.decision == "skip":
        message = f"{unknown(cut_off, question.hints)}; skipped by {by}"
        if reason:
            message = f"{message}: {reason}"
        error: JSONObject = {"kind": "unknown", "message": message}
        return events.OutcomeDecided(*place, "skip", by, question.item, reason, error=error)

    if isinstance(value, Missing):
        raise DecisionError(
            "the decision 'value' requires `value`: the result of the call, or null if the call "
            "has no result"
        )
    return events.OutcomeDecided(
        *place, "value", by, question.item, reason, _checked_result(question, value)
    )


def _answered_form(
    asked: events.QuestionAsked, decision: Decision, by: Decider
) -> events.QuestionAnswered:
    if decision.decision != "value":
        action = "decline" if decision.decision == "deny" else "cancel"
        return events.QuestionAnswered(
            asked.call, asked.digest, action, by, asked.item, reason=decision.reason
        )

    value = None if isinstance(decision.value, Missing) else decision.value
    try:
        content = read_answer(asked.module, asked.schema, value)
    except AnswerError as error:
        raise DecisionError(str(error)) from None

    return events.QuestionAnswered(
        asked.call, asked.digest, "accept", by, asked.item, content, decision.reason
    )


def _checked_result(question: Question, raw: object) -> JSON:
    tool = question.tool
    label = "the call" if tool is None else tool.name
    description = f"the result of {label}"
    with _explained("the value cannot be used as the call's result"):
        value = normalise(raw, what=description)
        size = len(encode(value))
        if size > MAX_BYTES:
            raise DecisionError(
                f"{description} has {size:,} bytes of JSON; the limit is {MAX_BYTES:,}"
            )

        if tool is not None and tool.output is not None:
            Validator(tool.output, what=description).check(value)

    return value


@contextlib.contextmanager
def _explained(why: str) -> Generator[None]:
    """Convert the errors of checks to `DecisionError`s whose messages begin with `why`."""
    try:
        yield
    except DecisionError:
        raise
    except IdeabridgeError as error:
        raise DecisionError(f"{why}: {error}") from None


class People:
    """Ensures that each of a run's questions is settled by a person, an approver or a timeout.

    Args:
        runner: the runner of the run.
        driver: the driver of the run.
        group: a task group that outlives the run.
        approver: see `Approver`, or None if people decide with `Run.decide`.
        mask: removes secrets from text.
        settle: settles a pending approval; see `Run.settle`.
        may_allow_always: returns whether the owner of the run may answer a question with *always*.

    Attributes:
        deciding: the approvals that the approver has yet to answer.
    """

    def __init__(
        self,
        runner: Runner,
        driver: Driver,
        group: TaskGroup,
        approver: Approver | None,
        *,
        mask: Callable[[str], str],
        settle: Callable[[str, Decision], None],
        may_allow_always: Callable[[Question], bool],
    ) -> None:
        self.deciding: set[str] = set()
        self._runner = runner
        self._driver = driver
        self._settle = settle
        self._may_allow_always = may_allow_always
        self._group = group
        self._approver = approver
        self._mask = mask
        self._open: dict[str, Question] = {}
        self._asked: dict[str, float] = {}
        self._scopes: dict[str, list[anyio.CancelScope]] = {}

    # -- asking people -----------------------------------------------------------------------------

    def watch(self, event: Event) -> None:
        """Handle an event of the run by recording a new question, or forgetting a settled one."""
        if isinstance(event, AskedEvent):
            self._note(event)
            question = _asked_by(self._runner.machine, event)
            if question is not None:
                self._open[question.approval] = question
                self._arm(question)
                if not self._runner.is_following:
                    # If another process drives the run, it asks its own approver.
                    self._start(question)
        elif isinstance(event, events.ConfigurationChanged):
            # Stricter rules might since have denied what a question asks for.
            asked = {question.approval for question in questions(self._runner.machine)}
            for approval in [approval for approval in self._open if approval not in asked]:
                del self._open[approval]
                self._let_go(approval)
        elif isinstance(event, events.RunEnded):
            for approval in list(self._scopes):
                self._let_go(approval)
        elif self._open and (settled := _settled_by(event)):
            for approval in [
                approval for approval, asked in self._open.items() if asked.key in settled
            ]:
                del self._open[approval]
                self._let_go(approval)

    def take_up(self, journal: Iterable[Event]) -> None:
        """Record the questions of a run that was read from its journal, and when they were
        asked.
        """
        for event in journal:
            if isinstance(event, AskedEvent):
                self._note(event)
        for question in questions(self._runner.machine):
            self._open[question.approval] = question

        for question in self._pending().values():
            self._arm(question)

    def ask(self) -> None:
        """Ask the approver about every pending question of a run that was taken up."""
        for question in self._pending().values():
            self._start(question)

    def expire(self) -> None:
        """Refuse every question whose deadline has passed."""
        for question in list(self._pending().values()):
            deadline = self._deadline(question.approval)
            if deadline is not None and deadline <= time.time():
                # If the store cannot be written to, the question is refused later, by its timer or
                # when somebody next looks up the run.
                with contextlib.suppress(*PASSING):
                    self._hand_in(question, self._refusal(question))

    # -- pending questions -------------------------------------------------------------------------

    def requests(self) -> list[ApprovalRequest]:
        """Return the questions that are waiting for a person, without those that the approver is
        deciding on.
        """
        return [
            self._request(question)
            for question in self._pending().values()
            if question.approval not in self.deciding
        ]

    def _deadline(self, approval: str) -> float | None:
        """Return when a pending approval is denied, in seconds since 1970, or None if it is never
        denied.
        """
        seconds = approval_timeout(self._runner.machine.settings.approval)
        if seconds is None:
            return None
        return self._asked.setdefault(approval, time.time()) + seconds

    def _pending(self) -> dict[str, Question]:
        # This is called at every event, so do not go through all calls.
        if self._runner.machine.ended or self._runner.lost is not None:
            return {}
        return self._open

    def _request(self, question: Question) -> ApprovalRequest:
        runner = self._runner
        plan = waiting_plan(runner.machine) if question.kind == "plan" else None
        return ApprovalRequest(
            run=runner.run_id,
            caller=runner.caller,
            approval=question.approval,
            tool=question.tool,
            call={} if question.kind == "plan" else question.shown,
            why=question.why,
            deadline=self._deadline(question.approval),
            kind=question.kind,
            choices=question.choices,
            plan=None if plan is None else plan.to_json(),
            question=None if question.asked is None else question_form(question.asked),
            assumed=tuple(map(read_assumption, question.assumed)),
            always=self._may_allow_always(question),
        )

    def _note(self, event: AskedEvent) -> None:
        # If the journal does not say when the question was asked, the time limit starts now.
        self._asked[event.approval] = time.time() if event.at is None else event.at

    @property
    def parks(self) -> bool:
        """Whether a call is waiting for an answer to a question from its server. Such a question
        exists only in this process.
        """
        return any(question.kind == "question" for question in self._pending().values())

    # -- timeouts ----------------------------------------------------------------------------------

    def _arm(self, question: Question) -> None:
        deadline = self._deadline(question.approval)
        if deadline is not None:
            self._group.start_soon(self._time_out, question, deadline)

    async def _time_out(self, question: Question, deadline: float) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.setdefault(question.approval, []).append(scope)
            while question.approval in self._pending():
                left = deadline - time.time()
                if left <= 0:
                    await self._decide(question, self._refusal(question))
                    return
                await anyio.sleep(min(left, _NAP))

    def _refusal(self, question: Question) -> Decision:
        seconds = approval_timeout(self._runner.machine.settings.approval) or 0.0
        reason = f"nobody decided within {seconds:g} s"
        return Decision(question.refusal, reason=reason, by=TIME_OUT)

    # -- the approver ------------------------------------------------------------------------------

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
                    answer: object = approver(self._request(question))
                    if not inspect.isawaitable(answer):
                        raise ArgumentError.of(
                            "approver", "a coroutine function (async def)", approver
                        )
                    decision = await answer
            except Exception as error:  # noqa: BLE001 - an error refuses only this question
                text = self._mask(f"{type(error).__name__}: {error}")[:_REASON_CHARACTERS]
                decision = Decision(question.refusal, reason=f"the approver failed: {text}")

        self.deciding.discard(question.approval)
        if scope.cancelled_caught:
            return

        if not isinstance(decision, Decision):
            type_name = type(decision).__name__
            decision = Decision(
                question.refusal, reason=f"the approver returned a {type_name}; expected a Decision"
            )

        await self._decide(question, decision)

    async def _decide(self, question: Question, decision: Decision) -> None:
        """Submit a decision, retrying while the store cannot be written to."""
        while True:
            try:
                await self._driver.patiently(lambda: self._hand_in(question, decision))
            except PASSING:
                await anyio.sleep(_AGAIN)
            else:
                return

    def _hand_in(self, question: Question, decision: Decision) -> None:
        approval = question.approval
        by = decision.by
        runner = self._runner
        # Ask the machine as well, because it applies a decision before the decision is journaled,
        # whereas watchers see it only afterwards.
        if approval not in self._pending() or all(
            asked.approval != approval for asked in questions(runner.machine)
        ):
            # The question has since been settled, or the run has ended.
            return

        try:
            try:
                self._settle(approval, decision)
            except (DecisionError, SecretGivenError) as error:
                reason = f"its decision is not valid: {error}"
                self._settle(approval, Decision(question.refusal, by=by, reason=reason))
        except InterruptedRunError:
            # Another process drives the run, so the approver of that process decides.
            return
        except PASSING:
            raise
        except IdeabridgeError as error:
            # Usually, this process no longer drives the run, and the run's status says why. If it
            # still does, let the run fail, because nobody else would make the decision.
            if runner.lost is None and approval in self._pending():
                runner.fail(error)
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            runner.fail(error)

    def _let_go(self, approval: str) -> None:
        for scope in self._scopes.pop(approval, []):
            scope.cancel()
