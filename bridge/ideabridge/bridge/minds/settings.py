"""The settings of a mind: the model, its key and its parameters (`ModelConfiguration`,
`SamplingSettings`), and the ways to ask for JSON (`Form`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ideabridge.bridge.context.shown import LEAST_BYTES, MOST_BYTES
from ideabridge.bridge.keyring import Keyring, KeyringError, NoKeyringError
from ideabridge.bridge.minds.errors import ModelSetupError
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9/-]*:[^\s\x00-\x1f]{1,250}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Setting = bool | int | float | str

SIGNING: Final = frozenset({"bedrock", "google-vertex", "google-cloud", "sagemaker"})
"""Providers that sign requests with the machine's credentials instead of sending a key."""

_GENERAL: Final = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "thinking",
        "service_tier",
    }
)
_PROVIDERS_OWN: Final = re.compile(
    r"(openai|anthropic|google|groq|mistral|bedrock|cohere|huggingface|openrouter|xai|ollama)_[a-z0-9_]+"
)


def setting_problem(name: str) -> str | None:
    """Return why the name of a setting is invalid, or None if it is valid."""
    if name in _GENERAL or _PROVIDERS_OWN.fullmatch(name):
        return None
    return (
        f"unknown setting {name[:60]!r}; known: {', '.join(sorted(_GENERAL))}, and those of one "
        "provider, which begin with its name (openai_reasoning_effort)"
    )


class ShownSettings(BaseModel):
    """Limits how much of the calls' results is shown to a mind in full. The rest is shortened, and
    the mind can read it separately.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    value: int | None = Field(
        default=None,
        ge=LEAST_BYTES,
        le=MOST_BYTES,
        description=(
            "How many bytes of one result are shown. null: 16 KB, or 4 KB for a client that "
            "answers turn by turn."
        ),
    )
    request: int | None = Field(
        default=None,
        ge=LEAST_BYTES,
        le=MOST_BYTES,
        description=(
            "How many bytes of all results in one Request are shown. null: 128 KB, or 32 KB for a "
            "client that answers turn by turn."
        ),
    )

    @property
    def stated(self) -> dict[str, int]:
        """The limits that are not null."""
        limits = {"value": self.value, "request": self.request}
        return {name: number for name, number in limits.items() if number is not None}


class ModelConfiguration(BaseModel):
    """A model endpoint. The key is not part of the configuration, but comes from the environment or
    the keyring.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(description="PROVIDER:MODEL, such as openai:gpt-5-mini; see docs/minds.md.")
    base_url: str | None = Field(
        default=None,
        description=(
            "Where an OpenAI-compatible server (or a proxy) is, such as http://127.0.0.1:8080/v1."
        ),
    )
    key_env: str | None = Field(
        default=None,
        description=(
            "Name of the environment variable, or of the keyring entry, that contains the key for "
            "base_url."
        ),
    )
    output: Literal["auto", "native", "prompted"] = Field(
        default="auto",
        description=(
            "native: the endpoint enforces the schema; prompted: the prompt describes it; "
            "auto: native where the endpoint supports it."
        ),
    )
    settings: Mapping[str, Setting] = Field(
        default_factory=dict[str, Setting], description="temperature, max_tokens, thinking, ..."
    )
    timeout: float = Field(
        default=600,
        gt=0,
        le=86_400,
        description=("How many seconds one answer can take, including retries."),
    )
    idle_timeout: float = Field(
        default=120, gt=0, le=86_400, description="Seconds to wait for the next piece of an answer."
    )
    retries: int = Field(
        default=3,
        ge=0,
        le=20,
        description="How often a Request is sent again after 429, 5xx or a lost connection.",
    )
    repairs: int = Field(
        default=2,
        ge=0,
        le=10,
        description="How often an answer that is not JSON is sent back with the error.",
    )

    shown: ShownSettings = Field(
        default_factory=ShownSettings,
        description="How much of the results this model sees; replaces `shown`.",
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("expected PROVIDER:MODEL, such as openai:gpt-5-mini")
        return name

    @field_validator("key_env")
    @classmethod
    def _check_variable(cls, name: str | None) -> str | None:
        # Leave the value out of the message, because it might be the key itself.
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError("expected the name of an environment variable, not a key")
        return name

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        problem = url_problem(url)
        if problem is not None:
            raise ValueError(problem)
        return url.rstrip("/")

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, settings: Mapping[str, Setting]) -> Mapping[str, Setting]:
        for name in settings:
            problem = setting_problem(name)
            if problem is not None:
                raise ValueError(problem)
        return settings


def url_problem(url: str) -> str | None:
    """Return why the address of an endpoint is invalid, or None if it is valid."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        # Reading `port` raises ValueError if the port number is invalid.
        _ = parts.port
    except ValueError:
        return "expected an http or https address"

    if parts.scheme not in ("http", "https") or not host:
        return "expected an http or https address"
    if "@" in parts.netloc:
        return (
            "expected an address without credentials; name the variable that contains the key as "
            "key_env"
        )

    return None


def host_and_port(url: str | None) -> str:
    """Return the host and port of an address without its other parts, which might contain a
    secret.
    """
    try:
        parts = urlsplit(url or "")
        host = parts.hostname
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""

    if host is None:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def extra_of(name: str) -> str:
    """Return the extra of ideabridge that installs the packages for a provider's models."""
    extra = name.partition(":")[0].split("-")[0]
    return extra if extra in ("openai", "anthropic", "google") else "all-models"


_OTHERS: Final = frozenset(
    {
        "anthropic",
        "azure",
        "bedrock",
        "cohere",
        "deepseek",
        "google",
        "google-gla",
        "google-vertex",
        "grok",
        "groq",
    }
    | {
        "huggingface",
        "mistral",
        "ollama",
        "openai",
        "openai-chat",
        "openai-responses",
        "openrouter",
        "xai",
    }
)
"""Names that denote a provider before a colon. After any other name, the colon is part of the name
of a model.
"""


def chosen_model(configured: ModelConfiguration, requested: str) -> ModelConfiguration:
    """Return the configuration of a model chosen by a message handler, given as MODEL or
    PROVIDER:MODEL.

    Raises:
        ModelSetupError: the model belongs to another provider, whose address and key are not
            configured.
    """
    own = configured.name.partition(":")[0]
    provider, colon, name = requested.partition(":")
    if colon and provider != own and provider in _OTHERS:
        raise ModelSetupError(
            f"a message handler asked for the model {requested[:100]!r}: only models of the "
            f"configured provider, {own}, can be chosen"
        )
    named = name if colon and provider == own else requested
    return configured.model_copy(update={"name": f"{own}:{named}"})


def read_model(value: str | ModelConfiguration) -> ModelConfiguration:
    """Return the value of the `model` key or the --model option as a ModelConfiguration."""
    if isinstance(value, ModelConfiguration):
        return value
    return ModelConfiguration(name=value)


def expanded_model(raw: JSON) -> JSON:
    """Return the value of the `model` key in a file, with its short form expanded."""
    named: JSONObject = {"name": raw}
    return named if isinstance(raw, str) else raw


class SamplingSettings(BaseModel):
    """`sampling` in `ideabridge.json`: preferences that a client is free to ignore."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_tokens: int = Field(
        default=16_384, ge=256, le=1_000_000, description="Maximum number of tokens in one answer."
    )
    models: tuple[str, ...] = Field(
        default=(), description="Names of models, or parts of such names, best first."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Temperature; null: the client's."
    )
    cost_priority: float | None = Field(
        default=None, ge=0, le=1, description="How important a low price is."
    )
    speed_priority: float | None = Field(
        default=None, ge=0, le=1, description="How important speed is."
    )
    intelligence_priority: float | None = Field(
        default=None, ge=0, le=1, description="How important the model's capability is."
    )


class Form(Enum):
    """The ways to ask for JSON in a Request, strictest first. If an endpoint rejects one, the next
    is tried.
    """

    NATIVE = "native"
    """Asks through the provider's schema-constrained output (`response_format: json_schema` or
    similar).
    """
    PROMPTED = "prompted"
    """Asks in the prompt, and also uses the provider's JSON mode if there is one."""
    PLAIN = "plain"
    """Asks in the prompt alone."""


# -- keys ------------------------------------------------------------------------------------------

OPENAI: Final = ("openai", "openai-chat", "openai-responses")
"""Providers that speak OpenAI's protocols."""

OPENAI_URL: Final = "OPENAI_BASE_URL"
"""The environment variable that contains the address of the user's own server."""

_KEYS: Final = {
    **dict.fromkeys(OPENAI, ("OPENAI_API_KEY",)),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "google-gla": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "cohere": ("CO_API_KEY",),
    "huggingface": ("HF_TOKEN",),
}


def key_names(provider: str) -> tuple[str, ...]:
    """Return the environment variables that can contain a provider's key."""
    return _KEYS.get(provider, (f"{provider.upper().replace('-', '_').replace('/', '_')}_API_KEY",))


def find_key(names: Iterable[str], secrets: Secrets) -> str | None:
    """Return the first of the named keys that is set in the environment or the keyring, or None,
    and mask it from now on.

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
    """Mask every key that a library might read from the environment by itself."""
    names = key_names(configuration.name.partition(":")[0])
    for name, value in os.environ.items():
        if name in names or name == configuration.key_env or name.endswith("_API_KEY"):
            secrets.add(name, value, certain=True)

    for url in (configuration.base_url, os.environ.get(OPENAI_URL)):
        if url is not None:
            secrets.add_url("base_url", url)


def no_keyring(name: str) -> str:
    """Return a note in parentheses that there is no keyring, or "" if there is one."""
    try:
        Keyring().read(name)
    except NoKeyringError as error:
        return f" ({error})"
    return ""


def _from_keyring(name: str) -> str | None:
    """Return the key stored by `keyring set ideabridge NAME`, or None if there is no such key or no
    keyring.
    """
    try:
        return Keyring().read(name)
    except NoKeyringError:
        return None
    except KeyringError as error:
        raise ModelSetupError(f"the keyring cannot be read for {name}: {error}") from error
