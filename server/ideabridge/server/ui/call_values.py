"""Show the parameters of a call that needs approval as a table, with what has changed since a
person last approved a call of the same tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeGuard

from markupsafe import Markup

from ideabridge.bridge.loop.output import resolved_call
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.server.ui.coloured import coloured, language_of
from ideabridge.server.ui.showing import CUT, differing_lines, in_one_line
from ideabridge.server.ui.shown_numbers import is_number, shown_numbers, shown_value
from ideabridge.server.ui.site import Site
from ideabridge.server.views.pending import Pending
from ideabridge.server.views.value_table import broken_lines, parameter_label, values_of_call
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import counted, readable_json, visible

_MOST_COMPARED: Final = 20_000
"""Maximum length, in characters, of a text whose lines are compared with those of another."""

_MOST_LEADING: Final = 4
"""How many of the first values usually say what a call is about. They are never folded."""

_MOST_KEY: Final = 3
"""Maximum number of the first values that a card emphasizes."""

_LONGEST_BRIEF: Final = 24
"""Maximum length, in characters, of a value that a line about its call shows in full."""

_LONGEST_BEGINNING: Final = 48
"""Maximum length, in characters, of the beginning of a value in a list of decisions."""

_PLACES: Final = frozenset({"_outputPath", "_outputMethod"})
"""The meta-properties that say where and how a plan puts the result. The tool does not receive
them, so they are not compared, and only the technical details of a decision show them.
"""

_PATH: Final = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\]\S*")
"""Matches the path of a file."""

_FILE_PARAMETER: Final = re.compile(r"(?:^|_)(?:file|path|file_?name|file_?path)$", re.IGNORECASE)
"""Matches the name of a parameter that names a file."""

_NAME_OF_THING: Final = re.compile(r"-?\d{1,20}|\"\d{1,20}\"|(?=\D{0,63}\d)[A-Za-z][\w.:/#-]{0,63}")
"""Matches an integer, a JSON string of digits, and a single word that contains a digit."""

_LONGEST_BEFORE: Final = 200
"""Maximum length, in characters, of the beginning of an earlier value."""

_LONGEST_ID: Final = 64
"""Maximum length, in characters, of text that identifies a thing."""

_MOST_LINES: Final = 1000
_MOST_SHOWN: Final = 200
"""Maximum number of lines that a page shows from a comparison."""


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """The last call of a tool that a person approved.

    Attributes:
        run: the run or room that made the call.
        call: the number of the call in the run.
        values: the values in the call, as returned by `values_of_call`, or None if the run is too
            large to read for a page.
    """

    run: str
    call: int
    values: JSONObject | None


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A parameter of a call that needs approval.

    Attributes:
        name: the name of the parameter.
        text: the whole value, as plain text or readable JSON.
        beginning: the beginning of the value on one line, for a list of decisions.
        written: the value as its author wrote it if it is SQL or a patch, otherwise None.
        change: how the value differs from that in the earlier call, or "" if there is no earlier
            call.
        before: the beginning of the earlier value on one line, or "" if the value is unchanged or
            new.
        lines: the lines of a multi-line text that differ; see `_different_lines`.
        is_place: whether the parameter is a meta-property that says where the result goes, which
            the tool does not receive.
        is_plain: whether `text` is plain text rather than JSON.
        ends_with_break: whether a line break follows `text`.
        shows_lines: whether the page shows `lines` at once, because what changes in a file, SQL or
            a patch is what to read. Other texts are shown as they are, with `lines` folded.
    """

    name: str
    text: str
    beginning: str
    written: Markup | None = None
    change: Literal["", "same", "changed", "new"] = ""
    before: str = ""
    lines: tuple[str, ...] = ()
    is_place: bool = False
    is_plain: bool = False
    ends_with_break: bool = False
    shows_lines: bool = False

    @property
    def is_code(self) -> bool:
        """True if the page shows the value as code: a list, an object, a quoted text, or a path."""
        if self.is_plain:
            return _PATH.fullmatch(self.text) is not None
        return self.text[:1] in ("{", "[", '"')

    @property
    def is_brief(self) -> bool:
        """True if the value is a single line that is short enough to show in full."""
        return len(self.text) <= _LONGEST_BRIEF and "\n" not in self.text

    @property
    def names_thing(self) -> bool:
        """True if the value looks like it identifies a single thing: an integer or an id."""
        return not self.is_place and _NAME_OF_THING.fullmatch(self.text) is not None

    @property
    def is_cut(self) -> bool:
        """True if `lines` contains only the first lines that differ."""
        return self.lines[-1:] == (CUT,)

    @property
    def is_replaced(self) -> bool:
        """True if the text has no line in common with the text in the earlier call."""
        signs = {line[:1] for line in self.lines}
        return signs == {"+", "-"} and not self.is_cut

    @property
    def in_words(self) -> str:
        """A brief summary of how `lines` differ from the earlier call."""
        added = sum(line.startswith("+") for line in self.lines)
        removed = sum(line.startswith("-") for line in self.lines)
        if not added + removed or self.is_cut:
            return "changed"
        if added == removed:
            return f"{counted(added, 'line')} changed"

        parts = ((added, "added"), (removed, "removed"))
        return ", ".join(f"{counted(number, 'line')} {verb}" for number, verb in parts if number)


@dataclass(frozen=True, slots=True)
class CallValues:
    """The parameters of a call that needs approval.

    Attributes:
        rows: a row for each parameter.
        earlier: the call with which the values are compared, or None.
        gone: the parameters that only the earlier call has, with their values on one line.
    """

    rows: tuple[ValueRow, ...] = ()
    earlier: EarlierCall | None = None
    gone: tuple[tuple[str, str], ...] = ()

    @property
    def is_compared(self) -> bool:
        """True if there is an earlier call whose values are known."""
        return self.earlier is not None and self.earlier.values is not None

    @property
    def changed(self) -> tuple[ValueRow, ...]:
        """The parameters that differ from those of the earlier call."""
        return tuple(row for row in self.rows if row.change in ("changed", "new"))

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of the texts that have no line in common with those of the earlier call."""
        return tuple(row.name for row in self.rows if row.is_replaced)

    @property
    def changes(self) -> int:
        """The number of parameters that differ, including parameters that only the earlier call
        has.
        """
        return len(self.gone) + len(self.changed)

    @property
    def leading(self) -> tuple[ValueRow, ...]:
        """The first values, which usually say what the call is about."""
        return tuple(row for row in self.rows if not row.is_place)[:_MOST_LEADING]

    @property
    def key(self) -> tuple[ValueRow, ...]:
        """The first short values. They tell calls of the same tool apart."""
        short = tuple(row for row in self.leading if row.is_brief and not row.is_code)
        return short[:_MOST_KEY]

    @property
    def listed(self) -> tuple[ValueRow, ...]:
        """The parameters to read before deciding: all of them or, if there is an earlier call, the
        first few and those that differ from it.
        """
        elsewhere = (*self.folded, *self.places)
        return tuple(row for row in self.rows if row not in elsewhere)

    @property
    def folded(self) -> tuple[ValueRow, ...]:
        """The parameters that `listed` leaves out because they are the same as in the earlier
        call.
        """
        leading = self.leading
        return tuple(row for row in self.rows if row.change == "same" and row not in leading)

    @property
    def places(self) -> tuple[ValueRow, ...]:
        """The meta-properties that say where the result goes."""
        return tuple(row for row in self.rows if row.is_place)


NO_VALUES: Final = CallValues()


def compared_values(call: JSONObject, earlier: EarlierCall | None) -> CallValues:
    """Return the parameters of a call, compared with those of an earlier call."""
    values = values_of_call(call)
    before = None if earlier is None else earlier.values
    names_file = any(_names_file(name, value) for name, value in values.items())
    rows = tuple(_row(name, value, before) for name, value in values.items())
    if names_file:
        rows = tuple(replace(row, shows_lines=bool(row.lines)) for row in rows)

    gone: tuple[tuple[str, str], ...] = ()
    if before is not None:
        gone = tuple(
            (parameter_label(name), shown_value(value, _LONGEST_BEFORE))
            for name, value in before.items()
            if name not in values and name not in _PLACES
        )
    return CallValues(rows, earlier, gone)


def _row(name: str, value: JSON, before: JSONObject | None) -> ValueRow:
    written = None
    language = None if name in _PLACES else language_of(value)
    if language is not None and isinstance(value, str):
        written = coloured(value, language)

    label = parameter_label(name)
    text = "\n".join(broken_lines(readable_json(value, 2)))
    is_plain = False
    ends_with_break = False
    if written is None and _is_plain(value):
        text = value
        is_plain = True
    elif written is None and _is_plain_paragraph(value):
        text = value.removesuffix("\n")
        is_plain = True
        ends_with_break = True
    elif is_number(value):
        text = shown_numbers([value])[0]

    beginning = in_one_line(value, _LONGEST_BEGINNING)
    if isinstance(value, str):
        beginning = f'"{beginning}"'
    row = ValueRow(
        label,
        text,
        beginning,
        written,
        is_place=name in _PLACES,
        is_plain=is_plain,
        ends_with_break=ends_with_break,
    )
    if row.is_place or before is None:
        return row
    if name not in before:
        return replace(row, change="new")
    return _compared_row(row, value, before[name])


def _compared_row(row: ValueRow, value: JSON, old: JSON) -> ValueRow:
    """Return the row of a value, compared with the value in the earlier call."""
    # Compare the values as JSON, because 1 and true are equal in Python.
    if readable_json(old) == readable_json(value):
        return replace(row, change="same")

    text = row.text
    earlier = shown_value(old, _LONGEST_BEFORE)
    if is_number(value) and is_number(old):
        text, earlier = shown_numbers([value, old])
        if text == earlier:
            # Only their exact text tells 1 from 1.0.
            text = readable_json(value)
            earlier = readable_json(old)

    lines = _different_lines(old, value)
    return replace(
        row,
        text=text,
        change="changed",
        before=earlier,
        lines=lines,
        shows_lines=bool(lines) and row.written is not None,
    )


def _names_file(name: str, value: JSON) -> bool:
    """Return whether a value names a file, so that the other values of the call are its contents or
    changes in it.
    """
    if not isinstance(value, str) or "\n" in value:
        return False
    return _FILE_PARAMETER.search(name) is not None or _PATH.fullmatch(value) is not None


def short_values(call: JSONObject) -> Iterator[ValueRow]:
    """Yield the values of a call that a line about it can show in full."""
    for name, value in values_of_call(call).items():
        is_short = isinstance(value, int | float) or (
            isinstance(value, str) and len(value) <= _LONGEST_BRIEF
        )
        if is_short and name not in _PLACES:
            yield _row(name, value, None)


def named_thing(call: JSONObject) -> ValueRow | None:
    """Return the first value in a call that identifies a thing, such as an order number, or None if
    there is no such value.
    """
    for name, value in values_of_call(call).items():
        is_short = isinstance(value, int) or (isinstance(value, str) and len(value) <= _LONGEST_ID)
        if not is_short:
            continue

        row = _row(name, value, None)
        if row.names_thing:
            return row
    return None


_LIKE_JSON: Final = re.compile(r'\s|["{\[]|(true|false|null|-?\d[\d.eE+-]*)\s*$|.*\s$', re.DOTALL)
"""Matches text that could be mistaken for another value, or whose leading or trailing spaces would
be invisible.
"""


def _is_plain(value: JSON) -> TypeGuard[str]:
    """Return whether a value is text that can be shown without quotes: a reader recognises each of
    its characters and cannot mistake it for another value.
    """
    if not isinstance(value, str) or not value or "\\" in value:
        return False
    return visible(value, "\n") == value and _LIKE_JSON.match(value) is None


def _is_plain_paragraph(value: JSON) -> TypeGuard[str]:
    """Return whether a value is plain text that ends with a line break, which a page has to
    mention.
    """
    return isinstance(value, str) and value.endswith("\n") and _is_plain(value.removesuffix("\n"))


def _different_lines(old: JSON, new: JSON) -> tuple[str, ...]:
    """Return the `differing_lines` of two multi-line texts. Return no lines for other values or if
    the texts are too long to compare.
    """
    if not isinstance(old, str) or not isinstance(new, str) or "\n" not in f"{old}{new}":
        return ()
    if max(len(old), len(new)) > _MOST_COMPARED:
        return ()

    old_lines = old.split("\n")
    new_lines = new.split("\n")
    if max(len(old_lines), len(new_lines)) > _MOST_LINES:
        return ()

    compared = differing_lines(old_lines, new_lines, _MOST_SHOWN)
    lines = [visible(line, "\t") for line in compared]
    # If the texts end with a line break, leave out their last line, which is empty.
    if lines[-1:] == [" "]:
        lines.pop()
    return tuple(lines)


async def earlier_call(site: Site, pending: Pending) -> EarlierCall | None:
    """Return the last call of the same tool that a person approved, in a run of the same owner and
    on a server that starts in the same way. Return None if the store has no such call.
    """
    tool = pending.question.tool
    if pending.question.kind != "call" or tool is None or not pending.server:
        return None

    store = site.bridge.store
    owner = pending.record.caller
    approved = store.tool_memory.approved(owner, pending.server, tool.name_in_module)
    if approved is None:
        return None
    try:
        record = store.runs.find(approved.run, caller=owner)
        async with site.histories.reading(record.id, fold=True) as read:
            if read.history is None:
                return EarlierCall(approved.run, approved.call, None)
            calls = read.history.machine.history
            if approved.call >= len(calls) or not calls[approved.call].items:
                return None
            return EarlierCall(
                approved.run, approved.call, values_of_call(resolved_call(calls[approved.call]))
            )
    except UnknownRunError:
        # The run has been deleted, so the earlier call is no longer known.
        return None
