"""The store is deleted, replaced or loses its log while a server serves it: nothing is
acknowledged into nothing.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge.store.errors import StoreGoneError
from ideabridge.bridge.store.store import Store
from tests.ideas.test_processes import check
from tests.waiting import until

from .serving import call, command, configured, over_stdio, refused

pytestmark = pytest.mark.anyio

PLAN: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}],
    "output": "†state.sum",
}


def delete(store: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        store.with_name(f"{store.name}{suffix}").unlink(missing_ok=True)


def delete_the_file_alone(store: Path) -> None:
    store.unlink()


def move(store: Path) -> None:
    store.rename(store.with_name("elsewhere"))


def replace(store: Path) -> None:
    Store.open(store.with_name("other")).close()
    store.with_name("other").replace(store)


def take_the_log(store: Path) -> None:
    store.with_name(f"{store.name}-wal").unlink()


def rescued_of(store: Path) -> list[Path]:
    return list(store.parent.glob(f"{store.name}.rescued-*"))


WAYS: list[Callable[[Path], None]] = [delete, delete_the_file_alone, move, replace, take_the_log]


@pytest.mark.parametrize("way", WAYS)
async def test_a_store_that_is_gone_takes_no_runs_and_what_it_held_is_saved(
    tmp_path: Path, way: Callable[[Path], None]
) -> None:
    store = tmp_path / "ideas.sqlite"
    async with over_stdio(configured(tmp_path), "auto") as client:
        done = await call(client, "run_plan", **PLAN)
        assert done["output"] == 3
        way(store)
        told = ""
        for _ in range(3):
            told = await refused(client, "run_plan", **PLAN)
            assert f"{store}: the store is gone" in told
            assert "saved in" in told

        assert "the store is gone" in await refused(client, "check_run", run=done["run"])
        (rescued,) = rescued_of(store)
        assert str(rescued) in told
        assert stat.S_IMODE(rescued.stat().st_mode) == 0o600
        # No other file has taken its place.
        assert store.exists() is (way in (replace, take_the_log))

    check(rescued)
    # Do what the error says: move the file there, and continue.
    delete(store)
    rescued.rename(store)
    async with over_stdio(configured(tmp_path), "auto") as client:
        assert (await call(client, "check_run", run=done["run"]))["output"] == 3
        assert (await call(client, "run_plan", **PLAN))["output"] == 3


async def test_a_server_without_requests_notices_within_a_second_or_two(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    store = tmp_path / "ideas.sqlite"
    async with await anyio.open_process(command(configuration)) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with anyio.fail_after(20):
            await until((tmp_path / "ideas.sqlite-wal").exists)
            hello = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            }
            line = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            await process.stdin.send(json.dumps(line).encode() + b"\n")
            assert process.stdout is not None
            await process.stdout.receive()

        delete(store)
        heard = b""
        with anyio.fail_after(20):
            while b"the store is gone" not in heard:
                heard += await process.stderr.receive()

        await process.stdin.aclose()
        with anyio.fail_after(20):
            await process.wait()


def test_a_store_that_comes_back_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with Store.open(tmp_path / "a" / "ideas.db") as store:
        store.settings.set("k", b"1")
        (tmp_path / "a").rename(tmp_path / "b")
        with pytest.raises(StoreGoneError, match="could not be saved"):
            store.settings.set("k", b"2")

        with pytest.raises(StoreGoneError, match="deleted or moved"):
            store.settings.get("k")

        (tmp_path / "b").rename(tmp_path / "a")
        assert store.settings.get("k") in (b"1", b"2")
        store.settings.set("k", b"3")

    with Store.open(tmp_path / "a" / "ideas.db") as store:
        assert store.settings.get("k") == b"3"


@pytest.mark.parametrize("away", ["the file", "its folder"])
def test_a_store_that_was_gone_before_is_saved_as_it_is_when_it_is_deleted(
    away: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    moved = folder if away == "its folder" else folder / "ideas.db"
    path = folder / "ideas.db"
    with Store.open(path) as store:
        store.settings.set("k", b"1")
        moved.rename(tmp_path / "b")
        with pytest.raises(StoreGoneError):
            store.settings.set("k", b"2")

        (tmp_path / "b").rename(moved)
        store.settings.set("k", b"3")
        before = set(rescued_of(path))
        delete(path)
        with pytest.raises(StoreGoneError, match="is saved in"):
            store.settings.set("more", b"4")

        [saved] = set(rescued_of(path)) - before

    with Store.open(saved) as store:
        assert store.settings.get("k") == b"3"


def test_a_store_whose_folder_is_made_anew_is_saved_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "ideas.db"
    with Store.open(path) as store:
        store.settings.set("k", b"1")
        (tmp_path / "a").rename(tmp_path / "b")
        with pytest.raises(StoreGoneError, match="could not be saved"):
            store.settings.set("k", b"2")

        (tmp_path / "a").mkdir()
        with pytest.raises(StoreGoneError, match="is saved in"):
            store.settings.set("k", b"3")

    assert len(rescued_of(path)) == 1


def test_closing_a_store_that_was_replaced_leaves_the_new_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    old = Store.open(path)
    old.settings.set("k", b"old")
    delete(path)
    with Store.open(path) as new:
        new.settings.set("k", b"new")
        with pytest.raises(StoreGoneError, match="replaced by another file"):
            old.settings.set("k", b"lost")

        old.close()
        new.settings.set("k", b"newer")
        assert new.settings.get("k") == b"newer"

    with Store.open(path) as new:
        assert new.settings.get("k") == b"newer"

    check(path)
