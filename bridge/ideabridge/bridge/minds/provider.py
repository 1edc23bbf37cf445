"""Provider: the pydantic-ai model that a configuration names, with its address and its key (DESIGN 5, 7)."""

from __future__ import annotations

import os
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from ideabridge.bridge.minds.endpoint_settings import ModelConfiguration, extra_of, url_problem
from ideabridge.bridge.minds.errors import ModelSetupError
from ideabridge.bridge.minds.keys import OPENAI, OPENAI_URL, find_key, key_names
from ideabridge.bridge.minds.wire import bind
from ideabridge.bridge.modules.secrets import Secrets

_NO_KEY: Final = "no-key"
_BEARERS: Final = {"bedrock": "AWS_BEARER_TOKEN_BEDROCK", "anthropic": "ANTHROPIC_AUTH_TOKEN"}
"""Tokens that the library of a provider picks up by itself, besides the key."""

_NEWER: Final = ("openai.com", "azure.com")
"""Hosts of which some models take `max_completion_tokens` alone."""


def build_model(configuration: ModelConfiguration, secrets: Secrets) -> tuple[Model, bool]:
    """(the model, whether it is asked at an address of the user's).

    Keys come from the environment, else from the keyring where one is installed, and are masked from now on. A key
    meant for a provider is never sent to another address: with `base_url` only the one that `key_env` names is.

    Raises:
        ModelSetupError: a package or a key is missing, or there is no such provider.
    """
    kind, _, name = configuration.name.partition(":")
    names = key_names(kind)
    url, key = configuration.base_url, None
    if configuration.key_env is not None:
        key = find_key((configuration.key_env,), secrets)
        if key is None:
            raise ModelSetupError(f"model.key_env: {configuration.key_env} is neither in the environment nor a keyring")
    if url is None and kind in OPENAI and os.environ.get(OPENAI_URL):
        # The user's own environment: address and key stand there side by side.
        url = os.environ[OPENAI_URL]
        problem = url_problem(url)
        if problem is not None:
            raise ModelSetupError(f"{OPENAI_URL}: {problem}")
        key = key or find_key(names, secrets)
    elif url is None and key is None and not any(os.environ.get(one) for one in names):
        key = find_key(names, secrets)
    try:
        if url is not None and kind in OPENAI:
            return _compatible(kind, name, url, key), True
        return infer_model(configuration.name, lambda named: _provider(named, url, key)), url is not None
    except UserError as error:
        if url is None and not any(os.environ.get(one) for one in names) and names[0] in str(error):
            raise ModelSetupError(
                f"model {configuration.name!r}: no key: set {names[0]} in the environment, or `keyring set ideabridge"
                f" {names[0]}` where keyring is installed"
            ) from error
        raise ModelSetupError(f"model {configuration.name!r}: {error}") from error
    except ImportError as error:
        raise ModelSetupError(
            f"model {configuration.name!r}: a package it needs is not installed;"
            f" pip install 'ideabridge[{extra_of(configuration.name)}]'"
        ) from error
    except ValueError as error:
        raise ModelSetupError(f"model {configuration.name!r}: {error}") from error


def _compatible(kind: str, name: str, url: str, key: str | None) -> Model:
    """A server that speaks OpenAI's protocol: chat completions, unless the newer one is asked for by name."""
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    provider = OpenAICompatibleProvider("openai-compatible", base_url=url, api_key=key)
    if not (urlsplit(url).hostname or "").endswith(_NEWER):
        # The library takes these from the environment, and would send them to any address.
        provider.client.organization = provider.client.project = None
    bind(provider)
    if kind == "openai-responses":
        return OpenAIResponsesModel(name, provider=provider)
    # The newer name of `max_tokens`, which OpenAI's own reasoning models demand, other servers pass over without a
    # word: a model that repeats itself would write until the time-out.
    newer = (urlsplit(url).hostname or "").endswith(_NEWER)
    return OpenAIChatModel(
        name, provider=provider, profile=OpenAIModelProfile(openai_chat_supports_max_completion_tokens=newer)
    )


def _provider(kind: str, url: str | None, key: str | None) -> Provider[Any]:
    bearer = _BEARERS.get(kind)
    if url is not None and bearer is not None and os.environ.get(bearer, key) != key:
        raise ModelSetupError(
            f"model: {bearer} would be sent to base_url: name it as key_env where that is meant, or unset it"
        )
    # Bedrock signs with AWS's own credentials, which stay here; a key would stand in the signature's place.
    if url is not None and key is None and kind != "bedrock":
        # Without one the provider takes its own from the environment, and would send it there.
        key = _NO_KEY
    given = {name: value for name, value in (("base_url", url), ("api_key", key)) if value is not None}
    made: type[Any] = infer_provider_class(kind)
    try:
        provider = cast("Provider[Any]", made(**given))
    except TypeError as error:
        raise ModelSetupError(f"model: the provider {kind!r} takes no {' and '.join(given) or 'defaults'}") from error
    bind(provider)
    return provider
