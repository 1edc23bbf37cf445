"""Parse the lines and bodies that a client sends as JSON-RPC messages.

A well-formed message needs one pass of the SDK's parser. A message that this parser rejects, or
mistakes for another kind, is parsed again in this module. Odd but unambiguous forms are accepted: a
byte order mark, NUL bytes at the ends of a line, several messages on a line, `7.0` as an id, `[]`
where an object is meant. Anything else is answered with the error that JSON-RPC requires, so that a
client does not wait for a response that never comes. Notifications and responses are never
answered.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, cast

import mcp_types as types
import orjson
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError

from ideabridge.server.transports.quotas import id_at_start
from ideabridge.tools.encoding import kind_of

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NOISE: Final = b"\0 \t\r\n"
"""Bytes that are skipped at the ends of a line."""

_SPACES: Final = re.compile(r"[\s\0]*")
_DECODER: Final = json.JSONDecoder()
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that is not accepted.

    Attributes:
        id: the id of the request, or None if the request has no usable id.
        code: the JSON-RPC error code.
        why: a sentence that describes the problem.
    """

    id: int | float | str | None
    code: int
    why: str

    @property
    def answer(self) -> dict[str, Any]:
        """The error to send as the response, as a JSON object."""
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": self.why}}


def read_wire_messages(data: bytes) -> list[JSONRPCMessage | RefusedMessage]:
    """Return the messages on a line or in a body, in order. If the list is empty, there is nothing
    to process or to answer.

    `data` must already be within the limits that `problem` checks.
    """
    plain = _read_plain(data)
    if plain is not None:
        return [plain]

    data = data.strip(_NOISE).removeprefix(_BYTE_ORDER_MARK).strip(_NOISE)
    # Replace bytes that are not UTF-8, because they can occur anywhere in a string.
    text = data.decode("utf-8", "replace")
    messages: list[JSONRPCMessage | RefusedMessage] = []
    position = 0
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except ValueError:
            problem = "the message cannot be read: expected one JSON object in UTF-8"
            messages.append(
                RefusedMessage(
                    id_at_start(text[position:].encode("utf-8", "replace")),
                    types.PARSE_ERROR,
                    problem,
                )
            )
            break

        messages += _read_members(value)
        spaces = _SPACES.match(text, position)
        position = position if spaces is None else spaces.end()

    return messages


def read_body(body: bytes) -> bytes | RefusedMessage:
    """Parse the single message in the body of a POST, repairing odd forms.

    `body` must already be within the limits that `problem` checks.
    """
    if _is_plain(body) or _read_plain(body) is not None:
        return body

    messages = read_wire_messages(body)
    if len(messages) != 1:
        code = types.INVALID_REQUEST if body.strip(_NOISE) else types.PARSE_ERROR
        return RefusedMessage(
            None, code, f"expected one JSON-RPC message in the body; found {len(messages):,}"
        )

    message = messages[0]
    if isinstance(message, RefusedMessage):
        return message
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _is_plain(body: bytes) -> bool:
    """Return whether a body is certainly one well-formed request or notification. A quick check is
    enough, because the SDK parses the body again.
    """
    try:
        message: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False

    if not isinstance(message, dict):
        return False

    members = cast("dict[str, object]", message)
    has_id = "id" not in members or _usable_id(members["id"]) is not None
    is_named = members.get("jsonrpc") == "2.0" and isinstance(members.get("method"), str)
    is_whole = not isinstance(members.get("id"), float) and members.keys().isdisjoint(
        ("result", "error")
    )
    return has_id and is_named and is_whole and isinstance(members.get("params", {}), dict)


def _read_plain(data: bytes) -> JSONRPCMessage | None:
    """Return the message if the SDK's parser accepts it and cannot have mistaken it for another
    kind of message, and None otherwise.

    The parser ignores unknown members: it mistakes a request with a null id for a notification, and
    an error that also has a result for a response.
    """
    try:
        message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        return None

    if isinstance(message, JSONRPCNotification):
        return None if b'"id"' in data else message
    if isinstance(message, JSONRPCResponse | JSONRPCError):
        is_mixed = b'"method"' in data or (b'"error"' in data and b'"result"' in data)
        return None if is_mixed else message
    return message


def _read_members(value: object) -> list[JSONRPCMessage | RefusedMessage]:
    """Return the messages in a JSON value: a single message, or the messages of a batch. Each gets
    its own response.
    """
    if not isinstance(value, list):
        return _read(value)

    members = cast("list[object]", value)
    if not members:
        return [
            RefusedMessage(
                None, types.INVALID_REQUEST, "the batch is empty: expected JSON-RPC messages"
            )
        ]

    messages: list[JSONRPCMessage | RefusedMessage] = []
    for member in members:
        messages += _read(member)

    return messages


def _read(value: object) -> list[JSONRPCMessage | RefusedMessage]:
    if not isinstance(value, dict):
        problem = f"expected a JSON-RPC message, which is an object; found {kind_of(value)}"
        return [RefusedMessage(None, types.INVALID_REQUEST, problem)]

    message = cast("dict[str, Any]", _without_surrogates(cast("object", value)))
    has_answer = message.get("result") is not None or message.get("error") is not None
    if message.get("method") is None and has_answer:
        return _read_response(message)
    if "id" not in message and isinstance(message.get("method"), str):
        params = message.get("params")
        # Use what is valid in a notification, because its sender gets no answer that could report
        # an error.
        if isinstance(params, dict):
            members = cast("dict[str, Any]", params)
        else:
            members = None
        return [JSONRPCNotification(jsonrpc="2.0", method=message["method"], params=members)]

    return [_read_request(message)]


def _read_request(message: dict[str, Any]) -> JSONRPCRequest | RefusedMessage:
    request = _usable_id(message.get("id"))
    if request is None and _is_fraction(message.get("id")):
        answered_id = message["id"]
    else:
        answered_id = request

    method: object = message.get("method")
    params: object = message.get("params")
    if message.get("jsonrpc") != "2.0":
        return RefusedMessage(answered_id, types.INVALID_REQUEST, 'jsonrpc: expected "2.0"')
    if not isinstance(method, str):
        problem = f"method: expected a string, found {kind_of(method)}"
        return RefusedMessage(answered_id, types.INVALID_REQUEST, problem)

    if request is None:
        if _is_fraction(message.get("id")):
            id_kind = "a number with a fraction"
        else:
            id_kind = kind_of(message.get("id"))
        return RefusedMessage(
            answered_id,
            types.INVALID_REQUEST,
            f"id: expected a string or an integer, found {id_kind}",
        )

    if params == []:
        # Accept an empty list as an object, because some languages have only one empty value for
        # both.
        params = {}

    if isinstance(params, list):
        return RefusedMessage(
            request, types.INVALID_PARAMS, "params: expected an object, found a list"
        )

    if params is not None and not isinstance(params, dict):
        return RefusedMessage(
            request, types.INVALID_REQUEST, f"params: expected an object, found {kind_of(params)}"
        )

    members = cast("dict[str, Any] | None", params)
    return JSONRPCRequest(jsonrpc="2.0", id=request, method=method, params=members)


def _read_response(message: dict[str, Any]) -> list[JSONRPCMessage | RefusedMessage]:
    """Parse a response to one of this server's requests. If it is malformed, the request fails,
    because no other response will arrive.
    """
    request = _usable_id(message.get("id"))
    if request is None:
        return []

    error = message.get("error")
    result = message.get("result")
    if error is not None:
        return [JSONRPCError(jsonrpc="2.0", id=request, error=_read_error(error))]

    if result == []:
        result = {}

    if not isinstance(result, dict):
        problem = f"the client answered with {kind_of(result)} in place of an object"
        return [
            JSONRPCError(
                jsonrpc="2.0",
                id=request,
                error=types.ErrorData(code=types.INTERNAL_ERROR, message=problem),
            )
        ]

    return [JSONRPCResponse(jsonrpc="2.0", id=request, result=cast("dict[str, Any]", result))]


def _read_error(error: object) -> types.ErrorData:
    if isinstance(error, dict):
        members = cast("dict[str, Any]", error)
    else:
        members = {"message": error}

    code = members.get("code")
    if not isinstance(code, int) or isinstance(code, bool):
        code = types.INTERNAL_ERROR

    message = members.get("message")
    if not isinstance(message, str):
        message = "the client answered with an error without a message"
    return types.ErrorData(code=code, message=message, data=members.get("data"))


def _usable_id(value: object) -> int | str | None:
    """Return the id of a request, or None if MCP does not allow it. `7.0` is the integer 7, as in
    JSON Schema.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    return None


def _is_fraction(value: object) -> bool:
    """Return whether a value is a number that JSON-RPC allows as an id but MCP does not."""
    return (
        isinstance(value, float)
        and value == value
        and abs(value) != float("inf")
        and not value.is_integer()
    )


def _without_surrogates(value: object) -> object:
    """Return the value with lone surrogates, which UTF-8 text cannot contain, replaced by
    U+FFFD.
    """
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(member) for member in cast("list[object]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {
            _SURROGATE.sub("\ufffd", key): _without_surrogates(member)
            for key, member in members.items()
        }

    return value
