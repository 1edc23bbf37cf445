"""Errors of contexts, references and state."""

from __future__ import annotations

from ideabridge.tools.errors import IdeabridgeError


class MessageError(IdeabridgeError):
    """A malformed message of a context; the text contains its place, what was found and
    what was expected.
    """


class HandlerError(IdeabridgeError):
    """A handler of messages failed, or left a Request that cannot be made. The run is interrupted,
    and continues once its handlers work.
    """


class ReferenceSyntaxError(IdeabridgeError):
    """A malformed reference (a string that starts with one dagger) or output path."""


class StateWriteError(IdeabridgeError):
    """A result cannot be written to its output path (through a scalar, past the end of
    an array, ...).
    """


class ClosedStateError(StateWriteError):
    """The schema of the state does not allow the path or the value of a write."""


class ExplanationError(IdeabridgeError):
    """A malformed explanation of a value; the text contains its place and what was expected."""
