"""Find other runs of a task, and align their calls with the calls of the lifted run.

Only the calls that lead to a change or to the output are compared, because a mind might look around
in one run but not in the other. Two runs that differ in these calls have different shapes. A run of
a different shape is not evidence for this tool, but can become a separate tool.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.references import Path, holes_in, parse_reference
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, ValueSource
from ideabridge.bridge.lifting.explaining import explain_run
from ideabridge.bridge.lifting.function import Executed, read_function, written_parameters
from ideabridge.bridge.lifting.lifted import Lifted, arranged, selects_by_data
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import ToolKey

_SEARCHED_RUNS: Final = 200
"""The number of recent runs that are searched for runs of the same shape."""

_PAGE: Final = 100
"""The number of runs that are read from the store at a time."""

_EXAMINED: Final = 5
"""The maximum number of runs with the same tools that are read in the search for runs of the same
shape.
"""

_EVENTS: Final = 2_000
"""The maximum number of events in all examined runs together, which is about 500 calls. The search
must stay cheap, because nobody asked for it.
"""


class OtherShapeError(PublicationError):
    """Raised when the calls of the other run differ from those of the lifted run."""


def aligned_run(mine: Lifted, store: Store, run_id: str, caller: str) -> AlignedRun:
    """Align another run of the same task with the plan.

    Raises:
        OtherShapeError: the run made different calls. The message says which.
        PublicationError: the run had the same data as the lifted run, or cannot be examined.
        UnknownRunError, UnknownIdeaError: this caller has no such run.
    """
    other = arranged(read_function(store, run_id, caller))
    where = f"run {other.function.run.id}"
    if mine.requests and not other.requests:
        # The replay of a plan always agrees with the plan, so it is no evidence.
        raise PublicationError(
            f"{where} replays a plan; only a run in which a mind chose the calls can be compared"
        )
    if mine.function.instances or other.function.instances:
        raise PublicationError(
            f"{where} has instances, and runs with instances cannot be lifted together"
        )

    aligned = AlignedRun(other.function, _placed(mine, other, where))
    fault = _contradiction(mine.aligned, aligned)
    if fault is not None:
        raise OtherShapeError(
            f"{where} has a different shape, so it would become a different tool: {fault}"
        )
    if not differ(mine.aligned, aligned):
        raise PublicationError(
            f"{where} had the same input, made the same calls and had the same results, so it adds "
            "no evidence"
        )

    return aligned


def _placed(mine: Lifted, other: Lifted, where: str) -> list[Executed]:
    """Return the calls of another run, in the order of their places in the plan.

    The n-th call of a tool in one run matches the n-th call of that tool in the other run.

    Raises:
        OtherShapeError: the runs made different calls.
    """
    calls = mine.aligned.calls
    others = other.aligned.calls
    if _counts(calls) == _counts(others):
        return _in_turn(calls, range(len(calls)), others)

    if not mine.leaves:
        # Compute the explanations of the lifted run only once, because it might be compared with
        # several runs.
        explain_run(mine)

    explain_run(other)
    needed = [calls[place] for place in mine.needed]
    others_needed = [others[place] for place in sorted(other.needed)]
    if _counts(needed) != _counts(others_needed):
        difference = _difference(calls, others)
        raise OtherShapeError(
            f"{where} made different calls, so it would become a different tool: {difference}"
        )

    return _in_turn(calls, mine.needed, others_needed)


def _counts(calls: Iterable[Executed]) -> Counter[ToolKey | None]:
    return Counter(call.key for call in calls)


def _difference(calls: Sequence[Executed], others: Sequence[Executed]) -> str:
    """Describe the first tool that the two runs called a different number of times, with both
    numbers.
    """
    counts = _counts(calls)
    other_counts = _counts(others)
    different = (call for call in (*calls, *others) if counts[call.key] != other_counts[call.key])
    first = next(different)
    times = _times(counts[first.key])
    other_times = _times(other_counts[first.key])
    return f"it called {first.name} {other_times}, but this run called it {times}"


def _times(count: int) -> str:
    if count == 0:
        return "not at all"
    if count == 1:
        return "once"
    return f"{count} times"


def _in_turn(
    calls: Sequence[Executed], places: Collection[int], others: Sequence[Executed]
) -> list[Executed]:
    """Return one call for each place: the other run's call if the place is compared, otherwise a
    placeholder (`not_made`).

    Args:
        calls: the calls of the lifted run.
        places: the places to compare.
        others: the other run's calls, in order. For each tool, there are as many of them as there
            are places to compare.
    """
    by_tool: dict[ToolKey | None, deque[Executed]] = {}
    for call in others:
        by_tool.setdefault(call.key, deque()).append(call)

    placed: list[Executed] = []
    for place, call in enumerate(calls):
        if place in places:
            placed.append(by_tool[call.key].popleft())
        else:
            placed.append(call.not_made())

    return placed


def differ(mine: AlignedRun, other: AlignedRun) -> bool:
    """Return whether the data in two aligned runs differs."""
    if not same(mine.function.input or {}, other.function.input or {}):
        return True
    for call, again in zip(mine.calls, other.calls, strict=True):
        if again.is_made and _had_other_data(call.progress, again.progress):
            return True
    return not same(mine.function.run.result, other.function.run.result)


def _had_other_data(call: Progress, again: Progress) -> bool:
    parameters: list[JSON] = [item.parameters for item in call.items]
    others: list[JSON] = [item.parameters for item in again.items]
    if call.status is not again.status or not same(parameters, others):
        return True
    return call.status is CallStatus.DONE and not same(call.value, again.value)


# -- data flow -------------------------------------------------------------------------------------


def _contradiction(mine: AlignedRun, other: AlignedRun) -> str | None:
    """Describe the first difference between the data flows in the two runs, as far as both contain
    references.
    """
    for place, (call, again) in enumerate(zip(mine.calls, other.calls, strict=True)):
        if not again.is_made:
            continue

        parameters = written_parameters(call.raw)
        if parameters.keys() != written_parameters(again.raw).keys():
            return f"calls.{place} ({call.name}) has other parameters"
        is_done = call.progress.status is CallStatus.DONE
        is_done_again = again.progress.status is CallStatus.DONE
        if is_done != is_done_again:
            return f"calls.{place} ({call.name}) took another branch"

        for hole in holes_in(parameters):
            if hole.expression.uses_item:
                continue
            fault = _other_source(mine, other, place, hole.path, hole.expression.text)
            if fault is not None:
                return f"calls.{place}.{'.'.join(hole.path)} {fault}"

    return None


def _other_source(
    mine: AlignedRun, other: AlignedRun, place: int, keys: Path, text: str
) -> str | None:
    """Return why the other run's value at a place cannot come from the source that `text` reads, or
    None if it can. `text` is the lifted run's reference at this place.
    """
    sources = mine.sources_of(parse_reference(text))
    written = other.written_reference(place, keys)
    if written is not None:
        other_sources = other.sources_of(parse_reference(written))
        if sources and _fields(sources) != _fields(other_sources):
            return f"reads {written} there"
        return None

    if len(sources) == 1 and _has_other_literal(mine, other, place, keys, sources[0]):
        return f"is not the value that {text} reads there"
    return None


def _fields(sources: list[ValueSource]) -> list[ValueSource]:
    """Return the sources without list positions, because each run can select other positions."""
    fields: list[ValueSource] = []
    for source in sources:
        path = tuple("*" if key.isdecimal() else key for key in source.path)
        fields.append(ValueSource(source.place, path))

    return fields


def _has_other_literal(
    mine: AlignedRun, other: AlignedRun, place: int, keys: Path, source: ValueSource
) -> bool:
    """Return whether the other run has a literal at a place that differs from the value that the
    lifted run's source has in the other run.
    """
    if selects_by_data(mine, source, mine.calls[place].chosen):
        return False

    literal = other.leaf(("calls", str(place), *keys))
    value = other.value(source)
    if isinstance(literal, Missing) or isinstance(value, Missing):
        return False
    return not same(value, literal)


# -- runs that are offered -------------------------------------------------------------------------


def runs_like(mine: Lifted, store: Store, caller: str) -> list[AlignedRun]:
    """Return up to five of the caller's latest runs that made the same calls with other data.

    At most about 500 calls are read. The runs count as evidence only if a person names them,
    because a run of an unrelated task can have the same shape.
    """
    alike: list[AlignedRun] = []
    own_runs = {mine.aligned.run_id, *(other.run_id for other in mine.others)}
    tools = {call.name for call in mine.aligned.calls}
    examined = 0
    events = 0
    for record in _ended(store, caller):
        if record.id in own_runs or record.parent is not None:
            continue
        if events + record.last_event > _EVENTS:
            continue
        if not tools <= _tools(store, record.id):
            continue

        examined += 1
        events += record.last_event
        # A failure means that the run has a different shape or the same data, or cannot be
        # examined. Skip it.
        with suppress(IdeabridgeError):
            alike.append(aligned_run(mine, store, record.id, caller))

        if examined >= _EXAMINED:
            break

    return alike


def _tools(store: Store, run_id: str) -> set[str]:
    """Return the names of the tools in a run's calls."""
    names: set[str] = set()
    for step in store.ideas.of_run(run_id):
        names.update(step.meta.tools)
    return names


def _ended(store: Store, caller: str) -> list[RunRecord]:
    """Return the caller's latest runs that are done, newest first."""
    records: list[RunRecord] = []
    after: str | None = None
    while len(records) < _SEARCHED_RUNS:
        page = store.runs.newest(caller, "done", _PAGE, after=after, rooms=False)
        records += page
        if len(page) < _PAGE:
            break
        after = page[-1].id

    return records
