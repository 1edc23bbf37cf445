"""Runs by scripted minds, which copy values by hand as models do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.document import parsed_text
from ideabridge.bridge.run import Run
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True)
class Seen:
    """What a scripted mind has before its eyes: the input, and what the calls so far gave."""

    input: JSONObject
    run: Run

    def __getattr__(self, name: str) -> JSON:
        return self.input[name]

    def result(self, place: int, *keys: str | int) -> JSON:
        """What a call gave, or a part of it; text that holds JSON is read."""
        value = self.run.calls()[place].value
        for key in keys:
            inner = parsed_text(value) if isinstance(value, str) else value
            if isinstance(inner, list) and isinstance(key, int):
                value = inner[key]
            else:
                assert isinstance(inner, dict)
                value = inner[str(key)]
        return value


Turn = Callable[[Seen], JSONObject]


def turn(*calls: JSON, output: JSON = None) -> JSONObject:
    """A solution."""
    return {"calls": list(calls), "output": output}


async def solved(bridge: Bridge, task: str, given: JSONObject, turns: Sequence[Turn], schema: JSONObject | None) -> Run:
    """A run of a task by a mind that answers so; whatever asks is approved."""
    run = await bridge.solve(task, input=given, output_schema=schema)
    for number, answer in enumerate(turns):
        assert run.status == "needs_solution", run.answer()
        run.submit(number, answer(Seen(given, run)))
        await approved(run)
    assert run.status == "done", run.answer()
    return run


async def approved(run: Run) -> None:
    """Wait for a run, and approve whatever it asks."""
    while await run.wait(20) == "needs_approval":
        for question in run.questions():
            run.decide(question.approval, "approve", by="a person")


async def called(bridge: Bridge, name: str, given: JSONObject) -> JSON:
    """What a published plan gives."""
    replay = await bridge.call_idea(name, given)
    assert replay.run is not None
    await approved(replay.run)
    return await replay.run.result()
