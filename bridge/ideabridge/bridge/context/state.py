"""Documents (JSON values that are read and written by path) and `StateSchema`.

Documents are never modified in place. A write copies the objects along its path and shares the
rest, so the state before a Solution remains available as long as a call reads it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Final, Literal, cast

from ideabridge.bridge.context.errors import ClosedStateError, StateWriteError
from ideabridge.bridge.context.references import Path, clipped, format_reference, quoted
from ideabridge.tools.encoding import JSON, JSONObject, decode, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, SchemaError
from ideabridge.tools.json_parts import json_type
from ideabridge.tools.keywords import MANY, NAMED, ONE, references_in, show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.schema import Validator

Method = Literal["set", "merge", "push"]
"""The values of `_outputMethod`: replace the old value, deeply merge objects, or append to an
array.
"""


class Missing:
    """The type of `MISSING`, which means that there is no value. Null is a value."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


_BEGINNING: Final = 80

_LARGE_TEXT: Final = 64 * 1024
"""The length, in characters, above which a string is large. Only one large string is cached at a
time, because its value takes up a lot of memory.
"""


def parsed_text(text: str) -> JSON | Missing:
    """Return the JSON object or array that a string contains, or MISSING if there is none. The
    value is shared, so callers must not modify it.
    """
    if len(text) <= _LARGE_TEXT:
        return _parsed_small(text)
    return _parsed_large(text)


def opened(value: JSON | Missing) -> JSON | Missing:
    """Return a value unless it is a string. For a string, return the JSON object or array that it
    contains, or MISSING. The value is shared, so callers must not modify it.
    """
    return parsed_text(value) if isinstance(value, str) else value


def _parse(text: str) -> JSON | Missing:
    stripped = text.strip()
    if not stripped or stripped[0] not in "[{":
        return MISSING
    try:
        return decode(stripped)
    except IdeabridgeError:
        return MISSING


_parsed_small = lru_cache(maxsize=64)(_parse)
_parsed_large = lru_cache(maxsize=1)(_parse)


def _index(key: str, length: int) -> int | None:
    if key.isascii() and key.isdecimal() and len(key) < 16:
        number = int(key)
        return number if number < length else None
    return None


def read(document: JSON, path: Path) -> JSON | Missing:
    """Return the value at `path`, or MISSING if there is none. A path can continue inside a string
    that contains a JSON object or array.
    """
    value: JSON = document
    for key in path:
        if isinstance(value, str):
            parsed = parsed_text(value)
            if isinstance(parsed, Missing):
                return MISSING
            value = parsed

        if isinstance(value, dict):
            if key not in value:
                return MISSING
            value = value[key]
        elif isinstance(value, list):
            index = _index(key, len(value))
            if index is None:
                return MISSING
            value = value[index]
        else:
            return MISSING

    return value


def describe_missing(document: JSON, path: Path, instance: str | None = None) -> str:
    """Explain why `path` does not exist: give the longest prefix of it that exists, and the value
    there.
    """
    for depth in range(len(path)):
        parent = read(document, path[:depth])
        if isinstance(read(document, path[: depth + 1]), Missing):
            if depth:
                place = clipped(format_reference(path[:depth], instance))
            else:
                place = "the document"
            key = quoted(path[depth])
            inside = parsed_text(parent) if isinstance(parent, str) else MISSING
            parent = parent if isinstance(inside, Missing) else inside
            if isinstance(parent, dict):
                keys = ", ".join(clipped(name, 40) for name in islice(parent, 10)) or "nothing"
                return f"{place} has no {key}; it has {keys}"
            if isinstance(parent, list):
                return f"{place} is an array of {len(parent)}; {key} is not a valid index"
            if isinstance(parent, str):
                return (
                    f"{place} is text that begins with {show(parent, _BEGINNING)} and is not a "
                    f"JSON object or array, so it has no {key}. To take text apart, use the tool "
                    f'pick: {{"_tool": "pick", "data": {show(place)}, '
                    '"path": "split(@, \', \')[0]"}'
                )
            return f"{place} is {_kind(cast('JSON', parent))}, which has no {key}"
    return "the value exists"


_KINDS: Final = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "a number",
    "number": "a number",
    "string": "text",
    "array": "an array",
    "object": "an object",
}


def _kind(value: JSON) -> str:
    return _KINDS[json_type(value)]


def merge(old: JSON, new: JSON) -> JSON:
    """Merge two values deeply: members of objects are merged, and any other value is replaced by
    `new`.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        result: JSONObject = dict(old)
        for key, value in new.items():
            result[key] = merge(old[key], value) if key in old else value
        return result
    return new


def _combine(old: JSON | Missing, method: Method, value: JSON, path: Path) -> JSON:
    if method == "push":
        if isinstance(old, Missing):
            return [value]
        if not isinstance(old, list):
            raise StateWriteError(
                f"cannot push to {clipped(format_reference(path))}: it contains {_kind(old)}, not "
                "an array"
            )

        return [*old, value]

    if method == "merge" and not isinstance(old, Missing):
        if not isinstance(old, dict) or not isinstance(value, dict):
            raise StateWriteError(
                f"cannot merge {_kind(value)} into {clipped(format_reference(path))}, which "
                f"contains {_kind(old)}: both must be objects"
            )

        return merge(old, value)

    return value


def write(document: JSONObject, path: Path, method: Method, value: JSON) -> JSONObject:
    """Return a copy of the document with `value` written at `path`, which has at least one key.

    Missing parents become objects. An index just past the end of an array appends.

    Raises:
        StateWriteError: the path leads through a scalar or past the end of an array, the method
            does not fit the existing value, or the state would no longer be an object.
    """
    key = path[0]
    if len(path) == 1 and method != "push" and not isinstance(value, dict):
        raise StateWriteError(
            f"{clipped(format_reference(path))} must remain an object, but this write would "
            f"replace it with {_kind(value)}"
        )
    return {**document, key: _write(document.get(key, MISSING), path, 1, method, value)}


def _write(node: JSON | Missing, path: Path, depth: int, method: Method, value: JSON) -> JSON:
    if depth == len(path):
        return _combine(node, method, value, path)

    key = path[depth]
    if isinstance(node, Missing):
        return {key: _write(MISSING, path, depth + 1, method, value)}
    if isinstance(node, dict):
        return {**node, key: _write(node.get(key, MISSING), path, depth + 1, method, value)}

    if isinstance(node, list):
        if key == str(len(node)):
            return [*node, _write(MISSING, path, depth + 1, method, value)]

        index = _index(key, len(node))
        if index is None:
            fault = f"is an array of {len(node)}, and {quoted(key)} is not a valid index"
            raise StateWriteError(_unwritable(path, depth, fault))

        items = list(node)
        items[index] = _write(node[index], path, depth + 1, method, value)
        return items

    raise StateWriteError(_unwritable(path, depth, f"is {_kind(node)}, not an object"))


def _unwritable(path: Path, depth: int, actual: str) -> str:
    place = clipped(format_reference(path[:depth]))
    return f"cannot write {clipped(format_reference(path))}: {place} {actual}"


# -- the schema of a state -------------------------------------------------------------------------

_COMPOSED = ("$ref", "anyOf", "oneOf", "allOf", "if", "not")

_LATER = frozenset(
    {
        "required",
        "oneOf",
        "anyOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
    }
    | {"dependencies", "minProperties", "minItems", "contains", "minContains", "maxContains"}
    | {"unevaluatedProperties", "unevaluatedItems"}
)
"""Keywords that a state need not satisfy until the run ends."""


class StateSchema:
    """The schema of one instance's state.

    If the schema declares properties, only these can be written to, which is checked before
    anything runs. Every write is checked against the schema without `required`. When the run ends,
    the whole state is checked with `required`.

    Args:
        schema: the schema of the state.
        state: the initial state of the run. Its members count as declared.

    Raises:
        SchemaError: the schema is invalid.
    """

    def __init__(self, schema: JSONObject, state: JSON = None) -> None:
        self._schema = schema
        self._whole = Validator(schema, what="the state")
        # Compile the schema now, so that an invalid schema is reported before a run begins.
        self._whole.compile()
        growing = _growing(schema, [state], closes=not _refers_beyond_definitions(schema))
        self._growing = Validator(object_or_empty(growing), what="the state")
        try:
            self._growing.compile()
        except SchemaError:
            # The schema refers to a part that has been left out, so the state can be checked only
            # at the end.
            self._growing = Validator({}, what="the state")

    def allow(self, path: Path) -> None:
        """Check that writing to `path` (below `†state`) is allowed.

        Raises:
            ClosedStateError: the schema declares other properties; the message names them.
        """
        schema: JSON = self._schema
        for depth, key in enumerate(path):
            if not isinstance(schema, dict) or any(word in schema for word in _COMPOSED):
                return
            items = schema.get("items")
            if "properties" in schema:
                properties = object_or_empty(schema["properties"])
                if key in properties:
                    schema = properties[key]
                    continue
                schema = self._additional(schema, key)
                if schema is None:
                    names = list(properties)
                    reference = format_reference(("state", *path[: depth + 1]))
                    declared = ", ".join(names[:10]) or "nothing"
                    raise ClosedStateError(
                        f"the state's schema does not declare {reference}; it declares "
                        f"{declared}.{did_you_mean(key, names)}"
                    )
            elif items is not None:
                schema = items
            else:
                return

    @staticmethod
    def _additional(schema: JSONObject, key: str) -> JSON:
        """Return the schema for a key that is not in `properties`, or None if the schema does not
        allow the key.
        """
        for pattern, schema_of_pattern in object_or_empty(schema.get("patternProperties")).items():
            if _matches(pattern, key):
                return schema_of_pattern

        additional = schema.get("additionalProperties")
        # JSON Schema allows every key if `additionalProperties` is missing, but a state does not.
        return None if additional is None or additional is False else additional

    def check_write(self, state: JSON) -> None:
        """Check the state after a write, without the keywords that apply only at the end.

        Raises:
            ClosedStateError: the message contains the path, what was found and what was expected.
        """
        try:
            self._growing.check(state)
        except IdeabridgeError as error:
            raise ClosedStateError(str(error)) from None

    def check_end(self, state: JSON) -> None:
        """Check the whole state when the run ends.

        Raises:
            ClosedStateError: the message contains the path, what was found and what was expected.
        """
        try:
            self._whole.check(state)
        except IdeabridgeError as error:
            raise ClosedStateError(str(error)) from None


def _matches(pattern: str, key: str) -> bool:
    try:
        return re.search(pattern, key) is not None
    except re.error:
        return False


def _refers_beyond_definitions(schema: JSON) -> bool:
    """Return whether the schema refers to a part that is not a definition. Such a part applies in
    two places, so closing it in one would also close it in the other.
    """
    return any(
        not target.startswith(("#/$defs/", "#/definitions/")) for target in references_in(schema)
    )


def _growing(schema: JSON, values: list[JSON], *, closes: bool) -> JSON:
    """Return the part of a schema that a growing state must satisfy at all times.

    `values` contains the initial values of this part. If `closes` is set, objects that declare
    properties accept only these properties and their initial ones.
    """
    if not isinstance(schema, dict):
        return schema

    closes = closes and not any(word in schema for word in _COMPOSED)
    result: JSONObject = {}
    for word, value in schema.items():
        if word in _LATER or (word in ("const", "enum") and _holds_containers(value)):
            continue
        if word in NAMED and isinstance(value, dict):
            inside = closes and word in ("properties", "patternProperties")
            result[word] = {
                name: _growing(
                    item, _members(values, name) if word == "properties" else [], closes=inside
                )
                for name, item in value.items()
            }
        elif word in MANY and isinstance(value, list):
            result[word] = [_growing(item, [], closes=False) for item in value]
        elif word == "items" and isinstance(value, dict):
            items = [item for element in values if isinstance(element, list) for item in element]
            result[word] = _growing(value, items, closes=closes)
        elif word in ONE:
            result[word] = _growing(value, [], closes=False)
        else:
            result[word] = value

    properties = result.get("properties")
    if closes and isinstance(properties, dict) and "additionalProperties" not in schema:
        names = {name for element in values if isinstance(element, dict) for name in element}
        new_members: JSONObject = {name: {} for name in sorted(names - properties.keys())}
        result["properties"] = {**properties, **new_members}
        result["additionalProperties"] = False

    return result


def _members(values: list[JSON], name: str) -> list[JSON]:
    return [value[name] for value in values if isinstance(value, dict) and name in value]


def _holds_containers(value: JSON) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(element, list | dict) for element in value)
    )
