"""Measure, back up and vacuum a store in an SQLite file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from ideabridge.bridge.store.database import Database, Upkeep
from ideabridge.bridge.store.sqlite import IS_FIXED, described, sqlite3
from ideabridge.bridge.store.sqlite.files import copy_committed


class SqliteUpkeep(Upkeep):
    """The upkeep of one SQLite file.

    Args:
        database: the database.
        connection: the connection that writes to the database.
        alone: keeps other threads from writing while statements are running on the connection.
    """

    def __init__(
        self,
        database: Database,
        connection: sqlite3.Connection,
        alone: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._database = database
        self._connection = connection
        self._alone = alone

    def engine(self) -> str:
        if IS_FIXED:
            return described()
        return f"{described()}, whose WAL-reset bug is avoided"

    def used_bytes(self) -> int:
        with self._database.guard:
            return self._database.number(
                "SELECT (page_count - freelist_count) * page_size "
                "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
            )

    def back_up(self, target: Path) -> int:
        # The copy contains all commits that were made before it began. If the process is killed,
        # there is either a complete file or none.
        with self._alone():
            copy_committed(self._connection, target)
        return target.stat().st_size

    def vacuum(self) -> tuple[int, int]:
        with self._alone():
            size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            before = self._database.number(size)
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return before, self._database.number(size)
