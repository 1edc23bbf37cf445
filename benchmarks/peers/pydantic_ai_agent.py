"""The agent of pydantic-ai, with its own function model."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

from peers import Rounds, Work


def prepare(rounds: Rounds, work: Work, apart: float | None) -> Callable[[], Awaitable[str]]:
    """See `peers.Prepare`."""
    peer: Any = importlib.import_module("pydantic_ai")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    function: Any = importlib.import_module("pydantic_ai.models.function")
    tool: str = getattr(work, "__name__", "")
    # Arguments are text, as a model writes them. Write them before the time is measured.
    texts = itertools.cycle(
        [*([f'{{"x": {number}}}' for number in numbers] for numbers in rounds), None]
    )

    async def whole(_history: Any, _info: Any) -> Any:
        arguments = next(texts)
        if arguments is None:
            return messages.ModelResponse(parts=[messages.TextPart("done")])
        return messages.ModelResponse(parts=[messages.ToolCallPart(tool, one) for one in arguments])

    async def streamed(_history: Any, _info: Any) -> AsyncIterator[Any]:
        arguments = next(texts)
        if arguments is None:
            yield "done"
            return

        for place, one in enumerate(arguments):
            await anyio.sleep(apart or 0)
            yield {place: function.DeltaToolCall(tool, one, tool_call_id=f"call_{place}")}

    async def events(_context: Any, stream: Any) -> None:
        async for _ in stream:
            pass

    agent = peer.Agent(function.FunctionModel(whole, stream_function=streamed))
    agent.tool_plain(work)

    async def run() -> str:
        result = await agent.run(
            "Do it.",
            usage_limits=peer.UsageLimits(request_limit=None),
            event_stream_handler=None if apart is None else events,
        )
        return str(result.output)

    return run
