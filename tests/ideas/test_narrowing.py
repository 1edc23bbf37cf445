"""What is named as breaking, held against random schemas and every value of a small world."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.ideas.narrowing import narrower, wider
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.schema import Validator

SCALARS: Final[list[JSON]] = [None, True, 0, 1, 3, 1.5, "", "x", "xyz"]
FLAT: Final[list[JSON]] = [
    *([one] for one in SCALARS),
    [],
    ["x", 1],
    [1, "x"],
    [1, 1],
    {},
    *({"a": one} for one in SCALARS),
    *({"b": one} for one in ("x", 1)),
    *({"a": one, "b": other} for one in (1, "x") for other in (1, "xyz", None)),
]
WORLD: Final[list[JSON]] = [
    *SCALARS,
    *FLAT,
    *([one] for one in FLAT[-12:]),
    *({"a": one} for one in FLAT[-12:]),
    *({"b": one} for one in FLAT[:9]),
]

# Parts of schemas, so small that two drawn at random have much to do with each other.
NAMES: Final = st.sampled_from("ab")
TYPES: Final = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
BOUNDS: Final = st.sampled_from(
    ["minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems", "maxProperties"]
)


@st.composite
def bounds(draw: st.DrawFn) -> JSONObject:
    return {name: draw(st.integers(0, 3)) for name in draw(st.lists(BOUNDS, max_size=2))}


@st.composite
def leaves(draw: st.DrawFn) -> JSON:
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return draw(st.booleans())
    if kind == 1:
        return {"type": draw(TYPES), **draw(bounds())}
    if kind == 2:
        return {"type": list[JSON](draw(st.lists(TYPES, min_size=1, max_size=3, unique=True)))}
    if kind == 3:
        return {"enum": draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3))}
    if kind == 4:
        return {"const": draw(st.sampled_from(SCALARS))}
    if kind == 5:
        return draw(bounds())
    return {"type": "string", "pattern": "^x"} if kind == 6 else {"not": {"type": "string"}}


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[JSON]) -> JSONObject:
    properties = {name: draw(inner) for name in draw(st.lists(NAMES, max_size=2))}
    schema: JSONObject = {"type": "object", "properties": properties}
    if draw(st.booleans()):
        schema["required"] = list[JSON](draw(st.lists(NAMES, unique=True, max_size=2)))
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(inner)
    if draw(st.integers(0, 3)) == 0:
        schema["patternProperties"] = {"^b": draw(inner)}
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[JSON]) -> JSONObject:
    schema: JSONObject = {"type": "array"}
    if draw(st.booleans()):
        schema["items"] = draw(inner)
    if draw(st.integers(0, 2)) == 0:
        schema["prefixItems"] = [draw(inner)]
    if draw(st.integers(0, 2)) == 0:
        schema["uniqueItems"] = draw(st.booleans())
    return schema


@st.composite
def composed(draw: st.DrawFn, inner: st.SearchStrategy[JSON]) -> JSON:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(objects(inner))
    if kind == 1:
        return draw(arrays(inner))
    ways: JSONObject = {"anyOf": draw(st.lists(inner, min_size=1, max_size=3))}
    return ways if kind == 2 else {**draw(st.one_of(objects(inner), arrays(inner), bounds())), **ways}


schemas: st.SearchStrategy[JSON] = st.recursive(leaves(), composed, max_leaves=6)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[JSON, JSON]:
    """Two schemas that have a part in common, as often as not."""
    old = draw(schemas)
    if draw(st.booleans()):
        return old, draw(schemas)
    part = draw(schemas)
    name = draw(st.sampled_from(["properties", "items", "anyOf", "more"]))
    if name == "properties":
        return {"type": "object", "properties": {"a": old}}, {"type": "object", "properties": {"a": part, "b": old}}
    if name == "items":
        return {"type": "array", "items": old}, {"type": "array", "items": part}
    if name == "anyOf":
        return old, {"anyOf": [part, old]} if draw(st.booleans()) else {"anyOf": [part]}
    return (old, {**old, **part}) if isinstance(old, dict) and isinstance(part, dict) else (old, part)


def admitted(schema: JSON) -> list[bool]:
    """Which values of the world satisfy a schema."""
    validator = Validator(schema if isinstance(schema, dict) else {"allOf": [schema]}, what="it")
    return [validator.is_valid(value) for value in WORLD]


def changed(schema: JSON, *, closed: bool) -> JSON:
    """The schema with every object that is open by saying nothing closed, or with every closed one open."""
    if isinstance(schema, list):
        return [changed(one, closed=closed) for one in schema]
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return schema
    found: JSONObject = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties") and isinstance(value, dict):
            found[key] = {name: changed(one, closed=closed) for name, one in value.items()}
        elif key in ("items", "prefixItems", "anyOf", "additionalProperties"):
            found[key] = changed(value, closed=closed)
        else:
            found[key] = value
    if closed:
        return {"additionalProperties": False, **found}
    return {key: value for key, value in found.items() if not (key == "additionalProperties" and value is False)}


@given(pairs())
def test_input_that_was_taken_and_is_not_is_always_named(pair: tuple[JSON, JSON]) -> None:
    old, new = pair
    told, taken, now = admitted(changed(old, closed=True)), admitted(old), admitted(new)
    lost = [one for one, *was, kept in zip(WORLD, told, taken, now, strict=True) if all(was) and not kept]
    assert narrower(old, new) or not lost, lost


@given(pairs())
def test_output_that_was_not_promised_is_always_named(pair: tuple[JSON, JSON]) -> None:
    old, new = pair
    promised, now = admitted(changed(old, closed=False)), admitted(new)
    strange = [one for one, was, comes in zip(WORLD, promised, now, strict=True) if comes and not was]
    assert wider(old, new) or not strange, strange


@given(schemas)
def test_a_schema_that_stays_breaks_nothing(schema: JSON) -> None:
    assert narrower(schema, schema) == wider(schema, schema) == []
    assert narrower(schema, {"anyOf": [schema, {"type": "null"}]}) == [] or schema in (True, False, {})
