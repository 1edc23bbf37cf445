"""Convert a value to another notation.

All functions here are pure. The result is MISSING if a step does not apply to a value, or if the
value is too long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.tools.encoding import JSON, encode_text, number_or_none

CHARACTERS: Final = 1_000_000
"""The maximum length of a string before or after a conversion, in characters."""

STEPS: Final[Mapping[str, str]] = {
    "number": "as a number",
    "text": "as text",
    "lower": "in lower case",
    "upper": "in upper case",
    "title": "with capitals",
    "strip": "without spaces around it",
}
"""The conversion steps, keyed by name, each with a description. `number` and `text` change the type
of a value; the other steps change a string.
"""

_CHANGES: Final[Mapping[str, Callable[[str], str]]] = {
    "lower": str.lower,
    "upper": str.upper,
    "title": str.title,
    "strip": str.strip,
}


def convert(value: JSON, step: str) -> JSON | Missing:
    """Apply one step of `STEPS` to a value. Return MISSING if the step cannot be applied."""
    if step == "text":
        return as_text(value)
    if not isinstance(value, str) or len(value) > CHARACTERS:
        return MISSING
    return _to_number(value) if step == "number" else _CHANGES[step](value)


_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")


def _to_number(value: str) -> JSON | Missing:
    text = value.strip()
    if _NUMBER.fullmatch(text) is None:
        return MISSING
    return float(text) if "." in text else int(text)


def as_text(value: JSON | Missing) -> JSON | Missing:
    """Return a number as a string, or MISSING for any other value."""
    if isinstance(value, Missing) or number_or_none(value) is None:
        return MISSING
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return encode_text(value)
