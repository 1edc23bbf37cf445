"""Starts: a machine and the first events of a run, before there is one (DESIGN 4.4, 4.9)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import Event, RunStarted, SolutionProposed
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import Choice
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.run_values import rejection
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class Start:
    """What `Runs.create` makes a run of: `machine` has taken the first of `events` already."""

    machine: Machine
    kind: Literal["plan", "solve"]
    events: tuple[Event, ...]


def start_plan(
    plan: Plan,
    catalogue: Catalogue,
    settings: Settings,
    before: list[JSON] | None = None,
    choice: Choice | None = None,
) -> Start:
    """The start of a plan.

    Args:
        plan: the plan.
        catalogue: the tools it names.
        settings: of the run.
        before: context messages before its own.
        choice: of the mind that answers in its rooms; None: left to when they open.

    Raises:
        PlanError: it is malformed; `errors` has every fault with its call.
        SchemaError: its output schema is invalid.
    """
    settings = dataclasses.replace(settings, reading=plan.reading)
    catalogue = catalogue.as_read(plan.reading)
    machine = Machine(catalogue)
    context = [*(before or []), *plan.context()]
    told = (None, None) if choice is None else (choice.name, choice.why)
    start = RunStarted("plan", context, *catalogue.to_json(), settings.to_json(), plan.output_schema, *told)
    calls, places = plan.expanded()
    # Checked on a machine of its own: a malformed plan leaves no run behind.
    machine.receive(start)
    errors = machine.check(calls, plan.output, places)
    if errors:
        raise PlanError(rejection(errors), [dict(error) for error in errors])
    return Start(machine, "plan", (start, SolutionProposed(calls, plan.output, None, places)))


def start_solve(
    context: list[JSON],
    catalogue: Catalogue,
    settings: Settings,
    output_schema: JSONObject | None,
    choice: Choice,
    *,
    idea: str | None = None,
) -> Start:
    """The start of the agent loop on a context.

    Args:
        context: the messages.
        catalogue: the tools to offer.
        settings: of the run.
        output_schema: of the output; None: text.
        choice: of the mind that answers.
        idea: id of the idea it is made from: the parent of its own first idea.

    Raises:
        MessageError: a message that is none.
        SchemaError: the output schema is invalid.
    """
    machine = Machine(catalogue)
    told = (choice.name, choice.why)
    start = RunStarted("solve", context, *catalogue.to_json(), settings.to_json(), output_schema, *told, idea)
    machine.receive(start)
    return Start(machine, "solve", (start,))
