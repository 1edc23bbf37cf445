"""Write out local `$ref`s, for hosts that break on them (DESIGN 1, 6)."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.keywords import DEFINITIONS, MANY, NAMED, ONE, REFERRING, children, resolve

MAX_INLINED: Final = 20_000
"""How many schemas an inlined schema may hold; beyond it references become permissive schemas."""

_MAX_NESTED: Final = 64
_RECURSION: Final = "as above (recursive)"
_NAMES: Final = frozenset({"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})
_ANNOTATIONS: Final = frozenset({"$comment", "default", "deprecated", "description", "examples", "readOnly", "title"})


def inline_refs(schema: JSONObject) -> JSONObject:
    """A schema without references that admits whatever `schema` admits.

    A local reference (`#/a/b`, or `#name` of an `$anchor`) is replaced by what it names, keywords beside it kept;
    recursion is cut at its second turn by a schema that admits anything, and so is a reference that is not local, or
    dynamic. Definitions and the names of schemas are left out: nothing refers to them any more.

    Raises:
        LimitExceededError: the schema nests too deep.
    """
    if not _has_refs(schema):
        return schema
    inliner = _Inliner(schema)
    try:
        result = inliner.write(schema, (), 0)
    except RecursionError:
        raise LimitExceededError("the schema nests too deep to write its references out") from None
    assert isinstance(result, dict)
    return result


def _has_refs(schema: JSON) -> bool:
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if any(isinstance(item.get(word), str) for word in REFERRING) or item.keys() & DEFINITIONS:
                return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def _anchors(root: JSONObject) -> dict[str, JSONObject]:
    """The schemas that have a name of their own, by what refers to them; names that stand twice say nothing."""
    found: dict[str, JSONObject] = {}
    twice: set[str] = set()
    stack: list[JSON] = [root]
    while stack:
        item = stack.pop()
        if not isinstance(item, dict):
            continue
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = item.get(keyword)
            if isinstance(name, str):
                twice.update({f"#{name}"} & found.keys())
                found[f"#{name}"] = item
        stack.extend(child for _, child in children(item))
    return {name: item for name, item in found.items() if name not in twice}


class _Inliner:
    def __init__(self, root: JSONObject) -> None:
        self.root = root
        self.count = 0
        self.cuts = 0
        self.anchors = _anchors(root)
        # Within a schema that has an `$id` of its own, `#` is that schema.
        self.elsewhere = 0

    def write(self, schema: JSON, open_now: tuple[int, ...], depth: int) -> JSON:
        """A copy of `schema` with references replaced; `open_now` are the targets being written."""
        if not isinstance(schema, dict):
            return schema
        self.count += 1
        if depth > _MAX_NESTED * 3:
            raise LimitExceededError("the schema nests too deep to write its references out")
        elsewhere = isinstance(schema.get("$id"), str) and schema is not self.root
        self.elsewhere += elsewhere
        pointer = schema.get("$ref")
        target = self._target(pointer) if isinstance(pointer, str) else None
        if target is not None:
            written = self._replace(schema, target, open_now, depth)
        else:
            written = self._write_parts(schema, open_now, depth)
        self.elsewhere -= elsewhere
        return written

    def _target(self, pointer: str) -> JSONObject | bool | None:
        if self.elsewhere:
            return None
        return self.anchors.get(pointer) or resolve(self.root, pointer)

    def _write_parts(self, schema: JSONObject, open_now: tuple[int, ...], depth: int) -> JSONObject:
        result: JSONObject = {}
        cut: list[str] = []
        for keyword, value in schema.items():
            if keyword in DEFINITIONS or keyword in _NAMES:
                continue
            before = self.cuts
            if keyword in REFERRING and isinstance(value, str):
                self.cuts += 1
            elif keyword in NAMED and isinstance(value, dict):
                result[keyword] = {name: self.write(item, open_now, depth + 1) for name, item in value.items()}
            elif (keyword in MANY or keyword == "items") and isinstance(value, list):
                result[keyword] = [self.write(item, open_now, depth + 1) for item in value]
            elif keyword in ONE:
                result[keyword] = self.write(value, open_now, depth + 1)
            else:
                result[keyword] = value
            if self.cuts > before:
                cut.append(keyword)
        for keyword in cut:
            _loosen(result, keyword)
        return result

    def _replace(self, schema: JSONObject, target: JSONObject | bool, open_now: tuple[int, ...], depth: int) -> JSON:
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        written: JSON
        before = self.cuts
        if isinstance(target, dict) and (id(target) in open_now or self.count > MAX_INLINED):
            self.cuts += 1
            written = {"description": _RECURSION} if id(target) in open_now else {}
        elif isinstance(target, dict):
            written = self.write(target, (*open_now, id(target)), depth + 1)
        else:
            written = target
        if not beside.keys() - DEFINITIONS:
            return written
        cut = self.cuts > before
        rest = self._write_parts(beside, open_now, depth)
        if cut:
            _loosen(rest, "$ref")
        if isinstance(written, dict) and not rest.keys() - _ANNOTATIONS:
            # What stands beside a reference describes this use of it, so it wins over the definition's own words.
            return {**written, **rest}
        rest.setdefault("allOf", [])
        parts = rest["allOf"]
        rest["allOf"] = [*parts, written] if isinstance(parts, list) else [written]
        return rest


def _loosen(schema: JSONObject, keyword: str) -> None:
    """Take back what would refuse more, not less, because a part of `keyword` was cut and now admits anything."""
    schema.pop("unevaluatedProperties", None)
    schema.pop("unevaluatedItems", None)
    if keyword in ("not", "if"):
        del schema[keyword]
    elif keyword == "contains":
        schema["contains"] = True
        schema.pop("maxContains", None)
    elif keyword == "oneOf":
        branches = schema.pop("oneOf")
        parts = schema.get("allOf")
        schema["allOf"] = [*(parts if isinstance(parts, list) else []), {"anyOf": branches}]
