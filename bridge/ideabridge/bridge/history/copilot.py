"""Read Copilot CLI's logs in `~/.copilot/session-state`.

A line is an event `{"type", "data", "id", "timestamp", "parentId"}`; GitHub documents the events
with its SDK for Copilot. A call is an event `tool.execution_start`, with `mcpServerName` and
`mcpToolName` if it calls an MCP server's tool; the result is an event `tool.execution_complete`.
The calls of a subagent have the `parentToolCallId` of the call that started the subagent, and form
a separate conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ideabridge.bridge.history.conversation import (
    TOO_LARGE,
    CallsById,
    Conversation,
    EarlyResults,
    HistoryCall,
    LogLine,
    Names,
    folder_of_host,
    may_be_another,
    read_lines,
    shortened_prompt,
    text_in,
)
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import member, read_as, read_whole

NAME: Final = "copilot-cli"
PATTERNS: Final = ("events.jsonl", "*-*.jsonl")
"""The file names of logs. Older versions named a log after its session."""

_NEVER_RAN: Final = frozenset({"rejected", "denied"})
"""Error codes of calls that never ran, because a person rejected them or a rule denied them. The
documentation of the events does not list the codes, but public reports show these two.
"""

_NEVER_RAN_TEXT: Final = re.compile(
    r"The user rejected this tool call|Permission to run this tool was denied"
    r"|Permission denied and could not request permission from user"
)
"""Matches the beginning of the errors of calls that never ran, because these errors do not always
have a code.
"""


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    base = folder_of_host(variables, "COPILOT_HOME", home / ".copilot")
    return [base / "session-state", base / "history-session-state"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversation in a log, and those of its subagents.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


@dataclass(frozen=True, slots=True)
class _Context:
    folder: str | None = field(default=None, metadata=member("cwd"))


@dataclass(frozen=True, slots=True)
class _LoggedError:
    message: JSON = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class _Result:
    """A result as two strings, the first of which may be shortened for the model."""

    content: JSON = None
    detailed: str | None = field(default=None, metadata=member("detailedContent"))

    @property
    def longer(self) -> JSON:
        """The longer of the two strings."""
        if self.detailed is not None and len(self.detailed) > len(str(self.content)):
            return self.detailed
        return self.content


@dataclass(frozen=True, slots=True)
class _Data:
    """The data of an event of any type."""

    session: str = field(default="", metadata=member("sessionId"))
    context: _Context = _Context()
    content: JSON = None
    parent_call: str = field(default="", metadata=member("parentToolCallId"))
    server: str | None = field(default=None, metadata=member("mcpServerName"))
    tool: str | None = field(default=None, metadata=member("mcpToolName"))
    call_id: str | None = field(default=None, metadata=member("toolCallId"))
    arguments: JSONObject = field(default_factory=dict[str, JSON])
    success: bool = False
    error: _LoggedError | None = None
    result: _Result = _Result()


@dataclass(frozen=True, slots=True)
class _Event:
    type: str
    data: _Data


class _Log:
    def __init__(self, path: Path, names: Names) -> None:
        name = path.parent.name if path.name == "events.jsonl" else path.stem
        self._names = names
        self._main = Conversation(NAME, name, path)
        self._parts: dict[str, Conversation] = {"": self._main}
        self._calls = CallsById()
        self._early = EarlyResults()
        self._prompt = ""

    def read(self) -> list[Conversation]:
        for line in read_lines(self._main):
            event = read_whole(_Event, line.content)
            if event is None:
                self._main.skipped["of an unknown kind"] += 1
            elif event.type == "session.start":
                self._begin(event.data)
            elif event.type == "user.message":
                self._prompt = shortened_prompt(text_in(event.data.content)) or self._prompt
            elif event.type == "tool.execution_start":
                self._take_call(line, event.data)
            elif event.type == "tool.execution_complete":
                self._take_result(line, event.data)

        conversations = list(self._parts.values())
        for conversation in conversations:
            conversation.sort()
        return conversations

    def _begin(self, data: _Data) -> None:
        if data.session:
            self._main.id = data.session[:200]
        if data.context.folder is not None:
            self._main.folder = data.context.folder

    def _part(self, data: _Data) -> Conversation:
        name = f"agent-{data.parent_call[:100]}" if data.parent_call else ""
        if name not in self._parts:
            self._parts[name] = self._main.part(name)
        return self._parts[name]

    def _take_call(self, line: LogLine, data: _Data) -> None:
        if data.server is None or data.tool is None:
            return
        if data.call_id is None:
            self._main.skipped["without id or arguments"] += 1
            return

        conversation = self._part(data)
        module = self._names.of(data.server)
        if module is None:
            conversation.others[data.server] += 1
            return

        call = HistoryCall(
            data.call_id,
            module,
            data.tool,
            data.arguments,
            line.number,
            self._main.time_of(line.timestamp),
            self._prompt,
            doubt=line.doubt,
        )
        if not self._calls.take(call, conversation, line.size):
            return

        early = self._early.take(call)
        if early is not None:
            self._take_result(early, read_as(_Data, early.content["data"]))

    def _take_result(self, line: LogLine, data: _Data) -> None:
        at = self._main.time_of(line.timestamp)
        call = self._calls.awaiting(data.call_id, at)
        if call is None:
            self._early.add(data.call_id, at, line)
        elif not may_be_another(call, self._main):
            call.doubt = call.doubt or line.doubt
            _end(call, line, at, data, fits=self._calls.takes_result(line.size))


def _end(call: HistoryCall, line: LogLine, at: float | None, data: _Data, *, fits: bool) -> None:
    if not data.success or data.error is not None:
        error = data.error or _LoggedError()
        text = str(error.message or "")
        never_ran = error.code in _NEVER_RAN or _NEVER_RAN_TEXT.match(text) is not None
        call.fail(line.number, text, at=at, rejected=never_ran)
    elif not fits:
        call.end(line.number, None, at=at, missing=TOO_LARGE)
    else:
        value = data.result.longer
        missing = "the log has no result" if value is None else None
        call.end(line.number, value, at=at, missing=missing)
