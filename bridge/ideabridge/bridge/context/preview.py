"""Shorten values for minds and hosts, with references to the rest, so that a mind can write
`†state.log` instead of the log.
"""

from __future__ import annotations

import json
from itertools import islice
from json.encoder import encode_basestring
from typing import Final, cast

from ideabridge.bridge.context.payloads import without_payload
from ideabridge.bridge.context.references import Path, format_reference
from ideabridge.tools.encoding import JSON, JSONObject, encode

FULL_BYTES: Final = 2048
"""The maximum size, in bytes of JSON, of a value that is shown to a mind in full."""

MAX_DESCRIPTION: Final = 2048
"""The maximum size, in bytes, of the description of a tool or an idea. A description costs tokens
in every host and model that sees it."""

_TEXT: Final = 240
_MEMBERS: Final = 40
_KEY: Final = 100
_BARE: Final = 50
_PREVIEW: Final = 1024
_REFERENCE: Final = 1024
_ERROR: Final = 2048
"""The limit that `shorten_literal` gets for an error. A message of up to half as many characters is
shown in full.
"""


_LINES: Final = json.JSONEncoder(ensure_ascii=False)


def line_of(value: JSON) -> str:
    """Return the JSON of a value for minds: on one line, with spaces after commas and colons."""
    # Write strings and numbers without the encoder, because it is slow to start and a state can
    # contain a great many of them.
    kind = type(value)
    if kind is str:
        return encode_basestring(cast("str", value))
    return str(value) if kind is int else _LINES.encode(value)


def _type(value: JSON) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return f"array of {len(value)}"
    if isinstance(value, dict):
        return f"object of {len(value)}"
    return type(value).__name__


class _Room:
    """The number of characters that can still be shown: in total, and from any single string."""

    __slots__ = ("left", "text")

    def __init__(self, left: int, text: int = _TEXT) -> None:
        self.left = left
        self.text = text

    def take(self, text: str, most: int) -> str:
        """Return the longest prefix of the string that fits, and subtract its length from the
        room.
        """
        most = max(min(most, self.left), 8)
        beginning = text if len(text) <= most else f"{text[:most]}..."
        self.left -= len(beginning)
        return beginning


def _begin(value: JSON, depth: int, room: _Room) -> JSON:
    """Return the beginning of a large value."""
    if isinstance(value, str):
        return room.take(value, room.text)
    if isinstance(value, list | dict) and (not depth or room.left <= 0):
        return _type(value)
    if isinstance(value, list):
        return [_begin(item, depth - 1, room) for item in value[:2]]
    if isinstance(value, dict):
        members = without_payload(value)
        return {
            room.take(key, _KEY): _begin(item, depth - 1, room)
            for key, item in islice(members.items(), 8)
        }

    return _scalar(value)


def _scalar(value: JSON) -> JSON:
    # Only integers need to be replaced, because they are the only scalars of unlimited size.
    large = isinstance(value, int) and value.bit_length() > 400
    if large and isinstance(value, int):
        return f"an integer of {value.bit_length():,} bits"
    return value


def reference_to(
    value: JSON,
    path: Path,
    instance: str | None = None,
    *,
    size: int | None = None,
    text: int = _TEXT,
) -> JSONObject:
    """Return `{"reference", "type", "bytes", "preview"}` for a value at a full path (kind first),
    in about 2 KB at most.

    If the path is too long, `reference` contains only the beginning of the path.

    Args:
        value: the value to refer to.
        path: the full path of the value.
        instance: the instance in the reference.
        size: the size of the value in bytes of JSON, if known.
        text: the maximum number of characters that the preview shows of each string.
    """
    reference = format_reference(path, instance)
    if len(reference) > _REFERENCE:
        reference = f"{reference[:_TEXT]}... (a key is too long)"
    if size is None:
        size = len(encode(value))

    return {
        "reference": reference,
        "type": _type(value),
        "bytes": size,
        "preview": _begin(value, 2, _Room(_PREVIEW, text)),
    }


def shorten(
    value: JSON, path: Path, *, instance: str | None = None, small: int = FULL_BYTES
) -> JSON:
    """Return the value unchanged if it is small, and with its large parts replaced by references
    otherwise. The result is at most a few times as large as `small`.

    Args:
        value: any JSON value.
        path: the path to the value, beginning with the kind, for use in the references.
        instance: the instance in the references, for a reader outside the instance.
        small: the maximum size, in bytes of JSON, of a value that is shown in full.
    """
    return _shorten(value, path, instance, small, _Room(max(small * 2, 1024)))


def _shorten(value: JSON, path: Path, instance: str | None, small: int, room: _Room) -> JSON:
    size = len(encode(value))
    if size <= small and size <= max(room.left, 64):
        room.left -= size
        return value

    if isinstance(value, dict) and len(value) <= _MEMBERS and len(path) < 6:
        # The key and the reference of each member take up at least this much room. If there is less
        # room, the whole value is replaced with one reference.
        bare = len(format_reference(path, instance)) + _BARE
        needed = sum(bare + 2 * len(encode(key)) for key in value)
        if needed <= room.left and max(map(len, value), default=0) <= _KEY:
            room.left -= needed
            return {
                key: _shorten(item, (*path, key), instance, small // 2, room)
                for key, item in value.items()
            }

    if room.left <= 0:
        # Leave out the preview, because the previews of a great many parts would be as large as the
        # value itself.
        return {"reference": format_reference(path, instance), "type": _type(value)}

    reference = reference_to(value, path, instance, size=size)
    room.left -= len(encode(reference))
    return reference


def shorten_literal(value: JSON, *, limit: int = 1024) -> JSON:
    """Return a call or an error for a mind, in about `8 * limit` characters at most.

    Long strings are truncated, because there are no references to replace them.
    """
    return _shorten_literal(value, limit, _Room(limit * 6))


def shorten_error(value: JSON) -> JSON:
    """Return the value of an error message, usually `{"call", "place", "error"}`, shortened for a
    mind.

    The limit is larger for the error than for the call, because the text of an error says what to
    do next, and a mind has no other way to read it.
    """
    if not isinstance(value, dict) or "error" not in value:
        return shorten_literal(value, limit=_ERROR)

    call: JSONObject = {key: part for key, part in value.items() if key != "error"}
    shortened = shorten_literal(call)
    assert isinstance(shortened, dict)
    return {**shortened, "error": shorten_literal(value["error"], limit=_ERROR)}


def _shorten_literal(value: JSON, limit: int, room: _Room) -> JSON:
    if isinstance(value, str):
        most = min(limit, max(room.left, 16))
        room.left -= min(len(value), most)
        if len(value) <= most:
            return value
        return f"{value[: most // 2]}... ({len(value):,} characters)"

    if isinstance(value, list | dict) and value and room.left <= 0:
        return _type(value)
    if isinstance(value, list):
        items: list[JSON] = []
        for item in value[:20]:
            if room.left <= 0:
                break
            room.left -= 4
            items.append(_shorten_literal(item, limit // 2, room))

        if len(value) > len(items):
            items.append(f"... ({len(value):,} items)")
        return items

    if isinstance(value, dict):
        members: JSONObject = {}
        for key, item in islice(value.items(), _MEMBERS):
            if room.left <= 0:
                members["..."] = _type(value)
                break
            room.left -= 4
            members[room.take(key, _KEY)] = _shorten_literal(item, limit // 2, room)

        return members

    return _scalar(value)


def cut_description(text: str) -> str:
    """Return the description, truncated to `MAX_DESCRIPTION` bytes. If it is truncated, a note at
    the end says so.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_DESCRIPTION:
        return data.decode()
    note = f"… (cut: the description has {len(data):,} bytes)"
    return data[: MAX_DESCRIPTION - len(note.encode())].decode("utf-8", "ignore") + note
