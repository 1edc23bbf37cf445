"""The runner of openai-agents, without tracing."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from peers import Rounds, Work


def prepare(rounds: Rounds, work: Work, apart: float | None) -> Callable[[], Awaitable[str]]:
    """See `peers.Prepare`. Its calls run once an answer has ended: its model only takes as long as
    one that streams.
    """
    peer: Any = importlib.import_module("agents")
    responses: Any = importlib.import_module("openai.types.responses")
    base: Any = importlib.import_module("agents.models.interface").Model
    tool: str = getattr(work, "__name__", "")
    answers: list[list[Any]] = [
        [
            responses.ResponseFunctionToolCall(
                name=tool,
                arguments=f'{{"x": {number}}}',
                call_id=f"call_{place}_{number}",
                type="function_call",
            )
            for number in numbers
        ]
        for place, numbers in enumerate(rounds)
    ]
    text = responses.ResponseOutputText(text="done", annotations=[], type="output_text")
    left = itertools.cycle(
        [
            *answers,
            [
                responses.ResponseOutputMessage(
                    id="last", content=[text], role="assistant", status="completed", type="message"
                )
            ],
        ]
    )

    class FakeModel(base):
        async def get_response(self, *_args: Any, **_named: Any) -> Any:
            output = next(left)
            if apart and output[0].type == "function_call":
                await anyio.sleep(apart * len(output))
            return peer.ModelResponse(output=output, usage=peer.Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_named: Any) -> Any:
            raise NotImplementedError

    agent = peer.Agent(
        name="agent", instructions="Work.", model=FakeModel(), tools=[peer.function_tool(work)]
    )

    async def run() -> str:
        result = await peer.Runner.run(
            agent,
            "Do it.",
            max_turns=len(rounds) + 2,
            run_config=peer.RunConfig(tracing_disabled=True),
        )
        return str(result.final_output)

    return run
