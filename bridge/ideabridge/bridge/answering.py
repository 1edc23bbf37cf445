"""Answering: the questions of a run, and what somebody decided on one, as the event that says so (DESIGN 4.6, 7)."""

from __future__ import annotations

from typing import TypeAlias

from ideabridge.bridge.context.document import MISSING, Missing
from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.event import ApprovalAsked, CallDecided, OutcomeAsked, OutcomeDecided
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.loop.question import UNKNOWN, Key, Question, call_question, outcome_question
from ideabridge.bridge.loop.readiness import edit_problem
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator

Asked: TypeAlias = ApprovalAsked | OutcomeAsked
Decided: TypeAlias = CallDecided | OutcomeDecided


def questions(machine: Machine) -> list[Question]:
    """Every question that waits for a person, in the order of the calls."""
    found: list[Question | None] = []
    for progress in machine.history:
        if progress.standing is Standing.ASKING:
            found.append(call_question(progress))
        elif progress.standing is Standing.RUNNING:
            found.extend(
                outcome_question(progress, number if progress.call.has_each else None)
                for number, item in enumerate(progress.items)
                if item.doubt is not None
            )
    return [one for one in found if one is not None]


def question_of(machine: Machine, event: Asked) -> Question | None:
    """The question an event has just put; None where it is settled already."""
    progress = machine.history[event.call]
    return call_question(progress) if isinstance(event, ApprovalAsked) else outcome_question(progress, event.item)


def key_of(event: Decided) -> Key:
    """What a decision is about."""
    return ("call", event.call, None) if isinstance(event, CallDecided) else ("outcome", event.call, event.item)


def answered(
    machine: Machine,
    question: Question,
    decision: str,
    *,
    by: str,
    reason: str | None = None,
    call: JSON = None,
    value: JSON | Missing = MISSING,
) -> Decided:
    """The event of a decision, checked.

    Args:
        machine: the run's machine.
        question: one of its questions.
        decision: one of the question's choices.
        by: who decided.
        reason: why.
        call: for `edit`: the resolved call as it shall run.
        value: for `value`: the result of the call; a literal, whatever it looks like.

    Raises:
        DecisionError: the question has no such choice, or what was given with it cannot hold.
    """
    if decision not in question.choices:
        *most, last = (repr(one) for one in question.choices)
        raise DecisionError(f"decision: expected {', '.join(most)} or {last}, found {decision!r}")
    if question.kind == "outcome":
        return _outcome(question, decision, by, reason, value)
    return _call(machine, question, decision, by, reason, call)


def _call(machine: Machine, question: Question, decision: str, by: str, reason: str | None, call: JSON) -> CallDecided:
    if decision != "edit":
        how = "approve" if decision == "approve" else "deny"
        return CallDecided(question.call, question.digest, how, by, reason)
    call = normalise(call, what="the edited call")
    if not isinstance(call, dict):
        raise DecisionError("an edit needs `call`: the resolved call as it shall run")
    problem = edit_problem(machine.history[question.call], call, machine.catalogue)
    if problem is not None:
        raise DecisionError(f"the edited call cannot run: {problem}")
    return CallDecided(question.call, question.digest, "edit", by, reason, call)


def _outcome(question: Question, decision: str, by: str, reason: str | None, value: JSON | Missing) -> OutcomeDecided:
    place = (question.call, question.digest)
    if decision == "retry":
        return OutcomeDecided(*place, "retry", by, question.item, reason)
    if decision == "skip":
        error: JSONObject = {
            "kind": "unknown",
            "message": f"{UNKNOWN}; skipped by {by}{f': {reason}' if reason else ''}",
        }
        return OutcomeDecided(*place, "skip", by, question.item, reason, error=error)
    if isinstance(value, Missing):
        raise DecisionError("'value' needs `value`: the result of the call, null where it has none")
    return OutcomeDecided(*place, "value", by, question.item, reason, _checked(question, value))


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
