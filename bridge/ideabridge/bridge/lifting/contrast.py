"""Describe the difference between two values on one line, for reports of checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ideabridge.bridge.context.references import dotted_key
from ideabridge.tools.encoding import JSON, encode_text
from ideabridge.tools.json_parts import parts_of


def short(value: JSON, limit: int = 60) -> str:
    """Format a value on one line."""
    text = encode_text(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def contrast(now: JSON, before: JSON, limit: int = 200) -> str:
    """Describe the difference between two values on one line: `NOW instead of BEFORE` if both are
    short, otherwise the first difference with its path.
    """
    if len(encode_text(now)) <= limit and len(encode_text(before)) <= limit:
        return f"{encode_text(now)} instead of {encode_text(before)}"

    keys: list[str] = []
    while True:
        now_members = _members(now)
        before_members = _members(before)
        where = f"at {_dotted(keys)}: " if keys else ""
        if now_members is None or before_members is None or type(now) is not type(before):
            return where + _of_scalars(now, before, limit)

        key = _first_difference(now_members, before_members)
        if key is None:
            break
        keys.append(key)
        now = now_members[key]
        before = before_members[key]

    if isinstance(now, list):
        return f"{where}{len(now_members)} items instead of {len(before_members)}"

    for key, value in before_members.items():
        if key not in now_members:
            return f"{_dotted([*keys, key])} is missing; it was {short(value, limit)}"

    for key, value in now_members.items():
        if key not in before_members:
            return f"{_dotted([*keys, key])} is new: {short(value, limit)}"

    order = f"{short([*now_members], limit)} instead of {short([*before_members], limit)}"
    return f"{where}the same members in another order: {order}"


def _first_difference(now: Mapping[str, JSON], before: Mapping[str, JSON]) -> str | None:
    """Return the first key under which both objects have different values, or None."""
    for key, value in before.items():
        if key in now and encode_text(now[key]) != encode_text(value):
            return key
    return None


def _of_scalars(now: JSON, before: JSON, limit: int) -> str:
    """Describe the difference between two values, unless both are lists or both are objects."""
    if not isinstance(now, str) or not isinstance(before, str):
        return f"{short(now, limit)} instead of {short(before, limit)}"

    start = 0
    while start < min(len(now), len(before)) and now[start] == before[start]:
        start += 1

    begin = max(0, start - 20)
    size = limit // 2
    windows = f"{_window(now, begin, size)} instead of {_window(before, begin, size)}"
    return f"from character {start + 1:,} on, {windows}"


def _members(value: JSON) -> Mapping[str, JSON] | None:
    if not isinstance(value, dict | list):
        return None
    return {str(key): part for key, part in parts_of(value)}


def _window(text: str, begin: int, size: int) -> str:
    """Return a part of a string, with an ellipsis wherever it was cut."""
    before = "..." if begin else ""
    after = "..." if len(text) > begin + size else ""
    return encode_text(f"{before}{text[begin : begin + size]}{after}")


def _dotted(keys: Iterable[str]) -> str:
    return ".".join(map(dotted_key, keys))
