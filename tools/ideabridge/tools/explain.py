"""Explain why a value does not satisfy a schema: where, what was found, what was expected.

jsonschema-rs decides whether a value fits. Of one that does not, jsonschema names the reasons; this module puts them
into words. A pattern from outside never reaches Python's `re`, which may never end on it: jsonschema-rs matches it, in
linear time or within a bound. Nothing is fetched. What jsonschema cannot explain safely or in full (a reference out of
the schema, recursion deeper than Python's stack) is told in the words of jsonschema-rs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import jsonschema_rs

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import REFERRING, Place, resolve, show, show_path
from ideabridge.tools.names import did_you_mean

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

REFERENCE_PATTERN: Final = "^†"
"""The pattern that marks the alternative "or a reference" in composed schemas."""

PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=2_000_000)
"""The bounds within which patterns are compiled and matched."""

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


_LIMITS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
}
_COUNTS: Final = {
    "minLength": ("at least", "character"),
    "maxLength": ("at most", "character"),
    "minItems": ("at least", "item"),
    "maxItems": ("at most", "item"),
    "minProperties": ("at least", "property"),
    "maxProperties": ("at most", "property"),
}


def _wanted(error: ValidationError, root: JSON) -> str:
    """What an error that concerns the value at its own place expected there."""
    keyword, limit = cast("str | None", error.validator), cast("Any", error.validator_value)
    if keyword is None:
        return "nothing here"
    if keyword in _LIMITS:
        return _LIMITS[keyword].format(limit)
    if keyword in _COUNTS:
        bound, noun = _COUNTS[keyword]
        found = f", not {len(cast('Any', error.instance)):,}" if keyword in ("maxLength", "maxItems") else ""
        return f"{bound} {_count(limit, noun)}{found}"
    if keyword == "required":
        properties = _properties(error)
        name = str(error.path[-1])
        return (describe(properties[name], root) if name in properties else "a value") + _REQUIRED
    if keyword in ("additionalProperties", "unevaluatedProperties") and error.path:
        known = list(_properties(error))
        return "no property of this name" + (
            f"; there {'is' if len(known) == 1 else 'are'} {_listing(known)}" if known else ""
        )
    match keyword:
        case "type" | "const" | "enum":
            return describe({keyword: limit})
        case "pattern":
            return _A_REFERENCE if limit == REFERENCE_PATTERN else f"text that matches {show(limit, 60)}"
        case "uniqueItems":
            return "items that all differ"
        case "contains" | "minContains" | "maxContains":
            return f"items among which enough are {describe(_schema(error).get('contains'), root)}"
        case "not":
            return f"what does not match {show(limit)}"
        case "oneOf":
            return "a value that fits exactly one of the alternatives, not several"
        case "items":
            return error.message[:120].replace("Expected", "", 1).strip()
        case _:
            return error.message[:120]


def _schema(error: ValidationError) -> JSONObject:
    """The schema that the error is about; {} where it is `true` or `false`."""
    schema: object = error.schema
    return cast("JSONObject", schema) if isinstance(schema, dict) else {}


def _properties(error: ValidationError) -> JSONObject:
    properties = _schema(error).get("properties")
    return properties if isinstance(properties, dict) else {}


def _listing(names: list[str]) -> str:
    return ", ".join(repr(name[:60]) for name in names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def _hint(errors: Iterable[ValidationError]) -> str:
    """The name or text among those expected that looks like the one found."""
    value: object = None
    options: list[object] = []
    for error in errors:
        value = error.instance
        if error.validator == "additionalProperties":
            return did_you_mean(str(error.path[-1]), _properties(error)) if error.path else ""
        if error.validator == "enum":
            options.extend(cast("list[object]", error.validator_value))
        elif error.validator == "const":
            options.append(error.validator_value)
    texts = dict.fromkeys(option for option in options if isinstance(option, str))
    return did_you_mean(value, texts) if isinstance(value, str) else ""


def _problem(error: ValidationError, expected: str, hint: str = "") -> Problem:
    place = tuple(error.absolute_path)
    found = _NOTHING if error.validator == "required" else show(cast("JSON", error.instance))
    return Problem(show_path(place), found, expected, place, hint)


# -- alternatives ------------------------------------------------------------------------------------------------


def _branches(error: ValidationError) -> list[list[ValidationError]]:
    """The errors of each alternative of a failed `anyOf` or `oneOf`."""
    found: dict[object, list[ValidationError]] = {}
    for inner in error.context or ():
        found.setdefault(inner.relative_schema_path[0], []).append(inner)
    return [_flat(branch) for branch in found.values()]


def _flat(errors: list[ValidationError]) -> list[ValidationError]:
    """The errors of an alternative, with alternatives inside it that fail at the same place as a whole taken apart."""
    result: list[ValidationError] = []
    for error in errors:
        inner = [] if error.relative_path else _branches(error)
        if inner and all(_is_of_another_kind(branch) for branch in inner):
            result.extend(one for branch in inner for one in branch)
        else:
            result.append(error)
    return result


def _is_reference(errors: list[ValidationError]) -> bool:
    return len(errors) == 1 and _schema(errors[0]).get("pattern") == REFERENCE_PATTERN


def _is_of_another_kind(branch: list[ValidationError]) -> bool:
    """Whether an alternative fails because the value itself is of another type, or another constant."""
    return any(error.validator in (None, "type", "const", "enum") and not error.relative_path for error in branch)


def _constants(error: ValidationError) -> list[ValidationError]:
    """The errors that say that the value is another constant: this one, or one in an alternative to a reference."""
    if error.validator == "const":
        return [error]
    return [one for one in error.context or () if one.validator == "const" and not one.relative_path]


def _choose(error: ValidationError, root: JSON) -> list[Problem]:
    """Explain failed alternatives by the one that was meant, or by all where none came near."""
    every = _branches(error)
    branches = [branch for branch in every if not _is_reference(branch)]
    tail = f" or {_A_REFERENCE}" if len(branches) < len(every) else ""
    if not branches:
        return [_problem(error, _A_REFERENCE if tail else "another value")]
    near = [branch for branch in branches if not _is_of_another_kind(branch)]
    if not near:
        own = [one for branch in branches for one in branch if not one.relative_path]
        wanted = dict.fromkeys(_wanted(one, root) for one in own)
        return [_problem(error, " or ".join(list(wanted)[:_LISTED]) + tail, _hint(own))]
    # Variants are told apart by a constant in one of their properties.
    meant = [branch for branch in near if not any(_tells_apart(one) for one in branch)]
    if not meant:
        variants = _variants(near)
        if variants is not None:
            return [variants]
        meant = near
    fewest = min(map(len, meant))
    meant = [branch for branch in meant if len(branch) == fewest]
    problems = _told(meant[0], root)
    if len(meant) > 1 and len(problems) == 1 and problems[0].found == _NOTHING:
        # The property that tells variants apart is missing: name what each variant has there.
        missing = [problem for branch in meant for problem in _told(branch, root)]
        if len({problem.place for problem in missing}) == 1:
            wanted = list(dict.fromkeys(problem.expected.removesuffix(_REQUIRED) for problem in missing))
            expected = " or ".join(wanted[:_LISTED]) + (", …" if len(wanted) > _LISTED else "") + _REQUIRED
            return [replace(problems[0], expected=expected)]
    if tail and len(problems) == 1 and problems[0].place == tuple(error.absolute_path):
        return [replace(problems[0], expected=problems[0].expected + tail)]
    return problems


def _tells_apart(error: ValidationError) -> bool:
    """Whether a property of the value says that another variant was meant."""
    return len(error.relative_path) == 1 and bool(_constants(error))


def _variants(branches: list[list[ValidationError]]) -> Problem | None:
    """One problem for variants that all differ from the value in the same constant, as `_tool` of calls."""
    found: dict[str | int, list[list[ValidationError]]] = {}
    for error in (error for branch in branches for error in branch if _tells_apart(error)):
        found.setdefault(error.path[-1], []).append(_constants(error))
    for groups in found.values():
        if len(groups) >= len(branches):
            errors = [error for group in groups for error in group]
            wanted = _alternatives(cast("JSON", one.validator_value) for one in errors)
            return _problem(errors[0], wanted, _hint(errors))
    return None


def _told(errors: Iterable[ValidationError], root: JSON) -> list[Problem]:
    problems: list[Problem] = []
    for error in errors:
        if error.context:
            problems.extend(_choose(error, root))
        elif "propertyNames" in error.absolute_schema_path:
            problems.append(_problem(error, f"a property name that is {_wanted(error, root)}"))
        else:
            problems.append(_problem(error, _wanted(error, root), _hint([error])))
    return list(dict.fromkeys(problems))


# -- jsonschema, held to what is safe ----------------------------------------------------------------------------


@lru_cache(256)
def _rs(keyword: str, value: str | bool) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({keyword: value}, pattern_options=PATTERNS)


def _pattern(_: Validator, pattern: str, instance: object, __: JSONObject) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _rs("pattern", pattern).is_valid(instance):
        yield ValidationError(f"does not match {pattern}")


def _unique(_: Validator, wanted: bool, instance: object, __: JSONObject) -> Iterator[ValidationError]:
    # jsonschema compares each item with each other one.
    from jsonschema import ValidationError

    if wanted and not _rs("uniqueItems", value=True).is_valid(instance):
        yield ValidationError("items are equal")


def _below(
    validator: Validator, value: JSON, schema: JSON, name: str, place: str | None = None
) -> Iterator[ValidationError]:
    """The errors of one property. Of those that `false` refuses jsonschema does not report the place."""
    from jsonschema import ValidationError

    if schema is False:
        yield ValidationError("is not allowed", validator=cast("Any", None), path=[name], instance=value)
    else:
        yield from cast("Any", validator).descend(value, schema, path=name, schema_path=place)


def _own_properties(
    validator: Validator, properties: JSONObject, instance: object, _: JSONObject
) -> Iterator[ValidationError]:
    values = cast("JSONObject", instance) if isinstance(instance, dict) else {}
    for name, schema in properties.items():
        if name in values:
            yield from _below(validator, values[name], schema, name, name)


def _pattern_properties(
    validator: Validator, patterns: JSONObject, instance: object, _: JSONObject
) -> Iterator[ValidationError]:
    for pattern, schema in patterns.items():
        for name, value in cast("JSONObject", instance).items() if isinstance(instance, dict) else ():
            if _rs("pattern", pattern).is_valid(name):
                yield from _below(validator, value, schema, name, pattern)


def _additional(validator: Validator, rest: JSON, instance: object, schema: JSONObject) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    known, patterns = cast("Any", schema.get("properties", {})), cast("Any", schema.get("patternProperties", {}))
    for name, value in cast("JSONObject", instance).items() if isinstance(instance, dict) else ():
        if name in known or any(_rs("pattern", pattern).is_valid(name) for pattern in patterns):
            continue
        if rest is False:
            yield ValidationError("is not expected", path=[name], instance=value)
        else:
            yield from _below(validator, value, rest, name)


def _required(_: Validator, names: list[str], instance: object, __: JSONObject) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    for name in names if isinstance(instance, dict) else ():
        if name not in cast("JSONObject", instance):
            yield ValidationError("is missing", path=[name])


@cache
def _explainers() -> dict[str, Any]:
    """The validators of jsonschema by the `$schema` that names their draft; imported when a first value fails."""
    import jsonschema
    from jsonschema import validators

    extend = cast("Any", validators).extend
    changed: dict[str, Callable[..., Any]] = {
        "pattern": _pattern,
        "properties": _own_properties,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional,
        "required": _required,
        "uniqueItems": _unique,
    }
    drafts = {
        "": jsonschema.Draft202012Validator,
        "json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
        "json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
        "json-schema.org/draft-07/schema": jsonschema.Draft7Validator,
        "json-schema.org/draft-06/schema": jsonschema.Draft6Validator,
    }
    return {name: extend(draft, changed) for name, draft in drafts.items()}


def _prepared(schema: JSON, *, is_root: bool = True) -> JSON:
    """The schema without `$schema`, by which jsonschema would change to a validator that runs patterns in `re`.

    Raises:
        LookupError: jsonschema would leave the schema, or run names of `patternProperties` in `re`.
    """
    if isinstance(schema, list):
        return [_prepared(item, is_root=False) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if any(isinstance(target := schema.get(keyword), str) and not target.startswith("#") for keyword in REFERRING):
        raise LookupError
    if (not is_root and isinstance(schema.get("$id"), str)) or {"unevaluatedProperties", "unevaluatedItems"} & set(
        schema
    ):
        raise LookupError
    dropped = ("$schema", "$id") if is_root else ("$schema",)
    return {
        name: _prepared(part, is_root=False)
        for name, part in schema.items()
        if name not in dropped or not isinstance(part, str)
    }


def explain(valid: jsonschema_rs.Validator, schema: JSONObject, value: JSON) -> list[Problem]:
    """The problems of a value that does not satisfy a schema, as jsonschema finds them.

    Args:
        valid: the compiled schema, which has found that the value does not fit.
        schema: the schema.
        value: the value.
    """
    named = schema.get("$schema")
    draft = named.split("://", 1)[-1].rstrip("#") if isinstance(named, str) else ""
    try:
        explainer = _explainers()[draft]
        import referencing

        prepared = _prepared(schema)
        # The empty registry fetches nothing; it knows the published meta-schemas alone.
        nothing = cast("Any", referencing).Registry()
        problems = _told(explainer(prepared, registry=nothing).iter_errors(value), prepared)
    except (LookupError, RecursionError):
        # An unresolvable reference is a LookupError too.
        problems = []
    return problems or [plain(error) for error in valid.iter_errors(value)]


def explain_schema(error: jsonschema_rs.ValidationError, schema: JSONObject) -> Problem:
    """The problem of a schema that is invalid, as jsonschema-rs reports it."""
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Format) and kind.format == "regex":
        return replace(plain(error), expected="a regular expression")
    place = tuple(error.instance_path)
    part: Any = schema
    for step in place[:-1]:
        part = part[step]
    import jsonschema

    # Only the keyword that is wrong: the whole schema may be large.
    meta: Any = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    alone: JSON = {str(place[-1]): part[place[-1]]} if place else schema
    for problem in _told(meta.iter_errors(alone), None) if place else []:
        whole = place[:-1] + problem.place
        return replace(problem, path=show_path(whole), place=whole)
    return plain(error)


def plain(error: jsonschema_rs.ValidationError) -> Problem:
    """A problem in the words of jsonschema-rs."""
    place = tuple(error.instance_path)
    expected = f"a value that fits the schema: {error.message[:120]}"
    return Problem(show_path(place), show(cast("JSON", error.instance)), expected, place)
