"""Answers: which runs answered a function for an input before, for `auto` to look up (DESIGN 4.11)."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.ideas.database import Database

EVERYONE: Final = ""
"""The caller of what was published to everyone it is published to."""

_LOOKED_AT: Final = 20
"""Of so many of the latest runs it is asked whether they are done."""


class Answers:
    """The table `answers`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, subject: bytes, caller: str, at: float, run: str) -> None:
        """Keep that a run answers a subject; it may not have ended.

        Args:
            subject: 32 bytes: the function and its input.
            caller: whose run it is, or `EVERYONE`.
            at: when it began, in seconds since 1970: nothing it read is older.
            run: the run.
        """
        self._database.execute(
            "INSERT OR IGNORE INTO answers(subject, caller, at, run) VALUES (?, ?, ?, ?)", (subject, caller, at, run)
        )

    def latest(self, subject: bytes, caller: str, since: float, limit: int) -> list[tuple[str, float]]:
        """(run, when it began) of runs that answer a subject and are done, the latest first.

        Args:
            subject: as `note` was told.
            caller: whose, besides those of `EVERYONE`.
            since: none that began before, in seconds since 1970.
            limit: how many at most.
        """
        # Two short walks over the primary key, each from its end; one over both callers would have to be sorted.
        # Each is cut before the runs are looked at: of very many that failed, only the latest are.
        one = (
            "SELECT * FROM (SELECT run, at FROM answers WHERE subject = ?1 AND caller = {} AND at >= ?3 "
            "ORDER BY at DESC LIMIT ?6)"
        )
        return self._database.execute(
            f"SELECT run, at FROM ({one.format('?2')} UNION {one.format('?5')}) "  # noqa: S608 - only places of values
            "JOIN runs ON runs.id = run WHERE runs.status = 'done' ORDER BY at DESC LIMIT ?4",
            (subject, caller, since, limit, EVERYONE, _LOOKED_AT),
        ).fetchall()
