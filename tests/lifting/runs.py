"""Runs by scripted minds, which copy values by hand as models do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.state import parsed_text
from ideabridge.bridge.runs.people import DecisionName
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
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


@dataclass(frozen=True)
class Verdict:
    """What a person says of a call that asks; `change`: of the call as proposed, for an edit."""

    decision: DecisionName = "approve"
    change: Callable[[JSONObject], JSONObject] | None = None


Person = Callable[[JSONObject], Verdict]
"""Decides about a call, its references resolved."""


def approves(_: JSONObject) -> Verdict:
    """A person who approves whatever asks."""
    return Verdict()


SHORTEN: JSON = {
    "type": "tool",
    "tool": {
        "name": "shorten",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
        "output": {"type": "string"},
    },
}
"""A latent tool: nothing runs, a mind writes what it gives."""


class Shortener:
    """A mind for one latent step: writes the first letter of what it is asked to shorten."""

    name = "scripted"

    async def answer(self, request: Request) -> AsyncIterator[str]:
        text = str(request.texts[-1]["content"])
        asked = json.loads(text[text.index("{") :])
        yield json.dumps({"calls": [], "output": shorter(asked["parameters"])})


def shorter(parameters: JSONObject) -> str:
    """What the latent step gives."""
    return str(parameters["text"])[0]


def turn(*calls: JSON, output: JSON = None) -> JSONObject:
    """A solution."""
    return {"calls": list(calls), "output": output}


async def solved(
    bridge: Bridge,
    task: str,
    given: JSONObject,
    turns: Sequence[Turn],
    schema: JSONObject | None,
    *,
    person: Person = approves,
    context: list[JSON] | None = None,
) -> Run:
    """A run of a task by a mind that answers so, and a person who decides so about what asks."""
    run = await bridge.solve(task, input=given, output_schema=schema, context=context, mind="turns")
    for number, answer in enumerate(turns):
        assert run.status == "needs_solution", run.answer()
        run.submit(number, answer(Seen(given, run)))
        await decided(run, person)

    assert run.status == "done", run.answer()
    return run


async def approved(run: Run) -> None:
    """Wait for a run, and approve whatever it asks."""
    await decided(run, approves)


async def decided(run: Run, person: Person) -> None:
    """Wait for a run; a person decides about what it asks, and latent steps are answered."""
    while True:
        status = await run.wait(20)
        if status == "needs_approval":
            for question in run.questions():
                verdict = person(question.shown)
                call = None if verdict.change is None else verdict.change(question.shown)
                run.decide(question.approval, verdict.decision, by="a person", call=call)
        elif status == "needs_solution" and run.rooms:
            for (call, item), room in run.rooms.items():
                room.submit(0, turn(output=shorter(run.calls()[call].items[item or 0].parameters)))
        else:
            return


@dataclass
class Answer:
    """What a published plan gave.

    Attributes:
        value: the output.
        assumed: the paths that were assumed.
        noted: the places and references of what was noted.
        asked: the reasons of the questions before calls.
    """

    value: JSON
    assumed: list[str]
    noted: list[str]
    asked: list[str]

    @property
    def is_sure(self) -> bool:
        """True if the answer says nothing of an assumption."""
        return not (self.assumed or self.asked)


async def answered(bridge: Bridge, name: str, given: JSONObject) -> Answer:
    """Call a published plan; a person approves whatever it asks, as it is proposed."""
    replay = await bridge.start_idea(name, given)
    run = replay.run
    assert run is not None
    asked: list[str] = []

    def person(_: JSONObject) -> Verdict:
        return Verdict()

    while await run.wait(20) == "needs_approval":
        for question in run.questions():
            if question.call is not None:
                doubts = run.calls()[question.call].doubts.ask
            else:
                doubts = None
            if doubts is not None:
                asked.append(question.why)
            run.decide(question.approval, "approve", by="a person")

    await decided(run, person)
    value = await run.result()
    return Answer(
        value, [str(one["at"]) for one in run.assumed], [str(one["at"]) for one in run.noted], asked
    )


async def called(bridge: Bridge, name: str, given: JSONObject) -> JSON:
    """What a published plan gives."""
    return (await answered(bridge, name, given)).value


def checked(publication: Publication) -> str:
    """How a publication was checked: `self-consistent` or `confirmed`."""
    lifting = (publication.plan or {})["lifting"]
    assert isinstance(lifting, dict)
    return str(lifting["checked"])
