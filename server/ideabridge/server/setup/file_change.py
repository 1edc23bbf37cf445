"""The entries in one file that a setup changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ideabridge.server.hosts.editing.host_text import HostText
from ideabridge.server.hosts.host import FileFormat
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class EntryEdit:
    """An entry to add to a file, or to remove from it.

    Attributes:
        keys: the keys that lead to the file's entries.
        name: the name of the entry.
        entry: the new entry, or None to remove the entry.
        is_list: whether a new file lists the entries as objects with a `name`.
    """

    keys: tuple[str, ...]
    name: str
    entry: JSONObject | None
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    """The changes to one file.

    Attributes:
        path: the path of the file.
        title: the display name of the file's owner.
        format: the format of the file.
        edits: the entries to change.
        is_private: whether to make the file readable only by its owner.
        project: the folder of the project that the file belongs to, or None if it belongs to none.
        new_content: the members that a new file contains besides the entries.
    """

    path: Path
    title: str
    format: FileFormat
    edits: tuple[EntryEdit, ...]
    is_private: bool = False
    project: Path | None = None
    new_content: Mapping[str, JSON] = field(default_factory=dict[str, JSON])

    def applied(self, text: HostText) -> HostText:
        """Return the text of the file with the changes applied.

        Raises:
            HostFileError: the file cannot be edited without changing other parts of it.
        """
        if not text.exists:
            for name, value in self.new_content.items():
                text = text.with_entry((), name, value)

        for edit in self.edits:
            if edit.entry is None:
                text = text.without_entry(edit.keys, edit.name)
            else:
                text = text.with_entry(edit.keys, edit.name, edit.entry, listed=edit.is_list)
        return text
