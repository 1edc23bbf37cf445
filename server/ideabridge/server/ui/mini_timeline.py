"""Mini timeline: the first calls of a run as thin bars, for a row of the list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.store.journal import CallMark

_MOST_BARS: Final = 24
_LANES: Final = 4
"""Maximum number of bars above each other. Further calls that ran at once share the last lane."""

_HEIGHT: Final = 3
"""The height of a lane. The drawing is 100 wide and `_LANES` lanes high."""

_NARROWEST: Final = 1.0


@dataclass(frozen=True, slots=True)
class MiniTimeline:
    """The bars of a run as paths of an SVG that is 100 wide.

    Attributes:
        ran: the path of the bars of calls that ran and did not fail.
        failed: the path of the bars of calls that failed.
        asked: the path of the bars of questions.
        calls: how many calls it shows.
        height: the height of the lanes that it uses.
    """

    ran: str
    failed: str
    asked: str
    calls: int
    height: int = _HEIGHT


@dataclass(slots=True)
class _Stretch:
    """When something began, when it ended, or None if it has not, and whether it failed."""

    begun: float
    ended: float | None = None
    has_failed: bool = False


def mini_timeline(marks: Sequence[CallMark], end: float) -> MiniTimeline | None:
    """Return the bars of a run, or None if none of its calls has begun.

    Args:
        marks: what happened to its first calls, in order.
        end: when the run ended, or the current time, in seconds since 1970.
    """
    ran: dict[int, _Stretch] = {}
    asked: dict[int, _Stretch] = {}
    for mark in marks:
        stretches = ran if mark.event in ("call_started", "call_finished") else asked
        stretch = stretches.get(mark.call)
        if mark.event in ("call_started", "approval_asked"):
            if stretch is None and len(stretches) < _MOST_BARS:
                stretches[mark.call] = _Stretch(mark.at)
        elif stretch is not None:
            stretch.ended = mark.at
            stretch.has_failed = stretch.has_failed or mark.is_failure

    if not ran and not asked:
        return None

    begun = min(stretch.begun for stretch in (*ran.values(), *asked.values()))
    ends = [stretch.ended or end for stretch in (*ran.values(), *asked.values())]
    last = max(ends)
    scale = 100 / max(last - begun, 1e-6)
    lanes = [begun] * _LANES
    ran_bars: list[str] = []
    failed_bars: list[str] = []
    for stretch in ran.values():
        bar = _bar(stretch, lanes, begun, last, scale)
        if stretch.has_failed:
            failed_bars.append(bar)
        else:
            ran_bars.append(bar)

    asked_bars = [_bar(stretch, lanes, begun, last, scale) for stretch in asked.values()]
    return MiniTimeline(
        "".join(ran_bars),
        "".join(failed_bars),
        "".join(asked_bars),
        len(ran.keys() | asked.keys()),
        _HEIGHT * sum(until > begun for until in lanes) or _HEIGHT,
    )


def _bar(stretch: _Stretch, lanes: list[float], begun: float, last: float, scale: float) -> str:
    """Return the path of a bar in the first lane that is free. `lanes` says when each lane becomes
    free.
    """
    ended = stretch.ended or last
    free = (lane for lane, until in enumerate(lanes) if until <= stretch.begun)
    lane = next(free, _LANES - 1)
    lanes[lane] = max(lanes[lane], ended)
    width = max(_NARROWEST, (ended - stretch.begun) * scale)
    left = min((stretch.begun - begun) * scale, 100 - width)
    return f"M{left:.1f} {lane * _HEIGHT}h{width:.1f}v2h-{width:.1f}z"
