"""Store the content of a trusted project file without its secrets.

A snapshot lets ideabridge show what has changed since the person trusted the file.

The snapshots are in the folder `trusted` in the user's configuration folder, one file for each
project file. Whether a file is trusted depends only on `trust.json`, never on a snapshot. If a
snapshot is missing, ideabridge shows the person the whole file.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import platformdirs

from ideabridge.tools.encoding import list_or_empty, object_or_empty

if TYPE_CHECKING:
    from ideabridge.tools.encoding import JSON, JSONObject

MAX_TEXT_BYTES: Final = 256 * 1024
"""Maximum size, in bytes, of a file whose text is kept."""

MAX_TEXTS_BYTES: Final = 2 * 1024 * 1024
"""Maximum total size, in bytes, of the lines in a snapshot."""


_TAG: Final = "\0"
"""Separates a line that has a hidden part from a short digest of the original line. Because of the
digest, two lines that differ only in the hidden part are still different.
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The lines of a project file and of the files that it names, with secrets masked. `shown_line`
    returns a line in readable form.

    Attributes:
        digests: the digests of all covered files, keyed by path.
        servers: the lines of each entry, keyed by server name; see `entry_lines`.
        settings: the other top-level keys, each on one line.
        texts: the lines of each covered file other than the project file, keyed by path. Large
            files and files that are not text are left out.
    """

    digests: Mapping[str, str]
    servers: Mapping[str, list[str]]
    settings: Mapping[str, str]
    texts: Mapping[str, list[str]]

    @classmethod
    def from_json(cls, value: Any) -> Snapshot | None:
        """Read a snapshot from a JSON value. Return None if the value is not a snapshot."""
        try:
            return cls(
                dict(value["digests"]),
                dict(value["servers"]),
                dict(value["settings"]),
                dict(value["texts"]),
            )
        except (ValueError, KeyError, TypeError):
            return None

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as JSON."""
        return {
            "digests": dict(self.digests),
            "servers": dict(self.servers),
            "settings": dict(self.settings),
            "texts": dict(self.texts),
        }


def shown_line(line: str) -> str:
    """Return a line of a snapshot in readable form."""
    return line.partition(_TAG)[0]


def entry_lines(entry: JSONObject) -> list[str]:
    """Return a server's entry as lines: its command or address, then each setting."""
    lines: list[str] = []
    arguments = entry.get("args")
    words = [
        str(entry.get("command", "")),
        *map(str, list_or_empty(arguments)),
    ]
    if "command" in entry:
        lines.append(f"starts {shlex.join(words)}")
    if "url" in entry:
        lines.append(f"calls {entry['url']}")
    return lines + setting_lines(entry)


def setting_lines(entry: JSONObject) -> list[str]:
    """Return one line for each setting in an entry, except for its command, arguments and
    address.
    """
    lines: list[str] = []
    for key, value in entry.items():
        if key in ("command", "args", "url"):
            continue
        if isinstance(value, dict):
            lines += [f"{key} {inner}={_plain(part)}" for inner, part in value.items()]
        else:
            lines.append(f"{key} {_plain(value)}")

    return lines


def _plain(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tagged(masked: str, line: str) -> str:
    if masked == line:
        return line
    # Shorten the digest, so that it does not reveal the secret.
    return f"{masked}{_TAG}{hashlib.sha256(line.encode('utf-8', 'replace')).hexdigest()[:8]}"


def snapshot_of(
    members: JSONObject, digests: Mapping[str, str], read: Callable[[str], bytes | None]
) -> Snapshot:
    """Take the snapshot of a project file.

    Args:
        members: the content of the project file, in ideabridge's keys.
        digests: the digests of all covered files, by path.
        read: returns the content of a covered file, or None if it cannot be read or is too large.
    """
    from ideabridge.bridge.masking import shown_configuration

    listed = members.get("mcpServers")
    servers: dict[str, list[str]] = {}
    for name, entry in object_or_empty(listed).items():
        if isinstance(entry, dict):
            servers[name] = _masked_entry_lines(entry)

    masked = cast("JSONObject", shown_configuration(members))
    settings = {
        key: _tagged(_plain(masked[key]), _plain(value))
        for key, value in members.items()
        if key != "mcpServers"
    }
    return Snapshot(digests, servers, settings, _texts(digests, read))


def _masked_entry_lines(entry: JSONObject) -> list[str]:
    from ideabridge.bridge.masking import shown_definition

    lines = entry_lines(entry)
    masked = entry_lines(shown_definition(entry))
    if len(lines) == len(masked):
        return [_tagged(*pair) for pair in zip(masked, lines, strict=True)]
    return [_tagged(line, "\n".join(lines)) for line in masked]


def _texts(digests: Mapping[str, str], read: Callable[[str], bytes | None]) -> dict[str, list[str]]:
    """Return the lines of each covered text file that still has its digest."""
    from ideabridge.bridge.masking import shown_json

    texts: dict[str, list[str]] = {}
    left = MAX_TEXTS_BYTES
    for path, digest in digests.items():
        data = read(path)
        if data is None or len(data) > left or b"\0" in data:
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            continue

        with suppress(UnicodeDecodeError):
            lines = data.decode("utf-8-sig").splitlines()
            texts[path] = [_tagged(str(shown_json(line)), line) for line in lines]
            left -= len(data)

    return texts


def snapshot_path(key: str) -> Path:
    """Return the path of a project file's snapshot. `key` is the file's name in `trust.json`."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    return platformdirs.user_config_path("ideabridge") / "trusted" / f"{digest[:32]}.json"
