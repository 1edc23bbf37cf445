"""Quotas: how much each caller holds of this server at one time, and how often it asks.

One caller that holds everything leaves nothing for the others. So what a request takes (a place among the requests in
progress, a stream, a session) is counted by caller, and over its bound the caller gets an error that says so.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import mcp_types as types
import orjson

from ideabridge.tools.encoding import MAX_BYTES, MAX_DEPTH, count_values, nests_deeper
from ideabridge.tools.errors import LimitExceededError

# -- quotas ----------------------------------------------------------------------------------------------------------

_MOST_RATES: Final = 10_000
"""How many (caller, kind) pairs `spend` remembers; the one that is longest unused makes room."""


class QuotaError(LimitExceededError):
    """A caller holds as much as one caller may.

    Attributes:
        retry_after: seconds after which it makes sense to ask again.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Quotas:
    """What every caller holds now, and what it used lately.

    Args:
        clock: seconds; any clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str], int] = {}
        # (what is left, when that was counted); the least recently used pair is first.
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def held(self, caller: str, kind: str) -> int:
        """How many of a kind a caller holds now."""
        return self._held.get((caller, kind), 0)

    @contextmanager
    def holding(self, caller: str, kind: str, most: int, amount: int = 1) -> Generator[None]:
        """A scope in which a caller holds more of a kind.

        Args:
            caller: who; see `caller_of`.
            kind: what, in plural, as the message says it: "requests in progress".
            most: how many of them one caller may hold.
            amount: how many more they are.

        Raises:
            QuotaError: that would be too many.
        """
        key = caller, kind
        count = self._held.get(key, 0)
        if count + amount > most:
            more = "" if amount == 1 else f" and ask for {amount:,} more"
            raise QuotaError(f"you have {count:,} {kind}{more}; one caller may have {most:,} at a time")
        self._held[key] = count + amount
        try:
            yield
        finally:
            self._held[key] -= amount
            if not self._held[key]:
                del self._held[key]

    def spend(self, caller: str, kind: str, most: int, seconds: float) -> None:
        """Count one use of a kind: at most `most` at once, and `most` in any `seconds` on average.

        Args:
            caller: who.
            kind: what, in plural, as the message says it: "calls".
            most: how many in `seconds`.
            seconds: of what time.

        Raises:
            QuotaError: it used that many; `retry_after` says when one more is there.
        """
        now, key = self._clock(), (caller, kind)
        left, then = self._left.pop(key, (float(most), now))
        left = min(float(most), left + (now - then) * most / seconds)
        if left < 1:
            self._left[key] = left, now
            wait = (1 - left) * seconds / most
            raise QuotaError(
                f"too many {kind}: one caller may make {most:,} in {seconds:g} s; try again in {wait:.1f} s",
                retry_after=wait,
            )
        self._left[key] = left - 1, now
        if len(self._left) > _MOST_RATES:
            self._left.popitem(last=False)


# -- bounds ----------------------------------------------------------------------------------------------------------
#
# The limits of a message from a client, and the error for a larger one.
#
# The SDK answers such messages with silence (stdio) or a bare status (HTTP); here they get an error that says what is
# wrong, where the request's id can be told.

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
