"""Find the recorded defaults of a published plan that might not fit a call, and mark them as
assumptions.

A default was recorded together with the other values of its call, so the default might not fit if
one of these values is replaced. A default that is a string, list or object is an assumption if the
caller passes another value of the call. Any default is an assumption if the caller passes a value
that was a member of the same object in an earlier result, such as the other coordinate of a place.
A default that consists of several words is always an assumption, because a mind wrote it for the
recorded values. A default is not an assumption if two runs had the same value, or if the author of
the plan wrote the default for any input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.explanations import PathTo, StoredLiteral
from ideabridge.bridge.context.references import (
    Path,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.plan import with_defaults
from ideabridge.bridge.store.published import PublishedPlan
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.json_parts import parts_of
from ideabridge.tools.typed import read_as

OWN_WORDS: Final = "its default is recorded text"
"""Why a default of several words is an assumption if the parameter is omitted."""

_LONG_TEXT: Final = 40
"""A string without spaces also counts as words if it has more characters than this."""


@dataclass(frozen=True, slots=True)
class _Literal:
    """An explained literal in a plan, and the parameter that replaces it in calls to the published
    idea.

    Attributes:
        form: see `Explained.to_json`.
        stored: the members of the form.
        passed: the parameter that the caller passes instead of the literal, or None.
        is_whole: True if the plan contains a reference to this parameter instead of the literal, so
            that the literal needs no explanation.
    """

    form: JSONObject
    stored: StoredLiteral
    passed: str | None
    is_whole: bool

    @property
    def at(self) -> Path:
        """The place of the literal in the plan."""
        return self.stored.at

    @property
    def holders(self) -> list[str]:
        """The objects in earlier results that the literal might be a member of; see
        `Explanation.holder`.
        """
        holders = [PathTo(reference).holder for reference in self.stored.references]
        return [holder for holder in holders if holder is not None]


def with_passed(plan: JSONObject, arguments: JSONObject, schema: JSONObject | None) -> JSONObject:
    """Adapt a published plan to a call: remove the explanations of the parameters that the caller
    passes, and add a reason to each recorded default that might not belong with the caller's
    arguments.

    Args:
        plan: the plan. Literals that became parameters are references in it, and followed values
            are still literals.
        arguments: the arguments that the caller passes.
        schema: the schema of the arguments.
    """
    published = read_as(PublishedPlan, plan)
    literals = _literals_of(plan, published.explained, arguments)
    reasons: dict[Path, JSONObject] = {}
    if published.copied == 1:
        reasons = _reasons(published.calls, arguments, schema, literals)

    # Drop explanations that are no longer needed or have been given a reason. Compare them by
    # identity, because two literals can have equal explanations.
    dropped = {
        id(literal.form) for literal in literals if literal.is_whole or literal.at in reasons
    }
    if not reasons and not dropped:
        return plan

    remaining = [form for form in published.explained if id(form) not in dropped]
    return {**plan, "explained": [*remaining, *reasons.values()]}


def _reasons(
    calls: Iterable[JSON],
    arguments: JSONObject,
    schema: JSONObject | None,
    literals: Iterable[_Literal],
) -> dict[Path, JSONObject]:
    """Return the recorded defaults that might not belong with the arguments, as explained literals
    keyed by place.
    """
    filled = with_defaults(arguments, schema)
    defaults = {name: value for name, value in filled.items() if name not in arguments}
    by_place = {literal.at: literal for literal in literals}
    companions = _Companions(literals)
    reasons: dict[Path, JSONObject] = {}
    for place, call in enumerate(calls):
        at_call = ("calls", str(place))
        parameters = dict(_parameters_in(call, at_call))
        passed = [name for name in parameters.values() if name in arguments]
        passed += companions.passed_for_followed.get(at_call, ())
        for at, name in parameters.items():
            if name not in defaults:
                continue

            literal = by_place.get(at)
            if literal is None:
                form: JSONObject = {"at": list[JSON](at), "by": [format_reference(("input", name))]}
                companion = None
            else:
                form = literal.form
                companion = companions.of(literal)

            if form.get("why") is not None:
                # The plan already gives a reason.
                continue

            if companion is not None:
                reason = _beside(companion)
            else:
                reason = _why_assumed(defaults[name], passed)
            if reason is not None:
                reasons[at] = {**form, "why": reason}

    return reasons


class _Companions:
    """The parameters that the caller passes in place of values that were recorded together with a
    default.

    Attributes:
        passed_for_followed: for each call, the parameters that the caller passes for its followed
            values.
    """

    def __init__(self, literals: Iterable[_Literal]) -> None:
        self.passed_for_followed: dict[Path, list[str]] = {}
        # Maps each object in an earlier result to the parameter that supplies another member of
        # this object.
        self._by_holder: dict[str, str] = {}
        for literal in literals:
            if literal.passed is None:
                continue
            for holder in literal.holders:
                self._by_holder[holder] = literal.passed
            if not literal.is_whole:
                at_call = literal.at[:2]
                self.passed_for_followed.setdefault(at_call, []).append(literal.passed)

    def of(self, literal: _Literal) -> str | None:
        """Return the parameter passed for another member of the same object, or None if there is
        none.
        """
        for holder in literal.holders:
            if holder in self._by_holder:
                return self._by_holder[holder]
        return None


def _why_assumed(default: JSON, passed: list[str]) -> str | None:
    """Return why a default might not belong with the values passed to the same call, or None if the
    default is likely to be the same for every input.
    """
    if passed and isinstance(default, str | list | dict):
        return _beside(passed[0])
    if not isinstance(default, str):
        return None

    is_words = len(default) > _LONG_TEXT or len(default.split()) > 1
    return OWN_WORDS if is_words else None


def _beside(passed: str) -> str:
    return f"it is the recorded default, although {passed} was passed"


def _literals_of(
    plan: JSONObject, explained: Iterable[JSON], arguments: JSONObject
) -> list[_Literal]:
    names = {format_reference(("input", name)): name for name in arguments}
    literals: list[_Literal] = []
    for form in explained:
        stored = read_as(StoredLiteral, form)
        if not stored.at:
            continue

        written = read(plan, stored.at)
        passed_whole = names.get(written) if isinstance(written, str) else None
        literals.append(
            _Literal(
                form=object_or_empty(form),
                stored=stored,
                passed=passed_whole or _passed_followed(stored, arguments),
                is_whole=passed_whole is not None,
            )
        )

    return literals


def _passed_followed(literal: StoredLiteral, arguments: JSONObject) -> str | None:
    """Return the parameter that supplies a followed value, or None if the caller does not pass
    it.
    """
    if literal.given is None:
        return None

    operand = next(parse_reference(literal.given).operands())
    if isinstance(read(arguments, operand.path), Missing):
        return None
    return operand.path[-1]


def _parameters_in(value: JSON, at: Path) -> Iterator[tuple[Path, str]]:
    """Yield `(place, name)` for each parameter that supplies a whole value of a call."""
    for key, part in parts_of(value):
        yield from _parameters_in(part, (*at, str(key)))

    if isinstance(value, str) and is_reference(value):
        first, *others = parse_reference(value).operands()
        if not others and first.kind == "input" and len(first.path) == 1:
            yield at, first.path[0]
