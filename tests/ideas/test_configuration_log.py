"""What changed in configurations while servers ran, in a file and in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

from ideabridge.bridge.store.configuration_log import MOST_CHANGES, LoggedChange
from ideabridge.bridge.store.store import Store

ADDED = LoggedChange(
    at=100.0,
    project="/home/ada/shop",
    process="a",
    status="followed",
    lines=("server git: added", "approval: applies from now on"),
    trusted_by="ada",
    trusted_at=90.0,
)
BROKEN = replace(
    ADDED, at=120.0, status="withheld", lines=("is not JSON",), trusted_by="", trusted_at=None
)


def test_changes_come_back_the_latest_first(store: Store) -> None:
    elsewhere = replace(ADDED, project="/home/ada/other")
    for change in (ADDED, BROKEN, elsewhere):
        store.configuration_log.note(change)

    assert store.configuration_log.newest(10) == [elsewhere, BROKEN, ADDED]
    assert store.configuration_log.newest(10, "/home/ada/shop") == [BROKEN, ADDED]
    assert store.configuration_log.newest(1) == [elsewhere]


def test_processes_that_follow_one_file_store_its_change_once(store: Store) -> None:
    store.configuration_log.note(ADDED)
    store.configuration_log.note(replace(ADDED, at=101.0, process="b"))
    later = replace(ADDED, at=200.0, process="b")
    store.configuration_log.note(later)
    assert store.configuration_log.newest(10) == [later, ADDED]


def test_the_oldest_changes_are_deleted(file_store: Store) -> None:
    with file_store.transaction():
        for number in range(MOST_CHANGES + 3):
            file_store.configuration_log.note(replace(ADDED, at=100.0 * number))

    stored = file_store.configuration_log.newest(MOST_CHANGES + 10)
    assert len(stored) == MOST_CHANGES
    assert stored[-1].at == 300.0
