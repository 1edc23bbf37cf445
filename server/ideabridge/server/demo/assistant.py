"""The assistants of the demo: MCP clients that know only the protocol, and timelines of what they see.

`python -m ideabridge.server.demo.assistant ADDRESS TOOL INPUT` is assistant B, a separate process that uses HTTP.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

import anyio
from mcp import Client

from ideabridge.tools.encoding import JSONObject, encode
from ideabridge.tools.errors import IdeabridgeError

WIDTH: Final = 40
"""Characters of the longest bar."""

_NOTE: Final = re.compile(r"(?P<call>\S+) (?P<what>started|done|failed)\b")


class CheckFailedError(IdeabridgeError):
    """A step of the demo failed."""


@dataclass(slots=True)
class Bar:
    """One call of a plan. Times are seconds since the plan was sent."""

    call: str
    started: float
    finished: float
    failed: bool = False


@dataclass(slots=True)
class ToolReply:
    """The result of one `tools/call`.

    Attributes:
        content: the structured content.
        bytes: the size of the whole result as JSON, which is what a model has to read.
        seconds: the time from the request to the result.
        bars: the calls that the server's progress notifications reported meanwhile.
    """

    content: JSONObject
    bytes: int
    seconds: float
    bars: list[Bar]


async def tools_of(client: Client) -> dict[str, str]:
    """The name and description of every tool of the server."""
    found: dict[str, str] = {}
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found |= {tool.name: tool.description or "" for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            return found


async def call(client: Client, tool: str, arguments: JSONObject) -> ToolReply:
    """Call a tool; an error result is raised as `CheckFailedError`."""
    began = time.monotonic()
    bars: dict[str, Bar] = {}

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        note = _NOTE.match(message or "")
        if note is not None:
            now = time.monotonic() - began
            bar = bars.setdefault(note["call"], Bar(note["call"], now, now))
            if note["what"] != "started":
                bar.finished, bar.failed = now, note["what"] == "failed"

    result = await client.call_tool(tool, cast("dict[str, Any]", arguments), progress_callback=on_progress)
    seconds = time.monotonic() - began
    wire = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    if result.is_error:
        raise CheckFailedError(f"{tool}: {' '.join(block.get('text', '') for block in wire.get('content', []))}")
    content = wire.get("structuredContent")
    if not isinstance(content, dict):
        raise CheckFailedError(f"{tool}: the result has no structured content")
    return ToolReply(cast("JSONObject", content), len(encode(wire)), seconds, list(bars.values()))


def most_at_once(bars: list[Bar]) -> int:
    """The largest number of calls that ran at the same time."""
    return max((sum(bar.started <= moment.started < bar.finished for bar in bars) for moment in bars), default=0)


def together(bars: list[Bar]) -> list[tuple[str, str]]:
    """The pairs of calls that ran at the same time."""
    return [
        (one.call, other.call)
        for number, one in enumerate(bars)
        for other in bars[number + 1 :]
        if one.started < other.finished and other.started < one.finished
    ]


def draw(bars: list[Bar], width: int = WIDTH) -> list[str]:
    """One line for each call, in the order in which they started."""
    ordered = sorted(bars, key=lambda bar: (bar.started, bar.finished))
    first = min((bar.started for bar in bars), default=0.0)
    whole = max([bar.finished - first for bar in bars] + [1e-6])
    label = max((len(bar.call) for bar in bars), default=0)
    lines: list[str] = []
    for bar in ordered:
        begin = min(int((bar.started - first) / whole * width), width - 1)
        length = max(1, round((bar.finished - bar.started) / whole * width))
        line = " " * begin + "█" * min(length, width - begin)
        took = (bar.finished - bar.started) * 1000
        lines.append(f"{bar.call:<{label}} │{line:<{width}}│ {took:6.0f} ms{' (failed, caught)' if bar.failed else ''}")
    return lines


async def visit(address: str, tool: str, arguments: JSONObject) -> JSONObject:
    """What assistant B does: it lists the tools, calls one, and reports the result."""
    async with Client(address) as client:
        tools = await tools_of(client)
        if tool not in tools:
            raise CheckFailedError(f"assistant B does not see the tool {tool}; it sees {', '.join(tools)}")
        reply = await call(client, tool, arguments)
        about: JSONObject = {"protocol": client.protocol_version, "tools": len(tools), "description": tools[tool]}
        return {**about, **asdict(reply)}


def cause_of(error: BaseException) -> str:
    """The error in one line, taken out of the exception groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return str(error) if isinstance(error, IdeabridgeError) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    try:
        seen = anyio.run(visit, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except* IdeabridgeError as errors:
        sys.exit(cause_of(errors))
    sys.stdout.buffer.write(encode(seen))
