"""Database: the SQLite file behind the store: opening, locking, transactions, and errors by cause (DESIGN 7)."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from ideabridge.bridge.ideas.checkpoint import COMMITS, Checkpointer, existing
from ideabridge.bridge.ideas.errors import (
    StoreAccessError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreVersionError,
)
from ideabridge.bridge.ideas.migrations import MIGRATIONS
from ideabridge.bridge.ideas.sqlite import IS_FIXED, sqlite3
from ideabridge.tools.errors import InvalidJSONError

APPLICATION_ID: Final = 0x49444541
"""`PRAGMA application_id` of a store: "IDEA"."""

_SMALLEST: Final = 512
"""Bytes of the smallest page, and so of the smallest file, of SQLite."""

_CAUSES: Final[dict[int, tuple[type[StoreError], str]]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "another process keeps it locked"),
    sqlite3.SQLITE_LOCKED: (StoreBusyError, "it is locked"),
    sqlite3.SQLITE_NOTADB: (StoreFormatError, "it is not an SQLite file"),
    sqlite3.SQLITE_CORRUPT: (StoreFormatError, "it is damaged"),
    sqlite3.SQLITE_FULL: (StoreFullError, "there is no room left"),
    sqlite3.SQLITE_READONLY: (StoreAccessError, "it can only be read"),
    sqlite3.SQLITE_CANTOPEN: (StoreAccessError, "it cannot be opened"),
    sqlite3.SQLITE_PERM: (StoreAccessError, "access is not permitted"),
    sqlite3.SQLITE_IOERR: (StoreAccessError, "the file system reports an error"),
}


def now_text() -> str:
    """The time now, ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Database:
    """One connection to the store, for one thread at a time.

    Every statement runs inside `guard` (reads and single statements) or `transaction` (several statements that
    are one). Both hold the lock and turn SQLite's errors into the store's.
    """

    def __init__(
        self, path: Path | str, *, durability: Literal["normal", "full"] = "normal", busy_timeout_s: float = 5.0
    ) -> None:
        self.path = str(path)
        self.depth = 0
        self.voids = 0
        """Counts what makes row numbers that were remembered void: rolled back transactions, deletions of ours."""
        self.lock = threading.RLock()
        self._busy_timeout_s = busy_timeout_s
        self._commits = 0
        self._checkpointer = Checkpointer(self.path)
        kept = self.path != ":memory:"
        if kept:
            _prepare(Path(path))
        with _Connecting(self):
            self.connection = sqlite3.connect(
                existing(self.path) if kept else self.path,
                uri=kept,
                timeout=busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            self.execute = self.connection.execute
            try:
                self._configure(durability)
                self._migrate()
            except BaseException:
                self.connection.close()
                raise
        self.guard = _Guard(self)

    def _configure(self, durability: Literal["normal", "full"]) -> None:
        run = self.connection.execute
        self._refuse_foreign()
        mode = self._switch_to_wal()
        if mode != "wal" and self.path != ":memory:":
            raise StoreAccessError(
                f"{self.path}: its file system does not support write-ahead logging (journal mode is {mode})"
            )
        run(f"PRAGMA synchronous={'FULL' if durability == 'full' else 'NORMAL'}")
        run("PRAGMA foreign_keys=ON")
        run("PRAGMA temp_store=MEMORY")
        run("PRAGMA cache_size=-8000")
        # Checkpoints are the Checkpointer's. A commit does one itself only where that cannot keep up, and where none of
        # another process can make it dangerous.
        run(f"PRAGMA wal_autocheckpoint={16000 if IS_FIXED else 0}")
        run("PRAGMA journal_size_limit=67108864")

    def _refuse_foreign(self) -> None:
        application = self.number("PRAGMA application_id")
        if application == APPLICATION_ID:
            return
        used = application != 0 or self.number("SELECT count(*) FROM sqlite_master") > 0
        # Another process's first open sets both inside one transaction; it may have come between the two readings.
        if used and self.number("PRAGMA application_id") != APPLICATION_ID:
            raise StoreFormatError(f"{self.path}: it is an SQLite file, but not a store of ideas")

    def _switch_to_wal(self) -> str:
        # Two processes that switch a new file at once: SQLite answers "locked" without waiting.
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                return str(self.connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        latest = len(MIGRATIONS)
        if self._version(latest) == latest:
            return
        with _Transaction(self):
            version = self._version(latest)
            for migration in MIGRATIONS[version:]:
                migration(self.connection)
            self.connection.execute(f"PRAGMA user_version={latest}")
            self.connection.execute(f"PRAGMA application_id={APPLICATION_ID}")

    def _version(self, latest: int) -> int:
        version = self.number("PRAGMA user_version")
        if version > latest:
            raise StoreVersionError(
                f"{self.path}: written by a newer ideabridge (store version {version}; this one knows {latest}): "
                "upgrade ideabridge, or name another store"
            )
        return version

    def number(self, sql: str, parameters: tuple[Any, ...] = ()) -> int:
        """The whole number a query answers with; 0 for no row or NULL. Inside `guard` or `transaction`."""
        row = self.connection.execute(sql, parameters).fetchone()
        return 0 if row is None or row[0] is None else int(row[0])

    def count(self, key: str, more: int) -> None:
        """Add to one of the `counters`. Inside a transaction."""
        self.execute(
            "INSERT INTO counters(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE SET value = value + ?2",
            (key, more),
        )

    def transaction(self) -> _Transaction:
        """`with database.transaction():` all or nothing. Nests: an inner one that fails undoes only itself."""
        return _Transaction(self)

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """`with database.snapshot():` several reads of one state of the store, whatever others write meanwhile."""
        with self.guard:
            if self.connection.in_transaction:
                yield
                return
            self.execute("BEGIN")
            try:
                yield
            finally:
                if self.connection.in_transaction:
                    self.execute("ROLLBACK")

    @contextmanager
    def unchecked(self) -> Generator[None]:
        """A transaction in which whoever deletes a row answers for what refers to it: SQLite would search whole tables
        for that. Not inside another.
        """
        with self.guard:
            self.execute("PRAGMA foreign_keys=OFF")
            try:
                with self.transaction():
                    yield
            finally:
                self.execute("PRAGMA foreign_keys=ON")

    def wait_no_longer(self) -> None:
        """From now on, do not wait for the lock of another process."""
        with self.guard:
            self._busy_timeout_s = 0.0
            self.execute("PRAGMA busy_timeout=0")

    def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        self._checkpointer.stop()
        with self.guard:
            self.connection.close()

    def committed(self) -> None:
        """Count a commit; told by whoever commits, with the lock held."""
        self._commits += 1
        if self._commits % COMMITS == 0 and self.path != ":memory:":
            self._checkpointer.want()

    def raise_translated(self, error: BaseException) -> None:
        """Raise the store's error for an error of SQLite or of binding text; do nothing for any other."""
        if isinstance(error, sqlite3.Error):
            raise self.translate(error) from error
        if isinstance(error, UnicodeEncodeError):
            raise InvalidJSONError("text for the store holds half a surrogate pair") from error

    def translate(self, error: sqlite3.Error) -> StoreError:
        """The store's error for an SQLite error, by its cause."""
        if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
            return StoreClosedError(f"{self.path}: the store is closed")
        cause = _CAUSES.get(_code(error))
        if cause is None:
            return StoreError(f"{self.path}: {error}")
        kind, why = cause
        waited = f" (waited {self._busy_timeout_s:g} s)" if kind is StoreBusyError else ""
        return kind(f"{self.path}: {why}{waited}")


def _code(error: sqlite3.Error) -> int:
    """The primary result code of an SQLite error; 0 where it has none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _prepare(path: Path) -> None:
    """See that the file is there and can be written, and that it and its log are their owner's alone.

    The file is never opened where it exists: closing any file descriptor of a file gives up all locks of the process on
    it, those of another open store too (https://sqlite.org/howtocorrupt.html, 2.2). What is in it, SQLite looks at.

    Raises:
        StoreAccessError, StoreFormatError.
    """
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
        _make_private(path)
    except OSError as error:
        raise StoreAccessError(f"{path}: it cannot be opened: {error.strerror or error}") from None


def _make_private(path: Path) -> None:
    """Give the files of a store mode 0600, where they are ours: SQLite makes new ones with the mode of the first."""
    for file in files_of(path):
        with suppress(FileNotFoundError, PermissionError):
            if stat.S_IMODE(file.stat().st_mode) != 0o600 and file.is_file():
                file.chmod(0o600)


def files_of(path: Path) -> list[Path]:
    """The file of a store, its log, and the log's index: SQLite keeps them where a symbolic link points to."""
    file = path.resolve()
    return [file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")]


class _Connecting:
    """Translates the errors of opening, when there is no guard yet."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._database.raise_translated(error)


class _Guard:
    """Holds the lock and translates errors. One per database: it keeps no state of its own."""

    __slots__ = ("_acquire", "_database", "_release")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._acquire = database.lock.acquire
        self._release = database.lock.release

    def __enter__(self) -> None:
        self._acquire()

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._release()
        if error is not None:
            self._database.raise_translated(error)


class _Transaction:
    """One (possibly nested) transaction; takes the write lock at its beginning."""

    __slots__ = ("_database", "_level")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._level = 0

    def __enter__(self) -> None:
        database = self._database
        database.lock.acquire()
        try:
            self._level = database.depth
            database.execute("BEGIN IMMEDIATE" if self._level == 0 else f"SAVEPOINT level{self._level}")
            database.depth = self._level + 1
        except BaseException as error:
            try:
                # Interrupted while it waited for the lock, and then got it: nobody would give it back.
                if self._level == 0 and database.connection.in_transaction:
                    database.execute("ROLLBACK")
            except sqlite3.Error as failure:
                raise database.translate(failure) from error
            finally:
                database.lock.release()
            database.raise_translated(error)
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        database = self._database
        level = self._level
        try:
            if error is None:
                try:
                    database.execute("COMMIT" if level == 0 else f"RELEASE level{level}")
                    if level == 0:
                        database.committed()
                except sqlite3.Error:
                    self._undo()
                    raise
            else:
                self._undo()
        except sqlite3.Error as failure:
            raise database.translate(failure) from failure
        finally:
            database.depth = level
            database.lock.release()
        if error is not None:
            database.raise_translated(error)

    def _undo(self) -> None:
        database = self._database
        database.voids += 1
        # After a full disk or an I/O error SQLite has rolled everything back by itself.
        if not database.connection.in_transaction:
            return
        if self._level == 0:
            database.execute("ROLLBACK")
        else:
            database.execute(f"ROLLBACK TO level{self._level}")
            database.execute(f"RELEASE level{self._level}")
