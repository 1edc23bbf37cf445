"""Edit JSON text, which can have comments and trailing commas.

Comments are replaced with the same number of blanks, so that positions match the original text. The
standard library's decoder then reports where each value ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, cast

from ideabridge.server.hosts.editing.brackets import (
    Bracketed,
    Layout,
    Render,
    TextItem,
    newline_of,
    with_item,
    with_value,
    without_item,
)
from ideabridge.server.hosts.editing.change import (
    EntryChange,
    UneditableError,
    entry_value,
    key_path,
    nested,
)
from ideabridge.server.hosts.salvage import refuse_constant
from ideabridge.tools.documents import blank_comments
from ideabridge.tools.encoding import JSON, JSONObject

_SPACE: Final = re.compile(r"[ \t\r\n]*")


def parse_json(text: str) -> JSON:
    """Parse JSON text. A text that contains only whitespace and comments is an empty object.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the value is nested too deeply.
    """
    try:
        return _load(text)
    except ValueError:
        plain = blank_comments(text)
        return {} if not plain.strip() else _load(plain)


def _load(text: str) -> JSON:
    return cast("JSON", json.loads(text, parse_constant=refuse_constant))


_DECODER: Final = json.JSONDecoder(parse_constant=refuse_constant)


def put_json(text: str, change: EntryChange) -> str:
    """Return the text with the change applied. `parse_json` must accept the text.

    Raises:
        UneditableError: a value on the path to the entry is not an object.
    """
    plain = _plain(text)
    start = _skip(plain, 0)
    if start == len(plain):
        return _with_root(text, nested(change.keys, change))

    inside = _scan(plain, start)
    for depth, key in enumerate(change.keys):
        item = inside.find(key)
        rest = change.keys[depth + 1 :]
        if item is None:
            return with_item(text, inside, _member(key, nested(rest, change)))
        if plain[item.value_start : item.end] == "null":
            return with_value(text, inside, item, _value(nested(rest, change)))

        _check(plain, item, change.keys[: depth + 1], allows_list=not rest)
        inside = _scan(plain, item.value_start)

    is_list = plain[inside.start] == "["
    value = entry_value(change, listed=is_list)
    item = inside.find(change.name)
    if item is not None:
        return with_value(text, inside, item, _value(value))
    render = _value(value) if is_list else _member(change.name, value)
    return with_item(text, inside, render)


def remove_json(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text without the items named `name`, or the same text if there are none."""
    while (span := _find(text, keys, name)) is not None:
        text = without_item(text, *span)

    return text


def _find(text: str, keys: Sequence[str], name: str) -> tuple[Bracketed, TextItem] | None:
    plain = _plain(text)
    start = _skip(plain, 0)
    if start == len(plain):
        return None

    inside = _scan(plain, start)
    for key in keys:
        item = inside.find(key)
        if item is None or plain[item.value_start] not in "{[":
            return None
        inside = _scan(plain, item.value_start)

    item = inside.find(name)
    return None if item is None else (inside, item)


def _plain(text: str) -> str:
    try:
        _load(text)
    except ValueError:
        return blank_comments(text)
    return text


def _check(plain: str, item: TextItem, keys: Sequence[str], *, allows_list: bool) -> None:
    opening = plain[item.value_start]
    if opening == "{" or (opening == "[" and allows_list):
        return
    actual = "a list" if opening == "[" else plain[item.value_start : item.end][:40]
    raise UneditableError(f"{key_path(keys)} is {actual}; expected an object")


def _with_root(text: str, value: JSON) -> str:
    newline = newline_of(text)
    root = _value(value)(Layout("", "  ", newline, compact=False))
    between = "" if not text or text.endswith(("\n", "\r")) else newline
    return f"{text}{between}{root}{newline}"


def _scan(plain: str, start: int) -> Bracketed:
    """Return the object or list that begins at `start`, with its items."""
    is_object = plain[start] == "{"
    closing = "}" if is_object else "]"
    items: list[TextItem] = []
    place = _skip(plain, start + 1)
    while plain[place] != closing:
        item_start = place
        name: str | None = None
        if is_object:
            name, place = _DECODER.raw_decode(plain, place)
            place = _skip(plain, _skip(plain, place) + 1)

        value_start = place
        value, place = cast("tuple[JSON, int]", _DECODER.raw_decode(plain, place))
        if not is_object and isinstance(value, dict):
            named = value.get("name")
            name = named if isinstance(named, str) else None

        items.append(TextItem(name, item_start, value_start, place))
        place = _skip(plain, place)
        if plain[place] == ",":
            place = _skip(plain, place + 1)

    return Bracketed(start, place + 1, tuple(items))


def _skip(plain: str, place: int) -> int:
    space = _SPACE.match(plain, place)
    return space.end() if space else place


def _member(key: str, value: JSON) -> Render:
    write_value = _value(value)

    def write(layout: Layout) -> str:
        colon = ":" if layout.compact else ": "
        return f"{_dump(key, layout)}{colon}{write_value(layout)}"

    return write


def _value(value: JSON) -> Render:
    def write(layout: Layout) -> str:
        if layout.indent is None:
            return _dump(value, layout)
        lines = _dump(value, layout).split("\n")
        return f"{layout.newline}{layout.indent}".join(lines)

    return write


def _dump(value: JSON | JSONObject, layout: Layout) -> str:
    indent = None if layout.indent is None else layout.unit
    separators = (",", ":") if layout.compact and indent is None else None
    text = json.dumps(value, indent=indent, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Write half of a surrogate pair as an escape, which is ASCII, because UTF-8 cannot
        # represent it.
        text = json.dumps(value, indent=indent, separators=separators)
    return text
