"""Store messages, schemas and lists of messages by content, so that each is stored only once.

A context is stored as a JSON array of entries. A positive entry is the number of a message. A
negative entry is the negated number of a list of entries, which is stored in the same way. Whether
a long context is cut after an entry depends only on that entry, so equal stretches of two contexts
become equal lists, wherever they are, and are stored once. A step of a run that adds one message
adds a bounded number of bytes, not a new list of the whole context. The entries after the last cut
stay inline, because the next step changes them.

If there were an index of hashes, each save would write an additional page for each new row. The
store therefore writes `content_keys` for many rows at a time. Until the keys are written, each
process remembers the latest rows.

A string of more than `LONG_BYTES` bytes is stored as a rope: `~` and the entries of its pieces,
which are contents as well. A state that grows with each step adds only its new pieces and a list of
limited size. The row stores the hash of the whole string, and the view `whole_contents` shows the
string itself. JSON never begins with `~`, and pieces are shorter than strings that are cut, so a
row can never be mistaken for a row of a different kind.

Events in journals refer to contents, too. Parts that many runs repeat (definitions of tools,
settings, schemas), and parts of the run's ideas (messages, Solutions), are moved out of the event.
Its column `parts` refers to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, cast

from ideabridge.bridge.context.body import Body, body_of
from ideabridge.bridge.store.database import Database, number_list
from ideabridge.bridge.store.errors import StoreFormatError
from ideabridge.bridge.store.idea import Encoded
from ideabridge.bridge.store.ropes import LONG_BYTES, cut
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text

INLINE: Final = 64
"""The maximum number of entries in a context that is not cut."""

LONGEST_STRETCH: Final = 128
"""The maximum number of entries in a stretch. A longer stretch is always cut."""

LAG: Final = 1024
"""The approximate maximum number of rows that are not yet in `content_keys`."""

CACHED_ROWS: Final = 16_384
"""The maximum number of row numbers that a process remembers."""

SWEPT: Final = "swept"
"""The key of the counter of transactions that deleted contents. Each of these transactions
invalidates the remembered row numbers.
"""

_KEYED: Final = "keyed"
"""The key of the counter that holds the last row in `content_keys`."""

PARTS: Final = {
    "run_started": ("context", "tools", "settings", "output_schema", "why"),
    "request_made": ("offered",),
    "call_decided": ("tool",),
    "solution_proposed": ("calls", "output"),
}
"""The members of events that are stored in `contents`. `calls` and `output` together are one
content: the Solution of an idea.
"""

_OF_CONFIGURATION: Final = ("tools", "settings", "offered")

SOLUTION: Final = "solution"
"""The part of an event that is a whole Solution."""

ROPE: Final = "~"
"""The first character of a rope."""

SHORT_BYTES: Final = 128
"""A member or Solution of fewer bytes stays in the event, because a row of `contents` takes about
60 bytes in addition to its text.
"""

_MOST_INLINE: Final = 8
"""The maximum number of messages or tools in an event whose list stays in the event. Longer lists
are stored in `contents`.
"""

_FIRST: Final = Struct(">q")


def key_of(digest: bytes) -> int:
    """Return the key of a row in `content_keys`: the first 8 bytes of its digest.

    Lookups then compare the whole digest.
    """
    return cast("int", _FIRST.unpack_from(digest)[0])


def _ends(entry: int) -> bool:
    """Return whether a stretch ends after `entry`.

    Multiplicative hashing picks about one entry in 32.
    """
    return (entry * 0x9E3779B1) & 0xFFFFFFFF < 0x08000000


def stretches_of(entries: list[int]) -> tuple[list[list[int]], list[int]]:
    """Split `entries` into closed stretches and the remaining entries, whose stretch is still
    open.
    """
    stretches: list[list[int]] = []
    start = 0
    for place, entry in enumerate(entries, 1):
        length = place - start
        if (length > 1 and _ends(entry)) or length >= LONGEST_STRETCH:
            stretches.append(entries[start:place])
            start = place

    return stretches, entries[start:]


StoredContent = tuple[int, bytes, str]
"""A row of `contents`: number, hash, body."""


@dataclass(frozen=True, slots=True)
class EventParts:
    """The parts of a stored event, keyed by member: a list, or the JSON text of any other value."""

    lists: dict[str, list[JSON]] = field(default_factory=dict[str, list[JSON]])
    texts: dict[str, str] = field(default_factory=dict[str, str])


_NO_PARTS: Final = EventParts()
"""The empty parts that most events have. They can be shared because nobody changes an event's
parts.
"""


class Contents:
    """The tables `contents` and `content_keys`. Callers must hold a transaction or the guard."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[bytes, int] = {}
        """Maps every hash that is not in `content_keys` to its row."""
        self._cached: dict[bytes, int] = {}
        """Maps some of the hashes in `content_keys` to their rows."""
        self._keyed: int = 0
        self._last: int = 0
        self._state = (-1, -1)
        self._swept: int = -1

    def put(self, encoded: Encoded) -> tuple[int, int | None, str]:
        """Store the parts of a Request. Call this inside a transaction.

        Returns:
            The row of its schema, the row of `shown`, and the entries of its context as JSON text.
        """
        self._look()
        new: list[StoredContent] = []
        if encoded.shown is None:
            shown = None
            schema, *entries = self._put([encoded.schema, *encoded.messages], new)
        else:
            schema, shown, *entries = self._put(
                [encoded.schema, encoded.shown, *encoded.messages], new
            )

        context = number_list(self._fold(entries, new))
        self._store(new)
        return schema, shown, context

    def _store(self, new: list[StoredContent]) -> None:
        if new:
            self._database.many("INSERT INTO contents(number, hash, body) VALUES (?, ?, ?)", new)
        if self._last - self._keyed >= LAG:
            self._catch_up()

    def solution(self, text: str) -> int | None:
        """Return the row of a Solution if this process remembers it from a journal, otherwise None.

        Call this inside a transaction, after `put`.
        """
        if len(text) < SHORT_BYTES:
            return None
        digest = hashlib.sha256(text.encode()).digest()
        return self._waiting.get(digest) or self._cached.get(digest)

    def pack(self, events: Sequence[JSONObject]) -> list[tuple[str, str | None]]:
        """Return `(text, parts)` for each event. Call this inside a transaction.

        The parts are a JSON object that maps each member to a row of `contents`, or to a list of
        entries as in a context. If the text is the whole event, the parts are None.

        Raises:
            InvalidJSONError: an event is not JSON.
        """
        self._look()
        new: list[StoredContent] = []
        packed: list[tuple[str, str | None]] = []
        for event in events:
            remaining, parts = self._pack(event, new)
            packed.append((encode_text(remaining), encode_text(parts) if parts else None))

        self._store(new)
        return packed

    def _pack(self, event: JSONObject, new: list[StoredContent]) -> tuple[JSONObject, JSONObject]:
        """Move the parts out of an event. Return the rest of the event, and the parts."""
        names = PARTS.get(str(event.get("event")), ())
        parts: JSONObject = {}
        if "calls" in names:
            solution = self._solution_part(event, new)
            if solution is None:
                return event, parts
            parts[SOLUTION] = solution
            return {name: event[name] for name in event if name not in ("calls", "output")}, parts

        for name in names:
            part = self._part(event.get(name), new)
            if part is not None:
                parts[name] = part

        return {name: event[name] for name in event if name not in parts}, parts

    def _solution_part(self, event: JSONObject, new: list[StoredContent]) -> int | None:
        """Return the row of an event's Solution, or None if the Solution stays in the event."""
        # Store the Solution as an idea stores it. Leave it in the event if it has other members,
        # because the event could not be restored otherwise.
        if "calls" not in event or "extra" in event or event.get("output", ...) is None:
            return None
        return self._put_long({"calls": event["calls"], "output": event.get("output")}, new)

    def _part(self, value: JSON, new: list[StoredContent]) -> JSON:
        """Return the row for a member of an event or, if the member is a list, the rows for its
        items. Return None if the member stays in the event.
        """
        if isinstance(value, list):
            if not value:
                return None
            entries = self._put([body_of(item) for item in value], new)
            if len(entries) > _MOST_INLINE:
                entries = [-self._put([_body(entries)], new)[0]]
            return list[JSON](entries)

        if value is None or (isinstance(value, str) and len(value) < SHORT_BYTES):
            return None
        return self._put_long(value, new)

    def _put_long(self, value: JSON, new: list[StoredContent]) -> int | None:
        """Return the row for a value, or None if its text is short enough to stay in the event."""
        body = body_of(value)
        return self._put([body], new)[0] if len(body[1]) >= SHORT_BYTES else None

    def parts_of(self, parts: str | None) -> EventParts:
        """Return the contents that the parts from `pack` refer to.

        Call this in the same snapshot that reads the event.

        Raises:
            StoreFormatError: a part is missing.
        """
        if parts is None:
            return _NO_PARTS

        values = EventParts()
        for name, entry in cast("JSONObject", decode_trusted(parts)).items():
            if isinstance(entry, list):
                values.lists[name] = self.context(encode_text(entry))
            else:
                values.texts[name] = self.texts([cast("int", entry)])[0]

        return values

    def length_of(self, parts: str) -> int:
        """Return the approximate size in bytes of the contents that the parts from `pack` refer to,
        excluding tools and settings.

        Call this in the same snapshot that reads the event.
        """
        named = cast("JSONObject", decode_trusted(parts))
        values: JSONObject = {
            name: entry for name, entry in named.items() if name not in _OF_CONFIGURATION
        }
        entries = list[JSON](entries_of(encode_text(values)))
        return sum(map(len, self.texts(self.unfold(encode_text(entries)))))

    @staticmethod
    def unpack(text: str, parts: EventParts) -> JSONObject:
        """Rebuild an event from the text that `pack` returned and the parts, without reading from
        the store.
        """
        event = cast("JSONObject", decode_trusted(text))
        event.update(parts.lists)
        for name, part in parts.texts.items():
            value = decode_trusted(part)
            if name == SOLUTION:
                solution = cast("JSONObject", value)
                event.update({key: solution[key] for key in solution if solution[key] is not None})
            else:
                event[name] = value

        return event

    def _look(self) -> None:
        """Read the rows that other processes have stored, and forget the rows that a rollback or a
        sweep removed.
        """
        database = self._database
        state = database.voids, database.number("PRAGMA data_version")
        if len(self._cached) >= CACHED_ROWS:
            self._cached.clear()

        if state == self._state:
            return

        swept = database.counter(SWEPT)
        keyed = database.counter(_KEYED)
        if state[0] != self._state[0] or swept != self._swept or keyed != self._keyed:
            self._cached.clear()
            self._waiting.clear()
            self._keyed = self._last = keyed

        self._state = state
        self._swept = swept
        later = "SELECT number, hash FROM contents WHERE number > ? ORDER BY number"
        for number, digest in database.execute(later, (self._last,)):
            self._waiting[digest] = self._last = number

    def _put(self, bodies: list[Body], new: list[StoredContent]) -> list[int]:
        """Return the row number for each body. Bodies without a row are added to `new`."""
        cached = self._cached
        waiting = self._waiting
        keys = [
            key_of(digest) for digest, _ in bodies if digest not in cached and digest not in waiting
        ]
        if keys and self._keyed:
            cached.update(
                self._database.execute(
                    "SELECT contents.hash, contents.number FROM json_each(?) AS part "
                    "JOIN content_keys ON content_keys.key = CAST(part.value AS BIGINT) "
                    "JOIN contents ON contents.number = content_keys.number",
                    (number_list(keys),),
                )
            )

        numbers: list[int] = []
        for digest, text in bodies:
            number = cached.get(digest) or waiting.get(digest)
            if number is None:
                text = self._stored_form(text, new)
                # The newest row is never deleted, so no number is ever used twice.
                number = waiting[digest] = self._last = self._last + 1
                new.append((number, digest, text))

            numbers.append(number)

        return numbers

    def _stored_form(self, text: str, new: list[StoredContent]) -> str:
        """Return the body to store for a string: the string itself, or a rope. The pieces of the
        rope are stored, too.
        """
        if len(text) <= LONG_BYTES // 4:
            # A character takes at most 4 bytes.
            return text

        raw = text.encode()
        if len(raw) <= LONG_BYTES:
            return text

        pieces = [(hashlib.sha256(piece).digest(), piece.decode()) for piece in cut(raw)]
        return ROPE + number_list(self._fold(self._put(pieces, new), new))

    def _catch_up(self) -> None:
        """Write the keys of recently added rows to `content_keys`. Call this inside a
        transaction.
        """
        # Sort the keys, so that neighbouring keys are written together.
        keys = [(key_of(digest), number) for digest, number in sorted(self._waiting.items())]
        self._database.many(
            "INSERT INTO content_keys(key, number) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE "
            "SET number = ?2",
            keys,
        )
        self._cached.update(self._waiting)
        self._waiting.clear()
        self._keyed = self._last
        self._database.set_counter(_KEYED, self._keyed)

    def _fold(self, entries: list[int], new: list[StoredContent]) -> list[int]:
        if len(entries) <= INLINE:
            return entries
        stretches, open_stretch = stretches_of(entries)
        heads = [-number for number in self._put([_body(stretch) for stretch in stretches], new)]
        return [*self._fold(heads, new), *open_stretch]

    def context(self, entries: str) -> list[JSON]:
        """Return the messages in a stored context.

        Raises:
            StoreFormatError: a part of the context is missing.
        """
        texts = self.texts(self.unfold(entries))
        return cast("list[JSON]", decode_trusted(f"[{','.join(texts)}]"))

    def texts(self, numbers: list[int]) -> list[str]:
        """Return the JSON of messages as strings, in order."""
        rows = self._database.execute(
            "SELECT content.body FROM json_each(?) AS part "
            "JOIN whole_contents AS content ON content.number = CAST(part.value AS BIGINT) "
            "ORDER BY part.key",
            (number_list(numbers),),
        ).fetchall()
        if len(rows) != len(numbers):
            raise StoreFormatError(
                f"{self._database.path}: the store is damaged: it refers to a message or schema "
                "that does not exist"
            )
        return [row[0] for row in rows]

    def unfold(self, entries: str) -> list[int]:
        """Return the numbers of the messages in a stored context, in order."""
        numbers: list[int] = []
        for entry in cast("list[int]", decode_trusted(entries)):
            if entry > 0:
                numbers.append(entry)
                continue

            row = self._database.execute(
                "SELECT body FROM contents WHERE number = ?", (-entry,)
            ).fetchone()
            if row is None:
                raise StoreFormatError(
                    f"{self._database.path}: the store is damaged: it refers to a list that does "
                    "not exist"
                )

            numbers += self.unfold(row[0])

        return numbers


def entries_of(parts: str) -> list[int]:
    """Return the entries in the parts of an event. Negative entries are lists, as in a context."""
    entries: list[int] = []
    for entry in cast("dict[str, int | list[int]]", decode_trusted(parts)).values():
        entries += entry if isinstance(entry, list) else [entry]
    return entries


def _body(entries: list[int]) -> Body:
    text = number_list(entries)
    return (hashlib.sha256(text.encode()).digest(), text)
