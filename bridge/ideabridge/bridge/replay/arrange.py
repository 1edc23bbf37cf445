"""Arrange: the calls of several Requests as one list, each in its place (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.reference import (
    DAGGER,
    Path,
    Reference,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.cycles import emission
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.replay.executed import Executed
from ideabridge.tools.encoding import JSON, JSONObject


def in_data_order(kept: Sequence[Executed]) -> list[Executed]:
    """The calls so that data flows forwards; else as listed."""
    by_index = {one.index: one for one in kept}
    data = {one.index: [index for index in _reads(one) if index in by_index] for one in kept}
    if all(index < reader for reader, read in data.items() for index in read):
        return list(kept)
    listed = {after: [before] for before, after in pairwise(by_index)}
    return [by_index[index] for part in emission(data, listed) for index in part]


def _reads(one: Executed) -> list[int]:
    bound = [operand for read in one.progress.call.reads for alternative in read.bound for operand in alternative]
    return sorted({index for operand in bound for index in operand or ()})


def placed(kept: Sequence[Executed], output: JSON) -> tuple[list[Executed], list[JSON], JSON]:
    """The calls that can stand in a plan, as it lists them, and the output: `†results.N` names places of the plan.

    Raises:
        PublicationError: one reads what only a call that is left out could give.
    """
    calls = list(kept)
    while True:
        places = {one.index: place for place, one in enumerate(calls)}
        written: list[JSON] = []
        gone: Executed | None = None
        for one in calls:
            try:
                written.append(_renumbered(one.raw, places))
            except _GoneError as error:
                if one.progress.standing is not Standing.SKIPPED:
                    raise PublicationError(f"{one.progress.call.label} reads {error}, which is left out") from None
                gone = one
                break
        if gone is None:
            break
        calls.remove(gone)
    try:
        return calls, written, renumbered(output, places)
    except _GoneError as error:
        raise PublicationError(f"the output reads {error}, which is left out") from None


class _GoneError(Exception):
    """Nothing supplies a reference: the call is left out."""


def _renumbered(raw: JSONObject, places: Mapping[int, int]) -> JSONObject:
    call: JSONObject = {}
    for key, value in raw.items():
        if key in ("_outputPath", "_id", "_after", "_tool", "_module", "_outputMethod", "_instance"):
            call[key] = value
        elif key == "_imports" and isinstance(value, list):
            call[key] = [renumbered(_with_dagger(item), places) for item in value]
        else:
            call[key] = renumbered(value, places)
    return call


def _with_dagger(item: JSON) -> JSON:
    return f"{DAGGER}{item}" if isinstance(item, str) and not item.startswith(DAGGER) else item


def renumbered(value: JSON, places: Mapping[int, int]) -> JSON:
    """A value as written, its references to results by the places of a plan."""
    if isinstance(value, list):
        return [renumbered(item, places) for item in value]
    if isinstance(value, dict):
        return {key: renumbered(item, places) for key, item in value.items()}
    if not isinstance(value, str) or not is_reference(value):
        return value
    try:
        expression = parse_reference(value)
    except ReferenceSyntaxError:
        return value
    if all(_place(operand, places) in (None, operand.path[:1]) for operand in expression.operands()):
        return value
    alternatives: list[str] = []
    for alternative in expression.alternatives:
        texts = [_text(operand, _place(operand, places)) for operand in alternative]
        if all(text is not None for text in texts):
            alternatives.append(" && ".join(str(text) for text in texts))
    if not alternatives:
        raise _GoneError(expression.text)
    return " || ".join(alternatives)


def _place(operand: Reference, places: Mapping[int, int]) -> Path | None:
    """The place an operand names, () where it is left out; None: it names none."""
    if operand.kind != "results" or not operand.path or not operand.path[0].isdecimal():
        return None
    place = places.get(int(operand.path[0]))
    return () if place is None else (str(place),)


def _text(operand: Reference, place: Path | None) -> str | None:
    if place is None:
        return operand.text
    return format_reference(("results", *place, *operand.path[1:]), operand.instance) if place else None


# -- order ---------------------------------------------------------------------------------------------------------


def kept_apart(calls: Sequence[Executed], written: list[JSON], waits: Mapping[int, Iterable[int]]) -> list[set[int]]:
    """Keep what stood in different Requests in order where it matters: calls that do more than read, and writes to
    one path. `_after` is added to `written`, and `_id` where it is needed.

    Args:
        calls: in the places of the plan.
        written: as the plan lists them.
        waits: by place, the places each waits for already.

    Returns:
        By place, the places it now waits for besides.
    """
    ids = _Ids(calls, written)
    before: list[set[int]] = []
    added: list[set[int]] = []
    for place, one in enumerate(calls):
        known = set(waits.get(place, ()))
        reached = known.union(*(before[other] for other in known if other < place))
        new: set[int] = set()
        for other in reversed(range(place)):
            if other not in reached and calls[other].step < one.step and _matters(calls[other], one):
                new.add(other)
                reached |= {other} | before[other]
        before.append(reached)
        added.append(new)
        call = written[place]
        if new and isinstance(call, dict):
            after = call.get("_after", [])
            names = [after] if isinstance(after, str) else list(after) if isinstance(after, list) else []
            call["_after"] = [*names, *(ids.of(other) for other in sorted(new))]
    return added


def _matters(first: Executed, then: Executed) -> bool:
    if not (first.reads_only and then.reads_only):
        return True
    return any(
        one[: len(other)] == other or other[: len(one)] == one
        for one in first.progress.call.writes
        for other in then.progress.call.writes
    )


class _Ids:
    """Gives each call an id that no other has; `_after` keeps meaning what it did."""

    def __init__(self, calls: Sequence[Executed], written: list[JSON]) -> None:
        self._written = written
        self._taken: set[str] = set()
        names: dict[tuple[int, str], str] = {}
        for one, call in zip(calls, written, strict=True):
            own = one.progress.call.id
            if own is not None and isinstance(call, dict):
                call["_id"] = names[one.step, own] = self._free(own)
        for one, call in zip(calls, written, strict=True):
            if one.progress.call.after and isinstance(call, dict):
                latest = {own: name for (step, own), name in sorted(names.items()) if step < one.step}
                found = [names.get((one.step, own), latest.get(own)) for own in one.progress.call.after]
                # A call of an earlier Request that is left out has ended: nothing waits for it.
                call["_after"] = [name for name in found if name is not None]

    def _free(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def of(self, place: int) -> str:
        """The id of the call in a place."""
        call = self._written[place]
        assert isinstance(call, dict)
        if "_id" not in call:
            call["_id"] = self._free(f"call_{place}")
        return str(call["_id"])
