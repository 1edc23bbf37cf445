"""The registries of tools and activities, and a reader for the constants in tool definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, NoneType
from typing import Any, Final, TypeVar, cast

from ideabridge.tools.encoding import JSONObject, object_or_empty
from ideabridge.tools.errors import (
    ArgumentError,
    ToolDefinitionError,
    UnknownToolError,
)
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.message import MessageHandler, handled_by
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import ANONYMOUS, IDEA, Activity, Tool, check_definition, definition_of
from ideabridge.tools.typed import read_as

_FIXABLE: Final = ("_module", "_activity", "_output")
_Registered = TypeVar("_Registered", Tool, Activity)


def with_fixed(tool: Tool, beside: JSONObject | None = None) -> Tool:
    """Return the tool without the parameters that its definition fixes.

    A definition can fix `_module` and `_activity` as constants: `{"const": "anonymous"}` among the
    properties of the parameters, or `"anonymous"` in `beside`, the members next to the parameters.
    `_output`, in either place, is the schema of the result. If that schema is a constant, the
    constant is the result of a call without code.

    `_module` is a clean room (`anonymous`), `idea:NAME`, or a configured server. `_activity` names
    the tool of the server. By default, this is the tool with the same name. The tool of a server or
    idea is looked up later, when calls are made. The returned tool therefore has `name` and
    `module`, but no `passes_to` yet.

    Raises:
        ToolDefinitionError: one of these members is not a constant or occurs twice, or the members
            contradict each other.
    """
    inside = object_or_empty(tool.parameters.get("properties"))
    outside: JSONObject = {
        name: value for name, value in (beside or {}).items() if name in _FIXABLE
    }
    if inside.keys().isdisjoint(_FIXABLE) and not outside:
        return tool

    label = f"tool {tool.name[:100]!r}"
    fixed = _Fixed.read(label, inside, outside)
    _expect_consistent(label, fixed, tool)
    parameters: JSONObject = {**tool.parameters}
    if inside:
        parameters["properties"] = {
            name: schema for name, schema in inside.items() if name not in _FIXABLE
        }

    if "required" in parameters:
        required = read_as(SchemaKeywords, parameters).required
        parameters["required"] = [name for name in required if name not in _FIXABLE]

    is_clean = fixed.module == ANONYMOUS
    return replace(
        tool,
        parameters=parameters,
        output=tool.output if fixed.output is None else fixed.output,
        activity=fixed.activity or tool.activity,
        clean=is_clean or tool.clean,
        module=None if is_clean else fixed.module,
    )


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The parameters that the definition of a tool fixes; see `with_fixed`. Parameters that are not
    fixed are None.
    """

    module: str | None
    activity: str | None
    output: JSONObject | None

    @classmethod
    def read(cls, label: str, inside: JSONObject, outside: JSONObject) -> _Fixed:
        """Read the fixed parameters among the properties of the parameters, and those next to the
        parameters.

        Raises:
            ToolDefinitionError: one of them occurs twice, or is not a constant or a schema.
        """
        fixed = {**outside}
        for name, schema in inside.items():
            if name not in _FIXABLE:
                continue
            if name in fixed:
                raise ToolDefinitionError(f"{label}: {name} is given twice; give it only once")
            if name == "_output" or not isinstance(schema, dict):
                fixed[name] = schema
            else:
                fixed[name] = schema.get("const")

        output = fixed.get("_output")
        if "_output" in fixed and not isinstance(output, dict):
            raise ToolDefinitionError(f"{label}: _output must be a JSON Schema, which is an object")
        return cls(
            _constant(label, fixed, "_module"),
            _constant(label, fixed, "_activity"),
            output if isinstance(output, dict) else None,
        )


def _constant(label: str, fixed: JSONObject, name: str) -> str | None:
    value = fixed.get(name)
    if name in fixed and (not isinstance(value, str) or not value):
        raise ToolDefinitionError(f'{label}: {name} must be a constant string: {{"const": "NAME"}}')
    return value if isinstance(value, str) else None


def _expect_consistent(label: str, fixed: _Fixed, tool: Tool) -> None:
    """Raise `ToolDefinitionError` if fixed parameters contradict each other or other members of the
    definition.
    """
    if fixed.output is not None and tool.output is not None:
        raise ToolDefinitionError(
            f"{label}: _output and output mean the same thing; give only one of them"
        )

    module = fixed.module or ""
    if module.startswith(IDEA) and (fixed.activity is not None or fixed.output is not None):
        raise ToolDefinitionError(
            f"{label}: {module[:100]!r} already determines how the tool runs; leave out _activity "
            "and _output"
        )

    names_producer = module not in ("", ANONYMOUS)
    if names_producer and fixed.output is not None and "const" in fixed.output:
        raise ToolDefinitionError(
            f"{label}: _output is a constant, and _module names what produces the result; give "
            "only one of them"
        )

    if fixed.activity is not None and tool.activity not in (None, fixed.activity):
        raise ToolDefinitionError(
            f"{label}: _activity and activity mean the same thing; give only one of them"
        )


# -- toolbox ---------------------------------------------------------------------------------------


def _not_a_tool(item: object) -> str:
    text = f"expected a Tool, an Activity or a typed function, found {type(item).__name__}"
    return f"{text}; write Toolbox(f, g)" if isinstance(item, Iterable) else text


def _check_types(tool: Tool) -> None:
    """Check the types in a definition at run time, because not all programs use a type checker."""
    schema = 'an object (a dict); a schema is an object such as {"type": "object"}'
    parts: list[tuple[str, object, type | tuple[type, ...], str]] = [
        ("name", tool.name, str, "text"),
        ("description", tool.description, str, "text"),
        ("parameters", tool.parameters, dict, schema),
        ("output", tool.output, (dict, NoneType), schema),
    ]
    for part, value, kind, expected in parts:
        if not isinstance(value, kind):
            raise ToolDefinitionError(
                str(ArgumentError.of(f"tool {tool.name!r}, {part}", expected, value))
            )


class Toolbox:
    """Tools, activities and message handlers, keyed by name. A new definition replaces an earlier
    one with the same name, in the same position.

    Args:
        items: what to register, as for `add`.
    """

    def __init__(self, *items: Tool | Activity | Callable[..., Any]) -> None:
        self._tools: dict[str, Tool] = {}
        self._activities: dict[str, Activity] = {}
        self._handlers: dict[str, MessageHandler] = {}
        self.add(*items)

    def add(self, *items: Tool | Activity | Callable[..., Any]) -> None:
        """Register tools, activities, functions (which define both), and message handlers
        (`message_handler`). For functions without `@tool`, see `tool_from`.

        Raises:
            ToolDefinitionError: a function cannot become a tool, a Tool belongs to a server, or one
                of its schemas is invalid.
        """
        for item in items:
            if isinstance(item, Tool):
                if item.module is not None:
                    raise ToolDefinitionError(
                        f"tool {item.name!r} belongs to server {item.module!r}; a toolbox "
                        "holds only tools that belong to no server"
                    )
                _check_types(item)
                item = with_fixed(item)
                check_definition(item)
                self._tools[item.name] = item
            elif isinstance(item, Activity):
                self._activities[item.name] = item
            elif (kind := handled_by(item)) is not None:
                self._handlers[kind] = cast("MessageHandler", item)
            elif callable(item):
                definition = definition_of(item)
                if definition is None:
                    from ideabridge.tools.decorator import tool_from

                    definition = tool_from(item)
                self.add(definition.tool, definition.activity)
            else:
                raise ToolDefinitionError(_not_a_tool(item))

    def update(self, other: Toolbox) -> None:
        """Add everything in `other`, replacing definitions with the same names."""
        self._tools.update(other.tools)
        self._activities.update(other.activities)
        self._handlers.update(other.handlers)

    def become(self, other: Toolbox) -> None:
        """Replace everything in this toolbox with the contents of `other`.

        All code that holds this toolbox sees the new tools, but running calls keep their
        activities.
        """
        self._tools = dict(other.tools)
        self._activities = dict(other.activities)
        self._handlers = dict(other.handlers)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools, keyed by name, in the order in which they were first added."""
        return MappingProxyType(self._tools)

    @property
    def activities(self) -> Mapping[str, Activity]:
        """The activities, keyed by name, in the order in which they were first added."""
        return MappingProxyType(self._activities)

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """The message handlers, keyed by the type of message that they handle."""
        return MappingProxyType(self._handlers)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def tool(self, name: str) -> Tool:
        """Return the tool with this name.

        Raises:
            UnknownToolError: no tool has this name; the message suggests the nearest names.
        """
        return _look_up("tool", name, self._tools)

    def activity(self, name: str) -> Activity:
        """Return the activity with this name.

        Raises:
            UnknownToolError: no activity has this name; the message suggests the nearest names.
        """
        return _look_up("activity", name, self._activities)

    def activity_for(self, tool: Tool, named: str | None = None) -> Activity | None:
        """Return the activity that runs a call to `tool`.

        This is the activity that the call names in `_activity` (`named`), otherwise the one that
        the tool names, and otherwise the one with the tool's name. None means that the call is
        latent, or that the tool's server runs it.

        Raises:
            UnknownToolError: the call or the tool names an unknown activity.
        """
        if named is not None:
            return self.activity(named)
        if tool.module is not None:
            return None
        if tool.activity is not None:
            return self.activity(tool.activity)
        return self._activities.get(tool.name)


def _look_up(kind: str, name: str, registry: Mapping[str, _Registered]) -> _Registered:
    if name not in registry:
        raise UnknownToolError(f"unknown {kind} {name!r}.{did_you_mean(name, registry)}")
    return registry[name]
