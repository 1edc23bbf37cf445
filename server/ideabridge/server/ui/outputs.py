"""Show values in a readable form.

A list of objects becomes a table, nested values become a tree, and Markdown becomes formatted text.
The page shows the exact value as JSON below.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from markupsafe import Markup

from ideabridge.server.ui.showing import LONGEST, in_one_line
from ideabridge.server.ui.shown_numbers import shown_numbers, shown_value
from ideabridge.server.views.text import Beginning
from ideabridge.tools.encoding import JSON, JSONObject, number_or_none
from ideabridge.tools.names import counted, visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Kind: TypeAlias = Literal["text", "markdown", "table", "tree", "images"]

MOST_ROWS: Final = 100
_MOST_COLUMNS: Final = 12
_MOST_MEMBERS: Final = 200
"""Maximum number of members in a tree, counted over all levels."""

_MOST_CHARACTERS: Final = 15_000
"""Maximum number of characters in a table or tree."""

_LONGEST_BESIDE: Final = 4000
"""Maximum length, in characters, of JSON that a page contains along with a table or tree. Longer
JSON is loaded on demand.
"""

_MOST_TILES: Final = 3
"""Maximum number of members that are shown side by side."""

_SHORT: Final = 28
"""Maximum length, in characters, of a value that is shown as large text."""

_DEEPEST: Final = 8
_CELL: Final = 160
"""Maximum length, in characters, of a cell and of a short text in a tree."""

_PHONE: Final = 46
"""Width of a row on a phone, in characters."""

_BETWEEN: Final = 4
"""Width of the space between two columns, in characters."""

_MARKS: Final = re.compile(
    r"(?m)^(?:#{1,6} \S|[-*+] \S|\d{1,3}[.)] \S|> \S|```|\|.+\|$)|\*\*\S[^*\n]{0,200}\*\*"
)
"""Matches markup that is common in Markdown and rare in other texts."""

_CERTAIN: Final = re.compile(r"(?m)^(?:#{1,6} \S|```)")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9,]*(?:\.[0-9]+)?")
"""Matches a cell of a table in a text if the cell is a number."""

_RULES: Final = (
    "heading",
    "lheading",
    "list",
    "blockquote",
    "fence",
    "code",
    "hr",
    "table",
    "emphasis",
    "backticks",
    "newline",
    "escape",
)
"""The Markdown rules that a page applies. HTML and entities could hide what a text says, images
would be loaded, and a link could hide its URL, so all of these are shown as written.
"""


_NO_HTML: Final = Markup("")


@dataclass(frozen=True, slots=True)
class PlainValue:
    """A value without members, shown as a single line or as multi-line text."""

    text: str
    is_long: bool = False

    @property
    def is_short(self) -> bool:
        """Whether the value fits on a line of large text, even in a phone's browser."""
        return 0 < len(self.text) <= _SHORT and not self.is_long


@dataclass(frozen=True, slots=True)
class ValueTree:
    """A value with members.

    Attributes:
        summary: a short description of the value, such as `3 values`.
        members: the name and value of each member that is shown.
        omitted: the number of members that are not shown.
    """

    summary: str
    members: tuple[tuple[str, ShownPart], ...]
    omitted: int = 0

    @property
    def is_short(self) -> bool:
        """Whether the members are so few and short that they fit side by side."""
        return (
            len(self.members) <= _MOST_TILES
            and not self.omitted
            and all(
                isinstance(member, PlainValue) and member.is_short for _, member in self.members
            )
        )


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A list of objects.

    Attributes:
        columns: the names of the members, in the order in which they first occur.
        rows: the cells of each row. The cell for a missing member is empty.
        number_columns: the indexes of the columns that contain only numbers.
        omitted_rows, omitted_columns: how many rows and columns are not shown.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    number_columns: frozenset[int] = frozenset()
    omitted_rows: int = 0
    omitted_columns: int = 0

    @property
    def is_short(self) -> bool:
        """True if a row fits the width of a phone."""
        columns = zip(self.columns, *self.rows, strict=True)
        widths = [max(map(len, column)) for column in columns]
        return sum(widths) + _BETWEEN * len(widths) <= _PHONE


ShownPart: TypeAlias = PlainValue | ValueTree | ShownTable


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """A value as a page shows it.

    Attributes:
        kind: how the value is shown. A value of kind `images` contains only images, so its tree
            only describes each image's members.
        part: the text, table or tree.
        html: the formatted Markdown.
        has_source: whether the page also contains the exact value in a collapsed section.
    """

    kind: Kind
    part: ShownPart
    html: Markup = _NO_HTML
    has_source: bool = True


def shown_output(value: JSON) -> ShownOutput:
    """Return a value as a page shows it, without anything that exceeds the page's limits."""
    if isinstance(value, str):
        text = visible(value[:LONGEST], "\n\t")
        if _is_markdown(value):
            return ShownOutput("markdown", PlainValue(text, True), _formatted(text))
        return ShownOutput("text", PlainValue(text, "\n" in value or len(value) > _CELL))

    part = _part(value, _Room(), 0)
    has_source = not Beginning(value, _LONGEST_BESIDE).is_cut
    if _is_images(value):
        return ShownOutput("images", part, has_source=has_source)
    if isinstance(part, ShownTable):
        return ShownOutput("table", part, has_source=has_source)
    if isinstance(part, ValueTree):
        return ShownOutput("tree", part, has_source=has_source)
    return ShownOutput("text", part)


def _is_images(value: JSON) -> bool:
    """Return whether a value is an image block, or a list of image blocks."""
    blocks = value if isinstance(value, list) else [value]
    return bool(blocks) and all(
        isinstance(block, dict) and block.get("type") == "image" for block in blocks
    )


def _is_markdown(text: str) -> bool:
    """Return whether a multi-line text has at least two pieces of Markdown markup, including a
    heading or a code block, or at least four pieces of any kind.
    """
    beginning = text[:LONGEST]
    if "\n" not in beginning or len(text) > LONGEST:
        return False
    marks = sum(1 for _ in islice(_MARKS.finditer(beginning), 4))
    return marks >= 4 or (marks >= 2 and _CERTAIN.search(beginning) is not None)


@cache
def _markdown() -> MarkdownIt:
    # Import this only when it is needed, because importing it takes a while and few pages use it.
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False, "linkify": False}).enable(list(_RULES))


def _formatted(text: str) -> Markup:
    markdown = _markdown()
    tokens = markdown.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            # Give headings in the text a lower rank than the page's own headings.
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"

    _mark_number_columns(tokens)
    # This is safe: the renderer escapes the text, and none of the rules lets HTML through.
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S704


def _mark_number_columns(tokens: list[Token]) -> None:
    """Give cells in columns that contain only numbers the class `number`, as in tables of
    objects.
    """
    cells: defaultdict[int, list[Token]] = defaultdict(list)
    texts = defaultdict[int, list[str]](list)
    column = 0
    for token, following in pairwise(tokens):
        if token.type == "tr_open":
            column = 0
        elif token.type in ("th_open", "td_open"):
            cells[column].append(token)
            if token.type == "td_open":
                texts[column].append(following.content)
            column += 1
        elif token.type == "tbody_close":
            for number, values in texts.items():
                if all(map(_NUMBER.fullmatch, values)):
                    for cell in cells[number]:
                        cell.attrJoin("class", "number")
            cells.clear()
            texts.clear()


@dataclass(slots=True)
class _Room:
    """The room left on a page: how many members and characters it can still show."""

    members: int = _MOST_MEMBERS
    characters: int = _MOST_CHARACTERS

    def take(self, number: int) -> int:
        """Take up room for members. Return how many of `number` members fit."""
        taken = min(number, self.members)
        self.members -= taken
        return taken

    def take_text(self, text: str) -> str:
        """Take up room for text. Return the part of the text that fits."""
        taken = text if len(text) <= self.characters else f"{text[: self.characters]}…"
        self.characters = max(0, self.characters - len(text))
        return taken


def _part(value: JSON, room: _Room, depth: int) -> ShownPart:
    if isinstance(value, str):
        is_long = "\n" in value or len(value) > _CELL
        return PlainValue(room.take_text(visible(value[:LONGEST], "\n\t")), is_long)
    if not isinstance(value, (dict, list)) or not value or depth >= _DEEPEST:
        return PlainValue(room.take_text(shown_value(value, _CELL)))
    if isinstance(value, list):
        if all(isinstance(row, dict) for row in value):
            return _table(cast("list[JSONObject]", value), room)
        named = ((str(number), item) for number, item in enumerate(value))
        return _tree(list(islice(named, room.take(len(value)))), len(value), room, depth)

    named = ((visible(name[:_CELL]), member) for name, member in value.items())
    return _tree(list(islice(named, room.take(len(value)))), len(value), room, depth)


def _tree(shown: list[tuple[str, JSON]], total: int, room: _Room, depth: int) -> ValueTree:
    """Return a tree of members, with the same number of decimals for all floating-point numbers."""
    decimals = [value for _, value in shown if isinstance(value, float)]
    texts = iter(shown_numbers(decimals))
    members: list[tuple[str, ShownPart]] = []
    for name, value in shown:
        if isinstance(value, float):
            members.append((name, PlainValue(room.take_text(next(texts)))))
        else:
            members.append((name, _part(value, room, depth + 1)))

    return ValueTree(counted(total, "value"), tuple(members), total - len(shown))


def _table(objects: list[JSONObject], room: _Room) -> ShownTable:
    shown = objects[: room.take(min(len(objects), MOST_ROWS))]
    names = dict.fromkeys(name for row in shown for name in row)
    columns = list(islice(names, _MOST_COLUMNS))
    number_columns = frozenset(
        place for place, name in enumerate(columns) if has_numbers(shown, name)
    )
    texts = [_cells(shown, name) for name in columns]
    rows: list[tuple[str, ...]] = []
    for cells in zip(*texts, strict=True):
        if sum(map(len, cells)) > room.characters:
            break
        rows.append(tuple(map(room.take_text, cells)))

    return ShownTable(
        tuple(visible(name[:_CELL]) for name in columns),
        tuple(rows),
        number_columns,
        len(objects) - len(rows),
        len(names) - len(columns),
    )


def _cells(rows: list[JSONObject], name: str) -> list[str]:
    """Return the cells of a column. The cell for a missing member is empty."""
    if not has_numbers(rows, name):
        return [in_one_line(row[name], _CELL) if name in row else "" for row in rows]
    return number_cells(rows, name)


def number_cells(rows: list[JSONObject], name: str) -> list[str]:
    """Return the cells of a column of numbers. The cell for a missing member is empty."""
    numbers = [number_or_none(row.get(name)) for row in rows]
    texts = iter(shown_numbers([number for number in numbers if number is not None]))
    return ["" if number is None else next(texts) for number in numbers]


def has_numbers(rows: list[JSONObject], name: str) -> bool:
    """Return whether a member is a number in each row that contains it."""
    values = [row[name] for row in rows if name in row]
    return all(number_or_none(value) is not None for value in values)
