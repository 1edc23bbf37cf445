"""Room view: a run and its rooms taken together: what they ask, and what they have used (DESIGN 4.10)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.call import UNCERTAIN
from ideabridge.bridge.loop.effect import ExecutionKey
from ideabridge.bridge.loop.event import CallFinished
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.loop.spending import Spending
from ideabridge.bridge.run_values import given_by, rejection
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.approver import ApprovalRequest
    from ideabridge.bridge.loop.machine import Machine
    from ideabridge.bridge.run import Run


def key_of(room_id: str) -> ExecutionKey:
    """The call, and item, a room answers, from its id."""
    index, _, item = room_id.rpartition(".")[2].partition("-")
    return int(index), int(item) if item else None


def open_requests(run: Run) -> Iterator[Run]:
    """The runs that wait for a solution: the run itself, and those of its rooms, at any depth."""
    if run.machine.awaits_solution and run.runner.lost is None:
        yield run
    for room in run.rooms.values():
        yield from open_requests(room)


def approvals_in_rooms(run: Run) -> list[JSON]:
    """The approvals that rooms wait for, each under the name `CALL/approval`."""
    found: list[JSON] = []
    for room in run.rooms.values():
        name = room.id.rpartition(".")[2]
        found.extend(
            {**one, "approval": f"{name}/{one['approval']}"} for one in room.approvals() if isinstance(one, dict)
        )
    return found


def requests_of(run: Run) -> list[ApprovalRequest]:
    """What a run and its rooms wait for people to answer, without what an approver is deciding on; those of rooms under
    the names of `approvals_in_rooms`.
    """
    people = run.people
    found = [] if people is None else [one for one in people.requests() if one.approval not in people.deciding]
    for room in run.rooms.values():
        name = room.id.rpartition(".")[2]
        found.extend(dataclasses.replace(one, approval=f"{name}/{one.approval}") for one in requests_of(room))
    return found


def room_of_approval(run: Run, approval: str) -> tuple[Run, str]:
    """The room an approval of `approvals_in_rooms` belongs to, and its name there.

    Raises:
        DecisionError: there is no such room, or it has ended.
    """
    name, _, rest = approval.partition("/")
    for room in run.rooms.values():
        if room.id.rpartition(".")[2] == name:
            return room, rest
    raise DecisionError(f"no approval {approval[:100]!r} is pending: the room it was for has ended, or never was")


def spent_by(run: Run, *, under_way: bool = False) -> Spending:
    """What a run has used with all its rooms, those that have ended and those that are open.

    Args:
        run: the run.
        under_way: with what answers that are under way have taken until now: they are about to be hung up on.
    """
    machine, own = run.machine, run.machine.spending
    made = machine.requests if machine.mode == "solve" else 0
    total = Spending(
        own.input_tokens,
        own.output_tokens,
        own.cost,
        None,
        own.requests + made,
        own.calls + len(machine.history),
        own.partial,
    )
    answer = run.runner.untold if under_way else None
    usage = None if answer is None else answer.so_far()
    if usage is not None:
        total.add(usage.to_json())
    for room in run.rooms.values():
        total.add_room(spent_by(room, under_way=under_way).to_json())
    return total


def used_in_rooms(run: Run, key: ExecutionKey | None) -> JSONObject | None:
    """What rooms have used that are open, and about to be ended; None: nothing.

    Args:
        run: the run they belong to.
        key: the call, and item, whose room is meant; None: all.
    """
    total = Spending()
    for one, room in run.rooms.items():
        if key is None or one == key:
            total.add_room(spent_by(room, under_way=True).to_json())
    return total.to_json() or None


def requests_in_rooms(run: Run) -> int:
    """How many Requests the rooms of a run have made, those that have ended and those that are open."""
    return run.machine.spending.requests + sum(spent_by(room).requests for room in run.rooms.values())


def over_budget(root: Run) -> str | None:
    """Why a run and its rooms may go on no more; None: they may."""
    settings, spent = root.machine.settings, spent_by(root)
    if spent.requests > settings.requests:
        return f"{settings.requests:,} requests were made, the most a run and its rooms may make"
    if spent.calls > settings.calls:
        return f"{settings.calls:,} calls were listed, the most a run and its rooms may list"
    return spent.over(settings)


def outcome_of(room: Run, key: ExecutionKey) -> CallFinished:
    """What a room that has ended gives the call it answers."""
    machine = room.machine
    index, item = key
    spent = spent_by(room).to_json()
    if machine.has_output or (machine.mode == "plan" and machine.status == "done" and not machine.errors):
        return CallFinished(index, item, value=given_by(machine), spent=spent)
    reason = f": {machine.reason}" if machine.reason else ""
    told = f"\n{rejection(machine.errors)}" if machine.errors else ""
    error: JSONObject = {
        "kind": _kind_of(machine),
        "message": f"its room {room.id} ended without a result, {machine.status}",
    }
    error["message"] = f"{error['message']}{reason}{told}"[:4000]
    return CallFinished(index, item, error=error, spent=spent)


def _kind_of(machine: Machine) -> str:
    """The kind of the error of a call whose room gave nothing: what may have taken effect in the room is not caught
    outside it either.
    """
    kinds = {str((one.error or {}).get("kind")) for one in machine.history if one.standing is Standing.FAILED}
    return next((kind for kind in UNCERTAIN if kind in kinds), "runtime")
