"""Find explanations for a literal among the values that existed when it was written.

Theory of operation. `Values` (index.py) holds the input, the results and the earlier literals that
the author of a literal had seen. `explain_literal` looks up the literal in these values, and turns
each place where the literal occurs into explanations:

- the path to an equal value, possibly in another notation (number or text, case, surrounding
  spaces);
- if the path leads through a list: the item whose field equals a value that also appears elsewhere;
- for a string: a value that the string contains, with constant text around the value.

Other things that a mind might have done (arithmetic, parts of strings, the largest item, a loop)
are not explanations, because a program expresses them better. `fitting` keeps the explanations that
also yield the values recorded in other runs.

Order. Explanations are ordered by cost (`COSTS` in `context/explanations.py`). If costs are equal,
the source whose name is most similar to the parameter's name comes first, then the source with the
fewest keys, and then the source in the latest document. The constant is always one of the
explanations. A value that is not distinctive (a small number, a Boolean, a short string) can equal
another value by coincidence, so the constant comes before the other explanations unless the field
has the parameter's name.

Limits. At most `MOST_EXPLANATIONS` explanations are returned, and at most `MOST_PLACES` places per
value are examined. If there are more, `cut` is set in the result.
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
    MOST_EXPLANATIONS,
    Constant,
    Converted,
    Explanation,
    ItemOf,
    Joined,
    PathTo,
    Read,
    operand_path,
)
from ideabridge.bridge.context.items import keys_of
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.steps import convert
from ideabridge.bridge.lifting.function import is_distinctive
from ideabridge.bridge.lifting.index import INPUT, LONGEST_TEXT, MOST_PLACES, Node, Values
from ideabridge.bridge.lifting.inside import Inside
from ideabridge.bridge.lifting.naming import words_of
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty

_WORDS: Final = 12
"""The maximum number of words in a value that is found within a string."""

_MARKED_WORDS: Final = 300
"""The number of words in a string that are tried as the start of a value."""

_MOST_PIECES: Final = 8
"""The maximum number of values that are explained within one string."""

_SOURCES: Final = 4
"""The number of places that are considered for a value that is within a string, or that selects an
item.
"""

_WEAK: Final = 1_000
"""Added to the cost of an explanation to make it come after the constant."""

_OWN_NAME: Final = 4
"""The likeness score of a key that equals the parameter's name."""

_MARKED_WORD: Final = re.compile(r"(?P<before>[^\w\s]*)(?P<word>\w+)(?P<after>[^\w\s]*)")


@dataclass(frozen=True, slots=True)
class Found:
    """The explanations for a literal.

    Attributes:
        by: the explanations, best first. There is at least one.
        cut: True if there might be more explanations.
        contradicted: True if the values differ between the runs, and no explanation fits all of
            them.
        runs: the number of runs that the explanations fit.
        inside: an unexplained part of the literal that appeared in an earlier string, or None.
    """

    by: list[Explanation]
    cut: bool = False
    contradicted: bool = False
    runs: int = 1
    inside: Inside | None = None

    @property
    def is_explained(self) -> bool:
        """Whether the first explanation is not the constant."""
        return not is_constant(self.by[0])

    def fitting(self, runs: Iterable[tuple[JSON, Read]]) -> Found:
        """Return the explanations that also fit other runs. If none of them does, only the first
        run's constant is left.

        Args:
            runs: for each run, the literal at the same place, and the function that reads the run's
                values.
        """
        by = self.by
        for literal, read in runs:
            by = [explanation for explanation in by if explanation.gives(literal, read)]

        if by:
            return replace(self, by=by)

        return Found(list(filter(is_constant, self.by)), self.cut, contradicted=True)


def explain_literal(value: JSON, values: Values, name: str = "") -> Found:
    """Return all explanations for a literal in one run.

    Args:
        value: the literal.
        values: the values that existed when the literal was written.
        name: the name of the parameter.
    """
    return _Search(value, values, name).run()


class _Search:
    """The search for the explanations of one literal in one run."""

    def __init__(self, value: JSON, values: Values, name: str) -> None:
        self._value = value
        self._values = values
        self._name = name
        constant = _Ranked(Constant(value), (COSTS["constant"], 0, 0, 0, 0))
        self._ranked: list[_Ranked] = [constant]
        self._explanations: set[Explanation] = set()

    def run(self) -> Found:
        """Return the explanations, best first."""
        value = self._value
        if is_distinctive(value):
            is_cut = self._values.is_cut(value)
            self._direct(value)
            self._other_notations()
            if isinstance(value, str):
                self._within(value)
        else:
            is_cut = not self._values.whole
            for node in self._values.loose(value):
                # Such a value is very common, so only an explanation that reads a field with the
                # name of the parameter may come before the constant.
                weakness = 0 if self._is_named(node) else _WEAK
                self._add(PathTo(node.reference), weakness, node)

        self._ranked.sort(key=lambda ranked: ranked.rank)
        by = [ranked.explanation for ranked in self._ranked[:MOST_EXPLANATIONS]]
        if not any(map(is_constant, by)):
            # The constant is always among the explanations, even if it ranks below the limit.
            by[-1] = Constant(value)

        return Found(by, is_cut or len(self._ranked) > MOST_EXPLANATIONS)

    def _add(self, explanation: Explanation, more: int, node: Node, length: int = 0) -> None:
        """Add an explanation.

        Args:
            explanation: the explanation, whose value is the literal.
            more: an amount to add to the cost of the explanation.
            node: the value that the explanation reads.
            length: the length, in characters, of a value within a string. The longer the match, the
                stronger the evidence.
        """
        if explanation in self._explanations:
            return

        self._explanations.add(explanation)
        cost = explanation.cost + more
        keys = sum(reference.count(".") for reference in explanation.references)
        number = self._values.documents[node.root].number
        rank = (cost, -length, -self._likeness(node), keys, -number)
        self._ranked.append(_Ranked(explanation, rank))

    def _likeness(self, node: Node) -> int:
        path = node.path
        if self._values.documents[node.root].is_literal:
            # Take the name of an earlier literal from the parameter that contained it.
            path = (*operand_path(node.root)[-1].split("."), *path)
        return likeness_of(self._name, path)

    def _is_named(self, node: Node) -> bool:
        return self._likeness(node) == _OWN_NAME

    def _weakness(self, node: Node) -> int:
        """Return the extra cost of a place where a common value might occur by chance."""
        if not is_common(self._value) or self._is_named(node):
            return 0
        document = self._values.documents[node.root]
        if not document.is_literal and (node.root == INPUT or document.is_small):
            return 0
        return _WEAK

    def _direct(self, value: JSON, step: str | None = None) -> None:
        """Add the places of a value, and the conditions that select the value from a list.

        Args:
            value: the value.
            step: the conversion from the value to the literal, or None if they are equal.
        """
        for node in self._values.equal(value):
            weakness = self._weakness(node)
            # A key that looks like data, such as a record id, costs as much as a list position.
            cost_of_keys = COSTS["other position"] * min(node.data_keys, 2)
            path = _after(PathTo(node.reference), step)
            self._add(path, weakness + cost_of_keys, node)
            if weakness == 0:
                for explanation in self._selected(node):
                    self._add(_after(explanation, step), 0, node)

    def _selected(self, node: Node) -> Iterator[Explanation]:
        """Yield the conditions that select a value from the only list in the value's path."""
        path_down = [*node.above]
        path_down.reverse()
        ancestors = path_down[:-1]
        depths = [
            depth for depth, ancestor in enumerate(ancestors) if isinstance(ancestor.inner, list)
        ]
        if len(depths) != 1:
            return

        [depth] = depths
        holder = path_down[depth]
        item = path_down[depth + 1]
        items = list_or_empty(holder.inner)
        if len(items) < 2:
            # With a single item, there is nothing to select from.
            return

        number = int(item.key)
        keys_in_item = node.path[depth + 1 :]
        for field, value in _fields(items[number]):
            # A value cannot select itself.
            if keys_of(field) == keys_in_item:
                continue

            sources = self._elsewhere(value)
            if sources and self._values.selects(holder, field, value, number):
                for source in sources:
                    yield ItemOf(holder.reference, keys_in_item, (field, source))

    def _elsewhere(self, value: JSON) -> list[PathTo]:
        """Return the paths to a value without a list position."""
        if not is_distinctive(value):
            return []
        nodes = self._values.loose(value)
        if is_common(value):
            # Outside the input, a common value might occur by chance.
            nodes = (node for node in nodes if node.root == INPUT)
        return [PathTo(node.reference) for node in islice(nodes, _SOURCES)]

    # -- other notations ---------------------------------------------------------------------------

    def _other_notations(self) -> None:
        """Add the places of values that equal the literal after a conversion."""
        value = self._value
        if isinstance(value, str):
            number = _number_in(value)
            if number is not None:
                self._direct(number, "text")
            for text in self._values.notations(value)[:MOST_PLACES]:
                if text == value:
                    continue
                for step in ("lower", "upper", "title", "strip"):
                    if convert(text, step) == value:
                        self._direct(text, step)
        elif isinstance(value, int | float):
            for text in _texts_of(value):
                self._direct(text, "number")

    # -- a value within a string -------------------------------------------------------------------

    def _within(self, text: str) -> None:
        """Add each value that the literal contains, with the constant text around it."""
        if not 3 < len(text) <= LONGEST_TEXT:
            return
        for piece in self._pieces(text):
            before = text[: piece.start]
            after = text[piece.end :]
            for node in piece.nodes[:_SOURCES]:
                parts: list[Explanation] = [PathTo(node.reference)]
                if before:
                    parts.insert(0, Constant(before))
                if after:
                    parts.append(Constant(after))

                self._add(Joined(tuple(parts)), 0, node, piece.end - piece.start)

    def _pieces(self, text: str) -> list[_Piece]:
        """Return the longest non-overlapping parts of a string that are indexed values."""
        spans = dict(_spans(text, self._values.begins))
        # Look for input values separately, because they can also match part of a word.
        for input_text in self._values.input_texts:
            start = text.find(input_text)
            if start >= 0:
                ends = {*spans.get(start, ()), start + len(input_text)}
                spans[start] = sorted(ends, reverse=True)

        pieces: list[_Piece] = []
        for start in sorted(spans):
            if pieces and start < pieces[-1].end:
                continue
            piece = self._longest_at(text, start, spans[start])
            if piece is not None:
                pieces.append(piece)

            if len(pieces) == _MOST_PIECES:
                break

        return pieces

    def _longest_at(self, text: str, start: int, ends: Iterable[int]) -> _Piece | None:
        """Return the longest value that begins at `start` in a string and is not the whole string,
        or None if there is none.
        """
        for end in ends:
            part = text[start:end]
            if part == text:
                continue
            nodes = self._places_of(part)
            if nodes:
                return _Piece(start, end, nodes)

        return None

    def _places_of(self, part: str) -> list[Node]:
        """Return the places where a part of a string is a value, as a string or as a number.

        Places whose names are most similar to the name of the parameter come first.
        """
        is_short = len(part) < 3
        if is_short and not any(char.isdigit() for char in part):
            return []

        nodes = self._values.equal(part)
        number = _number_in(part)
        if number is not None:
            nodes += self._values.equal(number)

        if is_short:
            nodes = [node for node in nodes if node.root == INPUT]

        if len(nodes) > 1:
            nodes.sort(key=self._likeness, reverse=True)

        return nodes


@dataclass(frozen=True, slots=True)
class _Ranked:
    """An explanation with its rank, where lower ranks come first."""

    explanation: Explanation
    rank: tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a string, with the places where the same value occurs."""

    start: int
    end: int
    nodes: list[Node]


def _after(explanation: Explanation, step: str | None) -> Explanation:
    return explanation if step is None else Converted(explanation, step)


def _spans(text: str, begins: Callable[[str], bool]) -> Iterator[tuple[int, list[int]]]:
    """Yield each position in a string at which a value might begin, with the positions at which it
    might end, farthest first.

    A value begins and ends at a word boundary, or at the outer edge of the marks around a word:
    `/tmp/x`, `#5`.

    Args:
        text: the string.
        begins: returns whether a value begins with the given marks and word.
    """
    words = list(islice(_MARKED_WORD.finditer(text), _MARKED_WORDS))
    for number, first in enumerate(words):
        starts = {first.start("before"), first.start("word")}
        if number > 0:
            previous = words[number - 1]
            if previous["after"]:
                # Marks between two words belong to the first word.
                starts.add(previous.end("word"))

        word_end = first.end("word")
        starts = {start for start in starts if begins(text[start:word_end])}
        if not starts:
            continue

        ends: list[int] = []
        for last in words[number : number + _WORDS]:
            # If no marks follow the word, these are the same position.
            ends += {last.end("word"), last.end("after")}

        ends.sort(reverse=True)
        for start in starts:
            yield start, ends


# -- comparing names -------------------------------------------------------------------------------


def likeness_of(name: str, path: Path) -> int:
    """Return how similar the keys in a path are to a parameter's name, from 4 (the last key equals
    the name) to 0 (the keys and the name have no word in common).
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
        return _OWN_NAME

    own = set(words)
    around = set(words_of("_".join(keys)))
    if around == own:
        # The words match exactly: the path `issue.id` and the name `issue_id` have the same words.
        return 3
    if own & set(last):
        return 2
    if own & around:
        return 1
    return 0


# -- values ----------------------------------------------------------------------------------------


def is_common(value: JSON) -> bool:
    """Return whether a value often occurs by chance, like numbers below 100 and strings of one or
    two characters.
    """
    if isinstance(value, str):
        return len(value) < 3
    if isinstance(value, int | float):
        return abs(value) < 100 and float(value).is_integer()
    return False


def _number_in(text: str) -> int | float | None:
    """Return the number that a string consists of, or None if it is not a number."""
    # Look at the last character first: most strings are words, and this test is cheaper than a
    # conversion that fails.
    if not text[-1:].isdigit():
        return None

    number = convert(text, "number")
    if isinstance(number, int | float) and convert(number, "text") == text:
        return number
    return None


def _texts_of(number: float) -> list[str]:
    """Return the usual ways to write a number."""
    if isinstance(number, int) or number.is_integer():
        whole = str(int(number))
        return [whole, f"{whole}.0", f"{whole}.00"]
    return list(dict.fromkeys([repr(number), f"{number:.2f}"]))


def _fields(item: JSON) -> list[tuple[str, JSON]]:
    """Return `(FIELD, value)` for each scalar member of an item, or of an object in the item."""
    if isinstance(item, list):
        return []
    if not isinstance(item, dict):
        return [("", item)]

    fields: list[tuple[str, JSON]] = []
    for key, value in _named_members(item, 30):
        if isinstance(value, dict):
            fields += [(f"{key}.{name}", member) for name, member in _named_members(value, 10)]
        else:
            fields.append((key, value))

    return [(field, value) for field, value in fields if not isinstance(value, dict | list)]


def _named_members(value: JSONObject, most: int) -> Iterator[tuple[str, JSON]]:
    """Yield the first members of an object, skipping those whose keys cannot be used as a FIELD."""
    for key, member in islice(value.items(), most):
        if key and "." not in key:
            yield key, member


def is_constant(explanation: Explanation) -> bool:
    """Return whether an explanation is the recorded value itself."""
    return isinstance(explanation, Constant)


def selects(explanation: Explanation) -> bool:
    """Return whether an explanation can select a list item by position. Its method `positions` says
    whether it does so for particular data.

    A run is evidence for a position only if there were several items or several matches to choose
    from.
    """
    if isinstance(explanation, PathTo):
        return explanation.has_positions
    return isinstance(explanation, ItemOf) or any(map(selects, explanation.made_of))
