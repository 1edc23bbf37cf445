"""`ideabridge setup` in a repository whose author tries to get a server of theirs started, or to
change what the user has everywhere.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.trust import MAX_FILE_BYTES, is_trusted, trust_file
from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.server.hosts.table import HOSTS
from ideabridge.server.main import main
from ideabridge.server.setup.execution import SetupError, carry_out
from ideabridge.server.setup.inventory import take_inventory
from ideabridge.server.setup.plan import SetupPlan, plan_setup
from ideabridge.server.setup.record import new_record

EVIL = {"command": "/bin/evil", "args": ["now"]}


def put(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.fixture
def own(home: Path) -> Path:
    """The user's own configuration, which exists, and has no servers."""
    return put(home / ".config" / "ideabridge" / "ideabridge.json", {})


def servers(own: Path) -> Any:
    return json.loads(own.read_text(encoding="utf-8")).get("mcpServers", {})


def planned(home: Path, project: Path) -> SetupPlan:
    return plan_setup(take_inventory(HostEnvironment(project, home)), ["ideabridge", "serve"])


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_no_file_in_the_project_adds_to_what_the_user_has_everywhere(
    host: Any, home: Path, project: Path, own: Path
) -> None:
    files = [
        file
        for file in host.files(HostEnvironment(project, home))
        if file.path.is_relative_to(project)
    ]
    for file in files:
        if file.format != "yaml":
            content: Any = {"evil": EVIL}
            for key in reversed(file.keys):
                content = {key: content}
            put(file.path, content)

    plan = planned(home, project)
    for planned_host in plan.hosts:
        assert planned_host.host.name != host.name, "a file of the project does not show a host"
    assert [one for one in plan.servers if one.target.is_own] == []
    assert main(["setup", "--yes", "--json"]) == 0
    assert servers(own) == {}


def test_a_link_to_the_users_configuration_does_not_make_a_project_the_users(
    home: Path, project: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "ideabridge.json").symlink_to(os.path.relpath(own, project))
    put(project / ".mcp.json", {"mcpServers": {"evil": EVIL}})
    assert main(["setup", "--yes", "--json"]) == 0
    assert servers(own) == {}
    refused = json.loads(capsys.readouterr().out)["refused"]
    assert [one["name"] for one in refused if "leads out of the project" in one["why"]] == [
        "evil"
    ] * len(refused)
    assert refused


def test_a_project_does_not_change_a_server_that_the_user_has_everywhere(
    home: Path, project: Path, own: Path
) -> None:
    mine = {"command": "/bin/mine"}
    put(home / ".claude.json", {"mcpServers": {"off": {**mine, "disabled": True}}})
    # Cursor comes after Claude Code, so its server is merged with the user's.
    put(project / ".cursor" / "mcp.json", {"mcpServers": {"off": {**mine, "deny": ["*"]}}})
    [server] = planned(home, project).servers
    assert server.titles == ["Claude Code", "Cursor"]
    assert main(["setup", "--yes", "--json"]) == 0
    assert servers(own) == {"off": {**mine, "disabled": True}}


def test_an_entry_that_is_not_understood_is_left_out_even_behind_one_of_the_same_name(
    home: Path, project: Path, own: Path
) -> None:
    half_read = {"command": "/bin/other", "env": {"NAME": [1]}, "disabled": True}
    put(
        home / ".claude.json",
        {
            "mcpServers": {"one": half_read},
            "projects": {str(project): {"mcpServers": {"one": {"command": "/bin/one"}}}},
        },
    )
    assert main(["setup", "--yes", "--json"]) == 0
    assert [entry["command"] for entry in servers(own).values()] == ["/bin/one"]


def test_an_entry_that_json_cannot_hold_takes_no_other_along(home: Path, own: Path) -> None:
    bad = {"command": "/bin/one", "args": ["half \ud800 of a pair"]}
    put(
        home / ".cursor" / "mcp.json", {"mcpServers": {"bad": bad, "good": {"command": "/bin/two"}}}
    )
    assert main(["setup", "--yes", "--json"]) == 0
    assert servers(own) == {"good": {"command": "/bin/two"}}


@pytest.mark.parametrize("was_trusted", [False, True])
def test_what_is_written_while_the_person_reads_is_not_trusted(
    home: Path, project: Path, own: Path, was_trusted: bool
) -> None:
    put(project / ".mcp.json", {"mcpServers": {"good": {"command": "/bin/true"}}})
    file = project / "ideabridge.json"
    if was_trusted:
        trust_file(put(file, {}))
    plan = planned(home, project)
    assert [server.name for server in plan.new_servers] == ["good"]

    put(file, {"mcpServers": {"evil": EVIL}})
    with pytest.raises(SetupError, match="another program has just changed it"):
        carry_out(plan, "copy", new_record())
    assert not is_trusted(file)
    assert servers(file) == {"evil": EVIL}
    assert servers(own) == {}


@pytest.mark.parametrize("kind", ["malformed", "pipe", "large", "folder"])
def test_a_project_file_that_cannot_be_read_keeps_nobody_from_setting_up(
    home: Path, project: Path, own: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "ideabridge.json"
    match kind:
        case "malformed":
            file.write_text('{"mcpServers":', encoding="utf-8")
        case "pipe":
            os.mkfifo(file)
        case "large":
            file.write_text(" " * (MAX_FILE_BYTES + 1), encoding="utf-8")
        case _:
            file.mkdir()

    put(home / ".cursor" / "mcp.json", {"mcpServers": {"mine": {"command": "/bin/true"}}})
    put(project / ".mcp.json", {"mcpServers": {"theirs": EVIL}})
    assert main(["setup", "--yes", "--json"]) == 0
    assert servers(own) == {"mine": {"command": "/bin/true"}}
    refused = json.loads(capsys.readouterr().out)["refused"]
    assert {one["name"] for one in refused} == {"theirs"}
    assert all(str(file) in one["why"] for one in refused)


def test_no_file_of_a_project_writes_a_line_of_setup(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home / ".cursor" / "mcp.json", {"mcpServers": {"mine": {"command": "/bin/true"}}})
    rules = project / ".cursor" / "cli.json"
    rules.parent.mkdir()
    rules.write_text(f"Mcp(mine:\n\nFORGED\n\x1b[2J{'x' * 5000})", encoding="utf-8")
    assert main(["setup", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "FORGED" in shown
    assert not any(line.lstrip().startswith("FORGED") for line in shown.splitlines())
    assert "\x1b" not in shown
    assert "x" * 500 not in shown


def test_an_undo_leaves_no_copies_of_secrets(home: Path, project: Path) -> None:
    token = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    entry = {"command": "/bin/true", "env": {"TOKEN": token}}
    theirs = put(home / ".cursor" / "mcp.json", {"mcpServers": {"mine": entry}})
    before = theirs.read_bytes()
    assert main(["setup", "--yes"]) == 0
    assert main(["setup", "--undo", "--yes"]) == 0
    assert theirs.read_bytes() == before
    files = [file for file in home.rglob("*") if file.is_file()]
    assert [file for file in files if token in file.read_text(encoding="utf-8")] == [theirs]
    assert list(home.rglob("*.bak")) == []
