"""Origins: where a literal may have come from (DESIGN 4.11). Each is only a proposal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ideabridge.bridge.context.document import MISSING, Missing, parsed_text
from ideabridge.bridge.replay.picks import explanations, lists_of, projections
from ideabridge.bridge.replay.values import same, tells
from ideabridge.bridge.replay.witness import Source, Witness
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.query import search

MOST: Final = 50
"""Origins of one value that are looked at; of a value that stands in so many places none is taken by itself."""

_ELEMENTS: Final = 20
"""Elements of lists, equal to one value, for which conditions are looked for."""

_NAME = re.compile(r"[a-z_$][A-Za-z0-9_$-]*")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value may come from.

    Attributes:
        source: what is read.
        reference: how a plan reads it.
        pick: JMESPath on what is read (the tool `pick`); None: it is taken as it is.
        certain: two runs may settle it: it selects nothing by a condition, and by no key that looks like data.
    """

    source: Source
    reference: str
    pick: str | None = None
    certain: bool = True

    @property
    def take(self) -> JSON:
        """What a person writes in `choices.take` to take it."""
        return self.reference if self.pick is None else {"pick": self.pick, "from": self.reference}

    @property
    def shown(self) -> str:
        """For a line of text."""
        return self.reference if self.pick is None else f"pick {self.pick} from {self.reference}"

    def value(self, witness: Witness) -> JSON | Missing:
        """What it gives in a run; MISSING: nothing."""
        return picked(witness.value(self.source), self.pick)


def picked(value: JSON | Missing, pick: str | None) -> JSON | Missing:
    """What `pick` gives of a value; MISSING where it fails or selects nothing."""
    if isinstance(value, Missing) or pick is None:
        return value
    # As the tool `pick` does, and with what reading it left in memory.
    data = parsed_text(value) if isinstance(value, str) else value
    try:
        found = search(pick, value if isinstance(data, Missing) else data, what="pick")
    except IdeabridgeError:
        return MISSING
    return MISSING if found is None else found


def origins_of(value: JSON, witness: Witness, step: int, *, picks: bool) -> list[Origin]:
    """Where a value may come from: the input, and the results that were there before a Request, plain ones first.

    Args:
        value: the literal.
        witness: the run.
        step: the Request it was written in; results of that and later ones were not seen then.
        picks: whether the tool `pick` is at hand.
    """
    if not tells(value):
        return []
    plain: list[Origin] = []
    by_condition: list[Origin] = []
    elements = 0
    for source in seen_before(witness, step, witness.where(value)):
        at = _first_list(witness, source)
        if at is None:
            plain += _origin(witness, source, None)
        elif picks and elements < _ELEMENTS:
            elements += 1
            by_condition += _by_condition(witness, source, at)
        if len(plain) >= MOST:
            break
    if picks:
        plain += _printed(value, witness, step)
        if isinstance(value, list):
            for place in (None, *range(len(witness.calls))):
                if place is None or witness.calls[place].step < step:
                    by_condition += _projected(value, witness, place)
    return [*plain, *by_condition][:MOST]


def seen_before(witness: Witness, step: int, sources: Iterable[Source]) -> Iterator[Source]:
    """The sources that were there before a Request."""
    return (one for one in sources if one.place is None or witness.calls[one.place].step < step)


def _origin(witness: Witness, source: Source, pick: str | None, *, certain: bool = True) -> list[Origin]:
    reference = witness.reference_to(source)
    if reference is None:
        return []
    return [Origin(source, reference, pick, certain and not data_key(witness, source))]


def _first_list(witness: Witness, source: Source) -> int | None:
    """How deep in a path the first list stands of which one element is meant."""
    for depth, key in enumerate(source.path):
        if key.isdecimal() and isinstance(_holder(witness, source, depth), list):
            return depth
    return None


def _holder(witness: Witness, source: Source, depth: int) -> JSON | Missing:
    """What a key of a path is looked up in."""
    found = witness.value(Source(source.place, source.path[:depth]))
    return parsed_text(found) if isinstance(found, str) else found


def form_of(witness: Witness, source: Source, others: Sequence[Witness] = ()) -> Source:
    """A source with `*` for the places in lists, and for the keys that look like data."""
    path = list(source.path)
    for depth, key in enumerate(source.path):
        if key.isdecimal() and isinstance(_holder(witness, source, depth), list):
            path[depth] = "*"
    for depth in _data_depths(witness, source, others):
        path[depth] = "*"
    return Source(source.place, tuple(path))


def _by_condition(witness: Witness, source: Source, depth: int) -> list[Origin]:
    items, rest = Source(source.place, source.path[:depth]), source.path[depth + 1 :]
    found = witness.value(items)
    listed = parsed_text(found) if isinstance(found, str) else found
    if not isinstance(listed, list):
        return []
    pick_paths = explanations(listed, int(source.path[depth]), rest)
    return [one for path in pick_paths for one in _origin(witness, items, path, certain=False)]


def _projected(value: list[JSON], witness: Witness, place: int | None) -> list[Origin]:
    document = witness.document(place)
    found: list[Origin] = []
    for path, listed in lists_of(None if isinstance(document, Missing) else document):
        if _first_list(witness, Source(place, path)) is None:
            for pick in projections(listed, value):
                found += _origin(witness, Source(place, path), pick, certain=False)
    return found


def _printed(value: JSON, witness: Witness, step: int) -> list[Origin]:
    """The same printed otherwise: 5 and "5"."""
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
        for source in islice(seen_before(witness, step, witness.where(one)), MOST):
            if _first_list(witness, source) is None:
                given = picked(witness.value(source), pick)
                found += _origin(witness, source, pick) if not isinstance(given, Missing) and same(given, value) else []
    return found


def _number(text: str) -> int | float | None:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def data_key(witness: Witness, source: Source, others: Sequence[Witness] = ()) -> bool:
    """Whether a path leads through a key that looks like data and not like the name of a field.

    What a schema declares is a field. Else a key that is no name as programmers write them, that some value of the run
    is equal to, or that stands in an object of nothing but numbers, of objects of one form, or of other keys in another
    run, may be data.
    """
    return next(_data_depths(witness, source, others), None) is not None


def _data_depths(witness: Witness, source: Source, others: Sequence[Witness]) -> Iterator[int]:
    schema = _schema(witness, source.place)
    for depth, key in enumerate(source.path):
        declared = schema.get("properties") if isinstance(schema, dict) else None
        schema = declared.get(key) if isinstance(declared, dict) else None
        if schema is not None or (source.place is None and not depth):
            continue
        parent = _holder(witness, source, depth)
        if isinstance(parent, dict) and (
            _like_a_map(parent)
            or not _NAME.fullmatch(key)
            or witness.where(key)
            or any(_other_keys(parent, _holder(other, source, depth)) for other in others)
        ):
            yield depth


def _other_keys(mine: JSONObject, there: JSON | Missing) -> bool:
    return isinstance(there, dict) and there.keys() != mine.keys()


def _schema(witness: Witness, place: int | None) -> JSONObject | None:
    if place is None:
        return witness.function.input_schema
    tool = witness.calls[place].progress.call.tool
    return tool.output if tool is not None else None


def _like_a_map(value: JSONObject) -> bool:
    if len(value) < 2:
        return False
    members = list(value.values())
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in members):
        return True
    first = members[0]
    return isinstance(first, dict) and all(isinstance(one, dict) and one.keys() == first.keys() for one in members)
