"""Calls that hosts give up while a slow model answers: the run is not lost."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from tests import preloaded
from tests.server.serving import ERAS, call, configured, http_process, over_stdio

from .fake import FakeEndpoint, endpoint, say

pytestmark = pytest.mark.anyio

DONE = json.dumps(
    {"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "n"}], "output": "†state.n"}
)
SOLVE: dict[str, Any] = {"task": "Add.", "output_schema": {"type": "integer"}, "tools": ["add"]}


class Slow:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.begun, self.go = anyio.Event(), anyio.Event()

    async def wait(self) -> None:
        self.begun.set()
        await self.go.wait()

    def configuration(self, folder: Path, fake: FakeEndpoint) -> Path:
        return configured(folder, model={"name": "openai:tiny-1", "base_url": fake.base_url})


@asynccontextmanager
async def over_http(url: str, mode: str) -> AsyncGenerator[Client]:
    async with Client(url, mode=mode, read_timeout_seconds=60) as client:
        yield client


@asynccontextmanager
async def served(transport: str, configuration: Path, mode: str) -> AsyncGenerator[Client]:
    if transport == "stdio":
        async with over_stdio(configuration, mode) as client:
            yield client
        return
    with http_process(configuration) as url:
        async with over_http(url, mode) as client:
            yield client


async def left_at_work(client: Client, slow: Slow) -> None:
    """The host ends its call; the run goes on, and its output is there for who asks."""
    # The server would wait for 45 s, but the host does not.
    with pytest.raises(MCPError, match="timed out"):
        await client.call_tool("solve", SOLVE, read_timeout_seconds=3)

    with anyio.fail_after(20):
        await slow.begun.wait()

    latest = (await call(client, "check_run"))["runs"][0]
    assert latest["status"] == "running"
    slow.go.set()
    done = await call(client, "check_run", run=latest["run"])
    assert (done["status"], done["output"]) == ("done", 3)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_a_host_ends_after_its_time_leaves_the_run_at_work(
    tmp_path: Path, mode: str
) -> None:
    slow = Slow()
    async with (
        endpoint(say(slow.wait, DONE)) as fake,
        over_stdio(slow.configuration(tmp_path, fake), mode) as client,
    ):
        await left_at_work(client, slow)
        assert len((await call(client, "check_run"))["runs"]) == 1
    assert len(fake.bodies) == 1


async def test_over_http_too_a_call_that_a_host_ends_leaves_the_run_at_work(tmp_path: Path) -> None:
    slow = [Slow() for _ in ERAS]
    async with endpoint(*(say(one.wait, DONE) for one in slow)) as fake:
        with http_process(slow[0].configuration(tmp_path, fake)) as url:
            for number, (mode, one) in enumerate(zip(ERAS, slow, strict=True), 1):
                async with over_http(url, mode) as client:
                    await left_at_work(client, one)
                    assert len((await call(client, "check_run"))["runs"]) == number
                assert len(fake.bodies) == number


HOST = """
import sys
import anyio
from mcp import Client

async def main():
    async with Client(sys.argv[1], mode=sys.argv[2]) as client:
        await client.call_tool("solve", {"task": "Add.", "output_schema": {"type": "integer"}, "tools": ["add"]})

anyio.run(main)
"""


async def test_a_host_that_is_gone_finds_its_run_when_it_comes_back(tmp_path: Path) -> None:
    slow = [Slow() for _ in ERAS]
    script = tmp_path / "host.py"
    script.write_text(HOST, encoding="utf-8")
    async with endpoint(*(say(one.wait, DONE) for one in slow)) as fake:
        with http_process(slow[0].configuration(tmp_path, fake)) as url:
            for number, (mode, one) in enumerate(zip(ERAS, slow, strict=True), 1):
                async with await anyio.open_process(preloaded.python(script, url, mode)) as host:
                    with anyio.fail_after(20):
                        await one.begun.wait()
                    host.kill()
                    await host.wait()

                async with over_http(url, mode) as client:
                    runs = (await call(client, "check_run"))["runs"]
                    assert len(runs) == number
                    one.go.set()
                    done = await call(client, "check_run", run=runs[0]["run"])
                    assert (done["status"], done["output"]) == ("done", 3)

                assert len(fake.bodies) == number


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_person_who_stops_a_call_stops_its_run(tmp_path: Path, transport: str) -> None:
    # Over HTTP in 2026-07-28, a call is stopped by closing its stream, which does not say who
    # closed it.
    slow = Slow()
    async with (
        endpoint(say(slow.wait, DONE)) as fake,
        served(transport, slow.configuration(tmp_path, fake), "legacy") as client,
    ):
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "solve", SOLVE)
            with anyio.fail_after(20):
                await slow.begun.wait()
            group.cancel_scope.cancel()
        [latest] = (await call(client, "check_run"))["runs"]
        ended = await call(client, "check_run", run=latest["run"], wait_s=10)
        assert ended["status"] == "cancelled"
        assert ended["reason"] == "the client cancelled the request that started it"
