"""Store sessions of direct calls that are in progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.store.database import Database
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode_text

_BITS: Final = 32
"""The row number of a call is its session's number, shifted left by this many bits, plus the
position of the call in the session.
"""


class SessionRow(NamedTuple):
    """A session in progress.

    Attributes:
        id: the id of the run that the session will become.
        caller: the caller who makes the calls.
        client: the name and version of the client, or "" if the client sent none.
        session: the hash of the connection, or "" if the transport has no connections. In that
            case, the session might mix several conversations.
        began: when the first call arrived, in seconds since 1970.
        last: when the last call ended, in seconds since 1970.
        calls: the number of calls in the session.
        tools: the names of the tools that the session called, without duplicates.
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
    """The tables `sessions` and `session_calls`: sessions in progress, and the results of their
    calls.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: SessionRow, bodies: Sequence[str]) -> bool:
        """Store a session and its latest calls, in the order in which they ended. Return False if
        the session has ended, or if earlier calls are missing.

        Args:
            row: the session, whose `calls` already includes these calls.
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
        """Return the session in progress with the given id, or None if there is none."""
        with self._database.guard:
            row = self._database.execute(f"{_SESSION} WHERE id = ?", (session_id,)).fetchone()
        return None if row is None else _session(row)

    def of(self, caller: str, limit: int) -> list[SessionRow]:
        """Return a caller's sessions in progress, latest first."""
        with self._database.guard:
            rows = self._database.execute(
                f"{_SESSION} WHERE caller = ? ORDER BY last DESC LIMIT ?", (caller, limit)
            ).fetchall()
        return [_session(row) for row in rows]

    def idle(self, since: float, limit: int = 100) -> list[SessionRow]:
        """Return the sessions without a call since `since`, a time in seconds since 1970."""
        with self._database.guard:
            rows = self._database.execute(
                f"{_SESSION} WHERE last < ? LIMIT ?", (since, limit)
            ).fetchall()
        return [_session(row) for row in rows]

    def calls(self, session_id: str) -> list[JSONObject]:
        """Return the calls of a session in progress, in the order in which they ended."""
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
        """Delete a session and its calls, if the session exists."""
        with self._database.transaction():
            number = self._database.number(
                "SELECT number FROM sessions WHERE id = ?", (session_id,)
            )
            self._database.execute(
                "DELETE FROM session_calls WHERE id BETWEEN ? AND ?",
                (number << _BITS, ((number + 1) << _BITS) - 1),
            )
            self._database.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
