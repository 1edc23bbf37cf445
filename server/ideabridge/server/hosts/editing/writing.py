"""Replacing a host's file while the host, or another ideabridge, may write it, too."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Callable
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
"""How often an edit is repeated because another program has written the file in between."""


def replace_file(
    path: Path,
    rewrite: Callable[[bytes | None], bytes],
    *,
    private: bool = False,
    project: Path | None = None,
) -> Path | None:
    """Replace the bytes of a file in one step. Return the path of a copy of the former bytes, in
    the user's data folder, or None if there was no file.

    Owner, permissions and symbolic links stay. Processes of ideabridge take turns. A host takes no
    turns: where it writes the file in the meantime, the edit is repeated on what it wrote.

    Args:
        path: the file, or a link to it.
        rewrite: returns the new bytes for the current bytes of the file, which are None if there is
            no file.
        private: whether to make the file readable only by its owner from now on.
        project: the folder of the project that the file belongs to. No symbolic link may lead out
            of it.

    Raises:
        HostFileError: the file cannot be written, or a symbolic link leads out of the project.
    """
    check_place(path, project)
    target = Path(os.path.realpath(path))
    try:
        backups = backup_folder()
        with locked(backups / ".lock"):
            for _ in range(_ATTEMPTS):
                before = _bytes_of(target)
                after = rewrite(before)
                backup = None if before is None else _free_name(backups, target.name)
                if backup is not None and before is not None:
                    write_own(backup, before)
                if _replaced(target, before, after, private=private):
                    return backup
                if backup is not None:
                    backup.unlink()
    except OSError as error:
        raise HostFileError(f"{path}: cannot be written: {error.strerror or error}") from None

    raise HostFileError(
        f"{path}: another program writes it all the time; close that program, and run the command "
        "again"
    )


def check_place(path: Path, project: Path | None) -> None:
    """Raise `HostFileError` if a symbolic link leads out of a project, to a file that a repository
    has chosen.
    """
    link = None if project is None else link_out(path, project)
    if link is not None:
        where = "" if link == path else f" by the link {link}"
        raise HostFileError(
            f"{path}: leads out of the project{where}, to {os.path.realpath(path)}, "
            "and is not written; expected a file in the project's folder"
        )


def backup_folder() -> Path:
    """Return the folder of the copies of former files, which only the user can read."""
    folder = platformdirs.user_data_path("ideabridge") / "backups"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _free_name(folder: Path, name: str) -> Path:
    names = (folder / f"{name}.{number}.bak" for number in itertools.count(1))
    return next(path for path in names if not path.exists())


def _bytes_of(target: Path) -> bytes | None:
    try:
        return read_plain(target, MAX_BYTES)
    except FileNotFoundError:
        return None
    except TrustError as error:
        raise HostFileError(str(error)) from None


def _replaced(target: Path, before: bytes | None, after: bytes, *, private: bool) -> bool:
    """Replace a file that still has the bytes `before`. Return whether it had them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    about = None if before is None else target.stat()
    with staged(target, after) as new:
        if about is not None and sys.platform != "win32":
            created = new.stat()
            if (created.st_uid, created.st_gid) != (about.st_uid, about.st_gid):
                os.chown(new, about.st_uid, about.st_gid)

        new.chmod(0o600 if private or about is None else stat.S_IMODE(about.st_mode))
        # This is the last moment at which a write of another program can be noticed.
        if _bytes_of(target) != before:
            return False

        new.replace(target)
        return True
