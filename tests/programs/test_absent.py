"""Programs that import a server which is not up: they are told why, in the words of plans."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, Plan
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.offer import offer, plan_tools
from ideabridge.bridge.runs import executor
from tests.modules.authorized import authorized
from tests.modules.conftest import SERVERS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_folder")]

MUTE = ModuleConfiguration(
    command=sys.executable, args=("-c", "import sys; sys.stdin.read()"), connect_timeout=600
)
"""Is still connecting when a test ends, however slow the machine is."""

GONE = ModuleConfiguration(command="no-such-command-here")
OFF = ModuleConfiguration(command=sys.executable, args=(str(SERVERS / "raw.py"),), disabled=True)
LOGIN = "needs you to sign in: ideabridge servers login tickets"
WHY = {
    "tickets": ("server 'tickets' is down (", LOGIN),
    "no-such": ("server 'no-such' is down (", "the program 'no-such-command-here' was not found"),
    "off": ("server 'off' is disabled", ""),
    "mute": ("server 'mute' is still connecting", ""),
}


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@asynccontextmanager
async def away(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Bridge]:
    """A bridge of which no server is up."""
    monkeypatch.setattr(offer, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(plan_tools, "_LOOK_SECONDS", 0.05)
    async with authorized() as server:
        tickets = ModuleConfiguration(url=server.url)
        servers = {"tickets": tickets, "no-such": GONE, "off": OFF, "mute": MUTE}
        async with Bridge(Configuration(mcpServers=servers)) as bridge:
            with anyio.fail_after(20):
                await bridge.modules.settled(names=["tickets", "no-such", "off"])
            yield bridge


async def test_plans_and_programs_are_told_why_a_server_is_not_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with away(monkeypatch) as bridge:
        for name, words in WHY.items():
            module = name.replace("-", "_")
            with pytest.raises(PlanError) as caught:
                await bridge.run_plan([{"_tool": "read", "_module": name}])
            plan = str(caught.value)
            for word in words:
                assert word in plan
            sentence = plan.partition("read: ")[2]
            for program in (
                f"import {module}\nawait {module}.read()",
                f"import tools, {module} as t\nawait t.read()",
                f"from servers import {module} as t\nawait t.read()",
                f"from {module} import read\nawait read()",
                f"try:\n    import {module}\nexcept ImportError:\n    pass",
            ):
                for act in (bridge.run_plan, bridge.dry_run):
                    with pytest.raises(PlanError) as caught:
                        await act(Plan([], program=program))
                    told = str(caught.value)
                    assert f"`{module}` cannot be imported: {words[0]}" in told
                    assert words[1] in told
                    assert "no other tool replaces its tools" in told
                    assert "Cannot resolve" not in told
            assert "no other tool replaces its tools" in sentence


async def test_a_program_among_calls_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with away(monkeypatch) as bridge:
        with pytest.raises(PlanError, match=LOGIN):
            await bridge.run_plan(
                [{"_tool": "run_program", "program": "import tickets\nawait tickets.read()"}]
            )


async def test_a_program_of_a_mind_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with away(monkeypatch) as bridge:
        run = await bridge.solve("Read the tickets.", tools=["count"])
        run.submit(0, {"program": "import tickets\nawait tickets.read()"})
        assert await run.wait() == "needs_solution"
        text = str(run.errors())
        assert "`tickets` cannot be imported: server 'tickets' is down (" in text
        assert LOGIN in text


async def test_other_imports_are_told_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with away(monkeypatch) as bridge:
        with pytest.raises(
            PlanError, match="Cannot resolve imported module `bank`; the modules with tools are"
        ):
            await bridge.run_plan(Plan([], program="import bank"))
        with pytest.raises(
            PlanError, match="Cannot resolve imported module `servers`; the servers are none"
        ):
            await bridge.run_plan(Plan([], program="from servers import bank"))


LAST = """
import json, os, sys
tool = {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
for line in sys.stdin:
    asked = json.loads(line)
    info = {"name": "last", "version": "1"}
    about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    results = {
        "initialize": about,
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "read"}]},
    }
    if "id" in asked and asked["method"] in results:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}), flush=True)
    elif "id" in asked:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
    if asked["method"] == "tools/call":
        os._exit(7)
"""
"""A server that ends after one call."""


async def test_a_server_that_was_up_before_is_told_at_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "last.py"
    script.write_text(LAST)
    last = ModuleConfiguration(command=sys.executable, args=(str(script),))
    configuration = Configuration(mcpServers={"last": last})
    store = tmp_path / "ideas.sqlite"
    program = """
import last
said = [await last.read()]
try:
    await last.read()
except RuntimeError as error:
    said.append(str(error))
said
"""
    # Other tests check how long calls wait for a server to come back.
    monkeypatch.setattr(executor, "PATIENCE", 0.5)
    monkeypatch.setattr("ideabridge.bridge.modules.module._PATIENCE", 0.5)
    async with Bridge(configuration, store=store) as bridge:
        await bridge.modules.settled()
        script.unlink()
        run = await bridge.run_plan(Plan([], program=program))
        assert await run.wait() == "done"
        first, second = cast("list[str]", run.given())
        assert first == "read"
        # The end may be noticed before the call or during it.
        assert "server 'last' ended with exit code" in second

    # A later process knows the tools of the server, and says the same before anything runs.
    monkeypatch.setattr(offer, "SETTLE_SECONDS", 0.05)
    async with Bridge(configuration, store=store) as bridge:
        await bridge.modules.settled()
        for plan in (Plan([], program=program), Plan([{"_tool": "read", "_module": "last"}])):
            with pytest.raises(PlanError, match=r"server 'last' is down \(.*before it was up"):
                await bridge.run_plan(plan)
