"""The log file of a server.

The file contains the output of the server to standard error, the log messages that it sent, and the
times when it was up.

The file is in the user's state folder, and only its owner can read it. Each line is one JSON
object. Several processes can write to the same file. Each process appends whole lines, and a
process that finds the file full moves it aside under a lock. Secrets are masked before anything is
written. If a server writes too much, some lines are lost, and the log states how many.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from ideabridge.bridge.masking import shown_json
from ideabridge.bridge.secrets import everywhere_masked
from ideabridge.tools.names import counted

logger: Final = logging.getLogger(__name__)

MAX_BYTES: Final = 1024 * 1024
"""The size, in bytes, at which a log file is moved aside. One earlier file is kept, so a log takes
up at most twice this size.
"""

MAX_LINE: Final = 2000
"""The maximum number of characters of a line that are kept."""

_MAX_LOGGER: Final = 100
_MAX_TOKEN: Final = 1000
"""The maximum length, in characters, of a log message's origin, and of a string that is recognised
as a secret by its form.
"""

_MAX_DATA: Final = 64 * 1024
"""The number of characters of a log message's value that are searched for secrets."""

_BURST_BYTES: Final = 256 * 1024
_BYTES_PER_SECOND: Final = 8 * 1024
"""The number of bytes that a server can log in one burst, and per second on average."""

_MASKED: Final = re.compile(r"(\[secret:[^\]]*\])")
"""Matches the text that has replaced a secret."""

_MESSAGE_LINES: Final = 100
"""The maximum number of lines in one log message."""

LogSource = Literal["stderr", "message", "ideabridge"]
"""The source of a line: `stderr` if the server wrote it to standard error, `message` if it is a log
message of the protocol, or `ideabridge` if ideabridge wrote it about the server.
"""

LEVELS: Final = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The levels of log messages, the least severe first."""


@dataclass(frozen=True, slots=True)
class ServerLogLine:
    """A line in a server's log.

    Attributes:
        time: the time, in seconds since 1970.
        process: the id of the ideabridge process that was connected to the server.
        source: the source of the line.
        text: the text, with secrets masked.
        level: the level of a log message, or None for a line from standard error.
        logger: the `logger` of a log message, or "".
    """

    time: float
    process: int
    source: LogSource
    text: str
    level: str | None = None
    logger: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON, without empty members."""
        value: dict[str, Any] = {
            "time": round(self.time, 3),
            "process": self.process,
            "source": self.source,
            "text": self.text,
        }
        if self.level is not None:
            value["level"] = self.level
        if self.logger:
            value["logger"] = self.logger
        return value

    def is_at_least(self, level: str) -> bool:
        """Return whether this is a log message with at least the given level."""
        return self.level in LEVELS and LEVELS.index(self.level) >= LEVELS.index(level)


def log_file(folder: Path, name: str, source: Path | None) -> Path:
    """Return the path of a server's log. Servers with the same name in different configurations
    have different logs.

    Args:
        folder: the folder of the logs.
        name: the name of the server.
        source: the configuration that contains the server's entry.
    """
    digest = hashlib.sha256(f"{source}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:40]
    return folder / f"{plain}-{digest[:12]}.jsonl"


class ServerLog:
    """Writes the log of one server. The server keeps working even if the log cannot be written.

    Args:
        path: the file. Its folder is created with the first line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left = float(_BURST_BYTES)
        self._filled = time.monotonic()
        self._dropped = 0
        self._has_failed = False

    def add(
        self,
        source: LogSource,
        lines: Sequence[str],
        *,
        level: str | None = None,
        logger_name: str = "",
    ) -> None:
        """Append lines. Secrets, including multi-line ones, are masked before anything is cut,
        because a partial secret would not be recognised.
        """
        if not self._has_room(min(MAX_LINE, sum(map(len, lines))), takes=False):
            # Do not search for secrets in text that will be left out anyway.
            self._dropped += len(lines)
            return

        masked = everywhere_masked("\n".join(lines))
        texts = [_kept(line, MAX_LINE) for line in masked.split("\n") if line.strip()]
        origin = _kept(everywhere_masked(logger_name), _MAX_LOGGER)
        now = time.time()
        process = os.getpid()
        written: list[ServerLogLine] = []
        for text in texts:
            line = ServerLogLine(now, process, source, text, level, origin)
            if self._has_room(len(text)):
                written.append(line)
            else:
                self._dropped += 1

        if written and self._dropped:
            note = f"{counted(self._dropped, 'line')} left out, because the server wrote too many"
            written.insert(0, ServerLogLine(now, process, "ideabridge", note, "warning"))
            self._dropped = 0

        if written:
            self._append(written)

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Append a log message of the protocol.

        Args:
            message: the parameters of the notification, as sent by the server.
        """
        level = message.get("level")
        if level not in LEVELS:
            level = "info"

        origin = message.get("logger")
        if not isinstance(origin, str):
            origin = ""

        lines = _text_of(message.get("data")).splitlines()
        self.add("message", lines[:_MESSAGE_LINES], level=level, logger_name=origin)

    def _has_room(self, size: int, *, takes: bool = True) -> bool:
        """Reserve `size` bytes of the server's remaining write allowance. Return False if fewer
        bytes remain. If `takes` is False, only check the allowance.
        """
        now = time.monotonic()
        refilled = self._left + (now - self._filled) * _BYTES_PER_SECOND
        self._left = min(refilled, float(_BURST_BYTES))
        self._filled = now
        if self._left < size:
            return False
        if takes:
            self._left -= size
        return True

    def _append(self, lines: Sequence[ServerLogLine]) -> None:
        data = b"".join(
            json.dumps(line.to_json(), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            for line in lines
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = _open_with_room(self._path, len(data))
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("%s cannot be written: %s", self._path, error.strerror or error)


def _kept(masked: str, most: int) -> str:
    """Return the beginning of a string, hiding everything that looks like a secret."""
    return _without_tokens(masked[: most + _MAX_TOKEN])[:most]


def _without_tokens(line: str) -> str:
    """Hide everything in a line that looks like a secret, such as a token that the server obtained
    by itself.
    """
    parts = _MASKED.split(line)
    return "".join(
        part if number % 2 else str(shown_json(part)) for number, part in enumerate(parts)
    )


def _text_of(data: object) -> str:
    """Return the data of a log message as text, cut short if it is large."""
    if isinstance(data, str):
        return data[: _MESSAGE_LINES * MAX_LINE]

    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(ensure_ascii=False).iterencode(data):
            parts.append(part[:_MAX_DATA])
            size += len(part)
            if size > _MAX_DATA:
                break
    except RecursionError:
        parts.append("...")
    return "".join(parts)


def _open_with_room(path: Path, size: int) -> int:
    """Open a log for appending, first moving it aside if it has no room for `size` bytes."""
    descriptor = _open_to_append(path)
    status = os.fstat(descriptor)
    if status.st_size + size <= MAX_BYTES:
        return descriptor

    os.close(descriptor)
    with suppress(FileNotFoundError):
        # Another process might already have moved the full file aside.
        if path.stat().st_ino == status.st_ino:
            path.replace(_earlier(path))
    return _open_to_append(path)


def _open_to_append(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Do not follow symbolic links: someone else might have chosen the target.
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags, 0o600)


def _earlier(path: Path) -> Path:
    """Return the path of the previous log, which was moved aside when it was full."""
    return path.with_suffix(".1.jsonl")


class ServerLogReader:
    """Reads the log of one server from its beginning, while processes are writing to it.

    Args:
        path: the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def earlier(self) -> list[ServerLogLine]:
        """Return the lines of the previous log, which was moved aside when it was full."""
        return _lines_in(self._read(_earlier(self._path), 0)[0])

    def new(self) -> list[ServerLogLine]:
        """Return the lines added since the last call."""
        lines: list[ServerLogLine] = []
        inode = _inode(self._path)
        if self._inode not in (0, inode) and _inode(_earlier(self._path)) == self._inode:
            # The file was moved aside after the last call, so read the rest of it first.
            lines += _lines_in(self._read(_earlier(self._path), self._offset)[0])

        if inode != self._inode:
            self._inode = inode
            self._offset = 0

        data, self._offset = self._read(self._path, self._offset)
        return lines + _lines_in(data)

    @staticmethod
    def _read(path: Path, offset: int) -> tuple[bytes, int]:
        """Return the complete lines after an offset, and the offset after them."""
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(4 * MAX_BYTES)
        except FileNotFoundError:
            return b"", 0
        end = data.rfind(b"\n") + 1
        return data[:end], offset + end


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _lines_in(data: bytes) -> list[ServerLogLine]:
    """Return the lines in a log, skipping text that is not a line of a log, such as a line cut off
    because the disk was full.
    """
    lines: list[ServerLogLine] = []
    for row in data.splitlines():
        try:
            value = cast("dict[str, Any]", json.loads(row))
            level = value.get("level")
            lines.append(
                ServerLogLine(
                    float(value["time"]),
                    int(value["process"]),
                    value["source"],
                    str(value["text"]),
                    None if level is None else str(level),
                    str(value.get("logger", "")),
                )
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue

    return lines
