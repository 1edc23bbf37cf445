"""Record which driver is allowed to write to the journal of a run, and until when."""

from __future__ import annotations

from typing import Final, NamedTuple

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.errors import UnknownRunError

LEASE_SECONDS: Final = 15.0
"""The default duration, in seconds, of a lease without a heartbeat."""


class Lease(NamedTuple):
    """The lease of a run. If two reads return equal values, there was no heartbeat in between.

    Attributes:
        run: the id of the run.
        driver: the holder, or None if nobody holds the lease.
        epoch: the current fencing epoch.
        until: a value that changes with each heartbeat; see `RunRecord.lease_until`.
        seconds: the number of seconds that the lease lasts without a heartbeat.
    """

    run: str
    driver: str | None
    epoch: int
    until: float
    seconds: float


def read_holder(driver: str | None) -> tuple[str | None, float]:
    """Split the value of the `driver` column, `NAME:SECONDS`, into the driver and the duration of
    its lease in seconds.
    """
    if driver is None:
        return None, LEASE_SECONDS
    name, _, seconds = driver.rpartition(":")
    return name, float(seconds)


def number_of(database: Database, run_id: str) -> int:
    """Return the row of a run. Call this inside a guard or transaction.

    Raises:
        UnknownRunError: the run does not exist.
    """
    number = database.number("SELECT number FROM runs WHERE id = ?", (run_id,))
    if number == 0:
        raise UnknownRunError(f"no run {run_id[:64]!r}")
    return number


class Leases:
    """The leases of runs, which are stored in columns of the table `runs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(
        self, run_id: str, driver: str, ttl_s: float, now: float, lapsed: Lease | None = None
    ) -> int | None:
        """Acquire the lease of a run for `ttl_s` seconds from `now`, and return the new epoch.
        Return None while another driver holds the lease.

        The store does not compare times, because clocks differ between machines. To take over a
        lease that was not released, pass the lapsed lease as you last saw it. If the driver already
        holds the lease, its previous epoch becomes invalid.

        Args:
            run_id: the run.
            driver: the name of the driver.
            ttl_s: the number of seconds that the lease lasts without a `renew`.
            now: the current time, in seconds since 1970. It is stored with `ttl_s` for lists of
                runs.
            lapsed: a lapsed lease, as the caller last saw it. If the lease has changed since then,
                it is not taken over.

        Raises:
            UnknownRunError: the run does not exist.
        """
        with self._database.transaction(concurrent=True):
            number = number_of(self._database, run_id)
            cursor = self._database.execute(
                "UPDATE runs SET driver = ?2, epoch = epoch + 1, lease_until = ?3 "
                "WHERE number = ?1 AND (driver IS NULL OR driver = ?2 OR (epoch = ?4 "
                "AND lease_until = ?5))",
                (
                    number,
                    f"{driver}:{ttl_s:g}",
                    now + ttl_s,
                    lapsed and lapsed.epoch,
                    lapsed and lapsed.until,
                ),
            )
            if cursor.rowcount != 1:
                return None
            return self._database.number("SELECT epoch FROM runs WHERE number = ?", (number,))

    def renew(self, run_id: str, epoch: int, ttl_s: float, now: float) -> bool:
        """Extend the lease to `ttl_s` seconds from `now`. Return False if the epoch is not the
        run's current epoch.

        Raises:
            UnknownRunError: the run does not exist.
        """
        # Always change the value, even if the driver's clock has been set back, because other
        # processes compare it with the previous value.
        longer = (
            "lease_until = CASE WHEN ?1 > lease_until + 0.001 THEN ?1 ELSE lease_until + 0.001 END"
        )
        return self._change_lease(longer, now + ttl_s, run_id, epoch)

    def release(self, run_id: str, epoch: int) -> bool:
        """Release the lease, so that this epoch can no longer write. Return False if the epoch is
        not the current epoch.

        Raises:
            UnknownRunError: the run does not exist.
        """
        return self._change_lease("driver = NULL, lease_until = ?1", 0.0, run_id, epoch)

    def _change_lease(self, change: str, until: float, run_id: str, epoch: int) -> bool:
        cursor = self._database.change(
            f"UPDATE runs SET {change} WHERE id = ?2 AND epoch = ?3 AND driver IS NOT NULL",  # noqa: S608 - constants
            (until, run_id, epoch),
        )
        if cursor.rowcount != 1:
            with self._database.guard:
                number_of(self._database, run_id)
        return cursor.rowcount == 1

    def of_runs(
        self, status: str, fingerprint: str | None = None, limit: int = 1000
    ) -> list[Lease]:
        """Return the leases of the runs with the given status, newest run first.

        Runs that were set aside are left out. If `fingerprint` is set, only runs under the
        configuration with this fingerprint are included.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id, driver, epoch, lease_until FROM runs WHERE status = ?1 "
                "AND fingerprint = "
                "coalesce(?2, fingerprint) AND coalesce(json_type(summary, '$.set_aside'), "
                "'') <> 'true' "
                "ORDER BY number DESC LIMIT ?3",
                (status, fingerprint, limit),
            ).fetchall()

        leases: list[Lease] = []
        for run, column, epoch, until in rows:
            driver, seconds = read_holder(column)
            leases.append(Lease(run, driver, epoch, until, seconds))

        return leases
