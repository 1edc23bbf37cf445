"""`make demo-cluster` on a repository: what it says, what it leaves behind, and what it needs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from examples.cluster.postgres import programs

from tests import preloaded

ROOT = Path(__file__).parents[2]
PRELOADED_DEMO = Path(__file__).with_name("preloaded_demo.py")
DEMO = [sys.executable, "-m", "examples.cluster.demo"]


def processes() -> dict[int, bytes]:
    """The command of every process that belongs to a cluster of the demo, by its id."""
    found: dict[int, bytes] = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if b"ideabridge-cluster-" in command:
            found[int(path.parent.name)] = command

    return found


@pytest.fixture(autouse=True)
def needs_postgres() -> None:
    if programs() is None:
        pytest.skip("PostgreSQL's programs (initdb, pg_ctl, postgres) are not installed")
    pytest.importorskip("psycopg", reason="the extra ideabridge[postgres] is not installed")


def test_the_demo_of_a_cluster_shows_what_it_claims_and_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = set(processes())
    interpreter = preloaded.interpreter(tmp_path_factory.mktemp("interpreter"))
    done = subprocess.run(
        preloaded.python(PRELOADED_DEMO, str(interpreter)),
        cwd=ROOT,
        env=preloaded.environment() | _environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        r"server \d and worker \d are killed with SIGKILL, in the middle of the run",
        r"4 of 12 parts were archived, and part-5 was being archived",
        r"A's request for the end of the run broke off: \S",
        r"worker \d took the run up, and ended it \d+\.\d s after the kills",
        r"14 for 12 parts and one announcement",
        r"✓ no call that had finished ran again",
        r"✓ the other server answers",
        r"All 21 checks passed",
    ):
        assert re.search(words, done.stdout), words

    assert "✗" not in done.stdout
    assert done.stderr == ""
    assert [*tmp_path.iterdir()] == []
    assert set(processes()) <= before


@pytest.mark.long
def test_a_demo_that_is_ended_early_ends_its_processes(tmp_path: Path) -> None:
    before = set(processes())
    with subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        # The demo itself has not killed anything yet.
        line = next(line for line in process.stdout if "server 1: process" in line)
        assert set(processes()) > before, line
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)

    assert process.returncode == 1
    assert said == "ideabridge: the demo was interrupted\n"
    assert [*tmp_path.iterdir()] == []
    assert set(processes()) <= before


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
