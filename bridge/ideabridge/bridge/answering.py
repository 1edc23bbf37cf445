"""Answering: the questions of a run, and what somebody decided on one, as the event that says so (DESIGN 4.6, 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias

from ideabridge.bridge.context.document import MISSING, Missing
from ideabridge.bridge.context.reference import quoted
from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.decider import Decider
from ideabridge.bridge.loop.edit import read_edit
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    CallDecided,
    OutcomeAsked,
    OutcomeDecided,
    PlanAsked,
    PlanDecided,
    QuestionAnswered,
    QuestionAsked,
)
from ideabridge.bridge.loop.instances import spread
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.policy import only_persons, policy_named
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.loop.question import (
    Key,
    Question,
    call_question,
    inquiry_question,
    outcome_question,
    unknown,
)
from ideabridge.bridge.loop.readiness import Refusal
from ideabridge.bridge.run_values import rejection
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.reading import read_solution
from ideabridge.tools.schema import Validator

Asked: TypeAlias = ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked
Decided: TypeAlias = CallDecided | OutcomeDecided | PlanDecided | QuestionAnswered


_NAMED: Final = 5
"""How many pending approvals an error names."""

_ANSWER_BYTES: Final = 100_000
"""How much goes into one form."""


def questions(machine: Machine) -> list[Question]:
    """Every question that waits for a person, in the order of the calls."""
    found: list[Question | None] = []
    planning = machine.planning
    if planning is not None and planning.waits:
        found.append(planning.question)
    for progress in machine.history:
        if progress.standing is Standing.ASKING:
            found.append(call_question(progress))
        elif progress.standing is Standing.RUNNING:
            found.extend(
                outcome_question(progress, number if progress.call.has_each else None)
                for number, item in enumerate(progress.items)
                if item.doubt is not None
            )
            found.extend(inquiry_question(progress, item.question) for item in progress.items if item.question)
    return [one for one in found if one is not None]


def question_of(machine: Machine, event: Asked) -> Question | None:
    """The question an event has just put; None where it is settled already."""
    if isinstance(event, PlanAsked):
        return machine.planning.question if machine.planning is not None else None
    progress = machine.history[event.call]
    if isinstance(event, QuestionAsked):
        # Not the event itself: what came after it may have settled it.
        asked = progress.items[event.item or 0].question
        return None if asked is None or asked.digest != event.digest else inquiry_question(progress, asked)
    return call_question(progress) if isinstance(event, ApprovalAsked) else outcome_question(progress, event.item)


def key_of(event: Decided) -> Key:
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


def answered(
    machine: Machine,
    approval: str,
    decision: str,
    by: Decider,
    reason: str | None = None,
    *,
    offered: Catalogue,
    call: JSON = None,
    value: JSON | Missing = MISSING,
    plan: JSON = None,
) -> Decided:
    """The event of a decision, checked.

    Args:
        machine: the run's machine.
        approval: the id of one of its questions.
        decision: one of the question's choices.
        by: who decided.
        reason: why.
        offered: the tools there are now: what a call of a plan may be replaced by.
        call: for `edit`: the resolved call as it shall run.
        value: for `value`: the result of the call, or what goes into a module's form; a literal, whatever it looks
            like.
        plan: for `edit` of a plan: `{"calls", "output"?}`, whose references are live; without `output` that stays.

    Raises:
        DecisionError: there is no such question, it has no such choice, or what was given with it cannot hold.
    """
    if by.user is not None:
        by = replace(by, user=str(normalise(by.user, what="by")))
    reason = None if reason is None else str(normalise(reason, what="the reason"))
    if by.kind == "assistant" and only_persons(machine.settings.approval):
        raise DecisionError("only a person decides here (approval.by in the configuration), not the assistant")
    pending = {one.approval: one for one in questions(machine)}
    question = pending.get(approval)
    if question is None:
        more = f" and {len(pending) - _NAMED} more" if len(pending) > _NAMED else ""
        names = ", ".join(list(pending)[:_NAMED]) or "none"
        raise DecisionError(f"no approval {quoted(approval)} is pending; pending are {names}{more}")
    if decision not in question.choices:
        *most, last = (repr(one) for one in question.choices)
        raise DecisionError(f"decision: expected {', '.join(most)} or {last}, found {decision!r}")
    if question.call is None:
        return _plan(machine, question, decision, by, reason, plan)
    if question.kind == "outcome":
        cut_off = machine.history[question.call].items[question.item or 0].cut_off
        return _outcome(question, question.call, decision, by, reason, value, cut_off)
    if question.asked is not None:
        return _reply(question.asked, decision, by, reason, value)
    if decision == "edit":
        return _edited(machine, question, question.call, by, reason, call, offered)
    return CallDecided(question.call, question.digest, "approve" if decision == "approve" else "deny", by, reason)


def _plan(
    machine: Machine, question: Question, decision: str, by: Decider, reason: str | None, plan: JSON
) -> PlanDecided:
    if decision != "edit":
        return PlanDecided(question.digest, "approve" if decision == "approve" else "deny", by, reason)
    plan = normalise(plan, what="the edited plan")
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
        calls, places = spread(calls, machine.opening.instances)
    errors = machine.intake.check(calls, output, places)
    if errors:
        raise DecisionError(f"the edited plan cannot run: {rejection(errors)}")
    return PlanDecided(question.digest, "edit", by, reason, calls, output, places)


def _edited(
    machine: Machine, question: Question, index: int, by: Decider, reason: str | None, call: JSON, offered: Catalogue
) -> CallDecided:
    call = normalise(call, what="the edited call")
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
    return CallDecided(index, question.digest, "edit", by, reason, edit.call, tool)


def _outcome(
    question: Question,
    index: int,
    decision: str,
    by: Decider,
    reason: str | None,
    value: JSON | Missing,
    cut_off: str | None,
) -> OutcomeDecided:
    place = (index, question.digest)
    if decision == "retry":
        return OutcomeDecided(*place, "retry", by, question.item, reason)
    if decision == "skip":
        error: JSONObject = {
            "kind": "unknown",
            "message": f"{unknown(cut_off, question.tool)}; skipped by {by}{f': {reason}' if reason else ''}",
        }
        return OutcomeDecided(*place, "skip", by, question.item, reason, error=error)
    if isinstance(value, Missing):
        raise DecisionError("'value' needs `value`: the result of the call, null where it has none")
    return OutcomeDecided(*place, "value", by, question.item, reason, _checked(question, value))


def _reply(
    asked: QuestionAsked, decision: str, by: Decider, reason: str | None, value: JSON | Missing
) -> QuestionAnswered:
    if decision != "value":
        action = "decline" if decision == "deny" else "cancel"
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
            raise DecisionError(f"{what}: {strange[0][:60]!r} is no field of its form; it has {_named(asked.schema)}")
        Validator(asked.schema, what=what).check(content)
    except DecisionError:
        raise
    except IdeabridgeError as error:
        raise DecisionError(f"the value does not fit the form: {error}") from None
    return QuestionAnswered(asked.call, asked.digest, "accept", by, asked.item, content, reason)


def _fields(schema: JSONObject) -> JSONObject:
    fields = schema.get("properties")
    return fields if isinstance(fields, dict) else {}


def _named(schema: JSONObject) -> str:
    return ", ".join(_fields(schema)) or "none"


def _checked(question: Question, value: JSON) -> JSON:
    tool = question.tool
    named = tool.name if tool is not None else "the call"
    try:
        value = normalise(value, what=f"the result of {named}")
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
