"""Search: every explanation of a literal in the values that existed before it was written.

Theory of operation. `Values` indexes the input and the results of one run once: texts and numbers by their value, lists
and objects by their length. `explain` looks a literal up there, directly and in other notations, and turns each place
into explanations: the path to it; if the path leads through a list, the conditions that select the item; a text that
contains the literal; the parts of a literal that are values themselves. Every explanation is evaluated, and only those
with the literal as value are kept. `explain_runs` keeps those that also have the recorded value in other runs.

Order. Explanations are ordered by cost (`COSTS` in `context/explanations.py`). The constant is always one of them. Some
come after the constant, because they fit by chance too often: one arithmetic step, lengths, and places in results whose
value is not distinctive (a small number, a truth value, a short text) unless the field has the name of the parameter.

Bounds. At most `MOST` explanations are kept, and at most `_PLACES` places of a value are looked at. If more exist, the
result is `cut`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import (
    MOST,
    AllOf,
    Constant,
    Converted,
    Explanation,
    ItemOf,
    Joined,
    PathTo,
    convert,
    member,
    operand_path,
    same,
    written_date,
)
from ideabridge.bridge.context.references import Path, format_path
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text
from ideabridge.bridge.context.state import read as read_path
from ideabridge.tools.encoding import JSON, encode_text

_PLACES: Final = 60
"""The most places of one value that are looked at."""

_NODES: Final = 400_000
"""The most values of one run that are indexed."""

_DEPTH: Final = 40
_TEXT: Final = 2_000
"""The longest literal whose parts are looked for."""

_LONG_TEXT: Final = 200_000
"""The longest text in which a literal is looked for."""

_WORDS: Final = 12
"""The most words of a part of a text."""

_CONDITIONS: Final = 6
_SMALL: Final = 4
_FORMATS: Final = (
    *("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"),
    *("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%B %e, %Y", "%e %B %Y", "%b %e, %Y", "%e %b %Y", "%Y%m%d"),
)
"""The formats in which a date is recognised."""

_STEPS: Final = (1, -1, 2, -2, 5, -5, 7, -7, 10, -10)
_FACTORS: Final = (2, 10, 100, 1000, 12, 24, 60, 3600, 1024, 0.5, 0.1, 0.01, 0.001)
"""The constants of arithmetic that one run alone suggests; several runs may show any constant."""

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


@dataclass(slots=True, eq=False)
class _Node:
    """A value in a document, with the way to it."""

    value: JSON
    root: str
    parent: _Node | None = None
    key: str = ""
    listed: bool = False
    """True if the way leads through a position in a list."""

    @property
    def path(self) -> Path:
        return tuple(reversed([node.key for node in self.above if node.parent is not None]))

    @property
    def above(self) -> Iterator[_Node]:
        """The node and those above it, from the bottom up."""
        node: _Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Values:
    """An index of the values of one run.

    Args:
        documents: the input and the results, by the text of the reference that reads them.
    """

    def __init__(self, documents: Mapping[str, JSON]) -> None:
        self.documents = documents
        self.whole = True
        self._paths = {root: operand_path(root) for root in documents}
        self._texts: dict[str, list[_Node]] = {}
        self._numbers: dict[int | float, list[_Node]] = {}
        self._others: dict[tuple[str, int], list[_Node]] = {}
        self._loose: list[_Node] = []
        self._columns: dict[tuple[str, str], _Column] = {}
        self._sizes: dict[str, int] = {}
        count = 0
        for root, document in documents.items():
            before, count = count, self._index(_Node(document, root), count)
            self._sizes[root] = count - before

    def _index(self, start: _Node, count: int) -> int:
        stack = [(start, 0)]
        while stack:
            node, depth = stack.pop()
            count += 1
            if count > _NODES:
                self.whole = False
                return count
            value = node.value
            if isinstance(value, str):
                self._texts.setdefault(value, []).append(node)
                if value[:1] not in "[{" and value.lstrip()[:1] not in ("[", "{"):
                    continue
                inner = parsed_text(value)
                if isinstance(inner, Missing):
                    continue
                value = inner
                if isinstance(inner, list | dict):
                    opened = _Node(inner, node.root, node.parent, node.key, node.listed)
                    self._others.setdefault((type(inner).__name__, len(inner)), []).append(opened)
            elif isinstance(value, bool) or value is None:
                self._others.setdefault((repr(value), 0), []).append(node)
            elif isinstance(value, int | float):
                self._numbers.setdefault(value, []).append(node)
                if not node.listed:
                    self._loose.append(node)
            else:
                self._others.setdefault((type(value).__name__, len(value)), []).append(node)
            if depth >= _DEPTH:
                continue
            # The last is taken first, so that nodes come in the order of the document.
            if isinstance(value, dict):
                inside = node.listed
                stack.extend(
                    (_Node(item, node.root, node, key, inside), depth + 1) for key, item in reversed(value.items())
                )
            elif isinstance(value, list):
                pairs = reversed(list(enumerate(value)))
                stack.extend((_Node(item, node.root, node, str(number), True), depth + 1) for number, item in pairs)
        return count

    def read(self, text: str) -> JSON | Missing:
        """Return what a reference with one operand reads."""
        path = operand_path(text)
        for root, start in self._paths.items():
            if path[: len(start)] == start:
                return read_path(self.documents[root], path[len(start) :])
        return MISSING

    def equal(self, value: JSON) -> list[_Node]:
        """Return the places of an equal value, in the order of the documents."""
        if isinstance(value, str):
            return self._texts.get(value, [])
        if isinstance(value, bool) or value is None:
            return self._others.get((repr(value), 0), [])
        if isinstance(value, int | float):
            return self._numbers.get(value, [])
        return [one for one in self._others.get((type(value).__name__, len(value)), []) if same(one.value, value)]

    def lists_of_length(self, length: int) -> list[_Node]:
        """Return the lists with so many items to which no position leads."""
        return [one for one in self._others.get(("list", length), []) if not one.listed]

    @property
    def numbers(self) -> list[_Node]:
        """The numbers to which no position leads."""
        return self._loose

    def is_small(self, root: str) -> bool:
        """Return whether a document has so few values that none is in it by chance."""
        return self._sizes[root] <= _SMALL

    def column(self, source: str, items: list[JSON], name: str) -> _Column:
        """Return what is known about one field of all items of a list, which is examined once."""
        found = self._columns.get((source, name))
        if found is None:
            found = self._columns[source, name] = _Column(items, name)
        return found

    @cached_property
    def folded(self) -> dict[str, list[_Node]]:
        """The places of texts, by the text in lower case without spaces around it."""
        found: dict[str, list[_Node]] = {}
        for text, nodes in self._texts.items():
            if len(text) <= _TEXT:
                found.setdefault(text.strip().casefold(), []).extend(nodes)
        return found

    @cached_property
    def given(self) -> list[str]:
        """The texts of the input with three characters or more, at most 100."""
        found = (text for text, nodes in self._texts.items() if any(one.root == _INPUT for one in nodes))
        return [text for text in islice(found, 100) if 3 <= len(text) <= _TEXT]

    @cached_property
    def lengths(self) -> dict[int, list[_Node]]:
        """The places of short texts that are in no list, by the length of the text."""
        found: dict[int, list[_Node]] = {}
        for text, nodes in islice(self._texts.items(), 2_000):
            if len(text) <= 200 and not nodes[0].listed:
                found.setdefault(len(text), []).append(nodes[0])
        return found

    @cached_property
    def dates(self) -> list[tuple[datetime, str, _Node]]:
        """(moment, format, place) of each text that is a date."""
        found: list[tuple[datetime, str, _Node]] = []
        for text, nodes in self._texts.items():
            for moment, form in read_dates(text):
                found += [(moment, form, node) for node in nodes[:3]]
        return found

    @cached_property
    def _joined(self) -> tuple[str, list[int], list[_Node]]:
        # A text that is JSON is looked into, and is not taken apart.
        texts = [
            (text, nodes[0])
            for text, nodes in self._texts.items()
            if 3 < len(text) <= _LONG_TEXT and (text[0] not in "[{" or isinstance(parsed_text(text), Missing))
        ]
        starts: list[int] = []
        position = 0
        for text, _ in texts:
            starts.append(position)
            position += len(text) + 1
        return "\0".join(text for text, _ in texts), starts, [node for _, node in texts]

    def containing(self, needle: str) -> Iterator[_Node]:
        """Yield the places of longer texts that contain a text as a whole word or words."""
        if "\0" in needle:
            return
        blob, starts, nodes = self._joined
        position = blob.find(needle)
        while position >= 0:
            number = bisect_right(starts, position) - 1
            end = position + len(needle)
            text = nodes[number].value
            if _is_word(blob, position, end) and isinstance(text, str) and len(text) > len(needle):
                yield nodes[number]
                # The next text: one place in each is enough, conversions find the others.
                end = starts[number] + len(text)
            position = blob.find(needle, end)


_INSIDE_NUMBER: Final = "-.,:/"


class _Column:
    """One field of all items of a list.

    Attributes:
        first: the first item with each value.
        extremes: the first item with the largest and with the smallest value, if all can be compared.
    """

    def __init__(self, items: list[JSON], name: str) -> None:
        values = [member(item, name) for item in items]
        self.first: dict[str | int | float, int] = {}
        for number, value in enumerate(values):
            if isinstance(value, bool):
                self.first.setdefault(f"\0{value}", number)
            elif isinstance(value, str | int | float):
                self.first.setdefault(value, number)
        self.extremes: dict[str, int] = {}
        numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
        texts = [one for one in values if isinstance(one, str)]
        if values and len(numbers) == len(values):
            self.extremes = {"largest": numbers.index(max(numbers)), "smallest": numbers.index(min(numbers))}
        elif values and len(texts) == len(values):
            self.extremes = {"largest": texts.index(max(texts)), "smallest": texts.index(min(texts))}

    def selects(self, value: JSON, item: int) -> bool:
        """Return whether an item is the first with a value."""
        key = f"\0{value}" if isinstance(value, bool) else value
        return isinstance(key, str | int | float) and self.first.get(key) == item


def _is_word(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if text[start:end].isdecimal():
        # Not a part of a number or date.
        around = text[max(0, start - 2) : start], text[end : end + 2]
        if any(len(one) == 2 and set(one) & set(_INSIDE_NUMBER) and any(map(str.isdecimal, one)) for one in around):
            return False
    return not (before.isalnum() and text[start].isalnum()) and not (after.isalnum() and text[end - 1].isalnum())


_DATE = re.compile(r"\d{8}$|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2} [A-Z][a-z]+ \d{4}$|[A-Z][a-z]+ \d{1,2}, \d{4}$")


def read_dates(text: str) -> Iterator[tuple[datetime, str]]:
    """Yield (moment, format) for each format in which a text is a date."""
    if not 8 <= len(text) <= 30 or _DATE.match(text) is None:
        return
    for form in _FORMATS:
        try:
            moment = datetime.strptime(text, form.replace("%e", "%d"))  # noqa: DTZ007
        except ValueError:
            continue
        if written_date(moment, form) == text:
            yield moment, form


# -- one run --------------------------------------------------------------------------------------------------------


class _Search:
    """The search for the explanations of one literal in one run."""

    def __init__(self, value: JSON, values: Values, before: Collection[str], name: str) -> None:
        self._value = value
        self._values = values
        self._before = before
        self._name = name
        self.cut = not values.whole
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
            for node in self._nodes(self._value):
                if self._is_named(node):
                    self._add([self._path(node)])
        ordered = [one for _, one in sorted(self._costs.values(), key=lambda pair: (pair[0], pair[1].order))]
        self.cut = self.cut or len(ordered) > MOST
        kept = ordered[:MOST]
        if not any(isinstance(one, Constant) for one in kept):
            kept[-1] = Constant(self._value)
        return Found(kept, self.cut)

    def _add(self, found: Iterable[Explanation], more: int = 0) -> None:
        for one in found:
            key = encode_text(one.to_json())
            if key not in self._costs:
                value = one.value(self._values.read)
                if not isinstance(value, Missing) and same(value, self._value):
                    self._costs[key] = one.cost + more, one

    def _nodes(self, value: JSON) -> list[_Node]:
        """The places of a value that existed before the literal was written; those with the literal's name first."""
        found = [one for one in self._values.equal(value) if one.root in self._before]
        if len(found) > _PLACES:
            self.cut = True
            found.sort(key=lambda one: not self._is_named(one))
        return found[:_PLACES]

    def _is_named(self, node: _Node) -> bool:
        return bool(self._name) and node.key.casefold() == self._name.casefold()

    def _reference(self, node: _Node) -> str:
        return f"{node.root}{format_path(node.path)}"

    def _path(self, node: _Node) -> PathTo:
        return PathTo(self._reference(node))

    def _weakness(self, node: _Node) -> int:
        """What is added to the cost of a place: a value that is not distinctive may be there by chance."""
        if node.root == _INPUT or self._values.is_small(node.root):
            return 0
        if self._is_named(node) or not is_common(self._value):
            return 0
        return _WEAK

    def _direct(self, value: JSON, wrap: Callable[[Explanation], Explanation]) -> None:
        """Add the places of a value, and the conditions that select it from a list."""
        for number, node in enumerate(self._nodes(value)):
            weak = self._weakness(node)
            self._add([wrap(self._path(node))], weak)
            # What is everywhere by chance is also selected by many conditions.
            if not weak or number < _CONDITIONS:
                self._add([wrap(one) for one in self._selected(node)], weak)

    # -- items of lists --------------------------------------------------------------------------------------------

    def _selected(self, node: _Node) -> Iterator[Explanation]:
        """Yield the conditions that select a value from the first list on the way to it."""
        chain = list(reversed(list(node.above)))
        for depth, one in enumerate(chain[:-1]):
            items = _list_of(one.value)
            if items is not None and len(items) > 1:
                rest = node.path[depth + 1 :]
                if not any(_list_of(below.value) is not None for below in chain[depth + 1 : -1]):
                    yield from self._conditions(one, items, int(chain[depth + 1].key), rest)
                return

    def _conditions(self, holder: _Node, items: list[JSON], chosen: int, rest: Path) -> Iterator[Explanation]:
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

    def _explained(self, value: JSON, holder: _Node) -> Iterator[Explanation]:
        """Yield paths to a value that are not in the list itself and select by no position."""
        if not is_distinctive(value):
            return
        listed = self._reference(holder)
        for node in self._values.equal(value)[:_PLACES]:
            if node.root not in self._before or (is_common(value) and node.root != _INPUT):
                continue
            path = self._path(node)
            inside = path.reference.startswith(listed)
            if not inside and not node.listed:
                yield path

    # -- other notations -------------------------------------------------------------------------------------------

    def _other_notation(self) -> None:
        value = self._value
        if isinstance(value, str):
            number = convert(value, ("number",))
            if isinstance(number, int | float):
                self._direct(number, lambda one: Converted(one, ("text",)))
            for node in self._values.folded.get(value.strip().casefold(), [])[:_PLACES] if value.strip() else []:
                if node.root in self._before and node.value != value:
                    for change in ("lower", "upper", "title", "strip"):
                        self._add([Converted(self._path(node), (change,))], self._weakness(node))
        elif isinstance(value, int | float):
            for text in _texts_of(value):
                self._direct(text, lambda one: Converted(one, ("number",)))

    def _dates(self, value: str) -> None:
        forms = list(read_dates(value))
        if not forms:
            return
        count = 0
        for moment, given, node in self._values.dates:
            if node.root not in self._before or node.value == value:
                continue
            path = self._path(node)
            for wanted, form in forms:
                days = (wanted.date() - moment.date()).days
                if abs(days) <= _SHIFT and (days == 0 or node.root == _INPUT or not node.listed):
                    # In a list of dates, some is always near.
                    self._add([Converted(path, ("date", given, form, days))], 3 if days else 0)
                    count += 1
            if count > _PLACES:
                self.cut = True
                return

    # -- parts -----------------------------------------------------------------------------------------------------

    def _parts_of_texts(self) -> None:
        """Add the texts that contain the literal."""
        value = self._value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return
        number = not isinstance(value, str)
        for needle in [value] if isinstance(value, str) else _texts_of(value)[:1]:
            if not needle.strip() or len(needle) > _TEXT:
                continue
            count = 0
            for node in self._values.containing(needle):
                text = node.value
                if node.root not in self._before or not isinstance(text, str):
                    continue
                if len(needle) < 3 and len(text) > 300:
                    continue
                count += 1
                if count > _CONDITIONS:
                    self.cut = True
                    break
                path = self._path(node)
                weak = _WEAK if len(needle) < 3 and node.root != _INPUT and not number else 0
                for steps in taking_apart(text, needle):
                    one: Explanation = path
                    for step in steps:
                        one = Converted(one, step)
                    self._add([Converted(one, ("number",)) if number else one], weak)

    def _joins(self, value: str) -> None:
        """Add the constant texts around parts that are values themselves."""
        if not 3 < len(value) <= _TEXT:
            return
        pieces = self._pieces(value)
        if not pieces:
            return
        best = [self._inner(text)[:2] for _, _, text in pieces]
        for skipped in (None, *range(len(pieces))) if len(pieces) > 1 else (None,):
            self._add([self._joined(value, pieces, [0 if n != skipped else -1 for n in range(len(pieces))], best)])
        for number, found in enumerate(best):
            if len(found) > 1:
                self._add([self._joined(value, pieces, [int(n == number) for n in range(len(pieces))], best)])

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
            nodes = [one for one in self._values.equal(part)[:_PLACES] if one.root in self._before]
            if isinstance(number, int | float):
                nodes += [one for one in self._values.equal(number)[:_PLACES] if one.root in self._before]
            if len(part) < 3:
                nodes = [one for one in nodes if one.root == _INPUT]
            found = [self._path(one) for one in nodes]
            if not found and any(char.isdigit() for char in part):
                found = [
                    Converted(self._path(node), ("date", given, form, 0))
                    for moment, form in read_dates(part)
                    for then, given, node in self._values.dates
                    if then == moment and node.root in self._before
                ]
        return sorted(found, key=lambda one: one.order)

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
            chain = list(reversed(list(node.above)))
            for depth, holder in enumerate(chain[:-1]):
                items = _list_of(holder.value)
                rest = node.path[depth + 1 :]
                source = self._reference(holder)
                if items is None or (source, rest) in tried:
                    continue
                tried.add((source, rest))
                self._add([AllOf(source, rest)])
                item = items[int(chain[depth + 1].key)]
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
            nodes = [*self._values.lists_of_length(value)[:_PLACES], *self._values.lengths.get(value, [])]
            self._add([Converted(self._path(node), ("length",)) for node in nodes if node.root in self._before])


_INPUT: Final = "†input"


def is_distinctive(value: JSON) -> bool:
    """Return whether a value can identify its origin: null, true, false and empty values cannot."""
    return not (value is None or isinstance(value, bool) or value in ("", [], {}))


def is_common(value: JSON) -> bool:
    """Return whether a value is often somewhere by chance: a number below 100, a text of one or two characters."""
    if isinstance(value, str):
        return len(value) < 3
    return isinstance(value, int | float) and abs(value) < 100 and float(value).is_integer()


def _list_of(value: JSON) -> list[JSON] | None:
    inner = parsed_text(value) if isinstance(value, str) else value
    return inner if isinstance(inner, list) else None


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


def taking_apart(text: str, needle: str) -> Iterator[list[tuple[JSON, ...]]]:
    """Yield steps of conversion that may take a text out of a longer one: by its label, its word, or separators."""
    start = text.find(needle)
    for _ in range(3):
        if start < 0:
            return
        end = start + len(needle)
        if _is_word(text, start, end):
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
    elif prefix and not prefix[-1].isalnum():
        labels.append(prefix[-1])
    for label in dict.fromkeys(labels):
        yield [("between", label, after)]
    if line_start or line_end < len(text):
        # The same within its line.
        number = text.count("\n", 0, start)
        lines = text.count("\n") + 1
        for place in (number, number - lines):
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
        several: any constant, which other runs then confirm; otherwise the usual ones.
    """
    count = 0
    for node in values.numbers:
        source = node.value
        if node.root not in before or not isinstance(source, int | float) or source == value:
            continue
        count += 1
        if count > _PLACES:
            return
        path = PathTo(f"{node.root}{format_path(node.path)}")
        step = round(value - source, 10)
        step = int(step) if float(step).is_integer() else step
        if several or step in _STEPS:
            yield Converted(path, ("add", step))
        if source and value:
            factor = value / source
            factor = int(factor) if factor.is_integer() else round(factor, 10)
            if several or factor in _FACTORS:
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
