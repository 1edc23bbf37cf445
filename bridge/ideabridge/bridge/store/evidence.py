"""Store what later runs of published versions revealed about those versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ideabridge.bridge.store.database import Database
from ideabridge.bridge.store.users import Viewer, only_of
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode_text


class EvidenceTable:
    """The table `evidence`. Its records contain values from runs, so callers see only the records
    from their own runs.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, version: int, record: JSONObject) -> None:
        """Add a record to a version. Call this inside a transaction."""
        self._database.execute(
            "INSERT INTO evidence(publication, record) "
            "SELECT number, ?3 FROM publications WHERE name = ?1 AND version = ?2",
            (name, version, encode_text(record)),
        )

    def records(self, name: str, version: int, *, caller: Viewer) -> list[JSONObject]:
        """Return the records of a version that the caller can see, oldest first."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT record FROM evidence WHERE publication = "
                "(SELECT number FROM publications WHERE name = ?1 AND version = ?2) "
                "AND (?3 IS NULL OR EXISTS "
                "(SELECT 1 FROM runs WHERE runs.id = json_extract(evidence.record, '$.run') "
                "AND runs.caller = ?3)) "
                "ORDER BY number",
                (name, version, only_of(caller)),
            )
            return [cast("JSONObject", decode_trusted(text)) for (text,) in rows]

    def confirmations(self, names: Sequence[str], *, caller: Viewer) -> dict[str, int]:
        """Return how many records of each name's current version the caller can see.

        Names without such records are left out.
        """
        if not names:
            return {}

        marks = ", ".join("?" for _ in names)
        parameters: list[str] = [*names]
        only = only_of(caller)
        of_caller = ""
        if only is not None:
            parameters.append(only)
            of_caller = (
                "AND EXISTS (SELECT 1 FROM runs WHERE runs.id = "
                "json_extract(evidence.record, '$.run') AND runs.caller = ?) "
            )
        with self._database.guard:
            rows = self._database.execute(
                "SELECT names.name, count(*) FROM names "  # noqa: S608 - only ?
                "JOIN publications ON publications.name = names.name "
                "AND publications.version = names.version "
                "JOIN evidence ON evidence.publication = publications.number "
                f"WHERE names.name IN ({marks}) {of_caller}GROUP BY names.name",
                parameters,
            ).fetchall()
        return {name: int(count) for name, count in rows}
