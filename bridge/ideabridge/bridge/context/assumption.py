"""Assumptions: what a replay took where the explanations of a value differ, as text and as choices for people.

The description of a tool names the values that are open (`evidence_sentence`), an answer what it assumed
(`assumption_lines`), and a person who is asked chooses another value (`with_choices`).

`settle` makes an assumption as JSON; see `Settled.assumed`. It names the value taken and at most three others. A long
value is shortened there, so it is shown and cannot be chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import RUNS_FOR_POSITION, read_explanation, same, shortened
from ideabridge.bridge.context.references import Path, clipped, quoted
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import readable_json, visible

TEXT_BYTES: Final = 2000
"""The most bytes of the lines that tell what a run assumed."""

SENTENCE: Final = 300
"""The most characters of `evidence_sentence`."""

_VALUE: Final = 60
_WHOLE: Final = 300
"""The most characters of a value that a person can choose: of its JSON, in which hidden characters are escapes."""

_SOURCE: Final = 80
_AT: Final = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that a literal has, or could have.

    Attributes:
        source: the explanation that gives it.
        value: the value, which a person can choose; MISSING if the explanation has none, or if it is not shown whole.
        shown: the beginning of the value for people.
    """

    source: str
    value: JSON | Missing
    shown: str

    @property
    def text(self) -> str:
        """The beginning of the value, and where it comes from, in one line."""
        return self._with_source(self.shown)

    @property
    def choice(self) -> str:
        """The same for a person who chooses it: with the whole value, if it can be chosen."""
        return self._with_source(self.shown if isinstance(self.value, Missing) else readable_json(self.value))

    def _with_source(self, shown: str) -> str:
        return f"{shown} ({clipped(self.source, _SOURCE)})"


@dataclass(frozen=True, slots=True)
class Assumption:
    """A literal whose value was not determined, or a call that may not belong into the run.

    Attributes:
        at: its place: `calls.3.max_count`, `output.title`, `calls.2`; in a run of an idea after the place of the call
            that it answers, `calls.0: calls.3.max_count`.
        why: why it is not determined.
        taken: the value that was taken; None for a call.
        instead: what else it could have been.
        instance: that of the call or of the output; "" if there are no instances.
    """

    at: str
    why: str
    taken: Candidate | None = None
    instead: tuple[Candidate, ...] = ()
    instance: str = ""

    @property
    def line(self) -> str:
        """The assumption in one line for people and models."""
        told = _where(self.at, self.instance)
        if self.taken is not None:
            told += f" is {self.taken.text}"
        if self.instead:
            told += f"; it could also be {', or '.join(one.text for one in self.instead)}"
        return visible(f"{told}: {clipped(self.why, _AT)}")

    @property
    def choices(self) -> tuple[Candidate, ...]:
        """The values that a person can choose: the one taken, then the others that are shown whole. Empty if there is
        only one.
        """
        others = [one for one in self.instead if not isinstance(one.value, Missing)]
        return (self.taken, *others) if self.taken is not None and others else ()


def read_assumption(raw: JSON) -> Assumption:
    """Read the form of `Settled.assumed`, or `{"at", "why"}`.

    Raises:
        ExplanationError: the form is wrong.
    """
    instance = raw.get("instance") if isinstance(raw, dict) else None
    where = instance if isinstance(instance, str) else ""
    match raw:
        case {"at": str(at), "why": str(why), "taken": _, "from": str(), "instead": [*instead]}:
            others = tuple(_candidate(one, "value") for one in instead)
            return Assumption(at, why, _candidate(raw, "taken"), others, where)
        case {"at": str(at), "why": str(why)}:
            return Assumption(at, why, instance=where)
        case _:
            raise ExplanationError(f"assumed: expected an object with at and why, found {show(raw)}")


def _where(at: str, instance: JSON) -> str:
    return f"{clipped(at, _AT)}{f' of {clipped(str(instance), _AT)}' if instance else ''}"


def _candidate(raw: JSON, key: str) -> Candidate:
    form = raw if isinstance(raw, dict) else {}
    source = str(form.get("from"))
    if key not in form:
        return Candidate(source, MISSING, "no value")
    value = form[key]
    # What nobody saw, nobody chooses: this alone decides it for the form and for the terminal.
    is_whole = form.get("shortened") is not True and len(readable_json(value)) <= _WHOLE
    return Candidate(source, value if is_whole else MISSING, show(value, _VALUE))


def assumption_lines(assumed: Iterable[JSON], most: int = TEXT_BYTES) -> list[str]:
    """The assumptions of a run, one line each, in at most `most` bytes; a last line counts those that do not fit."""
    return fitting_lines([read_assumption(one).line for one in assumed], most)


def note_lines(notes: Iterable[JSON], most: int | None = TEXT_BYTES) -> list[str]:
    """What is only noted, `{"at", "what"}` each, as `assumption_lines` tells assumptions; `most` None: all of it."""
    told = (one if isinstance(one, dict) else {} for one in notes)
    lines = [visible(f"{_where(str(one.get('at')), one.get('instance'))}: {one.get('what')}") for one in told]
    return lines if most is None else fitting_lines(lines, most)


def fitting_lines(lines: list[str], most: int = TEXT_BYTES) -> list[str]:
    """The first lines that have at most `most` bytes together, each once, and a line with the number of the others."""
    lines, left = list(dict.fromkeys(lines)), most
    for number, line in enumerate(lines):
        left -= len(line.encode("utf-8", "replace")) + 1
        if left < 0:
            return [*lines[:number], f"and {len(lines) - number} more"]
    return lines


def evidence_sentence(explained: Iterable[JSON]) -> str:
    """Which values of a plan its runs leave open, for the description of a tool: at most `SENTENCE` characters. Empty
    for a plan without such values.

    Args:
        explained: the form of `Explained.to_json`, per literal.
    """
    literals = [one for one in explained if isinstance(one, dict)]
    places = [_place(one.get("at")) for one in literals if _is_open(one)]
    if not places:
        return ""
    runs = max(_runs(one) for one in literals)
    made = f" (made from {runs} {'run' if runs == 1 else 'runs'})."
    left = SENTENCE - len(f"May assume  and 9,999 more{made}")
    shown: list[str] = []
    for place in places:
        left -= len(place) + 2
        if left < 0:
            break
        shown.append(place)
    more = len(places) - len(shown)
    named = ", ".join(shown) or "some values"
    return f"May assume {named}{f' and {more:,} more' if more and shown else ''}{made}"


def _runs(explained: JSONObject) -> int:
    runs = explained.get("runs", 1)
    return runs if isinstance(runs, int) else 1


def _place(at: JSON) -> str:
    keys = at if isinstance(at, list) else []
    return visible(clipped(".".join(str(key) for key in keys), _AT))


def _is_open(explained: JSONObject) -> bool:
    """Return whether a value may differ between explanations, or is selected by a position that few runs confirm."""
    by = explained.get("by")
    if not isinstance(by, list) or len(by) != 1 or explained.get("cut") is True or explained.get("why") is not None:
        return True
    [only] = by
    return _runs(explained) < RUNS_FOR_POSITION and len(read_explanation(only).references) > 1 and isinstance(only, str)


def with_choices(call: JSONObject, chosen: Mapping[str, JSON]) -> JSONObject:
    """Return a resolved call with other values for literals of it, by their places.

    In a call with `_each`, a literal has the same value in each of its executions.

    Raises:
        ExplanationError: a place is not one of a literal of the call.
    """
    for at, value in chosen.items():
        path = _path_of(at)
        each = call.get("_each")
        if isinstance(each, list) and path[0] != "_each":
            call = {**call, "_each": [_replaced(one, path, value, at) for one in each]}
        else:
            replaced = _replaced(call, path, value, at)
            call = replaced if isinstance(replaced, dict) else call
    return call


def after_edit(assumed: Iterable[JSONObject], call: JSONObject, who: str) -> list[JSONObject]:
    """Return the assumptions about a call after somebody who does not settle them has edited it: a value that was
    changed is assumed, too.

    Args:
        assumed: see `Settled.assumed`.
        call: the resolved call after the edit.
        who: who chose the values, for people.
    """
    found: list[JSONObject] = []
    for one in assumed:
        if "taken" not in one:
            found.append(one)
            continue
        each, path, instead = call.get("_each"), _path_of(str(one["at"])), one.get("instead")
        value = read(each[0] if isinstance(each, list) and each and path[0] != "_each" else call, path)
        if isinstance(value, Missing):
            # The call has no such literal any more.
            continue
        taken = shortened("taken", value)
        if same(taken["taken"], one["taken"]):
            found.append(one)
            continue
        others: list[JSON] = [{"value": one["taken"], "from": one["from"]}]
        others += [
            other
            for other in (instead if isinstance(instead, list) else [])
            if not (isinstance(other, dict) and "value" in other and same(other["value"], taken["taken"]))
        ]
        kept: JSONObject = {key: value for key, value in one.items() if key not in ("taken", "shortened")}
        found.append({**kept, **taken, "from": who, "instead": others[:3]})
    return found


def _path_of(at: str) -> Path:
    """The keys below the call."""
    keys: list[str] = []
    rest = at
    while rest:
        if rest.startswith('"'):
            end = _end_of_text(rest)
            try:
                keys.append(str(decode(rest[:end], what="a key")))
            except IdeabridgeError as error:
                raise ExplanationError(f"{quoted(at)}: {error}") from None
            rest = rest[end + 1 :]
        else:
            key, _, rest = rest.partition(".")
            keys.append(key)
    if len(keys) < 3 or keys[0] != "calls":
        raise ExplanationError(f"{quoted(at)}: expected the place of a literal of a call, such as calls.3.limit")
    return tuple(keys[2:])


def _end_of_text(text: str) -> int:
    """The end of the JSON text at the beginning."""
    position = 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


def _replaced(held: JSON, path: Path, value: JSON, at: str) -> JSON:
    if not path:
        return value
    key, *rest = path
    if isinstance(held, dict) and key in held:
        return {**held, key: _replaced(held[key], tuple(rest), value, at)}
    if isinstance(held, list) and key.isdecimal() and int(key) < len(held):
        return [_replaced(one, tuple(rest), value, at) if n == int(key) else one for n, one in enumerate(held)]
    raise ExplanationError(f"{quoted(at)}: the call has no such literal")
