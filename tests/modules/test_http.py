"""Modules over HTTP, both eras, on loopback with a required header."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from ideabridge.bridge.modules.errors import ModuleDownError, ModuleTimeoutError

from .conftest import SERVERS, Changes, modules_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(*options: str) -> AsyncGenerator[tuple[str, Any]]:
    command = [sys.executable, str(SERVERS / "sdk.py"), "--http", *options]
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
            status = modules.status("web")
            assert status.error is None
            assert status.era == ("legacy" if legacy else "modern")
            error = modules.status("refused").error or ""
            assert "answered HTTP 401 Unauthorized: no sesame" in error
            assert "wrong-and-long" not in error

            assert await modules.call("web", "who", {}) == "who"
            with pytest.raises(ModuleTimeoutError):
                await modules.call("web", "slow", {}, timeout=0.3)
            with anyio.fail_after(5):
                # Over HTTP the server hears of it on another connection, so a little later.
                while await modules.call("web", "log", {}) != '["started", "cancelled"]':
                    continue
            before = len(modules.tools())
            await modules.call("web", "add_tool", {})
            if not legacy:
                await changes.until(lambda: len(modules.tools()) == before + 1)

            # A server that forgot our session refuses the call; it is sent again on a new one.
            async with httpx.AsyncClient() as client:
                await client.get(f"{base}/forget")
            assert await modules.call("web", "who", {}) == "who"

            process.kill()
            await process.wait()
            with pytest.raises(ModuleDownError, match="cannot be reached"):
                await modules.call("web", "who", {})
            assert modules.status("web").state == "down"


async def test_the_older_transport() -> None:
    async with served("--sse") as (base, _process):
        entry = {"type": "sse", "url": f"{base}/mcp", "headers": {"Authorization": "Bearer sesame-open-now"}}
        async with modules_of({"old": entry}) as modules:
            await modules.settled(10)
            status = modules.status("old")
            assert status.error is None
            assert (status.kind, status.era) == ("sse", "legacy")
            assert await modules.call("old", "who", {}) == "who"
