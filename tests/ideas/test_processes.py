"""Two processes on one store, and a process that is killed."""

import os
import signal
import stat
import subprocess
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests import preloaded
from tests.ideas.values import idea_of

HEAD = """
import sys
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
def idea_of(text):
    return Idea([{"role": "user", "content": text}], {"type": "object"}, {"calls": [], "output": None})
"""


def child(path: Path, body: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that uses the store at `path`."""
    script = path.with_name(f"{uuid.uuid4().hex}.py")
    script.write_text(f"{HEAD}\n{body}", encoding="utf-8")
    return subprocess.Popen(
        preloaded.python(script, str(path), *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process that has printed something, and wait until it has ended."""
    os.kill(preloaded.number(process), signal.SIGKILL)
    process.wait()


def test_processes_that_open_a_new_store_at_once_do_not_collide(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    body = """
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    for n in range(40):
        store.ideas.save(idea_of(f"{sys.argv[2]} {n} shared words"), IdeaMeta(run=sys.argv[2], step=n))
        store.ideas.save(idea_of(f"both {n}"), IdeaMeta(run=sys.argv[2], step=100 + n))
    print(store.settings.ensure("key", lambda: sys.argv[2].encode()).decode())
"""
    children = [child(path, body, name) for name in ("a", "b", "c")]
    for process in children:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    answers = {process.communicate("go\n")[0] for process in children}
    assert [process.returncode for process in children] == [0, 0, 0]
    # All three agree on the setting that one of them made.
    assert len(answers) == 1
    with Store.open(path) as store:
        assert len(store.ideas.page(1000).items) == 160
        for run in ("a", "b", "c"):
            assert len(store.ideas.of_run(run)) == 80

        assert len({hit.id for hit in store.ideas.search("shared", 100, caller=SEES_ALL)}) == 3
        assert len(store.ideas.search("both 7", 100, caller=SEES_ALL)) > 0

    check(path)


def check(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.execute(
        "INSERT INTO publication_words(publication_words) VALUES ('integrity-check')"
    )
    connection.close()


def test_a_taken_over_run_refuses_the_other_process(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    body = """
from ideabridge.bridge.store.errors import StaleDriverError
store = Store.open(sys.argv[1])
store.runs.create("run", kind="plan", caller="", title="", fingerprint="")
epoch = store.leases.acquire("run", "child", 10, 1000.0)
store.runs.append("run", epoch, [{"by": "child"}])
print("mine", flush=True)
sys.stdin.readline()
try:
    store.runs.append("run", epoch, [{"by": "late child"}])
except StaleDriverError as error:
    print(type(error).__name__, flush=True)
"""
    process = child(path, body)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    with Store.open(path) as store:
        assert store.leases.acquire("run", "parent", 10, 1005.0) is None
        record = store.runs.get("run")
        assert record is not None
        epoch = store.leases.acquire("run", "parent", 10, 1010.0, record.lease)
        assert epoch == 2
        assert store.runs.append("run", epoch, [{"by": "parent"}]) == 2
        assert process.communicate("go\n")[0] == "StaleDriverError\n"
        assert [event["by"] for _, event in store.runs.events("run")] == ["child", "parent"]


def test_what_another_process_publishes_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    body = """
with Store.open(sys.argv[1]) as store:
    saved = store.ideas.save(idea_of("theirs"), IdeaMeta())
    new = NewPublication(name="theirs", idea_id=saved, description="d", answer="solve",
                         input_schema=None, output_schema=None, annotations={})
    store.publications.publish(new)
"""
    with Store.open(path) as store:
        version, catalogue = store.data_version(), store.publications.catalogue_version()
        store.ideas.save(idea_of("own"), IdeaMeta())
        assert store.data_version() == version
        process = child(path, body)
        process.communicate()
        assert process.returncode == 0
        assert store.data_version() != version
        assert store.publications.catalogue_version() != catalogue
        assert store.publications.get("theirs", caller=SEES_ALL).version == 1
        assert len(store.ideas.search("theirs", caller=SEES_ALL)) == 1


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    body = """
store = Store.open(sys.argv[1])
store.runs.create("run", kind="plan", caller="", title="", fingerprint="")
epoch = store.leases.acquire("run", "child", 10, 1000.0)
n = 0
while True:
    n += 1
    if n % 3:
        number = store.runs.append("run", epoch, [{"n": n, "text": "x" * 300}])
    else:
        with store.transaction():
            number = store.runs.append("run", epoch, [{"n": n}])
            store.ideas.save(idea_of(f"step {n}"), IdeaMeta(run="run", step=n))
    print(number, flush=True)
"""
    process = child(path, body)
    assert process.stdout is not None
    acknowledged = 0
    # Go past the checkpoints, so that some of it is in the file and some in the log.
    while acknowledged < 1500:
        acknowledged = int(process.stdout.readline())

    kill(process)
    for line in process.stdout.read().splitlines(keepends=True):
        # The last line may be incomplete.
        acknowledged = int(line) if line.endswith("\n") else acknowledged

    process.wait()
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()
    with Store.open(path) as store:
        events = list(store.runs.events("run"))
        assert [number for number, _ in events] == list(range(1, len(events) + 1))
        assert [event["n"] for _, event in events] == list(range(1, len(events) + 1))
        assert acknowledged <= len(events) <= acknowledged + 1
        steps = [record.meta.step for record in store.ideas.of_run("run")]
        assert steps == list(range(3, len(events) + 1, 3))
        assert store.ideas.search("step 1497", caller=SEES_ALL)[0].meta.run == "run"

    check(path)


def test_a_store_opened_twice_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    with Store.open(path) as store:
        store.settings.set("before", b"1")
        with Store.open(path) as second:
            second.settings.set("second", b"1")

        # If the second connection had released the locks of the first, this process would appear to
        # be the only one, and would remove the log at its end.
        other = child(
            path, "with Store.open(sys.argv[1]) as store: store.settings.set('other', b'1')"
        )
        other.communicate()
        assert other.returncode == 0
        store.settings.set("after", b"1")
        look = child(path, "print(Store.open(sys.argv[1]).settings.get('after'))")
        assert look.communicate()[0] == "b'1'\n"

    with Store.open(path) as store:
        assert [store.settings.get(key) for key in ("before", "second", "other", "after")] == [
            b"1"
        ] * 4

    check(path)


@pytest.mark.parametrize("umask", [0o000, 0o277])
def test_the_files_are_their_owners_whoever_made_them(tmp_path: Path, umask: int) -> None:
    theirs = tmp_path / "theirs.db"
    ours = tmp_path / "ours.db"
    with closing(sqlite3.connect(theirs, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        theirs.chmod(0o666)
        for path in (theirs, ours):
            body = f"""
import os
os.umask({umask})
store = Store.open(sys.argv[1])
store.settings.set("k", b"v")
print("open", flush=True)
sys.stdin.readline()
"""
            process = child(path, body)
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            modes = {
                file.name: stat.S_IMODE(file.stat().st_mode)
                for file in tmp_path.glob(f"{path.name}*")
            }
            process.communicate("end\n")
            assert modes == dict.fromkeys(
                (path.name, f"{path.name}-wal", f"{path.name}-shm"), 0o600
            )
