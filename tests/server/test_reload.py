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
import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters, types

from ideabridge.bridge import Bridge, Configuration, load_configuration
from ideabridge.bridge.configuration import user_file
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.stored_secrets import SecretOwner, secrets_path, set_secret
from ideabridge.bridge.trust import forget, trust_file
from ideabridge.server.reloading import Reloading
from tests import preloaded
from tests.processes import processes_with
from tests.trusting import write_own, write_trusted
from tests.waiting import until

from .serving import BIN, PLAIN, Heard, all_tools, call, listening, plain, structured, text

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


BOTH = pytest.mark.parametrize(("transport", "mode"), [("stdio", "legacy"), ("http", "auto")])
"""Both transports and both eras, at the cost of two."""


@BOTH
async def test_a_file_that_cannot_be_used_leaves_what_is_in_force(
    tmp_path: Path, transport: str, mode: str
) -> None:
    servers = {"one": plain(tmp_path, "one", "first")}
    write_own({**EXPOSED, "mcpServers": servers})
    async with hosting(tmp_path, transport, mode) as host:
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


@pytest.mark.parametrize(("transport", "mode"), [("stdio", "auto"), ("http", "legacy")])
async def test_a_project_file_waits_for_the_person_who_trusts_it(
    tmp_path: Path, transport: str, mode: str
) -> None:
    write_trusted(tmp_path, {**EXPOSED, "mcpServers": {"one": plain(tmp_path, "one", "first")}})
    async with hosting(tmp_path, transport, mode) as host:
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

        # Once the trust is withdrawn, nothing from the file is used.
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


class Callers:
    """Calls of tools for as long as a configuration changes.

    Attributes:
        answered: how many calls were answered.
        lost: what the others said.
    """

    def __init__(self, client: Client) -> None:
        self.answered = 0
        self.lost: list[str] = []
        self._client = client

    async def call(self, tool: str) -> None:
        """Call a tool directly and in a plan, again and again."""
        plan = {"calls": [{"_tool": tool, "x": "1", "_outputPath": "y"}]}
        while True:
            direct = await self._client.call_tool(tool, {"x": "1"})
            self._note(direct, is_answered=not direct.is_error)
            run = await self._client.call_tool("run_plan", plan)
            self._note(run, is_answered='"tool": ' in str(structured(run).get("state")))

    def _note(self, answer: types.CallToolResult, *, is_answered: bool) -> None:
        if is_answered:
            self.answered += 1
        else:
            self.lost.append(text(answer))


async def changed_fifty_times(folder: Path, pause: float) -> int:
    """Change the configuration fifty times while clients call the server that stays and the one
    that is replaced each time. Return how many calls were answered.
    """
    stays = plain(folder, "one", "first")
    replaced = plain(folder, "two", "second")
    write_own({**EXPOSED, "mcpServers": {"one": stays, "two": replaced}})
    async with hosting(folder, "stdio", "legacy") as host:
        await host.until(lambda tools: {"first", "second"} <= tools)
        callers = Callers(host.client)
        async with anyio.create_task_group() as group:
            group.start_soon(callers.call, "first")
            group.start_soon(callers.call, "second")
            for number in range(50):
                name = f"tool_{number}"
                servers = {
                    "one": stays,
                    "two": {**replaced, "env": {"NUMBER": name}},
                    name: plain(folder, name, name),
                }
                write_own({**EXPOSED, "mcpServers": servers})
                await anyio.sleep(pause)

            # The server `two` may still be starting after its last replacement when `tool_49` is
            # listed.
            await host.until(
                lambda tools: (
                    {"first", "second", "tool_49"}
                    == {name for name in tools if name.startswith(("first", "second", "tool_"))}
                )
            )
            group.cancel_scope.cancel()

        assert callers.lost == []
        # There is one process for each server that is configured now.
        names = [str(folder / f"{name}.json") for name in ("one", "two", "tool_49")]
        await until(lambda: len(processes_with(str(PLAIN), str(folder))) == len(names))
        assert all(processes_with(str(PLAIN), name) for name in names)

    await until(lambda: processes_with(str(PLAIN), str(folder)) == [])
    return callers.answered


async def test_fifty_quick_changes_end_in_the_last_and_lose_nothing(tmp_path: Path) -> None:
    assert await changed_fifty_times(tmp_path, 0.02) > 10


@pytest.mark.long
async def test_fifty_changes_in_ten_seconds_end_in_the_last_and_lose_nothing(
    tmp_path: Path,
) -> None:
    assert await changed_fifty_times(tmp_path, 0.2) > 50


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


HELD_TOOL = """
import anyio.to_thread
from pathlib import Path
from ideabridge.tools import tool

@tool(read_only=True)
async def grade(gate: str = "") -> str:
    if gate:
        await anyio.to_thread.run_sync(Path(gate).read_text)
    return {grade!r}
"""


async def test_a_call_that_runs_ends_on_the_code_with_which_it_began(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    file = tmp_path / "grading.py"
    file.write_text(HELD_TOOL.format(grade="A"))
    write_own({**EXPOSED, "tools": [str(file)]})
    async with hosting(tmp_path, "stdio", "auto") as host, anyio.create_task_group() as group:
        await host.until(lambda names: "grade" in names)
        answers: list[str] = []

        async def call_held() -> None:
            answers.append(text(await host.client.call_tool("grade", {"gate": str(gate)})))

        group.start_soon(call_held)
        with anyio.fail_after(20):
            # The pipe can be opened once the call reads it.
            pipe = await anyio.to_thread.run_sync(gate.open, "w")

        with pipe:
            file.write_text(HELD_TOOL.format(grade="B"))
            await host.answers("grade", "B")
            assert answers == []

        await until(lambda: answers)
        assert answers == ["A"]


@pytest.mark.long
async def test_a_tool_file_that_takes_too_long_leaves_the_earlier_tools(tmp_path: Path) -> None:
    tools = ToolFolder(tmp_path)
    async with hosting(tmp_path, "stdio", "legacy") as host:
        await host.until(lambda names: "grade" in names)
        tools.define("late", "\nimport time\ntime.sleep(10)\n")
        answer = await host.told(lambda answer: "its earlier tools stay" in answer)
        assert "was not imported within 5 s" in answer
        assert text(await host.client.call_tool("grade")) == "A"


@pytest.mark.long
async def test_a_tool_file_that_is_corrected_during_an_import_is_loaded_after_it(
    tmp_path: Path,
) -> None:
    tools = ToolFolder(tmp_path)
    async with hosting(tmp_path, "stdio", "legacy") as host:
        await host.until(lambda names: "grade" in names)
        tools.define("late", "\nimport time\ntime.sleep(14)\n")
        await host.told(lambda answer: "was not imported within 5 s" in answer)
        tools.define("mark")
        await host.told(lambda answer: "still being imported" in answer)
        await host.until(lambda names: "mark" in names and "grade" not in names)


async def test_a_stored_secret_is_followed(tmp_path: Path) -> None:
    owner = SecretOwner()
    entry = plain(tmp_path, "told", "tell")
    entry["args"].append("${secret:token}")
    write_own({**EXPOSED, "mcpServers": {"one": plain(tmp_path, "one", "first"), "told": entry}})
    async with hosting(tmp_path, "stdio", "auto") as host:
        tools = await host.until(lambda tools: "first" in tools)
        assert "tell" not in tools
        why = text(await host.client.call_tool("search_tools", {"words": "x", "module": "told"}))
        assert "ideabridge secrets set token" in why

        set_secret(owner, "token", "the-first-value", {})
        await host.until(lambda tools: "tell" in tools)
        assert "tell" in text(await host.client.call_tool("tell", {"x": "1"}))
        assert processes_with(str(PLAIN), "the-first-value")
        [stays] = processes_with(str(PLAIN), str(tmp_path / "one.json"))

        set_secret(owner, "token", "the-second-value", {})
        await until(lambda: processes_with(str(PLAIN), "the-second-value"))
        await until(lambda: not processes_with(str(PLAIN), "the-first-value"))
        assert "tell" in text(await host.client.call_tool("tell", {"x": "1"}))
        assert processes_with(str(PLAIN), str(tmp_path / "one.json")) == [stays]

        # A list of secrets that cannot be read stops neither a server nor any other change.
        secrets_path().chmod(0o644)
        servers = {"told": entry, "two": plain(tmp_path, "two", "second")}
        write_own({**EXPOSED, "mcpServers": servers})
        await host.until(lambda tools: {"second", "tell"} <= tools)
        assert "tell" in text(await host.client.call_tool("tell", {"x": "1"}))


FIRST: dict[str, Any] = {"_tool": "first", "x": "1", "_outputPath": "one"}
SECOND: dict[str, Any] = {"_tool": "second", "x": "2", "_outputPath": "two"}
ASKS_FIRST: dict[str, Any] = {"default": "allow", "rules": [{"tool": "first", "then": "ask"}]}


class Rules:
    """The rules that a running server follows, and decisions through one of its clients."""

    def __init__(self, host: Host, servers: dict[str, Any]) -> None:
        self._host = host
        self._servers = servers
        self._number = 0

    async def become(self, approval: Any, **changed: Any) -> None:
        """Change the rules, and wait until they hold: a further server is there then."""
        self._number += 1
        name = f"sign_{self._number}"
        servers = {**self._servers, **changed, name: plain(self._host.folder, name, name)}
        write_own({**EXPOSED, "approval": approval, "mcpServers": servers})
        await self._host.until(lambda tools: name in tools)

    async def run(self, *calls: dict[str, Any]) -> dict[str, Any]:
        """Run a plan, until it has ended or asks."""
        return await call(self._host.client, "run_plan", calls=[*calls])

    async def decide(self, run: dict[str, Any], decision: str) -> types.CallToolResult:
        """Decide about the first question of an answer."""
        approval = run["approvals"][0]["approval"]
        decisions = [{"approval": approval, "decision": decision}]
        arguments = {"run": run["run"], "decisions": decisions}
        return await self._host.client.call_tool("decide_approval", arguments)

    async def look(self, run: dict[str, Any]) -> dict[str, Any]:
        """What is known of a run now."""
        return structured(await self._host.client.call_tool("check_run", {"run": run["run"]}))


@BOTH
async def test_what_waits_stays_decidable_under_other_rules(
    tmp_path: Path, transport: str, mode: str
) -> None:
    servers = {"pair": plain(tmp_path, "pair", "first", "second")}
    write_own({**EXPOSED, "approval": ASKS_FIRST, "mcpServers": servers})
    async with hosting(tmp_path, transport, mode) as host:
        await host.until(lambda tools: "first" in tools)
        rules = Rules(host, servers)
        # `second` is allowed, and is waiting for its turn after `first`.
        both = await rules.run(FIRST, SECOND)
        other = await rules.run(FIRST)
        third = await rules.run(FIRST)
        fourth = await rules.run(FIRST)
        waiting = [run["status"] for run in (both, other, third, fourth)]
        assert waiting == ["needs_approval"] * 4

        # Looser rules decide nothing that is waiting, and do not apply to sessions that already
        # exist.
        await rules.become("allow_all")
        assert (await rules.look(both))["status"] == "needs_approval"
        assert (await rules.run(FIRST))["status"] == "needs_approval"

        # Stricter rules ask about calls that were allowed but have not run yet.
        await rules.become({"default": "allow", "rules": [{"module": "pair", "then": "ask"}]})
        asks_again = structured(await rules.decide(both, "approve"))
        assert asks_again["status"] == "needs_approval"
        assert [entry["call"]["_tool"] for entry in asks_again["approvals"]] == ["second"]
        done = structured(await rules.decide(asks_again, "approve"))
        assert done["status"] == "done"

        # With a broken file, what is waiting can still be decided.
        user_file().write_text("{")
        await host.told(lambda answer: "cannot be used as it is now" in answer)
        assert structured(await rules.decide(third, "approve"))["status"] == "done"

        # A server that now starts differently gets no call that was meant for the earlier one,
        # whatever is decided about the call.
        changed = {**servers["pair"], "args": [*servers["pair"]["args"], "more"]}
        await rules.become(ASKS_FIRST, pair=changed)
        ended = structured(await rules.decide(other, "approve"))
        assert ended["status"] == "done"
        assert "starts differently" in str(ended["errors"])
        assert "one" not in ended["state"]
        assert "denied" in text(await rules.decide(fourth, "deny"))


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


async def test_a_change_that_came_before_the_watch_is_followed(tmp_path: Path) -> None:
    write_trusted(tmp_path, {"mcpServers": {"early": {"command": "true", "disabled": True}}})

    def read() -> Configuration:
        return load_configuration(project=tmp_path)

    async with Bridge(read()) as bridge, anyio.create_task_group() as group:
        entry = {"command": "true", "disabled": True}
        write_trusted(tmp_path, {"mcpServers": {"early": entry, "late": entry}})
        changed = anyio.Event()
        group.start_soon(Reloading(bridge, read, changed.set, lambda _: None).run)
        with anyio.fail_after(30):
            await changed.wait()

        assert set(bridge.configuration.modules) == {"early", "late"}
        group.cancel_scope.cancel()
