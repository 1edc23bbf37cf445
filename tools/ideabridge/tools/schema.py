"""Validator: a value against its JSON Schema, fast where it fits and explained where it does not (DESIGN 4.2, 9)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import islice
from typing import Final

import jsonschema_rs

from ideabridge.tools.encoding import JSON, JSONObject, content_hash, normalise
from ideabridge.tools.errors import InvalidJSONError, LimitExceededError, SchemaError, ValueMismatchError
from ideabridge.tools.explain import Problem, explain
from ideabridge.tools.inline import inline_refs
from ideabridge.tools.keywords import DEFINITIONS, REFERRING, check_size, children, resolve, show, show_path

__all__ = ["Problem", "Validator", "check_schema", "inline_refs"]

MAX_EXPANSION: Final = 5_000_000
"""How many schemas one value may be held against at worst: `$ref`s to `$ref`s can multiply without end."""

MAX_CHAIN: Final = 500
"""How many schemas may lead one to the next by nesting and references: validators walk them on the machine's stack."""

_EXPLAINED: Final = 5
_EXPLAINED_NODES: Final = 20_000
_SAMPLE: Final = 50
_CACHED: Final = 1024

_DRAFTS: Final[dict[str, type[jsonschema_rs.Validator]]] = {
    "json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
}

_compiled: OrderedDict[str, jsonschema_rs.Validator] = OrderedDict()
_lock = threading.Lock()


class Validator:
    """A JSON Schema ready to hold values against.

    2020-12 unless `$schema` names an older draft. Formats are annotations, not assertions. Nothing is fetched: a
    `$ref` must name a place in the schema itself or a published meta-schema. Patterns are matched in linear time or
    within a bound. The schema is compiled at the first use, and kept for every Validator of the same content.

    Args:
        schema: the schema; not copied, so not to be changed afterwards.
        what: what the values are, for error messages ("parameters of git_log").
    """

    __slots__ = ("_valid", "schema", "what")

    def __init__(self, schema: JSONObject, *, what: str) -> None:
        self.schema = schema
        self.what = what
        self._valid: jsonschema_rs.Validator | None = None

    def compile(self) -> None:
        """Compile the schema now.

        Raises:
            SchemaError: the schema is invalid or refers to what is not in it; the message names the place.
            LimitExceededError: the schema is too large or too deep.
        """
        self._valid = _compile(self.schema, self.what)

    def is_valid(self, value: JSON) -> bool:
        """Whether the value satisfies the schema; what is not JSON does not.

        Raises:
            SchemaError, LimitExceededError: as `compile`.
        """
        if self._valid is None:
            self.compile()
            assert self._valid is not None
        try:
            return self._valid.is_valid(value)
        except ValueError:
            return False

    def check(self, value: JSON) -> None:
        """Nothing, where the value satisfies the schema.

        Raises:
            ValueMismatchError: it does not; the message lists the first problems as "path: found X, expected Y".
            InvalidJSONError: it is not JSON.
            SchemaError, LimitExceededError: as `compile`; also a value that nests too deep.
        """
        if self._valid is None:
            self.compile()
            assert self._valid is not None
        try:
            if self._valid.is_valid(value):
                return
        except ValueError:
            pass
        problems = self.problems(value)
        told = "; ".join(problem.message for problem in problems[:_EXPLAINED])
        more = f"; and {len(problems) - _EXPLAINED} more" if len(problems) > _EXPLAINED else ""
        raise ValueMismatchError(f"{self.what}: {told}{more}")

    def problems(self, value: JSON) -> list[Problem]:
        """Why the value does not satisfy the schema; empty where it does.

        Raises:
            InvalidJSONError, SchemaError, LimitExceededError: as `check`.
        """
        if self._valid is None:
            self.compile()
            assert self._valid is not None
        value = normalise(value, what=self.what)
        if self._valid.is_valid(value):
            return []
        if _nodes(value, _EXPLAINED_NODES) < _EXPLAINED_NODES:
            return explain(self._valid.iter_errors(value), self.schema)
        return self._sampled_problems(value)

    def _sampled_problems(self, value: JSON) -> list[Problem]:
        """Problems of a value too large to collect all its errors (a million items that each fail take 16 s)."""
        assert self._valid is not None
        cut: list[tuple[str | int, ...]] = []
        sample = _sample(value, (), cut)
        if _nodes(sample, _EXPLAINED_NODES) < _EXPLAINED_NODES and not self._valid.is_valid(sample):
            # A problem at or above a place that was cut may come from the cut.
            found = explain(self._valid.iter_errors(sample), self.schema)
            whole = [p for p in found if not any(place[: len(p.place)] == p.place for place in cut)]
            if whole:
                return whole
        return [Problem("", show(value), "a value that fits the schema (too large to say more)")]


def check_schema(schema: JSONObject, *, what: str) -> None:
    """Nothing, where `schema` is a schema values can be held against; else as `Validator.compile`."""
    Validator(schema, what=what).compile()


def _nodes(value: JSON, limit: int) -> int:
    """How many values `value` holds, counted up to `limit`."""
    count = 0
    stack = [value]
    while stack and count < limit:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack.extend(islice(item.values(), limit))
        elif isinstance(item, list):
            stack.extend(item[:limit])
    return count


def _sample(value: JSON, place: tuple[str | int, ...], cut: list[tuple[str | int, ...]]) -> JSON:
    if isinstance(value, list):
        if len(value) > _SAMPLE:
            cut.append(place)
        return [_sample(item, (*place, index), cut) for index, item in enumerate(value[:_SAMPLE])]
    if isinstance(value, dict):
        return {key: _sample(item, (*place, key), cut) for key, item in value.items()}
    return value


def _compile(schema: JSONObject, what: str) -> jsonschema_rs.Validator:
    check_size(schema, what)
    try:
        key = content_hash(schema)
    except InvalidJSONError as error:
        raise SchemaError(f"{what}: the schema is {error}") from None
    with _lock:
        found = _compiled.get(key)
        if found is not None:
            _compiled.move_to_end(key)
            return found
    _check_expansion(schema, what)
    declared = schema.get("$schema")
    name = declared.split("://", 1)[-1].rstrip("#") if isinstance(declared, str) else ""
    factory = _DRAFTS.get(name, jsonschema_rs.Draft202012Validator)
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=2_000_000)
    try:
        compiled = factory(schema, validate_formats=False, offline=True, pattern_options=options)
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(f"{what}: the schema is invalid: {_told(error, schema)}") from None
    except ValueError as error:
        raise SchemaError(f"{what}: the schema cannot be read: {error}") from None
    with _lock:
        _compiled[key] = compiled
        while len(_compiled) > _CACHED:
            _compiled.popitem(last=False)
    return compiled


def _told(error: jsonschema_rs.ValidationError, schema: JSONObject) -> str:
    if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        return "; ".join(problem.message for problem in explain([error], None)[:_EXPLAINED]) or error.message[:200]
    for place, keyword, target in _references(schema):
        if target.lstrip("#") in error.message:
            where = show_path((*place, keyword))
            return f"{where}: found {show(target)}, expected a place in this schema (nothing is fetched)"
    return f"a reference leads nowhere: {error.message[:200]}"


def _references(schema: JSONObject) -> list[tuple[tuple[str | int, ...], str, str]]:
    found: list[tuple[tuple[str | int, ...], str, str]] = []
    stack: list[tuple[tuple[str | int, ...], JSON]] = [((), schema)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, dict):
            for keyword in REFERRING:
                target = item.get(keyword)
                if isinstance(target, str):
                    found.append((place, keyword, target))
            stack.extend(((*place, *step), child) for step, child in children(item))
    return found


def _check_expansion(schema: JSONObject, what: str) -> None:
    """Refuse a schema that, with its local references written out, is beyond all measure.

    Python's stack is spared: a chain of references can be longer than it is deep.
    """
    sizes: dict[int, int] = {}
    depths: dict[int, int] = {}
    open_now: set[int] = set()
    stack: list[tuple[JSONObject, list[JSONObject] | None]] = [(schema, None)]
    while stack:
        item, parts = stack.pop()
        mark = id(item)
        if parts is None:
            # Recursion ends with the value: a schema that is being counted counts as one.
            if mark in sizes or mark in open_now:
                continue
            open_now.add(mark)
            # Definitions count where they are referred to.
            inside = ((place, child) for place, child in children(item) if place[0] not in DEFINITIONS)
            parts = [child for _, child in inside if isinstance(child, dict)]
            pointer = item.get("$ref")
            target = resolve(schema, pointer) if isinstance(pointer, str) else None
            if isinstance(target, dict):
                parts.append(target)
            stack.append((item, parts))
            stack.extend((part, None) for part in parts)
        else:
            open_now.discard(mark)
            sizes[mark] = 1 + sum(sizes.get(id(part), 1) for part in parts)
            depths[mark] = 1 + max((depths.get(id(part), 1) for part in parts), default=0)
            if depths[mark] > MAX_CHAIN:
                raise LimitExceededError(f"{what}: the schema refers on and on, through more than {MAX_CHAIN} parts")
            if sizes[mark] > MAX_EXPANSION:
                raise LimitExceededError(
                    f"{what}: the schema with its references written out has more than {MAX_EXPANSION:,} parts"
                )
