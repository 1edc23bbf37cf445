"""Store the calls that clients make to exposed tools, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.errors import CursorError
from ideabridge.bridge.store.page import Page
from ideabridge.bridge.store.search import check_limit
from ideabridge.bridge.store.users import Viewer, only_of

MAX_ROWS: Final = 200_000
"""The maximum number of stored calls from all callers. The oldest entries are deleted first."""

MAX_AGE_S: Final = 90 * 86_400.0
"""How long, in seconds, a call is stored."""

DirectOutcome: TypeAlias = Literal["ok", "error", "denied", "asked", "cancelled", "unknown"]
"""How a direct call ended. `asked` means that it became a run that is waiting for approval,
`unknown` that it might have taken effect.
"""


class DirectCall(NamedTuple):
    """A direct call, without its arguments and result.

    Attributes:
        at: when the call arrived, in seconds since 1970.
        caller: the user who made the call.
        client: the name and version of the client, or "" if the client sent none.
        session: the hash of the MCP session's id, or "" if the transport has no sessions.
        name: the name under which this server exposes the tool.
        module: the server that the tool belongs to, or None if a tool file defines it.
        tool: the name of the tool in its server or file.
        parameters: the first 32 hex digits of the SHA-256 of the arguments as compact JSON, with
            secrets replaced.
        seconds: the duration of the call in seconds.
        outcome: how the call ended; see `DirectOutcome`.
        run: the run that the call became because it needed approval, or None.
        bytes_in: the size of the arguments, in bytes of JSON.
        bytes_out: the size of the answer's content, in bytes.
        number: the row number of the call. Later calls have larger numbers. 0 if the call is not
            stored yet.
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
    """The table `direct_calls`: the calls that clients make to exposed tools, without a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, calls: Sequence[DirectCall], now: float) -> None:
        """Store calls, and delete old calls beyond `MAX_ROWS` and `MAX_AGE_S`.

        Args:
            calls: the calls, in the order in which they ended.
            now: the current time, in seconds since 1970.
        """
        with self._database.transaction(concurrent=True):
            self._database.many(
                f"INSERT INTO direct_calls({_COLUMNS}) VALUES ({_PLACES})",  # noqa: S608 - constants
                [call[:-1] for call in calls],
            )
            # The rows are in order of time, so the old ones are at the start.
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
        """Return a caller's direct calls, latest first. `after` is the `next` of the previous page.

        Raises:
            CursorError: `after` is not a cursor for this list, or the limit is out of bounds.
        """
        check_limit(limit)
        if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 19):
            raise CursorError(
                f"{after[:40]!r} is not a cursor for this list; pass the `next` of the previous "
                "page"
            )

        with self._database.guard:
            rows = self._database.execute(
                f"SELECT {_COLUMNS}, number FROM direct_calls WHERE number < ?1 AND "  # noqa: S608
                "(?2 IS NULL OR caller = ?2) ORDER BY number DESC LIMIT ?3",
                (2**62 if after is None else int(after), only_of(caller), limit + 1),
            ).fetchall()

        calls = [DirectCall(*row) for row in rows[:limit]]
        return Page(calls, str(calls[-1].number) if len(rows) > limit else None)
