"""Change one entry at a time in the text of a host's file.

`read_host_text` reads a file. `HostText.with_entry` and `HostText.without_entry` return the edited
text, and check that its content differs from the previous content only by this change.
`HostText.write` writes the text to the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ideabridge.bridge.trust import TrustError, read_plain
from ideabridge.server.hosts.editing.change import EntryChange, UneditableError, changed
from ideabridge.server.hosts.editing.json_text import parse_json, put_json, remove_json
from ideabridge.server.hosts.editing.writing import Replacement, replace_file
from ideabridge.server.hosts.host import MAX_BYTES, MAX_TOML, FileFormat, HostFileError
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.json_parts import part_at

_MARKS: Final = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
"""Byte order marks, each with the encoding of files that begin with it. PowerShell writes
UTF-16.
"""


@dataclass(frozen=True, slots=True)
class _Notation:
    """The functions that edit one format.

    Attributes:
        title: the name of the format in messages.
        parse: returns the value that a text contains, or raises `ValueError` or `RecursionError`.
        put: returns the text with an entry.
        remove: returns the text without the entry, given the entry's keys and name.
    """

    title: str
    parse: Callable[[str], JSON]
    put: Callable[[str, EntryChange], str]
    remove: Callable[[str, Sequence[str], str], str]


def _notation(format_name: FileFormat) -> _Notation:
    match format_name:
        case "toml":
            # Import these only when they are needed, because most commands do not read TOML.
            from ideabridge.server.hosts.editing import toml_text
            from ideabridge.server.hosts.salvage import plain_toml

            return _Notation("TOML", plain_toml, toml_text.put_toml, toml_text.remove_toml)
        case "yaml":
            from ideabridge.server.hosts.editing import yaml_text

            return _Notation(
                "YAML", yaml_text.parse_yaml, yaml_text.put_yaml, yaml_text.remove_yaml
            )
        case _:
            return _Notation("JSON", parse_json, put_json, remove_json)


@dataclass(frozen=True, slots=True)
class EditedEntry:
    """An entry that was added to a file, or removed from it.

    Attributes:
        keys: the path to the object that contains all entries.
        name: the name of the entry.
        removed: whether the entry was removed.
        parents: the number of objects around the entry that were added with it.
    """

    keys: tuple[str, ...]
    name: str
    removed: bool
    parents: int


@dataclass(frozen=True, slots=True)
class EditedFile:
    """The state of a file after an edit.

    Attributes:
        path: the file, or a link to it.
        target: the file that the path referred to.
        format: the notation of the file.
        backup: a copy of the previous bytes; None if the file did not exist, or was not changed.
        created: whether the edit created the file.
        new_folder: the outermost folder that was created for the file, or None if none was missing.
        digest: the `file_digest` of the new bytes.
        entries: the changed entries, in order.
    """

    path: Path
    target: Path
    format: FileFormat
    backup: Path | None
    created: bool
    new_folder: Path | None
    digest: str
    entries: tuple[EditedEntry, ...]


@dataclass(frozen=True, slots=True)
class HostText:
    """The text of a host's file, including any changes made to it.

    Attributes:
        path: the file.
        format: the notation of the file.
        before: the bytes of the file when it was read; None if the file did not exist.
        text: the text, without a byte order mark.
        content: the value that the text represents.
        changes: the changes since the file was read.
    """

    path: Path
    format: FileFormat
    before: bytes | None
    text: str
    content: JSONObject
    changes: tuple[EntryChange, ...] = ()

    @property
    def exists(self) -> bool:
        """True if the file existed when it was read."""
        return self.before is not None

    @property
    def data(self) -> bytes:
        """The text as bytes, in the encoding of the file."""
        mark, encoding = _encoding(self.before or b"")
        return mark + self.text.encode(encoding)

    def with_entry(
        self, keys: Sequence[str], name: str, entry: JSON, *, listed: bool = False
    ) -> HostText:
        """Return the text with an entry added, or replaced if it exists. All other bytes stay the
        same.

        Args:
            keys: the path to the object that contains all entries. Missing objects are added.
            name: the name of the entry.
            entry: the entry, which must not be null.
            listed: whether to write a list of objects with a `name` if the file has no entries yet.

        Raises:
            HostFileError: the file cannot be edited without changing other parts of it.
        """
        return self._with(EntryChange(tuple(keys), name, entry, listed))

    def without_entry(self, keys: Sequence[str], name: str, *, parents: int = 0) -> HostText:
        """Return the text without an entry, or the same text if it has no such entry.

        Args:
            keys: the path to the object that contains all entries.
            name: the name of the entry.
            parents: the number of objects that were added around the entry. Those that become empty
                are removed with the entry.

        Raises:
            HostFileError: the file cannot be edited without changing other parts of it.
        """
        return self._with(EntryChange(tuple(keys), name, None, parents=parents))

    def entries(self, keys: Sequence[str]) -> dict[str, JSON]:
        """Return the entries at these keys, keyed by name. The result is empty if there is no
        object at these keys.
        """
        value = part_at(self.content, keys)
        if isinstance(value, list):
            named: dict[str, JSON] = {}
            for item in value:
                name = item.get("name") if isinstance(item, dict) else None
                if isinstance(name, str):
                    named[name] = item
            return named
        return object_or_empty(value)

    def missing_parents(self, keys: Sequence[str]) -> int:
        """Return how many of the objects on the path to the entries are missing from the file."""
        for depth in range(len(keys)):
            if part_at(self.content, keys[: depth + 1]) is None:
                return len(keys) - depth
        return 0

    def write(self, *, private: bool = False, project: Path | None = None) -> Path | None:
        """Write the text to the file. Return the path of the backup, or None if the file did not
        exist. For the arguments and errors, see `edit`.
        """
        return self.edit(private=private, project=project).backup

    def edit(
        self,
        *,
        private: bool = False,
        project: Path | None = None,
        note: Callable[[EditedFile], None] | None = None,
    ) -> EditedFile:
        """Write the text to the file, and return the data needed to undo the edit.

        The file keeps its owner, its permissions, and any link that points to it. A new file is
        readable only by its owner, because such files contain tokens. If another program has
        written to the file since it was read, the changes are applied to the new text.

        Args:
            private: whether to make the file readable only by its owner from now on.
            project: the folder of the project that the file belongs to. Symbolic links must not
                lead out of this folder.
            note: called before the file is written, with the data needed to undo the edit. It is
                called again if the changes are reapplied because another program has written to the
                file.

        Raises:
            HostFileError: the file cannot be written, or a symbolic link leads out of the project.
        """
        written = self

        def rewrite(now: bytes | None) -> bytes:
            nonlocal written
            written = self._on(now)
            return written.data

        def noted(replacement: Replacement) -> None:
            if note is not None:
                note(written._edited_file(replacement))

        replacement = replace_file(self.path, rewrite, private=private, project=project, note=noted)
        return written._edited_file(replacement)

    def _edited_file(self, replacement: Replacement) -> EditedFile:
        return EditedFile(
            self.path,
            Path(os.path.realpath(self.path)),
            self.format,
            replacement.backup,
            replacement.created,
            replacement.new_folder,
            file_digest(self.data),
            tuple(
                EditedEntry(change.keys, change.name, change.entry is None, change.parents)
                for change in self.changes
            ),
        )

    def _on(self, now: bytes | None) -> HostText:
        """Return the text after applying the same changes to a file with the bytes `now`."""
        if now == self.before:
            return self

        edited = text_of_bytes(self.path, self.format, now)
        for change in self.changes:
            edited = edited._with(change)
        return edited

    def _with(self, change: EntryChange) -> HostText:
        if change.entry is not None:
            change = replace(change, parents=self.missing_parents(change.keys))

        edited = self._edited(change)
        keys = change.keys
        parents = change.parents if change.entry is None else 0
        while parents > 0 and keys and not edited.entries(keys):
            edited = edited._edited(EntryChange(keys[:-1], keys[-1], None))
            keys = keys[:-1]
            parents -= 1

        return replace(edited, changes=(*self.changes, change))

    def _edited(self, change: EntryChange) -> HostText:
        notation = _notation(self.format)
        expected = changed(self.content, change)
        try:
            if change.entry is None:
                text = notation.remove(self.text, change.keys, change.name)
            else:
                text = notation.put(self.text, change)
        except UneditableError as error:
            raise HostFileError(f"{self.path}: {error}") from None

        try:
            content = notation.parse(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not _says(content, expected, change.keys):
            raise HostFileError(
                f"{self.path}: {change.name!r} cannot be changed without changing more of "
                "the file; edit it by hand"
            )
        return replace(self, text=text, content=content)


def _says(content: JSON, expected: JSON, keys: Sequence[str]) -> bool:
    """Return whether a text has the expected content.

    An object on the path to the entries can disappear along with its last entry: in TOML, an empty
    table needs a header; in YAML, a key with no lines below it has the value null.

    Values are compared as text, because 1, 1.0 and True are equal in Python.
    """
    texts = [
        json.dumps(_without_empty(value, keys), sort_keys=True) for value in (content, expected)
    ]
    return texts[0] == texts[1]


def _without_empty(value: JSON, keys: Sequence[str]) -> JSON:
    if not keys or not isinstance(value, dict) or keys[0] not in value:
        return value

    below = _without_empty(value[keys[0]], keys[1:])
    if below in ({}, [], None):
        return {key: member for key, member in value.items() if key != keys[0]}
    return {**value, keys[0]: below}


def read_host_text(
    path: Path,
    format: FileFormat = "jsonc",  # noqa: A002
    max_bytes: int = MAX_BYTES,
) -> HostText:
    """Read a host's file. A file that is missing or contains only whitespace counts as an empty
    object.

    Raises:
        HostFileError: the file cannot be read, is not a regular file, is larger than `max_bytes`,
            or does not contain an object in the given format. The message gives the line and
            column.
    """
    try:
        data = read_plain(path, max_bytes)
    except FileNotFoundError:
        data = None
    except TrustError as error:
        raise HostFileError(str(error)) from None
    except OSError as error:
        raise HostFileError(f"{path} cannot be read: {error.strerror or error}") from None
    return text_of_bytes(path, format, data)


def text_of_bytes(path: Path, format_name: FileFormat, data: bytes | None) -> HostText:
    """Return the text of a file with the given bytes, or of a missing file if `data` is None.

    Raises:
        HostFileError: the bytes do not represent an object in the given format.
    """
    mark, encoding = _encoding(data or b"")
    try:
        text = (data or b"").removeprefix(mark).decode(encoding)
    except UnicodeDecodeError:
        raise HostFileError(f"{path} is not UTF-8") from None

    if format_name == "toml" and len(text) > MAX_TOML:
        raise HostFileError(
            f"{path} has {len(text):,} characters of TOML; the limit is {MAX_TOML:,}"
        )

    notation = _notation(format_name)
    try:
        content = notation.parse(text) if text.strip() else {}
    except ValueError as error:
        raise HostFileError(f"{path} is not {notation.title}: {_where(error)}") from None
    except RecursionError:
        raise HostFileError(f"{path} is nested too deeply") from None

    if not isinstance(content, dict):
        raise HostFileError(f"{path}: expected an object")
    return HostText(path, format_name, data, text, content)


def file_digest(data: bytes | None) -> str:
    """Return the SHA-256 of a file's bytes as hexadecimal digits, or "" if the file does not
    exist.
    """
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _encoding(data: bytes) -> tuple[bytes, str]:
    """Return the file's byte order mark (b"" if it has none) and the encoding of the rest of the
    file.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return mark, encoding
    return b"", "utf-8"


def _where(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return str(error)
