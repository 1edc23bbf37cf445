"""Group: the calls of one Solution under a pattern: all of them, any, or a race."""

from __future__ import annotations

from typing import NamedTuple

from ideabridge.bridge.loop.effect import Cancel, Effect, EffectKey
from ideabridge.bridge.loop.event import Pattern
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.tools.encoding import JSON, JSONObject


class Group:
    """What the end of one call means for the others.

    Args:
        pattern: `all`: a failure cancels the rest, and nothing is written before every call has succeeded; `any`: the
            first success cancels the rest; `race`: the first call to end does. None: the calls are independent.

    Attributes:
        decided: why the calls that have not settled are cancelled; None if they are not.
        cancelled: why the Solution was cancelled from outside; None if it was not.
    """

    def __init__(self, pattern: Pattern | None) -> None:
        self.pattern = pattern
        self.decided: str | None = None
        self.cancelled: str | None = None
        self._winner: Progress | None = None

    def note(self, progress: Progress) -> bool:
        """Note that a call has settled; True if the others must be cancelled."""
        if self.pattern is None or self.decided is not None:
            return False
        failed = progress.status is CallStatus.FAILED
        if self.pattern == "all":
            if not failed:
                return False
        elif self.pattern == "any" and failed:
            return False
        else:
            self._winner = progress
        ended = "failed" if failed else "was first"
        self.decided = f"{progress.call.label} {ended}"
        return True

    @property
    def catches(self) -> bool:
        """Whether `p || q` catches a failure. A failed alternative writes nothing, because another may succeed."""
        return self.pattern != "any"

    @property
    def reports_failures(self) -> bool:
        """Whether a failed call is an error. It is none if another alternative succeeded."""
        return not (self.pattern == "any" and self._winner is not None)

    def keeps(self, progress: Progress) -> bool:
        """Whether the result of a settled call counts."""
        return self.pattern is None or progress.status in (CallStatus.DONE, CallStatus.CAUGHT)

    def error(self) -> JSONObject:
        """The error of a cancelled call."""
        return {"kind": "cancelled", "message": f"cancelled: {self.decided}"}


def refuse(graph: Graph, pattern: Pattern | None, output: JSON) -> None:
    """Add the problems of a group: alternatives that depend on each other, an output, no calls."""
    if pattern is None:
        return
    if output is not None:
        graph.output_problems.append(f"output: the calls of a group ({pattern}) give values; it has no output")
    if not graph.calls:
        graph.output_problems.append(f"calls: a group ({pattern}) needs at least one call")
    if pattern == "all":
        return
    for call in graph.calls:
        for index in sorted(graph.depends_on(call)):
            call.problems.append(
                f"the calls are alternatives ({pattern}), so none may depend on another: {call.label} reads what"
                f" {graph.call(index).label} writes, or waits for it"
            )


class Halt(NamedTuple):
    """The result of `halt`.

    Attributes:
        runs: part of the call still runs, and a `Cancel` is due for it.
        unstarted: the number of executions that were due and never began; `unasked`: of approvals.
    """

    runs: bool
    unstarted: int
    unasked: int


def halt(progress: Progress, due: dict[EffectKey, Effect], error: JSONObject) -> Halt:
    """Cancel a call: remove its unacknowledged effects from `due`, and add a `Cancel` for what has begun."""
    call = progress.call
    if progress.approval is not None:
        progress.approval = None
        asked = due.pop(("approve", call.index, None), None) is None
        if asked:
            due["cancel", call.index, None] = Cancel(call, None, error)
        return Halt(asked, 0, 0 if asked else 1)
    runs, unstarted = False, 0
    for number, item in enumerate(progress.items):
        place = number if call.has_each else None
        if item.finished:
            continue
        if item.started:
            runs = True
            due["cancel", call.index, place] = Cancel(call, place, error)
        else:
            item.finished, item.error = True, error
            progress.open_items -= 1
            unstarted += due.pop(("execute", call.index, place), None) is not None
    return Halt(runs, unstarted, 0)
