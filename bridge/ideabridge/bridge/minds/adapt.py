"""Widen the schema of a Solution to one that model endpoints accept.

Providers reject different parts of JSON Schema. Some compile a schema into a grammar, which counts
and patterns would make too large. Removing such keywords only widens the schema. A description
tells the model about the removed limits, and the loop validates every Solution against the exact
schema.
"""

from __future__ import annotations

from typing import Final

from ideabridge.tools.compose import EITHER
from ideabridge.tools.encoding import JSON, JSONObject, encode_text, list_or_empty, object_or_empty
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.typed import read_as

MAX_DEPTH: Final = 12
"""How many levels of schemas below the root are kept. Deeper schemas are replaced by schemas that
accept anything.
"""

_MENTIONED: Final = frozenset(
    {
        *("pattern", "format", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""Keywords that limit single values. They are removed, and mentioned in the description."""

_SUPPORTED: Final = frozenset(
    {"type", "enum", "const", "required", "description", "default", "$ref"}
)
"""Keywords that are kept. Any other keyword whose value is not a schema is either meaningless to a
model or rejected by providers.
"""

_LONGEST_NOTE: Final = 200


def adapted_schema(schema: JSONObject) -> JSONObject:
    """Return a schema that endpoints accept. The result can be wider than `schema`, but not
    narrower.

    `oneOf` becomes `anyOf`; the parts of an `allOf` are merged, and loosened if they contradict
    each other. Conditions, negations, tuples, patterns of keys, counts, ranges and patterns are
    removed. Definitions remain in `$defs`. The only part that becomes narrower is the alternative
    that allows a program; see `with_calls`.
    """
    adapted = _object(with_calls(schema), 0)
    definitions = read_as(SchemaKeywords, schema).definitions
    if definitions:
        adapted["$defs"] = {name: _adapted(item, 1) for name, item in definitions.items()}
    return adapted


def with_calls(schema: JSONObject) -> JSONObject:
    """Return the schema of a Solution without alternatives at the top level, where endpoints reject
    them.

    Calls and output are required, and a program is allowed next to them. A Solution with a program
    but no calls and no output is read as a program.
    """
    if schema.get("oneOf") != [*EITHER]:
        return schema

    own = schema.get("required")
    required: list[JSON] = [*list_or_empty(own), "calls", "output"]
    plain: JSONObject = {}
    for keyword, value in schema.items():
        if keyword == "oneOf":
            plain["required"] = required
        elif keyword != "required":
            plain[keyword] = value

    return plain


def is_closed(schema: JSON) -> bool:
    """Return whether every object in an adapted schema is closed and every part has a type, as
    strict modes require.
    """
    if not isinstance(schema, dict):
        return schema is False

    if not all(map(is_closed, object_or_empty(schema.get("$defs")).values())):
        return False
    if "$ref" in schema:
        return True
    if "anyOf" in schema:
        return all(map(is_closed, list_or_empty(schema["anyOf"])))

    match schema.get("type"):
        case "object":
            is_open = schema.get("additionalProperties") is not False
            members = object_or_empty(schema.get("properties"))
            return not is_open and all(map(is_closed, members.values()))
        case "array":
            return "items" in schema and is_closed(schema["items"])
        case str():
            return True
        case _:
            return "enum" in schema or "const" in schema


def _adapted(schema: JSON, depth: int) -> JSON:
    if not isinstance(schema, dict):
        # Replace a boolean schema, because many providers do not support them.
        return {}
    if depth > MAX_DEPTH:
        description = read_as(SchemaKeywords, schema).description
        return {} if description is None else {"description": description}
    return _object(schema, depth)


def _object(schema: JSONObject, depth: int) -> JSONObject:
    result: JSONObject = {}
    notes: list[str] = []
    for keyword, value in schema.items():
        if keyword in _SUPPORTED:
            result[keyword] = [*value] if isinstance(value, list) else value
        elif keyword in _MENTIONED:
            notes.append(f"{keyword} {encode_text(value)}")
        elif keyword == "properties" and isinstance(value, dict):
            result[keyword] = {name: _adapted(item, depth + 1) for name, item in value.items()}
        elif keyword == "additionalProperties" and value is False:
            result[keyword] = False
        elif keyword in ("items", "additionalProperties"):
            result[keyword] = _adapted(value, depth + 1)
        elif keyword in ("anyOf", "oneOf") and isinstance(value, list):
            # If the schema has both `anyOf` and `oneOf`, keep only the first, because either of
            # them alone accepts more than both together.
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
    """Open the parts in which the remaining keywords accept fewer values than the removed ones."""
    if "patternProperties" in schema and result.get("additionalProperties") is not True:
        result.pop("additionalProperties", None)

    if "prefixItems" in schema:
        result["items"] = {}

    kind = result.get("type")
    if "$ref" in result and isinstance(kind, str | list):
        # A type beside a reference is redundant, and providers reject it.
        del result["type"]


def _merge_all(result: JSONObject, parts: list[JSON]) -> None:
    """Merge the parts of an `allOf`.

    If two parts have the same keyword, only the first is kept, because each alone is wider than
    both together. Closed objects are opened, because they would reject the properties in the other
    parts.
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
    """Mention the removed limits in the description."""
    text = ", ".join(notes)
    if not text or len(text) > _LONGEST_NOTE:
        return

    description = read_as(SchemaKeywords, result).description
    result["description"] = f"{description} ({text})" if description else text
