"""The search for explanations: what it returns has the value, and it finds the function that
made a literal.
"""

from __future__ import annotations

import json
from datetime import date, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.context.explanations import (
    MOST_EXPLANATIONS,
    Read,
    operand_path,
    read_explanation,
    same,
)
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.lifting.index import Values
from ideabridge.bridge.lifting.search import Found, explain_literal
from ideabridge.tools.encoding import JSON, JSONObject

Documents = dict[str, JSON]


def reader(documents: Documents) -> Read:
    """Read references as a plan does: the first two keys of †results.0.x name the document."""

    def read(text: str) -> JSON | Missing:
        path = operand_path(text)
        for root, document in documents.items():
            start = operand_path(root)
            if path[: len(start)] == start:
                return read_path(document, path[len(start) :])
        return MISSING

    return read


def forms(found: Found) -> list[JSON]:
    return [one.to_json() for one in found.by]


def shown(value: JSON) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


# -- any documents ---------------------------------------------------------------------------------

WORDS = [
    "ann",
    "Ann",
    " bob",
    "5",
    "5.0",
    "7",
    "",
    "a.b",
    "2026-11-22",
    "22.11.2026",
    "Id: 7 (open)",
    "x=ann, y=bob",
]
SCALARS = st.sampled_from([*WORDS, None, True, False, 0, 1, 5, 5.0, 7, 10, -3, 2.5]) | st.text(
    max_size=4
)
NAMES = st.sampled_from(["id", "name", "n", "a b", "0", "items"])
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
DOCUMENT = ANYTHING | ANYTHING.map(json.dumps)


@given(
    st.fixed_dictionaries(
        {"†input": st.dictionaries(NAMES, DOCUMENT, max_size=3), "†results.0": DOCUMENT}
    ),
    ANYTHING,
)
@settings(max_examples=150)
def test_every_explanation_has_the_value_and_a_form_that_can_be_read(
    documents: Documents, value: JSON
) -> None:
    made_of: JSON = f"by {value}" if isinstance(value, str) else [value]
    literals: list[JSON] = [value, *WORDS, 5, made_of]
    values = Values(documents)
    for literal in literals:
        found = explain_literal(literal, values, "name")
        assert 0 < len(found.by) <= MOST_EXPLANATIONS
        assert {"constant": literal} in forms(found)
        for one in found.by:
            again = read_explanation(one.to_json())
            made = again.value(reader(documents))
            assert not isinstance(made, Missing), one
            assert same(made, literal), one


# -- the functions that a mind carries out by hand -------------------------------------------------

FUNCTIONS: dict[str, JSON] = {
    "input path": "†input.city",
    "result path": "†results.0.next",
    "path into a text that is JSON": "†results.2.meta.etag",
    "number as text": {"convert": "†input.code", "by": ["text"]},
    "text as number": {"convert": "†results.0.printed", "by": ["number"]},
    "lower case": {"convert": "†input.city", "by": ["lower"]},
    "upper case": {"convert": "†input.city", "by": ["upper"]},
    "without spaces": {"convert": "†results.0.padded", "by": ["strip"]},
    "item by an explained value": {
        "item_of": "†results.0.rows",
        "where": {"name": "†input.person"},
        "take": ["id"],
    },
    "item by a member of a member": {
        "item_of": "†results.0.rows",
        "where": {"user.mail": "†input.mail"},
        "take": ["user", "key"],
    },
    "first position": "†results.0.rows.0.id",
    "other position": "†results.0.rows.2.id",
    "join": {"join": [{"constant": "Report for "}, "†input.city", {"constant": "."}]},
    "join with a number": {"join": [{"constant": "code-"}, "†input.code"]},
    "morning of a day": {"join": ["†input.day", {"constant": "T09:30:00Z"}]},
}

LETTERS = st.text("bcdfghkmnprstvz", min_size=5, max_size=8)
IDS = st.tuples(LETTERS, st.integers(100, 99_999)).map(lambda pair: f"{pair[0]}{pair[1]}")
DAYS = st.integers(0, 9_000).map(lambda days: (date(2010, 1, 1) + timedelta(days=days)).isoformat())


@st.composite
def worlds(draw: st.DrawFn) -> Documents:
    """The documents of one run: an input, records, texts, and a text that is JSON."""
    size = draw(st.integers(3, 6))
    ids = draw(st.lists(IDS, min_size=3 * size + 3, max_size=3 * size + 3, unique=True))
    sizes = draw(st.lists(st.integers(200, 9_000), min_size=size, max_size=size, unique=True))
    days = draw(st.lists(DAYS, min_size=size, max_size=size, unique=True))
    states = [
        *draw(st.lists(st.sampled_from(["open", "closed"]), min_size=size - 1, max_size=size - 1)),
        "open",
    ]
    rows: list[JSON] = [
        {
            "id": ids[n],
            "name": ids[size + n],
            "size": sizes[n],
            "day": days[n],
            "state": states[n],
            "user": {"mail": f"{ids[2 * size + n]}@example.org", "key": f"k-{ids[2 * size + n]}"},
        }
        for n in range(size)
    ]
    person = draw(st.integers(0, size - 1))
    mail = draw(st.integers(0, size - 1))
    city, said, sha = ids[3 * size :]
    number = draw(st.integers(1_000, 9_999))
    day = draw(DAYS)
    return {
        "†input": {
            "city": city.title(),
            "person": ids[size + person],
            "mail": f"{ids[2 * size + mail]}@example.org",
            "code": draw(st.integers(10_000, 99_999)),
            "day": day,
            "price": draw(st.integers(120, 900)),
        },
        "†results.0": {
            "rows": rows,
            "next": f"cur-{ids[0]}",
            "printed": str(draw(st.integers(100_000, 999_999))),
            "padded": f"  {said} ",
            "start": f"{draw(DAYS)}T{draw(st.integers(10, 23))}:30:00+02:00",
            "total": draw(st.integers(100_000, 999_999)),
        },
        "†results.1": {
            "text": f"Changes committed successfully with hash {sha}",
            "said": f"{said}q was moved to {sha}x",
            "log": f"commit {sha}\nAuthor: {city}z\nDate: {day}",
            "issue": f"[{number}] Fix login (open)",
            "path": f"src/{said}/{sha}.txt",
        },
        "†results.2": json.dumps({"meta": {"etag": f"W-{said}"}}),
    }


def values_made(documents: Documents) -> dict[str, JSON]:
    """The value that each function makes. An empty one could be anything."""
    found = {
        kind: read_explanation(form).value(reader(documents)) for kind, form in FUNCTIONS.items()
    }
    return {
        kind: value
        for kind, value in found.items()
        if not isinstance(value, Missing) and value not in ("", [])
    }


@given(worlds())
@settings(max_examples=12)
def test_the_function_that_made_a_literal_is_found_in_one_run(documents: Documents) -> None:
    values = Values(documents)
    for kind, value in values_made(documents).items():
        found = explain_literal(value, values)
        assert found.cut or shown(FUNCTIONS[kind]) in map(shown, forms(found)), (kind, value)


@given(worlds(), worlds())
@settings(max_examples=6)
def test_the_function_that_made_a_literal_survives_a_second_run(
    first: Documents, second: Documents
) -> None:
    values = Values(first)
    there = values_made(second)
    for kind, value in values_made(first).items():
        if kind not in there:
            continue
        found = explain_literal(value, values).fitting([(there[kind], reader(second))])
        assert found.cut or shown(FUNCTIONS[kind]) in map(shown, forms(found)), kind
        for one in found.by:
            again = one.value(reader(second))
            assert not isinstance(again, Missing), one
            assert same(again, there[kind]), one


def test_a_key_that_is_data_costs_as_much_as_a_position() -> None:
    prices: JSONObject = {"K17": {"price": 731.5}, "K18": {"price": 12.25}}
    documents: Documents = {
        "†results.0": {"by_id": prices},
        "†results.1": {"last": {"price": 731.5}},
    }
    found = explain_literal(731.5, Values(documents))
    assert forms(found)[:2] == ["†results.1.last.price", "†results.0.by_id.K17.price"]
