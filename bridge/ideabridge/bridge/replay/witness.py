"""Witness: a run as lifting looks at it: its calls in the places of a plan, and what they gave (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ideabridge.bridge.context.document import MISSING, Missing, parsed_text, read
from ideabridge.bridge.context.reference import (
    Expression,
    Hole,
    Path,
    Reference,
    compile_value,
    fill,
    format_reference,
)
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.replay.executed import Executed
from ideabridge.bridge.replay.function import Function
from ideabridge.bridge.replay.values import digest, same, standing
from ideabridge.tools.encoding import JSON


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from: the input (`place` None), or the result of the call in a place of the plan."""

    place: int | None
    path: Path


class Witness:
    """One run.

    Args:
        function: the run, as a function.
        calls: its calls, in the places of the plan.
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
        """The input, or what a call gave; MISSING: it gave nothing."""
        if place is None:
            return self.function.input or {}
        progress = self.calls[place].progress
        return progress.value if progress.standing is Standing.DONE else MISSING

    def value(self, source: Source) -> JSON | Missing:
        """What stands there."""
        document = self.document(source.place)
        if isinstance(document, str) and source.path:
            if source.place not in self._opened:
                self._opened[source.place] = parsed_text(document)
            document = self._opened[source.place]
        return document if isinstance(document, Missing) else read(document, source.path)

    def where(self, value: JSON) -> list[Source]:
        """Everywhere that an equal value stands: in the input first, then in what the calls gave."""
        return self._standing[0].get(digest(value), [])

    @property
    def looked_through(self) -> bool:
        """Whether `where` knows all there is."""
        return self._standing[1]

    @cached_property
    def _standing(self) -> tuple[dict[str, list[Source]], bool]:
        found: dict[str, list[Source]] = {}
        whole = True
        for place in (None, *range(len(self.calls))):
            document = self.document(place)
            paths: dict[str, list[Path]] = {}
            if not isinstance(document, Missing):
                whole = standing(document, paths) and whole
            for key, there in paths.items():
                found.setdefault(key, []).extend(Source(place, path) for path in there)
        return found, whole

    def leaf(self, place: int | None, keys: Path) -> JSON | Missing:
        """What stood in a parameter of the call in a place (None: in the output) once references were resolved."""
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
        """The reference that was written there, with the numbers of the run; None: there is none."""
        found = read(self.calls[place].raw, keys)
        return found if isinstance(found, str) and _refers(found) else None

    # -- references --------------------------------------------------------------------------------------------

    def reference_to(self, source: Source) -> str | None:
        """The reference a plan reads a source by; None: no reference surely gives it."""
        if source.place is None:
            return format_reference(("input", *source.path))
        one = self.calls[source.place]
        if one.progress.standing is not Standing.DONE or not one.progress.wrote:
            return None
        at = one.progress.wrote[0]
        if at[0] == "results":
            return format_reference(("results", str(source.place), *source.path))
        if one.progress.call.method != "set" or self._writers(at) != [source.place]:
            return None
        return format_reference((*at, *source.path))

    def _writers(self, path: Path) -> list[int]:
        return [place for place, one in enumerate(self.calls) if _overlap(one.progress.call.writes, path)]

    def source_of(self, operand: Reference) -> Source | None:
        """What an operand of the run's own reads, where that is the input or the result of one call."""
        if operand.kind == "input":
            return Source(None, operand.path)
        if operand.kind == "results" and operand.path and operand.path[0].isdecimal():
            place = self.places.get(int(operand.path[0]))
            return None if place is None else Source(place, operand.path[1:])
        writers = self._writers(operand.full)
        if operand.kind != "state" or len(writers) != 1:
            return None
        call = self.calls[writers[0]].progress
        if call.call.method != "set" or not call.wrote or operand.full[: len(call.wrote[0])] != call.wrote[0]:
            return None
        return Source(writers[0], operand.full[len(call.wrote[0]) :])

    def source_in_plan(self, operand: Reference) -> Source | None:
        """As `source_of`, of an operand that is numbered as the plan is."""
        if operand.kind == "results" and operand.path and operand.path[0].isdecimal():
            place = int(operand.path[0])
            return Source(place, operand.path[1:]) if place < len(self.calls) else None
        return self.source_of(operand)

    def sources_of(self, expression: Expression) -> list[Source]:
        """Every source an expression may read."""
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
