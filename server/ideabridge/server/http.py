"""Streamable HTTP: bound to loopback unless told otherwise, Host and Origin checked, a token off loopback
(DESIGN 7).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import orjson
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.server.bounds import MAX_MESSAGE, depth_problem, refused, size_problem, too_deep
from ideabridge.server.callers import TOKEN_VARIABLE, BearerGate
from ideabridge.tools.errors import IdeabridgeError

PATH: Final = "/mcp"
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_GRACE_SECONDS: Final = 1
# A host's model thinks between calls; connections that must be made anew cost more than ones that are kept.
_IDLE_SECONDS: Final = 120
_MOST_DRAINED: Final = 16 * MAX_MESSAGE


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


def bind(host: str, port: int, *, token: str | None) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        ServeError: not on loopback without a token, or the address cannot be had.
    """
    if not is_loopback(host) and not token:
        raise ServeError(
            f"{host} can be reached from other machines: set {TOKEN_VARIABLE} to a bearer token that clients must send,"
            " or bind to 127.0.0.1"
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
        listening.listen(1024)
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
    token: str | None = None,
    ended: Callable[[str], None] = lambda _session: None,
) -> ASGIApp:
    """The ASGI application.

    Args:
        server: the MCP server.
        host: what it is bound to.
        allowed: more host names clients may call it by.
        token: the bearer token every request must have; None: none.
        ended: told the id of a session that its client ended.
    """
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=security(host, allowed),
        max_request_body_size=MAX_MESSAGE,
    )
    app = _MessageGate(app, ended)
    return BearerGate(app, token) if token is not None else app


class _MessageGate:
    """ASGI middleware: refuses bodies over the bounds with an error that says so, and notes sessions that end."""

    def __init__(self, app: ASGIApp, ended: Callable[[str], None]) -> None:
        self._app = app
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "POST":
            await self._post(scope, receive, send)
        else:
            await self._app(scope, receive, send)
            if scope["method"] == "DELETE":
                self._ended(_header(scope, b"mcp-session-id"))

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, size, last = bytearray(), 0, await receive()
        while last["type"] == "http.request":
            piece: bytes = last.get("body", b"")
            size += len(piece)
            if size <= MAX_MESSAGE:
                body += piece
            if size > _MOST_DRAINED or not last.get("more_body", False):
                break
            last = await receive()
        else:
            # The client went away before its request was whole.
            return
        if size > MAX_MESSAGE:
            # Only now: a client that is still sending would not see the answer.
            await _refuse(send, 413, bytes(body), b"", size_problem(size))
            return
        whole = bytes(body)
        if too_deep(whole):
            await _refuse(send, 400, whole, whole, depth_problem())
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": whole, "more_body": False}

        await self._app(scope, replay, send)


def _header(scope: Scope, name: bytes) -> str:
    headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
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
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class HTTPServer(uvicorn.Server):
    """uvicorn, without its own handling of signals: `serve` has that."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are not uvicorn's here."""
        yield


def http_server(app: ASGIApp) -> HTTPServer:
    """A server for an application; `serve(sockets=[...])` serves until `should_exit` is set."""
    return HTTPServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_SECONDS,
            timeout_keep_alive=_IDLE_SECONDS,
            ws="none",
            server_header=False,
        )
    )
