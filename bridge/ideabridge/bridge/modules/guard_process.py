"""The guard: ends the process groups it was told of when its parent is gone (see `guard`).

Runs by itself, as `python -I -S guard_process.py`, and imports nothing of ideabridge: it has to start fast and
stay small. Standard input carries lines `+PGID` and `-PGID`; its end means that the parent is gone.
"""

import os
import signal
import sys
import time

GRACE_SECONDS = 0.5


def _send(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # macOS says so of a group of zombies.
        return False
    return True


def _end(groups: set[int]) -> None:
    alive = {group for group in groups if _send(group, signal.SIGTERM)}
    deadline = time.monotonic() + GRACE_SECONDS
    while alive and time.monotonic() < deadline:
        time.sleep(0.02)
        alive = {group for group in alive if _send(group, 0)}
    for group in alive:
        _send(group, signal.SIGKILL)


def main() -> None:
    """Read registrations until the pipe ends, then end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        try:
            group = int(line[1:])
        except ValueError:
            continue
        # 0 and 1 would mean our own group and everything.
        if line[:1] == b"+" and group > 1:
            groups.add(group)
        elif line[:1] == b"-":
            groups.discard(group)
    _end(groups)


if __name__ == "__main__":
    main()
