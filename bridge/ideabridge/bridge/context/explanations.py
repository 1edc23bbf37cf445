"""Explanations: where a value that a run copied may have come from, and what it is when the run is repeated.

Theory of operation. A run writes literals into its calls: `read(path="a.txt")` because an earlier `list` returned
`a.txt`. One run cannot show why a literal has its value, so a published plan keeps every explanation that fits, and
orders them by `Explanation.cost`. When the plan runs with new data, `settle` evaluates all of them. If they agree, the
value is determined. If they differ, the cheapest one that has a value is taken, and `Settled.assumed` says so.

| kind | JSON form | its value |
|---|---|---|
| path | `"†results.0.items.0.id"` | what the reference reads; list positions are allowed |
| item | `{"item_of": REF, "where": {FIELD: EXPLANATION}, "take": [KEY...]}` | of the first item whose FIELD is equal |
| extreme | `{"item_of": REF, "largest": FIELD, "take": [KEY...]}`, or `"smallest"` | of the item with that FIELD |
| items | `{"all_of": REF, "take": [KEY...], "where"?: {...}}` | a list: one member of every item |
| conversion | `{"convert": EXPLANATION, "by": [NAME, ARGUMENT...]}` | see `STEPS` |
| join | `{"join": [EXPLANATION...]}` | the texts, one after the other |
| constant | `{"constant": VALUE}` | the value |

FIELD is a key, or keys joined with dots; "" is the item itself. Everything here is pure: the value of an explanation
depends only on what `read` returns. The work is linear in the data that an explanation names, and bounded by `ITEMS`
and `CHARACTERS`; beyond a bound an explanation has no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.references import Path, format_reference, is_reference, parse_reference
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text
from ideabridge.bridge.context.state import read as read_path
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show

Read: TypeAlias = "Callable[[str], JSON | Missing]"
"""Returns the value of a reference text, or MISSING."""

ITEMS: Final = 20_000
"""The most items of one list that an explanation looks through."""

CHARACTERS: Final = 1_000_000
"""The longest text that an explanation takes apart or makes."""

RUNS_FOR_POSITION: Final = 3
"""The runs that must agree on a position in a list before it is determined."""

_DEPTH: Final = 6
_PARTS: Final = 64
_SHOWN: Final = 200

COSTS: Final[dict[str, int]] = {
    "input": 10,
    "result": 20,
    "first or last position": 15,
    "other position": 30,
    "item by an explained value": 24,
    "largest or smallest item": 42,
    "item by a constant": 46,
    "items": 23,
    "number": 3,
    "text": 3,
    "lower": 3,
    "upper": 3,
    "title": 3,
    "strip": 3,
    "date": 4,
    "word": 9,
    "part": 8,
    "between": 7,
    "join": 30,
    "constant": 100,
    "add": 200,
    "multiply": 200,
    "length": 200,
}
"""The cost of each kind. A path costs `input` or `result`, and more for each list position in it; a conversion and a
join add their cost to that of what they use. Below `constant`, a kind is taken before the constant."""


def same(left: JSON, right: JSON) -> bool:
    """Return whether two values are equal: 5 equals 5.0, members may have any order, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return type(left) is type(right) and left == right


# -- kinds ----------------------------------------------------------------------------------------------------------


class Explanation:
    """One way in which a value may have been made. The subclasses are the kinds."""

    @property
    def cost(self) -> int:
        """A number: of two explanations, the one with the lower cost is taken first."""
        raise NotImplementedError

    @property
    def references(self) -> tuple[str, ...]:
        """The texts of the references that `value` and `positions` read."""
        raise NotImplementedError

    @property
    def shown(self) -> str:
        """The explanation as one line for people."""
        raise NotImplementedError

    def value(self, read: Read) -> JSON | Missing:
        """Return the value for the data that `read` returns; MISSING if there is none."""
        raise NotImplementedError

    def positions(self, read: Read) -> bool:
        """Return whether it selects by a position from a list with more than one item."""
        return False

    def to_json(self) -> JSON:
        """The form that `read_explanation` reads."""
        raise NotImplementedError

    @property
    def label(self) -> int:
        """The characters of the labels and separators of its conversions: a short label fits more texts."""
        return 0

    @property
    def order(self) -> tuple[int, int, int, str]:
        """A key for sorting: the cost, then the number of keys that are read, the length of labels, and the text."""
        return self.cost, sum(text.count(".") for text in self.references), self.label, self.shown


@dataclass(frozen=True)
class Constant(Explanation):
    """The recorded value."""

    constant: JSON

    @property
    def cost(self) -> int:
        """The cost of the kind."""
        return COSTS["constant"]

    @property
    def references(self) -> tuple[str, ...]:
        """It reads nothing."""
        return ()

    @property
    def shown(self) -> str:
        """The value as JSON text."""
        return f"always {show(self.constant)}"

    def value(self, read: Read) -> JSON:
        """Return the value."""
        return self.constant

    def to_json(self) -> JSON:
        """`{"constant": VALUE}`."""
        return {"constant": self.constant}


@dataclass(frozen=True)
class PathTo(Explanation):
    """What one reference with one operand reads.

    Attributes:
        reference: the text of the reference.
    """

    reference: str

    @cached_property
    def path(self) -> Path:
        """The full path: its first key is the kind of the reference."""
        return operand_path(self.reference)

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        # The first key below †results is the place of a call.
        start = 2 if self.path[0] == "results" else 1
        return tuple(depth for depth in range(start, len(self.path)) if self.path[depth].isdecimal())

    @property
    def cost(self) -> int:
        """The cost of the source, and of each position."""
        cost = COSTS["input"] if self.path[0] == "input" else COSTS["result"]
        return cost + sum(
            COSTS["first or last position" if self.path[depth] == "0" else "other position"] for depth in self._numbers
        )

    @cached_property
    def _references(self) -> tuple[str, ...]:
        return (self.reference, *(format_reference(self.path[:depth]) for depth in self._numbers))

    @property
    def references(self) -> tuple[str, ...]:
        """The reference, and those of the lists in which it selects."""
        return self._references

    @property
    def shown(self) -> str:
        """The reference."""
        return self.reference

    def value(self, read: Read) -> JSON | Missing:
        """Return what the reference reads."""
        return read(self.reference)

    def positions(self, read: Read) -> bool:
        """Return whether a key of the path is a position in a list with more than one item."""
        return any(len(items_of(read(one)) or ()) > 1 for one in self._references[1:])

    def to_json(self) -> JSON:
        """The text of the reference."""
        return self.reference


@dataclass(frozen=True)
class ItemOf(Explanation):
    """A member of one item of a list, which a condition selects.

    Attributes:
        source: the reference of the list.
        take: the keys below the item.
        where: field and explanation: the first item whose field equals the value; None with `by`.
        by: ("largest" or "smallest", field); None with `where`.
    """

    source: str
    take: Path
    where: tuple[str, Explanation] | None = None
    by: tuple[str, str] | None = None

    @property
    def cost(self) -> int:
        """The cost of the kind of condition, and of the value that the condition compares."""
        if self.where is None:
            return COSTS["largest or smallest item"]
        inner = self.where[1]
        if isinstance(inner, Constant):
            return COSTS["item by a constant"]
        return COSTS["item by an explained value"] + inner.cost // 10

    @property
    def references(self) -> tuple[str, ...]:
        """The list, and the references of the condition."""
        return (self.source, *(self.where[1].references if self.where is not None else ()))

    @property
    def shown(self) -> str:
        """`id of the item of †results.0 with name = †input.name`."""
        what = ".".join(self.take) or "the item"
        if self.where is not None:
            return f"{what} of the item of {self.source} with {self.where[0]} = {_inner(self.where[1])}"
        side, name = self.by or ("", "")
        return f"{what} of the item of {self.source} with the {side} {name or 'value'}"

    def value(self, read: Read) -> JSON | Missing:
        """Return the member of the selected item; MISSING if no item is selected."""
        items = items_of(read(self.source))
        if items is None or len(items) > ITEMS:
            return MISSING
        if self.where is not None:
            wanted = self.where[1].value(read)
            if isinstance(wanted, Missing):
                return MISSING
            number = _first_equal(_column(items, self.where[0]), wanted)
            chosen = MISSING if number is None else items[number]
        else:
            chosen = _extreme(items, self.by or ("", ""))
        return MISSING if isinstance(chosen, Missing) else read_path(chosen, self.take)

    def positions(self, read: Read) -> bool:
        """Return whether the condition compares with something that a position selects."""
        return self.where is not None and self.where[1].positions(read)

    def to_json(self) -> JSON:
        """`{"item_of", "where" or "largest" or "smallest", "take"}`."""
        form: JSONObject = {"item_of": self.source}
        if self.where is not None:
            form["where"] = {self.where[0]: self.where[1].to_json()}
        elif self.by is not None:
            form[self.by[0]] = self.by[1]
        return {**form, "take": list(self.take)}


@dataclass(frozen=True)
class AllOf(Explanation):
    """One member of every item of a list, or of every item that meets a condition."""

    source: str
    take: Path
    where: tuple[str, Explanation] | None = None

    @property
    def cost(self) -> int:
        """The cost of the kind, and of the value that the condition compares."""
        return COSTS["items"] + (0 if self.where is None else min(self.where[1].cost, 40))

    @property
    def references(self) -> tuple[str, ...]:
        """The list, and the references of the condition."""
        return (self.source, *(self.where[1].references if self.where is not None else ()))

    @property
    def shown(self) -> str:
        """`id of all items of †results.0 with state = "open"`."""
        what = ".".join(self.take)
        with_ = "" if self.where is None else f" with {self.where[0]} = {_inner(self.where[1])}"
        return f"{f'{what} of ' if what else ''}all items of {self.source}{with_}"

    def value(self, read: Read) -> JSON | Missing:
        """Return the list; items without the member are left out."""
        items = items_of(read(self.source))
        if items is None or len(items) > ITEMS:
            return MISSING
        if self.where is not None:
            wanted = self.where[1].value(read)
            if isinstance(wanted, Missing):
                return MISSING
            column = _column(items, self.where[0])
            items = [item for item, value in zip(items, column, strict=True) if _equal(value, wanted)]
        return [one for one in _column(items, self.take) if not isinstance(one, Missing)]

    def positions(self, read: Read) -> bool:
        """Return whether the condition compares with something that a position selects."""
        return self.where is not None and self.where[1].positions(read)

    def to_json(self) -> JSON:
        """`{"all_of", "where"?, "take"}`."""
        form: JSONObject = {"all_of": self.source}
        if self.where is not None:
            form["where"] = {self.where[0]: self.where[1].to_json()}
        return {**form, "take": list(self.take)}


@dataclass(frozen=True)
class Converted(Explanation):
    """Another explanation after one step of conversion.

    Attributes:
        inner: the explanation that is converted.
        by: the name of the step and its arguments; see `STEPS`.
    """

    inner: Explanation
    by: tuple[JSON, ...]

    @property
    def cost(self) -> int:
        """The cost of the inner explanation and of the step."""
        return self.inner.cost + COSTS[str(self.by[0])]

    @property
    def references(self) -> tuple[str, ...]:
        """Those of the inner explanation."""
        return self.inner.references

    @property
    def label(self) -> int:
        """The characters of the arguments of its steps."""
        return self.inner.label + sum(len(one) for one in self.by[1:] if isinstance(one, str))

    @property
    def shown(self) -> str:
        """`†input.day, date + 7 days`."""
        return f"{self.inner.shown}, {_shown_step(self.by)}"

    def value(self, read: Read) -> JSON | Missing:
        """Return the converted value."""
        value = self.inner.value(read)
        return MISSING if isinstance(value, Missing) else convert(value, self.by)

    def positions(self, read: Read) -> bool:
        """Return whether the inner explanation selects by a position."""
        return self.inner.positions(read)

    def to_json(self) -> JSON:
        """`{"convert", "by"}`."""
        return {"convert": self.inner.to_json(), "by": list(self.by)}


@dataclass(frozen=True)
class Joined(Explanation):
    """Texts, one after the other; numbers are written as text."""

    parts: tuple[Explanation, ...]

    @property
    def cost(self) -> int:
        """The cost of the cheapest part that is no constant, and of the kind; less for each part."""
        inner = [one.cost for one in self.parts if not isinstance(one, Constant)]
        # Of two ways to write the same text, the one with fewer constant parts says more.
        return min(inner, default=COSTS["constant"]) + COSTS["join"] - min(len(inner), 9)

    @property
    def references(self) -> tuple[str, ...]:
        """Those of all parts."""
        return tuple(dict.fromkeys(text for one in self.parts for text in one.references))

    @property
    def label(self) -> int:
        """The sum of its parts."""
        return sum(one.label for one in self.parts)

    @property
    def shown(self) -> str:
        """`"Report for " + †input.city`."""
        return " + ".join(_inner(one) for one in self.parts)

    def value(self, read: Read) -> JSON | Missing:
        """Return the whole text; MISSING if a part has no value, or is no text and no number."""
        texts: list[str] = []
        for one in self.parts:
            value = one.value(read)
            text = value if isinstance(value, str) else _text(value)
            if not isinstance(text, str):
                return MISSING
            texts.append(text)
        return "".join(texts) if sum(map(len, texts)) <= CHARACTERS else MISSING

    def positions(self, read: Read) -> bool:
        """Return whether a part selects by a position."""
        return any(one.positions(read) for one in self.parts)

    def to_json(self) -> JSON:
        """`{"join": [...]}`."""
        return {"join": [one.to_json() for one in self.parts]}


def _inner(one: Explanation) -> str:
    return show(one.constant) if isinstance(one, Constant) else one.shown


@lru_cache(maxsize=8192)
def operand_path(reference: str) -> Path:
    """Return the full path of a reference with one operand.

    Raises:
        ExplanationError: it is no such reference.
    """
    try:
        operands = list(parse_reference(reference).operands())
    except IdeabridgeError as error:
        raise ExplanationError(str(error)) from None
    if len(operands) != 1 or operands[0].instance is not None or operands[0].kind in ("item", "data"):
        raise ExplanationError(
            f"{show(reference)}: expected one reference to †input, †results or †state, without || and &&"
        )
    return operands[0].full


def items_of(value: JSON | Missing) -> list[JSON] | None:
    """Return a list, or the list that a text contains as JSON; None for anything else."""
    found = parsed_text(value) if isinstance(value, str) else value
    return found if isinstance(found, list) else None


def member(item: JSON, name: str) -> JSON | Missing:
    """Return the member of an item that a FIELD names."""
    return item if not name else read_path(item, tuple(name.split(".")))


def _equal(value: JSON | Missing, wanted: JSON) -> bool:
    return not isinstance(value, Missing) and same(value, wanted)


def _column(items: list[JSON], name: str | Path) -> Sequence[JSON | Missing]:
    """The member of every item that a FIELD, or keys, name."""
    keys: Path = name if isinstance(name, tuple) else tuple(name.split(".")) if name else ()
    if len(keys) != 1:
        return [read_path(item, keys) for item in items] if keys else items
    key = keys[-1]
    return [item.get(key, MISSING) if isinstance(item, dict) else read_path(item, keys) for item in items]


def _first_equal(column: Sequence[JSON | Missing], wanted: JSON) -> int | None:
    """The number of the first value that equals another; None if none does."""
    if not isinstance(wanted, str):
        return next((number for number, value in enumerate(column) if _equal(value, wanted)), None)
    try:
        # No value of another type equals a text, so nothing else needs to be compared.
        return column.index(wanted)
    except ValueError:
        return None


def _extreme(items: list[JSON], by: tuple[str, str]) -> JSON | Missing:
    """Return the first item with the largest or smallest number or text; MISSING if the values cannot be compared."""
    side, name = by
    column = _column(items, name)
    types = set(map(type, column))
    if not types or not (types <= {int, float} or types == {str}):
        return MISSING
    values = cast("Sequence[float]", column)
    return items[values.index(max(values) if side == "largest" else min(values))]


# -- conversions ----------------------------------------------------------------------------------------------------


_INT, _FLOAT, _STR = (int,), (int, float), (str,)

STEPS: Final[Mapping[str, tuple[tuple[type, ...], ...]]] = {
    "number": (),
    "text": (),
    "lower": (),
    "upper": (),
    "title": (),
    "strip": (),
    "date": (_STR, _STR, _INT),
    "word": (_INT,),
    "part": (_STR, _INT),
    "between": (_STR, _STR),
    "add": (_FLOAT,),
    "multiply": (_FLOAT,),
    "length": (),
}
"""The steps of conversion by name, with the types of their arguments.

`number` and `text` change the type; `date` reads a date in the first format, adds days and writes it in the second
format; `word` is the n-th word of a text, from 0, and from the end if negative; `part` the n-th part between
separators; `between` is what follows the first text in its line, up to the second (or to the end of the line if that is
empty); `add` and `multiply` are one arithmetic step with a constant; `length` is that of a text, a list or an object.
"""


def convert(value: JSON, by: tuple[JSON, ...]) -> JSON | Missing:
    """Apply one step of conversion, such as `("add", 1)`, to a value; MISSING if it cannot be applied."""
    if isinstance(value, str) and len(value) > CHARACTERS:
        return MISSING
    match by:
        case ("text",):
            return _text(value)
        case ("length",):
            return _length(value)
        case ("add" | "multiply", int() | float() as constant):
            return _calculated(value, str(by[0]), constant)
        case _ if not isinstance(value, str):
            return MISSING
        case ("number",):
            return _to_number(value)
        case ("lower" | "upper" | "title" | "strip" as change,):
            return {"lower": str.lower, "upper": str.upper, "title": str.title, "strip": str.strip}[change](value)
        case ("date", str(given), str(wanted), int(days)) if len(value) <= 40:
            return _date(value, given, wanted, days)
        case ("word", int(number)):
            return _nth(value.split(), number)
        case ("part", str(separator), int(number)) if separator in value:
            return _nth(value.split(separator), number)
        case ("between", str(before), str(after)):
            return _between(value, before, after)
        case _:
            return MISSING


def _shown_step(by: tuple[JSON, ...]) -> str:
    match by:
        case ("number" | "text" as kind,):
            return f"as a {kind}" if kind == "number" else "as text"
        case ("lower" | "upper" as change,):
            return f"in {change} case"
        case ("title",):
            return "with capitals"
        case ("strip",):
            return "without spaces around it"
        case ("add", int() | float() as constant):
            return f"{constant:+}"
        case ("multiply", int() | float() as constant):
            return f"times {constant}"
        case ("date", str(given), str(wanted), int(days)):
            return f"date{f' {days:+} days' if days else ''}{f' as {wanted}' if given != wanted else ''}"
        case ("word", int(number)):
            return f"word {_ordinal(number)}"
        case ("part", str(separator), int(number)):
            return f"part {_ordinal(number)} between {show(separator)}"
        case ("between", str(before), str(after)):
            return f"after {show(before)} {f'up to {show(after)}' if after else 'to the end of its line'}"
        case _:
            return "its length"


def _ordinal(number: int) -> str:
    return f"{number + 1}" if number >= 0 else f"{-number} from the end"


_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")


def _to_number(value: str) -> JSON | Missing:
    text = value.strip()
    if _NUMBER.fullmatch(text) is None:
        return MISSING
    return float(text) if "." in text else int(text)


def _text(value: JSON | Missing) -> JSON | Missing:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING
    return str(int(value)) if isinstance(value, float) and value.is_integer() else encode_text(value)


def _calculated(value: JSON, operation: str, constant: float) -> JSON | Missing:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING
    try:
        found = value + constant if operation == "add" else value * constant
        # What arithmetic on binary fractions adds beyond ten digits is noise.
        return found if isinstance(found, int) else round(found, 10)
    except OverflowError:
        return MISSING


def _nth(parts: list[str], number: int) -> JSON | Missing:
    return parts[number].strip() if -len(parts) <= number < len(parts) else MISSING


def _between(value: str, before: str, after: str) -> JSON | Missing:
    start = value.find(before)
    if start < 0:
        return MISSING
    start += len(before)
    end = value.find("\n", start)
    line = value[start:] if end < 0 else value[start:end]
    if not after:
        return line.strip()
    found, mark, _ = line.partition(after)
    return found.strip() if mark else MISSING


def _length(value: JSON) -> JSON | Missing:
    inner = parsed_text(value) if isinstance(value, str) else value
    inner = value if isinstance(inner, Missing) else inner
    return len(inner) if isinstance(inner, str | list | dict) else MISSING


_FORMAT = re.compile(r"(?:%[YmdeBbHMS]|[^%]){1,40}")


@lru_cache(maxsize=1024)
def _date(value: str, given: str, wanted: str, days: int) -> JSON | Missing:
    try:
        moment = datetime.strptime(value, given.replace("%e", "%d"))  # noqa: DTZ007
        # strptime also reads forms that the format does not write, such as a day without its zero.
        return written_date(moment + timedelta(days=days), wanted) if written_date(moment, given) == value else MISSING
    except (ValueError, OverflowError):
        return MISSING


def written_date(moment: datetime, form: str) -> str:
    """Write a date in a format of the step `date`: that of strftime, and `%e` for the day without a zero."""
    return f"{moment.year:04d}".join(moment.strftime(part) for part in form.replace("%e", str(moment.day)).split("%Y"))


# -- reading --------------------------------------------------------------------------------------------------------


def read_explanation(raw: JSON, *, where: str = "explanation") -> Explanation:
    """Read the JSON form of an explanation; the module's docstring lists the forms.

    Raises:
        ExplanationError: the form is wrong; the message says where and what was expected.
    """
    return _read(raw, where, 0)


def _read(raw: JSON, where: str, depth: int) -> Explanation:
    if depth > _DEPTH:
        raise ExplanationError(f"{where}: an explanation nests at most {_DEPTH} deep")
    if isinstance(raw, str) and is_reference(raw):
        return _path_to(raw, where)
    match raw:
        case {"constant": value, **rest} if not rest:
            return Constant(value)
        case {"item_of": str(source), "where": condition, "take": take, **rest} if not rest:
            return ItemOf(_source(source, where), _keys(take, where), _condition(condition, where, depth))
        case {"item_of": str(source), "largest": str(name), "take": take, **rest} if not rest:
            return ItemOf(_source(source, where), _keys(take, where), by=("largest", name))
        case {"item_of": str(source), "smallest": str(name), "take": take, **rest} if not rest:
            return ItemOf(_source(source, where), _keys(take, where), by=("smallest", name))
        case {"all_of": str(source), "where": condition, "take": take, **rest} if not rest:
            return AllOf(_source(source, where), _keys(take, where), _condition(condition, where, depth))
        case {"all_of": str(source), "take": take, **rest} if not rest:
            return AllOf(_source(source, where), _keys(take, where))
        case {"convert": inner, "by": [str(name), *arguments], **rest} if not rest and name in STEPS:
            _check_step(name, arguments, where)
            return Converted(_read(inner, f"{where}.convert", depth + 1), (name, *arguments))
        case {"join": [*parts], **rest} if not rest and 0 < len(parts) <= _PARTS:
            read = [_read(part, f"{where}.join.{number}", depth + 1) for number, part in enumerate(parts)]
            return Joined(tuple(read))
        case _:
            raise ExplanationError(
                f"{where}: expected a reference such as †input.x, or an object with constant, item_of, all_of, convert"
                f" or join, found {show(raw)}"
            )


def _path_to(reference: str, where: str) -> PathTo:
    try:
        operand_path(reference)
    except ExplanationError as error:
        raise ExplanationError(f"{where}: {error}") from None
    return PathTo(reference)


def _source(reference: str, where: str) -> str:
    return _path_to(reference, where).reference


def _keys(raw: JSON, where: str) -> Path:
    keys = [one for one in raw if isinstance(one, str)] if isinstance(raw, list) else []
    if not isinstance(raw, list) or len(keys) != len(raw):
        raise ExplanationError(f"{where}.take: expected an array of keys, found {show(raw)}")
    return tuple(keys)


def _condition(raw: JSON, where: str, depth: int) -> tuple[str, Explanation]:
    if not isinstance(raw, dict) or len(raw) != 1:
        raise ExplanationError(f"{where}.where: expected an object with one field, found {show(raw)}")
    [(name, inner)] = raw.items()
    return name, _read(inner, f"{where}.where", depth + 1)


def _check_step(name: str, arguments: list[JSON], where: str) -> None:
    wanted = STEPS[name]
    fits = len(arguments) == len(wanted) and all(
        isinstance(one, types) and not isinstance(one, bool) for one, types in zip(arguments, wanted, strict=True)
    )
    if fits and name == "date":
        fits = all(isinstance(one, str) and _FORMAT.fullmatch(one) for one in arguments[:2])
    if fits and name == "part":
        fits = arguments[0] != ""
    if not fits:
        expected = ", ".join(" or ".join(one.__name__ for one in types) for types in wanted) or "nothing"
        raise ExplanationError(f"{where}.by: {name} takes {expected}, found {show(list[JSON](arguments))}")


# -- literals -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explained:
    """A literal of a plan, with every explanation that fits the evidence.

    Attributes:
        at: its place: ("calls", place, key...) or ("output", key...).
        by: the explanations, the cheapest first; never empty.
        runs: the runs, with different data, that agree with all of them.
        cut: the search stopped at a bound, so an explanation may be missing.
        why: another reason why the value is never determined, such as `recorded text`.
    """

    at: Path
    by: tuple[Explanation, ...]
    runs: int = 1
    cut: bool = False
    why: str | None = None

    @property
    def references(self) -> tuple[str, ...]:
        """The references that the explanations read."""
        return tuple(dict.fromkeys(text for one in self.by for text in one.references))

    def to_json(self) -> JSONObject:
        """`{"at", "by", "runs"?, "cut"?, "why"?}`."""
        form: JSONObject = {"at": list(self.at), "by": [one.to_json() for one in self.by]}
        if self.runs != 1:
            form["runs"] = self.runs
        if self.cut:
            form["cut"] = True
        if self.why is not None:
            form["why"] = self.why
        return form


def read_explained(raw: JSON, *, where: str = "explained") -> Explained:
    """Read the form that `Explained.to_json` returns.

    Raises:
        ExplanationError: the form is wrong; the message says where and what was expected.
    """
    if not isinstance(raw, dict):
        raise ExplanationError(f"{where}: expected an object with at and by, found {show(raw)}")
    unknown = [key for key in raw if key not in ("at", "by", "runs", "cut", "why")]
    if unknown:
        raise ExplanationError(f"{where}: unknown key {show(unknown[0])}; expected at, by, runs, cut or why")
    at = _keys(raw.get("at"), where)
    if not (at[:1] == ("output",) or (at[:1] == ("calls",) and len(at) > 2 and _PLACE.fullmatch(at[1]))):
        raise ExplanationError(
            f'{where}.at: expected ["calls", place, key...] or ["output", key...], found {show(list[JSON](at))}'
        )
    by, runs = raw.get("by"), raw.get("runs", 1)
    if not isinstance(by, list) or not 0 < len(by) <= MOST:
        raise ExplanationError(f"{where}.by: expected an array of 1 to {MOST} explanations, found {show(by)}")
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 0:
        raise ExplanationError(f"{where}.runs: expected a number of runs, found {show(runs)}")
    why = raw.get("why")
    if not isinstance(raw.get("cut", False), bool) or not (why is None or isinstance(why, str)):
        raise ExplanationError(f"{where}: expected cut to be true or false, and why to be a text")
    found = (read_explanation(one, where=f"{where}.by.{number}") for number, one in enumerate(by))
    return Explained(at, tuple(found), runs, raw.get("cut") is True, why)


MOST: Final = 64
"""The most explanations of one literal."""

_PLACE = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Settled:
    """The value of an explained literal for new data.

    Attributes:
        value: the value; MISSING if no explanation has one.
        assumed: None if the value is determined; otherwise `{"at", "taken", "from", "instead": [{"value"?, "from"}],
            "why"}`. `instead` lists at most three other values, and an entry without a value is an explanation that has
            none. A long value is cut, and `"shortened": true` stands beside it.
    """

    value: JSON | Missing
    assumed: JSONObject | None = None


def settle(explained: Explained, read: Read) -> Settled:
    """Evaluate all explanations of a literal, and take the cheapest that has a value.

    The value is determined if all explanations have the same value, unless the search was cut, or the explanation
    selects by a position in a list of several items and fewer than three runs agree on it.
    """
    values = [(one, one.value(read)) for one in explained.by]
    taken = next(((one, value) for one, value in values if not isinstance(value, Missing)), None)
    if taken is None:
        return Settled(MISSING)
    chosen, value = taken
    others: list[tuple[Explanation, JSON]] = []
    without: list[Explanation] = []
    for one, other in values:
        if isinstance(other, Missing):
            without.append(one)
        elif not same(other, value) and not any(same(other, seen) for _, seen in others):
            others.append((one, other))
    why = explained.why
    if why is None and (others or without):
        why = "its explanations differ"
    if why is None and explained.cut:
        why = "not every explanation was looked for"
    if why is None and explained.runs < RUNS_FOR_POSITION and chosen.positions(read):
        why = "it is selected by its position in a list"
    if why is None:
        return Settled(value)
    # Other values say more than explanations without one.
    instead: list[JSON] = []
    instead.extend({**shortened("value", other), "from": one.shown} for one, other in others[:3])
    instead.extend({"from": one.shown} for one in without[: 3 - len(instead)])
    at = ".".join(_name(key) for key in explained.at)
    taken = shortened("taken", value)
    return Settled(value, {"at": at, **taken, "from": chosen.shown, "instead": instead, "why": why})


def shortened(key: str, value: JSON) -> JSONObject:
    """A value for people under a key: a long one is cut, and `"shortened": true` stands beside it."""
    cut = _cut(value)
    return {key: cut} if cut is value else {key: cut, "shortened": True}


def _name(key: str) -> str:
    return encode_text(key) if not key or "." in key or key.startswith('"') else key


def _cut(value: JSON) -> JSON:
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, str):
        return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    text = show(value, _SHOWN)
    return value if len(text) < _SHOWN and "…" not in text else text


def references_of(explained: Iterable[Explained]) -> Iterator[str]:
    """Yield every reference that explanations read, each once."""
    yield from dict.fromkeys(text for one in explained for text in one.references)
