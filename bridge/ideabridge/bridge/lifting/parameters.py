"""Parameters: the input of a tool that a run becomes, made of the run's input and of its literals.

A literal of a call that neither the input nor an earlier value explains becomes an optional
parameter, named after the parameter that it fills, with the recorded value as its default. So the
tool repeats its run when it is called without arguments, and everything that is constant is visible
and can be changed. Equal literals of one name are one parameter. Of a run with more than 1,000 such
values, the others stay as they are, unless the publisher makes parameters of them.

A literal that is *followed* (an earlier result, or an earlier literal of another name, explains it)
becomes an optional parameter without a default: where it is left out, the value is followed; where
it is passed, it is taken, and nothing about it is assumed. The first eight are members of the
input, those first whose recorded value stands in the text of the task; the others are members of
one object `also`, so that schemas stay small. What follows a member of the input needs none:
whoever passes that member has changed it.

In the plan, the place of a parameter with a default has the reference `†input.NAME`. The place of a
followed literal keeps the recorded literal, and its entry in `explained` names the parameter as
`given`: `{"at": ["calls", "2", "owner"], "by": [...], "given":
"†input.owner"}`, or `"†input.also.owner"`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.explanations import Explanation, PathTo, operand_path, same
from ideabridge.bridge.context.references import (
    Path,
    Reference,
    clipped,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.function import digest
from ideabridge.bridge.lifting.leaves import Leaf
from ideabridge.bridge.lifting.naming import Filled, own_name, parameter_names
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import META_PROPERTIES

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_LONGEST: Final = 64
_SOURCE: Final = 80
_WORD: Final = re.compile(r"[\w.-]*\w")

ALSO: Final = "also"
"""The member of the input that has the followed values beyond the first."""

_FIRST: Final = 8
"""The most followed values that are members of the input themselves, unless the publisher
decides about more."""

_MOST_ALSO: Final = 200
"""The most members of `also`."""

_MOST_CONSTANTS: Final = 1_000
"""The most parameters with a default, unless the publisher decides about more: nobody reads a
longer schema. The other literals stay as they are."""

_KEYS: Final = ("rename", "merge", "fix", "description", "required", "default", "at")

_COPIED: Final = (
    *("type", "enum", "description", "format", "pattern", "minimum", "maximum", "exclusiveMinimum"),
    *(
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
    ),
)
"""The keywords of a tool's schema that a parameter takes over. Others may refer to parts
of that schema."""


@dataclass(frozen=True, slots=True)
class ParameterDecision:
    """What the publisher decides about one parameter.

    Attributes:
        rename: its new name.
        merge: the parameter that takes its place; both have the same recorded value.
        fix: it is no parameter: the recorded value stays.
        description: its description.
        required: callers must pass it.
        default: its default, as a list of one value; empty: the recorded value.
        at: the paths of constants that become this new parameter.
    """

    rename: str | None = None
    merge: str | None = None
    fix: bool = False
    description: str | None = None
    required: bool = False
    default: tuple[JSON, ...] = ()
    at: tuple[str, ...] = ()


def read_decisions(raw: JSONObject | None) -> dict[str, ParameterDecision]:
    """Read `{NAME: {"rename"?, "merge"?, "fix"?, "description"?, "required"?, "default"?, "at"?}}`.

    Raises:
        PublicationError: the form is wrong; the message says where and what was expected.
    """
    return {name: _decision(name, value) for name, value in (raw or {}).items()}


def _decision(name: str, raw: JSON) -> ParameterDecision:
    where = f"parameters.{name[:_LONGEST]}"
    if not isinstance(raw, dict):
        raise PublicationError(
            f"{where}: expected an object with {', '.join(_KEYS)}, found {show(raw)}"
        )

    for key in raw:
        if key not in _KEYS:
            raise PublicationError(
                f"{where}: unknown key {key[:_LONGEST]!r}.{did_you_mean(key, _KEYS)}"
            )

    texts: dict[str, str | None] = {}
    for key in ("rename", "merge", "description"):
        value = raw.get(key)
        if value is not None and not isinstance(value, str):
            raise PublicationError(f"{where}.{key}: expected text, found {show(value)}")
        texts[key] = value

    flags = {key: raw.get(key, False) for key in ("fix", "required")}
    for key, flag in flags.items():
        if not isinstance(flag, bool):
            raise PublicationError(f"{where}.{key}: expected true or false, found {show(flag)}")

    at = raw.get("at", [])
    if isinstance(at, list):
        paths = [path for path in at if isinstance(path, str)]
    else:
        paths = []

    if not isinstance(at, list) or len(paths) != len(at):
        raise PublicationError(
            f"{where}.at: expected an array of paths such as calls.2.limit, found {show(at)}"
        )

    if texts["rename"] is not None and not _NAME.fullmatch(texts["rename"]):
        raise PublicationError(
            f"{where}.rename: expected letters, digits, _ and -, found {show(texts['rename'])}"
        )

    if paths and not _NAME.fullmatch(name):
        raise PublicationError(f"{where}: expected a name of letters, digits, _ and -")
    if sum([texts["rename"] is not None, texts["merge"] is not None, flags["fix"] is True]) > 1:
        raise PublicationError(f"{where}: expected one of rename, merge and fix")
    return ParameterDecision(
        texts["rename"],
        texts["merge"],
        flags["fix"] is True,
        texts["description"],
        flags["required"] is True,
        (raw["default"],) if "default" in raw else (),
        tuple(paths),
    )


@dataclass(slots=True)
class Parameter:
    """A parameter that was made of constants.

    Attributes:
        name: its name.
        value: the recorded value, its default.
        leaves: the literals that it fills.
        tool: the tool of the first of them.
        source: where a followed value comes from; None: the parameter has a default.
        told: the same in words.
        also: it is a member of the object `also`.
    """

    name: str
    value: JSON
    leaves: list[Leaf]
    tool: str = ""
    source: Explanation | None = None
    told: str = ""
    also: bool = False

    @property
    def followed(self) -> bool:
        """True if it is only taken where it is passed."""
        return self.source is not None

    @property
    def reference(self) -> str:
        """The reference that reads it."""
        return format_reference(("input", ALSO, self.name) if self.also else ("input", self.name))

    @property
    def schema(self) -> JSONObject:
        """Its JSON Schema: that of the tool's parameter, as far as it can be copied, with the
        recorded default, or with what is followed where it is left out.
        """
        leaf = self.leaves[0]
        declared = leaf.schema or {}
        schema: JSONObject = {key: declared[key] for key in _COPIED if key in declared}
        if (
            "type" not in schema
            and "enum" not in schema
            and "anyOf" not in declared
            and "oneOf" not in declared
        ):
            schema = {**_type_of(self.value), **schema}

        if isinstance(self.value, list) and isinstance(declared.get("items"), dict):
            items = declared["items"]
            if isinstance(items, dict) and "$ref" not in str(items):
                schema["items"] = items

        if "description" not in schema and self.tool:
            schema["description"] = f"{leaf.keys[-1] if leaf.keys else 'a value'} of {self.tool}"

        if self.source is None:
            return {**schema, "default": self.value}

        sentence = f"Left out, it is taken from {clipped(self.told or self.source.shown, _SOURCE)}."
        if "description" in schema:
            sentence = f"{str(schema['description']).rstrip('. ')}. {sentence}"

        return {**schema, "description": sentence}


def _type_of(value: JSON) -> JSONObject:
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int | float):
        return {"type": "integer" if isinstance(value, int) else "number"}
    if isinstance(value, str):
        return {"type": "string"}
    if isinstance(value, list):
        return {"type": "array"}
    return {"type": "object"} if isinstance(value, dict) else {}


def parameters_of(
    literals: Iterable[Parameter],
    reserved: Collection[str],
    decisions: Mapping[str, ParameterDecision],
    task: str,
) -> list[Parameter]:
    """Return a parameter for each group of equal literals of one name.

    Args:
        literals: a parameter without a name for each literal.
        reserved: the names of the members of the run's input.
        decisions: those with `at` name literals that become one parameter.
        task: the text of the task.
    """
    placed = {path: name for name, decision in decisions.items() for path in decision.at}
    by_decision: dict[str, Parameter] = {}
    unnamed: dict[tuple[str, str, bool], Parameter] = {}
    for literal in literals:
        [leaf] = literal.leaves
        name = placed.get(leaf.path)
        if name is not None:
            _fill(by_decision, name, literal)
            continue

        key = own_name(leaf.keys), digest(leaf.value), literal.followed
        equal = unnamed.setdefault(key, literal)
        if equal is not literal:
            equal.leaves.append(leaf)

    every = [*by_decision.values(), *unnamed.values()]
    paths = {leaf.path for parameter in every for leaf in parameter.leaves}
    for path, name in placed.items():
        if path not in paths:
            raise PublicationError(
                f"parameters.{name}.at: no constant is at {path!r}.{did_you_mean(path, paths)}"
            )

    # Those with a default come first, and have the plainest names.
    ordered = sorted(unnamed.values(), key=lambda parameter: parameter.followed)
    filled = [
        Filled(
            parameter.tool,
            parameter.leaves[0].keys,
            parameter.value,
            _keys_of(parameter.source),
            parameter.leaves[0].place,
        )
        for parameter in ordered
    ]
    for parameter, name in zip(
        ordered, parameter_names(filled, {*reserved, *by_decision, ALSO}), strict=True
    ):
        parameter.name = name

    left = _put_under_also(
        [parameter for parameter in ordered if parameter.followed], reserved, decisions, task
    )
    constants = [
        parameter.name
        for parameter in ordered
        if not parameter.followed and parameter.name not in decisions
    ]
    left.update(constants[_MOST_CONSTANTS:])
    return [
        parameter for parameter in (*by_decision.values(), *ordered) if parameter.name not in left
    ]


def _keys_of(source: Explanation | None) -> Path:
    """The keys below the input or a result that lead to a value."""
    if isinstance(source, PathTo):
        return operand_path(source.reference)[1:]
    return ()


def _put_under_also(
    followed: Sequence[Parameter],
    reserved: Collection[str],
    decisions: Mapping[str, ParameterDecision],
    task: str,
) -> set[str]:
    """Put all but the first followed parameters under `also`; returns the names of those for which
    nothing is left.
    """
    words = set(_WORD.findall(task))
    open_ = [parameter for parameter in followed if parameter.name not in decisions]
    open_.sort(key=lambda parameter: not _stands_in(parameter.value, task, words))
    free = max(0, _FIRST - (len(followed) - len(open_)))
    under = open_[free:] if ALSO not in reserved else []
    for parameter in under[:_MOST_ALSO]:
        parameter.also = True

    return {parameter.name for parameter in open_[free:] if not parameter.also}


def _stands_in(value: JSON, task: str, words: Collection[str]) -> bool:
    if isinstance(value, bool) or value in (None, ""):
        return False
    if isinstance(value, int | float):
        return str(value) in words
    return isinstance(value, str) and value in task


def _fill(by_decision: dict[str, Parameter], name: str, literal: Parameter) -> None:
    """Let a parameter that a person names fill one more literal.

    Raises:
        PublicationError: it fills literals with another value already.
    """
    [leaf] = literal.leaves
    named = by_decision.get(name)
    if named is None:
        by_decision[name] = Parameter(name, leaf.value, [leaf], literal.tool)
    elif same(named.value, leaf.value):
        named.leaves.append(leaf)
    else:
        raise PublicationError(
            f"parameters.{name}.at: {leaf.path} is {show(leaf.value)}, and {named.leaves[0].path} "
            f"is {show(named.value)}; one parameter has one value"
        )


@dataclass(slots=True)
class Inputs:
    """The input of the tool after every decision.

    Attributes:
        schema: the JSON Schema of the input.
        fixed: members of the run's input that are no parameters: the plan reads these values.
        renamed: the new names of members, by the names under which the plan was lifted.
        unfilled: names of parameters whose literals stay as they are.
    """

    schema: JSONObject
    fixed: JSONObject = field(default_factory=dict[str, JSON])
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    unfilled: set[str] = field(default_factory=set[str])


def inputs_of(
    schema: JSONObject,
    run_input: JSONObject,
    parameters: Sequence[Parameter],
    decisions: Mapping[str, ParameterDecision],
) -> Inputs:
    """Return the input of the tool.

    Args:
        schema: the schema of the run's input.
        run_input: the run's input.
        parameters: the parameters made of constants.
        decisions: what the publisher decides, by name.

    Raises:
        PublicationError: a decision names no parameter, or does not fit it.
    """
    declared = schema.get("properties")
    if isinstance(declared, dict):
        properties: JSONObject = dict(declared)
    else:
        properties = {}

    needed = schema.get("required")
    if isinstance(needed, list):
        required = [member for member in needed if isinstance(member, str)]
    else:
        required = []

    values: JSONObject = {
        **run_input,
        **{parameter.name: parameter.value for parameter in parameters},
    }
    names_of_parameters = {parameter.name for parameter in parameters}
    also: JSONObject = {}
    for parameter in parameters:
        (also if parameter.also else properties)[parameter.name] = parameter.schema

    for name in decisions:
        if name not in properties and name not in values:
            similar = [*properties, *values]
            raise PublicationError(
                f"parameters: there is no parameter {name[:_LONGEST]!r}."
                f"{did_you_mean(name, similar)}"
            )

    result = Inputs({})
    for name, decision in decisions.items():
        where = f"parameters.{name}"
        if decision.merge is not None:
            if decision.merge == name or decision.merge not in values or name not in values:
                similar = [other for other in values if other != name]
                raise PublicationError(
                    f"{where}.merge: there is no {decision.merge!r}."
                    f"{did_you_mean(decision.merge, similar)}"
                )

            if not same(values[name], values[decision.merge]):
                raise PublicationError(
                    f"{where}.merge: its recorded value {show(values[name])} is not that of "
                    f"{decision.merge}, {show(values[decision.merge])}"
                )

            result.renamed[name] = decision.merge
            properties.pop(name, None)
            required = [other for other in required if other != name]
            continue

        if decision.fix:
            properties.pop(name, None)
            required = [other for other in required if other != name]
            if name in names_of_parameters:
                result.unfilled.add(name)
            elif name in run_input:
                result.fixed[name] = run_input[name]

            continue

        _describe(properties, name, decision)
        if decision.required and name not in required:
            required.append(name)
            _without_default(properties, name)

        if decision.rename is not None and decision.rename != name:
            if decision.rename in properties:
                raise PublicationError(
                    f"{where}.rename: {decision.rename!r} is another parameter; merge them instead"
                )

            result.renamed[name] = decision.rename
            properties = {
                decision.rename if key == name else key: value for key, value in properties.items()
            }
            required = [decision.rename if key == name else key for key in required]

    result.renamed = {name: _new_name(name, decisions) for name in result.renamed}
    for name in properties:
        if name in META_PROPERTIES:
            raise PublicationError(
                f"parameters.{name}: calls have a property of this name themselves; rename it"
            )

    if also:
        description = (
            "More values of the calls that are taken from earlier results where they are left out."
        )
        properties[ALSO] = {
            "type": "object",
            "description": description,
            "properties": also,
            "additionalProperties": False,
        }

    result.schema = {**schema, "type": "object", "properties": properties}
    result.schema.pop("required", None)
    if required:
        result.schema["required"] = list[JSON](required)

    return result


def _new_name(name: str, decisions: Mapping[str, ParameterDecision]) -> str:
    """Return the new name of a parameter: that of the parameter into which it is merged, if it is.

    Raises:
        PublicationError: parameters are merged in a circle, or into a value that is fixed.
    """
    where = f"parameters.{name}.merge"
    visited = {name}
    while (decision := decisions.get(name)) is not None and decision.merge is not None:
        name = decision.merge
        if name in visited:
            raise PublicationError(
                f"{where}: the parameters {show(list[JSON](sorted(visited)))} are merged in a "
                "circle"
            )
        visited.add(name)

    if decision is not None and decision.fix:
        raise PublicationError(
            f"{where}: {name!r} is fixed, so it is no parameter; fix both instead"
        )

    return name if decision is None or decision.rename is None else decision.rename


def _describe(properties: JSONObject, name: str, decision: ParameterDecision) -> None:
    declared = properties.get(name)
    schema: JSONObject = dict(declared) if isinstance(declared, dict) else {}
    if decision.description is not None:
        schema["description"] = decision.description

    if decision.default:
        schema["default"] = decision.default[0]

    properties[name] = schema


def _without_default(properties: JSONObject, name: str) -> None:
    declared = properties[name]
    if isinstance(declared, dict):
        properties[name] = {key: value for key, value in declared.items() if key != "default"}


def renamed_inputs(value: JSON, names: Mapping[str, str]) -> JSON:
    """Return a value as written, with the new names of members of the input in its references."""
    if isinstance(value, list):
        return [renamed_inputs(item, names) for item in value]
    if isinstance(value, dict):
        return {key: renamed_inputs(item, names) for key, item in value.items()}
    if not names or not isinstance(value, str) or not is_reference(value):
        return value

    try:
        expression = parse_reference(value)
    except ReferenceSyntaxError:
        return value

    return " || ".join(
        " && ".join(_renamed(operand, names) for operand in group)
        for group in expression.alternatives
    )


def _renamed(operand: Reference, names: Mapping[str, str]) -> str:
    if operand.kind != "input" or not operand.path or operand.path[0] not in names:
        return operand.text
    return format_reference(("input", names[operand.path[0]], *operand.path[1:]), operand.instance)
