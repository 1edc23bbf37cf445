"""One connection to a server, from start to end.

    Connection          connects, lists the tools, holds the connection, reports its end
      mcp.Client        the SDK's client
        Tap             watches and limits the messages between the client and the transport
          StdioTransport or HTTPTransport
      Backchannel       finds the call that a question of the server belongs to

An `mcp.Client` must be entered and left by the same task and cannot be reused. So the task that
runs `hold` does both, and every attempt to connect creates a new Connection. Meanwhile any number
of other tasks call through `client`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, cast

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
import orjson
from anyio.abc import ObjectReceiveStream, ObjectSendStream, TaskGroup, TaskStatus
from mcp.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import Subscription, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
    event_from_wire,
)
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ideabridge.bridge.modules.backchannel import Backchannel
from ideabridge.bridge.modules.errors import (
    ModuleConnectError,
    ModuleError,
    ModuleProtocolError,
    ModuleSignInError,
    shown,
)
from ideabridge.bridge.modules.handshake import Handshake
from ideabridge.bridge.modules.http import Mark
from ideabridge.bridge.modules.http_transport import HTTPTransport
from ideabridge.bridge.modules.listing import Listing, make_listing, without_secrets
from ideabridge.bridge.modules.messages import Replaced
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.offering import Offering, event_of
from ideabridge.bridge.modules.pages import ListPage, PagedList, Patience, read_pages
from ideabridge.bridge.modules.repairs import Repairs
from ideabridge.bridge.modules.sdk import ReadStream, TransportStreams, WriteStream
from ideabridge.bridge.modules.server_log import ServerLog
from ideabridge.bridge.modules.settings import Era, Launch, ModuleConfiguration
from ideabridge.bridge.modules.stdio import StdioTransport
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.server_entry import ModuleKind
from ideabridge.tools.names import printable_line
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.turns import asked_by

logger = logging.getLogger(__name__)

MOST_NOTIFICATIONS: Final = 1000
"""The maximum number of a server's notifications that are forwarded in one burst. After such a
burst, notifications above `NOTIFICATIONS_RATE` are dropped, because each notification costs as much
as a small call. Answers cannot be lost in this way.
"""

NOTIFICATIONS_RATE: Final = 200.0
"""The maximum average number of notifications per second that are forwarded."""

MOST_QUESTIONS: Final = 100
"""The maximum number of requests from a server that are unanswered at a time. Each of them is a
task.
"""

QUESTIONS_RATE: Final = 50.0
"""The maximum average number of a server's requests per second that are read."""

_UNSETTLED: Final = "2025-11-25"


class _TokenBucket:
    """Allows `most` events in one burst, and `rate` per second on average."""

    def __init__(self, most: float, rate: float) -> None:
        self._most = self._left = most
        self._rate = rate
        self._then = 0.0

    def missing(self) -> float:
        """Take a token and return 0, or return the number of seconds until the next token is
        available.
        """
        now = anyio.current_time()
        self._left = min(self._most, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0


class Tap:
    """A transport that watches, repairs and limits the messages of another transport.

    It notices when the wrapped transport ends, which the SDK reports only to calls in flight. It
    repairs messages that the SDK would reject as a whole, and limits how many notifications and
    requests a server can send.

    Args:
        transport: the wrapped transport.
        backchannel: receives requests, answers and questions.
        handshake: sees the first messages.
        oddities: receives notes on messages that are repaired or skipped.
        on_event: called for a change notification, which is then not forwarded.
        log: receives log messages, or None.

    Attributes:
        ended: set when the other side has ended the connection.
        version: the protocol version, set by the connection once it is negotiated.
        listed: the size, in bytes, of the pages of tools received so far.
        left_out: the number of dropped notifications.
        fault: the protocol violation that ended the connection, or None.
    """

    def __init__(
        self,
        transport: AbstractAsyncContextManager[TransportStreams],
        backchannel: Backchannel,
        handshake: Handshake,
        oddities: Oddities,
        on_event: Callable[[ServerEvent], None],
        log: ServerLog | None = None,
    ) -> None:
        self._log = log
        self._transport = transport
        self._backchannel = backchannel
        self._repairs = Repairs(oddities)
        self.handshake = handshake
        self._on_event = on_event
        self._notifications = _TokenBucket(MOST_NOTIFICATIONS, NOTIFICATIONS_RATE)
        self._questions = _TokenBucket(2 * MOST_QUESTIONS, QUESTIONS_RATE)
        self._unanswered: set[str] = set()
        self.listed = 0
        self.left_out = 0
        self.fault: str | None = None
        self._listings: set[str | int] = set()
        self.ended = anyio.Event()
        self.version = _UNSETTLED

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._transport.__aenter__()
        return _Reading(read, write, self), _Writing(write, self)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        self.ended.set()
        return await self._transport.__aexit__(exc_type, exc_val, exc_tb)

    def outgoing(self, item: SessionMessage) -> None:
        """Record an outgoing message, and whether it asks for a page of a list."""
        message = item.message
        self.handshake.outgoing(item)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._settle(message.id)

        if not isinstance(message, JSONRPCRequest):
            return
        self._backchannel.sent(message)
        self._repairs.sent(message)
        if message.method == "tools/list":
            self._listings.add(message.id)

    async def admits(self, item: SessionMessage | Exception) -> bool:
        """Return whether to forward a message. If the server sends requests faster than allowed,
        wait first.

        Raises:
            anyio.EndOfStream: the connection ends because the server has too many unanswered
            requests.
        """
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled" and self._settle(
                (message.params or {}).get("requestId")
            ):
                # The server has cancelled its question, so the SDK will not answer it.
                return True

            if not self._notifications.missing():
                return True
            self.left_out += 1
            if event := event_from_wire(message.method, message.params):
                self._on_event(event)

            return False

        if isinstance(message, JSONRPCRequest):
            if len(self._unanswered) >= MOST_QUESTIONS:
                count = len(self._unanswered)
                self.fault = (
                    f"had {count} unanswered requests at the same time; "
                    f"the limit is {MOST_QUESTIONS}"
                )
                raise anyio.EndOfStream

            request = str(message.id)
            if request in self._unanswered:
                self.fault = (
                    f"sent a second request with id {request[:100]!r} before the first was answered"
                )
                raise anyio.EndOfStream

            self._unanswered.add(request)
            self._backchannel.asked(message)
            if seconds := self._questions.missing():
                await anyio.sleep(seconds)
                self._questions.missing()  # consumes the token that has become available

        return True

    def _settle(self, request: object) -> bool:
        """Record that a request from the server was answered or cancelled. Return False if the
        request is unknown.
        """
        # Treat 7 and "7" as the same id, as the SDK does.
        was_unanswered = str(request) in self._unanswered
        self._unanswered.discard(str(request))
        self._backchannel.settled(str(request))
        return was_unanswered

    async def incoming(self, item: SessionMessage | Exception) -> SessionMessage | Exception | None:
        """Record answers and log messages. Return the item with its message repaired, or None if it
        is skipped.
        """
        if isinstance(item, Exception):
            return item

        if self._repairs.is_heavy(item.message):
            # Let servers take turns, so that one with many odd messages does not delay the others.
            turn = asked_by.set(f"connection {id(self)}")
            message = await compute_in_thread(self._repairs.repaired, item.message, self.version)
            asked_by.reset(turn)
        else:
            message = self._repairs.repaired(item.message, self.version)

        if message is None:
            return None

        if isinstance(message, JSONRPCNotification) and message.method == "notifications/message":
            self._backchannel.logged(message.params or {})
            if self._log is not None:
                self._log.add_message(message.params or {})

        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._backchannel.answered(message.id)

        if isinstance(message, JSONRPCResponse) and message.id in self._listings:
            self._listings.discard(message.id)
            self.listed += _size(message.result)

        if message is item.message:
            return item
        return SessionMessage(message, item.metadata)


def _size(result: dict[str, Any]) -> int:
    try:
        return len(orjson.dumps(result))
    except orjson.JSONEncodeError:
        return len(repr(result))  # for example an integer of more than 64 bits


class _Reading(ObjectReceiveStream[SessionMessage | Exception]):
    def __init__(
        self,
        stream: ReadStream[SessionMessage | Exception],
        write: WriteStream[SessionMessage],
        tap: Tap,
    ) -> None:
        self._stream = stream
        self._write = write
        self._tap = tap

    @property
    def last_context(self) -> Any:
        """The context variables of the sender, if the inner stream provides them."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            while True:
                item = await self._next()
                if item is not None and await self._tap.admits(item):
                    repaired = await self._tap.incoming(item)
                    if repaired is not None:
                        return repaired
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._tap.ended.set()
            raise

    async def _next(self) -> SessionMessage | Exception | None:
        """Return the next message, or None if the handshake has handled it or needs to wait
        longer.
        """
        handshake = self._tap.handshake
        item: SessionMessage | Exception | None = None
        if handshake.may_be_silent:
            with handshake.waiting():
                item = await self._stream.receive()
            if item is None:
                return handshake.refusal()
        else:
            item = await self._stream.receive()

        if isinstance(item, Exception) or not isinstance(
            item.message, JSONRPCResponse | JSONRPCError
        ):
            return item

        if handshake.is_late(item.message):
            return None
        if (
            isinstance(item.message, JSONRPCError)
            and (again := handshake.again(item.message)) is not None
        ):
            await self._write.send(again)
            return None

        return item

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Writing(ObjectSendStream[SessionMessage]):
    def __init__(self, stream: WriteStream[SessionMessage], tap: Tap) -> None:
        self._stream = stream
        self._tap = tap

    async def send(self, item: SessionMessage) -> None:
        self._tap.outgoing(item)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()


_FIRST_LIST: Final = Patience(page=5.0, whole=10.0)
"""How long, in seconds, a new connection waits for the pages after the first page. Tools on later
pages are added to the list as they arrive.
"""

_LATER_LIST: Final = Patience(page=60.0, whole=300.0)
_LIST_AGAIN_SECONDS: Final = 1.0
_LIST_AGAIN_MOST: Final = 60.0
"""The first and the longest pause, in seconds, before an incomplete or missing list is read
again.
"""

_REFRESH_SECONDS: Final = 0.25
_REFRESH_MOST: Final = 2.0
_LISTEN_AGAIN_SECONDS: Final = 1.0
_LISTEN_AGAIN_MOST: Final = 60.0
_WORDS: Final = 600
_LONGEST_NAME: Final = 200


class _Begun(Protocol):
    """A function that is called whenever a subscription begins or is renewed."""

    def __call__(self, *, again: bool) -> None: ...


@functools.cache
def own_version() -> str:
    """Return the version of ideabridge. It is read only once, because that takes milliseconds."""
    return importlib.metadata.version("ideabridge")


@dataclass(frozen=True, slots=True)
class Peer:
    """The server at the other end of a connection."""

    era: Era
    protocol_version: str
    server_name: str | None
    server_version: str | None
    instructions: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStart:
    """The settings of an attempt to connect, and the callbacks for its events.

    Attributes:
        launch: the program to start or the address to connect to.
        kind: the kind of connection to try first.
        legacy: True to send `initialize` first.
        auth: gets tokens, or None to send requests without a token.
        waited_until: see `Handshake`.
        max_bytes: the maximum size, in bytes, of one message.
        secrets: masks secret values.
        quotes: returns whether errors and notes quote what the server wrote; see `Modules.quotes`.
        exposed: True if clients can call the server's tools directly.
        watched: the resources whose changes are reported. The owner of the connection changes this
            set.
        log_level: the level of the log messages that the server should send, or None to leave it to
            the server.
        log: the log file of the server, or None.
        on_ask: called when the server sends a question as the protocol versions with a handshake
            define it.
        on_mixed: see `Backchannel`.
        on_event: called when resources or prompts have changed.
        on_listing: called with the tools when the server has listed them again.
    """

    launch: Launch
    kind: ModuleKind
    legacy: bool
    auth: httpx2.Auth | None
    waited_until: Callable[[], float]
    max_bytes: int
    secrets: Secrets
    quotes: Callable[[], bool]
    exposed: bool
    watched: Set[str]
    log_level: types.LoggingLevel | None
    log: ServerLog | None
    on_ask: Callable[[], None]
    on_mixed: Callable[[int], None]
    on_event: Callable[[ServerEvent], None]
    on_listing: Callable[[Listing], None]


class Connection:
    """One attempt to connect, and the resulting connection.

    Attributes:
        peer: the server, or None until it is up.
        done: set when the connection has ended and everything is closed.
        timed_out: True if connecting took too long.
        legacy: True if `initialize` is sent first.
        may_be_era: True if the attempt failed during the first messages, so that an attempt with
            the other first message might succeed.
        listing: the tools, refreshed when they change, or None until the server has listed them.
        list_fault: why some or all tools could not be listed the last time, or None if all were
            listed.
        offering: the resources, templates and prompts.
        backchannel: finds the call that a question belongs to.
        oddities: notes on messages that were skipped or repaired.
    """

    def __init__(
        self, module: str, configuration: ModuleConfiguration, start: ConnectionStart
    ) -> None:
        secrets = start.secrets
        self._module = module
        self._configuration = configuration
        self._secrets = secrets
        self._quotes = start.quotes
        self._on_listing = start.on_listing
        self._on_event = start.on_event
        self._watched = start.watched
        self._log_level: types.LoggingLevel | None = start.log_level
        self._watched_changed = anyio.Event()
        # The watched resources whose changes the server will report (version 2026-07-28).
        self._held: frozenset[str] = frozenset()
        self._held_changed = anyio.Event()
        self.oddities = Oddities(secrets, start.quotes)
        self.legacy = start.legacy or start.kind == "sse"
        connect_timeout = configuration.connect_timeout
        self._stdio: StdioTransport | None = None
        self._http: HTTPTransport | None = None
        transport: StdioTransport | HTTPTransport
        if start.kind == "stdio":
            transport = self._stdio = StdioTransport(
                module,
                start.launch,
                self.oddities,
                max_line_bytes=start.max_bytes,
                log=start.log,
            )
        else:
            transport = self._http = HTTPTransport(
                start.launch,
                start.kind,
                self.oddities,
                may_choose=configuration.type is None,
                connect_timeout=connect_timeout,
                max_bytes=start.max_bytes,
                auth=start.auth,
            )

        self.backchannel = Backchannel(start.on_ask, start.on_mixed, exposed=start.exposed)
        self._tap = Tap(
            transport,
            self.backchannel,
            Handshake(connect_timeout, start.waited_until),
            self.oddities,
            lambda event: self._heard(event),
            start.log,
        )
        self.client = Client(
            self._tap,
            mode="legacy" if self.legacy else "auto",
            read_timeout_seconds=connect_timeout,
            message_handler=self._on_message,
            elicitation_callback=self.backchannel.elicit,
            sampling_callback=self.backchannel.sample,
            list_roots_callback=self.backchannel.list_roots,
            client_info=types.Implementation(name="ideabridge", version=own_version()),
            cache=None,
        )
        self.offering = Offering(self.client, secrets, lambda error: _text(error, secrets))
        self._changed = anyio.Event()
        self._stop = anyio.Event()
        self._scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.timed_out = False
        self._cause = "ended the connection"
        self.peer: Peer | None = None
        self.may_be_era = False
        self._negotiated = False
        self.listing: Listing | None = None
        self.list_fault: str | None = None
        # The CPU time, in seconds, that the last list took.
        self._listing_seconds = 0.0

    @property
    def usable(self) -> bool:
        """Whether calls can be sent."""
        return self.peer is not None and not self._tap.ended.is_set() and not self._stop.is_set()

    @property
    def is_modern(self) -> bool:
        """Whether the server is up and uses a version without a handshake (2026-07-28)."""
        return self.peer is not None and self.peer.era == "modern"

    @property
    def kind_used(self) -> ModuleKind:
        """The kind of connection that works with this server, which may differ from server to
        server unless the configuration sets it.
        """
        return "stdio" if self._http is None else self._http.kind_used

    @property
    def is_silent_first(self) -> bool:
        """Whether the server does not answer `server/discover`, which makes each start slower."""
        return self._tap.handshake.is_silent

    @property
    def protocol_fault(self) -> bool:
        """Whether the connection was ended because the server violated the protocol."""
        return self._tap.fault is not None or (
            self._stdio is not None and self._stdio.protocol_fault
        )

    @property
    def notes(self) -> list[str]:
        """Human-readable notes about the server's tools, output that is not a message, and dropped
        notifications.
        """
        notes: list[str] = []
        if self.listing is not None:
            notes += self.listing.notes

        notes += self.oddities.lines
        if self.list_fault is not None:
            notes.append(self.list_fault)

        notes += self.offering.notes
        if self._tap.left_out:
            notes.append(f"sent too many notifications; {self._tap.left_out:,} were dropped")

        return notes

    def stop(self) -> None:
        """End the connection. `hold` returns soon after."""
        self._stop.set()
        self._cause = "was closed"
        if self.peer is None:
            self._scope.cancel()

    @property
    def program_ended(self) -> bool:
        """Whether the server is a program that has ended on its own."""
        return self._stdio is not None and self._stdio.reason not in (None, "was closed")

    def end(self, during: str = "") -> str:
        """Describe how the connection ended: "was closed", or "ended with exit code 3 while ...;
        its last words: ...".
        """
        if self._tap.fault is not None:
            return self._tap.fault + during
        if self._stdio is None or self._stdio.reason is None:
            return self._cause + during
        return self._stdio.reason + during + self._words()

    async def hold(self, on_up: Callable[[], None], on_down: Callable[[], None]) -> None:
        """Connect, list the tools, call `on_up`, and hold the connection until it ends. Call
        `on_down` before closing everything.

        Raises:
            ModuleError: the server could not be reached.
        """
        seconds = self._configuration.connect_timeout
        self._scope.deadline = anyio.current_time() + seconds
        try:
            with self._scope:
                await self._enter(on_up, on_down)
        except Exception as error:  # noqa: BLE001 - a fault of one module must not reach the others
            if self.peer is None:
                failure = self._failure(error)
                self.may_be_era = self._may_be_era(failure)
                raise failure from None
            self._cause = f"ended the connection: {_text(next(_leaves(error)), self._secrets)}"
        finally:
            self._stop.set()
            self.done.set()

        if self.peer is None:
            self.timed_out = anyio.current_time() >= self._scope.deadline
            if self.timed_out:
                problem = f"did not answer within {seconds:g} s{self._words()}"
            else:
                problem = "was closed before it was connected"
            raise ModuleConnectError(self._module, f"server {self._module!r} {problem}")

    async def _enter(self, on_up: Callable[[], None], on_down: Callable[[], None]) -> None:
        async with self.client as client:
            version = client.protocol_version
            self._tap.version = version
            self._negotiated = True
            await self._list_first()
            info = client.server_info
            era: Era = "modern" if version in MODERN_PROTOCOL_VERSIONS else "legacy"
            instructions = client.instructions
            self.peer = Peer(
                era=era,
                protocol_version=version,
                server_name=shown(info.name, self._secrets, _LONGEST_NAME) if info else None,
                server_version=shown(info.version, self._secrets, _LONGEST_NAME) if info else None,
                instructions=shown(instructions, self._secrets) if instructions else None,
            )
            self._scope.deadline = float("inf")
            on_up()
            async with anyio.create_task_group() as group:
                self.backchannel.start = group.start_soon
                group.start_soon(self._refresh)
                group.start_soon(self.offering.read_again, self._on_event)
                if era == "modern":
                    group.start_soon(self._listen)
                    group.start_soon(self._watch, group)
                else:
                    group.start_soon(self._tell_again)
                group.start_soon(self._wait_for_stop, group.cancel_scope)
                await self._tap.ended.wait()
                on_down()
                group.cancel_scope.cancel()

    async def _wait_for_stop(self, scope: anyio.CancelScope) -> None:
        await self._stop.wait()
        scope.cancel()

    async def _list_first(self) -> None:
        """List the tools before the server counts as up. A server that refuses to list them starts
        without tools, and is asked again later.
        """
        left = self._scope.deadline - anyio.current_time()
        patience = Patience(min(_FIRST_LIST.page, left / 4), min(_FIRST_LIST.whole, left / 2))
        try:
            self.listing = await self._list(patience)
        except (MCPError, ValidationError) as error:
            if self._tap.ended.is_set() or _is_sign_in(error):
                raise
            self.list_fault = (
                f"its tools could not be listed: {_text(error, self._secrets)}; ideabridge will "
                "ask it again"
            )

    async def _list(self, patience: Patience) -> Listing:
        """Return the tools from all pages that arrive.

        Raises:
            MCPError, pydantic.ValidationError: the first page does not arrive.
        """

        async def read(cursor: str | None) -> ListPage[types.Tool]:
            params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            before = self._tap.listed
            page = await self.client.session.list_tools(params=params)
            return ListPage(page.tools, page.next_cursor, self._tap.listed - before)

        self.oddities.forget("tools/list: ")
        self._tap.listed = 0
        try:
            pages = await read_pages(
                read, "tools", patience, lambda error: _text(error, self._secrets)
            )
        except MCPError as error:
            # A server that has only resources or prompts need not have this method. Such a server
            # has no tools.
            if error.code != types.METHOD_NOT_FOUND:
                raise
            pages: PagedList[types.Tool] = PagedList([])

        notes = [] if pages.note is None else [pages.note]

        def listing() -> Listing:
            began = time.thread_time()
            listing = make_listing(
                self._module, pages.entries, self._configuration, notes, unfinished=pages.unfinished
            )
            listing = without_secrets(listing, self._secrets)
            self._listing_seconds = time.thread_time() - began
            return listing

        # Use a thread, because compiling thousands of schemas, or a few hostile ones, takes a
        # second.
        return await anyio.to_thread.run_sync(listing)

    async def _on_message(self, message: IncomingMessage) -> None:
        if event := event_of(message):
            self._heard(event)
        elif isinstance(message, types.ElicitCompleteNotification):
            self.backchannel.completed(message.params.elicitation_id)

    def _heard(self, event: ServerEvent) -> None:
        if isinstance(event, ToolsListChanged):
            self._changed.set()
        elif self.peer is not None:
            self.offering.changed(event)
            self._on_event(event)

    async def _refresh(self) -> None:
        """List the tools whenever the server reports a change, at most four times per second.

        An incomplete list is read again after a pause that grows each time.
        """
        pause = _LIST_AGAIN_SECONDS
        while True:
            incomplete = (
                self.listing is None or self.listing.unfinished or self.list_fault is not None
            )
            with anyio.move_on_after(pause if incomplete else None):
                await self._changed.wait()
            pause = min(2 * pause, _LIST_AGAIN_MOST) if incomplete else _LIST_AGAIN_SECONDS
            self._changed = anyio.Event()
            began = anyio.current_time()
            try:
                listing = await self._list(_LATER_LIST)
            except (MCPError, ValidationError) as error:
                list_name = "changed tools" if self.listing is not None else "tools"
                self.list_fault = (
                    f"its {list_name} could not be listed: {_text(error, self._secrets)}; "
                    "ideabridge will ask it again"
                )
            else:
                self.list_fault = None
                self._take(listing)
            # Even if a long list changes constantly, reading it must not take more than a tenth of
            # the elapsed time, or of the CPU time.
            took = anyio.current_time() - began
            pause_after = max(
                _REFRESH_SECONDS, min(_REFRESH_MOST, 9 * took), 9 * self._listing_seconds
            )
            await anyio.sleep(pause_after)

    def _take(self, listing: Listing) -> None:
        """Switch to a new list. If some of its pages did not arrive, also keep the tools of the
        previous list.
        """
        if self.listing is not None and listing.unfinished:
            missing = {
                name: tool
                for name, tool in self.listing.tools.items()
                if name not in listing.tools and name not in listing.left_out
            }
            listing = replace(listing, tools=listing.tools | missing)
        if listing != self.listing:
            self.listing = listing
            self._on_listing(listing)

    async def _listen(self) -> None:
        """Subscribe to list changes (version 2026-07-28)."""
        declared = self.client.server_capabilities
        tools, prompts, resources = (
            capability is not None and capability.list_changed is True
            for capability in (declared.tools, declared.prompts, declared.resources)
        )
        if not (tools or prompts or resources):
            return

        events: list[PromptsListChanged | ResourcesListChanged] = []
        if prompts:
            events.append(PromptsListChanged())
        if resources:
            events.append(ResourcesListChanged())

        def begun(*, again: bool) -> None:
            # Changes before the subscription were not reported, so treat everything as changed.
            if tools:
                self._changed.set()
            for event in events:
                (self._heard if again else self.offering.changed)(event)

        await self._hold(
            lambda: self.client.listen(
                tools_list_changed=tools,
                prompts_list_changed=prompts,
                resources_list_changed=resources,
            ),
            begun,
        )

    async def _hold(
        self, listen: Callable[[], AbstractAsyncContextManager[Subscription]], begun: _Begun
    ) -> None:
        """Hold a subscription, whose events arrive as messages. If it is lost, renew it after a
        pause that grows each time.
        """
        pause = _LISTEN_AGAIN_SECONDS
        again = False
        while True:
            try:
                async with listen() as events:
                    pause = _LISTEN_AGAIN_SECONDS
                    begun(again=again)
                    again = True
                    async for _ in events:
                        pass  # `_on_message` gets each event
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return
            except (SubscriptionLost, TimeoutError):
                pass  # renewed below

            await anyio.sleep(pause)
            pause = min(pause * 2, _LISTEN_AGAIN_MOST)

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """Set the level of log messages that a server of the handshake era sends.

        Raises:
            MCPError: the server refuses.
        """
        if (
            self.peer is not None
            and self.peer.era == "legacy"
            and self.client.server_capabilities.logging is not None
        ):
            request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
            await self.client.session.send_request(request, types.EmptyResult)

    # -- resources that are watched ----------------------------------------------------------------

    async def watch(self, uri: str) -> None:
        """Ask the server to report changes to a resource, which the owner must already have added
        to the watched resources.

        Raises:
            MCPError: the server refuses.
        """
        if self.peer is not None and self.peer.era == "legacy":
            await self._subscribe(uri)
            return

        self._watched_changed.set()
        with anyio.move_on_after(self._configuration.connect_timeout):
            while uri not in self._held:
                await self._held_changed.wait()

    async def unwatch(self, uri: str) -> None:
        """Ask the server to stop reporting changes to a resource, which the owner must already have
        removed from the watched resources.

        Raises:
            MCPError: the server refuses.
        """
        if self.peer is not None and self.peer.era == "legacy":
            request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            await self.client.session.send_request(request, types.EmptyResult)
        self._watched_changed.set()

    async def _subscribe(self, uri: str) -> None:
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await self.client.session.send_request(request, types.EmptyResult)

    async def _tell_again(self) -> None:
        """Send the settings of the previous connection again (up to version 2025-11-25): the level
        of log messages and the watched resources.
        """
        if self._log_level is not None:
            with suppress(MCPError):
                await self.set_log_level(self._log_level)
        for uri in sorted(self._watched):
            try:
                await self._subscribe(uri)
            except MCPError as error:
                self.oddities.note(
                    f"no longer reports changes to {uri[:100]!r}: {_text(error, self._secrets)}"
                )
            self._heard(ResourceUpdated(uri))

    async def _watch(self, group: TaskGroup) -> None:
        """Subscribe to the watched resources (version 2026-07-28). Each new subscription begins
        before the previous one ends.
        """
        current: anyio.CancelScope | None = None
        watched_before: frozenset[str] = frozenset()
        while True:
            uris = frozenset(self._watched)
            if uris != watched_before:
                watched_before = uris
                former = current
                current = None
                if uris:
                    current = await group.start(self._hold_watched, uris)

                self._held = uris
                self._held_changed.set()
                self._held_changed = anyio.Event()
                if former is not None:
                    former.cancel()

            await self._watched_changed.wait()
            self._watched_changed = anyio.Event()

    async def _hold_watched(
        self,
        uris: frozenset[str],
        *,
        task_status: TaskStatus[anyio.CancelScope] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        begun_once = anyio.Event()

        def begun(*, again: bool) -> None:
            begun_once.set()
            if again:
                for uri in uris:
                    self._heard(ResourceUpdated(uri))

        async def hold() -> None:
            await self._hold(
                partial(self.client.listen, resource_subscriptions=sorted(uris)), begun
            )
            # `_hold` has returned, so the server does not support subscriptions.
            begun_once.set()

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(hold)
                with anyio.move_on_after(self._configuration.connect_timeout):
                    await begun_once.wait()
                task_status.started(scope)

    @property
    def process_session(self) -> int | None:
        """The id of the operating-system session that the program's processes belong to, or None if
        the server has no processes.
        """
        return None if self._stdio is None else self._stdio.session

    @property
    def last_words(self) -> list[str]:
        """The last lines that the program wrote to standard error, shortened and with secrets
        masked.
        """
        words = self._stdio.last_words if self._stdio is not None else []
        return [shown(line, self._secrets, _WORDS) for line in words]

    def _words(self) -> str:
        words = self.last_words if self._quotes() else []
        return f"; the last line it wrote: {words[-1]}" if words else ""

    def _may_be_era(self, failure: ModuleError) -> bool:
        """Return whether a failed attempt might succeed with a different first message.

        This is the case if the server was reached, but ended the connection or refused the
        handshake.
        """
        if self._negotiated or not self._tap.handshake.begun:
            return False
        return not isinstance(failure, ModuleSignInError) and not (
            isinstance(failure, ModuleConnectError) and (failure.lasting or failure.unreachable)
        )

    def _failure(self, error: Exception) -> ModuleError:
        leaves = list(_leaves(error))
        ours = next((leaf for leaf in leaves if isinstance(leaf, ModuleError)), None)
        if ours is not None:
            return ours

        name = f"server {self._module!r}"
        if self.protocol_fault:
            return ModuleProtocolError(self._module, f"{name} {self.end()}")
        if self.program_ended:
            return ModuleConnectError(self._module, f"{name} {self.end(' before it was up')}")

        chosen = next((leaf for leaf in leaves if isinstance(leaf, MCPError)), leaves[0])
        if isinstance(chosen, MCPError) and chosen.data in (Mark.SIGN_IN, Mark.SIGN_IN_LATER):
            text = f"{name} {shown(chosen.message, self._secrets, _WORDS)}"
            return ModuleSignInError(self._module, text, lasting=chosen.data is Mark.SIGN_IN)

        data = chosen.data if isinstance(chosen, MCPError) else None
        # A remote server might well be running, so do not say that it did not start.
        failure = "did not connect" if self._stdio is None else "did not start"
        text = f"{name} {failure}: {_text(chosen, self._secrets)}{self._words()}"
        return ModuleConnectError(
            self._module, text, lasting=data is Mark.REFUSED, unreachable=data is Mark.UNSENT
        )


def _is_sign_in(error: Exception) -> bool:
    return isinstance(error, MCPError) and error.data in (Mark.SIGN_IN, Mark.SIGN_IN_LATER)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(part)
    else:
        yield error


def _text(error: BaseException, secrets: Secrets) -> str:
    if isinstance(error, ValidationError):
        return "it answered with something other than MCP"
    if isinstance(error, MCPError):
        if error.code == types.REQUEST_TIMEOUT and error.message.endswith("timed out"):
            return "no answer in time"
        # Replace only the SDK's own message, because servers use the same code for errors of their
        # own, and their messages say more.
        if error.code == types.CONNECTION_CLOSED and error.message == "Connection closed":
            return "the connection ended"

        # Keep the text on one line, because it becomes part of notes and tables, and the server
        # must not be able to forge lines in them.
        text = printable_line(shown(error.message, secrets, _WORDS))
        is_ours = isinstance(error.data, Mark | Replaced)
        return text if is_ours else f"{text} ({error.code})"

    if isinstance(error, OSError) and str(error):
        return shown(str(error), secrets, _WORDS)
    logger.debug("a connection failed", exc_info=error)
    return "the connection failed"
