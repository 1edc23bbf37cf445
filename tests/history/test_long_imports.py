"""Long imports: a store that others write into, an import that ends early, and logs that were read
before.
"""

from __future__ import annotations

import dataclasses
import os
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import cast

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge import bridge as bridge_module
from ideabridge.bridge.history import claude_code
from ideabridge.bridge.history.conversation import Conversation, Names
from ideabridge.bridge.history.host_logs import HISTORIES, HostLogs
from ideabridge.bridge.store.errors import StoreBusyError
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.users import SEES_ALL

from .logs import START, ClaudeCode
from .test_import import bridge, home, put, taken

__all__ = ["bridge", "home"]

pytestmark = pytest.mark.anyio


def sessions(home: Path, count: int) -> list[Path]:
    paths: list[Path] = []
    for number in range(count):
        log = ClaudeCode(f"s{number:04}", START + timedelta(minutes=number))
        log.calls("call_0", "mcp__shop__describe", {"order": f"o-{number}"}, "Order: 12 EUR")
        paths.append(put(home, log))
        os.utime(paths[-1], (number, number))
    return paths


def reading(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The logs of Claude Code that are read from now on."""
    read: list[Path] = []

    def read_log(path: Path, names: Names) -> list[Conversation]:
        read.append(path)
        return claude_code.read_log(path, names)

    host = dataclasses.replace(HISTORIES["claude-code"], read=read_log)
    monkeypatch.setitem(cast("dict[str, object]", HISTORIES), "claude-code", host)
    return read


def saved(bridge: Bridge) -> int:
    return len(bridge.store.runs.newest(limit=100, caller=SEES_ALL))


async def test_an_import_waits_while_another_process_writes(bridge: Bridge, home: Path) -> None:
    sessions(home, 3)
    other = sqlite3.connect(home / "store.sqlite", check_same_thread=False, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    # Hold the lock for longer than the event loop may wait for it.
    timer = Timer(0.5, lambda: other.execute("COMMIT"))
    timer.start()
    report = await taken(bridge)
    timer.join()
    other.close()
    assert [run.run is not None for run in report.runs] == [True] * 3
    assert saved(bridge) == 3


async def test_an_import_goes_on_where_it_stopped(
    bridge: Bridge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "KEEPS_TRYING_SECONDS", 0.2)
    paths = sessions(home, 5)
    other = sqlite3.connect(home / "store.sqlite", check_same_thread=False, isolation_level=None)
    history = bridge.history("claude-code")
    read = claude_code.read_log

    def lock_at_third(path: Path, names: Names) -> list[Conversation]:
        if path == paths[2]:
            other.execute("BEGIN IMMEDIATE")
        return read(path, names)

    monkeypatch.setattr(history, "_read_log", lock_at_third)
    with pytest.raises(StoreBusyError):
        await history.take()

    other.execute("ROLLBACK")
    other.close()
    assert (saved(bridge), history.done, len(history.report.runs)) == (2, 3, 2)
    report = await taken(bridge)
    assert (len(report.runs), report.known, saved(bridge)) == (3, 2, 5)


async def test_logs_that_have_not_changed_are_not_read_again(
    bridge: Bridge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sessions(home, 2)
    with second.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    os.utime(second, (1, 1))
    await taken(bridge)

    async def again() -> tuple[int, int, int]:
        read.clear()
        report = await taken(bridge)
        return report.known, report.unread["unreadable"], report.logs

    read = reading(monkeypatch)
    assert await again() == (2, 1, 2)
    assert read == []

    log = ClaudeCode("s0000", START + timedelta(days=1))
    log.calls("call_0", "mcp__shop__describe", {"order": "o-9"}, "Order: 12 EUR")
    put(home, log)
    assert await again() == (1, 1, 2)
    assert read == [first]
    assert saved(bridge) == 3


async def test_a_change_is_seen_that_leaves_size_and_time(
    bridge: Bridge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = sessions(home, 1)
    await taken(bridge)
    path.write_text(path.read_text().replace("o-0", "o-7"))
    os.utime(path, (0, 0))
    report = await taken(bridge)
    assert [run.calls for run in report.runs] == [1]
    assert saved(bridge) == 2


async def test_a_log_that_has_just_changed_is_read_again(
    bridge: Bridge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change may leave its size and its time, which is not exact."""
    (path,) = sessions(home, 1)
    os.utime(path)
    await taken(bridge)
    read = reading(monkeypatch)
    await taken(bridge)
    assert read == [path]


async def test_logs_that_have_not_changed_need_no_bridge(bridge: Bridge, home: Path) -> None:
    def logs(**renamed: str) -> HostLogs:
        return HostLogs("claude-code", bridge.store, ["shop"], caller="local", renamed=renamed)

    first, _ = sessions(home, 2)
    assert logs().report_unchanged() is None
    report = await taken(bridge)
    unchanged = logs().report_unchanged()
    assert unchanged is not None
    assert (unchanged.runs, unchanged.known, unchanged.read) == ([], 2, report.read)
    assert logs(store="shop").report_unchanged() is None

    os.utime(first, (5, 5))
    assert logs().report_unchanged() is None


async def test_calls_of_removed_runs_are_found_again(bridge: Bridge, home: Path) -> None:
    sessions(home, 2)
    first = await taken(bridge)
    assert (await taken(bridge)).runs == []
    # A store always keeps its newest run.
    assert bridge.store.prune(bridge.store.prunable(before="2099-01-01")).runs == 1
    (again,) = (await taken(bridge)).runs
    assert again.run in [run.run for run in first.runs]


async def test_other_names_of_servers_read_the_logs_again(bridge: Bridge, home: Path) -> None:
    log = ClaudeCode("s")
    log.calls("call_0", "mcp__store__describe", {"order": "o-1"}, "Order: 12 EUR")
    put(home, log)
    assert (await taken(bridge)).others == {"store": 1}
    assert (await taken(bridge)).others == {"store": 1}
    (one,) = (await bridge.history("claude-code", modules={"store": "shop"}).take()).runs
    assert one.run is not None
