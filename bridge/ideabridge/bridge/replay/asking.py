"""Asking: what a person must accept before a lifted plan may answer for other inputs (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.errors import PublicationError, UndecidedError
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.loop.proposal import rejection
from ideabridge.bridge.replay.choices import unknown_path
from ideabridge.bridge.replay.decide import Decided, stands
from ideabridge.bridge.replay.leaves import Leaf, names_of
from ideabridge.bridge.replay.order import unbound_orders
from ideabridge.bridge.replay.sight import named, unread_input, unread_parts
from ideabridge.bridge.replay.wiring import all_before, plan_machine, reads_of
from ideabridge.bridge.replay.witness import Source

Kind: TypeAlias = Literal[
    "constant", "proposal", "selection", "varies", "later", "unread", "order", "left_out", "course"
]

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing to accept.

    Attributes:
        kind: see `_TOLD`; `varies` cannot be accepted.
        path: what `choices.accept` names it by.
        text: what it is, in a line.
        leaf: the part of the plan it is about.
    """

    kind: Kind
    path: str
    text: str
    leaf: Leaf | None = None


def asks_of(decided: Decided) -> list[Ask]:
    """Everything that is named, accepted or not.

    Raises:
        PublicationError: the plan cannot run by itself.
    """
    return [*_of_leaves(decided), *_of_course(decided)]


def open_asks(decided: Decided) -> list[Ask]:
    """What nobody has accepted yet."""
    return [one for one in asks_of(decided) if one.kind == "varies" or not decided.choices.accepts(one.path)]


def _of_leaves(decided: Decided) -> Iterator[Ask]:
    for leaf in decided.lifted.leaves:
        if stands(decided, leaf) is not None or leaf.demanded:
            continue
        notes = [one.shown for one in leaf.origins[:4]]
        if leaf.edited is not None and leaf.place is not None:
            notes.append(f"calls.{leaf.place} ({decided.lifted.kept[leaf.place].name}): a person changed it")
        told = f" ({', '.join(notes)})" if notes else ""
        if leaf.reference is not None and leaf.varies is None:
            if leaf.selects:
                yield Ask("selection", leaf.path, f"{leaf.path}: {leaf.selects}{told}", leaf)
        elif leaf.varies:
            yield Ask("varies", leaf.path, f"{leaf.shown}, but {leaf.varies}{told}", leaf)
        else:
            yield Ask("proposal" if leaf.origins else "constant", leaf.path, f"{leaf.shown}{told}", leaf)


def _of_course(decided: Decided) -> Iterator[Ask]:
    lifted = decided.lifted
    for out in lifted.left_out:
        if out.matters:
            yield Ask("left_out", f"left_out.{out.index}", f"left_out.{out.index}: {out.shown}")
    if lifted.astray:
        yield Ask("course", "course", f"course: {'; '.join(lifted.astray[:5])}")
    graph = graph_of_plan(decided)
    if lifted.requests:
        yield from _unread_input(decided, graph)
    if lifted.requests > 1:
        unread = unread_parts(lifted, graph)
        open_ = {other for place in (*range(len(lifted.kept)), None) for other in _proposed(decided, place)}
        later = list(_later(decided, graph, unread, open_))
        yield from later
        yield from _unread(decided, graph, later, unread, open_)
    apart = dict(enumerate(lifted.kept_order)) if lifted.requests > 1 else None
    for order in unbound_orders(graph, apart):
        yield Ask("order", "order", f"order: {order}")


def graph_of_plan(decided: Decided) -> Graph:
    """The graph of the plan as it would run.

    Raises:
        PublicationError: it cannot run by itself.
    """
    function = decided.lifted.function
    plan = decided.with_input(function.input or {})
    machine = plan_machine(function.run, decided.lifted.catalogue, plan)
    calls, places = plan.expanded()
    errors = machine.check(calls, plan.output, places)
    graph = machine.checked_graph
    if errors or graph is None:
        raise PublicationError(f"it cannot run by itself: {rejection(errors)}")
    return graph


def _later(decided: Decided, graph: Graph, unread: dict[int, list[Source]], open_: set[int]) -> Iterator[Ask]:
    kept = decided.lifted.kept
    steps = {call.index: reads_of(call) for call in graph.calls}
    for place, one in enumerate(kept):
        behind = all_before(steps, steps[place]) | _proposed(decided, place)
        if not one.chosen:
            continue
        said = f"later.{place}: calls.{place} ({one.name}) was proposed after results had been seen"
        if any(kept[other].chosen == one.chosen for other in steps[place] if other < len(kept)):
            # It stands or falls with the call of its own Request that it reads.
            continue
        if not any(kept[other].step < one.chosen for other in behind if other < len(kept)):
            yield Ask("later", f"later.{place}", f"{said}, and reads none")
            continue
        seen = (other for other in unread if other not in open_ and kept[other].step < one.chosen)
        parts = [part for other in seen for part in unread[other]]
        if parts:
            yield Ask("later", f"later.{place}", f"{said} of which nothing reads {named(parts)}")


def _proposed(decided: Decided, place: int | None) -> set[int]:
    """The calls a call would read if what is still open about it were taken: until then only that is asked."""
    return {
        origin.source.place
        for leaf in decided.lifted.leaves
        if leaf.place == place and stands(decided, leaf) is None and not decided.choices.accepts(leaf.path)
        for origin in leaf.origins
        if origin.source.place is not None
    }


def _unread(
    decided: Decided, graph: Graph, later: list[Ask], unread: dict[int, list[Source]], open_: set[int]
) -> Iterator[Ask]:
    """What a mind saw and nothing reads: what came after, the output at least, may have been chosen because of it."""
    kept = decided.lifted.kept
    read = {index for call in graph.calls for index in reads_of(call)} | open_
    for reads in graph.output_reads.values():
        for item in reads:
            read.update(index for alternative in item.bound for operand in alternative for index in operand or ())
    # What was seen before a call that is asked about is told there.
    told = max(
        (kept[place].chosen for place in range(len(kept)) if any(f"later.{place}" == one.path for one in later)),
        default=0,
    )
    for place, one in enumerate(kept):
        if not told <= one.step < decided.lifted.requests - 1 or one.progress.standing is not Standing.DONE:
            continue
        said = f"unread.{place}: the result of calls.{place} ({one.name}) had been seen, and nothing reads"
        if place not in read:
            yield Ask("unread", f"unread.{place}", f"{said} it")
        elif place not in open_ and unread[place]:
            yield Ask("unread", f"unread.{place}", f"{said} {named(unread[place])}")


def _unread_input(decided: Decided, graph: Graph) -> Iterator[Ask]:
    """What a mind was given and nothing reads: what it did may have been chosen because of it."""
    open_ = {
        origin.source
        for leaf in decided.lifted.leaves
        if stands(decided, leaf) is None and not decided.choices.accepts(leaf.path)
        for origin in leaf.origins
    }
    for part in unread_input(decided.lifted, graph):
        if not any(Source(None, part.path[:depth]) in open_ for depth in range(len(part.path) + 1)):
            path = ".".join(("unread", "input", *names_of(None, part.path)[1:]))
            yield Ask("unread", path, f"{path}: the input was seen, and nothing reads this part of it")


# -- telling -------------------------------------------------------------------------------------------------------

_LET: Final = (
    'Let one read what the other gives, or accept the order (choices {"accept": ["order", ...]} or {"accept": true})'
)

_TOLD: Final[dict[Kind, tuple[str, str]]] = {
    "varies": (
        "these differ between the runs, and nothing explains them: {}",
        'say where they come from (choices {"take": {"calls.0.x": "†input.x"}})',
    ),
    "constant": (
        "these are constants, the same for every input: {}",
        'Make them references (†input...), accept them (choices {"accept": ["calls.0.x", ...]} or {"accept": true})',
    ),
    "proposal": (
        "these are equal to what had been seen before, which may be chance: {}",
        'Take where they come from (choices {"take": {"calls.0.x": "†input.x"}}), accept them, or name another run',
    ),
    "selection": (
        "these were selected after the values had been seen: {}",
        'Take a condition ({"take": {"calls.0.x": {"pick": "max_by(@, &a)", "from": "†results.0"}}}), or accept them',
    ),
    "later": (
        "these calls may have been chosen because of a result: {}",
        'Accept that they are always made (choices {"accept": ["later", ...]}), or name another run',
    ),
    "unread": (
        "what came after may have been chosen because of these results: {}",
        'Accept that it is always done (choices {"accept": ["unread", ...]})',
    ),
    "order": (
        "these calls have effects, and nothing but their listing puts them in order: {}",
        _LET,
    ),
    "left_out": (
        "these calls are left out: {}",
        'Accept it (choices {"accept": ["left_out", ...]})',
    ),
    "course": (
        "other runs of the same task did otherwise: {}",
        'Accept it (choices {"accept": ["course"]}), or name the runs that count ({"runs": [...]})',
    ),
}


def demand(decided: Decided) -> None:
    """Everything that is named must have been accepted, and nothing else.

    Raises:
        PublicationError: names what is not, and paths accepted at which nothing stands.
    """
    left = open_asks(decided)
    if left:
        told = list(_paragraphs(left))
        raise UndecidedError(
            f'{". And ".join(f"{what}. {how}" for what, how in told)}, or publish with answer "recorded"',
            [what for what, _ in told],
            [one.path for one in left if one.kind != "varies"],
            [one.path for one in left if one.kind == "varies"],
        )
    if isinstance(decided.choices.accept, bool):
        return
    leaves = [leaf.path for leaf in decided.lifted.leaves if leaf.reference is None or leaf.selects]
    known = [*leaves, *(one.path for one in asks_of(decided))]
    for path in decided.choices.accept:
        if not any(one == path or one.startswith(f"{path}.") for one in known):
            raise unknown_path("accept", path, known)


def _paragraphs(left: list[Ask]) -> Iterator[tuple[str, str]]:
    """(what is open, what can be done about it) for each kind."""
    for kind, (what, how) in _TOLD.items():
        texts = [one.text for one in left if one.kind == kind]
        if texts:
            more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            yield what.format("; ".join(texts[:_SHOWN]) + more), how
