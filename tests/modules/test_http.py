"""Modules over HTTP, both eras, on loopback with a required header."""

import json
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.modules.errors import ModuleDownError, ModuleTimeoutError
from ideabridge.bridge.modules.streamable_http import REOPEN_SECONDS
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
        with anyio.fail_after(20):
            port = int(await process.stdout.receive())
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            if process.returncode is None:
                process.kill()


async def no_longer_served(base: str) -> None:
    """Wait for the end of a script that is killed, which follows that of the process
    which started it.
    """
    with anyio.fail_after(20), suppress(httpx.TransportError):
        while True:
            async with httpx.AsyncClient() as client:
                await client.get(f"{base}/forget")


@pytest.mark.parametrize("legacy", [False, True])
async def test_http(legacy: bool, changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME", "sesame-open-now")
    async with served(*(["--legacy"] if legacy else [])) as (base, process):
        entry = {
            "type": "http",
            "url": f"{base}/mcp",
            "headers": {"Authorization": "Bearer ${SESAME}"},
        }
        refused = {
            "type": "http",
            "url": f"{base}/mcp",
            "headers": {"Authorization": "Bearer wrong-and-long"},
        }
        async with modules_of({"web": entry, "refused": refused}, changes) as modules:
            await modules.settled(30)
            status = modules["web"].status()
            assert status.error is None
            assert status.era == ("legacy" if legacy else "modern")
            error = modules["refused"].status().error or ""
            assert "answered HTTP 401 Unauthorized: no sesame" in error
            assert "wrong-and-long" not in error

            assert await modules["web"].call("who", {}) == "who"
            with pytest.raises(ModuleTimeoutError):
                await modules["web"].call("slow", {}, timeout=1)
            with anyio.fail_after(20):
                # Over HTTP, the server learns about it on another connection, and therefore
                # slightly later.
                while await modules["web"].call("log", {}) != '["started", "cancelled"]':
                    continue
            before = len(modules.tools())
            await modules["web"].call("add_tool", {})
            if not legacy:
                await changes.until(lambda: len(modules.tools()) == before + 1)

            # A server that has forgotten our session refuses the call, which is then sent again in
            # a new session.
            async with httpx.AsyncClient() as client:
                await client.get(f"{base}/forget")
            assert await modules["web"].call("who", {}) == "who"

            process.kill()
            await process.wait()
            await no_longer_served(base)
            with pytest.raises(ModuleDownError, match="cannot be reached"):
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
        entry = {
            "type": "http",
            "url": f"{base}/mcp",
            "headers": {"Authorization": "Bearer sesame-open-now"},
        }
        configuration = configure({"web": entry}, approval="allow_all")
        async with (
            Bridge(configuration, toolbox=Toolbox(when_started)) as bridge,
            bridge.session() as session,
        ):
            session.underlying.runner.progress_watchers.append(reported)
            with anyio.fail_after(20):
                assert (
                    await session.run_any(
                        [{"_tool": "slow", "_outputPath": "slow"}, {"_tool": "when_started"}]
                    )
                    == "started"
                )
                log: JSON = None
                while log != '["started", "cancelled"]':
                    log = await session.run({"_tool": "log"})

            assert session.state == {}


async def test_the_older_transport() -> None:
    async with served("--sse") as (base, _process):
        entry = {
            "type": "sse",
            "url": f"{base}/mcp",
            "headers": {"Authorization": "Bearer sesame-open-now"},
        }
        async with modules_of({"old": entry}) as modules:
            await modules.settled(30)
            status = modules["old"].status()
            assert status.error is None
            assert (status.kind, status.era) == ("sse", "legacy")
            assert await modules["old"].call("who", {}) == "who"


class Hasty(BaseHTTPRequestHandler):
    """Ends the stream of a call at once, asks for it again without a pause, and answers
    the third time.
    """

    asked: list[float]

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message["method"]
        number = message.get("id")
        result: dict[str, Any] | None = None
        if method == "initialize":
            information = {"name": "hasty", "version": "1"}
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": information,
            }
        elif method == "tools/list":
            result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            type(self).asked = [float(number)]
            self.answer(200, b"id: 1\nretry: 0\ndata:\n\n", "text/event-stream")
            return
        elif number is None:
            self.answer(202, b"")
            return
        else:
            error = {"code": -32601, "message": "no such method"}
            self.answer(200, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())
            return

        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())

    def do_GET(self) -> None:
        if "last-event-id" not in self.headers:
            self.answer(405, b"")
            return

        self.asked.append(time.monotonic())
        if len(self.asked) <= 3:
            self.answer(200, b"id: 1\nretry: 0\ndata:\n\n", "text/event-stream")
            return

        answer = {
            "jsonrpc": "2.0",
            "id": int(self.asked[0]),
            "result": {"content": [{"type": "text", "text": "seen"}]},
        }
        self.answer(200, b"data: " + json.dumps(answer).encode() + b"\n\n", "text/event-stream")

    def do_DELETE(self) -> None:
        self.answer(200, b"")

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if self.command == "POST":
            self.send_header("mcp-session-id", "one")

        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""


async def test_a_stream_that_ends_again_and_again_is_not_opened_without_a_pause() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hasty)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        entry = {"type": "http", "url": f"http://127.0.0.1:{server.server_address[1]}/mcp"}
        async with modules_of({"hasty": entry}) as modules:
            await modules.settled(30)
            assert modules["hasty"].status().error is None
            assert await modules["hasty"].call("look", {}) == "seen"
    finally:
        await anyio.to_thread.run_sync(server.shutdown)
        thread.join()
        server.server_close()

    opened = Hasty.asked[1:]
    assert len(opened) == 3
    assert opened[-1] - opened[0] >= 2 * REOPEN_SECONDS * 0.9
