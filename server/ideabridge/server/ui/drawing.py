"""Drawing: calls as boxes in layers, and the values and orders between them as arrows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ideabridge.bridge.context.references import format_reference
from ideabridge.bridge.loop.graph import components
from ideabridge.bridge.loop.machine import Machine
from ideabridge.server.ui.timeline import awaited, suppliers
from ideabridge.server.views.trace import Trace

MOST: Final = 150
"""Calls of a drawing; more could not be read."""

_MOST_PARTS: Final = 1000
"""Boxes and arrows of a drawing together. One call may read thousands of values."""

_WIDTH = 168
_HEIGHT = 40
_GAP_X = 56
_GAP_Y = 14
_SWEEPS: Final = 4
_TEXT: Final = 22


@dataclass(frozen=True, slots=True)
class Box:
    """A box: a call, an input, or the output."""

    key: str
    title: str
    note: str = ""
    status: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow; `kind` is `data` or `order`."""

    source: str
    target: str
    kind: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A box with its left upper corner."""

    node: Box
    x: int
    y: int

    @property
    def title(self) -> str:
        """The title, as far as it fits."""
        return _fit(self.node.title)

    @property
    def note(self) -> str:
        """The note, as far as it fits."""
        return _fit(self.node.note)


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and arrows with their places, in pixels."""

    nodes: list[Placed]
    edges: list[tuple[Arrow, str]]
    width: int
    height: int

    @property
    def box(self) -> tuple[int, int]:
        """The width and height of a box."""
        return _WIDTH, _HEIGHT


def draw(nodes: Sequence[Box], edges: Iterable[Arrow]) -> Drawing:
    """Place boxes in layers from left to right, each after those that it waits for, so that
    few arrows cross.
    """
    keys = {node.key for node in nodes}
    arrows = [edge for edge in dict.fromkeys(edges) if edge.source in keys and edge.target in keys]
    layers = _layers(nodes, arrows)
    before = defaultdict[str, list[str]](list)
    after = defaultdict[str, list[str]](list)
    for edge in arrows:
        before[edge.target].append(edge.source)
        after[edge.source].append(edge.target)

    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        order = range(1, len(layers)) if down else range(len(layers) - 2, -1, -1)
        for number in order:
            _sort(
                layers[number],
                layers[number - 1 if down else number + 1],
                before if down else after,
            )

    tallest = max((len(layer) for layer in layers), default=0)
    by_key = {node.key: node for node in nodes}
    places: dict[str, tuple[int, int]] = {}
    for number, layer in enumerate(layers):
        top = (tallest - len(layer)) * (_HEIGHT + _GAP_Y) // 2
        for row, key in enumerate(layer):
            places[key] = 8 + number * (_WIDTH + _GAP_X), 8 + top + row * (_HEIGHT + _GAP_Y)

    return Drawing(
        [Placed(by_key[key], *place) for key, place in places.items()],
        [(edge, _curve(places[edge.source], places[edge.target])) for edge in arrows],
        16 + max(1, len(layers)) * (_WIDTH + _GAP_X) - _GAP_X,
        16 + max(1, tallest) * (_HEIGHT + _GAP_Y) - _GAP_Y,
    )


def _layers(nodes: Sequence[Box], edges: Sequence[Arrow]) -> list[list[str]]:
    number = {node.key: place for place, node in enumerate(nodes)}
    before: dict[int, set[int]] = {place: set() for place in number.values()}
    for edge in edges:
        before[number[edge.target]].add(number[edge.source])

    depth: dict[int, int] = {}
    for part in components(before):
        suppliers = {supplier for member in part for supplier in before[member]}.difference(part)
        depth.update(
            dict.fromkeys(part, 1 + max((depth[supplier] for supplier in suppliers), default=-1))
        )

    readers = defaultdict[int, list[int]](list)
    for edge in edges:
        readers[number[edge.source]].append(number[edge.target])

    # A box without a supplier stands beside its first reader, not at the far left.
    for source, targets in readers.items():
        if not before[source]:
            depth[source] = min(depth[target] for target in targets) - 1

    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[number[node.key]]].append(node.key)

    return [layer for layer in layers if layer]


def _sort(layer: list[str], beside: list[str], neighbours: Mapping[str, list[str]]) -> None:
    """Order a layer by the middle of the neighbours that each box has in the layer beside it."""
    places = {key: place for place, key in enumerate(beside)}
    own = {key: place for place, key in enumerate(layer)}

    def middle(key: str) -> float:
        near = [places[neighbour] for neighbour in neighbours.get(key, ()) if neighbour in places]
        return sum(near) / len(near) if near else own[key]

    layer.sort(key=middle)


def _curve(source: tuple[int, int], target: tuple[int, int]) -> str:
    """The path of an arrow from the right side of one box to the left side of another."""
    x = source[0] + _WIDTH
    y = source[1] + _HEIGHT // 2
    to_x = target[0] - 4
    to_y = target[1] + _HEIGHT // 2
    bend = max(24, (to_x - x) // 2)
    return f"M{x} {y} C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"


def _fit(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


class _Parts:
    """The boxes and arrows of a drawing while they are collected."""

    def __init__(self) -> None:
        self._calls: list[Box] = []
        self._givens: dict[str, Box] = {}
        # Equal arrows are one arrow.
        self._arrows: dict[Arrow, None] = {}

    @property
    def are_too_many(self) -> bool:
        """Whether nobody could read a drawing of them."""
        return len(self._calls) + len(self._givens) + len(self._arrows) > _MOST_PARTS

    def add_call(self, box: Box) -> None:
        """Add the box of a call."""
        self._calls.append(box)

    def add_arrow(self, arrow: Arrow) -> None:
        """Add an arrow between two calls."""
        self._arrows[arrow] = None

    def add_given(self, text: str, target: str, note: str = "") -> None:
        """Add an arrow from a value that exists from the start to the call `target` that reads
        it.
        """
        box = self._givens.setdefault(text, Box(f"g{len(self._givens)}", text, note, "given"))
        self.add_arrow(Arrow(box.key, target, "data", text))

    def draw(self) -> Drawing:
        """Place them."""
        return draw([*self._givens.values(), *self._calls], _without_detours([*self._arrows]))


def of_run(machine: Machine, trace: Trace, href: str) -> Drawing | None:
    """The drawing of the calls of a run; None without calls, or if there is too much to draw.
    `href` begins their links. A large one takes 0.1 s.
    """
    if not 0 < len(machine.history) <= MOST:
        return None

    parts = _Parts()
    for progress, bar in zip(machine.history, trace.bars, strict=False):
        call = progress.call
        key = f"c{progress.call.index}"
        writes = ", ".join(format_reference(path) for path in call.writes)
        status = progress.status.value if progress.settled else bar.status
        title = f"{call.index} {call.name}"
        parts.add_call(
            Box(
                key, title, call.instance or writes.removeprefix("†"), status, f"{href}{call.index}"
            )
        )
        for read in call.reads:
            for alternative, operands in zip(
                read.expression.alternatives, read.bound, strict=False
            ):
                for operand, writers in zip(alternative, operands, strict=True):
                    for writer in writers or ():
                        parts.add_arrow(Arrow(f"c{writer}", key, "data", operand.text))
                    if not writers and operand.kind != "item":
                        parts.add_given(operand.text, key)

        data = suppliers(progress)
        for number, reason in awaited(progress).items():
            if number not in data:
                parts.add_arrow(Arrow(f"c{number}", key, "order", reason))

        if parts.are_too_many:
            return None

    return parts.draw()


def _without_detours(edges: Sequence[Arrow]) -> list[Arrow]:
    """The arrows without those of the order of effects that others imply."""
    before = defaultdict[str, set[str]](set)
    for edge in edges:
        before[edge.target].add(edge.source)

    def reaches(target: str, source: str) -> bool:
        """Whether a way from source to target has another box in between."""
        passed: set[str] = set()
        waiting = [key for key in before[target] if key != source]
        while waiting:
            box = waiting.pop()
            if box == source:
                return True
            if box not in passed:
                passed.add(box)
                waiting += before.get(box, ())

        return False

    return [edge for edge in edges if edge.kind != "order" or not reaches(edge.target, edge.source)]


def of_dry_run(rehearsal: Mapping[str, Any]) -> Drawing | None:
    """The drawing of what `Bridge.dry_run` returns for a plan; None if there is too much to draw. A
    large one takes 0.1 s.
    """
    calls: list[dict[str, Any]] = rehearsal.get("calls", [])
    if not 0 < len(calls) <= MOST:
        return None

    parts = _Parts()
    keys = {
        (call["place"], call.get("instance")): f"c{number}" for number, call in enumerate(calls)
    }
    missing = frozenset[str](rehearsal.get("missing_inputs", ()))
    for number, call in enumerate(calls):
        key = f"c{number}"
        note = ", ".join(call["writes"])
        status = "done" if call["read_only"] else "asking"
        parts.add_call(Box(key, f"{call['place']} {call['tool']}", note.removeprefix("†"), status))
        ordered = frozenset[Any](call.get("ordered_after", ()))
        for place in call["after"]:
            source = keys.get((place, call.get("instance"))) or keys.get((place, None))
            if source is not None:
                parts.add_arrow(Arrow(source, key, "order" if place in ordered else "data"))

        for text in call["reads"]:
            if text.startswith("†input"):
                parts.add_given(text, key, "missing" if text in missing else "")

        if parts.are_too_many:
            return None

    return parts.draw()
