"""Upkeep: an online backup of the store, and giving room back."""

from __future__ import annotations

from pathlib import Path

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.files import copy


def back_up(database: Database, target: Path) -> int:
    """Copy the store into a new file while it is in use; returns its bytes. The copy is what had been committed when it
    began, checked, and its owner's alone. After a kill at any moment there is no such file, or a whole one.

    Raises:
        StoreAccessError: there is such a file already, or it cannot be written.
        StoreFormatError: what was copied is damaged.
    """
    with database.alone():
        copy(database.connection, target)
    return target.stat().st_size


def vacuum(database: Database) -> tuple[int, int]:
    """Write the store anew without its holes; returns its bytes before and after. Others wait meanwhile."""
    with database.alone():
        size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        before = database.number(size)
        database.connection.execute("VACUUM")
        database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return before, database.number(size)
