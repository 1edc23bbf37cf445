"""A machine of a new user: five hosts with eleven servers, in a home folder of nobody's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests import preloaded

GREETER = Path(__file__).with_name("greeter.py")
TOKEN = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
NAMES = (
    "github",
    "files",
    "notes",
    "docs",
    "time",
    "browser",
    "files_cursor",
    "weather",
    "maps",
    "mail",
    "music",
)
"""The names of the eleven servers behind ideabridge. Two of `files` are different servers."""


def entry(tool: str, **keys: Any) -> dict[str, Any]:
    """The entry of a server whose only tool has this name."""
    return preloaded.module(GREETER, tool, **keys)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


class Machine:
    """The files of five hosts.

    Attributes:
        own: the user's own configuration.
        hosts: the file of each host.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.own = home / ".config" / "ideabridge" / "ideabridge.json"
        github = entry("github", env={"GREETER_TOKEN": TOKEN})
        claude = {
            "numStartups": 7,
            "mcpServers": {
                "github": {"type": "stdio", **github},
                "files": entry("files"),
                "notes": entry("notes"),
            },
        }
        docs = entry("docs")
        time = entry("time")
        cursor = {"browser": entry("browser"), "gh": github, "files": entry("files_cursor")}
        code = {"servers": {"weather": entry("weather"), "github": github}}
        gemini = {"maps": entry("maps", trust=True), "mail": entry("mail"), "music": entry("music")}
        self.hosts = {
            "claude-code": put(home / ".claude.json", json.dumps(claude, indent=2)),
            "codex": put(
                home / ".codex" / "config.toml",
                'model = "m"  # the best\n\n'
                + "".join(
                    f"[mcp_servers.{name}]\ncommand = {json.dumps(one['command'])}\n"
                    f"args = {json.dumps(one['args'])}\n\n"
                    for name, one in (("docs", docs), ("time", time))
                ),
            ),
            "cursor": put(
                home / ".cursor" / "mcp.json",
                "// mine\n" + json.dumps({"mcpServers": cursor}, indent=4) + "\n",
            ),
            "vscode": put(
                home / ".config" / "Code" / "User" / "mcp.json",
                "\ufeff" + json.dumps(code, indent="\t").replace("\n", "\r\n"),
            ),
            "gemini-cli": put(
                home / ".gemini" / "settings.json",
                json.dumps({"theme": "dark", "mcpServers": gemini}),
            ),
        }
        put(
            home / ".claude" / "settings.json",
            json.dumps({"permissions": {"allow": ["mcp__github__search", "Bash(ls)"]}}),
        )

    def digests(self) -> dict[str, str]:
        """The hash of every file and the names of all folders, without the data of ideabridge."""
        data = self.home / ".local"
        return {
            str(path): "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.home.rglob("*"))
            if path != data and not path.is_relative_to(data)
        }

    def servers(self) -> dict[str, Any]:
        """The servers in the user's own configuration."""
        return json.loads(self.own.read_text(encoding="utf-8"))["mcpServers"]
