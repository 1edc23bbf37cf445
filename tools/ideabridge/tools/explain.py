"""Explain why a value does not satisfy a schema.

An explanation contains the location, the value found there, and what the schema expects.

jsonschema-rs decides whether a value satisfies a schema. If it does not, jsonschema finds the
errors, and this module describes them in words. Schemas and values come from outside, so some of
jsonschema's keywords are replaced by versions that use jsonschema-rs, which limits its work:
Python's `re` can take forever to match a pattern, and jsonschema's `uniqueItems` compares all pairs
of items. This module does not fetch any schemas: the reference registry contains only the published
meta-schemas.

If jsonschema cannot explain a schema safely or completely (references that leave the schema,
`unevaluatedProperties`, recursion deeper than Python's stack), the messages of jsonschema-rs are
used.

Import this module only after a value has failed, because importing jsonschema takes 0.1 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, cast

import jsonschema
import jsonschema_rs
import referencing
from jsonschema import ValidationError, validators
from jsonschema.protocols import Validator

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.json_parts import part_at
from ideabridge.tools.keywords import (
    A_REFERENCE,
    MISSING_VALUE,
    MOST_LISTED,
    PATTERNS,
    REFERENCE_PATTERN,
    REFERRING,
    Problem,
    describe,
    describe_values,
    json_schema_draft,
    list_names,
    show,
)
from ideabridge.tools.names import did_you_mean

_REQUIRED: Final = " (required)"


def explain_mismatch(
    valid: jsonschema_rs.Validator, schema: JSONObject, value: JSON
) -> list[Problem]:
    """Return the problems with a value that the compiled schema `valid` has rejected."""
    problems: list[Problem] = []
    try:
        root = _prepared(schema)
        validator = _VALIDATORS[json_schema_draft(schema)](
            root, registry=cast("Any", referencing).Registry()
        )
        problems = _problems(validator.iter_errors(value), root)
    except (LookupError, RecursionError, OverflowError):
        # jsonschema cannot explain the mismatch. The schema might have an unknown draft, a
        # reference that leaves the schema or leads nowhere, or recursion that is too deep, or an
        # integer might be too large to be checked against a fractional `multipleOf`.
        pass

    return problems or [_plain(error) for error in valid.iter_errors(value)]


def explain_schema(error: jsonschema_rs.ValidationError, schema: JSONObject) -> Problem:
    """Return the problem with a schema, given the error reported by jsonschema-rs."""
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Format) and kind.format == "regex":
        return replace(_plain(error), expected="a regular expression")

    place = tuple(error.instance_path)
    if not place:
        return _plain(error)

    part = part_at(schema, place[:-1])
    if not isinstance(part, dict) or place[-1] not in part:
        # jsonschema-rs leaves empty names out of the path, so the path might not lead to the
        # keyword.
        return _plain(error)

    # Check only the wrong keyword, because the whole schema can be large.
    meta: Any = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    for problem in _problems(meta.iter_errors({str(place[-1]): part[place[-1]]}), None):
        return replace(problem, place=place[:-1] + problem.place)

    return _plain(error)


# -- from errors to problems -----------------------------------------------------------------------


def _problems(errors: Iterable[ValidationError], root: JSON) -> list[Problem]:
    problems: list[Problem] = []
    for error in errors:
        if error.context:
            problems.extend(_problems_of_alternatives(error, root))
        elif "propertyNames" in error.absolute_schema_path:
            problems.append(_problem(error, f"a property name that is {_expected(error, root)}"))
        else:
            problems.append(_problem(error, _expected(error, root), _hint([error])))

    return list(dict.fromkeys(problems))


def _problem(error: ValidationError, expected: str, hint: str = "") -> Problem:
    if error.validator == "required":
        actual = MISSING_VALUE
    else:
        actual = show(cast("JSON", error.instance))
    return Problem(actual, expected, tuple(error.absolute_path), hint)


def _plain(error: jsonschema_rs.ValidationError) -> Problem:
    """Return a problem in the words of jsonschema-rs."""
    expected = f"a value that fits the schema: {error.message[:120]}"
    return Problem(show(cast("JSON", error.instance)), expected, tuple(error.instance_path))


_LIMITS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
}
_COUNTS: Final = {
    "minLength": ("at least", "character", "characters"),
    "maxLength": ("at most", "character", "characters"),
    "minItems": ("at least", "item", "items"),
    "maxItems": ("at most", "item", "items"),
    "minProperties": ("at least", "property", "properties"),
    "maxProperties": ("at most", "property", "properties"),
}


def _expected(error: ValidationError, root: JSON) -> str:
    """Describe what the schema expects where the error occurred."""
    keyword = cast("str | None", error.validator)
    limit = cast("Any", error.validator_value)
    if keyword in _LIMITS:
        return _LIMITS[keyword].format(limit)
    if keyword in _COUNTS:
        bound, singular, many = _COUNTS[keyword]
        if keyword in ("maxLength", "maxItems"):
            actual = f", not {len(cast('Any', error.instance)):,}"
        else:
            actual = ""
        noun = singular if limit == 1 else many
        return f"{bound} {limit:,} {noun}{actual}"

    match keyword:
        case None:
            return "nothing here"
        case "required":
            properties = _properties(error)
            name = str(error.path[-1])
            described = describe(properties[name], root) if name in properties else "a value"
            return described + _REQUIRED
        case "additionalProperties":
            known = _properties(error)
            if not known:
                return "no property with this name"
            return f"no property with this name; {list_names(known, 'property', 'properties')}"
        case "type" | "const" | "enum":
            return describe({keyword: limit})
        case "pattern":
            if limit == REFERENCE_PATTERN:
                return A_REFERENCE
            return f"text that matches {show(limit, 60)}"
        case "uniqueItems":
            return "items that all differ"
        case "contains" | "minContains" | "maxContains":
            return (
                "the right number of items that are each "
                f"{describe(_schema(error).get('contains'), root)}"
            )
        case "not":
            return f"a value that does not match {show(limit)}"
        case "oneOf":
            return "a value that fits exactly one of the alternatives, not several"
        case _:
            return error.message[:120].removeprefix("Expected ")


def _schema(error: ValidationError) -> JSONObject:
    """Return the schema that contains the failed keyword, or {} if it is `true` or `false`."""
    schema: object = error.schema
    return cast("JSONObject", schema) if isinstance(schema, dict) else {}


def _properties(error: ValidationError) -> JSONObject:
    properties = _schema(error).get("properties")
    return properties if isinstance(properties, dict) else {}


def _hint(errors: Iterable[ValidationError]) -> str:
    """Return a hint that suggests the expected name or string most similar to the one found."""
    value: object = None
    options: list[object] = []
    for error in errors:
        value = error.instance
        if error.validator == "additionalProperties":
            return did_you_mean(str(error.path[-1]), _properties(error))
        if error.validator == "enum":
            options.extend(cast("list[object]", error.validator_value))
        elif error.validator == "const":
            options.append(error.validator_value)

    texts = dict.fromkeys(option for option in options if isinstance(option, str))
    return did_you_mean(value, texts) if isinstance(value, str) else ""


# -- alternatives: `anyOf` and `oneOf` -------------------------------------------------------------
# A value that fits no alternative has errors in all of them, but only the errors of the intended
# alternative help the reader. The intended alternative is the one that has the right type and whose
# constant properties, such as `_tool` in a call, match the value.


def _problems_of_alternatives(error: ValidationError, root: JSON) -> list[Problem]:
    alternatives = _alternatives(error)
    branches = [branch for branch in alternatives if not _is_reference(branch)]
    or_reference = f" or {A_REFERENCE}" if len(branches) < len(alternatives) else ""
    if not branches:
        return [_problem(error, A_REFERENCE if or_reference else "another value")]

    near = [branch for branch in branches if not _is_of_another_kind(branch)]
    if not near:
        own = [
            error_of_branch
            for branch in branches
            for error_of_branch in branch
            if not error_of_branch.relative_path
        ]
        expected = dict.fromkeys(_expected(error_of_branch, root) for error_of_branch in own)
        return [
            _problem(error, " or ".join(list(expected)[:MOST_LISTED]) + or_reference, _hint(own))
        ]

    intended = [
        branch
        for branch in near
        if not any(_constants_of_property(error_of_branch) for error_of_branch in branch)
    ]
    if not intended:
        problem = _problem_of_constant(near)
        if problem is not None:
            return [problem]
        intended = near

    fewest = min(map(len, intended))
    intended = [branch for branch in intended if len(branch) == fewest]
    problems = _problems(intended[0], root)
    if len(problems) != 1:
        return problems

    [problem] = problems
    if len(intended) > 1 and problem.found == MISSING_VALUE:
        # The property that distinguishes the alternatives is missing, so list the values that each
        # alternative expects.
        missing = [problem for branch in intended for problem in _problems(branch, root)]
        if len({problem.place for problem in missing}) == 1:
            names = list(
                dict.fromkeys(problem.expected.removesuffix(_REQUIRED) for problem in missing)
            )
            more = ", …" if len(names) > MOST_LISTED else ""
            return [replace(problem, expected=" or ".join(names[:MOST_LISTED]) + more + _REQUIRED)]

    if problem.place == tuple(error.absolute_path):
        return [replace(problem, expected=problem.expected + or_reference)]
    return problems


def _alternatives(error: ValidationError) -> list[list[ValidationError]]:
    """Return the errors of each alternative. Nested alternatives are split further if none of them
    matches the kind of value.
    """
    branches: dict[object, list[ValidationError]] = {}
    for inner in error.context or ():
        nested = [] if inner.relative_path else _alternatives(inner)
        errors = [inner]
        if nested and all(_is_of_another_kind(branch) for branch in nested):
            errors = [alternative for branch in nested for alternative in branch]
        branches.setdefault(inner.relative_schema_path[0], []).extend(errors)

    return list(branches.values())


def _is_reference(errors: list[ValidationError]) -> bool:
    return len(errors) == 1 and _schema(errors[0]).get("pattern") == REFERENCE_PATTERN


def _is_of_another_kind(branch: list[ValidationError]) -> bool:
    """Return whether an alternative fails because the value itself has a different type or
    constant.
    """
    return any(
        error.validator in (None, "type", "const", "enum") and not error.relative_path
        for error in branch
    )


def _constants_of_property(error: ValidationError) -> list[ValidationError]:
    """Return the errors about a wrong constant in a property, if there are any.

    Another alternative can be a reference.
    """
    if len(error.relative_path) != 1:
        return []
    if error.validator == "const":
        return [error]
    return [
        alternative
        for alternative in error.context or ()
        if alternative.validator == "const" and not alternative.relative_path
    ]


def _problem_of_constant(branches: list[list[ValidationError]]) -> Problem | None:
    """Combine alternatives that each require a different constant in the same property, such as
    `_tool` in calls, into a single problem.
    """
    by_property: dict[str | int, list[list[ValidationError]]] = {}
    for error in (error for branch in branches for error in branch):
        if constants := _constants_of_property(error):
            by_property.setdefault(error.path[-1], []).append(constants)

    for groups in by_property.values():
        if len(groups) >= len(branches):
            errors = [error for group in groups for error in group]
            return _problem(
                errors[0],
                describe_values(
                    cast("JSON", error_of_constant.validator_value) for error_of_constant in errors
                ),
                _hint(errors),
            )

    return None


# -- the keywords that are replaced ----------------------------------------------------------------


def _prepared(schema: JSON, *, is_root: bool = True) -> JSON:
    """Return the schema without `$schema`, which would switch jsonschema back to its own keywords.

    Raises:
        LookupError: a reference leaves the schema, or this module does not replace a keyword.
    """
    if isinstance(schema, list):
        return [_prepared(item, is_root=False) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if any(
        isinstance(target := schema.get(keyword), str) and not target.startswith("#")
        for keyword in REFERRING
    ):
        raise LookupError

    if not is_root and isinstance(schema.get("$id"), str):
        raise LookupError
    if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
        raise LookupError

    dropped = ("$schema", "$id") if is_root else ("$schema",)
    return {
        name: _prepared(part, is_root=False)
        for name, part in schema.items()
        if name not in dropped or not isinstance(part, str)
    }


@lru_cache(256)
def _rs(keyword: str, value: str | bool) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({keyword: value}, pattern_options=PATTERNS)


def _pattern(
    _: Validator, pattern: str, value: object, __: JSONObject
) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _rs("pattern", pattern).is_valid(value):
        yield ValidationError(f"does not match {pattern}")


def _unique_items(
    _: Validator, is_unique: bool, value: object, __: JSONObject
) -> Iterator[ValidationError]:
    if is_unique and not _rs("uniqueItems", value=True).is_valid(value):
        yield ValidationError("items are equal")


def _own_properties(
    validator: Validator, schemas: JSONObject, value: object, _: JSONObject
) -> Iterator[ValidationError]:
    members = _members(value)
    for name, schema in schemas.items():
        if name in members:
            yield from _errors_of_property(validator, members[name], schema, name, name)


def _pattern_properties(
    validator: Validator, schemas: JSONObject, value: object, _: JSONObject
) -> Iterator[ValidationError]:
    for pattern, schema in schemas.items():
        for name, member in _members(value).items():
            if _rs("pattern", pattern).is_valid(name):
                yield from _errors_of_property(validator, member, schema, name, pattern)


def _additional_properties(
    validator: Validator, rest: JSON, value: object, schema: JSONObject
) -> Iterator[ValidationError]:
    named = cast("Any", schema.get("properties", {}))
    patterns = cast("Any", schema.get("patternProperties", {}))
    for name, member in _members(value).items():
        if name in named or any(_rs("pattern", pattern).is_valid(name) for pattern in patterns):
            continue
        if rest is False:
            yield ValidationError("is not expected", path=[name], instance=member)
        else:
            yield from _errors_of_property(validator, member, rest, name)


def _errors_of_property(
    validator: Validator, value: JSON, schema: JSON, name: str, schema_path: str | None = None
) -> Iterator[ValidationError]:
    if schema is False:
        # jsonschema does not report which part of the value the schema `false` rejects.
        yield ValidationError(
            "is not allowed", validator=cast("Any", None), path=[name], instance=value
        )
    else:
        yield from cast("Any", validator).descend(value, schema, path=name, schema_path=schema_path)


def _required(
    _: Validator, names: list[str], value: object, __: JSONObject
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for name in names:
        if name not in value:
            yield ValidationError("is missing", path=[name])


def _members(value: object) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}


_KEYWORDS: Final[dict[str, Any]] = {
    "pattern": _pattern,
    "uniqueItems": _unique_items,
    "properties": _own_properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "required": _required,
}
_VALIDATORS: Final[dict[str, Any]] = {
    draft: cast("Any", validators).extend(validator, _KEYWORDS)
    for draft, validator in {
        "": jsonschema.Draft202012Validator,
        "json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
        "json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
        "json-schema.org/draft-07/schema": jsonschema.Draft7Validator,
        "json-schema.org/draft-06/schema": jsonschema.Draft6Validator,
    }.items()
}
"""The validators of the drafts, keyed by `$schema`."""
