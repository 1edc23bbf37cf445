"""Lines of a child's output, bounded: no child can make us hold more than the limit (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_ENDS: Final = 512
"""How much of the beginning and the end of an over-long line is kept, in bytes."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line over the limit, of which only the ends were kept."""

    head: bytes
    tail: bytes
    size: int


class Lines:
    """Cuts a stream of bytes into lines. A line over `limit` bytes comes as a `LongLine`, without being held."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes of the line that has not ended yet."""
        return self._size

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """The lines that `chunk` completes, without their line ends."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._add(chunk[start:end])
            yield self._take()
            start = end + 1
        if start < len(chunk):
            self._add(chunk[start:])

    def rest(self) -> bytes | LongLine | None:
        """What stood after the last line end, at the end of the stream."""
        return self._take() if self._size else None

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._parts.append(piece)
            return
        if self._parts:
            held = b"".join(self._parts)
            self._head, self._tail = held[:_ENDS], held[-_ENDS:]
            self._parts = []
        if len(self._head) < _ENDS:
            self._head = (self._head + piece)[:_ENDS]
        self._tail = (self._tail + piece)[-_ENDS:]

    def _take(self) -> bytes | LongLine:
        long = self._size > self._limit
        line = LongLine(self._head, self._tail, self._size) if long else b"".join(self._parts).removesuffix(b"\r")
        self._parts, self._size, self._head, self._tail = [], 0, b"", b""
        return line
