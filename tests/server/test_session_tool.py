"""What an assistant did by direct calls of real servers becomes a tool, which others call with other arguments."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.lifting.world import git
from tests.npm import needs, program
from tests.server.serving import configured, over_stdio, served, text
from tests.server.test_inspector import Inspector

pytestmark = [
    pytest.mark.anyio,
    needs("@modelcontextprotocol/inspector"),
    needs("@modelcontextprotocol/server-filesystem"),
]

BIN = Path(sys.executable).parent


def repository(folder: Path, name: str, subject: str) -> Path:
    """A repository with two commits, of which the later one has this subject."""
    repo = folder / name
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    for line in ("begin", subject):
        (repo / "notes.txt").write_text(f"{name}: {line}\n", encoding="utf-8")
        git(repo, "add", "notes.txt")
        who = ("-c", f"user.name={name.title()}", "-c", f"user.email={name}@example.org")
        git(repo, *who, "commit", "-q", "-m", line)
    return repo


def modules(folder: Path) -> dict[str, Any]:
    """The git server and the file server."""
    files, *arguments = program("mcp-server-filesystem")
    return {
        "git": preloaded.module(BIN / "mcp-server-git"),
        "files": {"command": files, "args": [*arguments, str(folder.resolve())]},
    }


async def test_direct_calls_of_git_and_files_become_a_tool_that_the_inspector_calls(tmp_path: Path) -> None:
    oak, elm = repository(tmp_path, "oak", "Plant the oak"), repository(tmp_path, "elm", "Prune the elm")
    (elm / "more.txt").write_text("elm: more\n", encoding="utf-8")
    configuration = configured(tmp_path, mcpServers=modules(tmp_path), expose=["modules"])
    async with over_stdio(configuration, "legacy") as client:
        # One after the other, as an assistant does that copies what it sees.
        log = text(await client.call_tool("git_log", {"repo_path": str(oak), "max_count": 1}))
        found = re.search(r"[0-9a-f]{40}", log)
        assert found is not None, log
        shown = text(await client.call_tool("git_show", {"repo_path": str(oak), "revision": found.group()}))
        assert "Plant the oak" in shown
        notes = await client.call_tool("read_text_file", {"path": str(oak / "notes.txt")})
        assert "oak: Plant the oak" in text(notes)
        told = await client.call_tool("publish_idea", {"idea": "session", "name": "latest", "calls": [0, 1]})
        assert not told.is_error, text(told)
        report = text(told)
        assert len(report) < 6_000
        assert "calls.1.revision" in report

        again = text(await client.call_tool("latest", {}))
        assert "Plant the oak" in again
    inspector = Inspector(tmp_path, ["--", *served(configuration)], "legacy")
    (tool,) = [one for one in inspector("tools/list")["tools"] if one["name"] == "latest"]
    assert tool["annotations"]["readOnlyHint"] is True
    assert set(tool["inputSchema"]["properties"]) == {"repo_path", "max_count"}
    answer = inspector.call("latest", repo_path=str(elm))
    assert "Prune the elm" in json.dumps(answer["content"])
    assert "Plant the oak" not in json.dumps(answer["content"][0])
    # One run cannot show where the revision comes from, and the answer says so.
    assert "calls.1.revision" in json.dumps(answer["_meta"]["ideabridge/assumed"])
