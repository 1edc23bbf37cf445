"""Write backup files that are either complete or do not exist.

The backup is written under a temporary name and then renamed. The next backup to the same name
removes the incomplete files that killed processes left behind.
"""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ideabridge.bridge.store.errors import StoreAccessError

try:
    import fcntl
except ImportError:
    # Windows does not allow deleting an open file, so `_sweep` needs no lock there to tell which
    # files are in use.
    fcntl = None

PARTIAL: Final = ".partial-"
"""The part before the digits in the name of an incomplete file. A killed process leaves such a file
behind.
"""


def write_file(target: Path, fill: Callable[[Path], None]) -> None:
    """Create a file with mode 0600.

    Args:
        target: the path of the new file.
        fill: called with the path of the empty file. It writes the content and checks it.

    Raises:
        StoreAccessError: the file already exists or cannot be written.
    """
    try:
        if os.path.lexists(target):
            raise FileExistsError
        _sweep(target)
        with _partial(target) as part:
            fill(part)
            _name(part, target)
    except FileExistsError:
        raise StoreAccessError(
            f"{target}: the file already exists, and ideabridge does not overwrite it"
        ) from None
    except OSError as error:
        raise StoreAccessError(
            f"{target}: the file cannot be written to: {error.strerror or error}"
        ) from None


@contextmanager
def _partial(target: Path) -> Generator[Path]:
    """Create a locked temporary file next to the target, and remove it on exit."""
    part = target.with_name(f"{target.name}{PARTIAL}{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        if fcntl is not None:
            # SQLite uses locks of a different kind, so this lock does not conflict with them.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.fchmod(descriptor, 0o600)
        yield part
    finally:
        os.close(descriptor)
        _remove(part)


def _name(part: Path, target: Path) -> None:
    """Rename the finished file to `target`.

    Raises:
        FileExistsError: the target exists.
    """
    with part.open("rb+") as file:
        os.fsync(file.fileno())

    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        # On a file system without hard links, two simultaneous backups to the same name are not
        # detected.
        if os.path.lexists(target):
            raise FileExistsError from None
        part.rename(target)

    if fcntl is not None:
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _sweep(target: Path) -> None:
    """Remove incomplete files that killed processes left behind for this target."""
    for part in target.parent.glob(f"{glob.escape(target.name)}{PARTIAL}{'[0-9a-f]' * 8}"):
        with suppress(OSError):
            if fcntl is not None:
                descriptor = os.open(part, os.O_RDWR)
                try:
                    # This fails if another process is still writing the file.
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                finally:
                    os.close(descriptor)
            _remove(part)


def _remove(part: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        part.with_name(f"{part.name}{suffix}").unlink(missing_ok=True)
