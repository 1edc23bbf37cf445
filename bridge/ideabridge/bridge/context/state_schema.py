"""StateSchema: what may be written to a state, and what it must be in the end (DESIGN 4.3)."""

from __future__ import annotations

import re

from ideabridge.bridge.context.errors import ClosedStateError
from ideabridge.bridge.context.reference import Path, format_reference
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.schema import Validator

_COMPOSED = ("$ref", "anyOf", "oneOf", "allOf", "if", "not")


class StateSchema:
    """The schema of one instance's state.

    A schema that declares properties closes the paths that may be written, checked before anything runs. Values
    are checked on every write but for `required`, and the whole with `required` when the run ends.

    Raises:
        SchemaError: the schema is invalid.
    """

    def __init__(self, schema: JSONObject) -> None:
        self._schema = schema
        self._whole = Validator(schema, what="the state")
        relaxed = _without_required(schema)
        self._growing = Validator(relaxed if isinstance(relaxed, dict) else {}, what="the state")
        # Compiled now: an invalid schema must be told before a run begins, not while one is under way.
        self._whole.is_valid({})
        self._growing.is_valid({})

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
        # Left out, `additionalProperties` would admit all: here declared properties close (DESIGN 4.3).
        return None if additional is None or additional is False else additional

    def check_write(self, state: JSON) -> None:
        """Check the state as a write leaves it, `required` aside.

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


def _without_required(schema: JSON) -> JSON:
    """The schema without any `required`: properties named so stay."""
    if isinstance(schema, list):
        return [_without_required(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: JSONObject = {}
    for key, value in schema.items():
        if key == "required":
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            result[key] = {name: _without_required(item) for name, item in value.items()}
        elif key in ("const", "enum", "default", "examples"):
            result[key] = value
        else:
            result[key] = _without_required(value)
    return result
