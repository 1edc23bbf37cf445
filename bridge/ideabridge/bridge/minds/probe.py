"""Probe: whether a server of the user's own can be reached, and which models it has; no model is asked anything."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import httpx
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from ideabridge.bridge.minds.endpoint_settings import place_of
from ideabridge.bridge.minds.errors import ModelRefusalError, ModelUnavailableError
from ideabridge.tools.encoding import JSON, decode
from ideabridge.tools.errors import IdeabridgeError

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
