"""Picks: conditions that select what a mind chose from a list (DESIGN 4.11: never by position)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from ideabridge.bridge.context.document import MISSING, Missing, parsed_text
from ideabridge.bridge.context.reference import Path
from ideabridge.bridge.replay.values import same, walk
from ideabridge.tools.encoding import JSON, JSONObject

_MOST: Final = 6
"""Conditions offered for one element."""

_LONGEST: Final = 2_000
"""Items of a list that are looked at."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def lists_of(document: JSON) -> Iterator[tuple[Path, list[JSON]]]:
    """The lists of objects in a document, with their paths; at most 50."""
    return islice(_lists(document), 50)


def _lists(document: JSON) -> Iterator[tuple[Path, list[JSON]]]:
    for path, value in walk(document):
        inner: JSON | Missing = parsed_text(value) if isinstance(value, str) else value
        if isinstance(inner, list) and inner and isinstance(inner[0], dict) and len(inner) <= _LONGEST:
            yield path, inner


def explanations(items: list[JSON], chosen: int, rest: Path) -> list[str]:
    """JMESPath expressions on a list that select one element by what it holds, and of it the value at `rest`.

    Args:
        items: the list.
        chosen: which element is meant.
        rest: keys below it.
    """
    if len(items) < 2 or len(items) > _LONGEST or any(key.isdecimal() for key in rest):
        return []
    below = "".join(f".{_identifier(key)}" for key in rest)
    if not all(isinstance(item, dict) for item in items):
        return [] if rest else _of_scalars(items, chosen)
    objects = [item for item in items if isinstance(item, dict)]
    found: list[str] = []
    for key in objects[chosen]:
        column = [item.get(key, MISSING) for item in objects]
        extreme = _extreme(column, chosen)
        if extreme is not None:
            found.append(f"{extreme}_by(@, &{_identifier(key)}){below}")
    found += [f"{_where(key, value)} | [0]{below}" for key, value in _alone(objects, chosen) if (key,) != rest]
    return found[:_MOST]


def _of_scalars(items: list[JSON], chosen: int) -> list[str]:
    extreme = _extreme(items, chosen)
    return [] if extreme is None else [f"{extreme}(@)"]


def _extreme(column: Sequence[JSON | Missing], chosen: int) -> str | None:
    """`max` or `min`, where the chosen one alone is the largest or smallest of numbers, or of texts."""
    numbers = [one for one in column if isinstance(one, int | float) and not isinstance(one, bool)]
    texts = [one for one in column if isinstance(one, str)]
    if len(numbers) == len(column):
        return _side([float(one) for one in numbers], chosen)
    return _side(texts, chosen) if len(texts) == len(column) else None


_Ordered = TypeVar("_Ordered", float, str)


def _side(values: list[_Ordered], chosen: int) -> str | None:
    others = [value for place, value in enumerate(values) if place != chosen]
    if all(value < values[chosen] for value in others):
        return "max"
    return "min" if all(value > values[chosen] for value in others) else None


def _alone(objects: list[JSONObject], chosen: int) -> Iterator[tuple[str, JSON]]:
    """The members by which the chosen object is told from all others."""
    for key, value in objects[chosen].items():
        if isinstance(value, str | int | float) and sum(same(item.get(key), value) for item in objects) == 1:
            yield key, value


def projections(items: list[JSON], wanted: list[JSON]) -> list[str]:
    """JMESPath expressions on a list of objects that give a list of one member of each, or of those that meet a
    condition.
    """
    objects = [item for item in items if isinstance(item, dict)]
    if len(objects) != len(items) or not wanted:
        return []
    found: list[str] = []
    for key in objects[0]:
        rows = [(item, item[key]) for item in objects if item.get(key) is not None]
        if same([value for _, value in rows], wanted):
            found.append(f"[*].{_identifier(key)}")
        elif len(wanted) < len(rows):
            found += [f"{where}.{_identifier(key)}" for where in _conditions(rows, wanted)]
    return found[:_MOST]


def _conditions(rows: list[tuple[JSONObject, JSON]], wanted: list[JSON]) -> Iterator[str]:
    first = next((item for item, value in rows if same(value, wanted[0])), None)
    for key, value in first.items() if first is not None else ():
        if isinstance(value, str | int | float) and same(
            [found for item, found in rows if same(item.get(key), value)], wanted
        ):
            yield _where(key, value)


def _where(key: str, value: JSON) -> str:
    if isinstance(value, str) and value.isprintable() and not set(value) & {"'", "\\"}:
        return f"[?{_identifier(key)}=='{value}']"
    literal = json.dumps(value).replace("`", "\\`")
    return f"[?{_identifier(key)}==`{literal}`]"


def _identifier(key: str) -> str:
    return key if _IDENTIFIER.fullmatch(key) else json.dumps(key)
