"""Runs survive `kill -9`: `benchmarks/crash.py` at small size (DESIGN 7)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = Path(__file__).parents[2] / "benchmarks" / "crash.py"


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.long)])
def test_kills_at_random_moments_lose_nothing_and_do_nothing_twice(kills: int) -> None:
    command = [sys.executable, str(CRASH), str(kills), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5 * kills, check=False)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["violations"] == [], f"seed {told['seed']}"
    figures = {row["what"]: row["ours"] for row in told["rows"]}
    assert figures["crash: runs"] > 0
    assert figures["crash: ideas"] > 0
    assert figures["crash: rooms"] > 0
    assert figures["crash: requests asked"] > 0
    assert done.returncode == 0
