"""Exchange: getting one Solution out of a model endpoint: forms, retries, repairs and time-outs (DESIGN 4.2, 5)."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from ideabridge.bridge.minds.endpoint_settings import ModelConfiguration
from ideabridge.bridge.minds.errors import (
    MalformedAnswerError,
    ModelRefusalError,
    ModelStoppedError,
    ModelTimeoutError,
    ModelUnavailableError,
    SchemaRefusalError,
)
from ideabridge.bridge.minds.forms import Form, FormMemory, below
from ideabridge.bridge.minds.instructions import EXAMPLES, correction, instructions
from ideabridge.bridge.minds.reply import Reply
from ideabridge.bridge.minds.usage import Usage, total
from ideabridge.tools.encoding import JSONObject, content_hash
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.bridge.minds.endpoint import Endpoint, Stream, Turn

_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 60.0
_AFTERWARDS: Final = 5.0
"""Seconds in which a provider may tell what an answer took, once the Solution has closed."""
_FAILED: Final = 500
"""What servers answer that fall over a schema, and also ones that fell over something else."""


class Exchange:
    """One answer of a model. Until a call of it has closed nothing goes out, so that until then all of it can be asked
    for again: in another form, after a pause, or with the error told. Afterwards it never is (DESIGN 4.4.6).

    Args:
        endpoint: the model.
        configuration: time-outs, retries, repairs.
        memory: the forms that have worked.
        sleep: waits.

    Attributes:
        spent: what all requests of it took together; None: none was answered.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        configuration: ModelConfiguration,
        memory: FormMemory,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._endpoint = endpoint
        self._configuration = configuration
        self._memory = memory
        self._sleep = sleep
        self.spent: Usage | None = None
        self._stream: Stream | None = None
        self._deadline = anyio.current_time() + configuration.timeout
        self._form = Form.PLAIN
        self._forms: list[Form] = []
        self._failures = 0
        self._repairs = 0
        self._schema = ""

    async def pieces(
        self, texts: Sequence[JSONObject], schema: JSONObject, settings: JSONObject
    ) -> AsyncGenerator[str | bytes | Usage]:
        """The text of the Solution as it comes.

        Args:
            texts: the messages, `{"role", "content"}`.
            schema: the adapted schema.
            settings: of the model.
        """
        self._schema = content_hash(schema)
        self._forms = self._endpoint.forms(schema)
        self._form = self._memory.taken(self._schema) or self._forms[0]
        later: list[Turn] = []
        while True:
            reply = Reply()
            try:
                turns = [*self._turns(texts, schema), *later]
                async with AsyncExitStack() as stack:
                    with self._limit():
                        opening = self._endpoint.stream(turns, self._form, schema, settings)
                        stream = await stack.enter_async_context(opening)
                    self._stream = stream
                    stack.callback(self._count, stream)
                    while not (reply.is_spoilt or reply.is_whole):
                        piece = await self._next(stream)
                        if piece is None:
                            break
                        passed = reply.take(piece)
                        if passed:
                            self._keep_form()
                            yield passed
                    if reply.is_whole:
                        await self._drain(stream)
                    stopped = stream.stopped()
            except ModelRefusalError as error:
                if reply.has_begun:
                    # The run goes on with what came: only where nothing did is it over.
                    raise ModelStoppedError(str(error)) from error
                raise
            except (ModelUnavailableError, SchemaRefusalError) as error:
                if reply.has_begun:
                    raise
                await self._ask_otherwise(error)
                continue
            rest = reply.close()
            if reply.broken is None or (reply.has_begun and stopped is None):
                # A malformed end of what has begun is the loop's to tell.
                self._keep_form()
                if rest:
                    yield rest
                return
            if stopped is not None:
                raise ModelStoppedError(stopped)
            later.extend(self._repair(reply))

    def _turns(self, texts: Sequence[JSONObject], schema: JSONObject) -> list[Turn]:
        from ideabridge.bridge.minds.endpoint import Turn

        shown = None if self._endpoint.shows(self._form) else schema
        told = [Turn(str(text["role"]), str(text["content"])) for text in texts]
        examples = [
            Turn(role, text) for pair in EXAMPLES for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
        return [Turn("system", instructions(shown)), *examples, *told]

    def _keep_form(self) -> None:
        """The form works: an answer in it can be read, at least up to its first call."""
        if self._memory.taken(self._schema) is not self._form:
            self._memory.keep(self._schema, self._form)

    async def _next(self, stream: Stream) -> str | None:
        with self._limit():
            return await stream.next()

    async def _drain(self, stream: Stream) -> None:
        """Read what follows a whole Solution, a moment long: it tells what the answer took. Its faults are none."""
        with anyio.move_on_after(_AFTERWARDS), suppress(IdeabridgeError):
            while await stream.next() is not None:
                pass

    def _count(self, stream: Stream) -> None:
        self.spent, self._stream = self._with(stream), None

    def _with(self, stream: Stream) -> Usage:
        usage = stream.usage()
        return usage if self.spent is None else total(self.spent, usage)

    def so_far(self) -> Usage | None:
        """What all requests of it have taken until now, that under way among them."""
        return self.spent if self._stream is None else self._with(self._stream)

    @contextmanager
    def _limit(self) -> Generator[None]:
        """Bound one wait: by silence, and by what is left for the whole answer."""
        left = self._deadline - anyio.current_time()
        idle = self._configuration.idle_timeout
        with anyio.move_on_after(max(0.0, min(idle, left))) as scope:
            yield
        if scope.cancelled_caught:
            if left <= idle:
                raise ModelTimeoutError(f"the model did not finish within {self._configuration.timeout:g} seconds")
            raise ModelTimeoutError(f"nothing came from the model for {idle:g} seconds")

    async def _ask_otherwise(self, error: ModelUnavailableError | SchemaRefusalError) -> None:
        """Make ready to ask again, in another form or after a pause; else raise the error."""
        untried = self._memory.taken(self._schema) is None
        lower = below(self._forms, self._form)
        if isinstance(error, SchemaRefusalError):
            # A refusal without a reason may be about the form as well, where it never worked.
            if lower is None or not (error.certain or untried):
                raise error
            self._form = lower
            self._failures = 0
            return
        if self._failures >= self._configuration.retries:
            raise error
        self._failures += 1
        if (
            error.status == _FAILED
            and self._failures > 1
            and untried
            and self._form is Form.NATIVE
            and lower is not None
        ):
            self._form = lower
            self._failures = 0
            return
        await self._pause(error)

    async def _pause(self, error: ModelUnavailableError) -> None:
        """Wait as long as the endpoint asks, else twice as long each time, with some luck in it."""
        wait = _FIRST_WAIT * 2 ** (self._failures - 1)
        wait = min(wait, _LONGEST_WAIT) * random.uniform(0.75, 1.25)  # noqa: S311 - not for secrets
        if error.retry_after is not None:
            wait = max(0.0, error.retry_after)
        if anyio.current_time() + wait >= self._deadline:
            raise error
        await self._sleep(wait)

    def _repair(self, reply: Reply) -> list[Turn]:
        """The turns that tell the model what was wrong with its answer."""
        from ideabridge.bridge.minds.endpoint import Turn

        broken = reply.broken or "it is no solution"
        if self._repairs >= self._configuration.repairs:
            times = f" {self._repairs + 1} times in a row" if self._repairs else ""
            raise MalformedAnswerError(f"the model's answer cannot be read{times}: {broken}")
        self._repairs += 1
        said = [Turn("assistant", reply.text)] if reply.text.strip() else []
        return [*said, Turn("user", correction(broken))]
