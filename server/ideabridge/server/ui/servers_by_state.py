"""Find the servers that need attention, and sum up the others in a short phrase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.server.ui.showing import light
from ideabridge.tools.names import counted


@dataclass(frozen=True, slots=True)
class ServersByState:
    """Servers, grouped by whether they need attention.

    Attributes:
        failing: the servers that a person has to repair or sign in to.
        well: the servers that are up or start when needed.
        off: the servers that are turned off.
    """

    failing: list[ModuleStatus]
    well: list[ModuleStatus]
    off: list[ModuleStatus]

    @classmethod
    def of(cls, servers: Sequence[ModuleStatus]) -> ServersByState:
        """Group servers by state."""
        failing = [one for one in servers if light(one) in ("failing", "needs sign-in")]
        off = [one for one in servers if light(one) == "off"]
        well = [one for one in servers if one not in failing and one not in off]
        return cls(failing, well, off)

    @property
    def are_well(self) -> str:
        """A short phrase about the servers that are well."""
        word = "up" if all(light(one) == "up" for one in self.well) else "fine"
        if self.failing or self.off:
            be = "is" if len(self.well) == 1 else "are"
            return f"{counted(len(self.well), 'other')} {be} {word}"
        if len(self.well) == 1:
            return f"1 server, {word}"
        return f"{counted(len(self.well), 'server')}, all {word}"
