"""Values: JSON compared as lifting does, and found again where they came from (DESIGN 4.11)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

from ideabridge.bridge.context.document import Missing, parsed_text
from ideabridge.bridge.context.reference import Path
from ideabridge.tools.encoding import JSON

_NODES = 100_000
"""How many values of one result are looked through."""

_DEPTH = 40


def same(left: JSON, right: JSON) -> bool:
    """Whether two values are equal: numbers by what they are (5 and 5.0), members in any order, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return type(left) is type(right) and left == right


def tells(value: JSON) -> bool:
    """Whether a value can tell where it came from: not null, true, false, and nothing empty."""
    return not (value is None or isinstance(value, bool) or value in ("", [], {}))


def digest(value: JSON) -> str:
    """A text that is equal for values that are the same, and for no others."""
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, bool) or value is None:
        return f"c{value}"
    if isinstance(value, int | float):
        whole = isinstance(value, float) and value.is_integer()
        return f"n{int(value) if whole else value!r}"
    if isinstance(value, list):
        return _hash("l", (digest(item) for item in value))
    return _hash("d", (f"{len(key)}:{key}{digest(value[key])}" for key in sorted(value)))


def _hash(kind: str, parts: Iterable[str]) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        hashed.update(f"{len(raw)}:".encode() + raw)
    return kind + hashed.hexdigest()


def walk(document: JSON) -> Iterator[tuple[Path, JSON]]:
    """Every value in a document, at most 100,000, with its path as references read it; JSON in text is gone into."""
    return islice(_walk(document, ()), _NODES)


def _walk(value: JSON, path: Path) -> Iterator[tuple[Path, JSON]]:
    yield path, value
    if len(path) >= _DEPTH:
        return
    inner: JSON | Missing = parsed_text(value) if isinstance(value, str) else value
    if isinstance(inner, dict):
        for key, item in inner.items():
            yield from _walk(item, (*path, key))
    elif isinstance(inner, list):
        for number, item in enumerate(inner):
            yield from _walk(item, (*path, str(number)))


def standing(document: JSON, found: dict[str, list[Path]]) -> bool:
    """Note where in a document each value stands that tells where it came from, by its digest.

    Returns:
        Whether all of it was looked at.
    """
    return _note(document, (), found, 0)[1] <= _NODES


def _note(value: JSON, path: Path, found: dict[str, list[Path]], count: int) -> tuple[str, int]:
    """(its digest, the values noted so far): digests are made from the bottom up, each once."""
    count += 1
    if count > _NODES:
        # Nothing that holds this is noted either.
        return "", count
    if len(path) >= _DEPTH:
        own = digest(value)
    elif isinstance(value, dict):
        parts: list[str] = []
        for key in sorted(value):
            part, count = _note(value[key], (*path, key), found, count)
            parts.append(f"{len(key)}:{key}{part}")
        own = _hash("d", parts)
    elif isinstance(value, list):
        parts = []
        for number, item in enumerate(value):
            part, count = _note(item, (*path, str(number)), found, count)
            parts.append(part)
        own = _hash("l", parts)
    else:
        own = digest(value)
        inner: JSON | Missing = parsed_text(value) if isinstance(value, str) else None
        if isinstance(inner, dict):
            for key, item in inner.items():
                count = _note(item, (*path, key), found, count)[1]
        elif isinstance(inner, list):
            for number, item in enumerate(inner):
                count = _note(item, (*path, str(number)), found, count)[1]
    if count <= _NODES and tells(value):
        found.setdefault(own, []).append(path)
    return own, count
