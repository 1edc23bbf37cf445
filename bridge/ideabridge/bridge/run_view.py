"""Run view: what callers are shown of a run (DESIGN 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ideabridge.bridge.context.preview import reference_to, shorten, shorten_literal
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.request import Request
from ideabridge.bridge.minds.turns import INSTRUCTIONS
from ideabridge.bridge.room_view import open_requests, requests_in_rooms, spent_by
from ideabridge.bridge.run_values import INLINE, results_of
from ideabridge.tools.encoding import JSON, JSONObject, encode

if TYPE_CHECKING:
    from ideabridge.bridge.run import Run

_NOTES: Final = 20

_ROOM: Final = (
    "This request is part of the run and stands alone: answer it from its own context, whatever else you have seen, and"
    " hand the solution in with submit_solution, run {run}, turn {turn}."
)


def answer_of(run: Run, *, whole: bool = False) -> dict[str, Any]:
    """The answer of `run_plan`, `solve`, `submit_solution` and `check_run`.

    Args:
        run: the run.
        whole: give every value whole, however large.
    """
    machine = run.machine
    status = run.status
    result: dict[str, Any] = {"run": run.id, "status": status}
    unwritten = run.unwritten
    if unwritten is not None:
        # What is not in the journal could still be lost: nobody is shown it.
        return {**result, "errors": [], "notes": [unwritten]}
    # Of a plan only rooms ask.
    minded = run if machine.mode == "solve" else next(open_requests(run), None)
    if minded is not None:
        name, why = minded.turns.mind or "turns", minded.turns.why
        result["mind"] = {"name": name, "why": why} if why else {"name": name}
    reason = run.runner.lost or machine.reason
    if reason:
        result["reason"] = reason
    if machine.has_output:
        result["output"] = machine.output if whole else _short_output(machine.output)
        if machine.mode == "solve" and machine.has_state:
            result["state"] = machine.state if whole else _short_state(machine)
    elif status != "needs_solution":
        result["state"] = machine.state if whole else _short_state(machine)
        results = results_of(machine, whole=whole)
        if results:
            result["results"] = results
    result["errors"] = [error if whole else shorten_literal(error) for error in run.errors()]
    if run.idea is not None:
        result["idea"] = run.idea
    if status == "needs_solution":
        if machine.awaits_solution:
            result["turn"] = run.turn
        asking = [(one, one.runner.request) for one in open_requests(run)]
        result["requests"] = [_request(one, request, run) for one, request in asking if request is not None]
    if status in ("needs_approval", "running", "needs_solution"):
        approvals = run.approvals()
        if approvals or status == "needs_approval":
            result["approvals"] = approvals
    if machine.decided:
        result["decided"] = [f"{what}: {how} by {by}" for what, how, by in machine.decided[-_NOTES:]]
    unasked: list[JSON] = [text for one in machine.history for text in one.unasked]
    if unasked:
        result["notes"] = unasked[:_NOTES]
    # By turns the host's model answers, and its tokens are the host's: none are spent here.
    spent = spent_by(run)
    result["usage"] = {
        "requests": run.requests + requests_in_rooms(run),
        "tokens": spent.tokens,
        **({"cost": spent.cost} if spent.cost else {}),
        **({"partial": spent.partial} if spent.partial else {}),
    }
    return result


def summary_of(run: Run) -> JSONObject:
    """What the table of runs keeps of one that has ended: `{"idea"?, "errors"?, "reason"?}`. What it gave is in its
    journal.
    """
    machine = run.machine
    found: JSONObject = {"idea": run.idea, "errors": len(machine.errors) or None, "reason": machine.reason}
    return {name: value for name, value in found.items() if value is not None}


def approvals_of(run: Run) -> list[JSON]:
    """What the run asks; see `Question.to_json`. A lazy run's plan is told as `WaitingPlan.to_json` tells it."""
    told: list[JSON] = []
    for question in run.questions():
        entry = question.to_json()
        if question.kind == "plan" and run.plan is not None:
            entry["plan"] = run.plan.to_json()
        told.append(entry)
    return told


def _request(asking: Run, request: Request, run: Run) -> JSONObject:
    messages: list[JSON] = list(request.texts)
    told: JSONObject = {"id": request.id}
    instructions = INSTRUCTIONS
    if asking is not run:
        # A request of a room is answered to the room: by turns, one model answers them all.
        told.update({"run": asking.id, "turn": asking.turn})
        instructions = f"{_ROOM.format(run=asking.id, turn=asking.turn)} {INSTRUCTIONS}"
    return {**told, "instructions": instructions, "context": messages, "schema": request.schema}


def _short_output(output: JSON) -> JSON:
    # An output has no reference of its own; check_run with paths gives it whole as †output.
    if len(encode(output)) <= INLINE * 4:
        return output
    return {**reference_to(output, ("output",)), "note": 'ask check_run for paths: ["†output"] to get it whole'}


def _short_state(machine: Machine) -> JSON:
    if machine.opening.instances:
        return {
            name: shorten(machine.memory.state(name), ("state",), instance=name, small=INLINE)
            for name in machine.opening.instances
        }
    return shorten(machine.memory.state(), ("state",), small=INLINE)
