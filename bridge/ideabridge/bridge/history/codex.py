"""Codex: reads the logs in `~/.codex/sessions`.

A line is `{"timestamp", "type", "payload"}`. A call to an MCP server is an event
`mcp_tool_call_end` with the invocation and the whole result; newer versions write an event
`item_completed` with an item `McpToolCall` instead. What the model saw is logged as
`response_item`: a `function_call` (named `mcp__SERVER__TOOL`, or TOOL with the namespace
`mcp__SERVER`) and its `function_call_output`, whose text may be cut. The events contain the whole
result and the true names, so they take precedence. The items show the order of the calls, and are
all that older versions log about a call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ideabridge.bridge.history.conversation import (
    Conversation,
    HistoryBounds,
    HistoryCall,
    LoggedTool,
    LogLine,
    Names,
    content_value,
    read_lines,
    shortened_prompt,
    text_in,
)
from ideabridge.tools.encoding import JSON, JSONObject, decode, object_or_empty
from ideabridge.tools.errors import IdeabridgeError

NAME: Final = "codex"
BEGINNING: Final = "rollout-"
"""Prefix of the file names of logs."""

_PREFIX: Final = "mcp__"
_HEADER: Final = re.compile(r"\AWall time: [0-9.]+ seconds\nOutput:(?:\n|\Z)")
_CUT: Final = re.compile(
    r"…\s?\d+ (?:tokens|chars|characters|bytes|lines) truncated\s?…|\[\.\.\. "
    r"omitted \d+ of \d+ lines"
)
_FAILED: Final = re.compile(
    r"\A(?:tool call error: |err: |failed to parse function arguments: |user "
    r"(?:rejected|cancelled) MCP)"
)
_NO_PROMPT: Final = ("<", "# AGENTS.md")
"""Prefixes of texts that Codex itself writes into the person's messages."""


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the logs."""
    own = variables.get("CODEX_HOME")
    base = Path(own).expanduser() if own else home / ".codex"
    return [base / "sessions", base / "archived_sessions"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversation in a log.

    Raises:
        OSError: the log cannot be read.
    """
    return [_Log(path, names).read()]


class _Log:
    def __init__(self, path: Path, names: Names) -> None:
        self._names = names
        self._bounds = HistoryBounds()
        self._conversation = Conversation(NAME, path.stem.removeprefix(BEGINNING), path)
        self._calls: dict[str, HistoryCall] = {}
        self._whole: set[str] = set()
        # For each call to a server that is not configured, that server, keyed by call id.
        self._others: dict[str, str] = {}
        self._began = False
        self._prompt = ""

    def read(self) -> Conversation:
        conversation = self._conversation
        for line in read_lines(conversation):
            kind = line.content.get("type")
            payload = line.content.get("payload")
            if not isinstance(kind, str) or not isinstance(payload, dict):
                conversation.skipped["of an unknown kind"] += 1
            elif kind == "session_meta":
                self._begin(payload)
            elif kind == "event_msg":
                self._take_event(line, conversation.time_of(line.content), payload)
            elif kind == "response_item":
                self._take_item(line, conversation.time_of(line.content), payload)
            elif "call_id" in payload or "item" in payload:
                # Lines of other types contain neither calls nor results, and differ from version to
                # version.
                conversation.skipped["of an unknown kind"] += 1

        conversation.others = Counter(self._others.values())
        return conversation

    def _begin(self, payload: JSONObject) -> None:
        if self._began:
            # A fork begins with a copy of its original's log.
            return

        self._began = True
        own = payload.get("id")
        folder = payload.get("cwd")
        if isinstance(own, str) and own:
            self._conversation.id = own[:200]

        if isinstance(folder, str):
            self._conversation.folder = folder

    # -- events ------------------------------------------------------------------------------------

    def _take_event(self, line: LogLine, time: float | None, payload: JSONObject) -> None:
        kind = payload.get("type")
        item = payload.get("item")
        if kind == "user_message":
            self._ask(text_in(payload.get("message")))
        elif kind == "mcp_tool_call_end":
            invocation = payload.get("invocation")
            if isinstance(invocation, dict):
                call_id = payload.get("call_id")
                self._take_end(line, time, call_id, invocation, payload.get("result"))
            else:
                self._conversation.skipped["without id or arguments"] += 1
        elif kind == "item_completed" and isinstance(item, dict):
            if item.get("type") == "UserMessage":
                self._ask(text_in(item.get("content")))
            elif item.get("type") == "McpToolCall":
                self._take_end(line, time, item.get("id"), item, _result_of(item))

    def _ask(self, text: str) -> None:
        if text.strip() and not text.lstrip().startswith(_NO_PROMPT):
            self._prompt = shortened_prompt(text)

    def _take_end(
        self,
        line: LogLine,
        time: float | None,
        call_id: JSON,
        invocation: JSONObject,
        result: JSON,
    ) -> None:
        server = invocation.get("server")
        tool = invocation.get("tool")
        if not isinstance(server, str) or not isinstance(tool, str) or not isinstance(call_id, str):
            self._conversation.skipped["without id or arguments"] += 1
            return

        arguments = object_or_empty(invocation.get("arguments"))
        named = LoggedTool(server, tool, self._names.of(server))
        call = self._call(line, time, call_id, named, arguments)
        if call is None or call_id in self._whole:
            return
        # The event has the original names and result. In the model's item they may be changed or
        # cut.
        self._whole.add(call_id)
        call.tool = tool
        call.arguments = arguments
        ended = call.ended
        call.ended = None
        _end(call, ended or line.number, result, self._bounds.takes_result(line.size))

    def _call(
        self,
        line: LogLine,
        time: float | None,
        call_id: str,
        tool: LoggedTool,
        arguments: JSONObject,
    ) -> HistoryCall | None:
        """Return the call with this id, or None if it is not imported."""
        if call_id in self._calls:
            return self._calls[call_id]
        if tool.module is None:
            self._others[call_id] = tool.server
            return None

        # The name in an item may be cut. In that case, only the event names the server.
        self._others.pop(call_id, None)
        if not self._bounds.takes_call(line.size):
            self._conversation.skipped["beyond the most calls"] += 1
            return None

        call = HistoryCall(
            call_id, tool.module, tool.name, arguments, line.number, time, self._prompt
        )
        self._calls[call_id] = call
        self._conversation.calls.append(call)
        return call

    # -- what the model saw ------------------------------------------------------------------------

    def _take_item(self, line: LogLine, time: float | None, payload: JSONObject) -> None:
        kind = payload.get("type")
        call_id = payload.get("call_id")
        if kind == "message" and payload.get("role") == "user" and not self._prompt:
            self._ask(text_in(payload.get("content")))
        elif kind == "function_call" and isinstance(call_id, str):
            tool = self._named(payload)
            if tool is not None:
                self._call(line, time, call_id, tool, _arguments(payload.get("arguments")))
        elif kind == "function_call_output" and isinstance(call_id, str):
            call = self._calls.get(call_id)
            if call is not None and call_id not in self._whole:
                fits = self._bounds.takes_result(line.size)
                _end_from_output(call, line.number, payload.get("output"), fits)

    def _named(self, payload: JSONObject) -> LoggedTool | None:
        """Return the tool of a function call, or None if it is not a tool of an MCP server."""
        name = payload.get("name")
        namespace = payload.get("namespace")
        if not isinstance(name, str):
            return None

        if isinstance(namespace, str) and namespace:
            if not namespace.startswith(_PREFIX):
                return None
            name = f"{namespace.removesuffix('__')}__{name}"

        if name.startswith(_PREFIX):
            return self._names.split(name.removeprefix(_PREFIX))
        # Versions of 2025 wrote SERVER__TOOL. Tools of Codex itself have no such names.
        return self._names.split(name) if "__" in name else None


def _result_of(item: JSONObject) -> JSON:
    """Return the result of an item in the form of an event: `{"Ok": result}` or `{"Err": text}`."""
    error = item.get("error")
    if isinstance(error, dict):
        return {"Err": error.get("message")}
    return {"Ok": item["result"]} if isinstance(item.get("result"), dict) else None


def _arguments(written: JSON) -> JSONObject:
    """Return the arguments of a function call, which are logged as JSON text, or no arguments if
    that is malformed.
    """
    if not isinstance(written, str):
        return object_or_empty(written)
    try:
        return object_or_empty(decode(written or "{}"))
    except IdeabridgeError:
        return {}


def _end(call: HistoryCall, number: int, result: JSON, fits: bool) -> None:
    members = object_or_empty(result)
    whole = members.get("Ok")
    if isinstance(whole, dict):
        content = whole.get("content")
        structured = whole.get("structuredContent", whole.get("structured_content"))
        if whole.get("isError", whole.get("is_error")) is True:
            call.end(number, None, error=_error_in(content))
        elif not fits:
            call.end(number, None, missing="the conversation is too large")
        else:
            call.end(number, content_value(content, structured))
    elif "Err" in members:
        call.end(number, None, error=str(members["Err"])[:4000])


def _error_in(content: JSON) -> str:
    return text_in(content)[:4000] or "the log says no more"


def _end_from_output(call: HistoryCall, number: int, output: JSON, fits: bool) -> None:
    if isinstance(output, dict):
        # Versions of 2025 wrote `{"content", "success"}`.
        if output.get("success") is False:
            call.end(number, None, error=_error_in(output.get("content")))
            return

        output = output.get("content")

    if isinstance(output, list) and output and _HEADER.match(text_in([output[0]])):
        output = output[1:]

    value = content_value(_from_model(output))
    if isinstance(value, str):
        value = _HEADER.sub("", value, count=1)
        if _FAILED.match(value):
            call.end(number, None, error=value[:4000])
            return
        if _CUT.search(value):
            call.end(number, value, missing="the host cut it")
            return

        value = _unpacked(value)

    if fits:
        call.end(number, value)
    else:
        call.end(number, None, missing="the conversation is too large")


def _from_model(output: JSON) -> JSON:
    """Return content in the form of MCP. Codex logs pictures in the form of the model's API: an
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
    """Return the blocks of a result. Codex passes them to the model as JSON text unless all of them
    are texts.
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
