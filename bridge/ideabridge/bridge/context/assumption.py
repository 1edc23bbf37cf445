"""Present, as text and as choices, the values that a replay used although their explanations
differ.

A tool's description names the values that are open (`evidence_sentence`), an answer names what was
assumed (`assumption_lines`), and a person who is asked can choose another value (`with_choices`).

`settle` returns an assumption as JSON; see `Settled.assumed`. This JSON names the value that was
used and up to three others. A long value is shortened: people see its beginning, but cannot choose
it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    RUNS_FOR_POSITION,
    StoredLiteral,
    read_explanation,
    same,
    shortened_member,
)
from ideabridge.bridge.context.references import Path, clipped, quoted
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.tools.encoding import JSON, JSONObject, decode, list_or_empty, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import counted, readable_json, visible
from ideabridge.tools.typed import member, read_as, read_whole

TEXT_BYTES: Final = 2000
"""The maximum total size, in bytes, of the lines that say what a run assumed."""

SENTENCE: Final = 300
"""The maximum length of `evidence_sentence`, in characters."""

_VALUE: Final = 60
_WHOLE: Final = 300
"""The maximum length of a value that a person can choose, in characters of JSON with hidden
characters escaped.
"""

_SOURCE: Final = 80
_AT: Final = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that a literal has or might have.

    Attributes:
        source: the explanation that yields the value.
        value: the value, which a person can choose. It is MISSING if the explanation has no value,
            or if the value is not shown in full.
        shown: the beginning of the value, in readable form.
    """

    source: str
    value: JSON | Missing
    shown: str

    @property
    def text(self) -> str:
        """The beginning of the value and its source, on one line."""
        return self._with_source(self.shown)

    @property
    def choice(self) -> str:
        """The line that offers the value to a person.

        Unlike `text`, it contains the whole value if the value can be chosen.
        """
        return self._with_source(
            self.shown if isinstance(self.value, Missing) else readable_json(self.value)
        )

    def _with_source(self, value: str) -> str:
        return f"{value} ({clipped(self.source, _SOURCE)})"


@dataclass(frozen=True, slots=True)
class Assumption:
    """A literal whose value was not determined, or a call that might not belong in the run.

    Attributes:
        at: the location of the literal in the plan: `calls.3.max_count`, `output.title`, `calls.2`.
            In a room, the call that the room answers comes first: `calls.0: calls.3.max_count`.
        why: why the value is not determined.
        taken: the value that was used, or None for a call.
        instead: the other values that the literal could have had.
        instance: the instance of the call or of the output, or "" if there are no instances.
        approved: who approved the assumption when asked, or "" if nobody did.
    """

    at: str
    why: str
    taken: Candidate | None = None
    instead: tuple[Candidate, ...] = ()
    instance: str = ""
    approved: str = ""

    @property
    def line(self) -> str:
        """The assumption in words, on one line."""
        line = _where(self.at, self.instance)
        if self.taken is not None:
            line += f" is {self.taken.text}"

        if self.instead:
            line += (
                f"; it could also be {', or '.join(candidate.text for candidate in self.instead)}"
            )

        line += f": {clipped(self.why, _AT)}"
        if self.approved:
            line += f"; approved by {clipped(self.approved, _AT)}"

        return visible(line)

    @property
    def choices(self) -> tuple[Candidate, ...]:
        """The values that a person can choose: the value that was used, followed by the other
        values that are shown in full. If no other value is shown in full, there are no choices.
        """
        alternatives = [
            candidate for candidate in self.instead if not isinstance(candidate.value, Missing)
        ]
        if self.taken is not None and alternatives:
            return (self.taken, *alternatives)
        return ()


@dataclass(frozen=True, slots=True)
class _Stored:
    """An assumption in the form of `Settled.assumed`, without the value that was used."""

    at: str
    why: str
    instance: str = ""
    approved: str = ""
    source: str | None = field(default=None, metadata=member("from"))
    instead: tuple[JSONObject, ...] | None = None


def read_assumption(raw: JSON) -> Assumption:
    """Read an assumption in the form of `Settled.assumed`, or as `{"at", "why"}`.

    Raises:
        ExplanationError: the form is wrong.
    """
    stored = read_whole(_Stored, raw)
    if stored is None:
        raise ExplanationError(f"assumed: expected an object with at and why, found {show(raw)}")

    assumption = Assumption(
        stored.at, stored.why, instance=stored.instance, approved=stored.approved
    )
    members = object_or_empty(raw)
    if "taken" not in members or stored.source is None or stored.instead is None:
        return assumption

    return dataclasses.replace(
        assumption,
        taken=_candidate(members, "taken"),
        instead=tuple(_candidate(entry, "value") for entry in stored.instead),
    )


def _where(at: str, instance: JSON) -> str:
    where = clipped(at, _AT)
    return f"{where} of {clipped(str(instance), _AT)}" if instance else where


def _candidate(form: JSONObject, key: str) -> Candidate:
    source = str(form.get("from"))
    if key not in form:
        return Candidate(source, MISSING, "no value")
    value = form[key]
    # Hide a value that was not shown in full, so that nobody can choose it, whether in the form or
    # at the terminal.
    is_whole = form.get("shortened") is not True and len(readable_json(value)) <= _WHOLE
    return Candidate(source, value if is_whole else MISSING, show(value, _VALUE))


def assumption_lines(assumed: Iterable[JSON], most: int = TEXT_BYTES) -> list[str]:
    """Return a run's assumptions, one per line, in up to `most` bytes. If some do not fit, the last
    line says how many.
    """
    return fitting_lines([read_assumption(entry).line for entry in assumed], most)


def note_lines(notes: Iterable[JSON], most: int | None = TEXT_BYTES) -> list[str]:
    """Return notes (`{"at", "what"}`) as lines, like `assumption_lines`. If `most` is None, the
    length is unlimited.
    """
    lines: list[str] = []
    for note in notes:
        if not isinstance(note, dict):
            continue
        place = _where(str(note.get("at")), note.get("instance"))
        lines.append(visible(f"{place}: {note.get('what')}"))

    if most is None:
        return lines
    return fitting_lines(lines, most)


def fitting_lines(lines: list[str], most: int = TEXT_BYTES) -> list[str]:
    """Return as many distinct lines, in order, as fit into `most` bytes in total. If some do not
    fit, a last line says how many.
    """
    lines = list(dict.fromkeys(lines))
    left = most
    for number, line in enumerate(lines):
        left -= len(line.encode("utf-8", "replace")) + 1
        if left < 0:
            return [*lines[:number], f"and {len(lines) - number} more"]

    return lines


def evidence_sentence(explained: Iterable[JSON], tools: Sequence[str]) -> str:
    """Return a sentence for a tool's description that names the values left open by the runs of its
    plan.

    The sentence has up to `SENTENCE` characters, and is empty if there are no such values.

    Args:
        explained: the explained literals, each in the form of `Explained.to_json`.
        tools: the tool named by each call, indexed by the call's place.
    """
    stored = [read_as(StoredLiteral, form) for form in explained]
    literals = [literal for literal in stored if literal.at]
    counts = Counter(tools)
    places = [
        *dict.fromkeys(
            _in_words(literal.at, tools, counts) for literal in literals if _is_open(literal)
        )
    ]
    if not places:
        return ""

    runs = max(literal.runs for literal in literals)
    origin = f" (made from {counted(runs, 'run')})."
    left = SENTENCE - len(f"May assume  and 9,999 more{origin}")
    listed: list[str] = []
    for place in places:
        left -= len(place) + 2
        if left < 0:
            break
        listed.append(place)

    if not listed:
        return f"May assume some values{origin}"

    more = len(places) - len(listed)
    remainder = f" and {more:,} more" if more else ""
    return f"May assume {', '.join(listed)}{remainder}{origin}"


def _in_words(keys: Path, tools: Sequence[str], counts: Mapping[str, int]) -> str:
    """Describe a location in a plan for users, such as `path of read_file`.

    If several calls name the same tool, the description includes the number of the call.
    """
    if keys[:1] == ("output",):
        return _of_whole(keys[1:], "the output")
    if len(keys) < 2 or not keys[1].isdecimal() or int(keys[1]) >= len(tools):
        return visible(clipped(".".join(keys), _AT))

    place = int(keys[1])
    tool = tools[place]
    number = f" (call {place})" if counts[tool] > 1 else ""
    return _of_whole(keys[2:], f"{tool}{number}")


def _of_whole(keys: Sequence[str], whole: str) -> str:
    part = ".".join(keys)
    return visible(clipped(f"{part} of {whole}" if part else whole, _AT))


def _is_open(literal: StoredLiteral) -> bool:
    """Return whether the value of a literal is open: its explanations can yield different values,
    or it is selected by a position that only a few runs confirm.
    """
    if len(literal.by) != 1 or literal.cut or literal.why is not None:
        return True
    # A reference that contains a position also reads the list that the position selects from.
    is_position = any(
        len(read_explanation(reference).references) > 1 for reference in literal.references
    )
    return is_position and literal.runs < RUNS_FOR_POSITION


def with_choices(call: JSONObject, chosen: Mapping[str, JSON]) -> JSONObject:
    """Return a resolved call with other values for some literals. `chosen` contains these values,
    keyed by the locations of the literals.

    In a call with `_each`, a literal has the same value in every execution.

    Raises:
        ExplanationError: the call has no literal at one of these locations.
    """
    for at, value in chosen.items():
        path = _path_of(at)
        each = call.get("_each")
        if isinstance(each, list) and path[0] != "_each":
            call = {**call, "_each": [_replaced(item, path, value, at) for item in each]}
        else:
            replaced = _replaced(call, path, value, at)
            call = replaced if isinstance(replaced, dict) else call
    return call


def after_edit(assumed: Iterable[JSONObject], call: JSONObject, who: str) -> list[JSONObject]:
    """Return the assumptions about a call after someone has edited it. Edited values are also
    listed as assumed.

    Args:
        assumed: see `Settled.assumed`.
        call: the resolved call after the edit.
        who: a readable name for whoever chose the values.
    """
    left: list[JSONObject] = []
    for entry in assumed:
        if "taken" not in entry:
            left.append(entry)
            continue

        value = _value_in(call, _path_of(str(entry["at"])))
        if isinstance(value, Missing):
            # The call no longer contains this literal.
            continue

        choice = shortened_member("taken", value)
        if same(choice["taken"], entry["taken"]):
            left.append(entry)
        else:
            left.append(_with_choice(entry, choice, who))

    return left


def _value_in(call: JSONObject, path: Path) -> JSON | Missing:
    """Return the value of a literal in a call. If the call has `_each`, return the value for the
    first item.
    """
    each = call.get("_each")
    if isinstance(each, list) and each and path[0] != "_each":
        return read(each[0], path)
    return read(call, path)


def _with_choice(entry: JSONObject, choice: JSONObject, who: str) -> JSONObject:
    """Return an assumption with another value that was chosen.

    `choice` is that value, as returned by `shortened_member`.
    """
    alternatives: list[JSON] = [{"value": entry["taken"], "from": entry["from"]}]
    for alternative in list_or_empty(entry.get("instead")):
        other = object_or_empty(alternative)
        if "value" not in other or not same(other["value"], choice["taken"]):
            alternatives.append(alternative)

    left: JSONObject = {
        key: value for key, value in entry.items() if key not in ("taken", "shortened")
    }
    return {**left, **choice, "from": who, "instead": alternatives[:3]}


def _path_of(at: str) -> Path:
    """Return the keys in a location, relative to the call."""
    keys: list[str] = []
    unread = at
    while unread:
        if unread.startswith('"'):
            end = _end_of_text(unread)
            try:
                keys.append(str(decode(unread[:end], what="a key")))
            except IdeabridgeError as error:
                raise ExplanationError(f"{quoted(at)}: {error}") from None
            unread = unread[end + 1 :]
        else:
            key, _, unread = unread.partition(".")
            keys.append(key)

    if len(keys) < 3 or keys[0] != "calls":
        raise ExplanationError(
            f"{quoted(at)}: expected the place of a literal in a call, such as calls.3.limit"
        )

    return tuple(keys[2:])


def _end_of_text(text: str) -> int:
    """Return the end of the JSON at the beginning of the text."""
    position = 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


def _replaced(holder: JSON, path: Path, value: JSON, at: str) -> JSON:
    if not path:
        return value

    key, *deeper = path
    if isinstance(holder, dict) and key in holder:
        return {**holder, key: _replaced(holder[key], tuple(deeper), value, at)}
    if isinstance(holder, list) and key.isdecimal() and int(key) < len(holder):
        copy = list(holder)
        copy[int(key)] = _replaced(holder[int(key)], tuple(deeper), value, at)
        return copy

    raise ExplanationError(f"{quoted(at)}: the call has no such literal")
