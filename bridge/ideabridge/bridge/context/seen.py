"""Seen: records which kinds of values a published plan has read so far, and finds what is new about
a value.

No number of runs can prove that a task treats all kinds of values alike: it may transfer only
positive amounts, or stop at an empty list. A plan therefore keeps a profile of each value that it
reads, and a replay names whatever no run has seen before.

A profile is JSON, by type: `{"number": {"signs": [-1, 0, 1], "range": [least, most]}, "text":
{"empty": [false], "plain": [step...]}, "list": {"empty": [...]}, "object": {"empty": [...],
"always": [member...], "sometimes": [member...]}, "boolean": {"values": [...]}, "null": {}}`. It
contains only the types that were seen. `plain` names the conversions that have changed no text so
far: a copy of `ann` may just as well be the text in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty
from ideabridge.tools.keywords import show

MEMBERS: Final = 200
"""The maximum number of members of an object that a profile lists. Whether other members are
present is not tracked."""

_LONGEST: Final = 1_000
"""Maximum number of characters of a string that is compared with its conversions."""

_NAMED: Final = 5
"""The maximum number of members that a novelty names."""

_KINDS: Final[Mapping[str, str]] = {
    "number": "a number",
    "text": "a text",
    "list": "a list",
    "object": "an object",
    "boolean": "true or false",
    "null": "nothing",
}

_SIGNS: Final = {-1: "a negative number", 0: "zero", 1: "a positive number"}

_STEPS: Final[Mapping[str, tuple[Callable[[str], str], str]]] = {
    "lower": (str.lower, "capital letters"),
    "upper": (str.upper, "small letters"),
    "title": (str.title, "letters in another case"),
    "strip": (str.strip, "spaces around it"),
    "word": (lambda text: text.split()[0] if text.strip() else text, "several words"),
}
"""The conversions that may have been applied to a copied string, each with a description of what it
changes.
"""


@dataclass(frozen=True, slots=True)
class Novelty:
    """Something that no run has seen.

    Attributes:
        text: what is new, in words.
        mild: whether the novelty is only reported and is no reason to ask, as for a number outside
            the range of the numbers seen.
        lone: whether the runs had only one number, which does not make a range.
        notation: whether the novelty matters only for a literal that was copied from the value,
            because a conversion of the copy may have changed nothing so far.
    """

    text: str
    mild: bool = False
    lone: bool = False
    notation: bool = False


def grow(profile: JSONObject | None, value: JSON | Missing) -> JSONObject:
    """Return a profile that includes one more value. A missing value counts as null."""
    before = profile or {}
    inner = _inner(value)
    kind = _kind(inner)
    facts = before.get(kind)
    if isinstance(facts, dict):
        grown = _grown(facts, inner)
    else:
        grown = _first(inner)
    return {**before, kind: grown}


def unseen(profile: JSONObject, value: JSON | Missing) -> list[Novelty]:
    """Return what is new about a value: nothing if runs have seen such values, or if the profile is
    empty.
    """
    if not profile:
        return []

    inner = _inner(value)
    kind = _kind(inner)
    facts = profile.get(kind)
    if not isinstance(facts, dict):
        kinds = " and ".join(_KINDS.get(name, name) for name in profile)
        return [Novelty(f"{_KINDS[kind]}, but earlier runs had {kinds}")]
    if inner is None:
        return []
    if isinstance(inner, bool):
        return _new_boolean(facts, inner)
    if isinstance(inner, int | float):
        return _new_number(facts, inner)

    is_empty = not inner
    if is_empty not in list_or_empty(facts.get("empty")):
        emptiness = "an empty" if is_empty else "a non-empty"
        return [Novelty(f"{emptiness} {kind}, which no earlier run had")]
    if isinstance(inner, str):
        return _new_notation(facts, inner)
    if isinstance(inner, dict):
        return _new_members(facts, inner)
    return []


def _inner(value: JSON | Missing) -> JSON:
    """Return the value, or the value that a string contains as JSON, or null if the value is
    missing.
    """
    if isinstance(value, Missing):
        return None
    if not isinstance(value, str):
        return value
    contained = parsed_text(value)
    return value if isinstance(contained, Missing) else contained


def _kind(inner: JSON) -> str:
    if inner is None:
        return "null"
    if isinstance(inner, bool):
        return "boolean"
    if isinstance(inner, int | float):
        return "number"
    if isinstance(inner, str):
        return "text"
    if isinstance(inner, list):
        return "list"
    return "object"


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _plain(text: str) -> list[str] | None:
    """Return the conversions that do not change a string, or None if it is too long to compare."""
    if len(text) > _LONGEST:
        return None
    return [step for step, (convert, _) in _STEPS.items() if convert(text) == text]


def _present(members: JSONObject) -> list[str]:
    """Return the names of the members that are tracked. A null member counts as absent."""
    return [name for name, member in members.items() if member is not None][:MEMBERS]


def _first(inner: JSON) -> JSONObject:
    """Return what a profile records about the values of one type after the first value."""
    if isinstance(inner, str):
        facts = _grown({}, inner)
        plain = _plain(inner)
        if plain is not None:
            facts["plain"] = list[JSON](plain)
        return facts

    if isinstance(inner, dict):
        return _grown({"always": list[JSON](_present(inner))}, inner)
    return _grown({}, inner)


def _grown(facts: JSONObject, inner: JSON) -> JSONObject:
    """Return what a profile records about the values of one type, extended by one more value."""
    if inner is None:
        return {}
    if isinstance(inner, bool):
        return {"values": _with(facts.get("values"), inner)}
    if isinstance(inner, int | float):
        bounds = [
            bound for bound in list_or_empty(facts.get("range")) if isinstance(bound, int | float)
        ]
        bounds.append(inner)
        signs = _with(facts.get("signs"), _sign(inner))
        return {"signs": signs, "range": [min(bounds), max(bounds)]}

    grown: JSONObject = {"empty": _with(facts.get("empty"), not inner)}
    if isinstance(inner, str):
        plain = _plain(inner)
        if plain is not None and "plain" in facts:
            grown["plain"] = [step for step in list_or_empty(facts["plain"]) if step in plain]

    if isinstance(inner, dict):
        now = _present(inner)
        before = _texts(facts.get("always"))
        always = [name for name in before if name in now]
        irregular = [name for name in [*before, *now] if name not in always]
        sometimes = dict.fromkeys([*_texts(facts.get("sometimes")), *irregular])
        grown["always"] = list[JSON](always)
        grown["sometimes"] = list[JSON](sometimes)[:MEMBERS]

    return grown


def _with(values: JSON, value: JSON) -> list[JSON]:
    members = list_or_empty(values)
    return members if value in members else [*members, value]


def _texts(value: JSON) -> list[str]:
    return [text for text in list_or_empty(value) if isinstance(text, str)]


def _new_boolean(facts: JSONObject, value: bool) -> list[Novelty]:
    if value in list_or_empty(facts.get("values")):
        return []
    return [Novelty(f"{show(value)}, but earlier runs had {show(not value)}")]


def _new_number(facts: JSONObject, number: float) -> list[Novelty]:
    sign = _sign(number)
    if sign not in list_or_empty(facts.get("signs")):
        return [Novelty(f"{_SIGNS[sign]}, {show(number)}, which no earlier run had")]
    match facts.get("range"):
        case [int() | float() as least, int() | float() as most] if not least <= number <= most:
            beyond = f"{show(number)}, but earlier runs had {show(least)} to {show(most)}"
            return [Novelty(beyond, mild=True, lone=least == most)]
        case _:
            return []


def _new_notation(facts: JSONObject, text: str) -> list[Novelty]:
    plain = _plain(text)
    if plain is None:
        return []

    plain_before = list_or_empty(facts.get("plain"))
    new = [step for step in _STEPS if step in plain_before and step not in plain]
    if len(new) > 1 and "title" in new:
        new.remove("title")

    if not new:
        return []

    notations = " and ".join(_STEPS[step][1] for step in new)
    return [Novelty(f"a text with {notations}, which no earlier run had", mild=True, notation=True)]


def _new_members(facts: JSONObject, members: JSONObject) -> list[Novelty]:
    now = _present(members)
    always = _texts(facts.get("always"))
    sometimes = _texts(facts.get("sometimes"))
    novelties: list[Novelty] = []
    absent = [name for name in always if name not in now]
    if absent:
        novelties.append(
            Novelty(f"an object without {_named(absent)}, which every earlier run had")
        )

    new = [name for name in now if name not in always and name not in sometimes]
    if new and len(now) < MEMBERS:
        novelties.append(Novelty(f"an object with {_named(new)}, which no earlier run had"))

    return novelties


def _named(members: list[str]) -> str:
    return ", ".join(map(show, members[:_NAMED]))
