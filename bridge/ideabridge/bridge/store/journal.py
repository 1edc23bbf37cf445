"""Journal: runs, their drivers' leases, and the append-only log of events."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from ideabridge.bridge.store.contents import PARTS, Contents
from ideabridge.bridge.store.database import Database, now_text
from ideabridge.bridge.store.errors import (
    CursorError,
    RunExistsError,
    StaleDriverError,
    UnknownRunError,
)
from ideabridge.bridge.store.ideas import read_time
from ideabridge.bridge.store.page import Page
from ideabridge.bridge.store.run_record import LEASE_SECONDS, Lease, RunRecord, StoredSummary
from ideabridge.bridge.store.search import check_limit, read_cursor
from ideabridge.bridge.store.users import SEES_ALL, Viewer, only_of
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode, encode_text
from ideabridge.tools.names import did_you_mean

_BITS: Final = 32
"""An event's row number is the run's number shifted by so much, plus its sequence number: one
tree, in order."""

_BATCH: Final = 256

_APPEND: Final = (
    "INSERT INTO events(id, body, at) "
    "SELECT coalesce((SELECT max(id) FROM events "
    "WHERE id BETWEEN runs.number << 32 AND ((runs.number + 1) << 32) - 1), "
    "runs.number << 32) + 1, ?2, ?4 FROM runs WHERE runs.id = ?1 AND epoch = ?3 "
    "AND driver IS NOT NULL"
)
_RECORD: Final = (
    "SELECT id, kind, caller, title, fingerprint, parent, status, summary, driver, epoch, "
    "lease_until, created, "
    "updated, forked_from, forked_at, (SELECT max(id) FROM events "
    "WHERE events.id BETWEEN runs.number << 32 "
    "AND ((runs.number + 1) << 32) - 1) FROM runs"
)


def _held_by(driver: str | None) -> tuple[str | None, float]:
    """(driver, seconds that its lease lasts), from the column `driver`: `NAME:SECONDS`."""
    if driver is None:
        return None, LEASE_SECONDS
    name, _, seconds = driver.rpartition(":")
    return name, float(seconds)


def _read_summary(text: str | None) -> StoredSummary:
    if text is None:
        return StoredSummary()
    return StoredSummary.from_json(cast("JSONObject", decode_trusted(text)))


def _read(row: tuple[Any, ...]) -> RunRecord:
    *plain, summary, driver, epoch, lease_until, created, updated, forked_from, forked_at, last = (
        row
    )
    driver, lease_s = _held_by(driver)
    return RunRecord(
        *plain,
        summary=_read_summary(summary),
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
    """Runs, the leases of their drivers, and their events: the tables `runs` and `events`."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents

    def _number(self, run_id: str) -> int:
        """The row of a run. Call this inside a guard or transaction."""
        number = self._database.number("SELECT number FROM runs WHERE id = ?", (run_id,))
        if number == 0:
            raise UnknownRunError(f"no run {run_id[:64]!r}")
        return number

    def create(
        self,
        run_id: str,
        *,
        kind: str,
        caller: str,
        title: str,
        fingerprint: str,
        parent: str | None = None,
    ) -> None:
        """Create a run with the status `running` and no driver.

        Raises:
            RunExistsError: the id is taken.
        """
        now = now_text()
        cursor = self._database.change(
            "INSERT INTO runs(id, kind, caller, title, fingerprint, parent, status, epoch, "
            "lease_until, "
            "created, updated) VALUES (?, ?, ?, ?, ?, ?, 'running', 0, 0, ?, ?) "
            "ON CONFLICT DO NOTHING",
            (run_id, kind, caller, title, fingerprint, parent, now, now),
        )
        if cursor.rowcount != 1:
            raise RunExistsError(f"a run {run_id[:64]!r} exists already")

    def acquire(
        self, run_id: str, driver: str, ttl_s: float, now: float, lapsed: Lease | None = None
    ) -> int | None:
        """Take a run's lease for `ttl_s` seconds from `now` (seconds since 1970);
        returns the new epoch.

        None while another driver holds it. The store does not compare times, because clocks differ
        between machines: to take a lease that was not released, the caller passes it as last seen.
        If the same driver acquires the lease again, its previous epoch becomes invalid.

        Args:
            run_id: the run.
            driver: the name of the driver.
            ttl_s: the seconds that the lease lasts without a `renew`.
            now: stored with `ttl_s` for lists of runs.
            lapsed: a lapsed lease, as the caller last saw it. It is not taken if it
                has changed since.

        Raises:
            UnknownRunError: no such run.
        """
        with self._database.transaction(concurrent=True):
            number = self._number(run_id)
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
        """Extend the lease to `ttl_s` seconds from `now`; return False if the epoch is not the
        run's current one.

        Raises:
            UnknownRunError: no such run.
        """
        # The value must change even if the driver's clock was set back: other processes compare it
        # with the last one.
        longer = (
            "lease_until = CASE WHEN ?1 > lease_until + 0.001 THEN ?1 ELSE lease_until + 0.001 END"
        )
        return self._change_lease(longer, now + ttl_s, run_id, epoch)

    def release(self, run_id: str, epoch: int) -> bool:
        """Release the lease: the epoch cannot write any more; return False if it was not
        the current one.

        Raises:
            UnknownRunError: no such run.
        """
        return self._change_lease("driver = NULL, lease_until = ?1", 0.0, run_id, epoch)

    def _change_lease(self, change: str, until: float, run_id: str, epoch: int) -> bool:
        cursor = self._database.change(
            f"UPDATE runs SET {change} WHERE id = ?2 AND epoch = ?3 AND driver IS NOT NULL",  # noqa: S608 - constants
            (until, run_id, epoch),
        )
        if cursor.rowcount != 1:
            with self._database.guard:
                self._number(run_id)
        return cursor.rowcount == 1

    def append(self, run_id: str, epoch: int, events: Sequence[JSONObject]) -> int:
        """Append events to a run's journal, all or none; returns the sequence number of
        the last (from 1).

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released.
                Nothing is written.
            UnknownRunError: no such run.
            InvalidJSONError: an event is not JSON.
        """
        if len(events) == 1 and events[0].get("event") not in PARTS:
            # One statement is a transaction by itself: the epoch is checked in it.
            body = encode_text(events[0])
            append = _APPEND + self._database.for_update
            event = self._database.insert(append, (run_id, body, epoch, time.time()), "id")
            if event is None:
                raise self._stale(run_id, epoch)
            return event & (2**_BITS - 1)
        with self._database.transaction(concurrent=True):
            number = self._database.number(
                "SELECT number FROM runs WHERE id = ? AND epoch = ? "  # noqa: S608
                f"AND driver IS NOT NULL{self._database.for_update}",
                (run_id, epoch),
            )
            if number == 0:
                raise self._stale(run_id, epoch)
            packed = self._contents.pack(events)
            base = number << _BITS
            last = self._database.number(
                "SELECT max(id) FROM events WHERE id BETWEEN ? AND ?", (base, base + 2**_BITS - 1)
            )
            start = (last or base) + 1
            now = time.time()
            self._database.many(
                "INSERT INTO events(id, body, at, parts) VALUES (?, ?, ?, ?)",
                [(number, body, now, parts) for number, (body, parts) in enumerate(packed, start)],
            )
            return start - base + len(packed) - 1

    def _stale(self, run_id: str, epoch: int) -> StaleDriverError:
        with self._database.guard:
            self._number(run_id)
            current = self._database.number("SELECT epoch FROM runs WHERE id = ?", (run_id,))

        if current == epoch:
            why = "was released, or never acquired"
        else:
            why = f"is at epoch {current}"

        return StaleDriverError(
            f"run {run_id[:64]!r} {why}: nothing of epoch {epoch} is taken any more"
        )

    def events(self, run_id: str, after: int = 0) -> Iterator[tuple[int, JSONObject]]:
        """(sequence number, event) of a run after a sequence number, in order.

        Raises:
            UnknownRunError: no such run. It is raised by the first `next`.
        """
        with self._database.guard:
            base = self._number(run_id) << _BITS

        last = base + after
        while True:
            # A snapshot, because an event and its parts may be pruned meanwhile.
            with self._database.snapshot():
                rows = self._database.execute(
                    "SELECT id, body, parts FROM events WHERE id > ? AND id < ? "
                    "ORDER BY id LIMIT ?",
                    (last, base + 2**_BITS, _BATCH),
                ).fetchall()
                held = [
                    (number - base, body, self._contents.parts_of(parts))
                    for number, body, parts in rows
                ]

            # One by one, and without the lock of the store: large results take long to decode,
            # and much memory.
            for number, body, parts in held:
                yield number, self._contents.unpack(body, parts)

            if len(rows) < _BATCH:
                return
            last = rows[-1][0]

    def journal_bytes(self, run_id: str) -> int:
        """Return the approximate size in bytes of all events of a run.

        Raises:
            UnknownRunError: no such run.
        """
        with self._database.guard:
            base = self._number(run_id) << _BITS
            return self._database.number(
                "SELECT sum(length(body)) FROM events WHERE id > ? AND id < ?",
                (base, base + 2**_BITS),
            )

    def is_small(self, run_id: str, most_events: int, most_bytes: int) -> bool:
        """Whether the journal of a run has at most so many events, and at most about so many bytes
        with what its events refer to (the context and Solutions). Nothing is decoded.

        Raises:
            UnknownRunError: no such run.
        """
        if self.find(run_id, caller=SEES_ALL).last_event > most_events:
            return False

        size = self.journal_bytes(run_id)
        if size > most_bytes:
            return False

        with self._database.snapshot():
            base = self._number(run_id) << _BITS
            rows = self._database.execute(
                "SELECT parts FROM events WHERE id > ? AND id < ? AND parts IS NOT NULL",
                (base, base + 2**_BITS),
            ).fetchall()
            for (parts,) in rows:
                size += self._contents.length_of(parts)
                if size > most_bytes:
                    return False

        return True

    def event_times(self, run_id: str, after: int = 0) -> dict[int, float]:
        """Sequence number -> when the event was journaled, in seconds since 1970, for the events
        after a number.

        Raises:
            UnknownRunError: no such run.
        """
        with self._database.guard:
            base = self._number(run_id) << _BITS
            rows = self._database.execute(
                "SELECT id, at FROM events WHERE id > ? AND id < ?", (base + after, base + 2**_BITS)
            ).fetchall()
        return {number - base: at for number, at in rows}

    def create_fork(
        self,
        run_id: str,
        events: Sequence[JSONObject],
        *,
        parent: RunRecord,
        at: int,
        fingerprint: str,
    ) -> None:
        """Create a run that begins with the first events of another, possibly changed.
        It has no driver.

        Args:
            run_id: the id of the fork.
            events: its journal.
            parent: the run it is forked from. The fork has the same kind, caller and title.
            at: the event of the parent after which it is forked.
            fingerprint: the fingerprint of the configuration under which it continues.

        Raises:
            RunExistsError: the id is taken.
        """
        with self._database.transaction(concurrent=True):
            self.create(
                run_id,
                kind=parent.kind,
                caller=parent.caller,
                title=parent.title,
                fingerprint=fingerprint,
            )
            self._database.execute(
                "UPDATE runs SET forked_from = ?, forked_at = ? WHERE id = ?",
                (parent.id, at, run_id),
            )
            epoch = self.acquire(run_id, "fork", 1.0, 0.0)
            if epoch is not None:
                self.append(run_id, epoch, events)
                self.release(run_id, epoch)

    def create_ended(
        self,
        run_id: str,
        events: Sequence[JSONObject],
        *,
        kind: str,
        caller: str,
        title: str,
        fingerprint: str,
        status: str,
        summary: StoredSummary,
    ) -> None:
        """Create a run that has ended already, elsewhere, with its whole journal. Call this
        inside a transaction.

        Raises:
            RunExistsError: the id is taken.
        """
        self.create(run_id, kind=kind, caller=caller, title=title, fingerprint=fingerprint)
        epoch = self.acquire(run_id, "import", 1.0, 0.0)
        if epoch is not None:
            self.append(run_id, epoch, events)
            self.set_status(run_id, epoch, status, summary)
            self.release(run_id, epoch)

    def origins(self, caller: str, host: str) -> list[JSONObject]:
        """The member `origin` of the summary of every run of a caller that was imported
        from a host's logs.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT json_extract(summary, '$.origin') FROM runs WHERE caller = ? "
                "AND kind = 'session' "
                "AND json_extract(summary, '$.origin.host') = ?",
                (caller, host),
            ).fetchall()
        return [cast("JSONObject", decode_trusted(row[0])) for row in rows]

    def failed_calls(self, run_id: str) -> set[int]:
        """The numbers of the calls of a run that ended with an error.

        Raises:
            UnknownRunError: no such run.
        """
        with self._database.guard:
            base = self._number(run_id) << _BITS
            rows = self._database.execute(
                "SELECT json_extract(body, '$.call') FROM events WHERE id > ? AND id < ? "
                "AND json_extract(body, '$.event') = 'call_finished' "
                "AND json_type(body, '$.error') = 'object'",
                (base, base + 2**_BITS),
            ).fetchall()
        return {int(row[0]) for row in rows}

    def sessions(self, caller: str, limit: int) -> list[tuple[str, JSONObject]]:
        """(run, member `origin` of its summary) of the latest sessions of a caller that have ended,
        the latest first. Parts of sessions and imported runs are left out.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id, json_extract(summary, '$.origin') FROM runs WHERE caller = ? "
                "AND kind = 'session' "
                "AND json_extract(summary, '$.origin.last') IS NOT NULL "
                "ORDER BY number DESC LIMIT ?",
                (caller, limit),
            ).fetchall()
        return [(run, cast("JSONObject", decode_trusted(origin))) for run, origin in rows]

    def forks(self, run_id: str) -> list[tuple[str, int]]:
        """(run, after which event) of every run forked from this one, oldest first."""
        with self._database.guard:
            return self._database.execute(
                "SELECT id, forked_at FROM runs WHERE forked_from = ? ORDER BY number", (run_id,)
            ).fetchall()

    def rooms(self, run_id: str) -> list[RunRecord]:
        """The runs that answered calls of this one, oldest first."""
        with self._database.guard:
            rows = self._database.execute(
                f"{_RECORD} WHERE parent = ? ORDER BY number", (run_id,)
            ).fetchall()
        return [_read(row) for row in rows]

    def set_status(
        self, run_id: str, epoch: int, status: str, summary: StoredSummary | None
    ) -> None:
        """Set a run's status and summary; None: the row has no summary any more.

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released.
            UnknownRunError: no such run.
        """
        text = None if summary is None else encode_text(summary.to_json())
        cursor = self._database.change(
            "UPDATE runs SET status = ?, summary = ?, updated = ? WHERE id = ? AND epoch = ? "
            "AND driver IS NOT NULL",
            (status, text, now_text(), run_id, epoch),
        )
        if cursor.rowcount != 1:
            raise self._stale(run_id, epoch)

    def set_fingerprint(self, run_id: str, epoch: int, fingerprint: str) -> None:
        """Note under which configuration a run continues.

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released.
            UnknownRunError: no such run.
        """
        cursor = self._database.change(
            "UPDATE runs SET fingerprint = ? WHERE id = ? AND epoch = ? AND driver IS NOT NULL",
            (fingerprint, run_id, epoch),
        )
        if cursor.rowcount != 1:
            raise self._stale(run_id, epoch)

    @property
    def can_tell(self) -> bool:
        """Whether `tell` reaches other processes."""
        return self._database.can_notify

    def tell(self, run_id: str) -> None:
        """Notify the processes that follow a run, or the run that a room belongs to. Call this
        inside a transaction.
        """
        self._database.notify(f"run {run_id.partition('.')[0]}")

    def get(self, run_id: str) -> RunRecord | None:
        """A run by id, or None; for what drives runs. What somebody asks for is
        looked up by `find`.
        """
        with self._database.guard:
            row = self._database.execute(f"{_RECORD} WHERE id = ?", (run_id,)).fetchone()
        return None if row is None else _read(row)

    def find(self, run_id: str, *, caller: Viewer) -> RunRecord:
        """A run that a caller has started.

        Raises:
            UnknownRunError: no run has this id, or it belongs to somebody else. The
                message is the same.
        """
        record = self.get(run_id)
        if record is None or caller not in (SEES_ALL, record.caller):
            known = [one.id for one in self.newest(caller, limit=50)]
            raise UnknownRunError(f"unknown run {run_id[:80]!r}.{did_you_mean(run_id, known)}")
        return record

    def leases(self, status: str, fingerprint: str | None = None, limit: int = 1000) -> list[Lease]:
        """The leases of the runs that have a status, the newest run first, without runs that were
        set aside; `fingerprint`: only runs made under this configuration.
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
        held = ((run, *_held_by(driver), epoch, until) for run, driver, epoch, until in rows)
        return [
            Lease(run, driver, epoch, until, seconds) for run, driver, seconds, epoch, until in held
        ]

    def ids(self, prefix: str, limit: int = 10) -> list[str]:
        """The ids of runs, rooms among them, that begin with `prefix`, the newest first."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 "
                "ORDER BY number DESC LIMIT ?2",
                (prefix, limit),
            ).fetchall()
        return [run_id for (run_id,) in rows]

    def newest(
        self,
        caller: Viewer,
        status: str | Sequence[str] | None = None,
        limit: int = 20,
        *,
        after: str | None = None,
        rooms: bool = True,
        sessions: bool = True,
        chosen: RunFilter | None = None,
    ) -> list[RunRecord]:
        """The runs of a caller, newest first; `status` and `chosen` filter them. `after` is the
        last id of the previous page. Without `rooms`, runs that answer calls of other runs are left
        out; without `sessions`, recorded and imported calls.

        Raises:
            CursorError: the limit is out of bounds.
            FilterError: a time of the filter cannot be read.
            UnknownRunError: `after` is not a run of this caller.
        """
        check_limit(limit)
        if status is None:
            statuses = []
        elif isinstance(status, str):
            statuses = [status]
        else:
            statuses = list(status)

        with self._database.guard:
            before = read_cursor(None) if after is None else self._place(after, caller)
            values: list[Any] = [*([] if caller is SEES_ALL else [caller]), *statuses]
            where = "" if caller is SEES_ALL else "caller = ? AND "
            where += f"status IN ({', '.join('?' * len(statuses))}) AND " if statuses else ""
            where += "" if rooms else "parent IS NULL AND "
            where += "" if sessions else "kind <> 'session' AND "
            for clause, value in () if chosen is None else chosen.clauses():
                where += f"{clause} AND "
                values.append(value)

            rows = self._database.execute(
                f"{_RECORD} WHERE {where}number < ? ORDER BY number DESC LIMIT ?",
                (*values, before, limit),
            ).fetchall()

        return [_read(row) for row in rows]

    def _place(self, run_id: str, caller: Viewer) -> int:
        """The row of a run of a caller. Call this inside a guard or transaction."""
        number = self._database.number(
            "SELECT number FROM runs WHERE id = ?1 AND caller = coalesce(?2, caller)",
            (run_id, only_of(caller)),
        )
        if number == 0:
            raise UnknownRunError(f"no run {run_id[:64]!r}")
        return number

    def decisions(self, caller: Viewer, limit: int = 50) -> list[Decided]:
        """What people, assistants and time-outs decided in the newest runs, the latest run first;
        of a caller, in those that it has started.
        """
        check_limit(limit)
        with self._database.guard:
            rows = self._database.execute(
                # Not the whole event: an edited call may have megabytes.
                "SELECT runs.id, runs.title, runs.caller, events.at, "
                "json_extract(events.body, '$.call'), "
                "coalesce(json_extract(events.body, '$.decision'), json_extract(events.body, "
                "'$.action')), "
                "json_extract(events.body, '$.by'), json_extract(events.body, '$.reason') "
                "FROM runs JOIN events "
                "ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295 "
                "WHERE runs.number > (SELECT coalesce(max(number), 0) FROM runs) - ?1 "
                "AND runs.caller = "
                "coalesce(?2, runs.caller) AND json_extract(events.body, '$.event') IN "
                "('call_decided', 'outcome_decided', 'plan_decided', 'question_answered') "
                "AND json_extract(events.body, '$.granted') IS NULL "
                "ORDER BY events.id DESC LIMIT ?3",
                (_DECIDED_RUNS, only_of(caller), limit),
            ).fetchall()
        return [_decided(*row) for row in rows]


_DECIDED_RUNS: Final = 1000
"""The newest runs in which `Journal.decisions` looks: their whole journals are read."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision in a run.

    Attributes:
        at: its time in seconds since 1970.
        call: the number of the call; None: it is about the plan.
        decision: what was decided, as its event has it.
        by: who decided, as its event has it; see `read_decider`.
        reason: why.
    """

    run: str
    title: str
    caller: str
    at: float | None
    call: int | None
    decision: str
    by: JSON
    reason: str | None


def _decided(
    run: str,
    title: str,
    caller: str,
    at: float | None,
    call: int | str | None,
    decision: str | None,
    by: str | None,
    reason: str | None,
) -> Decided:
    # SQL gives an object as its JSON text.
    if by is not None and by.startswith("{"):
        decider = decode_trusted(by.encode())
    else:
        decider = by
    number = None if call is None else int(call)
    return Decided(run, title, caller, at, number, decision or "", decider, reason)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The conditions that a run must meet, all of them; None: no condition.

    Attributes:
        tool: a tool that one of its Solutions calls.
        since, until: when it began: `2026-11-21`, `2026-11-21T10:00`, or how long ago:
            `3d`, `12h`, `2w`.
        words: a part of its title or its id.
    """

    tool: str | None = None
    since: str | None = None
    until: str | None = None
    words: str | None = None

    def clauses(self) -> Iterator[tuple[str, str]]:
        """(condition on a row of `runs`, its value) of each condition.

        Raises:
            FilterError: a time cannot be read.
        """
        if self.tool is not None:
            calls = (
                "SELECT 1 FROM ideas JOIN idea_calls ON idea_calls.idea = ideas.number "
                "WHERE ideas.run = runs.id"
            )
            yield f"EXISTS ({calls} AND idea_calls.tool = ?)", self.tool

        if self.since is not None:
            yield "created >= ?", read_time(self.since, "since")

        if self.until is not None:
            yield "created < ?", read_time(self.until, "until")

        if self.words is not None:
            yield "instr(lower(title || ' ' || id), lower(?)) > 0", self.words


# -- direct calls ----------------------------------------------------------------------------------

MAX_ROWS: Final = 200_000
"""The number of calls that are kept, of all callers. The oldest are deleted first."""

MAX_AGE_S: Final = 90 * 86_400.0
"""Seconds a call is kept."""

DirectOutcome: TypeAlias = Literal["ok", "error", "denied", "asked", "cancelled", "unknown"]
"""The result of a direct call. asked: it became a run that waits for approval. unknown: it may
have taken effect."""


class DirectCall(NamedTuple):
    """One direct call, without its arguments and result.

    Attributes:
        at: when it arrived, in seconds since 1970.
        caller: the caller.
        client: name and version of the client; "" if it sent none.
        session: hash of the session; "" if the transport has no sessions.
        name: the name under which this server exposes the tool.
        module: the module of the tool; None: a tool file.
        tool: the name of the tool in its module or file.
        parameters: the first 32 hex digits of the SHA-256 of its arguments as compact JSON,
            secrets replaced.
        seconds: its duration.
        outcome: see `DirectOutcome`.
        run: the run it became if it needed approval.
        bytes_in: the size of the arguments as JSON.
        bytes_out: the size of the content of the answer.
        number: its row, which only grows; 0: not stored yet.
    """

    at: float
    caller: str
    client: str
    session: str
    name: str
    module: str | None
    tool: str
    parameters: str
    seconds: float
    outcome: DirectOutcome
    run: str | None
    bytes_in: int
    bytes_out: int
    number: int = 0


_COLUMNS: Final = ", ".join(DirectCall._fields[:-1])
_PLACES: Final = ", ".join("?" * (len(DirectCall._fields) - 1))


class DirectCallTable:
    """The table `direct_calls`: the calls of exposed tools by hosts, without a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, calls: Sequence[DirectCall], now: float) -> None:
        """Store calls, and delete those beyond `MAX_ROWS` and `MAX_AGE_S`.

        Args:
            calls: the calls in the order in which they ended.
            now: the time in seconds since 1970.
        """
        with self._database.transaction(concurrent=True):
            self._database.many(
                f"INSERT INTO direct_calls({_COLUMNS}) VALUES ({_PLACES})",  # noqa: S608 - constants
                [call[:-1] for call in calls],
            )
            # The rows are ordered by time: the old ones are one range at the beginning.
            self._database.execute(
                "DELETE FROM direct_calls WHERE number <= (SELECT max(number) "
                "FROM direct_calls) - ?1 "
                "OR number < coalesce((SELECT number FROM direct_calls WHERE at >= ?2 "
                "ORDER BY number LIMIT 1), ?3)",
                (MAX_ROWS, now - MAX_AGE_S, 2**62),
            )

    def page(
        self, limit: int = 50, after: str | None = None, *, caller: Viewer
    ) -> Page[DirectCall]:
        """The direct calls of a caller, the latest first; `after` is the `next` of
        the previous page.

        Raises:
            CursorError: `after` is not a cursor of this list, or the limit is out of bounds.
        """
        check_limit(limit)
        if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 19):
            raise CursorError(
                f"not a cursor of this list: {after[:40]!r}; hand back the "
                "`next` of the page before"
            )

        with self._database.guard:
            rows = self._database.execute(
                f"SELECT {_COLUMNS}, number FROM direct_calls WHERE number < ?1 AND "  # noqa: S608
                "(?2 IS NULL OR caller = ?2) ORDER BY number DESC LIMIT ?3",
                (2**62 if after is None else int(after), only_of(caller), limit + 1),
            ).fetchall()

        found = [DirectCall(*row) for row in rows[:limit]]
        return Page(found, str(found[-1].number) if len(rows) > limit else None)


# -- sessions --------------------------------------------------------------------------------------


class SessionRow(NamedTuple):
    """A session in progress.

    Attributes:
        id: the id of the run that it becomes.
        caller: the caller.
        client: name and version of the client; "" if it sent none.
        session: hash of the connection; "" if the transport has none, so that several
            conversations may be in it.
        began: when its first call arrived, in seconds since 1970.
        last: when its last call ended, in seconds since 1970.
        calls: the number of its calls.
        tools: the names of its tools, each once.
    """

    id: str
    caller: str
    client: str
    session: str
    began: float
    last: float
    calls: int
    tools: tuple[str, ...]


_SESSION: Final = "SELECT id, caller, client, session, began, last, count, tools FROM sessions"


def _session(row: tuple[Any, ...]) -> SessionRow:
    *plain, tools = row
    return SessionRow(
        *cast("tuple[str, str, str, str, float, float, int]", tuple(plain)),
        tuple(cast("list[str]", decode_trusted(tools))),
    )


class SessionTable:
    """The tables `sessions` and `session_calls`: sessions in progress, with the results
    of their calls.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: SessionRow, bodies: Sequence[str]) -> bool:
        """Store a session and its latest calls, in the order in which they ended; return False if
        it has ended, or if calls before these are missing.

        Args:
            row: the session with these calls counted.
            bodies: one JSON text for each call.
        """
        first = row.calls - len(bodies)
        tools = encode_text([*row.tools])
        with self._database.transaction(concurrent=True):
            if first == 0:
                self._database.execute(
                    "INSERT INTO sessions(id, caller, client, session, began, last, count, tools) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*row[:-1], tools),
                )
            else:
                cursor = self._database.execute(
                    "UPDATE sessions SET last = ?2, count = ?3, tools = ?4 WHERE id = ?1 "
                    "AND count = ?5",
                    (row.id, row.last, row.calls, tools, first),
                )
                if cursor.rowcount != 1:
                    return False

            number = self._database.number("SELECT number FROM sessions WHERE id = ?", (row.id,))
            self._database.many(
                "INSERT INTO session_calls(id, body) VALUES (?, ?)",
                [((number << _BITS) + first + place, body) for place, body in enumerate(bodies)],
            )

        return True

    def get(self, session_id: str) -> SessionRow | None:
        """A session in progress by id, or None."""
        with self._database.guard:
            row = self._database.execute(f"{_SESSION} WHERE id = ?", (session_id,)).fetchone()
        return None if row is None else _session(row)

    def of(self, caller: str, limit: int) -> list[SessionRow]:
        """The sessions of a caller that are in progress, the latest first."""
        with self._database.guard:
            rows = self._database.execute(
                f"{_SESSION} WHERE caller = ? ORDER BY last DESC LIMIT ?", (caller, limit)
            ).fetchall()
        return [_session(row) for row in rows]

    def idle(self, since: float, limit: int = 100) -> list[SessionRow]:
        """The sessions without a call since this time, in seconds since 1970."""
        with self._database.guard:
            rows = self._database.execute(
                f"{_SESSION} WHERE last < ? LIMIT ?", (since, limit)
            ).fetchall()
        return [_session(row) for row in rows]

    def calls(self, session_id: str) -> list[JSONObject]:
        """The calls of a session in progress, in the order in which they ended."""
        with self._database.guard:
            number = self._database.number(
                "SELECT number FROM sessions WHERE id = ?", (session_id,)
            )
            rows = self._database.execute(
                "SELECT body FROM session_calls WHERE id BETWEEN ? AND ? ORDER BY id",
                (number << _BITS, ((number + 1) << _BITS) - 1),
            ).fetchall()
        if number:
            return [cast("JSONObject", decode_trusted(row[0])) for row in rows]
        return []

    def delete(self, session_id: str) -> None:
        """Delete a session with its calls, if it exists."""
        with self._database.transaction():
            number = self._database.number(
                "SELECT number FROM sessions WHERE id = ?", (session_id,)
            )
            self._database.execute(
                "DELETE FROM session_calls WHERE id BETWEEN ? AND ?",
                (number << _BITS, ((number + 1) << _BITS) - 1),
            )
            self._database.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


# -- settings --------------------------------------------------------------------------------------
#
# A setting is a key and bytes. Two kinds of keys are requests to the process that drives a run:
# `cancel RUN`, and `ask MARK.RUN` with an event to take. The driver polls them, and answers `ask`
# under the same key:
#
# | value of `ask MARK.RUN` | meaning |
# |---|---|
# | `{"event": ...}` | the request is open and can be withdrawn |
# | `{}` | the driver takes the event |
# | `{"error": ...}` | the answer: null, or why the driver did not take the event |


class StoredSettings:
    """Settings by key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> bytes | None:
        """The value of a setting; None if it is not set."""
        with self._database.guard:
            row = self._database.execute(
                "SELECT value FROM settings WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else cast("bytes", row[0])

    def under(self, prefix: str) -> dict[str, bytes]:
        """The settings whose keys begin with `prefix`, which is ASCII."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT key, value FROM settings WHERE key >= ? AND key < ?",
                (prefix, f"{prefix}\x7f"),
            ).fetchall()
        return {str(key): cast("bytes", value) for key, value in rows}

    def set(self, key: str, value: bytes, *, notice: str | None = None) -> None:
        """Store a setting, and notify other processes of it."""
        with self._database.transaction(concurrent=True):
            self._database.change(
                "INSERT INTO settings(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE "
                "SET value = ?2",
                (key, value),
            )
            if notice is not None:
                self._database.notify(notice)

    def replace(self, key: str, value: bytes, *, notice: str | None = None) -> bool:
        """Replace a setting, and notify other processes of it; return False if it is not set."""
        with self._database.transaction(concurrent=True):
            cursor = self._database.change(
                "UPDATE settings SET value = ? WHERE key = ?", (value, key)
            )
            if notice is not None:
                self._database.notify(notice)
            return cursor.rowcount == 1

    def change(self, key: str, change: Callable[[bytes], bytes]) -> None:
        """Replace a setting by `change(value)` atomically. The value is b"" if it is not set."""
        with self._database.transaction():
            self.set(key, change(self.get(key) or b""))

    def ensure(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The value of a setting, created if it is not set: two processes that start together get
        the same value.
        """
        found = self.get(key)
        if found is None:
            with self._database.transaction():
                found = self.get(key)
                if found is None:
                    found = make()
                    self.set(key, found)

        return found

    def sign_in_key(self, *, make: bool = False) -> str:
        """A key that distinguishes the users of this store from those of other stores, for their
        sign-ins to modules. Without `make`, it is "" until the store has a key.
        """
        if make:
            found = self.ensure(_SIGN_INS, lambda: secrets.token_bytes(16))
        else:
            found = self.get(_SIGN_INS)
        return (found or b"").hex()

    def delete(self, key: str) -> bool:
        """Delete a setting; return False if it was not set. Of two processes that delete
        it, one gets True.
        """
        return self._database.change("DELETE FROM settings WHERE key = ?", (key,)).rowcount == 1


_SIGN_INS: Final = "sign_in_key"
_ASK: Final = "ask "
_BEGUN: Final = b"{}"
_CANCEL: Final = "cancel "


class DriverRequests:
    """Requests of other processes to the process that drives a run: to cancel it, or
    to take an event.
    """

    def __init__(self, database: Database, settings: StoredSettings) -> None:
        self._database = database
        self._settings = settings

    def ask_cancel(self, run_id: str, reason: str) -> None:
        """Ask the driver of a run to cancel it."""
        self._settings.set(f"{_CANCEL}{run_id}", reason.encode(), notice="ask")

    def cancels(self) -> dict[str, str]:
        """Run -> reason, for the requests to cancel a run."""
        found = self._settings.under(_CANCEL)
        return {key.removeprefix(_CANCEL): value.decode() for key, value in found.items()}

    def forget_cancel(self, run_id: str) -> None:
        """Delete the request: the run is cancelled."""
        self._settings.delete(f"{_CANCEL}{run_id}")

    def ask(self, run_id: str, event: JSONObject) -> str:
        """Ask the driver of a run to take an event; returns the key of the request.

        Raises:
            InvalidJSONError: it is not JSON.
        """
        # Pruning deletes the keys KIND.RUN with the run.
        key = f"{_ASK}{secrets.token_hex(8)}.{run_id}"
        self._settings.set(key, encode({"event": event}), notice="ask")
        return key

    def open(self) -> list[tuple[str, str, JSONObject]]:
        """(key, run, event) of the requests that no driver has begun to take."""
        found: list[tuple[str, str, JSONObject]] = []
        for key, value in self._settings.under(_ASK).items():
            event = cast("JSONObject", decode_trusted(value)).get("event")
            if isinstance(event, dict):
                found.append((key, key.partition(".")[2], event))
        return found

    def begin(self, key: str) -> bool:
        """Begin to take an event; return False if the request was withdrawn."""
        return self._settings.replace(key, _BEGUN)

    def withdraw(self, key: str) -> bool:
        """Delete a request; return False if the driver has begun to take the event."""
        cursor = self._database.change(
            "DELETE FROM settings WHERE key = ? AND value <> ?", (key, _BEGUN)
        )
        return cursor.rowcount == 1

    def answer(self, key: str, error: str | None) -> None:
        """Answer a request: None if the event was taken, or the reason why not. No effect if
        it was deleted.
        """
        self._settings.replace(key, encode({"error": error}))

    def answer_to(self, key: str) -> JSONObject | None:
        """Return `{"error": why the event was not taken, or null}`; None if the driver
        has not answered.
        """
        value = self._settings.get(key)
        if value is None:
            answer: JSONObject = {"error": None}
        else:
            answer = cast("JSONObject", decode_trusted(value))
        return answer if "error" in answer else None

    def forget(self, key: str) -> None:
        """Delete a request: nobody waits for its answer."""
        self._settings.delete(key)


# -- links of the owner ----------------------------------------------------------------------------

LINK_SECONDS: Final = 600
"""Seconds for which a link of the owner can be used."""

_LINK: Final = "owner link "
"""The beginning of the key of a setting; its value is the time until which the link can be
used, since 1970."""


class OwnerLinks:
    """Links that sign the owner in to the page, each once. Whoever can write the store can make
    one, and every server on the store accepts it. The store has only their hashes.
    """

    def __init__(self, settings: StoredSettings) -> None:
        self._settings = settings

    def make(self) -> str:
        """Make the secret key of a link that can be used within `LINK_SECONDS`."""
        now = time.time()
        for name, until in self._settings.under(_LINK).items():
            if float(until) < now:
                self._settings.delete(name)

        key = secrets.token_urlsafe(32)
        self._settings.set(_link_name(key), str(now + LINK_SECONDS).encode())
        return key

    def use(self, key: str) -> bool:
        """Use a link up. Return whether a link with this key exists and is recent enough."""
        until = self._settings.get(_link_name(key))
        return (
            until is not None
            and self._settings.delete(_link_name(key))
            and time.time() < float(until)
        )


def _link_name(key: str) -> str:
    return _LINK + hashlib.sha256(key.encode()).hexdigest()
