"""Histories: journals that pages read, as traces (fast) and folded (complete), kept while they grow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from ideabridge.bridge.loop.event import CallFinished
from ideabridge.bridge.store.store import Store
from ideabridge.server.views.history import RunHistory
from ideabridge.server.views.trace import Trace
from ideabridge.tools.encoding import encode, memory_of
from ideabridge.tools.threads import compute_in_thread

MOST_BYTES: Final = 128 * 1024 * 1024
"""About how many bytes of memory all journals take that are kept. One that is larger is read again for each page."""

_EVENT_BYTES: Final = 600
"""Bytes of memory of an event beside the values in it."""

SMALL: Final = 2000
"""Events of a journal that is folded for every page: this takes at most 0.3 s."""

SMALL_BYTES: Final = 32 * 1024 * 1024
"""Bytes of memory of such a journal."""


@dataclass(slots=True)
class KeptJournal:
    """The journal of a run.

    Attributes:
        trace: its trace.
        history: its folded history; None if that was not asked for.
        size: about how many bytes of memory its events take.
        trace_size: about how many of these its trace takes, which has no results.
    """

    trace: Trace = field(default_factory=Trace)
    history: RunHistory | None = None
    size: int = 0
    trace_size: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Histories:
    """The journals of the runs that were looked at last. Threads read them, so that the server continues meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, KeptJournal] = OrderedDict()

    @asynccontextmanager
    async def reading(self, run_id: str, *, fold: bool = False) -> AsyncGenerator[KeptJournal]:
        """The journal of a run up to its last event, which does not change inside. It is folded if it is small; with
        `fold` always, which takes 0.2 ms for each call the first time.

        Raises:
            UnknownRunError: no such run.
        """
        kept = self._kept.setdefault(run_id, KeptJournal())
        self._kept.move_to_end(run_id)
        try:
            async with kept.lock:
                await compute_in_thread(self._extend, run_id, kept, fold)
                yield kept
        finally:
            self._shrink()

    def _shrink(self) -> None:
        """Forget the journals that were looked at longest ago, while all take too much memory."""
        total = sum(one.trace_size + (one.size if one.history is not None else 0) for one in self._kept.values())
        for run_id, kept in list(self._kept.items()):
            if total <= MOST_BYTES:
                return
            if kept.lock.locked():
                continue
            if kept.history is not None:
                kept.history = None
                total -= kept.size
            if total > MOST_BYTES:
                del self._kept[run_id]
                total -= kept.trace_size

    def _extend(self, run_id: str, kept: KeptJournal, fold: bool) -> None:
        runs, trace = self._store.runs, kept.trace
        times = runs.event_times(run_id, trace.last)
        # One by one: the results of a journal may be large, and the trace keeps none of them.
        for number, event in runs.events(run_id, trace.last):
            trace.add([(number, event)], times)
            size = _EVENT_BYTES + memory_of(encode(event))
            kept.size += size
            kept.trace_size += _EVENT_BYTES if event.get("event") == CallFinished.name else size
        is_small = trace.last <= SMALL and kept.size <= SMALL_BYTES
        if not fold and kept.history is None and not is_small:
            return
        history = kept.history = kept.history or RunHistory()
        last = history.entries[-1].number if history.entries else 0
        times = runs.event_times(run_id, last)
        for number, event in runs.events(run_id, last):
            if history.broken is not None:
                break
            history.add([(number, event)], times)

    async def at(self, run_id: str, number: int) -> KeptJournal:
        """The journal of a run up to one of its events.

        Raises:
            UnknownRunError: no such run.
        """

        def fold() -> KeptJournal:
            history = RunHistory()
            before = KeptJournal(history=history)
            times = self._store.runs.event_times(run_id)
            # One by one: the results of a journal may be large.
            for _, event in zip(range(number), self._store.runs.events(run_id), strict=False):
                before.trace.add([event], times)
                if history.broken is None:
                    history.add([event], times)
            return before

        return await compute_in_thread(fold)
