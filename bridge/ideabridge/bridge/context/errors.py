"""Errors of contexts, references and state."""

from __future__ import annotations

from ideabridge.tools.errors import IdeabridgeError


class MessageError(IdeabridgeError):
    """Raised when a message in a context is malformed.

    The error says where, what was found and what was expected.
    """


class HandlerError(IdeabridgeError):
    """Raised when a message handler fails, or produces an impossible Request. The run is
    interrupted, and continues once its handlers work.
    """


class ReferenceSyntaxError(IdeabridgeError):
    """Raised when a reference (a string that starts with one dagger) or an output path is
    malformed.
    """


class StateWriteError(IdeabridgeError):
    """Raised when a result cannot be written to its output path, for example because the path leads
    through a scalar or past the end of an array.
    """


class ClosedStateError(StateWriteError):
    """Raised when the schema of the state does not allow the path or the value of a write."""


class ExplanationError(IdeabridgeError):
    """Raised when an explanation of a value is malformed. The error says where, and what was
    expected.
    """
