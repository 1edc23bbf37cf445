"""Find the literals in a published plan that are computed when the plan runs.

A plan created from a run can contain literals that the run copied (`context/explanations.py`). Such
a plan is proposed with `{"values": [Explained...], "seen": {REFERENCE: profile}, "watch": {PLACE:
[REFERENCE...]}, "decisions": [place...], "strict": bool}`:

- `values`: before a call is proposed, each of its literals takes the value that its explanations
  yield for the new data.
- `seen`: profiles of what earlier runs read through a reference. Anything new about a value is
  recorded.
- `watch`: references that a call does not read although its author had seen their values. These
  values are compared with `seen`.
- `decisions`: the places of calls that might have been made because of a result that they do not
  read.
- `strict`: whether to ask a person before any undetermined value is used.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final

from ideabridge.bridge.context.computed import Computation, Computations
from ideabridge.bridge.context.copied import CallFacts, CopiedInCall, CopiedInOutput, PlanFacts
from ideabridge.bridge.context.earlier import LAST_RULES, WHEN, EarlierInCall, EarlierInOutput
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    Explained,
    StoredLiteral,
    operand_path,
    read_explained,
)
from ideabridge.bridge.context.references import Path, format_reference
from ideabridge.bridge.context.removed import read_earlier_explained
from ideabridge.bridge.context.written_call import written_calls
from ideabridge.tools.encoding import JSON, JSONObject, encode, list_or_empty, object_or_empty
from ideabridge.tools.keywords import show
from ideabridge.tools.typed import read_as

MOST_PARTS: Final = 50_000
"""The maximum number of explanations in one plan, including their parts. Reading each explanation
takes 5 us on the event loop.
"""

_NEAREST: Final = 3
"""The maximum number of other results of a tool that are compared with a value from one of its
results.
"""

_MOST_NAMED: Final = 20
"""The maximum number of malformed explanations that are named."""

_MOST_CACHED_BYTES: Final = 256 * 1024
"""The maximum size, in bytes of JSON, of a plan whose computations are cached."""

_MEMBERS: Final[Mapping[str, tuple[type, str]]] = {
    "values": (list, "an array"),
    "seen": (dict, "an object"),
    "watch": (dict, "an object"),
    "decisions": (list, "an array"),
    "strict": (bool, "true or false"),
}

_RESULT: Final = re.compile(rb"results\.([0-9]{1,9})")


def read_computations(
    explained: JSONObject,
    calls: Sequence[JSON],
    output: JSON,
    places: Sequence[JSON] | None,
    *,
    rules: int,
) -> Computations:
    """Read the computations that a plan makes when it runs.

    Args:
        explained: see the docstring of this module.
        calls: the calls of the plan.
        output: the output of the plan.
        places: the place of each call if `calls` contains each call once per instance, or None if
            the place of each call is its number.
        rules: the version of the rules for calls.
    """
    by_instance: list[int] = []
    if places is not None:
        by_instance = [place for place in places if isinstance(place, int)]

    text = encode([explained, *calls, output, list[JSON](by_instance)])
    plan = _Plan(text, rules <= LAST_RULES, explained, calls, by_instance)
    if len(text) <= _MOST_CACHED_BYTES:
        return _read_cached(plan)
    return _Reading(plan).computations()


@dataclass(frozen=True)
class _Plan:
    """A plan with explained literals.

    Attributes:
        text: the JSON of the whole plan, for comparing plans.
        is_earlier: whether the plan was proposed under the earlier rules that `context/earlier.py`
            describes.
        explained: see the docstring of this module.
        calls: the calls of the Solution.
        by_instance: the place of each call, if `calls` contains each call once per instance.
    """

    text: bytes
    is_earlier: bool
    explained: JSONObject = field(compare=False)
    calls: Sequence[JSON] = field(compare=False)
    by_instance: Sequence[int] = field(compare=False)


@lru_cache(maxsize=8)
def _read_cached(plan: _Plan) -> Computations:
    # Cache the computations, because each call to a published tool reads the tool's plan again,
    # which takes about 100 us per literal.
    return _Reading(plan).computations()


class _Reading:
    """Reads the computations of one plan."""

    def __init__(self, plan: _Plan) -> None:
        self._raw = plan.explained
        self._tools = _tools_of(plan.calls, plan.by_instance)
        # With instances, a reference to a result contains the number of the call rather than its
        # place, so no place can be recognised as idle.
        self._idle: set[int] = set()
        if not plan.by_instance:
            self._idle = _idle_places(plan)

        self._is_earlier = plan.is_earlier
        self._problems: list[str] = []
        self._output: list[Explained] = []
        self._calls: dict[int, list[Explained]] = {}
        self._tests: dict[int, Explained] = {}
        self._places_of: dict[str, list[int]] = {}
        for place, tool in enumerate(self._tools):
            self._places_of.setdefault(tool, []).append(place)

    def computations(self) -> Computations:
        """Return the computations of the plan."""
        for key, (expected, name) in _MEMBERS.items():
            member = self._raw.get(key)
            if member is not None and not isinstance(member, expected):
                self._problems.append(f"explained.{key}: expected {name}, found {show(member)}")

        self._read_literals()
        facts = self._facts()
        watched = self._watched()
        listed = list_or_empty(self._raw.get("decisions"))
        decisions = {place for place in listed if isinstance(place, int)}
        calls: dict[int, Computation] = {}
        for place in range(len(self._tools)):
            call = CallFacts(
                place=place,
                watched=watched.get(place, ()),
                may_decide=place in decisions,
                is_idle=place in self._idle,
            )
            calls[place] = self._of_call(facts, call)

        return Computations(calls, self._of_output(facts), self._problems)

    def _of_call(self, facts: PlanFacts, call: CallFacts) -> Computation:
        literals = self._calls.get(call.place, [])
        if self._is_earlier:
            return EarlierInCall(literals, facts, call, self._tests.get(call.place))
        return CopiedInCall(literals, facts, call)

    def _of_output(self, facts: PlanFacts) -> Computation | None:
        if not self._output:
            return None
        if self._is_earlier:
            return EarlierInOutput(self._output, facts)
        return CopiedInOutput(self._output, facts)

    def _facts(self) -> PlanFacts:
        profiles_by_text = object_or_empty(self._raw.get("seen"))
        profiles = {
            text: profile
            for text, profile in profiles_by_text.items()
            if isinstance(profile, dict) and profile
        }
        companions: Mapping[Path, Sequence[Explained]] = {}
        if not self._is_earlier:
            of_calls = chain.from_iterable(self._calls.values())
            companions = _companions([*self._output, *of_calls])

        is_strict = self._raw.get("strict") is True
        return PlanFacts(profiles, companions, is_strict)

    def _read_literals(self) -> None:
        for literal in _read_explained(list_or_empty(self._raw.get("values")), self._is_earlier):
            if isinstance(literal, str):
                self._problems.append(literal)
            elif self._is_earlier:
                self._add(literal)
            else:
                self._add(self._with_alike_results(literal))

        for literals in (self._output, *self._calls.values()):
            # A path comes right before the paths below it.
            paths = sorted(literal.at for literal in literals)
            for path, next_path in pairwise(paths):
                if next_path[: len(path)] == path:
                    self._problems.append(
                        f"explained: {'.'.join(next_path)} is explained twice: "
                        f"{'.'.join(path)} contains it"
                    )

    def _add(self, literal: Explained) -> None:
        if literal.at[0] == "output":
            self._output.append(literal)
            return

        place = int(literal.at[1])
        where = ".".join(literal.at)
        if place >= len(self._tools):
            self._problems.append(
                f"explained: there is no {where}: the plan has {len(self._tools)} calls"
            )
            return

        # Under the earlier rules, a literal could decide whether its call is made.
        is_test = self._is_earlier and literal.at[2:] == (WHEN,)
        if not is_test:
            self._calls.setdefault(place, []).append(literal)
        elif place in self._tests:
            self._problems.append(f"explained: {where} is explained twice")
        else:
            self._tests[place] = literal

    def _with_alike_results(self, literal: Explained) -> Explained:
        """If the value of a literal comes from a tool's result, add references to the same part of
        the tool's other results.
        """
        origin = literal.by[0].origin
        if origin is None:
            return literal

        path = operand_path(origin)
        if path[0] != "results" or len(path) < 2:
            return literal

        _, call, *below = path
        if not call.isdecimal():
            return literal

        # A call can read only the results of the calls before it.
        before = len(self._tools)
        if literal.at[0] == "calls":
            before = min(int(literal.at[1]), before)

        place = int(call)
        if place >= before:
            return literal

        places = self._places_of[self._tools[place]]
        among: list[str] = []
        for alike in _nearest(places, place, before):
            among.append(format_reference(("results", str(alike), *below)))

        return replace(literal, among=tuple(among))

    def _watched(self) -> dict[int, list[str]]:
        watched: dict[int, list[str]] = {}
        for place, references in object_or_empty(self._raw.get("watch")).items():
            if not place.isdecimal() or len(place) >= 10:
                continue

            texts = watched.setdefault(int(place), [])
            for text in map(str, list_or_empty(references)):
                try:
                    operand_path(text)
                except ExplanationError as error:
                    self._problems.append(f"watch.{place}: {error}")
                else:
                    texts.append(text)

        return watched


# -- the calls of the plan -------------------------------------------------------------------------


def _tools_of(calls: Sequence[JSON], by_instance: Sequence[int]) -> list[str]:
    """Return the names of the tool and server of each call in a plan, indexed by the call's place.
    For `by_instance`, see `_Plan`.
    """
    places = by_instance or range(len(calls))
    count = 1 + max(places, default=-1)
    names = [""] * count
    for place, call in zip(places, written_calls(calls), strict=False):
        if call.tool:
            names[place] = f"{call.module or ''} {call.tool}"

    return names


def _idle_places(plan: _Plan) -> set[int]:
    """Return the places of the calls that have no output path and whose results are not
    referenced.
    """
    named_places = {int(place) for place in _RESULT.findall(plan.text)}
    idle_places: set[int] = set()
    for place, call in enumerate(written_calls(plan.calls)):
        if "_outputPath" not in call.members and place not in named_places:
            idle_places.add(place)

    return idle_places


def _nearest(places: Sequence[int], place: int, before: int) -> list[int]:
    """Return the places of up to three other calls to a tool, ordered by distance from a call. Of
    two equally near calls, the earlier one comes first.

    Args:
        places: the places of all calls to the tool, in order.
        place: the place of the call.
        before: consider only calls before this place.
    """
    own = bisect_left(places, place)
    end = bisect_left(places, before)
    earlier = places[max(0, own - _NEAREST) : own]
    later = places[own + 1 : min(end, own + 1 + _NEAREST)]
    # The sort is stable, and the earlier calls come first.
    nearest = sorted([*earlier, *later], key=lambda other: abs(other - place))
    return nearest[:_NEAREST]


def _companions(literals: Sequence[Explained]) -> dict[Path, list[Explained]]:
    """Map the location of each literal to the literals whose values come from the same object and
    can be passed as parameters.
    """
    by_holder: dict[str, list[Explained]] = {}
    for literal in literals:
        holder = literal.by[0].holder
        if holder is not None:
            by_holder.setdefault(holder, []).append(literal)

    companions: dict[Path, list[Explained]] = {}
    for siblings in by_holder.values():
        passable = [literal for literal in siblings if literal.given is not None]
        for literal in siblings:
            alternatives = [other for other in passable if other.given != literal.given]
            if alternatives:
                companions[literal.at] = alternatives

    return companions


# -- explanations ----------------------------------------------------------------------------------


def _read_explained(listed: list[JSON], is_earlier: bool) -> list[Explained | str]:
    """Return the explained literals, with a problem instead of each malformed literal."""
    if _parts(listed) > MOST_PARTS:
        return [f"explained: the explanations have more than {MOST_PARTS:,} parts"]

    read_literal = read_earlier_explained if is_earlier else read_explained
    literals: list[Explained | str] = []
    problems = 0
    for number, raw in enumerate(listed):
        try:
            literals.append(read_literal(raw, where=f"explained.{number}"))
        except ExplanationError as error:
            literals.append(str(error))
            problems += 1
            if problems >= _MOST_NAMED:
                break

    return literals


def _parts(listed: list[JSON]) -> int:
    """Return the number of explanations, including their parts. Counting stops when the limit is
    exceeded.
    """
    stack: list[JSON] = [read_as(StoredLiteral, literal).by for literal in listed]
    count = 0
    while stack and count <= MOST_PARTS:
        part = stack.pop()
        if isinstance(part, str):
            count += 1
        elif isinstance(part, dict):
            count += 1
            # A constant is data, not an explanation.
            stack.extend(value for key, value in part.items() if key != "constant")
        elif isinstance(part, list):
            stack.extend(part)

    return count
