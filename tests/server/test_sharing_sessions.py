"""Servers of which each session has its own process, because the configuration says so or because
they asked a question that could not be attributed.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, types
from mcp.server.lowlevel import Server

from ideabridge.server.transports import http as transport
from tests import preloaded
from tests.waiting import until

from .serving import BIN, Gate, call, configured, listening, plain, structured, text
from .test_relaying import ASKS
from .test_workspaces import processes

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of nobody's, which has the state of servers."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    return folder


def command(configuration: Path) -> list[str]:
    return preloaded.python(
        BIN / "ideabridge", "serve", "--http", "127.0.0.1:0", "--config", str(configuration)
    )


@asynccontextmanager
async def session(url: str, **callbacks: Any) -> AsyncGenerator[Client]:
    async with Client(url, mode="legacy", read_timeout_seconds=30, **callbacks) as client:
        yield client


async def counted(client: Client, gate: Gate) -> int:
    """How many calls of `gated` the process has had that answers this one."""
    gate.open()
    return int(text(await client.call_tool("gated", {"gate": str(gate.path)})))


async def test_each_session_has_its_own_process_until_it_ends(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gated: dict[str, Any] = {
        "name": "gated",
        "inputSchema": {"type": "object", "properties": {"gate": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }
    entry = {**plain(tmp_path, "state", gated), "sharing": "session", "start": "lazy"}
    configuration = configured(
        tmp_path, mcpServers={"state": entry}, expose=["modules"], approval="allow_all"
    )
    file = tmp_path / "state.json"
    plan = {"calls": [{"_tool": "gated", "gate": str(gate.path), "_outputPath": "count"}]}
    with listening(command(configuration)) as url:
        async with session(url) as one:
            async with session(url) as two:
                assert [await counted(one, gate) for _ in range(2)] == [1, 2]
                assert await counted(two, gate) == 1
                # A run uses the process of the session that started it.
                gate.open()
                ran = await call(two, "run_plan", **plan)
                assert ran["state"] == {"count": "2"}
                assert await counted(one, gate) == 3
                both = processes(file)

            # The second session has ended, together with its process.
            await until(lambda: len(processes(file)) < len(both), 20)
            assert await counted(one, gate) == 4
            left = processes(file)
            assert len(left) == len(both) - 1
        await until(lambda: len(processes(file)) < len(left), 20)
    gate.close()


async def test_a_client_without_sessions_gets_no_process_of_others(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gated: dict[str, Any] = {
        "name": "gated",
        "inputSchema": {"type": "object", "properties": {"gate": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }
    entry = plain(tmp_path, "state", gated)
    servers = {"state": {**entry, "sharing": "session"}, "common": plain(tmp_path, "c", "common")}
    configuration = configured(
        tmp_path, mcpServers=servers, expose=["modules"], approval="allow_all"
    )
    plan = {"calls": [{"_tool": "gated", "gate": str(gate.path), "_outputPath": "count"}]}
    with listening(command(configuration)) as url:
        async with (
            session(url) as with_session,
            Client(url, mode="auto", read_timeout_seconds=30) as without,
        ):
            assert await counted(with_session, gate) == 1
            before = processes(tmp_path / "state.json")

            gate.open()
            refused = await without.call_tool("gated", {"gate": str(gate.path)})
            assert refused.is_error
            failed = await call(without, "run_plan", **plan)
            [error] = failed["errors"]
            for words in (text(refused), json.dumps(error)):
                assert "belong to no session" in words
                assert "over stdio" in words
                assert "shared" in words
            assert processes(tmp_path / "state.json") == before
            # Its other servers work, and nothing has reached the process of the session.
            assert not (await without.call_tool("common", {})).is_error
            assert await counted(with_session, gate) == 2
    gate.close()


async def test_a_client_that_has_vanished_counts_as_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "SESSION_SECONDS", 0.0)
    monkeypatch.setattr(transport, "SWEEP_SECONDS", 0.0)
    ended: list[str] = []
    app = transport.application(Server("any"), host="127.0.0.1", ended=ended.append)
    listening_socket = transport.bind_socket("127.0.0.1", 0, token=None)
    server = transport.http_server(app)
    params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params["clientInfo"] = {"name": "a", "version": "1"}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"accept": "application/json, text/event-stream"}
    url = transport.url_of(listening_socket)
    sessions: list[str] = []
    async with anyio.create_task_group() as group, httpx2.AsyncClient() as http:
        group.start_soon(partial(server.serve, sockets=[listening_socket]))
        for _ in range(3):
            answer = await http.post(url, json=hello, headers=headers)
            sessions.append(answer.headers["mcp-session-id"])
        server.end()
    assert sessions[0] in ended
    assert sessions[-1] not in ended


async def test_a_question_of_two_sessions_reaches_the_right_one_at_the_second_try(
    tmp_path: Path, home: Path
) -> None:
    asked: dict[str, list[str]] = {"ann": [], "bob": []}
    answers: dict[str, types.CallToolResult] = {}

    def person(who: str) -> Any:
        async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            asked[who].append(params.message)
            return types.ElicitResult(action="accept", content={"name": who, "seats": 1})

        return answer

    module = preloaded.module(ASKS, "--legacy")
    configuration = configured(
        tmp_path, mcpServers={"asks": module}, expose=["modules"], approval="allow_all"
    )

    async def meet(client: Client, who: str, tool: str, file: Path) -> None:
        answers[who] = await client.call_tool(tool, {"who": who, "file": str(file)})

    async def both(one: Client, two: Client, tool: str) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(meet, one, "ann", tool, tmp_path / tool)
            group.start_soon(meet, two, "bob", tool, tmp_path / tool)

    with listening(command(configuration)) as url:
        async with (
            session(url, elicitation_callback=person("ann")) as one,
            session(url, elicitation_callback=person("bob")) as two,
        ):
            await both(one, two, "together")
            for who, result in answers.items():
                # The call only reads, so it was sent again, in a process of the session.
                assert not result.is_error
                assert f'"name": "{who}"' in text(result)
                assert [f"Seats for {who}?" in message for message in asked[who]] == [True]
            assert len(processes(ASKS)) >= 2

    # Another process of ideabridge remembers this, and says so.
    environment = {**os.environ}
    listed = await anyio.run_process(
        [
            *preloaded.python(BIN / "ideabridge", "servers", "list", "--json"),
            "--config",
            str(configuration),
        ],
        env=environment,
        check=False,
    )
    [status] = json.loads(listed.stdout)["modules"]
    assert status["sharing"] == "session"
    assert status["sessions"] == 0
    assert any("did not say which session the question" in note for note in status["notes"])
    for messages in asked.values():
        messages.clear()
    with listening(command(configuration)) as url:
        async with (
            session(url, elicitation_callback=person("ann")) as one,
            session(url, elicitation_callback=person("bob")) as two,
        ):
            await both(one, two, "order_together")
            for who, result in answers.items():
                assert not result.is_error
                assert len(asked[who]) == 1


async def test_a_call_that_may_have_changed_something_ends_with_what_is_known(
    tmp_path: Path,
) -> None:
    shown: list[str] = []
    answers: dict[str, types.CallToolResult] = {}

    async def never(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        shown.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Eve", "seats": 1})

    configuration = configured(
        tmp_path,
        mcpServers={"asks": preloaded.module(ASKS, "--legacy")},
        expose=["modules"],
        approval="allow_all",
    )

    async def direct(client: Client) -> None:
        arguments = {"who": "ann", "file": str(tmp_path / "calls")}
        answers["direct"] = await client.call_tool("order_together", arguments)

    async def in_run(client: Client) -> None:
        order = {"_tool": "order_together", "who": "bob", "file": str(tmp_path / "calls")}
        answers["run"] = await client.call_tool("run_plan", {"calls": [order]})

    with listening(command(configuration)) as url:
        async with (
            session(url, elicitation_callback=never) as one,
            session(url, elicitation_callback=never) as two,
            anyio.create_task_group() as group,
        ):
            group.start_soon(direct, one)
            group.start_soon(in_run, two)

    assert shown == []
    assert answers["direct"].is_error
    [error] = structured(answers["run"])["errors"]
    for told in (text(answers["direct"]), json.dumps(error)):
        assert "may belong to a call of another session, so nobody was asked" in told
    assert "each session has its own process" in text(answers["direct"])
    # Each call ran once, and none was sent again.
    assert sorted((tmp_path / "calls").read_text().split()) == ["ann", "bob"]
