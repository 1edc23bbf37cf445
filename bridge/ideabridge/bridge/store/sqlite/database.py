"""Open and lock the SQLite file behind a store, run transactions, and convert errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Final, TypeVar

from ideabridge.bridge.store.database import Database, Durability
from ideabridge.bridge.store.errors import (
    PASSING,
    StoreAccessError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreVersionError,
)
from ideabridge.bridge.store.notifier import Notifier
from ideabridge.bridge.store.sqlite import IS_FIXED, schema, sqlite3
from ideabridge.bridge.store.sqlite.files import StoreFiles
from ideabridge.bridge.store.sqlite.upkeep import SqliteUpkeep
from ideabridge.bridge.store.sqlite.watch import FileWatch
from ideabridge.bridge.store.sqlite.words import SqliteWords
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import InvalidJSONError

# -- database --------------------------------------------------------------------------------------

T = TypeVar("T")

APPLICATION_ID: Final = 0x49444541
"""`PRAGMA application_id` of a store: "IDEA"."""

_SHORTEST: Final = 0.001
_LONGEST: Final = 0.05
"""The shortest and the longest pause, in seconds, between two attempts to lock the file."""

_CAUSES: Final[dict[int, tuple[type[StoreError], str]]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "another process keeps the store locked"),
    sqlite3.SQLITE_LOCKED: (StoreBusyError, "the store is locked"),
    sqlite3.SQLITE_NOTADB: (StoreFormatError, "the file is not an SQLite database"),
    sqlite3.SQLITE_CORRUPT: (StoreFormatError, "the store is damaged"),
    sqlite3.SQLITE_FULL: (StoreFullError, "no space is left"),
    sqlite3.SQLITE_READONLY: (StoreAccessError, "the store is read-only"),
    sqlite3.SQLITE_CANTOPEN: (StoreAccessError, "the file cannot be opened"),
    sqlite3.SQLITE_PERM: (StoreAccessError, "access is not permitted"),
    sqlite3.SQLITE_IOERR: (StoreAccessError, "the file system reports an error"),
}


class SqliteDatabase(Database):
    """A `Database` in an SQLite file. A database in memory uses a single connection for both
    writing and reading.

    A writer that finds the file locked by another process sleeps and retries. It holds no lock
    while it sleeps.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        durability: Durability = "normal",
        busy_timeout_s: float = 5.0,
        only_reads: bool = False,
    ) -> None:
        super().__init__(busy_timeout_s)
        self.path = str(path)
        self.durability = durability
        self.one_writer = True
        self.for_update = ""
        self.words = SqliteWords(self)
        self.notifier = Notifier()
        self.depth = 0
        self._writer = 0
        """The thread that is in a transaction, or 0 if no thread is."""
        self._data_version = 0
        self.files = None if self.path == ":memory:" else StoreFiles(Path(path))
        if self.files is not None:
            self.files.prepare()

        self._address = self.path if self.files is None else self.files.address
        self.watch = FileWatch(self.path, self.files)
        with self._translated():
            self.connection = self._connect()
            self.upkeep = SqliteUpkeep(self, self.connection, self.alone)
            self._write = self.connection.execute
            self._read = self._write
            self._reader = self.connection
            self._reading = self.lock
            try:
                self._configure(durability)
                self._migrate()
                if self.files is not None:
                    self._open_reader()

                if only_reads:
                    self._write("PRAGMA query_only=ON")
            except BaseException:
                self._reader.close()
                self.connection.close()
                raise

        if self.files is not None:
            self.files.opened()

        self.guard = _Guard(self)

    def reader(self) -> JSONObject | None:
        return None if self.files is None else {"file": str(self.files.path)}

    def _open_reader(self) -> None:
        # From now on, the writer waits in `_patiently`, so that other threads can acquire its lock.
        self._write("PRAGMA busy_timeout=0")
        self._reader = self._connect()
        self._reading = threading.RLock()
        self._read = self._reader.execute
        self._read("PRAGMA query_only=ON")
        self._read("PRAGMA temp_store=MEMORY")
        self._read("PRAGMA cache_size=-8000")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._address,
            uri=self.files is not None,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    def _configure(self, durability: Durability) -> None:
        run = self.connection.execute
        self._refuse_foreign()
        mode = self._switch_to_wal()
        if mode != "wal" and self.path != ":memory:":
            raise StoreAccessError(
                f"{self.path}: its file system does not support write-ahead logging "
                f"(journal mode is {mode})"
            )

        synchronous = "FULL" if durability == "full" else "NORMAL"
        run(f"PRAGMA synchronous={synchronous}")
        run("PRAGMA foreign_keys=ON")
        run("PRAGMA temp_store=MEMORY")
        run("PRAGMA cache_size=-8000")
        # A checkpoint waits for the disk. With SQLite's default of 1,000 pages, there would be one
        # at every hundredth save. If SQLite has the WAL-reset bug, `committed` makes the
        # checkpoints instead.
        checkpoint_pages = 4000 if IS_FIXED else 0
        run(f"PRAGMA wal_autocheckpoint={checkpoint_pages}")
        run("PRAGMA journal_size_limit=67108864")

    def _refuse_foreign(self) -> None:
        application = self.number("PRAGMA application_id")
        if application == APPLICATION_ID:
            return
        used = application != 0 or self.number("SELECT count(*) FROM sqlite_master") > 0
        # Read the id again, because another process might have created the schema between the two
        # reads. It sets the id in the same transaction.
        if used and self.number("PRAGMA application_id") != APPLICATION_ID:
            raise StoreFormatError(
                f"{self.path}: the file is an SQLite database, but not a store of ideas"
            )

    def _switch_to_wal(self) -> str:
        # Try again, because SQLite reports "locked" without waiting if two processes switch a new
        # file at the same time.
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                return str(self.connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        """Create the schema in a new file, or migrate it from an earlier version."""
        if self._version() == schema.VERSION:
            return
        with _Transaction(self):
            # Another process might have created or migrated the schema since the version was read.
            version = self._version()
            if version == schema.VERSION:
                return
            schema.update(self.connection, version)
            self.connection.execute(f"PRAGMA user_version={schema.VERSION}")
            self.connection.execute(f"PRAGMA application_id={APPLICATION_ID}")

    def _version(self) -> int:
        """Return the version of the file's schema, or 0 if the file is empty.

        Raises:
            StoreVersionError: this version of ideabridge can neither read the file nor migrate it.
        """
        version = self.number("PRAGMA user_version")
        if version > schema.VERSION:
            raise StoreVersionError(
                f"{self.path} was written by a newer ideabridge (store version {version}; this "
                f"one reads {schema.VERSION}): upgrade ideabridge, or name another store"
            )

        if version > 0 and not schema.can_migrate(version):
            raise StoreVersionError(
                f"{self.path} was written by an earlier ideabridge (store version {version}; "
                f"this one reads {schema.VERSION}), from before the first release: export its "
                "ideas with the ideabridge that wrote it (`ideas export`) and import them into "
                "a new store, or name another store"
            )

        return version

    def execute(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> sqlite3.Cursor:
        return (self._write if self._writer == get_ident() else self._read)(sql, parameters)

    def insert(self, sql: str, parameters: Sequence[Any] = (), key: str = "number") -> int | None:
        cursor = self.change(sql, parameters)
        return cursor.lastrowid if cursor.rowcount == 1 else None

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.connection.executemany(sql, rows)

    def using(self, index: str) -> str:
        return f" INDEXED BY {index}"

    def numbered(self, tables: Sequence[str]) -> None:
        """Do nothing, because SQLite finds the largest number on its own."""

    def newest_row(self, table: str) -> int:
        with self.guard:
            return self.number(f"SELECT max(number) FROM {table}")  # noqa: S608 - a constant

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        if self._writer == get_ident():
            return self._write(sql, parameters)
        self.take_lock()
        try:
            self.watch.look(self.connection)
            cursor = self._patiently(sql, parameters)
            self.watch.committed(self.connection)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            self.raise_translated(error)
            raise
        finally:
            self.lock.release()

        return cursor

    def take_lock(self) -> None:
        """Acquire the write lock. Release it with `lock.release`.

        Raises:
            StoreBusyError: another thread held the lock for longer than this thread's patience.
        """
        # Give up early only in the event loop's thread, because transactions in other threads can
        # take a long time.
        if not self.lock.acquire(blocking=False) and not self.lock.acquire(
            timeout=self.patience if self.impatient else -1
        ):
            raise StoreBusyError(f"{self.path}: another thread is writing to it")

    def _patiently(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement that begins to write, waiting while another process keeps the file
        locked.

        The caller holds the lock exactly once, and each pause releases it.
        """
        deadline = -1.0
        pause = _SHORTEST
        while True:
            try:
                return self._write(sql, parameters)
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                deadline = now + self.patience if deadline < 0 else deadline
                if _code(error) != sqlite3.SQLITE_BUSY or now >= deadline:
                    raise
                self.lock.release()
                try:
                    time.sleep(min(pause, deadline - now))
                    pause = min(2 * pause, _LONGEST)
                finally:
                    self.lock.acquire()

    def lock_for_reading(self) -> threading.RLock:
        """Return the lock of the connection that `execute` uses in this thread."""
        return self.lock if self._writer == get_ident() else self._reading

    def connection_for_reading(self) -> sqlite3.Connection:
        """Return the connection that `execute` uses in this thread, outside a transaction."""
        return self.connection if self._writer == get_ident() else self._reader

    def data_version(self) -> int:
        if not self.lock.acquire(blocking=False):
            return self._data_version

        try:
            self.watch.look(self.connection)
            self._data_version = int(self._write("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise self.translate(error) from error
        finally:
            self.lock.release()

        return self._data_version

    def revision(self) -> tuple[int, int]:
        # The first number counts commits by the writing connection and by other processes, as the
        # reading connection sees them. In a store in memory, only the second number changes.
        with self.guard:
            return self.number("PRAGMA data_version"), self.connection.total_changes

    def begin(self, level: int) -> None:
        """Begin a transaction, possibly nested, in the thread that holds the lock."""
        if level == 0:
            self._patiently("BEGIN IMMEDIATE")
            self._writer = get_ident()
        else:
            self._write(f"SAVEPOINT level{level}")
        self.depth = level + 1

    def leave(self, level: int) -> None:
        """Record that a transaction has ended."""
        self.depth = level
        if level == 0:
            self._writer = 0

    def at_once(self, job: Callable[[], T]) -> T:
        if not self.lock.acquire(blocking=False):
            raise StoreBusyError(f"{self.path}: another thread is writing to it")

        before = self.patience if self.impatient else None
        self.patience = 0.0
        try:
            return job()
        finally:
            self.patience = before
            self.lock.release()

    def commit(self, jobs: Sequence[tuple[str, Callable[[], Any]]]) -> list[Any]:
        self.patience = 0.0
        try:
            try:
                with self.transaction():
                    return [self._attempt(job) for _, job in jobs]
            except StoreBusyError as error:
                return [error] * len(jobs)
            except Exception as error:  # noqa: BLE001 - the caller handles it
                if len(jobs) == 1:
                    return [error]
            outcomes: list[Any] = []
            failed: dict[str, Exception] = {}
            for key, job in jobs:
                error = failed.get(key)
                outcome = self.commit([(key, job)])[0] if error is None else error
                if isinstance(outcome, PASSING):
                    failed[key] = outcome
                outcomes.append(outcome)
            return outcomes
        finally:
            self.patience = None

    def _attempt(self, job: Callable[[], Any]) -> Any:
        try:
            with self.transaction():
                return job()
        except PASSING:
            # SQLite might have rolled back the whole transaction.
            raise
        except Exception as error:
            if not self.connection.in_transaction:
                raise
            return error

    def transaction(self, *, concurrent: bool = False) -> _Transaction:
        return _Transaction(self)

    @contextmanager
    def snapshot(self) -> Generator[None]:
        with self.guard:
            connection = self.connection_for_reading()
            if connection.in_transaction:
                yield
                return
            connection.execute("BEGIN")
            try:
                yield
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def exclusive(self) -> Generator[None]:
        # Turn foreign keys off, because SQLite would otherwise search whole tables at each
        # deletion. A transaction that is waiting releases the lock once; `alone` holds it a second
        # time, so that no other thread runs while the checks are off.
        with self.alone():
            self._write("PRAGMA foreign_keys=OFF")
            try:
                with self.transaction():
                    yield
            finally:
                self._write("PRAGMA foreign_keys=ON")

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keep other threads from writing while the caller runs statements on `connection` outside
        a transaction.

        These statements hold the lock while they wait for other processes, so use this method only
        for maintenance outside the event loop's thread.
        """
        with self.lock, self._translated():
            if self._reader is not self.connection:
                self._write(f"PRAGMA busy_timeout={int(self._busy_timeout_s * 1000)}")
            try:
                yield
            finally:
                if self._reader is not self.connection:
                    self._write("PRAGMA busy_timeout=0")

    def close(self) -> None:
        # Use the locks themselves, because `guard` and `alone` would raise an error if the files
        # were gone.
        with self.lock, self._reading:
            if self._reader is not self.connection:
                self._reader.close()
            self.connection.close()

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Convert the errors of statements outside `guard` and `transaction`, which convert errors
        themselves because that is faster.
        """
        try:
            yield
        except (sqlite3.Error, UnicodeEncodeError) as error:
            self.raise_translated(error)
            raise

    def raise_translated(self, error: BaseException) -> None:
        """Raise the store error that corresponds to an SQLite error, or to text that cannot be
        bound. Ignore any other error.
        """
        if isinstance(error, sqlite3.Error):
            raise self.translate(error) from error
        if isinstance(error, UnicodeEncodeError):
            raise InvalidJSONError("text for the store contains half a surrogate pair") from error

    def translate(self, error: sqlite3.Error) -> StoreError:
        """Convert an SQLite error to a store error."""
        if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
            return StoreClosedError(f"{self.path}: the store is closed")

        cause = _CAUSES.get(_code(error))
        if cause is None:
            return StoreError(f"{self.path}: {error}")

        kind, reason = cause
        if kind is StoreBusyError and self.patience > 0:
            waited = f" (waited {self.patience:g} s)"
        else:
            waited = ""

        return kind(f"{self.path}: {reason}{waited}")


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code of an SQLite error, or 0 for an error without a code."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


class _Guard:
    """Holds the lock of the reading connection, and converts errors. Stateless, so each database
    needs only one.
    """

    __slots__ = ("_database",)

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def __enter__(self) -> None:
        database = self._database
        lock = database.lock_for_reading()
        lock.acquire()
        try:
            database.watch.look(database.connection_for_reading())
        except BaseException:
            lock.release()
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.lock_for_reading().release()
        if error is not None:
            self._database.raise_translated(error)


class _Transaction:
    """A transaction, possibly nested. It acquires the write lock when it begins."""

    __slots__ = ("_database", "_level")

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._level = 0

    def __enter__(self) -> None:
        database = self._database
        database.take_lock()
        try:
            database.watch.look(database.connection)
            self._level = database.depth
            database.begin(self._level)
        except BaseException as error:
            try:
                # Roll back here, because nothing else would release the file's lock if the thread
                # was interrupted just after getting it.
                if self._level == 0 and database.connection.in_transaction:
                    database.connection.execute("ROLLBACK")
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
                        database.watch.committed(database.connection)
                except sqlite3.Error:
                    self._undo()
                    raise
            else:
                self._undo()
        except sqlite3.Error as failure:
            raise database.translate(failure) from failure
        finally:
            database.leave(level)
            database.lock.release()

        if error is not None:
            database.raise_translated(error)

    def _undo(self) -> None:
        database = self._database
        database.voids += 1
        # After a full disk or an I/O error, SQLite has already rolled back.
        if not database.connection.in_transaction:
            return
        if self._level == 0:
            database.execute("ROLLBACK")
        else:
            database.execute(f"ROLLBACK TO level{self._level}")
            database.execute(f"RELEASE level{self._level}")
