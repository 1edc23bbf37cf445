"""Fold: calls of one tool that run through a list become one call with `_each`.

A mind that copies calls a tool once for each item of a list that it has seen. A plan of these calls is right only for
lists of one length. So calls that differ in one argument, whose values are in order one member of every item of a list,
are folded into one call: `_each` has the values, and the argument is `†item`. The values are explained like any copied
list.

Calls are folded only if the plan keeps the order of effects, and if nobody had seen the results of some of them only.
Everything else stays as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.references import DAGGER, Path, escaped, format_reference
from ideabridge.bridge.context.state import Missing, parsed_text, read
from ideabridge.bridge.lifting.function import Executed, reads_of
from ideabridge.bridge.lifting.search import is_common, is_distinctive
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import META_PROPERTIES

_NODES: Final = 10_000
"""The most values of the input and the results that are looked through for lists."""

_COMPARED: Final = 10_000
"""The most pairs of calls of one run that are compared."""

_TEXT: Final = 1_000_000
"""The most characters of a text that is read as JSON."""

_MEMBERS: Final = 200
"""The most members of an item that are compared."""

Through = tuple[int | None, Path, Path]
"""(result or None for the input, path of a list, path below each of its items)."""


class Lists:
    """The lists in the input and the results of a run.

    Args:
        documents: (number of a result or None for the input, the Request in which it was made, value).
    """

    def __init__(self, documents: Iterable[tuple[int | None, int, JSON]]) -> None:
        self._lists: dict[int, list[tuple[int | None, int, Path, list[JSON]]]] = {}
        left = _NODES
        for root, step, value in documents:
            for path, one in islice(_inside(value), left):
                left -= 1
                if isinstance(one, list):
                    self._lists.setdefault(len(one), []).append((root, step, path, one))

    def lengths(self, most: int) -> list[int]:
        """Return the lengths of the lists from 2 to `most`, the longest first."""
        return sorted((length for length in self._lists if 2 <= length <= most), reverse=True)

    def through(self, values: Sequence[JSON], chosen: int, name: str) -> set[Through]:
        """Return the lists, seen before a Request, of which values are one member of every item in order.

        Args:
            values: the values.
            chosen: the Request.
            name: the name of the parameter that has the values.
        """
        if not values or not all(is_distinctive(one) for one in values):
            return set()
        everywhere = all(is_common(one) for one in values)
        found: set[Through] = set()
        for root, step, path, items in self._lists.get(len(values), ()):
            if step >= chosen:
                continue
            for rest, member in islice(_inside(items[0], lists=False), _MEMBERS):
                # Small numbers are in many lists by chance.
                if everywhere and root is not None and (not rest or rest[-1].casefold() != name.casefold()):
                    continue
                if same(member, values[0]) and all(
                    _equal(read(item, rest), value) for item, value in zip(items, values, strict=True)
                ):
                    found.add((root, path, rest))
        return found


def _equal(found: JSON | Missing, value: JSON) -> bool:
    return not isinstance(found, Missing) and same(found, value)


def _inside(value: JSON, path: Path = (), *, lists: bool = True) -> Iterator[tuple[Path, JSON]]:
    """Yield a value and every value inside it, with their paths."""
    open_: list[tuple[Path, JSON]] = [(path, value)]
    while open_:
        at, one = open_.pop()
        inner = parsed_text(one) if isinstance(one, str) and len(one) <= _TEXT else one
        shown = one if isinstance(inner, Missing) else inner
        yield at, shown
        if isinstance(shown, dict):
            open_ += [((*at, key), item) for key, item in islice(shown.items(), _NODES)]
        elif isinstance(shown, list) and lists:
            open_ += [((*at, str(number)), item) for number, item in enumerate(islice(shown, _NODES))]


# -- groups of calls ------------------------------------------------------------------------------------------------


def fold(kept: Sequence[Executed], given: JSONObject | None) -> list[Executed]:
    """Return the calls of a run, with those that run through a list folded into one.

    Args:
        kept: the calls in listing order.
        given: the input of the run.
    """
    found = list(kept)
    lists: Lists | None = None
    start, left = 0, _COMPARED
    while start < len(found) and left > 0:
        group, through, compared = _group(found, start)
        left -= compared
        if len(group) > 1 and lists is None:
            results = ((one.index, one.step, one.progress.value) for one in kept if _gives_result(one))
            lists = Lists([(None, -1, given or {}), *results])
        values = [_argument(one, through) for one in group]
        for size in lists.lengths(len(group)) if lists is not None else ():
            some = group[:size]
            if not lists or not lists.through(values[:size], some[0].chosen, through[-1]):
                continue
            folded = folded_call(some, through, found)
            if folded is not None:
                members = set(folded.members)
                found = [
                    folded if one is some[0] else one for one in found if one is some[0] or one.index not in members
                ]
                break
        start += 1
    return found


def _group(calls: Sequence[Executed], start: int) -> tuple[list[Executed], Path, int]:
    """Return a call and the later calls of its tool that differ from it in one argument, the path of this argument, and
    how many calls were compared.
    """
    first = calls[start]
    if not _is_plain(first):
        return [], (), 1
    group = [first]
    through: Path = ()
    compared = 1
    for one in islice(calls, start + 1, None):
        compared += 1
        if not _is_plain(one) or _written(one) != _written(first):
            # What is chosen later may have been copied from the first result.
            if first.reads_only and one.reads_only and one.chosen <= first.step:
                continue
            break
        places = list(_differences(_ran(first), _ran(one)))
        if len(places) > 1 or (places and through and places[0] != through):
            break
        through = through or (places[0] if places else ())
        group.append(one)
    return (group if through else []), through, compared


def folded_call(group: Sequence[Executed], through: Path, calls: Sequence[Executed]) -> Executed | None:
    """Return calls as one call with `_each`; None if they cannot be.

    Args:
        group: calls of one tool, in listing order.
        through: the path of the argument in which they differ.
        calls: all calls of the run.
    """
    first, last = group[0], group[-1]
    if not all(_is_plain(one) and _written(one) == _written(first) for one in group):
        return None
    if isinstance(read(first.raw, through), Missing):
        return None
    if any(place != through for one in group for place in _differences(_ran(first), _ran(one))):
        return None
    members = {one.index for one in group}
    for one in calls:
        if one.index in members:
            continue
        if first.step < one.chosen <= last.step:
            # Its author had seen the results of some of them.
            return None
        if first.index < one.index < last.index and (
            not (one.reads_only and first.reads_only) or reads_of(one.progress.call) & members
        ):
            return None
    each: list[JSON] = [escaped(_argument(one, through)) for one in group]
    raw = _put(dict(first.raw), through, f"{DAGGER}item")
    call = dataclasses.replace(first.progress.call, has_each=True)
    progress = Progress(
        call,
        CallStatus.DONE,
        [one.progress.items[0] for one in group],
        wrote=first.progress.wrote,
        value=[one.progress.value for one in group],
    )
    return Executed(
        progress,
        last.step,
        first.chosen,
        {**raw, "_each": each},
        members=tuple(one.index for one in group),
        through=through,
    )


def values_of(one: Executed) -> list[JSON]:
    """Return the values of `_each` of a folded call."""
    found = [read(item.parameters, one.through) for item in one.progress.items]
    return [None if isinstance(value, Missing) else value for value in found]


def _gives_result(one: Executed) -> bool:
    progress = one.progress
    return progress.status is CallStatus.DONE and bool(progress.wrote) and progress.wrote[0][0] == "results"


def _is_plain(one: Executed) -> bool:
    """Return whether a call has nothing but its tool and arguments, and gave a result."""
    call = one.progress.call
    return (
        not one.members
        and one.edited is None
        and call.tool is not None
        and call.room is None
        and not call.has_latent
        and not call.has_each
        and len(one.progress.items) == 1
        and _gives_result(one)
        and not (one.raw.keys() & META_PROPERTIES) - {"_tool", "_module"}
    )


def _written(one: Executed) -> object:
    """What calls that are folded have in common: the tool and the keys that were written."""
    tool = one.progress.call.tool
    return (None if tool is None else tool.key, frozenset(one.raw))


def _ran(one: Executed) -> JSONObject:
    return one.progress.items[0].parameters


def _argument(one: Executed, through: Path) -> JSON:
    found = read(_ran(one), through)
    return None if isinstance(found, Missing) else found


def _differences(one: JSON, other: JSON, path: Path = ()) -> Iterator[Path]:
    """Yield the paths at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key, value in one.items():
            yield from _differences(value, other[key], (*path, key))
    elif not same(one, other):
        yield path


def _put(document: JSONObject, keys: Path, value: JSON) -> JSONObject:
    key, *rest = keys
    inner = document[key]
    return {**document, key: _put(inner, tuple(rest), value) if rest and isinstance(inner, dict) else value}


# -- all results of a folded call -----------------------------------------------------------------------------------


def gathered(values: Iterable[JSON], calls: Sequence[Executed]) -> list[JSON]:
    """Return values as written, in which a list of all results of a folded call in order is one reference."""
    folded = {place: len(one.members) for place, one in enumerate(calls) if one.members}
    return [_gathered(value, folded) if folded else value for value in values]


def _gathered(value: JSON, folded: Mapping[int, int]) -> JSON:
    """Do so, given the number of members of each folded call by its place."""
    if isinstance(value, dict):
        return {key: _gathered(item, folded) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    for place, members in folded.items():
        if len(value) == members:
            listed = [format_reference(("results", str(place), str(number))) for number in range(members)]
            if value == listed:
                return format_reference(("results", str(place)))
    return [_gathered(item, folded) for item in value]
