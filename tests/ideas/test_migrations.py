"""Stores of every earlier version open, and hold what they held: as SQL, written by the code of that version."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.ideas import Idea, IdeaFilter, IdeaMeta, Store
from ideabridge.bridge.ideas.migrations import MIGRATIONS
from ideabridge.bridge.ideas.shape import shape_of as shape_of_plan
from ideabridge.bridge.ideas.sqlite import sqlite3
from ideabridge.tools.encoding import JSON

pytestmark = pytest.mark.anyio

OLD = Path(__file__).parent / "old_stores"
SHAPES = "SELECT lower(hex(id)), shape FROM idea_shapes JOIN ideas ON number = idea"
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


@pytest.mark.parametrize("version", VERSIONS)
def test_shapes_are_those_of_today(version: int, tmp_path: Path) -> None:
    path = old_store(version, tmp_path)
    with Store.open(path) as store:
        while store.index_ideas():
            pass
        with closing(sqlite3.connect(path)) as connection:
            kept = connection.execute(SHAPES).fetchall()
        assert len(kept) >= 2
        assert "†input" in str([store.idea(idea).idea.solution for idea, _ in kept])
        assert [shape for _, shape in kept] == [shape_of_plan(store.idea(idea).idea.solution) for idea, _ in kept]


def test_there_is_a_store_of_every_version() -> None:
    assert {file.name for file in OLD.iterdir()} == {f"version_{version}.sql" for version in VERSIONS}


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


BACK_TO_7 = """
DROP VIEW journal; DROP VIEW idea_list; CREATE VIEW journal AS SELECT 1; CREATE VIEW idea_list AS SELECT 1;
DROP INDEX events_with_parts; ALTER TABLE events DROP COLUMN parts; ALTER TABLE ideas DROP COLUMN solved;
DROP TABLE shares; DROP TABLE user_tokens; DROP TABLE users;
DROP TABLE direct_calls; DROP TABLE module_tools; DROP TABLE observed_shapes; DROP TABLE tool_definitions;
DROP TABLE exposed_names;
DROP TABLE idea_uses; DROP TABLE use_names; DROP TABLE content_keys; DELETE FROM counters WHERE key = 'keyed';
CREATE UNIQUE INDEX idx_contents_hash ON contents(hash);
DROP INDEX idea_places_by_run; ALTER TABLE idea_places DROP COLUMN step;
DELETE FROM idea_places WHERE idea > 40;
CREATE INDEX ideas_by_run ON ideas(run, step) WHERE run IS NOT NULL;
CREATE INDEX idea_calls_by_module ON idea_calls(module, idea);
PRAGMA user_version=7;
"""


def kept_for_lists(path: Path) -> list[list[tuple[object, ...]]]:
    """What lists of the first 60 ideas are read from."""
    with closing(sqlite3.connect(path)) as connection:
        tables = (
            "SELECT name, time, idea FROM idea_uses JOIN use_names ON number = what WHERE idea <= 60 ORDER BY 1, 2, 3",
            "SELECT idea, run, step, time FROM idea_places WHERE idea <= 60",
        )
        return [connection.execute(one).fetchall() for one in tables]


def test_what_lists_are_read_from_is_made_of_an_old_store_as_of_ideas_saved_now(tmp_path: Path) -> None:
    path, source = tmp_path / "ideas.db", random.Random(5)
    with Store.open(path) as store:
        for number in range(60):
            tools = source.sample(["a", "b", "c", "d"], source.randrange(3))
            calls: JSON = [{"_tool": tool, "_module": source.choice(["", "m", "n"])} for tool in tools]
            run = source.choice([None, "one", "two", "three"])
            meta = IdeaMeta(run=run, step=number if run else None, tags=("odd",) if number % 9 == 0 else ())
            store.save_idea(Idea([{"role": "user", "content": str(number)}], {}, {"calls": calls}), meta)
            if number % 7 == 0:
                store.index_ideas()
        while store.index_ideas():
            pass
    now = kept_for_lists(path)
    assert len(now[0]) > 100
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(BACK_TO_7)
    with Store.open(path) as store:
        # What was stored before is recognised.
        idea = Idea([{"role": "user", "content": "7"}], {}, {"calls": [], "output": "another"})
        store.save_idea(idea, IdeaMeta())
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT body) FROM contents").fetchone()
        assert found == (61, 61)
    assert kept_for_lists(path) == now
