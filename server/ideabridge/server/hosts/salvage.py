"""Read the valid parts of a damaged file, which is truncated or partly malformed.

A malformed or truncated object becomes a `PartialObject`. It contains only the members that can be
read, and must not be used as if it were complete. Its sibling objects are complete. TOML is read
table by table, and YAML member by member.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from ideabridge.tools.documents import blank_comments, read_written
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError

_MAX_DEPTH: Final = 40
"""Maximum depth at which a truncated object is read."""

_MAX_FAILURES: Final = 200
"""Maximum number of malformed parts skipped in one file. A parser that fails might read the whole
file again to determine the line number.
"""

_MOST_READINGS: Final = 12
"""Maximum number of times that a malformed JSON text is read: once for each object that is open
where the text ends.
"""

_MAX_MEMBERS: Final = 1000
"""Maximum number of members read individually from a malformed YAML text, including the members of
malformed members.
"""

_MAX_KEY_PARTS: Final = 100
"""Maximum number of parts in a dotted TOML key. Parsing time grows with the square of this
number.
"""

_TOML_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
_LONG_KEY: Final = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{_MAX_KEY_PARTS}}}")

_SPACE: Final = re.compile(r"\s*")
_MARK: Final = re.compile(r'["{}\[\],]')
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_TABLE: Final = re.compile(r"^[ \t]*\[\[?[^\[\]\n]*(\]\]?[ \t]*(#.*)?)?$", re.MULTILINE)
_MEMBER: Final = re.compile(r"^(?=[^\s#-])", re.MULTILINE)


class ReadObject(dict[str, JSON]):
    """An object as it is written in a host's file.

    Attributes:
        repeated: the keys that occur more than once. The last value of each is used.
    """

    repeated: tuple[str, ...] = ()


class PartialObject(ReadObject):
    """An object that is incomplete in the file."""


def object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object for the JSON parser. If a key occurs twice, the object is a `ReadObject`."""
    members = dict(pairs)
    if len(members) == len(pairs):
        return members

    result = ReadObject(members)
    counts = Counter(name for name, _ in pairs)
    result.repeated = tuple(name for name, count in counts.items() if count > 1)
    return result


def refuse_constant(name: str) -> Any:
    """Reject `NaN` and `Infinity`, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


def decoder() -> json.JSONDecoder:
    """Return a JSON decoder that records which keys occur more than once."""
    return json.JSONDecoder(object_pairs_hook=object_of_pairs, parse_constant=refuse_constant)


# -- JSON ------------------------------------------------------------------------------------------


class _Scanner:
    """Reads the members of objects that are malformed or truncated."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decoder = decoder()
        self._failures = 0
        # How many more characters may be read without a result.
        self._left = _MOST_READINGS * len(text)

    def value(self, start: int, depth: int) -> tuple[JSON, int]:
        """Return the value that begins at `start`, and the position after it."""
        try:
            value, end = self._decoder.raw_decode(self._text, start)
        except (ValueError, RecursionError) as error:
            end = error.pos if isinstance(error, json.JSONDecodeError) else len(self._text)
            self._left -= end - start
            self._failures += 1
            if self._failures > _MAX_FAILURES or self._left < 0:
                return PartialObject(), len(self._text)
            if self._text[start : start + 1] == "{" and depth < _MAX_DEPTH:
                members, end = self._members(start, depth)
                is_closed = self._text[end : end + 1] == "}"
                if is_closed or end >= len(self._text):
                    return members, end + is_closed
                return members, self._behind(start)
            return PartialObject(), self._behind(start)

        return cast("JSON", value), end

    def _members(self, start: int, depth: int) -> tuple[PartialObject, int]:
        """Return the members of the object that begins at `start`, and the position where the
        object ends.
        """
        members = PartialObject()
        place = self._skip(start + 1)
        while self._text[place : place + 1] == '"':
            try:
                name, place = self._decoder.raw_decode(self._text, place)
            except ValueError:
                break

            place = self._skip(place)
            if self._text[place : place + 1] != ":":
                break

            members[str(name)], place = self.value(self._skip(place + 1), depth + 1)
            place = self._skip(place)
            if self._text[place : place + 1] not in (",", "}", '"', ""):
                members[str(name)] = PartialObject()
                place = self._behind(place)
            # The comma is optional: without it, the two members mean the same.
            if self._text[place : place + 1] == ",":
                place = self._skip(place + 1)

        return members, place

    def _behind(self, start: int) -> int:
        """Return the position after a malformed value: the position of the next comma or bracket,
        or the end of the text.
        """
        depth = 0
        place = start
        while (mark := _MARK.search(self._text, place)) is not None:
            place = mark.end()
            match mark.group():
                case '"':
                    string = _STRING.match(self._text, mark.start())
                    if string is None:
                        return len(self._text)
                    place = string.end()
                case "{" | "[":
                    depth += 1
                case ",":
                    if depth == 0:
                        return mark.start()
                case _:
                    if depth == 0:
                        return mark.start()
                    depth -= 1

        return len(self._text)

    def _skip(self, place: int) -> int:
        match = _SPACE.match(self._text, place)
        return place if match is None else match.end()


def salvage_json(text: str) -> JSONObject:
    """Return the readable members of a JSON text. A malformed or truncated member becomes a
    `PartialObject`.
    """
    plain = blank_comments(text)
    start = plain.find("{")
    if start < 0:
        return {}

    value, _ = _Scanner(plain).value(start, 0)
    return object_or_empty(value)


# -- TOML ------------------------------------------------------------------------------------------


def salvage_toml(text: str) -> JSONObject:
    """Parse each table of a TOML file separately. A table that cannot be read becomes a
    `PartialObject`.
    """
    result: JSONObject = {}
    failures = 0
    for block in _blocks(text, _TABLE):
        try:
            table = plain_toml(block)
        except (ValueError, RecursionError):
            failures += 1
            if failures > _MAX_FAILURES:
                break

            header = block.partition("\n")[0]
            try:
                table = plain_toml(header)
            except (ValueError, RecursionError):
                continue
            _mark_partial(table)

        _merge(result, table)

    return result


def plain_toml(text: str) -> JSONObject:
    """Return the content of a TOML text. Dates and times become strings.

    Raises:
        ValueError: the text is not TOML, or a key has too many parts.
    """
    if _LONG_KEY.search(_TOML_STRING.sub("s", text)):
        raise ValueError(f"a key has more than {_MAX_KEY_PARTS} parts")
    content = json.loads(json.dumps(tomllib.loads(text), default=str))
    return cast("JSONObject", content)


def _mark_partial(table: JSONObject) -> None:
    """Replace the innermost object in a chain of single-member objects with a partial object."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            _mark_partial(value)
        else:
            table[name] = PartialObject()


def _merge(whole: JSONObject, part: JSONObject) -> None:
    """Add the members of `part` to `whole`. A table that occurs twice is marked as partial, because
    TOML does not define which one applies.
    """
    for name, value in part.items():
        present = whole.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            is_partial = isinstance(value, PartialObject) and not isinstance(present, PartialObject)
            if is_partial or any(
                not isinstance(item, dict) and key in present for key, item in value.items()
            ):
                present = PartialObject(present)
                whole[name] = present

            _merge(present, value)
        else:
            whole[name] = value


def _blocks(text: str, start: re.Pattern[str]) -> list[str]:
    """Split text at each match of `start`."""
    places = [match.start() for match in start.finditer(text)]
    places = [0, *[place for place in places if place > 0], len(text)]
    return [text[first:last] for first, last in itertools.pairwise(places) if last > first]


# -- YAML ------------------------------------------------------------------------------------------


def salvage_yaml(text: str) -> JSONObject:
    """Return the members of a YAML text, each read separately.

    If a member cannot be read, its items are read separately, and those that cannot be read become
    `PartialObject`s.
    """
    result: JSONObject = {}
    blocks = _blocks(text, _MEMBER)[:_MAX_MEMBERS]
    left = _MAX_MEMBERS
    for block in blocks:
        try:
            _add_yaml(result, block)
        except IdeabridgeError:
            member, count = _salvaged_member(block, left)
            result |= member
            left -= count

    return result


def _add_yaml(result: JSONObject, block: str) -> None:
    value = read_written(block, what="it", name="part.yaml")
    if isinstance(value, dict):
        result.update(value)


def _salvaged_member(block: str, most: int) -> tuple[JSONObject, int]:
    """Return a member whose value is a mapping or a list, and the number of items tried (at most
    `most`). An item that cannot be read becomes a `PartialObject`.
    """
    header, _, body = block.partition("\n")
    name = header.partition(":")[0].strip().strip("\"'")
    indented = re.search(r"^([ ]*)(?=[^\s#])", body, re.MULTILINE)
    if not name or indented is None:
        return {}, 0

    indent = indented.group(1)
    start = re.compile(rf"^{indent}(?=[^\s#])", re.MULTILINE)
    items = _blocks(body, start)[:most]
    if body[indented.end() :].startswith("-"):
        return {name: _salvaged(items, _list_item)}, len(items)

    members: JSONObject = {}
    for item in items:
        try:
            _add_yaml(members, item)
        except IdeabridgeError:
            first = item.lstrip().partition("\n")[0]
            members[first.partition(":")[0].strip("\"' ")] = PartialObject()

    return {name: members}, len(items)


def _salvaged(items: list[str], read: Callable[[str], JSON]) -> list[JSON]:
    return [read(item) for item in items if item.strip()]


def _list_item(text: str) -> JSON:
    try:
        value = read_written(text, what="it", name="part.yaml")
    except IdeabridgeError:
        name = re.search(r"^\W*name:[ \t]*[\"']?([^\"'\n#]*)", text, re.MULTILINE)
        partial = PartialObject()
        if name is not None:
            partial["name"] = name.group(1).strip()
        return partial
    return value[0] if isinstance(value, list) and value else value
