"""Families: what is pruned together: a run, the rooms that answered its calls, its forks, and their ideas.

An idea that no run of this store made is a family of its own; so are those that name one run of another store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ideabridge.bridge.ideas.database import Database

ENDED: Final = ("done", "stalled", "limit", "cancelled", "failed")
"""How a run stands that never goes on."""

UNFINISHED: Final = "unfinished"
NEWEST: Final = "newest"
PUBLISHED: Final = "published"
TAGGED: Final = "tagged"

Key = str | int
"""Names a member of a family: the id of a run, or the row of an idea that has none."""


@dataclass(slots=True)
class Family:
    """Runs and ideas that stay or go together.

    Attributes:
        members: ids of runs, of this store or not; or the row of one idea without a run.
        time: when the latest of it ended or was saved, ISO 8601 in UTC.
        why: why it stays however old it is; "": it may go.
    """

    members: list[Key] = field(default_factory=list[Key])
    time: str = ""
    why: str = ""

    def runs(self) -> list[str]:
        """The ids of its runs."""
        return [one for one in self.members if isinstance(one, str)]

    def loose(self) -> list[int]:
        """The rows of its ideas that have no run."""
        return [one for one in self.members if isinstance(one, int)]


class Families:
    """The families of a store, as they are now. Made inside a guard or transaction of the caller."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._above: dict[Key, Key] = {}
        self._families: dict[Key, Family] = {}
        self._read()

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def of(self, key: Key) -> Family | None:
        """The family of a run, or of an idea without one."""
        return self._families.get(self._root(key)) if key in self._above else None

    def _root(self, key: Key) -> Key:
        above = self._above[key]
        while above != key:
            # Halves the way for the next.
            self._above[key] = self._above[above]
            key, above = above, self._above[above]
        return key

    def _read(self) -> None:
        execute, now = self._database.execute, time.time()
        rows = execute(
            "SELECT id, parent, forked_from, status, driver, lease_until, coalesce(updated, created) FROM runs"
        ).fetchall()
        times: dict[Key, str] = {row[0]: row[6] for row in rows}
        loose = execute(
            "SELECT coalesce(run, number), max(json_extract(meta, '$.time')) FROM ideas "
            "WHERE run IS NULL OR run NOT IN (SELECT id FROM runs) GROUP BY 1 UNION ALL "
            "SELECT run, max(json_extract(meta, '$.time')) FROM occurrences "
            "WHERE run NOT IN (SELECT id FROM runs) GROUP BY 1"
        )
        for key, at in loose:
            times[key] = max(times.get(key, ""), at or "")
        self._above = {key: key for key in times}
        for row in rows:
            for other in (row[1], row[2]):
                if other in self._above:
                    self._above[self._root(row[0])] = self._root(other)
        for key, at in times.items():
            family = self._families.setdefault(self._root(key), Family())
            family.members.append(key)
            family.time = max(family.time, at)
        for key, _, _, status, driver, lease_until, _ in rows:
            if status not in ENDED or (driver is not None and lease_until > now):
                self._keep(key, UNFINISHED)
        # Rows are numbered on from the newest: were it to go, its number would be given again, and other processes
        # may hold it.
        newest = execute(
            "SELECT id FROM runs WHERE number = (SELECT max(number) FROM runs) UNION ALL "
            "SELECT coalesce(run, number) FROM ideas WHERE number = (SELECT max(number) FROM ideas)"
        )
        for (key,) in newest:
            self._keep(key, NEWEST)
        for key, why in holders(self._database):
            self._keep(key, why)

    def _keep(self, key: Key, why: str) -> None:
        family = self.of(key)
        if family is not None:
            family.why = why


def holders(database: Database, ideas: Iterable[int] | None = None, since: int = 0) -> Iterator[tuple[Key, str]]:
    """(member, why) of what publications and tags need: the run an idea was lifted from and those that confirmed it,
    else the latest run that ended with it, else any run of it, else the idea.

    Args:
        database: inside a guard or transaction of it.
        ideas: only for these rows of ideas, and for publications after the row `since`; None: for all.
        since: see `ideas`.
    """
    execute = database.execute
    where, values = "", ()
    if ideas is not None:
        where = " WHERE idea IN (SELECT value FROM json_each(?))"
        values = (f"[{','.join(map(str, ideas))}]",)
    lifted: set[int] = set()
    published: dict[int, str] = {}
    told: list[tuple[Any, ...]] = execute(
        "SELECT idea, json_extract(plan, '$.lifting.run'), json_extract(plan, '$.lifting.confirmed_by') "  # noqa: S608
        f"FROM publications{where}" + (f" OR number > {since:d}" if ideas is not None else ""),
        values,
    ).fetchall()
    for idea, run, confirmed in told:
        published[idea] = PUBLISHED
        if run is not None and database.number("SELECT number FROM runs WHERE id = ?", (run,)):
            lifted.add(idea)
            yield str(run), PUBLISHED
        for (other,) in execute("SELECT value FROM json_each(?)", (confirmed or "[]",)).fetchall():
            yield str(other), PUBLISHED
    tagged: list[tuple[int]] = execute(f"SELECT DISTINCT idea FROM idea_tags{where}", values).fetchall()  # noqa: S608
    for idea, why in {**{row[0]: TAGGED for row in tagged}, **published}.items():
        if idea not in lifted:
            yield _best_run(database, idea), why


def _best_run(database: Database, idea: int) -> Key:
    row = database.execute(
        "SELECT runs.id FROM runs JOIN ideas ON ideas.number = ?1 "
        "WHERE runs.id IN (SELECT run FROM ideas WHERE number = ?1 UNION SELECT run FROM occurrences WHERE idea = ?1) "
        "ORDER BY json_extract(runs.summary, '$.idea') = lower(hex(ideas.id)) DESC, runs.status = 'done' DESC, "
        "runs.created DESC, runs.number DESC LIMIT 1",
        (idea,),
    ).fetchone()
    if row is None:
        row = database.execute("SELECT coalesce(run, number) FROM ideas WHERE number = ?", (idea,)).fetchone()
    return row[0]
