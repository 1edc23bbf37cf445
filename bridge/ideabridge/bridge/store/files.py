"""StoreFiles: the file of a store, its log and the log's index: made private, and watched while the store is open.

A process that has a file open goes on writing to it after it was deleted, moved or replaced, and everything it writes
is lost with the process. So each commit looks whether the files are still there before it counts as done.
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
    # On Windows a file that is open cannot be deleted: `_sweep` finds out so whether somebody is at work on it.
    fcntl = None

LOOK_S: Final = 0.25
"""So often, in seconds, whoever uses the store looks at its files; each commit looks at their folder."""

_PARTIAL: Final = ".partial-"
"""Between the name of a copy and some digits: a copy that is not whole, or that a killed process left."""

_RESCUED: Final = ".rescued-"
"""Between the name of a store and a time: what a process still held of it when it was deleted."""

_SMALLEST: Final = 512
"""Bytes of the smallest page, and so of the smallest file, of SQLite."""

Identity = tuple[int, int]
"""Device and number of a file."""


class StoreFiles:
    """The files of one store.

    Args:
        path: the store's file.

    Attributes:
        path: likewise, where a symbolic link points to, as SQLite has it.
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
        """For `connect(..., uri=True)`, which does not make the file where it is gone."""
        return f"{self.path.as_uri()}?mode=rw"

    def prepare(self) -> None:
        """See that the file is there and can be written, and that it and its log are their owner's alone.

        A file that exists is never opened here: closing any file descriptor of a file gives up all locks of the process
        on it, also those of another open store (https://sqlite.org/howtocorrupt.html, 2.2). SQLite reads its header.

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
                    # SQLite takes such a file for an empty one, and writes over it.
                    raise StoreFormatError(f"{path}: it is not an SQLite file") from None
                if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
                    raise StoreAccessError(f"{path}: it, or its folder, cannot be written") from None
            # Those of an earlier open, of another program or under a strange umask; SQLite makes new ones with the mode
            # of the first.
            for file in self._all:
                with suppress(FileNotFoundError, PermissionError):
                    if stat.S_IMODE(file.stat().st_mode) != 0o600 and file.is_file():
                        file.chmod(0o600)
        except OSError as error:
            raise StoreAccessError(f"{path}: it cannot be opened: {error.strerror or error}") from None

    def opened(self) -> None:
        """Remember the files: SQLite has all of them open now."""
        self._ours = [_identity(file) for file in self._all]
        self.look()

    def fault(self) -> str | None:
        """What became of the files, in words; None: they are there. Looks at their folder, whose time changes with
        every name in it, and at them only where it did.
        """
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - a commit waits for it: Path.stat takes twice as long
        except OSError:
            return self.look()
        return None if (folder.st_dev, folder.st_ino, folder.st_mtime_ns) == self._seen else self.look()

    def look(self) -> str | None:
        """As `fault`, at each file: the time of a folder may be coarse."""
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
            # It says nothing about the files.
            return None
        self._seen = (folder.st_dev, folder.st_ino, folder.st_mtime_ns)
        self.next_look = time.monotonic() + LOOK_S
        return None

    def beside(self) -> Path:
        """Where to save what is still held of them: a new name in their folder."""
        return self.path.with_name(f"{self.path.name}{_RESCUED}{datetime.now():%Y%m%dT%H%M%S}-{secrets.token_hex(3)}")  # noqa: DTZ005


def rescued_of(path: Path) -> list[Path]:
    """What was saved of a store that was deleted while it was in use, the oldest first."""
    path = Path(os.path.realpath(path))
    found = path.parent.glob(f"{glob.escape(path.name)}{_RESCUED}*")
    return sorted(one for one in found if _PARTIAL not in one.name)


def _identity(file: Path) -> Identity | None:
    """Device and number of a file; None where there is none.

    Raises:
        OSError: it cannot be said.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - see fault
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def copy(connection: sqlite3.Connection, target: Path) -> None:
    """Copy what is committed into a new file with mode 0600. It is written under another name beside and then renamed:
    at any moment, also after a kill, there is no such file or a whole one. What killed processes left is removed.

    Args:
        connection: to what is copied; others may write meanwhile.
        target: the new file.

    Raises:
        StoreAccessError: there is such a file already, or it cannot be written.
        StoreFormatError: what was copied is damaged.
        sqlite3.Error: it cannot be read.
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
    """Copies, and returns what SQLite says of the copy."""
    with closing(sqlite3.connect(part, isolation_level=None)) as made:
        # In one step: others write meanwhile all the same, but between two steps SQLite would begin again.
        connection.backup(made)
        # A copy is one file, to be moved about.
        made.execute("PRAGMA journal_mode=DELETE")
        return str(made.execute("PRAGMA quick_check").fetchone()[0])


@contextmanager
def _partial(target: Path) -> Generator[Path]:
    """A new file beside the target, locked while it is written, and removed at the end."""
    part = target.with_name(f"{target.name}{_PARTIAL}{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        if fcntl is not None:
            # Not SQLite's kind of lock: neither hinders the other.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.fchmod(descriptor, 0o600)
        yield part
    finally:
        os.close(descriptor)
        _remove(part)


def _name(part: Path, target: Path) -> None:
    """Give a file its name, if there is none of that name."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: two backups to one name at the same moment are not told apart.
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
    """Remove what processes that were killed left of copies to this name."""
    for part in target.parent.glob(f"{glob.escape(target.name)}{_PARTIAL}{'[0-9a-f]' * 8}"):
        with suppress(OSError):
            if fcntl is not None:
                descriptor = os.open(part, os.O_RDWR)
                try:
                    # Held by a process that still writes it.
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                finally:
                    os.close(descriptor)
            _remove(part)


def _remove(part: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        part.with_name(f"{part.name}{suffix}").unlink(missing_ok=True)
