"""Read the lists in which explanations look for a value.

A field is a key, or several keys joined with dots; "" is the item itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.state import MISSING, Missing, opened
from ideabridge.bridge.context.state import read as read_path
from ideabridge.tools.encoding import JSON


def items_of(value: JSON | Missing) -> list[JSON] | None:
    """Return the value if it is a list, or the list if it is a string that contains one as JSON, or
    None otherwise.
    """
    items = opened(value)
    return items if isinstance(items, list) else None


def keys_of(field: str) -> Path:
    """Return the keys that a field names."""
    return tuple(field.split(".")) if field else ()


def column_of(items: list[JSON], name: str | Path) -> Sequence[JSON | Missing]:
    """Return one member of each item, or MISSING for items without this member.

    `name` is the field that names the member, or the keys of that field.
    """
    keys = keys_of(name) if isinstance(name, str) else name
    if len(keys) != 1:
        return [read_path(item, keys) for item in items] if keys else items
    # With a single key, skip `read_path`: most items are objects, and reading the member directly
    # is faster.
    [key] = keys
    return [
        item.get(key, MISSING) if isinstance(item, dict) else read_path(item, keys)
        for item in items
    ]
