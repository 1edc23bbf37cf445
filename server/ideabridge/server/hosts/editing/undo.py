"""Revert edits to hosts' files.

`record_edit` records the edits that a command makes; `recorded_edits` returns these records, and
`undo_edit` reverts an edit. If nobody has changed a file since the edit, its previous bytes are
restored. If the host has written to the file since then, only the entries are reverted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from ideabridge.bridge.trust import locked, write_own
from ideabridge.server.hosts.editing.host_text import (
    EditedEntry,
    EditedFile,
    HostText,
    file_digest,
    text_of_bytes,
)
from ideabridge.server.hosts.editing.writing import backup_folder, replace_file
from ideabridge.server.hosts.host import FileFormat, HostFileError
from ideabridge.tools.encoding import JSON, JSONObject

_MOST_EDITS: Final = 500
"""Maximum number of recorded edits. The oldest records are removed first; the backups are kept."""


class DamagedNotesError(HostFileError):
    """Raised when the records of edits cannot be read. The message names the file that contains
    them.
    """


_AROUND: Final = (400, 100, 30, 8)
"""How many characters around a restored text are compared, in this order, to find where the text
belongs.
"""

UndoneHow = Literal["restored", "deleted", "entries", "nothing"]
"""How an edit was undone. `restored`: the previous bytes of the file were restored. `deleted`: the
file, which the edit had created, was removed. `entries`: the host has written to the file since, so
only the entries were reverted. `nothing`: the file already had its previous content.
"""


@dataclass(frozen=True, slots=True)
class RecordedEdit:
    """The record of an edit that a command has made.

    Attributes:
        command: the command, such as `install cursor`.
        project: the project folder in which the command ran.
        at: the time at which the command ran.
        files: the edited files, in the order in which they were written.
        trusted: those of the files that belong to a project and were trusted after the edit.
        what: a line that tells users what was done, or "" if the name of the command is enough.
    """

    command: str
    project: Path
    at: datetime
    files: tuple[EditedFile, ...]
    trusted: tuple[Path, ...] = ()
    what: str = ""


@dataclass(frozen=True, slots=True)
class UndoneFile:
    """The result of undoing an edit to one file.

    Attributes:
        path: the file.
        how: how the edit was undone; see `UndoneHow`.
        left: the names of the entries that were not reverted, because they have been replaced since
            the edit.
    """

    path: Path
    how: UndoneHow
    left: tuple[str, ...] = ()


_EDITS: Final = TypeAdapter(tuple[RecordedEdit, ...])


def record_edit(
    command: str,
    project: Path,
    files: Sequence[EditedFile],
    trusted: Sequence[Path] = (),
    what: str = "",
) -> None:
    """Record an edit so that it can be undone. For the arguments, see `RecordedEdit`.

    Raises:
        HostFileError: the record cannot be written.
    """
    edit = RecordedEdit(command, project, datetime.now(UTC), tuple(files), tuple(trusted), what)
    _write(lambda edits: (*edits, edit))


def recorded_edits(command: str) -> list[RecordedEdit]:
    """Return the edits by a command that have not been undone, latest first.

    Raises:
        HostFileError: the record cannot be read.
    """
    return [edit for edit in reversed(_read()) if edit.command == command]


def edits_of(path: Path) -> list[RecordedEdit]:
    """Return the edits to only this file that have not been undone, latest first.

    Raises:
        HostFileError: the record cannot be read.
    """
    return [
        edit
        for edit in reversed(_read())
        if edit.files and all(file.path == path for file in edit.files)
    ]


def entries_before(file: EditedFile) -> dict[str, JSON]:
    """Return the previous values of the entries that an edit has changed, keyed by name. Entries
    that the edit added are omitted.

    Raises:
        HostFileError: the backup is gone or cannot be read.
    """
    text = text_of_bytes(file.path, file.format, _former_bytes(file))
    before: dict[str, JSON] = {}
    for entry in file.entries:
        former = text.entries(entry.keys).get(entry.name)
        if former is not None:
            before[entry.name] = former
    return before


def undo_edit(edit: RecordedEdit) -> list[UndoneFile]:
    """Undo an edit, and remove its record. The files are reverted and returned in reverse order.

    Raises:
        HostFileError: a file cannot be written, or its backup is gone. The record of the edit is
            kept.
    """
    undone = [undo_file(file) for file in reversed(edit.files)]
    _write(lambda edits: tuple(other for other in edits if other != edit))
    return undone


def undo_file(file: EditedFile) -> UndoneFile:
    """Undo an edit to one file.

    Raises:
        HostFileError: the file cannot be written, its backup is gone, or its path now leads to a
            different file.
    """
    if file.backup is None and not file.created:
        return UndoneFile(file.path, "nothing")

    target = os.path.realpath(file.path)
    if target != str(file.target):
        before = "there was no file"
        if file.backup is not None:
            before = f"the content was that of {file.backup}"

        raise HostFileError(
            f"{file.path}: now leads to {target}, but led to {file.target} when it was edited; "
            f"before the edit, {before}"
        )

    former = _former_bytes(file)
    result = UndoneFile(file.path, "nothing")

    def rewrite(now: bytes | None) -> bytes | None:
        nonlocal result
        if file_digest(now) == file.digest:
            result = UndoneFile(file.path, "deleted" if former is None else "restored")
            return former
        if now is None:
            result = UndoneFile(file.path, "nothing")
            return None

        text, left = _without_entries(file, former, now)
        result = UndoneFile(file.path, "entries" if text.changes else "nothing", left)
        return text.data if text.changes else now

    replacement = replace_file(file.path, rewrite)
    if result.how in ("restored", "deleted") and replacement.backup is not None:
        # Remove the copy of the edited file, because nobody needs it and it might contain secrets.
        replacement.backup.unlink(missing_ok=True)
    if result.how == "deleted":
        remove_empty_folders(file)
    return result


def remove_entry(
    path: Path,
    format_name: FileFormat,
    keys: tuple[str, ...],
    name: str,
    *,
    added: EditedFile | None = None,
    project: Path | None = None,
) -> EditedFile:
    """Remove an entry from a file, and return the data needed to undo the removal.

    Args:
        path: the file.
        format_name: the notation of the file.
        keys: the path to the object that contains all entries.
        name: the name of the entry.
        added: the edit that added the entry, if known. If nobody has changed the file since this
            edit, its previous bytes are restored, or it is removed if it did not exist before.
            Objects that were added around the entry are removed if they are empty.
        project: see `replace_file`.

    Raises:
        HostFileError: the file cannot be read or written.
    """
    former = None if added is None else _former_bytes(added)
    parents = 0
    if added is not None:
        parents = max((entry.parents for entry in added.entries if entry.name == name), default=0)
    after: bytes | None = None

    def rewrite(now: bytes | None) -> bytes | None:
        nonlocal after
        text = text_of_bytes(path, format_name, now)
        after = text.without_entry(keys, name, parents=parents).data
        if added is not None and file_digest(now) == added.digest:
            before = text_of_bytes(path, format_name, former)
            # If the edit replaced an entry of the same name, the previous bytes still contain that
            # entry, so do not restore them.
            after = former if name not in before.entries(keys) else after
        return after

    replacement = replace_file(path, rewrite, project=project)
    if after is None and added is not None:
        remove_empty_folders(added)

    return EditedFile(
        path,
        Path(os.path.realpath(path)),
        format_name,
        replacement.backup,
        replacement.created,
        None,
        file_digest(after),
        (EditedEntry(keys, name, removed=True, parents=0),),
    )


def _former_bytes(file: EditedFile) -> bytes | None:
    if file.backup is None:
        return None
    try:
        return file.backup.read_bytes()
    except OSError as error:
        raise HostFileError(
            f"{file.backup}: the copy of {file.path} cannot be read: {error.strerror or error}"
        ) from None


def _without_entries(
    file: EditedFile, former: bytes | None, now: bytes
) -> tuple[HostText, tuple[str, ...]]:
    """Return the current text with the previous entries restored, and the names of the entries that
    were not reverted.
    """
    text = text_of_bytes(file.path, file.format, now)
    states = _replay(file, former, text)
    before = states[0]
    replayed = states[-1]
    left: list[str] = []
    for entry, state in zip(reversed(file.entries), reversed(states[:-1]), strict=True):
        old = before.entries(entry.keys).get(entry.name)
        current = text.entries(entry.keys).get(entry.name)
        if current != old and old is None:
            text = text.without_entry(entry.keys, entry.name, parents=entry.parents)
            # Make the same change here, so that both versions look alike around the entry.
            replayed = replayed.without_entry(entry.keys, entry.name, parents=entry.parents)
            continue

        if entry.removed and current is not None and current != old:
            left.append(entry.name)
        elif current != old:
            expected = text.with_entry(entry.keys, entry.name, old)
            text = _with_former_text(text, expected, before=state, after=replayed)
        replayed = state

    return text, tuple(left)


def _replay(file: EditedFile, former: bytes | None, now: HostText) -> list[HostText]:
    """Return the text before the edit and after each of its changes. The values of added entries
    are taken from the current text.
    """
    text = text_of_bytes(file.path, file.format, former)
    states = [text]
    for entry in file.entries:
        current = now.entries(entry.keys).get(entry.name)
        # If a change cannot be repeated, leave the text as it is. All that the undoing then loses
        # is some comments.
        with suppress(HostFileError):
            if entry.removed or current is None:
                text = text.without_entry(entry.keys, entry.name, parents=entry.parents)
            else:
                text = text.with_entry(entry.keys, entry.name, current)
        states.append(text)

    return states


def _with_former_text(
    now: HostText, expected: HostText, *, before: HostText, after: HostText
) -> HostText:
    """Return the file's text with the previous text of an entry restored, including its comments.

    If the text around the entry has changed, return `expected`, which has the same content.

    Args:
        now: the current text.
        expected: the current text with the entry in its default notation.
        before: the previous text with the entry.
        after: the previous text without the entry.
    """
    start = _common_length(before.text, after.text)
    end = _common_length(before.text[start:][::-1], after.text[start:][::-1])
    for around in _AROUND:
        first = max(start - around, 0)
        last = max(end - around, 0)
        old = before.text[first : len(before.text) - last]
        new = after.text[first : len(after.text) - last]
        if now.text.count(new) == 1:
            merged = replace(expected, text=now.text.replace(new, old))
            content = _content_of(merged)
            if content == expected.content:
                return replace(merged, content=content)

    return expected


def _common_length(text: str, other: str) -> int:
    """Return the length of the longest common prefix of two strings."""
    shared = 0
    limit = min(len(text), len(other))
    while shared < limit:
        middle = (shared + limit + 1) // 2
        if text[shared:middle] == other[shared:middle]:
            shared = middle
        else:
            limit = middle - 1

    return shared


def _content_of(text: HostText) -> JSONObject | None:
    try:
        return text_of_bytes(text.path, text.format, text.data).content
    except HostFileError:
        return None


def remove_empty_folders(file: EditedFile) -> None:
    """Remove the folders that were created for the file if they are empty."""
    folder = file.path.parent
    with suppress(OSError):
        while file.new_folder is not None and folder.is_relative_to(file.new_folder):
            folder.rmdir()
            folder = folder.parent


# -- notes -----------------------------------------------------------------------------------------


def _notes() -> Path:
    return backup_folder() / "edits.json"


def _read() -> tuple[RecordedEdit, ...]:
    path = _notes()
    try:
        return _EDITS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return ()
    except ValidationError:
        raise DamagedNotesError(
            f"{path} is damaged, so no command can undo an edit; the backups are next to it"
        ) from None
    except OSError as error:
        raise HostFileError(f"{path} cannot be read: {error.strerror or error}") from None


def _write(change: Callable[[tuple[RecordedEdit, ...]], tuple[RecordedEdit, ...]]) -> None:
    path = _notes()
    try:
        with locked(path.with_name(".edits.lock")):
            try:
                edits = _read()
            except DamagedNotesError:
                # Rename the file with the damaged records, so that later edits can be recorded and
                # undone.
                path.replace(path.with_name("edits.damaged.json"))
                edits = ()

            write_own(path, _EDITS.dump_json(change(edits)[-_MOST_EDITS:], indent=1))
    except OSError as error:
        raise HostFileError(f"{path} cannot be written to: {error.strerror or error}") from None
