"""Hosts: the programs that run assistants, and the JSON files in which they list MCP servers
(`docs/hosts.md`).

A host's file is parsed leniently, and parts of it are changed without losing the rest. Odd values,
such as half of a surrogate pair in a recorded conversation, are preserved.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

import platformdirs

from ideabridge.bridge.trust import TrustError, link_out, read_plain, write_own
from ideabridge.tools.documents import blank_comments
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean


class HostFileError(IdeabridgeError):
    """A host's configuration file cannot be read or written. The message names the file."""


class CommentedHostFileError(HostFileError):
    """A host's file has comments or trailing commas, which writing would lose."""


class UnknownHostError(IdeabridgeError):
    """There is no host with this name. The message names similar ones."""


Scope = Literal["local", "project", "user"]
"""local: this project, for this user only (Claude Code). project: the project's own file. user:
everywhere."""

SERVER_NAME: Final = "ideabridge"
"""The name of ideabridge in a host's configuration."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a host's file, in bytes. Some hosts keep recorded conversations in the same
file."""

_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """The environment in which a host looks for its files.

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
    """A place where a host lists servers: an object in a file that maps names to servers.

    Attributes:
        path: the file.
        scope: who uses the servers of the file.
        keys: the keys that lead to the object.
    """

    path: Path
    scope: Scope
    keys: tuple[str, ...]

    def servers(self, content: JSONObject) -> JSONObject:
        """Return the servers in the file's content, keyed by name; empty if the content has no such
        object.
        """
        servers: JSON = content
        for key in self.keys:
            servers = servers.get(key) if isinstance(servers, dict) else None
        return servers if isinstance(servers, dict) else {}

    def with_server(self, content: JSONObject, name: str, entry: JSONObject) -> JSONObject:
        """Return the content with one server added. Everything else keeps its place."""
        return _put(content, (*self.keys, name), entry)

    def without_server(self, content: JSONObject, name: str) -> JSONObject:
        """Return the content without one server. Everything else keeps its place."""
        others = {key: value for key, value in self.servers(content).items() if key != name}
        return _put(content, self.keys, others)


def _put(content: JSONObject, keys: tuple[str, ...], value: JSON) -> JSONObject:
    first, *rest = keys
    if rest:
        below = content.get(first)
        value = _put(below if isinstance(below, dict) else {}, tuple(rest), value)
    return {**content, first: value}


@dataclass(frozen=True, slots=True)
class Host:
    """A program that runs assistants.

    Attributes:
        name: the name of the host on the command line.
        title: the name of the host in texts.
        files: the places that the host reads; the first one wins.
        typed: whether an entry needs a `type`.
        command: returns the shell command that adds ideabridge as `install` would; None if the host
            has no such command.
    """

    name: str
    title: str
    files: Callable[[HostEnvironment], list[HostFile]]
    typed: bool
    command: Callable[[Scope, JSONObject], list[str]] | None = None

    def target(self, environment: HostEnvironment, scope: Scope) -> HostFile:
        """Return the file that `install` writes to."""
        return next(file for file in self.files(environment) if file.scope == scope)

    def entry(self, command: list[str]) -> JSONObject:
        """Return the entry for ideabridge in the host's file: the program and its arguments."""
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
        base = Path(
            environment.variables.get("APPDATA") or environment.home / "AppData" / "Roaming"
        )
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
    """Return the host with this name. Raise `UnknownHostError` if there is none."""
    hosts = {host.name: host for host in HOSTS}
    if name in hosts:
        return hosts[name]
    hint = did_you_mean(name, list(hosts)) or f" Known: {', '.join(hosts)}"
    raise UnknownHostError(f"unknown host {name[:40]!r}.{hint}")


@dataclass(frozen=True, slots=True)
class HostDocument:
    """The content of a host's file.

    Attributes:
        path: the file.
        text: the text of the file, or None if the file does not exist.
        content: the object in the file; empty if the file does not exist.
        strict: whether the text is plain JSON, so that writing it again loses nothing.
    """

    path: Path
    text: str | None
    content: JSONObject
    strict: bool = True

    def check_strict(self) -> None:
        """Raise `CommentedHostFileError` if writing would lose comments or trailing commas."""
        if not self.strict:
            raise CommentedHostFileError(
                f"{self.path}: has comments or trailing commas, which writing would lose"
            )

    def check_place(self, project: Path | None) -> None:
        """Raise `HostFileError` if a symbolic link leads out of a project, to a file that a
        repository has chosen.
        """
        link = None if project is None else link_out(self.path, project)
        if link is not None:
            where = "" if link == self.path else f" by the link {link}"
            raise HostFileError(
                f"{self.path}: leads out of the project{where}, to {os.path.realpath(self.path)}, "
                "and is not written; expected a file in the project's folder"
            )

    def write(
        self,
        content: JSONObject,
        *,
        keep: bool = False,
        private: bool = False,
        shared: bool = False,
        project: Path | None = None,
    ) -> Path | None:
        """Replace the content atomically. Return the path of the backup, or None if there was no
        file.

        The backup is `NAME.bak` beside the file. Indentation, permissions and a symbolic link are
        preserved. Only the owner can read a new file, because such files contain tokens.

        Args:
            content: the new content.
            keep: whether to give the backup an unused name (`NAME.1.bak`), so that no later backup
                replaces it.
            private: whether to make the file and the backup readable only by the owner from now on.
            shared: whether a repository may contain the files beside this one. The backup is then
                written to the user's own folder, under an unused name.
            project: the folder of the project that the file belongs to. No symbolic link may lead
                out of it.

        Raises:
            CommentedHostFileError: the file has comments, which would be lost.
            HostFileError: the file cannot be written, another program has changed it, or a symbolic
                link leads out of the project.
        """
        self.check_strict()
        self.check_place(project)
        target = Path(os.path.realpath(self.path))
        backup: Path | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if private or self.text is None:
                mode = 0o600
            else:
                mode = stat.S_IMODE(target.stat().st_mode)

            if self.text is not None:
                if shared:
                    backup = _free(_backups() / target.name)
                else:
                    backup = _backup_beside(target, keep=keep)
                backup.parent.mkdir(parents=True, exist_ok=True)
                write_own(backup, self.text, 0o600 if shared else mode)

            now = _read_text(target) if target.exists() else None
            if now != self.text:
                raise HostFileError(
                    f"{self.path}: was changed by another program just now; run the command again"
                )

            write_own(target, _render(content, self.text), mode)
        except OSError as error:
            raise HostFileError(
                f"{self.path}: cannot be written: {error.strerror or error}"
            ) from None

        return backup


def _backups() -> Path:
    return platformdirs.user_data_path("ideabridge") / "backups"


def _backup_beside(target: Path, *, keep: bool) -> Path:
    return _free(target) if keep else target.with_name(target.name + ".bak")


def _free(target: Path) -> Path:
    names = (target.with_name(f"{target.name}.{number}.bak") for number in itertools.count(1))
    return next(path for path in names if not path.exists())


def read_host_document(path: Path) -> HostDocument:
    """Read a host's file. Comments and trailing commas are allowed, as in VS Code's files.

    Raises:
        HostFileError: the file cannot be read or is not a JSON object. The message contains line
            and column.
    """
    try:
        text = _read_text(path)
    except FileNotFoundError:
        return HostDocument(path, None, {})
    except UnicodeDecodeError:
        raise HostFileError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise HostFileError(f"{path}: cannot be read: {error.strerror or error}") from None

    if not text.strip():
        return HostDocument(path, text, {})

    strict = True
    try:
        content = _parse(text)
    except ValueError:
        strict = False
        try:
            content = _parse(blank_comments(text))
        except (ValueError, RecursionError) as error:
            raise HostFileError(f"{path}: is not JSON: {_where(error)}") from None
    except RecursionError:
        raise HostFileError(f"{path}: nests too deeply") from None

    if not isinstance(content, dict):
        raise HostFileError(f"{path}: expected an object")
    return HostDocument(path, text, content, strict)


def _read_text(path: Path) -> str:
    """Return the text of a host's file, with every line break as a line feed.

    Raises:
        HostFileError: the file is not a regular file, or is larger than `MAX_BYTES`.
        UnicodeDecodeError: the file is not UTF-8.
        OSError: the file cannot be read.
    """
    try:
        data = read_plain(path, MAX_BYTES)
    except TrustError as error:
        raise HostFileError(str(error)) from None
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()


def _parse(text: str) -> JSON:
    return cast("JSON", json.loads(text, parse_constant=_refuse))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return str(error)


def _render(content: JSONObject, before: str | None) -> str:
    indentation = _INDENT.search(before) if before else None
    indent: str | int = indentation.group(1) if indentation else 2
    try:
        text = json.dumps(content, indent=indent, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        # UTF-8 cannot represent half of a surrogate pair. The escape for it is ASCII.
        text = json.dumps(content, indent=indent)

    if before is not None and before and not before.endswith("\n"):
        return text
    return text + "\n"
