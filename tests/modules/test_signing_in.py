"""Signing in to a module: over sockets, with an authorization server that issues, renews and
withdraws tokens.
"""

import json
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.modules import handshake
from ideabridge.bridge.modules.authorization import LONGEST_SCOPE, MOST_SCOPES, Authorization
from ideabridge.bridge.modules.errors import ModuleSignInError
from ideabridge.bridge.modules.handshake import Handshake
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import Launch
from ideabridge.bridge.modules.sign_ins import (
    MOST_SIGN_IN_BYTES,
    SignInError,
    SignInFile,
    forget_sign_ins,
    signed_in_users,
)
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.trust import MAX_FILE_BYTES
from tests import keyrings

from .authorized import Authorized, Browser, authorized
from .conftest import configure

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_folder")]

LOGIN = "ideabridge servers login tickets"


@asynccontextmanager
async def opened(
    server: Authorized, person: Browser | None = None, name: str = "tickets", **keys: Any
) -> AsyncGenerator[Modules]:
    async with Modules(configure({name: {"url": server.url, **keys}}), person=person) as modules:
        with anyio.fail_after(20):
            await modules.settled()
            yield modules


async def sign_in(server: Authorized, name: str = "tickets", **keys: Any) -> Browser:
    person = Browser()
    async with opened(server, person, name, **keys) as modules:
        assert modules[name].status().error is None
    return person


def kept(server: Authorized, name: str = "tickets") -> Path:
    return SignInFile(name, server.url).path


async def test_a_sign_in_is_used_by_later_processes_until_the_tokens_are_removed() -> None:
    async with authorized() as server:
        async with opened(server) as modules:
            error = modules["tickets"].status().error
            assert error == f"server 'tickets' needs you to sign in: {LOGIN}"
            assert modules["tickets"].status().why == error
            with pytest.raises(ModuleSignInError, match=LOGIN):
                await modules["tickets"].call("read", {})
        # Without a person, no client is registered and nobody is asked.
        assert {path for path, _ in server.requests} == {"/mcp"}

        person = await sign_in(server)
        assert len(person.opened) == 1
        assert "code_challenge_method=S256" in person.opened[0]
        async with opened(server) as modules:
            assert await modules["tickets"].call("read", {}) == "read"

        file = kept(server)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert forget_sign_ins("copies") == []
        assert forget_sign_ins("tickets") == [server.url]
        assert forget_sign_ins("tickets") == []
        async with opened(server) as modules:
            assert LOGIN in (modules["tickets"].status().error or "")


async def test_a_person_may_take_longer_than_a_server_that_is_asked_for_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake, "DISCOVER_SECONDS", 1.0)
    deadline_passed = anyio.Event()
    refusal = Handshake.refusal

    def noting(self: Handshake) -> Any:
        deadline_passed.set()
        return refusal(self)

    class SlowBrowser(Browser):
        async def authorize(self, url: str) -> str:
            await deadline_passed.wait()
            return await super().authorize(url)

    monkeypatch.setattr(Handshake, "refusal", noting)
    async with authorized() as server, opened(server, SlowBrowser()) as modules:
        assert modules["tickets"].status().error is None
        assert modules["tickets"].era == "modern"


async def test_a_server_that_waits_for_its_use_says_at_once_that_a_sign_in_is_missing(
    tmp_path: Path,
) -> None:
    states: list[tuple[str, str | None]] = []

    async def note_state(server: Authorized) -> None:
        configuration = configure({"tickets": {"url": server.url}})
        async with Bridge(configuration, store=tmp_path / "ideas.sqlite") as bridge:
            await bridge.modules.settled(20)
            status = bridge.modules["tickets"].status()
            states.append((status.state, status.error))

    async with authorized() as server:
        await sign_in(server)
        await note_state(server)
        await note_state(server)
        forget_sign_ins("tickets")
        await note_state(server)
        await sign_in(server)
        await note_state(server)

    missing = f"server 'tickets' needs you to sign in: {LOGIN}"
    assert states == [("up", None), ("idle", None), ("failed", missing), ("idle", None)]


async def test_tokens_are_renewed_before_they_expire_and_when_they_are_withdrawn() -> None:
    async with authorized() as server:
        await sign_in(server)
        file = SignInFile("tickets", server.url)
        found = file.read()
        assert found is not None
        assert found.expires_at is not None
        server.requests.clear()
        file.write(found.model_copy(update={"expires_at": found.expires_at - 3600}))
        async with opened(server) as modules:
            module = modules["tickets"]
            assert server.provider.refreshed == 1
            assert found.tokens is not None
            assert found.tokens.access_token not in server.tokens
            assert await module.call("read", {}) == "read"
            server.revoke()
            results: list[Any] = []

            async def call() -> None:
                results.append(await module.call("read", {}))

            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(call)
            # Five calls were refused, and one of them has renewed the token for all.
            assert results == ["read"] * 5
            assert server.provider.refreshed == 2
        async with opened(server) as modules:
            assert await modules["tickets"].call("read", {}) == "read"


async def test_two_processes_do_not_renew_with_the_same_refresh_token() -> None:
    async with authorized() as server:
        await sign_in(server)
        async with opened(server) as one, opened(server) as other:
            server.revoke()
            assert await one["tickets"].call("read", {}) == "read"
            # The refresh token that this process had read has already been used.
            assert await other["tickets"].call("read", {}) == "read"
        assert server.provider.refreshed == 1


async def test_tokens_that_cannot_be_renewed_need_a_person_again() -> None:
    async with authorized() as server:
        await sign_in(server)
        async with opened(server) as modules:
            server.revoke(refreshing=True)
            with pytest.raises(ModuleSignInError) as caught:
                await modules["tickets"].call("read", {})
            assert str(caught.value) == f"server 'tickets' needs you to sign in again: {LOGIN}"
            await sign_in(server)
            # The process that was waiting takes the new tokens.
            assert await modules["tickets"].call("read", {}) == "read"


@pytest.mark.parametrize("status", [503, 429, 404])
async def test_an_authorization_server_that_is_down_costs_no_sign_in(status: int) -> None:
    async with authorized() as server:
        await sign_in(server)
        async with opened(server) as modules:
            server.revoke()
            server.provider.down = status
            with pytest.raises(
                ModuleSignInError, match=f"answered HTTP {status}; ideabridge keeps the sign-in"
            ) as caught:
                await modules["tickets"].call("read", {})
            assert LOGIN not in str(caught.value)
            server.provider.down = None
            assert await modules["tickets"].call("read", {}) == "read"


async def test_a_person_signs_in_for_more_when_a_call_needs_it() -> None:
    async with authorized() as server:
        person = Browser()
        async with opened(server, person) as modules:
            assert await modules["tickets"].call("write", {}) == "written"
        assert [set(scopes) for scopes in server.provider.asked] == [{"read"}, {"read", "write"}]
        async with opened(server) as modules:
            assert await modules["tickets"].call("write", {}) == "written"


async def test_without_a_person_the_next_sign_in_asks_for_more() -> None:
    async with authorized() as server:
        await sign_in(server)
        async with opened(server) as modules:
            with pytest.raises(ModuleSignInError) as caught:
                await modules["tickets"].call("write", {})
            assert (
                str(caught.value)
                == f"server 'tickets' needs you to sign in for more (write): {LOGIN}"
            )
            assert await modules["tickets"].call("read", {}) == "read"
            await sign_in(server)
            assert set(server.provider.asked[-1]) == {"read", "write"}
            assert await modules["tickets"].call("write", {}) == "written"


async def test_scopes_that_a_module_demands_are_bounded() -> None:
    """Each refusal demands others: they would grow the file until nobody could read
    it, or sign out.
    """
    async with authorized() as server:
        await sign_in(server)
        async with opened(server) as modules:
            refusals: list[str] = []
            for call in range(40):
                server.demanded = " ".join(f"scope-{call}-{number}" for number in range(10))
                with pytest.raises(ModuleSignInError) as caught:
                    await modules["tickets"].call("write", {})
                refusals.append(str(caught.value))
            assert "needs you to sign in for more" in refusals[0]
            assert refusals[-1] == (
                f"server 'tickets' has required 110 scopes so far; the limit is {MOST_SCOPES}"
            )
            server.demanded = "s" * 5000
            with pytest.raises(ModuleSignInError) as caught:
                await modules["tickets"].call("write", {})
            assert str(caught.value) == (
                "server 'tickets' demands a scope of 5,000 characters; the limit is "
                f"{LONGEST_SCOPE}"
            )
            # A call that needs no other scope still works.
            assert await modules["tickets"].call("read", {}) == "read"
        found = SignInFile("tickets", server.url).read()
        assert found is not None
        assert found.scope is not None
        assert len(found.scope.split()) <= MOST_SCOPES
        assert forget_sign_ins("tickets") == [server.url]


async def test_a_sign_in_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with authorized() as server:
        issue = server.provider.issue

        def issue_much(*arguments: Any) -> OAuthToken:
            return issue(*arguments).model_copy(update={"scope": "read " * 100_000})

        monkeypatch.setattr(server.provider, "issue", issue_much)
        async with opened(server, Browser()) as modules:
            error = modules["tickets"].status().error or ""
        assert error.startswith("server 'tickets' cannot be signed in to: its sign-in has ")
        assert f"the limit is {MOST_SIGN_IN_BYTES:,}" in error
        assert not kept(server).exists()


async def test_a_file_that_is_too_large_can_be_signed_out_of_and_keeps_nobody_signed_in() -> None:
    async with authorized() as server:
        await sign_in(server)
        await sign_in(server, "copies")
        file = kept(server)
        text = file.read_text()
        file.write_text(text.replace('"scope": "read"', f'"scope": "{"read " * 1_000_000}"'))
        assert file.stat().st_size > MAX_FILE_BYTES
        # This file must not affect others.
        assert signed_in_users("copies") == []
        assert forget_sign_ins("copies") == [server.url]
        assert forget_sign_ins("tickets") == [server.url]
        assert not file.exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"state": "another"}, "State parameter mismatch"),
        ({"iss": "https://evil.example"}, "iss mismatch"),
        ({"code": ""}, "No authorization code"),
    ],
)
async def test_an_answer_that_is_not_of_this_sign_in_is_refused(
    changed: dict[str, str], words: str
) -> None:
    async with authorized() as server:
        person = Browser(**changed)
        async with opened(server, person) as modules:
            error = modules["tickets"].status().error or ""
            assert error.startswith("server 'tickets' cannot be signed in to: ")
            assert words in error
            assert server.provider.access == {}
        assert len(person.opened) == 1
        assert not kept(server).exists()


async def test_tokens_go_only_to_the_address_that_they_are_for() -> None:
    async with authorized() as server, authorized() as other:
        await sign_in(server)
        async with opened(other) as modules:
            # The name is the same but the address is not, as after a change of the project's file.
            assert LOGIN in (modules["tickets"].status().error or "")
        async with opened(server, name="copies") as modules:
            assert "servers login copies" in (modules["copies"].status().error or "")
        assert other.tokens == set()
        assert len(server.tokens) == 1


async def test_a_configured_issuer_is_the_only_one_that_is_used() -> None:
    async with authorized() as server:
        person = Browser()
        async with opened(server, person, auth={"issuer": "https://login.example"}) as modules:
            error = modules["tickets"].status().error or ""
        assert (
            f"the server returned {server.base}/, but mcpServers.tickets.auth.issuer is "
            "https://login.example"
        ) in error
        assert person.opened == []
        assert server.provider.clients == {}
        await sign_in(server)
        used = set(server.tokens)
        server.requests.clear()
        async with opened(server, auth={"issuer": "https://login.example"}) as modules:
            # The tokens come from a different issuer.
            assert LOGIN in (modules["tickets"].status().error or "")
        assert len(used) == 1
        assert server.tokens == set()


async def test_of_several_authorization_servers_the_configured_one_is_used() -> None:
    async with authorized() as server:
        servers = ["https://login.example", f"{server.base}/"]
        server.metadata = {
            "authorization_servers": servers,
            "resource": server.url,
            "scopes_supported": ["read"],
        }
        await sign_in(server, auth={"issuer": server.base})
        async with opened(server, auth={"issuer": server.base}) as modules:
            assert await modules["tickets"].call("read", {}) == "read"


async def test_a_header_with_a_token_is_used_as_it_is() -> None:
    async with authorized() as server:
        async with opened(server, headers={"Authorization": "Bearer of-my-own"}) as modules:
            error = modules["tickets"].status().error or ""
        assert "answered HTTP 401" in error
        assert LOGIN not in error
        assert server.tokens == {"of-my-own"}


async def test_one_persons_sign_in_is_not_for_others_unless_it_is_shared() -> None:
    async with authorized() as server:
        await sign_in(server)
        async with opened(server) as modules:
            with pytest.raises(
                ModuleSignInError, match=r"needs alice to sign in: .* tickets --user alice$"
            ):
                async with modules.using("tickets", "alice") as module:
                    await module.call("read", {})
        async with (
            opened(server, auth={"shared": True}) as modules,
            modules.using("tickets", "alice") as module,
        ):
            assert module is modules["tickets"]
            assert await module.call("read", {}) == "read"


async def test_tokens_are_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    async with authorized() as server:
        await sign_in(server)
        [access] = server.provider.access
        [refresh] = server.provider.refreshing
        async with opened(server) as modules:
            told = f"{access} {refresh}"
            assert modules.secrets.mask(told) == "[secret:tickets token] [secret:tickets token]"
            assert modules.secrets.places({"text": access}) == [("text", "tickets token")]

    shown = capsys.readouterr()
    assert access not in shown.out + shown.err


async def test_the_keyring_is_used_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = keyrings.installed(monkeypatch)
    async with authorized() as server:
        await sign_in(server)
        [access] = server.provider.access
        assert [access in text for text in keyring.held.values()] == [True]
        assert json.loads(kept(server).read_text())["kept_in"] == "keyring"
        assert access not in kept(server).read_text()
        async with opened(server) as modules:
            assert await modules["tickets"].call("read", {}) == "read"
        assert forget_sign_ins("tickets") == [server.url]
        assert keyring.held == {}
        keyring.failure = RuntimeError("it is locked")
        await sign_in(server)
        assert json.loads(kept(server).read_text())["kept_in"] == "file"


async def test_a_keyring_without_a_backend_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = keyrings.installed(monkeypatch)
    async with authorized() as server:
        await sign_in(server)
        sign_ins = SignInFile("tickets", server.url, None)
        sign_in_there = sign_ins.read()
        assert sign_in_there is not None
        keyrings.without_backend(monkeypatch)
        with pytest.raises(
            SignInError,
            match="no longer available: the package keyring has no backend on this",
        ):
            sign_ins.read()
        assert sign_ins.write(sign_in_there) == (
            f"{sign_ins.path}, which only you can read (the package keyring has "
            "no backend on this system)"
        )
        assert sign_ins.read() == sign_in_there
        keyrings.use(monkeypatch, keyring)
        sign_ins.write(sign_in_there)
        keyrings.without_backend(monkeypatch)
        assert forget_sign_ins("tickets") == [server.url]
        assert not sign_ins.exists


async def test_calls_with_a_token_run_at_once() -> None:
    async with authorized() as server:
        await sign_in(server)
        async with opened(server) as modules:
            results: list[Any] = []

            async def meet() -> None:
                results.append(await modules["tickets"].call("meet", {}))

            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(meet)
                    group.start_soon(meet)
            assert results == ["met", "met"]


async def test_a_request_that_is_cancelled_while_tokens_are_renewed_does_not_lose_them() -> None:
    async with authorized() as server:
        await sign_in(server)
        server.revoke()
        server.provider.may_renew = anyio.Event()
        file = SignInFile("tickets", server.url)
        launch = Launch(url=server.url)
        authorization = Authorization("tickets", launch, secrets=Secrets(), file=file)
        async with httpx2.AsyncClient(auth=authorization) as client:

            async def request() -> None:
                await client.post(server.url, json={})

            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(request)
                    await server.provider.renewing.wait()
                    group.cancel_scope.cancel()
                    server.provider.may_renew.set()
        async with opened(server) as modules:
            assert await modules["tickets"].call("read", {}) == "read"
        assert server.provider.refreshed == 1


async def test_a_module_that_asks_for_a_sign_in_only_in_calls() -> None:
    async with authorized() as server:
        server.is_open = True
        async with opened(server) as modules:
            assert modules["tickets"].status().error is None
            with pytest.raises(ModuleSignInError, match=LOGIN):
                await modules["tickets"].call("read", {})
            async with Modules(
                configure({"tickets": {"url": server.url}}), person=Browser(), at_once=True
            ) as others:
                await others.settled(30)
                authorization = others["tickets"].authorization
                assert authorization is not None
                assert authorization.signed_in is not None
            assert await modules["tickets"].call("read", {}) == "read"


@pytest.mark.parametrize("kind", ["header", "body", "key"])
async def test_a_client_with_credentials_needs_no_person(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authorized() as server:
        auth: dict[str, Any] = {
            "grant": "client_credentials",
            "client_id": "reports",
            "issuer": server.base,
            "scope": "read",
        }
        if kind == "key":
            key = ec.generate_private_key(ec.SECP256R1())
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
            public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            server.public_key = public.decode()
            monkeypatch.setenv("SECRET", pem)
            auth |= {"private_key": "${SECRET}", "algorithm": "ES256"}
        else:
            monkeypatch.setenv("SECRET", "the-secret-of-reports")
            auth |= {"client_secret": "${SECRET}", "secret_in": kind}
        async with opened(server, auth=auth) as modules:
            assert await modules["tickets"].call("read", {}) == "read"
            # The tokens are revoked, so others are requested.
            server.revoke()
            assert await modules["tickets"].call("read", {}) == "read"
            [token] = server.provider.access
            assert modules.secrets.mask(token) == "[secret:tickets token]"
            if kind != "key":
                assert modules.secrets.mask("the-secret-of-reports") == "[secret:SECRET]"
        assert len(server.given) == 2
        assert not kept(server).exists()
        monkeypatch.setenv("SECRET", "wrong" if kind != "key" else "no key")
        async with opened(server, auth=auth) as modules:
            error = modules["tickets"].status().error or ""
            if kind == "key":
                words = "auth.private_key is not a PEM key for ES256"
            else:
                words = "Token exchange failed (401)"
            assert error.startswith("server 'tickets' cannot be signed in to: ")
            assert words in error


async def test_a_registered_client_is_used_as_it_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "the-secret-of-reports")
    auth = {"client_id": "reports", "client_secret": "${SECRET}"}
    async with authorized() as server:
        server.provider.clients["reports"] = OAuthClientInformationFull(
            client_id="reports",
            client_secret="the-secret-of-reports",
            redirect_uris=[AnyUrl(Browser.redirect_uri)],
            token_endpoint_auth_method="client_secret_basic",
            scope="read write",
        )
        keys: dict[str, Any] = {"auth": {**auth, "issuer": f"{server.base}/"}}
        await sign_in(server, **keys)
        assert list(server.provider.clients) == ["reports"]
        assert "the-secret-of-reports" not in kept(server).read_text()
        async with opened(server, **keys) as modules:
            server.revoke()
            assert await modules["tickets"].call("read", {}) == "read"

        # Another client does not use the tokens of this one.
        async with opened(server) as modules:
            assert modules["tickets"].status().error is None

        async with opened(server, auth={"client_id": "others"}) as modules:
            assert LOGIN in (modules["tickets"].status().error or "")


async def test_metadata_that_leads_away_is_not_followed() -> None:
    async with authorized() as server:
        server.metadata = {
            "authorization_servers": ["http://login.example"],
            "resource": server.url,
        }
        async with opened(server, Browser()) as modules:
            error = modules["tickets"].status().error or ""
        assert "the server returned the address http://login.example/" in error
        assert "expected an https address" in error


async def test_an_endless_answer_of_an_authorization_server_is_cut() -> None:
    async with authorized() as server:
        server.metadata = {
            "authorization_servers": [server.base],
            "resource": server.url,
            "x": "x" * 2_000_000,
        }
        person = Browser()
        async with opened(server, person) as modules:
            assert "is larger than 1,048,576 bytes" in (modules["tickets"].status().error or "")
        assert person.opened == []


async def test_a_person_is_asked_once_by_a_module_that_refuses_every_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with authorized() as server:
        server.provider.refuses = True
        person = Browser()
        words = "it rejects the token that its authorization server has just issued"
        async with opened(server, person) as modules:
            assert words in (modules["tickets"].status().error or "")
        assert len(person.opened) == 1
        monkeypatch.setenv("SECRET", "the-secret-of-reports")
        client = {
            "grant": "client_credentials",
            "client_id": "reports",
            "client_secret": "${SECRET}",
        }
        async with opened(server, auth={**client, "issuer": server.base}) as modules:
            assert words in (modules["tickets"].status().error or "")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (
            ("/register",),
            "write the id of a client that you registered there into mcpServers.tickets.auth",
        ),
        (
            ("/register", "/.well-known"),
            "it names no authorization server. If it requires a token, write the token into",
        ),
    ],
)
async def test_what_is_missing_for_a_sign_in_is_told(missing: tuple[str, ...], words: str) -> None:
    async with authorized() as server:
        server.missing = missing
        person = Browser()
        async with opened(server, person) as modules:
            error = modules["tickets"].status().error or ""
        assert error.startswith("server 'tickets' cannot be signed in to: ")
        assert words in error
        assert person.opened == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://[bad", "the server returned the address http://%5Bbad; expected an https address"),
        ("https://login.example:port/", "an address is malformed"),
        ("file:///etc/passwd", "expected an https address"),
        ("http://192.0.2.1/secret", "expected an https address"),
        ("no address", "expected an https address"),
        ("https://127.0.0.1:1/metadata", "127.0.0.1 cannot be reached"),
    ],
)
async def test_a_hostile_challenge_is_an_error_of_its_module(address: str, words: str) -> None:
    async with authorized() as server:
        server.challenge = f'Bearer resource_metadata="{address}", scope="a \\" b"'
        async with opened(server) as modules:
            assert (
                modules["tickets"].status().error
                == f"server 'tickets' needs you to sign in: {LOGIN}"
            )
        person = Browser()
        async with opened(server, person) as modules:
            error = modules["tickets"].status().error or ""
        assert error.startswith("server 'tickets' cannot be signed in to: ")
        assert words in error
        assert person.opened == []


async def test_the_older_transport_has_the_same_sign_in() -> None:
    async with authorized(sse=True) as server:
        async with opened(server, type="sse") as modules:
            assert (
                modules["tickets"].status().error
                == f"server 'tickets' needs you to sign in: {LOGIN}"
            )
        await sign_in(server, type="sse")
        async with opened(server, type="sse") as modules:
            assert await modules["tickets"].call("read", {}) == "read"
            server.revoke()
            assert await modules["tickets"].call("read", {}) == "read"


# -- odd answers -----------------------------------------------------------------------------------

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"


async def signed_in(server: Authorized, person: Browser) -> tuple[str | None, list[str]]:
    """Why a sign-in does not work, and the notes on the module."""
    async with opened(server, person) as modules:
        status = modules["tickets"].status()
        if status.error is None:
            assert await modules["tickets"].call("read", {}) == "read"
            server.revoke()
            # Renewing the tokens works as well.
            assert await modules["tickets"].call("read", {}) == "read"
        return status.error, list(status.notes)


@pytest.mark.parametrize("iss", [None, "", "/"])
@pytest.mark.parametrize("slashes", [("", ""), ("", "/"), ("/", ""), ("/", "/")])
async def test_the_slash_of_a_root_makes_no_other_issuer(
    slashes: tuple[str, str], iss: str | None
) -> None:
    async with authorized() as server:
        named, issuer = (f"{server.base}{slash}" for slash in slashes)
        server.changed[RESOURCE] = lambda told: told.update(authorization_servers=[named])
        server.changed[SERVER] = lambda told: told.update(issuer=issuer)
        person = Browser() if iss is None else Browser(iss=f"{server.base}{iss}")
        error, notes = await signed_in(server, person)
        assert notes == []
        if iss is not None and iss not in slashes:
            # Neither the module nor the authorization server writes its issuer like this.
            assert error is not None
            assert "iss mismatch" in error
            return
        assert error is None
        async with opened(server) as modules:
            assert await modules["tickets"].call("read", {}) == "read"


@pytest.mark.parametrize(
    ("named", "issuer", "iss"),
    [
        ("/tenant", "/tenant/", None),
        ("/tenant/", "/tenant", None),
        ("/tenant", "/tenant", "/tenant/"),
        ("/tenant", "/", None),
        ("", "//", None),
        ("", "", "//"),
        ("", "", "/tenant"),
    ],
)
async def test_a_path_makes_another_issuer(named: str, issuer: str, iss: str | None) -> None:
    async with authorized() as server:
        server.changed[RESOURCE] = lambda told: told.update(
            authorization_servers=[f"{server.base}{named}"]
        )

        def metadata(told: dict[str, Any]) -> None:
            told["issuer"] = f"{server.base}{issuer}"

        server.changed[SERVER] = metadata
        person = Browser() if iss is None else Browser(iss=f"{server.base}{iss}")
        error, _ = await signed_in(server, person)
        assert error is not None
        assert "issuer mismatch" in error or "iss mismatch" in error
        # Neither a code nor a secret was sent.
        assert not [path for path, _ in server.requests if path == "/token"]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_signed_assertion_names_the_issuer_as_its_server_writes_it(
    slash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authorized() as server:
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        server.public_key = (
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        )
        monkeypatch.setenv("SECRET", pem)
        server.changed[RESOURCE] = lambda told: told.update(
            authorization_servers=[f"{server.base}{slash}"]
        )
        auth: dict[str, Any] = {
            "grant": "client_credentials",
            "client_id": "reports",
            "issuer": f"{server.base}{slash}",
            "private_key": "${SECRET}",
            "algorithm": "ES256",
        }
        # The server accepts its own name only with a slash.
        async with opened(server, auth=auth) as modules:
            assert await modules["tickets"].call("read", {}) == "read"


async def test_the_slash_of_a_root_makes_no_other_resource() -> None:
    async with authorized() as server:
        for resource in (server.base, f"{server.base}/", server.url):
            server.changed[RESOURCE] = lambda told, resource=resource: told.update(
                resource=resource
            )
            error, notes = await signed_in(server, Browser())
            assert (error, notes) == (None, [])
            forget_sign_ins("tickets")
        server.changed[RESOURCE] = lambda told: told.update(resource=f"{server.base}/other")
        error, _ = await signed_in(server, Browser())
        assert "does not match expected" in (error or "")


ODD: list[tuple[str, dict[str, Any], str | None]] = [
    (
        SERVER,
        {"scopes_supported": "read write", "strange": {"a": 1}},
        "accepted 'scopes_supported' in the metadata of",
    ),
    (
        SERVER,
        {"scopes_supported": None, "response_types_supported": None},
        "left out 'response_types_supported'",
    ),
    (
        SERVER,
        {"grant_types_supported": {"a": 1}},
        "left out 'grant_types_supported' in the metadata of",
    ),
    (SERVER, {"service_documentation": "not an address"}, "left out 'service_documentation'"),
    (
        SERVER,
        {"code_challenge_methods_supported": "S256", "op_tos_uri": ""},
        "left out 'op_tos_uri'",
    ),
    (
        RESOURCE,
        {"scopes_supported": "read", "resource_name": 5},
        "left out 'resource_name' in its metadata: it is a",
    ),
    (
        RESOURCE,
        {"bearer_methods_supported": None, "jwks_uri": ""},
        "left out 'jwks_uri' in its metadata: it is empty",
    ),
    (
        "/register",
        {"contacts": "me", "grant_types": None, "client_secret_expires_at": "never"},
        "left out 'client_sec",
    ),
    ("/token", {"token_type": "bearer", "expires_in": "3600"}, None),
    (
        "/token",
        {"token_type": "BEARER", "expires_in": 3600.5},
        "accepted 'expires_in' in the tokens of",
    ),
    (
        "/token",
        {"token_type": None, "scope": ["read"], "id_token": 5},
        "accepted 'scope' in the tokens of",
    ),
    ("/token", {"expires_in": "one hour", "scope": None}, "left out 'expires_in'"),
    ("/token", {"expires_in": None}, None),
]


@pytest.mark.parametrize(("path", "members", "note"), ODD)
async def test_odd_answers_that_do_no_harm_work_with_a_note(
    path: str, members: dict[str, Any], note: str | None
) -> None:
    async with authorized() as server:
        server.changed[path] = lambda told: told.update(members)
        error, notes = await signed_in(server, Browser())
        assert error is None
        assert [one for one in notes if note is not None and note in one] or (
            note is None and notes == []
        )


@pytest.mark.parametrize("path", [SERVER, RESOURCE, "/token", "/register"])
async def test_a_byte_order_mark_before_an_answer_is_skipped(path: str) -> None:
    async with authorized() as server:
        server.changed[path] = lambda told: b"\xef\xbb\xbf" + json.dumps(told).encode()
        assert (await signed_in(server, Browser()))[0] is None


HARMFUL: list[tuple[str, dict[str, Any]]] = [
    (SERVER, {"issuer": None}),
    (SERVER, {"issuer": "https://login.example"}),
    (SERVER, {"token_endpoint": None}),
    (SERVER, {"token_endpoint": ["http://127.0.0.1/token"]}),
    (SERVER, {"token_endpoint": "http://192.0.2.1/token"}),
    (SERVER, {"authorization_endpoint": 5}),
    (SERVER, {"registration_endpoint": 5}),
    (SERVER, {"registration_endpoint": "here"}),
    (SERVER, {"authorization_response_iss_parameter_supported": "perhaps"}),
    (RESOURCE, {"resource": "https://elsewhere.example/mcp"}),
    ("/register", {"client_id": 5}),
    ("/register", {"client_secret": ["a"]}),
    ("/register", {"token_endpoint_auth_method": ["none"]}),
    ("/token", {"access_token": None}),
    ("/token", {"access_token": ["a"]}),
    ("/token", {"access_token": "a\nb"}),
    ("/token", {"token_type": "DPoP"}),
    ("/token", {"token_type": ["Bearer"]}),
]


@pytest.mark.parametrize(("path", "members"), HARMFUL)
async def test_odd_answers_that_decide_where_a_secret_goes_are_refused(
    path: str, members: dict[str, Any]
) -> None:
    async with authorized() as server:
        server.changed[path] = lambda told: told.update(members)
        error, _ = await signed_in(server, Browser())
        assert error is not None
        assert error.startswith("server 'tickets' cannot be signed in to: ")
        for word in ("pydantic", "validation error", "Traceback"):
            assert word not in error
        assert not kept(server).exists()
