"""The schema of the store: its tables, indexes and views (`docs/store.md`), and steps from one version to the next.

Until the first release there is one schema: a change of it increments `VERSION`, and a store of another version is
refused. From the first release on, a change also appends a step to `MIGRATIONS`, which makes the new schema of the
one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ideabridge.bridge.store.database import SOLUTION_OF
from ideabridge.bridge.store.sqlite import sqlite3

VERSION: Final = 24
"""`PRAGMA user_version` of a store that this code reads and writes."""

Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: Final[Mapping[int, Migration]] = {}
"""By version of a store: the step to the next version. It runs in a transaction and must not commit."""

_TABLES: Final[dict[str, dict[str, Any]]] = {
    # Every message, schema and list, once by content. `content_keys` finds a row by the first 8 bytes of its hash.
    "contents": {"columns": {"number": int, "hash": bytes, "body": str}},
    "content_keys": {"columns": {"key": int, "number": int}, "pk": "key"},
    # Further runs and steps an idea was made in.
    "occurrences": {
        "columns": {"run": str, "step": int, "idea": int, "meta": str},
        "pk": ("run", "step", "idea"),
        "not_null": {"meta"},
        "foreign_keys": [("idea", "ideas", "number")],
        "indexes": [["idea"]],
    },
    # Every version there was, and the version that each name stands for now. A pinned name stays with its version when
    # another is published.
    "publications": {
        "columns": {
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
        "nullable": {"input_schema", "output_schema", "plan", "recorded", "owner", "learned"},
        "foreign_keys": [("idea", "ideas", "number")],
        "unique": [["name", "version"]],
        "indexes": [["idea"]],
    },
    # What further runs of a version showed. Rows are only added; `publications.learned` is computed from them.
    "evidence": {
        "columns": {"number": int, "publication": int, "record": str},
        "foreign_keys": [("publication", "publications", "number")],
        "indexes": [["publication"]],
    },
    "names": {
        "columns": {"number": int, "name": str, "version": int, "owner": str, "pinned": int},
        "defaults": {"pinned": 0},
        "unique": [["name"]],
    },
    "runs": {
        "columns": {
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
        "nullable": {"parent", "summary", "driver", "updated", "forked_from", "forked_at"},
        "unique": [["id"]],
        "indexes": [["caller", "number"], ["status", "number"], ["caller", "status", "number"]],
    },
    # The journals: `id` is the run's number times 2^32 plus the sequence number, so one tree holds all, in order.
    # `parts` says which members of the event are kept in `contents`.
    "events": {"columns": {"id": int, "body": str, "at": float, "parts": str}, "pk": "id", "nullable": {"parts"}},
    "settings": {"columns": {"key": str, "value": bytes}, "pk": "key", "not_null": {"value"}},
    "counters": {"columns": {"key": str, "value": int}, "pk": "key", "not_null": {"value"}},
    # Lists of modules, definitions of tools, and shapes of results: see `ToolMemory`.
    "tool_memory": {
        "columns": {"number": int, "kind": str, "key": str, "name": str, "value": str, "time": str},
        "unique": [["kind", "key"]],
    },
}
"""Tables that sqlite-utils creates. Columns are NOT NULL but for those in `nullable`, or for all that `not_null` does
not name; the primary key is `number`, but for `pk`.
"""

_STATEMENTS: Final = (
    # The solution stands last: a list of ideas reads the columns before it without touching its pages. Lists are
    # filtered and ordered by time, outcome and mind.
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
    "CREATE UNIQUE INDEX ideas_by_id ON ideas(id)",
    "CREATE INDEX ideas_by_request ON ideas(request)",
    "CREATE INDEX ideas_by_run ON ideas(run, step) WHERE run IS NOT NULL",
    "CREATE INDEX ideas_by_time ON ideas(time)",
    "CREATE INDEX ideas_by_outcome ON ideas(outcome, time)",
    "CREATE INDEX ideas_by_mind ON ideas(mind, time)",
    "CREATE INDEX ideas_by_outcome_and_mind ON ideas(outcome, mind, time)",
    # `tool:NAME` and `module:NAME` for what any step of an idea's run calls, and `tag:NAME` for its tags.
    """
    CREATE TABLE idea_uses (
        what TEXT NOT NULL,
        time TEXT NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        PRIMARY KEY (what, time, idea)
    ) STRICT, WITHOUT ROWID
    """,
    # The hash of an idea's calls without their literals, by which repeated work is recognised.
    "CREATE TABLE idea_shapes (idea INTEGER PRIMARY KEY REFERENCES ideas(number), shape BLOB NOT NULL) STRICT",
    "CREATE INDEX idea_shapes_by_shape ON idea_shapes(shape, idea)",
    """
    CREATE TABLE idea_calls (
        tool TEXT NOT NULL,
        module TEXT NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        PRIMARY KEY (idea, tool, module)
    ) STRICT, WITHOUT ROWID
    """,
    # How often each tool of a server was called by hosts, and when last.
    "CREATE TABLE tool_uses (tool TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL) STRICT, WITHOUT ROWID",
    # Every direct call of an exposed tool, in the order in which they ended.
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
    # Sessions in progress: direct calls of one caller, client and connection, and their results. `id` of a call is the
    # session's number times 2^32 plus the place of the call. When a session ends, it becomes a run of kind `session`.
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
    "CREATE TABLE session_calls (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT",
    # Whose each exposed name is, by the folder of the configuration: a name never comes to mean another tool.
    """
    CREATE TABLE exposed_names (
        scope TEXT NOT NULL, name TEXT NOT NULL, module TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (scope, name)
    ) STRICT, WITHOUT ROWID
    """,
    # Who may use a server on this store. Rows are never deleted: a name is never given to another person.
    """
    CREATE TABLE users (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, state TEXT NOT NULL, created TEXT NOT NULL, issuer TEXT, subject TEXT
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX users_by_subject ON users(issuer, subject) WHERE issuer IS NOT NULL",
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
    "CREATE INDEX user_tokens_by_user ON user_tokens(user)",
    # The callers a published name is shared with, besides its owner; '' stands for everybody.
    "CREATE TABLE shares (caller TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (caller, name)) STRICT, WITHOUT ROWID",
    "CREATE INDEX shares_by_name ON shares(name)",
    # No copy of the text is kept: it can be read again from the idea. `porter` finds "reports" by "report".
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

_PARTIAL_INDEXES: Final = (
    "CREATE INDEX runs_by_fork ON runs(forked_from) WHERE forked_from IS NOT NULL",
    "CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL",
    "CREATE INDEX runs_of_sessions ON runs(caller, number) WHERE kind = 'session'",
    "CREATE INDEX events_with_parts ON events(id) WHERE parts IS NOT NULL",
)

_VIEWS: Final = {
    "idea_list": f"""
        SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, ideas.run, ideas.step,
               json_extract(meta, '$.title') AS title, json_extract(meta, '$.description') AS description,
               ideas.outcome, ideas.mind, json_extract(meta, '$.model') AS model, ideas.time,
               json_extract(meta, '$.tools') AS tools, contents.body AS schema, {SOLUTION_OF} AS solution
        FROM ideas JOIN contents ON contents.number = ideas.schema
    """,  # noqa: S608
    # Level by level instead of by recursion: a reader who asks for one idea, or for the first rows, must not wait for
    # all of them. A list has at most 128 entries, and four levels of lists hold millions of messages.
    "idea_messages": """
        SELECT ideas.number AS idea_number,
               CASE WHEN instr(ideas.context, '-') = 0 THEN one.key + 1
               ELSE ((one.key * 129 + coalesce(two.key, 0)) * 129 + coalesce(three.key, 0)) * 129
                    + coalesce(four.key, 0) + 1 END AS place,
               contents.body AS message
        FROM ideas JOIN json_each(ideas.context) AS one
        LEFT JOIN contents AS list_two ON one.value < 0 AND list_two.number = -one.value
        LEFT JOIN json_each(list_two.body) AS two ON one.value < 0
        LEFT JOIN contents AS list_three ON two.value < 0 AND list_three.number = -two.value
        LEFT JOIN json_each(list_three.body) AS three ON two.value < 0
        LEFT JOIN contents AS list_four ON three.value < 0 AND list_four.number = -three.value
        LEFT JOIN json_each(list_four.body) AS four ON three.value < 0
        JOIN contents ON contents.number = coalesce(four.value, three.value, two.value, one.value)
    """,
    # Whole events, with the parts that are kept in `contents`. The events of one run are one range of rows.
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
                               JOIN contents AS one ON one.number = coalesce(listed.value, entry.value)
                               ORDER BY entry.key, listed.key)), '') || ']'
                       ELSE (SELECT CASE part.key WHEN 'solution' THEN ',' || substr(body, 2, length(body) - 2)
                             ELSE ',' || json_quote(part.key) || ':' || body END
                             FROM contents WHERE contents.number = part.value) END, '')
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
"""The views for programs that read the store by SQL, by name."""


def create(connection: sqlite3.Connection) -> None:
    """Create the tables, indexes and views in an empty database, inside a transaction of the caller."""
    # Only a new store needs it, and importing it costs more than opening one.
    from sqlite_utils import Database

    database = Database(connection, execute_plugins=False)
    for statement in _STATEMENTS:
        connection.execute(statement)
    for name, table in _TABLES.items():
        columns: dict[str, Any] = table["columns"]
        key = table.get("pk", "number")
        filled = {column for column in columns if column != key} - table.get("nullable", set())
        made = database.table(name).create(
            columns,
            pk=key,
            not_null=table.get("not_null", filled),
            defaults=table.get("defaults"),
            foreign_keys=table.get("foreign_keys", ()),
            strict=True,
        )
        for one in table.get("unique", ()):
            made.create_index(one, unique=True)
        for one in table.get("indexes", ()):
            made.create_index(one)
    for statement in _PARTIAL_INDEXES:
        connection.execute(statement)
    for name, sql in _VIEWS.items():
        database.create_view(name, sql)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring a store of an earlier version to this one, inside a transaction of the caller.

    Args:
        connection: the connection to the store.
        version: a version for which `can_migrate` returns True.
    """
    for step in range(version, VERSION):
        MIGRATIONS[step](connection)


def can_migrate(version: int) -> bool:
    """Return whether there is a step from this version, and from each after it, to the next."""
    return all(step in MIGRATIONS for step in range(version, VERSION))
