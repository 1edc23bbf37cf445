"""Journal: runs, their drivers' leases, and the append-only log of events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from ideabridge.bridge.ideas.contents import PARTS, Contents
from ideabridge.bridge.ideas.database import Database, now_text
from ideabridge.bridge.ideas.errors import RunExistsError, StaleDriverError, UnknownRunError
from ideabridge.bridge.ideas.records import LEASE_SECONDS, Lease, RunRecord
from ideabridge.bridge.ideas.table import check_limit, read_cursor
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode_text

_BITS: Final = 32
"""An event's row number is the run's number shifted by so much, plus its sequence number: one tree, in order."""

_BATCH: Final = 256

_APPEND: Final = (
    "INSERT INTO events(id, body, at) "
    "SELECT coalesce((SELECT max(id) FROM events WHERE id BETWEEN ?1 << 32 AND ((?1 + 1) << 32) - 1), ?1 << 32) + 1, "
    "?2, ?4 FROM runs WHERE number = ?1 AND epoch = ?3 AND driver IS NOT NULL"
)
_RECORD: Final = (
    "SELECT id, kind, caller, title, fingerprint, parent, status, summary, driver, epoch, lease_until, created, "
    "updated, forked_from, forked_at, (SELECT max(id) FROM events WHERE events.id BETWEEN runs.number << 32 "
    "AND ((runs.number + 1) << 32) - 1) FROM runs"
)


def _held_by(driver: str | None) -> tuple[str | None, float]:
    """(driver, how long its lease holds), from the column `driver`: `NAME:SECONDS`; an older version wrote the name."""
    name, _, seconds = (driver or "").rpartition(":")
    try:
        return name, float(seconds)
    except ValueError:
        return driver, LEASE_SECONDS


def _read(row: tuple[Any, ...]) -> RunRecord:
    *plain, summary, driver, epoch, lease_until, created, updated, forked_from, forked_at, last = row
    driver, lease_s = _held_by(driver)
    return RunRecord(
        *plain,
        summary=None if summary is None else cast("JSONObject", decode_trusted(summary)),
        driver=driver,
        epoch=epoch,
        lease_until=lease_until,
        lease_s=lease_s,
        created=created,
        updated=updated,
        forked_from=forked_from,
        forked_at=forked_at,
        last_event=0 if last is None else last & (2**_BITS - 1),
    )


class Journal:
    """The tables `runs` and `events`."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._numbers: dict[str, int] = {}
        self._voids = 0

    def _number(self, run_id: str) -> int:
        if self._voids != self._database.voids:
            self._voids = self._database.voids
            self._numbers.clear()
        number = self._numbers.get(run_id)
        if number is None:
            number = self._database.number("SELECT number FROM runs WHERE id = ?", (run_id,))
            if number == 0:
                raise UnknownRunError(f"no run {run_id[:64]!r}")
            if len(self._numbers) >= 10_000:
                self._numbers.clear()
            self._numbers[run_id] = number
        return number

    def _number_of(self, run_id: str) -> int:
        """The same, outside a transaction or guard."""
        number = self._numbers.get(run_id) if self._voids == self._database.voids else None
        if number is not None:
            return number
        with self._database.guard:
            return self._number(run_id)

    def create(self, run_id: str, *, kind: str, caller: str, title: str, fingerprint: str, parent: str | None) -> None:
        """Create a run, `running` and without a driver."""
        now = now_text()
        cursor = self._database.change(
            "INSERT OR IGNORE INTO runs(id, kind, caller, title, fingerprint, parent, status, epoch, lease_until, "
            "created, updated) VALUES (?, ?, ?, ?, ?, ?, 'running', 0, 0, ?, ?)",
            (run_id, kind, caller, title, fingerprint, parent, now, now),
        )
        if cursor.rowcount != 1:
            raise RunExistsError(f"a run {run_id[:64]!r} exists already")

    def acquire(self, run_id: str, driver: str, ttl_s: float, now: float, lapsed: Lease | None = None) -> int | None:
        """Take the lease: the new epoch, or None where another driver holds it; see `RunStore.acquire`."""
        with self._database.transaction():
            number = self._number(run_id)
            cursor = self._database.execute(
                "UPDATE runs SET driver = ?2, epoch = epoch + 1, lease_until = ?3 "
                "WHERE number = ?1 AND (driver IS NULL OR driver = ?2 OR (epoch = ?4 AND lease_until = ?5))",
                (number, f"{driver}:{ttl_s:g}", now + ttl_s, lapsed and lapsed.epoch, lapsed and lapsed.until),
            )
            if cursor.rowcount != 1:
                self._expect(run_id)
                return None
            return self._database.number("SELECT epoch FROM runs WHERE number = ?", (number,))

    def renew(self, run_id: str, epoch: int, ttl_s: float, now: float) -> bool:
        """Extend the lease; False: the run has another driver, or none."""
        # Whoever watches the lease sees that the value changes, also where the driver's clock was set back.
        cursor = self._database.change(
            "UPDATE runs SET lease_until = max(?, lease_until + 0.001) "
            "WHERE number = ? AND epoch = ? AND driver IS NOT NULL",
            (now + ttl_s, self._number_of(run_id), epoch),
        )
        return cursor.rowcount == 1

    def release(self, run_id: str, epoch: int) -> bool:
        """Give the lease up; False: it was not this epoch's any more."""
        cursor = self._database.change(
            "UPDATE runs SET driver = NULL, lease_until = 0 WHERE number = ? AND epoch = ? AND driver IS NOT NULL",
            (self._number_of(run_id), epoch),
        )
        return cursor.rowcount == 1

    def append(self, run_id: str, epoch: int, events: Sequence[JSONObject]) -> int:
        """Append events, all or none, if `epoch` is the run's current one; returns the last sequence number."""
        if len(events) == 1 and events[0].get("event") not in PARTS:
            # One statement is a transaction by itself: the epoch is checked in it.
            body = encode_text(events[0])
            cursor = self._database.change(_APPEND, (self._number_of(run_id), body, epoch, time.time()))
            if cursor.rowcount != 1:
                raise self._stale(run_id, epoch)
            return cast("int", cursor.lastrowid) & (2**_BITS - 1)
        with self._database.transaction():
            number = self._number(run_id)
            self._check(run_id, number, epoch)
            packed = self._contents.pack(events)
            base = number << _BITS
            last = self._database.number(
                "SELECT max(id) FROM events WHERE id BETWEEN ? AND ?", (base, base + 2**_BITS - 1)
            )
            start = (last or base) + 1
            now = time.time()
            self._database.connection.executemany(
                "INSERT INTO events(id, body, at, parts) VALUES (?, ?, ?, ?)",
                [(number, body, now, parts) for number, (body, parts) in enumerate(packed, start)],
            )
            return start - base + len(packed) - 1

    def _check(self, run_id: str, number: int, epoch: int) -> None:
        if not self._database.number(
            "SELECT 1 FROM runs WHERE number = ? AND epoch = ? AND driver IS NOT NULL", (number, epoch)
        ):
            raise self._stale(run_id, epoch)

    def _expect(self, run_id: str) -> None:
        """See that a run is there: one that had ended may have been pruned."""
        if not self._database.number("SELECT number FROM runs WHERE id = ?", (run_id,)):
            raise UnknownRunError(f"no run {run_id[:64]!r}")

    def _stale(self, run_id: str, epoch: int) -> StaleDriverError:
        with self._database.guard:
            self._expect(run_id)
            current = self._database.number("SELECT epoch FROM runs WHERE id = ?", (run_id,))
        why = "was released, or never acquired" if current == epoch else f"is at epoch {current}"
        return StaleDriverError(f"run {run_id[:64]!r} {why}: nothing of epoch {epoch} is taken any more")

    def events(self, run_id: str, after: int) -> Iterator[tuple[int, JSONObject]]:
        """The events after a sequence number, in order. Read in batches: no lock is held between them."""
        with self._database.guard:
            base = self._number(run_id) << _BITS
        last = base + after
        while True:
            # One state: what an event is made of may be pruned with it.
            with self._database.snapshot():
                rows = self._database.execute(
                    "SELECT id, body, parts FROM events WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
                    (last, base + 2**_BITS, _BATCH),
                ).fetchall()
                found = [(number - base, self._contents.unpack(body, parts)) for number, body, parts in rows]
            yield from found
            if len(rows) < _BATCH:
                return
            last = rows[-1][0]

    def size(self, run_id: str) -> int:
        """Characters of all events of a run together."""
        with self._database.guard:
            base = self._number(run_id) << _BITS
            return self._database.number(
                "SELECT sum(length(body)) FROM events WHERE id > ? AND id < ?", (base, base + 2**_BITS)
            )

    def times(self, run_id: str) -> dict[int, float]:
        """When each event was journaled, in seconds since 1970, by its sequence number."""
        with self._database.guard:
            base = self._number(run_id) << _BITS
            rows = self._database.execute(
                "SELECT id, at FROM events WHERE id > ? AND id < ?", (base, base + 2**_BITS)
            ).fetchall()
        return {number - base: at for number, at in rows}

    def note_fork(self, run_id: str, parent: str, at: int) -> None:
        """Note which run a run was forked from, and after which of its events."""
        self._database.change(
            "UPDATE runs SET forked_from = ?, forked_at = ? WHERE number = ?", (parent, at, self._number_of(run_id))
        )

    def forks(self, run_id: str) -> list[tuple[str, int]]:
        """(run, after which event) of every run forked from one, oldest first."""
        with self._database.guard:
            return self._database.execute(
                "SELECT id, forked_at FROM runs WHERE forked_from = ? ORDER BY number", (run_id,)
            ).fetchall()

    def rooms(self, run_id: str) -> list[RunRecord]:
        """The runs that answered calls of one, oldest first."""
        with self._database.guard:
            rows = self._database.execute(f"{_RECORD} WHERE parent = ? ORDER BY number", (run_id,)).fetchall()
        return [_read(row) for row in rows]

    def set_status(self, run_id: str, epoch: int, status: str, summary: JSONObject | None) -> None:
        """Set the status and summary, if `epoch` is the run's current one."""
        text = None if summary is None else encode_text(summary)
        cursor = self._database.change(
            "UPDATE runs SET status = ?, summary = ?, updated = ? "
            "WHERE number = ? AND epoch = ? AND driver IS NOT NULL",
            (status, text, now_text(), self._number_of(run_id), epoch),
        )
        if cursor.rowcount != 1:
            raise self._stale(run_id, epoch)

    def run(self, run_id: str) -> RunRecord | None:
        """One run."""
        with self._database.guard:
            row = self._database.execute(f"{_RECORD} WHERE id = ?", (run_id,)).fetchone()
        return None if row is None else _read(row)

    def leases(self, status: str, fingerprint: str | None, limit: int) -> list[Lease]:
        """The leases of runs; see `RunStore.leases`."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id, driver, epoch, lease_until FROM runs WHERE status = ?1 AND fingerprint = "
                "coalesce(?2, fingerprint) AND json_extract(summary, '$.set_aside') IS NOT 1 "
                "ORDER BY number DESC LIMIT ?3",
                (status, fingerprint, limit),
            ).fetchall()
        held = ((run, *_held_by(driver), epoch, until) for run, driver, epoch, until in rows)
        return [Lease(run, driver, epoch, until, seconds) for run, driver, seconds, epoch, until in held]

    def run_ids(self, prefix: str, limit: int) -> list[str]:
        """The ids that begin with `prefix`, the newest run first."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 ORDER BY number DESC LIMIT ?2",
                (prefix, limit),
            ).fetchall()
        return [run_id for (run_id,) in rows]

    def runs(
        self, caller: str | None, status: Sequence[str], limit: int, after: str | None, *, rooms: bool
    ) -> list[RunRecord]:
        """Runs, newest first; `after` is the id of the last run of the page before."""
        check_limit(limit)
        with self._database.guard:
            before = read_cursor(None) if after is None else self._number(after)
            values: list[str] = [*([] if caller is None else [caller]), *status]
            where = "" if caller is None else "caller = ? AND "
            where += f"status IN ({', '.join('?' * len(status))}) AND " if status else ""
            where += "" if rooms else "parent IS NULL AND "
            rows = self._database.execute(
                f"{_RECORD} WHERE {where}number < ? ORDER BY number DESC LIMIT ?", (*values, before, limit)
            ).fetchall()
        return [_read(row) for row in rows]
