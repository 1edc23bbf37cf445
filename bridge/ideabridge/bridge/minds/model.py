"""Model: a model endpoint as the mind (DESIGN 5)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ideabridge.bridge.context.request import Request
from ideabridge.bridge.minds.adapt import adapt
from ideabridge.bridge.minds.endpoint_settings import (
    ModelConfiguration,
    extra_of,
    place_of,
    read_model,
    setting_problem,
)
from ideabridge.bridge.minds.errors import ModelSetupError
from ideabridge.bridge.minds.exchange import Exchange
from ideabridge.bridge.minds.forms import FormMemory
from ideabridge.bridge.minds.keys import OPENAI, OPENAI_URL, mask_keys
from ideabridge.bridge.minds.usage import Usage
from ideabridge.bridge.modules.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.minds.endpoint import Endpoint


class ModelMind:
    """Asks a model endpoint, and streams what it writes.

    Entered, it closes its connections on the way out. Nothing of the libraries that speak to models is imported
    before the first Request.

    Args:
        configuration: which model, where, and how.
        secrets: learns its key, so that it is masked wherever text goes out, and gets into no journal.
        sleep: waits between a Request that failed and the next; given in tests.

    Raises:
        ModelSetupError: pydantic-ai is not installed.
    """

    name = "model"

    def __init__(
        self,
        configuration: ModelConfiguration | str,
        secrets: Secrets | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.configuration = read_model(configuration)
        if find_spec("pydantic_ai") is None:
            extra = extra_of(self.configuration.name)
            raise ModelSetupError(
                f"model {self.configuration.name!r}: pydantic-ai is not installed; pip install 'ideabridge[{extra}]'"
            )
        self._secrets = secrets or Secrets()
        # At once: a run may write down what it is told before it asks for the first time.
        mask_keys(self.configuration, self._secrets)
        self._sleep = sleep
        self._memory = FormMemory()
        self._endpoint: Endpoint | None = None
        self._opening = anyio.Lock()

    @property
    def title(self) -> str:
        """The model by the name it is configured under, and where it is asked, if that is no provider's own address."""
        url = self.configuration.base_url
        if url is None and self.configuration.name.partition(":")[0] in OPENAI:
            url = os.environ.get(OPENAI_URL)
        place = place_of(url)
        return self._secrets.mask(f"{self.configuration.name}{f' at {place}' if place else ''}")

    async def __aenter__(self) -> ModelMind:
        return self

    async def __aexit__(self, *_: object) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    def check(self) -> tuple[str, bool]:
        """(which model answers, and where; whether the address is the user's own), without asking it anything.

        Raises:
            ModelSetupError: a package or a key is missing, or there is no such provider.
        """
        from ideabridge.bridge.minds.provider import build_model

        model, is_elsewhere = build_model(self.configuration, self._secrets)
        place = f" at {self._secrets.mask(model.base_url)}" if is_elsewhere and model.base_url else ""
        return f"{self.configuration.name}{place}", is_elsewhere

    async def models(self) -> list[str] | None:
        """The models that a server of the user's own lists; None: it has no list. See `models_of`.

        Raises:
            ModelSetupError: as `check`.
            ModelUnavailableError, ModelRefusalError: it cannot be reached, or refuses the key.
        """
        from ideabridge.bridge.minds.probe import models_of
        from ideabridge.bridge.minds.provider import build_model

        return await models_of(build_model(self.configuration, self._secrets)[0])

    def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        """The model's answer, in pieces; see `Exchange`.

        Raises:
            ModelSetupError, ModelRefusalError, SchemaRefusalError, ModelUnavailableError, ModelTimeoutError,
            ModelStoppedError, MalformedAnswerError: no answer, or not the whole of it.
        """
        return ModelAnswer(self._exchange, request, self.configuration.settings)

    async def _exchange(self) -> Exchange:
        return Exchange(await self._reach(), self.configuration, self._memory, self._sleep)

    async def _reach(self) -> Endpoint:
        """The endpoint; made in a thread at the first Request, for importing what it needs takes a second or two."""
        async with self._opening:
            if self._endpoint is None:
                endpoint = await anyio.to_thread.run_sync(_endpoint, self.configuration, self._secrets)
                await endpoint.open()
                self._endpoint = endpoint
            return self._endpoint


class ModelAnswer:
    """The answer of a model to one Request, in pieces, and what it has taken until now (`Counting`).

    Args:
        begin: begins the exchange.
        request: the Request.
        settings: of the model; those that handlers asked for win.
    """

    def __init__(
        self, begin: Callable[[], Awaitable[Exchange]], request: Request, settings: Mapping[str, JSON]
    ) -> None:
        self._exchange: Exchange | None = None
        self._pieces = self._read(begin, request, settings)

    def __aiter__(self) -> ModelAnswer:
        return self

    async def __anext__(self) -> str | bytes | Usage:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Hang up."""
        await self._pieces.aclose()

    def so_far(self) -> Usage | None:
        """See `Counting`."""
        return None if self._exchange is None else self._exchange.so_far()

    async def _read(
        self, begin: Callable[[], Awaitable[Exchange]], request: Request, settings: Mapping[str, JSON]
    ) -> AsyncGenerator[str | bytes | Usage]:
        given: JSONObject = {**settings, **_checked(request.model)}
        self._exchange = exchange = await begin()
        try:
            async with aclosing(exchange.pieces(request.texts, adapt(request.schema), given)) as pieces:
                async for piece in pieces:
                    yield piece
        except Exception:
            # What was paid for is told also where nothing came of it.
            if exchange.spent is not None:
                yield exchange.spent
            raise
        if exchange.spent is not None:
            yield exchange.spent


def configured_mind(model: ModelConfiguration | str | None, secrets: Secrets) -> ModelMind | None:
    """The mind of a configuration's key `model`; None: it names none.

    Raises:
        ModelSetupError: pydantic-ai is not installed.
    """
    return None if model is None else ModelMind(model, secrets)


def _endpoint(configuration: ModelConfiguration, secrets: Secrets) -> Endpoint:
    from ideabridge.bridge.minds.endpoint import Endpoint

    return Endpoint(configuration, secrets)


def _checked(settings: JSONObject) -> JSONObject:
    """What handlers asked for: the same settings as in a configuration. Another model (`model`) is a wish that goes to
    clients by sampling; here the configuration alone says which is asked.

    Raises:
        ModelSetupError: one is not known.
    """
    settings = {name: value for name, value in settings.items() if name != "model"}
    for name in settings:
        problem = setting_problem(name)
        if problem is not None:
            raise ModelSetupError(f"a message handler asked for the model: {problem}")
    return settings
