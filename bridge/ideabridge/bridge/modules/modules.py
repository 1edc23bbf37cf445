"""All configured MCP servers, connected concurrently.

If each person signs in to a server separately, calls by a named user never use the connection of
the person who started this process: see `UserModules`.

A caller waits for a server in one of these ways (methods of `Module`; `Modules` has the same for
several servers):

    know    its tools are known, from this process or an earlier one, or it has failed
    settle  it is up, idle, failed or disabled: the current attempt to connect has ended
    ready   it is up; starts it if it is idle, raises an error otherwise, and never reconnects
    reach   it is up; connects immediately if it is not, and raises an error if that fails
    current one tool's current definition; connects like `reach` if the tools are not listed yet
    follow  every change of its state

The configuration can change while servers are in use (`change`): a server whose entry changes is
replaced by a new server, and ends as soon as the calls that are still using it have ended.

Several `Modules` objects in one process can share servers, so that each server starts only once:
one object lends servers to the others, by name (`lend`). The lender owns these servers: it starts,
replaces and ends them, and tells the borrowers what happens to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

import anyio
import anyio.abc

from ideabridge.bridge.limits import Limits
from ideabridge.bridge.modules.client_session import client_session
from ideabridge.bridge.modules.connection_pool import ConnectionPool, Owner
from ideabridge.bridge.modules.errors import (
    ClientWithoutSessionsError,
    ModuleError,
    UnknownModuleError,
)
from ideabridge.bridge.modules.settings import (
    ModuleStatus,
    StoredValues,
    entry_digest,
    secrets_named,
)
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.stored_secrets import StoredSecretError, secret_value, stored_secrets
from ideabridge.tools.names import nearest
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    from pathlib import Path

    from mcp.shared.subscriptions import ServerEvent

    from ideabridge.bridge.modules.authorization import Authorization, Person
    from ideabridge.bridge.modules.device import DevicePerson
    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.settings import Launch, ModuleConfiguration
    from ideabridge.bridge.modules.sign_ins import ModuleUser, SignInFile
    from ideabridge.bridge.modules.user_modules import UserModules
    from ideabridge.bridge.stored_secrets import SecretOwner
    from ideabridge.bridge.trust import Variables

_CLOSE_SECONDS: Final = 1.7
"""The maximum time, in seconds, that closing all servers can take. Hosts kill this process after
two seconds.
"""


class ModuleSource(Protocol):
    """The part of a configuration that `Modules` reads."""

    @property
    def modules(self) -> Mapping[str, ModuleConfiguration]:
        """The entries of the servers, keyed by name."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of the configuration."""
        ...

    @property
    def unusable(self) -> Mapping[str, tuple[str, ...]]:
        """The reasons why servers cannot be used as configured, one reason per line, keyed by
        server name.
        """
        ...

    def folder_of(self, module: str) -> Path:
        """Return the absolute folder for relative paths in the server's entry."""
        ...

    def working_folder_of(self, module: str) -> Path:
        """Return the absolute folder in which a program without `cwd` starts."""
        ...

    def log_file_of(self, module: str) -> Path | None:
        """Return the log file of the server, or None if no log is written."""
        ...

    def apart_file_of(self, module: str) -> Path | None:
        """Return the file whose existence means that each session needs its own server, or None."""
        ...

    def exposes(self, module: str) -> bool:
        """Return whether clients can call the server's tools directly."""
        ...

    def variables_of(self, module: str) -> Variables | None:
        """Return the variables that the server's entry may use, or None for all."""
        ...

    def secret_owner_of(self, module: str) -> SecretOwner:
        """Return the owner of the secrets that the server's entry may read."""
        ...


def _own_session(module: Module) -> str | None:
    """Return the id of the current session if it does not share the server with other sessions,
    otherwise None.

    Raises:
        ClientWithoutSessionsError: see `Modules.using`.
    """
    session = client_session()
    if session is None or module.sharing == "shared" or module.configuration.disabled:
        return None
    if session.id is None and module.configuration.sharing == "session":
        raise _no_session(module.name)
    # The id is None for a call without a session, which then uses the shared server. This is
    # allowed if sessions are kept apart only because of the server's questions. Once the server has
    # asked a question that could belong to several such calls, these calls run one at a time.
    return session.id


def _no_session(module: str) -> ClientWithoutSessionsError:
    # Begin the message with the problem, because answers show only the first 200 characters of a
    # call's error.
    return ClientWithoutSessionsError(
        module,
        f"server {module!r} has a process for each session, but requests in MCP 2026-07-28 belong "
        "to no session: connect the client over stdio or with 2025-11-25, or set "
        '"sharing": "shared" for the server',
    )


class Modules:
    """The configured servers. Entering the context returns immediately, and the servers connect in
    the background.

    Enter and exit the context in the same task. All methods can be used from any task. If a server
    fails, hangs or dies, only its own status and calls are affected, and the bridge tries to
    connect to it again.

    Args:
        configuration: contains the entries of the servers.
        secrets: registers every secret value of the entries.
        on_change: called with the name of a server when the server's state or tools have changed.
        person: signs in to servers that ask for it, or None if nobody can sign in, as in a server.
        at_once: True if the person signs in before a server asks for it.
        user: the name of the user whose sign-ins are used, or None for the person who started this
            process.

    Attributes:
        on_event: called with the name of a server when the server's resources or prompts, or a
            watched resource, have changed.
        identify_store: returns a string that identifies the store whose named users use the servers
            (`ModuleUser.store`), or "" if none of these users has ever signed in to a server.
        quotes: returns whether errors and notes quote what servers wrote to standard error, or in
            place of messages.
        is_needed: returns whether a run needs the server with the given name even though no call is
            running. Meanwhile, the server is not stopped for being idle.
    """

    def __init__(
        self,
        configuration: ModuleSource,
        *,
        secrets: Secrets | None = None,
        on_change: Callable[[str], None] | None = None,
        person: Person | DevicePerson | None = None,
        at_once: bool = False,
        user: ModuleUser | None = None,
    ) -> None:
        self.identify_store: Callable[[], str] = lambda: ""
        self.quotes: Callable[[], bool] = lambda: True
        self.is_needed: Callable[[str], bool] = lambda _module: False
        self._person = person
        self._at_once = at_once
        self._user = user
        self.on_event: Callable[[str, ServerEvent], None] = lambda _module, _event: None
        self.secrets: Final = secrets or Secrets()
        # The servers that belong to this object.
        self._own: dict[str, Module] = {}
        self._names: tuple[str, ...] = tuple(configuration.modules)
        self._lender: Modules | None = None
        self._borrowed: frozenset[str] = frozenset()
        self._borrowers: list[Modules] = []
        self._on_change = on_change
        self._changed = anyio.Event()
        for name in self._names:
            self._own[name] = self._created(configuration, name)

        self._group: anyio.abc.TaskGroup | None = None
        self._of_users: UserModules | None = None
        self._of_sessions = ConnectionPool(self._start, "sessions", self._is_needed_anywhere, None)
        self._store_key = ""
        self._running = 0
        self._one_ended = anyio.Event()
        # The number of calls that are using each server, and the servers that will be ended after
        # their last call.
        self._uses: Counter[Module] = Counter()
        self._retired: set[Module] = set()

    def _created(self, configuration: ModuleSource, name: str) -> Module:
        """Return the server with the given name, not yet connected."""
        # Import these only when they are needed, because importing the SDK takes longer than
        # anything else.
        from ideabridge.bridge.modules.module import Module, ModuleSurroundings
        from ideabridge.bridge.modules.server_log import ServerLog

        log_file = configuration.log_file_of(name)
        surroundings = ModuleSurroundings(
            unusable="; ".join(configuration.unusable.get(name, ())) or None,
            folder=configuration.folder_of(name),
            working_folder=configuration.working_folder_of(name),
            variables=configuration.variables_of(name),
            read_secrets=partial(stored_values, configuration, name),
            secrets=self.secrets,
            result_bytes=configuration.limits.result_bytes,
            exposed=configuration.exposes(name),
            quotes=lambda: self.quotes(),
            log=None if log_file is None else ServerLog(log_file),
            authorize=self._authorize,
            on_change=self._note_change,
            on_event=self._note_event,
            is_needed=self._is_needed_anywhere,
            apart_file=configuration.apart_file_of(name),
        )
        return Module(name, configuration.modules[name], surroundings)

    # -- servers of several owners -----------------------------------------------------------------

    def borrow(self, lender: Modules, names: Collection[str]) -> None:
        """Use another object's servers for these names. Call this before entering the context, and
        exit the context before the lender exits its own.
        """
        self._lender = lender
        self._borrowed = frozenset(names)
        for name in names:
            del self._own[name]

    def _borrowers_of(self, name: str) -> list[Modules]:
        return [borrower for borrower in self._borrowers if name in borrower._borrowed]

    def _note_event(self, name: str, event: ServerEvent) -> None:
        self.on_event(name, event)
        for borrower in self._borrowers_of(name):
            borrower.on_event(name, event)

    def _is_needed_anywhere(self, name: str) -> bool:
        users = [self, *self._borrowers_of(name)]
        return any(modules.is_needed(name) for modules in users)

    @property
    def own_names(self) -> list[str]:
        """The names of the servers that are not borrowed, in configuration order."""
        return list(self._own)

    @property
    def _modules(self) -> dict[str, Module]:
        """The current servers, own and borrowed, in configuration order, without those that the
        lender no longer has.
        """
        if not self._borrowed:
            return self._own

        modules: dict[str, Module] = {}
        for name in self._names:
            module = self._find(name)
            if module is not None:
                modules[name] = module
        return modules

    def _find(self, name: str) -> Module | None:
        if self._lender is not None and name in self._borrowed:
            return self._lender._own.get(name)
        return self._own.get(name)

    def change(
        self,
        configuration: ModuleSource,
        replaced: Collection[str],
        borrowed: Collection[str] = (),
    ) -> list[Module]:
        """Switch to another configuration.

        Servers that are missing from the new configuration, and servers in `replaced`, accept no
        new calls, and end when the calls that use them have ended.

        Args:
            configuration: the new configuration.
            replaced: the names of servers in both configurations that need a new connection.
            borrowed: the names of the servers that are borrowed from the lender from now on.

        Returns:
            The new servers, which connect when they are passed to `connect`.
        """
        before = self._own
        self._own = {}
        self._names = tuple(configuration.modules)
        self._borrowed = frozenset(borrowed)
        created: list[Module] = []
        for name, entry in configuration.modules.items():
            if name in self._borrowed:
                continue

            module = before.get(name)
            if module is None or name in replaced:
                module = self._created(configuration, name)
                created.append(module)
            else:
                module.adjust(entry)
            self._own[name] = module

        for name, module in before.items():
            if self._own.get(name) is not module:
                self._retire(module)

        self._wake()
        return created

    def connect(self, modules: Iterable[Module]) -> None:
        """Let new servers connect in the background."""
        for module in modules:
            self._start(module.run, module)

    def _retire(self, module: Module) -> None:
        self._of_sessions.retire(module.name)
        if self._of_users is not None:
            self._of_users.retire(module.name)
        if self._uses[module]:
            self._retired.add(module)
        else:
            module.stop()

    @contextmanager
    def _counted(self, module: Module) -> Generator[None]:
        """Count a call that uses a server. A retired server ends after its last call."""
        self._uses[module] += 1
        try:
            yield
        finally:
            self._uses[module] -= 1
            if not self._uses[module]:
                del self._uses[module]
                if module in self._retired:
                    self._retired.discard(module)
                    module.stop()

    def share_limits(
        self,
        place: Callable[[str, int], AbstractAsyncContextManager[None]],
        identify: Callable[[str], str],
    ) -> None:
        """Apply the configured limits to several processes together.

        Args:
            place: returns the context manager that holds a call's place. Its arguments are the name
                and identity of the server, separated by a space, and the limit.
            identify: returns the identity of a server, which distinguishes it from other servers
                with the same name.
        """
        for name, module in self._own.items():
            if "parallel" in module.configuration.model_fields_set:
                module.place = partial(
                    place, f"{name} {identify(name)[:16]}", module.configuration.parallel
                )

    def _note_change(self, name: str) -> None:
        if self._on_change is not None:
            self._on_change(name)
        self._wake()
        for borrower in self._borrowers_of(name):
            borrower._note_change(name)

    def _wake(self) -> None:
        """Wake the tasks that are waiting for any server to change."""
        changed = self._changed
        self._changed = anyio.Event()
        changed.set()

    def _authorize(self, module: str, launch: Launch) -> Authorization | None:
        """Return the object that gets tokens for a server, or None for a program, or if a header
        contains the token.
        """
        if not launch.url:
            return None
        from ideabridge.bridge.modules.sign_ins import SignInFile

        return self._authorize_with(SignInFile(module, launch.url, self._user), module, launch)

    def _authorize_with(
        self, file: SignInFile | None, module: str, launch: Launch
    ) -> Authorization | None:
        if not launch.url or any(name.lower() == "authorization" for name in launch.headers):
            return None
        from ideabridge.bridge.modules.authorization import Authorization

        return Authorization(
            module,
            launch,
            secrets=self.secrets,
            file=file,
            person=self._person,
            at_once=self._at_once,
        )

    async def __aenter__(self) -> Self:
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group
        if self._lender is not None:
            self._lender._borrowers.append(self)
        self.connect(self._own.values())
        return self

    def _start(self, run: Callable[[], Coroutine[object, object, None]], module: Module) -> None:
        async def own() -> None:
            try:
                await run()
            finally:
                self._running -= 1
                ended = self._one_ended
                self._one_ended = anyio.Event()
                ended.set()

        assert self._group is not None
        self._running += 1
        self._group.start_soon(own, name=f"server {module.name}")

    @asynccontextmanager
    async def using(self, name: str, user: str | None) -> AsyncGenerator[Module]:
        """Yield the server to use for one person's calls.

        If each person signs in separately, it uses that person's own sign-in and connection. If
        sessions do not share the server, it is the current session's own server (`client_session`).
        Otherwise, it is the shared server with this name.

        Args:
            name: the server's name.
            user: the name of the user, or None for the person who started this process.

        Raises:
            UnknownModuleError: the server is not configured.
            ModuleSignInError: the user needs to sign in, possibly because of a call within the
                block.
            ModuleDownError: too many users use servers at the same time.
            ClientWithoutSessionsError: the configuration gives each session its own server, and the
                client has no sessions.
        """
        if self._lender is not None and name in self._borrowed:
            # Tell the lender, because it must know which of its servers are in use.
            async with self._lender.using(name, user) as borrowed:
                yield borrowed
            return

        module = self[name]
        if user is None or not module.configuration.has_sign_ins or module.configuration.disabled:
            session = _own_session(module)
            with self._counted(module):
                if session is None:
                    yield module
                    return
                owner = Owner(session=session)
                with self._of_sessions.using(module, owner, module.for_session) as own:
                    yield own
            return

        if self._of_users is None:
            from ideabridge.bridge.modules.user_modules import UserModules

            self._of_users = UserModules(
                self._authorize_with, self._start, lambda module: self.is_needed(module)
            )

        # Ask for the identity of the store only once: once it exists, it never changes.
        self._store_key = self._store_key or self.identify_store()
        session = _own_session(module)
        async with self._of_users.using(module, user, self._store_key, session) as own:
            yield own

    def end_session(self, session: str) -> None:
        """End the processes and connections of a session that has ended."""
        self._of_sessions.leave(session)
        if self._of_users is not None:
            self._of_users.leave(session)
        if self._lender is not None:
            self._lender.end_session(session)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        group = self._group
        assert group is not None
        if self._lender is not None:
            self._lender._borrowers.remove(self)
        for module in (*self._own.values(), *self._retired):
            module.stop()

        self._of_sessions.stop()
        if self._of_users is not None:
            self._of_users.stop()

        # Shield this, so that HTTP sessions and inputs are closed even if this task is cancelled.
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
            while self._running:
                await self._one_ended.wait()

        group.cancel_scope.cancel()
        await group.__aexit__(None, None, None)

    @property
    def names(self) -> list[str]:
        """The names of all configured servers, in configuration order."""
        return list(self._modules)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __getitem__(self, name: str) -> Module:
        """Return the server with the given name.

        Raises:
            UnknownModuleError: the server is not configured. The message suggests similar names.
        """
        module = self._find(name)
        if module is not None:
            return module

        near = nearest(name, self._modules)
        if near:
            hint = f"nearest: {', '.join(near)}"
        else:
            hint = f"known: {', '.join(self._modules) or 'none'}"

        raise UnknownModuleError(name, f"no server {name[:100]!r} is configured; {hint[:500]}")

    def tools(self) -> list[Tool]:
        """Return the tools of every server that is or was up, grouped by server in configuration
        order.
        """
        return [tool for module in self._modules.values() for tool in module.tools]

    def reserved(self) -> dict[str, list[str]]:
        """Return the names of tools that belong to each server although they are not in
        `known_tools`.
        """
        return {
            name: [] if module.known_tools else module.reserved
            for name, module in self._modules.items()
        }

    def known_tools(self) -> list[Tool]:
        """Return the tools in every server's latest list, grouped by server in configuration order.

        A list can come from an earlier process, so use `Module.current` before a call.
        """
        return [tool for module in self._modules.values() for tool in module.known_tools]

    async def known(self, timeout: float | None = None, name: str | None = None) -> bool:
        """Wait until the tools of each server (or only of the server `name`) are known, or the
        server has failed or is disabled. Return False after `timeout` seconds.
        """
        modules = list(self._modules.values()) if name is None else [self[name]]
        with anyio.move_on_after(timeout):
            for module in modules:
                await module.know()
            return True
        return False

    async def until(
        self, enough: Callable[[], bool], timeout: float, *, recalled: bool = False
    ) -> None:
        """Wait until `enough` returns True, no server is connecting, or `timeout` seconds have
        passed.

        A slow server thus does not delay a caller that needs another one. Idle servers whose tools
        are not known are started.

        Args:
            enough: called after each change of a server. It returns True to stop waiting.
            timeout: the maximum number of seconds to wait.
            recalled: True to stop waiting for connecting servers whose tools are known from an
                earlier process.
        """

        def is_awaited(module: Module) -> bool:
            return module.state == "connecting" and not (recalled and module.is_known)

        if enough():
            return
        for module in self._modules.values():
            if not module.is_known:
                module.begin()

        with anyio.move_on_after(timeout):
            while not enough() and any(is_awaited(module) for module in self._modules.values()):
                await self._changed.wait()

    def statuses(self) -> list[ModuleStatus]:
        """Return the status of each server, in configuration order."""
        return [
            replace(module.status(), sessions=self._sessions_of(name))
            for name, module in self._modules.items()
        ]

    def _sessions_of(self, name: str) -> int:
        """Return how many sessions have their own process of a server, or their own connection to
        it.
        """
        if self._lender is not None and name in self._borrowed:
            return self._lender._sessions_of(name)
        of_users = 0 if self._of_users is None else self._of_users.count_sessions(name)
        return of_users + self._of_sessions.count_sessions(name)

    def connecting(self) -> list[str]:
        """Return the names of the servers that are currently connecting."""
        return [name for name, module in self._modules.items() if module.state == "connecting"]

    def away(self) -> list[ModuleStatus]:
        """Return the status of each server that has failed, is unusable, or cannot be called yet
        because it has not listed its tools in this process and a call would not start it. Disabled
        servers are left out.
        """
        statuses: list[ModuleStatus] = []
        for module in self._modules.values():
            status = module.status()
            is_away = status.state in ("failed", "unusable")
            if is_away or (not module.is_callable and status.state != "disabled"):
                statuses.append(status)

        return statuses

    async def settled(
        self,
        timeout: float | None = None,
        names: Iterable[str] | None = None,
        report: Callable[[ModuleStatus], None] | None = None,
    ) -> bool:
        """Wait until servers are up, idle, failed or disabled. Return False after `timeout`
        seconds.

        Args:
            timeout: the maximum number of seconds to wait, or None for no limit.
            names: the servers to wait for, or None for all.
            report: called with the status of each server as soon as it is in one of these states.

        Raises:
            UnknownModuleError: a server is not configured.
        """
        if names is None:
            names = self._modules
        waited = [self[name] for name in names]

        async def settle(module: Module) -> None:
            await module.settle()
            if report is not None:
                report(module.status())

        return await _all_within(timeout, settle, waited)

    async def follow(self, report: Callable[[ModuleStatus], None]) -> None:
        """Report the status of each server once it is up, failed or disabled, and after each later
        change, until cancelled.

        `down` is not reported, because the next call reconnects. Servers added by later
        configurations are followed, too. Borrowed servers are reported by their owner.
        """
        followed: set[Module] = set()
        async with anyio.create_task_group() as group:
            while True:
                for module in self._own.values():
                    if module not in followed:
                        followed.add(module)
                        group.start_soon(module.follow, report)

                followed &= {*self._own.values()}
                await self._changed.wait()

    async def reach(self, names: Iterable[str], timeout: float | None = None) -> bool:
        """Connect the servers that are not up; see `Module.reach`. Return False if a server is
        still not up, or after `timeout` seconds. The server's status contains the reason.

        Raises:
            UnknownModuleError: a server is not configured.
        """
        wanted = [self[name] for name in names]
        failed: list[ModuleError] = []

        async def reach(module: Module) -> None:
            try:
                await module.reach(timeout)
            except ModuleError as error:
                failed.append(error)

        return await _all_within(timeout, reach, wanted) and not failed


async def _all_within(
    timeout: float | None,
    wait: Callable[[Module], Coroutine[object, object, None]],
    modules: Iterable[Module],
) -> bool:
    """Wait for all servers concurrently. Return False after `timeout` seconds."""
    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as group:
            for module in modules:
                group.start_soon(wait, module)
        return True
    return False


SecretState: TypeAlias = tuple[str, float, str | None]
"""The name of a stored secret, the time when its value was stored, and the digest of the entry that
is allowed to use it.
"""


def secret_states(configuration: ModuleSource) -> dict[str, frozenset[SecretState]]:
    """Return the state of the stored secrets that each server gets, keyed by server name.

    A server's set changes if the server gets other secrets, or if their values change. The values
    themselves are not read.

    Raises:
        StoredSecretError: `secrets.json` cannot be read.
    """
    named = {name: secrets_named(entry) for name, entry in configuration.modules.items()}
    if not any(named.values()):
        return {}

    stored = {(secret.file, secret.name): secret for secret in stored_secrets()}
    states: dict[str, frozenset[SecretState]] = {}
    for module, names in named.items():
        owner = configuration.secret_owner_of(module)
        secrets = [stored[owner.file, name] for name in names if (owner.file, name) in stored]
        states[module] = frozenset(
            (secret.name, secret.set_at, secret.servers.get(module)) for secret in secrets
        )

    return states


def stored_values(configuration: ModuleSource, module: str) -> StoredValues:
    """Return the stored secrets named in a server's entry. Blocks."""
    entry = configuration.modules[module]
    owner = configuration.secret_owner_of(module)
    values: dict[str, str | StoredSecretError] = {}
    for name in secrets_named(entry):
        try:
            values[name] = secret_value(owner, name, module, entry_digest(entry))
        except StoredSecretError as error:
            values[name] = error

    return values
