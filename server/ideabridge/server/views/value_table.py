"""The values of a call as a readable table in plain text. Each row contains a parameter and its
value.

Each line with text from outside begins with a mark, so that no value can be mistaken for a row or
for ideabridge's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.names import readable_json, visible, wrap_visible

MARK: Final = "  | "
"""The mark at the beginning of each line with text from outside."""

_NAME_TITLE: Final = "parameter"
_VALUE_TITLE: Final = "value"
_WIDEST_NAME: Final = 24
"""Maximum width of the name column, in terminal columns. A longer name has its own line."""

_GAP: Final = 2
_NARROWEST: Final = 24
"""Minimum width of the value column, in terminal columns."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LINE_END: Final = re.compile(r"(?<!\\)(?:\\\\)*\\n")
"""An escaped line break inside a JSON string."""


def parameter_label(name: str) -> str:
    """Return the display name of a parameter. Unusual names are shown as JSON."""
    return name if _NAME.fullmatch(name) else readable_json(name)


class ValueTable:
    """The layout of a table.

    Args:
        values: all values in the table, which determine the widths of the columns.
        width: the width of a line, in columns.
        titles: whether the columns have titles, which are shown without a mark.
    """

    def __init__(self, values: JSONObject, width: int, *, titles: bool = True) -> None:
        self._values = values
        self._width = width
        self._has_titles = titles and bool(values)

        labels = [parameter_label(name) for name in values]
        columns = [label for label in labels if _is_short(label)]
        if titles:
            columns.append(_NAME_TITLE)
        self._column = max((len(text) for text in columns), default=0) + _GAP

        # If a row leaves too little room beside the names, put the values below them.
        self._is_beside = width - len(MARK) - self._column >= _NARROWEST
        self._indent = " " * (self._column if self._is_beside else _GAP)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table, with every value in full."""
        if self._has_titles:
            yield f"{' ' * len(MARK)}{_NAME_TITLE.ljust(self._column)}{_VALUE_TITLE}"
        for name, value in self._values.items():
            yield from self.row(name, readable_json(value))

    def row(self, name: str, text: str) -> Iterator[str]:
        """Yield the lines of a row. Each line break inside a string in the JSON `text` starts
        another line.
        """
        label = parameter_label(name)
        further = f"{MARK}{self._indent}"
        first = further
        if _is_short(label) and self._is_beside:
            first = f"{MARK}{label.ljust(self._column)}"
        else:
            yield from wrap_visible(label, self._width, first=MARK, further=f"{MARK}  ")

        for part in broken_lines(text):
            yield from wrap_visible(visible(part), self._width, first=first, further=further)
            first = further


def broken_lines(text: str) -> Iterator[str]:
    """Yield a JSON text in parts. Each part except the last ends with an escaped line break in a
    string.
    """
    begin = 0
    for line_end in _LINE_END.finditer(text):
        end = line_end.end()
        # A line break at the end of a string does not begin another line, because nothing but the
        # closing quote follows.
        if end < len(text) - 1:
            yield text[begin:end]
            begin = end

    yield text[begin:]


def _is_short(label: str) -> bool:
    return len(label) <= _WIDEST_NAME and label.isascii()


def values_of_call(call: JSONObject) -> JSONObject:
    """Return the values for a call's table: the parameters, followed by the meta-properties other
    than those that name the tool and the calls that this call waited for.
    """
    omitted = ("_tool", "_module", "_id", "_after")
    parameters: JSONObject = {}
    meta_properties: JSONObject = {}
    for name, value in call.items():
        if name in omitted:
            continue
        if name.startswith("_"):
            meta_properties[name] = value
        else:
            parameters[name] = value

    return {**parameters, **meta_properties}


def tool_of(call: JSONObject) -> str:
    """Return the heading of a call's table: `tool of server module`."""
    written = WrittenCall.of(call)
    heading = visible(written.tool) or "it"
    if written.module is not None:
        heading += f" of server {visible(written.module)}"
    return heading
