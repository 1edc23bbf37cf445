"""The interface through which the tables of a store use SQLite or PostgreSQL.

The classes of the tables (`Journal`, `Ideas`, `Publications`, ...) write SQL that both databases
accept. Where the databases differ, there is a method here. The rules of that SQL:

- Parameters are `?`, or `?1`, `?2`, ... if one is used more than once.
- `INSERT ... ON CONFLICT`, never `INSERT OR ...`. A column that its `UPDATE` reads is written as
  `table.column`.
- A subquery in FROM has a name. A condition is a comparison, never a number. NULLs are ordered
  by `NULLS LAST`.
- Lists of values are JSON arrays, read with `json_each(?)`. Its `value` is cast to BIGINT where it
  is a number.
- The functions of SQLite that PostgreSQL lacks (`json_extract`, `json_type`, `instr`, `hex`, ...)
  are functions of the PostgreSQL schema.

The transactions:

| | in the meantime, others ... |
|---|---|
| `transaction(concurrent=True)` | can write, too: the statements must be correct even if others change the same rows |
| `transaction()` | can read, and can write in concurrent transactions |
| `exclusive()` | can only read: every earlier write is visible, and none is in progress |

SQLite allows one writer at a time, so all three are exclusive there.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from ideabridge.bridge.store.errors import StorePlaceError
from ideabridge.bridge.store.notifier import Notifier
from ideabridge.tools.encoding import JSONObject

T = TypeVar("T")

Durability = Literal["normal", "full"]

SOLUTION_OF: Final = (
    "CASE WHEN ideas.solved IS NULL THEN ideas.solution "
    "ELSE (SELECT body FROM whole_contents AS solved WHERE solved.number = ideas.solved) END"
)
"""SQL that reads the text of an idea's Solution, either from the idea's own row or from the content
shared with the journal of its run.
"""


def is_address(place: str) -> bool:
    """Return whether a store's location is a PostgreSQL database rather than a file."""
    return place.startswith(("postgresql://", "postgres://"))


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def check_store_place(place: str) -> None:
    """Raise `StorePlaceError` if a store's location is neither a file nor a PostgreSQL database.

    The message contains no part of an address, because an address can contain a password.
    """
    expected = "expected the path of a file, or postgresql://USER@HOST/DATABASE"
    if place == ":memory:":
        raise StorePlaceError(f"{place} would lose everything when the command ends; {expected}")
    if "\0" in place:
        raise StorePlaceError(f"the path contains a NUL character; {expected}")

    scheme = _SCHEME.match(place)
    if scheme is not None and not is_address(place):
        raise StorePlaceError(f"{scheme[1]}:// is not a supported kind of store; {expected}")


def number_list(numbers: Iterable[int]) -> str:
    """Return row numbers as the JSON text that a statement reads with `json_each`."""
    return f"[{','.join(map(str, numbers))}]"


# -- times -----------------------------------------------------------------------------------------

_AGE: Final = re.compile(r"(\d{1,5})\s*([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def now_text() -> str:
    """Return the current time as ISO 8601 in UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def time_text(at: float) -> str:
    """Format a time in seconds since 1970 like `now_text`. Times before 1970 become 1970."""
    return datetime.fromtimestamp(max(at, 0.0), UTC).isoformat(timespec="milliseconds")


def read_time(text: str, now: datetime | None = None, direction: Literal[-1, 0, 1] = 0) -> datetime:
    """Parse a date, a time (in UTC if it has no time zone), or an age such as `3d`, `12h` or `2w`.

    Args:
        text: the text to parse.
        now: the time that ages are relative to, or None for the current time.
        direction: -1 if ages lie in the past, 1 if they lie in the future, 0 to reject ages.

    Raises:
        ValueError: the text has none of these forms.
    """
    age = _AGE.fullmatch(text) if direction else None
    try:
        if age is not None:
            return (now or datetime.now(UTC)) + direction * timedelta(
                **{_UNITS[age[2]]: int(age[1])}
            )
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from error


# -- words -----------------------------------------------------------------------------------------


WordTable: TypeAlias = Literal["idea_words", "idea_words_new", "publication_words"]
"""The tables of the full-text index. Their names are constants, so they can be put into SQL.
`idea_words_new` exists only during a rebuild, and then replaces `idea_words`.
"""


class WordIndex(ABC):
    """The full-text index: the tables `idea_words` (title, tools, body) and `publication_words`
    (name, description).

    Words consist of letters and digits only. Callers must hold a transaction or the guard.
    """

    @abstractmethod
    def add(self, table: WordTable, rows: Sequence[tuple[int | str, ...]]) -> None:
        """Index rows of text. Each entry is `(row, text of each column)`."""

    @abstractmethod
    def remove(self, table: WordTable, rows: Sequence[int]) -> bool:
        """Remove rows from the index. Return False if this index cannot remove rows, so that it
        must be rebuilt without them later.
        """

    @abstractmethod
    def count(self, table: WordTable, word: str, most: int) -> int:
        """Return the number of rows that contain a word, or `most` if there are more."""

    @abstractmethod
    def best(
        self, table: WordTable, words: Sequence[str], limit: int, *, every: bool
    ) -> list[tuple[int, float]]:
        """Return `(row, score)` for the rows that contain all of the words (`every`), or at least
        one of them, best first.
        """

    @abstractmethod
    def newest(
        self,
        table: WordTable,
        words: Sequence[str],
        limit: int,
        *,
        every: bool,
        begins: bool = False,
    ) -> list[tuple[int, float]]:
        """Return `(row, 0.0)` for the newest rows that contain all of the words (`every`), or at
        least one of them. If `begins` is set, the words are matched as prefixes.
        """

    def begin_rebuild(self) -> None:
        """Create an empty table `idea_words_new`, if this index cannot remove rows. Call this
        inside a transaction.
        """
        raise NotImplementedError

    def end_rebuild(self) -> None:
        """Replace `idea_words` with `idea_words_new`. Call this inside a transaction."""
        raise NotImplementedError


# -- upkeep ----------------------------------------------------------------------------------------


class Upkeep(ABC):
    """Database maintenance: version, size, backups and vacuuming."""

    @abstractmethod
    def engine(self) -> str:
        """Return the name and version of the database in human-readable form."""

    @abstractmethod
    def used_bytes(self) -> int:
        """Return the number of bytes in use. For a file, this is the size that it has after a
        vacuum.
        """

    @abstractmethod
    def back_up(self, target: Path) -> int:
        """Copy the store into a new file, even while it is in use. Return the size of the copy in
        bytes.

        The copy of a PostgreSQL store is an archive for pg_restore.

        Raises:
            StoreAccessError: the file already exists or cannot be written, or if pg_dump fails.
            StoreExtraError: PostgreSQL's programs are not installed.
            StoreFormatError: the store is damaged.
        """

    @abstractmethod
    def vacuum(self) -> tuple[int, int]:
        """Return free space to the file system. Other users of the store wait until this is done.

        Returns:
            The size of the store in bytes, before and after.
        """


# -- database --------------------------------------------------------------------------------------


class ResultRows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None after the last."""

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(ABC):
    """A database, with one connection for writing and another one for reading that never waits for
    a writer.

    Reads run inside `guard` or `snapshot`, and writes inside `transaction` or `change`. All four
    hold the lock of their connection, and convert database errors to the store's errors. Reads
    inside a transaction see its writes.

    Attributes:
        path: the file, ":memory:", or the address of the server without credentials.
        durability: `normal` if writes survive a crash of the process, `full` if they also survive a
            power failure.
        one_writer: True if only one transaction at a time can write.
        for_update: SQL to append to a SELECT, which locks its rows until the transaction ends.
        voids: the number of events that invalidate remembered row numbers: transactions that this
            process rolled back, and its deletions.
        lock: the lock that a thread holds during a write transaction.
        guard: the lock for reads: `with database.guard:`.
        words: the full-text index.
        notifier: notifies other processes.
        upkeep: database maintenance: size, backups, vacuuming.
    """

    path: str
    durability: Durability
    one_writer: bool
    for_update: str
    guard: AbstractContextManager[None]
    words: WordIndex
    notifier: Notifier
    upkeep: Upkeep

    def __init__(self, busy_timeout_s: float) -> None:
        self.voids: int = 0
        self.lock = threading.RLock()
        self._busy_timeout_s = busy_timeout_s
        self._of_thread = threading.local()

    @abstractmethod
    def reader(self) -> JSONObject | None:
        """Return what another process needs to open a read-only connection, or None if no other
        process can open one.
        """

    # Statements

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> ResultRows:
        """Run a statement. Reads must run inside `guard`, writes inside `transaction`."""

    @abstractmethod
    def change(self, sql: str, parameters: Sequence[Any] = ()) -> ResultRows:
        """Run one statement that writes, in a transaction of its own if none is open."""

    @abstractmethod
    def insert(self, sql: str, parameters: Sequence[Any] = (), key: str = "number") -> int | None:
        """Run an INSERT in the same way as `change`. Return the number of the new row, from the
        column `key`, or None if nothing was inserted.
        """

    @abstractmethod
    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement that writes once for each row of parameters. Call this inside a
        transaction.
        """

    def number(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Return the integer that a query yields, or 0 if it yields NULL or no row. Call this
        inside `guard` or `transaction`.
        """
        row = self.execute(sql, parameters).fetchone()
        return 0 if row is None or row[0] is None else int(row[0])

    @abstractmethod
    def using(self, index: str) -> str:
        """Return SQL that makes SQLite use the given index when it follows the name of a table."""

    @abstractmethod
    def newest_row(self, table: str) -> int:
        """Return the largest row number in a table. Rows that are added later have larger
        numbers.
        """

    @abstractmethod
    def numbered(self, tables: Sequence[str]) -> None:
        """Make the numbers of new rows in these tables continue after the largest number. Call this
        after inserting rows with explicit numbers.
        """

    # Counters

    def counter(self, key: str) -> int:
        """Return the value of a counter in `counters`, or 0 if it was never set. Call this inside a
        guard or transaction.
        """
        return self.number("SELECT value FROM counters WHERE key = ?", (key,))

    def set_counter(self, key: str, value: int) -> None:
        """Set a counter in `counters`. Call this inside a transaction."""
        self.execute(
            "INSERT INTO counters(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE "
            "SET value = ?2",
            (key, value),
        )

    def count(self, key: str, more: int) -> None:
        """Add `more` to a counter in `counters`. Call this inside a transaction."""
        self.execute(
            "INSERT INTO counters(key, value) VALUES (?1, ?2) "
            "ON CONFLICT(key) DO UPDATE SET value = counters.value + ?2",
            (key, more),
        )

    # Transactions

    @abstractmethod
    def transaction(self, *, concurrent: bool = False) -> AbstractContextManager[None]:
        """Return a context manager that commits everything in its block or nothing.

        If a nested transaction fails, only the nested transaction is rolled back.
        """

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """Return a transaction during which nobody else can write.

        Foreign keys are not checked, so callers must delete the rows that refer to deleted rows.
        Do not call this inside another transaction.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Return a context manager within which all reads see the same state of the store."""

    @abstractmethod
    def at_once(self, job: Callable[[], T]) -> T:
        """Run a job that writes, without waiting for locks.

        Raises:
            StoreBusyError: another thread or process is writing. The job has changed nothing.
        """

    @abstractmethod
    def commit(self, jobs: Sequence[tuple[str, Callable[[], Any]]]) -> list[Any]:
        """Run jobs that write, without waiting for locks: all of them in one transaction or, if
        that fails, each in a separate transaction.

        Args:
            jobs: pairs `(key, job)`. If a job fails to write, later jobs with the same key are
                skipped.

        Returns:
            The result of each job, or its error. A job with an error has changed nothing.
        """

    # Waiting

    @property
    def busy_timeout_s(self) -> float:
        """The number of seconds that a thread waits for another process's lock by default."""
        return self._busy_timeout_s

    @property
    def impatient(self) -> bool:
        """Whether the patience of this thread is set."""
        return hasattr(self._of_thread, "patience")

    @property
    def patience(self) -> float:
        """The number of seconds that this thread waits for another process's lock before it raises
        `StoreBusyError`.
        """
        return getattr(self._of_thread, "patience", self._busy_timeout_s)

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        """Set the patience of this thread. None restores `busy_timeout_s`."""
        if seconds is None:
            if self.impatient:
                del self._of_thread.patience
        else:
            self._of_thread.patience = seconds

    def wait_no_longer(self) -> None:
        """Stop waiting for the locks of other processes."""
        self._busy_timeout_s = 0.0

    # Changes by others

    @abstractmethod
    def data_version(self) -> int:
        """Return a number that changes whenever another process writes to the store.

        To keep polling cheap, this method never waits: while a thread in this process is writing,
        it returns the last known number.
        """

    @abstractmethod
    def revision(self) -> tuple[int, int]:
        """Return two numbers, at least one of which changes with every commit by any process."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections. Closing twice has no effect."""
