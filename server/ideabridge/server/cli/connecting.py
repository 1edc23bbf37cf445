"""What a person sees while modules connect."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio

from ideabridge.server.cli.console import clean, say

if TYPE_CHECKING:
    from rich.console import Console

    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.modules import Modules
    from ideabridge.bridge.modules.settings import ModuleStatus

SETTLE_SECONDS: Final = 60.0
"""How long the commands wait for modules that are still connecting; each has its own `connect_timeout` too."""

_NAMED: Final = 5

_MOMENT: Final = 0.5
"""Seconds between two looks."""


class Connecting:
    """Tells which modules are connecting, from before the SDK is imported until `wait` returns.

    At a terminal that is a last line that counts the seconds and goes away at the end; elsewhere it is one line on
    standard error.

    Args:
        configuration: names the modules.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._left = [name for name, entry in configuration.modules.items() if not entry.disabled]
        self._began = time.monotonic()
        self._console: Console | None = None

    def __enter__(self) -> Self:
        if self._left:
            self._console = _terminal()
            if self._console is None:
                say(f"connecting to {self._names()}")
            self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._erase()
        self._console = None

    async def wait(self, modules: Modules, told: Callable[[ModuleStatus], None] | None = None) -> None:
        """Wait until every module is up, failed or disabled, at most `SETTLE_SECONDS`.

        Args:
            modules: the modules, entered.
            told: called with the status of each module as soon as it is known, and at the end with those that are still
                connecting. What it prints appears above the last line.
        """
        known: set[str] = set()

        def settled(status: ModuleStatus) -> None:
            known.add(status.name)
            if status.name in self._left:
                self._left.remove(status.name)
            self._erase()
            if told is not None:
                told(status)
            self._draw()

        async with anyio.create_task_group() as group:
            group.start_soon(self._tick)
            await modules.settled(SETTLE_SECONDS, told=settled)
            group.cancel_scope.cancel()
        for status in modules.statuses():
            if status.name not in known:
                settled(status)
        self._erase()
        self._console = None

    async def follow(self, modules: Modules) -> None:
        """At a terminal, show the modules that are still connecting after a moment, until this is cancelled."""
        self._console = _terminal()
        drawn = False
        try:
            while self._console is not None:
                await anyio.sleep(_MOMENT)
                self._left = [status.name for status in modules.statuses() if status.state == "connecting"]
                if drawn or self._left:
                    drawn = True
                    self._erase()
                    self._draw()
        finally:
            if drawn:
                self._erase()

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(_MOMENT)
            self._draw()

    def _draw(self) -> None:
        if self._console is not None and self._left:
            line = f"connecting to {self._names()} ({time.monotonic() - self._began:.0f} s)"[: self._console.width - 1]
            self._write(line if self._console.no_color else f"\x1b[2m{line}\x1b[0m")

    def _erase(self) -> None:
        if self._console is not None:
            self._write("")

    def _write(self, line: str) -> None:
        """Put a line in the place of the last one."""
        assert self._console is not None
        self._console.file.write(f"\r\x1b[K{line}")
        self._console.file.flush()

    def _names(self) -> str:
        more = len(self._left) - _NAMED
        shown = clean(", ".join(self._left[:_NAMED])) + (f" and {more} more" if more > 0 else "")
        return f"{len(self._left)} module{'' if len(self._left) == 1 else 's'}: {shown}"


@asynccontextmanager
async def connected(bridge: Bridge) -> AsyncGenerator[Bridge]:
    """The bridge, entered, when each of its modules is up, failed or disabled; see `Connecting`."""
    with Connecting(bridge.configuration) as connecting:
        async with bridge:
            await connecting.wait(bridge.modules)
            yield bridge


@asynccontextmanager
async def show_connecting(bridge: Bridge, *, quiet: bool) -> AsyncGenerator[None]:
    """Show which modules are connecting while the body waits for those it needs; with `quiet`, show nothing."""
    async with anyio.create_task_group() as group:
        if not quiet:
            group.start_soon(Connecting(bridge.configuration).follow, bridge.modules)
        yield
        group.cancel_scope.cancel()


def _terminal() -> Console | None:
    """The terminal to show progress at: that of standard output, else of standard error; None: there is none."""
    from rich.console import Console

    for console in (Console(file=sys.stdout), Console(stderr=True)):
        if console.is_terminal and not console.is_dumb_terminal:
            return console
    return None
