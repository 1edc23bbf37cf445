"""Aftermath: what a crash left in flight, and what becomes of it (DESIGN 7)."""

from __future__ import annotations

from ideabridge.bridge.loop.course import CUT_OFF
from ideabridge.bridge.loop.effect import Cancel, Execute
from ideabridge.bridge.loop.event import CallFinished, Event, OutcomeAsked, SolutionClosed
from ideabridge.bridge.loop.inquiry import gone
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import in_flight
from ideabridge.bridge.loop.question import UNKNOWN, outcome_question


def aftermath(machine: Machine, now: float) -> tuple[list[Execute], list[Event]]:
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
    called_off = {effect.key for effect in machine.due() if isinstance(effect, Cancel)}
    for progress, number in in_flight(machine.history):
        call = progress.call
        tool = progress.tool
        if tool is None or (call.index, number) in called_off:
            continue
        if call.has_latent or call.room is not None or tool.annotations.repeatable:
            again.append(Execute.of(progress, number))
            continue
        asked = outcome_question(progress, number) if machine.mode == "plan" else None
        if asked is None:
            events.append(CallFinished(call.index, number, error={"kind": "unknown", "message": UNKNOWN}))
        else:
            events.append(OutcomeAsked(call.index, asked.approval, asked.digest, number, now))
    if machine.streams:
        # What had streamed in is the Solution; the mind is never asked again for it (DESIGN 4.4.6).
        events.append(SolutionClosed(CUT_OFF))
    return again, events
