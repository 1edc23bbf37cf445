"""Replace a host's file safely, even if the host or another ideabridge process writes to it at the
same time.
"""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from ideabridge.bridge.trust import (
    TrustError,
    link_out,
    locked,
    read_plain,
    staged,
    write_own,
)
from ideabridge.server.hosts.host import MAX_BYTES, HostFileError

_ATTEMPTS: Final = 20
"""Maximum number of times that an edit is repeated because another program has written to the file
in the meantime.
"""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The result of replacing a file.

    Attributes:
        backup: a copy of the previous bytes in the user's data folder; None if the file did not
            exist, or was not changed.
        created: whether the file was created.
        new_folder: the outermost folder that was created for the file, or None if none was missing.
    """

    backup: Path | None = None
    created: bool = False
    new_folder: Path | None = None


def replace_file(
    path: Path,
    rewrite: Callable[[bytes | None], bytes | None],
    *,
    private: bool = False,
    project: Path | None = None,
    note: Callable[[Replacement], None] | None = None,
) -> Replacement:
    """Replace the bytes of a file atomically, or remove the file.

    The file keeps its owner, its permissions and any symbolic links to it. Processes of ideabridge
    wait for each other. A host does not wait, so if it writes to the file in the meantime, the edit
    is repeated with the new bytes.

    Args:
        path: the file, or a link to it.
        rewrite: returns the file's new bytes, given its current bytes. None means that the file
            does not exist.
        private: whether to make the file readable only by its owner from now on.
        project: the folder of the project that the file belongs to. Symbolic links must not lead
            out of this folder.
        note: called before the bytes are replaced, and again if the edit is repeated.

    Raises:
        HostFileError: the file cannot be written, or a symbolic link leads out of the project.
    """
    check_place(path, project)
    target = Path(os.path.realpath(path))
    try:
        with locked(backup_folder() / ".lock"):
            for _ in range(_ATTEMPTS):
                before = _bytes_of(target)
                after = rewrite(before)
                if after == before:
                    return Replacement()

                backup = None if before is None else _saved(target.name, before)
                replacement = Replacement(backup, before is None, _first_missing(target.parent))
                if note is not None:
                    note(replacement)
                if _replaced(target, before, after, private=private):
                    return replacement
                if backup is not None:
                    backup.unlink()
    except OSError as error:
        raise HostFileError(f"{path} cannot be written to: {error.strerror or error}") from None

    raise HostFileError(
        f"{path}: another program keeps writing to it; close that program and run the command again"
    )


def check_place(path: Path, project: Path | None) -> None:
    """Raise `HostFileError` if a symbolic link leads out of the project. Without this check, a
    repository could make ideabridge write to any file.
    """
    link = None if project is None else link_out(path, project)
    if link is not None:
        where = "" if link == path else f" by the link {link}"
        raise HostFileError(
            f"{path} leads out of the project{where}, to {os.path.realpath(path)}, so it was not "
            "written to; expected a file in the project's folder"
        )


def backup_folder() -> Path:
    """Return the folder for backups of edited files. Only the user can read it."""
    folder = platformdirs.user_data_path("ideabridge") / "backups"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _saved(name: str, data: bytes) -> Path:
    """Save the bytes under an unused file name, and return the path."""
    folder = backup_folder()
    names = (folder / f"{name}.{number}.bak" for number in itertools.count(1))
    path = next(path for path in names if not path.exists())
    write_own(path, data)
    return path


def _first_missing(folder: Path) -> Path | None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    return missing[-1] if missing else None


def _bytes_of(target: Path) -> bytes | None:
    try:
        return read_plain(target, MAX_BYTES)
    except FileNotFoundError:
        return None
    except TrustError as error:
        raise HostFileError(str(error)) from None


def _replaced(target: Path, before: bytes | None, after: bytes | None, *, private: bool) -> bool:
    """Replace or remove a file, provided that its bytes are still `before`. Return whether they
    were.
    """
    if after is None:
        if _bytes_of(target) != before:
            return False
        target.unlink()
        return True

    target.parent.mkdir(parents=True, exist_ok=True)
    about = None if before is None else target.stat()
    with staged(target, after) as new:
        if about is not None and sys.platform != "win32":
            created = new.stat()
            if (created.st_uid, created.st_gid) != (about.st_uid, about.st_gid):
                os.chown(new, about.st_uid, about.st_gid)

        new.chmod(0o600 if private or about is None else stat.S_IMODE(about.st_mode))
        # Check again, because this is the last chance to notice that another program has written
        # the file.
        if _bytes_of(target) != before:
            return False

        new.replace(target)
        return True
