"""The values of a run, indexed for the search for explanations.

Theory of operation. Documents are looked through once. A text or number is noted with its place: the list or object
that contains it, and its key there. A `Node`, which knows the way to a value, is made only for the places that a search
looks at. What few searches need is made when it is first asked for: texts without regard to case, dates, and the texts
joined into one, in which all texts that contain a part are found at once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import Final, TypeAlias

from ideabridge.bridge.context.explanations import operand_path, same
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.context.steps import CHARACTERS, written_date
from ideabridge.tools.encoding import JSON

INPUT: Final = "†input"

PLACES: Final = 60
"""The most places of one value that are looked at."""

LONGEST: Final = 2_000
"""The longest literal whose parts are looked for."""

LOOSE: Final = 2_000
"""The most texts outside lists that are looked at for dates and lengths."""

FORMATS: Final = (
    *("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"),
    *("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%B %e, %Y", "%e %B %Y", "%b %e, %Y", "%e %b %Y", "%Y%m%d"),
)
"""The formats in which a date is recognised."""


_NODES: Final = 800_000
"""The most values of one run that are indexed."""

_DEPTH: Final = 40
_MEMBERS: Final = 100
"""How many members of an object show whether its keys are data."""

_NAME = re.compile(r"[A-Za-z_$@][\w$-]*")
_SMALL: Final = 4
_SHORT: Final = 300
"""The longest text in which a text of one or two characters is looked for."""

_LONG_TEXT: Final = CHARACTERS
"""The longest text in which a literal is looked for; no conversion takes a longer one."""

_INSIDE_NUMBER: Final = "-.,:/"
_MAYBE_JSON: Final = frozenset("[{ \t\r\n")


@dataclass(slots=True, eq=False)
class Node:
    """A value in a document, with the way to it.

    Attributes:
        value: the value.
        root: the reference of the document.
        parent: the list or object that contains it; None for the document itself.
        key: its key in the parent.
        listed: True if the way leads through a position in a list.
        inner: the value, or what a text contains as JSON.
    """

    value: JSON
    root: str
    parent: Node | None = None
    key: str = ""
    listed: bool = False
    inner: JSON = None

    @property
    def path(self) -> Path:
        """The keys from the document to the value."""
        return tuple(reversed([node.key for node in self.above if node.parent is not None]))

    @property
    def above(self) -> Iterator[Node]:
        """The node and those above it, from the bottom up."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def data_keys(self) -> int:
        """How many keys on the way look like data and not like names of fields, such as ids that lead to records."""
        count = 0
        for node in self.above:
            # What is directly in the input is a parameter.
            if node.parent is not None and isinstance(node.parent.inner, dict):
                of_input = node.root == INPUT and node.parent.parent is None
                count += not of_input and (_NAME.fullmatch(node.key) is None or node.parent.like_a_map)
        return count

    @property
    def like_a_map(self) -> bool:
        """Return whether it is an object whose members are all numbers, or all objects of one form."""
        members = list(islice(self.inner.values(), _MEMBERS)) if isinstance(self.inner, dict) else []
        if len(members) < 2:
            return False
        if all(isinstance(one, int | float) and not isinstance(one, bool) for one in members):
            return True
        first = members[0]
        return isinstance(first, dict) and all(isinstance(one, dict) and one.keys() == first.keys() for one in members)


Place: TypeAlias = "tuple[Node, str | int]"
"""A list or object, and a key or position in it. Nodes are made only for the few places that are looked at."""


class Values:
    """An index of the values of one run.

    Args:
        documents: the input and the results, by the text of the reference that reads them.
    """

    def __init__(self, documents: Mapping[str, JSON]) -> None:
        self.documents = documents
        self.whole = True
        self._roots = {operand_path(root): root for root in documents}
        self._texts: dict[str, list[Place]] = {}
        self._numbers: dict[int | float, list[Place]] = {}
        self._others: dict[tuple[str, int], list[Place]] = {}
        self._loose: list[Place] = []
        self._columns: dict[tuple[str, str], _Column] = {}
        self._sizes: dict[str, int] = {}
        self._opened: dict[str, JSON] = {}
        self._seldom: dict[tuple[type, JSON], list[Place]] = {}
        self._count = 0
        for root, document in documents.items():
            before = self._count
            # What is above a document is no part of any path.
            self._index(Node(None, root, inner={"": document}))
            self._sizes[root] = self._count - before

    def _index(self, start: Node) -> None:
        stack = [(start, 0)]
        texts, numbers, others = self._texts, self._numbers, self._others
        while stack:
            node, depth = stack.pop()
            inner = node.inner
            pairs: Iterable[tuple[str | int, JSON]] = ()
            if isinstance(inner, dict):
                pairs = inner.items()
            elif isinstance(inner, list):
                pairs = enumerate(inner)
            for key, value in pairs:
                self._count += 1
                if self._count > _NODES:
                    self.whole = False
                    return
                opened: JSON = value
                if isinstance(value, str):
                    texts.setdefault(value, []).append((node, key))
                    if value[:1] not in _MAYBE_JSON:
                        continue
                    parsed = parsed_text(value)
                    if isinstance(parsed, Missing):
                        continue
                    opened = self._opened[value] = parsed
                elif isinstance(value, bool) or value is None:
                    others.setdefault((repr(value), 0), []).append((node, key))
                    continue
                elif isinstance(value, int | float):
                    numbers.setdefault(value, []).append((node, key))
                    if not node.listed and isinstance(key, str):
                        self._loose.append((node, key))
                    continue
                if isinstance(opened, list | dict):
                    others.setdefault((type(opened).__name__, len(opened)), []).append((node, key))
                    if depth >= _DEPTH:
                        self.whole = False
                    else:
                        stack.append((self._made((node, key), value, opened), depth + 1))

    def _made(self, place: Place, value: JSON, inner: JSON) -> Node:
        holder, key = place
        if holder.value is None:
            return Node(value, holder.root, inner=inner)
        listed = holder.listed or isinstance(key, int)
        return Node(value, holder.root, holder, str(key), listed, inner)

    def node(self, place: Place) -> Node:
        """Return the value at a place."""
        holder, key = place
        value = read_path(holder.inner, (str(key),))
        value = None if isinstance(value, Missing) else value
        return self._made(place, value, value)

    def read(self, text: str) -> JSON | Missing:
        """Return what a reference with one operand reads."""
        path = operand_path(text)
        for length in range(len(path), 0, -1):
            root = self._roots.get(path[:length])
            if root is not None:
                return self._below(self.documents[root], path[length:])
        return MISSING

    def _below(self, value: JSON, path: Path) -> JSON | Missing:
        found: JSON | Missing = value
        for key in path:
            if isinstance(found, str):
                # Long texts are parsed once.
                found = self._opened.get(found, MISSING)
            found = MISSING if isinstance(found, Missing) else read_path(found, (key,))
        return found

    def places(self, value: JSON) -> list[Place]:
        """Return the places of an equal value, in the order of the documents."""
        if isinstance(value, str):
            return self._texts.get(value, [])
        if isinstance(value, bool) or value is None:
            return self._others.get((repr(value), 0), [])
        if isinstance(value, int | float):
            return self._numbers.get(value, [])
        alike = self._others.get((type(value).__name__, len(value)), [])
        return [one for one in alike if same(self.node(one).value, value)]

    def equal(self, value: JSON, before: Collection[str]) -> Iterator[Node]:
        """Yield the nodes with an equal value in some of the documents."""
        return (self.node(one) for one in self.places(value) if one[0].root in before)

    def loose(self, value: JSON, before: Collection[str]) -> Iterator[Node]:
        """Yield the nodes with an equal value to which no position leads."""
        places = self.places(value)
        if len(places) > PLACES and not isinstance(value, list | dict):
            key = type(value), value
            if key not in self._seldom:
                self._seldom[key] = [one for one in places if not one[0].listed and isinstance(one[1], str)]
            places = self._seldom[key]
        for place in places:
            if not place[0].listed and isinstance(place[1], str) and place[0].root in before:
                yield self.node(place)

    def lists_of_length(self, length: int) -> Iterator[Node]:
        """Yield the lists of this length to which no position leads."""
        found = (self.node(one) for one in self._others.get(("list", length), []) if not one[0].listed)
        return (one for one in found if not one.listed)

    @property
    def numbers(self) -> Iterator[Node]:
        """The numbers to which no position leads."""
        return map(self.node, self._loose)

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
    def folded(self) -> dict[str, list[Place]]:
        """The places of texts, by the text in lower case without spaces around it."""
        found: dict[str, list[Place]] = {}
        for text, places in self._texts.items():
            if len(text) <= LONGEST:
                found.setdefault(text.strip().casefold(), []).extend(places)
        return found

    @cached_property
    def given(self) -> list[str]:
        """The texts of the input with three characters or more, at most 100."""
        found = (text for text, places in self._texts.items() if any(one[0].root == INPUT for one in places))
        return [text for text in islice(found, 100) if 3 <= len(text) <= LONGEST]

    @cached_property
    def loose_texts(self) -> list[tuple[str, Node]]:
        """The short texts that are in no list, with the first place of each in every document; at most 2,000."""
        found: list[tuple[str, Node]] = []
        for text, places in self._texts.items():
            roots: set[str] = set()
            for holder, key in islice(places, PLACES) if len(text) <= 200 else ():
                if not holder.listed and isinstance(key, str) and holder.root not in roots:
                    roots.add(holder.root)
                    found.append((text, self.node((holder, key))))
            if len(found) >= LOOSE:
                break
        return found

    @cached_property
    def lengths(self) -> dict[int, list[Node]]:
        """The places of short texts that are in no list, by the length of the text."""
        found: dict[int, list[Node]] = {}
        for text, node in self.loose_texts:
            found.setdefault(len(text), []).append(node)
        return found

    @cached_property
    def dates(self) -> list[tuple[datetime, str, Node]]:
        """(moment, format, place) of each text that is a date and in no list."""
        return [(moment, form, node) for text, node in self.loose_texts for moment, form in read_dates(text)]

    @cached_property
    def moments(self) -> dict[str, list[str]]:
        """The texts that begin with a date and continue with a time, by that date as it is written."""
        found: dict[str, list[str]] = {}
        for text in self._texts:
            if 16 <= len(text) <= 40 and text[4] in "-/" and text[10] in "T " and _DAY.match(text):
                found.setdefault(text[:10], []).append(text)
        return found

    @cached_property
    def _short(self) -> _Joined:
        return _Joined(text for text in self._texts if 3 < len(text) <= _SHORT and text not in self._opened)

    @cached_property
    def _long(self) -> _Joined:
        return _Joined(text for text in self._texts if _SHORT < len(text) <= _LONG_TEXT and text not in self._opened)

    def containing(self, needle: str, before: Collection[str]) -> Iterator[tuple[str, Node]]:
        """Yield the longer texts that contain a text as a whole word or words, with the first place of each.

        A text of one or two characters is not looked for in long texts, and no text is taken apart that is JSON.
        """
        texts = self._short.containing(needle)
        for text in texts if len(needle) < 3 else chain(texts, self._long.containing(needle)):
            place = next((one for one in self._texts[text] if one[0].root in before), None)
            if place is not None:
                yield text, self.node(place)


class _Joined:
    """Texts that are searched together."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        self._blob = "\0".join(self._texts)
        self._starts = [0, *accumulate(len(text) + 1 for text in self._texts)]

    def containing(self, needle: str) -> Iterator[str]:
        """Yield the longer texts that contain a text as a whole word or words."""
        position = -1 if "\0" in needle else self._blob.find(needle)
        while position >= 0:
            end = position + len(needle)
            if is_word(self._blob, position, end):
                number = bisect_right(self._starts, position) - 1
                if len(self._texts[number]) > len(needle):
                    yield self._texts[number]
                end = self._starts[number + 1] - 1
            position = self._blob.find(needle, end)


class _Column:
    """One field of all items of a list.

    Attributes:
        values: the value of each item, or MISSING.
        extremes: the first item with the largest and with the smallest value, if all can be compared.
    """

    def __init__(self, items: list[JSON], name: str) -> None:
        path = tuple(name.split(".")) if name else ()
        self.values: list[JSON | Missing] = [read_path(item, path) for item in items] if path else [*items]
        if len(path) == 1:
            key = path[0]
            self.values = [
                item.get(key, MISSING) if isinstance(item, dict) else read_path(item, path) for item in items
            ]

    @cached_property
    def extremes(self) -> dict[str, int]:
        """The first item with the largest and with the smallest value, if all can be compared."""
        kinds = set(map(type, self.values))
        numbers = [one for one in self.values if isinstance(one, int | float)] if kinds <= {int, float} else []
        texts = [one for one in self.values if isinstance(one, str)] if kinds == {str} else []
        if numbers:
            return {"largest": numbers.index(max(numbers)), "smallest": numbers.index(min(numbers))}
        return {"largest": texts.index(max(texts)), "smallest": texts.index(min(texts))} if texts else {}

    def selects(self, value: JSON, item: int) -> bool:
        """Return whether an item is the first with a value."""
        start = 0
        while True:
            try:
                start = self.values.index(value, start, item + 1)
            except ValueError:
                return False
            # In Python, 1 equals True.
            if isinstance(self.values[start], bool) is isinstance(value, bool):
                return start == item
            start += 1


def is_word(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text begins and ends where words or numbers do."""
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    if (before.isalnum() and text[start].isalnum()) or (after.isalnum() and text[end - 1].isalnum()):
        return False
    if not text[start:end].isdecimal():
        return True
    # Not a part of a number or date.
    inside = before in _INSIDE_NUMBER and text[max(0, start - 2) : start - 1].isdecimal() if before else False
    return not inside and not (after and after in _INSIDE_NUMBER and text[end + 1 : end + 2].isdecimal())


def read_dates(text: str) -> Iterator[tuple[datetime, str]]:
    """Yield (moment, format) for each format in which a text is a date."""
    if not 8 <= len(text) <= 30 or _DATE.fullmatch(text) is None:
        return
    for form in FORMATS:
        try:
            moment = datetime.strptime(text, form.replace("%e", "%d"))  # noqa: DTZ007
        except ValueError:
            continue
        if written_date(moment, form) == text:
            yield moment, form


_DAY = re.compile(r"\d{4}([-/])\d\d\1\d\d[T ]\d\d:\d\d")
_DATE = re.compile(
    r"\d{4}([-/])\d\d\1\d\d(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?|\d\d[./]\d\d[./]\d{4}|\d{8}"
    r"|[A-Z][a-z]{2,8} \d\d?, \d{4}|\d\d? [A-Z][a-z]{2,8} \d{4}"
)
