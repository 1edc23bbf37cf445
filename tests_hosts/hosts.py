"""Hosts of npm, started with a scripted model and ideabridge as their only MCP server.

`make test-hosts` installs what constraints-hosts.txt names. None needs an account, and none is left
to reach further than this machine: the model they ask is on the loopback address.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, Protocol

MODULES: Final = Path(__file__).parent.parent / ".node-hosts" / "node_modules"
_PATIENCE: Final = 120.0


class Host(Protocol):
    """Runs one session of a host, until the model has finished."""

    def __call__(
        self, folder: Path, server: list[str] | None, model: str, **variables: str
    ) -> None:
        """Run the session.

        Args:
            folder: the project, in which the host has a home folder of its own.
            server: the command of the server. None if a file of the project names the server.
            model: the address of the model.
            variables: more variables for the environment of the host.
        """
        ...


def missing(package: str) -> str | None:
    """Why a host cannot be driven here; None: it can."""
    if not (MODULES / package / "package.json").is_file():
        return f"{package} is not installed: run make test-hosts, which needs npm"
    if shutil.which("node"):
        return None
    return f"{package} needs node, and there is none"


def _environment(folder: Path, **more: str) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1", **more}


def _run(program: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        program,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def codex(folder: Path, server: list[str] | None, model: str, **variables: str) -> None:
    """Codex, through the app server that its editors speak to, with a person who
    accepts every form.
    """
    environment = _environment(folder, SCRIPTED_KEY="x", **variables)
    if server is None:
        # Codex reads a project's files only if the user trusts the project.
        entry = f'[projects.{json.dumps(str(folder))}]\ntrust_level = "trusted"\n'
    else:
        entry = f"""[mcp_servers.ideabridge]
command = {json.dumps(server[0])}
args = {json.dumps(server[1:])}
required = true
default_tools_approval_mode = "approve"
"""

    configuration = folder / "home" / ".codex" / "config.toml"
    configuration.parent.mkdir()
    configuration.write_text(
        f"""model = "scripted"
model_provider = "scripted"
approval_policy = "on-request"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "{model}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
{entry}"""
    )
    program = [str(MODULES / ".bin" / "codex"), "app-server"]
    with subprocess.Popen(
        program,
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _converse(process, folder)
        finally:
            process.kill()


def _converse(process: subprocess.Popen[str], folder: Path) -> None:
    """One turn of Codex's app server: a JSON object a line, in both directions."""
    assert process.stdin is not None
    assert process.stdout is not None

    def send(message: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()

    def start_turn(thread: str) -> None:
        text = {"type": "text", "text": "Go."}
        send({"id": 2, "method": "turn/start", "params": {"threadId": thread, "input": [text]}})

    client = {"name": "tests", "title": "tests", "version": "1"}
    send({"id": 0, "method": "initialize", "params": {"clientInfo": client}})
    send({"method": "initialized"})
    send({"id": 1, "method": "thread/start", "params": {"cwd": str(folder)}})
    for line in process.stdout:
        message = json.loads(line)
        if message.get("method") == "mcpServer/elicitation/request":
            content = {"decision": "approve"}
            send({"id": message["id"], "result": {"action": "accept", "content": content}})
        elif message.get("id") == 1:
            start_turn(message["result"]["thread"]["id"])
        elif message.get("method") == "turn/completed":
            return

    raise AssertionError("Codex ended before the turn was over")


def opencode(folder: Path, server: list[str] | None, model: str, **variables: str) -> None:
    """opencode, without a terminal."""
    environment = _environment(
        folder, OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1", **variables
    )
    servers: dict[str, Any] = {}
    if server is not None:
        servers["ideabridge"] = {"type": "local", "command": server, "enabled": True}
    configuration: dict[str, Any] = {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "permission": "allow",
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{model}/v1", "apiKey": "x"},
                "models": {
                    "scripted": {"tool_call": True, "limit": {"context": 200_000, "output": 8000}}
                },
            }
        },
        "mcp": servers,
    }
    place = folder / "home" / ".config" / "opencode" / "opencode.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(configuration))
    # Start the program directly, because the package normally selects it in an installation script,
    # which does not run here.
    program = min(MODULES.glob("opencode-*/bin/opencode"))
    _run(
        [str(program), "run", "--pure", "--auto", "--dir", str(folder), "Go."], folder, environment
    )


def gemini(folder: Path, server: list[str] | None, model: str, **variables: str) -> None:
    """Gemini CLI, without a terminal."""
    environment = _environment(
        folder, GEMINI_API_KEY="x", GOOGLE_GEMINI_BASE_URL=model, **variables
    )
    servers: dict[str, Any] = {}
    if server is not None:
        servers["ideabridge"] = {"command": server[0], "args": server[1:], "trust": True}
    settings: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "mcpServers": servers,
    }
    place = folder / "home" / ".gemini" / "settings.json"
    place.parent.mkdir()
    place.write_text(json.dumps(settings))
    # Gemini CLI reads a project's files only if the user trusts the project.
    trusted = place.with_name("trustedFolders.json")
    trusted.write_text(json.dumps({str(folder): "TRUST_FOLDER"}))
    program = [
        str(MODULES / ".bin" / "gemini"),
        "--yolo",
        "--skip-trust",
        "-m",
        "gemini-2.5-flash",
        "-p",
        "Go.",
    ]
    _run(program, folder, environment)


def claude_code(folder: Path, server: list[str] | None, model: str, **variables: str) -> None:
    """Claude Code, without a terminal. Tests of its logs start it, not those of sessions."""
    environment = _environment(
        folder,
        ANTHROPIC_BASE_URL=model,
        ANTHROPIC_API_KEY="x",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        ENABLE_TOOL_SEARCH="false",
        **variables,
    )
    if server is None:
        servers = ["--settings", json.dumps({"enableAllProjectMcpServers": True})]
    else:
        settings = {"mcpServers": {"ideabridge": {"command": server[0], "args": server[1:]}}}
        place = folder / "mcp.json"
        place.write_text(json.dumps(settings))
        servers = ["--mcp-config", str(place), "--strict-mcp-config"]
    # Start the program directly, because the package normally selects it in an installation script,
    # which does not run here.
    program = min(MODULES.glob("@anthropic-ai/claude-code-*/claude"))
    words = ["-p", "Go.", *servers, "--allowedTools", "mcp__ideabridge"]
    _run([str(program), *words], folder, environment)


CLAUDE_CODE: Final = "@anthropic-ai/claude-code"
"""Its package of npm."""

HOSTS: Final[dict[str, tuple[str, Host]]] = {
    "codex": ("@openai/codex", codex),
    "opencode": ("opencode-ai", opencode),
    "gemini": ("@google/gemini-cli", gemini),
}
"""Name -> the package of npm, and how to run it."""
