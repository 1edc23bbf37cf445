"""Toolbox: the two registries, tools and activities (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, NoneType
from typing import Any

from ideabridge.tools.activity import Activity, definition_of
from ideabridge.tools.errors import ArgumentError, ToolDefinitionError, UnknownToolError
from ideabridge.tools.fixed import with_fixed
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import Tool, check_definition


def _not_a_tool(item: object) -> str:
    text = f"expected a Tool, an Activity or a typed function, found {type(item).__name__}"
    return f"{text}; write Toolbox(f, g)" if isinstance(item, Iterable) else text


def _check_kinds(tool: Tool) -> None:
    """Programs without a type checker give what they like.

    Raises:
        ToolDefinitionError: a part of the definition is of another kind.
    """
    schema = 'an object (a dict); a schema is an object such as {"type": "object"}'
    parts: list[tuple[str, object, type | tuple[type, ...], str]] = [
        ("name", tool.name, str, "text"),
        ("description", tool.description, str, "text"),
        ("parameters", tool.parameters, dict, schema),
        ("output", tool.output, (dict, NoneType), schema),
    ]
    for part, value, kind, expected in parts:
        if not isinstance(value, kind):
            raise ToolDefinitionError(str(ArgumentError.of(f"tool {tool.name!r}, {part}", expected, value)))


class Toolbox:
    """Tools and activities by name. The last definition of a name wins, in the place of the first.

    Args:
        items: as for `add`.
    """

    def __init__(self, *items: Tool | Activity | Callable[..., Any]) -> None:
        self._tools: dict[str, Tool] = {}
        self._activities: dict[str, Activity] = {}
        self.add(*items)

    def add(self, *items: Tool | Activity | Callable[..., Any]) -> None:
        """Register tools, activities, and functions, which bring both.

        Args:
            items: a function decorated by `@tool`, or any typed function (see `tool_from`).

        Raises:
            ToolDefinitionError: a function cannot become a tool, a Tool belongs to a module, or a schema of it is
                invalid.
        """
        for item in items:
            if isinstance(item, Tool):
                if item.module is not None:
                    raise ToolDefinitionError(
                        f"tool {item.name!r} belongs to module {item.module!r}; a toolbox holds tools without a module"
                    )
                _check_kinds(item)
                item = with_fixed(item)
                check_definition(item)
                self._tools[item.name] = item
            elif isinstance(item, Activity):
                self._activities[item.name] = item
            elif callable(item):
                definition = definition_of(item)
                if definition is None:
                    from ideabridge.tools.decorator import tool_from

                    definition = tool_from(item)
                self.add(definition.tool, definition.activity)
            else:
                raise ToolDefinitionError(_not_a_tool(item))

    def update(self, other: Toolbox) -> None:
        """Add everything in `other`; its definitions win."""
        self._tools.update(other.tools)
        self._activities.update(other.activities)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name, in the order they were first added."""
        return MappingProxyType(self._tools)

    @property
    def activities(self) -> Mapping[str, Activity]:
        """The activities by name, in the order they were first added."""
        return MappingProxyType(self._activities)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def tool(self, name: str) -> Tool:
        """The tool of this name.

        Raises:
            UnknownToolError: there is none; the message names the nearest.
        """
        found = self._tools.get(name)
        if found is None:
            raise UnknownToolError(f"unknown tool {name!r}.{did_you_mean(name, self._tools)}")
        return found

    def activity(self, name: str) -> Activity:
        """The activity of this name.

        Raises:
            UnknownToolError: there is none; the message names the nearest.
        """
        found = self._activities.get(name)
        if found is None:
            raise UnknownToolError(f"unknown activity {name!r}.{did_you_mean(name, self._activities)}")
        return found

    def activity_for(self, tool: Tool, named: str | None = None) -> Activity | None:
        """The code that runs a call of `tool`: named by the call, by the tool, or the tool's namesake.

        Args:
            tool: the tool called.
            named: the call's `_activity`.

        Returns:
            The activity; None where the call is latent, or the tool belongs to a module, which runs it itself.

        Raises:
            UnknownToolError: the call or the tool names an activity there is none of.
        """
        if named is not None:
            return self.activity(named)
        if tool.module is not None:
            return None
        if tool.activity is not None:
            return self.activity(tool.activity)
        return self._activities.get(tool.name)

    def is_latent(self, tool: Tool) -> bool:
        """Whether nothing here runs `tool`, so that the mind writes its result (`_output`)."""
        return tool.module is None and self.activity_for(tool) is None
