"""The mind of the crash test: it writes slowly, in small pieces, and reports first
what it was asked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import anyio

from ideabridge.bridge.context.mind import Usage
from ideabridge.bridge.context.request import Request

TASK = "crash task "
PIECE = 16
"""Characters of a piece."""

PAUSE = 0.003
"""Seconds between two pieces."""


class SlowMind:
    """Answers the tasks of `task_text`: first half of the calls, then the rest with the output.
    After an answer that was cut off it writes the calls whose results are not in the state yet.

    Args:
        say: gets `asked ID` with the id of each Request before the first piece of its answer.
    """

    name = "slow"

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        """The Solution of a Request, in pieces."""
        self._say(f"asked {request.id}")
        text = json.dumps(solution_for(request), ensure_ascii=False)
        for start in range(0, len(text), PIECE):
            yield text[start : start + PIECE]
            await anyio.sleep(PAUSE)


def task_text(key: str, n: int, count: int, ms: int) -> str:
    """A task: a chain of calls of read-only and idempotent tools.

    Args:
        key: with which the keys of its calls begin.
        n: number it begins with.
        count: how many calls.
        ms: milliseconds each takes.
    """
    return TASK + json.dumps({"key": key, "n": n, "count": count, "ms": ms})


def solution_of(task: dict[str, Any], done: Collection[str]) -> dict[str, Any]:
    """A Solution of a task: first half of its calls, then the rest with the output.

    Args:
        task: the members of `task_text`.
        done: the names of the values that the state has.
    """
    calls: list[dict[str, Any]] = []
    for place in range(task["count"]):
        reads = place % 3 != 2 and place > 0
        calls.append(
            {
                "_tool": "put" if place % 2 else "look",
                "key": f"{task['key']}.{place}",
                "n": f"†state.v{place - 1}.value" if reads else task["n"] + place,
                "ms": task["ms"],
                "_outputPath": f"v{place}",
            }
        )

    if not done:
        return {"calls": calls[: task["count"] // 2], "output": None}

    output = {"all": [f"†state.v{place}.value" for place in range(task["count"])]}
    return {"calls": [call for call in calls if call["_outputPath"] not in done], "output": output}


def solution_for(request: Request) -> dict[str, Any]:
    """The Solution of a Request, by the state that it shows."""
    texts = [str(message["content"]) for message in request.texts]
    [task] = [
        json.JSONDecoder().raw_decode(text.split(TASK)[1])[0] for text in texts if TASK in text
    ]
    state: dict[str, Any] = {}
    for message in request.context:
        if message.type == "state":
            state |= message.value if isinstance(message.value, dict) else {}

    return solution_of(task, state)
