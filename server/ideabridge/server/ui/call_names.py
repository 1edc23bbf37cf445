"""Name the calls of a run for people. A call has the title of its tool and, if several calls have
the same title, its position among these calls, such as `Find customer 2 of 3`.

Messages from the engine and the command line number all calls of a run from 0. Pages show that
number only where they say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ideabridge.bridge.context.references import clipped
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.server.views.trace import Trace, module_of
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import ToolKey


@dataclass(frozen=True, slots=True)
class CallName:
    """The name of a call.

    Attributes:
        tool: the name of the called tool.
        title: the tool's title.
        place: the position among the calls with the same title, such as `2 of 3`, or "" if no other
            call has this title.
    """

    tool: str
    title: str
    place: str = ""

    def __str__(self) -> str:
        title = clipped(self.title) or "a call without a tool"
        return f"{title} {self.place}" if self.place else title


def names_of_run(trace: Trace, titles: ToolTitles) -> list[CallName]:
    """Return the names of the calls of a run, in order."""
    return call_names([(module_of(bar, trace), bar.name) for bar in trace.bars], titles)


def names_of_plan(calls: Iterable[JSONObject], titles: ToolTitles) -> list[CallName]:
    """Return the names of the calls of a plan, in order."""
    written = [WrittenCall.of(call) for call in calls]
    return call_names([(call.module, call.tool) for call in written], titles)


def call_names(tools: Iterable[ToolKey], titles: ToolTitles) -> list[CallName]:
    """Return the names of calls, given the tool of each call in order."""
    keys = list(tools)
    # A run calls few tools, perhaps thousands of times.
    title_of = {(server, tool): titles.of(tool, server) for server, tool in set(keys)}
    titled = [(key[1], title_of[key]) for key in keys]
    totals = Counter(title for _, title in titled)
    counted = Counter[str]()
    names: list[CallName] = []
    for tool, title in titled:
        counted[title] += 1
        total = totals[title]
        place = f"{counted[title]:,} of {total:,}" if total > 1 else ""
        names.append(CallName(tool, title, place))
    return names
