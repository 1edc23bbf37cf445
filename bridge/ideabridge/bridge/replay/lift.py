"""Lift: one plan of a run, however many Requests it took (DESIGN 4.11)."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.document import Missing
from ideabridge.bridge.context.reference import Path, parse_reference
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.replay.arrange import in_data_order, kept_apart, placed
from ideabridge.bridge.replay.executed import Executed, LeftOut, executed_calls
from ideabridge.bridge.replay.function import Function, read_function
from ideabridge.bridge.replay.leaves import Leaf, leaves_of, short
from ideabridge.bridge.replay.origins import Origin, data_key, form_of, origins_of, picked
from ideabridge.bridge.replay.shape import aligned, runs_like
from ideabridge.bridge.replay.values import same, tells
from ideabridge.bridge.replay.wiring import graph_of, waits_of
from ideabridge.bridge.replay.witness import Source, Witness
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON
from ideabridge.tools.tool import Tool

MOST_CALLS: Final = 2_000
"""Calls of a run of several Requests that are lifted."""

_OFFERED: Final = 12
"""Origins offered for one value."""

_MOST_PLACES: Final = 5_000
"""Places at which a value may stand in a run, and still be taken from one of them by itself."""


@dataclass(slots=True)
class Lifted:
    """A run as a plan, before anybody has decided anything.

    Attributes:
        function: the run, as a function.
        witness: its calls, in the places of the plan.
        calls: as the plan lists them.
        output: of the plan.
        leaves: every part of both.
        left_out: what the plan does not hold.
        kept_order: by place, the calls it now runs after, as it did in the run, though nothing it reads says so.
        others: runs of the same task with other input, their calls in the same places.
        astray: why further runs of the same task took another course.
        catalogue: the tools, as the run knew them.
        pick: the tool `pick`; None: this run's is another one.
    """

    function: Function
    witness: Witness
    calls: list[JSON]
    output: JSON
    leaves: list[Leaf]
    left_out: list[LeftOut]
    catalogue: Catalogue
    kept_order: list[set[int]] = field(default_factory=list[set[int]])
    others: list[Witness] = field(default_factory=list[Witness])
    astray: list[str] = field(default_factory=list[str])
    pick: Tool | None = None

    @property
    def run(self) -> str:
        """The run it was lifted from."""
        return self.function.run.id

    @property
    def kept(self) -> list[Executed]:
        """Its calls, as they ran; none over instances, where all is kept as it was listed."""
        return list(self.witness.calls)

    @property
    def requests(self) -> int:
        """How many Requests the run took; 0: it was a plan."""
        return 0 if self.function.run.machine.mode == "plan" else self.function.run.machine.step + 1


def lift(store: Store, ref: str, caller: str, runs: Iterable[str] | None = None) -> Lifted:
    """Lift a run, or the run of an idea.

    Args:
        store: holds the runs.
        ref: what `find_idea` takes.
        caller: whose runs are looked at.
        runs: other runs of the same task; None: those of the same shape are looked for.

    Raises:
        PublicationError: it cannot be a plan whatever is accepted; the message says why.
        UnknownRunError, UnknownIdeaError: there is none for this caller.
    """
    return lift_function(read_function(store, ref, caller), store, caller, runs)


def lift_function(function: Function, store: Store, caller: str, runs: Iterable[str] | None = None) -> Lifted:
    """Lift a run that was read already; see `lift`."""
    run = function.run
    changed = run.not_as_listed()
    if function.instances:
        if changed:
            raise PublicationError(f"its calls did not all run as listed: {_some(changed)}")
        _expect(function.calls, function.faults, [])
        leaves = leaves_of(function.calls, function.output, run.machine.catalogue, function.instances)
        witness = Witness(function, [])
        return Lifted(function, witness, function.calls, function.output, leaves, [], run.machine.catalogue)
    kept, left_out = executed_calls(run)
    _expect(kept, function.faults, changed)
    if run.machine.step > 0 and len(kept) > MOST_CALLS:
        raise PublicationError(f"it made {len(kept):,} calls over several Requests; at most {MOST_CALLS:,} are lifted")
    calls, written, output = placed(in_data_order(kept), copy.deepcopy(function.output))
    written = copy.deepcopy(written)
    _expect(calls, [], changed)
    pick = _pick(run.machine.catalogue)
    catalogue = Catalogue([*run.machine.catalogue.tools, *([pick] if pick else [])], run.machine.catalogue.latent)
    order: list[set[int]] = []
    if run.machine.step > 0:
        order = kept_apart(calls, written, waits_of(graph_of(function, catalogue, written, output)))
    witness = Witness(function, calls)
    lifted = Lifted(function, witness, written, output, [], left_out, catalogue, order, pick=pick)
    if runs is not None:
        lifted.others = [aligned(witness, store, one, caller) for one in dict.fromkeys(runs)]
    else:
        lifted.others, lifted.astray = runs_like(witness, store, caller)

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


# -- where leaves come from ----------------------------------------------------------------------------------------


def _step(lifted: Lifted, place: int | None) -> int:
    return lifted.function.run.machine.step if place is None else lifted.witness.calls[place].chosen


def _origins(lifted: Lifted, place: int | None, keys: Path, value: JSON) -> list[Origin]:
    if not tells(value) or (place is not None and keys[:1] == ("_output",)):
        return []
    if lifted.requests == 0 and not lifted.function.input:
        return []
    return origins_of(value, lifted.witness, _step(lifted, place), picks=lifted.pick is not None)


def _explain(lifted: Lifted, leaf: Leaf) -> None:
    """Find out where a leaf came from, and what other runs say of it."""
    if leaf.reference is not None:
        _look_at_reference(lifted, leaf)
        return
    if leaf.place is not None:
        leaf.edited = lifted.witness.calls[leaf.place].edited
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


def _agrees(origin: Origin, other: Witness, value: JSON) -> bool:
    there = origin.value(other)
    return not isinstance(there, Missing) and same(there, value)


def _only(lifted: Lifted, leaf: Leaf, origin: Origin, known: list[tuple[Witness, JSON]]) -> bool:
    """Whether nothing else can explain a leaf in every run: no element of a list, and nothing under a key that is data.
    Such a one is nowhere offered unless a condition selects it, yet the mind may have chosen it.
    """
    mine, step = lifted.witness, _step(lifted, leaf.place)
    runs = [mine, *(other for other, _ in known)]
    if not origin.certain or not all(one.looked_through for one in runs) or data_key(mine, origin.source, runs):
        return False
    before = {None, *(place for place, one in enumerate(mine.calls) if one.step < step)}
    forms: set[Source] | None = None
    for one, value in [(mine, leaf.value), *known]:
        sources = [source for source in one.where(value) if source.place in before]
        if len(sources) > _MOST_PLACES:
            return False
        found = {form_of(one, source, runs) for source in sources}
        forms = found if forms is None else forms & found
    return not (forms or set()) - {origin.source}


def _look_at_reference(lifted: Lifted, leaf: Leaf) -> None:
    """Whether a reference selects by position, or by a key that is data, from what its writer had seen."""
    witness = lifted.witness
    value = witness.leaf(leaf.place, leaf.keys)
    leaf.value = None if isinstance(value, Missing) else value
    expression = parse_reference(str(leaf.reference))
    if lifted.requests == 0 or expression.uses_item:
        return
    step = _step(lifted, leaf.place)
    for operand in expression.operands():
        source = witness.source_in_plan(operand)
        if source is None or (source.place is not None and witness.calls[source.place].step >= step):
            continue
        if _by_position(witness, source):
            leaf.selects = f"{operand.text} is a position in a list that was seen before"
        elif data_key(witness, source, lifted.others):
            leaf.selects = f"{operand.text} has a key that may be data that was seen before"
        for other in lifted.others if leaf.selects else ():
            there, read = other.leaf(leaf.place, leaf.keys), other.value(source)
            if not isinstance(there, Missing) and (isinstance(read, Missing) or not same(there, read)):
                leaf.varies = f"another place in run {other.run_id}"
    if leaf.selects and lifted.pick is not None and not isinstance(value, Missing):
        found = [one for one in origins_of(value, witness, step, picks=True) if one.pick is not None]
        leaf.origins = [one for one in found if all(_still(leaf, one, other) for other in lifted.others)][:_OFFERED]


def _still(leaf: Leaf, origin: Origin, other: Witness) -> bool:
    value = other.leaf(leaf.place, leaf.keys)
    return not isinstance(value, Missing) and _agrees(origin, other, value)


def _by_position(witness: Witness, source: Source) -> bool:
    for depth, key in enumerate(source.path):
        if key.isdecimal():
            above = picked(witness.value(Source(source.place, source.path[:depth])), "@")
            if isinstance(above, list):
                return True
    return False
