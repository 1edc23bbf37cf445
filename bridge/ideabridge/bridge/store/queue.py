"""The queue of runs that are waiting for a worker. Each entry is a row in the `runs` table; see
`Journal`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from ideabridge.bridge.store.database import Database, now_text
from ideabridge.bridge.store.journal import Journal
from ideabridge.bridge.store.leases import Leases
from ideabridge.bridge.store.run_record import Handover, StoredSummary
from ideabridge.bridge.store.users import owner_of
from ideabridge.tools.encoding import JSONObject, decode_trusted

QUEUED: Final = "queued"
"""The status, in the `runs` table, of a run that is waiting for a worker."""

_CLAIMED_OF: Final = 1000
"""The maximum number of queued runs, oldest first, from which `RunQueue.claim` chooses."""


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that is waiting for a worker.

    Attributes:
        run: the id of the run.
        caller: the owner of the run.
        needs: the names of the servers that the run can call. `*` means any.
        has_begun: whether a process has already worked on the run.
    """

    run: str
    caller: str
    needs: tuple[str, ...]
    has_begun: bool


class RunQueue:
    """The runs with the status `queued`."""

    def __init__(self, database: Database, journal: Journal, leases: Leases) -> None:
        self._database = database
        self._journal = journal
        self._leases = leases

    def put(self, run_id: str, epoch: int, handover: Handover) -> None:
        """Put a run into the queue, and release its lease. `handover` contains the run's `needs`
        (see `QueuedRun`).

        Raises:
            StaleDriverError: the epoch is not the run's current epoch, or it was released.
            UnknownRunError: the run does not exist.
        """
        with self._database.transaction(concurrent=True):
            self._journal.set_status(run_id, epoch, QUEUED, StoredSummary(handover=handover))
            self._leases.release(run_id, epoch)
            self._database.notifier.notify("queue")

    def count(
        self, fingerprint: str | None = None, most: int = 1, *, caller: str | None = None
    ) -> int:
        """Count the runs that are waiting for a worker, up to `most`.

        If `fingerprint` is set, only runs of this configuration count. If `caller` is set, only
        runs of this owner count.
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
        """Take runs out of the queue. Their status becomes `running`, and the caller drives them.

        Runs that have already begun come first, then runs of the callers with the fewest active
        runs, then the oldest runs. Only one process can claim at a time. The others wait until its
        transaction ends.

        Args:
            fingerprint: the configuration of the runs.
            most: the maximum number of runs to claim.
            takes: returns whether to claim a run, given how many of its caller's runs are active.
            is_last: returns whether a caller's runs come after those of all other callers.
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
            busy = Counter[str]()
            for caller, count in at_work:
                busy[owner_of(caller)] += int(count)

            waiting: list[QueuedRun] = []
            for run, caller, summary, epoch in rows:
                needs: tuple[str, ...] = ()
                if summary is not None:
                    stored = StoredSummary.from_json(cast("JSONObject", decode_trusted(summary)))
                    needs = stored.handover.needs or ()
                waiting.append(QueuedRun(run, caller, needs, has_begun=epoch > 1))

            def rank(run: QueuedRun) -> tuple[bool, bool, int]:
                return is_last(run.caller), not run.has_begun, busy[owner_of(run.caller)]

            claimed: list[str] = []
            while waiting and len(claimed) < most:
                # `min` returns the first of several equal runs, so their order in the list decides.
                first = min(waiting, key=rank)
                waiting.remove(first)
                owner = owner_of(first.caller)
                if takes(first, busy[owner]):
                    busy[owner] += 1
                    claimed.append(first.run)

            self._database.many(
                "UPDATE runs SET status = 'running', updated = ? WHERE id = ?",
                [(now_text(), run) for run in claimed],
            )
            return claimed
