"""Groups in the machine: what a pattern means for every order in which calls can end."""

from __future__ import annotations

import random

import pytest

from ideabridge.bridge.loop.event import (
    CallFinished,
    CallProposed,
    Event,
    GroupCommitted,
    JournalError,
    Pattern,
    SolutionCancelled,
    SolutionProposed,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON
from tests.loop.driving import Driven, started

STATE: list[JSON] = [{"type": "state", "state": {"kept": 1}}]


def failing(names: set[int]) -> Driven:
    """Calls of these indexes fail."""
    return Driven(lambda effect: (effect.call.index not in names, effect.parameters.get("x")))


def proposed(driven: Driven, calls: list[JSON], pattern: Pattern, parallel: int = 16) -> Driven:
    settings = Settings(approval="allow_all", parallel_calls=parallel)
    driven.post(started(STATE, mode="solve", settings=settings))
    driven.post(SolutionProposed(calls, pattern=pattern))
    return driven


def folded(journal: list[Event]) -> Machine:
    machine = Machine()
    for event in journal:
        machine.receive(event)
    return machine


def writing(count: int) -> list[JSON]:
    return [{"_tool": "echo", "x": number, "_outputPath": f"v{number}"} for number in range(count)]


def random_group(rng: random.Random, pattern: Pattern) -> tuple[list[JSON], set[int]]:
    calls: list[JSON] = []
    count = rng.randint(1, 6)
    for number in range(count):
        call: dict[str, JSON] = {
            "_tool": rng.choice(["echo", "write"]),
            "x": number,
            "_outputPath": f"v{number}",
        }
        if rng.random() < 0.2:
            call |= {"_each": list(range(rng.randint(1, 3)))}

        if pattern == "all" and number and rng.random() < 0.5:
            call["y"] = f"†state.v{rng.randrange(number)}"

        calls.append(call)

    return calls, {number for number in range(count) if rng.random() < 0.25}


@pytest.mark.parametrize("pattern", ["all", "any", "race"])
def test_whatever_ends_first_the_state_is_that_of_the_pattern(pattern: Pattern) -> None:
    # Run all seeds in one test, because reporting a test for each would take longer than running
    # it.
    for seed in range(300):
        check_random_group(pattern, seed)


def check_random_group(pattern: Pattern, seed: int) -> None:
    rng = random.Random(seed)
    calls, bad = random_group(rng, pattern)
    driven = failing(bad)
    driven.random = rng
    proposed(driven, calls, pattern, parallel=rng.randint(1, 6))
    while driven.running and driven.machine.phase == "solving":
        before = driven.machine.state
        driven.finish_one()
        driven.running = [one for one in driven.running if not _ended(driven, one.key)]
        if driven.machine.phase == "solving" and pattern == "all":
            assert driven.machine.state == before == {"kept": 1}, (
                "a group is seen outside before all of it is there"
            )

    assert driven.machine.phase == "asking"
    written = {key for key in driven.machine.state if key != "kept"}
    done = {f"v{one.call.place}" for one in driven.machine.history if one.status.value == "done"}
    assert written == done
    if pattern == "all":
        assert written == (set() if bad else {f"v{number}" for number in range(len(calls))})
        commits = [event for event in driven.journal if isinstance(event, GroupCommitted)]
        assert len(commits) == (0 if bad else 1)
    elif pattern == "any":
        assert len(written) == (0 if len(bad) == len(calls) else 1)
        assert bool(driven.machine.errors) == (len(bad) == len(calls))
    else:
        assert len(written) <= 1
        assert bool(driven.machine.errors) == (not written)

    # The journal alone leads to the same result, wherever it is cut off.
    assert folded(driven.journal).documents == driven.documents
    part = Machine()
    is_committed = False
    for event in driven.journal[:-1]:
        part.receive(event)
        is_committed = is_committed or isinstance(event, GroupCommitted)
        assert pattern != "all" or is_committed or part.state == {"kept": 1}


def _ended(driven: Driven, key: tuple[int, int | None]) -> bool:
    call, item = key
    progress = driven.machine.history[call]
    return progress.settled or progress.items[item or 0].finished


def test_what_ends_in_the_same_moment_as_the_winner_never_writes() -> None:
    driven = proposed(Driven(), writing(2), "any")
    # Both calls ended before anybody could be told to stop.
    machine = driven.machine
    machine.receive(CallFinished(0, value="first"))
    machine.receive(CallFinished(1, value="late"))
    driven.perform()
    assert machine.state == {"kept": 1, "v0": "first"}
    assert [one.status.value for one in machine.history] == ["done", "cancelled"]


def test_a_group_cut_between_the_last_call_and_its_commit_is_committed_when_it_is_taken_up() -> (
    None
):
    driven = proposed(Driven(), writing(2), "all").finish_all()
    cut = next(
        number for number, event in enumerate(driven.journal) if isinstance(event, GroupCommitted)
    )
    again = Driven.resumed(driven.journal[:cut], driven.execution, 0)
    assert again.machine.state == {"kept": 1, "v0": 0, "v1": 1}


def test_a_group_cut_between_a_failure_and_its_cancellations_runs_nothing_again() -> None:
    driven = proposed(failing({0}), writing(3), "all")
    driven.finish_one(0)
    cut = next(
        number
        for number, event in enumerate(driven.journal)
        if isinstance(event, CallFinished)
        and event.error is not None
        and event.error.get("kind") == "cancelled"
    )
    machine = folded(driven.journal[:cut])
    assert [type(effect).__name__ for effect in machine.due()] == ["Cancel", "Cancel"]


def test_a_solution_is_cancelled_while_it_is_on_its_way_and_only_then() -> None:
    driven = proposed(Driven(), writing(2), "all")
    driven.finish_one(0)
    driven.post(SolutionCancelled("enough"))
    assert driven.machine.state == {"kept": 1}
    assert driven.machine.errors == [
        {
            "call": None,
            "error": {"kind": "cancelled", "message": "the solution was cancelled: enough"},
        }
    ]
    with pytest.raises(JournalError, match="not solving"):
        driven.machine.receive(SolutionCancelled("again"))

    streaming = Driven()
    streaming.post(started(mode="solve"))
    streaming.post(CallProposed({"_tool": "echo", "x": 1}))
    with pytest.raises(JournalError, match="there is no running Solution to cancel"):
        streaming.machine.receive(SolutionCancelled("too early"))


def test_a_group_has_no_output() -> None:
    machine = Machine()
    machine.receive(started(STATE, mode="plan"))
    faults = machine.check(SolutionProposed(writing(1), "†state.v0", pattern="all")).errors
    assert "a group has no output" in str(faults[0]["error"])


def test_a_solution_without_a_pattern_is_read_as_before() -> None:
    event = event_from_json(
        {"event": "solution_proposed", "calls": [{"_tool": "echo", "x": 1}], "output": None}
    )
    assert isinstance(event, SolutionProposed)
    assert event.pattern is None
    assert "pattern" not in event.to_json()
