"""Index the tools that ideas call, and the shapes of their calls, which reveal repeated work.

Saving an idea does not update these indexes. `Ideas.index` updates them, together with the index of
words for searches.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.context.references import is_reference
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.store.database import SOLUTION_OF, Database
from ideabridge.bridge.store.idea import Idea
from ideabridge.bridge.store.results import NAMING
from ideabridge.bridge.store.search import INDEXED
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    decode_trusted,
    encode,
    encode_text,
)
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as

# -- shape -----------------------------------------------------------------------------------------
#
# Shape: the calls of an idea without their literals. Ideas with the same shape are repetitions.

_LITERAL: Final = "·"
_OF_INPUT: Final = re.compile(r"†input(?:[.\[].*)?", re.DOTALL)


def shape_of(solution: Solution) -> bytes | None:
    """Return the hash of a Solution's calls and output without literals, or None if it has no
    calls.

    The hash covers references, tools, servers, paths and keys. It ignores strings, numbers and
    lists of these, and references to the input, which stand where a literal could be.
    """
    if not solution.calls:
        return None
    bare: JSONObject = {"calls": list(map(_call, solution.calls)), "output": _bare(solution.output)}
    return hashlib.sha256(encode(bare)).digest()[:16]


def _call(call: JSON) -> JSON:
    if not isinstance(call, dict):
        return _LITERAL

    bare: JSONObject = {}
    # Sort the parameters, so that their order does not matter.
    for key in sorted(call):
        bare[key] = call[key] if key in NAMING else _bare(call[key])

    return bare


def is_literal(value: JSON) -> bool:
    """Return whether a parameter is a string, a number, or a list, and contains no reference."""
    return _bare(value, _is_no_reference) == _LITERAL


def _is_variable(text: str) -> bool:
    """Return whether a string is a literal or refers only to the input."""
    if _is_no_reference(text):
        return True
    return _OF_INPUT.fullmatch(text) is not None and "||" not in text and "&&" not in text


def _is_no_reference(text: str) -> bool:
    return not is_reference(text)


def _bare(value: JSON, is_left_out: Callable[[str], bool] = _is_variable) -> JSON:
    """Return a value without its literals.

    Args:
        value: the value.
        is_left_out: returns whether a string counts as a literal.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _LITERAL if is_left_out(value) else value
    if isinstance(value, dict):
        return {key: _bare(value[key], is_left_out) for key in sorted(value)}
    if isinstance(value, list):
        bare = [_bare(item, is_left_out) for item in value]
        # It does not matter how many literals a list contains.
        if all(item == _LITERAL or item is None for item in bare):
            return _LITERAL
        return bare

    return _LITERAL


# -- needs -----------------------------------------------------------------------------------------
#  Needs: the tools that a plan calls, and where they are.


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A tool that an idea calls, with the name of its server in the author's configuration, or ""
    if the tool belongs to no server.
    """

    tool: str
    module: str = ""

    def to_json(self) -> JSONObject:
        """Return `{"tool", "module"?}`."""
        if self.module:
            return {"tool": self.tool, "module": self.module}
        return {"tool": self.tool}

    @property
    def text(self) -> str:
        """The name of the tool as people see it, such as `module/tool`."""
        return f"{self.module}/{self.tool}" if self.module else self.tool


def needs_of(idea: Idea, plan: JSON = None) -> list[Need]:
    """Return the tools named in the calls of an idea and of its published plan.

    If a call does not name the server of its tool, the server is taken from the idea's schema.
    """
    calls = [*idea.solution_parts.calls, *read_as(Solution, plan).calls]
    return sorted(_needs_of(calls, modules_of(idea.schema)))


def _needs_of(calls: Iterable[JSON], modules: dict[str, str]) -> set[Need]:
    needs = (need_of(call, modules) for call in written_calls(calls))
    return {need for need in needs if need is not None}


def need_of(call: WrittenCall, modules: dict[str, str]) -> Need | None:
    """Return the tool that a call names, or None if the call names no tool."""
    tool = call.tool
    if not tool:
        return None
    if call.module is not None:
        return Need(tool, call.module)

    if tool not in modules:
        # A plan can refer to a tool as `module.tool`.
        for name, owner in modules.items():
            if tool in (f"{owner}.{name}", f"{owner}/{name}"):
                return Need(name, owner)

    return Need(tool, modules.get(tool, ""))


def modules_of(schema: JSON) -> dict[str, str]:
    """Return the server of each tool in the call schemas of a composed schema. Tools without a
    server are left out.
    """
    return {tool: module for tool, module in SolutionSchema.read(schema).tools.items() if module}


# -- calls of the saved ideas ----------------------------------------------------------------------
# `idea_uses` lists ideas by tool, server and tag. An idea has a row for each tool and server that a
# step of its run calls, and for each of its tags. The time is in the rows, so that a page can be
# read from its position in the index.

TOOL: Final = "tool:"
MODULE: Final = "module:"
TAG: Final = "tag:"
"""The prefixes of use keys, one for each kind of use."""

Place = tuple[str, int]
"""The position of an idea in a list: its time and row."""


class _Step(NamedTuple):
    """An idea of a run: its position in lists, and the use keys of its own calls."""

    place: Place
    uses: set[str]


def _uses_of(needs: Iterable[Need]) -> set[str]:
    """Return the use keys under which an idea that calls the given tools is indexed: one for each
    tool, and one for the tool's server if it has one.
    """
    uses = set[str]()
    for need in needs:
        uses.add(TOOL + need.tool)
        if need.module:
            uses.add(MODULE + need.module)

    return uses


class CallIndex:
    """The calls of saved ideas: the tables `idea_calls`, `idea_uses` and `idea_shapes`. Callers
    must hold a transaction or the guard.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def index(self, after: int, until: int) -> None:
        """Index the ideas in the rows from `after` (excluded) to `until`. Call this inside a
        transaction.
        """
        rows = self._database.execute(
            f"SELECT number, schema, {SOLUTION_OF}, outcome, run, time FROM ideas "  # noqa: S608
            "WHERE number > ? AND number <= ? ORDER BY number",
            (after, until),
        ).fetchall()
        shapes: list[tuple[int, bytes]] = []
        called: list[tuple[str, str, int]] = []
        runs: dict[str, list[_Step]] = {}
        # Remember the servers that were read, because most ideas from one configuration have the
        # same schema.
        modules: dict[int, dict[str, str]] = {}
        for number, schema, text, outcome, run, time in rows:
            solution = read_as(Solution, decode_trusted(text))
            needs = set[Need]()
            if solution.calls:
                if schema not in modules:
                    modules[schema] = self._modules_of(schema)

                needs = _needs_of(solution.calls, modules[schema])
                called += [(need.tool, need.module, number) for need in needs]

            shape = shape_of(solution) if outcome == "done" else None
            if shape is not None:
                shapes.append((number, shape))

            step = _Step((time, number), _uses_of(needs))
            if run is None:
                self._add(step.uses, [step.place])
            else:
                runs.setdefault(run, []).append(step)

        self._database.many(
            "INSERT INTO idea_shapes(idea, shape) VALUES (?1, ?2) ON CONFLICT(idea) DO UPDATE "
            "SET shape = ?2",
            shapes,
        )
        self._database.many(
            "INSERT INTO idea_calls(tool, module, idea) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            called,
        )
        for run, steps in runs.items():
            self._join(run, steps)

    def _modules_of(self, schema: int) -> dict[str, str]:
        """Return the server of each tool in the schema stored in the given row."""
        row = self._database.execute(
            "SELECT body FROM whole_contents WHERE number = ?", (schema,)
        ).fetchone()
        return modules_of(decode_trusted(row[0])) if row is not None else {}

    def _join(self, run: str, steps: list[_Step]) -> None:
        """Index all steps of a run, both new and already indexed, under the use keys of all of them
        together.
        """
        uses = set[str]().union(*(step.uses for step in steps))
        others = self._database.execute(
            "SELECT time, number FROM ideas WHERE run = ? AND number <= ? AND number <> ?",
            (run, self._database.counter(INDEXED), steps[0].place[1]),
        ).fetchall()
        if others:
            uses_of_others = self._called(idea for _, idea in others)
            self._add(uses - uses_of_others, others)
            uses |= uses_of_others

        self._add(uses, [step.place for step in steps])

    def _called(self, ideas: Iterable[int]) -> set[str]:
        """Return the use keys that ideas have because of their own calls."""
        rows = self._database.execute(
            "SELECT DISTINCT tool, module FROM idea_calls "
            "WHERE idea IN (SELECT CAST(value AS BIGINT) FROM json_each(?))",
            (encode_text([*ideas]),),
        )
        return _uses_of(Need(*row) for row in rows)

    def _add(self, uses: Iterable[str], places: list[Place]) -> None:
        self._database.many(
            "INSERT INTO idea_uses(what, time, idea) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(use, *place) for use in uses for place in places],
        )

    def _drop(self, uses: Iterable[str], place: Place) -> None:
        self._database.many(
            "DELETE FROM idea_uses WHERE what = ? AND time = ? AND idea = ?",
            [(use, *place) for use in uses],
        )

    def of_runs(self, runs: Iterable[str]) -> dict[str, set[str]]:
        """Return the use keys of the calls of each run's ideas, keyed by run."""
        uses: dict[str, set[str]] = {}
        for run in runs:
            rows = self._database.execute(
                "SELECT number FROM ideas WHERE run = ?", (run,)
            ).fetchall()
            uses[run] = self._called(row[0] for row in rows)
        return uses

    def remove(self, idea: int, of_run: set[str] | None) -> None:
        """Delete the use keys of an idea that is being deleted or moved to another run.

        Call this inside a transaction, before the row of the idea changes.

        Args:
            idea: the row of the idea.
            of_run: the use keys of the idea's run, as returned by `of_runs`, or None if it has no
                run.
        """
        place, tags, _ = self._read(idea)
        if of_run is None:
            of_run = self._called([idea])

        self._drop({*tags, *of_run}, place)

    def moved(self, idea: int) -> None:
        """Add the use keys of an idea that now belongs to another run. Call this after `remove`,
        inside a transaction.
        """
        place, tags, run = self._read(idea)
        self._add(tags, [place])
        if idea <= self._database.counter(INDEXED):
            self._join(run, [_Step(place, self._called([idea]))])

    def _read(self, idea: int) -> tuple[Place, list[str], str]:
        """Return `(position, use keys of tags, run)` for an idea."""
        time, meta, run = self._database.execute(
            "SELECT time, meta, run FROM ideas WHERE number = ?", (idea,)
        ).fetchone()
        tags = cast("dict[str, Any]", decode_trusted(meta)).get("tags", ())
        return (time, idea), [TAG + tag for tag in tags], run

    def tag(self, place: Place, before: Iterable[str], tags: Iterable[str]) -> None:
        """Replace an idea's tags. Call this inside a transaction."""
        self._drop((TAG + tag for tag in before), place)
        self._add((TAG + tag for tag in tags), [place])

    def count(self, use: str, most: int) -> int:
        """Return the number of ideas with the given use key, or `most` if there are more."""
        return self._database.number(
            "SELECT count(*) FROM (SELECT 1 FROM idea_uses WHERE what = ? LIMIT ?) AS found",
            (use, most),
        )

    def repeated(self, least: int, limit: int) -> list[tuple[int, int]]:
        """Return `(row of the latest idea, number of ideas)` for every shape that at least `least`
        ideas and no published idea have, most frequent first.
        """
        rows = self._database.execute(
            "SELECT max(idea), count(*) AS times FROM ("
            "SELECT shape, idea FROM idea_shapes UNION ALL "
            "SELECT idea_shapes.shape, occurrences.idea FROM occurrences "
            "JOIN idea_shapes USING (idea)"
            ") AS shapes WHERE shape NOT IN (SELECT idea_shapes.shape FROM names "
            "JOIN publications AS p "
            "ON p.name = names.name AND p.version = names.version JOIN idea_shapes "
            "ON idea_shapes.idea = p.idea) "
            "GROUP BY shape HAVING count(*) >= ? ORDER BY times DESC, max(idea) DESC LIMIT ?",
            (least, limit),
        ).fetchall()
        return cast("list[tuple[int, int]]", rows)
