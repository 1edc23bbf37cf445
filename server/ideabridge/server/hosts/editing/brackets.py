"""Change one item of a bracketed collection: a JSON object or list, a YAML flow mapping or
sequence, or a TOML inline table.

The module for each format finds the items and their positions. The functions here add, replace or
remove one item in the text, together with its comma and its line, and change nothing else. In all
these formats, only whitespace, commas and comments can appear between items.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/|#[^\r\n]*", re.DOTALL)
_BLANK_OR_COMMENT: Final = re.compile(r"(?:[ \t]+|//[^\r\n]*|/\*.*?\*/|#[^\r\n]*)*", re.DOTALL)
_FIRST_INDENT: Final = re.compile(r"^([ \t]+)[^\s*/#]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Splice:
    """A replacement for the part of a text from `start` to `end`."""

    start: int
    end: int
    new: str


def spliced(text: str, splices: list[Splice]) -> str:
    """Return the text with the given parts replaced. The splices must be in order and must not
    overlap.
    """
    parts: list[str] = []
    done = 0
    for splice in splices:
        parts += [text[done : splice.start], splice.new]
        done = splice.end

    return "".join([*parts, text[done:]])


@dataclass(frozen=True, slots=True)
class TextItem:
    """One member of an object, or one element of a list, in the text of a file.

    Attributes:
        name: the key of the member, or the `name` of the element; None if the element has no name.
        start: the position where the key or, in a list, the element begins.
        value_start: the position where the value begins.
        end: the position where the value ends.
    """

    name: str | None
    start: int
    value_start: int
    end: int


@dataclass(frozen=True, slots=True)
class Bracketed:
    """An object or a list in the text of a file.

    Attributes:
        start: the position of the opening bracket.
        end: the position after the closing bracket.
        items: the items, in the order of the text.
    """

    start: int
    end: int
    items: tuple[TextItem, ...]

    def find(self, name: str) -> TextItem | None:
        """Return the last item named `name`, because programs that read the file use the last
        one.
        """
        for item in reversed(self.items):
            if item.name == name:
                return item
        return None

    def gap_before(self, number: int) -> int:
        """Return where the gap before the given item begins: the end of the previous item, or the
        position after the opening bracket.
        """
        if number == 0:
            return self.start + 1
        return self.items[number - 1].end

    def gap_after(self, number: int) -> int:
        """Return where the gap after the given item ends: the start of the next item, or the
        position of the closing bracket.
        """
        if number + 1 == len(self.items):
            return self.end - 1
        return self.items[number + 1].start


@dataclass(frozen=True, slots=True)
class Layout:
    """How an item is laid out in the text.

    Attributes:
        indent: the whitespace before an item on its own line; None if the item shares a line with
            other items.
        unit: the whitespace that indents each level.
        newline: the line ending that the text uses.
        compact: whether the text has no space after commas and colons.
    """

    indent: str | None
    unit: str
    newline: str
    compact: bool


Render = Callable[[Layout], str]
"""Writes an item, without a comma and without the indentation of its first line."""


def newline_of(text: str) -> str:
    """Return the line ending used in a text."""
    if "\r\n" in text:
        return "\r\n"
    return "\n"


def unit_of(text: str, default: str = "  ") -> str:
    """Return the indentation of the first indented line."""
    first_indented = _FIRST_INDENT.search(text)
    if first_indented is None:
        return default
    return first_indented.group(1)


def line_indent(text: str, place: int) -> str:
    """Return the indentation of the line that contains the given position."""
    line_break = max(text.rfind("\n", 0, place), text.rfind("\r", 0, place))
    start = line_break + 1
    end = min(_blanks_end(text, start), place)
    return text[start:end]


def with_item(text: str, inside: Bracketed, render: Render, *, one_line: bool = False) -> str:
    """Return the text with an item added after the last item.

    Args:
        text: the text of the file.
        inside: the object or list that receives the item.
        render: writes the item.
        one_line: whether the format forbids line breaks between these brackets.
    """
    if not inside.items:
        return _with_first_item(text, inside, render, one_line=one_line)

    last = inside.items[-1]
    layout = layout_of(text, inside, last, one_line=one_line)
    splices: list[Splice] = []
    comma = _comma(text, last.end, inside.end - 1)
    if comma is None:
        place = last.end
        closing_comma = ""
        splices.append(Splice(place, place, ","))
    else:
        # The last item has a comma behind it, so give the new item one, too.
        place = comma + 1
        closing_comma = ","

    if layout.indent is not None:
        # Go past a comment after the last item, because it belongs to that item.
        place = _comments_end(text, place)
        before = f"{layout.newline}{layout.indent}"
    elif layout.compact:
        before = ""
    else:
        before = " "

    new = f"{before}{render(layout)}{closing_comma}"
    splices.append(Splice(place, place, new))
    return spliced(text, splices)


def _with_first_item(text: str, inside: Bracketed, render: Render, *, one_line: bool) -> str:
    """Return the text with an item added between empty brackets.

    The item gets its own line if the brackets already span several lines, or if they are adjacent
    and the text spans several lines.
    """
    after_opening = inside.start + 1
    interior = text[after_opening : inside.end - 1]
    if interior:
        own_line = "\n" in interior
    else:
        is_root = not text[: inside.start].strip()
        own_line = is_root or "\n" in text.strip()

    # If there are comments between the brackets, add the item after them.
    place = after_opening + len(interior.rstrip())
    newline = newline_of(text)
    unit = unit_of(text)
    if one_line or not own_line:
        compact = not own_line and not interior and _is_compact(text)
        place = _blanks_end(text, place)
        new = render(Layout(None, unit, newline, compact))
        return spliced(text, [Splice(place, place, new)])

    outer = line_indent(text, inside.start)
    indent = f"{outer}{unit}"
    layout = Layout(indent, unit, newline, compact=False)
    new = f"{newline}{indent}{render(layout)}"
    if not interior:
        # Whitespace before the closing bracket would stay there. If there are no items, put the
        # bracket on its own line.
        new += f"{newline}{outer}"
    return spliced(text, [Splice(place, place, new)])


def with_value(
    text: str, inside: Bracketed, item: TextItem, render: Render, *, one_line: bool = False
) -> str:
    """Return the text with the value of the given item replaced by the output of `render`."""
    layout = layout_of(text, inside, item, one_line=one_line)
    has_several_lines = "\n" in text[item.value_start : item.end]
    if layout.indent is None and has_several_lines and not one_line:
        # The old value has several lines, although the item begins within a line, so let the new
        # value have several lines, too.
        layout = replace(layout, indent=line_indent(text, item.start))

    return spliced(text, [Splice(item.value_start, item.end, render(layout))])


def without_item(text: str, inside: Bracketed, item: TextItem) -> str:
    """Return the text without the given item, its comma and the line break before it. Comments
    around the item are kept.
    """
    number = inside.items.index(item)
    comma = _comma(text, item.end, inside.gap_after(number))
    if comma is None and number > 0:
        # No comma follows the last item, so remove the comma that precedes it.
        comma = _comma(text, inside.gap_before(number), item.start)

    end = item.end
    splices: list[Splice] = []
    if comma is not None and _blanks_end(text, end) == comma:
        # Only blanks are between the item and its comma, so remove them together.
        end = comma + 1
    elif comma is not None:
        # Remove the comma on its own, because a comment between it and the item stays.
        splices.append(Splice(comma, comma + 1, ""))

    if len(inside.items) == 1 and _is_alone(text, inside, item, end):
        return spliced(text, [Splice(inside.start + 1, inside.end - 1, "")])

    start, end = _span(text, inside, number, end)
    return spliced(text, _merged([*splices, Splice(start, end, "")]))


def _is_alone(text: str, inside: Bracketed, item: TextItem, end: int) -> bool:
    """Return whether the brackets contain nothing but the given item on its own lines."""
    before = text[inside.start + 1 : item.start]
    after = text[end : inside.end - 1]
    return "\n" in before and not before.strip() and not after.strip()


def _span(text: str, inside: Bracketed, number: int, end: int) -> tuple[int, int]:
    """Return the start and end of the text to remove with the given item: the item up to `end`, and
    the whitespace or line break that only this item needs.
    """
    start = inside.items[number].start
    following = inside.gap_after(number)
    is_first = number == 0
    is_last = number == len(inside.items) - 1

    # The positions of the nearest characters on both sides that are not blanks.
    left = len(text[:start].rstrip(" \t"))
    right = _blanks_end(text, end)
    starts_line = text[left - 1] in "\r\n"
    ends_line = text[right] in "\r\n"
    if starts_line and ends_line:
        # The item is alone on its lines, so remove them, too.
        return _before_break(text, left), end

    if starts_line and is_last and right == following:
        # Move the closing bracket to the end of the previous line, unless it would become part of a
        # comment there.
        before = _before_break(text, left)
        if _ends_in_line_comment(text, inside.gap_before(number), before):
            return start, end
        return before, end

    if is_last and not starts_line:
        if is_first:
            # There is no previous item, so the whitespace belongs to the brackets.
            return start, end
        # Remove the whitespace after the previous item, which is no longer needed.
        return left, end

    if right == following and not ends_line:
        # Let the next item begin where this one begins.
        return start, right
    return start, end


def _ends_in_line_comment(text: str, start: int, end: int) -> bool:
    """Return whether a comment that extends to the end of its line ends at `end`.

    The text from `start` contains only whitespace, commas and comments.
    """
    last_comment: re.Match[str] | None = None
    for comment in _COMMENT.finditer(text, start, end):
        last_comment = comment

    if last_comment is None or last_comment.end() < end:
        return False
    return not last_comment.group().startswith("/*")


def _blanks_end(text: str, place: int) -> int:
    """Return the position after any blanks at `place`."""
    end = place
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return end


def _before_break(text: str, place: int) -> int:
    """Return the position before the line break that ends at `place`."""
    if text[place - 2 : place] == "\r\n":
        return place - 2
    return max(place - 1, 0)


def _merged(splices: list[Splice]) -> list[Splice]:
    """Return the removals in order, with overlapping ones merged."""
    merged: list[Splice] = []
    for splice in sorted(splices, key=lambda splice: splice.start):
        if not merged or splice.start > merged[-1].end:
            merged.append(splice)
            continue

        before = merged.pop()
        end = max(before.end, splice.end)
        merged.append(Splice(before.start, end, ""))

    return merged


def layout_of(text: str, inside: Bracketed, item: TextItem, *, one_line: bool = False) -> Layout:
    """Return the layout of an item between brackets."""
    newline = newline_of(text)
    compact = _is_compact(text)
    unit = unit_of(text)
    # The position after the nearest character before the item that is not a blank.
    left = len(text[: item.start].rstrip(" \t"))
    starts_line = left > 0 and text[left - 1] in "\r\n"
    if one_line or not starts_line:
        return Layout(None, unit, newline, compact)

    indent = text[left : item.start]
    outer = line_indent(text, inside.start)
    if indent.startswith(outer) and indent != outer:
        # The item shows how far these brackets indent, whatever the rest of the text does.
        unit = indent.removeprefix(outer)
    return Layout(indent, unit, newline, compact)


def _is_compact(text: str) -> bool:
    """Return whether the text is a single line with no spaces after its colons."""
    if "\n" in text.strip():
        return False
    return '":' in text and '": ' not in text


def _comma(text: str, start: int, end: int) -> int | None:
    """Return the position of the comma between `start` and `end`, ignoring comments."""
    place = start
    while place < end:
        comment = _COMMENT.match(text, place)
        if comment is not None:
            place = comment.end()
        elif text[place] == ",":
            return place
        else:
            place += 1

    return None


def _comments_end(text: str, place: int) -> int:
    """Return the end of the comments that begin on the same line, or `place` if there are none."""
    behind = _BLANK_OR_COMMENT.match(text, place)
    if behind is None:
        return place
    comments = behind.group().rstrip(" \t")
    return place + len(comments)
