"""Schemas that are odd: read as what they plainly mean, checked as far as they can be, and
never a danger.
"""

from __future__ import annotations

import time
from typing import Any, cast

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.keywords import schemas_in
from ideabridge.tools.schema import Validator
from ideabridge.tools.usable import MAX_SCHEMA_BYTES, UsableSchema, usable_schema
from tests.tools.schemas import check_meta, pairs, parameters, places, replaced

TEXT: JSONObject = {"type": "string"}
EMPTY: list[JSON] = []
DRAFT_3 = "http://json-schema.org/draft-03/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def usable(sent: JSON) -> UsableSchema:
    """The usable schema of parameters, which is held against the meta-schema."""
    made = usable_schema(sent, what="input schema", of_object=True)
    check_meta(made.schema)
    assert made.schema["type"] == "object"
    return made


def of_property(schema: JSON) -> tuple[JSON, str]:
    """The usable schema of the property `a`, and the notes."""
    made = usable({"type": "object", "properties": {"a": schema}})
    properties = made.schema["properties"]
    assert isinstance(properties, dict)
    return properties["a"], "\n".join(made.notes)


# -- what each kind becomes ------------------------------------------------------------------------


MEANT: list[tuple[Any, Any]] = [
    ({"type": "dict"}, {"type": "object"}),
    ({"type": "str"}, TEXT),
    ({"type": "int"}, {"type": "integer"}),
    ({"type": "float"}, {"type": "number"}),
    ({"type": "STRING"}, TEXT),
    ({"type": "list", "items": "int"}, {"type": "array", "items": {"type": "integer"}}),
    ({"type": ["str", None]}, {"type": ["string", "null"]}),
    ("string", TEXT),
    ({"anyOf": TEXT}, {"anyOf": [TEXT]}),
    ({"minLength": 1.5, "maxLength": "3"}, {"minLength": 2, "maxLength": 3}),
    ({"minimum": "1"}, {"minimum": 1}),
    ({"uniqueItems": "true"}, {"uniqueItems": True}),
    (
        {"type": "object", "properties": {"x": {}}, "additionalProperties": "false"},
        {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
    ),
    (
        {"type": "object", "properties": {"x": {}}, "required": "x"},
        {"type": "object", "properties": {"x": {}}, "required": ["x"]},
    ),
    (
        {"type": "object", "properties": [{"name": "x", "type": "string"}], "required": ["x", "x"]},
        {"type": "object", "properties": {"x": TEXT}, "required": ["x"]},
    ),
    ({"type": "object", "properties": None}, {"type": "object"}),
]


@pytest.mark.parametrize(
    ("sent", "meant"),
    MEANT,
)
def test_what_is_plainly_meant_is_read_so_with_a_note(sent: JSON, meant: JSON) -> None:
    made, notes = of_property(sent)
    assert made == meant
    assert notes.startswith("properties.a")


UNREADABLE_PARTS: list[Any] = [
    *({"type": kind} for kind in ("strange", None, [], 5, ["string", "strange"], True)),
    *({"pattern": pattern} for pattern in ("(", "[", "a{2", "*", None, 5)),
    *({"enum": values} for values in (None, EMPTY, "a", {"a": 1}, 5)),
    *({"properties": value} for value in ("a", 5, [5], [{"type": "string"}], ["a", "a"])),
    *({"required": value} for value in (None, "nobody", 5, {"a": True})),
    *({"maxLength": value} for value in (-1, None, True, "many", EMPTY)),
    *({"maximum": value} for value in (None, "high", EMPTY, True)),
    *(
        {keyword: value}
        for keyword in ("anyOf", "allOf", "oneOf", "prefixItems")
        for value in (EMPTY, None, 5, "a")
    ),
    *({"items": value} for value in (None, 5, "strange")),
    *({"not": value} for value in (None, 5, {"type": "strange"}, {"pattern": "("})),
    *(
        {"patternProperties": value, "additionalProperties": False}
        for value in ({"(": TEXT}, None, 5)
    ),
    *(
        {"$ref": value}
        for value in ("#/nowhere", "#nowhere", "other.json", "https://example.com/x", 5, None)
    ),
    *(
        {"$ref": value}
        for value in ("file:///etc/passwd", "//host/share", "http://[", "#/%zz", "#/properties/a/x")
    ),
    {"$dynamicRef": "#nowhere"},
    {"multipleOf": 0},
    {"multipleOf": -2},
    {"dependentRequired": None},
    {"dependencies": 5},
    {"if": None, "then": False, "else": False},
    {"oneOf": [{"type": "strange"}, {"type": "strange"}]},
    {"contains": {"type": "strange"}, "minContains": 0, "maxContains": 0},
    {"const": float("nan")},
    {"enum": ["a", float("inf")]},
    *(None, 5, [], "strange", [TEXT]),
]


@pytest.mark.parametrize(
    "odd",
    UNREADABLE_PARTS,
)
def test_what_nobody_can_read_is_ignored_and_the_rest_is_checked(odd: JSON) -> None:
    """A parameter with such a schema takes every value; its neighbour is checked as before."""
    sent: JSON = {
        "type": "object",
        "properties": {"a": odd, "b": {"type": "integer"}},
        "required": ["b"],
    }
    made = usable(sent)
    assert made.notes
    assert made.notes[0].startswith("properties.a")
    validator = Validator(made.schema, what="W")
    values: list[JSON] = [None, 5, -1.5, "a", "", [], [1, 1], {}, {"a": 1}, True]
    for value in values:
        assert validator.is_valid({"a": value, "b": 1})

    assert not validator.is_valid({"a": 1})
    assert not validator.is_valid({"b": "x"})
    # The size of a note is not fixed, but it never contains everything that the server sent.
    assert all(len(note) < 400 for note in made.notes)


@pytest.mark.parametrize(
    "keyword", ["title", "description", "$comment", "format", "examples", "deprecated", "readOnly"]
)
@pytest.mark.parametrize("value", [None, 5, {}])
def test_prose_of_another_type_is_left_out(keyword: str, value: JSON) -> None:
    made, notes = of_property({"type": "string", keyword: value})
    assert made == TEXT
    assert keyword in notes


ROOTS: list[tuple[Any, str]] = [
    *((value, "") for value in ({}, {"type": "object"}, {"$comment": "nothing"})),
    *(
        (value, "found")
        for value in (False, None, EMPTY, "x", 5, {"type": "array"}, {"type": ["object", "null"]})
    ),
]


@pytest.mark.parametrize(
    ("sent", "words"),
    ROOTS,
)
def test_parameters_are_an_object_whatever_was_sent(sent: JSON, words: str) -> None:
    made = usable(sent)
    assert bool(made.notes) == bool(words)
    assert words in "".join(made.notes)
    assert Validator(made.schema, what="W").is_valid({"anything": 1})


def test_a_name_that_is_required_and_refused_is_left_to_the_server() -> None:
    made = usable({"properties": {"a": {}}, "required": ["a", "b"], "additionalProperties": False})
    assert made.schema["required"] == ["a"]
    assert 'required: found ["b"]' in made.notes[0]
    # Without such a contradiction, a required name that is not described stays required.
    open_ = usable({"properties": {"a": {}}, "required": ["a", "b"]})
    assert open_.is_as_sent
    assert open_.schema["required"] == ["a", "b"]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"\A[a-c]+\Z", "abc", "abcd"),
        ("^(?P<year>[0-9]{4})$", "2026", "26"),
        ("(?i)^abc$", "ABC", "abd"),
    ],
)
def test_patterns_of_python_are_matched(pattern: str, yes: str, no: str) -> None:
    made, _ = of_property({"type": "string", "pattern": pattern})
    validator = Validator(cast("JSONObject", made), what="W")
    assert validator.is_valid(yes)
    assert not validator.is_valid(no)


# -- references ------------------------------------------------------------------------------------

ODD: JSONObject = {"type": "dict"}


REFERENCES: list[tuple[str, Any]] = [
    ("#/properties/b", {}),
    ("#/%70roperties/%62", {}),
    ("#/$defs/a~1b%20c", {"$defs": {"a/b c": TEXT}}),
    ("#/definitions/x", {"definitions": {"x": TEXT}}),
    (
        "#/components/schemas/x",
        {"components": {"schemas": {"x": {"$ref": "#/components/schemas/y"}, "y": TEXT}}},
    ),
    ("#x", {"$defs": {"one": {"$anchor": "x", **TEXT}}}),
    ("https://example.com/t.json#/properties/b", {"$id": "https://example.com/t.json"}),
    (
        "other.json",
        {"$id": "https://example.com/t.json", "$defs": {"o": {"$id": "other.json", **TEXT}}},
    ),
    ("#/$defs/list/items/0", {"$defs": {"list": {"type": "array", "items": [TEXT]}}}),
    ("#/$defs/chain", {"$defs": {"chain": {"allOf": [{"$ref": "#/$defs/end"}]}, "end": TEXT}}),
]


@pytest.mark.parametrize(
    ("reference", "more"),
    REFERENCES,
)
def test_a_reference_inside_a_repaired_schema_still_leads_to_its_target(
    reference: str, more: JSONObject
) -> None:
    made = usable(
        {"type": "object", "properties": {"a": {"$ref": reference}, "b": TEXT, "odd": ODD}, **more}
    )
    validator = Validator(made.schema, what="W")
    assert validator.is_valid({"a": "x", "odd": {}})
    assert not validator.is_valid({"a": 5})
    assert not validator.is_valid({"odd": 5})
    assert [note.split(":")[0] for note in made.notes] == ["properties.odd.type"]


@pytest.mark.parametrize("target", ["#", "#/properties/a", "#/properties/b"])
def test_circles_of_references_stay(target: str) -> None:
    sent: JSON = {
        "type": "object",
        "properties": {"a": {"$ref": target}, "b": {"$ref": "#/properties/a"}, "odd": ODD},
    }
    validator = Validator(usable(sent).schema, what="W")
    assert validator.is_valid({"a": {}})
    assert not validator.is_valid({"odd": 5})
    with pytest.raises(Exception, match="odd"):
        validator.check({"a": {}, "odd": 5})


def test_what_is_referred_to_below_a_negation_never_becomes_stricter() -> None:
    sent: JSON = {
        "properties": {
            "a": {"not": {"$ref": "#/$defs/odd"}},
            "b": {"oneOf": [{"$ref": "#/$defs/odd"}, TEXT]},
            "c": {"not": {"properties": {"x": {"$ref": "#/$defs/odd"}}, "required": ["x"]}},
        },
        "$defs": {"odd": {"type": "string", "pattern": "("}},
    }
    validator = Validator(usable(sent).schema, what="W")
    values: list[JSON] = ["x", 5, {"x": "y"}]
    assert all(validator.is_valid({name: value}) for name in "abc" for value in values)


# -- drafts ----------------------------------------------------------------------------------------

LETTERS = st.sampled_from("abc")
PLAIN_VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.sampled_from(["a", "bc", 0, 1, 4, 5, True, None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3),
    max_leaves=5,
)


def _schemas(draft: int) -> st.SearchStrategy[JSONObject]:
    types = st.sampled_from(["string", "integer", "array", "object", "null", "boolean"])

    def several(inner: st.SearchStrategy[JSONObject]) -> st.SearchStrategy[JSONObject]:
        named = st.dictionaries(LETTERS, inner, max_size=2)
        names = st.lists(LETTERS, min_size=1, max_size=2, unique=True)
        keywords: dict[str, st.SearchStrategy[Any]] = {
            "properties": named,
            "items": inner | st.lists(inner, min_size=1, max_size=2),
            "additionalItems": inner | st.just(False),
            "additionalProperties": inner | st.just(False),
            "dependencies": st.dictionaries(LETTERS, inner | names, max_size=2),
            "$ref": st.sampled_from(["#", "#/definitions/x", "#/definitions/y/items/0"]),
        }
        if draft == 3:
            keywords |= {
                "extends": inner | st.lists(inner, min_size=1, max_size=2),
                "disallow": types | st.lists(types | inner, min_size=1, max_size=2),
                "type": st.lists(types | inner, min_size=1, max_size=2),
                "required": st.booleans(),
            }
        else:
            keywords |= {
                "required": names,
                "not": inner,
                "anyOf": st.lists(inner, min_size=1, max_size=2),
            }

        return st.fixed_dictionaries({}, optional=keywords)

    exclusive = st.booleans() if draft <= 4 else st.integers(0, 5)
    scalar: dict[str, st.SearchStrategy[Any]] = {
        "type": types,
        "minimum": st.integers(0, 5),
        "enum": st.lists(st.sampled_from(["a", 1, 5, None]), min_size=1, unique=True),
        "divisibleBy" if draft == 3 else "multipleOf": st.integers(1, 3),
    }
    plain: st.SearchStrategy[JSONObject] = st.fixed_dictionaries({}, optional=scalar)
    bounded: st.SearchStrategy[JSONObject] = st.fixed_dictionaries(
        {"minimum": st.integers(0, 5), "exclusiveMinimum": exclusive}
    )
    return st.recursive(plain | bounded, several, max_leaves=6)


JUDGES: dict[int, Any] = {
    3: jsonschema.Draft3Validator,
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
}


@settings(max_examples=60)
@given(st.sampled_from(sorted(JUDGES)), st.data())
def test_older_drafts_mean_in_2020_12_what_they_meant(draft: int, data: st.DataObject) -> None:
    schemas = _schemas(draft)
    inner = data.draw(st.dictionaries(LETTERS, schemas, max_size=3))
    sent: JSONObject = {
        "$schema": f"http://json-schema.org/draft-0{draft}/schema#",
        "type": "object",
        "properties": dict[str, JSON](inner),
        "definitions": {"x": data.draw(schemas), "y": {"items": [TEXT]}},
    }
    judge = JUDGES[draft](sent)
    made = usable(sent)
    assert made.notes == ()
    validator = Validator(made.schema, what="W")
    for value in data.draw(
        st.lists(st.dictionaries(LETTERS, PLAIN_VALUES, max_size=3), min_size=5, max_size=5)
    ):
        try:
            expected = judge.is_valid(value)
        except RecursionError:
            # The references form a cycle.
            continue

        assert validator.is_valid(value) == expected


OLD_FORMS: list[Any] = [
    {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
    {"type": "array", "items": [TEXT], "additionalItems": False},
    {"type": "object", "properties": {"x": {"type": "string", "required": True}}},
    {"type": "object", "dependencies": {"x": ["y"], "z": {"required": ["y"]}}},
    {"type": ["string", {"type": "object", "properties": {"x": TEXT}}]},
    {"extends": TEXT},
    {"disallow": ["string"]},
    {"divisibleBy": 3},
    {"type": "any"},
]


@pytest.mark.parametrize(
    "schema",
    OLD_FORMS,
)
def test_forms_of_older_drafts_need_no_declaration(schema: JSONObject) -> None:
    plain, notes = of_property(schema)
    declared = usable({"$schema": DRAFT_3, "type": "object", "properties": {"a": schema}})
    assert notes == ""
    assert declared.schema["properties"] == {"a": plain}
    assert plain != schema


def test_the_id_of_draft_4_is_no_keyword_of_others() -> None:
    named = usable(
        {
            "$schema": DRAFT_4,
            "id": "#root",
            "properties": {"a": {"$ref": "#x"}, "b": {"id": "#x", **TEXT}},
        }
    )
    assert named.schema["properties"] == {"a": {"$ref": "#/properties/b"}, "b": TEXT}
    assert usable({"properties": {"id": {"type": "string"}}, "id": "x"}).is_as_sent


@given(parameters)
def test_a_valid_schema_is_used_as_it_is(pair: tuple[JSONObject, JSONObject]) -> None:
    made = usable(pair[0])
    assert made == UsableSchema(pair[0])
    assert made.is_as_sent


# -- any damage ------------------------------------------------------------------------------------

JUNK: st.SearchStrategy[JSON] = st.sampled_from(
    [
        *(
            None,
            5,
            -1.5,
            "x",
            "(",
            "",
            [],
            {},
            [None],
            {"a": None},
            "false",
            float("nan"),
            "\ud800",
            True,
        ),
        *(
            {"type": "strange"},
            {"pattern": "("},
            {"$ref": "https://example.com/"},
            {"$ref": "#"},
            {"required": True},
        ),
        *(
            {"properties": []},
            {"enum": []},
            {"not": {"type": "x"}},
            {"$id": "%%"},
            {"$anchor": 5},
            {"type": ["x"]},
        ),
    ]
)


@settings(max_examples=60)
@given(parameters, st.data())
def test_however_a_schema_is_damaged_it_can_be_used(
    pair: tuple[JSONObject, JSONObject], data: st.DataObject
) -> None:
    sent: JSON = pair[0]
    for _ in range(data.draw(st.integers(1, 3))):
        known = places(sent)
        if not known:
            break
        sent = replaced(sent, data.draw(st.sampled_from(known)), data.draw(JUNK))

    made = usable_schema(sent, what="input schema", of_object=True)
    Validator(made.schema, what="W").compile()
    check_meta(made.schema)
    references = [part["$ref"] for _, part in schemas_in(made.schema) if "$ref" in part]
    assert all(str(target).startswith("#") for target in references) or made.is_as_sent
    assert made.is_as_sent or made.sent is not None
    # A second repair changes nothing.
    again = usable_schema(made.schema, what="input schema", of_object=True)
    assert again.schema == made.schema
    assert again.notes == ()


UNREADABLE: st.SearchStrategy[JSON] = st.sampled_from(
    [
        None,
        5,
        [],
        {"type": "strange"},
        {"pattern": "("},
        {"enum": None},
        {"$ref": "#/nowhere"},
        {"anyOf": []},
    ]
)


@settings(max_examples=60)
@given(pairs, st.data())
def test_an_ignored_part_only_ever_admits_more(
    pair: tuple[JSONObject, JSON], data: st.DataObject
) -> None:
    """A value that satisfied a schema satisfies what is made of it after one of its schemas
    became unreadable.
    """
    schema, value = pair
    inside = [place for place in places(schema) if place and _is_schema(schema, place)]
    sent: JSON = {"properties": {"v": schema}}
    if inside:
        sent = replaced(
            sent, ("properties", "v", *data.draw(st.sampled_from(inside))), data.draw(UNREADABLE)
        )
    assert Validator(usable(sent).schema, what="W").is_valid({"v": value})


def _is_schema(root: JSONObject, place: tuple[str | int, ...]) -> bool:
    """Whether a schema stands at a place, as far as the keywords before it say."""
    is_schema = True
    named = False
    for key in place:
        if named or isinstance(key, int):
            is_schema = True
            named = False
        elif key in ("properties", "patternProperties", "dependentSchemas", "$defs"):
            is_schema = False
            named = True
        elif key in (
            "items",
            "not",
            "if",
            "then",
            "else",
            "contains",
            "additionalProperties",
            "propertyNames",
        ):
            is_schema = True
        elif key in ("allOf", "anyOf", "oneOf", "prefixItems"):
            is_schema = False
        else:
            return False

    return is_schema


# -- bounds ----------------------------------------------------------------------------------------


def _deep(levels: int, keyword: str) -> JSONObject:
    schema: JSONObject = {"type": "string"}
    for _ in range(levels):
        if keyword == "properties":
            schema = {"properties": {"a": schema}}
        else:
            schema = {keyword: schema}
    return schema


@pytest.mark.parametrize("keyword", ["properties", "not", "items", "x-unknown", "const"])
@pytest.mark.parametrize("levels", [40, 110, 450, 20_000])
def test_a_deep_schema_is_checked_as_far_as_it_goes(levels: int, keyword: str) -> None:
    made = usable(
        {"type": "object", "properties": {"deep": _deep(levels, keyword), "n": {"type": "integer"}}}
    )
    validator = Validator(made.schema, what="W")
    assert validator.is_valid({"n": 1})
    assert not validator.is_valid({"n": "x"})
    assert bool(made.notes) == (levels > 40)


@pytest.mark.parametrize(("count", "is_typed"), [(5_000, True), (10_000, False)])
def test_thousands_of_properties_are_known_by_name(count: int, is_typed: bool) -> None:
    part: JSONObject = {"type": "string", "description": "What it is for. " * 4}
    properties: JSONObject = {f"parameter_{number}": part for number in range(count)}
    made = usable({"type": "object", "properties": properties, "required": ["parameter_7"]})
    assert len(encode(made.schema)) <= MAX_SCHEMA_BYTES
    assert "more than 262,144 bytes" in made.notes[-1]
    assert isinstance(made.sent, dict)
    assert list(made.sent) == ["sha256"]
    validator = Validator(made.schema, what="W")
    assert validator.is_valid({"parameter_7": "x"})
    assert validator.is_valid({"parameter_7": "x", "parameter_9": 5}) != is_typed
    assert not validator.is_valid({})


HUGE: list[Any] = [
    {"properties": {"x" * 9: {"enum": ["y" * 300_000]}}},
    {"properties": {"x" * 300_000: {}}},
    {"description": "x" * 5_000_000},
    {"properties": {f"p{n}": {"pattern": f"(a{{0,{n}}}b{{0,{n}}}){{0,99}}"} for n in range(400)}},
    {"properties": {f"p{n}": {"pattern": "(" + "a" * n} for n in range(600)}},
    {"allOf": [{"$ref": f"#/$defs/d{n}"} for n in range(3)]}
    | {
        "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 9} for n in range(12)}
        | {"d12": TEXT}
    },
    {f"k{n}": {"$ref": f"#/k{n + 1}", "type": "x"} for n in range(5_000)} | {"$ref": "#/k0"},
    {"properties": {"a": {"allOf": [[]] * 60_000}}},
    {"properties": {"a": "dict"}, "x": [[[]]] * 60_000},
]


@pytest.mark.parametrize(
    "sent",
    HUGE,
)
def test_a_huge_or_slow_schema_takes_seconds_at_most(sent: JSON) -> None:
    began = time.process_time()
    made = usable(sent)
    assert time.process_time() - began < 5
    assert made.notes
    assert Validator(made.schema, what="W").is_valid({"anything": 1})


@pytest.mark.parametrize(
    "name", ["__proto__", "constructor", "", "a\nb", "👍", "x" * 10_000, "$ref", "properties"]
)
def test_any_name_of_a_parameter_is_one(name: str) -> None:
    made = usable({"properties": {name: {"type": "int"}, "b": {}}, "required": [name]})
    validator = Validator(made.schema, what="W")
    assert validator.is_valid({name: 5})
    assert not validator.is_valid({name: "x"})
    assert not validator.is_valid({})


def test_what_is_no_json_is_known_by_its_digest() -> None:
    first, second, third = (
        usable({"properties": {"a": {"default": value}}}) for value in (float("nan"), "\ud800", 5)
    )
    assert first.sent != second.sent
    assert third.is_as_sent
    assert [made.schema["properties"] for made in (first, second)] == [{"a": {}}, {"a": {}}]


def test_without_time_for_repair_a_tool_takes_anything() -> None:
    sent: JSON = {"properties": {"a": ODD}}
    made = usable_schema(sent, what="input schema", of_object=True, may_repair=False)
    assert made.schema == {"type": "object"}
    assert made.sent == {"type": "object", "properties": {"a": ODD}}
    assert "too much of this list" in made.notes[0]


def test_a_result_is_checked_as_far_as_its_schema_can_be_read() -> None:
    def of_result(sent: JSON) -> UsableSchema:
        return usable_schema(sent, what="output schema", of_object=False)

    assert of_result(True).schema == {}
    assert of_result(False).notes == ("found false: ignored",)
    assert of_result({"type": "array", "items": {"type": "str"}}).schema == {
        "type": "array",
        "items": TEXT,
    }
    assert of_result("number").schema == {"type": "number"}
    assert of_result({"type": "array"}).is_as_sent


def test_names_that_a_closed_object_refuses_are_removed_in_a_pass() -> None:
    names: list[JSON] = [f"a{number}" for number in range(150_000)]
    began = time.thread_time()
    usable = usable_schema(
        {"type": "object", "required": names, "additionalProperties": False},
        what="x",
        of_object=True,
    )
    assert usable.schema["required"] == []
    assert time.thread_time() - began < 5
