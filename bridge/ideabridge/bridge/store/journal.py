"""Journal: runs, their drivers' leases, and the append-only log of events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from ideabridge.bridge.store.contents import PARTS, Contents
from ideabridge.bridge.store.database import Database, now_text
from ideabridge.bridge.store.errors import CursorError, RunExistsError, StaleDriverError, UnknownRunError
from ideabridge.bridge.store.idea import LEASE_SECONDS, Lease, Page, RunRecord
from ideabridge.bridge.store.search import check_limit, read_cursor
from ideabridge.bridge.store.tool_memory import ToolMemory
from ideabridge.bridge.store.users import Users
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode, encode_text

# -- journal ---------------------------------------------------------------------------------------------------------

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


# -- direct calls ----------------------------------------------------------------------------------------------------
#
# Direct calls: the record of every call that a host made of an exposed tool, without a run.

MAX_ROWS: Final = 200_000
"""Calls that are kept, of all callers; the oldest go first."""

MAX_AGE_S: Final = 90 * 86_400.0
"""Seconds a call is kept."""

Outcome: TypeAlias = Literal["ok", "error", "denied", "asked", "cancelled", "unknown"]
"""How a direct call was answered. asked: it waits for approval, in its run. unknown: it may have taken effect."""


class DirectCall(NamedTuple):
    """One direct call. No parameter and no result is in it.

    Attributes:
        at: when it came, in seconds since 1970.
        caller: who made it.
        client: name and version that the client gave; "" where it gave none.
        session: hash of the session it came in; "" where the transport has none.
        name: the name of this server it was called by.
        module: the module of the tool; None: a tool file's.
        tool: the tool, as its module or its file names it.
        parameters: the first 32 hex digits of the SHA-256 of its arguments as compact JSON, secrets replaced.
        seconds: how long it took.
        outcome: see `Outcome`.
        run: the run it became, where a rule asked.
        bytes_in: of the arguments, as JSON.
        bytes_out: of the content of the answer.
        number: its place in the record, which only grows; 0: not kept yet.
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
    outcome: Outcome
    run: str | None
    bytes_in: int
    bytes_out: int
    number: int = 0


_COLUMNS: Final = ", ".join(DirectCall._fields[:-1])
_PLACES: Final = ", ".join("?" * (len(DirectCall._fields) - 1))


class DirectCallTable:
    """The table `direct_calls`: rows are added at its end, and taken away at its beginning."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, calls: Sequence[DirectCall], now: float) -> None:
        """Keep calls, and take away those that are too old or too many. Inside a transaction.

        Args:
            calls: in the order in which they ended.
            now: in seconds since 1970.
        """
        self._database.connection.executemany(
            f"INSERT INTO direct_calls({_COLUMNS}) VALUES ({_PLACES})",  # noqa: S608 - names of ours
            [call[:-1] for call in calls],
        )
        # The table is in the order of time: what goes is one range at its beginning.
        self._database.execute(
            "DELETE FROM direct_calls WHERE number <= (SELECT max(number) FROM direct_calls) - ?1 "
            "OR number < coalesce((SELECT number FROM direct_calls WHERE at >= ?2 ORDER BY number LIMIT 1), ?3)",
            (MAX_ROWS, now - MAX_AGE_S, 2**62),
        )

    def page(self, limit: int, after: str | None, caller: str | None) -> Page[DirectCall]:
        """Calls, the latest first; with `caller`, only theirs."""
        check_limit(limit)
        if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 19):
            raise CursorError(f"not a cursor of this list: {after[:40]!r}; hand back the `next` of the page before")
        rows = self._database.execute(
            f"SELECT {_COLUMNS}, number FROM direct_calls WHERE number < ?1 AND (?2 IS NULL OR caller = ?2) "  # noqa: S608
            "ORDER BY number DESC LIMIT ?3",
            (2**62 if after is None else int(after), caller, limit + 1),
        ).fetchall()
        found = [DirectCall(*row) for row in rows[:limit]]
        return Page(found, str(found[-1].number) if len(rows) > limit else None)


# -- run store -------------------------------------------------------------------------------------------------------
#
# RunStore: the part of the store that holds runs and settings.

_ASK: Final = "ask "
"""Settings that begin so ask whoever drives a run to take an event; a mark and the id of the run follow."""

_BEGUN: Final = b"{}"
"""The value of such a setting while the driver takes the event."""

_CANCEL: Final = "cancel "
"""Settings that begin so ask for a run to be cancelled; the rest is its id."""


class RunStore:
    """Runs with their leases and journals, and settings. `Store` is this and the ideas."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._contents = Contents(database)
        self._journal = Journal(database, self._contents)
        self._direct_calls = DirectCallTable(database)
        self.tool_memory = ToolMemory(database)
        self.users = Users(database)

    # Runs

    def create_run(
        self, run_id: str, *, kind: str, caller: str, title: str, fingerprint: str, parent: str | None = None
    ) -> None:
        """Create a run with the status `running` and no driver.

        Raises:
            RunExistsError: the id is taken.
        """
        self._journal.create(run_id, kind=kind, caller=caller, title=title, fingerprint=fingerprint, parent=parent)

    def acquire(self, run_id: str, driver: str, ttl_s: float, now: float, lapsed: Lease | None = None) -> int | None:
        """Take a run's lease for `ttl_s` seconds from `now` (seconds since 1970); returns the new epoch.

        None while another driver holds it. The store compares no times: clocks differ between machines. A lease that
        was not given back is taken by naming it as it was last seen. The same driver gets a new epoch, and its old one
        is void.

        Args:
            run_id: the run.
            driver: who takes it.
            ttl_s: how long it holds without a `renew`: others wait for so long.
            now: with `ttl_s`, written down for who lists runs.
            lapsed: a lease that has lapsed, as the caller has seen it. Where it has changed since, it is not taken.

        Raises:
            UnknownRunError: no such run.
        """
        return self._journal.acquire(run_id, driver, ttl_s, now, lapsed)

    def renew(self, run_id: str, epoch: int, ttl_s: float, now: float) -> bool:
        """Extend the lease to `ttl_s` seconds from `now`; False: the epoch is not the run's current one.

        Raises:
            UnknownRunError: no such run.
        """
        return self._journal.renew(run_id, epoch, ttl_s, now)

    def release(self, run_id: str, epoch: int) -> bool:
        """Give the lease up: the epoch can write nothing more. False: it was not the current one.

        Raises:
            UnknownRunError: no such run.
        """
        return self._journal.release(run_id, epoch)

    def append(self, run_id: str, epoch: int, events: Sequence[JSONObject]) -> int:
        """Append events to a run's journal, all or none; returns the sequence number of the last (from 1).

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released. Nothing is written.
            UnknownRunError: no such run.
            InvalidJSONError: an event is not JSON.
        """
        return self._journal.append(run_id, epoch, events)

    def journal_bytes(self, run_id: str) -> int:
        """About how many bytes the events of a run have together.

        Raises:
            UnknownRunError: no such run.
        """
        return self._journal.size(run_id)

    def events(self, run_id: str, after: int = 0) -> Iterator[tuple[int, JSONObject]]:
        """(sequence number, event) of a run after a sequence number, in order.

        Raises:
            UnknownRunError: no such run (when the first is asked for).
        """
        return self._journal.events(run_id, after)

    def event_times(self, run_id: str) -> dict[int, float]:
        """Sequence number -> when the event was journaled, in seconds since 1970.

        Raises:
            UnknownRunError: no such run.
        """
        return self._journal.times(run_id)

    def create_fork(
        self, run_id: str, events: Sequence[JSONObject], *, parent: RunRecord, at: int, fingerprint: str
    ) -> None:
        """Create a run that has the first events of another, changed or not; nobody drives it.

        Args:
            run_id: its id.
            events: its journal so far.
            parent: the run it is forked from; its kind, caller and title are the fork's.
            at: after which event of it.
            fingerprint: of the configuration it goes on under.

        Raises:
            RunExistsError: the id is taken.
        """
        with self._database.transaction():
            told = {"kind": parent.kind, "caller": parent.caller, "title": parent.title}
            self.create_run(run_id, fingerprint=fingerprint, **told)
            self._journal.note_fork(run_id, parent.id, at)
            epoch = self.acquire(run_id, "fork", 1.0, 0.0)
            if epoch is not None:
                self.append(run_id, epoch, events)
                self.release(run_id, epoch)

    def forks(self, run_id: str) -> list[tuple[str, int]]:
        """(run, after which event) of every run forked from this one, oldest first."""
        return self._journal.forks(run_id)

    def rooms_of(self, run_id: str) -> list[RunRecord]:
        """The runs that answered calls of this one, oldest first."""
        return self._journal.rooms(run_id)

    def set_status(self, run_id: str, epoch: int, status: str, summary: JSONObject | None) -> None:
        """Set a run's status and summary.

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released.
            UnknownRunError: no such run.
        """
        self._journal.set_status(run_id, epoch, status, summary)

    def run(self, run_id: str) -> RunRecord | None:
        """One run; None where there is no such."""
        return self._journal.run(run_id)

    def ask_cancel(self, run_id: str, reason: str) -> None:
        """Ask whoever drives a run to cancel it."""
        self.set_setting(f"{_CANCEL}{run_id}", reason.encode())

    def cancels_asked(self) -> dict[str, str]:
        """Run -> reason, of the runs whose drivers are asked to cancel them."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT key, value FROM settings WHERE key >= ? AND key < ?", (_CANCEL, _CANCEL[:-1] + "!")
            ).fetchall()
        return {key.removeprefix(_CANCEL): bytes(value).decode() for key, value in rows}

    def forget_cancel(self, run_id: str) -> None:
        """A run is cancelled: nobody is asked any more."""
        self._database.change("DELETE FROM settings WHERE key = ?", (f"{_CANCEL}{run_id}",))

    def ask_driver(self, run_id: str, event: JSONObject) -> str:
        """Ask whoever drives a run to take an event; returns the key of the question.

        Raises:
            InvalidJSONError: it is not JSON.
        """
        # It goes with the run when that is pruned: what is kept beside a run is named KIND.RUN.
        key = f"{_ASK}{secrets.token_hex(8)}.{run_id}"
        self.set_setting(key, encode({"event": event}))
        return key

    def asked_of_drivers(self) -> list[tuple[str, str, JSONObject]]:
        """(key, run, event) of what drivers are asked, and have not answered."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT key, value FROM settings WHERE key >= ? AND key < ?", (_ASK, _ASK[:-1] + "!")
            ).fetchall()
        found: list[tuple[str, str, JSONObject]] = []
        for key, value in rows:
            asked = cast("JSONObject", decode_trusted(value))
            event = asked.get("event")
            if isinstance(event, dict):
                found.append((key, key.partition(".")[2], event))
        return found

    def begin_asked(self, key: str) -> bool:
        """Begin to take what a driver was asked; False: nobody waits for it any more."""
        return self._database.change("UPDATE settings SET value = ? WHERE key = ?", (_BEGUN, key)).rowcount == 1

    def take_back_asked(self, key: str) -> bool:
        """Ask no more; False: the driver has begun to take it."""
        cursor = self._database.change("DELETE FROM settings WHERE key = ? AND value <> ?", (key, _BEGUN))
        return cursor.rowcount == 1

    def answer_asked(self, key: str, error: str | None) -> None:
        """Answer what a driver was asked: the event was taken, or why not. Nothing where nobody waits any more."""
        self._database.change("UPDATE settings SET value = ? WHERE key = ?", (encode({"error": error}), key))

    def answer_of_driver(self, key: str) -> JSONObject | None:
        """`{"error": why the event was not taken, or null}`; None: the driver has not answered."""
        value = self.settings(key)
        told: JSONObject = {"error": None} if value is None else cast("JSONObject", decode_trusted(value))
        return told if "error" in told else None

    def forget_asked(self, key: str) -> None:
        """Nobody waits for an answer any more."""
        self._database.change("DELETE FROM settings WHERE key = ?", (key,))

    def runs(
        self,
        caller: str | None = None,
        status: str | Sequence[str] | None = None,
        limit: int = 20,
        *,
        after: str | None = None,
        rooms: bool = True,
    ) -> list[RunRecord]:
        """Runs, newest first, of one caller, or in one of some statuses, where named; `after`: the last id of the page
        before. Without `rooms`, none that belongs to another.

        Raises:
            CursorError: a limit out of bounds.
            UnknownRunError: `after` is no run.
        """
        statuses = [] if status is None else [status] if isinstance(status, str) else list(status)
        return self._journal.runs(caller, statuses, limit, after, rooms=rooms)

    def leases(self, status: str, fingerprint: str | None = None, limit: int = 1000) -> list[Lease]:
        """The leases of the runs that have a status, newest run first, without those that were set aside;
        `fingerprint`: only of runs made under this configuration.
        """
        return self._journal.leases(status, fingerprint, limit)

    def run_ids(self, prefix: str, limit: int = 10) -> list[str]:
        """The ids of runs, rooms among them, that begin with `prefix`, the newest first."""
        return self._journal.run_ids(prefix, limit)

    # Settings

    def settings(self, key: str) -> bytes | None:
        """A stored setting; None where it was never set."""
        with self._database.guard:
            row = self._database.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
        return None if row is None else cast("bytes", row[0])

    def settings_under(self, prefix: str) -> dict[str, bytes]:
        """The settings whose keys begin with `prefix`, which is ASCII."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT key, value FROM settings WHERE key >= ? AND key < ?", (prefix, f"{prefix}\x7f")
            ).fetchall()
        return {str(key): cast("bytes", value) for key, value in rows}

    def set_setting(self, key: str, value: bytes) -> None:
        """Store a setting."""
        self._database.change(
            "INSERT INTO settings(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE SET value = ?2",
            (key, value),
        )

    def change_setting(self, key: str, change: Callable[[bytes], bytes]) -> None:
        """Store what `change` makes of a setting (b"" where it was never set), with no other process between."""
        with self._database.transaction():
            self.set_setting(key, change(self.settings(key) or b""))

    def ensure_setting(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A setting, made once where there is none: two processes that start together get the same."""
        with self._database.transaction():
            found = self.settings(key)
            if found is None:
                found = make()
                self.set_setting(key, found)
            return found

    # Direct calls

    def note_direct_calls(self, calls: Sequence[DirectCall], now: float) -> None:
        """Keep direct calls, in the order in which they ended; the oldest beyond `MAX_ROWS` and `MAX_AGE_S` go.

        Args:
            calls: the calls.
            now: in seconds since 1970.
        """
        with self._database.transaction():
            self._direct_calls.add(calls, now)

    def direct_calls(self, limit: int = 50, after: str | None = None, *, caller: str | None = None) -> Page[DirectCall]:
        """Direct calls, the latest first; `after` is the `next` of the page before; `caller`: only theirs.

        Raises:
            CursorError: not a cursor of this list, or a limit out of bounds.
        """
        with self._database.guard:
            return self._direct_calls.page(limit, after, caller)
