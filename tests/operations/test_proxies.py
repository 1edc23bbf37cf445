"""nginx and Caddy with the files in packaging/, in front of a server with users: tools,
streams, the page.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store
from ideabridge.server.transports.quotas import MAX_MESSAGE
from tests.server.serving import ERAS, Gate, Heard, call, configured, listening, served, structured
from tests.server.test_two_servers import told

from .proxies import NAME, program, proxy

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Proxied:
    """A server behind a proxy: the proxy's address, whom to trust, and the token of a user."""

    def __init__(self, port: int, trusted: ssl.SSLContext, token: str) -> None:
        self.url = f"https://localhost:{port}"
        self.trusted = trusted
        self.token = token

    @asynccontextmanager
    async def http(self, **headers: str) -> AsyncGenerator[httpx2.AsyncClient]:
        """A client that finds the server's name at this machine."""

        async def named(request: httpx2.Request) -> None:
            request.headers["host"] = NAME
            request.extensions["sni_hostname"] = NAME

        hooks: Any = {"request": [named]}
        async with httpx2.AsyncClient(
            verify=self.trusted, headers=headers, timeout=20, event_hooks=hooks
        ) as http:
            yield http

    @asynccontextmanager
    async def client(self, mode: str, **keys: Any) -> AsyncGenerator[Client]:
        async with (
            self.http(authorization=f"Bearer {self.token}") as http,
            Client(
                streamable_http_client(f"{self.url}/mcp", http_client=http), mode=mode, **keys
            ) as client,
        ):
            yield client


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            kind, marks=pytest.mark.skipif(program(kind) is None, reason=f"{kind} is not installed")
        )
        for kind in ("nginx", "caddy")
    ],
)
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Proxied]:
    folder = tmp_path_factory.mktemp("proxied")
    with Store.open(folder / "ideas.sqlite") as store:
        _, token = store.users.add_token(store.users.add("alice").name)
    command = served(
        configured(folder), "--http", "127.0.0.1:0", "--allow-host", NAME, "--ui", "--metrics"
    )
    with listening(command) as url, proxy(request.param, folder / "proxy", url) as (port, trusted):
        yield Proxied(port, trusted, token)


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_comes_while_the_call_runs(
    proxied: Proxied, mode: str, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    notes: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        notes.append(message or "")
        # Only a message that arrives before the answer can open the gate.
        if message == "hold started":
            gate.open()

    calls = [
        {"_tool": "add", "a": 40, "b": 2, "_outputPath": "sum"},
        {"_tool": "hold", "gate": str(gate.path)},
    ]
    try:
        async with proxied.client(mode) as client:
            with anyio.fail_after(20):
                result = await client.call_tool(
                    "run_plan", {"calls": calls}, progress_callback=on_progress
                )

        assert structured(result)["status"] == "done"
    finally:
        gate.close()

    assert any(note.startswith("add done") for note in notes)


@pytest.mark.parametrize("mode", ERAS)
async def test_clients_hear_that_tools_have_changed(proxied: Proxied, mode: str) -> None:
    heard = Heard()
    async with (
        proxied.client(mode, message_handler=heard) as client,
        told(client, mode, heard) as change,
    ):
        plan: dict[str, Any] = {
            "calls": [{"_tool": "add", "a": "†input.a", "b": 1, "_outputPath": "sum"}]
        }
        run = await call(client, "run_plan", **plan, input={"a": 1}, output="†state.sum")
        await call(
            client, "publish_idea", idea=run["run"], name=f"more_{mode}", description="Adds one."
        )
        await heard.until(change)


async def test_large_messages_are_answered_by_the_server(proxied: Proxied) -> None:
    async with proxied.http(
        authorization=f"Bearer {proxied.token}", accept="application/json, text/event-stream"
    ) as http:
        for size in (MAX_MESSAGE, MAX_MESSAGE + 1):
            head = '{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "'
            tail = '"}}'
            content = f"{head}{'y' * (size - len(head) - len(tail))}{tail}"
            answer = await http.post(
                f"{proxied.url}/mcp", content=content, headers={"content-type": "application/json"}
            )
            # An answer that the proxy itself makes would be a page.
            assert '"jsonrpc":"2.0"' in answer.text, answer.text[:300]
            assert (f"the limit is {MAX_MESSAGE:,}" in answer.text) == (size > MAX_MESSAGE), (
                answer.text[:300]
            )


async def test_what_needs_a_token_needs_it_here_too(proxied: Proxied) -> None:
    async with proxied.http() as http:
        answer = await http.post(
            f"{proxied.url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}
        )
        assert answer.status_code == 401
        assert answer.headers["strict-transport-security"]
        assert (await http.get(f"{proxied.url}/healthz")).json() == {"status": "ok"}
        assert (await http.get(f"{proxied.url}/metrics")).status_code == 404


async def test_the_page_signs_in_with_a_cookie_for_encrypted_connections_alone(
    proxied: Proxied,
) -> None:
    async with proxied.http(origin=f"https://{NAME}") as http:
        answer = await http.post(f"{proxied.url}/ui/sign-in", data={"token": proxied.token})
        assert answer.status_code == 303, answer.text
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-ideabridge_ui_")
        assert {"httponly", "samesite=strict", "secure"} <= set(cookie.lower().split("; "))
        key = cookie.partition(";")[0]
        page = await http.get(f"{proxied.url}/ui/runs", headers={"cookie": key})
        assert page.status_code == 200
        assert "alice" in page.text
        # The changes of the page are a stream, too, whose first event must not be held back.
        async with http.stream("GET", f"{proxied.url}/ui/live", headers={"cookie": key}) as stream:
            with anyio.fail_after(20):
                assert stream.headers["content-type"].startswith("text/event-stream")
                assert await anext(stream.aiter_bytes())
