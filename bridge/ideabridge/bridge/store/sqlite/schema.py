"""The tables, indexes and views of a store (`docs/store.md`), and the migrations.

sqlite-utils creates the tables. This module takes 0.1 s to import, and only a new store, or one of
an earlier version, needs it.

To change a table or index, add a function at the end of `MIGRATIONS`. Never change an earlier
function: a new store is created in the first version and then migrated like any other, so that all
stores of one version have the same schema. Views do not hold data, so each migration ends by
creating the current views. If only views change, add a migration that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, Final

from ideabridge.bridge.store.database import SOLUTION_OF
from ideabridge.bridge.store.removed_kinds import convert_publications
from ideabridge.bridge.store.sqlite import sqlite3

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.db import Table

Migration = Callable[["Database"], None]
"""A migration step to the next version. It runs in a transaction and must not commit; transactions
that sqlite-utils begins on its own become savepoints.
"""

FIRST: Final = 25
"""The version that `_create_first` creates. Stores of earlier versions are rejected."""


def _add_shown_and_ropes(database: Database) -> None:
    database.table("ideas").add_column("shown", int)
    database.conn.execute(
        "CREATE INDEX contents_ropes ON contents(number) WHERE substr(body, 1, 1) = '~'"
    )


def _convert_removed_kinds(database: Database) -> None:
    connection = database.conn
    convert_publications(lambda sql, values: connection.execute(sql, values).fetchall(), "?")


def _add_profiles(database: Database) -> None:
    database.table("user_tokens").add_column("profile", str)


def _add_configuration_changes(database: Database) -> None:
    _table(
        database,
        "configuration_changes",
        {
            "number": int,
            "at": float,
            "project": str,
            "process": str,
            "status": str,
            "lines": str,
            "trusted_by": str,
            "trusted_at": float,
        },
        nullable={"trusted_at"},
    )


def _add_clients_of_runs(database: Database) -> None:
    database.table("runs").add_column("client", str)


MIGRATIONS: Final[Sequence[Migration]] = (
    _add_shown_and_ropes,
    _convert_removed_kinds,
    _add_profiles,
    _add_configuration_changes,
    _add_clients_of_runs,
)
"""The migration steps from `FIRST` on, in order. Add new steps at the end. A step can convert the
rows that it finds, but it does not add rows to an empty table.
"""

VERSION: Final = FIRST + len(MIGRATIONS)
"""`PRAGMA user_version` of a store that this code reads and writes."""


def can_migrate(version: int) -> bool:
    """Return whether a store of this version can be migrated to `VERSION`."""
    return FIRST <= version <= VERSION


def update(connection: sqlite3.Connection, version: int) -> None:
    """Create the schema of `VERSION`, or migrate a store to it. Call this inside a transaction.

    Args:
        connection: the connection to the store, with sqlite3's default handling of transactions.
        version: 0 for an empty database, or a version for which `can_migrate` returns True.
    """
    if version == 0:
        for statement in _new_store(tuple(MIGRATIONS)):
            connection.execute(statement)
        return

    _migrate(_with_utils(connection), MIGRATIONS[version - FIRST :])


@cache
def _new_store(migrations: Sequence[Migration]) -> Sequence[str]:
    """Return the statements that create the schema as it is after `migrations`.

    Creating a store with sqlite-utils takes three times as long as running these statements.
    Therefore, one store is created in memory, and every new store in this process is created with
    that store's statements.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        database = _with_utils(connection)
        _create_first(database)
        _migrate(database, migrations)
        return [sql for (sql,) in connection.execute(_STATEMENTS)]


_STATEMENTS: Final = """
    SELECT sql FROM sqlite_master
    WHERE sql IS NOT NULL
        AND name NOT LIKE 'sqlite~_%' ESCAPE '~'
        AND tbl_name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow')
    ORDER BY rowid
"""
"""Selects the statements of a schema, except for the tables that SQLite creates itself: its
internal tables, and the shadow tables of the full-text tables.
"""


def _with_utils(connection: sqlite3.Connection) -> Database:
    from sqlite_utils import Database

    # Turn plugins off, because they would be other people's code. Turn recursive triggers off,
    # because no trigger in a store starts another one.
    return Database(connection, recursive_triggers=False, execute_plugins=False)


def _migrate(database: Database, migrations: Sequence[Migration]) -> None:
    for migrate in migrations:
        migrate(database)

    for name, sql in _VIEWS.items():
        database.create_view(name, sql, replace=True)


# -- the first version -----------------------------------------------------------------------------

_SPECIAL_TABLES: Final = (
    # The solution comes after the columns that lists of ideas read, so that lists do not read the
    # pages with the solution. Lists are filtered and ordered by time, outcome and mind.
    """
    CREATE TABLE ideas (
        number INTEGER PRIMARY KEY,
        id BLOB NOT NULL,
        request BLOB NOT NULL,
        run TEXT,
        step INTEGER,
        time TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.time'), '')) STORED,
        outcome TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.outcome'), '')) STORED,
        mind TEXT GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.mind'), '')) STORED,
        meta TEXT NOT NULL,
        schema INTEGER NOT NULL REFERENCES contents(number),
        context TEXT NOT NULL,
        solved INTEGER,
        solution TEXT NOT NULL
    ) STRICT
    """,
    # A row contains `tool:NAME` or `module:NAME` for a call in any step of the idea's run, or
    # `tag:NAME` for one of the idea's tags.
    """
    CREATE TABLE idea_uses (
        what TEXT NOT NULL,
        time TEXT NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        PRIMARY KEY (what, time, idea)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE idea_calls (
        tool TEXT NOT NULL,
        module TEXT NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        PRIMARY KEY (idea, tool, module)
    ) STRICT, WITHOUT ROWID
    """,
    # How many times clients have called each tool of a server, and when they last did so.
    (
        "CREATE TABLE tool_uses (tool TEXT PRIMARY KEY, count INTEGER NOT NULL, "
        "last TEXT NOT NULL) STRICT, WITHOUT ROWID"
    ),
    # All direct calls to exposed tools, in the order in which they ended.
    """
    CREATE TABLE direct_calls (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        caller TEXT NOT NULL,
        client TEXT NOT NULL,
        session TEXT NOT NULL,
        name TEXT NOT NULL,
        module TEXT,
        tool TEXT NOT NULL,
        parameters TEXT NOT NULL,
        seconds REAL NOT NULL,
        outcome TEXT NOT NULL,
        run TEXT,
        bytes_in INTEGER NOT NULL,
        bytes_out INTEGER NOT NULL
    ) STRICT
    """,
    # Sessions in progress, which are direct calls from one caller, client and connection with their
    # results. The `id` of a call is the session's number times 2^32 plus the position of the call.
    # A session that ends becomes a run of kind `session`.
    """
    CREATE TABLE sessions (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        caller TEXT NOT NULL,
        client TEXT NOT NULL,
        session TEXT NOT NULL,
        began REAL NOT NULL,
        last REAL NOT NULL,
        count INTEGER NOT NULL,
        tools TEXT NOT NULL
    ) STRICT
    """,
    # The tool that owns each exposed name, keyed by the folder of the configuration. A name that
    # has referred to a tool never refers to a different one.
    """
    CREATE TABLE exposed_names (
        scope TEXT NOT NULL, name TEXT NOT NULL, module TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (scope, name)
    ) STRICT, WITHOUT ROWID
    """,
    # The users who are allowed to use a server on this store. Rows are never deleted, so that no
    # name is ever given to a different person.
    """
    CREATE TABLE users (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, state TEXT NOT NULL, created TEXT NOT NULL, issuer TEXT, subject TEXT
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE user_tokens (
        id TEXT PRIMARY KEY,
        user TEXT NOT NULL REFERENCES users(name),
        hash BLOB NOT NULL,
        label TEXT NOT NULL,
        created TEXT NOT NULL,
        expires TEXT,
        revoked TEXT,
        used TEXT
    ) STRICT, WITHOUT ROWID
    """,
    # The callers with whom a published name is shared, besides its owner; '' means everybody. They
    # see the versions from `since` on, and the version that the name refers to.
    """
    CREATE TABLE shares (
        caller TEXT NOT NULL,
        name TEXT NOT NULL,
        since INTEGER NOT NULL,
        PRIMARY KEY (caller, name)
    ) STRICT, WITHOUT ROWID
    """,
    # The index does not store the text, because it can be read from the idea. With the tokenizer
    # `porter`, a search for "report" also finds "reports".
    """
    CREATE VIRTUAL TABLE idea_words USING fts5(
        title, tools, body, content='', tokenize='porter unicode61 remove_diacritics 2'
    )
    """,
    """
    CREATE VIRTUAL TABLE publication_words USING fts5(
        name, description, tokenize='porter unicode61 remove_diacritics 2'
    )
    """,
)
"""Tables that sqlite-utils cannot express: with generated columns, without row numbers, with
numbers that are never reused, or with a full-text index that does not store text.
"""

_PARTIAL_INDEXES: Final = (
    "CREATE INDEX ideas_by_run ON ideas(run, step) WHERE run IS NOT NULL",
    "CREATE UNIQUE INDEX users_by_subject ON users(issuer, subject) WHERE issuer IS NOT NULL",
    "CREATE INDEX runs_by_fork ON runs(forked_from) WHERE forked_from IS NOT NULL",
    "CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL",
    "CREATE INDEX runs_of_sessions ON runs(caller, number) WHERE kind = 'session'",
    "CREATE INDEX events_with_parts ON events(id) WHERE parts IS NOT NULL",
)
"""Partial indexes, which cover only some rows of a table. sqlite-utils cannot express such indexes
either.
"""

_LISTS: Final = """
                   LEFT JOIN contents AS list_two ON one.value < 0 AND list_two.number = -one.value
                   LEFT JOIN json_each(list_two.body) AS two ON one.value < 0
                   LEFT JOIN contents AS list_three ON two.value < 0 AND list_three.number = -two.value
                   LEFT JOIN json_each(list_three.body) AS three ON two.value < 0
                   LEFT JOIN contents AS list_four ON three.value < 0 AND list_four.number = -three.value
                   LEFT JOIN json_each(list_four.body) AS four ON three.value < 0
"""
"""SQL that unfolds the entries `one`, level by level. The SQL does not use recursion, because a
reader of one row must not wait for all rows. A list has at most 128 entries, so four levels of
lists hold millions of entries.
"""

_VIEWS: Final = {
    # A long string is stored as `~` and the entries of its pieces.
    "whole_contents": f"""
        SELECT number,
               CASE WHEN substr(body, 1, 1) <> '~' THEN body
               ELSE (SELECT group_concat(text, '') FROM (
                   SELECT piece.body AS text FROM json_each(substr(contents.body, 2)) AS one{_LISTS}
                   JOIN contents AS piece ON piece.number = coalesce(four.value, three.value, two.value, one.value)
                   ORDER BY one.key, two.key, three.key, four.key)) END AS body
        FROM contents
    """,  # noqa: S608
    "idea_list": f"""
        SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, ideas.run, ideas.step,
               json_extract(meta, '$.title') AS title, json_extract(meta, '$.description') AS description,
               ideas.outcome, ideas.mind, json_extract(meta, '$.model') AS model, ideas.time,
               json_extract(meta, '$.tools') AS tools, contents.body AS schema, {SOLUTION_OF} AS solution,
               (SELECT body FROM whole_contents AS part WHERE part.number = ideas.shown) AS shown
        FROM ideas JOIN whole_contents AS contents ON contents.number = ideas.schema
    """,  # noqa: S608
    "idea_messages": f"""
        SELECT ideas.number AS idea_number,
               CASE WHEN instr(ideas.context, '-') = 0 THEN one.key + 1
               ELSE ((one.key * 129 + coalesce(two.key, 0)) * 129 + coalesce(three.key, 0)) * 129
                    + coalesce(four.key, 0) + 1 END AS place,
               contents.body AS message
        FROM ideas JOIN json_each(ideas.context) AS one{_LISTS}
        JOIN whole_contents AS contents
        ON contents.number = coalesce(four.value, three.value, two.value, one.value)
    """,  # noqa: S608
    # Whole events, including the parts that are stored in `contents`. The events of a run are a
    # single range of rows.
    "journal": """
        SELECT runs.id AS run, events.id & 4294967295 AS sequence,
               CASE WHEN events.parts IS NULL THEN events.body ELSE
               substr(events.body, 1, length(events.body) - 1) || (
                   SELECT group_concat(CASE part.type
                       WHEN 'array' THEN ',' || json_quote(part.key) || ':[' || coalesce((
                           SELECT group_concat(text) FROM (
                               SELECT one.body AS text FROM json_each(part.value) AS entry
                               LEFT JOIN contents AS list ON entry.value < 0 AND list.number = -entry.value
                               LEFT JOIN json_each(list.body) AS listed ON entry.value < 0
                               JOIN whole_contents AS one ON one.number = coalesce(listed.value, entry.value)
                               ORDER BY entry.key, listed.key)), '') || ']'
                       ELSE (SELECT CASE part.key WHEN 'solution' THEN ',' || substr(body, 2, length(body) - 2)
                             ELSE ',' || json_quote(part.key) || ':' || body END
                             FROM whole_contents AS content WHERE content.number = part.value) END, '')
                   FROM json_each(events.parts) AS part) || '}' END AS event,
               strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS time
        FROM runs JOIN events ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295
    """,
    "run_list": """
        SELECT id AS run, status, kind, caller, title, parent, forked_from, forked_at, created, updated,
               json_extract(summary, '$.idea') AS idea
        FROM runs
    """,
    "call_list": """
        SELECT lower(hex(ideas.id)) AS idea, idea_calls.tool, idea_calls.module
        FROM idea_calls JOIN ideas ON ideas.number = idea_calls.idea
    """,
    "tag_list": """
        SELECT substr(idea_uses.what, 5) AS tag, lower(hex(ideas.id)) AS idea
        FROM idea_uses JOIN ideas ON ideas.number = idea_uses.idea
        WHERE idea_uses.what >= 'tag:' AND idea_uses.what < 'tag;'
    """,
    "publication_list": """
        SELECT publications.name, publications.version, lower(hex(ideas.id)) AS idea, publications.description,
               publications.answer, publications.owner, publications.time,
               names.version IS publications.version AS live
        FROM publications JOIN ideas ON ideas.number = publications.idea
        LEFT JOIN names ON names.name = publications.name
    """,
}
"""The views for programs that read the store through SQL, by name."""


def _create_first(database: Database) -> None:
    """Create the tables and indexes of `FIRST` in an empty database. Call this inside a
    transaction.
    """
    for statement in _SPECIAL_TABLES:
        database.conn.execute(statement)

    ideas = database.table("ideas")
    ideas.create_index(["id"], "ideas_by_id", unique=True)
    ideas.create_index(["request"], "ideas_by_request")
    ideas.create_index(["time"], "ideas_by_time")
    ideas.create_index(["outcome", "time"], "ideas_by_outcome")
    ideas.create_index(["mind", "time"], "ideas_by_mind")
    ideas.create_index(["outcome", "mind", "time"], "ideas_by_outcome_and_mind")
    database.table("shares").create_index(["name"], "shares_by_name")
    database.table("user_tokens").create_index(["user"], "user_tokens_by_user")

    # The hash of an idea's calls without their literals. If two hashes are equal, work was
    # repeated.
    shapes = _table(
        database, "idea_shapes", {"idea": int, "shape": bytes}, key="idea", refers=("idea", "ideas")
    )
    shapes.create_index(["shape", "idea"], "idea_shapes_by_shape")

    # The results of sessions in progress.
    _table(database, "session_calls", {"id": int, "body": str}, key="id")

    # Every message, schema and list. Equal contents are stored only once. `content_keys` finds a
    # row by the first 8 bytes of its hash.
    _table(database, "contents", {"number": int, "hash": bytes, "body": str})
    _table(database, "content_keys", {"key": int, "number": int}, key="key")

    # Other runs and steps that made the same idea.
    occurrences = _table(
        database,
        "occurrences",
        {"run": str, "step": int, "idea": int, "meta": str},
        key=("run", "step", "idea"),
        refers=("idea", "ideas"),
    )
    occurrences.create_index(["idea"])

    # Every version that was ever published, and the version that each name currently refers to. A
    # name that is pinned keeps its version when a new one is published.
    publications = _table(
        database,
        "publications",
        {
            "number": int,
            "name": str,
            "version": int,
            "idea": int,
            "description": str,
            "answer": str,
            "input_schema": str,
            "output_schema": str,
            "annotations": str,
            "plan": str,
            "recorded": str,
            "owner": str,
            "time": str,
            "learned": str,
        },
        nullable={"input_schema", "output_schema", "plan", "recorded", "owner", "learned"},
        refers=("idea", "ideas"),
    )
    publications.create_index(["name", "version"], unique=True)
    publications.create_index(["idea"])

    # The evidence about a version that later runs supplied. Rows are only ever added, and
    # `publications.learned` is computed from them.
    evidence = _table(
        database,
        "evidence",
        {"number": int, "publication": int, "record": str},
        refers=("publication", "publications"),
    )
    evidence.create_index(["publication"])

    names = _table(
        database,
        "names",
        {"number": int, "name": str, "version": int, "owner": str, "pinned": int},
        defaults={"pinned": 0},
    )
    names.create_index(["name"], unique=True)

    runs = _table(
        database,
        "runs",
        {
            "number": int,
            "id": str,
            "kind": str,
            "caller": str,
            "title": str,
            "fingerprint": str,
            "parent": str,
            "status": str,
            "summary": str,
            "driver": str,
            "epoch": int,
            "lease_until": float,
            "created": str,
            "updated": str,
            "forked_from": str,
            "forked_at": int,
        },
        nullable={"parent", "summary", "driver", "updated", "forked_from", "forked_at"},
    )
    runs.create_index(["id"], unique=True)
    runs.create_index(["caller", "number"])
    runs.create_index(["status", "number"])
    runs.create_index(["caller", "status", "number"])

    # The journals. `id` is the run's number times 2^32 plus the sequence number, so that a single
    # tree holds all events in order. `parts` names the members of the event that are stored in
    # `contents`.
    _table(
        database,
        "events",
        {"id": int, "body": str, "at": float, "parts": str},
        key="id",
        nullable={"parts"},
    )

    _table(database, "settings", {"key": str, "value": bytes}, key="key")
    _table(database, "counters", {"key": str, "value": int}, key="key")

    # Lists of servers, definitions of tools, and shapes of results: see `ToolMemory`.
    memory = _table(
        database,
        "tool_memory",
        {"number": int, "kind": str, "key": str, "name": str, "value": str, "time": str},
    )
    memory.create_index(["kind", "key"], unique=True)

    for statement in _PARTIAL_INDEXES:
        database.conn.execute(statement)


def _table(
    database: Database,
    name: str,
    columns: dict[str, type],
    *,
    key: str | tuple[str, ...] = "number",
    nullable: Collection[str] = (),
    defaults: dict[str, int] | None = None,
    refers: tuple[str, str] | None = None,
) -> Table:
    """Create a strict table whose columns are NOT NULL, except the key columns and those in
    `nullable`.

    `refers` names a foreign-key column and the table that it refers to.
    """
    keys = {key} if isinstance(key, str) else {*key}
    return database.table(name).create(
        columns,
        pk=key,
        not_null=columns.keys() - keys - {*nullable},
        defaults=defaults,
        foreign_keys=[(*refers, "number")] if refers else [],
        strict=True,
    )
