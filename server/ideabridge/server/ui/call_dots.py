"""Show the outcomes of a run's first calls as dots in the list of runs, one dot for each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.failure import CallFailure, graver
from ideabridge.bridge.store.journal import CallMark
from ideabridge.tools.names import counted

_MOST_DOTS: Final = 12
"""Maximum number of dots in a row."""

Outcome: TypeAlias = (
    Literal["done", "asking", "running", "unfinished", "begun", "not-run"] | CallFailure
)

_WORDS: Final[dict[Outcome, str]] = {
    "done": "done",
    "failed": "failed",
    "denied": "denied",
    "cancelled": "cancelled",
    "asking": "waiting for approval",
    "running": "running",
    "unfinished": "not finished",
    "begun": "begun",
    "not-run": "not run",
}


@dataclass(frozen=True, slots=True)
class CallDots:
    """The outcomes of a run's calls.

    Attributes:
        outcomes: the outcomes of the first calls, in the order in which the calls began or asked
            for approval.
        more: how many further calls have begun.
        is_cut: whether there may be more calls than `outcomes` and `more` cover.
        label: the number of calls with each outcome, as text.
    """

    outcomes: tuple[Outcome, ...]
    more: int
    is_cut: bool
    label: str


@dataclass(slots=True)
class _MarkedCall:
    """What the marks say about a call. A call that runs over items starts and ends once for each
    item.
    """

    events: Counter[str] = field(default_factory=Counter[str])
    failure: CallFailure | None = None

    def add(self, mark: CallMark) -> None:
        self.events[mark.event] += 1
        self.failure = graver(self.failure, mark.failure)

    @property
    def outcome(self) -> Outcome:
        events = self.events
        if self.failure is not None:
            return self.failure
        if events["approval_asked"] > events["call_decided"]:
            return "asking"

        ends = events["call_finished"]
        return "done" if ends and ends >= events["call_started"] else "running"


def call_dots(
    marks: Sequence[CallMark], not_run: int = 0, *, has_ended: bool = False, is_cut: bool = False
) -> CallDots | None:
    """Return the dots for a run, or None if none of its calls has begun.

    Args:
        marks: the events of the run's first calls, in order.
        not_run: the number of calls without events, which never started because a call that they
            read has no result.
        has_ended: whether the run has ended, so that none of its calls is still running.
        is_cut: whether the run has more events than `marks` contains. A call whose end is not in
            `marks` is only known to have begun.
    """
    calls: dict[int, _MarkedCall] = {}
    for mark in marks:
        calls.setdefault(mark.call, _MarkedCall()).add(mark)

    if not calls:
        return None

    outcomes: list[Outcome] = []
    for call in calls.values():
        outcome = call.outcome
        is_open = outcome in ("asking", "running")
        if is_open and is_cut:
            outcome = "begun"
        elif is_open and has_ended:
            outcome = "unfinished"
        outcomes.append(outcome)

    outcomes.extend(repeat("not-run", not_run))
    numbers = Counter(outcomes)
    parts = [f"{numbers[name]} {words}" for name, words in _WORDS.items() if numbers[name]]
    label = f"{counted(len(outcomes), 'call')}: {', '.join(parts)}"
    if is_cut:
        label = f"the first {label}"

    shown = outcomes[:_MOST_DOTS]
    return CallDots(
        outcomes=tuple(shown),
        more=len(outcomes) - len(shown),
        is_cut=is_cut,
        label=label,
    )
