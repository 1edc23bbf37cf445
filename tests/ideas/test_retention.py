"""Old runs leave the store by themselves: which ones, when, and what servers do meanwhile."""

import json
import subprocess
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ideabridge.bridge.configuration import (
    Configuration,
    ConfigurationError,
    load_workspace,
    parse_configuration,
)
from ideabridge.bridge.store.errors import PruningStoppedError
from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.pruning import DAY, Bounds, told_of
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from ideabridge.tools.encoding import JSON
from tests.ideas.test_growth import journal, rows, started
from tests.ideas.test_pruning import check_whole, kept, newest, old_run
from tests.ideas.values import idea_of, publish
from tests.postgres import run_sql
from tests.server.serving import command, configured
from tests.trusting import write_trusted

HALF_A_YEAR = Bounds(days=180, runs=None)
NOW = time.time()


def quick(_seconds: float) -> None:
    """Waits for nobody."""


def rounds(store: Store, bounds: Bounds = HALF_A_YEAR, now: float = NOW) -> tuple[str, int]:
    """The round that says what goes, and the one a week later that deletes."""
    retention = store.retention(bounds, quick)
    said = retention.round(now, "server")[0]
    assert said in ("found", "none")
    return retention.round(now + 7 * DAY, "server")


def ended(store: Store, run: str, days: float, now: float = NOW) -> None:
    """Let a run have ended so many days ago."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(now - days * DAY))
    run_sql(store.path, "UPDATE runs SET created = ?1, updated = ?1 WHERE id = ?2", (at, run))


def test_old_runs_go_a_week_after_it_was_said(store: Store) -> None:
    journal(store, "old", started("only old"))
    ended(store, "old", 181)
    journal(store, "younger", started("younger"))
    ended(store, "younger", 170)
    newest(store)
    retention = store.retention(HALF_A_YEAR, quick)
    assert retention.due(NOW).runs == 1
    said = retention.round(NOW, "server")
    assert said == ("found", 1)
    assert told_of(said).startswith(
        "up to 1 old run will be deleted in 7 days, unless published or tagged; "
    )
    assert retention.round(NOW + 6 * DAY, "another server") == ("none", 0)
    due = retention.due(NOW + DAY)
    assert (due.runs, due.deletes, due.at) == (1, True, pytest.approx(NOW + 7 * DAY))
    assert kept(store) == {"old", "younger", "newest"}

    assert retention.round(NOW + 7 * DAY, "another server") == ("deleted", 1)
    assert kept(store) == {"younger", "newest"}
    assert rows(store.path, "SELECT count(*) FROM contents WHERE body LIKE '%only old%'") == [(0,)]
    assert retention.round(NOW + 7 * DAY, "another server") == ("none", 0)
    check_whole(store.path)


def test_what_is_published_tagged_unfinished_or_part_of_something_younger_stays(
    store: Store,
) -> None:
    saved = {
        name: old_run(store, name, idea_of(name))[0]
        for name in ("published", "tagged", "plain", "parent")
    }
    publish(store, "name", saved["published"])
    store.ideas.tag(saved["tagged"], ["mine"])
    old_run(store, "waiting", idea_of("waiting"), status="needs_solution")
    old_run(store, "room", parent="parent")
    ended(store, "room", 3)
    old_run(store, "family")
    old_run(store, "its room", parent="family")
    imported = store.ideas.save(idea_of("imported"), IdeaMeta(time="2020-01-01T00:00:00.000+00:00"))
    newest(store)
    assert rounds(store) == ("deleted", 3)
    assert kept(store) == {"published", "tagged", "waiting", "parent", "room", "newest"}
    # No run made this idea here, and whoever imported it is looking for it.
    assert store.ideas.get(imported, caller=SEES_ALL).idea == idea_of("imported")
    check_whole(store.path)


def test_the_newest_run_and_idea_stay_however_old(store: Store) -> None:
    old_run(store, "first", idea_of("first"))
    old_run(store, "second", idea_of("second"))
    old_run(store, "last")
    assert rounds(store) == ("deleted", 1)
    assert kept(store) == {"second", "last"}


def test_of_too_many_runs_the_oldest_go_and_none_of_this_week(store: Store) -> None:
    for number in range(130):
        journal(store, f"run {number}", started("tool", task=f"{number}"))
        ended(store, f"run {number}", 2 if number in (3, 4) else 20)
    assert rounds(store, Bounds(days=None, runs=100), NOW - 5 * DAY) == ("deleted", 28)
    assert kept(store) == {f"run {number}" for number in (3, 4, *range(30, 130))}


def test_a_clock_that_is_years_ahead_deletes_nothing(store: Store) -> None:
    old_run(store, "a month old")
    ended(store, "a month old", 30)
    newest(store)
    retention = store.retention(HALF_A_YEAR, quick)
    assert retention.round(NOW, "server") == ("none", 0)
    ahead = NOW + 5 * 365 * DAY
    for hours in range(0, 24 * 6, 5):
        assert retention.round(ahead + hours * 3600, "server") == ("none", 0)

    # The clock is correct again.
    assert retention.round(NOW + DAY, "server") == ("none", 0)
    assert kept(store) == {"a month old", "newest"}


def test_one_server_does_a_round_and_another_goes_on_where_it_ended(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "ideas.db") as one,
        Store.open(tmp_path / "ideas.db", busy_timeout_s=0) as other,
    ):
        for number in range(100):
            old_run(one, f"old {number}", idea_of(f"{number}"))
        newest(one)
        assert other.retention(HALF_A_YEAR, quick).round(NOW, "other") == ("found", 100)
        steps = iter(range(100))
        met: list[tuple[str, int]] = []

        def meanwhile(_seconds: float) -> bool:
            # The store is free between two steps, and the other server does not interfere with this
            # round.
            step = next(steps)
            other.ideas.save(idea_of(f"meanwhile {step}"), IdeaMeta(run="newest", step=step + 2))
            met.append(other.retention(HALF_A_YEAR, quick).round(later, "other"))
            return step == 5

        later = NOW + 7 * DAY
        with pytest.raises(PruningStoppedError):
            one.retention(HALF_A_YEAR, meanwhile).round(later, "one")
        assert met == [("none", 0)] * 6
        assert 20 < len(kept(other)) < 90
        # The server was killed, so its lease expires.
        assert other.retention(HALF_A_YEAR, quick).round(later + 601, "other")[0] == "deleted"
        assert kept(other) == {"newest"}
        assert len(one.ideas.search("meanwhile", 100, caller=SEES_ALL)) == 1
        check_whole(str(tmp_path / "ideas.db"))


@pytest.mark.parametrize(
    ("given", "days", "runs"),
    [({}, 180, 100_000), ({"days": 30}, 30, 100_000), ({"days": None, "runs": None}, None, None)],
)
def test_retention_is_configured(
    given: dict[str, JSON], days: float | None, runs: int | None
) -> None:
    found = parse_configuration({"retention": given}).retention
    assert found is not False
    assert (found.days, found.runs) == (days, runs)
    assert parse_configuration({"retention": False}).retention is False
    assert Configuration().retention == parse_configuration({}).retention


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (True, "retention: expected false or an object, found true or false"),
        (30, "retention: expected false or an object, found a number"),
        ({"days": 1}, "retention.days: should be greater than or equal to 7"),
        ({"runs": 0}, "retention.runs: should be greater than or equal to 100"),
        ({"day": 30}, "retention.day: unknown key. Did you mean 'days'?"),
    ],
)
def test_what_retention_cannot_be(given: JSON, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_configuration({"retention": given})
    assert error.value.problems == [f"ideabridge.json: {message}"]


def test_a_project_file_does_not_say_what_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    folder = tmp_path / "project"
    folder.mkdir()
    file = write_trusted(folder, {"retention": {"days": 7}})
    configuration = load_workspace(file, project=folder)
    assert configuration.retention == Configuration().retention
    assert "retention is not used" in configuration.refused[0]


@contextmanager
def said_by_a_server(configuration: Path) -> Generator[str]:
    """What a server over stdio writes on stderr first, while it runs."""
    words = command(configuration)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        yield process.stderr.readline().decode()
        process.stdin.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


def test_a_server_says_what_goes_and_deletes_it_a_week_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    configuration = configured(tmp_path, tools=[])
    with Store.open(tmp_path / "ideas.sqlite") as store:
        for number in range(3):
            old_run(store, f"old {number}", idea_of(f"{number}"))
        newest(store)

    def retention() -> str:
        main(["doctor", "--json", "--config", str(configuration)])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return next(str(one["text"]) for one in findings if one["topic"] == "retention")

    told = (
        "servers delete runs older than 180 days or beyond the newest 100,000, "
        "unless published or tagged"
    )
    assert retention().startswith(f"{told}; up to 3 runs from 2")
    with said_by_a_server(configuration) as line:
        assert line.startswith(
            "ideabridge: up to 3 old runs will be deleted in 7 days, unless published or tagged; "
        )
        with Store.open(tmp_path / "ideas.sqlite") as store:
            assert len(kept(store)) == 4

    with closing(sqlite3.connect(tmp_path / "ideas.sqlite", isolation_level=None)) as connection:
        connection.execute(
            "UPDATE settings SET value = CAST(json_set(value, '$.at', 1) AS BLOB) "
            "WHERE key = 'retention'"
        )

    with said_by_a_server(configuration) as line:
        assert line == "ideabridge: 3 old runs deleted, in accordance with `retention`\n"
        with Store.open(tmp_path / "ideas.sqlite") as store:
            assert kept(store) == {"newest"}

    assert retention() == f"{told}; no run is due"
    configured(tmp_path, tools=[], retention=False)
    assert retention() == "off: no run is deleted automatically"
