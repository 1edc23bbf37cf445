"""Items: the lists in which explanations look for a value.

A field is a key, or keys joined with dots; "" is the item itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text
from ideabridge.bridge.context.state import read as read_path
from ideabridge.tools.encoding import JSON


def items_of(value: JSON | Missing) -> list[JSON] | None:
    """Return a list, or the list that a text contains as JSON; None for anything else."""
    found = parsed_text(value) if isinstance(value, str) else value
    return found if isinstance(found, list) else None


def column_of(items: list[JSON], name: str | Path) -> Sequence[JSON | Missing]:
    """Return the member of every item that a field, or keys, name; MISSING for an item without it."""
    keys: Path = name if isinstance(name, tuple) else tuple(name.split(".")) if name else ()
    if len(keys) != 1:
        return [read_path(item, keys) for item in items] if keys else items
    key = keys[-1]
    return [item.get(key, MISSING) if isinstance(item, dict) else read_path(item, keys) for item in items]
