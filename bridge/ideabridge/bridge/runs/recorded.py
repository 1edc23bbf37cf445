"""Read finished runs from their journals, so that ideas can be published from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ideabridge.bridge.errors import NoFinishedRunError
from ideabridge.bridge.loop.call import gathered
from ideabridge.bridge.loop.event import (
    CallDecided,
    CallFinished,
    Event,
    RunStarted,
    ends_execution,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.runs.values import given_by
from ideabridge.bridge.store.idea import StoredIdea
from ideabridge.bridge.store.run_record import ENDED, RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that has ended, read from its journal.

    Attributes:
        id: the id of the run.
        started: the first event of the run, with its context, tools, settings, and requested output
            schema.
        events: the events in its journal.
        machine: the machine folded from the journal.
        steps: for each call, in the order of listing, the number of the Request in which it was
            listed, from 0.
        proposed: the calls that a person changed, as they were before, with resolved references.
    """

    id: str
    started: RunStarted
    events: list[Event]
    machine: Machine
    steps: tuple[int, ...]
    proposed: Mapping[int, JSONObject]

    @property
    def result(self) -> JSON:
        """The result of the run as a function; see `Run.given`."""
        return given_by(self.machine)

    @property
    def is_done(self) -> bool:
        """Whether the run ended successfully. A run that ended early cannot become a function."""
        return self.machine.status == "done"

    @property
    def has_results(self) -> bool:
        """Whether at least one call of the run succeeded."""
        return any(progress.status is CallStatus.DONE for progress in self.machine.history)

    @property
    def places(self) -> list[JSON] | None:
        """The places of the run's calls in the plan, if calls of several instances share a place,
        otherwise None.
        """
        return self.machine.solution.places

    def calls(self) -> list[JSON]:
        """Return the calls as the plan listed them. A call that ran for every instance is listed
        once, without `_instance`.
        """
        return gathered(self.machine.solution.calls, self.places)

    def ends(self) -> list[CallFinished]:
        """Return the events that ended calls, in order, including a person's decisions on unknown
        outcomes.
        """
        ends: list[CallFinished] = []
        for event in self.events:
            if isinstance(event, CallFinished):
                ends.append(event)
            elif ends_execution(event):
                ends.append(CallFinished(event.call, event.item, event.value, event.error))

        return ends

    def not_as_listed(self) -> list[str]:
        """Return a line for each call that did not run as listed, with the reason, such as
        `calls.0 (send): a person changed it`.
        """
        edited = {
            event.call
            for event in self.events
            if isinstance(event, CallDecided) and event.decision == "edit"
        }
        calls: list[str] = []
        for progress in self.machine.history:
            call = progress.call
            if call.index in edited:
                reason = "a person changed it"
            elif (progress.error or {}).get("kind") == "denied":
                reason = "it was denied"
            elif progress.status is CallStatus.FAILED:
                reason = "it failed"
            else:
                continue

            name = call.name
            if call.instance:
                name += f", instance {call.instance}"
            calls.append(f"calls.{call.place} ({name}): {reason}")

        return calls


def read_run(store: Store, run_id: str, *, ended: bool = False) -> RecordedRun | None:
    """Read a run from its journal. Return None unless the run's status is `done` or, if `ended` is
    set, the run has ended in any way.
    """
    record = store.runs.get(run_id)
    statuses = ENDED if ended else ("done",)
    if record is None or record.status not in statuses:
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
            approval = machine.history[event.call].approval
            proposed[event.call] = {} if approval is None else approval.resolved

        # Read the step first, because the event might end it.
        step = max(machine.step, 0)
        machine.receive(event)
        steps.extend([step] * (len(machine.history) - len(steps)))

    if machine.status not in statuses:
        return None
    return RecordedRun(run_id, started, events, machine, tuple(steps), proposed)


def find_idea(store: Store, ref: str, caller: str) -> tuple[StoredIdea, str]:
    """Find the idea that `ref` names, and a run of this caller that ended with the idea.

    If `ref` names a run, this is that run. Otherwise, it is the latest run that ended with the
    idea, preferably one whose status is `done`.

    Raises:
        UnknownIdeaError: the idea does not exist, or only other callers have it.
        NoFinishedRunError: no run in this store ended with the idea, or `ref` is a run without a
            solution.
    """
    record = store.runs.get(ref)
    if record is not None and record.caller == caller:
        steps = store.ideas.of_run(ref)
        if not steps:
            raise NoFinishedRunError(f"run {ref} is {record.status}, without a solution")
        return store.ideas.get(steps[-1].id, caller=caller), ref

    stored = store.ideas.get(ref, caller=caller)
    records = [store.runs.get(run) for run in store.ideas.runs_of(stored.id)]
    runs = [run for run in records if run is not None]
    own = [run for run in runs if run.caller == caller]
    if runs and not own:
        # The runs of other callers are private, so report the idea as unknown.
        raise store.ideas.unknown(ref, caller)

    ended = [run for run in own if store.ideas.of_run(run.id)[-1].id == stored.id]
    if not ended:
        reason = "it was made elsewhere"
        if own:
            reason = "its runs continued after this idea; publish the run"
        raise NoFinishedRunError(
            f"no finished run of idea {stored.id[:12]} is in this store, so there is nothing "
            f"to answer from: {reason}"
        )

    return stored, max(ended, key=_preference).id


def _preference(run: RunRecord) -> tuple[bool, str]:
    return run.status == "done", run.created
