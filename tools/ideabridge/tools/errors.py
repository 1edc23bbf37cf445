"""The base class of ideabridge's errors, and one class for each cause.

Every message says what is wrong, where, and what was expected. Models and people can see messages,
so they contain no secrets and no tracebacks.
"""

from __future__ import annotations

from typing import Literal, Self, TypeAlias

Outcome: TypeAlias = Literal["not_run", "failed", "unknown", "ran"]
"""The outcome of a call that ends with an error. `not_run`: the call was not sent. `failed`: the
tool, or the program that runs it, reported a failure. `unknown`: the call was sent, but there was
no response. `ran`: the call ran, but its result cannot be used.
"""


class IdeabridgeError(Exception):
    """The base class of every error that ideabridge raises deliberately.

    Attributes:
        outcome: the outcome of a call that ends with this error.
    """

    outcome: Outcome = "failed"


class ArgumentError(IdeabridgeError, TypeError):
    """Raised when a Python program passes an argument of the wrong type. The message says what was
    expected and what was found.
    """

    @classmethod
    def of(cls, name: str, expected: str, value: object, hint: str = "") -> Self:
        """Create the error for the argument `name`. `hint` says what to pass instead."""
        if isinstance(value, bool | int | float | str | None):
            actual = repr(value)
            if len(actual) > 60:
                actual = f"{actual[:57]}..."
        elif isinstance(value, type):
            actual = f"the class {value.__name__}"
        else:
            actual = type(value).__name__

        message = f"{name}: expected {expected}, found {actual}"
        if hint:
            message = f"{message}; {hint}"
        return cls(message)


class InvalidJSONError(IdeabridgeError):
    """Raised when a string or a Python value is not JSON as defined in `encoding` (for example NaN,
    surrogates, other types).
    """


class LimitExceededError(IdeabridgeError):
    """Raised when a size, depth or count of external data exceeds its limit."""


class ResultLimitError(LimitExceededError):
    """Raised when the result of a call exceeds its limit. The call ran, but its result is
    discarded.
    """

    outcome = "ran"


class SchemaError(IdeabridgeError):
    """Raised when a JSON Schema is invalid or cannot be compiled."""


class ValueMismatchError(IdeabridgeError):
    """Raised when a value does not satisfy its JSON Schema. The message lists paths, each with what
    was found and what was expected.
    """


class ToolDefinitionError(IdeabridgeError):
    """Raised when a Python function or a definition cannot become a Tool."""


class ToolFileError(IdeabridgeError):
    """Raised when a file of Python tools cannot be loaded."""


class ToolFileBusyError(ToolFileError):
    """Raised when a file of Python tools cannot be loaded yet, because an earlier import has not
    ended.
    """


class UnknownToolError(IdeabridgeError):
    """Raised when no tool has the given name. The message suggests the nearest names."""


class ActivityError(IdeabridgeError):
    """Raised by an activity to fail its call with a message for the mind."""


class UnknownEffectError(ActivityError):
    """Raised by an activity that cannot know whether its action took effect, for example because a
    request got no response.

    The call then ends with an unknown outcome, as after a crash.
    """

    outcome = "unknown"
