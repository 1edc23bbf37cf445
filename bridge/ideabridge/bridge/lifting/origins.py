"""Origins: the places from which a literal of a run may have been copied. Each origin is only a proposal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final, TypeVar

from ideabridge.bridge.context.references import (
    Expression,
    Hole,
    Path,
    Reference,
    compile_value,
    fill,
    format_reference,
    is_reference,
)
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text, read
from ideabridge.bridge.lifting.function import Executed, Function, digest, index_values, is_distinctive, same, walk
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.shaping import search
from ideabridge.tools.tool import META_PROPERTIES

# -- conditions that select an element ------------------------------------------------------------------------------

_MOST: Final = 6
"""Conditions offered for one element."""

_LONGEST: Final = 2_000
"""Items of a list that are looked at."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def lists_of(document: JSON) -> Iterator[tuple[Path, list[JSON]]]:
    """Return the lists of objects in a document, with their paths; at most 50."""
    return islice(_lists(document), 50)


def _lists(document: JSON) -> Iterator[tuple[Path, list[JSON]]]:
    for path, value in walk(document):
        inner: JSON | Missing = parsed_text(value) if isinstance(value, str) else value
        if isinstance(inner, list) and inner and isinstance(inner[0], dict) and len(inner) <= _LONGEST:
            yield path, inner


def explanations(items: list[JSON], chosen: int, rest: Path) -> list[str]:
    """Return JMESPath expressions on a list that select one element by its content and give its value at `rest`.

    Args:
        items: the list.
        chosen: the index of the element.
        rest: the keys below it.
    """
    if len(items) < 2 or len(items) > _LONGEST or any(key.isdecimal() for key in rest):
        return []
    below = "".join(f".{_identifier(key)}" for key in rest)
    if not all(isinstance(item, dict) for item in items):
        return [] if rest else _of_scalars(items, chosen)
    objects = [item for item in items if isinstance(item, dict)]
    found: list[str] = []
    for key in objects[chosen]:
        column = [item.get(key, MISSING) for item in objects]
        extreme = _extreme(column, chosen)
        if extreme is not None:
            found.append(f"{extreme}_by(@, &{_identifier(key)}){below}")
    found += [f"{_where(key, value)} | [0]{below}" for key, value in _alone(objects, chosen) if (key,) != rest]
    return found[:_MOST]


def _of_scalars(items: list[JSON], chosen: int) -> list[str]:
    extreme = _extreme(items, chosen)
    return [] if extreme is None else [f"{extreme}(@)"]


def _extreme(column: Sequence[JSON | Missing], chosen: int) -> str | None:
    """Return `max` or `min` if only the chosen value is the largest or smallest of numbers or of texts."""
    numbers = [one for one in column if isinstance(one, int | float) and not isinstance(one, bool)]
    texts = [one for one in column if isinstance(one, str)]
    if len(numbers) == len(column):
        return _side([float(one) for one in numbers], chosen)
    return _side(texts, chosen) if len(texts) == len(column) else None


_Ordered = TypeVar("_Ordered", float, str)


def _side(values: list[_Ordered], chosen: int) -> str | None:
    others = [value for place, value in enumerate(values) if place != chosen]
    if all(value < values[chosen] for value in others):
        return "max"
    return "min" if all(value > values[chosen] for value in others) else None


def _alone(objects: list[JSONObject], chosen: int) -> Iterator[tuple[str, JSON]]:
    """Return the members that distinguish the chosen object from all others."""
    for key, value in objects[chosen].items():
        if isinstance(value, str | int | float) and sum(same(item.get(key), value) for item in objects) == 1:
            yield key, value


def projections(items: list[JSON], wanted: list[JSON]) -> list[str]:
    """Return JMESPath expressions on a list of objects that select one member of each object, or of each object that
    meets a condition.
    """
    objects = [item for item in items if isinstance(item, dict)]
    if len(objects) != len(items) or not wanted:
        return []
    found: list[str] = []
    for key in objects[0]:
        rows = [(item, item[key]) for item in objects if item.get(key) is not None]
        if same([value for _, value in rows], wanted):
            found.append(f"[*].{_identifier(key)}")
        elif len(wanted) < len(rows):
            found += [f"{where}.{_identifier(key)}" for where in _conditions(rows, wanted)]
    return found[:_MOST]


def _conditions(rows: list[tuple[JSONObject, JSON]], wanted: list[JSON]) -> Iterator[str]:
    first = next((item for item, value in rows if same(value, wanted[0])), None)
    for key, value in first.items() if first is not None else ():
        if isinstance(value, str | int | float) and same(
            [found for item, found in rows if same(item.get(key), value)], wanted
        ):
            yield _where(key, value)


def _where(key: str, value: JSON) -> str:
    if isinstance(value, str) and value.isprintable() and not set(value) & {"'", "\\"}:
        return f"[?{_identifier(key)}=='{value}']"
    literal = json.dumps(value).replace("`", "\\`")
    return f"[?{_identifier(key)}==`{literal}`]"


def _identifier(key: str) -> str:
    return key if _IDENTIFIER.fullmatch(key) else json.dumps(key)


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
        return {one.index: place for place, one in enumerate(self.calls)}

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

    def where(self, value: JSON) -> list[ValueSource]:
        """All sources with an equal value: those in the input first, then those in results of calls."""
        return self._index[0].get(digest(value), [])

    @property
    def looked_through(self) -> bool:
        """True if `where` knows every value of the run; very large results are indexed in part."""
        return self._index[1]

    @cached_property
    def _index(self) -> tuple[dict[str, list[ValueSource]], bool]:
        found: dict[str, list[ValueSource]] = {}
        whole = True
        for place in (None, *range(len(self.calls))):
            document = self.document(place)
            paths: dict[str, list[Path]] = {}
            if not isinstance(document, Missing):
                whole = index_values(document, paths) and whole
            for key, there in paths.items():
                found.setdefault(key, []).extend(ValueSource(place, path) for path in there)
        return found, whole

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
        return [place for place, one in enumerate(self.calls) if _overlap(one.progress.call.writes, path)]

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


def _overlap(paths: Sequence[Path], path: Path) -> bool:
    return any(one[: len(path)] == path or path[: len(one)] == one for one in paths)


def _refers(value: JSON) -> bool:
    holes: list[Hole] = []
    compile_value(value, holes, [])
    return bool(holes)


def _literal(value: JSON) -> JSON:
    return fill(compile_value(value, [], []), lambda _: None)


# -- origins --------------------------------------------------------------------------------------------------------

MOST: Final = 50
"""Origins of one value that are looked at; of a value that stands in so many places none is taken by itself."""

_ELEMENTS: Final = 20
"""Elements of lists, equal to one value, for which conditions are looked for."""

_NAME = re.compile(r"[a-z_$][A-Za-z0-9_$-]*")


@dataclass(frozen=True, slots=True)
class Origin:
    """A possible origin of a value.

    Attributes:
        source: the source that is read.
        reference: the reference with which a plan reads it.
        pick: a JMESPath expression on the source (the tool `pick`); None: the source is used unchanged.
        certain: True if two runs may settle it, because it selects by no condition and by no key that looks like data.
    """

    source: ValueSource
    reference: str
    pick: str | None = None
    certain: bool = True

    @property
    def take(self) -> JSON:
        """The value for `choices.take` that selects this origin."""
        return self.reference if self.pick is None else {"pick": self.pick, "from": self.reference}

    @property
    def shown(self) -> str:
        """The origin as text for one line."""
        return self.reference if self.pick is None else f"pick {self.pick} from {self.reference}"

    def value(self, aligned: AlignedRun) -> JSON | Missing:
        """Return its value in a run; MISSING if it has none."""
        return picked(aligned.value(self.source), self.pick)


def picked(value: JSON | Missing, pick: str | None) -> JSON | Missing:
    """Return the result of `pick` for a value; MISSING if it fails or selects nothing."""
    if isinstance(value, Missing) or pick is None:
        return value
    # As the tool `pick` does, and with what reading it left in memory.
    data = parsed_text(value) if isinstance(value, str) else value
    try:
        found = search(pick, value if isinstance(data, Missing) else data, what="pick")
    except IdeabridgeError:
        return MISSING
    return MISSING if found is None else found


def origins_of(value: JSON, aligned: AlignedRun, step: int, *, picks: bool) -> list[Origin]:
    """Return the possible origins of a value: the input, and results that existed before a Request, plain ones first.

    Args:
        value: the literal.
        aligned: the run.
        step: the Request in which it was written. Its author had not seen results of this Request and of later ones.
        picks: whether the tool `pick` can be used.
    """
    if not is_distinctive(value):
        return []
    plain: list[Origin] = []
    by_condition: list[Origin] = []
    elements = 0
    for source in available_before(aligned, step, aligned.where(value)):
        at = _first_list(aligned, source)
        if at is None:
            plain += _origin(aligned, source, None)
        elif picks and elements < _ELEMENTS:
            elements += 1
            by_condition += _by_condition(aligned, source, at)
        if len(plain) >= MOST:
            break
    if picks:
        plain += _printed(value, aligned, step)
        if isinstance(value, list):
            for place in (None, *range(len(aligned.calls))):
                if place is None or aligned.calls[place].step < step:
                    by_condition += _projected(value, aligned, place)
    return [*plain, *by_condition][:MOST]


def available_before(aligned: AlignedRun, step: int, sources: Iterable[ValueSource]) -> Iterator[ValueSource]:
    """The sources whose values existed before a Request was made."""
    return (one for one in sources if one.place is None or aligned.calls[one.place].step < step)


def _origin(aligned: AlignedRun, source: ValueSource, pick: str | None, *, certain: bool = True) -> list[Origin]:
    reference = aligned.reference_to(source)
    if reference is None:
        return []
    return [Origin(source, reference, pick, certain and not data_key(aligned, source))]


def _first_list(aligned: AlignedRun, source: ValueSource) -> int | None:
    """Return the depth, in a path, of the first list of which one element is meant."""
    for depth, key in enumerate(source.path):
        if key.isdecimal() and isinstance(_holder(aligned, source, depth), list):
            return depth
    return None


def _holder(aligned: AlignedRun, source: ValueSource, depth: int) -> JSON | Missing:
    """Return the object or list in which a key of a path is looked up."""
    found = aligned.value(ValueSource(source.place, source.path[:depth]))
    return parsed_text(found) if isinstance(found, str) else found


def generalized(aligned: AlignedRun, source: ValueSource, others: Sequence[AlignedRun] = ()) -> ValueSource:
    """Return a source with `*` for the places in lists and for the keys that look like data."""
    path = list(source.path)
    for depth, key in enumerate(source.path):
        if key.isdecimal() and isinstance(_holder(aligned, source, depth), list):
            path[depth] = "*"
    for depth in _data_depths(aligned, source, others):
        path[depth] = "*"
    return ValueSource(source.place, tuple(path))


def _by_condition(aligned: AlignedRun, source: ValueSource, depth: int) -> list[Origin]:
    items, rest = ValueSource(source.place, source.path[:depth]), source.path[depth + 1 :]
    found = aligned.value(items)
    listed = parsed_text(found) if isinstance(found, str) else found
    if not isinstance(listed, list):
        return []
    pick_paths = explanations(listed, int(source.path[depth]), rest)
    return [one for path in pick_paths for one in _origin(aligned, items, path, certain=False)]


def _projected(value: list[JSON], aligned: AlignedRun, place: int | None) -> list[Origin]:
    document = aligned.document(place)
    found: list[Origin] = []
    for path, listed in lists_of(None if isinstance(document, Missing) else document):
        if _first_list(aligned, ValueSource(place, path)) is None:
            for pick in projections(listed, value):
                found += _origin(aligned, ValueSource(place, path), pick, certain=False)
    return found


def _printed(value: JSON, aligned: AlignedRun, step: int) -> list[Origin]:
    """Return the origins that have the value in another notation: 5 and "5"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return []
    if isinstance(value, str):
        other, pick = _number(value), "to_string(@)"
        wanted: list[JSON] = [] if other is None else [other]
    else:
        whole = isinstance(value, float) and value.is_integer()
        pick = "to_number(@)"
        wanted = list(dict.fromkeys([json.dumps(value), json.dumps(int(value)) if whole else f"{value}.0"]))
    found: list[Origin] = []
    for one in wanted:
        for source in islice(available_before(aligned, step, aligned.where(one)), MOST):
            if _first_list(aligned, source) is None:
                given = picked(aligned.value(source), pick)
                found += _origin(aligned, source, pick) if not isinstance(given, Missing) and same(given, value) else []
    return found


def _number(text: str) -> int | float | None:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def data_key(aligned: AlignedRun, source: ValueSource, others: Sequence[AlignedRun] = ()) -> bool:
    """Return whether a path leads through a key that looks like data and not like the name of a field.

    Keys that a schema declares are fields. Any other key may be data if it does not have the form of a name in a
    program, if it equals a value of the run, or if its object contains only numbers, contains only objects of one
    form, or has other keys in another run.
    """
    return next(_data_depths(aligned, source, others), None) is not None


def _data_depths(aligned: AlignedRun, source: ValueSource, others: Sequence[AlignedRun]) -> Iterator[int]:
    schema = _schema(aligned, source.place)
    for depth, key in enumerate(source.path):
        declared = schema.get("properties") if isinstance(schema, dict) else None
        schema = declared.get(key) if isinstance(declared, dict) else None
        if schema is not None or (source.place is None and not depth):
            continue
        parent = _holder(aligned, source, depth)
        if isinstance(parent, dict) and (
            _like_a_map(parent)
            or not _NAME.fullmatch(key)
            or aligned.where(key)
            or any(_other_keys(parent, _holder(other, source, depth)) for other in others)
        ):
            yield depth


def _other_keys(mine: JSONObject, there: JSON | Missing) -> bool:
    return isinstance(there, dict) and there.keys() != mine.keys()


def _schema(aligned: AlignedRun, place: int | None) -> JSONObject | None:
    if place is None:
        return aligned.function.input_schema
    tool = aligned.calls[place].progress.call.tool
    return tool.output if tool is not None else None


def _like_a_map(value: JSONObject) -> bool:
    if len(value) < 2:
        return False
    members = list(value.values())
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in members):
        return True
    first = members[0]
    return isinstance(first, dict) and all(isinstance(one, dict) and one.keys() == first.keys() for one in members)


# -- leaves ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Leaf:
    """A part of a plan.

    Attributes:
        path: its path in the plan: `calls.0.max_count`, `output.title`, `instances.a.x`.
        place: the place of its call; None: it belongs to the output or to the state of an instance.
        keys: the keys below the call or the output.
        value: its value in the run, with resolved references.
        reference: the reference that the plan has there; None: a literal.
        demanded: True if the tool's schema allows no other value, so that nobody has to accept it.
        edited: who replaced the proposed value by it.
        selects: why the reference may be a choice that was made because of a result.
        origins: the possible origins of a literal; for a reference that selects, conditions that can replace it.
        agreed: the runs that agree on `taken`.
        taken: the origin that replaces the literal.
        varies: the value of another run, if no origin explains both values.
    """

    path: str
    place: int | None
    keys: Path
    value: JSON
    reference: str | None = None
    demanded: bool = False
    edited: str | None = None
    selects: str | None = None
    origins: list[Origin] = field(default_factory=list[Origin])
    agreed: int = 0
    taken: Origin | None = None
    varies: str | None = None

    @property
    def shown(self) -> str:
        """The text `path = value`, with the value cut to one line."""
        return f"{self.path} = {short(self.value)}"


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
"""(place, keys, literal): whether a list or object is one leaf, because it came from somewhere as a whole."""


def leaves_of(
    calls: list[JSON],
    output: JSON,
    catalogue: Catalogue,
    instances: Mapping[str, JSONObject] | None = None,
    whole: Whole = lambda place, keys, value: False,
) -> list[Leaf]:
    """Every leaf of the parameters, of the output and of the initial states of instances.

    An empty array or object is a leaf. `_each` over literal items and a latent `_output` count as parameters;
    the other meta-properties are the plan's structure.
    """
    found: list[Leaf] = []
    for place, call in enumerate(calls):
        if not isinstance(call, dict):
            continue
        # A tool that is gone demands nothing; the plan's own check names it.
        tool = catalogue.look_up(call)
        schemas = catalogue.parameters_of(tool) if tool is not None else {}
        for key, value in call.items():
            if key not in META_PROPERTIES or key in ("_each", "_output"):
                found += _leaves(value, place, (key,), schemas.get(key), whole)
    if output is not None:
        found += _leaves(output, None, (), None, whole)
    for name, state in (instances or {}).items():
        for key, value in state.items():
            # What stands in a state is read as it is: a dagger there makes no reference.
            found += [
                Leaf(".".join(("instances", *map(_name, (name, key, *keys)))), None, keys, item)
                for keys, item in _plain(value, ())
            ]
    return found


def names_of(place: int | None, keys: Path) -> list[str]:
    """Return the parts of a leaf's path, which dots join: a key that contains a dot is quoted."""
    return ["output" if place is None else f"calls.{place}", *map(_name, keys)]


def _name(key: str) -> str:
    return encode_text(key) if not key or "." in key or key.startswith('"') else key


def _plain(value: JSON, keys: Path) -> Iterator[tuple[Path, JSON]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _plain(item, (*keys, key))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _plain(item, (*keys, str(number)))
    else:
        yield keys, value


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
    yield Leaf(path, place, keys, literal, demanded=_demanded(literal, schema))


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
