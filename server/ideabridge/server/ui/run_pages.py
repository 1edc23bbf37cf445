"""Run pages: what pages about one run show, made from its journal.

The pages of small runs are made here. Those of larger ones are made whole, from the journal to the
text, in a worker process, which can be stopped and has bounded memory; see
`ideabridge.bridge.reading`. So this imports nothing that takes long to import.
"""

from __future__ import annotations

import ast
import base64
import contextlib
from dataclasses import asdict, dataclass
from typing import Any, Final

from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.loop.effect import call_of_room
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.runs.values import skipped_calls
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.run_record import ENDED, RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.ui import drawing
from ideabridge.server.ui.histories import KeptJournal, read_until
from ideabridge.server.ui.rendering import render
from ideabridge.server.ui.showing import text_of
from ideabridge.server.ui.timeline import ROWS, awaited, suppliers, timeline, why_waited
from ideabridge.server.views.history import RunHistory, call_json
from ideabridge.server.views.records import input_of, lineage_of
from ideabridge.server.views.shown import call_without_ids
from ideabridge.server.views.text import skipped_line
from ideabridge.server.views.trace import CallBar, Trace, module_of
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError

MOST_DRAWN: Final = 40
"""Calls in the picture of a run."""

_EVENTS: Final = 100
_MOST_ERRORS: Final = 100
_WHOLE: Final = 2**48

_MOST_BYTES: Final = 2**30
"""Bytes of memory of a journal of which a worker shows a call."""

_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The images that a page shows. SVG is not among them: it may contain scripts."""


@dataclass(slots=True)
class About:
    """What a visitor asks of the page of a run.

    Attributes:
        status, reason: those of the run now.
        calls: the first row of the timeline.
        events: the first event of the journal; None: the last page of them.
        only_status, only_tool: which rows.
        is_own: the run belongs to the visitor.
        ui: the path under which all pages are.
        at: the event after which the run is shown.
        last: its last event.
    """

    status: str
    reason: str | None
    calls: int
    events: int | None
    only_status: str
    only_tool: str
    is_own: bool
    ui: str
    at: int = 0
    last: int = 0

    def to_json(self) -> JSONObject:
        """Its members."""
        return asdict(self)


def run_values(store: Store, record: RunRecord, read: KeptJournal, about: About) -> dict[str, Any]:
    """The values of the page of a run, whose journal was read up to `about.at`."""
    trace = read.trace
    history = read.history
    machine = None if history is None else history.machine
    href = f"{about.ui}/runs/{record.id}/calls/"
    is_now = about.at == about.last
    is_left = about.status == "interrupted" and is_now
    if is_left or not is_now:
        now = store.runs.event_times(record.id).get(about.at)
    else:
        now = None

    rows = timeline(
        trace,
        machine,
        first=about.calls,
        status=about.only_status,
        tool=about.only_tool,
        now=now,
        is_left=is_left,
    )
    errors = [] if machine is None else machine.errors
    events = [] if history is None else history.entries
    start = about.events if about.events is not None else max(0, len(events) - _EVENTS)
    return {
        "record": record,
        "status": about.status if is_now else "replayed",
        "reason": (machine.reason if machine is not None else None) or about.reason,
        "errors": errors[:_MOST_ERRORS],
        "more_errors": len(errors[_MOST_ERRORS:]),
        "skipped": []
        if machine is None
        else list(map(skipped_line, skipped_calls(machine)[:_MOST_ERRORS])),
        "trace": trace,
        "machine": machine,
        "broken": None if history is None else history.broken,
        "timeline": rows,
        "href": href,
        "at": about.at,
        "last": about.last,
        "graph": None if machine is None else drawing.of_run(machine, trace, href),
        "program": _marked(trace) if trace.program else [],
        "lineage": lineage_of(store, record),
        "ended": about.status in ENDED,
        "tools": sorted({bar.name for bar in trace.bars}),
        "asked": {"is": about.only_status, "tool": about.only_tool},
        "page_rows": ROWS,
        "events": events[start : start + _EVENTS],
        "events_from": start,
        "events_total": len(events),
        "events_page": _EVENTS,
        "output": without_payloads(machine.output)
        if machine is not None and machine.has_output
        else None,
        "has_output": machine is not None and machine.has_output,
        "input": input_of(store, record.id),
        "is_own": about.is_own,
    }


def call_values(store: Store, record: RunRecord, read: KeptJournal, number: int) -> dict[str, Any]:
    """The values of the page of a call.

    Raises:
        UnknownRunError: the run has no such call.
    """
    history, trace, progress, bar = _call_in(record, read, number)
    about = call_json(number, progress)
    machine = history.machine
    events = [one for one in history.entries if getattr(one.event, "call", None) == number]
    waits = [
        (one, machine.history[one].call.name, why)
        for one, why in sorted(awaited(progress).items())
        if one < len(machine.history)
    ]
    return {
        "record": record,
        "number": number,
        "bar": bar,
        "module": module_of(bar, trace),
        "status": progress.status.value,
        "written": call_without_ids(bar.call),
        "resolved": about.get("parameters"),
        "value": without_payloads(about.get("value")),
        "sent": without_payloads((progress.error or {}).get("sent")),
        "has_value": "value" in about,
        "error": progress.error,
        "images": range(len(_images(_answered(about)))),
        "events": events,
        "begun": trace.begun,
        "waits": waits,
        "read_by": [one.call.index for one in machine.history if number in suppliers(one)][:100],
        "why": why_waited(progress, bar, trace, machine),
        "assumed": progress.doubts.assumed,
        "tool": progress.tool,
        "rooms": [one for one in store.runs.rooms(record.id) if call_of_room(one.id)[0] == number],
        "fork_at": next((one.number for one in reversed(events)), 1),
    }


def result_of(record: RunRecord, read: KeptJournal, number: int) -> list[JSON]:
    """(`txt` or `json`, the text) of the result of a call.

    Raises:
        UnknownRunError: the run has no such call.
    """
    value = call_json(number, _call_in(record, read, number)[2]).get("value")
    return ["txt" if isinstance(value, str) else "json", text_of(value)]


def image_of(record: RunRecord, read: KeptJournal, number: int, place: int) -> list[JSON]:
    """(MIME type, data in base64) of an image in the result of a call.

    Raises:
        UnknownRunError: the run has no such call or image.
    """
    images = _images(_answered(call_json(number, _call_in(record, read, number)[2])))
    if place >= len(images):
        raise UnknownRunError(f"call {number} of {record.id} has no image {place}")
    return [images[place].kind, base64.b64encode(images[place].data).decode()]


def picture_of(record: RunRecord, read: KeptJournal) -> str:
    """The first calls of the timeline as SVG."""
    machine = None if read.history is None else read.history.machine
    whole = timeline(read.trace, machine)
    text = render(
        "picture.svg",
        title=record.title or record.id,
        rows=[row for row in whole.rows if row.number >= 0][:MOST_DRAWN],
        calls=len(read.trace.bars),
        most=whole.most,
        seconds=whole.seconds,
        ticks=whole.ticks,
        breaks=whole.breaks,
    )
    return "\n".join(filter(None, text.split("\n"))) + "\n"


def _call_in(
    record: RunRecord, read: KeptJournal, number: int
) -> tuple[RunHistory, Trace, Progress, CallBar]:
    history = read.history
    trace = read.trace
    if history is None:
        raise LimitExceededError(f"run {record.id} is too large to show its calls")

    listed = history.machine.history
    if number >= min(len(listed), len(trace.bars)):
        raise UnknownRunError(f"run {record.id} has no call {number}")
    return history, trace, listed[number], trace.bars[number]


# -- whole, in a worker process --------------------------------------------------------------------


def run_page(store: Store, run_id: str, members: dict[str, Any], frame: dict[str, Any]) -> str:
    """The page of a run; `members` are those of `About`, and `frame` has the values that
    all pages have.
    """
    about = About(**members)
    record = store.runs.find(run_id, caller=SEES_ALL)
    values = run_values(store, record, read_until(store, run_id, about.at), about)
    return render("run.html", **frame, **values)


def call_page(store: Store, run_id: str, number: int, frame: dict[str, Any]) -> str:
    """The page of a call."""
    record = store.runs.find(run_id, caller=SEES_ALL)
    return render("call.html", **frame, **call_values(store, record, _whole(store, run_id), number))


def result(store: Store, run_id: str, number: int) -> list[JSON]:
    """See `result_of`."""
    return result_of(store.runs.find(run_id, caller=SEES_ALL), _whole(store, run_id), number)


def image(store: Store, run_id: str, number: int, place: int) -> list[JSON]:
    """See `image_of`."""
    return image_of(store.runs.find(run_id, caller=SEES_ALL), _whole(store, run_id), number, place)


def picture(store: Store, run_id: str) -> str:
    """See `picture_of`."""
    return picture_of(store.runs.find(run_id, caller=SEES_ALL), _whole(store, run_id))


def _whole(store: Store, run_id: str) -> KeptJournal:
    return read_until(store, run_id, _WHOLE, _MOST_BYTES)


# -- parts -----------------------------------------------------------------------------------------


def _answered(about: JSONObject) -> JSON:
    """The value of a call (`call_json`), or else what its tool sent although it failed."""
    error = about.get("error")
    if isinstance(error, dict):
        return error.get("sent")
    return about.get("value")


@dataclass(frozen=True, slots=True)
class Image:
    """An image block in a result; `kind` is its MIME type."""

    kind: str
    data: bytes


def _images(value: JSON) -> list[Image]:
    """The image blocks in a result, in their order, without damaged ones."""
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
    """A line of a program; `marks` are (tool, times called, a call's number) of the calls
    that stand in it.
    """

    number: int
    text: str
    marks: list[tuple[str, int, int]]


def _marked(trace: Trace) -> list[SourceLine]:
    """The source of the last program. A call belongs to the lines in which the name of its
    tool is called.
    """
    lines = trace.program.rstrip().split("\n")
    places: dict[int, set[str]] = {}
    try:
        tree = ast.parse(trace.program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                name = node.func.attr
            else:
                name = getattr(node.func, "id", "")
            places.setdefault(node.lineno, set()).add(str(name))

    calls_by_name: dict[str, list[int]] = {}
    for bar in trace.bars:
        calls_by_name.setdefault(bar.name, []).append(bar.number)

    return [
        SourceLine(
            number,
            text,
            [
                (name, len(calls_by_name[name]), calls_by_name[name][0])
                for name in sorted(places.get(number, ()))
                if name in calls_by_name
            ],
        )
        for number, text in enumerate(lines, 1)
    ]
