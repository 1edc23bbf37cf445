"""Store a server's running and waiting calls, for servers whose limit applies to all processes
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, cast

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.settings import StoredSettings
from ideabridge.tools.encoding import JSON, decode_trusted, encode

_CALLS: Final = "calls "
"""The prefix of the settings key under which a server's calls are stored. The name of the server
follows.
"""

CALLS: Final = "calls"
"""The topic of the notification that a call to a server has ended."""


class CallPlace(NamedTuple):
    """A running or waiting call to a server.

    If two reads return equal values, there was no heartbeat in between.

    Attributes:
        call: the id of the call.
        process: the name of the process that makes the call.
        beat: the number of heartbeats so far.
    """

    call: str
    process: str
    beat: int


class CallPlaces:
    """The calls to each server, in order of arrival. Calls up to the server's limit run, and the
    rest wait.

    All calls to a server share one row, which is locked while it changes, so that every process
    sees the same order.
    """

    def __init__(self, database: Database, settings: StoredSettings) -> None:
        self._database = database
        self._settings = settings

    def of(self, module: str) -> list[CallPlace]:
        """Return the calls to a server, in order."""
        return _read(self._settings.get(f"{_CALLS}{module}"))

    def join(self, module: str, call: str, process: str) -> list[CallPlace]:
        """Add a call at the end of the list, unless it is already there, and return all calls."""

        def joined(places: list[CallPlace]) -> list[CallPlace]:
            if any(place.call == call for place in places):
                return places
            return [*places, CallPlace(call, process, 0)]

        return self._change(module, joined)

    def leave(self, module: str, call: str) -> None:
        """Remove a call, and notify the waiting processes."""
        self._change(module, lambda places: [place for place in places if place.call != call])

    def remove(self, module: str, place: CallPlace) -> None:
        """Remove a call whose process is gone, unless the call has had a heartbeat since `place`
        was read.
        """
        self._change(module, lambda places: [other for other in places if other != place])

    def beat(self, module: str, process: str) -> set[str]:
        """Record a heartbeat for all calls of a process. Return the calls that are still listed."""

        def beaten(places: list[CallPlace]) -> list[CallPlace]:
            return [
                place._replace(beat=place.beat + 1) if place.process == process else place
                for place in places
            ]

        places = self._change(module, beaten)
        return {place.call for place in places if place.process == process}

    def _change(
        self, module: str, change: Callable[[list[CallPlace]], list[CallPlace]]
    ) -> list[CallPlace]:
        key = f"{_CALLS}{module}"
        with self._database.transaction(concurrent=True):
            self._database.execute(
                "INSERT INTO settings(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO NOTHING",
                (key, b"[]"),
            )
            # The row stays locked until the end of the transaction, so other processes see this
            # change before they make their own.
            (value,) = self._database.execute(
                f"SELECT value FROM settings WHERE key = ?{self._database.for_update}",  # noqa: S608
                (key,),
            ).fetchone()
            before = _read(value)
            after = change(before)
            if after != before:
                self._settings.set(key, encode([list[JSON](place) for place in after]))
            if len(after) < len(before):
                self._database.notifier.notify(f"{CALLS} {module}")
            return after


def _read(value: bytes | None) -> list[CallPlace]:
    if value is None:
        rows = []
    else:
        rows = cast("list[tuple[str, str, int]]", decode_trusted(bytes(value)))
    return [CallPlace(*row) for row in rows]
