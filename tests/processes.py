"""The processes that a test has started, as the system knows them."""

from __future__ import annotations

import os
import shlex
import signal
from contextlib import suppress
from pathlib import Path

from tests import preloaded


def end_all() -> str:
    """Kill every process below this one, also those that tests share: any of them may be what a
    test waits for. Return their commands with their numbers, for people.

    The process that forks scripts stays. It ends a script when the process that asked
    for it has ended.
    """
    commands = _below(os.getpid(), _children())
    for pid in commands:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return ", ".join(f"`{command}` ({pid})" for pid, command in commands.items()) or "none"


def processes_with(*words: str) -> list[int]:
    """Return the numbers of the processes of the system whose commands contain all these words.
    Empty where the system has no /proc.
    """
    numbers: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_text(encoding="utf-8", errors="replace")
            if all(word in command for word in words):
                numbers.append(int(path.parent.name))
    return sorted(numbers)


def _children() -> dict[int, list[int]]:
    """The processes of the system by their parents. Empty where the system has no /proc."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # Split after the name in parentheses, because it may itself contain parentheses.
            _, parent, *_ = (
                path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
            children.setdefault(int(parent), []).append(int(path.parent.name))
    return children


def _below(parent: int, children: dict[int, list[int]]) -> dict[int, str]:
    commands: dict[int, str] = {}
    for pid in children.get(parent, []):
        words: list[str] = []
        with suppress(OSError):
            words = (
                Path(f"/proc/{pid}/cmdline")
                .read_text(encoding="utf-8", errors="replace")
                .split("\0")[:-1]
            )

        if preloaded.__file__ in words:
            continue

        if words:
            # A process that has ended has no words.
            commands[pid] = shlex.join(words)

        commands.update(_below(pid, children))

    return commands
