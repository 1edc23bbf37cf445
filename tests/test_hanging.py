"""What happens to a test that hangs, and to tests where signals are ignored."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded

ROOT = Path(__file__).parent.parent

HANGING = """
import subprocess
import anyio
import pytest

from tests import preloaded

# Before the time limit of a test begins.
preloaded.wait_until_loaded()

SLEEP = ["sh", "-c", "sleep 1000; true"]


def test_process():
    subprocess.run(SLEEP)


@pytest.mark.anyio
async def test_loop():
    await anyio.run_process(SLEEP)


def test_forked(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import time; time.sleep(1001)")
    subprocess.run(preloaded.python(script))


@pytest.fixture
def slow_end():
    yield
    subprocess.run(SLEEP)


def test_end_of_a_failed_test(slow_end):
    assert slow_end


def test_another():
    pass
"""

INTERRUPTED = """
import subprocess
import sys

import pytest

from tests import preloaded


@pytest.mark.timeout(300)
def test_signals_have_their_defaults(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from signal import *;"
        "print(getsignal(SIGINT) is default_int_handler, getsignal(SIGQUIT).name, getsignal(SIGTERM).name)"
    )
    for command in ([sys.executable, str(script)], preloaded.python(script)):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout == "True SIG_DFL SIG_DFL\\n"
"""


def run(folder: Path, *options: str, before: str) -> str:
    """What pytest says about the tests of a folder that are run as ours are, after a command of the
    shell.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "tests.conftest",
        *options,
    ]
    done = subprocess.run(
        ["sh", "-c", f'{before}\nexec "$@"', "sh", *command, str(folder)],
        cwd=ROOT,
        # These tests run a process that forks, because they look at its signals and at its end.
        env={**os.environ, preloaded.IMPORTS_NOTHING: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def has_ended(pid: int) -> bool:
    """Whether a process has ended; the one that adopted it may not have taken note of that yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in ("Z", "X")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_hangs_ends_with_its_processes_and_names_them(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING, encoding="utf-8")
    # Run pytest once for both, because most of its time is its start.
    (tmp_path / "test_interrupted.py").write_text(INTERRUPTED, encoding="utf-8")
    said = run(tmp_path, "-n", workers, "--timeout", "1", before="trap '' INT QUIT TERM")
    assert "crashed" not in said
    assert "test_signals_have_their_defaults" not in said
    assert re.search(r"^4 failed, 2 passed, 1 error in ", said, re.M), said
    ended = " ".join(re.findall(r"^E .* were ended: (.*)", said, re.M))
    assert len(re.findall(r"`sh -c 'sleep 1000; true'` \(\d+\), `sleep 1000` \(\d+\)", ended)) == 3
    assert re.search(r"`[^`]*/script.py` \(\d+\)", ended)
    for pid in re.findall(r"\((\d+)\)", ended):
        assert has_ended(int(pid)), pid
