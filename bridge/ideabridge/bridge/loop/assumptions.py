"""Assumptions: what a published plan does not know for certain, and what its run says about it.

A plan made of a run may have literals that the run copied (`context/explanations.py`). Such a plan is proposed with
`{"values": [Explained...], "seen": {REFERENCE: profile}, "watch": {PLACE: [REFERENCE...]}, "decisions": [place...],
"strict": bool}`:

- `values`: before a call is put up, each explained literal gets the value that its explanations have for the new data.
- `seen`: what earlier runs read at a reference; what is new about a value is named.
- `watch`: `{PLACE: [REFERENCE...]}`: what a call does not read, but its author had seen; it is compared with `seen`.
- `decisions`: the places of calls that may have been made because of a result that they do not read.
- `strict`: ask a person before any value is used that is not determined.

A call that only reads runs with the cheapest value, and the run reports the assumption. Before a call that may change
something a person is asked, whatever the approval policy allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ideabridge.bridge.context.assumption import read_assumption, unseen_lines
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import Explained, Read, operand_path, read_explained, references_of, settle
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.seen import unseen
from ideabridge.bridge.context.state import Missing
from ideabridge.tools.encoding import JSON, JSONObject

DECISION = "it was called after results had been seen, and may have been called because of them"


@dataclass(slots=True)
class Doubts:
    """What is uncertain about one call or about an output.

    Attributes:
        assumed: see `Settled.assumed`; also `{"at": "calls.PLACE", "why"}` for a call that may have been a decision.
        unseen: `{"at": reference, "what": text, "mild"?: true}` for each value that is new.
    """

    assumed: list[JSONObject] = field(default_factory=list[JSONObject])
    unseen: list[JSONObject] = field(default_factory=list[JSONObject])

    def to_json(self) -> JSONObject | None:
        """`{"assumed"?: [...], "unseen"?: [...]}`; None if nothing is uncertain."""
        found: JSONObject = {}
        if self.assumed:
            found["assumed"] = list[JSON](self.assumed)
        if self.unseen:
            found["unseen"] = list[JSON](self.unseen)
        return found or None

    def add_room(self, at: str, doubts: JSONObject) -> None:
        """Add the doubts of the run that answered a call; `at` is the path of the call."""
        for name, mine in (("assumed", self.assumed), ("unseen", self.unseen)):
            listed = doubts.get(name)
            for one in listed if isinstance(listed, list) else []:
                if isinstance(one, dict):
                    mine.append({**one, "at": f"{at}: {one.get('at')}"})

    @property
    def ask(self) -> str | None:
        """Why a person should be asked, one line for each reason; None if nothing that matters is uncertain."""
        texts = [read_assumption(one).line for one in self.assumed]
        texts += unseen_lines((one for one in self.unseen if not one.get("mild")), most=None)
        return "\n".join(texts) or None


class Assumptions:
    """The explained literals of one Solution.

    Args:
        raw: see the module's docstring; None: there are none.
        places: the number of calls in the plan.

    Attributes:
        problems: (place of the call, or None; problem) for each malformed member.
    """

    def __init__(self, raw: JSONObject | None, places: int) -> None:
        self.problems: list[tuple[int | None, str]] = []
        self.output: list[Explained] = []
        self._calls: dict[int, list[Explained]] = {}
        raw = raw or {}
        listed, seen, decisions, watch = (raw.get(key) for key in ("values", "seen", "decisions", "watch"))
        for number, one in enumerate(listed if isinstance(listed, list) else []):
            try:
                self._add(read_explained(one, where=f"explained.{number}"), places)
            except ExplanationError as error:
                self.problems.append((None, str(error)))
        profiles = seen if isinstance(seen, dict) else {}
        self._seen = {text: profile for text, profile in profiles.items() if isinstance(profile, dict)}
        self._decisions = {one for one in (decisions if isinstance(decisions, list) else []) if isinstance(one, int)}
        self._watched = self._read_watch(watch if isinstance(watch, dict) else {})
        self.strict = raw.get("strict") is True

    def _add(self, one: Explained, places: int) -> None:
        if one.at[0] == "output":
            self.output.append(one)
        elif int(one.at[1]) < places:
            self._calls.setdefault(int(one.at[1]), []).append(one)
        else:
            self.problems.append((None, f"explained: there is no {'.'.join(one.at)}: the plan has {places} calls"))

    def _read_watch(self, raw: JSONObject) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for place, listed in raw.items():
            for text in listed if isinstance(listed, list) and place.isdecimal() else []:
                try:
                    operand_path(str(text))
                except ExplanationError as error:
                    self.problems.append((None, f"watch.{place}: {error}"))
                else:
                    found.setdefault(int(place), []).append(str(text))
        return found

    def references(self, place: int) -> list[str]:
        """Return what a call reads besides its own references: for its explanations, and what it only watches."""
        return list(dict.fromkeys([*references_of(self.of(place)), *self._watched.get(place, ())]))

    def of(self, place: int) -> list[Explained]:
        """Return the explained literals of the call in a place."""
        return self._calls.get(place, [])

    def settle(self, place: int, read: Read, texts: Iterable[str]) -> tuple[dict[Path, JSON], Doubts, str | None]:
        """Evaluate the explained literals of a call.

        Args:
            place: the place of the call.
            read: returns the value of a reference.
            texts: the references that the call reads.

        Returns:
            The values by their keys in the call, what is uncertain, and why a literal has no value (or None).
        """
        values, doubts, problem = settled(self.of(place), 2, read)
        doubts.unseen = self._new(read, texts, self._watched.get(place, ()))
        if place in self._decisions:
            doubts.assumed.append({"at": f"calls.{place}", "why": DECISION})
        return values, doubts, problem

    def _new(self, read: Read, texts: Iterable[str], watched: Collection[str]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for text in dict.fromkeys(texts):
            profile = self._seen.get(text)
            for new in unseen(profile, read(text)) if profile else ():
                if new.lone and text not in watched:
                    # What the plan passes on is another number each time. What it does not read may have decided.
                    continue
                entry: JSONObject = {"at": text, "what": new.text}
                found.append({**entry, "mild": True} if new.mild else entry)
        return found


def settled(explained: Iterable[Explained], depth: int, read: Read) -> tuple[dict[Path, JSON], Doubts, str | None]:
    """Evaluate explained literals, and return (values by their keys below `depth`, doubts, why one has no value)."""
    values: dict[Path, JSON] = {}
    doubts = Doubts()
    problem: str | None = None
    for one in explained:
        found = settle(one, read)
        if isinstance(found.value, Missing):
            tried = "; ".join(each.shown for each in one.by[:3])
            problem = problem or f"{'.'.join(one.at)} has no value for these data: nothing is at {tried}"
            continue
        values[one.at[depth:]] = found.value
        if found.assumed is not None:
            doubts.assumed.append(found.assumed)
    return values, doubts, problem


def put_in(document: JSON, values: Mapping[Path, JSON]) -> JSON:
    """Return a document with other values at some paths. A path that does not exist changes nothing."""
    for keys, value in values.items():
        document = _with(document, keys, value)
    return document


def _with(document: JSON, keys: Path, value: JSON) -> JSON:
    if not keys:
        return value
    if isinstance(document, dict) and keys[0] in document:
        return {**document, keys[0]: _with(document[keys[0]], keys[1:], value)}
    if isinstance(document, list) and keys[0].isdecimal() and int(keys[0]) < len(document):
        number = int(keys[0])
        return [*document[:number], _with(document[number], keys[1:], value), *document[number + 1 :]]
    return document
