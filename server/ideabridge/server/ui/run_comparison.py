"""Show a run beside an earlier one.

Calls are aligned by tool, in the order in which they are listed. Differences are shown line by
line.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.ui.call_names import names_of_run
from ideabridge.server.ui.histories import KeptJournal, read_until
from ideabridge.server.ui.outputs import ShownOutput, shown_output
from ideabridge.server.ui.showing import as_json, differing_lines
from ideabridge.server.ui.shown_numbers import shown_value
from ideabridge.server.ui.timeline import call_status
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.server.views.history import call_json
from ideabridge.server.views.text import Beginning
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, decode
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.names import counted, joined
from ideabridge.tools.typed import read_as

MOST_OFFERED: Final = 20
"""Maximum number of earlier runs that a page offers for a comparison."""

MOST_CALLS: Final = 100
"""Maximum number of a run's calls that are compared."""

_MOST_BYTES: Final = 2**30
_WHOLE: Final = 2**48
_TEXT: Final = 4000
"""Maximum length, in characters, of a value whose lines are compared."""

_MOST_LINES: Final = 60
"""Maximum number of lines that a page shows from one difference."""

_MOST_CHARACTERS: Final = 30_000
"""Maximum total length, in characters, of the differing lines of all calls on a page."""

_MOST_FIELDS: Final = 200
"""Maximum number of fields in a value that are compared one by one."""

_MOST_CHANGES: Final = 12
"""Maximum number of differing fields that are shown as a table. More fields are easier to read as
lines.
"""

_NAMED: Final = 3
"""Maximum number of differing parameters that are named in the summary of a call."""

_LEAST_COMMON: Final = 0.5
"""Minimum share of words that two values must have in common for the other words to be marked."""

_WORDS: Final = re.compile(r"\S+|\s+")
_LONGEST_FIELD: Final = 80
_DEEPEST: Final = 6

Difference: TypeAlias = Literal["same", "changed", "other run only", "this run only"]


@dataclass(frozen=True, slots=True)
class ComparedField:
    """A value without members within another value: its path, and the value on one line."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class TextPart:
    """Part of a value's text. `is_changed` says whether the other value lacks it."""

    text: str
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs between two values.

    Attributes:
        before, now: the field in the earlier and in the later value, on one line, or "" if the
            value lacks the field.
    """

    path: str
    before: str
    now: str

    @property
    def parts_before(self) -> list[TextPart]:
        """The earlier value, divided where its words differ from the later one."""
        return _parts_of(self.before, self.now)

    @property
    def parts_now(self) -> list[TextPart]:
        """The later value, divided where its words differ from the earlier one."""
        return _parts_of(self.now, self.before)


def _parts_of(text: str, other: str) -> list[TextPart]:
    """Split a text where it differs from another text.

    If the texts have few words in common, the whole text has changed, and no part is marked.
    """
    words: list[str] = _WORDS.findall(text)
    matcher = difflib.SequenceMatcher(None, words, _WORDS.findall(other), autojunk=False)
    if matcher.ratio() < _LEAST_COMMON:
        return [TextPart(text)]

    parts: list[TextPart] = []
    for tag, start, end, _, _ in matcher.get_opcodes():
        if end > start:
            parts.append(TextPart("".join(words[start:end]), tag != "equal"))
    return parts


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """The data for comparing a call.

    Attributes:
        title, place: the title and the place of the call; see `CallName`.
        sent, result: the beginnings of its parameters and of its result or error, as indented JSON.
        sent_digest, result_digest: the hashes of the complete values.
        sent_fields, fields: the first fields of its parameters and of its result.
        items: the number of items of its result, or None if the result is not a list.
    """

    number: int = 0
    name: str = ""
    title: str = ""
    place: str = ""
    status: str = ""
    seconds: float | None = None
    sent: str = ""
    result: str = ""
    sent_digest: str = ""
    result_digest: str = ""
    sent_fields: tuple[ComparedField, ...] = ()
    fields: tuple[ComparedField, ...] = ()
    items: int | None = None


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """The data for comparing a run.

    Attributes:
        calls: the first calls of the run.
        omitted: how many further calls the run has.
        output: the beginning of its output as indented JSON, or "".
        output_digest: the hash of the complete output.
        fields: the first fields of its output.
    """

    calls: tuple[ComparedCall, ...] = ()
    omitted: int = 0
    output: str = ""
    output_digest: str = ""
    fields: tuple[ComparedField, ...] = ()

    @classmethod
    def from_json(cls, value: JSON) -> ComparedRun:
        """Read the result of `to_json` in a worker process."""
        return read_as(cls, value)

    def to_json(self) -> JSONObject:
        """Return the members as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """A call of the earlier run beside a call of this run. Either call can be missing.

    Attributes:
        sent, result: the lines that differ, as a unified diff without its header.
        sent_changes, changes: the fields in which the parameters and the results differ, if they
            are few.
    """

    before: ComparedCall | None
    now: ComparedCall | None
    difference: Difference
    sent: tuple[str, ...] = ()
    result: tuple[str, ...] = ()
    sent_changes: tuple[FieldChange, ...] = ()
    changes: tuple[FieldChange, ...] = ()

    @property
    def summary(self) -> str:
        """A phrase that says how the parameters and the results differ."""
        phrases: list[str] = []
        if self.sent_changes:
            names = joined([change.path or "value" for change in self.sent_changes], _NAMED)
            phrases.append(f"{_that_differ(len(self.sent_changes), 'parameter')}: {names}")
        elif self.sent:
            phrases.append("the parameters differ")

        if self.changes:
            phrases.append(_that_differ(len(self.changes), "value of the result"))
        elif self.result:
            phrases.append(self._differing_result)
        return "; ".join(phrases)

    @property
    def _differing_result(self) -> str:
        before = None if self.before is None else self.before.items
        now = None if self.now is None else self.now.items
        if before is None or now is None or before == now:
            return "the result differs"
        return f"result {before:,} → {counted(now, 'item')}"


def _that_differ(number: int, noun: str) -> str:
    """Return a phrase that says how many things differ."""
    first, space, rest = noun.partition(" ")
    return f"{counted(number, first)}{space}{rest} {'differs' if number == 1 else 'differ'}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run beside an earlier run.

    Attributes:
        pairs: the compared pairs of calls.
        output: the lines in which the outputs differ.
        is_output_same: whether the outputs are the same.
        omitted: how many calls of both runs are not compared.
        unexplained: how many pairs have differing lines that are not shown.
        fields: the fields in which the outputs differ, if they are few.
        outputs: the outputs of both runs, the earlier one first, as tables or trees, if they differ
            in more than a few fields and are short enough.
    """

    pairs: tuple[ComparedPair, ...]
    output: tuple[str, ...]
    is_output_same: bool
    omitted: int
    unexplained: int = 0
    fields: tuple[FieldChange, ...] = ()
    outputs: tuple[ShownOutput, ...] = ()

    @property
    def changes(self) -> int:
        """The number of pairs that differ."""
        return sum(pair.difference != "same" for pair in self.pairs)


def compared_run(record: RunRecord, read: KeptJournal, titles: ToolTitles) -> ComparedRun:
    """Return the data for comparing a run whose journal is folded."""
    history = read.history
    if history is None:
        raise LimitExceededError(f"run {record.id} is too large to be compared")

    machine = history.machine
    names = names_of_run(read.trace, titles)
    calls: list[ComparedCall] = []
    for progress, bar in islice(zip(machine.history, read.trace.bars, strict=False), MOST_CALLS):
        about = call_json(bar.number, progress)
        seconds = None
        if bar.started is not None and bar.finished is not None:
            seconds = bar.finished - bar.started
        sent = about.get("parameters")
        result = about.get("error", about.get("value"))
        calls.append(
            ComparedCall(
                bar.number,
                bar.name,
                names[bar.number].title,
                names[bar.number].place,
                call_status(progress),
                seconds,
                _beginning(sent),
                _beginning(result),
                content_hash(sent),
                content_hash(result),
                _fields_of(sent),
                _fields_of(result),
                len(result) if isinstance(result, list) else None,
            )
        )

    output = machine.output if machine.has_output else None
    text = _beginning(output) if machine.has_output else ""
    return ComparedRun(
        tuple(calls),
        max(0, len(machine.history) - MOST_CALLS),
        text,
        content_hash(output),
        _fields_of(output),
    )


def compared_in_worker(store: Store, run_id: str, titles: JSON) -> JSONObject:
    """Return the `compared_run` of a run as JSON. This function runs in a worker process."""
    record = store.runs.find(run_id, caller=SEES_ALL)
    read = read_until(store, run_id, _WHOLE, _MOST_BYTES)
    return compared_run(record, read, ToolTitles.from_json(titles)).to_json()


def _beginning(value: JSON) -> str:
    return as_json(Beginning(without_payloads(value), _TEXT).value)[:_TEXT]


def _fields_of(value: JSON) -> tuple[ComparedField, ...]:
    """Return the first fields of a value. A part that is nested too deeply counts as one field."""
    fields: list[ComparedField] = []
    waiting: list[tuple[tuple[str, ...], JSON]] = [((), Beginning(value, _TEXT).value)]
    while waiting and len(fields) < _MOST_FIELDS:
        path, part = waiting.pop()
        members: list[tuple[str, JSON]] = []
        if isinstance(part, dict):
            members = list(part.items())
        elif isinstance(part, list):
            members = [(f"{place}.", member) for place, member in enumerate(part, 1)]

        if members and len(path) < _DEEPEST:
            waiting += [((*path, name), member) for name, member in reversed(members)]
        else:
            fields.append(ComparedField(_path(path), shown_value(part, _LONGEST_FIELD)))
    return tuple(fields)


def _path(names: tuple[str, ...]) -> str:
    """Return a path in readable form: `customer.name`, or `1. customer` in the first item."""
    path = ""
    for name in names:
        if path:
            path += " " if path.endswith(".") or name.endswith(".") else "."
        path += name
    return path


def _changes(
    before: tuple[ComparedField, ...], now: tuple[ComparedField, ...]
) -> tuple[FieldChange, ...]:
    """Return the fields that differ. Return no fields if many differ, or if the two values have no
    field in common.
    """
    old = {field.path: field.text for field in before}
    new = {field.path: field.text for field in now}
    changes = [
        FieldChange(path, old.get(path, ""), new.get(path, ""))
        for path in old | new
        if old.get(path) != new.get(path)
    ]
    if len(changes) > _MOST_CHANGES or not old.keys() & new.keys():
        return ()
    return tuple(changes)


def comparison_of(before: ComparedRun, now: ComparedRun) -> Comparison:
    """Compare a run with an earlier run."""
    old_names = [call.name for call in before.calls]
    new_names = [call.name for call in now.calls]
    matcher = difflib.SequenceMatcher(None, old_names, new_names, autojunk=False)
    pairs: list[ComparedPair] = []
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        old = before.calls[old_start:old_end]
        new = now.calls[new_start:new_end]
        if tag == "equal":
            pairs += map(_pair, old, new)
        else:
            pairs += [ComparedPair(call, None, "other run only") for call in old]
            pairs += [ComparedPair(None, call, "this run only") for call in new]

    is_output_same = before.output_digest == now.output_digest
    output = () if is_output_same else _differing_lines(before.output, now.output)
    fields = () if is_output_same else _changes(before.fields, now.fields)
    outputs = () if is_output_same or fields else _shown_outputs(before.output, now.output)
    shown = _that_fit(pairs)
    unexplained = sum(one != pair for one, pair in zip(shown, pairs, strict=True))
    return Comparison(
        tuple(shown),
        output,
        is_output_same,
        before.omitted + now.omitted,
        unexplained,
        fields,
        outputs,
    )


def _shown_outputs(*texts: str) -> tuple[ShownOutput, ...]:
    """Return the outputs, given as JSON, in readable form. Return nothing if one of them is neither
    a table nor a tree, or was cut off.
    """
    if not all(0 < len(text) < _TEXT for text in texts):
        return ()
    values: list[JSON] = [decode(text) for text in texts]
    if any(isinstance(value, list) for value in values):
        # A record that is compared with a table is a table of one row, so that both look alike.
        values = [[value] if isinstance(value, dict) else value for value in values]

    outputs = tuple(shown_output(value) for value in values)
    if not all(output.kind in {"table", "tree"} for output in outputs):
        return ()
    return outputs


def _that_fit(pairs: list[ComparedPair]) -> list[ComparedPair]:
    """Return the pairs, without the differing lines of pairs that do not fit on a page."""
    shown: list[ComparedPair] = []
    room = _MOST_CHARACTERS
    for pair in pairs:
        room -= sum(map(len, pair.sent)) + sum(map(len, pair.result))
        if room < 0:
            pair = replace(pair, sent=(), result=(), sent_changes=(), changes=())
        shown.append(pair)
    return shown


def _pair(before: ComparedCall, now: ComparedCall) -> ComparedPair:
    sent: tuple[str, ...] = ()
    sent_changes: tuple[FieldChange, ...] = ()
    if before.sent_digest != now.sent_digest:
        sent = _differing_lines(before.sent, now.sent)
        sent_changes = _changes(before.sent_fields, now.sent_fields)

    result: tuple[str, ...] = ()
    changes: tuple[FieldChange, ...] = ()
    if before.result_digest != now.result_digest:
        result = _differing_lines(before.result, now.result)
        changes = _changes(before.fields, now.fields)

    is_same = before.status == now.status and not sent and not result
    difference = "same" if is_same else "changed"
    return ComparedPair(before, now, difference, sent, result, sent_changes, changes)


def _differing_lines(before: str, now: str) -> tuple[str, ...]:
    """Return the `differing_lines` of two texts, or a line saying that they differ only beyond the
    compared parts.
    """
    lines = differing_lines(before.splitlines(), now.splitlines(), _MOST_LINES)
    if not lines:
        lines = ["… they differ beyond the beginning that is compared here"]
    return tuple(lines)
