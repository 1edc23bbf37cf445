"""Recorded defaults: values of a recorded run that a published plan uses for absent parameters.

A default was recorded together with the other values of its call. So a text, list or object is
assumed where another value of the call is passed, and any value where one is passed that was a
member of the same object of an earlier result, as the other coordinate of a place is. Words are
always assumed: a mind wrote them for the values of that time. Nothing is assumed if two runs had
the same value, or if the author of the plan wrote it for any input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.explanations import PathTo
from ideabridge.bridge.context.references import (
    Path,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.plan import with_defaults
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty

OWN_WORDS: Final = "words that were recorded are its default"
"""Why a parameter that the caller does not pass is assumed: its default is a text of several
words."""

_LONG_TEXT: Final = 40
"""The characters above which a text without a space is taken for words, too."""


@dataclass(frozen=True, slots=True)
class _Literal:
    """An explained literal of a plan, for one call of the published idea.

    Attributes:
        form: see `Explained.to_json`.
        at: its place.
        passed: the parameter that is passed in its place; None if none is.
        is_whole: that parameter has the place of the literal in the plan. None of its
            explanations is needed.
    """

    form: JSONObject
    at: Path
    passed: str | None
    is_whole: bool

    @property
    def holders(self) -> list[str]:
        """The objects in earlier results that it may be a member of; see `Explanation.holder`."""
        by = list_or_empty(self.form.get("by"))
        references = [raw for raw in by if isinstance(raw, str) and is_reference(raw)]
        holders = [PathTo(reference).holder for reference in references]
        return [holder for holder in holders if holder is not None]


def with_passed(plan: JSONObject, arguments: JSONObject, schema: JSONObject | None) -> JSONObject:
    """Return a published plan for a call with these arguments: without explanations of parameters
    that are passed, and with a reason why a recorded default may not belong to the other arguments.

    Args:
        plan: the plan. It has the parameter's reference where such a literal was; a followed value
            is still a literal.
        arguments: what the caller passes.
        schema: that of the arguments.
    """
    literals = _literals_of(plan, arguments)
    reasons: dict[Path, JSONObject] = {}
    if plan.get("copied") == 1:
        reasons = _reasons(plan, arguments, schema, literals)

    dropped = {
        id(literal.form) for literal in literals if literal.is_whole or literal.at in reasons
    }
    if not reasons and not dropped:
        return plan

    left = [form for form in list_or_empty(plan.get("explained")) if id(form) not in dropped]
    return {**plan, "explained": [*left, *reasons.values()]}


def _reasons(
    plan: JSONObject, arguments: JSONObject, schema: JSONObject | None, literals: Iterable[_Literal]
) -> dict[Path, JSONObject]:
    """The explained literals of the recorded defaults that may not belong to the
    arguments, by place.
    """
    filled = with_defaults(arguments, schema)
    defaults = {name: value for name, value in filled.items() if name not in arguments}
    by_place = {literal.at: literal for literal in literals}
    companions = _Companions(literals)
    reasons: dict[Path, JSONObject] = {}
    for place, call in enumerate(list_or_empty(plan.get("calls"))):
        at_call = ("calls", str(place))
        parameters = dict(_parameters_in(call, at_call))
        passed = [name for name in parameters.values() if name in arguments]
        passed += companions.followed.get(at_call, ())
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
                # The plan itself says why.
                continue

            if companion is not None:
                why = _beside(companion)
            else:
                why = _why_assumed(defaults[name], passed)
            if why is not None:
                reasons[at] = {**form, "why": why}

    return reasons


class _Companions:
    """The parameters that are passed for values recorded together with a default.

    Attributes:
        followed: by call, the parameters that are passed for its values that are followed.
    """

    def __init__(self, literals: Iterable[_Literal]) -> None:
        self.followed: dict[Path, list[str]] = {}
        # By object in an earlier result, the parameter that is passed for one of its members.
        self._by_holder: dict[str, str] = {}
        for literal in literals:
            if literal.passed is None:
                continue
            for holder in literal.holders:
                self._by_holder[holder] = literal.passed
            if not literal.is_whole:
                self.followed.setdefault(literal.at[:2], []).append(literal.passed)

    def of(self, literal: _Literal) -> str | None:
        """The parameter that is passed for another member of the same object; None if there is
        none.
        """
        for holder in literal.holders:
            if holder in self._by_holder:
                return self._by_holder[holder]
        return None


def _why_assumed(default: JSON, passed: list[str]) -> str | None:
    """Why a default may not belong to what is passed to the same call; None if it may be the same
    for every input.
    """
    if passed and isinstance(default, str | list | dict):
        return _beside(passed[0])
    if isinstance(default, str) and (len(default) > _LONG_TEXT or len(default.split()) > 1):
        return OWN_WORDS
    return None


def _beside(passed: str) -> str:
    return f"it is the recorded default, and {passed} was passed"


def _literals_of(plan: JSONObject, arguments: JSONObject) -> list[_Literal]:
    names = {format_reference(("input", name)): name for name in arguments}
    literals: list[_Literal] = []
    for form in list_or_empty(plan.get("explained")):
        keys = object_or_empty(form).get("at")
        if not isinstance(form, dict) or not isinstance(keys, list):
            continue

        at = tuple(str(key) for key in keys)
        written = read(plan, at)
        whole = names.get(written) if isinstance(written, str) else None
        passed = whole or _passed_followed(form, arguments)
        literals.append(_Literal(form, at, passed, whole is not None))

    return literals


def _passed_followed(form: JSONObject, arguments: JSONObject) -> str | None:
    """The parameter that gives a followed value, if it is passed."""
    reference = form.get("given")
    if not isinstance(reference, str):
        return None

    path = next(parse_reference(reference).operands()).path
    if isinstance(read(arguments, path), Missing):
        return None
    return path[-1]


def _parameters_in(value: JSON, at: Path) -> Iterator[tuple[Path, str]]:
    """Yield the place and the name of each parameter that fills a whole value of a call."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _parameters_in(item, (*at, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _parameters_in(item, (*at, str(number)))
    elif isinstance(value, str) and is_reference(value):
        operands = list(parse_reference(value).operands())
        if len(operands) == 1 and operands[0].kind == "input" and len(operands[0].path) == 1:
            yield at, operands[0].path[0]
