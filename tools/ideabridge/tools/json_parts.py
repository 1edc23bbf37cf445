"""Take JSON values apart: find their types and the values inside them, and copy them with other
strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType
from typing import Final, Literal

from ideabridge.tools.encoding import JSON

JSONType = Literal["null", "boolean", "integer", "number", "string", "array", "object"]

_TYPES: Final[dict[type, JSONType]] = {
    NoneType: "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def json_type(value: JSON) -> JSONType:
    """Return the JSON Schema type of a value. `1.0` is a number, not an integer. Values that are
    not JSON count as objects.
    """
    # The nearest class in the order of inheritance comes first, so True and False count as booleans
    # rather than integers.
    for base in type(value).__mro__:
        if base in _TYPES:
            return _TYPES[base]
    return "object"


def parts_of(value: JSON) -> Iterable[tuple[str | int, JSON]]:
    """Return the (name, member) pairs of an object, or the (index, element) pairs of an array.
    Other values have no parts.
    """
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list):
        return enumerate(value)
    return ()


def values_in(root: JSON) -> Iterator[JSON]:
    """Yield `root` and every value inside it, in no particular order."""
    stack = [root]
    while stack:
        value = stack.pop()
        yield value
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def strings_in(root: JSON) -> Iterator[str]:
    """Yield every string in a value, except member names, in no particular order."""
    for value in values_in(root):
        if isinstance(value, str):
            yield value


def map_parts(value: JSON, change: Callable[[JSON], JSON]) -> JSON:
    """Return a copy of an object or array with `change` applied to each of its parts. Other values
    are returned unchanged.
    """
    if isinstance(value, dict):
        return {name: change(member) for name, member in value.items()}
    if isinstance(value, list):
        return [change(element) for element in value]
    return value


def map_strings(value: JSON, change: Callable[[str], JSON]) -> JSON:
    """Return a copy of a value with `change` applied to each string except member names."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: map_strings(member, change) for name, member in value.items()}
    if isinstance(value, list):
        return [map_strings(element, change) for element in value]
    return value


def with_sorted_keys(value: JSON) -> JSON:
    """Return a copy in which the members of every object are sorted by name."""
    if isinstance(value, dict):
        value = {name: value[name] for name in sorted(value)}
    return map_parts(value, with_sorted_keys)


def part_at(root: JSON, path: Sequence[str | int]) -> JSON:
    """Return the part of a value at a path, or None if there is nothing at the path."""
    part = root
    for key in path:
        if isinstance(part, dict):
            part = part.get(str(key))
        elif isinstance(part, list) and isinstance(key, int) and key < len(part):
            part = part[key]
        else:
            return None

    return part
