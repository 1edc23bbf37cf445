"""Runs with rooms, for the crash test: a plan that calls ideas and a clean room, and a
task for a mind.
"""

from __future__ import annotations

import random
from typing import Any

from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject

from .mind import task_text
from .plans import Plan

TOOLS = ["look", "put"]

OUTPUT: JSONObject = {
    "type": "object",
    "properties": {"all": {"type": "array", "items": {"type": "integer"}}},
    "required": ["all"],
    "additionalProperties": False,
}
"""Schema of what a task gives."""

_KEYS: JSON = {"type": "object", "additionalProperties": {"type": "string"}}
_NUMBER: JSON = {"type": "integer"}


def publish_ideas(store: Store) -> None:
    """Publish `chain`, a plan of three calls of tools, and `deep`, which calls
    `chain` and one tool.
    """
    chain: list[JSON] = [
        {
            "_tool": "look",
            "key": "†input.keys.a",
            "n": "†input.n",
            "ms": "†input.ms",
            "_outputPath": "a",
        },
        {
            "_tool": "put",
            "key": "†input.keys.b",
            "n": "†state.a.value",
            "ms": "†input.ms",
            "_outputPath": "b",
        },
        {
            "_tool": "look",
            "key": "†input.keys.c",
            "n": "†state.a.value",
            "ms": "†input.ms",
            "_outputPath": "c",
        },
    ]
    _publish(store, "chain", chain, {"value": "†state.b.value", "side": "†state.c.value"})
    given: JSONObject = {"keys": "†input.keys", "n": "†input.n", "ms": "†input.ms"}
    deep: list[JSON] = [
        {"_tool": "chain", "_module": "idea:chain", **given, "_outputPath": "i"},
        {
            "_tool": "put",
            "key": "†input.keys.d",
            "n": "†state.i.value",
            "ms": "†input.ms",
            "_outputPath": "p",
        },
    ]
    _publish(store, "deep", deep, {"value": "†state.p.value", "side": "†state.i.side"})


def _publish(store: Store, name: str, calls: list[JSON], output: JSON) -> None:
    properties: JSONObject = {"keys": _KEYS, "n": _NUMBER, "ms": _NUMBER}
    parameters: JSONObject = {
        "type": "object",
        "properties": properties,
        "required": ["keys", "n", "ms"],
    }
    idea = store.ideas.save(
        Idea([name], {"type": "object"}, {"calls": calls, "output": output}), IdeaMeta(title=name)
    )
    store.publications.publish(
        NewPublication(
            name=name,
            idea_id=idea,
            description=f"The {name} of the crash test.",
            answer="plan",
            input_schema=parameters,
            output_schema=None,
            annotations={"readOnlyHint": False, "idempotentHint": True},
            plan={"calls": calls, "output": output},
        )
    )


def rooms_plan(number: int, seed: int, slowness: int = 15, *, minded: bool = True) -> Plan:
    """A plan that calls a tool, ideas (one in another, and one for each item), and a clean
    room of the mind.

    Args:
        number: of the plan.
        seed: of the whole test.
        slowness: most milliseconds a call takes.
        minded: with the clean room, which a mind answers.
    """
    draw = random.Random(f"{seed} rooms {number}")

    def idea(name: str, label: str, n: Any) -> dict[str, Any]:
        keys = {one: f"R{number}/{label}.{one}" for one in "abcd"}
        return {
            "_tool": name,
            "_module": f"idea:{name}",
            "keys": keys,
            "n": n,
            "ms": draw.randint(0, slowness),
        }

    def item(place: int) -> dict[str, Any]:
        keys = {one: f"R{number}/m{place}.{one}" for one in "abcd"}
        return {"keys": keys, "n": draw.randint(0, 999), "ms": draw.randint(0, slowness)}

    items = [item(place) for place in range(draw.randint(1, 3))]
    each = {"keys": "†item.keys", "n": "†item.n", "ms": "†item.ms", "_each": "†input.many"}
    said = {
        "_tool": "solve",
        "_module": "anonymous",
        "task": task_text(f"R{number}/s", number, draw.randint(3, 6), draw.randint(0, slowness)),
        "tools": TOOLS,
        "output_schema": OUTPUT,
    }
    after = ["†state.s"] if minded else []
    calls = [
        {
            "_tool": "look",
            "key": f"R{number}/first",
            "n": number,
            "ms": draw.randint(0, slowness),
            "_outputPath": "f",
        },
        {**idea("chain", "i", "†state.f.value"), "_outputPath": "i"},
        {"_tool": "deep", "_module": "idea:deep", **each, "_outputPath": "m"},
        *([{**said, "_outputPath": "s"}] if minded else []),
        {
            **idea("deep", "j", "†state.i.value"),
            "_imports": ["†state.m", *after],
            "_outputPath": "j",
        },
        {
            "_tool": "put",
            "key": f"R{number}/last",
            "n": "†state.j.value",
            "ms": 0,
            "_outputPath": "l",
        },
    ]
    output = {"i": "†state.i", "m": "†state.m", "j": "†state.j", "l": "†state.l.value"}
    output |= {"s": "†state.s"} if minded else {}
    return {"name": f"rooms {number}", "calls": calls, "input": {"many": items}, "output": output}


def task_of(number: int, seed: int, slowness: int = 15) -> str:
    """The task of a run that a mind answers."""
    draw = random.Random(f"{seed} solve {number}")
    return task_text(f"S{number}", number, draw.randint(4, 8), draw.randint(0, slowness))
