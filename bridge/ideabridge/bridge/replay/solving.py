"""Solving: what a fresh run of a published idea begins with: its context, tools and plan (DESIGN 4.11, 4.9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ideabridge.bridge.context.message import read_message
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.replay.called import cycle_through
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import IDEA, Tool


def without_cycles(store: Store, name: str, version: int, tools: Iterable[Tool]) -> list[Tool]:
    """The tools through which a version of an idea published as `name` cannot come to be called inside its own run."""
    return [
        tool
        for tool in tools
        if tool.module is None
        or not tool.module.startswith(IDEA)
        or (
            tool.module.removeprefix(IDEA).partition("@")[0] != name
            and cycle_through(store, name, version, [{"_module": tool.module}]) is None
        )
    ]


def context_of(guide: JSONObject, arguments: JSONObject) -> list[JSON]:
    """The context of a fresh run: the idea's own, with the caller's input, and its plan before that input."""
    found: list[JSON] = []
    plan = guide.get("plan")
    told: list[JSON] = (
        [] if plan is None else [{"type": "plan", "plan": plan, "description": "how it was solved before"}]
    )
    context = guide.get("context")
    for raw in context if isinstance(context, list) else []:
        message = read_message(raw)
        if message.type == "input" and not message.instance:
            found += [*told, dataclasses.replace(message, value=arguments).to_json()]
            told = []
        else:
            found.append(raw)
    return [*found, *told]


def tools_of(guide: JSONObject) -> list[tuple[str | None, str]]:
    """(module, name) of the tools a fresh run may call, besides those its context defines."""
    tools = guide.get("tools")
    return [
        (pair[0] if isinstance(pair[0], str) else None, str(pair[1]))
        for pair in (tools if isinstance(tools, list) else [])
        if isinstance(pair, list) and len(pair) == 2
    ]


def calls_of(guide: JSONObject) -> list[JSON]:
    """The calls of its plan."""
    plan = guide.get("plan")
    calls = plan.get("calls") if isinstance(plan, dict) else None
    return calls if isinstance(calls, list) else []
