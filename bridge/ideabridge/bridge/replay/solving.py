"""Solving: what a fresh run of a published idea begins with: its context, tools and plan (DESIGN 4.11, 4.9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ideabridge.bridge.context.message import read_message
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.proposal import LAZY
from ideabridge.bridge.replay.called import cycle_through, next_version
from ideabridge.bridge.replay.function import Function
from ideabridge.bridge.replay.pins import Pin, defined_in, meant, tools_meant
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import IDEA, Tool


def guide_of(function: Function, lifted: JSONObject | None, task: str, store: Store, name: str) -> JSONObject | str:
    """What a fresh run begins with, as a publication holds it (see `Publication.guide`), or why there can be none.

    Args:
        function: the idea as its run made it.
        lifted: its plan as far as it could be lifted: references stand in place of literals.
        task: what to do, where the run was a plan, which nobody asked for in words.
        store: holds what else is published.
        name: what it is to be called.
    """
    machine = function.run.machine
    if not machine.has_output:
        return "its run gave its state, and a mind is asked for an output: run it with an `output`"
    solved = machine.mode == "solve"
    context: list[JSON] = [] if solved else [{"role": "user", "content": task}]
    defined: set[JSON] = set()
    for raw in function.run.started.context:
        message = read_message(raw)
        if message.type == "plan" or (message.type == "text" and message.value == LAZY):
            # It is guided by its own plan, and a call of it is not planned with a person.
            continue
        if message.type == "tool" and isinstance(message.value, dict):
            defined.add(message.value.get("name"))
        if message.type == "input" and not message.instance:
            message = dataclasses.replace(message, value={})
        context.append(message.to_json())
    if lifted is not None:
        calls, output = lifted.get("calls"), lifted.get("output")
    else:
        listed: list[JSON] = [one.call.raw for one in machine.history]
        calls, output = listed if function.run.places is None else function.calls, function.output
    version = next_version(store, name)
    if isinstance(calls, list):
        cycle = cycle_through(store, name, version, calls)
        if cycle is not None:
            return f"it would call itself: {' -> '.join(cycle)}"
    offered: list[JSON] = [
        list[JSON](tool.origin)
        for tool in without_cycles(store, name, version, machine.catalogue.tools)
        if tool.module is not None or tool.name not in defined
    ]
    asked = machine.output_schema if solved else function.part_schema or function.output_schema or {}
    guide: JSONObject = {"context": context, "tools": offered, "output_schema": asked}
    guide["by_instance"] = machine.settings.output_by_instance
    if isinstance(calls, list) and calls:
        known = machine.catalogue
        said = [meant(call, known.look_up(call) if isinstance(call, dict) else None) for call in calls]
        guide["plan"] = {"calls": said, "output": output}
        guide["pins"] = [Pin.of(tool).to_json() for tool in tools_meant(said, known, defined_in(guide))]
    return guide


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
