"""Filters: which ideas a search or list is to hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from ideabridge.bridge.store.errors import FilterError

TOOL: Final = "tool:"
MODULE: Final = "module:"
TAG: Final = "tag:"
"""What the kinds of uses begin with (`Uses`)."""

_AGE: Final = re.compile(r"(\d{1,5})\s*([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class IdeaFilter:
    """What ideas must have, all of it; None: anything.

    Attributes:
        tool: a tool that a step of their run calls.
        module: a server whose tool a step of their run calls.
        since, until: when they were saved: `2026-11-21`, `2026-11-21T10:00`, or how long ago: `3d`, `12h`, `2w`.
        outcome: how their run ended: `done`, `failed`, ...
        mind: who answered: `turns`, `sampling`, `model`, ...; a plan's author is "".
        tag: a tag they have.
    """

    tool: str | None = None
    module: str | None = None
    since: str | None = None
    until: str | None = None
    outcome: str | None = None
    mind: str | None = None
    tag: str | None = None

    @property
    def empty(self) -> bool:
        """Whether every idea passes."""
        return all(getattr(self, name) is None for name in self.__slots__)

    def columns(self, now: datetime | None = None) -> Condition:
        """What a row of `ideas` says itself; the indexes `ideas_by_...` answer each of these, and all together.

        Raises:
            FilterError: a time cannot be read.
        """
        clauses: list[str] = []
        values: list[Any] = []
        for key, text, sign in (("since", self.since, ">="), ("until", self.until, "<")):
            if text is not None:
                clauses.append(f"ideas.time {sign} ?")
                values.append(read_time(text, key, now))
        for column, wanted in (("outcome", self.outcome), ("mind", self.mind)):
            if wanted is not None:
                clauses.append(f"ideas.{column} = ?")
                values.append(wanted)
        return Condition("".join(f"{clause} AND " for clause in clauses), values)

    @property
    def uses(self) -> list[str]:
        """What they must have in `idea_uses`."""
        kinds = ((TOOL, self.tool), (MODULE, self.module), (TAG, self.tag))
        return [kind + wanted for kind, wanted in kinds if wanted is not None]


class Condition(NamedTuple):
    """Conditions on a row of `ideas` in SQL, each followed by `AND `, and their values."""

    sql: str
    values: list[Any]

    def and_(self, other: Condition) -> Condition:
        """Both."""
        return Condition(self.sql + other.sql, [*self.values, *other.values])


def read_time(text: str, what: str, now: datetime | None = None) -> str:
    """A time as the store writes it, from a date, a time (in UTC where it names no zone), or how long ago.

    Raises:
        FilterError: it is none.
    """
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            moment = (now or datetime.now(UTC)) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        else:
            moment = datetime.fromisoformat(text.strip())
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise FilterError(
            f"{what}: expected a date (2026-11-21), a time (2026-11-21T10:00), or how long ago (3d, 12h), found "
            f"{text[:40]!r}"
        ) from None
    return moment.isoformat(timespec="milliseconds")
