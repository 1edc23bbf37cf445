"""Members of a cluster whose processes are forked, so that they start in a fraction of the time."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from examples.cluster.member import Member

from tests import preloaded

PROGRAM = Path(sys.executable).parent / "ideabridge"


class PreloadedMember(Member):
    """A member whose `pid`, signals and end are those of the forked process, as soon as it is ready."""

    def _command(self, *words: str) -> list[str]:
        return preloaded.python(PROGRAM, *words)

    def wait_ready(self) -> None:
        """Wait as `Member` does."""
        super().wait_ready()
        self.pid = self._forked()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it runs."""
        if self.runs:
            # It may have ended just now.
            with suppress(ProcessLookupError):
                os.kill(self._forked(), number)

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            # What started it ends after it.
            self._process.wait()

    def _forked(self) -> int:
        """The number of the process, which may be about to be forked."""
        assert self._process is not None
        while not (number := preloaded.number(self._process)):
            time.sleep(0.001)
        return number
