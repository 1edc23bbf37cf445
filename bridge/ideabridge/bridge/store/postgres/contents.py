"""The `contents` table in PostgreSQL, into which several processes insert concurrently.

A row is found by the unique index on its hash, and the database numbers the rows. The numbers that
this process remembers are valid until a sweep deletes contents: each transaction reads the number
of past sweeps (`swept`).
"""

from __future__ import annotations

from ideabridge.bridge.context.body import Body
from ideabridge.bridge.store.contents import CACHED_ROWS, Contents, StoredContent
from ideabridge.bridge.store.postgres.database import PostgresDatabase
from ideabridge.bridge.store.ropes import LONG_BYTES


class PostgresContents(Contents):
    """`Contents` in PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database

    def _look(self) -> None:
        state = self._database.voids, self._postgres.swept
        if state != self._state or len(self._cached) >= CACHED_ROWS:
            self._cached.clear()
            self._state = state

    def _put(self, bodies: list[Body], new: list[StoredContent]) -> list[int]:
        cached = self._cached
        # Insert the rows in the order of their hashes, because two processes that insert the same
        # rows in different orders could deadlock.
        missing = sorted({body for body in bodies if body[0] not in cached})
        if missing:
            missing = self._stored_forms(missing)
            hashes = [digest for digest, _ in missing]
            rows = self._postgres.execute(
                "INSERT INTO contents(hash, body) SELECT * FROM unnest(?1::bytea[], ?2::text[]) "
                "ON CONFLICT (hash) DO NOTHING RETURNING hash, number",
                (hashes, [text for _, text in missing]),
            ).fetchall()
            cached.update(rows)
            earlier = [digest for digest in hashes if digest not in cached]
            if earlier:
                rows = self._postgres.execute(
                    "SELECT hash, number FROM contents WHERE hash = ANY(?1::bytea[])", (earlier,)
                ).fetchall()
                cached.update(rows)

        return [cached[digest] for digest, _ in bodies]

    def _stored_forms(self, missing: list[Body]) -> list[Body]:
        """Return bodies in the form in which they are stored. A long body that is not stored yet
        becomes a rope.
        """
        long = [digest for digest, text in missing if len(text) > LONG_BYTES // 4]
        if not long:
            return missing
        rows = self._postgres.execute(
            "SELECT hash FROM contents WHERE hash = ANY(?1::bytea[])", (long,)
        ).fetchall()
        stored = {digest for (digest,) in rows}
        return [
            (digest, text if digest in stored else self._stored_form(text, []))
            for digest, text in missing
        ]

    def _store(self, new: list[StoredContent]) -> None:
        """Do nothing, because `_put` has already stored everything."""
