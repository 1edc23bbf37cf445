"""The file: opening it, its errors by cause, and what outsiders may rely on."""

import os
import signal
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ideabridge.bridge.store.errors import (
    StoreAccessError,
    StoreBusyError,
    StoreClosedError,
    StoreFormatError,
    StoreFullError,
)
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.sqlite import database, sqlite3, watch
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests.ideas.values import idea_of


def test_a_new_store_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "ideas.db"
    with Store.open(path) as store:
        store.ideas.save(idea_of("x"), IdeaMeta())
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file

    with Store.open(str(path), durability="full") as store:
        assert len(store.ideas.page().items) == 1


@pytest.mark.parametrize("name", ["a b?c#d%41&e=f.db", "été ①.db", "file:x.db", ":memory:.db"])
def test_names_mean_what_they_say(tmp_path: Path, name: str) -> None:
    with Store.open(tmp_path / name) as store:
        store.settings.set("k", b"v")
        assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}-wal", f"{name}-shm"}

    (tmp_path / "link.db").symlink_to(tmp_path / name)
    with Store.open(tmp_path / "link.db") as store:
        assert store.settings.get("k") == b"v"

    assert {file.name for file in tmp_path.iterdir()} == {name, "link.db"}


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    path.touch()
    with Store.open(path) as store:
        assert store.ideas.page().items == []


@pytest.mark.parametrize("content", [b"x", b"not a database, but long enough to be one" * 100])
def test_what_is_not_sqlite_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ideas.db"
    path.write_bytes(content)
    with pytest.raises(StoreFormatError, match="not an SQLite database"):
        Store.open(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    with pytest.raises(StoreFormatError, match="not a store of ideas"):
        Store.open(path)

    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


def test_places_where_no_store_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (
        tmp_path,
        tmp_path / "file" / "ideas.db",
        Path("/proc/ideas.db"),
        tmp_path / ("x" * 300),
    ):
        with pytest.raises(StoreAccessError, match="cannot be"):
            Store.open(path)


def test_a_damaged_store(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    with Store.open(path) as store:
        for number in range(50):
            store.ideas.save(idea_of(str(number) * 100), IdeaMeta())

    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match="damaged"), Store.open(path) as store:
        store.ideas.page()


def test_a_locked_store(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    with (
        Store.open(path, busy_timeout_s=0.05) as store,
        Store.open(path) as other,
        other.transaction(),
    ):
        other.settings.set("k", b"v")
        for call in (
            lambda: store.ideas.save(idea_of("x"), IdeaMeta()),
            lambda: store.settings.set("k", b""),
        ):
            with pytest.raises(StoreBusyError, match="another process keeps the store locked"):
                call()
        # Reading still works.
        assert store.settings.get("k") is None


def broken(path: Path, pragma: str) -> Store:
    """A store whose connection SQLite itself holds to a limit, as a full disk or a read-only
    file system would.
    """
    store = Store.open(path)
    opened = store._database  # pyright: ignore[reportPrivateUsage]
    assert isinstance(opened, database.SqliteDatabase)
    opened.connection.execute(pragma)
    return store


def test_a_full_store_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    pages = 60
    with broken(path, f"PRAGMA max_page_count={pages}") as store:
        saved: list[str] = []

        def fill() -> None:
            while True:
                saved.append(store.ideas.save(idea_of("x" * 2000 + str(len(saved))), IdeaMeta()))

        with pytest.raises(StoreFullError, match="no space is left"):
            fill()

        assert len(store.ideas.page(1000).items) == len(saved) > 0
        store.settings.set("still", b"works")


def test_a_store_that_can_only_be_read(tmp_path: Path) -> None:
    with broken(tmp_path / "ideas.db", "PRAGMA query_only=1") as store:
        with pytest.raises(StoreAccessError, match="is read-only"):
            store.ideas.save(idea_of("x"), IdeaMeta())
        assert store.ideas.page().items == []


def test_a_closed_store(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "ideas.db")
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.ideas.page(),
        lambda: store.ideas.save(idea_of("x"), IdeaMeta()),
        lambda: store.ideas.search("x", caller=SEES_ALL),
        lambda: store.runs.append("run", 1, [{}]),
        lambda: store.settings.get("x"),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


@pytest.mark.parametrize("fixed", [True, False])
def test_the_log_is_moved_into_the_file_while_the_store_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool
) -> None:
    # SQLite itself makes the checkpoints if it does not have the WAL-reset bug, and
    # `checkpoint_locked` does so if it has.
    if fixed and not database.IS_FIXED:
        pytest.skip("this SQLite has the WAL-reset bug")

    monkeypatch.setattr(database, "IS_FIXED", fixed)
    monkeypatch.setattr(watch, "IS_FIXED", fixed)
    path = tmp_path / "ideas.db"
    log = path.with_name("ideas.db-wal")
    with Store.open(path) as store:
        for number in range(3 * watch.COMMITS):
            store.settings.set("k", bytes([number % 256]) * 50_000)
        # Each commit writes 13 pages.
        assert log.stat().st_size < 2 * watch.COMMITS * 13 * 4096
        assert path.stat().st_size > 50_000

    assert not log.exists()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of a timer are of Unix")
def test_a_save_interrupted_while_it_waits_gives_the_lock_back(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.signal(signal.SIGALRM, interrupt), signal.set_wakeup_fd(writing)
    path = tmp_path / "ideas.db"
    try:
        with (
            Store.open(path) as store,
            closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
        ):
            other.execute("BEGIN IMMEDIATE")

            def release() -> None:
                # The signal has arrived: the save now gets the lock, and is then interrupted.
                os.read(reading, 1)
                other.execute("COMMIT")

            thread = threading.Thread(target=release)
            thread.start()
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                store.ideas.save(idea_of("interrupted"), IdeaMeta())

            thread.join()
            other.execute("BEGIN IMMEDIATE")
            other.execute("COMMIT")
            idea = store.ideas.save(idea_of("after"), IdeaMeta())
            assert [one.id for one in store.ideas.page().items] == [idea]
    finally:
        signal.signal(signal.SIGALRM, before[0])
        signal.set_wakeup_fd(before[1])
        os.close(reading)
        os.close(writing)


def test_views_for_readers(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    with Store.open(path) as store:
        idea = store.ideas.save(idea_of("x"), IdeaMeta(run="run", step=1, title="t"))
        store.runs.create("run", kind="plan", caller="", title="", fingerprint="")
        epoch = store.leases.acquire("run", "d", 1, 1)
        assert epoch is not None
        store.runs.append("run", epoch, [{"a": 1}, {"b": 2}])
        store.publications.publish(
            NewPublication(
                name="name",
                idea_id=idea,
                description="d",
                answer="solve",
                input_schema=None,
                output_schema=None,
                annotations={},
            )
        )

    connection = sqlite3.connect(path)
    assert connection.execute("SELECT id, run, step, title FROM idea_list").fetchall() == [
        (idea, "run", 1, "t")
    ]
    assert connection.execute("SELECT place, message FROM idea_messages").fetchall() == [
        (1, '{"role":"user","content":"x"}')
    ]
    journal = connection.execute("SELECT * FROM journal").fetchall()
    assert [row[:3] for row in journal] == [("run", 1, '{"a":1}'), ("run", 2, '{"b":2}')]
    assert all(row[3].endswith("Z") for row in journal)
    assert connection.execute(
        "SELECT name, version, idea, live FROM publication_list"
    ).fetchall() == [("name", 1, idea, 1)]
    connection.close()


def test_the_messages_view_unfolds_long_contexts(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    with Store.open(path) as store:
        store.ideas.save(Idea([{"n": number % 151} for number in range(900)], {}, None), IdeaMeta())

    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT message FROM idea_messages ORDER BY place").fetchall()
    connection.close()
    assert [row[0] for row in rows] == [f'{{"n":{number % 151}}}' for number in range(900)]
