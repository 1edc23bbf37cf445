"""LangGraph: a graph of one node that answers and LangGraph's own node that runs tools."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from peers import Rounds, Work
from peers.langchain_model import fake_model, last_text, messages_of


def prepare(rounds: Rounds, work: Work, apart: float | None) -> Callable[[], Awaitable[str]]:
    """See `peers.Prepare`. An answer that comes whole is given by the node itself: without a chat
    model's wrappers.
    """
    graphs: Any = importlib.import_module("langgraph.graph")
    prebuilt: Any = importlib.import_module("langgraph.prebuilt")
    tool: str = getattr(work, "__name__", "")
    left = itertools.cycle(messages_of(rounds, tool))
    model = fake_model(rounds, tool, apart or 0)

    async def answer(state: Any) -> dict[str, Any]:
        return {
            "messages": [next(left) if apart is None else await model.ainvoke(state["messages"])]
        }

    builder = graphs.StateGraph(graphs.MessagesState)
    builder.add_node("answer", answer)
    builder.add_node("tools", prebuilt.ToolNode([work]))
    builder.add_edge(graphs.START, "answer")
    builder.add_conditional_edges("answer", prebuilt.tools_condition)
    builder.add_edge("tools", "answer")
    graph = builder.compile()

    async def run() -> str:
        return await last_text(graph, 4 * len(rounds) + 10, stream=apart is not None)

    return run
