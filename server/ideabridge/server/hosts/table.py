"""The table of hosts: where each one lists its MCP servers, and how it spells an entry
(`docs/hosts.md`). Import, `install`, `doctor` and completion read this table, and know nothing else
about a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ideabridge.server.hosts.host import (
    SERVER_NAME,
    FileFormat,
    HostEnvironment,
    HostFile,
    HostFileError,
    Scope,
)
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean


class UnknownHostError(IdeabridgeError):
    """There is no host with this name. The message names similar ones."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place where a host lists servers, on any machine.

    Attributes:
        scope: who uses the servers of the place.
        path: the file. It starts with `{project}`, `{home}`, `{config}` (`~/.config`) or `{apps}`
            (where programs of a desktop keep their data). A `*` stands for any name.
        keys: the keys that lead to the servers. `{project}` stands for the folder of the project.
        format: the format that the host reads there.
        is_list: see `HostFile`.
        is_current: see `HostFile`.
        variable: an environment variable that replaces the folder of the path, if it is set.
        platforms: the values of `sys.platform` on which the host reads the place; empty for all.
        new_content: see `HostFile`.
    """

    scope: Scope
    path: str
    keys: tuple[str, ...] = ("mcpServers",)
    format: FileFormat = "json"
    is_list: bool = False
    is_current: bool = True
    variable: str = ""
    platforms: tuple[str, ...] = ()
    new_content: Mapping[str, JSON] = field(default_factory=dict[str, JSON])

    def files(self, environment: HostEnvironment) -> Iterator[HostFile]:
        """Yield the files of this place on one machine: one, or all that exist if the path has a
        `*`.
        """
        if self.platforms and environment.platform not in self.platforms:
            return

        path = self._path(environment)
        keys = tuple(str(environment.project) if key == "{project}" else key for key in self.keys)
        file = HostFile(
            path,
            self.scope,
            keys,
            format=self.format,
            is_list=self.is_list,
            is_current=self.is_current,
            new_content=self.new_content,
        )
        if "*" not in self.path:
            yield file
            return

        parts = self.path.split("/")
        below = next(number for number, part in enumerate(parts) if "*" in part) - len(parts)
        folder = Path(*path.parts[:below])
        for match in sorted(folder.glob("/".join(parts[below:]))):
            yield replace(file, path=match)

    def _path(self, environment: HostEnvironment) -> Path:
        start, _, rest = self.path.partition("/")
        folder = environment.variables.get(self.variable) if self.variable else None
        if folder:
            return Path(folder).expanduser() / rest.rpartition("/")[2]
        return _folder(start, environment) / rest


def _folder(name: str, environment: HostEnvironment) -> Path:
    """Return the folder that the first part of a place's path stands for."""
    variables = environment.variables
    match name:
        case "{project}":
            return environment.project
        case "{apps}" if environment.platform == "darwin":
            return environment.home / "Library" / "Application Support"
        case "{apps}" if environment.platform == "win32":
            return Path(variables.get("APPDATA") or environment.home / "AppData" / "Roaming")
        case "{apps}" | "{config}":
            return Path(variables.get("XDG_CONFIG_HOME") or environment.home / ".config")
        case _:
            return environment.home


@dataclass(frozen=True, slots=True)
class EntryShape:
    """How a host spells the entry of a server that is a program.

    Attributes:
        first: the keys that come before the command, with their values.
        command: the key of the program.
        arguments: the key of its arguments; None if the command is a list of the program and its
            arguments.
        last: the keys that come after the arguments, with their values.
    """

    first: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    command: str = "command"
    arguments: str | None = "args"
    last: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


_PLAIN: Final = EntryShape()
_TYPED: Final = EntryShape(first=MappingProxyType({"type": "stdio"}))


@dataclass(frozen=True, slots=True)
class Host:
    """A program that runs assistants.

    Attributes:
        name: the name of the host on the command line.
        title: the name of the host in texts.
        places: the places that the host reads; the first one wins.
        shape: how the host spells an entry.
        command: the words of the host's own command that adds a server to it. `{scope}` and
            `{name}` stand for the scope and the name of the server; the words of its command
            follow. Empty if the host has no such command.
    """

    name: str
    title: str
    places: tuple[Place, ...]
    shape: EntryShape = _PLAIN
    command: tuple[str, ...] = ()

    def files(self, environment: HostEnvironment) -> list[HostFile]:
        """Return the files that the host reads on one machine; the first one wins."""
        return [file for place in self.places for file in place.files(environment)]

    def scopes(self) -> list[Scope]:
        """Return the scopes in which `install` can add a server."""
        return list(dict.fromkeys(place.scope for place in self.places if place.is_current))

    def target(self, environment: HostEnvironment, scope: Scope) -> HostFile:
        """Return the file that `install` writes to: the first of that scope that exists, or the
        first.

        Raises:
            HostFileError: the host reads no file of that scope.
        """
        files = [
            file for file in self.files(environment) if file.scope == scope and file.is_current
        ]
        if not files:
            others = " or ".join(f"--scope {other}" for other in self.scopes() if other != "local")
            raise HostFileError(f"{self.title} has no file of scope {scope!r}; expected {others}")
        return next((file for file in files if file.path.exists()), files[0])

    def entry(self, command: list[str]) -> JSONObject:
        """Return the entry for ideabridge in the host's file.

        Args:
            command: the program and its arguments.
        """
        words: list[JSON] = [*command]
        shape = self.shape
        if shape.arguments is None:
            return {**shape.first, shape.command: words, **shape.last}
        return {
            **shape.first,
            shape.command: words[0],
            shape.arguments: words[1:],
            **shape.last,
        }

    def shell_command(self, scope: Scope, command: list[str]) -> list[str]:
        """Return the words of the host's own command that adds ideabridge as `install` would; empty
        if the host has none.
        """
        words = [word.format(scope=scope, name=SERVER_NAME) for word in self.command]
        return [*words, *command] if words else []


_CODEX: Final = ("mcp_servers",)
_VSCODE: Final = ("servers",)
_OPENCODE: Final = ("mcp",)
_OPENCODE_SHAPE: Final = EntryShape(
    first=MappingProxyType({"type": "local"}),
    arguments=None,
    last=MappingProxyType({"enabled": True}),
)
_CLINE: Final = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
_ROO: Final = "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"
_NEW_CONTINUE: Final = MappingProxyType(
    {"name": "Local Assistant", "version": "1.0.0", "schema": "v1"}
)

HOSTS: Final = (
    Host(
        "claude-code",
        "Claude Code",
        (
            Place(
                "local",
                "{home}/.claude.json",
                ("projects", "{project}", "mcpServers"),
                variable="CLAUDE_CONFIG_DIR",
            ),
            Place("project", "{project}/.mcp.json"),
            Place("user", "{home}/.claude.json", variable="CLAUDE_CONFIG_DIR"),
        ),
        _TYPED,
        command=("claude", "mcp", "add", "--scope", "{scope}", "{name}", "--"),
    ),
    Host(
        "claude-desktop",
        "Claude Desktop",
        (Place("user", "{apps}/Claude/claude_desktop_config.json"),),
    ),
    Host(
        "codex",
        "Codex",
        (
            Place("project", "{project}/.codex/config.toml", _CODEX, "toml"),
            Place("user", "{home}/.codex/config.toml", _CODEX, "toml", variable="CODEX_HOME"),
        ),
    ),
    Host(
        "cursor",
        "Cursor",
        (
            Place("project", "{project}/.cursor/mcp.json", format="jsonc"),
            Place("user", "{home}/.cursor/mcp.json", format="jsonc"),
        ),
    ),
    Host(
        "vscode",
        "VS Code",
        (
            Place("project", "{project}/.vscode/mcp.json", _VSCODE, "jsonc"),
            Place("user", "{apps}/Code/User/mcp.json", _VSCODE, "jsonc"),
            Place("user", "{apps}/Code - Insiders/User/mcp.json", _VSCODE, "jsonc"),
            Place("user", "{apps}/Code/User/profiles/*/mcp.json", _VSCODE, "jsonc"),
        ),
        _TYPED,
    ),
    Host(
        "visual-studio",
        "Visual Studio",
        (
            Place("local", "{project}/.vs/mcp.json", _VSCODE, "jsonc"),
            Place("project", "{project}/.mcp.json", _VSCODE, "jsonc"),
            Place("user", "{home}/.mcp.json", _VSCODE, "jsonc"),
        ),
        _TYPED,
    ),
    Host(
        "copilot-cli",
        "GitHub Copilot CLI",
        (
            Place("project", "{project}/.github/mcp.json"),
            Place("user", "{home}/.copilot/mcp-config.json", variable="COPILOT_HOME"),
        ),
        EntryShape(
            first=MappingProxyType({"type": "local"}),
            last=MappingProxyType({"tools": ["*"]}),
        ),
    ),
    Host(
        "gemini-cli",
        "Gemini CLI",
        (
            Place("project", "{project}/.gemini/settings.json", format="jsonc"),
            Place("user", "{home}/.gemini/settings.json", format="jsonc"),
        ),
    ),
    Host(
        "opencode",
        "opencode",
        (
            Place("project", "{project}/opencode.json", _OPENCODE, "jsonc"),
            Place("project", "{project}/opencode.jsonc", _OPENCODE, "jsonc"),
            Place("user", "{config}/opencode/opencode.json", _OPENCODE, "jsonc"),
            Place("user", "{config}/opencode/opencode.jsonc", _OPENCODE, "jsonc"),
        ),
        _OPENCODE_SHAPE,
    ),
    Host(
        "windsurf",
        "Windsurf",
        (Place("user", "{home}/.codeium/windsurf/mcp_config.json"),),
    ),
    Host(
        "zed",
        "Zed",
        (
            Place("project", "{project}/.zed/settings.json", ("context_servers",), "jsonc"),
            Place(
                "user",
                "{config}/zed/settings.json",
                ("context_servers",),
                "jsonc",
                platforms=("linux", "darwin"),
            ),
            Place(
                "user",
                "{apps}/Zed/settings.json",
                ("context_servers",),
                "jsonc",
                platforms=("win32",),
            ),
        ),
        EntryShape(
            first=MappingProxyType({"source": "custom"}),
            last=MappingProxyType({"env": {}}),
        ),
    ),
    Host(
        "cline",
        "Cline",
        (
            Place("user", f"{{apps}}/Code/{_CLINE}"),
            Place("user", f"{{apps}}/Code - Insiders/{_CLINE}"),
            Place("user", "{home}/.cline/data/settings/cline_mcp_settings.json"),
        ),
    ),
    Host(
        "roo",
        "Roo Code",
        (
            Place("project", "{project}/.roo/mcp.json"),
            Place("user", f"{{apps}}/Code/{_ROO}"),
            Place("user", f"{{apps}}/Code - Insiders/{_ROO}"),
        ),
    ),
    Host(
        "continue",
        "Continue",
        (
            Place("project", "{project}/.continue/mcpServers/ideabridge.json"),
            Place("project", "{project}/.continue/mcpServers/*.json", is_current=False),
            Place(
                "project",
                "{project}/.continue/mcpServers/*.y*ml",
                format="yaml",
                is_list=True,
                is_current=False,
            ),
            Place(
                "user",
                "{home}/.continue/config.yaml",
                format="yaml",
                is_list=True,
                new_content=_NEW_CONTINUE,
            ),
        ),
    ),
    Host(
        "goose",
        "Goose",
        (
            Place(
                "user",
                "{config}/goose/config.yaml",
                ("extensions",),
                "yaml",
                platforms=("linux", "darwin"),
            ),
            Place(
                "user",
                "{apps}/Block/goose/config/config.yaml",
                ("extensions",),
                "yaml",
                platforms=("win32",),
            ),
        ),
        EntryShape(
            first=MappingProxyType(
                {"enabled": True, "type": "stdio", "name": SERVER_NAME, "description": ""}
            ),
            command="cmd",
            last=MappingProxyType({"timeout": 300}),
        ),
    ),
    Host(
        "junie",
        "Junie (JetBrains)",
        (
            Place("project", "{project}/.junie/mcp/mcp.json"),
            Place("user", "{home}/.junie/mcp/mcp.json"),
        ),
    ),
    Host(
        "kiro",
        "Kiro",
        (
            Place("project", "{project}/.kiro/settings/mcp.json"),
            Place("user", "{home}/.kiro/settings/mcp.json"),
        ),
    ),
    Host(
        "amazon-q",
        "Amazon Q Developer",
        (
            Place("project", "{project}/.amazonq/mcp.json"),
            Place("user", "{home}/.aws/amazonq/mcp.json"),
        ),
    ),
    Host(
        "qwen-code",
        "Qwen Code",
        (
            Place("project", "{project}/.qwen/settings.json", format="jsonc"),
            Place("user", "{home}/.qwen/settings.json", format="jsonc"),
        ),
    ),
)
"""Every host that ideabridge knows, in the order in which people see them."""


def find_host(name: str) -> Host:
    """Return the host with this name. Raise `UnknownHostError` if there is none."""
    hosts = {host.name: host for host in HOSTS}
    if name in hosts:
        return hosts[name]
    hint = did_you_mean(name, list(hosts)) or f" Known: {', '.join(hosts)}"
    raise UnknownHostError(f"unknown host {name[:40]!r}.{hint}")
