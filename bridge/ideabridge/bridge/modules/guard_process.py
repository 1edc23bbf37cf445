"""The guard: ends the process groups it was told of when its parent is gone (see `guard`).

Runs by itself, as `python -I -S guard_process.py`, and imports nothing of ideabridge: it has to start fast and
stay small. Standard input carries lines `+PGID` and `-PGID`, and between them the numbers of signals that the parent
got, a byte each; its end means that the parent is gone.
"""

import os
import re
import select
import signal
import time

GRACE_SECONDS = 0.5
LAST_SECONDS = 3.0
"""How long after SIGTERM or SIGINT the parent may still be there."""


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
    parent = os.getppid()
    groups: set[int] = set()
    deadline: float | None = None
    rest = b""
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        if not select.select([0], [], [], left)[0]:
            if os.getppid() == parent:
                os.kill(parent, signal.SIGKILL)
            deadline = None
            continue
        data = os.read(0, 65536)
        if not data:
            break
        if deadline is None and (signal.SIGTERM in data or signal.SIGINT in data):
            deadline = time.monotonic() + LAST_SECONDS
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            found = re.search(rb"([+-])(\d+)$", line)
            # 0 and 1 would mean our own group and everything.
            if found is not None and int(found[2]) > 1:
                (groups.add if found[1] == b"+" else groups.discard)(int(found[2]))
    _end(groups)


if __name__ == "__main__":
    main()
