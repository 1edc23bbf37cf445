"""What was journaled, and what was not yet: runs on a store that fails, is locked, or is
slow for a while.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import SettledTurnError, UnwrittenRunError
from ideabridge.bridge.loop.event import Event, RunEnded
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreBusyError, StoreFullError
from ideabridge.bridge.store.leases import Leases
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.toolbox import Toolbox
from tests.disk import REASON, Disk
from tests.waiting import until

ALLOW = Configuration(approval="allow_all")
LIMIT_S = 30.0
PAYMENT: dict[str, Any] = {
    "calls": [
        {"_tool": "pay", "amount": 7, "_outputPath": "receipt"},
        {"_tool": "ship", "receipt": "†state.receipt", "_outputPath": "parcel"},
    ],
    "output": "†state.parcel",
}

pytestmark = pytest.mark.anyio
needs_faults = pytest.mark.skipif(bool(REASON), reason=REASON)


class Shop:
    """Two tools that do something outside: `pay` waits until it is told to end."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.paying, self.end = anyio.Event(), anyio.Event()

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            self.paying.set()
            await self.end.wait()
            self.done.append(f"paid {amount}")
            return f"receipt for {amount}"

        @tool
        async def ship(receipt: str) -> str:
            """Ship what was paid."""
            self.done.append(f"shipped for {receipt}")
            return "parcel"

        self.toolbox = Toolbox(pay, ship)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Another program keeps the store locked for writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def until_tried(run: Run) -> str:
    """Wait until the store refused what a run has to write; returns what callers are told."""
    await until(lambda: "cannot be written" in (run.unwritten or ""))
    return str(run.unwritten)


@asynccontextmanager
async def ticking() -> AsyncGenerator[list[float]]:
    """A list of the pauses between the turns of a task that wants one every 10 ms."""
    pauses: list[float] = []

    async def tick() -> None:
        last = anyio.current_time()
        while True:
            await anyio.sleep(0.01)
            now = anyio.current_time()
            pauses.append(now - last)
            last = now

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        yield pauses
        group.cancel_scope.cancel()


@needs_faults
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_a_result_is_kept_while_the_disk_fails_and_nothing_follows_from_it(
    tmp_path: Path, code: int
) -> None:
    shop = Shop()
    store = tmp_path / "ideas.sqlite"
    with Disk(tmp_path / "disk") as disk, anyio.fail_after(LIMIT_S):
        async with Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge:
            run = await bridge.run_plan(PAYMENT)
            await shop.paying.wait()
            with disk.failing(code):
                shop.end.set()
                assert "keeps everything that the calls returned in memory" in await until_tried(
                    run
                )
                told = run.answer()
                assert told["status"] == "running"
                assert "state" not in told
                assert "results" not in told
                assert "cannot be written right now" in told["notes"][0]
                with pytest.raises(UnwrittenRunError):
                    run.value("†state.receipt")

                with pytest.raises(UnwrittenRunError):
                    _ = run.state

                # Asking for the run again returns the same object, so the run stays with this
                # process.
                assert (await bridge.run(run.id)) is run
                assert shop.done == ["paid 7"]

            assert await run.result() == "parcel"

        assert shop.done == ["paid 7", "shipped for receipt for 7"]

    with Store.open(store) as kept:
        names = [event["event"] for _, event in kept.runs.events(run.id)]
        assert names.count("call_finished") == 2
        assert names.index("call_finished") < len(names) - 1 - names[::-1].index("call_started")
        record = kept.runs.get(run.id)
        assert record is not None
        assert record.status == "done"


async def test_clients_are_answered_while_another_program_keeps_the_store_locked(
    tmp_path: Path,
) -> None:
    shop = Shop()
    store = tmp_path / "ideas.sqlite"
    async with (
        Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge,
        anyio.create_task_group() as group,
    ):
        with anyio.fail_after(LIMIT_S):
            run = await bridge.run_plan(PAYMENT)
            await shop.paying.wait()
            later: list[Run] = []

            async def begin() -> None:
                later.append(await bridge.run_plan({"calls": [{"_tool": "ship", "receipt": "r"}]}))

            async with ticking() as pauses:
                with locked(store):
                    shop.end.set()
                    group.start_soon(begin)
                    await until_tried(run)
                    for _ in range(20):
                        assert [one["run"] for one in bridge.runs()] == [run.id]
                        assert (await bridge.run(run.id)).answer()["status"] == "running"
                        bridge.store.publications.page(caller=SEES_ALL)
                        await anyio.sleep(0.05)

                    # A run that begins in the meantime is not acknowledged until it is in the
                    # store.
                    assert later == []

                assert await run.wait() == "done"

            assert max(pauses) < 0.8
            await until(lambda: bool(later))
            assert await later[0].wait() == "done"


async def test_who_iterates_over_events_sees_only_what_is_in_the_journal(tmp_path: Path) -> None:
    shop = Shop()
    store = tmp_path / "ideas.sqlite"
    seen: list[str] = []
    async with Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge:
        with anyio.fail_after(LIMIT_S):
            run = await bridge.run_plan(PAYMENT)
            await shop.paying.wait()

            async def watch() -> None:
                async for event in run:
                    seen.append(event.name)

            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                with locked(store):
                    shop.end.set()
                    await until_tried(run)
                    assert "call_finished" not in seen

            assert seen[-1] == "run_ended"
            assert seen.count("call_finished") == 2


async def test_a_result_is_journaled_when_the_bridge_closes(tmp_path: Path) -> None:
    shop = Shop()
    store = tmp_path / "ideas.sqlite"
    with anyio.fail_after(LIMIT_S):
        async with Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge:
            run = await bridge.run_plan(PAYMENT)
            await shop.paying.wait()
            with locked(store):
                shop.end.set()
                await until_tried(run)

        async with Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge:
            again = await bridge.run(run.id)
            assert await again.wait() == "done"

    assert shop.done == ["paid 7", "shipped for receipt for 7"]


async def test_what_another_process_has_taken_over_is_not_journaled_by_the_old_driver(
    tmp_path: Path,
) -> None:
    shop = Shop()
    store = tmp_path / "ideas.sqlite"
    async with Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge:
        with anyio.fail_after(LIMIT_S):
            run = await bridge.run_plan(PAYMENT)
            await shop.paying.wait()
            with closing(sqlite3.connect(store, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                shop.end.set()
                await until_tried(run)
                other.execute("UPDATE runs SET driver = 'other', epoch = epoch + 1")
                other.execute("COMMIT")

            assert await run.wait() == "interrupted"
            events = [event["event"] for _, event in bridge.store.runs.events(run.id)]

    assert "call_finished" not in events
    assert shop.done == ["paid 7"]


async def test_a_run_can_be_decided_and_cancelled_while_its_journal_is_behind(
    tmp_path: Path,
) -> None:
    shop = Shop()
    store = tmp_path / "ideas.sqlite"
    async with Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge:
        with anyio.fail_after(LIMIT_S):
            run = await bridge.run_plan(PAYMENT)
            await shop.paying.wait()
            with locked(store):
                shop.end.set()
                await until_tried(run)
                run.cancel("not wanted any more")
                assert run.status == "running"

            assert await run.wait() == "cancelled"
            assert run.value("†state.receipt") == "receipt for 7"

    assert shop.done == ["paid 7"]


@pytest.mark.parametrize("durability", ["normal", "full"])
async def test_many_runs_at_once_are_written_together(tmp_path: Path, durability: Any) -> None:
    shop = Shop()
    configuration = Configuration(approval="allow_all", durability=durability)
    plan = {
        "calls": [{"_tool": "ship", "receipt": f"r{n}", "_outputPath": f"p{n}"} for n in range(5)]
    }
    with anyio.fail_after(LIMIT_S):
        async with Bridge(
            configuration, toolbox=shop.toolbox, store=tmp_path / "ideas.sqlite"
        ) as bridge:
            runs: list[Run] = []

            async def one() -> None:
                run = await bridge.run_plan(plan)
                assert await run.wait() == "done"
                runs.append(run)

            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(one)

            assert len({run.id for run in runs}) == 20
            for run in runs:
                record = bridge.store.runs.get(run.id)
                assert record is not None
                assert record.status == "done"
                assert record.driver is None

    assert len(shop.done) == 100


async def test_the_end_of_a_run_is_in_its_journal_and_in_the_table_of_runs_at_once(
    tmp_path: Path,
) -> None:
    shop = Shop()
    store = tmp_path / "ideas.sqlite"
    seen: list[str] = []
    async with Bridge(ALLOW, toolbox=shop.toolbox, store=store) as bridge:
        with anyio.fail_after(LIMIT_S), Store.open(store) as other:
            run = await bridge.run_plan(PAYMENT)

            def look(event: Event) -> None:
                record = other.runs.get(run.id)
                if isinstance(event, RunEnded) and record is not None:
                    seen.append(record.status)

            # This watcher is the first to learn about an event, as another process may be.
            run.runner.watchers.insert(0, look)
            shop.end.set()
            assert await run.wait() == "done"

    assert seen == ["done"]


async def test_who_asks_patiently_of_a_disk_that_stays_full_is_refused_and_does_not_spin(
    tmp_path: Path,
) -> None:
    tries = 0

    def full() -> None:
        nonlocal tries
        tries += 1
        raise StoreFullError("no space is left")

    with Store.open(tmp_path / "store.sqlite", busy_timeout_s=0.3) as store:
        async with store.writer() as writer:
            with anyio.fail_after(LIMIT_S), pytest.raises(StoreFullError):
                await writer.patiently(full)

    assert 2 <= tries <= 10


async def test_a_run_that_waits_goes_on_before_its_lease_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = Leases.release
    is_locked = True

    def sometimes(leases: Leases, run_id: str, epoch: int) -> None:
        if is_locked:
            raise StoreBusyError("locked")
        release(leases, run_id, epoch)

    monkeypatch.setattr(Leases, "release", sometimes)
    with anyio.fail_after(LIMIT_S):
        async with Bridge(ALLOW) as bridge:
            run = await bridge.solve("Say done.", output_schema={"type": "string"})
            assert run.status == "needs_solution"
            # Another process could not take it now, but this one can.
            run.submit(0, {"calls": [], "output": "done"})
            is_locked = False
            assert await run.result() == "done"
            record = bridge.store.runs.get(run.id)
            assert record is not None
            assert (record.status, record.driver) == ("done", None)


@pytest.mark.usefixtures("writes")
async def test_a_turn_that_is_not_written_yet_takes_no_solution() -> None:
    async with Bridge(ALLOW) as bridge:
        run = await bridge.solve("Look.")
        run.submit(0, {"calls": [{"_tool": "nothing"}], "output": None})
        if run.status == "running":
            with pytest.raises(SettledTurnError, match="no turn awaits a solution"):
                run.submit(1, {"calls": [], "output": "done"})
        assert await run.wait(LIMIT_S) == "needs_solution"
        run.submit(1, {"calls": [], "output": "done"})
        assert await run.result() == "done"


@pytest.mark.usefixtures("writes")
async def test_lists_show_no_older_status_of_a_run_that_is_being_written() -> None:
    async with Bridge(ALLOW) as bridge:
        run = await bridge.solve("Look.")
        run.end("failed", "nobody looks")
        assert [one["status"] for one in bridge.runs()] == [run.status]
        assert await run.wait(LIMIT_S) == "failed"
        assert [one["status"] for one in bridge.runs()] == ["failed"]
