"""Ropes: where a long text is cut, so that two texts that differ in one place have almost all
pieces in common.

A state of 2 MB that gains 1 KB with each step is another text at each step. Its pieces are stored
once by content, and the text as the list of their numbers. The places of the cuts depend only on
the bytes around them, so a change moves the cuts near it, and none behind.
"""

from __future__ import annotations

import zlib
from typing import Final

LONG: Final = 8192
"""Texts of more bytes are cut."""

SHORTEST: Final = 256
"""The fewest bytes of a piece, except the last."""

LONGEST: Final = 2048
"""The most bytes of a piece."""

_CLASSES: Final = bytes(byte & 7 for byte in range(256))
_CANDIDATE: Final = b"\4\1"
"""A cut may stand after two bytes of these classes: in most texts one place in 30 to 100, which
`bytes.find` finds faster than Python could look at each byte. Commas are of the first class, the
digits 1 and 9 of the second.
"""

_WINDOW: Final = 24
"""The bytes before a place that decide, by their checksum, whether it is a cut."""

_ONE_IN: Final = 8
"""How many candidates there are for a cut, a power of 2."""


def cut(raw: bytes) -> list[bytes]:
    """Return the pieces of a text in UTF-8, each of which is UTF-8, too."""
    classes = raw.translate(_CLASSES)
    pieces: list[bytes] = []
    start = 0
    while len(raw) - start > SHORTEST:
        end = _end(raw, classes, start)
        pieces.append(raw[start:end])
        start = end

    if start < len(raw):
        pieces.append(raw[start:])

    return pieces


def _end(raw: bytes, classes: bytes, start: int) -> int:
    """Where the piece that begins at `start` ends."""
    limit = min(start + LONGEST, len(raw))
    last = None
    place = classes.find(_CANDIDATE, start + SHORTEST, limit)
    while place != -1:
        if zlib.crc32(raw[place - _WINDOW : place]) % _ONE_IN == 0:
            return _at_character(raw, place)
        last = place
        place = classes.find(_CANDIDATE, place + 1, limit)

    if limit == len(raw):
        return limit
    # Without such a place a candidate is better than none: it depends on fewer bytes, but not on
    # where the piece began.
    return _at_character(raw, last or limit)


def _at_character(raw: bytes, place: int) -> int:
    """Return the first byte of the character at a place."""
    while raw[place] & 0xC0 == 0x80:
        place -= 1
    return place
