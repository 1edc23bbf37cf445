"""Mini timeline: the first calls of a run as thin bars, for a row in the list of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.store.journal import CallMark
from ideabridge.server.ui.timeline import Axis

_MAX_BARS: Final = 24
"""Maximum number of calls, and of questions, that are drawn."""

_LANES: Final = 4
"""Maximum number of bars above each other. If more calls ran at once, the rest share the last
lane.
"""

_HEIGHT: Final = 3
"""The height of a lane. The drawing is 100 wide and `_LANES` lanes high."""

_NARROWEST: Final = 1.0
"""Minimum width of a bar, so that a short call is visible."""


BarKind: TypeAlias = Literal["done", "running", "failed", "asked"]


@dataclass(frozen=True, slots=True)
class MiniTimeline:
    """The bars for a run, as paths in an SVG that is 100 units wide.

    Attributes:
        paths: the path with all bars of each kind: `done`, `running` and `failed` for calls that
            ended, still run and failed, and `asked` for questions. A kind without bars is left out.
        calls: the number of calls that are shown.
        height: the height of the lanes that are used.
    """

    paths: dict[BarKind, str]
    calls: int
    height: int = _HEIGHT


@dataclass(slots=True)
class _Stretch:
    """When something began, when it ended (None if it has not), and whether it failed."""

    begun: float
    ended: float | None = None
    has_failed: bool = False

    @property
    def kind(self) -> BarKind:
        """The kind of bar to draw for a call."""
        if self.has_failed:
            return "failed"
        return "running" if self.ended is None else "done"


def mini_timeline(marks: Sequence[CallMark], end: float) -> MiniTimeline | None:
    """Return the bars for a run, or None if none of its calls has begun. As on the run's page, a
    long stretch in which nothing ran is drawn shorter.

    Args:
        marks: what happened to the run's first calls, in order.
        end: the time at which the run ended, or the current time, in seconds since 1970.
    """
    executions: dict[int, _Stretch] = {}
    questions: dict[int, _Stretch] = {}
    for mark in marks:
        is_execution = mark.event in ("call_started", "call_finished")
        stretches = executions if is_execution else questions
        stretch = stretches.get(mark.call)
        if mark.event in ("call_started", "approval_asked"):
            if stretch is None and len(stretches) < _MAX_BARS:
                stretches[mark.call] = _Stretch(mark.at)
        elif stretch is not None:
            stretch.ended = mark.at
            stretch.has_failed = stretch.has_failed or mark.is_failure

    drawn = [*executions.values(), *questions.values()]
    if not drawn:
        return None

    begun = min(stretch.begun for stretch in drawn)
    last = max(stretch.ended or end for stretch in drawn)
    working = [(stretch.begun, stretch.ended or last) for stretch in executions.values()]
    axis = Axis.of(working, begun, last)

    # The time at which each lane becomes free.
    lanes = [begun] * _LANES
    bars = defaultdict[BarKind, list[str]](list)
    for stretch in executions.values():
        bars[stretch.kind].append(_bar(stretch, lanes, axis))
    for stretch in questions.values():
        bars["asked"].append(_bar(stretch, lanes, axis))

    used_lanes = sum(free_at > begun for free_at in lanes)
    return MiniTimeline(
        paths={kind: "".join(paths) for kind, paths in bars.items()},
        calls=len(executions.keys() | questions.keys()),
        height=_HEIGHT * max(1, used_lanes),
    )


def _bar(stretch: _Stretch, lanes: list[float], axis: Axis) -> str:
    """Return the path of a bar in the first lane that is free. `lanes` says when each lane becomes
    free.
    """
    ended = stretch.ended or axis.end
    free_lanes = (lane for lane, free_at in enumerate(lanes) if free_at <= stretch.begun)
    lane = next(free_lanes, _LANES - 1)
    lanes[lane] = max(lanes[lane], ended)

    start = axis.place(stretch.begun)
    width = max(_NARROWEST, axis.place(ended) - start)
    # A bar that was widened must not extend beyond the right edge.
    left = min(start, 100 - width)
    return f"M{left:.1f} {lane * _HEIGHT}h{width:.1f}v2h-{width:.1f}z"
