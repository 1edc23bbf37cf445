"""The predecessor of streamable HTTP, with one stream of events and separate POSTs.

A connection goes through these states:

    opening   a GET was sent; its first event names the address for POSTs
    open      requests are posted there; their answers arrive on the stream
    ended     the stream has ended, and with it the connection
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
import anyio.abc
import httpx2
from mcp_types import INVALID_REQUEST

from ideabridge.bridge.modules.events import Event
from ideabridge.bridge.modules.http import (
    Mark,
    ModuleHTTPClient,
    OlderServerError,
    UnansweredError,
    is_session_lost,
    is_within_origin,
    shown_address,
)
from ideabridge.bridge.modules.mailbox import Mailbox, PendingCall

_MOST_ADDRESS: Final = 8192
_GET_HEADERS: Final = {"accept": "text/event-stream", "cache-control": "no-store"}
_POST_HEADERS: Final = {"content-type": "application/json"}


class OlderSSE:
    """A connection over the older transport.

    Args:
        client: sends the requests.
        mailbox: receives what the server sends.
    """

    def __init__(self, client: ModuleHTTPClient, mailbox: Mailbox) -> None:
        self._client = client
        self._mailbox = mailbox
        self._post_url: httpx2.URL | None = None
        self._has_ended = False

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Open the stream and keep it open. The task counts as started once the server has sent the
        address for POSTs.

        Raises:
            UnansweredError: the stream could not be opened.
        """
        try:
            async with self._client.open("GET", self._client.url, _GET_HEADERS) as response:

                def takes(event: Event) -> bool:
                    if event.name == "endpoint":
                        is_first = self._post_url is None
                        self._post_url = _address(event, response.request.url)
                        if is_first:
                            task_status.started()
                        return True
                    # Until the address is known, no request can have been sent, so no message can
                    # be an answer.
                    return self._post_url is None

                await self._mailbox.read(response, None, takes)
        except UnansweredError:
            if self._post_url is None:
                raise

        if self._post_url is None:
            raise UnansweredError(
                INVALID_REQUEST, "offers no event stream that names an address", Mark.REFUSED
            )

        self._has_ended = True
        self._mailbox.wake_all()
        self._mailbox.close()

    async def request(self, call: PendingCall) -> None:
        """Send a request, and return once it is answered or the connection has ended.

        Raises:
            UnansweredError: the request could not be sent, or was refused.
        """
        try:
            await self._post(call.content, call)
        except UnansweredError as failure:
            if is_session_lost(failure, in_session=True):
                failure.error.data = Mark.SESSION_LOST
            raise
        while not call.is_answered and not self._has_ended:
            await call.wait()

    async def post(self, content: bytes, headers: Mapping[str, str]) -> None:
        """Send a notification or this side's answer. `headers` is ignored, because this transport
        has no headers for individual messages.

        Raises:
            UnansweredError: the server did not accept the message.
        """
        del headers
        await self._post(content, None)

    async def _post(self, content: bytes, call: PendingCall | None) -> None:
        assert self._post_url is not None
        async with self._client.open("POST", self._post_url, _POST_HEADERS, content) as response:
            # Some servers answer in the body of the POST.
            await self._mailbox.read(response, call)

    async def close(self) -> None:
        """Do nothing, because there is nothing to end except the stream."""


def _address(event: Event, url: httpx2.URL) -> httpx2.URL:
    """Return the address for POSTs in an event.

    Args:
        event: the event.
        url: the address of the stream.

    Raises:
        OlderServerError: the address is malformed, or on another origin.
    """
    try:
        address = url.join(event.data[:_MOST_ADDRESS].decode("utf-8").strip())
    except (httpx2.InvalidURL, ValueError):
        problem = "names a malformed address for requests in its event 'endpoint'"
        raise OlderServerError(INVALID_REQUEST, problem, Mark.REFUSED) from None

    if not is_within_origin(url, address):
        problem = (
            f"asks for requests to be sent to {shown_address(address)}. ideabridge refuses this, "
            f"because that address is not on the origin of {shown_address(url)}"
        )
        raise OlderServerError(INVALID_REQUEST, problem, Mark.REFUSED)

    # Keep the user name and password of the configured address, because a server must not choose
    # them.
    return address.copy_with(userinfo=url.userinfo, fragment=None)
