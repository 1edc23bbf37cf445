"""Previews: what a mind or a host sees of a value, so that it writes `†state.log` and not the log."""

from __future__ import annotations

from itertools import islice
from typing import Final

from ideabridge.bridge.context.references import Path, format_reference
from ideabridge.tools.encoding import JSON, JSONObject, encode

SMALL: Final = 2048
"""Bytes of JSON up to which a value is shown whole to a mind."""

MAX_DESCRIPTION: Final = 2048
"""Bytes of the description of a tool or an idea. Every host and every model that sees it pays for it."""

_TEXT: Final = 240
_MEMBERS: Final = 40
_KEY: Final = 100
_BARE: Final = 50
_PREVIEW: Final = 1024
_REFERENCE: Final = 1024


def _type(value: JSON) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return f"array of {len(value)}"
    if isinstance(value, dict):
        return f"object of {len(value)}"
    return type(value).__name__


class _Room:
    """How many characters may still be shown."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, text: str, most: int) -> str:
        """The text, or its beginning."""
        most = max(min(most, self.left), 8)
        shown = text if len(text) <= most else f"{text[:most]}..."
        self.left -= len(shown)
        return shown


def _begin(value: JSON, depth: int, room: _Room) -> JSON:
    """The beginning of a large value."""
    if isinstance(value, str):
        return room.take(value, _TEXT)
    if isinstance(value, list | dict) and (not depth or room.left <= 0):
        return _type(value)
    if isinstance(value, list):
        return [_begin(item, depth - 1, room) for item in value[:2]]
    if isinstance(value, dict):
        return {room.take(key, _KEY): _begin(item, depth - 1, room) for key, item in islice(value.items(), 8)}
    return _scalar(value)


def _scalar(value: JSON) -> JSON:
    # The one scalar without bound.
    large = isinstance(value, int) and value.bit_length() > 400
    return f"an integer of {value.bit_length():,} bits" if large and isinstance(value, int) else value


def reference_to(value: JSON, path: Path, instance: str | None = None) -> JSONObject:
    """`{"reference", "type", "bytes", "preview"}` of a value at a full path (kind first); about 2 KB at most.

    A path too long to be written is told by its beginning, which is no reference any more.
    """
    reference = format_reference(path, instance)
    return {
        "reference": reference if len(reference) <= _REFERENCE else f"{reference[:_TEXT]}... (a key is too long)",
        "type": _type(value),
        "bytes": len(encode(value)),
        "preview": _begin(value, 2, _Room(_PREVIEW)),
    }


def shorten(value: JSON, path: Path, *, instance: str | None = None, small: int = SMALL) -> JSON:
    """`value` whole where it is small; else its parts, the large ones as references.

    Whatever its shape, what is given is a few times `small` at most.

    Args:
        value: any JSON value.
        path: where it stands, kind first; the references shown point there.
        instance: named in the references where it must be (a reader outside the instance).
        small: bytes of JSON up to which a value stays whole.
    """
    return _shorten(value, path, instance, small, _Room(max(small * 2, 1024)))


def _shorten(value: JSON, path: Path, instance: str | None, small: int, room: _Room) -> JSON:
    size = len(encode(value))
    if size <= small and size <= max(room.left, 64):
        room.left -= size
        return value
    if isinstance(value, dict) and len(value) <= _MEMBERS and len(path) < 6:
        # What it takes to name every member and where it is; a part that cannot be opened so is told as a whole.
        bare = len(format_reference(path, instance)) + _BARE
        needed = sum(bare + 2 * len(encode(key)) for key in value)
        if needed <= room.left and max(map(len, value), default=0) <= _KEY:
            room.left -= needed
            return {key: _shorten(item, (*path, key), instance, small // 2, room) for key, item in value.items()}
    if room.left <= 0:
        # A preview of each of very many parts would be as large as the whole.
        return {"reference": format_reference(path, instance), "type": _type(value)}
    told = reference_to(value, path, instance)
    room.left -= len(encode(told))
    return told


def shorten_literal(value: JSON, *, limit: int = 1024) -> JSON:
    """A call or an error as a mind sees it again: long texts cut, since nothing can refer to them.

    Whatever its shape, what is given is about `8 * limit` characters at most.
    """
    return _shorten_literal(value, limit, _Room(limit * 6))


def _shorten_literal(value: JSON, limit: int, room: _Room) -> JSON:
    if isinstance(value, str):
        most = min(limit, max(room.left, 16))
        room.left -= min(len(value), most)
        return value if len(value) <= most else f"{value[: most // 2]}... ({len(value):,} characters)"
    if isinstance(value, list | dict) and value and room.left <= 0:
        return _type(value)
    if isinstance(value, list):
        shown: list[JSON] = []
        for item in value[:20]:
            if room.left <= 0:
                break
            room.left -= 4
            shown.append(_shorten_literal(item, limit // 2, room))
        if len(value) > len(shown):
            shown.append(f"... ({len(value):,} items)")
        return shown
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
    """A description that has at most `MAX_DESCRIPTION` bytes; where it was cut, its end says so."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_DESCRIPTION:
        return data.decode()
    note = f"… (cut: the description has {len(data):,} bytes)"
    return data[: MAX_DESCRIPTION - len(note.encode())].decode("utf-8", "ignore") + note
