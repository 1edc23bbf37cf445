"""The decisions that people, assistants and timeouts made in runs, and those that followed from
standing rules and grants.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.search import check_limit
from ideabridge.bridge.store.users import Viewer, only_of
from ideabridge.tools.encoding import JSON, decode_trusted
from ideabridge.tools.typed import read_as

_DECIDED_RUNS: Final = 1000
"""The number of the newest runs that `Decisions.latest` covers. It reads their whole journals."""

_MOST_READ: Final = 1000
"""The maximum number of decisions that `Decisions.latest` reads, so that a rule that decided about
very many calls does not delay it.
"""

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
class CitedRule:
    """A standing rule, as cited by the decision that followed from it.

    Attributes:
        id: the id of the rule.
        at: when the rule was given, as ISO 8601.
    """

    id: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision in a run, or the group of decisions that followed from one rule or grant.

    Attributes:
        run, title, caller: the run.
        at: when the decision was made, in seconds since 1970.
        call: the number of the call, or None if the decision is about the plan.
        decision: what was decided, as in its event.
        by: who decided, as in its event; see `read_decider`.
        reason: the reason.
        rule: the standing rule that approved the call without a question, or None.
        granted: the number of the call whose grant approved the call without a question, or None.
        calls: the number of calls that the rule or the grant approved, or 1 for any other decision.
            The other attributes are those of the latest call.
        has_more: whether the rule or the grant may have approved earlier calls that were not
            counted.
    """

    run: str
    title: str
    caller: str
    at: float | None
    call: int | None
    decision: str
    by: JSON
    reason: str | None
    rule: CitedRule | None = None
    granted: int | None = None
    calls: int = 1
    has_more: bool = False

    @property
    def cause(self) -> tuple[str, ...] | None:
        """The values that identify the rule or grant behind the decision, or None if a person,
        assistant or timeout decided.
        """
        if self.rule is not None:
            return (self.caller, self.rule.id, self.rule.at)
        if self.granted is not None:
            return (self.run, str(self.granted))
        return None


class Decisions:
    """The decisions in the journals of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(
        self, caller: Viewer, limit: int = 50, kinds: Collection[str] | None = None
    ) -> list[Decided]:
        """Return the decisions in the newest runs, latest first.

        All calls that the same rule or grant approved count as one decision, listed where the
        latest of them would be. If `caller` is set, only the runs that this caller started are
        considered. If `kinds` is set, only these decisions are returned; see `Decided.decision`.
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
                "json_extract(events.body, '$.by'), json_extract(events.body, '$.reason'), "
                "json_extract(events.body, '$.rule'), json_extract(events.body, '$.granted') "
                "FROM runs JOIN events "
                "ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295 "
                "WHERE runs.number > (SELECT coalesce(max(number), 0) FROM runs) - ?1 "
                "AND runs.caller = "
                "coalesce(?2, runs.caller) AND substr(events.body, 1, 18) IN (?4, ?5, ?6, ?7) "
                "AND json_extract(events.body, '$.event') IN "
                "('call_decided', 'outcome_decided', 'plan_decided', 'question_answered') "
                "ORDER BY events.id DESC LIMIT ?3",
                (_DECIDED_RUNS, only_of(caller), _MOST_READ, *_BEGINNINGS),
            ).fetchall()

        read = [_read_decided(row) for row in rows]
        # A decision in an older run can be the latest. Those without a time keep their order.
        read.sort(key=lambda one: one.at or 0, reverse=True)
        decided = _counted(read)
        if len(rows) == _MOST_READ:
            decided = [replace(one, has_more=one.cause is not None) for one in decided]
        if kinds is not None:
            decided = [one for one in decided if one.decision in kinds]
        return decided[:limit]


def _counted(decisions: list[Decided]) -> list[Decided]:
    """Merge decisions, latest first: calls that the same rule or grant approved become one
    decision, where the latest of them was.
    """
    counted: list[Decided] = []
    places: dict[tuple[str, ...], int] = {}
    for decided in decisions:
        cause = decided.cause
        if cause is None:
            counted.append(decided)
        elif cause in places:
            place = places[cause]
            counted[place] = replace(counted[place], calls=counted[place].calls + 1)
        else:
            places[cause] = len(counted)
            counted.append(decided)

    return counted


def _read_decided(row: tuple[Any, ...]) -> Decided:
    run, title, caller, at, call, decision, by, reason, rule, granted = row
    return Decided(
        run,
        title,
        caller,
        at,
        None if call is None else int(call),
        decision or "",
        _read_object(by),
        reason,
        None if rule is None else read_as(CitedRule, _read_object(rule)),
        None if granted is None else int(granted),
    )


def _read_object(value: str | None) -> JSON:
    """Read a value that is an object or a string. SQL returns objects as JSON text."""
    if value is not None and value.startswith("{"):
        return decode_trusted(value.encode())
    return value
