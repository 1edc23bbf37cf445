"""Room context: what a run that answers one call is given to see (DESIGN 4.2, 4.10).

A latent call of here is answered with the context of its Request before one's eyes; a clean room sees the call and
what it imports, and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from ideabridge.bridge.context.message import read_message
from ideabridge.bridge.context.reference import Path, format_reference
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.machine import Machine
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.tool import ANONYMOUS, Tool

SOLVE: Final = Tool(
    "solve",
    "Solve a task in a clean room: the agent loop on the task, which sees its input and _imports and nothing else.",
    {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What to do, in words."},
            "input": {"type": "object", "description": "What †input reads there."},
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names or patterns of tools of this run that it may call; none if absent.",
            },
            "output_schema": {"type": "object", "description": "JSON Schema of the result; text if absent."},
        },
        "required": ["task"],
        "additionalProperties": False,
    },
    module=ANONYMOUS,
)
"""The tool of `_module: "anonymous"` itself; latent tools of here can be called there too."""

_TASK: Final = (
    "Write the result of the call below as `output`, as the tool's description asks; it satisfies the output's schema."
    " There are no calls to make."
)


def import_messages(imports: Iterable[tuple[Path, JSON]]) -> list[JSON]:
    """Context messages in which the imports are read under the paths they have here.

    Args:
        imports: (path, value), such as (`("state", "doc")`, value).
    """
    messages: list[JSON] = []
    for path, value in imports:
        kind, rest = path[0], list(path[1:])
        if kind == "results":
            # Results of calls are data to those who did not make them.
            kind, rest = "data", ["results", *rest]
        if kind == "data" and rest:
            messages.append({"type": "data", "kind": rest[0], "data": _nested(rest[1:], value)})
        elif kind == "data" and isinstance(value, dict):
            messages.extend({"type": "data", "kind": one, "data": held} for one, held in value.items())
        else:
            messages.append({"type": kind, kind: _nested(rest, value)})
    return messages


def _nested(path: list[str], value: JSON) -> JSON:
    for key in reversed(path):
        value = {key: value}
    return value


def here(machine: Machine, request: Request | None, instance: str) -> list[JSON]:
    """What a latent call of here is answered with before one's eyes: the context of its Request, of its own instance.

    Args:
        machine: of the run the call is part of.
        request: the Request it was proposed in; None: a plan, which nobody was asked for.
        instance: of the call; inside the room it is the only one, and paths need no name.
    """
    context = request.context if request is not None else [message.to_json() for message in machine.messages]
    found: list[JSON] = []
    for raw in context:
        message = read_message(raw)
        # Tools and plans are for who makes calls, errors for who mends them.
        if message.instance in ("", instance) and message.type not in ("tool", "plan", "error"):
            # A Request of a later step tells large values by reference, which is not read in here.
            value = machine.state_of(message.instance) if message.type == "state" else message.value
            found.append(dataclasses.replace(message, value=value, instance="").to_json())
    return found


def latent_context(effect: Execute, before: list[JSON]) -> list[JSON]:
    """The context in which the result of a latent call is written: parameters and imports stand there whole.

    Args:
        effect: the call, resolved.
        before: messages to see besides.
    """
    call: JSONObject = {"_tool": effect.tool.name}
    if effect.tool.description:
        call["description"] = effect.tool.description
    call["parameters"] = effect.parameters
    shown: list[JSON] = [
        f"{format_reference(path)}:\n{value if isinstance(value, str) else encode_text(value)}"
        for path, value in effect.imports
    ]
    return [*before, *shown, f"{_TASK}\n{encode_text(call)}"]
