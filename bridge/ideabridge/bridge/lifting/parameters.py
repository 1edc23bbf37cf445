"""The input of a tool, built from the input and the literals of a run.

A literal in a call that neither the input nor an earlier value explains becomes an optional
parameter, named after the tool parameter that the literal fills, with the recorded value as the
default. Therefore, a call to the tool without arguments repeats the run, and every constant is
visible and can be changed. Equal literals with the same name become one parameter. If a run has
more than 1,000 such values, the values beyond the first 1,000 stay as they are, unless the
publisher turns them into parameters.

A literal that is *followed* (an earlier result, or an earlier literal of another name, explains it)
becomes an optional parameter without a default: if the caller leaves it out, the value is followed;
if the caller passes it, that value is used and nothing about it is assumed. The first eight of
these parameters are members of the input, starting with those whose recorded value appears in the
text of the task. The others are members of an object `also`, so that schemas stay small. A literal
that follows a member of the input does not need a parameter, because a caller who passes that
member changes the literal.

In the plan, the reference `†input.NAME` replaces a literal with a default. A followed literal stays
as recorded, and its entry in `explained` names the parameter as `given`:
`{"at": ["calls", "2", "owner"], "by": [...], "given": "†input.owner"}`, or `"†input.also.owner"`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.explanations import Explanation, PathTo, same
from ideabridge.bridge.context.references import (
    Path,
    Reference,
    clipped,
    format_reference,
    map_references,
    parse_reference,
)
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.function import digest
from ideabridge.bridge.lifting.leaves import Leaf
from ideabridge.bridge.lifting.naming import Filled, own_name, parameter_names
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty
from ideabridge.tools.json_parts import json_type
from ideabridge.tools.keywords import SchemaKeywords, show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import META_PROPERTIES
from ideabridge.tools.typed import read_as

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_LONGEST_NAME: Final = 64
_SOURCE: Final = 80
_WORD: Final = re.compile(r"[\w.-]*\w")

ALSO: Final = "also"
"""The member of the input that holds the followed values after the first eight."""

_FIRST: Final = 8
"""The number of followed values that are direct members of the input, unless the publisher makes
decisions about more of them.
"""

_ABOUT_ALSO: Final = (
    "Further values of the calls. If they are left out, they are taken from earlier results."
)

_MOST_ALSO: Final = 200
"""The maximum number of members of `also`."""

_MOST_CONSTANTS: Final = 1_000
"""The maximum number of parameters with a default, unless the publisher makes decisions about more
of them. Nobody would read a longer schema, so the remaining literals stay unchanged.
"""

_KEYS: Final = ("rename", "merge", "fix", "description", "required", "default", "at")

_COPIED: Final = (
    "type",
    "enum",
    "description",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
)
"""The keywords that a parameter copies from a tool's schema. Other keywords might refer to parts of
that schema that are not copied.
"""


@dataclass(frozen=True, slots=True)
class ParameterDecision:
    """The publisher's decisions about one parameter.

    Attributes:
        rename: the new name of the parameter.
        merge: the parameter that replaces this one. Both have the same recorded value.
        fix: True to remove the parameter and keep the recorded value.
        description: the description of the parameter.
        required: True if callers must pass the parameter.
        default: a tuple with the default, or an empty tuple to keep the recorded value.
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
        PublicationError: the value does not have this shape. The message says where, and what was
            expected.
    """
    return {name: _decision(name, value) for name, value in (raw or {}).items()}


def _decision(name: str, raw: JSON) -> ParameterDecision:
    where = f"parameters.{name[:_LONGEST_NAME]}"
    if not isinstance(raw, dict):
        raise _malformed(where, f"an object with {', '.join(_KEYS)}", raw)

    for key in raw:
        if key not in _KEYS:
            raise PublicationError(
                f"{where}: unknown key {key[:_LONGEST_NAME]!r}.{did_you_mean(key, _KEYS)}"
            )

    decision = ParameterDecision(
        _text(raw, "rename", where),
        _text(raw, "merge", where),
        _flag(raw, "fix", where),
        _text(raw, "description", where),
        _flag(raw, "required", where),
        (raw["default"],) if "default" in raw else (),
        _paths(raw.get("at", []), where),
    )
    rename = decision.rename
    if rename is not None and not _NAME.fullmatch(rename):
        raise _malformed(f"{where}.rename", "letters, digits, _ and -", rename)
    if decision.at and not _NAME.fullmatch(name):
        raise PublicationError(f"{where}: expected a name of letters, digits, _ and -")
    if [rename is not None, decision.merge is not None, decision.fix].count(True) > 1:
        raise PublicationError(f"{where}: expected one of rename, merge and fix")
    return decision


def _text(raw: JSONObject, key: str, where: str) -> str | None:
    value = raw.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _malformed(f"{where}.{key}", "text", value)


def _flag(raw: JSONObject, key: str, where: str) -> bool:
    value = raw.get(key, False)
    if isinstance(value, bool):
        return value
    raise _malformed(f"{where}.{key}", "true or false", value)


def _paths(raw: JSON, where: str) -> tuple[str, ...]:
    paths = tuple(path for path in list_or_empty(raw) if isinstance(path, str))
    if not isinstance(raw, list) or len(paths) != len(raw):
        raise _malformed(f"{where}.at", "an array of paths such as calls.2.limit", raw)
    return paths


def _malformed(where: str, expected: str, value: JSON) -> PublicationError:
    return PublicationError(f"{where}: expected {expected}, found {show(value)}")


@dataclass(slots=True)
class Parameter:
    """A parameter that replaces literals.

    Attributes:
        name: the name of the parameter.
        value: the recorded value, which is the default.
        leaves: the literals that the parameter fills.
        tool: the tool of the first of these literals.
        source: the source of a followed value, or None if the parameter has a default.
        source_in_words: the source, in words.
        also: True if the parameter is a member of the object `also`.
    """

    name: str
    value: JSON
    leaves: list[Leaf]
    tool: str = ""
    source: Explanation | None = None
    source_in_words: str = ""
    also: bool = False

    @property
    def followed(self) -> bool:
        """Whether the value is read from its source when the caller omits the parameter."""
        return self.source is not None

    @property
    def reference(self) -> str:
        """The reference that reads the parameter."""
        if self.also:
            return format_reference(("input", ALSO, self.name))
        return format_reference(("input", self.name))

    @property
    def filled(self) -> Filled:
        """The values that the parameter fills, from which its name is derived."""
        leaf = self.leaves[0]
        source_keys: Path = ()
        if isinstance(self.source, PathTo):
            source_keys = self.source.path[1:]
        return Filled(self.tool, leaf.keys, self.value, source_keys, leaf.place)

    @property
    def schema(self) -> JSONObject:
        """The parameter's JSON Schema.

        It copies as much as possible from the schema of the tool's parameter, and also contains the
        recorded value as the default or, for a followed value, the name of the source.
        """
        leaf = self.leaves[0]
        declared = leaf.schema or {}
        schema: JSONObject = {key: declared[key] for key in _COPIED if key in declared}
        if not declared.keys() & {"type", "enum", "anyOf", "oneOf"}:
            schema = {**_type_of(self.value), **schema}

        items = read_as(SchemaKeywords, declared).items
        if isinstance(self.value, list) and items is not None and "$ref" not in str(items):
            schema["items"] = items

        if "description" not in schema and self.tool:
            name = leaf.keys[-1] if leaf.keys else "a value"
            schema["description"] = f"{name} of {self.tool}"

        if self.source is None:
            return {**schema, "default": self.value}

        source = clipped(self.source_in_words or self.source.shown, _SOURCE)
        sentence = f"If left out, it is taken from {source}."
        if "description" in schema:
            sentence = f"{str(schema['description']).rstrip('. ')}. {sentence}"

        return {**schema, "description": sentence}


def _type_of(value: JSON) -> JSONObject:
    return {} if value is None else {"type": json_type(value)}


def parameters_of(
    literals: Iterable[Parameter],
    reserved: Collection[str],
    decisions: Mapping[str, ParameterDecision],
    task: str,
) -> list[Parameter]:
    """Return one parameter for each group of equal literals that have the same name.

    Args:
        literals: for each literal, a parameter without a name.
        reserved: the names of the members of the run's input.
        decisions: the publisher's decisions, keyed by parameter name. The literals in a decision's
            `at` become one parameter.
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
                f"parameters.{name}.at: there is no constant at "
                f"{path!r}.{did_you_mean(path, paths)}"
            )

    # Name the parameters with a default first, so that they get the simplest names.
    ordered = sorted(unnamed.values(), key=lambda parameter: parameter.followed)
    filled = [parameter.filled for parameter in ordered]
    names = parameter_names(filled, {*reserved, *by_decision, ALSO})
    for parameter, name in zip(ordered, names, strict=True):
        parameter.name = name

    followed = [parameter for parameter in ordered if parameter.followed]
    left = _put_under_also(followed, reserved, decisions, task)
    undecided = [
        parameter.name
        for parameter in ordered
        if not parameter.followed and parameter.name not in decisions
    ]
    left.update(undecided[_MOST_CONSTANTS:])
    return [
        parameter for parameter in (*by_decision.values(), *ordered) if parameter.name not in left
    ]


def _put_under_also(
    followed: Sequence[Parameter],
    reserved: Collection[str],
    decisions: Mapping[str, ParameterDecision],
    task: str,
) -> set[str]:
    """Move all but the first few followed parameters into `also`. Return the names of those that do
    not fit.
    """
    words = set(_WORD.findall(task))
    undecided = [parameter for parameter in followed if parameter.name not in decisions]
    undecided.sort(key=lambda parameter: not _stands_in(parameter.value, task, words))
    room = max(0, _FIRST - (len(followed) - len(undecided)))
    rest = undecided[room:]
    if ALSO not in reserved:
        for parameter in rest[:_MOST_ALSO]:
            parameter.also = True

    return {parameter.name for parameter in rest if not parameter.also}


def _stands_in(value: JSON, task: str, words: Collection[str]) -> bool:
    if isinstance(value, bool) or value in (None, ""):
        return False
    if isinstance(value, int | float):
        return str(value) in words
    return isinstance(value, str) and value in task


def _fill(by_decision: dict[str, Parameter], name: str, literal: Parameter) -> None:
    """Let a parameter that the publisher named fill another literal.

    Raises:
        PublicationError: the parameter already fills literals with a different value.
    """
    [leaf] = literal.leaves
    named = by_decision.get(name)
    if named is None:
        by_decision[name] = Parameter(name, leaf.value, [leaf], literal.tool)
    elif same(named.value, leaf.value):
        named.leaves.append(leaf)
    else:
        raise PublicationError(
            f"parameters.{name}.at: {leaf.path} is {show(leaf.value)}, but {named.leaves[0].path} "
            f"is {show(named.value)}; a parameter can have only one value"
        )


@dataclass(slots=True)
class Inputs:
    """The tool's input after all decisions.

    Attributes:
        schema: the JSON Schema of the input.
        fixed: the members of the run's input that are not parameters, for which the plan uses the
            recorded values.
        renamed: maps the names that members had when the plan was lifted to their new names.
        unfilled: the names of the parameters whose literals stay unchanged.
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
    """Return the tool's input.

    Args:
        schema: the schema of the run's input.
        run_input: the run's input.
        parameters: the parameters that replace literals.
        decisions: the publisher's decisions, keyed by parameter name.

    Raises:
        PublicationError: a decision names a parameter that does not exist, or does not fit its
            parameter.
    """
    return _Deciding(schema, run_input, parameters).inputs(decisions)


class _Deciding:
    """Applies a publisher's decisions to a run's input; see `inputs_of`."""

    def __init__(
        self, schema: JSONObject, run_input: JSONObject, parameters: Sequence[Parameter]
    ) -> None:
        self._schema = schema
        self._run_input = run_input
        self._properties = {**object_or_empty(schema.get("properties"))}
        self._required = list_or_empty(schema.get("required"))
        self._also: JSONObject = {}
        self._recorded = {**run_input}
        self._parameter_names = set[str]()
        for parameter in parameters:
            self._parameter_names.add(parameter.name)
            self._recorded[parameter.name] = parameter.value
            members = self._also if parameter.also else self._properties
            members[parameter.name] = parameter.schema

        self._inputs = Inputs({})

    def inputs(self, decisions: Mapping[str, ParameterDecision]) -> Inputs:
        """Return the tool's input after all decisions.

        Raises:
            PublicationError: see `inputs_of`.
        """
        names = [*self._properties, *self._recorded]
        for name in decisions:
            if name not in names:
                raise PublicationError(
                    f"parameters: there is no parameter {name[:_LONGEST_NAME]!r}."
                    f"{did_you_mean(name, names)}"
                )

        for name, decision in decisions.items():
            if decision.merge is not None:
                self._merge(name, decision.merge)
            elif decision.fix:
                self._fix(name)
            else:
                self._change(name, decision)

        self._inputs.renamed = {name: _new_name(name, decisions) for name in self._inputs.renamed}
        for name in self._properties:
            if name in META_PROPERTIES:
                raise PublicationError(
                    f"parameters.{name}: calls already have a property with this name; rename the "
                    "parameter"
                )

        self._inputs.schema = self._new_schema()
        return self._inputs

    def _merge(self, name: str, other: str) -> None:
        where = f"parameters.{name}.merge"
        recorded = self._recorded
        if other == name or other not in recorded or name not in recorded:
            others = [member for member in recorded if member != name]
            raise PublicationError(
                f"{where}: there is no parameter {other!r}.{did_you_mean(other, others)}"
            )
        if not same(recorded[name], recorded[other]):
            raise PublicationError(
                f"{where}: its recorded value {show(recorded[name])} differs from that of {other}, "
                f"{show(recorded[other])}"
            )

        self._inputs.renamed[name] = other
        self._remove(name)

    def _fix(self, name: str) -> None:
        self._remove(name)
        if name in self._parameter_names:
            self._inputs.unfilled.add(name)
        elif name in self._run_input:
            self._inputs.fixed[name] = self._run_input[name]

    def _remove(self, name: str) -> None:
        self._properties.pop(name, None)
        self._required = [other for other in self._required if other != name]

    def _change(self, name: str, decision: ParameterDecision) -> None:
        """Change a parameter's schema and name, and whether it is required."""
        schema = {**object_or_empty(self._properties.get(name))}
        if decision.description is not None:
            schema["description"] = decision.description

        if decision.default:
            schema["default"] = decision.default[0]

        if decision.required and name not in self._required:
            self._required = [*self._required, name]
            schema.pop("default", None)

        self._properties[name] = schema
        if decision.rename is not None and decision.rename != name:
            self._rename(name, decision.rename)

    def _rename(self, name: str, new: str) -> None:
        if new in self._properties:
            raise PublicationError(
                f"parameters.{name}.rename: {new!r} is already another parameter; merge them "
                "instead"
            )

        self._inputs.renamed[name] = new
        self._properties = {
            new if key == name else key: value for key, value in self._properties.items()
        }
        self._required = [new if key == name else key for key in self._required]

    def _new_schema(self) -> JSONObject:
        properties = self._properties
        if self._also:
            properties[ALSO] = {
                "type": "object",
                "description": _ABOUT_ALSO,
                "properties": self._also,
                "additionalProperties": False,
            }

        schema: JSONObject = {**self._schema, "type": "object", "properties": properties}
        schema.pop("required", None)
        if self._required:
            schema["required"] = self._required

        return schema


def _new_name(name: str, decisions: Mapping[str, ParameterDecision]) -> str:
    """Return a parameter's new name or, for a merged parameter, the name of the one that replaces
    it.

    Raises:
        PublicationError: parameters are merged in a cycle, or into a fixed value.
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
            f"{where}: {name!r} is fixed, so it is not a parameter; fix both instead"
        )

    return name if decision is None or decision.rename is None else decision.rename


def renamed_inputs(value: JSON, names: Mapping[str, str]) -> JSON:
    """Return a value as written, with the new names of the input's members in its references."""
    if not names:
        return value
    return map_references(value, partial(_with_new_names, names=names))


def _with_new_names(text: str, names: Mapping[str, str]) -> str:
    try:
        expression = parse_reference(text)
    except ReferenceSyntaxError:
        return text

    return " || ".join(
        " && ".join(_renamed(operand, names) for operand in group)
        for group in expression.alternatives
    )


def _renamed(operand: Reference, names: Mapping[str, str]) -> str:
    if operand.kind != "input" or not operand.path or operand.path[0] not in names:
        return operand.text
    return format_reference(("input", names[operand.path[0]], *operand.path[1:]), operand.instance)
