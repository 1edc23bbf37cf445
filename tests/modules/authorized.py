"""A server over HTTP that wants tokens, and its authorization server: both of the SDK, in the
process of the tests.
"""

from __future__ import annotations

import base64
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import jwt
import orjson
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.bridge.modules.device import DEVICE_GRANT, DeviceCode, DevicePerson
from tests.web_server import serving

_METADATA = "/.well-known/oauth-authorization-server"
_ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Issues tokens to everybody who asks. A refresh token is good for one use.

    Attributes:
        person: who signs in next.
        persons: who signed in for each token.
        expires_in: seconds that the next access tokens are valid.
        refreshed: how often tokens were renewed.
        asked: the scopes of each authorization.
        down: answer requests for tokens with this status.
        refuses: the server refuses every token.
        renewing: set while tokens are renewed.
        may_renew: renewing waits for this.
    """

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.person = ""
        self.persons: dict[str, str] = {}
        self.expires_in = 3600
        self.refreshed = 0
        self.asked: list[list[str]] = []
        self.down: int | None = None
        self.refuses = False
        self.renewing, self.may_renew = anyio.Event(), anyio.Event()
        self.may_renew.set()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        # Anyone who registers may ask for every scope.
        self.clients[client_info.client_id] = client_info.model_copy(update={"scope": "read write"})

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = secrets.token_urlsafe(24)
        self.asked.append(params.scopes or [])
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    def issue(
        self, client: str, scopes: list[str], resource: str | None, person: str = ""
    ) -> OAuthToken:
        access = f"access-{secrets.token_hex(16)}"
        refresh = f"refresh-{secrets.token_hex(16)}"
        self.persons |= {access: person, refresh: person}
        ends = int(time.time()) + self.expires_in
        self.access[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, expires_at=ends, resource=resource
        )
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(
            access_token=access,
            expires_in=self.expires_in,
            scope=" ".join(scopes),
            refresh_token=refresh,
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.issue(
            client.client_id, authorization_code.scopes, authorization_code.resource, self.person
        )

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refreshing.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant", "it was used")
        self.refreshed += 1
        self.renewing.set()
        await self.may_renew.wait()
        return self.issue(
            client.client_id, refresh_token.scopes, None, self.persons[refresh_token.token]
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        return None if self.refuses else self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refreshing.pop(token.token, None)


class Steps:
    """In front of the server: every request is noted, calls of `write` need the scope `write`, and
    there are tokens for clients with credentials.
    """

    def __init__(self, app: ASGIApp, server: Authorized) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
        token = headers.get("authorization", "").removeprefix("Bearer ")
        self._server.requests.append((scope["path"], token))
        for path, change in self._server.changed.items():
            if scope["path"].startswith(path):
                send = _changing(send, change)

        if scope["path"].startswith(f"{_METADATA}/"):
            # An issuer with a path has its metadata here.
            scope = {**scope, "path": _METADATA}

        if scope["path"] == "/token" and self._server.provider.down is not None:
            await self._refuse(send, self._server.provider.down, "")
            return
        if scope["path"].startswith(self._server.missing):
            await self._refuse(send, 404, "")
            return
        if (
            scope["path"].startswith("/.well-known/oauth-protected-resource")
            and self._server.metadata is not None
        ):
            await self._answer(send, orjson.dumps(self._server.metadata))
            return

        devices = self._server.devices
        if devices is None:
            taken = ("/mcp", "/token")
        else:
            taken = ("/mcp", "/token", "/register", "/device")

        if devices is not None and scope["method"] == "GET":
            found = devices.get(scope["path"], parse_qs(scope["query_string"].decode()))
            if found is not None:
                await self._answer(send, found)
                return

        if scope["path"] not in taken or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return

        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)

        if devices is not None and scope["path"] != "/mcp":
            answer = devices.post(scope["path"], headers, body)
            if answer is not None:
                await self._answer(send, answer[1], answer[0])
                return

            await self._app(scope, _again(body, receive), send)
            return

        if scope["path"] == "/token":
            fields = {key: values[0] for key, values in parse_qs(body.decode()).items()}
            if fields["grant_type"] == "client_credentials":
                await self._give(send, headers, fields)
                return

            await self._app(scope, _again(body, receive), send)
            return

        if self._server.challenge is not None and not token:
            await self._refuse(send, 401, self._server.challenge)
            return

        known = self._server.provider.access.get(token)
        asked: dict[str, Any] = orjson.loads(body)
        writes = asked.get("method") == "tools/call" and asked["params"]["name"] == "write"
        if writes and known is not None and "write" not in known.scopes:
            demanded = self._server.demanded
            await self._refuse(send, 403, f'Bearer error="insufficient_scope", scope="{demanded}"')
            return

        if self._server.cuts_off and token:
            start = {"status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            await send({"type": "http.response.start", **start})
            raise ConnectionAbortedError

        if self._server.is_open and asked.get("method") != "tools/call" and not token:
            # Pass a token, as if this request needed none.
            passed = self._server.provider.issue("anybody", ["read"], None).access_token
            scope = {
                **scope,
                "headers": [*scope["headers"], (b"authorization", f"Bearer {passed}".encode())],
            }

        await self._app(scope, _again(body, receive), send)

    async def _give(self, send: Send, headers: dict[str, str], fields: dict[str, str]) -> None:
        """Tokens for the client `reports`, by its secret in the header or the body, or
        by its signature.
        """
        assertion = fields.get("client_assertion")
        if assertion is not None:
            told = jwt.decode(
                assertion,
                self._server.public_key,
                algorithms=["ES256"],
                audience=f"{self._server.base}/",
            )
            known = told["sub"] == "reports"
        else:
            basic = headers.get("authorization", "").removeprefix("Basic ")
            secret = (
                base64.b64decode(basic).decode()
                or f"{fields.get('client_id')}:{fields.get('client_secret')}"
            )
            known = secret == "reports:the-secret-of-reports"

        if not known:
            await self._refuse(send, 401, "")
            return

        self._server.given.append(sorted(fields))
        tokens = self._server.provider.issue(
            "reports", fields.get("scope", "").split(), fields.get("resource")
        )
        tokens.refresh_token = None
        await self._answer(send, tokens.model_dump_json(exclude_none=True).encode())

    @staticmethod
    async def _answer(send: Send, body: bytes, status: int = 200) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @staticmethod
    async def _refuse(send: Send, status: int, challenge: str) -> None:
        headers = [(b"www-authenticate", challenge.encode())] if challenge else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _changing(send: Send, change: Callable[[dict[str, Any]], object]) -> Send:
    """Sends an answer, of which the object is changed, or replaced by what `change` returns."""
    started: Message = {}
    content = b""

    async def changing(message: Message) -> None:
        nonlocal started, content
        if message["type"] == "http.response.start":
            started = message
            return

        content += message.get("body", b"")
        if message.get("more_body", False):
            return

        if started["status"] < 300:
            document = orjson.loads(content)
            changed = change(document)
            if isinstance(changed, bytes):
                content = changed
            else:
                content = orjson.dumps(document)

        headers = [pair for pair in started["headers"] if pair[0].lower() != b"content-length"]
        await send({**started, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return changing


def _again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read already."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class Devices:
    """The device grant (RFC 8628) of the authorization server: a code is entered at `/activate`.

    Args:
        base: the server's address.
        provider: issues the tokens.

    Attributes:
        metadata: fields of the server's metadata that differ.
        offered: fields of the answer to a device authorization request that differ; None: the
            field is missing.
        refusal: the error with which device authorization requests are refused.
        answers: how the next requests for tokens are answered, whether or not the code was entered:
            an error, a status, or a whole answer.
        status: the status of errors.
        registered: the grant types of each client that was registered.
        begun: the fields of each device authorization request.
        asked: the fields of each request for tokens.
    """

    def __init__(self, base: str, provider: Provider) -> None:
        self._base = base
        self._provider = provider
        self.metadata: dict[str, Any] = {"device_authorization_endpoint": f"{base}/device"}
        self.offered: dict[str, Any] = {}
        self.refusal: str | None = None
        self.answers: list[str | int | bytes] = []
        self.status = 400
        self.registered: list[list[str]] = []
        self.begun: list[dict[str, str]] = []
        self.asked: list[dict[str, str]] = []
        self._entered: set[str] = set()

    def get(self, path: str, query: dict[str, list[str]]) -> bytes | None:
        """The metadata of the server, or the page at which a code is entered."""
        if path.startswith(_METADATA):
            addresses = {
                f"{name}_endpoint": f"{self._base}/{path}" for name, path in _ENDPOINTS.items()
            }
            return orjson.dumps({"issuer": f"{self._base}/", **addresses, **self.metadata})

        if path == "/activate":
            self._entered |= set(query["user_code"])
            return b"{}"
        return None

    def post(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes] | None:
        """The status and the answer; None if the request is not about a device."""
        if path == "/register":
            return self._register(orjson.loads(body))

        fields = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        if path == "/token" and fields["grant_type"] != DEVICE_GRANT:
            return None

        client = self._provider.clients.get(fields["client_id"])
        basic = base64.b64decode(headers.get("authorization", "").removeprefix("Basic ")).decode()
        if client is None or client.client_secret not in (
            fields.get("client_secret"),
            basic.partition(":")[2],
        ):
            return 401, orjson.dumps({"error": "invalid_client"})

        return self._begin(fields) if path == "/device" else self._give(fields)

    def _register(self, asked: dict[str, Any]) -> tuple[int, bytes] | None:
        self.registered.append(asked["grant_types"])
        if DEVICE_GRANT not in asked["grant_types"]:
            return None

        given = {
            "client_id": secrets.token_hex(8),
            "client_secret": secrets.token_hex(8),
            "scope": "read write",
        }
        method = {"token_endpoint_auth_method": "client_secret_post"}
        client = OAuthClientInformationFull.model_validate({**asked, **given, **method})
        self._provider.clients[client.client_id] = client
        return 201, client.model_dump_json(exclude_none=True).encode()

    def _begin(self, fields: dict[str, str]) -> tuple[int, bytes]:
        self.begun.append(fields)
        if self.refusal is not None:
            return 400, orjson.dumps({"error": self.refusal})
        number = len(self.begun)
        answer: dict[str, Any] = {
            "device_code": f"device-code-{number}",
            "user_code": f"WDJB-{number:04}",
            "verification_uri": f"{self._base}/activate",
            "verification_uri_complete": f"{self._base}/activate?user_code=WDJB-{number:04}",
            "expires_in": 1800,
            "interval": 5,
        } | self.offered
        return 200, orjson.dumps({key: value for key, value in answer.items() if value is not None})

    def _give(self, fields: dict[str, str]) -> tuple[int, bytes]:
        self.asked.append(fields)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, str):
                return self.status, orjson.dumps({"error": answer})
            return (answer, b"") if isinstance(answer, int) else (200, answer)

        number = int(fields["device_code"].removeprefix("device-code-"))
        if f"WDJB-{number:04}" not in self._entered:
            return self.status, orjson.dumps({"error": "authorization_pending"})

        begun = self.begun[number - 1]
        provider = self._provider
        scopes = begun.get("scope", "").split()
        tokens = provider.issue(
            fields["client_id"], scopes, fields.get("resource"), provider.person
        )
        return 200, tokens.model_dump_json(exclude_none=True).encode()


class Authorized:
    """The server.

    Attributes:
        url: its address.
        requests: (path, token) of each request.
        told: who signed in for the token of each call of `whoami`.
        is_open: only calls of tools need a token.
        cuts_off: the answers to requests with a token end early.
        public_key: of the client `reports`, in PEM.
        challenge: what a request without a token is answered with, in place of the truth.
        demanded: the scopes that a call of `write` is refused for, separated by spaces.
        missing: the beginnings of paths that do not exist.
        metadata: what the module says about itself, in place of the truth.
        given: the fields of each request for tokens with credentials.
        devices: the device grant, if the authorization server offers it.
        changed: what is done with the JSON of successful answers, by the beginnings of their paths.
    """

    def __init__(self, base: str, *, sse: bool) -> None:
        self.base, self.url = base, f"{base}/{'sse' if sse else 'mcp'}"
        self.provider = Provider()
        self.requests: list[tuple[str, str]] = []
        self.told: list[str] = []
        self.is_open = False
        self.cuts_off = False
        self.public_key = ""
        self.given: list[list[str]] = []
        self.devices: Devices | None = None
        self.challenge: str | None = None
        self.demanded = "write"
        self.missing: tuple[str, ...] = ()
        self.metadata: dict[str, Any] | None = None
        self.changed: dict[str, Callable[[dict[str, Any]], object]] = {}
        inside = 0
        met = anyio.Event()
        server = MCPServer(
            "tickets",
            auth_server_provider=self.provider,
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(base),
                resource_server_url=AnyHttpUrl(self.url),
                client_registration_options=ClientRegistrationOptions(enabled=True),
                required_scopes=["read"],
                validate_token_resource=False,
            ),
        )
        reads = ToolAnnotations(read_only_hint=True)

        @server.tool(annotations=reads, structured_output=False)
        async def read() -> str:
            """Read."""
            return "read"

        @server.tool(annotations=reads, structured_output=False)
        async def write() -> str:
            """Write."""
            return "written"

        @server.tool(annotations=reads, structured_output=False)
        async def meet() -> str:
            """End once two calls are here."""
            nonlocal inside
            inside += 1
            if inside == 2:
                met.set()
            await met.wait()
            return "met"

        @server.tool(annotations=reads, structured_output=False)
        async def show() -> str:
            """Show the token of this call."""
            token = get_access_token()
            assert token is not None
            return f"the token is {token.token}"

        @server.tool(annotations=reads, structured_output=False)
        async def whoami() -> str:
            """Tell who has signed in for the token of this call."""
            token = get_access_token()
            assert token is not None
            self.told.append(self.provider.persons[token.token] or "nobody")
            return f"you are {self.told[-1]}"

        @server.resource("tickets://mine")
        async def mine() -> str:
            """The tickets of whoever has signed in."""
            return await whoami()

        self.app = Steps(
            server.sse_app() if sse else server.streamable_http_app(json_response=True), self
        )

    def offer_devices(self) -> Devices:
        """Offer the device grant."""
        self.devices = Devices(self.base, self.provider)
        return self.devices

    @property
    def tokens(self) -> set[str]:
        """The tokens that the server was sent."""
        return {token for path, token in self.requests if path == "/mcp" and token}

    def revoke(self, *, refreshing: bool = False) -> None:
        """Withdraw the access tokens; with `refreshing`, also those that renew them."""
        self.provider.access.clear()
        if refreshing:
            self.provider.refreshing.clear()


@asynccontextmanager
async def authorized(*, sse: bool = False) -> AsyncGenerator[Authorized]:
    """A server that serves while the block runs: over streamable HTTP, or over the older SSE."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = Authorized(f"http://127.0.0.1:{listening.getsockname()[1]}", sse=sse)
        async with serving(served.app, listening):
            yield served


class Browser:
    """A person with a browser, who agrees at once.

    Args:
        changed: fields that arrive changed in the address that the browser is sent back to.

    Attributes:
        opened: the addresses.
    """

    redirect_uri = "http://127.0.0.1:41998/callback"

    def __init__(self, **changed: str) -> None:
        self.changed = changed
        self.opened: list[str] = []

    async def authorize(self, url: str) -> str:
        self.opened.append(url)
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(url)
        back = urlsplit(response.headers["location"])
        fields = {key: values[0] for key, values in parse_qs(back.query).items()} | self.changed
        return str(httpx2.URL(back._replace(query="").geturl(), params=fields))


class Phone:
    """A person with a browser on another device, who agrees at once or later. Its
    waits take no time.

    Args:
        agrees_at: the wait after a code is shown in which the person enters it; 0: the
            person does not.
        on_wait: called in each wait.

    Attributes:
        person: for `Modules`.
        shown: what the person has seen.
        waits: the seconds between the questions for tokens.
    """

    def __init__(self, agrees_at: int = 1, on_wait: Callable[[], None] = lambda: None) -> None:
        self.shown: list[DeviceCode] = []
        self.waits: list[float] = []
        self._agrees_at = agrees_at
        self._on_wait = on_wait
        self._left = 0
        self.person = DevicePerson(self._show, sleep=self._wait, clock=lambda: sum(self.waits))

    def _show(self, code: DeviceCode) -> None:
        self.shown.append(code)
        self._left = self._agrees_at

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._on_wait()
        self._left -= 1
        if self._left == 0:
            code = self.shown[-1]
            async with httpx2.AsyncClient() as browser:
                await browser.get(code.complete or f"{code.address}?user_code={code.code}")
