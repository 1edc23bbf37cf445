"""The connections of one process to a store in PostgreSQL.

Concurrency. Every transaction that writes holds the advisory lock `STORE` in shared mode. An
`exclusive` transaction holds it exclusively. It begins after all other transactions have ended, so
it sees every row whose number is smaller than that of the newest row. A plain `transaction`, which
reads rows before it changes them, also holds the lock `CHANGES` exclusively. A `concurrent`
transaction does not need this lock, because its statements lock rows or insert with `ON CONFLICT`.
All locks end with the transaction. PostgreSQL breaks deadlocks by aborting a transaction, which is
repeated as after any `StoreBusyError`.

Lost connections. A transaction that loses its connection before its end has changed nothing: it
raises `StoreAccessError`, after which `Writer` repeats it. If the connection is lost during the
commit, the next connection asks the server whether the transaction with this number was committed.
Therefore, nothing is written twice. A single read is repeated automatically.

As with SQLite, a process uses two connections: one writes and belongs to the thread that is in a
transaction, and the other reads. A pool would not help, because one thread commits writes together,
and reads take tens of microseconds.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper

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
from ideabridge.bridge.store.postgres import schema
from ideabridge.bridge.store.postgres.dialect import bind, bind_many
from ideabridge.bridge.store.postgres.notifier import PostgresNotifier
from ideabridge.bridge.store.postgres.upkeep import PostgresUpkeep
from ideabridge.bridge.store.postgres.words import PostgresWords
from ideabridge.bridge.store.removed_kinds import convert_publications
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import InvalidJSONError

T = TypeVar("T")

Kind = Literal["concurrent", "plain", "exclusive"]

OLDEST: Final = 140000
"""The oldest supported server version: 14."""

_CONNECT_S: Final = 4
"""The time, in seconds, to wait for a connection."""

_DOWN_S: Final = 1.0
"""The time, in seconds, to wait before asking a server again after it has refused a connection."""

_FATE_S: Final = 10.0
"""How long, in seconds, a connection keeps asking whether a transaction was committed."""

_SECRETS: Final = ("password", "sslpassword")
"""Connection settings that an address must not contain."""

_SCHEMA: Final = re.compile("[a-z_][a-z0-9_]{0,62}")

_CAUSES: Final[tuple[tuple[type[psycopg.Error], type[StoreError], str], ...]] = (
    (errors.LockNotAvailable, StoreBusyError, "another process keeps the store locked"),
    (errors.DeadlockDetected, StoreBusyError, "another process is changing the same rows"),
    (errors.SerializationFailure, StoreBusyError, "another process is changing the same rows"),
    (errors.UniqueViolation, StoreBusyError, "another process has added the same row"),
    (errors.TooManyConnections, StoreBusyError, "the server has too many connections"),
    (errors.DiskFull, StoreFullError, "no space is left on the server"),
    (errors.OutOfMemory, StoreFullError, "the server is out of memory"),
    (errors.InsufficientPrivilege, StoreAccessError, "access is not permitted"),
    (errors.InvalidAuthorizationSpecification, StoreAccessError, "the server rejects the user"),
    (errors.InvalidCatalogName, StoreAccessError, "there is no such database"),
    (errors.ReadOnlySqlTransaction, StoreAccessError, "the server allows only reads"),
    (errors.DataCorrupted, StoreFormatError, "the store is damaged"),
    (errors.IndexCorrupted, StoreFormatError, "the store is damaged"),
)


def read_address(text: str) -> tuple[str, str]:
    """Return `(connection string, schema)` for an address of the form
    `postgresql://[USER@]HOST[:PORT]/DATABASE[?schema=NAME&...]`.

    Raises:
        StoreAccessError: the address contains a password or an invalid schema.
    """
    parts = urlsplit(text)
    options = parse_qsl(parts.query, keep_blank_values=True)
    if parts.password is not None or any(key in _SECRETS for key, _ in options):
        raise StoreAccessError(
            f"store: {parts.hostname or 'the address'}: the configuration must not contain a "
            "password; put it in the environment (PGPASSWORD), a password file (~/.pgpass) or a "
            "service file (postgresql:///?service=NAME)"
        )

    name = dict(options).get("schema", "ideabridge")
    if _SCHEMA.fullmatch(name) is None or name.startswith("pg_"):
        raise StoreAccessError(
            f"store: schema {name[:70]!r}: expected a letter from a to z or _, then up to 62 "
            "letters from a to z, digits or _, not beginning with pg_"
        )

    query = urlencode([(key, value) for key, value in options if key != "schema"])
    return urlunsplit(("postgresql", parts.netloc, parts.path, query, "")), name


class PostgresDatabase(Database):
    """A `Database` in a schema of a PostgreSQL server.

    Attributes:
        swept: the number of past sweeps that had deleted contents when the current transaction
            began.
    """

    def __init__(
        self,
        address: str,
        *,
        durability: Durability = "normal",
        busy_timeout_s: float = 5.0,
        conninfo: str | None = None,
    ) -> None:
        """Open a database. If `conninfo` (from `reader` in another process) is given, the database
        is opened read-only.
        """
        super().__init__(busy_timeout_s)
        self._conninfo, self._schema = read_address(address)
        self._only_reads = conninfo is not None
        self._conninfo = conninfo or self._conninfo
        self.path = address
        self.durability = durability
        self.one_writer = False
        self.for_update = " FOR NO KEY UPDATE"
        self.words = PostgresWords(self)
        channel = f"ideabridge_{self._key('notices') & (2**64 - 1):x}"
        self._notices = PostgresNotifier(self._connect, channel)
        self.notifier = self._notices
        self.upkeep = PostgresUpkeep(self, self._conninfo, self._schema)
        self.guard = _Guard(self)
        self.swept = 0
        self.depth = 0
        self.reading: Final = threading.RLock()
        self._kinds: list[Kind] = []
        self._flat = False
        """True while nested transactions create no savepoints. They need none, because after a
        failure each job is repeated separately.
        """
        self._doomed = False
        self._changes_locked = False
        self._writer = 0
        self._transaction_number = ""
        self._closed = False
        self._down_until = 0.0
        self._down = ""
        self._seen = ""
        self._in_snapshot = False
        self._write = self._connect()
        self._read = self._write
        try:
            if not self._only_reads:
                self._prepare()
            self._read = self._connect()
        except BaseException:
            self.close()
            raise

    def reader(self) -> JSONObject | None:
        # Include the password, because the other process might have neither this environment nor a
        # password file.
        info = self._read.info
        members = {**info.get_parameters(), "password": info.password}
        connection = make_conninfo(**{key: value for key, value in members.items() if value})
        return {"address": self.path, "connection": connection}

    # Connections

    def _connect(self) -> psycopg.Connection[Any]:
        if self._closed:
            raise StoreClosedError(f"{self.path}: the store is closed")
        if time.monotonic() < self._down_until:
            raise StoreAccessError(self._down)

        try:
            connection = psycopg.connect(
                self._conninfo,
                autocommit=True,
                connect_timeout=_CONNECT_S,
                keepalives_idle=30,
                tcp_user_timeout=15_000,
                application_name="ideabridge",
            )
        except psycopg.Error as error:
            self._down_until = time.monotonic() + _DOWN_S
            self._down = f"{self.path}: the server cannot be reached: {_first_line(error)}"
            raise StoreAccessError(self._down) from error

        # PostgreSQL selects functions and operators by type, so give all strings the same type, and
        # all numbers.
        connection.adapters.register_dumper(str, StrDumper)
        connection.adapters.register_dumper(int, Int8Dumper)
        # Send arrays in binary form, so that the strings in them need not be escaped.
        connection.adapters.register_dumper(list, ListBinaryDumper)
        if connection.info.server_version < OLDEST:
            version = connection.info.server_version // 10_000
            connection.close()
            raise StoreVersionError(f"{self.path} runs PostgreSQL {version}; expected 14 or later")

        settings = (
            f"SET search_path TO {self._schema}; SET idle_in_transaction_session_timeout = '60s'"
        )
        if self.durability == "full":
            settings += "; SET synchronous_commit = on"

        if self._only_reads:
            settings += "; SET default_transaction_read_only = on"

        try:
            connection.execute(settings.encode())
        except psycopg.Error:
            connection.close()
            raise

        return connection

    def _prepare(self) -> None:
        """Create the schema, or migrate it from an earlier version."""
        with self._translated(), self._write.transaction():
            run = self._write.execute
            run("SELECT pg_advisory_xact_lock(%s)", (self._key("migration"),))
            row = run("SELECT to_regclass(%s)", (f"{self._schema}.counters",)).fetchone()
            if row is None or row[0] is None:
                run(f"CREATE SCHEMA IF NOT EXISTS {self._schema}".encode())
                for statement in schema.CREATE:
                    run(statement.encode())
                return
            row = run("SELECT value FROM counters WHERE key = 'schema'").fetchone()
            version = 0 if row is None else int(row[0])
            if version > schema.VERSION:
                raise StoreVersionError(
                    f"{self.path} was written by a newer ideabridge (store version {version}; "
                    f"this one reads {schema.VERSION}): upgrade ideabridge, or name another store"
                )
            for step in range(version, schema.VERSION):
                for statement in schema.MIGRATIONS[step]:
                    run(statement.encode())
            if version < schema.KINDS:
                convert_publications(self._rows, "%s")
            if version < schema.VERSION:
                run("UPDATE counters SET value = %s WHERE key = 'schema'", (schema.VERSION,))

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        cursor = self._write.execute(sql.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []

    def _key(self, name: str) -> int:
        """Return the number of one of this store's advisory locks."""
        text = f"ideabridge {self._schema} {name}"
        digest = hashlib.sha256(text.encode()).digest()
        return int.from_bytes(digest[:8], signed=True)

    def _is_lost(self, connection: psycopg.Connection[Any]) -> bool:
        return connection.closed or connection.broken

    # Statements

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        statement, bound = bind(sql, parameters)
        if self._writer == get_ident():
            return self._write.execute(statement.encode(), bound)

        if self._is_lost(self._read):
            self._read = self._connect()

        try:
            return self._read.execute(statement.encode(), bound)
        except psycopg.OperationalError:
            if self._in_snapshot or not self._is_lost(self._read):
                raise
            self._read = self._connect()
            return self._read.execute(statement.encode(), bound)

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        if self._writer == get_ident():
            return self.execute(sql, parameters)
        with self.transaction(concurrent=True):
            return self.execute(sql, parameters)

    def insert(self, sql: str, parameters: Sequence[Any] = (), key: str = "number") -> int | None:
        # Put RETURNING last, because a SELECT in the statement that locks rows must come before it.
        row = self.change(f"{sql} RETURNING {key}", parameters).fetchone()
        return None if row is None else int(row[0])

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        listed = [*rows]
        if listed:
            statement, bound = bind_many(sql, listed)
            with self._write.cursor() as cursor:
                cursor.executemany(statement.encode(), bound)

    def using(self, index: str) -> str:
        return ""

    def numbered(self, tables: Sequence[str]) -> None:
        for table in tables:
            self.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), "  # noqa: S608
                f"(SELECT max(number) FROM {table}))"
            )

    def newest_row(self, table: str) -> int:
        with self.exclusive():
            return self.number(f"SELECT max(number) FROM {table}")  # noqa: S608 - a constant

    # Transactions

    def transaction(self, *, concurrent: bool = False) -> _Transaction:
        return _Transaction(self, "concurrent" if concurrent else "plain")

    def exclusive(self) -> _Transaction:
        return _Transaction(self, "exclusive")

    def take_lock(self) -> None:
        """Acquire the write lock. Release it with `lock.release`.

        Raises:
            StoreBusyError: another thread held the lock for longer than this thread's patience.
        """
        if not self.lock.acquire(blocking=False) and not self.lock.acquire(
            timeout=self.patience if self.impatient else -1
        ):
            raise StoreBusyError(f"{self.path}: another thread is writing to it")

    def begin(self, kind: Kind) -> None:
        """Begin a transaction, possibly nested, in the thread that holds the lock."""
        level = len(self._kinds)
        if level == 0:
            self._begin(kind)
        else:
            if kind == "exclusive":
                raise StoreBusyError(f"{self.path}: this process is in a transaction")
            if kind == "plain":
                self._lock_changes()
            if not self._flat:
                self._write.execute(f"SAVEPOINT level{level}".encode())

        self._kinds.append(kind)
        self.depth = level + 1

    def _begin(self, kind: Kind) -> None:
        if self._is_lost(self._write):
            self._write = self._connect()

        seconds = self.patience
        shared = "_shared"
        if kind == "exclusive":
            seconds = max(seconds, self._busy_timeout_s)
            shared = ""

        statement = f"BEGIN; SET LOCAL lock_timeout = {max(1, int(1000 * seconds))}; "
        statement += f"SELECT pg_advisory_xact_lock{shared}({self._key('store')}); "
        if kind == "plain":
            statement += f"SELECT pg_advisory_xact_lock({self._key('changes')}); "

        statement += (
            "SELECT pg_current_xact_id()::text, (SELECT value FROM counters WHERE key = 'swept')"
        )
        try:
            try:
                cursor = self._write.execute(statement.encode())
            except psycopg.OperationalError:
                if not self._is_lost(self._write):
                    raise
                # The connection was lost after the last transaction. This one has done nothing yet,
                # so it can start on a new connection.
                self._write = self._connect()
                cursor = self._write.execute(statement.encode())

            while cursor.nextset():
                pass
            self._transaction_number, swept = cursor.fetchone() or ("", 0)
        except BaseException:
            self._roll_back()
            raise

        self.swept = int(swept or 0)
        self._changes_locked = kind != "concurrent"
        self._notices.forget()
        self._doomed = False
        self._writer = get_ident()

    def _lock_changes(self) -> None:
        if not self._changes_locked:
            self._write.execute("SELECT pg_advisory_xact_lock(%s)", (self._key("changes"),))
            self._changes_locked = True

    def end(self, *, keep: bool) -> None:
        """Commit the innermost transaction if `keep` is true, otherwise roll it back."""
        self._kinds.pop()
        level = self.depth = len(self._kinds)
        if not keep:
            self.voids += 1

        if level > 0:
            self._end_nested(level, keep=keep)
            return

        self._writer = 0
        if not keep:
            self._roll_back()
            return

        if self._doomed:
            self._roll_back()
            self.voids += 1
            raise _DoomedError

        self._commit()

    def _end_nested(self, level: int, *, keep: bool) -> None:
        if self._flat:
            self._doomed = self._doomed or not keep
        elif keep:
            self._write.execute(f"RELEASE level{level}".encode())
        elif not self._is_lost(self._write):
            self._write.execute(f"ROLLBACK TO level{level}; RELEASE level{level}".encode())

    def _commit(self) -> None:
        try:
            self._write.execute(f"{self._notices.statements(self._write)}COMMIT".encode())
        except psycopg.OperationalError:
            if not self._is_lost(self._write) or not self._was_committed(self._transaction_number):
                self.voids += 1
                raise
        except BaseException:
            self.voids += 1
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if not self._is_lost(self._write):
            with suppress(psycopg.Error):
                self._write.execute("ROLLBACK")

    def _was_committed(self, number: str) -> bool:
        """Return whether a transaction was committed although its connection was lost during the
        commit.

        Raises:
            StoreError: the server does not answer, so the outcome is unknown.
        """
        deadline = time.monotonic() + _FATE_S
        while True:
            try:
                if self._is_lost(self._write):
                    self._write = self._connect()
                row = self._write.execute("SELECT pg_xact_status(%s::xid8)", (number,)).fetchone()
            except (StoreAccessError, psycopg.OperationalError) as error:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self.path}: the connection was lost during a commit, and the server "
                        "does not answer: the change may have been written"
                    ) from error
                time.sleep(0.1)
                continue
            status = row[0] if row is not None else None
            if status != "in progress":
                return status == "committed"
            time.sleep(0.01)

    @contextmanager
    def snapshot(self) -> Generator[None]:
        with self.guard:
            if self._writer == get_ident() or self._in_snapshot:
                yield
                return
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._in_snapshot = True
            try:
                yield
            finally:
                self._in_snapshot = False
                if not self._is_lost(self._read):
                    with suppress(psycopg.Error):
                        self._read.execute("ROLLBACK")

    def at_once(self, job: Callable[[], T]) -> T:
        # Refuse to write here, because the caller must not block, and a commit waits for the
        # network and for the server's disk.
        raise StoreBusyError(f"{self.path}: writes go through the writer's thread")

    def commit(self, jobs: Sequence[tuple[str, Callable[[], Any]]]) -> list[Any]:
        self.patience = min(self._busy_timeout_s, 1.0)
        try:
            if len(jobs) > 1:
                # Try without savepoints first, because each costs a round trip to the server.
                with suppress(Exception):
                    return self._together(jobs)
            outcomes: list[Any] = []
            failed: dict[str, Exception] = {}
            for key, job in jobs:
                error = failed.get(key)
                outcome = self._alone(job) if error is None else error
                if isinstance(outcome, PASSING):
                    failed[key] = outcome
                outcomes.append(outcome)
            return outcomes
        finally:
            self.patience = None

    def _together(self, jobs: Sequence[tuple[str, Callable[[], Any]]]) -> list[Any]:
        with self.lock:
            self._flat = True
            try:
                with self.transaction(concurrent=True):
                    return [job() for _, job in jobs]
            finally:
                self._flat = False

    def _alone(self, job: Callable[[], Any]) -> Any:
        try:
            with self.transaction(concurrent=True):
                return job()
        except Exception as error:  # noqa: BLE001 - the caller handles it
            return error

    # Upkeep

    def data_version(self) -> int:
        digest = hashlib.sha256(self._position().encode()).digest()
        return int.from_bytes(digest[:7])

    def revision(self) -> tuple[int, int]:
        return self.data_version(), 0

    def _position(self) -> str:
        """Return the end position of the server's write-ahead log, which grows with every
        commit.
        """
        with self.guard:
            row = self.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        return "" if row is None else str(row[0])

    def close(self) -> None:
        with self.lock, self.reading:
            self._closed = True
            for connection in (self._write, self._read):
                with suppress(psycopg.Error):
                    connection.close()

    # Errors

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeEncodeError) as error:
            self.raise_translated(error)
            raise

    def raise_translated(self, error: BaseException) -> None:
        """Raise the store error that corresponds to a PostgreSQL error, or to text that cannot be
        bound. Ignore any other error.
        """
        if isinstance(error, psycopg.Error):
            raise self.translate(error) from error
        if isinstance(error, UnicodeEncodeError):
            raise InvalidJSONError("text for the store contains half a surrogate pair") from error

    def translate(self, error: psycopg.Error) -> StoreError:
        """Convert a PostgreSQL error to a store error."""
        if self._closed:
            return StoreClosedError(f"{self.path}: the store is closed")

        for cause, kind, reason in _CAUSES:
            if isinstance(error, cause):
                return kind(f"{self.path}: {reason}")

        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreAccessError(
                f"{self.path}: the connection to the server is lost: {_first_line(error)}"
            )

        return StoreError(f"{self.path}: {_first_line(error)}")


class _DoomedError(Exception):
    """Raised when the outer transaction cannot be committed, because a nested transaction without a
    savepoint failed.
    """


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


class _Guard:
    """Holds the lock of the reading connection, and converts errors. Stateless, so each database
    needs only one.
    """

    __slots__ = ("_database",)

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.reading.acquire()

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.reading.release()
        if error is not None:
            self._database.raise_translated(error)


class _Transaction:
    """A transaction, possibly nested. It acquires the write lock when it begins."""

    __slots__ = ("_database", "_kind")

    def __init__(self, database: PostgresDatabase, kind: Kind) -> None:
        self._database = database
        self._kind: Kind = kind

    def __enter__(self) -> None:
        database = self._database
        database.take_lock()
        try:
            database.begin(self._kind)
        except BaseException as error:
            database.lock.release()
            database.raise_translated(error)
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        database = self._database
        try:
            database.end(keep=error is None)
        except psycopg.Error as failure:
            raise database.translate(failure) from failure
        finally:
            database.lock.release()

        if error is not None:
            database.raise_translated(error)
