"""Notifications for a store in PostgreSQL, with NOTIFY and LISTEN."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import sql as quoting

from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.notifier import Notifier

_DOWN_S: Final = 1.0
"""The pause, in seconds, between two attempts to connect."""

logger: Final = logging.getLogger(__name__)


class PostgresNotifier(Notifier):
    """Sends notifications over a channel of a server.

    Args:
        connect: opens a connection.
        channel: the channel of the store.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        # A dict keeps the order but drops duplicates.
        self._pending: dict[str, None] = {}

    @property
    def can_notify(self) -> bool:
        return True

    def notify(self, notice: str) -> None:
        self._pending[notice] = None

    def listen(self, take: Callable[[str], None], lost: Callable[[], None]) -> Callable[[], None]:
        listener = Listener(self._connect, self._channel, take, lost)
        return listener.close

    def forget(self) -> None:
        """Forget the notifications of the previous transaction. Called when a transaction
        begins.
        """
        self._pending.clear()

    def statements(self, connection: psycopg.Connection[Any]) -> str:
        """Return SQL that notifies the listeners, to be sent together with the commit."""
        statements = ""
        for notice in self._pending:
            quoted = quoting.Literal(notice).as_string(connection)
            statements += f"SELECT pg_notify('{self._channel}', {quoted}); "

        return statements


class Listener:
    """A thread that listens on a channel over its own connection, and reconnects if the connection
    is lost.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        channel: str,
        take: Callable[[str], None],
        lost: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._take = take
        self._lost = lost
        self._woken, self._waker = socket.socketpair()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ideabridge notices", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        # Wake the thread first, because it closes the other end when it ends.
        self._waker.send(b"x")
        self._ended.set()
        self._thread.join()
        self._waker.close()

    def _run(self) -> None:
        with self._woken:
            while not self._ended.is_set():
                try:
                    with self._connect() as connection:
                        connection.execute(f"LISTEN {self._channel}".encode())
                        self._take("")
                        self._hear(connection)
                except (psycopg.Error, StoreError) as error:
                    logger.debug("notices: %s", error)
                    self._lost()
                self._ended.wait(_DOWN_S)

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        """Receive notifications until the thread is stopped.

        Raises:
            psycopg.Error: the connection is lost.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._ended.is_set():
                while (notice := connection.pgconn.notifies()) is not None:
                    self._take(notice.extra.decode())
                selector.select()
                connection.pgconn.consume_input()
