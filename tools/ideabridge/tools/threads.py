"""Run computations and tools in threads. Callers take turns using them.

A computing thread competes with the event loop for the GIL, so each additional thread slows down
every response. Therefore, only a few of these threads run at a time. A tool can wait for minutes,
so tools get separate threads. Short work that only waits, such as for a file or the keyring, uses
`anyio.to_thread` instead and does not wait for a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ideabridge.tools.turns import FairPlaces

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

MOST_COMPUTING: Final = 2
"""Maximum number of threads that compute concurrently. Each caller gets only one thread, so that
other callers find a free thread during long computations.
"""

_COMPUTING: Final[RunVar[FairPlaces]] = RunVar("_COMPUTING")

MOST_TOOLS: Final = 60
"""Maximum number of tools that run in threads concurrently. These tools are functions that are not
coroutines and can wait for a long time.
"""

MOST_TOOLS_OF_ONE: Final = 40
"""Maximum number of these threads that one caller can hold, so that other callers find a free
thread.
"""

_TOOLS: Final[RunVar[FairPlaces]] = RunVar("_TOOLS")

_LARGE_PARTS: Final = 20_000
"""The minimum number of parts of a large value, which takes about 10 ms to copy. Each part is
counted about twice.
"""

_LARGE_TEXT: Final = 1_000_000
"""The minimum total number of characters in the strings of a large value."""


async def compute_in_thread(work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
    """Run a function that computes for longer than the event loop is allowed to block, and return
    its result.

    The function runs in a thread, once the caller in `asked_by` gets a free place. Cancellation
    ends the wait for a place, but a thread that has started runs to completion.
    """
    async with _places(_COMPUTING, MOST_COMPUTING, 1).place():
        # Use a separate limiter, because the shared one would make work on files and the keyring
        # wait for this computation.
        return await anyio.to_thread.run_sync(work, *arguments, limiter=anyio.CapacityLimiter(1))


async def compute_beside(
    value: object, work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments
) -> T:
    """Run a function that traverses a value, and return its result. If the value is large, the
    function runs in a thread.
    """
    if not is_large(value):
        return work(*arguments)
    return await compute_in_thread(work, *arguments)


def is_large(value: object) -> bool:
    """Return whether a value is too large to traverse in the event loop.

    It is too large if it has many parts or long strings. The check stops as soon as the answer is
    known.
    """
    parts = text = 0
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        parts += 1
        if isinstance(part, str | bytes):
            text += len(part)
        elif isinstance(part, dict):
            members = cast("dict[Any, Any]", part)
            parts += len(members)
            waiting += members.values()
        elif isinstance(part, list | tuple):
            items = cast("Sequence[Any]", part)
            parts += len(items)
            waiting += items

        if parts > _LARGE_PARTS or text > _LARGE_TEXT:
            return True

    return False


async def run_tool_in_thread(work: Callable[[], T]) -> T:
    """Run a tool's function in a thread, on behalf of the caller in `asked_by`, and return its
    result.

    A thread cannot be stopped, so a cancelled call does not wait for the thread.
    """
    async with _places(_TOOLS, MOST_TOOLS, MOST_TOOLS_OF_ONE).place():
        return await anyio.to_thread.run_sync(
            work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )


def _places(kind: RunVar[FairPlaces], most: int, each: int) -> FairPlaces:
    """Return the places for one kind of thread, shared by the callers on this event loop."""
    try:
        return kind.get()
    except LookupError:
        places = FairPlaces(most, each)
        kind.set(places)
        return places
