"""Limit the number of connections to the HTTP server, and set the deadlines that clients must meet.

A process has only a few thousand file descriptors, and a client could hold a connection open by
sending one byte per second. So each step of a request has a deadline, and the number of connections
is limited. At the limit, a new connection closes an old one: preferably one without an admitted
request, then an idle one, then one whose request is still arriving. A connection whose request has
arrived completely is never closed to make room.

Some places are reserved for newly accepted connections, so that these do not close each other
before they are read. `/healthz` and `/readyz` are answered on these connections, so no number of
callers or strangers can crowd out a probe.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from enum import IntEnum
from typing import Any, Final, cast

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ideabridge.server.transports.quotas import QuotaError

MOST_CONNECTIONS: Final = 2000
"""Maximum number of callers' connections, if the process can open twice as many files."""

MOST_RECEIVED: Final = 256 * 1024 * 1024
"""Limit on the combined size, in bytes, of all bodies that are still arriving. Over the limit, the
connection with the largest body is closed."""

MOST_UNSENT: Final = 256 * 1024 * 1024
"""Limit on the combined size, in bytes, of all responses that clients have not read yet. Over the
limit, the caller with the most unread bytes loses its largest response.
"""

ACCEPTED_AT_ONCE: Final = 64
"""Maximum number of connections accepted before existing connections are read again."""

_UNREAD: Final = 4 * ACCEPTED_AT_ONCE
"""Number of connections reserved for requests that have not been read yet, and for strangers. A
connection is read after at most two more rounds of accepting."""

HEADER_SECONDS: Final = 10.0
"""Time limit, in seconds, from the first byte of a request (on a new connection, from the moment it
is accepted) to the end of its headers.
"""

BODY_SECONDS: Final = 10.0
"""Extra time, in seconds, for a body, on top of the time that its size needs at `BODY_RATE`."""

BODY_RATE: Final = 16 * 1024
"""Minimum average rate, in bytes per second, at which a client must send a body."""

READING_SECONDS: Final = 60.0
"""Maximum time, in seconds, that a client can leave its response unread."""

IDLE_SECONDS: Final = 120
"""How long, in seconds, a connection stays open between two requests, for example while a host's
model is writing.
"""

_HEADER_BYTES: Final = 16 * 1024
_FREE_PIECES: Final = 256
_PIECE_BYTES: Final = 256
"""Minimum average size, in bytes, of the chunks of a body after the first `_FREE_PIECES`."""

_LATE_SECONDS: Final = 0.5
"""The delay of a timer, in seconds, that shows that the server itself must have been busy."""

_KEY: Final = "ideabridge.connection"


class Rank(IntEnum):
    """The state of a connection. At the limit, the connections with the lowest rank are closed
    first.
    """

    STRANGER = 0
    IDLE = 1
    SENDING = 2
    WORKING = 3


_ADMITTED: Final = (Rank.SENDING, Rank.WORKING)


class Connections:
    """The connections of one server, sorted by rank and then by age, oldest first.

    At most `most` connections belong to callers, in addition to those that have not been read yet.
    At most half of the callers' connections can be sending.
    """

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        # A lower limit would let connections that are accepted at the same time close each other
        # before they are read.
        self._most = max(2 * ACCEPTED_AT_ONCE, most)
        self._unread = min(_UNREAD, self._most // 4)
        self._ranks: dict[Rank, dict[GuardedProtocol, None]] = {rank: {} for rank in Rank}
        self._received = 0
        # For each connection, how many bytes of an answer the client has not read yet.
        self._unsent: dict[GuardedProtocol, int] = {}
        # For each caller, the number of connections with an admitted request.
        self._in_progress: Counter[str] = Counter()

    def admit(self, connection: GuardedProtocol, caller: str) -> None:
        """Allow a caller's request to send its body.

        A caller can use half of the connections that all other callers leave free, so there is
        always room for another caller. At this limit, the caller's oldest request that is still
        arriving is dropped.

        Raises:
            QuotaError: the caller is at its limit, and none of its requests can be dropped, because
                all have arrived completely.
        """
        own = self._in_progress[caller]
        others = sum(len(self._ranks[rank]) for rank in _ADMITTED) - own
        share = (self._most - others) // 2
        if own >= share:
            arriving = (
                connection
                for connection in self._ranks[Rank.SENDING]
                if connection.caller == caller
            )
            oldest = next(arriving, None)
            if oldest is None:
                raise QuotaError(
                    f"you have {own:,} connections with a request in progress; the current limit "
                    f"for one caller is {share:,}"
                )

            oldest.drop()

        connection.caller = caller
        self.move(connection, Rank.SENDING)

    def __len__(self) -> int:
        return sum(len(ranked) for ranked in self._ranks.values())

    def add(self, connection: GuardedProtocol) -> None:
        """Add an accepted connection."""
        self._enter(connection)
        if len(self) <= self._most + self._unread:
            return

        ranks = [Rank.STRANGER, Rank.IDLE, Rank.SENDING]
        if len(self._ranks[Rank.STRANGER]) <= self._unread:
            # Close strangers' connections last. There are only a few, and most of them have not
            # been read yet, so new connections would otherwise close each other.
            ranks = [Rank.IDLE, Rank.SENDING, Rank.STRANGER]

        for rank in ranks:
            oldest = next(iter(self._ranks[rank]), connection)
            if oldest is not connection:
                oldest.drop()
                return

        connection.drop()

    def move(self, connection: GuardedProtocol, rank: Rank) -> None:
        """Change the rank of a connection, unless it is closed."""
        if self.remove(connection):
            connection.rank = rank
            self._enter(connection)

    def remove(self, connection: GuardedProtocol) -> bool:
        """Remove a closed connection, and return whether it was in the list."""
        ranked = self._ranks[connection.rank]
        if connection not in ranked:
            return False
        del ranked[connection]
        if connection.rank in _ADMITTED:
            self._in_progress[connection.caller] -= 1
            if not self._in_progress[connection.caller]:
                del self._in_progress[connection.caller]

        return True

    def receive(self, size: int) -> None:
        """Count bytes of request bodies that are held in memory. `size` is negative when bytes are
        released.
        """
        self._received += size
        if self._received > MOST_RECEIVED and (sending := self._ranks[Rank.SENDING]):
            max(sending, key=lambda connection: connection.received).drop()

    def hold_unsent(self, connection: GuardedProtocol, size: int) -> None:
        """Record how many bytes of a response the client of a connection has not read yet. The size
        is 0 once the client has read everything.
        """
        self._unsent.pop(connection, None)
        if size:
            self._unsent[connection] = size

        if sum(self._unsent.values()) > MOST_UNSENT:
            by_caller: Counter[str] = Counter()
            for holding, unsent in self._unsent.items():
                by_caller[holding.caller] += unsent

            [(caller, _)] = by_caller.most_common(1)
            connections_of = {
                holding: unsent
                for holding, unsent in self._unsent.items()
                if holding.caller == caller
            }
            max(connections_of, key=lambda holding: connections_of[holding]).drop()

    def _enter(self, connection: GuardedProtocol) -> None:
        ranked = self._ranks[connection.rank]
        ranked[connection] = None
        if connection.rank in _ADMITTED:
            self._in_progress[connection.caller] += 1
        if connection.rank is Rank.SENDING and len(ranked) > self._most // 2:
            self._drop_of_largest_sender()

    def _drop_of_largest_sender(self) -> None:
        """Drop the oldest arriving request of the caller with the most arriving requests.

        No other caller is affected.
        """
        sending = self._ranks[Rank.SENDING]
        senders = Counter(connection.caller for connection in sending)
        [(largest, _)] = senders.most_common(1)
        next(connection for connection in sending if connection.caller == largest).drop()


class _Parser(h11.Connection):
    """An h11 parser that stops reading a body made up of tiny chunks.

    Each chunk costs 15 us, so 256 KB in chunks of one byte would block the server for half a
    second.

    Attributes:
        choked: whether the parser has stopped.
    """

    def __init__(self, our_role: type[h11.SERVER], max_incomplete_event_size: int) -> None:
        super().__init__(our_role, max_incomplete_event_size)
        self.choked = False
        self._chunked = False
        self._pieces = 0
        self._bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event of the request."""
        if self.choked:
            return h11.NEED_DATA

        event = super().next_event()
        if isinstance(event, h11.Data) and self._chunked:
            self._pieces += 1
            self._bytes += len(event.data)
            self.choked = self._pieces > _FREE_PIECES + self._bytes // _PIECE_BYTES
        elif isinstance(event, h11.Request):
            self._chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
            self._pieces = self._bytes = 0

        return event


class GuardedProtocol(H11Protocol):
    """A connection with deadlines. uvicorn creates one for each socket (`http=` of its `Config`).

    Attributes:
        rank: the state of the connection.
        caller: the caller of the last admitted request.
        received: how many bytes of the arriving body are in memory.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn: _Parser = _Parser(h11.SERVER, _HEADER_BYTES)
        self._all = connections
        self._inner = cast("ASGIApp", self.app)
        self.app = cast("Any", self._served)
        self.rank = Rank.STRANGER
        self.caller = ""
        self.received = 0
        # The header or body that is arriving: when it began, how many bytes of it have arrived, and
        # the timer for its deadline.
        self._since = 0.0
        self._arrived = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # -- calls by the application ------------------------------------------------------------------

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_KEY] = self
        await self._inner(scope, receive, send)

    def admitted(self, caller: str) -> None:
        """Accept the headers of a caller's request, so that its body can follow.

        Raises:
            QuotaError: the caller already has its share of the connections.
        """
        self._all.admit(self, caller)

    def hold(self, size: int) -> None:
        """Count bytes of the body that are held by the application."""
        self.received += size
        self._all.receive(size)

    def whole(self) -> None:
        """Record that the request has arrived completely."""
        self._release()
        self._all.move(self, Rank.WORKING)

    def drop(self) -> None:
        """Close the connection immediately, to make room for another connection or because of a
        deadline.
        """
        self._all.remove(self)
        self._all.hold_unsent(self, 0)
        self._release()
        self._stop()
        self.transport.abort()

    def _release(self) -> None:
        received = self.received
        self.received = 0
        self._all.receive(-received)

    # -- calls by asyncio and uvicorn --------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the deadlines when the socket has been accepted."""
        super().connection_made(transport)
        self._start()
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadlines when the socket has been closed."""
        self._all.remove(self)
        self._all.hold_unsent(self, 0)
        self._release()
        self._stop()
        if self._unread is not None:
            self._unread.cancel()

        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request."""
        before = self.conn.their_state
        super().data_received(data)
        if self.conn.choked:
            self.drop()
            return

        after = self.conn.their_state
        if after is h11.IDLE or after is h11.SEND_BODY:
            # A header or a body has begun, or goes on.
            if self._timer is None or after is not before:
                self._start()
            self._arrived += len(data)
        else:
            self._stop()

    def on_response_complete(self) -> None:
        """Handle the end of a response: set a final deadline for the rest of the request, and start
        the idle time.
        """
        self._release()
        stranger = self.rank is Rank.STRANGER
        if not stranger:
            self._all.move(self, Rank.IDLE)

        self.timeout_keep_alive = HEADER_SECONDS if stranger else IDLE_SECONDS
        if self.conn.their_state is h11.SEND_BODY:
            self._start()

        super().on_response_complete()
        # Bytes that have arrived in the meantime can be the beginning of the next request.
        if (
            self._timer is None
            and self.conn.their_state is h11.IDLE
            and (begun := len(self.conn.trailing_data[0]))
        ):
            self._start()
            self._arrived = begun

    def shutdown(self) -> None:
        """Close the connection because the server is shutting down, unless its request has
        arrived.
        """
        if self.rank in (Rank.STRANGER, Rank.SENDING):
            self.drop()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Record that the client is reading its response too slowly."""
        super().pause_writing()
        self._all.hold_unsent(self, self.transport.get_write_buffer_size())
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Record that the client has read its response."""
        super().resume_writing()
        self._all.hold_unsent(self, 0)
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch_reading(self, before: int) -> None:
        def look() -> None:
            left = self.transport.get_write_buffer_size()
            if left < before:
                self._watch_reading(left)
            else:
                self.drop()

        self._unread = self.loop.call_later(READING_SECONDS, look)

    # -- deadlines of requests ---------------------------------------------------------------------

    def _start(self) -> None:
        self._stop()
        self._since = self.loop.time()
        self._arrived = 0
        self._timer = self.loop.call_at(self._due(), self._look)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> float:
        if self.conn.their_state is not h11.SEND_BODY:
            return self._since + HEADER_SECONDS
        answered = self.cycle.response_complete
        due = self._since + BODY_SECONDS
        return due if answered else due + self._arrived / BODY_RATE

    def _look(self) -> None:
        assert self._timer is not None
        late = self.loop.time() - self._timer.when()
        if late > _LATE_SECONDS:
            # The server was too busy to read, so do not count the delay against the client.
            self._since += late

        due = self._due()
        if due > self.loop.time():
            self._timer = self.loop.call_at(due, self._look)
            return

        body = self.conn.their_state is h11.SEND_BODY
        # Without a request, or after an answer has begun, close the connection without a message.
        if not self.cycle.response_started if body else self._arrived:
            part = "body" if body else "headers"
            text = f"the {part} of the request did not arrive in time".encode()
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(text), text)
            )

        self.drop()


def connection_of(scope: Scope) -> GuardedProtocol:
    """Return the connection that a request arrived on."""
    return cast("GuardedProtocol", scope[_KEY])
