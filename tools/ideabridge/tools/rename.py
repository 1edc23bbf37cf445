"""Parameters and meta-properties share one object: names that collide, and room for both (DESIGN 4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.keywords import children, resolve
from ideabridge.tools.tool import META_PROPERTIES

_ALTERNATIVES = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas", "dependencies")


def rename_meta_parameters(schema: JSONObject) -> tuple[JSONObject, dict[str, str]]:
    """Give every parameter with a meta-property's name another one: `_output` becomes `output_`.

    Args:
        schema: the parameters of a remote tool.

    Raises:
        LimitExceededError: the schema nests or refers too deep.

    Returns:
        (the schema by our names, our name -> the module's name); the schema itself and {} where nothing was taken.
    """
    parts = _parts(schema)
    found = {name for part in parts.values() for name in _names(part.schema)}
    theirs = [name for name in META_PROPERTIES if name in found]
    if not theirs:
        return schema, {}
    taken = found
    ours: dict[str, str] = {}
    for name in theirs:
        wanted = f"{name.lstrip('_')}_"
        candidate = wanted
        number = 1
        while candidate in taken:
            number += 1
            candidate = f"{wanted}{number}"
        taken.add(candidate)
        ours[name] = candidate
    try:
        renamed = _rename(schema, schema, ours, _naming(parts, ours), frozenset())
    except RecursionError:
        raise LimitExceededError("the parameters refer from one definition to the next too often") from None
    assert isinstance(renamed, dict)
    return renamed, {mine: name for name, mine in ours.items()}


class _Part:
    """A schema that says something of the object itself, and the alternatives and definitions it says it by."""

    def __init__(self, schema: JSONObject, root: JSONObject) -> None:
        self.schema = schema
        onward: list[JSON] = [child for place, child in children(schema) if place[0] in _ALTERNATIVES]
        pointer = schema.get("$ref")
        if isinstance(pointer, str):
            onward.append(resolve(root, pointer))
        self.onward = [item for item in onward if isinstance(item, dict)]


def _parts(root: JSONObject) -> dict[int, _Part]:
    """The schema and all parts it says something of the object by, by identity."""
    parts: dict[int, _Part] = {}
    stack = [root]
    while stack:
        schema = stack.pop()
        if id(schema) not in parts:
            parts[id(schema)] = part = _Part(schema, root)
            stack.extend(part.onward)
    return parts


def _names(schema: JSONObject) -> Iterator[str]:
    """Every property one part names."""
    for keyword in ("properties", "dependentRequired", "dependentSchemas", "dependencies"):
        members = schema.get(keyword)
        if isinstance(members, dict):
            yield from members
    required = schema.get("required")
    if isinstance(required, list):
        yield from (name for name in required if isinstance(name, str))


def _naming(parts: dict[int, _Part], ours: dict[str, str]) -> set[int]:
    """The parts that name a property of `ours`, or lead to one that does."""
    leading: dict[int, list[int]] = {}
    for key, part in parts.items():
        for item in part.onward:
            leading.setdefault(id(item), []).append(key)
    stack = [key for key, part in parts.items() if not ours.keys().isdisjoint(_names(part.schema))]
    naming: set[int] = set()
    while stack:
        key = stack.pop()
        if key not in naming:
            naming.add(key)
            stack.extend(leading.get(key, ()))
    return naming


def _rename(schema: JSON, root: JSONObject, ours: dict[str, str], naming: set[int], open_now: frozenset[int]) -> JSON:
    if not isinstance(schema, dict):
        return schema
    result: JSONObject = {}
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            result[keyword] = {ours.get(name, name): item for name, item in value.items()}
        elif keyword == "required" and isinstance(value, list):
            result[keyword] = _renamed_list(value, ours)
        elif keyword in ("dependentRequired", "dependentSchemas", "dependencies") and isinstance(value, dict):
            result[keyword] = {
                ours.get(name, name): _renamed_list(item, ours)
                if isinstance(item, list)
                else _rename(item, root, ours, naming, open_now)
                for name, item in value.items()
            }
        elif keyword in _ALTERNATIVES:
            if isinstance(value, list):
                result[keyword] = [_rename(item, root, ours, naming, open_now) for item in value]
            else:
                result[keyword] = _rename(value, root, ours, naming, open_now)
        else:
            result[keyword] = value
    pointer = schema.get("$ref")
    target = resolve(root, pointer) if isinstance(pointer, str) else None
    if isinstance(target, dict) and id(target) in naming:
        # Others may refer to the target for values that are no parameters: only this use of it is renamed.
        del result["$ref"]
        if id(target) not in open_now:
            parts = result.get("allOf")
            inner = _rename(target, root, ours, naming, open_now | {id(target)})
            result["allOf"] = [*(parts if isinstance(parts, list) else []), inner]
    return result


def _renamed_list(names: list[JSON], ours: dict[str, str]) -> list[JSON]:
    return [ours.get(name, name) if isinstance(name, str) else name for name in names]


def matches_meta(pattern: str) -> bool:
    """Whether a `patternProperties` pattern may match the name of a meta-property."""
    # The names are short and ours: a pattern cannot be made to run away on them.
    try:
        return any(re.search(pattern, name) for name in META_PROPERTIES)
    except re.error:
        return True


def room_for_meta(schema: JSONObject) -> JSONObject:
    """Let a closed object that will be a call also hold the meta-properties."""
    closed = any(schema.get(word, True) is not True for word in ("additionalProperties", "unevaluatedProperties"))
    if closed:
        properties = schema.get("properties")
        names: JSONObject = dict.fromkeys(META_PROPERTIES, True)
        schema["properties"] = {**(properties if isinstance(properties, dict) else {}), **names}
    return schema
