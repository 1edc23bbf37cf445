"""Waiting for what no event tells."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

PAUSE = 0.01
"""Seconds between two looks. A loop without a pause takes a core from the processes for which it
waits.
"""


async def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it does not hold after these seconds.
    """
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(PAUSE)


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds, where no event loop runs in this thread, or a foreign one.

    Raises:
        TimeoutError: it does not hold after these seconds.
    """
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(PAUSE)
