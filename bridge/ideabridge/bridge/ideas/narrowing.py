"""Narrowing: whether values that satisfied one JSON Schema may fail another.

No proof, and none is possible for all of JSON Schema: what is looked at is what tools' schemas are made of. A keyword
that is looked at nowhere here counts as narrower where it is new or other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, encode_text

_AT_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_AT_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
_WORDS: Final = (
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
)
_SEEN: Final = ("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf")
_ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


def narrower(old: JSON, new: JSON, path: str = "") -> list[str]:
    """Why a value that satisfied `old` may fail `new`, a line for each with its place; []: none was found."""
    return list(_narrower(old, new, path))


def wider(old: JSON, new: JSON, path: str = "") -> list[str]:
    """Why a value that satisfies `new` may be none that `old` promised; []: none was found. What is merely added to
    an object is no surprise to who reads the rest.
    """
    return list(_wider(old, new, path))


def _where(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _types(schema: JSONObject) -> frozenset[str]:
    said = schema.get("type")
    if isinstance(said, str):
        names = {said}
    elif isinstance(said, list):
        names = {str(one) for one in said}
    elif "const" in schema:
        names = {_type_of(schema["const"])}
    elif isinstance(schema.get("enum"), list):
        names = {_type_of(one) for one in _list(schema.get("enum"))}
    else:
        return _ALL
    return frozenset(names | {"integer"}) if "number" in names else frozenset(names)


def _type_of(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    return {str: "string", list: "array", dict: "object"}[type(value)]


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _object(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


def _values(schema: JSONObject) -> list[str] | None:
    """The only values there may be, as text; None: any."""
    if "const" in schema:
        return [encode_text(schema["const"])]
    listed = schema.get("enum")
    return [encode_text(one) for one in listed] if isinstance(listed, list) else None


def _narrower(old: JSON, new: JSON, path: str) -> Iterator[str]:
    if old == new or new is True or new == {}:
        return
    if new is False:
        yield _where(path, "nothing is taken any more")
        return
    before, after = _object(old), _object(new)
    lost = _types(before) - _types(after)
    if lost:
        yield _where(path, f"{' and '.join(sorted(lost))} is not taken any more" if len(lost) < 5 else _only(after))
    values, allowed = _values(before), _values(after)
    if allowed is not None and (values is None or set(values) - set(allowed)):
        gone = "only" if values is None else f"{', '.join(sorted(set(values) - set(allowed)))[:80]} is gone; only"
        yield _where(path, f"{gone} {', '.join(allowed)[:80]} is taken")
    for name in (*_AT_LEAST, *_AT_MOST):
        one, other = before.get(name), after.get(name)
        if not isinstance(other, int | float):
            continue
        if not isinstance(one, int | float):
            yield _where(path, f"{name} is {other}")
        elif other > one if name in _AT_LEAST else other < one:
            yield _where(path, f"{name} went from {one} to {other}")
    for name in [key for key in after if key not in before or before[key] != after[key]]:
        if name not in (*_WORDS, *_SEEN, *_AT_LEAST, *_AT_MOST):
            yield _where(path, f"{name} is {'other' if name in before else 'new'}")
    if "anyOf" in after and before.get("anyOf") != after["anyOf"]:
        known = [encode_text(one) for one in _list(after["anyOf"])]
        kept = _list(before.get("anyOf")) or [before]
        if any(encode_text(one) not in known for one in kept):
            yield _where(path, "fewer alternatives are taken")
    yield from _narrower_object(before, after, path)
    if "items" in after:
        yield from _narrower(before.get("items", True), after["items"], _at(path, "items"))


def _only(schema: JSONObject) -> str:
    return f"only {' or '.join(sorted(_types(schema)))} is taken"


def _narrower_object(old: JSONObject, new: JSONObject, path: str) -> Iterator[str]:
    before, after = _object(old.get("properties")), _object(new.get("properties"))
    for name in _list(new.get("required")):
        if name not in _list(old.get("required")):
            yield _where(_at(path, str(name)), "is required now")
    closed = new.get("additionalProperties") is False
    for name, schema in before.items():
        if name in after:
            yield from _narrower(schema, after[name], _at(path, name))
        elif closed:
            yield _where(_at(path, name), "is not taken any more")
    if closed and old.get("additionalProperties") is not False and ("properties" in old or "type" in old):
        yield _where(path, "other properties are not taken any more")


def _wider(old: JSON, new: JSON, path: str) -> Iterator[str]:
    if old == new or old is True or old == {}:
        return
    before, after = _object(old), _object(new)
    more = _types(after) - _types(before)
    if more:
        said = _types(before)
        yield _where(path, f"may be {' or '.join(sorted(more))} now, was {' or '.join(sorted(said))}")
        return
    values, allowed = _values(after), _values(before)
    if allowed is not None and (values is None or set(values) - set(allowed)):
        yield _where(path, "other values than before may come")
    here, there = _object(before.get("properties")), _object(after.get("properties"))
    for name, schema in here.items():
        if name not in there:
            yield _where(_at(path, name), "is not told any more")
        else:
            yield from _wider(schema, there[name], _at(path, name))
            if name in _list(before.get("required")) and name not in _list(after.get("required")):
                yield _where(_at(path, name), "may be missing now")
    if "items" in before:
        yield from _wider(before["items"], after.get("items", True), _at(path, "items"))
    if "anyOf" in before and before["anyOf"] != after.get("anyOf"):
        known = [encode_text(one) for one in _list(before["anyOf"])]
        if any(encode_text(one) not in known for one in (_list(after.get("anyOf")) or [after])):
            yield _where(path, "other alternatives than before may come")
