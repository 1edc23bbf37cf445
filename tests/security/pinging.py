"""A client that pings a server again and again, to see for how long it serves nobody."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

PAUSE = 0.01
"""Seconds between an answer and the next ping. Without a pause, the pings take more processor time
than most requests beside them.
"""


@dataclass(frozen=True)
class Hold:
    """One round of a server's event loop, in which it served nobody else; see `watched_server.py`.

    Attributes:
        at: when it ended, by `time.monotonic`.
        processor: seconds of processor time that the event loop took. They do not depend on what
            else the machine does.
        clock: seconds on the clock.
        collected: how many of the seconds of processor time collected garbage.
        places: where it was seen most often.
    """

    at: float
    processor: float
    clock: float
    collected: float
    places: list[str]

    @property
    def own(self) -> float:
        """Seconds of processor time without the collector of garbage."""
        return self.processor - self.collected


@dataclass
class Pings:
    """The pings that were answered during some work.

    Attributes:
        what: the work.
        answered: their number.
        worst: the longest time from one answer to the next, in seconds.
        seconds: how long the work took.
        held: the round of the event loop that took the most processor time without the collector of
            garbage, if one was noted.
        collected: the most seconds of processor time that the collector of garbage took in a round.
    """

    what: str
    answered: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    held: Hold | None = None
    collected: float = 0.0
    begun: float = field(default_factory=time.monotonic)

    @property
    def processor(self) -> float:
        """The most processor time of a round of the event loop without the collector of
        garbage, in seconds.
        """
        return 0.0 if self.held is None else self.held.own

    @property
    def shown(self) -> str:
        """A line of a report."""
        held = "" if self.held is None else f" [{'; '.join(self.held.places[:2])}]"
        times = f"{self.processor:6.2f} s of processor, {self.collected:6.2f} s collected"
        waited = (
            f"{self.worst:6.2f} s of {self.seconds:6.2f} s without an answer, "
            f"{self.answered:6,} pings"
        )
        return f"{times}, {waited}: {self.what}{held}"


class Pinger:
    """Asks for the health of the server at an address, again and again, in a thread of its own.
    `holds` is the file of `watched_server.py`, if the server runs under it.
    """

    def __init__(self, address: str, holds: Path | None = None) -> None:
        self._address = address
        self._holds = holds
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._current = Pings("nothing")
        self._last = time.monotonic()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pinger:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
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

            listed = [hold for hold in self._noted() if hold.at >= pings.begun]
            pings.held = max(listed, key=lambda hold: hold.own, default=None)
            pings.collected = max((hold.collected for hold in listed), default=0.0)

    def _noted(self) -> list[Hold]:
        """What the file of `watched_server.py` has so far."""
        if self._holds is None or not self._holds.exists():
            return []
        lines = self._holds.read_text().split("\n")
        return [Hold(**json.loads(line)) for line in lines[:-1]]

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=300)
        try:
            while not self._ends.wait(PAUSE):
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
