"""StateSchema: what may be written to a state, and what it must be in the end."""

from __future__ import annotations

import re

from ideabridge.bridge.context.errors import ClosedStateError
from ideabridge.bridge.context.reference import Path, format_reference
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError, SchemaError
from ideabridge.tools.keywords import MANY, NAMED, ONE
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.schema import Validator

_COMPOSED = ("$ref", "anyOf", "oneOf", "allOf", "if", "not")

_LATER = frozenset(
    {"required", "oneOf", "anyOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"}
    | {"dependencies", "minProperties", "minItems", "contains", "minContains", "maxContains"}
    | {"unevaluatedProperties", "unevaluatedItems"}
)
"""Keywords that a state may satisfy in the end and not while it grows."""


class StateSchema:
    """The schema of one instance's state.

    A schema that declares properties closes the paths that may be written, checked before anything runs. Values
    are checked on every write but for `required`, and the whole with `required` when the run ends.

    Args:
        schema: the schema.
        state: the state a run begins with; members it has are no undeclared ones.

    Raises:
        SchemaError: the schema is invalid.
    """

    def __init__(self, schema: JSONObject, state: JSON = None) -> None:
        self._schema = schema
        self._whole = Validator(schema, what="the state")
        # Compiled now: an invalid schema must be told before a run begins, not while one is under way.
        self._whole.compile()
        growing = _growing(schema, [state], closes=not _refers_beyond_definitions(schema))
        self._growing = Validator(growing if isinstance(growing, dict) else {}, what="the state")
        try:
            self._growing.compile()
        except SchemaError:
            # A reference into a part that is left out: such a state is judged at the end only.
            self._growing = Validator({}, what="the state")

    def allow(self, path: Path) -> None:
        """Check that `path` (below `†state`) may be written.

        Raises:
            ClosedStateError: the schema declares other properties; the message names them.
        """
        schema: JSON = self._schema
        for depth, key in enumerate(path):
            if not isinstance(schema, dict) or any(word in schema for word in _COMPOSED):
                return
            properties = schema.get("properties")
            items = schema.get("items")
            if isinstance(properties, dict):
                if key in properties:
                    schema = properties[key]
                    continue
                schema = self._additional(schema, key)
                if schema is None:
                    known = list(properties)
                    raise ClosedStateError(
                        f"the schema of the state does not declare {format_reference(('state', *path[: depth + 1]))};"
                        f" it declares {', '.join(known[:10]) or 'nothing'}.{did_you_mean(key, known)}"
                    )
            elif items is not None:
                schema = items
            else:
                return

    @staticmethod
    def _additional(schema: JSONObject, key: str) -> JSON:
        """The schema of a key that `properties` does not name; None where it is closed."""
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            for pattern, found in patterns.items():
                if _matches(pattern, key):
                    return found
        additional = schema.get("additionalProperties")
        # Left out, `additionalProperties` would admit all: here declared properties close.
        return None if additional is None or additional is False else additional

    def check_write(self, state: JSON) -> None:
        """Check the state as a write leaves it; what cannot be judged while it grows is left for the end.

        Raises:
            ClosedStateError: path, found and expected.
        """
        try:
            self._growing.check(state)
        except IdeabridgeError as error:
            raise ClosedStateError(str(error)) from None

    def check_end(self, state: JSON) -> None:
        """Check the whole state when the run ends.

        Raises:
            ClosedStateError: path, found and expected.
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
    """Whether a part that is no definition is referred to: closed in its place, it could not be extended there."""
    if isinstance(schema, dict):
        target = schema.get("$ref")
        if isinstance(target, str) and not target.startswith(("#/$defs/", "#/definitions/")):
            return True
        return any(_refers_beyond_definitions(item) for item in schema.values())
    return isinstance(schema, list) and any(_refers_beyond_definitions(item) for item in schema)


def _growing(schema: JSON, values: list[JSON], *, closes: bool) -> JSON:
    """The part of a schema that holds at every moment of a state that grows.

    Args:
        schema: a schema; one that is no object stays.
        values: what stands where it applies when the run begins.
        closes: objects that declare properties take no others, but those that stand there already.
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
                name: _growing(item, _members(values, name) if word == "properties" else [], closes=inside)
                for name, item in value.items()
            }
        elif word in MANY and isinstance(value, list):
            result[word] = [_growing(item, [], closes=False) for item in value]
        elif word == "items" and isinstance(value, dict):
            items = [item for one in values if isinstance(one, list) for item in one]
            result[word] = _growing(value, items, closes=closes)
        elif word in ONE:
            result[word] = _growing(value, [], closes=False)
        else:
            result[word] = value
    properties = result.get("properties")
    if closes and isinstance(properties, dict) and "additionalProperties" not in schema:
        there = {name for one in values if isinstance(one, dict) for name in one}
        known: JSONObject = {name: {} for name in sorted(there - properties.keys())}
        result["properties"] = {**properties, **known}
        result["additionalProperties"] = False
    return result


def _members(values: list[JSON], name: str) -> list[JSON]:
    return [one[name] for one in values if isinstance(one, dict) and name in one]


def _holds_containers(value: JSON) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, list | dict) for one in value))
