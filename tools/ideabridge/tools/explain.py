"""Explain why a value does not satisfy a schema: path, found, expected (DESIGN 6).

Explanations are made from jsonschema-rs's own errors. Python's jsonschema would run remote patterns through `re`,
where a hostile one never ends; jsonschema-rs matches in linear time or within a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import Place, at, resolve, show, show_path
from ideabridge.tools.names import did_you_mean

REFERENCE_PATTERN: Final = "^†"
"""The pattern that marks the alternative "or a reference" in composed schemas (DESIGN 4.2)."""

_A_REFERENCE: Final = "a reference such as †state.x"
_LISTED: Final = 12
_NOTHING: Final = "nothing"
_REQUIRED: Final = " (required)"

_ARTICLES: Final = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "text",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a value does not fit.

    Attributes:
        path: where in the value (`calls.0.path`); "" for the whole.
        found: what stands there, as shortened JSON, or "nothing".
        expected: what was expected there, in words.
        place: the same path as keys and indexes.
        hint: " Did you mean 'x'?" or "".
    """

    path: str
    found: str
    expected: str
    place: Place = ()
    hint: str = ""

    @property
    def message(self) -> str:
        """`path: found X, expected Y`."""
        told = f"found {self.found}, expected {self.expected}{'.' + self.hint if self.hint else ''}"
        return f"{self.path}: {told}" if self.path else told


def _alternatives(values: Iterable[JSON]) -> str:
    shown = list(dict.fromkeys(show(value, 60) for value in values))
    if len(shown) == 1:
        return shown[0]
    rest = f", … ({len(shown)} in all)" if len(shown) > _LISTED else ""
    return f"one of {', '.join(shown[:_LISTED])}{rest}"


def _types(types: Iterable[str]) -> str:
    return " or ".join(_ARTICLES.get(name, name) for name in sorted(types, key=lambda name: name == "null"))


def describe(schema: JSON, root: JSON = None, depth: int = 3) -> str:
    """A few words on what a schema wants: `an integer`, `one of "a", "b"`, `text or null`."""
    if not isinstance(schema, dict):
        return "no value" if schema is False else "any value"
    if schema.get("pattern") == REFERENCE_PATTERN:
        return _A_REFERENCE
    if "const" in schema:
        return show(schema["const"], 60)
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return _alternatives(options)
    types = schema.get("type")
    if isinstance(types, str):
        return _types([types])
    if isinstance(types, list):
        return _types(str(name) for name in types)
    if depth > 0:
        pointer = schema.get("$ref")
        if isinstance(pointer, str):
            return describe(resolve(root, pointer), root, depth - 1)
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches:
                told = dict.fromkeys(describe(branch, root, depth - 1) for branch in branches[:_LISTED])
                return " or ".join(told)
    return "an object" if "properties" in schema else "any value"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else {'property': 'properties'}.get(noun, noun + 's')}"


def _wanted(error: ValidationError, root: JSON) -> str:
    """What an error that concerns the value at its own place expected there."""
    match error.kind:
        case Kind.Type(types=types):
            text = _types(types)
        case Kind.Constant(expected_value=value):
            text = show(cast("JSON", value), 60)
        case Kind.Enum(options=options):
            text = _alternatives(cast("list[JSON]", options))
        case Kind.Minimum(limit=limit):
            text = f"at least {limit}"
        case Kind.ExclusiveMinimum(limit=limit):
            text = f"more than {limit}"
        case Kind.Maximum(limit=limit):
            text = f"at most {limit}"
        case Kind.ExclusiveMaximum(limit=limit):
            text = f"less than {limit}"
        case Kind.MultipleOf(multiple_of=number):
            text = f"a multiple of {number}"
        case Kind.MinLength(limit=limit):
            text = f"at least {_count(limit, 'character')}"
        case Kind.MaxLength(limit=limit):
            text = f"at most {_count(limit, 'character')}, not {_size(error)}"
        case Kind.MinItems(limit=limit):
            text = f"at least {_count(limit, 'item')}"
        case Kind.MaxItems(limit=limit):
            text = f"at most {_count(limit, 'item')}, not {_size(error)}"
        case Kind.AdditionalItems(limit=limit):
            text = f"at most {_count(limit, 'item')}"
        case Kind.MinProperties(limit=limit):
            text = f"at least {_count(limit, 'property')}"
        case Kind.MaxProperties(limit=limit):
            text = f"at most {_count(limit, 'property')}"
        case Kind.Pattern(pattern=pattern):
            text = _A_REFERENCE if pattern == REFERENCE_PATTERN else f"text that matches {show(pattern, 60)}"
        case Kind.Format(format=name):
            text = "a regular expression" if name == "regex" else f"text in the format {name}"
        case Kind.UniqueItems():
            text = "items that all differ"
        case Kind.Contains():
            parent = at(root, error.schema_path[:-1])
            inner = parent.get("contains") if isinstance(parent, dict) else None
            text = f"items among which enough are {describe(inner, root)}"
        case Kind.Not(schema=schema):
            text = f"what does not match {show(cast('JSON', schema))}"
        case Kind.OneOfMultipleValid():
            text = "a value that fits exactly one of the alternatives, not several"
        case Kind.FalseSchema():
            text = "nothing here"
        case Kind.BacktrackLimitExceeded() | Kind.RegexEngineFailure():
            text = "text its pattern can be matched against within bounds"
        case _:
            text = error.message[:120]
    return text


def _instance(error: ValidationError) -> JSON:
    # What went in was JSON, so no Decimal comes out.
    return cast("JSON", error.instance)


def _size(error: ValidationError) -> str:
    value = _instance(error)
    return f"{len(value):,}" if isinstance(value, str | list | dict) else "more"


def _hint(errors: Iterable[ValidationError]) -> str:
    """The text among the values expected that looks like the one found."""
    options: list[str] = []
    value: JSON = None
    for error in errors:
        value = _instance(error)
        if isinstance(error.kind, Kind.Enum):
            options.extend(option for option in error.kind.options if isinstance(option, str))
        elif isinstance(error.kind, Kind.Constant) and isinstance(error.kind.expected_value, str):
            options.append(error.kind.expected_value)
    return did_you_mean(value, dict.fromkeys(options)) if isinstance(value, str) else ""


def _problem(place: Sequence[str | int], found: str, expected: str, hint: str = "") -> Problem:
    return Problem(show_path(tuple(place)), found, expected, tuple(place), hint)


def _is_reference_branch(errors: list[ValidationError], root: JSON) -> bool:
    if len(errors) != 1:
        return False
    schema = at(root, errors[0].schema_path[:-1])
    return isinstance(schema, dict) and schema.get("pattern") == REFERENCE_PATTERN


_OF_KIND: Final = (Kind.Type, Kind.Constant, Kind.Enum, Kind.FalseSchema)


def _rank(errors: list[ValidationError], here: int) -> tuple[int, int]:
    """How far a branch is from what was meant; the lowest is explained."""
    if any(len(error.instance_path) == here and isinstance(error.kind, _OF_KIND) for error in errors):
        return (3, 0)
    if any(len(error.instance_path) == here + 1 and _constants(error) for error in errors):
        return (2, 0)  # another variant: the field that tells variants apart says so
    return (0, len(errors))


def _choose(error: ValidationError, branches: list[list[ValidationError]], root: JSON) -> list[Problem]:
    """Explain a failed anyOf or oneOf by its most relevant branch, or by all where none came near."""
    here = len(error.instance_path)
    flat = [_flatten(branch, here) for branch in branches if branch]
    reference = any(_is_reference_branch(branch, root) for branch in flat)
    others = [branch for branch in flat if not _is_reference_branch(branch, root)]
    tail = f" or {_A_REFERENCE}" if reference else ""
    if not others:
        return [_problem(error.instance_path, show(_instance(error)), _A_REFERENCE if reference else "another value")]
    ranked = [(_rank(branch, here), branch) for branch in others]
    best = min(rank for rank, _ in ranked)
    if best[0] == 3:
        own = [e for b in others for e in b if len(e.instance_path) == here]
        wanted = " or ".join(list(dict.fromkeys(_wanted(e, root) for e in own))[:_LISTED])
        return [_problem(error.instance_path, show(_instance(error)), wanted + tail, _hint(own))]
    if best[0] == 2:
        told = _variants([branch for rank, branch in ranked if rank[0] == 2], here)
        if told is not None:
            return [told]
    tied = [branch for rank, branch in ranked if rank == best]
    problems = explain(tied[0], root)
    if len(tied) > 1 and len(problems) == 1 and problems[0].found == _NOTHING:
        # The property that tells variants apart is missing: name what each variant has there.
        rest = [problem for branch in tied for problem in explain(branch, root)]
        if len({problem.place for problem in rest}) == 1:
            wanted = list(dict.fromkeys(problem.expected.removesuffix(_REQUIRED) for problem in rest))
            told = " or ".join(wanted[:_LISTED]) + (", …" if len(wanted) > _LISTED else "")
            return [_problem(problems[0].place, _NOTHING, told + _REQUIRED)]
    if tail and len(problems) == 1 and problems[0].place == tuple(error.instance_path):
        only = problems[0]
        return [replace(only, expected=only.expected + tail)]
    return problems


def _flatten(errors: list[ValidationError], here: int) -> list[ValidationError]:
    """The errors of a branch, an alternative among them that fails as a whole at the same place taken apart."""
    result: list[ValidationError] = []
    for error in errors:
        if isinstance(error.kind, Kind.AnyOf | Kind.OneOfNotValid) and len(error.instance_path) == here:
            inner = [_flatten(branch, here) for branch in error.kind.context if branch]
            if inner and all(_rank(branch, here)[0] == 3 for branch in inner):
                result.extend(inner_error for branch in inner for inner_error in branch)
                continue
        result.append(error)
    return result


def _constants(error: ValidationError) -> list[ValidationError]:
    """The errors that say the value is another constant: the error itself, or in an alternative to a reference."""
    if isinstance(error.kind, Kind.Constant):
        return [error]
    if isinstance(error.kind, Kind.AnyOf):
        place = error.instance_path
        return [
            e for b in error.kind.context for e in b if isinstance(e.kind, Kind.Constant) and e.instance_path == place
        ]
    return []


def _variants(branches: list[list[ValidationError]], here: int) -> Problem | None:
    """One problem for variants that all differ from the value in the same constant, as `_tool` of calls."""
    found: dict[str | int, list[list[ValidationError]]] = {}
    for branch in branches:
        for error in branch:
            if len(error.instance_path) == here + 1 and _constants(error):
                found.setdefault(error.instance_path[-1], []).append(_constants(error))
    common = [groups for groups in found.values() if len(groups) >= len(branches)]
    if not common:
        return None
    errors = [error for group in common[0] for error in group]
    options = [cast("JSON", e.kind.expected_value) for e in errors if isinstance(e.kind, Kind.Constant)]
    return _problem(errors[0].instance_path, show(_instance(errors[0])), _alternatives(options), _hint(errors))


def _unexpected(error: ValidationError, names: list[str], root: JSON) -> list[Problem]:
    schema = at(root, error.schema_path[:-1])
    properties = schema.get("properties") if isinstance(schema, dict) else None
    known = list(properties) if isinstance(properties, dict) else []
    result: list[Problem] = []
    for number, name in enumerate(names):
        listed = f"; there {'is' if len(known) == 1 else 'are'} {_listing(known)}" if known else ""
        expected = f"no property of this name{listed}"
        whole = _instance(error)
        value = whole.get(name) if isinstance(whole, dict) else None
        hint = did_you_mean(name, known) if number < _LISTED else ""
        result.append(_problem([*error.instance_path, name], show(value), expected, hint))
    return result


def _listing(names: list[str]) -> str:
    return ", ".join(repr(name[:60]) for name in names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def _missing(error: ValidationError, name: str, root: JSON) -> Problem:
    schema = at(root, error.schema_path[:-1])
    properties = schema.get("properties") if isinstance(schema, dict) else None
    wanted: JSONObject = properties if isinstance(properties, dict) else {}
    told = describe(wanted[name], root) if name in wanted else "a value"
    return _problem([*error.instance_path, name], _NOTHING, told + _REQUIRED)


def explain(errors: Iterable[ValidationError], root: JSON) -> list[Problem]:
    """The problems behind jsonschema-rs errors, in their order.

    Args:
        errors: what the validator reported.
        root: the schema, to name the properties it has; None where it is not at hand.
    """
    problems: list[Problem] = []
    for error in errors:
        match error.kind:
            case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
                problems.extend(_choose(error, context, root))
            case Kind.Required(property=name):
                problems.append(_missing(error, name, root))
            case Kind.AdditionalProperties(unexpected=names) | Kind.UnevaluatedProperties(unexpected=names):
                problems.extend(_unexpected(error, names, root))
            case Kind.PropertyNames(error=inner):
                expected = f"a property name that is {_wanted(inner, root)}"
                problems.append(_problem(error.instance_path, show(_instance(inner)), expected))
            case _:
                found = show(_instance(error))
                problems.append(_problem(error.instance_path, found, _wanted(error, root), _hint([error])))
    return list(dict.fromkeys(problems))
