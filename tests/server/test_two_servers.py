"""Two `ideabridge serve` on one store: what one publishes is a tool of the other, whichever way
clients reach them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.postgres import place

from .serving import (
    ERAS,
    Heard,
    all_tools,
    call,
    configured,
    listening,
    over_stdio,
    refused,
    served,
)

pytestmark = pytest.mark.anyio

__all__ = ["place"]

PLAN: dict[str, Any] = {
    "calls": [
        {"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"},
        {"_tool": "add", "a": "†state.sum", "b": "†input.b", "_outputPath": "total"},
    ],
    "input": {"a": 1, "b": 2},
    "output": {"total": "†state.total"},
}


@asynccontextmanager
async def told(client: Client, mode: str, heard: Heard) -> AsyncGenerator[str]:
    """While it is open, `heard` notes what a client hears; gives what a change of
    tools is called.
    """
    if mode == "legacy":
        yield "notifications/tools/list_changed"
        return

    ready = anyio.Event()

    async def listen() -> None:
        async with client.listen(tools_list_changed=True) as events:
            ready.set()
            async for event in events:
                heard.note(type(event).__name__)

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await ready.wait()
        yield "ToolsListChanged"
        group.cancel_scope.cancel()


async def published(one: Client) -> None:
    run = (await call(one, "run_plan", **PLAN))["run"]
    await call(one, "publish_idea", idea=run, name="add_twice", description="Adds b to a, twice.")


async def listed_and_answered(other: Client) -> None:
    """The tool is all that it was published as, in a process that knows of it by the store
    alone.
    """
    tool = (await all_tools(other))["add_twice"]
    assert str(tool.description).startswith("Adds b to a, twice.")
    assert tool.input_schema["required"] == ["a", "b"]
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    assert await call(other, "add_twice", a=20, b=11) == {"total": 42}
    assert 'a: found "x", expected a number' in await refused(other, "add_twice", a="x", b=1)


async def test_what_a_server_on_stdio_publishes_one_over_http_tells_clients_of_both_eras(
    tmp_path: Path, place: str
) -> None:
    configuration = configured(tmp_path, store=place)
    heard = {era: Heard() for era in ERAS}
    with listening(served(configuration, "--http", "127.0.0.1:0")) as url:
        async with (
            over_stdio(configuration, "auto", served) as one,
            Client(url, mode="legacy", message_handler=heard["legacy"]) as old,
            Client(url, mode="auto") as new,
            told(old, "legacy", heard["legacy"]) as old_change,
            told(new, "auto", heard["auto"]) as new_change,
        ):
            assert "add_twice" not in await all_tools(old)
            await published(one)
            await heard["legacy"].until(old_change)
            await heard["auto"].until(new_change)
            await listed_and_answered(old)
            await listed_and_answered(new)
            # A new version replaces the one before it, in the other process as well.
            await call(
                one, "run_plan", **{**PLAN, "output": {"total": "†state.sum"}}, save_as="add_twice"
            )
            await heard["legacy"].until(old_change, 2)
            await heard["auto"].until(new_change, 2)
            for client in (old, new):
                assert await call(client, "add_twice", a=20, b=11) == {"total": 31}


@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_server_over_http_publishes_one_on_stdio_announces_and_answers(
    tmp_path: Path, place: str, mode: str
) -> None:
    configuration = configured(tmp_path, store=place)
    heard = Heard()
    with listening(served(configuration, "--http", "127.0.0.1:0")) as url:
        async with (
            Client(url, mode=mode, read_timeout_seconds=60) as one,
            over_stdio(configuration, mode, served, message_handler=heard) as other,
            told(other, mode, heard) as changed,
        ):
            assert "add_twice" not in await all_tools(other)
            await published(one)
            await heard.until(changed)
            await listed_and_answered(other)
