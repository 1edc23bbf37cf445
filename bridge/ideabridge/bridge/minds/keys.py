"""Keys: finds the key of a model in the environment or the keyring, and masks it everywhere else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from ideabridge.bridge.minds.errors import ModelSetupError
from ideabridge.bridge.minds.settings import ModelConfiguration
from ideabridge.bridge.secrets import Secrets

OPENAI: Final = ("openai", "openai-chat", "openai-responses")
"""The providers that speak OpenAI's protocols."""

OPENAI_URL: Final = "OPENAI_BASE_URL"
"""The variable with the address of a server of the user."""

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
    """The first key that is found in the environment or the keyring; it is masked from now on.

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
    """Mask every key that a library may read from the environment by itself."""
    names = key_names(configuration.name.partition(":")[0])
    for name, value in os.environ.items():
        if name in names or name == configuration.key_env or name.endswith("_API_KEY"):
            secrets.add(name, value, certain=True)
    for url in (configuration.base_url, os.environ.get(OPENAI_URL)):
        if url is not None:
            secrets.add_url("base_url", url)


def _from_keyring(name: str) -> str | None:
    """The key that `keyring set ideabridge NAME` has stored."""
    if find_spec("keyring") is None:
        return None
    keyring: Any = import_module("keyring")
    try:
        value: object = keyring.get_password(_KEYRING, name)
    except Exception as error:
        raise ModelSetupError(f"the keyring cannot be read for {name}: {error}") from error
    return value if isinstance(value, str) else None
