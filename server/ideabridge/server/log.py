"""The log of a server: standard error, of which nothing outside can make a flood.

uvicorn, asyncio and the MCP SDK log a line for each malformed request or refused socket, some with a traceback. Whoever
sends them chooses how many there are. So of lines that are alike a few are written in each stretch of time, and then
the number of those that were left out.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TextIO

STRETCH_SECONDS: Final = 10.0
"""The stretch of time that is counted."""

MOST_ALIKE: Final = 5
"""Records of one logger with one text (before its arguments are put in) in a stretch."""

MOST: Final = 50
"""Records of all kinds in a stretch."""

MOST_CHARACTERS: Final = 4000
"""Characters of one record; of a longer one the beginning and the end are written."""


class BoundedLog(logging.Handler):
    """A handler that writes a bounded number of bounded records.

    Filters of a handler see each record first: one that masks secrets is added with `addFilter`.

    Args:
        stream: where to write; None: whatever `sys.stderr` is at the time.
        clock: seconds; any clock that never goes back.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._stream = stream
        self._clock = clock
        self._since = -STRETCH_SECONDS
        self._alike: dict[tuple[str, str], int] = {}
        self._count = 0
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        now = self._clock()
        if now - self._since >= STRETCH_SECONDS:
            self._sum_up()
            self._since, self._count = now, 0
            self._alike.clear()
        # A record that has passed `LogFilter` is formatted already, and keeps its template.
        key = record.name, str(record.__dict__.get("template", record.msg))[:200]
        alike = self._alike.get(key, 0)
        if alike >= MOST_ALIKE or self._count >= MOST:
            self._left_out += 1
            return
        self._alike[key] = alike + 1
        self._count += 1
        try:
            self._write(_bounded(self.format(record)))
        except Exception:  # noqa: BLE001 - what logging does about a record that cannot be formatted
            self.handleError(record)

    def close(self) -> None:
        """Write how many records were left out last."""
        self._sum_up()
        super().close()

    def _sum_up(self) -> None:
        if self._left_out:
            self._write(f"... {self._left_out:,} more lines like these were left out")
            self._left_out = 0

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stderr
        stream.write(text + "\n")
        stream.flush()


def _bounded(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters were left out ...\n{text[-half:]}"


@contextmanager
def bounded_log() -> Generator[BoundedLog]:
    """A scope in which what libraries log goes to standard error in bounds.

    Where the program that embeds us has set up logging itself, its own handlers are left as they are.
    """
    root, handler = logging.getLogger(), BoundedLog()
    ours = not root.handlers
    if ours:
        root.addHandler(handler)
    try:
        yield handler
    finally:
        if ours:
            root.removeHandler(handler)
        handler.close()
