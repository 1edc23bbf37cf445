"""The decorator for context message handlers in tool files, and the data message that an activity
can return.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, get_args

from ideabridge.tools.errors import ArgumentError, ToolDefinitionError
from ideabridge.tools.keywords import show

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

MESSAGE_TYPES: Final = (
    "text",
    "data",
    "input",
    "state",
    "tool",
    "plan",
    "error",
    "correction",
    "call",
)
"""The built-in types of context messages. A data message cannot use these names for its kind."""

LONGEST_KIND: Final = 200

# -- handlers --------------------------------------------------------------------------------------

MessageHandler: TypeAlias = Callable[[Any, Any], None]
"""Handles one message: a function of a `Message` and a `Draft` from `ideabridge.bridge`."""

HANDLED: Final = "__ideabridge_message__"
"""The attribute that stores the message type on a decorated handler."""

Handling = TypeVar("Handling", bound=MessageHandler)


def message_handler(kind: str) -> Callable[[Handling], Handling]:
    """Register a function as the handler of `{"type": kind, ...}` messages.

    `load_tool_file` finds the handler in a file of tools, and a `Toolbox` accepts it like a tool. A
    `Bridge` with these tools then handles such messages. The function remains callable as before.
    If the kind is a built-in type, the function replaces the built-in handler.

    Args:
        kind: the type of the messages.

    Raises:
        ToolDefinitionError: the kind is not a string, or the decorated object is not a plain
            function.
    """
    if not isinstance(kind, str) or not 0 < len(kind) <= LONGEST_KIND:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolDefinitionError(
            "message_handler: expected the type of the messages, as text: "
            f'@message_handler("kind"); found {kind!r}'
        )

    def decorate(function: Handling) -> Handling:
        item: object = function
        if not inspect.isfunction(item) or inspect.iscoroutinefunction(item):
            raise ToolDefinitionError(
                f"message_handler({kind!r}): expected a plain function that takes a message and a "
                f"draft,  found {function!r}"
            )
        setattr(function, HANDLED, kind)
        return function

    return decorate


def handled_by(item: object) -> str | None:
    """Return the message type that a decorated function handles, or None for anything else."""
    kind = getattr(item, HANDLED, None)
    return kind if isinstance(kind, str) else None


# -- messages of activities ------------------------------------------------------------------------

Data = TypeVar("Data")


class DataMessage(Generic[Data]):
    """A data message for an activity to return: `DataMessage("ok", {"room": 4})`.

    The run adds the message to the context of all subsequent Requests, and calls listed after this
    one can read the data at `†data.KIND`. A plan can therefore branch on it: `†data.ok.room ||
    †data.failed.reason`. The result of the call itself, even in a program, is only the data, which
    is checked against the return annotation and written to `_outputPath`. If data of this kind
    already exists, the new data is merged into it.

    In a return annotation, `DataMessage[Room]` declares the data: `-> DataMessage[Room] |
    DataMessage[Problem]`.

    Args:
        kind: the kind of the data: any string except a built-in message type such as `input` or
            `error`.
        data: the data: JSON, or a value that pydantic can convert to JSON.
        description: what the data means, for the mind that reads it.

    Raises:
        ArgumentError: the kind or the description is not a string, or the kind is a built-in type.
    """

    __slots__ = ("data", "description", "kind")

    def __init__(self, kind: str, data: Data, description: str | None = None) -> None:
        _check_text("kind", kind)
        _check_text("description", "" if description is None else description)
        if not kind or len(kind) > LONGEST_KIND:
            raise ArgumentError(
                f"DataMessage: kind: expected 1 to {LONGEST_KIND} characters, found {len(kind):,}"
            )

        if kind in MESSAGE_TYPES:
            raise ArgumentError(
                f"DataMessage: kind: {show(kind)} is a built-in type of message; choose "
                "another name for the data"
            )

        self.kind = kind
        self.data = data
        self.description = description

    def __repr__(self) -> str:
        return f"DataMessage({self.kind!r}, {self.data!r})"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of the data, because a message in a return annotation stands for its
        data.
        """
        from pydantic_core import core_schema

        declared: tuple[Any, ...] = get_args(source)
        if declared:
            return handler.generate_schema(declared[0])
        return core_schema.any_schema()


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ArgumentError.of(f"DataMessage: {name}", "text", value)
