"""Check that a plan reproduces a run, given the recorded results of the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.lifting.contrast import contrast
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import AskApproval, Execute, ExecutionKey
from ideabridge.bridge.loop.event import (
    AT_TERMINAL,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallStarted,
    JournalError,
    MessageAdded,
    SolutionProposed,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.runs.recorded import RecordedRun
from ideabridge.bridge.runs.values import given_by
from ideabridge.tools.encoding import JSONObject

_NOBODY: Final = AT_TERMINAL
_UNBOUNDED: Final = 1_000_000


def inconsistency(
    run: RecordedRun,
    plan: Plan,
    places: Mapping[int, int] | None = None,
    catalogue: Catalogue | None = None,
    unmade: Collection[int] = (),
) -> str | None:
    """Return how the calls or the output of a plan differ from those of a run, or None if they are
    equal.

    The plan gets the run's input. No tool runs, because every call is answered with the recorded
    result.

    Args:
        run: the run.
        plan: the plan with the run's input.
        places: maps each place in the plan to the number of the call in the run. None means that
            the run executed this plan.
        catalogue: the available tools, or None for the tools of the run.
        unmade: places of read-only calls that the run did not make. They are answered with null.
    """
    machine = _plan_machine(run, catalogue or run.machine.catalogue, plan)
    calls, shared = plan.expanded()
    explained = _without_questions(plan.explained)
    # Pass the explanations along, as a process does when it resumes a run, so that the plan is
    # bound only once.
    proposed = SolutionProposed(calls, plan.output, None, shared, explained=explained)
    errors = machine.check(proposed).errors
    if errors:
        return f"it cannot run on its own: {errors[0]['error']}"

    if places is None:
        places = {place: place for place in range(len(run.machine.history))}

    try:
        machine.receive(proposed)
        fault = _Comparison(machine, run, places, unmade).run()
    except JournalError as error:
        return f"it would run different calls: {error}"

    if fault is not None:
        return fault
    if machine.phase != "ending" or (not machine.has_output and plan.output is not None):
        fault = machine.errors[0]["error"] if machine.errors else "calls still wait"
        return f"it would run different calls: {fault}"

    output = given_by(machine)
    if run.is_done and not same(output, run.result):
        difference = contrast(output, run.result)
        return f"with the recorded results its output differs from the recorded one: {difference}"

    return None


def _plan_machine(run: RecordedRun, catalogue: Catalogue, plan: Plan) -> Machine:
    """Return a machine at the start of a plan, with a run's settings.

    Calls need no approval, and any number of them can run in parallel, so that each call is due as
    early as possible. If the plan has more calls than the limit allows, the limit is raised.
    """
    settings = replace(
        run.machine.settings,
        approval="allow_all",
        planning="eager",
        parallel_calls=_UNBOUNDED,
        calls=max(run.machine.settings.calls, len(plan.calls)),
        output_by_instance=plan.output_by_instance,
    )
    machine = Machine(catalogue)
    machine.receive(
        replace(
            run.started,
            mode="plan",
            context=plan.context(),
            settings=settings.to_json(),
            output_schema=plan.output_schema,
            mind=None,
        )
    )
    return machine


def _without_questions(explained: JSONObject | None) -> JSONObject | None:
    """Return the members of `explained` that determine a plan's values, without well-formed members
    that only make the plan ask questions.
    """
    if explained is None:
        return None

    members = dict(explained)
    for key, form in _ONLY_ASKS.items():
        # Keep a malformed member, so that the error in the plan is reported.
        if isinstance(members.get(key), form):
            del members[key]

    return members


_ONLY_ASKS: Final[Mapping[str, type]] = {"seen": dict, "decisions": list, "strict": bool}
"""Members of `explained` that do not change any value, but only make the plan ask, with their
types; see `context/plan_literals.py`.
"""


class _Comparison:
    """Answers each call in a plan with the result of the same call in a run, in the order in which
    the run's calls ended.
    """

    def __init__(
        self, machine: Machine, run: RecordedRun, at: Mapping[int, int], unmade: Collection[int]
    ) -> None:
        self._machine = machine
        self._run = run
        self._at = at
        self._unmade = unmade
        self._ended = run.ends()
        self._order = {(event.call, event.item): number for number, event in enumerate(self._ended)}
        # The calls that are waiting for an answer, in the order they ended in the run. Calls that
        # the run did not make come last, in the order they became due.
        self._waiting: list[tuple[int, int, Execute]] = []
        self._due_count = 0
        self._added: dict[int, list[MessageAdded]] = {}
        for event in run.events:
            if isinstance(event, MessageAdded):
                self._added.setdefault(event.call, []).append(event)

    def run(self) -> str | None:
        """Return the first difference, or None if the plan does what the run did."""
        answered: set[ExecutionKey] = set()
        while True:
            self._start()
            if not self._waiting:
                break

            _, _, effect = heappop(self._waiting)
            fault = self._answer(effect, answered)
            if fault is not None:
                return fault

        compared = set(self._at.values())
        for key in self._order:
            if key[0] in compared and key not in answered:
                label = self._run.machine.history[key[0]].call.label
                return f"it would run different calls: {label} would not run"

        return None

    def _start(self) -> None:
        """Start all calls that are due."""
        while due := self._machine.due():
            for effect in due:
                if isinstance(effect, AskApproval):
                    # The comparison uses the values that the run recorded, so approve every
                    # question.
                    index = effect.call.index
                    self._machine.receive(ApprovalAsked(index, effect.approval, effect.digest))
                    self._machine.receive(CallDecided(index, effect.digest, "approve", _NOBODY))
                elif isinstance(effect, Execute):
                    self._machine.receive(CallStarted(*effect.key))
                    recorded = self._recorded(effect.key)
                    if recorded is None:
                        place = len(self._order)
                    else:
                        place = self._order.get(recorded, len(self._order))
                    heappush(self._waiting, (place, self._due_count, effect))
                    self._due_count += 1
            if not any(isinstance(effect, AskApproval | Execute) for effect in due):
                break

    def _recorded(self, key: ExecutionKey) -> ExecutionKey | None:
        """Return the execution in the run that corresponds to an execution in the plan, or None if
        the run did not execute the call.
        """
        index, item = key
        number = self._at.get(index)
        return None if number is None else (number, item)

    def _answer(self, effect: Execute, answered: set[ExecutionKey]) -> str | None:
        """Answer a call with the result that it had in the run. Return why this is impossible, or
        None if the call was answered.
        """
        index = effect.call.index
        if index in self._unmade:
            self._machine.receive(CallFinished(index, effect.item, value=None))
            return None

        label = f"calls.{effect.call.place} ({effect.call.name})"
        key = self._recorded(effect.key)
        if key is None or key not in self._order:
            return f"it would run different calls: {label}"

        fault = _other_parameters(self._run, effect, key)
        if fault is not None:
            return f"{label} {fault}"

        done = self._ended[self._order[key]]
        answered.add(key)
        for added in self._added.pop(key[0], ()):
            # Besides this call's result, other calls can read the messages that it added.
            self._machine.receive(MessageAdded(index, added.message))

        self._machine.receive(
            CallFinished(index, effect.item, value=done.value, error=done.error, chosen=done.chosen)
        )
        return None


def _other_parameters(run: RecordedRun, effect: Execute, key: ExecutionKey) -> str | None:
    items = run.machine.history[key[0]].items
    number = key[1] or 0
    if number >= len(items):
        return "would run more often than it did"

    recorded = items[number].parameters
    planned = effect.parameters
    for name in dict.fromkeys((*recorded, *planned)):
        before = recorded.get(name)
        now = planned.get(name)
        if not same(before, now) or (name in recorded) != (name in planned):
            return f"would get a different {name}: {contrast(now, before, 60)}"

    return None
