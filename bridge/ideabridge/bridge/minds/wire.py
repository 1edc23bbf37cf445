"""Limit the size of HTTP responses from model endpoints, and translate failures to errors of minds.

The HTTP libraries read the whole body of an error and each whole line of a stream, regardless of
length. `limit_answers` adds hooks to a provider's HTTP client. The hooks limit every response,
reject compressed responses and web pages, and accept a chat completion that arrives in one piece
although a stream was requested. `mind_error` converts pydantic-ai's exceptions to errors of minds,
whose classes determine how the exchange continues.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httpx
import httpx2
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
from pydantic_ai.providers import Provider

from ideabridge.bridge.minds.errors import (
    ContextTooLargeError,
    ModelRefusalError,
    ModelSetupError,
    ModelUnavailableError,
    SchemaRefusalError,
    says_too_large,
)
from ideabridge.tools.encoding import MAX_BYTES, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import member, read_as

MAX_ERROR: Final = 1024 * 1024
"""The maximum size, in bytes, of the body of an error."""

MAX_LINE: Final = 2 * MAX_BYTES
"""The maximum size, in bytes, of a line. A line can contain a whole escaped answer."""

MAX_ANSWER: Final = 16 * MAX_BYTES
"""The maximum size, in bytes, of a response. The limit is high, because a stream wraps every few
letters of the answer, and of the reasoning before it, in a JSON object.
"""

_CHAT: Final = "/chat/completions"
_PAGE: Final = ("text/html", "application/xhtml+xml")
_SHOWN_CHARACTERS: Final = 300

Response = httpx.Response | httpx2.Response


class _Bounded(httpx.AsyncByteStream, httpx2.AsyncByteStream):
    """The bytes of a response, within the limits."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._most = most
        self._length = 0
        self._line = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._count(part)
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _count(self, part: bytes) -> None:
        self._length += len(part)
        end = part.rfind(b"\n")
        self._line = self._line + len(part) if end < 0 else len(part) - end - 1
        for length, most, unit in (
            (self._length, self._most, "one answer"),
            (self._line, MAX_LINE, "one line"),
        ):
            if length > most:
                raise ModelRefusalError(
                    f"the model endpoint sent more than {most:,} bytes in "
                    f"{unit}; is base_url right?"
                )


class _Streamed(_Bounded):
    """A response that is declared as JSON even though a stream was requested. It is read
    completely, and then passed on as a stream.

    pydantic-ai offers no way to read a completion that has already arrived, and asking again
    without a stream would double the cost of every answer.
    """

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = b"".join([part async for part in super().__aiter__()])
        yield _as_stream(body) if body.lstrip().startswith(b"{") else body


def limit_answers(provider: Provider[Any]) -> None:
    """Limit the responses that a provider's HTTP client accepts. Bedrock, which uses boto3, is not
    limited.
    """
    client: Any = getattr(provider, "_own_http_client", None)
    if not isinstance(client, httpx.AsyncClient | httpx2.AsyncClient):
        return
    hooks: Any = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], _ask_plain],
        "response": [*hooks["response"], _check],
    }


def fault_in(error: BaseException) -> IdeabridgeError | None:
    """Return the error from a hook in this module that another error wraps, or None if there is
    none.
    """
    visited: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in visited:
        if isinstance(below, ModelRefusalError | ModelUnavailableError):
            return below
        visited.add(id(below))
        below = below.__cause__ or below.__context__

    return None


async def _ask_plain(request: httpx.Request | httpx2.Request) -> None:
    # Decline compression, because a few kilobytes of compressed data can expand to gigabytes.
    request.headers["Accept-Encoding"] = "identity"


async def _check(response: Response) -> None:
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise ModelRefusalError(
            f"the model endpoint compressed its response ({packed[:40]!r}), although the request "
            "asked it not to"
        )

    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code == 200 and kind in _PAGE:
        raise ModelRefusalError(
            f"the model endpoint answered with a web page ({kind}); is base_url right?"
        )

    if (
        response.status_code == 200
        and kind == "application/json"
        and response.request.url.path.endswith(_CHAT)
    ):
        response.stream = _Streamed(response.stream, MAX_LINE)
    else:
        response.stream = _Bounded(
            response.stream, MAX_ERROR if response.status_code >= 400 else MAX_ANSWER
        )


def _as_stream(body: bytes) -> bytes:
    """Convert a chat completion that arrived in one piece to the events of a stream.

    Raises:
        ModelUnavailableError: the body is an error, or is not a complete object.
        ModelRefusalError: the body is another kind of object.
    """
    try:
        read: object = json.loads(body)
    except (ValueError, RecursionError):
        raise ModelUnavailableError(
            "the model endpoint's response is not a complete JSON object"
        ) from None

    completion = cast("dict[str, Any]", read)
    try:
        deltas = [{**choice, "delta": dict(choice["message"])} for choice in completion["choices"]]
    except (KeyError, TypeError, ValueError):
        excerpt = json.dumps(completion, ensure_ascii=False)[:_SHOWN_CHARACTERS]
        if completion.get("error"):
            raise ModelUnavailableError(
                f"the model endpoint answered with an error: {excerpt}"
            ) from None
        raise ModelRefusalError(
            f"the model endpoint answered with JSON that is not a chat completion: {excerpt}"
        ) from None

    chunk = {**completion, "object": "chat.completion.chunk", "choices": deltas}
    return f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()


_LONGEST_DETAIL: Final = 600

_SILENT: Final = "ended without content"
"""A part of pydantic-ai's message about an empty stream."""

_OF_SCHEMA: Final = re.compile(
    r"response_?format|json_?schema|json_?object|\bschema|grammar|oneOf|anyOf|allOf|\$ref|\$defs|additionalProperties"
    r"|structured[ _-]?output|output_(format|config)|nesting|too complex|\bstrict\b",
    re.IGNORECASE,
)


def mind_error(error: Exception, place: str = "") -> IdeabridgeError:
    """Convert an error from pydantic-ai, or from a library below it, to an error of a mind.

    `place` is the host and port of the endpoint, or "" if they are unknown.
    """
    fault = fault_in(error)
    if fault is not None:
        return fault
    if isinstance(error, UserError | ImportError):
        return ModelSetupError(f"the model cannot be asked: {_bounded(str(error))}")
    if isinstance(error, UnexpectedModelBehavior) and _SILENT in str(error):
        # llama-cpp-python does not stream errors: it responds with status 200 and an empty stream.
        return SchemaRefusalError(
            "the model endpoint ended its response without sending any content: the Request may be "
            "too long for the model's context, base_url may be wrong, or the server may have "
            "failed; check its log",
            certain=False,
        )

    if not isinstance(error, ModelAPIError):
        # The libraries do not check what they read, so a chunk that is not an object ends in an
        # AttributeError.
        detail = _bounded(f"{type(error).__name__}: {error}")
        return ModelUnavailableError(f"the model endpoint's response cannot be read: {detail}")

    detail = _said(error)
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if status is not None:
        where = f"the model endpoint answered {status}"
    else:
        where = "the model endpoint failed"

    if isinstance(error, ModelAuthenticationError | ModelQuotaExceededError):
        return ModelRefusalError(
            f"{where}: {detail} (is the key right, and is it allowed to use this model?)"
        )
    if isinstance(error, ModelNotFoundError):
        return ModelRefusalError(f"{where}: {detail} (are the model's name and base_url right?)")

    is_refused = status is None or status in (400, 413, 422) or status >= 500
    if isinstance(error, ModelContextWindowExceededError) or (
        is_refused and says_too_large(detail)
    ):
        return ContextTooLargeError(f"{where}: the Request is too long for this model: {detail}")
    if isinstance(error, ModelConnectionError):
        at = f" at {place}" if place else ""
        return ModelUnavailableError(
            f"the model endpoint cannot be reached{at}: {detail}", retry_after=error.retry_after
        )

    if _OF_SCHEMA.search(detail) and not isinstance(error, ModelRateLimitError):
        return SchemaRefusalError(f"{where}: {detail}", certain=True)

    passing = isinstance(error, ModelRateLimitError | Overloaded | ModelServerError)
    if passing or (status is not None and (status >= 500 or status in (408, 409, 425, 429))):
        return ModelUnavailableError(
            f"{where}: {detail}", status=status, retry_after=error.retry_after
        )

    sent_elsewhere = getattr(error.__cause__, "status_code", None)
    if status is None and isinstance(sent_elsewhere, int):
        return ModelRefusalError(
            f"the model endpoint answered {sent_elsewhere}: ideabridge does not follow a redirect "
            "to another origin; is base_url right?"
        )

    if status is None:
        return ModelUnavailableError(f"{where}: {detail}")
    if status in (400, 413, 415, 422):
        return SchemaRefusalError(f"{where}: {detail}", certain=False)
    return ModelRefusalError(f"{where}: {detail}")


@dataclass(frozen=True, slots=True)
class _ErrorBody:
    """The body of a provider's error: `{"error": {"message"}}`, `{"error": text}` or
    `{"message"}`.
    """

    error: JSONObject | None = None
    reason: str | None = field(default=None, metadata=member("error"))
    message: str | None = None


def _said(error: ModelAPIError) -> str:
    """Return the provider's message about an error."""
    body = error.body
    if isinstance(body, dict):
        sent = read_as(_ErrorBody, cast("JSONObject", body))
        if sent.error is None:
            message = sent.reason or sent.message
        else:
            message = read_as(_ErrorBody, sent.error).message
        text = message or json.dumps(body, ensure_ascii=False, default=str)
    elif isinstance(body, str) and body.strip():
        text = body
    else:
        text = error.message
        cause = error.__cause__
        # "Connection error." says too little. The first cause in the chain of errors is more
        # informative.
        while cause is not None and cause.__cause__ is not None:
            cause = cause.__cause__

        if isinstance(error, ModelConnectionError) and cause is not None:
            # The error of a reset connection has no message.
            below = str(cause) or type(cause).__name__
            text = text if below in text else f"{text} {below}"

    return _bounded(text)


def _bounded(text: str) -> str:
    # Replace control characters and lone surrogates, because the text goes to terminals.
    beginning = text[: 4 * _LONGEST_DETAIL]
    printable = "".join(char if char.isprintable() else " " for char in beginning)
    flat = " ".join(printable.split())
    if len(flat) <= _LONGEST_DETAIL:
        return flat
    return f"{flat[:_LONGEST_DETAIL]}..."
