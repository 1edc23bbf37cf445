"""`ideabridge service`: the files that it writes, the commands that it runs, and the server."""

from __future__ import annotations

import json
import plistlib
import shlex
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.server.service import ServiceError, UserService, user_service
from tests.server.serving import call, listening, plain
from tests.trusting import write_own

from .conftest import Run

pytestmark = pytest.mark.anyio


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def unit_of(home: Path) -> Path:
    return home / ".config" / "systemd" / "user" / "ideabridge.service"


def command_of(unit: Path) -> list[str]:
    """The command of a unit file, as systemd reads it."""
    [line] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(line.removeprefix("ExecStart="))
    return [word.replace("%%", "%").replace("$$", "$") for word in words]


async def test_two_clients_share_the_servers_of_the_service(
    ideabridge: Run, home: Path, project: Path, ran: Callable[[], list[str]]
) -> None:
    servers = {"notes": plain(project, "notes", "read")}
    own = write_own({"mcpServers": servers, "approval": "allow_all"})
    address = f"127.0.0.1:{free_port()}"
    installed = ideabridge("service", "install", address)
    assert installed.returncode == 0, installed.stderr
    assert ran() == [
        "--user show-environment",
        "--user daemon-reload",
        "--user enable ideabridge.service",
        "--user restart ideabridge.service",
    ]
    unit = unit_of(home)
    words = command_of(unit)
    assert words[-6:] == ["serve", "--http", address, "--service", "--config", str(own)]
    assert f"WorkingDirectory={home}" in unit.read_text()

    token = ideabridge("service", "token").stdout.strip()
    assert len(token) > 32
    assert token not in unit.read_text() + installed.stdout + installed.stderr
    secrets = home / ".local" / "share" / "ideabridge" / "secrets.json"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600

    with listening(words) as url:
        assert url == f"http://{address}/mcp"
        async with httpx2.AsyncClient() as stranger:
            assert (await stranger.post(url, json={})).status_code == 401

        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(used, url, token)

    status = ideabridge("service", "status", "--json")
    assert json.loads(status.stdout)["state"] == "running"
    assert json.loads(status.stdout)["url"] == f"http://{address}/mcp"
    assert status.returncode == 0
    runs = json.loads(ideabridge("runs", "list", "--json").stdout)["runs"]
    assert [run["caller"] for run in runs] == ["local", "local"]


async def used(url: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, read_timeout_seconds=20) as client:
            answer = await call(client, "run_plan", calls=[{"_tool": "read", "x": "a"}])
            assert answer["status"] == "done"


def test_it_stops_and_leaves_nothing_behind(
    ideabridge: Run, home: Path, project: Path, ran: Callable[[], list[str]]
) -> None:
    assert "not installed" in ideabridge("service", "stop").stderr
    write_own({"mcpServers": {}})
    first = ideabridge("service", "install")
    assert first.returncode == 0, first.stderr
    token = ideabridge("service", "token").stdout
    # Installing it again keeps the token, so that clients stay connected.
    words = ("service", "install", "127.0.0.1:9000", "--ui", "--metrics")
    assert ideabridge(*words).returncode == 0
    assert command_of(unit_of(home))[-2:] == ["--ui", "--metrics"]
    assert ideabridge("service", "token").stdout == token
    assert ideabridge("service", "stop").returncode == 0
    assert ideabridge("service", "status").returncode == 1
    assert ideabridge("service", "uninstall").returncode == 0
    assert not unit_of(home).exists()
    assert "--user disable --now ideabridge.service" in ran()
    assert "not stored" in ideabridge("service", "token").stderr
    assert ideabridge("service", "uninstall").returncode == 1


@pytest.mark.parametrize(
    ("host", "file", "entry"),
    [
        ("claude-code", ".claude.json", {"type": "http", "url": "URL", "headers": "HEADERS"}),
        ("cursor", ".cursor/mcp.json", {"url": "URL", "headers": "HEADERS"}),
        ("gemini-cli", ".gemini/settings.json", {"httpUrl": "URL", "headers": "HEADERS"}),
    ],
)
def test_a_client_connects_to_the_service_from_the_users_own_file(
    ideabridge: Run,
    home: Path,
    project: Path,
    ran: Callable[[], list[str]],
    host: str,
    file: str,
    entry: dict[str, str],
) -> None:
    assert "not installed" in ideabridge("install", host, "--http").stderr
    write_own({"mcpServers": {}})
    assert ideabridge("service", "install", "127.0.0.1:9001").returncode == 0
    written = ideabridge("install", host, "--http", "--write")
    assert written.returncode == 0, written.stderr
    values: dict[str, object] = {
        "URL": "http://127.0.0.1:9001/mcp",
        "HEADERS": {"Authorization": f"Bearer {ideabridge('service', 'token').stdout.strip()}"},
    }
    servers = json.loads((home / file).read_text())["mcpServers"]
    assert servers["ideabridge"] == {key: values.get(word, word) for key, word in entry.items()}
    assert not any(project.iterdir())
    # This is ideabridge itself, so it does not become a server behind ideabridge.
    assert "it is ideabridge itself" in ideabridge("servers", "import", host).stderr
    assert ideabridge("uninstall", host).returncode == 0
    assert not (home / file).exists()


HEADERS = {
    ("claude-code", ".mcp.json", "mcpServers"): "Bearer ${IDEABRIDGE_SERVICE_TOKEN}",
    ("cursor", ".cursor/mcp.json", "mcpServers"): "Bearer ${env:IDEABRIDGE_SERVICE_TOKEN}",
    ("gemini-cli", ".gemini/settings.json", "mcpServers"): "Bearer ${IDEABRIDGE_SERVICE_TOKEN}",
    ("opencode", "opencode.json", "mcp"): "Bearer {env:IDEABRIDGE_SERVICE_TOKEN}",
}
"""How clients read a header from a variable, by client, file and key of its servers."""


def test_a_file_of_a_project_leads_to_its_workspace_without_the_token(
    ideabridge: Run, project: Path, ran: Callable[[], list[str]]
) -> None:
    write_own({"mcpServers": {}})
    assert ideabridge("service", "install", "127.0.0.1:9001").returncode == 0
    (project / "ideabridge.json").write_text("{}")
    token = ideabridge("service", "token").stdout.strip()
    words = ["--http", "--scope", "project", "--write"]
    for (host, file, keys), header in HEADERS.items():
        written = ideabridge("install", host, *words)
        assert written.returncode == 0, written.stderr
        assert "`ideabridge trust`" in written.stderr
        assert "IDEABRIDGE_SERVICE_TOKEN" in written.stderr
        text = (project / file).read_text()
        assert token not in text
        assert "http://127.0.0.1:9001/mcp/w/project" in text
        assert json.loads(text)[keys]["ideabridge"]["headers"] == {"Authorization": header}

    assert ideabridge("install", "codex", *words).returncode == 0
    text = (project / ".codex" / "config.toml").read_text()
    assert token not in text
    assert 'bearer_token_env_var = "IDEABRIDGE_SERVICE_TOKEN"' in text

    listed = json.loads(ideabridge("service", "workspaces", "--json").stdout)
    assert listed == {"workspaces": {"project": str(project)}}
    assert ideabridge("service", "forget", "project").returncode == 0
    assert "not registered" in ideabridge("service", "forget", "project").stderr


def test_the_users_own_file_may_hold_the_token_of_a_projects_entry(
    ideabridge: Run, home: Path, project: Path, ran: Callable[[], list[str]]
) -> None:
    write_own({"mcpServers": {}})
    assert ideabridge("service", "install", "127.0.0.1:9001").returncode == 0
    words = ["install", "claude-code", "--http", "--scope", "local", "--write"]
    assert ideabridge(*words).returncode == 0
    own = json.loads((home / ".claude.json").read_text())
    entry = own["projects"][str(project)]["mcpServers"]["ideabridge"]
    assert entry["url"] == "http://127.0.0.1:9001/mcp/w/project"
    token = ideabridge("service", "token").stdout.strip()
    assert entry["headers"] == {"Authorization": f"Bearer {token}"}
    assert not any(project.iterdir())

    refused = ideabridge("install", "vscode", "--http", "--scope", "project")
    assert refused.returncode == 2
    assert "must not contain the token" in refused.stderr
    assert ideabridge("service", "uninstall").returncode == 0
    assert "no project is registered" in ideabridge("service", "workspaces").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0.0.0.0:8787"], "loopback"),
        (["127.0.0.1:0"], "loopback"),
        ([], "would have no servers"),
    ],
)
def test_what_makes_no_sense_is_refused(
    ideabridge: Run, ran: Callable[[], list[str]], words: list[str], said: str
) -> None:
    refused = ideabridge("service", "install", *words)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert ran() == []


def test_without_a_manager_of_services_it_says_so(
    ran: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServiceError, match="neither a systemd user session nor launchd"):
        user_service("win32")
    monkeypatch.setenv("NO_SESSION", "1")
    with pytest.raises(ServiceError, match="no session for this user"):
        user_service("linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match="neither a systemd user session nor launchd"):
        user_service("linux")
    assert user_service("darwin", tmp_path).manager == "launchd"


def test_odd_words_survive_both_files(tmp_path: Path) -> None:
    words = ["/opt/my tools/ideabridge", "--config", '/a "b" $HOME 100% \\x/c.json']
    unit = tmp_path / "unit"
    unit.write_bytes(UserService("systemd", unit).definition(words, tmp_path))
    assert command_of(unit) == words
    content = plistlib.loads(UserService("launchd", unit).definition(words, tmp_path))
    assert content["ProgramArguments"] == words
    assert content["KeepAlive"] == {"SuccessfulExit": False}
