"""Pass all messages from a server over HTTP to the session, whichever stream they arrive on.

Answers are matched with calls only by id, because some servers write the answer to one call on the
stream of a different call. A call is in one of these states:

    waiting    its request was sent, or is about to be
    answered   its answer, or an error in its place, was passed on
    given up   the session is no longer waiting for it; an answer that still arrives is passed on
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import anyio
import anyio.lowlevel
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
)

from ideabridge.bridge.modules.events import Event, EventReader, LongEvent
from ideabridge.bridge.modules.http import Mark, UnansweredError, says_session_lost
from ideabridge.bridge.modules.messages import MessageReader, Replaced, answer_instead
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.stdio import LINES_AT_ONCE, most_values
from ideabridge.tools.encoding import count_values

LINGER_SECONDS: Final = 0.5
"""How long, in seconds, the stream of an answered call is still read if no other call waits for an
answer.
"""
MOST_LINGERING: Final = 16
"""The maximum number of answered calls whose streams are still read at a time."""

_MOST_GIVEN_UP: Final = 1000
_DISCARD_FACTOR: Final = 8
"""An event over the limit is discarded while it is read, up to this multiple of the limit. If the
event is even longer, its body is no longer read.
"""
_SNIFFED_BYTES: Final = 4096
_FED_BYTES: Final = 32 * 1024
_DRAIN_SECONDS: Final = 0.2
_END_BYTES: Final = 512
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_FIELD: Final = re.compile(rb"(data|event|id|retry)?:")
_FIELD_BYTES: Final = len(b"event:")
_LISTEN: Final = "subscriptions/listen"


@dataclass(slots=True, eq=False)
class PendingCall:
    """A request, and the state of its answer.

    Attributes:
        message: the request.
        content: the request as bytes of JSON.
        headers: the headers that only this request has.
        is_modern: True if the request was sent in a protocol version without notifications to the
            server (since 2026-07-28).
        scope: the scope of the request's task. Cancelling it gives up the request.
        is_answered: True if the answer, or an error in its place, was passed on.
        brought_another: True if the answer to another call arrived on this call's stream.
        brought_stray: True if an answer that belongs to no known call arrived on this call's
            stream.
        news: set when the call is answered, or when another stream ends. None while no task is
            waiting for this.
        reading: the cancel scope for reading the call's stream.
    """

    message: JSONRPCRequest
    content: bytes
    headers: Mapping[str, str]
    is_modern: bool
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_answered: bool = False
    brought_another: bool = False
    brought_stray: bool = False
    news: anyio.Event | None = None
    reading: anyio.CancelScope | None = None

    @property
    def key(self) -> str:
        """The id of the request as a string, because some servers answer the id 1 with "1"."""
        return str(self.message.id)

    def wake(self) -> None:
        """Wake the task that is waiting for the call's `news`."""
        if self.news is not None:
            self.news.set()

    async def wait(self) -> None:
        """Wait until this call is answered, or the stream of another call ends."""
        self.news = anyio.Event()
        await self.news.wait()
        self.news = None


class BodyForm(Enum):
    """The form of a body, judged by its first bytes."""

    UNKNOWN = 0
    JSON = 1
    EVENTS = 2
    OTHER = 3


@dataclass(slots=True)
class Body:
    """A body that was read.

    Attributes:
        form: the form of the body, or UNKNOWN if it was empty.
        events: the reader of the body's events.
        is_noise: True if the body, or its last event, was not a message.
    """

    form: BodyForm
    events: EventReader
    is_noise: bool = False


class Mailbox:
    """Passes messages on to the session.

    Args:
        incoming: the stream of the session.
        reader: reads the messages.
        oddities: receives notes on messages that are skipped.
        max_bytes: the maximum size, in bytes, of one message.
    """

    def __init__(
        self,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
        reader: MessageReader,
        oddities: Oddities,
        max_bytes: int,
    ) -> None:
        self._incoming = incoming
        self._reader = reader
        self._oddities = oddities
        self._max_bytes = max_bytes
        self._most_values = most_values(max_bytes)
        self._waiting: dict[str, PendingCall] = {}
        self._given_up: OrderedDict[str, None] = OrderedDict()
        # The answered calls whose streams are still being read, earliest call first.
        self._lingering: OrderedDict[PendingCall, None] = OrderedDict()

    def close(self) -> None:
        """End the stream of the session."""
        self._incoming.close()

    # -- calls -------------------------------------------------------------------------------------

    def add(self, call: PendingCall) -> None:
        """Expect the answer to a call."""
        former = self._waiting.get(call.key)
        if former is not None:
            former.scope.cancel()
        self._waiting[call.key] = call

    def get(self, key: str) -> PendingCall | None:
        """Return the call with the given id (as a string) that is waiting for an answer, or
        None.
        """
        return self._waiting.get(key)

    def give_up(self, call: PendingCall) -> None:
        """Stop expecting an answer to a call, unless the call is already answered."""
        if self._waiting.get(call.key) is not call:
            return
        del self._waiting[call.key]
        self._given_up[call.key] = None
        if len(self._given_up) > _MOST_GIVEN_UP:
            self._given_up.popitem(last=False)

        self._end_lingering()

    async def fail(self, call: PendingCall, failure: UnansweredError) -> None:
        """Answer a call with an error, unless the call is already answered."""
        if self._waiting.get(call.key) is call:
            self._settle(call)
            message = JSONRPCError(jsonrpc="2.0", id=call.message.id, error=failure.error)
            await self._send(message)

    def wake_all(self) -> None:
        """Tell all waiting calls that a stream has ended, because their answers may have arrived on
        another stream.
        """
        for call in self._waiting.values():
            call.wake()

    def _settle(self, call: PendingCall) -> None:
        del self._waiting[call.key]
        call.is_answered = True
        call.wake()
        if call.reading is not None:
            self._lingering[call] = None
            if len(self._lingering) > MOST_LINGERING:
                first, _ = self._lingering.popitem(last=False)
                if first.reading is not None:
                    first.reading.cancel()

        self._end_lingering()

    def _end_lingering(self) -> None:
        """End the streams of answered calls soon, unless a waiting call might still be answered on
        one of them.
        """
        if self._lingering and all(
            call.message.method == _LISTEN for call in self._waiting.values()
        ):
            for call in self._lingering:
                if call.reading is not None:
                    call.reading.deadline = anyio.current_time() + LINGER_SECONDS

    # -- messages ----------------------------------------------------------------------------------

    async def read(
        self,
        response: httpx2.Response,
        call: PendingCall | None,
        takes: Callable[[Event], bool] | None = None,
    ) -> Body:
        """Read a body to its end, and pass on the messages in it.

        Args:
            response: the response to a request.
            call: the call that was sent with the request, or None.
            takes: called with each event. Events for which it returns True are not passed on.

        Raises:
            httpx2.RequestError: the body is incomplete JSON.
            UnansweredError: the body is larger than allowed.
        """
        body = Body(BodyForm.UNKNOWN, EventReader(self._max_bytes))
        with anyio.CancelScope() as scope:
            if call is not None:
                call.reading = scope
            try:
                await self._read(response, body, call, takes)
            finally:
                if call is not None:
                    call.reading = None
                    self._lingering.pop(call, None)

        return body

    async def _read(
        self,
        response: httpx2.Response,
        body: Body,
        call: PendingCall | None,
        takes: Callable[[Event], bool] | None,
    ) -> None:
        label = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        start = b""
        text = bytearray()
        chunks = response.aiter_bytes()
        try:
            async for chunk in chunks:
                if body.form is BodyForm.UNKNOWN:
                    start += chunk
                    body.form = form_of_body(start, label)
                    chunk = start
                if body.form is BodyForm.OTHER:
                    await _drain(chunks)
                    return
                if body.form is BodyForm.EVENTS:
                    await self._take_chunk(body, chunk, call, takes)
                elif body.form is BodyForm.JSON:
                    text += chunk
                    if len(text) > self._max_bytes:
                        raise self._too_long(self._max_bytes)
        except httpx2.RequestError:
            # Ignore the error, because the last event might be complete. If a call has no response
            # yet, HTTPTransport reports that its stream has ended.
            if body.form is not BodyForm.EVENTS:
                raise

        if body.form is BodyForm.JSON:
            body.is_noise = not await self.deliver(bytes(text), call)
        elif body.form is BodyForm.EVENTS:
            for event in body.events.end():
                await self._take_event(body, event, call, takes)

    async def _take_chunk(
        self,
        body: Body,
        chunk: bytes,
        call: PendingCall | None,
        takes: Callable[[Event], bool] | None,
    ) -> None:
        """Process the events in a chunk of any size."""
        for place in range(0, len(chunk), _FED_BYTES):
            await self._take_events(body, chunk[place : place + _FED_BYTES], call, takes)
        most_pending = self._max_bytes * _DISCARD_FACTOR
        if body.events.pending > most_pending:
            raise self._too_long(most_pending)

    async def _take_events(
        self,
        body: Body,
        chunk: bytes,
        call: PendingCall | None,
        takes: Callable[[Event], bool] | None,
    ) -> None:
        for number, event in enumerate(body.events.feed(chunk)):
            if number % LINES_AT_ONCE == LINES_AT_ONCE - 1:
                await anyio.lowlevel.checkpoint()
            await self._take_event(body, event, call, takes)
        if len(chunk) == _FED_BYTES:
            # A compressed body arrives in large pieces without any pause, so let other tasks run in
            # between.
            await anyio.lowlevel.checkpoint()

    def _too_long(self, size: int) -> UnansweredError:
        return UnansweredError(
            PARSE_ERROR, f"its answer has more than {size:,} bytes", Replaced.OVERSIZED
        )

    async def _take_event(
        self,
        body: Body,
        event: Event | LongEvent,
        call: PendingCall | None,
        takes: Callable[[Event], bool] | None,
    ) -> None:
        if isinstance(event, LongEvent):
            message = f"its answer has {event.size:,} bytes; the limit is {self._max_bytes:,}"
            await self._refuse(event.start, event.end, message, call)
        elif takes is not None and takes(event):
            return
        elif event.name == "message" or b'"jsonrpc"' in event.data:
            if event.name != "message":
                self._oddities.note(f"sends messages in events named {event.name!r}")
            body.is_noise = not await self.deliver(event.data, call)
        else:
            self._oddities.note(f"sends events named {event.name!r}, which are skipped")

    async def deliver(self, data: bytes, call: PendingCall | None) -> bool:
        """Pass on the messages in a body or event. Return False if there are none.

        Args:
            data: the raw bytes of the body or event.
            call: the call whose stream they arrived on, or None.
        """
        if count_values(data, self._most_values) > self._most_values:
            message = f"its answer contains more than {self._most_values:,} JSON values"
            await self._refuse(data[:_END_BYTES], data[-_END_BYTES:], message, call)
            return True

        messages = self._reader.read(data)
        for message in messages:
            await self._pass_on(message, call)
        return bool(messages)

    async def _refuse(self, start: bytes, end: bytes, what: str, call: PendingCall | None) -> None:
        """Pass on an error instead of a message that exceeds the limits."""
        error = answer_instead(start, end, what, Replaced.OVERSIZED)
        if error is not None:
            await self._pass_on(error, call)
        elif call is not None:
            await self.fail(call, UnansweredError(PARSE_ERROR, what, Replaced.OVERSIZED))
        else:
            self._oddities.note(f"sent a message that was skipped: {what}")

    async def _pass_on(self, message: JSONRPCMessage, call: PendingCall | None) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            answered = self._call_of(message, call)
            if answered is not None:
                if message.id is None:
                    _mark_lost_session(message.error)
                message.id = answered.message.id
                self._settle(answered)
                if call is not None and answered is not call:
                    call.brought_another = True
            elif self._given_up.pop(str(message.id), self) is self:
                self._oddities.note(
                    "answered requests that were never sent or are no longer waiting; these "
                    "answers were skipped"
                )
                if call is not None:
                    call.brought_stray = True
                return
        await self._send(message)

    def _call_of(
        self, message: JSONRPCResponse | JSONRPCError, call: PendingCall | None
    ) -> PendingCall | None:
        """Return the waiting call that a message answers, or None."""
        if message.id is not None:
            return self._waiting.get(str(message.id))
        # An error without an id comes from a server that could not read the id of the request.
        return call if call is not None and not call.is_answered else None

    async def _send(self, message: JSONRPCMessage) -> None:
        item = SessionMessage(message)
        try:
            try:
                self._incoming.send_nowait(item)
            except anyio.WouldBlock:
                await self._incoming.send(item)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the session has ended


def _mark_lost_session(error: ErrorData) -> None:
    """Mark an error without an id if it says that the session is lost, which means that the server
    has not processed the request.

    An error with an id is the answer to that request, whatever it says.
    """
    if error.code == INVALID_REQUEST and says_session_lost(error.message):
        error.data = Mark.SESSION_LOST


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the short remainder of an irrelevant body, so that its connection can be reused."""
    size = 0
    with anyio.move_on_after(_DRAIN_SECONDS):
        async for chunk in chunks:
            size += len(chunk)
            if size > _SNIFFED_BYTES:
                return


def form_of_body(start: bytes, label: str) -> BodyForm:
    """Determine the form of a body.

    Args:
        start: the first bytes of the body.
        label: the content type of the body, in lower case and without parameters.
    """
    text = start.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if not text:
        if len(start) <= _SNIFFED_BYTES or label == "application/json":
            return BodyForm.UNKNOWN
        return BodyForm.OTHER

    if text.startswith((b"{", b"[")):
        return BodyForm.JSON
    if label == "text/event-stream" or _FIELD.match(text):
        return BodyForm.EVENTS
    if len(text) < _FIELD_BYTES and any(
        name.startswith(text) for name in (b"data:", b"event:", b"id:", b"retry:")
    ):
        return BodyForm.UNKNOWN

    return BodyForm.JSON if label.endswith("json") else BodyForm.OTHER
