"""Errors: one base class, one class per cause.

Every message says what is wrong, where, and what was expected. Models and people may see it, so it contains no secrets
and no tracebacks.
"""

from __future__ import annotations

from typing import Literal, Self, TypeAlias

Outcome: TypeAlias = Literal["not_run", "failed", "unknown", "ran"]
"""What an error says about the call that it ends. `not_run`: nothing of it was sent. `failed`: the tool, or who runs
it, reported a failure. `unknown`: it was sent, and no answer came. `ran`: it ran, and its result cannot be used.
"""


class IdeabridgeError(Exception):
    """Base of every error ideabridge raises on purpose.

    Attributes:
        outcome: what is known of the call that the error ends; see `Outcome`.
    """

    outcome: Outcome = "failed"


class ArgumentError(IdeabridgeError, TypeError):
    """An argument of the wrong kind, given by a Python program. The message says what was expected and found."""

    @classmethod
    def of(cls, name: str, expected: str, value: object, hint: str = "") -> Self:
        """The error for the argument `name`; `hint` says what to write instead."""
        text = repr(value) if isinstance(value, bool | int | float | str | None) else ""
        kind = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        found = (text if len(text) <= 60 else f"{text[:57]}...") or kind
        return cls(f"{name}: expected {expected}, found {found}{f'; {hint}' if hint else ''}")


class InvalidJSONError(IdeabridgeError):
    """Text or a Python value that is not JSON as `encoding` defines it (NaN, surrogates, other types)."""


class LimitExceededError(IdeabridgeError):
    """A size, depth or count from outside is over its bound."""


class ResultLimitError(LimitExceededError):
    """The result of a call is over its bound: the call ran, and its result is not kept."""

    outcome = "ran"


class SchemaError(IdeabridgeError):
    """A JSON Schema that is itself invalid or cannot be compiled."""


class ValueMismatchError(IdeabridgeError):
    """A value does not satisfy its JSON Schema. The message lists path, found and expected."""


class ToolDefinitionError(IdeabridgeError):
    """A Python function or definition that cannot become a Tool."""


class ToolFileError(IdeabridgeError):
    """A file of tools that cannot be loaded."""


class UnknownToolError(IdeabridgeError):
    """A tool name no registry knows; the message names the nearest ones."""


class ActivityError(IdeabridgeError):
    """Raised by an activity to fail its call with a message for the mind."""


class UnknownEffectError(ActivityError):
    """Raised by an activity that has begun something and cannot tell whether it happened: a request that was sent and
    not answered, say. Its call ends with an unknown outcome, as after a crash.
    """

    outcome = "unknown"
