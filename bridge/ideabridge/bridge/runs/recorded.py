"""Recorded: the run from which an idea is published, read from its journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.call import gathered
from ideabridge.bridge.loop.event import (
    CallDecided,
    CallFinished,
    CallStarted,
    Event,
    OutcomeDecided,
    RunStarted,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.runs.values import given_by
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.idea import RunRecord, StoredIdea
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that ended well.

    Attributes:
        id: its id.
        started: its first event: context, tools, settings, and the output schema its user asked for.
        events: its journal.
        machine: the journal, folded.
        steps: the Request each call was listed in, from 0, in listing order.
        proposed: the calls that a person changed, resolved, as they were before.
    """

    id: str
    started: RunStarted
    events: list[Event]
    machine: Machine
    steps: tuple[int, ...] = ()
    proposed: Mapping[int, JSONObject] = field(default_factory=dict[int, JSONObject])

    @property
    def result(self) -> JSON:
        """Its result as a function."""
        return given_by(self.machine)

    @property
    def places(self) -> list[JSON] | None:
        """The places of its calls in the plan, where instances share them."""
        return self.machine.solution.places

    def calls(self) -> list[JSON]:
        """The calls as its plan listed them: a call that ran for every instance is listed once, without `_instance`."""
        return gathered(self.machine.solution.calls, self.places)

    def executions(self) -> list[CallStarted | CallFinished]:
        """The starts and ends of calls, in order. A result that a person supplied for a call of unknown outcome counts
        as its own, and a call that ran again is listed once.
        """
        found: list[CallStarted | CallFinished] = []
        started: set[tuple[int, int | None]] = set()
        for event in self.events:
            match event:
                case CallStarted(call, item):
                    if (call, item) not in started:
                        found.append(event)
                    started.add((call, item))
                case CallFinished():
                    found.append(event)
                case OutcomeDecided() if event.decision != "retry":
                    found.append(CallFinished(event.call, event.item, event.value, event.error))
                case _:
                    continue
        return found

    def not_as_listed(self) -> list[str]:
        """The calls that did not run as the plan lists them, and why: `calls.0 (send): a person changed it`."""
        edited = {event.call for event in self.events if isinstance(event, CallDecided) and event.decision == "edit"}
        found: list[str] = []
        for one in self.machine.history:
            kind = one.error.get("kind") if one.error is not None else None
            if one.call.index in edited:
                why = "a person changed it"
            elif kind == "denied":
                why = "it was denied"
            elif one.status is CallStatus.FAILED:
                why = "it failed"
            else:
                continue
            instance = f", instance {one.call.instance}" if one.call.instance else ""
            found.append(f"calls.{one.call.place} ({one.call.name}{instance}): {why}")
        return found


def read_run(store: Store, run_id: str) -> RecordedRun | None:
    """The run from its journal; None where it has not ended well."""
    record = store.runs.get(run_id)
    if record is None or record.status != "done":
        return None
    events = [event_from_json(event) for _, event in store.runs.events(run_id)]
    started = events[0] if events else None
    if not isinstance(started, RunStarted):
        return None
    machine = Machine()
    steps: list[int] = []
    proposed: dict[int, JSONObject] = {}
    for event in events:
        if isinstance(event, CallDecided) and event.decision == "edit":
            asked = machine.history[event.call].approval
            proposed[event.call] = asked[2] if asked is not None else {}
        # The step may end with the event itself.
        step = max(machine.step, 0)
        machine.receive(event)
        steps.extend([step] * (len(machine.history) - len(steps)))
    if machine.status != "done":
        return None
    return RecordedRun(run_id, started, events, machine, tuple(steps), proposed)


def find_idea(store: Store, ref: str, caller: str) -> tuple[StoredIdea, str]:
    """The idea `ref` names and the run of this caller that ended with it: that run itself where `ref` is one, else
    the latest that ended well.

    Raises:
        UnknownRunError, UnknownIdeaError: there is none, or it is another caller's alone.
        PublicationError: no run of this store ended with it.
    """
    record = store.runs.get(ref)
    if record is not None:
        if record.caller != caller:
            raise UnknownRunError(f"unknown run {ref!r}")
        steps = store.ideas.of_run(ref)
        if not steps:
            raise PublicationError(f"run {ref} holds no solution yet")
        return store.ideas.get(steps[-1].id), ref
    stored = store.ideas.get(ref, caller=caller)
    runs = [found for run in store.ideas.runs_of(stored.id) if (found := store.runs.get(run)) is not None]
    own = [run for run in runs if run.caller == caller]
    if runs and not own:
        # The same error as for an unknown idea: runs of other callers stay private.
        raise store.ideas.unknown(ref, caller)
    ended = [run for run in own if store.ideas.of_run(run.id)[-1].id == stored.id]
    if not ended:
        why = "the runs of it went on after it; publish the run" if own else "it was made elsewhere"
        raise PublicationError(f"no finished run of idea {stored.id[:12]} is in this store to answer from: {why}")
    return stored, max(ended, key=_preference).id


def _preference(run: RunRecord) -> tuple[bool, str]:
    return run.status == "done", run.created
