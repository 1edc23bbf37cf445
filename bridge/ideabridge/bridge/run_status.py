"""Run status: where a run stands, its rooms with it (DESIGN 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ideabridge.bridge.errors import RunFailedError
from ideabridge.bridge.loop.progress import parked
from ideabridge.bridge.room_view import open_requests
from ideabridge.bridge.run_values import rejection

if TYPE_CHECKING:
    from ideabridge.bridge.run import Run

RunStatus: TypeAlias = Literal[
    "running", "needs_solution", "needs_approval", "done", "stalled", "limit", "cancelled", "failed", "interrupted"
]

_ENDED: dict[str, RunStatus] = {
    "done": "done",
    "stalled": "stalled",
    "limit": "limit",
    "cancelled": "cancelled",
    "failed": "failed",
}


_STANDS: dict[str, str] = {
    "done": "it has ended without an output, with errors",
    "needs_approval": "it waits for approvals or answers; decide on them, or give the bridge an approver",
    "needs_solution": "it waits for a solution; hand one in, or give the bridge a mind",
}
"""What a run without a result says of itself."""


def status_of(run: Run) -> RunStatus:
    """Where a run stands. A Request of a room is one of the run: whoever answers the run answers it."""
    machine = run.machine
    if run.runner.lost is not None:
        return "interrupted"
    if is_behind(run):
        return "running"
    if machine.phase == "ended":
        return _ENDED[machine.status or "failed"]
    # Rooms that are about to open ask along with those that have: whoever answers is told of them together.
    opened = len(run.rooms) >= len(machine.rooms)
    if machine.awaits_solution or (opened and any(True for _ in open_requests(run))):
        return "needs_solution"
    if (machine.waits_for_people or run.rooms) and is_still(run):
        return "running" if _is_decided_on(run) else "needs_approval"
    return "running"


def is_behind(run: Run) -> bool:
    """Whether the journal of a run, or of a room of it, does not hold yet what has happened: nobody is shown that."""
    if run.runner.is_behind:
        return True
    return bool(run.rooms or run.ending) and any(is_behind(room) for room in (*run.rooms.values(), *run.ending))


def _is_decided_on(run: Run) -> bool:
    """Whether an approver is deciding on something, in the run or a room of it."""
    own = run.people is not None and bool(run.people.deciding)
    return own or any(_is_decided_on(room) for room in run.rooms.values())


def is_still(run: Run) -> bool:
    """Whether nothing moves in a run that is at work: not here, and in no room of it."""
    machine = run.machine
    if run.runner.is_behind:
        return False
    if machine.phase == "ended" or run.runner.lost is not None:
        # A room that has ended is about to be told of; one that another process drives does not move here.
        return run.runner.lost is not None
    if machine.awaits_solution or machine.waits_for_people:
        return all(is_still(room) for room in run.rooms.values())
    if not machine.at_rest or len(run.rooms) < len(machine.rooms):
        return False
    return bool(run.rooms) and all(is_still(room) for room in run.rooms.values())


def may_rest(run: Run) -> bool:
    """Whether a run waits for somebody and any process may take it up. One of which a call waits for an answer to what
    its module asks stays with the process in which the call is at work.
    """
    return is_still(run) and status_of(run) != "running" and not parks(run)


def stands(run: Run) -> bool:
    """Whether nothing moves in a run that was read from its journal. A call whose module had asked something was at
    work in another process, and may have died with it.
    """
    return is_still(run) and not parked(run.machine.history)


def parks(run: Run) -> bool:
    """Whether a call of a run or of its rooms waits for an answer to what its module asks."""
    return (run.people is not None and run.people.parks) or any(parks(room) for room in run.rooms.values())


def failure_of(run: Run) -> RunFailedError:
    """Why a run gives no result, for who asked for one."""
    status, errors = run.status, run.errors()
    reason = run.runner.lost or run.machine.reason
    lines = [f"run {run.id}: {_STANDS.get(status, status)}{f': {reason}' if reason else ''}"]
    text = "\n".join([*lines, *([rejection(errors)] if errors else [])])
    return RunFailedError(text, run.id, status, [dict(error) for error in errors])
