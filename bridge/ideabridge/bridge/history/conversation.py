"""Read the MCP calls in one conversation from a host's log.

Hosts write logs as JSON lines, one file for each conversation. Their formats have no specification
and change often, so the import counts the lines that it does not understand, and continues.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import IO, Final, cast

from ideabridge.bridge.history.salvage import Salvaged, salvage
from ideabridge.tools.encoding import (
    JSON,
    MAX_DEPTH,
    JSONObject,
    count_values,
    decode_trusted,
    encode,
    list_or_empty,
    nests_deeper,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import matches_any

MAX_LINE: Final = 32 * 1024 * 1024
"""The maximum length of a line, in bytes. Hosts write pictures into lines."""

MAX_CALLS: Final = 10_000
"""The maximum number of calls imported from one conversation."""

MAX_HELD: Final = 64 * 1024 * 1024
"""The maximum size, in bytes, of all lines with calls and results that are held in memory for one
conversation.
"""

MAX_FILES: Final = 20_000
"""The maximum number of logs that are read for one host, newest first."""

TOO_LARGE: Final = "the conversation is too large"
"""The reason for a missing result that would have exceeded `MAX_HELD`."""

_AHEAD: Final = 86_400.0
"""The maximum number of seconds that a host's clock can be ahead."""

_WRITING: Final = 600.0
"""The number of seconds after the last change to a log for which its last line might be
unfinished.
"""

_MAX_VALUES: Final = 1_000_000
_DEEPEST: Final = 8
_BLOCK: Final = 1024 * 1024
_PROMPT: Final = 2000
_LONGEST_ERROR: Final = 4000
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class HistoryError(IdeabridgeError):
    """Raised when a host's logs cannot be read. The message names the folder or the option."""


# -- calls -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class HistoryCall:
    """An MCP call in a log.

    Attributes:
        id: the host's id for the call. Some models number their calls, starting again in each turn.
        module: the configured server.
        tool: the tool, as the log names it.
        arguments: the arguments.
        line: the number of the call's line in the log, from 1.
        time: when the call was made, in seconds since 1970, or None if the log does not say.
        prompt: the person's request before the call.
        answer: the host's id for the model's answer that made the call, or "" if the log does not
            contain the id.
        copied: True if the host copied the call from a different conversation, possibly with a
            different time.
        ended: the number of the line with the result, or None if the log has no result.
        ended_at: when the call ended, in seconds since 1970, or None if the log does not say.
        result: the value, in the form of a server's result (`ResultReader.value`).
        error: why the call failed, or None if it did not fail.
        missing: why the result differs from what the tool returned (it is missing, or the host has
            truncated it), or None if the result is complete.
        doubt: why the arguments or the result might have been changed, or "".
        rejected: True if the call never ran because a person rejected it.
    """

    id: str
    module: str
    tool: str
    arguments: JSONObject
    line: int
    time: float | None = None
    prompt: str = ""
    answer: str = ""
    copied: bool = False
    ended: int | None = None
    ended_at: float | None = None
    result: JSON = None
    error: str | None = None
    missing: str | None = "the log has no result"
    doubt: str = ""
    rejected: bool = False
    _digest: str = ""

    def end(
        self,
        line: int,
        value: JSON,
        *,
        at: float | None = None,
        error: str | None = None,
        missing: str | None = None,
        rejected: bool = False,
    ) -> None:
        """Record the result, with the number of its line in the log and the time when that line was
        written. Only the first result counts.
        """
        if self.ended is None:
            self.ended = line
            self.ended_at = at
            self.result = value
            self.error = error
            self.missing = missing
            self.rejected = rejected

    def fail(
        self, line: int, error: str, *, at: float | None = None, rejected: bool = False
    ) -> None:
        """Record that the call failed, with its error, cut short if it is long; see `end`."""
        text = error[:_LONGEST_ERROR] or "the log has no error message"
        self.end(line, None, at=at, error=text, rejected=rejected)

    @property
    def last_seen(self) -> float | None:
        """The last time at which the call was active, according to the log."""
        times = [time for time in (self.time, self.ended_at) if time is not None]
        return max(times, default=None)

    @property
    def content_digest(self) -> str:
        """16 hex digits that identify the call by its id, name and arguments, regardless of its
        time.
        """
        return self.digest[:16]

    @property
    def digest(self) -> str:
        """24 hex digits that identify the call: a part for its content, followed by a part for its
        time.

        Do not use this before the whole log has been read, because a later line might correct the
        call.
        """
        if not self._digest:
            content = _digest([self.id, self.module, self.tool, self.arguments])
            self._digest = f"{content}{_digest(self.time)[:8]}"
        return self._digest


def _digest(value: JSON) -> str:
    return sha256(encode(value)).hexdigest()[:16]


_NUMBERED: Final = re.compile(r"\A.{0,15}\Z|[:._-]\d{1,4}\Z", re.DOTALL)
"""Ids that are short or end with a small number."""


def is_numbered(call_id: str) -> bool:
    """Return whether an id looks like a number that a model assigned, so that other calls might
    have the same id.
    """
    return _NUMBERED.search(call_id) is not None


class CallsById:
    """The calls in a log, without duplicates and within the limits. Finds calls by id, even if
    several have the same id.
    """

    def __init__(self) -> None:
        self._calls: dict[str, list[HistoryCall]] = {}
        self._bounds = HistoryBounds()

    def take(self, call: HistoryCall, conversation: Conversation, size: int) -> bool:
        """Add a call to its conversation. Return False if the log already contains the call, or
        contains too many calls.

        Args:
            call: the call.
            conversation: receives the call, or counts it if it exceeds the limit.
            size: the memory that the call takes, in bytes.
        """
        if self._knows(call):
            return False
        if not self._bounds.takes_call(size):
            conversation.skipped["beyond the maximum number of calls"] += 1
            return False

        self._calls.setdefault(call.id, []).append(call)
        conversation.calls.append(call)
        return True

    def takes_result(self, size: int) -> bool:
        """Count a result. Return False if it is too large to be kept with the other results."""
        return self._bounds.takes_result(size)

    def _knows(self, call: HistoryCall) -> bool:
        """Return whether a call was already read. Hosts sometimes write a call twice."""
        earlier = self._calls.get(call.id, [])
        if call.time is None:
            return any(other.ended is None and is_same(other, call) for other in earlier)
        return any(
            other.time == call.time or (call.answer and other.answer == call.answer)
            for other in earlier
            if is_same(other, call)
        )

    def of(self, call_id: JSON) -> list[HistoryCall]:
        """Return the calls with the given id, in the order of the log."""
        return self._calls.get(call_id, []) if isinstance(call_id, str) else []

    def awaiting(self, call_id: JSON, at: float | None) -> HistoryCall | None:
        """Return the call that a result belongs to: the last call with this id that was made before
        this time and has no result yet. Return None if there is none.
        """
        for call in reversed(self.of(call_id)):
            is_later = at is not None and call.time is not None and call.time > at
            if call.ended is None and not is_later:
                return call
        return None


def is_same(call: HistoryCall, other: HistoryCall) -> bool:
    """Return whether two calls have the same name and arguments."""
    has_same_tool = (call.module, call.tool) == (other.module, other.tool)
    return has_same_tool and call.arguments == other.arguments


class EarlyResults:
    """The most recent results whose calls have not been read yet.

    Hosts write from several places at once, so the line with a result can precede the line with its
    call.
    """

    def __init__(self) -> None:
        self._lines: deque[tuple[str, float, LogLine]] = deque(maxlen=_EARLY)

    def add(self, call_id: JSON, at: float | None, line: LogLine) -> None:
        """Add a result with the id of its call. Results without a time are dropped."""
        if isinstance(call_id, str) and at is not None:
            self._lines.append((call_id, at, line))

    def take(self, call: HistoryCall) -> LogLine | None:
        """Return the line with a call's result and forget it, or return None if there is no such
        line.
        """
        for entry in self._lines:
            call_id, at, line = entry
            if call_id == call.id and call.time is not None and call.time <= at:
                self._lines.remove(entry)
                return line
        return None


_EARLY: Final = 32


def may_be_another(call: HistoryCall, conversation: Conversation) -> bool:
    """Return whether a result with a call's id might belong to a different call.

    Models can reuse an id, and an unread line after the call might contain a different call with
    that id.
    """
    return conversation.last_unread > call.line and is_numbered(call.id)


@dataclass(slots=True)
class Conversation:
    """The MCP calls to configured servers in one conversation.

    Attributes:
        host: the host's name on the command line.
        id: the host's id for the conversation.
        path: the path of the log.
        folder: the folder that the host worked in, or "" if the log does not say.
        calls: the calls, in the order of the log.
        others: the number of MCP calls to other servers, keyed by server.
        lines: the number of lines read.
        skipped: the number of lines that were not understood, keyed by reason.
        repaired: the number of damaged lines with readable records.
        last_unread: the number of the last line that could not be read completely or might have
            been misread, or 0 if there is none.
    """

    host: str
    id: str
    path: Path
    folder: str = ""
    calls: list[HistoryCall] = field(default_factory=list[HistoryCall])
    others: Counter[str] = field(default_factory=Counter[str])
    lines: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    repaired: int = 0
    last_unread: int = 0

    def part(self, name: str, calls: Sequence[HistoryCall] = ()) -> Conversation:
        """Return a separate conversation for a part of the log, such as that of a subagent."""
        return Conversation(self.host, f"{self.id}/{name}", self.path, self.folder, [*calls])

    def skip(self, why: str) -> None:
        """Count the current line, or a part of it, as unread."""
        self.skipped[why] += 1
        self.last_unread = self.lines

    def sort(self) -> None:
        """Sort the calls by time, because hosts sometimes write lines late."""
        time = 0.0
        times: list[float] = []
        for call in self.calls:
            # A call without a time stays behind the call before it.
            time = time if call.time is None else call.time
            times.append(time)

        order = sorted(range(len(times)), key=times.__getitem__)
        self.calls = [self.calls[place] for place in order]

    def time_of(self, timestamp: JSON) -> float | None:
        """Return a line's time in seconds since 1970. If it cannot be read, count the fault, and
        read the line without a time.
        """
        seconds = seconds_of(timestamp)
        if seconds is None and timestamp is not None:
            self.skipped["with a time that cannot be read"] += 1
        return seconds


@dataclass(frozen=True, slots=True)
class LoggedTool:
    """A tool as a log names it.

    Attributes:
        server: the server's name in the host.
        name: the tool's name on that server.
        module: the name of this server in the configuration, or None if it is not configured.
    """

    server: str
    name: str
    module: str | None


class Names:
    """Maps the servers in a host's log to configured servers.

    Args:
        modules: the names of the configured servers.
        renamed: the servers that a person has specified, keyed by the name in the log.

    Raises:
        HistoryError: a server in `renamed` is not configured.
    """

    def __init__(
        self, modules: Iterator[str] | list[str], renamed: Mapping[str, str] | None = None
    ) -> None:
        configured = list(modules)
        for name, module in (renamed or {}).items():
            if module not in configured:
                raise HistoryError(
                    f"--server {name}={module}: there is no server {module!r}; "
                    f"{_listed(configured)}"
                )

        named = dict(renamed or {})
        self._exact = {name: name for name in configured} | named
        self._plain = _unambiguous(configured, _plain) | {
            _plain(name): module for name, module in named.items()
        }
        self._loose = _unambiguous(configured, _loose)

    def of(self, server: str) -> str | None:
        """Return the configured server with the given name in a log, or None if it is not
        configured.
        """
        return self._exact.get(server) or self._of_plain(_plain(server))

    def tool(self, server: str, name: str) -> LoggedTool:
        """Return a server's tool, given both names in plain form."""
        return LoggedTool(server, name, self.of(server))

    def _of_plain(self, server: str) -> str | None:
        """Return the configured server for a name as hosts write it in tool names.

        Claude Code writes `plugin_PLUGIN_SERVER` for a plugin's server, and `claude_ai_NAME` for a
        connector.
        """
        if server in self._plain:
            return self._plain[server]
        if server.startswith(_CONNECTOR):
            return self._loose.get(_loose(server.removeprefix(_CONNECTOR)))
        if not server.startswith(_PLUGIN):
            return None

        # The plugin's name and the server's name can both contain `_`, so choose the longest ending
        # that is the name of a configured server.
        words = server.removeprefix(_PLUGIN).split("_")
        ends = ("_".join(words[first:]) for first in range(1, len(words)))
        return next((self._plain[end] for end in ends if end in self._plain), None)

    def split(self, name: str, separator: str = "__") -> LoggedTool:
        """Return the tool named `SERVER__TOOL`, where `separator` is used in place of `__`.

        Hosts replace some characters in server names with `_`, and server names can contain the
        separator, so the longest configured server name that matches is used.
        """
        ends = [at.start() for at in re.finditer(separator, name)]
        for end in reversed(ends):
            module = self._of_plain(_plain(name[:end]))
            tool = name[end + len(separator) :]
            if module is not None and tool:
                return LoggedTool(name[:end], tool, module)

        server, _, tool = name.partition(separator)
        return LoggedTool(server, tool, None)


_PLUGIN: Final = "plugin_"
_CONNECTOR: Final = "claude_ai_"


def _unambiguous(modules: list[str], written: Callable[[str], str]) -> dict[str, str]:
    """Return the servers, keyed by their written names.

    Names that match two servers are left out, unless a person has specified which server is meant.
    """
    meant: dict[str, set[str]] = {}
    for name in modules:
        meant.setdefault(written(name), set()).add(name)
    return {name: modules.pop() for name, modules in meant.items() if len(modules) == 1}


def _plain(name: str) -> str:
    """Return a server's name in the form that hosts use in tool names."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _loose(name: str) -> str:
    """Return a name in lower case and without separators. Connectors have display names, such as
    `Google Drive`.
    """
    return re.sub(r"[\W_]", "", name).casefold()


def _listed(modules: list[str]) -> str:
    if modules:
        return f"there are {', '.join(sorted(modules)[:20])}"
    return "no server is configured"


def content_value(content: JSON, structured: JSON = None) -> JSON:
    """Return the value of an MCP result in the form that a call to a server returns: the structured
    content if there is any, otherwise the text, otherwise the list of blocks, or null if there is
    no content.
    """
    if structured is not None:
        return structured
    if not isinstance(content, list):
        return content

    texts = [block.get("text") for block in _text_blocks(content)]
    if content and len(texts) == len(content):
        return "\n".join(map(str, texts))
    return content or None


_TEXTS: Final = ("text", "input_text", "output_text")


def text_in(value: JSON) -> str:
    """Return the text in a message or a result: a string itself, or the text of all text blocks in
    any other value, or "" if there is none.
    """
    if isinstance(value, str):
        return value
    texts = [block.get("text") for block in _text_blocks(value)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _text_blocks(content: JSON) -> list[JSONObject]:
    return [
        block
        for block in list_or_empty(content)
        if isinstance(block, dict) and block.get("type") in _TEXTS
    ]


def shortened_prompt(text: str) -> str:
    """Return a person's request, shortened."""
    return text.strip()[:_PROMPT]


def seconds_of(value: JSON) -> float | None:
    """Return an ISO 8601 time as seconds since 1970, or None if it is malformed or precedes the
    existence of any host.
    """
    if not isinstance(value, str) or len(value) > 40:
        return None

    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        return None

    if read.tzinfo is None:
        read = read.replace(tzinfo=UTC)
    seconds = read.timestamp()
    return seconds if 0 <= seconds <= time.time() + _AHEAD else None


def folder_of_host(variables: Mapping[str, str], name: str, usual: Path) -> Path:
    """Return the folder in an environment variable or, if the variable is not set, the usual
    folder.
    """
    configured = variables.get(name)
    return Path(configured).expanduser() if configured else usual


# -- logs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line in a log that is a JSON object.

    Attributes:
        number: the line's number, from 1.
        content: the object.
        size: the length of the line in bytes.
        doubt: why the strings might differ from what the host wrote, or "".
    """

    number: int
    content: JSONObject
    size: int
    doubt: str = ""

    @property
    def timestamp(self) -> JSON:
        """The time when the line was written, as the host wrote it; see `Conversation.time_of`."""
        return self.content.get("timestamp")


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs in a host's folders.

    Attributes:
        files: the regular files, oldest first.
        links: the number of links, which are not followed.
        compressed: the number of compressed logs that this Python cannot read.
        left_off: the number of older logs beyond the limit.
    """

    files: list[Path]
    links: int = 0
    compressed: int = 0
    left_off: int = 0

    @property
    def unread(self) -> JSONObject:
        """The number of logs that are not read, keyed by reason."""
        return {"links": self.links, "compressed": self.compressed, "older": self.left_off}


COMPRESSED: Final = ".zst"
"""The suffix of compressed logs."""


def find_logs(roots: list[Path], patterns: Sequence[str], *, deep: bool = True) -> Logs:
    """Search the folders, and their subfolders if `deep` is set, for logs whose names match a
    pattern such as `rollout-*.jsonl`.

    The logs may be compressed. A root may be a link, but links below it are not followed.
    """
    logs: list[tuple[float, Path]] = []
    links = 0
    open_ = [(root, 0) for root in roots]
    while open_:
        folder, depth = open_.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            # The folder either does not exist or belongs to another user.
            continue

        names = {entry.name for entry in entries}
        for entry in entries:
            plain = entry.name.removesuffix(COMPRESSED)
            is_log = matches_any(plain, patterns)
            if entry.is_symlink():
                links += is_log or entry.is_dir()
            elif entry.is_dir(follow_symlinks=False):
                if deep and depth < _DEEPEST:
                    open_.append((Path(entry.path), depth + 1))
            elif is_log and entry.is_file(follow_symlinks=False):
                # While the host is compressing a log, both files exist, so take the plain one.
                has_plain = plain != entry.name and plain in names
                if not has_plain:
                    logs.append((_modified(entry), Path(entry.path)))

    logs.sort()
    left_off = max(0, len(logs) - MAX_FILES)
    files = [path for _, path in logs[left_off:]]
    readable = [path for path in files if path.suffix != COMPRESSED or zstd_library() is not None]
    return Logs(readable, links, len(files) - len(readable), left_off)


@cache
def zstd_library() -> ModuleType | None:
    """Return the library that reads compressed logs, which is part of Python 3.14 and has a
    backport for older versions, or None if neither is available.
    """
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def open_plain(path: Path) -> int:
    """Open a regular file for reading, without following links, and return its descriptor.

    Raises:
        OSError: the path does not lead to a regular file.
    """
    handle = os.open(
        path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    )
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not a regular file")
    return handle


def read_lines(conversation: Conversation) -> Iterator[LogLine]:
    """Yield each line in a log that is a JSON object, and each record in a damaged line. Count all
    other lines in `skipped`.

    A line with a time that occurs twice is yielded only once.

    Raises:
        OSError: the log cannot be read.
    """
    seen: set[int] = set()
    with _opened(conversation.path) as file:
        while data := _next_line(conversation, file):
            conversation.lines += 1
            if len(data) > MAX_LINE and not data.endswith(b"\n"):
                conversation.skip("too long")
                while (block := file.readline(_BLOCK)) and not block.endswith(b"\n"):
                    pass
                continue

            for line in _records(conversation, data):
                if _is_new(line.content, seen):
                    yield line
                else:
                    conversation.skipped["written twice"] += 1


def _records(conversation: Conversation, data: bytes) -> Iterator[LogLine]:
    """Yield the records in the current line, usually only one."""
    number = conversation.lines
    value = decoded(data)
    if isinstance(value, dict):
        yield LogLine(number, value, len(data))
        return
    if not data.strip():
        return

    salvaged = Salvaged() if value is not None or not _is_bounded(data) else salvage(data)
    if not salvaged.records:
        if data.endswith(b"\n") or not _is_written(conversation.path):
            conversation.skip("unreadable")
        return

    conversation.repaired += 1
    for _ in range(salvaged.fragments):
        conversation.skip("cut off")

    doubt = ""
    if salvaged.has_bad_bytes:
        doubt = "a byte of its line could not be read"
        conversation.last_unread = number

    for record in salvaged.records:
        yield LogLine(number, record, len(data), doubt)


def _is_written(log: Path) -> bool:
    """Return whether the host might still be writing the last line of a log."""
    try:
        return time.time() - log.stat().st_mtime < _WRITING
    except OSError:
        return False


@contextmanager
def _opened(path: Path) -> Generator[IO[bytes]]:
    with os.fdopen(open_plain(path), "rb", buffering=_BLOCK) as file:
        if path.suffix != COMPRESSED:
            yield file
            return

        zstd = zstd_library()
        if zstd is None:
            raise OSError(f"{path} is compressed, and this Python cannot read zstd")
        with zstd.ZstdFile(file) as unpacked:
            yield cast("IO[bytes]", unpacked)


def _next_line(conversation: Conversation, file: IO[bytes]) -> bytes:
    """Return the next line of a log, or nothing at its end.

    If a compressed log is damaged, the lines before the damage have already been read.
    """
    zstd = zstd_library()
    if zstd is None:
        return file.readline(MAX_LINE + 1)

    try:
        return file.readline(MAX_LINE + 1)
    except EOFError:
        conversation.skip("after the end of a compressed log that was cut off")
    except zstd.ZstdError:
        conversation.skip("after a damaged part of a compressed log")
    return b""


def _is_new(line: JSONObject, seen: set[int]) -> bool:
    """Return whether a line is new, and remember it. Lines without a time always count as new,
    because they can be equal by chance.
    """
    if "timestamp" not in line:
        return True

    # Python's hash uses a random key, so nobody can craft two lines that have the same hash.
    digest = hash(encode(line))
    if digest in seen:
        return False

    seen.add(digest)
    return True


def _is_bounded(data: bytes) -> bool:
    if nests_deeper(data, MAX_DEPTH):
        return False
    # A value takes at least one byte, so most lines are too short to need counting.
    return len(data) <= _MAX_VALUES or count_values(data, _MAX_VALUES) <= _MAX_VALUES


def decoded(data: bytes) -> JSON:
    """Return the value of a line in a log or a row in a database, or None if it is not JSON."""
    if not _is_bounded(data):
        return None
    try:
        if _SURROGATE.search(data):
            # A host that truncates a string can leave half of a surrogate pair behind.
            value = cast("JSON", json.loads(data))
            data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return decode_trusted(data)
    except (IdeabridgeError, ValueError, RecursionError):
        return None


class HistoryBounds:
    """Limits the memory that one conversation uses."""

    def __init__(self) -> None:
        self._bytes = 0
        self._calls = 0

    def takes_call(self, size: int) -> bool:
        """Count a call. Return False if it exceeds the limit."""
        self._calls += 1
        self._bytes += size
        return self._calls <= MAX_CALLS and self._bytes <= MAX_HELD

    def takes_result(self, size: int) -> bool:
        """Count a result. Return False if it is too large to be kept with the other results."""
        if self._bytes + size > MAX_HELD:
            return False
        self._bytes += size
        return True
