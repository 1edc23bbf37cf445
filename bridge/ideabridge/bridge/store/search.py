"""Full-text search over ideas and published names.

Saving an idea does not index the idea. `Ideas.index` indexes it later. The index does not store the
text, because the text can be read from the idea.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast

from ideabridge.bridge.store.contents import Contents
from ideabridge.bridge.store.database import Database, WordTable, number_list
from ideabridge.bridge.store.errors import CursorError
from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.users import Viewer, only_owner
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted

MAX_PAGE: Final = 1000
"""The maximum number of items on a page."""

OF_RUN: Final = 1
"""The value that stands for the run's own fingerprint in stored metadata."""

BATCH: Final = 256
"""The number of ideas that one transaction indexes. Indexing them takes about 10 ms."""

INDEXED: Final = "indexed"
"""The key of the counter that holds the row of the last indexed idea."""

MAX_TEXT: Final = 4000
"""The maximum number of characters of an idea's task text that are indexed."""

MAX_TERMS: Final = 32
"""The maximum number of words from a query that are used."""

SCORED: Final = 6000
"""The approximate maximum number of matches that are scored for a query. Rarer words are scored
first.
"""

_WORD: Final = re.compile(r"[^\W_]+")
# In scripts that have no spaces between words, every character counts as a word.
_SPACELESS: Final = re.compile(r"([\u2e80-\u9fff\uf900-\ufaff\u0e00-\u0eff\U00020000-\U0003ffff])")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
UNINDEXED: Final = "unindexed"
"""The key of the counter of deleted ideas that the index still holds."""

_REBUILT: Final = "rebuilt"
"""The key of the counter of rebuilds that were started. Only the latest rebuild continues. Earlier
rebuilds stop.
"""

OPEN_TO: Final = (
    "(?1 IS NULL OR names.owner IN ('', ?1) "
    "OR names.name IN (SELECT shares.name FROM shares WHERE shares.caller IN ('', ?1)))"
)
"""The SQL condition that a name is open to a caller (the first parameter). It is true for every
name if the caller is NULL.
"""


def check_limit(limit: int) -> int:
    """Return `limit` if it is a valid number of items for a page.

    Raises:
        CursorError: `limit` is not between 1 and `MAX_PAGE`.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise CursorError(f"limit must be from 1 to {MAX_PAGE}, found {limit}")
    return limit


def read_cursor(after: str | None) -> int:
    """Return the row number in a cursor. The next page contains smaller row numbers.

    Raises:
        CursorError: the cursor does not belong to a list of this kind.
    """
    if after is None:
        return 2**62
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise CursorError(
            f"{after[:40]!r} is not a cursor for this list; pass the `next` of the previous page"
        )
    return int(after)


def read_meta(
    text: str, run: str | None = None, step: int | None = None, fingerprint: str | None = None
) -> IdeaMeta:
    """Read metadata from its stored text, and from the columns for what the text leaves out: the
    run, the step, and the run's fingerprint.
    """
    meta = cast("JSONObject", decode_trusted(text))
    if run is not None:
        meta["run"] = run

    if step:
        meta["step"] = step

    if meta.get("fingerprint") == OF_RUN:
        meta["fingerprint"] = fingerprint or ""

    return IdeaMeta.from_json(meta)


def last_of_run(database: Database, run: str) -> int:
    """Return the row of the last step of a run, or 0 if there is none. Only ideas that this run was
    the first to save are considered. Call this inside a guard or transaction.
    """
    return database.number(
        "SELECT number FROM ideas WHERE run = ? ORDER BY step DESC NULLS LAST, number DESC LIMIT 1",
        (run,),
    )


def indexed_words(text: str) -> list[str]:
    """Return the words of a query or text, split as in the index. Words consist of letters and
    digits only.
    """
    folded = unicodedata.normalize("NFC", text[: MAX_TEXT * 2])
    return _WORD.findall(_SPACELESS.sub(r" \1 ", folded))


def indexable(text: str) -> str:
    """Convert a string to the form in which it is indexed."""
    if text.isascii():
        return text
    return _SPACELESS.sub(r" \1 ", unicodedata.normalize("NFC", text))


def tool_words(tools: tuple[str, ...]) -> str:
    """Return tool names as words. Names in camelCase are followed by their parts."""
    joined = " ".join(tools)
    split = _CAMEL.sub(" ", joined)
    return joined if split == joined else f"{joined} {split}"


def task_text(messages: list[JSON]) -> str:
    """Return the text messages in a context, except system messages, up to `MAX_TEXT`
    characters.
    """
    parts: list[str] = []
    left = MAX_TEXT
    for message in messages:
        text = _text_of(message)
        if text and left > 0:
            parts.append(text[:left])
            left -= len(text)

    return "\n".join(parts)


def _text_of(message: JSON) -> str:
    """Return the text of a text message (a string or an object), or "" for other messages."""
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
Kept = TypeVar("Kept")

Entry = tuple[str, str, str]
"""The indexed text of one idea: `(title and description, tools, tasks and tags)`."""


def ends(context: list[Item]) -> list[Item]:
    """Return the start of a context, which contains the task, and its end, leaving out the results
    of calls in between.
    """
    return context if len(context) <= 24 else [*context[:16], *context[-8:]]


def read_entry(messages: list[JSON], meta: IdeaMeta) -> Entry:
    """Return the indexed text of an idea."""
    return (
        indexable(f"{meta.title}\n{meta.description}"[:MAX_TEXT]),
        tool_words(meta.tools)[:MAX_TEXT],
        indexable(" ".join((task_text(messages), *meta.tags))),
    )


def widen(
    limit: int,
    fetch: Callable[[int], list[Item]],
    keep: Callable[[list[Item]], list[Kept]],
    first: int = 0,
) -> list[Kept]:
    """Fetch more and more rows until `keep` has selected `limit` of them, or there are no more rows
    to fetch. Return the selected rows.

    Args:
        limit: the maximum number of rows to return.
        fetch: returns the given number of best rows. It is called with growing numbers, up to
            `SCORED`.
        keep: selects or converts rows.
        first: the number of rows to fetch at first, by default `limit`.
    """
    size = first or limit
    while True:
        rows = fetch(size)
        selected = keep(rows)
        if len(selected) >= limit or len(rows) < size or size >= SCORED:
            return selected[:limit]
        size = min(SCORED, size * 8)


def _terms(query: str) -> list[str]:
    return [*dict.fromkeys(indexed_words(query.lower()))][:MAX_TERMS]


class Search:
    """The tables `idea_words` and `publication_words`. Callers must hold a transaction or the
    guard.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._voids = 0
        self._indexed: dict[str, Entry] = {}

    def index(self, table: WordTable, after: int, until: int, most: int) -> tuple[int, int]:
        """Index the words of the next ideas. Call this inside a transaction.

        Args:
            table: `idea_words`, or the table that will replace it.
            after: the last row that is already in the table.
            until: the last row to index.
            most: the maximum number of ideas to index.

        Returns:
            `(number of ideas, last row that is now in the table)`.
        """
        if self._voids != self._database.voids:
            # A transaction was rolled back, perhaps together with entries in the index, so forget
            # what has been indexed.
            self._voids = self._database.voids
            self._indexed.clear()

        rows = self._database.execute(
            "SELECT number, run, meta, context FROM ideas WHERE number > ? AND number <= ? "
            "ORDER BY number LIMIT ?",
            (after, until, most),
        ).fetchall()
        entries: list[tuple[int | str, ...]] = []
        for number, run, meta, context in rows:
            texts = self._contents.texts(ends(self._contents.unfold(context)))
            messages = cast("list[JSON]", decode_trusted(f"[{','.join(texts)}]"))
            entry = read_entry(messages, read_meta(meta))
            # Most steps of a run have the same words. A hit leads to the last idea of the run, so
            # one entry is enough.
            if run is not None:
                if self._indexed.get(run) == entry:
                    continue
                if len(self._indexed) > BATCH:
                    self._indexed.clear()
                self._indexed[run] = entry

            entries.append((number, *entry))

        self._database.words.add(table, entries)
        return len(rows), rows[-1][0] if rows else after

    def rebuild(self, breathe: Callable[[], None]) -> None:
        """Index all existing ideas again, in a new table.

        Searches use the old table until the new one replaces it. Other processes can write during
        the rebuild.

        Args:
            breathe: called between transactions.
        """
        with self._database.transaction():
            self._database.words.begin_rebuild()
            gone = self._database.counter(UNINDEXED)
            self._database.count(_REBUILT, 1)
            rebuild = self._database.counter(_REBUILT)

        self._indexed.clear()
        last = 0
        most = BATCH
        left = 2**62
        while True:
            with self._database.transaction():
                if self._database.counter(_REBUILT) != rebuild:
                    # Another process has since started a rebuild, and its table will contain at
                    # least as much.
                    return

                mark = self._database.counter(INDEXED)
                # Use larger and larger batches to catch up, because other processes can index more
                # than one batch while this process indexes one.
                most, left = (most if mark - last < left else most * 2), mark - last
                count, last = self.index("idea_words_new", last, mark, most)
                if count < most:
                    self._database.words.end_rebuild()
                    self._database.count(UNINDEXED, -gone)
                    self._indexed.clear()
                    return

            breathe()

    def forget(self, ideas: list[int]) -> None:
        """Remove deleted ideas from the index, or count them for the next rebuild. Call this inside
        a transaction.
        """
        if not self._database.words.remove("idea_words", ideas):
            self._database.count(UNINDEXED, len(ideas))

    def gone(self) -> bool:
        """Return whether the index contains ideas that were deleted."""
        return self._database.counter(UNINDEXED) > 0

    def find(
        self, query: str, limit: int, caller: Viewer, *, begins: bool = False
    ) -> list[tuple[int, float]]:
        """Return `(row, score)` for matching ideas, best first: ideas published under a matching
        name, then all others.

        Args:
            query: any text. It is split into words, so it cannot contain FTS5 syntax.
            limit: the maximum number of ideas.
            caller: the caller. Names that are not published to this caller are ignored, because a
                hit would confirm a guess at words in another caller's name or description. The
                owners of the ideas are not checked.
            begins: True to match the words as prefixes.
        """
        terms = _terms(query)
        if not terms:
            return []

        scores = self._named(terms, limit, caller, begins)

        def last_of_runs(matched: list[tuple[int, float]]) -> list[tuple[int, float]]:
            for number, score in matched:
                latest = self._latest(number)
                if latest:
                    scores.setdefault(latest, score)
            return list(scores.items())

        # Read more rows than the limit, because several matches can belong to one run, or to
        # deleted ideas.
        return widen(
            limit, partial(self._match, "idea_words", terms, begins), last_of_runs, limit * 2 + 10
        )

    def _named(
        self, terms: list[str], limit: int, caller: Viewer, begins: bool
    ) -> dict[int, float]:
        """Return the ideas published under matching names that are open to the caller, with their
        scores.
        """

        def open_names(matched: list[tuple[int, float]]) -> list[tuple[int, float]]:
            numbers = number_list(number for number, _ in matched)
            rows = self._database.execute(
                "SELECT names.number, p.idea FROM json_each(?2) AS part "  # noqa: S608
                "JOIN names ON names.number = CAST(part.value AS BIGINT) "
                "JOIN publications AS p ON p.name = names.name AND p.version = names.version "
                f"WHERE {OPEN_TO}",
                (only_owner(caller), numbers),
            ).fetchall()
            ideas = dict(rows)
            return [(ideas[number], 1000.0 + score) for number, score in matched if number in ideas]

        scores: dict[int, float] = {}
        for idea, score in widen(
            limit, partial(self._match, "publication_words", terms, begins), open_names
        ):
            scores.setdefault(idea, score)

        return scores

    def find_names(self, query: str, limit: int, *, begins: bool = False) -> list[int]:
        """Return the rows of published names that match the words, best first. For `begins`, see
        `find`.
        """
        terms = _terms(query)
        if terms:
            return [number for number, _ in self._match("publication_words", terms, begins, limit)]
        return []

    def _latest(self, number: int) -> int:
        """Return the last idea of an idea's run, the idea itself if it has no run, or 0 if the idea
        was deleted.
        """
        row = self._database.execute("SELECT run FROM ideas WHERE number = ?", (number,)).fetchone()
        if row is None:
            return 0
        return number if row[0] is None else last_of_run(self._database, row[0])

    def _match(
        self, table: WordTable, terms: list[str], begins: bool, limit: int
    ) -> list[tuple[int, float]]:
        words = self._database.words
        # Stop counting once a term is too common to be scored.
        if begins:
            counts = {}
        else:
            counts = {term: words.count(table, term, SCORED + 1) for term in terms}

        present = sorted(
            (term for term in terms if counts.get(term)), key=lambda term: counts[term]
        )
        if not present:
            # No entry contains any of these words, so try them as prefixes.
            starts = [term for term in terms if len(term) > 2]
            if starts:
                return words.newest(table, starts, limit, every=False, begins=True)
            return []

        if counts[present[0]] > SCORED:
            # All the words are very common, so scoring would be slow and of little use.
            newest = words.newest(table, present, limit, every=True)
            return newest or words.newest(table, present, limit, every=False)

        chosen = present[:1]
        total = counts[present[0]]
        for term in present[1:]:
            total += counts[term]
            if total > SCORED:
                break
            chosen.append(term)

        best = words.best(table, chosen, limit, every=True)
        if len(chosen) > 1 and len(best) < limit:
            with_every = {number for number, _ in best}
            with_any = words.best(table, chosen, limit + len(best), every=False)
            best += [row for row in with_any if row[0] not in with_every]

        return best[:limit]
