"""The work of publishing grows with the calls of a run, and not with their square."""

from __future__ import annotations

import tracemalloc

import pytest

from ideabridge.bridge import Bridge, report_of
from ideabridge.bridge.context.plan_literals import read_computations
from ideabridge.bridge.lifting.alike import runs_like
from ideabridge.bridge.lifting.function import read_function
from ideabridge.bridge.lifting.index import Values
from ideabridge.bridge.lifting.leaves import Leaf
from ideabridge.bridge.lifting.lift import lift
from ideabridge.bridge.lifting.lifted import arranged
from ideabridge.bridge.lifting.parameters import Parameter, ParameterDecision, parameters_of
from ideabridge.bridge.lifting.search import explain_literal
from ideabridge.bridge.loop.settings import RULES, Settings
from ideabridge.bridge.publishing.drafting import draft_of
from ideabridge.bridge.runs.stretch import EndedCall, ended_run, keep_ended
from ideabridge.bridge.store.run_record import RunOrigin
from ideabridge.bridge.store.store import Store
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON
from ideabridge.tools.toolbox import Toolbox
from tests.instructions import instructions_of


async def _steps_of_lifting(calls: int) -> int:
    """Return how many instructions of Python it takes to lift a run with so many calls and
    to report on it.
    """
    listed: list[JSON] = [
        {"_tool": "count", "items": [number, f"item {number}"], "_outputPath": f"counts.n{number}"}
        for number in range(calls)
    ]
    async with Bridge(store=Store.open(":memory:")) as bridge:
        run = await bridge.run_plan({"calls": listed})
        assert await run.wait() == "done"
        return instructions_of(lambda: report_of(bridge.lift(run.id), bridge.store, "local"))


@pytest.mark.anyio
async def test_lifting_twice_as_many_calls_takes_about_twice_the_work() -> None:
    # The first lifting in a process also fills caches, so do not measure it.
    await _steps_of_lifting(2)
    few = await _steps_of_lifting(60)
    many = await _steps_of_lifting(240)

    # With four times the calls, linear work takes 4 times as long, and quadratic work up to 16
    # times.
    assert many < 5 * few, (few, many)


@tool(read_only=True)
def look(key: str) -> JSON:
    """Look something up."""
    return {"next": f"{key}+", "name": key}


@tool
def change(key: str, text: str) -> str:
    """Change something."""
    return f"{key}: {text}"


def _keep_session(store: Store, made: list[EndedCall], run: str = "run_many") -> None:
    """Store a session of some calls as a run."""
    ended = ended_run(made, Settings(), "x", "nobody")
    keep_ended(store, run, ended, caller="local", title="x", fingerprint="x", origin=RunOrigin({}))


def test_runs_that_are_long_together_are_not_read_to_be_offered() -> None:
    tools = {one.name: one for one in Toolbox(look).tools.values()}
    with Store.open(":memory:") as store:
        for run, calls in (("run_long", 1_000), ("run_short", 2), ("run_other", 2)):
            keys = [f"{run}-{number}" for number in range(calls)]
            made = [EndedCall(tools["look"], {"key": key}, 0, {"next": key}) for key in keys]
            _keep_session(store, made, run)
        looked = len(runs_like(lift(store, "run_short", "local"), store, "local"))
        steps = instructions_of(
            lambda: runs_like(lift(store, "run_short", "local"), store, "local")
        )
        assert looked == 1

        # Reading the long run alone takes more than a million steps.
        assert steps < 200_000, steps


def _steps_of_a_session(calls: int) -> int:
    """Return how many instructions it takes to publish a session of so many calls, each copied from
    the one before.
    """
    tools = {one.name: one for one in Toolbox(look, change).tools.values()}
    made: list[EndedCall] = []
    for number in range(calls):
        key = f"key-{number // 2}"
        if number % 2:
            made.append(
                EndedCall(tools["change"], {"key": key, "text": f"About {key}"}, number, "ok")
            )
        else:
            made.append(
                EndedCall(
                    tools["look"],
                    {"key": key},
                    number,
                    {"next": f"key-{number // 2 + 1}", "name": key},
                )
            )

    with Store.open(":memory:") as store:
        _keep_session(store, made)
        return instructions_of(lambda: draft_of(store, "run_many", "local", None, None, False))


def test_publishing_a_session_of_twice_as_many_calls_takes_about_twice_the_work() -> None:
    _steps_of_a_session(2)
    few = _steps_of_a_session(50)
    many = _steps_of_a_session(200)
    assert many < 5 * few, (few, many)


def _memory_of_order(calls: int) -> int:
    """Return the bytes that it takes to order a session that looks many times at once, and then
    changes as often.
    """
    tools = {one.name: one for one in Toolbox(look, change).tools.values()}
    made = [
        EndedCall(tools["look"], {"key": f"key-{number}"}, 0, {"next": "x"})
        for number in range(calls)
    ]
    made += [
        EndedCall(tools["change"], {"key": f"key-{number}", "text": "x"}, 1, "ok")
        for number in range(calls)
    ]
    with Store.open(":memory:") as store:
        _keep_session(store, made)
        function = read_function(store, "run_many", "local")
        tracemalloc.start()
        try:
            kept = arranged(function).kept_order
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    # The first change waits for everything that was seen, and each other change for the one before
    # it.
    assert kept[calls] == set(range(calls))
    assert kept[calls + 1 :] == [{place} for place in range(calls, 2 * calls - 1)]
    return peak


def test_ordering_four_times_as_many_calls_takes_about_four_times_the_memory() -> None:
    _memory_of_order(20)
    few = _memory_of_order(150)
    many = _memory_of_order(600)
    assert many < 6 * few, (few, many)


def test_of_very_many_constants_a_thousand_become_parameters_and_those_that_a_person_names() -> (
    None
):
    def literals() -> list[Parameter]:
        leaves = [
            Leaf(f"calls.{place}.n", ("calls", str(place), "n"), place + 1_000)
            for place in range(1_200)
        ]
        return [Parameter("", leaf.value, [leaf], "count") for leaf in leaves]

    parameters = parameters_of(literals(), (), {}, "")
    assert [one.value for one in parameters] == list(range(1_000, 2_000))
    named = {
        "last": ParameterDecision(at=("calls.1199.n",)),
        "n_1101": ParameterDecision(description="another"),
    }
    parameters = parameters_of(literals(), (), named, "")
    assert len(parameters) == 1_002
    assert {one.name for one in parameters} >= named.keys()


def _steps_of_copied_values(calls: int) -> int:
    """Return how many instructions it takes to read the copied values of a plan that calls
    one tool alone.
    """
    values: list[JSON] = [
        {"at": ["calls", str(place), "key"], "by": [f"†results.{place - 1}.next"]}
        for place in range(1, calls)
    ]
    listed: list[JSON] = [{"_tool": "look", "key": "x"} for _ in range(calls)]
    return instructions_of(
        lambda: read_computations({"values": values}, listed, None, None, rules=RULES)
    )


def test_reading_twice_as_many_copied_values_takes_about_twice_the_work() -> None:
    _steps_of_copied_values(2)
    few = _steps_of_copied_values(300)
    many = _steps_of_copied_values(1_200)
    assert many < 5 * few, (few, many)


def test_a_long_text_is_looked_through_only_where_a_value_may_begin() -> None:
    words = " ".join(f"word{number}" for number in range(200))
    values = Values(
        {"†input": {"name": "Ann"}, "†results.0": [f"title {number}" for number in range(100)]}
    )
    explain_literal("x", values, "text")
    steps = instructions_of(lambda: explain_literal(words, values, "text"))

    # A value can have up to twelve words, so looking up every part would take more than 100,000
    # steps.
    assert steps < 200 * 200, steps


def test_a_value_is_found_where_it_begins_with_marks_or_is_a_number() -> None:
    values = Values(
        {"†results.0": {"tag": "#urgent", "path": "/tmp/x", "count": 1207, "change": -35}}
    )
    for text, reference in (
        ("about #urgent things", "†results.0.tag"),
        ("see /tmp/x, now", "†results.0.path"),
        ("all 1207 of them", "†results.0.count"),
        ("it is -35 today", "†results.0.change"),
    ):
        found = explain_literal(text, values, "text")
        assert reference in {one.origin for one in found.by}, text
