"""Find where a value occurs among the values that existed when a literal was written.

A search goes through a run's calls in the order they were written. `Values.add` adds each document
(the input, a result, an earlier literal) once the author of the next call had seen it, so
everything in the index can explain the next literal. Each document is read only once. Each string
or number is stored with its place: the list or object that contains the value, and the key of the
value there. A `Node`, which knows the whole path to a value, is created only for the few places
that a search examines.

Limits: `MOST_PLACES` places per value and `_MOST_VALUES` values per run. `Values.is_cut` returns
whether something is missing because of a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final, TypeAlias

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.items import column_of
from ideabridge.bridge.context.references import Path, format_path
from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.lifting.inside import Texts
from ideabridge.tools.encoding import JSON, number_or_none, object_or_empty
from ideabridge.tools.json_parts import parts_of

INPUT: Final = "†input"

MOST_PLACES: Final = 60
"""The maximum number of places that are stored for one value."""

LONGEST_TEXT: Final = 2_000
"""The maximum length, in characters, of a string that is also looked up in other notations, or that
is searched for values inside it.
"""

_MOST_VALUES: Final = 800_000
"""The maximum number of values that are indexed for one run."""

_MOST_DEPTH: Final = 40
_INPUT_TEXTS: Final = 100
_SMALL: Final = 4
_MEMBERS: Final = 100
"""The number of members of an object that are examined to find out whether its keys are data."""

_NAME = re.compile(r"[A-Za-z_$@][\w$-]*")
_BEGINNING = re.compile(r"\W*\w+")
_MAYBE_JSON: Final = frozenset("[{ \t\r\n")


@dataclass(eq=False)
class Node:
    """A value in a document, with the path to it.

    Attributes:
        value: the value.
        root: the reference of the document.
        parent: the list or object that contains the value, or None if the value is the document
            itself.
        key: the key of the value in the parent.
        listed: True if the path contains a position in a list.
        inner: the parsed JSON if the value is a string that contains JSON, otherwise the value.
    """

    value: JSON
    root: str
    parent: Node | None = None
    key: str = ""
    listed: bool = False
    inner: JSON = None

    @cached_property
    def path(self) -> Path:
        """The keys from the document to the value."""
        if self.parent is None:
            return ()
        return (*self.parent.path, self.key)

    @cached_property
    def reference(self) -> str:
        """The reference that reads the value, as a string."""
        if self.parent is None:
            return self.root
        return self.parent.reference + format_path((self.key,))

    @property
    def above(self) -> Iterator[Node]:
        """The node and its ancestors, from the bottom up."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    @cached_property
    def data_keys(self) -> int:
        """The number of keys in the path that look like data (such as record ids) rather than field
        names.
        """
        if self.parent is None:
            return 0
        return self.parent.data_keys + self._is_at_data_key(self.parent)

    def _is_at_data_key(self, holder: Node) -> bool:
        is_parameter = self.root == INPUT and holder.parent is None
        if is_parameter or not isinstance(holder.inner, dict):
            return False
        return _NAME.fullmatch(self.key) is None or holder.holds_data_keys

    @cached_property
    def holds_data_keys(self) -> bool:
        """Whether the value is an object whose keys are data; see `is_like_a_map`."""
        return is_like_a_map(self.inner)


def is_like_a_map(value: JSON) -> bool:
    """Return whether a value is an object whose members are all numbers, or all objects of the same
    form.
    """
    members = list(islice(object_or_empty(value).values(), _MEMBERS))
    if len(members) < 2:
        return False

    first = members[0]
    if isinstance(first, dict):
        keys = first.keys()
        return all(isinstance(member, dict) and member.keys() == keys for member in members)
    return all(number_or_none(member) is not None for member in members)


Place: TypeAlias = "tuple[Node, str | int]"
"""A list or object, and a key or position in it."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document in the index.

    Attributes:
        number: the number of documents that were added before this one.
        is_literal: True if the document is an earlier literal in the run rather than the input or a
            result.
        is_small: True if the document has so few values that a match in it is not a coincidence.
    """

    number: int
    is_literal: bool
    is_small: bool


class Values:
    """An index of the values in one run.

    Args:
        documents: the first documents, keyed by the reference that reads them; see `add`.

    Attributes:
        whole: False if not every value was indexed.
        input_texts: up to 100 strings in the input that have at least three characters.
        texts: the strings that are not JSON, for searches inside them.
        documents: the added documents, each keyed by the reference that reads it.
    """

    def __init__(self, documents: Mapping[str, JSON] | None = None) -> None:
        self.whole = True
        self.input_texts: list[str] = []
        self.texts = Texts()
        self.documents: dict[str, IndexedDocument] = {}
        self._places: dict[object, list[Place]] = {}
        self._notations: dict[str, list[str]] = {}
        self._beginnings: set[str] = set()
        self._columns: dict[tuple[str, str], dict[tuple[bool, JSON], int]] = {}
        self._count = 0
        for root, document in (documents or {}).items():
            self.add(root, document)

    def add(self, root: str, document: JSON, *, literal: bool = False) -> None:
        """Index a document that the author of the next literals had seen.

        Args:
            root: the reference that reads the document.
            document: the value of the document.
            literal: True if the document is an earlier literal in the run rather than the input or
                a result.
        """
        count_before = self._count
        # Start at a node above the document that is not part of any path.
        stack = [(Node(None, root, inner={"": document}), 0)]
        while stack and self.whole:
            node, depth = stack.pop()
            for key, value in parts_of(node.inner):
                place = (node, key)
                inner = self._note(place, value)
                if not isinstance(inner, list | dict):
                    continue
                if depth >= _MOST_DEPTH:
                    self.whole = False
                else:
                    stack.append((_node(place, value, inner), depth + 1))

        is_small = self._count - count_before <= _SMALL
        self.documents[root] = IndexedDocument(len(self.documents), literal, is_small)

    def _note(self, place: Place, value: JSON) -> JSON:
        """Store the place of a value. Return the parsed JSON if the value is a string that contains
        JSON, otherwise the value.
        """
        self._count += 1
        if self._count > _MOST_VALUES:
            self.whole = False
            return None

        places = self._places.setdefault(_key_of(value), [])
        is_new = not places
        if len(places) < MOST_PLACES:
            places.append(place)

        if isinstance(value, str):
            return self._note_text(place[0].root, value, is_new=is_new)
        return value

    def _note_text(self, root: str, text: str, *, is_new: bool) -> JSON:
        """Index a string so that it can also be found in other notations. Return the JSON value in
        the string, or None if it is not JSON.
        """
        if is_new and len(text) <= LONGEST_TEXT:
            self._notations.setdefault(_folded(text), []).append(text)
            beginning = _BEGINNING.match(text)
            if beginning is not None:
                self._beginnings.add(beginning[0])

        is_input_text = root == INPUT and 3 <= len(text) <= LONGEST_TEXT
        if is_input_text and len(self.input_texts) < _INPUT_TEXTS:
            self.input_texts.append(text)

        if text[:1] in _MAYBE_JSON:
            inner = parsed_text(text)
            if not isinstance(inner, Missing):
                # Do not index the text itself: the strings inside its JSON are indexed later.
                return inner

        if is_new:
            self.texts.add(root, text)

        return None

    def equal(self, value: JSON) -> list[Node]:
        """Return up to `MOST_PLACES` nodes with an equal value, in the order they were added."""
        return list(self._nodes(value))

    def loose(self, value: JSON) -> Iterator[Node]:
        """Yield the nodes with an equal value whose path contains no list position."""
        return self._nodes(value, loose=True)

    def _nodes(self, value: JSON, *, loose: bool = False) -> Iterator[Node]:
        key = _key_of(value)
        for place in self._places.get(key, ()):
            if loose and _is_listed(place):
                continue
            if not isinstance(key, tuple):
                yield _node(place, value, value)
                continue

            # Check the value, because different values can have the same key.
            actual = _value_at(place)
            if same(actual, value):
                yield _node(place, actual, actual)

    def is_cut(self, value: JSON) -> bool:
        """Return whether a value might occur in more places than `equal` returns."""
        if not self.whole:
            return True

        places = self._places.get(_key_of(value), ())
        return len(places) >= MOST_PLACES

    def begins(self, beginning: str) -> bool:
        """Return whether an indexed string or number might begin with `beginning`, which consists
        of marks and a whole word.
        """
        if beginning in self._beginnings:
            return True
        return beginning[0] == "-" or beginning[0].isdigit()

    def notations(self, text: str) -> list[str]:
        """Return the indexed strings that match `text`, ignoring case and surrounding spaces."""
        folded = _folded(text)
        if not folded:
            return []
        return self._notations.get(folded, [])

    def selects(self, holder: Node, name: str, value: JSON, number: int) -> bool:
        """Return whether an item is the first one in its list whose field `name` equals `value`.
        Each field is read only once per list.
        """
        items = holder.inner
        if isinstance(value, list | dict) or not isinstance(items, list):
            return False

        column = (holder.reference, name)
        if column not in self._columns:
            self._columns[column] = _first_places(items, name)

        return self._columns[column].get(_scalar_key(value)) == number


def _first_places(items: list[JSON], name: str) -> dict[tuple[bool, JSON], int]:
    """Return the position of the first item for each value of a field, keyed by `_scalar_key`."""
    places: dict[tuple[bool, JSON], int] = {}
    for place, value in enumerate(column_of(items, name)):
        if not isinstance(value, list | dict | Missing):
            places.setdefault(_scalar_key(value), place)

    return places


def _scalar_key(value: JSON) -> tuple[bool, JSON]:
    """Return a key that is equal only for equal scalars, which is needed because True equals 1 in
    Python.
    """
    return isinstance(value, bool), value


def _key_of(value: JSON) -> object:
    """Return a key for a value: a string or number itself, or a tuple for any other value.

    Equal values have equal keys, but different values can also have equal tuples.
    """
    if isinstance(value, dict):
        return (tuple(sorted(value)[:5]), len(value))
    if isinstance(value, list):
        first: object = value[0] if value else None
        if not isinstance(first, str | int | float):
            first = type(first)
        return (first, len(value))
    if value is None or isinstance(value, bool):
        return (value,)
    return value


def _folded(text: str) -> str:
    return text.strip().casefold()


def _value_at(place: Place) -> JSON:
    holder, key = place
    value = read_path(holder.inner, (str(key),))
    if isinstance(value, Missing):
        return None
    return value


def _node(place: Place, value: JSON, inner: JSON) -> Node:
    holder, key = place
    if holder.value is None:
        # The holder is the node above the document.
        return Node(value, holder.root, inner=inner)
    return Node(value, holder.root, holder, str(key), _is_listed(place), inner)


def _is_listed(place: Place) -> bool:
    holder, key = place
    return holder.listed or isinstance(key, int)
