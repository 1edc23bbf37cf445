"""HTTP modules: the transports of the SDK, with another HTTP client.

With the SDK's own client, one refused POST ends the connection for every call. This client turns every failure of a
request into an error response to that request: a status with its reason, an unreachable host, a body over the limit.
The SDK follows redirects, within the origin only.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import anyio
import httpx2
import orjson
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND, PARSE_ERROR

from ideabridge.bridge.modules.errors import ModuleSignInError
from ideabridge.bridge.modules.sdk import TransportStreams
from ideabridge.bridge.modules.settings import Launch, ModuleKind
from ideabridge.bridge.modules.stdio import MAX_LINE_BYTES, OVERSIZED, most_values
from ideabridge.tools.encoding import count_values

UNSENT: Final = "ideabridge: no HTTP request"
"""`data` of the error for a request that was never sent."""
UNANSWERED: Final = "ideabridge: no HTTP answer"
"""`data` of the error for a request that was not answered: the server may have processed it."""
REFUSED: Final = "ideabridge: HTTP refusal"
"""`data` of the error for a request that the server, or a proxy before it, refused."""
SIGN_IN: Final = "ideabridge: sign in"
"""`data` of the error for a request that needs a token that there is not."""
SIGN_IN_LATER: Final = "ideabridge: sign in later"
"""The same, if the token may be there soon."""

_ERROR_BYTES: Final = 64 * 1024
_SHOWN: Final = 200
_BAD: Final = 400
_NOT_FOUND: Final = 404
_SERVER_FAULT: Final = 500
_NOT_IMPLEMENTED: Final = (501, 505)
_NO_ANSWER: Final = (408, 502, 503, 504)
"""Statuses of a server that did not receive the whole request, and of a gateway that got no answer."""
_NOTIFICATION: Final = re.compile(rb'"method"\s*:\s*"notifications/')
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')
_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_NOTIFICATION_SECONDS: Final = 10.0

REOPEN_SECONDS: Final = 0.5
"""Seconds before a stream of events is opened again, besides those for which the server asks (`retry`)."""


_CONNECTING: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Errors before a request is sent."""


@cache
def certificates() -> ssl.SSLContext:
    """Return the certificates that connections to modules trust: those of the system, as of the first connection.

    Each client would read them again otherwise, and keep the event loop from all else for 25 ms or more.
    """
    return httpx2.create_ssl_context()


class ModuleHTTPClient(httpx2.AsyncClient):
    """An HTTP client that returns failures as responses."""

    def __init__(
        self,
        *,
        headers: dict[str, str],
        connect_timeout: float,
        max_bytes: int = MAX_LINE_BYTES,
        auth: httpx2.Auth | None = None,
    ) -> None:
        # Without a time-out for reading: a stream may be silent for long, and every call has its own time-out.
        timeout = httpx2.Timeout(min(30.0, connect_timeout), read=None)
        super().__init__(headers=headers, timeout=timeout, auth=auth, verify=certificates())
        self._max_bytes = max_bytes
        self._has_listened = False

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. A failed POST returns a response that contains a JSON-RPC error."""
        if request.method != "POST":
            await self._pause_before(request)
            try:
                return _guarded(request, await super().send(request, **options), self._max_bytes)
            except ModuleSignInError:
                return httpx2.Response(401, request=request)
        if _NOTIFICATION.search(request.content[:_SHOWN]):
            # The SDK sends notifications one after another: a server that does not answer one must not delay calls.
            request.extensions = {
                **request.extensions,
                "timeout": httpx2.Timeout(_NOTIFICATION_SECONDS).as_dict(),
            }
        try:
            response = await super().send(request, **options)
            kind = response.headers.get("content-type", "").lower()
            if response.status_code >= _BAD:
                return await self._refusal(request, response, kind)
            if kind.startswith("application/json") and options.get("stream"):
                return await self._whole(request, response)
            return _guarded(request, response, self._max_bytes)
        except ModuleSignInError as error:
            data = SIGN_IN if error.lasting else SIGN_IN_LATER
            said = str(error).removeprefix(f"module {error.module!r} ")
            return _error(request, 401, INTERNAL_ERROR, said, data)
        except _CONNECTING as error:
            return _error(request, 503, CONNECTION_CLOSED, f"cannot be reached: {_why(error)}", UNSENT)
        except httpx2.TransportError as error:
            what = f"cannot be reached any more: {_why(error)},"
            return _error(request, 503, CONNECTION_CLOSED, what, UNANSWERED)

    async def _pause_before(self, request: httpx2.Request) -> None:
        """Wait before a stream is opened again: the server chooses how soon the SDK does that, and may choose 0."""
        if request.method != "GET":
            return
        opens_again = self._has_listened or "last-event-id" in request.headers
        self._has_listened = True
        if opens_again:
            await anyio.sleep(REOPEN_SECONDS)

    async def _whole(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Read a whole response, so that a failure while reading is handled here."""
        body = await _read(response, self._max_bytes)
        if body is None:
            what = f"its answer has more than {self._max_bytes:,} bytes"
            return _error(request, 502, PARSE_ERROR, what, OVERSIZED)
        most = most_values(self._max_bytes)
        if count_values(body, most) > most:
            return _error(request, 502, PARSE_ERROR, _too_many(most), OVERSIZED)
        kept = [(k, v) for k, v in response.headers.multi_items() if k.lower() in ("content-type", "mcp-session-id")]
        return httpx2.Response(response.status_code, headers=kept, content=body, request=request)

    async def _refusal(self, request: httpx2.Request, response: httpx2.Response, kind: str) -> httpx2.Response:
        body = await _read(response, _ERROR_BYTES) or b""
        status = response.status_code
        if kind.startswith("application/json") and b'"jsonrpc"' in body:
            headers = {"content-type": "application/json"}
            return httpx2.Response(status, headers=headers, content=body, request=request)
        if status == _NOT_FOUND and "mcp-session-id" in request.headers:
            return httpx2.Response(status, request=request)  # the SDK takes this for the end of the session
        code = METHOD_NOT_FOUND if status == _NOT_FOUND else INTERNAL_ERROR
        # With `Retry-After`, the server has not begun. After another failure of the server, the call may have run.
        begun = status in _NO_ANSWER or (status >= _SERVER_FAULT and status not in _NOT_IMPLEMENTED)
        data = UNANSWERED if begun and "retry-after" not in response.headers else REFUSED
        text = "" if kind.startswith("text/html") else " ".join(body.decode("utf-8", "replace").split())[:_SHOWN]
        said = f"answered HTTP {status} {response.reason_phrase}{f': {text}' if text else ''}"
        return _error(request, status, code, said, data)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


class _EventClient(httpx2.AsyncClient):
    """The client of the older SSE transport, with bounded events."""

    def __init__(self, max_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self._max_bytes = max_bytes

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request."""
        return _guarded(request, await super().send(request, **options), self._max_bytes)


def _guarded(request: httpx2.Request, response: httpx2.Response, max_bytes: int) -> httpx2.Response:
    """The response; if it is a stream of events, the size of each event is limited."""
    stream = response.stream
    kind = response.headers.get("content-type", "").lower()
    if kind.startswith("text/event-stream") and isinstance(stream, httpx2.AsyncByteStream):
        response.stream = _Events(stream, request, max_bytes)
    return response


class _Events(httpx2.AsyncByteStream):
    """A stream of server-sent events. An event over the limits is replaced by an error for the request and ends the
    stream.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, request: httpx2.Request, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._values = most_values(max_bytes)
        found = _ID.search(request.content[:_SHOWN]) if request.method == "POST" else None
        self._id = None if found is None else int(found[1])

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        held = bytearray()
        async for chunk in self._stream:
            looked = max(0, len(held) - 3)
            held += chunk
            ends = [at + len(end) for end in _ENDS if (at := held.rfind(end, looked)) >= 0]
            whole = bytes(held[: max(ends, default=0)])
            why = None
            if len(held) - len(whole) > self._max_bytes:
                why = f"its answer has more than {self._max_bytes:,} bytes"
            elif count_values(whole, self._values) > self._values:
                why = _too_many(self._values)
            if why is not None:
                if self._id is not None:
                    error = {"code": PARSE_ERROR, "message": why, "data": OVERSIZED}
                    answer = orjson.dumps({"jsonrpc": "2.0", "id": self._id, "error": error})
                    yield b"event: message\ndata: " + answer + b"\n\n"
                return
            if whole:
                del held[: len(whole)]
                yield whole
        if held:
            yield bytes(held)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _too_many(values: int) -> str:
    return f"its answer holds more than {values:,} JSON values"


async def _read(response: httpx2.Response, limit: int) -> bytes | None:
    """The body; None if it has more than `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > limit:
                return None
            parts.append(chunk)
    finally:
        await response.aclose()
    return b"".join(parts)


def _error(request: httpx2.Request, status: int, code: int, message: str, data: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": data}}
    return httpx2.Response(status, json=body, request=request)


@asynccontextmanager
async def http_transport(
    launch: Launch, kind: ModuleKind, *, connect_timeout: float, max_bytes: int, auth: httpx2.Auth | None
) -> AsyncGenerator[TransportStreams]:
    """A module at an address, as an MCP `Transport`: streamable HTTP, or the older SSE."""
    headers = dict(launch.headers or {})
    if kind == "sse":

        def make_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return _EventClient(max_bytes, headers=headers, timeout=timeout, auth=auth)

        async with sse_client(
            launch.url,
            headers,
            auth=auth,
            timeout=connect_timeout,
            sse_read_timeout=86_400,
            httpx_client_factory=make_client,
        ) as streams:
            yield streams
        return
    async with (
        ModuleHTTPClient(headers=headers, connect_timeout=connect_timeout, max_bytes=max_bytes, auth=auth) as client,
        streamable_http_client(launch.url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams
