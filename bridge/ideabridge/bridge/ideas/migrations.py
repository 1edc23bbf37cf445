"""Migrations: the schema of the store, as steps from each version to the next.

`docs/store.md` tells the tables. A released step is never changed: a new one is appended. Each runs inside the one
transaction of `Database`, so it must not commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ideabridge.bridge.ideas.shape import shape_of
from ideabridge.bridge.ideas.sqlite import sqlite3
from ideabridge.bridge.ideas.views import FIRST, IDEA_LIST, IDEA_LIST_14, JOURNAL
from ideabridge.tools.encoding import decode_trusted

Migration = Callable[[sqlite3.Connection], None]


def _first(connection: sqlite3.Connection) -> None:
    # Only a new store needs it, and importing it costs more than opening one.
    from sqlite_utils import Database

    database = Database(connection, execute_plugins=False)
    database.table("contents").create(
        {"number": int, "hash": bytes, "body": str}, pk="number", not_null={"hash", "body"}, strict=True
    ).create_index(["hash"], unique=True)
    # The solution stands last: a list of ideas reads the columns before it without touching its pages.
    database.table("ideas").create(
        {
            "number": int,
            "id": bytes,
            "request": bytes,
            "run": str,
            "step": int,
            "meta": str,
            "schema": int,
            "context": str,
            "solution": str,
        },
        pk="number",
        not_null={"id", "request", "meta", "schema", "context", "solution"},
        foreign_keys=[("schema", "contents", "number")],
        strict=True,
    ).create_index(["id"], unique=True).create_index(["request"])
    connection.execute("CREATE INDEX ideas_by_run ON ideas(run, step) WHERE run IS NOT NULL")
    database.table("occurrences").create(
        {"run": str, "step": int, "idea": int, "meta": str},
        pk=("run", "step", "idea"),
        not_null={"meta"},
        foreign_keys=[("idea", "ideas", "number")],
        strict=True,
    )
    database.table("publications").create(
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
        },
        pk="number",
        not_null={"name", "version", "idea", "description", "answer", "annotations", "time"},
        foreign_keys=[("idea", "ideas", "number")],
        strict=True,
    ).create_index(["name", "version"], unique=True).create_index(["idea"])
    database.table("names").create(
        {"number": int, "name": str, "version": int, "owner": str},
        pk="number",
        not_null={"name", "version", "owner"},
        strict=True,
    ).create_index(["name"], unique=True).create_index(["owner", "name"])
    database.table("runs").create(
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
        },
        pk="number",
        not_null={"id", "kind", "caller", "title", "fingerprint", "status", "epoch", "lease_until", "created"},
        strict=True,
    ).create_index(["id"], unique=True).create_index(["caller", "number"]).create_index(
        ["status", "number"]
    ).create_index(["caller", "status", "number"])
    database.table("events").create({"id": int, "body": str}, pk="id", not_null={"body"}, strict=True)
    database.table("settings").create({"key": str, "value": bytes}, pk="key", not_null={"value"}, strict=True)
    database.table("counters").create({"key": str, "value": int}, pk="key", not_null={"value"}, strict=True)
    # No copy of the text is kept: it can be read again from the idea. `porter` finds "reports" by "report".
    connection.execute(
        "CREATE VIRTUAL TABLE idea_words USING fts5(title, tools, body, content='', "
        "tokenize='porter unicode61 remove_diacritics 2')"
    )
    connection.execute(
        "CREATE VIRTUAL TABLE publication_words USING fts5(name, description, "
        "tokenize='porter unicode61 remove_diacritics 2')"
    )
    for name, sql in FIRST.items():
        database.create_view(name, sql)


_SECOND: Final = (
    # When each event was journaled, and where a run was forked from.
    "ALTER TABLE events ADD COLUMN at REAL",
    "ALTER TABLE runs ADD COLUMN forked_from TEXT",
    "ALTER TABLE runs ADD COLUMN forked_at INTEGER",
    "CREATE INDEX runs_by_fork ON runs(forked_from) WHERE forked_from IS NOT NULL",
    "CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL",
    # A pinned name stays with its version when another is published.
    "ALTER TABLE names ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
    # The calls of an idea without their literals: equal ones were done over and over. NULL: it has no calls.
    "CREATE TABLE idea_shapes (idea INTEGER PRIMARY KEY REFERENCES ideas(number), shape BLOB) STRICT",
    "CREATE INDEX idea_shapes_by_shape ON idea_shapes(shape, idea) WHERE shape IS NOT NULL",
    (
        "CREATE TABLE idea_calls (tool TEXT NOT NULL, module TEXT NOT NULL, "
        "idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (tool, module, idea)) STRICT, WITHOUT ROWID"
    ),
    "CREATE INDEX idea_calls_by_idea ON idea_calls(idea)",
    "CREATE INDEX idea_calls_by_module ON idea_calls(module, idea)",
    (
        "CREATE TABLE idea_tags (tag TEXT NOT NULL, idea INTEGER NOT NULL REFERENCES ideas(number), "
        "PRIMARY KEY (tag, idea)) STRICT, WITHOUT ROWID"
    ),
    "CREATE INDEX idea_tags_by_idea ON idea_tags(idea)",
    (
        "INSERT INTO idea_tags(tag, idea) SELECT DISTINCT part.value, ideas.number "
        "FROM ideas, json_each(meta, '$.tags') AS part"
    ),
    # How often each tool of a server was called by hosts, and when last.
    "CREATE TABLE tool_uses (tool TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "DROP VIEW journal",
    (
        "CREATE VIEW journal AS SELECT runs.id AS run, events.id & 4294967295 AS sequence, "
        "events.body AS event, strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS time "
        "FROM events JOIN runs ON runs.number = events.id >> 32"
    ),
    (
        "CREATE VIEW run_list AS SELECT id AS run, status, kind, caller, title, parent, forked_from, "
        "forked_at, created, updated, json_extract(summary, '$.idea') AS idea FROM runs"
    ),
    (
        "CREATE VIEW call_list AS SELECT lower(hex(ideas.id)) AS idea, idea_calls.tool, idea_calls.module "
        "FROM idea_calls JOIN ideas ON ideas.number = idea_calls.idea"
    ),
    (
        "CREATE VIEW tag_list AS SELECT idea_tags.tag, lower(hex(ideas.id)) AS idea "
        "FROM idea_tags JOIN ideas ON ideas.number = idea_tags.idea"
    ),
)


def _second(connection: sqlite3.Connection) -> None:
    for statement in _SECOND:
        connection.execute(statement)


def _third(connection: sqlite3.Connection) -> None:
    # Where else an idea occurred: asked for with each hit of a search, and by pruning.
    connection.execute("CREATE INDEX occurrences_by_idea ON occurrences(idea)")


_FOURTH: Final = (
    # What lists are filtered and ordered by, read from the metadata once: when it is written into an index.
    *(
        f"ALTER TABLE ideas ADD COLUMN {column} TEXT "
        f"GENERATED ALWAYS AS (coalesce(json_extract(meta, '$.{column}'), '')) VIRTUAL"
        for column in ("time", "outcome", "mind")
    ),
    "CREATE INDEX ideas_by_time ON ideas(time)",
    "CREATE INDEX ideas_by_outcome ON ideas(outcome, time)",
    "CREATE INDEX ideas_by_mind ON ideas(mind, time)",
    "CREATE INDEX ideas_by_outcome_and_mind ON ideas(outcome, mind, time)",
)


def _fourth(connection: sqlite3.Connection) -> None:
    for statement in _FOURTH:
        connection.execute(statement)


_FIFTH: Final = (
    "DROP VIEW idea_messages",
    # Level by level instead of by recursion: a reader who asks for one idea, or for the first rows, must not wait for
    # all of them. A list has at most 128 entries, and four levels of lists hold millions of messages.
    """
    CREATE VIEW idea_messages AS
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
    # The events of one run are one range of rows.
    "DROP VIEW journal",
    (
        "CREATE VIEW journal AS SELECT runs.id AS run, events.id & 4294967295 AS sequence, "
        "events.body AS event, strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS time "
        "FROM runs JOIN events ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295"
    ),
)


def _fifth(connection: sqlite3.Connection) -> None:
    for statement in _FIFTH:
        connection.execute(statement)


_SIXTH: Final = (
    # Which runs answered a published function for an input: `auto` looks there before it runs anything.
    (
        "CREATE TABLE answers (subject BLOB NOT NULL, caller TEXT NOT NULL, at REAL NOT NULL, run TEXT NOT NULL, "
        "PRIMARY KEY (subject, caller, at, run)) STRICT, WITHOUT ROWID"
    ),
    "CREATE INDEX answers_by_run ON answers(run)",
)


def _sixth(connection: sqlite3.Connection) -> None:
    for statement in _SIXTH:
        connection.execute(statement)


_SEVENTH: Final = (
    # What lists are filtered and ordered by, and the requests, in a table taken up a batch at a time: every index of
    # `ideas` is a page of the log with each save. The columns `time`, `outcome` and `mind` of `ideas` are read for it.
    (
        "CREATE TABLE idea_places (idea INTEGER PRIMARY KEY REFERENCES ideas(number), request BLOB NOT NULL, run TEXT, "
        "time TEXT NOT NULL, outcome TEXT NOT NULL, mind TEXT NOT NULL) STRICT"
    ),
    (
        "INSERT INTO idea_places(idea, request, run, time, outcome, mind) "
        "SELECT number, request, run, time, outcome, mind FROM ideas ORDER BY number"
    ),
    "CREATE INDEX idea_places_by_request ON idea_places(request)",
    "CREATE INDEX idea_places_by_time ON idea_places(time)",
    "CREATE INDEX idea_places_by_outcome ON idea_places(outcome, time)",
    "CREATE INDEX idea_places_by_mind ON idea_places(mind, time)",
    "CREATE INDEX idea_places_by_outcome_and_mind ON idea_places(outcome, mind, time)",
    "DROP INDEX idx_ideas_request",
    "DROP INDEX ideas_by_time",
    "DROP INDEX ideas_by_outcome",
    "DROP INDEX ideas_by_mind",
    "DROP INDEX ideas_by_outcome_and_mind",
)


def _seventh(connection: sqlite3.Connection) -> None:
    for statement in _SEVENTH:
        connection.execute(statement)


_EIGHTH: Final = (
    # By what contents are found: a number of 8 bytes instead of the whole hash, taken up a batch at a time.
    "CREATE TABLE content_keys (key INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT",
    "DROP INDEX idx_contents_hash",
    # The ideas of a run are found by their places.
    (
        "INSERT INTO idea_places(idea, request, run, time, outcome, mind) "
        "SELECT number, request, run, time, outcome, mind FROM ideas "
        "WHERE number > (SELECT coalesce(max(idea), 0) FROM idea_places) ORDER BY number"
    ),
    "ALTER TABLE idea_places ADD COLUMN step INTEGER",
    "UPDATE idea_places SET step = (SELECT step FROM ideas WHERE number = idea) WHERE run IS NOT NULL",
    "CREATE INDEX idea_places_by_run ON idea_places(run, step) WHERE run IS NOT NULL",
    "DROP INDEX ideas_by_run",
    # What runs call and ideas are tagged with, by time.
    (
        "CREATE TABLE idea_uses (what TEXT NOT NULL, time TEXT NOT NULL, "
        "idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (what, time, idea)) STRICT, WITHOUT ROWID"
    ),
    (
        "INSERT OR IGNORE INTO idea_uses(what, time, idea) WITH called(idea, what) AS ("
        "SELECT idea, 'tool:' || tool FROM idea_calls UNION SELECT idea, 'module:' || module FROM idea_calls "
        "WHERE module <> '') "
        "SELECT what, ideas.time, called.idea FROM called JOIN ideas ON ideas.number = called.idea UNION "
        "SELECT DISTINCT what, steps.time, steps.number FROM called JOIN ideas AS made ON made.number = called.idea "
        "JOIN idea_places AS place ON place.run = made.run JOIN ideas AS steps ON steps.number = place.idea "
        "WHERE steps.number <= (SELECT value FROM counters WHERE key = 'shaped')"
    ),
    (
        "INSERT OR IGNORE INTO idea_uses(what, time, idea) SELECT 'tag:' || tag, ideas.time, ideas.number "
        "FROM idea_tags JOIN ideas ON ideas.number = idea_tags.idea"
    ),
    "CREATE INDEX idea_uses_by_idea ON idea_uses(idea)",
    "DROP INDEX idea_calls_by_module",
    "DROP VIEW idea_list",
    f"CREATE VIEW idea_list AS {IDEA_LIST}",
)


def _eighth(connection: sqlite3.Connection) -> None:
    for statement in _EIGHTH:
        connection.execute(statement)
    rows = connection.execute("SELECT hash, number FROM contents").fetchall()
    keys = sorted((int.from_bytes(digest[:8], "big", signed=True), number) for digest, number in rows)
    connection.executemany("INSERT OR REPLACE INTO content_keys(key, number) VALUES (?, ?)", keys)
    connection.execute("INSERT INTO counters(key, value) SELECT 'keyed', coalesce(max(number), 0) FROM contents")


def _ninth(connection: sqlite3.Connection) -> None:
    # A reference to the input stands for a literal: what has one has another shape.
    rows = connection.execute(
        "SELECT idea, solution FROM idea_shapes JOIN ideas ON ideas.number = idea "
        "WHERE shape IS NOT NULL AND instr(solution, '†input')"
    )
    shapes = [(shape_of(decode_trusted(solution)), number) for number, solution in rows]
    connection.executemany("UPDATE idea_shapes SET shape = ? WHERE idea = ?", shapes)


_TENTH: Final = (
    # What each module listed last, by the fingerprint of its configuration: its tools are known before it is up.
    (
        "CREATE TABLE module_tools (number INTEGER PRIMARY KEY, module TEXT NOT NULL UNIQUE, name TEXT NOT NULL, "
        "tools TEXT NOT NULL, time TEXT NOT NULL) STRICT"
    ),
    # The shapes of the results of tools that declare none, by the owner of the runs and the digest of the definition.
    (
        "CREATE TABLE observed_shapes (number INTEGER PRIMARY KEY, owner TEXT NOT NULL, tool TEXT NOT NULL, "
        "name TEXT NOT NULL, shapes TEXT NOT NULL, time TEXT NOT NULL, UNIQUE (owner, tool)) STRICT"
    ),
)


def _tenth(connection: sqlite3.Connection) -> None:
    for statement in _TENTH:
        connection.execute(statement)


def _eleventh(connection: sqlite3.Connection) -> None:
    # Every direct call of an exposed tool, in the order in which they ended.
    connection.execute(
        "CREATE TABLE direct_calls (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, caller TEXT NOT NULL, "
        "client TEXT NOT NULL, session TEXT NOT NULL, name TEXT NOT NULL, module TEXT, tool TEXT NOT NULL, "
        "parameters TEXT NOT NULL, seconds REAL NOT NULL, outcome TEXT NOT NULL, run TEXT, bytes_in INTEGER NOT NULL, "
        "bytes_out INTEGER NOT NULL) STRICT"
    )


_TWELFTH: Final = (
    # What the tools were that published calls mean, by digest: a change is shown against it.
    (
        "CREATE TABLE tool_definitions (digest TEXT PRIMARY KEY, essence TEXT NOT NULL, time TEXT NOT NULL) "
        "STRICT, WITHOUT ROWID"
    ),
    # Whose each exposed name is, by the folder of the configuration: a name never comes to mean another tool.
    (
        "CREATE TABLE exposed_names (scope TEXT NOT NULL, name TEXT NOT NULL, module TEXT NOT NULL, "
        "tool TEXT NOT NULL, PRIMARY KEY (scope, name)) STRICT, WITHOUT ROWID"
    ),
)


def _twelfth(connection: sqlite3.Connection) -> None:
    for statement in _TWELFTH:
        connection.execute(statement)


_THIRTEENTH: Final = (
    # Who may use a server on this store. Rows are never deleted: a name is never given to another person.
    (
        "CREATE TABLE users (name TEXT PRIMARY KEY, role TEXT NOT NULL, state TEXT NOT NULL, created TEXT NOT NULL, "
        "issuer TEXT, subject TEXT) STRICT, WITHOUT ROWID"
    ),
    "CREATE UNIQUE INDEX users_by_subject ON users(issuer, subject) WHERE issuer IS NOT NULL",
    (
        "CREATE TABLE user_tokens (id TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES users(name), "
        "hash BLOB NOT NULL, label TEXT NOT NULL, created TEXT NOT NULL, expires TEXT, revoked TEXT, used TEXT) "
        "STRICT, WITHOUT ROWID"
    ),
    "CREATE INDEX user_tokens_by_user ON user_tokens(user)",
    # To whom a published name is given besides its owner; '' stands for everybody.
    "CREATE TABLE shares (caller TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (caller, name)) STRICT, WITHOUT ROWID",
    "CREATE INDEX shares_by_name ON shares(name)",
)


def _thirteenth(connection: sqlite3.Connection) -> None:
    for statement in _THIRTEENTH:
        connection.execute(statement)


_FOURTEENTH: Final = (
    # Where the parts of an event are that stand in `contents`, and the Solution of an idea that its journal holds too.
    "ALTER TABLE events ADD COLUMN parts TEXT",
    "CREATE INDEX events_with_parts ON events(id) WHERE parts IS NOT NULL",
    "ALTER TABLE ideas ADD COLUMN solved INTEGER",
    "DROP VIEW journal",
    f"CREATE VIEW journal AS {JOURNAL}",
    # What runs call and ideas are tagged with stands once, and a number for it with each idea.
    "CREATE TABLE use_names (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT",
    "INSERT INTO use_names(name) SELECT DISTINCT what FROM idea_uses ORDER BY 1",
    "ALTER TABLE idea_uses RENAME TO old_uses",
    (
        "CREATE TABLE idea_uses (what INTEGER NOT NULL, time TEXT NOT NULL, "
        "idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (what, time, idea)) STRICT, WITHOUT ROWID"
    ),
    (
        "INSERT INTO idea_uses(what, time, idea) SELECT use_names.number, time, idea FROM old_uses "
        "JOIN use_names ON use_names.name = what ORDER BY 1, 2, 3"
    ),
    "DROP TABLE old_uses",
    "CREATE INDEX idea_uses_by_idea ON idea_uses(idea)",
    # The tools of an idea are looked up by the idea alone.
    "DROP VIEW call_list",
    "ALTER TABLE idea_calls RENAME TO old_calls",
    (
        "CREATE TABLE idea_calls (tool TEXT NOT NULL, module TEXT NOT NULL, "
        "idea INTEGER NOT NULL REFERENCES ideas(number), PRIMARY KEY (idea, tool, module)) STRICT, WITHOUT ROWID"
    ),
    "INSERT INTO idea_calls(tool, module, idea) SELECT tool, module, idea FROM old_calls ORDER BY idea, tool, module",
    "DROP TABLE old_calls",
    (
        "CREATE VIEW call_list AS SELECT lower(hex(ideas.id)) AS idea, idea_calls.tool, idea_calls.module "
        "FROM idea_calls JOIN ideas ON ideas.number = idea_calls.idea"
    ),
    "DROP VIEW idea_list",
    f"CREATE VIEW idea_list AS {IDEA_LIST_14}",
)


def _fourteenth(connection: sqlite3.Connection) -> None:
    for statement in _FOURTEENTH:
        connection.execute(statement)


def _fifteenth(connection: sqlite3.Connection) -> None:
    # By what the ideas of a Request are found: the first bytes of its id. The whole one stands with the idea.
    connection.execute("UPDATE idea_places SET request = substr(request, 1, 8)")
    # What an idea has is known from the calls of its run, and its tags.
    connection.execute("DROP INDEX idea_uses_by_idea")


MIGRATIONS: Final[tuple[Migration, ...]] = (
    _first,
    _second,
    _third,
    _fourth,
    _fifth,
    _sixth,
    _seventh,
    _eighth,
    _ninth,
    _tenth,
    _eleventh,
    _twelfth,
    _thirteenth,
    _fourteenth,
    _fifteenth,
)
"""In order; a store's `PRAGMA user_version` is how many of them it has seen."""
