"""The demo's assistants, which are MCP clients that know only the protocol, and timelines of what
they see.

`python -m ideabridge.server.demo.assistant ADDRESS TOOL INPUT` is assistant B, a separate process
that uses HTTP.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias, cast

import anyio
from mcp import Client

from ideabridge.tools.encoding import encode
from ideabridge.tools.errors import IdeabridgeError

Members: TypeAlias = dict[str, Any]
_NOTE: Final = re.compile(r"(?P<call>\S+) (?P<status>started|done|failed)\b")


class CheckFailedError(IdeabridgeError):
    """Raised when a step of the demo fails."""


@dataclass(slots=True)
class Bar:
    """A call of a plan. Times are in seconds since the plan was sent."""

    call: str
    started: float
    finished: float
    failed: bool = False


@dataclass(slots=True)
class ToolReply:
    """The result of a tool call: its structured content, the size of the whole JSON that a model
    has to read, and the calls reported in progress notifications.
    """

    content: Members
    bytes: int
    seconds: float
    bars: list[Bar]


async def call(client: Client, tool: str, arguments: Members) -> ToolReply:
    """Call a tool. Raise `CheckFailedError` if the result is an error."""
    began = time.monotonic()
    bars: dict[str, Bar] = {}

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        note = _NOTE.match(message or "")
        if note is not None:
            now = time.monotonic() - began
            bar = bars.setdefault(note["call"], Bar(note["call"], now, now))
            if note["status"] != "started":
                bar.finished = now
                bar.failed = note["status"] == "failed"

    result = await client.call_tool(tool, arguments, progress_callback=on_progress)
    seconds = time.monotonic() - began
    wire = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    if result.is_error:
        texts = [block.get("text", "") for block in wire.get("content", [])]
        raise CheckFailedError(f"{tool}: {' '.join(texts)}")

    return ToolReply(
        content=wire["structuredContent"],
        bytes=len(encode(wire)),
        seconds=seconds,
        bars=list(bars.values()),
    )


def at_once(bars: list[Bar]) -> list[list[str]]:
    """Return, for each call, the calls that were running when it started, including itself."""
    calls_at_start: list[list[str]] = []
    for own in bars:
        running = [bar for bar in bars if bar.started <= own.started < bar.finished]
        calls_at_start.append([bar.call for bar in running])

    return calls_at_start


def draw_bars(bars: list[Bar], width: int = 40) -> list[str]:
    """Return one line per call, in the order in which the calls started. The longest bar is `width`
    characters long.
    """
    ordered = sorted(bars, key=lambda bar: (bar.started, bar.finished))
    first = min((bar.started for bar in bars), default=0.0)
    last = max((bar.finished for bar in bars), default=0.0)
    # Times are divided by the duration, so it must not be 0.
    whole = max(last - first, 1e-6)
    label = max((len(bar.call) for bar in bars), default=0)
    lines: list[str] = []
    for bar in ordered:
        waited = bar.started - first
        took = bar.finished - bar.started
        begin = min(int(waited / whole * width), width - 1)
        length = max(1, round(took / whole * width))
        line = " " * begin + "█" * min(length, width - begin)
        note = " (failed, caught)" if bar.failed else ""
        lines.append(f"{bar.call:<{label}} │{line:<{width}}│ {1000 * took:6.0f} ms{note}")

    return lines


async def visit(address: str, tool: str, arguments: Members) -> Members:
    """Act as assistant B: list the tools, call one of them, and report the result."""
    async with Client(address) as client:
        listed = await client.list_tools()
        tools = {tool.name: tool.description for tool in listed.tools}
        if tool not in tools:
            raise CheckFailedError(
                f"assistant B does not see the tool {tool}; it sees {', '.join(tools)}"
            )
        reply = await call(client, tool, arguments)
        about = {
            "protocol": client.protocol_version,
            "tools": len(tools),
            "description": tools[tool],
        }
        return {**about, **asdict(reply)}


def cause_of(error: BaseException) -> str:
    """Return the error as one line, without the exception groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, IdeabridgeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    try:
        report = anyio.run(visit, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except* IdeabridgeError as errors:
        sys.exit(cause_of(errors))
    sys.stdout.buffer.write(encode(report))
