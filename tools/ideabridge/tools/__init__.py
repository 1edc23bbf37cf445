"""Tools, activities, and the schemas composed from them.

Most names are imported when they are first used, because pydantic and the validators take long to import.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ideabridge.tools.errors import (
    ActivityError,
    ArgumentError,
    IdeabridgeError,
    InvalidJSONError,
    LimitExceededError,
    SchemaError,
    ToolDefinitionError,
    ToolFileError,
    UnknownEffectError,
    UnknownToolError,
    ValueMismatchError,
)

if TYPE_CHECKING:
    from ideabridge.tools.builtins import builtin_toolbox
    from ideabridge.tools.compose import admit_references, call_schema, solution_schema, wrap_output
    from ideabridge.tools.decorator import tool, tool_from
    from ideabridge.tools.encoding import JSON, JSONLike, JSONObject, ObjectLike
    from ideabridge.tools.keywords import Problem
    from ideabridge.tools.reading import read_solution
    from ideabridge.tools.rename import rename_meta_parameters
    from ideabridge.tools.schema import Validator, inline_refs
    from ideabridge.tools.tool import (
        META_PROPERTIES,
        Activity,
        ActivityContext,
        ActivityFunction,
        Annotations,
        Definition,
        Tool,
        ToolKey,
    )
    from ideabridge.tools.toolbox import Toolbox, load_tool_file

__all__ = [
    "JSON",
    "META_PROPERTIES",
    "Activity",
    "ActivityContext",
    "ActivityError",
    "ActivityFunction",
    "Annotations",
    "ArgumentError",
    "Definition",
    "IdeabridgeError",
    "InvalidJSONError",
    "JSONLike",
    "JSONObject",
    "LimitExceededError",
    "ObjectLike",
    "Problem",
    "SchemaError",
    "Tool",
    "ToolDefinitionError",
    "ToolFileError",
    "ToolKey",
    "Toolbox",
    "UnknownEffectError",
    "UnknownToolError",
    "Validator",
    "ValueMismatchError",
    "admit_references",
    "builtin_toolbox",
    "call_schema",
    "inline_refs",
    "load_tool_file",
    "read_solution",
    "rename_meta_parameters",
    "solution_schema",
    "tool",
    "tool_from",
    "wrap_output",
]

_HOMES: Final = {
    "builtins": ("builtin_toolbox",),
    "compose": ("admit_references", "call_schema", "solution_schema", "wrap_output"),
    "decorator": ("tool", "tool_from"),
    "encoding": ("JSON", "JSONLike", "JSONObject", "ObjectLike"),
    "keywords": ("Problem",),
    "reading": ("read_solution",),
    "rename": ("rename_meta_parameters",),
    "schema": ("Validator", "inline_refs"),
    "tool": (
        "Activity",
        "ActivityContext",
        "ActivityFunction",
        "Annotations",
        "Definition",
        "META_PROPERTIES",
        "Tool",
        "ToolKey",
    ),
    "toolbox": ("Toolbox", "load_tool_file"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def _load(name: str) -> Any:
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _load(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `tool` the decorator: importing the module `ideabridge.tools.tool` would replace it by that module."""

    @property
    def tool(self) -> Any:
        return _load("tool")

    @tool.setter
    def tool(self, value: object) -> None:
        pass


sys.modules[__name__].__class__ = _Package
