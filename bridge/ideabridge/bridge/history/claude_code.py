"""Read Claude Code's logs in `~/.claude/projects`.

A line is an object with a `type`. Lines of type `assistant` contain the blocks of a model's answer
in `message.content`; a call is a `tool_use` block named `mcp__SERVER__TOOL`. Lines of type `user`
contain either the person's text or `tool_result` blocks with the `tool_use_id` of their calls; next
to these, `mcpMeta` contains the structured content. An answer can take several lines, one for each
block. A result that is too large for the model is in a separate file, in the folder `tool-results`
next to the log. The calls of a subagent form a separate conversation: they have `isSidechain` and
an `agentId`, and newer versions write them to a separate log.

Lines have a `uuid`, and the `parentUuid` of the line before them. When a person rewinds a
conversation, the log keeps the abandoned lines, and the next line that the person writes has the
same parent as an earlier line. The calls in such an abandoned branch form a separate conversation,
too.
"""

from __future__ import annotations

import os
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
    content_value,
    folder_of_host,
    is_numbered,
    may_be_another,
    open_plain,
    read_lines,
    shortened_prompt,
    text_in,
)
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, decode, list_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import member, read_as, read_whole

NAME: Final = "claude-code"
PATTERNS: Final = ("*.jsonl",)
"""The file names of logs."""

_PREFIX: Final = "mcp__"
_NO_PROMPT: Final = ("<", "[Request interrupted", "Caveat: ")
"""Prefixes of lines that Claude Code itself writes in the person's name."""

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
"""The error of a call that never ran, because a person or a rule rejected it."""

_INTERRUPTED: Final = "The user doesn't want to take this action right now."
"""The beginning of the error of a call that a person interrupted. The call might have run."""

_CUT: Final = re.compile(
    r"\[OUTPUT TRUNCATED - exceeded \d+ token limit\]|\[?\.\.\. ?\[?\d+ "
    r"(?:characters|lines) truncated"
)


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders that contain the logs."""
    return [folder_of_host(variables, "CLAUDE_CONFIG_DIR", home / ".claude") / "projects"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversations in a log: the main conversation, and those of subagents.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


@dataclass(frozen=True, slots=True)
class _Block:
    """A block in a model's answer or a person's line: text, a call, or a result."""

    type: str | None = None
    id: str | None = None
    name: str | None = None
    input: JSONObject | None = None
    tool_use_id: str | None = None
    content: JSON = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class _Message:
    id: str = ""
    content: JSON = None
    blocks: tuple[_Block, ...] = field(default=(), metadata=member("content"))


@dataclass(frozen=True, slots=True)
class _McpMeta:
    structured: JSON = field(default=None, metadata=member("structuredContent"))


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of any type.

    Attributes:
        maker: the line that made the call whose result this line contains.
        agent: the id of the subagent that wrote the line.
        is_meta, is_compact_summary: whether Claude Code wrote the line itself.
        forked_from: where the line was copied from, if a person forked the conversation.
    """

    type: str | None = None
    uuid: str | None = None
    parent: str | None = field(default=None, metadata=member("parentUuid"))
    maker: str | None = field(default=None, metadata=member("sourceToolAssistantUUID"))
    agent: str = field(default="", metadata=member("agentId"))
    is_sidechain: bool = field(default=False, metadata=member("isSidechain"))
    is_meta: bool = field(default=False, metadata=member("isMeta"))
    is_compact_summary: bool = field(default=False, metadata=member("isCompactSummary"))
    folder: str = field(default="", metadata=member("cwd"))
    forked_from: JSONObject | None = field(default=None, metadata=member("forkedFrom"))
    mcp_meta: _McpMeta = field(default=_McpMeta(), metadata=member("mcpMeta"))
    message: _Message = _Message()


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
            read = read_as(_Line, line.content)
            self._lines.add(read)
            if read.type == "assistant":
                self._take_answer(line, read)
            elif read.type == "user":
                self._take_user(line, read)
            elif read.type is None or line.content.keys() >= {"message", "uuid"}:
                # Lines of other types contain neither calls nor results, and change from version to
                # version, so they are not counted.
                self._main.skipped["of an unknown kind"] += 1

        conversations: list[Conversation] = []
        for conversation in self._parts.values():
            conversation.sort()
            conversations += self._lines.branches(conversation)
        return conversations

    def _part(self, line: _Line) -> str:
        if line.agent:
            # An agent that has its own log has its id in the name of the log file.
            return "" if line.agent in self._path.stem else f"agent-{line.agent[:100]}"
        return "sidechain" if line.is_sidechain else ""

    def _conversation(self, line: _Line) -> Conversation:
        part = self._part(line)
        if part not in self._parts:
            self._parts[part] = Conversation(NAME, f"{self._main.id}/{part}", self._path)

        conversation = self._parts[part]
        conversation.folder = conversation.folder or line.folder
        return conversation

    def _take_answer(self, line: LogLine, read: _Line) -> None:
        for block in read.message.blocks:
            if block.type == "tool_use" and block.name and block.name.startswith(_PREFIX):
                self._take_call(line, read, block, block.name.removeprefix(_PREFIX))

    def _take_call(self, line: LogLine, read: _Line, block: _Block, name: str) -> None:
        if block.id is None or block.input is None:
            self._main.skipped["without id or arguments"] += 1
            return

        conversation = self._conversation(read)
        tool = self._names.split(name)
        if tool.module is None:
            conversation.others[tool.server] += 1
            return
        call = HistoryCall(
            block.id,
            tool.module,
            tool.name,
            block.input,
            line.number,
            conversation.time_of(line.timestamp),
            self._prompts.get(self._part(read), ""),
            answer=read.message.id,
            doubt=line.doubt,
            copied=read.forked_from is not None,
        )
        if not self._calls.take(call, conversation, line.size):
            return

        self._lines.add_call(read, call)
        early = self._early.take(call)
        if early is not None:
            self._take_results(early, read_as(_Line, early.content))

    def _take_user(self, line: LogLine, read: _Line) -> None:
        has_results = self._take_results(line, read)
        if has_results or read.is_meta or read.is_compact_summary:
            return

        text = text_in(read.message.content).strip()
        if text and not text.startswith(_NO_PROMPT):
            self._prompts[self._part(read)] = shortened_prompt(text)
            self._lines.add_prompt(read)

    def _take_results(self, line: LogLine, read: _Line) -> bool:
        """Read the results in a line, and return whether there were any."""
        results = [block for block in read.message.blocks if block.type == "tool_result"]
        for block in results:
            at = self._main.time_of(line.timestamp)
            call = self._ended_by(read, block.tool_use_id, at)
            if call is None:
                self._early.add(block.tool_use_id, at, line)
                continue

            if not self._calls.takes_result(line.size):
                call.end(line.number, None, at=at, missing=TOO_LARGE)
                continue

            call.doubt = call.doubt or line.doubt
            structured = read.mcp_meta.structured if len(results) == 1 else None
            self._end(call, line.number, at, block, structured)

        return bool(results)

    def _ended_by(self, line: _Line, call_id: str | None, at: float | None) -> HistoryCall | None:
        """Return the call that a result belongs to, or None if every call already has a result."""
        maker = line.maker or line.parent
        for call in self._calls.of(call_id):
            if self._lines.made(maker, call):
                return call if call.ended is None else None

        call = self._calls.awaiting(call_id, at)
        if call is None or may_be_another(call, self._main):
            return None

        is_of_unread = maker is not None and not self._lines.has(maker)
        return None if is_of_unread and is_numbered(call.id) else call

    def _end(
        self,
        call: HistoryCall,
        number: int,
        at: float | None,
        block: _Block,
        structured: JSON,
    ) -> None:
        text = text_in(block.content)
        saved = _SAVED.match(text)
        if structured is not None and not block.is_error:
            call.end(number, structured, at=at)
        elif saved is not None:
            value = self._saved(saved["name"])
            missing = "the host cut it, and its file is gone" if value is None else None
            call.end(number, value, at=at, missing=missing)
        elif block.is_error and text.startswith(_INTERRUPTED):
            call.missing = "a person interrupted it"
            call.ended_at = at
        elif block.is_error:
            call.fail(number, text, at=at, rejected=_REJECTED.match(text) is not None)
        else:
            missing = "the host cut it" if _CUT.search(text) else None
            call.end(number, content_value(_as_mcp(block.content)), at=at, missing=missing)

    def _saved(self, name: str) -> JSON:
        """Return the result that is saved in a file next to the log, or None if the file cannot be
        read.
        """
        try:
            # A subagent's log lies in the folder that belongs to its conversation.
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
    """The lines of a log as a tree, in which each line is a child of the preceding one.

    If a person has rewound the conversation, there are several branches.
    """

    def __init__(self) -> None:
        # The parent of each line, in log order.
        self._parents: dict[str, str | None] = {}
        # The lines that a person wrote, keyed by the parent of the line.
        self._prompts: dict[str, list[str]] = {}
        # The line in which each call was made, keyed by the `id()` of the call.
        self._makers: dict[int, str] = {}

    def add(self, line: _Line) -> None:
        if line.uuid is not None:
            self._parents.setdefault(line.uuid, line.parent)

    def has(self, uuid: str) -> bool:
        """Return whether a line with this `uuid` has been read from the log."""
        return uuid in self._parents

    def add_prompt(self, line: _Line) -> None:
        if line.uuid is not None:
            parent = self._parents[line.uuid]
            if parent is not None:
                self._prompts.setdefault(parent, []).append(line.uuid)

    def add_call(self, line: _Line, call: HistoryCall) -> None:
        if line.uuid is not None:
            self._makers[id(call)] = line.uuid

    def made(self, uuid: str | None, call: HistoryCall) -> bool:
        """Return whether a line made a call."""
        return uuid is not None and self._makers.get(id(call)) == uuid

    def branches(self, conversation: Conversation) -> list[Conversation]:
        """Return the conversation without the calls in abandoned branches, followed by a
        conversation for each of these branches.
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
        """Return the first lines of abandoned branches, all of which a person wrote.

        If a person wrote twice after the same line, the branch that contains the last line of the
        log is kept, and the other one is abandoned.
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
        """Return, for each line, the line at which its abandoned branch begins, or "" for lines in
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


@dataclass(frozen=True, slots=True)
class _PictureSource:
    data: JSON = None
    media_type: JSON = None


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture in the format of the model's API."""

    type: str
    source: _PictureSource


def _as_mcp(content: JSON) -> JSON:
    """Return content in MCP's format. Claude Code logs pictures in the format of the model's
    API.
    """
    if not isinstance(content, list):
        return content

    return [_mcp_block(block) for block in content]


def _mcp_block(block: JSON) -> JSON:
    picture = read_whole(_Picture, block)
    if picture is None or picture.type != "image":
        return block

    source = picture.source
    return {"type": "image", "data": source.data, "mimeType": source.media_type}
