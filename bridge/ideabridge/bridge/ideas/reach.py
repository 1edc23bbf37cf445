"""Reach: which rows of `contents` ideas reach, and a sweep of those that none does (`docs/store.md`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, cast

from ideabridge.bridge.ideas.contents import SWEPT, key_of
from ideabridge.bridge.ideas.database import Database
from ideabridge.tools.encoding import decode_trusted

_READ: Final = 1024
_DELETED: Final = 500
"""Rows deleted in one transaction: some 10 ms."""


class Reach:
    """The rows that ideas looked at so far reach: their schemas, messages, and lists of messages."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Of each row: not reached; reached; reached as a list. A message may read as a list does, and share its row.
        self._reached = bytearray()

    def __contains__(self, number: int) -> bool:
        return number < len(self._reached) and self._reached[number] > 0

    def add(self, schema: int, context: str) -> list[int]:
        """Look at an idea; returns the rows that none before it reached. Inside a guard or transaction."""
        new: list[int] = []
        entries = [schema, *cast("list[int]", decode_trusted(context))]
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
    """Deletes the contents that no idea reaches, while others save ideas.

    An idea saved meanwhile may reach what no other does. So each transaction that deletes first looks at the ideas
    saved since the last; and it makes void what other processes remember of rows (`Contents`).
    """

    def __init__(self, database: Database, breathe: Callable[[], None]) -> None:
        self._database = database
        self._breathe = breathe
        self._reach = Reach(database)
        self._seen = 0
        with database.guard:
            # The newest row stays, reached or not: its number must not be given again.
            self._top = database.number("SELECT max(number) FROM contents")

    def run(self) -> int:
        """Sweep; returns how many rows were deleted."""
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
                "SELECT number, schema, context FROM ideas WHERE number > ? ORDER BY number LIMIT ?",
                (self._seen, _READ),
            ).fetchall()
            for number, schema, context in rows:
                self._reach.add(schema, context)
                self._seen = number
        return bool(rows)

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
