"""Draw calls as boxes in columns, with arrows for the values passed between calls and for the order
in which they run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ideabridge.bridge.context.references import format_reference
from ideabridge.bridge.loop.call import Read
from ideabridge.bridge.loop.graph import depths
from ideabridge.bridge.loop.machine import Machine
from ideabridge.server.ui.call_names import CallName, call_names
from ideabridge.server.ui.reference_words import ReferenceWords
from ideabridge.server.ui.stages import MOST_NAMED, stages_of
from ideabridge.server.ui.timeline import awaited, call_status, suppliers
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.server.views.trace import Trace
from ideabridge.tools.tool import ToolKey

MAX_CALLS: Final = 150
"""Maximum number of calls in a drawing. A larger drawing would be unreadable."""

_MAX_PARTS: Final = 1000
"""Maximum number of boxes and arrows in a drawing, counted together. A single call can read
thousands of values.
"""

# The sizes of a drawing's parts, in pixels.
_WIDTH: Final = 150
_HEIGHT: Final = 40
_GAP_X: Final = 40
_GAP_Y: Final = 14
_MARGIN: Final = 8

_SWEEPS: Final = 4
"""How many times the layers are sorted, alternately from left to right and back."""

_MAX_LANES: Final = 200
"""Maximum number of columns that all arrows together pass through."""

_MAX_CHARACTERS: Final = 19
"""Maximum length of a line of text in a box, in characters."""

_OF_INPUT: Final = " of the input"
"""The end of the description of an input member."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box in a drawing: a call, an input, or the output.

    Attributes:
        place: what distinguishes the box from others with the same title, or "" if nothing does.
    """

    key: str
    title: str
    note: str = ""
    status: str = ""
    href: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow in a drawing. `kind` is `data` or `order`."""

    source: str
    target: str
    kind: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A box with the position of its upper left corner."""

    node: Box
    x: int
    y: int

    @property
    def title(self) -> str:
        """The title with the box's `place`, shortened to fit into the box."""
        place = f" {self.node.place}" if self.node.place else ""
        return f"{_fit(self.node.title, _MAX_CHARACTERS - len(place))}{place}"

    @property
    def note(self) -> str:
        """The note, shortened to fit into the box."""
        return _fit(self.node.note)


@dataclass(frozen=True, slots=True)
class _Spot:
    """The upper left corner of a box or of an arrow's lane."""

    x: int
    y: int

    @property
    def middle(self) -> int:
        """The height at which arrows arrive and leave."""
        return self.y + _HEIGHT // 2


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and arrows with their positions, in pixels."""

    nodes: list[Placed]
    edges: list[tuple[Arrow, str]]
    width: int
    height: int

    @property
    def columns(self) -> int:
        """The number of columns of boxes."""
        return (self.width - 2 * _MARGIN + _GAP_X) // (_WIDTH + _GAP_X)

    @property
    def has_order(self) -> bool:
        """Whether any arrow only says that one call waits for another."""
        return any(arrow.kind == "order" for arrow, _ in self.edges)

    @property
    def box(self) -> tuple[int, int]:
        """The width and height of a box."""
        return _WIDTH, _HEIGHT


def place_boxes(
    nodes: Sequence[Box], edges: Iterable[Arrow], stages: Sequence[Iterable[str]] = ()
) -> Drawing:
    """Place boxes in columns from left to right, so that each box comes after those that it depends
    on and few arrows cross.

    Args:
        nodes: the boxes.
        edges: the arrows. Arrows from or to a missing box are left out.
        stages: the keys of the boxes that share a column, for each stage from left to right.
    """
    by_key = {node.key: node for node in nodes}
    # Draw equal arrows only once.
    distinct = dict.fromkeys(edges)
    arrows = [arrow for arrow in distinct if arrow.source in by_key and arrow.target in by_key]
    column_of = _columns(nodes, arrows, stages)
    routes = _routes(arrows, column_of)
    layers = _layers(nodes, routes, column_of)
    _sort_layers(layers, routes)

    tallest = max((len(layer) for layer in layers), default=0)
    column_width = _WIDTH + _GAP_X
    row_height = _HEIGHT + _GAP_Y
    spots: dict[str, _Spot] = {}
    for column, layer in enumerate(layers):
        x = _MARGIN + column * column_width
        top = _MARGIN + (tallest - len(layer)) * row_height // 2
        for row, key in enumerate(layer):
            spots[key] = _Spot(x, top + row * row_height)

    placed = [Placed(node, spots[node.key].x, spots[node.key].y) for node in nodes]
    curves = [
        (arrow, _path([spots[key] for key in route]))
        for arrow, route in zip(arrows, routes, strict=True)
    ]
    # Make an empty drawing as large as one box. The last column and the last row need no gap.
    columns = max(1, len(layers))
    rows = max(1, tallest)
    return Drawing(
        nodes=placed,
        edges=curves,
        width=2 * _MARGIN + columns * column_width - _GAP_X,
        height=2 * _MARGIN + rows * row_height - _GAP_Y,
    )


def _columns(
    nodes: Sequence[Box], arrows: Sequence[Arrow], stages: Sequence[Iterable[str]]
) -> dict[str, int]:
    """Return the column of each box. Columns are numbered from 0 without gaps."""
    number_of = {node.key: number for number, node in enumerate(nodes)}
    inputs = {node.key for node in nodes if node.status == "given"}
    before: dict[int, set[int]] = {number: set() for number in number_of.values()}
    for arrow in arrows:
        if arrow.source not in inputs:
            before[number_of[arrow.target]].add(number_of[arrow.source])

    for earlier, later in pairwise(stages):
        earlier_numbers = {number_of[key] for key in earlier}
        for key in later:
            before[number_of[key]] |= earlier_numbers

    depth_of = depths(before)
    column_of = {node.key: depth_of[number_of[node.key]] for node in nodes}

    # An input is beside the first call that reads it, rather than at the far left.
    for node in nodes:
        readers = [arrow.target for arrow in arrows if arrow.source == node.key]
        if node.key in inputs and readers:
            column_of[node.key] = min(column_of[reader] for reader in readers) - 1

    used = sorted(set(column_of.values()))
    place_of = {column: place for place, column in enumerate(used)}
    return {key: place_of[column] for key, column in column_of.items()}


def _routes(arrows: Sequence[Arrow], column_of: Mapping[str, int]) -> list[list[str]]:
    """Return the keys along each arrow: its source, a lane in each column between, and its target.

    A lane takes up the space of a box, so that no arrow runs through a box. Arrows from the same
    box share their lanes. If there are very many arrows, they have no lanes.
    """
    lanes_of = [
        [
            f"{arrow.source}:{column}"
            for column in range(column_of[arrow.source] + 1, column_of[arrow.target])
        ]
        for arrow in arrows
    ]
    if sum(map(len, lanes_of)) > _MAX_LANES:
        return [[arrow.source, arrow.target] for arrow in arrows]
    return [
        [arrow.source, *lanes, arrow.target] for arrow, lanes in zip(arrows, lanes_of, strict=True)
    ]


def _layers(
    nodes: Sequence[Box], routes: Iterable[Sequence[str]], column_of: Mapping[str, int]
) -> list[list[str]]:
    """Return the keys of the boxes and lanes in each column."""
    count = 1 + max(column_of.values(), default=-1)
    layers: list[dict[str, None]] = [{} for _ in range(count)]
    for node in nodes:
        layers[column_of[node.key]][node.key] = None

    for route in routes:
        first = column_of[route[0]]
        for column, lane in enumerate(route[1:-1], first + 1):
            layers[column][lane] = None

    return [list(layer) for layer in layers]


def _sort_layers(layers: list[list[str]], routes: Iterable[Sequence[str]]) -> None:
    """Order each layer so that few arrows cross, by sweeping back and forth over the layers."""
    before = defaultdict[str, list[str]](list)
    after = defaultdict[str, list[str]](list)
    for route in routes:
        for left, right in pairwise(route):
            before[right].append(left)
            after[left].append(right)

    for _ in range(_SWEEPS // 2):
        for left, layer in pairwise(layers):
            _sort(layer, left, before)
        for right, layer in pairwise(reversed(layers)):
            _sort(layer, right, after)


def _sort(layer: list[str], beside: list[str], neighbours: Mapping[str, list[str]]) -> None:
    """Order a layer by the mean position of each box's neighbours in the adjacent layer."""
    row_beside = {key: row for row, key in enumerate(beside)}
    row_now = {key: row for row, key in enumerate(layer)}

    def mean_row(key: str) -> float:
        rows = [row_beside[near] for near in neighbours.get(key, ()) if near in row_beside]
        if not rows:
            # A box that has no neighbours keeps its row.
            return row_now[key]
        return sum(rows) / len(rows)

    layer.sort(key=mean_row)


def _path(route: Sequence[_Spot]) -> str:
    """Return the path of an arrow from the right side of one box along the lanes to the left side
    of another.
    """
    source = route[0]
    target = route[-1]
    x = source.x + _WIDTH
    y = source.middle
    parts = [f"M{x} {y}"]
    for lane in route[1:-1]:
        parts.append(_bend(x, y, lane.x, lane.middle))
        x = lane.x + _WIDTH
        y = lane.middle
        parts.append(f"H{x}")

    # The tip of the arrow is in front of the box.
    parts.append(_bend(x, y, target.x - 4, target.middle))
    return " ".join(parts)


def _bend(x: int, y: int, to_x: int, to_y: int) -> str:
    """Return a curve between two points that is horizontal at both ends."""
    pull = max(18, (to_x - x) // 2)
    return f"C{x + pull} {y} {to_x - pull} {to_y} {to_x} {to_y}"


def _fit(text: str, most: int = _MAX_CHARACTERS) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…"


class _Parts:
    """Collects the boxes and arrows of a drawing."""

    def __init__(self) -> None:
        self._calls: list[Box] = []
        self._inputs: dict[str, Box] = {}
        # Draw equal arrows only once.
        self._arrows: dict[Arrow, None] = {}

    @property
    def are_too_many(self) -> bool:
        """True if a drawing of these parts would be too large to read."""
        return len(self._calls) + len(self._inputs) + len(self._arrows) > _MAX_PARTS

    def add_call(self, box: Box) -> None:
        """Add the box for a call."""
        self._calls.append(box)

    def add_arrow(self, arrow: Arrow) -> None:
        """Add an arrow between two calls."""
        self._arrows[arrow] = None

    def add_input(self, text: str, target: str, note: str = "") -> None:
        """Add an arrow to the call `target` from a value that the call reads and that exists before
        the first call.
        """
        title = ReferenceWords().of(text) or text
        if title.endswith(_OF_INPUT):
            # The whole title would not fit into a line.
            title = title.removesuffix(_OF_INPUT)
            note = note or _OF_INPUT.strip()
        box = self._inputs.setdefault(text, Box(f"g{len(self._inputs)}", title, note, "given"))
        self.add_arrow(Arrow(box.key, target, "data", text))

    def draw(self, stages: Sequence[Iterable[str]] = ()) -> Drawing:
        """Place the parts and return the drawing. See `place_boxes` for `stages`."""
        boxes = [*self._inputs.values(), *self._calls]
        return place_boxes(boxes, _without_detours([*self._arrows]), stages)


def of_run(machine: Machine, trace: Trace, names: Sequence[CallName], href: str) -> Drawing | None:
    """Return a drawing of a run's calls, or None if there are no calls or too many to draw.

    If there are only a few calls, those that ran at the same time share a column. Links to the
    calls begin with `href`. A large drawing takes 0.1 s.
    """
    if not 0 < len(machine.history) <= MAX_CALLS:
        return None

    parts = _Parts()
    for progress, bar in zip(machine.history, trace.bars, strict=False):
        call = progress.call
        box = Box(
            key=_key(call.index),
            title=names[bar.number].title,
            place=names[bar.number].place,
            note=call.instance or _note(map(format_reference, call.writes)),
            status=call_status(progress) if progress.settled else bar.status,
            href=f"{href}{call.index}",
        )
        parts.add_call(box)
        for read in call.reads:
            _add_read(parts, read, box.key)

        data = suppliers(progress)
        for number, reason in awaited(progress).items():
            if number not in data:
                parts.add_arrow(Arrow(_key(number), box.key, "order", reason))

        if parts.are_too_many:
            return None

    # The sentence about the run describes only the stages of a few calls.
    drawn = trace.bars[: len(machine.history)]
    stages = stages_of(drawn) if len(drawn) <= MOST_NAMED else []
    return parts.draw([[_key(bar.number) for bar in stage] for stage in stages])


def _key(number: int) -> str:
    """Return the key of a call's box."""
    return f"c{number}"


def _note(writes: Iterable[str]) -> str:
    """Return the note for a call: the names under which its result is written to the state."""
    names = [place.removeprefix("†state.") for place in writes if place.startswith("†state.")]
    return f"result: {', '.join(names)}" if names else ""


def _add_read(parts: _Parts, read: Read, reader: str) -> None:
    """Add the arrows for one value that a call reads, where `reader` is the key of the call."""
    for operand, writers in read.sources():
        for writer in writers:
            parts.add_arrow(Arrow(_key(writer), reader, "data", operand.text))
        if not writers:
            parts.add_input(operand.text, reader)


def _without_detours(edges: Sequence[Arrow]) -> list[Arrow]:
    """Return the arrows without the `order` arrows that other arrows already imply."""
    before = defaultdict[str, set[str]](set)
    for edge in edges:
        before[edge.target].add(edge.source)

    def has_detour(arrow: Arrow) -> bool:
        """Return whether another path leads from the arrow's source to its target through other
        boxes.
        """
        passed: set[str] = set()
        waiting = [key for key in before[arrow.target] if key != arrow.source]
        while waiting:
            box = waiting.pop()
            if box == arrow.source:
                return True
            if box not in passed:
                passed.add(box)
                waiting += before.get(box, ())

        return False

    return [edge for edge in edges if edge.kind != "order" or not has_detour(edge)]


def _names_of_plan(calls: Sequence[dict[str, Any]], titles: ToolTitles) -> dict[int, CallName]:
    """Return the names of a plan's calls, keyed by their positions in the plan. A call has one
    position even if it runs once for each instance.
    """
    tools = {int(call["place"]): _tool_in(call) for call in calls}
    return dict(zip(tools, call_names(tools.values(), titles), strict=True))


def _tool_in(call: dict[str, Any]) -> ToolKey:
    return call.get("module"), str(call["tool"])


def of_dry_run(rehearsal: Mapping[str, Any], titles: ToolTitles) -> Drawing | None:
    """Return a drawing of a `Bridge.dry_run` result for a plan, or None if the plan is too large to
    draw. A large drawing takes 0.1 s.
    """
    calls: list[dict[str, Any]] = rehearsal.get("calls", [])
    if not 0 < len(calls) <= MAX_CALLS:
        return None

    parts = _Parts()
    keys = {
        (call["place"], call.get("instance")): _key(number) for number, call in enumerate(calls)
    }
    missing = frozenset[str](rehearsal.get("missing_inputs", ()))
    names = _names_of_plan(calls, titles)
    for number, call in enumerate(calls):
        key = _key(number)
        name = names[call["place"]]
        status = "done" if call["read_only"] else "asking"
        parts.add_call(Box(key, name.title, _note(call["writes"]), status, place=name.place))
        instance = call.get("instance")
        ordered = frozenset[Any](call.get("ordered_after", ()))
        for place in call["after"]:
            source = keys.get((place, instance)) or keys.get((place, None))
            kind = "order" if place in ordered else "data"
            if source is not None:
                parts.add_arrow(Arrow(source, key, kind))

        for text in call["reads"]:
            if text.startswith("†input"):
                note = "missing" if text in missing else ""
                parts.add_input(text, key, note)

        if parts.are_too_many:
            return None

    return parts.draw()
