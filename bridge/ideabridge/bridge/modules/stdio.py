"""StdioTransport: a module that is a child process, for `mcp.Client` (SDK-NOTES).

The SDK's own transport has no bound on lines, dies of bytes that are not UTF-8, hides the exit code, does not tell
its owner of the end, and takes four seconds over a stubborn child. This one bounds lines, skips and counts
garbage, keeps the last words of stderr, and is gone within two seconds.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from ideabridge.bridge.modules.errors import ModuleConnectError
from ideabridge.bridge.modules.sdk import TransportStreams
from ideabridge.bridge.modules.settings import Launch
from ideabridge.tools.encoding import count_values

# -- lines -----------------------------------------------------------------------------------------------------------
#
# Lines of a child's output, bounded: no child can make us hold more than the limit (DESIGN 7).

_ENDS: Final = 512
"""How much of the beginning and the end of an over-long line is kept, in bytes."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line over the limit, of which only the ends were kept."""

    head: bytes
    tail: bytes
    size: int


class Lines:
    """Cuts a stream of bytes into lines. A line over `limit` bytes comes as a `LongLine`, without being held."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes of the line that has not ended yet."""
        return self._size

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """The lines that `chunk` completes, without their line ends."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._add(chunk[start:end])
            yield self._take()
            start = end + 1
        if start < len(chunk):
            self._add(chunk[start:])

    def rest(self) -> bytes | LongLine | None:
        """What stood after the last line end, at the end of the stream."""
        return self._take() if self._size else None

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._parts.append(piece)
            return
        if self._parts:
            held = b"".join(self._parts)
            self._head, self._tail = held[:_ENDS], held[-_ENDS:]
            self._parts = []
        if len(self._head) < _ENDS:
            self._head = (self._head + piece)[:_ENDS]
        self._tail = (self._tail + piece)[-_ENDS:]

    def _take(self) -> bytes | LongLine:
        long = self._size > self._limit
        line = LongLine(self._head, self._tail, self._size) if long else b"".join(self._parts).removesuffix(b"\r")
        self._parts, self._size, self._head, self._tail = [], 0, b"", b""
        return line


# -- guard -----------------------------------------------------------------------------------------------------------
#
# Guard: no child outlives us, even where we are killed with SIGKILL (SDK-NOTES: orphans).
#
# One small process per process of ours, started with the first stdio module, or by a server. It holds the read end of a
# pipe whose write end only we have: when we are gone, however that happened, the pipe ends, and it ends every process
# group that is still registered: SIGTERM, and SIGKILL after half a second. Registered groups survive nothing; the guard
# itself goes with the pipe. It is in its own session and ignores SIGINT, SIGTERM and SIGHUP, so a signal to our
# group does not take it away first.
#
# It also sees to it that a signal ends us: Python's handler in C writes the number of each signal to the pipe, whatever
# code we are in. Where we are still there three seconds after SIGTERM or SIGINT, it kills us.
#
# Not covered: a child that leaves its process group, a SIGKILL within the microseconds between a child's start and
# its registration, and Windows, where there are no process groups (there children only see their pipes close).

_SCRIPT: Final = Path(__file__).with_name("guard_process.py")


class Guard:
    """The connection to the guard process. Thread-safe; started when first needed, again if somebody killed it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._groups: set[int] = set()
        self._hears = False

    @contextmanager
    def hearing(self) -> Generator[None]:
        """Let the guard see the signals that Python handles here, and end this process where it does not end by itself.

        Only in the main thread, and not on Windows.
        """
        with self._lock:
            self._forget()
            self._hears = True
            if self._process is None or self._process.poll() is not None:
                self._start()
            else:
                self._hear()
        try:
            yield
        finally:
            self._hears = False
            signal.set_wakeup_fd(-1)

    def _hear(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            descriptor = self._process.stdin.fileno()
            os.set_blocking(descriptor, False)
            # Only the main thread may say so; without it, the process ends as far as Python can see to it.
            with suppress(ValueError):
                signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)

    def _forget(self) -> None:
        if self._owner != os.getpid():
            # After a fork the parent's groups are the parent's business.
            self._groups, self._process, self._owner, self._hears = set(), None, os.getpid(), False

    def watch(self, group: int) -> None:
        """End process group `group` when we are gone."""
        if sys.platform == "win32":
            return
        with self._lock:
            self._forget()
            self._groups.add(group)
            if not self._write(b"+%d\n" % group):
                self._start()

    def release(self, group: int) -> None:
        """The group is gone; its number may belong to somebody else from now on."""
        with self._lock:
            if self._owner == os.getpid() and group in self._groups:
                self._groups.discard(group)
                self._write(b"-%d\n" % group)

    def _write(self, line: bytes) -> bool:
        process = self._process
        if process is None or process.stdin is None or process.poll() is not None:
            return False
        try:
            process.stdin.write(line)
        except OSError:
            return False
        return True

    def _start(self) -> None:
        if self._process is None:
            atexit.register(self.close)
        elif self._process.stdin is not None:
            self._process.stdin.close()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        for group in sorted(self._groups):
            self._write(b"+%d\n" % group)
        if self._hears:
            self._hear()

    def close(self) -> None:
        """Let go of the guard: it ends what is still registered, then itself. Done at exit."""
        with self._lock:
            process = self._process
            if process is None or self._owner != os.getpid():
                return
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                # It is still ending children of ours, and goes after that.
                return


guard: Final = Guard()
"""The one guard of this process."""


# -- process ---------------------------------------------------------------------------------------------------------
#
# A child process in its own group: started, watched, ended within two seconds (SDK-NOTES).

INHERITED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA"),
    *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"),
)
"""What a child inherits of our environment: where things are, how to reach the network; no tokens."""

STDIN_GRACE: Final = 0.5
"""Seconds a child has to end by itself after its input is closed."""
TERM_GRACE: Final = 0.5
"""Seconds a group has after SIGTERM."""
KILL_GRACE: Final = 0.5
"""Seconds to see the death of what was killed."""
_POLL: Final = 0.005


def child_environment(configured: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a child: a small inherited one, and what the configuration gives."""
    # A value that starts with "()" is an exported shell function, which is code.
    inherited = {name: os.environ[name] for name in INHERITED if not os.environ.get(name, "()").startswith("()")}
    return inherited | dict(configured or {})


async def start(module: str, launch: Launch) -> anyio.abc.Process:
    """Start a child with pipes in a session and process group of its own, known to the guard.

    Raises:
        ModuleConnectError: it cannot be started; the message says why.
    """
    process: anyio.abc.Process | None = None
    environment = child_environment(launch.env)
    command = shutil.which(launch.command, path=environment.get("PATH")) or launch.command
    try:
        # Cancelled halfway, asyncio would leave the child to a loop that is closed when it ends.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [command, *launch.args], cwd=launch.cwd, env=environment, start_new_session=True
            )
    except (OSError, ValueError) as error:
        raise ModuleConnectError(
            module, f"module {module!r} cannot be started: {_why(launch, error)}", lasting=True
        ) from None
    assert process is not None
    guard.watch(process.pid)
    return process


def _why(launch: Launch, error: OSError | ValueError) -> str:
    if not Path(launch.cwd).is_dir():
        return f"its working directory {launch.cwd!r} does not exist"
    if isinstance(error, FileNotFoundError):
        return f"there is no command {launch.command!r}; is it installed and on PATH?"
    if isinstance(error, PermissionError):
        return f"{launch.command!r} may not be executed"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"{launch.command!r}: {reason or error}"


def how_it_ended(process: anyio.abc.Process) -> str:
    """For a message: 'ended with exit code 3', 'was ended by SIGKILL', 'closed its output'."""
    code = process.returncode
    if code is None:
        return "closed its output"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


async def exited(process: anyio.abc.Process) -> None:
    """Wait until the child itself has ended, whoever still holds its pipes.

    `process.wait()` also waits for the pipes on some Pythons, so a grandchild that inherited them would hide
    the death of the server.
    """
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            # Gone and reaped already, or too many files: the return code tells.
            descriptor = -1
        if descriptor >= 0:
            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)
            await wait_exit(process, KILL_GRACE)
            return
    await wait_exit(process, math.inf, poll=0.2)


async def wait_exit(process: anyio.abc.Process, seconds: float, *, poll: float = _POLL) -> bool:
    """Whether the child ended within `seconds`."""
    deadline = anyio.current_time() + seconds
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(poll)
    return True


def _signal_group(process: anyio.abc.Process, number: int) -> bool:
    """Send a signal to the child's group (Windows: end the child). False: nobody is there any more."""
    if sys.platform == "win32":
        if process.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            process.kill()
        return True
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def _group_gone(process: anyio.abc.Process, seconds: float) -> bool:
    deadline = anyio.current_time() + seconds
    # The group lives as long as any member, also after the child itself.
    while process.returncode is None or _signal_group(process, 0):
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(_POLL)
    return True


async def end(process: anyio.abc.Process) -> None:
    """End a child whose input is closed, with everything in its group: wait, SIGTERM, SIGKILL. At most 1.5 s.

    Call it shielded: it must finish, or the child would be left over.
    """
    await wait_exit(process, STDIN_GRACE)
    gone = not _signal_group(process, signal.SIGTERM) and process.returncode is not None
    if not gone and not await _group_gone(process, TERM_GRACE):
        if sys.platform != "win32":
            _signal_group(process, signal.SIGKILL)
        gone = await _group_gone(process, KILL_GRACE)
    if process.returncode is not None:
        guard.release(process.pid)
    # A descendant that left the group may hold the pipes; asyncio would keep its transport until then.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    close = getattr(transport, "close", None)
    if callable(close):
        with suppress(PermissionError, ProcessLookupError):
            close()


# -- stdio -----------------------------------------------------------------------------------------------------------

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
        process = await start(self._module, self._launch)
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
            await end(process)
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
            await wait_exit(process, _DRAIN_SECONDS)
            self._end(how_it_ended(process))

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
                await wait_exit(process, _DRAIN_SECONDS)
                reason = how_it_ended(process) if process.returncode is not None else "closed its input"
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
        await exited(process)
        # What it wrote before it ended is still read, unless a grandchild keeps the pipe open.
        with anyio.move_on_after(_DRAIN_SECONDS):
            await self._read.wait()
        if not self._closing:
            self._end(how_it_ended(process))


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
