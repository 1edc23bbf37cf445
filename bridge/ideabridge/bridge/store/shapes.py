"""Shapes: the shapes of ideas, so that what was done over and over is recognised; and which tools they called.

Like the words for the search, they are taken up when there is time, not when an idea is saved.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.context.references import is_reference
from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.schema import SOLUTION_OF
from ideabridge.bridge.store.search import INDEXED
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode, encode_text
from ideabridge.tools.tool import META_PROPERTIES

# -- shape -----------------------------------------------------------------------------------------------------------
#
# Shape: the calls of an idea without their literals: what is done over and over is recognised by it.

_LITERAL: Final = "·"
_OF_INPUT: Final = re.compile(r"†input(?:[.\[].*)?", re.DOTALL)


def shape_of(solution: JSON) -> bytes | None:
    """The hash of a Solution's calls and output without what they were given; None where it has no calls.

    References, tools, modules, paths and keys count; texts, numbers and lists of them do not, nor does a reference to
    the input, which stands where one of them would.
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
    """Whether a parameter is a text, number or list without a reference in it."""
    return _bare(value, _is_no_reference) == _LITERAL


def _is_given(text: str) -> bool:
    """Whether a text is a literal, or stands for what a run is given: a reference to the input and to nothing else."""
    return _is_no_reference(text) or (_OF_INPUT.fullmatch(text) is not None and "||" not in text and "&&" not in text)


def _is_no_reference(text: str) -> bool:
    return not is_reference(text)


def _bare(value: JSON, is_left_out: Callable[[str], bool] = _is_given) -> JSON:
    if value is None:
        return None
    if isinstance(value, str):
        return _LITERAL if is_left_out(value) else value
    if isinstance(value, dict):
        return {key: _bare(value[key], is_left_out) for key in sorted(value)}
    if isinstance(value, list):
        bare = [_bare(item, is_left_out) for item in value]
        # How many literals a list has is a literal too.
        return _LITERAL if all(item == _LITERAL or item is None for item in bare) else bare
    return _LITERAL


# -- needs -----------------------------------------------------------------------------------------------------------
#
# Needs: the tools a plan calls, and where they are.


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A tool that an idea calls. `module`: the server it belongs to, as its author configured it; "": no server's."""

    tool: str
    module: str = ""

    def to_json(self) -> JSONObject:
        """`{"tool", "module"?}`."""
        return {"tool": self.tool, "module": self.module} if self.module else {"tool": self.tool}

    @property
    def text(self) -> str:
        """`module/tool`."""
        return f"{self.module}/{self.tool}" if self.module else self.tool


def needs_of(schema: JSON, solution: JSON, plan: JSONObject | None = None) -> list[Need]:
    """What an idea's calls name, and those of the plan it is published with.

    The schema a Solution was written for tells the module of a tool where the call itself does not.
    """
    modules = modules_of(schema)
    found: dict[Need, None] = {}
    for part in (solution, plan):
        calls = part.get("calls") if isinstance(part, dict) else None
        for call in calls if isinstance(calls, list) else []:
            need = need_of(call, modules)
            if need is not None:
                found[need] = None
    return sorted(found)


def need_of(call: JSON, modules: dict[str, str]) -> Need | None:
    """The tool a call names; None where it names none."""
    tool = call.get("_tool") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(tool, str):
        return None
    module = call.get("_module")
    if module is None and tool not in modules:
        # A plan may say `module.tool`.
        meant = next((own for own, of in modules.items() if tool in (f"{of}.{own}", f"{of}/{own}")), None)
        if meant is not None:
            return Need(meant, modules[meant])
    return Need(tool, module if isinstance(module, str) else modules.get(tool, ""))


def modules_of(schema: JSON) -> dict[str, str]:
    """Tool -> module, as the call schemas of a composed schema say it, for those that have one."""
    return {tool: module for tool, module in tools_in(schema).items() if module}


def tools_in(schema: JSON) -> dict[str, str]:
    """Tool -> module, as the call schemas of a composed schema say it; "": it belongs to no module."""
    definitions = schema.get("$defs") if isinstance(schema, dict) else None
    found: dict[str, str] = {}
    for branch in _branches(schema):
        target = branch.get("$ref")
        if isinstance(target, str) and isinstance(definitions, dict):
            referred = definitions.get(target.removeprefix("#/$defs/"))
            branch = referred if isinstance(referred, dict) else branch
        properties = branch.get("properties")
        if isinstance(properties, dict):
            tool, module = _const(properties.get("_tool")), _const(properties.get("_module"))
            if tool:
                found[tool] = module
    return found


def _branches(schema: JSON) -> list[JSONObject]:
    """The schemas of the calls of a Solution."""
    here: JSON = schema
    for key in ("properties", "calls", "items"):
        here = here.get(key) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        return []
    listed = here.get("anyOf")
    return [one for one in (listed if isinstance(listed, list) else [here]) if isinstance(one, dict)]


def _const(schema: JSON) -> str:
    value = schema.get("const") if isinstance(schema, dict) else None
    return value if isinstance(value, str) else ""


# -- uses ------------------------------------------------------------------------------------------------------------
#
# Uses: the tools and servers that the runs of ideas call, and tags, for lists by them.
#
# An idea has a row for each, with its time, so that a page of any is read from its place. A step of a run has what any
# of
# its steps calls.

TOOL: Final = "tool:"
MODULE: Final = "module:"
TAG: Final = "tag:"
"""The prefixes of the kinds of uses."""

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
        indexed = self._database.counter(INDEXED)
        if number > indexed:
            return
        uses = self._called([number])
        others = execute(
            "SELECT time, number FROM ideas WHERE run = ? AND number <> ? AND number <= ?", (run, number, indexed)
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


# -- shapes ----------------------------------------------------------------------------------------------------------

_SCHEMAS: Final = 512
"""Schemas whose modules are remembered."""


class Shapes:
    """The tables `idea_shapes` and `idea_calls`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database, uses: Uses) -> None:
        self._database = database
        self._uses = uses
        self._voids = 0
        self._modules: dict[int, dict[str, str]] = {}

    def index(self, after: int, until: int) -> None:
        """Index the ideas in the rows after one, up to another: their shapes, calls and uses. Inside a transaction."""
        if self._voids != self._database.voids:
            # A transaction was rolled back: the row of a schema may hold another one now.
            self._voids = self._database.voids
            self._modules.clear()
        rows = self._database.execute(
            f"SELECT number, schema, {SOLUTION_OF}, outcome, run, time FROM ideas "  # noqa: S608
            "WHERE number > ? AND number <= ? ORDER BY number",
            (after, until),
        ).fetchall()
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
