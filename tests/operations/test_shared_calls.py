"""`parallel` of a module over all processes on a store: workers, servers, and direct calls."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.driving.driver import own_driver_name
from ideabridge.bridge.driving.notices import Notices
from ideabridge.bridge.driving.shared_calls import SharedCalls
from ideabridge.bridge.store.call_places import CallPlaces
from ideabridge.bridge.store.errors import StoreFullError, UncountedCallError
from ideabridge.bridge.store.store import Store
from tests import postgres
from tests.operations.test_workers import front, working
from tests.postgres import run_sql
from tests.server.serving import Gate, call, listening, served, text
from tests.waiting import until

pytestmark = pytest.mark.anyio

MODULE = Path(__file__).with_name("overlapping.py")


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "ideas.sqlite")
    return postgres.server().address()


@pytest.fixture
def gate(tmp_path: Path) -> Generator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


def configured(
    folder: Path, store: str, gate: Gate, parallel: int | None = None, **top: Any
) -> Path:
    """A configuration with the module that notes its calls."""
    module: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", str(MODULE), str(folder / "log"), str(gate.path)],
    }
    if parallel is not None:
        module["parallel"] = parallel
    path = folder / "ideabridge.json"
    path.write_text(json.dumps({"store": store, "mcpServers": {"desk": module}, **top}))
    return path


def noted(folder: Path) -> list[str]:
    """What the module has noted: `begin` and `end` of each call, with the process."""
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def most_at_once(lines: list[str]) -> int:
    running = most = 0
    for line in lines:
        running += 1 if line.startswith("begin") else -1
        most = max(most, running)
    return most


PLAN = [{"_tool": "work", "_outputPath": "a"}, {"_tool": "work", "_outputPath": "b"}]


async def _runs_at_two_workers(
    configuration: Path, store: str, gate: Gate, folder: Path
) -> list[str]:
    """Let two workers run three plans of two calls each; returns what the module noted."""
    with working(configuration, "--runs", "2"), working(configuration, "--runs", "1"):
        async with front(configuration) as client:
            runs = [await call(client, "run_plan", calls=PLAN, wait_s=0) for _ in range(3)]
            with Store.open(store) as opened:
                await until(lambda: opened.queue.count() == 0)
                await until(lambda: len(noted(folder)) >= 1)
            for _ in range(2 * len(runs)):
                gate.open()
            for run in runs:
                assert (await call(client, "check_run", run=run["run"], wait_s=20))[
                    "status"
                ] == "done"
    return noted(folder)


async def test_a_configured_limit_holds_over_all_workers(
    store: str, gate: Gate, tmp_path: Path
) -> None:
    lines = await _runs_at_two_workers(configured(tmp_path, store, gate, 1), store, gate, tmp_path)
    assert len(lines) == 12
    assert most_at_once(lines) == 1
    assert len({line.split()[1] for line in lines}) == 2


async def test_the_default_limit_holds_in_each_process(
    store: str, gate: Gate, tmp_path: Path
) -> None:
    path = configured(tmp_path, store, gate)
    with working(path, "--runs", "1"), working(path, "--runs", "1"):
        async with front(path) as client:
            for _ in range(2):
                await call(client, "run_plan", calls=PLAN, wait_s=0)
            await until(lambda: len(noted(tmp_path)) == 4)
            assert most_at_once(noted(tmp_path)) == 4
            with Store.open(store) as opened:
                assert not opened.settings.under("calls ")


async def test_the_place_of_a_killed_worker_is_free(store: str, gate: Gate, tmp_path: Path) -> None:
    path = configured(tmp_path, store, gate, 1)
    with working(path, "--runs", "1") as first:
        async with front(path) as client:
            await call(client, "run_plan", calls=PLAN[:1], wait_s=0)
            await until(lambda: len(noted(tmp_path)) == 1)
            with working(path, "--runs", "1"), Store.open(store) as opened:
                await call(client, "run_plan", calls=PLAN[:1], wait_s=0)
                await until(lambda: [len(places(opened))] == [2])
                os.kill(first.pid, signal.SIGKILL)
                first.process.wait(30)
                await until(lambda: len(noted(tmp_path)) == 2)

    assert [line.split()[0] for line in noted(tmp_path)] == ["begin", "begin"]


def places(opened: Store) -> list[str]:
    """The ids of the calls at the module, in order."""
    return [
        one.call
        for key in opened.settings.under("calls ")
        for one in opened.call_places.of(key.removeprefix("calls "))
    ]


async def test_direct_calls_at_two_servers_count_and_one_that_is_cancelled_does_not(
    gate: Gate, tmp_path: Path
) -> None:
    store = postgres.server().address()
    path = configured(tmp_path, store, gate, 1, expose=["modules"])
    async with AsyncExitStack() as stack:
        opened = stack.enter_context(Store.open(store))
        urls = [stack.enter_context(listening(served(path, "--http", "0"))) for _ in range(2)]
        one, two = [
            await stack.enter_async_context(Client(url, read_timeout_seconds=30)) for url in urls
        ]
        answers: list[str] = []

        async def work(client: Client) -> None:
            answers.append(text(await client.call_tool("work", {})))

        group = await stack.enter_async_context(anyio.create_task_group())
        group.start_soon(work, one)
        await until(lambda: len(noted(tmp_path)) == 1)
        scope = anyio.CancelScope()

        async def give_up() -> None:
            with scope:
                await work(two)

        group.start_soon(give_up)
        await until(lambda: len(places(opened)) == 2)
        [_, given_up] = places(opened)
        # The second call of the first server waits within that process.
        group.start_soon(work, one)
        group.start_soon(work, two)
        scope.cancel()
        await until(lambda: given_up not in places(opened))
        gate.open()
        gate.open()
        gate.open()
        await until(lambda: len(answers) == 3)
        await until(lambda: not places(opened))

    assert most_at_once(noted(tmp_path)) == 1
    assert len(noted(tmp_path)) == 6
    assert len({*answers}) == 2


# -- one process for each machine ------------------------------------------------------------------


@asynccontextmanager
async def sharing(
    store: str, name: str = "", seconds: float = 15.0
) -> AsyncGenerator[tuple[SharedCalls, Store]]:
    with Store.open(store) as opened:
        async with (
            opened.writer() as writer,
            Notices(opened) as notices,
            anyio.create_task_group() as group,
        ):
            shared = SharedCalls(opened, writer, notices, name or own_driver_name(), seconds)
            group.start_soon(shared.run)
            yield shared, opened
            group.cancel_scope.cancel()


class Call:
    """A call that runs until `end`."""

    def __init__(self, shared: SharedCalls, most: int = 1) -> None:
        self._shared = shared
        self._most = most
        self.began, self._ends = anyio.Event(), anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            async with self._shared.place("desk 1", self._most):
                self.began.set()
                await self._ends.wait()

    def end(self) -> None:
        self._ends.set()


async def looked(opened: Store, monkeypatch: pytest.MonkeyPatch, times: int = 2) -> None:
    """Wait until somebody has looked so often whose turn it is."""
    looks = 0
    of = opened.call_places.of

    def counted(module: str) -> Any:
        nonlocal looks
        found = of(module)
        looks += 1
        return found

    monkeypatch.setattr(opened.call_places, "of", counted)
    await until(lambda: looks >= times)
    monkeypatch.setattr(opened.call_places, "of", of)


async def test_calls_of_several_processes_take_turns_and_a_cancelled_one_leaves(store: str) -> None:
    async with (
        sharing(store) as (one, opened),
        sharing(store) as (two, _),
        anyio.create_task_group() as group,
    ):
        calls: list[Call] = []
        for number, shared in enumerate((one, two, one, two, one)):
            calls.append(Call(shared, 2))
            group.start_soon(calls[-1].run)
            await until(lambda count=number: len(opened.call_places.of("desk 1")) == count + 1)
        with anyio.fail_after(20):
            await calls[0].began.wait()
            await calls[1].began.wait()
            calls[2].scope.cancel()
            await until(lambda: len(opened.call_places.of("desk 1")) == 4)
            assert not calls[3].began.is_set()
            calls[0].end()
            await calls[3].began.wait()
            assert not calls[4].began.is_set()
            calls[3].end()
            await calls[4].began.wait()
        for one_call in calls:
            one_call.end()
    with Store.open(store) as again:
        assert again.call_places.of("desk 1") == []


async def test_connections_that_are_cut_let_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    store = postgres.server().address()
    async with (
        sharing(store) as (one, _),
        sharing(store) as (two, opened),
        anyio.create_task_group() as group,
    ):
        first, second = Call(one), Call(two)
        group.start_soon(first.run)
        await first.began.wait()
        group.start_soon(second.run)
        await until(lambda: len(opened.call_places.of("desk 1")) == 2)
        cut = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'ideabridge'"
        )
        assert run_sql(store, cut)[0][0] >= 6
        await looked(opened, monkeypatch)
        assert not second.began.is_set()
        first.end()
        with anyio.fail_after(20):
            await second.began.wait()
        second.end()


async def test_a_process_on_another_machine_keeps_its_place_while_it_has_a_heartbeat(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = "elsewhere|boot|namespace|1|1|{}".format
    async with (
        sharing(store, elsewhere(1), 0.5) as (one, _),
        sharing(store, elsewhere(2), 0.5) as (two, opened),
        anyio.create_task_group() as group,
    ):
        first, second = Call(one), Call(two)
        group.start_soon(first.run)
        await first.began.wait()
        group.start_soon(second.run)
        # Wait for longer than a place without a heartbeat is kept.
        await until(lambda: sum(one.beat for one in opened.call_places.of("desk 1")) > 20)
        assert not second.began.is_set()
        # A process that was only asleep joins again, and one that is gone is removed.
        places = opened.call_places
        for place in places.of("desk 1"):
            places.leave("desk 1", place.call)
        places.join("desk 1", "gone", elsewhere(3))
        with anyio.fail_after(20):
            await second.began.wait()
        await until(lambda: "more calls may run there" in caplog.text)
        first.end()
        second.end()


async def test_a_call_that_cannot_be_counted_is_not_made_and_one_that_cannot_leave_leaves_later(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ideabridge.bridge.store.writer.KEEPS_TRYING_SECONDS", 0.2)

    def failing(*_: object) -> Any:
        raise StoreFullError("no room")

    async with sharing(store, seconds=1) as (shared, opened), anyio.create_task_group() as group:
        join, leave = CallPlaces.join, CallPlaces.leave
        monkeypatch.setattr(CallPlaces, "join", failing)
        with pytest.raises(UncountedCallError, match="not run: no room") as caught:
            async with shared.place("desk 1", 1):
                pytest.fail("it ran")

        assert caught.value.outcome == "not_run"
        monkeypatch.setattr(CallPlaces, "join", join)
        left: list[str] = []

        def counted(places: CallPlaces, module: str, one: str) -> None:
            left.append(one)
            if len(left) < 30:
                failing()
            leave(places, module, one)

        monkeypatch.setattr(CallPlaces, "leave", counted)
        first = Call(shared)
        group.start_soon(first.run)
        await first.began.wait()
        first.end()
        monkeypatch.setattr("ideabridge.bridge.store.writer.KEEPS_TRYING_SECONDS", 0.05)
        await until(lambda: opened.call_places.of("desk 1") == [])
        assert len(left) >= 30


async def test_a_file_of_one_server_needs_no_places(gate: Gate, tmp_path: Path) -> None:
    path = configured(tmp_path, "ideas.sqlite", gate, 1, expose=["modules"])
    gate.open()
    with listening(served(path, "--http", "0")) as url:
        async with Client(url, read_timeout_seconds=30) as client:
            assert not (await client.call_tool("work", {})).is_error

    with Store.open(tmp_path / "ideas.sqlite") as opened:
        assert not opened.settings.under("calls ")
