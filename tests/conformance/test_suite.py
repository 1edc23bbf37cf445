"""What the harness makes of the results of the suite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .client import END
from .clients import read as read_client
from .suite import Outcome, read, report

WHEN = "2026-11-23T11-52-49-127Z"


def checked(folder: Path, scenario: str, **statuses: str) -> Path:
    made = folder / f"server-{scenario}-{WHEN}"
    made.mkdir()
    checks = [
        {"id": name, "description": f"about {name}", "status": status}
        for name, status in statuses.items()
    ]
    (made / "checks.json").write_text(json.dumps(checks))
    return made


def test_failures_and_warnings_are_told_apart(tmp_path: Path) -> None:
    found = read(
        checked(
            tmp_path,
            "server-stateless",
            a="SUCCESS",
            b="FAILURE",
            c="WARNING",
            d="INFO",
            e="SKIPPED",
        )
    )
    assert found == ("server-stateless", Outcome(("b: about b",), ("c: about c",)))


def test_a_scenario_that_fails_or_did_not_run_is_not_passed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = Outcome((), ("a: warns",))
    bad = Outcome(("b: fails",), ())
    assert report("2026-07-28", ["one", "two"], {"direct": {"one": good, "two": good, "more": bad}})
    assert "2/2" in capsys.readouterr().out
    assert not report("2026-07-28", ["one", "two"], {"direct": {"one": good, "two": bad}})
    assert not report(
        "2026-07-28", ["one", "two"], {"direct": {"one": good, "two": good}, "http": {"one": good}}
    )
    assert "http, two: the suite did not run it" in capsys.readouterr().out


def test_a_client_that_the_suite_had_to_end_has_failed(tmp_path: Path) -> None:
    folder = checked(tmp_path, "any", a="SUCCESS")
    (folder / "stderr.txt").write_text("it hangs")
    for written, failures in (
        (f"{END} 0\n", ()),
        ("", ("the client did not end by itself: it hangs",)),
    ):
        (folder / "stdout.txt").write_text(written)
        assert read_client(folder).failures == failures
