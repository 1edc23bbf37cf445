"""Read Codex's logs in `~/.codex/sessions`.

A line is `{"timestamp", "type", "payload"}`. A call to an MCP server is an event
`mcp_tool_call_end` with the invocation and the whole result; newer versions instead write an event
`item_completed` with an item `McpToolCall`. The parts that the model saw are logged as
`response_item`: a `function_call` (named `mcp__SERVER__TOOL`, or TOOL with the namespace
`mcp__SERVER`) and its `function_call_output`, whose text can be truncated. The events contain the
whole result and the true names, so they take precedence. The items show the order of the calls.
Older versions log only items about a call. Calls that a script makes in code mode have only events.

A fork begins with a copy of its original's log, with new times. The copy ends where the fork's own
`session_meta` is repeated, or at the first turn that is no older than the fork according to the
time in its id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from ideabridge.bridge.history.conversation import (
    TOO_LARGE,
    CallsById,
    Conversation,
    EarlyResults,
    HistoryCall,
    LoggedTool,
    LogLine,
    Names,
    content_value,
    folder_of_host,
    is_numbered,
    is_same,
    may_be_another,
    read_lines,
    seconds_of,
    shortened_prompt,
    text_in,
)
from ideabridge.tools.encoding import JSON, JSONObject, decode, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import read_as, read_whole

NAME: Final = "codex"
PATTERNS: Final = ("rollout-*.jsonl",)
"""The file names of logs."""

_PREFIX: Final = "mcp__"
_HEADER: Final = re.compile(r"\AWall time: [0-9.]+ seconds\nOutput:(?:\n|\Z)")
_CUT: Final = re.compile(
    r"…\s?\d+ (?:tokens|chars|characters|bytes|lines) truncated\s?…|\[\.\.\. "
    r"omitted \d+ of \d+ lines"
)
_REJECTED: Final = re.compile(r"\A(?:tool call error: )?user (?:rejected|cancelled) MCP")
_FAILED: Final = re.compile(
    rf"{_REJECTED.pattern}|\A(?:tool call error: |err: |failed to parse function arguments: )"
)
_NO_PROMPT: Final = ("<", "# AGENTS.md")
"""Prefixes of messages that Codex itself writes in the person's name."""


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    base = folder_of_host(variables, "CODEX_HOME", home / ".codex")
    return [base / "sessions", base / "archived_sessions"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversation in a log, including the parts that a person has reverted.

    Raises:
        OSError: the log cannot be read.
    """
    return _Log(path, names).read()


@dataclass(frozen=True, slots=True)
class _Invocation:
    """The tool that a call named, and the call's arguments."""

    server: str
    tool: str
    arguments: JSONObject = field(default_factory=dict[str, JSON])


@dataclass(frozen=True, slots=True)
class _Payload:
    """The payload of a line of any type."""

    type: str | None = None
    id: str | None = None
    cwd: str | None = None
    timestamp: JSON = None
    turn_id: str | None = None
    num_turns: int = 0
    role: str | None = None
    message: JSON = None
    content: JSON = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: JSON = None
    input: JSON = None
    output: JSON = None
    item: JSONObject | None = None
    invocation: _Invocation | None = None
    duration: _Duration | None = None
    result: JSON = None


@dataclass(frozen=True, slots=True)
class _Duration:
    secs: int
    nanos: int = 0


@dataclass(frozen=True, slots=True)
class _LoggedError:
    message: JSON = None


@dataclass(frozen=True, slots=True)
class _McpItem:
    """The item about an ended call, in newer versions."""

    id: str | None = None
    duration: _Duration | None = None
    error: _LoggedError | None = None
    result: JSONObject | None = None

    @property
    def outcome(self) -> JSON:
        """The result as an event contains it: `{"Ok": result}` or `{"Err": text}`."""
        if self.error is not None:
            return {"Err": self.error.message}
        return None if self.result is None else {"Ok": self.result}


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a call, as logged in an event or an item."""

    call_id: str | None
    invocation: _Invocation | None
    duration: _Duration | None
    result: JSON


class _Log:
    def __init__(self, path: Path, names: Names) -> None:
        self._names = names
        name = path.name.partition(".jsonl")[0].removeprefix("rollout-")
        self._conversation = Conversation(NAME, name, path)
        self._rewound: list[Conversation] = []
        self._calls = CallsById()
        self._early = EarlyResults()
        self._states: dict[int, _State] = {}
        self._others = _OtherCalls()
        self._turns = _Turns()
        self._fork = _Fork()
        self._scripts = 0
        self._prompt = ""

    def read(self) -> list[Conversation]:
        conversation = self._conversation
        for line in read_lines(conversation):
            kind = line.content.get("type")
            members = line.content.get("payload")
            payload = read_whole(_Payload, members)
            if not isinstance(kind, str) or payload is None:
                conversation.skipped["of an unknown kind"] += 1
            elif kind == "session_meta":
                self._begin(payload)
            elif kind == "event_msg":
                self._take_event(line, conversation.time_of(line.timestamp), payload)
            elif kind == "response_item":
                self._take_item(line, conversation.time_of(line.timestamp), payload)
            elif kind == "turn_context":
                self._fork.turn(payload.turn_id)
            elif not {"call_id", "item"}.isdisjoint(object_or_empty(members)):
                # Lines of other types contain neither calls nor results, and change from version to
                # version, so they are not counted.
                conversation.skipped["of an unknown kind"] += 1

        if self._scripts and not any(not state.listed for state in self._states.values()):
            conversation.skipped["with a script whose calls are not in the log"] += self._scripts

        conversation.others = self._others.counts
        conversations = [conversation, *self._rewound]
        for part in conversations:
            part.sort()
        return conversations

    def _begin(self, payload: _Payload) -> None:
        is_first = self._fork.meta(payload)
        if not is_first:
            return
        if payload.id:
            self._conversation.id = payload.id[:200]
        if payload.cwd is not None:
            self._conversation.folder = payload.cwd

    # -- events ------------------------------------------------------------------------------------

    def _take_event(self, line: LogLine, time: float | None, payload: _Payload) -> None:
        kind = payload.type
        item = payload.item
        if kind == "user_message":
            self._turns.begin("user_message", len(self._conversation.calls))
            self._ask(text_in(payload.message))
        elif kind == "mcp_tool_call_end":
            end = _End(payload.call_id, payload.invocation, payload.duration, payload.result)
            self._take_end(line, time, end)
        elif kind == "item_completed" and item is not None:
            if item.get("type") == "UserMessage":
                self._turns.begin("UserMessage", len(self._conversation.calls))
                self._ask(text_in(item.get("content")))
            elif item.get("type") == "McpToolCall":
                read = read_as(_McpItem, item)
                invocation = read_whole(_Invocation, item)
                end = _End(read.id, invocation, read.duration, read.outcome)
                self._take_end(line, time, end)
        elif kind == "thread_rolled_back":
            self._roll_back(payload.num_turns)
        elif kind in ("task_started", "turn_started"):
            self._fork.turn(payload.turn_id)

    def _ask(self, text: str) -> None:
        if text.strip() and not text.lstrip().startswith(_NO_PROMPT):
            self._prompt = shortened_prompt(text)

    def _roll_back(self, turns: int) -> None:
        """Move the calls in the last turns, which a person has reverted, into a separate
        conversation.
        """
        first = self._turns.take_back(turns)
        calls = self._conversation.calls[first:]
        if not calls:
            return

        del self._conversation.calls[first:]
        self._rewound.append(self._conversation.part(f"rewound-{len(self._rewound) + 1}", calls))

    def _take_end(self, line: LogLine, time: float | None, end: _End) -> None:
        if end.call_id is None or end.invocation is None:
            self._conversation.skipped["without id or arguments"] += 1
            return

        call_id = end.call_id
        server = end.invocation.server
        tool = end.invocation.tool
        named = self._names.tool(server, tool)
        if named.module is None:
            self._others.end(call_id, server)
            return

        arguments = end.invocation.arguments
        began = _began(time, end.duration)
        ended = self._new(call_id, named.module, tool, arguments, line, began)
        # The name in the model's item may have been truncated, in which case only the event names
        # the server.
        self._others.take_back(call_id)
        call = self._listed(ended, time)
        if call is None:
            if not self._add(ended, line, listed=False):
                return
            call = ended

        state = self._states[id(call)]
        state.has_event = True
        call.doubt = ended.doubt
        # Prefer the event, because it has the original names and the original result, which may
        # have been changed or truncated in the model's item.
        call.tool = tool
        call.arguments = arguments
        earlier = call.ended
        call.ended = None
        fits = self._calls.takes_result(line.size)
        if call is not ended and may_be_another(call, self._conversation):
            call.end(line.number, None, at=time, missing="lines before its result were not read")
        else:
            _end(call, earlier or line.number, time, end.result, fits)

    def _listed(self, ended: HistoryCall, at: float | None) -> HistoryCall | None:
        """Return the model's logged call that ends with an event at the time `at`, or None if no
        such call is logged.
        """
        waiting = [
            call
            for call in self._calls.of(ended.id)
            if not self._states[id(call)].has_event and not _is_later(call, at)
        ]
        same = [call for call in waiting if is_same(call, ended)]
        if same:
            return same[-1]
        if not waiting or self._states[id(waiting[-1])].has_output:
            return None

        # Even if nothing matches, the last item might belong to the event, because an item can have
        # a truncated name or arguments that cannot be read.
        last = waiting[-1]
        is_likely = last.arguments in ({}, ended.arguments) or not is_numbered(last.id)
        if not is_likely or may_be_another(last, self._conversation):
            return None
        return last

    def _new(
        self,
        call_id: str,
        module: str,
        tool: str,
        arguments: JSONObject,
        line: LogLine,
        time: float | None,
    ) -> HistoryCall:
        return HistoryCall(
            call_id,
            module,
            tool,
            arguments,
            line.number,
            time,
            self._prompt,
            copied=self._fork.is_copy,
            doubt=line.doubt,
        )

    def _add(self, call: HistoryCall, line: LogLine, *, listed: bool) -> bool:
        """Add a call. Return False if the log already contains it, or contains too many calls."""
        if not self._calls.take(call, self._conversation, line.size):
            return False

        self._states[id(call)] = _State(listed)
        return True

    # -- output that the model saw -----------------------------------------------------------------

    def _take_item(self, line: LogLine, time: float | None, payload: _Payload) -> None:
        kind = payload.type
        call_id = payload.call_id
        if kind == "message" and payload.role == "user" and not self._prompt:
            self._ask(text_in(payload.content))
        elif kind == "function_call" and call_id is not None:
            tool = self._named(payload)
            if tool is not None:
                arguments = _arguments(payload.arguments)
                self._take_call(line, time, call_id, tool, arguments)
        elif kind == "function_call_output":
            self._take_output(line, time, call_id, payload.output)
        elif kind == "custom_tool_call" and "tools.mcp__" in str(payload.input):
            self._scripts += 1

    def _take_call(
        self,
        line: LogLine,
        time: float | None,
        call_id: str,
        tool: LoggedTool,
        arguments: JSONObject,
    ) -> None:
        if tool.module is None:
            self._others.begin(call_id, tool.server)
            return

        call = self._new(call_id, tool.module, tool.name, arguments, line, time)
        for earlier in self._calls.of(call_id):
            # The event may have come before the item.
            state = self._states[id(earlier)]
            if not state.listed and is_same(earlier, call):
                state.listed = True
                return

        if self._add(call, line, listed=True):
            early = self._early.take(call)
            if early is not None:
                output = object_or_empty(early.content.get("payload")).get("output")
                at = self._conversation.time_of(early.timestamp)
                self._take_output(early, at, call_id, output)

    def _take_output(self, line: LogLine, time: float | None, call_id: JSON, output: JSON) -> None:
        shown = [
            call
            for call in self._calls.of(call_id)
            if not self._states[id(call)].has_output and not _is_later(call, time)
        ]
        if not shown:
            self._early.add(call_id, time, line)
            return

        call = shown[-1]
        state = self._states[id(call)]
        if not state.has_event and may_be_another(call, self._conversation):
            return

        state.has_output = True
        if not state.has_event:
            call.doubt = call.doubt or line.doubt
            fits = self._calls.takes_result(line.size)
            _end_from_output(call, line.number, time, output, fits)

    def _named(self, payload: _Payload) -> LoggedTool | None:
        """Return the tool that a function call names, or None if it does not belong to an MCP
        server.
        """
        name = payload.name
        if name is None:
            return None

        if payload.namespace:
            if not payload.namespace.startswith(_PREFIX):
                return None
            name = f"{payload.namespace.removesuffix('__')}__{name}"

        if name.startswith(_PREFIX):
            return self._names.split(name.removeprefix(_PREFIX))
        # Versions from 2025 wrote SERVER__TOOL, and none of Codex's own tools has such a name.
        return self._names.split(name) if "__" in name else None


def _is_later(call: HistoryCall, at: float | None) -> bool:
    return at is not None and call.time is not None and call.time > at


@dataclass(slots=True)
class _State:
    """Which kinds of lines the log contains about a call: the model's item, the event, and the
    output that the model saw.
    """

    listed: bool
    has_event: bool = False
    has_output: bool = False


class _OtherCalls:
    """Counts calls to servers that are not configured, by server. Each call is counted only
    once.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # The server of each item whose event has not been read yet, keyed by call id.
        self._listed: dict[str, str] = {}

    def begin(self, call_id: str, server: str) -> None:
        self._listed[call_id] = server
        self.counts[server] += 1

    def end(self, call_id: str, server: str) -> None:
        self.take_back(call_id)
        self.counts[server] += 1

    def take_back(self, call_id: str) -> None:
        server = self._listed.pop(call_id, None)
        if server is not None:
            self.counts[server] -= 1
            self.counts += Counter[str]()


class _Turns:
    """Where the turns in a conversation start, each stored as the number of calls before it."""

    def __init__(self) -> None:
        self._kind: str | None = None
        self._first_calls: list[int] = []

    def begin(self, kind: str, calls: int) -> None:
        # Newer versions log each message from the person twice, in two forms, so count only the
        # form that comes first.
        self._kind = self._kind or kind
        if kind == self._kind:
            self._first_calls.append(calls)

    def take_back(self, turns: int) -> int | None:
        """Forget the last `turns` turns, and return the number of calls before them, or None if
        there are fewer turns.
        """
        if not 0 < turns <= len(self._first_calls):
            return None

        first = self._first_calls[-turns]
        del self._first_calls[-turns:]
        return first


class _Fork:
    """Decides whether lines in a log are copies from another conversation's log."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._created: float | None = None
        self.is_copy = False

    def meta(self, payload: _Payload) -> bool:
        """Handle a `session_meta`, and return whether it is the first one."""
        if self._id is None:
            self._id = payload.id or ""
            self._created = _minted(self._id) or seconds_of(payload.timestamp)
            return True

        self.is_copy = payload.id != self._id
        return False

    def turn(self, turn_id: str | None) -> None:
        """Handle the id of a turn that begins."""
        minted = _minted(turn_id)
        if minted is not None and self._created is not None and minted >= self._created:
            self.is_copy = False


def _minted(identifier: str | None) -> float | None:
    """Return the time in a version 7 UUID, in seconds since 1970, or None for other ids."""
    try:
        uuid = UUID(identifier or "")
    except ValueError:
        return None
    return (uuid.int >> 80) / 1000 if uuid.version == 7 else None


def _began(ended: float | None, duration: _Duration | None) -> float | None:
    """Return when a call began, computed from when it ended and how long it took."""
    if ended is None or duration is None:
        return ended
    if not 0 <= duration.secs <= ended or not 0 <= duration.nanos < 1_000_000_000:
        return ended
    return ended - duration.secs - duration.nanos / 1e9


def _arguments(written: JSON) -> JSONObject:
    """Return the arguments of a function call, which are logged as JSON text, or no arguments if
    the text is malformed.
    """
    if not isinstance(written, str):
        return object_or_empty(written)
    try:
        return object_or_empty(decode(written or "{}"))
    except IdeabridgeError:
        return {}


def _end(call: HistoryCall, number: int, at: float | None, result: JSON, fits: bool) -> None:
    members = object_or_empty(result)
    answer = members.get("Ok")
    if isinstance(answer, dict):
        content = answer.get("content")
        structured = answer.get("structuredContent", answer.get("structured_content"))
        if answer.get("isError", answer.get("is_error")) is True:
            call.fail(number, text_in(content), at=at)
        elif fits:
            call.end(number, content_value(content, structured), at=at)
        else:
            call.end(number, None, at=at, missing=TOO_LARGE)
    elif "Err" in members:
        error = str(members["Err"])
        call.fail(number, error, at=at, rejected=_REJECTED.match(error) is not None)


def _end_from_output(
    call: HistoryCall, number: int, at: float | None, output: JSON, fits: bool
) -> None:
    if isinstance(output, dict):
        # Versions from 2025 wrote `{"content", "success"}`.
        if output.get("success") is False:
            call.fail(number, text_in(output.get("content")), at=at)
            return

        output = output.get("content")

    if isinstance(output, list) and output and _HEADER.match(text_in([output[0]])):
        output = output[1:]

    value = content_value(_from_model(output))
    if isinstance(value, str):
        value = _HEADER.sub("", value, count=1)
        if _FAILED.match(value):
            call.fail(number, value, at=at, rejected=_REJECTED.match(value) is not None)
            return
        if _CUT.search(value):
            call.end(number, value, at=at, missing="the host cut it")
            return

        value = _unpacked(value)

    if fits:
        call.end(number, value, at=at)
    else:
        call.end(number, None, at=at, missing=TOO_LARGE)


def _from_model(output: JSON) -> JSON:
    """Convert content to MCP's format. Codex logs pictures in the format of the model's API, as an
    address that contains the data.
    """
    if not isinstance(output, list):
        return output
    return [_mcp_block(block) if isinstance(block, dict) else block for block in output]


def _mcp_block(block: JSONObject) -> JSONObject:
    address = block.get("image_url")
    if isinstance(address, str) and address.startswith("data:") and ";base64," in address:
        kind, _, data = address.removeprefix("data:").partition(";base64,")
        return {"type": "image", "data": data, "mimeType": kind}
    return {**block, "type": "text"} if block.get("type") == "input_text" else block


def _unpacked(text: str) -> JSON:
    """Return the blocks in a result. Codex passes them to the model as JSON text unless all of them
    are text blocks.
    """
    if not text.startswith("[{"):
        return text

    try:
        blocks = decode(text)
    except IdeabridgeError:
        return text

    mcp = isinstance(blocks, list) and all(
        isinstance(block, dict) and block.get("type") in _BLOCKS for block in blocks
    )
    return content_value(blocks) if mcp else text


_BLOCKS: Final = ("text", "image", "audio", "resource", "resource_link")
