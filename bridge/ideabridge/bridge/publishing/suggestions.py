"""Suggestions: finds calls that a caller made repeatedly, in runs of any kind, and suggests a tool
for them.

The calls of the latest runs are compared only by their tools: the same tools in the same order
count as the same work. For the most frequent work, the journals of some of the runs show which
parameters differed, and which were copied from earlier results. All but the copied ones become
parameters of the tool.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.bridge.lifting.naming import Filled, parameter_names, tool_name, words_of
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.runs.recorded import RecordedRun, read_run
from ideabridge.bridge.runs.stretch import EndedCall, calls_of, is_plain
from ideabridge.bridge.store.publications import RESERVED
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.names import safe_name
from ideabridge.tools.tool import ToolKey

MOST_RUNS: Final = 1000
"""How many of a caller's latest runs are compared."""

MOST_CALLS: Final = 10_000
"""How many calls are compared."""

LONGEST: Final = 12
"""Maximum number of calls in a suggested part of a run. A whole run may have more."""

_LONGEST_RUN: Final = 100
_EXAMINED: Final = 5
"""For how many occurrences the journals are read."""

_SECONDS: Final = 5.0
"""How long, in seconds, suggestions are examined."""

_PAGE: Final = 100
_LEAVES: Final = 2000
_WORDS_OF_VALUE: Final = 3
_SHOWN: Final = 32
_HELPERS: Final = frozenset({"pick"})
"""Tools that lifting adds to plans."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Calls of a run, from `first` to `last`, counted from 0. `whole` is true if the run has no
    other calls.
    """

    run: str
    first: int
    last: int
    whole: bool

    @property
    def ref(self) -> str:
        """The argument for `ideas publish`: `RUN`, or `RUN:FIRST-LAST`."""
        return self.run if self.whole else f"{self.run}:{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Work that was done more than once, and the tool that could do it.

    Attributes:
        name: a name for the tool.
        times: how often it was done.
        tools: the tools that were called, in order.
        changes: True if one of the tools may change something.
        parameters: the parameters that the tool would have. Parameters that differed have no
            default and come first.
        occurrences: the calls that were examined, latest first.
        title: the title of the run with the latest occurrence.
    """

    name: str
    times: int
    tools: tuple[str, ...]
    changes: bool
    parameters: tuple[tuple[str, JSONObject], ...]
    occurrences: tuple[Occurrence, ...]
    title: str

    @property
    def signature(self) -> str:
        """`flight_report(city, date="2026-11-22")`."""
        parts = [
            f"{name}={_shown(parameter['default'])}" if "default" in parameter else name
            for name, parameter in self.parameters
        ]
        return f"{self.name}({', '.join(parts)})"

    @property
    def command(self) -> str:
        """The command that publishes the tool."""
        latest, *others = (occurrence.ref for occurrence in self.occurrences)
        return " ".join(
            ["ideabridge ideas publish", latest, self.name, *(f"--with {ref}" for ref in others)]
        )

    def to_json(self) -> JSONObject:
        """Return the attributes as JSON, with `signature` and `command`."""
        return {
            "name": self.name,
            "times": self.times,
            "tools": [*self.tools],
            "changes": self.changes,
            "parameters": dict[str, JSON](self.parameters),
            "runs": [occurrence.ref for occurrence in self.occurrences],
            "title": self.title,
            "signature": self.signature,
            "command": self.command,
        }


def suggest(store: Store, caller: str, *, least: int = 2, limit: int = 10) -> list[Suggestion]:
    """Find work that a caller did at least `least` times and that is not a tool yet, ordered by how
    many calls a tool would save.

    Work is suggested if it was done with different arguments, or at least three times. It must also
    consist of at least two calls, or of one call that may change something and always had some of
    the same arguments. All calls must have succeeded. This reads journals for up to five seconds.
    """
    lines = _lines(store, caller)
    published = _published(store, caller)
    runs = _Runs(store)
    used_steps: set[_Step] = set()
    names: set[str] = {*RESERVED, *store.publications.names(caller)}
    suggestions: list[Suggestion] = []
    until = time.monotonic() + _SECONDS
    for repeated in _repeated(lines, least):
        if len(suggestions) >= limit or time.monotonic() > until:
            break
        if _without_helpers(repeated.tools) in published:
            # The parts of a published plan are not suggested either.
            used_steps |= repeated.steps()
            continue

        starts = [
            start for start in repeated.starts if used_steps.isdisjoint(repeated.steps_from(start))
        ]
        if len(starts) < least:
            continue

        free = _Repeated(repeated.tools, starts)
        suggestion = _examine(runs, lines, free, names)
        if suggestion is not None:
            suggestions.append(suggestion)
            names.add(suggestion.name)
            used_steps |= free.steps()

    return suggestions


# -- repetitions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """The successful calls of a run with `count` calls: their tools, and their numbers in the
    run.
    """

    run: str
    title: str
    tools: tuple[str, ...]
    places: tuple[int, ...]
    count: int


_Step: TypeAlias = tuple[int, int]
"""(number of a line, place of a call in the line)."""


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Calls of the same tools in the same order, and where they begin."""

    tools: tuple[str, ...]
    starts: list[_Step]

    @property
    def worth(self) -> tuple[bool, int, int]:
        """The sort key, which is higher the more calls are saved. Single calls come last, because
        they are mostly parts of other work.
        """
        size = len(self.tools)
        return size > 1, (len(self.starts) - 1) * size, size

    def steps_from(self, start: _Step) -> Iterator[_Step]:
        """Yield the calls that begin at a place."""
        line, first = start
        for step in range(len(self.tools)):
            yield line, first + step

    def steps(self) -> set[_Step]:
        """All calls of all occurrences."""
        return {step for start in self.starts for step in self.steps_from(start)}


def _lines(store: Store, caller: str) -> list[_Line]:
    """Return the calls of the latest runs, latest run first."""
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
    """Return the successful calls of a run. A run that is part of another run counts as empty."""
    tools: list[str] = []
    origin = record.summary.origin
    if origin is None or "run" not in origin:
        for solution in store.ideas.solutions_of(record.id):
            tools += map(_tool_of, _calls_in(solution))

    failed = store.runs.calls_with_an_error(record.id) if tools else set[int]()
    places = [place for place in range(len(tools)) if place not in failed]
    succeeded = tuple(tools[place] for place in places)
    return _Line(record.id, record.title, succeeded, tuple(places), len(tools))


def _calls_in(solution: JSON) -> list[JSONObject]:
    calls = solution.get("calls") if isinstance(solution, dict) else None
    if isinstance(calls, list):
        return [call for call in calls if isinstance(call, dict)]
    return []


def _tool_of(call: JSONObject) -> str:
    """Return the name of a call's tool without its module, because calls need not name the
    module.
    """
    return re.split(r"[./]", str(call.get("_tool")))[-1]


def _repeated(lines: Sequence[_Line], least: int) -> list[_Repeated]:
    """Return every sequence of tools that occurs at least `least` times, ordered by how many calls
    a tool would save.
    """
    starts_of: dict[tuple[str, ...], list[_Step]] = {}
    for number, line in enumerate(lines):
        tools = line.tools
        for start in range(len(tools)):
            longest = min(start + LONGEST, len(tools))
            for end in range(start + 1, longest + 1):
                size = end - start
                starts = starts_of.setdefault(tools[start:end], [])
                # Occurrences must not overlap: `a a` occurs only once in `a a a`.
                if not starts or starts[-1][0] != number or starts[-1][1] + size <= start:
                    starts.append((number, start))

        if LONGEST < len(tools) <= _LONGEST_RUN:
            starts_of.setdefault(tools, []).append((number, 0))

    often = [
        _Repeated(tools, starts)
        for tools, starts in starts_of.items()
        if len(starts) >= least and not _is_repetition(tools)
    ]
    often.sort(key=lambda repeated: repeated.worth, reverse=True)
    return often


def _is_repetition(tools: tuple[str, ...]) -> bool:
    """Return whether a sequence repeats a shorter one. If so, it is a loop whose number of rounds
    is accidental.
    """
    size = len(tools)
    return any(
        size % part == 0 and tools == tools[:part] * (size // part)
        for part in range(1, size // 2 + 1)
    )


def _published(store: Store, caller: str) -> set[tuple[str, ...]]:
    """Return the tools of each published plan, in order."""
    sequences: set[tuple[str, ...]] = set()
    after: str | None = None
    while True:
        page = store.publications.page(_PAGE, after, caller=caller)
        for publication in page.items:
            if publication.plan is not None:
                solution = publication.plan
            else:
                solution = store.ideas.get(publication.idea_id, caller=SEES_ALL).idea.solution
            sequences.add(_without_helpers(tuple(_tool_of(call) for call in _calls_in(solution))))

        if page.next is None:
            return sequences
        after = page.next


def _without_helpers(tools: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(tool for tool in tools if tool not in _HELPERS)


# -- the tool that they would make -----------------------------------------------------------------


class _Runs:
    """Reads runs, each once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, RecordedRun | None] = {}

    def calls(self, run_id: str, places: Sequence[int]) -> list[EndedCall] | None:
        """Return calls of a run, or None unless all are plain, successful calls of tools."""
        if run_id not in self._read:
            self._read[run_id] = read_run(self._store, run_id)

        run = self._read[run_id]
        if run is None or places[-1] >= len(run.machine.history):
            return None

        history = [run.machine.history[place] for place in places]
        if not all(
            progress.status is CallStatus.DONE and is_plain(progress) for progress in history
        ):
            return None
        return calls_of(run, places)


@dataclass(frozen=True, slots=True)
class _Work:
    """One of the times that work was done: its calls, and the run that made them."""

    line: _Line
    occurrence: Occurrence
    calls: list[EndedCall]

    @property
    def origins(self) -> list[ToolKey]:
        """The tools of its calls."""
        return [call.tool.origin for call in self.calls]


def _examine(
    runs: _Runs, lines: Sequence[_Line], repeated: _Repeated, names: set[str]
) -> Suggestion | None:
    """Return the tool that could do repeated work, or None if a tool is not worth it."""
    works: list[_Work] = []
    lost = 0
    for number, start in repeated.starts:
        if len(works) >= _EXAMINED:
            break
        line = lines[number]
        work = _work(runs, line, line.places[start : start + len(repeated.tools)])
        # The same name may belong to a tool of another server.
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

    parameters = _parameters([work.calls for work in works])
    if is_single and not any("default" in parameter for _, parameter in parameters):
        # The suggested tool would do the same as the tool that was called.
        return None

    return Suggestion(
        name=safe_name(_name(works), names),
        times=times,
        tools=tuple(name for _, name in latest.origins),
        changes=changes,
        parameters=parameters,
        occurrences=tuple(work.occurrence for work in works),
        title=latest.line.title,
    )


def _work(runs: _Runs, line: _Line, places: Sequence[int]) -> _Work | None:
    """Read calls of a run. Return None if they are not plain, or a failed call lies between
    them.
    """
    first = places[0]
    last = places[-1]
    calls = runs.calls(line.run, places)
    if calls is None or last - first >= len(places):
        return None
    whole = len(places) == line.count
    return _Work(line, Occurrence(line.run, first, last, whole), calls)


def _parameters(works: Sequence[Sequence[EndedCall]]) -> tuple[tuple[str, JSONObject], ...]:
    """Return the parameters of the tool, keyed by name, each as `{"default"?, "at":
    ["calls.0.city", ...]}`.
    """
    slots: list[_Slot] = []
    results = [_Results() for _ in works]
    for place in range(len(works[0])):
        calls = [work[place] for work in works]
        for key in dict.fromkeys(key for call in calls for key in call.parameters):
            values = [call.parameters.get(key) for call in calls]
            copied = [result.paths(value) for result, value in zip(results, values, strict=True)]
            if copied[0].intersection(*copied[1:]):
                # The value always occurs at the same place in an earlier result, so it is not a
                # parameter.
                continue

            at = f"calls.{place}.{key}"
            equal = next(
                (slot for slot in slots if slot.filled.keys == (key,) and slot.values == values),
                None,
            )
            if equal is not None:
                equal.at.append(at)
            else:
                filled = Filled(calls[0].tool.origin[1], (key,), values[0], call=place)
                slots.append(_Slot(filled, values, [at]))

        for result, call in zip(results, calls, strict=True):
            result.add(place, call.value)

    parameters: list[tuple[str, JSONObject]] = []
    for name, slot in zip(parameter_names([slot.filled for slot in slots]), slots, strict=True):
        entry: JSONObject = {"at": [*slot.at]}
        if all(value == slot.values[0] for value in slot.values):
            entry["default"] = slot.values[0]
        parameters.append((name, entry))

    return tuple(sorted(parameters, key=lambda parameter: "default" in parameter[1]))


@dataclass(frozen=True, slots=True)
class _Slot:
    """The places that a parameter of the tool fills, with its value in each occurrence."""

    filled: Filled
    values: list[JSON]
    at: list[str]


class _Results:
    """The values in the results of some calls."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, JSON], set[str]] = {}

    def add(self, place: int, value: JSON) -> None:
        """Record the values of a result."""
        for number, (path, leaf) in enumerate(_leaves(value, f"†results.{place}")):
            if number >= _LEAVES:
                break
            key = _key(leaf)
            if key is not None:
                self._paths.setdefault(key, set()).add(path)

    def paths(self, value: JSON) -> set[str]:
        """Return the places at which a value was seen."""
        key = _key(value)
        return set() if key is None else self._paths.get(key, set())


def _leaves(value: JSON, path: str) -> Iterator[tuple[str, JSON]]:
    if isinstance(value, str):
        inner: JSON | Missing = parsed_text(value)
    else:
        inner = value

    if isinstance(inner, dict):
        for key, item in inner.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(inner, list):
        for number, item in enumerate(inner):
            yield from _leaves(item, f"{path}.{number}")

    if not isinstance(value, dict | list):
        yield path, value


def _key(value: JSON) -> tuple[str, JSON] | None:
    """Return a key that identifies a value, or None if the value is too common to show where it
    comes from.
    """
    if isinstance(value, str):
        return ("text", value) if len(value) > 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return ("number", value) if abs(value) >= 10 else None


def _name(works: Sequence[_Work]) -> str:
    """Return a name composed of the words that all tasks share, without the values of their calls,
    or else of the tools' names.
    """
    tasks: list[tuple[str, set[str]]] = []
    for work in works:
        data: set[str] = set()
        for call in work.calls:
            for value in call.parameters.values():
                words = words_of(_text(value))
                # A task does not quote a long string. If they share words, that is chance.
                if len(words) <= _WORDS_OF_VALUE:
                    data.update(words)

        tasks.append((work.line.title, data))

    return tool_name(tasks, [name for _, name in works[0].origins])


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else encode_text(value)


def _shown(value: JSON) -> str:
    text = encode_text(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
