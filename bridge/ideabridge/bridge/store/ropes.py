"""Ropes: long texts are cut into pieces in such a way that two texts that differ in one place have
almost all pieces in common.

A state of 2 MB that grows by 1 KB with each step is a new text at each step. Each piece is stored
once by content, and the text is stored as the list of its pieces' numbers. The places of the cuts
depend only on the bytes around them, so a change moves only the cuts near it.
"""

from __future__ import annotations

import zlib
from typing import Final

LONG: Final = 8192
"""Texts of more bytes than this are cut."""

SHORTEST: Final = 256
"""The minimum number of bytes in a piece, except in the last one."""

LONGEST: Final = 2048
"""The maximum number of bytes in a piece."""

_CLASSES: Final = bytes(byte & 7 for byte in range(256))
_CANDIDATE: Final = b"\4\1"
"""A cut is possible only where two bytes of these classes follow each other. In most texts this is
one place in 30 to 100, and `bytes.find` finds it faster than Python could look at each byte. The
first class contains the comma, the second the digits 1 and 9.
"""

_WINDOW: Final = 24
"""The number of bytes before a place whose checksum decides whether it is a cut."""

_ONE_IN: Final = 8
"""The number of candidates for each cut, on average; a power of 2."""


def cut(raw: bytes) -> list[bytes]:
    """Return the pieces of a text in UTF-8. Each piece is valid UTF-8 too."""
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
    """Return the place where the piece that begins at `start` ends."""
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
    # If no checksum marks a cut, the last candidate is better than the limit: it depends on few
    # bytes, and not on where the piece began.
    return _at_character(raw, last or limit)


def _at_character(raw: bytes, place: int) -> int:
    """Return the place of the first byte of the character at a place."""
    while raw[place] & 0xC0 == 0x80:
        place -= 1
    return place
