"""What a tool's definition fixes of its calls: where they run, by which code, and what comes back (DESIGN 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ToolDefinitionError
from ideabridge.tools.tool import ANONYMOUS, Tool

_FIXABLE: Final = ("_module", "_activity", "_output")


def with_fixed(tool: Tool, beside: JSONObject | None = None) -> Tool:
    """The tool with what its definition fixes taken out of its parameters.

    `_module` and `_activity` are constants: `{"const": "anonymous"}` among the properties of the parameters, or
    `"anonymous"` beside the parameters. `_output` is the schema of the result, in either place; where that is a
    constant, a call without code has this result.

    Args:
        tool: as it was defined.
        beside: the members that stand beside the parameters; others than these three are left alone.

    Raises:
        ToolDefinitionError: one of them is no constant, is given twice, or names a module that a tool of here cannot
            be in.
    """
    properties = tool.parameters.get("properties")
    inside: JSONObject = {}
    if isinstance(properties, dict):
        inside = {name: value for name, value in properties.items() if name in _FIXABLE}
    given: JSONObject = {name: value for name, value in (beside or {}).items() if name in _FIXABLE}
    if not inside and not given:
        return tool
    label = f"tool {tool.name[:100]!r}"
    for name in inside:
        if name in given:
            raise ToolDefinitionError(f"{label}: {name} is given twice; give it once")
        found = inside[name]
        given[name] = found if name == "_output" or not isinstance(found, dict) else found.get("const")
    output = given.get("_output")
    if "_output" in given and not isinstance(output, dict):
        raise ToolDefinitionError(f"{label}: _output must be a JSON Schema, which is an object")
    if "_output" in given and tool.output is not None:
        raise ToolDefinitionError(f"{label}: _output and output are the same; give one of them")
    module = _constant(label, given, "_module")
    activity = _constant(label, given, "_activity")
    if module not in (None, ANONYMOUS):
        raise ToolDefinitionError(
            f"{label}: _module: found {module[:100]!r}, expected {ANONYMOUS!r}; the tools of servers and ideas are"
            " offered by themselves"
        )
    if activity is not None and tool.activity not in (None, activity):
        raise ToolDefinitionError(f"{label}: _activity and activity are the same; give one of them")
    return replace(
        tool,
        parameters=_without(tool.parameters),
        output=output if isinstance(output, dict) else tool.output,
        activity=activity or tool.activity,
        clean=module == ANONYMOUS or tool.clean,
    )


def _constant(label: str, given: JSONObject, name: str) -> str | None:
    value = given.get(name)
    if name in given and (not isinstance(value, str) or not value):
        raise ToolDefinitionError(f'{label}: {name} must be a constant, which is text: {{"const": "NAME"}}')
    return value if isinstance(value, str) else None


def _without(parameters: JSONObject) -> JSONObject:
    found: JSONObject = {**parameters}
    properties, required = parameters.get("properties"), parameters.get("required")
    if isinstance(properties, dict):
        found["properties"] = {name: value for name, value in properties.items() if name not in _FIXABLE}
    if isinstance(required, list):
        kept: list[JSON] = [name for name in required if name not in _FIXABLE]
        found["required"] = kept
    return found
