"""UserModules: the connections of named users to modules that each person signs in to.

A user's call goes over a connection that has this user's token, or no token at all:

    the user has signed in    the connection of this user to the module
    the user has not          a connection to the module without a token, which all such users share

A connection never uses another user's sign-in: after a refused request, it looks only for the
sign-in of its own user. A connection ends when nobody has used it for a while and no run needs it,
or when it has failed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from ideabridge.bridge.modules.errors import (
    ModuleConfigurationError,
    ModuleDownError,
    ModuleSignInError,
    UnknownModuleToolError,
)
from ideabridge.bridge.modules.sign_ins import ModuleUser, SignInFile, needed

if TYPE_CHECKING:
    from ideabridge.bridge.modules.authorization import Authorization
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.settings import Launch

MOST_CONNECTIONS: Final = 256
"""Maximum number of users' connections to modules in one process. A new one replaces the connection
that has been idle for longest.
"""

IDLE_SECONDS: Final = 300.0
"""The number of seconds without a call after which a connection ends."""

_Key = tuple[str, str | None]
"""The names of the module and the user. None as user means all users who have not signed in."""


class UserModules:
    """The users' own connections to modules. Use an instance only from tasks of one event loop.

    Args:
        authorize: returns the object that gets tokens for a module, given the file with the
            sign-in.
        start: starts the task of a module.
        is_needed: returns whether a run needs the module of this name although no call is running.
            Connections to it then do not end.
    """

    def __init__(
        self,
        authorize: Callable[[SignInFile | None, str, Launch], Authorization | None],
        start: Callable[[Callable[[], Coroutine[object, object, None]], Module], None],
        is_needed: Callable[[str], bool],
    ) -> None:
        self._authorize = authorize
        self._start = start
        self._is_needed = is_needed
        # The connections, most recently used last.
        self._open: dict[_Key, _SharedModule] = {}
        # Connections to modules whose configuration has changed. They end with their last call.
        self._retired: set[_SharedModule] = set()

    @asynccontextmanager
    async def using(self, module: Module, user: str, store: str) -> AsyncGenerator[Module]:
        """Yield the module over the connection that belongs to a user.

        Args:
            module: the configured module.
            user: the user's name.
            store: see `ModuleUser`; "" if no user of this store has signed in.

        Raises:
            ModuleSignInError: the user needs to sign in.
            ModuleDownError: too many connections are in use.
        """
        try:
            url = (await module.launch()).url
        except ModuleConfigurationError:
            yield module  # the module is unreachable for everybody, and its own errors say why
            return

        file = SignInFile(module.name, url, ModuleUser(user, store)) if store else None
        if file is not None and not file.exists:
            file = None

        key = (module.name, None if file is None else user)
        shared = self._open.pop(key, None)
        if shared is not None and shared.configured is not module:
            self._retire(key, shared)
            shared = None
        if shared is None:
            shared = self._begin(key, module, file)

        self._open[key] = shared
        try:
            with shared:
                yield shared.module
        except ModuleSignInError:
            if file is not None:
                raise
            raise ModuleSignInError(module.name, needed(module.name, user)) from None
        except UnknownModuleToolError:
            if file is not None or not module.has_token:
                raise
            # The module lists its tools only to users who have signed in.
            raise ModuleSignInError(module.name, needed(module.name, user)) from None
        finally:
            if shared.is_idle and (shared in self._retired or shared.module.state == "failed"):
                # End it at once, so that the next call creates a new connection.
                self._end(key, shared)

    def retire(self, module: str) -> None:
        """End the connections of all users to a module whose configuration has changed. A
        connection in use ends with the last call that uses it.
        """
        for key, shared in list(self._open.items()):
            if key[0] == module:
                del self._open[key]
                self._retire(key, shared)

    def _retire(self, key: _Key, shared: _SharedModule) -> None:
        if shared.is_idle:
            self._end(key, shared)
        else:
            self._retired.add(shared)

    def stop(self) -> None:
        """End all connections. Calls in flight fail."""
        for key, shared in list(self._open.items()):
            self._end(key, shared)
        for shared in self._retired:
            shared.module.stop()

    def _begin(self, key: _Key, module: Module, file: SignInFile | None) -> _SharedModule:
        if len(self._open) >= MOST_CONNECTIONS:
            idle_key = next((other for other, used in self._open.items() if used.is_idle), None)
            if idle_key is None:
                raise ModuleDownError(
                    module.name,
                    f"server {module.name!r}: all {MOST_CONNECTIONS} connections of users to "
                    "servers are in use. Call it again later",
                )

            self._end(idle_key, self._open[idle_key])

        shared = _SharedModule(module, module.for_another(partial(self._authorize, file)))
        self._start(partial(self._run, key, shared), shared.module)
        return shared

    async def _run(self, key: _Key, shared: _SharedModule) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_when_idle, key, shared)
            await shared.module.run()
            self._end(key, shared)
            group.cancel_scope.cancel()

    async def _end_when_idle(self, key: _Key, shared: _SharedModule) -> None:
        while True:
            await shared.idle.wait()
            with anyio.move_on_after(IDLE_SECONDS):
                await shared.busy.wait()
            module, _ = key
            if shared.is_idle and not self._is_needed(module):
                self._end(key, shared)
                return

    def _end(self, key: _Key, shared: _SharedModule) -> None:
        if self._open.get(key) is shared:
            del self._open[key]
        self._retired.discard(shared)
        shared.module.stop()


class _SharedModule:
    """A module and the number of calls that currently use it.

    Attributes:
        configured: the module that everybody else uses.
        module: the same module over users' own connection.
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
