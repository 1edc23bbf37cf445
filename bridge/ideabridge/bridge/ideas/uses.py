"""Uses: the tools and servers that the runs of ideas call, and tags, for lists by them.

An idea has a row for each, with its time, so that a page of any is read from its place. A step of a run has what any of
its steps calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.filters import MODULE, TAG, TOOL
from ideabridge.bridge.ideas.needs import Need
from ideabridge.tools.encoding import encode_text

Place = tuple[str, int]
"""Where an idea is listed: its time and row."""

_USE: Final = "(SELECT number FROM use_names WHERE name = ?)"
"""SQL for the number of a use, which is one of the values."""

HAS_USE: Final = (
    "EXISTS (SELECT 1 FROM idea_uses AS part "  # noqa: S608
    f"WHERE part.what = {_USE} AND part.time = ideas.time AND part.idea = ideas.number) AND "
)
"""SQL for the condition that an idea has a use, which is one of the values."""


class Source(NamedTuple):
    """What ideas are listed from: SQL for FROM, with the columns of `ideas` that conditions name, and its values."""

    sql: str
    values: list[Any]


EVERY: Final = Source("ideas", [])


def of_run(run: str) -> Source:
    """The ideas of a run."""
    return Source("(SELECT * FROM ideas INDEXED BY ideas_by_run WHERE run = ?) AS ideas", [run])


def using(use: str) -> Source:
    """The ideas that have a use, in the order of its index."""
    return Source(
        "(SELECT part.idea AS number, run, part.time AS time, outcome, mind FROM idea_uses AS part "  # noqa: S608
        f"CROSS JOIN ideas ON ideas.number = part.idea WHERE part.what = {_USE}) AS ideas",
        [use],
    )


class Step(NamedTuple):
    """An idea that is taken up: its row, run, time, and what it calls."""

    number: int
    run: str | None
    time: str
    needs: set[Need]

    @property
    def place(self) -> Place:
        """Where it is listed."""
        return self.time, self.number

    def uses(self) -> Iterator[str]:
        """What it has by its own calls."""
        return uses_of(self.needs)


def uses_of(needs: Iterable[Need]) -> Iterator[str]:
    """What an idea has by calls of these tools."""
    for need in needs:
        yield TOOL + need.tool
        if need.module:
            yield MODULE + need.module


class Uses:
    """The table `idea_uses`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take_up(self, steps: list[Step]) -> None:
        """Take up the next ideas in the order of their rows. Inside a transaction."""
        runs: dict[str, list[Step]] = {}
        for step in steps:
            if step.run is None:
                self._add(step.uses(), [step.place])
            else:
                runs.setdefault(step.run, []).append(step)
        for run, some in runs.items():
            self._join(run, some)

    def _join(self, run: str, steps: list[Step]) -> None:
        """Give the next steps of a run, and those before them, what any of them has."""
        uses = {use for step in steps for use in step.uses()}
        before = self._database.execute(
            "SELECT time, number FROM ideas WHERE run = ? AND number < ?", (run, steps[0].number)
        ).fetchall()
        if before:
            known = self._called([idea for _, idea in before])
            if not uses <= known:
                self._add(uses - known, before)
            uses |= known
        self._add(uses, [step.place for step in steps])

    def _called(self, ideas: Iterable[int]) -> set[str]:
        """What some ideas have by their own calls."""
        rows = self._database.execute(
            "SELECT DISTINCT tool, module FROM idea_calls WHERE idea IN (SELECT value FROM json_each(?))",
            (encode_text([*ideas]),),
        )
        return {use for row in rows for use in uses_of({Need(*row)})}

    def _add(self, uses: Iterable[str], ideas: list[Place]) -> None:
        many = self._database.connection.executemany
        uses = [*uses]
        many("INSERT OR IGNORE INTO use_names(name) VALUES (?)", [(use,) for use in uses])
        many(
            f"INSERT OR IGNORE INTO idea_uses(what, time, idea) VALUES ({_USE}, ?, ?)",  # noqa: S608
            [(use, *idea) for use in uses for idea in ideas],
        )

    def of_runs(self, runs: Iterable[str]) -> dict[str, set[str]]:
        """What the ideas of each run have: what any of them calls."""
        found: dict[str, set[str]] = {}
        for run in runs:
            rows = self._database.execute("SELECT number FROM ideas WHERE run = ?", (run,)).fetchall()
            found[run] = self._called([row[0] for row in rows])
        return found

    def remove(self, idea: int, of_run: set[str] | None) -> None:
        """An idea goes, or leaves its run: it has nothing any more. Inside a transaction, before its row changes.

        Args:
            idea: its row.
            of_run: what the ideas of its run have, with all that were in it; None: it has no run.
        """
        execute = self._database.execute
        tags = execute("SELECT tag FROM idea_tags WHERE idea = ?", (idea,)).fetchall()
        uses = {*(self._called([idea]) if of_run is None else of_run), *(TAG + tag for (tag,) in tags)}
        (time,) = execute("SELECT time FROM ideas WHERE number = ?", (idea,)).fetchone()
        self._drop(uses, time, idea)

    def _drop(self, uses: Iterable[str], time: str, idea: int) -> None:
        self._database.connection.executemany(
            f"DELETE FROM idea_uses WHERE what = {_USE} AND time = ? AND idea = ?",  # noqa: S608
            [(use, time, idea) for use in uses],
        )

    def moved(self, number: int) -> None:
        """An idea that was removed has the run and time of another occurrence now. Inside a transaction."""
        execute = self._database.execute
        run, time = execute("SELECT run, time FROM ideas WHERE number = ?", (number,)).fetchone()
        tags = execute("SELECT tag FROM idea_tags WHERE idea = ?", (number,)).fetchall()
        self._add((TAG + tag for (tag,) in tags), [(time, number)])
        shaped = self._database.number("SELECT value FROM counters WHERE key = 'shaped'")
        if number > shaped:
            return
        uses = self._called([number])
        others = execute(
            "SELECT time, number FROM ideas WHERE run = ? AND number <> ? AND number <= ?", (run, number, shaped)
        ).fetchall()
        if others:
            known = self._called([idea for _, idea in others])
            self._add(uses - known, others)
            uses |= known
        self._add(uses, [(time, number)])

    def tag(self, number: int, time: str, before: Iterable[str], tags: Iterable[str]) -> None:
        """An idea has these tags, and those before no more. Inside a transaction."""
        self._drop((TAG + tag for tag in before), time, number)
        self._add((TAG + tag for tag in tags), [(time, number)])

    def count(self, use: str, most: int) -> int:
        """How many ideas have it; counting stops at `most`."""
        return self._database.number(
            f"SELECT count(*) FROM (SELECT 1 FROM idea_uses WHERE what = {_USE} LIMIT ?)",  # noqa: S608
            (use, most),
        )
