"""Named users of one server: each signs in to a module for themselves, and nobody gets the
token of another.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from ideabridge.bridge.modules import connection_pool, user_modules
from ideabridge.bridge.modules.client_session import ClientSession, set_client_session
from ideabridge.bridge.modules.errors import (
    ClientWithoutSessionsError,
    ModuleDownError,
    ModuleSignInError,
)
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.sign_ins import (
    ModuleUser,
    SignInFile,
    folder,
    forget_sign_ins,
    signed_in_users,
)

from .authorized import Authorized, Browser, authorized
from .conftest import configure

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_folder")]

STORE = "the-store"
ODD = (
    "../../../etc/passwd",
    "a/b\\c",
    "CON",
    "x" * 5000,
    "ünï ☃",
    "a\nb",
    'q"uote',
    "user.json",
    "",
    ".",
)


@asynccontextmanager
async def opened(server: Authorized, store: str = STORE) -> AsyncGenerator[Modules]:
    """The modules of a server whose owner has signed in."""
    await sign_in(server, None)
    async with Modules(configure({"tickets": {"url": server.url}})) as modules:
        modules.identify_store = lambda: store
        with anyio.fail_after(30):
            await modules.settled()
            yield modules


async def sign_in(server: Authorized, user: str | None, store: str = STORE) -> None:
    server.provider.person = user or "the owner"
    whose = None if user is None else ModuleUser(user, store)
    async with Modules(
        configure({"tickets": {"url": server.url}}), person=Browser(), user=whose
    ) as modules:
        await modules.settled(30)
        assert modules["tickets"].status().error is None


async def whoami(modules: Modules, user: str | None) -> object:
    async with modules.using("tickets", user) as module:
        return await module.call("whoami", {})


def file_of(server: Authorized, user: str) -> SignInFile:
    return SignInFile("tickets", server.url, ModuleUser(user, STORE))


def tokens_of(server: Authorized, person: str) -> set[str]:
    return {token for token, whose in server.provider.persons.items() if whose == person}


async def test_each_call_has_the_token_of_its_user() -> None:
    async with authorized() as server:
        await sign_in(server, "alice")
        await sign_in(server, "bob")
        async with opened(server) as modules:
            found: dict[tuple[str | None, int], object] = {}

            async def call(user: str | None, number: int) -> None:
                found[user, number] = await whoami(modules, user)

            async with anyio.create_task_group() as group:
                for number in range(10):
                    for user in ("alice", "bob", None):
                        group.start_soon(call, user, number)
            assert {(user, value) for (user, _), value in found.items()} == {
                ("alice", "you are alice"),
                ("bob", "you are bob"),
                (None, "you are the owner"),
            }


async def test_a_user_without_a_sign_in_reaches_no_token() -> None:
    async with authorized() as server:
        await sign_in(server, "alice")
        async with opened(server) as modules:
            assert await whoami(modules, "alice") == "you are alice"
            for _ in range(2):
                with pytest.raises(ModuleSignInError) as caught:
                    await whoami(modules, "bob")
                assert str(caught.value) == (
                    "server 'tickets' needs bob to sign in: ideabridge servers "
                    "login tickets --user bob"
                )
            assert server.told == ["alice"]
            await sign_in(server, "bob")
            assert await whoami(modules, "bob") == "you are bob"


async def test_a_module_that_asks_for_a_sign_in_only_in_calls_gets_no_token_of_another() -> None:
    async with authorized() as server:
        server.is_open = True
        async with Modules(configure({"tickets": {"url": server.url}})) as modules:
            modules.identify_store = lambda: STORE
            await modules.settled(30)
            # The owner signs in while bob's calls, which look for a token again, are refused.
            with pytest.raises(ModuleSignInError, match="--user bob"):
                await whoami(modules, "bob")
            file = SignInFile("tickets", server.url)
            tokens = server.provider.issue("anybody", ["read"], None, "the owner")
            server.is_open = False
            await sign_in(server, None)
            assert file.exists
            server.is_open = True
            with pytest.raises(ModuleSignInError, match="--user bob"):
                await whoami(modules, "bob")
            assert tokens.access_token not in server.tokens
            assert await whoami(modules, None) == "you are the owner"
            with pytest.raises(ModuleSignInError, match="--user bob"):
                await whoami(modules, "bob")


async def test_tokens_are_renewed_for_their_user_only() -> None:
    async with authorized() as server:
        await sign_in(server, "alice")
        await sign_in(server, "bob")
        async with opened(server) as modules:
            for user in ("alice", "bob", None):
                await whoami(modules, user)
            server.revoke()
            found: list[object] = []

            async def call(user: str | None) -> None:
                found.append((user, await whoami(modules, user)))

            async with anyio.create_task_group() as group:
                for user in ("alice", "bob", None) * 5:
                    group.start_soon(call, user)
            assert set(found) == {
                ("alice", "you are alice"),
                ("bob", "you are bob"),
                (None, "you are the owner"),
            }
            assert server.provider.refreshed == 3
        for user in ("alice", "bob"):
            sign_in_of = file_of(server, user).read()
            assert sign_in_of is not None
            assert sign_in_of.tokens is not None
            assert sign_in_of.tokens.access_token in tokens_of(server, user)


async def test_a_refusal_of_one_users_tokens_leads_to_nobody_elses() -> None:
    async with authorized() as server:
        await sign_in(server, "alice")
        async with opened(server) as modules:
            assert await whoami(modules, "alice") == "you are alice"
            for token in tokens_of(server, "alice"):
                server.provider.access.pop(token, None)
                server.provider.refreshing.pop(token, None)
            with pytest.raises(ModuleSignInError) as caught:
                await whoami(modules, "alice")
            assert str(caught.value) == (
                "server 'tickets' needs alice to sign in again: ideabridge servers "
                "login tickets --user alice"
            )
            assert await whoami(modules, None) == "you are the owner"
            await sign_in(server, "alice")
            assert await whoami(modules, "alice") == "you are alice"


async def test_a_user_who_is_signed_out_is_not_signed_in_again_by_a_running_server() -> None:
    async with authorized() as server:
        await sign_in(server, "alice")
        async with opened(server) as modules:
            async with modules.using("tickets", "alice") as module:
                assert await module.call("whoami", {}) == "you are alice"
                assert forget_sign_ins("tickets", "bob") == []
                assert forget_sign_ins("tickets", "alice") == [server.url]
                server.revoke()
                # A call that continues over the connection does not renew what was deleted.
                with pytest.raises(ModuleSignInError, match="needs alice to sign in"):
                    await module.call("whoami", {})
            with pytest.raises(ModuleSignInError, match="needs alice to sign in"):
                await whoami(modules, "alice")
            assert not file_of(server, "alice").exists
            assert server.provider.refreshed == 0
            assert await whoami(modules, None) == "you are the owner"


async def test_a_user_of_another_store_with_the_same_name_is_another_person() -> None:
    async with authorized() as server:
        await sign_in(server, "alice", "another-store")
        async with opened(server) as modules:
            with pytest.raises(ModuleSignInError, match="needs alice to sign in"):
                await whoami(modules, "alice")
        async with opened(server, "") as modules:
            with pytest.raises(ModuleSignInError, match="needs alice to sign in"):
                await whoami(modules, "alice")


async def test_names_of_users_are_no_names_of_files() -> None:
    async with authorized() as server:
        files = {name: file_of(server, name) for name in ODD}
        assert {file.path.parent for file in files.values()} == {folder()}
        assert (
            len({file.path for file in files.values()} | {SignInFile("tickets", server.url).path})
            == len(ODD) + 1
        )
        # A name with the separators of a key in it must not stand for another user of another
        # store.
        one = SignInFile("tickets", server.url, ModuleUser('b", "c', "a"))
        assert one.path != SignInFile("tickets", server.url, ModuleUser("c", 'a", "b')).path
        for name in ODD[:3]:
            await sign_in(server, name)
        async with opened(server) as modules:
            for name in ODD[:3]:
                assert await whoami(modules, name) == f"you are {name}"
        assert signed_in_users("tickets") == sorted(ODD[:3])
        assert json.loads(files[ODD[0]].path.read_text())["user"] == ODD[0]
        assert forget_sign_ins("tickets", ODD[0]) == [server.url]
        assert signed_in_users("tickets") == sorted(ODD[1:3])


async def test_resources_are_those_of_the_user() -> None:
    async with authorized() as server:
        await sign_in(server, "alice")
        async with opened(server) as modules:
            async with modules.using("tickets", "alice") as module:
                assert [entry["uri"] for entry in await module.offered("resources")] == [
                    "tickets://mine"
                ]
            with pytest.raises(ModuleSignInError, match="--user bob"):
                async with modules.using("tickets", "bob") as module:
                    await module.offered("resources")


async def test_a_run_that_needs_the_server_keeps_the_connection_of_a_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_modules, "IDLE_SECONDS", 0.01)
    is_needed = True
    looks = 0
    looked_often = anyio.Event()

    def need(module: str) -> bool:
        nonlocal looks
        assert module == "tickets"
        looks += 1
        if looks == 5:
            looked_often.set()
        return is_needed

    async with authorized() as server:
        await sign_in(server, "alice")
        async with opened(server) as modules:
            modules.is_needed = need
            async with modules.using("tickets", "alice") as module:
                assert await module.call("whoami", {}) == "you are alice"
                connection = await module.reach()

            with anyio.fail_after(20):
                await looked_often.wait()
            assert not connection.done.is_set()
            async with modules.using("tickets", "alice") as same:
                assert same is module

            is_needed = False
            with anyio.fail_after(20):
                await connection.done.wait()


async def test_each_session_of_a_user_has_its_own_connection_if_the_entry_says_so() -> None:
    async with authorized() as server, AsyncExitStack() as stack:
        # Tests can share a task, and the session would still belong to it.
        stack.callback(set_client_session, None)
        await sign_in(server, None)
        await sign_in(server, "alice")
        entry = {"url": server.url, "sharing": "session"}
        async with Modules(configure({"tickets": entry})) as modules:
            modules.identify_store = lambda: STORE
            with anyio.fail_after(30):
                await modules.settled()

            set_client_session(ClientSession("first"))
            async with modules.using("tickets", "alice") as first:
                assert await first.call("whoami", {}) == "you are alice"
                connection = await first.reach()
            async with modules.using("tickets", "alice") as again:
                assert again is first

            set_client_session(ClientSession("second"))
            async with modules.using("tickets", "alice") as second:
                assert second is not first
                assert await second.call("whoami", {}) == "you are alice"
            [status] = modules.statuses()
            assert status.sessions == 2

            modules.end_session("first")
            with anyio.fail_after(20):
                await connection.done.wait()
            [status] = modules.statuses()
            assert status.sessions == 1

            set_client_session(ClientSession(None))
            for user in ("alice", None):
                with pytest.raises(ClientWithoutSessionsError, match="belong to no session"):
                    await whoami(modules, user)


async def test_idle_connections_end_and_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with authorized() as server:
        for user in ("alice", "bob", "carol"):
            await sign_in(server, user)
        monkeypatch.setattr(connection_pool, "MOST_CONNECTIONS", 2)
        async with opened(server) as modules:
            async with (
                modules.using("tickets", "alice") as alices,
                modules.using("tickets", "bob") as bobs,
            ):
                assert await alices.call("whoami", {}) == "you are alice"
                assert await bobs.call("whoami", {}) == "you are bob"
                with pytest.raises(
                    ModuleDownError, match="2 connections of users to servers are in use"
                ):
                    await whoami(modules, "carol")
            # Alice's connection has been idle for longest.
            assert await whoami(modules, "carol") == "you are carol"
            with pytest.raises(ModuleDownError, match="was closed"):
                await alices.call("whoami", {})
            async with modules.using("tickets", "bob") as same:
                assert same is bobs
            assert await whoami(modules, "alice") == "you are alice"

        monkeypatch.setattr(user_modules, "IDLE_SECONDS", 0.01)
        async with opened(server) as modules:
            async with modules.using("tickets", "alice") as first:
                assert await first.call("whoami", {}) == "you are alice"
                connection = await first.reach()
            with anyio.fail_after(20):
                await connection.done.wait()
            async with modules.using("tickets", "alice") as second:
                assert second is not first
                assert await second.call("whoami", {}) == "you are alice"
