"""Endpoint: streamed exchanges with one model, through pydantic-ai (DESIGN 5).

This module imports pydantic-ai, which takes a second or two: it is imported when a model is first asked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from genai_prices import calc_price
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from ideabridge.bridge.minds.adapt import is_closed
from ideabridge.bridge.minds.endpoint_settings import ModelConfiguration, place_of
from ideabridge.bridge.minds.faults import translate
from ideabridge.bridge.minds.forms import Form
from ideabridge.bridge.minds.provider import build_model
from ideabridge.bridge.minds.usage import Usage, bounded_name
from ideabridge.bridge.modules.secrets import Secrets
from ideabridge.tools.encoding import JSONObject

_NAME: Final = "solution"
_SHOWN_BY: Final = frozenset({"openai", "azure", "anthropic", "google", "google-gla", "google-vertex", "google-cloud"})
"""Systems that show a schema they enforce to the model; others only constrain what it writes."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of an exchange, as the model reads it."""

    role: str
    text: str


class Endpoint:
    """A model, ready to be asked.

    Args:
        configuration: names it.
        secrets: learns its key.

    Raises:
        ModelSetupError: a package or a key is missing, or there is no such provider.
    """

    def __init__(self, configuration: ModelConfiguration, secrets: Secrets) -> None:
        self._model, self._is_elsewhere = build_model(configuration, secrets)
        self._output = configuration.output
        self._place = place_of(self._model.base_url)
        client: Any = getattr(self._model, "client", None)
        if hasattr(client, "max_retries"):
            # These SDKs send a request again by themselves: that is done here, where it is known what came of it.
            client.max_retries = 0

    @property
    def name(self) -> str:
        """The model, as its provider calls it."""
        return self._model.model_name

    def forms(self, schema: JSONObject) -> list[Form]:
        """The forms to ask in for an adapted schema, the best first."""
        forms: list[Form] = []
        native = bool(self._model.profile.get("supports_json_schema_output", False))
        # Anthropic closes every object: what is open would come out narrower than it is.
        if self._output == "native" or (native and (self._model.system != "anthropic" or is_closed(schema))):
            forms.append(Form.NATIVE)
        told = [Form.PROMPTED, Form.PLAIN]
        return {"auto": [*forms, *told], "native": forms, "prompted": told}[self._output]

    def shows(self, form: Form) -> bool:
        """Whether the endpoint shows the model the schema it is asked to enforce; else the prompt must."""
        return form is Form.NATIVE and not self._is_elsewhere and self._model.system in _SHOWN_BY

    @asynccontextmanager
    async def stream(
        self, turns: Sequence[Turn], form: Form, schema: JSONObject, settings: JSONObject
    ) -> AsyncGenerator[Stream]:
        """An answer as it comes.

        Raises:
            ModelRefusalError, SchemaRefusalError, ModelUnavailableError, ModelSetupError: what came instead.
        """
        parameters = _asked(form, schema, strict=None if self._model.system == "anthropic" else False)
        opening = model_request_stream(
            self._model,
            _messages(turns),
            model_settings=cast("ModelSettings", settings),
            model_request_parameters=parameters,
        )
        async with AsyncExitStack() as stack:
            with _translated(self._place):
                response = await stack.enter_async_context(opening)
            yield Stream(response, self._place, priced_by_address=self._is_elsewhere)

    async def open(self) -> None:
        """Take hold of its connections; `close` lets them go."""
        await self._model.__aenter__()

    async def close(self) -> None:
        """Close its connections."""
        await self._model.__aexit__(None, None, None)


class Stream:
    """An answer on its way.

    Args:
        response: as pydantic-ai gives it.
        place: where it comes from, see `place_of`.
        priced_by_address: what it costs is known by where it comes from, not by the model's name alone.
    """

    def __init__(self, response: StreamedResponse, place: str, *, priced_by_address: bool) -> None:
        self._response = response
        self._place = place
        self._priced_by_address = priced_by_address
        self._has_ended = False
        self._events: AsyncIterator[ModelResponseStreamEvent] = aiter(response)

    async def next(self) -> str | None:
        """The next piece of the answer's text, "" where something else came (a thought, say); None at its end."""
        with _translated(self._place):
            event = await anext(self._events, None)
        if event is None:
            self._has_ended = True
            return None
        return _text(event)

    def stopped(self) -> str | None:
        """Why the model stopped before it was done, in words; None: it was done, or did not say."""
        reason = self._response.finish_reason
        if reason == "length":
            return "the answer reached the limit of tokens (max_tokens) before it was whole"
        if reason == "content_filter":
            details = self._response.provider_details or {}
            refusal = details.get("refusal")
            said = f": {refusal[:400]}" if isinstance(refusal, str) and refusal else ""
            return f"the model refused, or its provider's content filter stopped the answer{said}"
        if reason == "error":
            return "the provider reports that the answer ended in an error"
        return None

    def usage(self) -> Usage:
        """What the answer took so far, as far as the provider has told; the cost where the price is known."""
        answer = self._response.get()
        usage = answer.usage
        partial = not self._has_ended or not usage.has_values()
        name = None if answer.model_name is None else bounded_name(answer.model_name)
        cost = cost_of(answer, by_address=self._priced_by_address)
        return Usage(usage.input_tokens, usage.output_tokens, cost, name, partial)


def _text(event: ModelResponseStreamEvent) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _asked(form: Form, schema: JSONObject, *, strict: bool | None) -> ModelRequestParameters:
    """The parameters of a request in this form."""
    if form is Form.PLAIN:
        return ModelRequestParameters()
    wanted = OutputObjectDefinition(json_schema=cast("dict[str, Any]", schema), name=_NAME, strict=strict)
    mode = "native" if form is Form.NATIVE else "prompted"
    return ModelRequestParameters(output_mode=mode, output_object=wanted, prompted_output_template=False)


def _messages(turns: Sequence[Turn]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for turn in turns:
        if turn.role == "assistant":
            if parts:
                messages.append(ModelRequest(parts=parts))
                parts = []
            messages.append(ModelResponse(parts=[TextPart(turn.text)]))
        elif turn.role == "system":
            parts.append(SystemPromptPart(turn.text))
        else:
            parts.append(UserPromptPart(turn.text))
    if parts:
        messages.append(ModelRequest(parts=parts))
    return messages


def cost_of(answer: ModelResponse, *, by_address: bool) -> float | None:
    """What an answer cost in US dollars: what its provider says, else what the list of prices says; None: nobody knows.

    Args:
        answer: the answer.
        by_address: a server of the user's own may call its model as it likes: it is billed as the model of a provider
            only where the address is that provider's.
    """
    usage, told = answer.usage, (answer.provider_details or {}).get("cost")
    if isinstance(told, int | float) and not isinstance(told, bool):
        return float(told)
    if not usage.has_values():
        return None
    try:
        if not by_address:
            return float(answer.cost().total_price)
        if answer.provider_url is None or answer.model_name is None:
            return None
        found = calc_price(
            usage,
            answer.model_name,
            provider_api_url=answer.provider_url,
            genai_request_timestamp=answer.timestamp,
        )
    except (LookupError, ValueError, AssertionError):
        return None
    return float(found.total_price)


@contextmanager
def _translated(place: str) -> Generator[None]:
    """Let errors of the endpoint, and of the libraries that read what it sends, come out as ours."""
    try:
        yield
    except Exception as error:
        raise translate(error, place) from error
