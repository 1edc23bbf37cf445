"""Checkpointer: moves what is committed from the write-ahead log into the file, beside the thread that writes.

A checkpoint waits for the disk twice. Done inside a commit, as SQLite does by itself, it would hold the event loop
for many milliseconds. Nothing depends on it: what is committed is in the log.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Final

COMMITS: Final = 512
"""So many commits bring about one checkpoint."""

LONG: Final = 8192
"""Pages in the log from which it is begun anew. It is by itself where nothing is committed during a checkpoint; where
commits never pause it would grow, and writing into new memory takes longer than over the old. Whoever commits waits
while the few pages are moved that came since."""

_PATIENCE_S: Final = 0.05
"""So long it waits for whoever writes or reads: if that is not enough, the log grows until the next time."""


class Checkpointer:
    """A thread with a connection of its own; started by the first `COMMITS` commits."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._wanted = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def want(self) -> None:
        """Ask for a checkpoint soon. Called by the thread that holds the store's lock."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ideabridge-checkpoint", daemon=True)
            self._thread.start()
        self._wanted.set()

    def stop(self) -> None:
        """End the thread, after the checkpoint it is at."""
        if self._thread is not None:
            self._stopped = True
            self._wanted.set()
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=_PATIENCE_S)
            while True:
                self._wanted.wait()
                self._wanted.clear()
                if self._stopped:
                    return
                _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if frames > LONG:
                    connection.execute("PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.Error:
            # The log only grows: at its bound a commit of the store does the same work, and reports what is wrong.
            return
        finally:
            if connection is not None:
                connection.close()
