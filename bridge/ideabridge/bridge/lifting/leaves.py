"""The parts of a plan that are explained, or made into parameters, one by one. They come from the
parameters of the plan's calls and from its output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from ideabridge.bridge.context.references import Hole, Path, compile_value, dotted_key, is_reference
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.tool import META_PROPERTIES

_STRUCTURE: Final = frozenset(META_PROPERTIES) - {"_each", "_output"}
"""The meta-properties that belong to the structure of a plan and are never leaves."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of a plan.

    Attributes:
        path: the leaf's path in the plan: `calls.0.max_count`, `output.title`.
        at: the path as keys, as in `Explained.at`.
        value: the leaf's value in the run, or None for a reference.
        reference: the reference that the plan has at this place, or None for a literal.
        demanded: True if the tool's schema allows no other value.
        schema: the part of the tool's schema that describes the leaf, or None if there is none.
    """

    path: str
    at: Path
    value: JSON
    reference: str | None = None
    demanded: bool = False
    schema: JSONObject | None = None

    @property
    def place(self) -> int | None:
        """The place of the leaf's call, or None if the leaf belongs to the output."""
        return place_in(self.at)

    @property
    def keys(self) -> Path:
        """The keys that lead from the call, or from the output, to the leaf."""
        return keys_below(self.at)

    @property
    def above(self) -> list[Path]:
        """The paths, as keys, of the call or output, of each value that contains the leaf, and of
        the leaf itself.
        """
        full_depth = len(self.at)
        root_depth = full_depth - len(self.keys)
        return [self.at[:depth] for depth in range(root_depth, full_depth + 1)]

    def is_within(self, paths: Collection[str]) -> bool:
        """Return whether one of the given paths is that of the leaf, or of a value that contains
        it.
        """
        if not paths:
            return False
        return any(path_of(at) in paths for at in self.above)


def place_in(at: Path) -> int | None:
    """Return the place of the call that a path in a plan leads to, or None if it leads to the
    output.
    """
    if at[0] != "calls":
        return None
    return int(at[1])


def keys_below(at: Path) -> Path:
    """Return the part of a path that lies below the call or the output."""
    if at[0] == "calls":
        return at[2:]
    return at[1:]


def path_of(at: Path) -> str:
    """Return a path in a plan as a string. A key that contains a dot is quoted."""
    return ".".join(map(dotted_key, at))


Whole: TypeAlias = "Callable[[Path, JSON], bool]"
"""A function that takes a path in the plan, and the list or object at this path. It returns whether
the list or object is a single leaf.
"""


def leaves_of_call(call: JSON, place: int, catalogue: Catalogue, whole: Whole) -> Iterator[Leaf]:
    """Yield every leaf in a call's parameters. An empty array or object is a leaf.

    `_each` over literal items and a latent `_output` count as parameters.
    """
    written = WrittenCall.of(call)
    tool = catalogue.look_up(written)
    schemas: JSONObject = {}
    # If the tool no longer exists, it has no schema. The check of the plan reports this.
    if tool is not None:
        schemas = catalogue.parameters_of(tool)

    for key, value in written.members.items():
        if key not in _STRUCTURE:
            at = ("calls", str(place), key)
            yield from _leaves(value, at, schemas.get(key), whole)


def leaves_of_output(output: JSON, whole: Whole) -> Iterator[Leaf]:
    """Yield every leaf in an output. An output that is null has no leaves."""
    if output is not None:
        yield from _leaves(output, ("output",), None, whole)


def _leaves(value: JSON, at: Path, schema: JSON, whole: Whole) -> Iterator[Leaf]:
    """Yield every leaf in a value of a plan.

    Args:
        value: the value as written.
        at: the value's path in the plan, as keys.
        schema: the part of the tool's schema that describes the value, or None.
        whole: returns which lists and objects are single leaves.
    """
    path = path_of(at)
    if isinstance(value, str) and is_reference(value):
        yield Leaf(path, at, value=None, reference=value)
        return

    declared = object_or_empty(schema)
    literal = literal_of(value)
    # A list or object that contains a reference has no value of its own, so its members are leaves.
    if isinstance(literal, Missing) or _is_divided(literal, at, whole):
        for key, member, member_schema in _members(value, declared):
            yield from _leaves(member, (*at, key), member_schema, whole)
        return

    # A schema with a single allowed value leaves the author of the call no choice.
    if "const" in declared:
        demanded = declared["const"] == literal
    else:
        demanded = declared.get("enum") == [literal]

    yield Leaf(path, at, literal, demanded=demanded, schema=declared or None)


def _is_divided(literal: JSON, at: Path, whole: Whole) -> bool:
    """Return whether each member of a literal is a separate leaf."""
    if not isinstance(literal, dict | list) or not literal:
        return False
    return not whole(at, literal)


def _members(value: JSON, schema: JSONObject) -> Iterator[tuple[str, JSON, JSON]]:
    """Yield `(key, value, schema)` for each member of a list or object."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield str(number), item, schema.get("items")

    properties = object_or_empty(schema.get("properties"))
    for key, member in object_or_empty(value).items():
        yield key, member, properties.get(key)


def literal_of(written: JSON) -> JSON | Missing:
    """Return the value of a literal as written in a plan, with escapes removed, or MISSING if it
    contains a reference.
    """
    holes: list[Hole] = []
    compiled = compile_value(written, holes, [])
    if holes:
        return MISSING
    return cast("JSON", compiled)
