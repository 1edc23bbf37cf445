"""What reads large journals runs in worker processes: it is as in a thread, can be stopped, and
has a deadline.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import anyio
import pytest

from ideabridge.bridge import Bridge, reading
from ideabridge.bridge.errors import ForkError, RejectedSolutionError
from ideabridge.bridge.store.journal import Journal
from ideabridge.bridge.store.users import LOCAL
from ideabridge.tools import worker
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError
from tests.asking import ASKS
from tests.crash.test_recovery import Desk, left_behind
from tests.security.test_publishing import ended, processes
from tests.waiting import until

pytestmark = pytest.mark.anyio


async def journal(bridge: Bridge, run_id: str) -> list[JSON]:
    events = [event for _, event in bridge.store.runs.events(run_id)]
    # The times at which calls ran again are different.
    return [{key: value for key, value in event.items() if key != "at"} for event in events]


@pytest.mark.parametrize("at", [1, 5, 9])
async def test_a_worker_and_a_thread_make_the_same_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await ended(bridge, 3)
        here = await bridge.fork(run.id, at)
        await here.wait()
        worker.workers.close()
        monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
        there = await bridge.fork(run.id, at)
        await there.wait()
        assert processes(os.getpid())
        assert await journal(bridge, here.id) == await journal(bridge, there.id)


async def test_errors_of_a_fork_in_a_worker_are_those_of_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await ended(bridge, 3)
        with pytest.raises(ForkError, match="takes no input"):
            await bridge.fork(run.id, 2, input={"name": "x"})
        async with bridge.session() as session:
            await session.run_race([{"_tool": "count", "items": [1]}])
            solved = session.id
        with pytest.raises(RejectedSolutionError, match="unknown tool"):
            await bridge.fork(solved, 3, solution={"calls": [{"_tool": "nothing"}], "output": None})


async def test_a_cancelled_fork_kills_its_worker(tmp_path: Path) -> None:
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await ended(bridge, 1_000)
        worker.workers.close()
        async with anyio.create_task_group() as group:
            group.start_soon(bridge.fork, run.id, 2_000)
            await until(lambda: bool(processes(os.getpid())))
            group.cancel_scope.cancel()
        await until(lambda: not processes(os.getpid()))


async def test_a_published_plan_is_verified_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await ended(bridge, 3)
        published = await bridge.publish(run.id, "many")
        [here] = await bridge.verify(["many"], live=False)
        worker.workers.close()
        monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
        [there] = await bridge.verify(["many"], live=False)
        assert processes(os.getpid())
        assert (here.faults, here.notes) == (there.faults, there.notes) == ([], [])
        # The plan is no longer the one of the run.
        assert published.plan is not None
        calls: JSON = [
            {"_tool": "count", "items": [1, 2]},
            *cast("list[JSON]", published.plan["calls"])[1:],
        ]
        bridge.store.publications.pin(published, {**published.plan, "calls": calls}, None, {})
        [changed] = await bridge.verify(["many"], live=False)
        assert "no longer self-consistent" in changed.faults[0]


async def test_what_takes_too_long_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
    monkeypatch.setattr(worker, "MOST_SECONDS", 0.01)
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await ended(bridge, 500)
        with pytest.raises(
            LimitExceededError, match=rf"forking run {run.id}: stopped after 0.01 s"
        ):
            await bridge.fork(run.id, 1_000)


async def test_a_store_in_memory_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
    async with Bridge(store=":memory:") as bridge:
        run = await ended(bridge, 3)
        worker.workers.close()
        fork = await bridge.fork(run.id, 5, caller=LOCAL)
        assert await fork.wait() == "done"
        assert not processes(os.getpid())


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that read a journal from its beginning. All journals count as large."""
    monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
    threads: list[int] = []
    read = Journal.events

    def events(self: Journal, run_id: str, after: int = 0) -> Iterator[tuple[int, JSONObject]]:
        if after == 0:
            threads.append(threading.get_ident())
        return read(self, run_id, after)

    monkeypatch.setattr(Journal, "events", events)
    return threads


@pytest.mark.parametrize("how", ["recovers", "looks up", "resumes", "cancels"])
async def test_who_goes_on_with_a_large_run_reads_it_in_a_thread(
    tmp_path: Path, readers: list[int], how: str
) -> None:
    path = tmp_path / "ideas.sqlite"
    [run_id] = await left_behind(path)
    desk = Desk(open=True)
    async with Bridge(ASKS, toolbox=desk.toolbox, store=path) as bridge:
        readers.clear()
        match how:
            case "recovers":
                await desk.recover(bridge)
                assert desk.taken_up == [run_id]
            case "looks up":
                await bridge.run(run_id)
            case "resumes":
                await bridge.resume(run_id)
            case _:
                await bridge.cancel(run_id, "enough")

        assert readers
        assert threading.get_ident() not in readers
        run = await bridge.run(run_id)
        assert await run.wait() == ("cancelled" if how == "cancels" else "done")


@pytest.mark.parametrize("wanted", ["the room", "the run"])
async def test_who_goes_on_with_a_room_reads_it_and_its_run_in_a_thread(
    tmp_path: Path, readers: list[int], wanted: str
) -> None:
    path = tmp_path / "ideas.sqlite"
    task: JSON = {"_tool": "solve", "_module": "anonymous", "task": "Add the numbers"}
    async with Bridge(store=path) as bridge:
        run = await bridge.run_plan({"calls": [task]})
        await until(lambda: bool(bridge.store.runs.rooms(run.id)))
        [room] = bridge.store.runs.rooms(run.id)

    async with Bridge(store=path) as bridge:
        readers.clear()
        await bridge.run(room.id if wanted == "the room" else run.id)
        assert len(readers) == 2
        assert threading.get_ident() not in readers


async def test_many_who_want_a_large_run_read_it_once(tmp_path: Path, readers: list[int]) -> None:
    path = tmp_path / "ideas.sqlite"
    async with Bridge(store=path) as bridge:
        run_id = (await ended(bridge, 3)).id

    async with Bridge(store=path) as bridge:
        readers.clear()
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(bridge.run, run_id)
        assert len(readers) == 1
