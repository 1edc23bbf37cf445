"""`ideabridge store query`: SQL that reads the store, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
import stat
import time
from pathlib import Path

import pytest

from ideabridge.bridge.store.errors import QueryError
from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.sqlite import query as queries
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.sqlite.query import query
from ideabridge.bridge.store.store import Store
from ideabridge.server.main import main
from tests.ideas.values import idea_of

from .conftest import Run

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
LONG = "long " * 40


@pytest.fixture
def store(project: Path) -> Path:
    path = project / "ideas.db"
    with Store.open(path) as made:
        made.ideas.save(idea_of("first"), IdeaMeta(title='=First, "quoted"\nline', outcome="done"))
        made.ideas.save(idea_of("second"), IdeaMeta(title=LONG))
    return path


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["store", "query", "--store", "ideas.db", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_rows_are_printed_as_a_table_as_csv_and_as_json(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = "number, title, outcome, NULL AS none, x'00ff' AS bytes, 9e999 AS large"
    sql = f"SELECT {values} FROM idea_list ORDER BY number"
    rows = [
        {"number": 1, "title": '=First, "quoted"\nline', "outcome": "done"},
        {"number": 2, "title": LONG, "outcome": ""},
    ]
    whole = [{**row, "none": None, "bytes": "00ff", "large": "inf"} for row in rows]
    code, out, err = ask(capsys, sql, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"columns": [*whole[0]], "rows": whole, "more": False}
    code, out, err = ask(capsys, sql, "--csv")
    assert (code, err) == (0, "")
    assert [*csv.DictReader(io.StringIO(out))] == [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in whole
    ]
    assert ask(capsys, sql) == ask(capsys, sql, "--table")
    code, out, err = ask(capsys, sql)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 3
    assert lines[0].split() == [*whole[0]]
    assert lines[1].startswith('1       =First, "quoted" line  ')
    assert f"{LONG[:99]}…" in lines[2]
    assert err == "1 value shortened: use --csv or --json to print them in full\n"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_wider_than_the_terminal_is_printed_row_by_row(
    columns: int, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, _ = ask(capsys, "SELECT number, id, request, title FROM idea_list ORDER BY number")
    lines = plain(out)
    assert code == 0
    assert lines[0] == "row 1"
    assert lines[1] == "number   1"
    assert lines[4] == 'title    =First, "quoted" line'
    assert "row 2" in lines
    assert max(map(len, lines)) <= columns
    code, out, _ = ask(capsys, "SELECT number, outcome FROM idea_list ORDER BY number")
    assert plain(out)[:2] == ["number  outcome", "1       done"]


def plain(text: str) -> list[str]:
    """The lines without styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_parameters_fill_names(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT title FROM idea_list WHERE number = :number AND outcome = $outcome LIMIT :most"
    words = ["-p", "number=1", "--param", ":outcome=done", "-p", "most=5", "--json"]
    code, out, _ = ask(capsys, sql, *words)
    assert code == 0
    assert len(json.loads(out)["rows"]) == 1
    code, out, _ = ask(capsys, "SELECT :x AS x", "-p", "x=a=b' OR 1", "--csv")
    assert (code, out) == (0, "x\na=b' OR 1\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["SELECT :x", "-p", "x"], "--param 'x': expected NAME=VALUE"),
        (["SELECT :x", "-p", "x=1", "-p", "x=2"], "--param 'x' is given twice"),
        (["SELECT :name", "-p", "nam=1"], "the SQL has no parameter :nam"),
        (["SELECT :x"], "the SQL cannot be run: You did not supply a value for binding"),
        (["SELECT ?"], "the SQL cannot be run: Binding 1 has no name"),
        (["SELEC 1"], 'the SQL cannot be run: near "SELEC": syntax error'),
        (
            ["SELECT 1; SELECT 2"],
            "the SQL cannot be run: You can only execute one statement at a time.",
        ),
        (["/* nothing */"], "the SQL returns no rows"),
        (["SELECT 1", "--csv", "--json"], "give only one of --csv, --json and --table"),
    ],
)
def test_what_cannot_be_understood_is_refused(
    words: list[str], error: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = ask(capsys, *words)
    assert code == 2
    assert err.startswith(f"ideabridge: {error}")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO settings VALUES ('a', 'b')",
        "INSERT INTO idea_words(idea_words) VALUES ('delete-all')",
        "WITH x AS (SELECT 1) DELETE FROM runs",
        "UPDATE runs SET id = 1 RETURNING *",
        "DROP TABLE ideas",
        "ALTER TABLE runs ADD COLUMN x",
        "CREATE TEMP TABLE mine (x)",
        "CREATE VIRTUAL TABLE mine USING fts5(x)",
        "ATTACH 'other.db' AS other",
        "VACUUM",
        "VACUUM INTO 'copy.db'",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "SAVEPOINT x",
        "PRAGMA user_version = 3",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = ON",
        "PRAGMA wal_checkpoint",
        "PRAGMA optimize",
        "SELECT * FROM pragma_integrity_check",
        "SELECT load_extension('x')",
    ],
)
def test_nothing_but_reading_is_possible(sql: str, store: Path) -> None:
    before = store.read_bytes()
    with pytest.raises(
        QueryError, match=r"^`store query` only reads the store: .*(refused|would change)"
    ):
        query(store, sql, {})

    assert store.read_bytes() == before
    assert {path.name for path in store.parent.iterdir()} <= {
        "ideas.db",
        "ideas.db-wal",
        "ideas.db-shm",
    }
    for path in store.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_all_views_the_words_and_the_schema_can_be_read(store: Path) -> None:
    with Store.open(store) as writing, writing.transaction():
        # In the meantime, another process is writing.
        writing.settings.set("a", b"b")
        views = query(store, "SELECT name FROM sqlite_master WHERE type = 'view'", {}).rows
        for (name,) in views:
            query(store, f"SELECT * FROM {name}", {})

    joined = "idea_words JOIN idea_list ON idea_list.number = idea_words.rowid"
    words = f"SELECT idea_list.title FROM {joined} WHERE idea_words MATCH :words ORDER BY rank"
    assert query(store, words, {"words": "long"}).rows == [(LONG,)]
    assert query(store, "SELECT 1 AS a, 2 AS a", {}).columns == ["a", "a_2"]
    assert query(store, "PRAGMA table_info(ideas)", {}).rows
    assert query(store, "EXPLAIN QUERY PLAN SELECT * FROM runs", {}).rows
    assert query(store, "SELECT title FROM idea_list WHERE 0", {}).columns == ["title"]
    assert query(store, "SELECT cast(x'ff41' AS TEXT)", {}).rows == [("\ufffdA",)]


def test_time_rows_and_bytes_are_bounded(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = ask(capsys, ENDLESS, "--json")
    answer = json.loads(out)
    assert (code, len(answer["rows"]), answer["more"]) == (0, 10_000, True)
    assert err == "only the first 10,000 rows were read: use LIMIT and OFFSET to read the others\n"
    assert query(store, f"{ENDLESS} LIMIT 10000", {}).bound == ""
    monkeypatch.setattr(queries, "MOST_RESULT_BYTES", 1024 * 1024)
    result = query(store, "SELECT zeroblob(500000) FROM ideas, ideas AS more", {})
    assert (len(result.rows), result.bound) == (2, "1 MB")
    with pytest.raises(QueryError, match="needs more than 512 MB of memory"):
        query(store, "SELECT hex(zeroblob(300000000))", {})

    monkeypatch.setattr(queries, "MOST_SECONDS", 0.05)
    with pytest.raises(QueryError, match=r"took longer than 0\.05 s"):
        query(store, f"SELECT count(*) FROM ({ENDLESS})", {})


def test_ctrl_c_ends_a_query(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.monotonic
    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        if looks == 2:
            # Python handles the signal as soon as it runs again, which is in a function that SQLite
            # calls.
            raise KeyboardInterrupt
        return clock()

    monkeypatch.setattr(time, "monotonic", look)
    with pytest.raises(KeyboardInterrupt):
        query(store, f"SELECT count(*) FROM ({ENDLESS})", {})


def test_only_stores_in_sqlite_are_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "query", "SELECT 1", "--store", "postgresql://me@127.0.0.1/ideas"]) == 2
    assert "read one in PostgreSQL with psql" in capsys.readouterr().err
    assert main(["store", "query", "SELECT 1", "--store", "none.db"]) == 3
    assert "no store exists at this path yet" in capsys.readouterr().err
    assert not Path("none.db").exists()
    Path("text.db").write_text("text " * 500)
    sqlite3.connect("other.db").execute("CREATE TABLE mine (x)").connection.close()
    for name in ("text.db", "other.db"):
        assert main(["store", "query", "SELECT 1", "--store", name]) == 3
        assert f"{name}: the file " in capsys.readouterr().err


def test_the_command_reads_while_another_process_writes(store: Path, ideabridge: Run) -> None:
    with Store.open(store) as writing, writing.transaction():
        writing.settings.set("a", b"b")
        done = ideabridge(
            "store", "query", "SELECT count(*) AS ideas FROM ideas", "--store", "ideas.db", "--csv"
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ideas\n2\n", "")
