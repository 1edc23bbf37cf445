"""Identity: which part of a tool's definition makes it the tool that was meant, and how two definitions differ.

A call means one tool: that of one module, under one name, with one definition. The *essence* of a definition is what a
call relies on: module, name, schemas and behaviour hints. The rest is prose, which may change and differ between
machines: descriptions, titles, and those keywords of a schema that make no value valid or invalid.
"""

from __future__ import annotations

from typing import Final, cast
from urllib.parse import unquote

from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import REFERRING, Place, map_schemas, show, show_path

ANNOTATION_KEYWORDS: Final = frozenset(
    {"title", "description", "examples", "default", "$comment", "deprecated", "readOnly", "writeOnly"}
)
"""Keywords that describe values and constrain none; `x-...` are the same. A changed `default` is therefore reported and
does not block: it says what the server does without a value, and the server may do otherwise at any time."""

_SETS: Final = frozenset({"required", "enum", "type"})
"""Keywords whose array is a set: some servers list it in another order after each start."""

MAX_DIFFERENCES: Final = 12
"""Lines that show how two definitions differ."""


class ToolChangedError(IdeabridgeError):
    """A tool is not the one that was meant any more: its definition differs. The message shows the difference."""

    outcome = "not_run"


def essence_of(
    module: str, name: str, parameters: JSONObject, output: JSONObject | None, hints: JSONObject
) -> JSONObject:
    """What a call of a tool relies on, with sorted keys: `{"module", "name", HINT..., "parameters", "output"}`.

    Args:
        module: its module; "" for a tool of this process.
        name: its name at the module.
        parameters: JSON Schema of its parameters.
        output: JSON Schema of its result, as declared; None where it declares none.
        hints: behaviour hints by their MCP names, those that are said.
    """
    schemas: JSONObject = {"parameters": constraints_of(parameters)}
    if output is not None:
        schemas["output"] = constraints_of(output)
    return cast("JSONObject", in_one_order({"module": module, "name": name, **hints, **schemas}))


def digest(value: JSON) -> str:
    """SHA-256 of a value in which the order of keys counts for nothing."""
    return content_hash(in_one_order(value))


def in_one_order(value: JSON) -> JSON:
    """A copy with the keys of every object sorted."""
    if isinstance(value, dict):
        return {key: in_one_order(value[key]) for key in sorted(value)}
    return [in_one_order(item) for item in value] if isinstance(value, list) else value


def constraints_of(schema: JSONObject) -> JSON:
    """A schema without its annotation keywords. A schema that refers to a part of one of them stays whole: there it
    does constrain values.
    """
    return schema if _refers_to_annotations(schema) else map_schemas(schema, _constraints)


def _constraints(schema: JSONObject) -> JSONObject:
    kept: JSONObject = {}
    for keyword, value in schema.items():
        if keyword in ANNOTATION_KEYWORDS or keyword.startswith("x-"):
            continue
        is_set = keyword in _SETS and isinstance(value, list)
        kept[keyword] = sorted(cast("list[JSON]", value), key=digest) if is_set else value
    return kept


def _refers_to_annotations(schema: JSONObject) -> bool:
    stack: list[JSON] = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for word in REFERRING:
                target = item.get(word)
                parts = unquote(target).split("/") if isinstance(target, str) else []
                if any(part in ANNOTATION_KEYWORDS or part.startswith("x-") for part in parts):
                    return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def differences(then: JSON, now: JSON) -> list[str]:
    """How two essences differ, a line for each part: `readOnlyHint: was true, now absent`; at most 12 lines."""
    found: list[str] = []
    _compare(then, now, (), found)
    if len(found) > MAX_DIFFERENCES:
        found[MAX_DIFFERENCES - 1 :] = [f"and {len(found) - MAX_DIFFERENCES + 1} more"]
    return found


class _Absent:
    """Stands where one of two definitions has nothing."""


_ABSENT: Final = _Absent()


def _compare(then: JSON | _Absent, now: JSON | _Absent, place: Place, found: list[str]) -> None:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*then, *now)):
            _compare(then.get(key, _ABSENT), now.get(key, _ABSENT), (*place, key), found)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (before, after) in enumerate(zip(then, now, strict=True)):
            _compare(before, after, (*place, index), found)
    elif isinstance(then, _Absent) or isinstance(now, _Absent) or digest(then) != digest(now):
        found.append(f"{show_path(place)}: was {_shown(then)}, now {_shown(now)}")


def _shown(value: JSON | _Absent) -> str:
    return "absent" if isinstance(value, _Absent) else show(value)
