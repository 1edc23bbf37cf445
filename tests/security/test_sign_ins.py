"""Tokens of modules: they reach no store, log or answer, and one person's sign-in does not
work for others.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextResourceContents

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.sign_ins import ModuleUser
from ideabridge.bridge.store.store import Store
from tests.modules.authorized import Authorized, Browser, authorized
from tests.server.serving import call, configured, http_process, text

pytestmark = pytest.mark.anyio

TOKEN = "the-token-of-the-owner"


@asynccontextmanager
async def gateway(configuration: Path) -> AsyncGenerator[str]:
    """A server in a process of its own; gives its URL."""
    with ExitStack() as stack:
        # Use a thread, because this process must answer the server in the meantime.
        serving = http_process(configuration, IDEABRIDGE_TOKEN=TOKEN)
        yield await anyio.to_thread.run_sync(stack.enter_context, serving)
        await anyio.to_thread.run_sync(stack.close)


@asynccontextmanager
async def client_of(url: str, token: str = TOKEN) -> AsyncGenerator[Client]:
    """A client of the server, with the token of the person who started it, or of a user."""
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=20) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def sign_in(server: Authorized, file: Path, user: ModuleUser | None) -> None:
    server.provider.person = "the owner" if user is None else user.name
    async with Modules(load_configuration(file), person=Browser(), user=user) as modules:
        await modules.settled(30)
        assert modules["tickets"].status().error is None


async def signed_in(server: Authorized, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    file = configured(folder, mcpServers={"tickets": {"url": server.url}}, expose=["modules"])
    await sign_in(server, file, None)
    return file


def stored(folder: Path) -> list[bytes]:
    """The files of the store, which is closed."""
    found = [path.read_bytes() for path in folder.glob("ideas.sqlite*")]
    assert found
    return found


async def test_tokens_reach_no_store_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authorized() as server:
        file = await signed_in(server, tmp_path, monkeypatch)
        async with gateway(file) as url, client_of(url) as client:
            plan = {"calls": [{"_tool": "show", "_outputPath": "shown"}], "output": "†state.shown"}
            found = await call(client, "run_plan", **plan)
            assert found["output"] == "the token is [secret:tickets token]"
            direct = await client.call_tool("show", {})
            assert text(direct) == "the token is [secret:tickets token]"
        issued = [*server.provider.access, *server.provider.refreshing]
        assert len(issued) == 2
        assert [
            token for token in issued for data in stored(tmp_path) if token.encode() in data
        ] == []


PLAN: Final[dict[str, Any]] = {
    "calls": [{"_tool": "whoami", "_outputPath": "me"}],
    "output": "†state.me",
}


async def test_each_user_acts_with_their_own_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authorized() as server:
        file = await signed_in(server, tmp_path, monkeypatch)
        with Store.open(tmp_path / "ideas.sqlite") as store:
            tokens = {
                name: (store.users.add(name), store.users.add_token(name)[1])[1]
                for name in ("alice", "bob")
            }
            key = store.settings.sign_in_key(make=True)
        await sign_in(server, file, ModuleUser("alice", key))
        needs = "server 'tickets' needs bob to sign in: ideabridge servers login tickets --user bob"
        async with (
            gateway(file) as url,
            client_of(url) as owner,
            client_of(url, tokens["alice"]) as alice,
            client_of(url, tokens["bob"]) as bob,
        ):
            # Alice calls before and after bob, both directly and in runs. Equal runs do not share
            # results.
            for _ in range(2):
                assert text(await alice.call_tool("whoami", {})) == "you are alice"
                assert (await call(alice, "run_plan", **PLAN))["output"] == "you are alice"
                assert text(await owner.call_tool("whoami", {})) == "you are the owner"
                assert (await call(owner, "run_plan", **PLAN))["output"] == "you are the owner"
                refusal = await bob.call_tool("whoami", {})
                assert refusal.is_error
                assert needs in text(refusal)
                failed = await bob.call_tool("run_plan", PLAN)
                assert "you are" not in text(failed)
                assert needs in text(failed)
            # What is not a tool is also separate for each user.
            assert [str(one.uri) for one in (await alice.list_resources()).resources] == [
                "tickets://mine"
            ]
            read = await alice.read_resource("tickets://mine")
            assert [one.text for one in read.contents if isinstance(one, TextResourceContents)] == [
                "you are alice"
            ]
            assert (await bob.list_resources()).resources == []
            with pytest.raises(MCPError, match="needs bob to sign in"):
                await bob.read_resource("tickets://mine")
            assert set(server.told) == {"alice", "the owner"}
            # The server, which is already running, uses bob's sign-in.
            await sign_in(server, file, ModuleUser("bob", key))
            assert text(await bob.call_tool("whoami", {})) == "you are bob"
            assert (await call(bob, "run_plan", **PLAN))["output"] == "you are bob"
        issued = [*server.provider.access, *server.provider.refreshing]
        assert len(issued) == 6
        assert [
            token for token in issued for data in stored(tmp_path) if token.encode() in data
        ] == []


async def test_a_worker_makes_the_calls_of_a_user_with_their_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authorized() as server:
        file = await signed_in(server, tmp_path, monkeypatch)
        with Store.open(tmp_path / "ideas.sqlite") as store:
            caller = store.users.add("alice").caller
            key = store.settings.sign_in_key(make=True)
        await sign_in(server, file, ModuleUser("alice", key))
        where = tmp_path / "ideas.sqlite"
        async with Bridge(load_configuration(file), store=where, role="front") as front:
            await front.modules.settled(30)
            run = await front.run_plan(PLAN, caller=caller)
            async with (
                Bridge(load_configuration(file), store=where, role="worker") as other,
                anyio.create_task_group() as group,
            ):
                group.start_soon(other.worker().run)
                with anyio.fail_after(30):
                    assert await run.result() == "you are alice"
                group.cancel_scope.cancel()
        assert server.told == ["alice"]
