"""Views: what the store shows to whoever reads it by SQL (`docs/store.md`).

A released one is never changed: the migration that replaces it has another.
"""

from __future__ import annotations

from typing import Final

SOLUTION_OF: Final = (
    "CASE WHEN ideas.solved IS NULL THEN ideas.solution "
    "ELSE (SELECT body FROM contents AS solved WHERE solved.number = ideas.solved) END"
)
"""SQL for the text of an idea's Solution: its own, or the content it shares with the journal of its run."""

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

IDEA_LIST_14: Final = IDEA_LIST.replace(", ideas.solution\n", f", {SOLUTION_OF} AS solution\n")
"""`idea_list` since version 14: the Solution of an idea may stand in `contents`."""

JOURNAL: Final = """
    SELECT runs.id AS run, events.id & 4294967295 AS sequence,
           CASE WHEN events.parts IS NULL THEN events.body ELSE
           substr(events.body, 1, length(events.body) - 1) || (
               SELECT group_concat(CASE part.type
                   WHEN 'array' THEN ',' || json_quote(part.key) || ':[' || coalesce((
                       SELECT group_concat(text) FROM (
                           SELECT one.body AS text FROM json_each(part.value) AS entry
                           LEFT JOIN contents AS list ON entry.value < 0 AND list.number = -entry.value
                           LEFT JOIN json_each(list.body) AS listed ON entry.value < 0
                           JOIN contents AS one ON one.number = coalesce(listed.value, entry.value)
                           ORDER BY entry.key, listed.key)), '') || ']'
                   ELSE (SELECT CASE part.key WHEN 'solution' THEN ',' || substr(body, 2, length(body) - 2)
                         ELSE ',' || json_quote(part.key) || ':' || body END
                         FROM contents WHERE contents.number = part.value) END, '')
               FROM json_each(events.parts) AS part) || '}' END AS event,
           strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS time
    FROM runs JOIN events ON events.id BETWEEN runs.number << 32 AND (runs.number << 32) + 4294967295
"""
"""`journal` since version 14: events whole, with what of them stands in `contents`."""
