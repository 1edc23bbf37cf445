"""Tokens of modules: they reach no store, log or answer, and one person's sign-in does not work for others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.store.store import Store
from tests.modules.authorized import Authorized, Browser, authorized
from tests.server.serving import call, configured, http_process, text

pytestmark = pytest.mark.anyio

TOKEN = "the-token-of-the-owner"


@asynccontextmanager
async def gateway(configuration: Path) -> AsyncGenerator[Client]:
    """A client of a server in a process of its own, with the token of the person who started it."""
    with ExitStack() as stack:
        # In a thread: this process answers the server meanwhile.
        serving = http_process(configuration, IDEABRIDGE_TOKEN=TOKEN)
        url = await anyio.to_thread.run_sync(stack.enter_context, serving)
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=20) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client
        await anyio.to_thread.run_sync(stack.close)


async def signed_in(server: Authorized, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    file = configured(folder, mcpServers={"tickets": {"url": server.url}}, expose=["modules"])
    async with Modules(load_configuration(file), person=Browser()) as modules:
        await modules.settled(10)
        assert modules["tickets"].status().error is None
    return file


def stored(folder: Path) -> list[bytes]:
    """The files of the store, which is closed."""
    found = [path.read_bytes() for path in folder.glob("ideas.sqlite*")]
    assert found
    return found


async def test_tokens_reach_no_store_and_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with authorized() as server:
        file = await signed_in(server, tmp_path, monkeypatch)
        async with gateway(file) as client:
            plan = {"calls": [{"_tool": "show", "_outputPath": "shown"}], "output": "†state.shown"}
            found = await call(client, "run_plan", **plan)
            assert found["output"] == "the token is [secret:tickets token]"
            direct = await client.call_tool("show", {})
            assert text(direct) == "the token is [secret:tickets token]"
        issued = [*server.provider.access, *server.provider.refreshing]
        assert len(issued) == 2
        assert [token for token in issued for data in stored(tmp_path) if token.encode() in data] == []


async def test_one_persons_sign_in_is_not_used_for_named_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with authorized() as server:
        file = await signed_in(server, tmp_path, monkeypatch)
        async with gateway(file) as client:
            assert text(await client.call_tool("read", {})) == "read"
            with Store.open(tmp_path / "ideas.sqlite") as store:
                store.users.add("alice")
            refusal = await client.call_tool("read", {})
            assert refusal.is_error
            assert "has the sign-in of one person, and this server has several users" in text(refusal)
            assert '{"shared": true}' in text(refusal)
