r"""Convert the SQL of the store's tables to the form that PostgreSQL and psycopg accept.

- `?` becomes `%s`, and `?2` becomes `%(p2)s`.
- A parameter that is None becomes NULL in the text, because PostgreSQL cannot determine the type in
  `? IS NULL`.
- Text cannot hold NUL characters, so U+FFFD replaces them. JSON writes them as `\u0000`, which is
  left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

_PART: Final = re.compile(r"'(?:[^']|'')*'|\?(\d*)|%")

_NO_NULLS: Final[frozenset[int]] = frozenset()


class _Parsed(NamedTuple):
    """A statement, split at its parameters.

    `places` contains the indexes of the parameters. `texts` contains the SQL between and around
    them, and therefore has one more item.
    """

    texts: tuple[str, ...]
    places: tuple[int, ...]
    is_named: bool


@lru_cache(maxsize=1024)
def _parsed(sql: str) -> _Parsed:
    texts = [""]
    places = list[int]()
    is_named = False
    last = 0
    for match in _PART.finditer(sql):
        texts[-1] += sql[last : match.start()]
        last = match.end()
        if match[0] == "?" or match[1]:
            is_named = is_named or bool(match[1])
            places.append(int(match[1]) - 1 if match[1] else len(places))
            texts.append("")
        else:
            texts[-1] += match[0].replace("%", "%%")

    texts[-1] += sql[last:]
    return _Parsed(tuple(texts), tuple(places), is_named)


@lru_cache(maxsize=4096)
def _written(sql: str, nulls: frozenset[int]) -> str:
    parsed = _parsed(sql)
    written = parsed.texts[0]
    for place, text in zip(parsed.places, parsed.texts[1:], strict=True):
        if place in nulls:
            written += "NULL"
        else:
            written += f"%(p{place + 1})s" if parsed.is_named else "%s"
        written += text

    return written


def bind(sql: str, parameters: Sequence[Any]) -> tuple[str, Any]:
    """Convert a statement and its parameters for psycopg."""
    parsed = _parsed(sql)
    nulls = frozenset(place for place, value in enumerate(parameters) if value is None)
    if parsed.is_named:
        used = set(parsed.places) - nulls
        return _written(sql, nulls), {f"p{place + 1}": clean(parameters[place]) for place in used}
    return _written(sql, nulls), [clean(value) for value in parameters if value is not None]


def bind_many(sql: str, rows: Sequence[Sequence[Any]]) -> tuple[str, list[Any]]:
    """Convert a statement that is executed several times, with the parameters of each execution,
    for psycopg.
    """
    places = _parsed(sql).places
    if _parsed(sql).is_named:
        return _written(sql, _NO_NULLS), [
            {f"p{place + 1}": clean(row[place]) for place in places} for row in rows
        ]
    return _written(sql, _NO_NULLS), [[clean(row[place]) for place in places] for row in rows]


def clean(value: object) -> object:
    """Convert a parameter to a form that PostgreSQL accepts."""
    if isinstance(value, str) and "\x00" in value:
        return value.replace("\x00", "\ufffd")
    return value
