"""Consistency: a plan answered with recorded results must give the recorded output (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Mapping

from ideabridge.bridge.context.document import Missing
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import Execute, ExecutionKey
from ideabridge.bridge.loop.event import CallFinished, CallStarted, JournalError, MessageAdded, SolutionProposed
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.leaves import contrast
from ideabridge.bridge.replay.origins import picked
from ideabridge.bridge.replay.recorded import RecordedRun
from ideabridge.bridge.replay.values import same
from ideabridge.bridge.replay.wiring import plan_machine
from ideabridge.bridge.run_values import given_by
from ideabridge.tools.encoding import JSON, content_hash


def inconsistency(
    run: RecordedRun, plan: Plan, places: Mapping[int, int] | None = None, catalogue: Catalogue | None = None
) -> str | None:
    """Why the plan, with the run's own input and the results its calls gave, does not do what the run did and give what
    it gave; None where it does. Nothing runs: every call is answered with what it gave in the run.

    Args:
        run: the run.
        plan: with the run's input.
        places: the number in the run of each call of the plan; one that is not in it is a `pick`, which is worked
            out. None: the plan is the run's own.
        catalogue: the tools; None: as the run knew them.
    """
    machine = plan_machine(run, catalogue or run.machine.catalogue, plan)
    calls, shared = plan.expanded()
    errors = machine.check(calls, plan.output, shared)
    if errors:
        return f"it cannot run by itself: {errors[0]['error']}"
    at = dict(enumerate(range(len(run.machine.history)))) if places is None else dict(places)
    try:
        machine.receive(SolutionProposed(calls, plan.output, None, shared))
        fault = _run(machine, run, at)
    except JournalError as error:
        return f"other calls would run than did: {error}"
    if fault is not None:
        return fault
    if machine.phase != "ending" or (not machine.has_output and plan.output is not None):
        told = machine.errors[0]["error"] if machine.errors else "calls still wait"
        return f"other calls would run than did: {told}"
    given = given_by(machine)
    if content_hash(given) != content_hash(run.result):
        return f"with the recorded results it gives another output than the recorded one: {contrast(given, run.result)}"
    return None


def _run(machine: Machine, run: RecordedRun, at: dict[int, int]) -> str | None:
    """Answer every call as it was answered, in the order they ended."""
    ended = [event for event in run.executions() if isinstance(event, CallFinished)]
    order = {(event.call, event.item): number for number, event in enumerate(ended)}
    added: dict[int, list[MessageAdded]] = {}
    for event in run.events:
        if isinstance(event, MessageAdded):
            added.setdefault(event.call, []).append(event)
    waiting: dict[ExecutionKey, Execute] = {}
    answered: set[ExecutionKey] = set()
    while True:
        for effect in [one for one in machine.due() if isinstance(one, Execute)]:
            machine.receive(CallStarted(*effect.key))
            waiting[effect.key] = effect
        if not waiting:
            break

        def moment(key: ExecutionKey) -> int:
            # What is worked out takes no time.
            return order.get((at[key[0]], key[1]), len(order)) if key[0] in at else -1

        effect = waiting.pop(min(waiting, key=moment))
        index = effect.call.index
        label = f"calls.{effect.call.place} ({effect.call.name})"
        if index not in at:
            if effect.tool.key != (None, "pick"):
                return f"other calls would run than did: {label}"
            value = _worked_out(effect)
            if isinstance(value, Missing):
                return f"{label} selects nothing from the recorded results"
            machine.receive(CallFinished(index, effect.item, value=value))
            continue
        key = (at[index], effect.item)
        if key not in order:
            return f"other calls would run than did: {label}"
        fault = _other_parameters(run, effect, key)
        if fault is not None:
            return f"{label} {fault}"
        done = ended[order[key]]
        answered.add(key)
        for one in added.pop(at[index], ()):
            # What it added is read by others, as its result is.
            machine.receive(MessageAdded(index, one.message))
        machine.receive(CallFinished(index, effect.item, value=done.value, error=done.error, chosen=done.chosen))
    wanted = set(at.values())
    left = [key for key in order if key[0] in wanted and key not in answered]
    if left:
        return f"other calls would run than did: {run.machine.history[left[0][0]].call.label} would not"
    return None


def _worked_out(effect: Execute) -> JSON | Missing:
    path = effect.parameters.get("path")
    return picked(effect.parameters.get("data"), path if isinstance(path, str) else None)


def _other_parameters(run: RecordedRun, effect: Execute, key: ExecutionKey) -> str | None:
    items = run.machine.history[key[0]].items
    number = key[1] or 0
    if number >= len(items):
        return "would run more often than it did"
    ran = items[number].parameters
    for name in dict.fromkeys((*ran, *effect.parameters)):
        if not same(ran.get(name), effect.parameters.get(name)) or (name in ran) != (name in effect.parameters):
            return f"would be given another {name}: {contrast(effect.parameters.get(name), ran.get(name), 60)}"
    return None
