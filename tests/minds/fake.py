"""A model endpoint on loopback that speaks OpenAI's chat completions, and does what a
test tells it to.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.web_server import serving

Step: TypeAlias = str | bytes | Callable[[], Awaitable[None]]
"""Text of the answer, what is sent as it is, or what happens between."""


class DroppedError(Exception):
    """Raised between pieces: the connection goes."""


async def drop() -> None:
    raise DroppedError


@dataclass
class Say:
    """Streams an answer: pieces of text, and waits or faults between them.

    Attributes:
        cut: bytes of the stream sent at once; 0: a chunk at a time.
        thought: what it thinks before.
        error: an error that comes in the stream, after the pieces.
        usage: it tells what the answer took, at its end.
        forever: what is sent over and over, after the pieces.
    """

    pieces: tuple[Step, ...]
    finish: str = "stop"
    cut: int = 0
    refusal: str | None = None
    thought: str | None = None
    error: str | None = None
    usage: bool = True
    forever: bytes | None = None


def say(*pieces: Step, **how: Any) -> Say:
    return Say(pieces, **how)


@dataclass
class Fail:
    """Answers with an error."""

    status: int
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Raw:
    """Answers with these bytes of this kind, once or over and over, whatever was asked."""

    body: bytes
    kind: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    forever: bool = False


@dataclass
class Hang:
    """Takes the request and says nothing."""


@dataclass
class Nothing:
    """Answers 200, and streams nothing: what llama-cpp-python does where it cannot answer."""


@dataclass
class Refuse:
    """Refuses any of these kinds of `response_format`; else does as told."""

    kinds: tuple[str, ...]
    error: Fail
    otherwise: Say


Behaviour: TypeAlias = Say | Fail | Hang | Nothing | Raw | Refuse


class FakeEndpoint:
    """Does the next thing it was told to with each request; the last for ever."""

    def __init__(self, base_url: str, *behaviours: Behaviour) -> None:
        self.base_url = base_url
        self.behaviours = list(behaviours)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    async def handle(self, request: Request) -> Response:
        body: dict[str, Any] = json.loads(await request.body())
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        if len(self.behaviours) > 1:
            behaviour = self.behaviours.pop(0)
        else:
            behaviour = self.behaviours[0]

        if isinstance(behaviour, Refuse):
            if self.format_of(body) in behaviour.kinds:
                behaviour = behaviour.error
            else:
                behaviour = behaviour.otherwise

        if isinstance(behaviour, Fail):
            error = {
                "error": {
                    "message": behaviour.message,
                    "type": "invalid_request_error",
                    "code": None,
                }
            }
            return JSONResponse(error, behaviour.status, behaviour.headers)

        if isinstance(behaviour, Raw):
            sent = _raw(behaviour)
            return StreamingResponse(
                sent, behaviour.status, behaviour.headers, media_type=behaviour.kind
            )

        if isinstance(behaviour, Hang):
            await anyio.sleep_forever()
            raise AssertionError
        if isinstance(behaviour, Nothing):
            return Response(media_type="text/event-stream")
        return StreamingResponse(_stream(behaviour, body), media_type="text/event-stream")

    @staticmethod
    def format_of(body: dict[str, Any]) -> str:
        """`json_schema`, `json_object` or `none`."""
        asked = body.get("response_format")
        return "none" if asked is None else str(asked["type"])

    @property
    def formats(self) -> list[str]:
        return [self.format_of(body) for body in self.bodies]

    def texts(self, number: int) -> str:
        """Every text of a request, one after the other."""
        return "\n".join(str(message["content"]) for message in self.bodies[number]["messages"])


def _chunk(
    model: str, delta: dict[str, Any] | None, finish: str | None = None, written: int = 0
) -> bytes:
    if delta is None:
        choices = []
    else:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]

    chunk: dict[str, Any] = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
    }
    chunk["choices"] = choices
    if delta is None or written:
        written = written or 34
        chunk["usage"] = {
            "prompt_tokens": 1200,
            "completion_tokens": written,
            "total_tokens": 1200 + written,
        }

    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


def said(text: str, model: str, written: int = 0) -> bytes:
    """A chunk of the answer's text."""
    return _chunk(model, {"role": "assistant", "content": text}, written=written)


def _cut(data: bytes, size: int) -> Iterator[bytes]:
    if not size:
        yield data
        return
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def _raw(behaviour: Raw) -> AsyncGenerator[bytes]:
    for body in repeat(behaviour.body) if behaviour.forever else [behaviour.body]:
        await anyio.lowlevel.checkpoint()
        yield body


async def _stream(behaviour: Say, body: dict[str, Any]) -> AsyncGenerator[bytes]:
    model = str(body["model"])
    # This is what vLLM does if it is asked to: each piece reports what the answer has used so far.
    counts = body.get("stream_options", {}).get("continuous_usage_stats") is True
    chunks: list[bytes | Callable[[], Awaitable[None]]] = []
    if behaviour.thought is not None:
        chunks.append(_chunk(model, {"role": "assistant", "reasoning_content": behaviour.thought}))

    for number, piece in enumerate(behaviour.pieces, 1):
        written = number if counts else 0
        chunks.append(said(piece, model, written) if isinstance(piece, str) else piece)

    if behaviour.refusal is not None:
        chunks.append(_chunk(model, {"refusal": behaviour.refusal}))

    if behaviour.error is not None:
        error = {"error": {"message": behaviour.error, "type": "server_error", "code": None}}
        chunks.append(f"data: {json.dumps(error)}\n\n".encode())

    told = [_chunk(model, None)] if behaviour.usage else []
    end = [_chunk(model, {}, behaviour.finish), *told, b"data: [DONE]\n\n"]
    for chunk in chain(chunks, end if behaviour.forever is None else repeat(behaviour.forever)):
        if isinstance(chunk, bytes):
            for part in _cut(chunk, behaviour.cut):
                # An endless answer must let others run, and ends with the server.
                await anyio.lowlevel.checkpoint()
                yield part
        else:
            await chunk()


@asynccontextmanager
async def endpoint(*behaviours: Behaviour) -> AsyncGenerator[FakeEndpoint]:
    """A fake endpoint that serves while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fake = FakeEndpoint(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", *behaviours)
        app = Starlette(routes=[Route("/v1/chat/completions", fake.handle, methods=["POST"])])
        async with serving(app, listening, lifespan="off"):
            yield fake
