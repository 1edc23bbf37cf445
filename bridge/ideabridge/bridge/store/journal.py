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
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode, encode_text

_BITS: Final = 32
"""An event's row number is the run's number shifted by so much, plus its sequence number: one tree, in order."""

_BATCH: Final = 256

_APPEND: Final = (
    "INSERT INTO events(id, body, at) "
    "SELECT coalesce((SELECT max(id) FROM events "
    "WHERE id BETWEEN runs.number << 32 AND ((runs.number + 1) << 32) - 1), "
    "runs.number << 32) + 1, ?2, ?4 FROM runs WHERE runs.id = ?1 AND epoch = ?3 AND driver IS NOT NULL"
)
_RECORD: Final = (
    "SELECT id, kind, caller, title, fingerprint, parent, status, summary, driver, epoch, lease_until, created, "
    "updated, forked_from, forked_at, (SELECT max(id) FROM events WHERE events.id BETWEEN runs.number << 32 "
    "AND ((runs.number + 1) << 32) - 1) FROM runs"
)


def _held_by(driver: str | None) -> tuple[str | None, float]:
    """(driver, how long its lease holds), from the column `driver`: `NAME:SECONDS`."""
    if driver is None:
        return None, LEASE_SECONDS
    name, _, seconds = driver.rpartition(":")
    return name, float(seconds)


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
    """Runs, the leases of their drivers, and their events: the tables `runs` and `events`."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents

    def _number(self, run_id: str) -> int:
        """The row of a run. Inside a guard or transaction."""
        number = self._database.number("SELECT number FROM runs WHERE id = ?", (run_id,))
        if number == 0:
            raise UnknownRunError(f"no run {run_id[:64]!r}")
        return number

    def create(
        self, run_id: str, *, kind: str, caller: str, title: str, fingerprint: str, parent: str | None = None
    ) -> None:
        """Create a run with the status `running` and no driver.

        Raises:
            RunExistsError: the id is taken.
        """
        now = now_text()
        cursor = self._database.change(
            "INSERT OR IGNORE INTO runs(id, kind, caller, title, fingerprint, parent, status, epoch, lease_until, "
            "created, updated) VALUES (?, ?, ?, ?, ?, ?, 'running', 0, 0, ?, ?)",
            (run_id, kind, caller, title, fingerprint, parent, now, now),
        )
        if cursor.rowcount != 1:
            raise RunExistsError(f"a run {run_id[:64]!r} exists already")

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
        with self._database.transaction():
            number = self._number(run_id)
            cursor = self._database.execute(
                "UPDATE runs SET driver = ?2, epoch = epoch + 1, lease_until = ?3 "
                "WHERE number = ?1 AND (driver IS NULL OR driver = ?2 OR (epoch = ?4 AND lease_until = ?5))",
                (number, f"{driver}:{ttl_s:g}", now + ttl_s, lapsed and lapsed.epoch, lapsed and lapsed.until),
            )
            if cursor.rowcount != 1:
                return None
            return self._database.number("SELECT epoch FROM runs WHERE number = ?", (number,))

    def renew(self, run_id: str, epoch: int, ttl_s: float, now: float) -> bool:
        """Extend the lease to `ttl_s` seconds from `now`; False: the epoch is not the run's current one.

        Raises:
            UnknownRunError: no such run.
        """
        # The value must change even if the driver's clock was set back: other processes compare it with the last one.
        return self._change_lease("lease_until = max(?, lease_until + 0.001)", now + ttl_s, run_id, epoch)

    def release(self, run_id: str, epoch: int) -> bool:
        """Give the lease up: the epoch can write nothing more. False: it was not the current one.

        Raises:
            UnknownRunError: no such run.
        """
        return self._change_lease("driver = NULL, lease_until = ?", 0.0, run_id, epoch)

    def _change_lease(self, change: str, until: float, run_id: str, epoch: int) -> bool:
        cursor = self._database.change(
            f"UPDATE runs SET {change} WHERE id = ? AND epoch = ? AND driver IS NOT NULL",  # noqa: S608 - constants
            (until, run_id, epoch),
        )
        if cursor.rowcount != 1:
            with self._database.guard:
                self._number(run_id)
        return cursor.rowcount == 1

    def append(self, run_id: str, epoch: int, events: Sequence[JSONObject]) -> int:
        """Append events to a run's journal, all or none; returns the sequence number of the last (from 1).

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released. Nothing is written.
            UnknownRunError: no such run.
            InvalidJSONError: an event is not JSON.
        """
        if len(events) == 1 and events[0].get("event") not in PARTS:
            # One statement is a transaction by itself: the epoch is checked in it.
            body = encode_text(events[0])
            cursor = self._database.change(_APPEND, (run_id, body, epoch, time.time()))
            if cursor.rowcount != 1:
                raise self._stale(run_id, epoch)
            return cast("int", cursor.lastrowid) & (2**_BITS - 1)
        with self._database.transaction():
            number = self._number(run_id)
            if not self._database.number(
                "SELECT 1 FROM runs WHERE number = ? AND epoch = ? AND driver IS NOT NULL", (number, epoch)
            ):
                raise self._stale(run_id, epoch)
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

    def _stale(self, run_id: str, epoch: int) -> StaleDriverError:
        with self._database.guard:
            self._number(run_id)
            current = self._database.number("SELECT epoch FROM runs WHERE id = ?", (run_id,))
        why = "was released, or never acquired" if current == epoch else f"is at epoch {current}"
        return StaleDriverError(f"run {run_id[:64]!r} {why}: nothing of epoch {epoch} is taken any more")

    def events(self, run_id: str, after: int = 0) -> Iterator[tuple[int, JSONObject]]:
        """(sequence number, event) of a run after a sequence number, in order.

        Raises:
            UnknownRunError: no such run (when the first is asked for).
        """
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

    def journal_bytes(self, run_id: str) -> int:
        """About how many bytes the events of a run have together.

        Raises:
            UnknownRunError: no such run.
        """
        with self._database.guard:
            base = self._number(run_id) << _BITS
            return self._database.number(
                "SELECT sum(length(body)) FROM events WHERE id > ? AND id < ?", (base, base + 2**_BITS)
            )

    def event_times(self, run_id: str) -> dict[int, float]:
        """Sequence number -> when the event was journaled, in seconds since 1970.

        Raises:
            UnknownRunError: no such run.
        """
        with self._database.guard:
            base = self._number(run_id) << _BITS
            rows = self._database.execute(
                "SELECT id, at FROM events WHERE id > ? AND id < ?", (base, base + 2**_BITS)
            ).fetchall()
        return {number - base: at for number, at in rows}

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
            self.create(run_id, kind=parent.kind, caller=parent.caller, title=parent.title, fingerprint=fingerprint)
            self._database.execute(
                "UPDATE runs SET forked_from = ?, forked_at = ? WHERE id = ?", (parent.id, at, run_id)
            )
            epoch = self.acquire(run_id, "fork", 1.0, 0.0)
            if epoch is not None:
                self.append(run_id, epoch, events)
                self.release(run_id, epoch)

    def forks(self, run_id: str) -> list[tuple[str, int]]:
        """(run, after which event) of every run forked from this one, oldest first."""
        with self._database.guard:
            return self._database.execute(
                "SELECT id, forked_at FROM runs WHERE forked_from = ? ORDER BY number", (run_id,)
            ).fetchall()

    def rooms(self, run_id: str) -> list[RunRecord]:
        """The runs that answered calls of this one, oldest first."""
        with self._database.guard:
            rows = self._database.execute(f"{_RECORD} WHERE parent = ? ORDER BY number", (run_id,)).fetchall()
        return [_read(row) for row in rows]

    def set_status(self, run_id: str, epoch: int, status: str, summary: JSONObject | None) -> None:
        """Set a run's status and summary.

        Raises:
            StaleDriverError: the epoch is not the run's current one, or it was released.
            UnknownRunError: no such run.
        """
        text = None if summary is None else encode_text(summary)
        cursor = self._database.change(
            "UPDATE runs SET status = ?, summary = ?, updated = ? WHERE id = ? AND epoch = ? AND driver IS NOT NULL",
            (status, text, now_text(), run_id, epoch),
        )
        if cursor.rowcount != 1:
            raise self._stale(run_id, epoch)

    def get(self, run_id: str) -> RunRecord | None:
        """One run; None where there is no such."""
        with self._database.guard:
            row = self._database.execute(f"{_RECORD} WHERE id = ?", (run_id,)).fetchone()
        return None if row is None else _read(row)

    def leases(self, status: str, fingerprint: str | None = None, limit: int = 1000) -> list[Lease]:
        """The leases of the runs that have a status, newest run first, without those that were set aside;
        `fingerprint`: only of runs made under this configuration.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id, driver, epoch, lease_until FROM runs WHERE status = ?1 AND fingerprint = "
                "coalesce(?2, fingerprint) AND json_extract(summary, '$.set_aside') IS NOT 1 "
                "ORDER BY number DESC LIMIT ?3",
                (status, fingerprint, limit),
            ).fetchall()
        held = ((run, *_held_by(driver), epoch, until) for run, driver, epoch, until in rows)
        return [Lease(run, driver, epoch, until, seconds) for run, driver, seconds, epoch, until in held]

    def ids(self, prefix: str, limit: int = 10) -> list[str]:
        """The ids of runs, rooms among them, that begin with `prefix`, the newest first."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 ORDER BY number DESC LIMIT ?2",
                (prefix, limit),
            ).fetchall()
        return [run_id for (run_id,) in rows]

    def newest(
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
        check_limit(limit)
        statuses = [] if status is None else [status] if isinstance(status, str) else list(status)
        with self._database.guard:
            before = read_cursor(None) if after is None else self._number(after)
            values = [*([] if caller is None else [caller]), *statuses]
            where = "" if caller is None else "caller = ? AND "
            where += f"status IN ({', '.join('?' * len(statuses))}) AND " if statuses else ""
            where += "" if rooms else "parent IS NULL AND "
            rows = self._database.execute(
                f"{_RECORD} WHERE {where}number < ? ORDER BY number DESC LIMIT ?", (*values, before, limit)
            ).fetchall()
        return [_read(row) for row in rows]


# -- direct calls ---------------------------------------------------------------------------------------------------

MAX_ROWS: Final = 200_000
"""Calls that are kept, of all callers; the oldest go first."""

MAX_AGE_S: Final = 90 * 86_400.0
"""Seconds a call is kept."""

DirectOutcome: TypeAlias = Literal["ok", "error", "denied", "asked", "cancelled", "unknown"]
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
        outcome: see `DirectOutcome`.
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
    outcome: DirectOutcome
    run: str | None
    bytes_in: int
    bytes_out: int
    number: int = 0


_COLUMNS: Final = ", ".join(DirectCall._fields[:-1])
_PLACES: Final = ", ".join("?" * (len(DirectCall._fields) - 1))


class DirectCallTable:
    """The record of every call that a host made of an exposed tool, without a run: the table `direct_calls`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, calls: Sequence[DirectCall], now: float) -> None:
        """Keep calls, and delete the oldest beyond `MAX_ROWS` and `MAX_AGE_S`.

        Args:
            calls: in the order in which they ended.
            now: in seconds since 1970.
        """
        with self._database.transaction():
            self._database.connection.executemany(
                f"INSERT INTO direct_calls({_COLUMNS}) VALUES ({_PLACES})",  # noqa: S608 - constants
                [call[:-1] for call in calls],
            )
            # The rows are ordered by time: the old ones are one range at the beginning.
            self._database.execute(
                "DELETE FROM direct_calls WHERE number <= (SELECT max(number) FROM direct_calls) - ?1 "
                "OR number < coalesce((SELECT number FROM direct_calls WHERE at >= ?2 ORDER BY number LIMIT 1), ?3)",
                (MAX_ROWS, now - MAX_AGE_S, 2**62),
            )

    def page(self, limit: int = 50, after: str | None = None, *, caller: str | None = None) -> Page[DirectCall]:
        """Direct calls, the latest first; `after` is the `next` of the page before; `caller`: only theirs.

        Raises:
            CursorError: not a cursor of this list, or a limit out of bounds.
        """
        check_limit(limit)
        if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 19):
            raise CursorError(f"not a cursor of this list: {after[:40]!r}; hand back the `next` of the page before")
        with self._database.guard:
            rows = self._database.execute(
                f"SELECT {_COLUMNS}, number FROM direct_calls WHERE number < ?1 AND "  # noqa: S608
                "(?2 IS NULL OR caller = ?2) ORDER BY number DESC LIMIT ?3",
                (2**62 if after is None else int(after), caller, limit + 1),
            ).fetchall()
        found = [DirectCall(*row) for row in rows[:limit]]
        return Page(found, str(found[-1].number) if len(rows) > limit else None)


# -- settings -------------------------------------------------------------------------------------------------------
#
# A setting is a key and bytes. Two kinds of keys are requests to the process that drives a run, which may be another
# process: `cancel RUN`, and `ask MARK.RUN` with an event to take. The driver looks for them, and answers `ask` under
# the same key:
#
# | value of `ask MARK.RUN` | meaning |
# |---|---|
# | `{"event": ...}` | nobody has begun to take the event: whoever asked may still withdraw it |
# | `{}` | the driver takes the event |
# | `{"error": ...}` | the answer: null, or why the driver did not take the event |


class StoredSettings:
    """Settings by key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> bytes | None:
        """A stored setting; None where it was never set."""
        with self._database.guard:
            row = self._database.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
        return None if row is None else cast("bytes", row[0])

    def under(self, prefix: str) -> dict[str, bytes]:
        """The settings whose keys begin with `prefix`, which is ASCII."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT key, value FROM settings WHERE key >= ? AND key < ?", (prefix, f"{prefix}\x7f")
            ).fetchall()
        return {str(key): cast("bytes", value) for key, value in rows}

    def set(self, key: str, value: bytes) -> None:
        """Store a setting."""
        self._database.change(
            "INSERT INTO settings(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE SET value = ?2",
            (key, value),
        )

    def change(self, key: str, change: Callable[[bytes], bytes]) -> None:
        """Store what `change` makes of a setting (b"" where it was never set), with no other process between."""
        with self._database.transaction():
            self.set(key, change(self.get(key) or b""))

    def ensure(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A setting, made once where there is none: two processes that start together get the same."""
        with self._database.transaction():
            found = self.get(key)
            if found is None:
                found = make()
                self.set(key, found)
            return found

    def delete(self, key: str) -> None:
        """Delete a setting, if it exists."""
        self._database.change("DELETE FROM settings WHERE key = ?", (key,))


_ASK: Final = "ask "
_BEGUN: Final = b"{}"
_CANCEL: Final = "cancel "


class DriverRequests:
    """What other processes ask of the process that drives a run: to cancel it, or to take an event."""

    def __init__(self, database: Database, settings: StoredSettings) -> None:
        self._database = database
        self._settings = settings

    def ask_cancel(self, run_id: str, reason: str) -> None:
        """Ask the driver of a run to cancel it."""
        self._settings.set(f"{_CANCEL}{run_id}", reason.encode())

    def cancels(self) -> dict[str, str]:
        """Run -> reason, of the runs that are to be cancelled."""
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
        self._settings.set(key, encode({"event": event}))
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
        """Begin to take an event; False: the request was withdrawn."""
        return self._database.change("UPDATE settings SET value = ? WHERE key = ?", (_BEGUN, key)).rowcount == 1

    def withdraw(self, key: str) -> bool:
        """Delete a request; False: the driver has begun to take the event."""
        cursor = self._database.change("DELETE FROM settings WHERE key = ? AND value <> ?", (key, _BEGUN))
        return cursor.rowcount == 1

    def answer(self, key: str, error: str | None) -> None:
        """Answer a request: None if the event was taken, or the reason why not. No effect if it was deleted."""
        self._database.change("UPDATE settings SET value = ? WHERE key = ?", (encode({"error": error}), key))

    def answer_to(self, key: str) -> JSONObject | None:
        """`{"error": why the event was not taken, or null}`; None: the driver has not answered."""
        value = self._settings.get(key)
        answer: JSONObject = {"error": None} if value is None else cast("JSONObject", decode_trusted(value))
        return answer if "error" in answer else None

    def forget(self, key: str) -> None:
        """Delete a request: nobody waits for its answer."""
        self._settings.delete(key)
