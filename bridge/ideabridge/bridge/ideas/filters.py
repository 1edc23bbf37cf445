"""Filters: which ideas a search or list is to hold (DESIGN 6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from ideabridge.bridge.ideas.errors import FilterError

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
        """What a row of `ideas` says itself; the indexes `idea_places_by_...` answer each of these, and all together.

        Raises:
            FilterError: a time that is none.
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
    def kept_apart(self) -> list[Apart]:
        """What other tables say of an idea, for each condition."""
        called = (("tool", self.tool), ("module", self.module))
        found = [Apart("idea_calls", column, wanted, True) for column, wanted in called if wanted is not None]
        return found if self.tag is None else [*found, Apart("idea_tags", "tag", self.tag, False)]


class Condition(NamedTuple):
    """Conditions on a row of `ideas` in SQL, each followed by `AND `, and their values."""

    sql: str
    values: list[Any]


@dataclass(frozen=True, slots=True)
class Apart:
    """One condition that another table answers; `of_run`: it holds for every step of a run that has such a step."""

    table: str
    column: str
    wanted: str
    of_run: bool

    def few(self) -> str:
        """The rows of `ideas` it holds for, all at once; one value."""
        found = f"SELECT idea FROM {self.table} WHERE {self.column} = ?1"  # noqa: S608 - names of ours
        if not self.of_run:
            return found
        return (
            f"{found} UNION SELECT steps.number FROM ({found}) AS made CROSS JOIN ideas ON ideas.number = made.idea "  # noqa: S608
            "CROSS JOIN ideas AS steps ON steps.run = ideas.run"
        )

    def holds(self) -> str:
        """Whether it holds for a row of `ideas` at hand; takes `values`."""
        own = f"SELECT 1 FROM {self.table} AS part WHERE part.idea = ideas.number AND +part.{self.column} = ?"  # noqa: S608
        if not self.of_run:
            return f"EXISTS ({own})"
        steps = (
            f"SELECT 1 FROM ideas AS steps CROSS JOIN {self.table} AS part ON part.idea = steps.number "  # noqa: S608
            f"WHERE steps.run = ideas.run AND +part.{self.column} = ?"
        )
        return f"(EXISTS ({own}) OR EXISTS ({steps}))"

    def values(self) -> list[str]:
        """What `holds` takes."""
        return [self.wanted] * (2 if self.of_run else 1)


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
