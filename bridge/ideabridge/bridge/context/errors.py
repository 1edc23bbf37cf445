"""Errors of contexts, references and state."""

from __future__ import annotations

from ideabridge.tools.errors import IdeabridgeError


class MessageError(IdeabridgeError):
    """A context message that is not one: the text says which, what was found and what was expected."""


class ReferenceSyntaxError(IdeabridgeError):
    """A string that starts with a dagger and is not a reference, or an output path that is none."""


class StateWriteError(IdeabridgeError):
    """A result that cannot be written where its call says (through a scalar, past the end of an array, ...)."""


class ClosedStateError(StateWriteError):
    """A write to a path, or of a value, that the schema of the state does not allow."""
