"""Cut long strings into pieces so that two strings that differ in one place share almost all of
their pieces.

A state of 2 MB that grows by 1 KB with each step is a new string at each step. The store keeps only
one copy of each distinct piece, and stores the string as the list of the numbers of its pieces. The
position of a cut depends only on the bytes around it, so a change moves only the cuts near it.
"""

from __future__ import annotations

import zlib
from typing import Final

LONG_BYTES: Final = 8192
"""Strings of more than this many bytes are cut."""

SHORTEST: Final = 256
"""The minimum number of bytes in a piece, except in the last piece."""

LONGEST_PIECE: Final = 2048
"""The maximum number of bytes in a piece."""

_CLASSES: Final = bytes(byte & 7 for byte in range(256))
_CANDIDATE: Final = b"\4\1"
"""A cut is possible only between a byte of the first class and a byte of the second. In most
strings this is one place in 30 to 100, and `bytes.find` finds it faster than Python code could
examine each byte. The first class contains the comma, the second the digits 1 and 9.
"""

_WINDOW: Final = 24
"""The number of bytes covered by the checksum that decides whether to cut after them."""

_ONE_IN: Final = 8
"""The average number of candidates for each cut, which is a power of 2."""


def cut(raw: bytes) -> list[bytes]:
    """Cut a UTF-8 string into pieces. Each piece is also valid UTF-8."""
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
    """Return where the piece that begins at `start` ends."""
    limit = min(start + LONGEST_PIECE, len(raw))
    last = None
    place = classes.find(_CANDIDATE, start + SHORTEST, limit)
    while place != -1:
        if zlib.crc32(raw[place - _WINDOW : place]) % _ONE_IN == 0:
            return _at_character(raw, place)
        last = place
        place = classes.find(_CANDIDATE, place + 1, limit)

    if limit == len(raw):
        return limit
    # If no checksum marks a cut, use the last candidate rather than the limit, because a
    # candidate's position depends only on nearby bytes and not on where the piece began.
    return _at_character(raw, last or limit)


def _at_character(raw: bytes, place: int) -> int:
    """Return the position of the first byte of the character at `place`."""
    while raw[place] & 0xC0 == 0x80:
        place -= 1
    return place
