"""Claude Code: reads the logs in `~/.claude/projects`.

A line is an object with a `type`. Lines of type `assistant` hold the blocks of a model's answer in
`message.content`; a call is a `tool_use` block named `mcp__SERVER__TOOL`. Lines of type `user` hold
what the person wrote, or `tool_result` blocks with the `tool_use_id` of their calls; `mcpMeta`,
next to them, holds the structured content. An answer may take several lines, one for each block. A
result that is too large for the model is in a separate file, in the folder `tool-results` beside
the log. The calls of a subagent form a separate conversation: they have `isSidechain` and an
`agentId`, and newer versions write them to a separate log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ideabridge.bridge.history.conversation import (
    Conversation,
    HistoryBounds,
    HistoryCall,
    LogLine,
    Names,
    content_value,
    open_plain,
    read_lines,
    shortened_prompt,
    text_in,
)
from ideabridge.tools.encoding import (
    JSON,
    MAX_BYTES,
    JSONObject,
    decode,
    list_or_empty,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError

NAME: Final = "claude-code"

_PREFIX: Final = "mcp__"
_NO_PROMPT: Final = ("<", "[Request interrupted", "Caveat: ")
"""Prefixes of texts that Claude Code itself writes into the person's lines."""

_SAVED: Final = re.compile(
    r"\A(?:Error: result \([^\n]{1,200}?exceeds maximum allowed tokens\. Output has been saved to"
    r"|<persisted-output>\s+Output too large [^\n]{1,200}?saved to:?) "
    r"(?P<path>[^\n]{1,1000}?tool-results[/\\]"
    r"(?P<name>[\w.@ -]{1,200}?))\.?(?:\n|\Z)"
)
_CUT: Final = re.compile(
    r"\[OUTPUT TRUNCATED - exceeded \d+ token limit\]|\[?\.\.\. ?\[?\d+ "
    r"(?:characters|lines) truncated"
)


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    own = variables.get("CLAUDE_CONFIG_DIR")
    base = Path(own).expanduser() if own else home / ".claude"
    return [base / "projects"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversations in a log: the main one, and those of subagents in it.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


class _Log:
    def __init__(self, path: Path, names: Names) -> None:
        self._path = path
        self._names = names
        self._bounds = HistoryBounds()
        self._main = Conversation(NAME, path.stem, path)
        self._parts: dict[str, Conversation] = {"": self._main}
        self._calls: dict[str, HistoryCall] = {}
        self._prompts: dict[str, str] = {}

    def read(self) -> list[Conversation]:
        for line in read_lines(self._main):
            kind = line.content.get("type")
            if kind == "assistant":
                self._take_answer(line)
            elif kind == "user":
                self._take_user(line)
            elif not isinstance(kind, str) or line.content.keys() >= {"message", "uuid"}:
                # Lines of other types contain neither calls nor results, and differ from version to
                # version.
                self._main.skipped["of an unknown kind"] += 1
        return list(self._parts.values())

    def _part(self, line: JSONObject) -> str:
        agent = line.get("agentId")
        if isinstance(agent, str) and agent:
            # If the agent has its own log, the file name contains the agent's id.
            return "" if agent in self._path.stem else f"agent-{agent[:100]}"
        return "sidechain" if line.get("isSidechain") is True else ""

    def _conversation(self, line: JSONObject) -> Conversation:
        part = self._part(line)
        if part not in self._parts:
            self._parts[part] = Conversation(NAME, f"{self._main.id}/{part}", self._path)

        conversation = self._parts[part]
        folder = line.get("cwd")
        if not conversation.folder and isinstance(folder, str):
            conversation.folder = folder

        return conversation

    def _take_answer(self, line: LogLine) -> None:
        for block in _blocks(line.content):
            name = block.get("name")
            if block.get("type") != "tool_use" or not isinstance(name, str):
                continue
            if name.startswith(_PREFIX):
                self._take_call(line, block, name.removeprefix(_PREFIX))

    def _take_call(self, line: LogLine, block: JSONObject, name: str) -> None:
        call_id = block.get("id")
        arguments = block.get("input")
        if not isinstance(call_id, str) or not isinstance(arguments, dict):
            self._main.skipped["without id or arguments"] += 1
            return

        conversation = self._conversation(line.content)
        tool = self._names.split(name)
        if tool.module is None:
            conversation.others[tool.server] += 1
            return
        if call_id in self._calls:
            return
        if not self._bounds.takes_call(line.size):
            conversation.skipped["beyond the most calls"] += 1
            return

        prompt = self._prompts.get(self._part(line.content), "")
        time = conversation.time_of(line.content)
        call = HistoryCall(call_id, tool.module, tool.name, arguments, line.number, time, prompt)
        self._calls[call_id] = call
        conversation.calls.append(call)

    def _take_user(self, line: LogLine) -> None:
        content = line.content
        results = [block for block in _blocks(content) if block.get("type") == "tool_result"]
        for block in results:
            call = self._calls.get(str(block.get("tool_use_id")))
            if call is None:
                continue
            if not self._bounds.takes_result(line.size):
                call.end(line.number, None, missing="the conversation is too large")
                continue

            structured = _structured(content) if len(results) == 1 else None
            self._end(call, line.number, block, structured)

        if results or content.get("isMeta") is True or content.get("isCompactSummary") is True:
            return

        text = text_in(object_or_empty(content.get("message")).get("content")).strip()
        if text and not text.startswith(_NO_PROMPT):
            self._prompts[self._part(content)] = shortened_prompt(text)

    def _end(self, call: HistoryCall, number: int, block: JSONObject, structured: JSON) -> None:
        content = block.get("content")
        text = text_in(content)
        saved = _SAVED.match(text)
        if structured is not None and block.get("is_error") is not True:
            call.end(number, structured, missing=None)
        elif saved is not None:
            value = self._saved(saved["name"])
            missing = "the host cut it, and its file is gone" if value is None else None
            call.end(number, value, missing=missing)
        elif block.get("is_error") is True:
            call.end(number, None, error=text[:4000] or "the log says no more")
        else:
            missing = "the host cut it" if _CUT.search(text) else None
            call.end(number, content_value(_as_mcp(content)), missing=missing)

    def _saved(self, name: str) -> JSON:
        """Return the result that was saved in a file beside the log, or None if it cannot be
        read.
        """
        try:
            # The log of a subagent is in the folder of its conversation.
            beside = next(
                (parent for parent in self._path.parents if parent.name == "subagents"), None
            )
            folder = beside.parent if beside is not None else self._path.with_suffix("")
            results = folder / "tool-results"
            if folder.is_symlink() or results.is_symlink():
                return None

            with os.fdopen(open_plain(results / name), "rb") as file:
                data = file.read(MAX_BYTES + 1)

            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

        if len(data) > MAX_BYTES:
            return None

        try:
            value = decode(text)
        except IdeabridgeError:
            return text

        blocks = list_or_empty(value)
        if blocks and all(isinstance(block, dict) and "type" in block for block in blocks):
            return content_value(_as_mcp(blocks))
        return text


def _blocks(line: JSONObject) -> list[JSONObject]:
    content = object_or_empty(line.get("message")).get("content")
    return [block for block in list_or_empty(content) if isinstance(block, dict)]


def _structured(line: JSONObject) -> JSON:
    return object_or_empty(line.get("mcpMeta")).get("structuredContent")


def _as_mcp(content: JSON) -> JSON:
    """Return content in the form of MCP. Claude Code logs pictures in the form of the model's
    API.
    """
    if not isinstance(content, list):
        return content

    blocks: list[JSON] = []
    for block in content:
        source = block.get("source") if isinstance(block, dict) else None
        if isinstance(block, dict) and block.get("type") == "image" and isinstance(source, dict):
            block = {
                "type": "image",
                "data": source.get("data"),
                "mimeType": source.get("media_type"),
            }

        blocks.append(block)

    return blocks
