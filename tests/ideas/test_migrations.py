"""Stores of every earlier version open, and hold what they held: as SQL, written by the code of that version."""

import sqlite3
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.ideas import IdeaFilter, Store
from ideabridge.bridge.ideas.migrations import MIGRATIONS

pytestmark = pytest.mark.anyio

OLD = Path(__file__).parent / "old_stores"
VERSIONS = range(1, len(MIGRATIONS))


def old_store(version: int, folder: Path) -> Path:
    """A store as that version left it."""
    path = folder / "old.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript((OLD / f"version_{version}.sql").read_text(encoding="utf-8"))
    connection.close()
    return path


def shape_of(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Tables and views with their columns and types, and indexes by their columns."""
    with sqlite3.connect(path) as connection:
        names = connection.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        found: dict[str, list[tuple[str, str]]] = {}
        for kind, name in names:
            pragma = "index_info" if kind == "index" else "table_info"
            rows = connection.execute(f"PRAGMA {pragma}('{name}')").fetchall()
            found[f"{kind} {name}"] = [(str(row[-1] if kind == "index" else row[1]), str(row[2])) for row in rows]
    connection.close()
    return found


def test_there_is_a_store_of_every_version() -> None:
    assert sorted(file.name for file in OLD.iterdir()) == [f"version_{version}.sql" for version in VERSIONS]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_store_of_an_earlier_version_holds_what_it_held(version: int, tmp_path: Path) -> None:
    path = old_store(version, tmp_path)
    async with Bridge(Configuration(approval="allow_all"), store=path) as bridge:
        store = bridge.store
        runs = store.runs()
        assert [one.status for one in runs] == ["needs_solution", "done", "done", "done"]
        assert [(await bridge.run(one.id)).status for one in runs] == [one.status for one in runs]
        assert (await bridge.run(runs[2].id)).given() == 4
        assert [hit.names for hit in store.search_ideas("count letters")][:1] == [("letters",)]
        assert len(store.ideas().items) == 3
        listed = {one: len(store.ideas(chosen=one).items) for one in (IdeaFilter(tool="count"), IdeaFilter(tag="kept"))}
        assert list(listed.values()) == [2, 1 if version > 1 else 0]
        assert [len(store.ideas(run=one.id).items) for one in runs] == [0, 1, 1, 1]
        answer = await bridge.call_idea("letters", {"text": "hello"})
        assert answer.run is not None
        assert await answer.run.result() == 5
        assert store.publication("letters", 1).description != store.publication("letters").description
        assert [name for name, _ in store.forks(runs[1].id)] == []
        assert store.event_times(runs[1].id) == {}
        fork = await bridge.fork(runs[2].id, 1, input={"text": "abcdef"})
        assert await fork.result() == 6


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_store_becomes_what_a_new_one_is(version: int, tmp_path: Path) -> None:
    old, new = old_store(version, tmp_path), tmp_path / "new.sqlite"
    for path in (old, new):
        Store.open(path).close()
    assert shape_of(old) == shape_of(new)
