"""Rehearsal: a plan read, bound and checked, and never run (DESIGN 4.9)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import cast

from ideabridge.bridge.context.reference import DAGGER, Hole, Reference, compile_value, format_reference
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.drawing import FORMS, draw
from ideabridge.bridge.loop.dry_run import dry_run
from ideabridge.bridge.loop.event import RunStarted
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.run_values import rejection
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A plan that can run.

    Attributes:
        graph: its calls, bound to each other.
        missing: what it reads of an input, where it was given none.
    """

    graph: Graph
    missing: tuple[str, ...] = ()

    def told(self) -> JSONObject:
        """What it would do; see `dry_run`."""
        return dry_run(self.graph, self.missing)

    def drawn(self, form: str) -> str:
        """A drawing of it; see `draw`.

        Raises:
            PlanError: no such form.
        """
        if form not in FORMS:
            raise PlanError(f"drawing: expected {' or '.join(map(repr, FORMS))}, found {form!r}")
        return draw(self.graph, form, self.missing)


def rehearse(plan: Plan, catalogue: Catalogue, settings: Settings) -> Rehearsal:
    """Check a plan as its run would. Where it was given no input, what it reads of one is told, not refused.

    Raises:
        PlanError: it is malformed; `errors` has every fault with its call.
    """
    graph, errors = _checked(plan, catalogue, settings)
    missing: tuple[str, ...] = ()
    if errors and plan.input is None:
        needed = _needed_inputs(plan)
        if needed:
            graph, errors = _checked(dataclasses.replace(plan, input=_placeholder(needed)), catalogue, settings)
            missing = tuple(dict.fromkeys(format_reference(one.full) for one in needed))
    if errors:
        raise PlanError(rejection(errors), [dict(error) for error in errors])
    return Rehearsal(graph, missing)


def _checked(plan: Plan, catalogue: Catalogue, settings: Settings) -> tuple[Graph, list[JSONObject]]:
    settings = dataclasses.replace(settings, reading=plan.reading)
    catalogue = catalogue.as_read(plan.reading)
    machine = Machine(catalogue)
    machine.receive(RunStarted("plan", plan.context(), [], [], settings.to_json(), plan.output_schema))
    calls, places = plan.expanded()
    errors = machine.check(calls, plan.output, places)
    # Without a graph there are more calls than a run may list, which is an error.
    return machine.checked_graph or Graph(catalogue, {}), errors


def _needed_inputs(plan: Plan) -> list[Reference]:
    """What the plan reads of its input where nothing else may stand in for it."""
    holes: list[Hole] = []
    compile_value([*plan.calls, _imported(plan), plan.output], holes, [])
    needed: list[Reference] = []
    for hole in holes:
        reads = [[one for one in operands if one.kind == "input"] for operands in hole.expression.alternatives]
        if all(reads):
            needed.extend(one for one in reads[0] if one.path)
    return needed


def _imported(plan: Plan) -> list[JSON]:
    """What `_imports` name without a dagger (DESIGN 4.10)."""
    listed = [call.get("_imports") for call in plan.calls if isinstance(call, dict)]
    names = [name for names in listed if isinstance(names, list) for name in names]
    return [DAGGER + name for name in names if isinstance(name, str) and not name.startswith(DAGGER)]


def _placeholder(needed: list[Reference]) -> JSONObject:
    """An input in which every one of these is there."""
    root: JSONObject = {}
    for operand in needed:
        here = root
        for key in operand.path:
            below: JSON = here.setdefault(key, {})
            here = cast("JSONObject", below)
    return root
