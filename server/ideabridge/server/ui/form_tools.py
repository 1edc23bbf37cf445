"""The tools that steps of a `PlanForm` can call, with fields for their parameters and the parts of
their results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeAlias

from ideabridge.server.ui.forms import Field, fields_of
from ideabridge.server.ui.tool_texts import is_built_in
from ideabridge.server.ui.tool_titles import NO_TITLES, ToolTitles
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import SchemaKeywords, resolve
from ideabridge.tools.tool import Tool, ToolKey
from ideabridge.tools.typed import read_as

ShapeOf: TypeAlias = "Callable[[Tool], JSONObject | None]"
"""Returns the shape of a tool's latest results, or None if it is not known; see `Observed.of`."""

_LONGEST_TITLE: Final = 60

_PLAIN_NAME: Final = re.compile(r"[^\s.\[\]|&†\"]+")
"""Matches a name that a reference can contain unquoted."""


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a result.

    Attributes:
        path: the path to the part in a reference, such as `[0].id`.
        words: a description of the part, such as `id of the first item`.
    """

    path: str
    words: str


def _no_shape(_tool: Tool) -> None:
    return None


class FormTools:
    """The tools that a plan can call.

    Args:
        tools: the tools.
        shape_of: returns what is known about the results of a tool that declares no output schema.
        titles: the titles of tools.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        shape_of: ShapeOf = _no_shape,
        titles: ToolTitles = NO_TITLES,
    ) -> None:
        self.all = sorted(tools, key=attrgetter("name"))
        self._shape_of = shape_of
        self._titles = titles
        self._tools = {tool.key: tool for tool in self.all}
        self._fields: dict[ToolKey, dict[str, Field]] = {}
        self._parts: dict[ToolKey, list[ResultPart]] = {}

    def find(self, key: ToolKey) -> Tool | None:
        """Return the tool that a call refers to, or None if it is unknown. Without a server, a call
        refers to the only tool with the name.
        """
        if key in self._tools or key[0] is not None:
            return self._tools.get(key)
        named = [tool for tool in self._tools.values() if tool.name == key[1]]
        return named[0] if len(named) == 1 else None

    def title(self, key: ToolKey) -> str:
        """Return the title of a tool for people."""
        tool = self.find(key)
        title = self._titles.of(key[1], key[0]) if tool is None else self._titles.of_tool(tool)
        return title[:_LONGEST_TITLE]

    def fields(self, key: ToolKey) -> dict[str, Field]:
        """Return the field for each parameter of a tool."""
        if key not in self._fields:
            tool = self.find(key)
            schema = None if tool is None else tool.parameters
            self._fields[key] = {field.name: _with_any(field) for field in fields_of(schema)}
        return self._fields[key]

    def takes_more(self, key: ToolKey) -> bool:
        """Return whether a tool takes parameters beyond those that have fields."""
        tool = self.find(key)
        return tool is None or tool.parameters.get("additionalProperties") is not False

    def parts(self, key: ToolKey) -> list[ResultPart]:
        """Return the parts of a tool's result that are known from its definition or its latest
        calls.
        """
        if key not in self._parts:
            tool = self.find(key)
            self._parts[key] = [] if tool is None else self._parts_of(tool)
        return self._parts[key]

    def _parts_of(self, tool: Tool) -> list[ResultPart]:
        schema = tool.output
        # A built-in tool, such as `compute`, returns something else in each plan.
        if schema is None and not is_built_in(tool):
            schema = self._shape_of(tool)
        return [] if schema is None else result_parts(schema)


def _with_any(field: Field) -> Field:
    """Return the field, changed to accept text as well as JSON if its type is unknown."""
    is_any = field.kind == "json" and field.takes not in ("a list, as JSON", "an object, as JSON")
    return replace(field, kind="any", takes="text or JSON") if is_any else field


def result_parts(schema: JSONObject) -> list[ResultPart]:
    """Return the members of a value with the given schema. For a list, return its first item and
    the members of that item.
    """
    whole = _keywords(schema, schema)
    if whole.items is None:
        return [ResultPart(name, name) for name in _plain_names(whole)]

    item = _keywords(whole.items, schema)
    parts = [ResultPart("[0]", "first item")]
    parts += [ResultPart(f"[0].{name}", f"{name} of the first item") for name in _plain_names(item)]
    return parts


def _keywords(schema: JSON, root: JSONObject) -> SchemaKeywords:
    """Return the keywords of a schema or, if it is a reference, of the schema in `root` that it
    refers to.
    """
    keywords = read_as(SchemaKeywords, schema)
    if keywords.reference is None:
        return keywords
    return read_as(SchemaKeywords, resolve(root, keywords.reference))


def _plain_names(keywords: SchemaKeywords) -> list[str]:
    return [name for name in keywords.properties if _PLAIN_NAME.fullmatch(name)]
