"""`ideabridge setup --shared`: clients connect to one service, and `--undo` takes it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.stored_secrets import stored_secrets
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.server.hosts.table import find_host
from ideabridge.server.main import main
from ideabridge.server.service import service_token, user_service

from .machine import Machine, put
from .terminal import Terminal
from .test_service import free_port, unit_of

Ran = Callable[[], list[str]]


@pytest.fixture
def machine(home: Path, project: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in ("CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Machine(home)


def entry_of(host: str, home: Path) -> Any:
    """The entry of ideabridge in the file of a host, as the host reads it."""
    place = find_host(host).target(HostEnvironment(Path.cwd(), home), "user")
    return read_host_text(place.path, place.format).entries(place.keys).get("ideabridge")


def test_every_client_connects_to_the_service_and_undo_puts_every_byte_back(
    machine: Machine, ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    desktop = put(
        machine.home / ".config" / "Claude" / "claude_desktop_config.json", '{"mcpServers": {}}'
    )
    unit_of(machine.home).parent.mkdir(parents=True)
    before = machine.digests()
    assert main(["setup", "--shared", "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "shares this state with all clients" in shown.out
    assert "A separate ideabridge starts for Claude Desktop" in " ".join(shown.out.split())
    assert machine.digests() == before
    assert stored_secrets() == []

    assert main(["setup", "--shared", "--yes"]) == 0
    shown = capsys.readouterr()
    token = service_token()
    assert token not in shown.out + shown.err
    assert "They connect to the service then" in shown.err
    assert "--user restart ideabridge.service" in ran()
    for host in machine.hosts:
        entry = entry_of(host, machine.home)
        assert "http://127.0.0.1:8787/mcp" in entry.values()
        assert f"Bearer {token}" in json.dumps(entry)
        assert "command" not in entry
    assert json.loads(desktop.read_text())["mcpServers"]["ideabridge"]["args"] == ["serve"]

    after = machine.digests()
    assert main(["setup", "--shared", "--yes"]) == 0
    assert "everything is already set up" in capsys.readouterr().err
    assert machine.digests() == after

    assert main(["setup", "--undo", "--yes"]) == 0
    assert "--user disable --now ideabridge.service" in ran()
    assert machine.digests() == before
    assert stored_secrets() == []


def test_what_started_ideabridge_connects_to_the_service_that_is_there(
    machine: Machine, ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", "--yes"]) == 0
    address = f"127.0.0.1:{free_port()}"
    assert main(["service", "install", address]) == 0
    number = len(ran())
    capsys.readouterr()
    before = machine.digests()
    assert main(["setup", "--shared", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["service"]["state"] == "present"
    assert {client["state"] for client in told["clients"]} == {"replaced"}
    assert service_token() not in json.dumps(told)
    # The service is not started again.
    assert not any("restart" in line for line in ran()[number:])
    url = f"http://{address}/mcp"
    assert entry_of("cursor", machine.home)["url"] == url

    # Undo both setups. The service existed before them, so it stays.
    assert main(["setup", "--undo", "--yes"]) == 0
    assert unit_of(machine.home).exists()
    assert entry_of("cursor", machine.home) is None
    assert before != machine.digests()


def test_a_person_is_asked_before_the_service_is_installed(machine: Machine, ran: Ran) -> None:
    terminal = Terminal(Path.cwd(), ["setup", "--shared"], columns=100)
    terminal.read_until("Enter to change nothing: ")
    screen = " ".join("\n".join(terminal.screen()).split())
    assert "a service at http://127.0.0.1:8787" in screen
    terminal.type("")
    code, _ = terminal.end()
    assert code == 1
    assert not unit_of(machine.home).exists()
    assert stored_secrets() == []


def test_without_servers_or_a_manager_nothing_is_changed(
    home: Path,
    project: Path,
    ran: Ran,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(home / ".cursor" / "mcp.json", '{"mcpServers": {}}')
    assert main(["setup", "--shared", "--yes"]) == 2
    assert "would have no servers" in capsys.readouterr().err
    monkeypatch.setenv("NO_SESSION", "1")
    assert main(["setup", "--shared", "--yes"]) != 0
    assert "no session for this user" in capsys.readouterr().err
    monkeypatch.delenv("NO_SESSION")
    assert not user_service().file.exists()
    assert json.loads((home / ".cursor" / "mcp.json").read_text()) == {"mcpServers": {}}
