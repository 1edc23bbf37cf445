"""Read a configuration file and translate it into ideabridge's keys, before the content is checked.

Both the trust in a project file and its configuration are computed from the translated document.
Trust therefore covers everything that is executed, no matter how it is written in the file.

Shell completion reads documents at every key press, so this file imports only the standard library
and small files.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ideabridge.bridge.server_entry import (
    Remark,
    ServerEntry,
    found_kind,
    name_problem,
    read_server_entry,
)
from ideabridge.tools.documents import blank_comments
from ideabridge.tools.encoding import JSON, REPEATED, JSONObject, count_values, decode
from ideabridge.tools.errors import IdeabridgeError, InvalidJSONError, LimitExceededError

_SERVERS: Final = "mcpServers"

OTHER_NAMES: Final = ("servers", "mcp_servers", "modules")
"""The keys under which other hosts list their servers. They are read as `mcpServers`."""

MAX_FILE_VALUES: Final = 10_000
"""Maximum number of values in a configuration file. Each value might be malformed, and it takes up
to half a millisecond to describe a malformed value. The limit is needed because the file in a
cloned repository is read before anyone has looked at it.
"""


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a configuration file.

    Attributes:
        content: the content in ideabridge's keys. Its `mcpServers` is an object of objects.
        notes: notes on what was unusual and how it was read.
        conflicts: a remark for each top-level key whose value is ambiguous because the key, or a
            key below it, occurs several times.
        unusable: the reasons why servers cannot be used, keyed by server name.
    """

    content: JSONObject
    notes: tuple[Remark, ...] = ()
    conflicts: Mapping[str, Remark] = field(default_factory=dict[str, Remark])
    unusable: Mapping[str, tuple[Remark, ...]] = field(
        default_factory=dict[str, tuple[Remark, ...]]
    )


class NoObjectError(IdeabridgeError):
    """The content of a configuration file is not an object. The message describes the content."""


def decode_file_content(data: bytes, *, what: str, max_bytes: int, workspace: Path) -> FileContent:
    """Read the bytes of a configuration file. Comments and trailing commas are ignored.

    Args:
        data: the bytes, which can begin with a byte order mark.
        what: the name of the file in error messages.
        max_bytes: the maximum size of the file, in bytes.
        workspace: the folder that `${workspaceFolder}` stands for.

    Raises:
        InvalidJSONError, LimitExceededError: as for `decode`.
        NoObjectError: the content is not an object.
    """
    plain = data.removeprefix(codecs.BOM_UTF8)
    try:
        raw = decode(plain, what=what, max_bytes=max_bytes, keep_repeated=True)
    except InvalidJSONError:
        text = _without_comments(plain)
        if text is None:
            raise
        plain = text.encode()
        raw = decode(plain, what=what, max_bytes=max_bytes, keep_repeated=True)

    if count_values(plain, MAX_FILE_VALUES) > MAX_FILE_VALUES:
        raise LimitExceededError(
            f"{what} contains more than {MAX_FILE_VALUES:,} values (numbers, strings, lists, ...)"
        )
    return read_file_content(raw, workspace)


def _without_comments(data: bytes) -> str | None:
    """Return the text with spaces in place of comments and trailing commas. Return None if the text
    has neither of these, or is not UTF-8. The spaces keep the line and column numbers in error
    messages correct.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None

    plain = blank_comments(text)
    return None if plain == text else plain


def read_file_content(raw: JSON, workspace: Path) -> FileContent:
    """Read the decoded content of a configuration file.

    Raises:
        NoObjectError: the content is not an object.
    """
    if not isinstance(raw, dict):
        raise NoObjectError(f"expected an object, found {found_kind(raw)}")
    return _Reader(workspace).document(raw)


class _Reader:
    """Reads one document, and records everything unusual in it."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._notes: list[Remark] = []
        self._conflicts: dict[str, Remark] = {}
        self._unusable: dict[str, tuple[Remark, ...]] = {}

    def document(self, raw: JSONObject) -> FileContent:
        content: JSONObject = {}
        servers: list[JSON] = []
        by_key = _values_by_key(raw)
        aliases = [key for key in OTHER_NAMES if key in by_key]
        if _SERVERS not in by_key and len(aliases) == 1:
            [alias] = aliases
            by_key = {_SERVERS if key == alias else key: by_key[key] for key in by_key}
            self._notes.append(Remark(alias, f"is read as {_SERVERS!r}"))

        for key, values in by_key.items():
            if key == _SERVERS:
                servers = values
                content[key] = {}
            else:
                conflicts: list[Remark] = []
                content[key] = _settled_values(values, key, self._notes, conflicts)
                if conflicts:
                    self._conflicts[key] = conflicts[0]

        if servers:
            content[_SERVERS] = self._servers(servers)
        return FileContent(content, tuple(self._notes), self._conflicts, self._unusable)

    def _servers(self, values: list[JSON]) -> JSONObject:
        """Return the entries in all values of `mcpServers`, keyed by name."""
        if len(values) > 1:
            text = f"occurs {len(values)} times; ideabridge uses the servers from all of them"
            self._notes.append(Remark(_SERVERS, text))

        entries: dict[str, list[JSON]] = {}
        for value in values:
            for name, entry in self._named(value):
                entries.setdefault(name, []).append(entry)

        servers: JSONObject = {}
        for name, same_name in entries.items():
            problem = name_problem(name)
            if problem is not None:
                shown = name[:64]
                text = f"{problem}. This server is not used."
                self._notes.append(Remark(f"{_SERVERS}.{shown!r}", text))
            else:
                servers[name] = self._entry(name, same_name)

        return servers

    def _named(self, value: JSON) -> list[tuple[str, JSON]]:
        """Return the names and entries in one value of `mcpServers`."""
        if isinstance(value, dict):
            return [
                (name, entry) for name, all_of in _values_by_key(value).items() for entry in all_of
            ]
        if not isinstance(value, list):
            text = f"expected an object of servers by name, found {found_kind(value)}"
            self._notes.append(Remark(_SERVERS, f"{text}; it is not used"))
            return []

        named: list[tuple[str, JSON]] = []
        self._notes.append(Remark(_SERVERS, "a list is read as an object of servers by name"))
        for number, item in enumerate(value):
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str):
                named.append((name, item))
            else:
                text = "expected an object with 'name', a string; this server is not used"
                self._notes.append(Remark(f"{_SERVERS}.{number}", text))

        return named

    def _entry(self, name: str, values: list[JSON]) -> JSON:
        """Return the members of a server's entry."""
        notes: list[Remark] = []
        conflicts: list[Remark] = []
        value = _settled_values(values, "", notes, conflicts)
        entry: ServerEntry = read_server_entry(value, self._workspace)
        place = f"{_SERVERS}.{name}"
        self._notes += [note.below(place) for note in (*notes, *entry.notes)]
        problems = tuple(problem.below(place) for problem in (*conflicts, *entry.problems))
        if problems:
            self._unusable[name] = problems

        return entry.members


def _values_by_key(raw: JSONObject) -> dict[str, list[JSON]]:
    """Return the values of each key of an object. A key can have several values."""
    values: dict[str, list[JSON]] = {}
    for key, value in raw.items():
        values.setdefault(key.partition(REPEATED)[0], []).append(value)
    return values


def _settled_values(
    values: list[JSON], place: str, notes: list[Remark], conflicts: list[Remark]
) -> JSON:
    """Return the value of a key that can occur several times. If all values of the key are equal,
    add a note. Otherwise, add a conflict.
    """
    first = _settled(values[0], place, notes, conflicts)
    if len(values) == 1:
        return first

    if all(_settled(value, place, [], conflicts) == first for value in values[1:]):
        notes.append(Remark(place, f"occurs {len(values)} times with the same value"))
    else:
        text = f"occurs {len(values)} times with different values; expected one"
        conflicts.append(Remark(place, text))

    return first


def _settled(value: JSON, place: str, notes: list[Remark], conflicts: list[Remark]) -> JSON:
    """Return a value in which no key occurs several times."""
    if isinstance(value, list):
        return [
            _settled(item, _below(place, str(number)), notes, conflicts)
            for number, item in enumerate(value)
        ]
    if isinstance(value, dict):
        return {
            key: _settled_values(all_of, _below(place, key), notes, conflicts)
            for key, all_of in _values_by_key(value).items()
        }
    return value


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
