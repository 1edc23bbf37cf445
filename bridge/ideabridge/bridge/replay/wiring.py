"""Wiring: the graph of a plan: what each call waits for, and what it reads (DESIGN 4.9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.proposal import rejection
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.function import Function
from ideabridge.bridge.replay.recorded import RecordedRun
from ideabridge.tools.encoding import JSON

UNBOUNDED = 1_000_000


def plan_machine(run: RecordedRun, catalogue: Catalogue, plan: Plan) -> Machine:
    """A machine at the beginning of a plan, under the settings of a run. Nobody is asked in it, and no call waits for
    room: each is due as early as it can be.
    """
    settings = dataclasses.replace(
        run.machine.settings,
        approval="allow_all",
        planning="eager",
        parallel_calls=UNBOUNDED,
        output_by_instance=plan.output_by_instance,
    )
    machine = Machine(catalogue)
    machine.receive(
        dataclasses.replace(
            run.started,
            mode="plan",
            context=plan.context(),
            settings=settings.to_json(),
            output_schema=plan.output_schema,
            mind=None,
        )
    )
    return machine


def graph_of(function: Function, catalogue: Catalogue, calls: list[JSON], output: JSON) -> Graph:
    """The graph of calls lifted from a run that has no instances.

    Raises:
        PublicationError: they cannot be a plan; the message has every fault.
    """
    plan = Plan(calls=calls, input=function.input, output=output)
    machine = plan_machine(function.run, catalogue, plan)
    errors = machine.check(calls, output)
    graph = machine.checked_graph
    if errors or graph is None:
        raise PublicationError(f"its calls are no plan: {rejection(errors)}")
    return graph


def waits_of(graph: Graph) -> dict[int, set[int]]:
    """By place, the places a call waits for: by data and by `_after`."""
    return {call.index: graph.depends_on(call) for call in graph.calls}


def reads_of(call: Call) -> set[int]:
    """The calls whose results a call reads."""
    return {
        index for read in call.reads for alternative in read.bound for operand in alternative for index in operand or ()
    }


def all_before(steps: Mapping[int, set[int]], start: set[int]) -> set[int]:
    """What a set of calls leads to, by one step or many, itself included."""
    found: set[int] = set()
    open_ = list(start)
    while open_:
        index = open_.pop()
        if index not in found:
            found.add(index)
            open_.extend(steps.get(index, ()))
    return found
