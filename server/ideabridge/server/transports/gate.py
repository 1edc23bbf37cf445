"""Check every HTTP request in five steps.

1. Health. `/healthz` and `/readyz` are answered immediately, for any Host, and do not count towards
   any caller.
2. Host and Origin. Both must be names of this server (`HostNames`).
3. The caller. The door for the path identifies the caller by the token or the page session. A door
   that must know the caller rejects the request if it cannot identify one.
4. Shares. The shares of this caller are counted across all doors: requests per minute, connections
   with a request in progress, streams, and pages in progress. More sessions, tokens, connections or
   doors do not give a caller a larger share.
5. The body. Only now is the request admitted, and the application behind the door reads its body.

If the token or session of a request becomes invalid, the gate ends the request within about a
second. A page that is being loaded ends when the browser disconnects.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.bridge.profiles import ProfileError
from ideabridge.bridge.store.users import LOCAL, owner_of
from ideabridge.server.callers import MissingScopeError, ProfileRefusedError
from ideabridge.server.operations.requests import note_user
from ideabridge.server.transports.connections import connection_of
from ideabridge.server.transports.quotas import QuotaError, Quotas
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.turns import asked_by

if TYPE_CHECKING:
    from ideabridge.bridge.profiles import Profiles
    from ideabridge.server.callers import Credentials

logger = logging.getLogger(__name__)

CALLS: Final = "/mcp"
WORKSPACES: Final = f"{CALLS}/w/"
PROFILES: Final = f"{CALLS}/p/"
_USABLE_NAME: Final = re.compile("[A-Za-z0-9._:-]+")
_PROFILE: Final = "ideabridge.profile"
"""The key, in the scope of a request, of the profile in its address."""

PAGE: Final = "/ui"
ALIVE: Final = "/healthz"
READY: Final = "/readyz"

STATIC: Final = f"{PAGE}/static/"
WORKSPACE_PAGES: Final = f"{PAGE}/w/"
_LIVE: Final = re.compile(f"({WORKSPACE_PAGES}[^/]+|{PAGE})/live")
SIGN_IN: Final = f"{PAGE}/sign-in"

WATCH_SECONDS: Final = 1.0
"""Interval, in seconds, at which the tokens and sessions of requests in progress are checked."""

_MOST_STREAMS: Final = 200
"""Maximum number of streams that one caller can have open. It covers notification streams (an MCP
GET; each client of the handshake era opens one) and the streams of open pages, counted together.
"""

_MOST_PAGES: Final = 16
"""Maximum number of page requests from one caller that are in progress, not counting streams. A
browser has six connections. The limit is low because some pages take seconds of work.
"""


# -- names of this server --------------------------------------------------------------------------


class HostNames:
    """The host names that clients can use for a server.

    A configured name without a port (`localhost`, `[::1]`, `tools.example`) is accepted with any
    port. A configured name with a port (`tools.example:8080`) is accepted only with that port.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name.lower() for name in names)

    def doubt(self, scope: Scope) -> tuple[int, str] | None:
        """Return (status, reason) if the `Host` or `Origin` header of a request contains a name
        that is not accepted, and None otherwise.
        """
        host = header(scope, b"host")
        if not self._include(host):
            return 421, _not_a_name("Host", host, host)

        origin = header(scope, b"origin")
        scheme, _, place = origin.partition("://")
        if origin and not (scheme in ("http", "https") and self._include(place)):
            return 403, _not_a_name("Origin", origin, place)
        return None

    def _include(self, place: str) -> bool:
        place = place.lower()
        return place in self._names or without_port(place) in self._names


def without_port(place: str) -> str:
    """Return a host without its port, but with the brackets of an IPv6 address."""
    name, colon, port = place.rpartition(":")
    is_port = port == "" or (port.isascii() and port.isdigit())
    return name if colon and is_port else place


def _not_a_name(part: str, text: str, place: str) -> str:
    host = without_port(place)
    if host.startswith("["):
        plain = host.removeprefix("[").removesuffix("]")
    else:
        plain = host

    option = "--allow-host NAME"
    if len(plain) < 254 and _USABLE_NAME.fullmatch(plain):
        option = f"--allow-host {host}"

    return (
        f"{part} {text[:100]!r} is not a name of this server: start it with `{option}` to allow it"
    )


def header(scope: Scope | Message, name: bytes) -> str:
    """Return the value of the first header named `name` (lower case), or "" if it is missing."""
    headers = cast("list[tuple[bytes, bytes]]", scope.get("headers", ()))
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


# -- doors -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admission:
    """The sender of a request, as identified by a door.

    Attributes:
        caller: the caller whose shares the request uses, or None for a stranger, who can access
            only what is needed to sign in.
        token: the token that the caller presented, now or when the session began, or None if no
            token was needed.
        session: the key of the page session, or None if there is no session.
        is_named: whether a token or a session identifies the caller. If not, everyone on this
            machine counts as one caller, whose requests per minute are not limited.
    """

    caller: str | None
    token: bytes | None = None
    session: str | None = None
    is_named: bool = True


STRANGER: Final = Admission(None, is_named=False)
ANYBODY: Final = Admission(LOCAL, is_named=False)
"""The admission for everyone who can reach a server that needs no token."""


class Door(Protocol):
    """An entrance to a server: for programs with a token (`TokenDoor`), or for people with a
    browser.
    """

    async def identify(self, scope: Scope) -> Admission | ASGIApp:
        """Return the sender of a request, identified only by its headers, or the application that
        rejects the request.

        Raises:
            IdeabridgeError: the sender cannot currently be identified.
        """
        ...

    def holds(self, admission: Admission) -> bool:
        """Return whether an admission is still valid, apart from its token."""
        ...

    def refusal(self, status: int, why: str, headers: Mapping[str, str]) -> Response:
        """Return the response to a request that the gate rejects."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an admitted request, or the lifespan of the server."""
        ...


class TokenDoor:
    """The door for programs, in which a bearer token in the header identifies the caller.

    The path `/mcp/p/NAME` restricts the caller to one of the `profiles`. `metadata` contains the
    route and the address of the protected resource's metadata (RFC 9728), or is None.
    """

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        profiles: Profiles,
        metadata: tuple[Route, str] | None = None,
    ) -> None:
        self._app = app
        self._profiles = profiles
        self._credentials = credentials
        self._metadata = metadata

    async def identify(self, scope: Scope) -> Admission | ASGIApp:
        """See `Door`."""
        if self._metadata is not None and scope["path"] == self._metadata[0].path:
            return self._metadata[0].handle

        profile = _profile_named(scope)
        token = _bearer(scope)
        try:
            access = None if token is None else await self._credentials.verify(token)
        except MissingScopeError as error:
            scopes = f' scope="{" ".join(self._credentials.scopes)}",'
            return _refusal(
                403, "insufficient_scope", str(error), self._challenge("insufficient_scope", scopes)
            )

        except ProfileRefusedError as error:
            return self.refusal(403, str(error), {})

        if access is None and not self._credentials.are_required:
            access = AccessToken(token="", client_id=LOCAL, scopes=[])
            token = None

        if access is not None:
            return self._admitted(scope, access, token, profile)

        problem = (
            "expected the header Authorization: Bearer TOKEN with a valid token; `ideabridge "
            "users add` creates one"
        )
        return _refusal(401, "invalid_token", problem, self._challenge("invalid_token"))

    def _admitted(
        self, scope: Scope, access: AccessToken, token: bytes | None, profile: str | None
    ) -> Admission | ASGIApp:
        """Admit a caller to the profile in the address, or reject the request.

        Args:
            scope: the request.
            access: identifies the caller.
            token: the token that proves the caller's identity, or None if no token is needed.
            profile: the profile in the address, or None if the address names none.
        """
        try:
            if profile is not None:
                self._profiles.named(profile)
            caller = self._credentials.restricted(access.client_id, profile)
        except ProfileError as error:
            return self.refusal(404, str(error), {})
        except ProfileRefusedError as error:
            return self.refusal(403, str(error), {})

        if token is None and caller == LOCAL:
            return ANYBODY
        # Tell the SDK who the caller is, because it binds a session to the user who opened it.
        scope["user"] = AuthenticatedUser(access.model_copy(update={"client_id": caller}))
        return Admission(caller, token, is_named=token is not None)

    def holds(self, admission: Admission) -> bool:
        """See `Door`."""
        return admission.is_named or not self._credentials.are_required

    def refusal(self, status: int, why: str, headers: Mapping[str, str]) -> Response:
        """See `Door`."""
        if status in _CODES:
            return _refusal(status, _CODES[status], why, headers)
        # In JSON-RPC, an error that belongs to no request has a null id.
        error = {"code": _INVALID_REQUEST, "message": why}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `Door`."""
        await self._app(scope, receive, send)

    def _challenge(self, error: str, more: str = "") -> dict[str, str]:
        if self._metadata is not None:
            where = f', resource_metadata="{self._metadata[1]}"'
        else:
            where = ""
        return {"WWW-Authenticate": f'Bearer{more} error="{error}"{where}'}


_CODES: Final = {429: "too_many_requests", 503: "temporarily_unavailable"}
_INVALID_REQUEST: Final = -32600


def _profile_named(scope: Scope) -> str | None:
    """Return the profile in a request's address, or None if the address names none.

    If the address names a profile, it is rewritten to `/mcp`, where the SDK handles the request.
    """
    path: str = scope["path"]
    if path.startswith(PROFILES):
        scope[_PROFILE] = path.removeprefix(PROFILES).removesuffix("/")
        scope["path"] = CALLS
        scope["raw_path"] = CALLS.encode()
    return scope.get(_PROFILE)


def _bearer(scope: Scope) -> bytes | None:
    """Return the bearer token of a request if it has exactly one, and None otherwise."""
    values = [
        value
        for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"])
        if name == b"authorization"
    ]
    scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    if scheme.lower() == b"bearer" and token.strip():
        return token.strip()
    return None


def _refusal(status: int, error: str, problem: str, headers: Mapping[str, str]) -> JSONResponse:
    return JSONResponse({"error": error, "error_description": problem}, status, headers)


# -- the gate --------------------------------------------------------------------------------------


class Gate:
    """ASGI middleware in front of everything served over HTTP; see the docstring of this module.

    Args:
        calls: the door to `/mcp`, `/metrics` and every other path that is not the page's.
        page: the door to the page, or None if there is no page.
        health: answers `/healthz` and `/readyz`.
        names: the names of this server.
        credentials: checks tokens.
        quotas: counts what callers use.
        per_minute: the maximum number of requests from one named caller in a minute.
    """

    def __init__(
        self,
        calls: Door,
        page: Door | None,
        health: ASGIApp,
        *,
        names: HostNames,
        credentials: Credentials,
        quotas: Quotas,
        per_minute: int,
    ) -> None:
        self._calls = calls
        self._page = page
        self._health = health
        self._names = names
        self._credentials = credentials
        self._quotas = quotas
        self._per_minute = per_minute
        # The requests in progress, each keyed by the scope that can end it.
        self._served: dict[anyio.CancelScope, tuple[Door, Admission]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or reject it."""
        if scope["type"] != "http":
            await self._calls(scope, receive, send)
            return

        path: str = scope["path"]
        if path in (ALIVE, READY):
            await self._health(scope, receive, send)
            return

        is_page = self._page is not None and (path == PAGE or path.startswith(f"{PAGE}/"))
        door = self._page if self._page is not None and is_page else self._calls

        doubt = self._names.doubt(scope)
        if doubt is not None:
            await door.refusal(*doubt, {})(scope, receive, send)
            return

        admission = await self._identified(door, scope)
        if not isinstance(admission, Admission):
            await admission(scope, receive, send)
            return

        with ExitStack() as shares:
            try:
                self._take(shares, scope, admission, is_page=is_page)
            except QuotaError as error:
                later = {"Retry-After": str(math.ceil(error.retry_after))}
                await door.refusal(429, str(error), later)(scope, receive, send)
                return

            await self._serve(door, admission, scope, receive, send)

    async def _identified(self, door: Door, scope: Scope) -> Admission | ASGIApp:
        try:
            return await door.identify(scope)
        except IdeabridgeError as error:
            # The users or the provider's keys are not available, so let nobody in.
            logger.error("ideabridge: a request is refused: %s", error)
            return door.refusal(503, "tokens cannot be checked now", {"Retry-After": "30"})

    def _take(
        self, shares: ExitStack, scope: Scope, admission: Admission, *, is_page: bool
    ) -> None:
        """Reserve the shares that a request needs until `shares` is closed.

        Raises:
            QuotaError: the caller has reached a limit.
        """
        quotas = self._quotas
        path = scope["path"]
        if admission.caller is None:
            # A stranger's request needs no share, because strangers' connections are closed first.
            return

        # A person has one share in total, whichever profiles the person uses.
        caller = owner_of(admission.caller)
        note_user(scope, caller)
        asked_by.set(caller)
        if admission.is_named:
            quotas.spend(caller, "requests", self._per_minute, 60)

        if _LIVE.fullmatch(path) or (path == CALLS and scope["method"] == "GET"):
            shares.enter_context(quotas.holding(caller, "streams", _MOST_STREAMS))
        elif is_page:
            shares.enter_context(quotas.holding(caller, "pages in progress", _MOST_PAGES))

        connection = connection_of(scope)
        connection.admitted(caller)
        if scope["method"] != "POST":
            connection.whole()

    async def _serve(
        self, door: Door, admission: Admission, scope: Scope, receive: Receive, send: Send
    ) -> None:
        begun = ended = False

        async def watched_send(message: Message) -> None:
            nonlocal begun, ended
            begun = True
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        # Carry out a change that a person has sent even if the browser disconnects immediately. End
        # a request that only reads a page when the browser disconnects.
        only_reads = door is self._page and scope["method"] != "POST"
        with anyio.CancelScope() as limit:
            self._served[limit] = door, admission
            try:
                if only_reads:
                    await _while_connected(door, scope, receive, watched_send)
                else:
                    await door(scope, receive, watched_send)
            finally:
                del self._served[limit]

        if limit.cancelled_caught and not begun:
            # The token or the session has since become invalid, so refuse the request.
            answer = await self._identified(door, scope)
            if isinstance(answer, Admission):
                answer = door.refusal(503, "the request was ended; send it again", {})
            await answer(scope, receive, send)
        elif limit.cancelled_caught and not ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def watch(self) -> None:
        """End requests whose token or session has become invalid, until cancelled. The check is
        repeated because a stream can stay open for days.
        """
        while True:
            await anyio.sleep(WATCH_SECONDS)
            # Check each token only once per round, because many requests have the same one.
            valid: dict[tuple[bytes, str], bool] = {}
            for door, admission in set(self._served.values()):
                try:
                    still_holds = await self._still_holds(door, admission, valid)
                except IdeabridgeError:
                    # The token cannot be checked now. The next round tries again.
                    continue
                if not still_holds:
                    for limit, served in self._served.items():
                        if served == (door, admission):
                            limit.cancel()

    async def _still_holds(
        self, door: Door, admission: Admission, valid: dict[tuple[bytes, str], bool]
    ) -> bool:
        if not door.holds(admission):
            return False
        if admission.token is None or admission.caller is None:
            return True

        key = admission.token, admission.caller
        if key not in valid:
            valid[key] = await self._credentials.still_name(*key)

        return valid[key]


async def _while_connected(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Handle a request without a body until its client disconnects."""
    is_read = False

    async def receive_nothing() -> Message:
        nonlocal is_read
        if is_read:
            await anyio.sleep_forever()
        is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def wait_for_the_end() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(wait_for_the_end)
        await app(scope, receive_nothing, send)
        group.cancel_scope.cancel()
