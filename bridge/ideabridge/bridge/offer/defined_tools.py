"""Read the tools that a context or a plan defines or names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.messages import Message, read_context
from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.loop.catalogue import has_wildcard
from ideabridge.bridge.plan import Plan
from ideabridge.tools.encoding import JSON, object_or_empty
from ideabridge.tools.errors import ToolDefinitionError
from ideabridge.tools.schema import check_schema
from ideabridge.tools.tool import Tool
from ideabridge.tools.toolbox import with_fixed


def named_in_messages(messages: Iterable[Message]) -> list[str]:
    """Return the names of existing tools in `tool` messages such as `{"type": "tool", "tool":
    "git_log"}`.

    Raises:
        MessageError: a name is empty, or is a pattern.
    """
    names: list[str] = []
    for message in messages:
        if message.type != "tool" or not isinstance(message.value, str):
            continue
        if not message.value or has_wildcard(message.value):
            raise MessageError(
                "a message of type 'tool': expected the name of one tool, "
                f"found {quoted(message.value)}"
            )

        names.append(message.value)

    return names


def defined_tools(messages: Iterable[Message]) -> list[Tool]:
    """Return the tools that `tool` messages define: `{"type": "tool", "tool": {"name",
    "description"?, "parameters"?, "output"?}}`, with the values that the definitions fix for calls
    (see `with_fixed`).

    A tool runs the activity named in its definition or, by default, the activity with the same name
    as the tool. If there is neither, the tool is latent. `Offer.with_defined` completes definitions
    that name a server or an idea.

    Raises:
        MessageError: a definition is malformed.
        SchemaError: a schema is invalid.
    """
    # Skip strings, because a string names an existing tool; see `named_in_messages`.
    return [
        _read_definition(message.value)
        for message in messages
        if message.type == "tool" and not isinstance(message.value, str)
    ]


def _read_definition(value: JSON) -> Tool:
    definition = object_or_empty(value)
    name = definition.get("name")
    description = definition.get("description", "")
    parameters = definition.get("parameters", {"type": "object", "properties": {}})
    output = definition.get("output")
    if not isinstance(name, str) or not name or not isinstance(description, str):
        raise MessageError("a message of type 'tool' requires a tool with a name that is a string")
    if not isinstance(parameters, dict) or not isinstance(output, dict | None):
        raise MessageError(
            f"tool {name[:100]!r}: parameters and output must be JSON Schemas, which are objects"
        )

    try:
        tool = with_fixed(Tool(name, description, parameters, output), definition)
    except ToolDefinitionError as error:
        raise MessageError(str(error)) from None

    check_schema(tool.parameters, what=f"the parameters of {name[:100]}")
    if tool.output is not None:
        check_schema(tool.output, what=f"the output of {name[:100]}")
    return tool


def defined_by_plan(plan: Plan) -> list[Tool]:
    """Return the tools that a plan defines. Raises the same errors as `defined_tools`."""
    if not plan.tools:
        return []
    return defined_tools(read_context([{"type": "tool", "tool": tool} for tool in plan.tools]))


def passing(tool: Tool, target: Tool) -> Tool:
    """Return a copy of `tool` that passes its calls to `target`.

    The copy keeps its own name and description, and its own parameters if it declares any.
    """
    has_parameters = bool(tool.parameters.get("properties"))
    return dataclasses.replace(
        target,
        name=tool.name,
        description=tool.description or target.description,
        parameters=tool.parameters if has_parameters else target.parameters,
        output=tool.output or target.output,
        remote_name=target.name_in_module,
        wire=None,
        passes_to=target,
    )
