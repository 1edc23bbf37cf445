"""Put the calls from several Requests into one list that preserves their data dependencies and the
order of their effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, pairwise
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.references import (
    DAGGER,
    Expression,
    Path,
    PathIndex,
    Reference,
    format_reference,
    holes_in,
    map_references,
    parse_reference,
)
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.function import Executed
from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.graph import emission
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.tools.encoding import JSON, JSONObject

_MOST_AT_ONCE: Final = 16
"""The maximum number of calls with effects from one Request that the plan can run at the same time.
If there are more calls, each call waits for the call before it.
"""

_AS_WRITTEN: Final = frozenset(
    {"_outputPath", "_id", "_after", "_tool", "_module", "_outputMethod", "_instance"}
)
"""The meta-properties that contain no references to results."""


# -- order of data ---------------------------------------------------------------------------------


def in_data_order(calls: Sequence[Executed]) -> list[Executed]:
    """Sort the calls so that each call reads only results of earlier ones, keeping the original
    order where possible.
    """
    by_index = {call.index: call for call in calls}
    data: dict[int, list[int]] = {}
    is_in_order = True
    for call in calls:
        suppliers = _reads_of(call.progress.call) & by_index.keys()
        data[call.index] = sorted(suppliers)
        if any(supplier >= call.index for supplier in suppliers):
            is_in_order = False

    if is_in_order:
        return list(calls)

    # Keep the order of the run wherever the data flow allows it.
    original_order = {after: [before] for before, after in pairwise(by_index)}
    in_order = chain.from_iterable(emission(data, original_order))
    return [by_index[index] for index in in_order]


def _reads_of(call: Call) -> set[int]:
    """Return the numbers of the calls whose results the call reads."""
    indices: set[int] = set()
    for read_value in call.reads:
        for _, writers in read_value.sources():
            indices.update(writers)

    return indices


def arrange(
    calls: Sequence[Executed], output: JSON
) -> tuple[list[Executed], list[JSONObject], JSON]:
    """Return the calls that belong in the plan as they ran, the same calls as the plan lists them,
    and the output of the plan.

    In the last two, `†results.N` refers to places in the plan.

    Args:
        calls: the calls, sorted by data dependency.
        output: the output as written.

    Raises:
        PublicationError: a call or the output reads the result of a call that is left out.
    """
    arranged: list[Executed] = []
    written: list[JSONObject] = []
    places: dict[int, int] = {}
    for call in calls:
        try:
            listed = _renumbered_call(call.raw, places)
        except _GoneError as error:
            if call.progress.status is CallStatus.SKIPPED:
                # The run took a different branch, so it skipped this call.
                continue
            raise PublicationError(
                f"{call.progress.call.label} reads {error}, which is left out"
            ) from None

        places[call.index] = len(arranged)
        arranged.append(call)
        written.append(listed)

    try:
        return arranged, written, _renumbered(output, places)
    except _GoneError as error:
        raise PublicationError(f"the output reads {error}, which is left out") from None


class _GoneError(Exception):
    """Raised when a reference cannot be resolved, because it reads the result of a call that is
    left out.
    """


def _renumbered_call(raw: JSONObject, places: Mapping[int, int]) -> JSONObject:
    call: JSONObject = {}
    for key, value in raw.items():
        if key in _AS_WRITTEN:
            call[key] = value
        elif key == "_imports" and isinstance(value, list):
            call[key] = [_renumbered(_with_dagger(item), places) for item in value]
        else:
            call[key] = _renumbered(value, places)

    return call


def _with_dagger(item: JSON) -> JSON:
    if isinstance(item, str) and not item.startswith(DAGGER):
        return f"{DAGGER}{item}"
    return item


def _renumbered(value: JSON, places: Mapping[int, int]) -> JSON:
    """Return a value as written, with its references to results renumbered to places in the
    plan.
    """
    return map_references(value, partial(_renumbered_reference, places=places))


def _renumbered_reference(text: str, places: Mapping[int, int]) -> str:
    try:
        expression = parse_reference(text)
    except ReferenceSyntaxError:
        return text

    if all(_in_place(operand, places) == operand.text for operand in expression.operands()):
        # If no operand changes, return the reference exactly as it was written, including its
        # spaces.
        return text

    alternatives: list[str] = []
    for operands in expression.alternatives:
        in_plan = [_in_place(operand, places) for operand in operands]
        texts = [operand for operand in in_plan if operand is not None]
        if len(texts) < len(operands):
            # This alternative reads the result of a call that is left out, so leave out the
            # alternative, too.
            continue
        alternatives.append(" && ".join(texts))

    if not alternatives:
        raise _GoneError(expression.text)
    return " || ".join(alternatives)


def _in_place(operand: Reference, places: Mapping[int, int]) -> str | None:
    """Return the operand with the call's place in the plan instead of its number in the run, or
    None if the call is left out.
    """
    if operand.kind != "results" or not operand.path:
        return operand.text

    call, *below = operand.path
    if not call.isdecimal():
        return operand.text

    number = int(call)
    place = places.get(number)
    if place is None:
        return None
    if place == number:
        return operand.text
    return format_reference(("results", str(place), *below), operand.instance)


# -- order of effects ------------------------------------------------------------------------------


def keep_order(
    calls: Sequence[Executed], written: Sequence[JSONObject], arguments: JSONObject
) -> list[set[int]]:
    """Preserve the order of calls from different Requests that might have effects or write to the
    same path, by adding `_after` to the entries in `written`, and `_id` where needed.

    Args:
        calls: the executed calls, in the order of their places in the plan, which is sorted by data
            dependency.
        written: the calls as the plan lists them.
        arguments: the input of the run.

    Returns:
        For each place, the set of earlier places that the call there must now also wait for.
    """
    waits = _waits_of(calls, written, arguments)
    ids = _Ids(calls, written)
    added: list[set[int]] = [set() for _ in calls]
    past = _Past()
    # For each Request, the places of its calls.
    by_step: dict[int, list[int]] = {}
    for place, call in enumerate(calls):
        by_step.setdefault(call.step, []).append(place)

    for _, places in sorted(by_step.items()):
        effects = [place for place in places if not calls[place].reads_only]
        # For each call in a chain, the call before it.
        previous: dict[int, int] = {}
        if len(effects) > _MOST_AT_ONCE:
            previous = {after: before for before, after in pairwise(effects)}
            # Waiting for the last call in the chain means waiting for all of them.
            effects = effects[-1:]

        for place in places:
            if place in previous:
                added[place] = {previous[place]}
            else:
                added[place] = past.before(calls[place])

        past.add(calls, places, effects)

    for place, call in enumerate(written):
        added[place] -= waits[place]
        if not added[place]:
            continue

        after = call.get("_after", [])
        names = after if isinstance(after, list) else [after]
        new_names = [ids.of(earlier) for earlier in sorted(added[place])]
        call["_after"] = [*names, *new_names]

    return added


def _waits_of(
    calls: Sequence[Executed], written: Sequence[JSONObject], arguments: JSONObject
) -> list[set[int]]:
    """Return, for each place, the calls that the call there already waits for because of data or
    its own `_after`.
    """
    places = {call.index: place for place, call in enumerate(calls)}
    writers = PathIndex()
    waits: list[set[int]] = []
    for place, executed in enumerate(calls):
        call = executed.progress.call
        waiting: set[int] = set()
        for index in call.edges or ():
            if index in places:
                waiting.add(places[index])

        for expression in _expressions_in(written[place]):
            waiting |= _writers_read(expression, writers, arguments)

        waits.append(waiting)
        for path in call.writes:
            if path[0] == "results":
                # The path has the number of the call in the run.
                path = ("results", str(place))
            writers.add(path, place)

    return waits


def _expressions_in(call: JSONObject) -> list[Expression]:
    """Return the references that a call reads."""
    parameters = {key: value for key, value in call.items() if key not in _AS_WRITTEN}
    return [hole.expression for hole in holes_in(parameters)]


def _writers_read(expression: Expression, writers: PathIndex, arguments: JSONObject) -> set[int]:
    """Return the calls that write the values that an expression reads.

    Alternatives after one that certainly exists are never read, so they do not count.
    """
    places: set[int] = set()
    for operands in expression.alternatives:
        for operand in operands:
            places |= writers.overlapping(operand.full)

        is_certain = all(_is_input(operand, arguments) for operand in operands)
        if is_certain:
            break

    return places


def _is_input(operand: Reference, arguments: JSONObject) -> bool:
    """Return whether an operand reads a value that exists in the input."""
    if operand.kind != "input":
        return False

    value = read(arguments, operand.path)
    return not isinstance(value, Missing)


@dataclass
class _Past:
    """The calls from earlier Requests that a later call must wait for, leaving out those that they
    themselves wait for.

    Attributes:
        effects: the calls with effects from the latest Request that had such calls.
        reads: the reading calls from this Request and from later Requests.
        writers: for each path in the state, the last calls that wrote to the path or below it.
    """

    effects: set[int] = field(default_factory=set[int])
    reads: set[int] = field(default_factory=set[int])
    writers: dict[Path, set[int]] = field(default_factory=dict[Path, set[int]])

    def before(self, call: Executed) -> set[int]:
        """Return the calls that a call must wait for."""
        places = set(self.effects)
        if not call.reads_only:
            places |= self.reads

        for path in call.progress.call.writes:
            places.update(self.writers.get(path, ()))
            for length in range(len(path)):
                # A call that wrote a whole value above the path has written the path, too.
                above = path[:length]
                places.update(self.writers.get((*above, _WHOLE), ()))

        return places

    def add(self, calls: Sequence[Executed], places: Iterable[int], effects: Sequence[int]) -> None:
        """Add the calls from the next Request. Later calls wait for those in `effects`."""
        reads = {place for place in places if calls[place].reads_only}
        if effects:
            self.effects = set(effects)
            self.reads = reads
        else:
            self.reads |= reads

        for place in places:
            for path in calls[place].progress.call.writes:
                for length in range(1, len(path)):
                    above = path[:length]
                    self.writers.setdefault(above, set()).add(place)

                self.writers[path] = {place}
                self.writers[*path, _WHOLE] = {place}


_WHOLE: Final = "†whole"
"""A key that does not occur in any path. A path with this key at its end leads to the calls that
wrote to exactly this path.
"""


class _Ids:
    """Gives each call a unique id, and preserves the meaning of `_after`."""

    def __init__(self, calls: Sequence[Executed], written: Sequence[JSONObject]) -> None:
        self._written = written
        self._ids_in_use: set[str] = set()
        self._numbers: dict[str, int] = {}
        # For each Request, the ids in the plan, keyed by the id in the run.
        ids_by_step: dict[int, dict[str, str]] = {}
        for call, listed in zip(calls, written, strict=True):
            ids_of_step = ids_by_step.setdefault(call.step, {})
            own = call.progress.call.id
            if own is not None:
                ids_of_step[own] = self._free(own)
                listed["_id"] = ids_of_step[own]

        # An id refers to a call in the same Request or, if that Request has no call with the id, to
        # the latest earlier call that has it.
        ids: dict[str, str] = {}

        def step_of(place: int) -> int:
            return calls[place].step

        in_order = sorted(range(len(calls)), key=step_of)
        for step, places in groupby(in_order, key=step_of):
            ids |= ids_by_step[step]
            for place in places:
                after = calls[place].progress.call.after
                if after:
                    # A call that is left out had already ended, so nothing needs to wait for it.
                    written[place]["_after"] = [ids[own] for own in after if own in ids]

    def _free(self, own: str) -> str:
        name = own
        # Continue with the last number tried, because several Requests might use the same id.
        number = self._numbers.get(own, 2)
        while name in self._ids_in_use:
            name = f"{own}_{number}"
            number += 1

        self._numbers[own] = number
        self._ids_in_use.add(name)
        return name

    def of(self, place: int) -> str:
        """Return the id of the call at a place."""
        call = self._written[place]
        if "_id" not in call:
            call["_id"] = self._free(f"call_{place}")
        return str(call["_id"])
