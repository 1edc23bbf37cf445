"""The documents of a run, and the writes of the current Solution.

The state is an append-only log of writes, which is read as one JSON object per instance. A document
contains everything that references can read: `{"state": ..., "results": ..., "input": ..., "data":
...}`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby

from ideabridge.bridge.context import state as document
from ideabridge.bridge.context.references import Path, PathIndex
from ideabridge.bridge.context.state import Method, Missing, merge
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty


@dataclass(frozen=True, slots=True)
class Write:
    """An entry in the log: a value that a call wrote."""

    call: int
    instance: str
    path: Path
    method: Method
    value: JSON

    @property
    def is_result(self) -> bool:
        """True if the write is the result of a call without an output path."""
        # The path of a result is `results.PLACE`.
        return self.path[0] == "results" and len(self.path) == 2 and self.method == "set"


@dataclass(frozen=True, slots=True)
class _LearnedData:
    """Data that a call added to `†data.KIND` of an instance through a message."""

    call: int
    instance: str
    kind: str
    value: JSON


class Memory:
    """The documents of a run, keyed by instance ("" if the context names no instances).

    Attributes:
        base: the documents before the current Solution.
        log: every write, in the order in which calls finished.
    """

    def __init__(self, documents: dict[str, JSONObject]) -> None:
        self._documents = documents
        # Maps each instance to its results object. Nothing else refers to this object, so a result
        # can be added without copying it.
        self._results: dict[str, JSONObject] = {}
        self.base: dict[str, JSONObject] = dict(documents)
        self.log: list[Write] = []
        # The index in the log at which the writes of the current Solution begin.
        self._first = 0
        # For each instance, which calls of the current Solution wrote to which paths.
        self._writers: dict[str, PathIndex] = {}
        # The data that calls in this Solution have added, in order.
        self._learned: list[_LearnedData] = []

    @property
    def documents(self) -> dict[str, JSONObject]:
        """The current documents. Callers can keep them, because no later write changes them."""
        self._results = {}
        return self._documents

    def begin(self) -> None:
        """Begin a Solution: the current documents become the values before the Solution."""
        self.base = dict(self.documents)
        self._first = len(self.log)
        self._writers = {}
        self._learned = []

    def state(self, instance: str = "") -> JSONObject:
        """Return the current state of an instance."""
        return object_or_empty(self._documents.get(instance, {}).get("state"))

    def learn(self, call: int, instance: str, kind: str, value: JSON) -> None:
        """Merge data added by a call into `†data.KIND`."""
        view = self._documents.get(instance)
        if view is None:
            return

        self._learned.append(_LearnedData(call, instance, kind, value))
        self._documents[instance] = _with_data(view, kind, value)

    def tell_errors(self, errors: Iterable[JSONObject]) -> None:
        """Store the last Solution's errors in `†data.error.PLACE` of every instance until the next
        Solution ends.
        """
        by_place: JSONObject = {}
        for error in errors:
            place = error.get("place")
            if place is not None:
                by_place[str(place)] = error

        for instance, view in self._documents.items():
            data = object_or_empty(view.get("data"))
            if not by_place and "error" not in data:
                continue

            # Copy the data before changing it, because callers keep the documents that they read.
            new_data = dict(data)
            new_data.pop("error", None)
            if by_place:
                new_data["error"] = by_place
            self._documents[instance] = {**view, "data": new_data}

    def try_write(self, writes: Iterable[Write]) -> dict[str, JSONObject]:
        """Return what the documents would be after the writes, for `commit`.

        Raises:
            StateWriteError: a write is impossible.
        """
        changed: dict[str, JSONObject] = {}
        for entry in writes:
            if entry.is_result:
                # Writing a result cannot fail, so there is nothing to try.
                continue

            old = changed.get(entry.instance)
            if old is None:
                # This is the first of the writes to this instance.
                old = self._documents.get(entry.instance, {})
            changed[entry.instance] = document.write(old, entry.path, entry.method, entry.value)

        return changed

    def commit(self, writes: Iterable[Write], changed: dict[str, JSONObject]) -> None:
        """Perform the writes, given the result `changed` of `try_write`."""
        self._documents.update(changed)
        for entry in writes:
            self.log.append(entry)
            writers = self._writers.setdefault(entry.instance, PathIndex())
            writers.add(entry.path, entry.call)
            if entry.is_result:
                self._put_result(entry)

    def _put_result(self, entry: Write) -> None:
        """Add the result of a call to the documents, if possible without copying them.

        Copying all results for each new result would take quadratic time.
        """
        view = self._documents.get(entry.instance, {})
        own_results = self._results.get(entry.instance)
        # Another write may have replaced the document's results object.
        if own_results is not None and view.get("results") is own_results:
            _, place = entry.path
            own_results[place] = entry.value
            return

        changed = document.write(view, entry.path, "set", entry.value)
        self._documents[entry.instance] = changed
        self._results[entry.instance] = object_or_empty(changed["results"])

    def staged(self) -> Memory:
        """Return a copy for a group of calls. Writes to the copy are visible only to the calls in
        the group.
        """
        copy = Memory(dict(self.documents))
        copy.base = self.base
        copy._learned = list(self._learned)
        return copy

    def absorb(self, staged: Memory) -> None:
        """Adopt the writes to a staged copy.

        This memory must not have changed since the copy was created.
        """
        self.log.extend(staged.log)
        self._learned = staged._learned
        self._documents.update(staged.documents)

    def read(self, instance: str, path: Path, bound: Collection[int]) -> JSON | Missing:
        """Return the value of a read that is bound to the calls in `bound`: the value before the
        Solution, plus only what these calls have written or added as data.

        If several of these calls wrote to the same path, the last write wins.
        """
        kind, *below = path
        if not bound or kind == "data" or self._others_wrote(instance, path, bound):
            return document.read(self.document(instance, kind, bound), path)

        # No other call has written to this path, so the current value is the right one.
        documents = self._documents
        if not below:
            # The call might keep the object with all results, to which later results are added.
            # No later write changes the objects of `documents`.
            documents = self.documents
        return document.read(documents.get(instance, {}), path)

    def _others_wrote(self, instance: str, path: Path, bound: Collection[int]) -> bool:
        """Return whether a call outside `bound` has written to the path in this Solution."""
        writers = self._writers.get(instance)
        if writers is None:
            return False
        return not writers.overlapping(path) <= frozenset(bound)

    def document(self, instance: str, kind: str, bound: Collection[int]) -> JSONObject:
        """Return the document for a read of `†KIND` in the given instance that is bound to the
        calls in `bound`.

        Writes by other calls do not affect this document.
        """
        view = self.base.get(instance, {})
        if not bound:
            return view

        calls = frozenset(bound)
        if kind == "data":
            for data in self._learned:
                if data.call in calls and data.instance == instance:
                    view = _with_data(view, data.kind, data.value)
            return view

        writes: list[Write] = []
        for entry in self.log[self._first :]:
            if entry.instance == instance and entry.call in calls:
                writes.append(entry)

        return _written(view, writes)


def _with_data(view: JSONObject, kind: str, value: JSON) -> JSONObject:
    """Return a copy of a document with data merged in. The copy shares all other parts with the
    original.
    """
    data = object_or_empty(view.get("data"))
    return {**view, "data": merge(data, {kind: value})}


def _written(view: JSONObject, entries: Iterable[Write]) -> JSONObject:
    """Return a document after the given writes."""

    def target(entry: Write) -> tuple[Path, Method]:
        return entry.path, entry.method

    for (path, method), group in groupby(entries, key=target):
        values = [entry.value for entry in group]
        if method == "push" and len(values) > 1 and len(path) > 1:
            # Successive pushes to one array become one write, because each write copies the array.
            view = _pushed(view, path, values)
            continue

        for value in values:
            view = document.write(view, path, method, value)

    return view


def _pushed(view: JSONObject, path: Path, values: list[JSON]) -> JSONObject:
    """Return the document after appending the values to one array."""
    view = document.write(view, path, "push", values[0])
    array = document.read(view, path)
    assert isinstance(array, list), "a push makes an array, or raises"
    return document.write(view, path, "set", [*array, *values[1:]])
