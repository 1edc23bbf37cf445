"""Modules over HTTP, both eras, on loopback with a required header."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.modules.errors import ModuleDownError, ModuleTimeoutError
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON
from tests import preloaded

from .conftest import SERVERS, Changes, configure, modules_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(*options: str) -> AsyncGenerator[tuple[str, Any]]:
    command = preloaded.python(SERVERS / "sdk.py", "--http", *options)
    async with await anyio.open_process(command, stdin=None, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(10):
            port = int(await process.stdout.receive())
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            if process.returncode is None:
                process.kill()


@pytest.mark.parametrize("legacy", [False, True])
async def test_http(legacy: bool, changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME", "sesame-open-now")
    async with served(*(["--legacy"] if legacy else [])) as (base, process):
        entry = {"type": "http", "url": f"{base}/mcp", "headers": {"Authorization": "Bearer ${SESAME}"}}
        refused = {"type": "http", "url": f"{base}/mcp", "headers": {"Authorization": "Bearer wrong-and-long"}}
        async with modules_of({"web": entry, "refused": refused}, changes) as modules:
            await modules.settled(10)
            status = modules["web"].status()
            assert status.error is None
            assert status.era == ("legacy" if legacy else "modern")
            error = modules["refused"].status().error or ""
            assert "answered HTTP 401 Unauthorized: no sesame" in error
            assert "wrong-and-long" not in error

            assert await modules["web"].call("who", {}) == "who"
            with pytest.raises(ModuleTimeoutError):
                await modules["web"].call("slow", {}, timeout=0.3)
            with anyio.fail_after(5):
                # Over HTTP the server hears of it on another connection, so a little later.
                while await modules["web"].call("log", {}) != '["started", "cancelled"]':
                    continue
            before = len(modules.tools())
            await modules["web"].call("add_tool", {})
            if not legacy:
                await changes.until(lambda: len(modules.tools()) == before + 1)

            # A server that forgot our session refuses the call; it is sent again on a new one.
            async with httpx.AsyncClient() as client:
                await client.get(f"{base}/forget")
            assert await modules["web"].call("who", {}) == "who"

            process.kill()
            await process.wait()
            # It may end while the call is on its way.
            with pytest.raises(ModuleDownError, match=r"cannot be reached|cut its answer off"):
                await modules["web"].call("who", {}, timeout=1)
            assert modules["web"].status().state == "down"


@pytest.mark.parametrize("legacy", [False, True])
async def test_what_loses_a_race_is_cancelled_at_its_server(legacy: bool) -> None:
    started = anyio.Event()

    def reported(call: int, progress: float, total: float | None, message: str | None) -> None:
        if message == "started":
            started.set()

    @tool(read_only=True)
    async def when_started() -> str:
        """End once the server says that the slow one has begun."""
        await started.wait()
        return "started"

    async with served(*(["--legacy"] if legacy else [])) as (base, _process):
        entry = {"type": "http", "url": f"{base}/mcp", "headers": {"Authorization": "Bearer sesame-open-now"}}
        configuration = configure({"web": entry}, approval="allow_all")
        async with Bridge(configuration, toolbox=Toolbox(when_started)) as bridge, bridge.session() as session:
            session.underlying.runner.progress_watchers.append(reported)
            with anyio.fail_after(20):
                assert (
                    await session.run_any([{"_tool": "slow", "_outputPath": "slow"}, {"_tool": "when_started"}])
                    == "started"
                )
                log: JSON = None
                while log != '["started", "cancelled"]':
                    log = await session.run({"_tool": "log"})
            assert session.state == {}


async def test_the_older_transport() -> None:
    async with served("--sse") as (base, _process):
        entry = {"type": "sse", "url": f"{base}/mcp", "headers": {"Authorization": "Bearer sesame-open-now"}}
        async with modules_of({"old": entry}) as modules:
            await modules.settled(10)
            status = modules["old"].status()
            assert status.error is None
            assert (status.kind, status.era) == ("sse", "legacy")
            assert await modules["old"].call("who", {}) == "who"
