"""Identify the tool of a call for standing rules.

A standing rule is a person's answer *always*: a tool runs in one workspace without a question. The
rules are kept outside the loop, by `standing_rules.py`. When a call is about to ask, the runner
looks for a rule that covers it, and journals the rule in the call's `CallDecided`. The rules are
not needed to fold the journal, because the journal records their decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.bridge.loop.policy import activity_of
from ideabridge.bridge.loop.progress import Progress
from ideabridge.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class StandingTool:
    """The tool of a call, in the form that standing rules are bound to.

    Attributes:
        module: the server, or "" for an in-process tool.
        name: the name of the tool on its server.
        activity: the code that runs, or "" for a server's tool.
        digest: the digest of the definition; see `Tool.digest`.
    """

    module: str
    name: str
    activity: str
    digest: str

    @property
    def label(self) -> str:
        """The name to display: `module.name`, or only the name for an in-process tool."""
        return f"{self.module}.{self.name}" if self.module else self.name


def standing_tool(progress: Progress) -> StandingTool | None:
    """Return the tool that a standing rule would cover, or None if no rule is allowed to cover the
    call.

    No rule covers a call that rests on assumptions, a call that someone has edited, a call whose
    tool is a task for a mind or opens a room, or a call that runs another tool's code. A person
    decides on each of these.
    """
    call = progress.call
    tool = progress.tool
    if tool is None or call.has_written_result or call.room is not None:
        return None
    if progress.is_edited or progress.doubts.ask is not None or progress.doubts.strict:
        return None
    if len(progress.judged) != 1:
        return None

    return coverable(tool, call.activity)


def coverable(tool: Tool, activity: str | None = None) -> StandingTool | None:
    """Return a tool in the form that standing rules are bound to, or None if no rule is allowed to
    cover any of its calls.

    Args:
        tool: the tool.
        activity: the code that a call names, if it is not the in-process tool's own.
    """
    if tool.in_room or tool.passes_to is not None:
        return None
    if tool.module is not None:
        return StandingTool(tool.module, tool.name_in_module, "", tool.digest)
    return StandingTool("", tool.name, activity or activity_of(tool), tool.digest)
