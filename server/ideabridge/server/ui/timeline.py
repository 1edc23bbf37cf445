"""Show the calls of a run as rows with bars, and the reasons why calls waited."""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from typing import Final

from ideabridge.bridge.context.failure import NOT_RUN, read_failure
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.loop.graph import only_reads
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.server.ui.call_names import CallName, names_of_run
from ideabridge.server.ui.showing import duration
from ideabridge.server.ui.stages import in_order, step_numbers
from ideabridge.server.ui.tool_titles import NO_TITLES
from ideabridge.server.views.trace import CallBar, Trace, module_of
from ideabridge.tools.names import counted

ROWS: Final = 50
"""Number of rows on a page."""

_NARROWEST: Final = 0.4
"""Minimum width of a bar, in per cent of the full width. A narrower bar would be invisible."""

_DAY: Final = 86_400
_BUCKETS: Final = 160
_IDLE: Final = 0.12
"""The drawn width of a long idle stretch, in which nothing ran, as a fraction of the time in which
something ran.
"""

_LEAST_IDLE: Final = 0.01
"""Minimum width of an idle stretch, in seconds."""

_LONG_IDLE: Final = 2.0
"""An idle stretch is long if it lasts longer than this multiple of the width at which it would be
drawn."""

_SHORT_IDLE: Final = 1.0
"""An idle stretch of up to this many seconds is drawn to scale, unless it is longer than the time
in which something ran."""

_MOST_BREAKS: Final = 20
"""Maximum number of shortened stretches. Each row contains a mark for each of them."""

_MINUTE: Final = 60
_HOUR: Final = 3600
_ROUND_TIMES: Final = (
    *(digit * 10.0**power for power in range(-6, 1) for digit in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)),
    *(10, 15, 20, 30, 45),
    *(number * _MINUTE for number in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45)),
    *(number * _HOUR for number in (1, 1.5, 2, 3, 4, 6, 8, 12)),
)
"""The distances between marks on an axis, in seconds, shortest first. Longer ones are whole days.
"""

_ORDER: Final = "its turn in the listed order"
_SUCCESS: Final = "its success (_after)"

_GRANT: Final = re.compile(r"the grant of call ([0-9]{1,9})(?= by )")
"""The beginning of the phrase of `decider_text` for a grant."""

_NOTICED: Final = 0.001
"""Minimum wait, in seconds, that gets a bar and an explanation."""

_LONG_WAIT: Final = 1.0
"""Minimum wait, in seconds, whose explanation is always in sight. Others are in a tooltip."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """A reason why a call waited.

    Attributes:
        text: the reason, such as `waited 3 s for List orders`.
        is_long: whether a row has the reason as text.
    """

    text: str
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One call, or one answer from the mind.

    Attributes:
        number: the number of the call, or -1 for an answer from the mind.
        step: the place of the call among all calls of the run, from 1, or 0 for an answer from the
            mind.
        name: the name of the tool, or of the mind.
        title, place: the title and the place of the call; see `CallName`.
        left, width: the position and width of the bar that shows the execution, in per cent of the
            run, or None before the execution starts.
        asked: the bar from the first question about the call to the last decision.
        waited: the bar from the listing of the call to its start, or to the question about it if it
            has not started.
        took: how long the call ran, in seconds.
        elapsed: the time since the call was listed, in seconds, or None unless the call is waiting.
        why: why the call waited.
        note: the long waits among these.
        cuts: the places in its bars where the axis is shortened, in per cent.
    """

    number: int
    step: int
    name: str
    title: str
    place: str
    module: str
    instance: str
    status: str
    left: float | None
    width: float
    asked: tuple[float, float] | None
    waited: tuple[float, float] | None
    took: float | None
    elapsed: float | None
    items: int
    error: str
    why: str
    note: str
    cuts: list[float]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One page of a run's rows.

    Attributes:
        first: the position of the page's first row among the chosen rows.
        total: the number of chosen rows.
        most: the maximum number of calls that ran at the same time.
        density: the number of calls that ran during each part of the run, as (x, height) in per
            cent, or empty if the run has only one page.
        seconds: the seconds that the run has taken so far.
        ticks: the labels of the equally spaced marks on the axis.
        breaks: the (left, width, seconds) of each shortened idle stretch, with left and width in
            per cent.
    """

    rows: list[Row]
    first: int
    total: int
    most: int
    density: list[tuple[float, float]]
    seconds: float
    ticks: list[str]
    breaks: list[tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """The rows that a visitor chooses to see.

    Attributes:
        first: the position of the page's first row among these rows.
        status: the status of the rows, or "" for any status.
        tool: the name of the rows' tool, or "" for any tool.
    """

    first: int = 0
    status: str = ""
    tool: str = ""

    def has(self, bar: CallBar) -> bool:
        """Return whether the row of a call is among the chosen rows."""
        has_status = not self.status or bar.status == self.status
        return has_status and (not self.tool or bar.name == self.tool)


ALL_ROWS: Final = ChosenRows()


def timeline(
    trace: Trace,
    machine: Machine | None,
    names: Sequence[CallName] | None = None,
    *,
    chosen: ChosenRows = ALL_ROWS,
    now: float | None = None,
    is_left: bool = False,
) -> Timeline:
    """Return one page of a run's timeline.

    Args:
        trace: the trace of the run.
        machine: the machine of the folded journal, which knows why calls waited and the exact
            status of calls that never started, or None if the journal was not folded.
        names: the names of the calls, or None to name them after the names of their tools.
        chosen: the rows to return.
        now: when calls that are still running end in the timeline, or None for the current time.
        is_left: whether no process drives the run, so that none of its calls is still running.
    """
    bars = in_order(trace)
    end = trace.ended or now or time.time()
    begun = end if trace.begun is None else trace.begun
    end = max([end, *(bar.finished or bar.started or 0.0 for bar in bars)])
    ran = _ran(trace.bars, end)
    answered = _ran(trace.minds, end) if trace.mind else []
    axis = Axis.of([*ran, *answered], begun, end, is_round=True)
    listed = list(filter(chosen.has, bars))
    if names is None:
        names = names_of_run(trace, NO_TITLES)
    shown = listed[chosen.first : chosen.first + ROWS]
    steps = step_numbers(bars)
    rows = [
        _row(bar, steps.get(bar.number, 0), trace, machine, axis, names, is_left) for bar in shown
    ]
    most, density = _density(ran, axis)
    return Timeline(
        rows,
        chosen.first,
        len(listed),
        most,
        density if len(listed) > ROWS else [],
        end - begun,
        axis.ticks(),
        axis.breaks(),
    )


def _row(
    bar: CallBar,
    step: int,
    trace: Trace,
    machine: Machine | None,
    axis: Axis,
    names: Sequence[CallName],
    is_left: bool,
) -> Row:
    progress = None
    waits: list[WaitReason] = []
    if machine is not None and 0 <= bar.number < len(machine.history):
        progress = machine.history[bar.number]
        waits = waits_of(machine, bar, trace, names)

    status = bar_status(bar, progress)
    if is_left and bar.status == "running":
        status = "interrupted"

    left = None
    width = 0.0
    took = None
    if bar.started is not None:
        finish = axis.end if bar.finished is None else bar.finished
        left = min(axis.place(bar.started), 100 - _NARROWEST)
        width = max(_NARROWEST, axis.place(finish) - left)
        took = finish - bar.started

    elapsed = None
    if status in ("asking", "waiting") and bar.listed is not None:
        elapsed = axis.end - bar.listed

    decided = bar.decided
    if decided is None:
        decided = bar.finished or axis.end

    asked = axis.stretch(bar.asked, decided)
    waited = axis.stretch(bar.listed, bar.asked if bar.started is None else bar.started)
    ran = None if left is None else (left, width)
    bars = [stretch for stretch in (waited, asked, ran) if stretch is not None]
    return Row(
        number=bar.number,
        step=step,
        name=bar.name,
        title=names[bar.number].title if bar.number >= 0 else "",
        place=names[bar.number].place if bar.number >= 0 else "",
        module=module_of(bar, trace),
        instance=WrittenCall.of(bar.call).instance or "",
        status=status,
        left=left,
        width=width,
        asked=asked,
        waited=waited,
        took=took,
        elapsed=elapsed,
        items=bar.items,
        error=bar.error or _error(progress),
        why="; ".join(wait.text for wait in waits),
        note="; ".join(wait.text for wait in waits if wait.is_long),
        cuts=_cuts(axis, bars),
    )


def _cuts(axis: Axis, bars: Sequence[tuple[float, float]]) -> list[float]:
    """Return the middle of each shortened stretch that one of the bars crosses."""
    middles = [left + width / 2 for left, width, _ in axis.breaks()]
    return [
        middle for middle in middles if any(left < middle < left + width for left, width in bars)
    ]


def _ran(bars: Iterable[CallBar], end: float) -> list[tuple[float, float]]:
    """Return when each call or answer that has a bar began and ended. Those still running end at
    `end`.
    """
    ran: list[tuple[float, float]] = []
    for bar in bars:
        if bar.started is not None:
            ran.append((bar.started, end if bar.finished is None else bar.finished))
    return ran


def bar_status(bar: CallBar, progress: Progress | None) -> str:
    """Return the status of a bar on pages. `progress` is the state of its call, or None if the
    journal is not folded.
    """
    if progress is None:
        return bar.status
    if bar.status == "failed" and progress.status is CallStatus.CAUGHT:
        return "caught"
    if bar.status in ("waiting", "not run") and progress.settled:
        return call_status(progress)
    return bar.status


def call_status(progress: Progress) -> str:
    """Return the status of a call on pages, where a call that was denied or never started has not
    failed.
    """
    if progress.status is CallStatus.FAILED:
        kind = read_failure(progress.error).kind
        if kind == NOT_RUN:
            return "not run"
        if kind == "denied":
            return "denied"
    return progress.status.value


def _error(progress: Progress | None) -> str:
    if progress is None or progress.error is None:
        return ""
    return str(progress.error.get("message", ""))


def _length(stretch: tuple[float, float]) -> float:
    return stretch[1] - stretch[0]


class Axis:
    """The time axis. A run can wait hours for a person, so long idle stretches are shortened.

    `points` contains the ends of these stretches, as (seconds since 1970, per cent). Between two
    points, time is drawn to scale.

    Attributes:
        end: the end of the run, or the current time, in seconds since 1970.
    """

    def __init__(
        self, points: list[tuple[float, float]], idle: list[tuple[float, float]], end: float
    ) -> None:
        self.end = end
        self._points = points
        self._times = [at for at, _ in points]
        self._idle = idle

    @classmethod
    def of(
        cls,
        ran: Iterable[tuple[float, float]],
        begun: float,
        end: float,
        *,
        is_round: bool = False,
    ) -> Axis:
        """Return the axis of a run from its beginning to its end.

        `ran` contains the time spans in which something ran. With `is_round`, an axis without
        breaks is extended so that each quarter is a round time. If the axis has breaks, their width
        is chosen so that a quarter of the axis is a round time, which makes the marks before the
        first break round.
        """
        gaps = _gaps(ran, begun, end)
        work = end - begun - sum(map(_length, gaps))
        idle_width = max(_IDLE * work, _LEAST_IDLE)
        idle: list[tuple[float, float]] = []
        if work > 0:
            longest_to_scale = max(_LONG_IDLE * idle_width, min(work, _SHORT_IDLE))
            long = [gap for gap in gaps if _length(gap) > longest_to_scale]
            idle = sorted(nlargest(_MOST_BREAKS, long, key=_length))

        if is_round and idle:
            idle_width = _round_width(end - begun - sum(map(_length, idle)), idle, idle_width)

        points = [(begun, 0.0)]
        place = 0.0
        before = begun
        for start, finish in idle:
            place += start - before
            points.append((start, place))
            place += idle_width
            points.append((finish, place))
            before = finish

        last = end
        if is_round and not idle and end > begun:
            last = begun + 4 * _round_time((end - begun) / 4)

        place += last - before
        points.append((max(last, before + 1e-6), max(place, 1e-6)))
        whole = points[-1][1]
        return cls([(at, value / whole * 100) for at, value in points], idle, end)

    def place(self, at: float) -> float:
        """Return the position of a time on the axis, in per cent."""
        number = min(max(1, bisect_right(self._times, at)), len(self._points) - 1)
        start, left = self._points[number - 1]
        finish, right = self._points[number]
        if finish <= start:
            return left
        place = left + (at - start) / (finish - start) * (right - left)
        return min(100.0, max(0.0, place))

    def time(self, place: float) -> float:
        """Return the time at a position on the axis."""
        for (start, left), (finish, right) in pairwise(self._points):
            if left < right and place <= right:
                return start + (finish - start) * (place - left) / (right - left)
            if place <= right:
                return start
        return self._points[-1][0]

    def stretch(self, start: float | None, finish: float | None) -> tuple[float, float] | None:
        """Return the (left, width) of a time span in per cent, or None if it is too short to
        notice.
        """
        if start is None or finish is None or finish - start < _NOTICED:
            return None
        left = self.place(start)
        return left, max(_NARROWEST, self.place(finish) - left)

    def ticks(self) -> list[str]:
        """Return the times at five equally spaced positions, counted from the beginning.

        If two labels are the same, the later one is empty. Labels within a shortened stretch are
        empty, too, because the stretch's own label says how long it was.
        """
        begun = self._points[0][0]
        breaks = self.breaks()
        texts: list[str] = []
        for place in (0.0, 25.0, 50.0, 75.0, 100.0):
            text = _tick(self.time(place) - begun)
            is_in_break = any(left < place <= left + width for left, width, _ in breaks)
            texts.append("" if is_in_break or text in texts else text)
        return texts

    def breaks(self) -> list[tuple[float, float, float]]:
        """Return the (left, width, seconds) of each shortened stretch."""
        return [
            (self.place(start), self.place(finish) - self.place(start), finish - start)
            for start, finish in self._idle
        ]


def _tick(seconds: float) -> str:
    """Return the label of a mark on an axis, which is more precise than the duration of a call."""
    if seconds < 0.01:
        return f"{round(max(0.0, seconds) * 1000, 2):.3g} ms"
    if seconds >= _DAY:
        return counted(float(f"{seconds / _DAY:.3g}"), "day")
    return duration(seconds)


def _round_time(least: float) -> float:
    """Return the shortest round time that is at least as long as `least`, in seconds."""
    for step in _ROUND_TIMES:
        # Allow a small excess, because rounding errors can make a run of 200 ms appear slightly
        # longer.
        if step >= least * 0.999:
            return step
    return math.ceil(least / _DAY) * _DAY


def _round_width(drawn: float, idle: list[tuple[float, float]], least: float) -> float:
    """Return the width of each break, in seconds, that makes a quarter of the axis a round time.

    Return `least` if the shortest idle stretch would otherwise be drawn longer than it was. `drawn`
    is the time that is drawn to scale.
    """
    quarter = _round_time((drawn + len(idle) * least) / 4)
    width = (4 * quarter - drawn) / len(idle)
    return width if width <= min(map(_length, idle)) else least


def _gaps(
    ran: Iterable[tuple[float, float]], begun: float, end: float
) -> list[tuple[float, float]]:
    """Return the stretches of a run in which nothing ran."""
    gaps: list[tuple[float, float]] = []
    reached = begun
    for start, finish in sorted(ran):
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, finish)

    if end > reached:
        gaps.append((reached, end))
    return gaps


def _density(
    ran: Sequence[tuple[float, float]], axis: Axis
) -> tuple[int, list[tuple[float, float]]]:
    """Return the largest number of calls that ran at the same time, and how many calls ran during
    each part of the axis, as (x, height) in per cent.
    """
    starts = sorted(start for start, _ in ran)
    ends = sorted(finish for _, finish in ran)
    edges = [axis.time(number * 100 / _BUCKETS) for number in range(_BUCKETS)]
    # Begin with the number of calls that are running at the start of each part. Calls that begin
    # within a part can raise its number.
    highest = [bisect_right(starts, edge) - bisect_right(ends, edge) for edge in edges]
    bucket = ended = 0
    for number, start in enumerate(starts):
        while ended < len(ends) and ends[ended] <= start:
            # If one call ends at the very moment when another begins, the two did not run at the
            # same time.
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
    """Return the calls whose values a call reads."""
    numbers = set[int]()
    for item in progress.call.reads:
        for alternative in item.bound:
            for operand in alternative:
                numbers.update(operand or ())
    return numbers


def awaited(progress: Progress) -> dict[int, str]:
    """Return the calls that a call waits for, each with the reason."""
    reasons = dict.fromkeys(progress.call.order, _ORDER)
    reasons.update(dict.fromkeys(progress.call.edges or (), _SUCCESS))
    reasons.update(dict.fromkeys(suppliers(progress), "its result"))
    return reasons


def why_waited(machine: Machine, bar: CallBar, trace: Trace, names: Sequence[CallName]) -> str:
    """Return why a call did not start when it was listed, or "" if it started immediately. See
    `waits_of` for the arguments.
    """
    return "; ".join(wait.text for wait in waits_of(machine, bar, trace, names))


def waits_of(
    machine: Machine, bar: CallBar, trace: Trace, names: Sequence[CallName]
) -> list[WaitReason]:
    """Return the reasons why a call did not start when it was listed.

    Args:
        machine: the machine of the folded journal.
        bar: the bar of the call.
        trace: the trace of the run.
        names: the names of all calls of the run.
    """
    if bar.listed is None:
        return []

    start = bar.started if bar.started is not None else bar.finished
    if start is not None and start - bar.listed < _NOTICED:
        return []

    waits: list[WaitReason] = []
    before = awaited(machine.history[bar.number])
    last = _last(trace, before, bar)
    if last is not None:
        finish = trace.bars[last].finished
        seconds = 0.0 if finish is None else finish - bar.listed
        if finish is None:
            text = "waits"
        elif seconds > 0:
            text = f"waited {duration(seconds)}"
        else:
            text = "waited"

        note = _note_on(machine, last, bar.number, before[last])
        is_long = finish is None or seconds >= _LONG_WAIT
        waits.append(WaitReason(f"{text} for {names[last]}{note}", is_long))

    for decider, seconds in bar.approvals:
        by = f" by {_with_name(decider, names)}" if decider else ""
        text = f"waited {duration(seconds)} for a decision{by}"
        waits.append(WaitReason(text, seconds >= _LONG_WAIT))

    has_begun = bar.started is not None or bar.finished is not None
    if bar.asked is not None and bar.decided is None and not has_begun:
        # The row has a status that says so, and how long the call has waited.
        waits.append(WaitReason("waiting for a decision"))

    if not waits and start is not None:
        seconds = start - bar.listed
        text = f"waited {duration(seconds)} until one of the parallel calls ended"
        waits.append(WaitReason(text, seconds >= _LONG_WAIT))

    return waits


def _note_on(machine: Machine, first: int, second: int, reason: str) -> str:
    """Return the text that follows the name of a call that another call waited for.

    Args:
        machine: the machine of the folded journal.
        first: the number of the call that was waited for.
        second: the number of the waiting call.
        reason: why the call waited; see `awaited`.
    """
    if reason == _SUCCESS:
        return " to succeed (_after)"
    if reason != _ORDER:
        return ""

    first_changes = _may_change(machine, first)
    second_changes = _may_change(machine, second)
    if first_changes and second_changes:
        return ", which may change the same things"
    if first_changes:
        return ", which may change what this call reads"
    if second_changes:
        return ", which may read what this call changes"
    return ", which is listed before it"


def _may_change(machine: Machine, call: int) -> bool:
    tool = machine.history[call].tool
    return tool is not None and not only_reads(tool, machine.settings.modules)


def _with_name(decider: str, names: Sequence[CallName]) -> str:
    """Return who decided about a call. If the decider was a grant, name the call for which it was
    given.
    """
    grant = _GRANT.match(decider)
    if grant is None or int(grant[1]) >= len(names):
        return decider
    return f"the grant of {names[int(grant[1])]}{decider[grant.end() :]}"


def _last(trace: Trace, before: Iterable[int], waiting: CallBar) -> int | None:
    """Return the call that ended last among those that another call waited for.

    If the waiting call has neither started nor ended, a call that has not ended takes precedence.
    """
    bars = [trace.bars[number] for number in before if number < len(trace.bars)]
    if waiting.started is None and waiting.finished is None:
        unfinished = [bar.number for bar in bars if bar.finished is None]
        if unfinished:
            return min(unfinished)

    finished = [(bar.finished, bar.number) for bar in bars if bar.finished]
    if waiting.started is None and waiting.asked is not None:
        # The question is asked as soon as the values are known. A call that ended later did not
        # delay the question.
        finished = [ended for ended in finished if ended[0] <= waiting.asked]
    if not finished:
        return None
    return max(finished)[1]
