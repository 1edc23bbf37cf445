"""Sessions of hosts that `ideabridge install HOST --http --scope project` has connected to the
service: the project's file names a variable, and each host reads the token from it.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.server.serving import listening, plain
from tests.trusting import write_own

from ideabridge.server.cli.install import SERVICE_VARIABLE

from .endpoint import ScriptedModel, Step
from .hosts import CLAUDE_CODE, HOSTS, Host, claude_code, missing

IDEABRIDGE: Final = Path(sys.executable).parent / "ideabridge"

FILES: Final = {
    "claude-code": ".mcp.json",
    "codex": ".codex/config.toml",
    "gemini-cli": ".gemini/settings.json",
    "opencode": "opencode.json",
}
"""The file of a project that each host reads."""


def hosts() -> list[Any]:
    """The hosts, by their names on the command line of ideabridge."""
    known: dict[str, tuple[str, Host]] = {
        "claude-code": (CLAUDE_CODE, claude_code),
        "codex": HOSTS["codex"],
        "gemini-cli": HOSTS["gemini"],
        "opencode": HOSTS["opencode"],
    }
    parameters: list[Any] = []
    for name, (package, host) in known.items():
        reason = missing(package)
        mark = pytest.mark.skipif(reason is not None, reason=reason or "")
        parameters.append(pytest.param(name, host, marks=mark, id=name))

    return parameters


def ideabridge(project: Path, *words: str) -> str:
    """What a command prints on standard output in a project; it must succeed."""
    done = subprocess.run(
        [str(IDEABRIDGE), *words], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, whose user has a home folder in it, a server, and a `systemctl` that
    starts nothing.
    """
    folder = tmp_path / "project"
    home = folder / "home"
    home.mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    systemctl = programs / "systemctl"
    systemctl.write_text("#!/bin/sh\nexit 0\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)

    write_own({"mcpServers": {"notes": plain(tmp_path, "notes", "read")}, "approval": "allow_all"})
    return folder


def uses_the_server(model: ScriptedModel) -> Generator[Step, str]:
    """Find the tool of the server behind ideabridge, and call it."""
    listed = yield "search_tools", {"words": "read"}
    assert model.named("search_tools") is not None, sorted(model.offered)
    assert "notes.read" in listed, listed
    ran = yield "run_plan", {"calls": [{"_tool": "read", "x": "oak", "_outputPath": "page"}]}
    assert "page" in ran, ran


@pytest.mark.parametrize(("name", "host"), hosts())
def test_a_host_reads_the_token_from_a_variable(name: str, host: Host, project: Path) -> None:
    ideabridge(project, "service", "install", f"127.0.0.1:{free_port()}")
    token = ideabridge(project, "service", "token")
    ideabridge(project, "install", name, "--http", "--scope", "project", "--write")
    entry = (project / FILES[name]).read_text()
    assert token not in entry
    assert SERVICE_VARIABLE in entry

    unit = project / "home" / ".config" / "systemd" / "user" / "ideabridge.service"
    [started] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    model = ScriptedModel(uses_the_server)
    with (
        listening(shlex.split(started.removeprefix("ExecStart="))) as url,
        model.serving() as address,
    ):
        assert url.removesuffix("/mcp") in entry
        host(project, None, address, **{SERVICE_VARIABLE: token})

    if model.failure is not None:
        raise model.failure
    assert model.finished
