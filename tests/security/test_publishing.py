"""Publishing runs of many calls: where it computes, how long it may, and what is set aside."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge import Bridge, reading
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import NoPlanError
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreAccessError, UnknownIdeaError
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL
from ideabridge.server.server import Front
from ideabridge.tools import worker
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError
from tests import preloaded
from tests.waiting import until

pytestmark = pytest.mark.anyio

JOB: Final = "worker_process.py"


def many_calls(count: int) -> list[JSON]:
    """Calls of which nothing depends on another."""
    return [
        {"_tool": "count", "items": [number, f"item {number}"], "_outputPath": f"n{number}"}
        for number in range(count)
    ]


@asynccontextmanager
async def fronted(folder: Path) -> AsyncGenerator[Front]:
    """A server in this process, whose store stays."""
    configuration = parse_configuration({}, project=folder)
    async with (
        Bridge(configuration, store=folder / "ideas.sqlite") as bridge,
        anyio.create_task_group() as group,
    ):
        yield Front(bridge, group, "0")
        group.cancel_scope.cancel()


async def ended(bridge: Bridge, count: int) -> Run:
    run = await bridge.run_plan({"calls": many_calls(count)})
    assert await run.wait() == "done"
    return run


async def saved(front: Front, run: Run) -> JSONObject:
    """What became of `save_as`, once it is decided."""
    await until(lambda: "pending" not in (front.running.saved(run) or {"pending": ""}))
    told = front.running.saved(run)
    assert told is not None
    return told


async def test_a_worker_and_a_thread_make_the_same_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await ended(bridge, 20)
        here = await bridge.publish(run.id, "here")
        monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
        there = await bridge.publish(run.id, "there")
        for one, other in (
            ("input_schema", "output_schema"),
            ("annotations", "plan"),
            ("recorded", "report"),
        ):
            assert getattr(here, one) == getattr(there, one)
            assert getattr(here, other) == getattr(there, other)
        assert here.plan is not None


async def test_a_run_with_a_large_input_or_result_is_not_small(tmp_path: Path) -> None:
    rows: list[JSON] = [{"name": f"row {number}"} for number in range(5_000)]
    text: JSON = "x" * 100_000
    counts: list[JSON] = [{"_tool": "count", "items": "†input.rows"}]
    picks: list[JSON] = [{"_tool": "pick", "data": text, "path": "@"}]
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        for number, (calls, given) in enumerate([(counts, {"rows": rows}), (picks, {})]):
            run = await bridge.run_plan({"calls": calls}, input=given)
            assert await run.wait() == "done"
            worker.workers.close()
            assert (await bridge.publish(run.id, f"tool_{number}")).answer == "auto"
            assert processes(os.getpid())


async def test_errors_of_a_worker_are_those_of_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await bridge.run_plan({"program": "1"})
        assert await run.wait() == "done"
        with pytest.raises(NoPlanError, match="it has no calls to replay"):
            await bridge.publisher.drafting.draft(run.id, LOCAL)
        with pytest.raises(UnknownIdeaError):
            await bridge.publisher.drafting.draft(run.id, "user:mallory")


async def test_publishing_many_calls_leaves_the_event_loop_to_others(tmp_path: Path) -> None:
    async with (
        Bridge(store=tmp_path / "ideas.sqlite") as bridge,
        anyio.create_task_group() as group,
    ):
        run = await ended(bridge, 2_500)
        passes = 0

        async def others() -> None:
            nonlocal passes
            while True:
                await anyio.sleep(0.001)
                passes += 1

        group.start_soon(others)
        publication = await bridge.publish(run.id, "many")
        assert publication.answer == "auto"
        # Publishing takes at least 0.7 s of computing, but little of that is on the event loop.
        assert passes >= 50
        group.cancel_scope.cancel()


async def test_a_cancelled_publication_kills_its_worker(tmp_path: Path) -> None:
    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        run = await ended(bridge, 1_000)
        worker.workers.close()
        async with anyio.create_task_group() as group:
            group.start_soon(bridge.publisher.drafting.draft, run.id, LOCAL)
            await until(lambda: bool(processes(os.getpid())))
            group.cancel_scope.cancel()
        await until(lambda: not processes(os.getpid()))


async def test_a_connection_for_reading_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ideas.sqlite"
    with Store.open(path) as store:
        reader = store.reader()
        assert reader is not None
        other = Store.open_for_reading(reader)
        with pytest.raises(StoreAccessError, match="the store is read-only"):
            other.settings.set("key", b"value")

        store.settings.set("key", b"value")
        assert other.settings.get("key") == b"value"
        other.close()

    assert Store.open(":memory:").reader() is None


async def test_a_publication_that_takes_too_long_twice_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    async def run(job: str, argument: JSON, *, what: str, seconds: float | None = None) -> JSON:
        tries.append(job)
        raise LimitExceededError(f"{what}: stopped after 30 s, the limit for one computation")

    monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
    monkeypatch.setattr(worker.Workers, "run", staticmethod(run))
    async with fronted(tmp_path) as front:
        made = await ended(front.running.bridge, 3)
        front.running.save_when_done(made, "many")
        told = await saved(front, made)
        assert "set aside after 2 failed attempts (lifting run" in str(told["error"])
        assert f"`ideabridge ideas publish {made.id} many` tries again" in str(told["error"])
        assert len(tries) == 2

    monkeypatch.undo()
    async with fronted(tmp_path) as front:
        front.running.publish_left()
        again = await front.running.bridge.run(made.id)
        assert front.running.saved(again) == told
        # This time, a person publishes it.
        assert (await front.running.bridge.publish(made.id, "many")).version == 1


def processes(parent: int) -> set[int]:
    """The worker processes that a process has started."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            line = path.with_name("cmdline").read_bytes()
        except OSError:
            continue

        if int(fields[1]) == parent and fields[0] != "Z" and JOB.encode() in line:
            found.add(int(path.parent.name))

    return found


SERVER: Final = f"""
import sys
from pathlib import Path
import anyio
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.security.test_publishing import ended, fronted

async def main(folder, run_id):
    async with fronted(folder) as front:
        if run_id:
            front.running.publish_left()
            run = await front.running.bridge.run(run_id)
        else:
            run = await ended(front.running.bridge, 500)
            front.running.save_when_done(run, "many")
        print(run.id, flush=True)
        while True:
            told = front.running.saved(run)
            if "pending" not in told:
                print(told, flush=True)
                return
            await anyio.sleep(0.01)

anyio.run(main, Path(sys.argv[1]), sys.argv[2])
"""


async def test_a_publication_that_ends_its_processes_is_set_aside(tmp_path: Path) -> None:
    run_id = ""
    for _ in range(2):
        process = await anyio.to_thread.run_sync(started, tmp_path, run_id)
        assert process.stdout is not None
        run_id = (await anyio.to_thread.run_sync(process.stdout.readline)).strip()
        pid = preloaded.number(process)
        await until(lambda pid=pid: bool(processes(pid)))
        os.kill(pid, signal.SIGKILL)
        await anyio.to_thread.run_sync(process.communicate)

    process = await anyio.to_thread.run_sync(started, tmp_path, run_id)
    told, _ = await anyio.to_thread.run_sync(process.communicate)
    assert "set aside after 2 failed attempts (its process ended)" in told
    assert f"`ideabridge ideas publish {run_id} many` tries again" in told


def started(folder: Path, run_id: str) -> subprocess.Popen[str]:
    """A process that publishes a run, or makes one and publishes it."""
    script = folder / "publishes.py"
    script.write_text(SERVER, encoding="utf-8")
    command = preloaded.python(script, str(folder), run_id)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
