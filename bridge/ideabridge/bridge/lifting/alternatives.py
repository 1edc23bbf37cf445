"""Alternatives: runs of one task that made other calls become one plan, in which tests say which calls are made.

A mind branches: it reads an issue, and closes it only if it is open. `merged` puts the calls of all runs into one list:
calls of one tool with the same parameters are one call of the plan, in the order that all runs have. A call that only
some runs made gets a test over the input, or over the result of an earlier call that every run made (`tests_of`).

A test is kept only if it is true for all runs that made the call and false for all others. Every such test is kept,
because the evidence cannot show which of them the mind had in mind. Where they differ on new data, the cheapest decides
and the answer says so. A number is compared with a threshold if three runs are on each side. With fewer runs no
threshold is a reason, but it may still contradict the other tests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import MOST, WHEN, Condition, Explained, PathTo, same
from ideabridge.bridge.context.references import Path, format_path
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, ValueSource
from ideabridge.bridge.lifting.function import Executed, Function, walk
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import META_PROPERTIES

SIDE: Final = 3
"""The runs that must be on each side of a threshold."""

_OPTIONAL: Final = 50
"""The most calls of a plan that only some runs made."""

_PAIRS: Final = 1_000_000
"""The most pairs of calls that are compared to put two runs into one list."""

_PATHS: Final = 2_000
"""The most values of one input or result that tests read."""

_CHOICES: Final = 20
"""The most values in one test."""

_NEVER: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests that say whether a call is made.

    Attributes:
        by: the tests, the cheapest first; never empty.
        runs: the runs on the smaller side.
        cut: there may be more.
    """

    by: list[Condition]
    runs: int
    cut: bool

    def explained(self, place: int) -> Explained:
        """Return the tests as the explanations of whether the call in a place is made."""
        return Explained(("calls", str(place), WHEN), tuple(self.by), self.runs, self.cut)


# -- one list of calls ----------------------------------------------------------------------------------------------


def merged(runs: Sequence[Sequence[Executed]]) -> list[list[Executed | None]]:
    """Return the calls of several runs as one list: for each call of the plan, that of each run, or None.

    Args:
        runs: the calls of each run, in the order of a plan.

    Raises:
        PublicationError: the runs differ in too many calls, or in how often they made one.
    """
    slots: list[list[Executed | None]] = [[one] for one in runs[0]]
    for number, calls in enumerate(runs[1:], 1):
        if len(slots) * len(calls) > _PAIRS:
            raise PublicationError(f"its {len(slots):,} calls are too many to be compared with runs that made others")
        found: list[list[Executed | None]] = []
        for mine, theirs in _pairs([_kind(slot) for slot in slots], [_kind([one]) for one in calls]):
            before = slots[mine] if mine is not None else [None] * number
            found.append([*before, calls[theirs] if theirs is not None else None])
        slots = found
    optional = sum(None in slot for slot in slots)
    for slot in slots:
        if None in slot and (name := _repeated(slots, slot)) is not None:
            raise PublicationError(f"they called {name} different numbers of times, as a loop does")
    if optional > _OPTIONAL:
        raise PublicationError(f"the runs differ in {optional} calls; at most {_OPTIONAL} may depend on a test")
    return slots


def _repeated(slots: Sequence[Sequence[Executed | None]], slot: Sequence[Executed | None]) -> str | None:
    """Return the tool of a call that a run made several times and another run less often; otherwise None."""
    same_calls = [other for other in slots if _kind(other) == _kind(slot)]
    counts = [sum(other[number] is not None for other in same_calls) for number in range(len(slot))]
    return next(one.name for one in slot if one is not None) if max(counts) > 1 else None


def _kind(slot: Sequence[Executed | None]) -> object:
    one = next(call for call in slot if call is not None)
    tool = one.progress.call.tool
    parameters = frozenset(key for key in one.raw if key not in META_PROPERTIES or key == "_each")
    return (None if tool is None else tool.key, parameters, one.progress.status is CallStatus.DONE)


def _pairs(mine: Sequence[object], theirs: Sequence[object]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the places of a longest common sequence as pairs, and all other places alone, in order."""
    lengths = [[0] * (len(theirs) + 1) for _ in range(len(mine) + 1)]
    for i in reversed(range(len(mine))):
        for j in reversed(range(len(theirs))):
            longer = max(lengths[i + 1][j], lengths[i][j + 1])
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if mine[i] == theirs[j] else longer
    i = j = 0
    while i < len(mine) and j < len(theirs):
        if mine[i] == theirs[j]:
            yield i, j
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            yield i, None
            i += 1
        else:
            yield None, j
            j += 1
    yield from ((place, None) for place in range(i, len(mine)))
    yield from ((None, place) for place in range(j, len(theirs)))


def not_made(one: Executed) -> Executed:
    """Return what stands for a call of another run in a run that did not make it: it has no parameters, no result, and
    is before and after nothing.
    """
    call = dataclasses.replace(one.progress.call, index=-1)
    return Executed(Progress(call, CallStatus.SKIPPED), _NEVER, -1, {})


# -- input and output -------------------------------------------------------------------------------------------------


def form_of(value: JSON) -> JSON:
    """Return which members an output has, without their values."""
    return {key: form_of(item) for key, item in value.items()} if isinstance(value, dict) else None


def joint_schema(functions: Sequence[Function]) -> JSONObject:
    """Return the schema of an input of which some runs had only some members."""
    schemas = [one.input_schema for one in functions]
    properties: JSONObject = {}
    for schema in reversed(schemas):
        listed = schema.get("properties")
        properties |= listed if isinstance(listed, dict) else {}
    required = [one for one in _required(schemas[0]) if all(one in _required(schema) for schema in schemas)]
    joint: JSONObject = {**schemas[0], "properties": properties}
    joint.pop("required", None)
    return {**joint, "required": list[JSON](required)} if required else joint


def _required(schema: JSONObject) -> list[str]:
    listed = schema.get("required")
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


# -- tests ----------------------------------------------------------------------------------------------------------


def tests_of(runs: Sequence[AlignedRun], place: int) -> Tests | None:
    """Return all tests that separate the runs that made a call from the others; None if no test does."""
    made = [run for run in runs if run.calls[place].is_made]
    others = [run for run in runs if not run.calls[place].is_made]
    found: list[Condition] = []
    doubtful: list[Condition] = []
    whole = True
    for root in _roots(runs, made, place):
        paths, complete = _paths(runs, root)
        whole = whole and complete
        for text in paths:
            sides = [[_read(run, text) for run in side] for side in (made, others)]
            tests, more = _separating(PathTo(text), sides[0], sides[1])
            found += tests
            doubtful += more
    if not found:
        return None
    by = sorted([*found, *doubtful], key=lambda one: one.order)
    if by[0] not in found:
        # What decides has its evidence; what contradicts it comes later.
        by = [*sorted(found, key=lambda one: one.order), *sorted(doubtful, key=lambda one: one.order)]
    return Tests(by[:MOST], min(len(made), len(others)), cut=not whole or len(by) > MOST)


def _roots(runs: Sequence[AlignedRun], made: Sequence[AlignedRun], place: int) -> Iterator[str]:
    """Yield the references of the input, and of the earlier results that every author had seen."""
    if any(run.function.input for run in runs):
        yield "†input"
    for other in range(place):
        seen = all(run.calls[other].step < run.calls[place].chosen for run in made)
        texts = {run.reference_to(ValueSource(other, ())) for run in runs}
        if seen and len(texts) == 1 and None not in texts:
            yield from (text for text in texts if text is not None)


def _paths(runs: Sequence[AlignedRun], root: str) -> tuple[list[str], bool]:
    """Return the references to all values below a root, and whether there are no more."""
    found: dict[str, None] = {}
    complete = True
    for run in runs:
        value = run.read(root)
        if isinstance(value, Missing):
            continue
        listed = list(islice(walk(value), _PATHS + 1))
        complete = complete and len(listed) <= _PATHS
        found.update(dict.fromkeys(_text(root, path) for path, _ in listed[:_PATHS]))
    return list(found), complete


def _text(root: str, path: Path) -> str:
    return f"{root}{format_path(path)}" if path else root


def _read(run: AlignedRun, text: str) -> JSON:
    """Return a value; a value that is absent is as good as null."""
    value = run.read(text)
    return None if isinstance(value, Missing) else value


def _separating(of: PathTo, made: list[JSON], others: list[JSON]) -> tuple[list[Condition], list[Condition]]:
    """Return the tests of one value that separate two sides, and those that few runs support."""
    found: list[Condition] = []
    for kind in ("present", "empty"):
        found += [test for test in (Condition(of, kind, True), Condition(of, kind, False)) if _fits(test, made, others)]
    few: list[Condition] = []
    if not any(isinstance(value, list | dict) for value in (*made, *others)):
        mine, theirs = _distinct(made), _distinct(others)
        if not any(same(one, other) for one in mine for other in theirs) and len(mine) + len(theirs) <= _CHOICES:
            exact = [one for one in _choices(of, mine, theirs) if _fits(one, made, others)]
            single = [one for one in exact if not isinstance(one.argument, list)]
            # One value on one side is a reason; several only contradict.
            found += single
            few += [one for one in exact if isinstance(one.argument, list)] if single else []
    limits = [one for one in _limits(of, made, others) if _fits(one, made, others)]
    if min(len(made), len(others)) >= SIDE:
        return found + limits, few
    return found, few + (limits if found else [])


def _choices(of: PathTo, mine: list[JSON], theirs: list[JSON]) -> Iterator[Condition]:
    for kind, values in (("equals", mine), ("differs_from", theirs)):
        if values != [None]:
            yield Condition(of, kind, values[0] if len(values) == 1 else values)


def _limits(of: PathTo, made: list[JSON], others: list[JSON]) -> Iterator[Condition]:
    """Yield the nearest thresholds on both sides: where the true one is between them is not known."""
    mine, theirs = _numbers(made), _numbers(others)
    if mine and theirs and min(mine) > max(theirs):
        yield Condition(of, "at_least", min(mine))
        yield Condition(of, "above", max(theirs))
    if mine and theirs and max(mine) < min(theirs):
        yield Condition(of, "at_most", max(mine))
        yield Condition(of, "below", min(theirs))


def _numbers(values: list[JSON]) -> list[int | float]:
    """The values, if all are numbers; otherwise nothing."""
    found = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    return found if len(found) == len(values) else []


def _distinct(values: list[JSON]) -> list[JSON]:
    found: list[JSON] = []
    for value in values:
        if not any(same(value, other) for other in found):
            found.append(value)
    return found


def _fits(test: Condition, made: list[JSON], others: list[JSON]) -> bool:
    return all(test.decides(value) is True for value in made) and all(test.decides(value) is False for value in others)
