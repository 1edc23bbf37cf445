"""Display which servers are connecting while a command waits for them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio

from ideabridge.server.cli.console import err, out, say
from ideabridge.tools.names import counted, joined, whole_duration_text

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.modules import Modules
    from ideabridge.bridge.modules.settings import ModuleStatus

SETTLE_SECONDS: Final = 60.0
"""Maximum time, in seconds, that commands wait for servers. Each server also has its own
`connect_timeout`.
"""

_MOST_NAMED: Final = 5
"""Maximum number of servers named in the line."""

_DELAY_SECONDS: Final = 0.5
"""How long, in seconds, a plan waits for servers before the line appears."""


class Connecting:
    """Displays which servers are connecting, from before the SDK is imported until `wait` returns.

    On a terminal, the last line counts the seconds and disappears at the end. Otherwise, a single
    line is written to standard error.

    Args:
        configuration: the configuration that contains the servers.
        idle: the names of the servers that are not started.
    """

    def __init__(self, configuration: Configuration, idle: Collection[str] = ()) -> None:
        self._left = [name for name in configuration.enabled_modules if name not in idle]
        self._idle = idle
        self._began = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._left and not self._show():
            say(f"connecting to {self._names()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hide()

    async def wait(
        self, modules: Modules, report: Callable[[ModuleStatus], None] | None = None
    ) -> None:
        """Start the servers, and wait up to `SETTLE_SECONDS` until each server is up, failed,
        disabled, or one of those that are not started.

        `report` is called with each server's status as soon as it is known, and at the end with the
        status of each server that is still connecting. The output of `report` appears above the
        line.
        """
        known_names: set[str] = set()

        def settled(status: ModuleStatus) -> None:
            known_names.add(status.name)
            # Hide the line before changing it, because hiding draws it once more.
            self._hide()
            if status.name in self._left:
                self._left.remove(status.name)

            if report is not None:
                report(status)

            if self._left:
                self._show()

        for name in modules.names:
            if name not in self._idle:
                modules[name].begin()

        await modules.settled(SETTLE_SECONDS, report=settled)
        for status in modules.statuses():
            if status.name not in known_names:
                settled(status)

        self._hide()

    async def follow(self, modules: Modules) -> None:
        """On a terminal, show the servers that are still connecting after a moment. This method
        runs until it is cancelled.
        """
        try:
            while True:
                await anyio.sleep(_DELAY_SECONDS)
                self._left = [
                    status.name for status in modules.statuses() if status.state == "connecting"
                ]
                if not self._left:
                    self._hide()
                elif self._live is None and not self._show():
                    return
        finally:
            self._hide()

    def _show(self) -> bool:
        """Show the line on standard output or, if that is not a terminal, on standard error. Return
        False if neither is a terminal.
        """
        from rich.live import Live

        for console in (out(), err()):
            if console.is_terminal and not console.is_dumb_terminal:
                self._live = Live(
                    get_renderable=self._line,
                    console=console,
                    refresh_per_second=2,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start(refresh=True)
                return True

        return False

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self) -> Text:
        from rich.text import Text

        seconds = time.monotonic() - self._began
        return Text(
            f"connecting to {self._names()} ({whole_duration_text(seconds)})",
            "dim",
            no_wrap=True,
            overflow="ellipsis",
        )

    def _names(self) -> str:
        shown = joined(self._left, _MOST_NAMED)
        return f"{counted(len(self._left), 'server')}: {shown}"


@asynccontextmanager
async def connected(bridge: Bridge, idle: Collection[str] = ()) -> AsyncGenerator[Bridge]:
    """Enter the bridge, and wait until each of its servers is up, failed or disabled; see
    `Connecting`.

    Args:
        bridge: the bridge.
        idle: the names of the servers that are not started.
    """
    with Connecting(bridge.configuration, idle) as connecting:
        async with bridge:
            await connecting.wait(bridge.modules)
            yield bridge


@asynccontextmanager
async def show_connecting(bridge: Bridge, *, quiet: bool) -> AsyncGenerator[None]:
    """While the body waits for the servers that it needs, show which ones are connecting. With
    `quiet`, show nothing.
    """
    async with anyio.create_task_group() as group:
        if not quiet:
            group.start_soon(Connecting(bridge.configuration).follow, bridge.modules)
        yield
        group.cancel_scope.cancel()
