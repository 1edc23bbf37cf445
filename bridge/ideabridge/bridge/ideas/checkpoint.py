"""Checkpointer: moves what is committed from the write-ahead log into the file, beside the thread that writes.

A checkpoint waits for the disk twice. Done inside a commit, as SQLite does by itself, it would hold the event loop
for many milliseconds. Nothing depends on it: what is committed is in the log.

SQLite begins the log anew when all of it was moved. Where commits never pause some is always left, and the log would
grow: writing into a growing file takes half as long again as over what is there. So whoever commits moves the little
that came during a checkpoint.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from typing import Final

COMMITS: Final = 512
"""So many commits bring about one checkpoint."""

_PASSES: Final = 6
_LITTLE: Final = 200
"""What came during a checkpoint is moved by another, so often, until so few pages come."""


class Checkpointer:
    """A thread with a connection of its own; started by the first `COMMITS` commits."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._wanted = threading.Event()
        self._stopped = False
        self._left = False
        self._thread: threading.Thread | None = None

    def want(self) -> None:
        """Ask for a checkpoint soon. Called by the thread that holds the store's lock."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="ideabridge-checkpoint", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # No thread is to be had now. What was committed is, whatever becomes of the log.
                return
            self._thread = thread
        self._wanted.set()

    def move_rest(self, connection: sqlite3.Connection) -> None:
        """Move what the thread left, if it did. Called after a commit, with the store's lock held: 1 to 2 ms."""
        if not self._left:
            return
        self._left = False
        # What is in the way will be again, and is told, when the log is at its bound.
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

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
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
            while True:
                self._wanted.wait()
                self._wanted.clear()
                if self._stopped:
                    return
                before, came = self._move(connection), _LITTLE
                for _ in range(_PASSES):
                    if came < _LITTLE:
                        break
                    after = self._move(connection)
                    came, before = after - before, after
                # Also where nothing came: a commit during the last look found the log in use, and went on with it.
                self._left = True
        except sqlite3.Error:
            # The log only grows: at its bound a commit of the store does the same work, and reports what is wrong.
            return
        finally:
            if connection is not None:
                connection.close()

    def _move(self, connection: sqlite3.Connection) -> int:
        """Move what can be; returns how many pages the log had."""
        return connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
