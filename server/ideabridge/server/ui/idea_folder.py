"""List the idea documents that a project keeps beside its code, and say which of them are in the
store as tools.

The folder is `ideas` in the project folder, to which `ideabridge ideas export --published --folder
ideas` writes. A file takes effect only when its idea is saved in the store. Until then, and after
each change to the file, the file and the store differ. Symbolic links are not followed, because a
folder from an untrusted source must not give access to other files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ideabridge.bridge.publishing.written import read_idea
from ideabridge.bridge.store.portable import read_document
from ideabridge.bridge.store.publications import Publications
from ideabridge.bridge.store.users import Viewer
from ideabridge.bridge.trust import TrustError, read_plain
from ideabridge.tools.documents import (
    JSON_SUFFIXES,
    YAML_SUFFIXES,
    has_comments,
    read_written,
)
from ideabridge.tools.encoding import MAX_BYTES, JSONObject
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.names import safe_name

FOLDER: Final = "ideas"

_MOST_FILES: Final = 200
"""Maximum number of files in the folder that are read for one page."""

FileState = Literal["in force", "not saved", "differs", "refused"]
"""in force: the tool with this name matches the file. not saved: there is no such tool. differs:
the tool does not match the file. refused: the file cannot be used.
"""


@dataclass(frozen=True, slots=True)
class IdeaFile:
    """A file in the folder.

    Attributes:
        name: the name of the file.
        tool: the name of the tool in the file, or "" if the file is unreadable.
        state: see `FileState`.
        why: the reason for the state, or "".
        is_written: whether a person wrote the idea, so that the editor can open it. A file exported
            from a run is saved with a command instead.
    """

    name: str
    tool: str
    state: FileState
    why: str = ""
    is_written: bool = True


@dataclass(frozen=True, slots=True)
class _ReadFile:
    """The contents of a file: the name of its tool and the id of its idea.

    `members` contains the members that only documents written by a person have.
    """

    tool: str
    idea_id: str
    members: JSONObject | None


class IdeaFolder:
    """The `ideas` folder of a project.

    Args:
        project: the project folder.
    """

    def __init__(self, project: Path) -> None:
        self.path = project / FOLDER

    def files(self, publications: Publications, viewer: Viewer) -> list[IdeaFile]:
        """Return the files with their states, sorted by name, or no files if there is no folder.
        This method blocks.

        Args:
            publications: the tools in the store.
            viewer: the viewer of the page.
        """
        return [self._state(path, publications, viewer) for path in self._documents()]

    def text(self, name: str) -> str:
        """Return the text of a file in the folder. This method blocks.

        Raises:
            ArgumentError: there is no such file, or it cannot be read.
        """
        path = self.path / name
        if path.parent != self.path or not _is_document(path):
            raise ArgumentError(f"{self.path} has no document {name[:100]!r}")
        return _bytes(path).decode("utf-8", "replace")

    def commented_file(self, tool: str) -> str:
        """Return the name of a tool's file that contains comments, or "" if there is none. This
        method blocks.
        """
        for path in self._documents():
            try:
                text = _bytes(path).decode("utf-8", "replace")
                # Parsing is slow, so do not parse the files of other tools.
                if tool in text and has_comments(text) and _read(path).tool == tool:
                    return path.name
            except IdeabridgeError:
                continue
        return ""

    def _documents(self) -> list[Path]:
        try:
            paths = sorted(self.path.iterdir())
        except OSError:
            return []
        return [path for path in paths if _is_document(path)][:_MOST_FILES]

    def _state(self, path: Path, publications: Publications, viewer: Viewer) -> IdeaFile:
        try:
            read = _read(path)
        except IdeabridgeError as error:
            return IdeaFile(path.name, "", "refused", str(error))

        is_written = read.members is not None
        if not read.tool:
            return IdeaFile(path.name, "", "refused", "it has no name", is_written)

        present = publications.look_up(read.tool, caller=viewer)
        # Compare the name, because `look_up` also finds NAME@VERSION, but a document must not name
        # a version.
        if present is None or present.name != read.tool:
            return IdeaFile(path.name, read.tool, "not saved", is_written=is_written)

        is_same = present.idea_id == read.idea_id
        if is_same and (read.members is None or present.recording.written == read.members):
            return IdeaFile(path.name, read.tool, "in force", is_written=is_written)
        reason = f"the tool is version {present.version}, which has different content"
        return IdeaFile(path.name, read.tool, "differs", reason, is_written)


def _is_document(path: Path) -> bool:
    suffixes = (*JSON_SUFFIXES, *YAML_SUFFIXES)
    return path.name.lower().endswith(suffixes) and path.is_file() and not path.is_symlink()


def _bytes(path: Path) -> bytes:
    try:
        return read_plain(path, MAX_BYTES)
    except TrustError as error:
        raise ArgumentError(str(error)) from None
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror or error}") from None


def _read(path: Path) -> _ReadFile:
    """Read a file.

    Raises:
        IdeabridgeError: the file is not the document of an idea.
    """
    document = read_written(_bytes(path), what="it", name=path.name)
    if isinstance(document, dict) and "ideabridge" in document:
        exported = read_document(document)
        publication = exported.publication or {}
        return _ReadFile(str(publication.get("name", "")), exported.idea.id, None)

    written = read_idea(document, name=safe_name(path.stem))
    return _ReadFile(written.name or "", written.idea.id, written.members)
