"""Access tokens of an identity provider, a small real one, and tokens that only look like its
own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.configuration import AuthSettings, ConfigurationError, parse_configuration
from ideabridge.bridge.store.store import Store
from ideabridge.server.transports.identity import (
    FRESH_SECONDS,
    PAUSE_SECONDS,
    STALE_SECONDS,
    IdentityProvider,
    ProviderError,
)
from tests.server.serving import (
    all_tools,
    call,
    configured,
    http_process,
    listening,
    refused,
    served,
)

pytestmark = pytest.mark.anyio

AUDIENCE: Final = "https://tools.example/mcp"
ACCEPT: Final = {"accept": "application/json, text/event-stream"}
PING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Provider:
    """An identity provider: its metadata, its keys, and whatever it signs."""

    def __init__(self) -> None:
        self.keys = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
        }
        self.hits: Counter[str] = Counter()
        self.down = False
        self.answers: dict[str, tuple[int, bytes]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.hits[self.path] += 1
                status, body = provider.answer(self.path)
                self.send_response(status)
                if status == 302:
                    self.send_header("location", provider.issuer + "/keys")

                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}/team"

    def answer(self, path: str) -> tuple[int, bytes]:
        if self.down:
            return 503, b""
        if path in self.answers:
            return self.answers[path]
        if path == "/team/.well-known/openid-configuration":
            return 200, json.dumps(
                {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
            ).encode()

        if path == "/team/keys":
            return (200, json.dumps({"keys": self.jwks()}).encode())
        return (404, b"")

    def jwks(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        for kid, key in self.keys.items():
            algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            public: Any = key.public_key()
            told.append({**algorithm.to_jwk(public, as_dict=True), "kid": kid, "use": "sig"})

        # These keys must never verify a signature.
        told.append(
            {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"s" * 32).decode()}
        )
        told.append({**told[0], "kid": "for_encryption", "use": "enc"})
        return told

    def token(
        self,
        kid: str | None = "rsa",
        *,
        alg: str = "RS256",
        key: Any = None,
        head: Any = None,
        **more: Any,
    ) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "1001", "iat": now, "exp": now + 600}
        claims |= {"preferred_username": "Alice"}
        claims = {name: value for name, value in (claims | more).items() if value is not None}
        headers: dict[str, Any] = dict(head or {})
        if kid is not None:
            headers["kid"] = kid

        return jwt.encode(claims, self.keys[str(kid)] if key is None else key, alg, headers)

    def settings(self, **more: Any) -> AuthSettings:
        return AuthSettings(issuer=self.issuer, audience=AUDIENCE, **more)


@pytest.fixture(scope="module")
def provider() -> Generator[Provider]:
    made = Provider()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def url(provider: Provider, tmp_path: Path) -> Generator[str]:
    auth = {"issuer": provider.issuer, "audience": AUDIENCE}
    with http_process(configured(tmp_path, auth=auth)) as url:
        yield url


@asynccontextmanager
async def client_of(url: str, token: str) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=20) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def status(url: str, token: str) -> int:
    async with httpx2.AsyncClient(headers={**ACCEPT, "authorization": f"Bearer {token}"}) as http:
        answer = await http.post(url, json=PING)
    # The reason for which a token is refused is not disclosed.
    assert answer.status_code != 401 or answer.json()["error"] == "invalid_token"
    return answer.status_code


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def forged(provider: Provider) -> dict[str, str]:
    """Tokens that are none of the provider's for this server."""
    public: Any = provider.keys["rsa"].public_key()
    other = rsa.generate_private_key(65537, 2048)
    good = provider.token()
    head, body, signature = good.split(".")
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def confused(secret: bytes, kid: str) -> str:
        signed = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{body}"
        mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"

    elsewhere = {"jku": f"{provider.issuer}/evil", "x5u": f"{provider.issuer}/evil"}
    own: Any = RSAAlgorithm.to_jwk(other.public_key(), as_dict=True)
    now = int(time.time())
    here = {"aud": AUDIENCE, "iss": provider.issuer}
    return {
        "another audience": provider.token(aud="https://other.example/mcp"),
        "no audience": provider.token(aud=None),
        "audience that only begins so": provider.token(aud=AUDIENCE + "x"),
        "another issuer": provider.token(iss=provider.issuer + "/"),
        "no issuer": provider.token(iss=None),
        "expired": provider.token(exp=now - 120),
        "no expiry": provider.token(exp=None),
        "another's body": f"{head}.{part({**here, 'sub': '1', 'exp': now + 600})}.{signature}",
        "expiry that is a text": f"{head}.{part({**here, 'exp': 'never'})}.{signature}",
        "not valid yet": provider.token(nbf=now + 600),
        "no subject": provider.token(sub=None),
        "empty subject": provider.token(sub=""),
        "long subject": provider.token(sub="x" * 300),
        "another's key": provider.token(key=other),
        "HS256 with the public key": confused(pem, "rsa"),
        "HS256 with a key of the set": confused(b"s" * 32, "shared"),
        "alg none": f"{part({'alg': 'none', 'kid': 'rsa'})}.{body}.",
        "alg None": f"{part({'alg': 'None', 'kid': 'rsa'})}.{body}.{signature}",
        "no signature": f"{head}.{body}.",
        "key for encryption": provider.token("for_encryption", key=provider.keys["rsa"]),
        "kid of a path": provider.token("../../../../dev/null", key=other),
        "kid of an address": provider.token(f"{provider.issuer}/evil", key=other),
        "kid with SQL": provider.token("rsa' OR '1'='1", key=other),
        "kid of another kind of key": provider.token("ec", key=provider.keys["rsa"]),
        "no kid, where two keys could fit": provider.token(None, key=other),
        "keys elsewhere": provider.token(key=other, head=elsewhere),
        "keys elsewhere, unknown kid": provider.token("evil", key=other, head=elsewhere),
        "its own key": provider.token("evil", key=other, head={"jwk": own}),
        "an extension nobody knows": provider.token(head={"crit": ["exp"], "exp": 1}),
        "too long": provider.token(more="x" * 20_000),
        "four parts": good + ".x",
        "no token": "...",
        "half a token": good[: len(good) // 2],
    }


async def test_a_token_of_the_provider_makes_a_user_and_nothing_else_does(
    provider: Provider, url: str, tmp_path: Path
) -> None:
    assert await status(url, provider.token()) not in (401, 403)
    assert await status(url, provider.token("ec", alg="ES256")) not in (401, 403)
    assert await status(url, provider.token(aud=["https://other.example", AUDIENCE])) not in (
        401,
        403,
    )
    found = {name: await status(url, token) for name, token in forged(provider).items()}
    assert found == dict.fromkeys(found, 401)
    assert not any("evil" in path for path in provider.hits)
    async with httpx2.AsyncClient() as http:
        assert (await http.post(url, json=PING)).status_code == 401

    with Store.open(tmp_path / "ideas.sqlite") as store:
        assert [(one.name, one.issuer) for one in store.users.all()] == [
            ("alice@127.0.0.1", provider.issuer)
        ]


async def test_users_of_the_provider_have_the_profile_that_auth_names(
    provider: Provider, tmp_path: Path
) -> None:
    auth = {"issuer": provider.issuer, "audience": AUDIENCE, "profile": "review"}
    profiles = {"review": {"tools": ["add"]}, "notes": {"tools": ["write_note"]}}
    file = configured(
        tmp_path, auth=auth, profiles=profiles, expose=["tools"], approval="allow_all"
    )
    note = {"path": str(tmp_path / "note"), "text": "x"}
    with http_process(file) as url:
        assert await status(f"{url}/p/notes", provider.token()) == 403
        for address in (url, f"{url}/p/review"):
            async with client_of(address, provider.token()) as client:
                listed = await all_tools(client)
                assert "add" in listed
                assert "write_note" not in listed
                assert "not in profile 'review'" in await refused(client, "write_note", **note)
                plan = [{"_tool": "write_note", **note}]
                assert "not in profile" in await refused(client, "run_plan", calls=plan)
                added = await call(client, "run_plan", calls=[{"_tool": "add", "a": 1, "b": 2}])
                assert added["status"] == "done"

    assert not (tmp_path / "note").exists()


async def test_made_up_key_ids_do_not_reach_the_provider(provider: Provider, url: str) -> None:
    assert await status(url, provider.token()) != 401
    before = provider.hits.total()
    async with (
        httpx2.AsyncClient(headers=ACCEPT, timeout=20) as http,
        anyio.create_task_group() as group,
    ):

        async def ask(token: str) -> None:
            answer = await http.post(url, json=PING, headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == 401

        for number in range(100):
            group.start_soon(ask, provider.token(f"made-up-{number}", key=provider.keys["rsa"]))

    assert provider.hits.total() - before <= 2
    assert await status(url, provider.token()) != 401


async def test_who_a_user_is_does_not_depend_on_what_they_are_called(
    provider: Provider, url: str, tmp_path: Path
) -> None:
    """A subject may call themselves what they like; names of this store and of others
    are not theirs.
    """
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("alice")
        own = store.users.add_token("alice")[1]

    runs: dict[str, str] = {}
    people = {
        "local": own,
        "first": provider.token(),
        "second": provider.token(sub="1002"),
        "renamed": provider.token(sub="1003", preferred_username="alice@127.0.0.1"),
        "caller": provider.token(sub="1004", preferred_username="user:alice"),
        "unnamed": provider.token(sub="1005", preferred_username=None),
    }
    for who, token in people.items():
        async with client_of(url, token) as client:
            told = await call(
                client, "run_plan", calls=[{"_tool": "count_words", "text": f"of {who}"}]
            )
            runs[who] = told["run"]
            others = [
                await refused(client, "check_run", run=run)
                for one, run in runs.items()
                if one != who
            ]
            assert all("unknown run" in one for one in others)

    # The person has a different name from now on, but is still the same.
    async with client_of(url, provider.token(preferred_username="Somebody Else")) as client:
        assert [one["run"] for one in (await call(client, "check_run"))["runs"]] == [runs["first"]]

    with Store.open(tmp_path / "ideas.sqlite") as store:
        records = [store.runs.get(run) for run in runs.values()]
        callers = [one.caller for one in records if one is not None]
        assert len({*callers}) == len(people)
        assert callers[:2] == ["user:alice", "user:alice@127.0.0.1"]
        assert callers[2].startswith("user:alice@127.0.0.1.")
        assert callers[5] == "user:1005@127.0.0.1"
        store.users.change("alice@127.0.0.1", state="disabled")

    assert await status(url, provider.token()) == 401
    assert await status(url, provider.token(sub="1002")) != 401
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.change("alice@127.0.0.1", state="removed")

    assert await status(url, provider.token()) == 401
    async with client_of(url, own) as client:
        await all_tools(client)


async def test_clients_are_told_where_to_get_a_token_and_which_scopes_it_needs(
    provider: Provider, tmp_path: Path
) -> None:
    auth = {"issuer": provider.issuer, "audience": AUDIENCE, "scopes": ["tools:use"]}
    with http_process(configured(tmp_path, auth=auth)) as url:
        base = url.removesuffix("/mcp")
        async with httpx2.AsyncClient(headers=ACCEPT) as http:
            refusal = await http.post(url, json=PING)
            where = "https://tools.example/.well-known/oauth-protected-resource/mcp"
            assert refusal.status_code == 401
            assert f'resource_metadata="{where}"' in refusal.headers["www-authenticate"]
            metadata = (await http.get(f"{base}/.well-known/oauth-protected-resource/mcp")).json()
        assert metadata["resource"] == AUDIENCE
        assert metadata["authorization_servers"] == [provider.issuer]
        assert metadata["scopes_supported"] == ["tools:use"]
        assert await status(url, provider.token()) == 403
        assert await status(url, provider.token(scope="tools:used other")) == 403
        claims: tuple[dict[str, Any], ...] = ({"scope": "other tools:use"}, {"scp": ["tools:use"]})
        for claim in claims:
            assert await status(url, provider.token(**claim)) not in (401, 403)


async def test_a_token_without_the_scope_opens_no_door(provider: Provider, tmp_path: Path) -> None:
    auth = {"issuer": provider.issuer, "audience": AUDIENCE, "scopes": ["tools:use"]}
    command = served(configured(tmp_path, auth=auth), "--http", "127.0.0.1:0", "--ui", "--metrics")
    with listening(command) as url:
        base = url.removesuffix("/mcp")
        async with httpx2.AsyncClient(base_url=base) as web:
            token = provider.token(scope="other")
            for path in ("/mcp", "/metrics"):
                answer = await web.get(path, headers={"authorization": f"Bearer {token}"})
                assert answer.status_code == 403
                assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]

            answer = await web.post("/ui/sign-in", data={"token": token})
            assert answer.status_code == 403
            assert "lacks the scope tools:use" in answer.text
            assert (await web.get("/ui/runs")).status_code == 303
            # A token with this scope lets the same person in.
            assert (
                await web.post("/ui/sign-in", data={"token": provider.token(scope="tools:use")})
            ).status_code == 303
            assert (await web.get("/ui/runs")).status_code == 200


async def test_keys_are_those_of_now_and_outlive_a_provider_that_is_down_for_a_while() -> None:
    provider = Provider()
    thread = threading.Thread(target=provider.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        now = 0.0
        identities = IdentityProvider(provider.settings(), clock=lambda: now)
        provider.down = True
        with pytest.raises(ProviderError, match="status 503"):
            await identities.identify(provider.token())

        provider.down = False
        with pytest.raises(ProviderError):
            await identities.identify(provider.token())

        now += PAUSE_SECONDS + 1
        old = provider.token()
        assert await identities.identify(old) is not None
        # A new key is found when a token names it, but not more often than the pause allows.
        withdrawn = provider.keys.pop("rsa")
        provider.keys["new"] = rsa.generate_private_key(65537, 2048)
        assert await identities.identify(provider.token("new")) is None
        now += PAUSE_SECONDS + 1
        assert await identities.identify(provider.token("new")) is not None
        assert await identities.identify(old) is None
        # While the provider is down, its keys stay valid for a day and no longer.
        provider.down = True
        now += FRESH_SECONDS + 1
        assert await identities.identify(provider.token("new")) is not None
        now += STALE_SECONDS
        with pytest.raises(ProviderError):
            await identities.identify(provider.token("new"))

        provider.down = False
        now += PAUSE_SECONDS + 1
        assert await identities.identify(provider.token("new")) is not None
        assert await identities.identify(provider.token("rsa", key=withdrawn)) is None
    finally:
        provider.server.shutdown()
        thread.join()
        provider.server.server_close()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/team/keys", (302, b"")),
        ("/team/keys", (200, b"[]")),
        ("/team/keys", (200, b'{"keys": 1}')),
        ("/team/keys", (200, b'{"keys": [' + b" " * 300_000 + b"]}")),
        ("/team/keys", (200, b"\xff\xfe")),
        (
            "/team/.well-known/openid-configuration",
            (200, b'{"issuer": "https://evil.example", "jwks_uri": "https://x"}'),
        ),
        (
            "/team/.well-known/openid-configuration",
            (200, b'{"issuer": "ISSUER", "jwks_uri": "http://192.0.2.1/keys"}'),
        ),
        (
            "/team/.well-known/openid-configuration",
            (200, b'{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}'),
        ),
    ],
)
async def test_what_the_provider_answers_is_checked(
    provider: Provider, path: str, answer: tuple[int, bytes]
) -> None:
    identities = IdentityProvider(provider.settings())
    provider.answers = {path: (answer[0], answer[1].replace(b"ISSUER", provider.issuer.encode()))}
    try:
        with pytest.raises(ProviderError):
            await identities.identify(provider.token())
    finally:
        provider.answers = {}


async def test_a_small_key_or_a_key_that_is_none_checks_nothing(provider: Provider) -> None:
    small = rsa.generate_private_key(65537, 1024)
    weak = {**RSAAlgorithm.to_jwk(small.public_key(), as_dict=True), "kid": "rsa"}
    broken = {"kty": "RSA", "kid": "broken", "n": "AQAB", "e": "!!"}
    provider.answers = {
        "/team/keys": (200, json.dumps({"keys": [weak, broken, 7, {"kid": []}]}).encode())
    }
    try:
        identities = IdentityProvider(provider.settings())
        with pytest.warns(match="below"):
            token = provider.token(key=small)

        assert await identities.identify(token) is None
        assert await identities.identify(provider.token("broken", key=provider.keys["rsa"])) is None
    finally:
        provider.answers = {}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"issuer": "http://login.example"}, "auth.issuer: .*https://"),
        ({"issuer": "https://user:secret@login.example"}, "auth.issuer"),
        ({"jwks_url": "file:///etc/passwd"}, "auth.jwks_url"),
        ({"audience": ""}, "auth.audience"),
        ({"algorithms": ["HS256"]}, "auth.algorithms.0: expected"),
        ({"algorithms": ["none"]}, "auth.algorithms.0: expected"),
        ({"algorithms": []}, "auth.algorithms"),
        ({"isuer": "x"}, "Did you mean 'issuer'"),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(changed: dict[str, Any], told: str) -> None:
    auth = {"issuer": "https://login.example", "audience": AUDIENCE, **changed}
    with pytest.raises(ConfigurationError, match=told):
        parse_configuration({"auth": auth})
