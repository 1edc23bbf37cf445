"""Search: the explanations of a literal in the values that existed before it was written.

Theory of operation. `Values` (index.py) has the input, the results and the earlier literals that the author of a
literal had seen. `explain` looks the literal up there and turns each place into explanations:

- the path to an equal value; the same for the literal in another notation (number or text, case, spaces around it);
- if the path leads through a list: the item whose field equals a value that stands elsewhere, too;
- for a text: one value that stands in it, between constant texts.

Whatever else a mind may have done (arithmetic, parts of texts, the largest item, a loop) is no explanation: a program
says it plainly. `fitting` keeps the explanations that have the recorded value in further runs, too.

Order. Explanations are ordered by cost (`COSTS` in `context/explanations.py`). Of equal costs, the source wins whose
name is most like that of the parameter, then the one with the fewest keys, then the one in the latest document. The
constant is always one of them. A value that is not distinctive (a small number, a truth value, a short text) comes
after the constant, because it is there by chance, unless the field has the name of the parameter.

Bounds. At most `MOST` explanations are kept, and at most `PLACES` places of a value are looked at. If more exist, the
result is `cut`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import (
    COSTS,
    MOST,
    Constant,
    Converted,
    Explanation,
    ItemOf,
    Joined,
    PathTo,
    Read,
    operand_path,
    same,
)
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.context.steps import convert
from ideabridge.bridge.lifting.function import is_distinctive
from ideabridge.bridge.lifting.index import INPUT, LONGEST, PLACES, Node, Values
from ideabridge.bridge.lifting.inside import Inside
from ideabridge.bridge.lifting.naming import words_of
from ideabridge.tools.encoding import JSON

_WORDS: Final = 12
"""The most words of a value within a text."""

_PIECES: Final = 8
"""The most values within one text that are explained."""

_SOURCES: Final = 4
"""The most places of a value within a text, or of a value that selects an item."""

_WEAK: Final = 1_000
"""What is added to the cost of an explanation that comes after the constant."""


@dataclass(frozen=True, slots=True)
class Found:
    """The explanations of a literal.

    Attributes:
        by: the explanations, in the order in which they are taken; never empty.
        cut: there may be more.
        contradicted: the runs have different values, and no explanation fits all of them.
        runs: how many runs agree.
        inside: a part of the literal that they leave as it is, and that stood in an earlier text.
    """

    by: list[Explanation]
    cut: bool = False
    contradicted: bool = False
    runs: int = 1
    inside: Inside | None = None

    @property
    def is_explained(self) -> bool:
        """True if something else is taken before the constant."""
        return not isinstance(self.by[0], Constant)

    def fitting(self, runs: Iterable[tuple[JSON, Read]]) -> Found:
        """Return the explanations that fit further runs: (the literal there, what reads the values of that run).

        If none is left, the constant of the first run is.
        """
        by = self.by
        for literal, read in runs:
            by = [explanation for explanation in by if _gives(explanation, read, literal)]
        if by:
            return replace(self, by=by)
        constants = [explanation for explanation in self.by if isinstance(explanation, Constant)]
        return Found(list[Explanation](constants), self.cut, contradicted=True)


def _gives(explanation: Explanation, read: Read, literal: JSON) -> bool:
    value = explanation.value(read)
    return not isinstance(value, Missing) and same(value, literal)


def explain(value: JSON, values: Values, name: str = "") -> Found:
    """Return all explanations of a literal in one run.

    Args:
        value: the literal.
        values: what existed when it was written.
        name: the name of the parameter.
    """
    return _Search(value, values, name).run()


class _Search:
    """The search for the explanations of one literal in one run."""

    def __init__(self, value: JSON, values: Values, name: str) -> None:
        self._value = value
        self._values = values
        self._name = name
        self._ranked: dict[Explanation | None, tuple[tuple[object, ...], Explanation]] = {}

    def run(self) -> Found:
        """Return the explanations, in the order in which they are taken."""
        value = self._value
        cut = self._values.is_cut(value)
        self._add(Constant(value), 0)
        if is_distinctive(value):
            self._direct(value, lambda explanation: explanation)
            self._other_notations()
            if isinstance(value, str):
                self._within(value)
        else:
            # Such a value is everywhere, so only a field of the same name is taken before the constant.
            cut = not self._values.whole
            for node in self._values.loose(value):
                self._add(PathTo(node.reference), 0 if self._is_named(node) else _WEAK, node)

        ordered = [explanation for _, explanation in sorted(self._ranked.values(), key=lambda ranked: ranked[0])]
        kept = ordered[:MOST]
        if not any(isinstance(explanation, Constant) for explanation in kept):
            kept[-1] = Constant(value)
        return Found(kept, cut or len(ordered) > MOST)

    def _add(self, explanation: Explanation, more: int, node: Node | None = None, length: int = 0) -> None:
        """Add an explanation.

        Args:
            explanation: it gives the literal.
            more: what is added to its cost.
            node: the value that it takes.
            length: the length of a value within a text: of several, a longer one says more.
        """
        # There is one constant alone, whose value may be a list.
        key = None if isinstance(explanation, Constant) else explanation
        if key not in self._ranked:
            likeness = 0 if node is None else self._likeness(node)
            keys = sum(reference.count(".") for reference in explanation.references)
            latest = 0 if node is None else -self._values.number_of(node.root)
            rank = explanation.cost + more, -length, -likeness, keys, latest, len(self._ranked)
            self._ranked[key] = rank, explanation

    def _likeness(self, node: Node) -> int:
        path = node.path
        if self._values.is_literal(node.root):
            # An earlier literal has the name of the parameter in which it stood.
            path = (*operand_path(node.root)[-1].split("."), *path)
        return likeness_of(self._name, path)

    def _is_named(self, node: Node) -> bool:
        return self._likeness(node) == 4

    def _weakness(self, node: Node) -> int:
        """What is added to the cost of a place: a value that is not distinctive may be there by chance."""
        if not is_common(self._value) or self._is_named(node):
            return 0
        if self._values.is_literal(node.root):
            return _WEAK
        return 0 if node.root == INPUT or self._values.is_small(node.root) else _WEAK

    def _direct(self, value: JSON, wrap: Callable[[Explanation], Explanation]) -> None:
        """Add the places of a value, and the conditions that select it from a list."""
        for node in self._values.equal(value):
            weak = self._weakness(node)
            # A key that is data selects as a position does.
            selected = COSTS["other position"] * min(node.data_keys, 2)
            self._add(wrap(PathTo(node.reference)), weak + selected, node)
            for explanation in () if weak else self._selected(node):
                self._add(wrap(explanation), weak, node)

    def _selected(self, node: Node) -> Iterator[Explanation]:
        """Yield the conditions that select a value from the only list on the way to it."""
        way = list(reversed(list(node.above)))
        lists = [depth for depth, above in enumerate(way[:-1]) if isinstance(above.inner, list)]
        if len(lists) != 1:
            return
        depth = lists[0]
        holder = way[depth]
        number = int(way[depth + 1].key)
        items = holder.inner
        if not isinstance(items, list) or len(items) < 2:
            return
        take = node.path[depth + 1 :]
        for field, value in _fields(items[number]):
            if (tuple(field.split(".")) if field else ()) == take:
                continue
            sources = self._elsewhere(value)
            if sources and self._values.selects(holder, field, value, number):
                yield from (ItemOf(holder.reference, take, (field, source)) for source in sources)

    def _elsewhere(self, value: JSON) -> list[PathTo]:
        """Return paths to a value that select by no position, so that none is in a list."""
        if not is_distinctive(value):
            return []
        nodes = self._values.loose(value)
        if is_common(value):
            nodes = (node for node in nodes if node.root == INPUT)
        return [PathTo(node.reference) for node in islice(nodes, _SOURCES)]

    # -- other notations -------------------------------------------------------------------------------------------

    def _other_notations(self) -> None:
        value = self._value
        if isinstance(value, str):
            number = convert(value, ("number",))
            if isinstance(number, int | float) and convert(number, ("text",)) == value:
                self._direct(number, lambda explanation: Converted(explanation, ("text",)))
            for text in self._values.notations(value)[:PLACES]:
                for change in ("lower", "upper", "title", "strip") if text != value else ():
                    if convert(text, (change,)) == value:
                        self._direct(text, lambda explanation, by=(change,): Converted(explanation, by))
        elif isinstance(value, int | float):
            for text in _texts_of(value):
                self._direct(text, lambda explanation: Converted(explanation, ("number",)))

    # -- a value within a text -------------------------------------------------------------------------------------

    def _within(self, text: str) -> None:
        """Add each value that stands in a text, with the constant texts around it."""
        if not 3 < len(text) <= LONGEST:
            return
        for start, end, nodes in self._pieces(text):
            before, after = text[:start], text[end:]
            for node in nodes[:_SOURCES]:
                parts = [
                    Constant(before) if before else None,
                    PathTo(node.reference),
                    Constant(after) if after else None,
                ]
                joined = Joined(tuple(part for part in parts if part is not None))
                self._add(joined, 0, node, end - start)

    def _pieces(self, text: str) -> list[tuple[int, int, list[Node]]]:
        """Return (start, end, places) of the longest parts of a text that are values, without overlap."""
        spans = dict(_spans(text, self._values.begins))
        # What is in the input may also be a part of a word.
        for given in self._values.given:
            start = text.find(given)
            if start >= 0:
                spans[start] = sorted({*spans.get(start, ()), start + len(given)}, reverse=True)

        found: list[tuple[int, int, list[Node]]] = []
        at = 0
        for start in sorted(spans):
            if start < at:
                continue
            for end in spans[start]:
                nodes = self._piece(text[start:end]) if end - start < len(text) else []
                if nodes:
                    found.append((start, end, nodes))
                    at = end
                    break
            if len(found) == _PIECES:
                break
        return found

    def _piece(self, part: str) -> list[Node]:
        """Return the places of a part of a text, as text or as a number; those with the likest name first."""
        if len(part) < 3 and not any(char.isdigit() for char in part):
            return []
        nodes = self._values.equal(part)
        # Most parts are words, which is seen without converting them.
        number = convert(part, ("number",)) if part[-1].isdigit() else None
        if isinstance(number, int | float) and convert(number, ("text",)) == part:
            nodes = [*nodes, *self._values.equal(number)]
        if len(part) < 3:
            nodes = [node for node in nodes if node.root == INPUT]
        return sorted(nodes, key=lambda node: -self._likeness(node)) if len(nodes) > 1 else nodes


def _spans(text: str, begins: Callable[[str], bool]) -> Iterator[tuple[int, list[int]]]:
    """Yield each place where a value may begin in a text, with the places where it may end, the last first.

    A value begins and ends where words do, or where the marks around a word do: `/tmp/x`, `#5`.

    Args:
        text: the text.
        begins: returns whether a value begins with some marks and a word.
    """
    words = list(islice(re.finditer(r"(?P<before>[^\w\s]*)(?P<word>\w+)(?P<after>[^\w\s]*)", text), 300))
    for number, first in enumerate(words):
        starts = {first.start("before"), first.start("word")}
        if number and words[number - 1].end("after") > words[number - 1].end("word"):
            # The marks between two words belong to the first of them.
            starts.add(words[number - 1].end("word"))
        taken = [start for start in starts if begins(text[start : first.end("word")])]
        if not taken:
            continue
        ends: list[int] = []
        for last in words[number : number + _WORDS]:
            ends += {last.end("word"), last.end("after")}
        ends.sort(reverse=True)
        yield from ((start, ends) for start in taken)


# -- names ----------------------------------------------------------------------------------------------------------


def likeness_of(name: str, path: Path) -> int:
    """Return how much the keys of a path are like the name of a parameter: 4 if the last one is this name, 0 if no word
    of them is the same.
    """
    keys = [key for key in path if not key.isdecimal()]
    return _likeness_of(name, tuple(keys[-2:]))


@lru_cache(maxsize=4096)
def _likeness_of(name: str, keys: Path) -> int:
    words = words_of(name)
    if not words or not keys:
        return 0
    last = words_of(keys[-1])
    if last == words:
        return 4
    around = words_of("_".join(keys))
    if set(around) == set(words):
        # `issue.id` for `issue_id`.
        return 3
    if set(words) & set(last):
        return 2
    return 1 if set(words) & set(around) else 0


# -- values ---------------------------------------------------------------------------------------------------------


def is_common(value: JSON) -> bool:
    """Return whether a value is often somewhere by chance: a number below 100, a text of one or two characters."""
    if isinstance(value, str):
        return len(value) < 3
    return isinstance(value, int | float) and abs(value) < 100 and float(value).is_integer()


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
            inner = [(name, member) for name, member in islice(value.items(), 10) if name and "." not in name]
            found += [(f"{key}.{name}", member) for name, member in inner if not isinstance(member, dict | list)]
        elif not isinstance(value, list):
            found.append((key, value))
    return found


def selects(explanation: Explanation) -> bool:
    """Return whether an explanation may select by a position from a list; `positions` says so for given data.

    A run shows something about the position only if it had a choice: several items, or several matches.
    """
    match explanation:
        case PathTo():
            return explanation.has_positions
        case ItemOf():
            return True
        case Converted():
            return selects(explanation.inner)
        case Joined():
            return any(selects(part) for part in explanation.parts)
        case _:
            return False
