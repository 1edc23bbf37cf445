"""Guides: what a mind is asked and shown that solves a published idea anew."""

from __future__ import annotations

import dataclasses

from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.lifting.function import Function, reading_calls, without_reads
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.solution import LAZY
from ideabridge.bridge.publishing.importing import own_cycle
from ideabridge.bridge.runs.pins import Pin, defined_in, pinned_tools, with_own_module
from ideabridge.bridge.runs.replay import next_version, without_cycles
from ideabridge.bridge.store.results import Copies
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject


def guide_of(
    function: Function, lifted: JSONObject | None, task: str, store: Store, name: str
) -> JSONObject | str:
    """Return the guide of a publication (see `Publication.guide`), or the reason why a new run
    cannot have one.

    Args:
        function: the idea as its run made it.
        lifted: its plan as far as it could be lifted, with references in place of literals.
        task: the task, in words, if the run was a plan, which has none.
        store: holds the other publications.
        name: the name to publish under.
    """
    machine = function.run.machine
    solved = machine.mode == "solve"
    if not solved and not machine.has_output:
        return "its run gave its state, and a mind is asked for an output: run it with an `output`"

    context: list[JSON] = [] if solved else [{"role": "user", "content": task}]
    defined: set[JSON] = set()
    for raw in function.run.started.context:
        message = read_message(raw)
        if message.type == "plan" or (message.type == "text" and message.value == LAZY):
            # The guide has its own plan, and nobody reviews a plan when the tool is called.
            continue

        if message.type == "tool" and isinstance(message.value, dict):
            defined.add(message.value.get("name"))

        if message.type == "input" and not message.instance:
            message = dataclasses.replace(message, value={})

        context.append(message.to_json())

    if lifted is not None:
        calls = lifted.get("calls")
        output = lifted.get("output")
    else:
        progresses = [progress for progress in machine.history if not is_reader(progress.tool)]
        readers = reading_calls(machine.history)
        listed: list[JSON] = [without_reads(progress.call.raw, readers) for progress in progresses]
        calls = listed if function.run.places is None else function.calls
        output = function.output

    # With `_module`, as an idea may be called by its name alone.
    if isinstance(calls, list):
        named_calls = [with_own_module(call, machine.catalogue) for call in calls]
    else:
        named_calls = []

    cycle = own_cycle(store, name, named_calls)
    if cycle is not None:
        return cycle

    version = next_version(store, name)
    offered: list[JSON] = [
        list[JSON](tool.origin)
        for tool in without_cycles(store, name, version, machine.catalogue.tools)
        if (tool.module is not None or tool.name not in defined) and not is_reader(tool)
    ]
    if solved:
        output_schema = machine.output_schema
    else:
        output_schema = function.part_schema or function.output_schema or {}

    guide: JSONObject = {"context": context, "tools": offered, "output_schema": output_schema}
    guide["by_instance"] = machine.settings.output_by_instance
    if named_calls:
        if solved:
            # Others may call it, and their minds read the plan: not what this mind copied from
            # private results.
            results = [call.value for call in machine.history if call.status is CallStatus.DONE]
            copies = Copies(
                results, [function.run.started.context, *machine.catalogue.to_json()[0]]
            )
            named_calls = [copies.call(call) for call in named_calls]
            output = copies.scrubbed(output)

        guide["plan"] = {"calls": list[JSON](named_calls), "output": output}
        guide["pins"] = [
            Pin.of(tool).to_json()
            for tool in pinned_tools(named_calls, machine.catalogue, defined_in(guide))
        ]

    return guide
