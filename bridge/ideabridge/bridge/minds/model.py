"""A mind that asks a model endpoint.

A `ModelAnswer` obtains one Solution. It asks in the strictest `Form` that the endpoint accepts,
waits and retries after failures, and sends unreadable answers back with the error. An
`AnswerBuffer` holds back the text until the first call is complete. Up to that point nothing has
run, so the Request can be repeated; after that, it is never repeated.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ideabridge.bridge.context.answer import AnswerReader, CallPiece, EndPiece, Piece
from ideabridge.bridge.context.mind import Usage, total
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.minds.adapt import adapted_schema
from ideabridge.bridge.minds.errors import (
    ContextTooLargeError,
    MalformedAnswerError,
    ModelRefusalError,
    ModelSetupError,
    ModelStoppedError,
    ModelTimeoutError,
    ModelUnavailableError,
    SchemaRefusalError,
)
from ideabridge.bridge.minds.instructions import EXAMPLES, ask_again, instructions
from ideabridge.bridge.minds.settings import (
    OPENAI,
    OPENAI_URL,
    Form,
    ModelConfiguration,
    chosen_model,
    extra_of,
    host_and_port,
    mask_keys,
    read_model,
    setting_problem,
)
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSONObject, content_hash
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.bridge.minds.endpoint import Endpoint, Stream


_LONGEST_QUOTE: Final = 20_000
"""Maximum number of characters of an unreadable answer that are sent back to the model."""

_THOUGHT: Final = re.compile(r"<(think|thinking)>", re.IGNORECASE)
_OPENINGS: Final = ("<think>", "<thinking>")
_LONGEST_TAG: Final = len("</thinking>")


class AnswerBuffer:
    """The text of an answer, which is held back until the first call is complete. Until then, the
    loop does nothing.

    Attributes:
        has_begun: whether a call is complete and the text has been passed on.
        broken: why the answer cannot be read, or None if it is readable so far.
    """

    def __init__(self) -> None:
        self._answer = AnswerReader()
        self._held: list[str] = []
        # Text that is, or might be, reasoning before the answer, or None once the answer itself has
        # begun.
        self._before: str | None = ""
        self._closing: re.Pattern[str] | None = None
        self.has_begun = False
        self.broken: str | None = None

    @property
    def is_spoilt(self) -> bool:
        """True if the answer cannot be read and nothing has been passed on."""
        return self.broken is not None and not self.has_begun

    @property
    def is_whole(self) -> bool:
        """True if the Solution is complete. Any text after it is ignored."""
        return self._answer.is_whole

    @property
    def text(self) -> str:
        """The text that is held back."""
        # Replace lone surrogates, because they cannot be sent.
        return "".join(self._held)[:_LONGEST_QUOTE].encode("utf-8", "replace").decode()

    def take(self, piece: str) -> str:
        """Add the next piece, and return the text to pass on now."""
        if self._before is not None:
            piece = self._without_thought(self._before + piece)

        self._read(self._answer.feed(piece))
        if self.has_begun and not self._held:
            return piece
        self._held.append(piece)
        return self._release() if self.has_begun else ""

    def close(self) -> str:
        """End the answer, and return the text to pass on now, which is the whole text if it is
        readable.
        """
        if self._before is not None and self._closing is None:
            before = self._before
            self._before = None
            self.take(before)
        self._read(self._answer.close())
        return self._release() if self.has_begun or self.broken is None else ""

    def _without_thought(self, text: str) -> str:
        """Return the text after any reasoning in tags, or "" as long as the text is, or might be,
        reasoning.
        """
        if self._closing is None:
            # A server can send any amount of white space before the answer.
            text = text.lstrip()
            opening_tag = _THOUGHT.match(text)
            if opening_tag is not None:
                self._closing = re.compile(f"</{opening_tag.group(1)}>", re.IGNORECASE)
            elif any(opening.startswith(text.lower()) for opening in _OPENINGS):
                self._before = text
                return ""
            else:
                self._before = None
                return text

        end = self._closing.search(text)
        if end is None:
            self._before = text[-_LONGEST_TAG:]
            return ""

        self._before = None
        return text[end.end() :]

    def _read(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, CallPiece):
                self.has_begun = True
            elif isinstance(piece, EndPiece):
                self.broken = piece.broken

    def _release(self) -> str:
        text = "".join(self._held)
        self._held = []
        return text


_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 60.0
_AFTERWARDS: Final = 5.0
"""How long, in seconds, to wait for the usage after the Solution is complete."""
_FAILED: Final = 500
"""The HTTP status of a server failure, which can be caused by a schema or by anything else."""
_MODELS: Final = 32
"""The maximum number of models that message handlers can choose in one process. Each model has its
own connections.
"""
_REMEMBERED: Final = 512
"""The maximum number of schemas for which a working form is cached."""


class ModelAnswer:
    """A model's answer to one Request: an iterator over its pieces, and its usage so far
    (`Counting`).

    Until the first call in the answer is complete, the Request can be sent again: in another form,
    after a pause, or together with the error found in the answer.

    Args:
        reach: returns the endpoint of the model that a handler chose or, for None, of the
            configured model.
        configuration: the timeouts, retries, repairs and settings.
        taken: the forms that the endpoint has accepted, keyed by the hash of the schema. When a
            form works, the answer adds it here.
        sleep: waits between two attempts.
        request: the Request. Settings from its handlers override those in the configuration.
    """

    def __init__(
        self,
        reach: Callable[[str | None], Awaitable[Endpoint]],
        configuration: ModelConfiguration,
        forms_by_schema: dict[str, Form],
        sleep: Callable[[float], Awaitable[None]],
        request: Request,
    ) -> None:
        self._reach = reach
        self._configuration = configuration
        self._taken = forms_by_schema
        self._sleep = sleep
        # The usage of all finished attempts, or None until the first one has finished.
        self._spent: Usage | None = None
        self._stream: Stream | None = None
        self._deadline = math.inf
        self._form = Form.PLAIN
        self._forms: list[Form] = []
        self._failures = 0
        self._repairs = 0
        self._schema = ""
        self._pieces = self._answer(request)

    def __aiter__(self) -> ModelAnswer:
        return self

    async def __anext__(self) -> str | bytes | Usage:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Close the connection to the model."""
        await self._pieces.aclose()

    def so_far(self) -> Usage | None:
        """See `Counting`."""
        return self._spent if self._stream is None else self._with(self._stream)

    async def _answer(self, request: Request) -> AsyncGenerator[str | bytes | Usage]:
        settings: JSONObject = {**self._configuration.settings, **_checked(request.model)}
        chosen = request.model.get("model")
        endpoint = await self._reach(None if chosen is None else str(chosen))
        self._deadline = anyio.current_time() + self._configuration.timeout
        try:
            async with aclosing(
                self._solution(endpoint, request.texts, adapted_schema(request.schema), settings)
            ) as pieces:
                async for piece in pieces:
                    yield piece
        except Exception as error:
            # Failed attempts cost tokens, too, so report their usage.
            if self._spent is not None:
                yield self._spent
            if isinstance(error, ContextTooLargeError):
                raise ContextTooLargeError(f"{error}; {request.largest()}") from error
            raise

        if self._spent is not None:
            yield self._spent

    async def _solution(
        self,
        endpoint: Endpoint,
        texts: Sequence[JSONObject],
        schema: JSONObject,
        settings: JSONObject,
    ) -> AsyncGenerator[str]:
        """Yield the text of the Solution in pieces, given messages `{"role", "content"}` and an
        adapted schema.
        """
        self._schema = content_hash(schema)
        self._forms = endpoint.forms(schema)
        self._form = self._taken.get(self._schema) or self._forms[0]
        repairs: list[JSONObject] = []
        while True:
            buffer = AnswerBuffer()
            system_text = instructions(schema, is_shown=endpoint.shows(self._form))
            try:
                async with AsyncExitStack() as stack:
                    with self._limit():
                        turns = [_turn("system", system_text), *_EXAMPLES, *texts, *repairs]
                        opening = endpoint.stream(turns, self._form, schema, settings)
                        stream = await stack.enter_async_context(opening)

                    self._stream = stream
                    stack.callback(self._count, stream)
                    while not (buffer.is_spoilt or buffer.is_whole):
                        with self._limit():
                            piece = await stream.next()

                        if piece is None:
                            break
                        passed = buffer.take(piece)
                        if passed:
                            self._keep_form()
                            yield passed

                    if buffer.is_whole:
                        # Ignore errors, because only the usage follows the Solution.
                        with anyio.move_on_after(_AFTERWARDS), suppress(IdeabridgeError):
                            while await stream.next() is not None:
                                pass

                    stopped = stream.stopped()
            except ModelRefusalError as error:
                if buffer.has_begun:
                    # A refusal would end the run, but the run can continue with the calls that have
                    # already arrived, so raise a different error.
                    raise ModelStoppedError(str(error)) from error
                raise
            except (ModelUnavailableError, SchemaRefusalError) as error:
                if buffer.has_begun:
                    raise
                await self._prepare_retry(error)
                continue

            rest = buffer.close()
            if buffer.broken is None or (buffer.has_begun and stopped is None):
                # Once the answer has begun, the loop itself reports that its end is malformed.
                self._keep_form()
                if rest:
                    yield rest
                return

            if stopped is not None:
                raise ModelStoppedError(stopped)
            repairs += self._repair(buffer)

    def _keep_form(self) -> None:
        """Record that the form works, because the answer is readable at least up to its first
        call.
        """
        if self._taken.get(self._schema) is not self._form:
            self._taken[self._schema] = self._form
            if len(self._taken) > _REMEMBERED:
                del self._taken[next(iter(self._taken))]

    def _count(self, stream: Stream) -> None:
        self._spent = self._with(stream)
        self._stream = None

    def _with(self, stream: Stream) -> Usage:
        usage = stream.usage()
        return usage if self._spent is None else total(self._spent, usage)

    @contextmanager
    def _limit(self) -> Generator[None]:
        """Limit a wait to the idle timeout and the time left for the whole answer."""
        left = self._deadline - anyio.current_time()
        idle = self._configuration.idle_timeout
        with anyio.move_on_after(max(0.0, min(idle, left))) as scope:
            yield

        if scope.cancelled_caught:
            if left <= idle:
                raise ModelTimeoutError(
                    f"the model did not finish within {self._configuration.timeout:g} seconds"
                )
            raise ModelTimeoutError(f"the model sent nothing for {idle:g} seconds")

    async def _prepare_retry(self, error: ModelUnavailableError | SchemaRefusalError) -> None:
        """Choose the next form, or wait before the Request is sent again. If neither would help,
        raise the error.
        """
        untried = self._schema not in self._taken
        lower = next(iter(self._forms[self._forms.index(self._form) + 1 :]), None)
        if isinstance(error, SchemaRefusalError):
            # If the endpoint gives no reason for rejecting the Request, the cause might be the
            # form, unless the form has worked before.
            if lower is None or not (error.certain or untried):
                raise error
            self._form = lower
            self._failures = 0
            return

        if self._failures >= self._configuration.retries:
            raise error
        self._failures += 1
        failed_twice = error.status == _FAILED and self._failures > 1
        if failed_twice and untried and self._form is Form.NATIVE and lower is not None:
            self._form = lower
            self._failures = 0
            return

        # The wait doubles each time, with some randomness, unless the endpoint says how long to
        # wait.
        wait = min(_FIRST_WAIT * 2 ** (self._failures - 1), _LONGEST_WAIT) * random.uniform(  # noqa: S311 - not for secrets
            0.75, 1.25
        )
        if error.retry_after is not None:
            wait = max(0.0, error.retry_after)

        if anyio.current_time() + wait >= self._deadline:
            raise error
        await self._sleep(wait)

    def _repair(self, buffer: AnswerBuffer) -> list[JSONObject]:
        """Return the messages that tell the model that its answer is unreadable."""
        broken = buffer.broken or "it is not a solution"
        if self._repairs >= self._configuration.repairs:
            times = f" {self._repairs + 1} times in a row" if self._repairs else ""
            raise MalformedAnswerError(f"the model's answer cannot be read{times}: {broken}")

        self._repairs += 1
        answer_turns = [_turn("assistant", buffer.text)] if buffer.text.strip() else []
        return [*answer_turns, _turn("user", ask_again(broken))]


def _turn(role: str, text: str) -> JSONObject:
    return {"role": role, "content": text}


_EXAMPLES: Final = [
    turn
    for task, solution in EXAMPLES
    for turn in (_turn("user", task), _turn("assistant", solution))
]


def _checked(settings: JSONObject) -> JSONObject:
    """Check the settings requested by handlers, and return them without `model`. Only names that
    are allowed in a configuration are valid.

    Raises:
        ModelSetupError: a setting is unknown, or the name of the model is not a string.
    """
    if not isinstance(settings.get("model", ""), str):
        raise ModelSetupError(
            "a message handler asked for the model: expected its name as a string"
        )

    settings = {name: value for name, value in settings.items() if name != "model"}
    for name in settings:
        problem = setting_problem(name)
        if problem is not None:
            raise ModelSetupError(f"a message handler asked for the model: {problem}")

    return settings


# -- model -----------------------------------------------------------------------------------------


class ModelMind:
    """Asks a model endpoint and streams its answers.

    Leaving the mind's context closes its connections. The first Request imports the libraries for
    the model's provider.

    Args:
        configuration: the model, its address and its settings.
        secrets: where the key is registered, so that journals and messages mask it.
        sleep: waits between two attempts. Tests replace this function.

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
                f"model {self.configuration.name!r}: pydantic-ai is not installed; pip "
                f"install 'ideabridge[{extra}]'"
            )

        self._secrets = secrets or Secrets()
        # Mask the keys now, because a run stores text even before it first asks the model.
        mask_keys(self.configuration, self._secrets)
        self._sleep = sleep
        # For each model, the form that works for each schema, and the model's endpoint.
        self._taken: dict[str, dict[str, Form]] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._opening = anyio.Lock()

    @property
    def title(self) -> str:
        """The configured name of the model, with the address unless it is the provider's own."""
        url = self.configuration.base_url
        if url is None and self.configuration.name.partition(":")[0] in OPENAI:
            url = os.environ.get(OPENAI_URL)
        title = self.configuration.name
        place = host_and_port(url)
        if place:
            title = f"{title} at {place}"
        return self._secrets.mask(title)

    @property
    def shown_limits(self) -> Mapping[str, int]:
        """The configured limits on how much of the results is shown to the model; see `Limited`."""
        return self.configuration.shown.stated

    async def __aenter__(self) -> ModelMind:
        return self

    async def __aexit__(self, *_: object) -> None:
        endpoints = self._endpoints
        self._endpoints = {}
        for endpoint in endpoints.values():
            await endpoint.close()

    def check(self) -> tuple[str, bool]:
        """Return the model with its address, and whether the address is the user's own. This method
        does not send anything.

        Raises:
            ModelSetupError: a package or a key is missing, or the provider is unknown.
        """
        from ideabridge.bridge.minds.endpoint import build_model

        model, is_elsewhere = build_model(self.configuration, self._secrets)
        if is_elsewhere and model.base_url:
            place = f" at {self._secrets.mask(model.base_url)}"
        else:
            place = ""
        return f"{self.configuration.name}{place}", is_elsewhere

    async def models(self) -> list[str] | None:
        """Return the models that the user's own server lists, or None if the server has no list.

        Raises:
            ModelSetupError: see `check`.
            ModelUnavailableError, ModelRefusalError: see `models_of`.
        """
        from ideabridge.bridge.minds.endpoint import build_model, models_of

        return await models_of(build_model(self.configuration, self._secrets)[0])

    def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        """Return the model's answer, in pieces.

        Raises:
            ModelSetupError, ModelRefusalError, SchemaRefusalError, ModelUnavailableError,
            ModelTimeoutError, ModelStoppedError, MalformedAnswerError: the answer is missing or
            incomplete.
        """
        forms_by_schema = self._taken.setdefault(str(request.model.get("model", "")), {})
        return ModelAnswer(self._reach, self.configuration, forms_by_schema, self._sleep, request)

    async def _reach(self, chosen: str | None) -> Endpoint:
        """Return the endpoint of a model. The first Request creates the endpoint in a thread,
        because the imports take a second or two.

        Raises:
            ModelSetupError: a handler chose a model from another provider, or too many models.
        """
        if chosen is None:
            configuration = self.configuration
        else:
            configuration = chosen_model(self.configuration, chosen)
        async with self._opening:
            endpoint = self._endpoints.get(configuration.name)
            if endpoint is None:
                if len(self._endpoints) >= _MODELS:
                    raise ModelSetupError(
                        f"message handlers asked for more than {_MODELS} models in one process"
                    )
                endpoint = await anyio.to_thread.run_sync(_endpoint, configuration, self._secrets)
                await endpoint.open()
                self._endpoints[configuration.name] = endpoint
            return endpoint


def _endpoint(configuration: ModelConfiguration, secrets: Secrets) -> Endpoint:
    from ideabridge.bridge.minds.endpoint import Endpoint

    return Endpoint(configuration, secrets)
