"""Aftermath: what becomes of calls whose outcome nobody knows: those that a crash left in flight, and those
whose module ended, or did not answer, while they ran.
"""

from __future__ import annotations

from ideabridge.bridge.loop.effect import Cancel, Execute
from ideabridge.bridge.loop.event import MODULE, CallFinished, Event, OutcomeAsked, QuestionAnswered, SolutionClosed
from ideabridge.bridge.loop.machine import CUT_OFF, Machine
from ideabridge.bridge.loop.progress import Progress, in_flight
from ideabridge.bridge.loop.question import FORKED, gone, outcome_question, unknown


def resume_events(machine: Machine, now: float) -> tuple[list[Execute], list[Event]]:
    """What goes on with a run whose journal was folded.

    Executions in flight run again where the tool says that it may run twice. Of the others the mind is told that
    nobody knows what came of them; a plan's author has answered once and for all, so there a person is asked.

    Args:
        machine: the folded machine.
        now: the time, in seconds since 1970.

    Returns:
        What runs again, and what is to be journaled.
    """
    again: list[Execute] = []
    # Whoever waited for an answer is gone: these come first, and what is asked anew is asked by a new call.
    events: list[Event] = [*gone(machine.history)]
    for progress, number in _cut_off(machine):
        if _repeatable(progress):
            again.append(Execute.of(progress, number))
        else:
            events.append(_in_doubt(machine, progress, number, None, now))
    if machine.is_streaming:
        # What had streamed in is the Solution; the mind is never asked again for it.
        events.append(SolutionClosed(CUT_OFF))
    return again, events


def fork_events(machine: Machine) -> list[Event]:
    """What is journaled in a fork of calls that had not ended in its parent. Nobody has been asked yet: the time that a
    person has begins when the fork does.

    Args:
        machine: the machine of the fork.
    """
    return [
        _in_doubt(machine, progress, number, FORKED, None)
        for progress, number in _cut_off(machine)
        if not _repeatable(progress)
    ]


def finish_events(machine: Machine, finished: CallFinished, now: float) -> list[Event]:
    """What is journaled of an execution that has ended in this process.

    Args:
        machine: the machine of its run.
        finished: how it ended. Its error is of the kind `unknown` where nobody knows whether it took effect.
        now: the time, in seconds since 1970.
    """
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
    """The executions in flight, without those that were to be cancelled."""
    called_off = {effect.key for effect in machine.due() if isinstance(effect, Cancel)}
    return [
        (progress, number)
        for progress, number in in_flight(machine.history)
        if progress.tool is not None and (progress.call.index, number) not in called_off
    ]


def _repeatable(progress: Progress) -> bool:
    """Whether a call runs again by itself. A room goes on where it was."""
    call, tool = progress.call, progress.tool
    return call.has_latent or call.room is not None or (tool is not None and tool.annotations.repeatable)


def _in_doubt(machine: Machine, progress: Progress, number: int | None, why: str | None, now: float | None) -> Event:
    """The question what came of an execution, where somebody can be asked; else that nobody knows."""
    index = progress.call.index
    asked = outcome_question(progress, number) if machine.mode == "plan" else None
    if asked is not None:
        return OutcomeAsked(index, asked.approval, asked.digest, number, now, why)
    return CallFinished(index, number, error={"kind": "unknown", "message": unknown(why, progress.tool)})
