"""Assumptions: what a published plan does not know for certain, and what its run says about it.

A plan made of a run may have literals that the run copied (`context/explanations.py`). Such a plan is proposed with
`{"values": [Explained...], "seen": {REFERENCE: profile}, "watch": {PLACE: [REFERENCE...]}, "decisions": [place...],
"strict": bool}`:

- `values`: before a call is put up, each explained literal gets the value that its explanations have for the new data.
  The value at `calls.PLACE._when` says whether the call is made; otherwise it is skipped.
- `seen`: what earlier runs read at a reference; what is new about a value is noted.
- `watch`: `{PLACE: [REFERENCE...]}`: what a call does not read, but its author had seen; it is compared with `seen`.
- `decisions`: the places of calls that may have been made because of a result that they do not read.
- `strict`: ask a person before any value is used that is not determined.

A call that only reads runs with the cheapest value, and the run reports the assumption. Before a call that may change
something a person is asked, whatever the approval policy allows.

What may make an answer wrong is *assumed*: explanations that differ, a position, words of a mind. All else is *noted*:
a new kind of value, a bound of the search. A note is a reason to ask before a change, unless it is mild.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from ideabridge.bridge.context.assumption import note_lines, read_assumption
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    NOTED,
    WHEN,
    Explained,
    Joined,
    Read,
    assumption,
    operand_path,
    read_explained,
    references_of,
    settle,
)
from ideabridge.bridge.context.references import Path, format_reference
from ideabridge.bridge.context.removed import read_earlier_explained
from ideabridge.bridge.context.seen import unseen
from ideabridge.bridge.context.state import Missing
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode
from ideabridge.tools.keywords import show

MOST_PARTS: Final = 50_000
"""The most explanations, and parts of explanations, of one plan: reading one takes 5 us in the event loop."""

RULES_OF_NOTES: Final = 2
"""The version of the rules for calls from which on `Doubts.notes` are apart from what is assumed."""

_NEAREST: Final = 3
"""The most other calls of a tool whose results are compared with the one that gives a value."""

DECISION: Final = "it was called after results had been seen, and may have been called because of them"

_NAMED: Final = 20
"""The most malformed explanations that are named."""

_CACHED: Final = 256 * 1024
"""The most bytes of JSON of explanations that are kept after they were read."""

_KINDS: Final[dict[type, str]] = {list: "an array", dict: "an object", bool: "true or false"}


@dataclass(slots=True)
class Doubts:
    """What is uncertain about one call or about an output.

    Attributes:
        assumed: see `Settled.assumed`; also `{"at": "calls.PLACE", "why"}` for a call that may have been a decision.
        notes: `{"at": reference or place, "what": text, "mild"?: true}` for each value that is new, and for what else
            is not certain and is hardly ever wrong. What is not mild asks before a change.

    With instances, each has its `instance`.
    """

    assumed: list[JSONObject] = field(default_factory=list[JSONObject])
    notes: list[JSONObject] = field(default_factory=list[JSONObject])

    def to_json(self) -> JSONObject | None:
        """`{"assumed"?: [...], "notes"?: [...]}`; None if nothing is uncertain."""
        found: JSONObject = {}
        if self.assumed:
            found["assumed"] = list[JSON](self.assumed)
        if self.notes:
            found["notes"] = list[JSON](self.notes)
        return found or None

    def add(self, other: Doubts, instance: str) -> None:
        """Add what is uncertain about a call or an output of an instance; "" if there are no instances."""
        named: JSONObject = {"instance": instance} if instance else {}
        self.assumed += [{**one, **named} for one in other.assumed] if named else other.assumed
        self.notes += [{**one, **named} for one in other.notes] if named else other.notes

    def confirm(self) -> None:
        """Drop what a person has been told."""
        self.assumed = []
        self.notes = [one for one in self.notes if one.get("mild")]

    def add_room(self, at: str, doubts: JSONObject) -> None:
        """Add the doubts of the run that answered a call; `at` is the path of the call."""
        # Earlier versions wrote `unseen`.
        for name, mine in (("assumed", self.assumed), ("notes", self.notes), ("unseen", self.notes)):
            listed = doubts.get(name)
            for one in listed if isinstance(listed, list) else []:
                if isinstance(one, dict):
                    mine.append({**one, "at": f"{at}: {one.get('at')}"})

    @property
    def ask(self) -> str | None:
        """Why a person should be asked, one line for each reason; None if nothing that matters is uncertain."""
        texts = [read_assumption(one).line for one in self.assumed]
        texts += note_lines((one for one in self.notes if not one.get("mild")), most=None)
        return "\n".join(texts) or None


class Assumptions:
    """The explained literals of one Solution.

    Args:
        raw: see the module's docstring; None: there are none.
        tools: the tool of each call of the plan, by place.
        idle: the places of calls whose results nothing reads.
        rules: see `Settings`. Before rules 2, an explanation of any kind stood in for one that gave no value, and
            everything that was not determined asked before a change.

    Attributes:
        problems: (place of the call, or None; problem) for each malformed member.
    """

    def __init__(
        self,
        raw: JSONObject | None,
        tools: Sequence[str],
        rules: int = RULES_OF_NOTES,
        idle: Collection[int] = (),
    ) -> None:
        self._tools = tools
        self._places_of: dict[str, list[int]] = {}
        for place, tool in enumerate(tools):
            self._places_of.setdefault(tool, []).append(place)
        self._idle = idle
        self._earlier = rules < RULES_OF_NOTES
        self.problems: list[tuple[int | None, str]] = []
        self.output: list[Explained] = []
        self._calls: dict[int, list[Explained]] = {}
        self._tests: dict[int, Explained] = {}
        self._references: dict[int, list[str]] = {}
        raw = raw or {}
        listed, seen, decisions, watch = (raw.get(key) for key in ("values", "seen", "decisions", "watch"))
        for key, wanted in (("values", list), ("seen", dict), ("watch", dict), ("decisions", list), ("strict", bool)):
            if raw.get(key) is not None and not isinstance(raw[key], wanted):
                self._refuse(f"explained.{key}: expected {_KINDS[wanted]}, found {show(raw[key])}")
        for one in _read_all(listed if isinstance(listed, list) else [], self._earlier):
            if isinstance(one, str):
                self._refuse(one)
            else:
                self._add(one if self._earlier else self._among(one), len(tools))
        literals = [*self.output, *(one for listed in self._calls.values() for one in listed)]
        self._companions = {} if self._earlier else _companions(literals)
        for explained in (self.output, *self._calls.values()):
            for one, other in pairwise(sorted(found.at for found in explained)):
                if other[: len(one)] == one:
                    self._refuse(f"explained: {'.'.join(other)} is explained twice: {'.'.join(one)} contains it")
        profiles = seen if isinstance(seen, dict) else {}
        self._seen = {text: profile for text, profile in profiles.items() if isinstance(profile, dict)}
        self._decisions = {one for one in (decisions if isinstance(decisions, list) else []) if isinstance(one, int)}
        self._watched = self._read_watch(watch if isinstance(watch, dict) else {})
        self.strict = raw.get("strict") is True

    def _add(self, one: Explained, places: int) -> None:
        if one.at[0] == "output":
            self.output.append(one)
        elif int(one.at[1]) < places and one.at[2:] == (WHEN,):
            if int(one.at[1]) in self._tests:
                self._refuse(f"explained: {'.'.join(one.at)} is explained twice")
            self._tests[int(one.at[1])] = one
        elif int(one.at[1]) < places:
            self._calls.setdefault(int(one.at[1]), []).append(one)
        else:
            self._refuse(f"explained: there is no {'.'.join(one.at)}: the plan has {places} calls")

    def _among(self, one: Explained) -> Explained:
        """The literal with references to the same part of other results of the tool that it takes its value from."""
        origin = one.by[0].origin
        path = operand_path(origin) if origin is not None else ()
        if path[:1] != ("results",) or len(path) < 2 or not path[1].isdecimal():
            return one
        before = len(self._tools) if one.at[0] == "output" else min(int(one.at[1]), len(self._tools))
        place = int(path[1])
        if place >= before:
            return one
        near = _nearest(self._places_of[self._tools[place]], place, before)
        return replace(one, among=tuple(format_reference(("results", str(number), *path[2:])) for number in near))

    def _refuse(self, problem: str) -> None:
        self.problems.append((None, problem))

    def _read_watch(self, raw: JSONObject) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for place, listed in raw.items():
            for text in listed if isinstance(listed, list) and place.isdecimal() and len(place) < 10 else []:
                try:
                    operand_path(str(text))
                except ExplanationError as error:
                    self.problems.append((None, f"watch.{place}: {error}"))
                else:
                    found.setdefault(int(place), []).append(str(text))
        return found

    def of(self, place: int) -> list[Explained]:
        """Return the explained literals of the call in a place."""
        return self._calls.get(place, [])

    def references(self, place: int) -> list[str]:
        """Return what a call reads besides its own references: for its explanations, and what it only watches."""
        found = self._references.get(place)
        if found is None:
            found = self._references[place] = list(
                dict.fromkeys(
                    [
                        *self.tested(place),
                        *self._read_by(self.of(place)),
                        *self._watched.get(place, ()),
                    ]
                )
            )
        return found

    def output_references(self) -> list[str]:
        """Return what the explanations of the output read."""
        return list(self._read_by(self.output))

    def _read_by(self, explained: Sequence[Explained]) -> Iterable[str]:
        passed = (other.given for one in explained for other in self._companions.get(one.at, ()))
        return dict.fromkeys([*references_of(explained), *(text for text in passed if text is not None)])

    def tested(self, place: int) -> tuple[str, ...]:
        """Return what the tests read that say whether a call is made; empty if it is always made."""
        found = self._tests.get(place)
        return () if found is None else found.references

    def settle_test(self, place: int, read: Read) -> tuple[str | None, Doubts, str | None]:
        """Evaluate the tests that say whether a call is made.

        Returns:
            Why it is skipped (None: it is made), what is uncertain about that, and why nothing decides (or None).
        """
        doubts = Doubts()
        found = self._tests.get(place)
        if found is None:
            return None, doubts, None
        settled = settle(found, read, any_kind=self._earlier)
        if isinstance(settled.value, Missing):
            return None, doubts, f"no test says whether it is called: {'; '.join(one.shown for one in found.by[:3])}"
        taken = next(one for one in found.by if not isinstance(one.value(read), Missing))
        made = settled.value is True
        if settled.assumed is not None:
            others = [one.shown for one in found.by if one.value(read) is not settled.value]
            told = f"called because {taken.shown}" if made else f"not called, as it is not so that {taken.shown}"
            why = f"{told}; runs may have called it only if {others[0]}" if others else None
            why = why or f"{settled.assumed['why']}: it may have been called for another reason than {taken.shown}"
            doubts.assumed.append({"at": f"calls.{place}", "why": why})
        doubts.notes += self._new(read, found.references, found.references, [])
        return None if made else f"it is called only if {taken.shown}", doubts, None

    def settle(
        self, place: int, read: Read, texts: Iterable[str], *, only_reads: bool
    ) -> tuple[dict[Path, JSON], Doubts, str | None]:
        """Evaluate the explained literals of a call.

        Args:
            place: the place of the call.
            read: returns the value of a reference.
            texts: the references that the call reads.
            only_reads: the call changes nothing.

        Returns:
            The values by their keys in the call, what is uncertain, and why a literal has no value (or None).
        """
        values, doubts, problem = self._settled(self.of(place), 2, read)
        if not self._earlier and not only_reads:
            doubts.notes += self._recorded_words(place, read, doubts.assumed)
        tested = self.tested(place)
        others = [text for text in texts if text not in tested]
        watched = self._watched.get(place, ())
        new = self._new(read, others, watched, self.of(place))
        doubts.notes += new
        is_idle = only_reads and place in self._idle and not self.strict
        if not self._earlier and not is_idle:
            # What the call does not read, and its author had seen, can only have decided about it.
            for one in new:
                if one["at"] in watched:
                    why = f"{one['at']} is {one['what']}: it may have decided about this call"
                    doubts.assumed.append({"at": f"calls.{place}", "why": why})
        if place in self._decisions:
            at = f"calls.{place}"
            # A branch that only one input took makes an answer wrong, unless nothing comes of the call.
            if self._earlier or not is_idle:
                doubts.assumed.append({"at": at, "why": DECISION})
            else:
                doubts.notes.append({"at": at, "what": DECISION, "mild": True})
        return values, doubts, problem

    def settle_output(self, read: Read) -> tuple[dict[Path, JSON], Doubts, str | None]:
        """Evaluate the explained literals of the output; see `settle`. Only what they are made of is compared with what
        runs have read: all other values of an output are references that somebody wrote.
        """
        values, doubts, problem = self._settled(self.output, 1, read)
        doubts.notes += self._new(read, references_of(self.output), (), self.output)
        return values, doubts, problem

    def _settled(
        self, explained: Iterable[Explained], depth: int, read: Read
    ) -> tuple[dict[Path, JSON], Doubts, str | None]:
        """Return the values of literals by their keys below `depth`, what is uncertain, and why one has no value."""
        values: dict[Path, JSON] = {}
        doubts = Doubts()
        problem: str | None = None
        for one in explained:
            found = settle(one, read, any_kind=self._earlier)
            if isinstance(found.value, Missing):
                tried = "; ".join(each.shown for each in one.by[:3])
                problem = problem or f"{'.'.join(one.at)} has no value for these data: nothing is at {tried}"
                continue
            values[one.at[depth:]] = found.value
            if found.assumed is not None:
                doubts.assumed.append(found.assumed)
            elif found.note is not None:
                mild = not self._earlier and NOTED.get(found.note, True)
                note: JSONObject = {"at": ".".join(one.at), "what": found.note}
                doubts.notes.append({**note, "mild": True} if mild else note)
            companion = self._passed_companion(one, read)
            if companion is not None and found.assumed is None:
                doubts.assumed.append(assumption(one, found.value, companion))
        return values, doubts, problem

    def _recorded_words(self, place: int, read: Read, assumed: Iterable[JSONObject]) -> list[JSONObject]:
        """Note the words that a mind wrote around a copied value in one run alone: they may belong to its data, also
        where the copied value is the same again.
        """
        named = {str(one["at"]) for one in assumed}
        notes: list[JSONObject] = []
        for one in self.of(place):
            first = one.by[0]
            at = ".".join(one.at)
            is_passed = one.given is not None and not isinstance(read(one.given), Missing)
            if isinstance(first, Joined) and first.words and one.runs == 1 and at not in named and not is_passed:
                notes.append({"at": at, "what": f"{first.words} in it was recorded"})
        return notes

    def may_decide(self, place: int) -> bool:
        """Return whether a call may have been made because of a result that it does not read."""
        return not self._earlier and place in self._decisions

    def _passed_companion(self, one: Explained, read: Read) -> str | None:
        """Return why a followed value may not fit: a value from the same place was passed, and this one was not."""
        if one.given is not None and not isinstance(read(one.given), Missing):
            return None
        for other in self._companions.get(one.at, ()):
            if other.given is not None and not isinstance(read(other.given), Missing):
                return f"{other.given} was passed, and this value belongs to the one that was replaced"
        return None

    def _new(
        self, read: Read, texts: Iterable[str], watched: Collection[str], explained: Iterable[Explained]
    ) -> list[JSONObject]:
        found: list[JSONObject] = []
        copied = set(references_of(explained))
        for text in dict.fromkeys(texts):
            profile = self._seen.get(text)
            for new in unseen(profile, read(text)) if profile else ():
                if new.lone and text not in watched:
                    # What the plan passes on is another number each time. What it does not read may have decided.
                    continue
                if new.notation and text not in copied:
                    continue
                entry: JSONObject = {"at": text, "what": new.text}
                found.append({**entry, "mild": True} if new.mild else entry)
        return found


def _read_all(listed: list[JSON], earlier: bool) -> Sequence[Explained | str]:
    """The explained literals, and the problems of malformed ones."""
    text = encode(listed)
    return _read_text(text, earlier) if len(text) <= _CACHED else _read_new(listed, earlier)


def _read_new(listed: list[JSON], earlier: bool) -> Sequence[Explained | str]:
    if _parts(listed) > MOST_PARTS:
        return [f"explained: the explanations have more than {MOST_PARTS:,} parts"]
    found: list[Explained | str] = []
    problems = 0
    for number, one in enumerate(listed):
        try:
            where = f"explained.{number}"
            found.append(read_earlier_explained(one, where=where) if earlier else read_explained(one, where=where))
        except ExplanationError as error:
            found.append(str(error))
            problems += 1
            if problems >= _NAMED:
                break
    return found


@lru_cache(maxsize=8)
def _read_text(text: bytes, earlier: bool) -> Sequence[Explained | str]:
    # The plan of a tool is read again for each of its calls.
    listed = decode_trusted(text)
    return _read_new(listed if isinstance(listed, list) else [], earlier)


def _parts(listed: list[JSON]) -> int:
    """The number of explanations with their parts; it stops counting above the limit."""
    stack: list[JSON] = [one.get("by") for one in listed if isinstance(one, dict)]
    count = 0
    while stack and count <= MOST_PARTS:
        one = stack.pop()
        count += isinstance(one, dict | str)
        if isinstance(one, dict):
            stack.extend(value for key, value in one.items() if key != "constant")
        elif isinstance(one, list):
            stack.extend(one)
    return count


def _nearest(places: Sequence[int], place: int, before: int) -> list[int]:
    """Return the other calls of a tool that are nearest to one of them, at most three; of two, the earlier one first.

    Args:
        places: the places of all calls of the tool, in order.
        place: that of the call.
        before: no call from this place on is taken.
    """
    at = bisect_left(places, place)
    end = bisect_left(places, before)
    earlier = places[max(0, at - _NEAREST) : at]
    later = places[at + 1 : min(end, at + 1 + _NEAREST)]
    return sorted([*earlier, *later], key=lambda number: abs(number - place))[:_NEAREST]


def _companions(explained: Sequence[Explained]) -> dict[Path, list[Explained]]:
    """By the place of a literal, others whose values come from the same object, and can be passed instead."""
    by_holder: dict[str, list[Explained]] = {}
    for one in explained:
        holder = one.by[0].holder
        if holder is not None:
            by_holder.setdefault(holder, []).append(one)
    return {
        one.at: others
        for together in by_holder.values()
        for one in together
        if (others := [other for other in together if other.given not in (None, one.given)])
    }


def put_in(document: JSON, values: Mapping[Path, JSON]) -> JSON:
    """Return a document with other values at some paths. A path that does not exist changes nothing."""
    if not values:
        return document
    if () in values:
        return values[()]
    # Each array and object is copied once, however many of its members change.
    below: dict[str, dict[Path, JSON]] = {}
    for keys, value in values.items():
        below.setdefault(keys[0], {})[keys[1:]] = value
    if isinstance(document, dict):
        return {key: put_in(item, below[key]) if key in below else item for key, item in document.items()}
    if isinstance(document, list):
        return [put_in(item, below.get(str(number), {})) for number, item in enumerate(document)]
    return document


def holds(document: JSON, keys: Path) -> bool:
    """Return whether `put_in` can change the value at a path: unlike a reference, it does not look into texts."""
    for key in keys:
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and len(key) < 10 and key.isdecimal() and int(key) < len(document):
            if key != str(int(key)):
                return False
            document = document[int(key)]
        else:
            return False
    return True
