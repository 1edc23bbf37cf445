"""Effects: what the machine wants done. Each is acknowledged by an event (DESIGN 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.event import EndStatus
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class AskMind:
    """Make the next Request; acknowledged by `RequestMade`."""

    step: int


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask a person about a resolved call; acknowledged by `ApprovalAsked`, answered by `CallDecided`."""

    call: Call
    approval: str
    digest: str
    resolved: JSONObject
    why: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a call, or one item of it; acknowledged by `CallStarted`, answered by `CallFinished`.

    `latent` is the result the mind wrote itself, resolved; then there is nothing to run.
    """

    call: Call
    tool: Tool
    item: int | None
    parameters: JSONObject
    latent: JSON = None
    is_latent: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over; acknowledged by `RunEnded`."""

    status: EndStatus
    reason: str | None = None


Effect: TypeAlias = AskMind | AskApproval | Execute | Finish
