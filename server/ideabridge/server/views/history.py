"""Describe a run in words, as recorded in its journal.

`read_history` folds a journal. The command line (`runs show`, `approvals list`) and the page show
its entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ideabridge.bridge.context.assumption import assumption_lines, note_lines
from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.event import Event, event_from_json
from ideabridge.bridge.loop.grant import decision_text
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Progress
from ideabridge.server.views.shown import call_without_ids
from ideabridge.server.views.text import cost_of_request, shortened_json
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import counted

Line: TypeAlias = tuple[str, str | None]
"""A line of text, and its style: `bold`, `dim` or a colour, or None for plain text."""


def doubt_lines(machine: Machine) -> Iterator[str]:
    """Yield lines about the assumptions and notes that the result of a run depends on."""
    doubts = machine.doubts
    for line in assumption_lines(doubts.assumed):
        yield f"assumed: {line}"

    for line in assumption_lines(doubts.approved):
        yield f"approved: {line}"

    for line in note_lines(doubts.notes):
        yield f"noted: {line}"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An event of a run, described in words by `text`.

    Attributes:
        number: the sequence number of the event, counted from 1.
        at: the time of the event in seconds since 1970, or None if the store does not contain it.
    """

    number: int
    at: float | None
    text: str
    style: str | None
    event: Event


@dataclass(slots=True)
class RunHistory:
    """A run as recorded in its journal, and the state of its machine after the last event.

    If an event cannot be read, `broken` says why, and the entries end before that event.
    """

    machine: Machine = field(default_factory=Machine)
    entries: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    broken: str | None = None

    def add(self, journal: list[tuple[int, JSONObject]], times: Mapping[int, float]) -> None:
        """Add the next events of the journal, with their times keyed by number, up to the first
        event that cannot be read.
        """
        for number, raw in journal:
            try:
                event = event_from_json(raw)
                self.machine.receive(event)
            except IdeabridgeError as error:
                self.broken = f"event {number} cannot be read: {error}"
                return
            text, style = _event_line(event, self.machine)
            self.entries.append(HistoryEntry(number, times.get(number), text, style, event))


def read_history(journal: list[tuple[int, JSONObject]], times: Mapping[int, float]) -> RunHistory:
    """Return the history of a run, given the (number, event) pairs in its journal, and the times of
    the events, keyed by number.
    """
    history = RunHistory()
    history.add(journal, times)
    return history


def _event_line(event: Event, machine: Machine) -> Line:
    match event:
        case events.RunStarted():
            mind = ""
            if event.mind:
                mind = f", answered by {event.mind}"
            elif event.mode == "solve":
                mind = ", by turns"
            tools = counted(len(event.tools), "tool")
            return f"the run begins ({event.mode}{mind}); {tools}", "bold"
        case events.ConfigurationChanged():
            return "the run continues under another configuration, whose rules also apply", "bold"
        case events.RequestMade():
            size = "" if event.bytes is None else f", {cost_of_request(event.bytes)}"
            return f"request {event.step} is sent ({event.request[:12]}{size})", "bold"
        case events.UsageNoted():
            return f"used: {shortened_json(event.usage)}", "dim"
        case events.MessageAdded():
            return (
                f"{_name(machine, event.call)} adds a message: {shortened_json(event.message)}",
                None,
            )
        case events.RunEnded():
            return f"the run ends: {event.status}{_because(event.reason)}", "bold"
        case _:
            return _solution_line(event) or _call_line(event, machine)


def _solution_line(event: Event) -> Line | None:
    match event:
        case events.SolutionProposed():
            output = "" if event.output is None else f", output {shortened_json(event.output)}"
            return f"a solution of {counted(len(event.calls), 'call')}{output}", "cyan"
        case events.ProgramProposed():
            return f"a program of {counted(event.program.count(chr(10)) + 1, 'line')}", "cyan"
        case events.Printed():
            return f"printed: {shortened_json(event.text)}", None
        case events.CallProposed():
            call = event.call
            if isinstance(call, dict):
                call = call_without_ids(call)
            return f"a call is listed: {shortened_json(call)}", "cyan"
        case events.OutputProposed():
            return f"the output is written: {shortened_json(event.output)}", "cyan"
        case events.SolutionClosed():
            return _closing_line(event)
        case events.SolutionRejected():
            return f"a solution is malformed: {shortened_json(event.errors)}", "red"
        case _:
            return None


def _closing_line(event: events.SolutionClosed) -> Line:
    if event.error is not None:
        return (
            f"the program ends with an error: {shortened_json(event.error.get('message'))}",
            "red",
        )
    if event.broken:
        return f"the answer is cut off: {event.broken}", None
    return "the answer ends", None


def _call_line(event: Event, machine: Machine) -> Line:
    match event:
        case events.PlanAsked():
            return "? the plan waits to be accepted", "yellow"
        case events.PlanDecided():
            return f"! the plan: {event.decision}{_by(event.by, event.reason)}", "yellow"
        case events.CallStarted():
            label = _label(machine, event.call, event.item)
            return f"▶ {label} {_parameters(machine, event)}", None
        case events.CallFinished():
            label = _label(machine, event.call, event.item)
            if event.error is not None:
                return f"✗ {label} {event.error.get('message')}", "red"
            value = shortened_json(without_payloads(event.value))
            return f"✓ {label} {value}", "green"
        case events.ApprovalAsked():
            approval = machine.history[event.call].approval
            call = ""
            if approval is not None:
                call = shortened_json(call_without_ids(approval.resolved))
            return f"? {_label(machine, event.call, None)} asks for approval: {call}", "yellow"
        case events.CallDecided():
            label = _label(machine, event.call, None)
            decision = f"{decision_text(event)}{_by(event.by, event.reason)}"
            edited = "" if event.edited is None else f", as {shortened_json(event.edited)}"
            return f"! {label} {decision}{edited}{_grant(event)}", "yellow"
        case _:
            return _question_line(event, machine)


def _question_line(event: Event, machine: Machine) -> Line:
    """Return the line about a question, or about the answer to one.

    The question is about the outcome of a call, or a server asks it during a call.
    """
    match event:
        case events.OutcomeAsked():
            label = _label(machine, event.call, event.item)
            reason = _because(event.why)
            return f"? {label} was cut off{reason}: what is its outcome?", "yellow"
        case events.OutcomeDecided():
            label = _label(machine, event.call, event.item)
            return f"! {label} {event.decision}{_by(event.by, event.reason)}", "yellow"
        case events.QuestionAsked():
            label = _label(machine, event.call, event.item)
            question = f"{shortened_json(event.message)} {shortened_json(event.schema)}"
            return f"? {label} server {event.module} asks: {question}", "yellow"
        case events.QuestionAnswered():
            label = _label(machine, event.call, event.item)
            content = "" if event.content is None else f": {shortened_json(event.content)}"
            return f"! {label} {event.action}{_by(event.by, event.reason)}{content}", "yellow"
        case events.QuestionRefused():
            label = _label(machine, event.call, event.item)
            asked = f"server {event.module} asked {shortened_json(event.message)}"
            return f"! {label} {asked}, but got no answer: {event.why}", "red"
        case _:
            return event.name, None


def _grant(event: events.CallDecided) -> str:
    limits = {key: value for key, value in (event.grant or {}).items() if key != "for"}
    return f", {shortened_json(limits)}" if limits else ""


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _by(decider: events.Decider, reason: str | None) -> str:
    return f" by {decider}{_because(reason)}"


def _name(machine: Machine, call: int) -> str:
    if call >= len(machine.history):
        return "?"
    return machine.history[call].call.name


def _label(machine: Machine, call: int, item: int | None) -> str:
    if call >= len(machine.history):
        return str(call)
    progress = machine.history[call]
    instance = f" {progress.call.instance}" if progress.call.instance else ""
    each = "" if item is None else f" item {item}"
    return f"{call} {progress.call.name}{instance}{each}"


def _parameters(machine: Machine, event: events.CallStarted) -> str:
    items = machine.history[event.call].items
    number = event.item or 0
    if number >= len(items):
        return ""
    return shortened_json(items[number].parameters)


def call_json(number: int, progress: Progress) -> JSONObject:
    """Return a call of a run as JSON, with its parameters and with its value or error."""
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
