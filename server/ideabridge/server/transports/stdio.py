"""The stdio transport: one message per line, of bounded length; it ends as soon as the host closes the stream.

The SDK's own transport reads in a thread that cannot be stopped, accepts lines of any length, and does not answer an
invalid line.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
import orjson
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ideabridge.bridge.modules.stdio import Lines, LongLine
from ideabridge.server.transports.quotas import MAX_MESSAGE, problem, refused, size_problem

_CHUNK: Final = 64 * 1024
# A write of so much to a pipe that is ready never blocks (POSIX).
_UNBLOCKED: Final = getattr(select, "PIPE_BUF", 512)


@contextmanager
def claimed_stdio() -> Generator[tuple[int, int]]:
    """File descriptors of stdin and stdout for the protocol alone.

    Meanwhile whatever else prints goes to stderr, and whatever else reads finds nothing.
    """
    sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield reading, writing
    finally:
        sys.stdout.flush()
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.close(reading)
        os.close(writing)


class StdioReader:
    """Messages from stdin: a `ReadStream` of the SDK.

    Args:
        descriptor: what to read.
        writer: where refused messages are answered.
        ended: called when the host has closed the stream, before anybody else learns of it.
    """

    def __init__(self, descriptor: int, writer: StdioWriter, ended: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._writer = writer
        self._ended = ended
        self._lines = Lines(MAX_MESSAGE)
        self._waiting: deque[bytes | LongLine] = deque()
        self._closed = False

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            anyio.EndOfStream: the host has closed the stream.
        """
        while True:
            while self._waiting:
                message = await self._taken(self._waiting.popleft())
                if message is not None:
                    return message
            if self._closed:
                self._ended()
                raise anyio.EndOfStream
            await self._read()

    async def _read(self) -> None:
        try:
            await anyio.wait_readable(self._descriptor)
        except PermissionError:
            # A regular file: always ready, and nothing that can be waited for.
            await anyio.lowlevel.checkpoint()
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except OSError:
            chunk = b""
        if chunk:
            self._waiting.extend(self._lines.feed(chunk))
            return
        self._closed = True
        rest = self._lines.rest()
        if rest is not None:
            self._waiting.append(rest)

    async def _taken(self, line: bytes | LongLine) -> SessionMessage | None:
        if isinstance(line, LongLine):
            await self._refuse(line.head, line.tail, size_problem(line.size))
            return None
        if not line.strip():
            return None
        why = problem(line)
        if why is not None:
            await self._refuse(line, line, why)
            return None
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValidationError:
            pass
        try:
            # Half a surrogate pair, or bytes that are not UTF-8: the rest of the line may still say whose it is.
            text = line.decode("utf-8", "replace")
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValidationError:
            await self._refuse(line, line, "the line is not a JSON-RPC message: expected one JSON object in UTF-8")
            return None

    async def _refuse(self, head: bytes, tail: bytes, why: str) -> None:
        told = refused(head, tail, why)
        if told is None:
            # JSON-RPC: an error that belongs to no request has the id null.
            told = {"jsonrpc": "2.0", "id": None, "error": {"code": types.PARSE_ERROR, "message": why}}
        await self._writer.write(orjson.dumps(told) + b"\n")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Nothing is read any more."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class StdioWriter:
    """Messages to stdout: a `WriteStream` of the SDK. One is written at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = anyio.Lock(fast_acquire=True)
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message.

        Raises:
            anyio.ClosedResourceError: closed.
            anyio.BrokenResourceError: the host has closed its end.
        """
        await self.write(_encoded(item.message))

    async def write(self, data: bytes) -> None:
        """Write a line; raises as `send`."""
        if self._closed:
            raise anyio.ClosedResourceError
        async with self._lock:
            try:
                if len(data) <= _UNBLOCKED and select.select((), (self._descriptor,), (), 0)[1]:
                    os.write(self._descriptor, data)
                else:
                    await anyio.to_thread.run_sync(_write_all, self._descriptor, data, abandon_on_cancel=True)
            except OSError:
                self._closed = True
                raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Nothing is written any more."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _encoded(message: types.JSONRPCMessage) -> bytes:
    if isinstance(message, types.JSONRPCResponse):
        told: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        try:
            return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:
            # Integers past 64 bits.
            pass
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
