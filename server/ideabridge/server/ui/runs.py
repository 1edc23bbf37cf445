"""Runs: the list of runs, one run with its timeline, and one call of it."""

from __future__ import annotations

import ast
import base64
import contextlib
import logging
from dataclasses import dataclass
from typing import Final, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.errors import ForkError
from ideabridge.bridge.loop.effect import call_of_room
from ideabridge.bridge.loop.event import LOCAL_USER
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.runs.values import skipped_calls
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.idea import RunRecord
from ideabridge.bridge.store.journal import RunFilter
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import Viewer, person_of
from ideabridge.server.ui import drawing
from ideabridge.server.ui.access import PREFIX, Visitor, form_of, visitor_of
from ideabridge.server.ui.approvals import Card
from ideabridge.server.ui.forms import number_of
from ideabridge.server.ui.showing import text_of
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.timeline import ROWS, awaited, suppliers, timeline, why_waited
from ideabridge.server.views.history import RunHistory, call_json
from ideabridge.server.views.records import ListedStatus, errors_of, input_of, lineage_of, run_status
from ideabridge.server.views.text import skipped_line
from ideabridge.server.views.trace import CallBar, Trace, module_of
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import ArgumentError
from ideabridge.tools.threads import compute_in_thread

logger = logging.getLogger(__name__)

PAGE: Final = 50
"""Runs of a page."""

MOST_DRAWN: Final = 40
"""Calls in the picture of a run."""

_SCANNED: Final = 200
_EVENTS: Final = 100
_MOST_ERRORS: Final = 100
_ENDED: Final = ("done", "stalled", "limit", "cancelled", "failed")
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The images that a page shows. SVG is not among them: it may contain scripts."""

STATUSES: Final[tuple[str, ...]] = get_args(ListedStatus)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the list."""

    record: RunRecord
    status: str
    reason: str | None
    errors: int
    seconds: float | None


class RunPages:
    """The pages about runs."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """The routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/runs", self.list),
            Route("/runs/direct", self.direct),
            Route("/runs/{run}", self.show),
            Route("/runs/{run}/picture.svg", self.picture),
            Route("/runs/{run}/calls/{call}", self.call),
            Route("/runs/{run}/calls/{call}/result", self.result),
            Route("/runs/{run}/calls/{call}/images/{image}", self.image),
            Route("/runs/{run}/cancel", changing(self.cancel), methods=["POST"]),
            Route("/runs/{run}/resume", changing(self.resume), methods=["POST"]),
            Route("/runs/{run}/fork", changing(self.fork), methods=["POST"]),
        ]

    # -- the list ----------------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        """The runs, newest first."""
        asked, visitor, store = request.query_params, visitor_of(request), self._bridge.store
        given = {name: asked.get(name, "").strip() for name in ("tool", "since", "until", "words")}
        chosen = RunFilter(**{name: value or None for name, value in given.items()})
        status = asked.get("status", "")
        user = asked.get("user")
        caller = user if user and visitor.manages else visitor.scope
        after = asked.get("after") or None
        rows = list(_rows(store, status if status in STATUSES else "", caller, chosen, after))
        following = rows[PAGE - 1].record.id if len(rows) > PAGE else None
        kept = {key: value for key, value in asked.items() if key != "after" and value}
        return self._site.page(
            request,
            "runs.html",
            rows=rows[:PAGE],
            statuses=STATUSES,
            asked={**given, "status": status, "user": asked.get("user", "")},
            callers=_callers(store, visitor),
            filtered=any(kept.values()),
            newest=f"?{urlencode(kept)}" if after else "",
            older=f"?{urlencode({**kept, 'after': following})}" if following else "",
        )

    async def direct(self, request: Request) -> Response:
        """The direct calls of exposed tools, newest first."""
        visitor, after = visitor_of(request), request.query_params.get("after") or None
        page = self._bridge.store.direct_calls.page(PAGE, after, caller=visitor.scope)
        older = f"?{urlencode({'after': page.next})}" if page.next else ""
        return self._site.page(request, "direct.html", calls=page.items, older=older)

    # -- one run -----------------------------------------------------------------------------------------------

    async def show(self, request: Request) -> Response:
        """One run: its timeline, calls, decisions, state and events; with `?at=N`, as it was after event N."""
        record = self._site.record(request, request.path_params["run"])
        at = number_of(request.query_params.get("at", "")) or 0
        waits = record.status in ("needs_approval", "needs_solution")
        async with self._site.histories.reading(record.id, fold=waits) as read:
            last = read.trace.last
            if 0 < at < last:
                before = await self._site.histories.at(record.id, at)
                return await self._show(request, record, before.trace, before.history, at, last, [])
            cards = await self._cards(record, read.history, visitor_of(request))
            return await self._show(request, record, read.trace, read.history, last, last, cards)

    async def _cards(self, record: RunRecord, history: RunHistory | None, visitor: Visitor) -> list[Card]:
        """The open decisions of a run. Those of a room are shown with the run that it belongs to."""
        if history is None or run_status(record)[0] in _ENDED or record.parent is not None:
            return []
        asked = await self._site.histories.pending(record, history)
        # A thread, because a call may be long.
        return await compute_in_thread(lambda: [Card.of(one, visitor) for one in asked])

    async def _show(
        self,
        request: Request,
        record: RunRecord,
        trace: Trace,
        history: RunHistory | None,
        at: int,
        last: int,
        cards: list[Card],
    ) -> Response:
        asked, store = request.query_params, self._bridge.store
        status, reason = run_status(record)
        machine = None if history is None else history.machine
        href = f"{PREFIX}/runs/{record.id}/calls/"
        first = number_of(asked.get("calls", "")) or 0
        left = status == "interrupted" and at == last
        now = store.runs.event_times(record.id).get(at) if at < last or left else None
        graph = None
        if machine is not None:
            graph = await compute_in_thread(drawing.of_run, machine, trace, href)
        program = await compute_in_thread(_marked, trace) if trace.program else []
        errors = [] if machine is None else machine.errors
        rows = timeline(
            trace,
            machine,
            first=first,
            status=asked.get("is", ""),
            tool=asked.get("tool", ""),
            now=now,
            is_left=left,
        )
        events = [] if history is None else history.entries
        start = number_of(asked.get("events", ""))
        if start is None:
            start = max(0, len(events) - _EVENTS)
        return self._site.page(
            request,
            "run.html",
            record=record,
            status=status if at == last else "replayed",
            reason=(machine.reason if machine is not None else None) or reason,
            errors=errors[:_MOST_ERRORS],
            more_errors=len(errors[_MOST_ERRORS:]),
            skipped=[] if machine is None else list(map(skipped_line, skipped_calls(machine)[:_MOST_ERRORS])),
            error_count=errors_of(record),
            trace=trace,
            machine=machine,
            broken=None if history is None else history.broken,
            timeline=rows,
            href=href,
            at=at,
            last=last,
            graph=graph,
            program=program,
            cards=cards,
            lineage=lineage_of(store, record),
            ended=status in _ENDED,
            tools=sorted({bar.name for bar in trace.bars}),
            asked={"is": asked.get("is", ""), "tool": asked.get("tool", "")},
            page_rows=ROWS,
            events=events[start : start + _EVENTS],
            events_from=start,
            events_total=len(events),
            events_page=_EVENTS,
            output=await compute_in_thread(without_payloads, machine.output) if machine is not None else None,
            has_output=machine is not None and machine.has_output,
            input=input_of(store, record.id),
            is_own=record.caller == visitor_of(request).caller,
        )

    async def picture(self, request: Request) -> Response:
        """The first calls of the timeline as a picture that stands alone."""
        record = self._site.record(request, request.path_params["run"])
        async with self._site.histories.reading(record.id) as read:
            machine = None if read.history is None else read.history.machine
            whole = timeline(read.trace, machine)
            text = self._site.render(
                "picture.svg",
                title=record.title or record.id,
                rows=[row for row in whole.rows if row.number >= 0][:MOST_DRAWN],
                calls=len(read.trace.bars),
                most=whole.most,
                seconds=whole.seconds,
                ticks=whole.ticks,
                breaks=whole.breaks,
            )
        return Response("\n".join(filter(None, text.split("\n"))) + "\n", media_type="image/svg+xml")

    async def cancel(self, request: Request) -> Response:
        """End a run."""
        record, visitor = self._site.record(request, request.path_params["run"]), visitor_of(request)
        reason = "cancelled on the page"
        if record.caller != visitor.caller:
            reason = f"{reason} by {visitor.name}"
        run = await self._bridge.cancel(record.id.partition(".")[0], reason, caller=record.caller)
        return self._site.back(request, f"{PREFIX}/runs/{record.id}", f"The run is {run.status}.")

    async def resume(self, request: Request) -> Response:
        """Continue a run whose process died."""
        record, visitor = self._site.record(request, request.path_params["run"]), visitor_of(request)
        run = (await self._bridge.resume(record.id, caller=record.caller)).root
        if record.caller != visitor.caller:
            # Its journal says only what happens in it, and is the same whoever lets it continue.
            logger.info("run %s of %s: resumed on the page by %s", run.id, person_of(record.caller), visitor.name)
        self._site.front.running.publish_when_done(run)
        return self._site.back(request, f"{PREFIX}/runs/{run.id}", "The run continues here.")

    async def fork(self, request: Request) -> Response:
        """Continue from a point of a run in a new one, with other input or another solution.

        Raises:
            ForkError: the run belongs to somebody else. Its calls would run in that person's name.
        """
        record, visitor = self._site.record(request, request.path_params["run"]), visitor_of(request)
        if record.caller != visitor.caller:
            raise ForkError(f"run {record.id} belongs to {person_of(record.caller)}, who alone forks it")
        form = form_of(request)
        at, given, solution = number_of(form.get("at")), form.get("input").strip(), form.get("solution").strip()
        if at is None:
            raise ArgumentError(f"after event: expected the number of an event, found {form.get('at')[:20]!r}")
        changes = decode(given, what="the input") if given else None
        if changes is not None and not isinstance(changes, dict):
            raise ArgumentError("the input: expected an object")
        complete = None if changes is None else {**input_of(self._bridge.store, record.id), **changes}
        other = decode(solution, what="the solution") if solution else None
        run = await self._bridge.fork(record.id, at, solution=other, input=complete, caller=visitor.caller)
        return self._site.back(request, f"{PREFIX}/runs/{run.id}", f"This run continues {record.id}.")

    # -- one call ----------------------------------------------------------------------------------------------

    async def call(self, request: Request) -> Response:
        """One call: as written and as resolved, its result or error, and what was decided about it."""
        record, number = self._site.record(request, request.path_params["run"]), _number_in(request, "call")
        async with self._site.histories.reading(record.id, fold=True) as read:
            history, trace = read.history, read.trace
            assert history is not None
            progress, bar = _found(record, history, trace, number)
            about = call_json(number, progress)
            machine = history.machine
            # A thread walks through the result, which may have very many small values.
            value = await compute_in_thread(without_payloads, about.get("value"))
            sent = await compute_in_thread(without_payloads, (progress.error or {}).get("sent"))
            images = await compute_in_thread(_images, _answered(about))
            events = [one for one in history.entries if getattr(one.event, "call", None) == number]
            waits = [
                (one, machine.history[one].call.name, why)
                for one, why in sorted(awaited(progress).items())
                if one < len(machine.history)
            ]
            read_by = [one.call.index for one in machine.history if number in suppliers(one)][:100]
            rooms = [one for one in self._bridge.store.runs.rooms(record.id) if call_of_room(one.id)[0] == number]
            return self._site.page(
                request,
                "call.html",
                record=record,
                number=number,
                bar=bar,
                module=module_of(bar, trace),
                status=progress.status.value,
                written=bar.call,
                resolved=about.get("parameters"),
                value=value,
                has_value="value" in about,
                error=progress.error,
                sent=sent,
                images=range(len(images)),
                events=events,
                begun=trace.begun,
                waits=waits,
                read_by=read_by,
                why=why_waited(progress, bar, trace, machine),
                assumed=progress.doubts.assumed,
                tool=progress.tool,
                rooms=rooms,
                fork_at=next((one.number for one in reversed(events)), 1),
            )

    async def result(self, request: Request) -> Response:
        """The whole result of a call, as a file."""
        record, number = self._site.record(request, request.path_params["run"]), _number_in(request, "call")
        async with self._site.histories.reading(record.id, fold=True) as read:
            assert read.history is not None
            progress, _ = _found(record, read.history, read.trace, number)
            value = call_json(number, progress).get("value")
            text = await compute_in_thread(text_of, value)
        kind = "txt" if isinstance(value, str) else "json"
        name = f"{record.id}-{number}.{kind}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type="text/plain; charset=utf-8", headers=headers)

    async def image(self, request: Request) -> Response:
        """An image in the result of a call."""
        record, number = self._site.record(request, request.path_params["run"]), _number_in(request, "call")
        async with self._site.histories.reading(record.id, fold=True) as read:
            assert read.history is not None
            progress, _ = _found(record, read.history, read.trace, number)
            found = await compute_in_thread(_images, _answered(call_json(number, progress)))
        place = _number_in(request, "image")
        if place >= len(found):
            raise UnknownRunError(f"call {number} of {record.id} has no image {place}")
        return Response(found[place].data, media_type=found[place].kind)


def _rows(store: Store, status: str, caller: Viewer, chosen: RunFilter, after: str | None) -> list[RunRow]:
    """The runs of a page, and one more if there is one."""
    # Only its process shows whether a run stored as running is interrupted.
    stored = [] if not status else ["running", "interrupted"] if status == "interrupted" else [status]
    found: list[RunRow] = []
    while True:
        limit = PAGE + 1 if not status else _SCANNED
        page = store.runs.newest(caller, stored, limit=limit, after=after, rooms=False, chosen=chosen)
        found += [row for row in map(_row, page) if not status or row.status == status]
        if len(found) > PAGE or len(page) < limit:
            return found[: PAGE + 1]
        after = page[-1].id


def _row(record: RunRecord) -> RunRow:
    from datetime import datetime

    status, reason = run_status(record)
    began, changed = datetime.fromisoformat(record.created), datetime.fromisoformat(record.updated or record.created)
    seconds = (changed - began).total_seconds() if status in _ENDED else None
    return RunRow(record, status, reason, errors_of(record), seconds)


def _callers(store: Store, visitor: Visitor) -> list[str]:
    """The callers whose runs a visitor may choose; empty if only its own."""
    if not visitor.manages:
        return []
    return [LOCAL_USER, *(user.caller for user in store.users.all())]


def _number_in(request: Request, name: str) -> int:
    """A number in the path of a run.

    Raises:
        UnknownRunError: it is none.
    """
    run, text = request.path_params["run"], request.path_params[name]
    number = number_of(text)
    if number is None:
        raise UnknownRunError(f"run {run} has no {name} {text[:20]!r}")
    return number


def _found(record: RunRecord, history: RunHistory, trace: Trace, number: int) -> tuple[Progress, CallBar]:
    listed = history.machine.history
    if number >= min(len(listed), len(trace.bars)):
        raise UnknownRunError(f"run {record.id} has no call {number}")
    return listed[number], trace.bars[number]


def _answered(about: JSONObject) -> JSON:
    """The value of a call (`call_json`), or else what its tool sent although it failed."""
    error = about.get("error")
    return error.get("sent") if isinstance(error, dict) else about.get("value")


@dataclass(frozen=True, slots=True)
class Image:
    """An image block in a result; `kind` is its MIME type."""

    kind: str
    data: bytes


def _images(value: JSON) -> list[Image]:
    """The image blocks in a result, in their order, without damaged ones."""
    found: list[Image] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += reversed(part)
        if not isinstance(part, dict):
            continue
        kind, data = part.get("mimeType"), part.get("data")
        if part.get("type") != "image" or kind not in _IMAGES or not isinstance(data, str):
            waiting += reversed(part.values())
            continue
        with contextlib.suppress(ValueError):
            found.append(Image(str(kind), base64.b64decode(data, validate=True)))
    return found


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a program; `marks` are (tool, times called, a call's number) of the calls that stand in it."""

    number: int
    text: str
    marks: list[tuple[str, int, int]]


def _marked(trace: Trace) -> list[SourceLine]:
    """The source of the last program. A call belongs to the lines in which the name of its tool is called."""
    lines = trace.program.rstrip().split("\n")
    places: dict[int, set[str]] = {}
    try:
        tree = ast.parse(trace.program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            places.setdefault(node.lineno, set()).add(str(name))
    made: dict[str, list[int]] = {}
    for bar in trace.bars:
        made.setdefault(bar.name, []).append(bar.number)
    return [
        SourceLine(
            number,
            text,
            [(name, len(made[name]), made[name][0]) for name in sorted(places.get(number, ())) if name in made],
        )
        for number, text in enumerate(lines, 1)
    ]
