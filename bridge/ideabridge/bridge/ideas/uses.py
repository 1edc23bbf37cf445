"""Uses: the tools and servers that the runs of ideas call, and tags, for lists by them (DESIGN 6, 8).

An idea has a row for each, with its time, so that a page of any is read from its place. A step of a run has what any of
its steps calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.filters import MODULE, TAG, TOOL
from ideabridge.bridge.ideas.needs import Need
from ideabridge.bridge.ideas.places import USE, Place, Places


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
        for need in self.needs:
            yield TOOL + need.tool
            if need.module:
                yield MODULE + need.module


class Uses:
    """The table `idea_uses`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places

    def take_up(self, steps: list[Step]) -> None:
        """Take up the next ideas in the order of their rows. Inside a transaction."""
        # The steps of a run are found by their places.
        self._places.catch_up()
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
        before = f"FROM idea_places WHERE run = ? AND idea < {steps[0].number}"
        row = self._database.execute(f"SELECT idea {before} LIMIT 1", (run,)).fetchone()
        if row is not None:
            # Each step has what all before it have: so any of them tells.
            known = self._of(row[0])
            if not uses <= known:
                self._add(uses - known, self._database.execute(f"SELECT time, idea {before}", (run,)).fetchall())
            uses |= known
        self._add(uses, [step.place for step in steps])

    def _add(self, uses: Iterable[str], ideas: list[Place]) -> None:
        many = self._database.connection.executemany
        uses = [*uses]
        many("INSERT OR IGNORE INTO use_names(name) VALUES (?)", [(use,) for use in uses])
        many(
            f"INSERT OR IGNORE INTO idea_uses(what, time, idea) VALUES ({USE}, ?, ?)",  # noqa: S608
            [(use, *idea) for use in uses for idea in ideas],
        )

    def _of(self, idea: int) -> set[str]:
        """What an idea has, but for its tags."""
        rows = self._database.execute(
            "SELECT name FROM idea_uses JOIN use_names ON use_names.number = what WHERE idea = ?", (idea,)
        ).fetchall()
        return {row[0] for row in rows if not row[0].startswith(TAG)}

    def moved(self, number: int) -> None:
        """An idea has the run and time of another occurrence now. Inside a transaction."""
        execute = self._database.execute
        run, time = execute("SELECT run, time FROM ideas WHERE number = ?", (number,)).fetchone()
        tags = execute("SELECT tag FROM idea_tags WHERE idea = ?", (number,)).fetchall()
        execute("DELETE FROM idea_uses WHERE idea = ?", (number,))
        self._add((TAG + tag for (tag,) in tags), [(time, number)])
        shaped = self._database.number("SELECT value FROM counters WHERE key = 'shaped'")
        if number > shaped:
            return
        needs = {Need(*row) for row in execute("SELECT tool, module FROM idea_calls WHERE idea = ?", (number,))}
        uses = {*Step(number, run, time, needs).uses()}
        others = execute(
            "SELECT time, idea FROM idea_places WHERE run = ? AND idea <> ? AND idea <= ?", (run, number, shaped)
        ).fetchall()
        if others:
            known = self._of(others[0][1])
            self._add(uses - known, others)
            uses |= known
        self._add(uses, [(time, number)])

    def tag(self, number: int, time: str, tags: Iterable[str]) -> None:
        """An idea has these tags, and no others. Inside a transaction."""
        self._database.execute(
            "DELETE FROM idea_uses WHERE idea = ? AND what IN "
            "(SELECT number FROM use_names WHERE substr(name, 1, ?) = ?)",
            (number, len(TAG), TAG),
        )
        self._add((TAG + tag for tag in tags), [(time, number)])

    def after(self, use: str, place: Place, many: int) -> Place | None:
        """The place so many after one, from the newest to the oldest that has it; None: there are fewer."""
        row = self._database.execute(
            f"SELECT time, idea FROM idea_uses WHERE what = {USE} AND (time, idea) <= (?, ?) "  # noqa: S608
            "ORDER BY time DESC, idea DESC LIMIT 1 OFFSET ?",
            (use, *place, many),
        ).fetchone()
        return cast("Place | None", row)

    def count(self, use: str, most: int) -> int:
        """How many ideas have it; counting stops at `most`."""
        return self._database.number(
            f"SELECT count(*) FROM (SELECT 1 FROM idea_uses WHERE what = {USE} LIMIT ?)",  # noqa: S608
            (use, most),
        )
