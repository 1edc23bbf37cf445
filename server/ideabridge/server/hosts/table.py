"""Describe where and in which form each host lists its MCP servers (`docs/hosts.md`).

Import, `install`, `doctor` and completion take all their knowledge of hosts from this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from ideabridge.server.hosts.host import (
    SERVER_NAME,
    FileFormat,
    HostEnvironment,
    HostFile,
    HostFileError,
    Scope,
)
from ideabridge.server.hosts.notation import Notation
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean

_MOST_MATCHES: Final = 100
"""Maximum number of files that a path with a `*` can match."""


class UnknownHostError(IdeabridgeError):
    """Raised when no host has the given name. The message suggests similar names."""


@dataclass(frozen=True, slots=True)
class Place:
    """A location where a host lists servers, independent of the machine.

    Attributes:
        scope: who uses the servers.
        path: the path of the file. It starts with `{project}`, `{home}`, `{config}` (`~/.config`)
            or `{apps}` (the folder for the data of desktop programs). A `*` stands for any name.
        keys: the keys that lead to the servers. `{project}` stands for the folder of the project.
        format: the format in which the host reads the file.
        is_list: see `HostFile`.
        is_current: see `HostFile`.
        variable: an environment variable that, if set, replaces the folder of the path.
        platforms: the values of `sys.platform` on which the host reads the file; empty for all.
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
        """Yield the files at this location on the given machine: a single file or, if the path
        contains a `*`, all files that match.
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
        # Leave out names that are not printable, because whoever can create a file in a project
        # must not be able to add lines to a message through its name.
        matches = [
            match
            for match in sorted(folder.glob("/".join(parts[below:])))
            if str(match.relative_to(folder)).isprintable()
        ]
        for match in matches[:_MOST_MATCHES]:
            yield replace(file, path=match)

    def _path(self, environment: HostEnvironment) -> Path:
        start, _, rest = self.path.partition("/")
        folder = environment.variables.get(self.variable) if self.variable else None
        if folder:
            return Path(folder).expanduser() / rest.rpartition("/")[2]
        return _folder(start, environment) / rest


def _folder(name: str, environment: HostEnvironment) -> Path:
    """Return the folder that the first part of a path stands for, such as `{home}`."""
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
    """The form of a host's entry for a server that is a program.

    Attributes:
        first: the keys that come before the command, with their values.
        command: the key for the program.
        arguments: the key for the program's arguments; None if the command is a list of the program
            and its arguments.
        last: the keys that come after the arguments, with their values.
    """

    first: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    command: str = "command"
    arguments: str | None = "args"
    last: Mapping[str, JSON] = field(default_factory=dict[str, JSON])

    def entry(self, command: list[str]) -> JSONObject:
        """Return the entry that starts the given command: the program and its arguments."""
        words: list[JSON] = [*command]
        if self.arguments is None:
            return {**self.first, self.command: words, **self.last}
        return {**self.first, self.command: words[0], self.arguments: words[1:], **self.last}


@dataclass(frozen=True, slots=True)
class AddressShape:
    """The form of a host's entry for a server at an address.

    Attributes:
        url: the key for the address.
        headers: the key for the headers.
        first: the keys that come before the address, with their values.
        last: the keys that come after the headers, with their values.
        reference: the notation in which a header refers to an environment variable, with `NAME` for
            the name of the variable; "" if the notation is unknown.
        variable_key: the key for the name of the variable that contains the bearer token, used
            instead of the headers; "" if the host has no such key.
    """

    url: str = "url"
    headers: str = "headers"
    first: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    last: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    reference: str = ""
    variable_key: str = ""

    def entry(self, url: str, token: str) -> JSONObject:
        """Return the entry that connects to a server with a bearer token."""
        headers: JSONObject = {"Authorization": f"Bearer {token}"}
        return {**self.first, self.url: url, self.headers: headers, **self.last}

    def entry_with_variable(self, url: str, variable: str) -> JSONObject | None:
        """Return the entry that connects to a server with a bearer token that the host reads from
        an environment variable, or None if the host supports no such entry.
        """
        if self.variable_key:
            return {**self.first, self.url: url, self.variable_key: variable, **self.last}
        if self.reference:
            return self.entry(url, self.reference.replace("NAME", variable))
        return None


@dataclass(frozen=True, slots=True)
class HostRefusal:
    """A list in a host's file of the servers that the host does not start.

    Attributes:
        scope: the projects in which the host does not start the servers: `user` for all projects,
            `local` or `project` for this project.
        path: the file, as in `Place`.
        keys: the keys that lead to the list. `{project}` stands for the folder of the project.
        kind: the form of the list. `refused` lists the names of refused servers, and `only` lists
            the names of the only servers that the host starts. `denied` is a list of objects with
            `serverName`, `serverCommand` or `serverUrl`. `tools` is an object whose keys are
            patterns for tool names; the value `false` turns the tools off. `rules` is a list of
            `mcp__SERVER__TOOL` or, for all of a server's tools, `mcp__SERVER`.
        of: the scopes of the servers that the list applies to; empty for all.
        format: the format of the file.
        variable: as in `Place`.
    """

    scope: Scope
    path: str
    keys: tuple[str, ...]
    kind: Literal["refused", "only", "denied", "tools", "rules"] = "refused"
    of: tuple[Scope, ...] = ()
    format: FileFormat = "jsonc"
    variable: str = ""

    def file(self, environment: HostEnvironment) -> HostFile:
        """Return the file on the given machine, with the keys that lead to the list."""
        place = Place(self.scope, self.path, self.keys, self.format, variable=self.variable)
        return next(place.files(environment))


_PLAIN: Final = EntryShape()
_TYPED: Final = EntryShape(first=MappingProxyType({"type": "stdio"}))
_TYPED_ADDRESS: Final = AddressShape(first=MappingProxyType({"type": "http"}))
_TYPED_ADDRESS_BRACES: Final = replace(_TYPED_ADDRESS, reference="${NAME}")


@dataclass(frozen=True, slots=True)
class Host:
    """A program that runs assistants.

    Attributes:
        name: the name of the host on the command line.
        title: the name of the host for display.
        places: where the host lists servers, in order of precedence.
        shape: the form of an entry that starts ideabridge. The entries of other servers are read by
            `translate.py`, which knows the keys of all hosts.
        address: the form of an entry that connects to a server; None if unknown.
        notations: the notations for variables that the host supports.
        timeouts: the host's keys for timeouts, each with the corresponding key in `ideabridge.json`
            and the number of the host's units in a second.
        url_kinds: the transport that each address key implies if the entry has no `type`. For other
            keys, ideabridge tries the transports, as most hosts do.
        own_kinds: the values of `type` or `source` that mark an entry as a part of the host rather
            than a server.
        project_variables: variables that the host sets to the project folder.
        folder: the notation for the project folder in the entries of a project's file. Hosts start
            the servers of a project's file in the project folder, unless the table says otherwise.
        refusals: where the host lists servers that it does not start, outside their entries.
        unsure: a text for docs/hosts.md about what the host's documentation leaves open.
        command: the words of the host's own command that adds a server to it. `{scope}` and
            `{name}` stand for the scope and the name of the server; the words of the server's
            command follow. Empty if the host has no such command.
        command_scope: the only scope in which that command adds a server; None for all.
        platforms: the values of `sys.platform` on which the host runs; empty for all.
    """

    name: str
    title: str
    places: tuple[Place, ...]
    shape: EntryShape = _PLAIN
    address: AddressShape | None = None
    notations: frozenset[Notation] = frozenset()
    timeouts: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    url_kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    own_kinds: frozenset[str] = frozenset()
    project_variables: tuple[str, ...] = ()
    folder: str = "."
    refusals: tuple[HostRefusal, ...] = ()
    unsure: str = ""
    command: tuple[str, ...] = ()
    command_scope: Scope | None = None
    platforms: tuple[str, ...] = ()

    def files(self, environment: HostEnvironment) -> list[HostFile]:
        """Return the files that the host reads on the given machine, in order of precedence."""
        files: dict[tuple[Path, tuple[str, ...]], HostFile] = {}
        for place in self.places:
            for file in place.files(environment):
                files.setdefault((file.path, file.keys), file)

        return [*files.values()]

    def scopes(self) -> list[Scope]:
        """Return the scopes in which `install` can add a server."""
        return list(dict.fromkeys(place.scope for place in self.places if place.is_current))

    def target(self, environment: HostEnvironment, scope: Scope) -> HostFile:
        """Return the file that `install` writes to: the scope's first existing file or, if none
        exists, the first file in the scope.

        Raises:
            HostFileError: the host reads no file in that scope.
        """
        # If the project is the home folder, its file may be the same as the user's own.
        files = [
            file
            for place in self.places
            for file in place.files(environment)
            if file.scope == scope and file.is_current
        ]
        if not files:
            others = " or ".join(f"--scope {other}" for other in self.scopes() if other != "local")
            raise HostFileError(f"{self.title} has no file for scope {scope!r}; expected {others}")
        return next((file for file in files if file.path.exists()), files[0])

    def entry(self, command: list[str]) -> JSONObject:
        """Return the entry for ideabridge in the host's file.

        Args:
            command: the program and its arguments.
        """
        return self.shape.entry(command)

    def shell_command(self, scope: Scope, command: list[str]) -> list[str]:
        """Return the words of the host's own command that adds ideabridge as `install` would, or an
        empty list if the host has no such command.
        """
        if not self.command or self.command_scope not in (None, scope):
            return []
        words = [word.format(scope=scope, name=SERVER_NAME) for word in self.command]
        return [*words, *command]


def _milliseconds(*keys: str) -> Mapping[str, tuple[str, int]]:
    return MappingProxyType(dict.fromkeys(keys, ("timeout", 1000)))


_SECONDS: Final = MappingProxyType({"timeout": ("timeout", 1)})
_BRACES: Final = frozenset[Notation]({"braces"})
_DOLLAR: Final = frozenset[Notation]({"braces", "dollar"})
_CODEX: Final = ("mcp_servers",)
_VSCODE: Final = ("servers",)
_OPENCODE: Final = ("mcp",)
_OPENCODE_2: Final = ("mcp", "servers")
_ZED: Final = ("context_servers",)
_CLINE: Final = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
_ROO: Final = "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"
_CLAUDE_PROJECT: Final = ("projects", "{project}")
_CLAUDE: Final = "CLAUDE_CONFIG_DIR"
_MCPJSON: Final = ("disabledMcpjsonServers",)


def _claude_settings(scope: Scope, path: str) -> tuple[HostRefusal, ...]:
    return (
        HostRefusal(scope, path, _MCPJSON, of=("project",)),
        HostRefusal(scope, path, ("deniedMcpServers",), "denied"),
        HostRefusal(scope, path, ("permissions", "deny"), "rules"),
    )


def _gemini_settings(scope: Scope, path: str) -> tuple[HostRefusal, ...]:
    return (
        HostRefusal(scope, path, ("mcp", "excluded")),
        HostRefusal(scope, path, ("mcp", "allowed"), "only"),
    )


HOSTS: Final = (
    Host(
        "claude-code",
        "Claude Code",
        (
            Place(
                "local", "{home}/.claude.json", (*_CLAUDE_PROJECT, "mcpServers"), variable=_CLAUDE
            ),
            Place("project", "{project}/.mcp.json"),
            Place("user", "{home}/.claude.json", variable=_CLAUDE),
        ),
        _TYPED,
        notations=_BRACES,
        timeouts=_milliseconds("timeout"),
        project_variables=("CLAUDE_PROJECT_DIR",),
        refusals=(
            *_claude_settings("user", "{home}/.claude/settings.json"),
            *_claude_settings("project", "{project}/.claude/settings.json"),
            *_claude_settings("local", "{project}/.claude/settings.local.json"),
            HostRefusal(
                "local",
                "{home}/.claude.json",
                (*_CLAUDE_PROJECT, *_MCPJSON),
                of=("project",),
                variable=_CLAUDE,
            ),
            HostRefusal(
                "local",
                "{home}/.claude.json",
                (*_CLAUDE_PROJECT, "disabledMcpServers"),
                variable=_CLAUDE,
            ),
        ),
        command=("claude", "mcp", "add", "--scope", "{scope}", "{name}", "--"),
        address=_TYPED_ADDRESS_BRACES,
    ),
    Host(
        "claude-desktop",
        "Claude Desktop",
        (Place("user", "{apps}/Claude/claude_desktop_config.json"),),
        unsure="Its documentation names no file for Linux.",
    ),
    Host(
        "codex",
        "Codex",
        (
            Place("project", "{project}/.codex/config.toml", _CODEX, "toml"),
            Place("user", "{home}/.codex/config.toml", _CODEX, "toml", variable="CODEX_HOME"),
        ),
        timeouts=MappingProxyType(
            {
                "startup_timeout_sec": ("connect_timeout", 1),
                "startup_timeout_ms": ("connect_timeout", 1000),
                "tool_timeout_sec": ("timeout", 1),
            }
        ),
        url_kinds=MappingProxyType({"url": "http"}),
        command=("codex", "mcp", "add", "{name}", "--"),
        command_scope="user",
        address=AddressShape(headers="http_headers", variable_key="bearer_token_env_var"),
    ),
    Host(
        "cursor",
        "Cursor",
        (
            Place("project", "{project}/.cursor/mcp.json", format="jsonc"),
            Place("user", "{home}/.cursor/mcp.json", format="jsonc"),
        ),
        folder="${workspaceFolder}",
        address=AddressShape(reference="${env:NAME}"),
    ),
    Host(
        "vscode",
        "VS Code",
        (
            Place("project", "{project}/.vscode/mcp.json", _VSCODE, "jsonc"),
            Place(
                "project",
                "{project}/.vscode/settings.json",
                ("mcp", "servers"),
                "jsonc",
                is_current=False,
            ),
            Place(
                "project",
                "{project}/.devcontainer/devcontainer.json",
                ("customizations", "vscode", "mcp", "servers"),
                "jsonc",
                is_current=False,
            ),
            Place("user", "{apps}/Code/User/mcp.json", _VSCODE, "jsonc"),
            Place("user", "{apps}/Code - Insiders/User/mcp.json", _VSCODE, "jsonc"),
            Place("user", "{apps}/Code/User/profiles/*/mcp.json", _VSCODE, "jsonc"),
        ),
        _TYPED,
        unsure="Its documentation names your profile, but not the path of its file.",
        folder="${workspaceFolder}",
        address=_TYPED_ADDRESS,
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
        unsure="Its documentation does not say in which folder a server runs.",
        platforms=("win32",),
    ),
    Host(
        "copilot-cli",
        "GitHub Copilot CLI",
        (
            Place("project", "{project}/.github/mcp.json", format="jsonc"),
            Place("project", "{project}/.mcp.json", format="jsonc", is_current=False),
            Place("user", "{home}/.copilot/mcp-config.json", variable="COPILOT_HOME"),
        ),
        EntryShape(
            first=MappingProxyType({"type": "local"}),
            last=MappingProxyType({"tools": ["*"]}),
        ),
        notations=_DOLLAR,
        timeouts=_milliseconds("timeout"),
        refusals=(
            HostRefusal(
                "user",
                "{home}/.copilot/settings.json",
                ("disabledMcpServers",),
                variable="COPILOT_HOME",
            ),
        ),
    ),
    Host(
        "gemini-cli",
        "Gemini CLI",
        (
            Place("project", "{project}/.gemini/settings.json", format="jsonc"),
            Place("user", "{home}/.gemini/settings.json", format="jsonc"),
        ),
        notations=_DOLLAR,
        timeouts=_milliseconds("timeout"),
        url_kinds=MappingProxyType({"url": "sse", "httpUrl": "http"}),
        refusals=(
            *_gemini_settings("project", "{project}/.gemini/settings.json"),
            *_gemini_settings("user", "{home}/.gemini/settings.json"),
        ),
        address=AddressShape(url="httpUrl", reference="${NAME}"),
    ),
    Host(
        "opencode",
        "opencode",
        (
            Place("project", "{project}/opencode.json", _OPENCODE, "jsonc"),
            Place("project", "{project}/opencode.jsonc", _OPENCODE, "jsonc"),
            Place("project", "{project}/opencode.json", _OPENCODE_2, "jsonc", is_current=False),
            Place("project", "{project}/opencode.jsonc", _OPENCODE_2, "jsonc", is_current=False),
            Place("user", "{config}/opencode/opencode.json", _OPENCODE, "jsonc"),
            Place("user", "{config}/opencode/opencode.jsonc", _OPENCODE, "jsonc"),
            Place(
                "user", "{config}/opencode/opencode.json", _OPENCODE_2, "jsonc", is_current=False
            ),
            Place(
                "user", "{config}/opencode/opencode.jsonc", _OPENCODE_2, "jsonc", is_current=False
            ),
        ),
        EntryShape(
            first=MappingProxyType({"type": "local"}),
            arguments=None,
            last=MappingProxyType({"enabled": True}),
        ),
        notations=frozenset[Notation]({"curly"}),
        timeouts=MappingProxyType({"timeout": ("connect_timeout", 1000)}),
        refusals=(
            HostRefusal("project", "{project}/opencode.json", ("tools",), "tools"),
            HostRefusal("project", "{project}/opencode.jsonc", ("tools",), "tools"),
            HostRefusal("user", "{config}/opencode/opencode.json", ("tools",), "tools"),
            HostRefusal("user", "{config}/opencode/opencode.jsonc", ("tools",), "tools"),
        ),
        unsure="`mcp.servers` of version 2 is read; `mcp`, which both versions read, is written.",
        address=AddressShape(
            first=MappingProxyType({"type": "remote"}),
            last=MappingProxyType({"enabled": True}),
            reference="{env:NAME}",
        ),
    ),
    Host(
        "windsurf",
        "Windsurf",
        (
            Place("user", "{home}/.codeium/windsurf/mcp_config.json"),
            Place("user", "{home}/.codeium/mcp_config.json", is_current=False),
        ),
        address=AddressShape(url="serverUrl"),
    ),
    Host(
        "zed",
        "Zed",
        (
            Place("project", "{project}/.zed/settings.json", _ZED, "jsonc"),
            Place(
                "user", "{config}/zed/settings.json", _ZED, "jsonc", platforms=("linux", "darwin")
            ),
            Place("user", "{apps}/Zed/settings.json", _ZED, "jsonc", platforms=("win32",)),
        ),
        EntryShape(
            first=MappingProxyType({"source": "custom"}),
            last=MappingProxyType({"env": {}}),
        ),
        timeouts=_SECONDS,
        own_kinds=frozenset({"extension"}),
    ),
    Host(
        "cline",
        "Cline",
        (
            Place("user", f"{{apps}}/Code/{_CLINE}"),
            Place("user", f"{{apps}}/Code - Insiders/{_CLINE}"),
            Place("user", "{home}/.cline/data/settings/cline_mcp_settings.json"),
        ),
        _TYPED,
        timeouts=_SECONDS,
        url_kinds=MappingProxyType({"url": "sse"}),
        unsure="Its documentation names only the file of its command line.",
    ),
    Host(
        "roo",
        "Roo Code",
        (
            Place("project", "{project}/.roo/mcp.json", format="jsonc"),
            Place("user", f"{{apps}}/Code/{_ROO}", format="jsonc"),
            Place("user", f"{{apps}}/Code - Insiders/{_ROO}", format="jsonc"),
        ),
        timeouts=_SECONDS,
        unsure="Its documentation opens your own file with a button, and does not say where it is.",
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
                "project",
                "{project}/.continue/config.yaml",
                format="yaml",
                is_list=True,
                is_current=False,
            ),
            Place(
                "user",
                "{home}/.continue/config.yaml",
                format="yaml",
                is_list=True,
                new_content=MappingProxyType(
                    {"name": "Local Assistant", "version": "1.0.0", "schema": "v1"}
                ),
            ),
        ),
        notations=_BRACES,
        timeouts=MappingProxyType({"connectionTimeout": ("connect_timeout", 1000)}),
        unsure=(
            "`.continue/config.yaml` of a project occurs in public files, but not in its "
            "documentation."
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
        notations=_BRACES,
        timeouts=_SECONDS,
        own_kinds=frozenset({"builtin", "platform", "frontend", "inline_python"}),
    ),
    Host(
        "junie",
        "Junie (JetBrains)",
        (
            Place("project", "{project}/.junie/mcp/mcp.json"),
            Place("user", "{home}/.junie/mcp/mcp.json"),
        ),
        unsure="Its documentation names neither variables nor timeouts. JetBrains AI Assistant "
        "keeps servers in its settings: paste the block there.",
    ),
    Host(
        "kiro",
        "Kiro",
        (
            Place("project", "{project}/.kiro/settings/mcp.json"),
            Place("user", "{home}/.kiro/settings/mcp.json"),
            Place("user", "{home}/.kiro/agents/*.json", is_current=False),
        ),
        notations=_BRACES,
        timeouts=_milliseconds("timeout"),
    ),
    Host(
        "amazon-q",
        "Amazon Q Developer",
        (
            Place("project", "{project}/.amazonq/mcp.json"),
            Place("project", "{project}/.amazonq/default.json", is_current=False),
            Place("project", "{project}/.amazonq/agents/*.json", is_current=False),
            Place("project", "{project}/.amazonq/cli-agents/*.json", is_current=False),
            Place("user", "{home}/.aws/amazonq/mcp.json"),
            Place("user", "{home}/.aws/amazonq/default.json", is_current=False),
            Place("user", "{home}/.aws/amazonq/agents/*.json", is_current=False),
            Place("user", "{home}/.aws/amazonq/cli-agents/*.json", is_current=False),
        ),
        timeouts=_milliseconds("timeout"),
        unsure="`mcp.json` is its older file. The default agent reads it too.",
    ),
    Host(
        "qwen-code",
        "Qwen Code",
        (
            Place("project", "{project}/.qwen/settings.json", format="jsonc"),
            Place("user", "{home}/.qwen/settings.json", format="jsonc"),
        ),
        notations=_DOLLAR,
        timeouts=MappingProxyType(
            {"timeout": ("timeout", 1000), "discoveryTimeoutMs": ("connect_timeout", 1000)}
        ),
        url_kinds=MappingProxyType({"url": "sse", "httpUrl": "http"}),
        refusals=(
            *_gemini_settings("project", "{project}/.qwen/settings.json"),
            *_gemini_settings("user", "{home}/.qwen/settings.json"),
        ),
    ),
    Host(
        "crush",
        "Crush",
        (
            Place("project", "{project}/.crush.json", _OPENCODE),
            Place("project", "{project}/crush.json", _OPENCODE),
            Place("user", "{config}/crush/crush.json", _OPENCODE),
        ),
        _TYPED,
        notations=frozenset[Notation]({"braces", "dollar", "shell"}),
        timeouts=MappingProxyType({"timeout": ("connect_timeout", 1)}),
    ),
    Host("lm-studio", "LM Studio", (Place("user", "{home}/.lmstudio/mcp.json"),)),
    Host(
        "trae",
        "Trae",
        (
            Place("project", "{project}/.trae/mcp.json"),
            Place("user", "{apps}/Trae/User/mcp.json"),
        ),
    ),
    Host(
        "warp",
        "Warp",
        (
            Place("project", "{project}/.warp/.mcp.json"),
            Place("user", "{home}/.warp/.mcp.json"),
        ),
        notations=_BRACES,
    ),
)
"""All hosts that ideabridge knows, in display order."""


def host_title(name: str) -> str:
    """Return the display name of a host. A name that belongs to no host is returned unchanged."""
    return next((host.title for host in HOSTS if host.name == name), name)


def find_host(name: str, *, otherwise: str = "") -> Host:
    """Return the host named `name`.

    Args:
        name: the name on the command line.
        otherwise: a text that says what to do about a host that is not in the table.

    Raises:
        UnknownHostError: no host has this name.
    """
    hosts = {host.name: host for host in HOSTS}
    if name in hosts:
        return hosts[name]

    similar = did_you_mean(name, list(hosts))
    if similar:
        raise UnknownHostError(f"unknown client {name[:40]!r}.{similar}")
    known = f"unknown client {name[:40]!r}; the known ones are {', '.join(hosts)}"
    raise UnknownHostError(f"{known}. {otherwise}" if otherwise else known)
