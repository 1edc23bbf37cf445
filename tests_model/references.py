"""References: how often a model writes one where it could."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class References:
    """What stands in the parameters of calls and in the outputs where a reference could.

    Attributes:
        written: references.
        copied: values that the input or a result has.
        guessed: values of an output that nothing has, though there were calls.
    """

    written: int
    copied: int
    guessed: int

    @property
    def possible(self) -> int:
        return self.written + self.copied + self.guessed


def calls_of(solution: JSON) -> list[JSONObject]:
    """The calls of a Solution."""
    calls = solution.get("calls") if isinstance(solution, dict) else None
    if isinstance(calls, list):
        return [call for call in calls if isinstance(call, dict)]
    return []


def count_references(solutions: Sequence[JSON], given: JSON, results: Sequence[JSON]) -> References:
    """Count over all Solutions of a run.

    Args:
        solutions: in order.
        given: the input.
        results: of all calls of the run that were done.
    """
    # Compare the values as text that includes their types, because True equals 1 in Python.
    known = {
        repr(leaf)
        for value in (given, *results)
        for leaf in _leaves(value)
        if leaf not in (None, "")
    }
    written = copied = guessed = 0
    for solution in solutions:
        calls = calls_of(solution)
        of_calls = [
            leaf
            for call in calls
            for name, value in call.items()
            if name[:1] != "_"
            for leaf in _leaves(value)
        ]
        output = solution.get("output") if isinstance(solution, dict) else None
        of_output = [leaf for leaf in _leaves(output) if leaf is not None]
        for leaf in (*of_calls, *of_output):
            written += _is_reference(leaf)
            copied += not _is_reference(leaf) and repr(leaf) in known

        if calls:
            guessed += sum(
                not _is_reference(leaf) and repr(leaf) not in known for leaf in of_output
            )

    return References(written, copied, guessed)


def _is_reference(leaf: JSON) -> bool:
    return isinstance(leaf, str) and leaf[:1] == "†" and leaf[1:2] != "†"


def _leaves(value: JSON) -> Iterator[JSON]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value
