"""Members of a cluster whose processes are forked, so that they start in a fraction of the time."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from examples.cluster.member import Member

from tests import preloaded

PROGRAM = Path(sys.executable).parent / "ideabridge"


class PreloadedMember(Member):
    """A member whose `pid`, signals and end are those of the forked process, as soon
    as it is ready.
    """

    def _command(self, *words: str) -> list[str]:
        return preloaded.python(PROGRAM, *words)

    def wait_ready(self) -> None:
        """Wait as `Member` does."""
        super().wait_ready()
        assert self._process is not None
        self.pid = preloaded.number(self._process)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it runs."""
        if self._process is None:
            return
        try:
            os.kill(preloaded.number(self._process), number)
        except ProcessLookupError:
            # The process is about to be forked, or has just ended.
            super().signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            # The process that started it ends after it, so wait for that one.
            self._process.wait()
