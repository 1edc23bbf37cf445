"""Assistant: what stands in for a host's model, an MCP client that knows nothing of ideabridge but the protocol.

`python -m ideabridge.server.demo.assistant ADDRESS TOOL INPUT` is assistant B: a process of its own, over HTTP.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
from mcp import Client

from ideabridge.tools.encoding import JSONObject, encode
from ideabridge.tools.errors import IdeabridgeError

WIDTH: Final = 40
"""Characters of the longest bar."""

_NOTE: Final = re.compile(r"(?P<call>\S+) (?P<what>started|done|failed)\b")


class CheckFailedError(IdeabridgeError):
    """Something the demo did went wrong, or an answer is not what git says."""


@dataclass(slots=True)
class Bar:
    """One call. Times are seconds since its plan was handed over."""

    call: str
    started: float
    finished: float | None = None
    failed: bool = False

    @property
    def end(self) -> float:
        """When it ended; where that was not reported, when it began."""
        return self.finished if self.finished is not None else self.started

    def to_json(self) -> JSONObject:
        """The bar, for machines."""
        return {"call": self.call, "started": self.started, "finished": self.end, "failed": self.failed}


@dataclass(slots=True)
class Answer:
    """What came back from one `tools/call`.

    Attributes:
        content: the structured content.
        bytes: of the whole result on the wire: what a model would have had to read.
        seconds: from the request to the answer.
        bars: the calls the server reported meanwhile, by its progress notifications.
    """

    content: JSONObject
    bytes: int
    seconds: float
    bars: list[Bar]


async def tools_of(client: Client) -> dict[str, str]:
    """Every tool the server offers now, with its description."""
    page = await client.list_tools(cache_mode="bypass")
    found = {tool.name: tool.description or "" for tool in page.tools}
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor, cache_mode="bypass")
        found |= {tool.name: tool.description or "" for tool in page.tools}
    return found


async def call(client: Client, tool: str, arguments: JSONObject) -> Answer:
    """Call a tool.

    Raises:
        CheckFailedError: it answered with an error.
    """
    began = time.monotonic()
    bars: dict[str, Bar] = {}

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        note = _NOTE.match(message or "")
        if note is not None:
            now = time.monotonic() - began
            bar = bars.setdefault(note["call"], Bar(note["call"], now))
            if note["what"] != "started":
                bar.finished, bar.failed = now, note["what"] == "failed"

    result = await client.call_tool(tool, cast("dict[str, Any]", arguments), progress_callback=on_progress)
    seconds = time.monotonic() - began
    wire = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    if result.is_error:
        raise CheckFailedError(f"{tool}: {' '.join(block.get('text', '') for block in wire.get('content', []))}")
    content = wire.get("structuredContent")
    if not isinstance(content, dict):
        raise CheckFailedError(f"{tool}: answered without structured content")
    return Answer(cast("JSONObject", content), len(encode(wire)), seconds, list(bars.values()))


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
        begin = min(int((bar.started - first) / whole * width), width - 1)
        length = max(1, round((bar.end - bar.started) / whole * width))
        line = " " * begin + "█" * min(length, width - begin)
        took = (bar.end - bar.started) * 1000
        lines.append(f"{bar.call:<{label}} │{line:<{width}}│ {took:6.0f} ms{' (failed, caught)' if bar.failed else ''}")
    return lines


async def visit(address: str, tool: str, arguments: JSONObject) -> JSONObject:
    """What assistant B does: look at the tools, call one, and report what came."""
    async with Client(address) as client:
        tools = await tools_of(client)
        if tool not in tools:
            raise CheckFailedError(f"assistant B does not see the tool {tool}; it sees {', '.join(tools)}")
        answer = await call(client, tool, arguments)
        return {
            "protocol": client.protocol_version,
            "tools": len(tools),
            "description": tools[tool],
            "content": answer.content,
            "bytes": answer.bytes,
            "seconds": answer.seconds,
            "bars": [bar.to_json() for bar in answer.bars],
        }


def cause_of(error: BaseException) -> str:
    """What went wrong, in one line; task groups wrap what is raised in them."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return str(error) if isinstance(error, IdeabridgeError) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    try:
        seen = anyio.run(visit, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except* IdeabridgeError as errors:
        sys.exit(cause_of(errors))
    sys.stdout.buffer.write(encode(seen))
