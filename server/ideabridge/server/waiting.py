"""Waiting for a run on behalf of a request, with progress notifications (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from ideabridge.bridge.loop.event import CallFinished, CallStarted, Event
from ideabridge.bridge.loop.executor import label
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.run import Run
from ideabridge.bridge.run_status import RunStatus
from ideabridge.server.callers import Asked

_BUFFERED = 1000
"""Notes kept for a client that reads slowly; later ones are left out."""

_Note = tuple[float, float, str]


async def wait(run: Run, asked: Asked, stay: Callable[[], Awaitable[RunStatus]]) -> RunStatus:
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
        note = counter.note(event)
        if note is not None:
            try:
                send.send_nowait(note)
            except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
                # A later note has the newer count; a client that is gone needs none.
                return

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_report, receive, asked)
            run.runner.watchers.append(watch)
            for note in counter.so_far()[:_BUFFERED]:
                send.send_nowait(note)
            try:
                await stay()
            finally:
                # Before the stream is closed: nothing a watcher raises may reach the run.
                run.runner.watchers.remove(watch)
            send.close()
    finally:
        send.close()
        receive.close()
    return run.status


async def _report(notes: MemoryObjectReceiveStream[_Note], asked: Asked) -> None:
    async for done, total, message in notes:
        await asked.context.session.report_progress(done, total, message)


def _has_started(one: Progress) -> bool:
    return any(item.started for item in one.items)


class _Counter:
    """Counts the calls of a run as they start and finish. A start counts half, so that progress always grows."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._started: set[int] = set()
        self._finished: set[int] = set()

    def so_far(self) -> list[_Note]:
        """Notes on the calls that started before anybody watched."""
        notes: list[_Note] = []
        for one in self._run.calls():
            index = one.call.index
            if one.settled and _has_started(one):
                self._started.add(index)
                self._finished.add(index)
            elif _has_started(one):
                self._started.add(index)
                notes.append(self._told(f"{label(one)} started"))
        return notes

    def note(self, event: Event) -> _Note | None:
        """What to tell of an event; None for nothing."""
        if isinstance(event, CallStarted):
            if event.call in self._started:
                return None
            self._started.add(event.call)
            return self._told(f"{self._label(event.call)} started")
        if isinstance(event, CallFinished):
            one = self._progress(event.call)
            if one is not None and not one.settled:
                # Items of it are still running.
                return None
            self._finished.add(event.call)
            how = "failed" if event.error is not None else "done"
            calls = self._run.calls()
            return self._told(f"{self._label(event.call)} {how} ({self._settled()} of {len(calls)})")
        return None

    def _told(self, message: str) -> _Note:
        total = len(self._run.calls())
        return (len(self._started) + self._settled()) / 2, float(total), message

    def _settled(self) -> int:
        # Some are skipped, or fail before they start. Of the others only those told of: the run may be further than
        # what watchers have heard.
        never = sum(1 for one in self._run.calls() if one.settled and not _has_started(one))
        return len(self._finished) + never

    def _progress(self, index: int) -> Progress | None:
        calls = self._run.calls()
        return calls[index] if index < len(calls) else None

    def _label(self, index: int) -> str:
        one = self._progress(index)
        return label(one) if one is not None else f"call {index}"
