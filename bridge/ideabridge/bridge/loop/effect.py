"""The actions that the machine asks the runner to perform. The runner acknowledges each effect with
an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ideabridge.bridge.context.references import Path
from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.event import Decider, EndStatus, JournalError
from ideabridge.bridge.loop.progress import Progress
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations, Tool

ExecutionKey: TypeAlias = "tuple[int, int | None]"
"""The (call, item) of one execution. The item is None if the call runs as a whole."""

EffectKey: TypeAlias = "tuple[str, int, int | None]"
"""The key of an effect within its Solution: its kind (`execute`, `approve`, `cancel` or `commit`),
call, and item.
"""


@dataclass(frozen=True, slots=True)
class AskMind:
    """Make the next Request. Acknowledged by `RequestMade`."""

    step: int


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask a person about a resolved call. Acknowledged by `ApprovalAsked`, answered by
    `CallDecided`.
    """

    call: Call
    approval: str
    digest: str
    resolved: JSONObject
    why: str


@dataclass(frozen=True, slots=True)
class Allow:
    """Approve a resolved call under an earlier grant. Acknowledged by `CallDecided`.

    `granted` is the index of the call whose approval included the grant, and `by` is the person who
    gave the grant.
    """

    call: Call
    digest: str
    granted: int
    by: Decider


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a call or one of its items. Acknowledged by `CallStarted`, answered by `CallFinished`.

    If the mind wrote the result itself (`is_latent`), `latent` is the resolved result and nothing
    runs. If `call.room` is set, a room answers the call. For `imports` and `unchecked`, see `Item`.
    """

    call: Call
    tool: Tool
    item: int | None
    parameters: JSONObject
    latent: JSON = None
    is_latent: bool = False
    imports: tuple[tuple[Path, JSON], ...] = ()
    unchecked: bool = False

    @property
    def key(self) -> ExecutionKey:
        """The key of this execution in its run: (call, item)."""
        return (self.call.index, self.item)

    @property
    def activity(self) -> str | None:
        """The activity that the call names, or None if the call's tool was replaced."""
        return self.call.activity if self.tool is self.call.tool else None

    @property
    def hints(self) -> Annotations:
        """The hints about the code that runs."""
        return self.call.hints if self.tool is self.call.tool else self.tool.annotations

    @property
    def is_clean(self) -> bool:
        """Whether code in this process runs the call in a clean room."""
        return self.call.clean and self.tool is self.call.tool

    @classmethod
    def of(cls, progress: Progress, item: int | None) -> Execute:
        """Return the effect that runs a call, or one of the call's items, with references
        resolved.
        """
        call = progress.call
        tool = progress.tool
        if tool is None:
            raise JournalError(f"call {call.index} has no tool")
        execution = progress.items[item or 0]
        return cls(
            call,
            tool,
            item,
            execution.parameters,
            execution.latent,
            call.has_written_result,
            execution.imports,
            execution.unchecked,
        )


@dataclass(frozen=True, slots=True)
class AskPlan:
    """Ask a person about a plan as a whole. Acknowledged by `PlanAsked`, answered by
    `PlanDecided`.
    """

    approval: str
    digest: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a call or an item that is running or waiting for a person. Acknowledged by
    `CallFinished` with `error`.
    """

    call: Call
    item: int | None
    error: JSONObject

    @property
    def key(self) -> ExecutionKey:
        """The key of this execution in its run: (call, item)."""
        return (self.call.index, self.item)


@dataclass(frozen=True, slots=True)
class Commit:
    """Make visible what a group of calls wrote. Acknowledged by `GroupCommitted`."""

    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """End the run. Acknowledged by `RunEnded`."""

    status: EndStatus
    reason: str | None = None


Effect: TypeAlias = AskMind | AskApproval | Allow | AskPlan | Execute | Cancel | Commit | Finish


def room_name(run_id: str, key: ExecutionKey) -> str:
    """Return the id of the room that answers the given call of a run."""
    index, item = key
    return f"{run_id}.{index}" if item is None else f"{run_id}.{index}-{item}"


def call_of_room(room_id: str) -> ExecutionKey:
    """Return the call and the item that a room answers: the inverse of `room_name`."""
    index, _, item = room_id.rpartition(".")[2].partition("-")
    return int(index), int(item) if item else None
