"""Removed kinds of explanations: what they meant, and the Python expression that each of them becomes.

Until version 2 of the rules for calls, a plan also explained literals by functions that it guessed: parts of texts,
dates, arithmetic, extremes, whole columns of lists, joined texts, and branches with tests. A program says these
plainly. Two things still need their forms, and only this module knows them:

- A journal of that time is folded as it was written: `read_earlier_explained` reads its literals.
- A stored plan goes on: `store/removed_kinds.py` puts a call of `compute` with `python_of` into it.

| kind | JSON form | its value |
|---|---|---|
| extreme | `{"item_of": REF, "largest": FIELD, "take": [KEY...]}`, or `"smallest"` | of the item with that FIELD |
| items | `{"all_of": REF, "take": [KEY...], "where"?: {...}}` | a list: one member of every item |
| conversion | `{"convert": EXPLANATION, "by": [NAME, ARGUMENT...]}` | a step of `_ARGUMENTS` |
| join | `{"join": [EXPLANATION...]}` | the texts, one after the other |
| test | `{"test": REF, KIND: ARGUMENT}` | true or false; see `_TESTS` |
| branch | `{"if": TEST, "then": EXPLANATION, "else": EXPLANATION}` | that of one of the two |

An expression gives a list: of the value, or of nothing where there is no value. So expressions are put together by
loops over such lists, and none of them fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    ITEMS,
    Constant,
    Explained,
    Explanation,
    Read,
    operand_path,
    read_explained,
    read_explanation,
    same,
)
from ideabridge.bridge.context.items import column_of, items_of
from ideabridge.bridge.context.references import Path, format_reference
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.context.steps import CHARACTERS, as_text, convert
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import show

_ARGUMENTS: Final[Mapping[str, tuple[tuple[type, ...], ...]]] = {
    "date": ((str,), (str,), (int,)),
    "word": ((int,),),
    "part": ((str,), (int,)),
    "between": ((str,), (str,)),
    "add": ((int, float),),
    "multiply": ((int, float),),
    "length": (),
}
"""The removed steps of conversion, with the types of their arguments.

`date` reads a date in the first format, adds days and writes it in the second format; `word` is the n-th word of a
text, from 0, and from the end if negative; `part` the n-th part between separators; `between` is what follows the first
text in its line, up to the second, or to the end of the line if that is empty.
"""

_TESTS: Final[Mapping[str, str]] = {
    "present": "is present",
    "empty": "is empty",
    "equals": "==",
    "differs_from": "is not",
    "above": ">",
    "at_least": ">=",
    "below": "<",
    "at_most": "<=",
}
"""The conditions of tests, as Python writes them.

`present`, with true or false: the value exists and is not null; `empty`: it is absent, null, or an empty text, list or
object; `equals` and `differs_from` compare with a constant, or with each of a list; all others compare numbers.
"""

_FORMAT = re.compile(r"(?:%[YmdeBbHMS]|[^%]){1,40}")
_DEPTH: Final = 6


def is_removed(raw: JSON) -> bool:
    """Return whether the form of an explanation has a removed kind, also within it."""
    match raw:
        case {"all_of": _} | {"test": _} | {"if": _} | {"item_of": _, "largest": _} | {"item_of": _, "smallest": _}:
            return True
        case {"item_of": _, "where": dict() as where}:
            return any(map(is_removed, where.values()))
        case {"convert": inner, "by": [name, *_]}:
            return name in _ARGUMENTS or is_removed(inner)
        case {"join": [*parts]}:
            moving = [part for part in parts if not (isinstance(part, dict) and "constant" in part)]
            return len(moving) != 1 or is_removed(moving[0])
        case _:
            return False


def read_earlier_explained(raw: JSON, *, where: str = "explained") -> Explained:
    """Read an explained literal of a plan that may have removed kinds.

    Raises:
        ExplanationError: the form is wrong; the message says where and what was expected.
    """
    return read_explained(raw, where=where, reader=_read_earlier)


def _read_earlier(raw: JSON, where: str) -> Explanation:
    if not is_removed(raw):
        return read_explanation(raw, where=where)
    _check(raw, where, 0)
    return Removed(raw)


def _check(raw: JSON, where: str, depth: int) -> None:
    """Check the form of an explanation.

    Raises:
        ExplanationError: it is wrong.
    """
    if depth > _DEPTH:
        raise ExplanationError(f"{where}: an explanation nests at most {_DEPTH} deep")
    for text in _texts(raw):
        operand_path(text)
    match raw:
        case _ if not is_removed(raw):
            read_explanation(raw, where=where)
        case {"item_of": str(), "largest": str(), "take": [*take]} if _are_texts(take):
            pass
        case {"item_of": str(), "smallest": str(), "take": [*take]} if _are_texts(take):
            pass
        case {"item_of": str(), "where": {**where_}, "take": [*take]} if len(where_) == 1 and _are_texts(take):
            _check(next(iter(where_.values())), f"{where}.where", depth + 1)
        case {"all_of": str(), "take": [*take], "where": {**where_}} if len(where_) == 1 and _are_texts(take):
            _check(next(iter(where_.values())), f"{where}.where", depth + 1)
        case {"all_of": str(), "take": [*take], **rest} if not rest and _are_texts(take):
            pass
        case {"convert": inner, "by": [str(name), *arguments]}:
            _check(inner, f"{where}.convert", depth + 1)
            if name in _ARGUMENTS:
                _check_arguments(name, arguments, where)
        case {"join": [*parts]} if 0 < len(parts) <= 64:
            for number, part in enumerate(parts):
                _check(part, f"{where}.join.{number}", depth + 1)
        case {"test": str(), **rest} if len(rest) == 1 and next(iter(rest)) in _TESTS:
            pass
        case {"if": {"test": _} as test, "then": then, "else": otherwise}:
            _check(test, f"{where}.if", depth + 1)
            _check(then, f"{where}.then", depth + 1)
            _check(otherwise, f"{where}.else", depth + 1)
        case _:
            raise ExplanationError(f"{where}: expected an explanation, found {show(raw)}")


def _are_texts(keys: list[JSON]) -> bool:
    return all(isinstance(key, str) for key in keys)


def _check_arguments(name: str, arguments: list[JSON], where: str) -> None:
    wanted = _ARGUMENTS[name]
    fits = len(arguments) == len(wanted) and all(
        isinstance(one, types) and not isinstance(one, bool) for one, types in zip(arguments, wanted, strict=True)
    )
    if name == "date" and fits:
        fits = all(isinstance(one, str) and _FORMAT.fullmatch(one) for one in arguments[:2])
    if name == "part" and fits:
        fits = arguments[0] != ""
    if not fits:
        raise ExplanationError(f"{where}.by: {name} does not take {show(list[JSON](arguments))}")


def _texts(raw: JSON) -> Iterator[str]:
    """Yield the references that an explanation reads itself, not those of its parts that are explanations."""
    match raw:
        case {"item_of": str(text)} | {"all_of": str(text)} | {"test": str(text)}:
            yield text
        case _:
            return


def _parts(raw: JSON) -> list[JSON]:
    """The explanations of which one is made."""
    match raw:
        case {"item_of": _, "where": dict() as where} | {"all_of": _, "where": dict() as where}:
            return list(where.values())
        case {"convert": inner}:
            return [inner]
        case {"join": [*parts]}:
            return parts
        case {"if": test, "then": then, "else": otherwise}:
            return [test, then, otherwise]
        case _:
            return []


# -- its value when a journal is folded ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Removed(Explanation):
    """An explanation of a removed kind.

    Attributes:
        raw: its JSON form, which was checked.
    """

    raw: JSON

    def __hash__(self) -> int:
        return hash(self.shown)

    @property
    def family(self) -> str:
        """No other explanation is of its kind."""
        return f"removed {self.shown}"

    @property
    def references(self) -> tuple[str, ...]:
        """The references that it and its parts read."""
        return tuple(dict.fromkeys(_all_texts(self.raw)))

    @property
    def shown(self) -> str:
        """What it computes, in one line."""
        return _shown(self.raw)

    def value(self, read: Read) -> JSON | Missing:
        """Return the value; MISSING if there is none."""
        return _value(self.raw, read)

    def positions(self, read: Read) -> bool:
        """Return whether one of its parts selects by a position."""
        return _positions(self.raw, read)

    def to_json(self) -> JSON:
        """The form that was read."""
        return self.raw


def _all_texts(raw: JSON) -> Iterator[str]:
    if not is_removed(raw):
        yield from read_explanation(raw).references
        return
    yield from _texts(raw)
    for part in _parts(raw):
        yield from _all_texts(part)


def _shown(raw: JSON) -> str:
    if not is_removed(raw):
        known = read_explanation(raw)
        return show(known.constant) if isinstance(known, Constant) else known.shown
    match raw:
        case {"item_of": source, "where": dict() as where, "take": [*take]}:
            return f"{_keys_of(take)}the item of {source}{_with(where)}"
        case {"item_of": source, "take": [*take], **rest}:
            [(side, name)] = rest.items()
            return f"{_keys_of(take)}the item of {source} with the {side} {name or 'value'}"
        case {"all_of": source, "take": [*take], **rest}:
            where = rest.get("where")
            return f"{_keys_of(take)}all items of {source}{_with(where) if isinstance(where, dict) else ''}"
        case {"convert": inner, "by": [name, *arguments]}:
            return f"{_shown(inner)}, {' '.join([str(name), *map(show, arguments)])}"
        case {"join": [*parts]}:
            return " + ".join(map(_shown, parts))
        case {"test": source, **rest}:
            [(kind, argument)] = rest.items()
            if kind in ("present", "empty"):
                return f"{source} is {'' if argument is True else 'not '}{kind}"
            constants = argument if isinstance(argument, list) else [argument]
            return f"{source} {_TESTS[kind].replace('==', '=')} {' or '.join(map(show, constants))}"
        case {"if": test, "then": then, "else": otherwise}:
            return f"{_shown(then)} if {_shown(test)}, else {_shown(otherwise)}"
        case _:
            raise AssertionError(raw)


def _keys_of(take: list[JSON]) -> str:
    return f"{'.'.join(map(str, take))} of " if take else ""


def _with(where: JSONObject) -> str:
    return "".join(f" with {name} = {_shown(inner)}" for name, inner in where.items())


def _positions(raw: JSON, read: Read) -> bool:
    if not is_removed(raw):
        return read_explanation(raw).positions(read)
    match raw:
        case {"if": test, "then": then, "else": otherwise}:
            decided = _value(test, read)
            return not isinstance(decided, Missing) and _positions(then if decided is True else otherwise, read)
        case {"item_of": source, "where": _, "take": take} as form:
            found = _value({"all_of": source, "take": take, "where": form["where"]}, read)
            return isinstance(found, list) and any(not same(one, found[0]) for one in found[1:])
        case {"test": str(reference)}:
            return read_explanation(reference).positions(read)
        case _:
            return any(_positions(part, read) for part in _parts(raw))


def _value(raw: JSON, read: Read) -> JSON | Missing:
    if not is_removed(raw):
        return read_explanation(raw).value(read)
    match raw:
        case {"item_of": str(source), "take": [*take], **rest}:
            chosen = _chosen(items_of(read(source)), rest, read)
            return MISSING if isinstance(chosen, Missing) else read_path(chosen, tuple(map(str, take)))
        case {"all_of": str(source), "take": [*take], **rest}:
            items = _selected(items_of(read(source)), rest.get("where"), read)
            if items is None:
                return MISSING
            return [one for one in column_of(items, tuple(map(str, take))) if not isinstance(one, Missing)]
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
            return MISSING if isinstance(decided, Missing) else _value(then if decided is True else otherwise, read)
        case _:
            raise AssertionError(raw)


def _selected(items: list[JSON] | None, where: JSON, read: Read) -> list[JSON] | None:
    """The items that meet a condition; None if there is no list, or nothing to compare with."""
    if items is None or len(items) > ITEMS:
        return None
    if not isinstance(where, dict):
        return items
    [(name, inner)] = where.items()
    wanted = _value(inner, read)
    if isinstance(wanted, Missing):
        return None
    column = zip(items, column_of(items, name), strict=True)
    return [item for item, value in column if not isinstance(value, Missing) and same(value, wanted)]


def _chosen(items: list[JSON] | None, rest: JSONObject, read: Read) -> JSON | Missing:
    if "where" in rest:
        return next(iter(_selected(items, rest["where"], read) or ()), MISSING)
    [(side, name)] = rest.items()
    if not items or len(items) > ITEMS:
        return MISSING
    column = column_of(items, str(name))
    types = set(map(type, column))
    if not (types <= {int, float} or types == {str}):
        return MISSING
    values = cast("Sequence[float]", column)
    return items[values.index(max(values) if side == "largest" else min(values))]


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
        return any(same(value, one) for one in constants) is (kind == "equals")
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(argument, int | float):
        return MISSING
    return {
        "above": value > argument,
        "at_least": value >= argument,
        "below": value < argument,
        "at_most": value <= argument,
    }[kind]


def _converted(value: JSON, by: list[JSON]) -> JSON | Missing:
    if by[0] not in _ARGUMENTS:
        return convert(value, tuple(by))
    if isinstance(value, str) and len(value) > CHARACTERS:
        return MISSING
    match by:
        case ["length"]:
            inner = parsed_text(value) if isinstance(value, str) else MISSING
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
            return MISSING if after and after not in line else (line.split(after, 1)[0] if after else line).strip()
        case _:
            return MISSING


def _calculated(value: float, operation: str, constant: float) -> JSON | Missing:
    try:
        found = value + constant if operation == "add" else value * constant
        # What arithmetic on binary fractions adds beyond ten digits is noise.
        return found if isinstance(found, int) else round(found, 10)
    except OverflowError:
        return MISSING


def _nth(parts: list[str], number: int) -> JSON | Missing:
    return parts[number].strip() if -len(parts) <= number < len(parts) else MISSING


def _date(value: str, given: str, wanted: str, days: int) -> JSON | Missing:
    try:
        moment = datetime.strptime(value, given.replace("%e", "%d"))  # noqa: DTZ007
        # strptime also reads forms that the format does not write, such as a day without its zero.
        return _written(moment + timedelta(days=days), wanted) if _written(moment, given) == value else MISSING
    except (ValueError, OverflowError):
        return MISSING


def _written(moment: datetime, form: str) -> str:
    """Write a date in a format of strftime, in which `%e` is the day without a zero."""
    return f"{moment.year:04d}".join(moment.strftime(part) for part in form.replace("%e", str(moment.day)).split("%Y"))


# -- as Python -------------------------------------------------------------------------------------------------------

Name: TypeAlias = "Callable[[str], str]"
"""Returns the name that has the document of a reference (`†input`, `†results.3`), by its text."""


def python_of(raw: JSON, name: Name) -> str:
    """Return a Python expression whose value is the list of the value of an explanation; empty if there is none.

    Args:
        raw: the form of the explanation, of a removed kind or not.
        name: see `Name`.
    """
    match raw:
        case str(reference):
            return _python_at(reference, name)
        case {"constant": value}:
            return f"[{value!r}]"
        case {"item_of": str(source), "take": [*take], **rest}:
            items = _python_items(source, rest.get("where"), name)
            if "where" not in rest:
                [(side, field)] = rest.items()
                items = _python_extreme(items, str(side), str(field))
            first = f"[i for l in {items} for i in l[:1]]"
            return _python_path(first, tuple(map(str, take)))
        case {"all_of": str(source), "take": [*take], **rest}:
            items = _python_items(source, rest.get("where"), name)
            return f"[[w for i in l for w in {_python_path('[i]', tuple(map(str, take)))}] for l in {items}]"
        case {"convert": inner, "by": [*by]}:
            return _python_step(python_of(inner, name), by)
        case {"join": [*parts]}:
            texts = [_python_step(python_of(part, name), ["joined"]) for part in parts]
            return f"[''.join([x[0] for x in p]) for p in [[{', '.join(texts)}]] if all([len(x) == 1 for x in p])]"
        case {"test": str(reference), **rest}:
            [(kind, argument)] = rest.items()
            value = f"[x[0] if x else None for x in [{_python_at(reference, name)}]]"
            return _python_test(value, kind, argument)
        case {"if": test, "then": then, "else": otherwise}:
            either = f"({python_of(then, name)} if t else {python_of(otherwise, name)})"
            return f"[w for t in {python_of(test, name)} for w in {either}]"
        case _:
            raise ExplanationError(f"expected an explanation, found {show(raw)}")


_OPENED: Final = "(json.loads(v) if isinstance(v, str) and v.strip()[:1] in ('{', '[') else v)"
"""A value, or what it has as JSON if it is a text. Text that only looks like JSON makes the expression fail."""


def _python_at(reference: str, name: Name) -> str:
    path = operand_path(reference)
    depth = 2 if path[0] == "results" else 1
    return _python_path(f"[{name(format_reference(path[:depth]))}]", path[depth:])


def _python_path(inner: str, path: Path) -> str:
    for key in path:
        member = f"[v[{key!r}]] if isinstance(v, dict) and {key!r} in v else "
        place = f"[v[{int(key)}]] if isinstance(v, list) and len(v) > {int(key)} else " if _is_place(key) else ""
        inner = f"[w for v in {inner} for v in [{_OPENED}] for w in ({member}{place}[])]"
    return inner


def _is_place(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) < 16


def _python_items(source: str, where: JSON, name: Name) -> str:
    items = f"[v for v in {_python_at(source, name)} for v in [{_OPENED}] if isinstance(v, list)]"
    if not isinstance(where, dict):
        return items
    [(field, inner)] = where.items()
    column = _python_path("[i]", _field(field))
    equal = "isinstance(x, bool) is isinstance(q, bool) and x == q"
    return f"[[i for i in l if any([{equal} for x in {column}])] for l in {items} for q in {python_of(inner, name)}]"


def _field(name: str) -> Path:
    return tuple(name.split(".")) if name else ()


def _python_extreme(items: str, side: str, name: str) -> str:
    column = f"[{_python_path('[i]', _field(name))} for i in l]"
    comparable = (
        "all([len(x) == 1 and type(x[0]) in (int, float) for x in c]) or all([len(x) == 1 and type(x[0]) is str"
        " for x in c])"
    )
    best = "max" if side == "largest" else "min"
    return f"[[l[c.index({best}(c))]] for l in {items} for c in [{column}] if c and ({comparable})]"


def _python_step(inner: str, by: list[JSON]) -> str:
    number = "isinstance(v, (int, float)) and not isinstance(v, bool)"
    as_texts = f"[str(int(v)) if v == int(v) else json.dumps(v)] if {number} else []"
    match by:
        case ["joined"]:
            step = f"[v] if isinstance(v, str) else {as_texts}"
        case ["text"]:
            step = as_texts
        case ["number"]:
            pattern = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?"
            step = f"[float(t) if '.' in t else int(t) for t in [v.strip()] if re.fullmatch({pattern!r}, t)]"
        case ["lower" | "upper" | "title" | "strip" as change]:
            step = f"[v.{change}()]"
        case ["word", int(place)]:
            step = f"[p[{place}].strip() for p in [v.split()] if {-place if place < 0 else place + 1} <= len(p)]"
        case ["part", str(separator), int(place)]:
            least = -place if place < 0 else place + 1
            parts = f"[v.split({separator!r})] if {separator!r} in v and {least} <= len(p)"
            step = f"[p[{place}].strip() for p in {parts}]"
        case ["between", str(before), str(after)]:
            line = rf"[v.split({before!r}, 1)[1].split('\n', 1)[0]]"
            found = (
                f"t.split({after!r}, 1)[0].strip() for t in {line} if {after!r} in t"
                if after
                else (f"t.strip() for t in {line}")
            )
            step = f"[{found}] if {before!r} in v else []"
        case ["add" | "multiply" as operation, int() | float() as constant]:
            sign = "+" if operation == "add" else "*"
            step = f"[n if isinstance(n, int) else round(n, 10) for n in [v {sign} {constant!r}]] if {number} else []"
        case ["length"]:
            step = f"[len(x) for x in [{_OPENED}] if isinstance(x, (str, list, dict))]"
        case ["date", str(given), str(wanted), int(days)]:
            step = _python_date(given, wanted, days)
        case _:
            raise ExplanationError(f"expected a step of conversion, found {show(list[JSON](by))}")
    if by[0] not in ("joined", "text", "add", "multiply", "length"):
        step = f"({step}) if isinstance(v, str) else []"
    return f"[w for v in {inner} for w in ({step})]"


def _python_test(value: str, kind: str, argument: JSON) -> str:
    match kind:
        case "present":
            return f"[(x is not None) is {argument!r} for x in {value}]"
        case "empty":
            return f"[(x is None or x in ('', [], {{}})) is {argument!r} for x in {value}]"
        case "equals" | "differs_from":
            constants = argument if isinstance(argument, list) else [argument]
            equal = f"any([isinstance(x, bool) is isinstance(q, bool) and x == q for q in {constants!r}])"
            return f"[{equal} is {kind == 'equals'} for x in {value}]"
        case _:
            number = "isinstance(x, (int, float)) and not isinstance(x, bool)"
            return f"[x {_TESTS[kind]} {argument!r} for x in {value} if {number}]"


_MONTHS: Final = [datetime(2000, month, 1).strftime("%B") for month in range(1, 13)]  # noqa: DTZ001
_PATTERNS: Final[Mapping[str, str]] = {
    "Y": "([0-9]{4})",
    "m": "([0-9]{1,2})",
    "d": "([0-9]{1,2})",
    "e": "([0-9]{1,2})",
    "H": "([0-9]{1,2})",
    "M": "([0-9]{1,2})",
    "S": "([0-9]{1,2})",
    "B": f"({'|'.join(_MONTHS)})",
    "b": f"({'|'.join(month[:3] for month in _MONTHS)})",
}
_WRITTEN: Final[Mapping[str, str]] = {
    "Y": "f'{y:04d}'",
    "m": "f'{m:02d}'",
    "d": "f'{d:02d}'",
    "e": "str(d)",
    "H": "f'{h:02d}'",
    "M": "f'{u:02d}'",
    "S": "f'{s:02d}'",
    "B": f"{_MONTHS!r}[m - 1]",
    "b": f"{[month[:3] for month in _MONTHS]!r}[m - 1]",
}
_NAMED: Final[Mapping[str, str]] = dict(zip("YmdeHMSBb", "ymddhusmm", strict=True))
"""The name that has the number of each part of a date in an expression."""


def _python_date(given: str, wanted: str, days: int) -> str:
    """The step `date`. An expression knows no calendar, so it counts the days by arithmetic."""
    letters = re.findall(r"%([YmdeBbHMS])", given)
    pattern = "".join(
        _PATTERNS[part[1]] if part.startswith("%") else re.escape(part) for part in re.findall(r"%.|[^%]+", given)
    )
    read = {"y": "1900", "m": "1", "d": "1", "h": "0", "u": "0", "s": "0"}
    for place, letter in enumerate(letters, 1):
        months = _MONTHS if letter == "B" else [month[:3] for month in _MONTHS]
        group = f"g.group({place})"
        read[_NAMED[letter]] = f"{months!r}.index({group}) + 1" if letter in "Bb" else f"int({group})"
    first = f"for g in [re.fullmatch({pattern!r}, v)] if g for y, m, d, h, u, s in [({', '.join(read.values())})]"
    valid = "if 1 <= m <= 12 and 1 <= y <= 9999 and 0 < d < 32 and h < 24 and u < 60 and s < 62"
    day_of_year = "(153 * (m + (-3 if m > 2 else 9)) + 2) // 5 + d - 1"
    counted = f"for a in [y - (1 if m <= 2 else 0)] for n in [365 * a + a // 4 - a // 100 + a // 400 + {day_of_year}]"
    same_text = f"if {_python_format(given)} == v"
    unshifted = _python_civil("n")
    shifted = _python_civil(f"n + {days}") if days else ""
    exists = f"if [(y, m, d)] == [(y, m, d) {unshifted}]"
    return f"[{_python_format(wanted)} {first} {valid} {same_text} {counted} {exists} {shifted} if 1 <= y <= 9999]"


def _python_civil(number: str) -> str:
    """Loops that bind y, m and d to the date of a number of days."""
    return (
        f"for e in [({number}) // 146097] for r in [{number} - e * 146097]"
        " for k in [(r - r // 1460 + r // 36524 - r // 146096) // 365]"
        " for o in [r - (365 * k + k // 4 - k // 100)] for p in [(5 * o + 2) // 153]"
        " for d in [o - (153 * p + 2) // 5 + 1] for m in [p + 3 if p < 10 else p - 9]"
        " for y in [k + e * 400 + (1 if m <= 2 else 0)]"
    )


def _python_format(form: str) -> str:
    parts = re.findall(r"%.|[^%]+", form)
    return f"''.join([{', '.join(_WRITTEN[one[1]] if one.startswith('%') else repr(one) for one in parts)}])"
