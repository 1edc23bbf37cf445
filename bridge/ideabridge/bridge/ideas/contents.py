"""Contents: messages, schemas and lists of messages, each stored once by content (DESIGN 4.11).

A context is kept as a JSON array of entries: a positive entry is the number of a message, a negative one the
number (negated) of a list of entries, stored the same way. A long context is cut where a fixed function of an
entry says so, so an equal stretch of two contexts gives equal lists wherever it stands, and each is stored once:
a step of a run that adds one message adds a bounded number of bytes, not a new list of the whole context. What
follows the last cut stays inline, for the next step will change it.
"""

from __future__ import annotations

import hashlib
from typing import Final, cast

from ideabridge.bridge.ideas.database import Database
from ideabridge.bridge.ideas.errors import StoreFormatError
from ideabridge.tools.encoding import JSON, decode_trusted

INLINE: Final = 64
"""Contexts up to this many entries are not cut."""

LONGEST: Final = 128
"""A stretch without a cut is cut here."""

_CACHED: Final = 16_384

SWEPT: Final = "swept"
"""Key of the counter that grows with each transaction that deletes contents: row numbers remembered are void then."""

_GENERATION: Final = f"SELECT value FROM counters WHERE key = '{SWEPT}'"  # noqa: S608 - a name of ours


def _ends(entry: int) -> bool:
    """Whether a stretch ends after `entry`: true for one in 32, by multiplicative hashing."""
    return (entry * 0x9E3779B1) & 0xFFFFFFFF < 0x08000000


def cut(entries: list[int]) -> tuple[list[list[int]], list[int]]:
    """The closed stretches of `entries`, and the open rest."""
    stretches: list[list[int]] = []
    start = 0
    for place, entry in enumerate(entries, 1):
        length = place - start
        if (length > 1 and _ends(entry)) or length >= LONGEST:
            stretches.append(entries[start:place])
            start = place
    return stretches, entries[start:]


class Contents:
    """The table `contents`. Every method runs inside a transaction or guard of the caller."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[bytes, int] = {}
        self._void = (0, 0)

    def put(self, schema: bytes, messages: list[bytes]) -> tuple[int, str]:
        """Store a schema and a context's messages; returns the schema's number, and the text of the context's entries.
        Inside a transaction.
        """
        # Void: row numbers that a rolled back transaction took away, or a sweep, by whichever process.
        void = self._database.rollbacks, self._database.number(_GENERATION)
        if void != self._void:
            self._void = void
            self._known.clear()
        return self._put(schema), _text(self._fold([self._put(body) for body in messages]))

    def _put(self, body: bytes) -> int:
        digest = hashlib.sha256(body).digest()
        number = self._known.get(digest)
        if number is not None:
            return number
        cursor = self._database.execute(
            "INSERT OR IGNORE INTO contents(hash, body) VALUES (?, ?)", (digest, body.decode())
        )
        if cursor.rowcount == 1:
            number = cast("int", cursor.lastrowid)
        else:
            number = self._database.number("SELECT number FROM contents WHERE hash = ?", (digest,))
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[digest] = number
        return number

    def _fold(self, entries: list[int]) -> list[int]:
        if len(entries) <= INLINE:
            return entries
        stretches, rest = cut(entries)
        heads = [-self._put(_text(stretch).encode()) for stretch in stretches]
        return [*self._fold(heads), *rest]

    def context(self, entries: str) -> list[JSON]:
        """The messages of a stored context.

        Raises:
            StoreFormatError: a part of it is missing.
        """
        texts = self.texts(self.unfold(entries))
        return cast("list[JSON]", decode_trusted(f"[{','.join(texts)}]"))

    def texts(self, numbers: list[int]) -> list[str]:
        """The JSON texts of messages, in order."""
        rows = self._database.execute(
            "SELECT contents.body FROM json_each(?) AS part JOIN contents ON contents.number = part.value "
            "ORDER BY part.key",
            (_text(numbers),),
        ).fetchall()
        if len(rows) != len(numbers):
            raise StoreFormatError(f"{self._database.path}: it is damaged: a context names a message it does not have")
        return [row[0] for row in rows]

    def unfold(self, entries: str) -> list[int]:
        """The numbers of the messages of a stored context, in order."""
        numbers: list[int] = []
        for entry in cast("list[int]", decode_trusted(entries)):
            if entry > 0:
                numbers.append(entry)
                continue
            row = self._database.execute("SELECT body FROM contents WHERE number = ?", (-entry,)).fetchone()
            if row is None:
                raise StoreFormatError(f"{self._database.path}: it is damaged: a context names a list it does not have")
            numbers += self.unfold(row[0])
        return numbers


def _text(entries: list[int]) -> str:
    return f"[{','.join(map(str, entries))}]"
