"""Make a store's file, its log and the log's index private, and watch them while the store is open.

If an open file is deleted, moved or replaced, the process keeps writing to the old file, and these
writes are lost when the process ends. So each commit checks that the files are still in place.
"""

from __future__ import annotations

import glob
import os
import secrets
import stat
import time
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from ideabridge.bridge.store.backup import PARTIAL, write_file
from ideabridge.bridge.store.errors import StoreAccessError, StoreFormatError
from ideabridge.bridge.store.sqlite import sqlite3

LOOK_S: Final = 0.25
"""Seconds between two checks of the files. In between, each commit checks only their folder."""

_RESCUED: Final = ".rescued-"
"""The part of a rescued copy's name before the time. Such a copy contains the data that a process
still had from a deleted store.
"""

_SMALLEST: Final = 512
"""The size, in bytes, of SQLite's smallest page, and so of the smallest possible file."""

Identity = tuple[int, int]
"""The device and inode number of a file."""


def file_exists(path: Path) -> bool:
    """Return whether a store's file exists.

    Raises:
        StoreAccessError: the path cannot be that of a file, because it is a folder, leads through a
            file or an unreadable folder, or is too long.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreAccessError(
            f"{path}: the file cannot be opened: {error.strerror or error}"
        ) from None

    if stat.S_ISDIR(mode):
        raise StoreAccessError(
            f"{path}: the store cannot be opened: expected a file, found a folder"
        )
    return True


def folder_to_create_in(path: Path) -> Path:
    """Return the nearest existing folder above a path, in which a store at that path would be
    created.
    """
    return next(folder for folder in path.absolute().parents if folder.exists())


class StoreFiles:
    """The files of one store.

    Attributes:
        path: the store's file, with symbolic links resolved, because SQLite also resolves them.
        next_look: when `look` is due, by the monotonic clock.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.next_look = 0.0
        self._all = [
            self.path,
            *(self.path.with_name(f"{self.path.name}{suffix}") for suffix in ("-wal", "-shm")),
        ]
        self._folder = str(self.path.parent)
        self._seen: tuple[int, int, int] | None = None
        self._opened: list[Identity | None] = [None] * len(self._all)

    @property
    def address(self) -> str:
        """The URI for `connect(..., uri=True)`. Connecting with it does not create a missing
        file.
        """
        return f"{self.path.as_uri()}?mode=rw"

    def prepare(self) -> None:
        """Create the file if it does not exist, check that it can be written, and make it and its
        log private.

        An existing file is never opened: closing any of its file descriptors would release all
        locks that the process holds on it, including those of another open store
        (https://sqlite.org/howtocorrupt.html, 2.2).

        Raises:
            StoreAccessError, StoreFormatError.
        """
        path = self.path
        file_exists(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                if 0 < path.stat().st_size < _SMALLEST and path.is_file():
                    # SQLite would treat a file this small as empty and overwrite it.
                    raise StoreFormatError(f"{path}: the file is not an SQLite database") from None
                if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
                    raise StoreAccessError(
                        f"{path}: the file or its folder cannot be written to"
                    ) from None
            # A file that already exists can have a different mode. SQLite creates its other files
            # with the mode of the database file.
            for file in self._all:
                with suppress(FileNotFoundError, PermissionError):
                    if stat.S_IMODE(file.stat().st_mode) != 0o600 and file.is_file():
                        file.chmod(0o600)
        except OSError as error:
            raise StoreAccessError(
                f"{path}: the file cannot be opened: {error.strerror or error}"
            ) from None

    def opened(self) -> None:
        """Remember the identities of the files, after SQLite has opened all of them."""
        self._opened = [_identity(file) for file in self._all]
        self.look()

    def fault(self) -> str | None:
        """Describe what happened to the files, or return None if they are in place.

        The files are checked only if the modification time of their folder has changed, which
        happens whenever a name in the folder changes.
        """
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - a commit waits for it: Path.stat takes twice as long
        except OSError:
            return self.look()
        if (folder.st_dev, folder.st_ino, folder.st_mtime_ns) == self._seen:
            return None
        return self.look()

    def look(self) -> str | None:
        """Check the files like `fault`, but always look at each file, because a folder's
        modification time can be coarse.
        """
        self._seen = None
        self.next_look = 0.0
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - see fault
            for file, opened in zip(self._all, self._opened, strict=True):
                now = _identity(file)
                if opened is None or now == opened:
                    continue
                if now is None:
                    return f"{file} was deleted or moved"
                return f"{file} was replaced by another file"
        except (FileNotFoundError, NotADirectoryError):
            return f"{self._folder} was deleted or moved"
        except OSError:
            # This error says nothing about the files, so assume that they are present.
            return None

        self._seen = (folder.st_dev, folder.st_ino, folder.st_mtime_ns)
        self.next_look = time.monotonic() + LOOK_S
        return None

    def beside(self) -> Path:
        """Return an unused name in the store's folder for a rescued copy."""
        return self.path.with_name(
            f"{self.path.name}{_RESCUED}{datetime.now():%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"  # noqa: DTZ005
        )


def rescued_of(path: Path) -> list[Path]:
    """Return the rescued copies of a store that was deleted while in use, oldest first."""
    path = Path(os.path.realpath(path))
    copies = path.parent.glob(f"{glob.escape(path.name)}{_RESCUED}*")
    return sorted(copy_committed for copy_committed in copies if PARTIAL not in copy_committed.name)


def _identity(file: Path) -> Identity | None:
    """Return the identity of a file, or None if it does not exist.

    Raises:
        OSError: the identity cannot be determined.
    """
    try:
        status = os.stat(file)  # noqa: PTH116 - see fault
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def copy_committed(connection: sqlite3.Connection, target: Path) -> None:
    """Copy all committed data into a new file with `write_file`. Other processes can write during
    the copy.

    Raises:
        StoreAccessError: the file already exists, or cannot be written.
        StoreFormatError: the copy is damaged.
        sqlite3.Error: the source cannot be read.
    """
    write_file(target, lambda part: _fill(connection, part, target))


def _fill(connection: sqlite3.Connection, part: Path, target: Path) -> None:
    try:
        with closing(sqlite3.connect(part, isolation_level=None)) as new_file:
            # Copy in a single step, because each write by another process would otherwise restart
            # the copy.
            connection.backup(new_file)
            # Switch the log off, so that the copy is a single file, which can be moved.
            new_file.execute("PRAGMA journal_mode=DELETE")
            fault = str(new_file.execute("PRAGMA quick_check").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreAccessError(f"{target}: the file cannot be written to: {error}") from None
    if fault != "ok":
        raise StoreFormatError(f"the store that was copied to {target} is damaged: {fault[:200]}")
