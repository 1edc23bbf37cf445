"""Reads files of hosts as the import does, in a home folder and a project folder of a test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ideabridge.server.hosts.adopt import (
    Adoption,
    Destination,
    Destinations,
    FoundServers,
    find_servers,
)
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.server.hosts.table import Host, find_host

SAMPLES = Path(__file__).parent / "samples"


def host_of(folder: str) -> Host:
    """The host whose samples a folder contains."""
    return find_host({"gemini": "gemini-cli"}.get(folder, folder))


def sample_of(expectation: Path) -> Path:
    """The sample that an expectation is about."""
    stem = expectation.name.removesuffix(".expected.json")
    return next(
        path
        for path in expectation.parent.glob(f"{stem}.*")
        if ".expected." not in path.name and ".beside." not in path.name
    )


@dataclass(frozen=True)
class Machine:
    """A home folder and a project folder."""

    home: Path
    project: Path

    def place(self, path: str) -> Path:
        """The file that a path in a sample stands for."""
        user = self.home / ".config" / "Code" / "User"
        path = path.replace("{VSCODE_USER}", str(user))
        path = path.replace("{APPDATA}", str(self.home / "AppData" / "Roaming"))
        path = path.replace("{PROJECT}", str(self.project)).replace(
            "{PLUGIN}", str(self.home / "p")
        )
        return self.home / path[2:] if path.startswith("~/") else self.project / path

    def put(self, path: str, data: bytes) -> Path:
        """Write a file at a path of a sample."""
        file = self.place(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def find(self, host: Host, platform: str = "linux") -> FoundServers:
        """Read all servers of a host."""
        own = self.home / "own" / "ideabridge.json"
        shared = self.project / "ideabridge.json"
        targets = Destinations(
            Destination(read_host_text(own), is_own=True, is_shared=False),
            # Other tests deal with secrets in plain text.
            Destination(read_host_text(shared), is_own=False, is_shared=False),
        )
        environment = HostEnvironment(self.project, self.home, {}, platform)
        return find_servers(host, environment, targets)


def machine(folder: Path) -> Machine:
    """Make the two folders."""
    result = Machine(folder / "home", folder / "orchard")
    result.home.mkdir(parents=True)
    result.project.mkdir()
    return result


def platform_of(path: str) -> str:
    """The system on which a host has such a path."""
    if "Library/Application Support" in path:
        return "darwin"
    return "win32" if "{APPDATA}" in path else "linux"


def shown(adoption: Adoption) -> Any:
    """What a test compares of one server."""
    return json.loads(json.dumps([adoption.verdict, adoption.entry, adoption.why]))
