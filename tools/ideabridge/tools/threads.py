"""Threads that compute: few of them at a time, by turns of the callers.

A thread that computes takes Python's lock from the event loop again and again, so each further one makes the answers to
everybody slower. Work that only waits, for a file or the keyring, needs no turn: it uses `anyio.to_thread`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ideabridge.tools.turns import FairPlaces

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

MOST: Final = 2
"""The most threads that compute at the same time. A caller has one, so that others find one free beside long work."""

_TURNS: Final[RunVar[FairPlaces]] = RunVar("_TURNS")


async def compute_in_thread(work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
    """Return what a function returns that computes for longer than the event loop may wait.

    It runs in a thread, for the caller in `asked_by`, after a wait for a place. A cancellation ends the wait; a thread
    that has begun ends its work first.
    """
    async with _turns().place():
        # Those who compute do not hold up files and the keyring, which share a limiter.
        return await anyio.to_thread.run_sync(work, *arguments, limiter=anyio.CapacityLimiter(1))


def _turns() -> FairPlaces:
    """Return the turns of this event loop."""
    try:
        return _TURNS.get()
    except LookupError:
        turns = FairPlaces(MOST, each=1)
        _TURNS.set(turns)
        return turns
