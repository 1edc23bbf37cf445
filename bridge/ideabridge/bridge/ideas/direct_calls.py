"""Direct calls: the record of every call that a host made of an exposed tool, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.errors import CursorError
from ideabridge.bridge.ideas.records import Page
from ideabridge.bridge.ideas.table import check_limit

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
