"""Derive the signatures of tools as Python types from their JSON Schemas.

Programs are checked against the stubs of the modules that they import, before anything runs. A
schema that Python's types cannot express becomes `Any`. A stub is allowed to accept too much,
because the values are validated against the schema itself when the call is made. Parameters accept
any mapping or sequence, so that a typed result can be passed on.

Schemas come from servers, so every size here is limited, and strings from a schema enter a stub
only as literals.
"""

from __future__ import annotations

import builtins
import re
import typing
from collections import abc
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty
from ideabridge.tools.keywords import ANNOTATIONS, SchemaKeywords
from ideabridge.tools.tool import Tool
from ideabridge.tools.typed import read_as

MOST_DEPTH: Final = 6
"""The maximum depth to which a type follows its schema."""

FIELDS: Final = 60
"""The maximum number of fields in a typed object."""

SCHEMAS: Final = 500
"""The maximum number of schemas that are read for one tool. Any further schema becomes `Any`."""

SIGNATURE: Final = 1_000
"""The maximum number of characters in a signature."""

OBSERVED: Final = " # observed"
"""Marks a result type that was only observed and is not promised by a schema."""

JSON_TEXT: Final = "Json"
"""The type `Json`. In a signature, `Json[T]` is a string that contains a T as JSON."""

_UNION: Final = 8
_LITERALS: Final = 30
_LITERAL: Final = 80
"""The maximum number of characters in a literal."""

_DESCRIPTION: Final = 200
_LONGEST_NAME: Final = 80

_PLAIN: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}

_RICH: Final = frozenset(
    {"const", "enum", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if"}
)
"""Schema keywords with which `type` alone does not determine the type."""

_COMBINED: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})
"""Keywords at the top of a schema that describe further parameters."""

_IMPORTED: Final = {
    abc.__name__: ("Mapping", "Sequence"),
    typing.__name__: ("Any", "Literal", "NotRequired", "TypedDict"),
}
_BUILTIN: Final = ("bool", "dict", "float", "int", "list", "str")
_TYPES: Final = frozenset({*_BUILTIN, *(name for names in _IMPORTED.values() for name in names)})

_OTHER: Final = re.compile(r"[^A-Za-z0-9_]+")

Form: TypeAlias = Literal["result", "parameter", "brief"]
"""What a type is for. In a `result`, objects become classes. A `parameter` accepts any mapping or
sequence. A `brief` type is one line of text, in which an object is written `{name: str, size?:
int}`.
"""


def stub(functions: Iterable[tuple[str, Tool, Mapping[str, str]]]) -> str:
    """Return the text of a module's `.pyi` file.

    Args:
        functions: for each function, its name, its tool, and the real names of its parameters,
            keyed by their names in programs.
    """
    listed = list(functions)
    function_names = {name for name, _, _ in listed}
    # A function can have the name of a type. After a function named `list`, `list[str]` would mean
    # something else.
    renamed = {
        name: _free(f"_{name}", function_names | _TYPES) for name in sorted(_TYPES & function_names)
    }
    types = _Types("result", renamed, function_names | _TYPES)
    admitted = _Types("parameter", renamed)
    lines: list[str] = []
    for name, tool, parameters in listed:
        fields = _parameters(tool, parameters, admitted)
        inner = ", ".join(["*", *fields] if fields and not fields[0].startswith("**") else fields)
        lines.append(f"async def {name}({inner}) -> {_result(tool, types, name)}:")
        described = first_line_of(tool.description)
        if described:
            lines.append(f"    {described!r}")
        lines.append("    ...")

    return "\n".join([*_imports(renamed), *types.lines, *lines, ""])


def function_signature(
    name: str, tool: Tool, parameters: Mapping[str, str], observed: JSONObject | None = None
) -> str:
    """Return the signature of a tool on one line, such as `git.git_log(repo_path: str, max_count:
    int = 10) -> list[str]`.

    Args:
        name: the name of the function, with its module.
        tool: the tool.
        parameters: the real names of the tool's parameters, keyed by their names in programs.
        observed: the shape of earlier results, if the tool declares no output schema. The line then
            ends with `OBSERVED`.
    """
    types = _Types("brief")
    fields = _parameters(tool, parameters, types)
    result = _result(tool, types, "")
    if tool.output is None and observed:
        types.begin()
        shape = types.of(observed, observed, "")
        result = result if shape == "Any" else f"{shape}{OBSERVED}"

    if len(result) > SIGNATURE // 2:
        result = "Any"

    room = SIGNATURE - len(name) - len(result)
    fitting: list[str] = []
    for number, parameter in enumerate(fields):
        room -= len(parameter) + 2
        if room < 0:
            fitting.append(f"... {len(fields) - number} more")
            break
        fitting.append(parameter)

    return f"{name}({', '.join(fitting)}) -> {result}"


def first_line_of(text: str) -> str:
    """Return the first line of a description that contains text, without unprintable characters, or
    "" if there is none.
    """
    line = next(
        (text_line.strip() for text_line in text[:10_000].splitlines() if text_line.strip()), ""
    )
    if len(line) > _DESCRIPTION:
        line = f"{line[: _DESCRIPTION - 3]}..."
    return "".join(char if char.isprintable() else " " for char in line)


def _imports(renamed: Mapping[str, str]) -> list[str]:
    def written(name: str) -> str:
        return f"{name} as {renamed[name]}" if name in renamed else name

    lines = [
        f"from {module} import {', '.join(map(written, names))}"
        for module, names in _IMPORTED.items()
    ]
    own = [written(name) for name in _BUILTIN if name in renamed]
    if own:
        return [*lines, f"from {builtins.__name__} import {', '.join(own)}", ""]
    return [*lines, ""]


def _free(name: str, reserved: Collection[str]) -> str:
    """Return the name, followed by as many `_` as it needs to differ from the reserved names."""
    while name in reserved:
        name += "_"
    return name


def _result(tool: Tool, types: _Types, name: str) -> str:
    types.begin()
    if tool.output is None:
        return types.any
    return types.of(tool.output, tool.output, f"{name}_result")


def _parameters(tool: Tool, parameters: Mapping[str, str], types: _Types) -> list[str]:
    """Return the parameters of a tool, required ones first."""
    schema = tool.parameters
    described = described_parameters(schema)
    required = described.required
    types.begin()
    fields: list[str] = []
    for python, real in sorted(parameters.items(), key=lambda pair: pair[1] not in required):
        parts = described.properties.get(real, [])
        only = parts[0] if len(parts) == 1 else None
        if len(parts) < 2:
            kind = types.of(only, schema, "")
        else:
            kind = types.either(parts, schema)

        default = "" if real in required else f" = {_default(only, kind)}"
        fields.append(f"{python}: {kind}{default}")

    if _is_open(schema):
        fields.append(f"**{_free('more', parameters)}: {types.any}")

    return fields


@dataclass(slots=True)
class DescribedParameters:
    """The parameters described at the top of a schema, either directly or in schemas combined
    there.

    Attributes:
        properties: the schemas of each parameter. There is only one, unless alternatives describe
            the parameter differently.
        required: the parameters that every call must have.
    """

    properties: dict[str, list[JSON]]
    required: frozenset[str]


def described_parameters(schema: JSONObject) -> DescribedParameters:
    """Read the parameters of a tool, including those in `$ref`, `allOf`, `anyOf`, `oneOf` and
    conditions.
    """
    if _COMBINED.isdisjoint(schema):
        keywords = read_as(SchemaKeywords, schema)
        own = {name: [part] for name, part in keywords.properties.items()}
        return DescribedParameters(own, frozenset(keywords.required))
    return _Combined(schema).read(schema, ())


class _Combined:
    """Reads a schema whose top combines several schemas, at most `SCHEMAS` of them."""

    def __init__(self, root: JSONObject) -> None:
        self._root = root
        self._left = SCHEMAS

    def read(self, schema: JSON, above: tuple[int, ...]) -> DescribedParameters:
        """Read a part. `above` lists the parts that lead to it."""
        self._left -= 1
        if (
            not isinstance(schema, dict)
            or self._left < 0
            or id(schema) in above
            or len(above) > MOST_DEPTH
        ):
            return DescribedParameters({}, frozenset())

        above = (*above, id(schema))
        keywords = read_as(SchemaKeywords, schema)
        referred: list[JSON] = []
        if keywords.reference is not None:
            referred = [_target(keywords.reference, self._root)]

        always = [self.read(part, above) for part in (*referred, *_listed(schema, "allOf"))]
        required = frozenset(keywords.required).union(*(part.required for part in always))
        described = {name: [part] for name, part in keywords.properties.items()}
        for part in always:
            # All these schemas apply, so a value satisfies each of their types. Use the first.
            described = {**part.properties, **described}

        for alternatives in self._alternatives(schema, above):
            sometimes: dict[str, list[JSON]] = {}
            for part in alternatives.parts:
                for name, schemas in part.properties.items():
                    types = sometimes.setdefault(name, [])
                    types.extend(
                        schema_of_part for schema_of_part in schemas if schema_of_part not in types
                    )

            described = {**sometimes, **described}
            required |= alternatives.required

        for name in sorted(set(keywords.required)):
            described.setdefault(name, [])

        return DescribedParameters(described, required)

    def _alternatives(self, schema: JSONObject, above: tuple[int, ...]) -> Iterator[_Alternatives]:
        for keyword in ("anyOf", "oneOf"):
            parts = [self.read(part, above) for part in _listed(schema, keyword)]
            if parts:
                first, *others = (part.required for part in parts)
                yield _Alternatives(parts, first.intersection(*others))

        conditional = [
            self.read(schema[word], above) for word in ("if", "then", "else") if word in schema
        ]
        dependent = object_or_empty(schema.get("dependentSchemas"))
        conditional += [self.read(part, above) for part in dependent.values()]
        yield _Alternatives(conditional, frozenset())


@dataclass(frozen=True, slots=True)
class _Alternatives:
    """Schemas that need not all apply, and the parameters that every call must have in any case."""

    parts: list[DescribedParameters]
    required: frozenset[str]


def _listed(schema: JSONObject, keyword: str) -> list[JSON]:
    return list_or_empty(schema.get(keyword))


def required_of(schema: JSONObject) -> frozenset[str]:
    """Return the names of the properties that an object must have."""
    return frozenset(read_as(SchemaKeywords, schema).required)


def _default(schema: JSON, kind: str) -> str:
    """Return the default of a parameter as text: the value itself if it is a short scalar of the
    right type, otherwise `...`.
    """
    members = object_or_empty(schema)
    if "default" not in members:
        return "..."

    value = members["default"]
    values = read_as(SchemaKeywords, schema).enum
    written = _written(value)
    if written is None or not isinstance(value, bool | int | float | str | None):
        return "..."

    if value is None:
        fits = kind == "None" or kind.endswith("| None")
    elif values is not None:
        fits = "Literal[" in kind and written in map(_written, values[:_LITERALS])
    else:
        own = type(value).__name__
        fits = kind.split(" | ")[0] in (own, "float" if own == "int" else own)

    return written if fits else "..."


_OPENING: Final = (
    "patternProperties",
    "dependentSchemas",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
)
"""Keywords at the top of a schema that can describe parameters in addition to those in
`properties`.
"""


def _is_open(schema: JSONObject) -> bool:
    """Return whether a call may have parameters that are not in `properties`."""
    if any(key in schema for key in _OPENING):
        return True
    if not isinstance(schema.get("properties"), dict):
        return True
    return schema.get("additionalProperties", False) is not False


class _Types:
    """Derives types from schemas, and collects the classes that objects need.

    Args:
        form: what the types are for.
        renamed: the names of Python types that are imported under a different name.
        taken: names that a class must not have.
    """

    def __init__(
        self, form: Form, renamed: Mapping[str, str] | None = None, reserved: Collection[str] = ()
    ) -> None:
        self.lines: list[str] = []
        self._form = form
        self._renamed = renamed or {}
        self._taken = {*reserved}
        self._left = SCHEMAS
        # Objects that are equal share one class.
        self._made: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self.any = self._named("Any")
        wide = form == "parameter"
        self._list = self._named("Sequence" if wide else "list")
        self._dict = self._named("Mapping" if wide else "dict")

    def begin(self) -> None:
        """Start the types of another tool, with a new count of schemas."""
        self._left = SCHEMAS

    def _named(self, name: str) -> str:
        return self._renamed.get(name, name)

    def of(
        self,
        schema: JSON,
        root: JSONObject,
        name: str,
        depth: int = MOST_DEPTH,
        *,
        inner: bool = False,
    ) -> str:
        """Return the type of a schema, or `Any` if the schema has no constraints, or Python's types
        cannot express it.

        Args:
            schema: the schema.
            root: the schema in which references are looked up.
            name: the name to use if the type becomes a class.
            depth: how many more levels the type may have.
            inner: whether this is the type of a part of a value.
        """
        self._left -= 1
        if not isinstance(schema, dict) or depth <= 0 or self._left < 0:
            return self.any

        written_type = self._of(schema, root, name, depth, inner=inner)
        # This is how OpenAPI and many servers allow null.
        if (
            schema.get("nullable") is True
            and written_type not in (self.any, "None")
            and not written_type.endswith("| None")
        ):
            return f"{written_type} | None"

        return written_type

    def _of(
        self, schema: JSONObject, root: JSONObject, name: str, depth: int, *, inner: bool
    ) -> str:
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _PLAIN and _RICH.isdisjoint(schema):
            if (
                self._form == "brief"
                and kind == "string"
                and isinstance(schema.get("contentSchema"), dict)
            ):
                return f"{JSON_TEXT}[{self.of(schema['contentSchema'], root, name, depth - 1)}]"

            return self._named(_PLAIN[kind])

        match schema:
            case {"const": value}:
                return self._literal([value], inner=inner)
            case {"enum": [*values]}:
                return self._literal(values, inner=inner)
            case {"$ref": str(reference)} if _only(schema, "$ref"):
                return self.of(_target(reference, root), root, name, depth - 1, inner=inner)
            case {"allOf": [only]} if _only(schema, "allOf"):
                return self.of(only, root, name, depth - 1, inner=inner)
            case {"anyOf": [*branches]} | {"oneOf": [*branches]} if _only(
                schema, "anyOf", "oneOf", "type"
            ):
                return self._union(branches, root, name, depth, inner=inner)
            case _ if not _RICH.isdisjoint(schema):
                return self.any
            case {"type": [*kinds]}:
                return self._union(
                    [{**schema, "type": kind} for kind in kinds[:_UNION]],
                    root,
                    name,
                    depth,
                    inner=inner,
                )
            case {"type": "array"}:
                items = None if "prefixItems" in schema else schema.get("items")
                return (
                    f"{self._list}[{self.of(items, root, f'{name}_item', depth - 1, inner=True)}]"
                )
            case {"type": "object"}:
                return self._object(schema, root, name, depth)
            case _:
                return self.any

    def either(self, schemas: list[JSON], root: JSONObject) -> str:
        """Return the type of a parameter that several alternatives describe."""
        return self._union(schemas, root, "", MOST_DEPTH, inner=False)

    def _union(
        self, branches: list[JSON], root: JSONObject, name: str, depth: int, *, inner: bool
    ) -> str:
        if not 0 < len(branches) <= _UNION:
            return self.any

        types = list(
            dict.fromkeys(
                self.of(branch, root, name, depth - 1, inner=inner) for branch in branches
            )
        )
        if self.any in types:
            return self.any

        parts = dict.fromkeys(part for written_type in types for part in _parts(written_type))
        # Put None last, where people usually write it. The sort is stable, so the other types keep
        # their order.
        return " | ".join(sorted(parts, key=lambda part: part == "None"))

    def _object(self, schema: JSONObject, root: JSONObject, name: str, depth: int) -> str:
        properties = schema.get("properties")
        more = schema.get("additionalProperties")
        whole = f"{self._dict}[{self._named('str')}, {self.any}]"
        if "patternProperties" in schema:
            return whole
        if not isinstance(properties, dict) or not properties:
            # The checker does not accept a typed object as a `Mapping[str, str]`, even if all of
            # its fields are strings.
            if not isinstance(more, dict) or self._form == "parameter":
                return whole
            value = self.of(more, root, f"{name}_value", depth - 1, inner=True)
            return f"{self._dict}[{self._named('str')}, {value}]"

        if (
            self._form == "parameter"
            or len(properties) > FIELDS
            or more is True
            or isinstance(more, dict)
        ):
            return whole

        required = required_of(schema)
        fields: list[tuple[str, str]] = [
            (key, self.of(value, root, f"{name}_{key[:_LONGEST_NAME]}", depth - 1, inner=True))
            for key, value in properties.items()
        ]
        if any(len(key) > _LONGEST_NAME for key, _ in fields):
            return whole
        members: list[str] = []
        if self._form == "brief":
            for key, kind in fields:
                mark = "" if key in required else "?"
                members.append(f"{_brief(key)}{mark}: {kind}")
            return f"{{{', '.join(members)}}}"

        optional = self._named("NotRequired")
        for key, kind in fields:
            member_kind = kind if key in required else f"{optional}[{kind}]"
            members.append(f"{key!r}: {member_kind}")
        return self._class(name, f"{{{', '.join(members)}}}")

    def _class(self, name: str, fields: str) -> str:
        class_name = self._made.get(fields)
        if class_name is None:
            base = _OTHER.sub("_", name)[:_LONGEST_NAME]
            class_name = base
            while class_name in self._taken:
                self._numbers[base] = self._numbers.get(base, 1) + 1
                class_name = f"{base}_{self._numbers[base]}"

            self._taken.add(class_name)
            self._made[fields] = class_name
            self.lines.append(
                f"{class_name} = {self._named('TypedDict')}({class_name!r}, {fields})"
            )

        return class_name

    def _literal(self, values: list[JSON], *, inner: bool) -> str:
        """Return the type of the given values.

        Within a parameter, the type contains no literals: for the checker, a variable with a list
        of strings is a `list[str]`, whatever strings the list contains.
        """
        written = [_written(value) for value in values[: _LITERALS + 1]]
        literals = [literal for literal in written if literal is not None]
        exact = 0 < len(values) <= _LITERALS and len(literals) == len(values)
        if (
            exact
            and not any(isinstance(value, float) for value in values)
            and not (inner and self._form == "parameter")
        ):
            return f"{self._named('Literal')}[{', '.join(dict.fromkeys(literals))}]"

        kinds = dict.fromkeys("None" if value is None else type(value).__name__ for value in values)
        if not values or not kinds.keys() <= {*_PLAIN.values()}:
            return self.any
        return " | ".join(
            self._named(kind) for kind in sorted(kinds, key=lambda kind: kind == "None")
        )


def _only(schema: JSONObject, *keywords: str) -> bool:
    """Return whether these keywords are the only ones in a schema that restrict values.
    `definitions` is the old name of `$defs`.
    """
    return all(
        key in keywords
        or key in ANNOTATIONS
        or key in ("$defs", "definitions", "$schema", "$id", "nullable")
        for key in schema
    )


def _parts(union: str) -> list[str]:
    """Return the members of a union of plain names, or any other type as its only member."""
    parts = union.split(" | ")
    return parts if all(part.isidentifier() for part in parts) else [union]


def _brief(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else repr(key)


def _written(value: JSON) -> str | None:
    """Return a value as a Python literal, or None if the literal is too long, or the value is not a
    scalar. Integers must fit in 64 bits, as in the type checker.
    """
    match value:
        case str() if len(value) <= _LITERAL:
            return repr(value)
        case None | bool():
            return repr(value)
        case int() if -(2**63) <= value < 2**63:
            return repr(value)
        case float() if value == value and abs(value) != float("inf"):
            return repr(value)
        case _:
            return None


def _target(reference: str, root: JSONObject) -> JSON:
    """Return the schema that a local reference such as `#/$defs/x` points to, or None if the
    reference is not local or points to nothing.
    """
    if not reference.startswith("#/"):
        return root if reference == "#" else None

    value: JSON = root
    for part in reference[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        match value:
            case list() if key.isascii() and key.isdecimal() and int(key[:9]) < len(value):
                value = value[int(key[:9])]
            case dict() if key in value:
                value = value[key]
            case _:
                return None

    return value
