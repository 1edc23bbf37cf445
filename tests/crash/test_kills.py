"""Runs survive what happens to processes: `benchmarks/crash.py` at small size."""

import json
import subprocess
from pathlib import Path

import pytest
from examples.cluster.postgres import programs

from tests import preloaded

CRASH = Path(__file__).parents[2] / "benchmarks" / "crash.py"


def run(seconds: float, *words: str) -> subprocess.CompletedProcess[str]:
    command = preloaded.python(CRASH, *words, "--json")
    return subprocess.run(
        command,
        env=preloaded.environment(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.mark.parametrize(
    ("events", "more"),
    [
        pytest.param(5, ["--only", "kill", "--servers", "0", "--cluster", "0"], id="kills"),
        pytest.param(
            3,
            ["--only", "module", "disk", "freeze", "--servers", "0", "--cluster", "0"],
            id="other events",
        ),
        pytest.param(200, ["--servers", "10", "--cluster", "0"], id="all", marks=pytest.mark.long),
    ],
)
def test_events_at_random_moments_lose_nothing_and_do_nothing_twice(
    events: int, more: list[str]
) -> None:
    done = run(85 + 5 * events, str(events), *more)
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


@pytest.mark.parametrize(
    ("events", "more"),
    [
        pytest.param(3, [], id="processes and connections"),
        pytest.param(3, ["--postgres"], id="postgres", marks=pytest.mark.long),
        pytest.param(60, [], id="many", marks=pytest.mark.long),
    ],
)
def test_a_cluster_whose_parts_end_loses_nothing_and_does_nothing_twice(
    events: int, more: list[str]
) -> None:
    if programs() is None:
        pytest.skip("PostgreSQL's programs (initdb, pg_ctl, postgres) are not installed")

    pytest.importorskip("psycopg", reason="the extra ideabridge[postgres] is not installed")
    done = run(140 + 10 * events, "0", "--servers", "0", "--cluster", str(events), *more)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["violations"] == []
    figures = {row["what"]: row["ours"] for row in told["rows"]}
    assert (
        sum(count for what, count in figures.items() if what.startswith("crash: events: "))
        == events
    )
    assert figures["crash: runs"] > 0
    assert figures["crash: runs acknowledged as ended"] > 0
    assert figures["crash: turns taken"] > 0
    assert done.returncode == 0
