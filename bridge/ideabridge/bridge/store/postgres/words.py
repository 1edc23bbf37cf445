"""The full-text index of a store in PostgreSQL.

PostgreSQL's parser would split addresses, paths and hyphenated words in its own way. So this module
splits text into words in the same way as for SQLite, and removes accents. PostgreSQL only stems the
words. The ranking of PostgreSQL does not consider how rare a word is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from ideabridge.bridge.store.database import Database, WordIndex, WordTable

_WORD: Final = re.compile(r"[^\W_]+")
_LONGEST_WORD: Final = 500
"""The maximum number of characters in a word. Longer words are cut, because PostgreSQL refuses
words of 2 KB.
"""

_WEIGHTS: Final = "ABC"
"""The weights of a table's columns, in order: title or name, tools or description, body."""

_RANK: Final = "ts_rank('{0.1, 0.25, 0.5, 1.0}', words, to_tsquery('stemmed', ?2), 1)"


class PostgresWords(WordIndex):
    """The tables `idea_words` and `publication_words`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, table: WordTable, rows: Sequence[tuple[int | str, ...]]) -> None:
        if not rows:
            return

        columns = len(rows[0]) - 1
        vectors = [f"setweight(to_tsvector('stemmed', ?), '{key}')" for key in _WEIGHTS[:columns]]
        folded_rows: list[tuple[int | str, ...]] = []
        for rowid, *texts in rows:
            folded_rows.append((rowid, *[_folded(str(text)) for text in texts]))

        self._database.many(
            f"INSERT INTO {table}(rowid, words) VALUES (?, {' || '.join(vectors)})",  # noqa: S608 - constants
            folded_rows,
        )

    def remove(self, table: WordTable, rows: Sequence[int]) -> bool:
        self._database.many(f"DELETE FROM {table} WHERE rowid = ?", [(row,) for row in rows])  # noqa: S608
        return True

    def count(self, table: WordTable, word: str, most: int) -> int:
        return self._database.number(
            "SELECT count(*) FROM "  # noqa: S608
            f"(SELECT 1 FROM {table} WHERE words @@ to_tsquery('stemmed', ?) LIMIT ?) AS found",
            (_query([word]), most),
        )

    def best(
        self, table: WordTable, words: Sequence[str], limit: int, *, every: bool
    ) -> list[tuple[int, float]]:
        rows = self._database.execute(
            f"SELECT rowid, {_RANK} AS score FROM {table} WHERE words @@ to_tsquery('stemmed', ?2) "  # noqa: S608
            "ORDER BY score DESC, rowid DESC LIMIT ?1",
            (limit, _query(words, every=every)),
        )
        return [(rowid, score) for rowid, score in rows]

    def newest(
        self,
        table: WordTable,
        words: Sequence[str],
        limit: int,
        *,
        every: bool,
        begins: bool = False,
    ) -> list[tuple[int, float]]:
        rows = self._database.execute(
            f"SELECT rowid FROM {table} WHERE words @@ to_tsquery('stemmed', ?) "  # noqa: S608
            "ORDER BY rowid DESC LIMIT ?",
            (_query(words, every=every, begins=begins), limit),
        )
        # These words are not ranked.
        return [(rowid, 0.0) for (rowid,) in rows]


def _folded(text: str) -> str:
    """Return the words of a string in lower case, without accents."""
    if not text.isascii():
        # An accent becomes a sign of its own behind its letter.
        signs = unicodedata.normalize("NFKD", text)
        text = "".join(sign for sign in signs if not unicodedata.combining(sign))

    words = _WORD.findall(text.lower())
    return " ".join(word[:_LONGEST_WORD] for word in words)


def _query(words: Sequence[str], *, every: bool = True, begins: bool = False) -> str:
    # A word consists only of letters and digits, so it cannot contain any query syntax.
    suffix = ":*" if begins else ""
    parts: list[str] = []
    for word in words:
        for part in _folded(word).split():
            parts.append(f"{part}{suffix}")

    operator = " & " if every else " | "
    return operator.join(parts)
