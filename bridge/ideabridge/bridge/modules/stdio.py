"""Connect `mcp.Client` to a server that runs as a child process.

The SDK's transport reads lines of any length, fails on bytes that are not UTF-8, hides the exit
code, does not report the end of the process, and needs four seconds to end a process that ignores
signals. This transport limits the length of lines, skips and counts lines that are not messages,
stores the last lines of stderr, and ends the process within two seconds.

Three classes do the basic work. `Lines` cuts output into lines of limited size. `Guard` talks to a
small process that terminates the child processes if this process dies. `ChildProcess` starts a
child in its own process group, and ends the group.
"""

from __future__ import annotations

import atexit
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage

from ideabridge.bridge.modules.errors import ModuleConnectError
from ideabridge.bridge.modules.messages import MessageReader, Replaced, answer_instead
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.sdk import TransportStreams
from ideabridge.bridge.modules.server_log import ServerLog
from ideabridge.bridge.modules.settings import Launch
from ideabridge.bridge.secrets import everywhere_masked
from ideabridge.tools.encoding import count_values

_ENDS: Final = 512
"""The number of bytes that are stored from each end of a line over the limit."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line longer than the limit: its first and last bytes, and its size in bytes."""

    head: bytes
    tail: bytes
    size: int


class Lines:
    """Splits a stream of bytes into lines. A line longer than `limit` bytes becomes a `LongLine`,
    which contains only the first and last bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """The size, in bytes, of the incomplete line."""
        return self._size

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """Add bytes, and return the lines that they complete, without line endings."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._add(chunk[start:end])
            yield self._take()
            start = end + 1

        if start < len(chunk):
            self._add(chunk[start:])

    def rest(self) -> bytes | LongLine | None:
        """End the stream. Return the bytes after the last line ending, or None if there are
        none.
        """
        return self._take() if self._size else None

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._parts.append(piece)
            return

        if self._parts:
            start = b"".join(self._parts)
            self._head, self._tail = start[:_ENDS], start[-_ENDS:]
            self._parts = []

        if len(self._head) < _ENDS:
            self._head = (self._head + piece)[:_ENDS]

        self._tail = (self._tail + piece)[-_ENDS:]

    def _take(self) -> bytes | LongLine:
        long = self._size > self._limit
        if long:
            line = LongLine(self._head, self._tail, self._size)
        else:
            line = b"".join(self._parts).removesuffix(b"\r")

        self._parts = []
        self._size = 0
        self._head = b""
        self._tail = b""
        return line


_SCRIPT: Final = Path(__file__).with_name("guard_process.py")


class Guard:
    """Terminates the child processes if this process dies, even by SIGKILL. Thread-safe.

    The guard is a small process. It is started with the first stdio server or when ideabridge
    serves, and restarted if it is killed. Process groups are registered through a pipe whose write
    end belongs only to this process. When the pipe is closed, the guard sends SIGTERM to all
    registered groups and SIGKILL half a second later, and then exits. It runs in its own session
    and ignores SIGINT, SIGTERM and SIGHUP, so a signal to this process group does not end it.

    The guard also ends this process if a signal fails to do so: Python's C handler writes the
    number of each signal to the pipe, whatever code is running. Three seconds after SIGTERM or
    SIGINT, the guard kills this process.

    The guard does not cover three cases: a child that leaves its process group; a SIGKILL in the
    microseconds between the start of a child and its registration; and Windows, which has no
    process groups. There, the child processes only notice that their pipes are closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._groups: set[int] = set()
        self._hears_signals = False

    @contextmanager
    def hearing(self) -> Generator[None]:
        """Report the signals that Python handles to the guard, which then ends this process if it
        does not end by itself.

        This works only in the main thread, and not on Windows.
        """
        with self._lock:
            self._forget_after_fork()
            self._hears_signals = True
            if self._process is None or self._process.poll() is not None:
                self._start()
            else:
                self._send_signals()
        try:
            yield
        finally:
            self._hears_signals = False
            signal.set_wakeup_fd(-1)

    def _send_signals(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            descriptor = self._process.stdin.fileno()
            os.set_blocking(descriptor, False)
            # Python allows only the main thread to set the wakeup descriptor. A guard that is
            # started in another thread gets no signals.
            with suppress(ValueError):
                signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)

    def _forget_after_fork(self) -> None:
        if self._owner != os.getpid():
            # After a fork, the groups belong to the parent process.
            self._groups, self._process, self._owner, self._hears_signals = (
                set(),
                None,
                os.getpid(),
                False,
            )

    def watch(self, group: int) -> None:
        """Register a process group, which the guard ends if this process dies."""
        if sys.platform == "win32":
            return
        with self._lock:
            self._forget_after_fork()
            self._groups.add(group)
            if not self._write(b"+%d\n" % group):
                self._start()

    def release(self, group: int) -> None:
        """Unregister a process group that has ended, because the system can reuse its id."""
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

        if self._hears_signals:
            self._send_signals()

    def close(self) -> None:
        """Close the pipe, so that the guard ends the groups that are still registered, and then
        itself. Called at exit.
        """
        with self._lock:
            process = self._process
            if process is None or self._owner != os.getpid():
                return
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                # Do not wait any longer, because the guard is still ending child processes.
                return


guard: Final = Guard()
"""The guard of this process."""


INHERITED: Final = (
    *(
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
    ),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    *(
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
    ),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *(
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "PROGRAMDATA",
    ),
    *(
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "TMP",
        "USERNAME",
        "USERPROFILE",
        "WINDIR",
    ),
)
"""The environment variables that a child process inherits: locations and proxies, but no tokens."""

STDIN_GRACE: Final = 0.5
"""The time, in seconds, that a child has to end on its own after its input is closed."""
TERM_GRACE: Final = 0.5
"""The time, in seconds, that a group has to end after SIGTERM."""
KILL_GRACE: Final = 0.5
"""The time, in seconds, to wait for the end of killed processes."""
_POLL: Final = 0.005
_DRAIN_SECONDS: Final = 0.3
"""The time, in seconds, to wait for the exit code after the pipes close, and for the remaining
output after the exit.
"""


class ChildProcess:
    """A process in its own session and process group, registered with the guard. `end` ends the
    whole group.
    """

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr

    @classmethod
    async def start(cls, module: str, launch: Launch) -> ChildProcess:
        """Start a server's process.

        Raises:
            ModuleConnectError: the process cannot be started.
        """
        process: anyio.abc.Process | None = None
        environment = child_environment(launch.env)
        command = shutil.which(launch.command, path=environment.get("PATH")) or launch.command
        try:
            # Shield this, because a cancellation could otherwise leave behind a child that nobody
            # ends.
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    [command, *launch.args], cwd=launch.cwd, env=environment, start_new_session=True
                )
        except (OSError, ValueError) as error:
            # The message can name the command. Any secret in it comes from the configuration, so
            # `expand` has registered it and it is masked here.
            reason = everywhere_masked(_why_not_started(launch, error))
            raise ModuleConnectError(
                module, f"server {module!r} cannot be started: {reason}", lasting=True
            ) from None

        assert process is not None
        guard.watch(process.pid)
        return cls(process)

    @property
    def pid(self) -> int:
        """The id of the process, which is also the id of its group."""
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Whether the process itself has ended. Other processes in its group might still be
        running.
        """
        return self._process.returncode is not None

    @property
    def how_it_ended(self) -> str:
        """How the process ended, as a phrase: 'ended with exit code 3', 'was ended by SIGKILL',
        'closed its output'.
        """
        code = self._process.returncode
        if code is None:
            return "closed its output"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    async def wait(self) -> None:
        """Wait until the process itself has ended.

        In some versions of Python, `anyio.abc.Process.wait` also waits for the pipes, which a
        grandchild can hold open.
        """
        if hasattr(os, "pidfd_open"):
            try:
                descriptor = os.pidfd_open(self.pid)
            except OSError:
                # The process has already been reaped, or too many files are open, so poll for the
                # return code.
                descriptor = -1
            if descriptor >= 0:
                try:
                    await anyio.wait_readable(descriptor)
                finally:
                    os.close(descriptor)
                await self.exits_within(KILL_GRACE)
                return
        await self.exits_within(math.inf, poll=0.2)

    async def exits_within(self, seconds: float, *, poll: float = _POLL) -> bool:
        """Wait until the process itself has ended. Return False if this takes longer than
        `seconds`.
        """
        return await _becomes_true(lambda: self.has_exited, seconds, poll)

    async def end(self) -> None:
        """End a process whose input is closed, with its whole group, within 1.5 s: wait, then send
        SIGTERM, then SIGKILL.

        The caller must shield this method from cancellation, which would leave the child running.
        """
        await self.exits_within(STDIN_GRACE)
        gone = not self._signal_group(signal.SIGTERM) and self.has_exited
        if not gone and not await self._group_ends_within(TERM_GRACE):
            if sys.platform != "win32":
                self._signal_group(signal.SIGKILL)
            await self._group_ends_within(KILL_GRACE)

        if self.has_exited:
            guard.release(self.pid)

        # A descendant that has left the group might hold the pipes open. asyncio would then keep
        # the transport until that descendant ends.
        transport = getattr(getattr(self._process, "_process", None), "_transport", None)
        close = getattr(transport, "close", None)
        if callable(close):
            with suppress(PermissionError, ProcessLookupError):
                close()

    async def _group_ends_within(self, seconds: float) -> bool:
        # The group exists as long as one of its processes does, even if the child has already
        # ended.
        return await _becomes_true(lambda: self.has_exited and not self._signal_group(0), seconds)

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the group (on Windows: end the child). Return False if the group has no
        processes left.
        """
        if sys.platform == "win32":
            if self.has_exited:
                return False
            with suppress(ProcessLookupError):
                self._process.kill()
            return True

        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False

        return True


async def _next_chunk(process: ChildProcess) -> bytes | None:
    """Return a program's next output, or None if it has closed its output."""
    try:
        return await process.stdout.receive()
    except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        return None


def child_environment(configured: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: the inherited variables and the configured ones."""
    # Leave out values that start with "()", because these are exported shell functions, which are
    # code.
    inherited = {
        name: os.environ[name]
        for name in INHERITED
        if not os.environ.get(name, "()").startswith("()")
    }
    return inherited | dict(configured)


def _why_not_started(launch: Launch, error: OSError | ValueError) -> str:
    if not Path(launch.cwd).is_dir():
        return f"its working directory {launch.cwd!r} does not exist"
    if isinstance(error, FileNotFoundError):
        return f"the program {launch.command!r} was not found; is it installed and on PATH?"
    if isinstance(error, PermissionError):
        return f"{launch.command!r} may not be executed"

    reason = error.strerror if isinstance(error, OSError) else None
    return f"{launch.command!r}: {reason or error}"


async def _becomes_true(condition: Callable[[], bool], seconds: float, poll: float = _POLL) -> bool:
    deadline = anyio.current_time() + seconds
    while not condition():
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(poll)
    return True


MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The default limit on the size of one message from a child, in bytes."""
BYTES_FOR_VALUE: Final = 16
"""A message can contain one JSON value for each such number of bytes in its size limit. The number
of values is limited because parsed values take more memory than their text.
"""
STDERR_LINES: Final = 20

_SHOWN_CHARACTERS: Final = 300
_LAST_BYTES: Final = 8192
_DISCARD_FACTOR: Final = 8
"""A line over the limit is discarded while it is read, up to this multiple of the limit. A longer
line ends the connection.
"""


LINES_AT_ONCE: Final = 100
"""The number of a server's lines or events that are read before other tasks get a turn."""


def most_values(max_bytes: int) -> int:
    """Return the maximum number of JSON values in a message from a server."""
    return max_bytes // BYTES_FOR_VALUE


class StdioTransport:
    """A child process as an MCP `Transport`. Entering it returns the streams, and leaving it ends
    the child.

    Attributes:
        reason: why no more messages can arrive ("ended with exit code 3", ...), or None while the
            process is running.
        protocol_fault: True if the connection was ended because of the process's output.
    """

    def __init__(
        self,
        module: str,
        launch: Launch,
        oddities: Oddities,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        log: ServerLog | None = None,
    ) -> None:
        self._module = module
        self._log = log
        self._reader = MessageReader(oddities, joins_lines=True)
        self._launch = launch
        self._limit = max_line_bytes
        self._values = most_values(max_line_bytes)
        self._process: ChildProcess | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._incoming: MemoryObjectSendStream[SessionMessage | Exception] | None = None
        self._streams: list[anyio.abc.AsyncResource] = []
        self._written = anyio.Event()
        self._read = anyio.Event()
        self._closing = False
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self.reason: str | None = None
        self.protocol_fault = False

    @property
    def last_words(self) -> list[str]:
        """The last lines of stderr. Secrets in them are not masked."""
        return list(self._stderr)

    async def __aenter__(self) -> TransportStreams:
        process = await ChildProcess.start(self._module, self._launch)
        self._process = process
        incoming, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](64)
        # This buffer holds requests that are not written yet, so that a child that does not read
        # cannot block a caller beyond its timeout. `parallel` limits the number of callers, and
        # with it the size of the buffer.
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        group = self._group
        if process is None or group is None:
            return

        self._closing = True
        # The child must be ended even if this task is cancelled. Every wait below has a time limit.
        with anyio.CancelScope(shield=True):
            for stream in self._streams[1:3]:
                await stream.aclose()

            with anyio.move_on_after(0.2):
                await self._written.wait()

            with (
                anyio.move_on_after(0.1),
                suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError),
            ):
                await process.stdin.aclose()

            await process.end()
            with anyio.move_on_after(0.1):
                await self._read.wait()

            self._end("was closed")
            group.cancel_scope.cancel()
            for stream in self._streams:
                await stream.aclose()

        await group.__aexit__(None, None, None)

    @property
    def session(self) -> int | None:
        """The id of the operating-system session that the program's processes belong to, or None if
        the program is not running.
        """
        if self._process is None or self.reason is not None:
            return None
        return self._process.pid

    def _end(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
        if self._incoming is not None:
            self._incoming.close()

    async def _read_output(
        self, process: ChildProcess, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        lines = Lines(self._limit)
        fault: str | None = None
        try:
            while (chunk := await _next_chunk(process)) is not None:
                if self._closing or fault is not None:
                    continue  # a child that is still writing can end only if its output is read

                fault = await self._take_chunk(chunk, lines, incoming)
                if fault is not None:
                    self._end(fault)

            if fault is None and not self._closing:
                # Read what is left: the last line might have no line ending, and the last message
                # might still be incomplete.
                last_line = lines.rest()
                if last_line is not None:
                    await self._take(last_line, incoming)
                await self._pass_on(self._reader.end(), incoming)
        finally:
            self._read.set()

        if not self._closing and self.reason is None:
            # Wait a moment, because the process has probably ended and its exit code will follow
            # shortly.
            await process.exits_within(_DRAIN_SECONDS)
            self._end(process.how_it_ended)

    async def _take_chunk(
        self,
        chunk: bytes,
        lines: Lines,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> str | None:
        """Pass each line that a chunk completes to the session. Return the same as `_take`."""
        for number, line in enumerate(lines.feed(chunk)):
            if number % LINES_AT_ONCE == LINES_AT_ONCE - 1:
                await anyio.lowlevel.checkpoint()
            fault = await self._take(line, incoming)
            if fault is not None:
                return fault

        most_pending = self._limit * _DISCARD_FACTOR
        if lines.pending > most_pending:
            return self._fault(f"sent a line of more than {most_pending:,} bytes")
        return None

    async def _take(
        self, line: bytes | LongLine, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> str | None:
        """Pass a line to the session. Return why the connection must end, or None if it can stay
        open.
        """
        if isinstance(line, LongLine):
            problem = f"its answer has {line.size:,} bytes; the limit is {self._limit:,}"
            error = answer_instead(line.head, line.tail, problem, Replaced.OVERSIZED)
            if error is None:
                return self._fault(
                    f"sent a line of {line.size:,} bytes; the limit is {self._limit:,}"
                )
            messages = [error]
        elif not line.strip():
            return None
        elif count_values(line, self._values) > self._values:
            problem = f"its answer contains more than {self._values:,} JSON values"
            error = answer_instead(line[:512], line[-512:], problem, Replaced.OVERSIZED)
            if error is None:
                return self._fault(f"sent a message of more than {self._values:,} JSON values")
            messages = [error]
        else:
            messages = self._reader.read(line)
        return await self._pass_on(messages, incoming)

    async def _pass_on(
        self,
        messages: list[JSONRPCMessage],
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> str | None:
        for message in messages:
            item = SessionMessage(message)
            try:
                try:
                    incoming.send_nowait(item)
                except anyio.WouldBlock:
                    await incoming.send(item)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return "was closed"
        return None

    def _fault(self, what: str) -> str:
        self.protocol_fault = True
        return what

    async def _write_input(
        self, process: ChildProcess, outgoing: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        try:
            async for item in outgoing:
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(data.encode("utf-8") + b"\n")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            if not self._closing:
                await process.exits_within(_DRAIN_SECONDS)
                self._end(process.how_it_ended if process.has_exited else "closed its input")
        finally:
            self._written.set()

    async def _read_errors(self, process: ChildProcess) -> None:
        lines = Lines(64 * 1024)
        while True:
            try:
                chunk = await process.stderr.receive()
            except (
                anyio.EndOfStream,
                anyio.ClosedResourceError,
                anyio.BrokenResourceError,
                OSError,
            ):
                chunk = b""
            if self._log is not None and len(chunk) > _LAST_BYTES:
                self._log.add("stderr", [f"({len(chunk) - _LAST_BYTES:,} bytes are left out)"])

            # Skip the beginning of a large chunk, because only the last lines are stored.
            texts: list[str] = []
            for line in lines.feed(chunk[-_LAST_BYTES:] or b"\n"):
                data = line.head if isinstance(line, LongLine) else line
                if data.strip():
                    texts.append(data.rstrip().decode("utf-8", "replace"))

            self._stderr.extend(text.strip()[:_SHOWN_CHARACTERS] for text in texts)
            if self._log is not None and texts:
                self._log.add("stderr", texts)
            if not chunk:
                return

    async def _watch_exit(self, process: ChildProcess) -> None:
        await process.wait()
        # Wait until the last output has been read, but not for long, because a grandchild might
        # keep the pipe open.
        with anyio.move_on_after(_DRAIN_SECONDS):
            await self._read.wait()
        if not self._closing:
            self._end(process.how_it_ended)
