"""Plans with explained literals: which values run, what a run says that it assumed,
and when it asks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.context.assumption import read_assumption
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.call import spread
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    CallDecided,
    CallFinished,
    Decider,
    JournalError,
    SolutionProposed,
    decider_of,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.question import call_question
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool
from tests.asking import ASKS
from tests.loop.driving import ANY_PARAMETERS, READ_ONLY, TOOLS, Driven, started

COUNT = Tool(
    "count",
    parameters={"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    annotations=READ_ONLY,
)
THINK = Tool("think", parameters=ANY_PARAMETERS)

ITEM: JSONObject = {"item_of": "†results.0", "where": {"name": "†input.name"}, "take": ["id"]}


def literal(at: str, *by: JSON, **more: JSON) -> JSONObject:
    """An explained literal; `at` as in `calls.0.x`."""
    return {"at": list[JSON](at.split(".")), "by": list(by), **more}


def constant(value: JSON) -> JSONObject:
    return {"constant": value}


def driven(
    calls: list[JSON],
    *literals: JSON,
    output: JSON = None,
    approval: Any = "allow_all",
    given_input: JSONObject | None = None,
    instances: tuple[str, ...] = (),
    **more: JSON,
) -> Driven:
    """A run of a plan with these explained literals; `more` are other members of
    `Plan.explained`.
    """
    context: list[JSON] = [{"type": "input", "input": given_input or {}}]
    for one in instances:
        context.append({"type": "state", "state": {"n": one}, "_instance": one})

    settings = Settings(approval=approval, output_by_instance=bool(instances))
    run = Driven()
    run.post(
        replace(
            started(context, tools=[*TOOLS, COUNT, THINK], settings=settings),
            latent=[[None, "think"]],
        )
    )
    listed, places = spread(calls, instances)
    run.post(
        SolutionProposed(listed, output, None, places, explained={"values": list(literals), **more})
    )
    return run


def echo(x: JSON, **more: JSON) -> JSONObject:
    return {"_tool": "echo", "x": x, **more}


def write(x: JSON, **more: JSON) -> JSONObject:
    return {"_tool": "write", "x": x, **more}


def ran(run: Driven) -> list[JSON]:
    """What each execution got as x, by call and item."""
    return [item.parameters.get("x") for one in run.machine.history for item in one.items]


def told(run: Driven) -> list[tuple[JSON, JSON]]:
    """(at, taken) of everything assumed."""
    return [(one["at"], one.get("taken")) for one in run.machine.doubts.assumed]


def why(run: Driven, call: int) -> str:
    """Why a person is asked about a call; empty if nobody is asked."""
    asked = call_question(run.machine.history[call])
    return asked.why if asked is not None else ""


def decide(
    run: Driven, call: int, decision: Any, x: JSON = None, by: str | Decider = "Ann"
) -> None:
    asked = call_question(run.machine.history[call])
    assert asked is not None
    edited = {**asked.shown, "x": x} if decision == "edit" else None
    run.post(CallDecided(call, asked.digest, decision, decider_of(by), edited=edited))


# -- reads -----------------------------------------------------------------------------------------


def test_a_value_on_which_all_explanations_agree_is_determined() -> None:
    run = driven(
        [echo([{"name": "a", "id": 1}, {"name": "b", "id": 2}]), write("?")],
        literal("calls.1.x", ITEM, "†input.id"),
        given_input={"name": "b", "id": 2.0},
        output="†results.1",
    ).finish_all()
    assert ran(run)[1] == 2
    assert (run.machine.status, run.machine.output) == ("done", 2)
    assert run.machine.doubts.to_json() is None


def test_a_read_runs_with_the_cheapest_value_and_says_so() -> None:
    run = driven(
        [echo(5)],
        literal("calls.0.x", "†input.n", "†input.m", constant(5)),
        given_input={"n": 6, "m": 7},
    )
    run.finish_all()
    assert ran(run) == [6]
    [assumed] = run.machine.doubts.assumed
    assert assumed == {
        "at": "calls.0.x",
        "taken": 6,
        "from": "†input.n",
        "instead": [{"value": 7, "from": "†input.m"}, {"value": 5, "from": "always 5"}],
        "why": "its explanations differ",
    }


@pytest.mark.parametrize(
    ("items", "runs", "assumed"), [(1, 1, False), (2, 1, True), (2, 2, True), (2, 3, False)]
)
def test_a_position_in_a_list_of_several_items_is_assumed_until_three_runs_agree(
    items: int, runs: int, assumed: bool
) -> None:
    run = driven(
        [echo("†input.items"), echo("?")],
        literal("calls.1.x", "†results.0.0.id", runs=runs),
        given_input={"items": [{"id": number} for number in range(items)]},
    ).finish_all()
    assert ran(run)[1] == 0
    assert [one["why"] for one in run.machine.doubts.assumed] == (
        ["it is selected by its position in a list"] if assumed else []
    )


def test_words_that_were_recorded_are_assumed_and_the_bound_of_a_search_is_noted() -> None:
    run = driven([echo(5)], literal("calls.0.x", constant(5), why="recorded text")).finish_all()
    assert (ran(run), told(run)) == ([5], [("calls.0.x", 5)])
    run = driven([write(5)], literal("calls.0.x", constant(5), cut=True)).finish_all()
    assert (ran(run), told(run)) == ([5], [])
    assert run.machine.doubts.notes == [
        {"at": "calls.0.x", "what": "ideabridge did not look for all explanations", "mild": True}
    ]


@pytest.mark.parametrize(
    ("results", "runs", "assumed"),
    [("aa", 1, False), ("ab", 1, True), ("ab", 2, True), ("ab", 3, False)],
)
def test_one_of_several_calls_of_a_tool_is_a_position(
    results: str, runs: int, assumed: bool
) -> None:
    calls: list[JSON] = [
        *(echo({"id": one}) for one in results),
        {"_tool": "think", "x": {"id": "c"}},
        write("?"),
    ]
    run = driven(calls, literal("calls.3.x", "†results.1.id", runs=runs))
    while run.running:
        run.finish_one()
    asked = (
        'calls.3.x is "b" (†results.1.id): it is taken from one of several calls of the same tool'
    )
    assert why(run, 3) == (asked if assumed else "")


def test_a_passed_value_is_taken_and_one_that_belongs_to_the_replaced_is_assumed() -> None:
    person: JSONObject = {"name": "ann", "mail": "ann@x", "city": {"zip": 1}}
    calls: list[JSON] = [echo(person), echo("?"), echo("?"), echo("?")]
    literals = [
        literal("calls.1.x", "†results.0.name", constant("old"), given="†input.name"),
        literal("calls.2.x", "†results.0.mail", given="†input.also.mail"),
        literal("calls.3.x", "†results.0.city.zip", given="†input.zip"),
    ]
    given_inputs: list[JSONObject] = [
        {},
        {"name": "bob"},
        {"name": "bob", "also": {"mail": "bob@x"}},
    ]
    found = [driven(calls, *literals, given_input=one).finish_all() for one in given_inputs]
    assert [ran(one)[1:] for one in found] == [
        ["ann", "ann@x", 1],
        ["bob", "ann@x", 1],
        ["bob", "bob@x", 1],
    ]
    assert [told(one) for one in found] == [[("calls.1.x", "ann")], [("calls.2.x", "ann@x")], []]
    assert found[1].machine.doubts.assumed[0]["why"] == (
        "†input.name was passed, but this value was recorded together with another "
        "value of †input.name"
    )


@pytest.mark.parametrize(("keys", "assumed"), [(("ann",), False), (("ann", "bob"), True)])
def test_a_key_that_may_be_data_is_a_choice_where_other_keys_have_such_a_value(
    keys: tuple[str, ...], assumed: bool
) -> None:
    maybe = literal(
        "calls.1.x", "†results.0.ann.color", runs=9, why="its path has a key that may be data"
    )
    run = driven([echo({key: {"color": key} for key in keys}), echo("?")], maybe).finish_all()
    assert ran(run)[1] == "ann"
    assert told(run) == ([("calls.1.x", "ann")] if assumed else [])
    assert len(run.machine.doubts.notes) == (0 if assumed else 1)


def test_values_are_put_into_lists_nested_objects_and_the_items_of_each() -> None:
    run = driven(
        [
            echo({"rows": [1, {"id": 2, "name": "n"}], "dotted.key": 3}),
            echo(
                {"who": "†item.name", "limit": 9},
                _each=[{"name": "a"}, {"name": "b"}, {"name": "c"}],
            ),
            echo("†item", _each=["a", "b"]),
        ],
        literal("calls.0.x.rows.0", "†input.first"),
        literal("calls.0.x.rows.1.id", "†input.second"),
        {"at": ["calls", "0", "x", "dotted.key"], "by": ["†input.third"]},
        literal("calls.1._each.1.name", "†input.first"),
        literal("calls.1.x.limit", "†input.second"),
        literal("calls.2._each", "†input.people"),
        given_input={"first": "f", "second": "s", "third": "t", "people": ["z"]},
    ).finish_all()
    assert ran(run) == [
        {"rows": ["f", {"id": "s", "name": "n"}], "dotted.key": "t"},
        *({"who": name, "limit": "s"} for name in ("a", "f", "c")),
        "z",
    ]


def test_each_instance_has_its_own_values_and_its_assumptions_name_it() -> None:
    run = driven(
        [echo([{"id": "†state.n"}], _outputPath="found"), echo("?", _outputPath="got")],
        literal("calls.1.x", "†state.found.0.id", constant("a")),
        {"at": ["output", "got"], "by": ["†state.got", constant("a")]},
        output={"got": "?", "had": "†state.n"},
        instances=("a", "b"),
        seen={"†state.found.0.id": {"number": {"signs": [1], "range": [1, 1]}}},
    ).finish_all()
    assert run.machine.output == {one: {"got": one, "had": one} for one in "ab"}
    doubts = run.machine.doubts
    assert [(one["at"], one["taken"], one["instance"]) for one in doubts.assumed] == [
        ("calls.1.x", "b", "b"),
        ("output.got", "b", "b"),
    ]
    assert [one["instance"] for one in doubts.notes] == ["a", "b"]
    assert read_assumption(doubts.assumed[0]).line.startswith(
        'calls.1.x of b is "b" (†state.found.0.id); it could'
    )


def test_only_an_explanation_of_the_same_kind_stands_in_for_one_without_a_value() -> None:
    def fails(effect: Any) -> tuple[bool, JSON]:
        return effect.call.index != 0, effect.parameters.get("x")

    by: list[JSON] = ["†results.0", "†state.gone", constant(5)]
    for stands_in in (False, True):
        paths: list[JSON] = ["†input.n"] if stands_in else []
        run = driven([echo(1), echo(5)], literal("calls.1.x", *by, *paths), given_input={"n": 6})
        run.execution = fails
        run.finish_all()
        assert run.statuses() == ["failed", "done" if stands_in else "failed"]
        assert told(run) == ([("calls.1.x", 6)] if stands_in else [])

    [assumed] = run.machine.doubts.assumed
    assert assumed["instead"] == [
        {"value": 5, "from": "always 5"},
        {"from": "†results.0"},
        {"from": "†state.gone"},
    ]


def test_a_literal_without_any_value_fails_plainly() -> None:
    run = driven(
        [echo([]), write(5), echo("†results.1")], literal("calls.1.x", ITEM, "†input.id")
    ).finish_all()
    assert run.statuses() == ["done", "failed", "failed"]
    assert run.error_of(1) == (
        "not run: calls.1.x has no value for this data: there is nothing at id of the item of "
        "†results.0 with name = †input.name; †input.id"
    )
    assert run.executions == [(0, None)]


def test_a_call_waits_for_its_sources_and_never_for_a_later_call() -> None:
    calls: list[JSON] = [echo(1, _outputPath="n"), echo("?"), echo(3, _outputPath="m")]
    run = driven(calls, literal("calls.1.x", "†state.n", "†results.2", "†state.m", constant(1)))
    assert [effect.key for effect in run.running] == [(0, None), (2, None)]
    run.finish_one(1)
    assert run.statuses() == ["running", "waiting", "done"]
    run.finish_all()
    assert (ran(run), told(run)) == ([1, 1, 3], [("calls.1.x", 1)])


def test_values_are_validated_like_those_of_references() -> None:
    run = driven(
        [{"_tool": "count", "x": 5}], literal("calls.0.x", "†input.n"), given_input={"n": "five"}
    ).finish_all()
    assert run.error_of(0) == 'not run: parameters: x: found "five", expected an integer'


# -- questions -------------------------------------------------------------------------------------


def test_before_a_change_a_person_is_asked_once_with_each_value_whatever_the_policy_allows() -> (
    None
):
    assert why(driven([write(5)], literal("calls.0.x", constant(5))), 0) == ""
    run = driven([write(5)], literal("calls.0.x", "†input.n", constant(5)), given_input={"n": 6})
    assert (
        why(run, 0)
        == "calls.0.x is 6 (†input.n); it could also be 5 (always 5): its explanations differ"
    )
    assert run.running == []
    decide(run, 0, "approve")
    run.finish_all()
    assert ran(run) == [6]
    doubts = run.machine.doubts
    assert (doubts.assumed, doubts.notes) == ([], [])
    assert [(one["at"], one["taken"], one["approved"]) for one in doubts.approved] == [
        ("calls.0.x", 6, "Ann")
    ]
    assert len(run.machine.decisions) == 1
    both = driven(
        [write(5)],
        literal("calls.0.x", "†input.n", constant(5)),
        given_input={"n": 6},
        approval="default",
    )
    assert why(both, 0) == f"tool 'write' declares that it changes things\n{why_of(6)}"


def why_of(value: int) -> str:
    return (
        f"calls.0.x is {value} (†input.n); it could also be 5 (always 5): its explanations differ"
    )


def test_an_edit_chooses_another_value() -> None:
    run = driven([write(5)], literal("calls.0.x", "†input.n", constant(5)), given_input={"n": 6})
    decide(run, 0, "edit", 5)
    run.finish_all()
    assert (ran(run), told(run)) == ([5], [])


def test_what_an_assistant_approves_remains_assumed() -> None:
    run = driven([write(5)], literal("calls.0.x", "†input.n", constant(5)), given_input={"n": 6})
    decide(run, 0, "approve", by=Decider("assistant", "tool"))
    run.finish_all()
    assert (ran(run), told(run)) == ([6], [("calls.0.x", 6)])


def test_a_rule_that_denies_is_stronger_than_the_question() -> None:
    approval = {"rules": [{"tool": "write", "then": "deny", "why": "nothing is written"}]}
    run = driven(
        [write(5)],
        literal("calls.0.x", "†input.n", constant(5)),
        given_input={"n": 6},
        approval=approval,
    )
    assert (run.statuses(), run.error_of(0)) == (["failed"], "denied by policy: nothing is written")


def test_a_denied_call_does_not_run() -> None:
    run = driven([write(5)], literal("calls.0.x", "†input.n", constant(5)), given_input={"n": 6})
    decide(run, 0, "deny")
    run.finish_all()
    assert (run.statuses(), run.executions) == (["failed"], [])


SEEN: JSONObject = {"†input.n": {"number": {"signs": [1], "range": [1, 10]}}}


@pytest.mark.parametrize(
    ("n", "asks", "unseen"),
    [
        (7, False, None),
        (-7, True, "a negative number, -7, which no earlier run had"),
        (0, True, "zero, 0, which no earlier run had"),
        ("7", True, "a string, but earlier runs had a number"),
        (11, False, "11, but earlier runs had 1 to 10"),
    ],
)
def test_a_new_kind_of_value_asks_before_a_change_and_a_number_beyond_the_range_is_only_told(
    n: JSON, asks: bool, unseen: str | None
) -> None:
    # References that somebody wrote and those of explanations are both compared.
    for calls, literals in (
        ([write("†input.n")], []),
        ([write(7)], [literal("calls.0.x", "†input.n")]),
    ):
        run = driven([*calls, echo("†input.n")], *literals, given_input={"n": n}, seen=SEEN)
        assert why(run, 0) == (f"†input.n: {unseen}" if asks else "")
        assert [one["what"] for one in run.machine.doubts.notes] == (
            [] if unseen is None else [unseen]
        )


def test_what_a_person_was_not_told_remains_in_the_report() -> None:
    run = driven([write("†input.n")], given_input={"n": 11}, seen=SEEN, approval="default")
    assert why(run, 0) == "tool 'write' declares that it changes things"
    decide(run, 0, "approve")
    assert [one["mild"] for one in run.machine.doubts.notes] == [True]


def test_a_call_that_may_have_been_a_decision_asks_before_it_changes_something() -> None:
    run = driven([echo(1), write(5), echo(6)], decisions=[0, 1]).finish_all()
    assert why(run, 1).startswith("calls.1: whoever made this call had already seen results")
    assert told(run) == [("calls.1", None)]
    assert run.machine.doubts.notes == []
    assert run.statuses() == ["done", "asking", "queued"]
    decide(run, 1, "deny")
    assert run.finish_all().statuses() == ["done", "failed", "done"]


def chain(writes: int) -> list[JSON]:
    """A read, and calls that change something, each after the one before."""
    first: list[JSON] = [echo(1), write(0, _id="w0")]
    return [
        *first,
        *(
            write(number, _id=f"w{number}", _after=[f"w{number - 1}"])
            for number in range(1, writes)
        ),
    ]


def named(run: Driven, call: int) -> list[str]:
    """The places that the question about a call names."""
    return [line.split(":")[0] for line in why(run, call).splitlines()]


@pytest.mark.parametrize("by", ["Ann", Decider("assistant", "tool")])
def test_a_person_is_asked_once_about_calls_that_may_have_been_decisions(by: str | Decider) -> None:
    run = driven(chain(4), decisions=[1, 2, 4]).finish_all()
    assert named(run, 1) == ["calls.1", "calls.2", "calls.4"]
    decide(run, 1, "approve", by=by)
    assert run.finish_all().statuses() == ["done"] * 5
    # What no person has seen remains in the answer, once.
    expected: list[tuple[JSON, JSON]] = [("calls.1", None), ("calls.2", None), ("calls.4", None)]
    assert told(run) == ([] if by == "Ann" else expected)


def test_a_call_that_may_have_been_a_decision_asks_itself_if_it_was_not_named_or_the_other_was_denied() -> (
    None
):
    run = driven(chain(25), decisions=list(range(1, 26))).finish_all()
    assert named(run, 1) == [f"calls.{place}" for place in range(1, 22)]
    decide(run, 1, "approve")
    run.finish_all()
    assert named(run, 22) == [f"calls.{place}" for place in range(22, 26)]
    assert run.statuses()[21:23] == ["done", "asking"]

    run = driven([write(5), write(6)], decisions=[0, 1]).finish_all()
    assert named(run, 1) == ["calls.1"]
    decide(run, 0, "deny")
    assert (named(run, 1), told(run)) == (["calls.1"], [("calls.0", None), ("calls.1", None)])


def test_other_doubts_ask_although_the_decision_was_approved() -> None:
    literals = [literal("calls.2.x", "†input.n", constant(5))]
    run = driven(chain(2), *literals, decisions=[1, 2], given_input={"n": 6}).finish_all()
    decide(run, 1, "approve")
    run.finish_all()
    assert named(run, 2) == ["calls.2.x is 6 (†input.n); it could also be 5 (always 5)"]


@pytest.mark.parametrize(
    ("runs", "words", "asks"),
    [(1, "/archive/atlas", True), (2, "/archive/atlas", False), (1, "-1", False)],
)
def test_words_around_a_copied_value_ask_before_a_change_until_two_runs_agree(
    runs: int, words: str, asks: bool
) -> None:
    by: list[JSON] = [{"join": ["†input.n", constant(words)]}, constant(f"a{words}")]
    for call in (write("?"), echo("?")):
        run = driven(
            [call], literal("calls.0.x", *by, runs=runs), given_input={"n": "a"}
        ).finish_all()
        is_asked = asks and call["_tool"] == "write"
        assert why(run, 0) == (
            'calls.0.x: "/archive/atlas" in it comes from the recorded run' if is_asked else ""
        )
        assert told(run) == []


@pytest.mark.parametrize("is_read", [False, True])
def test_a_call_that_reads_may_have_been_a_decision_if_something_comes_of_it(is_read: bool) -> None:
    output: JSON = "†results.1" if is_read else "†results.0"
    run = driven([echo(5), echo(6)], output=output, decisions=[1]).finish_all()
    assert told(run) == ([("calls.1", None)] if is_read else [])
    assert run.machine.doubts.notes == []


@pytest.mark.parametrize("call", [echo(5), {"_tool": "think", "x": 5}])
def test_a_strict_plan_asks_before_a_read_and_before_a_mind_is_given_the_value(
    call: JSONObject,
) -> None:
    assert (
        why(driven([call], literal("calls.0.x", "†input.n", constant(5)), given_input={"n": 6}), 0)
        == ""
    )
    run = driven(
        [call], literal("calls.0.x", "†input.n", constant(5)), given_input={"n": 6}, strict=True
    )
    assert why(run, 0) == why_of(6)
    decide(run, 0, "edit", 5)
    run.finish_all()
    assert (ran(run), told(run)) == ([5], [])


def test_a_read_that_the_policy_asks_about_tells_its_assumptions() -> None:
    approval = {"default": "ask"}
    run = driven(
        [echo(5)],
        literal("calls.0.x", "†input.n", constant(5)),
        given_input={"n": 6},
        approval=approval,
    )
    assert why(run, 0).endswith(why_of(6))


# -- the output ------------------------------------------------------------------------------------


def test_explained_leaves_of_the_output_are_filled_in_and_reported() -> None:
    run = driven(
        [echo([{"name": "a", "id": 1}])],
        literal("output.id", ITEM),
        literal("output.rows.1", "†input.n", constant(2)),
        literal("output.note", constant("fine"), why="recorded text"),
        output={"id": "?", "rows": ["†results.0.0.name", 2], "note": "fine"},
        given_input={"name": "a", "n": -3},
        seen=SEEN,
    ).finish_all()
    assert run.machine.output == {"id": 1, "rows": ["a", -3], "note": "fine"}
    assert told(run) == [("output.rows.1", -3), ("output.note", "fine")]
    assert [one["what"] for one in run.machine.doubts.notes] == [
        "a negative number, -3, which no earlier run had"
    ]


def test_an_output_leaf_without_a_value_is_a_fault_of_the_output() -> None:
    run = driven([echo([])], literal("output", "†input.n"), output="?").finish_all()
    assert run.machine.status == "failed"
    assert "output: output has no value for this data: there is nothing at †input.n" in str(
        run.machine.errors
    )


# -- rooms -----------------------------------------------------------------------------------------


def test_what_the_run_of_a_called_idea_assumed_is_added_with_the_place_of_the_call() -> None:
    run = driven([echo(1), echo(2)])
    doubts: JSONObject = {
        "assumed": [
            {"at": "calls.3.limit", "taken": 5, "from": "†input.n", "instead": [], "why": "cut"}
        ],
        "unseen": [{"at": "†input.n", "what": "zero"}],
    }
    run.post(CallFinished(1, value=2, doubts=doubts))
    run.finish_one(0)
    assert told(run) == [("calls.1: calls.3.limit", 5)]
    assert run.machine.doubts.notes == [{"at": "calls.1: †input.n", "what": "zero"}]


# -- malformed plans -------------------------------------------------------------------------------


def long_list(length: int) -> list[JSON]:
    return [literal(f"calls.0.x.{number}", *[constant(1)] * 60) for number in range(length)]


@pytest.mark.parametrize(
    ("explained", "problem"),
    [
        ({"values": {}}, "explained.values: expected an array, found {}"),
        ({"values": 5}, "explained.values: expected an array, found 5"),
        ({"seen": []}, "explained.seen: expected an object"),
        ({"decisions": 1}, "explained.decisions: expected an array"),
        ({"strict": "yes"}, "explained.strict: expected true or false"),
        ({"values": [literal("calls.0.x", "†item.a")]}, "explained.0.by.0"),
        ({"values": [literal("calls.0.x", "†input.a || †input.b")]}, "without || and &&"),
        ({"values": [literal("calls.0.y", constant(1))]}, "explained: the call has no y"),
        ({"values": [literal("calls.0.x.text", constant(1))]}, "explained: the call has no x.text"),
        (
            {"values": [literal("calls.0._outputPath", constant("b"))]},
            "_outputPath is not a parameter",
        ),
        ({"values": [literal("calls.7.x", constant(1))]}, "the plan has 1 calls"),
        (
            {"values": [literal(f"calls.{'9' * 5000}.x", constant(1))]},
            'expected ["calls", place, key...]',
        ),
        ({"values": [literal("output.b", constant(1))]}, "explained: there is no output.b"),
        (
            {"values": [literal("calls.0.x", constant(1)), literal("calls.0.x", constant(2))]},
            "explained twice",
        ),
        (
            {"values": [literal("output", constant(1)), literal("output.a", constant(2))]},
            "explained twice",
        ),
        ({"values": long_list(900)}, "the explanations have more than 50,000 parts"),
        ({"values": [{"at": ["calls"]}] * 100_000}, "explained.0"),
    ],
)
def test_a_malformed_explanation_is_a_structural_problem(
    explained: JSONObject, problem: str
) -> None:
    machine = Machine()
    machine.receive(started())
    calls: list[JSON] = [echo('{"text": 1}', _outputPath="a")]
    errors = machine.check(SolutionProposed(calls, {"a": 1}, explained=explained)).errors
    assert 0 < len(errors) <= 40
    assert problem in str(errors[0]["error"])
    with pytest.raises(JournalError, match="malformed"):
        machine.receive(SolutionProposed(calls, {"a": 1}, explained=explained))


def test_the_values_that_explanations_read_are_counted_for_each_instance() -> None:
    machine = Machine()
    instances = [f"i{number}" for number in range(1000)]
    machine.receive(
        started([{"type": "state", "state": {}, "_instance": one} for one in instances])
    )
    calls, places = spread([echo(5)], instances)
    by = [f"†input.n{number}" for number in range(30)]
    errors = machine.check(
        SolutionProposed(calls, places=places, explained={"values": [literal("calls.0.x", *by)]})
    ).errors
    assert "its calls read 30,000 values for their explanations; the limit is 20,000" in str(errors)


# -- folding ---------------------------------------------------------------------------------------

SOURCES = st.sampled_from(
    ["†results.0", "†results.1", "†results.2", "†input.n", "†input.m", "†input.gone"]
)
EXPLANATIONS = st.one_of(
    SOURCES,
    st.integers(0, 2).map(constant),
    SOURCES.map(lambda one: {"convert": one, "by": ["text"]}),
)
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(["echo", "write"]), st.lists(EXPLANATIONS, min_size=1, max_size=4)),
    min_size=2,
    max_size=5,
)


@given(
    PROGRAMS, st.integers(0, 2), st.integers(0, 2), st.booleans(), st.integers(0, 99), st.randoms()
)
def test_a_run_cut_anywhere_goes_on_with_the_same_values_and_asks_nothing_twice(
    program: list[tuple[str, list[JSON]]], n: int, m: int, strict: bool, cut: int, chosen: Any
) -> None:
    calls: list[JSON] = [{"_tool": name, "x": 0} for name, _ in program]
    literals = [literal(f"calls.{number}.x", *by) for number, (_, by) in enumerate(program)]
    whole = driven(
        calls,
        *literals,
        given_input={"n": n, "m": m},
        seen={"†input.n": SEEN["†input.n"]},
        strict=strict,
    )

    def go_on(run: Driven) -> None:
        while run.running or run.machine.waits_for_people:
            asking = [one for one in run.machine.history if call_question(one) is not None]
            if asking and (not run.running or chosen.random() < 0.5):
                index = asking[0].call.index
                # The decision depends only on the call, so both runs get the same one.
                decide(run, index, ("approve", "edit", "deny")[index % 3], 7)
            else:
                run.finish_one()

    go_on(whole)
    again = Driven.resumed(
        whole.journal[: 2 + cut % (len(whole.journal) - 1)], whole.execution, seed=cut
    )
    go_on(again)
    assert (again.statuses(), ran(again)) == (whole.statuses(), ran(whole))
    assert again.machine.doubts == whole.machine.doubts
    for run in (whole, again):
        decided = [event.call for event in run.journal if isinstance(event, CallDecided)]
        assert len(decided) == len(set(decided))
        asked = {event.call for event in run.journal if isinstance(event, ApprovalAsked)}
        assert asked == set(decided)

    # A call that runs without a question only reads, or all its explanations agree.
    for one in whole.machine.history:
        if (
            one.call.name == "write"
            and one.status.value == "done"
            and one.call.index not in decided
        ):
            assert one.doubts.ask is None


# -- over the bridge -------------------------------------------------------------------------------

sent_mails: list[str] = []


@tool(read_only=True)
async def people() -> list[JSONObject]:
    """List people."""
    return [{"name": "Ada", "mail": "ada@b.c"}, {"name": "Bob", "mail": "bob@b.c"}]


@tool(read_only=False)
async def send(to: str) -> str:
    """Send something."""
    sent_mails.append(to)
    return f"sent to {to}"


def mailing(name: str) -> Plan:
    return Plan(
        [{"_tool": "people"}, {"_tool": "send", "to": "ada@b.c"}],
        input={"name": name},
        output={"said": "sent to ada@b.c"},
        explained={
            "values": [
                literal(
                    "calls.1.to",
                    {"item_of": "†results.0", "where": {"name": "†input.name"}, "take": ["mail"]},
                    "†results.0.0.mail",
                ),
                literal("output.said", "†results.1"),
            ]
        },
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("choice", "sent"), [("approve", "bob@b.c"), ("edit", "ada@b.c"), ("deny", None)]
)
async def test_a_run_that_was_cut_while_it_asked_asks_the_same_and_keeps_the_decision(
    choice: Any, sent: str | None, tmp_path: Path
) -> None:
    sent_mails.clear()
    allowing = Configuration.model_validate({"approval": "allow_all"})
    tools = Toolbox(people, send)
    store = tmp_path / "ideas.sqlite"
    async with Bridge(allowing, toolbox=tools, store=store) as bridge:
        run = await bridge.run_plan(mailing("Bob"))
        before = await question(run)

    async with Bridge(allowing, toolbox=tools, store=store) as bridge:
        run = await bridge.run(run.id)
        asked = await question(run)
        assert (asked["approval"], asked["why"], asked["call"]) == (
            before["approval"],
            before["why"],
            before["call"],
        )
        assert asked["call"]["to"] == "bob@b.c"
        assert '"bob@b.c" (mail of the item of' in asked["why"]
        assert 'it could also be "ada@b.c" (†results.0.0.mail)' in asked["why"]
        edited = {**asked["call"], "to": "ada@b.c"} if choice == "edit" else None
        run.decide(asked["approval"], choice, by="Ann", call=edited)
        await run.wait(30)
        assert run.machine.ended
        assert sent_mails == [sent] * bool(sent)
        if sent:
            assert await run.result() == {"said": f"sent to {sent}"}
            assert "assumed" not in run.answer()

    async with Bridge(allowing, toolbox=tools, store=store) as bridge:
        run = await bridge.run(run.id)
        assert run.approvals() == []
        assert len(run.answer()["decided"]) == 1
        assert len(sent_mails) == (1 if sent else 0)


async def question(run: Run) -> Any:
    with anyio.fail_after(20):
        while not run.approvals():
            await run.runner.wait_changed()
    [asked] = run.approvals()
    return asked


@pytest.mark.anyio
async def test_a_malformed_explanation_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with Bridge(
        ASKS, toolbox=Toolbox(people, send), store=tmp_path / "ideas.sqlite"
    ) as bridge:
        broken = replace(mailing("Bob"), explained={"values": [literal("calls.1.cc", constant(1))]})
        with pytest.raises(PlanError, match="explained: the call has no cc"):
            await bridge.run_plan(broken)
        assert bridge.runs() == []


@pytest.mark.anyio
async def test_a_dry_run_shows_what_explanations_read() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(people, send)) as bridge:
        shown = await bridge.dry_run(mailing("Bob"))
        assert shown["layers"] == [[0], [1]]
        assert shown["calls"][1]["reads"] == ["†results.0", "†input.name", "†results.0.0.mail"]
        assert await bridge.draw(mailing("Bob"), "text")
        without = await bridge.dry_run(replace(mailing("Bob"), input=None))
        assert without["layers"] == [[0], [1]]
