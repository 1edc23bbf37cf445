"""Claude Code: reads the logs in `~/.claude/projects`.

A line is an object with a `type`. Lines of type `assistant` contain the blocks of a model's answer
in `message.content`; a call is a `tool_use` block named `mcp__SERVER__TOOL`. Lines of type `user`
contain the text of the person, or `tool_result` blocks with the `tool_use_id` of their calls;
`mcpMeta`, next to them, contains the structured content. An answer can take several lines, one for
each block. A result that is too large for the model is in a separate file, in the folder
`tool-results` next to the log. The calls of a subagent form a separate conversation: they have
`isSidechain` and an `agentId`, and newer versions write them to a separate log.

Lines have a `uuid`, and the `parentUuid` of the line before them. When a person rewinds a
conversation, the log keeps the abandoned lines, and the next thing that the person writes has the
same parent as an earlier one. The calls of such an abandoned branch form a separate conversation,
too.
"""

from __future__ import annotations

import os
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
    content_value,
    folder_of_host,
    is_numbered,
    may_be_another,
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
PATTERNS: Final = ("*.jsonl",)
"""The file names of logs."""

_PREFIX: Final = "mcp__"
_NO_PROMPT: Final = ("<", "[Request interrupted", "Caveat: ")
"""Prefixes of texts that Claude Code itself writes into the person's lines."""

_SAVED: Final = re.compile(
    r"\A(?:Error: result \([^\n]{1,200}?exceeds maximum allowed tokens\. Output has been saved to"
    r"|<persisted-output>\s+Output too large [^\n]{1,200}?saved to:?) "
    r"(?P<path>[^\n]{1,1000}?tool-results[/\\]"
    r"(?P<name>[\w.@ -]{1,200}?))\.?(?:\n|\Z)"
)
_REJECTED: Final = re.compile(
    r"The user doesn't want to proceed with this tool use\.|Permission to use mcp__\S+ has been |"
    r"Claude requested permissions to use mcp__"
)
"""The error of a call that never ran, because a person or a rule did not allow it."""

_INTERRUPTED: Final = "The user doesn't want to take this action right now."
"""The beginning of the error of a call that a person interrupted. The call might have run."""

_CUT: Final = re.compile(
    r"\[OUTPUT TRUNCATED - exceeded \d+ token limit\]|\[?\.\.\. ?\[?\d+ "
    r"(?:characters|lines) truncated"
)


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    return [folder_of_host(variables, "CLAUDE_CONFIG_DIR", home / ".claude") / "projects"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversations in a log: the main one, and those of its subagents.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


class _Log:
    def __init__(self, path: Path, names: Names) -> None:
        self._path = path
        self._names = names
        self._main = Conversation(NAME, path.stem, path)
        self._parts: dict[str, Conversation] = {"": self._main}
        self._calls = CallsById()
        self._early = EarlyResults()
        self._prompts: dict[str, str] = {}
        self._lines = _Lines()

    def read(self) -> list[Conversation]:
        for line in read_lines(self._main):
            self._lines.add(line.content)
            kind = line.content.get("type")
            if kind == "assistant":
                self._take_answer(line)
            elif kind == "user":
                self._take_user(line)
            elif not isinstance(kind, str) or line.content.keys() >= {"message", "uuid"}:
                # Lines of other types contain neither calls nor results, and differ from version to
                # version.
                self._main.skipped["of an unknown kind"] += 1

        conversations: list[Conversation] = []
        for conversation in self._parts.values():
            conversation.sort()
            conversations += self._lines.branches(conversation)
        return conversations

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
        call = HistoryCall(
            call_id,
            tool.module,
            tool.name,
            arguments,
            line.number,
            conversation.time_of(line.content),
            self._prompts.get(self._part(line.content), ""),
            answer=_answer_of(line.content),
            doubt=line.doubt,
            copied=isinstance(line.content.get("forkedFrom"), dict),
        )
        if not self._calls.take(call, conversation, line.size):
            return

        self._lines.add_call(line.content, call)
        early = self._early.take(call)
        if early is not None:
            self._take_results(early)

    def _take_user(self, line: LogLine) -> None:
        content = line.content
        results = self._take_results(line)
        if results or content.get("isMeta") is True or content.get("isCompactSummary") is True:
            return

        text = text_in(object_or_empty(content.get("message")).get("content")).strip()
        if text and not text.startswith(_NO_PROMPT):
            self._prompts[self._part(content)] = shortened_prompt(text)
            self._lines.add_prompt(content)

    def _take_results(self, line: LogLine) -> bool:
        """Read the results in a line, and return whether there are any."""
        content = line.content
        results = [block for block in _blocks(content) if block.get("type") == "tool_result"]
        for block in results:
            at = self._main.time_of(content)
            call = self._ended_by(content, block.get("tool_use_id"), at)
            if call is None:
                self._early.add(block.get("tool_use_id"), at, line)
                continue

            if not self._calls.takes_result(line.size):
                call.end(line.number, None, at=at, missing=TOO_LARGE)
                continue

            call.doubt = call.doubt or line.doubt
            structured = _structured(content) if len(results) == 1 else None
            self._end(call, line.number, at, block, structured)

        return bool(results)

    def _ended_by(self, line: JSONObject, call_id: JSON, at: float | None) -> HistoryCall | None:
        """Return the call that a result in a line certainly belongs to, or None if every call
        already has a result.
        """
        maker = line.get("sourceToolAssistantUUID", line.get("parentUuid"))
        for call in self._calls.of(call_id):
            if self._lines.made(maker, call):
                return call if call.ended is None else None

        call = self._calls.awaiting(call_id, at)
        if call is None or may_be_another(call, self._main):
            return None

        is_of_unread = isinstance(maker, str) and not self._lines.has(maker)
        return None if is_of_unread and is_numbered(call.id) else call

    def _end(
        self,
        call: HistoryCall,
        number: int,
        at: float | None,
        block: JSONObject,
        structured: JSON,
    ) -> None:
        content = block.get("content")
        text = text_in(content)
        saved = _SAVED.match(text)
        if structured is not None and block.get("is_error") is not True:
            call.end(number, structured, at=at)
        elif saved is not None:
            value = self._saved(saved["name"])
            missing = "the host cut it, and its file is gone" if value is None else None
            call.end(number, value, at=at, missing=missing)
        elif block.get("is_error") is True and text.startswith(_INTERRUPTED):
            call.missing = "a person interrupted it"
            call.ended_at = at
        elif block.get("is_error") is True:
            call.fail(number, text, at=at, rejected=_REJECTED.match(text) is not None)
        else:
            missing = "the host cut it" if _CUT.search(text) else None
            call.end(number, content_value(_as_mcp(content)), at=at, missing=missing)

    def _saved(self, name: str) -> JSON:
        """Return the result saved in a file next to the log, or None if it cannot be read."""
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


class _Lines:
    """The lines of a log as a tree: each follows its parent. If a person has rewound the
    conversation, a parent has several branches.
    """

    def __init__(self) -> None:
        # The parent of each line, in the order of the log.
        self._parents: dict[str, str | None] = {}
        # The lines that a person wrote, keyed by their parent.
        self._prompts: dict[str, list[str]] = {}
        # The line that made each call, keyed by the identity of the call.
        self._makers: dict[int, str] = {}

    def add(self, line: JSONObject) -> None:
        uuid = line.get("uuid")
        parent = line.get("parentUuid")
        if isinstance(uuid, str):
            self._parents.setdefault(uuid, parent if isinstance(parent, str) else None)

    def has(self, uuid: str) -> bool:
        """Return whether the part of the log that was read contains a line."""
        return uuid in self._parents

    def add_prompt(self, line: JSONObject) -> None:
        uuid = line.get("uuid")
        if isinstance(uuid, str):
            parent = self._parents[uuid]
            if parent is not None:
                self._prompts.setdefault(parent, []).append(uuid)

    def add_call(self, line: JSONObject, call: HistoryCall) -> None:
        uuid = line.get("uuid")
        if isinstance(uuid, str):
            self._makers[id(call)] = uuid

    def made(self, uuid: JSON, call: HistoryCall) -> bool:
        """Return whether a line made a call."""
        return isinstance(uuid, str) and self._makers.get(id(call)) == uuid

    def branches(self, conversation: Conversation) -> list[Conversation]:
        """Return a conversation without the calls of abandoned branches, then one conversation for
        each of these branches.
        """
        abandoned = self._abandoned()
        if not abandoned:
            return [conversation]

        branch_of = self._branch_of(abandoned)
        branches: dict[str, Conversation] = {}
        remaining: list[HistoryCall] = []
        for call in conversation.calls:
            branch = branch_of.get(self._makers.get(id(call), ""), "")
            if not branch:
                remaining.append(call)
                continue

            if branch not in branches:
                branches[branch] = conversation.part(f"rewound-{branch[:100]}")
            branches[branch].calls.append(call)

        conversation.calls = remaining
        return [conversation, *branches.values()]

    def _abandoned(self) -> set[str]:
        """Return the lines that a person wrote at which abandoned branches begin. If a person wrote
        twice after the same line, the branch with the last line of the log is kept.
        """
        forks = [prompts for prompts in self._prompts.values() if len(prompts) > 1]
        if not forks:
            return set()

        last_lines: dict[str, int] = {}
        numbered = list(enumerate(self._parents.items()))
        for number, (uuid, parent) in reversed(numbered):
            last = max(last_lines.get(uuid, 0), number)
            last_lines[uuid] = last
            if parent is not None:
                last_lines[parent] = max(last_lines.get(parent, 0), last)

        abandoned: set[str] = set()
        for prompts in forks:
            latest = max(prompts, key=last_lines.__getitem__)
            abandoned |= set(prompts) - {latest}
        return abandoned

    def _branch_of(self, abandoned: set[str]) -> dict[str, str]:
        """Return, for each line, the line at which its abandoned branch begins, or "" if it is in
        the kept branch.
        """
        branches: dict[str, str] = {uuid: uuid for uuid in abandoned}
        for line in self._parents:
            path: list[str] = []
            place: str | None = line
            while place is not None and place not in branches and len(path) <= len(self._parents):
                path.append(place)
                place = self._parents.get(place)

            branch = branches.get(place, "") if place is not None else ""
            branches.update(dict.fromkeys(path, branch))
        return branches


def _answer_of(line: JSONObject) -> str:
    answer = object_or_empty(line.get("message")).get("id")
    return answer if isinstance(answer, str) else ""


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
