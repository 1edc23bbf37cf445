"""A model solves a task with tools. Its calls start while it still writes.

    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 python examples/model_mind.py --model openai:qwen3
    OPENAI_API_KEY=... python examples/model_mind.py --model openai:gpt-5-mini "Which of the two texts is longer?"

It needs `pip install 'ideabridge[openai]'` (or `anthropic`, `google`, `all-models`).
"""

from __future__ import annotations

import argparse
import sys

import anyio

from ideabridge.bridge import (
    Bridge,
    CallFinished,
    CallProposed,
    Configuration,
    RunFailedError,
    SolutionClosed,
)
from ideabridge.tools import Toolbox, tool

TEXTS = {
    "first": "The quick brown fox jumps over the lazy dog.",
    "second": "Pack my box with five dozen jugs.",
}
TASK = (
    "Read the texts 'first' and 'second', count the words of each, and say in one "
    "sentence which has more."
)


@tool(read_only=True)
def read_text(name: str) -> str:
    """The text with this name."""
    return TEXTS[name]


@tool(read_only=True)
def count_words(text: str) -> int:
    """The number of words in a text."""
    return len(text.split())


async def main(model: str, task: str) -> int:
    """Solve the task, and print what happens."""
    async with Bridge(
        Configuration(model=model), toolbox=Toolbox(read_text, count_words)
    ) as bridge:
        run = await bridge.solve(task, tools=["read_text", "count_words"], limits={"requests": 8})
        async for event in run:
            if isinstance(event, CallProposed) and isinstance(event.call, dict):
                print("call:", event.call)
            elif isinstance(event, CallFinished):
                print("  ran" if event.error is None else f"  failed: {event.error}")
            elif isinstance(event, SolutionClosed):
                print(
                    "end of the answer"
                    if event.broken is None
                    else f"the answer was cut off: {event.broken}"
                )
        try:
            print("output:", await run.result())
        except RunFailedError as error:
            print(error, file=sys.stderr)
            return 1
        print("usage:", run.answer()["usage"])
        return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="openai:gpt-5-mini", metavar="PROVIDER:MODEL")
    parser.add_argument("task", nargs="?", default=TASK)
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.model, given.task))
