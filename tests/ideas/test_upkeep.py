"""The store is copied while it is written to, and written anew; others read it without our code."""

import random
import shutil
import stat
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ideabridge.bridge.store.errors import StoreAccessError
from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from tests.disk import REASON, Disk
from tests.ideas.test_processes import check, child
from tests.ideas.test_readers import utils
from tests.ideas.values import idea_of, publish


def test_a_backup_is_whole_while_others_write(file_store: Store, tmp_path: Path) -> None:
    for number in range(200):
        file_store.ideas.save(idea_of(f"before {number}"), IdeaMeta(title=f"t{number}"))

    saved: list[str] = []
    begun, enough = threading.Event(), threading.Event()

    def write() -> None:
        with Store.open(file_store.path) as other:
            while not enough.is_set():
                saved.append(other.ideas.save(idea_of(f"while {len(saved)}"), IdeaMeta()))
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        begun.wait()
        size = file_store.back_up(tmp_path / "copy.sqlite")
    finally:
        enough.set()
        writer.join()

    assert size == (tmp_path / "copy.sqlite").stat().st_size
    assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o600
    with Store.open(tmp_path / "copy.sqlite") as copy:
        assert len(copy.ideas.search("before", 500, caller=SEES_ALL)) == 200
        copied = {one.id for one in copy.ideas.page(1000).items}

    # What was saved before the copy began is in it, and nothing is in it that was never saved.
    assert saved[0] in copied
    everything: set[str] = set()
    after: str | None = None
    while True:
        page = file_store.ideas.page(1000, after)
        everything |= {one.id for one in page.items}
        after = page.next
        if after is None:
            break

    assert copied <= everything


WRITER = """
store = Store.open(sys.argv[1])
print("writes", flush=True)
saved = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    store.ideas.save(idea_of(f"while {saved}"), IdeaMeta(title="while"))
    saved += 1
print(saved, flush=True)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of more than SQLite copies in one step, did it not do it at once: every write would
    begin it again.
    """
    path = tmp_path_factory.mktemp("large") / "ideas.db"
    with Store.open(path) as store:
        save_old(store, 40)
    return path


def save_old(store: Store, count: int) -> None:
    """Save ideas of half a megabyte."""
    for number in range(count):
        text = random.Random(number).randbytes(250_000).hex()
        store.ideas.save(idea_of(text), IdeaMeta(time="2020-01-01T00:00:00.000+00:00"))


@pytest.fixture
def large_store(large: Path, tmp_path: Path) -> Generator[Store]:
    shutil.copy(large, tmp_path / "ideas.db")
    with Store.open(tmp_path / "ideas.db") as store:
        yield store


@pytest.mark.parametrize("work", ["back_up", "vacuum"])
def test_another_process_writes_all_the_while(
    large_store: Store, tmp_path: Path, work: str
) -> None:
    with written_meanwhile(large_store):
        if work == "back_up":
            assert large_store.back_up(tmp_path / "copy") > 20_000_000
            check(tmp_path / "copy")
        else:
            large_store.vacuum()


def test_another_process_writes_while_ideas_are_pruned(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.db") as store:
        # Every transaction of the pruning waits for the other process. These runs are enough for
        # about thirty of them, including two that delete ideas.
        save_old(store, 10)
        with written_meanwhile(store):
            assert store.prune(store.prunable(before="2021-01-01")).ideas >= 9
            store.vacuum()


@contextmanager
def written_meanwhile(store: Store) -> Generator[None]:
    """Another process writes into the store all the while. It loses nothing, and the store stays
    whole.
    """
    other = child(Path(store.path), f"import select\n{WRITER}")
    assert other.stdout is not None
    assert other.stdout.readline() == "writes\n"
    yield
    saved = int(other.communicate("enough\n")[0])
    assert other.returncode == 0
    assert store.ideas.search(f"while {saved - 1}", 1, caller=SEES_ALL)
    titles = [one.meta.title for one in store.ideas.page(1000).items]
    assert titles.count("while") == min(saved, 1000)
    check(Path(store.path))


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_a_backup_that_is_killed_leaves_no_file_or_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    target = tmp_path / "copy"
    with Store.open(path) as store:
        for number in range(100):
            store.ideas.save(idea_of(f"{number} {'x' * 5_000}"), IdeaMeta())

    disk = Disk(tmp_path / "disk")
    words = disk.command(
        "store", "backup", str(target), "--store", str(path), "--project", str(tmp_path)
    )
    # Kill it once near its beginning and once in the middle.
    for writes in (20, 80):
        before = disk.hits()
        disk.slow(0.002)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        disk.wait_for_hits(before + writes)
        process.kill()
        process.communicate()
        disk.heal()
        left = [file for file in tmp_path.iterdir() if file.name.startswith("copy")]
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in left)
        assert left
        assert all(file.name.startswith("copy.partial-") for file in left)

    # A file that is being written is not a left-over, but those of processes that were killed are.
    disk.slow(0.002)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    disk.wait_for_hits(disk.hits() + 5)
    with Store.open(path) as store:
        store.back_up(target)

    disk.heal()
    assert b"ideabridge does not overwrite it" in process.communicate()[1]
    assert process.returncode == 3
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("copy")] == ["copy"]
    check(target)


def test_a_backup_where_files_have_one_name(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    file_store.back_up(tmp_path / "copy")
    with pytest.raises(StoreAccessError, match="ideabridge does not overwrite it"):
        file_store.back_up(tmp_path / "copy")

    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("copy")] == ["copy"]
    check(tmp_path / "copy")


def test_a_backup_overwrites_nothing(file_store: Store, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine", encoding="utf-8")
    with pytest.raises(StoreAccessError, match="ideabridge does not overwrite it"):
        file_store.back_up(tmp_path / "there")
    with pytest.raises(StoreAccessError, match="cannot be written"):
        file_store.back_up(tmp_path / "no" / "such" / "folder")
    assert (tmp_path / "there").read_text(encoding="utf-8") == "mine"


def test_the_command_line_copies_and_vacuums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.sqlite"
    copy = tmp_path / "b.sqlite"
    with Store.open(path) as store:
        store.ideas.save(idea_of("kept"), IdeaMeta(title="kept"))

    words = ["--store", str(path), "--project", str(tmp_path)]
    assert main(["store", "backup", str(copy), *words]) == 0
    assert main(["store", "backup", str(copy), *words]) == 3
    assert "ideabridge does not overwrite it" in capsys.readouterr().err
    assert main(["store", "vacuum", "--json", *words]) == 0
    with Store.open(copy) as store:
        assert [one.meta.title for one in store.ideas.page().items] == ["kept"]


def test_the_documented_views_are_read_without_our_code(file_store: Store) -> None:
    idea = file_store.ideas.save(idea_of("x"), IdeaMeta(run="r", step=1, title="t", tags=("a",)))
    publish(file_store, "name", idea)
    text = (Path(__file__).parent.parent.parent / "docs" / "store.md").read_text(encoding="utf-8")
    connection = sqlite3.connect(file_store.path)
    names = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')"
    ).fetchall()
    for kind, name in names:
        if kind == "table":
            assert (
                name.startswith(("idea_words", "publication_words", "sqlite_"))
                or f"`{name}`" in text
            ), name
            continue

        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        for column in connection.execute(f"PRAGMA table_info({name})").fetchall():
            assert column[1] in row, f"{name}.{column[1]}"

    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    told = [
        ("tag_list", "tag", "a"),
        ("publication_list", "name", "name"),
        ("idea_list", "id", idea),
    ]
    for view, column, value in told:
        assert [row[column] for row in utils("rows", file_store.path, view)] == [value]
