"""History: a run as its journal records it, described for people.

`read_history` folds a journal. The command line (`runs show`, `approvals list`) and the page
show its entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ideabridge.bridge.context.assumption import assumption_lines, note_lines
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.event import Event, event_from_json
from ideabridge.bridge.loop.grant import decision_text
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Progress
from ideabridge.server.views.shown import call_without_ids
from ideabridge.server.views.text import cost_of_request, counted, shortened
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

Line: TypeAlias = tuple[str, str | None]
"""A line of text, and its style: `bold`, `dim` or a colour; None: plain."""


def doubt_lines(machine: Machine) -> Iterator[str]:
    """What the result of a run rests on without knowing it: its assumptions and notes."""
    doubts = machine.doubts
    for line in assumption_lines(doubts.assumed):
        yield f"assumed: {line}"

    for line in assumption_lines(doubts.approved):
        yield f"approved: {line}"

    for line in note_lines(doubts.notes):
        yield f"noted: {line}"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One event of a run, described for people by `text`.

    Attributes:
        number: its sequence number, from 1.
        at: its time in seconds since 1970; None if the store has no time.
    """

    number: int
    at: float | None
    text: str
    style: str | None
    event: Event


@dataclass(slots=True)
class RunHistory:
    """A run as its journal records it, with the machine after the last event.

    `broken` is the reason why an event cannot be read; the entries end before it.
    """

    machine: Machine = field(default_factory=Machine)
    entries: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    broken: str | None = None

    def add(self, journal: list[tuple[int, JSONObject]], times: Mapping[int, float]) -> None:
        """Add the next events of the journal, with their times by number. It stops at one that
        cannot be read.
        """
        for number, raw in journal:
            try:
                event = event_from_json(raw)
                self.machine.receive(event)
            except IdeabridgeError as error:
                self.broken = f"event {number} cannot be read: {error}"
                return
            self.entries.append(
                HistoryEntry(number, times.get(number), *_event_line(event, self.machine), event)
            )


def read_history(journal: list[tuple[int, JSONObject]], times: Mapping[int, float]) -> RunHistory:
    """The history of a run, from (number, event) of its journal and the times of the
    events by number.
    """
    history = RunHistory()
    history.add(journal, times)
    return history


def _event_line(event: Event, machine: Machine) -> Line:
    match event:
        case events.RunStarted():
            if event.mind:
                by = f", answered by {event.mind}"
            elif event.mode == "solve":
                by = ", by turns"
            else:
                by = ""
            return f"the run begins ({event.mode}{by}); {counted(len(event.tools), 'tool')}", "bold"
        case events.ConfigurationChanged():
            return (
                (
                    "the run continues under another configuration, whose rules "
                    "hold as well from now on"
                ),
                "bold",
            )
        case events.RequestMade():
            size = "" if event.bytes is None else f", {cost_of_request(event.bytes)}"
            return f"request {event.step} is sent ({event.request[:12]}{size})", "bold"
        case events.SolutionProposed():
            output = "" if event.output is None else f", output {shortened(event.output)}"
            return f"a solution of {counted(len(event.calls), 'call')}{output}", "cyan"
        case events.ProgramProposed():
            return f"a program of {counted(event.program.count(chr(10)) + 1, 'line')}", "cyan"
        case events.Printed():
            return f"printed: {shortened(event.text)}", None
        case events.CallProposed():
            if isinstance(event.call, dict):
                call = call_without_ids(event.call)
            else:
                call = event.call
            return f"a call is listed: {shortened(call)}", "cyan"
        case events.OutputProposed():
            return f"the output is written: {shortened(event.output)}", "cyan"
        case events.SolutionClosed() if event.error is not None:
            return f"the program ends with an error: {shortened(event.error.get('message'))}", "red"
        case events.SolutionClosed():
            return (
                f"the answer breaks off: {event.broken}" if event.broken else "the answer ends",
                None,
            )
        case events.SolutionRejected():
            return f"a solution is malformed: {shortened(event.errors)}", "red"
        case events.UsageNoted():
            return f"used: {shortened(event.usage)}", "dim"
        case events.MessageAdded():
            return f"{_name(machine, event.call)} adds a message: {shortened(event.message)}", None
        case events.RunEnded():
            return f"the run ends: {event.status}{_why(event.reason)}", "bold"
        case _:
            return _call_line(event, machine)


def _call_line(event: Event, machine: Machine) -> Line:
    match event:
        case events.CallStarted():
            return (
                f"▶ {_label(machine, event.call, event.item)} {_parameters(machine, event)}",
                None,
            )
        case events.CallFinished() if event.error is not None:
            message = event.error.get("message")
            return f"✗ {_label(machine, event.call, event.item)} {message}", "red"
        case events.CallFinished():
            return f"✓ {_label(machine, event.call, event.item)} {shortened(event.value)}", "green"
        case events.ApprovalAsked():
            approval = machine.history[event.call].approval
            resolved = ""
            if approval is not None:
                resolved = shortened(call_without_ids(approval.resolved))
            return f"? {_label(machine, event.call, None)} asks for approval: {resolved}", "yellow"
        case events.CallDecided():
            edited = f", as {shortened(event.edited)}" if event.edited is not None else ""
            what = (
                f"{decision_text(event)} by {event.by}{_why(event.reason)}{edited}{_grant(event)}"
            )
            return f"! {_label(machine, event.call, None)} {what}", "yellow"
        case events.OutcomeAsked():
            label = _label(machine, event.call, event.item)
            why = _why(event.why)
            return f"? {label} was cut off{why}: what is its outcome?", "yellow"
        case events.OutcomeDecided():
            what = f"{event.decision} by {event.by}{_why(event.reason)}"
            return f"! {_label(machine, event.call, event.item)} {what}", "yellow"
        case events.QuestionAsked():
            question = (
                f"server {event.module} asks: {shortened(event.message)} {shortened(event.schema)}"
            )
            return f"? {_label(machine, event.call, event.item)} {question}", "yellow"
        case events.QuestionAnswered():
            what = f"{event.action} by {event.by}{_why(event.reason)}"
            content = "" if event.content is None else f": {shortened(event.content)}"
            return f"! {_label(machine, event.call, event.item)} {what}{content}", "yellow"
        case events.QuestionRefused():
            question = (
                f"server {event.module} asked {shortened(event.message)}, and was "
                f"not answered: {event.why}"
            )
            return f"! {_label(machine, event.call, event.item)} {question}", "red"
        case events.PlanAsked():
            return "? the plan waits to be accepted", "yellow"
        case events.PlanDecided():
            return f"! the plan: {event.decision} by {event.by}{_why(event.reason)}", "yellow"
        case _:
            return event.name, None


def _grant(event: events.CallDecided) -> str:
    limits = {key: value for key, value in (event.grant or {}).items() if key != "for"}
    return f", {shortened(limits)}" if limits else ""


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
    if (event.item or 0) < len(items):
        return shortened(items[event.item or 0].parameters)
    return ""


def call_json(number: int, progress: Progress) -> JSONObject:
    """A call of a run as JSON, with its parameters, and its value or error."""
    call = progress.call
    entry: JSONObject = {"call": number, "tool": call.name, "status": progress.status.value}
    if call.tool is not None and call.tool.module is not None:
        entry["module"] = call.tool.module

    if call.instance:
        entry["instance"] = call.instance

    parameters: list[JSON] = [dict(item.parameters) for item in progress.items]
    if parameters:
        entry["parameters"] = parameters if call.has_each else parameters[0]

    if progress.error is not None:
        entry["error"] = progress.error
    elif progress.settled:
        entry["value"] = progress.value

    return entry
