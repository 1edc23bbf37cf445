"""Whatever a mind carries out by hand: the tool made of it gives what the program gives, or says
what it assumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON, JSONObject
from tests.asking import ASKS
from tests.lifting.programs import CODE, TOOLS, NoValueError, Program, inputs, programs
from tests.lifting.runs import approved, turn

ANY: JSONObject = {"type": ["string", "number", "object", "array", "boolean"]}


def calls_of(
    program: Program, places: Sequence[int], taken: JSONObject, results: list[JSON]
) -> list[JSON]:
    return [
        {
            "_tool": program.steps[place].named(taken, results),
            **{
                key: one.written(taken, results)
                for key, one in program.steps[place].parameters.items()
            },
        }
        for place in places
    ]


async def carried_out(bridge: Bridge, program: Program, taken: JSONObject) -> Run:
    """A run by a mind that carries a program out."""
    run = await bridge.solve("x", input=taken, output_schema=ANY)
    for number, places in enumerate([*program.requests(), None]):
        results = [one.value for one in run.calls()]
        if places is None:
            run.submit(number, turn(output=program.given_output(taken, results, written=True)))
        else:
            run.submit(number, turn(*calls_of(program, places, taken, results)))
        await approved(run)

    assert run.status == "done", run.answer()
    return run


def right(program: Program, taken: JSONObject) -> JSON:
    """What the program gives."""
    results: list[JSON] = []
    for step in program.steps:
        parameters: JSONObject = {
            key: one.value(taken, results) for key, one in step.parameters.items()
        }
        results.append(CODE[step.named(taken, results)](**parameters))
    return program.given_output(taken, results, written=False)


def beyond(program: Program) -> bool:
    """Whether the program does something that no listed kind of explanation is: it branches, or
    takes the first member of an object.
    """
    parts = [
        *program.outputs.values(),
        *(one for step in program.steps for one in step.parameters.values()),
    ]
    return any(one.flag is not None for one in (*parts, *program.steps)) or any(
        one.how == "any" for one in parts
    )


@dataclass
class Answers:
    """What a tool made of runs answers to new inputs.

    Attributes:
        counts: by `right` or `wrong`, and `sure`, `assumed` or `asked`; also
            `failed`, `unpublished`.
        silent: one text for each answer that is wrong without saying that it assumes something.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    silent: list[str] = field(default_factory=list[str])


def known(program: Program, inputs: Sequence[JSONObject]) -> list[tuple[JSONObject, JSON]]:
    """The inputs that the program has an answer to, without the members that it does not read,
    and the answers.
    """
    found: list[tuple[JSONObject, JSON]] = []
    for one in inputs:
        taken = {key: value for key, value in one.items() if key in program.takes()}
        with suppress(NoValueError):
            found.append((taken, right(program, taken)))
    return found


async def answers(
    program: Program, seen: Sequence[JSONObject], fresh: Sequence[JSONObject]
) -> Answers:
    """What the tool made of runs answers to new inputs."""
    found = Answers()
    known_inputs = known(program, seen)
    if not known_inputs:
        return found
    async with Bridge(ASKS, toolbox=TOOLS) as bridge:
        first, *others = runs = [await carried_out(bridge, program, one) for one, _ in known_inputs]
        if not all(
            same(run.given(), answer) for run, (_, answer) in zip(runs, known_inputs, strict=True)
        ):
            # Text that contains JSON, as an output that may be an object, is read as that object.
            return found

        try:
            published = await bridge.publish(
                first.id, "program", choices={"runs": [one.id for one in others]}
            )
        except PublicationError:
            # The named runs had the same data or made other calls.
            published = await bridge.publish(first.id, "program")

        if published.plan is None:
            found.counts["unpublished"] += 1
            return found

        for one, expected in known(program, fresh):
            replay = await bridge.start_idea("program", one)
            assert replay.run is not None
            asked = False
            while await replay.run.wait(30) == "needs_approval":
                for question in replay.run.questions():
                    asked = asked or replay.run.calls()[question.call or 0].doubts.ask is not None
                    replay.run.decide(question.approval, "approve", by="a person")

            # A plan that fails reports its failure, so do not count it as a wrong answer.
            if replay.run.status != "done" or replay.run.errors():
                found.counts["failed"] += 1
                continue

            given = replay.run.given()
            kind = "right" if same(given, expected) else "wrong"
            if asked:
                says = "asked"
            elif replay.run.assumed:
                says = "assumed"
            else:
                says = "sure"

            found.counts[f"{kind}, {says}"] += 1
            if (kind, says) == ("wrong", "sure"):
                found.silent.append(f"{one}: {given!r} instead of {expected!r}; {published.plan}")

        return found


def silent_answers(
    program: Program, seen: Sequence[JSONObject], fresh: Sequence[JSONObject]
) -> list[str]:
    return anyio.run(partial(answers, program, seen, fresh)).silent


@settings(max_examples=60, derandomize=True)
@given(
    programs(),
    st.lists(inputs(), min_size=1, max_size=3, unique_by=str),
    st.lists(inputs(), min_size=3, max_size=3),
)
def test_no_answer_of_a_random_program_is_silently_wrong(
    program: Program, seen: list[JSONObject], fresh: list[JSONObject]
) -> None:
    assert beyond(program) or not silent_answers(program, seen, fresh)


@pytest.mark.long
@settings(
    max_examples=5_000,
    derandomize=True,
)
@given(
    programs(),
    st.lists(inputs(), min_size=1, max_size=3, unique_by=str),
    st.lists(inputs(), min_size=3, max_size=3),
)
def test_no_answer_of_many_random_programs_is_silently_wrong(
    program: Program, seen: list[JSONObject], fresh: list[JSONObject]
) -> None:
    assert beyond(program) or not silent_answers(program, seen, fresh)
