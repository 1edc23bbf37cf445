"""Errors of minds that ask a model. They quote the provider's message only up to a limit."""

from __future__ import annotations

import re
from typing import Final

from ideabridge.bridge.context.mind import MindError
from ideabridge.tools.errors import IdeabridgeError


class ModelSetupError(MindError):
    """Raised when the model cannot be asked at all, because a package, a key or the name of the
    model is missing or wrong.
    """


class ModelRefusalError(MindError):
    """Raised when the endpoint refuses the Request, and would refuse it again."""


class ContextTooLargeError(ModelRefusalError):
    """Raised when the Request does not fit into the model's context."""


_TOO_LARGE: Final = re.compile(
    # The wording of OpenAI and of servers that speak its protocol: vLLM, Groq, Mistral and
    # DeepSeek.
    r"context_length_exceeded|maximum context length|max(imum)? (model|sequence|seq)[ _]len"
    # The wording of Anthropic, Bedrock and Google.
    r"|prompt is too long|request_too_large|input is too long|input token count|exceed\w* context limit"
    # The wording of llama.cpp, Ollama, LM Studio and others.
    r"|(exceed\w*|(larger|greater|longer) than) the (available |model'?s? )?(maximum "
    r")?context|exceed_context_size|exceed\w* (the )?(maximum )?context "
    r"(length|size|window)|context (length|window|size) (was )?exceeded|too many tokens",
    re.IGNORECASE,
)


def says_too_large(message: str) -> bool:
    """Return whether an error message from an endpoint or a client means that the Request does not
    fit into the model's context.
    """
    return _TOO_LARGE.search(message) is not None


class SchemaRefusalError(IdeabridgeError):
    """Raised when the endpoint refuses the Request, possibly only because of its schema or form.

    Attributes:
        certain: whether the endpoint's message mentions the schema.
    """

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain


class ModelUnavailableError(IdeabridgeError):
    """Raised when the endpoint cannot be reached, is overloaded or fails. It might answer later.

    Attributes:
        status: the HTTP status, or None if there was no response.
        retry_after: the number of seconds to wait, or None if the endpoint does not say.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ModelTimeoutError(IdeabridgeError):
    """Raised when the answer takes too long, or nothing arrives for too long."""


class ModelStoppedError(IdeabridgeError):
    """Raised when the model stops before the answer is complete, because of the token limit or a
    content filter.
    """


class MalformedAnswerError(IdeabridgeError):
    """Raised when the model does not return a JSON object, even after corrections."""
