"""Consistency: a plan answered with the recorded results must give the recorded output (DESIGN 4.11)."""

from __future__ import annotations

import dataclasses

from ideabridge.bridge.loop.event import JournalError, SolutionProposed
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.recorded import RecordedRun
from ideabridge.bridge.run_values import given_by
from ideabridge.tools.encoding import content_hash

_UNBOUNDED = 1_000_000


def inconsistency(run: RecordedRun, plan: Plan) -> str | None:
    """Why the plan, with the run's own input and the results its calls gave, does not give what the run gave; None
    where it does. Nothing runs: the recorded results are told to a machine in the order they came.
    """
    # Nobody is asked again, and no call waits for room: each is due as early as it can be.
    settings = dataclasses.replace(
        run.machine.settings,
        approval="allow_all",
        planning="eager",
        parallel_calls=_UNBOUNDED,
        output_by_instance=plan.output_by_instance,
    )
    machine = Machine(run.machine.catalogue)
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
    calls, places = plan.expanded()
    errors = machine.intake.check(calls, plan.output, places)
    if errors:
        return f"it cannot run by itself: {errors[0]['error']}"
    try:
        machine.receive(SolutionProposed(calls, plan.output, None, places))
        for event in run.executions():
            machine.receive(event)
    except JournalError as error:
        return f"other calls would run than did: {error}"
    if machine.phase != "ending":
        return "other calls would run than did"
    if content_hash(given_by(machine)) != content_hash(run.result):
        return "with the recorded results it gives another output than the recorded one"
    return None
