"""Exposed tools: those of modules and of tool files as tools of this server."""

from pathlib import Path

import anyio
import pytest
from mcp import Client

from .serving import BIN, ERAS, TIME, all_tools, call, configured, http_process, refused, text

pytestmark = pytest.mark.anyio


async def test_modules_and_tool_files_are_called_directly(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    await anyio.run_process(["git", "init", "-q", str(repository)])
    git = {"command": str(BIN / "mcp-server-git"), "args": ["--repository", str(repository)]}
    configuration = configured(tmp_path, mcpServers={"git": git, "time": TIME}, expose=["modules", "tools"])
    with http_process(configuration) as url:
        for number, mode in enumerate(ERAS, 1):
            async with Client(url, mode=mode, read_timeout_seconds=20) as client:
                await called_directly(client, repository, tmp_path / mode, number)


async def called_directly(client: Client, repository: Path, note: Path, number: int) -> None:
    """What is exposed is called; this is the client of that number."""
    # A plan that names a module waits for it to come up.
    told = await call(
        client,
        "run_plan",
        calls=[
            {"_tool": "git_status", "_module": "git", "repo_path": str(repository), "_outputPath": "git"},
            {"_tool": "get_current_time", "_module": "time", "timezone": "UTC", "_outputPath": "time"},
        ],
    )
    assert told["errors"] == []
    tools = await all_tools(client)
    assert {"add", "git_status", "git_commit", "get_current_time", "run_plan"} <= tools.keys()
    assert not any("$ref" in tool.model_dump_json() for tool in tools.values())
    annotations = tools["git_status"].annotations
    assert annotations is not None
    assert annotations.read_only_hint is True
    result = await client.call_tool("git_status", {"repo_path": str(repository)})
    assert not result.is_error
    assert "No commits yet" in text(result) or "branch" in text(result)
    assert "repo_path" in await refused(client, "git_status", path=".")
    assert "timezone" in await refused(client, "get_current_time", timezone="Nowhere/None")
    assert await call(client, "add", a=1, b=2) == {"result": 3}
    assert await call(client, "count_words", text="two words") == {"words": 2}
    assert "bad luck" in await refused(client, "fail", message="bad luck")
    # No approval, no journal: a direct call is the host's own decision.
    assert await call(client, "write_note", path=str(note), text="x") == {"result": 1}
    assert len((await call(client, "check_run"))["runs"]) == number
    # A name that is taken is not published over.
    assert "choose another" in await refused(client, "publish_idea", idea=told["run"], name="git_status")
