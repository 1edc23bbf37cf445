"""Record the kinds of values that a published plan has read so far, and report what is new about a
value.

No number of runs can prove that a task treats all kinds of values alike: it might transfer only
positive amounts, or stop at an empty list. A plan therefore keeps a profile of each value that it
reads, and a replay reports whatever no run has seen before.

A profile is JSON, by type: `{"number": {"signs": [-1, 0, 1], "range": [least, most]}, "text":
{"empty": [false], "plain": [step...]}, "list": {"empty": [...]}, "object": {"empty": [...],
"always": [member...], "sometimes": [member...]}, "boolean": {"values": [...]}, "null": {}}`. It
contains only the types that were seen. `plain` names the conversions that have not changed any text
so far: for example, `ann` might be a plain copy of the text, or the text in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.json_parts import json_type
from ideabridge.tools.keywords import show
from ideabridge.tools.typed import read_whole

MEMBERS: Final = 200
"""The maximum number of an object's members that a profile lists. A profile does not record whether
further members are present.
"""

_LONGEST_TEXT: Final = 1_000
"""Maximum length, in characters, of a string that is compared with its conversions."""

_MOST_NAMED: Final = 5
"""The maximum number of members named in one novelty."""

_KINDS: Final[Mapping[str, str]] = {
    "number": "a number",
    "text": "a string",
    "list": "a list",
    "object": "an object",
    "boolean": "true or false",
    "null": "nothing",
}

_KIND_OF: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "object",
    "null": "null",
}
"""The kinds in a profile, keyed by JSON type."""

_SIGNS: Final = {-1: "a negative number", 0: "zero", 1: "a positive number"}

_STEPS: Final[Mapping[str, tuple[Callable[[str], str], str]]] = {
    "lower": (str.lower, "capital letters"),
    "upper": (str.upper, "small letters"),
    "title": (str.title, "letters in another case"),
    "strip": (str.strip, "spaces around it"),
    "word": (lambda text: text.split()[0] if text.strip() else text, "several words"),
}
"""The conversions that might have been applied to a copied string, each with a description of what
it changes.
"""


@dataclass(frozen=True, slots=True)
class Novelty:
    """A property of a value that no earlier run has seen.

    Attributes:
        text: what is new, in words.
        mild: whether the novelty is only reported, and not a reason to ask. An example is a number
            outside the range of the numbers seen so far.
        lone: whether the runs saw only one number, so that there is no range yet.
        notation: whether the novelty matters only for a literal copied from the value, because the
            copy might have been converted even though the conversion has changed nothing so far.
    """

    text: str
    mild: bool = False
    lone: bool = False
    notation: bool = False


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a profile records about the values of one type."""

    values: list[JSON] = field(default_factory=list[JSON])
    signs: list[JSON] = field(default_factory=list[JSON])
    range: tuple[float, ...] = ()
    empty: list[JSON] = field(default_factory=list[JSON])
    plain: tuple[str, ...] | None = None
    always: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()


def grow(profile: JSONObject | None, value: JSON | Missing) -> JSONObject:
    """Return a profile that includes one more value. A missing value counts as null."""
    before = profile or {}
    inner = _inner(value)
    kind = _KIND_OF[json_type(inner)]
    facts = read_whole(_Facts, before.get(kind))
    if facts is None:
        # Begin with everything that is true of the first value, because only that can be true of
        # all values.
        present = _present(object_or_empty(inner))
        facts = _Facts(plain=tuple(_STEPS), always=tuple(present))

    return {**before, kind: _grown(facts, inner)}


def unseen(profile: JSONObject, value: JSON | Missing) -> list[Novelty]:
    """Return what is new about a value compared to the profile. If the profile is empty, nothing is
    new.
    """
    if not profile:
        return []

    inner = _inner(value)
    kind = _KIND_OF[json_type(inner)]
    facts = read_whole(_Facts, profile.get(kind))
    if facts is None:
        kinds = " and ".join(_KINDS.get(name, name) for name in profile)
        return [Novelty(f"{_KINDS[kind]}, but earlier runs had {kinds}")]
    if inner is None:
        return []
    if isinstance(inner, bool):
        return _new_boolean(facts, inner)
    if isinstance(inner, int | float):
        return _new_number(facts, inner)

    is_empty = not inner
    if is_empty not in facts.empty:
        emptiness = "an empty" if is_empty else "a non-empty"
        return [Novelty(f"{emptiness} {kind}, which no earlier run had")]
    if isinstance(inner, str):
        return _new_notation(facts, inner)
    if isinstance(inner, dict):
        return _new_members(facts, inner)
    return []


def _inner(value: JSON | Missing) -> JSON:
    """Return the value or, if it is a string that contains JSON, the parsed JSON. A missing value
    becomes null.
    """
    if isinstance(value, Missing):
        return None
    if not isinstance(value, str):
        return value
    contained = parsed_text(value)
    return value if isinstance(contained, Missing) else contained


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _plain(text: str) -> list[str] | None:
    """Return the conversions that leave a string unchanged, or None if it is too long to
    compare.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    return [step for step, (convert, _) in _STEPS.items() if convert(text) == text]


def _present(members: JSONObject) -> list[str]:
    """Return the names of the tracked members. A null member counts as absent."""
    return [name for name, member in members.items() if member is not None][:MEMBERS]


def _grown(facts: _Facts, inner: JSON) -> JSONObject:
    """Return a profile's record of the values of one type, extended by one more value."""
    if inner is None:
        return {}
    if isinstance(inner, bool):
        return {"values": _with(facts.values, inner)}
    if isinstance(inner, int | float):
        bounds = [*facts.range, inner]
        signs = _with(facts.signs, _sign(inner))
        return {"signs": signs, "range": [min(bounds), max(bounds)]}

    grown: JSONObject = {"empty": _with(facts.empty, not inner)}
    if isinstance(inner, str):
        plain = _plain(inner)
        if plain is not None and facts.plain is not None:
            grown["plain"] = [step for step in facts.plain if step in plain]

    if isinstance(inner, dict):
        now = _present(inner)
        always = [name for name in facts.always if name in now]
        irregular = [name for name in [*facts.always, *now] if name not in always]
        sometimes = dict.fromkeys([*facts.sometimes, *irregular])
        grown["always"] = list[JSON](always)
        grown["sometimes"] = list[JSON](sometimes)[:MEMBERS]

    return grown


def _with(values: list[JSON], value: JSON) -> list[JSON]:
    return values if value in values else [*values, value]


def _new_boolean(facts: _Facts, value: bool) -> list[Novelty]:
    if value in facts.values:
        return []
    return [Novelty(f"{show(value)}, but earlier runs had {show(not value)}")]


def _new_number(facts: _Facts, number: float) -> list[Novelty]:
    sign = _sign(number)
    if sign not in facts.signs:
        return [Novelty(f"{_SIGNS[sign]}, {show(number)}, which no earlier run had")]
    match facts.range:
        case (least, most) if not least <= number <= most:
            beyond = f"{show(number)}, but earlier runs had {show(least)} to {show(most)}"
            return [Novelty(beyond, mild=True, lone=least == most)]
        case _:
            return []


def _new_notation(facts: _Facts, text: str) -> list[Novelty]:
    plain = _plain(text)
    if plain is None:
        return []

    new = [step for step in facts.plain or () if step in _STEPS and step not in plain]
    if len(new) > 1 and "title" in new:
        new.remove("title")

    if not new:
        return []

    notations = " and ".join(_STEPS[step][1] for step in new)
    text_of_novelty = f"a string with {notations}, which no earlier run had"
    return [Novelty(text_of_novelty, mild=True, notation=True)]


def _new_members(facts: _Facts, members: JSONObject) -> list[Novelty]:
    now = _present(members)
    novelties: list[Novelty] = []
    absent = [name for name in facts.always if name not in now]
    if absent:
        novelties.append(
            Novelty(f"an object without {_named(absent)}, which every earlier run had")
        )

    new = [name for name in now if name not in facts.always and name not in facts.sometimes]
    if new and len(now) < MEMBERS:
        novelties.append(Novelty(f"an object with {_named(new)}, which no earlier run had"))

    return novelties


def _named(members: list[str]) -> str:
    return ", ".join(map(show, members[:_MOST_NAMED]))
