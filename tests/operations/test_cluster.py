"""Two servers and a worker on one store in PostgreSQL, behind a balancer: to clients they
are one server.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from examples.cluster.balancer import Balancer, balancing
from mcp import Client, types

from ideabridge.bridge.store.store import Store
from tests import postgres, preloaded
from tests.operations.test_workers import working
from tests.server.serving import (
    ERAS,
    TOOLS,
    Gate,
    Heard,
    all_tools,
    call,
    configured,
    listening,
    served,
    structured,
    text,
)
from tests.server.test_two_servers import PLAN, told

pytestmark = pytest.mark.anyio

ASKS = Path(__file__).parents[1] / "modules" / "servers" / "asks.py"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[str]]:
    """The addresses of two servers; a worker runs their runs."""
    address = postgres.server().address()
    modules = {"old": preloaded.module(ASKS, "--legacy"), "new": preloaded.module(ASKS)}
    path = configured(
        tmp_path_factory.mktemp("cluster"),
        store=address,
        tools=[str(TOOLS)],
        mcpServers=modules,
        expose=["modules"],
    )
    with ExitStack() as stack:
        stack.enter_context(working(path))
        yield [
            stack.enter_context(
                listening(served(path, "--http", "127.0.0.1:0", "--workers"))
            ).removesuffix("/mcp")
            for _ in range(2)
        ]


@asynccontextmanager
async def behind(
    servers: list[str], mode: str, **keys: Any
) -> AsyncGenerator[tuple[Client, Balancer]]:
    """A client whose requests go to the next server each time; in 2025-11-25 to the server
    of its session.
    """
    async with (
        balancing(servers) as (balancer, url),
        Client(url, mode=mode, read_timeout_seconds=30, **keys) as client,
    ):
        # A client that knows the tools sends nothing else between two calls, so they go to
        # different servers.
        await all_tools(client)
        yield client, balancer


def servers_of(balancer: Balancer, tool: str) -> list[str]:
    """The servers that got the calls of a tool, in their order; of clients of 2026-07-28 only."""
    return [one.server for one in balancer.passed if one.what == f"tools/call {tool}"]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def note(folder: Path, name: str = "note") -> dict[str, Any]:
    return {
        "_tool": "write_note",
        "path": str(folder / name),
        "text": "hello",
        "_outputPath": "length",
    }


async def test_turns_are_taken_at_the_server_whose_turn_it_is(servers: list[str], era: str) -> None:
    async with behind(servers, era) as (client, balancer):
        run = (await call(client, "solve", task="add", output_schema={"type": "integer"}))["run"]
        for turn in range(4):
            solution: dict[str, Any] = {
                "calls": [{"_tool": "add", "a": turn, "b": 1}],
                "output": None,
            }
            answer = await call(client, "solve", run=run, turn=turn, solution=solution)
            assert (answer["status"], answer["turn"]) == ("needs_solution", turn + 1)
        answer = await call(
            client, "solve", run=run, turn=4, solution={"calls": [], "output": "†results.2"}
        )
        assert (answer["status"], answer["output"]) == ("done", 3)
        if era == "auto":
            places = [servers.index(one) for one in servers_of(balancer, "solve")]
            assert places in ([0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0])


async def test_approvals_are_decided_at_another_server(
    servers: list[str], era: str, tmp_path: Path
) -> None:
    async with behind(servers, era) as (client, balancer):
        waiting = await call(
            client, "run_plan", calls=[note(tmp_path)], output="†state.length", wait_s=20
        )
        assert waiting["status"] == "needs_approval"
        one = {"approval": waiting["approvals"][0]["approval"], "decision": "approve"}
        answer = await call(
            client, "decide_approval", run=waiting["run"], decisions=[one], wait_s=20
        )
        assert (answer["status"], answer["output"]) == ("done", 5)
        if era == "auto":
            assert servers_of(balancer, "run_plan") != servers_of(balancer, "decide_approval")


async def test_the_sealed_state_of_one_server_is_read_by_the_other(
    servers: list[str], era: str, tmp_path: Path
) -> None:
    forms: list[str] = []

    async def person(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with behind(servers, era, elicitation_callback=person) as (client, balancer):
        answer = await call(
            client, "run_plan", calls=[note(tmp_path)], output="†state.length", wait_s=20
        )
        assert (answer["status"], answer["output"]) == ("done", 5)
        assert len(forms) == 1
        if era == "auto":
            # The request was sent again with the answer, and reached the other server.
            assert sorted(servers_of(balancer, "run_plan")) == sorted(servers)


async def test_a_request_to_the_clients_model_is_answered_at_the_other_server(
    servers: list[str], era: str
) -> None:
    script: list[dict[str, Any]] = [
        {"calls": [{"_tool": "add", "a": 40, "b": 1, "_outputPath": "sum"}], "output": None},
        {
            "calls": [{"_tool": "add", "a": "†state.sum", "b": 1, "_outputPath": "sum"}],
            "output": None,
        },
        {"calls": [], "output": "†state.sum"},
    ]
    solutions = iter(script)

    async def model(
        _context: Any, _params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        content = types.TextContent(text=json.dumps(next(solutions), ensure_ascii=False))
        return types.CreateMessageResult(
            role="assistant", content=content, model="scripted", stop_reason="endTurn"
        )

    async with behind(servers, era, sampling_callback=model) as (client, balancer):
        answer = await call(
            client, "solve", task="add", output_schema={"type": "integer"}, wait_s=20
        )
        assert (answer["status"], answer["output"], answer["mind"]["name"]) == (
            "done",
            42,
            "sampling",
        )
        if era == "auto":
            assert set(servers_of(balancer, "solve")) == set(servers)


async def test_both_servers_tell_the_progress_of_a_run_at_a_worker(
    servers: list[str], era: str, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    calls = [
        {"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"},
        {"_tool": "count_words", "text": "†state.x", "_outputPath": "y"},
    ]
    notes: list[list[str]] = [[], []]
    begun = [anyio.Event(), anyio.Event()]
    try:
        async with behind(servers, era) as (client, _):
            run = (await call(client, "run_plan", calls=calls, output="†state.y", wait_s=0))["run"]

            async def check(place: int) -> None:
                async def noted(progress: float, total: float | None, message: str | None) -> None:
                    notes[place].append(str(message))
                    begun[place].set()

                arguments = {"run": run, "wait_s": 20}
                async with Client(
                    f"{servers[place]}/mcp", mode=era, read_timeout_seconds=30
                ) as own:
                    result = await own.call_tool("check_run", arguments, progress_callback=noted)

                assert structured(result)["output"] == {"words": 1}

            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    for place in range(2):
                        group.start_soon(check, place)
                    for one in begun:
                        await one.wait()
                    gate.open()
    finally:
        gate.close()

    for told_by_one in notes:
        assert any("count_words done (2 of 2)" in one for one in told_by_one)


async def test_what_is_published_through_one_server_is_announced_by_both(
    servers: list[str],
) -> None:
    heard = [(mode, place, Heard()) for mode in ERAS for place in range(2)]
    async with balancing(servers) as (balancer, url), anyio.create_task_group() as group:
        names: list[str] = []
        ready = anyio.Event()

        async def listen(mode: str, place: int, one: Heard) -> None:
            # There are clients of both servers, whichever way the balancer sends them.
            keys: dict[str, Any] = {"message_handler": one} if mode == "legacy" else {}
            async with (
                Client(
                    f"{servers[place]}/mcp", mode=mode, read_timeout_seconds=30, **keys
                ) as client,
                told(client, mode, one) as changed,
            ):
                names.append(changed)
                if len(names) == len(heard):
                    ready.set()
                await one.until(changed)
                assert "add_together" in await all_tools(client)
                assert await call(client, "add_together", a=20, b=11) == {"total": 42}

        for one in heard:
            group.start_soon(listen, *one)
        await ready.wait()
        async with Client(url, read_timeout_seconds=30) as client:
            run = (await call(client, "run_plan", **PLAN))["run"]
            await call(client, "publish_idea", idea=run, name="add_together", description="Adds.")
        assert len(servers_of(balancer, "publish_idea")) == 1


@pytest.mark.parametrize("module", ["old", "new"])
async def test_a_question_of_a_module_within_a_run_is_answered_through_any_server(
    servers: list[str], era: str, module: str
) -> None:
    async def person(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert "Seats for ann?" in params.message
        return types.ElicitResult(action="accept", content={"name": "Ann", "seats": 2})

    async with behind(servers, era, elicitation_callback=person) as (client, balancer):
        book = {"_tool": "book", "_module": module, "who": "ann", "_outputPath": "booked"}
        answer = await call(client, "run_plan", calls=[book], output="†state.booked", wait_s=20)
        assert answer["status"] == "done", answer
        assert "Ann" in str(answer["output"])
        if era == "auto":
            assert set(servers_of(balancer, "run_plan")) == set(servers)


@pytest.mark.parametrize("tool", ["book", "twice"])
@pytest.mark.parametrize("module", ["old", "new"])
async def test_a_question_of_a_module_within_a_direct_call_is_answered_through_any_server(
    servers: list[str], era: str, module: str, tool: str
) -> None:
    async def person(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ann", "seats": 2})

    async with behind(servers, era, elicitation_callback=person) as (client, balancer):
        result = await client.call_tool(f"{module}_{tool}", {"who": "ann"})
        assert not result.is_error, text(result)
        assert "Ann" in text(result)
        if era == "auto":
            assert set(servers_of(balancer, f"{module}_{tool}")) == set(servers)


def test_servers_and_workers_start_while_another_process_changes_the_store(tmp_path: Path) -> None:
    module = preloaded.module(ASKS)
    address = postgres.server().address()
    path = configured(
        tmp_path, store=address, tools=[str(TOOLS)], mcpServers={"asks": module}, expose=["modules"]
    )
    with ExitStack() as stack:
        # After this, everything that the servers share exists.
        stack.enter_context(listening(served(path, "--http", "127.0.0.1:0", "--workers")))
        store = stack.enter_context(Store.open(address))
        stack.enter_context(store.transaction())
        stack.enter_context(listening(served(path, "--http", "127.0.0.1:0", "--workers")))
        stack.enter_context(working(path))


async def test_a_question_whose_server_has_ended_is_answered_with_what_is_known(
    tmp_path: Path,
) -> None:
    module = preloaded.module(ASKS, "--legacy")
    path = configured(
        tmp_path,
        store=postgres.server().address(),
        tools=[str(TOOLS)],
        mcpServers={"old": module},
        expose=["modules"],
    )
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(listening(served(path, "--http", "127.0.0.1:0"))) for _ in range(2)
        )

        async def declared(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            raise AssertionError(params)

        async with Client(one, read_timeout_seconds=30, elicitation_callback=declared) as client:
            process = (
                await call(client, "run_plan", calls=[{"_tool": "process"}], output="†results.0")
            )["output"]
            asking = await client.session.call_tool(
                "book", {"who": "ann"}, allow_input_required=True
            )
            assert isinstance(asking, types.InputRequiredResult)

        os.kill(int(process), signal.SIGKILL)
        given: types.InputResponses = {
            name: types.ElicitResult(action="cancel") for name in asking.input_requests or {}
        }
        async with Client(other, read_timeout_seconds=30, elicitation_callback=declared) as client:
            late = await client.session.call_tool(
                "book",
                {"who": "ann"},
                input_responses=given,
                request_state=asking.request_state,
                allow_input_required=True,
            )
            assert isinstance(late, types.CallToolResult)
            assert late.is_error
            assert "the call that asked this question has ended" in text(late)
