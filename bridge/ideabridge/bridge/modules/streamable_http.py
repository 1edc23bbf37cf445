"""Send requests to one address, each answered with a JSON body or a stream of events (streamable
HTTP).

A call:

    posted      its request was sent, and the body of the answer is read
    answered    its answer has arrived, on any stream; its own stream is still read for a while
    resumed     its stream ended without its answer, but had event ids: a GET sends the last one
    elsewhere   its stream ended without its answer, which may arrive on another open stream
    failed      none of these has brought the answer

The session begins with the answer to `initialize`, which contains the session id, and ends with a
DELETE. Up to version 2025-11-25, a GET opens a stream for messages that belong to no call. Since
2026-07-28, there are no sessions and no such stream, and closing the stream of a call cancels the
call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

import anyio
import httpx2
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR

from ideabridge.bridge.modules.events import Event
from ideabridge.bridge.modules.http import (
    Mark,
    ModuleHTTPClient,
    OlderServerError,
    UnansweredError,
    is_session_lost,
)
from ideabridge.bridge.modules.mailbox import Body, BodyForm, Mailbox, PendingCall
from ideabridge.bridge.modules.messages import Replaced

REOPEN_SECONDS: Final = 0.5
"""The shortest pause, in seconds, before a stream is reopened. A server might ask for 0."""
_REOPEN_DEFAULT: Final = 1.0
_REOPEN_MOST: Final = 300.0
_MOST_FAILURES: Final = 2
"""The number of consecutive failures after which a stream is no longer reopened."""

_LONG_SECONDS: Final = 5.0
"""The minimum time, in seconds, for which a stream must stay open so that it does not count as a
failure.
"""

ELSEWHERE_SECONDS: Final = 2.0
"""How long, in seconds, a call whose stream has ended waits for its answer on another stream."""

DELETE_SECONDS: Final = 1.0
"""The maximum time, in seconds, that the server has to end the session."""

_SESSION: Final = re.compile(r"[\x20-\x7e]{1,4096}")
_OK: Final = 200
_CLIENT_FAULTS: Final = range(300, 500)
_FIRST: Final = ("initialize", "server/discover")
_SESSION_HEADER: Final = "mcp-session-id"
_POST_HEADERS: Final = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
_GET_HEADERS: Final = {"accept": "text/event-stream", "cache-control": "no-store"}


class StreamableHTTP:
    """A connection over streamable HTTP.

    Args:
        client: sends the requests.
        mailbox: receives what the server sends.

    Attributes:
        version: the protocol version, for requests whose own headers do not state it.
    """

    def __init__(self, client: ModuleHTTPClient, mailbox: Mailbox) -> None:
        self._client = client
        self._mailbox = mailbox
        self._url = client.url
        self._session: str | None = None
        self.version: str | None = None
        # The number of open streams on which answers can arrive, not counting streams of calls that
        # are themselves waiting for other streams.
        self._open_streams = 0
        self._is_listening = False

    # -- calls -------------------------------------------------------------------------------------

    async def request(self, call: PendingCall) -> None:
        """Send a request, and return once it is answered and its stream has ended.

        Raises:
            UnansweredError: the request is not answered.
        """
        body = await self._post(call)
        if not call.is_answered and body.events.last_id is not None:
            await self._resume(call, body)
        if not call.is_answered:
            await self._wait_for_another_stream(call, body)
        if not call.is_answered:
            raise _unanswered(call, body)

    async def _wait_for_another_stream(self, call: PendingCall, body: Body) -> None:
        """Wait while the answer might still arrive on another open stream."""
        if body.form is BodyForm.OTHER:
            return

        if body.form is BodyForm.UNKNOWN:
            # Some servers accept a request here, but answer it on the stream for messages that
            # belong to no call.
            while self._is_listening and not call.is_modern and not call.is_answered:
                await call.wait()
            return

        # A server that answered a different call on this stream will probably answer this one on
        # the stream of that call, so wait without a limit.
        seconds = math.inf if call.brought_another else ELSEWHERE_SECONDS
        with anyio.move_on_after(seconds):
            while self._open_streams and not call.is_answered:
                await call.wait()

    async def _post(self, call: PendingCall) -> Body:
        headers = {**_POST_HEADERS, **self._session_headers(), **call.headers}
        self._open_streams += 1
        try:
            async with self._client.open("POST", self._url, headers, call.content) as response:
                self._url = response.request.url
                if call.message.method == "initialize":
                    self._take_session(response)

                takes = _is_of_older if call.message.method in _FIRST else None
                body = await self._mailbox.read(response, call, takes)
                if body.form is BodyForm.OTHER and response.status_code != _OK:
                    body.form = BodyForm.UNKNOWN  # for example, the text "Accepted"

                return body
        except UnansweredError as failure:
            if call.message.method not in _FIRST and is_session_lost(
                failure, in_session=_SESSION_HEADER in headers
            ):
                failure.error.data = Mark.SESSION_LOST
            raise
        finally:
            self._end_stream()

    def _end_stream(self) -> None:
        self._open_streams -= 1
        self._mailbox.wake_all()

    async def post(self, content: bytes, headers: Mapping[str, str]) -> None:
        """Send a notification or this side's answer to a request.

        Raises:
            UnansweredError: the server did not accept the message.
        """
        headers = {**_POST_HEADERS, **self._session_headers(), **headers}
        async with self._client.open("POST", self._url, headers, content) as response:
            self._url = response.request.url
            await self._mailbox.read(response, None)

    async def _resume(self, call: PendingCall, body: Body) -> None:
        """Reopen the stream of a call until the answer arrives, or the stream can no longer be
        opened.
        """
        last_id = body.events.last_id
        retry = body.events.retry
        failures = 0
        while failures < _MOST_FAILURES and not call.is_answered:
            with anyio.move_on_after(_pause(retry)):
                while not call.is_answered:
                    await call.wait()

            if call.is_answered:
                return

            headers = {**_GET_HEADERS, **self._session_headers(), "last-event-id": last_id or ""}
            self._open_streams += 1
            try:
                async with self._client.open("GET", self._url, headers) as response:
                    again = await self._mailbox.read(response, call)

                failures = 0 if again.form is BodyForm.EVENTS else failures + 1
                last_id = again.events.last_id or last_id
                retry = retry if again.events.retry is None else again.events.retry
            except UnansweredError as failure:
                if failure.status in _CLIENT_FAULTS:
                    return
                failures += 1
            finally:
                self._end_stream()

    # -- the session -------------------------------------------------------------------------------

    def _session_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self._session is not None:
            headers[_SESSION_HEADER] = self._session
        if self.version is not None:
            headers[MCP_PROTOCOL_VERSION_HEADER] = self.version
        return headers

    def _take_session(self, response: httpx2.Response) -> None:
        session = response.headers.get(_SESSION_HEADER, "").strip()
        if not session:
            return
        if not _SESSION.fullmatch(session):
            message = (
                f"sent a session id of {len(session):,} characters; expected 1 to 4,096 visible "
                "ASCII characters"
            )
            raise UnansweredError(INVALID_REQUEST, message, Mark.REFUSED)

        self._session = session

    async def listen(self) -> None:
        """Keep the stream for messages that belong to no call open. Return when the server no
        longer offers it.
        """
        if self._session is None:
            return

        last_id: str | None = None
        retry: int | None = None
        failures = 0
        self._is_listening = True
        try:
            while failures < _MOST_FAILURES:
                began = anyio.current_time()
                failures += 1
                headers = {**_GET_HEADERS, **self._session_headers()}
                if last_id is not None:
                    headers["last-event-id"] = last_id

                self._open_streams += 1
                try:
                    async with self._client.open("GET", self._url, headers) as response:
                        body = await self._mailbox.read(response, None)

                    if body.form not in (BodyForm.EVENTS, BodyForm.UNKNOWN):
                        return

                    if body.form is BodyForm.EVENTS:
                        failures = 0

                    last_id = body.events.last_id or last_id
                    retry = retry if body.events.retry is None else body.events.retry
                except UnansweredError as failure:
                    if failure.status in _CLIENT_FAULTS:
                        return
                finally:
                    self._end_stream()

                if anyio.current_time() - began > _LONG_SECONDS:
                    failures = 0  # a proxy has probably ended the silent stream

                await anyio.sleep(_pause(retry))
        finally:
            self._is_listening = False
            self._mailbox.wake_all()

    async def close(self) -> None:
        """End the session on the server. This can take a second."""
        if self._session is None:
            return
        with anyio.move_on_after(DELETE_SECONDS):
            try:
                async with self._client.open("DELETE", self._url, self._session_headers()):
                    return
            except UnansweredError:
                return  # the server might refuse the request, or might no longer exist


def _unanswered(call: PendingCall, body: Body) -> UnansweredError:
    """Return the error for a request that got no answer."""
    if body.form is BodyForm.OTHER:
        text = "its answer is neither JSON nor a stream of events"
        return UnansweredError(PARSE_ERROR, text, Replaced.UNREADABLE)
    if body.form is BodyForm.UNKNOWN:
        return UnansweredError(INVALID_REQUEST, "its answer has no content", Replaced.UNREADABLE)
    if body.is_noise:
        text = "its answer is not a JSON-RPC message"
        return UnansweredError(PARSE_ERROR, text, Replaced.UNREADABLE)
    if call.brought_stray:
        text = "its answer has an id that no waiting request has"
        return UnansweredError(PARSE_ERROR, text, Replaced.UNREADABLE)
    return UnansweredError(CONNECTION_CLOSED, "the stream of its answer ended early", Mark.CUT_OFF)


def _is_of_older(event: Event) -> bool:
    """Return False, or raise an error if the event comes from a server of the older transport.

    Raises:
        OlderServerError: the event names the address for POSTs, as only a server of the older
            transport does.
    """
    if event.name != "endpoint":
        return False
    message = (
        "answers as a server of the older transport, with an event 'endpoint' "
        '("type": "sse" in its entry)'
    )
    raise OlderServerError(INVALID_REQUEST, message, Mark.REFUSED)


def _pause(retry: int | None) -> float:
    """Return how many seconds to wait before reopening a stream."""
    seconds = _REOPEN_DEFAULT if retry is None else retry / 1000
    return min(max(seconds, REOPEN_SECONDS), _REOPEN_MOST)
