"""Store runs, and the append-only log of their events."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.context.failure import CallFailure, failure_of
from ideabridge.bridge.store.contents import PARTS, Contents, EventParts
from ideabridge.bridge.store.database import Database, now_text, time_text
from ideabridge.bridge.store.errors import (
    RunExistsError,
    StaleDriverError,
    UnknownRunError,
)
from ideabridge.bridge.store.leases import Leases, number_of, read_holder
from ideabridge.bridge.store.run_filter import RunFilter
from ideabridge.bridge.store.run_record import CLIENT, RunOrigin, RunRecord, StoredSummary
from ideabridge.bridge.store.search import check_limit, read_cursor
from ideabridge.bridge.store.users import SEES_ALL, Viewer, only_of, sees_run_of
from ideabridge.tools.encoding import (
    JSONObject,
    decode_trusted,
    encode,
    encode_text,
    memory_of,
)
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.typed import read_as

_BITS: Final = 32
"""The row number of an event is its run's number, shifted left by this many bits, plus its sequence
number. This way, one tree holds all events in order.
"""

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
    "updated, forked_from, forked_at, client, (SELECT max(id) FROM events "
    "WHERE events.id BETWEEN runs.number << 32 "
    "AND ((runs.number + 1) << 32) - 1) FROM runs"
)


def _read_summary(text: str | None) -> StoredSummary:
    if text is None:
        return StoredSummary()
    return StoredSummary.from_json(cast("JSONObject", decode_trusted(text)))


def _read(row: tuple[Any, ...]) -> RunRecord:
    *plain, summary, driver, epoch, lease_until, created, updated = row[:-4]
    forked_from, forked_at, client, last = row[-4:]
    driver, lease_s = read_holder(driver)
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
        client=client or "",
        last_event=0 if last is None else last & (2**_BITS - 1),
    )


@dataclass(frozen=True, slots=True)
class PastEvents:
    """The events of a run that took place elsewhere.

    Attributes:
        events: the events.
        times: when the events happened, in seconds since 1970, or None if this is unknown.
    """

    events: Sequence[JSONObject]
    times: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class RunSource:
    """When a run began, in seconds since 1970 (None means now), and the program that asked for it
    (see `RunRecord.client`).
    """

    began: float | None = None
    client: str = ""


_ASKED_NOW: Final = RunSource()


class Journal:
    """Runs and their events: the tables `runs` and `events`."""

    def __init__(self, database: Database, contents: Contents, leases: Leases) -> None:
        self._database = database
        self._leases = leases
        self._contents = contents

    def create(
        self,
        run_id: str,
        *,
        kind: str,
        caller: str,
        title: str,
        fingerprint: str,
        parent: str | None = None,
        source: RunSource = _ASKED_NOW,
    ) -> None:
        """Create a run with the status `running` and no driver.

        Raises:
            RunExistsError: the id is already taken.
        """
        now = now_text() if source.began is None else time_text(source.began)
        cursor = self._database.change(
            "INSERT INTO runs(id, kind, caller, title, fingerprint, parent, status, epoch, "
            "lease_until, "
            "created, updated, client) VALUES (?, ?, ?, ?, ?, ?, 'running', 0, 0, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            (run_id, kind, caller, title, fingerprint, parent, now, now, source.client or None),
        )
        if cursor.rowcount != 1:
            raise RunExistsError(f"run {run_id[:64]!r} already exists")

    def append(
        self,
        run_id: str,
        epoch: int,
        events: Sequence[JSONObject],
        times: Sequence[float] | None = None,
    ) -> int:
        """Append all of the events to a run's journal, or none of them. Return the sequence number
        of the last event.

        Sequence numbers start at 1. `times` says when the events happened, in seconds since 1970.
        None means now.

        Raises:
            StaleDriverError: the epoch is not the run's current epoch, or it was released. Nothing
                is written.
            UnknownRunError: the run does not exist.
            InvalidJSONError: an event is not JSON.
        """
        if times is None and len(events) == 1 and events[0].get("event") not in PARTS:
            # A single statement is its own transaction, so let it check the epoch as well.
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
            happened = repeat(time.time()) if times is None else times
            self._database.many(
                "INSERT INTO events(id, body, at, parts) VALUES (?, ?, ?, ?)",
                [
                    (number, body, at, parts)
                    for number, ((body, parts), at) in enumerate(
                        zip(packed, happened, strict=False), start
                    )
                ],
            )
            return start - base + len(packed) - 1

    def _stale(self, run_id: str, epoch: int) -> StaleDriverError:
        with self._database.guard:
            number_of(self._database, run_id)
            current = self._database.number("SELECT epoch FROM runs WHERE id = ?", (run_id,))

        reason = f"is at epoch {current}"
        if current == epoch:
            reason = "was released, or never acquired"

        return StaleDriverError(
            f"run {run_id[:64]!r} {reason}: events of epoch {epoch} are not accepted"
        )

    def events(self, run_id: str, after: int = 0) -> Iterator[tuple[int, JSONObject]]:
        """Yield `(sequence number, event)` for each event of a run after the sequence number
        `after`, in order.

        Raises:
            UnknownRunError: the run does not exist. Raised by the first call to `next`.
        """
        for number, body, _, parts in self._stored_events(run_id, after):
            yield number, self._contents.unpack(body, parts)

    def timed_events(self, run_id: str, after: int = 0) -> Iterator[TimedEvent]:
        """Yield each event of a run after the sequence number `after`, in order, with its time.

        An event that starts a call or successfully ends one contains only the call and the item,
        because the values that calls returned are not decoded.

        Raises:
            UnknownRunError: the run does not exist. Raised by the first call to `next`.
        """
        for number, body, at, parts in self._stored_events(run_id, after):
            event = _call_event(body)
            if event is not None:
                yield TimedEvent(number, at, event, memory_of(body.encode()))
                continue

            event = self._contents.unpack(body, parts)
            yield TimedEvent(number, at, event, memory_of(encode(event)))

    def _stored_events(
        self, run_id: str, after: int
    ) -> Iterator[tuple[int, str, float | None, EventParts]]:
        """Yield the sequence number, body, time and parts of each event of a run after the sequence
        number `after`.
        """
        with self._database.guard:
            base = number_of(self._database, run_id) << _BITS

        last = base + after
        while True:
            # Read an event and its parts in one snapshot, because pruning could otherwise delete
            # them in between.
            with self._database.snapshot():
                rows = self._database.execute(
                    "SELECT id, body, at, parts FROM events WHERE id > ? AND id < ? "
                    "ORDER BY id LIMIT ?",
                    (last, base + 2**_BITS, _BATCH),
                ).fetchall()
                packed = [
                    (number - base, body, at, self._contents.parts_of(parts))
                    for number, body, at, parts in rows
                ]

            # Let readers decode events one by one and without the store's lock, because decoding
            # large results takes a lot of time and memory.
            yield from packed
            if len(rows) < _BATCH:
                return
            last = rows[-1][0]

    def beginning(self, run_id: str, most: int, most_bytes: int) -> list[JSONObject]:
        """Return the first `most` events of a run, or none if they are larger than `most_bytes`, as
        counted by `is_small`.

        Raises:
            UnknownRunError: the run does not exist.
        """
        with self._database.snapshot():
            base = number_of(self._database, run_id) << _BITS
            rows = self._database.execute(
                "SELECT body, parts FROM events WHERE id > ? AND id <= ? ORDER BY id",
                (base, base + most),
            ).fetchall()
            size = sum(len(body) for body, _ in rows)
            size += sum(self._contents.length_of(parts) for _, parts in rows if parts is not None)
            if size > most_bytes:
                return []
            packed = [(body, self._contents.parts_of(parts)) for body, parts in rows]

        return [self._contents.unpack(body, parts) for body, parts in packed]

    def journal_bytes(self, run_id: str) -> int:
        """Return the approximate total size of a run's events in bytes.

        Raises:
            UnknownRunError: the run does not exist.
        """
        with self._database.guard:
            base = number_of(self._database, run_id) << _BITS
            return self._database.number(
                "SELECT sum(length(body)) FROM events WHERE id > ? AND id < ?",
                (base, base + 2**_BITS),
            )

    def is_small(self, run_id: str, most_events: int, most_bytes: int) -> bool:
        """Return whether a run's journal is within the given numbers of events and (approximate)
        bytes.

        The bytes include the contents that events refer to (the context and Solutions). Nothing is
        decoded.

        Raises:
            UnknownRunError: the run does not exist.
        """
        if self.find(run_id, caller=SEES_ALL).last_event > most_events:
            return False

        size = self.journal_bytes(run_id)
        if size > most_bytes:
            return False

        with self._database.snapshot():
            base = number_of(self._database, run_id) << _BITS
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
        """Return when each event after the sequence number `after` was journaled, in seconds since
        1970, keyed by sequence number.

        Raises:
            UnknownRunError: the run does not exist.
        """
        with self._database.guard:
            base = number_of(self._database, run_id) << _BITS
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
        """Create a run without a driver that begins with the first events of another run, some of
        which may have been changed.

        Args:
            run_id: the id of the fork.
            events: the journal of the fork.
            parent: the run to fork. The fork has the same kind, caller and title.
            at: the last event of the parent that the fork begins with.
            fingerprint: the fingerprint of the configuration that the fork continues with.

        Raises:
            RunExistsError: the id is already taken.
        """
        with self._database.transaction(concurrent=True):
            self.create(
                run_id,
                kind=parent.kind,
                caller=parent.caller,
                title=parent.title,
                fingerprint=fingerprint,
                source=RunSource(client=CLIENT.get()),
            )
            self._database.execute(
                "UPDATE runs SET forked_from = ?, forked_at = ? WHERE id = ?",
                (parent.id, at, run_id),
            )
            epoch = self._leases.acquire(run_id, "fork", 1.0, 0.0)
            if epoch is not None:
                self.append(run_id, epoch, events)
                self._leases.release(run_id, epoch)

    def create_ended(
        self,
        run_id: str,
        past: PastEvents,
        *,
        kind: str,
        caller: str,
        title: str,
        fingerprint: str,
        summary: StoredSummary,
    ) -> None:
        """Create a run that took place elsewhere: it is already `done`, and its journal is
        complete. Call this inside a transaction.

        Raises:
            RunExistsError: the id is already taken.
        """
        began = past.times[0] if past.times else None
        self.create(
            run_id,
            kind=kind,
            caller=caller,
            title=title,
            fingerprint=fingerprint,
            source=RunSource(began),
        )
        epoch = self._leases.acquire(run_id, "import", 1.0, 0.0)
        if epoch is not None:
            self.append(run_id, epoch, past.events, past.times)
            self.set_status(run_id, epoch, "done", summary)
            self._leases.release(run_id, epoch)

    def origins(self, caller: str, host: str) -> list[RunOrigin]:
        """Return the origins of the caller's runs that were imported from the logs of a host."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT json_extract(summary, '$.origin') FROM runs WHERE caller = ? "
                "AND kind = 'session' "
                "AND json_extract(summary, '$.origin.host') = ?",
                (caller, host),
            ).fetchall()
        return [read_as(RunOrigin, decode_trusted(row[0])) for row in rows]

    def imported_count(self, caller: str, host: str) -> int:
        """Return how many of a caller's runs were imported from the logs of a host."""
        with self._database.guard:
            return self._database.number(
                "SELECT count(*) FROM runs WHERE caller = ? AND kind = 'session' "
                "AND json_extract(summary, '$.origin.host') = ?",
                (caller, host),
            )

    def calls_with_an_error(self, run_id: str) -> set[int]:
        """Return the numbers of a run's calls that ran and returned an error: failed calls that
        were started, and caught calls.

        A call with an unknown outcome that a person skipped counts as failed.

        Raises:
            UnknownRunError: the run does not exist.
        """
        with self._database.guard:
            base = number_of(self._database, run_id) << _BITS
            rows = self._database.execute(
                "SELECT json_extract(body, '$.call') FROM events WHERE id > ? AND id < ? "
                "AND json_extract(body, '$.event') IN ('call_finished', 'outcome_decided') "
                "AND json_type(body, '$.error') = 'object'",
                (base, base + 2**_BITS),
            ).fetchall()
        return {int(row[0]) for row in rows}

    def sessions(self, caller: str, limit: int) -> list[tuple[str, RunOrigin]]:
        """Return `(run, origin)` for a caller's latest ended sessions, latest first. Parts of
        sessions and imported runs are left out.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id, json_extract(summary, '$.origin') FROM runs WHERE caller = ? "
                "AND kind = 'session' "
                "AND json_extract(summary, '$.origin.last') IS NOT NULL "
                "ORDER BY number DESC LIMIT ?",
                (caller, limit),
            ).fetchall()
        return [(run, read_as(RunOrigin, decode_trusted(origin))) for run, origin in rows]

    def forks(self, run_id: str) -> list[tuple[str, int]]:
        """Return `(run, event)` for every fork of this run, oldest first. `event` is the number of
        the last event before the fork.
        """
        with self._database.guard:
            return self._database.execute(
                "SELECT id, forked_at FROM runs WHERE forked_from = ? ORDER BY number", (run_id,)
            ).fetchall()

    def rooms(self, run_id: str) -> list[RunRecord]:
        """Return the runs that answered calls of this run, oldest first."""
        with self._database.guard:
            rows = self._database.execute(
                f"{_RECORD} WHERE parent = ? ORDER BY number", (run_id,)
            ).fetchall()
        return [_read(row) for row in rows]

    def set_status(
        self, run_id: str, epoch: int, status: str, summary: StoredSummary | None
    ) -> None:
        """Set a run's status and summary. If `summary` is None, the stored summary is removed.

        Raises:
            StaleDriverError: the epoch is not the run's current epoch, or it was released.
            UnknownRunError: the run does not exist.
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
        """Store the fingerprint of the configuration that the run continues with.

        Raises:
            StaleDriverError: the epoch is not the run's current epoch, or it was released.
            UnknownRunError: the run does not exist.
        """
        cursor = self._database.change(
            "UPDATE runs SET fingerprint = ? WHERE id = ? AND epoch = ? AND driver IS NOT NULL",
            (fingerprint, run_id, epoch),
        )
        if cursor.rowcount != 1:
            raise self._stale(run_id, epoch)

    def notify(self, run_id: str) -> None:
        """Notify the processes that follow a run or, if the run is a room, those that follow the
        outermost run.

        Call this inside a transaction. It has no effect if `Notifier.can_notify` is false.
        """
        self._database.notifier.notify(f"run {run_id.partition('.')[0]}")

    def get(self, run_id: str) -> RunRecord | None:
        """Return the run with the given id, or None if there is none. This method is for code that
        drives runs; use `find` for runs that a caller asks for.
        """
        with self._database.guard:
            row = self._database.execute(f"{_RECORD} WHERE id = ?", (run_id,)).fetchone()
        return None if row is None else _read(row)

    def find(self, run_id: str, *, caller: Viewer) -> RunRecord:
        """Return a run that the caller started.

        Raises:
            UnknownRunError: no run has this id, or the run belongs to someone else. The message is
                the same in both cases.
        """
        record = self.get(run_id)
        if record is None or not sees_run_of(caller, record.caller):
            latest = [run.id for run in self.newest(caller, limit=50)]
            raise UnknownRunError(f"unknown run {run_id[:80]!r}.{did_you_mean(run_id, latest)}")
        return record

    def ids(self, prefix: str, limit: int = 10) -> list[str]:
        """Return the ids of runs, including rooms, that begin with `prefix`, newest first."""
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
        """Return a caller's runs, newest first, filtered by `status` and `chosen`.

        `after` is the last id of the previous page. Runs that answer calls from other runs are
        included only if `rooms` is true, recorded and imported calls only if `sessions` is true.

        Raises:
            CursorError: the limit is out of bounds.
            FilterError: a time in the filter cannot be read.
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
            where = ""
            values: list[Any] = []
            if caller is not SEES_ALL:
                where += "caller = ? AND "
                values.append(caller)

            if statuses:
                where += f"status IN ({', '.join('?' * len(statuses))}) AND "
                values += statuses

            if not rooms:
                where += "parent IS NULL AND "

            if not sessions:
                where += "kind <> 'session' AND "

            if chosen is not None:
                for condition, bound in chosen.clauses():
                    where += f"{condition} AND "
                    values += bound

            rows = self._database.execute(
                f"{_RECORD} WHERE {where}number < ? ORDER BY number DESC LIMIT ?",
                (*values, before, limit),
            ).fetchall()

        return [_read(row) for row in rows]

    def _place(self, run_id: str, caller: Viewer) -> int:
        """Return the row of a caller's run. Call this inside a guard or transaction."""
        number = self._database.number(
            "SELECT number FROM runs WHERE id = ?1 AND caller = coalesce(?2, caller)",
            (run_id, only_of(caller)),
        )
        if number == 0:
            raise UnknownRunError(f"no run {run_id[:64]!r}")
        return number

    def outlines(self, run_ids: Sequence[str]) -> dict[str, list[CallMark]]:
        """Return the `CallMark`s among the first events of each run, keyed by run, without reading
        any values.
        """
        outlines: dict[str, list[CallMark]] = {}
        for run_id in run_ids:
            with self._database.guard:
                rows = self._database.execute(
                    # The number is in the text, because PostgreSQL does not accept a bigint here.
                    f"SELECT substr(events.body, 1, {_MARK_CHARACTERS}), events.at "  # noqa: S608
                    "FROM runs JOIN events ON events.id BETWEEN (runs.number << 32) + 1 "
                    "AND (runs.number << 32) + ?1 WHERE runs.id = ?2 ORDER BY events.id",
                    (OUTLINED, run_id),
                ).fetchall()

            marks: list[CallMark] = []
            for beginning, at in rows:
                mark = _MARK.match(beginning)
                if mark is not None and at is not None:
                    marks.append(CallMark(mark[1], int(mark[2]), at, _failure(mark)))
            outlines[run_id] = marks

        return outlines


OUTLINED: Final = 120
"""The number of events of a run that `Journal.outlines` reads."""

_MARK_CHARACTERS: Final = 160
_MARK: Final = re.compile(
    r'\{"event":"(call_started|call_finished|approval_asked|call_decided)","call":(\d{1,9})\b'
    r'(?:,"item":\d{1,9})?'
    r'(?:(?P<error>,"error":)(?:\{"kind":"(?P<kind>\w{1,20})")?'
    r'|,"digest":"[0-9a-f]{1,64}","decision":"(?P<denial>deny)")?'
)
"""Matches the beginning of an event about a call, as `append` writes it, up to the kind of error or
the decision that denies the call.
"""


@dataclass(frozen=True, slots=True)
class CallMark:
    """An event about a call.

    Attributes:
        event: `call_started`, `call_finished`, `approval_asked` or `call_decided`.
        call: the number of the call.
        at: the time of the event, in seconds since 1970.
        failure: why the call has no result, or None if the event does not say.
    """

    event: str
    call: int
    at: float
    failure: CallFailure | None = None


def _failure(mark: re.Match[str]) -> CallFailure | None:
    """Return why a call has no result, from a match of `_MARK`."""
    if mark["denial"] is not None:
        return "denied"
    if mark["error"] is None:
        return None
    return failure_of(mark["kind"] or "")


_CALL_EVENT: Final = re.compile(
    r'\{"event":"(call_started|call_finished)","call":(\d{1,9})(?:,"item":(\d{1,9}))?'
    r'(?:\}\Z|,"value":)'
)
"""The beginning of the event that starts a call, or of the event that ends a successful call."""


class TimedEvent(NamedTuple):
    """An event in a journal.

    Attributes:
        number: the sequence number of the event, from 1.
        at: when the event was journaled, in seconds since 1970, or None if the store does not
            contain the time.
        event: the event; see `Journal.timed_events`.
        size: the approximate number of bytes of memory that the whole event takes once decoded.
    """

    number: int
    at: float | None
    event: JSONObject
    size: int


def _call_event(body: str) -> JSONObject | None:
    """Return the event in this text without the value that the call returned, or None unless the
    event starts a call or successfully ends one.
    """
    beginning = _CALL_EVENT.match(body)
    if beginning is None:
        return None

    name, call, item = beginning.groups()
    event: JSONObject = {"event": name, "call": int(call)}
    if item is not None:
        event["item"] = int(item)
    return event
