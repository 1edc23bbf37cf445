"""Stretch: calls that have ended, as a run of their own that can be published.

Such a run is of kind `session`. Its journal is that of a run by turns: calls that were listed
before any of their results had been seen are one Solution. Its output is the value of the last call
that succeeded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby

from ideabridge.bridge.context.references import escaped
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    CallFinished,
    CallStarted,
    Event,
    JournalError,
    RequestMade,
    RunEnded,
    RunStarted,
    SolutionProposed,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.runs.recorded import RecordedRun, read_run
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.run_record import RunRecord, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.tool import IDEA, Tool

KIND = "session"
"""The kind of these runs."""


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended.

    Attributes:
        tool: its tool.
        parameters: its parameters, as values: no text is a reference.
        step: calls of the same step were listed together.
        value: its value.
        error: `{"kind", "message"}` if it failed; None: it succeeded.
    """

    tool: Tool
    parameters: JSONObject
    step: int
    value: JSON = None
    error: JSONObject | None = None

    def listed(self) -> JSONObject:
        """The call as a Solution lists it."""
        module, name = self.tool.origin
        if module is None:
            own: JSONObject = {"_tool": name}
        else:
            own = {"_tool": name, "_module": module}
        return {**own, **{name: escaped(value) for name, value in self.parameters.items()}}


@dataclass(slots=True)
class EndedRun:
    """A run that consists of such calls.

    Attributes:
        context: the messages with which it begins.
        events: its journal.
        solution: all of its calls with its output, as one Solution.
        tools: the names of its tools.
        unkept: why some of the calls cannot be published, by their places. Calls that succeeded and
            that no run can make, because they do not fit their tools, have failed in this run.
    """

    context: list[JSON]
    events: list[Event] = field(default_factory=list[Event])
    solution: JSONObject = field(default_factory=dict[str, JSON])
    tools: tuple[str, ...] = ()
    unkept: dict[int, str] = field(default_factory=dict[int, str])

    def with_all_calls(self, first: int) -> EndedRun:
        """The run itself, if each of its calls can be published.

        Args:
            first: the number of its first call in the run from which the calls are taken.

        Raises:
            PublicationError: a call cannot be published; the message says why.
        """
        for place, why in self.unkept.items():
            raise PublicationError(
                f"call {first + place} cannot be published: {why}. Choose other calls"
            )
        return self


def ended_run(calls: Sequence[EndedCall], settings: Settings, task: str, why: str) -> EndedRun:
    """Make the run of calls, at least one, in the order in which they were listed.

    Args:
        calls: the calls. No parameter has the name of a meta-property.
        settings: the settings of a run; every call is admitted.
        task: what was asked for; "": unknown.
        why: why nobody answers its Requests, for `RunStarted`.

    Raises:
        JournalError: the value of the last call cannot be the output of a run.
    """
    made = EndedRun([{"role": "user", "content": task}] if task else [])
    made.tools = tuple(dict.fromkeys(call.tool.name for call in calls))
    listed: list[JSON] = [call.listed() for call in calls]
    catalogue = Catalogue({call.tool.key: call.tool for call in calls}.values())
    room = len(calls) + 1
    digest = content_hash(listed)
    settings = dataclasses.replace(
        settings, approval="allow_all", planning="eager", calls=room, requests=room
    )
    machine = Machine(catalogue)

    def take(event: Event) -> None:
        machine.receive(event)
        made.events.append(event)

    def propose(proposed: list[JSON], output: JSON = None) -> None:
        # Nobody was asked: the id of the Request only has to be another one for each step.
        take(RequestMade(machine.step, content_hash([digest, machine.step])))
        take(SolutionProposed(proposed, output))

    take(RunStarted("solve", made.context, *catalogue.to_json(), settings.to_json(), {}, None, why))
    place = 0
    for _, group in groupby(calls, lambda call: call.step):
        count = len(list(group))
        propose(listed[place : place + count])
        place += count
        while due := [effect for effect in machine.due() if isinstance(effect, Execute)]:
            for effect in due:
                index = effect.call.index
                take(CallStarted(index))
                take(CallFinished(index, value=calls[index].value, error=calls[index].error))

    for place, (call, progress) in enumerate(zip(calls, machine.history, strict=True)):
        if call.error is None and progress.status is not CallStatus.DONE:
            reason = (progress.error or {}).get("message")
            made.unkept[place] = f"it ran, but no run can make it again: {reason}"

    done = [
        place
        for place, progress in enumerate(machine.history)
        if progress.status is CallStatus.DONE
    ]
    output = f"†results.{done[-1]}" if done else None
    if output is not None:
        # A value that may be null is wrapped, as a mind writes it.
        propose([], {"value": output})
        if not machine.has_output:
            raise JournalError(
                f"the value of call {done[-1]} cannot be the output of a run: {machine.errors[:1]}"
            )

    take(RunEnded("done"))
    made.solution = {"calls": listed, "output": output}
    return made


def keep_ended(
    store: Store,
    run_id: str,
    made: EndedRun,
    *,
    caller: str,
    title: str,
    fingerprint: str,
    origin: JSONObject,
) -> None:
    """Store such a run, with one idea: all of its calls as one Solution. The caller has
    screened its events.

    Args:
        store: the store.
        run_id: the id of the run.
        made: the run.
        caller: its owner.
        title: one line for people; "": the names of the tools.
        fingerprint: the fingerprint of the configuration.
        origin: where it comes from, for its summary.

    Raises:
        RunExistsError: the id is taken.
    """
    events = [event.to_json() for event in made.events]
    idea = Idea(made.context, {}, made.solution)
    title = title or ", ".join(made.tools)[:200]
    meta = IdeaMeta(
        run=run_id, step=1, fingerprint=fingerprint, title=title, tools=made.tools, outcome="done"
    )
    with store.transaction():
        store.runs.create_ended(
            run_id,
            events,
            kind=KIND,
            caller=caller,
            title=title,
            fingerprint=fingerprint,
            summary=StoredSummary(idea=idea.id, origin=origin),
        )
        store.ideas.save(idea, meta)


def part_id(run_id: str, first: int, last: int) -> str:
    """The id of the run of some calls of a run."""
    return f"run_{sha256(f'{run_id}:{first}-{last}'.encode()).hexdigest()[:16]}"


def unkept(record: RunRecord) -> dict[int, str]:
    """Why calls of a session cannot be published, by their numbers."""
    origin = record.summary.origin or {}
    marks = origin.get("unkept")
    reasons: dict[int, str] = {}
    for mark in marks if isinstance(marks, list) else []:
        if isinstance(mark, dict) and isinstance(mark["call"], int):
            reasons[mark["call"]] = str(mark["why"])

    return reasons


def cut(store: Store, run_id: str, first: int, last: int, caller: str) -> str:
    """Store some calls of a run as a run of their own, and return its id. The same calls
    are stored once.

    Values that the calls read from the rest of the run become literals.

    Args:
        store: the store.
        run_id: a run whose status is `done`.
        first: the number of the first call, from 0.
        last: the number of the last call.
        caller: the owner of both runs.

    Raises:
        UnknownRunError: the caller has no run of this id.
        PublicationError: it is not done, does not have these calls, or one of them is more than one
            call of a tool.
    """
    record = store.runs.find(run_id, caller=caller)
    own = part_id(run_id, first, last)
    if store.runs.get(own) is not None:
        return own

    run = read_run(store, run_id)
    if run is None:
        raise PublicationError(
            f"run {run_id} is {record.status}, not done: no part of it can be published"
        )

    count = len(run.machine.history)
    if not 0 <= first <= last < count:
        raise PublicationError(f"run {run_id} has calls 0 to {count - 1}, not {first} to {last}")

    for place, why in unkept(record).items():
        if first <= place <= last:
            raise PublicationError(f"call {place} cannot be published: {why}. Choose other calls")

    calls = calls_of(run, range(first, last + 1))
    made = ended_run(
        calls, run.machine.settings, _task_of(run), f"a part of run {run_id}"
    ).with_all_calls(first)
    origin: JSONObject = {"run": run_id, "calls": [first, last]}
    keep_ended(
        store,
        own,
        made,
        caller=caller,
        title=record.title,
        fingerprint=record.fingerprint,
        origin=origin,
    )
    return own


def _task_of(run: RecordedRun) -> str:
    texts = (
        one.value
        for one in run.machine.messages
        if one.type == "text" and isinstance(one.value, str)
    )
    return next(texts, "")


def calls_of(run: RecordedRun, places: Iterable[int]) -> list[EndedCall]:
    """Calls of a run, by their numbers, with resolved parameters.

    Raises:
        PublicationError: one of them is more than one call of a tool.
    """
    calls: list[EndedCall] = []
    for place in places:
        one = run.machine.history[place]
        tool = one.tool
        if tool is None or not is_plain(one):
            raise PublicationError(
                f"run {run.id}, call {place} ({one.call.name}) is no plain call of a tool, so it "
                "is published only with its whole run"
            )

        parameters = one.items[0].parameters
        calls.append(EndedCall(tool, parameters, run.steps[place], one.value, one.error))

    return calls


def is_plain(one: Progress) -> bool:
    """True if a call ran once, by a tool or a published idea, without the meta-properties that
    change what it does.
    """
    call = one.call
    anonymous = call.room is not None and not (
        one.tool is not None and (one.tool.module or "").startswith(IDEA)
    )
    special = call.has_each or call.has_latent or call.instance or anonymous
    return one.tool is not None and len(one.items) == 1 and not special
