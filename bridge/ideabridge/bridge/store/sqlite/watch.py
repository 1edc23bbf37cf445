"""Notice when the files of a store are gone, and copy the data that the open store still holds.

The copy helps a person whose folder is cleaned, synchronised or moved (`git clean -dfx`, a program
for cloud folders, a mistaken `rm`) while an assistant is still running a server with a store in
this folder. In such a case, only the open connection still has the ideas and journals since the
last backup. Without the copy, they would be lost when the process ends.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final

from ideabridge.bridge.store.errors import StoreError, StoreGoneError
from ideabridge.bridge.store.sqlite import IS_FIXED, checkpoint_locked, sqlite3
from ideabridge.bridge.store.sqlite.files import StoreFiles, copy_committed

COMMITS: Final = 256
"""The number of commits between two checkpoints if SQLite has the WAL-reset bug. Otherwise, SQLite
decides when to make a checkpoint.
"""


class FileWatch:
    """Watches the files of one open store.

    Args:
        path: the path of the store as the user wrote it, for messages.
        files: the files of the store, or None if the store is in memory and has no files to watch.
    """

    def __init__(self, path: str, files: StoreFiles | None) -> None:
        self._path = path
        self._files = files
        self._commits = 0
        self._advice = ""
        """While the files are gone, a message that says where the contents were saved and how to
        continue.
        """
        self._unsaved = ""
        """The state of the files when saving the contents last failed."""
        self._saving = threading.Lock()

    def committed(self, connection: sqlite3.Connection) -> None:
        """Count a commit, and check the files. Call this after each commit, with the lock held.

        Raises:
            StoreGoneError: the files are gone, so the commit is lost.
        """
        if self._files is None:
            return

        fault = self._files.fault()
        if fault is not None:
            raise self._gone(self._files, fault, connection)

        self._advice = ""
        self._commits += 1
        if not IS_FIXED and self._commits % COMMITS == 0:
            # If the checkpoint fails, the log simply grows until the next one.
            with suppress(sqlite3.Error):
                checkpoint_locked(self._files.address)

    def look(self, connection: sqlite3.Connection) -> None:
        """Check that the files still exist, if a check is due.

        Args:
            connection: the connection whose lock is held.

        Raises:
            StoreGoneError: the files are gone.
        """
        files = self._files
        if files is None or time.monotonic() <= files.next_look or connection.in_transaction:
            return

        fault = files.look()
        if fault is not None:
            raise self._gone(files, fault, connection)

        # The files might have disappeared and come back. Forget the saved copy, because it lacks
        # later commits.
        self._advice = ""

    def _gone(
        self, files: StoreFiles, fault: str, connection: sqlite3.Connection
    ) -> StoreGoneError:
        """Return the error for missing files.

        The first call saves the contents that the connection still holds. If that fails, a later
        call tries again once the state of the files has changed: for example, their folder might
        have come back without the files.
        """
        with self._saving:
            if not self._advice or self._unsaved not in ("", fault):
                self._save(files, fault, connection)
            return StoreGoneError(
                f"{self._path}: the store is gone: {fault} while it was in use. {self._advice}"
            )

    def _save(self, files: StoreFiles, fault: str, connection: sqlite3.Connection) -> None:
        target = files.beside()
        try:
            copy_committed(connection, target)
        except (StoreError, sqlite3.Error) as error:
            self._unsaved = fault
            self._advice = (
                f"Its content could not be saved: {error}. If it was moved, move "
                "it back to continue"
            )
            return

        self._unsaved = ""
        name = files.path.name
        self._advice = (
            f"Its content is saved in {target}. To continue with it, end every process "
            f"that uses the store, delete what is left of {name}, {name}-wal and "
            f"{name}-shm, and move that file to {files.path}"
        )
