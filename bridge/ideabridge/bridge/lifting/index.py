"""Index: the places of the values that existed when a literal was written.

A search goes through the calls of a run in the order in which they were written. `Values.add` takes each document (the
input, a result, an earlier literal) when the author of the next call had seen it, so whatever the index holds may
explain what is looked up next. A document is looked through once. A text or number is noted with its place: the list or
object that contains it, and its key there. A `Node`, which knows the way to a value, is made only for the few places
that a search looks at.

Bounds: `PLACES` places of one value, `_NODES` values of a run. `cut` says whether a bound left something out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.items import column_of
from ideabridge.bridge.context.references import Path, format_path
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.lifting.inside import Texts
from ideabridge.tools.encoding import JSON

INPUT: Final = "†input"

PLACES: Final = 60
"""The most places of one value that are kept."""

LONGEST: Final = 2_000
"""The longest text that is looked for in another notation, or as a text with a value in it."""

_NODES: Final = 800_000
"""The most values of one run that are indexed."""

_DEPTH: Final = 40
_GIVEN: Final = 100
_SMALL: Final = 4
_MEMBERS: Final = 100
"""How many members of an object show whether its keys are data."""

_NAME = re.compile(r"[A-Za-z_$@][\w$-]*")
_HEAD = re.compile(r"\W*\w+")
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
    # What is asked for all values in a list or object is found once.
    _path: Path | None = field(default=None, init=False)
    _reference: str | None = field(default=None, init=False)
    _data_keys: int | None = field(default=None, init=False)
    _is_like_a_map: bool | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        """The keys from the document to the value."""
        if self._path is None:
            self._path = () if self.parent is None else (*self.parent.path, self.key)
        return self._path

    @property
    def reference(self) -> str:
        """The text of the reference that reads it."""
        if self._reference is None:
            above = self.parent
            self._reference = self.root if above is None else f"{above.reference}{format_path((self.key,))}"
        return self._reference

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
        if self._data_keys is None:
            above = self.parent
            self._data_keys = 0 if above is None else above.data_keys + self._is_at_data_key(above)
        return self._data_keys

    def _is_at_data_key(self, above: Node) -> bool:
        if not isinstance(above.inner, dict):
            return False
        if self.root == INPUT and above.parent is None:
            # What is directly in the input is a parameter.
            return False
        return _NAME.fullmatch(self.key) is None or above.holds_data_keys

    @property
    def holds_data_keys(self) -> bool:
        """Whether it is an object whose keys are data; see `is_like_a_map`."""
        if self._is_like_a_map is None:
            self._is_like_a_map = is_like_a_map(self.inner)
        return self._is_like_a_map


def is_like_a_map(value: JSON) -> bool:
    """Return whether it is an object whose members are all numbers, or all objects of one form."""
    members = list(islice(value.values(), _MEMBERS)) if isinstance(value, dict) else []
    if len(members) < 2:
        return False
    if all(isinstance(member, int | float) and not isinstance(member, bool) for member in members):
        return True
    first = members[0]
    return isinstance(first, dict) and all(
        isinstance(member, dict) and member.keys() == first.keys() for member in members
    )


Place: TypeAlias = "tuple[Node, str | int]"
"""A list or object, and a key or position in it."""


class Values:
    """An index of the values of one run.

    Args:
        documents: the first documents, by the reference that reads them; see `add`.

    Attributes:
        whole: False if not every value was indexed.
        given: the texts of the input with three characters or more, at most 100.
        texts: the texts that are no JSON, for what stands inside them.
    """

    def __init__(self, documents: Mapping[str, JSON] | None = None) -> None:
        self.whole = True
        self.given: list[str] = []
        self.texts = Texts()
        self._texts: dict[str, list[Place]] = {}
        self._numbers: dict[int | float, list[Place]] = {}
        self._others: dict[object, list[Place]] = {}
        self._notations: dict[str, list[str]] = {}
        self._heads: set[str] = set()
        self._columns: dict[tuple[str, str], dict[tuple[bool, JSON], int]] = {}
        self._sizes: dict[str, int] = {}
        self._numbers_of: dict[str, int] = {}
        self._literals: set[str] = set()
        self._count = 0
        for root, document in (documents or {}).items():
            self.add(root, document)

    def add(self, root: str, document: JSON, *, literal: bool = False) -> None:
        """Index a document that the author of the next literals had seen.

        Args:
            root: the reference that reads it.
            document: its value.
            literal: it is an earlier literal of the run, and no input or result.
        """
        if literal:
            self._literals.add(root)
        self._numbers_of[root] = len(self._numbers_of)
        before = self._count
        # What is above a document is no part of any path.
        stack = [(Node(None, root, inner={"": document}), 0)]
        while stack and self.whole:
            node, depth = stack.pop()
            for key, value in _members(node.inner):
                opened = self._note((node, key), value)
                if not isinstance(opened, list | dict):
                    continue
                if depth >= _DEPTH:
                    self.whole = False
                else:
                    stack.append((_node((node, key), value, opened), depth + 1))
        self._sizes[root] = self._count - before

    def _note(self, place: Place, value: JSON) -> JSON:
        """Note the place of a value, and return the value, or what a text contains as JSON."""
        self._count += 1
        if self._count > _NODES:
            self.whole = False
            return None
        if isinstance(value, str):
            known = self._texts.get(value)
            is_new = known is None
            if known is None:
                known = self._texts[value] = []
                if len(value) <= LONGEST:
                    self._notations.setdefault(_folded(value), []).append(value)
                    head = _HEAD.match(value)
                    if head is not None:
                        self._heads.add(head[0])
            _keep(known, place)
            if place[0].root == INPUT and 3 <= len(value) <= LONGEST and len(self.given) < _GIVEN:
                self.given.append(value)
            parsed = parsed_text(value) if value[:1] in _MAYBE_JSON else MISSING
            if not isinstance(parsed, Missing):
                # The texts in it follow.
                return parsed
            if is_new:
                self.texts.add(place[0].root, value)
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            _keep(self._numbers.setdefault(value, []), place)
        else:
            _keep(self._others.setdefault(_form(value), []), place)
        return value

    def equal(self, value: JSON) -> list[Node]:
        """Return the nodes with an equal value, at most `PLACES`, in the order in which they were added."""
        return list(self._nodes(value, self._places(value)))

    def _nodes(self, value: JSON, places: Iterable[Place]) -> Iterator[Node]:
        """Yield the nodes in some of the places of `_places` whose value is equal."""
        if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
            return (_node(place, value, value) for place in places)
        held = ((place, _value_at(place)) for place in places)
        return (_node(place, found, found) for place, found in held if same(found, value))

    def _places(self, value: JSON) -> list[Place]:
        """Return the places of values that may be equal."""
        if isinstance(value, str):
            return self._texts.get(value, [])
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._numbers.get(value, [])
        return self._others.get(_form(value), [])

    def loose(self, value: JSON) -> Iterator[Node]:
        """Yield the nodes with an equal value to which no position leads."""
        return self._nodes(value, (place for place in self._places(value) if not _is_listed(place)))

    def begins(self, head: str) -> bool:
        """Return whether a text or a number may begin like this: with marks, and a word that ends here."""
        return head in self._heads or head[0] == "-" or head[0].isdigit()

    def is_cut(self, value: JSON) -> bool:
        """Return whether a value may have more places than `equal` returns."""
        return not self.whole or len(self._places(value)) >= PLACES

    def notations(self, text: str) -> list[str]:
        """Return the texts that are equal to a text without regard to case and to spaces around it."""
        return self._notations.get(_folded(text), []) if text.strip() else []

    def number_of(self, root: str) -> int:
        """Return which document it is, in the order in which they were added."""
        return self._numbers_of[root]

    def is_small(self, root: str) -> bool:
        """Return whether a document has so few values that none is in it by chance."""
        return self._sizes.get(root, _SMALL + 1) <= _SMALL

    def is_literal(self, root: str) -> bool:
        """Return whether a document is an earlier literal of the run."""
        return root in self._literals

    def selects(self, holder: Node, name: str, value: JSON, number: int) -> bool:
        """Return whether an item of a list is the first whose field equals a value; the field is examined once."""
        items = holder.inner
        if isinstance(value, list | dict) or not isinstance(items, list):
            return False
        key = holder.reference, name
        first = self._columns.get(key)
        if first is None:
            first = self._columns[key] = {}
            for place, found in enumerate(column_of(items, name)):
                if not isinstance(found, list | dict | Missing):
                    first.setdefault((isinstance(found, bool), found), place)
        return first.get((isinstance(value, bool), value)) == number


def _keep(places: list[Place], place: Place) -> None:
    if len(places) < PLACES:
        places.append(place)


def _form(value: JSON) -> object:
    """Return what equal values share that are no text and no number."""
    if isinstance(value, dict):
        return tuple(sorted(value)[:5]), len(value)
    if isinstance(value, list):
        first = value[0] if value else None
        return (first if isinstance(first, str | int | float) else type(first)), len(value)
    return repr(value)


def _folded(text: str) -> str:
    return text.strip().casefold()


def _members(value: JSON) -> Iterable[tuple[str | int, JSON]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _value_at(place: Place) -> JSON:
    holder, key = place
    value = read_path(holder.inner, (str(key),))
    return None if isinstance(value, Missing) else value


def _node(place: Place, value: JSON, inner: JSON) -> Node:
    holder, key = place
    if holder.value is None:
        return Node(value, holder.root, inner=inner)
    return Node(value, holder.root, holder, str(key), _is_listed(place), inner)


def _is_listed(place: Place) -> bool:
    holder, key = place
    return holder.listed or isinstance(key, int)
