"""Copilot CLI: reads the logs in `~/.copilot/session-state`.

A line is `{"type", "data", "id", "timestamp", "parentId"}`, as GitHub's SDK for Copilot declares
it. A call is an event `tool.execution_start`, with `mcpServerName` and `mcpToolName` if the tool is
one of an MCP server; its result is an event `tool.execution_complete`. The calls of a subagent have
the `parentToolCallId` of the call that started it, and form a separate conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ideabridge.bridge.history.conversation import (
    CallsById,
    Conversation,
    EarlyResults,
    HistoryBounds,
    HistoryCall,
    LoggedTool,
    LogLine,
    Names,
    may_be_another,
    read_lines,
    shortened_prompt,
    text_in,
)
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty

NAME: Final = "copilot-cli"
PATTERNS: Final = ("events.jsonl", "*-*.jsonl")
"""The file names of logs. Older versions named a log after its session."""

_REJECTED: Final = frozenset({"rejected", "denied"})
"""Codes of errors of calls that never ran, because a person or a rule did not allow them."""

_UNASKED: Final = "Permission denied and could not request permission from user"
"""The error of a call that never ran, because nobody could be asked."""


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    own = variables.get("COPILOT_HOME")
    base = Path(own).expanduser() if own else home / ".copilot"
    return [base / "session-state", base / "history-session-state"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversation in a log, and those of its subagents.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


class _Log:
    def __init__(self, path: Path, names: Names) -> None:
        name = path.parent.name if path.name == "events.jsonl" else path.stem
        self._names = names
        self._bounds = HistoryBounds()
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
        own = data.get("sessionId")
        folder = object_or_empty(data.get("context")).get("cwd")
        if isinstance(own, str) and own:
            self._main.id = own[:200]
        if isinstance(folder, str):
            self._main.folder = folder

    def _part(self, data: JSONObject) -> Conversation:
        parent = data.get("parentToolCallId")
        name = f"agent-{parent[:100]}" if isinstance(parent, str) and parent else ""
        if name not in self._parts:
            own = self._main
            self._parts[name] = Conversation(NAME, f"{own.id}/{name}", own.path, own.folder)
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
        named = LoggedTool(server, tool, self._names.of(server))
        if named.module is None:
            conversation.others[server] += 1
            return

        call = HistoryCall(
            call_id,
            named.module,
            tool,
            object_or_empty(data.get("arguments")),
            line.number,
            self._main.time_of(line.content),
            self._prompt,
            doubt=line.doubt,
        )
        if self._calls.knows(call):
            return
        if not self._bounds.takes_call(line.size):
            conversation.skipped["beyond the most calls"] += 1
            return

        self._calls.add(call)
        conversation.calls.append(call)
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
            _end(call, line, at, data, fits=self._bounds.takes_result(line.size))


def _end(
    call: HistoryCall, line: LogLine, at: float | None, data: JSONObject, *, fits: bool
) -> None:
    error = data.get("error")
    if data.get("success") is not True or isinstance(error, dict):
        members = object_or_empty(error)
        text = str(members.get("message") or "the log says no more")[:4000]
        rejected = members.get("code") in _REJECTED or text == _UNASKED
        call.end(line.number, None, at=at, error=text, rejected=rejected)
    elif not fits:
        call.end(line.number, None, at=at, missing="the conversation is too large")
    else:
        value = _value_of(object_or_empty(data.get("result")))
        missing = "the log has no result" if value is None else None
        call.end(line.number, value, at=at, missing=missing)


def _value_of(result: JSONObject) -> JSON:
    """Return the whole text of a result. What the model saw of it may have been shortened."""
    whole = result.get("detailedContent")
    shown = result.get("content")
    return whole if isinstance(whole, str) and len(whole) > len(str(shown)) else shown
