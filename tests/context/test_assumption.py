"""Assumptions: the lines that tell them, and the choices that people have."""

from __future__ import annotations

import pytest

from ideabridge.bridge.context.assumption import (
    after_edit,
    assumption_lines,
    evidence_sentence,
    read_assumption,
    with_choices,
)
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import read_explained, settle
from ideabridge.bridge.context.state import MISSING
from ideabridge.tools.encoding import JSON, JSONObject


def _assumed(at: list[JSON], *constants: JSON) -> JSONObject:
    by: list[JSON] = [{"constant": value} for value in constants]
    explained = read_explained({"at": at, "by": [*by, "†input.gone"]})
    found = settle(explained, lambda _: MISSING).assumed
    assert found is not None
    return found


def test_an_assumption_is_told_in_one_line() -> None:
    lines = assumption_lines(
        [_assumed(["calls", "3", "max_count"], 5, 10), _assumed(["output", "a\nb"], "x" * 500)]
    )

    assert lines[0] == (
        "calls.3.max_count is 5 (always 5); it could also be 10 (always 10), or no value "
        "(†input.gone): its explanations differ"
    )
    assert len(lines[1]) < 400
    assert "\n" not in lines[1]


def test_many_assumptions_are_told_in_two_kilobytes() -> None:
    many: list[JSON] = [
        _assumed(["calls", str(place), "name"], "é" * 150, place) for place in range(100)
    ]

    lines = assumption_lines(many)

    assert sum(len(line.encode()) + 1 for line in lines[:-1]) <= 2000
    assert lines[-1] == f"and {101 - len(lines)} more"


def _explained(place: str, *by: JSON, **more: JSON) -> JSONObject:
    return {"at": ["calls", place, "n"], "by": list(by), **more}


@pytest.mark.parametrize(
    ("explained", "sentence"),
    [
        ([], ""),
        ([_explained("0", "†input.n", runs=2)], ""),
        ([_explained("0", "†results.0.id")], ""),
        (
            [
                _explained("0", "†input.n", {"constant": 1}),
                _explained("2", "†input.n", why="recorded text"),
                _explained("3", "†results.0.items.1", runs=2),
                _explained("4", "†results.0.items.1", runs=3),
            ],
            "May assume n of list (call 0), n of send, n of list (call 3) (made from 3 runs).",
        ),
    ],
)
def test_a_description_says_what_the_runs_leave_open(explained: list[JSON], sentence: str) -> None:
    assert evidence_sentence(explained, ["list", "find", "send", "list"]) == sentence


def test_a_description_names_parts_of_parameters_and_of_the_output() -> None:
    at: list[list[JSON]] = [
        ["calls", "0", "to", "0", "name"],
        ["output", "total"],
        ["output"],
        ["calls", "7", "n"],
    ]
    explained: list[JSON] = [{"at": path, "by": [1, 2]} for path in at]
    sentence = evidence_sentence(explained, ["send"])
    # The plan has no call at the last of these places, which can happen only in a damaged plan.
    assert sentence == (
        "May assume to.0.name of send, total of the output, the output, "
        "calls.7.n (made from 1 run)."
    )


def test_a_description_stays_short() -> None:
    many: list[JSON] = [
        _explained(str(place), "†input.n", {"constant": 1}) for place in range(1200)
    ]

    tools = ["add"] * 1200
    for found in (
        evidence_sentence(many, tools),
        evidence_sentence([_explained("0", 1, 2)], ["9" * 400]),
    ):
        assert len(found) <= 300
    assert evidence_sentence(many, tools).endswith(
        "n of add (call 12) and 1,187 more (made from 1 run)."
    )


def test_a_person_chooses_among_the_values_that_are_known_whole() -> None:
    assumption = read_assumption(_assumed(["calls", "0", "to"], "ann", "b" * 300, {"a": 1}))

    assert [one.value for one in assumption.choices] == ["ann", {"a": 1}]
    assert assumption.choices[0].text == '"ann" (always "ann")'
    # The value that was taken is always a choice. It need not be shown in full, because it is in
    # the call.
    long = read_assumption(_assumed(["calls", "0", "to"], "a" * 300, "bob"))
    assert [one.value for one in long.choices] == [MISSING, "bob"]
    assert read_assumption(_assumed(["calls", "0", "to"], "ann", "a" * 300)).choices == ()


def test_a_call_that_may_not_belong_into_the_run_has_no_value() -> None:
    found: JSONObject = {"at": "calls.0: calls.2", "why": "it may have been a decision"}

    assert assumption_lines([found]) == ["calls.0: calls.2: it may have been a decision"]
    assert read_assumption(found).choices == ()


@pytest.mark.parametrize(
    ("call", "at", "expected"),
    [
        ({"_tool": "t", "n": 1}, ["n"], {"_tool": "t", "n": 2}),
        ({"q": {"a.b": [0, {"c": 1}]}}, ["q", "a.b", "1", "c"], {"q": {"a.b": [0, {"c": 2}]}}),
        ({'"odd"': {"": 1}}, ['"odd"', ""], {'"odd"': {"": 2}}),
        ({"_each": [{"n": 1, "x": 1}, {"n": 1}]}, ["n"], {"_each": [{"n": 2, "x": 1}, {"n": 2}]}),
        ({"_each": [{"n": 1}, {"n": 1}]}, ["_each", "1", "n"], {"_each": [{"n": 1}, {"n": 2}]}),
    ],
)
def test_a_choice_changes_one_literal_of_the_call(
    call: JSONObject, at: list[JSON], expected: JSONObject
) -> None:
    assumed = _assumed(["calls", "4", *at], 1, 2)

    assert with_choices(call, {str(assumed["at"]): 2}) == expected


@pytest.mark.parametrize(
    "at", ["calls.4.gone", "calls.4.n.deeper", "output.n", "calls.4", 'calls.4."n']
)
def test_a_choice_for_another_place_is_refused(at: str) -> None:
    with pytest.raises(ExplanationError, match=r"calls\.4|output\.n"):
        with_choices({"_tool": "t", "n": 1}, {at: 2})


def test_what_an_assistant_chooses_is_assumed_too() -> None:
    first = _assumed(["calls", "4", "n"], 1, 2)
    other = _assumed(["calls", "4", "m"], "a" * 300, "b")
    gone = _assumed(["calls", "4", "gone"], 1, 2)

    found = after_edit(
        [first, other, gone], {"_tool": "t", "n": 2, "m": "a" * 300}, "chosen by the assistant"
    )

    assert found == [
        {
            "at": "calls.4.n",
            "taken": 2,
            "from": "chosen by the assistant",
            "instead": [{"value": 1, "from": "always 1"}, {"from": "†input.gone"}],
            "why": "its explanations differ",
        },
        other,
    ]
