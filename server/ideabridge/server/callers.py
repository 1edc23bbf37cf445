"""Callers: who asks, and the bearer token that tells it over HTTP (DESIGN 6, 7).

A caller is a name. Runs belong to the caller that started them; nobody else sees them.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ideabridge.bridge.keeping import TOKEN_VARIABLE as TOKEN_VARIABLE

if TYPE_CHECKING:
    from mcp_types import ElicitResult

    from ideabridge.bridge.run import Run
    from ideabridge.server.rounds import Round

LOCAL: Final = "local"
"""The caller of stdio and of HTTP on loopback without a token: the person at this machine."""


@dataclass(slots=True)
class Asked:
    """One request for a tool: who asks, and the way back for progress.

    Attributes:
        resumed: the run the request started already, where it comes again with what a person said.
        round: how often questions went out for it, and which were left open.
        sampled: how often the client's model was asked on its back-channel, one question after the other.
        halted: its model is asked no more within this request.
        key: what tells a client without a session from others; kept in the rounds of the request.
        said: what a person said to a form that is about no run, and how many seconds after it went out, where the
            request comes again with it.
        told: notes for the caller: why it is asked for a solution, say.
    """

    caller: str
    context: ServerRequestContext[Any, Any]
    resumed: Run | None = None
    round: Round | None = None
    sampled: int = 0
    halted: bool = False
    key: str = ""
    said: tuple[ElicitResult, float] | None = None
    told: list[str] = field(default_factory=list[str])

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for progress notifications."""
        meta = self.context.meta
        return meta is not None and "progress_token" in meta


def caller_of(context: ServerRequestContext[Any, Any]) -> str:
    """The caller of a request."""
    request = context.request
    return caller_in(request.scope) if isinstance(request, Request) else LOCAL


def caller_in(scope: Scope) -> str:
    """The caller of a request over HTTP, by its ASGI scope."""
    user: Any = scope.get("user")
    return user.access_token.client_id if isinstance(user, AuthenticatedUser) else LOCAL


def token_caller(token: str) -> str:
    """The caller a token stands for; tells nothing of the token."""
    return f"token_{hashlib.sha256(token.encode()).hexdigest()[:16]}"


class BearerGate:
    """ASGI middleware: lets requests with the bearer token through, and notes whose they are.

    Args:
        app: what is behind it.
        token: the one token; compared in constant time.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()
        self._user = AuthenticatedUser(AccessToken(token="", client_id=token_caller(token), scopes=[]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or answer it 401."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._admits(scope):
            response = Response(
                '{"error":"invalid_token","error_description":"expected the header Authorization: Bearer TOKEN"}',
                status_code=401,
                media_type="application/json",
                headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
            )
            await response(scope, receive, send)
            return
        # The SDK ties a session to the user that opened it.
        scope["user"] = self._user
        await self._app(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        given = [
            value for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]) if name == b"authorization"
        ]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)
