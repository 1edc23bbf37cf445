"""Make a server's messages fit the SDK's models, and record the deviations from the protocol.

`Repairs` works between a transport and the SDK. It compares each message with the models of its
method (`members`). Where the meaning matters, a rule is applied first (`_RULES`): a result that
might be an error counts as an error, a block of a type that the protocol does not know is shown as
text, and an unknown version becomes one that both sides know. A rule never invents a value that a
plan could read, never renames a member, and never adds a hint to a tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from secrets import token_hex
from typing import Any, Final, cast

import mcp_types as types
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    methods,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import BaseModel

from ideabridge.bridge.modules.members import (
    NONE,
    QUESTIONS,
    MessageRepair,
    Object,
    Rule,
    Shape,
    Unusable,
    asks,
    got,
    json_of,
    label_of,
    members_of,
    object_of,
    shape_of_type,
)
from ideabridge.bridge.modules.messages import PLAIN_NESTING, DeepResponse, OddResultError, Replaced
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.tools.encoding import MAX_DEPTH, kind_of

MAX_UNANSWERED: Final = 10_000
"""The maximum number of unanswered requests whose methods are remembered."""

STRUCTURED: Final = f"ideabridge/structuredContent-{token_hex(8)}"
"""The `_meta` key under which structured content other than an object passes through the models of
versions before 2026-07-28, which allow only objects. No server can guess the key.
"""

_EMPTY: Final = frozenset(
    {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
"""Methods whose result is always empty."""

_LISTS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}

_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_LATER: Final = frozenset({"ttlMs", "cacheScope", "resultType", *QUESTIONS})
"""Members of results that exist only in version 2026-07-28. For earlier versions, the SDK ignores
them.
"""

_CALL_MEMBERS: Final = frozenset({"content", "structuredContent", "isError", "_meta", "resultType"})
_MOST_COMPLETIONS: Final = 100


# -- rules -----------------------------------------------------------------------------------------


def _text(text: str) -> Object:
    return {"type": "text", "text": text}


def _call_result(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    """Return the readable parts of a call's result. If the result might be a failure, it counts as
    one.
    """
    members = object_of(value)
    if members is None:
        return value

    fixed = dict(members)
    content = members.get("content")
    if content is None:
        strange = {
            name: part
            for name, part in members.items()
            if name not in _CALL_MEMBERS and part is not None
        }
        fixed["content"] = []
        if strange and members.get("structuredContent") is None:
            # The value could mean anything, even that the tool failed, so treat it as a failure.
            fixed["content"] = [_text(json_of(strange))]
            fixed["isError"] = True

        is_absent = "content" not in members
        repair.note("content", "is missing" if is_absent else "expected a list, got null")
    elif isinstance(content, dict):
        fixed["content"] = [content]
        repair.note("content", "expected a list, got an object; taken as its only block")
    elif not isinstance(content, list):
        fixed["content"] = [_text(content if isinstance(content, str) else json_of(content))]
        repair.note("content", f"expected a list, got {kind_of(content)}; shown as text")
    elif any(isinstance(block, list) for block in cast("list[Any]", content)):
        fixed["content"] = list(_without_lists(cast("list[Any]", content)))
        repair.note("content", "has lists of blocks; their blocks are taken one by one")

    failed = fixed.get("isError")
    if failed is not None and not _BOOLEAN.accepts(failed):
        fixed["isError"] = True
        repair.note("isError", f"expected true or false, got {got(failed)}; taken as true", failed)
    elif failed is None and "isError" in fixed:
        del fixed["isError"]
        repair.note("isError", "expected true or false, got nothing; left out")

    structured = members.get("structuredContent")
    if (
        structured is not None
        and not isinstance(structured, dict)
        and repair.version in HANDSHAKE_PROTOCOL_VERSIONS
    ):
        meta = members.get("_meta")
        fixed["_meta"] = {
            **(cast("Object", meta) if isinstance(meta, dict) else {}),
            STRUCTURED: structured,
        }
        del fixed["structuredContent"]
        repair.note(
            "structuredContent", f"expected an object, got {kind_of(structured)}; shown as it is"
        )

    return fixed


def _without_lists(content: list[Any]) -> Iterator[Any]:
    """Yield the blocks of a content member, including those in nested lists."""
    for block in content:
        if isinstance(block, list):
            yield from _without_lists(cast("list[Any]", block))
        else:
            yield block


def _content(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    """Return a block of a content member. A value that is not a block of the protocol becomes a
    text block.
    """
    if value is None or isinstance(value, list):
        return cast("Any", value)
    if not isinstance(value, dict):
        repair.note(place, f"expected an object, got {kind_of(value)}; shown as text")
        return _text(value if isinstance(value, str) else json_of(value))

    block = dict(cast("Object", value))
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in _BLOCKS:
        guessed = _type_of(block)
        if guessed is None:
            repair.note(
                f"{place}.type", "is not a type that the protocol defines; its JSON is shown", kind
            )
            return _text(json_of(block))

        repair.note(f"{place}.type", f"is missing; taken as {guessed!r}", kind)
        block["type"] = kind = guessed
    elif _BLOCKS[kind].__name__ not in {arm.name for arm in shape.arms}:
        repair.note(
            f"{place}.type", "is not a type that the protocol allows here; its JSON is shown", kind
        )
        return _text(json_of(block))

    return _with_members(repair, block, kind, place)


def _with_members(repair: MessageRepair, block: Object, kind: str, place: str) -> Any:
    """Return a block of type `kind`, adding missing required members if they can be derived."""
    text = block.get("text")
    if kind == "text" and not isinstance(text, str) and text is not None:
        repair.note(f"{place}.text", f"expected a string, got {got(text)}; its JSON is shown", text)
        block["text"] = json_of(text)

    mime_type = block.get("mimeType")
    if kind in ("image", "audio") and not isinstance(mime_type, str):
        other = block.get("mime_type") or _mime_type(block.get("data"))
        if isinstance(other, str) and other:
            problem = (
                f"expected a string, got {got(mime_type)}; "
                "the type is taken from 'mime_type' or from the data"
            )
            repair.note(f"{place}.mimeType", problem, other)
            block["mimeType"] = other

    has_name = isinstance(block.get("name"), str)
    if kind == "resource_link" and not has_name and isinstance(block.get("uri"), str):
        repair.note(f"{place}.name", "expected a string; its address is shown")
        block["name"] = block["uri"]

    if kind == "resource" and isinstance(block.get("resource"), dict):
        block["resource"] = _resource_contents(
            repair, block["resource"], shape_of_type(types.EmbeddedResource), f"{place}.resource"
        )

    fixed = repair.fix(block, shape_of_type(_BLOCKS[kind]), place)
    if isinstance(fixed, Unusable):
        repair.note(place, f"{fixed.why}; its JSON is shown")
        return _text(json_of(block))

    return fixed


def _type_of(block: Object) -> str | None:
    """Return the type of a block that does not state its type, if its members leave no doubt,
    otherwise None.
    """
    if block.get("type") is not None:
        return None
    if isinstance(block.get("text"), str):
        return "text"
    if isinstance(block.get("resource"), dict):
        return "resource"

    kind = str(block.get("mimeType")).partition("/")[0]
    if isinstance(block.get("data"), str) and kind in ("image", "audio"):
        return kind
    return "resource_link" if isinstance(block.get("uri"), str) else None


_BLOCKS: Final[Mapping[str, type[BaseModel]]] = {
    "text": types.TextContent,
    "image": types.ImageContent,
    "audio": types.AudioContent,
    "resource_link": types.ResourceLink,
    "resource": types.EmbeddedResource,
    "tool_use": types.ToolUseContent,
    "tool_result": types.ToolResultContent,
}
_MAGIC: Final = (
    (re.compile(r"iVBORw0KGgo"), "image/png"),
    (re.compile(r"/9j/"), "image/jpeg"),
    (re.compile(r"R0lGOD"), "image/gif"),
    (re.compile(r"UklGR.{10}RUJQ"), "image/webp"),
    (re.compile(r"UklGR.{10}XQVZ"), "audio/wav"),
)
"""Maps the first characters of a file's base64 to the file's media type."""


def _mime_type(data: object) -> str | None:
    if not isinstance(data, str):
        return None
    return next((kind for start, kind in _MAGIC if start.match(data)), None)


def _resource_contents(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    members = object_of(value)
    if members is None:
        return value

    fixed = dict(members)
    text = fixed.get("text")
    blob = fixed.get("blob")
    if not isinstance(fixed.get("uri"), str) and isinstance(repair.params.get("uri"), str):
        fixed["uri"] = repair.params["uri"]
        repair.note(
            f"{place}.uri",
            f"expected a string, got {got(members.get('uri'))}; the requested one is used",
        )

    if text is not None and not isinstance(text, str) and not isinstance(blob, str):
        fixed["text"] = json_of(text)
        repair.note(f"{place}.text", f"expected a string, got {got(text)}; its JSON is shown")

    return fixed


def _read_result(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    return _payload(repair, value, "contents", lambda text: {"text": text})


def _prompt_result(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    result = _payload(repair, value, "messages", lambda text: text)
    if not isinstance(result, dict):
        return result

    fixed = cast("Object", result)
    messages: list[Any] = []
    for index, item in enumerate(cast("list[Any]", fixed["messages"])):
        where = f"messages[{index}]"
        message = object_of(item)
        if isinstance(item, str):
            repair.note(where, "expected an object, got a string; taken as a message of the user")
            messages.append({"role": "user", "content": _text(item)})
        elif message is not None and isinstance(message.get("content"), list):
            # A message has a single block as its content, so a list becomes several messages.
            repair.note(
                f"{where}.content", "expected an object, got a list; each block is a message"
            )
            messages += [{**message, "content": block} for block in message["content"]]
        else:
            messages.append(item)

    return {**fixed, "messages": messages}


def _payload(repair: MessageRepair, value: Any, name: str, of_text: Callable[[str], Any]) -> Any:
    """Return a result whose member `name` is a list. A missing list is added, and an item sent
    without a list is put into one.
    """
    members = object_of(value)
    if members is None:
        return value

    fixed = dict(members)
    items = fixed.get(name)
    if items is None:
        strange = fixed.keys() - {name, "_meta", "description", "ttlMs", "cacheScope", "resultType"}
        if strange:
            return Unusable(f"`{name}` is missing")
        fixed[name] = []
        repair.note(name, "is missing; taken as []")
    elif isinstance(items, str | dict):
        fixed[name] = [of_text(items) if isinstance(items, str) else items]
        repair.note(
            name, f"expected a list, got {kind_of(cast('object', items))}; taken as its only item"
        )
    elif not isinstance(items, list):
        return Unusable(f"{name}: expected a list, got {got(items)}")

    return fixed


def _initialize_result(repair: MessageRepair, result: Object) -> Object:
    sent_version = result.get("protocolVersion")
    if isinstance(sent_version, str) and sent_version in HANDSHAKE_PROTOCOL_VERSIONS:
        return result
    known_version = _known_version(sent_version)
    repair.note(
        "protocolVersion",
        f"expected a known version, got {got(sent_version)}; taken as {known_version}",
        sent_version,
    )
    return {**result, "protocolVersion": known_version}


def _known_version(sent_version: object) -> str:
    """Return the latest known version with a handshake that is no later than the server's version.

    If the server states no version, return the one that the protocol assumes.
    """
    if not isinstance(sent_version, str) or not re.match(r"\d{4}-\d\d-\d\d", sent_version):
        return types.DEFAULT_NEGOTIATED_VERSION
    older = [version for version in HANDSHAKE_PROTOCOL_VERSIONS if version <= sent_version]
    return max(older, default="2024-11-05")


def _capabilities(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    members = object_of(value)
    if members is None:
        return value

    fixed = dict(members)
    for name, offered in members.items():
        if offered is True:
            fixed[name] = {}
            repair.note(f"{place}.{name}", "expected an object, got true; taken as {}")

    return fixed


def _discover_result(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    members = object_of(value)
    if members is None:
        return value

    fixed = dict(members)
    versions = fixed.get("supportedVersions")
    if isinstance(versions, str):
        fixed["supportedVersions"] = [versions]
        repair.note("supportedVersions", "expected a list, got a string; taken as its only item")
    elif not isinstance(versions, list) and isinstance(fixed.get("capabilities"), dict):
        # Also require `capabilities`, because a server that answers every request with {} does not
        # really know this one.
        fixed["supportedVersions"] = [LATEST_MODERN_VERSION]
        repair.note(
            "supportedVersions",
            f"expected a list, got {got(versions)}; taken as the version it was asked in",
        )

    return fixed


def _page(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    members = object_of(value)
    if members is None:
        return value

    cursor = members.get("nextCursor")
    if isinstance(cursor, int) and not isinstance(cursor, bool):
        repair.note("nextCursor", "expected a string, got a number; sent back as a string")
        return {**members, "nextCursor": str(cursor)}

    return members


def _resource(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    members = object_of(value)
    if members is None:
        return value

    address = members.get("uri", members.get("uriTemplate"))
    if isinstance(members.get("name"), str) or not isinstance(address, str):
        return members
    repair.note(
        f"{place}.name", f"expected a string, got {got(members.get('name'))}; its address is shown"
    )
    return {**members, "name": address}


def _tool(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    """Return a tool with schemas that the SDK accepts. The schemas that the server sent are read
    later.
    """
    members = object_of(value)
    if members is None:
        return value

    tool = dict(members)
    for member in members_of(cast("type[BaseModel]", shape.model)):
        if member.name != "inputSchema" and (
            member.name != "outputSchema" or member.name not in tool
        ):
            continue

        schema: object = tool.get(member.name)
        if member.name == "inputSchema":
            typed = _with_type(schema)
            if typed is not schema:
                repair.note(f"{place}.inputSchema.type", "is missing; taken as 'object'")
            schema = typed

        if member.shape.accepts(schema):
            tool[member.name] = schema
            continue

        parts = object_of(schema)
        if parts is not None and "type" not in parts:
            repair.note(f"{place}.{member.name}.type", "is missing; read as any type")
        elif parts is not None and parts["type"] != "object":
            repair.note(
                f"{place}.{member.name}.type",
                f"expected 'object', got {got(parts['type'])}",
                parts["type"],
            )

        tool[member.name] = carried_schema(schema)

    return tool


def _with_type(schema: object) -> object:
    """Return the schema of the parameters, with `type` added if it is missing. It is always
    "object", but some servers leave it out.
    """
    members = object_of(schema)
    if members is None or "type" in members:
        return schema
    return {"type": "object", **members}


def _completion(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    members = object_of(value)
    if isinstance(value, list):
        members = {"values": cast("list[Any]", value)}
        repair.note(place, "expected an object, got a list; taken as its values")

    values = None if members is None else members.get("values")
    if members is None or not isinstance(values, list):
        return cast("Any", value)

    texts = cast("list[Any]", values)
    if len(texts) > _MOST_COMPLETIONS:
        repair.note(
            f"{place}.values", f"has more than {_MOST_COMPLETIONS} items; only the first are used"
        )
        return {**members, "values": texts[:_MOST_COMPLETIONS]}

    return members


def _log_message(repair: MessageRepair, value: Any, shape: Shape, place: str) -> Any:
    members = object_of(value)
    if members is None:
        return value

    level = str(members.get("level")).lower()
    if members.get("level") not in _LEVELS.values() and level in (*_LEVELS, *_LEVELS.values()):
        repair.note(
            f"{place}.level",
            f"is not a level that the protocol defines; taken as {_LEVELS.get(level, level)!r}",
        )

    return {**members, "level": _LEVELS.get(level, level)}


_LEVELS: Final = {"warn": "warning", "err": "error", "trace": "debug", "fatal": "critical"}
"""Maps nonstandard names of log levels to the log levels of the protocol."""


_RULES: Final[Mapping[str, Rule]] = {
    "CallToolResult": _call_result,
    "Content": _content,
    "ResourceContents": _resource_contents,
    "ReadResourceResult": _read_result,
    "GetPromptResult": _prompt_result,
    "ServerCapabilities": _capabilities,
    "DiscoverResult": _discover_result,
    "ListToolsResult": _page,
    "ListPromptsResult": _page,
    "ListResourcesResult": _page,
    "ListResourceTemplatesResult": _page,
    "Resource": _resource,
    "ResourceTemplate": _resource,
    "Tool": _tool,
    "Completion": _completion,
    "LoggingMessageNotificationParams": _log_message,
}

_BOOLEAN: Final = shape_of_type(bool)


# -- messages --------------------------------------------------------------------------------------


class Repairs:
    """Repairs the messages of one connection before the SDK sees them.

    Args:
        oddities: receives a note on each member that is repaired or left out, and on each skipped
            message.
    """

    def __init__(self, oddities: Oddities) -> None:
        self._oddities = oddities
        # The method and the URI of each unanswered request, keyed by the request's id.
        self._sent: dict[str | int, tuple[str, Object]] = {}

    def sent(self, request: JSONRPCRequest) -> None:
        """Record a request, because its method determines the shape of the answer."""
        uri = (request.params or {}).get("uri")
        self._sent[request.id] = (request.method, {"uri": uri})
        if len(self._sent) > MAX_UNANSWERED:
            self._sent.pop(next(iter(self._sent)), None)

    def repaired(self, message: JSONRPCMessage, version: str) -> JSONRPCMessage | None:
        """Return the message in a form that the SDK accepts, or None if it must be skipped. A
        message that needs no repair is returned as is.
        """
        match message:
            case JSONRPCResponse() | JSONRPCError():
                return self._answer(message, version)
            case JSONRPCNotification():
                return self._notification(message, version)
            case JSONRPCRequest():
                params = repair_request(message.method, version, message.params, self._oddities)
                if isinstance(params, Unusable):
                    # Leave the message unchanged, because the SDK will answer it with an error.
                    self._oddities.note(f"{message.method}: {params.why}; refused")
                else:
                    message.params = params
                return message

    def _notification(
        self, message: JSONRPCNotification, version: str
    ) -> JSONRPCNotification | None:
        if message.method == "notifications/progress" and _is_plain_progress(message.params):
            return message

        params = repair_notification(message.method, version, message.params, self._oddities)
        if isinstance(params, Unusable):
            self._oddities.note(f"{message.method}: {params.why}; skipped")
            return None

        message.params = params
        return message

    def _answer(self, message: JSONRPCResponse | JSONRPCError, version: str) -> JSONRPCMessage:
        if message.id is None or message.id not in self._sent:
            # Return such an answer unchanged, because the SDK ignores it.
            if message.id is not None and len(self._sent) < MAX_UNANSWERED:
                self._oddities.note(
                    "answered requests that were never sent or are no longer waiting; these "
                    "answers were skipped"
                )
            return message

        method, params = self._sent.pop(message.id)
        if isinstance(message, OddResultError):
            result = repair_odd_result(method, message.value)
            if result is None:
                return message
            message = JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result)

        if isinstance(message, JSONRPCError):
            return message

        result = message.result
        if isinstance(message, DeepResponse):
            result = _without_deep_schemas(result) if method == "tools/list" else result
            if _nests_deeper(result, PLAIN_NESTING):
                return self._unreadable(
                    message.id, method, f"it is nested deeper than {PLAIN_NESTING} levels"
                )

        fixed = repair_result(method, version, result, self._oddities, params)
        if isinstance(fixed, Unusable):
            return self._unreadable(message.id, method, fixed.why)
        if fixed is message.result:
            return message
        return JSONRPCResponse(jsonrpc="2.0", id=message.id, result=fixed)

    def is_heavy(self, message: JSONRPCMessage) -> bool:
        """Return whether `repaired` might take too long to run on the event loop."""
        return (
            isinstance(message, JSONRPCResponse)
            and not _is_plain(message.result)
            and _has_many_parts(message.result)
        )

    def _unreadable(self, request: str | int, method: str, why: str) -> JSONRPCError:
        self._oddities.note(f"{method}: {why}; the answer is an error")
        error = ErrorData(
            code=PARSE_ERROR,
            message=f"its answer to {method} cannot be read: {why}",
            data=Replaced.UNREADABLE,
        )
        return JSONRPCError(jsonrpc="2.0", id=request, error=error)


def repair_result(
    method: str, version: str, result: Object, oddities: Oddities, params: Object | None = None
) -> Object | Unusable:
    """Return a request's result in a form that the SDK accepts. A result that needs no repair is
    returned as is.

    Args:
        method: the method of the request.
        version: the protocol version that the request was sent in.
        result: the result.
        oddities: receives a note for each member that is repaired.
        params: the parameters of the request.
    """
    if method == "server/discover":
        version = LATEST_MODERN_VERSION

    is_modern = version in MODERN_PROTOCOL_VERSIONS
    if (
        method == "tools/call"
        and _is_plain(result)
        and (result.get("resultType") == "complete" or not is_modern)
    ):
        return result

    repair = MessageRepair(version, params or {}, _RULES, names_items=method in _LISTS)
    fixed: Any = result
    if not is_modern and not _LATER.isdisjoint(fixed):
        fixed = {name: part for name, part in fixed.items() if name not in _LATER}

    if (
        is_modern
        and method in methods.INPUT_REQUIRED_METHODS
        and "resultType" not in fixed
        and asks(fixed)
    ):
        fixed = {**fixed, "resultType": "input_required"}
        repair.note("resultType", 'is missing; taken as "input_required"')

    if method == "tools/call":
        fixed = _with_failure(repair, fixed)
    elif method == "initialize":
        # Check the version here, because the models accept any string.
        fixed = _initialize_result(repair, fixed)
    elif method == "tools/list":
        fixed = _with_strict_hints(repair, fixed)

    for shape in _shapes_of_result(method, version):
        fixed = repair.fix(fixed, shape, "")
        if isinstance(fixed, Unusable):
            break

    _note(oddities, method, repair)
    return fixed


def restore_structured(result: types.CallToolResult) -> None:
    """Move structured content that is not an object back from `STRUCTURED` to its own member."""
    if result.meta is not None and STRUCTURED in result.meta:
        result.structured_content = result.meta.pop(STRUCTURED)


def repair_odd_result(method: str, value: object) -> Object | None:
    """Return a result to use in place of a value that is not an object, or None if the value might
    be a failure.
    """
    if method in _EMPTY:
        return {}
    name = _LISTS.get(method)
    if name is None or not (value is None or isinstance(value, list)):
        return None
    return {name: cast("list[Any]", value or [])}


def repair_notification(
    method: str, version: str, params: Object | None, oddities: Oddities
) -> Object | Unusable | None:
    """Return the parameters of a server's notification in a form that the SDK accepts."""
    surface = methods.SERVER_NOTIFICATIONS.get((method, version))
    if surface is None:
        return Unusable(f"is not known in version {version}")
    return _repair_params(
        [surface, methods.MONOLITH_NOTIFICATIONS[method]], method, version, params, oddities
    )


def repair_request(
    method: str, version: str, params: Object | None, oddities: Oddities
) -> Object | Unusable | None:
    """Return the parameters of a server's request in a form that the SDK accepts."""
    surface = methods.SERVER_REQUESTS.get((method, version))
    if surface is None:
        return Unusable(f"is not known in version {version}")
    return _repair_params(
        [surface, methods.MONOLITH_REQUESTS[method]], method, version, params, oddities
    )


def _repair_params(
    models: list[Any], method: str, version: str, params: Object | None, oddities: Oddities
) -> Object | Unusable | None:
    repair = MessageRepair(version, {}, _RULES)
    fixed: Any = {"jsonrpc": "2.0", "id": 0, "method": method}
    if params is not None:
        fixed["params"] = params

    for model in models:
        fixed = repair.fix(fixed, shape_of_type(model), "")
        if isinstance(fixed, Unusable):
            break

    _note(oddities, method, repair)
    return fixed if isinstance(fixed, Unusable) else fixed.get("params")


def _note(oddities: Oddities, method: str, repair: MessageRepair) -> None:
    for text, example in repair.notes:
        oddities.note(f"{method}: {text}", example)


def _is_plain(result: Object) -> bool:
    """Return whether a call's result is well formed and contains only text blocks, as most results
    do.
    """
    content = result.get("content")
    if not isinstance(content, list) or not _PLAIN.issuperset(result):
        return False
    if type(result.get("isError", False)) is not bool:
        return False

    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        return False

    meta = result.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        return False

    for block in cast("list[Any]", content):
        if not isinstance(block, dict) or block.keys() != _TEXT_BLOCK or block["type"] != "text":
            return False
        if not isinstance(block["text"], str):
            return False

    return True


def _has_many_parts(result: Object) -> bool:
    """Return whether a result has too many parts for the event loop to check them one by one."""
    parts = 0
    waiting: list[Any] = [result]
    while waiting and parts <= _MANY_PARTS:
        part = waiting.pop()
        if isinstance(part, dict):
            members = cast("Object", part)
            parts += len(members)
            waiting += members.values()
        elif isinstance(part, list):
            items = cast("list[Any]", part)
            parts += len(items)
            waiting += items

    return parts > _MANY_PARTS


_MANY_PARTS: Final = 5000
# Servers of 2026-07-28 put their own name into the `_meta` of every result.
_PLAIN: Final = frozenset({"content", "structuredContent", "isError", "resultType", "_meta"})
_TEXT_BLOCK: Final = frozenset({"type", "text"})


@cache
def _shapes_of_result(method: str, version: str) -> tuple[Shape, ...]:
    """Return the shapes with which the SDK compares a result, in the SDK's order."""
    rows = (methods.SERVER_RESULTS.get((method, version)), methods.MONOLITH_RESULTS.get(method))
    return tuple(shape_of_type(row) for row in rows if row is not None)


def _with_failure(repair: MessageRepair, result: Object) -> Object:
    """Add `isError` to a result if the server spells it `is_error`, or if the result has a type
    that the protocol does not know.
    """
    result_type = result.get("resultType")
    if (
        isinstance(result_type, str)
        and result_type not in ("complete", "input_required")
        and result.get("isError") is not True
    ):
        repair.note(
            "resultType", "is not a type that the protocol defines; taken as an error", result_type
        )
        return {**result, "isError": True}

    if result.get("isError") is True or not result.get("is_error"):
        return result
    repair.note("is_error", "the protocol calls it isError; taken as true")
    return {**result, "isError": True}


def _with_strict_hints(repair: MessageRepair, page: Object) -> Object:
    """Remove hints that are neither true nor false from a page, because the SDK reads some strings
    as true.
    """
    tools = page.get("tools")
    if not isinstance(tools, list):
        return page
    strict = [_strict(repair, tool, index) for index, tool in enumerate(cast("list[Any]", tools))]
    changed = any(
        new is not tool for new, tool in zip(strict, cast("list[Any]", tools), strict=True)
    )
    return {**page, "tools": strict} if changed else page


def _strict(repair: MessageRepair, value: Any, index: int) -> Any:
    tool = object_of(value)
    hints = None if tool is None else object_of(tool.get("annotations"))
    if tool is None or hints is None:
        return value

    odd = [name for name in _HINTS if name in hints and type(hints[name]) not in (bool, NONE)]
    if not odd:
        return tool

    for name in odd:
        where = f"tools[{label_of(tool, index)}].annotations.{name}"
        repair.note(where, f"expected true or false, got {got(hints[name])}; left out", hints[name])

    schema = carried_schema(_with_type(tool.get("inputSchema")))
    as_sent = json_of({name: hints[name] for name in odd})
    strict = {name: hint for name, hint in hints.items() if name not in odd}
    return {**tool, "inputSchema": {**schema, _HINTS_AS_SENT: as_sent}, "annotations": strict}


def _is_plain_progress(params: Object | None) -> bool:
    if params is None or not _PROGRESS.issuperset(params):
        return False
    amounts = (params.get("progress"), params.get("total", 0))
    return isinstance(params.get("progressToken"), str | int) and all(
        type(amount) in (int, float) for amount in amounts
    )


_PROGRESS: Final = frozenset({"progressToken", "progress", "total"})


# -- schemas of tools ------------------------------------------------------------------------------

_AS_SENT: Final = f"as-sent-{token_hex(8)}"
"""The schema keyword under which any other value passes through the SDK's models. No server can
guess the keyword.
"""

_HINTS_AS_SENT: Final = f"hints-{_AS_SENT}"


def carried_schema(schema: object) -> Object:
    """Wrap the value that a server sent as a schema into a schema that the SDK accepts."""
    return {"type": "object", _AS_SENT: json_of(schema)}


def schema_as_sent(schema: Object | None) -> Any:
    """Return the value that a server sent as a schema: any JSON value, or None if there was
    none.
    """
    if schema is None or _AS_SENT not in schema:
        return schema
    return json.loads(schema[_AS_SENT])


def hints_as_sent(schema: Object) -> Object | None:
    """Return the hints of a tool that are neither true nor false, taken from its input schema.
    Return None if there are none.

    A hint that the SDK can read as a boolean is returned as that boolean, because digests of tools
    have always contained it. For any other hint, a fingerprint of its value is returned.
    """
    if _HINTS_AS_SENT not in schema:
        return None
    return {name: _read_by_sdk(hint) for name, hint in json.loads(schema[_HINTS_AS_SENT]).items()}


def _read_by_sdk(hint: object) -> bool | str:
    if _BOOLEAN.accepts(hint):
        return _BOOLEAN.adapter.validate_python(hint)
    return f"sha256:{sha256(json_of(hint).encode('utf-8', 'replace')).hexdigest()}"


def _without_deep_schemas(page: Object) -> Object:
    tools = page.get("tools")
    if not isinstance(tools, list):
        return page
    return {**page, "tools": [_without_deep_schema(tool) for tool in cast("list[Any]", tools)]}


def _without_deep_schema(value: Any) -> Any:
    tool = object_of(value)
    if tool is None:
        return value
    deep = {
        name: carried_schema(tool[name])
        for name in ("inputSchema", "outputSchema")
        if _nests_deeper(tool.get(name), MAX_DEPTH)
    }
    return {**tool, **deep}


def _nests_deeper(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit + 1):
        parts = level
        level = []
        for part in parts:
            if isinstance(part, dict):
                level += cast("Object", part).values()
            elif isinstance(part, list):
                level += cast("list[Any]", part)

        if not level:
            return False

    return True
