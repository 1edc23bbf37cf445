"""Lift: turn a finished run, which may have taken several Requests, into one plan for other inputs.

Theory of operation. A mind that solves a task sees values and writes some of them as literals: it calls
`read(path="a.txt")` because an earlier `list` returned `a.txt`. A plan that repeats the literal is right for one input
only. One run cannot show why a literal has its value, so the plan keeps every explanation (`context/explanations.py`).

1. `read_function` (function.py) reads the journal of the run: its input, the calls that ran, and its output.
2. `arrange` puts the calls of all Requests into one list, in the order of their data, and renumbers `†results.N`.
   `keep_order` adds `_after` where two calls of different Requests may have effects or write to one path.
3. `leaves_of` (aligned.py) lists the leaves: every part of the parameters and of the output. `explain_runs` (search.py)
   finds the explanations of each literal in the input and in the results that existed before its Request.
4. Other runs of the same task, which a person names, remove the explanations that they contradict. If they made other
   calls, all become one plan, in which tests say which calls are made (alternatives.py).
5. A literal of a call that only its constant explains becomes an optional parameter (parameters.py).
6. `PlanDraft` (draft.py) is the result: a plan with references, explained literals, and parameters.

Invariants. With the recorded results, the plan makes the recorded calls and returns the recorded output
(`PlanDraft.difference`). A run that was not named removes nothing: it is only offered. A written reference is known;
but a reference to a position in a list that its writer had seen is explained like a copied value.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.explanations import (
    MAYBE_DATA,
    Branch,
    Constant,
    Explained,
    Explanation,
    PathTo,
    same,
)
from ideabridge.bridge.context.references import (
    DAGGER,
    Hole,
    Path,
    Reference,
    compile_value,
    escaped,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, Leaf, ValueSource, is_data_key, is_position, leaves_of
from ideabridge.bridge.lifting.alternatives import Tests, form_of, joint_schema, merged, not_made, tests_of
from ideabridge.bridge.lifting.fold import Lists, fold, folded_call, gathered, values_of
from ideabridge.bridge.lifting.function import (
    Executed,
    Function,
    LeftOut,
    executed_calls,
    graph_of,
    read_function,
    reads_of,
    waits_of,
)
from ideabridge.bridge.lifting.looking import Looking
from ideabridge.bridge.lifting.search import Found
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.graph import emission
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.store.idea import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import META_PROPERTIES, ToolKey

# -- calls of several Requests in one list --------------------------------------------------------------------------


def in_data_order(kept: Sequence[Executed]) -> list[Executed]:
    """The calls, reordered so that each reads only earlier calls; otherwise in listing order."""
    by_index = {one.index: one for one in kept}
    owner = {index: one.index for one in kept for index in one.members or (one.index,)}
    data = {
        one.index: sorted({owner[index] for index in reads_of(one.progress.call) if index in owner}) for one in kept
    }
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
        places = {index: path for place, one in enumerate(calls) for index, path in one.paths(place).items()}
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
        *listed, gives = gathered([*written, renumbered(output, places)], calls)
        return calls, listed, gives
    except _GoneError as error:
        raise PublicationError(f"the output reads {error}, which is left out") from None


class _GoneError(Exception):
    """Nothing supplies a reference, because the call that supplied it is left out."""


def _renumbered(raw: JSONObject, places: Mapping[int, Path]) -> JSONObject:
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


def renumbered(value: JSON, places: Mapping[int, Path]) -> JSON:
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


def _place(operand: Reference, places: Mapping[int, Path]) -> Path | None:
    """Return the place that an operand names; () if the call is left out; None if it names no place."""
    if operand.kind != "results" or not operand.path or not operand.path[0].isdecimal():
        return None
    return places.get(int(operand.path[0]), ())


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

_EXAMINED: Final = 20
"""The most runs with the same tools that are read to find those of the same shape."""

_OFFERED: Final = 5
"""The most runs of the same shape that are offered."""


class OtherShapeError(PublicationError):
    """Another run made other calls than the lifted run."""


def align(mine: AlignedRun, store: Store, run_id: str, caller: str) -> AlignedRun:
    """Return another run, with its calls aligned to the places of the plan made of `mine`.

    Raises:
        OtherShapeError: it made other calls; the message contains the place.
        PublicationError: it had the same data, or cannot be examined.
        UnknownRunError, UnknownIdeaError: this caller has no such run.
    """
    function = read_function(store, run_id, caller)
    where = f"run {function.run.id}"
    if mine.function.run.machine.mode == "solve" and function.run.machine.mode != "solve":
        # A plan that was run again, by its name perhaps, agrees with itself.
        raise PublicationError(f"{where} replays a plan; only runs of a mind are compared")
    if function.run.machine.instances:
        raise PublicationError(f"{where} is over instances; such runs are not lifted together")
    kept, _ = executed_calls(function.run)
    # The n-th call of a tool there is the n-th here, whatever independent calls are between them.
    left = list(kept)
    placed: list[Executed] = []
    for place, one in enumerate(mine.calls):
        if one.members:
            repeated = _repeated(one, left, sum(_key(other) == _key(one) for other in mine.calls[place + 1 :]))
            made = folded_call(repeated, one.through, kept) if repeated else None
            if made is None:
                raise OtherShapeError(f"{where} made other calls of {one.name}")
            left = [other for other in left if other.index not in made.members]
            placed.append(made)
            continue
        found = next((other for other in left if _key(other) == _key(one)), None)
        if found is None:
            raise OtherShapeError(f"{where} made other calls: it has no such call of {one.name}")
        left.remove(found)
        placed.append(found)
    if left:
        raise OtherShapeError(f"{where} made other calls: it also called {', '.join(one.name for one in left[:5])}")
    other = AlignedRun(function, placed)
    fault = _contradiction(mine, other) or _through_others(mine, other)
    if fault is not None:
        raise OtherShapeError(f"{where} has another shape: {fault}")
    if not differ(mine, other):
        raise PublicationError(
            f"{where} had the same input, made the same calls and had the same results, so it shows nothing new"
        )
    return other


def differ(one: AlignedRun, other: AlignedRun) -> bool:
    """Return whether two aligned runs had different data."""
    places: list[int | None] = [None, *range(len(one.calls))]
    for place in places:
        mine, theirs = one.document(place), other.document(place)
        if isinstance(mine, Missing) or isinstance(theirs, Missing):
            if mine is not theirs:
                return True
        elif not same(mine, theirs):
            return True
    ran, there = (
        [list[JSON](item.parameters for item in call.progress.items) for call in run.calls] for run in (one, other)
    )
    return not (same(list[JSON](ran), list[JSON](there)) and same(one.function.run.result, other.function.run.result))


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
                return f"calls.{place}.{'.'.join(keys)} is not what {text} reads there"
    return None


def _repeated(one: Executed, left: Sequence[Executed], later: int) -> list[Executed]:
    """Return the calls of another run that a folded call stands for; `later` calls of its tool come after them."""
    calls = [other for other in left if _key(other) == _key(one)]
    return calls[: max(0, len(calls) - later)]


def _through_others(mine: AlignedRun, other: AlignedRun) -> str | None:
    """Return which folded call runs through no list that is in the same place in both runs."""
    lists: list[Lists] = []
    for place, one in enumerate(mine.calls):
        if not one.members:
            continue
        if not lists:
            lists = [Lists(_documents(run)) for run in (mine, other)]
        found = [
            inside.through(values_of(run.calls[place]), run.calls[place].chosen, one.through[-1])
            for inside, run in zip(lists, (mine, other), strict=True)
        ]
        if not found[0] & found[1]:
            return f"calls.{place} ({one.name}) runs through another list"
    return None


def _documents(run: AlignedRun) -> Iterator[tuple[int | None, int, JSON]]:
    yield None, -1, run.function.input or {}
    for place, one in enumerate(run.calls):
        value = run.document(place)
        if not isinstance(value, Missing):
            yield place, one.step, value


def _fields(sources: list[ValueSource]) -> list[ValueSource]:
    """Return sources without the positions in lists, because every run chooses these anew."""
    return [ValueSource(one.place, tuple("*" if key.isdecimal() else key for key in one.path)) for one in sources]


def _differs(mine: AlignedRun, other: AlignedRun, place: int, keys: Path, text: str) -> bool:
    """Return whether the other run has a literal there that differs from the value my reference has in that run."""
    sources = mine.sources_of(parse_reference(text))
    there = other.leaf(place, keys)
    if len(sources) != 1 or isinstance(there, Missing) or _selects(mine, sources[0], mine.calls[place].chosen):
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


def runs_like(mine: AlignedRun, store: Store, caller: str, without: Iterable[str] = ()) -> list[AlignedRun]:
    """Return a caller's latest runs that made the same calls with other data, at most five."""
    found: list[AlignedRun] = []
    passed = {mine.run_id, *without}
    tools = {one.name for one in mine.calls}
    examined = 0
    for other in _ended(store, caller):
        if other.id in passed or other.parent is not None or not tools <= _tools(store, other.id):
            continue
        examined += 1
        # Otherwise it has another shape, the same data, or cannot be examined.
        with suppress(IdeabridgeError):
            found.append(align(mine, store, other.id, caller))
        if len(found) >= _OFFERED or examined >= _EXAMINED:
            break
    return found


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
"""The most calls of a run of several Requests that are lifted."""

SETTLED: Final = 3
"""The runs that must agree before a position in a list is no longer assumed."""


VARIES: Final = "it differed between the runs, and nothing explains it"

RECORDED: Final = "recorded text"
"""Why a part of the output that only its constant explains is never determined."""

SAME_NUMBER: Final = "every run had the same number of items, so it may be the first of them"


@dataclass
class Lifted:
    """A run as a plan, with the explanations of its literals.

    Attributes:
        function: the run as a function.
        aligned: its calls in the places of the plan.
        calls: the calls as the plan lists them.
        output: the output of the plan.
        left_out: the calls that the plan does not contain.
        catalogue: the tools of the run.
        kept_order: by place, the calls that it follows only because it followed them in the run.
        others: the runs of the same task that were named, with their calls in the same places.
        leaves: every part of the calls and the output.
        found: by the path of a literal, its explanations that fit all runs, the cheapest first.
        agreed: by the path of a literal, how many runs agree.
        tests: by the place of a call that only some runs made, the tests that say whether it is made.
    """

    function: Function
    aligned: AlignedRun
    calls: list[JSON]
    output: JSON
    left_out: list[LeftOut]
    catalogue: Catalogue
    kept_order: list[set[int]] = field(default_factory=list[set[int]])
    others: list[AlignedRun] = field(default_factory=list[AlignedRun])
    leaves: list[Leaf] = field(default_factory=list[Leaf])
    found: dict[str, Found] = field(default_factory=dict[str, Found])
    agreed: dict[str, int] = field(default_factory=dict[str, int])
    tests: dict[int, Tests] = field(default_factory=dict[int, Tests])

    @property
    def requests(self) -> int:
        """The number of Requests of the run; 0 if it was a plan."""
        return 0 if self.function.run.machine.mode == "plan" else self.function.run.machine.step + 1

    def explained(self, leaf: Leaf) -> Explained | None:
        """Return a literal with its explanations; None if only its constant, or what is weaker, explains it."""
        found = self.found.get(leaf.path)
        if found is None or not found.is_explained:
            return None
        runs = self.agreed[leaf.path]
        why = MAYBE_DATA if self._has_data_key(found.by[0]) else None
        if isinstance(found.by[0], Branch) and found.by[0].has_constant and (leaf.place is None or runs < SETTLED):
            why = RECORDED
        if leaf.keys == ("_each",) and leaf.place in self.folded and self._has_one_length(leaf):
            why = SAME_NUMBER
        return Explained(leaf.at, tuple(found.by), runs, found.cut, why)

    def _has_one_length(self, leaf: Leaf) -> bool:
        """Return whether several runs had lists of one length at a place. One run keeps the list itself instead."""
        values = [run.leaf(leaf.place, leaf.keys) for run in (self.aligned, *self.others)]
        lengths = {len(value) for value in values if isinstance(value, list)}
        return len(values) > 1 and len(lengths) == 1

    def _has_data_key(self, one: Explanation) -> bool:
        if not isinstance(one, PathTo):
            return False
        source = self.aligned.source_in_plan(next(parse_reference(one.reference).operands()))
        return source is not None and is_data_key(self.aligned, source)

    @property
    def folded(self) -> list[int]:
        """The places of calls with `_each` that were several calls in the run."""
        return [place for place, one in enumerate(self.aligned.calls) if one.members]

    @cached_property
    def decisions(self) -> list[int]:
        """The places of calls that were made after results had been seen, and that read none of these.

        Such a call may have been made because of a result. The places are found once, after `explain`.
        """
        kept = self.aligned.calls
        first = min((one.step for one in kept), default=0)
        reads = self._reads()
        places: list[int] = []
        for place, one in enumerate(kept):
            has_earlier = first < one.chosen
            reads_earlier = any(kept[other].step < one.chosen for other in reads.get(place, ()))
            # A test says why a call is made.
            if has_earlier and not reads_earlier and place not in self.tests:
                places.append(place)
        return places

    def _reads(self) -> dict[int, set[int]]:
        """By place, the calls whose results a call reads, or by its cheapest explanations may have read."""
        reads: dict[int, set[int]] = {}
        for leaf in self.leaves:
            if leaf.place is None:
                continue
            for operand in self._operands(leaf):
                source = self.aligned.source_in_plan(operand)
                if source is not None and source.place is not None:
                    reads.setdefault(leaf.place, set()).add(source.place)
        return reads

    def _operands(self, leaf: Leaf) -> Iterator[Reference]:
        if leaf.reference:
            yield from parse_reference(leaf.reference).operands()
            return
        explained = self.explained(leaf)
        for text in explained.by[0].references if explained else ():
            yield from parse_reference(text).operands()


def lift(store: Store, ref: str, caller: str, runs: Iterable[str] = (), *, folding: bool = True) -> Lifted:
    """Lift a run, or the run of an idea.

    Args:
        store: contains the runs.
        ref: a reference that `find_idea` accepts.
        caller: the owner of the runs.
        runs: other runs of the same task.
        folding: calls that run through a list become one call with `_each`.

    Raises:
        PublicationError: it cannot be a plan; the message says why.
        UnknownRunError, UnknownIdeaError: this caller has no such run or idea.
    """
    return lift_function(read_function(store, ref, caller), store, caller, runs, folding=folding)


def lift_function(
    function: Function,
    store: Store,
    caller: str,
    runs: Iterable[str] = (),
    *,
    search: bool = True,
    folding: bool = True,
) -> Lifted:
    """Lift a run that has been read; see `lift`. Without `search` the caller calls `explain`, which reads no store."""
    run = function.run
    changed = run.not_as_listed()
    if function.instances:
        if changed:
            raise PublicationError(f"its calls did not all run as listed: {_some(changed)}")
        _expect(function.calls, function.faults, [])
        catalogue = run.machine.catalogue
        lifted = Lifted(function, AlignedRun(function, []), function.calls, function.output, [], catalogue)
        lifted.leaves = leaves_of(function.calls, function.output, catalogue, _is_list)
        return lifted
    kept, left_out = executed_calls(run)
    _expect(kept, function.faults, changed)
    if run.machine.step > 0 and len(kept) > MOST_CALLS:
        raise PublicationError(f"it made {len(kept):,} calls over several Requests; at most {MOST_CALLS:,} are lifted")
    folded = fold(kept, function.input) if folding and run.machine.mode != "plan" else kept
    runs = list(runs)
    lifted: Lifted | None = None
    if len(folded) < len(kept):
        # Otherwise another run did not run through the same list: the calls stay as they are.
        with suppress(PublicationError):
            lifted = _lifted(function, folded, left_out, store, caller, runs)
    lifted = lifted or _lifted(function, kept, left_out, store, caller, runs)
    if search:
        explain(lifted)
    return lifted


def _lifted(
    function: Function,
    kept: Sequence[Executed],
    left_out: list[LeftOut],
    store: Store,
    caller: str,
    runs: Iterable[str],
) -> Lifted:
    run = function.run
    calls, written, output = arrange(in_data_order(kept), copy.deepcopy(function.output))
    written = copy.deepcopy(written)
    _expect(calls, [], run.not_as_listed())
    catalogue = run.machine.catalogue
    lifted = Lifted(function, AlignedRun(function, calls), written, output, left_out, catalogue)
    if run.machine.step > 0:
        lifted.kept_order = keep_order(calls, written, waits_of(graph_of(function, catalogue, written, output)))
    runs = list(dict.fromkeys(runs))
    try:
        lifted.others = [align(lifted.aligned, store, one, caller) for one in runs]
    except OtherShapeError as error:
        if any(one.members for one in calls):
            raise
        return _with_alternatives(lifted, [read_function(store, one, caller) for one in runs], str(error))
    return lifted


def _with_alternatives(lifted: Lifted, others: Sequence[Function], differ: str) -> Lifted:
    """Return the plan of a run and of runs that made other calls.

    Raises:
        OtherShapeError: no test separates them; the message says what differs.
    """
    functions = [lifted.function, *others]
    arranged: list[list[Executed]] = [list(lifted.aligned.calls)]
    for function in others:
        if function.run.machine.mode != lifted.function.run.machine.mode or function.run.machine.instances:
            raise OtherShapeError(differ)
        kept, _ = executed_calls(function.run)
        _expect(kept, function.faults, function.run.not_as_listed())
        arranged.append(arrange(in_data_order(kept), copy.deepcopy(function.output))[0])
    try:
        slots = merged(arranged)
    except PublicationError as error:
        raise OtherShapeError(f"{differ}; {error}") from None
    models = [next(one for one in slot if one is not None) for slot in slots]
    runs = [
        AlignedRun(
            function,
            [slot[number] or not_made(model) for slot, model in zip(slots, models, strict=True)],
        )
        for number, function in enumerate(functions)
    ]
    tests: dict[int, Tests] = {}
    for place, slot in enumerate(slots):
        if None in slot:
            found = tests_of(runs, place)
            if found is None:
                names = [run.run_id for run in runs if run.calls[place].is_made]
                raise OtherShapeError(
                    f"{differ}. Only {', '.join(names)} called {models[place].name}, and no test of the input or of an"
                    " earlier result separates these from the other runs"
                )
            tests[place] = found
    written: list[JSON] = []
    for place, slot in enumerate(slots):
        owner = next(number for number, one in enumerate(slot) if one is not None)
        try:
            written.append(copy.deepcopy(_renumbered(models[place].raw, runs[owner].paths)))
        except _GoneError as error:
            raise OtherShapeError(f"{differ}; calls.{place} reads {error}, which is left out") from None
    output = renumbered(copy.deepcopy(lifted.function.output), runs[0].paths)
    if any(form_of(run.function.run.result) != form_of(runs[0].function.run.result) for run in runs):
        # Its parts are not the same in all runs, so it is explained as a whole.
        output = escaped(runs[0].function.run.result)
    function = dataclasses.replace(lifted.function, input_schema=joint_schema(functions))
    runs[0].function = function
    made = Lifted(function, runs[0], written, output, lifted.left_out, lifted.catalogue, others=runs[1:], tests=tests)
    if any(one.run.machine.step > 0 for one in functions):
        # Only the order within the list says what came first: the Requests of several runs are not comparable.
        ordered = [dataclasses.replace(one, step=place) for place, one in enumerate(models)]
        made.kept_order = keep_order(ordered, written, waits_of(graph_of(function, made.catalogue, written, output)))
    return made


def _expect(calls: Iterable[object], faults: list[str], changed: list[str]) -> None:
    if not list(calls):
        why = f": {_some(changed)}" if changed else ""
        raise PublicationError(f"it has no calls to replay{why}")
    if faults:
        raise PublicationError("; ".join(faults))


def _some(texts: list[str]) -> str:
    return "; ".join(texts[:20]) + (f"; and {len(texts) - 20} more" if len(texts) > 20 else "")


# -- explanations ---------------------------------------------------------------------------------------------------


def explain(lifted: Lifted) -> None:
    """List the leaves of a lifted run, and find the explanations of its literals in all runs that were named."""
    runs = [lifted.aligned, *lifted.others]
    looking = Looking(runs, lifted.requests > 0, {place: one.by[0] for place, one in lifted.tests.items()})

    def whole(place: int | None, keys: Path, value: JSON) -> bool:
        found = looking.look(place, keys, value)
        if found is not None and found.is_explained:
            return True
        # A list of constants is one value: nothing is gained by a parameter for each item.
        return isinstance(value, list) and not _any_explained(looking, place, keys, value)

    lifted.leaves = leaves_of(lifted.calls, lifted.output, lifted.catalogue, whole)
    for leaf in lifted.leaves:
        found: Found | None = None
        if leaf.reference is None and not leaf.demanded:
            found = looking.look(leaf.place, leaf.keys, leaf.value)
        elif leaf.reference is not None:
            found = _chosen_reference(lifted, looking, leaf)
            if lifted.tests and not all(_agrees(run, leaf) for run in runs):
                found = _conditional(lifted, looking, leaf)
        if found is not None:
            lifted.found[leaf.path] = found
            lifted.agreed[leaf.path] = looking.agreeing(leaf.place, leaf.keys, found.by[0])


def _agrees(run: AlignedRun, leaf: Leaf) -> bool:
    """Return whether a reference reads in a run what the run had there."""
    there = run.leaf(leaf.place, leaf.keys)
    operands = list(parse_reference(str(leaf.reference)).operands())
    if isinstance(there, Missing) or len(operands) != 1 or operands[0].kind not in ("input", "results", "state"):
        return True
    value = run.read(str(leaf.reference))
    return not isinstance(value, Missing) and same(value, there)


def _conditional(lifted: Lifted, looking: Looking, leaf: Leaf) -> Found:
    """Return the explanations of a reference that other runs did not have there."""
    value = lifted.aligned.leaf(leaf.place, leaf.keys)
    found = looking.look(leaf.place, leaf.keys, None if isinstance(value, Missing) else value)
    if found is None or not found.is_explained:
        raise OtherShapeError(
            f"{leaf.path} is {leaf.reference} in only some of the runs, and nothing explains the others"
        )
    return found


def _is_list(place: int | None, keys: Path, value: JSON) -> bool:
    return isinstance(value, list)


def _any_explained(looking: Looking, place: int | None, keys: Path, value: JSON) -> bool:
    """Return whether something inside a list or object has an explanation that is cheaper than its constant."""
    if isinstance(value, dict | list) and value:
        members = value.items() if isinstance(value, dict) else ((str(n), one) for n, one in enumerate(value))
        return any(_any_explained(looking, place, (*keys, key), item) for key, item in members)
    found = looking.look(place, keys, value)
    return found is not None and found.is_explained


def _selects(aligned: AlignedRun, source: ValueSource, step: int) -> bool:
    """Return whether a source was selected by a position, or by a key that is data, after its writer had seen it."""
    if source.place is not None and aligned.calls[source.place].step >= step:
        return False
    return is_position(aligned, source) or is_data_key(aligned, source)


def _chosen_reference(lifted: Lifted, looking: Looking, leaf: Leaf) -> Found | None:
    """Return the explanations of a reference that selects from values its writer had seen, the reference first."""
    aligned = lifted.aligned
    expression = parse_reference(str(leaf.reference))
    operands = list(expression.operands())
    if lifted.requests == 0 or expression.uses_item or len(operands) != 1 or operands[0].instance is not None:
        return None
    source = aligned.source_in_plan(operands[0])
    step = aligned.function.run.machine.step if leaf.place is None else aligned.calls[leaf.place].chosen
    value = aligned.leaf(leaf.place, leaf.keys)
    if source is None or isinstance(value, Missing) or not _selects(aligned, source, step):
        return None
    found = looking.look(leaf.place, leaf.keys, value)
    if found is None:
        return None
    written = PathTo(format_reference(operands[0].full))
    by: list[Explanation] = [one for one in found.by if not isinstance(one, Constant) and one != written]
    return Found([written, *by] if written in found.by else by, found.cut) if by or written in found.by else None
