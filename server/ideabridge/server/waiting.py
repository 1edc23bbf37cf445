"""Waiting for a run on behalf of a request, with progress notifications (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from ideabridge.bridge.loop.event import CallFinished, CallStarted, Event
from ideabridge.bridge.loop.executor import label
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.run import Run, RunStatus
from ideabridge.server.rounds import ToolRequest

_BUFFERED = 1000
"""Notes kept for a client that reads slowly; later ones are left out."""

_Note = tuple[float, float, str]


async def wait(run: Run, asked: ToolRequest, stay: Callable[[], Awaitable[RunStatus]]) -> RunStatus:
    """Wait for a run; tell the client of every call meanwhile.

    Args:
        run: the run.
        asked: the request that waits.
        stay: how it waits: until the run needs somebody, has ended, or time is up.
    """
    if not asked.wants_progress:
        return await stay()
    send, receive = anyio.create_memory_object_stream[_Note](_BUFFERED)
    counter = _Counter(run)

    def watch(event: Event) -> None:
        watch_room(run, event)

    def watch_room(room: Run, event: Event) -> None:
        note = counter.note(room, event)
        if note is not None:
            try:
                send.send_nowait(note)
            except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
                # A later note has the newer count; a client that is gone needs none.
                return

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_report, receive, asked)
            # Left before the stream is closed: nothing a watcher raises may reach the run.
            with run.watching(watch, watch_room):
                for note in counter.so_far()[:_BUFFERED]:
                    send.send_nowait(note)
                await stay()
            send.close()
    finally:
        send.close()
        receive.close()
    return run.status


async def _report(notes: MemoryObjectReceiveStream[_Note], asked: ToolRequest) -> None:
    async for done, total, message in notes:
        await asked.context.session.report_progress(done, total, message)


def _has_started(one: Progress) -> bool:
    return any(item.started for item in one.items)


class _Counter:
    """Counts the calls of a run and its rooms as they start and finish. A start counts half, so that progress always
    grows.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._started: set[tuple[str, int]] = set()
        self._finished: dict[str, set[int]] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def so_far(self) -> list[_Note]:
        """Notes on the calls that started before anybody watched."""
        return self._so_far(self._run)

    def _so_far(self, run: Run) -> list[_Note]:
        notes: list[_Note] = []
        for one in run.calls():
            key = (run.id, one.call.index)
            if one.settled and _has_started(one):
                self._started.add(key)
                self._finished.setdefault(run.id, set()).add(one.call.index)
            elif _has_started(one):
                self._started.add(key)
                notes.append(self._note(run, f"{self._named(run, one)} started"))
        for room in run.rooms.values():
            notes.extend(self._so_far(room))
        return notes

    def note(self, run: Run, event: Event) -> _Note | None:
        """What to tell of an event of the run or of a room; None for nothing."""
        if not isinstance(event, CallStarted | CallFinished):
            return None
        key, calls = (run.id, event.call), run.calls()
        one = calls[event.call] if event.call < len(calls) else None
        named = "a call" if one is None else self._named(run, one)
        if isinstance(event, CallStarted):
            if key in self._started:
                return None
            self._started.add(key)
            return self._note(run, f"{named} started")
        if one is not None and not one.settled:
            # Items of it are still running.
            return None
        self._finished.setdefault(run.id, set()).add(event.call)
        how = "failed" if event.error is not None else "done"
        return self._note(run, f"{named} {how} ({self._settled(run)} of {len(calls)})")

    def _named(self, run: Run, one: Progress) -> str:
        """The call, and in which calls' rooms it is, the outermost first."""
        names = [label(one)]
        while run is not self._run and run.parent is not None:
            answered = run.parent.calls()[run.key[0]]
            names.append(label(answered))
            run = run.parent
        return ": ".join(reversed(names))

    def _note(self, run: Run, message: str) -> _Note:
        # Rooms that have ended stay counted: progress never falls.
        self._counts[run.id] = (self._settled(run), len(run.calls()))
        settled, total = (sum(counts) for counts in zip(*self._counts.values(), strict=True))
        return (len(self._started) + settled) / 2, float(total), message

    def _settled(self, run: Run) -> int:
        # Some are skipped, or fail before they start. Of the others only those told of: the run may be further than
        # what watchers have heard.
        never = sum(1 for one in run.calls() if one.settled and not _has_started(one))
        return len(self._finished.get(run.id, ())) + never
