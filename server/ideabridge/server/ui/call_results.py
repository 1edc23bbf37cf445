"""Summarise what the calls of a run returned, in a few words and lines for the run's page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ideabridge.bridge.context.payloads import without_payload
from ideabridge.bridge.loop.machine import Machine
from ideabridge.server.ui.outputs import MOST_ROWS, has_numbers, number_cells
from ideabridge.server.ui.showing import LONGEST, in_few_words, in_one_line
from ideabridge.server.ui.shown_numbers import shown_numbers
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import counted, visible

_LONGEST_LINE: Final = 120
"""Maximum length, in characters, of the line that sums up a result."""

_LONGEST_PART: Final = 160
"""Maximum length, in characters, of a line of the beginning of a result."""

_MOST_LINES: Final = 6
"""Maximum number of lines of the beginning of a result."""

_MOST_MEMBERS: Final = 10
"""Maximum number of members of an object, or of items of a list, in a line."""

_MOST_UNFOLDED: Final = 20
"""Maximum number of a page's results that can be expanded. The others are only lines."""


@dataclass(frozen=True, slots=True)
class ResultLines:
    """The beginning of a call's result.

    Attributes:
        line: the result on one line.
        more: the first lines of the result, or none if `line` contains the whole result.
    """

    line: str
    more: tuple[str, ...] = ()


def call_results(machine: Machine, numbers: Iterable[int]) -> dict[int, ResultLines]:
    """Return the beginnings of calls' results, keyed by call number. Calls without a result, or
    with an empty one, are left out.
    """
    results: dict[int, ResultLines] = {}
    unfolded = 0
    for number in numbers:
        if not 0 <= number < len(machine.history):
            continue

        progress = machine.history[number]
        if not progress.settled or progress.error is not None or progress.value in (None, "", {}):
            continue

        result = result_lines(progress.value)
        if result.more:
            unfolded += 1
        if unfolded > _MOST_UNFOLDED:
            result = ResultLines(result.line)
        results[number] = result

    return results


def result_lines(value: JSON) -> ResultLines:
    """Return the beginning of a result."""
    line = value_in_line(value, _LONGEST_LINE)
    parts = _parts(value)
    is_whole = len(parts) <= 1 or (isinstance(value, dict) and not line.endswith("…"))
    if is_whole and not line.endswith("…"):
        return ResultLines(line)
    return ResultLines(line, tuple(parts))


def value_in_line(value: JSON, most: int) -> str:
    """Return a value on one line without JSON punctuation, cut after `most` characters. Contents of
    nested objects and lists are only counted.
    """
    if isinstance(value, dict) and value:
        return in_one_line(", ".join(_members(value)), most)
    if isinstance(value, list) and value:
        number = counted(len(value), "item")
        first = _with_decimals(value)[0]
        if isinstance(first, dict):
            return in_one_line(f"{number}, the first: {value_in_line(first, most)}", most)
        if isinstance(first, list):
            return in_one_line(f"{number}, the first: {_plain(first)}", most)
        items = ", ".join(_plain(item) for item in value[:_MOST_MEMBERS])
        return in_one_line(f"{number}: {items}", most)
    if isinstance(value, list):
        return "an empty list"
    if isinstance(value, float):
        return _plain(value)
    return in_one_line(value, most)


def _parts(value: JSON) -> list[str]:
    """Return the first lines of a result: lines of text, items of a list, or members of an
    object.
    """
    if isinstance(value, str):
        lines = [line for line in value[:LONGEST].splitlines() if line.strip()]
        return [visible(line[:_LONGEST_PART]) for line in lines[:_MOST_LINES]]
    if isinstance(value, list):
        shown = _with_decimals(value)[:_MOST_LINES]
        return [value_in_line(item, _LONGEST_PART) for item in shown]
    if isinstance(value, dict):
        return [in_one_line(member, _LONGEST_PART) for member in _members(value)]
    return []


def _with_decimals(items: list[JSON]) -> list[JSON]:
    """Return the first items of a list with the numbers of each member as text, with the same
    number of decimals as in the table of the same list.
    """
    shown = items[:MOST_ROWS]
    rows = [dict(item) for item in shown if isinstance(item, dict)]
    if len(rows) < len(shown):
        return shown

    for name in islice(dict.fromkeys(name for row in rows for name in row), _MOST_MEMBERS):
        if has_numbers(rows, name):
            cells = number_cells(rows, name)
            for row, cell in zip(rows, cells, strict=True):
                if name in row:
                    row[name] = cell

    return [*rows]


def _members(value: dict[str, JSON]) -> list[str]:
    """Return the names and values of the first members of an object."""
    readable = without_payload(value)
    return [
        f"{in_one_line(name, 40)} {_plain(member)}"
        for name, member in islice(readable.items(), _MOST_MEMBERS)
    ]


def _plain(value: JSON) -> str:
    """Return a short form of a nested value."""
    if isinstance(value, float):
        return shown_numbers([value])[0]
    return in_few_words(value, _LONGEST_LINE)
