"""A command at a terminal of its own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

from .conftest import EXECUTABLE


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, here: Path, words: list[str], env: dict[str, str] | None = None) -> None:
        self._primary, secondary = pty.openpty()
        self.seen = ""
        self._process = subprocess.Popen(
            [str(EXECUTABLE), *words],
            cwd=here,
            stdin=secondary,
            stderr=secondary,
            stdout=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", **(env or {})},
            text=True,
        )
        os.close(secondary)

    def read_until(self, text: str) -> None:
        """Read what is shown until `text` has been."""
        while text not in self.seen:
            self.seen += os.read(self._primary, 65536).decode("utf-8", "replace")

    def type(self, text: str) -> None:
        """Type a line."""
        self.seen = ""
        os.write(self._primary, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Exit code and standard output."""
        while True:
            try:
                rest = os.read(self._primary, 65536)
                if not rest:
                    break
                self.seen += rest.decode("utf-8", "replace")
            except OSError:
                # Linux says so when the other side of a terminal is gone.
                break
        assert self._process.stdout is not None
        out = self._process.stdout.read()
        self._process.stdout.close()
        code = self._process.wait(timeout=30)
        os.close(self._primary)
        return code, out
