"""Decisions: the decisions that people, assistants and timeouts made in runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.search import check_limit
from ideabridge.bridge.store.users import Viewer, only_of
from ideabridge.tools.encoding import JSON, decode_trusted

_DECIDED_RUNS: Final = 1000
"""Number of the newest runs that `Decisions.latest` covers. It reads their whole journals."""

_BEGINNINGS: Final = (
    '{"event":"call_dec',
    '{"event":"outcome_',
    '{"event":"plan_dec',
    '{"event":"question',
)
"""The first characters of events that record decisions, and of some other events. Comparing them is
far faster than decoding the JSON of every event.
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision in a run.

    Attributes:
        at: the time when it was made, in seconds since 1970.
        call: the number of the call, or None if the decision is about the plan.
        decision: what was decided, as in its event.
        by: who decided, as in its event; see `read_decider`.
        reason: the reason.
    """

    run: str
    title: str
    caller: str
    at: float | None
    call: int | None
    decision: str
    by: JSON
    reason: str | None


class Decisions:
    """The decisions in the journals of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(self, caller: Viewer, limit: int = 50) -> list[Decided]:
        """Return the decisions of people, assistants and timeouts in the newest runs, latest run
        first.

        If `caller` is set, consider only the runs that this caller started.
        """
        check_limit(limit)
        with self._database.guard:
            rows = self._database.execute(
                # Do not read the whole event, because a call that was edited in it can be megabytes
                # long.
                "SELECT runs.id, runs.title, runs.caller, events.at, "
                "json_extract(events.body, '$.call'), "
                "coalesce(json_extract(events.body, '$.decision'), json_extract(events.body, "
                "'$.action')), "
                "json_extract(events.body, '$.by'), json_extract(events.body, '$.reason') "
                "FROM runs JOIN events "
                "ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295 "
                "WHERE runs.number > (SELECT coalesce(max(number), 0) FROM runs) - ?1 "
                "AND runs.caller = "
                "coalesce(?2, runs.caller) AND substr(events.body, 1, 18) IN (?4, ?5, ?6, ?7) "
                "AND json_extract(events.body, '$.event') IN "
                "('call_decided', 'outcome_decided', 'plan_decided', 'question_answered') "
                "AND json_extract(events.body, '$.granted') IS NULL "
                "AND json_extract(events.body, '$.rule') IS NULL "
                "ORDER BY events.id DESC LIMIT ?3",
                (_DECIDED_RUNS, only_of(caller), limit, *_BEGINNINGS),
            ).fetchall()
        return [_read_decided(row) for row in rows]


def _read_decided(row: tuple[Any, ...]) -> Decided:
    run, title, caller, at, call, decision, by, reason = row
    # SQL returns an object as JSON text.
    if by is not None and by.startswith("{"):
        by = decode_trusted(by.encode())

    number = None if call is None else int(call)
    return Decided(run, title, caller, at, number, decision or "", by, reason)
