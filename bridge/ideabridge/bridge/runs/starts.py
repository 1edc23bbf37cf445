"""Create the beginning of a run under a configuration.

A run begins as a `Start`: a machine that has applied `RunStarted`, and the first events to be
journaled. The settings come from the configuration. A caller can lower the configured limits, but
not raise them.
"""

from __future__ import annotations

import glob
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.written_call import written_calls
from ideabridge.bridge.errors import PlanError, RejectedSolutionError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import Event, ProgramProposed, RunStarted, SolutionProposed
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.settings import PLANNINGS, RULES, ModuleOrder, Planning, Settings
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.minds.choice import Choice
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.sandbox import ASK, LONGEST_PROGRAM, interpreter
from ideabridge.tools.compose import wrap_output
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    ObjectLike,
    normalise,
    number_or_none,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of a run, for `Runs.create`. `machine` has already applied the first event."""

    machine: Machine
    events: tuple[Event, ...]


def start_plan(
    plan: Plan,
    catalogue: Catalogue,
    settings: Settings,
    before: list[JSON] | None = None,
    choice: Choice | None = None,
) -> Start:
    """Create the start of a plan.

    The messages in `before` precede the context. `choice` is the mind of the rooms, or None if each
    room chooses its mind when it opens.

    Raises:
        PlanError: the plan is malformed. `errors` lists every fault with its call.
        SchemaError: the output schema is invalid.
    """
    machine = Machine(catalogue)
    context = [*(before or []), *plan.context()]
    mind, reason = (None, None) if choice is None else (choice.name, choice.why)
    start = RunStarted(
        "plan", context, *catalogue.to_json(), settings.to_json(), plan.output_schema, mind, reason
    )
    calls, places = plan.expanded()
    # Check the plan before storing anything, so that a malformed plan does not leave a run behind.
    machine.receive(start)
    proposed = SolutionProposed(calls, plan.output, None, places, explained=plan.explained)
    errors = machine.check(proposed).errors
    if errors:
        raise PlanError(rejection(errors), [dict(error) for error in errors])

    real_calls = [
        catalogue.as_real(call) if isinstance(call, dict) else call for call in plan.calls
    ]
    if real_calls != plan.calls:
        # Use the names that the servers list, because these are the names in the journal and the
        # idea.
        catalogue = catalogue.with_real(written_calls(plan.calls))
        return start_plan(replace(plan, calls=real_calls), catalogue, settings, before, choice)
    return Start(machine, (start, proposed))


NO_PROGRAMS: Final = "program: the configuration turns programs off (programs: false); write calls"


def expect_programs(settings: Settings) -> None:
    """Raise an error unless the settings allow programs.

    Raises:
        PlanError: programs are turned off, or the run is lazy.
    """
    if not settings.programs:
        raise PlanError(NO_PROGRAMS)
    if settings.lazy:
        raise PlanError(
            "planning: nobody can accept the calls of a program before it makes them, so leave out "
            "lazy"
        )


def start_program(
    plan: Plan,
    catalogue: Catalogue,
    settings: Settings,
    names: JSONObject,
    before: list[JSON] | None = None,
    choice: Choice | None = None,
) -> Start:
    """Create the start of a plan that is a program and has already been checked.

    Args:
        plan: the plan.
        catalogue: the tools that the plan can call.
        settings: the settings of the run.
        names: the names that the program uses for tools; see `ProgramNames.used_by`.
        before: messages that precede the context.
        choice: the mind of the rooms, or None if each room chooses its mind when it opens.

    Raises:
        PlanError: programs are turned off, or the run is lazy.
        SchemaError: the output schema is invalid.
        ProgramError: a tool is not in the catalogue, or the interpreter is missing.
    """
    machine = Machine(catalogue)
    context = [*(before or []), *plan.context()]
    mind, reason = (None, None) if choice is None else (choice.name, choice.why)
    start = RunStarted(
        "plan", context, *catalogue.to_json(), settings.to_json(), plan.output_schema, mind, reason
    )
    machine.receive(start)
    faults = machine.opening_faults()
    if faults:
        raise PlanError("\n".join(faults))
    return Start(machine, (start, _proposed(plan, names, machine)))


def start_step(
    machine: Machine,
    program: str,
    given: JSON,
    settings: Settings,
    before: list[JSON],
    choice: Choice | None,
) -> Start:
    """Create the start of a program that is a call in a plan; see `programs/steps.py`.

    Args:
        machine: the machine of the plan, whose tools the program can call.
        program: the text of the program.
        given: the input of the program, or null if it has no input.
        settings: the settings of the room.
        before: messages that precede the context.
        choice: the mind of the rooms, or None if each room chooses its mind when it opens.

    Raises:
        PlanError: programs are turned off.
        ProgramError: the interpreter is missing.
    """
    offered = machine.offer.every
    names = ProgramNames(offered.tools).used_by(program)
    used = list(ProgramNames.of(names, offered.tools).listed)
    if ASK in program:
        used += [tool for tool in offered.tools if tool.asks_mind]

    tools = {tool.key: tool for tool in used}
    catalogue = Catalogue(tools.values(), [key for key in offered.latent if key in tools])
    plan = Plan([], object_or_empty(given), program=program)
    return start_program(plan, catalogue, settings, names, before, choice)


def _proposed(
    plan: Plan, names: JSONObject, machine: Machine, mind: str | None = None
) -> ProgramProposed:
    expect_programs(machine.settings)
    # Check that every tool that the program names exists, because it can call only those.
    ProgramNames.of(names, machine.offer.every.tools)
    seed = secrets.token_hex(8)
    return ProgramProposed(
        plan.program or "",
        interpreter(),
        time.time(),
        seed,
        names,
        mind=mind,
        reached=plan.reached,
        assumed=list[JSON](plan.assumed) or None,
    )


def program_of_mind(
    machine: Machine,
    program: str,
    run: str,
    extra: JSONObject,
    mind: str | None = None,
    model: str | None = None,
) -> ProgramProposed:
    """Create the event for a program that a mind wrote as its answer to the current Request.

    Args:
        machine: the machine of the run.
        program: the text of the program.
        run: the id of the run.
        extra: the other properties of the answer.
        mind: the mind that wrote the solution, or None for the caller who answers turn by turn.
        model: the model that wrote the solution, if it is known.

    Raises:
        RejectedSolutionError: programs are turned off, the run is lazy or has instances, or the
            program is too long.
        ProgramError: the interpreter is missing.
    """
    if not machine.settings.programs:
        raise RejectedSolutionError(NO_PROGRAMS)
    if machine.settings.lazy:
        raise RejectedSolutionError(
            "program: nobody can accept its calls before it makes them; write a list of calls "
            "instead"
        )

    if machine.instances:
        raise RejectedSolutionError(
            "program: a run with instances cannot have a program; write a list of calls instead"
        )
    if len(program) > LONGEST_PROGRAM:
        raise RejectedSolutionError(
            f"program: found {len(program):,} characters; the limit is {LONGEST_PROGRAM:,}"
        )

    names = ProgramNames(machine.offer.current.tools).used_by(program)
    # Let the seed depend only on the turn, so that a solution that is sent twice results in the
    # same event.
    seed = f"{run}/{machine.step}"
    return ProgramProposed(
        program, interpreter(), time.time(), seed, names, extra or None, mind, model
    )


def start_solve(
    context: list[JSON],
    catalogue: Catalogue,
    settings: Settings,
    output_schema: JSONObject | None,
    choice: Choice,
    *,
    idea: str | None = None,
) -> Start:
    """Create the start of the agent loop with a context. If `output_schema` is None, the output is
    text.

    If an idea is solved again, `idea` is its id, and the idea becomes the parent of the run's first
    idea.

    Raises:
        MessageError: a message is malformed, or its value does not satisfy its schema.
        SchemaError: the output schema is invalid.
    """
    machine = Machine(catalogue)
    settings = replace(settings, shown={**choice.shown, **settings.shown})
    start = RunStarted(
        "solve",
        context,
        *catalogue.to_json(),
        settings.to_json(),
        output_schema,
        choice.name,
        choice.why,
        idea,
    )
    machine.receive(start)
    faults = machine.opening_faults()
    if faults:
        raise MessageError("\n".join(faults))
    return Start(machine, (start,))


PLAN = "plan"
"""The recorded name of the mind if the Solution is an idea's plan."""


def start_solve_by(plan: Plan, begun: Start) -> Start:
    """Let a plan answer the first Request of the agent loop. If the plan produces no output, a mind
    answers the next Request.

    Raises:
        PlanError: the plan is malformed, and `errors` lists every fault with its call; or the plan
            is a program, but programs are turned off or the run is lazy.
        ProgramError: the plan is a program, and one of its tools is not offered.
    """
    machine = begun.machine
    if plan.program is not None:
        return Start(machine, (*begun.events, _proposed(plan, plan.names or {}, machine, PLAN)))

    calls, places = plan.expanded()
    output = plan.output
    explained = plan.explained
    if wrap_output(machine.output_schema)[1]:
        # Wrap the output, because a mind also has to wrap it.
        output = {"value": output}
        explained = _below_value(explained)

    proposed = SolutionProposed(calls, output, None, places, PLAN, explained=explained)
    errors = machine.check(proposed).errors
    if errors:
        raise PlanError(rejection(errors), [dict(error) for error in errors])
    return Start(machine, (*begun.events, proposed))


def _below_value(explained: JSONObject | None) -> JSONObject | None:
    """Return the explained values in a plan, with their places adjusted to the wrapped output."""
    listed = (explained or {}).get("values")
    if not isinstance(listed, list):
        return explained
    return {**(explained or {}), "values": list(map(_moved, listed))}


def _moved(one: JSON) -> JSON:
    match one:
        case {"at": ["output", *keys]}:
            return {**one, "at": ["output", "value", *keys]}
        case _:
            return one


Limit = TypeVar("Limit", int, float)

_LIMITS = ("parallel_calls", "calls", "requests", "wall_seconds", "tokens", "cost")


class _AskedLimits:
    """The limits that a caller asks for.

    Args:
        limits: the limits, keyed by name.

    Raises:
        PlanError: a limit is unknown. The methods also raise this error, if a value is wrong.
    """

    def __init__(self, limits: ObjectLike) -> None:
        self._limits = limits
        for name in limits:
            if name not in _LIMITS:
                limits_text = ", ".join(_LIMITS)
                raise PlanError(
                    f"limits: unknown limit {name[:100]!r}; the limits are "
                    f"{limits_text}.{did_you_mean(name, _LIMITS)}"
                )

    def number(self, name: str) -> float | None:
        """Return a limit, or None if the caller did not set it."""
        value = self._limits.get(name)
        if value is None:
            return None
        number = number_or_none(value)
        if number is None or not math.isfinite(number) or number <= 0:
            raise PlanError(f"limits.{name}: expected a number above 0, found {_shown(value)}")
        return number

    def whole_number(self, name: str) -> int | None:
        """Return a whole-number limit, or None if the caller did not set it."""
        value = self.number(name)
        if value is None:
            return None
        if value != int(value):
            raise PlanError(f"limits.{name}: expected a whole number, found {_shown(value)}")
        return int(value)

    def count(self, name: str, configured: int) -> int:
        """Return the limit that the caller asks for or the configured one, whichever is lower."""
        value = self.whole_number(name)
        return configured if value is None else min(value, configured)


def settings_under(
    configuration: Configuration,
    limits: ObjectLike | None = None,
    *,
    output_by_instance: bool = False,
    planning: Planning = "eager",
    thought_process: bool | None = None,
    shown: Mapping[str, int] | None = None,
) -> Settings:
    """Create the settings of a run.

    Args:
        configuration: contains the order, the approval rules and the limits.
        limits: lower limits that a caller asks for. A limit above the configured one has no effect.
        output_by_instance: whether the output is a mapping of instance to output.
        planning: `eager` or `lazy`.
        thought_process: whether minds write their reasoning before the calls, or None for the
            configured value.
        shown: how many bytes of results the mind is shown, if the run or its mind sets this; see
            `read_shown`.

    Raises:
        PlanError: the planning or a limit is unknown, or a value is not a number above 0 (for
            counts: a whole number).
    """
    if planning not in PLANNINGS:
        raise PlanError(f"planning: expected 'eager' or 'lazy', found {planning!r}")

    modules: dict[str, ModuleOrder] = {}
    for name, module in configuration.modules.items():
        order = _order_of(module)
        if order != ModuleOrder():
            modules[name] = order

    if thought_process is None:
        thought_process = configuration.thought_process

    asked = _AskedLimits(limits or {})
    own = configuration.limits
    seconds = asked.number("wall_seconds") or own.wall_seconds
    return Settings(
        order=configuration.order,
        modules=modules,
        parallel_calls=asked.count("parallel_calls", own.parallel_calls),
        calls=asked.count("calls", own.calls),
        requests=asked.count("requests", own.requests),
        wall_seconds=min(seconds, own.wall_seconds),
        output_by_instance=output_by_instance,
        approval=configuration.approval_setting,
        planning=planning,
        thought_process=thought_process,
        programs=configuration.programs,
        foresight=True,
        rules=RULES,
        shown={**configuration.shown.stated, **(shown or {})},
        tokens=_lower(asked.whole_number("tokens"), own.tokens),
        cost=_lower(asked.number("cost"), own.cost),
    )


def _lower(asked: Limit | None, configured: Limit | None) -> Limit | None:
    """Return the lower of two limits. None means no limit."""
    limits = [limit for limit in (asked, configured) if limit is not None]
    return min(limits, default=None)


def _order_of(module: ModuleConfiguration) -> ModuleOrder:
    """Return how the configuration orders the calls to a server."""
    reads = list(module.read_only)
    changes: list[str] = []
    for name, tool in module.tools.items():
        if tool.read_only is not None:
            patterns = reads if tool.read_only else changes
            patterns.append(glob.escape(name))

    return ModuleOrder(module.order != "none", tuple(reads), tuple(changes))


def _shown(value: object) -> str:
    """Return a value as JSON text if it can be written as JSON."""
    try:
        return show(normalise(value))
    except IdeabridgeError:
        return repr(value)
