"""Search: every explanation of a literal in the values that existed before it was written.

Theory of operation. `Values` (index.py) indexes the input and results of one run. `explain` looks a literal up there,
directly and in other notations, and turns each place into explanations: the path to it; if the path leads through a
list, the conditions that select the item; a text that contains the literal; the parts of a literal that are values
themselves. Only explanations with the literal as value are kept. `explain_runs` keeps those that also have the recorded
value in other runs.

Order. Explanations are ordered by cost (`COSTS` in `context/explanations.py`). The constant is always one of them. Some
come after the constant, because they fit by chance too often: one arithmetic step, lengths, and places in results whose
value is not distinctive (a small number, a truth value, a short text) unless the field has the name of the parameter.

Bounds. At most `MOST` explanations are kept, and at most `PLACES` places of a value are looked at. If more exist, the
result is `cut`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import (
    COSTS,
    MOST,
    AllOf,
    Constant,
    Converted,
    Explanation,
    ItemOf,
    Joined,
    PathTo,
    same,
)
from ideabridge.bridge.context.references import Path, format_path
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.context.steps import convert, written_date
from ideabridge.bridge.lifting.index import (
    FORMATS,
    INPUT,
    LONGEST,
    LOOSE,
    PLACES,
    Node,
    Values,
    is_word,
    read_dates,
)
from ideabridge.tools.encoding import JSON, encode_text

_WORDS: Final = 12
"""The most words of a part of a text."""

_CONDITIONS: Final = 6
_STEPS: Final = (1, -1, 2, -2, 5, -5, 7, -7, 10, -10)
_FACTORS: Final = (2, 10, 100, 1000, 12, 24, 60, 3600, 1024, 0.5, 0.1, 0.01, 0.001)
"""The constants of arithmetic that one run alone suggests; several runs may show any constant."""

_NEAR: Final = 100
"""The largest whole constant that one run suggests for a number of the input: few numbers are there by chance."""

_SHIFT: Final = 366
_WEAK: Final = 1_000
"""What is added to the cost of an explanation that comes after the constant."""


@dataclass(frozen=True, slots=True)
class Found:
    """The explanations of a literal.

    Attributes:
        by: the explanations, in the order in which they are taken; never empty.
        cut: there may be more.
        contradicted: the runs have different values, and no explanation fits all of them.
    """

    by: list[Explanation]
    cut: bool = False
    contradicted: bool = False

    @property
    def is_explained(self) -> bool:
        """True if something else is taken before the constant."""
        return not isinstance(self.by[0], Constant)


# -- one run --------------------------------------------------------------------------------------------------------


class _Search:
    """The search for the explanations of one literal in one run."""

    def __init__(self, value: JSON, values: Values, before: Collection[str], name: str) -> None:
        self._value = value
        self._values = values
        self._before = before
        self._name = name
        self.cut = not values.whole
        self._looked: dict[str, list[Explanation]] = {}
        self._costs: dict[str, tuple[int, Explanation]] = {}

    def run(self) -> Found:
        """Return the explanations, in the order in which they are taken."""
        self._add([Constant(self._value)])
        if is_distinctive(self._value):
            self._direct(self._value, lambda one: one)
            self._other_notation()
            if isinstance(self._value, str):
                self._dates(self._value)
                self._joins(self._value)
            if isinstance(self._value, list):
                self._lists(self._value)
            self._parts_of_texts()
            self._weak()
        else:
            # Such a value is everywhere, so only a field of the same name is taken before the constant.
            for node in islice(self._values.loose(self._value, self._before), PLACES):
                self._add([self._path(node)], 0 if self._is_named(node) else _WEAK)
        ordered = [one for _, one in sorted(self._costs.values(), key=lambda pair: (pair[0], pair[1].order))]
        self.cut = self.cut or len(ordered) > MOST
        kept = ordered[:MOST]
        if not any(isinstance(one, Constant) for one in kept):
            kept[-1] = Constant(self._value)
        return Found(kept, self.cut)

    def _add(self, found: Iterable[Explanation], more: int = 0, *, known: bool = False) -> None:
        """Add explanations that have the value; `known`: they are known to have it, and need not be evaluated."""
        for one in found:
            key = encode_text(one.to_json())
            if key in self._costs:
                continue
            value = self._value if known else one.value(self._values.read)
            if not isinstance(value, Missing) and same(value, self._value):
                self._costs[key] = one.cost + more, one

    def _nodes(self, value: JSON) -> list[Node]:
        """The places of a value that existed before the literal was written; those with the literal's name first."""
        found = [one for one in self._values.places(value) if one[0].root in self._before]
        if len(found) > PLACES:
            self.cut = True
            found.sort(key=lambda one: str(one[1]).casefold() != self._name.casefold())
        return [self._values.node(one) for one in found[:PLACES]]

    def _is_named(self, node: Node) -> bool:
        return bool(self._name) and node.key.casefold() == self._name.casefold()

    def _reference(self, node: Node) -> str:
        return f"{node.root}{format_path(node.path)}"

    def _path(self, node: Node) -> PathTo:
        return PathTo(self._reference(node))

    def _weakness(self, node: Node) -> int:
        """What is added to the cost of a place: a value that is not distinctive may be there by chance."""
        if node.root == INPUT or self._values.is_small(node.root):
            return 0
        if self._is_named(node) or not is_common(self._value):
            return 0
        return _WEAK

    def _direct(self, value: JSON, wrap: Callable[[Explanation], Explanation]) -> None:
        """Add the places of a value, and the conditions that select it from a list."""
        converted = wrap(Constant(value)).value(self._values.read)
        known = not isinstance(converted, Missing) and same(converted, self._value)
        for number, node in enumerate(self._nodes(value)):
            weak = self._weakness(node)
            # A key that is data selects as a position does.
            selected = COSTS["other position"] * min(node.data_keys, 2)
            self._add([wrap(self._path(node))], weak + selected, known=known)
            # What is everywhere by chance is also selected by many conditions.
            if not weak or number < _CONDITIONS:
                self._add([wrap(one) for one in self._selected(node)], weak, known=known)

    # -- items of lists --------------------------------------------------------------------------------------------

    def _selected(self, node: Node) -> Iterator[Explanation]:
        """Yield the conditions that select a value from the first list on the way to it."""
        way = list(reversed(list(node.above)))
        for depth, one in enumerate(way[:-1]):
            items = one.inner
            if isinstance(items, list) and len(items) > 1:
                rest = node.path[depth + 1 :]
                if not any(isinstance(below.inner, list) for below in way[depth + 1 : -1]):
                    yield from self._conditions(one, items, int(way[depth + 1].key), rest)
                return

    def _conditions(self, holder: Node, items: list[JSON], chosen: int, rest: Path) -> Iterator[Explanation]:
        source, item = self._reference(holder), items[chosen]
        constants: list[Explanation] = []
        for name, value in _fields(item):
            column = self._values.column(source, items, name)
            itself = (tuple(name.split(".")) if name else ()) == rest
            if not itself and column.selects(value, chosen):
                yield from (ItemOf(source, rest, (name, one)) for one in islice(self._explained(value, holder), 3))
                if isinstance(value, bool) or (isinstance(value, str) and 0 < len(value) <= 60):
                    constants.append(ItemOf(source, rest, (name, Constant(value))))
            if not isinstance(value, bool) and (isinstance(value, int | float) or _is_ordered(value)):
                for side, place in column.extremes.items():
                    if place == chosen:
                        yield ItemOf(source, rest, by=(side, name))
        yield from constants[:_CONDITIONS]

    def _explained(self, value: JSON, holder: Node) -> Iterator[Explanation]:
        """Yield paths to a value that are not in the list itself and select by no position."""
        if not is_distinctive(value):
            return
        listed = self._reference(holder)
        for node in islice(self._values.loose(value, self._before), PLACES):
            path = self._path(node)
            inside = path.reference.startswith(listed)
            if not inside and (node.root == INPUT or not is_common(value)):
                yield path

    # -- other notations -------------------------------------------------------------------------------------------

    def _other_notation(self) -> None:
        value = self._value
        if isinstance(value, str):
            number = convert(value, ("number",))
            if isinstance(number, int | float):
                self._direct(number, lambda one: Converted(one, ("text",)))
            folded = self._values.folded.get(value.strip().casefold(), []) if value.strip() else []
            for place in [one for one in folded if one[0].root in self._before][:PLACES]:
                node = self._values.node(place)
                if node.value != value:
                    for change in ("lower", "upper", "title", "strip"):
                        self._add([Converted(self._path(node), (change,))], self._weakness(node))
        elif isinstance(value, int | float):
            for text in _texts_of(value):
                self._direct(text, lambda one: Converted(one, ("number",)))

    def _dates(self, value: str) -> None:
        forms = list(read_dates(value))
        for wanted, form in forms:
            for given in FORMATS:
                text = written_date(wanted, given)
                if text != value and "%Y" in given and datetime.strptime(text, given.replace("%e", "%d")) == wanted:  # noqa: DTZ007
                    self._direct(text, lambda one, by=("date", given, form, 0): Converted(one, by))
            self._days(wanted, form)
        self.cut = self.cut or (bool(forms) and len(self._values.loose_texts) >= LOOSE)
        for moment, given, node in self._values.dates if forms else ():
            if node.root not in self._before or node.value == value:
                continue
            path = self._path(node)
            for wanted, form in forms:
                days = (wanted.date() - moment.date()).days
                if abs(days) <= _SHIFT:
                    self._add([Converted(path, ("date", given, form, days))], 3 if days else 0)

    def _days(self, wanted: datetime, form: str) -> None:
        """Add the times of which the literal is the day, such as `2026-11-22T10:00:00+02:00`."""
        if "%H" in form:
            return
        for day in ("%Y-%m-%d", "%Y/%m/%d"):
            texts = self._values.moments.get(written_date(wanted, day), [])
            self.cut = self.cut or len(texts) > _CONDITIONS
            for text in texts[:_CONDITIONS]:

                def wrap(one: Explanation, mark: str = text[10], day: str = day) -> Explanation:
                    part = Converted(one, ("part", mark, 0))
                    return part if day == form else Converted(part, ("date", day, form, 0))

                self._direct(text, wrap)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _parts_of_texts(self) -> None:
        """Add the texts that contain the literal."""
        value = self._value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return
        number = not isinstance(value, str)
        for needle in [value] if isinstance(value, str) else _texts_of(value)[:1]:
            if not needle.strip() or len(needle) > LONGEST:
                continue
            for count, (text, node) in enumerate(self._values.containing(needle, self._before)):
                if count == _CONDITIONS:
                    self.cut = True
                    break
                path = self._path(node)
                weak = _WEAK if len(needle) < 3 and node.root != INPUT and not number else 0
                for steps in taking_apart(text, needle):
                    one = _converted(path, steps)
                    self._add([Converted(one, ("number",)) if number else one], weak)

    def _joins(self, value: str) -> None:
        """Add the constant texts around parts that are values themselves."""
        if not 3 < len(value) <= LONGEST:
            return
        pieces = self._pieces(value)
        if not pieces:
            return
        best = [self._inner(text)[:4] for _, _, text in pieces]
        for skipped in (None, *range(len(pieces))) if len(pieces) > 1 else (None,):
            self._add([self._joined(value, pieces, [0 if n != skipped else -1 for n in range(len(pieces))], best)])
        for number, found in enumerate(best):
            for which in range(1, len(found)):
                take = [which if n == number else 0 for n in range(len(pieces))]
                self._add([self._joined(value, pieces, take, best)])

    def _pieces(self, value: str) -> list[tuple[int, int, str]]:
        """Return (start, end, text) of the longest parts of a text that are values, without overlap."""
        words = [(found.start(), found.end()) for found in re.finditer(r"\w+", value)][:300]
        spans: dict[int, list[int]] = {}
        for number, (start, _) in enumerate(words):
            spans[start] = [end for _, end in words[number : number + _WORDS]]
        # What is in the input may also be longer, or a part of a word.
        for text in self._values.given:
            for one in re.finditer(re.escape(text), value) if text != value else ():
                spans.setdefault(one.start(), []).append(one.end())
        found: list[tuple[int, int, str]] = []
        at = 0
        for start in sorted(spans):
            if start < at:
                continue
            for end in sorted(set(spans[start]), reverse=True):
                part = value[start:end]
                if part != value and self._inner(part):
                    found.append((start, end, part))
                    at = end
                    break
        return found[:8]

    def _inner(self, part: str) -> list[Explanation]:
        """Return paths to a part of a text, as text or as a number; the cheapest first."""
        number = convert(part, ("number",))
        found: list[Explanation] = []
        if len(part) > 2 or any(char.isdigit() for char in part):
            nodes = list(islice(self._values.equal(part, self._before), PLACES))
            if isinstance(number, int | float):
                nodes += islice(self._values.equal(number, self._before), PLACES)
            if len(part) < 3:
                nodes = [one for one in nodes if one.root == INPUT]
            found = [self._path(one) for one in nodes]
            if not found and any(char.isdigit() for char in part):
                found = [
                    Converted(self._path(node), ("date", given, form, 0))
                    for moment, form in read_dates(part)
                    for then, given, node in self._values.dates
                    if then == moment and node.root in self._before
                ]
            if not found:
                found = self._inside(part)
        return sorted(found, key=lambda one: one.order)

    def _inside(self, part: str) -> list[Explanation]:
        """Return the longer texts that contain a part of a text, if it looks like an identifier."""
        if len(part) < 4 or _IDENTIFIER.fullmatch(part) is None or not any(char.isdigit() for char in part):
            return []
        if part not in self._looked:
            self._looked[part] = []
            if len(self._looked) > _CONDITIONS:
                self.cut = True
                return []
            for text, node in islice(self._values.containing(part, self._before), 2):
                path = self._path(node)
                self._looked[part] += [_converted(path, steps) for steps in islice(taking_apart(text, part), 2)]
        return self._looked[part]

    def _joined(
        self, value: str, pieces: Sequence[tuple[int, int, str]], take: Sequence[int], best: Sequence[list[Explanation]]
    ) -> Explanation:
        parts: list[Explanation] = []
        text, at = "", 0
        for (start, end, part), which, found in zip(pieces, take, best, strict=True):
            text += value[at:start]
            at = end
            if which < 0:
                text += part
                continue
            if text:
                parts.append(Constant(text))
            text = ""
            parts.append(found[min(which, len(found) - 1)])
        text += value[at:]
        return Joined((*parts, Constant(text)) if text else tuple(parts))

    # -- lists -----------------------------------------------------------------------------------------------------

    def _lists(self, wanted: list[JSON]) -> None:
        """Add the lists of which the literal is one member of every item."""
        if not wanted or not is_distinctive(wanted[0]):
            return
        tried: set[tuple[str, Path]] = set()
        for node in self._nodes(wanted[0]):
            way = list(reversed(list(node.above)))
            for depth, holder in enumerate(way[:-1]):
                items = holder.inner
                rest = node.path[depth + 1 :]
                source = self._reference(holder)
                if not isinstance(items, list) or (source, rest) in tried:
                    continue
                tried.add((source, rest))
                self._add([AllOf(source, rest)])
                item = items[int(way[depth + 1].key)]
                conditions = 0
                for name, value in _fields(item):
                    if tuple(name.split(".")) == rest or not name or conditions >= _CONDITIONS:
                        continue
                    for inner in islice(self._explained(value, holder), 2):
                        self._add([AllOf(source, rest, (name, inner))])
                    if isinstance(value, bool) or (isinstance(value, str) and 0 < len(value) <= 60):
                        self._add([AllOf(source, rest, (name, Constant(value)))])
                        conditions += 1

    # -- weak kinds ------------------------------------------------------------------------------------------------

    def _weak(self) -> None:
        """Add lengths, and one arithmetic step with a usual constant."""
        value = self._value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        for one in calculated(value, self._values, self._before, several=False):
            self._add([one])
        if isinstance(value, int) and value >= 0:
            nodes = [*islice(self._values.lists_of_length(value), PLACES), *self._values.lengths.get(value, [])]
            self._add([Converted(self._path(node), ("length",)) for node in nodes if node.root in self._before])


_IDENTIFIER = re.compile(r"[\w-]+")


def _converted(one: Explanation, steps: Iterable[tuple[JSON, ...]]) -> Explanation:
    for step in steps:
        one = Converted(one, step)
    return one


def is_distinctive(value: JSON) -> bool:
    """Return whether a value can identify its origin: null, true, false and empty values cannot."""
    return not (value is None or isinstance(value, bool) or value in ("", [], {}))


def is_common(value: JSON) -> bool:
    """Return whether a value is often somewhere by chance: a number below 100, a text of one or two characters."""
    if isinstance(value, str):
        return len(value) < 3
    return isinstance(value, int | float) and abs(value) < 100 and float(value).is_integer()


def _is_ordered(value: JSON) -> bool:
    """Return whether a text is a date in a form that sorts as the dates do."""
    return isinstance(value, str) and _ISO.match(value) is not None


_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:$|[T ])")


def _texts_of(number: float) -> list[str]:
    if isinstance(number, int) or number.is_integer():
        return [str(int(number)), f"{int(number)}.0", f"{int(number)}.00"]
    return [repr(number), f"{number:.2f}"] if f"{number:.2f}" != repr(number) else [repr(number)]


def _fields(item: JSON) -> list[tuple[str, JSON]]:
    """(FIELD, value) of the scalars of an item, and of the objects in it."""
    if not isinstance(item, dict):
        return [("", item)] if not isinstance(item, list) else []
    found: list[tuple[str, JSON]] = []
    for key, value in islice(item.items(), 30):
        if "." in key or not key:
            continue
        if isinstance(value, dict):
            found += [
                (f"{key}.{inner}", one)
                for inner, one in islice(value.items(), 10)
                if inner and "." not in inner and not isinstance(one, dict | list)
            ]
        elif not isinstance(value, list):
            found.append((key, value))
    return found


_SEPARATORS: Final = ("/", ",", ";", ":", "|", "=", "@", "#", "-", "_", ".", "\n", "(", ")", "[", "]", '"', "'")
_LABEL = re.compile(r"(?:\w+\W{1,3})$")
_MARKS = re.compile(r"[^\w\s]\s{0,2}$")


def taking_apart(text: str, needle: str) -> Iterator[list[tuple[JSON, ...]]]:
    """Yield steps of conversion that may take a text out of a longer one: by its label, its word, or separators."""
    start = text.find(needle)
    for _ in range(3):
        if start < 0:
            break
        end = start + len(needle)
        if is_word(text, start, end):
            yield from _by_label(text, start, end)
        start = text.find(needle, end)
    if len(text) <= 400:
        words = text.split()
        for number, word in enumerate(words[:40]):
            if word == needle:
                yield [("word", number)]
                yield [("word", number - len(words))]
    for separator in _SEPARATORS:
        parts = text.split(separator) if separator in needle or separator in text else []
        if 1 < len(parts) <= 40:
            for number, part in enumerate(parts):
                if part.strip() == needle:
                    yield [("part", separator, number)]
                    yield [("part", separator, number - len(parts))]


def _by_label(text: str, start: int, end: int) -> Iterator[list[tuple[JSON, ...]]]:
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    prefix, after = text[line_start:start], text[end : end + 1] if end < line_end else ""
    labels = [prefix] if len(prefix) <= 60 else []
    found = _LABEL.search(prefix)
    if found is not None:
        labels.append(found.group())
    marks = _MARKS.search(prefix)
    if marks is not None:
        # The word before it may be data.
        labels.append(marks.group())
    for label in dict.fromkeys(labels):
        yield [("between", label, after)]
    if line_start or line_end < len(text):
        # The same within its line.
        number = text.count("\n", 0, start)
        lines = text.count("\n") + 1
        words = text[line_start:line_end].split() if line_end - line_start <= 400 else []
        named = [one for one, word in enumerate(words) if word == text[start:end]][:2]
        for place in (number, number - lines):
            for word in named:
                yield [("part", "\n", place), ("word", word)]
                yield [("part", "\n", place), ("word", word - len(words))]
            if text[line_start:line_end].strip() == text[start:end]:
                yield [("part", "\n", place)]
            for label in dict.fromkeys(labels):
                yield [("part", "\n", place), ("between", label, after)]


# -- arithmetic -----------------------------------------------------------------------------------------------------


def calculated(value: float, values: Values, before: Collection[str], *, several: bool) -> Iterator[Explanation]:
    """Yield one arithmetic step from each number that is not in a list.

    Args:
        value: the literal.
        values: the values of the run.
        before: the documents that existed.
        several: any constant, which other runs then confirm; otherwise the usual ones, and small whole ones for a
            number of the input.
    """
    count = 0
    for node in values.numbers:
        source = node.value
        if node.root not in before or not isinstance(source, int | float) or source == value:
            continue
        count += 1
        if count > PLACES:
            return
        path = PathTo(f"{node.root}{format_path(node.path)}")
        near = _NEAR if node.root == INPUT else 0
        step = round(value - source, 10)
        step = int(step) if float(step).is_integer() else step
        if several or step in _STEPS or (isinstance(step, int) and abs(step) <= near):
            yield Converted(path, ("add", step))
        if source and value:
            factor = value / source
            factor = int(factor) if factor.is_integer() else round(factor, 10)
            if several or factor in _FACTORS or (isinstance(factor, int) and abs(factor) <= near):
                yield Converted(path, ("multiply", factor))


# -- several runs ---------------------------------------------------------------------------------------------------


def explain(value: JSON, values: Values, before: Collection[str], name: str = "") -> Found:
    """Return all explanations of a literal in one run.

    Args:
        value: the literal.
        values: the values of the run.
        before: the references of the documents that existed when the literal was written.
        name: the name of the parameter.
    """
    return _Search(value, values, before, name).run()


def explain_runs(runs: Sequence[tuple[JSON, Values, Collection[str]]], name: str = "") -> Found:
    """Return the explanations of a literal that fit several runs of one task.

    Args:
        runs: (the literal, the values, the documents that existed) of each run.
        name: the name of the parameter.

    Returns:
        The explanations of the first run that have the recorded value in each other run. If none is left, the constant
        of the first run.
    """
    value, values, before = runs[0]
    found = explain(value, values, before, name)
    if len(runs) == 1:
        return found
    candidates = list(found.by)
    if not isinstance(value, bool) and isinstance(value, int | float):
        known = [one.to_json() for one in candidates]
        candidates += [one for one in calculated(value, values, before, several=True) if one.to_json() not in known]
    kept = [one for one in candidates if all(_fits(one, there, other) for there, other, _ in runs[1:])]
    return Found(kept, found.cut) if kept else Found([Constant(value)], found.cut, contradicted=True)


def _fits(one: Explanation, value: JSON, values: Values) -> bool:
    there = one.value(values.read)
    return not isinstance(there, Missing) and same(there, value)


def selects(one: Explanation) -> bool:
    """Return whether an explanation may select by a position from a list; `positions` says so for given data.

    A run shows something about the position only if it had a choice: several items, or several matches.
    """
    match one:
        case PathTo():
            return one.has_positions
        case ItemOf():
            return one.where is not None
        case AllOf():
            return one.where is not None and selects(one.where[1])
        case Converted():
            return selects(one.inner)
        case Joined():
            return any(selects(part) for part in one.parts)
        case _:
            return False
