"""A running server follows its files: over stdio and HTTP, with clients of both eras."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from ideabridge.bridge.configuration import user_file
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.trust import forget, trust_file
from tests import preloaded
from tests.trusting import write_own, write_trusted

from .serving import BIN, ERAS, Heard, all_tools, call, listening, plain, text

pytestmark = pytest.mark.anyio

EXPOSED: dict[str, Any] = {"expose": ["modules", "tools"], "approval": "allow_all"}

TOOL = """
from ideabridge.tools import tool
import {helper}

@tool(read_only=True)
async def {name}() -> str:
    return {helper}.GRADE
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder of nobody's, beside the project folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))


class Host:
    """A client of a running server, and the folder that the server follows."""

    def __init__(self, client: Client, folder: Path, heard: Heard) -> None:
        self.client = client
        self.folder = folder
        self.heard = heard

    async def until(self, enough: Callable[[set[str]], bool]) -> set[str]:
        """Wait until the tools that the client lists are the ones wanted. It lists them again only
        when their change is announced.
        """
        with anyio.fail_after(30):
            while True:
                number = len(self.heard.methods)
                tools = {*await all_tools(self.client)}
                if enough(tools):
                    return tools
                await self.heard.more_than(number)

    async def told(self, enough: Callable[[str], bool]) -> str:
        """Ask until a search answers what is wanted. Nothing announces it."""
        return await self._asked("search_tools", enough, words="x")

    async def answers(self, tool: str, wanted: str) -> None:
        """Call a tool until it answers what is wanted. Nothing announces new code of a tool."""
        await self._asked(tool, lambda answer: answer == wanted)

    async def _asked(self, tool: str, enough: Callable[[str], bool], **arguments: Any) -> str:
        with anyio.fail_after(30):
            while True:
                answer = text(await self.client.call_tool(tool, arguments))
                if enough(answer):
                    return answer
                await anyio.sleep(0.1)


@asynccontextmanager
async def hosting(folder: Path, transport: str, mode: str, *arguments: str) -> AsyncGenerator[Host]:
    """A host with `ideabridge serve` in a project folder."""
    program = preloaded.python(BIN / "ideabridge", "serve", "--project", str(folder), *arguments)
    heard = Heard()
    environment = dict(os.environ)
    if transport == "http":
        with listening([*program, "--http", "127.0.0.1:0"]) as url:
            async with hosted(Client(url, mode=mode, message_handler=heard), folder, heard) as host:
                yield host
        return

    parameters = StdioServerParameters(command=program[0], args=program[1:], env=environment)
    client = Client(parameters, mode=mode, message_handler=heard, read_timeout_seconds=30)
    async with hosted(client, folder, heard) as host:
        yield host


@asynccontextmanager
async def hosted(connecting: Client, folder: Path, heard: Heard) -> AsyncGenerator[Host]:
    async with connecting as client, anyio.create_task_group() as group:
        if client.server_capabilities and client.protocol_version >= "2026":
            ready = anyio.Event()

            async def listen() -> None:
                async with client.listen(tools_list_changed=True) as events:
                    ready.set()
                    async for event in events:
                        heard.note(type(event).__name__)

            group.start_soon(listen)
            await ready.wait()

        yield Host(client, folder, heard)
        group.cancel_scope.cancel()


WAYS = pytest.mark.parametrize(
    ("transport", "mode"),
    [("stdio", "legacy"), ("stdio", "auto"), ("http", "legacy"), ("http", "auto")],
)


@WAYS
async def test_a_server_is_added_changed_and_removed_while_the_session_runs(
    tmp_path: Path, transport: str, mode: str
) -> None:
    write_own({**EXPOSED, "mcpServers": {"one": plain(tmp_path, "one", "first")}})
    async with hosting(tmp_path, transport, mode) as host:
        await host.until(lambda tools: "first" in tools)
        servers = {
            "one": plain(tmp_path, "one", "first"),
            "two": plain(tmp_path, "two", "second"),
        }
        write_own({**EXPOSED, "mcpServers": servers})
        await host.until(lambda tools: {"first", "second"} <= tools)
        assert json.loads(text(await host.client.call_tool("second", {"x": "1"}))) == {
            "tool": "second",
            "arguments": {"x": "1"},
        }

        changed = plain(tmp_path, "three", "third")
        write_own({**EXPOSED, "mcpServers": {**servers, "two": changed}})
        tools = await host.until(lambda tools: "third" in tools and "second" not in tools)
        assert "first" in tools
        plan = {"calls": [{"_tool": "third", "_module": "two", "x": "1", "_outputPath": "y"}]}
        assert (await call(host.client, "run_plan", **plan))["status"] == "done"

        write_own({**EXPOSED, "mcpServers": {"one": servers["one"]}})
        await host.until(lambda tools: "third" not in tools)
        answer = await host.client.call_tool("run_plan", plan)
        assert answer.is_error
        assert "third" in text(answer)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_file_that_cannot_be_used_leaves_what_is_in_force(
    tmp_path: Path, mode: str
) -> None:
    servers = {"one": plain(tmp_path, "one", "first")}
    write_own({**EXPOSED, "mcpServers": servers})
    async with hosting(tmp_path, "stdio", mode) as host:
        await host.until(lambda tools: "first" in tools)
        whole = json.dumps({**EXPOSED, "mcpServers": {"two": plain(tmp_path, "two", "second")}})
        user_file().write_text(whole[:40])
        answer = await host.told(lambda answer: "cannot be used as it is now" in answer)
        assert "ideabridge doctor" in answer
        assert "first" in await all_tools(host.client)
        plan = {"calls": [{"_tool": "first", "x": "1", "_outputPath": "y"}]}
        ran = await call(host.client, "run_plan", **plan)
        assert ran["status"] == "done"
        assert "cannot be used as it is now" in ran["note"]
        assert "note" not in await call(host.client, "run_plan", **plan)

        user_file().write_text(json.dumps({**EXPOSED, "approval": "sometimes"}))
        await host.told(lambda answer: "cannot be used as it is now" in answer)
        user_file().write_text(whole)
        await host.until(lambda tools: "second" in tools and "first" not in tools)
        assert "cannot be used" not in await host.told(lambda _: True)


async def test_a_project_file_waits_for_the_person_who_trusts_it(tmp_path: Path) -> None:
    write_trusted(tmp_path, {**EXPOSED, "mcpServers": {"one": plain(tmp_path, "one", "first")}})
    async with hosting(tmp_path, "stdio", "legacy") as host:
        await host.until(lambda tools: "first" in tools)
        second = {"two": plain(tmp_path, "two", "second")}
        path = tmp_path / "ideabridge.json"
        path.write_text(json.dumps({**EXPOSED, "mcpServers": second}))
        answer = await host.told(lambda answer: "has changed since the user trusted it" in answer)
        assert "so its earlier content stays in force" in answer
        assert "ideabridge trust" in answer
        assert "first" in await all_tools(host.client)

        trust_file(path)
        await host.until(lambda tools: "second" in tools and "first" not in tools)
        assert "trusted" not in await host.told(lambda _: True)

        # Once the trust is withdrawn, nothing of the file is used.
        forget(path)
        await host.until(lambda tools: "second" not in tools)

    with Store.open(tmp_path / "home" / "data" / "ideabridge" / "ideas.sqlite") as store:
        withdrawn, followed, withheld = store.configuration_log.newest(10)

    assert withdrawn.lines[0] == "server two: removed"
    assert withdrawn.trusted_by == ""
    assert followed.lines == ("server two: added", "server one: removed")
    assert followed.status == "followed"
    assert followed.project == str(tmp_path)
    assert followed.trusted_by == getpass.getuser()
    assert followed.trusted_at is not None
    assert followed.trusted_at >= withheld.at
    assert withheld.status == "withheld"
    assert "ideabridge trust" in withheld.lines[0]


async def test_fifty_changes_in_ten_seconds_end_in_the_last(tmp_path: Path) -> None:
    one = {"one": plain(tmp_path, "one", "first")}
    write_own({**EXPOSED, "mcpServers": one})
    async with hosting(tmp_path, "stdio", "legacy") as host:
        await host.until(lambda tools: "first" in tools)
        for number in range(50):
            name = f"tool_{number}"
            write_own({**EXPOSED, "mcpServers": {**one, name: plain(tmp_path, name, name)}})
            await anyio.sleep(0.02)

        await host.until(lambda tools: "tool_49" in tools)
        assert {"first", "tool_49"} == {
            name for name in await all_tools(host.client) if name.startswith(("first", "tool_"))
        }


class ToolFolder:
    """A tool file with a module of its own folder, which the user's configuration names."""

    def __init__(self, folder: Path) -> None:
        self.helper = folder / f"helper_{folder.name}.py"
        self.file = folder / "grading.py"
        self.grade("A")
        self.define("grade")
        write_own({**EXPOSED, "tools": [str(self.file)]})

    def grade(self, grade: str) -> None:
        self.helper.write_text(f"GRADE = {grade!r}\n")

    def define(self, name: str, more: str = "") -> None:
        self.file.write_text(TOOL.format(name=name, helper=self.helper.stem) + more)


async def test_a_tool_file_is_loaded_again_with_what_it_imports(tmp_path: Path) -> None:
    tools = ToolFolder(tmp_path)
    async with hosting(tmp_path, "stdio", "legacy") as host:
        await host.until(lambda names: "grade" in names)
        assert text(await host.client.call_tool("grade")) == "A"
        tools.grade("B")
        await host.answers("grade", "B")

        tools.define("mark")
        await host.until(lambda names: "mark" in names and "grade" not in names)

        tools.helper.write_text("GRADE = \n")
        answer = await host.told(lambda answer: "its earlier tools stay" in answer)
        assert "SyntaxError" in answer
        assert text(await host.client.call_tool("mark")) == "B"
        tools.grade("C")
        await host.answers("mark", "C")
        assert "earlier tools" not in await host.told(lambda _: True)


@pytest.mark.long
async def test_a_tool_file_that_takes_too_long_leaves_the_earlier_tools(tmp_path: Path) -> None:
    tools = ToolFolder(tmp_path)
    async with hosting(tmp_path, "stdio", "legacy") as host:
        await host.until(lambda names: "grade" in names)
        tools.define("late", "\nimport time\ntime.sleep(10)\n")
        answer = await host.told(lambda answer: "its earlier tools stay" in answer)
        assert "was not imported within 5 s" in answer
        assert text(await host.client.call_tool("grade")) == "A"


async def test_rules_that_become_looser_hold_for_sessions_that_begin_afterwards(
    tmp_path: Path,
) -> None:
    deny = {"rules": [{"tool": "first", "then": "deny", "why": "not today"}]}
    one = {"one": plain(tmp_path, "one", "first")}
    write_own({**EXPOSED, "approval": deny, "mcpServers": one})
    program = preloaded.python(BIN / "ideabridge", "serve", "--project", str(tmp_path))
    plan = {"calls": [{"_tool": "first", "x": "1", "_outputPath": "y"}]}
    with listening([*program, "--http", "127.0.0.1:0"]) as url:
        heard = Heard()
        earlier = Client(url, mode="legacy", message_handler=heard)
        async with hosted(earlier, tmp_path, heard) as host:
            await host.until(lambda tools: "first" in tools)
            write_own({**EXPOSED, "mcpServers": {**one, "two": plain(tmp_path, "two", "second")}})
            await host.until(lambda tools: "second" in tools)
            assert "not today" in str(await call(host.client, "run_plan", **plan))
            assert "not today" in text(await host.client.call_tool("first", {"x": "1"}))
            async with Client(url, mode="legacy") as later, Client(url, mode="auto") as stateless:
                assert (await call(later, "run_plan", **plan))["status"] == "done"
                assert "first" in text(await later.call_tool("first", {"x": "1"}))
                assert "not today" in str(await call(stateless, "run_plan", **plan))
