"""Lists that are too long for a client: a page has a bound in bytes, whatever the tools and
ideas in it are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from ideabridge.bridge.context.preview import MAX_DESCRIPTION
from ideabridge.server.catalogue import PAGE_BYTES
from tests.server.serving import ERAS, call, configured, over_stdio, plain

pytestmark = pytest.mark.anyio


def tool(name: str, size: int) -> dict[str, Any]:
    """A tool whose schema has about `size` bytes."""
    properties = {
        f"p{number}": {"type": "string", "description": "x" * 900} for number in range(size // 1000)
    }
    return {
        "name": name,
        "description": "d" * 9000,
        "inputSchema": {"type": "object", "properties": properties},
    }


async def pages(client: Client) -> list[list[Any]]:
    found: list[list[Any]] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        size = sum(
            len(json.dumps(one.model_dump(mode="json", by_alias=True, exclude_none=True)))
            for one in page.tools
        )
        assert size < 1.2 * PAGE_BYTES
        found.append(list(page.tools))
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_eight_megabytes_of_tools_come_in_pages(tmp_path: Path) -> None:
    tools = [tool(f"tool_{number}", 100_000) for number in range(80)]
    configuration = configured(
        tmp_path,
        mcpServers={"m": plain(tmp_path, "m", *tools, tool("huge", 200_000))},
        expose=["modules"],
        approval="allow_all",
    )
    async with over_stdio(configuration, "auto") as client:
        found = await pages(client)
        names = [one.name for page in found for one in page]
        assert len(names) == len(set(names))
        assert {one["name"] for one in tools} < set(names)
        assert len(found) > 10
        by_name = {one.name: one for page in found for one in page}
        assert len((by_name["tool_0"].description or "").encode()) <= MAX_DESCRIPTION
        assert "is not shown" in by_name["huge"].input_schema["description"]
        # What is not shown still applies.
        refused = await client.call_tool("huge", {"p0": 5})
        assert refused.is_error


@pytest.mark.parametrize("mode", ERAS)
async def test_the_first_page_has_what_fits_and_ideas_before_tools_of_servers(
    tmp_path: Path, mode: str
) -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}
    tools: list[str | dict[str, Any]] = [
        {"name": f"tool_{number}", "inputSchema": parameters, "description": "d" * 300}
        for number in range(600)
    ]
    configuration = configured(
        tmp_path, mcpServers={"m": plain(tmp_path, "m", *tools)}, expose=["modules"]
    )
    async with over_stdio(configuration, mode) as client:
        # Before the first call, listing tools waits for the tools of servers.
        await client.list_tools(cache_mode="bypass")
        for number in range(3):
            await call(client, "run_plan", calls=[], output=number, save_as=f"idea_{number}")

        page = await client.list_tools(cache_mode="bypass")
        # Several clients read no further page.
        assert page.next_cursor is None
        names = [listed.name for listed in page.tools]
        assert set(names[:9]) >= {"search_tools", "run_plan", "idea_0", "idea_1", "idea_2"}
        assert names[9:] == [f"tool_{number}" for number in range(600)]


async def test_large_ideas_come_in_pages(tmp_path: Path) -> None:
    properties = {
        f"p{number}": {"type": "string", "description": "x" * 900} for number in range(100)
    }
    async with over_stdio(configured(tmp_path), "auto") as client:
        for number in range(20):
            given: dict[str, Any] = dict.fromkeys(properties, "")
            await call(
                client,
                "run_plan",
                calls=[],
                input=given,
                output=[f"†input.p{number}"],
                save_as=f"idea_{number}",
            )
        names = [one.name for page in await pages(client) for one in page]
        assert len(names) == len(set(names))
        assert {f"idea_{number}" for number in range(20)} < set(names)
        listed: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_resources(cursor=cursor)
            listed += [one.name for one in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(listed) == sorted(f"idea_{number}" for number in range(20))
