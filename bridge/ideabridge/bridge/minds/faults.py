"""Faults: what pydantic-ai raises, as the errors of minds: what to do about each is decided by its class."""

from __future__ import annotations

import json
import re
from typing import Final, cast

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.exceptions import ModelUnavailableError as Overloaded

from ideabridge.bridge.minds.errors import (
    ModelRefusalError,
    ModelSetupError,
    ModelUnavailableError,
    SchemaRefusalError,
)
from ideabridge.bridge.minds.wire import fault_in
from ideabridge.tools.errors import IdeabridgeError

_LONGEST: Final = 600

_SILENT: Final = "ended without content"
"""How pydantic-ai tells of a stream in which nothing came."""

_OF_SCHEMA: Final = re.compile(
    r"response_?format|json_?schema|json_?object|\bschema|grammar|oneOf|anyOf|allOf|\$ref|\$defs|additionalProperties"
    r"|structured[ _-]?output|output_(format|config)|nesting|too complex|\bstrict\b",
    re.IGNORECASE,
)


def translate(error: Exception, place: str = "") -> IdeabridgeError:
    """The error of ours for one that pydantic-ai, or a library below it, raised.

    Args:
        error: what was raised.
        place: host and port of the endpoint; "" where nobody knows.
    """
    found = fault_in(error)
    if found is not None:
        return found
    if isinstance(error, UserError | ImportError):
        return ModelSetupError(f"the model cannot be asked: {_bounded(str(error))}")
    if isinstance(error, UnexpectedModelBehavior) and _SILENT in str(error):
        # llama-cpp-python streams no error: it says 200, then nothing.
        return SchemaRefusalError(
            "the model endpoint ended its answer without a word of it: the Request may be too long for the model's"
            " context, base_url may lead to something else, or the server failed; its log may say which",
            certain=False,
        )
    if not isinstance(error, ModelAPIError):
        # The libraries trust what they read: a chunk that is no object is an AttributeError to them.
        said = _bounded(f"{type(error).__name__}: {error}")
        return ModelUnavailableError(f"what the model endpoint sent cannot be read: {said}")
    said = _said(error)
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    where = f"the model endpoint answered {status}" if status is not None else "the model endpoint failed"
    if isinstance(error, ModelAuthenticationError | ModelQuotaExceededError):
        return ModelRefusalError(f"{where}: {said} (is the key right, and may it use this model?)")
    if isinstance(error, ModelNotFoundError):
        return ModelRefusalError(f"{where}: {said} (is the model's name right, and base_url?)")
    if isinstance(error, ModelContextWindowExceededError):
        return ModelRefusalError(f"{where}: the Request is too long for this model: {said}")
    if isinstance(error, ModelConnectionError):
        at = f" at {place}" if place else ""
        return ModelUnavailableError(f"the model endpoint cannot be reached{at}: {said}", retry_after=error.retry_after)
    if _OF_SCHEMA.search(said) and not isinstance(error, ModelRateLimitError):
        return SchemaRefusalError(f"{where}: {said}", certain=True)
    passing = isinstance(error, ModelRateLimitError | Overloaded | ModelServerError)
    if passing or (status is not None and (status >= 500 or status in (408, 409, 425, 429))):
        return ModelUnavailableError(f"{where}: {said}", status=status, retry_after=error.retry_after)
    sent_elsewhere = getattr(error.__cause__, "status_code", None)
    if status is None and isinstance(sent_elsewhere, int):
        return ModelRefusalError(
            f"the model endpoint answered {sent_elsewhere}: it sends elsewhere, and is not followed; is base_url right?"
        )
    if status is None:
        return ModelUnavailableError(f"{where}: {said}")
    if status in (400, 413, 415, 422):
        return SchemaRefusalError(f"{where}: {said}", certain=False)
    return ModelRefusalError(f"{where}: {said}")


def _said(error: ModelAPIError) -> str:
    """The provider's own words."""
    body = error.body
    if isinstance(body, dict):
        told = cast("dict[str, object]", body)
        inner = told.get("error", told)
        message = cast("dict[str, object]", inner).get("message") if isinstance(inner, dict) else inner
        text = message if isinstance(message, str) and message else json.dumps(body, ensure_ascii=False, default=str)
    elif isinstance(body, str) and body.strip():
        text = body
    else:
        text = error.message
        cause = error.__cause__
        # "Connection error." alone helps nobody; what lies below says which.
        while cause is not None and cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(error, ModelConnectionError) and cause is not None:
            # A connection that was reset has no words of its own.
            below = str(cause) or type(cause).__name__
            text = text if below in text else f"{text} {below}"
    return _bounded(text)


def _bounded(text: str) -> str:
    # Nothing a terminal would obey, nor half a surrogate pair.
    flat = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * _LONGEST]).split())
    return flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}..."
