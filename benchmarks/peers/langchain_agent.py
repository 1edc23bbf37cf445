"""LangChain's `create_agent`."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from peers import Rounds, Work
from peers.langchain_model import fake_model, last_text


def prepare(rounds: Rounds, work: Work, apart: float | None) -> Callable[[], Awaitable[str]]:
    """See `peers.Prepare`."""
    agents: Any = importlib.import_module("langchain.agents")
    agent = agents.create_agent(
        fake_model(rounds, getattr(work, "__name__", ""), apart or 0), [work]
    )

    async def run() -> str:
        return await last_text(agent, 4 * len(rounds) + 10, stream=apart is not None)

    return run
