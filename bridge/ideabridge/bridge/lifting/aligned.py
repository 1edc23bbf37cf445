"""Match the calls in a run to the places in a plan, so that runs of the same task can be compared
place by place.

Theory of operation. A plan lists its calls in places 0, 1, 2. In the original run, these calls have
different numbers, because the plan leaves out failed calls and moves others. In another run of the
task, their numbers differ again. An `AlignedRun` maps each place to a call in its run. All other
code uses places to ask for:

- `leaf`: the value that the call in a place sent, or that the run returned.
- `value`: the value at a source. A source is a place and a path in the result of the call there;
  without a place, it is a path in the input.
- `read`: the value that a reference in the plan reads in this run.
- `source_of`, `source_in_plan`, `reference_to`: the source that a reference reads, and the reverse.

Example. A plan has the calls `list_files(folder="notes")` and `read_file(path="a.txt")`. Another
run of the task sent `folder="plans"` and, after a call that failed, `path="b.txt"`. In that run,
the call that sent `b.txt` has number 2. In both runs, the call to `read_file` is in place 1:

| question | first run | other run |
|---|---|---|
| `leaf(("calls", "1", "path"))` | `a.txt` | `b.txt` |
| `value(ValueSource(0, ("0",)))` | `a.txt` | `b.txt` |
| `read("†results.0.0")` | `a.txt` | `b.txt` |
| `recorded[1]` | 1 | 2 |

So `†results.0.0` explains the path in both runs, and the constant `a.txt` does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.items import items_of
from ideabridge.bridge.context.references import (
    Expression,
    Path,
    PathIndex,
    Reference,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import MISSING, Missing, opened, read
from ideabridge.bridge.lifting.function import Executed, Function
from ideabridge.bridge.lifting.index import is_like_a_map
from ideabridge.bridge.lifting.leaves import keys_below, literal_of, place_in
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a value comes from: the input if `place` is None, otherwise the result of the call at
    `place` in the plan.
    """

    place: int | None
    path: Path

    @property
    def above(self) -> list[tuple[ValueSource, str]]:
        """The lists and objects that contain the value, outermost first, each with the key that
        leads to the next one.
        """
        above: list[tuple[ValueSource, str]] = []
        for depth, key in enumerate(self.path):
            above.append((ValueSource(self.place, self.path[:depth]), key))

        return above


class AlignedRun:
    """A run whose calls are matched to the places of a plan.

    Args:
        function: the run as a function.
        calls: the run's calls, in the order of their places in the plan.
    """

    def __init__(self, function: Function, calls: Sequence[Executed]) -> None:
        self.function = function
        self.calls = calls
        self._opened: dict[int | None, JSON | Missing] = {}

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.function.run.id

    @cached_property
    def recorded(self) -> dict[int, int]:
        """The numbers of the calls that the run made, keyed by their places in the plan."""
        return {place: call.index for place, call in enumerate(self.calls) if call.is_made}

    @cached_property
    def _places(self) -> dict[int, int]:
        return {number: place for place, number in self.recorded.items()}

    # -- values ------------------------------------------------------------------------------------

    def document(self, place: int | None) -> JSON | Missing:
        """Return the input or a call's result, or MISSING if the call has no result."""
        if place is None:
            return self.function.input or {}
        progress = self.calls[place].progress
        if progress.status is not CallStatus.DONE:
            return MISSING
        return progress.value

    def value(self, source: ValueSource) -> JSON | Missing:
        """Return the value at a source."""
        document = self.document(source.place)
        if isinstance(document, str) and source.path:
            # Parse the text of a result only once, because many values are read from it.
            if source.place not in self._opened:
                self._opened[source.place] = opened(document)
            document = self._opened[source.place]

        if isinstance(document, Missing):
            return MISSING
        return read(document, source.path)

    def leaf(self, at: Path) -> JSON | Missing:
        """Return a value in the output or in a call's resolved parameters, or MISSING if the call
        ran several times with different values there.

        Args:
            at: the path of the value in the plan, as in `Explained.at`.
        """
        place = place_in(at)
        keys = keys_below(at)
        if place is None:
            return read(self.function.run.result, keys)

        call = self.calls[place]
        items = call.progress.items
        if not items or keys[0] in ("_each", "_output"):
            written = read(call.raw, keys)
            return MISSING if isinstance(written, Missing) else literal_of(written)

        first, *others = [read(item.parameters, keys) for item in items]
        if isinstance(first, Missing):
            return MISSING

        for value in others:
            if isinstance(value, Missing) or not same(first, value):
                return MISSING

        return first

    def written_reference(self, place: int, keys: Path) -> str | None:
        """Return the reference, with the run's call numbers, that was written at a place, or None
        if a literal was written there.
        """
        written = read(self.calls[place].raw, keys)
        if isinstance(written, str) and is_reference(written):
            return written
        return None

    def read(self, text: str, arguments: JSONObject | None = None) -> JSON | Missing:
        """Return the value that a reference with one operand reads in this run. The reference uses
        the plan's call numbers.

        Args:
            text: the reference.
            arguments: the tool's input for this run, or None for the run's own input.
        """
        source = self.source_at(text)
        if source is None:
            return MISSING
        if source.place is None and arguments is not None:
            return read(arguments, source.path)
        return self.value(source)

    # -- references --------------------------------------------------------------------------------

    def reference_to(self, source: ValueSource) -> str | None:
        """Return the reference with which a plan reads a source, or None if no reference is certain
        to do so.
        """
        if source.place is None:
            return format_reference(("input", *source.path))

        progress = self.calls[source.place].progress
        if progress.status is not CallStatus.DONE or not progress.wrote:
            return None

        target = progress.wrote[0]
        if target[0] == "results":
            return format_reference(("results", str(source.place), *source.path))

        is_only_writer = self._writers.overlapping(target) == {source.place}
        if progress.call.method == "set" and is_only_writer:
            return format_reference((*target, *source.path))
        return None

    @cached_property
    def _writers(self) -> PathIndex:
        """The places of the calls that write to each path."""
        writers = PathIndex()
        for place, call in enumerate(self.calls):
            for path in call.progress.call.writes:
                writers.add(path, place)
        return writers

    def source_of(self, operand: Reference) -> ValueSource | None:
        """Return the source that an operand in the run reads, or None if it reads neither the input
        nor the result of a single call.
        """
        number = _number_of(operand)
        if number is None:
            return self._source_outside_results(operand)

        place = self._places.get(number)
        return None if place is None else ValueSource(place, operand.path[1:])

    def source_in_plan(self, operand: Reference) -> ValueSource | None:
        """Return the source of an operand that uses the plan's call numbers; see `source_of`."""
        place = _number_of(operand)
        if place is None:
            return self._source_outside_results(operand)
        if place >= len(self.calls):
            return None
        return ValueSource(place, operand.path[1:])

    def source_at(self, text: str) -> ValueSource | None:
        """Return the source of a reference with one operand; see `source_in_plan`."""
        [operand] = parse_reference(text).operands()
        return self.source_in_plan(operand)

    def _source_outside_results(self, operand: Reference) -> ValueSource | None:
        """Return the source of an operand that reads the input, or a part of the state set by a
        single call.
        """
        if operand.kind == "input":
            return ValueSource(None, operand.path)
        if operand.kind != "state":
            return None

        writers = self._writers.overlapping(operand.full)
        if len(writers) != 1:
            return None

        [place] = writers
        progress = self.calls[place].progress
        if progress.call.method != "set" or not progress.wrote:
            return None

        target = progress.wrote[0]
        if operand.full[: len(target)] != target:
            return None
        return ValueSource(place, operand.full[len(target) :])

    def sources_of(self, expression: Expression) -> list[ValueSource]:
        """Return every source that an expression might read."""
        sources = map(self.source_of, expression.operands())
        return [source for source in sources if source is not None]


def _number_of(operand: Reference) -> int | None:
    """Return the number of the call whose result an operand reads, or None if it reads something
    else.
    """
    if operand.kind == "results" and operand.path and operand.path[0].isdecimal():
        return int(operand.path[0])
    return None


# -- how a source is selected ----------------------------------------------------------------------

_FIELD_NAME = re.compile(r"[a-z_$][A-Za-z0-9_$-]*")

_KEYS: Final = 20
"""The maximum number of keys that are examined in an object."""


def has_field_names(value: JSONObject) -> bool:
    """Return whether the first twenty keys of an object look like identifiers."""
    return all(_FIELD_NAME.fullmatch(key) for key in islice(value, _KEYS))


def is_data_key(aligned: AlignedRun, source: ValueSource) -> bool:
    """Return whether a path contains a key that looks like data rather than a field name.

    Keys that a schema declares are fields. Any other key might be data if it does not look like an
    identifier, or if the values in its object are all numbers, or all objects of the same form.
    """
    schema = _schema_of(aligned, source.place)
    for holder, key in source.above:
        properties = object_or_empty(schema).get("properties")
        schema = object_or_empty(properties).get(key)
        is_parameter = source.place is None and not holder.path
        if schema is not None or is_parameter:
            continue

        members = opened(aligned.value(holder))
        if not isinstance(members, dict):
            continue
        if is_like_a_map(members) or not _FIELD_NAME.fullmatch(key):
            return True

    return False


def is_position(aligned: AlignedRun, source: ValueSource) -> bool:
    """Return whether a path contains a position in a list that has more than one item."""
    for holder, key in source.above:
        if not key.isdecimal():
            continue
        items = items_of(aligned.value(holder))
        if items is not None and len(items) > 1:
            return True
    return False


def _schema_of(aligned: AlignedRun, place: int | None) -> JSON:
    """Return the schema of the input or of a call's result, or None if there is none."""
    if place is None:
        return aligned.function.input_schema
    tool = aligned.calls[place].progress.call.tool
    return None if tool is None else tool.output
