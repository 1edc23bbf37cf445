"""`servers list` and `tools list` start no server whose tools are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.main import main
from tests.modules.starting import Starting, tool
from tests.trusting import write_trusted


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """What `servers list --json` says of each server."""
    capsys.readouterr()
    main(["servers", "list", "--json"])
    listed = json.loads(capsys.readouterr().out)["modules"]
    return {server["name"]: server for server in listed}


def call_once(project: Path) -> None:
    """Run a plan, which stores the lists of the servers that it uses."""
    plan = project / "plan.json"
    plan.write_text(json.dumps({"calls": [{"_tool": "tally", "_module": "m"}]}))
    assert main(["run", "plan.json"]) == 0


def test_a_server_whose_tools_are_stored_is_not_started(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Starting(project)
    eager = Starting(project, "always", start="eager")
    servers: dict[str, Any] = {"m": server.entry, "always": eager.entry}
    write_trusted(project, {"mcpServers": servers, "store": "s", "approval": "allow_all"})
    assert {entry["state"] for entry in shown(capsys).values()} == {"up"}
    assert not (project / "s").exists()
    assert (server.starts, eager.starts) == (1, 1)

    call_once(project)
    starts = server.starts
    servers["broken"] = {"command": "/no/such/program"}
    write_trusted(project, {"mcpServers": servers, "store": "s", "approval": "allow_all"})
    listed = shown(capsys)
    assert listed["m"]["state"] == "idle"
    assert listed["m"]["tools"] == 2
    assert listed["m"]["listed_at"]
    assert listed["m"]["memory"] is None
    assert listed["broken"]["state"] == "failed"
    assert server.starts == starts

    # The server that was started has now stored its list.
    eager_starts = eager.starts
    assert shown(capsys)["always"]["state"] == "idle"
    assert eager.starts == eager_starts

    assert main(["servers", "list"]) == 1
    printed = capsys.readouterr()
    assert "m: starts when it is used; tools as of 20" in printed.out + printed.err
    assert "connecting to 1 server: broken" in printed.err

    # No list is stored for a different entry.
    servers["m"] = {**server.entry, "allow": ["tally"]}
    write_trusted(project, {"mcpServers": servers, "store": "s", "approval": "allow_all"})
    assert shown(capsys)["m"]["state"] == "up"
    assert main(["servers", "test", "m"]) == 0
    assert server.starts == starts + 2


def test_the_names_of_changed_tools_stand_beside_the_real_ones(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Starting(project)
    changes = {"tally": {"name": "count_once"}, "die": {"hide": True}}
    entry = {**server.entry, "tools": changes, "deny": ["count_once"]}
    profiles = {"review": {"servers": ["n"]}}
    write_trusted(project, {"mcpServers": {"m": entry}, "store": "s", "profiles": profiles})
    assert main(["servers", "list", "m", "--json"]) == 0
    shown_server = json.loads(capsys.readouterr().out)
    assert shown_server["tools"] == ["tally", "die"]
    assert shown_server["shown_as"] == {"tally": "count_once"}
    assert shown_server["hidden"] == ["die"]
    assert main(["servers", "list", "m"]) == 0
    printed = capsys.readouterr()
    assert "2: tally (shown as count_once), die (hidden)" in printed.out
    # What matches nothing, or cannot be used, is reported wherever a configuration is read.
    assert "mcpServers.m.deny[0]: 'count_once' is the name that" in printed.err
    assert main(["doctor"]) == 1
    findings = capsys.readouterr().out
    assert "mcpServers.m.deny[0]: 'count_once' is the name that" in findings
    assert "server 'n' is not configured" in findings


def listed_tools(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """What `tools list --json` says."""
    capsys.readouterr()
    assert main(["tools", "list", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def names_of(listed: dict[str, Any]) -> set[str]:
    """The names of the tools of server `m` in the answer of `tools list`."""
    return {tool["name"] for tool in listed["tools"] if tool.get("module") == "m"}


def test_tools_are_listed_without_starting_servers_whose_lists_are_stored(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The server's data is not part of the project, so trust does not depend on it.
    outside = project.parent / "outside"
    outside.mkdir()
    server = Starting(outside, start="eager")
    write_trusted(
        project, {"mcpServers": {"m": server.entry}, "store": "s", "approval": "allow_all"}
    )
    first = listed_tools(capsys)
    assert names_of(first) == {"tally", "die"}
    assert first["stored"] == []
    assert not (project / "s").exists()

    call_once(project)
    starts = server.starts
    later = listed_tools(capsys)
    assert names_of(later) == {"tally", "die"}
    [stored] = later["stored"]
    assert stored["module"] == "m"
    assert stored["listed_at"].startswith("20")
    assert main(["tools", "list", "tally"]) == 0
    printed = capsys.readouterr()
    assert "tally" in printed.out
    assert f"m: tools as of {stored['listed_at']}; --refresh asks it" in printed.err
    assert "connecting" not in printed.err
    assert server.starts == starts

    server.change(tools=[tool("tally"), tool("weigh")])
    assert names_of(listed_tools(capsys)) == {"tally", "die"}
    refreshed = listed_tools(capsys, "--refresh")
    assert names_of(refreshed) == {"tally", "weigh"}
    assert refreshed["stored"] == []
    assert server.starts == starts + 1


def test_a_store_that_cannot_be_read_is_said_and_the_servers_start(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Starting(project)
    (project / "s").write_text("no store")
    write_trusted(project, {"mcpServers": {"m": server.entry}, "store": "s"})
    assert main(["servers", "list"]) == 0
    printed = capsys.readouterr()
    assert "so every server is started" in printed.err
    assert " up" in printed.out
    assert server.starts == 1
