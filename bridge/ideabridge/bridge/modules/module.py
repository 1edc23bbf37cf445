"""A configured MCP server, connected when needed.

One task (`run`) enters and leaves every connection; any number of tasks `call`. The states
(`ModuleState`) change like this:

    idle -> connecting      its first use starts it (`start`)
    connecting -> up        the server has listed its tools
    connecting -> failed    it could not be reached; the next attempt follows after a pause, which
                            grows
    up -> down              the connection has ended; the next call reconnects. A call in flight is
                            sent again if it can run twice (`retry`), and fails otherwise
    failed, down -> up      an attempt succeeded
    up -> idle              nobody has used it for `idle` seconds

A server starts out idle if its list of tools is known from an earlier process, unless its entry
requires a connection at the start. Attempts to connect to a failed server continue until this
process ends, and an attempt begins immediately if a call needs the server.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ServerEvent
from pydantic import ValidationError

from ideabridge.bridge.context.inquiry import Asker
from ideabridge.bridge.modules.asking import DirectClient, ModuleAsks
from ideabridge.bridge.modules.connection import Connection, ConnectionStart, Peer
from ideabridge.bridge.modules.errors import (
    LegacyQuestionError,
    ModuleConfigurationError,
    ModuleConnectError,
    ModuleDisabledError,
    ModuleDownError,
    ModuleError,
    ModuleListError,
    ModuleProtocolError,
    ModuleSignInError,
    ModuleTimeoutError,
    ToolLeftOutError,
    ToolNotAllowedError,
    UnknownModuleToolError,
    log_hint,
    shown,
)
from ideabridge.bridge.modules.fair_limiter import FairLimiter
from ideabridge.bridge.modules.http import Mark
from ideabridge.bridge.modules.listing import Listing, bounded_notes, is_allowed
from ideabridge.bridge.modules.messages import Replaced
from ideabridge.bridge.modules.module_call import Answer, ModuleCall, OnProgress
from ideabridge.bridge.modules.offering import OFFERED_KINDS, Kind, kinds_changed_by
from ideabridge.bridge.modules.process_memory import memory_of_sessions
from ideabridge.bridge.modules.requests import (
    PassedOn,
    Requests,
    SessionLostError,
    lost_session,
)
from ideabridge.bridge.modules.server_log import ServerLog
from ideabridge.bridge.modules.settings import (
    DEFAULT_SENDS,
    Era,
    Launch,
    ModuleConfiguration,
    ModuleKind,
    ModuleState,
    ModuleStatus,
    Recollection,
    Sharing,
    StoredValues,
    Way,
    entry_digest,
    expand,
    secrets_named,
    with_secrets,
)
from ideabridge.bridge.modules.start_progress import reporting_starts
from ideabridge.bridge.modules.stdio import MAX_LINE_BYTES
from ideabridge.bridge.modules.tool_changes import ToolChanges, tool_changes
from ideabridge.bridge.modules.views import without_views
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.stored_secrets import StoredSecretError
from ideabridge.bridge.trust import Variables
from ideabridge.tools.changed import names_secret
from ideabridge.tools.encoding import JSON, JSONObject, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import nearest, printable_line
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    # Import this only for type checkers, because it takes time, and servers that are programs do
    # not need it.
    from ideabridge.bridge.modules.authorization import Authorization


logger: Final = logging.getLogger(__name__)

SentT = TypeVar("SentT")

_CONNECTED_ANEW: Final = (
    "The server asks questions as in version 2025-11-25, so ideabridge has reconnected with that "
    "version"
)

_LATENCIES: Final = 100
"""The number of latest calls over which `latency` computes the median duration."""

_NOTES: Final = 100
"""The maximum number of lines that `note` stores."""

_WITHHELD: Final = (
    'its views in HTML are not passed on to clients; "views": true in its entry allows them'
)

_APART: Final = (
    "each session has its own process of this server, because the server asked a question while "
    "calls of several sessions were running, and did not say which session the question belongs to"
)

_PATIENCE: Final = 30.0
"""How long, in seconds, calls wait for further attempts to connect during an outage of a server
that was up before.
"""

_REFUSED_PATIENCE: Final = 3.0
"""Like `_PATIENCE`, for a server that has never been up and that refused the first messages, or
ended during them.
"""

_FIRST_RECONNECT_PAUSE: Final = 0.5
_LONGEST_RECONNECT_PAUSE: Final = 60.0
"""The first and the longest pause, in seconds, between two attempts to connect. Each pause is twice
as long as the pause before it.
"""

_NEEDED_RECONNECT_PAUSE: Final = 2.0
_REFUSED_RECONNECT_PAUSE: Final = 5.0
"""The longest pause, in seconds, between two attempts to connect while a call needs the server. The
second value applies if the server refuses the connection or cannot start.
"""

_ASKED_SECONDS: Final = 3600.0
"""How long, in seconds, a server does not count as idle after it has asked a question in place of a
result.
"""

_FIRST_RESEND_PAUSE: Final = 0.25
_LONGEST_RESEND_PAUSE: Final = 2.0
"""The first and the longest pause, in seconds, before a call is sent again over a working
connection. Each pause is twice as long as the pause before it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSurroundings:
    """The settings and callbacks that a server receives from its process.

    Attributes:
        unusable: why the server cannot be used as configured, or None.
        folder: the absolute folder for relative paths in the server's entry.
        working_folder: the absolute folder that the server starts in if its entry has no `cwd`.
        variables: the variables that the entry may use, or None for all.
        read_secrets: returns the stored secrets that the entry names. Blocks.
        secrets: registers every secret value of the entry, and masks it.
        result_bytes: the maximum size of one result, in bytes of JSON.
        exposed: True if clients can call the server's tools directly.
        quotes: returns whether errors and notes quote what the server wrote; see `Modules.quotes`.
        log: the log file of the server, or None.
        authorize: returns the object that gets the server's tokens, or None if it needs no tokens.
        on_change: called with the server's name when its state or its tools have changed.
        on_event: called with the server's name when its resources or prompts, or a watched
            resource, have changed.
        is_needed: returns whether a run needs the server with the given name even though no call is
            running.
        apart_file: the file whose existence means that each session needs its own server, or None
            if nothing is stored. The file contains the digest of the server's entry.
    """

    unusable: str | None
    folder: Path
    working_folder: Path
    variables: Variables | None
    read_secrets: Callable[[], StoredValues]
    secrets: Secrets
    result_bytes: int
    exposed: bool
    quotes: Callable[[], bool]
    log: ServerLog | None
    authorize: Callable[[str, Launch], Authorization | None]
    on_change: Callable[[str], None]
    on_event: Callable[[str, ServerEvent], None]
    is_needed: Callable[[str], bool]
    apart_file: Path | None


class Module:
    """A configured server. One task calls `run`. Any task can call the other methods.

    Attributes:
        reserved: the names of tools that a server with the same name had under a different
            configuration. They stay reserved until `known_tools` contains a tool.
        authorization: gets tokens, or None for a program, or if a header contains the token.
        place: returns the async context manager that reserves a place for a call, after waiting for
            calls from other processes.
    """

    def __init__(
        self, name: str, configuration: ModuleConfiguration, surroundings: ModuleSurroundings
    ) -> None:
        self.name = name
        self.configuration = configuration
        self._surroundings = surroundings
        self._secrets = surroundings.secrets
        self._requests = Requests(name, surroundings.secrets, surroundings.result_bytes)
        self.authorization: Authorization | None = None
        self.place: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        self._watched: set[str] = set()
        # The clients that are watching each resource; see `watch`.
        self._watchers: dict[str, set[Hashable]] = {}
        self._log_level: types.LoggingLevel | None = None
        self._limiter = FairLimiter(configuration.parallel)
        self._state: ModuleState = "disabled" if configuration.disabled else "connecting"
        self._since = time.monotonic()
        self._error: ModuleError | None = None
        self._connection: Connection | None = None
        self._peer: Peer | None = None
        self._seconds: float | None = None
        self._tools: dict[str, Tool] = {}
        self._listed = False
        self._recalled: Recollection | None = None
        self._changes: tuple[object, object, ToolChanges] | None = None
        # The lists of resources, templates and prompts that were last read from the server; see
        # `Recollection`.
        self._offered: dict[Kind, list[JSONObject] | None] = {}
        self._call_seconds: deque[float] = deque(maxlen=_LATENCIES)
        self.reserved: list[str] = []
        self._notes: list[str] = []
        self._validators: dict[str, tuple[Tool, Validator | None]] = {}
        # The number of attempts to connect, successful or not, since the last answer to a call.
        self._fruitless_connects = 0
        self._failed_connects = 0
        # The time at which the server stopped being up or, before that, at which the first attempt
        # began. None before the first attempt.
        self._out_since: float | None = None
        self._next: float | None = None
        # Set in `_pause_before_reconnecting`, because a Module can be created outside an event
        # loop.
        self._reconnect_pause: anyio.CancelScope | None = None
        # Whether the next attempt to connect begins with `initialize`.
        self._legacy = False
        # The kind of connection that last reached the server.
        self._kind: ModuleKind = configuration.kind
        # True if both eras have been tried without success since the server was last up.
        self._tried_both = False
        self._way_before: Way | None = None
        # True once a tool has asked a question as in the handshake era. As soon as the server is
        # idle, it is then connected in that era.
        self._asks_legacy = False
        self._closed = False
        self._launch: Launch | None = None
        # Set by a call that is waiting for a connection, in order to start an attempt.
        self._needed = anyio.Event()
        self._settled = anyio.Event()
        # Set whenever an attempt ends or the server comes up.
        self._moved = anyio.Event()
        # The number of requests that are using the server.
        self._uses = 0
        # Set whenever a request begins or ends, or the state changes.
        self._activity = anyio.Event()
        # The time, by the event loop's clock, until which a question that took the place of a
        # result can be answered.
        self._asked_until = -math.inf
        # True while the connection is being closed because nobody is using the server.
        self._is_resting = False
        # True if the server has asked, in this process or an earlier one, a question that could not
        # be assigned to a session.
        self._mixes_sessions = self._has_mixed_before()
        if configuration.disabled:
            self._settled.set()

    def for_user(self, authorize: Callable[[str, Launch], Authorization | None]) -> Module:
        """Return a Module for the same server with its own connections, which use the tokens from
        `authorize`.

        The original and the copy share the `parallel` limit. State changes of the copy are not
        reported.
        """
        copy = self._copy(authorize)
        copy._limiter = self._limiter
        return copy

    def for_session(self) -> Module:
        """Return a Module for the same server with its own process or connection. State changes of
        the copy are not reported.
        """
        copy = self._copy(self._surroundings.authorize)
        copy._limiter = FairLimiter(self.configuration.parallel)
        return copy

    def _copy(self, authorize: Callable[[str, Launch], Authorization | None]) -> Module:
        surroundings = replace(
            self._surroundings,
            authorize=authorize,
            on_change=_report_to_nobody,
            on_event=_report_to_nobody,
            apart_file=None,
        )
        copy = Module(self.name, self.configuration, surroundings)
        copy.place = self.place
        copy._legacy = self._legacy
        copy._log_level = self._log_level
        copy._kind = self._kind
        return copy

    @property
    def sharing(self) -> Sharing:
        """Which clients share one process of the server, or one connection to it.

        Each session has its own process or connection if the configuration says so, or if the
        server has asked a question that could belong to any of several sessions.
        """
        return "session" if self._mixes_sessions else self.configuration.sharing

    def _has_mixed_before(self) -> bool:
        file = self._surroundings.apart_file
        try:
            return file is not None and file.read_text() == entry_digest(self.configuration)
        except (OSError, ValueError):
            return False

    def _mixed(self, sessions: int) -> None:
        """Record that the server asked a question while calls from several sessions were
        running.
        """
        logger.warning(
            "server %s asked a question while calls of %d sessions were running, and did not say "
            "which session the question belongs to, so nobody was asked. From now on, each session "
            "has its own process of this server",
            self.name,
            sessions,
        )
        self._mixes_sessions = True
        file = self._surroundings.apart_file
        if file is not None:
            try:
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                file.write_text(entry_digest(self.configuration))
            except OSError as error:
                logger.warning("%s cannot be written: %s", file, error.strerror)
        self._surroundings.on_change(self.name)

    @property
    def state(self) -> ModuleState:
        """The current state."""
        return self._state

    @property
    def tools(self) -> list[Tool]:
        """The tools, in the server's order, or the last known tools while the server is down."""
        return list(self._tools.values())

    @property
    def era(self) -> Era | None:
        """The protocol era that the server uses, or None if the server has never been up."""
        return None if self._peer is None else self._peer.era

    @property
    def listed(self) -> bool:
        """Whether the server has listed its tools in this process."""
        return self._listed

    @property
    def instructions(self) -> str:
        """The server's instructions for its use, possibly from an earlier process, or "" if it
        sends none.
        """
        if self._peer is None:
            return "" if self._recalled is None else self._recalled.instructions
        return self._peer.instructions or ""

    def recall(self, recollection: Recollection) -> None:
        """Use what an earlier process has stored about the server.

        The tools and instructions are valid until the server lists its tools again. Because the
        tools are known, the server starts only when it is first used, unless its entry says
        otherwise.
        """
        self._recalled = recollection
        self._offered = dict(recollection.offered)

    @property
    def offered_lists(self) -> Mapping[Kind, list[JSONObject] | None]:
        """The lists of resources, templates and prompts, as last read; see `Recollection`."""
        return self._offered

    def recall_way(self, way: Way) -> None:
        """Set the way in which an earlier process reached the server, which is then tried first."""
        self._way_before = way
        self._legacy = way.era == "legacy"
        if way.kind == "sse" and self.configuration.type is None and self._kind == "http":
            self._kind = "sse"

    @property
    def way(self) -> Way | None:
        """The way in which the next process should first try to reach the server, or None if no way
        is preferred.
        """
        return self._way_before

    def note(self, lines: list[str]) -> None:
        """Add lines to the notes in the status, latest first, without duplicates."""
        self._notes = list(dict.fromkeys([*lines, *self._notes]))[:_NOTES]

    @property
    def known_tools(self) -> list[Tool]:
        """The tools that the server has listed in this process, or otherwise in an earlier one."""
        if self._listed:
            return self.tools
        return [] if self._recalled is None else self._recalled.tools

    @property
    def is_callable(self) -> bool:
        """Whether runs can call the known tools.

        They can if the server has listed the tools in this process, or starts when one of them is
        called.
        """
        starts_when_called = self._recalled is not None and self._starts_lazily
        return self._listed or (starts_when_called and self._state in ("idle", "connecting"))

    @property
    def _starts_lazily(self) -> bool:
        if self.configuration.start is None:
            return self._recalled is not None
        return self.configuration.start == "lazy"

    @property
    def changes(self) -> ToolChanges:
        """The configured changes to the known tools. This is the same object until they change."""
        known = self._tools if self._listed else self._recalled
        settings = self.configuration.tools
        latest = self._changes
        if latest is not None and latest[0] is known and latest[1] is settings:
            return latest[2]

        changes = tool_changes(
            self.known_tools,
            settings,
            is_whole=self._listed and not self.is_unfinished,
            decides_hints=self._surroundings.variables is None,
        )
        self._changes = (known, settings, changes)
        return changes

    @property
    def is_known(self) -> bool:
        """Whether the server's tools are known, from this process or an earlier one."""
        return self._listed or self._recalled is not None

    async def know(self) -> None:
        """Wait until the server's tools are known (`known_tools`) or the server has failed. An idle
        server whose tools are unknown is started.
        """
        if not self.is_known:
            self.begin()
            await self.settle()

    async def current(self, name: str, progress: OnProgress | None = None) -> Tool:
        """Return the current definition of a tool, connecting first if the server has not listed
        its tools in this process.

        Args:
            name: the name in `Module.tools`.
            progress: called from time to time while the server starts.

        Raises:
            UnknownModuleToolError: as for `tool`.
            ModuleError: the server cannot be reached.
        """
        if not self._listed:
            await reporting_starts(self.reach, progress, self._starting)
        return self.tool(name)

    def tool(self, name: str) -> Tool:
        """Return the tool with the given name.

        Raises:
            ToolNotAllowedError: the configuration does not allow the tool.
            ToolLeftOutError: the tool's definition cannot be used.
            ModuleListError: the server is up but has not listed its tools.
            UnknownModuleToolError: the server has no such tool.
        """
        tool = self._tools.get(name)
        if tool is not None:
            return tool

        refusal = self.why_without(name)
        if refusal is not None:
            raise refusal

        near = nearest(name, self._tools)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UnknownModuleToolError(
            self.name, f"server {self.name!r} has no tool {name[:100]!r}{hint}"
        )

    def why_without(self, name: str) -> ModuleError | None:
        """Return why a tool that the server might have is not available: it is not allowed, its
        definition cannot be used, or the server has not listed its tools. Return None if none of
        these applies.
        """
        label = f"tool {name[:100]!r}"
        if not is_allowed(self.name, name, self.configuration):
            reason = f"mcpServers.{self.name} does not allow {label} ('allow' and 'deny')"
            return ToolNotAllowedError(self.name, reason)

        listing = None if self._connection is None else self._connection.listing
        if listing is not None and name in listing.left_out:
            reason = (
                f"server {self.name!r} lists {label}, which cannot be called: "
                f"{listing.left_out[name]}"
            )
            return ToolLeftOutError(self.name, reason)

        if not self._listed and self._state == "up":
            return ModuleListError(
                self.name, f"server {self.name!r} is connected, but {self.list_fault}"
            )
        return None

    @property
    def refused(self) -> list[str]:
        """The names of tools that the server lists but that cannot be called; see `why_without` for
        the reasons.
        """
        listing = None if self._connection is None else self._connection.listing
        return [] if listing is None else [*sorted(listing.denied), *listing.left_out]

    @property
    def is_unfinished(self) -> bool:
        """Whether some pages of the server's tool list have not arrived."""
        listing = None if self._connection is None else self._connection.listing
        return listing is not None and listing.unfinished

    @property
    def list_fault(self) -> str | None:
        """Why the tools could not be listed although the server is up, or None if they could."""
        return None if self._connection is None else self._connection.list_fault

    @property
    def latency(self) -> float | None:
        """The median duration of recent calls in seconds, or None before the first call."""
        return median(self._call_seconds) if self._call_seconds else None

    @property
    def last_words(self) -> list[str]:
        """The last lines that the server's program wrote to standard error, with secrets masked."""
        return [] if self._connection is None else self._connection.last_words

    def memory(self) -> int | None:
        """Return the memory, in bytes, that the server's program and its child processes use, or
        None if the server has no processes on this machine; see `memory_of_sessions`. Blocks for a
        few milliseconds.
        """
        connection = self._connection
        session = None if connection is None else connection.process_session
        return None if session is None else memory_of_sessions({session}).get(session)

    def status(self) -> ModuleStatus:
        """The status of the server as people see it."""
        connection = self._connection
        peer = self._peer
        error = self._error
        next_try = None
        needs_sign_in = isinstance(error, ModuleSignInError) and error.lasting
        if self._next is not None and not needs_sign_in:
            next_try = max(0.0, self._next - anyio.current_time())

        notes = list(self._notes)
        if connection is not None:
            notes += connection.notes
        if self.authorization is not None:
            notes += self.authorization.oddities.lines

        notes += self.changes.notes
        if self._mixes_sessions and self.configuration.sharing == "shared":
            notes.append(_APART)
        if not self.configuration.views and any(_has_view(tool) for tool in self.known_tools):
            notes.append(_WITHHELD)

        return ModuleStatus(
            name=self.name,
            state=self._state,
            kind=self._kind,
            sharing=self.sharing,
            since=time.monotonic() - self._since,
            **(asdict(peer) if peer else {}),
            tools=len(self.known_tools if self.is_callable else self._tools),
            listed_at=self._listed_at,
            notes=bounded_notes([printable_line(note) for note in notes]),
            error=self._error_text(),
            needs_sign_in=needs_sign_in,
            seconds=self._seconds,
            away=self._away() if self._state in ("down", "failed") else None,
            next_try=next_try,
        )

    @property
    def _listed_at(self) -> str | None:
        if self._listed or self._recalled is None:
            return None
        return self._recalled.listed_at

    def _error_text(self) -> str | None:
        """Why the server is not up, or has not listed its tools, or None if it is up and has listed
        them.
        """
        error = self._error
        if error is not None:
            is_logged = self._surroundings.log is not None and self._kind == "stdio"
            if is_logged and type(error) is ModuleConnectError and not error.lasting:
                return f"{error}; {log_hint(self.name)}"
            return str(error)
        if self._state == "up" and not self._listed:
            return self.list_fault
        return None

    def _away(self) -> float | None:
        if self._out_since is None:
            return None
        return anyio.current_time() - self._out_since

    async def run(self) -> None:
        """Connect and reconnect until `stop` is called. Nothing is raised except cancellation."""
        if self.configuration.disabled:
            return

        try:
            launch = await self.launch()
        except ModuleConfigurationError as error:
            self._closed = True
            self._set("unusable", error)
            self._wake()
            return

        self.authorization = self._surroundings.authorize(self.name, launch)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._stop_when_idle)
                await self._keep_connected(launch)
                group.cancel_scope.cancel()
        finally:
            self._closed = True
            self._settled.set()
            self._wake()

    async def _keep_connected(self, launch: Launch) -> None:
        """Connect and reconnect until `stop` is called, but wait for the next use while the server
        is idle.
        """
        if self._starts_lazily and not await self._needs_person():
            await self._rest()

        self._out_since = anyio.current_time()
        while not self._closed:
            await self._connect(launch)
            self._wake()
            if self._closed:
                return
            if self._is_resting:
                self._is_resting = False
                await self._rest()
            else:
                await self._pause_before_reconnecting()

    async def _needs_person(self) -> bool:
        """Return whether a person has to sign in again. If so, the server is connected immediately,
        so that its status says so before anybody needs it.
        """
        had_token = self._recalled is not None and self._recalled.had_token
        if not had_token or self.authorization is None:
            return False
        try:
            return await self.authorization.needs_person()
        except ModuleSignInError:
            return True

    # -- starting at the first use, and stopping when idle -----------------------------------------

    def adjust(self, configuration: ModuleConfiguration) -> None:
        """Use another entry for the same server."""
        is_now_eager = configuration.start == "eager" != self.configuration.start
        self.configuration = configuration
        self._note_activity()
        if is_now_eager:
            self.begin()

    def begin(self) -> None:
        """Start the server now if it is idle, otherwise as soon as it becomes idle, without waiting
        for it.
        """
        if self._state == "idle":
            self._leave_idle()
        if self._state == "connecting":
            self._needed.set()

    async def reconnect_now(self, seconds: float) -> None:
        """Start the next attempt to connect immediately, and wait at most `seconds` for it to end.
        Does nothing if no attempt is due.
        """
        pause = self._reconnect_pause
        if pause is None or self._state not in ("failed", "down"):
            return

        moved = self._moved
        pause.deadline = anyio.current_time()
        with anyio.move_on_after(seconds):
            await moved.wait()

    def _leave_idle(self) -> None:
        self._state = "connecting"
        self._since = time.monotonic()
        self._settled = anyio.Event()
        self._out_since = anyio.current_time()

    async def _rest(self) -> None:
        """Wait, without a connection, until the server is used."""
        self._fruitless_connects = 0
        if not self._needed.is_set():
            self._set("idle", None)
            self._reconnect_pause = anyio.CancelScope()
            with self._reconnect_pause:
                await self._needed.wait()
        if self._state == "idle":
            self._leave_idle()

    async def _stop_when_idle(self) -> None:
        """Stop the server whenever nobody has used it for `idle` seconds."""
        while True:
            activity = self._activity
            seconds = self.configuration.idle
            if seconds is None or self._state != "up" or self._uses or self._watched:
                await activity.wait()
                continue

            with anyio.move_on_after(seconds):
                await activity.wait()
                continue

            connection = self._connection
            is_asking = anyio.current_time() < self._asked_until
            if connection is None or is_asking or self._surroundings.is_needed(self.name):
                continue

            self._is_resting = True
            await self._forget(connection)

    @contextmanager
    def _in_use(self) -> Generator[None]:
        """Keep the server from becoming idle inside this context."""
        self._uses += 1
        self._note_activity()
        try:
            yield
        finally:
            self._uses -= 1
            self._note_activity()

    def _note_activity(self) -> None:
        activity = self._activity
        self._activity = anyio.Event()
        activity.set()

    def _starting(self) -> list[str]:
        connection = self._connection
        return [] if connection is not None and connection.usable else [self.name]

    async def launch(self) -> Launch:
        """Return how the server is started or reached, with the values of variables and secrets.

        Raises:
            ModuleConfigurationError: the server's entry is invalid, a variable is not set, a secret
                cannot be used, or an address is malformed.
        """
        if self._launch is None:
            surroundings = self._surroundings
            if surroundings.unusable is not None:
                raise ModuleConfigurationError(self.name, surroundings.unusable)

            stored: StoredValues = {}
            if secrets_named(self.configuration):
                # Use a thread, because the keyring might wait for a person.
                stored = await anyio.to_thread.run_sync(
                    surroundings.read_secrets, abandon_on_cancel=True
                )

            self._launch = expand(
                self.name,
                self.configuration,
                surroundings.folder,
                surroundings.variables,
                surroundings.secrets,
                working_folder=surroundings.working_folder,
                stored=stored,
            )
        return self._launch

    @property
    def has_token(self) -> bool:
        """Whether requests to the server carry a token from a person's sign-in or from client
        credentials.
        """
        return self.authorization is not None and self.authorization.has_token

    def stop(self) -> None:
        """End the connection and `run`. Calls in flight fail."""
        self._closed = True
        if self._reconnect_pause is not None:
            self._reconnect_pause.cancel()
        if self._connection is not None:
            self._connection.stop()

    def _wake(self) -> None:
        """Wake the tasks that are waiting in `reach`, because an attempt has ended or the
        connection is up.
        """
        moved = self._moved
        self._moved = anyio.Event()
        self._needed = anyio.Event()
        moved.set()

    async def _pause_before_reconnecting(self) -> None:
        """Wait until a call needs the server or, after a failure, until a pause is over. The pause
        grows with each failure.
        """
        now = anyio.current_time()
        refuses = self._state == "failed" and not self._passes
        seconds = 0.0
        if self._fruitless_connects:
            seconds = _LONGEST_RECONNECT_PAUSE
            if not refuses:
                doublings = min(self._fruitless_connects - 1, 20)
                seconds = min(seconds, _FIRST_RECONNECT_PAUSE * 2.0**doublings)
            # Vary the pause, so that many processes that lost the same server do not all reconnect
            # at the same moment.
            seconds *= random.uniform(0.75, 1.25)  # noqa: S311 - no secret

        # After the first failure, do not make a call that needs the server wait.
        needed = now
        if self._fruitless_connects > 1:
            longest = _REFUSED_RECONNECT_PAUSE if refuses else _NEEDED_RECONNECT_PAUSE
            needed += min(seconds, longest)

        due = now + seconds if self._state == "failed" else math.inf
        self._next = None if due == math.inf else due
        self._reconnect_pause = anyio.CancelScope(deadline=due)
        with self._reconnect_pause:
            await self._needed.wait()
            self._next = min(due, needed)
            await anyio.sleep_until(needed)

        self._next = anyio.current_time()

    async def _connect(self, launch: Launch) -> None:
        """Connect, and hold the connection until it ends. If an attempt fails during the first
        messages, try once more in the other era.
        """
        if self._state == "down":
            self._state = "connecting"
            self._since = time.monotonic()
            self._settled = anyio.Event()

        first = self._new_connection(launch)
        error = await self._hold(first)
        if error is not None and first.may_be_era and not self._tried_both and not self._closed:
            self._tried_both = True
            self._legacy = not first.legacy
            second = self._new_connection(launch)
            later_error = await self._hold(second, is_second=True)
            # If the program ended, the second error is more informative. If the server answered,
            # the first one is.
            if later_error is None:
                error = None
            elif first.program_ended:
                error = later_error
        elif error is not None:
            self._legacy = self._legacy_after(first)

        if error is not None:
            self._fruitless_connects += 1
            self._failed_connects += 1
            self._set("failed", error)

    def _legacy_after(self, failed: Connection) -> bool:
        """Return whether the next attempt uses the handshake era.

        If the failure might be due to the era, the next attempt uses the other one.
        """
        if failed.timed_out and not self._tried_both:
            self._tried_both = True
            return not failed.legacy
        if failed.may_be_era:
            return not failed.legacy
        return failed.legacy

    def _new_connection(self, launch: Launch) -> Connection:
        surroundings = self._surroundings
        start = ConnectionStart(
            launch=launch,
            kind=self._kind,
            legacy=self._legacy,
            auth=self.authorization,
            waited_until=self._waited_until,
            max_bytes=max(MAX_LINE_BYTES, 2 * surroundings.result_bytes),
            secrets=surroundings.secrets,
            quotes=surroundings.quotes,
            exposed=surroundings.exposed,
            watched=self._watched,
            log_level=self._log_level,
            log=surroundings.log,
            on_ask=lambda: self._limiter.lower(1),
            on_mixed=self._mixed,
            on_event=self._take_event,
            on_listing=self._take_listing,
        )
        self._connection = Connection(self.name, self.configuration, start)
        return self._connection

    def _waited_until(self) -> float:
        """Return until when requests waited for a token; see `Handshake`."""
        return -math.inf if self.authorization is None else self.authorization.waited_until

    async def _hold(self, connection: Connection, *, is_second: bool = False) -> ModuleError | None:
        """Hold a connection until it ends. Return None if the server was up, otherwise the reason
        why it was not.

        Args:
            connection: the connection, not started yet.
            is_second: True if an attempt in the other era has just failed.
        """
        started = anyio.current_time()

        def up() -> None:
            self._seconds = anyio.current_time() - started
            self._peer = connection.peer
            self._kind = connection.kind_used
            self._legacy = connection.peer is not None and connection.peer.era == "legacy"
            self._way_before = self._way_of(connection, is_second=is_second)
            self._tried_both = False
            if connection.listing is not None:
                self._tools = connection.listing.tools
                self._listed = True

            self._note_offered_kinds(connection)
            # Only the answer to a call resets this to zero, because a connection that ends
            # immediately is also a failure.
            self._fruitless_connects += 1
            self._next = None
            self._set("up", None)
            self._wake()
            # Clients might still have earlier lists, so report a change.
            for event in connection.offering.events:
                self._surroundings.on_event(self.name, event)

        def down() -> None:
            if anyio.current_time() - started > _LONGEST_RECONNECT_PAUSE:
                self._fruitless_connects = 0
            if self._is_resting:
                self._set("idle", None)
            elif self._state == "up":
                self._out_since = anyio.current_time()
                self._set(
                    "down", ModuleDownError(self.name, f"server {self.name!r} {connection.end()}")
                )

        try:
            await connection.hold(up, down)
        except ModuleError as error:
            self._kind = self.configuration.kind
            return error

        down()
        return None

    def _way_of(self, connection: Connection, *, is_second: bool) -> Way | None:
        """Return the way to remember, or None.

        A way is remembered only if a different one has just failed. If the server has changed, the
        stored way is forgotten, and every way is tried again.
        """
        peer = connection.peer
        if peer is None or peer.era != "legacy" or self.configuration.kind == "sse":
            return None

        server = f"{peer.server_name or ''} {peer.server_version or ''}"
        if connection.kind_used == "sse":
            return Way("legacy", "sse", server)

        before = self._way_before
        was_needed = (
            before is not None
            and before.era == "legacy"
            and before.server == server
            and connection.legacy
        )
        if connection.is_silent_first or is_second or was_needed:
            return Way("legacy", connection.kind_used, server)
        return None

    def _note_offered_kinds(self, connection: Connection) -> None:
        """Record which kinds of entries a connected server declares."""
        for kind in OFFERED_KINDS:
            if not connection.offering.has(kind):
                self._offered[kind] = None
            elif self._offered.get(kind, ()) is None:
                del self._offered[kind]

    def _take_event(self, event: ServerEvent) -> None:
        """Forget lists that the server has changed, and pass on the event."""
        is_stale = False
        for kind in kinds_changed_by(event):
            if self._offered.get(kind) is not None:
                del self._offered[kind]
                is_stale = True

        if is_stale:
            self._surroundings.on_change(self.name)
        self._surroundings.on_event(self.name, event)

    def _take_listing(self, listing: Listing) -> None:
        self._tools = listing.tools
        self._listed = True
        self._surroundings.on_change(self.name)

    def _set(self, state: ModuleState, error: ModuleError | None) -> None:
        changed = state != self._state
        self._state = state
        self._error = error
        self._settled.set()
        if changed:
            self._since = time.monotonic()
            self._note_activity()
            self._log_state()
            self._surroundings.on_change(self.name)

    def _log_state(self) -> None:
        """Record in the log that the server is up, or why it is not."""
        log = self._surroundings.log
        if log is None or (self._closed and self._state == "down"):
            return
        if self._error is not None:
            log.add("ideabridge", str(self._error).splitlines(), level="error")
        elif self._state == "up":
            log.add("ideabridge", [f"{self.name} is up"], level="info")

    async def settle(self) -> None:
        """Wait until the server is no longer connecting."""
        while self._state == "connecting" and not self._closed:
            await self._settled.wait()

    async def follow(self, report: Callable[[ModuleStatus], None]) -> None:
        """Report when the server is first up or failed, and every later change between the two."""
        last: ModuleState | None = None
        while True:
            await self.settle()
            if self._state not in ("down", "idle", last):
                last = self._state
                report(self.status())
            if self._closed or self._state == "disabled":
                return
            await self._moved.wait()

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the server is up. Start it if it is idle.

        Raises:
            ModuleTimeoutError: the server is still connecting after `timeout` seconds.
            ModuleError: the server failed, or is down or disabled. The message says why.
        """
        with anyio.move_on_after(timeout) as scope:
            await self.settle()
            while self._state == "idle" and not self._closed:
                self.begin()
                await self.settle()

        if scope.cancelled_caught:
            text = f"server {self.name!r} is still connecting after {timeout:g} s"
            raise ModuleTimeoutError(self.name, text, outcome="not_run")
        if self._state == "disabled":
            raise ModuleDisabledError(
                self.name, f"server {self.name!r} is disabled in the configuration"
            )

        if self._state != "up":
            raise self._again()

    def _again(self, *, tried: bool = False) -> ModuleError:
        """Return a copy of the server's error. If `tried` is set, it says when the next attempt
        takes place.
        """
        error = self._error
        if error is None or (self._closed and not isinstance(error, ModuleConfigurationError)):
            return ModuleDownError(self.name, f"server {self.name!r} was closed")
        if isinstance(error, ModuleSignInError):
            return ModuleSignInError(self.name, str(error), lasting=error.lasting)

        kind: type[ModuleError] = ModuleConnectError
        if type(error) in (ModuleConfigurationError, ModuleDownError):
            kind = type(error)
        return kind(self.name, self.status().why if tried else self._error_text() or "")

    @property
    def _passes(self) -> bool:
        """Whether the server might soon be up without help from the user, for example because it is
        starting.
        """
        error = self._error
        return isinstance(error, ModuleDownError) or (
            isinstance(error, ModuleConnectError) and not error.lasting
        )

    @property
    def _is_unreachable(self) -> bool:
        """Whether nothing answered at the server's address."""
        return isinstance(self._error, ModuleConnectError) and self._error.unreachable

    def _is_worth_waiting(self, patience: float | None = None) -> bool:
        """Return whether a call should wait for another attempt to connect. `patience` is as in
        `reach`.
        """
        # A server that has never been up is probably misconfigured, but it might also still be
        # starting.
        if patience is None:
            patience = _PATIENCE if self._listed else 0.0
        elif not self._listed and not self._is_unreachable:
            patience = min(patience, _REFUSED_PATIENCE)
        away = self._away()
        return self._passes and away is not None and away < patience

    async def reach(self, patience: float | None = None) -> Connection:
        """Return a usable connection. If there is none, wait for the next attempt to connect, which
        begins immediately or soon.

        Args:
            patience: wait for further attempts until the server has been down for this many
                seconds. None means 30 s for a server that was up before, and 0 for any other
                server.

        Raises:
            ModuleError: an attempt has failed since this wait began, and it is not worth waiting
                for another one.
        """
        failed_before = self._failed_connects
        while True:
            connection = self._connection
            if connection is not None and connection.usable and not self._closed:
                return connection
            if self._closed or self._state == "disabled":
                await self.ready()
                raise self._again()
            if self._failed_connects > failed_before and not self._is_worth_waiting(patience):
                raise self._again(tried=True)
            moved = self._moved
            self.begin()
            self._needed.set()
            await moved.wait()

    async def call(
        self,
        tool_name: str,
        arguments: JSONObject,
        *,
        timeout: float | None = None,
        progress: OnProgress | None = None,
        asker: Asker | None = None,
    ) -> JSON:
        """Call a tool. Return its structured content if there is any, otherwise its text, otherwise
        a list of its content blocks. For the parameters, see `ModuleCall`.

        Raises:
            IdeabridgeError: as for `answer`.
        """
        call = ModuleCall(tool_name, arguments, timeout=timeout, progress=progress, asker=asker)
        return (await self.answer(call)).value

    async def answer(self, call: ModuleCall) -> Answer:
        """Call a tool, and return its answer.

        Raises:
            ModuleError: the call failed. There is a subclass for each cause, and `outcome` says
                whether the call might have taken effect. A `ModuleToolError` of a direct call
                contains the whole result.
            ModuleAsks: the server asks questions first, and the client of a direct call accepts
                questions in place of a result.
            ToolChangedError: the current definition differs from `meant`. Nothing was sent.
            ResultLimitError: the result exceeds `limits.result_bytes`.
            InvalidJSONError: the arguments are not JSON.
            LegacyQuestionError: the tool could not ask its question, but can ask it during the next
                call (see `era_of_calls`).
        """
        arguments = normalise(call.arguments, what="the arguments")
        assert isinstance(arguments, dict)
        with self._in_use():
            await reporting_starts(lambda: self.reach(call.patience), call.progress, self._starting)
            tool = self.tool(call.tool_name)
            arguments = await self._with_secrets(tool, arguments)
            if tool.renamed:
                arguments = {
                    tool.renamed.get(name, name): value for name, value in arguments.items()
                }

            remote_call = replace(call, arguments=arguments)
            await self._limiter.acquire(call.queue_key)
            try:
                async with self.place():
                    begun = anyio.current_time()
                    answer = await self._try(tool, remote_call)
                    self._call_seconds.append(anyio.current_time() - begun)
                    return answer
            except ModuleAsks:
                self._asked_until = anyio.current_time() + _ASKED_SECONDS
                raise
            finally:
                self._limiter.release()

    async def _with_secrets(self, tool: Tool, arguments: JSONObject) -> JSONObject:
        """Return the arguments, with secrets filled in where a configured default names them.

        A secret is filled in only if the value of a parameter is exactly the parameter's default,
        so that text from elsewhere never receives a secret.

        Raises:
            ModuleConfigurationError: a secret cannot be used.
        """
        settings = self.configuration.tools.get(tool.name)
        if settings is None:
            return arguments

        named = {
            name: default
            for name, default in settings.defaults.items()
            if names_secret(default) and arguments.get(name) == default
        }
        if not named:
            return arguments

        # Use a thread, because the keyring might wait for a person.
        stored = await anyio.to_thread.run_sync(
            self._surroundings.read_secrets, abandon_on_cancel=True
        )
        try:
            filled = {
                name: with_secrets(default, stored, self._secrets)
                for name, default in named.items()
            }
        except StoredSecretError as error:
            raise ModuleConfigurationError(self.name, f"{tool.label}: {error}") from None
        return {**arguments, **filled}

    # -- resources, templates and prompts ----------------------------------------------------------

    async def offered(self, kind: Kind) -> list[JSONObject]:
        """Return the resources, templates or prompts, as protocol JSON.

        If the server is idle, these are the entries that were read last. Otherwise, connect if the
        server is not up.

        Raises:
            ModuleError: the server cannot be reached, or its list cannot be read.
        """
        if self._state == "idle" and kind in self._offered:
            return self._offered[kind] or []
        try:
            entries = await self._over(0.0, lambda connection: connection.offering.entries(kind))
        except MCPError as error:
            reason = shown(error.message, self._secrets)
        except (ValidationError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            reason = type(error).__name__
        else:
            if (self._offered.get(kind) or []) != entries or kind not in self._offered:
                self._offered[kind] = entries
                self._surroundings.on_change(self.name)
            return entries
        text = f"server {self.name!r} did not list its {kind}: {reason}"
        raise ModuleProtocolError(self.name, text)

    @property
    def has_resources(self) -> bool:
        """Whether the server declares that it has resources, and is up or idle."""
        if self._state == "idle":
            return self._offered.get("resources") is not None
        connection = self._connection
        return connection is not None and connection.usable and connection.offering.has("resources")

    async def pass_on(
        self, request: PassedOn, client: DirectClient, *, progress: OnProgress | None = None
    ) -> JSONObject:
        """Send a client's request unchanged. Return the result as protocol JSON, without secrets.

        Args:
            request: the request.
            client: answers the server's questions.
            progress: called with the server's progress notifications.

        Raises:
            MCPError: the server responded with this error.
            ModuleError: the server cannot be reached or does not respond, or the result violates
                the protocol.
            ResultLimitError: the result exceeds `limits.result_bytes`.
            ModuleAsks: the server asks questions first, and the client accepts questions in place
                of a result.
        """
        seconds = self.configuration.timeout
        return await self._over(
            None,
            lambda connection: self._requests.pass_on(
                connection, request, client, seconds, progress
            ),
        )

    async def _over(
        self, patience: float | None, send: Callable[[Connection], Awaitable[SentT]]
    ) -> SentT:
        """Send a request. If the server has lost the HTTP session, send it once more over a new
        connection.
        """
        with self._in_use():
            for again in (True, False):
                connection = await self.reach(patience)
                try:
                    return await send(connection)
                except SessionLostError:
                    if not again:
                        raise
                except MCPError as error:
                    if not again or not lost_session(error):
                        raise self._unreached(error) from None
                # The server refused the request because it has lost the session.
                await self._forget(connection)
        raise AssertionError("the second attempt returns or raises")

    def _unreached(self, error: MCPError) -> MCPError | ModuleError:
        """Return the error to raise for a request: a `ModuleError` if the transport created
        `error`, or `error` itself if the server sent it.
        """
        text = f"server {self.name!r} {shown(error.message, self._secrets)}"
        if error.data in (Mark.SIGN_IN, Mark.SIGN_IN_LATER):
            return ModuleSignInError(self.name, text, lasting=error.data is Mark.SIGN_IN)
        if isinstance(error.data, Replaced):
            return MCPError(error.code, text)
        if isinstance(error.data, Mark):
            return ModuleDownError(self.name, text)
        return error

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """Set the level of the log messages that the server sends, for this connection and later
        ones. Since 2026-07-28, each call carries the level.
        """
        self._log_level = level
        connection = self._connection
        if connection is not None and connection.usable:
            # A server that refuses this keeps sending log messages as before.
            with suppress(MCPError):
                await connection.set_log_level(level)

    async def watch(self, uri: str, watcher: Hashable = None) -> None:
        """Report changes to a resource (to `on_event`) over this connection and later ones, until
        every watcher has called `unwatch`.

        Args:
            uri: the resource.
            watcher: identifies the watcher.

        Raises:
            MCPError: the server refuses.
            ModuleError: the server cannot be reached.
        """
        if uri not in self._watched:
            await self.reach()
            self._watched.add(uri)
            try:
                await self._over(None, lambda connection: connection.watch(uri))
            except (MCPError, ModuleError):
                self._watched.discard(uri)
                raise

        self._watchers.setdefault(uri, set()).add(watcher)

    async def unwatch(self, uri: str, watcher: Hashable = None) -> None:
        """Stop reporting changes to a resource, unless another watcher remains."""
        watchers = self._watchers.get(uri, set())
        watchers.discard(watcher)
        if watchers:
            return

        self._watchers.pop(uri, None)
        self._watched.discard(uri)
        self._note_activity()
        connection = self._connection
        if connection is not None and connection.usable:
            # A server that refuses this keeps sending notifications, but they no longer reach
            # `on_event`.
            with suppress(MCPError):
                await connection.unwatch(uri)

    async def _try(self, tool: Tool, call: ModuleCall) -> Answer:
        """Send a call, and retry while there is time if the call did not reach the server. If it
        was sent but not answered, retry only if running it twice is harmless.
        """
        seconds = self.configuration.timeout if call.timeout is None else call.timeout
        attempts = _Attempts(self.name, self._most_sends(tool), seconds)
        left = seconds
        while True:
            attempts.number += 1
            try:
                return await self._send(tool, call, left)
            except ModuleTimeoutError as error:
                raise attempts.unanswered or error from None
            except ModuleDownError as error:
                if error.outcome == "unknown":
                    may_repeat = attempts.note_unanswered(error)
                else:
                    may_repeat = self._is_worth_waiting()

                failure = attempts.unanswered or error
                if not may_repeat or attempts.are_over:
                    raise failure from None
            except IdeabridgeError as error:
                if error.outcome in ("failed", "ran"):
                    self._fruitless_connects = 0
                if attempts.unanswered is not None and error.outcome == "not_run":
                    raise attempts.unanswered from None
                raise error from None

            left = await self._wait_to_resend(attempts, failure)

    async def _wait_to_resend(self, attempts: _Attempts, failure: ModuleDownError) -> float:
        """Wait until a call can be sent again, and return how many seconds are left for it.

        While the connection is usable, the pause doubles with each attempt, up to a maximum. After
        a lost connection, the pauses of reconnecting apply instead.

        Raises:
            ModuleError: the call cannot be sent again in time. If there is a usable connection,
                this is `failure` itself.
        """
        if self._connection is not None and self._connection.usable:
            # The HTTP server is not responding at the moment, so a new connection would not help.
            doublings = min(attempts.number - 1, 20)
            pause = min(_LONGEST_RESEND_PAUSE, _FIRST_RESEND_PAUSE * 2.0**doublings)
            if anyio.current_time() + pause >= attempts.deadline:
                raise failure
            await anyio.sleep(pause)
        else:
            try:
                await self._reach_until(attempts.deadline)
            except ModuleError as error:
                raise attempts.unanswered or error from None

        left = round(attempts.deadline - anyio.current_time(), 1)
        if left <= 0:
            # Give up instead of sending the call now, because a timeout would then hide the real
            # failure. This can happen if a busy process wakes up late.
            raise failure
        return left

    def _most_sends(self, tool: Tool) -> int:
        """Return how many times a call to a tool may be sent if no answer arrives (`retry`)."""
        if not tool.annotations.repeatable:
            return 1

        for pattern, most_sends in self.configuration.retry.items():
            if fnmatchcase(tool.name_in_module, pattern):
                return most_sends
        return DEFAULT_SENDS

    async def _reach_until(self, deadline: float) -> None:
        """Wait for a usable connection.

        Raises:
            ModuleError: as for `reach`, or there is no connection at the deadline.
        """
        with anyio.move_on_at(deadline) as scope:
            await self.reach()
        if scope.cancelled_caught:
            raise self._again()

    async def _send(self, tool: Tool, call: ModuleCall, seconds: float) -> Answer:
        """Send a call, at most twice.

        The call is sent again if the server has lost the HTTP session, or if the tool can ask its
        question only in the handshake era and running the tool twice is harmless.
        """
        for again in (True, False):
            connection = await self._connection_for(tool, call)
            validator = self._validator(tool)
            try:
                answer = await self._requests.call(connection, tool, call, seconds, validator)
            except ModuleDownError as error:
                if connection.usable:
                    # The HTTP server cannot be reached now, but its connection can still be used
                    # later.
                    if self._state == "up":
                        self._out_since = anyio.current_time()
                    self._set("down", error)
                raise
            except LegacyQuestionError as error:
                self._asks_legacy = True
                self.note(
                    ["asks questions as in version 2025-11-25, so ideabridge now uses that version"]
                )
                is_idle = connection.backchannel.is_idle
                repeatable = again and tool.annotations.repeatable and is_idle
                takes_rounds = call.client is not None and call.client.takes_rounds
                if not repeatable or takes_rounds:
                    text = f"{error}\n{_CONNECTED_ANEW}: call the tool again"
                    raise LegacyQuestionError(self.name, text, repeatable=repeatable) from None
            except SessionLostError as error:
                # The server refused the request because it has lost the session. The call did not
                # run, so send it again.
                await self._forget(connection)
                if not again:
                    # Do not raise a `ModuleDownError`, because the call would then be sent again
                    # and again.
                    text = f"{error}, also in a new session"
                    raise ModuleProtocolError(self.name, text, outcome="not_run") from None
            else:
                self._fruitless_connects = 0
                if self._state == "down" and self._connection is connection and connection.usable:
                    self._set("up", None)
                return answer

        raise AssertionError("the second attempt returns or raises")

    async def _connection_for(self, tool: Tool, call: ModuleCall) -> Connection:
        """Return a connection over which to send a call.

        Raises:
            ToolChangedError: the tool's definition differs from the one that was meant.
            ModuleError: as for `reach`.
        """
        # Another call might have ended the connection while this one was waiting.
        connection = await self.reach()
        if await self.era_of_calls() == "legacy":
            connection = await self.reach()
        if connection.backchannel.is_spent:
            # A late question from a cancelled call could be mistaken for a question from this one.
            await self._forget(connection)
            connection = await self.reach()
        if call.meant is not None:
            # Check this only now, because a new connection lists the tools again.
            self.tool(tool.name).expect_same(call.meant)
        return connection

    async def era_of_calls(self) -> Era | None:
        """Return the era for the next call.

        If a tool of the server has asked a question as in the handshake era, connect in that era
        first, provided that no call is running.
        """
        connection = self._connection
        if (
            self._asks_legacy
            and self.era == "modern"
            and connection is not None
            and connection.backchannel.is_idle
        ):
            # Do this only once, because the modern era is tried again if the server cannot be
            # reached in the legacy era.
            self._asks_legacy = False
            self._legacy = True
            await self._forget(connection)
            await self.reach()

        return self.era

    async def _forget(self, connection: Connection) -> None:
        """End a connection that must no longer be used, and wait until it has ended."""
        if self._connection is connection:
            connection.stop()
            await connection.done.wait()

    def _validator(self, tool: Tool) -> Validator | None:
        """Return the validator for a tool's results, or None if the tool declares no schema. Each
        definition's validator is created only once.
        """
        checked_tool, validator = self._validators.get(tool.name, (None, None))
        if checked_tool is tool:
            return validator

        schema = tool.wrapper or tool.output
        validator = None if schema is None else Validator(schema, what="the result")
        self._validators[tool.name] = (tool, validator)
        return validator


class _Attempts:
    """The attempts to send one call.

    An attempt begins when the call is about to be sent, even if the server turns out to be
    unreachable. An attempt is a *send* if no answer arrived and the call might have taken effect.
    The setting `retry` limits the sends, whereas the number of attempts is limited only by the time
    allowed for the call.

    Attributes:
        number: the number of attempts that have begun.
        sends: the number of attempts that were sends.
        deadline: when the call must end, by the event loop's clock.
        unanswered: the error of the last attempt without an answer. That attempt might have taken
            effect, so a later failure must not say that nothing ran.
    """

    def __init__(self, module: str, most_sends: int, seconds: float) -> None:
        self._module = module
        self._most_sends = most_sends
        self.number = 0
        self.sends = 0
        self.deadline = anyio.current_time() + seconds
        self.unanswered: ModuleDownError | None = None

    @property
    def are_over(self) -> bool:
        """Whether the time allowed for the call has expired."""
        return anyio.current_time() >= self.deadline

    def note_unanswered(self, error: ModuleDownError) -> bool:
        """Record that the current attempt was a send, because no answer has arrived. Return whether
        the call may be sent again.
        """
        self.sends += 1
        text = str(error)
        if self.sends > 1:
            text += f" (the call was sent {self.sends} times)"
        self.unanswered = ModuleDownError(self._module, text, outcome="unknown")
        return self.sends < self._most_sends


def _report_to_nobody(*_report: object) -> None:
    """Ignore a report from a server."""


def _has_view(tool: Tool) -> bool:
    """Return whether the definition of a tool names a view."""
    meta = (tool.wire or {}).get("_meta")
    return isinstance(meta, dict) and without_views(meta) != meta
