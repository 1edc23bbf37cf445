"""Shapes: the shapes of ideas, so that what was done over and over is recognised; and which tools they called.

Like the words for the search, they are taken up when there is time, not when an idea is saved.
"""

from __future__ import annotations

from typing import Final, cast

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.needs import modules_of, need_of
from ideabridge.bridge.ideas.schema import SOLUTION_OF
from ideabridge.bridge.ideas.shape import shape_of
from ideabridge.bridge.ideas.uses import Step, Uses
from ideabridge.tools.encoding import decode_trusted

LAG: Final = 2048
"""At most about so many ideas wait to be taken up."""

_BATCH: Final = 256
_SCHEMAS: Final = 512


class Shapes:
    """The tables `idea_shapes` and `idea_calls`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database, uses: Uses) -> None:
        self._database = database
        self._uses = uses
        self._seen = 0
        self._voids = 0
        self._modules: dict[int, dict[str, str]] = {}

    def saved(self, number: int) -> None:
        """An idea is saved in a row: take up a batch where too many wait. Inside the save's transaction."""
        if number - self._seen > LAG:
            self.catch_up()

    def behind(self) -> int:
        """At most how many saved ideas were not taken up."""
        return max(0, self._database.number("SELECT max(number) FROM ideas") - self._mark())

    def _mark(self) -> int:
        return self._database.number("SELECT value FROM counters WHERE key = 'shaped'")

    def catch_up(self) -> bool:
        """Take up a batch; whether it was a whole one. Inside a transaction."""
        if self._voids != self._database.voids:
            # The row of a schema whose save was taken back is another's.
            self._voids = self._database.voids
            self._modules.clear()
        mark = self._seen = self._mark()
        execute = self._database.execute
        rows = execute(
            f"SELECT number, schema, {SOLUTION_OF}, outcome, run, time FROM ideas "  # noqa: S608
            "WHERE number > ? ORDER BY number LIMIT ?",
            (mark, _BATCH),
        ).fetchall()
        if not rows:
            return False
        shapes: list[tuple[int, bytes]] = []
        calls: list[tuple[str, str, int]] = []
        steps: list[Step] = []
        for number, schema, text, outcome, run, time in rows:
            solution = decode_trusted(text)
            listed = solution.get("calls") if isinstance(solution, dict) else None
            step = Step(number, run, time, set())
            steps.append(step)
            if not isinstance(listed, list) or not listed:
                continue
            modules = self._modules_of(schema)
            step.needs.update(need for call in listed if (need := need_of(call, modules)) is not None)
            calls += [(need.tool, need.module, number) for need in step.needs]
            shape = shape_of(solution) if outcome == "done" else None
            if shape is not None:
                shapes.append((number, shape))
        many = self._database.connection.executemany
        many("INSERT OR REPLACE INTO idea_shapes(idea, shape) VALUES (?, ?)", shapes)
        many("INSERT OR IGNORE INTO idea_calls(tool, module, idea) VALUES (?, ?, ?)", calls)
        self._uses.take_up(steps)
        self._seen = rows[-1][0]
        execute(
            "INSERT INTO counters(key, value) VALUES ('shaped', ?1) ON CONFLICT(key) DO UPDATE SET value = ?1",
            (self._seen,),
        )
        return len(rows) == _BATCH

    def _modules_of(self, schema: int) -> dict[str, str]:
        """Tool -> module by the schema in a row: the ideas of one configuration mostly share theirs."""
        known = self._modules.get(schema)
        if known is None:
            row = self._database.execute("SELECT body FROM contents WHERE number = ?", (schema,)).fetchone()
            known = modules_of(decode_trusted(row[0])) if row is not None else {}
            if len(self._modules) >= _SCHEMAS:
                self._modules.clear()
            self._modules[schema] = known
        return known

    def repeated(self, least: int, limit: int) -> list[tuple[int, int]]:
        """(row of the latest idea, how often it was done) of every shape done at least so often of which nothing is
        published, the most frequent first.
        """
        rows = self._database.execute(
            "SELECT max(idea), count(*) AS times FROM ("
            "SELECT shape, idea FROM idea_shapes WHERE shape IS NOT NULL UNION ALL "
            "SELECT idea_shapes.shape, occurrences.idea FROM occurrences JOIN idea_shapes USING (idea)"
            ") WHERE shape NOT IN (SELECT idea_shapes.shape FROM names JOIN publications AS p "
            "ON p.name = names.name AND p.version = names.version JOIN idea_shapes ON idea_shapes.idea = p.idea) "
            "GROUP BY shape HAVING times >= ? ORDER BY times DESC, max(idea) DESC LIMIT ?",
            (least, limit),
        ).fetchall()
        return cast("list[tuple[int, int]]", rows)
