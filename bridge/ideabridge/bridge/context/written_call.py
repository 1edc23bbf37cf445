"""A call as its author wrote it, before its tool is looked up.

Plans, Solutions and published ideas list calls as JSON. Code that needs only the names in a call
parses it as a `WrittenCall`. `read_call` in `loop/call.py` reads and checks the other members, and
reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import ToolKey


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as written.

    Attributes:
        tool: `_tool`, or "" if the call names no tool. Checking the plan rejects such a call.
        module: `_module`, or None if the call names no server.
        activity: `_activity`, or None if the call has none.
        instance: `_instance`, or None if the call has none.
        output_path: `_outputPath`, or None if the call has none.
        has_result: whether the call has `_output`. If so, its author wrote the result, and no tool
            runs.
        members: all members of the call, or an empty object if the call is not an object.
    """

    tool: str
    module: str | None = None
    activity: str | None = None
    instance: str | None = None
    output_path: str | None = None
    has_result: bool = False
    members: JSONObject = field(default_factory=dict[str, JSON])

    @classmethod
    def of(cls, call: JSON) -> WrittenCall:
        """Read a call. A name that is not a string counts as absent."""
        if not isinstance(call, dict):
            return cls("")
        return cls(
            _name(call, "_tool") or "",
            _name(call, "_module"),
            _name(call, "_activity"),
            _name(call, "_instance"),
            _name(call, "_outputPath"),
            "_output" in call,
            call,
        )

    def with_tool(self, module: str | None, tool: str) -> JSONObject:
        """Return the call as JSON, naming this tool instead of its own."""
        names: JSONObject = {"_tool": tool}
        if module is not None:
            names["_module"] = module
        return {**names, **self.parameters}

    @property
    def key(self) -> ToolKey:
        """The server and the tool that the call names, like the key of a tool."""
        return self.module, self.tool

    @property
    def parameters(self) -> JSONObject:
        """All members except `_tool` and `_module`."""
        return {
            key: value for key, value in self.members.items() if key not in ("_tool", "_module")
        }


def _name(call: JSONObject, member: str) -> str | None:
    name = call.get(member)
    return name if isinstance(name, str) else None


def written_calls(calls: Iterable[JSON]) -> list[WrittenCall]:
    """Read the calls in a plan, in the same order."""
    return [WrittenCall.of(call) for call in calls]


def tool_names(calls: Iterable[JSON]) -> list[str]:
    """Return the names of the tools in the calls, without duplicates, in the order of the calls."""
    names = dict.fromkeys(call.tool for call in written_calls(calls))
    return [name for name in names if name]


def title_of_tools(names: Iterable[str]) -> str:
    """Return a title composed of tool names, on one line of up to 200 characters.

    It is for a run or an idea without a title.
    """
    return " + ".join(names)[:200]
