"""Several servers on one store act as one: a run of one is seen, decided on and taken up at the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.ideas.store import Store

from .serving import ERAS, TOOLS, Gate, call, configured, listening, served

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
