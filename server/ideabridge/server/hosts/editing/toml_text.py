"""Edit TOML text.

The standard library parses TOML, but does not report positions. So this module splits the text into
statements: table headers and key-value pairs. An entry can be a table with its subtables, a group
of pairs with dotted keys, or a member of an inline table.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from ideabridge.server.hosts.editing.brackets import (
    Bracketed,
    Layout,
    Render,
    Splice,
    TextItem,
    newline_of,
    spliced,
    with_item,
    with_value,
    without_item,
)
from ideabridge.server.hosts.editing.change import EntryChange, UneditableError, key_path
from ideabridge.server.hosts.salvage import plain_toml
from ideabridge.tools.encoding import JSON

_TOKEN: Final = re.compile(
    r'(?P<string>"""(?:[^\\]|\\.)*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}'
    r"|\"(?:[^\"\\\r\n]|\\.)*\"|'[^'\r\n]*')"
    r"|(?P<comment>#[^\r\n]*)|(?P<break>\r?\n)|(?P<open>[\[{])|(?P<close>[\]}])"
    r"|(?P<comma>,)|(?P<equals>=)|(?P<blank>[ \t]+)|(?P<word>[^\s\"'#\[\]{},=]+)",
    re.DOTALL,
)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")

Keys: TypeAlias = tuple[str, ...]
"""The keys that lead from the root of a file to a value."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement in a TOML text. It takes one line, or several lines if its value needs them.

    Attributes:
        kind: `header` for the header of a table, and `pair` for a key with its value.
        path: the path of the table (for a header) or of the value (for a pair).
        start: the position where its line begins.
        end: the position where the next line begins.
        value_start: the position where the value of a pair begins.
        value_end: the position where the value of a pair ends.
    """

    kind: Literal["header", "pair", "blank", "comment"]
    path: Keys
    start: int
    end: int
    value_start: int = 0
    value_end: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive lines of one pair, or of a table up to its last pair.

    Attributes:
        path: the path of the table or of the value.
        start: the position where the first line begins.
        end: the position where the next line after the part begins.
        is_table: whether the part begins with a header.
    """

    path: Keys
    start: int
    end: int
    is_table: bool


def put_toml(text: str, change: EntryChange) -> str:
    """Return the text with the change applied.

    Raises:
        UneditableError: a value on the path to the entry is not a table, or the entry has a value
            that TOML cannot represent.
    """
    _check_tables(text, change.keys)
    path = (*change.keys, change.name)
    statements = _statements(text)
    inline = _inline_table(text, statements, path)
    if inline is not None:
        return _put_inline(text, inline.value_start, path[len(inline.path) :], change.entry)

    for pair in statements:
        if pair.kind == "pair" and pair.path == path:
            value = _toml_value(change.entry)
            return spliced(text, [Splice(pair.value_start, pair.value_end, value)])

    newline = newline_of(text)
    table = newline.join(_table_lines(path, change.entry))
    parts = _parts(statements, path)
    if parts and parts[0].is_table:
        # Put the new table in the place of the first part, because no other part comes before it.
        first, *others = parts
        ending = newline if text[: first.end].endswith("\n") else ""
        text = _without_parts(text, others)
        return spliced(text, [Splice(first.start, first.end, table + ending)])

    return _with_table(_without_parts(text, parts), change.keys, table, newline)


def remove_toml(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text without the entry, or the same text if it has no such entry.

    A table without a header of its own disappears along with its last entry.
    """
    path = (*keys, name)
    statements = _statements(text)
    inline = _inline_table(text, statements, path)
    if inline is not None:
        return _without_inline(text, inline.value_start, path[len(inline.path) :])
    return _without_parts(text, _parts(statements, path))


def _check_tables(text: str, keys: Sequence[str]) -> None:
    """Raise an error if a value on the path to the entries is not a table."""
    table = plain_toml(text)
    for depth, key in enumerate(keys):
        value = table.get(key)
        if value is None:
            return
        if not isinstance(value, dict):
            actual = "a list" if isinstance(value, list) else json.dumps(value)[:40]
            raise UneditableError(f"{key_path(keys[: depth + 1])} is {actual}; expected a table")
        table = value


# -- statements ------------------------------------------------------------------------------------


def _statements(text: str) -> list[_Statement]:
    statements: list[_Statement] = []
    table: Keys = ()
    place = 0
    while place < len(text):
        statement = _statement(text, place, table)
        if statement.kind == "header":
            table = statement.path
        statements.append(statement)
        place = statement.end

    return statements


def _statement(text: str, start: int, table: Keys) -> _Statement:
    """Return the statement that begins at `start` and belongs to `table`."""
    place = _after_blanks(text, start)
    line_end = _next_line(text, place)
    if not text[place:line_end].strip():
        return _Statement("blank", (), start, line_end)
    if text[place] == "#":
        return _Statement("comment", (), start, line_end)
    if text[place] == "[":
        end = _value_end(text, place)
        return _Statement("header", _path(text[place:end]), start, _next_line(text, end))

    equals = _equals(text, place)
    value_start = _after_blanks(text, equals + 1)
    value_end = _value_end(text, value_start)
    path = (*table, *_path_of_key(text[place:equals]))
    # End at the line after the value, because a value can have several lines.
    line_end = _next_line(text, value_end)
    return _Statement("pair", path, start, line_end, value_start, value_end)


def _next_line(text: str, place: int) -> int:
    """Return the start of the line after the given position, or the end of the text."""
    line_break = text.find("\n", place)
    if line_break < 0:
        return len(text)
    return line_break + 1


def _tokens(text: str, place: int) -> Iterator[re.Match[str]]:
    while (token := _TOKEN.match(text, place)) is not None:
        yield token
        place = token.end()


def _after_blanks(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\t"):
        place += 1
    return place


def _equals(text: str, place: int) -> int:
    return next(token.start() for token in _tokens(text, place) if token.lastgroup == "equals")


def _value_end(text: str, place: int) -> int:
    """Return the end of the value or header that begins at `place`."""
    depth = 0
    end = place
    for token in _tokens(text, place):
        kind = token.lastgroup
        if depth == 0 and kind in ("comment", "break", "comma", "close"):
            break

        if kind == "open":
            depth += 1
        if kind == "close":
            depth -= 1
        if kind != "blank":
            end = token.end()

    return end


def _path(header: str) -> Keys:
    """Return the keys in a header, or in a pair whose value is a number."""
    value: object = tomllib.loads(header)
    keys: list[str] = []
    while isinstance(value, (dict, list)) and value:
        if isinstance(value, list):
            value = cast("list[object]", value)[0]
        else:
            key, value = next(iter(cast("dict[str, object]", value).items()))
            keys.append(key)

    return tuple(keys)


def _path_of_key(key: str) -> Keys:
    """Return the keys in the key of a pair. A dotted key contains several keys."""
    return _path(f"{key}=0")


def _tables(statements: Sequence[_Statement]) -> list[_Part]:
    tables: list[_Part] = []
    for statement in statements:
        if statement.kind == "header":
            tables.append(_Part(statement.path, statement.start, statement.end, is_table=True))
        elif statement.kind == "pair" and tables:
            last = tables.pop()
            tables.append(_Part(last.path, last.start, statement.end, is_table=True))

    return tables


def _parts(statements: Sequence[_Statement], path: Keys) -> list[_Part]:
    """Return the parts of the text that make up the value at `path`, in order."""
    tables = [table for table in _tables(statements) if _is_below(table.path, path)]
    pairs: list[_Part] = []
    for pair in statements:
        if pair.kind != "pair" or not _is_below(pair.path, path):
            continue
        # A pair that is inside one of the tables is already part of that table.
        if not any(table.start < pair.start < table.end for table in tables):
            pairs.append(_Part(pair.path, pair.start, pair.end, is_table=False))

    return sorted([*tables, *pairs], key=lambda part: part.start)


def _is_below(path: Keys, above: Keys) -> bool:
    return path[: len(above)] == above


# -- tables ----------------------------------------------------------------------------------------


def _with_table(text: str, keys: Sequence[str], table: str, newline: str) -> str:
    """Return the text with a table added after the last table of the same kind."""
    statements = _statements(text)
    siblings = [part for part in _tables(statements) if _is_below(part.path, tuple(keys))]
    place = len(text)
    if siblings:
        place = _with_comments(statements, siblings[-1].end)

    before = text[:place]
    if not before:
        return f"{table}{newline}{text}"
    if before.endswith("\n"):
        return f"{before}{newline}{table}{newline}{text[place:]}"
    return f"{before}{newline}{newline}{table}"


def _with_comments(statements: Sequence[_Statement], end: int) -> int:
    """Return the end of a table, including any comments after its last pair. Comments directly
    above the next header belong to that header.
    """
    place = end
    for statement in statements:
        if statement.start < end:
            continue
        if statement.kind != "comment":
            return end if statement.kind == "header" else place
        place = statement.end

    return place


def _without_parts(text: str, parts: Sequence[_Part]) -> str:
    """Return the text without the given parts. If a part is a table, the blank line above it is
    removed too.
    """
    for part in reversed(parts):
        before = text[: part.start]
        after = text[part.end :]
        has_blank_line_above = before.endswith(("\r\n\r\n", "\n\n", "\n\r\n"))
        if part.is_table and has_blank_line_above:
            before = _without_break(before)
        if not after and not text.endswith("\n"):
            # The last line had no line break, so leave none on the line that is now the last.
            before = _without_break(before)
        text = before + after

    return text


def _without_break(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


def _table_lines(path: Keys, entry: JSON) -> list[str]:
    """Return the lines of a table. Nested tables become separate tables below it."""
    dotted_key = ".".join(map(_toml_key, path))
    if not isinstance(entry, dict):
        return [f"{dotted_key} = {_toml_value(entry)}"]

    lines = [f"[{dotted_key}]"]
    tables: list[str] = []
    for key, value in entry.items():
        if isinstance(value, dict) and value:
            tables += ["", *_table_lines((*path, key), value)]
        else:
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}")

    return [*lines, *tables]


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml_value(key)


def _toml_value(value: JSON) -> str:
    """Return a value on one line.

    Raises:
        UneditableError: the value contains null, or half of a surrogate pair.
    """
    if isinstance(value, dict):
        members = [f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items()]
        return f"{{ {', '.join(members)} }}" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if value is None:
        raise UneditableError("TOML has no null")

    # JSON and TOML write strings and numbers in the same way, except for one character that only
    # TOML escapes.
    written = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        written.encode()
    except UnicodeEncodeError:
        raise UneditableError("TOML cannot contain half a surrogate pair") from None
    return written


# -- inline tables ---------------------------------------------------------------------------------


def _inline_table(text: str, statements: Sequence[_Statement], path: Keys) -> _Statement | None:
    """Return the pair whose value is the inline table that contains `path`, or None if no inline
    table contains it.
    """
    for pair in statements:
        is_around = pair.kind == "pair" and len(pair.path) < len(path)
        if is_around and _is_below(path, pair.path) and text[pair.value_start] == "{":
            return pair
    return None


def _put_inline(text: str, start: int, path: Keys, entry: JSON) -> str:
    """Return the text with `entry` set at `path`, relative to the inline table that begins at
    `start`.
    """
    name, *rest = path
    inside = _members(text, start)
    item = inside.find(name)
    if item is None:
        value: JSON = entry
        for key in reversed(rest):
            value = {key: value}
        return with_item(text, inside, _inline_member(name, value), one_line=True)

    is_dotted = _is_dotted(text, item)
    if rest:
        if is_dotted or text[item.value_start] != "{":
            raise UneditableError(f"{name} has dotted keys in an inline table")
        return _put_inline(text, item.value_start, tuple(rest), entry)

    if is_dotted:
        # The earlier value may consist of several members, such as `a.x = 1, a.y = 2`.
        return _put_inline(_without_inline(text, start, path), start, path, entry)
    return with_value(text, inside, item, _inline_value(entry), one_line=True)


def _without_inline(text: str, start: int, path: Keys) -> str:
    """Return the text without the value at `path`, relative to the inline table that begins at
    `start`.
    """
    name, *rest = path
    # More than one member with a dotted key can begin with this key.
    while True:
        inside = _members(text, start)
        item = inside.find(name)
        if item is None:
            return text

        if rest:
            if text[item.value_start] != "{" or _is_dotted(text, item):
                return text
            return _without_inline(text, item.value_start, tuple(rest))

        text = without_item(text, inside, item)


def _members(text: str, start: int) -> Bracketed:
    """Return the members of the inline table that begins at `start`."""
    items: list[TextItem] = []
    place = _after_blanks(text, start + 1)
    while text[place] != "}":
        equals = _equals(text, place)
        value_start = _after_blanks(text, equals + 1)
        end = _value_end(text, value_start)
        first_key, *_ = _path_of_key(text[place:equals])
        items.append(TextItem(first_key, place, value_start, end))
        place = _after_blanks(text, end)
        if text[place] == ",":
            place = _after_blanks(text, place + 1)

    return Bracketed(start, place + 1, tuple(items))


def _is_dotted(text: str, item: TextItem) -> bool:
    key = text[item.start : item.value_start].rstrip(" \t").removesuffix("=")
    return len(_path_of_key(key)) > 1


def _inline_value(value: JSON) -> Render:
    def write(_: Layout) -> str:
        return _toml_value(value)

    return write


def _inline_member(name: str, value: JSON) -> Render:
    def write(_: Layout) -> str:
        return f"{_toml_key(name)} = {_toml_value(value)}"

    return write
