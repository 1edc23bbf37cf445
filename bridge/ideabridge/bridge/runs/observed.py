"""Observed: the shapes of results of tools that declare none, learned from the runs of each caller.

A shape is a JSON Schema of types and names alone. It holds no value of a result, and no name that looks like data.
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
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.tool import Tool

SECONDS: Final = 1.0
"""Seconds: within this time, at most one result of a tool is looked at for each owner of runs."""

_KEPT: Final = 4
"""Different shapes that are kept of a tool."""

_BYTES: Final = 1500
"""Bytes of JSON of one shape."""

_DEPTH: Final = 5
_NAMES: Final = 20
_ITEMS: Final = 4
_PARTS: Final = 100
_TEXT: Final = 32_768
"""Characters of a text that is looked at for JSON in it."""

_TRACKED: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$.:-]{0,39}", re.ASCII)
_HASH: Final = re.compile(r"(?=.*[0-9])[0-9a-f-]{6,}", re.IGNORECASE)
_DIGITS: Final = 3

logger: Final = logging.getLogger(__name__)


class Observed:
    """Learns the shapes of results, and keeps them in the store.

    Args:
        store: keeps them.
    """

    def __init__(self, store: Store) -> None:
        self._memory = store.tool_memory
        self._next: dict[tuple[str, str | None, str], float] = {}

    def note(self, owner: str, tool: Tool, value: JSON) -> None:
        """A call of a run of `owner` gave `value`. Most results cost one look into a table."""
        if tool.output is not None or tool.in_room:
            return
        key = (owner, tool.module, tool.remote_name or tool.name)
        now = time.monotonic()
        if self._next.get(key, 0.0) > now:
            return
        if len(self._next) >= _TRACKED:
            self._next.clear()
        self._next[key] = now + SECONDS
        digest, shape = tool.prose_digest, shape_of(value)
        try:
            known = self._memory.shapes(owner, digest)
            if known and merged([*known, shape]) == merged(known):
                return
            name = f"{tool.module}.{key[2]}" if tool.module else key[2]
            kept: list[JSON] = [shape, *known[: _KEPT - 1]]
            self._memory.keep_shapes(owner, digest, name, kept)
        except StoreError as error:
            # Busy or full: the run does not need it.
            logger.warning("keeping the shape of a result: %s", error)

    def of(self, owner: str, tool: Tool) -> JSONObject | None:
        """What the latest results of a tool looked like in an owner's runs, as a JSON Schema; None: nothing is known,
        or the tool itself declares what it gives.
        """
        if tool.output is not None:
            return None
        known = self._memory.shapes(owner, tool.prose_digest)
        # The latest alone, where all together are too large to be shown.
        shapes = (merged(known), merged(known[:1]))
        return next((shape for shape in shapes if shape and len(encode(shape)) <= _BYTES), None)


def shape_of(value: JSON) -> JSONObject:
    """A JSON Schema of the types in a value: bounded, and without anything of the value itself.

    For a text that holds a JSON object or array, the shape says so (`contentMediaType`, `contentSchema`).
    """
    inner = _content(value)
    for depth in range(_DEPTH, 0, -1):
        left = [_PARTS]
        shape = _shape(value, depth, left)
        if inner is not None:
            shape |= {"contentMediaType": "application/json", "contentSchema": _shape(inner, depth, left)}
        if len(encode(shape)) <= _BYTES:
            return shape
    return {"type": _type(value)}


def merged(shapes: Iterable[JSON]) -> JSONObject:
    """One shape that all of these have."""
    result: JSONObject | None = None
    for shape in shapes:
        if isinstance(shape, dict):
            result = shape if result is None else _merge(result, shape)
    return result or {}


def _type(value: JSON) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"


def _shape(value: JSON, depth: int, left: list[int]) -> JSONObject:
    """The shape down to a depth; `left` counts the parts that may still be looked into."""
    shape: JSONObject = {"type": _type(value)}
    left[0] -= 1
    if depth <= 1 or left[0] < 0 or not value:
        return shape
    if isinstance(value, list):
        shape["items"] = merged(_shape(item, depth - 1, left) for item in value[:_ITEMS])
    elif isinstance(value, dict):
        if len(value) > _NAMES or not all(map(_is_name, value)):
            some = islice(value.values(), _ITEMS)
            shape["additionalProperties"] = merged(_shape(item, depth - 1, left) for item in some)
        else:
            shape["properties"] = {name: _shape(item, depth - 1, left) for name, item in value.items()}
    return shape


def _is_name(key: str) -> bool:
    """Whether a key is a word somebody chose for a field, and not data: an id, a date, an address, a sentence."""
    return _NAME.fullmatch(key) is not None and _HASH.fullmatch(key) is None and sum(map(str.isdigit, key)) <= _DIGITS


def _content(value: JSON) -> JSONObject | list[JSON] | None:
    """The object or array that a text holds as JSON; None: it holds none."""
    if not isinstance(value, str) or len(value) > _TEXT or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        # Only types are read from it, and not deep: it need be neither exact nor bounded otherwise.
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return cast("JSONObject | list[JSON]", found)


def _merge(one: JSONObject, other: JSONObject) -> JSONObject:
    if one == other or not other:
        return one
    if not one:
        return other
    types = _types(one)
    types += [kind for kind in _types(other) if kind not in types]
    if "number" in types and "integer" in types:
        types.remove("integer")
    result: JSONObject = {"type": types[0] if len(types) == 1 else list[JSON](types)}
    both = [shape for shape in (one, other) if "object" in _types(shape)]
    if both:
        result |= _merge_objects(both)
    items = [shape["items"] for shape in (one, other) if "items" in shape]
    if items:
        result["items"] = merged(items)
    texts = [shape.get("contentSchema") for shape in (one, other) if "string" in _types(shape)]
    if texts and all(texts):
        # Only where every text held JSON.
        result |= {"contentMediaType": "application/json", "contentSchema": merged(texts)}
    return result


def _merge_objects(shapes: list[JSONObject]) -> JSONObject:
    properties: JSONObject = {}
    for shape in shapes:
        for name, part in cast("JSONObject", shape.get("properties", {})).items():
            known = properties.get(name)
            properties[name] = merged([known, part])
    maps = [shape["additionalProperties"] for shape in shapes if "additionalProperties" in shape]
    if maps or len(properties) > _NAMES:
        return {"additionalProperties": merged([*maps, *properties.values()])}
    return {"properties": properties} if properties else {}


def _types(shape: JSONObject) -> list[str]:
    kind = shape.get("type")
    return [str(one) for one in kind] if isinstance(kind, list) else [str(kind)]
