"""Home: shows what waits for the visitor, the running runs, the state of the servers, and the last
week.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.store.daily_use import DayOfUse
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.server.ui.access import Visitor, visitor_of
from ideabridge.server.ui.connecting import ClientEntries, ClientEntry
from ideabridge.server.ui.playground import EXAMPLE_PLAN
from ideabridge.server.ui.site import Site
from ideabridge.server.views.records import listed_runs, run_status
from ideabridge.tools.threads import compute_in_thread

_DAYS: Final = 7
_SHOWN_RUNS: Final = 5
_SHOWN_SERVERS: Final = 12
_SHOWN_TOOLS: Final = 5
_SHOWN_SUGGESTIONS: Final = 3

_BAR_WIDTH: Final = 16
_BAR_GAP: Final = 6
_CHART_HEIGHT: Final = 48


@dataclass(frozen=True, slots=True)
class DayBar:
    """One day of a chart. Lengths are in the units of the drawing.

    Attributes:
        x: the left edge.
        height: the height of the whole bar.
        failed: the height of its lower part, for what failed.
        day: the first letters of the day.
        title: the day and its numbers.
    """

    x: int
    height: float
    failed: float
    day: str
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with one bar for each day of the week.

    Attributes:
        name: what it counts.
        total: the sum over all days.
        failed: the number of those that failed.
        bars: one bar for each day, in order.
        width: the width of the drawing.
        height: the height of the drawing.
        bar: the width of a bar.
    """

    name: str
    total: int
    failed: int
    bars: tuple[DayBar, ...]
    width: int = _DAYS * (_BAR_WIDTH + _BAR_GAP) - _BAR_GAP
    height: int = _CHART_HEIGHT
    bar: int = _BAR_WIDTH


class HomePage:
    """The first page."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge
        self._connections = ClientEntries(site)

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [Route("/home", self.show), Route("/home/suggestions", self.suggestions)]

    async def show(self, request: Request) -> Response:
        """Show the home page, or how to begin if nothing has run yet."""
        visitor = visitor_of(request)
        last = datetime.now(UTC).date()
        first = last - timedelta(days=_DAYS - 1)
        store = self._bridge.store
        days, tools = await compute_in_thread(self._used, first, last, visitor)
        waiting = self._newest(visitor, "needs_approval")
        running = self._newest(visitor, "running")
        latest = store.runs.newest(visitor.scope, limit=_SHOWN_RUNS, rooms=False)
        is_new = not latest and not any(day.direct_calls for day in days)
        servers = self._site.servers(visitor)
        connections: list[ClientEntry] = []
        if is_new and self._site.workspace is None:
            connections = await anyio.to_thread.run_sync(self._connections.all, visitor)

        return self._site.page(
            request,
            "home.html",
            unused_files=self._site.unused_files(visitor),
            is_new=is_new,
            connections=connections,
            example=EXAMPLE_PLAN,
            waiting_runs=_with_status(waiting),
            running=_with_status(running),
            latest=_with_status(latest),
            servers=servers[:_SHOWN_SERVERS],
            more_servers=len(servers) - _SHOWN_SERVERS,
            charts=charts_of(days),
            tools=tools,
        )

    async def suggestions(self, request: Request) -> Response:
        """Show the tools that the visitor's repeated work suggests. The home page loads this after
        it is shown, because finding them can take seconds.
        """
        caller = visitor_of(request).caller
        suggest = partial(self._bridge.suggest, limit=_SHOWN_SUGGESTIONS, caller=caller)
        suggestions = await compute_in_thread(suggest)
        return self._site.page(request, "home_suggestions.html", suggestions=suggestions)

    def _newest(self, visitor: Visitor, status: str) -> list[RunRecord]:
        """Return the newest runs with a status, without rooms."""
        store = self._bridge.store
        if status == "running":
            # This leaves out runs whose process has died.
            return listed_runs(store, visitor.scope, _SHOWN_RUNS, status="running")
        return store.runs.newest(visitor.scope, status, limit=_SHOWN_RUNS, rooms=False)

    def _used(
        self, first: date, last: date, visitor: Visitor
    ) -> tuple[list[DayOfUse], list[tuple[str, int]]]:
        """Return what was used on each day, and the names of the tools used most, with how often
        each was used. This runs in a thread, because it might have to index ideas first.
        """
        store = self._bridge.store
        store.ideas.index_all()
        days = store.daily_use.days(first, last, caller=visitor.scope)
        used = store.daily_use.most_used(first, _SHOWN_TOOLS, caller=visitor.scope)
        return days, [(tool.tool, tool.times) for tool in used]


def _with_status(records: list[RunRecord]) -> list[tuple[RunRecord, str]]:
    """Return runs with their statuses. The record of an interrupted run says `running`."""
    return [(record, run_status(record)[0]) for record in records]


def charts_of(days: list[DayOfUse]) -> list[Chart]:
    """Return the charts of some days: runs, direct calls, and the tokens of models if any model has
    reported some. An assistant does not say what it spends, so there is nothing to say without.
    """
    charts = [
        _chart("runs", days, [day.runs for day in days], [day.failed_runs for day in days]),
        _chart(
            "direct calls",
            days,
            [day.direct_calls for day in days],
            [day.failed_direct_calls for day in days],
        ),
    ]
    if any(day.tokens for day in days):
        tokens = [day.tokens for day in days]
        charts.append(_chart("tokens of models", days, tokens, [0] * len(days)))
    return charts


def _chart(name: str, days: list[DayOfUse], counts: list[int], failures: list[int]) -> Chart:
    most = max(counts, default=0)
    bars: list[DayBar] = []
    for place, (day, count, failed) in enumerate(zip(days, counts, failures, strict=True)):
        scale = _CHART_HEIGHT / most if most else 0.0
        title = f"{day.day:%A, %-d %B}: {count:,} {name}"
        if failed:
            title += f", {failed:,} failed"
        x = place * (_BAR_WIDTH + _BAR_GAP)
        bars.append(
            DayBar(x, round(count * scale, 1), round(failed * scale, 1), f"{day.day:%a}"[:2], title)
        )

    return Chart(name, sum(counts), sum(failures), tuple(bars))
