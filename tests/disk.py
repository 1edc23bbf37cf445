"""Faults of the disk under the stores of a process, switched on and off while it runs.

SQLite calls the operating system through a table that its interface can change (`xSetSystemCall` of
its VFS). The functions put there ask a file what is wrong with the disk, so that another process
can switch faults on. This needs neither root nor a compiler nor a preloaded library, and works in
this process and in others, with Python's SQLite and with `pysqlite3`. It is not possible on
Windows, whose table is another, and where SQLite is built into Python without its symbols: `REASON`
says so then. `fsync` is not in the table: make writes slow instead.

In this process:

    with Disk(tmp_path / "disk") as disk, Store.open(path) as store:
        with disk.failing(errno.EIO):
            ...                                   # every write of SQLite fails
        disk.fail(errno.ENOSPC, seconds=2)        # heals by itself

In another one:

    disk = Disk(tmp_path / "disk")
    process = subprocess.Popen(disk.command("serve", "--store", str(path)), ...)
    disk.fail(errno.EIO, seconds=5)
    disk.wait_for_hits(1)                         # until a call has failed

`python(disk.SCRIPT, str(disk.folder), "serve", ...)` of `tests/preloaded.py` starts it faster.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ideabridge.bridge.store.sqlite import sqlite3

SCRIPT: Final = Path(__file__)
"""`SCRIPT FOLDER ARGUMENTS...` runs `ideabridge ARGUMENTS...` on the disk of that folder."""

WRITES: Final = ("write", "pwrite", "pwrite64", "ftruncate")
READS: Final = ("read", "pread", "pread64")


class Disk:
    """What is wrong with the disk, kept in files of a folder.

    Args:
        folder: of these files; it is made where there is none. Not the store's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._state = folder / "state.json"
        self._hits = folder / "hits"
        self._hits.touch()

    def fail(self, code: int, *, seconds: float | None = None, reads: bool = False) -> None:
        """Let every write fail with an error number, as `errno.EIO` and `errno.ENOSPC`.

        Args:
            code: the number.
            seconds: for how long; None: until `heal`.
            reads: whether reads fail too.
        """
        self._set(code, 0.0, seconds, reads)

    def slow(self, delay_s: float, *, seconds: float | None = None, reads: bool = False) -> None:
        """Let every write take longer by `delay_s`; the others as for `fail`."""
        self._set(0, delay_s, seconds, reads)

    def heal(self) -> None:
        """Let everything work again."""
        self._state.unlink(missing_ok=True)

    @contextmanager
    def failing(self, code: int, *, reads: bool = False) -> Generator[None]:
        """`with disk.failing(errno.EIO):` as `fail`, healed at the end."""
        self.fail(code, reads=reads)
        try:
            yield
        finally:
            self.heal()

    def hits(self) -> int:
        """How many calls have failed or were delayed so far."""
        return self._hits.stat().st_size

    def wait_for_hits(self, number: int, timeout_s: float = 30.0) -> None:
        """Wait until so many calls have failed or were delayed."""
        deadline = time.monotonic() + timeout_s
        while self.hits() < number:
            assert time.monotonic() < deadline, f"{self.hits()} of {number} calls met the fault"
            time.sleep(0.005)

    def command(self, *arguments: str) -> list[str]:
        """The command that runs `ideabridge ARGUMENTS...` on this disk."""
        # Pass -P, because the folder of this script has modules with the names of Python's own.
        return [sys.executable, "-P", str(SCRIPT), str(self.folder), *arguments]

    def __enter__(self) -> Disk:
        _install(self)
        return self

    def __exit__(self, *_: object) -> None:
        _uninstall()
        self.heal()

    def _set(self, code: int, delay_s: float, seconds: float | None, reads: bool) -> None:
        until = None if seconds is None else time.time() + seconds
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps([code, delay_s, until, reads]), encoding="utf-8")
        new.replace(self._state)

    def meet(self, name: str) -> int:
        """Called for each system call of SQLite: waits where calls are slow; returns the number to
        fail with, or 0.
        """
        try:
            code, delay_s, until, reads = json.loads(self._state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0

        if (until is not None and time.time() > until) or (name in READS and not reads):
            return 0

        with self._hits.open("ab") as file:
            file.write(b".")

        time.sleep(delay_s)
        return int(code)


class _VFS(ctypes.Structure):
    """`sqlite3_vfs` of version 3 (https://sqlite.org/c3ref/vfs.html)."""

    _fields_ = [
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("methods", ctypes.c_void_p * 13),
        (
            "set_call",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        ),
        ("get_call", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
        ("next_call", ctypes.c_void_p),
    ]


_FD_BUFFER_SIZE = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_SHAPES: Final[dict[str, Any]] = {
    "read": ctypes.CFUNCTYPE(*_FD_BUFFER_SIZE, use_errno=True),
    "write": ctypes.CFUNCTYPE(*_FD_BUFFER_SIZE, use_errno=True),
    "pread": ctypes.CFUNCTYPE(*_FD_BUFFER_SIZE, ctypes.c_long, use_errno=True),
    "pread64": ctypes.CFUNCTYPE(*_FD_BUFFER_SIZE, ctypes.c_int64, use_errno=True),
    "pwrite": ctypes.CFUNCTYPE(*_FD_BUFFER_SIZE, ctypes.c_long, use_errno=True),
    "pwrite64": ctypes.CFUNCTYPE(*_FD_BUFFER_SIZE, ctypes.c_int64, use_errno=True),
    "munmap": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, use_errno=True),
    "ftruncate": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_long, use_errno=True),
}

_installed: list[Any] = []
"""The functions in SQLite's table: they must live as long as they stand there."""


def _vfs() -> _VFS:
    """The default VFS of the library that opens stores.

    Raises:
        OSError, AttributeError: its symbols cannot be reached.
    """
    extension = sys.modules["pysqlite3._sqlite3" if sqlite3.__name__ == "pysqlite3" else "_sqlite3"]
    library = ctypes.CDLL(getattr(extension, "__file__", None))
    library.sqlite3_initialize()
    find = library.sqlite3_vfs_find
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.POINTER(_VFS)
    return find(None).contents


def _reason() -> str:
    if sys.platform == "win32":
        return "SQLite on Windows has another table of system calls"

    try:
        vfs = _vfs()
    except (OSError, AttributeError) as error:
        return f"the symbols of this Python's SQLite cannot be reached: {error}"

    if vfs.version >= 3:
        return ""
    return "the VFS of this SQLite has no table of system calls"


REASON: Final = _reason()
"""Why there are no faults here; empty where there are."""


def _install(disk: Disk) -> None:
    assert not _installed, "the faults of one disk at a time"
    for name in (*WRITES, *READS):
        replace(name, lambda real, name=name: _hooked(disk, name, real))


def replace(name: str, make: Callable[[Callable[..., int]], Callable[..., int]]) -> None:
    """Put a function into SQLite's table, until this process ends or a `Disk` is left.

    Args:
        name: of the system call, one of `_SHAPES`. One that this SQLite was built
            without is left alone.
        make: gives the function, and gets the one that stands there.
    """
    assert not REASON, REASON
    vfs = _vfs()
    pointer = vfs.get_call(ctypes.byref(vfs), name.encode())
    if pointer is None:
        return

    if not _installed:
        atexit.register(_uninstall)

    hook = _SHAPES[name](make(_SHAPES[name](pointer)))
    _installed.append(hook)
    assert vfs.set_call(ctypes.byref(vfs), name.encode(), ctypes.cast(hook, ctypes.c_void_p)) == 0


def _hooked(disk: Disk, name: str, real: Callable[..., int]) -> Callable[..., int]:
    def call(*arguments: Any) -> int:
        code = disk.meet(name)
        if code:
            ctypes.set_errno(code)
            return -1
        return real(*arguments)

    return call


def _uninstall() -> None:
    if _installed:
        vfs = _vfs()
        vfs.set_call(ctypes.byref(vfs), None, None)
        _installed.clear()
        atexit.unregister(_uninstall)


def main() -> int:
    """Run `ideabridge` on the disk of a folder."""
    from ideabridge.server.main import main as ideabridge

    with Disk(Path(sys.argv[1])):
        sys.argv[:2] = ["ideabridge"]
        return ideabridge(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
