"""Choose the SQLite library with which this process opens all stores.

SQLite 3.7.0 to 3.51.2 have the WAL-reset bug (https://sqlite.org/wal.html#walresetbug): if a
checkpoint begins when the whole log has already been moved, while another connection commits,
commits can be lost and the file damaged. Many systems still have such a version. If Python has such
a version, the library of the package `pysqlite3` is used instead. If that package is not installed,
`checkpoint_locked` makes the checkpoints instead of SQLite.

Two SQLite libraries in one process break each other's locks on a file
(https://sqlite.org/howtocorrupt.html, 2.2.1). All code that opens a store in a process with a
`Store` must therefore import `sqlite3` from here.
"""

from __future__ import annotations

import importlib
import sqlite3 as _standard
import time
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING, Final

FIXED_IN: Final = "3.51.3, 3.50.7 and 3.44.6"
"""The first versions without the WAL-reset bug: in the newest series, and in two older series."""


def is_fixed(version: tuple[int, int, int]) -> bool:
    """Return whether a version of SQLite is free of the WAL-reset bug."""
    return (
        version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    )


def _choose() -> ModuleType:
    if is_fixed(_standard.sqlite_version_info):
        return _standard
    try:
        package = importlib.import_module("pysqlite3")
    except ImportError:
        return _standard
    return package if is_fixed(package.sqlite_version_info) else _standard


if TYPE_CHECKING:
    import sqlite3 as sqlite3
else:
    sqlite3 = _choose()

IS_FIXED: Final = is_fixed(sqlite3.sqlite_version_info)
"""Whether the SQLite version in use is free of the WAL-reset bug."""


_LOCK_WAIT_S: Final = 1.0
"""How long, in seconds, `checkpoint_locked` waits for the write lock."""


def checkpoint_locked(address: str) -> None:
    """Move the write-ahead log into the file while holding the write lock, so that nobody else can
    commit. This is safe even with the WAL-reset bug, but all writers wait for the disk.

    Args:
        address: the `file:` URI of the database file.

    Raises:
        sqlite3.Error: the file cannot be read or written, or another process held the write lock
            for a second.
    """
    with (
        closing(sqlite3.connect(address, isolation_level=None, timeout=0, uri=True)) as mover,
        closing(sqlite3.connect(address, isolation_level=None, timeout=0, uri=True)) as holder,
    ):
        deadline = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                holder.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                # When commits follow each other without a pause, the lock is free only for
                # microseconds. SQLite's own waiting would miss these moments, because it sleeps for
                # longer and longer.
                time.sleep(0.0005)
        try:
            mover.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            holder.execute("ROLLBACK")


def described() -> str:
    """Return the library in use, in the form `SQLite 3.53.4 of pysqlite3`."""
    origin = "Python" if sqlite3 is _standard else "pysqlite3"
    return f"SQLite {sqlite3.sqlite_version} of {origin}"
