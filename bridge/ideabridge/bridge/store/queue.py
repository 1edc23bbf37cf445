"""Queue: the runs that wait for a worker, and the calls that run or wait at a module with a limit
for all processes.

The runs are a part of the table of runs, which `Journal` describes. The calls of a module are one
of the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from ideabridge.bridge.store.database import Database, now_text
from ideabridge.bridge.store.journal import Journal, StoredSettings
from ideabridge.bridge.store.run_record import StoredSummary
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode

QUEUED: Final = "queued"
"""The status, in the table of runs, of a run that waits for a worker."""

_CLAIMED_OF: Final = 1000
"""The oldest runs of the queue, among which `Journal.claim` chooses."""


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that waits for a worker.

    Attributes:
        run: its id.
        caller: its owner.
        needs: the names of the modules that it may call; `*`: any.
        has_begun: whether a process has been at work on it.
    """

    run: str
    caller: str
    needs: tuple[str, ...]
    has_begun: bool


class RunQueue:
    """The runs with the status `queued`."""

    def __init__(self, database: Database, journal: Journal) -> None:
        self._database = database
        self._journal = journal

    def put(self, run_id: str, epoch: int, summary: StoredSummary) -> None:
        """Let a run wait for a worker, and release its lease. `summary` has its `needs`;
        see `QueuedRun`.

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released.
            UnknownRunError: no such run.
        """
        with self._database.transaction(concurrent=True):
            self._journal.set_status(run_id, epoch, QUEUED, summary)
            self._journal.release(run_id, epoch)
            self._database.notify("queue")

    def count(
        self, fingerprint: str | None = None, most: int = 1, *, caller: str | None = None
    ) -> int:
        """Count the runs that wait for a worker, up to `most`; `fingerprint`: only those of this
        configuration; `caller`: only those of this owner.
        """
        with self._database.guard:
            return self._database.number(
                "SELECT count(*) FROM (SELECT 1 FROM runs WHERE status = 'queued' "
                "AND fingerprint = "
                "coalesce(?1, fingerprint) AND caller = coalesce(?3, caller) LIMIT ?2) AS waiting",
                (fingerprint, most, caller),
            )

    def claim(
        self,
        fingerprint: str,
        most: int,
        takes: Callable[[QueuedRun, int], bool],
        is_last: Callable[[str], bool] = lambda _caller: False,
    ) -> list[str]:
        """Take runs out of the queue: their status becomes `running`, and the caller drives
        them. Runs that have begun come first, then the callers with the fewest runs at work,
        then the oldest. It is called by one process at a time, because the others wait for the
        end of the transaction.

        Args:
            fingerprint: the configuration of the runs.
            most: the most runs to take.
            takes: decides about a run, given the number of runs of its caller that are at work.
            is_last: whether the runs of a caller come after those of all others.
        """
        with self._database.transaction():
            rows = self._database.execute(
                "SELECT id, caller, summary, epoch FROM runs WHERE status = 'queued' "
                "AND fingerprint = ? "
                "ORDER BY number LIMIT ?",
                (fingerprint, _CLAIMED_OF),
            ).fetchall()
            if not rows:
                return []
            at_work = self._database.execute(
                "SELECT caller, count(*) FROM runs WHERE status = 'running' AND parent IS NULL "
                "GROUP BY caller"
            ).fetchall()
            busy: dict[str, int] = {caller: int(count) for caller, count in at_work}
            waiting: list[QueuedRun] = []
            for run, caller, summary, epoch in rows:
                needs: tuple[str, ...] = ()
                if summary is not None:
                    stored = StoredSummary.from_json(cast("JSONObject", decode_trusted(summary)))
                    needs = stored.needs or ()
                waiting.append(QueuedRun(run, caller, needs, has_begun=epoch > 1))
            claimed: list[str] = []
            while waiting and len(claimed) < most:
                # The order of the list decides between equal runs.
                one = min(
                    waiting,
                    key=lambda run: (
                        is_last(run.caller),
                        not run.has_begun,
                        busy.get(run.caller, 0),
                    ),
                )
                waiting.remove(one)
                if takes(one, busy.get(one.caller, 0)):
                    busy[one.caller] = busy.get(one.caller, 0) + 1
                    claimed.append(one.run)
            self._database.many(
                "UPDATE runs SET status = 'running', updated = ? WHERE id = ?",
                [(now_text(), one) for one in claimed],
            )
            return claimed


_CALLS: Final = "calls "
"""Key of the setting with the calls of a module, before the module."""

CALLS: Final = "calls"
"""Topic of the notices that a call of a module has left."""


class CallPlace(NamedTuple):
    """A call that runs or waits at a module. Two equal values mean that there was no
    heartbeat in between.

    Attributes:
        call: its id.
        process: the name of the process that makes it.
        beat: the number of heartbeats.
    """

    call: str
    process: str
    beat: int


class CallPlaces:
    """The calls of each module in the order in which they came: the first ones run,
    the others wait.

    All calls of a module are one row, which is locked while it changes. So every process sees
    the same order.
    """

    def __init__(self, database: Database, settings: StoredSettings) -> None:
        self._database = database
        self._settings = settings

    def of(self, module: str) -> list[CallPlace]:
        """The calls of a module, in order."""
        return _read(self._settings.get(f"{_CALLS}{module}"))

    def join(self, module: str, call: str, process: str) -> list[CallPlace]:
        """Add a call at the end, unless it is there, and return all calls."""

        def joined(places: list[CallPlace]) -> list[CallPlace]:
            is_there = any(one.call == call for one in places)
            return places if is_there else [*places, CallPlace(call, process, 0)]

        return self._change(module, joined)

    def leave(self, module: str, call: str) -> None:
        """Remove a call, and notify those who wait."""
        self._change(module, lambda places: [one for one in places if one.call != call])

    def remove(self, module: str, place: CallPlace) -> None:
        """Remove a call whose process is gone, unless there was a heartbeat."""
        self._change(module, lambda places: [one for one in places if one != place])

    def beat(self, module: str, process: str) -> set[str]:
        """Count a heartbeat for the calls of a process; returns those that are there."""
        places = self._change(
            module,
            lambda places: [
                one._replace(beat=one.beat + (one.process == process)) for one in places
            ],
        )
        return {one.call for one in places if one.process == process}

    def _change(
        self, module: str, change: Callable[[list[CallPlace]], list[CallPlace]]
    ) -> list[CallPlace]:
        key = f"{_CALLS}{module}"
        with self._database.transaction(concurrent=True):
            self._database.execute(
                "INSERT INTO settings(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO NOTHING",
                (key, b"[]"),
            )
            # The lock of the row ends with the transaction: others see this change before
            # they make theirs.
            (value,) = self._database.execute(
                f"SELECT value FROM settings WHERE key = ?{self._database.for_update}",  # noqa: S608
                (key,),
            ).fetchone()
            before = _read(value)
            after = change(before)
            if after != before:
                self._settings.set(key, encode([list[JSON](one) for one in after]))
            if len(after) < len(before):
                self._database.notify(f"{CALLS} {module}")
            return after


def _read(value: bytes | None) -> list[CallPlace]:
    if value is None:
        rows = []
    else:
        rows = cast("list[tuple[str, str, int]]", decode_trusted(bytes(value)))
    return [CallPlace(*row) for row in rows]
