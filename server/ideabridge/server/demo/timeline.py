"""Timeline: which calls ran when, as bars a person sees at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ideabridge.tools.encoding import JSONObject

WIDTH: Final = 40
"""Characters of the longest bar."""


@dataclass(slots=True)
class Bar:
    """One call. Times are seconds since its plan was handed over."""

    call: str
    started: float
    finished: float | None = None
    failed: bool = False

    @property
    def end(self) -> float:
        """When it ended; one nobody told the end of ended where it began."""
        return self.finished if self.finished is not None else self.started

    def to_json(self) -> JSONObject:
        """For machines."""
        return {"call": self.call, "started": self.started, "finished": self.end, "failed": self.failed}

    @classmethod
    def from_json(cls, value: JSONObject) -> Bar:
        """What `to_json` gave."""
        return cls(str(value["call"]), _number(value["started"]), _number(value["finished"]), value["failed"] is True)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def most_at_once(bars: list[Bar]) -> int:
    """How many calls ran at the same moment, at most."""
    edges = sorted([(bar.started, 1) for bar in bars] + [(bar.end, -1) for bar in bars])
    most = running = 0
    for _, step in edges:
        running += step
        most = max(most, running)
    return most


def together(bars: list[Bar]) -> list[tuple[str, str]]:
    """Every two calls that ran at the same time."""
    return [
        (one.call, other.call)
        for number, one in enumerate(bars)
        for other in bars[number + 1 :]
        if one.started < other.end and other.started < one.end
    ]


def draw(bars: list[Bar], width: int = WIDTH) -> list[str]:
    """One line for each call, in the order they started."""
    if not bars:
        return []
    ordered = sorted(bars, key=lambda bar: (bar.started, bar.end))
    first = ordered[0].started
    whole = max(max(bar.end for bar in ordered) - first, 1e-6)
    label = max(len(bar.call) for bar in ordered)
    lines: list[str] = []
    for bar in ordered:
        begin = int((bar.started - first) / whole * width)
        length = max(1, round((bar.end - bar.started) / whole * width))
        begin = min(begin, width - 1)
        line = " " * begin + "█" * min(length, width - begin)
        took = (bar.end - bar.started) * 1000
        lines.append(f"{bar.call:<{label}} │{line:<{width}}│ {took:6.0f} ms{' (failed, caught)' if bar.failed else ''}")
    return lines
