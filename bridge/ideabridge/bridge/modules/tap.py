"""Tap: what the SDK does not tell about a connection, read off its streams (SDK-NOTES).

It notices the end of any transport, which the SDK tells only to calls in flight, takes malformed tools out of a page
of `tools/list`, of which the SDK would refuse the whole, and bounds what a module sends without being asked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final

import anyio
import orjson
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ideabridge.bridge.modules.backchannel import Backchannel
from ideabridge.bridge.modules.listing import repair_page
from ideabridge.bridge.modules.sdk import ReadStream, TransportStreams, WriteStream

MOST_NOTIFICATIONS: Final = 1000
"""Notifications of a module that are passed on at once. What comes faster than `NOTIFICATIONS_RATE` is left out: each
costs as much as a small call, and none is an answer."""

NOTIFICATIONS_RATE: Final = 200.0
"""Notifications of a module that are passed on in a second, in the long run."""

MOST_QUESTIONS: Final = 100
"""Requests of a module that may be unanswered at a time. Each is a task of ours."""

QUESTIONS_RATE: Final = 50.0
"""Requests of a module that are taken in a second, in the long run; it is read from no faster."""

_CHANGED: Final = "notifications/tools/list_changed"
_UNSETTLED: Final = "2025-11-25"


class _Allowance:
    """So many at once, and so many a second in the long run."""

    def __init__(self, most: float, rate: float) -> None:
        self._most = self._left = most
        self._rate = rate
        self._then = 0.0

    def missing(self) -> float:
        """Take one; where there is none, the seconds until there is."""
        now = anyio.current_time()
        self._left = min(self._most, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0


class Tap:
    """A transport around another one.

    Args:
        transport: the other one.
        backchannel: told of each request that goes out, of each that was answered, and of what the module asks.
        on_changed: told that its tools have changed, where the notification itself is left out.

    Attributes:
        ended: set once the other side has ended the connection.
        version: the protocol version, to be set once it is negotiated.
        notes: tools that were taken out of the pages read so far.
        listed: bytes of these pages.
        left_out: how many notifications were too many.
        fault: why it was ended by us; None: it was not.
    """

    def __init__(
        self,
        transport: AbstractAsyncContextManager[TransportStreams],
        backchannel: Backchannel,
        on_changed: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._backchannel = backchannel
        self._on_changed = on_changed
        self._notifications = _Allowance(MOST_NOTIFICATIONS, NOTIFICATIONS_RATE)
        self._questions = _Allowance(2 * MOST_QUESTIONS, QUESTIONS_RATE)
        self._unanswered: set[str] = set()
        self.listed = 0
        self.left_out = 0
        self.fault: str | None = None
        self._listings: set[str | int] = set()
        self.ended = anyio.Event()
        self.version = _UNSETTLED
        self.notes: list[str] = []

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._transport.__aenter__()
        return _Reading(read, self), _Writing(write, self)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        self.ended.set()
        return await self._transport.__aexit__(exc_type, exc_val, exc_tb)

    def outgoing(self, item: SessionMessage) -> None:
        """Remember which requests are out, and which of them ask for a page of tools."""
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._settle(message.id)
        if not isinstance(message, JSONRPCRequest):
            return
        self._backchannel.sent(message)
        if message.method == "tools/list":
            self._listings.add(message.id)

    async def admits(self, item: SessionMessage | Exception) -> bool:
        """Whether a message is taken; waits where the module asks faster than it may.

        Raises:
            anyio.EndOfStream: it asks too much at a time, which ends the connection.
        """
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled" and self._settle((message.params or {}).get("requestId")):
                # The module takes a question back: the SDK does not answer it any more.
                return True
            if not self._notifications.missing():
                return True
            self.left_out += 1
            if message.method == _CHANGED:
                self._on_changed()
            return False
        if isinstance(message, JSONRPCRequest):
            if len(self._unanswered) >= MOST_QUESTIONS:
                found = len(self._unanswered)
                self.fault = f"had {found} requests unanswered at a time; at most {MOST_QUESTIONS} are taken"
                raise anyio.EndOfStream
            request = str(message.id)
            if request in self._unanswered:
                self.fault = f"sent a second request with id {request[:100]!r} before the first was answered"
                raise anyio.EndOfStream
            self._unanswered.add(request)
            self._backchannel.asked(message)
            if seconds := self._questions.missing():
                await anyio.sleep(seconds)
                self._questions.missing()  # takes the one that is there now
        return True

    def _settle(self, request: object) -> bool:
        """A request of the module is answered or taken back; False: there is no such request."""
        # As the SDK does, 7 and "7" are taken for one id.
        known = str(request) in self._unanswered
        self._unanswered.discard(str(request))
        self._backchannel.settled(str(request))
        return known

    def incoming(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Note what was answered, and repair a page of tools."""
        if (
            isinstance(item, SessionMessage)
            and isinstance(item.message, JSONRPCResponse | JSONRPCError)
            and item.message.id is not None
        ):
            self._backchannel.answered(item.message.id)
        if not self._listings or isinstance(item, Exception) or not isinstance(item.message, JSONRPCResponse):
            return item
        message = item.message
        if message.id not in self._listings:
            return item
        self._listings.discard(message.id)
        self.listed += _size(message.result)
        result, notes = repair_page(message.result, self.version)
        self.notes += notes
        if result is message.result:
            return item
        return SessionMessage(message.model_copy(update={"result": result}), item.metadata)


def _size(result: dict[str, Any]) -> int:
    try:
        return len(orjson.dumps(result))
    except orjson.JSONEncodeError:
        return len(repr(result))  # a number past 64 bits, say, which is no fault of a list


class _Reading:
    def __init__(self, stream: ReadStream[SessionMessage | Exception], tap: Tap) -> None:
        self._stream = stream
        self._tap = tap

    @property
    def last_context(self) -> Any:
        """The sender's context variables, where the stream under this one has them."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            while not await self._tap.admits(item := await self._stream.receive()):
                pass
            return self._tap.incoming(item)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._tap.ended.set()
            raise

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Reading:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


class _Writing:
    def __init__(self, stream: WriteStream[SessionMessage], tap: Tap) -> None:
        self._stream = stream
        self._tap = tap

    async def send(self, item: SessionMessage, /) -> None:
        self._tap.outgoing(item)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Writing:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
