"""Split a stream of bytes into server-sent events.

An `EventReader` does no input or output. `feed` accepts bytes as they arrive, cut anywhere, and
returns the events that they complete. `end` returns the last event, which some servers do not end
with a blank line. Lines end with LF, CR or CRLF. Memory is limited: of an event that exceeds the
limit, only the first and last bytes are stored. They are enough to find the request that the event
answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_END_BYTES: Final = 512
_NAME_CHARACTERS: Final = 100
_ID: Final = re.compile(rb"[\x20-\x7e]{1,1024}")
"""Matches the event ids that can be sent back in a header."""
_RETRY: Final = re.compile(rb"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its name, shortened, and its data, with lines joined by LF."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class LongEvent:
    """An event larger than the limit: the first and last bytes of its data, and its size in
    bytes.
    """

    start: bytes
    end: bytes
    size: int


class EventReader:
    """Reads the events in one stream.

    Args:
        limit: the maximum size, in bytes, of one event.

    Attributes:
        last_id: the id of the last complete event with an id, as a string for a header, or None.
        retry: the number of milliseconds that clients should wait before they reopen a lost stream,
            or None if the server does not specify it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.last_id: str | None = None
        self.retry: int | None = None
        # The pieces of the unfinished line, and their total size in bytes.
        self._pieces: list[bytes] = []
        self._line_size = 0
        self._is_first_line = True
        # True if the last line ended with CR. An LF that follows then belongs to the same line
        # ending.
        self._after_cr = False
        # The state of the unfinished event.
        self._name = ""
        self._data: list[bytes] = []
        self._event_id: str | None = None
        self._size = 0
        self._is_long = False
        self._long_start = b""
        self._long_end = b""

    @property
    def pending(self) -> int:
        """The size, in bytes, of the unfinished event."""
        return self._size

    def feed(self, chunk: bytes) -> list[Event | LongEvent]:
        """Add bytes, and return the events that they complete. Events without data are left out."""
        events: list[Event | LongEvent] = []
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False

        if chunk.endswith(b"\r"):
            self._after_cr = True

        for piece in chunk.splitlines(keepends=True):
            text = piece.rstrip(b"\r\n")
            self._add(text)
            if len(text) < len(piece) and (event := self._end_line()) is not None:
                events.append(event)

        return events

    def end(self) -> list[Event | LongEvent]:
        """End the stream. Return the last event in a list if no blank line has ended it, otherwise
        an empty list.
        """
        if self._line_size:
            self._end_line()
        # Ignore the event's id, because the event might be cut off and a reopened stream must then
        # begin with it.
        self._event_id = None
        event = self._end_event()
        return [] if event is None else [event]

    def _add(self, text: bytes) -> None:
        self._line_size += len(text)
        if self._pieces and self._pieces[0].startswith(b":"):
            return  # the rest of a comment
        self._size += len(text)
        if self._is_long:
            self._long_end = (self._long_end + text[-_END_BYTES:])[-_END_BYTES:]
        elif self._size > self._limit and not text.startswith(b":"):
            self._drop(text)
        elif text:
            self._pieces.append(text)

    def _drop(self, text: bytes) -> None:
        """Drop the middle of an event larger than the limit, keeping only its first and last bytes.
        `text` is the next piece of the event.
        """
        pieces = [*self._data, *self._pieces, text]
        start = b""
        for piece in pieces:
            start += piece[: _END_BYTES + len(b"data: ")]
            if len(start) >= _END_BYTES:
                break

        end = b""
        for piece in reversed(pieces):
            end = piece[-_END_BYTES:] + end
            if len(end) >= _END_BYTES:
                break

        self._is_long = True
        self._long_start = start.removeprefix(b"data:").lstrip()[:_END_BYTES]
        self._long_end = end[-_END_BYTES:]
        self._data.clear()
        self._pieces.clear()

    def _end_line(self) -> Event | LongEvent | None:
        """Process a complete line. A blank line ends the event."""
        if not self._line_size:
            return self._end_event()

        if len(self._pieces) == 1:
            line = self._pieces[0]
        else:
            line = b"".join(self._pieces)

        self._pieces.clear()
        self._line_size = 0
        if self._is_first_line:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            self._is_first_line = False

        if self._is_long:
            return None

        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            return None

        self._size = max(0, self._size - len(line))
        if name == b"event":
            self._name = value.decode("utf-8", "replace")[:_NAME_CHARACTERS]
        elif name == b"id" and _ID.fullmatch(value):
            self._event_id = value.decode("ascii")
        elif name == b"retry" and _RETRY.fullmatch(value):
            self.retry = int(value)

        return None

    def _end_event(self) -> Event | LongEvent | None:
        event: Event | LongEvent | None = None
        if self._is_long:
            event = LongEvent(self._long_start, self._long_end, self._size)
        elif data := b"\n".join(self._data):
            event = Event(self._name or "message", data)

        if self._event_id is not None:
            self.last_id = self._event_id

        self._name = ""
        self._data.clear()
        self._event_id = None
        self._size = 0
        self._is_long = False
        self._is_first_line = False
        return event
