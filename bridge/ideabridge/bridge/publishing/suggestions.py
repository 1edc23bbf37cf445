"""Find calls that a caller made repeatedly, in runs of any kind, and suggest a tool for them.

The calls in the latest runs are compared only by their tools: the same tools in the same order
count as the same work. For the most frequent work, some of the runs are lifted in the same way as
for publishing, so the suggested tool is the tool that the command publishes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.context.written_call import written_calls
from ideabridge.bridge.lifting.choices import Choices
from ideabridge.bridge.lifting.draft import PlanDraft, make_draft
from ideabridge.bridge.lifting.function import read_function
from ideabridge.bridge.lifting.leaves import keys_below, path_of, place_in
from ideabridge.bridge.lifting.lift import lift_function
from ideabridge.bridge.lifting.naming import tool_name
from ideabridge.bridge.lifting.parameters import Parameter, ParameterDecision
from ideabridge.bridge.lifting.plain import OpenPoint, open_points
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.runs.recorded import RecordedRun, read_run
from ideabridge.bridge.runs.stretch import EndedCall, calls_of, is_plain, store_part
from ideabridge.bridge.store.journal import PastEvents
from ideabridge.bridge.store.publications import RESERVED
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    encode,
    encode_text,
    list_or_empty,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import safe_name
from ideabridge.tools.reading import Solution
from ideabridge.tools.tool import ToolKey

MOST_RUNS: Final = 1000
"""The number of a caller's latest runs that are compared."""

MOST_CALLS: Final = 10_000
"""The maximum number of calls that are compared."""

LONGEST_PART: Final = 12
"""The maximum number of calls in a suggested part of a run. A whole run can have more."""

_LONGEST_RUN: Final = 100
_EXAMINED: Final = 5
"""The number of occurrences whose journals are read."""

_EXAMINATION_SECONDS: Final = 5.0
"""The maximum time, in seconds, for examining suggestions."""

_PAGE: Final = 100
_SHOWN_CHARACTERS: Final = 32
_HELPERS: Final = frozenset({"pick"})
"""Tools that lifting adds to plans."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The calls of a run from `first` to `last`, counted from 0. `whole` is true if the run has no
    others.
    """

    run: str
    first: int
    last: int
    whole: bool

    @property
    def ref(self) -> str:
        """The argument for `ideas publish`: `RUN`, or `RUN:FIRST-LAST`."""
        if self.whole:
            return self.run
        return f"{self.run}:{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Work that was done more than once, and the tool that could do it.

    Attributes:
        name: a name for the tool.
        times: how often the work was done.
        tools: the tools that were called, in order.
        changes: True if one of the tools might change something.
        parameters: the parameters that the tool would have, as `{"at", "default"?, "optional"?}`,
            in this order: those that differed, which callers must pass; those that were always the
            same, with their value as default; and the optional ones, whose values were copied.
        open: the open points of the tool's plan, which a program can settle. Empty if the plan is
            plain.
        occurrences: the calls that the command publishes, and those that it names as evidence,
            latest first. Exact repetitions are left out, because they add no evidence.
        repeated: the parameters that had, in each of these runs, the same text as an earlier
            parameter, so that a person can join the two.
        title: the title of the run with the latest occurrence.
    """

    name: str
    times: int
    tools: tuple[str, ...]
    changes: bool
    parameters: tuple[tuple[str, JSONObject], ...]
    open: tuple[OpenPoint, ...]
    occurrences: tuple[Occurrence, ...]
    repeated: tuple[str, ...]
    title: str

    @property
    def signature(self) -> str:
        """The signature, such as `flight_report(city, date="2026-11-22", recipient?)`.

        A question mark follows each parameter that is optional and has no default.
        """
        parts: list[str] = []
        for name, parameter in self.parameters:
            if "default" in parameter:
                parts.append(f"{name}={_shown(parameter['default'])}")
            elif "optional" in parameter:
                parts.append(f"{name}?")
            else:
                parts.append(name)

        return f"{self.name}({', '.join(parts)})"

    @property
    def required(self) -> list[str]:
        """The parameters that callers must pass."""
        required: list[str] = []
        for name, parameter in self.parameters:
            if "default" not in parameter and "optional" not in parameter:
                required.append(name)

        return required

    @property
    def command(self) -> str:
        """The command that publishes the tool."""
        latest, *others = self.occurrences
        words = ["ideabridge ideas publish", latest.ref, self.name]
        words += [f"--with {occurrence.ref}" for occurrence in others]
        words += [f"--require {name}" for name in self.required]
        return " ".join(words)

    def to_json(self) -> JSONObject:
        """Return the attributes as JSON, with `signature` and `command`."""
        return {
            "name": self.name,
            "times": self.times,
            "tools": [*self.tools],
            "changes": self.changes,
            "parameters": dict[str, JSON](self.parameters),
            "required": [*self.required],
            "open": [point.to_json() for point in self.open],
            "runs": [occurrence.ref for occurrence in self.occurrences],
            "title": self.title,
            "signature": self.signature,
            "command": self.command,
        }


def suggest(store: Store, caller: str, *, least: int = 2, limit: int = 10) -> list[Suggestion]:
    """Find work that a caller did at least `least` times and that is not a tool yet, ordered by how
    many calls a tool would save.

    Work is suggested if it was done with different arguments, or at least three times. It must also
    consist of at least two calls, or of one call that might change something and always had some of
    the same arguments. All calls must have succeeded. The search reads journals for up to five
    seconds.
    """
    lines = _lines(store, caller)
    published = _published(store, caller)
    runs = _Runs(store)
    drafts = _Drafts(store, caller)
    used_steps: set[_Step] = set()
    names = names_in_use(store, caller)
    suggestions: list[Suggestion] = []
    until = time.monotonic() + _EXAMINATION_SECONDS
    for repeated in _repeated(lines, least):
        if len(suggestions) >= limit or time.monotonic() > until:
            break
        if _without_helpers(repeated.tools) in published:
            # Do not suggest the parts of a published plan either.
            used_steps |= repeated.steps()
            continue

        # A call belongs to one suggestion only.
        starts: list[_Step] = []
        for start in repeated.starts:
            if used_steps.isdisjoint(repeated.steps_from(start)):
                starts.append(start)

        if len(starts) < least:
            continue

        free = _Repeated(repeated.tools, starts)
        suggestion = _examine(runs, drafts, lines, free, names)
        if suggestion is not None:
            suggestions.append(suggestion)
            names.add(suggestion.name)
            used_steps |= free.steps()

    return suggestions


def names_in_use(store: Store, caller: str) -> set[str]:
    """Return the names that are not available for a suggested tool."""
    return {*RESERVED, *store.publications.names(caller)}


# -- repetitions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """The successful calls in a run of `count` calls: their tools, and their numbers in the run."""

    run: str
    title: str
    tools: tuple[str, ...]
    places: tuple[int, ...]
    count: int


_Step: TypeAlias = tuple[int, int]
"""A pair: the number of a line, and the place of a call in the line."""


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Calls to the same tools in the same order, and the places where they begin."""

    tools: tuple[str, ...]
    starts: list[_Step]

    @property
    def worth(self) -> tuple[bool, int, int]:
        """The sort key, which grows with the number of calls that a tool would save.

        Single calls come last, because they are mostly parts of other work.
        """
        size = len(self.tools)
        is_single = size == 1
        # The tool is made from the first occurrence, so it would have saved only the others.
        saved_calls = (len(self.starts) - 1) * size
        return not is_single, saved_calls, size

    def steps_from(self, start: _Step) -> Iterator[_Step]:
        """Yield the calls that begin at a place."""
        line, first = start
        for step in range(len(self.tools)):
            yield line, first + step

    def steps(self) -> set[_Step]:
        """All calls of all occurrences."""
        steps: set[_Step] = set()
        for start in self.starts:
            steps.update(self.steps_from(start))

        return steps


def _lines(store: Store, caller: str) -> list[_Line]:
    """Return the calls in the latest runs, latest run first."""
    lines: list[_Line] = []
    after: str | None = None
    calls = 0
    for _ in range(MOST_RUNS // _PAGE):
        page = store.runs.newest(caller, "done", _PAGE, after=after, rooms=False)
        for record in page:
            line = _line_of(store, record)
            calls += len(line.tools)
            if calls > MOST_CALLS:
                return lines
            if line.tools:
                lines.append(line)

        if len(page) < _PAGE:
            break
        after = page[-1].id

    return lines


def _line_of(store: Store, record: RunRecord) -> _Line:
    """Return the successful calls in a run. A run that is part of another one counts as empty."""
    tools: list[str] = []
    if record.summary.origin.run is None:
        for solution in store.ideas.solutions_of(record.id):
            tools += _tools_of(solution)

    failed: set[int] = set()
    if tools:
        failed = store.runs.calls_with_an_error(record.id)

    places = [place for place in range(len(tools)) if place not in failed]
    succeeded = tuple(tools[place] for place in places)
    return _Line(record.id, record.title, succeeded, tuple(places), len(tools))


def _tools_of(solution: Solution) -> tuple[str, ...]:
    """Return the names of the tools that are called, without their servers, because calls need not
    name the server.
    """
    names: list[str] = []
    for call in written_calls(solution.calls):
        # A tool can be written as `module.tool` or `module/tool`.
        *_, name = re.split(r"[./]", call.tool)
        names.append(name)

    return tuple(names)


def _repeated(lines: Sequence[_Line], least: int) -> list[_Repeated]:
    """Return every sequence of tools that occurs at least `least` times, ordered by how many calls
    a tool would save.
    """
    starts_of: dict[tuple[str, ...], list[_Step]] = {}
    for number, line in enumerate(lines):
        tools = line.tools
        for start in range(len(tools)):
            longest = min(start + LONGEST_PART, len(tools))
            for end in range(start + 1, longest + 1):
                size = end - start
                starts = starts_of.setdefault(tools[start:end], [])
                # Occurrences must not overlap: `a a` occurs only once in `a a a`.
                if not starts or starts[-1][0] != number or starts[-1][1] + size <= start:
                    starts.append((number, start))

        if LONGEST_PART < len(tools) <= _LONGEST_RUN:
            starts_of.setdefault(tools, []).append((number, 0))

    often: list[_Repeated] = []
    for tools, starts in starts_of.items():
        if len(starts) >= least and not _is_repetition(tools):
            often.append(_Repeated(tools, starts))

    often.sort(key=lambda repeated: repeated.worth, reverse=True)
    return often


def _is_repetition(tools: tuple[str, ...]) -> bool:
    """Return whether a sequence repeats a shorter one, as in a loop whose number of rounds is
    incidental.
    """
    size = len(tools)
    for part_size in range(1, size // 2 + 1):
        rounds, rest = divmod(size, part_size)
        if rest == 0 and tools == tools[:part_size] * rounds:
            return True

    return False


def _published(store: Store, caller: str) -> set[tuple[str, ...]]:
    """Return the tools of each published plan, in order."""
    sequences: set[tuple[str, ...]] = set()
    after: str | None = None
    while True:
        page = store.publications.page(_PAGE, after, caller=caller)
        for publication in page.items:
            solution: Solution = publication.plan_parts
            if publication.plan is None:
                stored = store.ideas.get(publication.idea_id, caller=SEES_ALL)
                solution = stored.idea.solution_parts

            sequences.add(_without_helpers(_tools_of(solution)))

        if page.next is None:
            return sequences
        after = page.next


def _without_helpers(tools: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(tool for tool in tools if tool not in _HELPERS)


# -- drafts of suggested tools ---------------------------------------------------------------------


class _Runs:
    """Reads runs, each of them only once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, RecordedRun | None] = {}

    def calls(self, run_id: str, places: Sequence[int]) -> list[EndedCall] | None:
        """Return calls in a run, or None if one of them is not a plain, successful tool call."""
        if run_id not in self._read:
            self._read[run_id] = read_run(self._store, run_id)

        run = self._read[run_id]
        if run is None or places[-1] >= len(run.machine.history):
            return None

        for place in places:
            progress = run.machine.history[place]
            if progress.status is not CallStatus.DONE or not is_plain(progress):
                return None

        return calls_of(run, places)


@dataclass(frozen=True, slots=True)
class _Work:
    """One occurrence of the work: its calls, and the run that made them."""

    line: _Line
    occurrence: Occurrence
    calls: list[EndedCall]

    @property
    def origins(self) -> list[ToolKey]:
        """The tools of the work's calls."""
        return [call.tool.origin for call in self.calls]


class _Drafts:
    """Lifts runs in the same way as publishing does."""

    def __init__(self, store: Store, caller: str) -> None:
        self._store = store
        self._caller = caller

    def of(self, works: Sequence[_Work]) -> tuple[Sequence[_Work], PlanDraft | None]:
        """Return the plan that the first work becomes, or None if there is no plan.

        The other works are evidence, and the parameters that differed are required. Evidence that
        publishing would refuse is left out.
        """
        for count in range(len(works), 0, -1):
            named = works[:count]
            try:
                return named, self._draft(named, works)
            except IdeabridgeError:
                # Publishing would refuse this evidence, too, so try without the last of it.
                continue

        return [], None

    def _draft(self, named: Sequence[_Work], works: Sequence[_Work]) -> PlanDraft:
        if all(work.occurrence.whole for work in named):
            runs = [work.occurrence.run for work in named]
            return _required_where_different(self._store, runs, self._caller, works)

        # Publishing a part of a run stores the part as a separate run. Do the same here, in a
        # temporary store.
        with Store.open(":memory:") as scratch:
            runs = [self._copied(work.occurrence, scratch) for work in named]
            return _required_where_different(scratch, runs, self._caller, works)

    def _copied(self, occurrence: Occurrence, scratch: Store) -> str:
        """Copy a run into another store. Return the id, in that store, of the run that consists of
        the occurrence's calls.
        """
        record = self._store.runs.find(occurrence.run, caller=self._caller)
        # Several occurrences can be parts of one run.
        if scratch.runs.get(record.id) is None:
            events = [event for _, event in self._store.runs.events(record.id)]
            with scratch.transaction():
                scratch.runs.create_ended(
                    record.id,
                    PastEvents(events),
                    kind=record.kind,
                    caller=record.caller,
                    title=record.title,
                    fingerprint=record.fingerprint,
                    summary=record.summary,
                )
                for row in self._store.ideas.of_run(record.id):
                    stored = self._store.ideas.get(row.id, caller=SEES_ALL)
                    scratch.ideas.save(stored.idea, row.meta)

        if occurrence.whole:
            return record.id
        return store_part(scratch, record.id, occurrence.first, occurrence.last, self._caller)


def _required_where_different(
    store: Store, runs: Sequence[str], caller: str, works: Sequence[_Work]
) -> PlanDraft:
    first, *others = runs
    choices = Choices(runs=tuple(others))
    lifted = lift_function(read_function(store, first, caller), store, caller, choices.runs)
    draft = make_draft(lifted, choices, {}, strict=False)
    required: set[str] = set()
    arguments = draft.arguments(lifted.aligned)
    for other_run in lifted.others:
        other_arguments = draft.arguments(other_run)
        for name, argument in arguments.items():
            if name not in other_arguments or other_arguments[name] != argument:
                required.add(name)

    for parameter in draft.parameters:
        if not parameter.followed and _has_differed(parameter, draft, works):
            required.add(parameter.name)

    decisions = {name: ParameterDecision(required=True) for name in required}
    return make_draft(lifted, choices, decisions, strict=False)


def _has_differed(parameter: Parameter, draft: PlanDraft, works: Sequence[_Work]) -> bool:
    """Return whether the literal that a parameter replaces had a different value in any of the
    works.
    """
    at = parameter.leaves[0].at
    place = place_in(at)
    if place is None:
        return False
    # The lifted run has only the calls of the first work: it is a whole run without failed calls,
    # or a part that was stored as a run of its own.
    number = draft.lifted.aligned.recorded.get(place)
    if number is None:
        return False

    values: list[JSON | Missing] = []
    for work in works:
        parameters = dict(work.calls[number].parameters)
        values.append(read(parameters, keys_below(at)))

    return any(value != values[0] for value in values)


def _different(works: Sequence[_Work]) -> list[_Work]:
    """Return the works whose parameters or results differ from those of all earlier works."""
    seen: set[bytes] = set()
    different: list[_Work] = []
    for work in works:
        content = encode([[call.parameters, call.value] for call in work.calls])
        if content not in seen:
            seen.add(content)
            different.append(work)

    return different


def _examine(
    runs: _Runs,
    drafts: _Drafts,
    lines: Sequence[_Line],
    repeated: _Repeated,
    names: set[str],
) -> Suggestion | None:
    """Return a tool for repeated work, or None if it is not worth one."""
    works: list[_Work] = []
    lost = 0
    for number, start in repeated.starts:
        if len(works) >= _EXAMINED:
            break

        line = lines[number]
        places = line.places[start : start + len(repeated.tools)]
        work = _work(runs, line, places)
        # Compare the origins of the tools, because a tool of another server can have the same name.
        if work is not None and (not works or work.origins == works[-1].origins):
            works.append(work)
        else:
            lost += 1

    if len(works) < 2:
        return None

    latest = works[0]
    is_single = len(latest.calls) < 2
    changes = any(call.tool.annotations.read_only is not True for call in latest.calls)
    if is_single and not changes:
        return None

    times = len(repeated.starts) - lost
    parameters_of = [[call.parameters for call in work.calls] for work in works]
    if times < 3 and all(parameters == parameters_of[0] for parameters in parameters_of):
        return None

    named, draft = drafts.of(_different(works))
    if draft is None:
        return None

    parameters = _parameters(draft)
    if is_single and not any("default" in parameter for _, parameter in parameters):
        # The suggested tool would do nothing that the called tool does not do.
        return None

    tools = tuple(name for _, name in latest.origins)
    required = [name for name, parameter in parameters if parameter.keys() == {"at"}]
    return Suggestion(
        name=safe_name(tool_name(tools, required, names), names),
        times=times,
        tools=tools,
        changes=changes,
        parameters=parameters,
        open=tuple(open_points(draft, output_counts=False)),
        occurrences=tuple(work.occurrence for work in named),
        repeated=_repeated_texts(draft),
        title=latest.line.title,
    )


def _work(runs: _Runs, line: _Line, places: Sequence[int]) -> _Work | None:
    """Read the calls of one occurrence. Return None if one of them is not plain, or if a failed
    call lies between them.
    """
    first = places[0]
    last = places[-1]
    calls = runs.calls(line.run, places)
    if calls is None or last - first >= len(places):
        return None

    whole = len(places) == line.count
    occurrence = Occurrence(line.run, first, last, whole)
    return _Work(line, occurrence, calls)


def _repeated_texts(draft: PlanDraft) -> tuple[str, ...]:
    """Return the parameters that had the same text as an earlier one in each of the runs."""
    arguments = [draft.arguments(run) for run in (draft.lifted.aligned, *draft.lifted.others)]
    seen: set[tuple[str, ...]] = set()
    repeated: list[str] = []
    for name in arguments[0]:
        values = [of_run.get(name) for of_run in arguments]
        texts = tuple(value for value in values if isinstance(value, str) and value)
        if len(texts) < len(values):
            continue
        if texts in seen:
            repeated.append(name)
        seen.add(texts)

    return tuple(repeated)


def _parameters(draft: PlanDraft) -> tuple[tuple[str, JSONObject], ...]:
    """Return the parameters of a tool: first those that callers must pass, then those with a
    default, and finally those whose values are copied unless a caller passes them.
    """
    paths: dict[str, list[JSON]] = {}
    for parameter in draft.parameters:
        name = draft.inputs.renamed.get(parameter.name, parameter.name)
        paths[name] = [path_of(leaf.at) for leaf in parameter.leaves]

    required_names = list_or_empty(draft.inputs.schema.get("required"))
    required: list[tuple[str, JSONObject]] = []
    with_default: list[tuple[str, JSONObject]] = []
    optional: list[tuple[str, JSONObject]] = []
    for name, schema in object_or_empty(draft.inputs.schema.get("properties")).items():
        entry: JSONObject = {"at": paths.get(name, [])}
        members = object_or_empty(schema)
        if name in required_names:
            required.append((name, entry))
        elif "default" in members:
            with_default.append((name, {**entry, "default": members["default"]}))
        else:
            optional.append((name, {**entry, "optional": True}))

    return (*required, *with_default, *optional)


def _shown(value: JSON) -> str:
    text = encode_text(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[: _SHOWN_CHARACTERS - 3]}..."
