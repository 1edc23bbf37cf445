"""Keys: where a model's key comes from, and that nothing else ever shows it (DESIGN 5, 7)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from ideabridge.bridge.minds.errors import ModelRefusalError, ModelSetupError, ModelUnavailableError
from ideabridge.bridge.minds.settings import ModelConfiguration, place_of
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, decode
from ideabridge.tools.errors import IdeabridgeError

# -- keys ------------------------------------------------------------------------------------------------------------

OPENAI: Final = ("openai", "openai-chat", "openai-responses")
"""The providers that speak OpenAI's protocols."""

OPENAI_URL: Final = "OPENAI_BASE_URL"
"""The variable that names a server of the user's own."""

_KEYS: Final = {
    **dict.fromkeys(OPENAI, ("OPENAI_API_KEY",)),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "google-gla": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "cohere": ("CO_API_KEY",),
    "huggingface": ("HF_TOKEN",),
}
_KEYRING: Final = "ideabridge"


def key_names(provider: str) -> tuple[str, ...]:
    """The variables in which a provider looks for its key."""
    return _KEYS.get(provider, (f"{provider.upper().replace('-', '_').replace('/', '_')}_API_KEY",))


def find_key(names: Iterable[str], secrets: Secrets) -> str | None:
    """The first key there is, of the environment or the keyring; masked from now on.

    Raises:
        ModelSetupError: the keyring cannot be read.
    """
    for name in names:
        value = os.environ.get(name) or _from_keyring(name)
        if value:
            secrets.add(name, value, certain=True)
            return value
    return None


def mask_keys(configuration: ModelConfiguration, secrets: Secrets) -> None:
    """Mask every key that a library below may pick up from the environment by itself."""
    names = key_names(configuration.name.partition(":")[0])
    for name, value in os.environ.items():
        if name in names or name == configuration.key_env or name.endswith("_API_KEY"):
            secrets.add(name, value, certain=True)
    for url in (configuration.base_url, os.environ.get(OPENAI_URL)):
        if url is not None:
            secrets.add_url("base_url", url)


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


# -- probe -----------------------------------------------------------------------------------------------------------
#
# Probe: whether a server of the user's own can be reached, and which models it has; no model is asked anything.

SECONDS: Final = 5.0
"""How long a server may take to answer."""

_NO_LIST: Final = (404, 405, 501)
_MOST_BYTES: Final = 1024 * 1024
_MOST: Final = 1000
_LONGEST: Final = 200


async def models_of(model: Model) -> list[str] | None:
    """The names of the models that an OpenAI-compatible server lists at `GET /models`.

    Args:
        model: as `build_model` makes it.

    Returns:
        The names, at most 1,000; None: the server has no such list, or is of another kind.

    Raises:
        ModelUnavailableError: it cannot be reached within 5 seconds, failed, or sent what is no list.
        ModelRefusalError: it refuses the key.
    """
    if not isinstance(model, OpenAIChatModel | OpenAIResponsesModel):
        return None
    place = f"the model endpoint at {place_of(model.base_url)}"
    # Not the client of the model: its hooks expect chat completions.
    headers = {"Authorization": f"Bearer {model.client.api_key}", "Accept": "application/json"}
    url = f"{str(model.base_url).rstrip('/')}/models"
    try:
        async with (
            httpx.AsyncClient(timeout=SECONDS, headers=headers, trust_env=not _is_local(url)) as client,
            client.stream("GET", url) as response,
        ):
            status, body = response.status_code, b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MOST_BYTES:
                    break
    except httpx.HTTPError as error:
        told = str(error) or type(error).__name__
        raise ModelUnavailableError(f"{place} cannot be reached: {told[:_LONGEST]}") from None
    if status in _NO_LIST:
        return None
    if status in (401, 403):
        raise ModelRefusalError(f"{place} answered {status}: is the key right?")
    if status != 200:
        raise ModelUnavailableError(f"{place} answered {status}; is base_url right?")
    try:
        listed = decode(body, what="the list of models")
    except IdeabridgeError:
        raise ModelUnavailableError(f"{place} sent what is no JSON; is base_url right?") from None
    return _names(listed)


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def _names(listed: JSON) -> list[str] | None:
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(data, list):
        return None
    return [str(one.get("id"))[:_LONGEST] for one in data[:_MOST] if isinstance(one, dict)]
