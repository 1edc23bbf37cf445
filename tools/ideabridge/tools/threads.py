"""Threads for which callers take turns: those that compute, and those in which tools run.

A thread that computes takes Python's lock from the event loop again and again, so each further
thread slows down every answer. Therefore only few of them run at a time. A tool may wait for
minutes, so tools have threads of their own. Short work that only waits, for a file or the keyring,
needs no turn: it uses `anyio.to_thread`.
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

MOST: Final = 2
"""The most threads that compute at the same time. A caller has only one, so that other callers find
one free during long work."""

_COMPUTING: Final[RunVar[FairPlaces]] = RunVar("_COMPUTING")

MOST_TOOLS: Final = 60
"""The most tools that run in threads at the same time: functions that are not coroutines and may
wait for a long time."""

MOST_TOOLS_OF_ONE: Final = 40
"""The most of these threads that one caller may have, so that other callers find one."""

_TOOLS: Final[RunVar[FairPlaces]] = RunVar("_TOOLS")

_LARGE_PARTS: Final = 20_000
"""A value with this many parts is large: copying it takes about 10 ms. Each part is counted about
twice."""

_LARGE_TEXT: Final = 1_000_000
"""A value whose texts have this many characters is large."""


async def compute_in_thread(work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
    """Run a function that computes for longer than the event loop may wait, and return its result.

    It runs in a thread, for the caller in `asked_by`, after a wait for a place. A cancellation ends
    the wait; a thread that has begun ends its work first.
    """
    async with _places(_COMPUTING, MOST, 1).place():
        # With a limiter of its own, the computation does not delay work on files and the keyring,
        # which share a limiter.
        return await anyio.to_thread.run_sync(work, *arguments, limiter=anyio.CapacityLimiter(1))


async def compute_beside(
    value: object, work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments
) -> T:
    """Run a function that walks through a value, and return its result. It runs in a thread if the
    value is large.
    """
    if not is_large(value):
        return work(*arguments)
    return await compute_in_thread(work, *arguments)


def is_large(value: object) -> bool:
    """Whether a value has so many parts, or so much text, that the event loop should not walk
    through it. The check looks at no more parts than a small value has.
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
    """Run the function of a tool in a thread, for the caller in `asked_by`, and return its result.

    A thread cannot be stopped, so a cancelled call does not wait for it.
    """
    async with _places(_TOOLS, MOST_TOOLS, MOST_TOOLS_OF_ONE).place():
        return await anyio.to_thread.run_sync(
            work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )


def _places(kind: RunVar[FairPlaces], most: int, each: int) -> FairPlaces:
    """Return the places of a kind of this event loop."""
    try:
        return kind.get()
    except LookupError:
        places = FairPlaces(most, each)
        kind.set(places)
        return places
