"""Assistant: what stands in for a host's model here: an MCP client that knows nothing of us but the protocol.

`python -m ideabridge.server.demo.assistant ADDRESS TOOL INPUT` is assistant B: a process of its own, over HTTP.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ideabridge.server.demo.errors import CheckFailedError
from ideabridge.server.demo.timeline import Bar
from ideabridge.tools.encoding import JSON, JSONObject, encode

_NOTE: Final = re.compile(r"(?P<call>\S+) (?P<what>started|done|failed)\b")


@dataclass(slots=True)
class Answer:
    """What came back from one `tools/call`.

    Attributes:
        content: the structured content.
        bytes: of the whole result on the wire: what a model would have had to read.
        seconds: from asking to answer.
        bars: the calls the server told of meanwhile, by its progress notifications.
    """

    content: JSONObject
    bytes: int
    seconds: float
    bars: list[Bar] = field(default_factory=list[Bar])


class Assistant:
    """One connected client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def protocol(self) -> str:
        """The protocol version agreed on."""
        return self._client.protocol_version

    async def tools(self) -> dict[str, str]:
        """Every tool the server offers now, with its description."""
        found: dict[str, str] = {}
        cursor: str | None = None
        while True:
            page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
            found.update({tool.name: tool.description or "" for tool in page.tools})
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def call(self, tool: str, arguments: JSONObject) -> Answer:
        """Call a tool.

        Raises:
            CheckFailedError: it answered with an error.
        """
        began = time.monotonic()
        bars: dict[str, Bar] = {}

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            note = _NOTE.match(message or "")
            if note is None:
                return
            now = time.monotonic() - began
            if note["what"] == "started":
                bars.setdefault(note["call"], Bar(note["call"], now))
            else:
                bar = bars.setdefault(note["call"], Bar(note["call"], now))
                bar.finished, bar.failed = now, note["what"] == "failed"

        result = await self._client.call_tool(tool, cast("dict[str, Any]", arguments), progress_callback=on_progress)
        seconds = time.monotonic() - began
        wire = cast("JSONObject", result.model_dump(mode="json", by_alias=True, exclude_none=True))
        if result.is_error:
            texts = [str(block.get("text", "")) for block in cast("list[dict[str, Any]]", wire.get("content", []))]
            raise CheckFailedError(f"{tool}: {' '.join(texts)}")
        content = wire.get("structuredContent")
        if not isinstance(content, dict):
            raise CheckFailedError(f"{tool}: answered without structured content")
        return Answer(content, len(encode(wire)), seconds, list(bars.values()))


def outside(folder: Path) -> Path:
    """A folder that is nobody's project, so that the configuration the demo has written counts as given by the user."""
    return Path(folder.absolute().anchor)


@asynccontextmanager
async def over_stdio(command: list[str], *, log: Path) -> AsyncGenerator[Assistant]:
    """An assistant that starts the server itself, as hosts do. The server's stderr goes to `log`."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ), cwd=outside(log))
    with log.open("w", encoding="utf-8") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield Assistant(client)


@asynccontextmanager
async def over_http(address: str) -> AsyncGenerator[Assistant]:
    """An assistant that connects to a server at an address."""
    async with Client(address) as client:
        yield Assistant(client)


async def visit(address: str, tool: str, arguments: JSONObject) -> JSONObject:
    """What assistant B does: look at the tools, call one, tell what came."""
    async with over_http(address) as assistant:
        tools = await assistant.tools()
        if tool not in tools:
            raise CheckFailedError(f"assistant B does not see the tool {tool}; it sees {', '.join(tools)}")
        answer = await assistant.call(tool, arguments)
        bars: list[JSON] = [bar.to_json() for bar in answer.bars]
        return {
            "protocol": assistant.protocol,
            "tools": len(tools),
            "description": tools[tool],
            "content": answer.content,
            "bytes": answer.bytes,
            "seconds": answer.seconds,
            "bars": bars,
        }


def main() -> int:
    """Assistant B: prints what came as one JSON object."""
    from ideabridge.server.cli.console import report
    from ideabridge.server.cli.exits import own_error

    try:
        told = anyio.run(visit, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except Exception as error:
        known = own_error(error)
        if known is None:
            raise
        report(str(known))
        return 1
    sys.stdout.buffer.write(encode(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
