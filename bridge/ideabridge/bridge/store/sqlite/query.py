"""Run SQL that a person wrote at the command line, on a store in SQLite and read-only.

Four things prevent writes: the file is opened for reading, `query_only` is on, an authorizer
refuses everything except reading, and sqlite3 runs only one statement. The SQL cannot attach
another file or load an extension.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ideabridge.bridge.store.errors import QueryError, StoreAccessError, StoreFormatError
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.sqlite.database import APPLICATION_ID
from ideabridge.bridge.store.sqlite.files import file_exists
from ideabridge.tools.names import size_text

MOST_ROWS: Final = 10_000
MOST_RESULT_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of the values in a result, in bytes."""

MOST_SECONDS: Final = 30.0

_MOST_MEMORY: Final = 512 * 1024 * 1024
"""The limit, in bytes, on the memory that SQLite uses in this process from the first query on.
SQLite cannot raise this limit again.
"""

_STEPS: Final = 10_000
"""The number of SQLite instructions that run between two checks of the clock: about a tenth of a
millisecond.
"""

_READING: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)

_FUNCTIONS: Final = frozenset({"load_extension", "fts3_tokenizer"})
"""Functions that load code."""

_ABOUT_TABLES: Final = frozenset(
    {
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
"""Pragmas whose argument is a name. The argument of any other pragma sets something."""

_ABOUT_FILE: Final = frozenset(
    {
        "application_id",
        "collation_list",
        "compile_options",
        "data_version",
        "database_list",
        "encoding",
        "freelist_count",
        "function_list",
        "page_count",
        "page_size",
        "schema_version",
        "user_version",
    }
)
"""Pragmas that can be read without an argument. SQLite's full-text search itself reads
`data_version`.
"""

Value = str | int | float | bytes | None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows that a query returned.

    Attributes:
        columns: the names of the columns, made unique: a second `id` becomes `id_2`.
        rows: the rows, with values in the order of the columns.
        bound: the limit at which reading stopped, such as `10,000 rows`, or "" if all rows were
            read.
    """

    columns: list[str]
    rows: list[tuple[Value, ...]]
    bound: str


class _Authorizer:
    """Allows or refuses each action of a statement while SQLite compiles it.

    Attributes:
        refused: the first refusal, worded as the end of a sentence, or "" if nothing was refused.
    """

    def __init__(self) -> None:
        self.refused = ""

    def __call__(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        source: str | None,
    ) -> int:
        if action == sqlite3.SQLITE_PRAGMA:
            name = (first or "").lower()
            if name in _ABOUT_TABLES or (name in _ABOUT_FILE and second is None):
                return sqlite3.SQLITE_OK
            if second is None:
                self._refuse(f"PRAGMA {name} is refused")
            else:
                self._refuse(f"PRAGMA {name} with a value is refused")
            return sqlite3.SQLITE_DENY

        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
            self._refuse(f"{second}() is refused")
            return sqlite3.SQLITE_DENY
        if action in _READING:
            return sqlite3.SQLITE_OK
        self._refuse("this statement would change something, or reach another file")
        return sqlite3.SQLITE_DENY

    def _refuse(self, what: str) -> None:
        self.refused = self.refused or what


def query(path: Path, sql: str, parameters: Mapping[str, str]) -> QueryResult:
    """Run a single read-only statement over a separate connection. Other processes can use the
    store meanwhile.

    At most `MOST_ROWS` rows and `MOST_RESULT_BYTES` bytes are read. Do not call this in an event
    loop.

    Args:
        path: the file of the store.
        sql: the statement.
        parameters: the values for the statement's `:name` parameters, keyed by name.

    Raises:
        QueryError: the SQL is not a single read-only statement, a parameter is missing or unused,
            or the query takes too long.
        StoreAccessError: the file cannot be read.
        StoreFormatError: the file is not a store.
    """
    for name in parameters:
        if re.search(rf"[:@$]{re.escape(name)}\b", sql) is None:
            raise QueryError(f"the SQL has no parameter :{name[:80]}")

    file_exists(path)
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
    except sqlite3.Error as error:
        raise StoreAccessError(f"{path}: the file cannot be opened: {error}") from None

    with closing(connection):
        _prepare(connection, path)
        return _read(connection, sql, dict(parameters))


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        connection.execute("PRAGMA query_only=ON")
        connection.execute(f"PRAGMA hard_heap_limit={_MOST_MEMORY}")
    except sqlite3.DatabaseError as error:
        raise StoreFormatError(f"{path}: the file cannot be read: {error}") from None

    if application != APPLICATION_ID:
        raise StoreFormatError(f"{path}: the file is not a store of ideas")
    # Another program might have written text that is not UTF-8.
    connection.text_factory = _text


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _read(connection: sqlite3.Connection, sql: str, parameters: dict[str, str]) -> QueryResult:
    from sqlite_utils import Database
    from sqlite_utils.utils import dedupe_keys

    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    authorizer = _Authorizer()
    connection.set_authorizer(authorizer)
    deadline = time.monotonic() + MOST_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        cursor = database.execute(sql, parameters)  # pyright: ignore[reportUnknownMemberType]
        if cursor.description is None:
            raise QueryError(
                "the SQL returns no rows; `store query` runs one statement that reads the store, "
                "such as SELECT"
            )

        columns = list(dedupe_keys(column[0] for column in cursor.description))
        return _collect(columns, cursor)
    except MemoryError:
        raise QueryError(f"the query needs more than {size_text(_MOST_MEMORY)} of memory") from None
    except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError, ValueError) as error:
        if authorizer.refused:
            raise QueryError(f"`store query` only reads the store: {authorizer.refused}") from None
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise QueryError(f"the SQL cannot be run: {error}") from None
        if time.monotonic() <= deadline:
            # Ctrl-C interrupted the process while SQLite was calling the progress handler.
            raise KeyboardInterrupt from None

        raise QueryError(f"the query took longer than {MOST_SECONDS:g} s") from None


def _collect(columns: list[str], cursor: sqlite3.Cursor) -> QueryResult:
    rows: list[tuple[Value, ...]] = []
    size = 0
    for row in cursor:
        if len(rows) == MOST_ROWS:
            return QueryResult(columns, rows, f"{MOST_ROWS:,} rows")
        size += _size(row)
        if size > MOST_RESULT_BYTES:
            return QueryResult(columns, rows, size_text(MOST_RESULT_BYTES))
        rows.append(row)

    return QueryResult(columns, rows, "")


def _size(row: Sequence[Value]) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
