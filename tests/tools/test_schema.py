"""Validator and inline_refs: what fits, what is said of what does not, and what
cannot hang or fetch.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ideabridge.tools.schema as schemas
from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, encode
from ideabridge.tools.errors import (
    InvalidJSONError,
    LimitExceededError,
    SchemaError,
    ValueMismatchError,
)
from ideabridge.tools.schema import Validator, check_schema, inline_refs

D2020 = "https://json-schema.org/draft/2020-12/schema"

CALL: JSONObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "paths": {"type": "array", "items": {"type": "string"}},
        "mode": {"enum": ["fast", "slow"]},
        "ratio": {"type": "number"},
    },
    "required": ["path", "count"],
    "additionalProperties": False,
}


def told(schema: JSONObject, value: JSON) -> str:
    with pytest.raises(ValueMismatchError) as caught:
        Validator(schema, what="W").check(value)
    return str(caught.value)


def test_a_valid_call_passes() -> None:
    Validator(CALL, what="call").check(
        {"path": "a", "count": 1, "paths": ["x"], "mode": "fast", "ratio": 5}
    )


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (CALL, 7, "W: found 7, expected an object"),
        (CALL, {"count": 1}, "W: path: missing, expected text (required)"),
        (CALL, {"path": "a", "count": 0}, "W: count: found 0, expected at least 1"),
        (CALL, {"path": "a", "count": 1, "paths": ["a", 2]}, "W: paths.1: found 2, expected text"),
        (
            CALL,
            {"path": "a", "count": 1, "mode": "fats"},
            'W: mode: found "fats", expected one of "fast", "slow". Did you mean \'fast\'?',
        ),
        (
            {"properties": {"path": {}}, "additionalProperties": False},
            {"paht": 1},
            (
                "W: paht: found 1, expected no property with this name; the only "
                "property is 'path'. Did you mean 'path'?"
            ),
        ),
        (
            {"properties": {"a.b": {"type": "null"}}},
            {"a.b": 1},
            'W: ["a.b"]: found 1, expected null',
        ),
        ({"type": ["string", "null"]}, 1, "W: found 1, expected text or null"),
        (
            {"anyOf": [{"type": "string"}, {"anyOf": [{"type": "null"}]}]},
            1,
            "W: found 1, expected text or null",
        ),
        ({"minItems": 3}, [1], "W: found [1], expected at least 3 items"),
        ({"maxLength": 3}, "abcd", 'W: found "abcd", expected at most 3 characters, not 4'),
        ({"const": 2**80}, 2**80 + 1, f"W: found {2**80 + 1}, expected {2**80}"),
        ({"maximum": 2**70}, 2**71, f"W: found {2**71}, expected at most {2**70}"),
        (
            {"not": {"type": "string"}},
            "a",
            'W: found "a", expected a value that does not match {"type": "string"}',
        ),
        ({"properties": {"a": False}}, {"a": 1}, "W: a: found 1, expected nothing here"),
        (
            {"propertyNames": {"pattern": "^a"}},
            {"b": 1},
            'W: found "b", expected a property name that is text that',
        ),
        (
            {"contains": {"type": "null"}},
            [1],
            "W: found [1], expected the right number of items that are each null",
        ),
        (
            {"oneOf": [{"minimum": 1}, {"type": "integer"}]},
            3,
            "expected a value that fits exactly one of the altern",
        ),
    ],
)
def test_a_mismatch_says_path_found_and_expected(
    schema: JSONObject, value: JSON, message: str
) -> None:
    assert message in told(schema, value)


def test_only_the_first_five_problems_are_listed() -> None:
    schema: JSONObject = {"items": {"type": "string"}}
    value: JSON = [*range(9)]
    message = told(schema, value)
    assert message.count("expected text") == 5
    assert message.endswith("; and 4 more")
    assert len(Validator(schema, what="W").problems(value)) == 9


def test_long_values_are_shortened() -> None:
    assert len(told({"type": "null"}, "x" * 10_000)) < 150
    assert len(told({"type": "null"}, {"a" * 500: ["b" * 500, 1]})) < 250


VARIANTS: JSONObject = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"_tool": {"const": name}, "n": {"type": "integer"}},
            "required": ["_tool"],
            "additionalProperties": False,
        }
        for name in ("git_log", "git_diff", "fetch")
    ]
}


def test_a_variant_is_chosen_by_the_constant_that_tells_them_apart() -> None:
    assert told(VARIANTS, {"_tool": "fetch", "n": "x"}) == 'W: n: found "x", expected an integer'
    assert told(VARIANTS, {"_tool": "git_lgo"}) == (
        'W: _tool: found "git_lgo", expected one of "git_log", "git_diff", "fetch". '
        "Did you mean 'git_log'?"
    )
    assert told(VARIANTS, {"n": 1}) == (
        'W: _tool: missing, expected "git_log" or "git_diff" or "fetch" (required)'
    )


def test_integral_floats_are_integers_and_booleans_are_not() -> None:
    validator = Validator({"type": "integer"}, what="W")
    assert validator.is_valid(1.0)
    assert not validator.is_valid(True)
    assert not validator.is_valid(1.5)


def test_formats_are_annotations() -> None:
    assert Validator({"type": "string", "format": "date"}, what="W").is_valid("no date")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strin"}, 'W: the schema is invalid: type: found "strin", expected one of'),
        (
            {"properties": {"a": {"minLength": -1}}},
            "properties.a.minLength: found -1, expected at least 0",
        ),
        ({"items": {"pattern": "("}}, 'items.pattern: found "(", expected a regular expression'),
        (
            {"items": {"$ref": "https://example.com/s.json"}},
            "expected a place in this schema (nothing is fetched)",
        ),
        (
            {"items": {"$ref": "file:///etc/hostname"}},
            'items["$ref"]: found "file:///etc/hostname"',
        ),
        ({"$ref": "#/$defs/none"}, '["$ref"]: found "#/$defs/none"'),
        ({"const": "\ud800"}, "surrogate"),
    ],
)
def test_an_invalid_schema_is_told_with_its_place(schema: JSONObject, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_schema(schema, what="W")
    assert message in str(caught.value)


def test_a_schema_on_which_the_validator_panics_is_refused() -> None:
    # Two schemas have the same `$id`, and one has an anchor that the other refers to.
    schema: JSONObject = {
        "prefixItems": [
            {"additionalProperties": {"$anchor": "a", "$id": "https://example.org/y"}},
            {"properties": {"a": {"$dynamicRef": "#a"}}, "$id": "https://example.org/y"},
        ]
    }
    with pytest.raises(SchemaError, match="W: the schema cannot be compiled: "):
        check_schema(schema, what="W")


def test_the_schema_is_compiled_only_when_used() -> None:
    validator = Validator({"type": "strin"}, what="W")
    with pytest.raises(SchemaError):
        validator.is_valid(1)


def test_a_meta_schema_may_be_referred_to_without_a_network() -> None:
    validator = Validator({"$ref": "https://json-schema.org/draft/2020-12/schema"}, what="W")
    assert validator.is_valid({"type": "string"})
    assert not validator.is_valid({"type": 5})


def test_older_drafts_mean_what_they_say() -> None:
    schema: JSONObject = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "string"}],
    }
    assert Validator(schema, what="W").is_valid(["a", 1])
    assert not Validator(schema, what="W").is_valid([1])


def _deep(levels: int) -> JSONObject:
    schema: JSONObject = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def _multiplying(levels: int) -> JSONObject:
    definitions: JSONObject = {"a0": {"type": "integer"}}
    for level in range(1, levels):
        part: JSONObject = {"$ref": f"#/$defs/a{level - 1}"}
        definitions[f"a{level}"] = {"anyOf": [part, part]}
    return {"$defs": definitions, "$ref": f"#/$defs/a{levels - 1}"}


@pytest.mark.parametrize(
    "make",
    [lambda: _deep(150), lambda: {"enum": list(range(600_000))}, lambda: _multiplying(60)],
    ids=["deep", "large", "multiplying"],
)
def test_schemas_beyond_all_measure_are_refused(make: Callable[[], JSONObject]) -> None:
    start = time.process_time()
    with pytest.raises(LimitExceededError):
        check_schema(make(), what="W")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
    ],
)
def test_references_in_a_circle_end(schema: JSONObject) -> None:
    Validator(schema, what="W").is_valid(1)


def _chain(length: int) -> JSONObject:
    definitions: JSONObject = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(length)}
    definitions[f"a{length}"] = {"type": "integer"}
    return {"$defs": definitions, "$ref": "#/$defs/a0"}


def test_chains_of_references_are_followed_within_bounds() -> None:
    assert not Validator(_chain(400), what="W").is_valid("x")
    with pytest.raises(LimitExceededError, match="chain of references"):
        check_schema(_chain(100_000), what="W")


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|aa)+$", r"^(?=a)(a+)+\1$", r"^(?:(a)|b|\1)+$", "a{1000}{1000}"]
)
def test_patterns_cannot_run_away(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, the start of a worker alone can use up the budget for blocking, which other
    # tests measure. This one measures the processor time of this process.
    monkeypatch.setattr(schemas, "blocking", schemas.Blocking(clock=lambda: 0.0))
    validator = Validator({"pattern": pattern}, what="W")
    start = time.process_time()
    for value in ("a" * 40 + "!", "a" * 50_000 + "!"):
        if not validator.is_valid(value):
            validator.problems(value)
    assert time.process_time() - start < 2


def test_a_huge_value_is_explained_in_time() -> None:
    value: JSON = {"list": list(range(300_000))}
    start = time.process_time()
    schema: JSONObject = {
        "properties": {"list": {"anyOf": [{"items": {"type": "string"}}, {"type": "null"}]}}
    }
    assert "list.0: found 0, expected text" in told(schema, value)
    late: JSONObject = {"properties": {"list": {"items": {"maximum": 290_000}}}}
    assert "too large to find the exact problem" in told(late, value)
    # A problem that only the shortening caused is not reported.
    few: JSONObject = {"properties": {"list": {"minItems": 300_001}}}
    assert "too large to find the exact problem" in told(few, value)
    assert time.process_time() - start < 3


def test_what_is_not_json_is_no_value() -> None:
    validator = Validator({"type": "null"}, what="W")
    bad: Any = {1, 2}
    assert not validator.is_valid(bad)
    with pytest.raises(InvalidJSONError):
        validator.check(bad)


def test_checking_a_call_costs_microseconds() -> None:
    validator = Validator(CALL, what="call")
    value: JSON = {"path": "a", "count": 1, "paths": ["x"], "mode": "fast", "ratio": 5}
    validator.check(value)
    best = min(_timed(lambda: validator.check(value)) for _ in range(20))
    assert best < 20e-6


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(200):
        run()
    return (time.perf_counter() - start) / 200


TREE: JSONObject = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node", "description": "where it starts"}},
    "$defs": {
        "Node": {
            "type": "object",
            "description": "a node",
            "properties": {"value": {"$ref": "#/$defs/Value"}, "next": {"$ref": "#/$defs/Node"}},
            "required": ["value"],
        },
        "Value": {"type": "integer", "minimum": 0},
    },
}


def test_references_are_written_out_and_recursion_is_cut() -> None:
    inlined = inline_refs(TREE)
    assert "$ref" not in str(inlined)
    assert "$defs" not in inlined
    root = inlined["properties"]
    assert isinstance(root, dict)
    assert "'description': 'where it starts'" in str(root["root"])
    validator = Validator(inlined, what="W")
    assert validator.is_valid({"root": {"value": 1, "next": {"value": "anything"}}})
    assert not validator.is_valid({"root": {"value": -1}})


@pytest.mark.parametrize(
    ("part", "admitted", "refused"),
    [
        # An anchor names something local, which is known.
        ({"$ref": "#count"}, [3], ["x"]),
        ({"$ref": "#count", "minimum": 5}, [7], [3, "x"]),
        # What is elsewhere, or depends on who refers to it, may be anything.
        (
            {"$ref": "https://json-schema.org/draft/2020-12/schema"},
            [{"type": "string"}, "whatever"],
            [],
        ),
        ({"$ref": "#nobody", "type": "string"}, ["x"], [3]),
        ({"$dynamicRef": "#count"}, [3, "x"], []),
        ({"not": {"$ref": "other"}}, [3, "x"], []),
        ({"$ref": "other", "unevaluatedProperties": False}, [{"a": 1}], []),
        (
            {
                "$id": "other",
                "$defs": {"Count": {"type": "string"}},
                "items": {"$ref": "#/$defs/Count"},
            },
            [["x"]],
            [],
        ),
        # A property may have any name, and data may contain something that looks like a reference.
        ({"properties": {"$ref": {"type": "integer"}}}, [{"$ref": 1}], [{"$ref": "x"}]),
        ({"const": {"$ref": "#count"}}, [{"$ref": "#count"}], [3]),
    ],
)
def test_no_reference_is_left_and_what_was_admitted_is(
    part: JSONObject, admitted: list[JSON], refused: list[JSON]
) -> None:
    definitions: JSONObject = {"Count": {"$anchor": "count", "type": "integer"}}
    inlined = inline_refs(
        {"$id": "https://example.org/whole", "properties": {"x": part}, "$defs": definitions}
    )
    assert inlined.keys() == {"properties"}
    validator = Validator(inlined, what="W")
    for value in admitted:
        validator.check({"x": value})

    for value in refused:
        assert not validator.is_valid({"x": value})


def test_a_schema_without_references_is_left_alone() -> None:
    assert inline_refs(CALL) is CALL


def test_a_cut_under_a_negation_does_not_refuse() -> None:
    schema: JSONObject = {"type": "object", "properties": {"x": {"not": {"$ref": "#"}}}}
    value: JSON = {"x": {"x": {}}}
    assert Validator(schema, what="W").is_valid({"x": 5})
    assert Validator(inline_refs(schema), what="W").is_valid({"x": 5})
    assert Validator(inline_refs(schema), what="W").is_valid(value)


def test_inlining_is_bounded() -> None:
    inlined = inline_refs(_multiplying(40))
    assert len(str(inlined)) < 5_000_000
    assert Validator(inlined, what="W").is_valid(3)


def test_keywords_beside_a_reference_still_count() -> None:
    schema: JSONObject = {
        "$defs": {"a": {"type": "integer"}},
        "items": {"$ref": "#/$defs/a", "minimum": 3},
    }
    validator = Validator(inline_refs(schema), what="W")
    assert validator.is_valid([3])
    assert not validator.is_valid([2])
    assert not validator.is_valid(["x"])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(VALUES)
def test_problems_are_told_exactly_where_a_value_does_not_fit(value: JSON) -> None:
    schema: JSONObject = {
        "anyOf": [
            {"type": "string"},
            {"items": {"type": "integer"}, "type": "array"},
            {"$ref": "#/$defs/o"},
        ],
        "$defs": {"o": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}},
    }
    validator = Validator(schema, what="W")
    problems = validator.problems(value)
    assert bool(problems) is not validator.is_valid(value)
    for problem in problems:
        assert problem.found
        assert problem.expected


# -- explaining by jsonschema ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 40 + "!"),
        (
            {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
            {"a" * 40 + "!": 1},
        ),
        ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 40 + "!": 1}),
        # With `$schema`, or with a meta-schema, jsonschema switches to validators of its own.
        ({"properties": {"a": {"$schema": D2020, "pattern": "^(a+)+$"}}}, {"a": "a" * 40 + "!"}),
        (
            {"$dynamicAnchor": "meta", "items": {"$ref": D2020}, "pattern": "^(a+)+$"},
            [{"not": "a" * 40 + "!"}],
        ),
        (
            {"unevaluatedProperties": False, "patternProperties": {"^(a+)+$": {}}},
            {"a" * 40 + "!": 1},
        ),
        ({"uniqueItems": True}, [*({"a": number} for number in range(1_500)), {"a": 1}]),
    ],
)
def test_what_a_stranger_sends_never_keeps_an_explanation_busy(
    schema: JSONObject, value: JSON
) -> None:
    start = time.process_time()
    assert Validator(schema, what="W").problems(value)
    assert time.process_time() - start < 2


def test_older_drafts_are_explained_as_well() -> None:
    schema: JSONObject = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"n": {"minimum": 3}},
    }
    assert told(schema, {"n": 1}) == "W: n: found 1, expected at least 3"


@pytest.mark.anyio
async def test_a_recursive_schema_is_explained_by_a_worker() -> None:
    node: JSONObject = {"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    with pytest.raises(ValueMismatchError) as caught:
        await Validator(node, what="W").check_apart({"next": {"nxet": {}}})
    assert str(caught.value) == (
        "W: next.nxet: found {}, expected no property with this name; the only "
        "property is 'next'. Did you mean 'next'?"
    )


def test_jsonschema_is_imported_only_to_explain() -> None:
    program = (
        "import sys\n"
        "from ideabridge.tools.schema import Validator\n"
        "one = Validator({'type': 'string'}, what='W')\n"
        "one.check('a')\n"
        "assert 'jsonschema' not in sys.modules\n"
        "one.problems(1)\n"
        "assert 'jsonschema' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- what a check costs ----------------------------------------------------------------------------

SECONDS: Final = 5.0
"""Ten times what a check in the event loop takes at worst, so that a slow machine does not matter.
A `multipleOf` that weighs one step would take 900 s."""

WORDS: Final[list[str]] = [f"k{number}" for number in range(100)]
NESTED: Final[list[Any]] = [[[["a"] * 3] * 3] * 3]
DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"

COSTLY: Final[list[tuple[str, dict[str, Any], list[Any]]]] = [
    *(
        ("multipleOf", {"multipleOf": divisor}, [number] * 200)
        for divisor in (1, 7.0, 2**53 + 1, 10**20, 0.5, 0.01, 1e-17, 1e-300, 5e-324)
        for number in (1, 2**63, 10**20, 0.1, 1e20, 1.7e308, 5e-324)
    ),
    *(
        (keyword, {keyword: bound}, [number] * 200)
        for keyword, sign in (
            ("minimum", -1),
            ("exclusiveMinimum", -1),
            ("maximum", 1),
            ("exclusiveMaximum", 1),
        )
        for bound in (sign * 10, sign * 10.5, sign * 1.7e308, sign * 10**300)
        for number in (1, 2**63, 10**20, 0.1, 1e20, 1.7e308, 5e-324)
    ),
    *(
        ("multipleOf minimum maximum enum const", schema, [10**4000 + 1] * 5)
        for schema in (
            {"multipleOf": 3},
            {"multipleOf": 0.3},
            {"minimum": 0},
            {"maximum": 10**4001},
            {"enum": [1, 10**4000]},
        )
    ),
    *(("const", {"const": number}, [number] * 200) for number in (1, 0.5, 1e300, 10**300)),
    *(
        ("enum", {"enum": [index + number for index in range(50)]}, [49 + number] * 100)
        for number in (0, 0.5, 10**20)
    ),
    ("enum const", {"enum": [[NESTED, word] for word in WORDS]}, [[NESTED, "k99"]] * 20),
    (
        "enum const",
        {"enum": [{"a": [*[0.5] * 20, word]} for word in WORDS[:10]]},
        [{"a": [*[0.5] * 20, "k9"]}] * 20,
    ),
    *(
        ("uniqueItems", {"uniqueItems": True}, [[number + index for index in range(800)]])
        for number in (0, 2**63, 10**20)
    ),
    ("uniqueItems", {"uniqueItems": True}, [[[10**20 + index] for index in range(800)]]),
    (
        "uniqueItems",
        {"uniqueItems": True},
        [[index + item / 2 for item in range(15)] for index in range(100)],
    ),
    (
        "uniqueItems",
        {"uniqueItems": True},
        [[{"a": [0.5] * 9 + [item]} for item in range(15)]] * 20,
    ),
    *(
        ("pattern", {"pattern": pattern}, [text] * max(3, 300 // len(text)))
        for pattern in (
            "(a|b|ab)*c",
            r"^(\w+\s?)*$",
            "^(?:a?){50}a{50}$",
            ".{500}x",
            r"\Ba",
            r"\bfoo\b",
            "(?=(a+)+b)c",
        )
        for text in ("a" * 200 + "!", "\u00e9" * 200, "foo " * 50, "a")
    ),
    (
        "patternProperties",
        {"patternProperties": {r"\Ba": True, r"\d+$": True}},
        [{"\u00e9a" * 50: 1}] * 100,
    ),
    ("propertyNames", {"propertyNames": {"maxLength": 1}}, [dict.fromkeys(WORDS, 1)] * 20),
    ("required", {"required": [*WORDS]}, [dict.fromkeys(WORDS, 1)] * 20),
    (
        "properties",
        {"properties": {word: {"type": "integer"} for word in WORDS}},
        [dict.fromkeys(WORDS, 1)] * 20,
    ),
    (
        "additionalProperties",
        {"additionalProperties": {"type": "integer"}},
        [dict.fromkeys(WORDS, 1)] * 20,
    ),
    (
        "dependentRequired",
        {"dependentRequired": {word: [*WORDS] for word in WORDS}},
        [dict.fromkeys(WORDS, 1)] * 20,
    ),
    (
        "dependentSchemas",
        {"dependentSchemas": {word: {"required": ["k1"]} for word in WORDS}},
        [{"k1": 1}] * 300,
    ),
    (
        "unevaluatedProperties anyOf",
        {
            "anyOf": [{"properties": {word: {}}} for word in WORDS],
            "unevaluatedProperties": {"type": "integer"},
        },
        [dict.fromkeys(WORDS, 1)] * 5,
    ),
    (
        "unevaluatedItems contains",
        {"anyOf": [{"contains": {"const": 1}}] * 30, "unevaluatedItems": {"type": "integer"}},
        [[1] * 300],
    ),
    ("contains", {"allOf": [{"contains": {"const": 1.5}, "minContains": 0}] * 30}, [[1.5] * 300]),
    ("allOf type", {"allOf": [{"type": "integer"}] * 100}, [1.0] * 300),
    ("oneOf not", {"oneOf": [{"not": {"type": "integer"}}] * 99 + [True]}, [1.0] * 300),
    (
        "if",
        {"allOf": [{"if": {"type": "integer"}, "then": {"type": "number"}, "else": False}] * 50},
        [1] * 300,
    ),
    (
        "prefixItems items",
        {"prefixItems": [{"type": "integer"}] * 50, "items": False},
        [[1] * 50] * 20,
    ),
    ("$ref", {"allOf": [{"$ref": "#/$defs/a"}] * 50}, [1] * 300),
    ("format", {"format": "date-time"}, ["2026-01-01T00:00:00Z"] * 300),
    *((keyword, {keyword: 1}, ["\u00e9" * 100] * 100) for keyword in ("minLength", "maxLength")),
    *((keyword, {keyword: 1}, [[1, 2]] * 300) for keyword in ("minItems", "maxItems")),
    *((keyword, {keyword: 1}, [{"a": 1}] * 300) for keyword in ("minProperties", "maxProperties")),
    (
        "contentMediaType",
        {"$schema": DRAFT_7, "contentMediaType": "application/json"},
        ["[" * 100 + "]" * 100] * 100,
    ),
]
"""Keywords, a schema with them for each item, and items that take long."""


def _most_bytes(validator: Validator) -> int:
    """Return the bytes of the largest value that is checked in the event loop, or up to a hundredth
    more: to find the exact number would take longer than the checks.
    """

    def is_costly(size: int) -> bool:
        return validator.is_costly("x" * (size - 2))

    # Begin with small values: most numbers are small, and to write large values takes longest.
    low = 0
    high = 2 * MAX_BYTES
    size = 1024
    while size < high:
        if is_costly(size):
            high = size - 1
        else:
            low = size
            size *= 2

    while low < high - high // 100:
        middle = (low + high + 1) // 2
        if is_costly(middle):
            high = middle - 1
        else:
            low = middle

    return high


@pytest.mark.parametrize("number", range(len(COSTLY)))
def test_no_keyword_makes_a_check_in_the_event_loop_take_long(number: int) -> None:
    _, schema, value = COSTLY[number]
    whole: JSONObject = {"items": schema, "$defs": {"a": {"type": "number"}}}
    if "$schema" in schema:
        whole["$schema"] = schema["$schema"]

    validator = Validator(whole, what="W")
    assert not validator.is_costly(value)

    # The value may take this share of the time for the largest value.
    share = SECONDS * len(encode(value)) / _most_bytes(validator)
    seconds = float("inf")
    for _ in range(3):
        # Measure the time of this thread, so that the load on the machine makes little difference.
        start = time.thread_time()
        validator.is_valid(value)
        seconds = min(seconds, time.thread_time() - start)
        if seconds < share:
            # A repetition could only make the shortest time shorter.
            break

    assert seconds < share


def test_the_cost_of_each_keyword_is_tested() -> None:
    keywords = {keyword for keywords, _, _ in COSTLY for keyword in keywords.split()}
    assert keywords >= jsonschema.Draft202012Validator.VALIDATORS.keys() - {"$dynamicRef"}


def test_few_numbers_against_exact_fractions_are_no_matter_of_the_event_loop() -> None:
    divisors: list[JSON] = [{"multipleOf": float(f"1e-{240 + number}")} for number in range(60)]
    numbers: list[JSON] = [1e300] * 10_000
    assert Validator({"items": {"allOf": divisors}}, what="W").is_costly(numbers)
    assert Validator({"items": {"multipleOf": 0.01}}, what="W").is_costly(numbers)
    bounds: list[JSON] = [{"minimum": 0.5}] * 60
    assert Validator({"items": {"allOf": bounds}}, what="W").is_costly(numbers)
    assert Validator({"uniqueItems": True}, what="W").is_costly(
        [2**63 + number for number in range(2_000)]
    )


def test_small_values_are_checked_and_explained_in_the_event_loop() -> None:
    schema: JSONObject = {
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "price": {"type": "number", "minimum": 0, "multipleOf": 0.01},
            "mode": {"enum": [1, 2, 3]},
        }
    }
    value: JSON = {"tags": ["some", "words"], "price": 12.5, "mode": 2}
    assert not Validator(schema, what="W").is_costly(value)
    assert told(schema, {"price": -1}) == "W: price: found -1, expected at least 0"


def test_an_integer_beyond_all_floats_is_explained() -> None:
    assert "expected a value that fits the schema" in told({"multipleOf": 0.3}, 10**400 + 1)
