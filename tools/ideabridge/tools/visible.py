"""Visible: texts from outside, shown so that a person sees every character of them.

What a terminal obeys, what turns the direction of a line, what has no width or no ink, and long rows of spaces are
shown as the escapes that JSON has for them: the text of a JSON value stays JSON of the same value.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_BLANK: Final = frozenset(
    map(
        chr,
        [
            0x034F,  # combining grapheme joiner
            *(0x115F, 0x1160, 0x3164, 0xFFA0),  # fillers of Hangul, which are letters without ink
            *(0x17B4, 0x17B5),
            *range(0x180B, 0x1810),
            0x2800,  # Braille without a dot
            *range(0xFE00, 0xFE10),  # variation selectors
            *range(0xE0100, 0xE01F0),
        ],
    )
)
"""Printable by their category, and nothing is to be seen of them. Tags and direction marks are not printable anyway."""

_SPACES: Final = 16
_MARKS: Final = 3
"""Marks upon one letter: scripts have up to three; more climb into the lines above and below."""


def visible(text: str, keep: str = "") -> str:
    """`text` with everything escaped that a person would not see as what it is.

    Args:
        text: from outside.
        keep: characters to leave, such as line ends.
    """
    if text.isascii() and text.isprintable() and " " * _SPACES not in text:
        return text
    shown: list[str] = []
    spaces = marks = 0
    for one in text:
        spaces = spaces + 1 if one == " " else 0
        marks = marks + 1 if unicodedata.category(one)[0] == "M" else 0
        plain = one.isprintable() and one not in _BLANK and spaces <= _SPACES and marks <= _MARKS
        shown.append(one if plain or one in keep else _escape(one))
    return "".join(shown)


def _escape(one: str) -> str:
    code = ord(one)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
