"""Upkeep: an online backup of the store, and giving room back."""

from __future__ import annotations

import os
from pathlib import Path

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.errors import StoreAccessError, StoreFormatError
from ideabridge.bridge.ideas.sqlite import sqlite3


def back_up(database: Database, target: Path) -> int:
    """Copy the store into a new file while it is in use; returns its bytes. The copy is what had been committed when it
    began, checked, and its owner's alone.

    Raises:
        StoreAccessError: there is such a file already, or it cannot be written.
        StoreFormatError: what was copied is damaged.
    """
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        raise StoreAccessError(f"{target}: there is such a file already; nothing is overwritten") from None
    except OSError as error:
        raise StoreAccessError(f"{target}: it cannot be written: {error.strerror or error}") from None
    try:
        copy = sqlite3.connect(target, isolation_level=None)
        try:
            with database.alone():
                # In one step: others write meanwhile all the same, but between two steps SQLite would begin again.
                database.connection.backup(copy)
            # A copy is one file, to be moved about.
            copy.execute("PRAGMA journal_mode=DELETE")
            fault = str(copy.execute("PRAGMA quick_check").fetchone()[0])
        finally:
            copy.close()
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise StoreAccessError(f"{target}: it cannot be written: {error}") from None
        raise
    if fault != "ok":
        target.unlink(missing_ok=True)
        raise StoreFormatError(f"{database.path}: it is damaged: {fault[:200]}")
    return target.stat().st_size


def vacuum(database: Database) -> tuple[int, int]:
    """Write the store anew without its holes; returns its bytes before and after. Others wait meanwhile."""
    with database.alone():
        size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        before = database.number(size)
        database.connection.execute("VACUUM")
        database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return before, database.number(size)
