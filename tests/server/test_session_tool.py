"""What an assistant did by direct calls of real servers becomes a tool, which others call with
other arguments.
"""

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


PROGRAM = """
import re
import git

log = await git.git_log(repo_path=input["repo_path"], max_count=1)
revision = re.search("[0-9a-f]{40}", log).group()
await git.git_show(repo_path=input["repo_path"], revision=revision)
"""


def latest(inspector: Inspector) -> dict[str, Any]:
    """The tool as the Inspector lists it."""
    [tool] = [listed for listed in inspector("tools/list")["tools"] if listed["name"] == "latest"]
    return tool


async def test_direct_calls_of_git_and_files_become_a_tool_that_the_inspector_calls(
    tmp_path: Path,
) -> None:
    oak = repository(tmp_path, "oak", "Plant the oak")
    elm = repository(tmp_path, "elm", "Prune the elm")
    (elm / "more.txt").write_text("elm: more\n", encoding="utf-8")
    configuration = configured(tmp_path, mcpServers=modules(tmp_path), expose=["modules"])
    async with over_stdio(configuration, "legacy") as client:
        # Make the calls one after the other, as an assistant does that copies what it sees.
        log = text(await client.call_tool("git_log", {"repo_path": str(oak), "max_count": 1}))
        found = re.search(r"[0-9a-f]{40}", log)
        assert found is not None, log
        shown = text(
            await client.call_tool("git_show", {"repo_path": str(oak), "revision": found.group()})
        )
        assert "Plant the oak" in shown
        notes = await client.call_tool("read_text_file", {"path": str(oak / "notes.txt")})
        assert "oak: Plant the oak" in text(notes)
        session = {"idea": "session", "name": "latest", "calls": [0, 1]}
        published = await client.call_tool("publish_idea", session)
        assert not published.is_error, text(published)
        assert len(text(published)) < 6_000
        # The revision is inside a text, and copied values do not settle that.
        assert "needs_program" in text(published)
        assert "calls.1.revision" in text(published)

    inspector = Inspector(tmp_path, ["--", *served(configuration)], "legacy")
    tool = latest(inspector)
    assert tool["annotations"]["readOnlyHint"] is True
    assert set(tool["inputSchema"]["properties"]) == {"repo_path", "max_count", "revision"}
    # Without a program, the recorded revision is used, which the other repository does not have.
    # The Inspector also checks the structured content of errors against the output schema: it shows
    # what failed and what was assumed.
    failed = inspector.call("latest", 5, repo_path=str(elm))
    assert failed["isError"] is True
    assert "could not be resolved" in json.dumps(failed["content"])
    assert "a part of it appeared in an earlier text" in json.dumps(failed["content"])
    assert "calls.1.revision" in json.dumps(failed["_meta"]["ideabridge/assumed"])
    assert failed["_meta"]["ideabridge/structured"]["status"] == "failed"

    async with over_stdio(configuration, "legacy") as client:
        answer = {
            "program": PROGRAM,
            "inputs": [{"repo_path": str(oak)}],
            "description": "Show the newest commit.",
        }
        [run] = re.findall(r"idea=(run_[0-9a-f]+)", text(published))
        improved = await client.call_tool("publish_idea", {"idea": run, "name": "latest", **answer})
        assert not improved.is_error, text(improved)
        again = text(await client.call_tool("latest", {"repo_path": str(oak)}))
        assert "Plant the oak" in again

    assert latest(inspector)["inputSchema"]["required"] == ["repo_path"]
    shown = inspector.call("latest", repo_path=str(elm))
    assert not shown.get("isError")
    assert "Prune the elm" in json.dumps(shown["content"])
    assert "Plant the oak" not in json.dumps(shown["content"])
