"""Several servers on one store act as one: a run of one is seen, decided on and taken up at the others."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.ideas.store import Store

from .serving import ERAS, TOOLS, Gate, call, command, configured, listening, over_stdio, served, structured

pytestmark = pytest.mark.anyio

SLOW = """
from pathlib import Path

import anyio
import anyio.to_thread

from ideabridge.tools import tool


@tool(read_only=False)
async def pay(gate: str) -> str:
    '''Pay when the named pipe is opened.'''
    def read() -> str:
        with Path(gate).open() as pipe:
            return pipe.readline().strip()

    return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
"""


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def gate(tmp_path: Path) -> Generator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


def shared(folder: Path, **top: Any) -> Path:
    """A configuration of servers on one store."""
    (folder / "slow.py").write_text(SLOW)
    return configured(folder, tools=[str(TOOLS), "slow.py"], **top)


def driver_of(record: RunRecord | None) -> int:
    """The process that drives a run."""
    assert record is not None
    return int(str(record.driver).rsplit("|", 5)[3])


async def settled(store: Store, runs: list[str]) -> set[str]:
    """How runs stand when none is at work any more, and nobody has asked for them."""
    while True:
        records = [store.run(run) for run in runs]
        standing = {record.status for record in records if record is not None}
        if not standing & {"running", "interrupted"}:
            return standing
        await anyio.sleep(0.05)


async def test_with_three_servers_every_run_settles_within_10_s_of_a_kill(tmp_path: Path) -> None:
    configuration = shared(tmp_path, approval="allow_all")
    with ExitStack() as stack:
        urls = [stack.enter_context(listening(served(configuration, "--http", "127.0.0.1:0"))) for _ in range(3)]
        store = stack.enter_context(Store.open(tmp_path / "ideas.sqlite"))
        gates = [Gate(tmp_path, f"gate{number}") for number in range(12)]
        runs: dict[str, list[str]] = {"hold": [], "pay": []}
        async with Client(urls[0]) as client:
            for tool, started in runs.items():
                for gate in gates:
                    plan = [{"_tool": tool, "gate": str(gate.path), "_outputPath": "x"}]
                    started.append((await call(client, "run_plan", calls=plan, wait_s=0))["run"])
        [driver] = {driver_of(store.run(run)) for run in (*runs["hold"], *runs["pay"])}
        os.kill(driver, signal.SIGKILL)
        for gate in gates:
            gate.open()
        with anyio.fail_after(10):
            assert await settled(store, runs["hold"]) == {"done"}
            # Of a payment that was cut off, a person is asked.
            assert await settled(store, runs["pay"]) == {"needs_approval"}
        for gate in gates:
            gate.close()


@asynccontextmanager
async def two(configuration: Path, era: str, transport: str) -> AsyncGenerator[tuple[Client, Client]]:
    """Clients of two servers."""
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for _ in range(2):
            if transport == "http":
                url = stack.enter_context(listening(command(configuration, "0")))
                clients.append(await stack.enter_async_context(Client(url, mode=era, read_timeout_seconds=20)))
            else:
                clients.append(await stack.enter_async_context(over_stdio(configuration, era)))
        yield clients[0], clients[1]


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_check_run_at_another_server_answers_when_the_run_ends(
    tmp_path: Path, gate: Gate, era: str, transport: str
) -> None:
    answers: list[dict[str, Any]] = []
    notes: list[str] = []
    begun = anyio.Event()

    async def noted(_progress: float, _total: float | None, message: str | None) -> None:
        notes.append(str(message))
        begun.set()

    async with two(shared(tmp_path), era, transport) as (one, other):
        calls = [
            {"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"},
            {"_tool": "count_words", "text": "†state.x", "_outputPath": "y"},
        ]
        run = (await call(one, "run_plan", calls=calls, output="†state.y", wait_s=0))["run"]

        async def check() -> None:
            result = await other.call_tool("check_run", {"run": run, "wait_s": 20}, progress_callback=noted)
            answers.append(structured(result))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(check)
                await begun.wait()
                gate.open()
    [answer] = answers
    assert (answer["status"], answer["output"]) == ("done", {"words": 1})
    assert answer["idea"]
    # The progress of a run at work elsewhere is reported here.
    assert any("hold done" in note for note in notes)
    assert any("count_words done (2 of 2)" in note for note in notes)


async def test_a_run_at_work_at_one_server_asks_at_another_and_goes_on_there(
    tmp_path: Path, gate: Gate, era: str, transport: str
) -> None:
    async with two(shared(tmp_path), era, transport) as (one, other):
        calls = [
            {"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"},
            {"_tool": "write_note", "path": str(tmp_path / "note"), "text": "†state.x", "_outputPath": "y"},
        ]
        run = (await call(one, "run_plan", calls=calls, output="†state.y", wait_s=0))["run"]
        asked: list[dict[str, Any]] = []

        async def check() -> None:
            asked.append(await call(other, "check_run", run=run, wait_s=20))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(check)
                assert (await call(other, "check_run", run=run, wait_s=0))["status"] == "running"
                gate.open()
        [waiting] = asked
        assert waiting["status"] == "needs_approval"
        [approval] = waiting["approvals"]
        told = await call(
            other, "decide_approval", run=run, decisions=[{"approval": approval["approval"], "decision": "approve"}]
        )
        assert (told["status"], told["output"]) == ("done", 4)
        assert (await call(one, "check_run", run=run))["output"] == 4


async def test_turns_are_taken_at_any_server(tmp_path: Path, era: str, transport: str) -> None:
    async with two(shared(tmp_path), era, transport) as (one, other):
        run = (await call(one, "solve", task="add", output_schema={"type": "integer"}))["run"]
        for turn, client in enumerate((other, one, other)):
            assert (await call(client, "check_run", run=run))["turn"] == turn
            solution: dict[str, Any] = {"calls": [{"_tool": "add", "a": turn, "b": 1}], "output": None}
            told = await call(client, "submit_solution", run=run, turn=turn, solution=solution)
            assert (told["status"], told["turn"]) == ("needs_solution", turn + 1)
        told = await call(one, "submit_solution", run=run, turn=3, solution={"calls": [], "output": "†results.2"})
        assert (told["status"], told["output"]) == ("done", 3)
        assert (await call(other, "check_run", run=run))["output"] == 3
