"""ListedOrder: which calls of one Solution wait for calls listed before them although they share no data.

Theory of operation. Tools rarely say everything they touch, so a plan is only right if its effects happen in the order
in which it lists them. Within one module and instance:

- a *change* (a call whose tool does not say that it is read-only) waits for all calls listed before it;
- a *read* waits for the changes listed before it. Reads run beside each other.

A pair (module, instance) is a *lane*. Own Python tools share one lane. A call of an idea is in the lane of every
module that its plan calls, and in all lanes where a mind answers it; a clean room in the lanes of the tools it is
given; a latent call and a built-in tool in no lane. A call waits until the earlier calls have settled, however they
ended: `_after` demands success, order does not. Order holds the execution of a call, not the question whether it may
run.

Data flow and `_after` win. Where an earlier call reads what a later call writes, the two kinds of edges close a circle;
then `rearrange` drops the order within that circle and keeps it everywhere else. Later alternatives (`a || b`) may
close a circle of data alone, which the run may never need. Calls in it keep their order until nothing else can move;
then `give_way` lets a call run for which an earlier one waits.

A call does not keep a list of those it waits for, which would make a long Solution quadratic. Each lane keeps its
members in order, and `before` looks backwards from a call for the nearest member that has not settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple, TypeAlias

from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.cycles import emission
from ideabridge.tools.tool import EVERY_MODULE, Order, Tool

Ordering: TypeAlias = Order | Literal["declared", "listed"]
"""What a journal records. `declared` and `listed` stand in journals of version 0.1: only calls whose tools declare
effects keep their order; and all calls do, within module and instance. Both run the items of `_each` at once."""

_Key: TypeAlias = "tuple[str, str]"
"""(module, instance) of a lane; module "" for own tools."""

_WHOLE: Final = ("", "")
"""The one lane of order `all`."""


@dataclass(frozen=True, slots=True)
class ModuleOrder:
    """What the configuration says about the order of one module's calls.

    Attributes:
        ordered: False: its calls keep no order.
        reads: names or patterns of tools that only read, whatever they say about themselves.
    """

    ordered: bool = True
    reads: tuple[str, ...] = ()


class _Place(NamedTuple):
    """How one call takes part: its lanes (None: every lane of its instance), and whether it may change something."""

    modules: tuple[str, ...] | None
    instance: str
    changes: bool


class _Sequence:
    """Calls one after another. Settled ones are passed over once, however often somebody looks."""

    __slots__ = ("_nearest", "indexes")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        # By position: an earlier one, with nothing but settled calls in between.
        self._nearest: list[int] = []

    def append(self, index: int) -> None:
        self._nearest.append(len(self.indexes) - 1)
        self.indexes.append(index)

    def last_open(self, below: int, settled: Callable[[int], bool]) -> int | None:
        """The last call before the position `below` that has not settled."""
        position = below - 1
        passed: list[int] = []
        while position >= 0 and settled(self.indexes[position]):
            passed.append(position)
            position = self._nearest[position]
        for one in passed:
            self._nearest[one] = position
        return self.indexes[position] if position >= 0 else None


@dataclass(slots=True)
class _Lane:
    """The calls of one module and instance, in order.

    Attributes:
        everyone, changes: all of its calls, and those that may change something.
        tail: the last change and the reads after it: what the next change waits for directly.
        last: the last change.
    """

    everyone: _Sequence = field(default_factory=_Sequence)
    changes: _Sequence = field(default_factory=_Sequence)
    tail: list[int] = field(default_factory=list[int])
    last: int | None = None

    def add(self, index: int, *, changes: bool) -> None:
        self.everyone.append(index)
        if changes:
            self.changes.append(index)
            self.tail, self.last = [index], index
        else:
            self.tail.append(index)


class _Lanes:
    """All lanes of one Solution."""

    def __init__(self) -> None:
        self._lanes: dict[_Key, _Lane] = {}
        # Calls that are in every lane, by instance: a lane that begins later begins with them.
        self._everywhere: dict[str, list[tuple[int, bool]]] = {}

    def of(self, place: _Place) -> list[_Lane]:
        """The lanes of a call; those that do not exist begin."""
        if place.modules is None:
            # A lane of its own holds what is everywhere while no other lane exists.
            self._lane((EVERY_MODULE, place.instance))
            return [lane for (_, instance), lane in self._lanes.items() if instance == place.instance]
        return [self._lane((module, place.instance)) for module in place.modules]

    def _lane(self, key: _Key) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
            for index, changes in self._everywhere.get(key[1], ()):
                lane.add(index, changes=changes)
        return lane

    def add(self, index: int, place: _Place) -> None:
        """A call takes its place behind all that are there."""
        for lane in self.of(place):
            lane.add(index, changes=place.changes)
        if place.modules is None:
            self._everywhere.setdefault(place.instance, []).append((index, place.changes))

    def before(self, place: _Place) -> list[int]:
        """The calls that a call behind all that are there waits for directly."""
        found: dict[int, None] = {}
        for lane in self.of(place):
            if place.changes:
                found.update(dict.fromkeys(lane.tail))
            elif lane.last is not None:
                found[lane.last] = None
        return list(found)

    def looks(self, place: _Place) -> list[tuple[_Sequence, int]]:
        """(sequence, how many of it are before) to look through for what such a call waits for."""
        sequences = [lane.everyone if place.changes else lane.changes for lane in self.of(place)]
        return [(one, len(one.indexes)) for one in sequences]


class ListedOrder:
    """Keeps calls of one Solution in the order they are listed; the module's docstring has the rules.

    Args:
        ordering: `effects`: as described above; `all`: every call waits for all calls listed before it; `none`: no
            call waits; and see `Ordering`.
        modules: what the configuration says of single modules; read with `effects` alone.
    """

    def __init__(self, ordering: Ordering, modules: Mapping[str, ModuleOrder] | None = None) -> None:
        self._ordering: Ordering = ordering
        self._modules = modules or {}
        self._places: dict[int, _Place] = {}
        self._looks: dict[int, list[tuple[_Sequence, int]]] = {}
        self._given_way: dict[int, set[int]] = {}
        self._lanes = _Lanes()

    def note(self, call: Call, tools: Sequence[Tool]) -> None:
        """A call is listed; its instance is known.

        Args:
            call: the call.
            tools: those by which it may change or read something: its own, or those that its clean room is given.
        """
        place = self._place(call, tools)
        if place is None:
            return
        index = call.index
        self._places[index] = place
        self._looks[index] = self._lanes.looks(place)
        call.order = self._lanes.before(place)
        self._lanes.add(index, place)

    def _place(self, call: Call, tools: Sequence[Tool]) -> _Place | None:
        tool = call.tool
        if self._ordering == "all":
            return _Place((_WHOLE[0],), _WHOLE[1], changes=True)
        if self._ordering == "none" or tool is None:
            return None
        if self._ordering in ("listed", "declared"):
            kept = self._ordering == "listed" or tool.annotations.declares_effects
            return _Place((tool.module or "",), call.instance, changes=True) if kept else None
        changes = not all(self._reads(one) for one in tools)
        modules = dict.fromkeys(module for one in tools for module in one.reached)
        if EVERY_MODULE in modules:
            return _Place(None, call.instance, changes)
        ordered = tuple(one for one in modules if self._modules.get(one, _DEFAULT).ordered)
        return _Place(ordered, call.instance, changes) if ordered else None

    def _reads(self, tool: Tool) -> bool:
        if tool.annotations.read_only is True:
            return True
        own = self._modules.get(tool.module or "", _DEFAULT)
        return any(fnmatchcase(tool.remote_name or tool.name, pattern) for pattern in own.reads)

    def may_change(self, call: Call) -> bool:
        """Whether a call takes part as a change."""
        place = self._places.get(call.index)
        return place is not None and place.changes

    def itemwise(self, call: Call) -> bool:
        """Whether the items of its `_each` run one after another: they may change something."""
        return self.may_change(call) and self._ordering in ("effects", "all")

    def before(self, call: Call, settled: Callable[[int], bool]) -> int | None:
        """A call that this one waits for; None: none is left.

        Args:
            call: a call of this Solution.
            settled: whether nothing more comes of the call of an index.
        """
        given_way = self._given_way.get(call.index)
        for sequence, below in self._looks.get(call.index, ()):
            if given_way is None:
                found = sequence.last_open(below, settled)
            else:
                left = (one for one in reversed(sequence.indexes[:below]) if one not in given_way and not settled(one))
                found = next(left, None)
            if found is not None:
                return found
        return None

    def give_way(self, call: Call, before: int) -> None:
        """A call no longer waits for an earlier one, which waits for its result."""
        self._given_way.setdefault(call.index, set()).add(before)

    def join(self, call: Call, tool: Tool) -> None:
        """Another tool runs in the place of a call's own: it takes part as that tool does. `rearrange` follows."""
        place = self._place(call, [tool])
        self._places.pop(call.index, None)
        if place is not None:
            self._places[call.index] = place

    def rearrange(self, data: Mapping[int, Sequence[int]], call_of: Callable[[int], Call]) -> None:
        """Order gives way where data flows backwards: an earlier call that reads a later one runs after it.

        Args:
            data: what each call waits for by data and by `_after`, for all calls in listing order.
            call_of: the call of an index.
        """
        parts = emission(data, self._edges())
        self._lanes = _Lanes()
        self._looks.clear()
        for part in parts:
            # A part of several calls is a circle of data; they keep their order until `give_way` says otherwise.
            for index in part:
                place = self._places.get(index)
                call_of(index).order = [] if place is None else self._lanes.before(place)
                if place is not None:
                    self._looks[index] = self._lanes.looks(place)
                    self._lanes.add(index, place)

    def _edges(self) -> dict[int, Iterable[int]]:
        """What each call waits for directly where all keep the order in which they are listed."""
        lanes = _Lanes()
        edges: dict[int, Iterable[int]] = {}
        for index in sorted(self._places):
            edges[index] = lanes.before(self._places[index])
            lanes.add(index, self._places[index])
        return edges


_DEFAULT: Final = ModuleOrder()
