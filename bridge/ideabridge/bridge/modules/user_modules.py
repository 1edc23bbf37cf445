"""The connections of named users to servers for which each person signs in separately.

A user's call goes over a connection that has this user's token, or no token at all:

    the user has signed in    the connection of this user to the server
    the user has not          a connection to the server without a token, which all such users share

A connection never uses another user's sign-in: after a request is refused, the connection looks
only for the sign-in of its own user. A connection ends when nobody has used it for a while and no
run needs it, or when it has failed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from ideabridge.bridge.modules.connection_pool import ConnectionPool, Owner
from ideabridge.bridge.modules.errors import (
    ModuleConfigurationError,
    ModuleSignInError,
    UnknownModuleToolError,
)
from ideabridge.bridge.modules.sign_ins import ModuleUser, SignInFile, needed

if TYPE_CHECKING:
    from ideabridge.bridge.modules.authorization import Authorization
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.settings import Launch

IDLE_SECONDS: Final = 300.0
"""The number of seconds without a call after which a connection ends."""


class UserModules:
    """The servers, reached over users' own connections. Use it only from tasks of one event loop.

    Args:
        authorize: returns the object that gets tokens for a server, given the file with the
            sign-in.
        start: starts the task of a server.
        is_needed: returns whether a run needs the server with the given name even though no call is
            running. Meanwhile, the connections to the server stay open.
    """

    def __init__(
        self,
        authorize: Callable[[SignInFile | None, str, Launch], Authorization | None],
        start: Callable[[Callable[[], Coroutine[object, object, None]], Module], None],
        is_needed: Callable[[str], bool],
    ) -> None:
        self._authorize = authorize
        # An owner that has no user stands for all users who have not signed in.
        self._pool = ConnectionPool(start, "users", is_needed, IDLE_SECONDS)

    @asynccontextmanager
    async def using(
        self, module: Module, user: str, store: str, session: str | None
    ) -> AsyncGenerator[Module]:
        """Yield the server, connected as the given user.

        Args:
            module: the configured server.
            user: the user's name.
            store: see `ModuleUser`. "" if no user of the store has signed in.
            session: the session that the connection belongs to, or None if the user's sessions
                share it.

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

        owner = Owner(None if file is None else user, session)
        create = partial(module.for_user, partial(self._authorize, file))
        try:
            with self._pool.using(module, owner, create) as own:
                yield own
        except ModuleSignInError:
            if file is not None:
                raise
            raise ModuleSignInError(module.name, needed(module.name, user)) from None
        except UnknownModuleToolError:
            if file is not None or not module.has_token:
                raise
            # The server lists its tools only to users who have signed in.
            raise ModuleSignInError(module.name, needed(module.name, user)) from None

    def retire(self, module: str) -> None:
        """End the connections of all users to a server, because its configuration has changed. A
        connection in use ends after its last call.
        """
        self._pool.retire(module)

    def leave(self, session: str) -> None:
        """End the connections of a session that has ended."""
        self._pool.leave(session)

    def count_sessions(self, module: str) -> int:
        """Return how many connections to a server belong to a single session."""
        return self._pool.count_sessions(module)

    def stop(self) -> None:
        """End all connections. Calls in flight fail."""
        self._pool.stop()
