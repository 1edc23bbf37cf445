"""Removed kinds of explanations: their values in old journals, and the same values by the
expressions they become.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import Read, operand_path, same
from ideabridge.bridge.context.references import parse_reference
from ideabridge.bridge.context.removed import (
    NoExpressionError,
    is_removed,
    python_of,
    read_earlier_explained,
)
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.tools.computing import MAX_CODE, computed
from ideabridge.tools.encoding import JSON

ITEMS: list[JSON] = [
    {"id": 7, "name": "ann", "price": 3, "state": "open", "user": {"login": "a1"}},
    {"id": 9, "name": "bob", "price": 5, "state": "open", "user": {"login": "b2"}},
    {"id": 4, "name": "cat", "price": 1, "state": "shut"},
]
DOCUMENT: dict[str, JSON] = {
    "input": {
        "city": "Rome",
        "day": "2026-11-22",
        "n": 5,
        "user": "bob",
        "list": '[{"a": 1}]',
        "half": 0.5,
        "no": None,
    },
    "results": {
        "0": {"items": ITEMS},
        "1": "Commit made with hash abc123.\n[12] Fix login (open)\nauthor: Ann Lee",
    },
}


def reading(document: dict[str, JSON]) -> Read:
    def found(text: str) -> JSON | Missing:
        return read(document, next(parse_reference(text).operands()).full)

    return found


def by_earlier(form: JSON, document: dict[str, JSON]) -> JSON | Missing:
    literal = read_earlier_explained({"at": ["output"], "by": [form]})
    return literal.by[0].value(reading(document))


def by_python(form: JSON, document: dict[str, JSON]) -> JSON | Missing:
    names: dict[str, JSON] = {}

    def name(text: str) -> str:
        path = operand_path(text)
        value = read(document, path)
        called = "_".join(path)
        if not isinstance(value, Missing):
            names[called] = value
        return called

    found = asyncio.run(computed(python_of(form, name), names))
    assert isinstance(found, list)
    assert len(found) < 2
    return found[0] if found else MISSING


WHERE: dict[str, JSON] = {"state": {"constant": "open"}}


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ({"item_of": "†results.0.items", "largest": "price", "take": ["id"]}, 9),
        ({"item_of": "†results.0.items", "smallest": "name", "take": []}, ITEMS[0]),
        ({"item_of": "†results.0.items", "largest": "user.login", "take": ["id"]}, MISSING),
        ({"item_of": "†input.city", "largest": "", "take": []}, MISSING),
        ({"all_of": "†results.0.items", "take": ["id"]}, [7, 9, 4]),
        ({"all_of": "†results.0.items", "take": ["user", "login"]}, ["a1", "b2"]),
        ({"all_of": "†results.0.items", "take": ["id"], "where": WHERE}, [7, 9]),
        ({"all_of": "†results.0.items", "take": ["id"], "where": {"id": "†input.n"}}, []),
        ({"all_of": "†input.list", "take": []}, [{"a": 1}]),
        (
            {
                "item_of": "†results.0.items",
                "where": {"id": {"convert": "†input.n", "by": ["add", 2]}},
                "take": ["name"],
            },
            "ann",
        ),
        ({"test": "†input.n", "present": True}, True),
        ({"test": "†input.none", "present": True}, False),
        ({"test": "†input.no", "present": False}, True),
        ({"test": "†input.none", "empty": True}, True),
        ({"test": "†results.0.items", "empty": False}, True),
        ({"test": "†input.n", "equals": 5}, True),
        ({"test": "†input.n", "differs_from": [4, 5]}, False),
        ({"test": "†input.n", "above": 5}, False),
        ({"test": "†input.n", "at_least": 5}, True),
        ({"test": "†input.n", "below": 5.5}, True),
        ({"test": "†input.n", "at_most": 4}, False),
        ({"test": "†input.city", "at_most": 4}, MISSING),
        ({"if": {"test": "†input.n", "above": 4}, "then": "†input.n", "else": "†input.city"}, 5),
        (
            {"if": {"test": "†input.n", "above": 5}, "then": "†input.n", "else": "†input.none"},
            MISSING,
        ),
        (
            {"if": {"test": "†input.city", "above": 5}, "then": "†input.n", "else": "†input.n"},
            MISSING,
        ),
        ({"convert": "†input.n", "by": ["add", -2]}, 3),
        ({"convert": "†input.n", "by": ["multiply", 0.1]}, 0.5),
        ({"convert": "†input.city", "by": ["add", 1]}, MISSING),
        ({"convert": "†results.1", "by": ["between", "hash ", "."]}, "abc123"),
        ({"convert": "†results.1", "by": ["between", "author: ", ""]}, "Ann Lee"),
        ({"convert": "†results.1", "by": ["between", "author: ", "."]}, MISSING),
        ({"convert": "†results.1", "by": ["word", -1]}, "Lee"),
        ({"convert": "†results.1", "by": ["word", 99]}, MISSING),
        ({"convert": "†results.1", "by": ["part", "\n", 1]}, "[12] Fix login (open)"),
        ({"convert": {"convert": "†results.1", "by": ["between", "[", "]"]}, "by": ["number"]}, 12),
        ({"convert": {"convert": "†results.1", "by": ["word", 0]}, "by": ["upper"]}, "COMMIT"),
        ({"convert": "†results.0.items", "by": ["length"]}, 3),
        ({"convert": "†input.list", "by": ["length"]}, 1),
        (
            {
                "join": [
                    {"constant": "For "},
                    "†input.city",
                    {"constant": " #"},
                    "†input.n",
                    "†input.half",
                ]
            },
            "For Rome #50.5",
        ),
        ({"join": ["†results.0", "†input.n"]}, MISSING),
        ({"join": [{"convert": "†results.1", "by": ["word", 0]}, {"constant": "!"}]}, "Commit!"),
    ],
)
def test_the_expression_of_an_explanation_has_its_value(form: JSON, value: Any) -> None:
    assert is_removed(form)
    assert by_earlier(form, DOCUMENT) == value
    assert by_python(form, DOCUMENT) == value
    literal = read_earlier_explained({"at": ["calls", "1", "_when"], "by": [form]})
    assert read_earlier_explained(literal.to_json()) == literal
    assert literal.by[0].shown


@pytest.mark.parametrize(
    ("source", "by", "value"),
    [
        ("day", ["%Y-%m-%d", "%e %B %Y", 10], "2 December 2026"),
        ("day", ["%Y-%m-%d", "%d/%m/%Y", -22], "31/10/2026"),
        ("day", ["%d/%m/%Y", "%Y", 0], MISSING),
        ("city", ["%Y-%m-%d", "%Y", 0], MISSING),
    ],
)
def test_a_shifted_date_has_its_value_and_no_expression(
    source: str, by: list[JSON], value: Any
) -> None:
    form: JSON = {"join": ["†input.n", {"convert": f"†input.{source}", "by": ["date", *by]}]}
    assert by_earlier(form, DOCUMENT) == (value if value is MISSING else f"5{value}")
    with pytest.raises(NoExpressionError):
        python_of(form, str)


@pytest.mark.parametrize(
    "form",
    [
        {"convert": "†input.n", "by": ["add", "x"]},
        {"convert": "†input.n", "by": ["date", "%Z", "%Y", 1]},
        {"convert": "†input.n", "by": ["part", "", 1]},
        {"join": []},
        {"join": ["†input.n", 5]},
        {"item_of": "†input.x", "largest": "a", "take": [1]},
        {"item_of": "input", "largest": "a", "take": []},
        {"test": "†input.x", "like": 1},
        {"if": "†input.x", "then": "†input.x", "else": "†input.x"},
    ],
)
def test_a_malformed_form_is_refused(form: JSON) -> None:
    with pytest.raises(ExplanationError):
        read_earlier_explained({"at": ["output"], "by": [form]})


TEXTS = st.one_of(
    st.sampled_from(
        ["a, b: c\nd", " ab  cd ", "2026-02-28", "1 January 2024", "12", "0.5", "", "Ann", "é ß"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="[{"), max_size=8),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-1000, 1000), st.floats(-100, 100, width=32), TEXTS
)
ROWS = st.lists(st.fixed_dictionaries({}, optional={"k": SCALARS, "v": SCALARS}), max_size=4)
SEPARATORS = st.sampled_from([", ", ": ", "\n", " ", "'", "\\"])
STEPS: st.SearchStrategy[list[JSON]] = st.one_of(
    st.tuples(st.just("word"), st.integers(-3, 3)).map(list[JSON]),
    st.tuples(st.just("part"), SEPARATORS, st.integers(-3, 3)).map(list[JSON]),
    st.tuples(st.just("between"), SEPARATORS, st.one_of(st.just(""), SEPARATORS)).map(list[JSON]),
    st.tuples(st.sampled_from(["add", "multiply"]), st.sampled_from([-9, 0, 7, 0.1, 2.5])).map(
        list[JSON]
    ),
    st.sampled_from(["length", "number", "text", "lower", "strip"]).map(
        lambda name: list[JSON]([name])
    ),
)
CONSTANTS = st.lists(SCALARS, min_size=1, max_size=3).map(list[JSON])
TESTS: st.SearchStrategy[tuple[str, JSON]] = st.one_of(
    st.tuples(st.sampled_from(["present", "empty"]), st.booleans()),
    st.tuples(st.sampled_from(["equals", "differs_from"]), CONSTANTS),
    st.tuples(st.sampled_from(["above", "at_least", "below", "at_most"]), st.integers(-9, 9)),
)
SOURCES = st.sampled_from(["†input.one", "†input.two", "†input.gone", "†input.rows.0.k"])


def converting(one: JSON, by: list[JSON]) -> JSON:
    return {"convert": one, "by": by}


def joining(parts: list[JSON]) -> JSON:
    return {"join": parts}


def extreme(side: str) -> JSON:
    return {"item_of": "†input.rows", side: "k", "take": ["v"]}


def column(wanted: JSON) -> JSON:
    form: dict[str, JSON] = {"all_of": "†input.rows", "take": ["v"]}
    return form if wanted == "all" else {**form, "where": {"k": wanted}}


def branching(source: str, test: tuple[str, JSON], then: JSON, otherwise: JSON) -> JSON:
    return {"if": {"test": source, test[0]: test[1]}, "then": then, "else": otherwise}


def made_of(inner: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    return st.one_of(
        st.builds(converting, inner, STEPS),
        st.lists(inner, min_size=2, max_size=3).map(joining),
        st.sampled_from(["largest", "smallest"]).map(extreme),
        st.one_of(st.just("all"), inner).map(column),
        st.builds(branching, SOURCES, TESTS, inner, inner),
    )


def fixed(value: JSON) -> JSON:
    return {"constant": value}


LEAVES: st.SearchStrategy[JSON] = st.one_of(SOURCES, SCALARS.map(fixed))
FORMS = st.recursive(LEAVES, made_of, max_leaves=4)


@settings(max_examples=60, deadline=None)
@given(FORMS, SCALARS, SCALARS, ROWS)
def test_every_expression_has_the_value_of_its_explanation(
    form: JSON, one: JSON, two: JSON, rows: list[JSON]
) -> None:
    document: dict[str, JSON] = {"input": {"one": one, "two": two, "rows": rows}}
    # A longer expression is not converted.
    assume(len(python_of(form, lambda _: "input")) <= MAX_CODE)
    before = by_earlier(form, document)
    after = by_python(form, document)
    if isinstance(before, Missing) or isinstance(after, Missing):
        assert before is after
    else:
        assert same(before, after)
