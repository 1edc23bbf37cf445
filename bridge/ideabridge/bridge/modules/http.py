"""Send HTTP requests to a server, and explain their failures.

A `ModuleHTTPClient` sends the requests to one server, follows redirects within the origin of its
address, and raises an `UnansweredError` if there is no usable response: for an error status with
its reason, an unreachable host, a redirect to another origin, or a missing sign-in. The transports
turn this into the error of the call, whose `data` is a `Mark`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from functools import cache
from typing import Any, Final

import anyio
import httpx2
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
)

from ideabridge.bridge.modules.errors import ModuleSignInError
from ideabridge.bridge.modules.events import Event, EventReader
from ideabridge.bridge.modules.messages import MessageReader


class Mark(Enum):
    """The `data` of an error that a transport created. Servers cannot forge it, because it is not
    JSON.

    Attributes:
        UNSENT: the request was never sent.
        UNANSWERED: the request was not answered, and the server might have processed it.
        CUT_OFF: the stream with the answer ended early, and the server might have processed the
            request.
        REFUSED: the server, or a proxy in front of it, refused the request.
        SESSION_LOST: the server refused the request because it does not know the session.
        SIGN_IN: the request needs a token, but nobody has signed in.
        SIGN_IN_LATER: like `SIGN_IN`, but a token might be available soon.
    """

    UNSENT = 1
    UNANSWERED = 2
    CUT_OFF = 3
    REFUSED = 4
    SESSION_LOST = 5
    SIGN_IN = 6
    SIGN_IN_LATER = 7


MAX_REDIRECTS: Final = 5
"""The maximum number of redirects that one request follows."""

_ERROR_BYTES: Final = 64 * 1024
_ERROR_SECONDS: Final = 5.0
"""The limits for reading the body of a refusal, in bytes and in seconds."""

_SHOWN_CHARACTERS: Final = 200
_BAD: Final = 400
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_GONE: Final = 410
_SERVER_FAULT: Final = 500
_NOT_IMPLEMENTED: Final = (501, 505)
_NO_ANSWER: Final = (408, 502, 503, 504)
"""The HTTP statuses that mean a server did not receive the whole request, or a gateway got no
answer.
"""
_KEEP_METHOD: Final = (307, 308)

_LOST: Final = (
    *("session not found", "session terminated", "session has been terminated", "session expired"),
    *(
        "session has expired",
        "session does not exist",
        "session closed",
        "session is not initialized",
    ),
    *(
        "session not initialized",
        "session required",
        "session is required",
        "session id ",
        "no session",
    ),
    *("no valid session", "no active session", "invalid session", "invalid or missing session"),
    *(
        "invalid or expired session",
        "missing session",
        "missing or invalid session",
        "missing required session",
    ),
    *("unknown session", "expired session", "could not find session", "server not initialized"),
    *("server is not initialized", "received request before initialization"),
)
"""The beginnings of server messages about an unknown session. Messages are compared in lower case,
with the header's name replaced by "session id".
"""

_CONNECTING: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Errors that occur before a request is sent."""


class UnansweredError(Exception):
    """Raised when a request gets no usable response. `error` contains the reason.

    Attributes:
        error: the error for the call that sent the request.
        status: the HTTP status of a refusal, or None if no refusal was received.
        is_own: True if the server itself sent the error, as a JSON-RPC error.
    """

    def __init__(
        self, code: int, message: str, data: Any, *, status: int | None = None, is_own: bool = False
    ) -> None:
        super().__init__(message)
        self.error = ErrorData(code=code, message=message, data=data)
        self.status = status
        self.is_own = is_own


class OlderServerError(UnansweredError):
    """Raised when the server supports only the older transport: it responded to a POST in the way
    that transport responds to a GET, or gave an unusable address for POSTs.
    """


@cache
def certificates() -> ssl.SSLContext:
    """Return the system's certificates, which connections to servers trust. They are read once, at
    the first connection.

    Reading them separately for each client would block the event loop for at least 25 ms each time.
    """
    return httpx2.create_ssl_context()


class ModuleHTTPClient:
    """Sends the requests to one server. All requests go to the origin of the server's address.

    Args:
        url: the configured address.
        headers: headers that are sent with every request.
        connect_timeout: the maximum number of seconds for connecting to the host, capped at 30.
        auth: adds tokens to the requests.
        reader: reads the errors in the bodies of refusals.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        auth: httpx2.Auth | None,
        reader: MessageReader,
    ) -> None:
        self.url = httpx2.URL(url)
        self._reader = reader
        # Set no timeout for reading, because a stream can be silent for a long time and every call
        # has its own timeout.
        timeout = httpx2.Timeout(min(30.0, connect_timeout), read=None)
        self._client = httpx2.AsyncClient(
            headers=dict(headers), timeout=timeout, auth=auth, verify=certificates()
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @asynccontextmanager
    async def open(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """Send a request, and yield the response, whose `url` is the address after redirects. The
        caller reads the response body.

        Raises:
            UnansweredError: there is no response, the response is a refusal, or its body is
                incomplete.
        """
        try:
            response = await self._send(method, url, headers, content)
            try:
                if not response.is_success:
                    raise await self._refusal(response)
                yield response
            finally:
                await response.aclose()
        except ModuleSignInError as error:
            data = Mark.SIGN_IN if error.lasting else Mark.SIGN_IN_LATER
            message = str(error).removeprefix(f"server {error.module!r} ")
            raise UnansweredError(INTERNAL_ERROR, message, data, status=_UNAUTHORIZED) from None
        except _CONNECTING as error:
            raise UnansweredError(
                CONNECTION_CLOSED, f"cannot be reached: {_why(error)}", Mark.UNSENT
            ) from None
        except httpx2.RequestError as error:
            message = f"can no longer be reached: {_why(error)}"
            raise UnansweredError(CONNECTION_CLOSED, message, Mark.UNANSWERED) from None

    async def _send(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        """Send a request, and follow redirects."""
        visited: list[httpx2.URL] = []
        while True:
            request = self._client.build_request(method, url, headers=headers, content=content)
            response = await self._client.send(request, stream=True)
            if not response.has_redirect_location:
                return response
            # Do not read the body of a redirect: it could be endless.
            await response.aclose()
            visited.append(url)
            url = _redirected(response)
            # Allow a second visit, because a server may redirect to the same address once in order
            # to set a cookie.
            if visited.count(url) > 1 or len(visited) > MAX_REDIRECTS:
                if url in visited:
                    problem = "redirects in a loop"
                else:
                    problem = f"redirects more than {MAX_REDIRECTS} times"
                message = f"{problem}, the last time to {shown_address(url)}"
                raise UnansweredError(
                    INVALID_REQUEST, message, Mark.REFUSED, status=response.status_code
                )

    async def _refusal(self, response: httpx2.Response) -> UnansweredError:
        """Return the error for a response whose status is not 2xx."""
        body = await _beginning(response)
        status = response.status_code
        kind = response.headers.get("content-type", "").lower()
        error = self._error_in(body, kind)
        if error is not None:
            return UnansweredError(
                error.code, error.message, error.data, status=status, is_own=True
            )

        code = METHOD_NOT_FOUND if status == _NOT_FOUND else INTERNAL_ERROR
        # `Retry-After` means that the server has not begun the call. With any other failure of the
        # server, the call might have run.
        has_begun = status in _NO_ANSWER or (
            status >= _SERVER_FAULT and status not in _NOT_IMPLEMENTED
        )
        if has_begun and "retry-after" not in response.headers:
            data = Mark.UNANSWERED
        else:
            data = Mark.REFUSED

        text = ""
        if not kind.startswith("text/html") and not body.lstrip().startswith(b"<"):
            text = " ".join(body.decode("utf-8", "replace").split())[:_SHOWN_CHARACTERS]

        message = f"answered HTTP {status} {response.reason_phrase}".rstrip()
        return UnansweredError(code, f"{message}: {text}" if text else message, data, status=status)

    def _error_in(self, body: bytes, kind: str) -> ErrorData | None:
        """Return the JSON-RPC error in the body of a refusal, or None if there is none."""
        if b'"error"' not in body or b'"jsonrpc"' not in body:
            return None

        texts = [body]
        if kind.startswith("text/event-stream"):
            events = EventReader(_ERROR_BYTES)
            texts = [
                event.data
                for event in [*events.feed(body), *events.end()]
                if isinstance(event, Event)
            ]

        for text in texts:
            for message in self._reader.read(text):
                if isinstance(message, JSONRPCError):
                    return message.error

        return None


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the part of a refusal's body that arrives soon."""
    parts: list[bytes] = []
    size = 0
    with anyio.move_on_after(_ERROR_SECONDS):
        try:
            async for chunk in response.aiter_bytes():
                parts.append(chunk)
                size += len(chunk)
                if size > _ERROR_BYTES:
                    break
        except httpx2.RequestError:
            pass  # the status is enough

    return b"".join(parts)[:_ERROR_BYTES]


def _redirected(response: httpx2.Response) -> httpx2.URL:
    """Return the target of a redirect.

    Raises:
        UnansweredError: the redirect leads to a different origin, or drops the content of the
            request.
    """
    status = response.status_code
    request = response.request
    try:
        target = request.url.join(response.headers["location"])
    except (httpx2.InvalidURL, ValueError):
        message = f"answered HTTP {status} with a redirect to a malformed address"
        raise UnansweredError(INVALID_REQUEST, message, Mark.REFUSED, status=status) from None

    if not is_within_origin(request.url, target):
        message = (
            f"redirects to {shown_address(target)}. ideabridge does not follow this redirect, "
            f"because it leaves the origin of {shown_address(request.url)}. If the new address is "
            "the intended server, write it into 'url'"
        )
        raise UnansweredError(INVALID_REQUEST, message, Mark.REFUSED, status=status)

    if request.method != "GET" and status not in _KEEP_METHOD:
        message = (
            f"answered HTTP {status} with a redirect to {shown_address(target)}, which would lose "
            "the content of requests. Write that address into 'url'"
        )
        raise UnansweredError(INVALID_REQUEST, message, Mark.REFUSED, status=status)

    # Keep the user name and password of the configured address: a server must not choose them.
    return target.copy_with(userinfo=request.url.userinfo, fragment=None)


def is_within_origin(url: httpx2.URL, target: httpx2.URL) -> bool:
    """Return whether two addresses have the same origin, even if the second one upgrades http to
    https.
    """
    if (url.scheme, url.host, url.port) == (target.scheme, target.host, target.port):
        return True
    is_secured = url.scheme == "http" and target.scheme == "https"
    return is_secured and url.host == target.host and url.port is None and target.port is None


def shown_address(url: httpx2.URL) -> str:
    """Return a human-readable address: shortened, and without the parts that might be secret."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:_SHOWN_CHARACTERS]


def is_session_lost(failure: UnansweredError, *, in_session: bool) -> bool:
    """Return whether a server refused a request because it does not know the session, so that
    nothing ran.

    Args:
        failure: the refusal.
        in_session: whether the request named a session.
    """
    code = failure.error.code if failure.is_own else None
    if failure.status in (_NOT_FOUND, _GONE):
        return in_session and code != METHOD_NOT_FOUND
    if failure.status != _BAD or code in (METHOD_NOT_FOUND, INVALID_PARAMS):
        return False

    message = failure.error.message
    if not failure.is_own:
        message = message.partition(": ")[2]  # the text after the status

    return says_session_lost(message)


def says_session_lost(text: str) -> bool:
    """Return whether a text from a server says that it does not know the session."""
    text = text.lower().removeprefix("bad request").removeprefix("error").lstrip(": ")
    text = (
        text.replace("mcp-session-id", "session id")
        .replace("mcp session", "session")
        .replace("'", "")
    )
    return text.startswith(_LOST)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
