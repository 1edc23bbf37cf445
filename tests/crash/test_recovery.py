"""What a process left behind is taken up by the next, where it may be."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import ApprovalRules, Configuration, load_configuration
from ideabridge.bridge.driving.driver import Driver
from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError
from ideabridge.bridge.loop.event import RunEnded
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.store.errors import StoreFullError, UnknownRunError
from ideabridge.bridge.store.leases import Lease
from ideabridge.bridge.store.run_record import Handover, RunRecord, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.server.serving import call, configured, over_stdio

pytestmark = pytest.mark.anyio

PLAN: JSON = {"calls": [{"_tool": "work", "text": "x", "_outputPath": "a"}], "output": "†state.a"}
ASKING: JSON = {"calls": [{"_tool": "send", "_outputPath": "a"}], "output": "†state.a"}


class Desk:
    """A bridge's tools; `work` ends only where `open` is."""

    def __init__(self, *, open: bool) -> None:  # noqa: A002 - what a desk is
        self.started = anyio.Event()
        self.troubles: list[tuple[str, str]] = []
        self.taken_up: list[str] = []

        @tool(read_only=True)
        async def work(text: str) -> str:
            """Work."""
            self.started.set()
            if not open:
                await anyio.sleep_forever()
            return text

        @tool(read_only=False)
        async def send() -> str:
            """Send."""
            return "sent"

        self.toolbox = Toolbox(work, send)

    def tell(self, record: RunRecord, why: str) -> None:
        self.troubles.append((record.id, why))

    async def recover(self, bridge: Bridge) -> None:
        with anyio.fail_after(20):
            await bridge.recover_runs(self.tell, lambda run: self.taken_up.append(run.id))


OTHER = Configuration(approval="allow_all")
"""Another configuration than that of `left_behind`."""


def changed_toolbox() -> Toolbox:
    """The tools of a desk, of which `work` has another definition now."""

    @tool(read_only=True)
    async def work(text: str, place: str = "here") -> str:
        """Work."""
        return text + place

    return Toolbox(work)


async def left_behind(store: Path, count: int = 1, under: Configuration = ASKS) -> list[str]:
    """Runs that were at work when their bridge was closed."""
    desk = Desk(open=False)
    async with Bridge(under, toolbox=desk.toolbox, store=store) as bridge:
        runs = [await bridge.run_plan(read_plan(PLAN)) for _ in range(count)]
        await desk.started.wait()
        return [run.id for run in runs]


async def test_what_was_at_work_goes_on_and_what_waits_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        solving, asking = await bridge.solve("x"), await bridge.run_plan(read_plan(ASKING))
        assert (solving.status, asking.status) == ("needs_solution", "needs_approval")

    ids = await left_behind(path, 20)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        waiting = [bridge.store.runs.get(run.id) for run in (solving, asking)]
        await desk.recover(bridge)
        assert sorted(desk.taken_up) == sorted(ids)
        assert desk.troubles == []
        records = [bridge.store.runs.get(run_id) for run_id in ids]
        assert {record.status for record in records if record} == {"done"}
        assert [(await bridge.run(run_id)).answer()["output"] for run_id in ids] == ["x"] * 20
        assert [bridge.store.runs.get(run.id) for run in (solving, asking)] == waiting


async def test_what_fails_because_everything_is_cancelled_is_no_outcome(tmp_path: Path) -> None:
    started = anyio.Event()
    ended: list[str] = []

    @tool(read_only=True)
    async def work(text: str) -> str:
        """Work."""
        started.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            # This happens to a call whose module is closed at the same time.
            ended.append(text)
            raise RuntimeError("the connection was closed") from None
        return text

    store = tmp_path / "ideas.sqlite"
    with anyio.fail_after(30):
        async with (
            anyio.create_task_group() as outer,
            Bridge(ASKS, store=store, toolbox=Toolbox(work)) as bridge,
        ):
            await bridge.run_plan(read_plan(PLAN))
            await started.wait()
            outer.cancel_scope.cancel()
            await anyio.sleep_forever()

        assert ended == ["x"]
        desk = Desk(open=True)
        async with Bridge(ASKS, store=store, toolbox=desk.toolbox) as bridge:
            await desk.recover(bridge)
            again = await bridge.run(bridge.runs()[0]["run"])
            assert (await again.wait(), again.given()) == ("done", "x")


async def test_another_tool_interrupts_and_the_right_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    async with Bridge(OTHER, toolbox=changed_toolbox(), store=path) as bridge:
        await desk.recover(bridge)
        [(told, why)] = desk.troubles
        assert told == run_id
        assert "its tool 'work' has changed since the run began" in why
        record = bridge.store.runs.get(run_id)
        assert record is not None
        assert (record.status, record.driver) == ("interrupted", None)
        reason = record.summary.reason or ""
        assert "its tool 'work' has changed since the run began" in reason
        assert f"You can still end it: ideabridge runs cancel {run_id}" in reason
        with pytest.raises(
            InterruptedRunError, match="its tool 'work' has changed since the run began"
        ):
            await bridge.resume(run_id)

        # It is reported only once, so the next start does not mention it.
        await desk.recover(bridge)
        assert len(desk.troubles) == 1

    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        await desk.recover(bridge)
        assert desk.taken_up == [run_id]
        record = bridge.store.runs.get(run_id)
        assert record is not None
        assert record.status == "done"


async def test_what_was_at_work_goes_on_under_another_configuration_with_the_same_tools(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    async with Bridge(OTHER, toolbox=desk.toolbox, store=path) as bridge:
        await desk.recover(bridge)
        assert (desk.taken_up, desk.troubles) == ([run_id], [])
        run = await bridge.run(run_id)
        assert (run.status, run.given()) == ("done", "x")


async def test_a_server_that_leaves_runs_to_workers_queues_what_was_left(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path, role="front") as bridge:
        await desk.recover(bridge)
        # It neither continues the run, nor says that it cannot.
        assert (desk.taken_up, desk.troubles) == ([], [])
        record = bridge.store.runs.get(run_id)
        assert record is not None
        assert (record.status, record.driver) == ("queued", None)
        assert (await bridge.resume(run_id)).status == "running"


async def test_a_run_whose_tool_is_not_here_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    async with Bridge(store=path) as bridge:
        with pytest.raises(InterruptedRunError, match="its tool 'work' is missing here"):
            await bridge.resume(run_id)
        assert bridge.runs()[0]["status"] == "interrupted"


async def test_a_journal_that_cannot_be_read_holds_up_no_other(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    damaged, sound = await left_behind(path, 2)
    with Store.open(path) as store:
        epoch = store.leases.acquire(damaged, "somebody", 0, 0)
        assert epoch is not None
        store.runs.append(damaged, epoch, [{"event": "from_the_future"}])

    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        await desk.recover(bridge)
        assert desk.taken_up == [sound]
        [(told, why)] = desk.troubles
        assert told == damaged
        assert "from_the_future" in why


async def test_what_a_process_died_before_noting_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        done, asking = (
            await bridge.run_plan(read_plan(PLAN)),
            await bridge.run_plan(read_plan(ASKING)),
        )
        await done.wait(30)
        # The status is written after the event, so a process that is killed in between leaves this
        # behind.
        for run in (done, asking):
            epoch = bridge.store.leases.acquire(run.id, "somebody", 0, 0)
            assert epoch is not None
            bridge.store.runs.set_status(run.id, epoch, "running", None)

    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        await desk.recover(bridge)
        assert desk.troubles == []
        # A task that waits for the end of a run is told about it.
        assert sorted(desk.taken_up) == sorted([done.id, asking.id])
        told = {entry["run"]: entry["status"] for entry in bridge.runs()}
        assert told == {done.id: "done", asking.id: "needs_approval"}
        record = bridge.store.runs.get(asking.id)
        assert record is not None
        assert record.driver is None


async def test_what_comes_between_reading_and_taking_a_run_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        transaction = bridge.store.transaction
        runs = bridge.store.runs

        def late() -> AbstractContextManager[None]:
            # Another process resumes the run, ends it and returns its lease, after its journal was
            # read here and before its lease is taken.
            monkeypatch.setattr(bridge.store, "transaction", transaction)
            epoch = bridge.store.leases.acquire(run_id, "somebody", 15, 0)
            assert epoch is not None
            runs.append(run_id, epoch, [RunEnded("cancelled", "meanwhile").to_json()])
            runs.set_status(run_id, epoch, "cancelled", None)
            assert bridge.store.leases.release(run_id, epoch)
            return transaction()

        monkeypatch.setattr(bridge.store, "transaction", late)
        run = await bridge.run(run_id)
        assert (run.status, run.machine.reason) == ("cancelled", "meanwhile")
        assert bridge.store.transaction == transaction
        assert not desk.started.is_set()


async def test_what_cannot_be_resumed_says_why(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        run = await bridge.run_plan(read_plan(PLAN), caller="somebody")
        await run.wait(30)
        with pytest.raises(FinishedRunError, match="has ended"):
            await bridge.resume(run.id, caller=SEES_ALL)

        for run_id, caller in ((run.id, "another"), ("run_0", SEES_ALL)):
            with pytest.raises(UnknownRunError, match="unknown run"):
                await bridge.resume(run_id, caller=caller)


@asynccontextmanager
async def sweeping(
    bridge: Bridge, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Callable[[int], Awaitable[None]]]:
    """While a bridge looks for runs that were left behind, as a server does; gives a function that
    waits for it to have looked so many times more.
    """
    monkeypatch.setattr("ideabridge.bridge.runs.recovery.SWEEP_SECONDS", 0.01)
    looked = anyio.Condition()
    leases = bridge.store.leases.of_runs
    looks = 0

    async def noted() -> None:
        async with looked:
            looked.notify_all()

    def counted(status: str, *arguments: Any) -> list[Lease]:
        nonlocal looks
        if status == "running":
            looks += 1
            group.start_soon(noted)
        return leases(status, *arguments)

    async def times(more: int) -> None:
        before = looks
        with anyio.fail_after(20):
            async with looked:
                while looks < before + more:
                    await looked.wait()

    with monkeypatch.context() as patch:
        patch.setattr(bridge.store.leases, "of_runs", counted)
        async with anyio.create_task_group() as group:
            taken_up = desk.taken_up
            group.start_soon(
                partial(
                    bridge.recover_runs, desk.tell, lambda run: taken_up.append(run.id), keep=True
                )
            )
            await times(1)
            yield times
            group.cancel_scope.cancel()


async def until_done(bridge: Bridge, run_id: str) -> None:
    with anyio.fail_after(20):
        while (record := bridge.store.runs.get(run_id)) is None or record.status != "done":  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_what_is_left_behind_later_is_taken_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk(open=True)
    async with (
        Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge,
        sweeping(bridge, desk, monkeypatch),
    ):
        for run_id in [*await left_behind(path), *await left_behind(path)]:
            await until_done(bridge, run_id)
        assert desk.troubles == []


async def test_what_is_left_behind_after_a_change_of_the_configuration_is_taken_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk(open=True)
    changed = Configuration(approval=ApprovalRules(default="read_only", timeout_seconds=3600.0))
    async with (
        Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge,
        sweeping(bridge, desk, monkeypatch) as looks,
    ):
        fingerprint_before = bridge.fingerprint
        await bridge.reconfigure(changed)
        assert bridge.fingerprint != fingerprint_before
        await looks(2)

        for run_id in await left_behind(path, under=changed):
            await until_done(bridge, run_id)
        assert desk.troubles == []


async def test_a_run_whose_end_is_noted_after_the_store_had_failed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        run = await bridge.run_plan(read_plan(PLAN))
        await run.wait(30)

        def note(status: str) -> None:
            epoch = bridge.store.leases.acquire(run.id, "somebody", 0, 0)
            assert epoch is not None
            bridge.store.runs.set_status(run.id, epoch, status, None)
            assert bridge.store.leases.release(run.id, epoch)

        note("running")

    def fail(driver: Driver, status: str, summary: object = None) -> None:
        raise StoreFullError("no room")

    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        with monkeypatch.context() as patch:
            patch.setattr(Driver, "set_status", fail)
            async with sweeping(bridge, desk, monkeypatch) as looks:
                with anyio.fail_after(20):
                    while not desk.troubles:
                        await looks(1)
                note("done")
                with anyio.fail_after(20):
                    while desk.taken_up != [run.id]:
                        await looks(1)


async def test_looking_at_runs_at_work_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    busy = Desk(open=False)
    desk = Desk(open=True)
    async with (
        Bridge(ASKS, toolbox=busy.toolbox, store=path) as one,
        Bridge(ASKS, toolbox=desk.toolbox, store=path) as other,
        sweeping(other, desk, monkeypatch) as looks,
    ):
        run = await one.run_plan(read_plan(PLAN))
        await busy.started.wait()
        before = one.store.runs.get(run.id)
        await looks(50)
        assert one.store.runs.get(run.id) == before
        # When the driver itself looks, the row does not change either.
        async with sweeping(one, busy, monkeypatch) as own_looks:
            await own_looks(50)

        assert one.store.runs.get(run.id) == before
        assert (desk.taken_up, busy.taken_up, run.status) == ([], [], "running")


async def test_what_cannot_be_taken_up_is_told_once_however_often_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    desk = Desk(open=True)
    async with (
        Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge,
        sweeping(bridge, desk, monkeypatch) as looks,
    ):
        with Store.open(path) as store, store.transaction():
            store.runs.create(
                "damaged", kind="plan", caller="", title="", fingerprint=bridge.fingerprint
            )
            epoch = store.leases.acquire("damaged", "somebody", 15, 0)
            assert epoch is not None
            store.runs.append("damaged", epoch, [{"event": "from_the_future"}])
            store.leases.release("damaged", epoch)

        await looks(50)
        [(told, why)] = desk.troubles
        assert told == "damaged"
        assert "from_the_future" in why


async def test_runs_of_another_configuration_are_left_to_its_own_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    other = Desk(open=True)
    desk = Desk(open=True)
    async with Bridge(OTHER, toolbox=changed_toolbox(), store=path) as bridge:
        async with sweeping(bridge, other, monkeypatch) as looks:
            [run_id] = await left_behind(path)
            before = bridge.store.runs.get(run_id)
            await looks(50)
            assert (other.troubles, bridge.store.runs.get(run_id)) == ([], before)

        # A server that starts under another configuration says so, but a server under the run's own
        # configuration still resumes it.
        await other.recover(bridge)
        assert len(other.troubles) == 1

    async with (
        Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge,
        sweeping(bridge, desk, monkeypatch),
    ):
        await until_done(bridge, run_id)


async def test_a_run_that_a_passing_store_error_ended_here_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    busy = Desk(open=False)
    desk = Desk(open=True)
    async with (
        Bridge(ASKS, toolbox=busy.toolbox, store=path) as one,
        Bridge(ASKS, toolbox=desk.toolbox, store=path) as other,
        sweeping(other, desk, monkeypatch),
    ):
        run = await one.run_plan(read_plan(PLAN))
        await busy.started.wait()
        run.runner.fail(StoreFullError("no space is left"))
        assert run.status == "interrupted"
        await until_done(other, run.id)
        assert desk.taken_up == [run.id]


def refuse_leases(bridge: Bridge, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the store of a bridge refuse the next leases, as if its disk were full."""
    acquire = bridge.store.leases.acquire
    failed = 0

    def acquired(*arguments: Any) -> int | None:
        nonlocal failed
        if failed < times:
            failed += 1
            raise StoreFullError("no space is left")
        return acquire(*arguments)

    monkeypatch.setattr(bridge.store.leases, "acquire", acquired)


async def test_a_store_error_while_a_run_is_taken_up_leaves_it_to_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    monkeypatch.setattr("ideabridge.bridge.runs.recovery._HELD_SECONDS", 0.0)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        note = bridge.store.runs.set_status
        failed = 0

        def fails_once(*arguments: Any) -> None:
            nonlocal failed
            failed += 1
            if failed == 1:
                # By now, the lease has been taken.
                raise StoreFullError("no space is left")
            note(*arguments)

        monkeypatch.setattr(bridge.store.runs, "set_status", fails_once)
        async with sweeping(bridge, desk, monkeypatch):
            await until_done(bridge, run_id)

        assert (failed > 1, desk.taken_up) == (True, [run_id])


async def test_a_run_of_another_configuration_is_tried_again_after_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    monkeypatch.setattr("ideabridge.bridge.runs.recovery._HELD_SECONDS", 0.0)
    monkeypatch.setattr("ideabridge.bridge.runs.recovery._MOST_DELAY_BY_STORE", 0.02)
    async with Bridge(OTHER, toolbox=desk.toolbox, store=path) as bridge:
        refuse_leases(bridge, monkeypatch, 3)
        async with sweeping(bridge, desk, monkeypatch):
            await until_done(bridge, run_id)

        assert desk.taken_up == [run_id]


async def test_a_run_of_another_configuration_is_taken_up_when_its_lease_lapses_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    with Store.open(path) as store:
        # This driver is on another machine, so it cannot be seen from here.
        assert store.leases.acquire(run_id, "elsewhere|boot|space|1|1|1:0.3", 0.3, 1) is not None

    desk = Desk(open=True)
    async with (
        Bridge(OTHER, toolbox=desk.toolbox, store=path) as bridge,
        sweeping(bridge, desk, monkeypatch),
    ):
        await until_done(bridge, run_id)
        assert desk.taken_up == [run_id]


async def test_a_lease_is_not_kept_where_a_decision_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=tmp_path / "store.sqlite") as bridge:
        run = await bridge.run_plan(read_plan(ASKING))
        [request] = run.pending()

        def fails(*_: Any) -> None:
            raise StoreFullError("no space is left")

        with monkeypatch.context() as patch:
            patch.setattr(bridge.store.runs, "set_status", fails)
            with pytest.raises(StoreFullError):
                run.decide(request.approval, "approve", by="Ann")
        record = bridge.store.runs.get(run.id)
        assert record is not None
        assert (record.status, record.driver) == ("needs_approval", None)


async def test_a_run_that_the_store_kept_from_going_on_does_so_soon_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    monkeypatch.setattr("ideabridge.bridge.runs.recovery._HELD_SECONDS", 0.0)
    monkeypatch.setattr("ideabridge.bridge.runs.recovery._MOST_DELAY_BY_STORE", 0.02)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        refuse_leases(bridge, monkeypatch, 15)
        async with sweeping(bridge, desk, monkeypatch):
            await until_done(bridge, run_id)

        [(told, why)] = desk.troubles
        assert (told, "no space is left" in why) == (run_id, True)


async def test_a_run_that_is_set_aside_after_an_error_of_the_store_is_told_of_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    monkeypatch.setattr("ideabridge.bridge.runs.recovery._HELD_SECONDS", 0.0)
    with Store.open(path) as store:
        epoch = store.leases.acquire(run_id, "somebody", 15, 0)
        assert epoch is not None
        record = store.runs.get(run_id)
        assert record is not None
        store.runs.set_status(
            run_id,
            epoch,
            "running",
            StoredSummary(handover=Handover(taken_up=2, events=record.last_event)),
        )
        store.leases.release(run_id, epoch)

    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        refuse_leases(bridge, monkeypatch, 1)
        async with sweeping(bridge, desk, monkeypatch) as looks:
            with anyio.fail_after(20):
                while len(desk.troubles) < 2:
                    await looks(1)
            await looks(20)

    assert [told for told, _ in desk.troubles] == [run_id, run_id]
    assert "no space is left" in desk.troubles[0][1]
    assert "is set aside" in desk.troubles[1][1]


SERVED = """
import pathlib
import anyio
from ideabridge.tools import tool

@tool(read_only=True)
async def pulse(pipe: str) -> str:
    '''Tell the test that it runs; the first time, never end.'''
    mark = pathlib.Path(pipe + ".mark")
    again = mark.exists()
    mark.touch()
    with open(pipe, "w") as writing:
        writing.write("again" if again else "first")
    if not again:
        await anyio.sleep_forever()
    return "alive"
"""


async def test_a_server_takes_up_what_the_one_before_left(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "pulse.py").write_text(SERVED, encoding="utf-8")
    configuration = configured(tmp_path, tools=[str(tmp_path / "pulse.py")])
    plan: JSON = {
        "calls": [{"_tool": "pulse", "pipe": str(pipe), "_outputPath": "a"}],
        "output": "†state.a",
    }
    # Open the pipe for reading and writing, so that a writer does not wait for a reader.
    descriptor = os.open(pipe, os.O_RDWR)
    try:
        async with Bridge(load_configuration(configuration)) as bridge:
            run = await bridge.run_plan(read_plan(plan))
            assert await anyio.to_thread.run_sync(os.read, descriptor, 100) == b"first"
        async with over_stdio(configuration, "auto") as client:
            # The run continues by itself, although nobody has asked for it.
            assert await anyio.to_thread.run_sync(os.read, descriptor, 100) == b"again"
            answer = await call(client, "check_run", run=run.id, wait_s=20)
            assert answer["output"] == "alive"
    finally:
        os.close(descriptor)
