"""Format numbers for people. The page also shows the exact values as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeGuard

from ideabridge.server.ui.showing import in_one_line
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import readable_json

_DECIMAL: Final = re.compile(r"-?\d+(?:\.\d+)?")
"""Matches a number without an exponent."""

_FEWEST: Final = 2
_MOST: Final = 4
"""The fewest and most decimals that the numbers of a column can have."""


def shown_numbers(numbers: Sequence[int | float]) -> list[str]:
    """Return the numbers of a column as text: without `.0` if all are whole numbers, otherwise with
    the same number of decimals. No number is rounded, so a column that needs many decimals is
    unchanged.
    """
    texts = [readable_json(number) for number in numbers]
    if not all(map(_DECIMAL.fullmatch, texts)):
        return texts

    whole = [text.removesuffix(".0") for text in texts]
    decimals = max((len(text.partition(".")[2]) for text in whole), default=0)
    if decimals == 0:
        return whole
    if decimals > _MOST:
        return texts

    decimals = max(decimals, _FEWEST)
    return [_with_decimals(text, decimals) for text in whole]


def shown_value(value: JSON, most: int) -> str:
    """Return a value on one line: a number in full, or at most `most` characters of another."""
    return shown_numbers([value])[0] if is_number(value) else in_one_line(value, most)


def is_number(value: JSON) -> TypeGuard[int | float]:
    """Return whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_decimals(text: str, decimals: int) -> str:
    """Return a number padded with zeros to the given number of decimals."""
    before, _, fraction = text.partition(".")
    return f"{before}.{fraction.ljust(decimals, '0')}"
