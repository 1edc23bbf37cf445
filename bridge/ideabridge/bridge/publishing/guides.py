"""Compose the context, tools and plan with which a mind solves a published idea again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ideabridge.bridge.context.messages import Message, read_message
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.context.written_call import written_calls
from ideabridge.bridge.lifting.function import Function, reading_calls, without_reads
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.solution import LAZY
from ideabridge.bridge.offer.defined_tools import defined_tools
from ideabridge.bridge.publishing.importing import own_cycle
from ideabridge.bridge.runs.called_ideas import next_version, without_cycles
from ideabridge.bridge.runs.pins import pins_for, with_own_module
from ideabridge.bridge.store.published import PublishedGuide
from ideabridge.bridge.store.results import Copies
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import read_as


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """The plan that a mind sees when it solves an idea again. References replace literals wherever
    they are known.
    """

    calls: list[JSON]
    output: JSON


def guide_of(
    function: Function, lifted: ShownPlan | None, task: str, store: Store, name: str
) -> JSONObject | str:
    """Return the guide for a publication (see `Publication.guide`), or why it cannot have one.

    Args:
        function: the run as a function.
        lifted: the part of the run's plan that could be lifted, or None if no part could be lifted.
        task: the text of the task to use if the run was a plan, because a plan has no task.
        store: contains the other publications.
        name: the name under which the idea is published.
    """
    machine = function.run.machine
    is_solved = machine.mode == "solve"
    if not is_solved and not machine.has_output:
        return (
            "its run returned its state, but a mind must be asked for an output: "
            "run it with an `output`"
        )

    plan = lifted or _plan_of(function)
    # Give every call a `_module`, because a plan can call an idea by its name alone.
    calls = [with_own_module(call, machine.catalogue) for call in plan.calls]
    plan = ShownPlan(calls, plan.output)
    cycle = own_cycle(store, name, written_calls(calls))
    if cycle is not None:
        return cycle

    if is_solved:
        # The context of the run already has the task.
        messages = _messages_of(function, None)
        output_schema = machine.output_schema
    else:
        messages = _messages_of(function, task)
        output_schema = function.part_schema or function.output_schema or {}

    guide: JSONObject = {
        "context": [message.to_json() for message in messages],
        "tools": _tools_of(function, messages, store, name),
        "output_schema": output_schema,
        "by_instance": machine.settings.output_by_instance,
    }
    if plan.calls:
        if is_solved:
            plan = _without_results(plan, function)

        guide["plan"] = {"calls": plan.calls, "output": plan.output}
        guide["pins"] = pins_for(read_as(PublishedGuide, guide), plan.calls, machine.catalogue)

    return guide


def _plan_of(function: Function) -> ShownPlan:
    """Return the plan of a run that could not be lifted, which consists of its calls, unchanged."""
    history = function.run.machine.history
    if function.run.places is not None:
        return ShownPlan(function.calls, function.output)

    readers = reading_calls(history)
    calls: list[JSON] = []
    for progress in history:
        if not is_reader(progress.tool):
            calls.append(without_reads(progress.call.raw, readers))

    return ShownPlan(calls, function.output)


def _messages_of(function: Function, task: str | None) -> list[Message]:
    """Return the context for a new run: `task`, if it is not None, and the context of the recorded
    run with an empty input.
    """
    messages: list[Message] = []
    if task is not None:
        messages.append(read_message({"role": "user", "content": task}))

    for raw in function.run.started.context:
        message = read_message(raw)
        is_plan = message.type == "plan"
        asks_for_plan = message.type == "text" and message.value == LAZY
        if is_plan or asks_for_plan:
            # Leave out plan messages, because the guide contains its own plan and nobody reviews
            # these messages when the tool is called.
            continue
        if message.type == "input" and not message.instance:
            message = dataclasses.replace(message, value={})
        messages.append(message)

    return messages


def _tools_of(
    function: Function, messages: Sequence[Message], store: Store, name: str
) -> list[JSON]:
    """Return the tools of a new run, each as `[module or null, name]`, without the tools that the
    context of the run defines.
    """
    defined = {tool.name for tool in defined_tools(messages)}
    catalogue = function.run.machine.catalogue
    tools: list[JSON] = []
    for tool in without_cycles(store, next_version(store, name), catalogue.tools):
        is_defined = tool.module is None and tool.name in defined
        if not is_defined and not is_reader(tool):
            tools.append(list[JSON](tool.origin))

    return tools


def _without_results(plan: ShownPlan, function: Function) -> ShownPlan:
    """Return the plan without the values that a mind copied from results.

    Results are private, but the plan is read by the minds of other users who call the tool.
    """
    machine = function.run.machine
    results = [call.value for call in machine.history if call.status is CallStatus.DONE]
    tools, _ = machine.catalogue.to_json()
    # Everybody may see the context and the tools, so values that they contain stay in the plan.
    copies = Copies(results, [function.run.started.context, *tools])
    calls = [copies.call(call) for call in plan.calls]
    return ShownPlan(calls, copies.scrubbed(plan.output))
