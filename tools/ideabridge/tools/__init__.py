"""Define tools and activities, check the calls to them, and compose the schemas of Solutions.

Most names are imported on first use, because importing pydantic and the validators takes a long
time.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ideabridge.tools.builtins import builtin_toolbox as builtin_toolbox
    from ideabridge.tools.compose import admit_references as admit_references
    from ideabridge.tools.compose import call_schema as call_schema
    from ideabridge.tools.compose import solution_schema as solution_schema
    from ideabridge.tools.compose import wrap_output as wrap_output
    from ideabridge.tools.decorator import tool as tool
    from ideabridge.tools.decorator import tool_from as tool_from
    from ideabridge.tools.encoding import JSON as JSON
    from ideabridge.tools.encoding import JSONLike as JSONLike
    from ideabridge.tools.encoding import JSONObject as JSONObject
    from ideabridge.tools.encoding import ObjectLike as ObjectLike
    from ideabridge.tools.errors import ActivityError as ActivityError
    from ideabridge.tools.errors import ArgumentError as ArgumentError
    from ideabridge.tools.errors import IdeabridgeError as IdeabridgeError
    from ideabridge.tools.errors import InvalidJSONError as InvalidJSONError
    from ideabridge.tools.errors import LimitExceededError as LimitExceededError
    from ideabridge.tools.errors import SchemaError as SchemaError
    from ideabridge.tools.errors import ToolDefinitionError as ToolDefinitionError
    from ideabridge.tools.errors import ToolFileError as ToolFileError
    from ideabridge.tools.errors import UnknownEffectError as UnknownEffectError
    from ideabridge.tools.errors import UnknownToolError as UnknownToolError
    from ideabridge.tools.errors import ValueMismatchError as ValueMismatchError
    from ideabridge.tools.keywords import Problem as Problem
    from ideabridge.tools.message import DataMessage as DataMessage
    from ideabridge.tools.message import MessageHandler as MessageHandler
    from ideabridge.tools.message import message_handler as message_handler
    from ideabridge.tools.reading import read_solution as read_solution
    from ideabridge.tools.rename import rename_meta_parameters as rename_meta_parameters
    from ideabridge.tools.schema import Validator as Validator
    from ideabridge.tools.schema import inline_refs as inline_refs
    from ideabridge.tools.tool import META_PROPERTIES as META_PROPERTIES
    from ideabridge.tools.tool import Activity as Activity
    from ideabridge.tools.tool import ActivityContext as ActivityContext
    from ideabridge.tools.tool import ActivityFunction as ActivityFunction
    from ideabridge.tools.tool import Annotations as Annotations
    from ideabridge.tools.tool import Definition as Definition
    from ideabridge.tools.tool import Tool as Tool
    from ideabridge.tools.tool import ToolKey as ToolKey
    from ideabridge.tools.tool_files import load_tool_file as load_tool_file
    from ideabridge.tools.toolbox import Toolbox as Toolbox

_HOMES: Final = {
    "builtins": ("builtin_toolbox",),
    "compose": ("admit_references", "call_schema", "solution_schema", "wrap_output"),
    "decorator": ("tool", "tool_from"),
    "encoding": ("JSON", "JSONLike", "JSONObject", "ObjectLike"),
    "errors": (
        "ActivityError",
        "ArgumentError",
        "IdeabridgeError",
        "InvalidJSONError",
        "LimitExceededError",
        "SchemaError",
        "ToolDefinitionError",
        "ToolFileError",
        "UnknownEffectError",
        "UnknownToolError",
        "ValueMismatchError",
    ),
    "keywords": ("Problem",),
    "message": ("DataMessage", "MessageHandler", "message_handler"),
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
    "tool_files": ("load_tool_file",),
    "toolbox": ("Toolbox",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:
    # Type checkers read the imports above, because they cannot evaluate this list.
    __all__ = sorted(_HOME_OF)


def _load(name: str) -> Any:
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = _load(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


class _Package(ModuleType):
    """Keeps the name `tool` for the decorator. Without this class, importing the module
    `ideabridge.tools.tool` would replace the decorator with the module.
    """

    @property
    def tool(self) -> Any:
        return _load("tool")

    @tool.setter
    def tool(self, value: object) -> None:
        pass


sys.modules[__name__].__class__ = _Package
