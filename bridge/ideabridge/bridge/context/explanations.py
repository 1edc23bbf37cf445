"""The possible origins of a value that a run copied, and which value to use when the run is
repeated.

Theory of operation. A run writes literals into its calls: `read(path="a.txt")` because an earlier
`list` returned `a.txt`. A single run cannot show why a literal has its value, so a published plan
keeps every explanation that fits, ordered by `Explanation.cost`. When the plan runs with new data,
`settle` evaluates all of them. If the explanations agree, the value is determined. If they differ,
`settle` uses the cheapest explanation that has a value, and records this in `Settled.assumed`.

| kind | JSON form | its value |
|---|---|---|
| path | `"†results.0.items.0.id"` | what the reference reads; list positions are allowed |
| item | `{"item_of": REF, "where": {FIELD: EXPLANATION}, "take": [KEY...]}` | a member of the first item whose FIELD is equal |
| conversion | `{"convert": EXPLANATION, "by": [NAME]}` | see `STEPS` |
| text | `{"join": [EXPLANATION...]}` | one value between constant strings |
| constant | `{"constant": VALUE}` | the value |

FIELD is a key, or several keys joined with dots; "" is the item itself. All functions here are
pure: the value of an explanation depends only on what `read` returns. The work is linear in the
size of the data that an explanation names, and bounded by `MOST_ITEMS` and `CHARACTERS`. If an
explanation exceeds a bound, it has no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.items import column_of, items_of
from ideabridge.bridge.context.references import (
    Path,
    dotted_key,
    format_path,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import MISSING, Missing, opened
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.context.steps import CHARACTERS, STEPS, as_text, convert
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.json_parts import map_parts
from ideabridge.tools.keywords import show
from ideabridge.tools.typed import read_as

Read: TypeAlias = "Callable[[str], JSON | Missing]"
"""A function that returns the value of a reference, given as a string, or MISSING."""

MOST_ITEMS: Final = 20_000
"""The maximum number of items in one list that an explanation searches."""

RUNS_FOR_POSITION: Final = 3
"""The number of runs that must agree on a position in a list before the value counts as
determined.
"""

_MOST_DEPTH: Final = 6
_PARTS: Final = 64
_SHOWN_CHARACTERS: Final = 200

COSTS: Final[dict[str, int]] = {
    "input": 10,
    "result": 20,
    "first or last position": 15,
    "other position": 30,
    "item by an explained value": 24,
    "item by a constant": 46,
    "conversion": 3,
    "join": 30,
    "constant": 100,
}
"""The cost of each kind. A path costs `input` or `result`, plus more for each list position in it.
The cost of `conversion` or `text` is added to the cost of the explanations inside it. An
explanation that costs less than `constant` is preferred to the constant."""


def same(left: JSON, right: JSON) -> bool:
    """Return whether two values are equal. 5 equals 5.0, and the order of members does not matter,
    but true does not equal 1.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            same(item, other) for item, other in zip(left, right, strict=True)
        )

    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            same(value, right[key]) for key, value in left.items()
        )

    return type(left) is type(right) and left == right


# -- kinds -----------------------------------------------------------------------------------------


class Explanation:
    """A possible origin of a value. Each subclass is a kind of explanation."""

    @property
    def cost(self) -> int:
        """The cost. Cheaper explanations take precedence."""
        raise NotImplementedError

    @property
    def made_of(self) -> tuple[Explanation, ...]:
        """The explanations that this explanation is built from."""
        return ()

    @property
    def references(self) -> tuple[str, ...]:
        """The references, as strings, that `value` and `positions` read."""
        return tuple(dict.fromkeys(text for part in self.made_of for text in part.references))

    @property
    def shown(self) -> str:
        """The explanation in words, on one line."""
        raise NotImplementedError

    @property
    def family(self) -> str:
        """The kind of this explanation, regardless of what it reads.

        If an explanation has no value, only one of the same family can replace it.
        """
        return type(self).__name__

    @property
    def origin(self) -> str | None:
        """The reference that the value comes from, or None if the value has another origin.

        The value can be converted, or surrounded by constant strings.
        """
        origins = [part.origin for part in self.made_of if not isinstance(part, Constant)]
        return origins[0] if len(origins) == 1 else None

    @property
    def holder(self) -> str | None:
        """A string that identifies the object in a result that the value is a member of. Members of
        the same object belong together.
        """
        path = operand_path(self.origin) if self.origin is not None else ()
        if path[:1] == ("results",) and len(path) > 2:
            return format_path(path[:-1])
        return None

    def value(self, read: Read) -> JSON | Missing:
        """Return the value for the data that `read` returns, or MISSING if there is none."""
        raise NotImplementedError

    def gives(self, value: JSON, read: Read) -> bool:
        """Return whether the explanation yields a value equal to `value`."""
        own = self.value(read)
        return not isinstance(own, Missing) and same(own, value)

    def positions(self, read: Read) -> bool:
        """Return whether the explanation selects one of several items by position, either in a list
        or among the items that match a condition.
        """
        return any(part.positions(read) for part in self.made_of)

    def to_json(self) -> JSON:
        """Return the form that `read_explanation` accepts."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Explanation):
    """The recorded value."""

    constant: JSON

    @property
    def cost(self) -> int:
        """The cost of a constant."""
        return COSTS["constant"]

    @property
    def shown(self) -> str:
        """The value as JSON text."""
        return f"always {show(self.constant)}"

    def value(self, read: Read) -> JSON:
        """Return the value."""
        return self.constant

    def to_json(self) -> JSON:
        """Return `{"constant": VALUE}`."""
        return {"constant": self.constant}


@dataclass(frozen=True)
class PathTo(Explanation):
    """The value read through a single reference with one operand.

    Attributes:
        reference: the reference as a string.
    """

    reference: str

    @cached_property
    def path(self) -> Path:
        """The full path, beginning with the kind of the reference."""
        return operand_path(self.reference)

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        # In a path such as `†results.2`, the first key after `results` is the place of a call, not
        # a position.
        start = 2 if self.path[0] == "results" else 1
        return tuple(
            depth for depth in range(start, len(self.path)) if self.path[depth].isdecimal()
        )

    @property
    def has_positions(self) -> bool:
        """True if a key in the path might be a position in a list."""
        return bool(self._numbers)

    @property
    def cost(self) -> int:
        """The cost of reading the input or a result, plus the cost of each list position in the
        path.
        """
        cost = COSTS["input"] if self.path[0] == "input" else COSTS["result"]
        for depth in self._numbers:
            is_first = self.path[depth] == "0"
            cost += COSTS["first or last position" if is_first else "other position"]
        return cost

    @cached_property
    def _references(self) -> tuple[str, ...]:
        return (self.reference, *(format_reference(self.path[:depth]) for depth in self._numbers))

    @property
    def references(self) -> tuple[str, ...]:
        """The reference, and a reference to each list that a position in the path selects from."""
        return self._references

    @property
    def origin(self) -> str:
        """The reference."""
        return self.reference

    @property
    def shown(self) -> str:
        """The reference."""
        return self.reference

    def value(self, read: Read) -> JSON | Missing:
        """Return the value that the reference reads."""
        return read(self.reference)

    def positions(self, read: Read) -> bool:
        """Return whether a key in the path is a position in a list with more than one item."""
        for holder in self._references[1:]:
            items = items_of(read(holder))
            if items is not None and len(items) > 1:
                return True

        return False

    def to_json(self) -> JSON:
        """Return the reference as a string."""
        return self.reference


@dataclass(frozen=True)
class ItemOf(Explanation):
    """A member of a list item that is selected by a condition.

    Attributes:
        source: the reference to the list.
        take: the keys that lead from the item to the member.
        where: (field, explanation). The first item whose field equals the value of the explanation
            is selected.
    """

    source: str
    take: Path
    where: tuple[str, Explanation]

    @property
    def cost(self) -> int:
        """The cost of this kind of condition, plus a share of the cost of the compared value."""
        inner = self.where[1]
        if isinstance(inner, Constant):
            return COSTS["item by a constant"]
        return COSTS["item by an explained value"] + inner.cost // 10

    @property
    def references(self) -> tuple[str, ...]:
        """The reference to the list, plus the references that the condition reads."""
        return (self.source, *self.where[1].references)

    @property
    def family(self) -> str:
        """The kind of this explanation. Selecting an item by a constant and selecting one by an
        explained value are different kinds.
        """
        return f"ItemOf {self.where[1].family}"

    @property
    def holder(self) -> str:
        """A string that identifies the selected item."""
        return f"{self.source} {self.where[0]} {self.where[1].shown}"

    @property
    def shown(self) -> str:
        """A description of the selection, such as `id of the item of †results.0 with name =
        †input.name`.
        """
        member = ".".join(self.take) or "the item"
        return (
            f"{member} of the item of {self.source} with {self.where[0]} = {_inner(self.where[1])}"
        )

    def value(self, read: Read) -> JSON | Missing:
        """Return the member of the selected item, or MISSING if no item is selected."""
        chosen = next(iter(self._selected(read)), MISSING)
        if isinstance(chosen, Missing):
            return MISSING
        return read_path(chosen, self.take)

    def positions(self, read: Read) -> bool:
        """Return whether the selection depends on a position. This is so if several items with
        different members match the condition, so that only their order decides, or if the value to
        compare with is itself selected by position.
        """
        if self.where[1].positions(read):
            return True
        members = [read_path(item, self.take) for item in self._selected(read)]
        values = [member for member in members if not isinstance(member, Missing)]
        return any(not same(value, values[0]) for value in values[1:])

    def _selected(self, read: Read) -> Iterable[JSON]:
        """Yield the items that match the condition, in order."""
        items = items_of(read(self.source))
        selecting = self.where[1].value(read)
        if items is None or len(items) > MOST_ITEMS or isinstance(selecting, Missing):
            return
        for item, value in zip(items, column_of(items, self.where[0]), strict=True):
            if not isinstance(value, Missing) and same(value, selecting):
                yield item

    def to_json(self) -> JSON:
        """Return `{"item_of", "where", "take"}`."""
        where: JSONObject = {self.where[0]: self.where[1].to_json()}
        return {"item_of": self.source, "where": where, "take": list(self.take)}


@dataclass(frozen=True)
class Converted(Explanation):
    """Another explanation, followed by one conversion step.

    Attributes:
        inner: the explanation whose value is converted.
        step: the name of the step; see `STEPS`.
    """

    inner: Explanation
    step: str

    @property
    def cost(self) -> int:
        """The cost of the inner explanation, plus the cost of the step."""
        return self.inner.cost + COSTS["conversion"]

    @property
    def made_of(self) -> tuple[Explanation, ...]:
        """The explanation whose value is converted."""
        return (self.inner,)

    @property
    def family(self) -> str:
        """The family of the inner explanation, combined with the conversion step."""
        return f"{self.inner.family} {self.step}"

    @property
    def shown(self) -> str:
        """A description of the conversion, such as `†input.n, as text`."""
        return f"{self.inner.shown}, {STEPS[self.step]}"

    def value(self, read: Read) -> JSON | Missing:
        """Return the converted value."""
        value = self.inner.value(read)
        if isinstance(value, Missing):
            return MISSING
        return convert(value, self.step)

    def to_json(self) -> JSON:
        """Return `{"convert", "by"}`."""
        return {"convert": self.inner.to_json(), "by": [self.step]}


@dataclass(frozen=True)
class Joined(Explanation):
    """A value surrounded by constant strings. A number is converted to a string."""

    parts: tuple[Explanation, ...]

    @property
    def cost(self) -> int:
        """The cost of the non-constant part, plus the cost of joining."""
        costs = [part.cost for part in self.parts if not isinstance(part, Constant)]
        return min(costs, default=COSTS["constant"]) + COSTS["join"]

    @property
    def made_of(self) -> tuple[Explanation, ...]:
        """The parts."""
        return self.parts

    @property
    def words(self) -> str:
        """The constant parts that contain words, as readable text, or "" if there are none."""
        texts = [part.constant for part in self.parts if isinstance(part, Constant)]
        return " and ".join(
            show(text) for text in texts if isinstance(text, str) and _WORD.search(text)
        )

    @property
    def shown(self) -> str:
        """The joined strings on one line, such as `"Report for " + †input.city`."""
        return " + ".join(map(_inner, self.parts))

    def value(self, read: Read) -> JSON | Missing:
        """Return the whole string, or MISSING if a part has no value or is neither a string nor a
        number.
        """
        texts: list[str] = []
        for part in self.parts:
            value = part.value(read)
            text = value if isinstance(value, str) else as_text(value)
            if not isinstance(text, str):
                return MISSING
            texts.append(text)

        return "".join(texts) if sum(map(len, texts)) <= CHARACTERS else MISSING

    def to_json(self) -> JSON:
        """Return `{"join": [...]}`."""
        return {"join": [part.to_json() for part in self.parts]}


def _inner(part: Explanation) -> str:
    return show(part.constant) if isinstance(part, Constant) else part.shown


@lru_cache(maxsize=8192)
def operand_path(reference: str) -> Path:
    """Return the full path of a reference with one operand.

    Raises:
        ExplanationError: the string is not such a reference.
    """
    try:
        operands = list(parse_reference(reference).operands())
    except IdeabridgeError as error:
        raise ExplanationError(str(error)) from None
    if (
        len(operands) != 1
        or operands[0].instance is not None
        or operands[0].kind in ("item", "data")
    ):
        raise ExplanationError(
            f"{show(reference)}: expected one reference to †input, †results or "
            "†state, without || and &&"
        )
    return operands[0].full


# -- reading ---------------------------------------------------------------------------------------


def read_explanation(raw: JSON, *, where: str = "explanation") -> Explanation:
    """Read the JSON form of an explanation. For the forms, see the docstring of this module.

    Raises:
        ExplanationError: the form is wrong; the message says where, and what was expected.
    """
    return _read(raw, where, 0)


def _read(raw: JSON, where: str, depth: int) -> Explanation:
    if depth > _MOST_DEPTH:
        raise ExplanationError(
            f"{where}: explanations may be nested at most {_MOST_DEPTH} levels deep"
        )
    if isinstance(raw, str) and is_reference(raw):
        return _path_to(raw, where)
    match raw:
        case {"constant": value, **rest} if not rest:
            return Constant(value)
        case {"item_of": str(source), "where": condition, "take": take, **rest} if not rest:
            return ItemOf(
                _path_to(source, where).reference,
                _keys(take, where),
                _condition(condition, where, depth),
            )
        case {"convert": inner, "by": [str(name)], **rest} if not rest and name in STEPS:
            return Converted(_read(inner, f"{where}.convert", depth + 1), name)
        case {"join": [*parts], **rest} if not rest and 0 < len(parts) <= _PARTS:
            read = [
                _read(part, f"{where}.join.{number}", depth + 1)
                for number, part in enumerate(parts)
            ]
            if sum(not isinstance(part, Constant) for part in read) != 1:
                raise ExplanationError(
                    f"{where}.join: expected one part that is not a constant, found {show(raw)}"
                )
            return Joined(tuple(read))
        case _:
            raise ExplanationError(
                f"{where}: expected a reference such as †input.x, or an object with constant, "
                f"item_of, convert or join, found {show(raw)}"
            )


def _path_to(reference: str, where: str) -> PathTo:
    try:
        operand_path(reference)
    except ExplanationError as error:
        raise ExplanationError(f"{where}: {error}") from None
    return PathTo(reference)


def _keys(raw: JSON, where: str) -> Path:
    if not isinstance(raw, list) or not all(isinstance(key, str) for key in raw):
        raise ExplanationError(f"{where}.take: expected an array of keys, found {show(raw)}")
    return tuple(map(str, raw))


def _condition(raw: JSON, where: str, depth: int) -> tuple[str, Explanation]:
    if not isinstance(raw, dict) or len(raw) != 1:
        raise ExplanationError(
            f"{where}.where: expected an object with one field, found {show(raw)}"
        )
    [(name, inner)] = raw.items()
    return name, _read(inner, f"{where}.where", depth + 1)


# -- literals --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredLiteral:
    """An explained literal as stored in a published plan. `read_explained` checks it and reads its
    explanations; for the members, see `Explained`.
    """

    at: Path = ()
    by: list[JSON] = field(default_factory=list[JSON])
    runs: int = 1
    cut: bool = False
    why: str | None = None
    given: str | None = None

    @property
    def references(self) -> list[str]:
        """The explanations that are references."""
        return [raw for raw in self.by if isinstance(raw, str) and is_reference(raw)]


@dataclass(frozen=True)
class Explained:
    """A literal in a plan, with every explanation that fits the evidence.

    Attributes:
        at: the location of the literal: ("calls", place, key...) or ("output", key...).
        by: the explanations, cheapest first. There is at least one.
        runs: the number of runs with different data that agree with all explanations.
        cut: whether the search reached a limit, so that an explanation might be missing.
        why: a further reason why the value is never determined, such as `recorded text`.
        given: the reference to an optional parameter. If the caller passes this parameter, the
            literal takes its value, and nothing is assumed.
        among: if the value comes from a tool's result, references to the same part of the tool's
            other results. These references are not stored, but are added when a plan is read.
    """

    at: Path
    by: tuple[Explanation, ...]
    runs: int = 1
    cut: bool = False
    why: str | None = None
    given: str | None = None
    among: tuple[str, ...] = ()

    @cached_property
    def references(self) -> tuple[str, ...]:
        """The references that `settle` reads."""
        texts = [text for explanation in self.by for text in explanation.references]
        if self.why == MAYBE_DATA:
            origins = [
                explanation.origin for explanation in self.by if explanation.origin is not None
            ]
            texts += [text for origin in origins for text in _above(origin)]

        if self.given is not None:
            texts.append(self.given)
        return tuple(dict.fromkeys([*texts, *self.among]))

    def to_json(self) -> JSONObject:
        """Return `{"at", "by", "runs"?, "cut"?, "why"?, "given"?}`."""
        form: JSONObject = {
            "at": list(self.at),
            "by": [explanation.to_json() for explanation in self.by],
        }
        if self.runs != 1:
            form["runs"] = self.runs

        if self.cut:
            form["cut"] = True

        if self.why is not None:
            form["why"] = self.why

        if self.given is not None:
            form["given"] = self.given

        return form


def read_explained(
    raw: JSON, *, where: str = "explained", reader: Callable[[JSON, str], Explanation] | None = None
) -> Explained:
    """Read the form returned by `Explained.to_json`.

    Args:
        raw: the form.
        where: the name of the form in messages.
        reader: reads an explanation, given its form and its name in messages. The default is
            `read_explanation`.

    Raises:
        ExplanationError: the form is wrong; the message says where, and what was expected.
    """
    if not isinstance(raw, dict):
        raise ExplanationError(f"{where}: expected an object with at and by, found {show(raw)}")

    unknown = [key for key in raw if key not in _MEMBERS]
    if unknown:
        raise ExplanationError(
            f"{where}: unknown key {show(unknown[0])}; expected {', '.join(_MEMBERS)}"
        )

    at = _keys(raw.get("at"), where)
    if not (
        at[:1] == ("output",) or (at[:1] == ("calls",) and len(at) > 2 and _PLACE.fullmatch(at[1]))
    ):
        raise ExplanationError(
            f'{where}.at: expected ["calls", place, key...] or ["output", key...], '
            f"found {show(list[JSON](at))}"
        )

    by = raw.get("by")
    runs = raw.get("runs", 1)
    if not isinstance(by, list) or not 0 < len(by) <= MOST_EXPLANATIONS:
        raise ExplanationError(
            f"{where}.by: expected an array of 1 to {MOST_EXPLANATIONS} explanations, found {show(by)}"
        )

    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 0:
        raise ExplanationError(f"{where}.runs: expected a number of runs, found {show(runs)}")

    reason = raw.get("why")
    if not isinstance(raw.get("cut", False), bool) or not (
        reason is None or isinstance(reason, str)
    ):
        raise ExplanationError(f"{where}: expected cut to be true or false, and why to be text")

    given = raw.get("given")
    if given is not None and not (isinstance(given, str) and operand_path(given)[0] == "input"):
        raise ExplanationError(
            f"{where}.given: expected a reference to †input, found {show(given)}"
        )

    explanations: list[Explanation] = []
    for number, form in enumerate(by):
        name = f"{where}.by.{number}"
        explanations.append(
            read_explanation(form, where=name) if reader is None else reader(form, name)
        )

    return Explained(at, tuple(explanations), runs, raw.get("cut") is True, reason, given)


_MEMBERS: Final = ("at", "by", "runs", "cut", "why", "given")

MOST_EXPLANATIONS: Final = 64
"""The maximum number of explanations for one literal."""

_PLACE = re.compile(r"0|[1-9][0-9]{0,8}")
_WORD = re.compile(r"[^\W\d_]{2}")


CUT: Final = "ideabridge did not look for all explanations"
MAYBE_DATA: Final = "its path has a key that may be data"
UNPROVED: Final = "its evidence is not in the document"
"""Why a literal in an imported plan is never determined."""

COPIED_PART: Final = "a part of it appeared in an earlier text"
"""Why a literal is not determined before three runs agree: its author might have copied part of it
from an earlier text.
"""

NOTED: Final[Mapping[str, bool]] = {CUT: True, MAYBE_DATA: True, UNPROVED: False}
"""The reasons that are only noted. True means that the note is mild and therefore not a reason to
ask before a change.
"""


@dataclass(frozen=True)
class Settled:
    """The value of an explained literal for new data.

    Attributes:
        value: the value, or MISSING if no explanation has a value.
        assumed: why the value might be wrong, or None if it cannot be: `{"at", "taken", "from",
            "instead": [{"value"?, "from"}], "why"}`. `instead` lists up to three other values. An
            entry without a value stands for an explanation that yields no value. A long value is
            truncated and marked by `"shortened": true` next to it.
        note: why the value is not determined, if this reason alone does not make it doubtful; see
            `NOTED`.
    """

    value: JSON | Missing
    assumed: JSONObject | None = None
    note: str | None = None


def settle(explained: Explained, read: Read) -> Settled:
    """Evaluate all explanations of a literal, and use the cheapest.

    If the cheapest explanation has no value, the next one of the same kind that has a value is
    used. The value is determined if all explanations agree on it. A value that is selected by
    position, in a list or among several calls to one tool, is determined only if three runs agree
    on it.
    """
    if explained.given is not None:
        passed = read(explained.given)
        if not isinstance(passed, Missing):
            return Settled(passed)

    values: list[tuple[Explanation, JSON]] = []
    without: list[Explanation] = []
    for explanation in explained.by:
        value = explanation.value(read)
        if isinstance(value, Missing):
            without.append(explanation)
        else:
            values.append((explanation, value))

    family = explained.by[0].family
    cheapest = next((pair for pair in values if pair[0].family == family), None)
    if cheapest is None:
        return Settled(MISSING)

    chosen, value = cheapest
    alternatives = _other_values(values, value)
    reason = _doubt(explained) or _choice(
        explained, chosen, read, differ=bool(alternatives or without)
    )
    if reason is not None:
        # List other values first, because they help people more than explanations that have no
        # value.
        instead: list[JSON] = [
            {**shortened_member("value", alternative), "from": each.shown}
            for each, alternative in alternatives
        ]
        instead.extend({"from": explanation.shown} for explanation in without)
        return Settled(value, assumption(explained, value, reason, chosen, instead[:_MOST_OTHERS]))

    if explained.why in NOTED:
        return Settled(value, note=explained.why)
    return Settled(value, note=CUT if explained.cut else None)


_MOST_OTHERS: Final = 3
"""The maximum number of alternative values named for a literal."""


def _other_values(
    values: Iterable[tuple[Explanation, JSON]], value: JSON
) -> list[tuple[Explanation, JSON]]:
    """Return each value that differs from the one in use, with the first explanation that yields
    it.
    """
    alternatives: list[tuple[Explanation, JSON]] = []
    for explanation, candidate in values:
        if not same(candidate, value) and not any(
            same(candidate, listed) for _, listed in alternatives
        ):
            alternatives.append((explanation, candidate))
    return alternatives


def assumption(
    explained: Explained,
    value: JSON,
    why: str,
    chosen: Explanation | None = None,
    instead: list[JSON] | None = None,
) -> JSONObject:
    """Return an assumption about a literal in the form of `Settled.assumed`. If `chosen` is None,
    the first explanation is used.
    """
    at = ".".join(dotted_key(key) for key in explained.at)
    source = (chosen or explained.by[0]).shown
    return {
        "at": at,
        **shortened_member("taken", value),
        "from": source,
        "instead": instead or [],
        "why": why,
    }


def _doubt(explained: Explained) -> str | None:
    """Return why a literal is undetermined for all data, or None if that depends on the data."""
    if explained.why is None or explained.why in NOTED:
        return None
    if explained.why == COPIED_PART and explained.runs >= RUNS_FOR_POSITION:
        return None
    return explained.why


def _choice(explained: Explained, chosen: Explanation, read: Read, *, differ: bool) -> str | None:
    """Return why several values are possible for this data, or None if only one is."""
    if differ:
        return "its explanations differ"
    if explained.why == MAYBE_DATA and _has_siblings(chosen, read):
        return MAYBE_DATA
    if explained.runs >= RUNS_FOR_POSITION:
        return None
    if chosen.positions(read):
        return "it is selected by its position in a list"

    value = MISSING if chosen.origin is None else read(chosen.origin)
    if isinstance(value, Missing):
        return None

    alike = [element for element in map(read, explained.among) if not isinstance(element, Missing)]
    if all(same(element, value) for element in alike):
        return None
    return "it is taken from one of several calls of the same tool"


def _has_siblings(chosen: Explanation, read: Read) -> bool:
    """Return whether an object on the path to a value has other members with the same remaining
    path, as if it were a list.
    """
    if chosen.origin is None:
        return False

    path = operand_path(chosen.origin)
    for text in _above(chosen.origin):
        key, *below = path[len(operand_path(text)) :]
        members = opened(read(text))
        others = dict[str, JSON](members) if isinstance(members, dict) else {}
        others.pop(key, None)
        if any(
            not isinstance(read_path(value, tuple(below)), Missing) for value in others.values()
        ):
            return True

    return False


def _above(reference: str) -> list[str]:
    """Return a reference to each value that contains the value of `reference`, beginning with the
    input, the result or the state itself.
    """
    path = operand_path(reference)
    start = 2 if path[0] == "results" else 1
    return [format_reference(path[:depth]) for depth in range(start, len(path))]


def shortened_member(key: str, value: JSON) -> JSONObject:
    """Return an object that shows a value under a key. A long value is truncated and marked by
    `"shortened": true` next to it.
    """
    cut = _cut(value)
    return {key: cut} if cut is value else {key: cut, "shortened": True}


def _cut(value: JSON) -> JSON:
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, str):
        return value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
    text = show(value, _SHOWN_CHARACTERS)
    return value if len(text) < _SHOWN_CHARACTERS and "…" not in text else text


EXPLAINED: Final = "†explained"
"""The key that people see instead of an explained literal in a plan."""


def as_it_runs(plan: JSONObject) -> JSONObject:
    """Return a published plan in readable form, with each explained literal replaced by a
    description of what the call sends.

    The description is `{"†explained": [EXPLANATION...], "recorded": LITERAL, ...}`: the call sends
    the value of the first explanation that has one, not the literal. The other members, such as
    `runs`, are copied from the explained literal. No value is shortened. A key in the plan that
    begins with a dagger gets a second dagger. Entries that are malformed, or explain a literal that
    the plan does not have, stay in `explained`.
    """
    readable: JSONObject = {key: value for key, value in plan.items() if key != "explained"}
    for key in ("calls", "output"):
        if key in plan:
            readable[key] = _copied(plan[key])

    listed = plan.get("explained")
    if not isinstance(listed, list):
        return readable if listed is None else {**readable, "explained": listed}

    # A literal inside another explained literal no longer has its own place in the plan, so its
    # entry stays in `explained`.
    left = [form for form in listed if not _put(readable, object_or_empty(form))]
    return {**readable, "explained": left} if left else readable


def _copied(value: JSON) -> JSON:
    """Return a copy in which no key can be mistaken for one added by `as_it_runs`."""
    if isinstance(value, dict):
        value = {f"†{key}" if key.startswith("†") else key: member for key, member in value.items()}
    return map_parts(value, _copied)


def _put(plan: JSONObject, explained: JSONObject) -> bool:
    """Put an explained literal in its place in the plan. Return whether the plan has such a
    place.
    """
    keys = read_as(StoredLiteral, explained).at
    is_in_plan = keys[:1] in (("calls",), ("output",)) and [*keys] == explained["at"]
    if not is_in_plan or not explained.keys() <= {*_MEMBERS}:
        return False

    holder: JSON | Missing = plan
    for key in keys[:-1]:
        holder = _member(holder, key)
        if isinstance(holder, dict) and EXPLAINED in holder:
            return False

    last = keys[-1]
    literal = _member(holder, last)
    if isinstance(literal, Missing):
        return False

    members = {key: value for key, value in explained.items() if key not in ("at", "by")}
    stand_in: JSONObject = {EXPLAINED: explained.get("by"), **members, "recorded": literal}
    if isinstance(holder, dict):
        holder[last] = stand_in
    elif isinstance(holder, list):
        holder[int(last)] = stand_in

    return True


def _member(holder: JSON | Missing, key: str) -> JSON | Missing:
    if isinstance(holder, dict):
        return holder.get(key, MISSING)
    if isinstance(holder, list) and _PLACE.fullmatch(key) and int(key) < len(holder):
        return holder[int(key)]
    return MISSING


def references_of(explained: Iterable[Explained]) -> Iterator[str]:
    """Yield every reference that the explanations read, without duplicates."""
    yield from dict.fromkeys(text for literal in explained for text in literal.references)
