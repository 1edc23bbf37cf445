"""Previews: what a mind or a host sees of a value, so that it writes `†state.log` and not the log (DESIGN 4.1, 6)."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.context.reference import Path, format_reference
from ideabridge.tools.encoding import JSON, JSONObject, encode

SMALL: Final = 2048
"""Bytes of JSON up to which a value is shown whole to a mind."""

_TEXT: Final = 240
_MEMBERS: Final = 40


def _type(value: JSON) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return f"array of {len(value)}"
    if isinstance(value, dict):
        return f"object of {len(value)}"
    return type(value).__name__


def _begin(value: JSON, depth: int) -> JSON:
    """The beginning of a large value."""
    if isinstance(value, str):
        return value if len(value) <= _TEXT else value[:_TEXT] + "..."
    if isinstance(value, list):
        return [_begin(item, depth - 1) for item in value[:2]] if depth else f"array of {len(value)}"
    if isinstance(value, dict):
        if not depth:
            return f"object of {len(value)}"
        return {key: _begin(item, depth - 1) for key, item in list(value.items())[:8]}
    return value


def reference_to(value: JSON, path: Path, instance: str | None = None) -> JSONObject:
    """`{"reference", "type", "bytes", "preview"}` of a value at a full path (kind first)."""
    return {
        "reference": format_reference(path, instance),
        "type": _type(value),
        "bytes": len(encode(value)),
        "preview": _begin(value, 2),
    }


def shorten(value: JSON, path: Path, *, instance: str | None = None, small: int = SMALL) -> JSON:
    """`value` whole where it is small; else its parts, the large ones as references.

    Args:
        value: any JSON value.
        path: where it stands, kind first; the references shown point there.
        instance: named in the references where it must be (a reader outside the instance).
        small: bytes of JSON up to which a value stays whole.
    """
    if len(encode(value)) <= small:
        return value
    if isinstance(value, dict) and len(value) <= _MEMBERS and len(path) < 6:
        return {key: shorten(item, (*path, key), instance=instance, small=small // 2) for key, item in value.items()}
    return reference_to(value, path, instance)


def shorten_literal(value: JSON, *, limit: int = 1024) -> JSON:
    """A call or an error as a mind sees it again: long texts cut, since nothing can refer to them."""
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[: limit // 2]}... ({len(value):,} characters)"
    if isinstance(value, list):
        shown: list[JSON] = [shorten_literal(item, limit=limit // 2) for item in value[:20]]
        if len(value) > 20:
            shown.append(f"... ({len(value):,} items)")
        return shown
    if isinstance(value, dict):
        return {key: shorten_literal(item, limit=limit // 2) for key, item in list(value.items())[:_MEMBERS]}
    return value
