"""Shapes: the calls of an idea without their literals, so that what was done over and over is recognised; and which
tools it called (DESIGN 4.11).

Like the words for the search, they are taken up when there is time, not when an idea is saved.
"""

from __future__ import annotations

import hashlib
from typing import Final, cast

from ideabridge.bridge.context.reference import is_reference
from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.needs import modules_of, need_of
from ideabridge.bridge.ideas.uses import Step, Uses
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode
from ideabridge.tools.tool import META_PROPERTIES

LAG: Final = 2048
"""At most about so many ideas wait to be taken up."""

_BATCH: Final = 256
_LITERAL: Final = "·"
_SCHEMAS: Final = 512


def shape_of(solution: JSON) -> bytes | None:
    """The hash of a Solution's calls and output without their literals; None where it has no calls.

    References, tools, modules, paths and keys count; texts, numbers and lists of them do not.
    """
    calls = solution.get("calls") if isinstance(solution, dict) else None
    if not isinstance(calls, list) or not calls or not isinstance(solution, dict):
        return None
    told: JSONObject = {"calls": [_call(call) for call in calls], "output": _bare(solution.get("output"))}
    return hashlib.sha256(encode(told)).digest()[:16]


def _call(call: JSON) -> JSON:
    if not isinstance(call, dict):
        return _LITERAL
    # In one order: the same call may be written with its parameters in any.
    return {
        key: call[key] if key in META_PROPERTIES and key not in ("_each", "_output") else _bare(call[key])
        for key in sorted(call)
    }


def is_literal(value: JSON) -> bool:
    """Whether a parameter is a text, number or list that a shape leaves out."""
    return _bare(value) == _LITERAL


def _bare(value: JSON) -> JSON:
    if value is None:
        return None
    if isinstance(value, str):
        return value if is_reference(value) else _LITERAL
    if isinstance(value, dict):
        return {key: _bare(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        bare = [_bare(item) for item in value]
        # How many literals a list has is a literal too.
        return _LITERAL if all(item == _LITERAL or item is None for item in bare) else bare
    return _LITERAL


class Shapes:
    """The tables `idea_shapes` and `idea_calls`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database, uses: Uses) -> None:
        self._database = database
        self._uses = uses
        self._seen = 0
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
        mark = self._seen = self._mark()
        execute = self._database.execute
        rows = execute(
            "SELECT number, schema, solution, outcome, run, time FROM ideas WHERE number > ? ORDER BY number LIMIT ?",
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
