"""Connect `mcp.Client` to a server at an address.

    HTTPTransport       starts a task for each message, and answers the calls that fail
    StreamableHTTP      the transport since version 2025-03-26
    OlderSSE            the transport before it. If the configuration names no transport, it is
                        tried after the server has refused the POST of `initialize`, or has answered
                        it like a server of the older transport
    ModuleHTTPClient    sends the requests
    Mailbox             passes on what the server sends

The SDK's transport does less: it matches an answer with a call only by the stream on which it
arrives, loses an answer that follows a malformed event and, in the older transport, does not report
an error to a call whose POST fails.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

import anyio
import anyio.abc
import httpx2
from anyio.abc import ObjectSendStream
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import INTERNAL_ERROR, JSONRPCNotification, JSONRPCRequest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ideabridge.bridge.modules.http import Mark, ModuleHTTPClient, OlderServerError, UnansweredError
from ideabridge.bridge.modules.mailbox import Mailbox, PendingCall
from ideabridge.bridge.modules.messages import MessageReader
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.older_sse import OlderSSE
from ideabridge.bridge.modules.sdk import TransportStreams
from ideabridge.bridge.modules.settings import Launch
from ideabridge.bridge.modules.streamable_http import StreamableHTTP
from ideabridge.bridge.server_entry import ModuleKind

NOTIFICATION_SECONDS: Final = 10.0
"""The maximum time, in seconds, that a server has to accept a notification or an answer from this
side.
"""

ENDPOINT_SECONDS: Final = 5.0
"""The maximum time, in seconds, that a server has to name its address for POSTs if it might speak
the older transport.
"""

CANCEL_SECONDS: Final = 5.0
"""How long, in seconds, the stream of a call is still read after the server was asked to cancel the
call (up to version 2025-11-25).
"""

_MAY_BE_OLDER: Final = (400, 404, 405, 406, 410, 415, 422, 501)
"""The HTTP statuses that servers use to refuse all POSTs at an address, or this kind of POST."""


class HTTPTransport:
    """A server at an address, as an MCP `Transport`. Entering it returns the streams, and leaving
    it ends the session.

    Args:
        launch: the address and the headers.
        kind: "http", or "sse" for the older transport.
        oddities: receives notes on messages that are skipped or repaired.
        may_choose: True if `kind` is only a guess. If the server refuses it, the older transport is
            tried.
        connect_timeout: the maximum number of seconds for connecting to the host.
        max_bytes: the maximum size, in bytes, of one message.
        auth: adds tokens to the requests.

    Attributes:
        kind_used: the transport that the server speaks.
    """

    def __init__(
        self,
        launch: Launch,
        kind: ModuleKind,
        oddities: Oddities,
        *,
        may_choose: bool,
        connect_timeout: float,
        max_bytes: int,
        auth: httpx2.Auth | None,
    ) -> None:
        self.kind_used: ModuleKind = kind
        self._oddities = oddities
        self._may_choose = may_choose
        reader = MessageReader(oddities)
        self._client = ModuleHTTPClient(
            launch.url,
            headers=launch.headers,
            connect_timeout=connect_timeout,
            auth=auth,
            reader=reader,
        )
        incoming, self._to_session = anyio.create_memory_object_stream[SessionMessage | Exception](
            64
        )
        self._mailbox = Mailbox(incoming, reader, oddities, max_bytes)
        self._streamable = StreamableHTTP(self._client, self._mailbox)
        self._way: StreamableHTTP | OlderSSE = self._streamable
        self._group: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> TransportStreams:
        group = anyio.create_task_group()
        self._group = await group.__aenter__()
        if self.kind_used == "sse":
            try:
                await self._open_older(group)
            except BaseException as error:
                await self.__aexit__(type(error), error, None)
                if isinstance(error, UnansweredError):
                    raise MCPError(
                        error.error.code, error.error.message, error.error.data
                    ) from None
                raise

        return self._to_session, _Outgoing(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        group = self._group
        self._group = None
        if group is None:
            return

        # Shielding this is safe, because every wait inside it has a time limit.
        with anyio.CancelScope(shield=True):
            self._mailbox.close()
            self._to_session.close()
            await self._way.close()

        group.cancel_scope.cancel()
        await group.__aexit__(None, None, None)
        with anyio.CancelScope(shield=True):
            await self._client.aclose()

    async def _open_older(self, group: anyio.abc.TaskGroup) -> None:
        older = OlderSSE(self._client, self._mailbox)
        await group.start(older.run)
        self._way = older
        self.kind_used = "sse"

    async def send(self, item: SessionMessage) -> None:
        """Send a message in a new task that has the caller's context variables.

        Raises:
            anyio.ClosedResourceError: the transport is closed.
        """
        group = self._group
        if group is None:
            raise anyio.ClosedResourceError

        message = item.message
        headers: dict[str, str] = {}
        if isinstance(item.metadata, ClientMessageMetadata) and item.metadata.headers is not None:
            headers = item.metadata.headers

        if isinstance(message, JSONRPCRequest) and message.method == "initialize":
            # `initialize` negotiates the version, so forget the version with which
            # `server/discover` was sent.
            self._streamable.version = None
        elif MCP_PROTOCOL_VERSION_HEADER in headers:
            self._streamable.version = headers[MCP_PROTOCOL_VERSION_HEADER]

        content = message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8")

        if isinstance(message, JSONRPCRequest):
            call = PendingCall(message, content, headers, self._is_modern)
            self._mailbox.add(call)
            group.start_soon(self._request, call)
        elif not isinstance(message, JSONRPCNotification):
            group.start_soon(self._post, content, headers, "an answer")
        elif message.method == "notifications/initialized":
            # Wait until this notification has been sent, because servers reject requests that
            # arrive before it.
            await self._post(content, headers, message.method)
            if self._way is self._streamable:
                group.start_soon(self._streamable.listen)
        elif message.method != "notifications/cancelled" or self._is_sent(message):
            group.start_soon(self._post, content, headers, message.method)

    @property
    def _is_modern(self) -> bool:
        return self._streamable.version in MODERN_PROTOCOL_VERSIONS

    def _is_sent(self, cancellation: JSONRPCNotification) -> bool:
        """Stop waiting for a call, and return whether to send the cancellation to the server.

        Since 2026-07-28, cancellations are not sent, because ending the call's stream means the
        same.
        """
        request = cancelled_request_id_from_params(cancellation.params)
        call = self._mailbox.get(str(request))
        if call is None:
            return not self._is_modern
        self._mailbox.give_up(call)
        if call.is_modern:
            call.scope.cancel()
        else:
            call.scope.deadline = anyio.current_time() + CANCEL_SECONDS

        return not call.is_modern

    async def _request(self, call: PendingCall) -> None:
        try:
            with call.scope:
                await self._answer(call)
        finally:
            self._mailbox.give_up(call)

    async def _answer(self, call: PendingCall) -> None:
        """Send a request. If the server does not answer it, answer it with an error."""
        try:
            try:
                await self._way.request(call)
            except UnansweredError as failure:
                if not await self._becomes_older(call, failure):
                    raise
                await self._way.request(call)
        except UnansweredError as failure:
            await self._mailbox.fail(call, failure)
        except Exception as error:  # noqa: BLE001 - a fault of one request must not end the others
            message = f"could not be asked: {type(error).__name__}: {error}"
            await self._mailbox.fail(
                call, UnansweredError(INTERNAL_ERROR, message, Mark.UNANSWERED)
            )

    async def _becomes_older(self, call: PendingCall, failure: UnansweredError) -> bool:
        """If the server refuses `initialize` because it speaks only the older transport, open that
        transport. Return whether it is open now.

        Raises:
            OlderServerError: the server speaks the older transport, but gives an unusable address.
        """
        is_sign = isinstance(failure, OlderServerError) or failure.status in _MAY_BE_OLDER
        if (
            call.message.method != "initialize"
            or not is_sign
            or not self._may_choose
            or self._group is None
        ):
            return False

        self._may_choose = False
        try:
            with anyio.fail_after(ENDPOINT_SECONDS):
                await self._open_older(self._group)
        except OlderServerError:
            raise
        except (UnansweredError, TimeoutError):
            return False  # the first refusal is more informative

        return True

    async def _post(self, content: bytes, headers: dict[str, str], what: str) -> None:
        """Send a notification, or this side's answer to a request, without making the session wait
        for the server's response.
        """
        try:
            with anyio.fail_after(NOTIFICATION_SECONDS):
                await self._way.post(content, headers)
        except UnansweredError as failure:
            if failure.status is not None:
                self._oddities.note(
                    f"did not accept {what}: HTTP {failure.status}", failure.error.message
                )
        except TimeoutError:
            self._oddities.note(f"did not accept {what} within {NOTIFICATION_SECONDS:g} s")
        except Exception as error:  # noqa: BLE001 - a fault of one message must not end the others
            self._oddities.note(f"{what} could not be sent: {type(error).__name__}", str(error))


class _Outgoing(ObjectSendStream[SessionMessage]):
    """The stream from the session, which needs no buffer because each message is sent in its own
    task.
    """

    def __init__(self, transport: HTTPTransport) -> None:
        self._transport = transport

    async def send(self, item: SessionMessage) -> None:
        await self._transport.send(item)

    async def aclose(self) -> None:
        """Do nothing, because leaving the transport closes the stream."""
