"""Format rows of cells as lines of text that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from unicodedata import east_asian_width

from ideabridge.tools.names import printable_line

_NARROW: Final = 8
"""The minimum width of a table column."""


def table_rows(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a table, each with the number of its row. The row of titles is number 0.
    Long cells are wrapped within their column.

    Args:
        heads: the titles of the columns.
        rows: the cells. Every row has as many cells as there are titles.
        width: the width of the terminal in columns, or None to make the table as wide as its cells.
    """
    listed = [[printable_line(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(_columns(cell) for cell in column) for column in zip(*listed, strict=True)]
    if width is not None:
        widths = _fitted(widths, width - 2 * (len(widths) - 1))

    for position, row in enumerate(listed):
        cells = [_wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        for number in range(max(len(cell) for cell in cells)):
            parts = [cell[number] if number < len(cell) else "" for cell in cells]
            padded = [
                part + " " * (size - _columns(part))
                for part, size in zip(parts, widths, strict=True)
            ]
            yield position, "  ".join(padded).rstrip()


def _fitted(widths: list[int], room: int) -> list[int]:
    """Divide the available width among the columns. Narrow columns keep their width, and wide ones
    share the rest.
    """
    fitted = list(widths)
    open_ = sorted(range(len(widths)), key=lambda number: widths[number])
    left = room
    for position, number in enumerate(open_):
        share = max(left // (len(open_) - position), _NARROW)
        fitted[number] = min(widths[number], share)
        left -= fitted[number]

    return fitted


def _wrapped(text: str, width: int) -> list[str]:
    """Break a string into lines of at most `width` columns, at spaces where possible."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if _columns(longer) <= width:
            line = longer
            continue

        if line:
            lines.append(line)

        line = word
        while _columns(line) > width:
            head = _first_columns(line, width)
            lines.append(head)
            line = line[len(head) :]

    return [*lines, line]


def _first_columns(text: str, width: int) -> str:
    size = 0
    for number, char in enumerate(text):
        size += _columns(char)
        if size > width and number:
            return text[:number]
    return text


def _columns(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
