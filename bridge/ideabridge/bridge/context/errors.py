"""Errors of contexts, references and state."""

from __future__ import annotations

from ideabridge.tools.errors import IdeabridgeError


class MessageError(IdeabridgeError):
    """A message in a context is malformed.

    The error says where, what was found and what was expected.
    """


class HandlerError(IdeabridgeError):
    """A message handler failed, or produced a Request that cannot be made. The run is interrupted,
    and continues once its handlers work.
    """


class ReferenceSyntaxError(IdeabridgeError):
    """A reference (a string that starts with one dagger) or an output path is malformed."""


class StateWriteError(IdeabridgeError):
    """A result cannot be written to its output path, for example because the path leads through a
    scalar or past the end of an array.
    """


class ClosedStateError(StateWriteError):
    """The state's schema does not allow the path or the value of a write."""


class ExplanationError(IdeabridgeError):
    """An explanation of a value is malformed. The error says where, and what was expected."""
