"""Doubt: executions of which nobody knows what came of them, and what a person says of them."""

from __future__ import annotations

from collections.abc import Mapping

from ideabridge.bridge.loop.event import CallFinished, JournalError, OutcomeAsked, OutcomeDecided
from ideabridge.bridge.loop.progress import Item, Progress, Standing


def mark_unknown(progress: Mapping[int, Progress], event: OutcomeAsked) -> None:
    """Note that a person is asked about an execution in flight.

    Raises:
        JournalError: it is not in flight, or is asked about already.
    """
    item = _item(progress, event.call, event.item)
    if not item.started or item.finished or item.doubt is not None or item.question is not None:
        raise JournalError(f"call {event.call} is not in flight; nobody can be asked what came of it")
    item.doubt, item.cut_off = event.digest, event.why


def decide_outcome(progress: Mapping[int, Progress], event: OutcomeDecided) -> CallFinished | None:
    """Take a person's word for an execution.

    Returns:
        How it ended; None: it is to run again.

    Raises:
        JournalError: nobody was asked about it, or the decision is bound to another question.
    """
    item = _item(progress, event.call, event.item)
    if item.doubt is None:
        raise JournalError(f"nobody was asked what came of call {event.call}")
    if item.doubt != event.digest:
        raise JournalError(f"the decision on call {event.call} is bound to another question than the one that waits")
    item.doubt = None
    item.doubts += 1
    if event.decision == "retry":
        item.started = False
        return None
    return CallFinished(event.call, event.item, event.value, event.error)


def _item(progress: Mapping[int, Progress], call: int, number: int | None) -> Item:
    one = progress.get(call)
    if one is None or one.standing is not Standing.RUNNING or (number or 0) >= len(one.items):
        raise JournalError(f"call {call} is not running")
    return one.items[number or 0]
