"""Describe a change to one entry, and perform the steps that all formats share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError


class UneditableError(IdeabridgeError):
    """Raised when a file's text cannot be edited without changing other parts of it. The message
    names the obstacle, but not the file.
    """


@dataclass(frozen=True, slots=True)
class EntryChange:
    """An entry to add to a file, or to remove from it.

    Attributes:
        keys: the path to the object that contains all entries.
        name: the name of the entry.
        entry: the new entry, or None to remove the entry.
        listed: whether a file without entries gets a list of objects with a `name`. A file that
            already has entries keeps its own form.
        parents: the number of objects around the entry that were added with it. For a removal,
            these objects are removed too if they become empty.
    """

    keys: tuple[str, ...]
    name: str
    entry: JSON
    listed: bool = False
    parents: int = 0


def entry_value(change: EntryChange, *, listed: bool) -> JSON:
    """Return the value to write into the file. In a list, the value is the entry with its name
    added.
    """
    if not listed:
        return change.entry
    entry = object_or_empty(change.entry)
    return {"name": change.name, **entry}


def nested(keys: Sequence[str], change: EntryChange) -> JSONObject | JSON:
    """Return the value that the file lacks: the objects below `keys`, with the entry in the
    innermost.
    """
    value: JSON
    if change.listed:
        value = [entry_value(change, listed=True)]
    else:
        value = {change.name: change.entry}

    for key in reversed(keys):
        value = {key: value}
    return value


def key_path(keys: Sequence[str]) -> str:
    """Return the notation for these keys in messages."""
    return ".".join(keys) or "the file"


def changed(content: JSON, change: EntryChange) -> JSON:
    """Return the content of the file after the change, as every program must read it."""
    return _changed(content, change.keys, change)


def _changed(content: JSON, keys: Sequence[str], change: EntryChange) -> JSON:
    if keys:
        whole = object_or_empty(content)
        below = whole.get(keys[0])
        if below is None and change.entry is None:
            return content
        if below is None:
            return {**whole, keys[0]: nested(keys[1:], change)}
        return {**whole, keys[0]: _changed(below, keys[1:], change)}

    if isinstance(content, list):
        return _changed_list(content, change)

    others = object_or_empty(content)
    if change.entry is None:
        return {name: value for name, value in others.items() if name != change.name}
    return {**others, change.name: change.entry}


def _changed_list(items: list[JSON], change: EntryChange) -> list[JSON]:
    places = [
        number
        for number, item in enumerate(items)
        if isinstance(item, dict) and item.get("name") == change.name
    ]
    if change.entry is None:
        return [item for number, item in enumerate(items) if number not in places]

    value = entry_value(change, listed=True)
    if not places:
        return [*items, value]
    return [value if number == places[-1] else item for number, item in enumerate(items)]
