"""Tap: what the SDK does not tell about a connection, read off its streams (SDK-NOTES).

It notices the end of any transport, which the SDK tells only to calls in flight, and takes malformed tools out of a
page of `tools/list`, of which the SDK would refuse the whole.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import anyio
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from ideabridge.bridge.modules.backchannel import Backchannel
from ideabridge.bridge.modules.listing import repair_page

_UNSETTLED = "2025-11-25"


class Tap:
    """A transport around another one.

    Args:
        transport: the other one.
        backchannel: told of each request that goes out, and of each that was answered.

    Attributes:
        ended: set once the other side has ended the connection.
        version: the protocol version, to be set once it is negotiated.
        notes: tools that were taken out of the pages read so far.
    """

    def __init__(self, transport: AbstractAsyncContextManager[TransportStreams], backchannel: Backchannel) -> None:
        self._transport = transport
        self._backchannel = backchannel
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
        if not isinstance(message, JSONRPCRequest):
            return
        self._backchannel.sent(message)
        if message.method == "tools/list":
            self._listings.add(message.id)

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
        result, notes = repair_page(message.result, self.version)
        self.notes += notes
        if result is message.result:
            return item
        return SessionMessage(message.model_copy(update={"result": result}), item.metadata)


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
            return self._tap.incoming(await self._stream.receive())
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
