"""A run with the calls of all its Requests in one list, and explanations of its literals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ideabridge.bridge.context.explanations import (
    COPIED_PART,
    MAYBE_DATA,
    Explained,
    Explanation,
    PathTo,
    operand_path,
)
from ideabridge.bridge.context.references import Path, Reference, format_reference, parse_reference
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, ValueSource, is_data_key, is_position
from ideabridge.bridge.lifting.function import (
    Function,
    LeftOut,
    executed_calls,
    first_of,
    is_distinctive,
)
from ideabridge.bridge.lifting.leaves import Leaf, leaves_of_call
from ideabridge.bridge.lifting.order import arrange, in_data_order, keep_order
from ideabridge.bridge.lifting.search import Found
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.tools.encoding import JSON

MOST_CALLS: Final = 10_000
"""The maximum number of calls in a liftable run that has several Requests."""

VARIES: Final = "it differed between the runs, and nothing explains it"

RECORDED: Final = "recorded text"
"""The reason why a string in the output is never determined if its only explanation is the
constant.
"""

JUDGED: Final = "recorded value"
"""Like `RECORDED`, for a number, a Boolean, or any other value in the output that a mind might have
judged or counted.
"""


@dataclass
class Lifted:
    """A run in the form of a plan, with the explanations for its literals.

    Attributes:
        function: the run as a function.
        aligned: the run with its calls matched to the places of the plan.
        calls: the calls as the plan lists them.
        output: the output of the plan.
        left_out: the calls that the plan does not contain.
        catalogue: the tools of the run.
        kept_order: for each place, the calls that the call at this place must follow only because
            it followed them in the run.
        others: the named runs of the same task, with their calls matched to the same places.
        leaves: every part of the calls and the output.
        explanations_by_path: for each literal, the explanations that fit all runs, cheapest first,
            keyed by the literal's path.
        literals: the literals that can explain later literals, keyed by path; see `literal_of`.
    """

    function: Function
    aligned: AlignedRun
    calls: list[JSON]
    output: JSON
    left_out: list[LeftOut]
    catalogue: Catalogue
    kept_order: list[set[int]] = field(default_factory=list[set[int]])
    others: list[AlignedRun] = field(default_factory=list[AlignedRun])
    leaves: list[Leaf] = field(default_factory=list[Leaf])
    explanations_by_path: dict[str, Found] = field(default_factory=dict[str, Found])
    literals: dict[str, Leaf] = field(default_factory=dict[str, Leaf])

    @property
    def requests(self) -> int:
        """The number of Requests in the run, or 0 if the run was of a plan."""
        if self.function.run.machine.mode == "plan":
            return 0
        return self.function.run.machine.step + 1

    @cached_property
    def task(self) -> str:
        """The task in the user's words."""
        messages = self.function.run.machine.messages
        return "\n".join(
            str(message.value)
            for message in messages
            if message.type == "text" and message.role == "user"
        )

    @cached_property
    def first_step(self) -> int:
        """The Request that made the first calls, whose author had seen no results."""
        return min((call.step for call in self.aligned.calls), default=0)

    def cheapest(self, leaf: Leaf) -> Explanation | None:
        """Return the first explanation for a literal, which replaces it in the plan, or None if
        that explanation is the constant.
        """
        explanations = self.explanations_by_path.get(leaf.path)
        if explanations is None or not explanations.is_explained:
            return None
        return explanations.by[0]

    def explained(self, leaf: Leaf) -> Explained | None:
        """Return a literal with its explanations, or None if the constant comes first."""
        first = self.cheapest(leaf)
        if first is None:
            return None

        explanations = self.explanations_by_path[leaf.path]
        reason: str | None = None
        if explanations.contradicted:
            reason = VARIES
        elif self._is_at_data_key(first):
            reason = MAYBE_DATA
        elif explanations.inside is not None:
            reason = COPIED_PART

        return Explained(
            leaf.at, tuple(explanations.by), explanations.runs, explanations.cut, reason
        )

    def _is_at_data_key(self, explanation: Explanation) -> bool:
        """Return whether an explanation is a path with a key that might be data."""
        if not isinstance(explanation, PathTo):
            return False
        if self.literal_of(explanation.reference) is not None:
            return False
        source = self.aligned.source_at(explanation.reference)
        return source is not None and is_data_key(self.aligned, source)

    def literal_of(self, reference: str) -> tuple[Leaf, Path] | None:
        """Return the earlier literal that a reference in an explanation reads, and the keys below
        it, or None if the reference reads something else.

        Until the draft has named the literal's parameter, a reference to an earlier literal is
        written `†input."PATH OF THE LITERAL"`.
        """
        match operand_path(reference):
            case ("input", path, *keys) if path in self.literals:
                return self.literals[path], tuple(keys)
            case _:
                return None

    def read(self, run: AlignedRun, reference: str) -> JSON | Missing:
        """Return the value that a reference in an explanation reads in the given run."""
        literal = self.literal_of(reference)
        if literal is None:
            return run.read(reference)
        leaf, keys = literal
        value = run.leaf(leaf.at)
        return value if isinstance(value, Missing) else read(value, keys)

    @cached_property
    def decisions(self) -> list[int]:
        """The places of the calls that were made after some results had been seen, but read none of
        them.

        Such a call might have been made because of a result. A result without a value, for example
        from a tool that only sends, cannot be the reason. If another run is named, a call that
        looks at what an earlier call changed counts as reading that call's result. The places are
        computed once, after `explain_run`.
        """
        calls = self.aligned.calls
        answered = [
            call.step
            for call in calls
            if call.progress.value is not None or call.progress.error is not None
        ]
        first = min(answered, default=None)
        if first is None:
            return []

        places: list[int] = []
        for place, call in enumerate(calls):
            if first >= call.chosen:
                continue
            if any(calls[other].step < call.chosen for other in self._reads.get(place, ())):
                continue
            if not self.others or not self._looks_at_change(place):
                places.append(place)

        return places

    def _looks_at_change(self, place: int) -> bool:
        """Return whether a call is read-only and takes values only from sources that earlier calls
        to the same server used when they might have changed something.
        """
        call = self.aligned.calls[place]
        tool = call.progress.call.tool
        if tool is None or not call.reads_only:
            return False

        changed = self._changed.get(tool.module, {})
        earlier = {source for source, step in changed.items() if step < call.chosen}
        return bool(earlier) and self._sources.get(place, set()) <= earlier

    @cached_property
    def _changed(self) -> dict[str | None, dict[str, int]]:
        """For each server, the Request in which a source was first used by a call that might have
        changed something, keyed by the reference of the source.
        """
        changed: dict[str | None, dict[str, int]] = {}
        for place, call in enumerate(self.aligned.calls):
            tool = call.progress.call.tool
            if tool is None or call.reads_only:
                continue
            of_module = changed.setdefault(tool.module, {})
            for source in self._sources.get(place, ()):
                of_module[source] = min(call.step, of_module.get(source, call.step))

        return changed

    @cached_property
    def _sources(self) -> dict[int | None, set[str]]:
        """References to the values that each call uses, keyed by the call's place (None for the
        output).

        These are the references that explain the call's literals, those written in the call, and
        those through which later literals read the call's literals. Options, such as Booleans or
        small numbers, have no reference.
        """
        sources: dict[int | None, set[str]] = {}
        for leaf in self.leaves:
            references = sources.setdefault(leaf.place, set())
            cheapest = self.cheapest(leaf)
            if leaf.reference is not None:
                references.add(leaf.reference)
            elif cheapest is not None:
                references.update(cheapest.references)
            elif is_distinctive(leaf.value):
                references.add(format_reference(("input", leaf.path)))

        return sources

    @cached_property
    def needed(self) -> set[int]:
        """The places of the calls that lead to a change or to the output, according to the cheapest
        explanations. Computed once, after `explain_run`.
        """
        changes = {place for place, call in enumerate(self.aligned.calls) if not call.reads_only}
        reads = {place: read for place, read in self._reads.items() if place is not None}
        return _all_before(reads, changes | self._reads.get(None, set()))

    @cached_property
    def _reads(self) -> dict[int | None, set[int]]:
        """For each place, the calls whose results it reads or might read. The key None stands for
        the output.
        """
        reads: dict[int | None, set[int]] = {}
        for leaf in self.leaves:
            for operand in self._operands(leaf):
                source = self.aligned.source_in_plan(operand)
                if source is not None and source.place is not None:
                    reads.setdefault(leaf.place, set()).add(source.place)

        return reads

    def _operands(self, leaf: Leaf) -> Iterator[Reference]:
        if leaf.reference is not None:
            yield from parse_reference(leaf.reference).operands()
            return

        cheapest = self.cheapest(leaf)
        if cheapest is None:
            return
        for text in cheapest.references:
            if self.literal_of(text) is None:
                yield from parse_reference(text).operands()


def _all_before(steps: Mapping[int, Iterable[int]], start: Iterable[int]) -> set[int]:
    """Return the given calls and all calls whose results they read, directly or indirectly."""
    reached: set[int] = set()
    waiting = list(start)
    while waiting:
        index = waiting.pop()
        if index not in reached:
            reached.add(index)
            waiting.extend(steps.get(index, ()))

    return reached


def selects_by_data(aligned: AlignedRun, source: ValueSource, step: int) -> bool:
    """Return whether a reference selects its source by a list position or a data key that its
    author had seen.
    """
    if source.place is not None and aligned.calls[source.place].step >= step:
        return False
    return is_position(aligned, source) or is_data_key(aligned, source)


def arranged(function: Function) -> Lifted:
    """Return a run with its calls in one list, but without explanations.

    Raises:
        PublicationError: the run cannot be a plan. The message says why.
    """
    run = function.run
    changed = run.not_as_listed()
    catalogue = run.machine.catalogue
    if function.instances:
        if changed:
            raise PublicationError(f"its calls did not all run as listed: {first_of(changed)}")
        _expect(function.calls, function.faults, [])
        lifted = Lifted(
            function, AlignedRun(function, []), function.calls, function.output, [], catalogue
        )
        for place, call in enumerate(function.calls):
            lifted.leaves += leaves_of_call(call, place, catalogue, _is_list)

        return lifted

    executed, left_out = executed_calls(run)
    _expect(executed, function.faults, changed)
    if run.machine.step > 0 and len(executed) > MOST_CALLS:
        raise PublicationError(
            f"it made {len(executed):,} calls over several Requests; the limit for lifting is "
            f"{MOST_CALLS:,}"
        )

    calls, written, output = arrange(in_data_order(executed), function.output)
    _expect(calls, [], changed)
    aligned = AlignedRun(function, calls)
    lifted = Lifted(function, aligned, list[JSON](written), output, left_out, catalogue)
    if run.machine.step > 0:
        lifted.kept_order = keep_order(calls, written, function.input or {})

    return lifted


def _is_list(at: Path, value: JSON) -> bool:
    return isinstance(value, list)


def _expect(calls: Iterable[object], faults: list[str], changed: list[str]) -> None:
    if not list(calls):
        reason = f": {first_of(changed)}" if changed else ""
        raise PublicationError(f"it has no calls to replay{reason}")
    if faults:
        raise PublicationError("; ".join(faults))
