"""Members of a cluster: a server or a worker, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Literal

from ideabridge.tools.errors import IdeabridgeError

_READY: Final = {"server": "serving on http://", "worker": "taking up to "}
_STARTS_SECONDS: Final = 120.0
_ENDS_SECONDS: Final = 10.0

_OUTSIDE: Final = Path(sys.executable).absolute().parents[-1]
"""The root folder. It is no project, so the configuration counts as the user's own, which
may name a server."""


class MemberError(IdeabridgeError):
    """A server or worker does not start."""


class Member:
    """A server (`serve --http --workers`) or a worker, which `start` starts, also
    again after its end.

    Args:
        kind: what it is.
        config: its configuration.
        log: the file that gets what it prints.
        port: the port of a server; 0: a free one, which it then keeps.

    Attributes:
        pid: its process id; 0 before its first start.
    """

    def __init__(
        self, kind: Literal["server", "worker"], config: Path, log: Path, port: int = 0
    ) -> None:
        self.kind = kind
        self.pid = 0
        self._config = config
        self._log = log
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of a server that has started, without a path."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the process, and wait until it is ready. Raises `MemberError` if it ends before."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Start the process."""
        if self.kind == "server":
            words = ["serve", "--http", f"127.0.0.1:{self._port}", "--workers"]
        else:
            words = ["worker"]

        command = self._command(*words, "--config", str(self._config))
        # Remove the user's own token, because the server would otherwise refuse people who try the
        # cluster.
        environment = {
            name: value for name, value in os.environ.items() if name != "IDEABRIDGE_TOKEN"
        }
        self._log.touch()
        self._printed = self._log.stat().st_size
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=_OUTSIDE,
                env=environment,
            )

        self.pid = self._process.pid

    def _command(self, *words: str) -> list[str]:
        """The command that runs `ideabridge` with these words."""
        return [sys.executable, "-P", "-m", "ideabridge.server", *words]

    def wait_ready(self) -> None:
        """Wait until the process that `begin` started is ready. Raises `MemberError` if
        it ends before.
        """
        assert self._process is not None
        deadline = time.monotonic() + _STARTS_SECONDS
        while True:
            # Check the process before reading its output, because a process that has ended has
            # printed everything.
            ended = self._process.poll() is not None
            said = self.said
            line = next(
                (one for one in said.splitlines(keepends=True) if _READY[self.kind] in one), ""
            )
            if line.endswith("\n"):
                if self.kind == "server":
                    self._port = int(line.rpartition(":")[2].partition("/")[0])
                return

            if ended or time.monotonic() > deadline:
                self.kill()
                raise MemberError(f"a {self.kind} does not start: {said.strip()[-1000:]}")

            time.sleep(0.02)

    @property
    def said(self) -> str:
        """What it has printed since its last start."""
        return self._log.read_bytes()[self._printed :].decode("utf-8", "replace")

    @property
    def runs(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """End the process with SIGTERM, and with SIGKILL if that takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_ENDS_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
