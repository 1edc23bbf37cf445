"""Check an object in a configuration file against its model, and explain problems in plain words.

A value of the wrong type is converted if its meaning is clear, such as "5" for 5.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ideabridge.bridge.server_entry import Remark, found_kind, spelling_of
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.json_parts import part_at, parts_of

Place = tuple[int | str, ...]
"""The path of a value in an object."""

_RESTRICTIONS: Final = (
    "approval",
    "auth",
    "users",
    "limits",
    "deny",
    "allow",
    "read_only",
    "profiles",
    "rules",
)
"""Keys that restrict something in at least one object of the file. In any other object, they were
probably meant to restrict something, too.
"""

_RESTRICTING: Final = re.compile(
    "allow|deny|denie|block|forbid|exclud|permi|readonly|restrict|approv|auth(?!ors?$)|polic|"
    "sandbox|profile|disab|whitelist|blacklist|limit|secur|protect|password"
)
"""Words in a key, ignoring case and separators, that suggest that the key restricts something."""

_LEAST_SIMILARITY: Final = 0.6
"""The minimum similarity, from 0 to 1, that a known key must have to be suggested in place of an
unknown key.
"""

NULL: Final = "expected a value, found null; leave the key out instead"

_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A part of an object that the model does not accept.

    Attributes:
        loc: the path of the value.
        text: what is wrong with it.
        is_unknown_key: whether the fault is that the model does not have the key that `loc` ends
            with.
    """

    loc: Place
    text: str
    is_unknown_key: bool = False

    @property
    def remark(self) -> Remark:
        """The fault as a remark."""
        return Remark(place_text(self.loc), self.text)


@dataclass(frozen=True, slots=True)
class Repaired:
    """An object in which values of the wrong type were converted.

    Attributes:
        members: the object.
        notes: notes on the values that were converted to another type.
        faults: the parts that are still wrong.
    """

    members: JSONObject
    notes: tuple[Remark, ...]
    faults: tuple[Fault, ...]


def place_text(loc: Place) -> str:
    """Return the path of a value in dotted form, such as `limits.calls`."""
    return ".".join(map(str, loc))


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks objects against a model.

    Attributes:
        model: the model.
        hints: the text that follows "unknown key" for some keys of the object itself.
        others: additional keys that the check can suggest in place of an unknown key of the object
            itself.
    """

    model: type[BaseModel]
    hints: Mapping[str, str] = field(default_factory=dict[str, str])
    others: Collection[str] = ()

    def faults(self, raw: JSON) -> tuple[Fault, ...]:
        """Return all parts that the model does not accept."""
        try:
            self.model.model_validate_json(encode(raw), by_alias=True)
        except ValidationError as error:
            return tuple(self._fault(detail) for detail in error.errors(include_url=False))
        return ()

    def repaired(self, raw: JSONObject, may_repair: Callable[[Place, JSON], bool]) -> Repaired:
        """Return the object. Values of the wrong type are converted, and keys whose value is null
        are left out.

        Args:
            raw: the object.
            may_repair: returns whether the value at a path can be converted to another type or, if
                it is null, left out.
        """
        members = copy.deepcopy(raw)
        notes: list[Remark] = []
        try:
            self.model.model_validate_json(encode(members), by_alias=True)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                if detail["loc"] and may_repair(detail["loc"], detail["input"]):
                    note = _repair(members, detail)
                    if note:
                        notes.append(Remark(place_text(detail["loc"]), note))

        return Repaired(members, tuple(notes), self.faults(members))

    def keys(self) -> list[str]:
        """Return the keys of the object."""
        return _keys_of(self.model)

    def unknown_key(self, key: str) -> str:
        """Return a sentence that reports an unknown key and suggests the key that was probably
        meant.
        """
        if key in self.hints:
            return f"unknown key{self.hints[key]}"

        near = nearest_key(key, [*self.keys(), *self.others])
        if near is not None:
            return f"unknown key. Did you mean {near!r}?"
        return f"unknown key. Known: {', '.join(self.keys())}"

    def _fault(self, error: ErrorDetails) -> Fault:
        loc = error["loc"]
        if error["type"] != "extra_forbidden":
            return Fault(loc, _problem(error))
        *path, key = loc
        checker = self if not path else Checker(_model_at(self.model, path))
        return Fault(loc, checker.unknown_key(str(key)), is_unknown_key=True)


def _keys_of(model: type[BaseModel]) -> list[str]:
    """Return a model's keys as a file writes them."""
    named = ((member.alias or name, member) for name, member in model.model_fields.items())
    return [key for key, member in named if not member.exclude]


def nearest_key(key: str, known: Sequence[str]) -> str | None:
    """Return the known key that is most similar to a key, or None if none is similar."""
    by_spelling = {spelling_of(name): name for name in reversed(known)}
    near = difflib.get_close_matches(
        spelling_of(key), list(by_spelling), n=1, cutoff=_LEAST_SIMILARITY
    )
    return by_spelling[near[0]] if near else None


def may_restrict(key: str, known: Sequence[str], restricting: Collection[str]) -> bool:
    """Return whether an unknown key might have been meant to restrict something.

    Args:
        key: the unknown key.
        known: the keys of its object.
        restricting: the known keys that restrict something.
    """
    if _RESTRICTING.search(spelling_of(key)):
        return True
    restrictions = {*restricting, *_RESTRICTIONS}
    # If two keys are equally similar, the restricting one counts.
    ordered = sorted({*known, *restrictions}, key=lambda name: name not in restrictions)
    spelling = difflib.SequenceMatcher(b=spelling_of(key))
    best = 0.0
    nearest = ""
    for name in ordered:
        spelling.set_seq1(spelling_of(name))
        # The quick ratios are upper bounds, which alone rule out most names.
        if spelling.real_quick_ratio() < _LEAST_SIMILARITY:
            continue
        if spelling.quick_ratio() < _LEAST_SIMILARITY:
            continue

        similarity = spelling.ratio()
        if similarity > best:
            best = similarity
            nearest = name

    return best >= _LEAST_SIMILARITY and nearest in restrictions


def null_places(value: JSON, place: Place) -> Iterator[Place]:
    """Yield the place of each null in a value."""
    if value is None:
        yield place

    for key, part in parts_of(value):
        yield from null_places(part, (*place, key))


def without(members: JSONObject, places: Collection[Place]) -> JSONObject:
    """Return a copy of an object without the values at the given places."""
    result = copy.deepcopy(members)
    # Begin with the last items of a list, so that the earlier ones keep their positions.
    for place in sorted(set(places), key=_order, reverse=True):
        _remove(result, place)
    return result


def _order(place: Place) -> list[tuple[int, str]]:
    return [(part, "") if isinstance(part, int) else (-1, part) for part in place]


def _remove(members: JSONObject, place: Place) -> None:
    """Remove the value at a place, if the place has a value."""
    holder = part_at(members, place[:-1])
    key = place[-1] if place else None
    if isinstance(holder, dict) and isinstance(key, str):
        holder.pop(key, None)
    elif isinstance(holder, list) and isinstance(key, int) and key < len(holder):
        del holder[key]


def _repair(members: JSONObject, error: ErrorDetails) -> str | None:
    """Replace the value that caused an error, if it is clear which value of the expected type is
    meant. Return a note on how the value was read, or None if it was left unchanged.
    """
    place = error["loc"]
    value = cast("JSON", error["input"])
    if value is None and error["type"] in _EXPECTED and isinstance(place[-1], str):
        _remove(members, place)
        return "null is read as if the key were absent"

    converted = _converted(error["type"], value)
    if converted is None:
        return None

    _put(members, place, converted)
    return f"{found_kind(value)} is read as {_EXPECTED[error['type']]}"


def _put(members: JSONObject, place: Place, value: JSON) -> None:
    """Replace the value at a place."""
    holder = part_at(members, place[:-1])
    key = place[-1]
    if isinstance(holder, list):
        assert isinstance(key, int)
        holder[key] = value
        return

    assert isinstance(holder, dict)
    assert isinstance(key, str)
    holder[key] = value


_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?")


def _converted(kind: str, value: JSON) -> JSON:
    """Return the only value of the expected type that can have been meant, or None."""
    if kind == "bool_type" and isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind not in ("int_type", "float_type") or not isinstance(value, str):
        return None

    text = value.strip()
    if not text.isascii() or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    if kind == "float_type":
        return number
    return int(number) if number.is_integer() else None


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel]:
    """Return the model of the object at `path` within an object of the model `model`."""
    annotation: Any = model
    for key in path:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            annotation = _annotation_of(annotation, str(key))
        else:
            # This is a list (tuple[MEMBER, ...]) or an object of members keyed by name (dict[str,
            # MEMBER]).
            annotation = [part for part in get_args(annotation) if part is not Ellipsis][-1]

        if type(None) in get_args(annotation):
            annotation = next(part for part in get_args(annotation) if part is not type(None))

    return cast("type[BaseModel]", annotation)


def _annotation_of(model: type[BaseModel], key: str) -> Any:
    """Return the type of a key's value in an object of the model `model`."""
    for name, member in model.model_fields.items():
        if key in (name, member.alias):
            return member.annotation
    raise AssertionError(f"{model.__name__} has no key {key!r}")


def _problem(error: ErrorDetails) -> str:
    """Describe an error about a value without quoting the value, which might be a secret."""
    kind = error["type"]
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {found_kind(error['input'])}"
    if kind == "missing":
        return "missing"
    if kind == "literal_error":
        return (
            f"expected {error.get('ctx', {}).get('expected', '')}, found "
            f"{str(error['input'])[:40]!r}"
        )

    if kind == "string_pattern_mismatch":
        return "text must not contain a NUL character"
    return re.sub(r"^(Value error, |(Input|String) (?=should))", "", error["msg"])
