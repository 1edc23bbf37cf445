"""Serving over stdio and streamable HTTP: the background tasks, and the end of everything within two seconds."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import anyio

from ideabridge.bridge.bridge import TOKEN_VARIABLE, Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.modules.stdio import guard
from ideabridge.bridge.runs.driver import own_name
from ideabridge.bridge.secrets import clean_logs
from ideabridge.bridge.store.errors import PruningStoppedError, StoreError
from ideabridge.bridge.store.idea import RunRecord
from ideabridge.bridge.store.pruning import Bounds, told_of
from ideabridge.bridge.store.store import Store
from ideabridge.server.asking.forms import COMMANDS, Commands
from ideabridge.server.callers import BearerGate, Credentials
from ideabridge.server.log import bounded_log
from ideabridge.server.server import Front
from ideabridge.tools.names import printable
from ideabridge.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from starlette.routing import Route

    from ideabridge.server.transports.identity import IdentityProvider

END_SECONDS: Final = 1.9
"""Seconds after which an ending process exits at once: hosts kill it after two seconds."""

DEFAULT_PORT: Final = 8787


@asynccontextmanager
async def _front(
    configuration: Configuration,
    toolbox: Toolbox | None,
    store: Store | Path | str | None,
    told: Callable[[ModuleStatus], None] | None,
    commands: Commands = COMMANDS,
) -> AsyncGenerator[Front]:
    """An open bridge with a server before it, announcing changes."""
    # What has been imported stays for good: every full collection, and the one at the end, would search it for 0.1 s.
    gc.freeze()
    clean_logs()
    fronts: list[Front] = []

    def changed() -> None:
        for front in fronts:
            front.announcements.poke()

    with bounded_log():
        async with (
            Bridge(configuration, toolbox=toolbox, store=store, on_tools_changed=changed) as bridge,
            anyio.create_task_group() as group,
        ):
            front = Front(bridge, group, version("ideabridge"), commands)
            fronts.append(front)
            group.start_soon(front.announcements.run)
            group.start_soon(front.direct_calls.run)
            group.start_soon(_recover, bridge, front)
            group.start_soon(_retain, bridge)
            if told is not None:
                group.start_soon(bridge.modules.follow, told)
            try:
                yield front
            finally:
                front.running.closing = True
                front.direct_calls.flush()
                group.cancel_scope.cancel()


async def _recover(bridge: Bridge, front: Front) -> None:
    """Resume the runs of processes that died, as long as this server lives. Report on stderr those that cannot be
    resumed.
    """

    def tell(record: RunRecord, why: str) -> None:
        sys.stderr.write(printable(bridge.secrets.mask(f"ideabridge: run {record.id} is not taken up: {why}\n")))
        sys.stderr.flush()

    try:
        front.running.publish_left()
    except StoreError as error:
        # Each is published when somebody asks for its run.
        sys.stderr.write(printable(bridge.secrets.mask(f"ideabridge: earlier runs are not published: {error}\n")))
        sys.stderr.flush()
    await bridge.recover_runs(tell, front.running.publish_when_done, keep=True)


_RETENTION_STARTS: Final = 1.0
_RETENTION_LOOKS: Final = 3600.0
"""Seconds from the start to the first deletion of old runs, and between two."""


async def _retain(bridge: Bridge) -> None:
    """Delete old runs according to the configuration's `retention`, and report this on stderr, until cancelled."""
    settings, path = bridge.configuration.retention, bridge.store.path
    if settings is False or path == ":memory:":
        return
    stopped, who = threading.Event(), own_name()

    def work() -> str:
        # On a connection of its own: the server goes on beside it. The file is not made where somebody deleted it.
        if not Path(path).exists():
            return ""
        try:
            with Store.open(path, durability=bridge.configuration.durability) as store:
                retention = store.retention(Bounds(settings.days, settings.runs), stopped.wait)
                return told_of(retention.round(time.time(), who))
        except PruningStoppedError:
            return ""
        except StoreError as error:
            return f"old runs are not deleted: {error}"

    try:
        await anyio.sleep(_RETENTION_STARTS)
        while True:
            said = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
            if said:
                sys.stderr.write(printable(f"ideabridge: {said}\n"))
                sys.stderr.flush()
            await anyio.sleep(_RETENTION_LOOKS)
    finally:
        stopped.set()


async def serve_stdio(
    configuration: Configuration,
    *,
    toolbox: Toolbox | None = None,
    store: Store | Path | str | None = None,
    told: Callable[[ModuleStatus], None] | None = None,
    commands: Commands = COMMANDS,
) -> None:
    """Serve one client on stdin and stdout until it closes stdin, or SIGTERM or SIGINT.

    Args:
        configuration: what `ideabridge.json` holds.
        toolbox: tools besides the built-in and the configured ones.
        store: where ideas and runs are kept; None: as configured.
        told: called with the status of each module as soon as it is up, failed or disabled.
        commands: what a person writes at a terminal to decide about the runs of this server.
    """
    async with _front(configuration, toolbox, store, told, commands) as front:

        def ending() -> None:
            front.running.closing = True
            _end_at_last()

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


async def serve_http(
    configuration: Configuration,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    toolbox: Toolbox | None = None,
    store: Store | Path | str | None = None,
    told: Callable[[ModuleStatus], None] | None = None,
    ready: Callable[[str, bool], None] | None = None,
) -> None:
    """Serve any number of clients over streamable HTTP until SIGTERM or SIGINT. The URL is told on stderr.

    Requests need a token where there is one, where an identity provider is configured, or where the store has, or ever
    had, a named user.

    Args:
        configuration: what `ideabridge.json` holds.
        host: the address to bind to; other than loopback only with a token.
        port: the port; 0: a free one.
        token: the bearer token; None: what the environment variable IDEABRIDGE_TOKEN holds, if anything.
        hosts: more names clients may call this server by (`Host` header).
        toolbox: tools besides the built-in and the configured ones.
        store: where ideas and runs are kept; None: as configured.
        told: called with the status of each module as soon as it is up, failed or disabled.
        ready: called with the URL, and whether requests need a token, when clients can connect.

    Raises:
        ServeError: the address is not loopback and there is no token, or it cannot be had.
        StoreError: the store cannot be opened.
    """
    from ideabridge.server.transports.http import application, bind, http_server, url_of

    token = token or os.environ.get(TOKEN_VARIABLE) or None
    with ExitStack() as stack:
        if not isinstance(store, Store):
            path = store or configuration.store or ":memory:"
            store = stack.enter_context(Store.open(path, durability=configuration.durability))
        credentials = Credentials(store, token=token, provider=_provider(configuration))
        listening = stack.enter_context(bind(host, port, token=token, guarded=credentials.asked_for))
        url = url_of(listening)
        async with _front(configuration, toolbox, store, told) as front:
            if token is not None:
                front.secrets.add(TOKEN_VARIABLE, token, certain=True)
            app = application(
                front.server,
                host=host,
                allowed=hosts,
                ended=front.announcements.disconnected,
                quotas=front.quotas,
            )
            most = configuration.users.requests_per_minute

            def spend(caller: str) -> None:
                front.quotas.spend(caller, "requests", most, 60)

            gate = BearerGate(app, credentials, spend, _metadata(configuration, url))
            server = http_server(gate)

            def ending() -> None:
                front.running.closing = True
                front.announcements.close()
                server.should_exit = True
                _end_at_last()

            async def serve() -> None:
                sys.stderr.write(f"ideabridge: serving on {url}\n")
                sys.stderr.flush()
                if ready is not None:
                    ready(url, credentials.asked_for)
                async with anyio.create_task_group() as group:
                    group.start_soon(gate.watch)
                    await server.serve(sockets=[listening])
                    group.cancel_scope.cancel()

            await _until_signalled(serve, ending, cancel=False)


def _provider(configuration: Configuration) -> IdentityProvider | None:
    """The identity provider of a configuration; None: there is none."""
    if configuration.auth is None:
        return None
    from ideabridge.server.transports.identity import IdentityProvider

    return IdentityProvider(configuration.auth)


def _metadata(configuration: Configuration, url: str) -> tuple[Route, str] | None:
    """The route of the metadata by which clients find the identity provider (RFC 9728), and its address."""
    settings = configuration.auth
    if settings is None:
        return None
    from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
    from pydantic import AnyHttpUrl

    named = settings.audience if settings.audience.startswith(("http://", "https://")) else url
    resource = AnyHttpUrl(settings.resource or named)
    [route] = create_protected_resource_routes(
        resource, [AnyHttpUrl(settings.issuer)], list(settings.scopes) or None, "ideabridge"
    )
    return route, str(build_resource_metadata_url(resource))


async def _until_signalled(
    serve: Callable[[], Awaitable[None]], ending: Callable[[], None], *, cancel: bool = True
) -> None:
    """Serve until it ends by itself or a signal comes.

    Args:
        serve: serves.
        ending: called when a signal came.
        cancel: whether to cancel `serve` then; else it ends by what `ending` does.
    """
    if sys.platform == "win32":
        # No event loop there receives signals; Ctrl-C raises KeyboardInterrupt.
        await serve()
        return
    loop, told = asyncio.get_running_loop(), anyio.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        # Called between two steps of whatever Python code is running: the event loop may never come to it.
        _end_at_last()
        loop.call_soon_threadsafe(told.set)

    async with anyio.create_task_group() as group:

        async def watch() -> None:
            await told.wait()
            ending()
            if cancel:
                group.cancel_scope.cancel()

        group.start_soon(watch)
        before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            # Where no Python code runs any more, the guard ends this process.
            with guard.hearing():
                await serve()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
        group.cancel_scope.cancel()


_ended = threading.Event()


def _end_at_last() -> None:
    """Exit after `END_SECONDS` if the process still exists then, because a thread or a child hangs."""
    if _ended.is_set():
        return
    _ended.set()
    timer = threading.Timer(END_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
