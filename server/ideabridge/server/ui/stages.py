"""Find which calls of a run ran at the same time, and in what order.

The sentence about a run, its timeline and its graph all use this order, unless the run has more
calls than the sentence names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from ideabridge.server.views.trace import CallBar, Trace

MOST_NAMED: Final = 6
"""Maximum number of calls that the sentence about a run names. It counts more calls."""


def stages_of(bars: Iterable[CallBar]) -> list[list[CallBar]]:
    """Group the calls that have started into stages.

    All calls of a stage ran at the same time. A new stage begins when a call starts after a call of
    the previous stage has ended. Within a stage, calls keep the order in which they were listed.
    """
    begun = [(bar.started, bar) for bar in bars if bar.started is not None]
    begun.sort(key=lambda pair: pair[0])
    stages: list[list[CallBar]] = []
    earliest_end = 0.0
    for started, bar in begun:
        if not stages or started >= earliest_end:
            stages.append([])
            earliest_end = math.inf

        stages[-1].append(bar)
        if bar.finished is not None:
            earliest_end = min(earliest_end, bar.finished)

    for stage in stages:
        stage.sort(key=attrgetter("number"))
    return stages


def in_order(trace: Trace) -> list[CallBar]:
    """Return the calls of a run and the answers from its mind, in the order of the timeline.

    If the sentence about the run names the calls, they are in the order in which they began, and
    calls of the same stage are in the order in which they were listed. A call that has not started
    is placed at the time at which someone was asked about it or, if nobody was asked, among the
    last. The calls of a larger run are always in the order in which they were listed.
    """
    rows: Sequence[CallBar] = [*trace.minds, *trace.bars]
    if len(trace.bars) > MOST_NAMED:
        return sorted(rows, key=attrgetter("event"))

    begun_by_call: dict[int, float] = {}
    for stage in stages_of(trace.bars):
        begun = min(bar.started for bar in stage if bar.started is not None)
        begun_by_call.update((bar.number, begun) for bar in stage)

    def begun_at(bar: CallBar) -> float:
        if bar.number in begun_by_call:
            return begun_by_call[bar.number]
        if bar.started is not None:
            return bar.started
        return math.inf if bar.asked is None else bar.asked

    return sorted(rows, key=begun_at)


def step_numbers(bars: Iterable[CallBar]) -> dict[int, int]:
    """Return the place of each call among those of its run, from 1, keyed by the number of the
    call. `bars` is in the order of the timeline.
    """
    calls = [bar.number for bar in bars if bar.number >= 0]
    return {number: step for step, number in enumerate(calls, 1)}
