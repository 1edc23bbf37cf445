"""One session of each host: find tools, plan, solve by turns, approve, publish, and call
what was published.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.own_tools import own_tools

from .endpoint import ScriptedModel, Step
from .hosts import HOSTS, Host, missing

BIN = Path(sys.executable).parent
LATER = 30
"""How often a model looks whether a host has listed the tools again; one that does
not looks once."""


def hosts() -> list[Any]:
    marks = {name: missing(package) for name, (package, _) in HOSTS.items()}
    return [
        pytest.param(
            name, host, marks=pytest.mark.skipif(marks[name] is not None, reason=marks[name] or "")
        )
        for name, (_, host) in HOSTS.items()
    ]


def repository(folder: Path) -> Path:
    root = folder / "repository"
    git = ["git", "-C", str(root), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(root)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "First"], check=True)
    return root


def served(folder: Path, root: Path) -> list[str]:
    servers = {
        "git": {
            "command": sys.executable,
            "args": ["-m", "mcp_server_git", "--repository", str(root)],
        },
        "time": {
            "command": sys.executable,
            "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"],
        },
    }
    path = folder / "ideabridge.json"
    path.write_text(json.dumps({"mcpServers": servers, "store": "ideas.sqlite"}))
    return [str(BIN / "ideabridge"), "serve", "--config", str(path)]


def run_in(text: str) -> str:
    found = re.search(r"run_[0-9a-f]{16}", text)
    assert found, text
    return found[0]


def session(
    model: ScriptedModel, root: Path, *, forms: bool, lists_again: bool
) -> Generator[Step, str]:
    repo = {"repo": str(root)}
    found = yield "search_tools", {"words": "git log", "limit": 3}
    assert "git_log" in found, found

    calls = [
        {"_tool": "get_current_time", "timezone": "†input.zone", "_outputPath": "now"},
        {
            "_tool": "convert_time",
            "source_timezone": "†state.now.timezone",
            "time": "12:00",
            "target_timezone": "UTC",
            "_outputPath": "noon",
        },
        {"_tool": "git_log", "repo_path": "†input.repo", "_outputPath": "log"},
        {"_tool": "count", "items": "†state.log", "_outputPath": "size"},
    ]
    output = {"noon": "†state.noon.target.datetime", "size": "†state.size"}
    planned = yield (
        "run_plan",
        {"calls": calls, "input": {**repo, "zone": "Asia/Tokyo"}, "output": output},
    )
    assert "T03:00:00+00:00" in planned, planned

    asked = yield "solve", {"task": "Which branch is it?", "input": repo, "tools": ["git_status"]}
    assert "needs_solution" in asked, asked
    call = {"_tool": "git_status", "repo_path": "†input.repo", "_outputPath": "status"}
    solution: dict[str, Any] = {"calls": [call], "output": None}
    asked = yield "solve", {"run": run_in(asked), "turn": 0, "solution": solution}
    assert "needs_solution" in asked, asked
    solution = {"calls": [], "output": "†state.status"}
    solved = yield "solve", {"run": run_in(asked), "turn": 1, "solution": solution}
    assert "On branch main" in solved, solved

    branch = {"_tool": "git_create_branch", "repo_path": str(root), "branch_name": "made"}
    made = yield "run_plan", {"calls": [branch]}
    if not forms:
        approval = re.search(r"\ba[0-9]+-[0-9a-f]{12}\b", made)
        assert approval, made
        decisions = [{"approval": approval[0], "decision": "approve"}]
        made = yield "decide_approval", {"run": run_in(made), "decisions": decisions}

    assert "Created branch 'made'" in made, made

    publish = {"idea": run_in(planned), "name": "noon_there", "description": "Noon."}
    published = yield "publish_idea", publish
    assert "noon_there" in published, published
    for number in range(LATER if lists_again else 1):
        # Make each call with different arguments, because a host would otherwise take the calls for
        # a loop.
        yield "check_run", {"run": run_in(planned), "wait_s": number / 100}
        if model.named("noon_there") is not None:
            break

    arguments = {**repo, "zone": "Asia/Kolkata"}
    if lists_again:
        called = yield "noon_there", arguments
    else:
        assert model.named("noon_there") is None
        called = yield (
            "run_plan",
            {"calls": [{"_tool": "noon_there", "_module": "idea:noon_there", **arguments}]},
        )

    assert "T06:30:00+00:00" in called, called


@pytest.mark.parametrize(("name", "host"), hosts())
def test_a_session(name: str, host: Host, tmp_path: Path) -> None:
    root = repository(tmp_path)
    codex = name == "codex"
    model = ScriptedModel(lambda model: session(model, root, forms=codex, lists_again=not codex))
    with model.serving() as address:
        host(tmp_path, served(tmp_path, root), address)

    if model.failure is not None:
        raise model.failure
    assert model.finished

    # The host's model must be told exactly what the server tells the host.
    for tool in own_tools(programs=True, every=False):
        offered_name = model.named(tool["name"])
        if offered_name is None:
            # This tool is not offered to a client that shows forms.
            assert codex
            assert tool["name"] == "decide_approval"
            continue

        told = model.offered[offered_name]
        assert told["description"] == tool["description"]
        assert told["parameters"]["properties"].keys() >= tool["inputSchema"]["properties"].keys()

    told = model.offered[model.named("run_plan") or ""]["parameters"]["properties"]
    assert told["output"]["description"]
    types = {alternative["type"] for alternative in told["output"]["anyOf"]}
    assert types == {"object", "array", "string"}
    assert told["calls"]["items"]["additionalProperties"] is True
    assert "_each" in told["calls"]["description"]
