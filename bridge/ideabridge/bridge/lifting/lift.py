"""Lift: turn a finished run, which may have taken several Requests, into one plan for other inputs.

Theory of operation. A mind that solves a task sees values and writes some of them as literals: it calls
`read(path="a.txt")` because an earlier `list` returned `a.txt`. A plan that repeats the literal is right for one input
only. Lifting looks for the origin of each literal, and names everything that it cannot prove.

1. `read_function` (function.py) reads the journal of the run: its input, the calls that ran, and its output.
2. `arrange` puts the calls of all Requests into one list, in the order of their data, and renumbers `†results.N`.
   `keep_order` adds `_after` where two calls of different Requests may have effects or write to one path.
3. `leaves_of` (origins.py) lists the leaves: every part of the parameters and of the output. `origins_of` lists for
   each literal the places from which it may come: the input, and results that existed before its Request.
4. `runs_like` finds other runs of the same task (`AlignedRun`). An origin that disagrees with one of them is dropped.
   If runs with different values leave exactly one origin, the leaf becomes a reference to it (`Leaf.taken`).
5. `apply_choices` (draft.py) inserts these references and the choices of a person; `asks_of` (asking.py) lists what a
   person must still accept; `publish` refuses a draft while this list is not empty.

Invariants. With the recorded results, the plan makes the recorded calls and returns the recorded output
(`PlanDraft.difference`). An element of a list is never selected by its position, only by a condition, which a person
must accept. A path in the report is the same path in the plan: `pick` calls are appended after all others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.references import (
    DAGGER,
    Hole,
    Path,
    Reference,
    compile_value,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.function import (
    Executed,
    Function,
    LeftOut,
    executed_calls,
    graph_of,
    is_distinctive,
    read_function,
    reads_of,
    same,
    waits_of,
)
from ideabridge.bridge.lifting.origins import (
    AlignedRun,
    Leaf,
    Origin,
    ValueSource,
    data_key,
    generalized,
    leaves_of,
    origins_of,
    picked,
    short,
)
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.graph import emission
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.store.idea import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import META_PROPERTIES, Tool, ToolKey

# -- calls of several Requests in one list --------------------------------------------------------------------------


def in_data_order(kept: Sequence[Executed]) -> list[Executed]:
    """The calls, reordered so that each reads only earlier calls; otherwise in listing order."""
    by_index = {one.index: one for one in kept}
    data = {one.index: [index for index in sorted(reads_of(one.progress.call)) if index in by_index] for one in kept}
    if all(index < reader for reader, read in data.items() for index in read):
        return list(kept)
    listed = {after: [before] for before, after in pairwise(by_index)}
    return [by_index[index] for part in emission(data, listed) for index in part]


def arrange(kept: Sequence[Executed], output: JSON) -> tuple[list[Executed], list[JSON], JSON]:
    """Return the calls as the plan lists them, and the output. `†results.N` refers to places in the plan.

    Raises:
        PublicationError: a call reads the result of a call that is left out.
    """
    calls = list(kept)
    while True:
        places = {one.index: place for place, one in enumerate(calls)}
        written: list[JSON] = []
        gone: Executed | None = None
        for one in calls:
            try:
                written.append(_renumbered(one.raw, places))
            except _GoneError as error:
                if one.progress.status is not CallStatus.SKIPPED:
                    raise PublicationError(f"{one.progress.call.label} reads {error}, which is left out") from None
                gone = one
                break
        if gone is None:
            break
        calls.remove(gone)
    try:
        return calls, written, renumbered(output, places)
    except _GoneError as error:
        raise PublicationError(f"the output reads {error}, which is left out") from None


class _GoneError(Exception):
    """Nothing supplies a reference, because the call that supplied it is left out."""


def _renumbered(raw: JSONObject, places: Mapping[int, int]) -> JSONObject:
    call: JSONObject = {}
    for key, value in raw.items():
        if key in ("_outputPath", "_id", "_after", "_tool", "_module", "_outputMethod", "_instance"):
            call[key] = value
        elif key == "_imports" and isinstance(value, list):
            call[key] = [renumbered(_with_dagger(item), places) for item in value]
        else:
            call[key] = renumbered(value, places)
    return call


def _with_dagger(item: JSON) -> JSON:
    return f"{DAGGER}{item}" if isinstance(item, str) and not item.startswith(DAGGER) else item


def renumbered(value: JSON, places: Mapping[int, int]) -> JSON:
    """Return a value as written, with the places of a plan in its references to results."""
    if isinstance(value, list):
        return [renumbered(item, places) for item in value]
    if isinstance(value, dict):
        return {key: renumbered(item, places) for key, item in value.items()}
    if not isinstance(value, str) or not is_reference(value):
        return value
    try:
        expression = parse_reference(value)
    except ReferenceSyntaxError:
        return value
    if all(_place(operand, places) in (None, operand.path[:1]) for operand in expression.operands()):
        return value
    alternatives: list[str] = []
    for alternative in expression.alternatives:
        texts = [_text(operand, _place(operand, places)) for operand in alternative]
        if all(text is not None for text in texts):
            alternatives.append(" && ".join(str(text) for text in texts))
    if not alternatives:
        raise _GoneError(expression.text)
    return " || ".join(alternatives)


def _place(operand: Reference, places: Mapping[int, int]) -> Path | None:
    """Return the place that an operand names; () if the call is left out; None if it names no place."""
    if operand.kind != "results" or not operand.path or not operand.path[0].isdecimal():
        return None
    place = places.get(int(operand.path[0]))
    return () if place is None else (str(place),)


def _text(operand: Reference, place: Path | None) -> str | None:
    if place is None:
        return operand.text
    return format_reference(("results", *place, *operand.path[1:]), operand.instance) if place else None


# -- order of effects -----------------------------------------------------------------------------------------------


def keep_order(calls: Sequence[Executed], written: list[JSON], waits: Mapping[int, Iterable[int]]) -> list[set[int]]:
    """Keep the order of calls from different Requests if they may have effects or write to one path. This adds `_after`
    to `written`, and `_id` if it is needed.

    Args:
        calls: the calls in the places of the plan.
        written: the calls as the plan lists them.
        waits: by place, the places that each call waits for already.

    Returns:
        By place, the additional places that the call now waits for.
    """
    ids = _Ids(calls, written)
    before: list[set[int]] = []
    added: list[set[int]] = []
    for place, one in enumerate(calls):
        known = set(waits.get(place, ()))
        reached = known.union(*(before[other] for other in known if other < place))
        new: set[int] = set()
        for other in reversed(range(place)):
            if other not in reached and calls[other].step < one.step and _matters(calls[other], one):
                new.add(other)
                reached |= {other} | before[other]
        before.append(reached)
        added.append(new)
        call = written[place]
        if new and isinstance(call, dict):
            after = call.get("_after", [])
            names = [after] if isinstance(after, str) else list(after) if isinstance(after, list) else []
            call["_after"] = [*names, *(ids.of(other) for other in sorted(new))]
    return added


def _matters(first: Executed, then: Executed) -> bool:
    if not (first.reads_only and then.reads_only):
        return True
    return any(
        one[: len(other)] == other or other[: len(one)] == one
        for one in first.progress.call.writes
        for other in then.progress.call.writes
    )


class _Ids:
    """Gives each call a unique id, and keeps the meaning of `_after`."""

    def __init__(self, calls: Sequence[Executed], written: list[JSON]) -> None:
        self._written = written
        self._taken: set[str] = set()
        names: dict[tuple[int, str], str] = {}
        for one, call in zip(calls, written, strict=True):
            own = one.progress.call.id
            if own is not None and isinstance(call, dict):
                call["_id"] = names[one.step, own] = self._free(own)
        for one, call in zip(calls, written, strict=True):
            if one.progress.call.after and isinstance(call, dict):
                latest = {own: name for (step, own), name in sorted(names.items()) if step < one.step}
                found = [names.get((one.step, own), latest.get(own)) for own in one.progress.call.after]
                # A call of an earlier Request that is left out has ended: nothing waits for it.
                call["_after"] = [name for name in found if name is not None]

    def _free(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def of(self, place: int) -> str:
        """Return the id of the call in a place."""
        call = self._written[place]
        assert isinstance(call, dict)
        if "_id" not in call:
            call["_id"] = self._free(f"call_{place}")
        return str(call["_id"])


# -- runs of the same task ------------------------------------------------------------------------------------------

_SEARCHED: Final = 200
"""The latest runs that are looked through for others of the same shape."""

_TAKEN: Final = 8
"""Runs of the same task that are compared."""


class OtherShapeError(PublicationError):
    """Another run does not have the same course as the lifted run."""


def align(mine: AlignedRun, store: Store, run_id: str, caller: str) -> AlignedRun:
    """Return another run, with its calls aligned to the places of the plan made of `mine`.

    Raises:
        OtherShapeError: it has another course; the message contains the place.
        PublicationError: it had the same input, or cannot be examined.
        UnknownRunError, UnknownIdeaError: this caller has no such run.
    """
    function = read_function(store, run_id, caller)
    if mine.function.run.machine.mode == "solve" and function.run.machine.mode != "solve":
        # A plan that was run again, by its name perhaps, agrees with itself.
        raise PublicationError(f"run {function.run.id} replays a plan; only runs of a mind are compared")
    kept, _ = executed_calls(function.run)
    where = f"run {function.run.id}"
    if function.run.machine.instances:
        raise PublicationError(f"{where} is over instances; such runs are not lifted together")
    if same(function.input or {}, mine.function.input or {}):
        raise PublicationError(f"{where} had the same input, so it shows nothing about other inputs")
    # The n-th call of a tool there stands for the n-th here, whatever independent calls stand between.
    left = list(kept)
    placed: list[Executed] = []
    for one in mine.calls:
        found = next((other for other in left if _key(other) == _key(one)), None)
        if found is None:
            raise OtherShapeError(f"{where} took another course: it made no such call of {one.name}")
        left.remove(found)
        placed.append(found)
    if left:
        raise OtherShapeError(f"{where} took another course: it also called {', '.join(one.name for one in left[:5])}")
    other = AlignedRun(function, placed)
    fault = _contradiction(mine, other)
    if fault is not None:
        raise OtherShapeError(f"{where} is of another shape: {fault}")
    return other


def _contradiction(mine: AlignedRun, other: AlignedRun) -> str | None:
    """Return where the data flow differs, as far as both runs were written with references."""
    for place, (one, two) in enumerate(zip(mine.calls, other.calls, strict=True)):
        if _parameters(one.raw) != _parameters(two.raw) or one.progress.call.has_each != two.progress.call.has_each:
            return f"calls.{place} ({one.name}) has other parameters"
        if (one.progress.status is CallStatus.DONE) != (two.progress.status is CallStatus.DONE):
            return f"calls.{place} ({one.name}) took another branch"
        for keys, text in references_in(one.raw):
            written = other.written_reference(place, keys)
            if written is not None:
                here = _fields(mine.sources_of(parse_reference(text)))
                if here and here != _fields(other.sources_of(parse_reference(written))):
                    return f"calls.{place}.{'.'.join(keys)} reads {written} there"
            elif _differs(mine, other, place, keys, text):
                return f"calls.{place}.{'.'.join(keys)} is not what {text} gives there"
    return None


def _fields(sources: list[ValueSource]) -> list[ValueSource]:
    """Return sources without the places in lists, because every run chooses these places anew."""
    return [ValueSource(one.place, tuple("*" if key.isdecimal() else key for key in one.path)) for one in sources]


def _differs(mine: AlignedRun, other: AlignedRun, place: int, keys: Path, text: str) -> bool:
    """Return whether the other run has a literal there that differs from the value my reference has in that run."""
    sources = mine.sources_of(parse_reference(text))
    there = other.leaf(place, keys)
    if len(sources) != 1 or isinstance(there, Missing):
        return False
    value = other.value(sources[0])
    return not isinstance(value, Missing) and not same(value, there)


def _key(one: Executed) -> ToolKey | None:
    return one.progress.call.tool.key if one.progress.call.tool is not None else None


def _parameters(raw: dict[str, JSON]) -> set[str]:
    return {key for key in raw if key not in META_PROPERTIES}


def references_in(raw: dict[str, JSON]) -> Iterator[tuple[Path, str]]:
    """(keys, text) of every well-formed reference in the parameters of a call, and in `_each`."""
    for key, value in raw.items():
        if key not in META_PROPERTIES or key == "_each":
            holes: list[Hole] = []
            compile_value(value, holes, [], (key,))
            for hole in holes:
                if not hole.expression.uses_item:
                    yield hole.path, hole.expression.text


def runs_like(mine: AlignedRun, store: Store, caller: str) -> tuple[list[AlignedRun], list[str]]:
    """Return a caller's latest runs that a mind made in the same shape with other input, and why runs with the same
    task text have another shape.
    """
    record = store.runs.get(mine.run_id)
    if record is None or record.kind != "solve":
        return [], []
    tools = {one.name for one in mine.calls}
    found: list[AlignedRun] = []
    different_shapes: list[str] = []
    for other in _ended(store, caller):
        if other.id == mine.run_id or other.kind != record.kind or other.parent is not None:
            continue
        same_words = other.title == record.title
        if not same_words and not tools <= _tools(store, other.id):
            continue
        try:
            found.append(align(mine, store, other.id, caller))
        except OtherShapeError as error:
            different_shapes += [str(error)] if same_words else []
        except IdeabridgeError:
            # The same input, or a run nothing can be told of.
            continue
        if len(found) + len(different_shapes) >= _TAKEN:
            break
    return found, different_shapes


def _tools(store: Store, run_id: str) -> set[str]:
    return {name for step in store.ideas.of_run(run_id) for name in step.meta.tools}


def _ended(store: Store, caller: str) -> list[RunRecord]:
    found: list[RunRecord] = []
    after: str | None = None
    while len(found) < _SEARCHED:
        page = store.runs.newest(caller, "done", min(100, _SEARCHED), after=after, rooms=False)
        found += page
        if len(page) < min(100, _SEARCHED):
            break
        after = page[-1].id
    return found


# -- lifting a run --------------------------------------------------------------------------------------------------

MOST_CALLS: Final = 2_000
"""Calls of a run of several Requests that are lifted."""

_OFFERED: Final = 12
"""Origins offered for one value."""

_MOST_PLACES: Final = 5_000
"""Places at which a value may stand in a run, and still be taken from one of them by itself."""


@dataclass(slots=True)
class Lifted:
    """A run as a plan, before any decision of a person.

    Attributes:
        function: the run as a function.
        aligned: its calls in the places of the plan.
        calls: the calls as the plan lists them.
        output: the output of the plan.
        leaves: every part of the calls and the output.
        left_out: the calls that the plan does not contain.
        kept_order: by place, the calls that it follows only because it followed them in the run.
        others: runs of the same task with other input, with their calls in the same places.
        different_shapes: for each other run of the same task with another shape, why it differs.
        catalogue: the tools of the run.
        pick: the tool `pick`; None if the tool of that name in this run is another one.
    """

    function: Function
    aligned: AlignedRun
    calls: list[JSON]
    output: JSON
    leaves: list[Leaf]
    left_out: list[LeftOut]
    catalogue: Catalogue
    kept_order: list[set[int]] = field(default_factory=list[set[int]])
    others: list[AlignedRun] = field(default_factory=list[AlignedRun])
    different_shapes: list[str] = field(default_factory=list[str])
    pick: Tool | None = None

    @property
    def run(self) -> str:
        """The run it was lifted from."""
        return self.function.run.id

    @property
    def kept(self) -> list[Executed]:
        """Its calls as they ran; empty with instances, because these are kept as listed."""
        return list(self.aligned.calls)

    @property
    def requests(self) -> int:
        """The number of Requests of the run; 0 if it was a plan."""
        return 0 if self.function.run.machine.mode == "plan" else self.function.run.machine.step + 1


def lift(store: Store, ref: str, caller: str, runs: Iterable[str] | None = None) -> Lifted:
    """Lift a run, or the run of an idea.

    Args:
        store: contains the runs.
        ref: a reference that `find_idea` accepts.
        caller: the owner of the runs.
        runs: other runs of the same task; None: runs of the same shape are searched.

    Raises:
        PublicationError: no choice can make it a plan; the message says why.
        UnknownRunError, UnknownIdeaError: this caller has no such run or idea.
    """
    return lift_function(read_function(store, ref, caller), store, caller, runs)


def lift_function(function: Function, store: Store, caller: str, runs: Iterable[str] | None = None) -> Lifted:
    """Lift a run that has been read; see `lift`."""
    run = function.run
    changed = run.not_as_listed()
    if function.instances:
        if changed:
            raise PublicationError(f"its calls did not all run as listed: {_some(changed)}")
        _expect(function.calls, function.faults, [])
        leaves = leaves_of(function.calls, function.output, run.machine.catalogue, function.instances)
        aligned = AlignedRun(function, [])
        return Lifted(function, aligned, function.calls, function.output, leaves, [], run.machine.catalogue)
    kept, left_out = executed_calls(run)
    _expect(kept, function.faults, changed)
    if run.machine.step > 0 and len(kept) > MOST_CALLS:
        raise PublicationError(f"it made {len(kept):,} calls over several Requests; at most {MOST_CALLS:,} are lifted")
    calls, written, output = arrange(in_data_order(kept), copy.deepcopy(function.output))
    written = copy.deepcopy(written)
    _expect(calls, [], changed)
    pick = _pick(run.machine.catalogue)
    catalogue = Catalogue([*run.machine.catalogue.tools, *([pick] if pick else [])], run.machine.catalogue.latent)
    order: list[set[int]] = []
    if run.machine.step > 0:
        order = keep_order(calls, written, waits_of(graph_of(function, catalogue, written, output)))
    aligned = AlignedRun(function, calls)
    lifted = Lifted(function, aligned, written, output, [], left_out, catalogue, order, pick=pick)
    if runs is not None:
        lifted.others = [align(aligned, store, one, caller) for one in dict.fromkeys(runs)]
    else:
        lifted.others, lifted.different_shapes = runs_like(aligned, store, caller)

    def whole(place: int | None, keys: Path, value: JSON) -> bool:
        return bool(_origins(lifted, place, keys, value))

    lifted.leaves = leaves_of(written, output, catalogue, None, whole)
    for leaf in lifted.leaves:
        _explain(lifted, leaf)
    return lifted


def _expect(calls: Iterable[object], faults: list[str], changed: list[str]) -> None:
    if not list(calls):
        why = f": {_some(changed)}" if changed else ""
        raise PublicationError(f"it has no calls to replay{why}")
    if faults:
        raise PublicationError("; ".join(faults))


def _some(texts: list[str]) -> str:
    return "; ".join(texts[:20]) + (f"; and {len(texts) - 20} more" if len(texts) > 20 else "")


def _pick(catalogue: Catalogue) -> Tool | None:
    own = builtin_toolbox().tools["pick"]
    found = next((tool for tool in catalogue.tools if tool.key == own.key), own)
    return own if found.parameters == own.parameters and found.activity == own.activity else None


# -- where leaves come from -----------------------------------------------------------------------------------------


def _step(lifted: Lifted, place: int | None) -> int:
    return lifted.function.run.machine.step if place is None else lifted.aligned.calls[place].chosen


def _origins(lifted: Lifted, place: int | None, keys: Path, value: JSON) -> list[Origin]:
    if not is_distinctive(value) or (place is not None and keys[:1] == ("_output",)):
        return []
    if lifted.requests == 0 and not lifted.function.input:
        return []
    return origins_of(value, lifted.aligned, _step(lifted, place), picks=lifted.pick is not None)


def _explain(lifted: Lifted, leaf: Leaf) -> None:
    """Find the origins of a leaf, and drop those that other runs contradict."""
    if leaf.reference is not None:
        _look_at_reference(lifted, leaf)
        return
    if leaf.place is not None:
        leaf.edited = lifted.aligned.calls[leaf.place].edited
    found = _origins(lifted, leaf.place, leaf.keys, leaf.value)
    values = [(other, other.leaf(leaf.place, leaf.keys)) for other in lifted.others]
    known = [(other, value) for other, value in values if not isinstance(value, Missing)]
    agreeing = [one for one in found if all(_agrees(one, other, value) for other, value in known)]
    leaf.origins = agreeing[:_OFFERED]
    differing = [(other, value) for other, value in known if not same(value, leaf.value)]
    if not differing:
        return
    if len(agreeing) == 1 and len(known) == len(values) and _only(lifted, leaf, agreeing[0], known):
        leaf.taken, leaf.agreed = agreeing[0], 1 + len(known)
    elif not agreeing:
        other, value = differing[0]
        leaf.varies = f"{short(value)} in run {other.run_id}"


def _agrees(origin: Origin, other: AlignedRun, value: JSON) -> bool:
    there = origin.value(other)
    return not isinstance(there, Missing) and same(there, value)


def _only(lifted: Lifted, leaf: Leaf, origin: Origin, known: list[tuple[AlignedRun, JSON]]) -> bool:
    """Return whether nothing else can explain a leaf in every run: no element of a list, and nothing under a key that
    is data. Such a source is offered only if a condition selects it, but the mind may have chosen it.
    """
    mine, step = lifted.aligned, _step(lifted, leaf.place)
    runs = [mine, *(other for other, _ in known)]
    if not origin.certain or not all(one.looked_through for one in runs) or data_key(mine, origin.source, runs):
        return False
    before = {None, *(place for place, one in enumerate(mine.calls) if one.step < step)}
    forms: set[ValueSource] | None = None
    for one, value in [(mine, leaf.value), *known]:
        sources = [source for source in one.where(value) if source.place in before]
        if len(sources) > _MOST_PLACES:
            return False
        found = {generalized(one, source, runs) for source in sources}
        forms = found if forms is None else forms & found
    return not (forms or set()) - {origin.source}


def _look_at_reference(lifted: Lifted, leaf: Leaf) -> None:
    """Note whether a reference selects by position, or by a key that is data, from values that its writer had seen."""
    aligned = lifted.aligned
    value = aligned.leaf(leaf.place, leaf.keys)
    leaf.value = None if isinstance(value, Missing) else value
    expression = parse_reference(str(leaf.reference))
    if lifted.requests == 0 or expression.uses_item:
        return
    step = _step(lifted, leaf.place)
    for operand in expression.operands():
        source = aligned.source_in_plan(operand)
        if source is None or (source.place is not None and aligned.calls[source.place].step >= step):
            continue
        if _by_position(aligned, source):
            leaf.selects = f"{operand.text} is a position in a list that was seen before"
        elif data_key(aligned, source, lifted.others):
            leaf.selects = f"{operand.text} has a key that may be data that was seen before"
        for other in lifted.others if leaf.selects else ():
            there, read = other.leaf(leaf.place, leaf.keys), other.value(source)
            if not isinstance(there, Missing) and (isinstance(read, Missing) or not same(there, read)):
                leaf.varies = f"another place in run {other.run_id}"
    if leaf.selects and lifted.pick is not None and not isinstance(value, Missing):
        found = [one for one in origins_of(value, aligned, step, picks=True) if one.pick is not None]
        leaf.origins = [one for one in found if all(_still(leaf, one, other) for other in lifted.others)][:_OFFERED]


def _still(leaf: Leaf, origin: Origin, other: AlignedRun) -> bool:
    value = other.leaf(leaf.place, leaf.keys)
    return not isinstance(value, Missing) and _agrees(origin, other, value)


def _by_position(aligned: AlignedRun, source: ValueSource) -> bool:
    for depth, key in enumerate(source.path):
        if key.isdecimal():
            above = picked(aligned.value(ValueSource(source.place, source.path[:depth])), "@")
            if isinstance(above, list):
                return True
    return False
