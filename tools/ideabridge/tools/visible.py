"""Visible: texts from outside, shown so that a person sees every character of them (`visible`), or at least printed so
that they do nothing to a terminal (`printable`).

What a terminal obeys, what turns the direction of a line, what has no width or no ink, and long rows of spaces are
shown as the escapes that JSON has for them: the text of a JSON value stays JSON of the same value.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
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

_SELECTORS: Final = "\ufe0e\ufe0f"
_HIDDEN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, all but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # order of reading
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164"  # no width
    "\ufeff\uffa0"  # no width either
    "\ufe00-\ufe0f"  # variation selectors
    "\u2028\u2029\ufff0-\ufffb"  # line and paragraph separators, annotations
    "\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff"  # half characters, private use, none at all
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # formats of shorthand and music
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"  # tags, more variation selectors, private use
    "]"
)


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


def printable(text: str) -> str:
    """`text` with every hidden character written as JSON escapes it, so that JSON stays JSON of the same value: what a
    terminal obeys, what changes the order of reading, what has no width. 8 ns a character.

    Lines stay lines, and spaces of every width stay; so does one variation selector behind a visible character, as in
    most emoji.
    """
    return _HIDDEN.sub(_written, text)


def printable_line(text: str) -> str:
    """`printable`, on one line: line ends and tabs become spaces."""
    return printable(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def without_hidden(text: str) -> str:
    """`text` without hidden characters: for comparing, not for showing."""
    return _HIDDEN.sub("", text)


def _written(match: re.Match[str]) -> str:
    char, text, place = match.group(), match.string, match.start()
    if char == "\r" and text.startswith("\n", place + 1):
        return char
    if char in _SELECTORS and place and not text[place - 1].isspace() and not _HIDDEN.match(text, place - 1):
        return char
    return _escape(char)


def folded(text: str, width: int, *, first: str = "", further: str = "") -> Iterator[str]:
    """All of a visible text in lines of at most `width` columns. A terminal that breaks a longer line by itself begins
    the next one at the left edge, where it could pass for a line of ours.

    Args:
        text: in one line; see `visible`.
        width: columns of a line.
        first: what the first line begins with.
        further: what each further line begins with.
    """
    lead, left = first, width - len(first)
    line: list[str] = []
    for one in text:
        columns = 2 if unicodedata.east_asian_width(one) in "WF" else 1
        if columns > left and line:
            yield f"{lead}{''.join(line)}"
            lead = further
            line, left = [], width - len(lead)
        line.append(one)
        left -= columns
    yield f"{lead}{''.join(line)}"
