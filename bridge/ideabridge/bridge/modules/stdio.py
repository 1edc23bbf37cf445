"""StdioTransport: a module that is a child process, for `mcp.Client` (SDK-NOTES).

The SDK's own transport has no bound on lines, dies of bytes that are not UTF-8, hides the exit code, does not tell
its owner of the end, and takes four seconds over a stubborn child. This one bounds lines, skips and counts
garbage, keeps the last words of stderr, and is gone within two seconds.
"""

from __future__ import annotations

import re
from collections import deque
from types import TracebackType
from typing import Final

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from ideabridge.bridge.modules import process as processes
from ideabridge.bridge.modules.expansion import Launch
from ideabridge.bridge.modules.lines import Lines, LongLine
from ideabridge.bridge.modules.sdk import TransportStreams
from ideabridge.tools.encoding import count_values

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Default bound on one message of a child."""
BYTES_FOR_VALUE: Final = 16
"""A message may hold one JSON value for so many of the bytes it may have: what is made of a value takes far more."""
STDERR_LINES: Final = 20
GARBAGE_LINES: Final = 5
OVERSIZED: Final = "ideabridge: message over the limit"
"""`data` of the error that stands for an answer over the limit."""
UNREADABLE: Final = "ideabridge: answer that cannot be read"
"""`data` of the error that stands for an answer that is no message."""

_SHOWN: Final = 300
_LAST_BYTES: Final = 8192
_DISCARD_FACTOR: Final = 8
"""A line without end is read and thrown away up to so many times the limit."""
_DRAIN_SECONDS: Final = 0.3
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')


def most_values(max_bytes: int) -> int:
    """How many JSON values a message of a module may hold."""
    return max_bytes // BYTES_FOR_VALUE


class StdioTransport:
    """A child process as an MCP `Transport`: enter it for the streams, exit it to end the child.

    Attributes:
        ended: set once no message can come any more; `reason` then says what happened.
        reason: "ended with exit code 3", ...; None while it runs.
        protocol_fault: whether it was ended by us because of what it sent.
        garbage: how many lines were no message; `garbage_lines` holds the last few, shortened.
    """

    def __init__(self, module: str, launch: Launch, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._module = module
        self._launch = launch
        self._limit = max_line_bytes
        self._values = most_values(max_line_bytes)
        self._process: anyio.abc.Process | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._incoming: MemoryObjectSendStream[SessionMessage | Exception] | None = None
        self._streams: list[anyio.abc.AsyncResource] = []
        self._written = anyio.Event()
        self._read = anyio.Event()
        self._closing = False
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self.ended = anyio.Event()
        self.reason: str | None = None
        self.protocol_fault = False
        self.garbage = 0
        self.garbage_lines: deque[str] = deque(maxlen=GARBAGE_LINES)

    @property
    def pid(self) -> int | None:
        """The child's process id, which is also its group's."""
        return self._process.pid if self._process is not None else None

    @property
    def last_words(self) -> list[str]:
        """The last lines of stderr, unmasked."""
        return list(self._stderr)

    async def __aenter__(self) -> TransportStreams:
        process = await processes.start(self._module, self._launch)
        self._process = process
        incoming, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](64)
        # Room for what is accepted but not written: a child that does not read must not hold a caller past its
        # time-out. Callers are bounded by `parallel`.
        from_session, outgoing = anyio.create_memory_object_stream[SessionMessage](4096)
        self._incoming = incoming
        self._streams = [incoming, to_session, from_session, outgoing]
        group = anyio.create_task_group()
        self._group = await group.__aenter__()
        group.start_soon(self._read_output, process, incoming)
        group.start_soon(self._write_input, process, outgoing)
        group.start_soon(self._read_errors, process)
        group.start_soon(self._watch_exit, process)
        return to_session, from_session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, group = self._process, self._group
        if process is None or group is None:
            return
        self._closing = True
        # Whatever cancels us, the child must not be left over; every wait in here is bounded.
        with anyio.CancelScope(shield=True):
            for stream in self._streams[1:3]:
                await stream.aclose()
            with anyio.move_on_after(0.2):
                await self._written.wait()
            await _close(process.stdin)
            await processes.end(process)
            with anyio.move_on_after(0.1):
                await self._read.wait()
            self._end("was closed")
            group.cancel_scope.cancel()
            for stream in self._streams:
                await stream.aclose()
        await group.__aexit__(None, None, None)

    def _end(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self.ended.set()
        if self._incoming is not None:
            self._incoming.close()

    async def _read_output(
        self, process: anyio.abc.Process, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        lines = Lines(self._limit)
        assert process.stdout is not None
        fault: str | None = None
        try:
            while True:
                try:
                    chunk = await process.stdout.receive()
                except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                    break
                if self._closing or fault is not None:
                    continue  # only drained, so that a child that is writing can end
                for line in lines.feed(chunk):
                    fault = await self._take(line, incoming)
                    if fault is not None:
                        break
                if lines.pending > self._limit * _DISCARD_FACTOR:
                    fault = self._fault(f"sent a line of more than {self._limit * _DISCARD_FACTOR:,} bytes")
                if fault is not None:
                    self._end(fault)
        finally:
            self._read.set()
        if not self._closing and self.reason is None:
            # The end of output mostly is the end of the process: a moment later we know its exit code.
            await processes.wait_exit(process, _DRAIN_SECONDS)
            self._end(processes.how_it_ended(process))

    async def _take(
        self, line: bytes | LongLine, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> str | None:
        """Hand one line to the session. What is wrong, where the connection cannot go on."""
        message: SessionMessage | None
        if isinstance(line, LongLine):
            what = f"its answer has {line.size:,} bytes; at most {self._limit:,} are taken"
            message = _answer_instead(line.head, line.tail, what, OVERSIZED)
            if message is None:
                return self._fault(f"sent a line of {line.size:,} bytes; at most {self._limit:,} are taken")
        elif not line.strip():
            return None
        elif count_values(line, self._values) > self._values:
            what = f"its answer holds more than {self._values:,} JSON values"
            message = _answer_instead(line[:512], line[-512:], what, OVERSIZED)
            if message is None:
                return self._fault(f"sent a message of more than {self._values:,} JSON values")
        else:
            message = _parse(line)
            if message is None:
                self.garbage += 1
                self.garbage_lines.append(line[:_SHOWN].decode("utf-8", "replace"))
                message = _answer_instead(line[:512], line[-512:], "its answer is not a JSON-RPC message", UNREADABLE)
        if message is not None:
            try:
                try:
                    incoming.send_nowait(message)
                except anyio.WouldBlock:
                    await incoming.send(message)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return "was closed"
        return None

    def _fault(self, what: str) -> str:
        self.protocol_fault = True
        return what

    async def _write_input(
        self, process: anyio.abc.Process, outgoing: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None
        try:
            async for item in outgoing:
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(data.encode("utf-8") + b"\n")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            if not self._closing:
                await processes.wait_exit(process, _DRAIN_SECONDS)
                reason = processes.how_it_ended(process) if process.returncode is not None else "closed its input"
                self._end(reason)
        finally:
            self._written.set()

    async def _read_errors(self, process: anyio.abc.Process) -> None:
        lines = Lines(64 * 1024)
        assert process.stderr is not None
        while True:
            try:
                chunk = await process.stderr.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                chunk = b""
            # Only the last lines are kept: of a flood the rest need not be looked at.
            for line in lines.feed(chunk[-_LAST_BYTES:] or b"\n"):
                text = line.head if isinstance(line, LongLine) else line
                if text.strip():
                    self._stderr.append(text.strip().decode("utf-8", "replace")[:_SHOWN])
            if not chunk:
                return

    async def _watch_exit(self, process: anyio.abc.Process) -> None:
        await processes.exited(process)
        # What it wrote before it ended is still read, unless a grandchild keeps the pipe open.
        with anyio.move_on_after(_DRAIN_SECONDS):
            await self._read.wait()
        if not self._closing:
            self._end(processes.how_it_ended(process))


async def _close(stream: anyio.abc.AsyncResource | None) -> None:
    if stream is None:
        return
    with anyio.move_on_after(0.1):
        try:
            await stream.aclose()
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # gone already, which is what we want


def _parse(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        pass
    text = line.decode("utf-8", "replace")
    if "\ufffd" not in text:
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        return None


def _answer_instead(head: bytes, tail: bytes, what: str, data: str) -> SessionMessage | None:
    """An error for the request that an unusable answer was meant for, if its id can be seen."""
    # A request or notification has "method" at the top; in an answer it may stand inside.
    if not head.lstrip().startswith(b"{") or b'"method"' in head.partition(b'"result"')[0]:
        return None
    if b'"result"' not in head + tail and b'"error"' not in head + tail:
        return None
    first, last = _ID.search(head), _ID.findall(tail)
    number = int(first.group(1)) if first is not None else int(last[-1]) if last else None
    if number is None:
        return None
    error = ErrorData(code=PARSE_ERROR, message=what, data=data)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))
