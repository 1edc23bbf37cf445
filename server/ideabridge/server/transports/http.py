"""Streamable HTTP: binds to loopback by default, checks Host and Origin, and requires a token on other addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast
from urllib.parse import urlsplit

import orjson
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.bridge.bridge import TOKEN_VARIABLE
from ideabridge.server.callers import caller_in
from ideabridge.server.transports.connections import (
    ACCEPTED_AT_ONCE,
    IDLE_SECONDS,
    MOST_CONNECTIONS,
    Connections,
    GuardedProtocol,
    connection_of,
)
from ideabridge.server.transports.quotas import MAX_MESSAGE, QuotaError, Quotas, problem, refused, size_problem
from ideabridge.tools.errors import IdeabridgeError

PATH: Final = "/mcp"
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_GRACE_SECONDS: Final = 1
_MOST_DRAINED: Final = 16 * MAX_MESSAGE
_BACKLOG: Final = 1024
_DESCRIPTORS: Final = 4096
"""How many files this process wants to have open at most: the limit that a shell sets (256 to 1,024) is for programs
that serve nobody."""

_MOST_STREAMS: Final = 200
"""Streams of notifications (GET) that one caller may have open: one for each of its clients of the handshake era."""

_MOST_SESSIONS: Final = 200
"""Sessions of the handshake era that one caller may have."""

_MOST_REMEMBERED: Final = 1000
_OPENING: Final = re.compile(rb'"method"\s*:\s*"initialize"')
_KEPT_HEADERS: Final = (b"host", b"origin", b"authorization", b"mcp-protocol-version")
_REFUSED, _GONE, _TOO_LARGE = 400, 404, 413


class ServeError(IdeabridgeError):
    """An address that cannot be served on."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int, *, token: str | None, guarded: bool = False) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Args:
        host: the address.
        port: the port.
        token: the token of the environment variable.
        guarded: whether requests need a token of another kind.

    Raises:
        ServeError: not on loopback without any token, or the address cannot be had.
    """
    if not is_loopback(host) and not token and not guarded:
        raise ServeError(
            f"{host} can be reached from other machines: make a token with `ideabridge users add NAME`, or set"
            f" {TOKEN_VARIABLE} to one that clients must send, or bind to 127.0.0.1"
        )
    if token is not None and not 16 <= len(token) <= 4096:
        raise ServeError(f"{TOKEN_VARIABLE}: expected 16 to 4096 characters; found {len(token)}")
    if not 0 <= port <= 65535:
        raise ServeError(f"port {port}: expected 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: asyncio turns Nagle's delay off (40 ms an answer) only for sockets that say so.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ServeError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return listening


def url_of(listening: socket.socket) -> str:
    """The address clients are given."""
    host, port = cast("tuple[str, int]", listening.getsockname()[:2])
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


def security(host: str, allowed: tuple[str, ...]) -> TransportSecuritySettings:
    """Which Host and Origin headers are taken: this machine's own names, the bound one, and those in `allowed`."""
    names = list(_LOOPBACK_NAMES)
    if not is_loopback(host):
        shown = f"[{host}]" if ":" in host else host
        names += [*(() if host in _EVERYWHERE else (shown,)), socket.gethostname(), socket.getfqdn()]
    names = list(dict.fromkeys([*names, *allowed]))
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[
            form
            for name in names
            for scheme in ("http", "https")
            for form in (f"{scheme}://{name}", f"{scheme}://{name}:*")
        ],
    )


def application(
    server: Server[Any],
    *,
    host: str,
    allowed: tuple[str, ...] = (),
    ended: Callable[[str], None] = lambda _session: None,
    quotas: Quotas | None = None,
) -> ASGIApp:
    """The ASGI application.

    Args:
        server: the MCP server.
        host: what it is bound to.
        allowed: more host names clients may call it by.
        ended: told the id of a session that its client ended.
        quotas: counts what each caller holds; None: its own.
    """
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=security(host, allowed),
        max_request_body_size=MAX_MESSAGE,
    )
    return _MessageGate(_HostGate(app), ended, quotas or Quotas())


class _HostGate:
    """ASGI middleware: what the SDK answers to a foreign Host or Origin says how to allow it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start" and message["status"] in _HOST_STATUS:
                status = message["status"]
            if not status:
                await send(message)

        await self._app(scope, receive, told)
        if status:
            what = _HOST_STATUS[status]
            name = _header(scope, what.lower().encode())
            host = urlsplit(name if "//" in name else f"//{name}").netloc
            # Without the port, brackets of an IPv6 address kept.
            host = re.sub(r":\d*\Z", "", host)
            usable = re.fullmatch(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]", host) is not None
            option = f"--allow-host {host}" if usable else "--allow-host NAME"
            why = f"{what} {name[:100]!r} is no name of this server: start it with `{option}` to allow it"
            await _refuse(send, status, b"", b"", why)


_HOST_STATUS: Final = {421: "Host", 403: "Origin"}
"""The statuses of the SDK's answers, and the header each is about."""


class _MessageGate:
    """ASGI middleware behind the token's: refuses bodies over the bounds with an error that says so, bounds what one
    caller holds open, and notes sessions that end.
    """

    def __init__(self, app: ASGIApp, ended: Callable[[str], None], quotas: Quotas) -> None:
        self._app = app
        self._ended = ended
        self._quotas = quotas
        # Of each caller, the requests in progress by session; the session that is longest unused is first.
        self._sessions: dict[str, OrderedDict[str, int]] = {}
        self._crowded_out: OrderedDict[str, None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = connection_of(scope)
        if connection is not None:
            connection.admitted()
        if scope["method"] == "POST":
            await self._post(scope, receive, send, connection)
            return
        if connection is not None:
            connection.whole()
        try:
            with self._quotas.holding(caller_in(scope), "streams", _MOST_STREAMS):
                await self._within_session(scope, receive, send)
        except QuotaError as error:
            await _refuse(send, 429, b"", b"", str(error))

    async def _post(self, scope: Scope, receive: Receive, send: Send, connection: GuardedProtocol | None) -> None:
        body, size, last = bytearray(), 0, await receive()
        while last["type"] == "http.request":
            piece: bytes = last.get("body", b"")
            size += len(piece)
            if size <= MAX_MESSAGE:
                body += piece
                if connection is not None:
                    connection.hold(len(piece))
            if size > _MOST_DRAINED or not last.get("more_body", False):
                break
            last = await receive()
        else:
            # The client went away before its request was whole.
            return
        if connection is not None:
            connection.whole()
        if size > MAX_MESSAGE:
            # Only now: a client that is still sending would not see the answer.
            await _refuse(send, 413, bytes(body), b"", size_problem(size))
            return
        whole = bytes(body)
        body.clear()
        why = problem(whole)
        if why is not None:
            await _refuse(send, 400, whole, whole, why)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": whole, "more_body": False}

        most = MOST_CONNECTIONS if connection is None else connection.share
        try:
            with self._quotas.holding(caller_in(scope), "connections with a request in progress", most):
                await self._within_session(scope, replay, send, whole)
        except QuotaError as error:
            await _refuse(send, 429, whole, whole, str(error))

    # -- sessions of the handshake era -------------------------------------------------------------------------

    async def _within_session(self, scope: Scope, receive: Receive, send: Send, body: bytes = b"") -> None:
        """Hand a request on, and count it to its session; one that opens a session may end the one longest unused.

        Raises:
            QuotaError: the caller has as many sessions as it may, and all are in use.
        """
        session, caller = _header(scope, b"mcp-session-id"), caller_in(scope)
        if session in self._crowded_out:
            why = f"the session was ended: you opened more than {_MOST_SESSIONS}, and this one was unused for longest"
            await _refuse(send, 404, b"", b"", f"{why}; begin a new one")
            return
        if not session and len(self._of(caller)) >= _MOST_SESSIONS and _OPENING.search(body):
            await self._make_room(scope, caller)
        statuses: list[int] = []

        async def noted(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                # One that is refused has an id too, and is forgotten by the SDK at once.
                if not session and message["status"] < _REFUSED:
                    session = _header(message, b"mcp-session-id")
                    if session:
                        self._sessions[caller] = self._of(caller)
                        self._sessions[caller][session] = 1
            await send(message)

        sessions = self._of(caller)
        if session in sessions:
            sessions[session] += 1
        try:
            await self._app(scope, receive, noted)
        finally:
            sessions = self._of(caller)
            if session in sessions:
                sessions[session] -= 1
                sessions.move_to_end(session)
                if _GONE in statuses or scope["method"] == "DELETE":
                    self._forget(caller, session)
            if scope["method"] == "DELETE":
                self._ended(session)

    async def _make_room(self, scope: Scope, caller: str) -> None:
        sessions = self._of(caller)
        oldest = next((one for one, busy in sessions.items() if not busy), None)
        if oldest is None:
            raise QuotaError(
                f"you have {len(sessions)} sessions in use; one caller may have {_MOST_SESSIONS} at a time"
            )
        self._forget(caller, oldest)
        self._crowded_out[oldest] = None
        if len(self._crowded_out) > _MOST_REMEMBERED:
            self._crowded_out.popitem(last=False)
        headers = [pair for pair in cast("list[tuple[bytes, bytes]]", scope["headers"]) if pair[0] in _KEPT_HEADERS]
        ending = {**scope, "method": "DELETE", "headers": [*headers, (b"mcp-session-id", oldest.encode("latin-1"))]}

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def unheard(_message: Message) -> None:
            pass

        await self._app(ending, nothing, unheard)
        self._ended(oldest)

    def _of(self, caller: str) -> OrderedDict[str, int]:
        return self._sessions.get(caller) or OrderedDict()

    def _forget(self, caller: str, session: str) -> None:
        sessions = self._of(caller)
        sessions.pop(session, None)
        if not sessions:
            self._sessions.pop(caller, None)


def _header(scope: Scope | Message, name: bytes) -> str:
    headers = cast("list[tuple[bytes, bytes]]", scope.get("headers", ()))
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


async def _refuse(send: Send, status: int, head: bytes, tail: bytes, why: str) -> None:
    told = refused(head, tail, why)
    if told is not None and "result" in told:
        # A tool error is an answer like any other.
        status = 200
    if told is None:
        told = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": why}}
    body = orjson.dumps(told)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == _TOO_LARGE:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class HTTPServer(uvicorn.Server):
    """uvicorn, without its own handling of signals: `serve` has that."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are not uvicorn's here."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        # asyncio takes one number for both how many it accepts at once and how many may wait to be accepted.
        for one in sockets or ():
            one.listen(_BACKLOG)


def http_server(app: ASGIApp) -> HTTPServer:
    """A server for an application; `serve(sockets=[...])` serves until `should_exit` is set."""
    connections = Connections(min(MOST_CONNECTIONS, _descriptors() // 2))
    return HTTPServer(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(GuardedProtocol, connections=connections)),
            backlog=ACCEPTED_AT_ONCE,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_SECONDS,
            timeout_keep_alive=IDLE_SECONDS,
            ws="none",
            server_header=False,
            # Nothing here believes what a client says of its address.
            proxy_headers=False,
        )
    )


def _descriptors() -> int:
    """How many files this process may have open; raised to what serving needs, as far as it is allowed to."""
    if sys.platform == "win32":
        return _DESCRIPTORS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
