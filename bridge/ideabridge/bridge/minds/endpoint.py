"""Send requests to one model through pydantic-ai, and stream the model's answers.

This module is imported only when a model is first asked, because importing pydantic-ai takes a
second or two.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
from genai_prices import calc_price
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError
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
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from ideabridge.bridge.context.mind import Usage, bounded_name
from ideabridge.bridge.minds.adapt import is_closed
from ideabridge.bridge.minds.errors import ModelRefusalError, ModelSetupError, ModelUnavailableError
from ideabridge.bridge.minds.settings import (
    OPENAI,
    OPENAI_URL,
    Form,
    ModelConfiguration,
    extra_of,
    find_key,
    host_and_port,
    key_names,
    no_keyring,
    url_problem,
)
from ideabridge.bridge.minds.wire import limit_answers, mind_error
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, decode, number_or_none, objects_in
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import read_as

_NO_KEY: Final = "no-key"
_BEARERS: Final = {"bedrock": "AWS_BEARER_TOKEN_BEDROCK", "anthropic": "ANTHROPIC_AUTH_TOKEN"}
"""The environment variables with tokens that a provider's library reads in addition to the key."""

_NEWER: Final = ("openai.com", "azure.com")
"""Hosts with models that accept only `max_completion_tokens`."""


def build_model(configuration: ModelConfiguration, secrets: Secrets) -> tuple[Model, bool]:
    """Return the model, and whether its address is the user's own.

    Keys come from the environment or, if they are not set there, from the keyring. They are masked
    from now on. A provider's key is never sent to a different address: if `base_url` is set, only
    the key that `key_env` names is sent.

    Raises:
        ModelSetupError: a package or a key is missing, or the provider is unknown.
    """
    kind, _, name = configuration.name.partition(":")
    names = key_names(kind)
    url = configuration.base_url
    key = None
    if configuration.key_env is not None:
        key = find_key((configuration.key_env,), secrets)
        if key is None:
            raise ModelSetupError(
                f"model.key_env: {configuration.key_env} is neither in the environment nor in a "
                f"keyring{no_keyring(configuration.key_env)}"
            )

    if url is None and kind in OPENAI and os.environ.get(OPENAI_URL):
        # The key may be sent to this address, because both come from the user's environment.
        url = os.environ[OPENAI_URL]
        problem = url_problem(url)
        if problem is not None:
            raise ModelSetupError(f"{OPENAI_URL}: {problem}")
        key = key or find_key(names, secrets)
    elif url is None and key is None and not any(os.environ.get(variable) for variable in names):
        key = find_key(names, secrets)

    try:
        if url is not None and kind in OPENAI:
            return _compatible(kind, name, url, key), True
        return infer_model(
            configuration.name, lambda named: _provider(named, url, key)
        ), url is not None
    except UserError as error:
        if (
            url is None
            and not any(os.environ.get(variable) for variable in names)
            and names[0] in str(error)
        ):
            raise ModelSetupError(
                f"model {configuration.name!r}: found no key: set {names[0]} in the environment, "
                f"or run `keyring set ideabridge {names[0]}` if there is a "
                f"keyring{no_keyring(names[0])}"
            ) from error

        raise ModelSetupError(f"model {configuration.name!r}: {error}") from error
    except ImportError as error:
        raise ModelSetupError(
            f"model {configuration.name!r}: a package it needs cannot be imported "
            f"({error.__cause__ or error}); pip install "
            f"'ideabridge[{extra_of(configuration.name)}]'"
        ) from error
    except ValueError as error:
        raise ModelSetupError(f"model {configuration.name!r}: {error}") from error


def _compatible(kind: str, name: str, url: str, key: str | None) -> Model:
    """Return a model that speaks OpenAI's protocol: chat completions, unless `kind` asks for
    responses.
    """
    provider = OpenAICompatibleProvider("openai-compatible", base_url=url, api_key=key)
    newer = (urlsplit(url).hostname or "").endswith(_NEWER)
    if not newer:
        # The library reads these values from environment variables and would send them to any
        # address.
        provider.client.organization = provider.client.project = None

    limit_answers(provider)
    if kind == "openai-responses":
        return OpenAIResponsesModel(name, provider=provider)
    # OpenAI's reasoning models require the newer name for `max_tokens`. Other servers silently
    # ignore it, so a model that repeats itself would keep writing until the timeout.
    return OpenAIChatModel(
        name,
        provider=provider,
        profile=OpenAIModelProfile(openai_chat_supports_max_completion_tokens=newer),
    )


def _provider(kind: str, url: str | None, key: str | None) -> Provider[Any]:
    bearer = _BEARERS.get(kind)
    if url is not None and bearer is not None and os.environ.get(bearer, key) != key:
        raise ModelSetupError(
            f"model: {bearer} would be sent to base_url. If you want that, name the variable as "
            "key_env; otherwise, unset the variable"
        )

    # Bedrock is an exception: it signs requests with AWS credentials without sending them, and a
    # key would replace the signature.
    if url is not None and key is None and kind != "bedrock":
        # Without a key, the library would take the provider's own key from the environment and send
        # it to this address.
        key = _NO_KEY

    settings = {
        name: value for name, value in (("base_url", url), ("api_key", key)) if value is not None
    }
    provider_class: type[Any] = infer_provider_class(kind)
    try:
        provider = cast("Provider[Any]", provider_class(**settings))
    except TypeError as error:
        raise ModelSetupError(
            f"model: the provider {kind!r} does not accept {' and '.join(settings) or 'defaults'}"
        ) from error

    limit_answers(provider)
    return provider


# -- endpoint --------------------------------------------------------------------------------------

_NAME: Final = "solution"
_SHOWN_BY: Final = frozenset(
    {"openai", "azure", "anthropic", "google", "google-gla", "google-vertex", "google-cloud"}
)
"""Providers that show an enforced schema to the model. Other providers only constrain the
answer.
"""


class Endpoint:
    """A model, and the connection to it.

    Raises:
        ModelSetupError: see `build_model`.
    """

    def __init__(self, configuration: ModelConfiguration, secrets: Secrets) -> None:
        self._model, self._is_elsewhere = build_model(configuration, secrets)
        self._output = configuration.output
        self._place = host_and_port(self._model.base_url)
        client: Any = getattr(self._model, "client", None)
        if hasattr(client, "max_retries"):
            # By default, these SDKs retry failed requests themselves. Only `ModelAnswer` may do
            # that, because it knows why a request failed.
            client.max_retries = 0

    @property
    def name(self) -> str:
        """The provider's name for the model."""
        return self._model.model_name

    def forms(self, schema: JSONObject) -> list[Form]:
        """Return the forms to try with an adapted schema, strictest first."""
        forms: list[Form] = []
        native = bool(self._model.profile.get("supports_json_schema_output", False))
        # Anthropic does not allow additional members in any object, so its native form would narrow
        # an open schema.
        if self._output == "native" or (
            native and (self._model.system != "anthropic" or is_closed(schema))
        ):
            forms.append(Form.NATIVE)
        prompted = [Form.PROMPTED, Form.PLAIN]
        return {"auto": [*forms, *prompted], "native": forms, "prompted": prompted}[self._output]

    def shows(self, form: Form) -> bool:
        """Return whether the endpoint shows the enforced schema to the model.

        If so, the prompt need not describe the schema.
        """
        return form is Form.NATIVE and not self._is_elsewhere and self._model.system in _SHOWN_BY

    @asynccontextmanager
    async def stream(
        self, turns: Sequence[JSONObject], form: Form, schema: JSONObject, settings: JSONObject
    ) -> AsyncGenerator[Stream]:
        """Send messages `{"role", "content"}`, and yield the streamed answer.

        Raises:
            ModelRefusalError, SchemaRefusalError, ModelUnavailableError, ModelSetupError: the model
                does not answer.
        """
        parameters = _asked(
            form, schema, strict=None if self._model.system == "anthropic" else False
        )
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
        """Open the HTTP client."""
        await self._model.__aenter__()

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._model.__aexit__(None, None, None)


class Stream:
    """A streamed answer.

    Args:
        response: pydantic-ai's response.
        place: the host and port of the endpoint; see `host_and_port`.
        priced_by_address: see the parameter `by_address` of `cost_of`.
    """

    def __init__(self, response: StreamedResponse, place: str, *, priced_by_address: bool) -> None:
        self._response = response
        self._place = place
        self._priced_by_address = priced_by_address
        self._has_ended = False
        self._events: AsyncIterator[ModelResponseStreamEvent] = aiter(response)

    async def next(self) -> str | None:
        """Return the next piece of the text, "" for anything that is not text, such as reasoning,
        or None at the end.
        """
        with _translated(self._place):
            event = await anext(self._events, None)
        if event is None:
            self._has_ended = True
            return None
        return _text(event)

    def stopped(self) -> str | None:
        """Return why the model stopped early, or None if it finished normally or gave no reason."""
        reason = self._response.finish_reason
        if reason == "length":
            return "the answer reached the token limit (max_tokens) before it was complete"
        if reason == "content_filter":
            details = self._response.provider_details or {}
            refusal = details.get("refusal")
            if isinstance(refusal, str) and refusal:
                ending = f": {refusal[:400]}"
            else:
                ending = ""

            return f"the model refused, or its provider's content filter stopped the answer{ending}"

        if reason == "error":
            return "the provider reports that the answer ended in an error"
        return None

    def usage(self) -> Usage:
        """Return the usage so far as reported by the provider, including the cost if the price is
        known.
        """
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
    """Return the parameters of a model request that asks for JSON in the given form."""
    if form is Form.PLAIN:
        return ModelRequestParameters()
    output = OutputObjectDefinition(
        json_schema=cast("dict[str, Any]", schema), name=_NAME, strict=strict
    )
    mode = "native" if form is Form.NATIVE else "prompted"
    return ModelRequestParameters(
        output_mode=mode, output_object=output, prompted_output_template=False
    )


def _messages(turns: Sequence[JSONObject]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for turn in turns:
        role = turn["role"]
        text = str(turn["content"])
        if role == "assistant":
            if parts:
                messages.append(ModelRequest(parts=parts))
                parts = []
            messages.append(ModelResponse(parts=[TextPart(text)]))
        elif role == "system":
            parts.append(SystemPromptPart(text))
        else:
            parts.append(UserPromptPart(text))

    if parts:
        messages.append(ModelRequest(parts=parts))

    return messages


def cost_of(answer: ModelResponse, *, by_address: bool) -> float | None:
    """Return the cost of an answer in US dollars, as stated by the provider or, failing that,
    according to the price list. Return None if the cost is unknown.

    With `by_address`, the address determines the price, because a user's own server can use any
    name for its model.
    """
    usage = answer.usage
    reported = number_or_none((answer.provider_details or {}).get("cost"))
    if reported is not None:
        return float(reported)
    if not usage.has_values():
        return None

    try:
        if not by_address:
            return float(answer.cost().total_price)
        if answer.provider_url is None or answer.model_name is None:
            return None
        price = calc_price(
            usage,
            answer.model_name,
            provider_api_url=answer.provider_url,
            genai_request_timestamp=answer.timestamp,
        )
    except (LookupError, ValueError, AssertionError):
        return None

    return float(price.total_price)


@contextmanager
def _translated(place: str) -> Generator[None]:
    """Translate errors from the endpoint and from the libraries that read its answers; see
    `mind_error`.
    """
    try:
        yield
    except Exception as error:
        raise mind_error(error, place) from error


# -- the models of the user's own server -----------------------------------------------------------

LIST_SECONDS: Final = 5.0
"""Maximum time, in seconds, that a server can take to respond."""

_NO_LIST: Final = (404, 405, 501)
_MOST_LIST_BYTES: Final = 1024 * 1024
_MODELS: Final = 1000
_LONGEST_REASON: Final = 200


async def models_of(model: Model) -> list[str] | None:
    """Return the names of up to 1,000 models that an OpenAI-compatible server lists at `GET
    /models`, or None if the server has no such list or speaks a different protocol.

    Raises:
        ModelUnavailableError: the server cannot be reached within 5 seconds, fails, or sends an
            unexpected response.
        ModelRefusalError: the server rejects the key.
    """
    if not isinstance(model, OpenAIChatModel | OpenAIResponsesModel):
        return None

    place = f"the model endpoint at {host_and_port(model.base_url)}"
    # Do not reuse the model's HTTP client, because its hooks expect chat completions.
    headers = {"Authorization": f"Bearer {model.client.api_key}", "Accept": "application/json"}
    url = f"{str(model.base_url).rstrip('/')}/models"
    is_local = urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
    try:
        async with (
            httpx.AsyncClient(
                timeout=LIST_SECONDS, headers=headers, trust_env=not is_local
            ) as client,
            client.stream("GET", url) as response,
        ):
            status = response.status_code
            body = b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MOST_LIST_BYTES:
                    break
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ModelUnavailableError(
            f"{place} cannot be reached: {reason[:_LONGEST_REASON]}"
        ) from None

    if status in _NO_LIST:
        return None
    if status in (401, 403):
        raise ModelRefusalError(f"{place} answered {status}: is the key right?")
    if status != 200:
        raise ModelUnavailableError(f"{place} answered {status}; is base_url right?")

    try:
        listed = decode(body, what="the list of models")
    except IdeabridgeError:
        raise ModelUnavailableError(f"{place} did not send JSON; is base_url right?") from None

    data = read_as(_ModelList, listed).data
    if data is None:
        return None
    return [str(entry.get("id"))[:_LONGEST_REASON] for entry in objects_in(data[:_MODELS])]


@dataclass(frozen=True, slots=True)
class _ModelList:
    """The response to `GET /models`."""

    data: list[JSON] | None = None
