"""Enforce a server's `parallel` limit across all processes on a store.

Theory of operation. The store lists each server's running and waiting calls in order of arrival. If
the limit is N, the first N calls run. When a call ends, it is removed and the next call starts, so
calls take turns, regardless of the processes that make them. PostgreSQL notifies the waiting
processes. If the store is an SQLite file, the processes read it four times a second.

A process has a heartbeat for its calls, as for its runs, and other processes judge it in the same
way (`Watch`). The calls of a process that is gone are removed immediately. If it is unclear whether
the process is gone, its calls are removed after `LEASE_SECONDS` without a heartbeat. So if a
process loses its connection to the store only briefly, its calls keep their places.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio

from ideabridge.bridge.driving.driver import Watch
from ideabridge.bridge.driving.notices import Notices
from ideabridge.bridge.store.call_places import CALLS, CallPlace
from ideabridge.bridge.store.errors import StoreError, UncountedCallError
from ideabridge.bridge.store.leases import LEASE_SECONDS, Lease
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.writer import Writer

T = TypeVar("T")

_LOOKS_SECONDS: Final = 0.25
"""Interval, in seconds, at which the calls are checked if the store cannot notify."""

_ALIVE_SECONDS: Final = 4 * LEASE_SECONDS
"""After this many seconds without a heartbeat, even the calls of a live process on this system are
removed, because the process evidently cannot write.
"""

logger: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Call:
    module: str
    most: int
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    runs: bool = False
    has_joined: bool = False
    changed: anyio.Event = field(default_factory=anyio.Event)
    error: Exception | None = None

    def end_wait(self, error: Exception | None = None) -> None:
        self.runs = error is None
        self.error = error
        self.changed.set()


class SharedCalls:
    """Makes calls to servers wait until they are allowed to run. The methods must be called in the
    event loop's thread.

    Args:
        store: holds the calls of all processes.
        writer: writes to the store.
        notices: reports when calls of other processes have ended.
        name: the name of this process, from `own_driver_name`.
        seconds: the number of seconds without a heartbeat after which a process's calls are
            removed.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        notices: Notices,
        name: str,
        seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._writer = writer
        self._notices = notices
        self._name = name
        self._seconds = seconds
        self._watch = Watch(alive_seconds=_ALIVE_SECONDS)
        self._calls: dict[str, _Call] = {}
        # Calls that have ended but could not be removed from the store.
        self._unwritten: list[_Call] = []
        self._beating: set[str] = set()
        self._awaited = anyio.Event()

    @asynccontextmanager
    async def place(self, module: str, most: int) -> AsyncGenerator[None]:
        """Wait until fewer than `most` earlier calls to a server are running. The call runs inside
        this context manager.

        Args:
            module: identifies the module: its name and, after a space, the text that distinguishes
                it from other servers with the same name.
            most: the maximum number of calls that run at the same time.

        Raises:
            UncountedCallError: the store cannot be written to.
        """
        call = _Call(module, most)
        self._calls[call.id] = call
        try:
            self._join(call)
            if not call.changed.is_set():
                self._awaited.set()
                await call.changed.wait()

            if call.error is not None:
                raise UncountedCallError(f"not run: {call.error}") from call.error
            yield
        finally:
            del self._calls[call.id]
            self._leave(call)

    async def run(self) -> None:
        """Let waiting calls run and report that this process is alive, until this task is
        cancelled.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._beat)
            while True:
                self._awaited = anyio.Event()
                if not self._waiting():
                    await self._awaited.wait()
                changed = await self._notices.wait(CALLS, _LOOKS_SECONDS)
                for module in {call.module for call in self._waiting()}:
                    if changed is None or module in changed:
                        # If the store fails now, the calls are read in the next round.
                        with suppress(StoreError):
                            self._look(module)

    def _waiting(self) -> list[_Call]:
        return [call for call in self._calls.values() if not call.changed.is_set()]

    def _look(self, module: str) -> None:
        """Start the calls that are next in line, and remove those of processes that are gone."""
        places = self._store.call_places.of(module)
        for call in self._waiting():
            if call.module == module and call.has_joined:
                self._take_turn(call, places)

        for place in places:
            lease = Lease(f"{module} {place.call}", place.process, place.beat, 0.0, self._seconds)
            if place.process != self._name and self._watch.seconds_until_lapse(lease) == 0.0:
                self._remove(module, place)

    def _take_turn(self, call: _Call, places: list[CallPlace]) -> None:
        calls = [place.call for place in places]
        if call.id not in calls:
            # This process was stopped or could not reach the store for a while, so other processes
            # assumed that it was gone.
            self._join(call)
        elif calls.index(call.id) < call.most:
            call.end_wait()

    # -- writing -----------------------------------------------------------------------------------

    def _join(self, call: _Call) -> None:
        call.has_joined = False

        def joined(places: list[CallPlace]) -> None:
            call.has_joined = True
            self._take_turn(call, places)

        self._write(
            call.id,
            lambda: self._store.call_places.join(call.module, call.id, self._name),
            joined,
            call.end_wait,
        )

    def _leave(self, call: _Call) -> None:
        def left(_nothing: None) -> None:
            self._notices.tell(CALLS, call.module)

        def failed(_error: Exception) -> None:
            self._unwritten.append(call)

        # Use the key of the write that adds the call, so that a call that is cancelled while it is
        # being added is removed afterwards.
        self._write(
            call.id, lambda: self._store.call_places.leave(call.module, call.id), left, failed
        )

    def _remove(self, module: str, place: CallPlace) -> None:
        def removed(_nothing: None) -> None:
            self._notices.tell(CALLS, module)

        def failed(error: Exception) -> None:
            logger.debug(
                "the call of a process that no longer exists has not been removed yet: %s", error
            )

        self._write(
            place.call, lambda: self._store.call_places.remove(module, place), removed, failed
        )

    async def _beat(self) -> None:
        while True:
            await anyio.sleep(self._seconds / 5)
            unwritten = self._unwritten
            self._unwritten = []
            for call in unwritten:
                self._leave(call)
            for module in {call.module for call in self._calls.values()} - self._beating:
                self._beat_for(module)

    def _beat_for(self, module: str) -> None:
        def beaten(present: set[str]) -> None:
            self._beating.discard(module)
            for call in self._calls.values():
                if call.module != module or not call.runs or call.id in present:
                    continue
                call.runs = False
                logger.warning(
                    "module %s: another process assumed that this one had ended, so more calls "
                    "may run there than `parallel` allows",
                    module.partition(" ")[0],
                )

        def failed(_error: Exception) -> None:
            self._beating.discard(module)

        self._beating.add(module)
        self._write(
            f"beat {module}",
            lambda: self._store.call_places.beat(module, self._name),
            beaten,
            failed,
        )

    def _write(
        self,
        key: str,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        try:
            self._writer.write(job, done, failed, key=key)
        except StoreError as error:
            failed(error)
