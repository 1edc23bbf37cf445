"""A client that pings a server without pause, to see for how long it serves nobody."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType


@dataclass
class Pings:
    """The pings that were answered during some work.

    Attributes:
        what: the work.
        answered: their number.
        worst: the longest time from one answer to the next, in seconds.
        seconds: how long the work took.
    """

    what: str
    answered: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    begun: float = field(default_factory=time.monotonic)

    @property
    def shown(self) -> str:
        """A line of a report."""
        return f"{self.worst:7.2f} s of {self.seconds:7.2f} s without an answer, {self.answered:6,} pings: {self.what}"


class Pinger:
    """Asks for the health of the server at an address, again and again, in a thread of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._current = Pings("nothing")
        self._last = time.monotonic()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pinger:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join()
        if self._fault is not None and error is None:
            raise self._fault

    @contextmanager
    def beside(self, what: str) -> Generator[Pings]:
        """Measure the pings during the work inside. Its last ping ends after the work."""
        pings = Pings(what)
        with self._lock:
            self._current = pings
            self._last = pings.begun
        try:
            yield pings
        finally:
            with self._lock:
                now = time.monotonic()
                pings.seconds = now - pings.begun
                pings.worst = max(pings.worst, now - self._last)
                self._current = Pings("nothing")

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=300)
        try:
            while not self._ends.is_set():
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                with self._lock:
                    now = time.monotonic()
                    self._current.answered += 1
                    self._current.worst = max(self._current.worst, now - self._last)
                    self._last = now
        except Exception as error:  # noqa: BLE001 - the test reports it
            self._fault = error
        finally:
            connection.close()
