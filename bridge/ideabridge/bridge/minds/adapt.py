"""Adapt: widens the schema of a Solution to one that model endpoints accept.

Providers refuse different parts of JSON Schema, and some compile it into a grammar, which counts and patterns make too
large. Removing them only widens the schema. A description tells the model about the removed limits, and the loop
validates every Solution against the exact schema.
"""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, encode_text

MAX_DEPTH: Final = 12
"""Levels of schemas below the root; deeper ones admit anything."""

_TOLD: Final = frozenset(
    {
        *("pattern", "format", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""Limits of single values: taken out, and told in the description."""

_KEPT: Final = frozenset({"type", "enum", "const", "required", "description", "default", "$ref"})
"""Keywords kept as they are. All others that hold no schema say nothing to a model, or too much for a provider."""

_LONGEST_NOTE: Final = 200


def adapt(schema: JSONObject) -> JSONObject:
    """The schema as endpoints take it: wider than `schema`, never narrower.

    `oneOf` becomes `anyOf`; one `allOf` is merged where its parts do not contradict one another, else loosened;
    conditions, negations, tuples, patterns of keys, counts, ranges and patterns go; definitions stay in `$defs`.
    """
    adapted = _object(schema, 0)
    defs = schema.get("$defs")
    if isinstance(defs, dict):
        adapted["$defs"] = {name: _adapted(item, 1) for name, item in defs.items()}
    return adapted


def is_closed(schema: JSON) -> bool:
    """Whether every object in an adapted schema is closed and every part says what it is: what strict modes demand."""
    if not isinstance(schema, dict):
        return schema is False
    defs = schema.get("$defs")
    if isinstance(defs, dict) and not all(is_closed(item) for item in defs.values()):
        return False
    if "$ref" in schema:
        return True
    branches = schema.get("anyOf")
    if isinstance(branches, list):
        return all(is_closed(item) for item in branches)
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties")
        inner = properties.values() if isinstance(properties, dict) else ()
        return schema.get("additionalProperties") is False and all(is_closed(item) for item in inner)
    if kind == "array":
        return "items" in schema and is_closed(schema["items"])
    return isinstance(kind, str) or "enum" in schema or "const" in schema


def _adapted(schema: JSON, depth: int) -> JSON:
    if not isinstance(schema, dict):
        # Many providers know no boolean schemas.
        return {}
    if depth > MAX_DEPTH:
        told = schema.get("description")
        return {"description": told} if isinstance(told, str) else {}
    return _object(schema, depth)


def _object(schema: JSONObject, depth: int) -> JSONObject:
    result: JSONObject = {}
    notes: list[str] = []
    for keyword, value in schema.items():
        if keyword in _KEPT:
            result[keyword] = [*value] if isinstance(value, list) else value
        elif keyword in _TOLD:
            notes.append(f"{keyword} {encode_text(value)}")
        elif keyword == "properties" and isinstance(value, dict):
            result[keyword] = {name: _adapted(item, depth + 1) for name, item in value.items()}
        elif keyword in ("items", "additionalProperties"):
            closed = keyword == "additionalProperties" and value is False
            result[keyword] = False if closed else _adapted(value, depth + 1)
        elif keyword in ("anyOf", "oneOf") and isinstance(value, list):
            # Of an `anyOf` beside a `oneOf` only one can stay; either alone is wider than both.
            result.setdefault("anyOf", [_adapted(item, depth + 1) for item in value])
    parts = schema.get("allOf")
    if isinstance(parts, list):
        _merge_all(result, [_adapted(item, depth) for item in parts])
    _keep_open(schema, result)
    if isinstance(result.get("const"), str):
        result.setdefault("type", "string")
    _note(result, notes)
    return result


def _keep_open(schema: JSONObject, result: JSONObject) -> None:
    """What was taken out may have let more through than what is left: that is opened."""
    if "patternProperties" in schema and result.get("additionalProperties") is not True:
        result.pop("additionalProperties", None)
    if "prefixItems" in schema:
        result["items"] = {}
    kind = result.get("type")
    if "$ref" in result and isinstance(kind, str | list):
        # Beside a reference it says nothing new, and providers refuse siblings of one.
        del result["type"]


def _merge_all(result: JSONObject, parts: list[JSON]) -> None:
    """Join the parts of `allOf` into one schema. Where two say different things of one keyword, the first holds, which
    is wider than both; but an object closed by one part would refuse the properties of another, and is opened.
    """
    for part in parts:
        if not isinstance(part, dict):
            continue
        for keyword, value in part.items():
            if keyword == "properties" and isinstance(value, dict):
                mine = result.setdefault("properties", {})
                if isinstance(mine, dict):
                    for name, item in value.items():
                        mine.setdefault(name, item)
            elif keyword == "required" and isinstance(value, list):
                mine = result.setdefault("required", [])
                if isinstance(mine, list):
                    mine.extend(name for name in value if name not in mine)
            else:
                result.setdefault(keyword, value)
    result.pop("additionalProperties", None)


def _note(result: JSONObject, notes: list[str]) -> None:
    """Tell in the description what was taken out."""
    text = ", ".join(notes)
    if not text or len(text) > _LONGEST_NOTE:
        return
    told = result.get("description")
    result["description"] = f"{told} ({text})" if isinstance(told, str) and told else text
