"""Measure the memory of servers' programs and of the processes that they start.

Each program runs in its own session (see `stdio.py`), so the processes in that session are the
program and the processes that it started, such as the `node` that `npx` starts. A process that
leaves the session is not counted.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PSS: Final = re.compile(rb"^Pss: +([0-9]+) kB$", re.MULTILINE)
_RESIDENT: Final = re.compile(rb"^VmRSS:\s+([0-9]+) kB$", re.MULTILINE)
_PS_SECONDS: Final = 5.0


def memory_of_sessions(sessions: Collection[int]) -> dict[int, int]:
    """Return the memory used by the processes of each session, in bytes. Blocks.

    On Linux, this is the proportional set size: memory shared by several processes is divided
    equally among them. On other systems, it is the resident size of the process group. Sessions
    without processes are left out, as are all sessions on systems that do not report memory.

    Args:
        sessions: the ids of the sessions. A session has the id of the process that leads it.
    """
    if not sessions:
        return {}
    if _PROC.is_dir():
        return _from_proc(sessions)
    if sys.platform == "win32":
        return {}
    return _from_ps(sessions)


def _from_proc(sessions: Collection[int]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # Split after the parentheses around the program's name, because the name can contain
            # anything.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            session = int(fields[3])
            if session in sessions:
                sizes[session] = sizes.get(session, 0) + _size_of(folder)
        except (OSError, IndexError, ValueError):
            # The process has just ended.
            continue

    return sizes


def _size_of(folder: Path) -> int:
    """Return the memory of one process, in bytes."""
    try:
        match = _PSS.search((folder / "smaps_rollup").read_bytes())
    except PermissionError:
        # The memory maps of a process with different privileges cannot be read.
        match = None

    if match is None:
        match = _RESIDENT.search((folder / "status").read_bytes())
    return 0 if match is None else int(match[1]) * 1024


def _from_ps(groups: Collection[int]) -> dict[int, int]:
    try:
        listed = subprocess.run(
            ["ps", "-axo", "pgid=,rss="],
            capture_output=True,
            check=True,
            timeout=_PS_SECONDS,
            stdin=subprocess.DEVNULL,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}

    sizes: dict[int, int] = {}
    for line in listed.splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
            group = int(words[0])
            if group in groups:
                sizes[group] = sizes.get(group, 0) + int(words[1]) * 1024

    return sizes
