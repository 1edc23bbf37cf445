"""Tools of others as the user wants them, as clients see and call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from .serving import ERAS, all_tools, call, configured, http_process, in_memory, plain, text

pytestmark = pytest.mark.anyio

TEXT = {"type": "string"}
CREATE: dict[str, Any] = {
    "name": "create_issue",
    "description": "Create an issue in a repository.",
    "inputSchema": {
        "type": "object",
        "properties": {"owner": TEXT, "repo": TEXT, "title": TEXT},
        "required": ["owner", "repo", "title"],
    },
}
CHANGED: dict[str, Any] = {
    "create_issue": {
        "name": "report_bug",
        "description": "Report a defect of our application.",
        "defaults": {"owner": "acme", "repo": "app"},
        "hide_parameters": ["owner", "repo"],
    },
    "delete_all": {"hide": True},
}
GOT = {"tool": "create_issue", "arguments": {"owner": "acme", "repo": "app", "title": "It hangs"}}


def configuration_of(folder: Path, tools: dict[str, Any]) -> Path:
    entry = {**plain(folder, "bugs", CREATE, "delete_all"), "tools": tools}
    return configured(folder, mcpServers={"bugs": entry}, expose=["modules"], approval="allow_all")


async def test_clients_see_and_call_the_changed_tool(tmp_path: Path) -> None:
    with http_process(configuration_of(tmp_path, CHANGED)) as url:
        for mode in ERAS:
            async with Client(url, mode=mode, read_timeout_seconds=20) as client:
                await seen_and_called(client)


async def seen_and_called(client: Client) -> None:
    called = await call(
        client,
        "run_plan",
        calls=[{"_tool": "report_bug", "title": "It hangs", "_outputPath": "bug"}],
    )
    assert json.loads(called["state"]["bug"]) == GOT
    tools = await all_tools(client)
    assert tools["report_bug"].description == "Report a defect of our application."
    assert tools["report_bug"].input_schema["properties"] == {"title": TEXT}
    assert tools["report_bug"].input_schema["required"] == ["title"]
    assert not {"create_issue", "delete_all"} & tools.keys()
    direct = await client.call_tool("report_bug", {"title": "It hangs"})
    assert json.loads(text(direct)) == GOT

    found = text(await client.call_tool("search_tools", {"words": "report a defect"}))
    assert "bugs.report_bug(title: str)" in found
    assert "create_issue" not in found
    program = "import bugs\nawait bugs.report_bug(title='It hangs')"
    ran = await call(client, "run_plan", program=program)
    assert json.loads(ran["output"]) == GOT


async def test_a_name_that_a_host_has_seen_goes_on_to_work(tmp_path: Path) -> None:
    configuration = configuration_of(tmp_path, {})
    async with in_memory(configuration, "auto") as client:
        assert "create_issue" in await all_tools(client)

    configuration_of(tmp_path, CHANGED)
    async with in_memory(configuration, "auto") as client:
        tools = await all_tools(client)
        assert "report_bug" in tools
        assert "create_issue" not in tools
        direct = await client.call_tool("create_issue", {"title": "It hangs"})
        assert json.loads(text(direct)) == GOT

    configuration_of(tmp_path, {})
    async with in_memory(configuration, "auto") as client:
        tools = await all_tools(client)
        assert "create_issue" in tools
        assert "report_bug" not in tools
