"""Arguments of own tools: read leniently where models always err, then checked (DESIGN 4.2, 6)."""

from __future__ import annotations

from typing import Any, Final, cast

from ideabridge.server.own_tools import OWN_TOOLS
from ideabridge.tools.encoding import JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator

# These have rules of their own, which read more than one shape and say more.
_READ_ELSEWHERE: Final = ("solution", "calls")

_TYPES: Final[dict[str, type[Any]]] = {"object": dict, "array": list}


def _lenient(schema: JSONObject) -> JSONObject:
    properties = dict(cast("JSONObject", schema["properties"]))
    for name in _READ_ELSEWHERE:
        if name in properties:
            properties[name] = {}
    return {**schema, "properties": properties}


_VALIDATORS: Final = {
    str(tool["name"]): Validator(_lenient(tool["inputSchema"]), what=f"arguments of {tool['name']}")
    for tool in OWN_TOOLS
}

_STRUCTURED: Final = {
    str(tool["name"]): {
        key: _TYPES[schema["type"]]
        for key, schema in tool["inputSchema"]["properties"].items()
        if schema.get("type") in _TYPES and key not in _READ_ELSEWHERE
    }
    for tool in OWN_TOOLS
}
"""Tool -> the parameters that are objects or arrays."""


def read_arguments(name: str, arguments: JSONObject) -> JSONObject:
    """The arguments of a call of an own tool.

    Objects and arrays that a model wrote as JSON text are parsed; a null stands for an absent argument.

    Raises:
        ValueMismatchError: they do not satisfy the tool's parameters; path, found and expected of every problem.
    """
    structured = _STRUCTURED[name]
    result: JSONObject = {}
    for key, value in arguments.items():
        if value is None:
            continue
        kind = structured.get(key)
        if kind is not None and isinstance(value, str):
            try:
                parsed = decode(value, what=key)
            except IdeabridgeError:
                # The check tells what was expected.
                parsed = None
            if isinstance(parsed, kind):
                result[key] = parsed
                continue
        result[key] = value
    _VALIDATORS[name].check(result)
    return result
