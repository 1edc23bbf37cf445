"""Read large parts of the store without blocking the event loop. Callers can cancel the work.

Some work, such as forking a run, checking a published plan or showing a run's page, takes longer if
the journals are large. A worker process does this work. It has a deadline, a memory limit and a
read-only connection to the store, and it is killed if the request is cancelled. If the journals are
small, a thread does the work instead, in less time than it takes to start a process. A store in
memory is always read in a thread, because no other process can read it.
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
"""Maximum number of events in small journals. They are the events of about fifty calls, and take
about 20 ms to read.
"""

SMALL_BYTES: Final = 50_000
"""Maximum size of small journals, in bytes, including the contexts and Solutions of their runs."""

_JOB: Final = "ideabridge.bridge.reading:read_here"


async def read_beside(
    work: Callable[..., JSON],
    store: Store,
    *arguments: JSON,
    is_small: bool,
    what: str,
) -> JSON:
    """Run a function that reads from the store, and return its result. The work counts towards the
    share of the caller in `asked_by`.

    Args:
        work: a function at the top level of a file. It takes the store and `arguments`.
        store: the store.
        arguments: further arguments for the function.
        is_small: whether the function takes only a few milliseconds.
        what: a description of the work, for messages.

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
    """Return whether the journals of these runs can be folded in a few milliseconds.

    Raises:
        UnknownRunError: a run does not exist.
    """
    most_events = SMALL_EVENTS // len(runs)
    most_bytes = SMALL_BYTES // len(runs)
    return all(store.runs.is_small(run, most_events, most_bytes) for run in runs)


# -- in the worker process -------------------------------------------------------------------------


def read_here(place: str, reader: JSONObject, *arguments: JSON) -> JSON:
    """Run the function at MODULE:FUNCTION, and return its result.

    The function reads the store over its own connection, which `Store.reader` describes.
    """
    module, _, name = place.partition(":")
    work = getattr(import_module(module), name)
    # Turn off garbage collection: it would take a fifth of the time and free nothing, because all
    # objects stay in use until the function returns.
    gc.disable()
    try:
        with Store.open_for_reading(reader) as store:
            return work(store, *arguments)
    finally:
        gc.enable()
