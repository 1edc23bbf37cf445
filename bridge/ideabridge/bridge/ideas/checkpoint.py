"""Checkpointer: moves what is committed from the write-ahead log into the file, beside the thread that writes.

A checkpoint waits for the disk twice. Done inside a commit, as SQLite does by itself, it would hold the writer for many
milliseconds. Nothing depends on it: what is committed is in the log.

SQLite begins the log anew with the first commit after all of it was moved. Where commits never pause, some came during
the checkpoint, and the log would grow: writing into a growing file takes half as long again as over what is there. So
what came is moved by a second one, which holds the write lock: it is little, and nothing more comes meanwhile. The lock
also makes the second one safe in every SQLite (see `ideas/sqlite.py`): no commit can begin the log anew under it.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Final

from ideabridge.bridge.ideas.sqlite import IS_FIXED, sqlite3

COMMITS: Final = 512
"""So many commits bring about one checkpoint."""

_LOCK_WAIT_S: Final = 1.0
"""How long the second checkpoint waits for the write lock. Without it, the log grows until the next 512 commits."""


class Checkpointer:
    """A thread with connections of its own; started by the first `COMMITS` commits.

    Args:
        address: of the database file, as `StoreFiles.address`.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._wanted = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def want(self) -> None:
        """Ask for a checkpoint soon. Called by the thread that holds the store's lock."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="ideabridge-checkpoint", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # No thread is available now. What was committed stays committed in the log.
                return
            self._thread = thread
        self._wanted.set()

    def stop(self) -> None:
        """End the thread, after the checkpoint it is at."""
        if self._thread is not None:
            self._stopped = True
            self._wanted.set()
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._stopped:
                return
            try:
                checkpoint(self._address)
            except sqlite3.Error:
                # The log only grows, and the next 512 commits try again. At its bound a commit of the store does the
                # same work, and reports what is wrong.
                continue


def checkpoint(address: str) -> None:
    """Move all of the log into the file, so that the next commit begins it anew.

    An SQLite with the WAL-reset bug does it in one, under the write lock: all writers wait for the disk then.

    Args:
        address: of the database file.

    Raises:
        sqlite3.Error: the file cannot be read or written, or others kept the write lock for a second.
    """
    move = "PRAGMA wal_checkpoint(PASSIVE)"
    with (
        closing(sqlite3.connect(address, isolation_level=None, timeout=0, uri=True)) as mover,
        closing(sqlite3.connect(address, isolation_level=None, timeout=0, uri=True)) as holder,
    ):
        if IS_FIXED:
            mover.execute(move)
        _lock(holder)
        try:
            mover.execute(move)
        finally:
            holder.execute("ROLLBACK")


def _lock(connection: sqlite3.Connection) -> None:
    """Begin a transaction that holds the write lock."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            # Where commits never pause, the lock is free for microseconds. SQLite's own waiting, which sleeps longer
            # and longer, would miss it.
            time.sleep(0.0005)
        else:
            return
