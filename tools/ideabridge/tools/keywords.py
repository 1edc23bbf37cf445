"""List the keywords of JSON Schema that contain schemas, traverse schemas, and describe them in
words.

The keywords are those of 2020-12 and those of older drafts (`definitions`, `dependencies`,
`additionalItems`), which remote tools still use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final
from urllib.parse import unquote

import jsonschema_rs

from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.json_parts import values_in
from ideabridge.tools.names import readable_json
from ideabridge.tools.typed import member

ONE: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords whose value is a schema. In older drafts, `items` can be an array of schemas."""

MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords whose value is an array of schemas."""

NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose value is an object of schemas. `dependencies` can also contain arrays of names."""

DEFINITIONS: Final = frozenset({"$defs", "definitions"})
"""Keywords that only hold schemas for other schemas to refer to."""

REFERRING: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that refer to another schema."""

ANNOTATIONS: Final = frozenset(
    {
        "title",
        "description",
        "examples",
        "default",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    }
)
"""Keywords that describe values without constraining them."""

NAME: Final = re.compile(r"[^\W\d]\w*|\d+")
"""Matches a key that needs no quotes in a path."""

MAX_SCHEMA_DEPTH: Final = 200
"""Maximum nesting depth of arrays and objects in a schema. jsonschema-rs itself stops at 255."""

MAX_SCHEMA_NODES: Final = 500_000
"""Maximum number of values in a schema. The schema of a Solution contains the schemas of all its
tools.
"""


# These functions are the default factories because a schema has many parts, and calling `dict[str,
# JSON]` takes four times as long.
def _no_members() -> JSONObject:
    return {}


def _no_values() -> list[JSON]:
    return []


@dataclass(frozen=True, slots=True)
class SchemaKeywords:
    """The keywords of a JSON Schema that describe its values. Read them with `read_as`.

    Attributes:
        title, description: for people and models.
        type: a type or a list of types.
        properties: the schemas of the members, which can be true or false.
        required: the names of the members that a value must have.
        items: the schema of array elements.
        enum: the accepted values, if the schema lists them.
        one_of, any_of: alternative schemas.
        examples: examples of values.
        pattern: the regular expression that a string must match.
        reference: the `$ref` to another schema.
        definitions: the schemas in `$defs`, by name.
    """

    title: str | None = None
    description: str | None = None
    type: JSON = None
    properties: JSONObject = field(default_factory=_no_members)
    required: tuple[str, ...] = ()
    items: JSONObject | None = None
    enum: list[JSON] | None = None
    one_of: tuple[JSONObject, ...] = field(default=(), metadata=member("oneOf"))
    any_of: tuple[JSONObject, ...] = field(default=(), metadata=member("anyOf"))
    examples: list[JSON] = field(default_factory=_no_values)
    pattern: str | None = None
    reference: str | None = field(default=None, metadata=member("$ref"))
    definitions: JSONObject = field(default_factory=_no_members, metadata=member("$defs"))

    @property
    def types(self) -> tuple[str, ...]:
        """The types named in `type`."""
        if isinstance(self.type, list):
            return tuple(map(str, self.type))
        return (self.type,) if isinstance(self.type, str) else ()


Place = tuple[str | int, ...]
"""The keys and indexes that lead from the root of a document to a part of it."""


def children(schema: JSONObject) -> Iterator[tuple[Place, JSON]]:
    """Yield the schemas directly inside `schema`, including booleans, each with its path in
    `schema`.
    """
    for keyword, value in schema.items():
        if keyword in NAMED:
            if isinstance(value, dict):
                for name, item in value.items():
                    if not isinstance(item, list):
                        yield (keyword, name), item
        elif keyword in MANY or (keyword == "items" and isinstance(value, list)):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    yield (keyword, index), item
        elif keyword in ONE:
            yield (keyword,), value


def schemas_in(root: JSONObject) -> Iterator[tuple[Place, JSONObject]]:
    """Yield `root` and every schema inside it, except booleans, each with its path from `root`."""
    stack: list[tuple[Place, JSONObject]] = [((), root)]
    while stack:
        place, schema = stack.pop()
        yield place, schema
        stack.extend(
            ((*place, *step), child) for step, child in children(schema) if isinstance(child, dict)
        )


def references_in(root: JSON) -> Iterator[str]:
    """Yield the targets of all references in `root`, even in parts that might not be schemas."""
    for value in values_in(root):
        if not isinstance(value, dict):
            continue

        for word in REFERRING:
            target = value.get(word)
            if isinstance(target, str):
                yield target


def resolve(root: JSON, pointer: str) -> JSONObject | bool | None:
    """Return the schema in `root` that a local `$ref` (`#`, `#/a/b`) points to, or None if there is
    none.
    """
    if pointer == "#":
        return root if isinstance(root, dict | bool) else None
    if not pointer.startswith("#/"):
        return None

    target: JSON = root
    for part in pointer[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            if key not in target:
                return None
            target = target[key]
        elif isinstance(target, list):
            if not key.isdecimal() or not key.isascii() or len(key) > 9 or int(key) >= len(target):
                return None
            target = target[int(key)]
        else:
            return None

    return target if isinstance(target, dict | bool) else None


def check_size(schema: JSON, what: str) -> None:
    """Check the size and depth of a schema.

    Raises:
        LimitExceededError: the schema is too large or too deeply nested; the message begins with
            `what`.
    """
    count = 0
    level: list[JSON] = [schema]
    depth = 0
    while level:
        count += len(level)
        if count > MAX_SCHEMA_NODES:
            raise LimitExceededError(
                f"{what}: the schema contains more than {MAX_SCHEMA_NODES:,} values"
            )

        if depth > MAX_SCHEMA_DEPTH:
            raise LimitExceededError(
                f"{what}: the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels"
            )

        depth += 1
        below: list[JSON] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)

        level = below


def show_path(place: list[str | int] | Place) -> str:
    """Return a path as shown in messages and references: `calls.0["odd.key"]`. The root is ""."""
    parts = [
        f".{key}" if isinstance(key, int) or NAME.fullmatch(key) else f"[{show(key, 60)}]"
        for key in place
    ]
    return "".join(parts).removeprefix(".")


def show(value: JSON, limit: int = 80) -> str:
    """Return a value as JSON text of at most about `limit` characters, with `…` for omitted
    text.
    """
    pieces: list[str] = []
    _show(value, limit, pieces)
    return "".join(pieces)


def _show(value: JSON, left: int, pieces: list[str]) -> int:
    """Append the text of `value` to `pieces`, and return the number of characters left.

    A negative number means that the text was truncated.
    """
    if isinstance(value, str):
        if len(value) <= left:
            text = readable_json(value)
        else:
            text = readable_json(value[: max(left, 1)])[:-1] + '…"'
    elif isinstance(value, dict | list):
        return _show_parts(value, left, pieces)
    elif value is None:
        text = "null"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int) and value.bit_length() > 400:
        # Python raises an error instead of writing out an integer with thousands of digits.
        text = f"an integer of {value.bit_length():,} bits"
    else:
        text = repr(value)

    pieces.append(text)
    return left - len(text)


def _show_parts(value: dict[str, JSON] | list[JSON], left: int, pieces: list[str]) -> int:
    opening = "["
    closing = "]"
    members: Iterable[tuple[str | int, JSON]] = enumerate(value)
    if isinstance(value, dict):
        opening = "{"
        closing = "}"
        members = value.items()

    pieces.append(opening)
    first = True
    for key, item in members:
        if not first:
            pieces.append(", ")

        first = False
        if left <= 3:
            pieces.append("…")
            left = -1
            break

        if isinstance(key, str):
            left = _show(key, left, pieces) - 2
            pieces.append(": ")

        left = _show(item, max(left, 1), pieces) - 2

    pieces.append(closing)
    return left


def json_schema_draft(schema: JSONObject) -> str:
    """Return the draft that `$schema` declares, without scheme and fragment, or "" if the schema
    declares none.
    """
    declared = schema.get("$schema")
    if isinstance(declared, str):
        return declared.split("://", 1)[-1].rstrip("#")
    return ""


def add_to_all_of(schema: JSONObject, *parts: JSON) -> None:
    """Add schemas to the `allOf` of a schema."""
    before = schema.get("allOf")
    schema["allOf"] = [*list_or_empty(before), *parts]


def loosen(schema: JSONObject, keyword: str) -> None:
    """Remove the constraints that become stricter because a part of `keyword` now accepts
    anything.
    """
    schema.pop("unevaluatedProperties", None)
    schema.pop("unevaluatedItems", None)
    if keyword in ("not", "if"):
        del schema[keyword]
    elif keyword == "contains":
        schema["contains"] = True
        schema.pop("maxContains", None)
    elif keyword == "oneOf":
        add_to_all_of(schema, {"anyOf": schema.pop("oneOf")})


def map_schemas(schema: JSON, change: Callable[[JSONObject], JSONObject]) -> JSON:
    """Return a copy of `schema` with every schema replaced by `change`. Outer schemas are replaced
    before inner ones.
    """
    if isinstance(schema, dict):
        return map_children(change(schema), partial(map_schemas, change=change))
    return schema


def map_children(schema: JSONObject, change: Callable[[JSON], JSON]) -> JSONObject:
    """Return a copy of `schema` with every schema directly inside it replaced by `change`."""
    result: JSONObject = {}
    for keyword, value in schema.items():
        if keyword in NAMED and isinstance(value, dict):
            result[keyword] = {name: change(item) for name, item in value.items()}
        elif (keyword in MANY or keyword == "items") and isinstance(value, list):
            result[keyword] = [change(item) for item in value]
        elif keyword in ONE:
            result[keyword] = change(value)
        else:
            result[keyword] = value

    return result


def move_refs(schema: JSONObject, place: Place) -> JSON:
    """Return `schema` for use at `place` in another document, with its local `$ref`s adjusted and
    without `$schema`.

    A schema with an `$id` is a separate document, and is returned unchanged.
    """
    if "$id" in schema:
        return schema

    prefix = "#"
    for key in place:
        step = str(key).replace("~", "~0").replace("/", "~1").replace("%", "%25")
        prefix += f"/{step}"

    def move(part: JSONObject) -> JSONObject:
        if "$id" in part:
            return part

        moved: JSONObject = {}
        for keyword, value in part.items():
            if (
                keyword in REFERRING
                and isinstance(value, str)
                and (value == "#" or value.startswith("#/"))
            ):
                # `$recursiveRef: "#"` comes from an earlier draft; 2020-12 uses `$ref` instead.
                moved["$ref"] = prefix + value[1:]
            elif keyword != "$schema":
                moved[keyword] = value

        return moved

    return map_schemas(schema, move)


# -- schemas and problems in words -----------------------------------------------------------------

REFERENCE_PATTERN: Final = "^†"
"""The pattern that marks the alternative "or a reference" in composed schemas."""

PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=2_000_000)
"""The limits within which patterns are compiled and matched."""

A_REFERENCE: Final = "a reference such as †state.x"
"""The description, in messages, of the alternative "or a reference"."""

MOST_LISTED: Final = 12
"""Maximum number of alternatives or names that a message lists."""

_ARTICLES: Final = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "text",
}


MISSING_VALUE: Final = "nothing"
"""The text in `Problem.found` for a required value that is missing."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why a value does not satisfy a schema.

    Attributes:
        found: the value found, as shortened JSON, or `MISSING_VALUE`.
        expected: what was expected instead, in words.
        place: the keys and indexes that lead to the problem in the value.
        hint: a suggestion such as " Did you mean 'x'?", or "".
    """

    found: str
    expected: str
    place: Place = ()
    hint: str = ""

    @property
    def path(self) -> str:
        """The place as a string such as `calls.0.path`, or "" for the whole value."""
        return show_path(self.place)

    @property
    def message(self) -> str:
        """The problem on one line: `path: found X, expected Y` or `path: missing, expected Y`."""
        problem = "missing" if self.found == MISSING_VALUE else f"found {self.found}"
        text = f"{problem}, expected {self.expected}"
        if self.hint:
            text = f"{text}.{self.hint}"
        return f"{self.path}: {text}" if self.path else text


def describe_values(values: Iterable[JSON]) -> str:
    """Describe alternative values in words: `1`, `one of 1, 2, 3`."""
    texts = list(dict.fromkeys(show(value, 60) for value in values))
    if len(texts) == 1:
        return texts[0]
    remainder = f", … ({len(texts)} in all)" if len(texts) > MOST_LISTED else ""
    return f"one of {', '.join(texts[:MOST_LISTED])}{remainder}"


_MORE_PARAMETERS: Final = (
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "patternProperties",
    "dependentSchemas",
    "if",
)
"""Schema keywords that can name further parameters."""


def all_parameters(schema: JSONObject) -> JSONObject | None:
    """Return the schema of each parameter, keyed by name.

    Return None if the schema declares no parameters or might allow further ones. A schema that does
    not say whether it allows further parameters is taken not to allow any.
    """
    declared = schema.get("properties")
    is_open = any(word in schema for word in _MORE_PARAMETERS) or bool(
        schema.get("additionalProperties")
    )
    return declared if isinstance(declared, dict) and not is_open else None


def list_names(names: Collection[str], singular: str, plural: str) -> str:
    """List names in words: `the only property is 'a'`, `the properties are 'a', 'b', …`."""
    listed = ", ".join(repr(name[:60]) for name in islice(names, MOST_LISTED))
    if len(names) == 1:
        return f"the only {singular} is {listed}"
    if len(names) > MOST_LISTED:
        return f"the {plural} are {listed}, …"
    return f"the {plural} are {listed}"


def _describe_types(types: Iterable[str]) -> str:
    return " or ".join(
        _ARTICLES.get(name, name) for name in sorted(types, key=lambda name: name == "null")
    )


def describe(schema: JSON, root: JSON = None, depth: int = 3) -> str:
    """Describe briefly what a schema expects: `an integer`, `one of "a", "b"`, `text or null`."""
    if not isinstance(schema, dict):
        return "no value" if schema is False else "any value"
    if schema.get("pattern") == REFERENCE_PATTERN:
        return A_REFERENCE
    if "const" in schema:
        return show(schema["const"], 60)

    options = schema.get("enum")
    if isinstance(options, list) and options:
        return describe_values(options)

    types = schema.get("type")
    if isinstance(types, str):
        return _describe_types([types])
    if isinstance(types, list):
        return _describe_types(str(name) for name in types)

    if depth > 0:
        pointer = schema.get("$ref")
        if isinstance(pointer, str):
            return describe(resolve(root, pointer), root, depth - 1)
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches:
                words = dict.fromkeys(
                    describe(branch, root, depth - 1) for branch in branches[:MOST_LISTED]
                )
                return " or ".join(words)

    return "an object" if "properties" in schema else "any value"
