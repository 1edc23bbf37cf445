"""Parameters: the input of a tool that a run becomes, made of the run's input and of its constants.

A literal of a call that neither the input nor an earlier result explains becomes an optional parameter, named after the
parameter that it fills, with the recorded value as its default. So the tool repeats its run when it is called without
arguments, and everything that is constant is visible and can be changed. Equal literals of one name are one parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.context.references import Reference, format_reference, is_reference, parse_reference
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import Leaf
from ideabridge.bridge.lifting.naming import Filled, own_name, parameter_names
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import META_PROPERTIES

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_LONGEST: Final = 64
_KEYS: Final = ("rename", "merge", "fix", "description", "required", "default", "at")

_COPIED: Final = (
    *("type", "enum", "description", "format", "pattern", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
)
"""The keywords of a tool's schema that a parameter takes over. Others may refer to parts of that schema."""


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
        raise PublicationError(f"{where}: expected an object with {', '.join(_KEYS)}, found {show(raw)}")
    for key in raw:
        if key not in _KEYS:
            raise PublicationError(f"{where}: unknown key {key[:_LONGEST]!r}.{did_you_mean(key, _KEYS)}")
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
    paths = [one for one in at if isinstance(one, str)] if isinstance(at, list) else []
    if not isinstance(at, list) or len(paths) != len(at):
        raise PublicationError(f"{where}.at: expected an array of paths such as calls.2.limit, found {show(at)}")
    if texts["rename"] is not None and not _NAME.fullmatch(texts["rename"]):
        raise PublicationError(f"{where}.rename: expected letters, digits, _ and -, found {show(texts['rename'])}")
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
        followed: it is only taken where it is passed; otherwise the plan follows where the value came from.
    """

    name: str
    value: JSON
    leaves: list[Leaf]
    tool: str = ""
    followed: bool = False

    @property
    def schema(self) -> JSONObject:
        """Its JSON Schema: that of the tool's parameter, as far as it can be copied, with the recorded default."""
        leaf = self.leaves[0]
        known = leaf.schema or {}
        schema: JSONObject = {key: known[key] for key in _COPIED if key in known}
        if "type" not in schema and "enum" not in schema and "anyOf" not in known and "oneOf" not in known:
            schema = {**_type_of(self.value), **schema}
        if isinstance(self.value, list) and isinstance(known.get("items"), dict):
            items = known["items"]
            if isinstance(items, dict) and "$ref" not in str(items):
                schema["items"] = items
        if "description" not in schema and self.tool:
            schema["description"] = f"{leaf.keys[-1] if leaf.keys else 'a value'} of {self.tool}"
        return {**schema, "default": self.value}


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
    leaves: Iterable[tuple[Leaf, str]], taken: Iterable[str], decisions: Mapping[str, ParameterDecision]
) -> list[Parameter]:
    """Return a parameter for each group of equal literals of one name.

    Args:
        leaves: the literals that nothing explains, each with the name of its tool.
        taken: the names of the members of the run's input.
        decisions: those with `at` name literals that become one parameter.
    """
    placed = {path: name for name, one in decisions.items() for path in one.at}
    by_decision: dict[str, Parameter] = {}
    unnamed: list[Parameter] = []
    by_key: dict[str, list[Parameter]] = {}
    for leaf, tool in leaves:
        wanted = placed.get(leaf.path)
        if wanted is not None:
            _fill(by_decision, wanted, leaf, tool)
            continue
        alike = by_key.setdefault(own_name(leaf.keys), [])
        equal = next((one for one in alike if same(one.value, leaf.value)), None)
        if equal is not None:
            equal.leaves.append(leaf)
            continue
        parameter = Parameter("", leaf.value, [leaf], tool)
        alike.append(parameter)
        unnamed.append(parameter)

    every = [*by_decision.values(), *unnamed]
    paths = [leaf.path for parameter in every for leaf in parameter.leaves]
    for path, name in placed.items():
        if path not in paths:
            raise PublicationError(f"parameters.{name}.at: no constant is at {path!r}.{did_you_mean(path, paths)}")

    filled = [Filled(one.tool, one.leaves[0].keys, one.value) for one in unnamed]
    reserved = {*taken, *by_decision}
    for one, name in zip(unnamed, parameter_names(filled, reserved), strict=True):
        one.name = name
    return every


def _fill(by_decision: dict[str, Parameter], name: str, leaf: Leaf, tool: str) -> None:
    """Let a parameter that a person names fill one more literal.

    Raises:
        PublicationError: it fills literals with another value already.
    """
    known = by_decision.get(name)
    if known is None:
        by_decision[name] = Parameter(name, leaf.value, [leaf], tool)
    elif same(known.value, leaf.value):
        known.leaves.append(leaf)
    else:
        raise PublicationError(
            f"parameters.{name}.at: {leaf.path} is {show(leaf.value)}, and {known.leaves[0].path} is"
            f" {show(known.value)}; one parameter has one value"
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
    schema: JSONObject, given: JSONObject, parameters: Sequence[Parameter], decisions: Mapping[str, ParameterDecision]
) -> Inputs:
    """Return the input of the tool.

    Args:
        schema: the schema of the run's input.
        given: the run's input.
        parameters: the parameters made of constants.
        decisions: what the publisher decides, by name.

    Raises:
        PublicationError: a decision names no parameter, or does not fit it.
    """
    declared = schema.get("properties")
    properties: JSONObject = dict(declared) if isinstance(declared, dict) else {}
    needed = schema.get("required")
    required = [one for one in needed if isinstance(one, str)] if isinstance(needed, list) else []
    values: JSONObject = {**given, **{one.name: one.value for one in parameters}}
    made = {one.name for one in parameters}
    for one in parameters:
        properties[one.name] = one.schema
    for name in decisions:
        if name not in properties and name not in values:
            known = [*properties, *values]
            raise PublicationError(f"parameters: there is no parameter {name[:_LONGEST]!r}.{did_you_mean(name, known)}")
    result = Inputs({})
    for name, one in decisions.items():
        where = f"parameters.{name}"
        if one.merge is not None:
            if one.merge == name or one.merge not in values or name not in values:
                known = [other for other in values if other != name]
                raise PublicationError(f"{where}.merge: there is no {one.merge!r}.{did_you_mean(one.merge, known)}")
            if not same(values[name], values[one.merge]):
                raise PublicationError(
                    f"{where}.merge: its recorded value {show(values[name])} is not that of {one.merge},"
                    f" {show(values[one.merge])}"
                )
            result.renamed[name] = one.merge
            properties.pop(name, None)
            required = [other for other in required if other != name]
            continue
        if one.fix:
            properties.pop(name, None)
            required = [other for other in required if other != name]
            if name in made:
                result.unfilled.add(name)
            elif name in given:
                result.fixed[name] = given[name]
            continue
        _describe(properties, name, one)
        if one.required and name not in required:
            required.append(name)
            _without_default(properties, name)
        if one.rename is not None and one.rename != name:
            if one.rename in properties:
                raise PublicationError(f"{where}.rename: {one.rename!r} is another parameter; merge them instead")
            result.renamed[name] = one.rename
            properties = {one.rename if key == name else key: value for key, value in properties.items()}
            required = [one.rename if key == name else key for key in required]
    result.renamed = {name: _new_name(name, decisions) for name in result.renamed}
    for name in properties:
        if name in META_PROPERTIES:
            raise PublicationError(f"parameters.{name}: calls have a property of this name themselves; rename it")
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
    where, seen = f"parameters.{name}.merge", {name}
    while (one := decisions.get(name)) is not None and one.merge is not None:
        name = one.merge
        if name in seen:
            raise PublicationError(f"{where}: the parameters {show(list[JSON](sorted(seen)))} are merged in a circle")
        seen.add(name)
    if one is not None and one.fix:
        raise PublicationError(f"{where}: {name!r} is fixed, so it is no parameter; fix both instead")
    return name if one is None or one.rename is None else one.rename


def _describe(properties: JSONObject, name: str, one: ParameterDecision) -> None:
    known = properties.get(name)
    schema: JSONObject = dict(known) if isinstance(known, dict) else {}
    if one.description is not None:
        schema["description"] = one.description
    if one.default:
        schema["default"] = one.default[0]
    properties[name] = schema


def _without_default(properties: JSONObject, name: str) -> None:
    known = properties[name]
    if isinstance(known, dict):
        properties[name] = {key: value for key, value in known.items() if key != "default"}


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
    return " || ".join(" && ".join(_renamed(one, names) for one in group) for group in expression.alternatives)


def _renamed(operand: Reference, names: Mapping[str, str]) -> str:
    if operand.kind != "input" or not operand.path or operand.path[0] not in names:
        return operand.text
    return format_reference(("input", names[operand.path[0]], *operand.path[1:]), operand.instance)
