"""Peers: other agent loops that do the same work in the same process, each only where
it is installed.

    pip install '.[bench]'

A peer gets a model that answers from a list, one async tool, and keeps its history as it always
does. Each is set up the fastest way its documentation offers: no tracing, no checkpoints, no limits
but those it cannot do without.
Imported by name: nothing here is needed for anything else, nor for checking types.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

Rounds: TypeAlias = Sequence[Sequence[int]]
"""The answers of a model: for each the numbers its calls are made with. After the last it answers
"done", and then begins anew.
"""

Work: TypeAlias = Callable[[int], Awaitable[int]]
"""The tool: a typed async function with a docstring."""

Prepare: TypeAlias = Callable[[Rounds, Work, "float | None"], Callable[[], Awaitable[str]]]
"""Makes an agent of answers, a tool, and the seconds before each streamed call (None: an answer
comes whole, at once); gives the function that runs it once and gives what it answered, to be called
any number of times.
"""

_MODULES = {
    "pydantic-ai": ("pydantic_ai", "pydantic_ai_agent"),
    "LangGraph": ("langgraph", "langgraph_graph"),
    "LangChain create_agent": ("langchain", "langchain_agent"),
    "openai-agents": ("agents", "openai_agents"),
}


def installed() -> dict[str, Prepare]:
    """The peers that are here, by name."""
    return {
        name: cast("Prepare", importlib.import_module(f"peers.{module}").prepare)
        for name, (package, module) in _MODULES.items()
        if importlib.util.find_spec(package) is not None
    }


def missing() -> list[str]:
    """The names of the peers that are not here."""
    return [
        name for name, (package, _) in _MODULES.items() if importlib.util.find_spec(package) is None
    ]
