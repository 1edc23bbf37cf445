"""Show what is waiting for the visitor, the running runs, the state of the servers, and the past
week.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.store.daily_use import DayOfUse
from ideabridge.server.ui.access import Visitor, visitor_of
from ideabridge.server.ui.approvals import Card
from ideabridge.server.ui.call_values import ValueRow, earlier_call
from ideabridge.server.ui.connecting import Assistant, ClientEntries, ClientEntry, known_assistants
from ideabridge.server.ui.last_days import DAYS, first_of_last_days
from ideabridge.server.ui.playground import EXAMPLE_PLAN
from ideabridge.server.ui.run_rows import RunRows
from ideabridge.server.ui.runs import PAGE as PAGE_OF_RUNS
from ideabridge.server.ui.server_forms import has_servers_to_import
from ideabridge.server.ui.servers_by_state import ServersByState
from ideabridge.server.ui.sign_ins import servers_to_sign_in_to
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.suggested import SuggestedTool
from ideabridge.server.views.records import listed_runs
from ideabridge.server.views.shown import PAGE
from ideabridge.tools.names import counted
from ideabridge.tools.threads import compute_in_thread

_SHOWN_RUNS: Final = 8
_SHOWN_DECISIONS: Final = 5
_SHOWN_SERVERS: Final = 12
_SHOWN_TOOLS: Final = 5
_SHOWN_SUGGESTIONS: Final = 3

_CHART_HEIGHT: Final = 72
"""The height, in pixels, of the highest bar in a chart."""

_SHOWN_VALUES: Final = 3
_SHOWN_ASSISTANTS: Final = 4


@dataclass(frozen=True, slots=True)
class DayBar:
    """One day in a chart. All lengths are in pixels.

    Attributes:
        good: the height of the bar's upper part, which stands for the runs, calls or tokens that
            did not fail.
        failed: the height of the bar's lower part, which stands for the runs or calls that failed.
        title: the day and the numbers behind the bar.
        day: the abbreviated name of the day.
        count: the number of runs, calls or tokens, with few digits.
    """

    good: float
    failed: float
    title: str
    day: str
    count: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with one bar for each day.

    Attributes:
        counted: the total for all days, followed by what the chart counts.
        failed: how many of these failed.
        bars: one bar for each day, in order.
    """

    counted: str
    failed: int
    bars: tuple[DayBar, ...]


@dataclass(frozen=True, slots=True)
class ListedAsk:
    """A line about an open decision.

    Attributes:
        card: the decision.
        values: the values that the line shows: first those that differ from the other listed calls
            of its tool, then others. Short values come first, because lines that are too long are
            cut off.
        further: the number of values that the line does not show.
    """

    card: Card
    values: tuple[ValueRow, ...]
    further: int


class HomePage:
    """The home page."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge
        self._connections = ClientEntries(site)
        self._rows = RunRows(site.bridge)

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [Route("/home", self.show), Route("/home/suggestions", self.suggestions)]

    async def show(self, request: Request) -> Response:
        """Show the home page, or how to begin if nothing has run yet."""
        visitor = visitor_of(request)
        store = self._bridge.store
        days, tools = await compute_in_thread(self._used, first_of_last_days(), visitor)
        cards = await self._cards(visitor)
        # The page "Runs" lists these.
        newest = listed_runs(store, visitor.scope, PAGE_OF_RUNS)
        is_new = not newest and not any(day.direct_calls for day in days)
        servers = self._site.servers(visitor)
        connections: list[ClientEntry] = []
        if self._site.workspace is None:
            connections = await anyio.to_thread.run_sync(self._connections.all, visitor)

        assistants: list[Assistant] = []
        if not is_new:
            known = await compute_in_thread(known_assistants, store, visitor, connections)
            assistants = [one for one in known if one.group in ("connected", "seen")]

        has_imports = is_new and await anyio.to_thread.run_sync(
            has_servers_to_import, self._bridge.configuration, visitor
        )
        return self._site.page(
            request,
            "home.html",
            unused_files=self._site.unused_files(visitor),
            is_new=is_new,
            has_imports=has_imports,
            connections=connections,
            assistants=assistants[:_SHOWN_ASSISTANTS],
            example=EXAMPLE_PLAN,
            cards=told_apart(cards),
            rows=await compute_in_thread(self._rows.of, newest[:_SHOWN_RUNS], newest),
            servers=servers[:_SHOWN_SERVERS],
            more_servers=len(servers) - _SHOWN_SERVERS,
            by_state=ServersByState.of(servers),
            most_servers=_SHOWN_SERVERS,
            to_sign_in_to=servers_to_sign_in_to(self._bridge, visitor),
            charts=charts_of(days),
            tools=tools,
        )

    async def suggestions(self, request: Request) -> Response:
        """Show the tools that the visitor's repeated work suggests.

        The home page loads this part after it is shown, because finding suggestions can take
        seconds.
        """
        visitor = visitor_of(request)
        caller = visitor.caller
        suggest = partial(self._bridge.suggest, limit=_SHOWN_SUGGESTIONS, caller=caller)
        suggestions = await compute_in_thread(suggest)
        titles = self._site.titles(visitor)
        cards = [SuggestedTool.of(suggestion, titles) for suggestion in suggestions]
        return self._site.page(request, "home_suggestions.html", suggestions=cards)

    async def _cards(self, visitor: Visitor) -> list[Card]:
        """Return open decisions in the same order as on the approvals page."""
        decisions = await self._site.histories.all_pending(visitor.scope, _SHOWN_DECISIONS)
        oldest_first = sorted(decisions, key=lambda pending: pending.asked or 0)
        earlier = [await earlier_call(self._site, pending) for pending in oldest_first]

        def read() -> list[Card]:
            return [
                Card.of(pending, visitor, PAGE, before)
                for pending, before in zip(oldest_first, earlier, strict=True)
            ]

        # Use a thread, because calls can be large.
        return await compute_in_thread(read)

    def _used(self, first: date, visitor: Visitor) -> tuple[list[DayOfUse], list[tuple[str, int]]]:
        """Return the use on each day, and the names and use counts of the most used tools.

        Call this method in a thread, because it may have to index ideas first.
        """
        store = self._bridge.store
        store.ideas.index_all()
        last = first + timedelta(days=DAYS - 1)
        days = store.daily_use.days(first, last, caller=visitor.scope)
        used = store.daily_use.most_used(first, _SHOWN_TOOLS, caller=visitor.scope)
        return days, [(tool.tool, tool.times) for tool in used]


def told_apart(cards: Sequence[Card]) -> list[ListedAsk]:
    """Return a line for each open decision. Calls of the same tool often have values in common, so
    the values that differ come first.
    """
    asks: list[ListedAsk] = []
    for card in cards:
        others = [
            {(row.name, row.text) for row in other.values.rows}
            for other in cards
            if other is not card and (other.tool, other.server) == (card.tool, card.server)
        ]
        own = [row for row in card.values.rows if not row.is_place]
        if others:
            own.sort(key=lambda row: all((row.name, row.text) in other for other in others))
        shown = sorted(own[:_SHOWN_VALUES], key=lambda row: not row.is_brief)
        asks.append(ListedAsk(card, tuple(shown), max(0, len(own) - _SHOWN_VALUES)))
    return asks


def charts_of(days: list[DayOfUse]) -> list[Chart]:
    """Return the charts for the given days: runs, direct calls if there were any, and tokens if any
    model has reported some.

    Assistants do not report the tokens that they use, so there may be none to chart.
    """
    charts = [
        _chart("run", "", days, [day.runs for day in days], [day.failed_runs for day in days])
    ]
    if any(day.direct_calls for day in days):
        calls = [day.direct_calls for day in days]
        failed = [day.failed_direct_calls for day in days]
        charts.append(_chart("direct call", "", days, calls, failed))
    if any(day.tokens for day in days):
        tokens = [day.tokens for day in days]
        charts.append(_chart("token", " of models", days, tokens, [0] * len(days)))
    return charts


def _few_digits(number: int) -> str:
    """Return a number, shortened to fit above the bar of a chart."""
    if number < 10_000:
        return f"{number:,}"
    if number < 1_000_000:
        return f"{number // 1000:,}k"
    return f"{number / 1_000_000:,.1f}M"


def _chart(
    noun: str, of_what: str, days: list[DayOfUse], counts: list[int], failures: list[int]
) -> Chart:
    scale = _CHART_HEIGHT / max(1, *counts)
    bars: list[DayBar] = []
    for day, count, failed in zip(days, counts, failures, strict=True):
        title = f"{day.day:%A, %-d %B}: {counted(count, noun)}{of_what}"
        if failed:
            title += f", {failed:,} failed"
        bars.append(
            DayBar(
                good=round((count - failed) * scale, 1),
                failed=round(failed * scale, 1),
                title=title,
                day=f"{day.day:%a}",
                count=_few_digits(count),
            )
        )

    return Chart(
        counted=f"{counted(sum(counts), noun)}{of_what}",
        failed=sum(failures),
        bars=tuple(bars),
    )
