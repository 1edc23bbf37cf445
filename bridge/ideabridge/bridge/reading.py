"""Reading: work that reads much of the store, done where it holds up nobody and can be stopped.

What takes longer with the journals that it reads (a fork, a check of a published plan, a page
of a run) is done in a worker process: it has a deadline, bounded memory and a connection that
only reads the store, and a cancelled request kills it. Over small journals a thread does it,
which is faster than a process starts. A store in memory, which no other process can read, is
always read in a thread.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.worker import workers

SMALL_EVENTS: Final = 150
"""Events of small journals: about fifty calls, which take about 20 ms."""

SMALL_BYTES: Final = 50_000
"""Bytes of small journals, with the contexts and Solutions of their runs."""

_JOB: Final = "ideabridge.bridge.reading:read_here"


async def read_beside(
    work: Callable[..., JSON],
    store: Store,
    *arguments: JSON,
    is_small: bool,
    what: str,
) -> JSON:
    """Return what a function reads from the store. The function runs for the caller in
    `asked_by`.

    Args:
        work: a function of a module. It takes the store and `arguments`.
        store: the store.
        arguments: what else the function takes.
        is_small: the function takes a few milliseconds.
        what: describes the work in messages.

    Raises:
        LimitExceededError: the function takes too long or too much memory.
        IdeabridgeError: the function raised this error.
    """
    reader = store.reader()
    if reader is None or is_small:
        return await compute_in_thread(lambda: work(store, *arguments))
    place = f"{work.__module__}:{work.__name__}"
    return await workers.run(_JOB, [place, reader, *arguments], what=what)


def are_small(store: Store, runs: Sequence[str]) -> bool:
    """Whether the journals of some runs are folded in a few milliseconds.

    Raises:
        UnknownRunError: no such run.
    """
    most_events = SMALL_EVENTS // len(runs)
    most_bytes = SMALL_BYTES // len(runs)
    return all(store.runs.is_small(run, most_events, most_bytes) for run in runs)


# -- in the worker process -------------------------------------------------------------------------


def read_here(place: str, reader: JSONObject, *arguments: JSON) -> JSON:
    """Return what the function at MODULE:FUNCTION returns. It reads the store over a connection of
    its own, which `Store.reader` describes.
    """
    module, _, name = place.partition(":")
    work = getattr(import_module(module), name)
    # The function uses everything that it makes until it returns, so looking for garbage takes a
    # fifth of the time and finds none.
    gc.disable()
    try:
        with Store.open_for_reading(reader) as store:
            return work(store, *arguments)
    finally:
        gc.enable()
