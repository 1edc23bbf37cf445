"""Explanations of values: their forms, their values, and when a value is determined."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    Read,
    as_it_runs,
    read_explained,
    read_explanation,
    settle,
)
from ideabridge.bridge.context.references import parse_reference
from ideabridge.bridge.context.seen import grow, unseen
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.tools.encoding import JSON, JSONObject

_ITEMS: JSON = [
    {"id": 7, "name": "ann", "price": 3, "state": "open", "user": {"login": "a1"}},
    {"id": 9, "name": "bob", "price": 5, "state": "open", "user": {"login": "b2"}},
    {"id": 4, "name": "cat", "price": 1, "state": "shut"},
]
_DOCUMENT: dict[str, JSON] = {
    "input": {"city": "Rome", "day": "2026-11-22", "n": 5, "user": "bob", "list": '[{"a": 1}]'},
    "results": {
        "0": {"items": _ITEMS},
        "1": "Commit made with hash abc123.\n[12] Fix login (open)\nauthor: Ann Lee",
    },
}


def _read_from(document: dict[str, JSON]) -> Read:
    def found(text: str) -> JSON | Missing:
        return read(document, next(parse_reference(text).operands()).full)

    return found


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("†results.0.items.0.id", 7),
        ("†input.list.0.a", 1),
        ({"item_of": "†results.0.items", "where": {"name": "†input.user"}, "take": ["id"]}, 9),
        (
            {
                "item_of": "†results.0.items",
                "where": {"user.login": {"constant": "b2"}},
                "take": ["name"],
            },
            "bob",
        ),
        ({"convert": "†input.n", "by": ["text"]}, "5"),
        ({"convert": {"constant": "10.50"}, "by": ["number"]}, 10.5),
        ({"convert": {"constant": "0x10"}, "by": ["number"]}, MISSING),
        ({"convert": "†input.city", "by": ["upper"]}, "ROME"),
        ({"join": [{"constant": "Report for "}, "†input.city"]}, "Report for Rome"),
        ({"join": [{"constant": "no. "}, "†input.n", {"constant": "!"}]}, "no. 5!"),
        ({"join": [{"constant": "all: "}, "†results.0"]}, MISSING),
        ({"item_of": "†input.city", "where": {"": "†input.city"}, "take": []}, MISSING),
        ("†results.7.x", MISSING),
    ],
)
def test_an_explanation_has_the_value_that_its_form_says(form: JSON, value: Any) -> None:
    found = read_explanation(form)

    assert found.value(_read_from(_DOCUMENT)) == value
    assert read_explanation(found.to_json()) == found
    assert found.shown


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (5, "expected a reference"),
        ({"constant": 1, "more": 2}, "expected a reference"),
        ("†item.x", "expected one reference"),
        ("†input.a || †input.b", "expected one reference"),
        ("†①.state.x", "expected one reference"),
        ({"convert": "†input.n", "by": ["add", 1]}, "expected a reference"),
        ({"convert": "†input.n", "by": ["eval"]}, "expected a reference"),
        ({"join": []}, "expected a reference"),
        ({"item_of": "†input.x", "where": {}, "take": []}, "an object with one field"),
        ({"join": ["†input.a", "†input.b"]}, "expected one part that is not a constant"),
        ({"join": [{"constant": "a"}]}, "expected one part that is not a constant"),
        ({"item_of": "†input.x", "where": {"a": "†input.x"}, "take": [1]}, "an array of keys"),
        ({"item_of": "†input.x", "largest": "a", "take": []}, "expected a reference"),
        ({"all_of": "†input.x", "take": []}, "expected a reference"),
        ({"test": "†input.x", "equals": 1}, "expected a reference"),
        (
            {"if": {"test": "†input.x", "equals": 1}, "then": "†input.x", "else": "†input.x"},
            "expected a reference",
        ),
    ],
)
def test_a_malformed_explanation_is_refused_with_its_place(form: JSON, message: str) -> None:
    with pytest.raises(ExplanationError, match=message):
        read_explanation(form)


def test_an_explanation_nests_only_so_deep() -> None:
    form: JSON = "†input.x"
    for _ in range(10):
        form = {"convert": form, "by": ["strip"]}

    with pytest.raises(ExplanationError, match="at most"):
        read_explanation(form)


def _settled(by: list[JSON], *, runs: int = 1, **more: Any) -> Any:
    explained = read_explained({"at": ["calls", "2", "to"], "by": by, "runs": runs, **more})
    assert read_explained(explained.to_json()) == explained
    return settle(explained, _read_from(_DOCUMENT))


def test_a_value_on_which_all_explanations_agree_is_determined() -> None:
    settled = _settled(["†results.0.items.1.name", "†input.user", {"constant": "bob"}], runs=3)

    assert settled.value == "bob"
    assert settled.assumed is None


def test_the_cheapest_is_taken_and_the_others_are_named() -> None:
    by: list[JSON] = [
        "†input.user",
        "†results.0.items.0.name",
        {"constant": "ann"},
        "†results.5.name",
    ]

    settled = _settled(by, runs=3)

    assert settled.value == "bob"
    assert settled.assumed == {
        "at": "calls.2.to",
        "taken": "bob",
        "from": "†input.user",
        "instead": [
            {"value": "ann", "from": "†results.0.items.0.name"},
            {"from": "†results.5.name"},
        ],
        "why": "its explanations differ",
    }


@pytest.mark.parametrize(("runs", "determined"), [(1, False), (2, False), (3, True)])
def test_a_position_is_assumed_until_three_runs_agree(runs: int, determined: bool) -> None:
    assert (_settled(["†results.0.items.0.id"], runs=runs).assumed is None) is determined


def test_a_position_in_a_list_of_one_item_is_no_choice() -> None:
    assert _settled(["†input.list.0.a"]).assumed is None


@pytest.mark.parametrize(
    ("where", "take", "chooses"),
    [
        ({"state": {"constant": "open"}}, "id", True),
        ({"state": {"constant": "open"}}, "user.login", True),
        ({"state": {"constant": "open"}}, "user.city", False),
        ({"state": {"constant": "open"}}, "state", False),
        ({"state": {"constant": "shut"}}, "id", False),
        ({"name": "†input.user"}, "id", False),
        ({"price": {"constant": 3}}, "id", False),
    ],
)
def test_the_first_of_several_items_that_meet_a_condition_is_a_position(
    where: dict[str, JSON], take: str, chooses: bool
) -> None:
    by: list[JSON] = [
        {"item_of": "†results.0.items", "where": where, "take": list[JSON](take.split("."))}
    ]
    found = read_explanation(by[0])

    assert found.positions(_read_from(_DOCUMENT)) is chooses
    if not isinstance(found.value(_read_from(_DOCUMENT)), Missing):
        assert (_settled(by, runs=2).assumed is not None) is chooses
        assert _settled(by, runs=3).assumed is None


def test_words_that_were_recorded_are_never_determined_and_the_bound_of_a_search_is_noted() -> None:
    assert _settled(["†input.city"], runs=9, why="recorded text").assumed is not None
    cut = _settled(["†input.city"], runs=9, cut=True)
    assert (cut.assumed, cut.note) == (None, "ideabridge did not look for all explanations")


def test_without_any_value_there_is_none() -> None:
    assert _settled(["†results.5.name"]).value is MISSING


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([5], 7, ["7, but earlier runs had 5 to 5"]),
        ([5], 5.0, []),
        ([5], -1, ["a negative number"]),
        ([5, -3], -2, []),
        ([5], 0, ["zero"]),
        ([5], None, ["nothing, but earlier runs had a number"]),
        ([5], "x", ["a string"]),
        (["x"], "", ["an empty text"]),
        ([[1]], [], ["an empty list"]),
        ([[1], []], [], []),
        ([True], False, ["false, but earlier runs had true"]),
        ([{"a": 1, "b": None}], {"a": 1, "b": 2}, ['with "b"']),
        ([{"a": 1, "b": 2}], {"b": 2}, ['without "a"']),
        ([{"a": 1, "b": 2}, {"b": 2}], {"b": 2}, []),
        (['{"a": 1}'], '{"a": 2}', []),
        (["ann", "bob"], "carl", []),
        (["ann", "bob"], "Zoë", ["capital letters, which"]),
        (["5", "W7"], "w8", ["small letters"]),
        (["ann"], " ann bob ", ["spaces around it and several words"]),
        (["Ann"], "BOB", ["letters in another case"]),
        (["ann", "x" * 2_000], "Ann", []),
    ],
)
def test_what_no_run_had_is_named(before: list[JSON], now: JSON, new: list[str]) -> None:
    profile: dict[str, JSON] = {}
    for value in before:
        profile = grow(profile, value)

    found = unseen(profile, now)

    assert len(found) == len(new)
    assert all(part in one.text for part, one in zip(new, found, strict=True))
    assert all(one.mild == ("earlier runs had 5 to 5" in one.text or one.notation) for one in found)
    assert unseen(grow(profile, now), now) == []


def test_a_plan_is_read_with_what_it_sends() -> None:
    by: JSON = [{"constant": "x" * 500}, "†results.0.id"]
    plan: JSONObject = {
        "calls": [{"_tool": "a", "list": [1, {"k": "v"}]}, {"_tool": "b", "†explained": "no"}],
        "output": "text",
        "fixed": {"n": 1},
        "explained": [
            {"at": ["calls", "0", "list", "1", "k"], "by": by, "runs": 3, "why": "w"},
            {"at": ["output"], "by": ["†input.n"], "cut": True},
            {"at": ["calls", "7", "k"], "by": by},
            {"at": ["calls", "0", "list", "1", "k", "inner"], "by": by},
            {"at": ["calls", "0", "_tool"], "by": by, "recorded": "what somebody claims"},
            {"at": "calls", "by": by},
        ],
    }
    kept = json.dumps(plan)
    shown = as_it_runs(plan)
    assert shown == {
        "calls": [
            {
                "_tool": "a",
                "list": [1, {"k": {"†explained": by, "runs": 3, "why": "w", "recorded": "v"}}],
            },
            # A key that the plan itself has cannot be mistaken for one of ours.
            {"_tool": "b", "††explained": "no"},
        ],
        "output": {"†explained": ["†input.n"], "cut": True, "recorded": "text"},
        "fixed": {"n": 1},
        "explained": plan["explained"][2:] if isinstance(plan["explained"], list) else None,
    }
    assert json.dumps(plan) == kept
    others: list[JSONObject] = [{"calls": []}, {"program": "x", "names": {}}, {"explained": 3}, {}]
    for other in others:
        assert as_it_runs(other) == other
