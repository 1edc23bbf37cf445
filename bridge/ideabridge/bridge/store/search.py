"""Search: full-text search over ideas and published names.

A save does not index: the next search does, or whoever has time (`Ideas.index`), or, once too much is left
over, a later save. What is indexed can be read again from the idea, so the index keeps no copy of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar, cast

from ideabridge.bridge.store.contents import Contents
from ideabridge.bridge.store.database import Database, now_text
from ideabridge.bridge.store.errors import AmbiguousIdeaError, CursorError
from ideabridge.bridge.store.filters import Condition, IdeaFilter
from ideabridge.bridge.store.idea import Idea, IdeaMeta, IdeaRecord, Page, StoredIdea
from ideabridge.bridge.store.schema import SOLUTION_OF
from ideabridge.bridge.store.shapes import EVERY, HAS_USE, Place, Source, Uses, of_run, using
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text

# -- table -----------------------------------------------------------------------------------------------------------
#
# IdeaTable: saved ideas: save, read, list, and find by id, prefix, request or run.

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


# -- search ----------------------------------------------------------------------------------------------------------

BATCH: Final = 256
"""So many ideas are indexed in one transaction: some 10 ms."""

LAG: Final = 2048
"""At most about so many ideas wait to be indexed."""

MAX_TEXT: Final = 4000
"""Characters of task text indexed of one idea."""

MAX_TERMS: Final = 32
"""Words of a query that count."""

SCORED: Final = 6000
"""At most about so many matches are scored for one query; rarer words go first."""

_WORD: Final = re.compile(r"[^\W_]+")
# Scripts written without spaces: every character is a word of its own.
_SPACELESS: Final = re.compile(r"([\u2e80-\u9fff\uf900-\ufaff\u0e00-\u0eff\U00020000-\U0003ffff])")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
UNINDEXED: Final = "unindexed"
"""Key of the counter of deleted ideas that the index still holds."""

_GONE: Final = f"SELECT value FROM counters WHERE key = '{UNINDEXED}'"  # noqa: S608 - a constant
_REBUILT: Final = "rebuilt"
"""Key of the counter of how often it was begun to index all anew: the latest to begin goes on, the others end."""

_REBUILDS: Final = f"SELECT value FROM counters WHERE key = '{_REBUILT}'"  # noqa: S608 - a constant
_RANK: Final = {"idea_words": "bm25(4.0, 2.0, 1.0)", "publication_words": "bm25(4.0, 1.0)"}


def words_of(text: str) -> list[str]:
    """The words of a query or text as the index takes them: each is letters and digits only."""
    folded = unicodedata.normalize("NFC", text[: MAX_TEXT * 2])
    return _WORD.findall(_SPACELESS.sub(r" \1 ", folded))


def indexable(text: str) -> str:
    """Text as it goes into the index."""
    return text if text.isascii() else _SPACELESS.sub(r" \1 ", unicodedata.normalize("NFC", text))


def tool_words(tools: tuple[str, ...]) -> str:
    """Tool names with camelCase also split."""
    joined = " ".join(tools)
    split = _CAMEL.sub(" ", joined)
    return joined if split == joined else f"{joined} {split}"


def task_text(messages: list[JSON]) -> str:
    """The text messages of a context that are not a system's, up to `MAX_TEXT` characters."""
    parts: list[str] = []
    left = MAX_TEXT
    for message in messages:
        text = _text_of(message)
        if text and left > 0:
            parts.append(text[:left])
            left -= len(text)
    return "\n".join(parts)


def _text_of(message: JSON) -> str:
    """The text of a text message in any of its spellings; "" for others."""
    if isinstance(message, str):
        return message
    if not isinstance(message, dict) or message.get("role") == "system":
        return ""
    content = message.get("content", message)
    if isinstance(content, str):
        return content
    if isinstance(content, dict) and content.get("type") == "text":
        text = content.get("text")
        return text if isinstance(text, str) else ""
    return ""


Item = TypeVar("Item")

Entry = tuple[str, str, str]
"""What is indexed of one idea: title and description, tools, task texts and tags."""


def ends(context: list[Item]) -> list[Item]:
    """The parts of a context that are read for text: the task stands early, the newest late, between are results."""
    return context if len(context) <= 24 else [*context[:16], *context[-8:]]


def read_entry(messages: list[JSON], meta: IdeaMeta) -> Entry:
    """What is indexed of an idea."""
    return (
        indexable(f"{meta.title}\n{meta.description}"[:MAX_TEXT]),
        tool_words(meta.tools)[:MAX_TEXT],
        indexable(" ".join((task_text(messages), *meta.tags))),
    )


def _terms(query: str) -> list[str]:
    # A word is letters and digits only, so that quoting it is safe.
    return [f'"{word}"' for word in dict.fromkeys(words_of(query.lower()))][:MAX_TERMS]


class Search:
    """The tables `idea_words` and `publication_words`. Methods run inside a transaction or guard of the caller."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._voids = 0
        self._seen = 0
        self._said: dict[str, Entry] = {}

    def saved(self, number: int) -> None:
        """An idea is saved in a row: index a batch where too many wait. Inside the save's transaction."""
        if number - self._seen > LAG:
            self.catch_up(BATCH)

    def behind(self) -> int:
        """At most how many saved ideas are not indexed."""
        return max(0, self._database.number("SELECT max(number) FROM ideas") - self._mark())

    def _mark(self) -> int:
        return self._database.number("SELECT value FROM counters WHERE key = 'indexed'")

    def catch_up(self, most: int) -> int:
        """Index up to `most` ideas that are not yet; returns how many it took up. Inside a transaction."""
        if self._voids != self._database.voids:
            # What was indexed in a rolled back transaction is not.
            self._voids = self._database.voids
            self._said.clear()
        self._seen = self._mark()
        taken = self._take_up("idea_words", self._seen, None, most)
        if taken is None:
            return 0
        count, self._seen = taken
        self._database.execute(
            "INSERT INTO counters(key, value) VALUES ('indexed', ?1) ON CONFLICT(key) DO UPDATE SET value = ?1",
            (self._seen,),
        )
        return count

    def _take_up(self, table: str, after: int, until: int | None, most: int) -> tuple[int, int] | None:
        """Index up to `most` ideas whose rows are after one, up to another; (how many, the last of them)."""
        rows = self._database.execute(
            "SELECT number, run, meta, context FROM ideas WHERE number > ? AND number <= ? ORDER BY number LIMIT ?",
            (after, 2**62 if until is None else until, most),
        ).fetchall()
        if not rows:
            return None
        entries: list[tuple[int, str, str, str]] = []
        for number, run, meta, context in rows:
            texts = self._contents.texts(ends(self._contents.unfold(context)))
            messages = cast("list[JSON]", decode_trusted(f"[{','.join(texts)}]"))
            entry = read_entry(messages, read_meta(meta))
            # A run's steps mostly say the same: found once, the hit leads to the run's last idea all the same.
            if run is not None:
                if self._said.get(run) == entry:
                    continue
                if len(self._said) > BATCH:
                    self._said.clear()
                self._said[run] = entry
            entries.append((number, *entry))
        self._database.connection.executemany(
            f"INSERT INTO {table}(rowid, title, tools, body) VALUES (?, ?, ?, ?)",  # noqa: S608 - a constant
            entries,
        )
        return len(rows), rows[-1][0]

    def rebuild(self, breathe: Callable[[], None]) -> None:
        """Index all ideas anew, without what was deleted: beside the old index, which is searched until the new one
        takes its place. Others write meanwhile.

        Args:
            breathe: called between transactions.
        """
        execute = self._database.execute
        with self._database.transaction():
            # A rebuild that was cut off leaves its index behind.
            execute("DROP TABLE IF EXISTS idea_words_new")
            (made,) = execute("SELECT sql FROM sqlite_master WHERE name = 'idea_words'").fetchone()
            execute(f"CREATE VIRTUAL TABLE idea_words_new USING {made.partition(' USING ')[2]}")
            gone = self._database.number(_GONE)
            self._database.count(_REBUILT, 1)
            ours = self._database.number(_REBUILDS)
        self._said.clear()
        last, most, left = 0, BATCH, 2**62
        while True:
            with self._database.transaction():
                if self._database.number(_REBUILDS) != ours:
                    # Another process has begun since, and what it makes holds no less.
                    return
                mark = self._mark()
                # Others may index more meanwhile than a batch: a larger one gains on them.
                most, left = (most if mark - last < left else most * 2), mark - last
                count, last = self._take_up("idea_words_new", last, mark, most) or (0, last)
                if count < most:
                    execute("DROP TABLE idea_words")
                    # Else a view of the user's that reads it hinders this: for a moment there is no such table.
                    execute("PRAGMA legacy_alter_table=ON")
                    try:
                        execute("ALTER TABLE idea_words_new RENAME TO idea_words")
                    finally:
                        execute("PRAGMA legacy_alter_table=OFF")
                    self._database.count(UNINDEXED, -gone)
                    self._said.clear()
                    return
            breathe()

    def gone(self) -> bool:
        """Whether the index holds ideas that were deleted."""
        return self._database.number(_GONE) > 0

    def find(
        self, query: str, limit: int, caller: str | None = None, *, begins: bool = False
    ) -> list[tuple[int, float]]:
        """Rows of ideas for words, best first: what is published under such a name first, then the others.

        Any text is taken: it is cut into words, and nothing of it is FTS5 syntax.

        Args:
            query: the words.
            limit: how many at most.
            caller: only names that are published to this caller count: a hit would confirm a guess at the words of
                another's name or description. None: all names. Whose the ideas are, is not looked at.
            begins: the words are beginnings of words.
        """
        terms = _terms(query)
        if not terms:
            return []
        scores = self._named(terms, limit, caller, begins)
        fetch = limit * 2 + 10
        while True:
            found = self._match("idea_words", terms, fetch, begins)
            for number, score in found:
                latest = self._latest(number)
                if latest:
                    scores.setdefault(latest, score)
            if len(scores) >= limit or len(found) < fetch or fetch >= SCORED:
                return list(scores.items())[:limit]
            # Many were of the same runs, or of deleted ideas: look further down.
            fetch = min(SCORED, fetch * 8)

    def _named(self, terms: list[str], limit: int, caller: str | None, begins: bool) -> dict[int, float]:
        """The ideas that names stand for which are published to a caller, with their scores."""
        fetch = limit
        while True:
            matched = self._match("publication_words", terms, fetch, begins)
            rows = self._database.execute(
                "SELECT names.number, p.idea FROM json_each(?2) AS part JOIN names ON names.number = part.value "
                "JOIN publications AS p ON p.name = names.name AND p.version = names.version "
                "WHERE ?1 IS NULL OR names.owner IN ('', ?1) "
                "OR names.name IN (SELECT shares.name FROM shares WHERE shares.caller IN ('', ?1))",
                (caller, f"[{','.join(str(number) for number, _ in matched)}]"),
            ).fetchall()
            if len(rows) >= limit or len(matched) < fetch or fetch >= SCORED:
                break
            # Most are others': look further down.
            fetch = min(SCORED, fetch * 8)
        ideas = dict(rows)
        scores: dict[int, float] = {}
        for number, score in matched:
            if number in ideas:
                scores.setdefault(ideas[number], 1000.0 + score)
        return scores

    def find_names(self, query: str, limit: int, *, begins: bool = False) -> list[int]:
        """Rows of published names for words, best first; `begins` as for `find`."""
        terms = _terms(query)
        return [number for number, _ in self._match("publication_words", terms, limit, begins)] if terms else []

    def _latest(self, number: int) -> int:
        """The last idea of the run an idea belongs to, or itself; 0: it was deleted."""
        row = self._database.execute("SELECT run FROM ideas WHERE number = ?", (number,)).fetchone()
        if row is None:
            return 0
        return number if row[0] is None else last_of_run(self._database, row[0])

    def _match(self, table: str, terms: list[str], limit: int, begins: bool) -> list[tuple[int, float]]:
        counts = {} if begins else {term: self._count(table, term) for term in terms}
        present = sorted((term for term in terms if counts.get(term)), key=lambda term: counts[term])
        if not present:
            # Perhaps the words are beginnings of words.
            starts = [f"{term}*" for term in terms if len(term) > 4]
            return self._newest(table, " OR ".join(starts), limit) if starts else []
        if counts[present[0]] > SCORED:
            # Every word is very common: scores would say little and cost much.
            found = self._newest(table, " AND ".join(present), limit)
            return found or self._newest(table, " OR ".join(present), limit)
        chosen = present[:1]
        total = counts[present[0]]
        for term in present[1:]:
            total += counts[term]
            if total > SCORED:
                break
            chosen.append(term)
        found = self._best(table, " AND ".join(chosen), limit)
        if len(chosen) > 1 and len(found) < limit:
            both = dict(self._best(table, " OR ".join(chosen), limit + len(found)))
            found += [(number, score) for number, score in both.items() if number not in dict(found)]
        return found[:limit]

    def _count(self, table: str, term: str) -> int:
        """In how many rows a term is; counting stops once it is too common to be scored."""
        return self._database.number(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT {SCORED + 1})",  # noqa: S608
            (term,),
        )

    def _best(self, table: str, match: str, limit: int) -> list[tuple[int, float]]:
        rows = self._database.execute(
            f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? AND rank MATCH ? ORDER BY rank LIMIT ?",  # noqa: S608
            (match, _RANK[table], limit),
        )
        return [(row[0], row[1]) for row in rows]

    def _newest(self, table: str, match: str, limit: int) -> list[tuple[int, float]]:
        rows = self._database.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC LIMIT ?",  # noqa: S608
            (match, limit),
        )
        return [(row[0], 0.0) for row in rows]
