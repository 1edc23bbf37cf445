"""Receive notices from other processes that use the same store. A process polls only if the store
cannot notify.

A notice consists of a topic and, for some topics, an id: `run RUN` (its journal has grown), `ask`
(a request to the driver of a run), `queue` (a run is waiting for a worker), `catalogue` (something
was published). A notice does not contain data: a process that receives the notice reads the store.
Notices can be lost when a connection breaks, so a waiting process also checks the store every few
seconds. An SQLite file cannot notify, so its processes poll.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import anyio
from anyio import RunFinishedError, from_thread, to_thread
from anyio.lowlevel import EventLoopToken, current_token

from ideabridge.bridge.store.store import Store

LOOKS_SECONDS: Final = 2.0
"""The time, in seconds, for which a task waits for a notice before it checks the store anyway."""


class _Topic:
    """The notices on one topic since they were last taken.

    Attributes:
        heard: set by a notice.
    """

    def __init__(self) -> None:
        self.heard = anyio.Event()
        self._about: set[str] = set()
        self._everything = False

    def hear(self, about: str) -> None:
        """Record a notice about the id `about`, or about everything if `about` is ""."""
        if about:
            self._about.add(about)
        else:
            self._everything = True
        self.heard.set()

    def take(self) -> set[str] | None:
        """Return the ids that the notices are about, and forget the notices. If everything must be
        checked, return None.
        """
        about: set[str] | None = self._about
        if self._everything or not self.heard.is_set():
            about = None

        self.heard = anyio.Event()
        self._about = set()
        self._everything = False
        return about


class Notices:
    """The notices from a store: `async with notices:`. All methods must be called in the event
    loop's thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._topics: dict[str, _Topic] = {}
        self._listens = False
        self._end = lambda: None

    async def __aenter__(self) -> Self:
        if self._store.notifier.can_notify:
            token = current_token()

            def take(notice: str) -> None:
                _run(token, lambda: self._take(notice))

            def lost() -> None:
                _run(token, self._lose)

            self._end = self._store.notifier.listen(take, lost)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            # Wait in another thread, because the thread that is ending might be waiting for this
            # event loop.
            await to_thread.run_sync(self._end)

    def tell(self, topic: str, about: str = "") -> None:
        """Wake the task in this process that is waiting for a topic."""
        self._topics.setdefault(topic, _Topic()).hear(about)

    async def wait(self, topic: str, seconds: float) -> set[str] | None:
        """Wait for notices on a topic. Only one task at a time can wait for a topic.

        Args:
            topic: the topic.
            seconds: the number of seconds to wait if the store cannot notify.

        Returns:
            The ids that the notices are about, or None to check everything.
        """
        notices = self._topics.setdefault(topic, _Topic())
        with anyio.move_on_after(LOOKS_SECONDS if self._listens else seconds):
            await notices.heard.wait()

        return notices.take()

    def _take(self, notice: str) -> None:
        topic, _, about = notice.partition(" ")
        if topic:
            self.tell(topic, about)
        else:
            self._listens = True
            self._wake_all()

    def _lose(self) -> None:
        self._listens = False
        self._wake_all()

    def _wake_all(self) -> None:
        """Wake every waiting task, because notices might have been lost."""
        for notices in self._topics.values():
            notices.hear("")


def _run(token: EventLoopToken, call: Callable[[], None]) -> None:
    """Call a function on the event loop, unless the loop has ended."""
    with suppress(RunFinishedError):
        from_thread.run_sync(call, token=token)
