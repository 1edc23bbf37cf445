"""What clients see of servers that have not started yet: lists, searches, progress of the first
call, and what is announced when a server is different.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, types

from tests.modules.starting import Starting, tool

from .serving import (
    ERAS,
    Gate,
    Heard,
    all_tools,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    refused,
    text,
)

pytestmark = pytest.mark.anyio

CLIENTS = pytest.mark.parametrize("mode", ERAS)

TALLY: dict[str, Any] = {"_tool": "tally", "_outputPath": "n"}
USES: dict[str, tuple[str, dict[str, Any]]] = {
    "direct": ("tally", {}),
    "plan": ("run_plan", {"calls": [TALLY]}),
    "program": ("run_plan", {"program": "import m\nawait m.tally()"}),
    "program in a plan": (
        "run_plan",
        {"calls": [{"_tool": "run_program", "program": "import m\nawait m.tally()"}]},
    ),
    "dry run": ("run_plan", {"calls": [TALLY], "dry_run": True}),
    "solve": ("solve", {"turn": 0, "solution": {"calls": [TALLY], "output": "†state.n"}}),
}
"""What calls the tool `tally`, and with which arguments."""


def fresh(folder: Path, *, idle: float | None = None, **members: Any) -> tuple[Starting, Path]:
    """A server, and the configuration of a gateway before it."""
    keys: dict[str, Any] = {} if idle is None else {"idle": idle}
    server = Starting(folder, **keys)
    server.change(
        prompts=[{"name": "greet"}], resources=[{"uri": "m://one", "name": "one"}], **members
    )
    configuration = configured(
        folder, mcpServers={"m": server.entry}, expose=["modules"], approval="allow_all"
    )
    return server, configuration


async def first_session(configuration: Path) -> None:
    """Let the store have every list of the server."""
    async with in_memory(configuration, "legacy") as client:
        assert "tally" in await all_tools(client)
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet"]
        assert "m://one" in [str(entry.uri) for entry in (await client.list_resources()).resources]
        await client.list_resource_templates()


@CLIENTS
async def test_lists_and_searches_start_nothing(tmp_path: Path, mode: str) -> None:
    server, configuration = fresh(tmp_path)
    await first_session(configuration)
    async with in_memory(configuration, mode) as client:
        assert "tally" in await all_tools(client)
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet"]
        assert "m://one" in [str(entry.uri) for entry in (await client.list_resources()).resources]
        found = await call(client, "search_tools", words="tally")
        assert found["tools"][0]["name"] == "tally"
        assert [entry["module"] for entry in found["idle"]] == ["m"]
        assert found["idle"][0]["listed_at"].startswith("20")
        assert "unavailable" not in found
        assert "Start me." in (client.instructions or "")
        assert server.starts == 1

        assert text(await client.call_tool("tally", {})) == "1"
        assert server.starts == 2
        assert "idle" not in await call(client, "search_tools", words="tally")


@CLIENTS
@pytest.mark.parametrize("use", ["prompt", "resource", "subscription"])
async def test_reading_and_subscribing_start_it(tmp_path: Path, mode: str, use: str) -> None:
    server, configuration = fresh(tmp_path)
    await first_session(configuration)
    async with in_memory(configuration, mode) as client:
        match use:
            case "prompt":
                got = await client.get_prompt("greet", {})
                assert isinstance(got.messages[0].content, types.TextContent)
            case "resource":
                await client.read_resource("m://one")
            case _ if mode == "legacy":
                await client.session.send_request(
                    types.SubscribeRequest(params=types.SubscribeRequestParams(uri="m://one")),
                    types.EmptyResult,
                )
            case _:
                async with client.listen(resource_subscriptions=["m://one"]):
                    pass
        assert server.starts == 2


@pytest.mark.parametrize(
    ("mode", "way"), [("legacy", "direct"), ("legacy", "solve"), *(("auto", way) for way in USES)]
)
async def test_the_first_call_reports_that_the_server_starts(
    tmp_path: Path, gate: Gate, mode: str, way: str
) -> None:
    server, configuration = fresh(tmp_path)
    await first_session(configuration)
    server.change(hold=str(gate.path))
    heard: list[tuple[float, str]] = []
    starts = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message or ""))
        assert total is None or progress <= total
        if "starting m (" in heard[-1][1]:
            starts.set()

    name, arguments = USES[way]
    answers: list[types.CallToolResult] = []
    async with (
        over_stdio(configuration, mode) as client,
        anyio.create_task_group() as group,
    ):
        if way == "solve":
            asked = await call(client, "solve", task="Count.", tools=["tally"])
            arguments = {**arguments, "run": asked["run"]}
            assert server.starts == 1

        async def use() -> None:
            answers.append(await client.call_tool(name, arguments, progress_callback=note))

        group.start_soon(use)
        with anyio.fail_after(20):
            await starts.wait()
        gate.open()

    assert not answers[0].is_error
    numbers = [number for number, _ in heard]
    assert numbers == sorted({*numbers})
    assert server.starts == 2


async def test_a_task_reports_that_a_server_starts_whose_tools_are_unknown(
    tmp_path: Path, gate: Gate
) -> None:
    _, configuration = fresh(tmp_path, hold=str(gate.path))
    starts = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert total is None or progress <= total
        if (message or "").startswith("starting m ("):
            starts.set()

    async with over_stdio(configuration, "auto") as client, anyio.create_task_group() as group:

        async def solve() -> None:
            asked = await client.call_tool(
                "solve", {"task": "Count.", "tools": ["tally"]}, progress_callback=note
            )
            assert "tally" in str(asked.structured_content)

        group.start_soon(solve)
        with anyio.fail_after(20):
            await starts.wait()
        gate.open()


@CLIENTS
async def test_other_tools_are_announced_and_their_calls_are_checked(
    tmp_path: Path, mode: str
) -> None:
    server, configuration = fresh(tmp_path)
    await first_session(configuration)
    server.change(tools=[tool("tally", "of"), tool("later")])
    heard = Heard()
    async with in_memory(configuration, mode, message_handler=heard) as client:
        assert "later" not in await all_tools(client)
        if mode == "legacy":
            refusal = await refused(client, "tally")
            await heard.until("notifications/tools/list_changed")
        else:
            async with client.listen(tools_list_changed=True) as events:
                refusal = await refused(client, "tally")
                with anyio.fail_after(10):
                    await anext(aiter(events))
        assert "of" in refusal
        assert "later" in await all_tools(client)


async def test_a_start_that_fails_names_the_log(tmp_path: Path) -> None:
    server, configuration = fresh(tmp_path)
    await first_session(configuration)
    server.change(fails="no licence was found")
    async with in_memory(configuration, "legacy") as client:
        for _ in range(2):
            refusal = await refused(client, "tally")
            assert refusal.count("no licence was found") == 1
            assert "server 'm'" in refusal


@CLIENTS
async def test_a_subscription_of_a_client_keeps_it(tmp_path: Path, mode: str) -> None:
    server, configuration = fresh(tmp_path, idle=0.05)
    clock = Starting(tmp_path, "clock", idle=0.05)
    clock.change(tools=[tool("tick")])
    configured(
        tmp_path,
        mcpServers={"m": server.entry, "clock": clock.entry},
        expose=["modules"],
        approval="allow_all",
    )

    async def idle_seconds_pass(client: Client) -> None:
        """Wait until `clock`, which nobody else uses, was stopped and started again."""
        starts = clock.starts
        with anyio.fail_after(20):
            while clock.starts < starts + 3:
                assert not (await client.call_tool("tick", {})).is_error
                await anyio.sleep(0.1)

    async with in_memory(configuration, mode) as client:
        if mode == "legacy":
            params = types.SubscribeRequestParams(uri="m://one")
            await client.session.send_request(
                types.SubscribeRequest(params=params), types.EmptyResult
            )
            starts = server.starts
            await idle_seconds_pass(client)
            assert server.starts == starts
            assert text(await client.call_tool("tally", {})) == "1"
            assert server.starts == starts
            await client.session.send_request(
                types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri="m://one")),
                types.EmptyResult,
            )
        else:
            async with client.listen(resource_subscriptions=["m://one"]):
                starts = server.starts
                await idle_seconds_pass(client)
                assert text(await client.call_tool("tally", {})) == "1"
                assert server.starts == starts

        await idle_seconds_pass(client)
        assert text(await client.call_tool("tally", {})) == "1"
        assert server.starts == starts + 1


async def test_sessions_over_http_share_the_start(tmp_path: Path) -> None:
    server, configuration = fresh(tmp_path)
    await first_session(configuration)
    answers: list[str] = []
    with http_process(configuration) as url:

        async def session() -> None:
            async with Client(url, mode="auto", read_timeout_seconds=20) as client:
                answers.append(text(await client.call_tool("tally", {})))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(session)

    assert sorted(answers) == ["1", "2", "3"]
    assert server.starts == 2
