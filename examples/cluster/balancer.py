"""A balancer for servers over streamable HTTP: each request goes to the next server, and a
session to its own.

A request that no server has taken yet goes to another one. If the server that has it ends, nobody
knows how far it came, so the client gets 502 and decides. A session of 2025-11-25 whose server has
ended is answered with 404, and the client begins a new one, as the protocol demands.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import httpx
import uvicorn
from starlette.types import Message, Receive, Scope, Send

_SESSION: Final = "mcp-session-id"
_OF_CONNECTION: Final = (
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "te",
    "trailer",
)
_DOWN_SECONDS: Final = 1.0
"""Seconds for which a server that refused a connection is asked last."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A request that was passed on: what it asks (the MCP method and name, which 2026-07-28 has in
    headers; else ""), and the server.
    """

    what: str
    server: str


class Balancer:
    """An ASGI application in front of servers.

    Args:
        servers: their addresses, such as `http://127.0.0.1:8801`.

    Attributes:
        passed: the requests that were passed on, in their order.
    """

    def __init__(self, servers: Sequence[str]) -> None:
        self.servers = list(servers)
        self.passed: list[Passed] = []
        self._sessions: dict[str, str] = {}
        self._down: dict[str, float] = {}
        self._number = 0
        # Do not keep connections open, because with a kept connection to a server that has died, it
        # would look as if the server had accepted the request.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(timeout=None, limits=limits, trust_env=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and its answer back as it comes."""
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        else:
            return

        async def until_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            # A client of 2026-07-28 cancels its request by closing the connection.
            group.start_soon(until_left)
            await self._pass(scope, bytes(body), send)
            group.cancel_scope.cancel()

    async def _pass(self, scope: Scope, body: bytes, send: Send) -> None:
        headers = httpx.Headers(scope["headers"])
        session = headers.get(_SESSION, "")
        own = self._sessions.get(session)
        for server in [own] if own is not None else self._order():
            request = self._client.build_request(
                scope["method"],
                f"{server}{scope['path']}",
                headers=[
                    (name, value)
                    for name, value in headers.multi_items()
                    if name not in _OF_CONNECTION
                ],
                content=body,
            )
            passed = Passed(
                f"{headers.get('mcp-method', '')} {headers.get('mcp-name', '')}".strip(), server
            )
            self.passed.append(passed)
            try:
                answer = await self._client.send(request, stream=True)
            except httpx.ConnectError:
                self.passed.remove(passed)
                self._down[server] = time.monotonic()
                continue
            except httpx.TransportError as error:
                await _answer(
                    send,
                    502,
                    "the server that had this request has ended "
                    f"({error!r}): look what it has done",
                )
                return

            try:
                await self._pass_back(answer, server, send)
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()

            return

        if own is not None:
            await _answer(send, 404, "the server of this session has ended: begin a new session")
        else:
            await _answer(send, 503, "no server answers")

    def _order(self) -> list[str]:
        """The servers, the next one first, and those that refused a connection a
        moment ago last.
        """
        self._number += 1
        turn = self._number % len(self.servers)
        now = time.monotonic()
        order = [*self.servers[turn:], *self.servers[:turn]]
        return sorted(
            order, key=lambda one: now - self._down.get(one, -_DOWN_SECONDS) < _DOWN_SECONDS
        )

    async def _pass_back(self, answer: httpx.Response, server: str, send: Send) -> None:
        if session := answer.headers.get(_SESSION):
            self._sessions[session] = server

        kept = [
            (name, value)
            for name, value in answer.headers.raw
            if name.lower().decode() not in _OF_CONNECTION
        ]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
        try:
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except httpx.TransportError:
            # Leave the answer unfinished, so that the client sees that it was cut off.
            return

        await send({"type": "http.response.body", "body": b""})


async def _answer(send: Send, status: int, why: str) -> None:
    error: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32603, "message": why},
    }
    headers = [(b"content-type", b"application/json")]
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": json.dumps(error).encode()})


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, because the program that runs it has its own."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers."""
        yield


@asynccontextmanager
async def balancing(servers: Sequence[str]) -> AsyncGenerator[tuple[Balancer, str]]:
    """A balancer that listens on a free port of this machine, and its address for MCP clients."""
    balancer = Balancer(servers)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        listening.setblocking(False)
        # uvicorn would otherwise report an answer that is cut off as an error of this application.
        config = uvicorn.Config(
            balancer,
            log_config=None,
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listening])
            try:
                yield balancer, f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            finally:
                server.should_exit = True
