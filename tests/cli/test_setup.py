"""`ideabridge setup`: one command and one question, and `--undo` puts every byte back."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ideabridge.bridge.stored_secrets import (
    SecretOwner,
    remove_secret,
    secret_value,
    stored_secrets,
)
from ideabridge.bridge.trust import is_trusted
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.server.hosts.table import HOSTS, find_host
from ideabridge.server.hosts.translate import is_ourselves
from ideabridge.server.main import main
from tests import preloaded

from .machine import NAMES, TOKEN, Machine, entry, put
from .terminal import Terminal

KILLED = Path(__file__).with_name("killed_setup.py")
QUESTION = "Enter to change nothing: "


@pytest.fixture
def machine(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in ("CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Machine(home)


def own_entry(machine: Machine, host: str) -> Any:
    """The entry of ideabridge in the file of a host, as the host reads it."""
    place = find_host(host).target(HostEnvironment(Path.cwd(), machine.home), "user")
    assert place.path == machine.hosts[host]
    return read_host_text(place.path, place.format).entries(place.keys).get("ideabridge")


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_one_question_puts_eleven_servers_behind_five_hosts(machine: Machine) -> None:
    before = machine.digests()
    terminal = Terminal(Path.cwd(), ["setup"], columns=100)
    terminal.read_until(QUESTION)
    assert machine.digests() == before
    terminal.type("c")
    code, out = terminal.end()
    assert (code, out) == (0, "")
    screen = "\n".join(terminal.screen())
    assert TOKEN not in screen
    assert "github        Claude Code, Cursor," in screen
    assert "Claude Code, github: mcp__github__search (~/.claude/settings.json)" in screen
    assert max(map(len, terminal.screen())) <= 100

    assert tuple(sorted(machine.servers())) == tuple(sorted(NAMES))
    assert machine.servers()["github"]["env"] == {"GREETER_TOKEN": "${secret:github-greeter-token}"}
    assert TOKEN not in machine.own.read_text(encoding="utf-8")
    assert secret_value(SecretOwner(), "github-greeter-token", "github", "") == TOKEN
    entries = [own_entry(machine, host) for host in machine.hosts]
    assert all(one["command"] == entries[0]["command"] for one in entries)
    assert all(one["args"] == ["serve"] for one in entries)

    parameters = StdioServerParameters(
        command=entries[0]["command"], args=entries[0]["args"], env={**os.environ}
    )
    calls = [{"_tool": name, "_module": name, "_outputPath": name} for name in NAMES]

    async def answer() -> Any:
        async with Client(stdio_client(parameters)) as client:
            return (await client.call_tool("run_plan", {"calls": calls})).structured_content

    answered = anyio.run(answer)
    state = answered["state"]
    assert state == {
        **{name: name for name in NAMES},
        "github": "github [secret:github-greeter-token]",
    }


def test_undo_puts_every_byte_back(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    before = machine.digests()
    assert main(["setup", "--yes"]) == 0
    shown = capsys.readouterr()
    assert TOKEN not in shown.out + shown.err
    assert "`ideabridge setup --undo` restores everything" in shown.err
    after = machine.digests()
    assert {path for path in before if before[path] != after[path]} == {
        str(path) for path in machine.hosts.values()
    }

    assert main(["setup", "--yes"]) == 0
    assert "everything is already set up; nothing was changed" in capsys.readouterr().err
    assert machine.digests() == after

    assert main(["setup", "--undo", "--yes", "--json"]) == 0
    steps = printed(capsys)["steps"]
    assert {step["result"] for step in steps} == {"restored"}
    assert machine.digests() == before
    assert stored_secrets() == []
    assert main(["setup", "--undo"]) == 0
    assert "there is no setup to undo" in capsys.readouterr().err


def test_what_one_client_forbids_for_all_is_shown(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    gemini = json.loads(machine.hosts["gemini-cli"].read_text(encoding="utf-8"))
    gemini["mcpServers"]["docs"] = entry("docs", includeTools=["find", "show"])
    gemini["mcpServers"]["time"] = entry("time", excludeTools=["set"])
    machine.hosts["gemini-cli"].write_text(json.dumps(gemini), encoding="utf-8")

    assert main(["setup", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert (
        "docs: some of its clients do not allow all tools; ideabridge calls only these: find, show"
        in out
    )
    assert "time: some of its clients forbid tools; ideabridge never calls these: set" in out
    assert "They apply to the calls that a client makes itself" in out
    assert main(["setup", "--yes"]) == 0
    assert "2. `ideabridge servers list` shows" in capsys.readouterr().err
    assert machine.servers()["docs"]["allow"] == ["find", "show"]
    assert machine.servers()["time"]["deny"] == ["set"]


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_setup_that_was_killed_can_be_undone(machine: Machine, stride: int) -> None:
    before = machine.digests()
    partly = 0
    for count in range(1, 100, stride):
        command = preloaded.python(KILLED, str(count), "--yes")
        done = subprocess.run(command, check=False, capture_output=True, timeout=60)
        changed = machine.digests() != before
        partly += changed and done.returncode != 0
        assert main(["setup", "--undo", "--yes"]) == 0
        assert machine.digests() == before, count
        assert stored_secrets() == []
        if done.returncode == 0:
            assert changed
            break

    # The process was killed in the middle of several of its steps.
    assert partly > 2


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
def test_an_undo_that_was_killed_can_be_repeated(machine: Machine, stride: int) -> None:
    before = machine.digests()
    codes: list[int] = []
    for count in range(0, 100, stride):
        assert main(["setup", "--yes"]) == 0
        command = preloaded.python(KILLED, str(count), "--undo", "--yes")
        done = subprocess.run(command, check=False, capture_output=True, timeout=60)
        assert main(["setup", "--undo", "--yes"]) == 0
        assert machine.digests() == before, count
        assert stored_secrets() == []
        codes.append(done.returncode)
        if codes[-1] == 0:
            break

    assert codes[-1] == 0
    assert len(codes) > 1


def test_what_a_host_wrote_since_stays(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", "--yes"]) == 0
    claude = machine.hosts["claude-code"]
    document = json.loads(claude.read_text(encoding="utf-8"))
    document["numStartups"] = 8
    document["mcpServers"]["later"] = {"command": "later"}
    claude.write_text(json.dumps(document, indent=2), encoding="utf-8")
    codex = machine.hosts["codex"]
    codex.write_text(codex.read_text(encoding="utf-8") + "# written by Codex\n", encoding="utf-8")
    before = {host: path.read_bytes() for host, path in machine.hosts.items()}
    capsys.readouterr()

    assert main(["setup", "--undo", "--yes", "--json"]) == 0
    steps = {step["what"]: step for step in printed(capsys)["steps"]}
    assert steps[str(claude)]["result"] == "edited"
    assert "has changed since then, so only the entries" in steps[str(claude)]["text"]
    assert steps[str(codex)]["result"] == "edited"
    del document["mcpServers"]["ideabridge"]
    assert json.loads(claude.read_text(encoding="utf-8")) == document
    text = codex.read_text(encoding="utf-8")
    assert "ideabridge" not in text
    assert text.startswith('model = "m"  # the best\n')
    assert text.endswith("# written by Codex\n")
    assert {
        host for host, data in before.items() if machine.hosts[host].read_bytes() == data
    } == set()


def test_moved_servers_leave_their_hosts_and_come_back(machine: Machine) -> None:
    before = machine.digests()
    terminal = Terminal(Path.cwd(), ["setup"])
    terminal.read_until(QUESTION)
    terminal.type("m")
    assert terminal.end()[0] == 0
    for host, path in machine.hosts.items():
        place = find_host(host).target(HostEnvironment(Path.cwd(), machine.home), "user")
        assert list(read_host_text(path, place.format).entries(place.keys)) == ["ideabridge"]
    assert set(machine.servers()) == set(NAMES)

    cursor = machine.hosts["cursor"]
    cursor.write_text(cursor.read_text(encoding="utf-8") + "\n// Cursor\n", encoding="utf-8")
    assert main(["setup", "--undo", "--yes"]) == 0
    after = machine.digests()
    assert {path for path in before if before[path] != after[path]} == {str(cursor)}
    restored = read_host_text(cursor, "jsonc").entries(["mcpServers"])
    assert set(restored) == {"browser", "gh", "files"}
    assert restored["gh"] == entry("github", env={"GREETER_TOKEN": TOKEN})


def test_servers_of_the_project_need_a_person(
    machine: Machine, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = put(project / ".mcp.json", json.dumps({"mcpServers": {"build": entry("build")}}))
    # This is what an assistant shows before it runs the command without --dry-run.
    readme = Path(__file__).parents[2] / "README.md"
    text = " ".join(readme.read_text(encoding="utf-8").replace("\n> ", "\n").split())
    assert "`ideabridge setup --yes --dry-run`" in text
    assert main(["setup", "--yes", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert (
        "build (Claude Code): belongs to the project; to set it up, run `ideabridge setup` "
        "without --yes"
    ) in out
    assert "the project's configuration" not in out

    assert main(["setup", "--yes", "--json"]) == 0
    answer = printed(capsys)
    states = {server["name"]: server["state"] for server in answer["servers"]}
    assert states.pop("build") == "needs_person"
    assert set(states.values()) == {"new"}
    assert not (project / "ideabridge.json").exists()

    terminal = Terminal(project, ["setup"])
    terminal.read_until(QUESTION)
    assert "1 server into the project's configuration" in terminal.seen
    terminal.type("c")
    assert terminal.end()[0] == 0
    assert is_trusted(project / "ideabridge.json")
    assert set(json.loads((project / "ideabridge.json").read_text())["mcpServers"]) == {"build"}
    assert json.loads(shared.read_text()) == {"mcpServers": {"build": entry("build")}}

    assert main(["setup", "--undo", "--yes"]) == 0
    assert not (project / "ideabridge.json").exists()
    put(project / "ideabridge.json", "{}")
    assert not is_trusted(project / "ideabridge.json")


def test_a_project_file_that_nobody_trusts_receives_nothing(
    machine: Machine, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(project / ".mcp.json", json.dumps({"mcpServers": {"build": entry("build")}}))
    file = put(project / "ideabridge.json", '{"mcpServers": {"evil": {"command": "evil"}}}')
    assert main(["setup", "--dry-run", "--json"]) == 0
    answer = printed(capsys)
    assert "build" not in [server["name"] for server in answer["servers"]]
    assert f"{file} is not trusted" in answer["refused"][0]["why"]


def test_without_a_person_nothing_is_changed(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = machine.digests()
    assert main(["setup"]) == 2
    shown = capsys.readouterr()
    assert "github" in shown.out
    assert "`ideabridge setup --yes` changes your own files" in shown.err
    assert main(["setup", "--json"]) == 2
    assert printed(capsys)["done"] is False
    assert main(["setup", "--dry-run"]) == 0
    assert TOKEN not in capsys.readouterr().out
    assert machine.digests() == before
    assert not (machine.home / ".local").exists()


def test_a_damaged_file_affects_no_other(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    cursor = machine.hosts["cursor"]
    put(cursor, '{"mcpServers": {"browser": {"command": "b"}, "x": ')
    before = cursor.read_bytes()
    (machine.home / ".codeium" / "windsurf").mkdir(parents=True)
    assert main(["setup", "--yes", "--json"]) == 0
    answer = printed(capsys)
    states = {client["name"]: client["state"] for client in answer["clients"]}
    assert states.pop("cursor") == "blocked"
    assert set(states.values()) == {"new"}
    assert cursor.read_bytes() == before
    assert "browser" in machine.servers()
    windsurf = machine.home / ".codeium" / "windsurf" / "mcp_config.json"
    assert "ideabridge" in windsurf.read_text(encoding="utf-8")
    assert main(["setup", "--undo", "--yes"]) == 0
    assert not windsurf.exists()


def test_the_undo_keeps_what_the_user_added_since(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", "--yes"]) == 0
    document = json.loads(machine.own.read_text(encoding="utf-8"))
    document["mcpServers"]["mine"] = {"command": "mine"}
    machine.own.write_text(json.dumps(document), encoding="utf-8")
    assert main(["setup", "--undo", "--yes"]) == 0
    assert "only the entries of the setup were restored" in capsys.readouterr().err
    assert set(machine.servers()) == {"mine"}


def test_a_file_that_several_hosts_read_counts_for_those_that_are_here(
    machine: Machine, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(project / ".mcp.json", json.dumps({"mcpServers": {"build": entry("build")}}))
    # Visual Studio reads this file on Windows. Elsewhere, it says nothing about Visual Studio.
    put(machine.home / ".mcp.json", "{}")
    assert main(["setup", "--dry-run", "--json"]) == 0
    answer = printed(capsys)
    assert [client["name"] for client in answer["clients"]] == [
        "claude-code",
        "codex",
        "cursor",
        "vscode",
        "gemini-cli",
    ]
    (build,) = [server for server in answer["servers"] if server["name"] == "build"]
    assert [source["client"] for source in build["from"]] == ["claude-code"]


def test_every_host_gets_an_entry_and_loses_it_again(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = HostEnvironment(project, home)
    places = {
        host.name: host.target(environment, "user")
        for host in HOSTS
        if not host.platforms or sys.platform in host.platforms
    }
    for place in places.values():
        place.path.parent.mkdir(parents=True, exist_ok=True)
        if place.path.parent == home:
            put(place.path, "{}")

    before = sorted(str(path) for path in home.rglob("*"))
    assert main(["setup", "--yes", "--json"]) == 0
    states = {client["name"]: client["state"] for client in printed(capsys)["clients"]}
    assert states == dict.fromkeys(places, "new")
    for place in places.values():
        ours = read_host_text(place.path, place.format).entries(place.keys)["ideabridge"]
        assert isinstance(ours, dict)
        assert is_ourselves(ours), place.path

    assert main(["setup", "--yes", "--json"]) == 0
    assert printed(capsys)["done"] is False
    assert main(["setup", "--undo", "--yes"]) == 0
    after = [str(path) for path in home.rglob("*") if not path.is_relative_to(home / ".local")]
    assert sorted(after) == [path for path in before if path != str(home / ".local")]


def test_the_users_own_file_gets_its_bytes_and_its_mode_back(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = json.dumps(entry("notes"))
    text = (
        f'{{\n  // mine\n  "mcpServers": {{"memo": {notes}, "files": {{"command": "other"}}}}\n}}'
    )
    put(machine.own, text).chmod(0o644)
    assert main(["setup", "--yes", "--json"]) == 0
    servers = {server["name"]: server for server in printed(capsys)["servers"]}
    # `notes` of Claude Code is the same server as the user's `memo`, and the name `files` is taken.
    assert servers["memo"]["state"] == "present"
    assert "notes" not in servers
    assert servers["files_claude_code"]["state"] == "new"
    changed = machine.own.read_text(encoding="utf-8")
    assert changed.startswith('{\n  // mine\n  "mcpServers": {"memo"')
    assert stat.S_IMODE(machine.own.stat().st_mode) == 0o600

    assert main(["setup", "--undo", "--yes"]) == 0
    assert machine.own.read_text(encoding="utf-8") == text
    assert stat.S_IMODE(machine.own.stat().st_mode) == 0o644


def test_a_secret_that_cannot_be_read_is_not_moved_away(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", "--yes"]) == 0
    assert remove_secret(SecretOwner(), "github-greeter-token")
    windsurf = machine.home / ".codeium" / "windsurf" / "mcp_config.json"
    put(windsurf, json.dumps({"mcpServers": {"new": entry("new")}}))
    terminal = Terminal(Path.cwd(), ["setup"])
    terminal.read_until(QUESTION)
    assert "github: a secret of your entry cannot be read" in terminal.seen
    terminal.type("m")
    assert terminal.end()[0] == 0
    assert TOKEN in machine.hosts["cursor"].read_text(encoding="utf-8")
    assert "files" not in json.loads(machine.hosts["claude-code"].read_text())["mcpServers"]
    assert set(machine.servers()) == {*NAMES, "new"}
