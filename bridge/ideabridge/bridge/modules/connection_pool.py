"""Manage additional connections to servers.

Each of these connections belongs to one owner. Everybody else uses the shared connection.

A connection is opened when it is first used. It is closed when its owner is gone, when its server's
configuration has changed, when it has failed, and, if the pool says so, when nobody has used it for
a while. A connection in use is closed after its last call.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from ideabridge.bridge.modules.errors import ModuleDownError

if TYPE_CHECKING:
    from ideabridge.bridge.modules.module import Module

MOST_CONNECTIONS: Final = 256
"""The maximum number of connections in a pool. If there are more connections, a new connection
replaces the connection that has been idle for the longest time.
"""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a connection.

    Attributes:
        user: the name of the signed-in user, or None.
        session: the id of the client's session, or None if the sessions share the connection.
    """

    user: str | None = None
    session: str | None = None


_Key = tuple[str, Owner]
"""The name of the server, and the owner."""


class ConnectionPool:
    """The connections of owners. Use it only from tasks of one event loop.

    Args:
        start: starts the task of a server.
        owners: the word for owners in messages, such as "users".
        is_needed: returns whether a run needs the server with the given name even though no call is
            running. Meanwhile, the connections to the server stay open.
        idle_seconds: the number of seconds without a call after which a connection ends, or None to
            keep connections open.
    """

    def __init__(
        self,
        start: Callable[[Callable[[], Coroutine[object, object, None]], Module], None],
        owners: str,
        is_needed: Callable[[str], bool],
        idle_seconds: float | None,
    ) -> None:
        self._start = start
        self._owners = owners
        self._is_needed = is_needed
        self._idle_seconds = idle_seconds
        # The connections, the most recently used one last.
        self._open: dict[_Key, _Pooled] = {}
        # The connections that will be ended after their last call.
        self._retired: set[_Pooled] = set()

    @contextmanager
    def using(
        self, module: Module, owner: Owner, create: Callable[[], Module]
    ) -> Generator[Module]:
        """Yield the server, connected over an owner's connection.

        Args:
            module: the server that everybody else uses.
            owner: the owner.
            create: returns the server for a new connection.

        Raises:
            ModuleDownError: too many connections are in use.
        """
        key = (module.name, owner)
        pooled = self._open.pop(key, None)
        if pooled is not None and pooled.configured is not module:
            self._retire(key, pooled)
            pooled = None
        if pooled is None:
            pooled = self._begin(key, module, create)

        self._open[key] = pooled
        try:
            with pooled:
                yield pooled.module
        finally:
            if pooled.is_idle and (pooled in self._retired or pooled.module.state == "failed"):
                # End the connection now, so that the next call gets a new one.
                self._end(key, pooled)

    def count_sessions(self, module: str) -> int:
        """Return how many connections to a server belong to a single session."""
        return sum(1 for name, owner in self._open if name == module and owner.session is not None)

    def retire(self, module: str) -> None:
        """End the connections to a server, because its configuration has changed."""
        self._retire_all(lambda key: key[0] == module)

    def leave(self, session: str) -> None:
        """End the connections of a session that has ended."""
        self._retire_all(lambda key: key[1].session == session)

    def _retire_all(self, ends: Callable[[_Key], bool]) -> None:
        for key, pooled in list(self._open.items()):
            if ends(key):
                del self._open[key]
                self._retire(key, pooled)

    def _retire(self, key: _Key, pooled: _Pooled) -> None:
        if pooled.is_idle:
            self._end(key, pooled)
        else:
            self._retired.add(pooled)

    def stop(self) -> None:
        """End all connections. Calls in flight fail."""
        for key, pooled in list(self._open.items()):
            self._end(key, pooled)
        for pooled in self._retired:
            pooled.module.stop()

    def _begin(self, key: _Key, module: Module, create: Callable[[], Module]) -> _Pooled:
        if len(self._open) >= MOST_CONNECTIONS:
            idle_key = next((other for other, used in self._open.items() if used.is_idle), None)
            if idle_key is None:
                raise ModuleDownError(
                    module.name,
                    f"server {module.name!r}: all {MOST_CONNECTIONS} connections of "
                    f"{self._owners} to servers are in use. Call the tool again later",
                )

            self._end(idle_key, self._open[idle_key])

        pooled = _Pooled(module, create())
        self._start(partial(self._run, key, pooled), pooled.module)
        return pooled

    async def _run(self, key: _Key, pooled: _Pooled) -> None:
        async with anyio.create_task_group() as group:
            if self._idle_seconds is not None:
                group.start_soon(self._end_when_idle, key, pooled, self._idle_seconds)
            await pooled.module.run()
            self._end(key, pooled)
            group.cancel_scope.cancel()

    async def _end_when_idle(self, key: _Key, pooled: _Pooled, seconds: float) -> None:
        while True:
            await pooled.idle.wait()
            with anyio.move_on_after(seconds):
                await pooled.busy.wait()
            module, _ = key
            if pooled.is_idle and not self._is_needed(module):
                self._end(key, pooled)
                return

    def _end(self, key: _Key, pooled: _Pooled) -> None:
        if self._open.get(key) is pooled:
            del self._open[key]
        self._retired.discard(pooled)
        pooled.module.stop()


class _Pooled:
    """A server, and the number of calls that are currently using it.

    Attributes:
        configured: the server that everybody else uses.
        module: the same server, over a separate connection.
    """

    def __init__(self, configured: Module, module: Module) -> None:
        self.configured = configured
        self.module = module
        self._count = 0
        self.idle = anyio.Event()
        self.busy = anyio.Event()

    @property
    def is_idle(self) -> bool:
        return not self._count

    def __enter__(self) -> None:
        if not self._count:
            self.idle = anyio.Event()
            self.busy.set()
        self._count += 1

    def __exit__(self, *_error: object) -> None:
        self._count -= 1
        if not self._count:
            self.busy = anyio.Event()
            self.idle.set()
