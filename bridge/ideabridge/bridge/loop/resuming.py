"""Events for calls whose outcome is unknown: a crash, a fork or the end of their module interrupted them."""

from __future__ import annotations

from ideabridge.bridge.loop.effect import Cancel, Execute
from ideabridge.bridge.loop.event import MODULE, CallFinished, Event, OutcomeAsked, QuestionAnswered, SolutionClosed
from ideabridge.bridge.loop.machine import CUT_OFF, Machine
from ideabridge.bridge.loop.progress import Progress, in_flight
from ideabridge.bridge.loop.question import FORKED, outcome_question, unknown, withdraw_questions


def resume_events(machine: Machine, now: float) -> tuple[list[Execute], list[Event]]:
    """What continues a run whose journal was folded.

    Executions in flight run again if their tool may run twice. For the others the mind learns that the outcome is
    unknown; in a plan, whose author has answered once and for all, a person is asked.

    Returns:
        What runs again, and the events to journal.
    """
    again: list[Execute] = []
    # The connections that waited for an answer have died with the process: withdraw their questions first.
    events: list[Event] = [*withdraw_questions(machine.history)]
    for progress, number in _cut_off(machine):
        if _repeatable(progress):
            again.append(Execute.of(progress, number))
        else:
            events.append(_in_doubt(machine, progress, number, None, now))
    if machine.is_streaming:
        # The part that had arrived is the Solution; the mind is not asked for it again.
        events.append(SolutionClosed(CUT_OFF))
    return again, events


def fork_events(machine: Machine) -> list[Event]:
    """The events of a fork for calls that had not ended in its parent.

    Nobody has been asked yet: the time that a person has begins with the fork.
    """
    return [
        _in_doubt(machine, progress, number, FORKED, None)
        for progress, number in _cut_off(machine)
        if not _repeatable(progress)
    ]


def finish_events(machine: Machine, finished: CallFinished, now: float) -> list[Event]:
    """The events of an execution that has ended in this process; a question instead if its error is `unknown`."""
    error = finished.error
    if error is None or error.get("kind") != "unknown":
        return [finished]
    progress = machine.history[finished.call]
    events: list[Event] = []
    question = progress.items[finished.item or 0].question
    if question is not None:
        why = "the call that asked has ended"
        events.append(QuestionAnswered(question.call, question.digest, "cancel", MODULE, question.item, reason=why))
    return [*events, _in_doubt(machine, progress, finished.item, str(error.get("message")), now)]


def _cut_off(machine: Machine) -> list[tuple[Progress, int | None]]:
    """The executions in flight, without those for which a `Cancel` is due."""
    called_off = {effect.key for effect in machine.due() if isinstance(effect, Cancel)}
    return [
        (progress, number)
        for progress, number in in_flight(machine.history)
        if progress.tool is not None and (progress.call.index, number) not in called_off
    ]


def _repeatable(progress: Progress) -> bool:
    """Whether a call runs again without a question. A room continues where it was."""
    call, tool = progress.call, progress.tool
    return call.has_latent or call.room is not None or (tool is not None and tool.annotations.repeatable)


def _in_doubt(machine: Machine, progress: Progress, number: int | None, why: str | None, now: float | None) -> Event:
    """A question about the outcome if somebody can be asked, otherwise the error `unknown`."""
    index = progress.call.index
    asked = outcome_question(progress, number) if machine.mode == "plan" else None
    if asked is not None:
        return OutcomeAsked(index, asked.approval, asked.digest, number, now, why)
    return CallFinished(index, number, error={"kind": "unknown", "message": unknown(why, progress.tool)})
