"""Drives a machine by hand: tools are pure functions, calls finish in any order asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import (
    Allow,
    AskApproval,
    AskMind,
    AskPlan,
    Cancel,
    Commit,
    Execute,
    Finish,
)
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    Event,
    GroupCommitted,
    MessageAdded,
    OutputProposed,
    PlanAsked,
    RequestMade,
    RunEnded,
    RunStarted,
    SolutionClosed,
    SolutionProposed,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import in_flight
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode
from ideabridge.tools.tool import Annotations, Tool

ANY_PARAMETERS: JSONObject = {
    "type": "object",
    "properties": {"x": {}, "y": {}},
    "additionalProperties": False,
}
READ_ONLY = Annotations(read_only=True, idempotent=True)
EFFECTS = Annotations(read_only=False, idempotent=True)

TOOLS = [
    Tool("echo", parameters=ANY_PARAMETERS, annotations=READ_ONLY),
    Tool("write", parameters=ANY_PARAMETERS, annotations=EFFECTS),
    # It also adds its result as data, whose kind is its place in the run.
    Tool("tell", parameters=ANY_PARAMETERS, annotations=READ_ONLY),
]

Execution = Callable[[Execute], tuple[bool, JSON]]
"""(succeeded, value or message) of one execution."""


def started(
    context: list[JSON] | None = None,
    *,
    mode: Any = "plan",
    tools: list[Tool] | None = None,
    settings: Settings | None = None,
    output_schema: JSONObject | None = None,
) -> RunStarted:
    definitions, latent = Catalogue(tools or TOOLS).to_json()
    chosen = settings or Settings(approval="allow_all")
    return RunStarted(mode, context or [], definitions, latent, chosen.to_json(), output_schema)


def echo(effect: Execute) -> tuple[bool, JSON]:
    return True, effect.parameters.get("x")


class Driven:
    """A machine with its journal; every event goes through JSON, as a stored one does."""

    def __init__(self, execution: Execution = echo, seed: int = 0) -> None:
        self.machine = Machine()
        self.journal: list[Event] = []
        self.execution = execution
        self.random = random.Random(seed)
        self.running: list[Execute] = []
        self.executions: list[tuple[int, int | None]] = []
        self.peak = 0

    def post(self, event: Event) -> None:
        text = encode(event.to_json())
        value = decode_trusted(text)
        assert isinstance(value, dict)
        again = event_from_json(value)
        self.journal.append(again)
        self.machine.receive(again)
        self.perform()

    def perform(self) -> None:
        for effect in self.machine.due():
            match effect:
                case Execute():
                    self.running.append(effect)
                    self.peak = max(self.peak, len(self.running))
                    self.post(CallStarted(effect.call.index, effect.item))
                    return
                case AskApproval():
                    self.post(ApprovalAsked(effect.call.index, effect.approval, effect.digest))
                    return
                case Allow():
                    self.post(
                        CallDecided(
                            effect.call.index,
                            effect.digest,
                            "approve",
                            effect.by,
                            granted=effect.granted,
                        )
                    )
                    return
                case AskPlan():
                    self.post(PlanAsked(effect.approval, effect.digest))
                    return
                case AskMind():
                    self.post(RequestMade(effect.step, "request"))
                    return
                case Cancel():
                    self.post(CallFinished(effect.call.index, effect.item, error=effect.error))
                    return
                case Commit():
                    self.post(GroupCommitted(list(effect.calls)))
                    return
                case Finish():
                    self.post(RunEnded(effect.status, effect.reason))
                    return

    def finish_one(self, number: int | None = None) -> None:
        """Let one running execution end: the one of that number, else a random one."""
        index = self.random.randrange(len(self.running)) if number is None else number
        effect = self.running.pop(index)
        self.executions.append((effect.call.index, effect.item))
        ok, value = self.execution(effect)
        call = effect.call.index
        item = effect.item
        if ok and effect.tool.name == "tell":
            kind = f"k{call}"
            self.post(MessageAdded(call, {"type": kind, kind: value}))

        if ok:
            self.post(CallFinished(call, item, value=value))
        else:
            self.post(CallFinished(call, item, error={"kind": "runtime", "message": str(value)}))

    def finish_all(self) -> Driven:
        while self.running:
            self.finish_one()
        return self

    def whole(self, start: RunStarted, calls: list[JSON], output: JSON = None) -> Driven:
        """Run a plan, or the one solution of a mind, that arrives whole."""
        self.post(start)
        self.post(SolutionProposed(calls, output))
        return self.finish_all()

    def streamed(self, start: RunStarted, calls: list[JSON], output: JSON = None) -> Driven:
        """Run the same call by call; executions end in between, at random."""
        self.post(start)
        for call in calls:
            self.post(CallProposed(call))
            while self.running and self.random.random() < 0.5:
                self.finish_one()

        if output is not None:
            self.post(OutputProposed(output))

        if self.machine.phase == "asking":
            self.post(SolutionProposed([], output))
        else:
            self.post(SolutionClosed())

        return self.finish_all()

    @classmethod
    def resumed(cls, journal: list[Event], execution: Execution, seed: int) -> Driven:
        """Fold a journal and go on: what was in flight runs again."""
        driven = cls(execution, seed)
        for event in journal:
            driven.journal.append(event)
            driven.machine.receive(event)

        for progress, number in in_flight(driven.machine.history):
            call = progress.call
            assert call.tool is not None
            item = progress.items[number or 0]
            driven.running.append(
                Execute(
                    call, call.tool, number, item.parameters, item.latent, call.has_written_result
                )
            )

        driven.perform()
        return driven

    @property
    def documents(self) -> dict[str, JSONObject]:
        return self.machine.documents

    def statuses(self) -> list[str]:
        return [progress.status.value for progress in self.machine.history]

    def error_of(self, index: int) -> str:
        error = self.machine.history[index].error
        return str(error["message"]) if error else ""
