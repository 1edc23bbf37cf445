"""Read the files in which hosts (the programs that run assistants) list their MCP servers
(`docs/hosts.md`). `table.py` lists the files of each host.

If a file is damaged, its valid parts are read. The `editing` package writes these files.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, cast

from ideabridge.bridge.trust import TrustError, read_plain
from ideabridge.server.hosts.salvage import (
    PartialObject,
    ReadObject,
    decoder,
    plain_toml,
    salvage_json,
    salvage_toml,
    salvage_yaml,
)
from ideabridge.tools.documents import blank_comments, read_written
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError
from ideabridge.tools.json_parts import part_at


class HostFileError(IdeabridgeError):
    """Raised when a host's configuration file cannot be read or written. The message names the
    file.
    """


Scope = Literal["local", "project", "user"]
"""Who uses a server. `local`: only this user, in this project. `project`: everyone who uses the
project's own file. `user`: this user, everywhere.
"""

FileFormat = Literal["json", "jsonc", "toml", "yaml"]
"""jsonc: the host reads JSON with comments and trailing commas."""

SERVER_NAME: Final = "ideabridge"
"""The name of ideabridge in a host's configuration."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a host's file, in bytes. Some hosts keep recorded conversations in the same
file."""

MAX_PROJECT_BYTES: Final = 1024 * 1024
"""Maximum total size, in bytes, of all of one host's files in a project. A repository can contain
any files, and they are read before a person has reviewed them.
"""

MAX_TOML: Final = 1024 * 1024
"""Maximum size of a TOML file, in characters. The parser needs about a second for this size."""

_OTHER_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp_servers",))
"""Keys that lead to the servers in several hosts' files."""

_SERVER_KEYS: Final = frozenset({"command", "cmd", "url", "uri", "httpUrl", "serverUrl"})
"""Keys of which a server's entry has at least one."""


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
    """An object in a host's file that maps names to servers.

    Attributes:
        path: the file.
        scope: who uses the servers in the file.
        keys: the keys that lead to the object.
        format: the format in which the host reads the file.
        is_list: whether the keys lead to a list of servers, each with a `name`, instead of an
            object.
        is_current: whether `install` is allowed to write to the file.
        new_content: the members that a new file contains besides the servers.
    """

    path: Path
    scope: Scope
    keys: tuple[str, ...]
    format: FileFormat = "json"
    is_list: bool = False
    is_current: bool = True
    new_content: Mapping[str, JSON] = field(default_factory=dict[str, JSON])

    def scope_in(self, project: Path) -> Scope:
        """Return the scope that says who controls the servers in the file.

        Any file in the project's folder can be part of a repository, even a file that the host
        keeps for one user.
        """
        if self.scope == "local" and self.path.is_relative_to(project):
            return "project"
        return self.scope

    def servers(self, content: JSONObject) -> JSONObject:
        """Return the servers in the file's content, keyed by name. The result is empty if the
        content has no such object.
        """
        servers = part_at(content, self.keys)
        if self.is_list and isinstance(servers, list):
            return _by_name(servers)
        if not isinstance(servers, dict):
            return {}
        return servers if self.keys else _without_marks(servers)

    def located(self, content: JSONObject) -> HostFile:
        """Return where the content lists its servers: at these keys or, because people copy files
        from host to host, at the keys that another host uses.
        """
        present = part_at(content, self.keys)
        if present is not None or len(self.keys) != 1:
            return replace(self, is_list=isinstance(present, list)) if present else self

        for keys in _OTHER_KEYS:
            servers = part_at(content, keys)
            if isinstance(servers, list) and any(map(is_like_a_server, servers)):
                return replace(self, keys=keys, is_list=True)
            if isinstance(servers, dict) and any(map(is_like_a_server, servers.values())):
                return replace(self, keys=keys, is_list=False)

        # Check the content, because in a settings file, an object with a command need not be a
        # server.
        bare = _without_marks(content)
        if bare and all(map(is_like_a_server, bare.values())):
            return replace(self, keys=(), is_list=False)
        return self


def _without_marks(content: JSONObject) -> JSONObject:
    """Return the members of an object except `$schema`, comments and the like."""
    return {key: value for key, value in content.items() if not key.startswith(("$", "_"))}


def is_like_a_server(value: JSON) -> bool:
    """Return whether `value` has a command or an address, as a server's entry does."""
    return isinstance(value, dict) and not _SERVER_KEYS.isdisjoint(value)


def _by_name(servers: list[JSON]) -> JSONObject:
    """Return the servers in a list, keyed by name. A server without a name is keyed by its position
    in the list.
    """
    named = ReadObject()
    repeated: list[str] = []
    for number, server in enumerate(servers, start=1):
        name = f"number {number}"
        if isinstance(server, dict):
            name = next((str(server[key]) for key in ("name", "uses") if server.get(key)), name)
            others = {key: value for key, value in server.items() if key != "name"}
            server = PartialObject(others) if isinstance(server, PartialObject) else others

        if name in named:
            repeated.append(name)
        named[name] = server

    named.repeated = tuple(dict.fromkeys(repeated))
    return named


@dataclass(frozen=True, slots=True)
class HostDocument:
    """The content of a host's file.

    Attributes:
        path: the file.
        text: the text of the file, or None if the file does not exist.
        content: the object in the file; empty if the file does not exist.
        damage: the syntax error if the text is malformed, otherwise "". If the text is malformed,
            `content` has only the parts that can be read.
    """

    path: Path
    text: str | None
    content: JSONObject
    damage: str = ""


def read_tolerantly(
    path: Path, file_format: FileFormat = "json", max_bytes: int = MAX_BYTES
) -> HostDocument:
    """Read a host's file. If the file is damaged, read its valid parts, and describe the error in
    `damage`.

    Raises:
        HostFileError: the file cannot be opened, is larger than `max_bytes`, or is not text.
    """
    try:
        text = _read_text(path, max_bytes)
    except FileNotFoundError:
        return HostDocument(path, None, {})
    except UnicodeDecodeError:
        raise HostFileError(f"{path} is not UTF-8") from None
    except OSError as error:
        raise HostFileError(f"{path} cannot be read: {error.strerror or error}") from None

    if not text.strip():
        return HostDocument(path, text, {})
    match file_format:
        case "toml":
            return _toml_document(path, text)
        case "yaml":
            return _yaml_document(path, text)
        case _:
            return _json_document(path, text)


def _json_document(path: Path, text: str) -> HostDocument:
    try:
        content = _parse(text)
    except RecursionError:
        return HostDocument(path, text, {}, damage="is nested too deeply")
    except ValueError:
        try:
            content = _parse(blank_comments(text))
        except (ValueError, RecursionError) as error:
            damage = f"is not JSON: {_where(error)}"
            return HostDocument(path, text, salvage_json(text), damage)

    if isinstance(content, list):
        damage = "is a list; expected an object"
        return HostDocument(path, text, {"mcpServers": content}, damage)
    if not isinstance(content, dict):
        return HostDocument(path, text, {}, "expected an object")
    return HostDocument(path, text, content)


def _toml_document(path: Path, text: str) -> HostDocument:
    if len(text) > MAX_TOML:
        damage = f"has {len(text):,} characters of TOML; the limit is {MAX_TOML:,}"
        return HostDocument(path, text, {}, damage=damage)

    try:
        return HostDocument(path, text, plain_toml(text))
    except (ValueError, RecursionError) as error:
        damage = f"is not TOML: {error}"
        return HostDocument(path, text, salvage_toml(text), damage=damage)


def _yaml_document(path: Path, text: str) -> HostDocument:
    try:
        content = read_written(text, what="", name="host.yaml")
    except LimitExceededError as error:
        return HostDocument(path, text, {}, damage=str(error).lstrip(" ,:"))
    except IdeabridgeError as error:
        damage = str(error).lstrip(" ,:")
        return HostDocument(path, text, salvage_yaml(text), damage=damage)

    if content is None:
        content = {}
    if not isinstance(content, dict):
        return HostDocument(path, text, {}, damage="expected an object")
    return HostDocument(path, text, content)


def _read_text(path: Path, max_bytes: int) -> str:
    """Return the text of a host's file, with every line break converted to a line feed.

    Raises:
        HostFileError: the file is not a regular file, or is larger than `max_bytes`.
        UnicodeDecodeError: the file is neither UTF-8 nor UTF-16 with a byte order mark.
        OSError: the file cannot be read.
    """
    try:
        data = read_plain(path, max_bytes)
    except TrustError as error:
        raise HostFileError(str(error)) from None
    # Accept UTF-16 with a byte order mark, because PowerShell writes it.
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding).read()


def _parse(text: str) -> JSON:
    return cast("JSON", decoder().decode(text))


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return str(error)
