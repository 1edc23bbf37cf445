"""Generated pairs of a schema and a value that satisfies it, and what holds a schema against
its meta-schema.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast
from urllib.parse import urljoin

import jsonschema
from hypothesis import strategies as st
from jsonschema_specifications import REGISTRY

from ideabridge.tools.encoding import JSON, JSONObject, encode_text

Pair = tuple[JSONObject, JSON]

_names = st.sampled_from(["a", "b", "c.d", "_x", "items", "$ref", "properties", "名"])


def _in_one_piece() -> jsonschema.Draft202012Validator:
    """The meta-schema of 2020-12 with its vocabularies put together: it takes a
    seventh of the time.
    """
    whole = cast("JSONObject", jsonschema.Draft202012Validator.META_SCHEMA)
    base = whole["$id"]
    properties = whole["properties"]
    parts = whole["allOf"]
    assert isinstance(base, str)
    assert isinstance(properties, dict)
    assert isinstance(parts, list)
    definitions: JSONObject = {}
    for part in parts:
        assert isinstance(part, dict)
        vocabulary = cast("JSONObject", REGISTRY.contents(urljoin(base, str(part["$ref"]))))
        named = vocabulary["properties"]
        defined = vocabulary.get("$defs", {})
        assert isinstance(named, dict)
        assert isinstance(defined, dict)
        assert named.keys().isdisjoint(properties)
        assert defined.keys().isdisjoint(definitions)
        properties = properties | named
        definitions |= defined

    text = encode_text({"type": whole["type"], "properties": properties, "$defs": definitions})
    text = re.sub(r'"meta/[a-z-]+#/', '"#/', text.replace('"$dynamicRef":"#meta"', '"$ref":"#"'))
    return jsonschema.Draft202012Validator(cast("JSONObject", json.loads(text)))


_META: Final[Any] = _in_one_piece()


def check_meta(schema: JSONObject) -> None:
    """Nothing, where the schema is one of 2020-12, says an implementation that is not ours."""
    _META.validate(schema)


@st.composite
def _scalar(draw: st.DrawFn) -> Pair:
    kind = draw(
        st.sampled_from(
            ["string", "integer", "number", "boolean", "null", "const", "enum", "any", "pattern"]
        )
    )
    if kind == "string":
        text = draw(st.text(max_size=4))
        return {
            "type": "string",
            "minLength": draw(st.integers(0, len(text))),
            "maxLength": 9,
        }, text

    if kind == "integer":
        number = draw(st.integers(-(2**70), 2**70))
        return {"type": "integer", "minimum": number, "exclusiveMaximum": number + 1}, number
    if kind == "number":
        return {"type": "number", "description": "a number"}, draw(st.floats(-10, 10))
    if kind == "boolean":
        return {"type": "boolean"}, draw(st.booleans())
    if kind == "null":
        return {"type": ["null", "boolean"], "default": None}, None
    if kind == "const":
        value = draw(_constants)
        return {"const": value}, value
    if kind == "enum":
        values = draw(st.lists(_constants, min_size=1, max_size=3))
        return {"enum": values}, draw(st.sampled_from(values))
    if kind == "pattern":
        return {"type": "string", "pattern": "^[a-c]+$", "format": "date"}, draw(
            st.text("abc", min_size=1, max_size=3)
        )

    return {}, draw(_constants)


_constants: st.SearchStrategy[JSON] = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "a", "††x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def _object(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    members = draw(st.dictionaries(_names, inner, max_size=3))
    properties: JSONObject = {name: schema for name, (schema, _) in members.items()}
    value: JSONObject = {name: item for name, (_, item) in members.items()}
    if members:
        required = draw(st.lists(st.sampled_from(sorted(members)), unique=True))
    else:
        required = []

    schema: JSONObject = {"type": "object", "properties": properties, "required": [*required]}
    closing = draw(
        st.sampled_from(
            ["open", "closed", "pattern", "more", "unevaluated", "dependent", "names", "counts"]
        )
    )
    if closing == "closed":
        schema["additionalProperties"] = False
    elif closing == "unevaluated":
        schema["unevaluatedProperties"] = False
    elif closing == "pattern":
        part, item = draw(inner)
        schema["patternProperties"] = {"^zz": part}
        schema["additionalProperties"] = False
        value["zz1"] = item
    elif closing == "more":
        part, item = draw(inner)
        schema["additionalProperties"] = part
        value["more"] = item
    elif closing == "dependent" and members:
        first = next(iter(members))
        schema["dependentRequired"] = {first: [*required]}
        schema["dependentSchemas"] = {first: {"properties": {first: properties[first]}}}
    elif closing == "names":
        schema["propertyNames"] = {"maxLength": 20}
    elif closing == "counts":
        schema["minProperties"] = schema["maxProperties"] = len(value)

    return schema, value


@st.composite
def _array(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    kind = draw(st.sampled_from(["items", "prefix", "contains", "unique", "unevaluated"]))
    schema, value = draw(inner)
    if kind == "prefix":
        second, other = draw(inner)
        return {"type": "array", "prefixItems": [schema, second], "items": False, "minItems": 2}, [
            value,
            other,
        ]

    if kind == "contains":
        return {"type": "array", "contains": schema, "minContains": 1}, [value, None, "x"]
    if kind == "unevaluated":
        return {"prefixItems": [schema], "unevaluatedItems": False}, [value]
    if kind == "unique":
        return {"type": "array", "items": schema, "uniqueItems": True, "maxItems": 1}, [value]
    return {"type": "array", "items": schema, "minItems": 2, "maxItems": 2}, [value, value]


@st.composite
def _combined(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    schema, value = draw(inner)
    never: JSONObject = {"type": "string", "const": "never this"}
    kind = draw(st.sampled_from(["anyOf", "oneOf", "allOf", "if", "else", "not", "deep"]))
    if kind in ("anyOf", "oneOf"):
        return {kind: [never, schema]}, value
    if kind == "allOf":
        return {"allOf": [schema, {"description": "twice"}]}, value
    if kind == "if":
        return {"if": schema, "then": schema, "else": False}, value
    if kind == "else":
        return {"if": never, "then": False, "else": schema}, value
    if kind == "not":
        return {"allOf": [schema], "not": never}, value
    return _nested(schema, value, 20)


def _nested(schema: JSON, value: JSON, levels: int) -> Pair:
    outer: JSONObject = {}
    for _ in range(levels):
        outer = {"properties": {"n": schema}}
        schema = outer
        value = {"n": value}
    return outer, value


pairs: st.SearchStrategy[Pair] = st.recursive(
    _scalar(), lambda inner: _object(inner) | _array(inner) | _combined(inner), max_leaves=6
)
"""A schema and a value it admits."""


@st.composite
def _parameters(draw: st.DrawFn) -> tuple[JSONObject, JSONObject]:
    schema, value = draw(_object(pairs))
    assert isinstance(value, dict)
    properties = schema["properties"]
    assert isinstance(properties, dict)
    if draw(st.booleans()) and properties:
        # Add a definition with two references to it, and a recursive one beside it.
        name = next(iter(properties))
        schema["$defs"] = {
            "Part/1": properties[name],
            "Tree": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
            },
        }
        properties[name] = {"$ref": "#/$defs/Part~11"}
        properties["tree"] = {"$ref": "#/$defs/Tree"}
        value["tree"] = {"kids": [{"kids": []}, {}]}
        if "maxProperties" in schema:
            del schema["maxProperties"]

    return schema, value


parameters: st.SearchStrategy[tuple[JSONObject, JSONObject]] = _parameters()
"""The schema of a tool's parameters and arguments it admits."""


def places(value: JSON) -> list[tuple[str | int, ...]]:
    """Every place in a value below its top."""
    found: list[tuple[str | int, ...]] = []
    stack: list[tuple[tuple[str | int, ...], JSON]] = [((), value)]
    while stack:
        place, item = stack.pop()
        if place:
            found.append(place)
        if isinstance(item, dict):
            stack.extend(((*place, key), child) for key, child in item.items())
        elif isinstance(item, list):
            stack.extend(((*place, index), child) for index, child in enumerate(item))

    return found


def replaced(value: JSON, place: tuple[str | int, ...], new: JSON) -> JSON:
    """A copy of `value` with `new` at `place`."""
    if not place:
        return new

    key, *rest = place
    if isinstance(value, dict):
        return {
            name: replaced(item, tuple(rest), new) if name == key else item
            for name, item in value.items()
        }

    assert isinstance(value, list)
    return [
        replaced(item, tuple(rest), new) if index == key else item
        for index, item in enumerate(value)
    ]
