"""Keep the journals that pages read.

A page reads a journal either as a trace, which is fast, or folded, which is complete. Journals are
cached in memory and extended as their runs continue.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio

from ideabridge.bridge.loop.event import CallFinished
from ideabridge.bridge.reading import read_beside
from ideabridge.bridge.store.journal import TimedEvent
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import Viewer
from ideabridge.server.views.history import RunHistory
from ideabridge.server.views.pending import OpenQuestions, Pending, root_of, waiting_runs
from ideabridge.server.views.trace import Trace
from ideabridge.tools.encoding import JSONObject, encode, memory_of
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.worker import WorkerError

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)

JOURNAL_CACHE_BYTES: Final = 128 * 1024 * 1024
"""Approximate memory limit, in bytes, for all cached journals. A larger journal is read again for
each page.
"""

_EVENT_BYTES: Final = 600
"""Memory, in bytes, that an event takes in addition to the values in it."""

FOLDED_EVENTS: Final = 2000
"""Maximum number of events in a journal that is folded for every page. Folding it takes at most 0.3
s."""

FOLDED_BYTES: Final = 32 * 1024 * 1024
"""Maximum memory, in bytes, that such a journal uses."""

FOLDED_HERE_EVENTS: Final = 150
"""Maximum number of events in a journal that is folded in this process: about fifty calls, which
take about 20 ms."""

FOLDED_HERE_BYTES: Final = 1024 * 1024
"""Maximum memory, in bytes, that such a journal uses."""


@dataclass(slots=True)
class KeptJournal:
    """The cached journal of a run.

    Attributes:
        trace: the trace of the run.
        history: the folded history, or None if no page has needed it.
        size: the approximate memory used by the events, in bytes.
        trace_size: the approximate part of `size` that the trace uses. The trace contains no
            results.
        questions: the open questions after the last event, or None if no page has needed them.
        questions_size: the approximate memory used by the questions, in bytes.
    """

    trace: Trace = field(default_factory=Trace)
    history: RunHistory | None = None
    size: int = 0
    trace_size: int = 0
    questions: OpenQuestions | None = None
    questions_size: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def is_small(self) -> bool:
        """True if the journal is folded for every page."""
        return self.trace.last <= FOLDED_EVENTS and self.size <= FOLDED_BYTES

    @property
    def small_size(self) -> int:
        """The approximate memory that the journal uses besides the folded history, in bytes."""
        return self.trace_size + self.questions_size

    def add_trace(self, added: TimedEvent) -> None:
        """Add the next event to the trace and count its size."""
        event = added.event
        self.trace.add_event(added.number, event, added.at)
        size = _EVENT_BYTES + added.size
        self.size += size
        self.trace_size += _EVENT_BYTES if event.get("event") == CallFinished.name else size
        self.questions = None
        self.questions_size = 0


class Histories:
    """The journals of the most recently viewed runs. Threads read the journals, so that they do not
    block the server.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, KeptJournal] = OrderedDict()

    @asynccontextmanager
    async def reading(self, run_id: str, *, fold: bool = False) -> AsyncGenerator[KeptJournal]:
        """Yield the journal of a run up to its last event. The journal does not change within the
        block.

        A small journal is folded in this process, and a larger one in a worker; see `run_pages`.
        Workers cannot read an in-memory store, so its journals are folded here if they are small or
        if `fold` is true.

        Raises:
            UnknownRunError: the run does not exist.
        """
        journal = self._kept.setdefault(run_id, KeptJournal())
        self._kept.move_to_end(run_id)
        try:
            async with journal.lock:
                await compute_in_thread(self._extend, run_id, journal, fold)
                yield journal
        finally:
            self._shrink()

    def _shrink(self) -> None:
        """While too much memory is used, discard folded histories and then whole journals, least
        recently viewed first.
        """
        unused = [
            (run_id, journal) for run_id, journal in self._kept.items() if not journal.lock.locked()
        ]
        small = sum(journal.small_size for journal in self._kept.values())
        total = small + sum(
            journal.size for journal in self._kept.values() if journal.history is not None
        )
        for _, journal in unused:
            if total > JOURNAL_CACHE_BYTES and journal.history is not None:
                journal.history = None
                total -= journal.size

        for run_id, journal in unused:
            if small > JOURNAL_CACHE_BYTES:
                del self._kept[run_id]
                small -= journal.small_size

    def _extend(self, run_id: str, journal: KeptJournal, fold: bool) -> None:
        runs = self._store.runs
        trace = journal.trace
        for added in runs.timed_events(run_id, trace.last):
            journal.add_trace(added)

        if self.has_workers:
            if trace.last > FOLDED_HERE_EVENTS or journal.size > FOLDED_HERE_BYTES:
                journal.history = None
                return
        elif not fold and journal.history is None and not journal.is_small:
            return

        history = journal.history = journal.history or RunHistory()
        last = history.entries[-1].number if history.entries else 0
        times = runs.event_times(run_id, last)
        for number, event in runs.events(run_id, last):
            if history.broken is not None:
                break
            history.add([(number, event)], times)

    @property
    def has_workers(self) -> bool:
        """True if worker processes can read the store."""
        return self._store.reader() is not None

    # -- open decisions ----------------------------------------------------------------------------

    async def all_pending(self, caller: Viewer, most: int) -> list[Pending]:
        """Return at most `most` open decisions from a caller's runs, with the newest runs of each
        owner first.

        An admin sees the runs of several owners. Each owner gets an equal share of the list, so
        that an owner with many open questions does not crowd out the others. Unused shares go to
        owners with more questions.
        """
        runs_by_owner: dict[str, list[RunRecord]] = {}
        for root in waiting_runs(self._store, caller):
            runs_by_owner.setdefault(root.caller, []).append(root)

        decisions: list[Pending] = []
        left_over: list[Pending] = []
        share = -(-most // max(1, len(runs_by_owner)))
        for runs in runs_by_owner.values():
            own: list[Pending] = []
            for root in runs:
                try:
                    own += await self._of_run(root, root, "")
                except (LimitExceededError, WorkerError) as error:
                    # List the questions of the other runs all the same. The page of this run says
                    # why it cannot be shown.
                    logger.warning(
                        "the decisions of run %s are missing from the list: %s", root.id, error
                    )

                if len(own) >= most:
                    break

            decisions += own[:share]
            left_over += own[share:]

        return [*decisions, *left_over][:most]

    async def pending(self, record: RunRecord, history: RunHistory | None = None) -> list[Pending]:
        """Return the open decisions of a run and its rooms. For a room, return the open decisions
        of the run that the room belongs to.

        Args:
            record: the run or room.
            history: the folded journal, if the calling code is already `reading` it. In this case,
                only the decisions of this run and its rooms are returned.
        """
        # While reading a room, never wait for the run that it belongs to, because whoever is
        # reading that run is waiting for the room. Waiting in both directions would be a deadlock.
        root = root_of(self._store, record) if history is None else record
        return await self._of_run(root, root, "", history)

    async def _of_run(
        self, record: RunRecord, root: RunRecord, prefix: str, history: RunHistory | None = None
    ) -> list[Pending]:
        if history is None:
            open_questions = await self._questions(record)
        else:
            open_questions = await compute_in_thread(OpenQuestions.of, history)

        decisions = list(open_questions.pending(root, prefix))
        for room, beginning in open_questions.open_rooms(self._store, record, prefix):
            decisions += await self._of_run(room, root, beginning)
        return decisions

    async def _questions(self, record: RunRecord) -> OpenQuestions:
        """Return the open questions in a journal. Simultaneous requests share the work of folding
        it, and a journal that has grown is folded again.
        """
        journal = self._kept.get(record.id)
        if (
            journal is not None
            and journal.questions is not None
            and journal.trace.last >= record.last_event
        ):
            self._kept.move_to_end(record.id)
            return journal.questions

        async with self.reading(record.id, fold=True) as read:
            if read.questions is None:
                read.questions, read.questions_size = await self._open_questions(record, read)
            return read.questions

    async def _open_questions(
        self, record: RunRecord, read: KeptJournal
    ) -> tuple[OpenQuestions, int]:
        """Return the open questions in a journal, and the approximate memory that they use, in
        bytes.
        """
        if read.history is not None:
            return await compute_in_thread(_measured, OpenQuestions.of, read.history)
        task = f"reading the open questions of run {record.id}"
        stored = await read_beside(
            open_questions, self._store, record.id, read.trace.last, is_small=False, what=task
        )
        return await compute_in_thread(_measured, OpenQuestions.from_json, stored)


def _measured(make: Callable[[T], OpenQuestions], source: T) -> tuple[OpenQuestions, int]:
    open_questions = make(source)
    return open_questions, sum(
        _EVENT_BYTES + memory_of(encode(question.to_json())) for question, _ in open_questions.asked
    )


# -- in a worker process ---------------------------------------------------------------------------


def read_until(
    store: Store, run_id: str, last: int, most: int = JOURNAL_CACHE_BYTES
) -> KeptJournal:
    """Read the journal of a run up to the event `last`. The journal is folded unless it needs more
    than `most` bytes of memory.

    Raises:
        UnknownRunError: the run does not exist.
    """
    read = KeptJournal()
    for added in itertools.islice(store.runs.timed_events(run_id), last):
        read.add_trace(added)

    if read.size <= most:
        read.history = _folded(store, run_id, last)
    return read


def _folded(store: Store, run_id: str, last: int) -> RunHistory:
    """Return the folded journal of a run up to the event `last`."""
    history = RunHistory()
    times = store.runs.event_times(run_id)
    for number, event in itertools.islice(store.runs.events(run_id), last):
        history.add([(number, event)], times)
        if history.broken is not None:
            break
    return history


def open_questions(store: Store, run_id: str, last: int) -> JSONObject:
    """Return the open questions of a run after the event `last`, as the JSON of `OpenQuestions`."""
    return OpenQuestions.of(_folded(store, run_id, last)).to_json()
