"""Waiting plan: the plan of a lazy run as people see it before they decide on it (DESIGN 4.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.rehearsal import Rehearsal
from ideabridge.tools.encoding import JSON, JSONObject

SHOWN: Final = 200
"""Calls up to which a plan over instances is drawn with each of its copies; beyond, one instance stands for all."""


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A plan of which nothing has run.

    Attributes:
        question: what is asked; its `approval` is what `Run.decide` takes.
        instances: how many instances one stands for in the dry run and the drawings; 0: each is there.
    """

    question: Question
    rehearsal: Rehearsal
    instances: int = 0

    @property
    def calls(self) -> list[JSON]:
        """Its calls; one for every instance stands once."""
        calls = self.question.shown["calls"]
        return calls if isinstance(calls, list) else []

    @property
    def output(self) -> JSON:
        """Its output, with references; None: it has none yet."""
        return self.question.shown["output"]

    def dry_run(self) -> JSONObject:
        """Its order, what runs in parallel, reads and writes, what is not read-only; see `Bridge.dry_run`."""
        return self.rehearsal.told()

    def draw(self, form: str = "text") -> str:
        """A drawing: `text` or `mermaid`.

        Raises:
            PlanError: no such form.
        """
        return self.rehearsal.drawn(form)

    def to_json(self) -> JSONObject:
        """`{"calls", "output", "instances"?, "dry_run", "drawing"}`."""
        told: JSONObject = dict(self.question.shown)
        if self.instances:
            told["instances"] = self.instances
        return {**told, "dry_run": self.dry_run(), "drawing": self.draw()}


def waiting_plan(machine: Machine) -> WaitingPlan | None:
    """The plan that waits; None where there is none."""
    question, plan = machine.plan_question, machine.waiting_plan
    if question is None or plan is None:
        return None
    if plan.places is None or len(plan.calls) <= SHOWN:
        return WaitingPlan(question, Rehearsal(plan.graph))
    # As if there were no instances: what the first has, all have.
    instances = machine.instances
    documents = machine.documents
    settings = machine.settings
    graph = Graph(
        machine.offered,
        {**documents, "": documents[instances[0]]},
        order=settings.order,
        modules=settings.modules,
        reading=settings.reading,
    )
    shown = question.shown["calls"]
    graph.take(shown if isinstance(shown, list) else [], plan.output)
    return WaitingPlan(question, Rehearsal(graph), len(instances))
