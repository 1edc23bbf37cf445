"""Serve MCP over stdio and streamable HTTP, run the background tasks, and shut down within two
seconds.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio

from ideabridge.bridge.bridge import TOKEN_VARIABLE, Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.driving.driver import own_driver_name
from ideabridge.bridge.driving.queue import Role
from ideabridge.bridge.modules.connection import own_version
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.modules.stdio import guard
from ideabridge.bridge.profiles import Profiles
from ideabridge.bridge.secrets import clean_logs
from ideabridge.bridge.store.errors import PruningStoppedError, StoreError
from ideabridge.bridge.store.owner_links import OwnerLinks
from ideabridge.bridge.store.pruning import Bounds, told_of
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.server.asking.forms import COMMANDS, Commands
from ideabridge.server.callers import Credentials
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.operations.health import Health
from ideabridge.server.operations.log import bounded_log
from ideabridge.server.operations.notifying import Notifying
from ideabridge.server.operations.requests import LogLevel, Observer, RequestWatch, request_log
from ideabridge.server.reloading import Reloading
from ideabridge.server.running import state_key
from ideabridge.server.server import Front
from ideabridge.tools.names import printable
from ideabridge.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from starlette.routing import Route
    from starlette.types import ASGIApp

    from ideabridge.server.operations.metrics import Metrics
    from ideabridge.server.transports.gate import Door, Gate
    from ideabridge.server.transports.workspace_door import (
        ServedWorkspace,
        WorkspaceDoor,
        Workspaces,
    )

END_SECONDS: Final = 1.9
"""Seconds after which a process that is shutting down exits immediately. Hosts kill it after two
seconds.
"""

DEFAULT_PORT: Final = 8787


def _collect_seldom() -> None:
    """Make full garbage collections rare, because they stop all threads."""
    # Imported objects are never freed, but every full collection, including the last one, would
    # spend 0.1 s on scanning them.
    gc.freeze()
    # With Python's own thresholds (700, 10, 10), large runs caused 20 full collections of up to 1.4
    # s each. But they must not be too rare, because a run that is discarded is a reference cycle:
    # with (10_000, 50, 20), 120 runs of 4 MB took twice the memory.
    gc.set_threshold(10_000, 10, 10)


@dataclass(frozen=True, slots=True)
class _Manner:
    """The options of a server besides its configuration; see `serve_stdio`."""

    on_status: Callable[[ModuleStatus], None] | None
    commands: Commands
    log_level: LogLevel
    read: Callable[[], Configuration] | None


@dataclass(frozen=True, slots=True)
class _Served:
    """The server of this process, with its open bridge.

    Attributes:
        front: the server.
        bridge: the open bridge of the server.
        reloading: makes the server follow its files, or None if it does not follow any.
    """

    front: Front
    bridge: Bridge
    reloading: Reloading | None


@asynccontextmanager
async def _front(
    configuration: Configuration,
    toolbox: Toolbox | None,
    store: Store | Path | str | None,
    manner: _Manner,
    role: Role = "alone",
) -> AsyncGenerator[_Served]:
    """Open this process's bridge and server, and run the background tasks of both."""
    _collect_seldom()
    clean_logs()
    with bounded_log(manner.log_level):
        async with _opened(configuration, toolbox, store, manner, role) as served:
            yield served


@asynccontextmanager
async def _opened(
    configuration: Configuration,
    toolbox: Toolbox | None,
    store: Store | Path | str | None,
    manner: _Manner,
    role: Role = "alone",
    beside: _Served | None = None,
) -> AsyncGenerator[_Served]:
    """Open a bridge and its server, and run the background tasks of both.

    `beside` is a server that is already open in this process. The new server uses its connected
    servers and shares its quotas.
    """
    fronts: list[Front] = []

    def changed() -> None:
        for front in fronts:
            front.announcements.poke()

    create = partial(
        Bridge,
        configuration,
        store=store,
        on_tools_changed=changed,
        role=role,
        standing_rules=True,
        lender=None if beside is None else beside.bridge,
    )
    if beside is None:
        created = create()
    else:
        # Load the tool files in a thread, because importing them can take long, and other clients
        # are using this process in the meantime.
        created = await anyio.to_thread.run_sync(create)

    with ExitStack() as stack:
        async with (
            _serving(created, toolbox) as bridge,
            anyio.create_task_group() as group,
        ):
            # Try this several times, because another process might lock the store for a moment.
            await bridge.patiently(lambda: state_key(bridge.store))
            quotas = None if beside is None else beside.front.quotas
            front = Front(bridge, group, own_version(), manner.commands, quotas)
            fronts.append(front)
            stack.enter_context(_telemetry(bridge, front.direct_calls))
            group.start_soon(Notifying(bridge, manner.commands).run)
            group.start_soon(front.announcements.run)
            group.start_soon(front.running.relaying.elsewhere.run)
            group.start_soon(front.direct_calls.run)
            group.start_soon(front.direct_calls.end_sessions)
            group.start_soon(_recover, bridge, front)
            if beside is None or bridge.store.path != beside.bridge.store.path:
                group.start_soon(_retain, bridge)
            if manner.on_status is not None:
                group.start_soon(bridge.modules.follow, manner.on_status)
            reloading: Reloading | None = None
            if manner.read is not None:
                reloading = Reloading(
                    bridge,
                    manner.read,
                    front.follow_configuration,
                    _report,
                    after=None if beside is None else beside.reloading,
                )
                group.start_soon(reloading.run)
                front.reloading = reloading

            try:
                yield _Served(front, bridge, reloading)
            finally:
                front.running.closing = True
                front.direct_calls.flush()
                group.cancel_scope.cancel()


def _serving(bridge: Bridge, toolbox: Toolbox | None) -> Bridge:
    """Add the toolbox to a bridge whose callers are hosts, and return the bridge.

    The toolbox is not passed to `Bridge` itself, because calls to its tools would then not ask for
    approval.
    """
    if toolbox is not None:
        bridge.add_tools(toolbox)
    return bridge


_COLLECTORS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The standard OpenTelemetry variables that name a collector."""


def _telemetry(
    bridge: Bridge, direct_calls: DirectCalls | None = None
) -> AbstractContextManager[object]:
    """Return a context manager that sends spans while it is open if the environment names a
    collector.
    """
    off = (
        os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    named = [name for name in _COLLECTORS if os.environ.get(name)]
    if off or not named:
        return nullcontext()

    try:
        from ideabridge.server.operations.telemetry import Telemetry
    except ImportError as error:
        # The variables might be meant for other programs, so ideabridge only reports that it cannot
        # send spans.
        _report(
            f"{named[0]} is set, but spans are not available: {error}; pip install "
            "'ideabridge[telemetry]'"
        )
        return nullcontext()

    return Telemetry(bridge, own_version(), direct_calls)


def _report(text: str) -> None:
    print(printable(f"ideabridge: {text}"), file=sys.stderr, flush=True)


async def _recover(bridge: Bridge, front: Front) -> None:
    """Resume the runs of processes that died, until cancelled. Report runs that cannot be resumed
    on stderr.
    """
    mask = bridge.secrets.mask

    def report(record: RunRecord, reason: str) -> None:
        _report(mask(f"run {record.id} is not resumed: {reason}"))

    try:
        front.running.publish_left()
    except StoreError as error:
        # These runs are published when somebody next asks about them.
        _report(mask(f"earlier runs are not published: {error}"))

    await bridge.recover_runs(report, front.running.publish_when_done, keep=True)


_RETENTION_STARTS: Final = 1.0
_RETENTION_LOOKS: Final = 3600.0
"""Delay, in seconds, before the first deletion of old runs, and interval between deletions."""


async def _retain(bridge: Bridge) -> None:
    """Delete old runs periodically, as specified by `retention` in the configuration, until
    cancelled. Report each deletion on stderr.
    """
    settings = bridge.configuration.retention
    path = bridge.store.path
    if settings is False or path == ":memory:":
        return

    stopped = threading.Event()
    process = own_driver_name()

    def prune() -> str:
        # Use a separate connection for the deletion, so that it does not block the server. Check
        # the file first, because opening a store that was deleted would create it again.
        if bridge.store.is_file and not Path(path).exists():
            return ""
        try:
            with Store.open(path, durability=bridge.configuration.durability) as store:
                retention = store.retention(Bounds(settings.days, settings.runs), stopped.wait)
                return told_of(retention.round(time.time(), process))
        except PruningStoppedError:
            return ""
        except StoreError as error:
            return f"old runs are not deleted: {error}"

    try:
        await anyio.sleep(_RETENTION_STARTS)
        while True:
            report = await anyio.to_thread.run_sync(prune, abandon_on_cancel=True)
            if report:
                _report(report)
            await anyio.sleep(_RETENTION_LOOKS)
    finally:
        stopped.set()


async def serve_stdio(
    configuration: Configuration,
    *,
    toolbox: Toolbox | None = None,
    store: Store | Path | str | None = None,
    on_status: Callable[[ModuleStatus], None] | None = None,
    commands: Commands = COMMANDS,
    log_level: LogLevel = "warning",
    read: Callable[[], Configuration] | None = None,
) -> None:
    """Serve one client on stdin and stdout until the client closes stdin, or this process receives
    SIGTERM or SIGINT.

    Args:
        configuration: the content of `ideabridge.json`.
        toolbox: tools in addition to the built-in and configured ones.
        store: the store of ideas and runs, or None for the configured store.
        on_status: called with the status of each configured server as soon as it is up, has failed
            or is disabled.
        commands: the commands for deciding about this server's runs at a terminal.
        log_level: which messages are written to standard error. `error` omits warnings, and `info`
            adds a line for each request.
        read: reloads the configuration after its files have changed, or None if the configuration
            never changes.

    Raises:
        ProfileError: the configuration restricts everything to a profile that does not exist or
            cannot be used.
    """
    with request_log(log_level) as observers:
        manner = _Manner(on_status, commands, log_level, read)
        async with _front(configuration, toolbox, store, manner) as served:
            front = served.front
            if observers:
                RequestWatch(front.server, observers)

            def ending() -> None:
                front.running.closing = True
                _exit_soon()

            await _until_signalled(lambda: _stdio(front, ending), ending)


async def _stdio(front: Front, ending: Callable[[], None]) -> None:
    server = front.server
    if sys.platform == "win32":
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

        ending()
        return

    from ideabridge.server.transports.stdio import StdioReader, StdioWriter, claimed_stdio

    with claimed_stdio() as (reading, writing):
        writer = StdioWriter(writing)
        reader = StdioReader(reading, writer, ending)
        await server.run(reader, writer, server.create_initialization_options())


@dataclass(frozen=True, slots=True)
class Ready:
    """An HTTP server that is ready for clients to connect.

    Attributes:
        url: the URL for clients.
        asks: whether requests need a token.
        page: the URL of the web page, or None if the server has no page.
        owner_link: lets the owner sign in to the page, or None if there is no page.
    """

    url: str
    asks: bool
    page: str | None
    owner_link: OwnerLink | None


@dataclass(frozen=True, slots=True)
class OwnerLink:
    """Lets the owner sign in to a server's page.

    Attributes:
        make: creates a URL that signs whoever opens it in as the owner. The URL works once, within
            ten minutes, and is a secret.
        command: the command that creates another such URL.
    """

    make: Callable[[], str]
    command: str


@dataclass(frozen=True, slots=True)
class WorkspaceSource:
    """The source of an HTTP server's workspaces.

    Attributes:
        folders: returns the registered folders, keyed by name, or raises `WorkspaceError`.
        folder_of: returns the folder registered under a name, or raises `UnknownWorkspaceError`.
        read: reads the configuration of a folder. This function blocks.
        commands: returns the commands for deciding about runs in a folder.
    """

    folders: Callable[[], Mapping[str, Path]]
    folder_of: Callable[[str], Path]
    read: Callable[[Path], Configuration]
    commands: Callable[[Path], Commands]


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The address and the optional parts of an HTTP server.

    Attributes:
        host: the address to bind to. It must be a loopback address unless requests need a token.
        port: the port; 0 selects a free port.
        token: the bearer token, or None to use the environment variable IDEABRIDGE_TOKEN, if set.
        caller: the caller that the token identifies, or None for the token's own caller
            (`token_caller`).
        hosts: additional names of this server that `Host` headers can contain.
        ui: whether to serve the web page at /ui.
        metrics: whether to serve metrics for Prometheus, at /metrics.
        workers: whether to leave the calls of runs to workers (`run_worker`).
        workspaces: the workspaces of this machine's user, at /mcp/w/NAME, or None for no
            workspaces.
        ready: called when clients can connect.
        read: reloads the configuration after its files have changed; see `serve_stdio`.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str | None = None
    caller: str | None = None
    hosts: tuple[str, ...] = ()
    ui: bool = False
    metrics: bool = False
    workers: bool = False
    workspaces: WorkspaceSource | None = None
    ready: Callable[[Ready], None] | None = None
    read: Callable[[], Configuration] | None = None


async def serve_http(
    configuration: Configuration,
    http: HttpOptions,
    *,
    toolbox: Toolbox | None = None,
    store: Store | Path | str | None = None,
    on_status: Callable[[ModuleStatus], None] | None = None,
    commands: Commands = COMMANDS,
    log_level: LogLevel = "warning",
) -> None:
    """Serve any number of clients over streamable HTTP until SIGTERM or SIGINT. Print the URL on
    stderr.

    Requests need a token if a token is set, if an identity provider is configured, or if the store
    has ever had a named user.

    Args:
        configuration: the content of `ideabridge.json`.
        http: the address and the optional parts of the server.
        toolbox: see `serve_stdio`.
        store: see `serve_stdio`.
        on_status: see `serve_stdio`.
        commands: see `serve_stdio`.
        log_level: see `serve_stdio`; `debug` adds a line for each request to /healthz, /readyz and
            /metrics.

    Raises:
        ServeError: the address is not loopback and there is no token; the server cannot listen on
            the address; a stricter configuration file was ignored, so the server would admit more
            people than that file allows; or a package for metrics is not installed.
        StoreError: the store cannot be opened.
        ProfileError: the server restricts callers to a profile that does not exist or cannot be
            used.
    """
    from ideabridge.server.transports.http import bind_socket, http_server, url_of

    token = http.token or os.environ.get(TOKEN_VARIABLE) or None
    with ExitStack() as stack:
        if not isinstance(store, Store):
            path = store or configuration.store or ":memory:"
            store = stack.enter_context(Store.open(path, durability=configuration.durability))

        credentials = _credentials(configuration, store, token, http.caller)
        listening = stack.enter_context(
            bind_socket(http.host, http.port, token=token, guarded=credentials.are_required)
        )
        url = url_of(listening)
        observers = stack.enter_context(request_log(log_level))
        if http.ui:
            commands = _with_page(commands, url, http.hosts)

        role: Role = "front" if http.workers else "alone"
        manner = _Manner(on_status, commands, log_level, http.read)
        async with (
            _front(configuration, toolbox, store, manner, role) as served,
            anyio.create_task_group() as group,
        ):
            front = served.front
            if token is not None:
                front.secrets.add(TOKEN_VARIABLE, token, certain=True)

            metrics = _metrics() if http.metrics else None
            if metrics is not None:
                observers.append(metrics.observe)
                stack.enter_context(metrics.watching(front.running.bridge, front.direct_calls))

            common = _Common(http, url, credentials, log_level, observers, on_status, metrics)
            workspaces = _workspaces(served, common, group)
            door = _calls_door(served, common, workspaces)
            gate = _gate(door, front, common, workspaces)
            watched: ASGIApp = gate
            if observers:
                watched = RequestWatch(front.server, observers).over(gate)

            server = http_server(watched)

            def ending() -> None:
                front.close()
                door.close()
                server.end()
                _exit_soon()

            async def serve() -> None:
                _report(f"serving on {url}")
                if http.ready is not None:
                    http.ready(_ready(url, front, has_page=http.ui, asks=credentials.are_required))

                async with anyio.create_task_group() as group:
                    group.start_soon(gate.watch)
                    await server.serve(sockets=[listening])
                    group.cancel_scope.cancel()

            await _until_signalled(serve, ending, cancel=False)
            group.cancel_scope.cancel()


@dataclass(frozen=True, slots=True)
class _Common:
    """What all addresses of a server have in common.

    Attributes:
        http: see `serve_http`.
        url: the URL of `/mcp`.
        credentials: decides who is allowed to use the server.
        log_level: see `serve_http`.
        observers: functions that receive each request.
        on_status: see `serve_http`.
        metrics: the metrics of this process, or None if it has none.
    """

    http: HttpOptions
    url: str
    credentials: Credentials
    log_level: LogLevel
    observers: list[Observer]
    on_status: Callable[[ModuleStatus], None] | None
    metrics: Metrics | None


def _calls_door(served: _Served, common: _Common, workspaces: Workspaces | None) -> WorkspaceDoor:
    """Return the application that admits all requests except those to the page."""
    from ideabridge.server.transports.gate import TokenDoor
    from ideabridge.server.transports.http import application
    from ideabridge.server.transports.workspace_door import WorkspaceDoor

    front = served.front
    bridge = served.bridge
    app = application(front.server, host=common.http.host, ended=front.disconnected)
    if common.metrics is not None:
        from ideabridge.server.operations.metrics import with_metrics

        app = with_metrics(app, common.metrics)

    metadata = _metadata(bridge.configuration, common.url)
    own = TokenDoor(app, common.credentials, bridge.profiles, metadata)
    return WorkspaceDoor(own, workspaces)


def _workspaces(served: _Served, common: _Common, group: TaskGroup) -> Workspaces | None:
    """Return the workspaces of a server, which run in `group`, or None if it has no workspaces."""
    from ideabridge.server.transports.workspace_door import Workspaces

    source = common.http.workspaces
    if source is None:
        return None
    return Workspaces(group, source.folder_of, partial(_workspace, served, common, source))


@asynccontextmanager
async def _workspace(
    beside: _Served, common: _Common, source: WorkspaceSource, name: str, folder: Path
) -> AsyncGenerator[ServedWorkspace]:
    """Serve a folder as the workspace named `name`.

    Raises:
        ConfigurationError: the user's current configuration cannot be used.
        StoreError: the store of the workspace cannot be opened.
    """
    from ideabridge.server.transports.gate import TokenDoor
    from ideabridge.server.transports.http import application
    from ideabridge.server.transports.workspace_door import ServedWorkspace

    def read() -> Configuration:
        changes = {
            "own_servers_in": beside.bridge.configuration.project,
            "restricted_to": beside.bridge.configuration.restricted_to,
        }
        return source.read(folder).model_copy(update=changes)

    configuration = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
    commands = source.commands(folder)
    if common.http.ui:
        # Use the owner's links of the server itself, because they are in its store and also sign
        # the owner in to the pages of workspaces.
        own = beside.front.running.deciding.commands
        commands = replace(commands, page=f"{own.page}/w/{name}", link=own.link)

    manner = _Manner(common.on_status, commands, common.log_level, read)
    async with _opened(configuration, None, None, manner, beside=beside) as served:
        front = served.front
        if common.observers:
            RequestWatch(front.server, common.observers, name)

        app = application(front.server, host=common.http.host, ended=front.disconnected)
        pages: ASGIApp | None = None
        if common.http.ui:
            from ideabridge.server.ui.pages import pages_of_workspace

            pages = pages_of_workspace(front, name)

        with ExitStack() as stack:
            if common.metrics is not None:
                watching = common.metrics.watching(served.bridge, front.direct_calls, name)
                stack.enter_context(watching)

            async with front.server.session_manager.run():
                door = TokenDoor(app, common.credentials, served.bridge.profiles)
                yield ServedWorkspace(served.bridge, door, pages, front.close)


def _credentials(
    configuration: Configuration, store: Store, token: str | None, caller: str | None
) -> Credentials:
    """Return the credentials that admit clients.

    Raises:
        ServeError: a stricter configuration file was ignored, so the server would admit more
            people than that file allows.
        ProfileError: the profile of all callers, or of an identity provider's users, does not
            exist, or cannot be used.
    """
    from ideabridge.server.transports.http import ServeError

    profiles = Profiles(configuration)
    if configuration.restricted_to is not None:
        profiles.named(configuration.restricted_to)

    provider = None
    if configuration.auth is not None:
        from ideabridge.server.transports.identity import IdentityProvider

        provider = IdentityProvider(configuration.auth)
        if configuration.auth.profile is not None:
            profiles.named(configuration.auth.profile)

    credentials = Credentials(
        store,
        token=token,
        caller=caller,
        provider=provider,
        profile=configuration.restricted_to,
    )
    refusal = configuration.opened_by(needs_token=credentials.are_required)
    if refusal is not None:
        raise ServeError(refusal)
    return credentials


def _with_page(commands: Commands, url: str, hosts: tuple[str, ...]) -> Commands:
    """Return the commands with this server's page as the address and as the target of `link`."""
    from ideabridge.server.transports.gate import CALLS, PAGE
    from ideabridge.server.transports.http import reachable

    place = reachable(url, hosts).removesuffix(CALLS)
    link = f"{commands.link} {urlsplit(place).netloc}"
    return replace(commands, page=f"{place}{PAGE}", link=link)


def _gate(calls: Door, front: Front, common: _Common, workspaces: Workspaces | None) -> Gate:
    """Return the gate in front of the MCP application, and of the page if there is one."""
    from ideabridge.server.transports.gate import Gate
    from ideabridge.server.transports.http import host_names_of

    http = common.http
    page = None
    if http.ui:
        from ideabridge.server.ui.pages import page_door

        folders = dict[str, Path] if http.workspaces is None else http.workspaces.folders
        page = page_door(front, common.credentials, workspaces, folders)

    def bridges() -> list[Bridge]:
        opened = {} if workspaces is None else workspaces.open_now()
        return [served.bridge for served in opened.values()]

    configuration = front.running.bridge.configuration
    return Gate(
        calls,
        page,
        Health(front.running, bridges),
        names=host_names_of(http.host, http.hosts),
        credentials=common.credentials,
        quotas=front.quotas,
        per_minute=configuration.users.requests_per_minute,
    )


def _ready(url: str, front: Front, *, has_page: bool, asks: bool) -> Ready:
    if not has_page:
        return Ready(url, asks, None, None)
    from ideabridge.server.transports.gate import CALLS, PAGE

    page = f"{url.removesuffix(CALLS)}{PAGE}/"
    links = front.running.bridge.store.owner_links
    return Ready(
        url,
        asks,
        page,
        OwnerLink(lambda: link_to(page, links), front.running.deciding.commands.link),
    )


def link_to(page: str, links: OwnerLinks) -> str:
    """Return a URL that signs whoever opens it in to a page as the owner. The URL works once,
    within ten minutes, and is a secret.
    """
    return f"{page}sign-in?key={links.make()}"


def _metrics() -> Metrics:
    """Return the metrics of this process.

    Raises:
        ServeError: prometheus-client is not installed.
    """
    try:
        from ideabridge.server.operations.metrics import Metrics
    except ImportError as error:
        from ideabridge.server.transports.http import ServeError

        raise ServeError(f"metrics: {error}; pip install 'ideabridge[metrics]'") from None
    return Metrics(own_version())


async def run_worker(
    configuration: Configuration,
    *,
    most: int,
    only: Collection[str] | None = None,
    drain_seconds: float,
    on_status: Callable[[ModuleStatus], None] | None = None,
    log_level: LogLevel = "warning",
    read: Callable[[], Configuration] | None = None,
) -> None:
    """Run as a worker: carry out the runs that servers on the same store have queued, until SIGTERM
    or SIGINT.

    After the signal, the worker claims no more runs and starts no more calls. It returns each run
    to the queue when its calls have ended. A second signal ends the worker immediately.

    Args:
        configuration: the content of `ideabridge.json`, which must be the same as for the servers.
        most: the maximum number of runs that the worker carries out at the same time.
        only: the configured servers that run here, or None for all.
        drain_seconds: how many seconds the worker waits for running calls.
        on_status: see `serve_stdio`.
        log_level: see `serve_stdio`.
        read: see `serve_stdio`.

    Raises:
        ConfigurationError: one of the servers is not configured.
        StoreError: the store cannot be opened.
    """
    _collect_seldom()
    clean_logs()
    with bounded_log(log_level), ExitStack() as stack:
        async with (
            Bridge(configuration, role="worker", only=only, standing_rules=True) as bridge,
            anyio.create_task_group() as group,
        ):
            stack.enter_context(_telemetry(bridge))
            group.start_soon(Notifying(bridge, COMMANDS).run)
            worker = bridge.worker(most)
            mask = bridge.secrets.mask

            def report(record: RunRecord, reason: str) -> None:
                _report(mask(f"run {record.id} is not resumed: {reason}"))

            async def drain() -> None:
                with anyio.move_on_after(drain_seconds):
                    await drained.wait()
                group.cancel_scope.cancel()

            def ending() -> None:
                worker.drain()
                group.start_soon(drain)

            async def run() -> None:
                _report(f"taking up to {most} runs at the same time from {bridge.store.path}")
                await worker.run()
                drained.set()

            drained = anyio.Event()
            group.start_soon(partial(bridge.recover_runs, report, keep=True))
            if on_status is not None:
                group.start_soon(bridge.modules.follow, on_status)
            if read is not None:
                group.start_soon(Reloading(bridge, read, lambda: None, _report).run)

            await _until_signalled(run, ending, cancel=False, exits=False)
            group.cancel_scope.cancel()


def _metadata(configuration: Configuration, url: str) -> tuple[Route, str] | None:
    """Return the route and URL of the metadata (RFC 9728) that tells clients where the identity
    provider is, or None if no identity provider is configured.
    """
    settings = configuration.auth
    if settings is None:
        return None
    from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
    from pydantic import AnyHttpUrl

    is_url = settings.audience.startswith(("http://", "https://"))
    resource = AnyHttpUrl(settings.resource or (settings.audience if is_url else url))
    [route] = create_protected_resource_routes(
        resource, [AnyHttpUrl(settings.issuer)], list(settings.scopes) or None, "ideabridge"
    )
    return route, str(build_resource_metadata_url(resource))


async def _until_signalled(
    serve: Callable[[], Awaitable[None]],
    ending: Callable[[], None],
    *,
    cancel: bool = True,
    exits: bool = True,
) -> None:
    """Await `serve`. On a signal, call `ending`, and then cancel `serve`, unless `ending` itself
    makes `serve` end (`cancel=False`). The process exits `END_SECONDS` after the signal or, with
    `exits=False`, after a second signal.
    """
    if sys.platform == "win32":
        # Event loops receive no signals on this platform, where Ctrl-C raises KeyboardInterrupt.
        await serve()
        return

    loop = asyncio.get_running_loop()
    signalled = anyio.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        # Python calls this between two instructions, so it works even if the event loop is blocked.
        if exits or signalled.is_set():
            _exit_soon()
        loop.call_soon_threadsafe(signalled.set)

    async with anyio.create_task_group() as group:

        async def watch() -> None:
            await signalled.wait()
            ending()
            if cancel:
                group.cancel_scope.cancel()

        group.start_soon(watch)
        before = {
            number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            # The guard ends this process if Python code no longer runs.
            with guard.hearing():
                await serve()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)

        group.cancel_scope.cancel()


_ended = threading.Event()


def _exit_soon() -> None:
    """Exit after `END_SECONDS`, in case a thread or a child process hangs."""
    if _ended.is_set():
        return
    _ended.set()
    timer = threading.Timer(END_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
