"""Documents: JSON values read and written by path, without ever changing a value in place.

A write copies the objects along its path and shares the rest, so that the value before a Solution stays at hand
for as long as some call still reads it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Final, Literal, cast

from ideabridge.bridge.context.errors import StateWriteError
from ideabridge.bridge.context.reference import Path, clipped, format_reference, quoted
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show

Method = Literal["set", "merge", "push"]
"""`_outputMethod`: replace, merge objects deeply, append to an array."""


class Missing:
    """The type of `MISSING`: no value, which is not null."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


_BEGINNING: Final = 80

_LARGE: Final = 64 * 1024
"""Characters of text from which what it holds takes too much memory to keep."""


def parsed_text(text: str) -> JSON | Missing:
    """The one JSON object or array that a text holds, or MISSING; shared, so never to be changed."""
    return _parsed_small(text) if len(text) <= _LARGE else _parsed_large(text)


@lru_cache(maxsize=64)
def _parsed_small(text: str) -> JSON | Missing:
    return _parse(text)


@lru_cache(maxsize=1)
def _parsed_large(text: str) -> JSON | Missing:
    return _parse(text)


def _parse(text: str) -> JSON | Missing:
    stripped = text.strip()
    if not stripped or stripped[0] not in "[{":
        return MISSING
    try:
        return decode(stripped)
    except IdeabridgeError:
        return MISSING


def _index(key: str, length: int) -> int | None:
    if key.isascii() and key.isdecimal() and len(key) < 16:
        number = int(key)
        return number if number < length else None
    return None


def read(document: JSON, path: Path) -> JSON | Missing:
    """The value at `path`, or MISSING.

    A key that goes into a text that holds one JSON object or array goes into that.
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
    """Why `path` is not there: how far it goes, and what stands there instead."""
    for depth in range(len(path)):
        parent = read(document, path[:depth])
        if isinstance(read(document, path[: depth + 1]), Missing):
            place = clipped(format_reference(path[:depth], instance)) if depth else "the document"
            key = quoted(path[depth])
            if isinstance(parent, dict):
                keys = ", ".join(clipped(name, 40) for name in islice(parent, 10)) or "nothing"
                return f"{place} has no {key}; it has {keys}"
            if isinstance(parent, list):
                return f"{place} is an array of {len(parent)}; {key} is not one of its indexes"
            if isinstance(parent, str):
                return (
                    f"{place} is text that begins with {show(parent, _BEGINNING)} and is no JSON object or array, so it"
                    f" has no {key}. The tool pick takes text apart:"
                    f' {{"_tool": "pick", "data": {show(place)}, "path": "split(@, \', \')[0]"}}'
                )
            return f"{place} is {_kind(cast('JSON', parent))}, which has no {key}"
    return "it is there"


def _kind(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "an array" if isinstance(value, list) else "an object"


def merge(old: JSON, new: JSON) -> JSON:
    """Deep merge: members of objects are merged, everything else is replaced by `new`."""
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
                f"cannot push to {clipped(format_reference(path))}: it holds {_kind(old)}, not an array"
            )
        return [*old, value]
    if method == "merge" and not isinstance(old, Missing):
        if not isinstance(old, dict) or not isinstance(value, dict):
            raise StateWriteError(
                f"cannot merge {_kind(value)} into {clipped(format_reference(path))}, which holds {_kind(old)}:"
                " both must be objects"
            )
        return merge(old, value)
    return value


def write(document: JSON, path: Path, method: Method, value: JSON) -> JSON:
    """A document equal to `document` but for the value written at `path`.

    Missing parents become objects; an index just past the end of an array appends.

    Raises:
        StateWriteError: the way leads through a scalar or past the end of an array, the method does not fit what
            is there, or the state itself would stop being an object.
    """
    if len(path) <= 1 and method != "push" and not isinstance(value, dict):
        raise StateWriteError(f"{clipped(format_reference(path))} as a whole must stay an object, found {_kind(value)}")
    return _write(document, path, 0, method, value)


def _write(node: JSON | Missing, path: Path, depth: int, method: Method, value: JSON) -> JSON:
    if depth == len(path):
        return _combine(node, method, value, path)
    key = path[depth]
    if isinstance(node, Missing):
        return {key: _write(MISSING, path, depth + 1, method, value)}
    if isinstance(node, dict):
        members = dict(node)
        members[key] = _write(node.get(key, MISSING) if key in node else MISSING, path, depth + 1, method, value)
        return members
    if isinstance(node, list):
        if key == str(len(node)):
            return [*node, _write(MISSING, path, depth + 1, method, value)]
        index = _index(key, len(node))
        if index is None:
            found = f"is an array of {len(node)}, and {quoted(key)} is not one of its indexes"
            raise StateWriteError(_unwritable(path, depth, found))
        items = list(node)
        items[index] = _write(node[index], path, depth + 1, method, value)
        return items
    raise StateWriteError(_unwritable(path, depth, f"is {_kind(node)}, not an object"))


def _unwritable(path: Path, depth: int, found: str) -> str:
    place = clipped(format_reference(path[:depth]))
    return f"cannot write {clipped(format_reference(path))}: {place} {found}"
