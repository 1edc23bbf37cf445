"""Runs survive what happens to processes: `benchmarks/crash.py` at small size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = Path(__file__).parents[2] / "benchmarks" / "crash.py"


@pytest.mark.parametrize(
    ("events", "more"),
    [
        pytest.param(12, ["--only", "kill", "--servers", "0"], id="kills"),
        pytest.param(5, ["--only", "module", "disk", "freeze", "--servers", "0"], id="other events"),
        pytest.param(200, ["--servers", "10"], id="all", marks=pytest.mark.long),
    ],
)
def test_events_at_random_moments_lose_nothing_and_do_nothing_twice(events: int, more: list[str]) -> None:
    command = [sys.executable, str(CRASH), str(events), *more, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 5 * events, check=False)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["violations"] == []
    figures = {row["what"]: row["ours"] for row in told["rows"]}
    assert figures["crash: runs"] > 0
    assert figures["crash: ideas"] > 0
    assert figures["crash: rooms"] > 0
    assert figures["crash: programs"] > 0
    assert figures["crash: requests asked"] > 0
    assert done.returncode == 0
