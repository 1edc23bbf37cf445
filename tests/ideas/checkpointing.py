"""checkpointing.py STORE NAME SECONDS LIBRARY: commit rows and do checkpoints, as fast as they go;
print the rows.

The WAL-reset bug needs a commit between two moments of a checkpoint: it has read the header of the
log's index, and it looks how much of the log is moved. In between SQLite gives up its memory map of
the file, where it has one and the header changed. So the connections of this process map the file,
and giving a map up takes a while in a checkpoint.
Two checkpoints one after the other damage a store so within seconds, with an SQLite
that has the bug.

LIBRARY is `python` for Python's own SQLite, or `chosen`.
"""

import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

if sys.argv[4] == "python":
    sys.modules["pysqlite3"] = None  # pyright: ignore[reportArgumentType]

from ideabridge.bridge.store import sqlite as library
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.sqlite.files import StoreFiles
from tests import disk

at_checkpoint = threading.local()


def slowly(real: Callable[..., int]) -> Callable[..., int]:
    def unmap(*arguments: Any) -> int:
        if getattr(at_checkpoint, "is_so", False):
            time.sleep(random.random() * 0.02)
        return real(*arguments)

    return unmap


class Mapping:
    """`sqlite3` for the checkpoints: its connections map the file."""

    OperationalError = sqlite3.OperationalError

    @staticmethod
    def connect(address: str, **keys: Any) -> sqlite3.Connection:
        connection = sqlite3.connect(address, **keys)
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA mmap_size=100000000")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        return connection


def move(address: str, until: float) -> None:
    at_checkpoint.is_so = True
    while time.monotonic() < until:
        try:
            if library.IS_FIXED:
                with closing(
                    Mapping.connect(address, isolation_level=None, timeout=0, uri=True)
                ) as connection:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            else:
                library.checkpoint_locked(address)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise


def main() -> None:
    path, name, seconds, _ = sys.argv[1:]
    disk.replace("munmap", slowly)
    library.sqlite3 = Mapping  # pyright: ignore[reportAttributeAccessIssue]
    address = StoreFiles(Path(path)).address
    until = time.monotonic() + float(seconds)
    thread = threading.Thread(target=move, args=(address, until))
    rows = 0
    with closing(
        sqlite3.connect(address, uri=True, isolation_level=None, timeout=10)
    ) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("PRAGMA synchronous=OFF")
        thread.start()
        while time.monotonic() < until:
            value = bytes(random.randrange(8000))
            connection.execute(
                "INSERT INTO settings(key, value) VALUES (?, ?)", (f"{name}.{rows}", value)
            )
            rows += 1
            time.sleep(random.random() * 0.002)

        thread.join()

    print(rows)


if __name__ == "__main__":
    main()
