"""Timeline: the calls of a run as rows with bars, and why each call waited."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from typing import Final

from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.server.ui.showing import duration
from ideabridge.server.views.trace import CallBar, Trace, module_of

ROWS: Final = 100
"""Rows of a page."""

_NARROWEST: Final = 0.4
"""Per cent of the width: a shorter bar would not be seen."""

_BUCKETS: Final = 160
_IDLE: Final = 0.12
"""A long stretch in which nothing ran is drawn as this part of the time in which
something ran, ..."""

_LEAST_IDLE: Final = 0.01
_LONG_IDLE: Final = 2.0
"""... if it is so many times longer than that. `_LEAST_IDLE` is in seconds."""

_MOST_BREAKS: Final = 20
"""Stretches that are drawn shorter: each row has a mark for each of them."""

_NOTICED: Final = 0.001
"""Seconds: a shorter wait is not explained."""


@dataclass(frozen=True, slots=True)
class Row:
    """One call, or one answer of the mind.

    Attributes:
        number: the call; -1 for an answer of the mind.
        left, width: the bar of its execution, in per cent of the run; None before it starts.
        asked: the bar of the time from the first question about it to the last decision.
        waited: the bar of the time from its listing to its start.
        took: seconds that it ran.
        why: why it waited.
    """

    number: int
    name: str
    module: str
    instance: str
    status: str
    left: float | None
    width: float
    asked: tuple[float, float] | None
    waited: tuple[float, float] | None
    took: float | None
    items: int
    error: str
    why: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows of a run, of which one page is shown.

    Attributes:
        first: the place of the first row among those that were chosen.
        total: how many were chosen.
        most: the most calls that ran at the same time.
        density: for a run with more than one page, how many calls ran in each part of its time, as
            (x, height) in per cent.
        seconds: the time that the run took so far.
        ticks: the texts of the marks on the axis, at equal distances.
        breaks: (left, width, seconds) in per cent of each stretch in which nothing ran, and which
            is drawn shorter.
    """

    rows: list[Row]
    first: int
    total: int
    most: int
    density: list[tuple[float, float]]
    seconds: float
    ticks: list[str]
    breaks: list[tuple[float, float, float]]


def timeline(
    trace: Trace,
    machine: Machine | None,
    *,
    first: int = 0,
    status: str = "",
    tool: str = "",
    now: float | None = None,
    is_left: bool = False,
) -> Timeline:
    """The rows of a run.

    Args:
        trace: its journal.
        machine: the folded journal, which knows why calls waited, and the exact status of those
            that never started.
        first: the first row of the page.
        status: only rows with this status.
        tool: only rows of this tool.
        now: the end of what still runs; None: the present time.
        is_left: no process is at work on the run, so nothing of it runs any more.
    """
    end = trace.ended or now or time.time()
    begun = end if trace.begun is None else trace.begun
    last = max(
        (bar.finished or bar.started or 0.0 for bar in (*trace.bars, *trace.minds)), default=0.0
    )
    end = max(end, last)
    ran = _ran(trace.bars, end)
    answered = _ran(trace.minds, end) if trace.mind else []
    axis = _Axis.of([*ran, *answered], begun, end)
    place = axis.place

    def bar_between(start: float | None, finish: float | None) -> tuple[float, float] | None:
        if start is None or finish is None or finish - start < _NOTICED:
            return None
        return place(start), max(_NARROWEST, place(finish) - place(start))

    def row(bar: CallBar) -> Row:
        left = None if bar.started is None else min(place(bar.started), 100 - _NARROWEST)
        finish = bar.finished if bar.finished is not None else end
        if machine is not None and 0 <= bar.number < len(machine.history):
            progress = machine.history[bar.number]
        else:
            progress = None

        instance = bar.call.get("_instance")
        return Row(
            bar.number,
            bar.name,
            module_of(bar, trace),
            instance if isinstance(instance, str) else "",
            "interrupted" if is_left and bar.status == "running" else _status(bar, progress),
            left,
            0.0 if left is None else max(_NARROWEST, place(finish) - left),
            bar_between(bar.asked, bar.decided if bar.decided is not None else bar.finished or end),
            bar_between(bar.listed, bar.started),
            None if bar.started is None else finish - bar.started,
            bar.items,
            bar.error or _error(progress),
            ""
            if progress is None or machine is None
            else why_waited(progress, bar, trace, machine),
        )

    if trace.minds:
        every = sorted((*trace.minds, *trace.bars), key=lambda bar: bar.event)
    else:
        every = trace.bars

    chosen = [
        bar
        for bar in every
        if (not status or bar.status == status) and (not tool or bar.name == tool)
    ]
    most, density = _density(ran, axis)
    shown = [row(bar) for bar in chosen[first : first + ROWS]]
    density = density if len(chosen) > ROWS else []
    return Timeline(
        shown, first, len(chosen), most, density, end - begun, axis.ticks(), axis.breaks()
    )


def _ran(bars: Iterable[CallBar], end: float) -> list[tuple[float, float]]:
    """When each bar began and ended; one that runs ends at `end`."""
    return [
        (bar.started, end if bar.finished is None else bar.finished)
        for bar in bars
        if bar.started is not None
    ]


def _status(bar: CallBar, progress: Progress | None) -> str:
    if progress is not None and bar.status in ("waiting", "not run", "done", "failed"):
        if bar.status == "failed" and progress.status is CallStatus.CAUGHT:
            return "caught"
        if bar.status in ("waiting", "not run") and progress.settled:
            return progress.status.value
    return bar.status


def _error(progress: Progress | None) -> str:
    if progress is None or progress.error is None:
        return ""
    return str(progress.error.get("message", ""))


def _length(stretch: tuple[float, float]) -> float:
    return stretch[1] - stretch[0]


class _Axis:
    """The axis of time. A run may wait for a person for hours: a long stretch in which nothing ran
    is drawn shorter.

    `points` are (seconds since 1970, per cent) of the ends of the stretches; between two of
    them time is even.
    """

    def __init__(self, points: list[tuple[float, float]], idle: list[tuple[float, float]]) -> None:
        self._points = points
        self._times = [at for at, _ in points]
        self._idle = idle

    @classmethod
    def of(cls, ran: Iterable[tuple[float, float]], begun: float, end: float) -> _Axis:
        """The axis of a run from its beginning to its end, in which something ran at these
        times.
        """
        busy = sorted(ran)
        gaps: list[tuple[float, float]] = []
        reached = begun
        for start, finish in busy:
            if start > reached:
                gaps.append((reached, start))
            reached = max(reached, finish)

        if end > reached:
            gaps.append((reached, end))

        idle_seconds = sum(finish - start for start, finish in gaps)
        work = end - begun - idle_seconds
        shown = max(_IDLE * work, _LEAST_IDLE)
        idle: list[tuple[float, float]] = []
        if work > 0:
            long = [gap for gap in gaps if _length(gap) > _LONG_IDLE * shown]
            idle = sorted(nlargest(_MOST_BREAKS, long, key=_length))

        points = [(begun, 0.0)]
        place = 0.0
        before = begun
        for start, finish in idle:
            place += start - before
            points.append((start, place))
            place += shown
            points.append((finish, place))
            before = finish

        place += end - before
        points.append((max(end, before + 1e-6), max(place, 1e-6)))
        whole = points[-1][1]
        return cls([(at, value / whole * 100) for at, value in points], idle)

    def place(self, at: float) -> float:
        """The place of a time, in per cent."""
        number = min(max(1, bisect_right(self._times, at)), len(self._points) - 1)
        start, left = self._points[number - 1]
        finish, right = self._points[number]
        part = (at - start) / (finish - start) if finish > start else 0.0
        return min(100.0, max(0.0, left + part * (right - left)))

    def time(self, place: float) -> float:
        """The time at a place."""
        for (start, left), (finish, right) in pairwise(self._points):
            if place <= right:
                return start + (finish - start) * (
                    (place - left) / (right - left) if right > left else 0.0
                )
        return self._points[-1][0]

    def ticks(self) -> list[str]:
        """The times at five equal distances, since the beginning."""
        begun = self._points[0][0]
        return [duration(self.time(part * 25.0) - begun) for part in range(5)]

    def breaks(self) -> list[tuple[float, float, float]]:
        """(left, width, seconds) of the stretches that are drawn shorter."""
        return [
            (self.place(start), self.place(finish) - self.place(start), finish - start)
            for start, finish in self._idle
        ]


def _density(
    ran: Sequence[tuple[float, float]], axis: _Axis
) -> tuple[int, list[tuple[float, float]]]:
    """(the most calls that ran at once, how many ran in each part of the axis as (x,
    height) in per cent).
    """
    starts = sorted(start for start, _ in ran)
    ends = sorted(finish for _, finish in ran)
    edges = [axis.time(number * 100 / _BUCKETS) for number in range(_BUCKETS)]
    # What runs where a part begins, and then after each beginning of a call in it.
    highest = [bisect_right(starts, edge) - bisect_right(ends, edge) for edge in edges]
    bucket = ended = 0
    for number, start in enumerate(starts):
        while ended < len(ends) and ends[ended] <= start:
            # An end before a beginning at the same time: these two calls did not run at once.
            ended += 1

        while bucket + 1 < _BUCKETS and edges[bucket + 1] <= start:
            bucket += 1

        running = number + 1 - ended
        if running > highest[bucket]:
            highest[bucket] = running

    most = max(highest, default=0)
    tallest = max(1, most)
    return most, [
        (number * 100 / _BUCKETS, value / tallest * 100)
        for number, value in enumerate(highest)
        if value
    ]


def suppliers(progress: Progress) -> set[int]:
    """The calls whose values a call reads."""
    numbers = set[int]()
    for item in progress.call.reads:
        for alternative in item.bound:
            for operand in alternative:
                numbers.update(operand or ())
    return numbers


def awaited(progress: Progress) -> dict[int, str]:
    """The calls that a call waits for, each with what it waits for."""
    reasons = dict.fromkeys(progress.call.order, "the order of effects")
    reasons.update(dict.fromkeys(progress.call.edges or (), "its success (_after)"))
    reasons.update(dict.fromkeys(suppliers(progress), "its result"))
    return reasons


def why_waited(progress: Progress, bar: CallBar, trace: Trace, machine: Machine) -> str:
    """Why a call did not start when it was listed; empty if it did."""
    if bar.listed is None:
        return ""

    start = bar.started if bar.started is not None else bar.finished
    if start is not None and start - bar.listed < _NOTICED:
        return ""

    before = awaited(progress)
    parts = list[str]()
    last = _last(trace, set(before), start)
    if last is not None:
        finish = trace.bars[last].finished
        if finish is not None and finish > bar.listed:
            time_ = f" {duration(finish - bar.listed)}"
        else:
            time_ = ""

        name = machine.history[last].call.label
        parts.append(f"{'waits' if finish is None else 'waited'}{time_} for {name}: {before[last]}")

    if bar.started is not None:
        for who, seconds in bar.approvals:
            decided = f"{who} decided" if who else "it was decided"
            parts.append(f"{decided} after {duration(seconds)}")
    elif bar.asked is not None and bar.decided is None and bar.finished is None:
        parts.append("waits for a decision")

    if not parts and start is not None:
        parts.append(f"waited {duration(start - bar.listed)} until one of the parallel calls ended")

    return "; ".join(parts)


def _last(trace: Trace, before: set[int], start: float | None) -> int | None:
    """The call that ended last, before a time, among the calls that another waited for; an open
    one comes first.
    """
    open_ = [
        number
        for number in before
        if number < len(trace.bars) and trace.bars[number].finished is None
    ]
    if open_ and start is None:
        return min(open_)
    ended = [
        (finish, number)
        for number in before
        if number < len(trace.bars) and (finish := trace.bars[number].finished)
    ]
    return max(ended)[1] if ended else None
