"""A command at a terminal of its own."""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import re
import signal
import subprocess
import termios
from pathlib import Path

from tests import preloaded

from .conftest import EXECUTABLE


class Terminal:
    """The command at a terminal of its own."""

    def __init__(
        self, here: Path, words: list[str], env: dict[str, str] | None = None, columns: int = 80
    ) -> None:
        self._primary, secondary = pty.openpty()
        termios.tcsetwinsize(secondary, (40, columns))
        self._columns = columns
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._all = ""
        self.seen = ""
        self._process = subprocess.Popen(
            preloaded.python(EXECUTABLE, *words),
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
            self.seen += self._read()

    def _read(self) -> str:
        text = self._decoder.decode(os.read(self._primary, 65536))
        self._all += text
        return text

    def screen(self) -> list[str]:
        """The lines that are on the screen, and above it, with what was erased gone."""
        lines: list[list[str]] = [[]]
        row = column = 0
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", self._all, re.DOTALL):
            if part == "\n":
                row += 1
            elif part == "\r":
                column = 0
            elif part.startswith("\x1b[") and part.endswith("A"):
                row = max(0, row - int(part[2:-1] or 1))
            elif part == "\x1b[2K":
                lines[row] = []
            elif not part.startswith("\x1b"):
                if column == self._columns:
                    row = row + 1
                    column = 0

                lines += [[] for _ in range(row + 1 - len(lines))]
                lines[row] += [" "] * (column + 1 - len(lines[row]))
                lines[row][column] = part
                column += 1

            lines += [[] for _ in range(row + 1 - len(lines))]

        return ["".join(line).rstrip() for line in lines]

    def type(self, text: str) -> None:
        """Type a line."""
        self.seen = ""
        os.write(self._primary, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End the process with SIGKILL, and wait until it is gone."""
        self._process.kill()
        self.end()

    def end(self) -> tuple[int, str]:
        """Exit code and standard output."""
        while True:
            try:
                rest = self._read()
                if not rest:
                    break
                self.seen += rest
            except OSError:
                # This is what Linux reports when the other side of a terminal is gone.
                break

        assert self._process.stdout is not None
        out = self._process.stdout.read()
        self._process.stdout.close()
        code = self._process.wait(timeout=30)
        os.close(self._primary)
        return code, out


def at_terminal(here: Path, *words: str, columns: int = 80) -> str:
    """What a command prints whose standard output is a terminal, without colours."""
    primary, secondary = pty.openpty()
    termios.tcsetwinsize(secondary, (40, columns))
    with subprocess.Popen(
        preloaded.python(EXECUTABLE, *words),
        cwd=here,
        stdin=subprocess.DEVNULL,
        stdout=secondary,
        stderr=subprocess.DEVNULL,
        # The workers of pytest-xdist have COLUMNS, which Rich prefers to the size of the terminal.
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)},
    ):
        os.close(secondary)
        seen = b""
        # This is what Linux reports when the other side of a terminal is gone.
        with contextlib.suppress(OSError):
            while part := os.read(primary, 65536):
                seen += part

    os.close(primary)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r\n", "\n")
