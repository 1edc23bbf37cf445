"""Views: what the store shows to whoever reads it by SQL (`docs/store.md`).

A released one is never changed: the migration that replaces it has another.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = {
    "idea_list": """
        SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, ideas.run, ideas.step,
               json_extract(meta, '$.title') AS title, json_extract(meta, '$.description') AS description,
               json_extract(meta, '$.outcome') AS outcome, json_extract(meta, '$.mind') AS mind,
               json_extract(meta, '$.model') AS model, json_extract(meta, '$.time') AS time,
               json_extract(meta, '$.tools') AS tools, contents.body AS schema, ideas.solution
        FROM ideas JOIN contents ON contents.number = ideas.schema
    """,
    "idea_messages": """
        WITH RECURSIVE entries(idea, path, entry) AS (
            SELECT ideas.number, printf('%06d', part.key), part.value FROM ideas, json_each(ideas.context) AS part
            UNION ALL
            SELECT entries.idea, entries.path || printf('.%06d', part.key), part.value
            FROM entries JOIN contents ON contents.number = -entries.entry, json_each(contents.body) AS part
            WHERE entries.entry < 0
        )
        SELECT entries.idea AS idea_number,
               row_number() OVER (PARTITION BY entries.idea ORDER BY entries.path) AS place, contents.body AS message
        FROM entries JOIN contents ON contents.number = entries.entry
    """,
    "journal": """
        SELECT runs.id AS run, events.id & 4294967295 AS sequence, events.body AS event
        FROM events JOIN runs ON runs.number = events.id >> 32
    """,
    "publication_list": """
        SELECT publications.name, publications.version, lower(hex(ideas.id)) AS idea, publications.description,
               publications.answer, publications.owner, publications.time,
               names.version IS publications.version AS live
        FROM publications JOIN ideas ON ideas.number = publications.idea
        LEFT JOIN names ON names.name = publications.name
    """,
}
"""Those of version 1, by name."""

_LISTED: Final = """
    SELECT ideas.number, lower(hex(ideas.id)) AS id, lower(hex(ideas.request)) AS request, place.run, ideas.step,
           json_extract(ideas.meta, '$.title') AS title, json_extract(ideas.meta, '$.description') AS description,
           place.outcome, place.mind, json_extract(ideas.meta, '$.model') AS model, place.time,
           json_extract(ideas.meta, '$.tools') AS tools, contents.body AS schema, ideas.solution
    FROM {} JOIN contents ON contents.number = ideas.schema
"""

IDEA_LIST: Final = (
    _LISTED.format("idea_places AS place JOIN ideas ON ideas.number = place.idea")  # noqa: S608 - names of ours
    + " UNION ALL "
    + _LISTED.format("ideas AS place JOIN ideas ON ideas.number = place.number")
    + " WHERE place.number > (SELECT coalesce(max(idea), 0) FROM idea_places)"
)
"""`idea_list` since version 8: the ideas taken up, by the indexes of their places, and those that wait."""
