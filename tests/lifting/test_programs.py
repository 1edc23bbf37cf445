"""Whatever a mind carries out by hand: a plan that nobody had to accept gives what the program gives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.function import same
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON, JSONObject
from tests.lifting.programs import CODE, TOOLS, Program, inputs, member, programs
from tests.lifting.runs import approved, turn

ANY: JSONObject = {"type": ["string", "number", "object", "array", "boolean"]}


def calls_of(program: Program, places: Sequence[int], taken: JSONObject, results: list[JSON]) -> list[JSON]:
    return [
        {
            "_tool": program.steps[place].named(taken, results),
            **{key: one.written(taken, results) for key, one in program.steps[place].parameters.items()},
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
        parameters: JSONObject = {key: one.value(taken, results) for key, one in step.parameters.items()}
        results.append(CODE[step.named(taken, results)](**parameters))
    return program.given_output(taken, results, written=False)


def unforeseeable(program: Program, plan: JSONObject, seen: Sequence[JSONObject]) -> bool:
    """Whether nothing that was seen could have told: what a mind worked out was equal, in every run, to one thing alone
    that it had seen; or what decided was read as well, or was otherwise in another run and led to the same.
    """
    lifting = plan["lifting"]
    assert isinstance(lifting, dict)
    taken = lifting["taken"]
    assert isinstance(taken, dict)
    leaves = program.outputs | {
        f"calls.{place}.{key}": one for place, step in enumerate(program.steps) for key, one in step.parameters.items()
    }
    if any(path in taken and one.how not in ("read", "text") for path, one in leaves.items()):
        return True
    read = {at for one in leaves.values() for at in one.reads() if at != one.flag}
    flags = [one.flag for one in (*leaves.values(), *program.steps) if one.flag is not None]
    if any(flag in read or (flag[0] is not None and (flag[0], "") in read) for flag in flags):
        return True
    return any(len({value_of(program, flag, given) for given in seen}) > 1 for flag in flags)


def value_of(program: Program, flag: tuple[int | None, str], taken: JSONObject) -> bool:
    results: list[JSON] = []
    for step in program.steps:
        parameters: JSONObject = {key: one.value(taken, results) for key, one in step.parameters.items()}
        results.append(CODE[step.named(taken, results)](**parameters))
    return bool(member(flag, taken, results))


async def wrong_answers(program: Program, seen: Sequence[JSONObject], fresh: Sequence[JSONObject]) -> list[str] | None:
    """The new inputs for which a plan that was published unasked is wrong; None: it was not published."""
    seen, fresh = (
        [{key: value for key, value in one.items() if key in program.takes()} for one in many] for many in (seen, fresh)
    )
    if any(same(one, other) for one, other in combinations(seen, 2)):
        return None
    async with Bridge(toolbox=TOOLS) as bridge:
        first, *others = runs = [await carried_out(bridge, program, one) for one in seen]
        if not all(same(run.given(), right(program, one)) for run, one in zip(runs, seen, strict=True)):
            # Text that holds JSON, written as an output that may be an object, is read as that object.
            return None
        try:
            published = await bridge.publish(
                first.id, "program", answer="plan", choices={"runs": [one.id for one in others]}
            )
        except PublicationError:
            return None
        assert published.plan is not None
        if unforeseeable(program, published.plan, seen):
            return []
        found: list[str] = []
        for one in fresh:
            replay = await bridge.call_idea("program", one)
            assert replay.run is not None
            await approved(replay.run)
            # A plan that fails says so: that is no wrong answer.
            if replay.run.status == "done" and not replay.run.errors():
                given, expected = replay.run.given(), right(program, one)
                if not same(given, expected):
                    found.append(f"{one}: {given!r} instead of {expected!r}; {published.plan}")
        return found


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    programs(), st.lists(inputs(), min_size=1, max_size=3, unique_by=str), st.lists(inputs(), min_size=3, max_size=3)
)
def test_no_plan_that_nobody_accepted_is_wrong(
    program: Program, seen: list[JSONObject], fresh: list[JSONObject]
) -> None:
    assert not anyio.run(wrong_answers, program, seen, fresh)
