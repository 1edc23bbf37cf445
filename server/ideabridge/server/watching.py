"""Detect when files change, appear or disappear.

It watches the folders of the files, because most programs replace a file instead of writing to it.
If a folder does not exist, its nearest existing parent is watched. A change is reported when the
files have not changed for `SETTLED_MS`, or after `LONGEST_MS` of constant changes.

Not every file system reports changes: network drives and some containers do not, and a system can
run out of watches. Therefore, the files are also checked every `LOOK_MS`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

logger: Final = logging.getLogger(__name__)

SETTLED_MS: Final = 300
LONGEST_MS: Final = 1200
LOOK_MS: Final = 2000

FileState: TypeAlias = tuple[int, int, int] | None
"""A file's modification time in nanoseconds, size in bytes, and inode number; None if it does not
exist.
"""


def state_of(file: Path) -> FileState:
    """Return a value that changes whenever the content of a file changes, without reading the
    file.
    """
    try:
        about = file.stat()
    except (OSError, ValueError):
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


class SourceWatch:
    """Watches files until its task is cancelled.

    Args:
        files: returns the absolute paths of the files. It is called after each change, because a
            file can name other files.
        changed: awaited after files have changed.
        is_due: returns whether `changed` must be awaited even though no file has changed.
    """

    def __init__(
        self,
        files: Callable[[], Collection[Path]],
        changed: Callable[[], Awaitable[None]],
        is_due: Callable[[], bool] = lambda: False,
    ) -> None:
        self._files = files
        self._changed = changed
        self._is_due = is_due
        self._seen: dict[Path, FileState] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        self._seen = self._look()
        while True:
            if not await self._watch(self._folders()):
                await anyio.sleep(LOOK_MS / 1000)
                await self._compare()

    async def _watch(self, folders: frozenset[Path]) -> bool:
        """Watch folders until different folders must be watched. Return False if the system does
        not let this process watch them.
        """
        # Import this only when it is needed, because only a process that watches files uses it.
        from watchfiles import watch

        # Use an event to stop the library, because it waits in a thread that a cancellation does
        # not interrupt.
        stop = threading.Event()
        events = watch(
            *folders,
            watch_filter=self._concerns,
            debounce=LONGEST_MS,
            step=SETTLED_MS,
            stop_event=stop,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
        can_watch = True
        async with anyio.create_task_group() as group:
            await group.start(_set_when_cancelled, stop)
            # Compare the files with their earlier state first, because one of them might have
            # changed before the watch began.
            await self._compare()
            while self._folders() == folders:
                try:
                    await anyio.to_thread.run_sync(next, events, None)
                except (OSError, RuntimeError) as error:
                    # A watched folder has just disappeared, or the system has no watches left.
                    logger.info("files are checked only from time to time: %s", error)
                    can_watch = False
                    break
                await self._compare()

            group.cancel_scope.cancel()

        return can_watch

    def _concerns(self, _change: object, path: str) -> bool:
        """Return whether a change affects one of the files, or a folder above one of them."""
        changed = Path(path)
        names = {file.name for file in self._seen}
        return changed.name in names or any(file.is_relative_to(changed) for file in self._seen)

    async def _compare(self) -> None:
        now = self._look()
        if now != self._seen or self._is_due():
            self._seen = now
            await self._changed()
            # The changed files might now name other files to watch.
            self._seen = {file: now.get(file, state) for file, state in self._look().items()}

    def _look(self) -> dict[Path, FileState]:
        return {file: state_of(file) for file in self._files()}

    def _folders(self) -> frozenset[Path]:
        """Return the nearest existing folder above each file and, if the file is a link, above its
        target.
        """
        folders: set[Path] = set()
        for file in self._seen:
            for place in (file, Path(os.path.realpath(file))):
                folders.add(next(folder for folder in place.parents if folder.is_dir()))

        return frozenset(folders)


async def _set_when_cancelled(
    event: threading.Event,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    task_status.started()
    try:
        await anyio.sleep_forever()
    finally:
        event.set()
