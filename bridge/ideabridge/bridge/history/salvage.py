"""Find the records in a damaged line of a log.

Hosts write logs without locks, and can be killed while they are writing. A line can therefore
contain zero bytes, two records without a line ending between them, a truncated record directly
followed by the next one, or a record in the middle of another.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Final, NoReturn, cast

from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted
from ideabridge.tools.errors import IdeabridgeError

_ATTEMPTS: Final = 1000
"""The maximum number of places in a line that are tried as the start of a record."""

_BEGINNING: Final = re.compile(
    r'\{\s*"(?:parentUuid|logicalParentUuid|isSidechain|type|timestamp|uuid|sessionId|userType|cwd|'
    r'message|payload|id|data|parentId|ordinal)"\s*:'
)
"""Matches the beginning of a record: the names of the members that hosts write first."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The records that could be read from a damaged line.

    Attributes:
        records: the records, in the order of the line.
        fragments: the number of pieces that belong to no record.
        has_bad_bytes: whether bytes that are not UTF-8 were replaced.
    """

    records: list[JSONObject] = field(default_factory=list[JSONObject])
    fragments: int = 0
    has_bad_bytes: bool = False


@dataclass(frozen=True, slots=True)
class _Piece:
    """A record, and where in the line it begins and ends."""

    start: int
    end: int
    record: JSONObject


def salvage(data: bytes) -> Salvaged:
    """Return the records in a line that is not a single JSON object. The line must not exceed the
    nesting limit for JSON.
    """
    data = data.replace(b"\0", b"").removeprefix(b"\xef\xbb\xbf").strip()
    text = data.decode("utf-8", "replace")
    has_bad_bytes = text.encode() != data
    record = _decoded(text)
    if record is not None:
        return Salvaged([record], 0, has_bad_bytes)

    pieces = _ending_well(text, _pieces(text))
    records: list[JSONObject] = []
    fragments = 0
    unread_from = 0
    for place, piece in enumerate(pieces):
        before = text[unread_from : piece.start]
        end = pieces[place + 1].start if place + 1 < len(pieces) else len(text)
        after = text[piece.end : end]
        outer = _decoded(before + after) if before.strip() and after.strip() else None
        if outer is not None and is_record(outer):
            records += [outer, piece.record]
            unread_from = end
            continue

        fragments += bool(before.strip())
        records.append(piece.record)
        unread_from = piece.end

    return Salvaged(records, fragments + bool(text[unread_from:].strip()), has_bad_bytes)


def is_record(value: JSONObject) -> bool:
    """Return whether an object is a record in a host's log, rather than a part of one."""
    return isinstance(value.get("type"), str) and isinstance(value.get("timestamp"), str)


def _pieces(text: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    at = 0
    for number, match in enumerate(_BEGINNING.finditer(text)):
        if number >= _ATTEMPTS:
            break
        if match.start() < at:
            continue

        try:
            value, end = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue

        record = _plain(value)
        if record is not None and is_record(record):
            pieces.append(_Piece(match.start(), end, record))
            at = end

    return pieces


def _ending_well(text: str, pieces: list[_Piece]) -> list[_Piece]:
    """Return the pieces that are records in the log, rather than parts of one.

    A part is followed by the rest of its record, which never begins with `{`. A record written into
    another one is followed by the rest of the outer record, which is complete once joined with the
    text before the inner record.
    """
    ending_well: list[_Piece] = []
    unread_from = 0
    for place, piece in enumerate(pieces):
        end = pieces[place + 1].start if place + 1 < len(pieces) else len(text)
        after = text[piece.end : end].lstrip()
        if after and not after.startswith("{"):
            outer = _decoded(text[unread_from : piece.start] + after)
            if outer is None or not is_record(outer):
                continue
            unread_from = end
        else:
            unread_from = piece.end
        ending_well.append(piece)

    return ending_well


def _refuse(constant: str) -> NoReturn:
    raise JSONDecodeError("no JSON", constant, 0)


_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=_refuse)


def _decoded(text: str) -> JSONObject | None:
    try:
        return _plain(_DECODER.decode(text))
    except (ValueError, RecursionError):
        return None


def _plain(value: object) -> JSONObject | None:
    """Return an object in the form that the readers expect, or None if the value is not an
    object.
    """
    try:
        plain: JSON = decode_trusted(
            json.dumps(cast("JSON", value), ensure_ascii=False).encode("utf-8", "replace")
        )
    except (IdeabridgeError, ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None
