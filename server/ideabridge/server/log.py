"""The log of a server on standard error, bounded so that clients cannot flood it.

uvicorn, asyncio and the MCP SDK log each malformed request or refused socket, so a client controls the number of
records. Only a few similar records are written in each period, followed by the number of omitted ones.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TextIO

STRETCH_SECONDS: Final = 10.0
"""The length of a period."""

MOST_ALIKE: Final = 5
"""Records of one logger with the same unformatted text in a period."""

MOST: Final = 50
"""All records in a period."""

MOST_CHARACTERS: Final = 4000
"""Characters of one record; a longer one is written without its middle."""


class BoundedLog(logging.Handler):
    """A handler that writes a bounded number of bounded records.

    Args:
        stream: the output; None for the current `sys.stderr`.
        clock: a monotonic clock in seconds.
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
        # `LogFilter` has already formatted the record; `template` is the unformatted text.
        key = record.name, str(record.__dict__.get("template", record.msg))[:200]
        alike = self._alike.get(key, 0)
        if alike >= MOST_ALIKE or self._count >= MOST:
            self._left_out += 1
            return
        self._alike[key] = alike + 1
        self._count += 1
        try:
            self._write(_bounded(self.format(record)))
        except Exception:  # noqa: BLE001 - as logging handles a record that cannot be formatted
            self.handleError(record)

    def close(self) -> None:
        """Write the number of records omitted last."""
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
    """A scope in which the log goes to standard error, unless the program that embeds ideabridge has set up logging."""
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
