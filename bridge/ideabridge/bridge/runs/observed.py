"""Learn, from each caller's runs, the result shapes of tools without an output schema.

A shape is a JSON Schema that contains only types and names: no value of a result, and no name that
looks like data.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from itertools import islice
from typing import Final, cast

import orjson

from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, encode, list_or_empty
from ideabridge.tools.json_parts import json_type
from ideabridge.tools.tool import Tool

INSPECTION_SECONDS: Final = 1.0
"""The minimum time, in seconds, between two inspections of the same tool's results for the same
owner of runs.
"""

_STORED: Final = 4
"""The maximum number of different shapes stored for a tool."""

_MOST_BYTES: Final = 1500
"""The maximum size of one shape, in bytes of JSON."""

_MOST_DEPTH: Final = 5
_NAMES: Final = 20
_MOST_ITEMS: Final = 4
_PARTS: Final = 100
_TEXT: Final = 32_768
"""The maximum length, in characters, of a string that is searched for JSON."""

_TRACKED: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$.:-]{0,39}", re.ASCII)
_HASH: Final = re.compile(r"(?=.*[0-9])[0-9a-f-]{6,}", re.IGNORECASE)
_DIGITS: Final = 3

logger: Final = logging.getLogger(__name__)


class Observed:
    """Learns the shapes of results, and stores them."""

    def __init__(self, store: Store) -> None:
        self._memory = store.tool_memory
        self._next: dict[tuple[str, str | None, str], float] = {}

    def note(self, owner: str, tool: Tool, value: JSON) -> None:
        """Learn from the result of a call in a run of `owner`. Usually, this costs only one table
        look-up.
        """
        if tool.output is not None or tool.in_room:
            return

        key = (owner, tool.module, tool.name_in_module)
        now = time.monotonic()
        if self._next.get(key, 0.0) > now:
            return

        if len(self._next) >= _TRACKED:
            self._next.clear()

        self._next[key] = now + INSPECTION_SECONDS
        digest = tool.prose_digest
        shape = observed_shape(value)
        try:
            stored = self._memory.shapes(owner, digest)
            if stored and merged([*stored, shape]) == merged(stored):
                return

            name = tool.name_in_module
            if tool.module:
                name = f"{tool.module}.{name}"
            shapes: list[JSON] = [shape, *stored[: _STORED - 1]]
            self._memory.keep_shapes(owner, digest, name, shapes)
        except StoreError as error:
            # The store is busy or full, and the run does not need the shape.
            logger.warning("storing the shape of a result failed: %s", error)

    def of(self, owner: str, tool: Tool) -> JSONObject | None:
        """Return the shape of a tool's latest results in an owner's runs, or None if there are no
        results, or the tool declares an output schema.
        """
        if tool.output is not None:
            return None
        stored = self._memory.shapes(owner, tool.prose_digest)
        # Show only the latest shape if all of them together are too large.
        for shape in (merged(stored), merged(stored[:1])):
            if shape and len(encode(shape)) <= _MOST_BYTES:
                return shape
        return None


def observed_shape(value: JSON) -> JSONObject:
    """Return a JSON Schema of limited size that contains the types in a value, and none of its
    data.

    The schema of a string that contains a JSON object or array has `contentMediaType` and
    `contentSchema`.
    """
    inner = _content(value)
    for depth in range(_MOST_DEPTH, 0, -1):
        left = [_PARTS]
        shape = _shape(value, depth, left)
        if inner is not None:
            shape |= {
                "contentMediaType": "application/json",
                "contentSchema": _shape(inner, depth, left),
            }

        if len(encode(shape)) <= _MOST_BYTES:
            return shape

    return {"type": json_type(value)}


def merged(shapes: Iterable[JSON]) -> JSONObject:
    """Merge shapes into one that covers all of them."""
    result: JSONObject | None = None
    for shape in shapes:
        if isinstance(shape, dict):
            result = shape if result is None else _merge(result, shape)
    return result or {}


def _shape(value: JSON, depth: int, left: list[int]) -> JSONObject:
    """Return the shape of a value down to a depth. `left` contains the number of parts that may
    still be inspected.
    """
    shape: JSONObject = {"type": json_type(value)}
    left[0] -= 1
    if depth <= 1 or left[0] < 0 or not value:
        return shape

    if isinstance(value, list):
        shape["items"] = merged(_shape(item, depth - 1, left) for item in value[:_MOST_ITEMS])
    elif isinstance(value, dict):
        if len(value) > _NAMES or not all(map(_is_name, value)):
            first = islice(value.values(), _MOST_ITEMS)
            shape["additionalProperties"] = merged(_shape(item, depth - 1, left) for item in first)
        else:
            shape["properties"] = {
                name: _shape(item, depth - 1, left) for name, item in value.items()
            }

    return shape


def _is_name(key: str) -> bool:
    """Return whether a key is the name of a field, rather than data such as an id, a date, an
    address or a sentence.
    """
    return (
        _NAME.fullmatch(key) is not None
        and _HASH.fullmatch(key) is None
        and sum(map(str.isdigit, key)) <= _DIGITS
    )


def _content(value: JSON) -> JSONObject | list[JSON] | None:
    """Return the object or array that a string contains as JSON, or None if there is none."""
    if (
        not isinstance(value, str)
        or len(value) > _TEXT
        or not value.lstrip().startswith(("{", "["))
    ):
        return None
    try:
        # Only the types matter, and only to a small depth, so numbers need not be exact and no
        # other limit is needed.
        return cast("JSONObject | list[JSON]", orjson.loads(value))
    except orjson.JSONDecodeError:
        return None


def _merge(first: JSONObject, second: JSONObject) -> JSONObject:
    if first == second or not second:
        return first
    if not first:
        return second

    types = _types(first)
    types += [kind for kind in _types(second) if kind not in types]
    if "number" in types and "integer" in types:
        types.remove("integer")

    result: JSONObject = {"type": types[0] if len(types) == 1 else list[JSON](types)}
    shapes = (first, second)
    objects = [shape for shape in shapes if "object" in _types(shape)]
    if objects:
        result |= _merge_objects(objects)

    items = [shape["items"] for shape in shapes if "items" in shape]
    if items:
        result["items"] = merged(items)

    texts = [shape.get("contentSchema") for shape in shapes if "string" in _types(shape)]
    if texts and all(texts):
        # Describe JSON inside strings only if every string contains JSON.
        result |= {"contentMediaType": "application/json", "contentSchema": merged(texts)}

    return result


def _merge_objects(shapes: list[JSONObject]) -> JSONObject:
    properties: JSONObject = {}
    for shape in shapes:
        for name, part in cast("JSONObject", shape.get("properties", {})).items():
            properties[name] = merged([properties.get(name), part])

    maps = [shape["additionalProperties"] for shape in shapes if "additionalProperties" in shape]
    if maps or len(properties) > _NAMES:
        return {"additionalProperties": merged([*maps, *properties.values()])}
    if not properties:
        return {}
    return {"properties": properties}


def _types(shape: JSONObject) -> list[str]:
    kinds = shape.get("type")
    return [str(kind) for kind in list_or_empty(kinds) or [kinds]]
