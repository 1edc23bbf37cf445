"""When servers start and stop: at their first use if their tools are known, and after nobody has
used them for `idle` seconds.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge import PlanError
from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.modules.errors import ModuleConnectError, ModuleError
from ideabridge.bridge.modules.module_call import ModuleCall
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import ToolChangedError
from tests import preloaded

from .conftest import SERVERS
from .starting import Starting, tool

pytestmark = pytest.mark.anyio

SOLUTION: JSONObject = {
    "calls": [{"_tool": "tally", "_outputPath": "n"}],
    "output": "†state.n",
}


class Watched:
    """A bridge, and waiting for the states of its servers."""

    def __init__(self, folder: Path, entries: dict[str, Any], **top: Any) -> None:
        self._changed = anyio.Event()
        configuration = parse_configuration({"mcpServers": entries, **top}, project=folder)
        configuration = configuration.model_copy(update={"logs": folder / "logs"})
        self.bridge = Bridge(
            configuration, store=folder / "ideas.sqlite", on_tools_changed=self._on_change
        )

    def _on_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def comes_to(self, state: str, name: str = "m") -> None:
        module = self.bridge.modules[name]
        with anyio.fail_after(10):
            while module.state != state:
                await self._changed.wait()

    async def idle_seconds_pass(self, times: int = 3) -> None:
        """Wait until the server `clock`, which nobody else uses, was stopped this many times."""
        for _ in range(times):
            await self.bridge.modules["clock"].call("tally", {})
            await self.comes_to("idle", "clock")


@asynccontextmanager
async def watched(folder: Path, *servers: Starting, **entry: Any) -> AsyncGenerator[Watched]:
    """A bridge on a store that stays. Keys are added to the entries of the servers."""
    entries = {server.name: {**server.entry, **entry} for server in servers}
    watched = Watched(folder, entries, approval="allow_all")
    async with watched.bridge:
        yield watched


@asynccontextmanager
async def bridge_of(folder: Path, *servers: Starting, **entry: Any) -> AsyncGenerator[Bridge]:
    """The bridge of `watched`, once the state of each server is known."""
    async with watched(folder, *servers, **entry) as held:
        await held.bridge.modules.settled(10)
        yield held.bridge


async def known_to(folder: Path, *servers: Starting) -> None:
    """Let the store of this folder have the lists of these servers."""
    async with bridge_of(folder, *servers) as bridge:
        for name in bridge.modules.names:
            await bridge.modules[name].ready(10)


async def test_the_first_start_is_eager_and_later_ones_wait_for_a_use(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    assert server.starts == 1

    async with bridge_of(tmp_path, server) as bridge:
        module = bridge.modules["m"]
        status = module.status()
        assert (status.state, status.tools, status.error) == ("idle", 2, None)
        assert status.listed_at is not None
        assert {tool.name for tool in bridge.tools() if tool.module == "m"} == {"tally", "die"}
        assert bridge.modules.away() == []
        assert module.instructions == "Start me."

        run = await bridge.run_plan(calls=[{"_tool": "tally"}])
        assert await run.wait() == "done"
        assert server.starts == 2
        assert (module.state, module.status().listed_at) == ("up", None)


async def test_the_entry_can_choose(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    async with bridge_of(tmp_path, server, start="lazy") as bridge:
        module = bridge.modules["m"]
        assert (module.state, module.is_known) == ("idle", False)
        # A search needs the list of the module, and none is stored.
        assert await bridge.modules.known(10)
        assert (module.state, server.starts) == ("up", 1)

    async with bridge_of(tmp_path, server, start="eager") as bridge:
        assert bridge.modules["m"].state == "up"

    assert server.starts == 2


async def test_another_definition_has_no_list_and_is_started(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    async with bridge_of(tmp_path, server, allow=["tally"]) as bridge:
        assert bridge.modules["m"].state == "up"


async def test_a_plan_starts_only_the_servers_that_it_names(tmp_path: Path) -> None:
    first = Starting(tmp_path, "first")
    second = Starting(tmp_path, "second")
    second.change(tools=[tool("other")])
    await known_to(tmp_path, first, second)
    async with bridge_of(tmp_path, first, second) as bridge:
        run = await bridge.run_plan(calls=[{"_tool": "tally", "_module": "first"}])
        assert await run.wait() == "done"
        with pytest.raises(PlanError, match="unknown tool 'taly'"):
            await bridge.run_plan(calls=[{"_tool": "taly"}])

        assert (first.starts, second.starts) == (2, 1)

        run = await bridge.run_plan({"program": "import second\nawait second.other()"})
        assert await run.wait() == "done"
        assert second.starts == 2


async def test_a_task_that_may_call_everything_starts_nothing(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    async with bridge_of(tmp_path, server) as bridge:
        for patterns in (None, ["*"], ["tall*", "pick"]):
            run = await bridge.solve("Count.", tools=patterns)
            assert "tally" in [tool.name for tool in run.machine.catalogue.tools]
            assert server.starts == 1

        run.submit(0, SOLUTION)
        assert await run.wait() == "done"
        assert server.starts == 2


async def test_calls_at_once_start_it_once(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    async with bridge_of(tmp_path, server) as bridge, anyio.create_task_group() as group:

        async def call_it() -> None:
            await bridge.modules["m"].call("tally", {})

        for _ in range(5):
            group.start_soon(call_it)

    assert server.starts == 2


async def test_a_cancelled_first_call_leaves_the_start_to_the_others(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    hold = tmp_path / "hold"
    os.mkfifo(hold)
    server.change(hold=str(hold))
    answers: list[Any] = []
    async with bridge_of(tmp_path, server) as bridge:
        module = bridge.modules["m"]

        async def call() -> None:
            answers.append(await module.call("tally", {}))

        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as impatient:
                impatient.start_soon(call)
                group.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                impatient.cancel_scope.cancel()

            assert module.state == "connecting"
            # The server opens the pipe for reading, so this does not wait for long.
            with await anyio.to_thread.run_sync(hold.open, "w") as pipe:
                pipe.write("go\n")

    assert answers == ["1"]
    assert server.starts == 2


async def test_a_start_that_fails_says_why_once(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    server.change(fails="no licence was found")
    async with bridge_of(tmp_path, server) as bridge:
        module = bridge.modules["m"]
        with pytest.raises(PlanError) as refused:
            await bridge.run_plan(calls=[{"_tool": "tally"}])

        assert str(refused.value).count("no licence was found") == 1
        assert "server 'm'" in str(refused.value)
        assert "ideabridge servers logs m" in str(refused.value)

        with pytest.raises(ModuleConnectError) as failed:
            await module.call("tally", {})
        assert str(failed.value).count("no licence was found") == 1
        assert str(failed.value).count("ideabridge servers logs m") == 1

        # A server that has been repaired comes up with the next call.
        server.change(fails=None)
        assert await module.call("tally", {}) == "1"


async def test_a_changed_tool_never_takes_the_place_of_a_pinned_one(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    server.change(tools=[tool("tally", "of"), tool("new")])
    async with bridge_of(tmp_path, server) as bridge:
        module = bridge.modules["m"]
        run = await bridge.solve("Count.", tools=["tally"])
        run.submit(0, {"calls": [{"_tool": "tally"}], "output": None})
        await run.wait()
        assert module.state == "up"
        [progress] = run.calls()
        assert progress.error is not None
        assert "of" in str(progress.error)
        assert "changed" in str(progress.error["message"])
        # Everything that follows sees the current tools.
        assert [tool.name for tool in bridge.tools() if tool.module == "m"] == ["tally", "new"]
        pinned = run.machine.catalogue.tools[0]
        with pytest.raises(ToolChangedError):
            await module.answer(ModuleCall("tally", {}, meant=pinned))

    async with bridge_of(tmp_path, server) as bridge:
        assert bridge.modules["m"].state == "idle"
        assert [tool.name for tool in bridge.modules["m"].known_tools] == ["tally", "new"]


async def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    async with bridge_of(tmp_path, server, retry={"*": 1}) as bridge:
        module = bridge.modules["m"]
        with pytest.raises(ModuleError):
            await module.call("die", {})
        assert await module.call("tally", {}) == "1"

    assert server.starts == 3


async def test_a_run_is_resumed_where_its_server_is_idle(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    async with bridge_of(tmp_path, server) as bridge:
        run = await bridge.solve("Count.", tools=["tally"])
        run_id = run.id

    async with bridge_of(tmp_path, server) as bridge:
        assert bridge.modules["m"].state == "idle"
        run = await bridge.run(run_id)
        run.submit(0, SOLUTION)
        assert await run.wait() == "done"

    assert server.starts == 2


async def test_progress_is_reported_while_it_starts(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    await known_to(tmp_path, server)
    hold = tmp_path / "hold"
    os.mkfifo(hold)
    server.change(hold=str(hold))
    heard: list[tuple[float, str | None]] = []
    told = anyio.Event()

    async def progress(value: float, _total: float | None, message: str | None) -> None:
        heard.append((value, message))
        told.set()

    async with bridge_of(tmp_path, server) as bridge, anyio.create_task_group() as group:
        call = ModuleCall("tally", {}, progress=progress)
        group.start_soon(bridge.modules["m"].answer, call)
        with anyio.fail_after(10):
            await told.wait()
        with await anyio.to_thread.run_sync(hold.open, "w") as pipe:
            pipe.write("go\n")

    value, message = heard[0]
    assert 0 < value < 0.001
    assert message is not None
    assert message.startswith("starting m (")


# -- idle ------------------------------------------------------------------------------------------

IDLE = 0.05


async def test_a_server_that_nobody_uses_is_stopped_until_its_next_use(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    async with watched(tmp_path, server, idle=IDLE) as held:
        module = held.bridge.modules["m"]
        assert await module.call("tally", {}) == "1"
        memory = module.memory()
        assert memory is not None
        assert 2**20 < memory < 2**28
        await held.comes_to("idle")
        status = module.status()
        assert (status.tools, status.error, status.away) == (2, None, None)
        assert module.memory() is None

        run = await held.bridge.run_plan(calls=[{"_tool": "tally", "_outputPath": "n"}])
        assert await run.wait() == "done"
        assert run.state["n"] == "1"
        assert server.starts == 2


async def test_a_running_call_keeps_it(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    server.change(tools=[tool("gated", "gate")])
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    answers: list[Any] = []
    clock = Starting(tmp_path, "clock")
    async with watched(tmp_path, server, clock, idle=IDLE) as held:
        module = held.bridge.modules["m"]

        async def call() -> None:
            answers.append(await module.call("gated", {"gate": str(gate)}))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            with await anyio.to_thread.run_sync(gate.open, "w") as pipe:
                # The call is now running.
                await held.idle_seconds_pass()
                assert module.state == "up"
                pipe.write("go\n")

        await held.comes_to("idle")

    assert answers == ["done"]
    assert server.starts == 1


async def test_a_watched_resource_keeps_it(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    server.change(resources=[{"uri": "m://one", "name": "one"}])
    clock = Starting(tmp_path, "clock")
    async with watched(tmp_path, server, clock, idle=IDLE) as held:
        module = held.bridge.modules["m"]
        await module.watch("m://one")
        await held.idle_seconds_pass()
        assert module.state == "up"
        await module.unwatch("m://one")
        await held.comes_to("idle")


async def test_a_run_that_may_call_it_again_keeps_it(tmp_path: Path) -> None:
    server = Starting(tmp_path, idle=IDLE)
    server.change(tools=[tool("tally"), {**tool("pay"), "annotations": {}}])
    clock = Starting(tmp_path, "clock", idle=IDLE)
    held = Watched(tmp_path, {"m": server.entry, "clock": clock.entry})
    async with held.bridge as bridge:
        calls = [
            {"_tool": "tally", "_module": "m", "_id": "first"},
            {"_tool": "pay", "_after": ["first"]},
        ]
        run = await bridge.run_plan(calls=calls)
        assert await run.wait() == "needs_approval"
        await held.idle_seconds_pass()
        state = bridge.modules["m"].state
        assert state == "up", "the call that a person decides about may need what it keeps"
        run.cancel("it is not needed")
        await held.comes_to("idle")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_open_question_keeps_it(tmp_path: Path, era: str) -> None:
    options = ["--legacy"] if era == "legacy" else []
    asks = preloaded.module(SERVERS / "asks.py", *options, idle=IDLE)
    clock = Starting(tmp_path, "clock", idle=IDLE)
    held = Watched(tmp_path, {"m": asks, "clock": clock.entry}, approval="allow_all")
    async with held.bridge as bridge:
        run = await bridge.run_plan(calls=[{"_tool": "book", "who": "ann", "_outputPath": "got"}])
        with anyio.fail_after(20):
            assert await run.wait() == "needs_approval"
        assert bridge.modules["m"].era == era
        await held.idle_seconds_pass()
        assert bridge.modules["m"].state == "up"

        [entry] = run.approvals()
        assert isinstance(entry, dict)
        answer: JSONObject = {"name": "Ann", "seats": 2}
        run.decide(str(entry["approval"]), "value", value=answer, by="ann")
        with anyio.fail_after(20):
            assert await run.wait() == "done"
        assert "Ann" in str(run.given())
        await held.comes_to("idle")


async def test_calls_that_meet_the_stop_are_answered(tmp_path: Path) -> None:
    server = Starting(tmp_path)
    async with watched(tmp_path, server, idle=0.001) as held:
        module = held.bridge.modules["m"]
        for _ in range(10):
            assert int(str(await module.call("tally", {}))) >= 1
            await anyio.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"start": "sometimes"}, "start"),
        ({"idle": 0}, "idle"),
        ({"idle": "a while"}, "idle"),
        ({"idle": 86_401}, "idle"),
    ],
)
def test_other_values_are_refused(tmp_path: Path, entry: dict[str, Any], key: str) -> None:
    server = Starting(tmp_path)
    entries = {"m": {**server.entry, **entry}}
    configuration = parse_configuration({"mcpServers": entries}, project=tmp_path)
    assert f"mcpServers.m.{key}" in configuration.unusable["m"][0]
