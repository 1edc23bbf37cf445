"""The schema of the store: its tables, indexes and views (`docs/store.md`), and steps from one version to the next.

A change of the schema increments `VERSION` and adds a step to `MIGRATIONS`, which makes the new schema of the one
before. Stores from before the first step are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ideabridge.bridge.store.database import SOLUTION_OF
from ideabridge.bridge.store.sqlite import sqlite3

VERSION: Final = 26
"""`PRAGMA user_version` of a store that this code reads and writes."""

Migration = Callable[[sqlite3.Connection], None]

_ROPES: Final = "CREATE INDEX contents_ropes ON contents(number) WHERE substr(body, 1, 1) = '~'"

_STATEMENTS: Final = (
    # The solution stands after what a list of ideas reads, so that lists do not touch its pages. Lists are filtered and
    # ordered by time, outcome and mind.
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
        solution TEXT NOT NULL,
        shown INTEGER
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
    # The callers a published name is shared with, besides its owner; '' stands for everybody. They see the versions
    # from `since` on, and the one to which the name refers.
    """
    CREATE TABLE shares (
        caller TEXT NOT NULL,
        name TEXT NOT NULL,
        since INTEGER NOT NULL,
        PRIMARY KEY (caller, name)
    ) STRICT, WITHOUT ROWID
    """,
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
    # Every message, schema and list, once by content. `content_keys` finds a row by the first 8 bytes of its hash.
    "CREATE TABLE contents (number INTEGER PRIMARY KEY, hash BLOB NOT NULL, body TEXT NOT NULL) STRICT",
    _ROPES,
    "CREATE TABLE content_keys (key INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT",
    # Further runs and steps an idea was made in.
    """
    CREATE TABLE occurrences (
        run TEXT,
        step INTEGER,
        idea INTEGER REFERENCES ideas(number),
        meta TEXT NOT NULL,
        PRIMARY KEY (run, step, idea)
    ) STRICT
    """,
    "CREATE INDEX idx_occurrences_idea ON occurrences(idea)",
    # Every version there was, and the version that each name stands for now. A pinned name stays with its version when
    # another is published.
    """
    CREATE TABLE publications (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        idea INTEGER NOT NULL REFERENCES ideas(number),
        description TEXT NOT NULL,
        answer TEXT NOT NULL,
        input_schema TEXT,
        output_schema TEXT,
        annotations TEXT NOT NULL,
        plan TEXT,
        recorded TEXT,
        owner TEXT,
        time TEXT NOT NULL,
        learned TEXT
    ) STRICT
    """,
    "CREATE UNIQUE INDEX idx_publications_name_version ON publications(name, version)",
    "CREATE INDEX idx_publications_idea ON publications(idea)",
    # What further runs of a version showed. Rows are only added; `publications.learned` is computed from them.
    """
    CREATE TABLE evidence (
        number INTEGER PRIMARY KEY, publication INTEGER NOT NULL REFERENCES publications(number), record TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX idx_evidence_publication ON evidence(publication)",
    """
    CREATE TABLE names (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        owner TEXT NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0
    ) STRICT
    """,
    "CREATE UNIQUE INDEX idx_names_name ON names(name)",
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        caller TEXT NOT NULL,
        title TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        parent TEXT,
        status TEXT NOT NULL,
        summary TEXT,
        driver TEXT,
        epoch INTEGER NOT NULL,
        lease_until REAL NOT NULL,
        created TEXT NOT NULL,
        updated TEXT,
        forked_from TEXT,
        forked_at INTEGER
    ) STRICT
    """,
    "CREATE UNIQUE INDEX idx_runs_id ON runs(id)",
    "CREATE INDEX idx_runs_caller_number ON runs(caller, number)",
    "CREATE INDEX idx_runs_status_number ON runs(status, number)",
    "CREATE INDEX idx_runs_caller_status_number ON runs(caller, status, number)",
    "CREATE INDEX runs_by_fork ON runs(forked_from) WHERE forked_from IS NOT NULL",
    "CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL",
    "CREATE INDEX runs_of_sessions ON runs(caller, number) WHERE kind = 'session'",
    # The journals: `id` is the run's number times 2^32 plus the sequence number, so one tree holds all, in order.
    # `parts` says which members of the event are kept in `contents`.
    "CREATE TABLE events (id INTEGER PRIMARY KEY, body TEXT NOT NULL, at REAL NOT NULL, parts TEXT) STRICT",
    "CREATE INDEX events_with_parts ON events(id) WHERE parts IS NOT NULL",
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT",
    "CREATE TABLE counters (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
    # Lists of modules, definitions of tools, and shapes of results: see `ToolMemory`.
    """
    CREATE TABLE tool_memory (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        time TEXT NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX idx_tool_memory_kind_key ON tool_memory(kind, key)",
)

_LISTS: Final = """
                   LEFT JOIN contents AS list_two ON one.value < 0 AND list_two.number = -one.value
                   LEFT JOIN json_each(list_two.body) AS two ON one.value < 0
                   LEFT JOIN contents AS list_three ON two.value < 0 AND list_three.number = -two.value
                   LEFT JOIN json_each(list_three.body) AS three ON two.value < 0
                   LEFT JOIN contents AS list_four ON three.value < 0 AND list_four.number = -three.value
                   LEFT JOIN json_each(list_four.body) AS four ON three.value < 0
"""
"""SQL that unfolds the entries `one` level by level, without recursion: a reader who asks for one row must not wait for
all of them. A list has at most 128 entries, and four levels of lists hold millions."""

_VIEWS: Final = {
    # Long texts are stored as `~` and the entries of their pieces.
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
"""The views for programs that read the store by SQL, by name."""


def create(connection: sqlite3.Connection) -> None:
    """Create the tables, indexes and views in an empty database, inside a transaction of the caller."""
    for statement in _STATEMENTS:
        connection.execute(statement)
    _create_views(connection)


def _create_views(connection: sqlite3.Connection) -> None:
    """Create the views, in place of those of an earlier version."""
    for name, sql in _VIEWS.items():
        connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute(f"CREATE VIEW {name} AS {sql}")


def _add_shown_and_ropes(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE ideas ADD COLUMN shown INTEGER")
    connection.execute(_ROPES)
    _create_views(connection)


MIGRATIONS: Final[Mapping[int, Migration]] = {25: _add_shown_and_ropes}
"""By version of a store: the step to the next version. It runs in a transaction and must not commit."""


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
