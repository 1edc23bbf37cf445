"""The first messages of a connection, and repairs that let slightly non-conforming servers complete
them.

The SDK's client sends `server/discover` first, and `initialize` if the server refuses that. A
`Handshake` sees these messages before the SDK does. If a server does not answer `server/discover`,
the `Handshake` itself answers the request with a refusal. If the server names another protocol
version, the `Handshake` offers that version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from ideabridge.tools.typed import read_as

DISCOVER_SECONDS: Final = 5.0
"""The maximum time, in seconds, that a server has to answer `server/discover`. A third of the
connect timeout applies instead if it is shorter. Time that the request spends waiting for a token,
for example while a person signs in, does not count.
"""

_VERSION: Final = re.compile(r"\b20\d\d-\d\d-\d\d\b")


class Handshake:
    """The handshake of one connection.

    Args:
        seconds: the maximum number of seconds that connecting may take.
        waited_until: returns until when requests waited for a token, by the event loop's clock: the
            current time if a request is still waiting, `-inf` if none has ever waited.

    Attributes:
        begun: True once the first message was sent.
        is_silent: True if the server has never answered `server/discover`, not even after the
            deadline.
        may_be_silent: True while it is unknown whether the server answers `server/discover`.
    """

    def __init__(self, seconds: float, waited_until: Callable[[], float]) -> None:
        self._discover_seconds = min(DISCOVER_SECONDS, seconds / 3)
        self._waited_until = waited_until
        # The time at which `server/discover` was sent.
        self._asked_at = math.inf
        self._discover: RequestId | None = None
        self._waiting: anyio.CancelScope | None = None
        self._initialize: SessionMessage | None = None
        self.begun = False
        self.is_silent = False
        self.may_be_silent = True

    def waiting(self) -> anyio.CancelScope:
        """Return the cancel scope in which to wait for a message. It is cancelled at the deadline
        if the server has not answered `server/discover` by then.
        """
        self._waiting = anyio.CancelScope(deadline=self._deadline())
        return self._waiting

    def _deadline(self) -> float:
        return max(self._asked_at, self._waited_until()) + self._discover_seconds

    def outgoing(self, item: SessionMessage) -> None:
        """Record an outgoing message."""
        message = item.message
        if not isinstance(message, JSONRPCRequest):
            return
        if message.method == "server/discover":
            self.begun = True
            self._discover = message.id
            self._asked_at = anyio.current_time()
            if self._waiting is not None:
                self._waiting.deadline = self._deadline()
        elif message.method == "initialize":
            self.begun = True
            self.may_be_silent = False
            self._initialize = item

    def refusal(self) -> SessionMessage | None:
        """Return a refusal of `server/discover`, in place of an answer from a server that missed
        the deadline. Return None if the server has more time, because the request waited for a
        token.
        """
        assert self._discover is not None
        if anyio.current_time() < self._deadline():
            return None
        self.is_silent = True
        self.may_be_silent = False
        error = ErrorData(code=METHOD_NOT_FOUND, message="no answer to server/discover")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=self._discover, error=error))

    def is_late(self, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Record an answer. Return True if nothing is waiting for it any longer, because its
        request was already answered with a `refusal`.
        """
        if message.id is None or message.id != self._discover:
            return False

        late = self.is_silent
        # The server was only slow to start, so ask it again next time.
        self.is_silent = False
        self._discover = None
        self.may_be_silent = False
        return late

    def again(self, message: JSONRPCError) -> SessionMessage | None:
        """Return a second `initialize` if the answer to the first one names another known version,
        otherwise None.
        """
        first = self._initialize
        if (
            first is None
            or not isinstance(first.message, JSONRPCRequest)
            or message.id != first.message.id
        ):
            return None

        self._initialize = None
        named = [
            version
            for version in _named_versions(message.error)
            if version in HANDSHAKE_PROTOCOL_VERSIONS
        ]
        other_versions = [version for version in named if version != LATEST_HANDSHAKE_VERSION]
        if not other_versions:
            return None

        params = {**(first.message.params or {}), "protocolVersion": max(other_versions)}
        return SessionMessage(first.message.model_copy(update={"params": params}), first.metadata)


def _named_versions(error: ErrorData) -> list[str]:
    """Return the protocol versions that an error names, either in the `supported` member of its
    data or in its message.
    """
    supported = read_as(_Versions, error.data).supported
    return _VERSION.findall(error.message) if supported is None else list(supported)


@dataclass(frozen=True, slots=True)
class _Versions:
    """The data of an error about a protocol version."""

    supported: tuple[str, ...] | None = None
