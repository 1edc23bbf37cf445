"""End the registered process groups after their parent has ended (see `stdio.Guard`).

The guard process runs as `python -I -S guard_process.py`. Each server starts one, so it must stay
small. It imports only modules that are built into the interpreter, because importing `signal` and
`re` would double its start-up time.

Standard input contains lines `+PGID` and `-PGID`. Between these lines, it contains one byte for
each signal that the parent received: the signal number. End of input means that the parent has
ended.
"""

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # `_signal` has the same functions and numbers as `signal`, but does not import `enum`.
    import _signal as signal

GRACE_SECONDS = 0.5
LAST_SECONDS = 3.0
"""The maximum time, in seconds, that the parent can keep running after SIGTERM or SIGINT."""


def _send(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # On macOS, this error means that all processes in the group are zombies.
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
    """Read registrations until the pipe is closed, then end the registered groups."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)

    parent = os.getppid()
    groups: set[int] = set()
    deadline: float | None = None
    unread = b""
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

        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            # Signal numbers can precede the sign.
            start = max(line.rfind(b"+"), line.rfind(b"-"))
            group = line[start + 1 :]
            # Ignore 0 and 1, because 0 would mean the group of this process, and 1 would mean all
            # processes.
            if start >= 0 and group.isdigit() and int(group) > 1:
                (groups.add if line[start] == ord("+") else groups.discard)(int(group))

    _end(groups)


if __name__ == "__main__":
    main()
