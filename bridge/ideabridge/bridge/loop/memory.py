"""Memory: the documents of a run, and the writes of the current Solution.

State is an append-only log of writes, read as one JSON object per instance. A document contains
everything that references can read: `{"state": ..., "results": ..., "input": ..., "data": ...}`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from ideabridge.bridge.context import state as document
from ideabridge.bridge.context.errors import MessageError, ReferenceSyntaxError
from ideabridge.bridge.context.messages import Message
from ideabridge.bridge.context.references import (
    KINDS,
    Path,
    PathIndex,
    clipped,
    is_instance_name,
    parse_reference,
    quoted,
)
from ideabridge.bridge.context.state import Method, Missing, StateSchema, merge
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator


@dataclass(frozen=True, slots=True)
class Write:
    """One entry of the log: a value that a call wrote."""

    call: int
    instance: str
    path: Path
    method: Method
    value: JSON

    @property
    def is_result(self) -> bool:
        """True if it is the result of a call without an output path."""
        return self.path[0] == "results" and len(self.path) == 2 and self.method == "set"


class Memory:
    """The documents of a run, by instance ("" if the context names none).

    Attributes:
        base: the documents before the current Solution.
        log: every write, in the order in which calls finished.
    """

    def __init__(self, documents: dict[str, JSON]) -> None:
        self._documents = documents
        # By instance, the results if nothing else has them: a further one is then put in
        # without a copy.
        self._results: dict[str, JSONObject] = {}
        self.base: dict[str, JSON] = dict(documents)
        self.log: list[Write] = []
        self._first = 0
        self._written: dict[str, PathIndex] = {}
        # (call, instance, kind, value) of data that calls of this Solution added with
        # messages, in order.
        self._learned: list[tuple[int, str, str, JSON]] = []

    @property
    def documents(self) -> dict[str, JSON]:
        """The present documents, which whoever asks may keep."""
        self._results = {}
        return self._documents

    def begin(self) -> None:
        """Begin a Solution: the present documents are the value before it."""
        self.base = dict(self.documents)
        self._first = len(self.log)
        self._written = {}
        self._learned = []

    def state(self, instance: str = "") -> JSONObject:
        """The present state of an instance."""
        state = document.read(self._documents.get(instance, {}), ("state",))
        return state if isinstance(state, dict) else {}

    def learn(self, call: int, instance: str, kind: str, value: JSON) -> None:
        """Merge data that a call added into `†data.KIND`."""
        view = self._documents.get(instance)
        if view is not None:
            self._learned.append((call, instance, kind, value))
            self._documents[instance] = _with_data(view, kind, value)

    def tell_errors(self, errors: Iterable[JSONObject]) -> None:
        """Store the errors of the last Solution in `†data.error.PLACE` of every instance, until
        the next one ends.
        """
        by_place: JSONObject = {
            str(error["place"]): error for error in errors if error.get("place") is not None
        }
        for instance, view in self._documents.items():
            data = view.get("data") if isinstance(view, dict) else None
            if isinstance(view, dict) and isinstance(data, dict) and (by_place or "error" in data):
                without_errors: JSONObject = {
                    kind: value for kind, value in data.items() if kind != "error"
                }
                self._documents[instance] = {
                    **view,
                    "data": {**without_errors, **({"error": by_place} if by_place else {})},
                }

    def try_write(self, writes: Iterable[Write]) -> dict[str, JSON]:
        """Return the documents as they are after the writes, for `commit`.

        Raises:
            StateWriteError: a write is impossible.
        """
        changed: dict[str, JSON] = {}
        for entry in writes:
            if entry.is_result:
                # It is certainly possible.
                continue
            old = changed.get(entry.instance, self._documents.get(entry.instance, {}))
            changed[entry.instance] = document.write(old, entry.path, entry.method, entry.value)

        return changed

    def commit(self, writes: Iterable[Write], changed: dict[str, JSON]) -> None:
        """Make writes for which `try_write` returned `changed`."""
        self._documents.update(changed)
        for entry in writes:
            self.log.append(entry)
            self._written.setdefault(entry.instance, PathIndex()).add(entry.path, entry.call)
            if entry.is_result:
                self._put_result(entry)

    def _put_result(self, entry: Write) -> None:
        """Put the result of a call into the documents. Copying all others for each
        would be quadratic.
        """
        view = self._documents.get(entry.instance, {})
        own = self._results.get(entry.instance)
        if own is not None and isinstance(view, dict) and view.get("results") is own:
            own[entry.path[1]] = entry.value
            return

        view = document.write(view, entry.path, "set", entry.value)
        self._documents[entry.instance] = view
        results = document.read(view, ("results",))
        if isinstance(results, dict):
            self._results[entry.instance] = results

    def staged(self) -> Memory:
        """A copy for a group of calls; its writes are visible only to them."""
        copy = Memory(dict(self.documents))
        copy.base = self.base
        copy._learned = [*self._learned]
        return copy

    def absorb(self, staged: Memory) -> None:
        """Take over the writes of a staged copy. Nothing may have been written here
        since it was made.
        """
        self.log.extend(staged.log)
        self._learned = staged._learned
        self._documents.update(staged.documents)

    def read(self, instance: str, path: Path, bound: Collection[int]) -> JSON | Missing:
        """The value that a read bound to the calls `bound` sees: the value before the Solution
        with the writes (or added data) of these calls, the last one winning, and without those
        of other calls.
        """
        if bound and path[0] != "data":
            written = self._written.get(instance)
            overlapping = written.overlapping(path) if written is not None else set[int]()
            if overlapping <= frozenset(bound):
                # No other call wrote to this path, so the read sees the present value.
                documents = self._documents if path[1:] else self.documents
                return document.read(documents.get(instance, {}), path)
        return document.read(self.document(instance, path[0], bound), path)

    def document(self, instance: str, kind: str, bound: Collection[int]) -> JSON:
        """The document of an instance as a read of `†KIND` sees it that is bound to the calls
        `bound`. It does not depend on what other calls have written so far.
        """
        view = self.base.get(instance, {})
        if not bound:
            return view

        wanted = frozenset(bound)
        if kind == "data":
            for call, where, name, value in self._learned:
                if where == instance and call in wanted:
                    view = _with_data(view, name, value)
            return view

        entries = (
            entry
            for entry in self.log[self._first :]
            if entry.call in wanted and entry.instance == instance
        )
        return _written(view, entries)


def _with_data(view: JSON, kind: str, value: JSON) -> JSON:
    """A copy of a document with data merged in; it shares its other parts."""
    if not isinstance(view, dict):
        return view
    data = view.get("data")
    by_kind = data if isinstance(data, dict) else {}
    return {
        **view,
        "data": {**by_kind, kind: merge(by_kind[kind], value) if kind in by_kind else value},
    }


def _written(view: JSON, entries: Iterable[Write]) -> JSON:
    """A document after some writes. Successive pushes to one array become one write, because each
    write copies it.
    """
    for (path, method), group in groupby(entries, key=lambda entry: (entry.path, entry.method)):
        first, *later = [entry.value for entry in group]
        view = document.write(view, path, method, first)
        if method == "push" and later and path[1:]:
            array = document.read(view, path)
        else:
            array = None
        if isinstance(array, list):
            view = document.write(view, path, "set", [*array, *later])
        else:
            for value in later:
                view = document.write(view, path, method, value)
    return view


# -- the documents with which a run begins ---------------------------------------------------------

MAX_INSTANCES = 1_000
MAX_INSTANCE_NAME = 64


@dataclass(slots=True)
class InitialDocuments:
    """What references can read when a run begins.

    Attributes:
        documents: `{"state", "results", "input", "data"}` by instance; "" if the
            context names none.
        instances: the instances, in the order of the context.
        schemas: the state schemas, by instance.
    """

    documents: dict[str, JSON] = field(default_factory=dict[str, JSON])
    instances: list[str] = field(default_factory=list[str])
    schemas: dict[str, StateSchema] = field(default_factory=dict[str, StateSchema])

    def part(self, instance: str, kind: str) -> JSON:
        """The initial `state` or `input` of an instance."""
        part = document.read(self.documents.get(instance, {}), (kind,))
        return {} if isinstance(part, Missing) else part


def check_instance(name: str) -> None:
    """Check that references can contain the name of an instance.

    Raises:
        MessageError: they cannot, or the name is too long.
    """
    if len(name) > MAX_INSTANCE_NAME or not is_instance_name(name):
        raise MessageError(
            f"_instance {quoted(name)}: expected 1 to {MAX_INSTANCE_NAME} characters, "
            "without white space and"
            f' . [ ] | & † ", and none of {KINDS}'
        )


def opening_faults(messages: Iterable[Message], opening: InitialDocuments) -> list[str]:
    """A sentence for each initial state and input that does not satisfy the schema on its message.

    What the schema of a state requires may be written later.
    """
    faults: list[str] = []
    for instance, state_schema in opening.schemas.items():
        try:
            state_schema.check_write(opening.part(instance, "state"))
        except IdeabridgeError as error:
            faults.append(f"{_of(instance)}{error}")

    for message in messages:
        if message.type != "input" or message.schema is None:
            continue
        readers = [message.instance] if message.instance else (opening.instances or [""])
        validator = Validator(message.schema, what="the input")
        for instance in readers:
            try:
                validator.check(opening.part(instance, "input"))
            except IdeabridgeError as error:
                faults.append(f"{_of(instance)}{error}")

    return faults


def _of(instance: str) -> str:
    return f"instance {clipped(instance)}: " if instance else ""


def initial_documents(messages: Iterable[Message]) -> InitialDocuments:
    """Build the documents of a context. Data of one kind and instance are merged. All instances see
    the input without an instance, merged with their own.

    Raises:
        MessageError: too many instances, or an invalid name; see `check_instance`.
    """
    opening = InitialDocuments()
    own: dict[str, dict[str, JSONObject]] = {"": {"input": {}, "state": {}, "data": {}}}
    schemas: dict[str, JSONObject] = {}
    for message in messages:
        if message.type == "call":
            _add_earlier_result(own[""]["data"], message.value)

        if message.type not in ("input", "state", "data"):
            continue

        name = message.instance
        if name and name not in own:
            check_instance(name)
            opening.instances.append(name)
            if len(opening.instances) > MAX_INSTANCES:
                raise MessageError(f"more than {MAX_INSTANCES:,} instances in one context")

        parts = own.setdefault(name, {"input": {}, "state": {}, "data": {}})
        if message.type == "data":
            old = parts["data"].get(message.kind)
            if old is None:
                parts["data"][message.kind] = message.value
            else:
                parts["data"][message.kind] = merge(old, message.value)
        elif isinstance(message.value, dict):
            merged = merge(parts[message.type], message.value)
            parts[message.type] = merged if isinstance(merged, dict) else {}

        if message.type == "state" and message.schema is not None:
            schemas[name] = message.schema

    opening.schemas = {
        name: StateSchema(schema, own[name]["state"]) for name, schema in schemas.items()
    }
    common = own[""]
    for name, parts in own.items():
        shared = {
            kind: merge(common[kind], parts[kind]) if name else parts[kind]
            for kind in ("input", "data")
        }
        opening.documents[name] = {"state": parts["state"], "results": {}, **shared}

    return opening


def _add_earlier_result(data: JSONObject, call: JSON) -> None:
    """Add to the data what a call of another run has made, as the context of a room has it:
    `†data.results.PLACE`.
    """
    if not isinstance(call, dict) or "result" not in call:
        return

    try:
        path = next(parse_reference(str(call.get("value"))).operands()).full
    except ReferenceSyntaxError:
        return

    if path[0] == "data" and len(path) > 1:
        value: JSON = call["result"]
        for key in reversed(path[2:]):
            value = {key: value}
        data[path[1]] = merge(data[path[1]], value) if path[1] in data else value
