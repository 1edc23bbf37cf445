"""Errors of minds that ask a model. Messages contain what the provider said, bounded."""

from __future__ import annotations

from ideabridge.bridge.context.mind import MindError
from ideabridge.tools.errors import IdeabridgeError


class ModelSetupError(MindError):
    """The model cannot be asked at all: a package, a key or the name is missing or wrong."""


class ModelRefusalError(MindError):
    """The endpoint refuses the Request; sending it again would not help."""


class SchemaRefusalError(IdeabridgeError):
    """The endpoint refuses the Request, maybe only for its schema, or for the way it is asked for JSON.

    Attributes:
        certain: the message speaks of the schema.
    """

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain


class ModelUnavailableError(IdeabridgeError):
    """The endpoint cannot be reached, is overloaded or failed; it may answer later.

    Attributes:
        status: the HTTP status; None: there was no response.
        retry_after: seconds it asked to wait; None: it did not say.
    """

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ModelTimeoutError(IdeabridgeError):
    """The answer took too long, or nothing came of it for too long."""


class ModelStoppedError(IdeabridgeError):
    """The model stopped before its answer was whole: at the limit of tokens, or by a content filter."""


class MalformedAnswerError(IdeabridgeError):
    """The model gave no JSON object, also after it was told."""
