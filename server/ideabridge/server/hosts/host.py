"""Hosts: the programs that run assistants, and the files in which they list MCP servers (`docs/hosts.md`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean


class HostFileError(IdeabridgeError):
    """A host's configuration file cannot be read or written; the message names the file."""


class CommentedHostFileError(HostFileError):
    """A host's file has comments or trailing commas, which writing would lose."""


class UnknownHostError(IdeabridgeError):
    """There is no host of this name; the message names similar ones."""


Scope = Literal["local", "project", "user"]
"""local: this project, for this user only (Claude Code). project: the project's own file. user: everywhere."""

SERVER_NAME: Final = "ideabridge"
"""The name of ideabridge in a host's configuration."""


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """The environment of a host: where its files may be.

    Attributes:
        project: the project folder, absolute.
        home: the user's home folder.
        variables: the environment variables.
        platform: the value of `sys.platform`.
    """

    project: Path
    home: Path = field(default_factory=Path.home)
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    platform: str = sys.platform


@dataclass(frozen=True, slots=True)
class HostFile:
    """An object in a file that maps names to servers.

    Attributes:
        path: the file.
        scope: who uses its servers.
        keys: the keys that lead to the object.
    """

    path: Path
    scope: Scope
    keys: tuple[str, ...]

    def servers(self, content: JSONObject) -> JSONObject:
        """The servers in the file's content, by name; empty if the content has no such object."""
        found: JSON = content
        for key in self.keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def with_server(self, content: JSONObject, name: str, entry: JSONObject) -> JSONObject:
        """The content with one server added; everything else keeps its place."""
        return _put(content, (*self.keys, name), entry)

    def without_server(self, content: JSONObject, name: str) -> JSONObject:
        """The content without one server; everything else keeps its place."""
        kept = {key: value for key, value in self.servers(content).items() if key != name}
        return _put(content, self.keys, kept)


def _put(content: JSONObject, keys: tuple[str, ...], value: JSON) -> JSONObject:
    first, *rest = keys
    if rest:
        below = content.get(first)
        value = _put(below if isinstance(below, dict) else {}, tuple(rest), value)
    return {**content, first: value}


@dataclass(frozen=True, slots=True)
class Host:
    """One host.

    Attributes:
        name: its name on the command line.
        title: its name in texts.
        files: the places that it reads; the first one wins.
        typed: whether an entry needs a `type`.
        command: makes the shell command that has the effect of writing the file, if the host has such a command.
    """

    name: str
    title: str
    files: Callable[[HostEnvironment], list[HostFile]]
    typed: bool
    command: Callable[[Scope, JSONObject], list[str]] | None = None

    def target(self, environment: HostEnvironment, scope: Scope) -> HostFile:
        """The place to which `install` writes."""
        return next(file for file in self.files(environment) if file.scope == scope)

    def entry(self, command: list[str]) -> JSONObject:
        """The entry of ideabridge: the program and its arguments."""
        words: list[JSON] = [*command[1:]]
        kind: JSONObject = {"type": "stdio"} if self.typed else {}
        return {**kind, "command": command[0], "args": words}


def _claude_code(environment: HostEnvironment) -> list[HostFile]:
    folder = environment.variables.get("CLAUDE_CONFIG_DIR")
    own = (Path(folder).expanduser() if folder else environment.home) / ".claude.json"
    return [
        HostFile(own, "local", ("projects", str(environment.project), "mcpServers")),
        HostFile(environment.project / ".mcp.json", "project", ("mcpServers",)),
        HostFile(own, "user", ("mcpServers",)),
    ]


def _claude_command(scope: Scope, entry: JSONObject) -> list[str]:
    words = [str(entry["command"])]
    arguments = entry["args"]
    words += [str(word) for word in arguments] if isinstance(arguments, list) else []
    return ["claude", "mcp", "add", "--scope", scope, SERVER_NAME, "--", *words]


def _cursor(environment: HostEnvironment) -> list[HostFile]:
    return [
        HostFile(environment.project / ".cursor" / "mcp.json", "project", ("mcpServers",)),
        HostFile(environment.home / ".cursor" / "mcp.json", "user", ("mcpServers",)),
    ]


def _vscode(environment: HostEnvironment) -> list[HostFile]:
    if environment.platform == "darwin":
        base = environment.home / "Library" / "Application Support"
    elif environment.platform == "win32":
        base = Path(environment.variables.get("APPDATA") or environment.home / "AppData" / "Roaming")
    else:
        base = Path(environment.variables.get("XDG_CONFIG_HOME") or environment.home / ".config")
    return [
        HostFile(environment.project / ".vscode" / "mcp.json", "project", ("servers",)),
        HostFile(base / "Code" / "User" / "mcp.json", "user", ("servers",)),
    ]


HOSTS: Final = (
    Host("claude-code", "Claude Code", _claude_code, typed=True, command=_claude_command),
    Host("cursor", "Cursor", _cursor, typed=False),
    Host("vscode", "VS Code", _vscode, typed=True),
)


def find_host(name: str) -> Host:
    """The host of this name; raises `UnknownHostError` if there is none."""
    hosts = {host.name: host for host in HOSTS}
    if name in hosts:
        return hosts[name]
    hint = did_you_mean(name, list(hosts)) or f" Known: {', '.join(hosts)}"
    raise UnknownHostError(f"unknown host {name[:40]!r}.{hint}")
