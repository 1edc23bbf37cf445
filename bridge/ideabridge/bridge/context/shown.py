"""Decide how much of the result of each call a Request shows to its mind.

A Request shows everything that the context's author wrote in full. A *result* is a value that a
call returned: the `result` of a `call` message, or the part of a state (or of data) to which the
`value` of a `call` message points. `Showing` decides which results are shown in full. It selects
results as long as they fit into `Shown`: first the results of the tool for reading parts of values,
then all others, newest first in both groups. Each remaining result appears as `{"shortened":
reference, "type", "bytes", "preview"}`, and the text around it says so.

All of this depends only on the messages, so a Request can be recreated from its stored context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.preview import line_of, reference_to
from ideabridge.bridge.context.references import Path, Reference, format_reference, parse_reference
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.tools.encoding import JSON, JSONObject, encode, list_or_empty
from ideabridge.tools.errors import ArgumentError
from ideabridge.tools.names import joined

LEAST_BYTES: Final = 256
"""The smallest value that a limit can have, in bytes."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""The largest value that a limit can have, in bytes."""

_LISTED_CALLS: Final = 50
"""How many of the last calls are always listed."""

_PREVIEWS: Final = 8
"""The previews in states can take up `Shown.request` divided by this number, but at least 2 KB."""

_TWICE: Final = 64
"""The size, in bytes, below which a result is shown with its call even if data also contains the
result.
"""

_MOST_NAMED: Final = 5
"""The maximum number of references to shortened values named in one sentence."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The limits, in bytes, on the results that a Request shows.

    Attributes:
        value: the maximum size, in bytes of JSON, of a result that is shown in full.
        request: the maximum total size, in bytes of JSON, of the results that are shown in full.
    """

    value: int
    request: int

    def with_changes(self, changes: Mapping[str, int]) -> Shown:
        """Return these limits with some of them replaced."""
        return replace(self, **changes)

    @property
    def largest(self) -> int:
        """The maximum size, in bytes, of a result that can be shown in full."""
        return min(self.value, self.request)

    def to_json(self) -> JSONObject:
        """Return `{"value": bytes, "request": bytes}`, as stored in Requests and ideas."""
        return {"value": self.value, "request": self.request}

    @classmethod
    def from_json(cls, stored: JSONObject) -> Shown:
        """Read limits written by `to_json`."""
        value = stored.get("value")
        request = stored.get("request")
        if not isinstance(value, int) or not isinstance(request, int):
            raise ValueError(
                f"shown: expected value and request in bytes, found {list(stored)[:5]}"
            )
        return cls(value, request)


def read_shown(raw: object) -> dict[str, int]:
    """Read the setting `shown`, `{"value"?: bytes, "request"?: bytes}`.

    Raises:
        ArgumentError: the setting is not an object with these members, or a number is not from
            `LEAST_BYTES` to `MOST_BYTES`.
    """
    if not isinstance(raw, Mapping):
        raise ArgumentError.of("shown", 'an object such as {"value": 8192}', raw)

    limits: dict[str, int] = {}
    for name, value in cast("Mapping[object, object]", raw).items():
        if name not in ("value", "request"):
            raise ArgumentError(
                f"shown: expected value and request, in bytes; found {str(name)[:60]!r}"
            )
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not LEAST_BYTES <= value <= MOST_BYTES
        ):
            raise ArgumentError.of(
                f"shown.{name}",
                f"a whole number of bytes from {LEAST_BYTES} to {MOST_BYTES:,}",
                value,
            )
        limits[name] = value

    return limits


TO_MINDS: Final = Shown(16 * 1024, 128 * 1024)
"""The default limits for models, for clients that answer by sampling, and for Python minds."""

TO_HOSTS: Final = Shown(4 * 1024, 32 * 1024)
"""The limits for a host that answers turn by turn. Such a host pays for every byte, and can also
read values with `check_run`.
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of several values, in bytes.

    Attributes:
        total: the size of all values together.
        largest: the size of the largest value.
    """

    total: int = 0
    largest: int = 0

    def with_one(self, size: int) -> Sizes:
        """Return the sizes with one further value included."""
        return Sizes(self.total + size, max(self.largest, size))


class Measures:
    """The measurements of values and calls for the last Request. They are cached, so that a long
    run measures only what is new.
    """

    def __init__(self) -> None:
        # Each entry keeps its value alive so that the id cannot be reused.
        self._last: dict[int, tuple[JSON, int]] = {}
        self._now: dict[int, tuple[JSON, int]] = {}
        self._last_lines: dict[int, tuple[JSON, str]] = {}
        self._lines: dict[int, tuple[JSON, str]] = {}
        self._entries: list[JSONObject] = []
        self._made: list[MadeCall] = []
        self._sizes = Sizes()

    def begin(self) -> None:
        """Begin a Request. Sizes and lines that this Request does not use are dropped when the next
        one begins.
        """
        self._last = self._now
        self._now = {}
        self._last_lines = self._lines
        self._lines = {}

    def line(self, value: JSON) -> str:
        """Return the JSON of a value on one line. For an object or array that has not changed, it
        is computed only once.
        """
        if not isinstance(value, dict | list):
            return line_of(value)

        key = id(value)
        entry = self._lines.get(key) or self._last_lines.get(key)
        if entry is None or entry[0] is not value:
            entry = (value, line_of(value))

        self._lines[key] = entry
        return entry[1]

    def size(self, value: JSON) -> int:
        """Return the size of a value in bytes of JSON."""
        key = id(value)
        entry = self._now.get(key) or self._last.get(key)
        if entry is None or entry[0] is not value:
            entry = (value, len(encode(value)))
        self._now[key] = entry
        return entry[1]

    def calls(self, entries: Sequence[JSONObject]) -> Sequence[MadeCall]:
        """Return the calls in `call` messages. The messages of a run never change, and each Request
        contains all messages of the last one.
        """
        unchanged = len(self._entries)
        if len(entries) < unchanged or not all(map(is_, entries, self._entries)):
            unchanged = 0
            self._entries = []
            self._made = []
            self._sizes = Sizes()

        for entry in entries[unchanged:]:
            call = MadeCall.of(entry)
            self._entries.append(entry)
            self._made.append(call)
            if call.result is not None:
                self._sizes = self._sizes.with_one(call.result.size)

        return self._made

    @property
    def of_calls(self) -> Sizes:
        """The sizes of the results that no state contains, for the calls most recently passed to
        `calls`.
        """
        return self._sizes


Place: TypeAlias = tuple[str, Path]
"""The place of a state, or of the data of one kind, among the documents that references read:
(instance or "", path).
"""


@dataclass(slots=True)
class _Result:
    """A value that a call returned.

    Attributes:
        call: the number of the call among the `call` messages. If several calls wrote the value,
            this is the last of them.
        is_read: whether a call to the reading tool returned the value.
        reference: the reference to the value.
        value: the value of the result.
        size: the size of the value in bytes of JSON.
        place: the message that contains the value, or None if the call's own message contains it.
        path: the path to the result within that message's value.
    """

    call: int
    is_read: bool
    reference: Reference
    value: JSON
    size: int
    place: Place | None = None
    path: Path = ()

    @property
    def written(self) -> str:
        """The reference in a form that a call in any instance can use."""
        return format_reference(self.reference.full, self.reference.instance)


@dataclass(slots=True)
class MadeCall:
    """A call, as described by its message.

    Attributes:
        entry: the value of the message.
        references: references to where the call wrote its value.
        result: the result of the call, if no state contains it.
        line: the line that shows the whole result, once created.
    """

    entry: JSONObject
    references: list[Reference]
    result: _Result | None
    line: str | None = None

    @classmethod
    def of(cls, entry: JSONObject) -> MadeCall:
        """Read the value of a `call` message."""
        references = list(_references(entry))
        result = None
        if "result" in entry and references:
            value = entry["result"]
            result = _Result(-1, "reads" in entry, references[0], value, len(encode(value)))
        return cls(entry, references, result)


@dataclass(slots=True)
class _Writes:
    """The paths in one message that calls wrote to."""

    paths: dict[Path, tuple[int, bool]] = field(default_factory=dict[Path, tuple[int, bool]])

    def outermost(self) -> Iterator[tuple[Path, int, bool]]:
        """Yield (path, its last writer, whether that is a call to the reading tool) for every path
        that is not inside another path.
        """
        top: Path | None = None
        last = -1
        was_read = False
        # In sorted order, a path comes before all the paths that it contains.
        for path in sorted(self.paths):
            call, is_read = self.paths[path]
            if top is not None and path[: len(top)] == top:
                if call > last:
                    last = call
                    was_read = is_read
                continue

            if top is not None:
                yield top, last, was_read

            top = path
            last = call
            was_read = is_read

        if top is not None:
            yield top, last, was_read


@dataclass(slots=True)
class ShownDocument:
    """A state or data, as shown to a mind.

    Attributes:
        value: the value, in which the shortened parts are objects with the member `shortened`.
        shortened: references to these parts.
        left_out: references to the parts that are omitted entirely.
    """

    value: JSON
    shortened: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])


def _priority(result: _Result) -> tuple[bool, int]:
    """Return the sort key for the priority of results: results of the reading tool first, then the
    newest results.
    """
    return result.is_read, result.call


class Showing:
    """Decides which results a Request shows in full, and how the others appear.

    Args:
        calls: the values of the `call` messages, in order.
        documents: the values of state and data messages, keyed by place.
        shown: the limits.
        measures: the measurements from the last Request.
        added: what calls have added to data: the paths of the added parts, keyed by the document's
            place.

    Attributes:
        unlisted: the calls without a line, which are early calls whose results are not shown.
        is_shortened: whether at least one result is not shown in full.
        line: writes a value's JSON on one line.
    """

    def __init__(
        self,
        calls: Sequence[JSONObject],
        documents: Mapping[Place, JSON],
        shown: Shown,
        measures: Measures | None = None,
        added: Mapping[Place, Sequence[Path]] | None = None,
    ) -> None:
        self.is_shortened = False
        self._added = added or {}
        self._documents = documents
        self._measures = measures or Measures()
        self._measures.begin()
        self.line = self._measures.line
        self._cut: set[int] = set()
        self._short: dict[Place, list[_Result]] = {}
        self._preview_bytes = max(shown.request // _PREVIEWS, 2048)
        self._calls = self._measures.calls(calls)
        self._in_data = self._find_in_data() if self._added else {}
        self._choose(self._calls, shown)
        earlier = self._calls[: max(0, len(self._calls) - _LISTED_CALLS)]
        self.unlisted = [
            call
            for call in earlier
            if call.result is None or id(call.result) in self._cut or id(call) in self._in_data
        ]

    def _choose(self, calls: Sequence[MadeCall], shown: Shown) -> None:
        """Find the results that are not shown in full."""
        # Count only whole documents, because the results inside them are included in their size.
        sizes = self._measures.of_calls
        for value in self._documents.values():
            sizes = sizes.with_one(self._measures.size(value))

        if sizes.total <= shown.request and sizes.largest <= shown.value:
            return

        left = shown.request
        for result in sorted(self._results_of(calls), key=_priority, reverse=True):
            if result.size <= shown.value and result.size <= left:
                left -= result.size
                continue

            self.is_shortened = True
            self._cut.add(id(result))
            if result.place is not None:
                self._short.setdefault(result.place, []).append(result)

    def _results_of(self, calls: Sequence[MadeCall]) -> Iterator[_Result]:
        """Yield every result. Results in one state count as one if one contains the other."""
        writes: dict[Place, _Writes] = {}
        for number, call in enumerate(calls):
            if call.result is not None:
                if id(call) not in self._in_data:
                    call.result.call = number
                    yield call.result
                continue

            for reference in call.references:
                place, path = self._within(reference)
                if place is not None:
                    is_read = "reads" in call.entry
                    writes.setdefault(place, _Writes()).paths[path] = (number, is_read)

        for place, paths in self._added.items():
            # For data that is not a result, it is unknown which call added it, so assume the latest
            # possible call.
            numbers = [
                number for number, call in enumerate(calls) if self._in_data.get(id(call)) == place
            ]
            for path in paths:
                newest = max(numbers, default=len(calls))
                writes.setdefault(place, _Writes()).paths.setdefault(path, (newest, False))

        for place, written in writes.items():
            instance, base = place
            for path, number, is_read in written.outermost():
                value = read(self._documents[place], path)
                if isinstance(value, Missing):
                    continue

                full = (*base, *path)
                reference = Reference(instance or None, full[0], full[1:], "")
                yield _Result(
                    number, is_read, reference, value, self._measures.size(value), place, path
                )

    def _find_in_data(self) -> dict[int, Place]:
        """Return the place of the data that contains the whole result, for each call that returned
        a message.
        """
        by_key: dict[tuple[str, str], list[Place]] = {}
        plain: dict[str, list[Place]] = {}
        for place in self._added:
            value = self._documents[place]
            if isinstance(value, dict):
                for key in value:
                    by_key.setdefault((place[0], key), []).append(place)
            else:
                plain.setdefault(place[0], []).append(place)

        place_of_call: dict[int, Place] = {}
        for call in self._calls:
            result = call.result
            if result is None or result.size < _TWICE:
                continue

            instance = result.reference.instance or ""
            if isinstance(result.value, dict):
                places = by_key.get((instance, next(iter(result.value))), [])
            else:
                places = plain.get(instance, [])

            place = next(
                (
                    candidate
                    for candidate in places
                    if _holds(self._documents[candidate], result.value)
                ),
                None,
            )
            if place is not None:
                place_of_call[id(call)] = place

        return place_of_call

    def in_data(self, call: MadeCall) -> str | None:
        """Return the reference to the data that contains the whole result of a call, or None if no
        data contains it.
        """
        place = self._in_data.get(id(call))
        return None if place is None else format_reference(place[1], place[0] or None)

    def _within(self, reference: Reference) -> tuple[Place | None, Path]:
        """Return the place of the document that contains the value of a reference, and the path
        inside that document.
        """
        full = reference.full
        depth = 2 if reference.kind == "data" else 1
        place = (reference.instance or "", full[:depth])
        return (place, full[depth:]) if place in self._documents else (None, ())

    def listed(self, calls: Sequence[JSONObject]) -> list[MadeCall]:
        """Return the calls that have a line.

        If a handler has changed a call, it is shown as the handler left it.
        """
        listed: Sequence[MadeCall] = self._calls
        if len(calls) != len(listed) or not all(map(is_, calls, [call.entry for call in listed])):
            by_entry = {id(call.entry): call for call in listed}
            listed = [by_entry.get(id(call)) or MadeCall.of(call) for call in calls]

        if not self.unlisted:
            return list(listed)

        unlisted = set(map(id, self.unlisted))
        return [call for call in listed if id(call) not in unlisted]

    def preview(self, result: _Result) -> JSONObject | None:
        """Return `{"type", "bytes", "preview"}` for the result of a call, or None if the result is
        shown in full.
        """
        if id(result) not in self._cut:
            return None
        short = reference_to(
            result.value, result.reference.full, size=result.size, text=_TEXT_OF_CALL
        )
        del short["reference"]
        return short

    def document(self, place: Place, value: JSON) -> ShownDocument:
        """Return a state or data as it is shown.

        Args:
            place: where the state or data is among the documents.
            value: the value of the message that contains it. If a handler has changed the message,
                the value is shown as the handler left it.
        """
        short = self._short.get(place, [])
        if not short or self._documents.get(place) is not value:
            return ShownDocument(value)

        tree: _Tree = {}
        document = ShownDocument(value)
        for result in short:
            written = result.written
            entry: JSON = None
            if self._preview_bytes > 0:
                full = result.reference.full
                instance = result.reference.instance
                whole = reference_to(result.value, full, instance, size=result.size)
                entry = {"shortened": whole.pop("reference"), **whole}
                self._preview_bytes -= len(encode(entry))
                document.shortened.append(written)
            else:
                document.left_out.append(written)

            if not result.path:
                document.value = entry
                return document

            _put(tree, result.path, entry)

        document.value = _replaced(value, tree)
        return document


def _references(call: JSONObject) -> Iterator[Reference]:
    """Yield references to where a call wrote its value."""
    also = call.get("also")
    for text in (call.get("value"), *list_or_empty(also)):
        if not isinstance(text, str):
            continue
        try:
            operands = [*parse_reference(text).operands()]
        except ReferenceSyntaxError:
            # In a context that was written by hand, a reference can be any text, so skip it if it
            # is malformed.
            continue
        yield operands[0]


def _holds(document: JSON, value: JSON) -> bool:
    """Return whether a document already contains a value, so that merging the value would change
    nothing.
    """
    if document is value:
        return True
    if isinstance(document, dict) and isinstance(value, dict):
        return all(key in document and _holds(document[key], item) for key, item in value.items())
    # Compare the JSON, too, because 1 and True are equal in Python but not in JSON.
    return document == value and encode(document) == encode(value)


def paths_of(added: JSON, own: JSON | Missing) -> Iterator[Path]:
    """Yield the paths at which a document contains parts of the data that was merged into it.

    Args:
        added: the data that was merged.
        own: the part of the document that the author of the context wrote.
    """
    if not isinstance(added, dict) or not isinstance(own, dict):
        yield ()
        return
    for key, item in added.items():
        for path in paths_of(item, own.get(key, MISSING)):
            yield (key, *path)


_TEXT_OF_CALL: Final = 160
"""The maximum number of characters of one string that the preview of a result shows. The preview is
part of the line that shows the call.
"""

_Tree: TypeAlias = "dict[str, _Tree | _Leaf]"


@dataclass(frozen=True, slots=True)
class _Leaf:
    entry: JSON


def _put(tree: _Tree, path: Path, entry: JSON) -> None:
    for key in path[:-1]:
        below = tree.setdefault(key, {})
        if isinstance(below, _Leaf):
            return
        tree = below
    tree[path[-1]] = _Leaf(entry)


def _replaced(value: JSON, tree: _Tree) -> JSON:
    """Return a copy of a value with the parts at the paths in the tree replaced by the tree's
    entries.

    A part whose entry is null is omitted or, in a list, replaced by the text `(left out)`.
    """
    if isinstance(value, dict):
        members: JSONObject = {}
        for key, item in value.items():
            below = tree.get(key)
            if isinstance(below, _Leaf):
                if below.entry is not None:
                    members[key] = below.entry
            else:
                members[key] = item if below is None else _replaced(item, below)

        return members

    if isinstance(value, list):
        items: list[JSON] = []
        for number, item in enumerate(value):
            below = tree.get(str(number))
            if isinstance(below, _Leaf):
                items.append(below.entry if below.entry is not None else "(left out)")
            else:
                items.append(item if below is None else _replaced(item, below))

        return items

    return value


def named(references: Sequence[str]) -> str:
    """Return references for use in a sentence. If there are many, only the first few are named."""
    return joined(references, _MOST_NAMED)
