"""Schemas in the form that hosts take. Calls are checked against the exact schema, whatever form a host receives."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.keywords import MANY, NAMED, ONE
from ideabridge.tools.schema import inline_refs

_COMBINING: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas")
"""Keywords that model APIs refuse at the top of a tool's parameters: one such tool fails all of a host's requests."""

_WAYS: Final = 6

_SHOWN_BYTES: Final = 128 * 1024
_LEFT_OUT: Final = f"its schema has more than {_SHOWN_BYTES:,} bytes and is not shown; an error says what was expected"

_FLAGS: Final = ("additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties")
"""Keywords whose schema hosts take as true or false."""

_OF_ARRAYS: Final = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems"),
    *("contains", "minContains", "maxContains"),
)
_OF_OBJECTS: Final = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties")
_NOTES: Final = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")


def showable(schema: JSONObject) -> JSONObject:
    """The schema of an object as it is told; one that is too large for a list is told as that of any object."""
    return schema if len(encode(schema)) <= _SHOWN_BYTES else {"type": "object", "description": _LEFT_OUT}


def object_output(schema: JSONObject | None) -> tuple[JSONObject | None, bool]:
    """(output schema as the protocol wants it, whether values are wrapped as `{"result": value}`)."""
    if schema is None:
        return None, False
    plain = _plain(schema)
    if plain.get("type") == "object":
        return plain, False
    wrapped: JSONObject = {
        "type": "object",
        "properties": {"result": plain},
        "required": ["result"],
        "additionalProperties": False,
    }
    return wrapped, True


def object_input(schema: JSONObject | None) -> JSONObject:
    """An input schema: an object, without references, with nothing combined at its top, each part in a form hosts take.

    Properties of alternatives stand side by side; which of them go together is told in words.
    """
    plain = _plain(schema or {})
    if not any(keyword in plain for keyword in _COMBINING):
        return {**plain, "type": "object"}
    properties, required, ways = _parts(plain)
    left_out = {*_COMBINING, "unevaluatedProperties"}
    told: JSONObject = {key: value for key, value in plain.items() if key not in left_out}
    told |= {"type": "object", "properties": {name: _either(found) for name, found in properties.items()}}
    told["required"] = list[JSON](required)
    if not required:
        del told["required"]
    own = plain.get("properties", {})
    if isinstance(own, dict) and properties.keys() - own.keys():
        told.pop("additionalProperties", None)
    if ways:
        words = f"Give {' or '.join(ways)}."
        said = plain.get("description")
        told["description"] = f"{said.rstrip()} {words}" if isinstance(said, str) and said.strip() else words
    return told


def _plain(schema: JSONObject) -> JSONObject:
    """The same schema without references and without forms that hosts refuse.

    - `true` and `false` as the schema of a property or an item: hosts on the TypeScript SDK refuse the whole list of
      tools for one of them.
    - An array without `items`: OpenAI, Gemini and VS Code refuse it.
    - A list of types with `array` in it: hosts split it, and lose `items` or leave it at the wrong place.
    - An object that names no properties: pydantic-ai tells OpenAI's models that it is empty. Parameters as a whole stay
      as they are, for a tool without parameters looks like this.
    """
    written = inline_refs(schema)
    plain = _part(written)
    assert isinstance(plain, dict)
    if "additionalProperties" not in written:
        plain.pop("additionalProperties", None)
    return plain


def _part(schema: JSON) -> JSON:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        return schema
    told: JSONObject = {}
    for keyword, value in schema.items():
        if keyword in NAMED and isinstance(value, dict):
            told[keyword] = {name: _part(one) for name, one in value.items()}
        elif (keyword in MANY or keyword == "items") and isinstance(value, list):
            told[keyword] = [_part(one) for one in value]
        elif keyword in ONE and not (keyword in _FLAGS and isinstance(value, bool)):
            told[keyword] = _part(value)
        else:
            told[keyword] = value
    types = told.get("type")
    if types in ("array", ["array"]):
        told |= {"type": "array", "items": told.get("items", {})}
    elif types == "object" and not any(keyword in told for keyword in (*_OF_OBJECTS, *_COMBINING)):
        told["additionalProperties"] = True
    elif isinstance(types, list) and "array" in types and not any(keyword in told for keyword in _COMBINING):
        return _split(told, types)
    return told


def _split(schema: JSONObject, types: list[JSON]) -> JSONObject:
    """The alternatives of a list of types: arrays, and the rest."""
    others = [one for one in types if one != "array"]
    array: JSONObject = {"type": "array", "items": {}}
    rest: JSONObject = {"type": others[0] if len(others) == 1 else others}
    told: JSONObject = {}
    for keyword, value in schema.items():
        if keyword != "type":
            (array if keyword in _OF_ARRAYS else told if keyword in _NOTES else rest)[keyword] = value
    return {**told, "anyOf": [array, rest]}


def _parts(schema: JSON) -> tuple[dict[str, list[JSON]], list[str], list[str]]:
    """The properties of a schema and of what it combines, what is always required, and the ways to choose."""
    properties: dict[str, list[JSON]] = {}
    required: list[str] = []
    ways: list[str] = []
    if not isinstance(schema, dict):
        return properties, required, ways
    own, needed = schema.get("properties"), schema.get("required")
    if isinstance(own, dict):
        properties = {name: [part] for name, part in own.items() if part is not False}
    if isinstance(needed, list):
        required = [name for name in needed if isinstance(name, str)]
    for keyword in ("allOf", "anyOf", "oneOf", "then", "else"):
        value = schema.get(keyword)
        branches = [_parts(one) for one in (value if isinstance(value, list) else [value])]
        if not value:
            continue
        for found, _, _ in branches:
            for name, parts in found.items():
                known = properties.setdefault(name, [])
                known.extend(part for part in parts if part not in known)
        if keyword == "allOf":
            required += [name for _, names, _ in branches for name in names if name not in required]
            ways += [way for _, _, more in branches for way in more]
        elif keyword in ("anyOf", "oneOf"):
            always = [name for name in branches[0][1] if all(name in names for _, names, _ in branches)]
            rest = [[name for name in names if name not in (*always, *required)] for _, names, _ in branches]
            required += [name for name in always if name not in required]
            if all(rest):
                ways += list(dict.fromkeys(" with ".join(names) for names in rest))[:_WAYS]
    return properties, required, ways


def _either(parts: list[JSON]) -> JSON:
    return parts[0] if len(parts) == 1 else {"anyOf": parts}
