"""The loop's own tool `read`, which lets a mind read values that a Request has shortened.

A Request that shortens something offers this tool, under the first name in `READERS` that no other
tool has. A call returns part of a value, and the next Request shows this part in full:

    {"_tool": "read", "reference": "†state.letter", "from": 4000}
    {"_tool": "read", "reference": "†results.3", "find": "invoice"}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.context.references import DAGGER, parse_reference
from ideabridge.tools.encoding import JSON, JSONObject, encode, plain_text
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.tool import Annotations, Tool
from ideabridge.tools.typed import member, read_as

READ: Final = Tool(
    "read",
    "Read a shortened value, or a part of it.\n\nGives `value` (all of it); a part as `text`, "
    "`items` or `json` (of the JSON of an object) with `from`, `length`, `of` and their unit; with "
    "find the `matches`. To pass a value on to another call, write its reference there.",
    {
        "type": "object",
        "properties": {
            "reference": {
                "description": "The value's reference, such as †state.log or †results.3.body."
            },
            "from": {
                "type": "integer",
                "minimum": 0,
                "description": "The first character of a text, or item of a list, counted from 0.",
            },
            "length": {
                "type": "integer",
                "minimum": 1,
                "description": "How many of them; by default, as many as fit.",
            },
            "find": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1000,
                "description": "Literal text: returns each place where it occurs, with its surroundings.",
            },
        },
        "required": ["reference"],
        "additionalProperties": False,
    },
    annotations=Annotations(read_only=True, idempotent=True, open_world=False),
    # This tool calls no server, so calls to it need to wait for another call only if they read its
    # data.
    reaches=(),
)
"""The reading tool. Like every parameter that is a reference, its parameter `reference` is replaced
with the value.
"""

READERS: Final = (READ, replace(READ, name="read_shortened"))
"""The tool under each of its names. If a user's tool is called `read`, the second name is used."""

NAMES: Final = tuple(reader.name for reader in READERS)

_CHARACTERS_AROUND: Final = 100
"""The number of characters that are shown on each side of a match."""

_ENVELOPE: Final = 200
"""The space, in bytes of JSON, for everything in a result except the part and the reference."""


def is_reader(tool: Tool | None) -> bool:
    """Return whether a tool is the one defined in this module. Other tools might have the same
    name.
    """
    # Compare the names first, because this function runs several times per call, and comparing
    # whole tools is slow.
    return tool is not None and tool.module is None and tool.name in NAMES and tool in READERS


def meant_reference(value: JSON) -> JSON:
    """Return a call's `reference` parameter, adding the dagger if it is missing, as in `state.log`
    or `output`.
    """
    if not isinstance(value, str) or value.startswith(DAGGER):
        return value

    text = DAGGER + value.strip()
    try:
        parse_reference(text)
    except ReferenceSyntaxError:
        return value

    return text


def read_part(value: JSON, written: str, arguments: JSONObject, most: int) -> JSONObject:
    """Return part of a value, or the occurrences of a string in it.

    Args:
        value: the value to read from.
        written: the reference to the value, as in the call.
        arguments: the call's `from`, `length` and `find`.
        most: the maximum size of the result, in bytes of JSON.

    Returns:
        For the whole value, `{"reference", "value"}`. For a part, `{"reference", UNIT: part,
        "from", "length", "of", "unit"}`. For a search, `{"reference", "find", "matches", "count",
        "unit"}`.

    Raises:
        ActivityError: `from` is past the end of the value.
    """
    # Leave out base64, because a mind cannot use it. A host that answers turn by turn gets the
    # content blocks themselves.
    value = without_payloads(value)
    wanted = read_as(_Wanted, arguments)
    first = wanted.first
    room = max(most - _ENVELOPE - len(encode(written)), 16)
    head: JSONObject = {"reference": written}
    if wanted.find is not None:
        return head | _found(value, wanted.find, first, room - len(encode(wanted.find)))
    if first == 0 and wanted.length is None and len(encode(value)) <= room:
        return head | {"value": value}
    if isinstance(value, list):
        _expect_within(first, len(value), "items")
        return head | _items(value, written, wanted, room)

    text = plain_text(value)
    unit = _unit_of(value)
    _expect_within(first, len(text), unit)
    part = _fitting(text[wanted.range], room)
    member_name = "text" if unit == _CHARACTERS else "json"
    return head | {
        member_name: part,
        "from": first,
        "length": len(part),
        "of": len(text),
        "unit": unit,
    }


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The arguments of a call to the reading tool.

    Attributes:
        first: `from`, the position where the part begins.
        length: the number of characters or items, or None for as many as fit.
        find: the text to search for, or None to read a part.
    """

    first: int = field(default=0, metadata=member("from"))
    length: int | None = None
    find: str | None = None

    @property
    def range(self) -> slice:
        end = None if self.length is None else self.first + self.length
        return slice(self.first, end)


_CHARACTERS: Final = "characters"


def _unit_of(value: JSON) -> str:
    """Return the unit for positions in a value."""
    return _CHARACTERS if isinstance(value, str) else f"{_CHARACTERS} of its JSON"


def _expect_within(first: int, size: int, unit: str) -> None:
    if first and first >= size:
        raise ActivityError(f"from: {first:,} is past the end; the value has {size:,} {unit}")


def _fitting(text: str, room: int) -> str:
    """Return a prefix of a string whose JSON fits in `room` bytes. It always has at least one
    character.
    """
    part = text[:room]
    size = len(encode(part))
    while size > room and len(part) > 1:
        part = part[: max(1, min(len(part) - 1, len(part) * room // size))]
        size = len(encode(part))
    return part


def _items(value: list[JSON], written: str, wanted: _Wanted, room: int) -> JSONObject:
    first = wanted.first
    items: list[JSON] = []
    for item in value[wanted.range]:
        room -= len(encode(item)) + 1
        if room < 0:
            break
        items.append(item)

    result: JSONObject = {
        "items": items,
        "from": first,
        "length": len(items),
        "of": len(value),
        "unit": "items",
    }
    if not items and first < len(value):
        result["note"] = f"item {first} alone is too large; read it as {written}.{first}"

    return result


def _found(value: JSON, pattern: str, first: int, room: int) -> JSONObject:
    """Return the occurrences of a literal string in a value.

    A list is searched item by item. A value that is neither a list nor a string is searched as
    JSON.
    """
    if isinstance(value, list):
        return _matches(_in_items(value, pattern, first), pattern, "items", room)
    text = plain_text(value)
    places = ((place, text, place) for place in _places(text, pattern, first))
    return _matches(places, pattern, _unit_of(value), room)


def _in_items(items: Sequence[JSON], pattern: str, first: int) -> Iterator[tuple[int, str, int]]:
    for number in range(first, len(items)):
        text = plain_text(items[number])
        for place in _places(text, pattern, 0):
            yield number, text, place


def _places(text: str, pattern: str, first: int) -> Iterator[int]:
    place = text.find(pattern, first)
    while place >= 0:
        yield place
        place = text.find(pattern, place + len(pattern))


def _matches(
    places: Iterator[tuple[int, str, int]], pattern: str, unit: str, room: int
) -> JSONObject:
    """Return the result of a search: as many matches as fit, and the total number."""
    matches: list[JSON] = []
    count = 0
    for at, text, place in places:
        count += 1
        if room <= 0:
            continue

        begin = max(0, place - _CHARACTERS_AROUND)
        around = text[begin : place + len(pattern) + _CHARACTERS_AROUND]
        match: JSONObject = {"at": at, "text": around}
        room -= len(encode(match)) + 1
        if room > 0:
            matches.append(match)

    result: JSONObject = {"find": pattern, "matches": matches, "count": count, "unit": unit}
    if len(matches) < count:
        result["note"] = (
            f"{count - len(matches):,} more are not listed; search from a later place, or for a "
            "longer text"
        )

    return result
