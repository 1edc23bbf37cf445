"""Write a server's log to standard error so that no client can flood it.

uvicorn, asyncio and the MCP SDK log each malformed request or refused socket, so a client could
produce any number of records. In each period, the server writes only a few similar records,
followed by the number of records that it omitted.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ideabridge.server.operations.requests import LogLevel

STRETCH_SECONDS: Final = 10.0
"""Length of a period, in seconds."""

MOST_ALIKE: Final = 5
"""Maximum number of records per period that one logger writes with the same unformatted text."""

MOST_RECORDS: Final = 50
"""Maximum number of records per period."""

MOST_CHARACTERS: Final = 4000
"""Maximum length of a record, in characters. The middle of a longer record is omitted."""


class BoundedLog(logging.Handler):
    """A handler that writes a limited number of records of limited length to `sys.stderr`."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._since = -STRETCH_SECONDS
        self._alike: dict[tuple[str, str], int] = {}
        self._count = 0
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        now = time.monotonic()
        if now - self._since >= STRETCH_SECONDS:
            self._sum_up()
            self._since = now
            self._count = 0
            self._alike.clear()

        # `clean_record` has already formatted the record; `template` is the text before that.
        key = record.name, str(record.__dict__.get("template", record.msg))[:200]
        alike = self._alike.get(key, 0)
        if alike >= MOST_ALIKE or self._count >= MOST_RECORDS:
            self._left_out += 1
            return

        self._alike[key] = alike + 1
        self._count += 1
        try:
            _write(_bounded(self.format(record)))
        except Exception:  # noqa: BLE001 - as logging handles a record that cannot be formatted
            self.handleError(record)

    def close(self) -> None:
        """Write the number of records omitted in the last period."""
        self._sum_up()
        super().close()

    def _sum_up(self) -> None:
        if self._left_out:
            _write(f"... {self._left_out:,} more lines like these were left out")
            self._left_out = 0


def _write(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _bounded(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return (
        f"{text[:half]}\n... {len(text) - 2 * half:,} characters were left out ...\n{text[-half:]}"
    )


@contextmanager
def bounded_log(level: LogLevel) -> Generator[None]:
    """Log errors and warnings to standard error while the context is open, unless the program that
    embeds ideabridge has set up logging. At the `error` level, warnings are omitted.
    """
    root = logging.getLogger()
    handler = BoundedLog(logging.ERROR if level == "error" else logging.WARNING)
    adds_handler = not root.handlers
    if adds_handler:
        root.addHandler(handler)

    try:
        yield
    finally:
        if adds_handler:
            root.removeHandler(handler)
        handler.close()
