"""Read Gemini CLI's logs in `~/.gemini/tmp`, in the format of its source code in 2026.

Each project has a folder there, which contains a folder `chats`. A line of a log is a message with
`id`, `timestamp` and `type`; messages of type `gemini` have `toolCalls`, each with `id`, `name`,
`args`, `status`, `timestamp` and `result`. When a message changes, it is written again, and the
last version counts. `{"$rewindTo": ID}` reverts a message and everything after it. `{"$set":
{"messages"}}` replaces the messages. The results in the new messages can be shortened, so a result
that was read earlier is kept. Versions from 2025 wrote a single JSON document with all `messages`.

The text blocks in an MCP server's result are marked as `<untrusted_context>`. The log does not
contain structured content. The server's tools are named `mcp_SERVER_TOOL`. Earlier versions used
the bare name, with the server in `displayName`: `TOOL (SERVER MCP Server)`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ideabridge.bridge.history.conversation import (
    MAX_HELD,
    Conversation,
    HistoryBounds,
    HistoryCall,
    LoggedTool,
    LogLine,
    Names,
    content_value,
    folder_of_host,
    open_plain,
    read_lines,
    seconds_of,
    shortened_prompt,
)
from ideabridge.tools.encoding import JSON, JSONObject, decode, list_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import member, read_as

NAME: Final = "gemini-cli"
_UUID: Final = "-".join("[0-9a-f]" * length for length in (8, 4, 4, 4, 12))
PATTERNS: Final = ("session-*.jsonl", "session-*.json", f"{_UUID}.jsonl")
"""The file names of logs. Subagents' logs are named after their session."""

_PREFIX: Final = re.compile(r"mcp_+")
_DISPLAYED: Final = re.compile(r".+ \((?P<server>.+) MCP Server\)")
_MARK: Final = "<untrusted_context>\n"
_END_MARK: Final = "\n</untrusted_context>"
_LONGEST_FOLDER: Final = 4096


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    return [folder_of_host(variables, "GEMINI_CLI_HOME", home) / ".gemini" / "tmp"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversation in a log, including the parts that a person has reverted.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


@dataclass(frozen=True, slots=True)
class _FunctionResponse:
    response: JSONObject


@dataclass(frozen=True, slots=True)
class _ResultPart:
    function_response: _FunctionResponse = field(metadata=member("functionResponse"))


@dataclass(frozen=True, slots=True)
class _LoggedError:
    message: str | None = None


@dataclass(frozen=True, slots=True)
class _Text:
    """A part of a message, if it contains text."""

    text: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call in a message.

    Attributes:
        title: the name that the host shows to the person.
        results: the parts of the result that are the tool's responses.
        shown: what the host showed to the person.
    """

    id: str | None = None
    name: str | None = None
    title: str = field(default="", metadata=member("displayName"))
    arguments: JSONObject | None = field(default=None, metadata=member("args"))
    status: str | None = None
    timestamp: JSON = None
    results: tuple[_ResultPart, ...] = field(default=(), metadata=member("result"))
    shown: JSON = field(default=None, metadata=member("resultDisplay"))


@dataclass(frozen=True, slots=True)
class _Message:
    id: str | None = None
    type: str | None = None
    content: JSON = None
    timestamp: JSON = None
    calls: tuple[_Entry, ...] = field(default=(), metadata=member("toolCalls"))


@dataclass(frozen=True, slots=True)
class _Changes:
    """The messages that replace earlier ones, and the session that they belong to."""

    session: str = field(default="", metadata=member("sessionId"))
    messages: tuple[_Message, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of any kind: a message, a change, or a whole conversation. `rewound` is the id of the
    first message that a person has reverted.
    """

    id: str | None = None
    session: str = field(default="", metadata=member("sessionId"))
    messages: tuple[_Message, ...] | None = None
    changes: _Changes = field(default=_Changes(), metadata=member("$set"))
    rewound: str | None = field(default=None, metadata=member("$rewindTo"))


class _Log:
    def __init__(self, path: Path, names: Names) -> None:
        self._names = names
        self._bounds = HistoryBounds()
        self._main = Conversation(NAME, path.stem, path, _project_of(path))
        self._rewound: list[Conversation] = []
        # The calls, keyed by the id of their message and their own id.
        self._calls: dict[tuple[str, str], HistoryCall] = {}
        # The server of each call to a server that is not configured, with the same keys as above.
        self._others: dict[tuple[str, str], str] = {}
        # The ids of the messages so far, in the order of the log.
        self._messages: dict[str, None] = {}
        self._prompt = ""

    def read(self) -> list[Conversation]:
        for line in self._lines():
            read = read_as(_Line, line.content)
            session = read.session or read.changes.session
            if session:
                self._main.id = session[:200]

            if read.rewound is not None:
                self._rewind(read.rewound)
            elif read.id is not None:
                self._take(line, read_as(_Message, line.content))

            messages = read.changes.messages if read.messages is None else read.messages
            for message in messages:
                self._take(line, message)

        self._main.others.update(self._others.values())
        conversations = [self._main, *self._rewound]
        for conversation in conversations:
            conversation.sort()
        return conversations

    def _lines(self) -> Iterator[LogLine]:
        if self._main.path.suffix != ".json":
            yield from read_lines(self._main)
            return

        # An older log is a single document, so it counts as one line.
        self._main.lines = 1
        with os.fdopen(open_plain(self._main.path), "rb") as file:
            data = file.read(MAX_HELD + 1)
        if len(data) > MAX_HELD:
            self._main.skip("too long")
            return

        try:
            document = decode(data, what="the log")
        except IdeabridgeError:
            document = None

        if isinstance(document, dict):
            yield LogLine(1, document, len(data))
        else:
            self._main.skip("unreadable")

    def _rewind(self, message: str) -> None:
        """Move the calls in a message and in all later ones into a separate conversation.

        If the log does not contain the message, move all calls, because the host then reverts
        everything.
        """
        ids = list(self._messages)
        first = ids.index(message) if message in self._messages else 0
        removed = set(ids[first:])
        self._messages = dict.fromkeys(ids[:first])

        # Leave the calls in `_calls`, because a later line might still contain their results.
        removed_ids = {id(call) for (owner, _), call in self._calls.items() if owner in removed}
        removed_calls: list[HistoryCall] = []
        remaining_calls: list[HistoryCall] = []
        for call in self._main.calls:
            if id(call) in removed_ids:
                removed_calls.append(call)
            else:
                remaining_calls.append(call)

        if removed_calls:
            self._main.calls = remaining_calls
            name = f"rewound-{len(self._rewound) + 1}"
            self._rewound.append(self._main.part(name, removed_calls))

    def _take(self, line: LogLine, message: _Message) -> None:
        if message.id is None:
            self._main.skipped["of an unknown kind"] += 1
            return

        is_new = message.id not in self._messages
        self._messages[message.id] = None
        if message.type == "user" and is_new:
            text = _text_of(message.content).strip()
            if text:
                self._prompt = shortened_prompt(text)

        for entry in message.calls:
            self._take_call(line, message, (message.id, str(entry.id)), entry)

    def _take_call(
        self, line: LogLine, message: _Message, key: tuple[str, str], entry: _Entry
    ) -> None:
        tool = self._named(entry)
        if tool is None:
            return
        if tool.module is None:
            self._others[key] = tool.server
            return

        if entry.id is None or entry.arguments is None:
            self._main.skipped["without id or arguments"] += 1
            return

        at = seconds_of(entry.timestamp)
        call = self._calls.get(key)
        if call is None:
            if not self._bounds.takes_call(line.size):
                self._main.skipped["beyond the maximum number of calls"] += 1
                return
            # A call can be older than its message, so use the earlier time.
            times = [self._main.time_of(message.timestamp), at]
            began = min((time for time in times if time is not None), default=None)
            call = HistoryCall(
                entry.id,
                tool.module,
                tool.name,
                entry.arguments,
                line.number,
                began,
                self._prompt,
            )
            self._calls[key] = call
            self._main.calls.append(call)

        call.doubt = call.doubt or line.doubt
        _end(call, line.number, at, entry)

    def _named(self, entry: _Entry) -> LoggedTool | None:
        """Return the tool that a call names, or None if it does not belong to an MCP server."""
        name = entry.name
        if name is None:
            return None

        prefix = _PREFIX.match(name)
        if prefix is not None:
            server_and_tool = name[prefix.end() :]
            separator = "__" if "__" in server_and_tool else "_"
            return self._names.split(server_and_tool, separator)

        displayed = _DISPLAYED.fullmatch(entry.title[:400])
        return None if displayed is None else self._names.tool(displayed["server"], name)


def _end(call: HistoryCall, number: int, at: float | None, entry: _Entry) -> None:
    """End a call according to its entry. A call that is still running is left unchanged."""
    status = entry.status
    responses = [part.function_response.response for part in entry.results]
    errors = [response["error"] for response in responses if "error" in response]
    if status == "cancelled":
        call.fail(number, "a person cancelled it", at=at, rejected=True)
    elif status == "error" or errors:
        call.fail(number, _error_of(entry, errors), at=at)
    elif status == "success" and responses:
        first = responses[0]
        output = first.get("output", first.get("content"))
        if isinstance(output, str):
            value = _without_marks(output)
        else:
            value = content_value(output)
        call.end(number, value, at=at)
    elif status == "success":
        call.end(number, None, at=at, missing="the log has no result")


def _error_of(entry: _Entry, errors: list[JSON]) -> str:
    """Return a call's first error or, if there is none, the text that the host showed to the
    person.
    """
    if errors:
        error = errors[0]
        text = error if isinstance(error, str) else read_as(_LoggedError, error).message
        if text is not None:
            return text
    return _text_of(entry.shown)


def _without_marks(text: str) -> str:
    """Return the text blocks in a result without the marks that Gemini CLI adds for the model."""
    if not text.startswith(_MARK) or not text.endswith(_END_MARK):
        return text
    texts = text[len(_MARK) : -len(_END_MARK)]
    return texts.replace(f"{_END_MARK}\n{_MARK}", "\n")


def _text_of(content: JSON) -> str:
    if isinstance(content, str):
        return content
    texts = [read_as(_Text, part).text for part in list_or_empty(content)]
    return "\n".join(text for text in texts if text is not None)


def _project_of(log: Path) -> str:
    """Return the project folder of a log, or "" if the log's own folder does not name it."""
    chats = next((parent for parent in log.parents if parent.name == "chats"), None)
    if chats is None:
        return ""
    try:
        with os.fdopen(open_plain(chats.parent / ".project_root"), "rb") as file:
            return file.read(_LONGEST_FOLDER).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
