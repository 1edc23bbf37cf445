"""Copilot CLI: reads the logs in `~/.copilot/session-state`.

A line is an event `{"type", "data", "id", "timestamp", "parentId"}`; GitHub documents the events
with its SDK for Copilot. A call is an event `tool.execution_start`, with `mcpServerName` and
`mcpToolName` if the tool is one of an MCP server; its result is an event `tool.execution_complete`.
The calls of a subagent have the `parentToolCallId` of the call that started it, and form a separate
conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty

NAME: Final = "copilot-cli"
PATTERNS: Final = ("events.jsonl", "*-*.jsonl")
"""The file names of logs. Older versions named a log after its session."""

_NEVER_RAN: Final = frozenset({"rejected", "denied"})
"""Codes of errors of calls that never ran, because a person rejected them or a rule denied them.
The documentation of the events does not list the codes; public reports show these two.
"""

_NEVER_RAN_TEXT: Final = re.compile(
    r"The user rejected this tool call|Permission to run this tool was denied"
    r"|Permission denied and could not request permission from user"
)
"""Matches the beginning of the errors of such calls, which do not always have a code."""


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    base = folder_of_host(variables, "COPILOT_HOME", home / ".copilot")
    return [base / "session-state", base / "history-session-state"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversation in a log, and the conversations of its subagents.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


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
            kind = line.content.get("type")
            data = line.content.get("data")
            if not isinstance(kind, str) or not isinstance(data, dict):
                self._main.skipped["of an unknown kind"] += 1
            elif kind == "session.start":
                self._begin(data)
            elif kind == "user.message":
                self._prompt = shortened_prompt(text_in(data.get("content"))) or self._prompt
            elif kind == "tool.execution_start":
                self._take_call(line, data)
            elif kind == "tool.execution_complete":
                self._take_result(line, data)

        conversations = list(self._parts.values())
        for conversation in conversations:
            conversation.sort()
        return conversations

    def _begin(self, data: JSONObject) -> None:
        session = data.get("sessionId")
        folder = object_or_empty(data.get("context")).get("cwd")
        if isinstance(session, str) and session:
            self._main.id = session[:200]
        if isinstance(folder, str):
            self._main.folder = folder

    def _part(self, data: JSONObject) -> Conversation:
        parent = data.get("parentToolCallId")
        name = f"agent-{parent[:100]}" if isinstance(parent, str) and parent else ""
        if name not in self._parts:
            self._parts[name] = self._main.part(name)
        return self._parts[name]

    def _take_call(self, line: LogLine, data: JSONObject) -> None:
        server = data.get("mcpServerName")
        tool = data.get("mcpToolName")
        call_id = data.get("toolCallId")
        if not isinstance(server, str) or not isinstance(tool, str):
            return
        if not isinstance(call_id, str):
            self._main.skipped["without id or arguments"] += 1
            return

        conversation = self._part(data)
        module = self._names.of(server)
        if module is None:
            conversation.others[server] += 1
            return

        call = HistoryCall(
            call_id,
            module,
            tool,
            object_or_empty(data.get("arguments")),
            line.number,
            self._main.time_of(line.content),
            self._prompt,
            doubt=line.doubt,
        )
        if not self._calls.take(call, conversation, line.size):
            return

        early = self._early.take(call)
        if early is not None:
            self._take_result(early, object_or_empty(early.content.get("data")))

    def _take_result(self, line: LogLine, data: JSONObject) -> None:
        at = self._main.time_of(line.content)
        call = self._calls.awaiting(data.get("toolCallId"), at)
        if call is None:
            self._early.add(data.get("toolCallId"), at, line)
        elif not may_be_another(call, self._main):
            call.doubt = call.doubt or line.doubt
            _end(call, line, at, data, fits=self._calls.takes_result(line.size))


def _end(
    call: HistoryCall, line: LogLine, at: float | None, data: JSONObject, *, fits: bool
) -> None:
    error = data.get("error")
    if data.get("success") is not True or isinstance(error, dict):
        members = object_or_empty(error)
        text = str(members.get("message") or "")
        never_ran = members.get("code") in _NEVER_RAN or _NEVER_RAN_TEXT.match(text) is not None
        call.fail(line.number, text, at=at, rejected=never_ran)
    elif not fits:
        call.end(line.number, None, at=at, missing=TOO_LARGE)
    else:
        value = _value_of(object_or_empty(data.get("result")))
        missing = "the log has no result" if value is None else None
        call.end(line.number, value, at=at, missing=missing)


def _value_of(result: JSONObject) -> JSON:
    """Return the longer text of a result. The other text might have been shortened for the
    model.
    """
    content = result.get("content")
    detailed = result.get("detailedContent")
    if isinstance(detailed, str) and len(detailed) > len(str(content)):
        return detailed
    return content
