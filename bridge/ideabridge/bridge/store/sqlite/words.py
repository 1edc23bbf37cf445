"""The full-text index of a store in SQLite, which uses FTS5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ideabridge.bridge.store.database import Database, WordIndex, WordTable

_IDEA_COLUMNS: Final = ("title", "tools", "body")
_COLUMNS: Final[Mapping[WordTable, tuple[str, ...]]] = {
    "idea_words": _IDEA_COLUMNS,
    "idea_words_new": _IDEA_COLUMNS,
    "publication_words": ("name", "description"),
}
_RANK: Final = {"idea_words": "bm25(4.0, 2.0, 1.0)", "publication_words": "bm25(4.0, 1.0)"}


class SqliteWords(WordIndex):
    """The tables `idea_words`, which does not store a copy of its text, and `publication_words`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, table: WordTable, rows: Sequence[tuple[int | str, ...]]) -> None:
        columns = _COLUMNS[table]
        self._database.many(
            f"INSERT INTO {table}(rowid, {', '.join(columns)}) VALUES (?{', ?' * len(columns)})",  # noqa: S608
            rows,
        )

    def remove(self, table: WordTable, rows: Sequence[int]) -> bool:
        if table != "publication_words":
            # In a table that stores no text, FTS5 can delete a row only when it is given the text
            # of the row.
            return False
        self._database.many(
            "DELETE FROM publication_words WHERE rowid = ?", [(row,) for row in rows]
        )
        return True

    def count(self, table: WordTable, word: str, most: int) -> int:
        return self._database.number(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)",  # noqa: S608
            (_match([word]), most),
        )

    def best(
        self, table: WordTable, words: Sequence[str], limit: int, *, every: bool
    ) -> list[tuple[int, float]]:
        rows = self._database.execute(
            f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? AND rank MATCH ? "  # noqa: S608
            "ORDER BY rank LIMIT ?",
            (_match(words, every=every), _RANK[table], limit),
        )
        return [(row[0], row[1]) for row in rows]

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
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC LIMIT ?",  # noqa: S608
            (_match(words, every=every, begins=begins), limit),
        )
        return [(row[0], 0.0) for row in rows]

    def begin_rebuild(self) -> None:
        execute = self._database.execute
        # Drop the table first, because a rebuild that was interrupted leaves its table behind.
        execute("DROP TABLE IF EXISTS idea_words_new")
        (statement,) = execute("SELECT sql FROM sqlite_master WHERE name = 'idea_words'").fetchone()
        execute(f"CREATE VIRTUAL TABLE idea_words_new USING {statement.partition(' USING ')[2]}")

    def end_rebuild(self) -> None:
        execute = self._database.execute
        execute("DROP TABLE idea_words")
        # The user might have created a view that reads this table. Without the pragma, such a view
        # would prevent the renaming.
        execute("PRAGMA legacy_alter_table=ON")
        try:
            execute("ALTER TABLE idea_words_new RENAME TO idea_words")
        finally:
            execute("PRAGMA legacy_alter_table=OFF")


def _match(words: Sequence[str], *, every: bool = True, begins: bool = False) -> str:
    # A word consists only of letters and digits, so it can safely be put in quotes.
    operator = " AND " if every else " OR "
    wildcard = "*" if begins else ""
    return operator.join(f'"{word}"{wildcard}' for word in words)
