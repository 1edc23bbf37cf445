"""Modules: all configured MCP servers, connected concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import anyio
import anyio.abc

from ideabridge.bridge.modules.errors import ModuleError, UnknownModuleError
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.names import nearest
from ideabridge.tools.tool import Tool

if TYPE_CHECKING:
    from pathlib import Path

    from ideabridge.bridge.modules.module import Module
    from ideabridge.bridge.modules.settings import ModuleConfiguration
    from ideabridge.bridge.trust import Variables

_CLOSE_SECONDS: Final = 1.7
"""Seconds for closing all modules: hosts kill this process after two seconds."""


class ModuleLimits(Protocol):
    """The limits that hold for modules."""

    @property
    def result_bytes(self) -> int:
        """Bytes of JSON in one result."""
        ...


class ModuleSource(Protocol):
    """What `Modules` reads of a configuration."""

    @property
    def modules(self) -> Mapping[str, ModuleConfiguration]:
        """The entries, by name."""
        ...

    @property
    def limits(self) -> ModuleLimits:
        """The limits."""
        ...

    def folder_of(self, module: str) -> Path:
        """The absolute folder for relative paths in the entry of a module."""
        ...

    def variables_of(self, module: str) -> Variables | None:
        """The variables that the entry of a module may use; None: all."""
        ...


class Modules:
    """The configured servers. Entering returns at once; they connect in the background.

    Enter and exit it in the same task; everything else may be used from any. A module that fails, hangs or dies
    shows in `statuses` and in calls to it, and nowhere else. One that does not come up is tried again.

    Args:
        configuration: contains the entries of the modules.
        secrets: is told every secret value in it, and masks with them.
        on_change: called with a module's name when its state or its tools changed.
    """

    def __init__(
        self,
        configuration: ModuleSource,
        *,
        secrets: Secrets | None = None,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self.secrets: Final = secrets or Secrets()
        self._modules: dict[str, Module] = {}
        if configuration.modules:
            # Importing the SDK takes longer than all the rest: who has no module need not wait for it.
            from ideabridge.bridge.modules.module import Module

            self._modules = {
                name: Module(
                    name,
                    entry,
                    folder=configuration.folder_of(name),
                    variables=configuration.variables_of(name),
                    secrets=self.secrets,
                    result_bytes=configuration.limits.result_bytes,
                    on_change=on_change or _nobody,
                )
                for name, entry in configuration.modules.items()
            }
        self._group: anyio.abc.TaskGroup | None = None
        self._ended = 0
        self._all_ended = anyio.Event()

    async def __aenter__(self) -> Self:
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group
        for module in self._modules.values():
            group.start_soon(self._own, module, name=f"module {module.name}")
        return self

    async def _own(self, module: Module) -> None:
        try:
            await module.run()
        finally:
            self._ended += 1
            if self._ended == len(self._modules):
                self._all_ended.set()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        group = self._group
        assert group is not None
        for module in self._modules.values():
            module.stop()
        # Closing is polite (HTTP sessions are ended, inputs closed), bounded, and done even when we are cancelled.
        if self._modules:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
                await self._all_ended.wait()
        group.cancel_scope.cancel()
        await group.__aexit__(None, None, None)

    @property
    def names(self) -> list[str]:
        """Every configured module, in the order of the configuration."""
        return list(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __getitem__(self, name: str) -> Module:
        """The module of this name.

        Raises:
            UnknownModuleError: it is not configured; the message names the nearest ones.
        """
        found = self._modules.get(name)
        if found is not None:
            return found
        near = nearest(name, self._modules)
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(self._modules) or 'none'}"
        raise UnknownModuleError(name, f"no module {name[:100]!r} is configured; {hint[:500]}")

    def tools(self) -> list[Tool]:
        """The tools of every module that is or was up, by module in the order of the configuration.

        Those of a module that went down stay: calling one connects it again.
        """
        return [tool for module in self._modules.values() for tool in module.tools]

    def reserved(self) -> dict[str, list[str]]:
        """For each module, the names of tools that are its own though they are not in `known_tools`."""
        return {name: [] if module.known_tools else module.reserved for name, module in self._modules.items()}

    def known_tools(self) -> list[Tool]:
        """The tools of every module by its last list, which may be from before this process, in the order of the
        configuration. Not for calls: `current` tells whether a tool is still what it was.
        """
        return [tool for module in self._modules.values() for tool in module.known_tools]

    async def known(self, timeout: float | None = None, name: str | None = None) -> bool:
        """Wait until the tools of every module (or of one) are known, or it is failed or disabled. False: not within
        `timeout` seconds.
        """
        with anyio.move_on_after(timeout):
            for module in self._modules.values() if name is None else [self[name]]:
                await module.know()
            return True
        return False

    def statuses(self) -> list[ModuleStatus]:
        """How each module is, in the order of the configuration."""
        return [module.status() for module in self._modules.values()]

    def away(self) -> list[ModuleStatus]:
        """The modules that have failed, and those that have not listed their tools in this process."""
        found = [(module.listed, module.status()) for module in self._modules.values()]
        return [one for listed, one in found if one.state == "failed" or (not listed and one.state != "disabled")]

    async def settled(
        self,
        timeout: float | None = None,
        names: Iterable[str] | None = None,
        told: Callable[[ModuleStatus], None] | None = None,
    ) -> bool:
        """Wait until modules are up, failed or disabled. False: not within `timeout` seconds.

        Args:
            timeout: in seconds; None: as long as it takes.
            names: those to wait for; None: all.
            told: called with the status of each as soon as it is up, failed or disabled.

        Raises:
            UnknownModuleError: a name that no module has.
        """
        waited = [self[name] for name in (self._modules if names is None else names)]

        async def settle(module: Module) -> None:
            await module.settle()
            if told is not None:
                told(module.status())

        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as group:
                for module in waited:
                    group.start_soon(settle, module)
            return True
        return False

    async def follow(self, told: Callable[[ModuleStatus], None]) -> None:
        """Tell how each module is once it is up, failed or disabled, and whenever that changes, until this is cancelled
        or no module can change any more. One that ended and is started again by the next call is not told of.
        """
        async with anyio.create_task_group() as group:
            for module in self._modules.values():
                group.start_soon(module.follow, told)

    async def reach(self, names: Iterable[str], timeout: float | None = None) -> bool:
        """Have modules that are not up tried at once, or soon, and wait until each is up, or it is no use to wait
        longer; see `Module.reach`. False: not all are up, or not within `timeout` seconds.

        Raises:
            UnknownModuleError: a name that no module has.
        """
        wanted = [self[name] for name in names]
        up: list[bool] = []

        async def reach(module: Module) -> None:
            try:
                await module.reach(timeout)
            except ModuleError:
                up.append(False)  # its status says why
            else:
                up.append(True)

        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as group:
                for module in wanted:
                    group.start_soon(reach, module)
            return all(up)
        return False


def _nobody(_name: str) -> None:
    """Stands where nobody wants to know."""
