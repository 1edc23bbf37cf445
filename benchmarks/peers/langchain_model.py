"""The fake chat model that LangChain and LangGraph are given."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import anyio

from peers import Rounds


def messages_of(rounds: Rounds, tool: str) -> list[Any]:
    """The model's answers as LangChain's messages, the last one "done"."""
    message: Any = importlib.import_module("langchain_core.messages").AIMessage
    answers = [
        message(
            content="",
            tool_calls=[
                {
                    "name": tool,
                    "args": {"x": number},
                    "id": f"call_{place}_{number}",
                    "type": "tool_call",
                }
                for number in numbers
            ],
        )
        for place, numbers in enumerate(rounds)
    ]
    return [*answers, message(content="done")]


def fake_model(rounds: Rounds, tool: str, apart: float) -> Any:
    """A chat model that gives the answers one by one, and streams them where it is asked to."""
    models: Any = importlib.import_module("langchain_core.language_models.chat_models")
    outputs: Any = importlib.import_module("langchain_core.outputs")
    messages: Any = importlib.import_module("langchain_core.messages")
    left = itertools.cycle(messages_of(rounds, tool))
    base: Any = models.BaseChatModel

    class FakeModel(base):
        @property
        def _llm_type(self) -> str:
            return "fake"

        def bind_tools(self, *_args: Any, **_named: Any) -> Any:
            return self

        def _generate(self, *_args: Any, **_named: Any) -> Any:
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=next(left))])

        async def _agenerate(self, *_args: Any, **_named: Any) -> Any:
            return self._generate()

        async def _astream(self, *_args: Any, **_named: Any) -> AsyncIterator[Any]:
            answer = next(left)
            if not answer.tool_calls:
                yield outputs.ChatGenerationChunk(
                    message=messages.AIMessageChunk(content=answer.content)
                )

            for place, call in enumerate(answer.tool_calls):
                await anyio.sleep(apart)
                piece = {
                    "name": call["name"],
                    "args": f'{{"x": {call["args"]["x"]}}}',
                    "id": call["id"],
                    "index": place,
                    "type": "tool_call_chunk",
                }
                yield outputs.ChatGenerationChunk(
                    message=messages.AIMessageChunk(content="", tool_call_chunks=[piece])
                )

    return FakeModel()


async def last_text(graph: Any, recursions: int, *, stream: bool) -> str:
    """Run a graph of messages; the text of its last message."""
    start = {"messages": [{"role": "user", "content": "Do it."}]}
    config = {"recursion_limit": recursions}
    if not stream:
        return str((await graph.ainvoke(start, config))["messages"][-1].content)

    # "messages" makes the model stream, and "values" returns the growing history.
    state: Any = None
    async for mode, value in graph.astream(start, config, stream_mode=["messages", "values"]):
        if mode == "values":
            state = value

    return str(state["messages"][-1].content)
