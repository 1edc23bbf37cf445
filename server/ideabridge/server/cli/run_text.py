"""Run as text: its events in order, each with when it came and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.event import Event, event_from_json
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Progress
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import IdeabridgeError

WIDEST = 160
"""Characters of a value in a line."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One event of a run.

    Attributes:
        number: its sequence number, from 1.
        at: when, in seconds since 1970; None: an old store says nothing.
        text: what happened, for people.
        style: how to show it.
        call: the call it is about.
    """

    number: int
    at: float | None
    text: str
    style: str | None
    event: Event
    call: int | None = None


@dataclass(slots=True)
class Story:
    """A run told from its journal.

    Attributes:
        moments: its events.
        machine: the journal, folded.
        broken: why the journal could not be folded to its end.
    """

    machine: Machine = field(default_factory=Machine)
    moments: list[Moment] = field(default_factory=list[Moment])
    broken: str | None = None


def read_story(journal: list[tuple[int, JSONObject]], times: Mapping[int, float]) -> Story:
    """The story of a run.

    Args:
        journal: (sequence number, event) of all of it.
        times: when each came.
    """
    story = Story()
    for number, raw in journal:
        try:
            event = event_from_json(raw)
            story.machine.receive(event)
        except IdeabridgeError as error:
            story.broken = f"event {number} cannot be read: {error}"
            return story
        text, style, call = _event_text(event, story.machine)
        story.moments.append(Moment(number, times.get(number), text, style, event, call))
    return story


def _event_text(event: Event, machine: Machine) -> tuple[str, str | None, int | None]:
    """(text, style, call)."""
    match event:
        case events.RunStarted():
            by = f", answered by {event.mind}" if event.mind else ", by turns" if event.mode == "solve" else ""
            return f"the run begins ({event.mode}{by}); {counted(len(event.tools), 'tool')}", "bold", None
        case events.RequestMade():
            return f"request {event.step} goes out ({event.request[:12]})", "bold", None
        case events.SolutionProposed():
            output = "" if event.output is None else f", output {shown(event.output)}"
            return f"a solution of {counted(len(event.calls), 'call')}{output}", "cyan", None
        case events.CallProposed():
            return f"a call is listed: {shown(event.call)}", "cyan", len(machine.history) - 1
        case events.OutputProposed():
            return f"the output is written: {shown(event.output)}", "cyan", None
        case events.SolutionClosed():
            return f"the answer breaks off: {event.broken}" if event.broken else "the answer ends", None, None
        case events.SolutionRejected():
            return f"a solution is malformed: {shown(event.errors)}", "red", None
        case events.UsageNoted():
            return f"used: {shown(event.usage)}", "dim", None
        case events.MessageAdded():
            return f"{_name(machine, event.call)} adds a message: {shown(event.message)}", None, event.call
        case events.RunEnded():
            return f"the run ends: {event.status}{_why(event.reason)}", "bold", None
        case _:
            return _of_call(event, machine)


def _of_call(event: Event, machine: Machine) -> tuple[str, str | None, int | None]:
    match event:
        case events.CallStarted():
            return f"▶ {_label(machine, event.call, event.item)} {_parameters(machine, event)}", None, event.call
        case events.CallFinished() if event.error is not None:
            message = event.error.get("message")
            return f"✗ {_label(machine, event.call, event.item)} {message}", "red", event.call
        case events.CallFinished():
            return f"✓ {_label(machine, event.call, event.item)} {shown(event.value)}", "green", event.call
        case events.ApprovalAsked():
            asked = machine.history[event.call].approval
            resolved = shown(asked[2]) if asked is not None else ""
            return f"? {_label(machine, event.call, None)} asks for approval: {resolved}", "yellow", event.call
        case events.CallDecided():
            edited = f", as {shown(event.edited)}" if event.edited is not None else ""
            what = f"{event.decision} by {event.by}{_why(event.reason)}{edited}"
            return f"! {_label(machine, event.call, None)} {what}", "yellow", event.call
        case events.OutcomeAsked():
            label, why = _label(machine, event.call, event.item), _why(event.why)
            return f"? {label} was cut off{why}: what came of it?", "yellow", event.call
        case events.OutcomeDecided():
            what = f"{event.decision} by {event.by}{_why(event.reason)}"
            return f"! {_label(machine, event.call, event.item)} {what}", "yellow", event.call
        case events.QuestionAsked():
            said = f"module {event.module} asks: {shown(event.message)} {shown(event.schema)}"
            return f"? {_label(machine, event.call, event.item)} {said}", "yellow", event.call
        case events.QuestionAnswered():
            what = f"{event.action} by {event.by}{_why(event.reason)}"
            content = "" if event.content is None else f": {shown(event.content)}"
            return f"! {_label(machine, event.call, event.item)} {what}{content}", "yellow", event.call
        case events.QuestionRefused():
            said = f"module {event.module} asked {shown(event.message)}, and was not answered: {event.why}"
            return f"! {_label(machine, event.call, event.item)} {said}", "red", event.call
        case events.PlanAsked():
            return "? the plan waits to be accepted", "yellow", None
        case events.PlanDecided():
            return f"! the plan: {event.decision} by {event.by}{_why(event.reason)}", "yellow", None
        case _:
            return event.name, None, None


def _why(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _name(machine: Machine, call: int) -> str:
    return machine.history[call].call.name if call < len(machine.history) else "?"


def _label(machine: Machine, call: int, item: int | None) -> str:
    if call >= len(machine.history):
        return str(call)
    progress = machine.history[call]
    instance = f" {progress.call.instance}" if progress.call.instance else ""
    each = "" if item is None else f" item {item}"
    return f"{call} {progress.call.name}{instance}{each}"


def _parameters(machine: Machine, event: events.CallStarted) -> str:
    progress = machine.history[event.call]
    items = progress.items
    return shown(items[event.item or 0].parameters) if (event.item or 0) < len(items) else ""


def counted(count: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shown(value: JSON) -> str:
    """A value in a line."""
    text = encode_text(value)
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}... ({len(text):,} characters)"


def call_told(number: int, progress: Progress) -> JSONObject:
    """A call of a run as it stands, for machines."""
    call = progress.call
    told: JSONObject = {"call": number, "tool": call.name, "status": progress.standing.value}
    if call.tool is not None and call.tool.module is not None:
        told["module"] = call.tool.module
    if call.instance:
        told["instance"] = call.instance
    parameters: list[JSON] = [dict(item.parameters) for item in progress.items]
    if parameters:
        told["parameters"] = parameters if call.has_each else parameters[0]
    if progress.error is not None:
        told["error"] = progress.error
    elif progress.settled:
        told["value"] = progress.value
    return told
