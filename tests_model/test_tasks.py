"""Twenty small tasks, solved by a model of 135 million parameters."""

from __future__ import annotations

import time

import httpx
import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.bridge.minds.settings import ModelConfiguration
from tests_model.scoring import score, summary, table
from tests_model.tasks import TASKS, toolbox

pytestmark = pytest.mark.anyio

SOLVED = 6
"""Of 20. It picks the right tool more often than that, but adds calls nobody asked for; without
references and tools at work it would solve none, for no model can know what the tools give."""
VALID = 10
"""Of 20, at the first try: the schema leaves little room for a fault."""


BEGAN_RIGHT = 15
"""Of 20: the first call is of the right tool."""


async def test_a_small_model_solves_small_tasks(url: str) -> None:
    # Use the same prompt as for the table in docs/minds.md.
    bridge = Bridge(Configuration(programs=False), toolbox=toolbox())
    settings: dict[str, bool | int | float | str] = {"temperature": 0, "seed": 1, "max_tokens": 160}
    bridge.mind = ModelMind(
        ModelConfiguration(name="openai:smollm2", base_url=url, settings=settings), bridge.secrets
    )
    async with bridge:
        scores = [await score(bridge, task) for task in TASKS]

    print(f"\n{table(scores)}\n{await _speed(url)}")
    assert sum(one.solved for one in scores) >= SOLVED, summary(scores)
    assert sum(one.valid_first for one in scores) >= VALID, summary(scores)
    assert sum(one.began_right for one in scores) >= BEGAN_RIGHT, summary(scores)
    # The model refers to values that are available more often than it copies or guesses them.
    written = sum(one.references.written for one in scores)
    possible = sum(one.references.possible for one in scores)
    assert 2 * written > possible > 0, summary(scores)


async def _speed(url: str) -> str:
    """How fast the model writes when nothing but it is asked."""
    body = {
        "messages": [{"role": "user", "content": "Tell a long story about a bridge."}],
        "temperature": 0,
        "max_tokens": 128,
        "stream": True,
    }
    times: list[float] = []
    async with (
        httpx.AsyncClient(timeout=120) as client,
        client.stream("POST", f"{url}/chat/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            if '"content"' in line:
                times.append(time.monotonic())

    assert len(times) > 16
    return f"the model alone writes {(len(times) - 1) / (times[-1] - times[0]):.0f} tokens/s"
