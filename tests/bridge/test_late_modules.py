"""A module that is not up at the start comes up later: by itself, and at once where
something needs it.
"""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, read_plan
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.modules.errors import ModuleConnectError
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "modules" / "servers" / "pay.py"
PAY: JSON = {
    "calls": [{"_tool": "pay", "_module": "bank", "to": "Ada", "_outputPath": "paid"}],
    "output": "†state.paid",
}


class Late:
    """A module that is not up before it is opened."""

    def __init__(self, kind: str, folder: Path, group: anyio.abc.TaskGroup) -> None:
        self.folder = folder
        self._group = group
        command = [sys.executable, "-I", "-S", str(SERVER), str(folder)]
        if kind == "stdio":
            self.command = None
            self.entry: dict[str, Any] = {"command": command[0], "args": [*command[1:], "--late"]}
            return

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        self.command = [*command, "--http", str(port)]
        self.entry = {"url": f"http://127.0.0.1:{port}/mcp"}

    def configuration(self, **keys: Any) -> Configuration:
        return parse_configuration(
            {"mcpServers": {"bank": {**self.entry, **keys}}, "approval": "allow_all"}
        )

    @property
    def ledger(self) -> list[str]:
        path = self.folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    async def open(self) -> None:
        (self.folder / "open").touch()
        if self.command is not None:
            await self._group.start(self._serve, self.command)

    async def _serve(self, command: list[str], *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout is not None
            await process.stdout.receive()
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                process.kill()


@asynccontextmanager
async def late(kind: str, folder: Path) -> AsyncGenerator[Late]:
    async with anyio.create_task_group() as group:
        yield Late(kind, folder, group)
        group.cancel_scope.cancel()


async def until(bridge: Bridge, condition: Callable[[ModuleStatus], bool]) -> ModuleStatus:
    """Wait for a status of the module."""
    with anyio.fail_after(20):
        # There is no event for an attempt that has failed once more.
        while not condition(status := bridge.modules["bank"].status()):  # noqa: ASYNC110
            await anyio.sleep(0.005)
    return status


KINDS = pytest.mark.parametrize("kind", ["stdio", "http"])


@KINDS
async def test_it_comes_up_by_itself_and_its_tools_appear(kind: str, tmp_path: Path) -> None:
    async with late(kind, tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        await bridge.modules.settled(30)
        status = await until(bridge, lambda status: bool(status.next_try))
        assert status.state == "failed"
        assert status.why.endswith("; next try in 1 s"), status.why
        assert status.away is not None
        long = dataclasses.replace(status, away=3725.4)
        assert long.why.endswith("; away for 1 h 2 min; next try in 1 s")
        with pytest.raises(
            PlanError, match=r"unknown tool 'pax'.*bank \(.*; (next try in|trying again now)"
        ):
            await bridge.run_plan(read_plan({"calls": [{"_tool": "pax"}]}))
        assert bridge.tools() == [one for one in bridge.tools() if one.module is None]
        await bank.open()
        await until(bridge, lambda status: status.state == "up")
        assert "pay" in [one.name for one in bridge.tools()]
        run = await bridge.run_plan(read_plan(PAY))
        assert await run.result() == "done: pay Ada"


async def test_people_are_told_when_it_failed_and_when_it_came_up(tmp_path: Path) -> None:
    told: list[ModuleStatus] = []
    failed, up = anyio.Event(), anyio.Event()

    def tell(status: ModuleStatus) -> None:
        told.append(status)
        (up if status.state == "up" else failed).set()

    async with (
        late("stdio", tmp_path) as bank,
        Bridge(bank.configuration()) as bridge,
        anyio.create_task_group() as group,
    ):
        group.start_soon(bridge.modules.follow, tell)
        with anyio.fail_after(20):
            await failed.wait()
            await bank.open()
            await up.wait()
        group.cancel_scope.cancel()

    assert [one.state for one in told] == ["failed", "up"]
    assert "the bank is closed; next try in 1 s" in told[0].why


@KINDS
async def test_a_plan_and_a_call_have_it_tried_and_wait(kind: str, tmp_path: Path) -> None:
    ran: list[Any] = []
    async with late(kind, tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        await bridge.modules.settled(30)
        with pytest.raises(ModuleConnectError, match=r"next try in|is tried now"):
            # If the module has never been up, a call outside of a run waits for only one attempt.
            await bridge.modules["bank"].call("pay", {"to": "Ada"})

        async def plan() -> None:
            run = await bridge.run_plan(read_plan(PAY))
            ran.append(await run.result())

        async with anyio.create_task_group() as group:
            group.start_soon(plan)
            await anyio.wait_all_tasks_blocked()
            await bank.open()
        assert ran == ["done: pay Ada"]


@KINDS
async def test_a_run_that_is_taken_up_too_early_waits(kind: str, tmp_path: Path) -> None:
    begun = anyio.Event()
    gate = anyio.Event()

    @tool(read_only=True)
    async def wait_for_it() -> str:
        """Wait."""
        begun.set()
        await gate.wait()
        return "now"

    plan: JSON = {
        "calls": [
            {"_tool": "wait_for_it", "_outputPath": "to"},
            {"_tool": "pay", "to": "†state.to", "_outputPath": "paid || refused"},
        ],
        "output": "†state.paid",
    }
    store = tmp_path / "store.sqlite"
    toolbox = Toolbox(wait_for_it)
    async with late(kind, tmp_path) as bank:
        if kind == "stdio":
            await bank.open()
            async with Bridge(bank.configuration(), toolbox=toolbox, store=store) as bridge:
                run = await bridge.run_plan(read_plan(plan))
                await begun.wait()
            (tmp_path / "open").unlink()
        else:
            async with late(kind, tmp_path) as before:
                before.entry, before.command = bank.entry, bank.command
                await before.open()
                async with Bridge(bank.configuration(), toolbox=toolbox, store=store) as bridge:
                    run = await bridge.run_plan(read_plan(plan))
                    await begun.wait()

        gate.set()
        async with Bridge(bank.configuration(), toolbox=toolbox, store=store) as bridge:
            await bridge.modules.settled(30)
            again = await bridge.resume(run.id)
            # The attempt for the run fails like the one before it, and the run waits for another.
            await until(bridge, lambda status: status.next_try == 0)
            await until(bridge, lambda status: bool(status.next_try))
            assert again.status == "running"
            await bank.open()
            assert await again.wait(20) == "done"
            assert again.answer()["output"] == "done: pay now"

        assert bank.ledger == ["pay now"]


async def test_what_refuses_us_is_not_hammered(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def refuse(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            seen.append(await stream.receive())
            head = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            await stream.send(head)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    configuration = parse_configuration(
        {"mcpServers": {"bank": {"url": f"http://127.0.0.1:{port}/mcp"}}}
    )
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, refuse)
        async with Bridge(configuration) as bridge:
            await bridge.modules.settled(30)
            status = await until(bridge, lambda status: status.state == "failed")
            assert "sign in" in status.why
            # Nothing changes until a person signs in.
            assert status.next_try is None
            once = len(seen)
            with pytest.raises(PlanError, match="sign in"):
                await bridge.run_plan(read_plan(PAY))

            assert len(seen) <= 2 * once

        group.cancel_scope.cancel()
