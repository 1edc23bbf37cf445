"""A store of another version is refused or migrated."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from ideabridge.bridge.store.errors import StoreVersionError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.sqlite import schema, sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests.ideas.values import idea_of


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
        (24, "earlier ideabridge .*import them into a new store, or name another store"),
        (1, "earlier ideabridge"),
    ],
)
def test_a_store_of_another_version_is_refused_and_left_alone(version: int, advice: str, tmp_path: Path) -> None:
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
        connection.execute("CREATE VIEW idea_list AS SELECT number FROM ideas")
        connection.commit()
        with Store.open(path) as store:
            assert store.ideas.get(idea_of("kept").id, caller=SEES_ALL).idea == idea_of("kept")
            shown = Idea(["new"], {}, None, {"value": 1, "request": 2})
            assert store.ideas.get(store.ideas.save(shown, IdeaMeta()), caller=SEES_ALL).idea == shown
        columns = "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c ORDER BY 1, c.cid"
        assert connection.execute(columns).fetchall() == fresh.execute(columns).fetchall()
        listed = connection.execute("SELECT shown FROM idea_list ORDER BY number").fetchall()
        assert listed == [(None,), ('{"value":1,"request":2}',)]


def test_a_store_is_migrated_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store_of(schema.VERSION, tmp_path)
    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 2)
    steps: list[int] = []

    def step(number: int) -> schema.Migration:
        def run(connection: sqlite3.Connection) -> None:
            steps.append(number)
            connection.execute(f"CREATE TABLE step_{number} (x)")

        return run

    monkeypatch.setattr(schema, "MIGRATIONS", {now: step(1)})
    with pytest.raises(StoreVersionError):
        Store.open(path)
    monkeypatch.setattr(schema, "MIGRATIONS", {now: step(1), now + 1: step(2)})
    for _ in range(2):
        with Store.open(path) as store:
            assert len(store.ideas.page().items) == 1
    assert steps == [1, 2]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (now + 2,)
        assert connection.execute("SELECT count(*) FROM step_2").fetchone() == (0,)


def test_a_step_that_fails_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store_of(schema.VERSION, tmp_path)
    now = schema.VERSION

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE settings")
        raise RuntimeError("half way")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSION", now + 1)
        patch.setattr(schema, "MIGRATIONS", {now: fail})
        with pytest.raises(RuntimeError, match=re.escape("half way")):
            Store.open(path)
    with Store.open(path) as store:
        assert store.settings.get("none") is None
