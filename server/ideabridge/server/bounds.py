"""Bounds of a message from a client, and how one over them is answered (DESIGN 7).

The SDK answers such messages with silence (stdio) or a bare status (HTTP); here they get an error that says what is
wrong, where the request's id can be told.
"""

from __future__ import annotations

import re
from typing import Any, Final

import mcp_types as types
import orjson

from ideabridge.tools.encoding import MAX_BYTES, MAX_DEPTH, count_values, nests_deeper

MAX_MESSAGE: Final = 2 * MAX_BYTES
"""Bytes of one message."""

MAX_MESSAGE_DEPTH: Final = MAX_DEPTH + 20
"""Nesting of one message: the arguments', and the envelope's."""

MAX_MESSAGE_VALUES: Final = 250_000
"""JSON values in one message. Reading, checking and copying as many takes less than a second, in which nobody else is
answered; 8 MB of empty lists hold ten times as many."""

ENDS: Final = 4096
"""Bytes kept of both ends of a message that is too large to be held."""

_SIMPLE: Final = rb'"(?:jsonrpc|method)"\s*:\s*"([^"\\]{0,80})"'
_ID: Final = rb'"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{0,200}")'
# Only where `id` stands beside nothing but the other members of the envelope is it surely the message's own.
_HEAD: Final = re.compile(rb"\s*\{\s*(?:" + _SIMPLE + rb"\s*,\s*)*" + _ID)
_TAIL: Final = re.compile(_ID + rb"\s*(?:,\s*" + _SIMPLE + rb"\s*)*\}\s*\Z")
_METHOD: Final = re.compile(
    rb'\s*\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:-?[0-9]{1,18}|"[^"\\]{0,200}")\s*,)*\s*"method"\s*:\s*"tools/call"'
)


def problem(message: bytes) -> str | None:
    """Why a message that is not too large is not taken, seen in its bytes before it is parsed; None: it is taken."""
    if count_values(message, MAX_MESSAGE_VALUES) > MAX_MESSAGE_VALUES:
        return f"the message holds more than {MAX_MESSAGE_VALUES:,} JSON values (numbers, texts, lists, ...)"
    if nests_deeper(message, MAX_MESSAGE_DEPTH):
        return f"the message nests deeper than {MAX_MESSAGE_DEPTH} levels (arguments: at most {MAX_DEPTH})"
    return None


def refused(head: bytes, tail: bytes, why: str) -> dict[str, Any] | None:
    """What is answered to a message that was not taken, as a JSON-RPC object; None: nobody waits for an answer.

    Args:
        head: the beginning of the message.
        tail: its end.
        why: what is wrong with it, and what was expected.
    """
    found = _HEAD.match(head[:ENDS]) or _TAIL.search(tail[-ENDS:])
    if found is None:
        return None
    request_id: Any = orjson.loads(found[2] if found.re is _HEAD else found[1])
    if _METHOD.match(head[:ENDS]) is not None:
        # A tool error is what the host's model gets to see.
        result = {"content": [{"type": "text", "text": why}], "isError": True, "resultType": "complete"}
        return {"jsonrpc": "2.0", "id": request_id, "result": result}
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": types.INVALID_REQUEST, "message": why}}


def size_problem(size: int) -> str:
    """Why a message of `size` bytes is not taken."""
    return f"the message has {size:,} bytes; at most {MAX_MESSAGE:,} are taken"
