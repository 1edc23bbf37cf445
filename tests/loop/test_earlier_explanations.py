"""Runs of plans of earlier versions: their journals fold as they were written, and
what waits goes on.
"""

from __future__ import annotations

import pytest

from ideabridge.bridge.loop.event import ConfigurationChanged, SolutionProposed
from ideabridge.bridge.loop.question import call_question
from ideabridge.bridge.loop.settings import RULES, Settings
from ideabridge.tools.encoding import JSON, JSONObject
from tests.loop.driving import TOOLS, Driven, started
from tests.loop.test_assumptions import constant, decide, echo, literal, ran, told, why, write


def earlier(
    calls: list[JSON], *literals: JSON, output: JSON = None, given: JSONObject, **more: JSON
) -> Driven:
    """A run of a plan under the rules of that time."""
    run = Driven()
    settings = Settings(approval="allow_all", rules=1)
    context: list[JSON] = [{"type": "input", "input": given}]
    run.post(started(context, tools=list(TOOLS), settings=settings))
    run.post(
        SolutionProposed(calls, output, None, None, explained={"values": list(literals), **more})
    )
    return run


def folded(run: Driven) -> Driven:
    """The same run, from its journal."""
    again = Driven.resumed(run.journal, run.execution, seed=1)
    assert again.statuses() == run.statuses()
    assert again.machine.doubts == run.machine.doubts
    return again


PEOPLE: JSON = [{"name": "ann", "age": 7}, {"name": "bob", "age": 9}]
TITLE: JSON = {
    "join": [
        "†input.n",
        {"constant": ": "},
        {"item_of": "†results.0", "largest": "age", "take": ["name"]},
    ]
}


def test_removed_kinds_have_their_values() -> None:
    run = earlier(
        [echo(PEOPLE), echo("5: ann")], literal("calls.1.x", TITLE), given={"n": 6}
    ).finish_all()
    assert ran(run)[1] == "6: bob"
    assert run.machine.doubts.assumed == []
    folded(run)


@pytest.mark.parametrize(("n", "statuses"), [(5, ["done", "done"]), (1, ["done", "skipped"])])
def test_a_call_with_a_test_is_made_or_skipped(n: int, statuses: list[str]) -> None:
    test = literal("calls.1._when", {"test": "†results.0", "above": 2})
    run = earlier([echo("†input.n"), write("†results.0")], test, given={"n": n}).finish_all()
    assert run.statuses() == statuses
    folded(run)


def test_an_explanation_of_any_kind_stood_in_for_one_without_a_value() -> None:
    run = earlier(
        [echo(5)], literal("calls.0.x", "†input.gone", constant(5)), given={"n": 6}
    ).finish_all()
    assert (ran(run), told(run)) == ([5], [("calls.0.x", 5)])
    folded(run)


@pytest.mark.parametrize(
    ("literals", "more"),
    [
        ([literal("calls.0.x", constant(5), cut=True)], {}),
        ([literal("calls.0.x", "†input.n", why="its path has a key that may be data")], {}),
        ([], {"decisions": [0]}),
    ],
)
def test_a_question_that_waits_goes_on_though_it_would_not_be_asked_today(
    literals: list[JSON], more: JSONObject
) -> None:
    run = earlier([write(5)], *literals, given={"n": 5}, **more)
    assert why(run, 0)
    again = folded(run)
    # A later version of ideabridge continues the run.
    again.post(ConfigurationChanged("new", "allow_all", rules=RULES))
    assert call_question(again.machine.history[0]) is not None
    decide(again, 0, "approve")
    again.finish_all()
    assert ran(again) == [5]
    folded(again)


def test_what_is_proposed_today_knows_no_removed_kind() -> None:
    run = earlier([echo(5)], given={"n": 5})
    explained: JSONObject = {"values": [literal("calls.0.x", TITLE)]}
    assert run.machine.check(SolutionProposed([echo(5)], explained=explained)).errors == []
    new = Driven()
    new.post(started(tools=list(TOOLS)))
    [error] = new.machine.check(SolutionProposed([echo(5)], explained=explained)).errors
    assert "expected a reference such as †input.x" in str(error)
