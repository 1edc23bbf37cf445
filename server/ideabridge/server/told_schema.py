"""Schemas as hosts take them (DESIGN 1, 6). A call is held to the exact schema, whatever is told."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.schema import inline_refs

_COMBINING: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas")
"""Keywords that model APIs refuse at the top of a tool's parameters: one such tool fails all of a host's requests."""

_WAYS: Final = 6


def object_output(schema: JSONObject | None) -> tuple[JSONObject | None, bool]:
    """(output schema as the protocol wants it, whether values are wrapped as `{"result": value}`)."""
    if schema is None:
        return None, False
    plain = inline_refs(schema)
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
    """An input schema: an object, without references, and with nothing combined at its top.

    Properties of alternatives stand side by side; which of them go together is told in words.
    """
    plain = inline_refs(schema or {})
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
