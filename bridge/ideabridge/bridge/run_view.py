"""Run view: what callers are shown of a run (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ideabridge.bridge.context.document import Missing, describe_missing
from ideabridge.bridge.context.document import read as read_path
from ideabridge.bridge.context.preview import reference_to, shorten, shorten_literal
from ideabridge.bridge.context.reference import parse_reference
from ideabridge.bridge.errors import UnknownPathError
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.loop.request import Request
from ideabridge.bridge.minds.turns import INSTRUCTIONS
from ideabridge.tools.encoding import JSON, JSONObject, encode

if TYPE_CHECKING:
    from ideabridge.bridge.run import Run

INLINE: Final = 4096
"""Bytes of JSON up to which an answer gives a value whole (DESIGN 6)."""

RESULTS: Final = 128 * 1024
"""Bytes of results an answer gives together; the others are told by reference alone."""


def answer_of(run: Run, *, whole: bool = False) -> JSONObject:
    """The answer of `run_plan`, `solve`, `submit_solution` and `check_run`.

    Args:
        run: the run.
        whole: give every value whole, however large.
    """
    machine = run.machine
    status = run.status
    result: JSONObject = {"run": run.id, "status": status}
    if machine.mode == "solve":
        name, why = run.turns.mind or "turns", run.turns.why
        result["mind"] = {"name": name, "why": why} if why else {"name": name}
    reason = run.runner.lost or machine.reason
    if reason:
        result["reason"] = reason
    if machine.has_output:
        result["output"] = machine.output if whole else _short_output(machine.output)
    elif status != "needs_solution":
        result["state"] = machine.state if whole else _short_state(machine)
        results = results_of(machine, whole=whole)
        if results:
            result["results"] = results
    result["errors"] = [error if whole else shorten_literal(error) for error in run.errors()]
    if run.idea is not None:
        result["idea"] = run.idea
    if status == "needs_solution" and run.runner.request is not None:
        result["turn"] = run.turn
        result["requests"] = [_request(run.runner.request)]
    if status == "needs_approval" or (status == "running" and run.questions()):
        result["approvals"] = run.approvals()
    # By turns the host's model answers, and its tokens are the host's: none are spent here.
    spent = machine.spending
    result["usage"] = {"requests": run.requests, "tokens": spent.tokens, **({"cost": spent.cost} if spent.cost else {})}
    return result


def _request(request: Request) -> JSONObject:
    messages: list[JSON] = list(request.texts)
    return {"id": request.id, "instructions": INSTRUCTIONS, "context": messages, "schema": request.schema}


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


def results_of(machine: Machine, *, whole: bool) -> JSONObject:
    """The values of calls without an output path, by place (`INSTANCE.PLACE` where there are instances)."""
    found: JSONObject = {}
    room = RESULTS
    for progress in machine.history:
        if progress.standing is not Standing.DONE or not progress.wrote or progress.wrote[0][0] != "results":
            continue
        path = progress.wrote[0]
        instance = progress.call.instance or None
        key = f"{instance}.{path[1]}" if instance else path[1]
        if whole:
            found[key] = progress.value
            continue
        shown = shorten(progress.value, path, instance=instance, small=INLINE if room > 0 else 64)
        room -= len(encode(shown))
        found[key] = shown
    return found


def given_by(machine: Machine) -> JSON:
    """What a run gives as a function: its output; where none was asked for its state, or else the results."""
    if machine.has_output:
        return machine.output
    results = {} if machine.state else results_of(machine, whole=True)
    return {"results": results} if results else machine.state


def value_at(machine: Machine, text: str) -> JSON:
    """The value at a reference as it stands.

    Raises:
        ReferenceSyntaxError: it is none.
        UnknownPathError: nothing is there.
    """
    if text.strip() in ("†output", "output"):
        if not machine.has_output:
            raise UnknownPathError("†output: the run has no output")
        return machine.output
    expression = parse_reference(text if text.startswith("†") else f"†{text}")
    last = ""
    for alternative in expression.alternatives:
        found: JSON | Missing = None
        for operand in alternative:
            document = machine.memory.documents.get(operand.instance or "", {})
            found = read_path(document, operand.full)
            if isinstance(found, Missing):
                last = describe_missing(document, operand.full, operand.instance)
                break
        if not isinstance(found, Missing):
            return found
    raise UnknownPathError(f"{text}: {last}")


def rejection(errors: Sequence[JSONObject]) -> str:
    """The faults of a malformed solution or plan, one a line, at most 20."""
    lines: list[str] = []
    for entry in errors[:20]:
        call, error = entry.get("call"), entry.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        if isinstance(call, dict):
            lines.append(f"calls[{entry.get('place')}] ({call.get('_tool')}): {message}")
        else:
            lines.append(str(message))
    if len(errors) > 20:
        lines.append(f"... and {len(errors) - 20} more")
    return "\n".join(lines)
