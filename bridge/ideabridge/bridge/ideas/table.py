"""IdeaTable: saved ideas: save, read, list, and find by id, prefix, request or run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

from ideabridge.bridge.ideas.contents import Contents
from ideabridge.bridge.ideas.database import Database, now_text
from ideabridge.bridge.ideas.errors import AmbiguousIdeaError, CursorError
from ideabridge.bridge.ideas.filters import Condition, IdeaFilter
from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
from ideabridge.bridge.ideas.records import IdeaRecord, Page, StoredIdea
from ideabridge.bridge.ideas.schema import SOLUTION_OF
from ideabridge.bridge.ideas.uses import EVERY, HAS_USE, Place, Source, Uses, of_run, using
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text

MAX_PAGE: Final = 1000
"""The most items one page holds."""

FEW: Final = 5000
"""A tool, server or tag that fewer ideas have is looked up first, whatever else a list is filtered by."""

_HEX: Final = re.compile(r"[0-9a-f]{6,64}", re.ASCII)
_NAMES: Final = (
    "(SELECT group_concat(names.name) FROM publications JOIN names ON names.name = publications.name "
    "AND names.version = publications.version WHERE publications.idea = ideas.number)"
)
_MADE: Final = "ideas.run, ideas.step, (SELECT fingerprint FROM runs WHERE runs.id = ideas.run)"
"""What metadata leave out: it stands beside them."""

_RECORD: Final = f"SELECT ideas.number, ideas.id, ideas.request, {_NAMES}, ideas.meta, {_MADE} FROM ideas"  # noqa: S608

_OF_RUN: Final = 1
"""The fingerprint in metadata that is that of their run."""


class Saved(NamedTuple):
    """What a save did: the idea's row, and whether it is new."""

    number: int
    id: str
    new: bool


def check_limit(limit: int) -> int:
    """`limit`, if a page may have so many items.

    Raises:
        CursorError: it is not from 1 to `MAX_PAGE`.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise CursorError(f"limit must be from 1 to {MAX_PAGE}, found {limit}")
    return limit


def read_cursor(after: str | None) -> int:
    """The row a cursor stands for: the page holds smaller ones.

    Raises:
        CursorError: it is no cursor of such a list.
    """
    if after is None:
        return 2**62
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise CursorError(f"not a cursor of this list: {after[:40]!r}; hand back the `next` of the page before")
    return int(after)


def _read_place(after: str) -> tuple[str, int]:
    """(time, row) a cursor of a list by time stands for: the page holds what comes before it.

    Raises:
        CursorError: it is no cursor of such a list.
    """
    number, _, time = after.partition("@")
    return time, read_cursor(number)


def _below(place: Place) -> Condition:
    return Condition("(ideas.time, ideas.number) < (?, ?) AND ", [*place])


def last_of_run(database: Database, run: str) -> int:
    """The row of the last step of a run, by its first save; 0: it has none. Inside a guard or transaction."""
    return database.number("SELECT number FROM ideas WHERE run = ? ORDER BY step DESC, number DESC LIMIT 1", (run,))


def _listed(numbers: list[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def read_record(row: tuple[Any, ...]) -> IdeaRecord:
    """A line of a list from a row of `_RECORD`."""
    _, idea, request, names, *meta = row
    return IdeaRecord(idea.hex(), request.hex(), read_meta(*meta), tuple(sorted(names.split(","))) if names else ())


def read_meta(text: str, run: str | None = None, step: int | None = None, fingerprint: str | None = None) -> IdeaMeta:
    """The metadata from its stored text, and what stands beside it: the run, the step, and the run's fingerprint."""
    told = cast("JSONObject", decode_trusted(text))
    if run is not None:
        told["run"] = run
    if step:
        told["step"] = step
    if told.get("fingerprint") == _OF_RUN:
        told["fingerprint"] = fingerprint or ""
    return IdeaMeta.from_json(told)


class IdeaTable:
    """The tables `ideas` and `occurrences`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database, contents: Contents, uses: Uses) -> None:
        self._database = database
        self._contents = contents
        self._uses = uses

    def save(self, idea: Idea, meta: IdeaMeta) -> Saved:
        """Store an idea; of one that is stored already, only where else it occurred is kept."""
        encoded = idea.encoded
        told = meta.to_json()
        if not meta.time:
            told["time"] = now_text()
        if meta.run is not None:
            del told["run"]
            if meta.step:
                del told["step"]
            known = self._database.execute("SELECT fingerprint FROM runs WHERE id = ?", (meta.run,)).fetchone()
            if known is not None and meta.fingerprint == known[0] != "":
                told["fingerprint"] = _OF_RUN
        text = encode_text(told)
        schema, context = self._contents.put(encoded.schema, encoded.messages)
        solved = self._contents.solution(encoded.solution)
        cursor = self._database.execute(
            "INSERT OR IGNORE INTO ideas(id, request, run, step, meta, schema, context, solution, solved) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                encoded.idea,
                encoded.request,
                meta.run,
                meta.step,
                text,
                schema,
                context,
                encoded.solution if solved is None else "",
                solved,
            ),
        )
        if cursor.rowcount == 1:
            number = cast("int", cursor.lastrowid)
            if meta.tags:
                self._tag(number, cast("str", told["time"]), meta.tags)
            return Saved(number, encoded.idea.hex(), new=True)
        number, run, step = self._database.execute(
            "SELECT number, run, step FROM ideas WHERE id = ?", (encoded.idea,)
        ).fetchone()
        if meta.run is not None and (run, step) != (meta.run, meta.step):
            self._database.execute(
                "INSERT OR IGNORE INTO occurrences(run, step, idea, meta) VALUES (?, ?, ?, ?)",
                (meta.run, meta.step or 0, number, text),
            )
        return Saved(number, encoded.idea.hex(), new=False)

    def _tag(self, number: int, time: str, tags: Iterable[str]) -> None:
        before = self._database.execute("SELECT tag FROM idea_tags WHERE idea = ?", (number,)).fetchall()
        self._database.execute("DELETE FROM idea_tags WHERE idea = ?", (number,))
        for tag in tags:
            self._database.execute("INSERT OR IGNORE INTO idea_tags(tag, idea) VALUES (?, ?)", (tag, number))
        self._uses.tag(number, time, [row[0] for row in before], tags)

    def tag(self, number: int, add: Iterable[str], remove: Iterable[str]) -> tuple[str, ...]:
        """Give an idea tags and take others away; returns those it has then."""
        execute = self._database.execute
        text, time = execute("SELECT meta, time FROM ideas WHERE number = ?", (number,)).fetchone()
        told = cast("JSONObject", decode_trusted(text))
        gone = set(remove)
        tags = [tag for tag in dict.fromkeys((*IdeaMeta.from_json(told).tags, *add)) if tag not in gone]
        told["tags"] = list[JSON](tags)
        execute("UPDATE ideas SET meta = ? WHERE number = ?", (encode_text(told), number))
        self._tag(number, time, tags)
        return tuple(tags)

    def read(self, number: int) -> StoredIdea:
        """The idea in a row."""
        row = self._database.execute(
            f"SELECT id, request, context, {SOLUTION_OF}, contents.body, ideas.meta, {_MADE} FROM ideas "  # noqa: S608
            "JOIN contents ON contents.number = ideas.schema WHERE ideas.number = ?",
            (number,),
        ).fetchone()
        idea, request, context, solution, schema, *meta = row
        return StoredIdea(
            Idea(self._contents.context(context), decode_trusted(schema), decode_trusted(solution)),
            read_meta(*meta),
            idea.hex(),
            request.hex(),
        )

    def find(self, ref: str, seen: Callable[[list[int]], set[int]] | None = None) -> int | None:
        """The row of an id, or of a unique prefix of one.

        Args:
            ref: the id, or the prefix.
            seen: which of some rows count, where several start so: the others are to be as if they were not there.

        Raises:
            AmbiguousIdeaError: several ideas start so.
        """
        if _HEX.fullmatch(ref) is None:
            return None
        low = bytes.fromhex(ref.ljust(64, "0"))
        high = bytes.fromhex(ref.ljust(64, "f"))
        rows = self._database.execute(
            "SELECT number, id FROM ideas WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
            (low, high, 4 if seen is None else 1000),
        ).fetchall()
        if seen is not None and len(rows) > 1:
            passed = seen([row[0] for row in rows])
            rows = [row for row in rows if row[0] in passed]
        if len(rows) > 1:
            some = ", ".join(row[1].hex()[: len(ref) + 6] for row in rows)
            raise AmbiguousIdeaError(f"more than one idea starts with {ref!r}: {some}; write more digits")
        return rows[0][0] if rows else None

    def last_of_run(self, run: str) -> int | None:
        """The row of a run's last idea."""
        row = self._database.execute(
            "SELECT number FROM (SELECT number, step FROM ideas WHERE run = ?1 "
            "UNION ALL SELECT idea, step FROM occurrences WHERE run = ?1) ORDER BY step DESC, number DESC LIMIT 1",
            (run,),
        ).fetchone()
        return None if row is None else row[0]

    def runs_of(self, idea: str) -> list[str]:
        """The runs an idea occurred in."""
        rows = self._database.execute(
            "SELECT run FROM ideas WHERE id = ?1 AND run IS NOT NULL UNION SELECT occurrences.run FROM occurrences "
            "JOIN ideas ON ideas.number = occurrences.idea WHERE ideas.id = ?1",
            (bytes.fromhex(idea),),
        ).fetchall()
        return [row[0] for row in rows]

    def of_request(self, request: str) -> list[StoredIdea]:
        """The ideas that answer one Request, newest first."""
        if len(request) != 64 or _HEX.fullmatch(request) is None:
            return []
        rows = self._database.execute(
            "SELECT number FROM ideas WHERE request = ? ORDER BY number DESC", (bytes.fromhex(request),)
        ).fetchall()
        return [self.read(number) for (number,) in rows]

    def of_run(self, run: str) -> list[IdeaRecord]:
        """The ideas of a run by step, each with the metadata it has in that run."""
        rows = self._database.execute(
            f"{_RECORD} WHERE ideas.run = ?",
            (run,),
        ).fetchall()
        rows += self._database.execute(
            f"SELECT ideas.number, ideas.id, ideas.request, {_NAMES}, occurrences.meta, occurrences.run, "  # noqa: S608
            "occurrences.step, (SELECT fingerprint FROM runs WHERE runs.id = occurrences.run) FROM occurrences "
            "JOIN ideas ON ideas.number = occurrences.idea WHERE occurrences.run = ?",
            (run,),
        ).fetchall()
        found = [(row[0], read_record(row)) for row in rows]
        found.sort(key=lambda pair: (pair[1].meta.step or 0, pair[0]))
        return [record for _, record in found]

    def page(
        self, limit: int, after: str | None, run: str | None, chosen: IdeaFilter | None = None
    ) -> Page[IdeaRecord]:
        """Ideas, newest first: by the time they were saved, and of one time the last saved first."""
        chosen = chosen or IdeaFilter()
        below = Condition("", []) if after is None else _below(_read_place(after))
        places = self._newest(chosen, below, check_limit(limit) + 1, run)
        following = f"{places[limit - 1][1]}@{places[limit - 1][0]}" if len(places) > limit else None
        return Page(self.records([number for _, number in places[:limit]]), following)

    def newest(
        self, limit: int, chosen: IdeaFilter, most: int, seen: Callable[[list[int]], set[int]] | None
    ) -> list[IdeaRecord]:
        """The newest ideas that pass a filter and are among those `seen` says of some rows; at most `most` are looked
        at.
        """
        kept: list[int] = []
        size = limit
        below = Condition("", [])
        while most > 0:
            places = self._newest(chosen, below, size)
            numbers = [number for _, number in places]
            passed = set(numbers) if seen is None else seen(numbers)
            kept += [number for number in numbers if number in passed]
            if len(kept) >= limit or len(places) < size:
                break
            # Most are others': look at more of them at once.
            most, size = most - size, min(MAX_PAGE, size * 8)
            below = _below(places[-1])
        return self.records(kept[:limit])

    def chosen(self, numbers: list[int], chosen: IdeaFilter) -> set[int]:
        """Which of these rows pass a filter."""
        among = Condition("ideas.number IN (SELECT value FROM json_each(?)) AND ", [_listed(numbers)])
        return {number for _, number in self._select(EVERY, among.and_(chosen.columns()), chosen.uses, len(numbers))}

    def _newest(self, chosen: IdeaFilter, below: Condition, limit: int, run: str | None = None) -> list[Place]:
        """The newest ideas that pass a filter and come after a place in the list."""
        own = chosen.columns().and_(below)
        if run is not None:
            # A run has few ideas, whatever else is asked for.
            return self._select(of_run(run), own, chosen.uses, limit)
        counts = {use: self._uses.count(use, FEW) for use in chosen.uses}
        uses = sorted(counts, key=lambda use: counts[use])
        if not uses or (counts[uses[0]] == FEW and (chosen.outcome is not None or chosen.mind is not None)):
            # Many ideas have the rarest use: an index of `ideas` comes upon them soon.
            return self._select(EVERY, own, uses, limit)
        return self._select(using(uses[0]), own, uses[1:], limit)

    def _select(self, source: Source, own: Condition, uses: list[str], limit: int) -> list[Place]:
        """The newest ideas of a source that pass a condition and have all these uses."""
        rows = self._database.execute(
            f"SELECT ideas.time, ideas.number FROM {source.sql} WHERE {own.sql}{HAS_USE * len(uses)}1 "  # noqa: S608
            "ORDER BY ideas.time DESC, ideas.number DESC LIMIT ?",
            (*source.values, *own.values, *uses, limit),
        ).fetchall()
        return cast("list[Place]", rows)

    def records(self, numbers: list[int]) -> list[IdeaRecord]:
        """Lines for rows, in the order given."""
        rows = self._database.execute(
            f"SELECT record.* FROM json_each(?) AS part JOIN ({_RECORD}) AS record ON record.number = part.value "  # noqa: S608
            "ORDER BY part.key",
            (_listed(numbers),),
        ).fetchall()
        return [read_record(row) for row in rows]
