"""Aligned: one run with its calls in the places of a plan, and the leaves of that plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.references import (
    Expression,
    Hole,
    Path,
    Reference,
    compile_value,
    fill,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text, read
from ideabridge.bridge.lifting.function import Executed, Function
from ideabridge.bridge.lifting.index import is_like_a_map
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.tool import META_PROPERTIES

# -- a run aligned to a plan ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a value comes from: the input (`place` None), or the result of the call in a place of the plan."""

    place: int | None
    path: Path


class AlignedRun:
    """One run.

    Args:
        function: the run as a function.
        calls: its calls in the places of the plan.
    """

    def __init__(self, function: Function, calls: Sequence[Executed]) -> None:
        self.function = function
        self.calls = calls
        self._opened: dict[int | None, JSON | Missing] = {}

    @property
    def run_id(self) -> str:
        """The run."""
        return self.function.run.id

    @cached_property
    def places(self) -> dict[int, int]:
        """The places in the plan, by number in the run."""
        return {one.index: place for place, one in enumerate(self.calls) if one.is_made}

    @cached_property
    def recorded(self) -> dict[int, int]:
        """The number in the run of each call of the plan that it made."""
        return {place: one.index for place, one in enumerate(self.calls) if one.is_made}

    def document(self, place: int | None) -> JSON | Missing:
        """Return the input or the result of a call; MISSING if the call has no result."""
        if place is None:
            return self.function.input or {}
        progress = self.calls[place].progress
        return progress.value if progress.status is CallStatus.DONE else MISSING

    def value(self, source: ValueSource) -> JSON | Missing:
        """The value at a source."""
        document = self.document(source.place)
        if isinstance(document, str) and source.path:
            if source.place not in self._opened:
                self._opened[source.place] = parsed_text(document)
            document = self._opened[source.place]
        return document if isinstance(document, Missing) else read(document, source.path)

    def leaf(self, place: int | None, keys: Path) -> JSON | Missing:
        """Return a resolved value in the parameters of the call in a place (None: in the output)."""
        if place is None:
            return read(self.function.run.result, keys)
        one = self.calls[place]
        if keys[0] in ("_each", "_output") or not one.progress.items:
            written = read(one.raw, keys)
            return MISSING if isinstance(written, Missing) or _refers(written) else _literal(written)
        found = [read(item.parameters, keys) for item in one.progress.items]
        first = found[0]
        if isinstance(first, Missing) or any(isinstance(other, Missing) or not same(first, other) for other in found):
            return MISSING
        return first

    def written_reference(self, place: int, keys: Path) -> str | None:
        """Return the reference that was written there, with the numbers of the run; None for a literal."""
        found = read(self.calls[place].raw, keys)
        return found if isinstance(found, str) and _refers(found) else None

    def read(self, text: str, arguments: JSONObject | None = None) -> JSON | Missing:
        """Return what a reference with one operand and the numbers of the plan reads in this run.

        Args:
            text: the reference.
            arguments: the input of the tool for this run; None: the input of the run.
        """
        [operand] = parse_reference(text).operands()
        if operand.kind == "input":
            return read(self.function.input or {} if arguments is None else arguments, operand.path)
        source = self.source_in_plan(operand)
        return MISSING if source is None else self.value(source)

    # -- references --------------------------------------------------------------------------------------------

    def reference_to(self, source: ValueSource) -> str | None:
        """Return the reference with which a plan reads a source; None if no reference certainly does."""
        if source.place is None:
            return format_reference(("input", *source.path))
        one = self.calls[source.place]
        if one.progress.status is not CallStatus.DONE or not one.progress.wrote:
            return None
        at = one.progress.wrote[0]
        if at[0] == "results":
            return format_reference(("results", str(source.place), *source.path))
        if one.progress.call.method != "set" or self._writers(at) != [source.place]:
            return None
        return format_reference((*at, *source.path))

    def _writers(self, path: Path) -> list[int]:
        """The places of the calls that write to a path, to a part of it, or to what contains it."""
        found = set(self._below.get(path, ()))
        for length in range(len(path)):
            found.update(self._at.get(path[:length], ()))
        return sorted(found)

    @cached_property
    def _at(self) -> dict[Path, set[int]]:
        """The places of the calls that write to a path."""
        places: dict[Path, set[int]] = {}
        for place, one in enumerate(self.calls):
            for path in one.progress.call.writes:
                places.setdefault(path, set()).add(place)
        return places

    @cached_property
    def _below(self) -> dict[Path, set[int]]:
        """The places of the calls that write to a path, or to a part of it."""
        places: dict[Path, set[int]] = {}
        for path, writers in self._at.items():
            for length in range(len(path) + 1):
                places.setdefault(path[:length], set()).update(writers)
        return places

    def source_of(self, operand: Reference) -> ValueSource | None:
        """Return the source that an operand of the run reads, if it is the input or the result of one call."""
        if operand.kind == "input":
            return ValueSource(None, operand.path)
        if operand.kind == "results" and operand.path and operand.path[0].isdecimal():
            place = self.places.get(int(operand.path[0]))
            return None if place is None else ValueSource(place, operand.path[1:])
        writers = self._writers(operand.full)
        if operand.kind != "state" or len(writers) != 1:
            return None
        call = self.calls[writers[0]].progress
        if call.call.method != "set" or not call.wrote or operand.full[: len(call.wrote[0])] != call.wrote[0]:
            return None
        return ValueSource(writers[0], operand.full[len(call.wrote[0]) :])

    def source_in_plan(self, operand: Reference) -> ValueSource | None:
        """Do the same as `source_of` for an operand with the numbers of the plan."""
        if operand.kind == "results" and operand.path and operand.path[0].isdecimal():
            place = int(operand.path[0])
            return ValueSource(place, operand.path[1:]) if place < len(self.calls) else None
        return self.source_of(operand)

    def sources_of(self, expression: Expression) -> list[ValueSource]:
        """Return every source that an expression may read."""
        found = [self.source_of(operand) for operand in expression.operands()]
        return [one for one in found if one is not None]


def _refers(value: JSON) -> bool:
    holes: list[Hole] = []
    compile_value(value, holes, [])
    return bool(holes)


def _literal(value: JSON) -> JSON:
    return fill(compile_value(value, [], []), lambda _: None)


def is_data_key(aligned: AlignedRun, source: ValueSource) -> bool:
    """Return whether a path leads through a key that looks like data and not like the name of a field.

    Keys that a schema declares are fields. Any other key may be data if it does not have the form of a name in a
    program, or if its object contains only numbers, or only objects of one form.
    """
    schema = _schema(aligned, source.place)
    for depth, key in enumerate(source.path):
        declared = schema.get("properties") if isinstance(schema, dict) else None
        schema = declared.get(key) if isinstance(declared, dict) else None
        if schema is not None or (source.place is None and not depth):
            continue
        parent = aligned.value(ValueSource(source.place, source.path[:depth]))
        parent = parsed_text(parent) if isinstance(parent, str) else parent
        if isinstance(parent, dict) and (is_like_a_map(parent) or not _NAME.fullmatch(key)):
            return True
    return False


def is_position(aligned: AlignedRun, source: ValueSource) -> bool:
    """Return whether a path leads through a position in a list with more than one item."""
    for depth, key in enumerate(source.path):
        if key.isdecimal():
            above = aligned.value(ValueSource(source.place, source.path[:depth]))
            listed = parsed_text(above) if isinstance(above, str) else above
            if isinstance(listed, list) and len(listed) > 1:
                return True
    return False


def has_field_names(value: JSONObject) -> bool:
    """Return whether the keys of an object have the form of names in a program, at least the first twenty."""
    return all(_NAME.fullmatch(key) for key in islice(value, 20))


_NAME = re.compile(r"[a-z_$][A-Za-z0-9_$-]*")


def _schema(aligned: AlignedRun, place: int | None) -> JSONObject | None:
    if place is None:
        return aligned.function.input_schema
    tool = aligned.calls[place].progress.call.tool
    return tool.output if tool is not None else None


# -- leaves ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of a plan.

    Attributes:
        path: its path in the plan: `calls.0.max_count`, `output.title`.
        place: the place of its call; None: it belongs to the output.
        keys: the keys below the call or the output.
        value: its value in the run, with resolved references.
        reference: the reference that the plan has there; None: a literal.
        demanded: True if the tool's schema allows no other value.
        schema: the tool's schema of the parameter, as far as its keys lead; None without one.
    """

    path: str
    place: int | None
    keys: Path
    value: JSON
    reference: str | None = None
    demanded: bool = False
    schema: JSONObject | None = None

    @property
    def at(self) -> Path:
        """The path as keys, as in `Explained.at`."""
        return ("output", *self.keys) if self.place is None else ("calls", str(self.place), *self.keys)

    @property
    def paths(self) -> list[str]:
        """The paths of the call or the output, of what contains the part, and of the part itself."""
        names = names_of(self.place, self.keys)
        return [".".join(names[:depth]) for depth in range(1, len(names) + 1)]

    def is_within(self, paths: Collection[str]) -> bool:
        """Return whether it has one of some paths, or is a part of what has one."""
        return bool(paths) and any(path in paths for path in self.paths)


def short(value: JSON, limit: int = 60) -> str:
    """Return a value as one line."""
    text = encode_text(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def contrast(now: JSON, before: JSON, limit: int = 200) -> str:
    """Return the difference of two values in one line: `NOW instead of BEFORE` if both are short, otherwise the first
    difference with its path.
    """
    if len(encode_text(now)) <= limit and len(encode_text(before)) <= limit:
        return f"{encode_text(now)} instead of {encode_text(before)}"
    keys: list[str] = []
    while True:
        where = f"at {_dotted(keys)}: " if keys else ""
        ours, theirs = _members(now), _members(before)
        if ours is None or theirs is None or isinstance(now, dict) is not isinstance(before, dict):
            break
        both = [key for key in theirs if key in ours]
        key = next((key for key in both if encode_text(ours[key]) != encode_text(theirs[key])), None)
        if key is not None:
            keys.append(key)
            now, before = ours[key], theirs[key]
            continue
        if isinstance(now, list):
            return f"{where}{len(ours)} items instead of {len(theirs)}"
        new, gone = ([name for name in one if name not in other] for one, other in ((ours, theirs), (theirs, ours)))
        if gone:
            return f"{_dotted([*keys, gone[0]])} is gone; it was {short(theirs[gone[0]], limit)}"
        if new:
            return f"{_dotted([*keys, new[0]])} is new: {short(ours[new[0]], limit)}"
        return f"{where}the same members in another order: {short([*ours], limit)} instead of {short([*theirs], limit)}"
    if isinstance(now, str) and isinstance(before, str):
        start = next((n for n, (mine, other) in enumerate(zip(now, before, strict=False)) if mine != other), None)
        if start is None:
            start = min(len(now), len(before))
        begin = max(0, start - 20)
        shown = [_window(text, begin, limit // 2) for text in (now, before)]
        return f"{where}from character {start + 1:,} on, {shown[0]} instead of {shown[1]}"
    return f"{where}{short(now, limit)} instead of {short(before, limit)}"


def _dotted(keys: Iterable[str]) -> str:
    return ".".join(map(_name, keys))


def _members(value: JSON) -> Mapping[str, JSON] | None:
    if isinstance(value, list):
        return {str(number): item for number, item in enumerate(value)}
    return value if isinstance(value, dict) else None


def _window(text: str, begin: int, size: int) -> str:
    """A part of a text, with dots where it was cut."""
    before, after = "..." if begin else "", "..." if len(text) > begin + size else ""
    return encode_text(f"{before}{text[begin : begin + size]}{after}")


Whole = Callable[[int | None, Path, JSON], bool]
"""(place, keys, literal): whether a list or object is one leaf."""


def leaves_of_call(call: JSON, place: int, catalogue: Catalogue, whole: Whole) -> Iterator[Leaf]:
    """Yield every leaf of the parameters of a call. An empty array or object is a leaf.

    `_each` over literal items and a latent `_output` count as parameters; the other meta-properties are the plan's
    structure.
    """
    if not isinstance(call, dict):
        return
    # A tool that is gone demands nothing; the plan's own check names it.
    tool = catalogue.look_up(call)
    schemas = catalogue.parameters_of(tool) if tool is not None else {}
    for key, value in call.items():
        if key not in META_PROPERTIES or key in ("_each", "_output"):
            yield from _leaves(value, place, (key,), schemas.get(key), whole)


def leaves_of_output(output: JSON, whole: Whole) -> Iterator[Leaf]:
    """Yield every leaf of an output; null has none."""
    if output is not None:
        yield from _leaves(output, None, (), None, whole)


def names_of(place: int | None, keys: Path) -> list[str]:
    """Return the parts of a leaf's path, which dots join: a key that contains a dot is quoted."""
    return ["output" if place is None else f"calls.{place}", *map(_name, keys)]


def _name(key: str) -> str:
    return encode_text(key) if not key or "." in key or key.startswith('"') else key


def _leaves(value: JSON, place: int | None, keys: Path, schema: JSON, whole: Whole) -> Iterator[Leaf]:
    path = ".".join(names_of(place, keys))
    if isinstance(value, str) and is_reference(value):
        yield Leaf(path, place, keys, None, value)
        return
    literal = fill(compile_value(value, [], []), lambda _: None)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    items = schema.get("items") if isinstance(schema, dict) else None
    if isinstance(value, dict | list) and value and not (plain(value) and whole(place, keys, literal)):
        pairs = value.items() if isinstance(value, dict) else ((str(number), one) for number, one in enumerate(value))
        for key, item in pairs:
            part = items if isinstance(value, list) else properties.get(key) if isinstance(properties, dict) else None
            yield from _leaves(item, place, (*keys, key), part, whole)
        return
    known = schema if isinstance(schema, dict) else None
    yield Leaf(path, place, keys, literal, demanded=_demanded(literal, schema), schema=known)


def plain(value: JSON) -> bool:
    """Return whether a value contains no reference."""
    if isinstance(value, str):
        return not is_reference(value)
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(plain(item) for item in members)


def _demanded(value: JSON, schema: JSON) -> bool:
    if not isinstance(schema, dict):
        return False
    if "const" in schema:
        return schema["const"] == value
    return schema.get("enum") == [value]
