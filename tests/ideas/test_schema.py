"""A store of another version is refused or migrated."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from sqlite_utils import Database

from ideabridge.bridge.store.errors import StoreVersionError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.sqlite import schema, sqlite3
from ideabridge.bridge.store.sqlite.database import APPLICATION_ID
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests.ideas.values import idea_of

OLD_SCHEMA: Final = Path(__file__).with_name("schema_25.sql")
"""The schema of the first version that is migrated."""


def store_of(version: int, folder: Path) -> Path:
    """A store with one idea that says it is of a version."""
    path = folder / "ideas.db"
    with Store.open(path) as store:
        store.ideas.save(idea_of("kept"), IdeaMeta())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    return path


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (schema.VERSION + 1, "newer ideabridge .*upgrade ideabridge, or name another store"),
        (
            schema.FIRST - 1,
            "earlier ideabridge .*import them into a new store, or name another store",
        ),
        (1, "earlier ideabridge"),
    ],
)
def test_a_store_of_another_version_is_refused_and_left_alone(
    version: int, advice: str, tmp_path: Path
) -> None:
    path = store_of(version, tmp_path)
    before = path.read_bytes()
    with pytest.raises(StoreVersionError, match=advice) as caught:
        Store.open(path)
    assert f"(store version {version}; this one reads {schema.VERSION})" in str(caught.value)
    assert path.read_bytes() == before


def test_a_store_of_version_25_is_migrated(tmp_path: Path) -> None:
    path = store_of(25, tmp_path)
    new = tmp_path / "new.db"
    Store.open(new).close()
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(new)) as fresh:
        for view in ("idea_list", "idea_messages", "journal", "whole_contents"):
            connection.execute(f"DROP VIEW {view}")

        connection.execute("DROP INDEX contents_ropes")
        connection.execute("ALTER TABLE ideas DROP COLUMN shown")
        connection.execute("ALTER TABLE user_tokens DROP COLUMN profile")
        connection.execute("DROP TABLE configuration_changes")
        connection.execute("ALTER TABLE runs DROP COLUMN client")
        connection.execute("CREATE VIEW idea_list AS SELECT number FROM ideas")
        connection.commit()
        with Store.open(path) as store:
            assert store.ideas.get(idea_of("kept").id, caller=SEES_ALL).idea == idea_of("kept")
            shown = Idea(["new"], {}, None, {"value": 1, "request": 2})
            assert (
                store.ideas.get(store.ideas.save(shown, IdeaMeta()), caller=SEES_ALL).idea == shown
            )

        columns = (
            "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c "
            "ORDER BY 1, c.cid"
        )
        assert connection.execute(columns).fetchall() == fresh.execute(columns).fetchall()
        listed = connection.execute("SELECT shown FROM idea_list ORDER BY number").fetchall()
        assert listed == [(None,), ('{"value":1,"request":2}',)]


def old_store(folder: Path) -> Path:
    """An empty store of the first version that is migrated, made without our code."""
    path = folder / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD_SCHEMA.read_text())
        connection.execute(f"PRAGMA user_version={schema.FIRST}")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    return path


def parts_of(path: Path) -> dict[str, str]:
    """The statement that made each table, index and view, without quotes and without a
    choice of blanks.
    """
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        ).fetchall()
    return {name: plain_statement(sql) for name, sql in rows}


def plain_statement(sql: str) -> str:
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.replace('"', "").split()))


def test_a_new_store_and_an_old_one_that_is_migrated_have_one_schema(tmp_path: Path) -> None:
    old = old_store(tmp_path)
    new = tmp_path / "new.db"
    for path in (old, new):
        with Store.open(path) as store:
            store.ideas.save(idea_of("kept"), IdeaMeta(title="Kept"))
            assert len(store.ideas.search("kept", caller=SEES_ALL)) == 1

    assert parts_of(new) == parts_of(old)


def rows_of(path: Path) -> dict[str, int]:
    """How many rows each table has."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM pragma_table_list WHERE type = 'table'")
        return {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for (name,) in tables.fetchall()
            if not name.startswith("sqlite_")
        }


def test_a_migration_writes_no_rows_that_a_new_store_would_lack(tmp_path: Path) -> None:
    """A new store repeats the statements that made another one, without its rows."""
    old = old_store(tmp_path)
    new = tmp_path / "new.db"
    for path in (old, new):
        Store.open(path).close()

    assert rows_of(new) == rows_of(old)


def add_colour(database: Database) -> None:
    database.table("runs").add_column("colour", str, not_null_default="red")


def add_shelf(database: Database) -> None:
    shelf = database.table("shelf").create(
        {"number": int, "run": int}, pk="number", foreign_keys=[("run", "runs")]
    )
    shelf.create_index(["run"])
    database.create_view("colours", "SELECT id AS run, colour FROM runs")
    database.table("tool_memory").transform(rename={"time": "at"})  # pyright: ignore[reportUnknownMemberType]


def next_versions(patch: pytest.MonkeyPatch, *steps: schema.Migration) -> None:
    """Let this ideabridge have further migrations."""
    patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *steps))
    patch.setattr(schema, "VERSION", schema.VERSION + len(steps))


def test_a_store_is_migrated_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store_of(schema.VERSION, tmp_path)
    now = schema.VERSION
    steps: list[str] = []

    def colour(database: Database) -> None:
        steps.append("colour")
        add_colour(database)

    def shelf(database: Database) -> None:
        steps.append("shelf")
        add_shelf(database)

    next_versions(monkeypatch, colour, shelf)
    for _ in range(2):
        with Store.open(path) as store:
            assert len(store.ideas.page().items) == 1

    assert steps == ["colour", "shelf"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (now + 2,)

    new = tmp_path / "new.db"
    Store.open(new).close()
    assert parts_of(new) == parts_of(path)
    assert "colour TEXT NOT NULL DEFAULT 'red'" in parts_of(new)["runs"]


def test_a_step_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store_of(schema.VERSION, tmp_path)
    before = parts_of(path)

    def fail(database: Database) -> None:
        database.table("runs").insert({"id": "x"}, ignore=True)
        database.table("settings").drop()
        raise RuntimeError("half way")

    with monkeypatch.context() as patch:
        next_versions(patch, add_colour, add_shelf, fail)
        with pytest.raises(RuntimeError, match=re.escape("half way")):
            Store.open(path)
        with pytest.raises(RuntimeError, match=re.escape("half way")):
            Store.open(tmp_path / "new.db")

    assert parts_of(path) == before
    assert parts_of(tmp_path / "new.db") == {}
    for name in ("new.db", path.name):
        with Store.open(tmp_path / name) as store:
            assert store.settings.get("none") is None


def test_only_a_new_store_and_an_old_one_import_sqlite_utils(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from ideabridge.bridge.store.store import Store\n"
        "Store.open(sys.argv[1]).close()\n"
        "print('sqlite_utils' in sys.modules)\n"
    )
    for expected in ("True", "False"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "ideas.db")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
