"""What the journal of one run tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.store.store import Store

from .plans import Execution, execution

Place = tuple[int, int | None]


@dataclass(slots=True)
class Step:
    """One Request.

    Attributes:
        request: its id.
        calls: what its answer has listed so far.
        begun, closed: whether anything of the answer is there, and its end.
        broken: why it broke off, if it did.
    """

    request: str
    calls: list[Any] = field(default_factory=list[Any])
    begun: bool = False
    closed: bool = False
    broken: str | None = None


@dataclass(slots=True)
class Told:
    """A run as its journal has it.

    Attributes:
        input: what `†input` reads.
        calls: as listed.
        started, ended: executions, by call and item; `gave`: those that ended without an error.
        twice: those that were journaled as ended twice.
        steps: its Requests, in order.
        over: whether it has ended.
    """

    input: dict[str, Any] = field(default_factory=dict[str, Any])
    calls: list[Any] = field(default_factory=list[Any])
    started: set[Place] = field(default_factory=set[Place])
    ended: set[Place] = field(default_factory=set[Place])
    gave: set[Place] = field(default_factory=set[Place])
    twice: list[Place] = field(default_factory=list[Place])
    steps: list[Step] = field(default_factory=list[Step])
    over: bool = False

    def names(self, places: set[Place]) -> set[Execution]:
        """How the log names executions. Those that rooms answer are not in it."""
        plan = {"input": self.input}
        return {
            execution(self.calls[call], plan, item)
            for call, item in places
            if "key" in self.calls[call]
        }

    def rooms(self, places: set[Place]) -> set[str]:
        """What stands behind the id of the run in those of the rooms that answer executions."""
        listed = [(call, item) for call, item in places if "key" not in self.calls[call]]
        return {f".{call}" if item is None else f".{call}-{item}" for call, item in listed}


def told_by(store: Store, run_id: str) -> Told:
    """Read the journal of a run."""
    told = Told()
    for _, raw in store.runs.events(run_id):
        event = cast("dict[str, Any]", raw)
        place: Place = (event.get("call", -1), event.get("item"))
        match event["event"]:
            case "run_started":
                messages = read_context(event["context"])
                given = [
                    cast("dict[str, Any]", one.value) for one in messages if one.type == "input"
                ]
                told.input = given[0] if given else {}
            case "solution_proposed":
                told.calls.extend(event["calls"])
            case "request_made":
                told.steps.append(Step(event["request"]))
            case "call_proposed":
                told.calls.append(event["call"])
                # A program that is a plan does not answer a Request.
                if told.steps:
                    told.steps[-1].begun = True
                    told.steps[-1].calls.append(event["call"])
            case "output_proposed" if told.steps:
                told.steps[-1].begun = True
            case "solution_closed" if told.steps:
                step = told.steps[-1]
                step.begun = step.closed = True
                step.broken = event.get("broken")
            case "call_started":
                told.started.add(place)
            case "call_finished":
                if place in told.ended:
                    told.twice.append(place)
                told.ended.add(place)
                if event.get("error") is None:
                    told.gave.add(place)
            case "run_ended":
                told.over = True
            case _:
                continue

    return told
