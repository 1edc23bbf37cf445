"""Send and receive messages over stdio, one per line.

The length of a line is limited. The transport ends as soon as the host closes the stream.

This transport replaces the SDK's own, which reads in a thread that cannot be stopped, accepts lines
of any length, and does not respond to invalid lines.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
import orjson
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

from ideabridge.bridge.modules.stdio import Lines, LongLine
from ideabridge.server.transports.messages import RefusedMessage, read_wire_messages
from ideabridge.server.transports.quotas import MAX_MESSAGE, problem, refused, size_problem

_CHUNK: Final = 64 * 1024
_UNBLOCKED: Final = getattr(select, "PIPE_BUF", 512)
"""Number of bytes that can be written to a ready pipe without blocking (POSIX)."""


@contextmanager
def claimed_stdio() -> Generator[tuple[int, int]]:
    """Yield file descriptors for stdin and stdout that only the protocol uses.

    While the context is open, any other output of the process goes to stderr, and any other read
    from stdin returns nothing.
    """
    sys.stdout.flush()
    reading = os.dup(0)
    writing = os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    try:
        yield reading, writing
    finally:
        sys.stdout.flush()
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.close(reading)
        os.close(writing)


class StdioReader(ObjectReceiveStream[SessionMessage | Exception]):
    """Receives messages from stdin.

    Args:
        descriptor: the file descriptor to read from.
        writer: writes the responses to rejected messages.
        ended: called when the host has closed the stream, before `receive` reports it.
    """

    def __init__(self, descriptor: int, writer: StdioWriter, ended: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._writer = writer
        self._ended = ended
        self._lines = Lines(MAX_MESSAGE)
        self._waiting: deque[bytes | LongLine] = deque()
        self._messages: deque[SessionMessage] = deque()
        self._closed = False

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            anyio.EndOfStream: the host has closed the stream.
        """
        while True:
            while self._waiting and not self._messages:
                await self._enqueue(self._waiting.popleft())
            if self._messages:
                return self._messages.popleft()
            if self._closed:
                self._ended()
                raise anyio.EndOfStream
            await self._read()

    async def _read(self) -> None:
        try:
            await anyio.wait_readable(self._descriptor)
        except PermissionError:
            # This is a regular file, which is always ready, and for which the event loop cannot
            # wait. So read it without waiting.
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

    async def _enqueue(self, line: bytes | LongLine) -> None:
        """Add the messages on a line to the queue, and respond to rejected messages."""
        if isinstance(line, LongLine):
            await self._refuse(line.head, line.tail, size_problem(line.size))
            return

        reason = problem(line)
        if reason is not None:
            await self._refuse(line, line, reason)
            return

        for message in read_wire_messages(line):
            if isinstance(message, RefusedMessage):
                await self._writer.write(orjson.dumps(message.answer) + b"\n")
            else:
                self._messages.append(SessionMessage(message))

    async def _refuse(self, head: bytes, tail: bytes, reason: str) -> None:
        """Respond to a message that is over the limits. Only its first and last bytes are known."""
        answer = refused(head, tail, reason)
        if answer is None:
            answer = RefusedMessage(None, types.INVALID_REQUEST, reason).answer
        await self._writer.write(orjson.dumps(answer) + b"\n")

    async def aclose(self) -> None:
        """Stop reading."""
        self._closed = True


class StdioWriter(ObjectSendStream[SessionMessage]):
    """Sends messages to stdout, one at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = anyio.Lock(fast_acquire=True)
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Write one message.

        Raises:
            anyio.ClosedResourceError: the stream is closed.
            anyio.BrokenResourceError: the host has closed its end.
        """
        await self.write(_encoded(item.message))

    async def write(self, data: bytes) -> None:
        """Write one line. Raises the same errors as `send`."""
        if self._closed:
            raise anyio.ClosedResourceError
        async with self._lock:
            try:
                if len(data) <= _UNBLOCKED and select.select((), (self._descriptor,), (), 0)[1]:
                    os.write(self._descriptor, data)
                else:
                    await anyio.to_thread.run_sync(
                        _write_all, self._descriptor, data, abandon_on_cancel=True
                    )
            except OSError:
                self._closed = True
                raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Stop writing."""
        self._closed = True


def _encoded(message: types.JSONRPCMessage) -> bytes:
    if isinstance(message, types.JSONRPCResponse):
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        # orjson rejects integers of more than 64 bits, so a message that has one is encoded below.
        with suppress(orjson.JSONEncodeError):
            return orjson.dumps(response, option=orjson.OPT_APPEND_NEWLINE)
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
