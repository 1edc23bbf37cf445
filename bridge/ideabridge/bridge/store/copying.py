"""Copy a whole store into another one, between a file and PostgreSQL in either direction.

Rows keep their numbers, so that references to them stay valid. `contents` and `events`, whose rows
never change, are copied in short transactions, and an interrupted copy continues after the last
row. Each attempt clears the target's other tables and copies them again. At the end, the target is
compared with the source: the number of rows in each table, and the id of each idea, recomputed from
the content that the target returns. The indexes of words, tools and shapes are rebuilt.

Until this succeeds, the counter `copying` marks the target, so that an unfinished copy is not
mistaken for a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ideabridge.bridge.store.contents import key_of
from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.errors import StoreCopyError

MARK: Final = "copying"
"""The key of the counter that marks an unfinished copy. Its value is a hash of the source's
location.
"""

_BATCH: Final = 500
"""The number of rows that one transaction copies."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table to copy, and its columns. The first `keys` columns are its primary key."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    def __str__(self) -> str:
        return ", ".join(self.columns)


def _table(name: str, columns: str, keys: int = 1) -> _Table:
    return _Table(name, tuple(columns.split()), keys)


_ADDED: Final = (
    _table("contents", "number hash body"),
    _table("events", "id body at parts"),
)
"""Tables whose rows never change."""

_CHANGED: Final = (
    _table(
        "runs",
        "number id kind caller title fingerprint parent status summary driver epoch lease_until "
        "created updated forked_from forked_at client",
    ),
    _table("ideas", "number id request run step meta schema context solved solution shown"),
    _table("occurrences", "run step idea meta", 3),
    _table("idea_uses", "what time idea", 3),
    _table(
        "publications",
        "number name version idea description answer input_schema output_schema annotations plan "
        "recorded owner time learned",
    ),
    _table("evidence", "number publication record"),
    _table("names", "number name version owner pinned"),
    _table("shares", "caller name since", 2),
    _table("tool_uses", "tool count last"),
    _table("settings", "key value"),
    _table("tool_memory", "number kind key name value time"),
    _table(
        "configuration_changes",
        "number at project process status lines trusted_by trusted_at",
    ),
    _table(
        "direct_calls",
        "number at caller client session name module tool parameters seconds "
        "outcome run bytes_in bytes_out",
    ),
    _table("sessions", "number id caller client session began last count tools"),
    _table("session_calls", "id body"),
    _table("exposed_names", "scope name module tool", 2),
    _table("users", "name role state created issuer subject"),
    _table("user_tokens", 'id "user" hash label created expires revoked used profile'),
)
"""Tables whose rows can change, sorted so that each row refers only to rows copied before it."""

_TABLES: Final = (*_ADDED, *_CHANGED)


@dataclass(frozen=True, slots=True)
class Copied:
    """The number of runs, events, ideas and published names in a copy."""

    runs: int
    events: int
    ideas: int
    names: int


def copy_into(source: Database, target: Database, report: Callable[[str], None]) -> Copied:
    """Copy all tables except the indexes of words, tools and shapes.

    Args:
        source: the store to copy, as it is when the copy begins. Other processes can keep using it.
        target: an empty store, or an unfinished copy of the same source. No other process may use
            it during the copy.
        report: called with the name of each table before the table is copied.

    Raises:
        StoreCopyError: the target has other contents, or differs from the source afterwards.
    """
    _claim(source, target)
    with source.snapshot():
        for table in _ADDED:
            report(table.name)
            _extend(source, target, table)

        for table in reversed(_CHANGED):
            with target.exclusive():
                target.execute(f"DELETE FROM {table.name}")  # noqa: S608 - constants, here and below

        for table in _CHANGED:
            report(table.name)
            for rows in _rows(source, table):
                _insert(target, table, rows)

        _finish(source, target)
        _compare(source, target)

    with target.guard:
        counts = [_count(target, name) for name in ("runs", "events", "ideas", "names")]
    return Copied(*counts)


def expect_whole(database: Database) -> None:
    """Raise `StoreCopyError` if the store is an unfinished copy."""
    with database.guard:
        mark = database.counter(MARK)
    if mark:
        raise StoreCopyError(
            f"{database.path}: this store is the unfinished copy of another store; run `ideabridge "
            "store copy` again to continue"
        )


def release(target: Database) -> None:
    """Remove the mark of an unfinished copy, after the copy is complete and verified."""
    with target.transaction():
        target.execute("DELETE FROM counters WHERE key = ?", (MARK,))


def _claim(source: Database, target: Database) -> None:
    if source.path == target.path:
        raise StoreCopyError(f"{source.path}: a store cannot be copied onto itself")

    origin = int.from_bytes(hashlib.sha256(source.path.encode()).digest()[:7])
    with target.transaction():
        mark = target.counter(MARK)
        if mark not in (0, origin):
            raise StoreCopyError(
                f"{target.path}: this store is the unfinished copy of another store"
            )
        if mark == 0:
            used = [table.name for table in _TABLES if _count(target, table.name)]
            if used:
                raise StoreCopyError(
                    f"{target.path}: the store is not empty (it has {', '.join(used)}); expected a "
                    "new store"
                )

            target.set_counter(MARK, origin)


def _count(database: Database, table: str) -> int:
    return database.number(f"SELECT count(*) FROM {table}")  # noqa: S608


def _rows(
    source: Database, table: _Table, after: tuple[Any, ...] | None = None
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a table in batches, ordered by primary key."""
    key = ", ".join(table.columns[: table.keys])
    order = f"ORDER BY {key} LIMIT {_BATCH}"
    while True:
        if after is None:
            rows = source.execute(f"SELECT {table} FROM {table.name} {order}").fetchall()  # noqa: S608
        else:
            places = ", ".join("?" * table.keys)
            where = f"WHERE ({key}) > ({places})"
            rows = source.execute(
                f"SELECT {table} FROM {table.name} {where} {order}",  # noqa: S608
                after,
            ).fetchall()

        if rows:
            yield rows

        if len(rows) < _BATCH:
            return
        after = rows[-1][: table.keys]


def _insert(target: Database, table: _Table, rows: list[tuple[Any, ...]]) -> None:
    places = ", ".join("?" * len(table.columns))
    with target.exclusive():
        target.many(f"INSERT INTO {table.name}({table}) VALUES ({places})", rows)  # noqa: S608


def _extend(source: Database, target: Database, table: _Table) -> None:
    """Copy the rows that follow the target's last row."""
    with target.guard:
        last = target.number(f"SELECT max({table.columns[0]}) FROM {table.name}")  # noqa: S608
    for rows in _rows(source, table, (last,)):
        _insert(target, table, rows)


def _finish(source: Database, target: Database) -> None:
    """Write the data that is derived from the tables: the word index of published names, the keys
    of contents, and the next free row numbers.
    """
    catalogue = source.counter("catalogue")
    names = target.execute(
        "SELECT names.number, names.name, p.description FROM names "
        "JOIN publications AS p ON p.name = names.name AND p.version = names.version"
    ).fetchall()
    with target.exclusive():
        target.words.remove("publication_words", [row[0] for row in names])
        target.words.add("publication_words", names)
        target.set_counter("catalogue", catalogue)
        if target.one_writer:
            rows = target.execute("SELECT hash, number FROM contents").fetchall()
            target.execute("DELETE FROM content_keys")
            target.many(
                "INSERT INTO content_keys(key, number) VALUES (?1, ?2) "
                "ON CONFLICT(key) DO UPDATE SET number = ?2",
                sorted((key_of(digest), number) for digest, number in rows),
            )
            target.set_counter("keyed", target.number("SELECT max(number) FROM contents"))

        target.numbered([table.name for table in _TABLES if table.columns[0] == "number"])
        target.voids += 1


def _compare(source: Database, target: Database) -> None:
    with target.guard:
        for table in _TABLES:
            source_rows = _count(source, table.name)
            target_rows = _count(target, table.name)
            if source_rows != target_rows:
                raise StoreCopyError(
                    f"{target.path}: {table.name} has {target_rows:,} rows, but {source.path} has "
                    f"{source_rows:,}: rows were deleted there since the copy began; delete the "
                    "copy and start again"
                )
