"""Files of hosts: the programs that run assistants, and list MCP servers in files
(`docs/hosts.md`). `table.py` says which host has which files.

A host's file is parsed leniently, and parts of it are changed without losing the rest. Odd values,
such as half of a surrogate pair in a recorded conversation, are preserved.
"""

from __future__ import annotations

import codecs
import io
import itertools
import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, cast

import platformdirs

from ideabridge.bridge.trust import TrustError, link_out, read_plain, write_own
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


class HostFileError(IdeabridgeError):
    """A host's configuration file cannot be read or written. The message names the file."""


class CommentedHostFileError(HostFileError):
    """A host's file has comments or another format than JSON, which writing would lose."""


Scope = Literal["local", "project", "user"]
"""local: this project, for this user only. project: the project's own file. user: everywhere."""

FileFormat = Literal["json", "jsonc", "toml", "yaml"]
"""jsonc: the host reads JSON with comments and trailing commas."""

SERVER_NAME: Final = "ideabridge"
"""The name of ideabridge in a host's configuration."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a host's file, in bytes. Some hosts keep recorded conversations in the same
file."""

_MAX_TOML: Final = 1024 * 1024
"""Maximum size of a file of TOML, in characters. Its parser takes about a second for so many."""

_OTHER_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp_servers",))
"""Keys that lead to the servers in files of several hosts."""

_SERVER_KEYS: Final = frozenset({"command", "cmd", "url", "uri", "httpUrl", "serverUrl"})
"""A server's entry has one of these keys."""

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
        format: the format that the host reads there.
        is_list: whether the keys lead to a list of servers, each with a `name`, instead of an
            object.
        is_current: whether `install` may write to the file.
        new_content: what a new file contains besides the servers.
    """

    path: Path
    scope: Scope
    keys: tuple[str, ...]
    format: FileFormat = "json"
    is_list: bool = False
    is_current: bool = True
    new_content: Mapping[str, JSON] = field(default_factory=dict[str, JSON])

    def servers(self, content: JSONObject) -> JSONObject:
        """Return the servers in the file's content, keyed by name; empty if the content has no such
        object.
        """
        servers = _at(content, self.keys)
        if self.is_list and isinstance(servers, list):
            return _by_name(servers)
        return servers if isinstance(servers, dict) else {}

    def located(self, content: JSONObject) -> HostFile:
        """Return the place where the content has its servers: this one, or else one where other
        hosts have them, as in a file that was copied.
        """
        present = _at(content, self.keys)
        if present is not None or len(self.keys) != 1:
            return replace(self, is_list=isinstance(present, list)) if present else self

        for keys in (*_OTHER_KEYS, ()):
            servers = _at(content, keys)
            if isinstance(servers, list) and any(map(is_like_a_server, servers)):
                return replace(self, keys=keys, is_list=True)
            if isinstance(servers, dict) and any(map(is_like_a_server, servers.values())):
                return replace(self, keys=keys, is_list=False)

        return self

    def with_server(self, content: JSONObject, name: str, entry: JSONObject) -> JSONObject:
        """Return the content with one server added. Everything else keeps its place."""
        return _put(content, (*self.keys, name), entry)

    def without_server(self, content: JSONObject, name: str) -> JSONObject:
        """Return the content without one server. Everything else keeps its place."""
        listed = _at(content, self.keys)
        if self.is_list and isinstance(listed, list):
            named = [[*_by_name([server])] for server in listed]
            return _put(
                content,
                self.keys,
                [server for server, names in zip(listed, named, strict=True) if names != [name]],
            )

        others = {key: value for key, value in self.servers(content).items() if key != name}
        return _put(content, self.keys, others)


def _at(content: JSONObject, keys: tuple[str, ...]) -> JSON:
    value: JSON = content
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def is_like_a_server(value: JSON) -> bool:
    """Return whether a value has a command or an address, as the entry of a server does."""
    return isinstance(value, dict) and not _SERVER_KEYS.isdisjoint(value)


def _by_name(servers: list[JSON]) -> JSONObject:
    """Return the servers of a list, keyed by name. One without a name gets its place in the list as
    its name.
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


def _put(content: JSONObject, keys: tuple[str, ...], value: JSON) -> JSONObject:
    if not keys:
        return value if isinstance(value, dict) else content

    first, *rest = keys
    if rest:
        below = content.get(first)
        value = _put(below if isinstance(below, dict) else {}, tuple(rest), value)
    return {**content, first: value}


@dataclass(frozen=True, slots=True)
class HostDocument:
    """The content of a host's file.

    Attributes:
        path: the file.
        text: the text of the file, or None if the file does not exist.
        content: the object in the file; empty if the file does not exist.
        strict: whether the text is plain JSON, so that writing it again loses nothing.
        damage: what is malformed in the text, so that the content has only the parts that can be
            read; "" if nothing is.
    """

    path: Path
    text: str | None
    content: JSONObject
    strict: bool = True
    damage: str = ""

    def check_strict(self) -> None:
        """Raise `CommentedHostFileError` if writing would lose comments or trailing commas, or
        another format than JSON.
        """
        if self.damage:
            raise HostFileError(f"{self.path}: {self.damage}")
        if not self.strict:
            if self.path.suffix in (".toml", ".yaml", ".yml"):
                raise CommentedHostFileError(f"{self.path}: is not JSON, and is not written")
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


def read_host_document(path: Path, file_format: FileFormat = "json") -> HostDocument:
    """Read a host's file. JSON may have comments and trailing commas, as in VS Code's files.

    Raises:
        HostFileError: the file cannot be read or does not contain an object. The message contains
            line and column.
    """
    document = read_tolerantly(path, file_format)
    if document.damage:
        raise HostFileError(f"{path}: {document.damage}")
    return document


def read_tolerantly(path: Path, file_format: FileFormat = "json") -> HostDocument:
    """Read a host's file, or those parts of a damaged one that can be read. `damage` of the result
    then says what is wrong.

    Raises:
        HostFileError: the file cannot be opened, or is not text.
    """
    is_json = file_format in ("json", "jsonc")
    try:
        text = _read_text(path)
    except FileNotFoundError:
        return HostDocument(path, None, {}, strict=is_json)
    except UnicodeDecodeError:
        raise HostFileError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise HostFileError(f"{path}: cannot be read: {error.strerror or error}") from None

    if not text.strip():
        return HostDocument(path, text, {}, strict=is_json)
    match file_format:
        case "toml":
            return _toml_document(path, text)
        case "yaml":
            return _yaml_document(path, text)
        case _:
            return _json_document(path, text)


def _json_document(path: Path, text: str) -> HostDocument:
    strict = True
    try:
        content = _parse(text)
    except RecursionError:
        return HostDocument(path, text, {}, damage="nests too deeply")
    except ValueError:
        strict = False
        try:
            content = _parse(blank_comments(text))
        except (ValueError, RecursionError) as error:
            damage = f"is not JSON: {_where(error)}"
            return HostDocument(path, text, salvage_json(text), strict, damage)

    if isinstance(content, list):
        damage = "is a list; expected an object"
        return HostDocument(path, text, {"mcpServers": content}, strict, damage)
    if not isinstance(content, dict):
        return HostDocument(path, text, {}, strict, "expected an object")
    return HostDocument(path, text, content, strict)


def _toml_document(path: Path, text: str) -> HostDocument:
    if len(text) > _MAX_TOML:
        damage = f"has {len(text):,} characters of TOML; at most {_MAX_TOML:,} are read"
        return HostDocument(path, text, {}, strict=False, damage=damage)

    try:
        return HostDocument(path, text, plain_toml(text), strict=False)
    except (ValueError, RecursionError) as error:
        damage = f"is not TOML: {error}"
        return HostDocument(path, text, salvage_toml(text), strict=False, damage=damage)


def _yaml_document(path: Path, text: str) -> HostDocument:
    try:
        content = read_written(text, what="", name="host.yaml")
    except LimitExceededError as error:
        return HostDocument(path, text, {}, strict=False, damage=str(error).lstrip(" ,:"))
    except IdeabridgeError as error:
        damage = str(error).lstrip(" ,:")
        return HostDocument(path, text, salvage_yaml(text), strict=False, damage=damage)

    if content is None:
        content = {}
    if not isinstance(content, dict):
        return HostDocument(path, text, {}, strict=False, damage="expected an object")
    return HostDocument(path, text, content, strict=False)


def _read_text(path: Path) -> str:
    """Return the text of a host's file, with every line break as a line feed.

    Raises:
        HostFileError: the file is not a regular file, or is larger than `MAX_BYTES`.
        UnicodeDecodeError: the file is neither UTF-8 nor UTF-16 with a byte order mark.
        OSError: the file cannot be read.
    """
    try:
        data = read_plain(path, MAX_BYTES)
    except TrustError as error:
        raise HostFileError(str(error)) from None
    # PowerShell writes UTF-16 with a byte order mark.
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding).read()


def _parse(text: str) -> JSON:
    return cast("JSON", decoder().decode(text))


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
