"""The pages that show the list of runs, one run with its timeline, and one call."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Final, cast, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ideabridge.bridge.errors import ForkError
from ideabridge.bridge.loop.event import LOCAL_USER
from ideabridge.bridge.reading import are_small, read_beside
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.run_filter import Outcome, RunFilter
from ideabridge.bridge.store.run_record import ENDED, RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import person_of, sees_run_of
from ideabridge.server.ui import run_pages
from ideabridge.server.ui.access import Visitor, form_of, visitor_of
from ideabridge.server.ui.approvals import MOST, MOST_CARDS, cards_of, oldest_first
from ideabridge.server.ui.askers import THIS_PAGE, AskingProgram, names_given_by
from ideabridge.server.ui.call_values import earlier_call
from ideabridge.server.ui.forms import number_from
from ideabridge.server.ui.last_days import first_of_last_days
from ideabridge.server.ui.rendering import render
from ideabridge.server.ui.run_comparison import (
    MOST_OFFERED,
    ComparedRun,
    compared_in_worker,
    compared_run,
    comparison_of,
)
from ideabridge.server.ui.run_pages import About
from ideabridge.server.ui.run_rows import RunRows
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.server.views.pending import Pending
from ideabridge.server.views.records import (
    ListedStatus,
    input_of,
    listed_runs,
    run_status,
    shown_outcome,
)
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import ArgumentError
from ideabridge.tools.threads import compute_in_thread

logger = logging.getLogger(__name__)

PAGE: Final = 50
"""Number of runs on a page."""

_OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
"""The values of the status filter that do not stand for a stored status: a row shows that a run
failed, or that its calls were denied, although the run itself may be done.
"""

_STATUSES: Final[tuple[ListedStatus, ...]] = tuple(
    status for status in get_args(ListedStatus) if status not in _OUTCOMES
)
"""The values of the status filter that stand for a stored status."""

_ANY_FAILURE: Final = "any_failure"
"""The value of the status filter for runs that failed in any way, including those that are done
with errors.
"""

_LABELS: Final = {
    "status": "Status",
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "since": "Since",
    "until": "Before",
    "words": "Title",
}
"""The labels of the filters, keyed by their names in the URL."""

_MOST_COUNTED: Final = 1000
"""Number of the newest runs that are counted for the numbers next to the quick links."""

_MOST_OPEN: Final = 100
"""Maximum number of running runs, and of runs that need approval, that are counted."""


_CUSTOM: Final = "custom"
"""The choice of a time span between two days, for which the page shows fields."""

_TIMES: Final = {
    "1h": "Last hour",
    "today": "Today",
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    _CUSTOM: "Custom",
}
"""The labels of the time choices."""


@dataclass(frozen=True, slots=True)
class ActiveFilter:
    """A filter of the list of runs, shown as a link that removes it.

    Attributes:
        label, value: what the filter is about, and the value that it requires.
        query: the query for the list without this filter.
    """

    label: str
    value: str
    query: str


@dataclass(frozen=True, slots=True)
class QuickLink:
    """A link above the list of runs.

    Attributes:
        label: the text of the link.
        query: the query for the linked list, or "" for all runs.
        count: the number of runs in the linked list.
        is_least: whether there may be more runs than `count`, because only the newest runs were
            counted.
        is_current: whether the page shows this list.
        nothing: the text to show if the list is empty, or "" if this text depends only on whether
            anything has run.
    """

    label: str
    query: str
    count: int
    is_least: bool
    is_current: bool
    nothing: str = ""


@dataclass(frozen=True, slots=True)
class OpenCards:
    """A run's open decisions as its page shows them.

    Attributes:
        text: the HTML of the first decisions.
        later: how many further decisions do not fit on the page.
    """

    text: str = ""
    later: int = 0


class RunPages:
    """The pages about runs."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge
        self._rows = RunRows(site.bridge)

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/runs", self.list),
            Route("/runs/direct", self.direct),
            Route("/runs/{run}", self.show),
            Route("/runs/{run}/picture.svg", self.picture),
            Route("/runs/{run}/output", self.output),
            Route("/runs/{run}/images/{image}", self.output_image),
            Route("/runs/{run}/compare", self.compare),
            Route("/runs/{run}/calls/{call}", self.call),
            Route("/runs/{run}/calls/{call}/result", self.result),
            Route("/runs/{run}/calls/{call}/images/{image}", self.image),
            Route("/runs/{run}/cancel", changing(self.cancel), methods=["POST"]),
            Route("/runs/{run}/resume", changing(self.resume), methods=["POST"]),
            Route("/runs/{run}/fork", changing(self.fork), methods=["POST"]),
        ]

    # -- the list ----------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        """Show the runs, newest first."""
        query = _with_times(dict(request.query_params))
        visitor = visitor_of(request)
        store = self._bridge.store
        names = ("tool", "since", "until", "words")
        conditions = {name: query.get(name, "").strip() for name in names}
        status = query.get("status", "")
        user = query.get("user", "")
        asker = query.get("assistant", "")
        after = query.get("after") or None

        select = partial(
            listed_runs,
            store,
            user if user and visitor.manages else visitor.scope,
            status=next((listed for listed in _STATUSES if listed == status), None),
            chosen=RunFilter(
                tool=conditions["tool"] or None,
                since=conditions["since"] or None,
                until=conditions["until"] or None,
                words=conditions["words"] or None,
                askers=names_given_by(asker) if asker else (),
                outcome=next((outcome for outcome in _OUTCOMES if outcome == status), None),
                failed=status == _ANY_FAILURE,
            ),
        )
        # Read one more run than the page shows, to find out whether there is an older page.
        records = select(limit=PAGE + 1, after=after)
        following = records[PAGE - 1].id if len(records) > PAGE else None
        filters = {key: value for key, value in query.items() if key != "after" and value}
        matches = 0
        if filters:
            counted = await compute_in_thread(partial(select, limit=_MOST_COUNTED))
            matches = len(counted)

        # A filter does not change the names of runs.
        newest = listed_runs(store, visitor.scope, PAGE)
        rows = await compute_in_thread(self._rows.of, records[:PAGE], newest)
        askers = await compute_in_thread(self._askers, visitor)
        return self._site.page(
            request,
            "runs.html",
            rows=rows,
            statuses=(*_STATUSES, *_OUTCOMES),
            any_failure=_ANY_FAILURE,
            quick_links=await compute_in_thread(self._quick_links, filters, visitor),
            asked={**conditions, "status": status, "user": user, "assistant": asker},
            askers=sorted({*askers, asker} - {""}, key=str.lower),
            callers=_callers(store, visitor),
            times=_TIMES,
            when=_chosen_time(conditions["since"], conditions["until"]),
            active=_active_filters(filters),
            shows_askers=len(askers) > 1 or len({_asked_by(row.record) for row in rows}) > 1,
            filtered=bool(filters),
            matches=matches,
            are_more=matches == _MOST_COUNTED,
            newest=f"?{urlencode(filters)}" if after else "",
            older=f"?{urlencode({**filters, 'after': following})}" if following else "",
        )

    def _askers(self, visitor: Visitor) -> set[str]:
        """Return the names of the programs that asked for the newest runs that a visitor can
        see.
        """
        store = self._bridge.store
        clients = store.daily_use.askers(_MOST_COUNTED, caller=visitor.scope)
        askers = [AskingProgram.of(client) for client in clients]
        return {asker.name for asker in askers if asker is not None}

    def _quick_links(self, filters: dict[str, str], visitor: Visitor) -> list[QuickLink]:
        """Return the links above the list, each with the number of runs in the linked list.
        `filters` is the query of the page.
        """
        store = self._bridge.store
        scope = visitor.scope
        today = _today()
        total = store.daily_use.newest_runs(scope, RunFilter(), _MOST_COUNTED)
        failed = store.daily_use.newest_runs(scope, RunFilter(failed=True), _MOST_COUNTED)
        week = {"since": first_of_last_days().isoformat()}
        begun_this_week = store.daily_use.newest_runs(
            scope, RunFilter(since=week["since"]), _MOST_COUNTED
        )
        begun_today = store.daily_use.newest_runs(scope, RunFilter(since=today), _MOST_COUNTED)
        running = len(listed_runs(store, scope, _MOST_OPEN, status="running"))
        waiting = self._site.waiting(visitor)
        are_more = total == _MOST_COUNTED

        def link(
            label: str, query: dict[str, str], count: int, nothing: str = "", *, is_least: bool
        ) -> QuickLink:
            text = f"?{urlencode(query)}" if query else ""
            return QuickLink(label, text, count, is_least, filters == query, nothing)

        return [
            link("All", {}, total, is_least=are_more),
            link(
                "Today",
                {"since": today},
                begun_today,
                "No run has begun today.",
                is_least=begun_today == _MOST_COUNTED,
            ),
            link(
                "Last 7 days",
                week,
                begun_this_week,
                "No run has begun in the last 7 days.",
                is_least=begun_this_week == _MOST_COUNTED,
            ),
            link(
                "Running",
                {"status": "running"},
                running,
                "Nothing is running.",
                is_least=running == _MOST_OPEN,
            ),
            link(
                "Needs approval",
                {"status": "needs_approval"},
                waiting,
                "Nothing needs approval.",
                is_least=waiting == _MOST_OPEN,
            ),
            link(
                "Failed",
                {"status": _ANY_FAILURE},
                failed,
                "Nothing failed.",
                is_least=are_more,
            ),
        ]

    async def direct(self, request: Request) -> Response:
        """Show the direct calls of exposed tools, newest first."""
        visitor = visitor_of(request)
        after = request.query_params.get("after") or None
        page = self._bridge.store.direct_calls.page(PAGE, after, caller=visitor.scope)
        older = f"?{urlencode({'after': page.next})}" if page.next else ""
        return self._site.page(
            request,
            "direct.html",
            calls=page.items,
            older=older,
            exposes=bool(self._bridge.configuration.expose),
        )

    # -- one run -----------------------------------------------------------------------------------

    async def show(self, request: Request) -> Response:
        """Show one run: its timeline, calls, decisions, state and events. With `?at=N`, show the
        run as of event N.
        """
        record = self._site.record(request, request.path_params["run"])
        titles = self._site.titles(visitor_of(request))
        at = number_from(request.query_params.get("at", "")) or 0
        waits = record.status in ("needs_approval", "needs_solution")
        about = self._about(request, record)
        cards = OpenCards()
        if not 0 < at < record.last_event:
            # Release this journal before making the cards. A card reads the journals of other runs,
            # and whoever is reading one of those might be waiting for this one.
            cards = await self._cards(request, await self._decisions(record))

        async with self._site.histories.reading(record.id, fold=waits) as read:
            last = about.last = read.trace.last
            about.at = at if 0 < at < last else last
            is_folded = read.history is not None and about.at == last

            # Make the page of a large run from its trace.
            if is_folded or (about.at == last and not waits and not read.is_small):
                values = await compute_in_thread(
                    run_pages.run_values, self._bridge.store, record, read, about, titles
                )
                return self._site.page(request, "run.html", cards=cards, **values)

        return await self._page_of(
            request, run_pages.run_page, record, about.to_json(), cards=cards
        )

    def _about(self, request: Request, record: RunRecord) -> About:
        query = request.query_params
        status, reason = shown_outcome(record)
        return About(
            status=status,
            reason=reason,
            calls=number_from(query.get("calls", "")) or 0,
            events=number_from(query.get("events", "")),
            only_status=query.get("is", ""),
            only_tool=query.get("tool", ""),
            draws_all=query.get("graph", "") == "all",
            is_own=sees_run_of(visitor_of(request).caller, record.caller),
            ui=self._site.prefix,
            tool=self._tool_of(record, visitor_of(request)),
        )

    def _tool_of(self, record: RunRecord, visitor: Visitor) -> str:
        """Return a published tool that was called with a run or made from it, or "" if the visitor
        can see no such tool.
        """
        called = self._rows.tool_of(record, visitor)
        if called:
            return called

        store = self._bridge.store
        names = [name for idea in store.ideas.of_run(record.id) for name in idea.names]
        scope = visitor.scope
        return next((name for name in names if store.publications.find(name, None, scope)), "")

    async def _page_of(
        self,
        request: Request,
        work: Callable[..., str],
        record: RunRecord,
        *arguments: JSON,
        cards: OpenCards | None = None,
    ) -> Response:
        """Return the page that `work` creates from a run's journal; see `_read`."""
        frame = self._site.frame(request)
        titles = self._site.titles(visitor_of(request))
        if cards is not None:
            frame["cards"] = asdict(cards)

        text = await self._read(work, record, *arguments, frame, titles.to_json())
        return HTMLResponse(str(text))

    async def _read(self, work: Callable[..., JSON], record: RunRecord, *arguments: JSON) -> JSON:
        """Return the result of a function that reads the journal of a run. The function runs in a
        worker process if the journal is large.
        """
        store = self._bridge.store
        is_small = await compute_in_thread(are_small, store, [record.id])
        task = f"reading run {record.id}"
        return await read_beside(work, store, record.id, *arguments, is_small=is_small, what=task)

    async def _decisions(self, record: RunRecord) -> list[Pending]:
        """Return the open decisions of a run. A room's decisions are on the page of its run
        instead.
        """
        if run_status(record)[0] in ENDED or record.parent is not None:
            return []

        histories = self._site.histories
        waits = record.status in ("needs_approval", "needs_solution")
        async with histories.reading(record.id, fold=waits) as read:
            if read.history is not None:
                return await histories.pending(record, read.history)

        return await histories.pending(record) if waits else []

    async def _cards(self, request: Request, decisions: list[Pending]) -> OpenCards:
        """Return a run's open decisions as part of the run's page."""
        if not decisions:
            return OpenCards()

        visitor = visitor_of(request)
        titles = self._site.titles(visitor)
        path = request.url.path
        compared = [
            (pending, await earlier_call(self._site, pending))
            for pending in oldest_first(decisions)[:MOST_CARDS]
        ]
        waiting = await self._site.histories.all_pending(visitor.scope, MOST)

        def written() -> OpenCards:
            cards = cards_of(compared, visitor, waiting)
            text = render(
                "cards.html",
                cards=cards,
                ui=self._site.prefix,
                path=path,
                now=time.time(),
                visitor=visitor,
                titles=titles,
            )
            return OpenCards(text, len(decisions) - len(cards))

        # Use a thread, because a call can be large.
        return await compute_in_thread(written)

    async def picture(self, request: Request) -> Response:
        """Return the timeline's first calls as a separate image file."""
        record = self._site.record(request, request.path_params["run"])
        titles = self._site.titles(visitor_of(request))
        text: JSON = None
        async with self._site.histories.reading(record.id) as read:
            if read.history is not None or not read.is_small:
                text = await compute_in_thread(run_pages.picture_of, record, read, titles)

        if text is None:
            text = await self._read(run_pages.picture, record, titles.to_json())
        return Response(str(text), media_type="image/svg+xml")

    async def output(self, request: Request) -> Response:
        """Return the output of a run as a file."""
        record = self._site.record(request, request.path_params["run"])
        output: JSON = None
        async with self._site.histories.reading(record.id, fold=True) as read:
            if read.history is not None:
                output = await compute_in_thread(run_pages.output_file, record, read)

        if output is None:
            output = await self._read(run_pages.output, record)
        return _file(f"{record.id}-output", output)

    async def output_image(self, request: Request) -> Response:
        """Return an image from the output of a run."""
        record = self._site.record(request, request.path_params["run"])
        place = _number_in(request, "image")
        image: JSON = None
        async with self._site.histories.reading(record.id, fold=True) as read:
            if read.history is not None:
                image = await compute_in_thread(run_pages.output_image_of, record, read, place)

        if image is None:
            image = await self._read(run_pages.output_image, record, place)
        kind, data = cast("list[str]", image)
        return Response(base64.b64decode(data), media_type=kind)

    async def compare(self, request: Request) -> Response:
        """Show a run beside an earlier run, with the calls that differ and the output."""
        record = self._site.record(request, request.path_params["run"])
        earlier = await compute_in_thread(self._earlier_runs, record)
        chosen = request.query_params.get("with", "") or (earlier[0].id if earlier else "")
        comparison = None
        other = None
        if chosen:
            other = self._site.record(request, chosen)
            titles = self._site.titles(visitor_of(request))
            before = await self._compared(other, titles)
            now = await self._compared(record, titles)
            comparison = await compute_in_thread(comparison_of, before, now)

        shown = {run.id: run for run in (record, other, *earlier) if run is not None}
        distinctions = await compute_in_thread(self._rows.distinctions.of, shown.values())
        return await self._site.page_beside(
            request,
            "compare.html",
            record=record,
            other=other,
            earlier=earlier,
            comparison=comparison,
            distinctions=distinctions,
        )

    def _earlier_runs(self, record: RunRecord) -> list[RunRecord]:
        """Return earlier runs of the same owner with the same title, newest first."""
        runs = self._bridge.store.runs
        chosen = RunFilter(words=record.title or None)
        page = runs.newest(
            record.caller, ENDED, limit=MOST_OFFERED, after=record.id, rooms=False, chosen=chosen
        )
        return [run for run in page if run.title == record.title]

    async def _compared(self, record: RunRecord, titles: ToolTitles) -> ComparedRun:
        """Return the data for comparing a run."""
        compared: JSON = None
        async with self._site.histories.reading(record.id, fold=True) as read:
            if read.history is not None:
                return await compute_in_thread(compared_run, record, read, titles)

        compared = await self._read(compared_in_worker, record, titles.to_json())
        return ComparedRun.from_json(compared)

    async def cancel(self, request: Request) -> Response:
        """End a run."""
        record = self._site.record(request, request.path_params["run"])
        visitor = visitor_of(request)
        reason = "cancelled on the page"
        if not sees_run_of(visitor.caller, record.caller):
            reason = f"{reason} by {visitor.name}"

        run = await self._bridge.cancel(record.id.partition(".")[0], reason, caller=record.caller)
        return self._site.back(request, f"/runs/{record.id}", f"The run is {run.status}.")

    async def resume(self, request: Request) -> Response:
        """Resume a run whose process died."""
        record = self._site.record(request, request.path_params["run"])
        visitor = visitor_of(request)
        run = (await self._bridge.resume(record.id, caller=record.caller)).root
        if not sees_run_of(visitor.caller, record.caller):
            # Log who resumed the run, because the journal does not record it.
            logger.info(
                "run %s of %s: resumed on the page by %s",
                run.id,
                person_of(record.caller),
                visitor.name,
            )

        self._site.front.running.publish_when_done(run)
        return self._site.back(request, f"/runs/{run.id}", "The run continues here.")

    async def fork(self, request: Request) -> Response:
        """Start a new run that continues from a point in another run, with a different input or
        solution.

        Raises:
            ForkError: the run belongs to someone else, so the calls would run in that person's
                name.
        """
        record = self._site.record(request, request.path_params["run"])
        visitor = visitor_of(request)
        if not sees_run_of(visitor.caller, record.caller):
            raise ForkError(
                f"run {record.id} belongs to {person_of(record.caller)}; only the owner can fork it"
            )

        form = form_of(request)
        at = number_from(form.get("at"))
        if at is None:
            raise ArgumentError(
                f"after event: expected the number of an event, found {form.get('at')[:20]!r}"
            )

        changed_members = form.get("input").strip()
        complete_input: JSONObject | None = None
        if changed_members:
            changes = decode(changed_members, what="the input")
            if not isinstance(changes, dict):
                raise ArgumentError("the input: expected an object")
            complete_input = {**input_of(self._bridge.store, record.id), **changes}

        written_solution = form.get("solution").strip()
        solution: JSON = None
        if written_solution:
            solution = decode(written_solution, what="the solution")

        run = await self._bridge.fork(
            record.id, at, solution=solution, input=complete_input, caller=visitor.caller
        )
        return self._site.back(request, f"/runs/{run.id}", f"This run continues {record.id}.")

    # -- one call ----------------------------------------------------------------------------------

    async def call(self, request: Request) -> Response:
        """Show one call as written and as resolved, with its result or error and the decisions
        about it.
        """
        record = self._site.record(request, request.path_params["run"])
        number = _number_in(request, "call")
        async with self._site.histories.reading(record.id, fold=True) as read:
            if read.history is not None:
                values = await compute_in_thread(
                    run_pages.call_values,
                    self._bridge.store,
                    record,
                    read,
                    number,
                    self._site.prefix,
                    self._site.titles(visitor_of(request)),
                )
                return self._site.page(request, "call.html", **values)

        return await self._page_of(request, run_pages.call_page, record, number)

    async def result(self, request: Request) -> Response:
        """Return the result of a call as a file."""
        record = self._site.record(request, request.path_params["run"])
        number = _number_in(request, "call")
        result: JSON = None
        async with self._site.histories.reading(record.id, fold=True) as read:
            if read.history is not None:
                result = await compute_in_thread(run_pages.result_file, record, read, number)

        if result is None:
            result = await self._read(run_pages.result, record, number)
        return _file(f"{record.id}-{number}", result)

    async def image(self, request: Request) -> Response:
        """Return an image from the result of a call."""
        record = self._site.record(request, request.path_params["run"])
        number = _number_in(request, "call")
        place = _number_in(request, "image")
        image: JSON = None
        async with self._site.histories.reading(record.id, fold=True) as read:
            if read.history is not None:
                image = await compute_in_thread(run_pages.image_of, record, read, number, place)

        if image is None:
            image = await self._read(run_pages.image, record, number, place)
        kind, data = cast("list[str]", image)
        return Response(base64.b64decode(data), media_type=kind)


def _today() -> str:
    """Return the current date in UTC, in the format that `RunFilter` reads."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _with_times(query: dict[str, str]) -> dict[str, str]:
    """Return a page's query with `since` and `until` in place of the chosen time `when`. A query
    without `when` can contain `since` and `until` itself.
    """
    when = query.pop("when", None)
    if when is None or when == _CUSTOM:
        return query

    query.pop("since", None)
    query.pop("until", None)
    if when:
        query["since"] = _first_days().get(when, when)
    return query


def _first_days() -> dict[str, str]:
    """Return the first day of those choices of `_TIMES` that begin with a day."""
    return {"today": _today(), "7d": first_of_last_days().isoformat()}


def _chosen_time(since: str, until: str) -> str:
    """Return the choice that corresponds to two times: a key of `_TIMES`, "" for any time, or a
    custom time from the URL.
    """
    if not since and not until:
        return ""
    for choice, first in _first_days().items():
        if not until and since == first:
            return choice
    is_day = all(_is_day(time) for time in (since, until) if time)
    return _CUSTOM if until or is_day else since


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _active_filters(filters: dict[str, str]) -> list[ActiveFilter]:
    """Return the active filters of a list, with links that remove them."""
    active: list[ActiveFilter] = []
    for name, label in _LABELS.items():
        value = filters.get(name)
        if value is None:
            continue
        others = {key: text for key, text in filters.items() if key != name}
        query = f"?{urlencode(others)}" if others else ""
        active.append(ActiveFilter(label, _in_words(name, value), query))
    return active


def _in_words(name: str, value: str) -> str:
    """Return the value of a filter in words."""
    if name == "status" and value == _ANY_FAILURE:
        return "any failure"
    if name == "status":
        return value.replace("_", " ")
    if name == "user":
        return value.removeprefix("user:")
    if name == "since":
        choice = _chosen_time(value, "")
        return _TIMES[choice].lower() if choice in _TIMES and choice != _CUSTOM else value
    return value


def _asked_by(record: RunRecord) -> tuple[str, str]:
    """Return the caller and the name of the program that asked for a run."""
    program = AskingProgram.of_run(record)
    return record.caller, THIS_PAGE if program is None else program.name


def _callers(store: Store, visitor: Visitor) -> list[str]:
    """Return the callers among whose runs a visitor can choose. The list is empty if the visitor
    sees only their own runs.
    """
    if not visitor.manages:
        return []
    return [LOCAL_USER, *(user.caller for user in store.users.all())]


def _file(name: str, written: JSON) -> Response:
    """Return a response that downloads a file. `written` contains the suffix and the text."""
    suffix, text = cast("list[str]", written)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{suffix}"'}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


def _number_in(request: Request, name: str) -> int:
    """Parse a number from the path of a page about a run.

    Raises:
        UnknownRunError: the text is not a number.
    """
    run = request.path_params["run"]
    text = request.path_params[name]
    number = number_from(text)
    if number is None:
        raise UnknownRunError(f"run {run} has no {name} {text[:20]!r}")
    return number
