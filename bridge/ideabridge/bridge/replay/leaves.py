"""Leaves: what stands in the parameters and in the output of a plan, part by part (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ideabridge.bridge.context.reference import Path, compile_value, fill, is_reference
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.replay.origins import Origin
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.tool import META_PROPERTIES


@dataclass(slots=True)
class Leaf:
    """A part of a plan.

    Attributes:
        path: where it stands: `calls.0.max_count`, `output.title`, `instances.a.x`.
        place: the call, by its place; None: the output, or the state of an instance.
        keys: below the call, or below the output.
        value: what stood there in the run, references resolved.
        reference: the reference that stands there; None: a literal.
        demanded: the tool's schema allows nothing else there, so nobody need accept it.
        edited: who wrote it in place of what was proposed.
        selects: why the reference may be a choice that was made because of a result.
        origins: where a literal may have come from; for a reference that selects, conditions in its place.
        agreed: the runs that agree on `taken`.
        taken: the origin that stands there now.
        varies: what another run had there, where nothing explains both.
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
        """`path = value`, the value cut to a line."""
        return f"{self.path} = {short(self.value)}"


def short(value: JSON, limit: int = 60) -> str:
    """A value in a line."""
    text = encode_text(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def contrast(now: JSON, before: JSON, limit: int = 200) -> str:
    """What differs between two values, in a line: `NOW instead of BEFORE` where both are short, else the first place
    where they differ, with its path.
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
    """The parts of a leaf's path, to be joined by dots: a key that holds one stands in quotes."""
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
    """Whether no reference stands in a value."""
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
