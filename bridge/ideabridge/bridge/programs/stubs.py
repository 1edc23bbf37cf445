"""Stubs: the signatures of tools as Python types, made of their JSON Schemas.

Programs are checked against the stubs of the modules that they import, before anything runs. A schema that is too rich
for Python's types becomes `Any`: a stub may admit too much, because the values are validated against the schema itself
when the call is made. Parameters take every mapping and sequence, so that a typed result can be passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool

DEPTH: Final = 6
"""How deep a type follows its schema."""

FIELDS: Final = 60
"""The most fields of a typed object."""

_UNION: Final = 8
_LITERALS: Final = 30
_DESCRIPTION: Final = 200

_PLAIN: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_HEAD: Final = (
    "from collections.abc import Mapping, Sequence\nfrom typing import Any, Literal, NotRequired, TypedDict\n"
)


def stub(functions: Iterable[tuple[str, Tool, Mapping[str, str]]]) -> str:
    """Return the text of the `.pyi` file of a module.

    Args:
        functions: (name, tool, its real parameters by their names in programs) of each function.
    """
    types, taken = _Types(), _Types(named=False, wide=True)
    lines: list[str] = []
    for name, tool, parameters in functions:
        result = _result(tool, types, name)
        lines.append(f"async def {name}({_parameters(tool, parameters, taken, name)}) -> {result}:")
        lines.append(f"    {_docstring(tool.description)}")
        lines.append("    ...")
    return "\n".join([_HEAD, *types.lines, *lines, ""])


def signature(name: str, tool: Tool, parameters: Mapping[str, str]) -> str:
    """Return the signature of a tool on one line: `git.git_log(repo_path: str, max_count: int = 10) -> list`."""
    types = _Types(named=False)
    return f"{name}({_parameters(tool, parameters, types, '', brief=True)}) -> {_result(tool, types, '')}"


def _result(tool: Tool, types: _Types, name: str) -> str:
    return "Any" if tool.output is None else types.of(tool.output, tool.output, f"{name}_result")


def _parameters(tool: Tool, parameters: Mapping[str, str], types: _Types, name: str, *, brief: bool = False) -> str:
    schema = tool.parameters
    listed, needed = schema.get("properties"), schema.get("required")
    properties = listed if isinstance(listed, dict) else {}
    required = needed if isinstance(needed, list) else []
    ordered = sorted(parameters.items(), key=lambda pair: pair[1] not in required)
    found: list[str] = []
    for python, real in ordered:
        one = properties.get(real)
        kind = types.of(one, schema, f"{name}_{python}")
        if real in required:
            found.append(f"{python}: {kind}")
            continue
        default = one.get("default") if isinstance(one, dict) else None
        if brief:
            shown = (
                repr(default) if isinstance(default, str | int | float | bool) and len(repr(default)) < 40 else "..."
            )
            found.append(f"{python}: {kind} = {shown}")
        else:
            found.append(f"{python}: {kind} = ...")
    if not brief and found:
        found.insert(0, "*")
    if _is_open(schema):
        found.append("**more: Any")
    return ", ".join(found)


def _is_open(schema: JSONObject) -> bool:
    """Return whether a call may have parameters that `properties` does not name."""
    return any(key in schema for key in ("patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if")) or (
        schema.get("additionalProperties", False) is not False or not isinstance(schema.get("properties"), dict)
    )


def _docstring(text: str) -> str:
    line = next((one.strip() for one in text.splitlines() if one.strip()), "")[:_DESCRIPTION]
    safe = "".join(char if char.isprintable() else " " for char in line)
    return repr(f"{safe}.") if not safe.endswith(".") else repr(safe)


class _Types:
    """Makes types of schemas, and collects the typed objects that they need.

    Args:
        named: whether objects become classes; otherwise `dict[str, Any]`.
        wide: whether every mapping and sequence is admitted.
    """

    def __init__(self, *, named: bool = True, wide: bool = False) -> None:
        self.lines: list[str] = []
        self._named = named
        self._list = "Sequence" if wide else "list"
        self._dict = "Mapping" if wide else "dict"
        self._count = 0

    def of(self, schema: JSON, root: JSONObject, name: str, depth: int = DEPTH) -> str:
        """Return the type of a schema; `Any` if it says too much or nothing."""
        if not isinstance(schema, dict) or depth <= 0:
            return "Any"
        match schema:
            case {"const": value}:
                return _literal([value])
            case {"enum": [*values]}:
                return _literal(values)
            case {"$ref": str(reference)}:
                target = _target(reference, root)
                return "Any" if target is None or len(schema) > 2 else self.of(target, root, name, depth - 1)
            case {"anyOf": [*branches]} | {"oneOf": [*branches]}:
                return self._union(branches, root, name, depth)
            case {"allOf": _} | {"not": _} | {"if": _} | {"patternProperties": _}:
                return "Any"
            case {"type": [*kinds]}:
                return self._union([{**schema, "type": kind} for kind in kinds], root, name, depth)
            case {"type": "array", **rest}:
                items = rest.get("items")
                inner = "Any" if "prefixItems" in rest else self.of(items, root, f"{name}_item", depth - 1)
                return f"{self._list}[{inner}]"
            case {"type": "object"}:
                return self._object(schema, root, name, depth)
            case {"type": str(kind)}:
                return _PLAIN.get(kind, "Any")
            case _:
                return "Any"

    def _union(self, branches: list[JSON], root: JSONObject, name: str, depth: int) -> str:
        if not 0 < len(branches) <= _UNION:
            return "Any"
        found = list(dict.fromkeys(self.of(one, root, f"{name}_{n}", depth - 1) for n, one in enumerate(branches)))
        return "Any" if "Any" in found else " | ".join(found)

    def _object(self, schema: JSONObject, root: JSONObject, name: str, depth: int) -> str:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(properties, dict) or not properties:
            inner = self.of(more, root, f"{name}_value", depth - 1) if isinstance(more, dict) else "Any"
            return f"{self._dict}[str, {inner}]"
        if not self._named or len(properties) > FIELDS or isinstance(more, dict):
            return f"{self._dict}[str, Any]"
        needed = schema.get("required")
        required = needed if isinstance(needed, list) else []
        fields: list[str] = []
        for key, value in properties.items():
            kind = self.of(value, root, f"{name}_field", depth - 1)
            fields.append(f"{key!r}: {kind if key in required else f'NotRequired[{kind}]'}")
        self._count += 1
        made = f"T{self._count}_{name}"[:80]
        self.lines.append(f"{made} = TypedDict({made!r}, {{{', '.join(fields)}}})")
        return made


def _literal(values: list[JSON]) -> str:
    if not 0 < len(values) <= _LITERALS or not all(isinstance(one, str | int) or one is None for one in values):
        return "Any"
    return f"Literal[{', '.join(map(repr, values))}]"


def _target(reference: str, root: JSONObject) -> JSON:
    """What a local reference such as `#/$defs/x` refers to; None if it is another one, or refers to nothing."""
    if not reference.startswith("#/"):
        return root if reference == "#" else None
    found: JSON = root
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found
