"""Reach: which rows of `contents` ideas and journals reach, and a sweep of those that none does (`docs/store.md`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, cast

from ideabridge.bridge.ideas.contents import SWEPT, entries_of, key_of
from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.families import ENDED
from ideabridge.tools.encoding import decode_trusted

_READ: Final = 1024
_DELETED: Final = 500
"""Rows deleted in one transaction: some 10 ms."""


class Reach:
    """The rows reached so far by ideas and events: schemas, messages, Solutions, tools, and lists of them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Of each row: not reached; reached; reached as a list. A message may read as a list does, and share its row.
        self._reached = bytearray()

    def __contains__(self, number: int) -> bool:
        return number < len(self._reached) and self._reached[number] > 0

    def idea(self, schema: int, solved: int | None, context: str) -> list[int]:
        """Look at an idea; returns the rows that nothing before it reached. Inside a guard or transaction."""
        return self._add([schema, *(() if solved is None else (solved,)), *cast("list[int]", decode_trusted(context))])

    def event(self, parts: str) -> list[int]:
        """Look at the parts of an event; returns the same. Inside a guard or transaction."""
        return self._add(entries_of(parts))

    def _add(self, entries: list[int]) -> list[int]:
        new: list[int] = []
        while entries:
            entry = entries.pop()
            number, kind = abs(entry), 1 if entry > 0 else 2
            if number >= len(self._reached):
                self._reached.extend(bytes(number - len(self._reached) + 65_536))
            before = self._reached[number]
            if before >= kind:
                continue
            self._reached[number] = kind
            if not before:
                new.append(number)
            if entry < 0:
                row = self._database.execute("SELECT body FROM contents WHERE number = ?", (number,)).fetchone()
                # A list that is not there is damage, which whoever reads the idea is told of.
                entries += cast("list[int]", decode_trusted(row[0])) if row is not None else []
        return new


class Sweep:
    """Deletes the contents that no idea and no event reaches, while others save ideas and journal events.

    What is saved meanwhile may reach what nothing else does. So each transaction that deletes first looks at the ideas
    saved since the last, and at the events of every run that is new or had not ended when the sweep began; and it makes
    void what other processes remember of rows (`Contents`).
    """

    def __init__(self, database: Database, breathe: Callable[[], None]) -> None:
        self._database = database
        self._breathe = breathe
        self._reach = Reach(database)
        self._seen = 0
        with database.guard:
            # The newest row stays, reached or not: its number must not be given again.
            self._top = database.number("SELECT max(number) FROM contents")
            # Only these, and runs that are made from now on, journal anything more.
            self._last_run = database.number("SELECT max(number) FROM runs")
            ended = ", ".join(f"'{one}'" for one in ENDED)
            self._open = [
                row[0]
                for row in database.execute(f"SELECT number FROM runs WHERE status NOT IN ({ended})")  # noqa: S608
            ]

    def run(self) -> int:
        """Sweep; returns how many rows were deleted."""
        last = 0
        while events := self._events((last, (self._last_run + 1) << 32), _READ):
            last = events[-1]
        while self._look():
            pass
        deleted = 0
        garbage: list[int] = []
        for number in self._unreached():
            garbage.append(number)
            if len(garbage) == _DELETED:
                deleted += self._delete(garbage)
                garbage = []
        return deleted + (self._delete(garbage) if garbage else 0)

    def _look(self) -> bool:
        """Look at the next ideas; whether there were any."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT number, schema, solved, context FROM ideas WHERE number > ? ORDER BY number LIMIT ?",
                (self._seen, _READ),
            ).fetchall()
            for number, schema, solved, context in rows:
                self._reach.idea(schema, solved, context)
                self._seen = number
        return bool(rows)

    def _events(self, between: tuple[int, int], most: int = -1) -> list[int]:
        """Look at the events between two rows that have parts; returns their rows."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT id, parts FROM events WHERE parts IS NOT NULL AND id > ? AND id < ? ORDER BY id LIMIT ?",
                (*between, most),
            ).fetchall()
            for _, parts in rows:
                self._reach.event(parts)
        return [row[0] for row in rows]

    def _look_at_open_runs(self) -> None:
        for run in self._open:
            self._events((run << 32, (run + 1) << 32))
        self._events(((self._last_run + 1) << 32, 2**63 - 1))

    def _unreached(self) -> Iterator[int]:
        last = 0
        while True:
            with self._database.guard:
                rows = self._database.execute(
                    "SELECT number FROM contents WHERE number > ? AND number < ? ORDER BY number LIMIT ?",
                    (last, self._top, _READ),
                ).fetchall()
            yield from (row[0] for row in rows if row[0] not in self._reach)
            if not rows:
                return
            last = rows[-1][0]

    def _delete(self, numbers: list[int]) -> int:
        with self._database.unchecked():
            while self._look():
                pass
            self._look_at_open_runs()
            database = self._database
            found = [
                database.execute("SELECT hash, number FROM contents WHERE number = ?", (number,)).fetchone()
                for number in numbers
                if number not in self._reach
            ]
            # Another process that prunes may have been here first.
            rows = [row for row in found if row is not None]
            gone = [(number,) for _, number in rows]
            database.connection.executemany(
                "DELETE FROM content_keys WHERE key = ? AND number = ?",
                [(key_of(digest), number) for digest, number in rows],
            )
            database.connection.executemany("DELETE FROM contents WHERE number = ?", gone)
            database.count(SWEPT, 1)
            database.voids += 1
        self._breathe()
        return len(gone)
