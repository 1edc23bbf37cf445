"""Enforce limits per caller, so that no caller can use up the server, and limits per message.

Everything that a request uses (a place among the requests in progress, a stream, a session) is
counted towards its caller. A caller over a limit gets an error that states the limit.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import mcp_types as types
import orjson

from ideabridge.tools.encoding import MAX_BYTES, MAX_DEPTH, count_values, nests_deeper
from ideabridge.tools.errors import LimitExceededError

# -- quotas ----------------------------------------------------------------------------------------

_MOST_RATES: Final = 10_000
"""Maximum number of (caller, kind) pairs that `spend` tracks. If there are more, the least recently
used pair is dropped.
"""


class QuotaError(LimitExceededError):
    """Raised when a caller has reached a limit.

    Attributes:
        retry_after: the number of seconds after which another attempt can succeed.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Quotas:
    """Counts what each caller currently holds and has recently used.

    Times come from a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._amounts: dict[tuple[str, str], int] = {}
        # For each pair of a caller and a kind, how many uses are left, and when they were counted.
        # The least recently used pair is first.
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    @contextmanager
    def holding(self, caller: str, kind: str, most: int, amount: int = 1) -> Generator[None]:
        """While the context is open, count `amount` more of a kind for a caller, up to `most` in
        total.

        `kind` is the plural noun for the message, such as "requests in progress".

        Raises:
            QuotaError: the caller would hold more than `most`.
        """
        key = caller, kind
        count = self._amounts.get(key, 0)
        if count + amount > most:
            more = "" if amount == 1 else f" and ask for {amount:,} more"
            raise QuotaError(
                f"you have {count:,} {kind}{more}; the limit for one caller is {most:,}"
            )

        self._amounts[key] = count + amount
        try:
            yield
        finally:
            self._amounts[key] -= amount
            if not self._amounts[key]:
                del self._amounts[key]

    def spend(self, caller: str, kind: str, most: int, seconds: float) -> None:
        """Count one use of a kind. A caller can make `most` uses in quick succession, but on
        average only `most` uses per `seconds`. `kind` is the plural noun for the message, such as
        "calls".

        Raises:
            QuotaError: no use is left; `retry_after` is the time until the next use.
        """
        now = self._clock()
        key = (caller, kind)
        left, then = self._left.pop(key, (float(most), now))
        left = min(float(most), left + (now - then) * most / seconds)
        if left < 1:
            self._left[key] = left, now
            wait = (1 - left) * seconds / most
            raise QuotaError(
                f"too many {kind}: the limit for one caller is {most:,} in {seconds:g} s; try "
                f"again in {wait:.1f} s",
                retry_after=wait,
            )

        self._left[key] = left - 1, now
        if len(self._left) > _MOST_RATES:
            self._left.popitem(last=False)


# -- limits of a message ---------------------------------------------------------------------------
#
# On stdio, the SDK does not answer a message that is over the limits; over HTTP, it answers with a
# bare status. Here, such a message gets an error that states what is wrong, if its id can be found.

MAX_MESSAGE: Final = 2 * MAX_BYTES
"""Maximum size of one message, in bytes."""

MAX_MESSAGE_DEPTH: Final = MAX_DEPTH + 20
"""Maximum depth of nesting in one message: the depth of the arguments plus that of the envelope."""

MAX_MESSAGE_VALUES: Final = 250_000
"""Maximum number of JSON values in one message. Parsing, checking and copying that many takes less
than a second, during which the server handles no other request. 8 MB of empty lists would be ten
times as many values.
"""

ENDS: Final = 4096
"""How many bytes are kept from each end of a message that is too large."""

_SIMPLE: Final = rb'"(?:jsonrpc|method)"\s*:\s*"([^"\\]{0,80})"'
# Also require the character after the id, because an integer that is cut off would be a different
# id.
_ID: Final = rb'"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{0,200}")(?=\s*[,}])'
# An `id` belongs to the message itself only if every member next to it is a member of the envelope.
_HEAD: Final = re.compile(rb"\s*\{\s*(?:" + _SIMPLE + rb"\s*,\s*)*" + _ID)
_TAIL: Final = re.compile(_ID + rb"\s*(?:,\s*" + _SIMPLE + rb"\s*)*\}\s*\Z")
_METHOD: Final = re.compile(
    rb'\s*\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:-?[0-9]{1,18}|"[^"\\]{0,200}")\s*,)*\s*"method"\s*:\s*"tools/call"'
)


def problem(message: bytes) -> str | None:
    """Return why a message of permitted size is rejected, or None if it is accepted.

    The message has not been parsed yet; only its bytes are examined.
    """
    if count_values(message, MAX_MESSAGE_VALUES) > MAX_MESSAGE_VALUES:
        return (
            f"the message contains more than {MAX_MESSAGE_VALUES:,} JSON values (numbers, strings, "
            "lists, ...)"
        )
    if nests_deeper(message, MAX_MESSAGE_DEPTH):
        return (
            f"the message is nested deeper than {MAX_MESSAGE_DEPTH} levels "
            f"(arguments: at most {MAX_DEPTH})"
        )
    return None


def refused(head: bytes, tail: bytes, reason: str) -> dict[str, Any] | None:
    """Return the response to a rejected message as a JSON-RPC object, or None if the beginning and
    end of the message contain no id.
    """
    request_id = id_at_start(head)
    if request_id is None:
        match = _TAIL.search(tail[-ENDS:])
        request_id = None if match is None else _read_id(match[1])

    if request_id is None:
        return None
    if _METHOD.match(head[:ENDS]) is not None:
        # Answer with a tool error, because the host's model sees a tool error but not a protocol
        # error.
        result = {
            "content": [{"type": "text", "text": reason}],
            "isError": True,
            "resultType": "complete",
        }
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": types.INVALID_REQUEST, "message": reason},
    }


def id_at_start(message: bytes) -> int | str | None:
    """Return the id at the beginning of a message that cannot be parsed, or None if there is none.
    Only there is it certain to be the id of the message itself.
    """
    match = _HEAD.match(message[:ENDS])
    return None if match is None else _read_id(match[2])


def _read_id(text: bytes) -> int | str | None:
    """Parse an id. Return None if the text is not JSON, such as `007` or a string with bytes that
    are not UTF-8.
    """
    try:
        return cast("int | str", orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def size_problem(size: int) -> str:
    """Return why a message of `size` bytes is rejected."""
    return f"the message has {size:,} bytes; the limit is {MAX_MESSAGE:,}"
