"""RunStore: the part of the store that holds runs and settings."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

from ideabridge.bridge.ideas.contents import Contents
from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.direct_calls import DirectCall, DirectCallTable
from ideabridge.bridge.ideas.journal import Journal
from ideabridge.bridge.ideas.records import Lease, Page, RunRecord
from ideabridge.bridge.ideas.tool_memory import ToolMemory
from ideabridge.bridge.ideas.users import Users
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode

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
