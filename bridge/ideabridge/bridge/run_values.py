"""Run values: what a run has made, and what was wrong with what it was given (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ideabridge.bridge.context.document import Missing, describe_missing
from ideabridge.bridge.context.document import read as read_path
from ideabridge.bridge.context.preview import shorten
from ideabridge.bridge.context.reference import parse_reference
from ideabridge.bridge.errors import UnknownPathError
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Standing
from ideabridge.tools.encoding import JSON, JSONObject, encode

INLINE: Final = 4096
"""Bytes of JSON up to which an answer gives a value whole (DESIGN 6)."""

RESULTS: Final = 128 * 1024
"""Bytes of results an answer gives together; the others are told by reference alone."""


def results_of(machine: Machine, *, whole: bool) -> JSONObject:
    """The values of calls without an output path, by place (`INSTANCE.PLACE` where there are instances)."""
    found: JSONObject = {}
    room = RESULTS
    for progress in machine.history:
        if progress.standing is not Standing.DONE or not progress.wrote or progress.wrote[0][0] != "results":
            continue
        if progress.staged:
            # Seen inside its group only, until all of it is there.
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
            document = machine.documents.get(operand.instance or "", {})
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
    cycles: set[str] = set()
    for entry in errors[:20]:
        call, error = entry.get("call"), entry.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        if isinstance(message, str) and message.startswith("a cycle: "):
            # Each call of a cycle has the same error, which names them all.
            if message in cycles:
                continue
            cycles.add(message)
        if isinstance(call, dict):
            place = entry.get("in_solution", entry.get("place"))
            lines.append(f"calls[{place}] ({call.get('_tool')}): {message}")
        else:
            lines.append(str(message))
    if len(errors) > 20:
        lines.append(f"... and {len(errors) - 20} more")
    return "\n".join(lines)
