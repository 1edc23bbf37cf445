"""Inquiries: what the module of a call that runs asks, on its way through a run.

A call that waits for an answer is parked: it runs at its module, and nothing moves here before somebody answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from ideabridge.bridge.inquiry import Inquiry
from ideabridge.bridge.loop.decider import BRIDGE
from ideabridge.bridge.loop.inquiry_event import QuestionAnswered, QuestionAsked, QuestionRefused
from ideabridge.bridge.loop.journaled import JournalError
from ideabridge.bridge.loop.progress import Item, Progress, Standing, parked
from ideabridge.bridge.loop.readiness import Refusal, digest_of, executed_call
from ideabridge.tools.encoding import JSON

GONE = "the process in which the call waited for it has died"


def asked(progress: Progress, number: int | None, inquiry: Inquiry, at: float) -> QuestionAsked | None:
    """The event of a question that a module puts; None where the call cannot be shown.

    Args:
        progress: the call.
        number: the item of its `_each`.
        inquiry: what is asked.
        at: when, in seconds since 1970.
    """
    item = progress.items[number or 0]
    what: dict[str, JSON] = {"module": inquiry.module, "message": inquiry.message, "schema": inquiry.schema}
    # The same question may be put again: that is another one.
    digest = digest_of({"call": executed_call(progress, item.parameters), **what, "time": item.questions})
    if isinstance(digest, Refusal):
        return None
    index = progress.call.index
    place = index if number is None else f"{index}.{number}"
    approval = f"q{place}-{digest[:12]}"
    return QuestionAsked(index, approval, digest, inquiry.module, inquiry.message, inquiry.schema, number, at)


def take(progress: Mapping[int, Progress], event: QuestionAsked | QuestionAnswered | QuestionRefused) -> int:
    """Note what a module asks, or what became of it.

    Returns:
        How many more calls (or items) are parked now: 1, -1 or 0.

    Raises:
        JournalError: the call does not run, asks already, or asks nothing, or asks another question.
    """
    one = progress.get(event.call)
    if one is None or one.standing is not Standing.RUNNING or (event.item or 0) >= len(one.items):
        raise JournalError(f"call {event.call} is not running")
    item = one.items[event.item or 0]
    if isinstance(event, QuestionRefused):
        said = f"module {event.module!r} asked {event.message!r}, and was not answered: {event.why}"
        one.unasked.append(f"{one.call.label}: {said}")
        return 0
    if isinstance(event, QuestionAsked):
        if not item.started or item.finished or item.doubt is not None or item.question is not None:
            raise JournalError(f"the module of call {event.call} cannot ask now")
        item.question = event
        return 1
    _settle(item, event)
    return -1


def _settle(item: Item, event: QuestionAnswered) -> None:
    if item.question is None:
        raise JournalError(f"the module of call {event.call} has asked nothing")
    if item.question.digest != event.digest:
        raise JournalError(f"the answer for call {event.call} is bound to another question than the one that waits")
    item.question = None
    item.questions += 1


def gone(history: list[Progress]) -> list[QuestionAnswered]:
    """The questions of a run that was read from its journal: the calls that wait for an answer are no more."""
    return [QuestionAnswered(one.call, one.digest, "cancel", BRIDGE, one.item, reason=GONE) for one in parked(history)]
