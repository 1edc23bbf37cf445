"""Call names: names the calls of a run for people. A call has the name of its tool in words and, if
several calls have the same tool, its place among them, such as `Find customer 2 of 3`.

Messages of the engine and the command line count all calls of a run from 0; a page shows that
number only where it says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ideabridge.bridge.context.references import clipped
from ideabridge.server.ui.readable_names import readable


@dataclass(frozen=True, slots=True)
class CallName:
    """The name of a call.

    Attributes:
        tool: the tool of the call.
        place: the place of the call among those of the same tool, such as `2 of 3`, or "" if no
            other call has this tool.
    """

    tool: str
    place: str = ""

    def __str__(self) -> str:
        tool = clipped(readable(self.tool)) or "a call without a tool"
        return f"{tool} {self.place}" if self.place else tool


def call_names(tools: Iterable[str]) -> list[CallName]:
    """Return the names of the calls of a run, in order. `tools` contains the tool of each call."""
    listed = list(tools)
    totals = Counter(listed)
    counted = Counter[str]()
    names: list[CallName] = []
    for tool in listed:
        counted[tool] += 1
        total = totals[tool]
        place = f"{counted[tool]:,} of {total:,}" if total > 1 else ""
        names.append(CallName(tool, place))
    return names
