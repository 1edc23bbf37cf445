"""Guard: no child outlives us, even where we are killed with SIGKILL (SDK-NOTES: orphans).

One small process per process of ours, started with the first stdio module, or by a server. It holds the read end of a
pipe whose write end only we have: when we are gone, however that happened, the pipe ends, and it ends every process
group that is still registered: SIGTERM, and SIGKILL after half a second. Registered groups survive nothing; the guard
itself goes with the pipe. It is in its own session and ignores SIGINT, SIGTERM and SIGHUP, so a signal to our
group does not take it away first.

It also sees to it that a signal ends us: Python's handler in C writes the number of each signal to the pipe, whatever
code we are in. Where we are still there three seconds after SIGTERM or SIGINT, it kills us.

Not covered: a child that leaves its process group, a SIGKILL within the microseconds between a child's start and
its registration, and Windows, where there are no process groups (there children only see their pipes close).
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

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
