"""Evaluate explanations of kinds that no longer exist, and convert them into Python expressions.

Before version 2 of the rules for calls, a plan could also explain literals by guessed functions:
parts of strings, dates, arithmetic, extremes, whole columns of lists, joined strings, and branches
with tests. A program now expresses these directly. Two tasks still need the old forms, and only
this file reads these forms:

- Folding an old journal under the rules of that time: `read_earlier_explained` reads its literals.
- Migrating a stored plan: `store/removed_kinds.py` inserts a call of `compute` with the expression
  from `python_of`.

| kind | JSON form | its value |
|---|---|---|
| extreme | `{"item_of": REF, "largest": FIELD, "take": [KEY...]}`, or `"smallest"` | a member of the item with that FIELD |
| items | `{"all_of": REF, "take": [KEY...], "where"?: {...}}` | a list: one member of every item |
| conversion | `{"convert": EXPLANATION, "by": [NAME, ARGUMENT...]}` | a step of `_STEPS` |
| join | `{"join": [EXPLANATION...]}` | the strings, one after the other |
| test | `{"test": REF, KIND: ARGUMENT}` | true or false; see `_COMPARISONS` |
| branch | `{"if": TEST, "then": EXPLANATION, "else": EXPLANATION}` | the value of one of the two |

An expression yields a list that contains the value, or an empty list if there is no value.
Expressions can therefore be combined by looping over these lists, and none of them fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    MOST_ITEMS,
    Explained,
    Explanation,
    Read,
    operand_path,
    read_explained,
    read_explanation,
    same,
)
from ideabridge.bridge.context.items import column_of, items_of, keys_of
from ideabridge.bridge.context.references import Path, format_reference
from ideabridge.bridge.context.state import MISSING, Missing, opened
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.context.steps import CHARACTERS, as_text, convert
from ideabridge.tools.encoding import JSON, encode_text
from ideabridge.tools.keywords import show

_STEPS: Final = frozenset({"date", "word", "part", "between", "add", "multiply", "length"})
"""The removed conversion steps.

- `date`, with two formats and a number: reads a date in the first format, adds that many days, and
  writes the result in the second format.
- `word`, with a number: the n-th word of a string, counted from 0, or from the end if negative.
- `part`, with a separator and a number: the n-th part between separators.
- `between`, with two strings: the text that follows the first one in its line, up to the second
  one, or up to the end of the line if the second is empty.
- `add` and `multiply`, with a number.
- `length`.
"""

_COMPARISONS: Final[Mapping[str, str]] = {
    "above": ">",
    "at_least": ">=",
    "below": "<",
    "at_most": "<=",
}
"""The tests that compare numbers, with their operators in Python.

There are also tests without an operator. `present`, with true or false, tests whether the value
exists and is not null. `empty` tests whether the value is absent, null, or an empty string, list or
object. `equals` and `differs_from` compare the value with a constant, or with each constant in a
list.
"""

_FORMAT = re.compile(r"(?:%[YmdeBbHMS]|[^%]){1,40}")


class NoExpressionError(ExplanationError):
    """Raised when no Python expression can produce the value of an explanation."""


def is_removed(raw: JSON) -> bool:
    """Return whether an explanation, or a part of it, is of a removed kind."""
    match raw:
        case (
            {"all_of": _}
            | {"test": _}
            | {"if": _}
            | {"item_of": _, "largest": _}
            | {"item_of": _, "smallest": _}
        ):
            return True
        case {"item_of": _, "where": dict() as where}:
            return any(map(is_removed, where.values()))
        case {"convert": inner, "by": [name, *_]}:
            return name in _STEPS or is_removed(inner)
        case {"join": [*parts]}:
            moving = [part for part in parts if not (isinstance(part, dict) and "constant" in part)]
            return len(moving) != 1 or is_removed(moving[0])
        case _:
            return False


def read_earlier_explained(raw: JSON, *, where: str = "explained") -> Explained:
    """Read an explained literal from a plan that can contain removed kinds.

    Raises:
        ExplanationError: the form is wrong; the message says where, and what was expected.
    """
    return read_explained(raw, where=where, reader=_read_earlier)


def _read_earlier(raw: JSON, where: str) -> Explanation:
    if not is_removed(raw):
        return read_explanation(raw, where=where)
    try:
        with suppress(NoExpressionError):
            python_of(raw, lambda _: "document")
        return Removed(raw, tuple(dict.fromkeys(_references(raw))))
    except ExplanationError as error:
        raise ExplanationError(f"{where}: {error}") from None


# -- values in stored journals ---------------------------------------------------------------------


@dataclass(frozen=True)
class Removed(Explanation):
    """An explanation of a removed kind.

    Attributes:
        raw: the JSON form of the explanation, already checked.
        sources: the references that the explanation and its parts read.
    """

    raw: JSON
    sources: tuple[str, ...]

    def __hash__(self) -> int:
        return hash(self.shown)

    @property
    def family(self) -> str:
        """A unique family, because no other explanation can replace one of a removed kind."""
        return f"removed {self.shown}"

    @property
    def references(self) -> tuple[str, ...]:
        """The references that the explanation and its parts read."""
        return self.sources

    @property
    def shown(self) -> str:
        """The JSON form of the explanation."""
        return encode_text(self.raw)

    def value(self, read: Read) -> JSON | Missing:
        """Return the value, or MISSING if the explanation has no value."""
        return _value(self.raw, read)

    def positions(self, read: Read) -> bool:
        """Return whether any of its parts selects by position."""
        return _positions(self.raw, read)

    def to_json(self) -> JSON:
        """Return the JSON that this explanation was read from."""
        return self.raw


def _parts(raw: JSON) -> list[JSON]:
    """Return the explanations that an explanation is composed of."""
    match raw:
        case {"where": dict() as where}:
            return list(where.values())
        case {"convert": inner}:
            return [inner]
        case {"join": [*parts]}:
            return parts
        case {"if": test, "then": then, "else": otherwise}:
            return [test, then, otherwise]
        case _:
            return []


def _references(raw: JSON) -> Iterator[str]:
    if not is_removed(raw):
        yield from read_explanation(raw).references
        return

    match raw:
        case {"item_of": str(source)} | {"all_of": str(source)} | {"test": str(source)}:
            yield source
        case _:
            pass

    for part in _parts(raw):
        yield from _references(part)


def _positions(raw: JSON, read: Read) -> bool:
    if not is_removed(raw):
        return read_explanation(raw).positions(read)
    match raw:
        case {"if": test, "then": then, "else": otherwise}:
            decided = _value(test, read)
            return not isinstance(decided, Missing) and _positions(
                then if decided is True else otherwise, read
            )
        case {"item_of": source, "where": where, "take": take}:
            members = _value({"all_of": source, "take": take, "where": where}, read)
            return isinstance(members, list) and any(
                not same(member, members[0]) for member in members[1:]
            )
        case {"test": str(reference)}:
            return read_explanation(reference).positions(read)
        case _:
            return any(_positions(part, read) for part in _parts(raw))


def _value(raw: JSON, read: Read) -> JSON | Missing:
    if not is_removed(raw):
        return read_explanation(raw).value(read)
    match raw:
        case {"item_of": str(source), "take": [*take], **rest}:
            items = _selected(items_of(read(source)), rest.get("where"), read) or []
            for side in ("largest", "smallest"):
                if side in rest:
                    items = _extreme(items, side, str(rest[side]))
            return read_path(items[0], tuple(map(str, take))) if items else MISSING
        case {"all_of": str(source), "take": [*take], **rest}:
            items = _selected(items_of(read(source)), rest.get("where"), read)
            if items is None:
                return MISSING
            return [
                value
                for value in column_of(items, tuple(map(str, take)))
                if not isinstance(value, Missing)
            ]
        case {"convert": inner, "by": [*by]}:
            value = _value(inner, read)
            return MISSING if isinstance(value, Missing) else _converted(value, by)
        case {"join": [*parts]}:
            return _joined([_value(part, read) for part in parts])
        case {"test": str(reference), **rest}:
            [(kind, argument)] = rest.items()
            value = read(reference)
            return _decided(None if isinstance(value, Missing) else value, kind, argument)
        case {"if": test, "then": then, "else": otherwise}:
            decided = _value(test, read)
            if isinstance(decided, Missing):
                return MISSING
            return _value(then if decided is True else otherwise, read)
        case _:
            raise AssertionError(raw)


def _selected(items: list[JSON] | None, where: JSON, read: Read) -> list[JSON] | None:
    """Return the items that match a condition, or None if there is no list or no value to compare
    with.
    """
    if items is None or len(items) > MOST_ITEMS:
        return None
    if not isinstance(where, dict):
        return items

    [(name, inner)] = where.items()
    expected = _value(inner, read)
    if isinstance(expected, Missing):
        return None

    column = zip(items, column_of(items, name), strict=True)
    return [
        item for item, value in column if not isinstance(value, Missing) and same(value, expected)
    ]


def _extreme(items: list[JSON], side: str, name: str) -> list[JSON]:
    """Return the first item with the largest or smallest field, or an empty list if the fields
    cannot be compared.
    """
    column = column_of(items, name)
    types = set(map(type, column))
    if not items or not (types <= {int, float} or types == {str}):
        return []
    values = cast("Sequence[float]", column)
    return [items[values.index(max(values) if side == "largest" else min(values))]]


def _joined(values: list[JSON | Missing]) -> JSON | Missing:
    texts = [value if isinstance(value, str) else as_text(value) for value in values]
    whole = [text for text in texts if isinstance(text, str)]
    if len(whole) < len(values) or sum(map(len, whole)) > CHARACTERS:
        return MISSING
    return "".join(whole)


def _decided(value: JSON, kind: str, argument: JSON) -> bool | Missing:
    if kind == "present":
        return (value is not None) is argument
    if kind == "empty":
        return (value is None or value in ("", [], {})) is argument
    if kind in ("equals", "differs_from"):
        constants = argument if isinstance(argument, list) else [argument]
        return any(same(value, constant) for constant in constants) is (kind == "equals")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not isinstance(argument, int | float)
    ):
        return MISSING

    if kind in ("above", "below"):
        return value > argument if kind == "above" else value < argument
    return value >= argument if kind == "at_least" else value <= argument


def _converted(value: JSON, by: list[JSON]) -> JSON | Missing:
    if by[0] not in _STEPS:
        return convert(value, str(by[0]))
    if isinstance(value, str) and len(value) > CHARACTERS:
        return MISSING
    match by:
        case ["length"]:
            inner = opened(value)
            inner = value if isinstance(inner, Missing) else inner
            return len(inner) if isinstance(inner, str | list | dict) else MISSING
        case ["add" | "multiply" as operation, int() | float() as constant]:
            if isinstance(value, bool) or not isinstance(value, int | float):
                return MISSING
            return _calculated(value, str(operation), constant)
        case _ if not isinstance(value, str):
            return MISSING
        case ["date", str(given), str(wanted), int(days)] if len(value) <= 40:
            return _date(value, given, wanted, days)
        case ["word", int(number)]:
            return _nth(value.split(), number)
        case ["part", str(separator), int(number)] if separator in value:
            return _nth(value.split(separator), number)
        case ["between", str(before), str(after)] if before in value:
            line = value.split(before, 1)[1].split("\n", 1)[0]
            if after and after not in line:
                return MISSING
            return (line.split(after, 1)[0] if after else line).strip()
        case _:
            return MISSING


def _calculated(value: float, operation: str, constant: float) -> JSON | Missing:
    try:
        result = value + constant if operation == "add" else value * constant
        # Digits after the tenth decimal place come only from rounding binary fractions.
        return result if isinstance(result, int) else round(result, 10)
    except OverflowError:
        return MISSING


def _nth(parts: list[str], number: int) -> JSON | Missing:
    if -len(parts) <= number < len(parts):
        return parts[number].strip()
    return MISSING


def _date(value: str, from_form: str, to_form: str, days: int) -> JSON | Missing:
    try:
        moment = datetime.strptime(value, from_form.replace("%e", "%d"))  # noqa: DTZ007
        # Check that the format writes exactly the same text, because strptime also accepts other
        # forms, such as a day without the leading zero.
        if _written(moment, from_form) == value:
            return _written(moment + timedelta(days=days), to_form)
        return MISSING
    except (ValueError, OverflowError):
        return MISSING


def _written(moment: datetime, form: str) -> str:
    """Format a date with a strftime format in which `%e` is the day without a leading zero."""
    return f"{moment.year:04d}".join(
        moment.strftime(part) for part in form.replace("%e", str(moment.day)).split("%Y")
    )


# -- explanations as Python ------------------------------------------------------------------------

Name: TypeAlias = "Callable[[str], str]"
"""A function that takes a reference and returns the name that the expression uses for its document
(`†input`, `†results.3`).
"""


def python_of(raw: JSON, name: Name) -> str:
    """Return a Python expression that yields a list with the value of an explanation, or an empty
    list if the explanation has no value.

    Args:
        raw: the form of the explanation, whether of a removed kind or not.
        name: see `Name`.

    Raises:
        NoExpressionError: the explanation shifts a date.
        ExplanationError: the form is wrong; the message says what was expected.
    """
    match raw:
        case str(reference):
            return _python_at(reference, name)
        case {"constant": value, **rest} if not rest:
            return f"[{value!r}]"
        case {"item_of": str(source), "where": dict() as where, "take": take, **rest} if not rest:
            items = _python_items(source, where, name)
            return _python_path(f"[i for l in {items} for i in l[:1]]", _keys(take))
        case {"item_of": str(source), "take": take, **rest} if len(rest) == 1:
            [(side, field)] = rest.items()
            items = _python_extreme(_python_items(source, None, name), side, field)
            return _python_path(f"[i for l in {items} for i in l[:1]]", _keys(take))
        case {"all_of": str(source), "take": take, **rest} if not {*rest} - {"where"}:
            items = _python_items(source, rest.get("where"), name)
            return f"[[w for i in l for w in {_python_path('[i]', _keys(take))}] for l in {items}]"
        case {"convert": inner, "by": [*by]}:
            return _python_step(python_of(inner, name), by)
        case {"join": [_, *_] as parts}:
            text_too = f"[v] if isinstance(v, str) else {_AS_TEXTS}"
            texts = ", ".join(_python_each(python_of(part, name), text_too) for part in parts)
            return (
                f"[''.join([x[0] for x in p]) for p in [[{texts}]] if "
                "all([len(x) == 1 for x in p])]"
            )
        case {"test": str(reference), **rest} if len(rest) == 1:
            [(kind, argument)] = rest.items()
            value = f"[x[0] if x else None for x in [{_python_at(reference, name)}]]"
            return _python_test(value, kind, argument)
        case {"if": {"test": _} as test, "then": then, "else": otherwise}:
            either = f"({python_of(then, name)} if t else {python_of(otherwise, name)})"
            return f"[w for t in {python_of(test, name)} for w in {either}]"
        case _:
            raise ExplanationError(f"expected an explanation, found {show(raw)}")


def _keys(take: JSON) -> Path:
    if isinstance(take, list):
        keys = [key for key in take if isinstance(key, str)]
    else:
        keys = []
    if not isinstance(take, list) or len(keys) < len(take):
        raise ExplanationError(f"expected an array of keys, found {show(take)}")
    return tuple(keys)


_OPENED: Final = "(json.loads(v) if isinstance(v, str) and v.strip()[:1] in ('{', '[') else v)"
"""An expression that replaces a string with the JSON inside it, and leaves any other value
unchanged. The expression fails on text that only looks like JSON.
"""


def _python_at(reference: str, name: Name) -> str:
    path = operand_path(reference)
    depth = 2 if path[0] == "results" else 1
    return _python_path(f"[{name(format_reference(path[:depth]))}]", path[depth:])


def _python_path(inner: str, path: Path) -> str:
    for key in path:
        member = f"[v[{key!r}]] if isinstance(v, dict) and {key!r} in v else "
        if _is_place(key):
            place = f"[v[{int(key)}]] if isinstance(v, list) and len(v) > {int(key)} else "
        else:
            place = ""
        inner = f"[w for v in {inner} for v in [{_OPENED}] for w in ({member}{place}[])]"
    return inner


def _is_place(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) < 16


def _python_items(source: str, where: JSON, name: Name) -> str:
    items = f"[v for v in {_python_at(source, name)} for v in [{_OPENED}] if isinstance(v, list)]"
    if where is None:
        return items
    if not isinstance(where, dict) or len(where) != 1:
        raise ExplanationError(f"expected an object with one field, found {show(where)}")

    [(field, inner)] = where.items()
    column = _python_path("[i]", keys_of(field))
    equal = "isinstance(x, bool) is isinstance(q, bool) and x == q"
    return (
        f"[[i for i in l if any([{equal} for x in {column}])] for l in {items} for q in "
        f"{python_of(inner, name)}]"
    )


def _python_extreme(items: str, side: str, name: JSON) -> str:
    if side not in ("largest", "smallest") or not isinstance(name, str):
        raise ExplanationError(
            f"expected the largest or smallest of a field, found {show({side: name})}"
        )
    column = f"[{_python_path('[i]', keys_of(name))} for i in l]"
    comparable = (
        "all([len(x) == 1 and type(x[0]) in (int, float) for x in c]) or all([len(x) == 1 and "
        "type(x[0]) is str for x in c])"
    )
    best = "max" if side == "largest" else "min"
    return f"[[l[c.index({best}(c))]] for l in {items} for c in [{column}] if c and ({comparable})]"


_IS_NUMBER: Final = "isinstance(v, (int, float)) and not isinstance(v, bool)"
_AS_TEXTS: Final = f"([str(int(v)) if v == int(v) else json.dumps(v)] if {_IS_NUMBER} else [])"
"""An expression that writes a number as text, as `as_text` does."""

_NUMBER: Final = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?"
_ANY_TYPE: Final = ("text", "add", "multiply", "length")
"""The steps that convert values other than strings."""


def _python_step(inner: str, by: list[JSON]) -> str:
    match by:
        case ["text"]:
            step = _AS_TEXTS
        case ["number"]:
            step = (
                "[float(t) if '.' in t else int(t) for t in [v.strip()] if "
                f"re.fullmatch({_NUMBER!r}, t)]"
            )
        case ["lower" | "upper" | "title" | "strip" as change]:
            step = f"[v.{change}()]"
        case ["word", int(place)]:
            step = f"[p[{place}].strip() for p in [v.split()] if {_least_parts(place)} <= len(p)]"
        case ["part", str(separator), int(place)] if separator:
            parts = (
                f"[v.split({separator!r})] if {separator!r} in v and "
                f"{_least_parts(place)} <= len(p)"
            )
            step = f"[p[{place}].strip() for p in {parts}]"
        case ["between", str(before), str(after)]:
            line = rf"for t in [v.split({before!r}, 1)[1].split('\n', 1)[0]]"
            if after:
                cut = f"t.split({after!r}, 1)[0].strip() {line} if {after!r} in t"
            else:
                cut = f"t.strip() {line}"
            step = f"[{cut}] if {before!r} in v else []"
        case ["add" | "multiply" as operation, int() | float() as number]:
            sign = "+" if operation == "add" else "*"
            results = f"[n if isinstance(n, int) else round(n, 10) for n in [v {sign} {number!r}]]"
            step = f"{results} if {_IS_NUMBER} else []"
        case ["length"]:
            step = f"[len(x) for x in [{_OPENED}] if isinstance(x, (str, list, dict))]"
        case ["date", str(given), str(wanted), int()] if _FORMAT.fullmatch(
            given
        ) and _FORMAT.fullmatch(wanted):
            raise NoExpressionError("an expression has no calendar, so it cannot shift a date")
        case _:
            raise ExplanationError(f"expected a step of conversion, found {show(list[JSON](by))}")

    if by[0] not in _ANY_TYPE:
        step = f"({step}) if isinstance(v, str) else []"
    return _python_each(inner, step)


def _python_each(inner: str, step: str) -> str:
    """Return an expression for a list that contains the result of a step for each value `v`."""
    return f"[w for v in {inner} for w in ({step})]"


def _least_parts(place: int) -> int:
    """Return the minimum number of parts for a part to exist at this position."""
    return -place if place < 0 else place + 1


def _python_test(value: str, kind: str, argument: JSON) -> str:
    match kind:
        case "present":
            return f"[(x is not None) is {argument!r} for x in {value}]"
        case "empty":
            return f"[(x is None or x in ('', [], {{}})) is {argument!r} for x in {value}]"
        case "equals" | "differs_from":
            constants = argument if isinstance(argument, list) else [argument]
            equal = (
                "any([isinstance(x, bool) is isinstance(q, bool) and x == q "
                f"for q in {constants!r}])"
            )
            return f"[{equal} is {kind == 'equals'} for x in {value}]"
        case _ if kind in _COMPARISONS and isinstance(argument, int | float):
            number = "isinstance(x, (int, float)) and not isinstance(x, bool)"
            return f"[x {_COMPARISONS[kind]} {argument!r} for x in {value} if {number}]"
        case _:
            raise ExplanationError(f"expected a test, found {show({kind: argument})}")
