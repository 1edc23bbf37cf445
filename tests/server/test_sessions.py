"""Sessions: direct calls of exposed tools and ideas are recorded, and become runs that
can be published.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.function import read_function
from ideabridge.bridge.runs.direct import MOST_CALLS, SESSION_PAUSE
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.stretch import unkept
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.server.main import main
from tests.server.serving import (
    ERAS,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    plain,
    refused,
    structured,
    text,
)

pytestmark = pytest.mark.anyio

SIZED: dict[str, Any] = {
    "name": "sized",
    "inputSchema": {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}},
    },
}


def exposing(folder: Path, **top: Any) -> Path:
    servers = {"Git": plain(folder, "Git", "status", "log", SIZED)}
    return configured(folder, **{"mcpServers": servers, "expose": ["modules", "tools"], **top})


def rows(folder: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "ideas.sqlite")) as database:
        return database.execute(f"SELECT * FROM {table}").fetchall()


def stored(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("ideas.sqlite*"))


async def sessions_of(client: Client) -> list[dict[str, Any]]:
    return (await call(client, "check_run")).get("sessions", [])


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_what_was_called_directly_is_a_session_that_can_be_published(
    tmp_path: Path, era: str
) -> None:
    async with over_stdio(exposing(tmp_path), era) as client:
        await call(client, "add", a=1, b=2)
        await client.call_tool("status", {"x": "†input.city"})
        await refused(client, "fail", message="bad luck")
        await call(client, "count_words", text="three words here")
        # Calls of own tools are not direct calls.
        (session,) = await sessions_of(client)
        assert (session["calls"], session["tools"]) == (4, ["add", "status", "fail", "count_words"])
        assert session["in_progress"]
        assert "ambiguous" not in session
        assert (await call(client, "check_run"))["runs"] == []
        found = await call(client, "search_ideas", words="words")
        assert [one["run"] for one in found["sessions"]] == [session["run"]]
        shown = (await call(client, "check_run", run=session["run"]))["shown"]
        assert [one["tool"] for one in shown] == ["add", "status", "fail", "count_words"]
        assert shown[1]["parameters"] == {"x": "†input.city"}
        assert "bad luck" in shown[2]["error"]["message"]
        assert "calls 0 to 3, not 2 to 9" in await refused(
            client, "publish_idea", idea="session", name="x", calls=[2, 9]
        )
        told = await call(
            client, "publish_idea", idea="session", name="counted", calls=[0, 3], answer="recorded"
        )
        again = await call(
            client, "publish_idea", idea="session", name="again", calls=[0, 3], answer="recorded"
        )
        assert again["idea"] == told["idea"]
        assert (await call(client, "counted")) == {"result": {"words": 3}}
        # The call of the idea belongs to the session, too. What has been published of it is not
        # listed again.
        (session,) = await sessions_of(client)
        assert session["tools"][-1] == "counted"
        assert session["calls"] == 5
        assert (await call(client, "check_run"))["runs"] == []
        await call(
            client, "publish_idea", idea="session", name="twice", calls=[4, 4], answer="recorded"
        )
        calls = [{"_tool": "add", "a": "†input.n", "b": "†input.n"}]
        plan = {"calls": calls, "input": {"n": 4}, "output": "†results.0"}
        run = (await call(client, "run_plan", **plan))["run"]
        await call(client, "publish_idea", idea=run, name="planned", answer="plan")
        assert text(await client.call_tool("planned", {"n": 7})) == "14"
        # A call of an idea that led to a run has the result of that run.
        await call(
            client, "publish_idea", idea="session", name="thrice", calls=[5, 5], answer="recorded"
        )
        assert text(await client.call_tool("thrice", {})) == "14"


async def test_a_session_ends_as_a_run_that_can_be_lifted(tmp_path: Path) -> None:
    configuration = exposing(tmp_path)
    async with in_memory(configuration, "legacy") as client:
        await call(client, "add", a=1, b=2)
        await refused(client, "fail", message="bad luck")
        await client.call_tool("status", {"x": "††literal"})
        await call(client, "add", a=3, b=3)

    assert len(rows(tmp_path, "session_calls")) == 4
    loaded = load_configuration(configuration)
    async with Bridge(loaded) as first, Bridge(loaded) as second:
        assert await first.direct_sessions.end_idle() == 0
        later = time.time() + 2 * SESSION_PAUSE
        async with anyio.create_task_group() as group:
            # These are two servers on one store.
            group.start_soon(first.direct_sessions.end_idle, later)
            group.start_soon(second.direct_sessions.end_idle, later)

        assert rows(tmp_path, "sessions") == rows(tmp_path, "session_calls") == []
        (session,) = first.direct_sessions.latest("local")
        assert not session.in_progress
        assert session.calls == 4
        assert first.direct_sessions.latest("ada") == []
        assert first.runs() == []
        run = read_run(first.store, session.run)
        assert run is not None
        history = run.machine.history
        assert [(one.call.name, one.error is None) for one in history] == [
            ("add", True),
            ("fail", False),
            ("status", True),
            ("add", True),
        ]
        assert history[2].items[0].parameters == {"x": "††literal"}
        assert json.loads(str(history[2].value)) == {
            "tool": "status",
            "arguments": {"x": "††literal"},
        }
        assert run.steps == (0, 1, 2, 3)
        assert run.result == 6
        assert read_function(first.store, session.run, "local").faults == []
        # A part of it can still be published.
        part = await first.direct_sessions.part(session.run, [2, 3], "local")
        cut = read_run(first.store, part)
        assert cut is not None
        assert [one.call.name for one in cut.machine.history] == ["status", "add"]
        assert first.direct_sessions.latest("local") == [session]
        with pytest.raises(UnknownRunError):
            await first.direct_sessions.part(session.run, [2, 3], "ada")

        with pytest.raises(PublicationError, match="calls 0 to 3"):
            await first.direct_sessions.part(session.run, [3, 4], "local")


async def test_a_session_is_published_at_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configuration = exposing(tmp_path)
    words = ["--config", str(configuration), "--answer", "recorded"]

    async def publish(*more: str) -> int:
        return await anyio.to_thread.run_sync(main, ["ideas", "publish", *more, *words])

    async with over_stdio(configuration, "legacy") as one:
        await call(one, "add", a=1, b=2)
        await call(one, "count_words", text="three words here")
        (session,) = await sessions_of(one)
        assert await publish("session", "counted", "--calls", "0-1") == 0
        assert await publish(session["run"], "added", "--calls", "0") == 0
        assert await publish("session", "worse", "--calls", "1-9") == 2
        assert "calls 0 to 1, not 1 to 9" in capsys.readouterr().err
        assert await publish("session", "worse", "--calls", "1,2") == 2
        assert "expected FIRST-LAST" in capsys.readouterr().err
        assert text(await one.call_tool("added", {})) == "3"
        async with over_stdio(configuration, "legacy") as two:
            await call(two, "add", a=1, b=2)
            await sessions_of(two)

        # The other session has already ended, so this means the latest one.
        assert await publish("session", "latest") == 0
        await call(one, "add", a=1, b=2)
        await sessions_of(one)
        assert await publish("session", "worse") == 2
        assert "more than one conversation" in capsys.readouterr().err


async def test_conversations_that_cannot_be_told_apart_are_listed(tmp_path: Path) -> None:
    with http_process(exposing(tmp_path)) as url:
        async with (
            Client(url, mode="legacy", read_timeout_seconds=60) as one,
            Client(url, mode="legacy", read_timeout_seconds=60) as two,
            Client(url, mode="auto", read_timeout_seconds=60) as stateless,
        ):
            await call(one, "add", a=1, b=1)
            await call(two, "add", a=2, b=2)
            # A connection that has a session knows its own calls.
            for client, result in ((one, 2), (two, 4)):
                name = f"own_{result}"
                await call(client, "publish_idea", idea="session", name=name, answer="recorded")
                assert await call(client, name) == {"result": result}
            await call(stateless, "add", a=3, b=3)
            error = await refused(stateless, "publish_idea", idea="session", name="mine")
            assert "more than one conversation" in error
            ambiguous = [one for one in await sessions_of(stateless) if one.get("ambiguous")]
            assert [one["calls"] for one in ambiguous] == [1]
            assert ambiguous[0]["run"] in error
            chosen = {
                "idea": ambiguous[0]["run"],
                "calls": [0, 0],
                "name": "mine",
                "answer": "recorded",
            }
            assert (await call(stateless, "publish_idea", **chosen))["name"] == "mine"


async def test_after_a_kill_the_calls_that_were_written_can_be_published(tmp_path: Path) -> None:
    configuration = exposing(tmp_path)
    async with over_stdio(configuration, "legacy") as client:
        process = (await call(client, "process"))["result"]
        with anyio.fail_after(20):
            while not rows(tmp_path, "session_calls"):
                await call(client, "add", a=1, b=1)

        os.kill(process, signal.SIGKILL)
        with pytest.raises(MCPError):
            await call(client, "add", a=1, b=1)

    count = len(rows(tmp_path, "session_calls"))
    async with over_stdio(configuration, "legacy") as client:
        (session,) = await sessions_of(client)
        assert session["calls"] == count
        told = await call(
            client, "publish_idea", idea="session", name="kept", calls=[0, 0], answer="recorded"
        )
        assert told["name"] == "kept"


@pytest.mark.parametrize("switch", ["sessions", "record"])
async def test_without_sessions_the_lines_remain(tmp_path: Path, switch: str) -> None:
    servers = {"Git": {**plain(tmp_path, "Git", "status"), "record": switch == "sessions"}}
    configuration = configured(
        tmp_path, mcpServers=servers, expose=["modules"], sessions=switch == "record"
    )
    async with in_memory(configuration, "legacy") as client:
        await client.call_tool("status", {"x": "a"})
        assert await sessions_of(client) == []
        assert "nothing was called directly" in await refused(
            client, "publish_idea", idea="session", name="x"
        )

    assert rows(tmp_path, "session_calls") == []
    assert len(rows(tmp_path, "direct_calls")) == 1


async def test_large_results_and_secrets_are_marked_and_not_kept(tmp_path: Path) -> None:
    secret = "correct-horse-7-battery"
    servers = {"Git": {**plain(tmp_path, "Git", "status", SIZED), "env": {"API_TOKEN": secret}}}
    configuration = configured(tmp_path, mcpServers=servers, expose=["modules", "tools"])
    async with in_memory(configuration, "legacy") as client:
        await call(client, "add", a=1, b=1)
        await refused(client, "sized", kind="text", size=3_000_000)
        await client.call_tool("status", {"x": secret})
        error = await refused(client, "publish_idea", idea="session", name="x", calls=[0, 1])
        assert "call 1 cannot be published: its result has 3,000," in error
        assert "secret" in await refused(
            client, "publish_idea", idea="session", name="x", calls=[2, 2]
        )
        await call(
            client, "publish_idea", idea="session", name="x", calls=[0, 0], answer="recorded"
        )

    assert b"xxxx" * 1000 not in stored(tmp_path)
    assert secret.encode() not in stored(tmp_path)
    async with Bridge(load_configuration(configuration)) as bridge:
        await bridge.direct_sessions.end_idle(time.time() + 2 * SESSION_PAUSE)
        (session,) = bridge.direct_sessions.latest("local")
        faults = read_function(bridge.store, session.run, "local").faults
        assert [one.split(":")[0] for one in faults] == [
            "calls.1 is not stored completely",
            "calls.2 is not stored completely",
        ]
        with pytest.raises(PublicationError, match="call 2 cannot be published"):
            await bridge.direct_sessions.part(session.run, [2, 2], "local")


async def test_calls_that_no_plan_can_make_do_not_lose_the_others(tmp_path: Path) -> None:
    configuration = exposing(tmp_path)
    async with in_memory(configuration, "legacy") as client:
        await call(client, "add", a=1, b=1)
        # Servers accept arguments that they do not declare, and so does the one of this test.
        await client.call_tool("status", {"x": "oak", "verbose": True})
        await client.call_tool("status", {"x": "oak", "_each": [1, 2], "_tool": "log"})
        await refused(client, "fail", message="bad luck", _each=[1, 2])
        error = await refused(client, "publish_idea", idea="session", name="x", calls=[0, 1])
        assert "call 1 cannot be published: it ran, but a run cannot repeat it" in error
        assert "verbose" in error
        error = await refused(client, "publish_idea", idea="session", name="x", calls=[2, 2])
        assert (
            "call 2 cannot be published: it has arguments whose names have a different meaning in "
            "a plan"
        ) in error

    async with Bridge(load_configuration(configuration)) as bridge:
        await bridge.direct_sessions.end_idle(time.time() + 2 * SESSION_PAUSE)
        (session,) = bridge.direct_sessions.latest("local")
        run = read_run(bridge.store, session.run)
        assert run is not None
        assert [one.call.name for one in run.machine.history] == ["add", "status", "status", "fail"]
        assert run.result == 2
        marks = unkept(bridge.store.runs.find(session.run, caller="local"))
        assert list(marks) == [1, 2, 3]
        part = await bridge.direct_sessions.part(session.run, [0, 0], "local")
        assert bridge.store.runs.get(part) is not None


async def test_a_call_that_asked_has_the_result_of_its_run(tmp_path: Path) -> None:
    rules = {"rules": [{"tool": "write_note", "then": "ask"}]}
    configuration = exposing(tmp_path, approval=rules)
    async with in_memory(configuration, "legacy") as client:
        result = await client.call_tool(
            "write_note", {"path": str(tmp_path / "note"), "text": "four"}
        )
        told = structured(result)
        error = await refused(client, "publish_idea", idea="session", name="early", answer="plan")
        assert f"run {told['run']} is needs_approval" in error
        decisions = [{"approval": told["approvals"][0]["approval"], "decision": "approve"}]
        await call(client, "decide_approval", run=told["run"], decisions=decisions)
        await call(
            client, "publish_idea", idea="session", name="noted", answer="recorded", calls=[0, 0]
        )
        assert text(await client.call_tool("noted", {})) == "4"


@pytest.mark.long
async def test_a_session_has_a_bounded_number_of_calls(tmp_path: Path) -> None:
    configuration = exposing(tmp_path)
    async with in_memory(configuration, "legacy") as client:
        for _ in range(MOST_CALLS + 1):
            await client.call_tool("add", {"a": 1, "b": 1})
        assert [one["calls"] for one in await sessions_of(client)] == [1, MOST_CALLS]

    async with Bridge(load_configuration(configuration)) as bridge:
        assert await bridge.direct_sessions.end_idle(time.time() + 2 * SESSION_PAUSE) == 2
        longest = bridge.direct_sessions.latest("local")[1]
        run = read_run(bridge.store, longest.run)
        assert run is not None
        assert len(run.machine.history) == MOST_CALLS
