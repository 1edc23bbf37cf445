"""Make the contents of the pages about a run from the run's journal.

Pages of small runs are created in the server process. Pages of larger runs are created entirely in
a worker process, from the journal to the final text. A worker can be stopped and has limited
memory; see `ideabridge.bridge.reading`. This module imports nothing slow, so that it starts quickly
in a worker.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any, Final

from ideabridge.bridge.context.failure import NOT_RUN, caused_by_denials, not_run, read_failure
from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.loop.effect import call_of_room
from ideabridge.bridge.loop.event import ApprovalAsked, CallStarted
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.runs.values import skipped_calls
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.run_record import ENDED, RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.ui import drawing
from ideabridge.server.ui.call_names import CallName, call_names, names_of_run
from ideabridge.server.ui.call_results import call_results, value_in_line
from ideabridge.server.ui.histories import KeptJournal, read_until
from ideabridge.server.ui.outputs import shown_output
from ideabridge.server.ui.readable_names import readable
from ideabridge.server.ui.reference_words import ReferenceWords
from ideabridge.server.ui.rendering import render
from ideabridge.server.ui.run_rows import run_seconds
from ideabridge.server.ui.run_sentence import ruled_calls, sentence_of
from ideabridge.server.ui.showing import in_one_line, text_of
from ideabridge.server.ui.stages import in_order
from ideabridge.server.ui.timeline import (
    ROWS,
    ChosenRows,
    awaited,
    call_status,
    suppliers,
    timeline,
    why_waited,
)
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.server.views.history import RunHistory, call_json
from ideabridge.server.views.records import CallOutcomes, input_of, lineage_of, task_of
from ideabridge.server.views.shown import call_without_ids
from ideabridge.server.views.text import skipped_line
from ideabridge.server.views.trace import CallBar, Trace, module_of
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.names import counted
from ideabridge.tools.syntax import parse_python

MOST_DRAWN: Final = 40
"""Maximum number of calls in the picture of a run."""

_MOST_DRAWN_AT_ONCE: Final = 40
"""Maximum number of calls whose graph is on a run's page without being requested."""

_EVENTS: Final = 50
_MOST_ERRORS: Final = 20
_MOST_READERS: Final = 100
_MOST_ASKED: Final = 8
"""Maximum number of values that a page shows from the request of a run or from a failed call."""

_LONGEST_ASKED: Final = 80
"""Maximum length, in characters, of a value of the request."""

_LONGEST_TASK: Final = 240
"""Maximum length, in characters, of a request in words."""

_LONGEST_VALUE: Final = 40
"""Maximum length, in characters, of a value of a failed call."""

_PASSES: Final = re.compile(
    r"did not answer|time[d -]*out|unavailable|cannot be (?:started|reached)|was closed"
    r"|connect|try again|rate limit|too many requests",
    re.IGNORECASE,
)
"""Matches the messages of failures that have nothing to do with the values of a call, so that the
same call can succeed later. This chooses only which button of a page stands out.
"""

_WHOLE: Final = 2**48

_MOST_BYTES: Final = 2**30
"""Maximum memory, in bytes, that a journal can take for a worker to show a call from it."""

_SMALL_IMAGE: Final = 96
"""Width, in pixels, below which an image is enlarged to this width."""

_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The image types that a page shows. SVG is not among them, because it can contain scripts."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Calls of the same tool in a run that failed with the same message.

    Attributes:
        title: the tool's title, or "" for an error in the output.
        places: the numbers of the calls.
        message: the error message.
        values: the names and values of the parameters with which the first of these calls ran.
        is_failure: whether something went wrong. False if the calls were only denied, or did not
            run because other calls have no result.
        passes: whether the same calls may succeed later, because their server could not be reached
            or did not answer.
        name: the name of the first of these calls on the page, or "" for an error in the output.
    """

    title: str
    places: list[int]
    message: str
    values: list[tuple[str, str]]
    is_failure: bool
    passes: bool
    name: str


@dataclass(slots=True)
class About:
    """What the page of a run shows, and for whom.

    Attributes:
        status, reason: the current status of the run and the reason for it.
        calls: the first row of the timeline to show.
        events: the first journal event to show, or None for the last page of events.
        only_status, only_tool: the status and the tool of the rows to show, or "" to show all rows.
        draws_all: whether the graph is drawn even if there are many calls.
        is_own: whether the run belongs to the visitor.
        ui: the path with which the URLs of all pages begin.
        tool: the published tool that was called with this run, or "".
        at: the event after which the run is shown.
        last: the last event of the run.
    """

    status: str
    reason: str | None
    calls: int
    events: int | None
    only_status: str
    only_tool: str
    draws_all: bool
    is_own: bool
    ui: str
    tool: str = ""
    at: int = 0
    last: int = 0

    def to_json(self) -> JSONObject:
        """Return the members as JSON."""
        return asdict(self)


def run_values(
    store: Store, record: RunRecord, read: KeptJournal, about: About, titles: ToolTitles
) -> dict[str, Any]:
    """Return the values for a run's page from its journal, read up to `about.at`."""
    trace = read.trace
    history = read.history
    href = f"{about.ui}/runs/{record.id}/calls/"
    is_now = about.at == about.last
    is_left = about.status == "interrupted" and is_now
    end = None
    if is_left or not is_now:
        end = store.runs.event_times(record.id).get(about.at)

    tools = [(module_of(bar, trace), bar.name) for bar in trace.bars]
    names = call_names(tools, titles)
    rows = timeline(
        trace,
        None if history is None else history.machine,
        names,
        chosen=ChosenRows(about.calls, about.only_status, about.only_tool),
        now=end,
        is_left=is_left,
    )
    ended = [bar for bar in trace.bars if bar.finished is not None]
    errors = [] if history is None else history.machine.errors
    calls = CallOutcomes.of((bar.failure for bar in ended), not_run(errors))
    lineage = lineage_of(store, record)
    # Name the run's idea in the line below the title only if there is just one.
    ideas = lineage.pop("ideas", [])
    run_input = input_of(store, record.id)
    progresses = [] if history is None else history.machine.history
    folded = _UNFOLDED
    results = {}
    if history is not None:
        folded = _folded_values(history, trace, about, record, names)
        # The output of a single call is its result.
        if not (history.machine.has_output and len(trace.bars) == 1):
            results = call_results(history.machine, [row.number for row in rows.rows])
    return {
        "record": record,
        "status": about.status if is_now else "replayed",
        "reason": about.reason,
        "trace": trace,
        "timeline": rows,
        "results": results,
        "seconds": (run_seconds(record) if is_now else None) or rows.seconds,
        "href": href,
        "at": about.at,
        "last": about.last,
        "program": _marked(trace) if trace.program else [],
        "lineage": lineage,
        "ideas": ideas,
        "ended": about.status in ENDED,
        "calls": calls,
        "ruled": ruled_calls(trace, names),
        "sentence": sentence_of(
            trace, progresses, names, rows.most, folded["explained"], is_left=is_left
        ),
        "names": names,
        "is_failure": record.summary.errors > 0 and calls.none_succeeded,
        "tools": sorted({(name, server) for server, name in tools}),
        "asked": {"is": about.only_status, "tool": about.only_tool},
        "page_rows": ROWS,
        "events_page": _EVENTS,
        "input": run_input,
        "asked_values": _request_of(record, trace, run_input),
        "task": _task_of(store, record, run_input),
        "is_own": about.is_own,
        "tool": about.tool,
        "waits_for": _waits_for(trace, names)
        if is_now and about.status == "needs_approval"
        else "",
        "waits_since": _waits_since(trace) or record.updated,
        **folded,
    }


_UNFOLDED: Final[dict[str, Any]] = {
    "machine": None,
    "retry_at": None,
    "broken": None,
    "errors": 0,
    "denied": 0,
    "failures": (),
    "passes": False,
    "plan": None,
    "explained": (),
    "more_errors": 0,
    "skipped": (),
    "graph": None,
    "undrawn": 0,
    "events": (),
    "events_from": 0,
    "events_total": 0,
    "has_output": False,
    "output": None,
    "shown_output": None,
    "images": (),
}


def _folded_values(
    history: RunHistory,
    trace: Trace,
    about: About,
    record: RunRecord,
    names: list[CallName],
) -> dict[str, Any]:
    """Return the values for a run's page that need the folded journal."""
    machine = history.machine
    # A room cannot be forked on its own, but only with the run whose call it answers.
    is_at_end = about.at == about.last and about.status in ENDED and record.parent is None
    errors = machine.errors
    failures = _failures(errors, history, names)
    faults = [failure for failure in failures if failure.is_failure]
    unlisted = failures[_MOST_ERRORS:]
    events = history.entries
    start = about.events
    if start is None:
        start = max(0, len(events) - _EVENTS)

    calls = len(machine.history)
    is_drawn = about.draws_all or not _MOST_DRAWN_AT_ONCE < calls <= drawing.MAX_CALLS
    graph = None
    if is_drawn:
        graph = drawing.of_run(machine, trace, names, f"{about.ui}/runs/{record.id}/calls/")

    output = without_payloads(machine.output)
    return {
        "reason": about.reason if about.status == "done" else machine.reason or about.reason,
        "machine": machine,
        "retry_at": _retry_point(history) if is_at_end else None,
        "broken": history.broken,
        "errors": len(errors),
        "denied": caused_by_denials(errors),
        "failures": failures[:_MOST_ERRORS],
        "passes": bool(faults) and all(fault.passes for fault in faults),
        "plan": _plan_of(record, trace),
        "explained": {place for failure in failures[:_MOST_ERRORS] for place in failure.places},
        "more_errors": sum(max(1, len(failure.places)) for failure in unlisted),
        "skipped": [skipped_line(call) for call in skipped_calls(machine)[:_MOST_ERRORS]],
        "graph": graph,
        "undrawn": 0 if is_drawn else calls,
        "events": events[start : start + _EVENTS],
        "events_from": start,
        "events_total": len(events),
        "has_output": machine.has_output,
        "output": output,
        "shown_output": shown_output(output),
        "images": shown_images(images_in(machine.output), f"{about.ui}/runs/{record.id}/images/"),
    }


def _waits_for(trace: Trace, names: list[CallName]) -> str:
    """Return what the decision that a run waits for is about, in a few words."""
    waiting = [names[bar.number].title for bar in trace.bars if bar.status == "asking"]
    if not waiting:
        return "A plan" if trace.plan_asked is not None else "A call"
    return waiting[0] if len(waiting) == 1 else counted(len(waiting), "call")


def _waits_since(trace: Trace) -> float | None:
    """Return when the oldest open question of a run was asked, or None if another run asks it."""
    asked = [bar.asked for bar in trace.bars if bar.status == "asking" and bar.asked is not None]
    return min(asked, default=trace.plan_asked)


def _request_of(record: RunRecord, trace: Trace, run_input: JSONObject) -> list[tuple[str, str]]:
    """Return the names and values that a run received: the members of its input or, if its plan is
    a single call, the parameters of this call. References are left out, because they are not values
    yet.
    """
    parameters = list(run_input.items())
    is_one_call = record.kind == "plan" and not trace.program and len(trace.bars) == 1
    if not parameters and is_one_call:
        parameters = [
            (name, value)
            for name, value in _parameters_in(trace.bars[0].call)
            if not (isinstance(value, str) and value.startswith("†"))
        ]
    return [
        (name, value_in_line(value, _LONGEST_ASKED)) for name, value in parameters[:_MOST_ASKED]
    ]


def _task_of(store: Store, record: RunRecord, run_input: JSONObject) -> str:
    """Return the words with which someone asked for a run, on one line, or "" if the title says the
    same or the request consists of values.
    """
    if record.kind != "solve" or run_input:
        return ""
    task = in_one_line(task_of(store, record.id), _LONGEST_TASK)
    return "" if task == in_one_line(record.title, _LONGEST_TASK) else task


def _plan_of(record: RunRecord, trace: Trace) -> JSONObject | None:
    """Return the plan of a run for a person to edit. Return None if there is no plan, if the plan
    is a program, which is hard to read as JSON, or if its calls refer to each other by ids, which
    nobody has written.
    """
    calls: list[JSON] = [bar.call for bar in trace.bars]
    if record.kind != "plan" or trace.program or any("_id" in bar.call for bar in trace.bars):
        return None
    return {"calls": calls, "output": trace.output}


def _parameters_in(call: JSONObject) -> list[tuple[str, JSON]]:
    """Return the parameters of a written call, without its meta-properties."""
    return [(name, value) for name, value in call.items() if not name.startswith("_")]


def _failures(
    errors: list[JSONObject], history: RunHistory, names: list[CallName]
) -> list[FailureGroup]:
    """Return the errors grouped by tool and message, in the order in which the groups first
    occur.
    """
    all_denied = caused_by_denials(errors) == len(errors)
    groups: dict[tuple[str, str], FailureGroup] = {}
    for error in errors:
        place = error.get("place")
        tool = str(object_or_empty(error.get("call")).get("_tool", ""))
        failure = read_failure(error.get("error"))
        message = failure.message
        group = groups.get((tool, message))
        if group is None:
            # The page lists only the first groups, so the values of the others are not needed.
            values = _values_of_call(place, history) if len(groups) < _MOST_ERRORS else []
            is_failure = not all_denied and failure.kind not in ("denied", NOT_RUN)
            passes = failure.kind == "unknown" or _PASSES.search(message) is not None
            title = readable(tool)
            name = title
            if isinstance(place, int) and place < len(names):
                title = names[place].title
                name = str(names[place])
            group = FailureGroup(title, [], message, values, is_failure, passes, name)
            groups[tool, message] = group
        if isinstance(place, int):
            group.places.append(place)
    return list(groups.values())


def _values_of_call(place: JSON, history: RunHistory) -> list[tuple[str, str]]:
    """Return the names and values of the parameters that a call ran with, or none if it never
    ran.
    """
    calls = history.machine.history
    if not isinstance(place, int) or place >= len(calls):
        return []

    parameters = object_or_empty(call_json(place, calls[place]).get("parameters"))
    return [
        (name, value_in_line(value, _LONGEST_VALUE))
        for name, value in _parameters_in(parameters)[:_MOST_ASKED]
    ]


def _retry_point(history: RunHistory) -> int | None:
    """Return the number of the event after which a fork would repeat the first failed call,
    including the question whether it may run. Return None if no call ran and failed.
    """
    places = [error.get("place") for error in history.machine.errors]
    failed = {place for place in places if isinstance(place, int)}
    begun: dict[int, int] = {}
    started = set[int]()
    for entry in history.entries:
        event = entry.event
        if isinstance(event, ApprovalAsked | CallStarted) and event.call in failed:
            begun.setdefault(event.call, entry.number)
            if isinstance(event, CallStarted):
                started.add(event.call)

    return min((begun[call] - 1 for call in started), default=None)


def call_values(
    store: Store, record: RunRecord, read: KeptJournal, number: int, ui: str, titles: ToolTitles
) -> dict[str, Any]:
    """Return the values for the page about a call. The URLs of all pages begin with `ui`.

    Raises:
        UnknownRunError: the run has no such call.
    """
    history, progress, bar = _call_in(record, read, number)
    trace = read.trace
    about = call_json(number, progress)
    machine = history.machine
    calls = machine.history
    events = [entry for entry in history.entries if getattr(entry.event, "call", None) == number]
    names = names_of_run(trace, titles)
    waits = [
        (other, names[other], reason)
        for other, reason in sorted(awaited(progress).items())
        if other < min(len(calls), len(names))
    ]
    readers = [
        (bar.number, names[bar.number])
        for other, bar in zip(calls, trace.bars, strict=False)
        if number in suppliers(other)
    ]
    value = without_payloads(about.get("value"))
    rooms = [room for room in store.runs.rooms(record.id) if call_of_room(room.id)[0] == number]
    ordered = [other.number for other in in_order(trace) if other.number >= 0]
    step = ordered.index(number)
    words = ReferenceWords()
    for supplier in suppliers(progress):
        words.add(supplier, trace.bars[supplier].call, str(names[supplier]))
    return {
        "record": record,
        "number": number,
        "name": names[number],
        "step": step + 1,
        "steps": len(ordered),
        "previous": ordered[step - 1] if step > 0 else None,
        "next": ordered[step + 1] if step + 1 < len(ordered) else None,
        "names": names,
        "bar": bar,
        "module": module_of(bar, trace),
        "status": call_status(progress),
        "written": call_without_ids(bar.call),
        "parameters": words.parameters(call_without_ids(bar.call)),
        "resolved": about.get("parameters"),
        "value": value,
        "shown_value": shown_output(value),
        "sent": without_payloads((progress.error or {}).get("sent")),
        "has_value": "value" in about,
        "error": progress.error,
        "images": shown_images(
            images_in(_answered(about)), f"{ui}/runs/{record.id}/calls/{number}/images/"
        ),
        "events": events[:_EVENTS],
        "more_events": max(0, len(events) - _EVENTS),
        "begun": trace.begun,
        "waits": waits,
        "read_by": readers[:_MOST_READERS],
        "why": why_waited(machine, bar, trace, names),
        "assumed": progress.doubts.assumed,
        "tool": progress.tool,
        "rooms": rooms,
        "fork_at": events[-1].number if events else 1,
    }


def result_file(record: RunRecord, read: KeptJournal, number: int) -> list[JSON]:
    """Return the result of a call as a file: the suffix (`txt` or `json`) and the text.

    Raises:
        UnknownRunError: the run has no such call.
    """
    _, progress, _ = _call_in(record, read, number)
    value = call_json(number, progress).get("value")
    ending = "txt" if isinstance(value, str) else "json"
    return [ending, text_of(value)]


def output_file(record: RunRecord, read: KeptJournal) -> list[JSON]:
    """Return the output of a run as a file: the suffix (`txt` or `json`) and the text.

    Raises:
        UnknownRunError: the run has no output.
    """
    machine = _folded(record, read).machine
    if not machine.has_output:
        raise UnknownRunError(f"run {record.id} has no output")

    ending = "txt" if isinstance(machine.output, str) else "json"
    return [ending, text_of(machine.output)]


def image_of(record: RunRecord, read: KeptJournal, number: int, place: int) -> list[JSON]:
    """Return an image from the result of a call: its MIME type and its data in Base64.

    Raises:
        UnknownRunError: the run has no such call or image.
    """
    _, progress, _ = _call_in(record, read, number)
    images = images_in(_answered(call_json(number, progress)))
    if place >= len(images):
        raise UnknownRunError(f"call {number} of {record.id} has no image {place}")
    return [images[place].kind, base64.b64encode(images[place].data).decode()]


def output_image_of(record: RunRecord, read: KeptJournal, place: int) -> list[JSON]:
    """Return an image from the output of a run: its MIME type and its data in Base64.

    Raises:
        UnknownRunError: the output has no such image.
    """
    machine = _folded(record, read).machine
    images = images_in(machine.output) if machine.has_output else []
    if place >= len(images):
        raise UnknownRunError(f"the output of {record.id} has no image {place}")
    return [images[place].kind, base64.b64encode(images[place].data).decode()]


def picture_of(record: RunRecord, read: KeptJournal, titles: ToolTitles) -> str:
    """Return the first calls of the timeline as SVG."""
    machine = None if read.history is None else read.history.machine
    whole = timeline(read.trace, machine, names_of_run(read.trace, titles))
    text = render(
        "picture.svg",
        title=titles.run_name(record) if record.title else record.id,
        rows=[row for row in whole.rows if row.number >= 0][:MOST_DRAWN],
        calls=len(read.trace.bars),
        most=whole.most,
        seconds=whole.seconds,
        ticks=whole.ticks,
        breaks=whole.breaks,
    )
    return "\n".join(filter(None, text.split("\n"))) + "\n"


def _folded(record: RunRecord, read: KeptJournal) -> RunHistory:
    """Return the folded journal of a run whose output is to be shown."""
    if read.history is None:
        raise LimitExceededError(f"run {record.id} is too large for its output to be shown")
    return read.history


def _call_in(
    record: RunRecord, read: KeptJournal, number: int
) -> tuple[RunHistory, Progress, CallBar]:
    """Return the folded journal of a run, and one of its calls both from the machine and from the
    trace.
    """
    history = read.history
    bars = read.trace.bars
    if history is None:
        raise LimitExceededError(f"run {record.id} is too large for its calls to be shown")

    calls = history.machine.history
    if number >= min(len(calls), len(bars)):
        raise UnknownRunError(f"run {record.id} has no call {number}")
    return history, calls[number], bars[number]


# -- whole, in a worker process --------------------------------------------------------------------


def run_page(
    store: Store, run_id: str, members: dict[str, Any], frame: dict[str, Any], titles: JSON
) -> str:
    """Return the page about a run. `members` contains the members of `About`, while `frame` and
    `titles` contain what all pages need.
    """
    about = About(**members)
    record = store.runs.find(run_id, caller=SEES_ALL)
    read = read_until(store, run_id, about.at)
    seen = ToolTitles.from_json(titles)
    values = run_values(store, record, read, about, seen)
    return render("run.html", titles=seen, **frame, **values)


def call_page(store: Store, run_id: str, number: int, frame: dict[str, Any], titles: JSON) -> str:
    """Return the page about a call."""
    record = store.runs.find(run_id, caller=SEES_ALL)
    seen = ToolTitles.from_json(titles)
    values = call_values(store, record, _whole(store, run_id), number, frame["ui"], seen)
    return render("call.html", titles=seen, **frame, **values)


def result(store: Store, run_id: str, number: int) -> list[JSON]:
    """See `result_file`."""
    return result_file(store.runs.find(run_id, caller=SEES_ALL), _whole(store, run_id), number)


def image(store: Store, run_id: str, number: int, place: int) -> list[JSON]:
    """See `image_of`."""
    return image_of(store.runs.find(run_id, caller=SEES_ALL), _whole(store, run_id), number, place)


def output_image(store: Store, run_id: str, place: int) -> list[JSON]:
    """See `output_image_of`."""
    record = store.runs.find(run_id, caller=SEES_ALL)
    return output_image_of(record, _whole(store, run_id), place)


def output(store: Store, run_id: str) -> list[JSON]:
    """See `output_file`."""
    return output_file(store.runs.find(run_id, caller=SEES_ALL), _whole(store, run_id))


def picture(store: Store, run_id: str, titles: JSON) -> str:
    """See `picture_of`."""
    record = store.runs.find(run_id, caller=SEES_ALL)
    return picture_of(record, _whole(store, run_id), ToolTitles.from_json(titles))


def _whole(store: Store, run_id: str) -> KeptJournal:
    return read_until(store, run_id, _WHOLE, _MOST_BYTES)


# -- parts -----------------------------------------------------------------------------------------


def _answered(about: JSONObject) -> JSON:
    """Return the result of a call from its `call_json` or, if the call failed, the value that its
    tool sent.
    """
    error = about.get("error")
    if isinstance(error, dict):
        return error.get("sent")
    return about.get("value")


@dataclass(frozen=True, slots=True)
class Image:
    """An image block in a result. `kind` is its MIME type."""

    kind: str
    data: bytes

    @property
    def is_small(self) -> bool:
        """True if the image is so narrow that a page enlarges it. Only PNG files state their width
        at a fixed position, so other images are never small.
        """
        return self.kind == "image/png" and int.from_bytes(self.data[16:20], "big") < _SMALL_IMAGE


@dataclass(frozen=True, slots=True)
class ShownImage:
    """An image on a page.

    Attributes:
        address: the URL of the image.
        is_small: whether the image is enlarged without blurring its pixels.
        kind: the image format, such as `PNG`.
        bytes: the size of the image file.
    """

    address: str
    is_small: bool
    kind: str
    bytes: int


def shown_images(images: list[Image], address: str) -> list[ShownImage]:
    """Return images for a page. The URL of each image is `address` followed by the image's
    index.
    """
    shown: list[ShownImage] = []
    for place, image in enumerate(images):
        kind = image.kind.removeprefix("image/").upper()
        shown.append(ShownImage(f"{address}{place}", image.is_small, kind, len(image.data)))
    return shown


def images_in(value: JSON) -> list[Image]:
    """Return the image blocks in a result, in order. Damaged images are left out."""
    images: list[Image] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += reversed(part)

        if not isinstance(part, dict):
            continue

        kind = part.get("mimeType")
        data = part.get("data")
        if part.get("type") != "image" or kind not in _IMAGES or not isinstance(data, str):
            waiting += reversed(part.values())
            continue

        with contextlib.suppress(ValueError):
            images.append(Image(str(kind), base64.b64decode(data, validate=True)))

    return images


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a program. `marks` contains the tool, the number of calls, and the number of the
    first call for each tool called on the line.
    """

    number: int
    text: str
    marks: list[tuple[str, int, int]]


def _marked(trace: Trace) -> list[SourceLine]:
    """Return the lines of the last program, with marks. A call is marked on the lines that call its
    tool by name.
    """
    try:
        tree = parse_python(trace.program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])

    names_by_line = defaultdict[int, set[str]](set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                name = node.func.attr
            else:
                name = getattr(node.func, "id", "")
            names_by_line[node.lineno].add(str(name))

    calls_by_name = defaultdict[str, list[int]](list)
    for bar in trace.bars:
        calls_by_name[bar.name].append(bar.number)

    lines: list[SourceLine] = []
    for number, text in enumerate(trace.program.rstrip().split("\n"), 1):
        called = sorted(names_by_line[number] & calls_by_name.keys())
        marks = [(name, len(calls_by_name[name]), calls_by_name[name][0]) for name in called]
        lines.append(SourceLine(number, text, marks))
    return lines
