"""Which SQLite opens the stores, and its checkpoints."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ideabridge.bridge.store.sqlite import is_fixed, sqlite3
from ideabridge.bridge.store.store import Store
from tests.disk import REASON
from tests.ideas.test_processes import check


@pytest.mark.parametrize(
    ("version", "fixed"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 53, 4), True),
    ],
)
def test_versions_with_the_wal_reset_bug_are_known(
    version: tuple[int, int, int], fixed: bool
) -> None:
    assert is_fixed(version) is fixed


@pytest.mark.parametrize(
    ("hidden", "told"), [("", f"SQLite {sqlite3.sqlite_version} of "), ("pysqlite3", "of Python")]
)
def test_the_doctor_names_the_library(hidden: str, told: str) -> None:
    code = f"import sys; sys.modules[{hidden!r}] = None\n"
    code += "from ideabridge.server.views.checks import Findings, check_sqlite\n"
    code += "found = Findings(); check_sqlite(found); print(found.found[0])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout
    assert told in out
    assert ("without the WAL-reset bug" in out) is ("hint=None" in out)


@pytest.mark.skipif(bool(REASON), reason=REASON)
@pytest.mark.parametrize("library", ["python", "chosen"])
@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.long)])
def test_processes_that_commit_and_do_checkpoints_lose_nothing(
    tmp_path: Path, library: str, seconds: int
) -> None:
    path = tmp_path / "ideas.db"
    Store.open(path).close()
    script = Path(__file__).with_name("checkpointing.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", script, path, name, str(seconds), library],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name in ("a", "b")
    ]
    told = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    rows = [int(one) for one in told]
    assert min(rows) > 0
    check(path)
    with closing(sqlite3.connect(path)) as connection:
        keys = {row[0] for row in connection.execute("SELECT key FROM settings")}

    assert {
        f"{name}.{row}" for name, count in zip("ab", rows, strict=True) for row in range(count)
    } <= keys
