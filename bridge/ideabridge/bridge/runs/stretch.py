"""Turn calls that have ended into a separate run, which can be published.

Such a run is of kind `session`. Its journal looks like that of a run answered turn by turn: calls
that were listed before any of their results was seen form one Solution. Its output is the value of
the last call that succeeded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby

from ideabridge.bridge.context.references import escaped
from ideabridge.bridge.context.written_call import title_of_tools
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
from ideabridge.bridge.store.journal import PastEvents
from ideabridge.bridge.store.run_record import RunOrigin, RunRecord, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.tool import Tool, is_idea
from ideabridge.tools.typed import read_as

KIND = "session"
"""The kind of runs that consist of ended calls."""


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended.

    Attributes:
        tool: the tool of the call.
        parameters: the parameters of the call as literal values. None of the strings in them is a
            reference.
        step: the number of the call's step. Calls of the same step were listed together.
        value: the value of the call.
        error: `{"kind", "message"}` if the call failed, or None if it succeeded.
        began: when the call began, in seconds since 1970, or None if this is unknown.
        ended: when the call ended, in seconds since 1970, or None if this is unknown.
    """

    tool: Tool
    parameters: JSONObject
    step: int
    value: JSON = None
    error: JSONObject | None = None
    began: float | None = None
    ended: float | None = None

    def listed(self) -> JSONObject:
        """Return the call as a Solution lists it."""
        module, name = self.tool.origin
        call: JSONObject = {"_tool": name}
        if module is not None:
            call["_module"] = module
        for parameter, value in self.parameters.items():
            call[parameter] = escaped(value)
        return call


@dataclass(slots=True)
class EndedRun:
    """A run that consists of ended calls.

    Attributes:
        context: the messages with which the run begins.
        events: the journal of the run.
        times: when the events happened, in seconds since 1970, or None if no time is known.
        solution: all calls and the output of the run, as one Solution.
        tools: the names of the run's tools.
        unkept: why some of the calls cannot be published, keyed by place. A call that succeeded but
            does not fit its tool, so that no run could make it, counts as failed in this run.
    """

    context: list[JSON]
    events: list[Event] = field(default_factory=list[Event])
    times: list[float] | None = None
    solution: JSONObject = field(default_factory=dict[str, JSON])
    tools: tuple[str, ...] = ()
    unkept: dict[int, str] = field(default_factory=dict[int, str])

    def with_all_calls(self, first: int) -> EndedRun:
        """Return the run itself if each of its calls can be published.

        Args:
            first: the number of the run's first call within the original run.

        Raises:
            PublicationError: a call cannot be published. The message says why.
        """
        for place, reason in self.unkept.items():
            raise _not_publishable(first + place, reason)
        return self


def _not_publishable(place: int, why: str) -> PublicationError:
    return PublicationError(f"call {place} cannot be published: {why}. Choose other calls")


def ended_run(calls: Sequence[EndedCall], settings: Settings, task: str, why: str) -> EndedRun:
    """Create a run from one or more ended calls, in the order of listing.

    Args:
        calls: the calls. A parameter must not have the name of a meta-property.
        settings: the settings of the run. Every call is allowed, no matter what the approval rules
            in the settings say.
        task: what someone asked for, or "" if that is unknown.
        why: why nobody answers the run's Requests, for `RunStarted`.

    Raises:
        JournalError: the value of the last call cannot be the output of a run.
    """
    context: list[JSON] = []
    if task:
        context.append({"role": "user", "content": task})

    catalogue = Catalogue({call.tool.key: call.tool for call in calls}.values())
    room = len(calls) + 1
    settings = dataclasses.replace(
        settings, approval="allow_all", planning="eager", calls=room, requests=room
    )
    listed: list[JSON] = [call.listed() for call in calls]
    writing = _Writing(catalogue, content_hash(listed))
    writing.take(
        RunStarted("solve", context, *catalogue.to_json(), settings.to_json(), {}, None, why)
    )
    place = 0
    for _, group in groupby(calls, lambda call: call.step):
        count = len(list(group))
        writing.propose(listed[place : place + count])
        writing.end_calls(calls)
        place += count

    unkept: dict[int, str] = {}
    output: str | None = None
    for place, progress in enumerate(writing.machine.history):
        if progress.status is CallStatus.DONE:
            output = f"†results.{place}"
        elif calls[place].error is None:
            reason = (progress.error or {}).get("message")
            unkept[place] = f"it ran, but a run cannot repeat it: {reason}"

    if output is not None:
        writing.propose_output(output)
    writing.take(RunEnded("done"))
    tools = tuple(dict.fromkeys(call.tool.name for call in calls))
    solution: JSONObject = {"calls": listed, "output": output}
    return EndedRun(context, writing.events, writing.known_times(), solution, tools, unkept)


class _Writing:
    """Writes the journal of a run of ended calls.

    Attributes:
        machine: applies each event.
        events: the journal.
    """

    def __init__(self, catalogue: Catalogue, digest: str) -> None:
        self.machine = Machine(catalogue)
        self.events: list[Event] = []
        self._times: list[float | None] = []
        self._digest = digest

    def take(self, event: Event, at: float | None = None) -> None:
        self.machine.receive(event)
        self.events.append(event)
        self._times.append(at)

    def known_times(self) -> list[float] | None:
        """Return the time of each event, or None if no time is known.

        An event without a time gets the time of the previous event. Events before the first known
        time get that time.
        """
        last = next((time for time in self._times if time is not None), None)
        if last is None:
            return None

        times: list[float] = []
        for time in self._times:
            last = last if time is None else time
            times.append(last)
        return times

    def propose(self, calls: list[JSON], output: JSON = None) -> None:
        # No mind was asked, so the id of the Request only has to be unique among the steps.
        step = self.machine.step
        self.take(RequestMade(step, content_hash([self._digest, step])))
        self.take(SolutionProposed(calls, output))

    def end_calls(self, calls: Sequence[EndedCall]) -> None:
        """End the proposed calls the way they actually ended. `calls` contains all calls in the
        run.
        """
        while due := [effect for effect in self.machine.due() if isinstance(effect, Execute)]:
            for effect in due:
                index = effect.call.index
                call = calls[index]
                self.take(CallStarted(index), call.began)
                self.take(CallFinished(index, value=call.value, error=call.error), call.ended)

    def propose_output(self, output: str) -> None:
        """Propose a reference to the value of a call as the output.

        Raises:
            JournalError: the value cannot be the output of a run.
        """
        # Wrap an output that can be null, because a mind also has to wrap it.
        self.propose([], {"value": output})
        if not self.machine.has_output:
            raise JournalError(
                f"the value at {output} cannot be the output of a run: {self.machine.errors[:1]}"
            )


def keep_ended(
    store: Store,
    run_id: str,
    run: EndedRun,
    *,
    caller: str,
    title: str,
    fingerprint: str,
    origin: RunOrigin,
) -> None:
    """Store a run of ended calls, with one idea whose Solution contains all of them. The events of
    the run must already have been screened.

    Args:
        store: the store.
        run_id: the id of the run.
        run: the run.
        caller: the owner of the run.
        title: a human-readable line, or "" to use the names of the tools.
        fingerprint: the fingerprint of the configuration.
        origin: the origin of the run, which its summary records.

    Raises:
        RunExistsError: the id is already taken.
    """
    past = PastEvents([event.to_json() for event in run.events], run.times)
    idea = Idea(run.context, {}, run.solution)
    title = title or title_of_tools(run.tools)
    meta = IdeaMeta(
        run=run_id, step=1, fingerprint=fingerprint, title=title, tools=run.tools, outcome="done"
    )
    with store.transaction():
        store.runs.create_ended(
            run_id,
            past,
            kind=KIND,
            caller=caller,
            title=title,
            fingerprint=fingerprint,
            summary=StoredSummary(idea=idea.id, origin=origin),
        )
        store.ideas.save(idea, meta)


def part_id(run_id: str, first: int, last: int) -> str:
    """Return the id of the run that consists of a range of calls from another run."""
    part = f"{run_id}:{first}-{last}"
    digest = sha256(part.encode()).hexdigest()
    return f"run_{digest[:16]}"


def part_origin(run_id: str, first: int, last: int) -> RunOrigin:
    """Return the origin of the run that consists of a range of calls from another run."""
    return read_as(RunOrigin, {"run": run_id, "calls": [first, last]})


def unkept(record: RunRecord) -> dict[int, str]:
    """Return why calls in a session cannot be published, keyed by call number."""
    return {mark.call: mark.why for mark in record.summary.origin.unkept}


def store_part(store: Store, run_id: str, first: int, last: int, caller: str) -> str:
    """Store a range of calls in a run as a separate run, and return its id. Storing the same calls
    again returns the same run.

    Values that the calls read from the rest of the run become literals.

    Args:
        store: the store.
        run_id: a run whose status is `done`.
        first: the number of the first call, from 0.
        last: the number of the last call.
        caller: the owner of both runs.

    Raises:
        UnknownRunError: the caller has no run with this id.
        PublicationError: the run is not done, does not have these calls, or one of them is not a
            single, plain call to a tool.
    """
    record = store.runs.find(run_id, caller=caller)
    own = part_id(run_id, first, last)
    if store.runs.get(own) is not None:
        return own

    run = read_run(store, run_id)
    if run is None:
        raise PublicationError(
            f"run {run_id} is {record.status}, not done, so no part of it can be published"
        )

    count = len(run.machine.history)
    if not 0 <= first <= last < count:
        raise PublicationError(f"run {run_id} has calls 0 to {count - 1}, not {first} to {last}")

    for place, reason in unkept(record).items():
        if first <= place <= last:
            raise _not_publishable(place, reason)

    calls = calls_of(run, range(first, last + 1))
    part = ended_run(calls, run.machine.settings, _task_of(run), f"a part of run {run_id}")
    keep_ended(
        store,
        own,
        part.with_all_calls(first),
        caller=caller,
        title=record.title,
        fingerprint=record.fingerprint,
        origin=part_origin(run_id, first, last),
    )
    return own


def _task_of(run: RecordedRun) -> str:
    for message in run.machine.messages:
        if message.type == "text" and isinstance(message.value, str):
            return message.value
    return ""


def calls_of(run: RecordedRun, places: Iterable[int]) -> list[EndedCall]:
    """Return the calls of a run at the given places, with resolved parameters.

    Raises:
        PublicationError: one of them is not a single, plain call to a tool.
    """
    calls: list[EndedCall] = []
    for place in places:
        progress = run.machine.history[place]
        tool = progress.tool
        if tool is None or not is_plain(progress):
            raise PublicationError(
                f"run {run.id}, call {place} ({progress.call.name}) is not a plain call of a tool, "
                "so it can be published only with its whole run"
            )

        parameters = progress.items[0].parameters
        calls.append(EndedCall(tool, parameters, run.steps[place], progress.value, progress.error))

    return calls


def is_plain(progress: Progress) -> bool:
    """Return whether a call ran once, ran a tool or a published idea, and has no meta-properties
    that change what it does.
    """
    call = progress.call
    tool = progress.tool
    if tool is None or len(progress.items) != 1:
        return False
    if call.has_each or call.has_written_result or call.instance:
        return False
    # A call that is answered in a room is plain only if it calls an idea.
    return call.room is None or is_idea(tool.module)
