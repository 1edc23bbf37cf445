"""A server over HTTP that wants tokens, and its authorization server: both of the SDK, in the process of the tests."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import orjson
import uvicorn
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


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Issues tokens to everybody who asks. A refresh token is good for one use.

    Attributes:
        expires_in: seconds that the next access tokens are valid.
        refreshed: how often tokens were renewed.
        asked: the scopes of each authorization.
        down: answer requests for tokens with 503.
    """

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.expires_in = 3600
        self.refreshed = 0
        self.asked: list[list[str]] = []
        self.down = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        # Whoever registers may ask for every scope.
        self.clients[client_info.client_id] = client_info.model_copy(update={"scope": "read write"})

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
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

    def issue(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        ends = int(time.time()) + self.expires_in
        self.access[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, expires_at=ends, resource=resource
        )
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(
            access_token=access, expires_in=self.expires_in, scope=" ".join(scopes), refresh_token=refresh
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refreshing.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant", "it was used")
        self.refreshed += 1
        return self.issue(client.client_id, refresh_token.scopes, None)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refreshing.pop(token.token, None)


class Steps:
    """In front of the server: calls of `write` need the scope `write`, and every request is noted."""

    def __init__(self, app: ASGIApp, server: Authorized) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
        token = headers.get("authorization", "").removeprefix("Bearer ")
        self._server.requests.append((scope["path"], token))
        if scope["path"] == "/token" and self._server.provider.down:
            await self._refuse(send, 503, "")
            return
        if scope["path"] != "/mcp" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        known = self._server.provider.access.get(token)
        asked: dict[str, Any] = orjson.loads(body)
        writes = asked.get("method") == "tools/call" and asked["params"]["name"] == "write"
        if writes and known is not None and "write" not in known.scopes:
            await self._refuse(send, 403, 'Bearer error="insufficient_scope", scope="write"')
            return
        sent = False

        async def again() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)

    @staticmethod
    async def _refuse(send: Send, status: int, challenge: str) -> None:
        headers = [(b"www-authenticate", challenge.encode())] if challenge else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


class Authorized:
    """The server.

    Attributes:
        url: its address.
        requests: (path, token) of each request.
    """

    def __init__(self, base: str) -> None:
        self.base, self.url = base, f"{base}/mcp"
        self.provider = Provider()
        self.requests: list[tuple[str, str]] = []
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

        self.app = Steps(server.streamable_http_app(json_response=True), self)

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
async def authorized() -> AsyncGenerator[Authorized]:
    """A server that serves while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = Authorized(f"http://127.0.0.1:{listening.getsockname()[1]}")
        config = uvicorn.Config(served.app, log_config=None, log_level="critical", timeout_graceful_shutdown=0)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: server.serve(sockets=[listening]))
            try:
                yield served
            finally:
                server.should_exit = server.force_exit = True


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
