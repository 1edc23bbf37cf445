"""Narrowing: whether values that satisfied one JSON Schema may fail another.

No proof, and none is possible for all of JSON Schema: what is looked at is what tools' schemas are made of. A keyword
that is looked at nowhere here counts as narrower where it is new or other.

An object that says nothing of other properties takes any, but a property that is declared later is no change for
callers: they give what they were told of. Where it says that others are taken, or what they are, it is held to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.schema import inline_refs

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
_MOST: Final = 20_000
"""Pairs of schemas that are looked at in one comparison."""

_ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


def narrower(old: JSON, new: JSON, path: str = "") -> list[str]:
    """Why a value that satisfied `old` may fail `new`, a line for each with its place; []: none was found."""
    return list(dict.fromkeys(_Comparison().narrower(_plain(old), _plain(new), path)))


def wider(old: JSON, new: JSON, path: str = "") -> list[str]:
    """Why a value that satisfies `new` may be none that `old` promised; []: none was found. What is merely added to
    an object is no surprise to who reads the rest.
    """
    return list(dict.fromkeys(_Comparison().wider(_plain(old), _plain(new), path)))


def _plain(schema: JSON) -> JSON:
    """The schema without references: what they name is compared, not how it is called."""
    return inline_refs(schema) if isinstance(schema, dict) else schema


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
    elif isinstance(schema.get("anyOf"), list):
        ways = [_types(_object(one)) for one in _list(schema.get("anyOf")) if one is not False]
        return _ALL if any(one is True for one in _list(schema.get("anyOf"))) else frozenset[str]().union(*ways)
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


def _same(one: JSON, other: JSON) -> bool:
    # `1 == True` in Python, and not in JSON.
    return one == other and encode_text(one) == encode_text(other)


def _is_one_of(schema: JSON, whole: JSON) -> bool:
    """Whether `whole` is nothing but alternatives, and the schema is one of them."""
    if not isinstance(whole, dict) or whole.keys() - {*_WORDS, "anyOf"}:
        return False
    return any(_same(schema, one) for one in _list(whole.get("anyOf")))


def _values(schema: JSONObject) -> list[str] | None:
    """The only values there may be, as text; None: any."""
    if "const" in schema:
        return [encode_text(schema["const"])]
    listed = schema.get("enum")
    return [encode_text(one) for one in listed] if isinstance(listed, list) else None


def _bounds(old: JSONObject, new: JSONObject) -> Iterator[tuple[str, int | float | None, int | float]]:
    """(keyword, bound that was, bound that is) where a bound is tighter than before, or new."""
    for name in (*_AT_LEAST, *_AT_MOST):
        one, other = old.get(name), new.get(name)
        if not isinstance(other, int | float):
            continue
        if not isinstance(one, int | float):
            yield name, None, other
        elif other > one if name in _AT_LEAST else other < one:
            yield name, one, other


def _others(old: JSONObject, new: JSONObject) -> list[str]:
    """Keywords of `new` that are looked at nowhere here, and are new or other."""
    changed = [key for key in new if key not in old or not _same(old[key], new[key])]
    return [name for name in changed if name not in (*_WORDS, *_SEEN, *_AT_LEAST, *_AT_MOST)]


def _ways(schema: JSONObject) -> list[JSON]:
    """Each alternative of a schema with what stands beside it: admits all that the schema admits by it."""
    ways = schema.get("anyOf")
    if not isinstance(ways, list):
        return [schema]
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    return [_both(beside, _object(one)) for one in ways if one is not False]


def _by_type(schema: JSONObject) -> list[JSON]:
    """The schema once for each type it says: alternatives may say one each."""
    said = schema.get("type")
    return [{**schema, "type": one} for one in said] if isinstance(said, list) else [schema]


def _both(one: JSONObject, other: JSONObject) -> JSONObject:
    """A schema that admits at least what both admit: where they say other things of one place, the second's."""
    found: JSONObject = {**one, **other}
    for name in ("properties", "patternProperties"):
        if name in one and name in other:
            found[name] = {**_object(one[name]), **_object(other[name])}
    if "required" in one and "required" in other:
        found["required"] = list[JSON](dict.fromkeys((*_list(one["required"]), *_list(other["required"]))))
    for names in (("items", "prefixItems"), ("if", "then", "else")):
        if any(name in other for name in names):
            found = {key: value for key, value in found.items() if key not in names or key in other}
    return found


def _is_empty(found: Iterator[str]) -> bool:
    return next(found, None) is None


def _only(schema: JSONObject) -> str:
    return f"only {' or '.join(sorted(_types(schema)))} is taken"


def _rest(schema: JSONObject) -> JSON:
    """What properties may be that no keyword names."""
    return schema.get("additionalProperties", True)


class _Comparison:
    """One comparison of two schemas: alternatives within alternatives are many, so it is bounded."""

    def __init__(self) -> None:
        self._left = _MOST

    def narrower(self, old: JSON, new: JSON, path: str) -> Iterator[str]:
        if _same(old, new) or old is False or new is True or new == {} or _is_one_of(old, new):
            return
        if new is False:
            yield _where(path, "nothing is taken any more")
            return
        self._left -= 1
        if self._left < 0:
            yield _where(path, "too large to be compared")
            return
        before, after = _object(old), _object(new)
        lost = _types(before) - _types(after)
        if lost:
            yield _where(path, f"{' and '.join(sorted(lost))} is not taken any more" if len(lost) < 5 else _only(after))
        if isinstance(before.get("anyOf"), list) and not _same(before["anyOf"], after.get("anyOf")):
            if not lost:
                for way in _ways(before):
                    yield from self.narrower(way, after, path)
            return
        values, allowed = _values(before), _values(after)
        if allowed is not None and (values is None or set(values) - set(allowed)):
            gone = "only" if values is None else f"{', '.join(sorted(set(values) - set(allowed)))[:80]} is gone; only"
            yield _where(path, f"{gone} {', '.join(allowed)[:80]} is taken")
        for name, one, other in _bounds(before, after):
            yield _where(path, f"{name} is {other}" if one is None else f"{name} went from {one} to {other}")
        for name in _others(before, after):
            yield _where(path, f"{name} is {'other' if name in before else 'new'}")
        if isinstance(after.get("anyOf"), list) and not lost and not _same(before.get("anyOf"), after["anyOf"]):
            ways = [one for one in _list(after["anyOf"]) if one is not False]
            if not all(any(_is_empty(self.narrower(part, one, "")) for one in ways) for part in _by_type(before)):
                yield _where(path, "no alternative takes all that was taken")
        yield from self._narrower_object(before, after, path)
        # What stood in a place of its own is an item like any other now.
        if "prefixItems" in before and "prefixItems" not in after and after.get("items", True) is not True:
            yield _where(path, "prefixItems is gone")
        if "items" in after:
            yield from self.narrower(before.get("items", True), after["items"], _at(path, "items"))

    def _narrower_object(self, old: JSONObject, new: JSONObject, path: str) -> Iterator[str]:
        before, after = _object(old.get("properties")), _object(new.get("properties"))
        for name in _list(new.get("required")):
            if name not in _list(old.get("required")):
                yield _where(_at(path, str(name)), "is required now")
        for name, schema in before.items():
            if name in after:
                yield from self.narrower(schema, after[name], _at(path, name))
            elif _rest(new) is False:
                if schema is not False:
                    yield _where(_at(path, name), "is not taken any more")
            else:
                yield from self.narrower(schema, _rest(new), _at(path, name))
        if "additionalProperties" in old:
            for name, schema in after.items():
                if name not in before:
                    yield from self.narrower(_rest(old), schema, _at(path, name))
        if _rest(new) is False:
            if _rest(old) is not False and "object" in _types(old):
                yield _where(path, "other properties are not taken any more")
            elif "patternProperties" in old and "patternProperties" not in new:
                yield _where(path, "patternProperties is gone")
        elif "patternProperties" in old and "patternProperties" not in new and _rest(new) is not True:
            yield _where(path, "patternProperties is gone")
        else:
            yield from self.narrower(_rest(old), _rest(new), _at(path, "*"))

    def wider(self, old: JSON, new: JSON, path: str) -> Iterator[str]:
        if _same(old, new) or old is True or old == {} or new is False or _is_one_of(new, old):
            return
        if old is False:
            yield _where(path, "may come now")
            return
        self._left -= 1
        if self._left < 0:
            yield _where(path, "too large to be compared")
            return
        before, after = _object(old), _object(new)
        more = _types(after) - _types(before)
        if more:
            said = _types(before)
            yield _where(path, f"may be {' or '.join(sorted(more))} now, was {' or '.join(sorted(said))}")
            return
        if isinstance(after.get("anyOf"), list) and not _same(before.get("anyOf"), after["anyOf"]):
            for way in _ways(after):
                yield from self.wider(before, way, path)
            return
        values, allowed = _values(after), _values(before)
        if allowed is not None and (values is None or set(values) - set(allowed)):
            yield _where(path, "other values than before may come")
        for name, one, other in _bounds(after, before):
            yield _where(path, f"{name} was {other}, is {'gone' if one is None else one}")
        for name in _others(after, before):
            yield _where(path, f"{name} is {'other' if name in after else 'gone'}")
        here, there = _object(before.get("properties")), _object(after.get("properties"))
        for name, schema in here.items():
            if name not in there:
                yield _where(_at(path, name), "is not told any more")
            else:
                yield from self.wider(schema, there[name], _at(path, name))
        for name in _list(before.get("required")):
            if name not in _list(after.get("required")) and (name in there or name not in here):
                yield _where(_at(path, str(name)), "may be missing now")
        if isinstance(_rest(before), dict):
            for name, schema in there.items():
                if name not in here:
                    yield from self.wider(_rest(before), schema, _at(path, name))
            if after.get("patternProperties", before.get("patternProperties")) != before.get("patternProperties"):
                yield _where(path, "patternProperties is other")
            yield from self.wider(_rest(before), _rest(after), _at(path, "*"))
        if "items" in before:
            if "prefixItems" in after and "prefixItems" not in before:
                yield _where(path, "prefixItems is new")
            yield from self.wider(before["items"], after.get("items", True), _at(path, "items"))
        if isinstance(before.get("anyOf"), list) and not _same(before["anyOf"], after.get("anyOf")):
            ways = [one for one in _list(before["anyOf"]) if one is not False]
            if not all(any(_is_empty(self.wider(one, part, "")) for one in ways) for part in _by_type(after)):
                yield _where(path, "other alternatives than before may come")
