"""StoreFiles: the file of a store, its log and the log's index: made private, and watched while the store is open.

If an open file is deleted, moved or replaced, the process keeps writing to the old one, and these writes are lost when
it ends. So each commit checks that the files are still there.
"""

from __future__ import annotations

import glob
import os
import secrets
import stat
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from ideabridge.bridge.store.errors import StoreAccessError, StoreFormatError
from ideabridge.bridge.store.sqlite import sqlite3

try:
    import fcntl
except ImportError:
    # On Windows an open file cannot be deleted, so `_sweep` needs no lock to leave files in use alone.
    fcntl = None

LOOK_S: Final = 0.25
"""Seconds between two checks of the files. Each commit checks their folder."""

_PARTIAL: Final = ".partial-"
"""In the name of an incomplete copy, before some digits. A killed process leaves such a file."""

_RESCUED: Final = ".rescued-"
"""In the name of a rescued copy, before a time: what a process still held of a store that was deleted."""

_SMALLEST: Final = 512
"""The smallest page, and therefore the smallest file, of SQLite, in bytes."""

Identity = tuple[int, int]
"""Device and inode number of a file."""


class StoreFiles:
    """The files of one store.

    Attributes:
        path: the store's file, with symbolic links resolved, as SQLite does.
        next_look: when `look` is due, by the monotonic clock.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.next_look = 0.0
        self._all = [self.path, *(self.path.with_name(f"{self.path.name}{suffix}") for suffix in ("-wal", "-shm"))]
        self._folder = str(self.path.parent)
        self._seen: tuple[int, int, int] | None = None
        self._ours: list[Identity | None] = [None] * len(self._all)

    @property
    def address(self) -> str:
        """The URI for `connect(..., uri=True)`. It does not create the file if it is gone."""
        return f"{self.path.as_uri()}?mode=rw"

    def prepare(self) -> None:
        """Create the file if it does not exist, check that it can be written, and make it and its log private.

        An existing file is never opened here: closing any file descriptor of a file releases all locks of the process
        on it, including those of another open store (https://sqlite.org/howtocorrupt.html, 2.2).

        Raises:
            StoreAccessError, StoreFormatError.
        """
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                if 0 < path.stat().st_size < _SMALLEST and path.is_file():
                    # SQLite would treat such a file as empty and overwrite it.
                    raise StoreFormatError(f"{path}: it is not an SQLite file") from None
                if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
                    raise StoreAccessError(f"{path}: it, or its folder, cannot be written") from None
            # Existing files may have another mode. SQLite creates new ones with the mode of the first.
            for file in self._all:
                with suppress(FileNotFoundError, PermissionError):
                    if stat.S_IMODE(file.stat().st_mode) != 0o600 and file.is_file():
                        file.chmod(0o600)
        except OSError as error:
            raise StoreAccessError(f"{path}: it cannot be opened: {error.strerror or error}") from None

    def opened(self) -> None:
        """Remember the files, after SQLite has opened all of them."""
        self._ours = [_identity(file) for file in self._all]
        self.look()

    def fault(self) -> str | None:
        """Return what happened to the files, in words; None if they exist. They are checked only if the time of their
        folder has changed, which changes with every name in it.
        """
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - a commit waits for it: Path.stat takes twice as long
        except OSError:
            return self.look()
        return None if (folder.st_dev, folder.st_ino, folder.st_mtime_ns) == self._seen else self.look()

    def look(self) -> str | None:
        """Like `fault`, but always check each file: the time of a folder may be coarse."""
        self._seen, self.next_look = None, 0.0
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - see fault
            for file, ours in zip(self._all, self._ours, strict=True):
                now = _identity(file)
                if ours is not None and now != ours:
                    return f"{file} was {'deleted or moved' if now is None else 'replaced by another file'}"
        except (FileNotFoundError, NotADirectoryError):
            return f"{self._folder} was deleted or moved"
        except OSError:
            # This says nothing about the files.
            return None
        self._seen = (folder.st_dev, folder.st_ino, folder.st_mtime_ns)
        self.next_look = time.monotonic() + LOOK_S
        return None

    def beside(self) -> Path:
        """A new name in the folder for a rescued copy."""
        return self.path.with_name(f"{self.path.name}{_RESCUED}{datetime.now():%Y%m%dT%H%M%S}-{secrets.token_hex(3)}")  # noqa: DTZ005


def rescued_of(path: Path) -> list[Path]:
    """The rescued copies of a store that was deleted while it was in use, the oldest first."""
    path = Path(os.path.realpath(path))
    found = path.parent.glob(f"{glob.escape(path.name)}{_RESCUED}*")
    return sorted(one for one in found if _PARTIAL not in one.name)


def _identity(file: Path) -> Identity | None:
    """The identity of a file; None if it does not exist.

    Raises:
        OSError: it cannot be determined.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - see fault
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def copy(connection: sqlite3.Connection, target: Path) -> None:
    """Copy what is committed into a new file with mode 0600. The copy is written under another name and then renamed,
    so the file is complete or does not exist. Incomplete copies that killed processes left are removed.

    Args:
        connection: the source; others may write meanwhile.
        target: the new file.

    Raises:
        StoreAccessError: the file exists already, or cannot be written.
        StoreFormatError: the copy is damaged.
        sqlite3.Error: the source cannot be read.
    """
    try:
        if os.path.lexists(target):
            raise FileExistsError
        _sweep(target)
        with _partial(target) as part:
            try:
                fault = _fill(connection, part)
            except sqlite3.Error as error:
                raise StoreAccessError(f"{target}: it cannot be written: {error}") from None
            if fault != "ok":
                raise StoreFormatError(f"what was to be copied to {target} is damaged: {fault[:200]}")
            _name(part, target)
    except FileExistsError:
        raise StoreAccessError(f"{target}: there is such a file already; nothing is overwritten") from None
    except OSError as error:
        raise StoreAccessError(f"{target}: it cannot be written: {error.strerror or error}") from None


def _fill(connection: sqlite3.Connection, part: Path) -> str:
    """Copy, and return the result of SQLite's check of the copy."""
    with closing(sqlite3.connect(part, isolation_level=None)) as made:
        # In one step: others can write meanwhile, and with several steps each write would restart the copy.
        connection.backup(made)
        # Without a log the copy is one file, which can be moved.
        made.execute("PRAGMA journal_mode=DELETE")
        return str(made.execute("PRAGMA quick_check").fetchone()[0])


@contextmanager
def _partial(target: Path) -> Generator[Path]:
    """Create a file beside the target, lock it while it is written, and remove it at the end."""
    part = target.with_name(f"{target.name}{_PARTIAL}{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        if fcntl is not None:
            # SQLite uses another kind of lock, which does not conflict.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.fchmod(descriptor, 0o600)
        yield part
    finally:
        os.close(descriptor)
        _remove(part)


def _name(part: Path, target: Path) -> None:
    """Rename the finished file, unless the target exists."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        # Without hard links, two simultaneous backups to one name are not detected.
        if os.path.lexists(target):
            raise FileExistsError from None
        part.rename(target)
    if fcntl is not None:
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _sweep(target: Path) -> None:
    """Remove incomplete copies to this name that killed processes left."""
    for part in target.parent.glob(f"{glob.escape(target.name)}{_PARTIAL}{'[0-9a-f]' * 8}"):
        with suppress(OSError):
            if fcntl is not None:
                descriptor = os.open(part, os.O_RDWR)
                try:
                    # This fails if another process still writes it.
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                finally:
                    os.close(descriptor)
            _remove(part)


def _remove(part: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        part.with_name(f"{part.name}{suffix}").unlink(missing_ok=True)
