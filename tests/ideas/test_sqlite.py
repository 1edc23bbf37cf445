"""Which SQLite opens the stores, and its checkpoints."""

import subprocess
import sys

import pytest

from ideabridge.bridge.ideas.sqlite import is_fixed, sqlite3


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
def test_versions_with_the_wal_reset_bug_are_known(version: tuple[int, int, int], fixed: bool) -> None:
    assert is_fixed(version) is fixed


@pytest.mark.parametrize(("hidden", "told"), [("", f"SQLite {sqlite3.sqlite_version} of "), ("pysqlite3", "of Python")])
def test_the_doctor_names_the_library(hidden: str, told: str) -> None:
    code = f"import sys; sys.modules[{hidden!r}] = None\nfrom ideabridge.server.cli.doctor import _Findings, _sqlite\n"
    code += "found = _Findings(); _sqlite(found); print(found.told[0])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert told in out
    assert ("without the WAL-reset bug" in out) is ("'hint'" not in out)
