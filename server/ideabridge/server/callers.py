"""Callers: who sends a request, and how a bearer token proves it over HTTP.

A caller is a name: `local` on this machine, `user:NAME` for a named user, `token_HASH` for the token of
IDEABRIDGE_TOKEN. A run belongs to the caller that started it; other callers do not see it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.bridge.bridge import TOKEN_VARIABLE as TOKEN_VARIABLE
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL
from ideabridge.server.transports.quotas import QuotaError
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.server.transports.identity import IdentityProvider

logger = logging.getLogger(__name__)


Context = ServerRequestContext[Any, Any]
"""The SDK's context of a request."""


def caller_of(context: Context) -> str:
    """The caller of a request."""
    request = context.request
    return caller_in(request.scope) if isinstance(request, Request) else LOCAL


def caller_in(scope: Scope) -> str:
    """The caller of a request over HTTP, by its ASGI scope."""
    user: Any = scope.get("user")
    return user.access_token.client_id if isinstance(user, AuthenticatedUser) else LOCAL


def session_id(context: Context) -> str:
    """The id of an HTTP session of the handshake era; empty on stdio, and for requests without a session."""
    request = context.request
    return request.headers.get("mcp-session-id", "") if isinstance(request, Request) else ""


def client_key(context: Context) -> Hashable:
    """A key for a client: its session, or over HTTP without a session its connection. User and address are the same for
    all assistants on one machine.
    """
    http = context.request
    if not isinstance(http, Request):
        return "stdio"
    return ("client", caller_of(context), http.headers.get("mcp-session-id") or http.client)


def token_caller(token: str) -> str:
    """The caller that a token identifies; the name does not reveal the token."""
    return f"token_{hashlib.sha256(token.encode()).hexdigest()[:16]}"


class Credentials:
    """The valid tokens: those of named users, those of an identity provider, and the one of IDEABRIDGE_TOKEN.

    Args:
        store: has the users. Every request reads it, so that a revoked token is invalid at once in every process.
        token: the token of IDEABRIDGE_TOKEN, or None.
        provider: the identity provider, or None.
    """

    def __init__(self, store: Store, *, token: str | None = None, provider: IdentityProvider | None = None) -> None:
        self._users = store.users
        self._token = None if token is None else token.encode()
        self._caller = None if token is None else token_caller(token)
        self._provider = provider

    @property
    def are_required(self) -> bool:
        """Return whether requests need a token: one is set, or there is a provider, or there ever was a named user."""
        return self._token is not None or self.name_users

    @property
    def name_users(self) -> bool:
        """Return whether requests may come from several people: there is a provider, or there ever was a named user."""
        return self._provider is not None or self._users.exist()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that every token must have."""
        return () if self._provider is None else self._provider.settings.scopes

    async def verify(self, token: bytes) -> AccessToken | None:
        """The user of a token; None if the token is unknown or no longer valid.

        Raises:
            ProviderError: the identity provider's keys are not available.
            StoreError: the users cannot be read.
        """
        if self._token is not None and self._caller is not None and hmac.compare_digest(token, self._token):
            return AccessToken(token="", client_id=self._caller, scopes=list(self.scopes))
        text = token.decode("latin-1")
        known = self._users.verify(text)
        if known is not None:
            return AccessToken(token="", client_id=known[0].caller, scopes=list(self.scopes))
        identity = None if self._provider is None else await self._provider.identify(text)
        if identity is None:
            return None
        user = self._users.of_subject(identity.issuer, identity.subject, identity.shown)
        if user.state != "active":
            return None
        return AccessToken(
            token="",
            client_id=user.caller,
            scopes=list(identity.scopes),
            expires_at=math.ceil(identity.expires),
            subject=identity.subject,
            claims={"iss": identity.issuer},
        )


WATCH_SECONDS: Final = 1.0
"""Seconds between two checks of the tokens of requests in progress."""


class BearerGate:
    """ASGI middleware that passes requests with a valid bearer token on, and adds their user.

    `spend` counts one request of a caller. `metadata` is the route of the metadata of the protected resource (RFC 9728)
    and its address, or None.
    """

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        spend: Callable[[str], None],
        metadata: tuple[Route, str] | None = None,
    ) -> None:
        self._app = app
        self._spend = spend
        self._credentials = credentials
        self._metadata = metadata
        # The tokens of requests in progress, by the scope that ends the request.
        self._served: dict[anyio.CancelScope, bytes] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._metadata is not None and scope["path"] == self._metadata[0].path:
            await self._metadata[0].handle(scope, receive, send)
            return
        try:
            token = _bearer(scope)
            access = None if token is None else await self._credentials.verify(token)
            is_open = access is None and not self._credentials.are_required
        except IdeabridgeError as error:
            # The users or the provider's keys are not available: nobody gets access.
            logger.error("ideabridge: a request is refused: %s", error)
            response = _refusal(503, "temporarily_unavailable", "tokens cannot be checked now", {"Retry-After": "30"})
            await response(scope, receive, send)
            return
        if is_open:
            await self._app(scope, receive, send)
        elif token is None or access is None:
            await self._unknown()(scope, receive, send)
        elif (refusal := self._refusal_of(access)) is not None:
            await refusal(scope, receive, send)
        else:
            # The SDK binds a session to the user that opened it.
            scope["user"] = AuthenticatedUser(access)
            await self._serve(token, scope, receive, send)

    def _refusal_of(self, access: AccessToken) -> JSONResponse | None:
        """The answer to a request with a valid token that lacks a scope, or whose caller sends too many requests."""
        for scope in self._credentials.scopes:
            if scope not in access.scopes:
                challenge = self._challenge("insufficient_scope", f' scope="{" ".join(self._credentials.scopes)}",')
                return _refusal(403, "insufficient_scope", f"the token lacks the scope {scope}", challenge)
        try:
            self._spend(access.client_id)
        except QuotaError as error:
            later = {"Retry-After": str(math.ceil(error.retry_after))}
            return _refusal(429, "too_many_requests", str(error), later)
        return None

    async def _serve(self, token: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        begun = ended = False

        async def watched_send(message: Message) -> None:
            nonlocal begun, ended
            begun = True
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with anyio.CancelScope() as limit:
            self._served[limit] = token
            try:
                await self._app(scope, receive, watched_send)
            finally:
                del self._served[limit]
        if limit.cancelled_caught and not begun:
            await self._unknown()(scope, receive, send)
        elif limit.cancelled_caught and not ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _unknown(self) -> JSONResponse:
        why = "expected the header Authorization: Bearer TOKEN with a valid token; `ideabridge users add` makes one"
        return _refusal(401, "invalid_token", why, self._challenge("invalid_token"))

    def _challenge(self, error: str, more: str = "") -> dict[str, str]:
        where = f', resource_metadata="{self._metadata[1]}"' if self._metadata is not None else ""
        return {"WWW-Authenticate": f'Bearer{more} error="{error}"{where}'}

    async def watch(self) -> None:
        """End requests whose token became invalid, until cancelled. A stream may stay open for days."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            for token in set(self._served.values()):
                try:
                    valid = await self._credentials.verify(token) is not None
                except IdeabridgeError:
                    # The token cannot be checked now; it is checked again later.
                    continue
                for scope, used in self._served.items():
                    if used == token and not valid:
                        scope.cancel()


def _bearer(scope: Scope) -> bytes | None:
    """Return the bearer token of a request; None unless the request has exactly one."""
    values = [value for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]) if name == b"authorization"]
    scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return token.strip() if scheme.lower() == b"bearer" and token.strip() else None


def _refusal(status: int, error: str, why: str, headers: Mapping[str, str]) -> JSONResponse:
    return JSONResponse({"error": error, "error_description": why}, status, headers)
