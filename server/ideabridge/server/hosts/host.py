"""Host: a program an assistant lives in, and where it keeps its MCP servers (`docs/hosts.md` has the sources)."""

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

# -- errors ----------------------------------------------------------------------------------------------------------
#
# Errors of host configurations.


class HostFileError(IdeabridgeError):
    """A host's configuration file that cannot be read or written; the message names the file."""


class CommentedHostFileError(HostFileError):
    """A host's file with comments or trailing commas: writing it would lose them."""


class UnknownHostError(IdeabridgeError):
    """No host of this name; the message names the nearest ones."""


# -- host ------------------------------------------------------------------------------------------------------------

Scope = Literal["local", "project", "user"]
"""local: this project, for this user only (Claude Code). project: the project's own file. user: everywhere."""

SERVER_NAME: Final = "ideabridge"
"""What we are called in a host's configuration."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are looked for.

    Attributes:
        project: the project folder, absolute.
        home: the user's home folder.
        environ: the process environment.
        platform: as `sys.platform`.
    """

    project: Path
    home: Path = field(default_factory=Path.home)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    platform: str = sys.platform


@dataclass(frozen=True, slots=True)
class HostFile:
    """A place in a file where servers stand by name.

    Attributes:
        path: the file.
        scope: whom it is for.
        keys: the keys that lead to the servers in it.
    """

    path: Path
    scope: Scope
    keys: tuple[str, ...]

    def servers(self, content: JSONObject) -> JSONObject:
        """The servers in the file's content, by name; none where the place is missing or is no object."""
        found: JSON = content
        for key in self.keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def with_server(self, content: JSONObject, name: str, entry: JSONObject) -> JSONObject:
        """The content with one server put in; everything else, and its order, stays."""
        return _put(content, (*self.keys, name), entry)

    def without_server(self, content: JSONObject, name: str) -> JSONObject:
        """The content without one server; everything else, and its order, stays."""
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
        name: how the command line calls it.
        title: how people call it.
        files: the places it reads, the strongest first.
        typed: whether an entry needs a `type`.
        command: the shell command that does the same as writing the file, where the host has one:
            (scope, entry) -> words.
    """

    name: str
    title: str
    files: Callable[[Places], list[HostFile]]
    typed: bool
    command: Callable[[Scope, JSONObject], list[str]] | None = None

    def target(self, places: Places, scope: Scope) -> HostFile:
        """The place `install` writes to."""
        return next(file for file in self.files(places) if file.scope == scope)

    def entry(self, command: list[str]) -> JSONObject:
        """What stands under our name: the program and its arguments."""
        words: list[JSON] = [*command[1:]]
        kind: JSONObject = {"type": "stdio"} if self.typed else {}
        return {**kind, "command": command[0], "args": words}


def _claude_code(places: Places) -> list[HostFile]:
    folder = places.environ.get("CLAUDE_CONFIG_DIR")
    own = (Path(folder).expanduser() if folder else places.home) / ".claude.json"
    return [
        HostFile(own, "local", ("projects", str(places.project), "mcpServers")),
        HostFile(places.project / ".mcp.json", "project", ("mcpServers",)),
        HostFile(own, "user", ("mcpServers",)),
    ]


def _claude_command(scope: Scope, entry: JSONObject) -> list[str]:
    words = [str(entry["command"])]
    arguments = entry["args"]
    words += [str(word) for word in arguments] if isinstance(arguments, list) else []
    return ["claude", "mcp", "add", "--scope", scope, SERVER_NAME, "--", *words]


def _cursor(places: Places) -> list[HostFile]:
    return [
        HostFile(places.project / ".cursor" / "mcp.json", "project", ("mcpServers",)),
        HostFile(places.home / ".cursor" / "mcp.json", "user", ("mcpServers",)),
    ]


def _vscode(places: Places) -> list[HostFile]:
    if places.platform == "darwin":
        base = places.home / "Library" / "Application Support"
    elif places.platform == "win32":
        base = Path(places.environ.get("APPDATA") or places.home / "AppData" / "Roaming")
    else:
        base = Path(places.environ.get("XDG_CONFIG_HOME") or places.home / ".config")
    return [
        HostFile(places.project / ".vscode" / "mcp.json", "project", ("servers",)),
        HostFile(base / "Code" / "User" / "mcp.json", "user", ("servers",)),
    ]


HOSTS: Final = (
    Host("claude-code", "Claude Code", _claude_code, typed=True, command=_claude_command),
    Host("cursor", "Cursor", _cursor, typed=False),
    Host("vscode", "VS Code", _vscode, typed=True),
)


def find_host(name: str) -> Host:
    """The host of a name.

    Raises:
        UnknownHostError: there is none.
    """
    names = [host.name for host in HOSTS]
    for host in HOSTS:
        if host.name == name:
            return host
    hint = did_you_mean(name, names) or f" Known: {', '.join(names)}"
    raise UnknownHostError(f"no host {name[:40]!r} is known here.{hint}")
