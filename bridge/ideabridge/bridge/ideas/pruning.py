"""Pruning: old runs and ideas leave the store, while others use it (`docs/store.md`)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.errors import PruningStoppedError
from ideabridge.bridge.ideas.families import ENDED, Families, Family, holders
from ideabridge.bridge.ideas.reach import Sweep
from ideabridge.bridge.ideas.search import UNINDEXED, Search
from ideabridge.bridge.ideas.uses import Uses
from ideabridge.tools.encoding import encode_text

_TOGETHER: Final = 32
"""Families deleted in one transaction: some 10 ms."""

_EVENTS: Final = 2000
"""Events deleted in one transaction."""


@dataclass(frozen=True, slots=True)
class Prunable:
    """What a pruning removes.

    Attributes:
        runs: how many runs.
        ideas: how many ideas.
        used: how many bytes of the file are in use now.
        oldest, newest: when the first and the last of it ended, ISO 8601 in UTC; "": there is nothing.
        kept: how many runs stay that are as old, by why: `published`, `tagged`, `unfinished`, `newest`.
    """

    runs: int
    ideas: int
    used: int
    oldest: str
    newest: str
    kept: dict[str, int]
    families: list[Family] = field(repr=False)
    top: int = field(repr=False)
    published: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning took away: runs, ideas, messages and schemas; and the bytes of the file in use before, after."""

    runs: int
    ideas: int
    contents: int
    before: int
    after: int


class Pruning:
    """Prunes a store. Each step is a short transaction, with room for others between; each leaves the store whole.

    Args:
        database: the store.
        search: what it holds.
        uses: likewise.
        wait: waits so many seconds between two steps; true: stop; None: `time.sleep`.
        pace: for how many times as long as a step takes the store is left to others.
    """

    def __init__(
        self,
        database: Database,
        search: Search,
        uses: Uses,
        wait: Callable[[float], bool | None] | None = None,
        pace: float = 1.0,
    ) -> None:
        self._wait = wait
        self._pace = pace
        self._database = database
        self._uses = uses
        self._search = search
        self._begun = time.monotonic()

    def prunable(self, before: str) -> Prunable:
        """What is older than a time, the oldest first."""
        database = self._database
        with database.snapshot():
            families = Families(database)
            old = [one for one in families if one.time < before]
            going = sorted((one for one in old if not one.why), key=lambda one: one.time)
            used = in_use(database)
            runs, ideas = _counted(database, families, going)
            kept = Counter[str]()
            for one in old:
                kept[one.why] += len(one.members) if one.why else 0
            return Prunable(
                runs,
                ideas,
                used,
                going[0].time if going else "",
                going[-1].time if going else "",
                {why: count for why, count in kept.items() if count},
                going,
                top=database.number("SELECT max(number) FROM ideas"),
                published=database.number("SELECT max(number) FROM publications"),
            )

    def prune(self, what: Prunable) -> Pruned:
        """Take away what `prunable` found, as far as nothing needs it by now."""
        with self._database.guard:
            before = in_use(self._database)
        runs = ideas = 0
        for start in range(0, len(what.families), _TOGETHER):
            some = what.families[start : start + _TOGETHER]
            removed = self.remove(some, what.top, what.published)
            runs, ideas = runs + removed[0], ideas + removed[1]
        contents = self.clear()
        with self._database.guard:
            return Pruned(runs, ideas, contents, before, in_use(self._database))

    def remove(self, families: list[Family], top: int, published: int) -> tuple[int, int]:
        """Remove families, as far as nothing needs them by now; returns how many runs and ideas.

        Args:
            families: few, for they go in one transaction.
            top: the newest row of ideas when they were found.
            published: the newest row of publications then.
        """
        with self._database.unchecked():
            removed = self._remove([one for one in families if self._may_go(one, top, published)])
        self._breathe()
        return removed

    def clear(self) -> int:
        """Remove what belongs to nothing any more, also what a pruning that was cut off left behind; returns how many
        contents.
        """
        self._remove_events()
        contents = Sweep(self._database, self._breathe).run()
        with self._database.guard:
            stale = self._search.gone()
        if stale:
            self._search.rebuild(self._breathe)
        return contents

    def _breathe(self) -> None:
        """Leave the store to others for as long as it was held: who waits for the lock looks only now and then."""
        seconds = min(max(time.monotonic() - self._begun, 0.001) * self._pace, 0.1 * self._pace)
        if self._wait is None:
            time.sleep(seconds)
        elif self._wait(seconds):
            raise PruningStoppedError(f"{self._database.path}: the pruning was stopped")
        self._begun = time.monotonic()

    def _may_go(self, family: Family, top: int, published: int) -> bool:
        """Whether nothing came about since that needs it. Inside the transaction that removes it."""
        runs, number = encode_text([*family.runs()]), self._database.number
        ended = ", ".join(f"'{one}'" for one in ENDED)
        if number(
            "SELECT count(*) FROM runs WHERE id IN (SELECT value FROM json_each(?1)) "  # noqa: S608
            f"AND (status NOT IN ({ended}) OR (driver IS NOT NULL AND lease_until > ?2))",
            (runs, time.time()),
        ):
            return False
        ours = "IN (SELECT value FROM json_each(?1))"
        if number(
            f"SELECT count(*) FROM runs WHERE (parent {ours} OR forked_from {ours}) AND id NOT {ours}",  # noqa: S608
            (runs,),
        ):
            return False
        ideas = [*self._ideas_of(runs), *family.loose()]
        if any(idea > top for idea in ideas):
            return False
        members = set(family.members)
        return not any(key in members for key, _ in holders(self._database, ideas, published))

    def _ideas_of(self, runs: str) -> list[int]:
        rows = self._database.execute(
            "SELECT number FROM ideas WHERE run IN (SELECT value FROM json_each(?1)) UNION "
            "SELECT idea FROM occurrences WHERE run IN (SELECT value FROM json_each(?1))",
            (runs,),
        ).fetchall()
        return [row[0] for row in rows]

    def _remove(self, families: list[Family]) -> tuple[int, int]:
        """Remove families; returns how many runs and ideas. Their events are no longer theirs, and go later."""
        execute = self._database.execute
        names = {run for one in families for run in one.runs()}
        runs = encode_text([*names])
        loose = {idea for one in families for idea in one.loose()}
        ideas = {*self._ideas_of(runs), *loose}
        execute("DELETE FROM occurrences WHERE run IN (SELECT value FROM json_each(?))", (runs,))
        gone: list[tuple[int]] = []
        # While the ideas of each are still together.
        uses = self._uses.of_runs(names)
        for idea in ideas:
            row = execute("SELECT run FROM ideas WHERE number = ?", (idea,)).fetchone()
            # One that was saved without a run is not of those it occurred in since.
            if row is None or (idea not in loose if row[0] is None else row[0] not in names):
                continue
            other = execute(
                "SELECT run, step, meta FROM occurrences WHERE idea = ? ORDER BY rowid LIMIT 1", (idea,)
            ).fetchone()
            self._uses.remove(idea, None if row[0] is None else uses[row[0]])
            if other is None:
                gone.append((idea,))
            else:
                self._move(idea, *other)
        for table, column in (
            ("idea_shapes", "idea"),
            ("idea_calls", "idea"),
            ("ideas", "number"),
        ):
            self._database.connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)  # noqa: S608
        if gone:
            self._database.count(UNINDEXED, len(gone))
        # What is kept of a run beside it is named KIND.RUN.
        execute(
            "DELETE FROM settings WHERE substr(key, instr(key, '.') + 1) IN (SELECT value FROM json_each(?))", (runs,)
        )
        cursor = execute("DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))", (runs,))
        return cursor.rowcount, len(gone)

    def _move(self, idea: int, run: str, step: int, meta: str) -> None:
        """Let an idea be of another run that it occurred in: the one it was first saved in goes."""
        execute = self._database.execute
        # Its tags are its own.
        execute(
            "UPDATE ideas SET run = ?1, step = ?2, meta = CASE WHEN json_type(meta, '$.tags') IS NULL "
            "THEN json_remove(?3, '$.tags') ELSE json_set(?3, '$.tags', json_extract(meta, '$.tags')) END "
            "WHERE number = ?4",
            (run, step, meta, idea),
        )
        self._uses.moved(idea)
        execute("DELETE FROM occurrences WHERE run = ? AND step = ? AND idea = ?", (run, step, idea))

    def _remove_events(self) -> None:
        """Remove the events of runs that are gone: those between the numbers of the runs there are."""
        database = self._database
        with database.guard:
            known = [row[0] for row in database.execute("SELECT number FROM runs ORDER BY number")]
        for before, after in pairwise([-1, *known]):
            if after == before + 1:
                continue
            events = ((before + 1) << 32, (after << 32) - 1)
            while self._has_events(events):
                with database.transaction():
                    database.execute(
                        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id BETWEEN ? AND ? LIMIT ?)",
                        (*events, _EVENTS),
                    )
                self._breathe()

    def _has_events(self, between: tuple[int, int]) -> bool:
        with self._database.guard:
            return self._database.number("SELECT 1 FROM events WHERE id BETWEEN ? AND ? LIMIT 1", between) == 1


def _counted(database: Database, families: Families, going: list[Family]) -> tuple[int, int]:
    """How many runs and ideas some families take with them. An idea goes with the last family that it occurs in."""
    of_those = {id(family) for family in going}
    runs = sum(id(families.of(run)) in of_those for (run,) in database.execute("SELECT id FROM runs"))
    gone, kept = set[int](), set[int]()
    rows = database.execute(
        "SELECT number, coalesce(run, number) FROM ideas UNION ALL SELECT idea, run FROM occurrences"
    )
    for idea, key in rows:
        (gone if id(families.of(key)) in of_those else kept).add(idea)
    return runs, len(gone - kept)


def in_use(database: Database) -> int:
    """The bytes of the file that hold something: what it has after a vacuum."""
    return database.number(
        "SELECT (page_count - freelist_count) * page_size "
        "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
    )
