"""Seen: which kinds of values a published plan has read so far, and what is new about a value.

No number of runs shows that a task does not treat some kind of value in another way: it may transfer only positive
amounts, or stop where a list is empty. So a plan keeps a profile of each value that it reads, and a replay names what
no run has seen before.

A profile is JSON, by type: `{"number": {"signs": [-1, 0, 1], "range": [least, most]}, "text": {"empty": [false],
"plain": [step...]}, "list": {"empty": [...]}, "object": {"empty": [...], "always": [member...], "sometimes":
[member...]}, "boolean": {"values": [...]}, "null": {}}`. It has only the types that were seen. `plain` names the
conversions that changed no text so far: a copy of `ann` may as well be its text in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import show

MEMBERS: Final = 200
"""The most members of an object that a profile lists. The presence of others is not watched."""

_LONGEST: Final = 1_000
"""The longest text that is compared with its conversions."""

_SIGNS: Final = {-1: "a negative number", 0: "zero", 1: "a positive number"}


@dataclass(frozen=True, slots=True)
class Novelty:
    """Something that no run has seen.

    Attributes:
        text: what is new, for people.
        mild: it is named, but no reason to ask: a number beyond the range of the numbers seen.
        lone: the runs had one number alone, which is no range.
        notation: it matters only to a copy, which may have been converted.
    """

    text: str
    mild: bool = False
    lone: bool = False
    notation: bool = False


def grow(profile: JSONObject | None, value: JSON | Missing) -> JSONObject:
    """Return a profile that includes one more value; a missing value counts as null."""
    kind, facts = _look_at(value)
    before = (profile or {}).get(kind)
    known = before if isinstance(before, dict) else None
    merged: JSONObject = dict(facts) if known is None else {key: _merged(key, known, facts) for key in facts}
    if kind == "text" and "plain" not in (known or facts):
        merged.pop("plain", None)
    if kind == "object":
        always, sometimes = _members(known, facts)
        merged |= {"always": list[JSON](always), "sometimes": list[JSON](sometimes)}
    return {**(profile or {}), kind: merged}


def unseen(profile: JSONObject, value: JSON | Missing) -> list[Novelty]:
    """Return what is new about a value; empty if runs have seen such values, or if the profile is empty."""
    if not profile:
        return []
    kind, facts = _look_at(value)
    known = profile.get(kind)
    if not isinstance(known, dict):
        kinds = " and ".join(_KINDS.get(one, one) for one in profile)
        return [Novelty(f"{_KINDS[kind]}, where runs had {kinds}")]
    if kind == "number":
        return _new_number(known, facts)
    if kind == "boolean" and facts["values"] != [] and not _within(facts, known, "values"):
        return [Novelty(f"{show(_first(facts['values']))}, where runs had {show(_first(known.get('values')))}")]
    if not _within(facts, known, "empty"):
        return [Novelty(f"{'an empty' if facts['empty'] == [True] else 'a non-empty'} {kind}, which no run had")]
    if kind == "text":
        return _new_notation(known, facts)
    return _new_members(known, facts) if kind == "object" else []


_KINDS: Final = {
    "number": "a number",
    "text": "a text",
    "list": "a list",
    "object": "an object",
    "boolean": "true or false",
    "null": "nothing",
}


_STEPS: Final[Mapping[str, tuple[Callable[[str], str], str]]] = {
    "lower": (str.lower, "capital letters"),
    "upper": (str.upper, "small letters"),
    "title": (str.title, "letters in another case"),
    "strip": (str.strip, "spaces around it"),
    "word": (lambda text: text.split()[0] if text.strip() else text, "several words"),
}
"""What a copied text may have gone through, and what a text has that it changes."""


def _look_at(value: JSON | Missing) -> tuple[str, JSONObject]:
    inner = parsed_text(value) if isinstance(value, str) else value
    if isinstance(value, str) and isinstance(inner, Missing):
        facts: JSONObject = {"empty": [not value]}
        if len(value) <= _LONGEST:
            facts["plain"] = [step for step, (change, _) in _STEPS.items() if change(value) == value]
        return "text", facts
    if isinstance(inner, bool):
        return "boolean", {"values": [inner]}
    if isinstance(inner, int | float):
        return "number", {"signs": [(inner > 0) - (inner < 0)], "range": [inner, inner]}
    if isinstance(inner, list):
        return "list", {"empty": [not inner]}
    if isinstance(inner, dict):
        # A member that is null is as good as absent.
        names = [key for key, item in inner.items() if item is not None][:MEMBERS]
        return "object", {"empty": [not inner], "always": list[JSON](names), "sometimes": []}
    return "null", {}


def _merged(key: str, known: JSONObject, facts: JSONObject) -> JSON:
    ours, theirs = _list(known.get(key)), _list(facts[key])
    if key == "range":
        numbers = [one for one in (*ours, *theirs) if isinstance(one, int | float)]
        return [min(numbers), max(numbers)]
    if key == "plain":
        return [one for one in ours if one in theirs]
    return [*ours, *(one for one in theirs if one not in ours)]


def _members(known: JSONObject | None, facts: JSONObject) -> tuple[list[str], list[str]]:
    now = [str(one) for one in _list(facts["always"])]
    if known is None:
        return now, []
    before, optional = ([str(one) for one in _list(known.get(key))] for key in ("always", "sometimes"))
    always = [one for one in before if one in now]
    changed = [one for one in (*before, *now) if one not in always]
    return always, list(dict.fromkeys([*optional, *changed]))[:MEMBERS]


def _new_number(known: JSONObject, facts: JSONObject) -> list[Novelty]:
    [sign], [number, _] = _list(facts["signs"]), _list(facts["range"])
    if sign not in _list(known.get("signs")):
        return [Novelty(f"{_SIGNS[int(str(sign))]}, {show(number)}, which no run had")]
    match number, known.get("range"):
        case int() | float(), [int() | float() as least, int() | float() as most] if not least <= number <= most:
            beyond = f"{show(number)}, where runs had {show(least)} to {show(most)}"
            return [Novelty(beyond, mild=True, lone=least == most)]
        case _:
            return []


def _new_notation(known: JSONObject, facts: JSONObject) -> list[Novelty]:
    if "plain" not in facts:
        return []
    new = [step for step in _list(known.get("plain")) if step not in _list(facts["plain"])]
    if len(new) > 1 and "title" in new:
        new.remove("title")
    what = " and ".join(_STEPS[step][1] for step in _STEPS if step in new)
    return [Novelty(f"a text with {what}, which no run had", mild=True, notation=True)] if what else []


def _new_members(known: JSONObject, facts: JSONObject) -> list[Novelty]:
    now = [str(one) for one in _list(facts["always"])]
    always, optional = ([str(one) for one in _list(known.get(key))] for key in ("always", "sometimes"))
    gone = [one for one in always if one not in now]
    new = [one for one in now if one not in always and one not in optional] if len(now) < MEMBERS else []
    found = [Novelty(f"an object without {', '.join(map(show, gone[:5]))}, which every run had")] if gone else []
    return [*found, *([Novelty(f"an object with {', '.join(map(show, new[:5]))}, which no run had")] if new else [])]


def _within(facts: JSONObject, known: JSONObject, key: str) -> bool:
    return all(one in _list(known.get(key)) for one in _list(facts.get(key)))


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _first(value: JSON) -> JSON:
    return next(iter(_list(value)), None)
