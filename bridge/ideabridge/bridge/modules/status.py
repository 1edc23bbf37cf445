"""ModuleStatus: how a module is, for people (`modules list`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ideabridge.bridge.modules.settings import ModuleKind

Era = Literal["legacy", "modern"]
"""2025-11-25 and earlier (handshake), or 2026-07-28 (stateless)."""

ModuleState = Literal["connecting", "up", "down", "failed", "disabled"]
"""down: it was up, the next call connects again. failed: it did not come up, and is tried again and again."""


@dataclass(frozen=True, slots=True)
class ModuleStatus:
    """How a module is, for people (`modules list`). Everything in it is masked and bounded.

    Attributes:
        kind: how it is reached.
        tools: how many tools it offers here.
        notes: hints that promise more than before, tools left out, parameters renamed, garbage on its output.
        error: why it is down or failed.
        next_try: in how many seconds it is tried again, 0: it is tried now. A call that needs it has it tried sooner.
        seconds: how long connecting took.
    """

    name: str
    state: ModuleState
    kind: ModuleKind
    era: Era | None = None
    protocol_version: str | None = None
    server_name: str | None = None
    server_version: str | None = None
    instructions: str | None = None
    tools: int = 0
    notes: tuple[str, ...] = ()
    error: str | None = None
    next_try: float | None = None
    seconds: float | None = None

    @property
    def why(self) -> str:
        """Why it is not up, and when it is tried again."""
        told = self.error or self.state
        if self.next_try is None:
            return told
        return f"{told}; next try in {math.ceil(self.next_try)} s" if self.next_try else f"{told}; it is tried now"
