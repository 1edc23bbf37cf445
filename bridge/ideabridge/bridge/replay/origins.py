"""Origins: where a literal may have come from (DESIGN 4.11). Each is only a proposal."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.document import MISSING, Missing, parsed_text, read
from ideabridge.bridge.context.reference import Path
from ideabridge.bridge.replay.picks import explanations, lists_of, projections
from ideabridge.bridge.replay.values import same, tells
from ideabridge.bridge.replay.witness import Source, Witness
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.query import search

_MOST: Final = 12
"""Origins offered for one value."""

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
    data = parsed_text(value) if isinstance(value, str) and value[:1] in ("[", "{") else value
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
    places: list[int | None] = [None]
    if step:
        places += [place for place, one in enumerate(witness.calls) if one.step < step]
    plain: list[Origin] = []
    by_condition: list[Origin] = []
    for place in places:
        for path in witness.index(place).paths(value):
            at = _first_list(witness, place, path)
            if at is None:
                plain += _origin(witness, Source(place, path), None)
            elif picks:
                by_condition += _by_condition(witness, Source(place, path), at)
        if picks:
            plain += _printed(value, witness, place)
            if isinstance(value, list):
                by_condition += _projected(value, witness, place)
    return [*plain, *by_condition][:_MOST]


def _origin(witness: Witness, source: Source, pick: str | None, *, certain: bool = True) -> list[Origin]:
    reference = witness.reference_to(source)
    if reference is None:
        return []
    return [Origin(source, reference, pick, certain and not data_key(witness, source))]


def _first_list(witness: Witness, place: int | None, path: Path) -> int | None:
    """How deep in a path the first list stands of which one element is meant."""
    for depth in range(len(path)):
        found = witness.value(Source(place, path[:depth]))
        if isinstance(parsed_text(found) if isinstance(found, str) else found, list):
            return depth
    return None


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
        if _first_list(witness, place, path) is None:
            for pick in projections(listed, value):
                found += _origin(witness, Source(place, path), pick, certain=False)
    return found


def _printed(value: JSON, witness: Witness, place: int | None) -> list[Origin]:
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
        for path in witness.index(place).paths(one):
            source = Source(place, path)
            if _first_list(witness, place, path) is None:
                given = picked(witness.value(source), pick)
                found += _origin(witness, source, pick) if not isinstance(given, Missing) and same(given, value) else []
    return found


def _number(text: str) -> int | float | None:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def data_key(witness: Witness, source: Source) -> bool:
    """Whether a path leads through a key that looks like data and not like the name of a field.

    What a schema declares is a field. Else a key that is no name as programmers write them, that some value of the run
    is equal to, or that stands in an object of nothing but numbers, or of objects of one form, may be data.
    """
    document = witness.document(source.place)
    schema = _schema(witness, source.place)
    for depth, key in enumerate(source.path):
        declared = schema.get("properties") if isinstance(schema, dict) else None
        schema = declared.get(key) if isinstance(declared, dict) else None
        if schema is not None or (source.place is None and not depth):
            continue
        parent = None if isinstance(document, Missing) else read(document, source.path[:depth])
        if isinstance(parent, str):
            parent = parsed_text(parent)
        if isinstance(parent, dict) and (_like_a_map(parent) or not _NAME.fullmatch(key) or _seen(witness, key)):
            return True
    return False


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


def _seen(witness: Witness, key: str) -> bool:
    return any(witness.index(place).paths(key) for place in (None, *range(len(witness.calls))))
