"""Serve MCP over streamable HTTP. The server binds to loopback by default, checks Host and Origin,
and requires a token on other addresses.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import anyio
import mcp_types as types
import orjson
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
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
from ideabridge.server.transports.gate import CALLS, HostNames, header
from ideabridge.server.transports.messages import RefusedMessage, read_body
from ideabridge.server.transports.quotas import (
    MAX_MESSAGE,
    QuotaError,
    problem,
    refused,
    size_problem,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.threads import compute_beside

_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_GRACE_SECONDS: Final = 1
_DATE_SECONDS: Final = 1.0
_SENT_SECONDS: Final = 0.01
_MOST_DRAINED: Final = 16 * MAX_MESSAGE
_BACKLOG: Final = 1024
_DESCRIPTORS: Final = 4096
"""How many open files this process asks the system to allow. The limit that a shell sets (256 to
1,024) is too low for a server.
"""

_MOST_SESSIONS: Final = 200
"""Maximum number of sessions of the handshake era that one caller can have."""

SESSION_SECONDS: Final[float] = DEFAULT_SESSION_IDLE_TIMEOUT
"""Time, in seconds, after which the SDK ends an unused session without notifying anyone."""

SWEEP_SECONDS: Final = 60.0
"""Interval, in seconds, at which the server checks for sessions that have been unused that long."""

_MOST_REMEMBERED: Final = 1000
_OPENING: Final = ("", *HANDSHAKE_PROTOCOL_VERSIONS)
"""The protocol versions for which the SDK opens a session if a request has none."""

_KEPT_HEADERS: Final = (b"host", b"origin", b"authorization", b"mcp-protocol-version")
_MAX_EVENT: Final = 1_000_000
"""Maximum size of an event, in bytes. SDK clients reject events larger than 1 MiB."""

_REFUSED = 400
_GONE = 404
_TOO_LARGE = 413


class ServeError(IdeabridgeError):
    """Raised when the server cannot listen on an address, or cannot serve what was requested."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind_socket(host: str, port: int, *, token: str | None, guarded: bool = False) -> socket.socket:
    """Return a listening socket. Port 0 selects a free port.

    `token` is the token from the environment variable. `guarded` says whether requests need a token
    for another reason.

    Raises:
        ServeError: the address is not loopback and no token is required, or the address or token
            cannot be used.
    """
    if not is_loopback(host) and not token and not guarded:
        raise ServeError(
            f"{host} can be reached from other machines: create a token with `ideabridge users add "
            f"NAME`, or set {TOKEN_VARIABLE} to a token that clients must send, or bind to "
            "127.0.0.1"
        )

    if token is not None and not 16 <= len(token) <= 4096:
        raise ServeError(f"{TOKEN_VARIABLE}: expected 16 to 4096 characters; found {len(token)}")
    if not 0 <= port <= 65535:
        raise ServeError(f"port {port}: expected 0 to 65535")

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Set the protocol to TCP, because only then does asyncio disable Nagle's algorithm, which would
    # delay each answer by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror or error}"
        ) from None

    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL for clients."""
    host, port = cast("tuple[str, int]", listening.getsockname()[:2])
    return f"http://{_in_address(host)}:{port}{CALLS}"


def _in_address(host: str) -> str:
    """Return a host as written in URLs, with brackets around an IPv6 address."""
    return f"[{host}]" if ":" in host else host


def reachable(url: str, names: tuple[str, ...]) -> str:
    """Return the URL of this server for other machines.

    The URL contains the first of the server's configured names. If no name is configured and the
    server listens on all addresses, it contains the name of this machine.
    """
    parts = urlsplit(url)
    if not names and parts.hostname not in _EVERYWHERE:
        return url
    host = names[0] if names else socket.gethostname()
    return urlunsplit(parts._replace(netloc=f"{host}:{parts.port}"))


def host_names_of(host: str, allowed: tuple[str, ...]) -> HostNames:
    """Return the names that can refer to a server in Host and Origin headers: the names of this
    machine, the bound address, and `allowed`.
    """
    names = list(_LOOPBACK_NAMES)
    if not is_loopback(host):
        names += [socket.gethostname(), socket.getfqdn()]
        if host not in _EVERYWHERE:
            names.append(_in_address(host))
    return HostNames((*names, *allowed))


def application(
    server: Server[Any],
    *,
    host: str,
    ended: Callable[[str], None],
) -> ASGIApp:
    """Return the ASGI application for MCP, behind the gate. `ended` is called with the id of each
    session that ends.
    """
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=CALLS,
        host=host,
        # The gate has already checked Host and Origin, so the SDK need not.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=MAX_MESSAGE,
    )
    return _Messages(_LargeAnswers(app), ended)


class _LargeAnswers:
    """ASGI middleware that sends a response larger than `_MAX_EVENT` as JSON instead of as an
    event, because SDK clients limit only the size of events.

    After a notification or the first ping (15 s), the response can only be an event, so an error
    that states its size is sent instead.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST":
            await self._app(scope, receive, send)
            return

        # Hold back the start of a stream until its first event.
        start: Message | None = None
        is_stream = is_answered = False

        async def pass_on(message: Message) -> None:
            nonlocal start, is_stream, is_answered
            if is_answered:
                return

            if message["type"] == "http.response.start":
                is_stream = header(message, b"content-type").startswith("text/event-stream")
                if is_stream:
                    start = message
                    return
            elif is_stream:
                response_start = start
                start = None
                data = _large_answer(message.get("body", b""))
                if data is not None and response_start is not None:
                    is_answered = True
                    headers = [
                        pair
                        for pair in response_start["headers"]
                        if pair[0].lower() != b"content-type"
                    ]
                    await send(
                        {
                            **response_start,
                            "headers": [*headers, (b"content-type", b"application/json")],
                        }
                    )
                    await send({"type": "http.response.body", "body": data})
                    return

                if response_start is not None:
                    await send(response_start)

                if data is not None:
                    message = {**message, "body": _too_late(data)}

            await send(message)

        await self._app(scope, receive, pass_on)


def _large_answer(event: bytes) -> bytes | None:
    """Return the message in an event larger than `_MAX_EVENT`, or None for smaller events."""
    if len(event) <= _MAX_EVENT:
        return None
    lines = [line for line in event.splitlines() if line.startswith(b"data: ")]
    return lines[0].removeprefix(b"data: ") if len(lines) == 1 else None


def _too_late(data: bytes) -> bytes:
    """Return the event with the error that replaces a large response after notifications."""
    answer = orjson.loads(data)
    problem = (
        f"the answer has {len(data):,} bytes; the limit over HTTP after a notification or 15 s is "
        f"{_MAX_EVENT:,}. Call the tool without a progress token, or within run_plan with an "
        "_outputPath"
    )
    result: dict[str, Any] = {"error": {"code": types.INTERNAL_ERROR, "message": problem}}
    if "content" in answer.get("result", ()):
        result = {
            "result": {
                "content": [{"type": "text", "text": problem}],
                "isError": True,
                "resultType": "complete",
            }
        }
    return (
        b"event: message\r\ndata: "
        + orjson.dumps({"jsonrpc": "2.0", "id": answer["id"], **result})
        + b"\r\n\r\n"
    )


@dataclass(slots=True)
class _Session:
    """A session of the handshake era, with the number of its requests in progress and the time when
    its last request ended, as measured by `time.monotonic`.
    """

    caller: str
    busy: int
    used_at: float = 0.0


class _Messages:
    """ASGI middleware that rejects bodies over the limits (with an error that states the limit),
    limits the number of sessions per caller, and reports sessions that end.
    """

    def __init__(self, app: ASGIApp, ended: Callable[[str], None]) -> None:
        self._app = app
        self._ended = ended
        # The sessions, beginning with the one that has not been used for longest.
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._crowded_out: OrderedDict[str, None] = OrderedDict()
        self._swept_at = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST":
            await self._post(scope, receive, send)
        else:
            await self._within_session(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        body = bytearray()
        size = 0
        last = await receive()
        while last["type"] == "http.request":
            piece: bytes = last.get("body", b"")
            size += len(piece)
            if size <= MAX_MESSAGE:
                body += piece
                connection.hold(len(piece))

            if size > _MOST_DRAINED or not last.get("more_body", False):
                break
            last = await receive()
        else:
            # The client disconnected before it had sent the whole request.
            return

        connection.whole()
        whole = bytes(body)
        body.clear()
        if size > MAX_MESSAGE:
            # Refuse the request only now, because a client that is still sending would not see the
            # answer.
            await _refuse(send, _TOO_LARGE, size_problem(size), whole)
            return

        reason = await compute_beside(whole, problem, whole)
        if reason is not None:
            await _refuse(send, 400, reason, whole, whole)
            return

        message = await compute_beside(whole, read_body, whole)
        if isinstance(message, RefusedMessage):
            await _answer(send, _REFUSED, message.answer)
            return

        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": message, "more_body": False}

        try:
            await self._within_session(scope, replay, send)
        except QuotaError as error:
            await _refuse(send, 429, str(error), whole, whole)

    # -- sessions of the handshake era -------------------------------------------------------------

    async def _within_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it towards its session.

        A session is counted when the response names it, because only the SDK knows which messages
        open a session. If the caller then has too many sessions, the least recently used one is
        ended.

        Raises:
            QuotaError: the caller has as many sessions as allowed, all of them are in use, and the
                request might open another.
        """
        self._sweep()
        session = header(scope, b"mcp-session-id")
        caller = caller_in(scope)
        if session in self._crowded_out:
            problem = (
                f"the session was ended: you opened more than {_MOST_SESSIONS}, and this one had "
                "been unused for the longest time"
            )
            await _refuse(send, _GONE, f"{problem}; start a new one")
            return

        if (
            scope["method"] == "POST"
            and not session
            and header(scope, b"mcp-protocol-version") in _OPENING
        ):
            self._expect_room(caller)

        state = self._sessions.get(session)
        if state is not None and state.caller != caller:
            # The session belongs to a different caller, so let the SDK answer that it does not
            # exist.
            state = None

        statuses: list[int] = []

        async def watched_send(message: Message) -> None:
            nonlocal session, state
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                # A session that was refused also has an id, but the SDK discards it immediately.
                if not session and message["status"] < _REFUSED:
                    session = header(message, b"mcp-session-id")
                    if session:
                        state = self._sessions[session] = _Session(caller, 1)
                        await self._end_excess(scope, caller)

            await send(message)

        if state is not None:
            state.busy += 1

        try:
            await self._app(scope, receive, watched_send)
        finally:
            if state is not None:
                state.busy -= 1
                state.used_at = time.monotonic()
                if scope["method"] == "DELETE":
                    self._ended(session)
                if _GONE in statuses or scope["method"] == "DELETE":
                    self._sessions.pop(session, None)
                elif session in self._sessions:
                    self._sessions.move_to_end(session)

    def _sweep(self) -> None:
        """Report sessions that have ended because their clients have vanished."""
        now = time.monotonic()
        if now - self._swept_at < SWEEP_SECONDS:
            return

        self._swept_at = now
        for session, state in list(self._sessions.items()):
            if not state.busy and now - state.used_at >= SESSION_SECONDS:
                del self._sessions[session]
                self._ended(session)

    def _sessions_of(self, caller: str) -> list[str]:
        """Return the sessions of a caller, least recently used first."""
        return [session for session, state in self._sessions.items() if state.caller == caller]

    def _unused(self, sessions: list[str]) -> list[str]:
        return [session for session in sessions if not self._sessions[session].busy]

    def _expect_room(self, caller: str) -> None:
        sessions = self._sessions_of(caller)
        if len(sessions) >= _MOST_SESSIONS and not self._unused(sessions):
            raise QuotaError(
                f"you have {len(sessions)} sessions in use; the limit for one caller is "
                f"{_MOST_SESSIONS}"
            )

    async def _end_excess(self, scope: Scope, caller: str) -> None:
        """If a caller has more sessions than allowed, end the unused ones, least recently used
        first.
        """
        sessions = self._sessions_of(caller)
        excess = max(0, len(sessions) - _MOST_SESSIONS)
        oldest = self._unused(sessions)[:excess]
        for session in oldest:
            # Remove all these sessions before ending the first one, because clients can open others
            # while it is ending.
            del self._sessions[session]
            self._crowded_out[session] = None
            if len(self._crowded_out) > _MOST_REMEMBERED:
                self._crowded_out.popitem(last=False)

        for session in oldest:
            await self._end(scope, session)

    async def _end(self, scope: Scope, session: str) -> None:
        headers = [
            pair
            for pair in cast("list[tuple[bytes, bytes]]", scope["headers"])
            if pair[0] in _KEPT_HEADERS
        ]
        ending = {
            **scope,
            "method": "DELETE",
            "headers": [*headers, (b"mcp-session-id", session.encode("latin-1"))],
        }

        async def empty() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def ignore(_message: Message) -> None:
            pass

        await self._app(ending, empty, ignore)
        self._ended(session)


async def _refuse(
    send: Send, status: int, problem: str, head: bytes = b"", tail: bytes = b""
) -> None:
    """Respond to a message with an error. Only the first and last bytes of the message are
    known.
    """
    answer = refused(head, tail, problem)
    if answer is None:
        answer = {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": types.INVALID_REQUEST, "message": problem},
        }
    elif "result" in answer:
        # Over HTTP, a tool error is still a successful response.
        status = 200
    await _answer(send, status, answer)


async def _answer(send: Send, status: int, answer: dict[str, Any]) -> None:
    body = orjson.dumps(answer)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == _TOO_LARGE:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class HTTPServer(uvicorn.Server):
    """uvicorn without its signal handlers, because `serve` has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = anyio.Event()

    def end(self) -> None:
        """Make `serve` end."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Renew the date in response headers until `end` is called.

        uvicorn itself would wake an idle process ten times a second to check `should_exit`.
        """
        while not await self.on_tick(0):
            with anyio.move_on_after(_DATE_SECONDS):
                await self._ending.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do not install any signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        # Set the length of the queue of waiting connections separately, because asyncio has one
        # setting for it and for the number of connections that it accepts at once.
        for listening in sockets or ():
            listening.listen(_BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and end as soon as every response is sent, or after `_GRACE_SECONDS`.

        uvicorn itself would wait a tenth of a second even if there is nothing to send.
        """
        for server in self.servers:
            server.close()

        for listening in sockets or ():
            listening.close()

        for connection in list(self.server_state.connections):
            connection.shutdown()

        with anyio.move_on_after(_GRACE_SECONDS):
            # uvicorn tells nobody when a connection has closed.
            while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110
                await anyio.sleep(_SENT_SECONDS)

        for task in self.server_state.tasks:
            task.cancel()

        await self.lifespan.shutdown()


def http_server(app: ASGIApp) -> HTTPServer:
    """Return a server for an application. `serve(sockets=[...])` serves until `end` is called."""
    connections = Connections(min(MOST_CONNECTIONS, _descriptors() // 2))
    return HTTPServer(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(GuardedProtocol, connections=connections)),
            backlog=ACCEPTED_AT_ONCE,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_keep_alive=IDLE_SECONDS,
            ws="none",
            server_header=False,
            # Do not trust headers in which a client or a proxy states the client's address.
            proxy_headers=False,
        )
    )


def _descriptors() -> int:
    """Raise the limit on open files to `_DESCRIPTORS` if possible. Return how many files this
    process can have open.
    """
    if sys.platform == "win32":
        return _DESCRIPTORS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        return limit

    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
