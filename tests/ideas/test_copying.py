"""A store is copied into another, from a file into PostgreSQL and back, whole or not at all."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.store import copying
from ideabridge.bridge.store.errors import StoreCopyError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.ideas import IdeaFilter
from ideabridge.bridge.store.run_record import StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from ideabridge.tools.encoding import JSONObject
from tests import preloaded
from tests.ideas.test_processes import check, kill
from tests.ideas.values import publish, said
from tests.postgres import check_server, server


@pytest.fixture(params=["to the server", "to a file"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """(source, target)."""
    both = (str(tmp_path / "a.sqlite"), server().address())
    return both if request.param == "to the server" else (both[1], both[0])


def fill(store: Store, runs: int = 40) -> None:
    """Runs with their events and ideas, of which some are published, tagged or by several runs."""
    with store.transaction():
        for number in range(runs):
            save_run(store, number)
        store.settings.set("key", b"\x00\xff")
        store.users.add("ann")
        store.users.add_token("ann", "laptop")


def save_run(store: Store, number: int) -> None:
    run = f"run{number}"
    store.runs.create(run, kind="solve", caller="local", title=f"Task {number}", fingerprint="f")
    epoch = store.leases.acquire(run, "driver", 10, time.time())
    assert epoch is not None
    begun: JSONObject = {
        "event": "run_started",
        "context": [said(f"word{number} " * 30)],
        "tools": [{"name": "t" * 200}],
    }
    store.runs.append(
        run, epoch, [begun, {"event": "call_finished", "call": 0, "value": "né\0e " * number}]
    )
    # Some contexts are long and have the same beginning.
    messages = number % 20 * 8 if number % 4 == 3 else number % 5
    saved = ""
    for step in range(3):
        calls: list[Any] = [{"_tool": f"look_{number % 5}", "query": "x", "_outputPath": "found"}]
        idea = Idea(
            [said(f"message {one}") for one in range(messages)]
            + [said(f"Task {number} {step % 2}")],
            {"title": f"schema {number % 3}"},
            {"calls": calls, "output": None},
        )
        tags = ("kept",) if number % 7 == 0 else ()
        saved = store.ideas.save(
            idea, IdeaMeta(title=f"Task {number}", run=run, step=step + 1, tags=tags)
        )

    store.runs.set_status(run, epoch, "done", StoredSummary(idea=saved))
    store.leases.release(run, epoch)
    if number % 9 == 0:
        publish(store, f"tool_{number}", saved, description=f"Looks for word{number}.")


def told(store: Store) -> dict[str, Any]:
    """What a store answers with."""
    return {
        "runs": store.runs.newest(limit=1000, caller=SEES_ALL),
        "events": {
            run.id: list(store.runs.events(run.id))
            for run in store.runs.newest(limit=1000, caller=SEES_ALL)
        },
        "ideas": [(one.id, one.meta) for one in store.ideas.page(1000).items],
        "whole": [store.ideas.get(one.id, caller=SEES_ALL) for one in store.ideas.page(1000).items],
        "by tool": [
            one.id for one in store.ideas.page(1000, chosen=IdeaFilter(tool="look_2")).items
        ],
        "tagged": [one.id for one in store.ideas.page(1000, chosen=IdeaFilter(tag="kept")).items],
        "names": store.publications.page(100, caller=SEES_ALL).items,
        "users": (store.users.all(), store.users.tokens()),
        "settings": store.settings.under("k"),
        "found": sorted(hit.id for hit in store.ideas.search("39", 100, caller=SEES_ALL)),
        "named": [one.name for one in store.publications.search("word18", 5, caller="local")],
    }


def whole(place: str) -> None:
    if place.startswith("postgresql:"):
        check_server(place)
    else:
        check(Path(place))


def test_a_copy_answers_as_the_store_and_goes_on_by_itself(places: tuple[str, str]) -> None:
    with Store.open(places[0]) as source, Store.open(places[1]) as target:
        fill(source)
        copied = source.copy_to(target)
        assert (copied.runs, copied.events, copied.names) == (40, 80, 5)
        assert told(target) == told(source)
        # What is added afterwards gets numbers of its own, and shares what was copied.
        fresh = Idea([said("message 1"), said("new")], {"title": "schema 1"}, {"calls": []})
        for store in (source, target):
            store.runs.create("new", kind="plan", caller="local", title="", fingerprint="")
            store.ideas.save(
                fresh, IdeaMeta(run="new", step=1, time="2030-01-01T00:00:00.000+00:00")
            )
            publish(store, "tool_new", fresh.id)
        assert target.ideas.get(fresh.id, caller=SEES_ALL).idea == fresh
        assert target.runs.newest(limit=1, caller=SEES_ALL)[0].id == "new"
    whole(places[1])


class CutError(Exception):
    """The copy is interrupted."""


@pytest.mark.parametrize("at", ["events", "ideas", "names", "the ids of ideas", "indexes"])
def test_a_copy_that_was_interrupted_goes_on(
    places: tuple[str, str], at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_BATCH", 7)

    def stop(what: str) -> None:
        if what == at:
            raise CutError

    with Store.open(places[0]) as source, Store.open(places[1]) as target:
        fill(source)
        with pytest.raises(CutError):
            source.copy_to(target, stop)

        with pytest.raises(
            StoreCopyError,
            match="this store is the unfinished copy of another store; run `ideabridge "
            "store copy` again",
        ):
            Store.open(places[1])

        # The source is in use at the same time.
        source.runs.create("later", kind="plan", caller="local", title="", fingerprint="")
        source.ideas.tag(source.ideas.page(1).items[0].id, ["later"])
        source.copy_to(target)
        assert told(target) == told(source)

    whole(places[1])


COPYING = """
import sys
from ideabridge.bridge.store.store import Store

def told(what):
    if what == sys.argv[3]:
        print(what, flush=True)
        sys.stdin.read()

with Store.open(sys.argv[1]) as source, Store.open(sys.argv[2], is_unfinished=True) as target:
    source.copy_to(target, told)
"""


@pytest.mark.parametrize("at", ["events", "ideas", "indexes"])
def test_a_copy_that_was_killed_goes_on(places: tuple[str, str], tmp_path: Path, at: str) -> None:
    with Store.open(places[0]) as source:
        fill(source)

    script = tmp_path / "copying.py"
    script.write_text(COPYING, encoding="utf-8")
    command = preloaded.python(script, *places, at)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{at}\n"
        kill(process)

    with pytest.raises(StoreCopyError, match="unfinished copy"):
        Store.open(places[1])

    assert main(["store", "copy", *places]) == 0
    with Store.open(places[0]) as source, Store.open(places[1]) as target:
        assert told(target) == told(source)

    whole(places[1])


def test_a_copy_replaces_nothing_and_what_changed_is_noticed(
    places: tuple[str, str], tmp_path: Path
) -> None:
    with (
        Store.open(places[0]) as source,
        Store.open(places[1]) as target,
        Store.open(tmp_path / "c") as other,
    ):
        fill(source, 10)
        with pytest.raises(StoreCopyError, match="onto itself"):
            source.copy_to(source)
        target.settings.set("mine", b"")
        with pytest.raises(StoreCopyError, match=r"the store is not empty \(it has settings\)"):
            source.copy_to(target)
        target.settings.delete("mine")

        def stop(what: str) -> None:
            if what == "ideas":
                raise CutError

        with pytest.raises(CutError):
            source.copy_to(target, stop)
        with pytest.raises(StoreCopyError, match="unfinished copy of another store"):
            other.copy_to(target)
        source.prune(source.prunable(before="2100-01-01"))
        with pytest.raises(StoreCopyError, match="rows were deleted there since the copy began"):
            source.copy_to(target)


def test_the_command_copies_there_and_back(
    places: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(places[0]) as source:
        fill(source, 5)

    assert main(["store", "copy", places[0], places[1]]) == 0
    assert capsys.readouterr().err.startswith(
        "5 runs with 10 events, 10 ideas and 1 published name copied to "
    )
    assert main(["store", "copy", places[1], str(tmp_path / "back.sqlite")]) == 0
    with Store.open(places[0]) as source, Store.open(tmp_path / "back.sqlite") as back:
        assert told(back) == told(source)

    assert main(["store", "copy", str(tmp_path / "nothing"), str(tmp_path / "new")]) == 2
    assert "there is no store" in capsys.readouterr().err
