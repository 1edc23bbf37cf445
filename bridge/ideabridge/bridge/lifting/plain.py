"""Decide whether the copied values alone determine what a draft does with other input, and list the
questions that remain open.

A draft is plain if each value in its calls is a reference that the author wrote, a value from the
input, a whole earlier value that appears in only one place, or a parameter that appeared nowhere
before; if no failed call was left out; if nothing in the draft is a mind's own words; and if no
call that changes something selects a value only by list position. Three or more calls to one tool
with copied values might have come from a loop, and so might a list that was put together from
earlier values. References that a plan's author wrote are trusted, because they were written for any
input. A value that the user named in the task is a parameter, no matter where else it appears.

The open points tell the author of a program what the program must settle. They do not prove
anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias, cast

from ideabridge.bridge.context.explanations import (
    Constant,
    Explained,
    Explanation,
    PathTo,
    operand_path,
)
from ideabridge.bridge.context.references import Path, parse_reference, parse_target
from ideabridge.bridge.lifting.aligned import is_position
from ideabridge.bridge.lifting.contrast import short
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.function import walk
from ideabridge.bridge.lifting.inside import Inside
from ideabridge.bridge.lifting.leaves import Leaf, path_of
from ideabridge.bridge.lifting.lifted import RECORDED
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty

OpenKind: TypeAlias = Literal[
    "several_places",
    "computed",
    "inside",
    "put_together",
    "varies",
    "position",
    "own_words",
    "failed_call",
    "repeated_tool",
    "recorded_text",
    "dropped_result",
    "no_plan",
]
"""The kinds of open points:

- `several_places`: a value appears in more than one earlier place;
- `computed`: no earlier value equals the whole value;
- `inside`: a value, or an item of a list, appears inside an earlier string;
- `put_together`: the items of a list are values from earlier results;
- `varies`: a value differed between the runs, and nothing explains it;
- `position`: a call that changes something takes its value from a position in a list;
- `own_words`: a parameter has a mind's own words as its default, written after results were seen;
- `failed_call`: a call failed, and the plan leaves it out;
- `repeated_tool`: the run called one tool three times or more;
- `recorded_text`: a part of the output is a mind's own words;
- `dropped_result`: nobody specified what the run should return, and a result is neither returned
  nor read by a later call;
- `no_plan`: the run cannot become a plan.
"""

REPEATED: Final = 3
"""The minimum number of calls to one tool that might have been a loop."""

LONG_TEXT: Final = 40
"""The number of characters above which a string counts as a mind's own words even if it contains no
space.
"""

_SHOWN_CHARACTERS: Final = 60
_MOST_POINTS: Final = 50
"""The maximum number of open points that are returned."""


@dataclass(frozen=True, slots=True)
class OpenPoint:
    """A question that remains open because of the copied values in a run.

    Attributes:
        kind: see `OpenKind`.
        at: the path of a literal in the plan (`calls.2.owner`, `output.title`) or of a call in the
            run (`calls.2`), or "" for the run as a whole.
        why: one sentence for people and minds.
    """

    kind: OpenKind
    at: str
    why: str

    def to_json(self) -> JSONObject:
        """Return the attributes, keyed by name."""
        return asdict(self)

    @property
    def line(self) -> str:
        """The open point as one line of text."""
        return f"{self.at}: {self.why}" if self.at else self.why


def read_open(raw: JSON) -> list[OpenPoint]:
    """Read a list of open points in the form that `OpenPoint.to_json` returns, skipping malformed
    entries.
    """
    points: list[OpenPoint] = []
    for entry in list_or_empty(raw):
        match entry:
            case {"kind": str(kind), "at": str(at), "why": str(why)}:
                points.append(OpenPoint(cast("OpenKind", kind), at, why))
            case _:
                continue
    return points


def open_points(draft: PlanDraft, *, output_counts: bool = True) -> list[OpenPoint]:
    """Return up to 50 open points of a draft, or none if the draft is plain.

    Args:
        draft: the draft.
        output_counts: False if nobody specified what the run should return, so that the draft
            returns the result of the last call.
    """
    points = [
        *_left_out(draft),
        *_repeated(draft),
        *_explained(draft),
        *_varying(draft),
        *_put_together(draft),
        *_parts_and_words(draft),
    ]
    if not output_counts:
        points += _dropped(draft)
    return points[:_MOST_POINTS]


def _left_out(draft: PlanDraft) -> Iterator[OpenPoint]:
    for call in draft.lifted.left_out:
        if call.matters:
            reason = (
                f"{call.name} was left out, because {call.why}; later calls may "
                "have been made because of it"
            )
            yield OpenPoint("failed_call", f"calls.{call.index}", reason)


def _dropped(draft: PlanDraft) -> Iterator[OpenPoint]:
    """Yield read-only calls whose results are neither read nor returned."""
    paths = [operand_path(text) for text in draft.references]
    if draft.output is None:
        # The answer of a plan without an output is its whole state.
        paths.append(("state",))

    read = {_place_read(path) for path in paths}
    for place, call in enumerate(draft.lifted.aligned.calls):
        if call.reads_only and place not in read and not _writes_for(paths, draft.calls[place]):
            reason = (
                f"no later call reads the result of {call.name}, and the tool does not return it"
            )
            yield OpenPoint("dropped_result", f"calls.{place}", reason)


def _repeated(draft: PlanDraft) -> Iterator[OpenPoint]:
    """Yield tools that were called at least three times with copied values."""
    if not draft.lifted.requests:
        return

    copied = {leaf.place for leaf in draft.lifted.leaves if leaf.reference is None}
    calls = draft.lifted.aligned.calls
    counts = Counter(call.name for place, call in enumerate(calls) if place in copied)
    for name, count in counts.items():
        if count >= REPEATED:
            yield OpenPoint(
                "repeated_tool",
                "",
                f"{name} was called {count} times: different input may need more or fewer calls",
            )


def _explained(draft: PlanDraft) -> Iterator[OpenPoint]:
    """Yield copied values in calls that no single earlier place explains, and values in the output
    that only a mind wrote.
    """
    leaves = {leaf.at: leaf for leaf in draft.lifted.leaves}
    yield from _positions(draft)
    for explained in draft.explained:
        leaf = leaves.get(explained.at)
        if leaf is None:
            continue
        if leaf.place is None:
            point = _of_output(explained, leaf)
        else:
            point = _of_call(draft, explained, leaf)

        if point is not None:
            yield point


def _of_output(explained: Explained, leaf: Leaf) -> OpenPoint | None:
    if explained.why == RECORDED and _is_own_words(leaf.value):
        return OpenPoint(
            "recorded_text",
            leaf.path,
            f"{short(leaf.value, _SHOWN_CHARACTERS)} was written by a mind for this run only",
        )
    return None


def _of_call(draft: PlanDraft, explained: Explained, leaf: Leaf) -> OpenPoint | None:
    example = short(leaf.value, _SHOWN_CHARACTERS)
    cheapest = explained.by[0]
    if isinstance(cheapest, Constant):
        return None
    if not isinstance(cheapest, PathTo):
        reason = f"{example} may be {cheapest.shown}, or something else"
        explanations = draft.lifted.explanations_by_path.get(leaf.path)
        if explanations is not None and explanations.inside is not None:
            reason = f"{reason}: {_where(draft, explanations.inside)}"
        return OpenPoint("computed", leaf.path, reason)

    places = [
        explanation.reference for explanation in explained.by if isinstance(explanation, PathTo)
    ]
    # A path into the input is never open, because it reads a value that the caller passes.
    if cheapest.path[0] != "input" and len(places) > 1:
        return OpenPoint(
            "several_places",
            leaf.path,
            f"{example} occurs in several places: {', '.join(places[:3])}",
        )

    return None


def _positions(draft: PlanDraft) -> Iterator[OpenPoint]:
    """Yield the calls that change something and read a value by list position, directly or through
    other calls.
    """
    explained = {literal.at: literal.by[0] for literal in draft.explained}
    calls = draft.lifted.aligned.calls
    # The list position that each call depends on, keyed by the place of the call.
    chosen: dict[int, str] = {}
    for leaf in draft.lifted.leaves:
        if leaf.place is None or leaf.place >= len(calls):
            continue

        position = _position_behind(draft, leaf, explained.get(leaf.at), chosen)
        if position is None:
            continue
        chosen.setdefault(leaf.place, position)
        if not calls[leaf.place].reads_only:
            yield OpenPoint(
                "position", leaf.path, f"the value is identified only by its position: {position}"
            )


def _position_behind(
    draft: PlanDraft, leaf: Leaf, cheapest: Explanation | None, chosen: Mapping[int, str]
) -> str | None:
    """Return the list position that a value depends on, or None if there is none."""
    if isinstance(cheapest, PathTo):
        if _has_position(draft, cheapest):
            return cheapest.reference
        return chosen.get(_place_read(cheapest.path))

    if leaf.reference is None:
        return None

    for operand in parse_reference(leaf.reference).operands():
        position = chosen.get(_place_read(operand.full))
        if position is not None:
            return position

    return None


def _place_read(path: Path) -> int:
    """Return the place of the call whose result a path reads, or -1 if the path reads something
    else.
    """
    match path:
        case ("results", place, *_) if place.isdecimal():
            return int(place)
        case _:
            return -1


def _writes_for(paths: Sequence[Path], call: JSON) -> bool:
    """Return whether one of the given paths reads what a call writes to the state."""
    target = object_or_empty(call).get("_outputPath")
    if not isinstance(target, str):
        return False

    for written in parse_target(target).paths:
        for path in paths:
            # A path reads what is written to it, above it or below it.
            shared = min(len(path), len(written))
            if path[:shared] == written[:shared]:
                return True

    return False


def _has_position(draft: PlanDraft, path: PathTo) -> bool:
    aligned = draft.lifted.aligned
    source = aligned.source_at(path.reference)
    return source is not None and is_position(aligned, source)


def _varying(draft: PlanDraft) -> Iterator[OpenPoint]:
    """Yield values that differ between the runs although nothing explains them.

    A value that was written before any result was seen is not open: it is a parameter, and differs
    because callers want different things.
    """
    for leaf in draft.lifted.leaves:
        explanations = draft.lifted.explanations_by_path.get(leaf.path)
        is_open = (
            explanations is not None
            and explanations.contradicted
            and not leaf.is_within(draft.chosen)
        )
        if is_open and (leaf.place is None or _is_after_results(draft, leaf.place)):
            example = short(leaf.value, _SHOWN_CHARACTERS)
            yield OpenPoint(
                "varies", leaf.path, f"{example} differed between the runs, and nothing explains it"
            )


def _put_together(draft: PlanDraft) -> Iterator[OpenPoint]:
    """Yield an open point for each list of several items in a call where some of the items are
    values from earlier results.
    """
    items: dict[str, list[Leaf]] = {}
    for leaf in draft.lifted.leaves:
        path = _list_around(draft, leaf)
        if path is not None and leaf.reference is None and not leaf.is_within(draft.chosen):
            items.setdefault(path, []).append(leaf)

    for path, leaves in items.items():
        copied = [leaf for leaf in leaves if _reads_results(draft, leaf)]
        if copied:
            example = short(copied[0].value, _SHOWN_CHARACTERS)
            reason = (
                f"the list was put together partly from earlier results ({example}); it may have "
                "more or fewer items"
            )
            yield OpenPoint("put_together", path, reason)


def _list_around(draft: PlanDraft, leaf: Leaf) -> str | None:
    """Return the path of the outermost list that has several items and contains the given part of a
    call, or None if there is none.
    """
    if leaf.place is None:
        return None

    value = draft.lifted.calls[leaf.place]
    for depth, key in enumerate(leaf.at[2:], 2):
        if isinstance(value, list):
            if len(value) > 1:
                return path_of(leaf.at[:depth])
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value[key]

    return None


def _reads_results(draft: PlanDraft, leaf: Leaf) -> bool:
    """Return whether the first explanation of a literal reads an earlier result."""
    cheapest = draft.lifted.cheapest(leaf)
    if cheapest is None:
        return False
    return any(operand_path(text)[0] != "input" for text in cheapest.references)


def _parts_and_words(draft: PlanDraft) -> Iterator[OpenPoint]:
    """Yield unexplained literals that are a mind's own words, or contain a part of an earlier
    string.
    """
    parameter_paths = {
        leaf.path
        for parameter in draft.parameters
        if not parameter.followed
        for leaf in parameter.leaves
    }
    for leaf in draft.lifted.leaves:
        explanations = draft.lifted.explanations_by_path.get(leaf.path)
        if leaf.place is None or explanations is None or leaf.is_within(draft.chosen):
            continue
        if explanations.inside is not None and not explanations.is_explained:
            yield OpenPoint("inside", leaf.path, _where(draft, explanations.inside))
        elif leaf.path in parameter_paths and _is_after_results(draft, leaf.place):
            words = [
                text
                for _, text in walk(leaf.value)
                if _is_own_words(text) and str(text) not in draft.lifted.task
            ]
            if words:
                reason = (
                    f"{short(words[0], _SHOWN_CHARACTERS)} was written by a mind after it had seen "
                    "results"
                )
                yield OpenPoint("own_words", leaf.path, reason)


def _where(draft: PlanDraft, inside: Inside) -> str:
    """Return a phrase that says where a part of a literal appeared earlier."""
    literal = draft.lifted.literal_of(inside.root)
    match operand_path(inside.root):
        case _ if literal is not None:
            document = f"the earlier {literal[0].path}"
        case ("input", *_):
            document = "the input"
        case ("results", place, *_):
            document = f"the result of call {place}"
        case _:
            document = f"the value at {inside.root}"

    return f"{short(inside.part, _SHOWN_CHARACTERS)} is a part of {document}"


def _is_after_results(draft: PlanDraft, place: int) -> bool:
    """Return whether a call was written after results had been seen."""
    calls = draft.lifted.aligned.calls
    return place < len(calls) and calls[place].chosen > draft.lifted.first_step


def _is_own_words(value: JSON) -> bool:
    """Return whether a value is a string of several words or more than 40 characters."""
    return isinstance(value, str) and (len(value) > LONG_TEXT or len(value.split()) > 1)
