"""Describe a suggested tool to a person who has not seen its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from ideabridge.bridge.lifting.plain import OpenPoint
from ideabridge.bridge.publishing.suggestions import Suggestion
from ideabridge.server.ui.forms import number_from
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.tools.names import counted

_MOST_STEPS: Final = 3
"""Number of steps that a title names. It counts the others."""

_LISTED_STEPS: Final = 8
"""Number of steps that a card lists. It counts the others."""

_LATEST_RUNS: Final = 3
"""Number of the latest runs that a card lists."""

_MOST_DOUBTS: Final = 3
"""Number of doubts on the card of a suggestion. The page of the draft lists them all."""


@dataclass(frozen=True, slots=True)
class SuggestedTool:
    """A suggestion as its card shows it.

    Attributes:
        suggestion: the suggestion.
        title: a description of the steps.
        steps: the titles of the first steps' tools.
        runs: the latest runs that did the work.
        asks_for: the parameters that callers must pass. Parameters with the same value are listed
            once.
        doubts: what a person still has to choose, as phrases.
        review: the query string of the page for reviewing the tool before it is published.
    """

    suggestion: Suggestion
    title: str
    steps: list[str]
    runs: list[str]
    asks_for: list[str]
    doubts: list[str]
    review: str

    @classmethod
    def of(cls, suggestion: Suggestion, titles: ToolTitles) -> SuggestedTool:
        """Describe a suggestion."""
        latest, *others = suggestion.occurrences
        query = [("ref", latest.ref)]
        query += [("with", other.ref) for other in others]
        query += [("require", name) for name in suggestion.required]
        query.append(("name", suggestion.name))
        steps = [titles.of(tool) for tool in suggestion.tools[:_LISTED_STEPS]]
        runs = dict.fromkeys(occurrence.run for occurrence in suggestion.occurrences)
        asks_for = [name for name in suggestion.required if name not in suggestion.repeated]
        return cls(
            suggestion=suggestion,
            title=_title(suggestion.tools, titles),
            steps=steps,
            runs=list(runs)[:_LATEST_RUNS],
            asks_for=asks_for,
            doubts=_doubts(suggestion, titles),
            review=urlencode(query),
        )


def _title(tools: tuple[str, ...], titles: ToolTitles) -> str:
    """Return the steps as a sentence, such as `Find customer, then list orders`."""
    named = [titles.in_words(tool) for tool in tools[:_MOST_STEPS]]
    more = len(tools) - len(named)
    if more:
        named.append(counted(more, "more step"))
    title = ", then ".join(named)
    return f"{title[:1].upper()}{title[1:]}"


def _doubts(suggestion: Suggestion, titles: ToolTitles) -> list[str]:
    dropped: list[str] = []
    doubts: list[str] = []
    for point in suggestion.open:
        step = _step_at(point)
        if point.kind == "dropped_result" and step is not None and step < len(suggestion.tools):
            dropped.append(titles.of(suggestion.tools[step]))
        else:
            doubts.append(point.why)

    if dropped:
        doubts.insert(0, _without_results(dropped, len(suggestion.tools)))
    return doubts[:_MOST_DOUBTS]


def _step_at(point: OpenPoint) -> int | None:
    """Return the number of the call that `point` is about, or None if it is not about a whole
    call.
    """
    head, _, number = point.at.partition(".")
    return number_from(number) if head == "calls" else None


def _without_results(dropped: list[str], steps: int) -> str:
    """Return what to choose if the tool neither uses nor returns the results of some steps, given
    the titles of these steps' tools.
    """
    if len(dropped) == steps and steps > 1:
        return "which result it returns"
    if len(dropped) == 1:
        return f"whether to return the result of {dropped[0]}, which no step uses"

    *first, last = dict.fromkeys(dropped)
    named = f"{', '.join(first)} and {last}" if first else last
    return f"whether to return the results of {named}, which no step uses"
