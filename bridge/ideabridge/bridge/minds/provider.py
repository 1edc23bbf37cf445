"""Provider: the pydantic-ai model that a configuration names, with its address and its key (DESIGN 5, 7)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from ideabridge.bridge.minds.endpoint_settings import ModelConfiguration, url_problem
from ideabridge.bridge.minds.errors import ModelSetupError
from ideabridge.bridge.modules.secrets import Secrets

_OPENAI_URL: Final = "OPENAI_BASE_URL"
_OPENAI: Final = ("openai", "openai-chat", "openai-responses")
_KEYS: Final = {
    **dict.fromkeys(_OPENAI, ("OPENAI_API_KEY",)),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "google-gla": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "cohere": ("CO_API_KEY",),
    "huggingface": ("HF_TOKEN",),
}
"""Where providers look for their keys; all others: NAME_API_KEY."""

_KEYRING: Final = "ideabridge"


def build_model(configuration: ModelConfiguration, secrets: Secrets) -> tuple[Model, bool]:
    """(the model, whether it is asked at an address of the user's).

    Keys come from the environment, else from the keyring where one is installed, and are masked from now on. A key
    meant for a provider is never sent to another address: with `base_url` only the one that `key_env` names is.

    Raises:
        ModelSetupError: a package or a key is missing, or there is no such provider.
    """
    kind, _, name = configuration.name.partition(":")
    names = _KEYS.get(kind, (f"{kind.upper().replace('-', '_').replace('/', '_')}_API_KEY",))
    _mask(secrets, names, configuration)
    url, key = configuration.base_url, None
    if configuration.key_env is not None:
        key = _key((configuration.key_env,), secrets)
        if key is None:
            raise ModelSetupError(f"model.key_env: {configuration.key_env} is neither in the environment nor a keyring")
    if url is None and kind in _OPENAI and os.environ.get(_OPENAI_URL):
        # The user's own environment: address and key stand there side by side.
        url = os.environ[_OPENAI_URL]
        problem = url_problem(url)
        if problem is not None:
            raise ModelSetupError(f"{_OPENAI_URL}: {problem}")
        key = key or _key(names, secrets)
    elif url is None and key is None and not any(os.environ.get(one) for one in names):
        key = _key(names, secrets)
    try:
        if url is not None and kind in _OPENAI:
            return _compatible(kind, name, url, key), True
        return infer_model(configuration.name, lambda named: _provider(named, url, key)), url is not None
    except (UserError, ImportError, ValueError) as error:
        raise ModelSetupError(f"model {configuration.name!r}: {error}") from error


def _compatible(kind: str, name: str, url: str, key: str | None) -> Model:
    """A server that speaks OpenAI's protocol: chat completions, unless the newer one is asked for by name."""
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    provider = OpenAICompatibleProvider("openai-compatible", base_url=url, api_key=key)
    model = OpenAIResponsesModel if kind == "openai-responses" else OpenAIChatModel
    return model(name, provider=provider)


def _provider(kind: str, url: str | None, key: str | None) -> Provider[Any]:
    given = {name: value for name, value in (("base_url", url), ("api_key", key)) if value is not None}
    made: type[Any] = infer_provider_class(kind)
    try:
        return cast("Provider[Any]", made(**given))
    except TypeError as error:
        raise ModelSetupError(f"model: the provider {kind!r} takes no {' and '.join(given) or 'defaults'}") from error


def _key(names: Iterable[str], secrets: Secrets) -> str | None:
    """The first key there is, masked from now on."""
    for name in names:
        value = os.environ.get(name) or _from_keyring(name)
        if value:
            secrets.add(name, value, certain=True)
            return value
    return None


def _from_keyring(name: str) -> str | None:
    """`keyring set ideabridge NAME` keeps a key there."""
    if find_spec("keyring") is None:
        return None
    keyring: Any = import_module("keyring")
    try:
        value: object = keyring.get_password(_KEYRING, name)
    except Exception as error:
        raise ModelSetupError(f"the keyring cannot be read for {name}: {error}") from error
    return value if isinstance(value, str) else None


def _mask(secrets: Secrets, names: Iterable[str], configuration: ModelConfiguration) -> None:
    """Mask every key that a library below may pick up from the environment by itself."""
    for name, value in os.environ.items():
        if name in names or name == configuration.key_env or name.endswith("_API_KEY"):
            secrets.add(name, value, certain=True)
    for url in (configuration.base_url, os.environ.get(_OPENAI_URL)):
        if url is not None:
            secrets.add_url("base_url", url)
