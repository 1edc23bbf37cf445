"""A server over HTTP for tests, in the loop of the test, that writes every answer byte by byte as
the test wants.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

REASONS = {
    200: "OK",
    202: "Accepted",
    204: "No Content",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
}


class Sink(Protocol):
    """What an answer is written to."""

    async def send(self, item: bytes, /) -> None: ...


@dataclass
class Asked:
    """A request, and the connection on which it is answered."""

    stream: Sink
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    closes: bool = False

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def rpc(self) -> str:
        """The JSON-RPC method, or the method of HTTP."""
        return self.message.get("method", "") if self.body else self.method

    async def answer(
        self,
        status: int = 200,
        body: bytes | str = b"",
        kind: str | None = "application/json",
        **headers: str,
    ) -> None:
        body = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Odd')}", f"content-length: {len(body)}"]
        if kind is not None:
            lines.append(f"content-type: {kind}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.stream.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def begin(self, kind: str | None = "text/event-stream", status: int = 200) -> None:
        """Begin a body that ends with the connection."""
        self.closes = True
        label = f"content-type: {kind}\r\n" if kind is not None else ""
        await self.stream.send(
            (
                f"HTTP/1.1 {status} "
                f"{REASONS.get(status, 'Odd')}\r\n{label}connection: close\r\n\r\n"
            ).encode()
        )

    async def write(self, data: bytes | str) -> None:
        await self.stream.send(data.encode() if isinstance(data, str) else data)

    async def result(self, result: dict[str, Any], **headers: str) -> None:
        await self.answer(
            200, json.dumps({"jsonrpc": "2.0", "id": self.id, "result": result}), **headers
        )


def said(number: Any, text: str) -> str:
    """The answer to a call, as JSON."""
    return json.dumps(
        {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": text}]}}
    )


Answerer = Callable[[Asked], Awaitable[None]]


@dataclass
class Web:
    """A server of the handshake era with two tools, `look` and `other`, both read-only.

    Attributes:
        on: what answers requests, by JSON-RPC method, tool, or method of HTTP; the rest
            is answered well.
        session: the session that it names; None for none.
        asked: the requests, in order.
    """

    on: dict[str, Answerer] = field(default_factory=dict)
    session: str | None = "one"
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    port: int = 0

    def count(self, rpc: str) -> int:
        return sum(asked.rpc == rpc for asked in self.asked)

    async def _answer(self, asked: Asked) -> None:
        self.asked.append(asked)
        rpc = asked.rpc
        tool = asked.message.get("params", {}).get("name")
        chosen = self.on.get(tool or "") or self.on.get(rpc) or self.on.get("any")
        if chosen is not None:
            await chosen(asked)
        else:
            await self.well(asked)

    async def well(self, asked: Asked) -> None:
        """Answer as the protocol says."""
        if asked.method == "GET":
            await asked.answer(405)
        elif asked.method == "DELETE" or asked.id is None:
            await asked.answer(200 if asked.method == "DELETE" else 202, kind=None)
        elif asked.rpc == "initialize":
            information = {"name": "web", "version": "1"}
            headers = {} if self.session is None else {"mcp_session_id": self.session}
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": information,
            }
            await asked.result(result, **headers)
        elif asked.rpc == "tools/list":
            hints = {"readOnlyHint": True}
            tools = [
                {"name": name, "inputSchema": {"type": "object"}, "annotations": hints}
                for name in ("look", "other")
            ]
            await asked.result({"tools": tools})
        elif asked.rpc == "tools/call":
            await asked.answer(200, said(asked.id, asked.message["params"]["name"]))
        else:
            error = {"code": -32601, "message": "no such method"}
            await asked.answer(200, json.dumps({"jsonrpc": "2.0", "id": asked.id, "error": error}))

    async def _serve(self, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            read = BufferedByteReceiveStream(stream)
            try:
                while True:
                    head = (
                        (await read.receive_until(b"\r\n\r\n", 65_536))
                        .decode("latin-1")
                        .split("\r\n")
                    )
                    method, path, _ = head[0].split(" ")
                    headers = {
                        name.lower(): value.strip()
                        for name, _, value in (line.partition(":") for line in head[1:])
                    }
                    body = await read.receive_exactly(int(headers.get("content-length", 0)))
                    asked = Asked(stream, method, path, headers, body)
                    await self._answer(asked)
                    if asked.closes:
                        return
            except (
                anyio.EndOfStream,
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
                anyio.IncompleteRead,
            ):
                return


@asynccontextmanager
async def serving(web: Web) -> AsyncGenerator[Web]:
    """Serve on a free port of this machine."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    web.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    web.url = f"http://127.0.0.1:{web.port}/mcp"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, web._serve)  # pyright: ignore[reportPrivateUsage]
        try:
            yield web
        finally:
            group.cancel_scope.cancel()
