"""Adapt a function from Request to Solution for use as a mind."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.mind import Mind, MindError
from ideabridge.bridge.context.request import Request
from ideabridge.tools.encoding import ObjectLike, encode_text, normalise
from ideabridge.tools.threads import run_tool_in_thread

FUNCTION: Final = "function"
"""The name of a mind that is a function."""

MindAnswer: TypeAlias = "ObjectLike | str"
"""A Solution `{"calls": [...], "output": ...}`, as an object or as JSON text."""

MindFunction: TypeAlias = (
    "Callable[[Request], Awaitable[MindAnswer]] | Callable[[Request], MindAnswer]"
)
"""A function that acts as a mind. It is a coroutine function, or a plain function, which runs in a
thread.
"""


class FunctionMind:
    """Lets a function answer Requests.

    Args:
        function: returns the Solution for a Request.
    """

    def __init__(self, function: MindFunction) -> None:
        self._function = function
        called = getattr(function, "__call__", None)  # noqa: B004 - the function can be async
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            called
        )

    @property
    def name(self) -> str:
        """The name of the mind in runs and ideas: `function`."""
        return FUNCTION

    @property
    def title(self) -> str:
        """The name of the function, for people."""
        return str(getattr(self._function, "__name__", type(self._function).__name__))[:200]

    async def answer(self, request: Request) -> AsyncGenerator[str]:
        """Yield the Solution for a Request in one piece.

        Raises:
            MindError: the function returned something other than a Solution.
        """
        call = partial(self._function, request)
        answer: object = call() if self._is_async else await run_tool_in_thread(call)
        if inspect.isawaitable(answer):
            answer = await cast("Awaitable[object]", answer)

        if isinstance(answer, Mapping):
            yield encode_text(normalise(cast("object", answer), what="the solution"))
        elif isinstance(answer, str):
            yield answer
        else:
            raise MindError(
                f"the mind {self.title} returned {type(answer).__name__}; expected a Solution, as"
                ' {"calls": [...], "output": ...} or as its JSON text'
            )


def as_mind(mind: Mind | MindFunction | None) -> Mind | None:
    """Return a mind unchanged, and wrap a function in a `FunctionMind`."""
    if mind is None or callable(getattr(mind, "answer", None)):
        return cast("Mind | None", mind)
    return FunctionMind(cast("MindFunction", mind))
